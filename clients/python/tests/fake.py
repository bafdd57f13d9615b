"""A serve that does what the first word says, for the tests of rules that a true one rarely shows."""

import json
import os
import signal
import sys
import time
from typing import Any

HOW, FOLDER = sys.argv[1:]


def say(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def refuse(number: int, code: str, message: str) -> None:
    say(
        id=number,
        error={"code": -32000, "message": message, "data": {"code": code, "message": message, "retryable": False}},
    )


def grant(number: int, params: dict[str, Any], good_for_ms: int | None = None) -> None:
    locks = [
        {"name": lock["name"], "token": 7, "slot": None, "member": None, "group": False} for lock in params["locks"]
    ]
    result = {"hold": 1, "request_id": params["request_id"], "locks": locks, "good_for_ms": good_for_ms, "env": {}}
    say(id=number, result=result)


def note(word: str) -> None:
    with open(os.path.join(FOLDER, "said"), "a") as file:
        file.write(word + "\n")


def main() -> None:
    waiting: tuple[int, dict[str, Any]] = (0, {})
    for line in sys.stdin:
        request = json.loads(line)
        number, method, params = request["id"], request["method"], request["params"]
        note(method)
        match HOW, method:
            case "garbage", _:
                print("hello", flush=True)
            case "not-an-object", _:
                print("[1]", flush=True)
            case "no-answer-at-all", _:
                say(id=number)
            case "half-a-line", _:
                sys.stdout.write('{"jsonrpc"')
                sys.exit()
            case "silence", _:
                time.sleep(60)
            case "ends", _:
                sys.exit(1)
            case "other-protocol", _:
                refuse(number, "PROTOCOL_UNKNOWN", "the client speaks protocol 1, and tenure 9.0 speaks protocol 2")
            case _, "hello":
                say(id=number, result={"protocol": 1, "version": "0", "pid": os.getpid(), "parent": {}})
            case "ends-at-each-acquire", "acquire":
                sys.exit(1)
            case "ends-at-each-acquire", "adopt":
                refuse(number, "LOCK_LOST", "gone")
            case "silent-acquire", "acquire":
                pass
            case "silent-acquire", "adopt":
                refuse(number, "LOCK_LOST", "gone")
            case "crossing", "acquire":
                waiting = (number, params)
                time.sleep(0.1)  # until the client waits
                os.kill(os.getppid(), signal.SIGINT)
            case "crossing", "abandon":
                grant(*waiting)
                say(id=number, result={"abandoned": False})
            case "lease", "acquire":
                grant(number, params, good_for_ms=300)
            case "renewed", "acquire":
                grant(number, params, good_for_ms=300)
                say(method="renewed", params={"hold": 1, "good_for_ms": 600_000})
            case "loses", "acquire":
                grant(number, params)
                say(method="lost", params={"hold": 1, "reason": "gone"})
            case "loses", "release":
                refuse(number, "LOCK_LOST", "a was lost while the work went on")
            case "asks-to-stop", "acquire":
                grant(number, params)
                say(method="stop_requested", params={"hold": 1, "by": "another"})
            case "store-is-gone", "acquire":
                refuse(number, "STORE_UNAVAILABLE", "/locks cannot be read")
            case "superseded", "acquire":
                refuse(number, "SUPERSEDED", "a newer run of pr-7 has come")
            case _, "acquire":
                grant(number, params)
            case _, "verify":
                say(id=number, result={"hold": 1, "good_for_ms": None})
            case _, "release":
                say(id=number, result={"released": True})
            case _:
                refuse(number, "BAD_ARGUMENTS", method)


main()
