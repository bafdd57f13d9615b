"""`FileLock` and its like, with the names of the package filelock, on locks of tenure.

A file is locked twice. First its queue is taken, a lock of tenure in the user's own folder: it brings order, wakes the
next waiter without polling, and tells who holds. Then the file itself is locked with flock(2), as the package filelock
does it. So users of either package exclude each other on one file, and the queue alone decides nothing.

The program takes flock(2) itself, and not its `tenure serve`: the death of serve would open the file while the program
still works. While a user of the package filelock has the file, the waiter at the head of the queue sleeps in the
kernel, by a child `tenure flock`, which locks the open file for both.

Locks by the mere existence of a file (`SoftFileLock` and what builds on it) and `ReadWriteLock`, which is a database,
are not here: they could not exclude users of the package.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import inspect
import itertools
import logging
import math
import os
import re
import subprocess
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

from tenure import _caller, _steps
from tenure._binary import find_binary
from tenure._client import client
from tenure._errors import Held, StoreError, TenureError
from tenure._hold import Hold, settled
from tenure._serve import LATE
from tenure._steps import Steps

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Executor

__all__ = [
    "AcquireReturnProxy",
    "AsyncAcquireReturnProxy",
    "AsyncFileLock",
    "AsyncUnixFileLock",
    "BaseAsyncFileLock",
    "BaseFileLock",
    "FileLock",
    "Timeout",
    "UnixFileLock",
]

Path = str | os.PathLike[str]

_log = logging.getLogger("filelock")

_NO_MODE = -1
# The open files that this process has locked, or is about to. A forked child closes them: such a lock would stay for as
# long as any process has the open file.
_files: set[int] = set()
# For the moment between the opening and the note of it. A fork waits for that.
_opening = threading.RLock()
# Which object has a file, by the thread or task that took it.
_taken: dict[tuple[str, str], int] = {}
_turns = itertools.count(1)


class Timeout(TimeoutError):
    """The file was not had in time. Its cause, a `tenure.Held`, tells who has it, where that is known."""

    def __init__(self, lock_file: str) -> None:
        super().__init__()
        self._lock_file = lock_file

    def __reduce__(self) -> tuple[type[Self], tuple[str], dict[str, Any]]:
        return type(self), (self._lock_file,), self.__dict__

    def __str__(self) -> str:
        return f"The file lock '{self._lock_file}' could not be acquired."

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._lock_file!r})"

    @property
    def lock_file(self) -> str:
        """Path of the file."""
        return self._lock_file


class _Cancelled(BaseException):
    """The caller's check has ended the wait."""


@dataclasses.dataclass
class _State:
    """What a lock object knows: for each thread by itself, or for all."""

    lock_file: str
    timeout: float
    mode: int
    blocking: bool
    poll_interval: float
    lifetime: float | None
    count: int = 0
    fd: int | None = None
    queue: Hold | None = None
    taken: tuple[str, str] | None = None


class _StateOfThread(_State, threading.local):
    pass


class _Wait:
    """A wait for a file that has begun."""

    def __init__(self, timeout: float, interval: float, check: Callable[[], bool] | None) -> None:
        self.timeout = timeout
        self.end = math.inf if timeout < 0 else time.monotonic() + timeout
        self.interval = math.inf if check is None else interval
        self._check = check

    def params(self) -> dict[str, Any]:
        if self.timeout < 0:
            return {"wait_ms": "forever"}
        return {"wait_ms": int(self.rest() * 1000)}

    def limit(self) -> float | None:
        return None if self.timeout < 0 else self.end + LATE

    def rest(self) -> float:
        return max(0.0, self.end - time.monotonic())

    def look(self) -> None:
        if self._check is not None and self._check():
            _log.debug("Cancellation requested")
            raise _Cancelled


class _Meta(type):
    """Makes one object for each file, of those that are singletons."""

    _instances: weakref.WeakValueDictionary[str, BaseFileLock]
    _making: threading.RLock

    def __call__(cls, lock_file: Path, *args: Any, **options: Any) -> Any:
        if options:
            options = _known_to(cls, options)
        if "lifetime" in options:
            options["lifetime"] = _lifetime(options["lifetime"], cls.__name__)
        if not options.get("is_singleton"):
            return super().__call__(lock_file, *args, **options)
        key = _spelled_out(lock_file)
        with cls._making:
            found = cls._instances.get(key)
            if found is None:
                found = cls._instances[key] = super().__call__(lock_file, *args, **options)
            else:
                _refuse_other_options(found, args, options)
            return found


