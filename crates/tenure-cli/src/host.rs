//! The hosts of agents: what each calls an event, a tool, a session and a file, and what it takes for an answer.
//!
//! **Each host has a file that says all of it**, as a [`Host`]. All other code asks that table. So the next host is one file, its
//! word in [`AgentHost`], and the events that it was seen to send (`tests/hook/events/HOST`).
//!
//! What is looked at in a host's own settings stands in `command/agent/status`, as the `Looks` of a module of its name.

mod claude;
mod codex;
mod roots;

pub(crate) use codex::GIVEN as GIVEN_BY_CODEX;
pub(crate) use roots::{Reach, Roots};

use crate::args::value::AgentHost;
use clap::ValueEnum as _;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tenure_store::advice;

/// What a host calls things, and what it does with answers.
#[derive(Debug)]
pub(crate) struct Host {
    /// What people call it.
    pub(crate) name: &'static str,
    /// The oldest version that is known to do what the hooks need, and what an older one does.
    pub(crate) oldest: ([u32; 3], &'static str),
    /// What is heard of. An installation asks for all of it.
    pub(crate) events: &'static [Event],
    pub(crate) keys: &'static Keys,
    /// What is set at the end of a call whose command was interrupted, or goes on: places in the event.
    pub(crate) unfinished: &'static [&'static str],
    /// The tools that are known by name.
    pub(crate) tools: &'static [(&'static str, Tool)],
    /// Whether an event may be this host's, by what the beginning of its bytes says under a key.
    sends: fn(Said<'_, '_>) -> bool,
    /// Another input counts only beside the word that allows the call.
    pub(crate) allows_new_input: bool,
    /// The person can be asked about a call that has another input.
    pub(crate) asks: bool,
    /// How long a call of its shell may take. `None` where a call may end before its command does.
    pub(crate) limit: Option<&'static Limit>,
    /// By what a server is told who calls.
    pub(crate) caller: Caller,
    pub(crate) files: &'static Files,
    /// The user's shell reads the command of a hook as one text. Else its words stand one by one.
    has_shell: bool,
    pub(crate) rules: &'static Rules,
    /// What the user does after an installation.
    pub(crate) next: fn(Reach) -> &'static str,
    /// The line that takes the plugin out.
    pub(crate) without_plugin: &'static str,
}

/// What an event says under a key.
type Said<'f, 'a> = &'f dyn Fn(&str) -> Option<&'a str>;

/// An event.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) name: &'static str,
    pub(crate) tells: Tells,
    /// How many seconds the host waits for the hook.
    seconds: u32,
}

/// What an event tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tells {
    /// A tool is about to be called. This event alone may be refused.
    Before,
    /// A call has ended.
    After,
    /// A call has failed.
    Failed,
    /// A session begins, or goes on.
    Begins,
    /// A turn has ended, by itself or by a person.
    Rests,
    AgentEnds,
    Ends,
}

/// The keys of an event.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) event: &'static str,
    pub(crate) session: &'static str,
    /// The subagent.
    pub(crate) agent: &'static str,
    /// The folder in which the agent works.
    pub(crate) folder: &'static str,
    /// Why a session begins.
    pub(crate) source: &'static str,
    pub(crate) tool: &'static str,
    pub(crate) call: &'static str,
    pub(crate) input: &'static str,
    /// Within the input: the line of shell.
    pub(crate) command: &'static str,
    /// Within the input: the file that a call writes.
    pub(crate) files: &'static [&'static str],
    /// Within the input: the patch.
    pub(crate) patches: &'static [&'static str],
}

/// As Claude Code has them, and others after it.
const KEYS: Keys = Keys {
    event: "hook_event_name",
    session: "session_id",
    agent: "agent_id",
    folder: "cwd",
    source: "source",
    tool: "tool_name",
    call: "tool_use_id",
    input: "tool_input",
    command: "command",
    files: &[],
    patches: &[],
};

/// What a tool does, as far as rules may be about it. Its input tells that of a tool whose name is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    /// Runs a line of shell, and ends with it.
    Shell,
    /// Runs a line of shell beside the turn, or in some other way of its own.
    Monitor,
    /// Writes one file.
    Edit,
    /// Writes the files that a patch names.
    Patch,
    /// Asks tenure's own server for something.
    Lock,
    /// No rule is about it. It is a sign of life.
    Other,
}

