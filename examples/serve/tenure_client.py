"""Locks of tenure for a Python program, by `tenure serve`: an example, and a beginning for your own client.

    with tenure_client.lock("deploy", timeout=10, why="release 4.2") as hold:  # None: waits without end
        push(hold.token)
        hold.verify()  # raises Lost once the lock cannot be relied on
"""
import contextlib, math, os, threading, time, uuid
from tenure_serve import PATIENCE, Dead, Held, Inherited, Lost, Request, Serve, TenureError, finish, thread
TRIES = 5  # how many serves one call may use up, and as many more in each second that it waits


class Hold(contextlib.AbstractContextManager):
    was_told = lambda self, what: self.key is not None and (what, self.key[1]) in self.key[0].told
    inherited = property(lambda self: self.pid != os.getpid())
    lost = property(lambda self: self.failed or self.was_told("lost"))
    stop_requested = property(lambda self: self.was_told("stop_requested"))

    def __init__(self, name, group, where):
        self.name, self.locks = name, [{"name": name}] + ([{"name": group, "group": True}] if group else [])
        self.whose = where | {"request_id": uuid.uuid4().hex, "caller": str(thread.number)}
        self.pid, self.failed, self.request, self.is_releasing = os.getpid(), None, None, False
        self.serve = self.key = None  # whom it was asked for last; the serve whose hold it is, with the id there

    def ask(self, serve, method, patience=PATIENCE, **params):
        self.serve, self.request = serve, Request(method, self.whose | params)
        serve.send(self.request)
        self.register(patience)

    def register(self, patience=PATIENCE):  # an id means this hold only to the serve that gave it
        result = self.serve.answer(self.request, patience)
        with _mutex:
            if self.serve is not _serve:
                raise Dead(True)  # the one that is used now must adopt it first
            self.key, self.locks, self.env = (self.serve, result["hold"]), result["locks"], result["env"]
            own = [lock for lock in self.locks if lock["name"] == self.name and not lock["group"]]
            self.token, self.slot = own[0]["token"], own[0]["slot"]
            _holds.add(self)

    def adopt(self, serve):
        self.key = None
        try:
            self.ask(serve, "adopt", locks=self.locks)
        except Lost as error:
            self.failed = error

    def take(self, serve, options, end):
        if self.serve:  # it has died, perhaps between the grant and the answer
            with contextlib.suppress(Lost):
                return self.ask(serve, "adopt", locks=self.locks)
        rest = max(0, end - time.monotonic())
        wait_ms, patience = ("forever", None) if rest == math.inf else (int(rest * 1000), rest + PATIENCE)
        self.ask(serve, "acquire", patience, wait_ms=wait_ms, **options)

    def give_up(self):
        def settle(serve):  # raises if nothing is held
            if self.serve is not serve:
                return self.ask(serve, "adopt", locks=self.locks)
            serve.call("abandon", id=self.request.number)
            self.register()
        if self not in _holds and self.serve:
            _answered(settle)
        self.release()

    def use(self, method, serve=None):
        if self.inherited:
            raise Inherited("INHERITED", "the hold belongs to the process that was forked")
        if not serve:
            return _answered(lambda serve: self.use(method, serve))
        with _mutex:
            if not self.key and not self.failed:
                self.adopt(serve)
            if self.failed and self.is_releasing and method == "release":
                return  # a serve has released it, and died before it could say so
            if self.failed:
                raise Lost("LOCK_LOST", f"the lock could not be adopted: {self.failed}")
            if self.key[0] is not serve:
                raise Dead(True)
            request = Request(method, {"hold": self.key[1]})
        serve.send(request)
        self.is_releasing |= method == "release"
        serve.answer(request)

    def release(self):
        try:
            if self in _holds and not self.inherited:
                self.use("release")
                _holds.discard(self)
        except BaseException as error:
            if getattr(error, "code", None) in ("LOCK_LOST", "NO_SUCH_HOLD"):
                _holds.discard(self)
            if not isinstance(error, TenureError):
                finish(self.release)
            raise
    verify = lambda self: self.use("verify")
    __exit__ = lambda self, *_: self.release()


def lock(name, timeout=10, shared=False, slots=None, dir=None, store=None, **options):
    if _pid != os.getpid():  # a fork that ran no hook
        _in_child()
    where, end = {"dir": dir, "store": store}, math.inf if timeout is None else time.monotonic() + timeout
    hold, locks = Hold(name, options.get("group"), where), [{"name": name, "shared": shared, "slots": slots}]
    try:
        _answered(lambda serve: hold.take(serve, options | {"locks": locks}, end), end)
    except BaseException as error:  # Ctrl-C, say: what is granted, or will be, is given back
        if getattr(error, "code", "NO_SERVE") == "NO_SERVE":
            finish(hold.give_up)
        raise
    return hold


def _answered(work, end=math.inf):  # bounded: the request itself may be what ends each serve
    dead, deaths, began = None, 0, time.monotonic()
    while True:
        try:
            return work(serve := _serve_now(dead))
        except Dead as death:
            dead, deaths = serve, deaths + 1
            if deaths > TRIES + (TRIES * (min(time.monotonic(), end) - began) if death.args[0] else 0):
                raise TenureError("NO_SERVE", "tenure serve ends again and again, or does not answer") from None


def _serve_now(instead_of=None):
    global _serve
    with _mutex:
        for rest in reversed(range(TRIES)):
            if _serve not in (None, instead_of) and _serve.is_ready and not _serve.is_dead:
                return _serve
            try:
                _serve = Serve(instead_of=_serve)
                _serve.call("hello", protocol=1, client="tenure_client.py", pid=os.getpid())
                for hold in list(_holds):
                    with contextlib.suppress(TenureError):  # its next use tries again
                        hold.adopt(_serve)
                _serve.is_ready = True
                return _serve
            except (Dead, OSError) as error:
                if not rest or error.args != (True,):
                    raise TenureError("NO_SERVE", f"tenure serve cannot be used: {error!r}") from None


def _in_child():  # it has no part in its parent's serve; a new lock starts its own
    global _serve, _mutex, _pid
    _serve and _serve.close()
    _holds.clear()
    _serve, _mutex, _pid = None, threading.RLock(), os.getpid()


_serve, _holds, _mutex, _pid = None, set(), threading.RLock(), os.getpid()
os.register_at_fork(before=lambda: _mutex.acquire(), after_in_parent=lambda: _mutex.release(), after_in_child=_in_child)
