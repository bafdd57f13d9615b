"""The one client of this process: which serve it uses, and which holds it has.

Holds are the process's and not serve's. So when a serve dies, the client starts another one, which adopts them.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from . import _steps
from ._errors import Lost, NoServe, TenureError
from ._serve import PROTOCOL, Request, Serve, ServeEnded
from ._steps import InThread, Steps

if TYPE_CHECKING:
    from ._hold import Hold

T = TypeVar("T")

# How many serves may fail one after the other to say hello.
TRIES = 5

# How many serves one call may use up in a row that die within QUICK seconds of its request, which may be what ends
# them. One that does not answer counts more: each was waited for.
DEATHS = 10
QUICK = 2.0
SILENT = 4


class Client:
    """Whatever this process has of tenure, as one user."""

    def __init__(self, process: tuple[int, int]) -> None:
        self.process = process
        self.holds: set[Hold] = set()
        self._serve: Serve | None = None

    def answered(self, work: Callable[[Serve], Steps[T]]) -> Steps[T]:
        """Does work with a serve, and again with the next one if it dies."""
        died, deaths = None, 0
        while True:
            serve = self._ready(died)
            if serve is None:
                serve = yield InThread(functools.partial(self._start, died))
                assert isinstance(serve, Serve)
            began = time.monotonic()
            try:
                return (yield from work(serve))
            except ServeEnded as end:
                is_quick = time.monotonic() - began < QUICK
                deaths = deaths + (SILENT if end.is_silent else 1) if is_quick or end.is_silent else 0
                died = serve
                if deaths > DEATHS:
                    raise _useless(serve, end) from None

    def drop_in_child(self) -> None:
        if self._serve is not None:
            self._serve.drop_in_child()

    def _ready(self, died: Serve | None) -> Serve | None:
        serve = self._serve
        return serve if serve is not None and serve is not died and serve.is_ready and not serve.has_ended else None

    def _start(self, died: Serve | None) -> Serve:
        with _starting:
            for rest in reversed(range(TRIES)):
                if serve := self._ready(died):
                    return serve
                if self._serve is not None:
                    self._serve.end()
                try:
                    serve = Serve()
                except OSError as error:
                    raise NoServe(f"tenure serve cannot be started: {error}", "NO_SERVE") from error
                except RuntimeError as error:
                    raise NoServe(f"no thread can be started: {error}", "NO_SERVE") from error
                if other := self._ready(died):  # a signal handler was quicker
                    serve.end()
                    return other
                self._serve = serve
                try:
                    self._introduce(serve)
                except ServeEnded as end:
                    if not rest or end.is_silent:
                        serve.end()
                        raise _useless(serve, end) from None
                else:
                    serve.is_ready = True
                    return serve
            raise AssertionError

    def _introduce(self, serve: Serve) -> None:
        me = f"tenure for Python, on {sys.implementation.name} {sys.version.split()[0]}"
        hello = Request(serve, "hello", {"protocol": PROTOCOL, "client": me, "pid": self.process[0]})
        try:
            answer = hello.block()
            if answer["protocol"] != PROTOCOL:
                raise NoServe(f"{serve.path} speaks protocol {answer['protocol']!r}", "PROTOCOL_UNKNOWN")
        except (TypeError, KeyError):
            raise ServeEnded from None
        except TenureError as error:
            serve.end()
            raise NoServe(f"{serve.path} cannot serve this program: {error}", error.code) from None
        for hold in list(self.holds):
            try:
                _steps.block(hold.adopt(serve))
            except Lost:
                pass  # the hold knows
            except TenureError:
                pass  # its next use tries again


def _useless(serve: Serve, end: ServeEnded) -> NoServe:
    return NoServe(f"{serve.path} serve is of no use: {serve.fault or end}", "NO_SERVE")


_clients: dict[tuple[int, int], Client] = {}


def client() -> Client:
    """The client of this process. After a change of the user id it is another one, with a serve of that user."""
    process = (os.getpid(), os.geteuid())
    found = _clients.get(process)
    if found is None:
        for pid, _ in list(_clients):
            if pid != process[0]:  # a fork that ran no hook
                _forget_parent()
                break
        found = _clients.setdefault(process, Client(process))
    return found


# For the choice of a serve. Also a fork waits for it: while a serve is being started, a child would get pipes that
# nobody closes. Reentrant, for signal handlers and because the start adopts holds.
_starting = threading.RLock()


def _before_fork() -> None:
    _starting.acquire()


def _after_fork() -> None:
    _starting.release()


def _forget_parent() -> None:
    global _starting
    _starting = threading.RLock()
    for found in _clients.values():
        found.drop_in_child()
    _clients.clear()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_forget_parent)
