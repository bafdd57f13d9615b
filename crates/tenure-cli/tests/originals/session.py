"""The session lock as its original program takes it: look whether a file is there, judge it by the
time in it, write over it. Nothing in this is atomic.

session.py FILE RUN [GATE]: exit 0 "acquired", 1 "held". Says
"ready" and begins with the first line of its input, or the end of it. With a GATE it says "looked" once it has
found the lock free, and writes only when the file GATE is there.
"""

import datetime
import json
import os
import sys
import time

STALE_SECONDS = 600

path, run = sys.argv[1:3]
gate = sys.argv[3] if len(sys.argv) > 3 else None
print("ready", flush=True)
sys.stdin.readline()
now = datetime.datetime.now(datetime.timezone.utc)
if os.path.exists(path):
    try:
        with open(path) as file:
            lock = json.load(file)
        at = datetime.datetime.fromisoformat(lock["acquiredAt"].replace("Z", "+00:00"))
        if (now - at).total_seconds() < STALE_SECONDS:
            print("held")
            sys.exit(1)
    except (ValueError, KeyError, OSError):
        pass  # What cannot be read counts as stale.
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
if gate:
    print("looked", flush=True)
    while not os.path.exists(gate):
        time.sleep(0.005)
now = datetime.datetime.now(datetime.timezone.utc)
lock = {
    "issueNumber": int(os.path.basename(path).split(".")[0]),
    "runId": run,
    "acquiredAt": now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{now.microsecond // 1000:03}Z",
    "pid": os.getpid(),
}
with open(path, "w") as file:
    file.write(json.dumps(lock, indent=2) + "\n")
print("acquired")
