"""Locks as a program says them: what to take, for `with`, `async with`, and as a decorator."""

from __future__ import annotations

import enum
import functools
import inspect
import math
import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast

from . import _caller, _steps
from ._client import client
from ._errors import AlreadyHeld, Lost, TenureError
from ._hold import Hold, settled
from ._serve import LATE, BadMessage

if TYPE_CHECKING:
    import asyncio

P = ParamSpec("P")
R = TypeVar("R")


class Usual(enum.Enum):
    """A value that the caller leaves to tenure.toml, and else to tenure."""

    USUAL = "usual"


USUAL: Final = Usual.USUAL


class Lock:
    """Locks to take, all or none. Cheap to make; any number of threads and tasks may use one object, and it pickles.

    `with` blocks the thread, `async with` the task alone. A lock is not reentrant: who has it already gets AlreadyHeld.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        *,
        timeout: float | Usual | None = USUAL,
        why: str | None = None,
        shared: bool = False,
        slots: int | None = None,
        group: str | None = None,
        cancel_in_progress: bool = False,
        ttl: float | None = None,
        dir: str | os.PathLike[str] | None = None,
        store: str | None = None,
    ) -> None:
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"the name of a lock is text, not {name!r}")
        if not names and group is None:
            raise TypeError("name a lock or a group")
        if isinstance(timeout, (int, float)) and not timeout >= 0:
            raise ValueError(f"timeout: {timeout!r} is not a number of seconds from 0 on; None waits without end")
        self.names = names
        self.timeout = timeout
        self._group = group
        self._place = {"dir": None if dir is None else os.path.abspath(os.fspath(dir)), "store": store}
        self._options: dict[str, Any] = {
            "locks": [{"name": name, "shared": shared, "slots": slots} for name in names],
            "why": why,
            "group": group,
            "cancel_in_progress": cancel_in_progress,
            "ttl_ms": None if ttl is None else int(ttl * 1000),
        }
        # Whoever is between `__enter__` and `__exit__`.
        self._entered: dict[str, Hold] = {}
        self._bodies: dict[str, _Body] = {}

    def __repr__(self) -> str:
        return f"<tenure.Lock: {', '.join(self.names) or self._group}>"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_entered": {}, "_bodies": {}}

    def acquire(self) -> Hold:
        """Takes the locks and gives the hold, which is to be released.

        Raises Held if they are not free in time, and AlreadyHeld if the caller would wait for itself.
        """
        hold = self._new_hold(_caller.thread())
        self._refuse_to_block_the_loop()
        try:
            _steps.block(hold.acquire(self._options, _Wait(self.timeout)))
        except BaseException as error:  # Ctrl-C, say
            if _is_in_doubt(error):
                _steps.finish(hold.give_up).join()
            raise
        return hold

    async def acquire_async(self) -> Hold:
        """As `acquire`, for a task. A task that is cancelled meanwhile leaves nothing held."""
        import asyncio

        hold = self._new_hold(_caller.task(_this_task()))
        hold.loop = asyncio.get_running_loop()
        try:
            await _steps.wait(hold.acquire(self._options, _Wait(self.timeout)))
        except BaseException as error:
            if _is_in_doubt(error):
                await settled(hold.give_up)
            raise
        return hold

    def __enter__(self) -> Hold:
        hold = self.acquire()
        self._entered[_caller.thread()] = hold
        return hold

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.pop(_caller.thread()).__exit__(kind, error, trace)

    async def __aenter__(self) -> Hold:
        hold, task = await self.acquire_async(), _this_task()
        self._entered[_caller.task(task)] = hold
        self._bodies[_caller.task(task)] = _Body(hold, task)
        return hold

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        caller = _caller.task(_this_task())
        hold, body = self._entered.pop(caller), self._bodies.pop(caller)
        is_ours = await body.leave(error)
        try:
            await hold.release_async()
        except Lost as lost:
            if error is None or is_ours:
                raise lost from error
            error.add_note(f"the lock was lost meanwhile: {lost}")

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorates a function or a coroutine function: each call holds the locks."""
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError("a generator runs after its call; take the lock inside of it")
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def call_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                async with self:
                    return await function(*args, **kwargs)

            return cast(Callable[P, R], call_async)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        return call

    def _new_hold(self, caller: str) -> Hold:
        return Hold(client(), caller, self.names, self._group, self._place)

    def _refuse_to_block_the_loop(self) -> None:
        """Refuses a wait for a task that this very wait would keep from going on."""
        asyncio = sys.modules.get("asyncio")
        loop = asyncio._get_running_loop() if asyncio is not None else None
        if loop is None:
            return
        for hold in list(client().holds):
            if hold.loop is loop and hold.is_of(self.names, self._place):
                name = ", ".join(self.names)
                raise AlreadyHeld(f"{name} is held by a task of this thread: use `async with`", "ALREADY_HELD")


