//! Simulated agents beside each other: twenty in five work trees, in sessions whose hosts are killed and resumed. A
//! witness that knows nothing of tenure sees that no two agents edit one file at a time, that no edit goes without
//! its lease, that no sibling ends another's lease, that no more commands run than there are slots, and that all is
//! free in the end. They take locks by the server of their host, too, and some give these back while others end with them.
//!
//! A host is a process of its own: this test binary again, which fires hooks as a host does ([`testagent`]). The
//! witness has a file for each file that is edited, with the agent that may edit it. Its rules are its own: an agent's
//! right ends before the host tells of its end, and with the host's process.
//!
//! `TENURE_HOOK=long` has more sessions, more steps and more kills.

use super::support::{Scene, Started, eventually, is_alive, state};
use super::{Heard, claude, heard};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

const RULES: &str = "[[agent.command]]\nmatch = [\"work\"]\nlock = \"build\"\nslots = 2\non_error = \"closed\"\n\
    [[agent.path]]\nmatch = [\"shared/**\"]\nacross = \"repo\"\n\
    [[agent.path]]\nmatch = [\"own/**\"]\n";

const TREES: usize = 5;
const SESSIONS: usize = 10;

/// What runs under the lock: never more than two at a time, by its own count.
const WORK: &str = r#"#!/bin/sh
mkdir -p "$WITNESS/running"
: >"$WITNESS/running/$$"
others=0
for file in "$WITNESS"/running/*; do
    if kill -0 "${file##*/}" 2>/dev/null; then others=$((others + 1)); fi
done
if [ "$others" -gt 2 ]; then echo "$others commands at a time" >>"$WITNESS/wrong"; fi
sleep 0.05
rm -f "$WITNESS/running/$$"
echo work >>"$WITNESS/worked"
"#;

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap_or_default() % below
    }
}

fn is_long() -> bool {
    std::env::var("TENURE_HOOK").is_ok_and(|value| value == "long")
}

fn git(folder: &Path, words: &[&str]) {
    let status = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.org"])
        .args(words)
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(status.expect("git").success(), "{words:?}");
}

/// Starts the host of a session. `life` tells its lives apart.
fn host(scene: &Scene, session: usize, life: usize, steps: usize) -> Started {
    let own = std::env::current_exe().expect("this program");
    let mut command = scene.program(own.to_str().expect("a path"));
    command
        .args(["agents::testagent", "--exact", "--ignored", "--nocapture"])
        .env("TESTAGENT_SESSION", session.to_string())
        .env("TESTAGENT_LIFE", life.to_string())
        .env("TESTAGENT_STEPS", steps.to_string())
        .env(
            "TESTAGENT_TREE",
            scene.path(&format!("tree{}", session % TREES)),
        )
        .env("WITNESS", scene.path("witness"))
        .stdout(Stdio::null());
    Started::new(&mut command)
}

