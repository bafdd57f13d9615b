"""Locks of one thread and of several: what is granted, what is refused, and with which facts."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Program, is_free, serve_pid, tenure_command

import tenure


def test_a_lock_excludes_others_until_it_is_left() -> None:
    with tenure.lock("a") as hold:
        assert not is_free("a")
        hold.verify()
        assert not hold.lost
        assert not hold.stop_requested
    assert is_free("a")


def test_tokens_rise() -> None:
    tokens = []
    for _ in range(3):
        with tenure.lock("a") as hold:
            tokens.append(hold.token)
    assert tokens == sorted(set(tokens))


def test_a_refusal_names_lock_and_person(holder: Callable[[str], Program]) -> None:
    other = holder("deploy")
    with pytest.raises(tenure.Held) as refused:
        tenure.lock("deploy", timeout=0).acquire()
    error = refused.value
    assert isinstance(error, TimeoutError)
    assert str(error).startswith(f"deploy is held by PID {other.pid} (")
    assert error.name == "deploy"
    assert error.holder is not None
    assert (error.holder.pid, error.holder.why) == (other.pid, "release 4.2")
    assert error.holder.user in str(error)
    assert error.holder.since.tzinfo is not None
    assert error.queue == ()
    assert error.retry_after is not None


def test_a_wait_is_as_long_as_was_asked(holder: Callable[[str], Program]) -> None:
    holder("a")
    began = time.monotonic()
    with pytest.raises(tenure.Held, match="waited"):
        tenure.lock("a", timeout=0.3).acquire()
    assert 0.3 <= time.monotonic() - began < 10


def test_a_wait_ends_with_the_holder(holder: Callable[[str], Program]) -> None:
    other = holder("a")
    threading.Timer(0.1, other.kill).start()
    with tenure.lock("a", timeout=None):
        assert other.wait(10) != 0


def test_the_caller_is_not_let_to_wait_for_itself() -> None:
    with tenure.lock("a"), pytest.raises(tenure.AlreadyHeld):
        tenure.lock("a", timeout=None).acquire()


def test_threads_take_turns() -> None:
    lock, inside, most = tenure.lock("a", timeout=None), 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(5):
            with lock:
                inside += 1
                most = max(most, inside)
                time.sleep(0.001)
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_several_locks_are_taken_or_none(holder: Callable[[str], Program]) -> None:
    with tenure.locks("db", "cache") as hold:
        assert [lock.name for lock in hold.locks] == ["db", "cache"]
        assert hold.token == hold.locks[0].token
        assert not is_free("db")
        assert not is_free("cache")
    holder("cache")
    with pytest.raises(tenure.Held, match="cache"):
        tenure.locks("db", "cache", timeout=0).acquire()
    assert is_free("db")


def test_readers_share() -> None:
    reader = tenure.lock("a", shared=True)
    with reader:
        assert tenure_command("run", "-n", "--shared", "a", "--", "true").returncode == 0
        assert not is_free("a")


def test_a_slot_has_a_number_and_its_member(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = folder.parent / "tenure.toml"
    config.write_text('[lock.gpu]\nmembers = ["GPU-a", "GPU-b"]\nenv = { GPU = "{member}" }\n')
    monkeypatch.setenv("TENURE_CONFIG", str(config))
    code = "import sys, tenure\nwith tenure.lock('gpu') as hold: print(hold.slot, hold.member)"
    with tenure.lock("gpu") as hold:
        assert (hold.slot, hold.member) == (0, "GPU-a")
        assert (hold.env()["TENURE_SLOT"], hold.env()["GPU"]) == ("0", "GPU-a")
        os.kill(serve_pid(), signal.SIGKILL)
        hold.verify()
        assert hold.env()["GPU"] == "GPU-a"
        said = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
        assert said.stdout.split() == ["1", "GPU-b"]
    with tenure.lock("other", slots=3) as hold:
        assert (hold.slot, hold.member) == (0, None)


def test_a_group_is_asked_to_stop_by_its_newer_run() -> None:
    first = tenure.lock(group="pr-7").acquire()
    newer: list[tenure.Hold] = []

    def take() -> None:
        newer.append(tenure.lock(group="pr-7", cancel_in_progress=True, timeout=30).acquire())

    thread = threading.Thread(target=take)
    thread.start()
    assert first.stop_requested.wait(10)
    assert first.stop_requested
    first.release()
    thread.join(10)
    assert newer[0].token > first.token
    newer[0].release()


def test_cancel_asks_the_holder() -> None:
    with tenure.lock("a") as hold:
        (asked,) = tenure.cancel("a", why="make room")
        assert asked["pid"] == os.getpid()
        assert hold.stop_requested.wait(10)
        hold.verify()


def test_a_decorated_function_holds_the_lock() -> None:
    @tenure.lock("a")
    def work(number: int) -> int:
        """Works."""
        assert not is_free("a")
        return number + 1

    assert work(1) == 2
    assert work.__doc__ == "Works."
    assert is_free("a")

    def numbers() -> Iterator[int]:
        yield 1

    with pytest.raises(TypeError, match="generator"):
        tenure.lock("a")(numbers)


def test_check_and_list_tell_how_locks_stand(holder: Callable[[str], Program]) -> None:
    other = holder("a")
    standing = tenure.check("a")
    assert not standing.available
    assert not standing.mine
    assert standing.holder is not None
    assert standing.holder.pid == other.pid
    assert [lock.name for lock in tenure.list()] == ["a"]
    assert tenure.check("b").holder is None
    with tenure.lock("b", slots=2):
        assert tenure.check("b").mine
        assert tenure.check("b", slots=2).available


def test_wait_takes_nothing(holder: Callable[[str], Program]) -> None:
    other = holder("a")
    with pytest.raises(tenure.Held, match=f"a is held by PID {other.pid} .*release 4.2"):
        tenure.wait("a", timeout=0)
    threading.Timer(0.1, other.kill).start()
    tenure.wait("a", timeout=30)
    assert is_free("a")


def test_children_under_the_hold_are_not_let_to_wait_for_it() -> None:
    with tenure.lock("a") as hold:
        words = [tenure.find_binary(), "run", "--wait", "30s", "a", "--", "true"]
        assert subprocess.run(words, env=hold.env(), stderr=subprocess.DEVNULL, check=False).returncode == 81
        assert hold.env({})["TENURE_NAME"] == "a"
        assert "PATH" not in hold.env({})


def test_locks_pickle_and_holds_do_not() -> None:
    lock = tenure.lock("a", timeout=3, dir="here")
    with lock as hold:
        copy = pickle.loads(pickle.dumps(lock))
        assert (copy.names, copy.timeout, copy._place) == (("a",), 3, lock._place)
        with pytest.raises(TypeError, match="a hold belongs to its process"):
            pickle.dumps(hold)
    error = pickle.loads(pickle.dumps(tenure.Held("no", "LOCK_HELD", {"context": {"name": "a"}})))
    assert (str(error), error.code, error.name) == ("no", "LOCK_HELD", "a")


def test_a_release_is_done_once() -> None:
    hold = tenure.lock("a").acquire()
    hold.release()
    hold.release()
    with tenure.lock("a"):
        hold.release()
        assert not is_free("a")


def test_a_hold_whose_file_is_gone_is_lost(folder: Path) -> None:
    with pytest.raises(tenure.Lost), tenure.lock("a") as hold:
        (folder / "a.tenure").unlink()
        assert hold.lost.wait(10)
    assert hold.lost.reason is not None


def test_an_error_of_the_body_comes_before_the_loss(folder: Path) -> None:
    with pytest.raises(ZeroDivisionError) as raised, tenure.lock("a"):
        (folder / "a.tenure").unlink()
        _ = 1 / 0
    assert any("lost" in note for note in raised.value.__notes__)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (tenure.lock, TypeError),
        (tenure.locks, TypeError),
        (lambda: tenure.lock(b"a"), TypeError),  # type: ignore[arg-type]
        (lambda: tenure.lock("a", timeout=-1), ValueError),
        (lambda: tenure.lock("a", timeout=float("nan")), ValueError),
        (lambda: tenure.lock("@", timeout=0).acquire(), tenure.BadArguments),
        (lambda: tenure.lock("a", shared=True, slots=2).acquire(), ValueError),
        (lambda: tenure.lock("x" * (1 << 20)).acquire(), ValueError),
        (lambda: tenure.lock("\udc80").acquire(), ValueError),
    ],
)
def test_a_call_without_sense_is_refused(call: Callable[[], object], error: type[Exception]) -> None:
    with tenure.lock("held") as hold:
        with pytest.raises(error):
            call()
        hold.verify()


def test_the_folder_may_be_relative(tmp_path: Path) -> None:
    with tenure.lock("a", dir="here"):
        assert (tmp_path / "here" / "a.tenure").exists()
