"""Locks of tenure for a Python program, by `tenure serve`: an example, and a beginning for your own client.

    with tenure_client.lock("deploy", timeout=10, why="release 4.2") as hold:  # None: waits without end
        push(hold.token)
        hold.verify()  # raises Lost once the lock cannot be relied on
"""
import contextlib, itertools, json, math, os, select, subprocess, threading, time, uuid
PATIENCE = 10  # seconds that serve may take for what need not wait
TRIES, TRIES_PER_SECOND = 5, 5  # how many serves one call may use up
LINE_MAX = 1 << 20


class TenureError(Exception):
    def __init__(self, code, message, data={}):
        super().__init__(message)
        self.code, self.holder = code, data.get("context", {}).get("holder") or {}


class Held(TenureError, TimeoutError): ...  # `holder` says who has it, since when and why
class Lost(TenureError): ...  # the lock cannot be relied on any more
class Inherited(TenureError): ...  # the hold belongs to the process that was forked
class _Dead(Exception): ...  # serve has ended (True), or does not answer (False)


class _Request:  # what cannot be a message is refused here, before anything of it is sent
    def __init__(self, method, params):
        self.number, self.answer = next(_numbers), None
        message = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        self.line = json.dumps(message, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        if len(self.line) > LINE_MAX:
            raise ValueError(f"a request of {len(self.line)} bytes is too long")


class _Serve:  # one for the whole process; if it dies, the next call starts one that adopts the holds
    def __init__(self):
        command, pipe = [os.environ.get("TENURE_BIN", "tenure"), "serve"], subprocess.PIPE
        self.requests, self.told, self.is_dead = {}, set(), False
        self.changed, self.writing = threading.Condition(), threading.Lock()
        self.process = subprocess.Popen(
            command, bufsize=0, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, start_new_session=True)
        os.set_blocking(self.process.stdin.fileno(), False)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        rest = b""
        with contextlib.suppress(OSError, ValueError, AttributeError, TypeError, KeyError):  # what is no message
            while piece := os.read(self.process.stdout.fileno(), 65536):
                *lines, rest = (rest + piece).split(b"\n")
                for message in map(json.loads, lines):
                    with self.changed:
                        if message.get("method") in ("lost", "stop_requested"):
                            self.told.add((message["method"], message["params"]["hold"]))
                        elif request := self.requests.pop(message.get("id"), None):
                            request.answer = message
                            self.changed.notify_all()
        with self.changed:
            self.is_dead = True
            self.changed.notify_all()

    def send(self, request):
        self.requests[request.number] = request
        with self.writing:  # not `changed`, which the reader needs: the pipe to a serve that is stopped may be full
            try:
                room, rest = select.poll(), request.line
                room.register(self.process.stdin, select.POLLOUT)
                while rest and not self.is_dead:
                    written = self.process.stdin.write(rest)  # None: there is no room
                    if written is None and not room.poll(PATIENCE * 1000):
                        raise _Dead(False)
                    rest = rest[written or 0:]
            except OSError: ...  # it has ended, which the reader sees
            except BaseException:  # perhaps half a line is written, to which nothing may be added
                self.is_dead = True
                self.process.kill()
                raise

    def answer(self, request, patience=PATIENCE):
        with self.changed:
            self.changed.wait_for(lambda: request.answer or self.is_dead, patience)
        if request.answer is None:
            raise _Dead(self.is_dead)
        if "error" not in request.answer:
            return request.answer["result"]
        error, data = request.answer["error"], request.answer["error"]["data"]
        raise {"LOCK_HELD": Held, "LOCK_LOST": Lost}.get(data["code"], TenureError)(data["code"], error["message"], data)

    def call(self, method, **params):
        self.send(request := _Request(method, params))
        return self.answer(request)


class Hold(contextlib.AbstractContextManager):
    inherited = property(lambda self: self.pid != os.getpid())
    lost = property(lambda self: self.failed or self.was_told("lost"))
    stop_requested = property(lambda self: self.was_told("stop_requested"))

    def __init__(self, name, group, where):
        self.name, self.known = name, [{"name": name}] + ([{"name": group, "group": True}] if group else [])
        self.whose = where | {"request_id": uuid.uuid4().hex, "caller": _thread.caller}
        self.pid, self.failed, self.request = os.getpid(), None, None
        self.serve = self.key = None  # whom it was asked for last; the serve whose hold it is, with the id there

    def was_told(self, what):
        return self.key is not None and (what, self.key[1]) in self.key[0].told

    def ask(self, serve, method, patience=PATIENCE, **params):
        self.serve, self.request = serve, _Request(method, self.whose | params)
        serve.send(self.request)
        self.register(patience)

    def register(self, patience=PATIENCE):  # an id means this hold only to the serve that gave it
        result = self.serve.answer(self.request, patience)
        with _mutex:
            if self.serve is not _serve:
                raise _Dead(True)  # the one that is used now must adopt it first
            self.key, self.known, self.env = (self.serve, result["hold"]), result["locks"], result["env"]
            own = [lock for lock in self.known if lock["name"] == self.name and not lock["group"]]
            self.token, self.slot = own[0]["token"], own[0]["slot"]
            _holds.add(self)

    def adopt(self, serve):
        self.key = None
        try:
            self.ask(serve, "adopt", locks=self.known)
        except Lost as error:
            self.failed = error

    def take(self, serve, options, end):
        if self.serve:  # it has died, perhaps between the grant and the answer
            with contextlib.suppress(Lost):
                return self.ask(serve, "adopt", locks=self.known)
        rest = None if end == math.inf else max(0, end - time.monotonic())
        limits = ("forever", None) if rest is None else (int(rest * 1000), rest + PATIENCE)
        self.ask(serve, "acquire", limits[1], wait_ms=limits[0], **options)

    def settle(self, serve):
        if self.serve is not serve:
            return self.ask(serve, "adopt", locks=self.known)
        serve.call("abandon", id=self.request.number)
        self.register()  # raises unless the grant came first

    def give_up(self):
        if self not in _holds and self.serve:
            _answered(self.settle)
        self.release()

    def use(self, method):
        sent = []

        def work(serve):
            with _mutex:
                if serve is not _serve:
                    raise _Dead(True)
                if not self.key and not self.failed:
                    self.adopt(serve)
                if self.failed and sent:
                    return  # a serve has released it, and died before it could say so
                if self.failed:
                    raise Lost("LOCK_LOST", f"the lock could not be adopted: {self.failed}")
                hold = self.key[1]
            sent.extend([method] if method == "release" else [])
            serve.call(method, hold=hold)

        if self.inherited:
            raise Inherited("INHERITED", "the hold belongs to the process that was forked")
        _answered(work)

    def release(self):
        if self.inherited or self not in _holds:
            return
        try:
            self.use("release")
            _holds.discard(self)
        except TenureError as error:
            if error.code in ("LOCK_LOST", "NO_SUCH_HOLD"):
                _holds.discard(self)
            raise
        except BaseException:
            _finish(self.release)
            raise

    verify = lambda self: self.use("verify")
    __exit__ = lambda self, *_: self.release()


def lock(name, timeout=10, shared=False, slots=None, dir=None, store=None, **options):
    if _pid != os.getpid():  # a fork that ran no hook
        _in_child()
    where = {key: value for key, value in [("dir", dir), ("store", store)] if value}
    hold, end = Hold(name, options.get("group"), where), math.inf if timeout is None else time.monotonic() + timeout
    options["locks"] = [{"name": name, "shared": shared, "slots": slots}]
    try:
        _answered(lambda serve: hold.take(serve, options, end), end)
    except BaseException as error:  # Ctrl-C, say: what is granted, or will be, is given back
        if getattr(error, "code", "NO_SERVE") == "NO_SERVE":
            _finish(hold.give_up)
        raise
    return hold


def _finish(work):  # in a thread, which no second Ctrl-C cuts
    def quietly():
        with contextlib.suppress(TenureError):
            work()

    thread = threading.Thread(target=quietly, daemon=True)
    thread.start()
    thread.join()


def _answered(work, end=math.inf):  # bounded: the request itself may be what ends each serve
    dead, deaths, began = None, 0, time.monotonic()
    while True:
        serve = _serve_now(dead)
        try:
            return work(serve)
        except _Dead as death:
            dead, deaths = serve, deaths + 1
            earned = TRIES_PER_SECOND * (min(time.monotonic(), end) - began) if death.args[0] else 0
            if deaths > TRIES + earned:
                raise TenureError("NO_SERVE", "tenure serve ends again and again, or does not answer") from None


def _serve_now(instead_of=None):
    global _serve
    with _mutex:
        for rest in reversed(range(TRIES)):
            if _serve not in (None, instead_of) and not _serve.is_dead:
                return _serve
            if _serve is not None:
                _serve.is_dead = True
                _serve.process.kill()  # to close its stdin would give the holds back
                _serve.process.wait()
            is_ready = False
            try:
                _serve = _Serve()
                _serve.call("hello", protocol=1, client="tenure_client.py", pid=os.getpid())
                for hold in list(_holds):
                    with contextlib.suppress(TenureError):  # its next use tries again
                        hold.adopt(_serve)
                is_ready = True
                return _serve
            except (_Dead, OSError) as error:
                if not rest or error.args != (True,):
                    raise TenureError("NO_SERVE", f"tenure serve cannot be used: {error!r}") from None
            finally:
                if _serve and not is_ready:
                    _serve.is_dead = True


def _in_child():  # it has no part in its parent's serve; a new lock starts its own
    global _serve, _mutex, _pid
    for pipe in [_serve.process.stdin, _serve.process.stdout] if _serve else []:
        pipe.close()
    _holds.clear()
    _serve, _mutex, _pid = None, threading.RLock(), os.getpid()


class _Thread(threading.local):  # the id of a thread that has ended is used again, this number is not
    def __init__(self):
        self.caller = str(next(_numbers))


_serve, _holds, _mutex, _pid, _numbers = None, set(), threading.RLock(), os.getpid(), itertools.count(1)
_thread = _Thread()
os.register_at_fork(
    before=lambda: _mutex.acquire(), after_in_parent=lambda: _mutex.release(), after_in_child=_in_child)
