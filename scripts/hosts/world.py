"""Where a host is tried: network, files and processes of its own, a home, a repository, and what the hosts differ in.

Nothing in there reaches a network: 127.0.0.1 is all there is. All that was started ends with the first process.
"""

import ctypes
import fcntl
import json
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

from model import Model, prompt

PLACE = Path("/home/try")  # what differs from machine to machine stands in no record
HOSTS_AT, CHECKOUT, BIN = Path("/home/hosts"), Path("/home/checkout"), Path("/home/bin")
PLACES = [PLACE, HOSTS_AT, CHECKOUT]
RULES = """\
dir = "locks"
[[agent.command]]
match = ["make slow", "make quick"]
lock = "build"
wait = "40s"
[[agent.command]]
match = ["make hasty"]
lock = "build"
wait = "2s"
[[agent.command]]
match = ["make refused"]
lock = "refused"
how = "refuse"
[[agent.command]]
match = ["make closed"]
lock = "closed"
on_error = "closed"
[[agent.path]]
match = ["leased/**"]
"""
MAKEFILE = """\
slow:
\t@echo "$$TENURE_AS" > at-work; n=0; while [ ! -e go ] && [ $$n -lt 600 ]; do sleep 0.1; n=$$((n+1)); done; echo slow is done
quick hasty refused closed:
\t@echo $@ is done
"""


def enter(folders, tenure):
    """Starts this program again in name spaces of its own. `folders` are then called as in `PLACES`."""
    if "TRY_HOSTS" not in os.environ:
        os.environ["TRY_HOSTS"] = "within"
        words = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
        words += [] if os.geteuid() == 0 else ["--map-root-user"]
        os.execvp("unshare", [*words, sys.executable, *sys.argv])
    # The first process of a PID name space has to bury all others.
    work = os.fork()
    while work:
        ended, status = os.wait()
        if ended == work:
            os._exit(os.waitstatus_to_exitcode(status) & 255)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP
    program = Path(tenure).read_bytes()
    # What is opened now can still be reached when other files lie above its name.
    opened = [os.open(folder, os.O_PATH) for folder in folders]
    for empty in ("/home", "/tmp"):
        mount("tmpfs", empty, "tmpfs", 0)
    for folder, place in zip(opened, PLACES):
        place.mkdir()
        mount(f"/proc/self/fd/{folder}", place, "", 4096)  # MS_BIND
        os.close(folder)
    BIN.mkdir()
    (BIN / "tenure").write_bytes(program)
    (BIN / "tenure").chmod(0o755)
    for host in HOSTS.values():
        link = BIN / host.word
        if (HOSTS_AT / host.program).exists() and not link.is_symlink():
            link.symlink_to(HOSTS_AT / host.program)
    os.chdir("/")


def mount(source, target, kind, flags):
    words = [os.fsencode(word) for word in (source, str(target), kind)]
    if ctypes.CDLL(None, use_errno=True).mount(*words, ctypes.c_ulong(flags), None):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), target)