class BaseFileLock(contextlib.ContextDecorator, metaclass=_Meta):
    """A lock on a file. One object may be acquired several times, and is released as often."""

    _instances: ClassVar[weakref.WeakValueDictionary[str, BaseFileLock]] = weakref.WeakValueDictionary()
    _making: ClassVar[threading.RLock] = threading.RLock()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._instances = weakref.WeakValueDictionary()
        cls._making = threading.RLock()

    def __init__(
        self,
        lock_file: Path,
        timeout: float = -1,
        mode: int = _NO_MODE,
        thread_local: bool = True,
        *,
        blocking: bool = True,
        is_singleton: bool = False,
        poll_interval: float = 0.05,
        lifetime: float | None = None,
        context_error_policy: str = "chain",
        close_error_policy: str = "default",
        fallback_to_soft: bool = True,
        preserve_lock_file: bool = False,
        on_acquired: Callable[[int], None] | None = None,
    ) -> None:
        """Make a lock; nothing is touched before `acquire`.

        timeout: seconds to wait; below 0 without end, and 0 is one attempt.
        mode: permissions of the file; without it, those that the umask leaves.
        thread_local: whether each thread acquires for itself, or all threads together.
        is_singleton: whether all callers of this class get one object for one file.
        poll_interval: how often `cancel_check` is asked; nothing else polls.
        on_acquired: called with the open file once it is locked.
        """
        if (context_error_policy, close_error_policy) != ("chain", "default"):
            raise ValueError("context_error_policy is 'chain' here, and close_error_policy is 'default'")
        self._pid = os.getpid()
        self._is_thread_local = thread_local
        self._is_singleton = is_singleton
        self._fallback_to_soft = fallback_to_soft
        self._preserve_lock_file = preserve_lock_file
        self._on_acquired = on_acquired
        # One thread takes for all of them.
        self._turn = threading.Lock()
        kind = _StateOfThread if thread_local else _State
        self._state: _State = kind(os.fspath(lock_file), timeout, mode, blocking, poll_interval, lifetime)

    def is_thread_local(self) -> bool:
        """Whether each thread acquires for itself."""
        return self._is_thread_local

    @property
    def is_singleton(self) -> bool:
        """Whether all callers of this class get one object for one file."""
        return self._is_singleton

    @property
    def fallback_to_soft(self) -> bool:
        """Whether another kind of lock would do. None is ever used: it would not exclude users of this one."""
        return self._fallback_to_soft

    @property
    def preserve_lock_file(self) -> bool:
        """Whether the file has to stay. It always does."""
        return self._preserve_lock_file

    @property
    def on_acquired(self) -> Callable[[int], None] | None:
        """What is called with the open file once it is locked."""
        return self._on_acquired

    @property
    def lock_file(self) -> str:
        """Path of the file."""
        return self._state.lock_file

    @property
    def timeout(self) -> float:
        """Seconds to wait; below 0 without end, and 0 is one attempt."""
        return self._state.timeout

    @timeout.setter
    def timeout(self, value: float | str) -> None:
        self._state.timeout = float(value)

    @property
    def blocking(self) -> bool:
        """Whether to wait at all."""
        return self._state.blocking

    @blocking.setter
    def blocking(self, value: bool) -> None:
        self._state.blocking = value

    @property
    def poll_interval(self) -> float:
        """How often `cancel_check` is asked."""
        return self._state.poll_interval

    @poll_interval.setter
    def poll_interval(self, value: float) -> None:
        self._state.poll_interval = value

    @property
    def lifetime(self) -> float | None:
        """None: such a lock has no age at which it ends."""
        return self._state.lifetime

    @lifetime.setter
    def lifetime(self, value: float | None) -> None:
        self._state.lifetime = _lifetime(value, type(self).__name__)

    @property
    def mode(self) -> int:
        """Permissions of the file."""
        return 0o644 if self._state.mode == _NO_MODE else self._state.mode

    @property
    def has_explicit_mode(self) -> bool:
        """Whether the permissions were said."""
        return self._state.mode != _NO_MODE

    @property
    def is_locked(self) -> bool:
        """Whether this object has the file, in this thread or at all."""
        return self._state.fd is not None and self._pid == os.getpid()

    @property
    def lock_counter(self) -> int:
        """How often it was acquired and not released."""
        return self._state.count if self._pid == os.getpid() else 0

    def acquire(
        self,
        timeout: float | None = None,
        poll_interval: float | None = None,
        *,
        poll_intervall: float | None = None,
        blocking: bool | None = None,
        cancel_check: Callable[[], bool] | None = None,
    ) -> AcquireReturnProxy:
        """Lock the file. Raise Timeout if it is not had in time, or once `cancel_check` says True."""
        if poll_intervall is not None:
            warnings.warn("use poll_interval instead of poll_intervall", DeprecationWarning, stacklevel=2)
            poll_interval = poll_intervall
        wait = self._begin(timeout, poll_interval, blocking, cancel_check)
        with self._in_turn(wait):
            if not self.is_locked:
                taking = _Taking(self, wait, _caller.thread())
                _log.debug("Attempting to acquire lock %s on %s", id(self), self.lock_file)
                try:
                    _steps.block(taking.steps())
                except BaseException as error:
                    if taking.is_begun:
                        _steps.finish(taking.give_up).join()
                    self._translate(error)
                _log.debug("Lock %s acquired on %s", id(self), self.lock_file)
            self._state.count += 1
        return AcquireReturnProxy(self)

    def release(self, force: bool = False) -> None:
        """Unlock the file, once this was called as often as `acquire`, or at once with `force`."""
        if (queue := self._unlock(force)) is not None:
            with contextlib.suppress(TenureError):  # the file is unlocked, and the next waiter sees to the queue
                queue.release()

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __del__(self) -> None:
        if "_state" in self.__dict__:
            with contextlib.suppress(Exception):
                BaseFileLock.release(self, force=True)

    def _begin(
        self,
        timeout: float | None,
        poll_interval: float | None,
        blocking: bool | None,
        check: Callable[[], bool] | None,
    ) -> _Wait:
        if self._pid != os.getpid():
            name = type(self).__name__
            raise RuntimeError(f"{name} on {self.lock_file} was inherited across fork; make another one in the child")
        state = self._state
        timeout = state.timeout if timeout is None else timeout
        if not (state.blocking if blocking is None else blocking):
            timeout = 0
        return _Wait(timeout, state.poll_interval if poll_interval is None else poll_interval, check)

    @contextlib.contextmanager
    def _in_turn(self, wait: _Wait) -> Iterator[None]:
        if self._is_thread_local:
            yield
            return
        while not self._turn.acquire(timeout=min(wait.rest(), wait.interval, threading.TIMEOUT_MAX)):
            self._stop_waiting(wait)
        try:
            yield
        finally:
            self._turn.release()

    def _stop_waiting(self, wait: _Wait) -> None:
        try:
            wait.look()
        except _Cancelled:
            raise Timeout(self.lock_file) from None
        if wait.rest() == 0:
            raise Timeout(self.lock_file)

    def _translate(self, error: BaseException) -> NoReturn:
        match error:
            case Held():
                raise Timeout(self.lock_file) from error
            case _Cancelled():
                raise Timeout(self.lock_file) from None
            case _:
                raise error

    def _unlock(self, force: bool) -> Hold | None:
        """Unlocks the file if it is time for that, and gives its place in the queue."""
        state = self._state
        if not self.is_locked:
            return None
        if state.count > 1 and not force:
            state.count -= 1
            return None
        fd, queue = state.fd, state.queue
        assert fd is not None
        _log.debug("Attempting to release lock %s on %s", id(self), self.lock_file)
        # If this fails, the file stays locked, and the object says so.
        fcntl.flock(fd, fcntl.LOCK_UN)
        state.count, state.fd, state.queue = 0, None, None
        if state.taken is not None and _taken.get(state.taken) == id(self):
            del _taken[state.taken]
        state.taken = None
        _close(fd)
        _log.debug("Lock %s released on %s", id(self), self.lock_file)
        return queue


