"""A model without a mind: a host asks it what to do next, and a play of the test answers.

A prompt names its play, `PLAY:name;`. Each request of a host carries the whole conversation, so the number of turns with calls since
the prompt is the number of the next move. A move is a function of this module (`shell`, `write`, …); a move that is a function itself is
given what the play's calls have answered so far.

Spoken are the four protocols of the hosts: Messages (Claude Code), Responses (Codex), chat completions (opencode), Gemini.
"""

import gzip
import itertools
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ASKED = "Please do what is planned."
NAMED = re.compile(ASKED + r" PLAY:([\w-]+);")
numbers = itertools.count(1)


def prompt(name):
    return f"{ASKED} PLAY:{name};"


def shell(line, **more):
    return {"do": "shell", "line": line, "more": more}


def write(path, text):
    return {"do": "write", "path": str(path), "text": text}


def replace(path, old, new):
    """A change of a file that is there: the host says by which tools."""
    return {"do": "replace", "path": str(path), "old": old, "new": new}


def lock(tool, **arguments):
    return {"do": "lock", "tool": "lock_" + tool, "arguments": arguments}


def helper(play):
    """A subagent with a play of its own."""
    return {"do": "helper", "play": play}


def raw(tool, **arguments):
    return {"do": "raw", "tool": tool, "arguments": arguments}


def say(text="that was all"):
    return {"do": "say", "text": text}


def after(gate, move):
    """Waits until the test opens a gate."""
    return {**move, "gate": gate}


