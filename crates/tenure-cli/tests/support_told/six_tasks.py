"""Six tasks of asyncio hold a lock each, by `tenure serve`, and write until they are told that it is lost.

Arguments: a URL, a ttl in milliseconds, a file. Each line of that file is an event: its kind (HELD, WROTE, TOLD), the
number of the task, and the time by CLOCK_MONOTONIC in nanoseconds.
"""
import asyncio, json, sys, time


async def main(url, ttl_ms, file):
    pipe, numbers, answers, lost = asyncio.subprocess.PIPE, iter(range(1, 1000)), {}, {}
    serve = await asyncio.create_subprocess_exec("tenure", "serve", stdin=pipe, stdout=pipe)

    def note(kind, task):
        at = time.monotonic_ns()
        print(kind, task, at, file=file, flush=True)

    def call(method, **params):
        number = next(numbers)
        answers[number] = asyncio.get_running_loop().create_future()
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        serve.stdin.write(json.dumps(message).encode() + b"\n")
        return answers[number]

    async def read():
        while line := await serve.stdout.readline():
            message = json.loads(line)
            if message.get("method") == "lost":
                lost[message["params"]["hold"]].set()
            elif message.get("id") in answers:
                answers.pop(message["id"]).set_result(message)

    async def work(task):
        lock = {"name": f"lock-{task}"}
        answer = await call("acquire", locks=[lock], ttl_ms=ttl_ms, store=url, wait_ms=10_000)
        is_lost = lost[answer["result"]["hold"]] = asyncio.Event()
        note("HELD", task)
        while not is_lost.is_set():
            note("WROTE", task)
            await asyncio.sleep(0.01)
        note("TOLD", task)
        # As a program does at the end of its work. Nobody waits for the answer: the servers are silent.
        call("release", hold=answer["result"]["hold"])

    reading = asyncio.create_task(read())
    await call("hello", protocol=1)
    await asyncio.gather(*map(work, range(6)))
    reading.cancel()
    serve.kill()
    await serve.wait()


if __name__ == "__main__":
    with open(sys.argv[3], "w") as file:
        asyncio.run(main(sys.argv[1], int(sys.argv[2]), file))
