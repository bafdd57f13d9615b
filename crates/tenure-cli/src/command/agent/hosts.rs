//! What is installed for each host of agents: which hooks, which server, where the files are. The plugin folders
//! (`plugins/claude`, `plugins/codex`) have the same; a test holds both equal.
//!
//! What the files look like inside is in `entries`, what is done with them in `files`.

use crate::args::AgentHost as Host;
use crate::request::{Reach, Roots};
use serde_json::{Value, json};
use std::path::PathBuf;
use tenure_engine::advice;

/// A hook that is installed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hook {
    pub(super) event: &'static str,
    /// How many seconds the host waits for it.
    seconds: u32,
}

const fn hook(event: &'static str, seconds: u32) -> Hook {
    Hook { event, seconds }
}

/// Of every tool: what a tool does, its event says (`hook/event`), and each call is a sign of life.
const CLAUDE: [Hook; 7] = [
    hook("PreToolUse", 10),
    hook("PostToolUse", 10),
    hook("PostToolUseFailure", 10),
    hook("Stop", 10),
    hook("SubagentStop", 10),
    hook("SessionStart", 10),
    hook("SessionEnd", 10),
];

const CODEX: [Hook; 7] = [
    hook("PreToolUse", 10),
    hook("PostToolUse", 10),
    hook("Stop", 10),
    hook("Interrupt", 3),
    hook("SubagentStop", 10),
    hook("SessionStart", 10),
    // Codex gives this event 3 s at most, and warns at each start of a hook that asks for more.
    hook("SessionEnd", 3),
];

/// The variables by which a caller finds its locks. Codex gives a server few of its own, and else the server's locks would be
/// elsewhere than those of the commands beside it.
pub(super) const VARIABLES: [&str; 17] = [
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

/// The variables that Codex gives each server (`codex-rs/rmcp-client`, read on 2026-11-30).
pub(super) const GIVEN: [&str; 10] = [
    "HOME", "LOGNAME", "PATH", "SHELL", "USER", "LANG", "LC_ALL", "TERM", "TMPDIR", "TZ",
];

/// The text that tells a model how to live with locks.
pub(super) const SKILL: &str = include_str!("skill.md");

/// The name of the skill, of its folder and of the server.
pub(super) const NAME: &str = "tenure";

/// Whether a program's name or path is tenure's.
pub(super) fn is_tenure(program: &str) -> bool {
    program.rsplit('/').next() == Some(NAME)
}

impl Host {
    /// What people call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Claude => "Claude Code",
            Self::Codex => "Codex",
        }
    }

    pub(super) fn hooks(self) -> &'static [Hook] {
        match self {
            Self::Claude => &CLAUDE,
            Self::Codex => &CODEX,
        }
    }

    /// The oldest version that is known to do what the hooks need, and what an older one does.
    pub(super) fn oldest(self) -> ([u32; 3], &'static str) {
        match self {
            Self::Claude => (
                [2, 1, 139],
                "an older one drops the arguments of a hook, so its hooks work by what the event tells alone",
            ),
            Self::Codex => (
                [0, 160, 1],
                "an older one may drop what a hook writes, and its commands run without their locks",
            ),
        }
    }

    /// What the host starts when a hook fires. Claude Code takes the words of a command one by one and starts no
    /// shell. Codex has its user's shell read one text.
    pub(super) fn handler(self, hook: &Hook, program: &str) -> Value {
        let seconds = hook.seconds;
        match self {
            Self::Claude => json!({
                "type": "command",
                "command": program,
                "args": ["hook", self.word()],
                "timeout": seconds,
            }),
            Self::Codex => json!({
                "type": "command",
                "command": format!("{} hook {}", advice::word(program), self.word()),
                "timeout": seconds,
            }),
        }
    }

    /// Entry for all tools.
    pub(super) fn group(self, hook: &Hook, program: &str) -> Value {
        json!({ "hooks": [self.handler(hook, program)] })
    }

    /// The folder of the host's own files.
    pub(super) fn folder(self, reach: Reach, at: &Roots) -> PathBuf {
        match (self, reach) {
            (Self::Claude, Reach::Project) => at.project.join(".claude"),
            (Self::Codex, Reach::Project) => at.project.join(".codex"),
            (Self::Claude, Reach::User) => at.claude.clone(),
            (Self::Codex, Reach::User) => at.codex.clone(),
        }
    }

    /// The file of the hooks.
    pub(super) fn hooks_file(self, reach: Reach, at: &Roots) -> PathBuf {
        let name = match self {
            Self::Claude => "settings.json",
            Self::Codex => "hooks.json",
        };
        self.folder(reach, at).join(name)
    }

    /// The file that names the server, unless only the host itself writes it.
    pub(super) fn server_file(self, reach: Reach, at: &Roots) -> Option<PathBuf> {
        match (self, reach) {
            (Self::Claude, Reach::Project) => Some(at.project.join(".mcp.json")),
            (Self::Claude, Reach::User) => None,
            (Self::Codex, _) => Some(self.folder(reach, at).join("config.toml")),
        }
    }

    /// The file of the skill.
    pub(super) fn skill_file(self, reach: Reach, at: &Roots) -> PathBuf {
        let skills = match (self, reach) {
            (Self::Claude, _) => self.folder(reach, at),
            (Self::Codex, Reach::Project) => at.project.join(".agents"),
            (Self::Codex, Reach::User) => at.home.join(".agents"),
        };
        skills.join("skills").join(NAME).join("SKILL.md")
    }
}
