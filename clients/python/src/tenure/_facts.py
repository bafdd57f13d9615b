"""What tenure tells of a lock: who holds it, who waits, and how it stands."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Holder:
    """Who has a lock."""

    #: The process that is at work, by its number on `host`; None if it has none.
    pid: int | None
    user: str
    host: str
    #: The reason that was given, else the command line.
    why: str
    since: datetime.datetime
    #: The fencing token; None while the lock is being handed over.
    token: int | None
    #: `exclusive`, `shared` or `slots`.
    mode: str
    slot: int | None
    member: str | None
    #: Everything that tenure said of it.
    facts: Mapping[str, Any] = dataclasses.field(repr=False, compare=False)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Holder:
        return cls(
            pid=facts["pid"],
            user=facts["actor"],
            host=facts["host"],
            why=facts["why"],
            since=_instant(facts["since"]),
            token=facts["token"],
            mode=facts["mode"],
            slot=facts.get("slot"),
            member=facts.get("member"),
            facts=facts,
        )


@dataclasses.dataclass(frozen=True)
class Waiter:
    """Who waits for a lock."""

    #: 1 is next.
    position: int
    pid: int | None
    user: str
    host: str
    why: str
    since: datetime.datetime
    facts: Mapping[str, Any] = dataclasses.field(repr=False, compare=False)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Waiter:
        return cls(
            position=facts["position"],
            pid=facts["pid"],
            user=facts["actor"],
            host=facts["host"],
            why=facts["why"],
            since=_instant(facts["since"]),
            facts=facts,
        )


@dataclasses.dataclass(frozen=True)
class Standing:
    """A lock as it stood when it was looked at."""

    name: str
    #: Whether a request of the mode in question would get it now.
    available: bool
    #: Whether a hold of this process has it.
    mine: bool
    #: Everybody who has it, where several may at once.
    holders: tuple[Holder, ...]
    queue: tuple[Waiter, ...]
    facts: Mapping[str, Any] = dataclasses.field(repr=False, compare=False)

    @property
    def holder(self) -> Holder | None:
        return self.holders[0] if self.holders else None

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Standing:
        first = [facts["holder"]] if facts["holder"] else []
        return cls(
            name=facts["name"],
            available=facts["available"],
            mine=facts["mine"],
            holders=tuple(Holder.of(holder) for holder in first + list(facts.get("other_holders", ()))),
            queue=tuple(Waiter.of(waiter) for waiter in facts["queue"]),
            facts=facts,
        )


def _instant(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)