class _Wait:
    """A wait that has begun."""

    def __init__(self, timeout: float | Usual | None) -> None:
        self._timeout = timeout
        self._end = time.monotonic() + timeout if isinstance(timeout, (int, float)) else math.inf

    def params(self) -> dict[str, Any]:
        if self._timeout is USUAL:
            return {}
        if self._end == math.inf:
            return {"wait_ms": "forever"}
        return {"wait_ms": int(max(0.0, self._end - time.monotonic()) * 1000)}

    def limit(self) -> float | None:
        return None if self._end == math.inf else self._end + LATE

    interval = math.inf

    def look(self) -> None:
        pass


class _Body:
    """The body of an `async with`: it is cancelled once its locks are lost."""

    def __init__(self, hold: Hold, task: asyncio.Task[Any]) -> None:
        self._lost = hold.lost
        self._task = task
        self._loop = task.get_loop()
        self._cancelling = task.cancelling()
        self._is_cancelled = False
        self._watcher: asyncio.Task[None] | None = None
        self._has_left = False
        if hold.lost.lapses():
            self._watcher = self._loop.create_task(self._watch())
        else:
            hold.lost.call(self._tell)

    async def leave(self, error: BaseException | None) -> bool:
        """Ends the watch. Tells whether `error` is the cancellation that the loss brought."""
        import asyncio

        self._has_left = True
        self._lost.forget(self._tell)
        if self._watcher is not None:
            self._watcher.cancel()
        if not self._is_cancelled:
            return False
        is_ours = self._task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError)
        if not isinstance(error, asyncio.CancelledError):
            # The body has ended without hearing of it; the cancellation waits for the next `await`.
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                pass
        return is_ours

    def _tell(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:  # the loop has been closed
            pass

    def _cancel(self) -> None:
        if not self._has_left and not self._is_cancelled:
            self._is_cancelled = True
            self._task.cancel(f"the lock was lost: {self._lost.reason}")

    async def _watch(self) -> None:
        await self._lost.wait_async()
        self._cancel()


def _this_task() -> asyncio.Task[Any]:
    import asyncio

    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("there is no running task of asyncio")
    return task


def _is_in_doubt(error: BaseException) -> bool:
    """Whether something may have been granted, or will be: no answer has said that nothing is."""
    if isinstance(error, TenureError):
        return error.code == "NO_SERVE"
    return not isinstance(error, BadMessage)


def lock(
    name: str | None = None,
    *,
    timeout: float | Usual | None = USUAL,
    why: str | None = None,
    shared: bool = False,
    slots: int | None = None,
    group: str | None = None,
    cancel_in_progress: bool = False,
    ttl: float | None = None,
    dir: str | os.PathLike[str] | None = None,
    store: str | None = None,
) -> Lock:
    """A lock by its name, a group, or both.

    timeout: seconds to wait; 0 tries, None waits without end. Without it, what tenure.toml says, else 10 seconds.
    why: what others read of this hold; else the command line.
    shared: hold it beside other shared holders.
    slots: how many may hold it at once; the hold has the number of its slot.
    group, cancel_in_progress: as `tenure run --group`: one run of a group works, and a newer one may end it.
    ttl: seconds that a hold lasts after its last renewal, if the holder cannot be seen.
    dir, store: the folder of the locks, or its URL; else as the command line finds it.
    """
    return Lock(
        () if name is None else (name,),
        timeout=timeout,
        why=why,
        shared=shared,
        slots=slots,
        group=group,
        cancel_in_progress=cancel_in_progress,
        ttl=ttl,
        dir=dir,
        store=store,
    )


def locks(
    *names: str,
    timeout: float | Usual | None = USUAL,
    why: str | None = None,
    shared: bool = False,
    ttl: float | None = None,
    dir: str | os.PathLike[str] | None = None,
    store: str | None = None,
) -> Lock:
    """Several locks, all or none. Two callers that name them in another order do not wait for each other."""
    return Lock(names, timeout=timeout, why=why, shared=shared, ttl=ttl, dir=dir, store=store)
