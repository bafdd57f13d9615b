"""Tries `tenure mcp` to breaking point: programs, their servers and both are killed while they hold and wait.

    storm.py [SECONDS [PROGRAMS]]

Each program takes one of three locks again and again, by a server of its own. When its server dies, it starts another
one and goes on with the handle that it has. While it holds, it makes a witness file that must not be there yet, and
writes its fencing token to the end of a list. A witness file of a process that lives is a second holder. Calls are
cancelled at random.

Prints counts. Exit code 0: no second holder, nothing stuck, and the tokens rise in the order of the holds. TENURE_BIN is
tenure. Needs Linux.
"""
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time

TENURE = os.environ["TENURE_BIN"]
LOCKS = ["one", "two", "three"]
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


def started(pid):
    """When a process that lives was started; None if it does not. PF_EXITING (4): it runs no more code."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            words = file.read().rpartition(")")[2].split()
        return None if words[0] in "ZX" or int(words[6]) & 4 else words[19]
    except (OSError, IndexError):
        return None


def tell(folder, kind, what=""):
    with open(os.path.join(folder, "log"), "a") as file:
        file.write(f"{kind} {os.getpid()} {what}\n")


class Died(Exception):
    """The server has died."""


class Server:
    def __init__(self, folder):
        self.process = subprocess.Popen(
            [TENURE, "mcp", "--dir", os.path.join(folder, "locks")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
        )
        self.rest, self.number = b"", 0

    def say(self, message):
        try:
            self.process.stdin.write(json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n")
        except OSError:
            raise Died from None

    def line(self, until):
        while b"\n" not in self.rest:
            if not select.select([self.process.stdout], [], [], max(0, until - time.monotonic()))[0]:
                return None
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                raise Died
            self.rest += more
        line, _, self.rest = self.rest.partition(b"\n")
        return json.loads(line)

    def call(self, tool, give_up=None, **arguments):
        """The structured result; None for a call that was given up."""
        self.number += 1
        number = self.number
        call = {"name": tool, "arguments": arguments, "_meta": META}
        self.say({"id": number, "method": "tools/call", "params": call})
        until = time.monotonic() + (60 if give_up is None else give_up)
        while True:
            message = self.line(until)
            if message is None:
                if give_up is None:
                    raise AssertionError(f"no answer to {tool} {arguments} within a minute")
                self.say({"method": "notifications/cancelled", "params": {"requestId": number}})
                return self.given_up(number)
            if message.get("id") == number:
                if "error" in message:
                    raise Died
                return message["result"]["structuredContent"]

    def given_up(self, number):
        """The answer may have been on its way: then the hold is ours, and is given back."""
        self.number += 1
        check = {"name": "lock_check", "arguments": {"name": "none"}, "_meta": META}
        self.say({"id": self.number, "method": "tools/call", "params": check})
        while True:
            message = self.line(time.monotonic() + 60)
            if message is None:
                raise AssertionError("no answer to lock_check within a minute")
            if message.get("id") == number:
                return message["result"]["structuredContent"]
            if message.get("id") == self.number:
                return None

    def end(self):
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            try:
                pipe.close()
            except OSError:
                pass


def witness(folder, name, token):
    """Marks the beginning of a hold. The file of a process that was killed may be left."""
    path = os.path.join(folder, f"{name}.witness")
    me = f"{os.getpid()} {started(os.getpid())}"
    while True:
        try:
            file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            break
        except FileExistsError:
            with open(path) as other:
                pid, _, since = other.read().partition(" ")
            if pid and started(pid) == since:
                time.sleep(0.5)
                tell(folder, "DOUBLE", f"{name} beside {pid}, half a second later {started(pid) == since}")
            os.unlink(path)
    os.write(file, me.encode())
    os.close(file)
    with open(os.path.join(folder, f"{name}.tokens"), "a") as file:
        file.write(f"{token}\n")
    return path


def patiently(folder, servers, work):
    """Does it with the next server if one dies."""
    while True:
        try:
            return work(servers[0])
        except Died:
            tell(folder, "died")
            servers[0].end()
            servers[0] = Server(folder)


def program(folder):
    chance, servers, tickets = random.Random(), [Server(folder)], {}
    while not os.path.exists(os.path.join(folder, "stop")):
        name = chance.choice(LOCKS)
        give_up = chance.choice([None, None, None, 0.001, 0.05])
        arguments = {"name": name, "wait_ms": chance.choice([0, 200, 30000])}
        if name in tickets and arguments["wait_ms"]:
            arguments["ticket"] = tickets.pop(name)
        try:
            said = servers[0].call("lock_acquire", give_up, **arguments)
        except Died:
            # It may have granted the lock, and died before it said so: the next one knows.
            tell(folder, "died")
            servers[0].end()
            servers[0] = Server(folder)
            seen = patiently(folder, servers, lambda server: server.call("lock_check", name=name))
            if seen["standing"] == "held" and seen["mine"]:
                tell(folder, "found")
                patiently(folder, servers, lambda server: server.call("lock_release", handle=seen["handle"]))
            continue
        if said is None:
            tell(folder, "given-up")
            continue
        if "code" in said:
            error = said
            # A server that is asked to end says so to the calls that wait.
            usual = {"LOCK_HELD": "refused", "ABANDONED": "ended"}
            tell(folder, usual.get(error["code"], "ERROR"), json.dumps(error))
            if "ticket" in error:
                tickets[name] = error["ticket"]
            continue
        hold = said
        path = witness(folder, name, hold["token"])
        time.sleep(chance.choice([0, 0.001, 0.02]))
        seen = patiently(folder, servers, lambda server: server.call("lock_check", name=name))
        if seen.get("handle") != hold["handle"]:
            tell(folder, "LOST", f"{name}: {json.dumps(seen)}")
        os.unlink(path)
        released = patiently(folder, servers, lambda server: server.call("lock_release", handle=hold["handle"]))
        tell(folder, "ERROR" if "code" in released else "held", json.dumps(released))
    servers[0].end()
    tell(folder, "done")


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return []


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def main(seconds, count):
    folder = tempfile.mkdtemp(prefix="mcp-storm-")
    begin = lambda: subprocess.Popen([sys.executable, __file__, "program", folder])
    fleet = [begin() for _ in range(count)]
    chance, done, end = random.Random(), {}, time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(chance.uniform(0.02, 0.15))
        index = chance.randrange(count)
        victim = fleet[index]
        servers = children(victim.pid)
        what = chance.choice(["server", "server", "program", "both", "end server", "stop server"])
        done[what] = done.get(what, 0) + 1
        if what in ("server", "both"):
            for pid in servers:
                send(pid, signal.SIGKILL)
        if what in ("program", "both"):
            victim.kill()
        if what == "end server":
            for pid in servers:
                send(pid, signal.SIGTERM)
        if what == "stop server":
            for pid in servers:
                send(pid, signal.SIGSTOP)
            time.sleep(chance.choice([0.001, 0.05, 0.3]))
            for pid in servers:
                send(pid, signal.SIGCONT)
        for index, process in enumerate(fleet):
            if process.poll() is not None:
                fleet[index] = begin()
    open(os.path.join(folder, "stop"), "w").close()
    stuck, end = 0, time.monotonic() + 90
    for process in fleet:
        try:
            # The last one may have been killed a moment ago.
            stuck += process.wait(max(0.1, end - time.monotonic())) not in (0, -signal.SIGKILL)
        except subprocess.TimeoutExpired:
            stuck += 1
            print("stuck:", process.pid, file=sys.stderr)
            process.kill()
    said = {}
    with open(os.path.join(folder, "log")) as file:
        for line in file:
            word = line.split()[0]
            said[word] = said.get(word, 0) + 1
            if word.isupper():
                print(line.strip(), file=sys.stderr)
    disorder = 0
    for name in LOCKS:
        with open(os.path.join(folder, f"{name}.tokens"), "a+") as file:
            file.seek(0)
            tokens = [int(line) for line in file]
        disorder += sum(before >= after for before, after in zip(tokens, tokens[1:]))
        free = subprocess.run([TENURE, "run", "--dir", os.path.join(folder, "locks"), "-w", "5s", name, "--", "true"])
        stuck += free.returncode != 0
    print(json.dumps({"seconds": seconds, "programs": count, "done": done, "said": said, "disorder": disorder, "stuck": stuck}))
    is_good = not stuck and not disorder and said.get("held", 0) > 0
    sys.exit(0 if is_good and not {"DOUBLE", "LOST", "ERROR"} & said.keys() else 1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["program"]:
        program(sys.argv[2])
    else:
        words = [int(word) for word in sys.argv[1:]]
        main(*(words + [10, 8][len(words):]))