class World:
    def __init__(self, host, name, rules=RULES):
        self.host, self.top = host, PLACE / name
        self.home, self.repo = self.top / "home", self.top / "repo"
        self.repo.mkdir(parents=True)
        (self.home / "tmp").mkdir(parents=True)
        self.model, self.begun = Model(), []
        self.env = {"HOME": str(self.home), "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin", "TERM": "xterm",
                    "TMPDIR": str(self.home / "tmp"), "SHELL": "/bin/bash", **host.env(self)}
        (self.repo / "tenure.toml").write_text(rules)
        (self.repo / "Makefile").write_text(MAKEFILE)
        self.line("git init -q . && git config user.email a@b && git config user.name a && git add . && git commit -qm first")
        host.furnish(self)

    def line(self, line, cwd=None, env=None):
        return subprocess.run(line, shell=True, cwd=cwd or self.repo, env=env or self.env, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)

    def tenure(self, line, cwd=None):
        return self.line("tenure " + line, cwd)

    def status(self, cwd=None):
        return self.tenure(f"agent status -v {self.host.word}", cwd)

    def install(self, reach="--project"):
        done = self.tenure(f"agent install {self.host.word} {reach}")
        assert done.returncode == 0, done.stdout
        self.host.trust(self)
        return self

    def lock(self, name):
        """What `check` says of a lock."""
        said = json.loads(self.tenure(f"check {name} --output json").stdout)
        return said.get("data") or (said.get("error") or {}).get("context") or {}

    def is_free(self, name):
        return self.lock(name).get("available") is True

    def holder(self, name):
        return ((self.lock(name).get("holder") or {}).get("agent") or {}).get("key", "")

    def held(self):
        """The locks that are held, each with its agent."""
        said = json.loads(self.tenure("list --output json").stdout).get("data") or {}
        return {lock["name"]: (lock["holder"].get("agent") or {}).get("key", "")
                for lock in said.get("locks", []) if lock["standing"] == "held"}

    def leaser(self, file):
        return next((key for name, key in self.held().items() if file in name), "")

    def begin(self, play, *args, cwd=None, env=None):
        """A session that goes on beside the test."""
        out = open(self.top / f"said-{len(self.begun)}", "w+")
        child = subprocess.Popen(self.host.session(prompt(play), args), cwd=cwd or self.repo, env=self.env | (env or {}),
                                 stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        child.said = Path(out.name)
        self.begun.append(child)
        return child

    def end(self, child, within=90):
        """Whether a session ended by itself."""
        try:
            child.wait(within)
            return True
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            return False

    def run(self, play, *args, within=90, **more):
        child = self.begin(play, *args, **more)
        self.end(child, within)
        return child

    def until(self, is_so, within=30):
        end = time.monotonic() + within
        while not is_so():
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    def at_work(self):
        return self.until(lambda: (self.repo / "at-work").exists())

    def events(self):
        file = self.home / "heard"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def hear(self, file, events):
        """A second hook that keeps each event."""
        listener = self.home / "listen"
        listener.write_text(f'#!/bin/sh\nline=$(tr -d "\\n")\nprintf "%s\\n" "$line" >> {self.home}/heard\n')
        listener.chmod(0o755)
        file.parent.mkdir(parents=True, exist_ok=True)
        document = json.loads(file.read_text()) if file.exists() else {}
        for event in events:
            handler = {"type": "command", "command": str(listener), "timeout": 3}
            document.setdefault("hooks", {}).setdefault(event, []).append({"hooks": [handler]})
        file.write_text(json.dumps(document))
        self.host.trust(self)

    def close(self):
        self.model.open(*[str(gate) for gate in range(9)], "main", "sub", "never")
        (self.repo / "go").touch()
        for child in self.begun:
            self.end(child, 0) if child.poll() is None else None


def runs(words):
    """Whether a process with these first words runs in a repository of a test."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cmdline").read_bytes().replace(b"\0", b" ").startswith(words.encode()) and \
                    str(PLACE) in os.readlink(entry / "cwd"):
                return True
        except OSError:
            pass
    return False


class Lines:
    """A program that is spoken to by lines of JSON."""

    def __init__(self, words, world):
        self.child = subprocess.Popen(words, cwd=world.repo, env=world.env, text=True, stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        world.begun.append(self.child)
        self.answers, self.change = {}, threading.Condition()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.child.stdout:
            message = json.loads(line)
            with self.change:
                self.answers[message.get("id")] = message.get("result")
                self.change.notify_all()

    def tell(self, **message):
        self.child.stdin.write(json.dumps(message) + "\n")
        self.child.stdin.flush()

    def ask(self, method, **params):
        ident = f"{method} {time.monotonic_ns()}"
        self.tell(id=ident, method=method, params=params)
        with self.change:
            if not self.change.wait_for(lambda: ident in self.answers, 20):
                raise TimeoutError(method)
            return self.answers[ident]

    def close(self):
        self.child.stdin.close()
        try:
            self.child.wait(10)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


class Window:
    """A program in a terminal."""

    ANSWERS = {b"\x1b[6n": b"\x1b[1;1R", b"\x1b[c": b"\x1b[?62;c", b"\x1b]11;?": b"\x1b]11;rgb:0000/0000/0000\x1b\\",
               b"\x1b]10;?": b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\"}

    def __init__(self, words, world):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(world.repo)
            os.execvpe(words[0], words, world.env)
        fcntl.ioctl(self.fd, 0x5414, struct.pack("HHHH", 50, 160, 0, 0))  # TIOCSWINSZ
        self.drawn = b""

    def look(self, seconds):
        """Reads for so long what is drawn, and answers what a terminal is asked."""
        end = time.monotonic() + seconds
        while select.select([self.fd], [], [], max(0, end - time.monotonic()))[0]:
            try:
                part = os.read(self.fd, 65536)
            except OSError:
                return
            self.drawn += part
            for asked, answer in self.ANSWERS.items():
                if asked in part:
                    os.write(self.fd, answer)

    def type(self, text):
        os.write(self.fd, text.encode())
        self.look(0.5)

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


class Host:
    has_hooks, asks_for_trust, with_helpers, mode = True, False, (), ""

    def furnish(self, world):
        pass

    def trust(self, world):
        pass

    def open_sandbox(self, world):
        pass


class Claude(Host):
    word, package, version = "claude", "@anthropic-ai/claude-code", "2.1.332"
    program = "claude/node_modules/@anthropic-ai/claude-code-linux-x64/claude"
    events = ("PreToolUse PostToolUse PostToolUseFailure UserPromptSubmit SessionStart SessionEnd Stop SubagentStart SubagentStop "
              "PostToolBatch Notification PermissionRequest").split()
    heard = "PreToolUse PostToolUse PostToolUseFailure Stop SubagentStop SessionStart SessionEnd".split()
    allowed = ["Bash", "Edit", "Write", "Read", "Monitor", "Agent", "Task", "mcp__tenure", "mcp__plugin_tenure_tenure"]

    def env(self, world):
        return {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{world.model.port}", "ANTHROPIC_API_KEY": "none",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1"}

    def session(self, text, args):
        return ["claude", "-p", text, "--output-format", "stream-json", "--verbose", "--include-hook-events", *args,
                "--allowedTools", *self.allowed]

    def resumed(self, session):
        return ["--resume", session]

    def talk(self, world, play):
        """A session that a person can stop, and how."""
        words = ["claude", "-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
        lines = Lines([*words, "--allowedTools", *self.allowed], world)
        lines.tell(type="user", message={"role": "user", "content": prompt(play)}, parent_tool_use_id=None, session_id="")
        return lines, lambda: lines.tell(type="control_request", request_id="1", request={"subtype": "interrupt"})

    def persons_files(self, world, reach):
        text = '{\r\n\t"permissions": { "allow": ["Bash(ls:*)"] },\r\n\t"hooks": {}\r\n}'
        root = world.home if reach == "--user" else world.repo
        return {root / ".claude/settings.json": text}

    def settings(self, world):
        return world.home / ".claude/settings.json"

    def listen(self, world):
        world.hear(self.settings(world), self.events)


class Codex(Host):
    word, package, version = "codex", "@openai/codex", "0.171.0"
    program = "codex/node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"
    asks_for_trust = True
    events = ("PreToolUse PostToolUse UserPromptSubmit SessionStart SessionEnd Stop SubagentStart SubagentStop Interrupt "
              "PermissionRequest").split()
    heard = "PreToolUse PostToolUse Stop Interrupt SubagentStop SessionStart SessionEnd".split()

    def __init__(self, model, mode):
        self.model, self.mode = model, mode

    def env(self, world):
        return {"NO_KEY": "none"}

    def furnish(self, world):
        file = self.settings(world)
        file.parent.mkdir()
        (world.home / ".profile").write_text(f"PATH={BIN}:$PATH\n")
        file.write_text(f'''model = "{self.model}"
model_provider = "none"
approval_policy = "never"
sandbox_mode = "workspace-write"
check_for_update_on_startup = false
[analytics]
enabled = false
[projects."{world.repo}"]
trust_level = "trusted"
[model_providers.none]
name = "none"
base_url = "http://127.0.0.1:{world.model.port}/v1"
wire_api = "responses"
env_key = "NO_KEY"
request_max_retries = 0
stream_max_retries = 0
''')

    def session(self, text, args):
        return ["codex", "exec", "--json", *args, text]

    def resumed(self, session):
        return ["resume", session]

    def server(self, world):
        lines = Lines(["codex", "app-server"], world)
        lines.ask("initialize", clientInfo={"name": "try-hosts", "version": "1"})
        lines.tell(method="initialized")
        return lines

    def talk(self, world, play):
        lines = self.server(world)
        thread = lines.ask("thread/start", cwd=str(world.repo))["thread"]["id"]
        turn = lines.ask("turn/start", threadId=thread, input=[{"type": "text", "text": prompt(play)}])["turn"]["id"]
        return lines, lambda: lines.ask("turn/interrupt", threadId=thread, turnId=turn)

    def trust(self, world):
        """As its window asks for it."""
        lines = self.server(world)
        found = lines.ask("hooks/list", cwds=[str(world.repo)])["data"][0]["hooks"]
        state = {hook["key"]: {"trusted_hash": hook["currentHash"]} for hook in found}
        edit = {"keyPath": "hooks.state", "value": state, "mergeStrategy": "upsert"}
        lines.ask("config/batchWrite", edits=[edit], reloadUserConfig=True)
        lines.close()

    def persons_files(self, world, reach):
        own = {world.repo / ".codex/config.toml": "# mine\r\nproject_doc_max_bytes = 1000 # why"}
        root = world.home if reach == "--user" else world.repo
        return {root / ".codex/hooks.json": '{ "hooks": { "Stop": [] } }', **(own if reach == "--project" else {})}

    def settings(self, world):
        return world.home / ".codex/config.toml"

    def open_sandbox(self, world):
        file = self.settings(world)
        file.write_text(file.read_text().replace("workspace-write", "danger-full-access"))

    def listen(self, world):
        world.hear(world.home / ".codex/hooks.json", self.events)


class Opencode(Host):
    word, package, version, has_hooks = "opencode", "opencode-ai", "1.18.33", False
    program = "opencode/node_modules/opencode-linux-x64/bin/opencode"

    def env(self, world):
        return {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}

    def furnish(self, world):
        file = world.home / ".config/opencode/opencode.json"
        file.parent.mkdir(parents=True)
        facts = {"name": "none", "tool_call": True, "limit": {"context": 100000, "output": 10000}}
        file.write_text(json.dumps({
            "autoupdate": False, "share": "disabled", "model": "none/none", "small_model": "none/none", "permission": {"*": "allow"},
            "mcp": {"tenure": {"type": "local", "command": ["tenure", "mcp"], "enabled": True}},
            "provider": {"none": {"npm": "@ai-sdk/openai-compatible", "name": "none", "models": {"none": facts},
                                  "options": {"baseURL": f"http://127.0.0.1:{world.model.port}/v1", "apiKey": "none"}}}}))

    def session(self, text, args):
        return ["opencode", "run", "--format", "json", *args, text]


class GeminiCli(Host):
    word, package, version, has_hooks = "gemini", "@google/gemini-cli", "0.61.0", False
    program = "gemini/node_modules/@google/gemini-cli/bundle/gemini.js"

    def env(self, world):
        return {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{world.model.port}"}

    def furnish(self, world):
        file = world.home / ".gemini/settings.json"
        file.parent.mkdir()
        file.write_text(json.dumps({
            "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
            "general": {"enableAutoUpdate": False}, "privacy": {"usageStatisticsEnabled": False}, "telemetry": {"enabled": False},
            "mcpServers": {"tenure": {"command": "tenure", "args": ["mcp"], "trust": True}}}))

    def session(self, text, args):
        return ["gemini", "-m", "gemini-2.5-flash", "--output-format", "stream-json", "--approval-mode", "yolo", *args, "-p", text]


HOSTS = {"claude": Claude(), "codex": Codex("gpt-5.5", "plain tools"), "codex-code": Codex("gpt-6.2-sol", "code mode"),
         "opencode": Opencode(), "gemini": GeminiCli()}