class UnixFileLock(BaseFileLock):
    """A lock on a file, for `with` and as a decorator."""


FileLock = UnixFileLock


class _Taking:
    """One attempt to lock a file: its queue, then the file itself."""

    def __init__(self, lock: BaseFileLock, wait: _Wait, caller: str) -> None:
        self._lock = lock
        self._wait = wait
        self._caller = caller
        self._queue: Hold | None = None
        #: Whether there may be something to give back.
        self.is_begun = False

    def steps(self) -> Steps[None]:
        lock, wait = self._lock, self._wait
        file = _identified(lock.lock_file)
        taken = (self._caller, file)
        if wait.timeout < 0 and _taken.get(taken, id(lock)) != id(lock):
            raise RuntimeError(
                f"Deadlock: {lock.lock_file} is locked by another object of this caller, which would wait for itself; "
                "is_singleton=True gives both one object"
            )
        # Callers of this process stand in line, too, and one that waits for itself does so as long as it asked to.
        queue = Hold(client(), f"filelock {next(_turns)}", (_queue_name(file),), None, _place())
        options = {"locks": [{"name": _queue_name(file)}], "why": lock.lock_file}
        self._queue, self.is_begun = queue, True
        try:
            yield from queue.acquire(options, wait)
        except Held:
            self.is_begun = False
            raise
        except StoreError as error:
            self._queue, self.is_begun = None, False
            _log.warning("%s is locked without a queue: %s", lock.lock_file, error)
        while (fd := (yield from self._file())) is None:
            wait.look()
            if wait.rest() == 0:
                raise Timeout(lock.lock_file)
        state = lock._state
        _taken[taken] = id(lock)
        state.fd, state.queue, state.taken = fd, self._queue, taken
        self.is_begun = False
        if lock._on_acquired is not None:
            try:
                lock._on_acquired(fd)
            except BaseException:
                lock._unlock(force=True)
                self.is_begun = True
                raise

    def give_up(self) -> None:
        if self._queue is not None:
            self._queue.give_up()

    def _file(self) -> Steps[int | None]:
        """Locks the file. None if it was removed meanwhile, or another one is there now."""
        lock, wait = self._lock, self._wait
        fd = _open(lock.lock_file, lock._state.mode)
        if fd is None:
            return None
        is_kept = False
        try:
            if not _lock_at_once(fd) and not (yield _Sleep(fd, wait)):
                raise Timeout(lock.lock_file)
            status = os.fstat(fd)
            if status.st_nlink == 0:
                return None
            os.ftruncate(fd, 0)
            if lock.has_explicit_mode:
                with contextlib.suppress(PermissionError):
                    os.fchmod(fd, lock.mode)
            is_kept = True
            return fd
        finally:
            if not is_kept:
                _close(fd)


