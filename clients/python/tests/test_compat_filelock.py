"""Locks on files: what they exclude, and what is left when programs and serves die. More is in `upstream.py`."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Program, Programs, forget_serve, line, serve_pid

import tenure
from tenure.compat.filelock import AsyncFileLock, BaseFileLock, FileLock, Timeout


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that is locked."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "a.lock"


@contextlib.contextmanager
def locked_by_another_package(path: Path) -> Iterator[None]:
    """As the package filelock does it, in an open file that only this test knows."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_open_to_another_package(path: Path) -> bool:
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@pytest.fixture
def holder_of(program: Programs) -> Callable[[Path], Program]:
    """Starts a program that has a file until its stdin ends."""

    def start(path: Path) -> Program:
        code = f"""if True:
            import sys
            from tenure.compat.filelock import FileLock
            with FileLock({str(path)!r}):
                print("held")
                sys.stdin.read()
        """
        process = program(code)
        assert line(process) == "held"
        return process

    return start


def test_users_of_both_packages_exclude_each_other(path: Path) -> None:
    with FileLock(path):
        assert not is_open_to_another_package(path)
    assert is_open_to_another_package(path)
    with locked_by_another_package(path):
        for timeout in (0, 0.2):
            began = time.monotonic()
            with pytest.raises(Timeout, match=r"The file lock '.*' could not be acquired"):
                FileLock(path).acquire(timeout=timeout)
            assert timeout <= time.monotonic() - began < 10
    with FileLock(path, timeout=0):
        pass


def test_a_waiter_sleeps_until_a_user_of_the_other_package_is_done(path: Path) -> None:
    got = threading.Event()

    def take() -> None:
        with FileLock(path):
            got.set()

    with locked_by_another_package(path):
        waiter = threading.Thread(target=take)
        waiter.start()
        assert not got.wait(0.3)
    assert got.wait(10)
    waiter.join()


def test_a_refusal_tells_who_has_the_file(path: Path, holder_of: Callable[[Path], Program]) -> None:
    other = holder_of(path)
    with pytest.raises(Timeout) as refused:
        FileLock(path, timeout=0.1).acquire()
    held = refused.value.__cause__
    assert isinstance(held, tenure.Held)
    assert held.holder is not None
    assert (held.holder.pid, held.holder.why) == (other.pid, str(path))


def test_waiters_are_served_in_order(path: Path) -> None:
    order: list[int] = []

    def take(number: int) -> None:
        with FileLock(path):
            order.append(number)

    threads = [threading.Thread(target=take, args=[number]) for number in range(8)]
    with FileLock(path):
        for thread in threads:
            thread.start()
            time.sleep(0.02)
    for thread in threads:
        thread.join()
    assert order == list(range(8))


def test_the_death_of_serve_opens_nothing(path: Path, holder_of: Callable[[Path], Program]) -> None:
    with FileLock(path) as lock:
        os.kill(serve_pid(), signal.SIGKILL)
        assert not is_open_to_another_package(path)
        words = [
            sys.executable,
            "-c",
            f"from tenure.compat.filelock import *\nFileLock({str(path)!r}).acquire(timeout=0)",
        ]
        assert b"Timeout" in subprocess.run(words, capture_output=True, check=False).stderr
        assert lock.is_locked
    holder_of(path)


def test_the_death_of_the_program_opens_both(path: Path, holder_of: Callable[[Path], Program]) -> None:
    other = holder_of(path)
    other.kill()
    other.wait()
    assert is_open_to_another_package(path)
    with FileLock(path, timeout=10):
        pass


