"""Checks a client of `tenure serve`, in whatever language it is written.

    python3 conformance.py python3 under_test.py

The words are a command that puts the client under this check. It reads one command a line from stdin, and answers
each with one line on stdout:

    lock NAME WAIT_MS   held TOKEN | refused LOCK_HELD PID-OF-THE-HOLDER | error CODE    (WAIT_MS: a number or forever)
    verify              ok | lost
    unlock              released | lost
    fork                inherited: a forked child can neither release nor use the hold, and can lock `of-the-child`
                        unsupported: the language has no fork

It starts the program that TENURE_BIN names as `TENURE_BIN serve`, keeps its locks where TENURE_DIR says, and ends at
the end of its stdin. Needs Linux, Python 3.11 and tenure: TENURE, else `tenure` on the PATH. No test waits for
longer than 30 seconds. Exit code 0: all passed.
"""
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time

TENURE = os.environ.get("TENURE", "tenure")


class Client:
    """The client under test, with locks in a folder of its own."""

    def __init__(self, command, folder, binary=TENURE):
        environment = dict(os.environ, TENURE_BIN=binary, TENURE_DIR=folder)
        self.folder = folder
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment
        )

    def __call__(self, command):
        signal.alarm(30)
        self.process.stdin.write(command + "\n")
        answer = self.process.stdout.readline().strip()
        signal.alarm(0)
        return answer

    def serves(self):
        """The PIDs of the serve processes of this client."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/stat") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
                with open(f"/proc/{name}/cmdline") as file:
                    is_serve = "serve" in file.read().split("\0")
            except (OSError, IndexError, ValueError):
                continue
            if parent == self.process.pid and is_serve:
                found.append(int(name))
        return found

    def tenure(self, *words):
        return subprocess.run([TENURE, *words], env=dict(os.environ, TENURE_DIR=self.folder), capture_output=True)

    def holder(self, name):
        answer = json.loads(self.tenure("check", name, "--output", "json").stdout)
        facts = answer["data"] or answer["error"]["context"]
        return facts["holder"] and facts["holder"]["pid"]

    def can_be_taken(self, name):
        return self.tenure("run", "-n", name, "--", "true").returncode == 0


def same(what, seen, wanted):
    assert seen == wanted, f"{what}: {seen!r} instead of {wanted!r}"


def until(what, holds):
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end, f"{what}: not within 10 s"
        time.sleep(0.02)


def locks_and_unlocks(client):
    same("lock", client("lock a 1000").split()[0], "held")
    same("the holder", client.holder("a"), client.process.pid)
    assert not client.can_be_taken("a"), "another process has taken the lock"
    same("verify", client("verify"), "ok")
    same("unlock", client("unlock"), "released")
    assert client.can_be_taken("a"), "the lock is not free after unlock"


def tells_who_holds(client):
    words = [TENURE, "run", "-q", "--dir", client.folder, "a", "--", "sleep", "100"]
    other = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    try:
        until("another process holds", lambda: client.holder("a") == other.pid)
        same("a try", client("lock a 0"), f"refused LOCK_HELD {other.pid}")
        began = time.monotonic()
        same("a wait", client("lock a 400"), f"refused LOCK_HELD {other.pid}")
        assert 0.4 <= time.monotonic() - began < 10, "the wait is as long as was asked"
    finally:
        other.terminate()
        other.wait()
    same("once it is free", client("lock a 10000").split()[0], "held")
    same("unlock", client("unlock"), "released")


def tokens_rise(client):
    tokens = []
    for _ in range(3):
        tokens.append(int(client("lock a 1000").split()[1]))
        client("unlock")
    assert tokens == sorted(set(tokens)), f"tokens rise: {tokens}"


def survives_the_death_of_serve(client):
    client("lock a 1000")
    for pid in client.serves():
        os.kill(pid, signal.SIGKILL)
    assert not client.can_be_taken("a"), "the lock was free without serve, while the program lives"
    same("verify", client("verify"), "ok")
    same("how many serve", len(client.serves()), 1)
    assert not client.can_be_taken("a"), "the lock was free after it was adopted"
    for pid in client.serves():
        os.kill(pid, signal.SIGKILL)
    same("unlock", client("unlock"), "released")
    assert client.can_be_taken("a"), "the lock is not free after unlock"


def takes_no_hold_for_another(client):
    for name in ("a", "b"):
        same("lock", client(f"lock {name} 1000").split()[0], "held")
        for pid in client.serves():
            os.kill(pid, signal.SIGKILL)
    same("lock", client("lock c 1000").split()[0], "held")
    for name, others in (("c", "ab"), ("b", "a"), ("a", "")):
        same("unlock", client("unlock"), "released")
        assert client.can_be_taken(name), f"{name} is not free after unlock"
        for other in others:
            assert not client.can_be_taken(other), f"the unlock of {name} has given {other} back"


def refuses_what_is_too_long(client):
    client("lock a 1000")
    answer = client(f"lock {'x' * (1 << 20)} 0")
    assert answer.startswith("error "), f"a name of 1 MiB: {answer[:100]!r}"
    same("verify", client("verify"), "ok")
    assert not client.can_be_taken("a"), "a request that is no message has given a lock back"
    same("unlock", client("unlock"), "released")


def keeps_holds_from_children(client):
    client("lock a 1000")
    answer = client("fork")
    if answer != "unsupported":
        same("fork", answer, "inherited")
    same("verify", client("verify"), "ok")
    assert not client.can_be_taken("a"), "a child has given back the lock of its parent"
    same("unlock", client("unlock"), "released")


def dies_without_locks(client):
    client("lock a 1000")
    assert not client.can_be_taken("a"), "another process has taken the lock"
    client.process.kill()
    client.process.wait()
    until("the lock of a program that was killed is free", lambda: client.can_be_taken("a"))


def ends_without_locks(client):
    client("lock a 1000")
    assert not client.can_be_taken("a"), "another process has taken the lock"
    client.process.stdin.close()
    client.process.wait(30)
    until("the lock of a program that has ended is free", lambda: client.can_be_taken("a"))


def refuses(client):
    answer = client("lock a 1000")
    assert answer.startswith("error "), f"a serve that is of no use: {answer!r}"


TESTS = [
    locks_and_unlocks,
    tells_who_holds,
    tokens_rise,
    survives_the_death_of_serve,
    takes_no_hold_for_another,
    refuses_what_is_too_long,
    keeps_holds_from_children,
    dies_without_locks,
    ends_without_locks,
]


def fake(how):
    """A serve that is of no use."""
    request = json.loads(sys.stdin.readline())
    data = {"code": "PROTOCOL_UNKNOWN", "message": "protocol 2", "retryable": False}
    error = {"code": -32000, "message": data["message"], "data": data}
    answer = json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error})
    said = {"other-protocol": answer + "\n", "garbage": "hello\n", "not-an-object": "[1]\n", "half-a-line": answer[:20]}
    sys.stdout.write(said.get(how, ""))
    sys.stdout.flush()
    if how != "half-a-line":
        sys.stdin.read()


def main(command):
    def late(*_):
        raise AssertionError("no answer within 30 s")

    signal.signal(signal.SIGALRM, late)
    failed = 0
    here = [sys.executable, os.path.abspath(__file__)]
    fakes = ["other-protocol", "garbage", "not-an-object", "half-a-line", "silence"]
    for test, how in [(test, None) for test in TESTS] + [(refuses, how) for how in fakes]:
        with tempfile.TemporaryDirectory() as folder:
            binary = TENURE
            if how:
                binary = os.path.join(folder, "fake")
                with open(binary, "w") as file:
                    file.write(f"#!/bin/sh\nexec {shlex.join([*here, '--fake', how])}\n")
                os.chmod(binary, 0o700)
            client = Client(command, folder, binary)
            try:
                test(client)
                print(f"ok      {test.__name__} {how or ''}".rstrip(), flush=True)
            except Exception as error:  # a client that ends at once, say
                failed += 1
                print(f"FAILED  {test.__name__} {how or ''}: {error!r}", flush=True)
            finally:
                client.process.kill()
                client.process.wait()
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fake"]:
        fake(sys.argv[2])
    elif len(sys.argv) < 2:
        sys.exit(__doc__)
    else:
        sys.exit(main(sys.argv[1:]))
