"""Puts a client of this folder under the check of conformance.py: reads one command a line, and answers with one line.

    python3 under_test.py [tenure_client|one_thread]
"""
import importlib
import os
import sys

tenure_client = importlib.import_module((sys.argv[1:] or ["tenure_client"])[0])

holds = []


def carry_out(words):
    match words:
        case ["lock", name, wait_ms]:
            timeout = None if wait_ms == "forever" else int(wait_ms) / 1000
            holds.append(tenure_client.lock(name, timeout=timeout))
            return f"held {holds[-1].token}"
        case ["unlock"]:
            holds.pop().release()
            return "released"
        case ["verify"]:
            holds[-1].verify()
            return "ok"
        case ["fork"]:
            # What the child sees of its parent's hold, and that it can have locks of its own.
            sys.stdout.flush()
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    holds[-1].release()
                    holds[-1].verify()
                except tenure_client.Inherited:
                    tenure_client.lock("of-the-child", timeout=0).release()
                    code = 0
                finally:
                    os._exit(code)
            return "inherited" if os.waitpid(child, 0)[1] == 0 else "error CHILD"
    return "error COMMAND"


for line in sys.stdin:
    try:
        answer = carry_out(line.split())
    except tenure_client.Held as error:
        answer = f"refused {error.code} {error.holder.get('pid')}"
    except tenure_client.Lost:
        answer = "lost"
    except tenure_client.TenureError as error:
        answer = f"error {error.code}"
    except ValueError:  # what cannot be a message
        answer = "error VALUE"
    print(answer, flush=True)
