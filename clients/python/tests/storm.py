"""Kills and stops programs and their serves while they hold locks, and looks for a second holder.

    python storm.py short|long

Each program takes one of three locks again and again, by threads or by tasks. While it holds, it has a witness file
that it made with O_EXCL. A file of a process that lives is a second holder. Programs fork, with hooks and without. Exit
code 0: no second holder, nothing stuck, tokens in the order of the holds.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import ctypes
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tenure

#: Seconds, and programs at once.
PRESETS = {"short": (5.0, 32), "long": (120.0, 32)}
LOCKS = ["one", "two", "three"]

# A process that is killed closes its files before it is a zombie; this flag says that it runs no more code.
PF_EXITING = 4


def birth(pid: int) -> str | None:
    """When a process that lives was started."""
    try:
        state, *facts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" or int(facts[5]) & PF_EXITING else facts[18]


class Program:
    """One of the programs that contend."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.chance = random.Random()
        self.fork_without_hooks = ctypes.PyDLL(None).fork

    def say(self, word: str, what: object = "") -> None:
        with (self.folder / "log").open("a") as file:
            file.write(f"{word} {os.getpid()} {what}\n")

    def lock(self) -> tenure.Lock:
        timeout = self.chance.choice([0, 0.2, 30, None])
        return tenure.lock(self.chance.choice(LOCKS), timeout=timeout, dir=self.folder / "locks")

    def is_over(self) -> bool:
        return (self.folder / "stop").exists()

    def begin(self, hold: tenure.Hold) -> Path:
        """Marks the beginning of a hold. A program that was killed may have left its mark."""
        path = self.folder / f"{hold.name}.witness"
        while True:
            try:
                mark = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
                break
            except FileExistsError:
                pid, _, born = path.read_text().partition(" ")
                if pid and birth(int(pid)) == born:
                    time.sleep(0.5)
                    if birth(int(pid)) == born:
                        self.say("DOUBLE", f"{hold.name} beside {pid}")
                path.unlink()
        os.write(mark, f"{os.getpid()} {birth(os.getpid())}".encode())
        os.close(mark)
        with (self.folder / f"{hold.name}.tokens").open("a") as tokens:
            tokens.write(f"{hold.token}\n")
        return path

    def fork_now_and_then(self, hold: tenure.Hold) -> None:
        if self.chance.random() < 0.02 and self.fork_without_hooks() == 0:
            time.sleep(1)  # this child keeps the pipes of its parent's serve open
            os._exit(0)
        if self.chance.random() < 0.02:
            child = os.fork()
            if child == 0:
                with contextlib.suppress(BaseException):
                    hold.release()
                os._exit(0)
            os.waitpid(child, 0)

    def once(self) -> None:
        with self.lock() as hold:
            mark = self.begin(hold)
            time.sleep(self.chance.choice([0, 0.001, 0.02]))
            self.fork_now_and_then(hold)
            if self.chance.random() < 0.5:
                hold.verify()
            mark.unlink()
        self.say("held")

    async def once_async(self) -> None:
        lock = self.lock()
        if self.chance.random() < 0.2:  # a wait that is given up
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.chance.choice([0.001, 0.02])):
                    await (await lock.acquire_async()).release_async()
            return
        async with lock as hold:
            mark = self.begin(hold)
            await asyncio.sleep(self.chance.choice([0, 0.001, 0.02]))
            if self.chance.random() < 0.5:
                await hold.verify_async()
            mark.unlink()
        self.say("held")

    def run(self) -> None:
        while not self.is_over():
            try:
                if self.chance.random() < 0.7:
                    self.once()
                else:
                    asyncio.run(self.once_async())
            except tenure.Held:
                self.say("refused")
            except (tenure.Lost, tenure.TenureError) as error:
                self.say("ERROR", repr(error))
        self.say("done")


def serves_of(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def send(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def storm(folder: Path, seconds: float, programs: int) -> dict[str, object]:
    """Lets it blow, and gives the counts."""

    def begin() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, __file__, "program", str(folder)])

    fleet, chance, done = [begin() for _ in range(programs)], random.Random(), collections.Counter[str]()
    # On a machine with much to do, the first of them may take long.
    end = time.monotonic() + 60
    while "held" not in ((folder / "log").read_text() if (folder / "log").exists() else "") and time.monotonic() < end:
        time.sleep(0.05)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(chance.uniform(0.01, 0.1))
        victim = chance.choice(fleet)
        what = chance.choice(["serve", "serve", "program", "both", "stop serve", "stop program"])
        done[what] += 1
        pids = serves_of(victim.pid) if what in ("serve", "both", "stop serve") else []
        pids += [victim.pid] if what in ("program", "both", "stop program") else []
        if what.startswith("stop"):
            send(pids, signal.SIGSTOP)
            time.sleep(chance.choice([0.001, 0.05, 0.3]))
            send(pids, signal.SIGCONT)
        else:
            send(pids, signal.SIGKILL)
        fleet = [process if process.poll() is None else begin() for process in fleet]
    (folder / "stop").touch()
    stuck, end = 0, time.monotonic() + 60
    for process in fleet:
        try:
            process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            stuck += 1
            process.kill()
            process.wait()
    log = (folder / "log").read_text().splitlines()
    said = collections.Counter(line.split()[0] for line in log)
    disorder = 0
    for name in LOCKS:
        path = folder / f"{name}.tokens"
        tokens = [int(line) for line in path.read_text().split()] if path.exists() else []
        disorder += sum(before >= after for before, after in itertools.pairwise(tokens))
        with contextlib.suppress(tenure.Held):
            tenure.lock(name, timeout=5, dir=folder / "locks").acquire().release()
            continue
        stuck += 1
    faults = [line for line in log if line.split()[0].isupper()]
    return {"done": dict(done), "said": dict(said), "disorder": disorder, "stuck": stuck, "faults": faults}


def main(words: list[str]) -> int:
    if words[0] == "program":
        Program(Path(words[1])).run()
        return 0
    with tempfile.TemporaryDirectory(prefix="tenure-storm-") as folder:
        counts = storm(Path(folder), *PRESETS[words[0]])
    print(json.dumps(counts))
    return 1 if counts["stuck"] or counts["disorder"] or counts["faults"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