impl Tool {
    /// Whether its command is a line of shell.
    pub(crate) fn is_shell(self) -> bool {
        matches!(self, Self::Shell | Self::Monitor)
    }
}

/// How long a call of the shell may take.
#[derive(Debug)]
pub(crate) struct Limit {
    /// Milliseconds, and the variable that says another number.
    pub(crate) usual: (u64, &'static str),
    pub(crate) most: (u64, &'static str),
    /// The argument that says it, of the shell and of other tools.
    of_shell: &'static str,
    of_others: &'static str,
    /// The argument of a call that has none.
    pub(crate) background: &'static str,
}

impl Limit {
    pub(crate) fn argument(&self, tool: Tool) -> &'static str {
        if tool == Tool::Monitor {
            self.of_others
        } else {
            self.of_shell
        }
    }
}

/// What a host tells a server of who calls, beside the arguments.
#[derive(Debug)]
#[cfg_attr(
    not(feature = "mcp"),
    expect(dead_code, reason = "the server alone reads the keys")
)]
pub(crate) enum Caller {
    /// The id of the call alone, which the hook knows as well.
    Call(&'static str),
    /// Session and thread. The main thread has the session's name, and the others are what its hooks call agents.
    Agent {
        session: &'static str,
        thread: &'static str,
    },
}

/// Where the files are.
#[derive(Debug)]
pub(crate) struct Files {
    /// The variable that names the folder of the user's files, and which folder it is at home. A project has one of the same name.
    variable: &'static str,
    folder: &'static str,
    hooks: &'static str,
    /// A second file of hooks, which only its user has.
    pub(crate) beside: Option<&'static str>,
    /// The file that names the server, unless only the host itself writes it.
    server: fn(Reach, &Roots) -> Option<PathBuf>,
    /// The file in which the host itself keeps its user's servers, if only the host writes it.
    pub(crate) users_servers: Option<fn(&Roots) -> PathBuf>,
    /// The folder of skills, where it is not the host's own.
    skills: Option<&'static str>,
    /// The hooks of all work trees are those of the main checkout.
    pub(crate) are_in_main: bool,
}

/// The person's own rules for commands.
#[derive(Debug)]
pub(crate) struct Rules {
    /// The files that may have some, with these projects.
    pub(crate) files: fn(&Roots, &[PathBuf]) -> Vec<PathBuf>,
    pub(crate) read: fn(&str) -> Vec<Written>,
    /// What makes a rule count for a command that a hook has written. `None` where nothing is needed.
    pub(crate) mend: fn(Ruling, &Rewritten<'_>) -> Option<String>,
}

/// A rule: what it does, as it is written, and what it is about.
pub(crate) type Written = (Ruling, String, Pattern);

/// What a rule does with a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ruling {
    Deny,
    Ask,
    Allow,
}

impl Ruling {
    /// As Claude Code calls it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Ask => "ask",
            Self::Allow => "allow",
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    /// A text in which `*` stands for any.
    Text(String),
    /// The first words, for each of them several. `None` where they are not written out.
    Words(Option<Vec<Vec<String>>>),
}

/// A command as a hook writes it.
pub(crate) struct Rewritten<'a> {
    pub(crate) program: &'a str,
    pub(crate) lock: &'a str,
    /// What stands in front of it, with `*` for what differs.
    pub(crate) prefix: &'a str,
    pub(crate) command: &'a str,
}

/// The variables by which a caller finds its locks. Codex gives a server few of its own, and else the server's locks would be
/// elsewhere than those of the commands beside it.
pub(crate) const VARIABLES: [&str; 17] = [
    "TENURE_DIR",
    "TENURE_STORE",
    "TENURE_SCOPE",
    "TENURE_CONFIG",
    "TENURE_PROFILE",
    "TENURE_AS",
    "TENURE_HELD",
    "TENURE_AROUND",
    "TENURE_AUDIT",
    "TENURE_AUDIT_DIR",
    "TENURE_WAIT",
    "TENURE_ETCD_USER",
    "TENURE_ETCD_CACERT",
    "TENURE_ETCD_CERT",
    "TENURE_ETCD_KEY",
    "XDG_STATE_HOME",
    "XDG_CONFIG_HOME",
];

