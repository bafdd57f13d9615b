"""Work that is written once, and done either by a thread that blocks or by a task that awaits.

Such work is a generator. It yields each thing that takes time, and is sent what came of it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Step(Protocol):
    """A thing that takes time, in both ways to wait for it."""

    def block(self) -> Any: ...

    async def wait(self) -> Any: ...


Steps = Generator[Step, Any, T]


def block(steps: Steps[T]) -> T:
    """Does the work in this thread."""
    try:
        step = next(steps)
        while True:
            try:
                result = step.block()
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as stop:
        done: T = stop.value
        return done


async def wait(steps: Steps[T]) -> T:
    """Does the work in this task."""
    try:
        step = next(steps)
        while True:
            try:
                result = await step.wait()
            except BaseException as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as stop:
        done: T = stop.value
        return done


class InThread:
    """A step that blocks; a task waits for a thread that does it. To cancel the task does not end the thread."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work

    def block(self) -> Any:
        return self._work()

    async def wait(self) -> Any:
        import asyncio

        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def work() -> None:
            result = error = None
            try:
                result = self._work()
            except BaseException as caught:
                error = caught
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(settle, result, error)

        threading.Thread(target=work, name="tenure-step", daemon=True).start()
        return await future


def finish(work: Callable[[], object]) -> threading.Thread:
    """Begins work that must be done whatever interrupts the caller. It reports no error."""

    def quietly() -> None:
        with contextlib.suppress(Exception):
            work()

    thread = threading.Thread(target=quietly, name="tenure-finish", daemon=True)
    thread.start()
    return thread
