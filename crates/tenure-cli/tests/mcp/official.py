"""Speaks with `tenure mcp` by the official client of the Model Context Protocol (PyPI: mcp), in one era of the protocol.

    official.py MODE    legacy: with the initialize handshake; 2026-07-28: without; auto: as the client finds out

The client holds every structured result to the schema that the tool names. TENURE_BIN is tenure; the locks are in
TENURE_DIR. Exit code 0: all was as it should be.
"""
import asyncio
import os
import subprocess
import sys

from mcp import Client, StdioServerParameters

TENURE = os.environ["TENURE_BIN"]
ENV = {name: os.environ[name] for name in ("TENURE_DIR", "HOME", "PATH")}


def server(*words):
    return StdioServerParameters(command=TENURE, args=["mcp", *words], env=ENV)


def same(found, expected, what):
    if found != expected:
        raise AssertionError(f"{what}: {found!r} and not {expected!r}")


async def call(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    same(result.is_error, False, f"{tool} {arguments}: {result.content}")
    assert result.content[0].text, "a text for clients that know no structure"
    return result.structured_content


def standing(name):
    return subprocess.run([TENURE, "check", "-q", name], capture_output=True).returncode


async def conversation(mode):
    async with Client(server(), mode=mode) as client:
        expected = {"legacy": "2025-11-25"}.get(mode, "2026-07-28")
        same(client.protocol_version, expected, "the era")
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        same(sorted(listed), [f"lock_{verb}" for verb in ("acquire", "cancel", "check", "list", "release", "wait")], "tools")
        for name, tool in listed.items():
            hints = tool.annotations
            same(hints.open_world_hint, False, f"{name} is closed")
            same(hints.read_only_hint, name in ("lock_check", "lock_list", "lock_wait"), f"{name} only reads")
            same(hints.destructive_hint, name == "lock_cancel", f"{name} destroys")
            assert tool.description and tool.output_schema, name

        granted = await call(client, "lock_acquire", name="deploy", why="release 4.2")
        same(len(granted["handle"].removeprefix("mcp_")), 32, "128 bits")
        assert f"PID {os.getpid()}" in granted["text"], "the hold is this program's"
        seen = await call(client, "lock_check", name="deploy")
        same((seen["standing"], seen["mine"], seen["handle"]), ("held", True, granted["handle"]), "check")
        assert "release 4.2" in seen["text"], seen
        assert "deploy is held" in (await call(client, "lock_list"))["text"], "list"

        told = []

        async def progress(done, total, message):
            told.append((done, message))

        waited = await client.call_tool("lock_acquire", {"name": "deploy", "wait_ms": 5600}, progress_callback=progress)
        same(waited.is_error, False, "a lock that is held is a result")
        error = waited.structured_content
        same(error["code"], "LOCK_HELD", "held")
        same(len(told), 1, f"told after five seconds: {told}")
        assert "waiting for deploy, place 1 in line, held by PID" in told[0][1], told
        ticket = error["ticket"]

        # While the lock is given back, the call that comes back to its place waits.
        back = asyncio.create_task(call(client, "lock_acquire", name="deploy", wait_ms=20000, ticket=ticket))
        await asyncio.sleep(0.3)
        same((await call(client, "lock_release", handle=granted["handle"]))["name"], "deploy", "release")
        again = await back
        assert again["token"] > granted["token"], "tokens rise"
        same((await call(client, "lock_release", handle=granted["handle"])).get("name"), None, "released twice")

        # A call that the client gives up leaves nothing behind.
        try:
            await client.call_tool("lock_acquire", {"name": "deploy", "wait_ms": 30000}, read_timeout_seconds=0.4)
            raise AssertionError("the client did not give up")
        except Exception as error:  # The client has an exception of its own for each era.
            assert "imed out" in str(error), error
        for _ in range(200):
            queue = (await call(client, "lock_check", name="deploy"))["waiting"]
            if not queue:
                break
            await asyncio.sleep(0.02)
        same(queue, 0, "the wait has ended")

        same((await call(client, "lock_cancel", name="deploy"))["status"], "asked", "its holder is asked")
        wrong = await client.call_tool("lock_acquire", {"name": "../deploy"})
        same((wrong.is_error, wrong.structured_content["code"]), (True, "BAD_ARGUMENTS"), "no name")
        kept = again["handle"]

    # The server has gone, and the hold is this program's. The next server knows it.
    same(standing("deploy"), 0, "this program still has it")
    async with Client(server(), mode=mode) as client:
        same((await call(client, "lock_check", name="deploy"))["handle"], kept, "the same hold")
        same((await call(client, "lock_release", handle=kept))["name"], "deploy", "released by the next server")
        same((await call(client, "lock_wait", name="deploy", wait_ms=1000))["standing"], "free", "wait")


asyncio.run(conversation(sys.argv[1]))
print("ok", sys.argv[1])
