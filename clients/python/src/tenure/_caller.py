"""Who calls: a thread, or a task. Each has a number that no later one gets; the ids of threads are used again."""

from __future__ import annotations

import itertools
import threading
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

_numbers = itertools.count(1)


class _Thread(threading.local):
    def __init__(self) -> None:
        self.number = str(next(_numbers))


_thread = _Thread()
_tasks: weakref.WeakKeyDictionary[asyncio.Task[Any], str] = weakref.WeakKeyDictionary()


def thread() -> str:
    """The thread that calls this."""
    return _thread.number


def task(task: asyncio.Task[Any]) -> str:
    """A task."""
    number = _tasks.get(task)
    if number is None:
        number = _tasks[task] = str(next(_numbers))
    return number