def test_a_forked_child_keeps_nothing_open(path: Path, program: Programs) -> None:
    code = f"""if True:
        import os, time
        from tenure.compat.filelock import FileLock
        lock = FileLock({str(path)!r})
        lock.acquire()
        if os.fork() == 0:
            assert not lock.is_locked
            lock.release()
            try:
                lock.acquire()
            except RuntimeError:
                print("inherited", flush=True)
            time.sleep(5)
            os._exit(0)
        time.sleep(60)
    """
    parent = program(code.replace("import os, time", "import os, time, warnings; warnings.simplefilter('ignore')"))
    assert line(parent) == "inherited"
    assert not is_open_to_another_package(path)
    parent.kill()
    parent.wait()
    with FileLock(path, timeout=3):
        pass


def test_a_file_that_was_removed_is_made_again(path: Path) -> None:
    def take() -> None:
        with FileLock(path):
            pass

    with locked_by_another_package(path):
        threading.Timer(0.2, path.unlink).start()
        waiting = threading.Thread(target=take)
        waiting.start()
        time.sleep(0.3)
    waiting.join(10)
    assert path.exists()


def test_a_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    path.symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links"):
        FileLock(path).acquire(timeout=0)
    assert not (tmp_path / "target").exists()


def test_without_a_place_for_the_queue_the_file_alone_is_locked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    with FileLock(path, timeout=0):
        assert not is_open_to_another_package(path)
        with pytest.raises(Timeout):
            FileLock(path, timeout=0.1).acquire()


def test_tasks_take_turns_with_all_others(path: Path) -> None:
    async def work() -> None:
        async with AsyncFileLock(path):
            assert not is_open_to_another_package(path)
            await asyncio.sleep(0.001)

    async def main() -> None:
        await asyncio.gather(*(work() for _ in range(5)))
        with locked_by_another_package(path):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await AsyncFileLock(path).acquire()
            with pytest.raises(Timeout):
                await AsyncFileLock(path).acquire(timeout=0.1)
        async with AsyncFileLock(path, timeout=5):
            pass

    asyncio.run(main())


def test_a_check_ends_the_wait(path: Path) -> None:
    asked: list[float] = []

    def check() -> bool:
        asked.append(time.monotonic())
        return len(asked) == 3

    with FileLock(path), pytest.raises(Timeout):
        FileLock(path).acquire(timeout=30, poll_interval=0.02, cancel_check=check)
    asked.clear()
    with locked_by_another_package(path), pytest.raises(Timeout):
        FileLock(path).acquire(timeout=30, poll_interval=0.02, cancel_check=check)


@pytest.mark.parametrize("kind", [FileLock, AsyncFileLock])
def test_what_is_not_here_is_refused(kind: type[BaseFileLock], path: Path) -> None:
    with pytest.raises(ValueError, match="chain"):
        kind(path, context_error_policy="group")
    with pytest.warns(UserWarning, match="lifetime is ignored"):
        assert kind(path, lifetime=3).lifetime is None


MIXED = """if True:
    import fcntl, os, random, sys, time
    from tenure.compat.filelock import FileLock, Timeout
    path, kind = sys.argv[1:]
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        if kind == "ours":
            lock = FileLock(path)
            lock.acquire()
            leave = lock.release
        else:
            file = open(path, "a")
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(0.002)
            leave = file.close
        mark = os.open(path + ".mark", os.O_CREAT | os.O_EXCL)
        time.sleep(random.choice([0, 0.001]))
        os.unlink(path + ".mark")
        os.close(mark)
        leave()
        print(kind)
"""


def test_a_mixed_crowd_has_no_second_holder(path: Path) -> None:
    kinds = ["ours", "theirs"] * 3
    crowd = [
        subprocess.Popen([sys.executable, "-c", MIXED, str(path), kind], stdout=subprocess.PIPE, text=True)
        for kind in kinds
    ]
    said = [process.communicate()[0].split() for process in crowd]
    assert [process.returncode for process in crowd] == [0] * 6
    assert all(said)


def test_each_serve_knows_the_queue_again(path: Path) -> None:
    lock = FileLock(path)
    with lock, lock:
        forget_serve()
        assert lock.lock_counter == 2
    assert is_open_to_another_package(path)