#[test]
fn twenty_agents_in_five_work_trees_never_meet_in_a_file() {
    let scene = Scene::new();
    let main = scene.path("tree0");
    std::fs::create_dir_all(&main).expect("a folder");
    std::fs::create_dir_all(scene.path("witness")).expect("a folder");
    std::fs::create_dir_all(scene.path("bin")).expect("a folder");
    scene.script("bin/work", WORK);
    std::fs::write(main.join("tenure.toml"), RULES).expect("rules");
    git(&main, &["init", "-q"]);
    git(&main, &["add", "tenure.toml"]);
    git(&main, &["commit", "-q", "-m", "first"]);
    for tree in 1..TREES {
        git(&main, &["worktree", "add", "-q", &format!("../tree{tree}")]);
    }
    let (steps, kills) = if is_long() { (60, 60) } else { (5, 6) };
    let mut random = Random(0x2545_F491_4F6C_DD1D);
    let mut lives = [0; SESSIONS];
    let mut hosts: Vec<Started> = (0..SESSIONS)
        .map(|session| host(&scene, session, 0, steps))
        .collect();
    for _ in 0..kills {
        std::thread::sleep(Duration::from_millis(300));
        let session = random.below(SESSIONS);
        let (Some(host), Some(life)) = (hosts.get_mut(session), lives.get_mut(session)) else {
            continue;
        };
        host.signal(Signal::KILL);
        host.end();
        *life += 1;
        *host = self::host(&scene, session, *life, steps);
    }
    for host in &mut hosts {
        // Each refusal takes two seconds, so a long life may take minutes.
        for _ in 0..2_000 {
            if host.has_ended() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let status = host.end();
        assert!(status.success(), "a host: {status}");
    }
    let said =
        |name: &str| std::fs::read_to_string(scene.path("witness").join(name)).unwrap_or_default();
    assert_eq!(said("wrong"), "", "what the witness saw");
    let edits = said("edits").lines().count();
    let refused = said("refused").lines().count();
    assert!(
        edits >= SESSIONS && refused > 0,
        "{edits} edits, {refused} refusals"
    );
    let late = said("late").lines().count();
    assert!(
        late * 20 <= edits + refused,
        "{late} late, {edits} edits, {refused} refusals"
    );
    assert!(said("worked").lines().count() > 0, "commands ran");
    assert!(said("kept").lines().count() > 0, "siblings were looked at");
    let taken = said("taken").lines().count();
    assert!(taken > 0 || !cfg!(feature = "mcp"), "locks of the server");
    // A command whose host was killed goes on under its lock, and ends.
    eventually("all is free", || {
        let list = scene.run(["list", "--output", "json"]).json();
        let locks = list["data"]["locks"].as_array().expect("locks").clone();
        locks.iter().all(|lock| lock["standing"] != "held")
    });
}

/// The host of simulated agents: a session with a main agent and a subagent, which edit files and run commands.
#[test]
#[ignore = "it is the host of simulated agents, which another test starts"]
fn testagent() {
    let number = |name: &str| -> usize {
        let value = std::env::var(name).expect(name);
        value.parse().expect(name)
    };
    let (session, life) = (number("TESTAGENT_SESSION"), number("TESTAGENT_LIFE"));
    let seed = u64::try_from(session * 1_000 + life + 1).expect("a seed");
    let mut host = Host {
        tree: PathBuf::from(std::env::var("TESTAGENT_TREE").expect("a tree")),
        witness: PathBuf::from(std::env::var("WITNESS").expect("a witness")),
        session: format!("s{session}"),
        subagent: life * 1_000,
        random: Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
        calls: 0,
        life,
        server: None,
    };
    if life > 0 {
        host.tell("SessionStart", None, "resume");
    }
    for _ in 0..number("TESTAGENT_STEPS") {
        host.step();
    }
    host.ends(None);
    host.tell("SessionEnd", None, "other");
}

struct Host {
    tree: PathBuf,
    witness: PathBuf,
    session: String,
    subagent: usize,
    random: Random,
    calls: usize,
    life: usize,
    server: Option<Server>,
}

/// The server of a host, and what it is asked and answers: one line each.
struct Server {
    _program: Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Server {
    fn start(tree: &Path) -> Self {
        let mut program = Command::new("tenure")
            .arg("mcp")
            .current_dir(tree)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a server");
        let mut server = Self {
            asks: program.stdin.take().expect("a stdin"),
            answers: BufReader::new(program.stdout.take().expect("a stdout")),
            _program: program,
        };
        let client = json!({"name": "testagent", "version": "1"});
        let params =
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
        server.ask("initialize", &params);
        let said = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        writeln!(server.asks, "{said}").expect("a notification");
        server
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        let asked = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        writeln!(self.asks, "{asked}").expect("a request");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("an answer");
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
    }
}

impl Host {
    fn step(&mut self) {
        let agent = (self.random.below(2) == 0).then(|| format!("a{}", self.subagent));
        match self.random.below(10) {
            0 | 1 => self.work(agent.as_deref()),
            3 | 4 if cfg!(feature = "mcp") => self.take(agent.as_deref()),
            2 => {
                // A subagent ends, and another one begins. What its sibling has is looked at before and after.
                let ended = format!("a{}", self.subagent);
                self.subagent += 1;
                let before = self.held_by(None);
                self.ends(Some(&ended));
                self.tell("SubagentStop", Some(&ended), "other");
                let after = self.held_by(None);
                if before.iter().any(|lock| !after.contains(lock)) {
                    self.wrong(&format!(
                        "{ended} ended what its sibling held: {before:?}, {after:?}"
                    ));
                }
                self.note("kept", "looked");
                if !self.held_by(Some(&ended)).is_empty() {
                    self.wrong(&format!("{ended} has ended and holds"));
                }
            }
            _ => self.edit(agent.as_deref()),
        }
    }

    fn hook(&self, event: &Value) -> Heard {
        let mut command = Command::new("tenure");
        command.args(["hook", "claude"]).current_dir(&self.tree);
        heard(&mut command, event.to_string().as_bytes())
    }

    fn call(&mut self, agent: Option<&str>, tool: &str, input: Value) -> Value {
        self.calls += 1;
        let id = format!("toolu_{}_{}_{}", self.session, self.life, self.calls);
        let mut event = claude("PreToolUse", &self.tree, &id, tool, input);
        event["session_id"] = self.session.clone().into();
        if let Some(agent) = agent {
            event["agent_id"] = agent.into();
        }
        event
    }

    fn tell(&self, name: &str, agent: Option<&str>, why: &str) {
        let mut event = json!({
            "session_id": self.session, "cwd": self.tree, "hook_event_name": name, "reason": why, "source": why,
        });
        if let Some(agent) = agent {
            event["agent_id"] = agent.into();
        }
        let heard = self.hook(&event);
        if heard.code != 0 || heard.text.contains("systemMessage") {
            self.wrong(&format!("{name}: {heard:?}"));
        }
    }

    fn edit(&mut self, agent: Option<&str>) {
        let number = self.random.below(3);
        let (kind, name) = match self.random.below(2) {
            0 => ("shared", format!("shared/{number}.rs")),
            _ => ("own", format!("own/{number}.rs")),
        };
        let file = self.tree.join(&name);
        let event = self.call(agent, "Write", json!({"file_path": file, "content": "x"}));
        let heard = self.hook(&event);
        if !heard.nothing() {
            let reason = heard.json()["hookSpecificOutput"]["permissionDecisionReason"].to_string();
            if reason.contains("is leased by") {
                self.note("refused", &name);
            } else if reason.contains("within 3 seconds") {
                // The machine was slow: a refusal as well, and not often.
                self.note("late", &name);
            } else {
                self.wrong(&format!("{name}: {heard:?}"));
            }
            return;
        }
        // The witness's own idea of which files are one.
        let tree = self
            .tree
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let known = match kind {
            "shared" => name.replace('/', "-"),
            _ => format!("{tree}-{}", name.replace('/', "-")),
        };
        self.may_edit(&known, agent);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        std::fs::write(&file, "x").expect("an edit");
        self.note("edits", &name);
        let mut after = event;
        after["hook_event_name"] = "PostToolUse".into();
        if !self.hook(&after).nothing() {
            self.wrong("an answer to the end of an edit");
        }
    }

    /// Takes a lock by the server, and gives it back or keeps it until its agent ends.
    fn take(&mut self, agent: Option<&str>) {
        let number = self.random.below(2);
        let known = format!("taken-{number}");
        let answer = self.asked(
            agent,
            "lock_acquire",
            &json!({"name": known, "wait_ms": 500}),
        );
        let Some(handle) = answer["handle"].as_str().map(str::to_owned) else {
            match answer["code"].as_str() {
                Some("LOCK_HELD") => self.note("refused", &known),
                // The agent has it from before.
                Some("ALREADY_HELD") => self.may_edit(&known, agent),
                _ => self.wrong(&format!("{known}: {answer}")),
            }
            return;
        };
        self.may_edit(&known, agent);
        self.note("taken", &known);
        let mine = match agent {
            Some(agent) => format!("claude/{}/{agent}", self.session),
            None => format!("claude/{}", self.session),
        };
        let seen = self.asked(agent, "lock_check", &json!({"name": known}));
        if !seen["text"]
            .as_str()
            .is_some_and(|text| text.contains("held by"))
        {
            self.wrong(&format!("{mine} has {known}, and sees {seen}"));
        }
        if self.random.below(2) == 0 {
            // The right ends before the lock does.
            rustix::fs::unlink(self.witness.join(format!("right-{known}"))).expect("a right");
            let freed = self.asked(agent, "lock_release", &json!({"handle": handle}));
            if freed["code"].is_string() {
                self.wrong(&format!("{mine} gives {known} back: {freed}"));
            }
        }
    }

    /// What the server answers to a call of this agent, of which the hook is told as well.
    fn asked(&mut self, agent: Option<&str>, tool: &str, arguments: &Value) -> Value {
        let event = self.call(agent, &format!("mcp__tenure__{tool}"), arguments.clone());
        if !self.hook(&event).nothing() {
            self.wrong("an answer to a call of the server");
        }
        let meta = json!({"claudecode/toolUseId": event["tool_use_id"]});
        let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
        let tree = self.tree.clone();
        let server = self.server.get_or_insert_with(|| Server::start(&tree));
        let answer = server.ask("tools/call", &params);
        let mut after = event;
        after["hook_event_name"] = "PostToolUse".into();
        if !self.hook(&after).nothing() {
            self.wrong("an answer to the end of a call of the server");
        }
        answer["result"]["structuredContent"].clone()
    }

    /// The right of this agent to edit a file begins, or goes on. Nobody else may have it.
    fn may_edit(&self, known: &str, agent: Option<&str>) {
        let me = format!(
            "{} {} {}",
            std::process::id(),
            self.session,
            agent.unwrap_or("-")
        );
        let file = self.witness.join(format!("right-{known}"));
        loop {
            let made = OpenOptions::new().write(true).create_new(true).open(&file);
            if let Ok(mut made) = made {
                made.write_all(me.as_bytes()).expect("a right");
                return;
            }
            let whose = std::fs::read_to_string(&file).unwrap_or_default();
            if whose == me {
                return;
            }
            let pid = whose
                .split(' ')
                .next()
                .and_then(|pid| pid.parse::<u32>().ok());
            match pid {
                // The name is being written, or the lock was just given up.
                None => std::thread::sleep(Duration::from_millis(5)),
                Some(pid) if is_alive(pid) && state(pid) != Some('Z') => {
                    // The lock may have been given up between the two looks.
                    if std::fs::read_to_string(&file).is_ok_and(|again| again == whose) {
                        self.wrong(&format!("{me} edits {known}, which is {whose}'s"));
                        return;
                    }
                }
                // The host was killed, and its right with it.
                Some(_) => {
                    let _ = rustix::fs::unlink(&file);
                }
            }
        }
    }

    /// The rights of an agent, or of all agents of this host, end. Before tenure is told.
    fn ends(&self, agent: Option<&str>) {
        let begin = format!("{} {} ", std::process::id(), self.session);
        for entry in std::fs::read_dir(&self.witness)
            .expect("a witness")
            .flatten()
        {
            let whose = std::fs::read_to_string(entry.path()).unwrap_or_default();
            let is_right = entry.file_name().to_string_lossy().starts_with("right-");
            let mine = whose.strip_prefix(&begin);
            if is_right && mine.is_some_and(|name| agent.is_none_or(|agent| agent == name)) {
                rustix::fs::unlink(entry.path()).expect("a right");
            }
        }
    }

    fn work(&mut self, agent: Option<&str>) {
        let event = self.call(
            agent,
            "Bash",
            json!({"command": "cd . && work | cat", "timeout": 60_000}),
        );
        let heard = self.hook(&event);
        let text = heard.command();
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = self.witness.join("../bin");
        let status = Command::new("sh")
            .args(["-c", &text])
            .current_dir(&self.tree)
            .env("PATH", format!("{}:{path}", bin.display()))
            .status()
            .expect("a shell");
        if !status.success() {
            self.wrong(&format!("{text}: {status}"));
        }
        let mut after = event;
        after["hook_event_name"] = "PostToolUse".into();
        after["tool_input"]["command"] = text.into();
        if !self.hook(&after).nothing() {
            self.wrong("an answer to the end of a command");
        }
    }

    /// The locks that an agent of this session holds, as `list` says.
    fn held_by(&self, agent: Option<&str>) -> Vec<String> {
        let key = match agent {
            Some(agent) => format!("claude/{}/{agent}", self.session),
            None => format!("claude/{}", self.session),
        };
        let output = Command::new("tenure")
            .args(["list", "--output", "json"])
            .output()
            .expect("a list");
        let list: Value = serde_json::from_slice(&output.stdout).expect("a list");
        let locks = list["data"]["locks"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let own = locks.into_iter().filter(|lock| {
            lock["standing"] == "held" && lock["holder"]["agent"]["key"].as_str() == Some(&key)
        });
        own.map(|lock| lock["name"].to_string()).collect()
    }

    fn note(&self, file: &str, line: &str) {
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.witness.join(file))
            .expect("a witness");
        file.write_all(format!("{line}\n").as_bytes())
            .expect("a line");
    }

    fn wrong(&self, what: &str) {
        self.note("wrong", &format!("{}: {what}", self.session));
    }
}
