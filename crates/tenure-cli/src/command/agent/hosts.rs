//! What is installed for each host of agents: which hooks, which server, where the files are. The plugin folder
//! (`plugins/claude`) has the same; a test holds both equal.
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
    /// The tools it is about; `None` for events that are about no tool.
    matcher: Option<&'static str>,
    /// How many seconds the host waits for it.
    seconds: u32,
}

const CLAUDE_TOOLS: &str = "Bash|Edit|Write|MultiEdit|NotebookEdit";
const CODEX_TOOLS: &str = "Bash|apply_patch";

const fn hook(event: &'static str, matcher: Option<&'static str>, seconds: u32) -> Hook {
    Hook {
        event,
        matcher,
        seconds,
    }
}

const CLAUDE: [Hook; 7] = [
    hook("PreToolUse", Some(CLAUDE_TOOLS), 10),
    hook("PostToolUse", Some(CLAUDE_TOOLS), 10),
    hook("PostToolUseFailure", Some(CLAUDE_TOOLS), 10),
    hook("Stop", None, 10),
    hook("SubagentStop", None, 10),
    hook("SessionStart", None, 10),
    hook("SessionEnd", None, 10),
];

const CODEX: [Hook; 6] = [
    hook("PreToolUse", Some(CODEX_TOOLS), 10),
    hook("PostToolUse", Some(CODEX_TOOLS), 10),
    hook("Stop", None, 10),
    hook("SubagentStop", None, 10),
    hook("SessionStart", None, 10),
    // Codex gives this event 3 s at most, and warns at each start of a hook that asks for more.
    hook("SessionEnd", None, 3),
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

    /// The same with the tools it is about.
    pub(super) fn group(self, hook: &Hook, program: &str) -> Value {
        let handlers = json!([self.handler(hook, program)]);
        match hook.matcher {
            Some(matcher) => json!({ "matcher": matcher, "hooks": handlers }),
            None => json!({ "hooks": handlers }),
        }
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
