"""What becomes of holds where processes fork, end and get signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Program, Programs, is_free, line, serve_pid

import tenure


def test_a_forked_child_has_no_part_in_the_hold(program: Programs) -> None:
    code = """if True:
        import os, sys, warnings, tenure
        warnings.simplefilter("ignore", DeprecationWarning)
        hold = tenure.lock("a").acquire()
        if os.fork() == 0:
            hold.release()
            assert hold.is_inherited
            for use in (hold.verify, hold.env):
                try:
                    use()
                except tenure.Inherited:
                    print("inherited", flush=True)
            try:
                tenure.lock("a", timeout=0).acquire()
            except tenure.Held:
                print("held", flush=True)
            with tenure.lock("of-the-child"):
                print("own", flush=True)
            os._exit(0)
        os.wait()
        hold.verify()
        print("verified", flush=True)
        sys.stdin.read()
    """
    parent = program(code)
    assert [line(parent) for _ in range(5)] == ["inherited", "inherited", "held", "own", "verified"]
    assert not is_free("a")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_a_pool_take_turns(method: str) -> None:
    words = [sys.executable, str(Path(__file__).with_name("pool.py")), method]
    said = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=100, check=True)
    assert len(set(said.stdout.split())) == 6


def test_a_hold_ends_with_its_program(holder: Callable[[str], Program]) -> None:
    killed = holder("a")
    assert not is_free("a")
    killed.kill()
    killed.wait()
    with tenure.lock("a", timeout=10):
        pass
    assert killed.poll() == -signal.SIGKILL


def test_a_hold_ends_although_a_child_keeps_the_pipes(program: Programs) -> None:
    # No hook runs at this fork, so the child has the pipes of its parent's serve.
    code = """if True:
        import ctypes, os, time, tenure
        tenure.lock("a").acquire()
        if ctypes.PyDLL(None).fork() == 0:
            time.sleep(5)
            os._exit(0)
        print("held", flush=True)
        time.sleep(60)
    """
    parent = program(code)
    assert line(parent) == "held"
    parent.kill()
    parent.wait()
    began = time.monotonic()
    with tenure.lock("a", timeout=10):
        assert time.monotonic() - began < 4


def test_an_interpreter_ends_with_holds_and_without_words(program: Programs) -> None:
    code = """if True:
        import atexit, tenure
        hold = tenure.lock("a").acquire()
        other = tenure.lock("b").acquire()
        atexit.register(other.release)
        class Late:
            def __del__(self, release=hold.release): release()
        late = Late()
        print("held")
    """
    ending = program(code)
    assert line(ending) == "held"
    assert ending.wait(10) == 0
    for name in ("a", "b"):
        with tenure.lock(name, timeout=10):
            pass


def test_ctrl_c_cuts_a_wait_and_leaves_nothing(program: Programs, holder: Callable[[str], Program]) -> None:
    other = holder("a")
    code = """if True:
        import tenure
        try:
            print("waits")
            tenure.lock("a", timeout=None).acquire()
        except KeyboardInterrupt:
            print(len(tenure.check("a").queue), tenure.check("a").mine)
    """
    waiter = program(code)
    assert line(waiter) == "waits"
    while not tenure.check("a").queue:
        time.sleep(0.01)
    waiter.send_signal(signal.SIGINT)
    assert line(waiter) == "0 False"
    assert waiter.wait(10) == 0
    other.kill()


def test_signals_of_the_terminal_do_not_reach_serve() -> None:
    with tenure.lock("a") as hold:
        pid = serve_pid()
        assert os.getsid(pid) != os.getsid(0)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            os.kill(pid, number)
        hold.verify()
        assert serve_pid() == pid


def test_a_signal_handler_may_take_locks() -> None:
    seen: list[int] = []

    def handle(*_: object) -> None:
        with tenure.lock("of-the-handler") as hold:
            seen.append(hold.token)
        signal.setitimer(signal.ITIMER_REAL, 0.002)

    previous = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002)
        for _ in range(50):
            with tenure.lock("a"):
                pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert seen


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes its user id")
def test_another_user_id_has_another_serve(program: Programs) -> None:
    code = """if True:
        import os, tenure
        hold = tenure.lock("a").acquire()
        os.seteuid(65534)
        with tenure.lock("b", dir=os.environ["TENURE_DIR"] + "-of-nobody"):
            print("both", flush=True)
        os.seteuid(0)
        hold.verify()
        print("verified", flush=True)
    """
    folder = os.environ["TENURE_DIR"] + "-of-nobody"
    os.mkdir(folder)
    os.chown(folder, 65534, 65534)
    path = os.path.dirname(folder)
    while path != "/":
        os.chmod(path, os.stat(path).st_mode | 0o011)
        path = os.path.dirname(path)
    other = program(code)
    assert line(other) == "both"
    assert line(other) == "verified"


def test_exec_ends_holds(program: Programs) -> None:
    code = """if True:
        import os, tenure
        tenure.lock("a").acquire()
        os.execvp("sh", ["sh", "-c", "echo now; read word"])
    """
    other = program(code)
    assert line(other) == "now"
    with tenure.lock("a", timeout=10):
        assert other.poll() is None
