"""The resume lock as its original program takes it: create the file exclusively, write into it; if
it is there already, read it, and if its process is dead, unlink it by its path and begin again.

resume.py FILE PID [GATE]: exit 0 "acquired", 1 "held", 2 "unreadable". Says
"ready" and begins with the first line of its input, or the end of it. With a GATE it says "looked"
once it has judged a lock to be dead, and unlinks only when the file GATE is there.
"""

import datetime
import json
import os
import socket
import sys
import time

path, pid = sys.argv[1], int(sys.argv[2])
gate = sys.argv[3] if len(sys.argv) > 3 else None
print("ready", flush=True)
sys.stdin.readline()


def runs(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


for _ in range(10):
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        try:
            with open(path) as file:
                lock = json.load(file)
            dead = not runs(lock["process_id"])
        except FileNotFoundError:
            continue
        except (ValueError, KeyError):
            print("unreadable")
            sys.exit(2)
        if not dead:
            print("held")
            sys.exit(1)
        if gate:
            print("looked", flush=True)
            while not os.path.exists(gate):
                time.sleep(0.005)
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        continue
    lock = {
        "job_id": os.path.basename(path).rsplit(".", 1)[0],
        "process_id": pid,
        "hostname": socket.gethostname(),
        "acquired_at": datetime.datetime.now(datetime.timezone.utc).isoformat(),
    }
    os.write(file, json.dumps(lock, indent=2).encode())
    os.close(file)
    print("acquired")
    sys.exit(0)
print("held")
sys.exit(1)
