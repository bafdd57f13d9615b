"""Puts the package under the check of examples/serve/conformance.py: one command a line, one answer a line."""

import os
import sys

import tenure

holds: list[tenure.Hold] = []


def fork() -> str:
    """What a child sees of its parent's hold, and that it can have locks of its own."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            holds[-1].release()
            holds[-1].verify()
        except tenure.Inherited:
            tenure.lock("of-the-child", timeout=0).acquire().release()
            code = 0
        finally:
            os._exit(code)
    return "inherited" if os.waitpid(child, 0)[1] == 0 else "error CHILD"


def carry_out(words: list[str]) -> str:
    match words:
        case ["lock", name, wait_ms]:
            timeout = None if wait_ms == "forever" else int(wait_ms) / 1000
            holds.append(tenure.lock(name, timeout=timeout).acquire())
            return f"held {holds[-1].token}"
        case ["unlock"]:
            holds.pop().release()
            return "released"
        case ["verify"]:
            holds[-1].verify()
            return "ok"
        case ["fork"]:
            return fork()
    return "error COMMAND"


def main() -> None:
    for line in sys.stdin:
        try:
            answer = carry_out(line.split())
        except tenure.Held as error:
            answer = f"refused {error.code} {error.holder.pid if error.holder else None}"
        except tenure.Lost:
            answer = "lost"
        except tenure.TenureError as error:
            answer = f"error {error.code}"
        except ValueError:  # what cannot be a message
            answer = "error VALUE"
        print(answer, flush=True)


if __name__ == "__main__":
    main()
