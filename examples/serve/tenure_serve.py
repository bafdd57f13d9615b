"""One `tenure serve` and the messages to it: what tenure_client.py stands on. It knows no locks."""
import contextlib, itertools, json, os, select, subprocess, threading
PATIENCE = 10  # seconds that serve may take for what need not wait
LINE_MAX = 1 << 20
numbers = itertools.count(1)


class TenureError(Exception):
    def __init__(self, code, message, data={}):
        super().__init__(message)
        self.code, self.holder = code, data.get("context", {}).get("holder") or {}


class Held(TenureError, TimeoutError): ...  # `holder` says who has it, since when and why
class Lost(TenureError): ...  # the lock cannot be relied on any more
class Inherited(TenureError): ...  # the hold belongs to the process that was forked
class Dead(Exception): ...  # serve has ended (True), or does not answer (False)


class Request:  # what cannot be a message is refused here, before anything of it is sent
    def __init__(self, method, params):
        self.number, self.answer = next(numbers), None
        message = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        self.line = json.dumps(message, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        if len(self.line) > LINE_MAX:
            raise ValueError(f"a request of {len(self.line)} bytes is too long")


class Serve:  # one for the whole process; if it dies, the next call starts one that adopts the holds
    def __init__(self, instead_of=None):
        if instead_of:
            instead_of.end()
        command, pipe = [os.environ.get("TENURE_BIN", "tenure"), "serve"], subprocess.PIPE
        self.requests, self.told, self.is_dead, self.is_ready = {}, set(), False, False
        self.changed, self.writing = threading.Condition(), threading.Lock()
        self.process = subprocess.Popen(
            command, bufsize=0, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, start_new_session=True)
        os.set_blocking(self.process.stdin.fileno(), False)
        threading.Thread(target=self.read, daemon=True).start()

    def end(self):  # to close its stdin would give the holds back
        self.is_dead = True
        self.process.kill()
        self.process.wait()

    def close(self):  # in a child, which has no part in it
        self.process.stdin.close()
        self.process.stdout.close()

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
                        raise Dead(False)
                    rest = rest[written or 0:]
            except OSError:  # it has ended, and has no whole line
                raise Dead(True) from None
            except BaseException:  # perhaps half a line is written, to which nothing may be added
                self.is_dead = True
                self.process.kill()
                raise

    def answer(self, request, patience=PATIENCE):
        with self.changed:
            self.changed.wait_for(lambda: request.answer or self.is_dead, patience)
        if request.answer is None:
            raise Dead(self.is_dead)
        if "error" not in request.answer:
            return request.answer["result"]
        code, data = request.answer["error"]["data"]["code"], request.answer["error"]["data"]
        raise {"LOCK_HELD": Held, "LOCK_LOST": Lost}.get(code, TenureError)(code, data["message"], data)

    def call(self, method, **params):
        self.send(request := Request(method, params))
        return self.answer(request)


class _Thread(threading.local):  # the id of a thread that has ended is used again; this number is not
    def __init__(self):
        self.number = next(numbers)


thread = _Thread()


def finish(work):  # in a thread, which no second Ctrl-C cuts
    def quietly():
        with contextlib.suppress(TenureError):
            work()

    worker = threading.Thread(target=quietly, daemon=True)
    worker.start()
    worker.join()
