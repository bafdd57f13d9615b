"""One holder at a time, on one machine or many: locks of tenure for Python.

    with tenure.lock("deploy", timeout=10, why="release 4.2") as hold:
        push(hold.token)

The locks are those of the command `tenure`, which this package brings. A lock is the process's: it ends when the
process ends, however that happens, and a forked child has no part in it.
"""

from __future__ import annotations

from ._binary import find_binary
from ._errors import (
    AlreadyHeld,
    BadArguments,
    Held,
    Inherited,
    Lost,
    NoServe,
    StoreError,
    Superseded,
    TenureError,
)
from ._facts import Holder, Standing, Waiter
from ._hold import Granted, Hold
from ._lock import USUAL, Lock, lock, locks
from ._notice import Notice
from ._questions import cancel, check, list, wait

__all__ = [
    "USUAL",
    "AlreadyHeld",
    "BadArguments",
    "Granted",
    "Held",
    "Hold",
    "Holder",
    "Inherited",
    "Lock",
    "Lost",
    "NoServe",
    "Notice",
    "Standing",
    "StoreError",
    "Superseded",
    "TenureError",
    "Waiter",
    "cancel",
    "check",
    "find_binary",
    "list",
    "lock",
    "locks",
    "wait",
]
