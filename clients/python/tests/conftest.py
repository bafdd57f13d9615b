"""Each test has a folder of locks and a serve of its own. TENURE_BIN names the `tenure` under test."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tenure
from tenure import _client

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src"

# A shell has its background jobs ignore it, and some tests are about it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the locks of this test."""
    monkeypatch.setenv("TENURE_DIR", str(tmp_path / "locks"))
    monkeypatch.setenv("TENURE_CONFIG", "/dev/null")
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    monkeypatch.chdir(tmp_path)
    yield tmp_path / "locks"
    forget_serve()


def forget_serve() -> None:
    """Ends the serve of this process with its holds, so that the next use starts another one."""
    for client in list(_client._clients.values()):
        client.holds.clear()
        if client._serve is not None:
            client._serve.end()
    _client._clients.clear()


def serve_pid() -> int:
    """PID of the serve of this process."""
    serve = _client.client()._serve
    assert serve is not None
    return serve._process.pid


def tenure_command(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([tenure.find_binary(), *words], capture_output=True, check=False)


def is_free(name: str) -> bool:
    """Whether another process can take a lock."""
    return tenure_command("run", "-n", name, "--", "true").returncode == 0


Program = subprocess.Popen[str]
Programs = Callable[[str], Program]


@pytest.fixture
def program() -> Iterator[Programs]:
    """Starts Python programs, whose output is read line by line."""
    with contextlib.ExitStack() as running:

        def start(code: str) -> Program:
            process = subprocess.Popen(
                [sys.executable, "-W", "error", "-u", "-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=dict(os.environ),
            )
            running.callback(_end, process)
            return process

        yield start


def _end(process: Program) -> None:
    process.kill()
    process.wait()
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    process.stdout.close()


def line(process: Program) -> str:
    """The next line that a program says."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture
def holder(program: Programs) -> Callable[[str], Program]:
    """Starts a program that holds a lock until its stdin ends."""

    def start(name: str) -> Program:
        code = f"import sys, tenure\nwith tenure.lock({name!r}, why='release 4.2'): print('held'); sys.stdin.read()"
        process = program(code)
        assert line(process) == "held"
        return process

    return start


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has the client start a serve that behaves as `fake.py` says, and lose its patience early with a silent one."""

    def use(how: str) -> None:
        path = tmp_path / "fake-tenure"
        path.write_text(f"#!/bin/sh\nexec {sys.executable} -S {TESTS / 'fake.py'} {how} {tmp_path}\n")
        path.chmod(0o700)
        monkeypatch.setenv("TENURE_BIN", str(path))
        if "silen" in how:
            monkeypatch.setattr("tenure._serve.LOOK", 0.3)

    return use
