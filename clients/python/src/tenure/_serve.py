"""One `tenure serve` and the messages to it: JSON-RPC 2.0, one message a line. Locks are no matter of this module."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import select
import subprocess
import threading
import time
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any, Protocol, cast

from ._binary import find_binary
from ._errors import refusal

if TYPE_CHECKING:
    from ._hold import Hold

PROTOCOL = 1

LINE_MAX = 1 << 20
_ANSWER_MAX = 1 << 26

# Patience is counted in looks and not by the clock: after a stop of this whole process the clock has moved on, and
# serve has not had its time.
LOOK = 5.0
_LOOKS = 2
# serve says at least every 10 seconds how a wait stands.
_LOOKS_WITHOUT_NEWS = 6

# How long a caller reads for its answer itself, and how long the reader stays aside without any such caller.
AT_ONCE = 0.02

# How much later than asked the answer to a wait may come.
LATE = 10.0

_log = logging.getLogger("tenure")
_numbers = itertools.count(1)
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class ServeEnded(Exception):
    """serve has ended before it answered, or does not answer."""

    def __init__(self, *, is_silent: bool = False) -> None:
        super().__init__("tenure serve does not answer" if is_silent else "tenure serve has ended")
        self.is_silent = is_silent


class Wait(Protocol):
    """How long an `acquire` may still wait."""

    def params(self) -> dict[str, Any]:
        """What serve is told of it."""

    def limit(self) -> float | None:
        """When an answer has to be there, by time.monotonic()."""

    @property
    def interval(self) -> float:
        """How often `look` is called while there is no answer."""

    def look(self) -> None:
        """Raises to end the wait."""


class Request:
    """A step: a request that is sent to a serve, and its answer.

    What cannot be a message is refused here with ValueError, before anything of it is sent.
    """

    __slots__ = ("_error", "_result", "_wake", "granted", "is_settled", "line", "number", "serve", "waits")

    def __init__(
        self,
        serve: Serve,
        method: str,
        params: dict[str, Any],
        *,
        granted: Callable[[Serve, Any], None] | None = None,
        wait: Wait | None = None,
    ) -> None:
        self.serve = serve
        self.number = next(_numbers)
        message = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        self.line = _encode(message).encode() + b"\n"
        if len(self.line) > LINE_MAX:
            raise BadMessage(f"a request of {len(self.line)} bytes is too long: {LINE_MAX} at most")
        #: Called by the reader with a result, before the caller is woken: what serve says later is heard later.
        self.granted = granted
        #: For a request that serve answers when it can: how long that may take.
        self.waits = wait
        self._result: Any = None
        self._error: BaseException | None = None
        self.is_settled = False
        self._wake: Callable[[], None] = _nobody

    def settle(self, result: Any, error: BaseException | None) -> None:
        self._result, self._error, self.is_settled = result, error, True
        self._wake()

    def block(self) -> Any:
        gate = threading.Lock()
        gate.acquire()
        self._wake = gate.release
        self.serve.send(self)
        self.serve.read_for(self)
        looks = _Looks(self)
        while not gate.acquire(timeout=looks.next()):
            looks.in_vain()
        return self._outcome()

    async def wait(self) -> Any:
        import asyncio

        loop = asyncio.get_running_loop()
        answered = asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has been closed
                loop.call_soon_threadsafe(answered.set)

        self._wake = wake
        if not self.serve.send_at_once(self):
            from ._steps import InThread

            await InThread(lambda: self.serve.send(self)).wait()
        self.serve.have_read()
        looks = _Looks(self)
        while not answered.is_set():
            try:
                async with asyncio.timeout(looks.next()):
                    await answered.wait()
            except TimeoutError:
                looks.in_vain()
        return self._outcome()

    def _outcome(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result


def _nobody() -> None:
    pass


class BadMessage(ValueError):
    """Text that cannot be a message of the protocol."""


class _Looks:
    """How long the answer to a request is waited for."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._limit = None if request.waits is None else request.waits.limit()
        self._heard = request.serve.heard
        self._left = _LOOKS if request.waits is None else _LOOKS_WITHOUT_NEWS
        self._rest = LOOK
        self._last = 0.0

    def next(self) -> float:
        """Seconds until the next look."""
        waits = self._request.waits
        self._last = self._rest if waits is None else min(self._rest, waits.interval)
        return self._last

    def in_vain(self) -> None:
        """Counts a look that saw no answer. Raises ServeEnded when that was the last one."""
        waits = self._request.waits
        if waits is not None:
            waits.look()
        self._rest -= self._last
        if self._rest > 0:
            return
        self._rest = LOOK
        if waits is not None and self._request.serve.heard != self._heard:
            self._heard, self._left = self._request.serve.heard, _LOOKS_WITHOUT_NEWS
        self._left -= 1
        if self._left <= 0 or (self._limit is not None and time.monotonic() > self._limit):
            raise ServeEnded(is_silent=True)


