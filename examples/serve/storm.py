"""Tries `tenure serve` to breaking point: programs, their serves and both are killed and stopped while they hold.

    python3 storm.py [SECONDS [PROGRAMS]]

Each program (a process of its own, with tenure_client.py) takes one of three locks again and again. While it holds, it
makes a witness file that must not be there yet, and writes its fencing token to the end of a list. A witness file of a
process that lives is a second holder. Meanwhile this process kills programs, serves and both, stops and continues
them; programs fork children that keep the pipes open; others send garbage and half lines to serves of their own.

Prints counts. Exit code 0: no second holder, nothing stuck, and the tokens rise in the order of the holds. Needs Linux,
Python 3.11 and tenure: TENURE_BIN, else `tenure` on the PATH.
"""
import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

TENURE = os.environ.get("TENURE_BIN", "tenure")
LOCKS = ["one", "two", "three"]


def started(pid):
    """When a process that lives was started; None if it does not.

    A process that is killed closes its files before it becomes a zombie. It runs no more code by then, and its serve
    has seen the end of the pipe: PF_EXITING (4) tells.
    """
    try:
        with open(f"/proc/{pid}/stat") as file:
            words = file.read().rpartition(")")[2].split()
        return None if words[0] in "ZX" or int(words[6]) & 4 else words[19]
    except (OSError, IndexError):
        return None


def tell(folder, kind, what=""):
    with open(os.path.join(folder, "log"), "a") as file:
        file.write(f"{kind} {os.getpid()} {what}\n")


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


def program(folder):
    import tenure_client as client

    chance, fork = random.Random(), ctypes.PyDLL(None).fork
    while not os.path.exists(os.path.join(folder, "stop")):
        name = chance.choice(LOCKS)
        try:
            hold = client.lock(name, timeout=chance.choice([0, 0.2, 30]), dir=os.path.join(folder, "locks"))
        except client.Held:
            tell(folder, "refused")
            continue
        except client.TenureError as error:
            tell(folder, "ERROR", f"{error.code} {error}")
            continue
        path = witness(folder, name, hold.token)
        try:
            time.sleep(chance.choice([0, 0.001, 0.02]))
            if chance.random() < 0.02 and fork() == 0:
                # No hook has run: this child keeps the pipes of its parent's serve open.
                time.sleep(1)
                os._exit(0)
            if chance.random() < 0.02:
                child = os.fork()
                if child == 0:
                    hold.release()
                    os._exit(0)
                os.waitpid(child, 0)
            if chance.random() < 0.5:
                hold.verify()
            os.unlink(path)
            hold.release()
            tell(folder, "held")
        except client.Lost as error:
            tell(folder, "LOST", f"{name}: {error}")
    tell(folder, "done")


def hostile(folder):
    """A program whose serve hears what is no message. Its hold stays its own until it ends."""
    chance = random.Random()
    while not os.path.exists(os.path.join(folder, "stop")):
        serve = subprocess.Popen(
            [TENURE, "serve", "--dir", os.path.join(folder, "locks")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )
        say = [
            {"jsonrpc": "2.0", "id": 1, "method": "hello", "params": {"protocol": 1}},
            {"jsonrpc": "2.0", "id": 2, "method": "acquire", "params": {"locks": [{"name": "four"}], "wait_ms": 0}},
        ]
        lines = b"".join(json.dumps(line).encode() + b"\n" for line in say)
        end = chance.choice([b"garbage\n", b'{"jsonrpc":', b"[1]\n", b"x" * (1 << 20), b"\0\xff\n", b""])
        try:
            serve.stdin.write(lines + end)
            serve.stdin.flush()
            time.sleep(chance.choice([0, 0.01, 0.1]))
            serve.stdin.close()
        except OSError:
            pass
        serve.stdout.read()
        serve.wait(30)
        tell(folder, "hostile")
        # A hold that garbage has left is this process's, so another one goes on.
        os.execv(sys.executable, [sys.executable, *sys.argv]) if chance.random() < 0.1 else None


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
    folder = tempfile.mkdtemp(prefix="serve-storm-")
    begin = lambda kind: subprocess.Popen([sys.executable, __file__, kind, folder])
    kinds = ["program"] * count + ["hostile"] * max(1, count // 8)
    fleet = [(kind, begin(kind)) for kind in kinds]
    chance, done, end = random.Random(), {}, time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(chance.uniform(0.01, 0.1))
        index = chance.randrange(count)
        kind, victim = fleet[index]
        serves = children(victim.pid)
        what = chance.choice(["serve", "serve", "program", "both", "stop serve", "stop program"])
        done[what] = done.get(what, 0) + 1
        if what in ("serve", "both"):
            for pid in serves:
                send(pid, signal.SIGKILL)
        if what in ("program", "both"):
            victim.kill()
        if what.startswith("stop"):
            stopped = serves if what == "stop serve" else [victim.pid]
            for pid in stopped:
                send(pid, signal.SIGSTOP)
            time.sleep(chance.choice([0.001, 0.05, 0.3]))
            for pid in stopped:
                send(pid, signal.SIGCONT)
        for index, (kind, process) in enumerate(fleet):
            if process.poll() is not None:
                fleet[index] = (kind, begin(kind))
    open(os.path.join(folder, "stop"), "w").close()
    stuck, end = 0, time.monotonic() + 90
    for kind, process in fleet:
        try:
            process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            stuck += 1
            print("stuck:", kind, process.pid, file=sys.stderr)
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
    if sys.argv[1:2] in (["program"], ["hostile"]):
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        {"program": program, "hostile": hostile}[sys.argv[1]](sys.argv[2])
    else:
        words = [int(word) for word in sys.argv[1:]]
        main(*(words + [10, 8][len(words):]))
