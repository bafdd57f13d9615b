"""A hold: locks that this process has, from the grant to the release."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from . import _steps
from ._client import Client
from ._errors import Inherited, Lost, TenureError
from ._notice import Notice
from ._serve import Request, Serve, ServeEnded, Wait
from ._steps import Steps

if TYPE_CHECKING:
    import asyncio


@dataclasses.dataclass(frozen=True, slots=True)
class Granted:
    """One lock of a hold."""

    name: str
    #: The fencing token: it only rises, so a resource can refuse a holder of the past.
    token: int
    #: Which of the slots it is: no other holder has this number.
    slot: int | None = None
    #: What the slot stands for, in a pool with members.
    member: str | None = None
    #: Whether it is the lock of the group.
    group: bool = False


class Hold:
    """Locks that this process has. They end with `release`, or with the process.

    A forked child has no part in them: its `release` does nothing, and all other use raises Inherited.
    """

    def __init__(
        self, client: Client, caller: str, names: tuple[str, ...], group: str | None, place: dict[str, Any]
    ) -> None:
        #: The locks as they were granted; the first one is that of `token`, `slot` and `member`.
        self.locks: tuple[Granted, ...] = ()
        #: Set once the program cannot rely on the hold any more.
        self.lost = Notice()
        #: Set once another caller asks for the locks (`tenure cancel`, a newer run of the group).
        self.stop_requested = Notice()
        self.request_id = os.urandom(16).hex()
        self._client = client
        self._caller = caller
        self._whose = {**place, "caller": caller, "request_id": self.request_id}
        self._names = names
        # What an adoption looks at: the tokens, once they are known. serve finds the lock of a group by itself.
        self._known = None if group is not None else [{"name": name} for name in names]
        #: The event loop whose task holds it.
        self.loop: asyncio.AbstractEventLoop | None = None
        # The serve that was asked for it last, and by what request.
        self._asked: Request | None = None
        # The serve that keeps it, and its number there.
        self._kept: tuple[Serve, int] | None = None
        self._env: Mapping[str, str] = {}
        self._is_releasing = False

    @property
    def name(self) -> str:
        """Name of the first lock."""
        return self.locks[0].name

    @property
    def token(self) -> int:
        """Fencing token of the first lock: it only rises, so a resource can refuse a holder of the past."""
        return self.locks[0].token

    @property
    def slot(self) -> int | None:
        """Number of the slot of the first lock, if it has slots."""
        return self.locks[0].slot

    @property
    def member(self) -> str | None:
        """What that slot stands for, in a pool with members."""
        return self.locks[0].member

    @property
    def is_inherited(self) -> bool:
        """Whether the hold belongs to the process that was forked."""
        return self._client.process[0] != os.getpid()

    def env(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Environment for a child that works under the hold: `base`, or this process's own, and the hold.

        The variables of the project are in it (`env` in tenure.toml), such as those of a pool with members. tenure
        refuses to let such a child wait for a lock that is held around it.
        """
        self._refuse_inherited()
        first = self.locks[0]
        environment = {**(os.environ if base is None else base), **self._env}
        environment.update(TENURE_NAME=first.name, TENURE_TOKEN=str(first.token), TENURE_REQUEST_ID=self.request_id)
        environment.pop("TENURE_SLOT", None)
        if first.slot is not None:
            environment["TENURE_SLOT"] = str(first.slot)
        return environment

    def verify(self) -> None:
        """Asks whether the hold still stands. Raises Lost if it does not."""
        _steps.block(self._use("verify"))

    async def verify_async(self) -> None:
        """As `verify`, for a task."""
        await _steps.wait(self._use("verify"))

    def release(self) -> None:
        """Gives the locks back; a second time does nothing. Raises Lost if they were lost meanwhile."""
        if not self._can_be_released():
            return
        try:
            _steps.block(self._release())
        except TenureError:
            raise
        except BaseException:  # Ctrl-C, say
            _steps.finish(self.release).join()
            raise

    async def release_async(self) -> None:
        """As `release`, for a task. A task that is cancelled meanwhile ends once it is done."""
        if not self._can_be_released():
            return
        try:
            await _steps.wait(self._release())
        except TenureError:
            raise
        except BaseException:
            await settled(self.release)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release()
        except Lost as lost:
            if error is None:
                raise
            error.add_note(f"the lock was lost meanwhile: {lost}")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a hold belongs to its process; send the lock instead, which the other process can take")

    def __repr__(self) -> str:
        locks = ", ".join(f"{lock.name} with token {lock.token}" for lock in self.locks)
        return f"<tenure.Hold: {locks or 'nothing yet'}>"

    def is_of(self, names: tuple[str, ...], place: dict[str, Any]) -> bool:
        """Whether it has one of these locks, as far as their place is said in the same words."""
        return all(self._whose[key] == place[key] for key in place) and any(name in self._names for name in names)

    def acquire(self, options: dict[str, Any], wait: Wait) -> Steps[None]:
        """Takes the locks."""
        yield from self._client.answered(lambda serve: self._acquire(serve, options, wait))

    def adopt(self, serve: Serve) -> Steps[None]:
        """Has a serve take over what an earlier one kept, or perhaps was granted."""
        self._kept = None
        try:
            yield Request(serve, "adopt", {**self._whose, "locks": self._known}, granted=self._granted)
        except Lost as error:
            if self.locks and not self._is_releasing:
                self.lost.set(str(error))
            raise

    def give_up(self) -> None:
        """Gives back what an interrupted `acquire` was granted, or will be."""

        def settle(serve: Serve) -> Steps[None]:
            asked = self._asked
            if asked is None:
                return
            if asked.serve is not serve:
                yield from self.adopt(serve)
            else:
                yield Request(serve, "abandon", {"id": asked.number})

        if self not in self._client.holds:
            _steps.block(self._client.answered(settle))
        self.release()

    def _acquire(self, serve: Serve, options: dict[str, Any], wait: Wait) -> Steps[None]:
        if self._asked is not None:  # that serve has died, perhaps between the grant and the answer
            try:
                yield from self.adopt(serve)
            except Lost:
                pass
            else:
                return
        params = {**self._whose, **options, **wait.params()}
        self._asked = Request(serve, "acquire", params, granted=self._granted, wait=wait)
        yield self._asked

    def _granted(self, serve: Serve, result: Mapping[str, Any]) -> None:
        # By the reader, so nothing that serve says of this hold comes before it.
        number = result["hold"]
        locks = result["locks"]
        if len(locks) > 1:
            locks.sort(key=self._place)
        self._known = locks
        self.locks = tuple(
            Granted(lock["name"], lock["token"], lock["slot"], lock["member"], lock["group"]) for lock in locks
        )
        # A serve that adopts a hold does not know the project's variables again.
        self._env = {**self._env, **result["env"]}
        self.lost.postpone(result["good_for_ms"])
        serve.holds[number] = self
        self._kept = (serve, number)
        self._client.holds.add(self)

    def _place(self, lock: Mapping[str, Any]) -> int:
        """Where a lock stands among those of the hold: as it was asked for, with that of the group at the end."""
        own = not lock["group"] and lock["name"] in self._names
        return self._names.index(lock["name"]) if own else len(self._names)

    def _use(self, method: str) -> Steps[None]:
        self._refuse_inherited()
        yield from self._client.answered(lambda serve: self._ask(serve, method))

    def _ask(self, serve: Serve, method: str) -> Steps[None]:
        is_gone = self.lost.reason is not None and self._kept is None
        if not is_gone and (self._kept is None or self._kept[0] is not serve):
            try:
                yield from self.adopt(serve)
            except Lost:
                if self._is_releasing:  # an earlier serve has released it, and died before it could say so
                    return
                raise
        if self._kept is None or (self.lost and method == "verify"):
            raise Lost(f"{self.name} was lost: {self.lost.reason}", "LOCK_LOST")
        keeper, number = self._kept
        if keeper is not serve:
            raise ServeEnded
        is_again = self._is_releasing
        self._is_releasing |= method == "release"
        try:
            yield Request(serve, method, {"hold": number})
        except Lost as error:
            if not (is_again and error.code == "NO_SUCH_HOLD"):  # the release before has come to its end
                raise

    def _release(self) -> Steps[None]:
        try:
            yield from self._use("release")
        except Lost as lost:
            self._end()
            self.lost.set(str(lost))
            raise
        self._end()
        if self.lost:
            raise Lost(f"{self.name} was lost: {self.lost.reason}", "LOCK_LOST")

    def _end(self) -> None:
        self._client.holds.discard(self)
        if self._kept is not None:
            self._kept[0].holds.pop(self._kept[1], None)

    def _can_be_released(self) -> bool:
        # Once the interpreter ends, no thread reads any more: the end of the process gives everything back.
        return not (self.is_inherited or self not in self._client.holds or sys.is_finalizing())

    def _refuse_inherited(self) -> None:
        if self.is_inherited:
            raise Inherited("the hold belongs to the process that was forked", "INHERITED")


async def settled(work: Callable[[], object]) -> None:
    """Waits for work that must be done although the task is cancelled. A second cancellation ends the wait alone."""
    import asyncio

    step = _steps.InThread(lambda: _steps.finish(work).join())
    await asyncio.shield(asyncio.ensure_future(step.wait()))