class _Sleep:
    """A step: the wait for a file that a user of the package filelock has. Tells whether the file is locked now."""

    def __init__(self, fd: int, wait: _Wait) -> None:
        self._fd = fd
        self._wait = wait

    def _words(self) -> list[str]:
        rest = self._wait.rest()
        limit = [] if rest == math.inf else ["-w", f"{rest:.3f}"]
        # The child has the same open file, so what it locks is locked here.
        return [find_binary(), "flock", *limit, str(self._fd)]

    def block(self) -> bool:
        if self._wait.rest() == 0:
            return False
        self._wait.look()
        child = subprocess.Popen(self._words(), pass_fds=[self._fd], stdin=subprocess.DEVNULL)
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    limit = None if self._wait.interval == math.inf else self._wait.interval
                    return self._came(child.wait(limit))
                self._wait.look()
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()

    async def wait(self) -> bool:
        import asyncio

        if self._wait.rest() == 0:
            return False
        self._wait.look()
        child = await asyncio.create_subprocess_exec(*self._words(), pass_fds=[self._fd], stdin=subprocess.DEVNULL)
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if self._wait.interval == math.inf else self._wait.interval):
                        return self._came(await child.wait())
                self._wait.look()
        finally:
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    child.kill()

    @staticmethod
    def _came(code: int) -> bool:
        if code not in (0, 1):
            raise OSError(f"tenure flock ended with {code}")
        return code == 0


class AcquireReturnProxy:
    """What `acquire` gives: `with` it, the lock is released at the end, and not acquired again."""

    def __init__(self, lock: BaseFileLock) -> None:
        self.lock = lock

    def __enter__(self) -> BaseFileLock:
        return self.lock

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.lock.release()


