"""A whole client of `tenure serve` in one file, for a Python program that locks in one thread.

    with one_thread.lock("deploy", timeout=10, why="release 4.2") as hold:  # timeout None: waits without end
        hold.verify()  # raises Lost once the lock cannot be relied on
"""
import contextlib, itertools, json, math, os, select, subprocess, time, uuid
PATIENCE = 10  # seconds that serve may take for what need not wait
LINE_MAX = 60000  # a pipe has room for 64 KiB, and is empty before each request: to write one blocks never
TRIES = 5  # how many serves one call may use up: the request itself may be what ends them


class TenureError(Exception):
    def __init__(self, code, message, data={}):
        super().__init__(message)
        self.code, self.holder = code, data.get("context", {}).get("holder") or {}


class Held(TenureError, TimeoutError): ...  # `holder` says who has it, since when and why
class Lost(TenureError): ...  # the lock cannot be relied on any more
class Inherited(TenureError): ...  # the hold belongs to the process that was forked
class NoServe(TenureError): ...  # serve does not answer, or ends again and again
class Dead(Exception): ...  # serve has ended, or has said what is no message


class Serve:
    def __init__(self):
        self.numbers, self.rest, self.poll, pipe = itertools.count(1), b"", select.poll(), subprocess.PIPE
        self.process = subprocess.Popen([os.environ.get("TENURE_BIN", "tenure"), "serve"], bufsize=0, stdin=pipe,
                                        stdout=pipe, stderr=subprocess.DEVNULL, start_new_session=True)
        self.poll.register(self.process.stdout, select.POLLIN)
    def call(self, method, patience=PATIENCE, **params):
        number, end = next(self.numbers), time.monotonic() + patience
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        line = json.dumps(message, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        if len(line) > LINE_MAX:
            raise ValueError(f"a request of {len(line)} bytes is too long")
        try:
            self.process.stdin.write(line)
            while (answer := self.read(end)).get("id") != number:
                _told.add((answer.get("method"), answer["params"].get("hold")))
            data = answer["error"]["data"] if "error" in answer else None
        except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
            raise Dead(f"tenure serve cannot be used: {error!r}") from None
        if data is None:
            return answer["result"]
        raise {"LOCK_HELD": Held, "LOCK_LOST": Lost}.get(data["code"], TenureError)(data["code"], data["message"], data)
    def read(self, end):
        while b"\n" not in self.rest:
            if not self.poll.poll(None if end == math.inf else max(0, end - time.monotonic()) * 1000):
                raise NoServe("NO_SERVE", "tenure serve does not answer")  # another one would be waited for as long
            if not (piece := os.read(self.process.stdout.fileno(), 65536)):
                raise OSError("it has ended")
            self.rest += piece
        line, _, self.rest = self.rest.partition(b"\n")
        return json.loads(line)


class Hold(contextlib.AbstractContextManager):
    inherited = property(lambda self: self.pid != os.getpid())
    lost = property(lambda self: self.failed or ("lost", self.number) in _told)  # as far as the last call knows
    verify = lambda self: self.use("verify")
    __exit__ = lambda self, *_: self.release()
    def __init__(self, name, where):
        self.whose = where | {"request_id": uuid.uuid4().hex, "caller": "the only thread"}
        self.locks, self.pid, self.number, self.failed, self.asked = [{"name": name}], os.getpid(), None, None, set()
    def ask(self, serve, method, patience=PATIENCE, **params):
        result = serve.call(method, patience, **self.whose, **params)
        self.number, self.locks, self.env = result["hold"], result["locks"], result["env"]
        self.token, self.slot = self.locks[0]["token"], self.locks[0]["slot"]
    def take(self, serve, end, params):
        if "acquire" in self.asked:  # a serve has died, perhaps between the grant and the answer
            with contextlib.suppress(Lost):
                return self.ask(serve, "adopt", locks=self.locks)
        self.asked.add("acquire")
        wait_ms = "forever" if (rest := max(0, end - time.monotonic())) == math.inf else int(rest * 1000)
        self.ask(serve, "acquire", rest + PATIENCE, wait_ms=wait_ms, **params)
    def use(self, method):
        def work(serve):
            if self.failed and method not in self.asked:  # or else an earlier serve has released it
                raise Lost("LOCK_LOST", f"the lock could not be adopted: {self.failed}")
            self.asked |= {method} & {"release"}
            return self.failed or serve.call(method, hold=self.number)
        if self.inherited:
            raise Inherited("INHERITED", "the hold belongs to the process that was forked")
        _answered(work, self if method == "release" else None)
    def release(self):
        try:
            if self in _holds and not self.inherited:
                self.use("release")
        except BaseException as error:
            isinstance(error, TenureError) or _doubtful.add(self)  # Ctrl-C, say: what had no answer is in doubt
            raise
        finally: _holds.discard(self)


def lock(name, timeout=10, shared=None, slots=None, dir=None, store=None, **options):
    hold, end = Hold(name, {"dir": dir, "store": store}), math.inf if timeout is None else time.monotonic() + timeout
    options["locks"] = [{"name": name, "shared": shared, "slots": slots}]
    _answered(lambda serve: hold.take(serve, end, options) or _holds.add(hold), hold)
    return hold


def _answered(work, hold=None, tries=TRIES):
    global _serve, _pid
    if os.getpid() != _pid:  # a fork has no part in its parent's serve; a new lock starts its own
        _serve, _pid = None, os.getpid()
        _holds.clear(), _doubtful.clear()
    elif _doubtful: _end()  # the next serve gives back what a call that was cut has left
    try:
        return work(_serve or _start())
    except BaseException as error:
        if isinstance(error, (TenureError, ValueError)) and not isinstance(error, NoServe):
            raise  # an answer, or what cannot be a message
        _end()  # Ctrl-C, say: perhaps half a message was written or read
        if isinstance(error, Dead) and tries > 1:
            return _answered(work, hold, tries - 1)
        if hold and hold.asked:  # what is granted, or will be, is given back
            _holds.discard(hold), _doubtful.add(hold)
            with contextlib.suppress(TenureError):
                _answered(lambda _: None)
        raise (NoServe("NO_SERVE", str(error)) if isinstance(error, Dead) else error) from None


def _start():
    global _serve
    _serve = Serve()
    try:
        _serve.call("hello", protocol=1, client="one_thread.py", pid=os.getpid())
    except TenureError as error:
        raise NoServe("NO_SERVE", str(error)) from None
    for hold in _holds | _doubtful:
        try:
            hold.ask(_serve, "adopt", locks=hold.locks)
            hold in _doubtful and _serve.call("release", hold=hold.number)
        except TenureError as error:
            if isinstance(error, NoServe): raise
            hold.failed = error
        _doubtful.discard(hold)
    return _serve


def _end():  # to close its stdin before it is dead would give the holds back
    global _serve
    if _serve:
        _serve.process.kill()
        _serve.process.communicate()
        _serve = None


_serve, _pid, _holds, _doubtful, _told = None, os.getpid(), set(), set(), set()