class Model:
    def __init__(self):
        self.plays, self.gates = {}, {}
        self.requests = 0
        self.seen = {}  # of each play, by number of the move that is asked for: what the calls of the move before it answered
        self.change = threading.Condition()
        model = self

        class Door(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                send_json(self, {"object": "list", "data": [], "models": []})

            do_HEAD = do_GET

            def do_POST(self):
                try:
                    model.answer(self)
                except (BrokenPipeError, ConnectionResetError):
                    pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
        server.daemon_threads = True
        self.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()

    # For tests.

    def play(self, name, *moves):
        with self.change:
            self.plays[name] = [*moves, say()]
            self.seen[name] = {}
        return name

    def open(self, *gates):
        with self.change:
            for gate in gates:
                self.gates[gate] = True
            self.change.notify_all()

    def reached(self, name, move, within=60):
        """Waits until a play is at a move, so that all before it is done."""
        with self.change:
            return self.change.wait_for(lambda: any(at >= move for at in self.seen[name]), within)

    def shown(self, name, move):
        """What the model was shown of the call of a move."""
        with self.change:
            seen = self.seen[name].get(move + 1)
        return seen or ""

    # For hosts.

    def answer(self, door):
        body = json.loads(body_of(door) or b"{}")
        self.requests += 1
        path = door.path.split("?")[0]
        if path.endswith("count_tokens"):
            return send_json(door, {"input_tokens": 10})
        speech = next((speech for end, speech in SPEECHES.items() if path.endswith(end)), None)
        if speech is None:
            return send_json(door, {"error": {"message": "unknown"}}, 404)
        name, move, last, whole = None, 0, "", ""
        for kind, text in speech.turns(body):
            # Behind other words it is only quoted: a host has a model find titles, too.
            named = NAMED.search(text) if kind == "agent" else NAMED.match(text.lstrip(' \n"'))
            if named and kind in ("user", "agent"):
                name, move, last, whole = named[1], 0, "", ""
            elif kind == "calls":
                move, last = move + 1, ""
            elif kind == "result":
                last, whole = last + text + "\n", whole + text + "\n"
        tools = speech.tools(body)
        if name not in self.plays or not tools:
            return speech.send(door, body, "fine", [])
        with self.change:
            self.seen[name].setdefault(move, last)
            self.change.notify_all()
            moves = self.plays[name]
            todo = moves[min(move, len(moves) - 1)]
        if callable(todo):
            todo = todo(whole)
        if "gate" in todo:
            with self.change:
                self.change.wait_for(lambda: self.gates.get(todo["gate"]))
        if todo["do"] == "say":
            return speech.send(door, body, todo["text"], [])
        speech.send(door, body, None, speech.calls(todo, tools))


def body_of(door):
    length = door.headers.get("Content-Length")
    if length is not None:
        raw_bytes = door.rfile.read(int(length))
    else:
        raw_bytes = b""
        while size := int(door.rfile.readline().split(b";")[0] or b"0", 16):
            raw_bytes += door.rfile.read(size)
            door.rfile.readline()
        door.rfile.readline()
    return gzip.decompress(raw_bytes) if door.headers.get("Content-Encoding") == "gzip" else raw_bytes


def send_json(door, value, code=200):
    data = json.dumps(value).encode()
    door.send_response(code)
    door.send_header("Content-Type", "application/json")
    door.send_header("Content-Length", str(len(data)))
    door.end_headers()
    if door.command != "HEAD":
        door.wfile.write(data)


def send_stream(door, parts):
    """Each part is the name of an event, or None, and its data."""
    door.send_response(200)
    door.send_header("Content-Type", "text/event-stream")
    door.send_header("Connection", "close")
    door.end_headers()
    door.close_connection = True
    for name, data in parts:
        line = data if isinstance(data, str) else json.dumps(data)
        door.wfile.write(((f"event: {name}\n" if name else "") + f"data: {line}\n\n").encode())
    door.wfile.flush()


def plain(content):
    """The text in a content, however it is nested."""
    if isinstance(content, list):
        return "\n".join(map(plain, content))
    if isinstance(content, dict):
        keys = ("text", "content", "output", "encrypted_content")
        return plain(next((content[key] for key in keys if content.get(key)), ""))
    return content if isinstance(content, str) else ""


def new_id(kind):
    return f"{kind}_{time.time_ns():x}{next(numbers)}"


class Messages:
    @staticmethod
    def turns(body):
        for message in body.get("messages", []):
            content = message["content"]
            parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
            if message["role"] == "assistant":
                if any(part.get("type") == "tool_use" for part in parts):
                    yield "calls", ""
                continue
            for part in parts:
                if part.get("type") == "tool_result":
                    yield "result", plain(part.get("content"))
                else:
                    yield "user", plain(part)

    @staticmethod
    def tools(body):
        return [tool.get("name") or tool.get("type") for tool in body.get("tools", [])]

    @staticmethod
    def calls(todo, tools):
        do = todo["do"]
        if do == "raw":
            return [(todo["tool"], todo["arguments"])]
        if do == "shell":
            return [("Bash", {"command": todo["line"], "description": "a move", **todo["more"]})]
        if do == "write":
            return [("Write", {"file_path": todo["path"], "content": todo["text"]})]
        if do == "replace":  # a file has to be read before
            return [("Read", {"file_path": todo["path"]}),
                    ("Write", {"file_path": todo["path"], "content": todo["new"]})]
        if do == "lock":
            return [("mcp__tenure__" + todo["tool"], todo["arguments"])]
        tool = "Agent" if "Agent" in tools else "Task"
        return [(tool, {"description": "a helper", "prompt": prompt(todo["play"]), "subagent_type": "general-purpose"})]

    @staticmethod
    def send(door, body, text, calls):
        blocks = [{"type": "text", "text": text}] if text else []
        blocks += [{"type": "tool_use", "id": new_id("toolu"), "name": name, "input": given} for name, given in calls]
        reason = "tool_use" if calls else "end_turn"
        message = {"id": new_id("msg"), "type": "message", "role": "assistant", "model": body.get("model", "none"), "content": [],
                   "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
        if not body.get("stream"):
            return send_json(door, {**message, "content": blocks, "stop_reason": reason})
        parts = [{"type": "message_start", "message": message}]
        for index, block in enumerate(blocks):
            is_text = block["type"] == "text"
            empty = {**block, "text": ""} if is_text else {**block, "input": {}}
            delta = ({"type": "text_delta", "text": block["text"]} if is_text else
                     {"type": "input_json_delta", "partial_json": json.dumps(block["input"])})
            parts += [{"type": "content_block_start", "index": index, "content_block": empty},
                      {"type": "content_block_delta", "index": index, "delta": delta},
                      {"type": "content_block_stop", "index": index}]
        parts += [{"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 1}},
                  {"type": "message_stop"}]
        send_stream(door, [(part["type"], part) for part in parts])


class Responses:
    @staticmethod
    def turns(body):
        given = body.get("input", [])
        was_call = False
        for item in [{"role": "user", "content": given}] if isinstance(given, str) else given:
            kind = item.get("type", "message")
            is_call = kind.endswith("_call") and kind != "web_search_call"
            if is_call and not was_call:
                yield "calls", ""
            if kind.endswith("_call_output"):
                yield "result", plain(item.get("output"))
            elif kind == "agent_message":
                yield "agent", plain(item.get("content"))
            elif kind == "message" and item.get("role") == "user":
                yield "user", plain(item.get("content"))
            if kind != "reasoning":
                was_call = is_call

    @staticmethod
    def tools(body):
        """Names; those of a name space behind it and a point."""
        groups = [body.get("tools", [])]
        groups += [item.get("tools", []) for item in body.get("input", []) if isinstance(item, dict)]
        names = []
        for tool in itertools.chain(*groups):
            if tool.get("type") != "namespace":
                names.append(tool.get("name") or tool.get("type"))
                continue
            space = "" if tool["name"] == "functions" else tool["name"] + "."
            names += [space + inner["name"] for inner in tool.get("tools", [])]
        return names

    @staticmethod
    def calls(todo, tools):
        def function(name, given, space=None):
            call = {"type": "function_call", "name": name, "arguments": json.dumps(given)}
            return [{**call, "namespace": space} if space else call]

        def tool(name, given, text=None):
            """By code where the model writes code."""
            if "exec" in tools:
                code = f"text(await tools.{name}({json.dumps(text or given)}))"
                return [{"type": "custom_tool_call", "name": "exec", "input": code}]
            return [{"type": "custom_tool_call", "name": name, "input": text}] if text else function(name, given)

        do = todo["do"]
        if do == "raw":
            return function(todo["tool"], todo["arguments"])
        if do == "shell":
            return tool("exec_command", {"cmd": todo["line"], "yield_time_ms": 30000, **todo["more"]})
        if do in ("write", "replace"):
            marked = lambda mark, text: "".join(f"{mark}{line}\n" for line in text.splitlines())
            change = (f"*** Add File: {todo['path']}\n" + marked("+", todo["text"]) if do == "write" else
                      f"*** Update File: {todo['path']}\n@@\n" + marked("-", todo["old"]) + marked("+", todo["new"]))
            return tool("apply_patch", None, f"*** Begin Patch\n{change}*** End Patch\n")
        if do == "lock":
            if "exec" in tools:
                return tool("mcp__tenure__" + todo["tool"], todo["arguments"])
            listed = next((name for name in tools if name.endswith(todo["tool"])), None)
            if listed and "." not in listed:
                return function(listed, todo["arguments"])
            # What stands behind the search for tools can be called all the same.
            return function(todo["tool"], todo["arguments"], "mcp__tenure")
        asked = {"message": prompt(todo["play"])}
        if "collaboration.spawn_agent" in tools:
            return function("spawn_agent", {**asked, "task_name": todo["play"], "fork_turns": "none"}, "collaboration")
        return function("spawn_agent", asked, "multi_agent_v1")

    @staticmethod
    def send(door, body, text, calls):
        items = [{**call, "id": new_id("fc"), "call_id": new_id("call")} for call in calls]
        if text:
            items.append({"type": "message", "role": "assistant", "id": new_id("msg"),
                          "content": [{"type": "output_text", "text": text, "annotations": []}]})
        response = {"id": new_id("resp"), "object": "response", "status": "in_progress", "output": []}
        usage = {"input_tokens": 1, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 1,
                 "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 2}
        parts = [{"type": "response.created", "response": response}]
        for index, item in enumerate(items):
            parts += [{"type": f"response.output_item.{step}", "output_index": index, "item": item} for step in ("added", "done")]
        done = {**response, "status": "completed", "output": items, "usage": usage}
        parts.append({"type": "response.completed", "response": done})
        send_stream(door, [(part["type"], part) for part in parts])


class Chat:
    @staticmethod
    def turns(body):
        for message in body.get("messages", []):
            if message.get("role") == "assistant" and message.get("tool_calls"):
                yield "calls", ""
            elif message.get("role") in ("tool", "user"):
                kind = "result" if message["role"] == "tool" else "user"
                yield kind, plain(message.get("content"))

    @staticmethod
    def tools(body):
        return [tool.get("function", {}).get("name", "") for tool in body.get("tools", [])]

    @staticmethod
    def calls(todo, tools):
        if todo["do"] == "raw":
            return [(todo["tool"], todo["arguments"])]
        if todo["do"] == "shell":
            name = next(name for name in tools if name in ("bash", "run_shell_command"))
            return [(name, {"command": todo["line"], "description": "a move"})]
        name = next(name for name in tools if name.endswith(todo["tool"]))
        return [(name, todo["arguments"])]

    @staticmethod
    def send(door, body, text, calls):
        message = {"role": "assistant", "content": text or ""}
        if calls:
            message["tool_calls"] = [
                {"index": index, "id": new_id("call"), "type": "function",
                 "function": {"name": name, "arguments": json.dumps(given)}}
                for index, (name, given) in enumerate(calls)]
        reason = "tool_calls" if calls else "stop"
        head = {"id": new_id("chat"), "created": int(time.time()), "model": body.get("model", "none")}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            return send_json(door, {**head, "object": "chat.completion", "choices": [choice], "usage": usage})
        head["object"] = "chat.completion.chunk"
        send_stream(door, [(None, {**head, "choices": [{"index": 0, "delta": message, "finish_reason": None}]}),
                           (None, {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage}),
                           (None, "[DONE]")])


class Gemini:
    @staticmethod
    def turns(body):
        for content in body.get("contents", []):
            parts = content.get("parts", [])
            if content.get("role") == "model":
                if any("functionCall" in part for part in parts):
                    yield "calls", ""
                continue
            for part in parts:
                answered = part.get("functionResponse")
                yield ("result", json.dumps(answered.get("response"))) if answered else ("user", part.get("text", ""))

    @staticmethod
    def tools(body):
        return [one["name"] for tool in body.get("tools", []) for one in tool.get("functionDeclarations", [])]

    calls = Chat.calls

    @staticmethod
    def send(door, body, text, calls):
        parts = [{"text": text}] if text else []
        parts += [{"functionCall": {"name": name, "args": given}} for name, given in calls]
        answer = {"candidates": [{"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}],
                  "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}}
        if "stream" in door.path:
            send_stream(door, [(None, answer)])
        else:
            send_json(door, answer)


SPEECHES = {"/messages": Messages, "/responses": Responses, "/chat/completions": Chat,
            ":streamGenerateContent": Gemini, ":generateContent": Gemini}