class BaseAsyncFileLock(BaseFileLock):
    """A lock on a file, for tasks. No thread is needed for it, so `executor` and `loop` have no effect."""

    def __init__(
        self,
        lock_file: Path,
        timeout: float = -1,
        mode: int = _NO_MODE,
        thread_local: bool = False,
        *,
        blocking: bool = True,
        is_singleton: bool = False,
        poll_interval: float = 0.05,
        lifetime: float | None = None,
        context_error_policy: str = "chain",
        close_error_policy: str = "default",
        fallback_to_soft: bool = True,
        preserve_lock_file: bool = False,
        on_acquired: Callable[[int], None] | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        run_in_executor: bool = True,
        executor: Executor | None = None,
    ) -> None:
        if thread_local and run_in_executor:
            raise ValueError("run_in_executor is not supported when thread_local is True")
        super().__init__(
            lock_file,
            timeout,
            mode,
            thread_local,
            blocking=blocking,
            is_singleton=is_singleton,
            poll_interval=poll_interval,
            lifetime=lifetime,
            context_error_policy=context_error_policy,
            close_error_policy=close_error_policy,
            fallback_to_soft=fallback_to_soft,
            preserve_lock_file=preserve_lock_file,
            on_acquired=on_acquired,
        )
        self.loop = loop
        self.run_in_executor = run_in_executor
        self.executor = executor
        self._turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()

    async def acquire(  # type: ignore[override]
        self,
        timeout: float | None = None,
        poll_interval: float | None = None,
        *,
        blocking: bool | None = None,
        cancel_check: Callable[[], bool] | None = None,
    ) -> AsyncAcquireReturnProxy:
        """Lock the file. Raise Timeout if it is not had in time, or once `cancel_check` says True."""
        wait = self._begin(timeout, poll_interval, blocking, cancel_check)
        async with self._in_turn_of_tasks(wait):
            if not self.is_locked:
                taking = _Taking(self, wait, _this_task())
                _log.debug("Attempting to acquire lock %s on %s", id(self), self.lock_file)
                try:
                    await _steps.wait(taking.steps())
                except BaseException as error:
                    if taking.is_begun:
                        await settled(taking.give_up)
                    self._translate(error)
                _log.debug("Lock %s acquired on %s", id(self), self.lock_file)
            self._state.count += 1
        return AsyncAcquireReturnProxy(self)

    async def release(self, force: bool = False) -> None:  # type: ignore[override]
        """Unlock the file, once this was called as often as `acquire`, or at once with `force`."""
        if (queue := self._unlock(force)) is not None:
            with contextlib.suppress(TenureError):
                await queue.release_async()

    def __enter__(self) -> NoReturn:
        raise NotImplementedError("Do not use `with` for asyncio locks, use `async with` instead.")

    def __exit__(self, *_: object) -> NoReturn:
        raise NotImplementedError("Do not use `with` for asyncio locks, use `async with` instead.")

    async def __aenter__(self) -> Self:
        await self.acquire()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.release()

    @contextlib.asynccontextmanager
    async def _in_turn_of_tasks(self, wait: _Wait) -> Any:
        import asyncio

        turn = self._turns.setdefault(asyncio.get_running_loop(), asyncio.Lock())
        while True:
            limit = min(wait.rest(), wait.interval)
            try:
                async with asyncio.timeout(None if limit == math.inf or not turn.locked() else limit):
                    await turn.acquire()
                break
            except TimeoutError:
                self._stop_waiting(wait)
        try:
            yield
        finally:
            turn.release()


class AsyncUnixFileLock(BaseAsyncFileLock):
    """A lock on a file, for `async with`."""


AsyncFileLock = AsyncUnixFileLock


class AsyncAcquireReturnProxy:
    """What `acquire` gives: `async with` it, the lock is released at the end, and not acquired again."""

    def __init__(self, lock: BaseAsyncFileLock) -> None:
        self.lock = lock

    async def __aenter__(self) -> BaseAsyncFileLock:
        return self.lock

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.lock.release()


def _this_task() -> str:
    import asyncio

    task = asyncio.current_task()
    return _caller.thread() if task is None else _caller.task(task)


def _spelled_out(path: Path) -> str:
    """Path without links in its folders. A link at its end stays, and is never followed."""
    folder, name = os.path.split(os.fspath(path))
    return os.path.join(os.path.realpath(folder or os.curdir), name)


def _identified(path: str) -> str:
    """The folder of a file by its number, which is the same under all its names, and the name in it."""
    folder, name = os.path.split(path)
    if "\0" in path:
        raise ValueError("embedded null byte")
    try:
        status = os.stat(folder or os.curdir)
    except FileNotFoundError:
        os.makedirs(folder, exist_ok=True)
        status = os.stat(folder)
    return f"{status.st_dev}:{status.st_ino}/{name}"