/// The text that tells a model how to live with locks.
pub(crate) const SKILL: &str = include_str!("host/skill.md");

/// The name of the skill, of its folder and of the server.
pub(crate) const NAME: &str = "tenure";

/// Whether a program's name or path is tenure's.
pub(crate) fn is_tenure(program: &str) -> bool {
    program.rsplit('/').next() == Some(NAME)
}

/// Whether an entry of a server is ours: its program is tenure, wherever that is.
pub(crate) fn is_our_server(server: &Value) -> bool {
    let command = server.get("command").and_then(Value::as_str);
    command.is_some_and(is_tenure)
}

/// Whether an entry of ours starts the server, with whatever its user has added.
pub(crate) fn is_started(server: &Value) -> bool {
    server
        .pointer("/args/0")
        .is_some_and(|first| first == "mcp")
}

impl AgentHost {
    /// All that is known of this host.
    pub(crate) fn table(self) -> &'static Host {
        match self {
            Self::Claude => &claude::HOST,
            Self::Codex => &codex::HOST,
        }
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Self::value_variants().iter().copied()
    }

    /// The host that sends an event, where the values of its keys tell.
    pub(crate) fn of_event(value: Said<'_, '_>) -> Option<Self> {
        Self::all().find(|host| (host.table().sends)(value))
    }

    /// What the host starts when a hook fires.
    pub(crate) fn handler(self, event: &Event, program: &str) -> Value {
        let (seconds, word) = (event.seconds, self.word());
        if self.table().has_shell {
            let command = format!("{} hook {word}", advice::word(program));
            json!({ "type": "command", "command": command, "timeout": seconds })
        } else {
            json!({ "type": "command", "command": program, "args": ["hook", word], "timeout": seconds })
        }
    }

    /// Entry for all tools: what a tool does, its event says, and each call is a sign of life.
    pub(crate) fn group(self, event: &Event, program: &str) -> Value {
        json!({ "hooks": [self.handler(event, program)] })
    }

    /// The folder of the host's own files.
    fn folder(self, reach: Reach, at: &Roots) -> PathBuf {
        match reach {
            Reach::Project => at.project.join(self.table().files.folder),
            Reach::User => at.own(self),
        }
    }

    /// The file of the hooks.
    pub(crate) fn hooks_file(self, reach: Reach, at: &Roots) -> PathBuf {
        self.folder(reach, at).join(self.table().files.hooks)
    }

    /// The file that names the server, unless only the host itself writes it.
    pub(crate) fn server_file(self, reach: Reach, at: &Roots) -> Option<PathBuf> {
        (self.table().files.server)(reach, at)
    }

    /// The file of the skill.
    pub(crate) fn skill_file(self, reach: Reach, at: &Roots) -> PathBuf {
        let root = match reach {
            Reach::Project => &at.project,
            Reach::User => &at.home,
        };
        let shared = self.table().files.skills.map(|folder| root.join(folder));
        let skills = shared.unwrap_or_else(|| self.folder(reach, at));
        skills.join("skills").join(NAME).join("SKILL.md")
    }
}

impl Host {
    /// What an event of this name tells. `None` for one that nothing is done about.
    pub(crate) fn tells(&self, name: &str) -> Option<Tells> {
        let event = self.events.iter().find(|event| event.name == name);
        event.map(|event| event.tells)
    }

    /// What a tool does. What another program's server runs, nobody here can tell: its machine may be another one.
    pub(crate) fn tool(&self, name: &str, has_command: bool) -> Tool {
        if let Some((_, tool)) = self.tools.iter().find(|(known, _)| *known == name) {
            return *tool;
        }
        if name.starts_with("mcp__") {
            let tool = name.rsplit("__").next().unwrap_or_default();
            let is_ours = tool.starts_with("lock_");
            return if is_ours { Tool::Lock } else { Tool::Other };
        }
        if has_command {
            Tool::Monitor
        } else {
            Tool::Other
        }
    }
}

/// The files of a folder whose names end so.
fn files_in(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|is| is == ending));
    files.sort();
    files
}

const fn event(name: &'static str, tells: Tells, seconds: u32) -> Event {
    Event {
        name,
        tells,
        seconds,
    }
}

/// The last part of a path that an event names.
fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