class _Process(subprocess.Popen[bytes]):
    """The process of a serve. It ends after this interpreter, by design, so its object ends without a warning."""

    def __del__(self) -> None:  # type: ignore[override,unused-ignore]
        pass


class Serve:
    """A running `tenure serve`.

    A thread reads what it says. A caller that is alone reads its answer itself: then one thread is woken, and not two.
    For as long as callers do so, the reader stays aside.

    A serve that died is replaced by another object. Then nothing that this one answered late counts any more.
    """

    def __init__(self) -> None:
        self.path = find_binary()
        #: Whether it knows the client and has its holds.
        self.is_ready = False
        self.has_ended = False
        #: What was wrong with it, if anything.
        self.fault = ""
        #: How many pieces of output were read.
        self.heard = 0
        #: Its holds by its own numbers.
        self.holds: dict[int, Hold] = {}
        self._requests: dict[int, Request] = {}
        # For the end, and for what it decides: whether an answer still counts.
        self._ending = threading.RLock()
        # Reentrant, for a signal handler that takes locks. The reader does not need it: it is held for as long as the
        # pipe to a stopped serve is full.
        self._writing = threading.RLock()
        # For the output, and for what was read of a line that has no end yet.
        self._reading = threading.RLock()
        self._rest = b""
        self._is_hearing = False
        # How many callers have read for themselves.
        self._own_readers = 0
        self._is_read_for = False
        # Released once the reader is wanted. An Event would not do: a signal handler may cut its `set` short.
        self._reader_is_wanted = threading.Lock()
        self._reader_is_wanted.acquire()
        self._process = _Process(
            [self.path, "serve"],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._stdin = cast(IO[bytes], self._process.stdin)
        self._stdout = cast(IO[bytes], self._process.stdout)
        self._in, self._out = self._stdin.fileno(), self._stdout.fileno()
        os.set_blocking(self._in, False)
        try:
            threading.Thread(target=self._read, name="tenure-reader", daemon=True).start()
        except BaseException:  # the system gives no thread, or the interpreter is ending
            self.end()
            raise

    def send(self, request: Request) -> None:
        """Writes a request. It may block, for as long as serve is stopped and the pipe is full."""
        with self._writing:
            self._announce(request)
            rest = memoryview(request.line)
            looks = _LOOKS
            try:
                while rest:
                    try:
                        rest = rest[os.write(self._in, rest) :]
                    except BlockingIOError:
                        if not self._has_room(LOOK):
                            looks -= 1
                            if looks == 0:
                                raise ServeEnded(is_silent=True) from None
            except OSError:
                self._kill()
                raise ServeEnded from None
            except BaseException:
                # Perhaps half a line is written, and nothing may be added to it.
                self._kill()
                raise

    def send_at_once(self, request: Request) -> bool:
        """Writes a request if that blocks for no time, and tells whether it has."""
        if len(request.line) > select.PIPE_BUF or not self._writing.acquire(blocking=False):
            return False
        try:
            if not self._has_room(0):
                return False
            self.send(request)
            return True
        finally:
            self._writing.release()

    def read_for(self, request: Request) -> None:
        """Reads until the answer has come, for a short time, unless another thread reads."""
        if not self._reading.acquire(blocking=False):
            self.have_read()
            return
        # A signal handler in the midst of such a call: the reader cannot read before the handler is done.
        is_nested, self._is_read_for = self._is_read_for, True
        try:
            if self._is_hearing:  # in the midst of a message, even
                self._die()
                return
            self._own_readers += 1
            patience = LOOK * _LOOKS_WITHOUT_NEWS if is_nested else AT_ONCE
            output, end = select.poll(), time.monotonic() + patience
            output.register(self._out, select.POLLIN)
            while not (request.is_settled or self.has_ended):
                rest = end - time.monotonic()
                if rest <= 0 or not output.poll(rest * 1000):
                    break
                # What a signal handler has read meanwhile is not there any more.
                if not request.is_settled and not self._read_piece():
                    self._die()
                if is_nested:
                    end = time.monotonic() + patience
            if is_nested and not request.is_settled:
                self._die()
        finally:
            self._is_read_for = is_nested
            self._reading.release()
            # Others have asked meanwhile, and found the output taken.
            if self._requests:
                self.have_read()

    def have_read(self) -> None:
        """Has the thread read that does nothing else."""
        with contextlib.suppress(RuntimeError):  # it has been told already
            self._reader_is_wanted.release()

    def end(self) -> None:
        """Kills and collects it. To close its stdin first would give the holds back."""
        self._kill()
        self._process.wait()
        with self._writing:
            self._stdin.close()

    def drop_in_child(self) -> None:
        """Closes the pipes in a forked child, which has no part in its parent's serve."""
        self.has_ended = True
        self._process.returncode = 0
        for pipe in (self._stdin, self._stdout):
            with contextlib.suppress(OSError):
                pipe.close()

    def _announce(self, request: Request) -> None:
        self._requests[request.number] = request
        # The reader sets this first, and then ends all requests that it finds.
        if self.has_ended:
            self._requests.pop(request.number, None)
            raise ServeEnded

    def _has_room(self, seconds: float) -> bool:
        room = select.poll()
        room.register(self._in, select.POLLOUT)
        return bool(room.poll(seconds * 1000))

    def _kill(self) -> None:
        with self._ending:
            self.has_ended = True
        self._process.kill()

    def _read(self) -> None:
        seen = -1
        try:
            while not self.has_ended:
                if not self._requests and self._own_readers != seen:
                    seen = self._own_readers
                    self._reader_is_wanted.acquire(timeout=AT_ONCE)
                    continue
                with self._reading:
                    if self.has_ended or not self._read_piece():
                        break
        finally:
            self._die()
            with self._reading:
                self._stdout.close()

    def _read_piece(self) -> bool:
        """Reads what there is; false if that was the end, or no message."""
        try:
            self._is_hearing = True
            piece = os.read(self._out, 1 << 16)
            self.heard += 1
            *lines, self._rest = (self._rest + piece).split(b"\n")
            for line in lines:
                self._hear(json.loads(line))
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            if not self.has_ended:
                self.fault = f"it says what is no message ({error!r})"
            return False
        except BaseException:  # Ctrl-C, say: what was read may not have been heard
            self._die()
            raise
        finally:
            self._is_hearing = False
        return piece != b"" and len(self._rest) <= _ANSWER_MAX

    def _die(self) -> None:
        """Kills it, and tells all that wait for an answer."""
        self._kill()
        while self._requests:
            with contextlib.suppress(KeyError):
                self._requests.popitem()[1].settle(None, ServeEnded())

    def _hear(self, message: dict[str, Any]) -> None:
        number = message.get("id")
        if number is None:
            self._hear_notification(message["method"], message["params"])
            return
        request = self._requests.pop(number, None)
        if request is None:  # its caller has given up
            return
        result: Any = None
        error: Exception | None = None
        try:
            if "error" in message:
                error = refusal(message["error"])
            else:
                result = message["result"]
                if request.granted is not None:
                    with self._ending:
                        if self.has_ended:
                            error = ServeEnded()
                        else:
                            request.granted(self, result)
        except BaseException:
            request.settle(None, ServeEnded())
            raise
        request.settle(result, error)

    def _hear_notification(self, method: str, params: dict[str, Any]) -> None:
        if method == "waiting":
            request = self._requests.get(params["id"])
            if request is not None and _log.isEnabledFor(logging.INFO):
                holder = params["holder"] or {}
                who = (
                    f"PID {holder.get('pid')} ({holder.get('actor')}@{holder.get('host')})" if holder else "nobody yet"
                )
                _log.info("waiting at place %s; the holder is %s", params["place"], who)
            return
        hold = self.holds.get(params["hold"])
        if hold is None:
            return
        if method == "lost":
            hold.lost.set(params["reason"])
        elif method == "stop_requested":
            hold.stop_requested.set(params["by"])
        elif method == "renewed":
            hold.lost.postpone(params["good_for_ms"])