@functools.lru_cache(maxsize=256)
def _queue_name(file: str) -> str:
    name = re.sub("[^A-Za-z0-9]", "_", file.rpartition("/")[2])[:60]
    return f"{name or 'file'}-{hashlib.sha256(os.fsencode(file)).hexdigest()[:24]}"


def _place() -> dict[str, Any]:
    """Where the queues are: the user's own folder, whatever a project says of its locks."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return {"dir": os.path.abspath(os.path.join(state, "tenure", "filelock")), "store": None}


def _open(path: str, mode: int) -> int | None:
    """Opens the file and makes it if need be; None if another process removed it in between."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    permissions = 0o666 if mode == _NO_MODE else mode
    with _opening:
        try:
            fd = os.open(path, flags | os.O_CREAT, permissions)
        except PermissionError:
            # In a folder as /tmp, the kernel lets nobody create over the file of another user.
            if not os.path.exists(path):
                raise
            try:
                fd = os.open(path, flags, permissions)
            except FileNotFoundError:
                return None
        except FileNotFoundError:
            # Some file systems look first and make then.
            if not path or not os.path.isdir(os.path.dirname(path) or os.curdir):
                raise
            return None
        _files.add(fd)
    return fd


def _close(fd: int) -> None:
    with _opening:
        _files.discard(fd)
        # Some file systems answer a close with EIO; the file is unlocked all the same.
        with contextlib.suppress(OSError):
            os.close(fd)


def _lock_at_once(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _lifetime(value: object, name: str) -> float | None:
    """Refuses what is no lifetime. What is one has no effect: the kernel frees the lock of no holder for its age."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"lifetime must be a finite non-negative number or None, not {type(value).__name__}")
    if value < 0 or not math.isfinite(value):
        raise ValueError(f"lifetime must be finite and non-negative, not {value!r}")
    warnings.warn(f"lifetime is ignored for {name}: its lock ends with its holder, at no age", stacklevel=3)
    return None


def _known_to(kind: type, options: dict[str, Any]) -> dict[str, Any]:
    """The options without those that a subclass does not know, as far as they say what is so anyway."""
    known = inspect.signature(kind.__init__).parameters  # type: ignore[misc]
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        return options
    base = BaseAsyncFileLock if issubclass(kind, BaseAsyncFileLock) else BaseFileLock
    usual = inspect.signature(base.__init__).parameters
    return {
        name: value
        for name, value in options.items()
        if name in known or name not in usual or value != usual[name].default
    }


def _refuse_other_options(found: BaseFileLock, args: tuple[Any, ...], options: dict[str, Any]) -> None:
    bound = inspect.signature(BaseFileLock.__init__).bind_partial(found, "", *args)
    default = inspect.signature(type(found).__init__).parameters
    known: dict[str, Callable[[], object]] = {
        "thread_local": found.is_thread_local,
        "timeout": lambda: found.timeout,
        "mode": lambda: found._state.mode,
        "blocking": lambda: found.blocking,
        "poll_interval": lambda: found.poll_interval,
        "lifetime": lambda: found.lifetime,
        "fallback_to_soft": lambda: found.fallback_to_soft,
        "preserve_lock_file": lambda: found.preserve_lock_file,
        "on_acquired": lambda: found.on_acquired,
    }
    said = {name: parameter.default for name, parameter in default.items() if name in known}
    said |= {name: value for name, value in {**bound.arguments, **options}.items() if name in known}
    other = [f"{name} is {known[name]()!r} and not {value!r}" for name, value in said.items() if known[name]() != value]
    if other:
        raise ValueError("Singleton lock instances cannot be initialized with differing arguments: " + ", ".join(other))


def _forget_in_child() -> None:
    global _opening
    _opening = threading.RLock()
    for fd in _files:
        with contextlib.suppress(OSError):
            os.close(fd)
    _files.clear()
    _taken.clear()
    for kind in _kinds(BaseFileLock):
        kind._instances = weakref.WeakValueDictionary()
        kind._making = threading.RLock()


def _kinds(kind: type[BaseFileLock]) -> Iterator[type[BaseFileLock]]:
    yield kind
    for other in kind.__subclasses__():
        yield from _kinds(other)


def _before_fork() -> None:
    _opening.acquire()


def _after_fork() -> None:
    _opening.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_forget_in_child)
