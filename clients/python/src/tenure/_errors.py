"""What can be refused or go wrong, each with the facts that tenure gave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._facts import Holder, Waiter


class TenureError(Exception):
    """The base of all errors of this package.

    `code` is the stable word of tenure's answers, and `context` has what the answer said besides.
    """

    def __init__(self, message: str, code: str = "", data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        data = data or {}
        self.code = code
        self.context: Mapping[str, Any] = data.get("context") or {}
        self.retryable = bool(data.get("retryable"))
        retry_after_ms = data.get("retry_after_ms")
        #: Seconds after which to ask again, if tenure advises any.
        self.retry_after: float | None = None if retry_after_ms is None else retry_after_ms / 1000


class Held(TenureError, TimeoutError):
    """The lock was not free in time. The message names the lock and who has it."""

    @property
    def name(self) -> str:
        """Name of the lock."""
        return str(self.context.get("name", ""))

    @property
    def holder(self) -> Holder | None:
        """Who has the lock; None if another caller stands first in line and has not begun."""
        facts = self.context.get("holder")
        return Holder.of(facts) if facts else None

    @property
    def queue(self) -> tuple[Waiter, ...]:
        """Who waits for the lock, in order."""
        return tuple(Waiter.of(facts) for facts in self.context.get("queue") or ())


class Lost(TenureError):
    """The program cannot rely on the lock any more."""


class Superseded(TenureError):
    """A newer run of the group has taken the place of this request."""


class AlreadyHeld(TenureError):
    """The caller has the lock itself, and would wait for itself without end."""


class Inherited(TenureError):
    """The hold belongs to the process that was forked, not to this one."""


class StoreError(TenureError):
    """The place where the locks are cannot be used."""


class BadArguments(TenureError, ValueError):
    """The call makes no sense to tenure."""


class NoServe(TenureError):
    """`tenure serve` cannot be found or started, speaks another protocol, or ends again and again."""


_STORE_CODES = frozenset({
    "AUDIT_UNAVAILABLE", "FILE_SYSTEM_UNSUITABLE", "PERMISSION_DENIED", "RELEASE_FAILED", "STORE_STUCK",
    "STORE_UNAVAILABLE", "STORE_UNREACHABLE", "UNSAFE_PLACE",
})  # fmt: skip

_CLASSES: dict[str, type[TenureError]] = {
    "ALREADY_HELD": AlreadyHeld,
    "BAD_ARGUMENTS": BadArguments,
    "BAD_CONFIGURATION": BadArguments,
    "LOCK_HELD": Held,
    "LOCK_LOST": Lost,
    "LOCK_STALE": Held,
    "NO_SUCH_HOLD": Lost,
    "QUEUE_FULL": Held,
    "SUPERSEDED": Superseded,
} | dict.fromkeys(_STORE_CODES, StoreError)


def refusal(error: Mapping[str, Any]) -> TenureError:
    """The exception for the `error` of an answer."""
    data = error["data"]
    code = data["code"]
    return _CLASSES.get(code, TenureError)(error["message"], code, data)
