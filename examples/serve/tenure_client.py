"""Locks of tenure for a Python program, by `tenure serve`: an example, and a beginning for your own client.

    with tenure_client.lock("deploy", timeout=10, why="release 4.2") as hold:  # None: waits without end
        push(hold.token)
        hold.verify()  # raises Lost once the lock cannot be relied on
"""
import contextlib, json, os, subprocess, threading, time, uuid
PATIENCE = 10  # seconds that serve may take for what need not wait


class TenureError(Exception):
    def __init__(self, code, message, data={}):
        super().__init__(message)
        self.code, self.holder = code, data.get("context", {}).get("holder") or {}


class Held(TenureError, TimeoutError): ...  # `holder` says who has it, since when and why
class Lost(TenureError): ...  # the lock cannot be relied on any more
class Inherited(TenureError): ...  # the hold belongs to the process that was forked
class _Dead(Exception): ...  # serve has ended, or does not answer


class _Serve:  # one for the whole process; if it dies, the next call starts one that adopts the holds
    def __init__(self):
        command, pipe = [os.environ.get("TENURE_BIN", "tenure"), "serve"], subprocess.PIPE
        self.process = subprocess.Popen(command, bufsize=0, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        self.number, self.answers, self.is_dead, self.changed = 0, {}, False, threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()
        self.call("hello", protocol=1, client="tenure_client.py", pid=os.getpid())

    def read(self):
        rest = b""
        with contextlib.suppress(OSError, ValueError, AttributeError, TypeError, KeyError):  # what is no message
            while piece := os.read(self.process.stdout.fileno(), 65536):
                *lines, rest = (rest + piece).split(b"\n")
                for message in map(json.loads, lines):
                    with self.changed:
                        if "id" in message:
                            self.answers[message["id"]] = message
                            self.changed.notify_all()
                        elif message["method"] in ("lost", "stop_requested"):
                            for hold in [hold for hold in _holds if hold.id == message["params"]["hold"]]:
                                setattr(hold, message["method"], True)
        with self.changed:
            self.is_dead = True
            self.changed.notify_all()

    def call(self, method, patience=PATIENCE, **params):
        with self.changed:
            self.number = number = self.number + 1
            line = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            with contextlib.suppress(OSError):  # it has ended, which the reader sees
                self.process.stdin.write(line.encode() + b"\n")
            self.changed.wait_for(lambda: number in self.answers or self.is_dead, patience)
            answer = self.answers.pop(number, None)
            if answer is None:
                raise _Dead(self.is_dead)
        if "error" not in answer:
            return answer["result"]
        code, data = answer["error"]["data"]["code"], answer["error"]["data"]
        raise {"LOCK_HELD": Held, "LOCK_LOST": Lost}.get(code, TenureError)(code, answer["error"]["message"], data)


class Hold(contextlib.AbstractContextManager):
    def __init__(self, where):
        self.request_id, self.where, self.id, self.locks = uuid.uuid4().hex, where, None, []
        self.lost = self.stop_requested = self.inherited = False

    def fill(self, result):
        self.id, self.locks, self.env = result["hold"], result["locks"], result["env"]
        self.token, self.slot = self.locks[0]["token"], self.locks[0]["slot"]

    def adopt(self, serve, locks):
        self.fill(serve.call("adopt", request_id=self.request_id, locks=locks, **self.where))

    def release(self):
        if self in _holds:  # else it is released, or its parent's
            self.ask("release")
            _holds.remove(self)

    def ask(self, method):
        if self.inherited:
            raise Inherited("INHERITED", "the hold belongs to the process that was forked")
        serve = _serve_now()
        while self.id is not None:
            try:
                return serve.call(method, hold=self.id)
            except _Dead:
                serve = _serve_now(instead_of=serve)
        if method == "verify":  # it could not be adopted; what serve was about to release is released
            raise Lost("LOCK_LOST", f"the lock could not be adopted: {self.lost}")

    verify = lambda self: self.ask("verify")
    __exit__ = lambda self, *_: self.release()


def lock(name, timeout=10, shared=False, slots=None, dir=None, **options):
    hold, end, dead = Hold({"dir": dir} if dir else {}), time.monotonic() + (timeout or 0), None
    locks, caller = [{"name": name, "shared": shared, "slots": slots}], str(threading.get_ident())
    asked = {"locks": locks, "request_id": hold.request_id, "caller": caller} | hold.where | options
    while hold.id is None:
        serve, rest = _serve_now(instead_of=dead), None if timeout is None else max(0, end - time.monotonic())
        asked["wait_ms"] = "forever" if rest is None else int(rest * 1000)
        try:
            with contextlib.suppress(Lost):  # another serve may have died between the grant and the answer
                dead and hold.adopt(serve, locks)
            if hold.id is None:
                hold.fill(serve.call("acquire", None if rest is None else rest + PATIENCE, **asked))
        except _Dead:
            dead = serve
    _holds.append(hold)
    return hold


_serve, _holds, _mutex = None, [], threading.RLock()


def _serve_now(instead_of=None, tries=5):
    global _serve
    with _mutex:
        if _serve not in (None, instead_of) and not _serve.is_dead:
            return _serve
        if _serve is not None:
            _serve.process.kill()  # to close its stdin would give the holds back
            _serve.process.wait()
        try:
            _serve = _Serve()
            for hold in [hold for hold in _holds if hold.id is not None]:
                try:
                    hold.adopt(_serve, hold.locks)
                except TenureError as error:
                    hold.id, hold.lost = None, error
        except (_Dead, OSError) as error:
            if not tries or error.args != (True,):
                raise TenureError("NO_SERVE", f"tenure serve cannot be used: {error!r}") from None
            return _serve_now(_serve, tries - 1)
        return _serve


def _in_child():  # it has no part in its parent's serve; a new lock starts its own
    global _serve
    for pipe in [_serve.process.stdin, _serve.process.stdout] if _serve else []:
        pipe.close()
    for hold in _holds:
        hold.inherited = True
    _serve = _holds.clear()  # None
    _mutex.release()


os.register_at_fork(before=_mutex.acquire, after_in_parent=_mutex.release, after_in_child=_in_child)
