"""Something that a program is told once, from another thread: whether, and why."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Callable

# For what is called, of all notices: it is held for a moment. Reentrant, for signal handlers.
_mutex = threading.RLock()


class Notice:
    """As `threading.Event`, with a reason, for threads and tasks. True once it is set.

    `hold.lost` also comes true by itself, at the end of a lease that was not renewed in time. This clock is the
    program's own: so it counts also while serve is stopped.
    """

    __slots__ = ("_calls", "_deadline", "reason")

    def __init__(self) -> None:
        #: Why; None until it is set.
        self.reason: str | None = None
        self._deadline = math.inf
        self._calls: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<Notice: {self.reason or 'not set'}>"

    def __bool__(self) -> bool:
        return self.is_set()

    def is_set(self) -> bool:
        if self.reason is None and self._deadline < math.inf and time.monotonic() >= self._deadline:
            self.set("the lease was not renewed in time")
        return self.reason is not None

    def wait(self, timeout: float | None = None) -> bool:
        """Blocks until it is set, or for `timeout` seconds. Tells whether it is set."""
        gate = threading.Event()
        end = math.inf if timeout is None else time.monotonic() + timeout
        self.call(gate.set)
        while not self.is_set():
            rest = min(end, self._deadline) - time.monotonic()
            if rest <= 0 and time.monotonic() >= end:
                break
            gate.wait(None if rest == math.inf else max(0.0, min(rest, threading.TIMEOUT_MAX)))
        self.forget(gate.set)
        return self.is_set()

    async def wait_async(self) -> str:
        """Waits until it is set, and tells why."""
        import asyncio

        loop, gate = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(gate.set)

        self.call(wake)
        try:
            while not self.is_set():
                rest = self._deadline - time.monotonic()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if rest == math.inf else max(0.0, rest)):
                        await gate.wait()
        finally:
            self.forget(wake)
        return self.reason or ""

    def set(self, reason: str) -> None:
        """Says it. The first reason stays."""
        with _mutex:
            if self.reason is not None:
                return
            self.reason = reason
            calls, self._calls = self._calls, []
        for call in calls:
            call()

    def call(self, call: Callable[[], None]) -> None:
        """Has a short function called when it is set, by whatever thread sets it; at once if it is."""
        with _mutex:
            if self.reason is None:
                self._calls.append(call)
                return
        call()

    def lapses(self) -> bool:
        """Whether it comes true by itself, unless it is postponed again."""
        return self._deadline < math.inf

    def postpone(self, good_for_ms: int | None) -> None:
        """Notes how long it will not come true by itself. A deadline that has passed stays."""
        if not self.is_set():
            self._deadline = math.inf if good_for_ms is None else time.monotonic() + good_for_ms / 1000

    def forget(self, call: Callable[[], None]) -> None:
        """Has that function not called any more."""
        with _mutex, contextlib.suppress(ValueError):
            self._calls.remove(call)


def _forget_parent() -> None:
    global _mutex
    _mutex = threading.RLock()


os.register_at_fork(after_in_child=_forget_parent)
