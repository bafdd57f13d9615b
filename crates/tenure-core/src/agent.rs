//! The agent in whose name a claim is made: its key, and the limits of what it may hold.
//!
//! All agents of one host (a terminal with a coding agent and its subagents) share a process, an environment and a
//! user. So none of those tells them apart, and a claim names its agent by a key. **A key is a claim, no proof:** a
//! caller says which agent it is, and no part of the system can find out whether that is true. It keeps agents from
//! each other's holds by accident, as a request id does.
//!
//! A claim keeps its key, and the other things that are said here, among its facts. Builds that know nothing of them
//! copy facts as they read them, so a list loses none.
//!
//! `standing` judges by these limits. How a sign of an agent reaches the claim, the store decides.

use crate::claim::{Claim, Kind};
use crate::holder::Holder;
use crate::policy::{Policy, UnknownLife};
use crate::time::Now;
use alloc::borrow::ToOwned;
use alloc::string::{String, ToString};
use core::fmt;

/// The fact that keeps the agent's key.
const AGENT: &str = "tenure:agent";

/// The fact that keeps the age at which a hold ends, in milliseconds.
const MAX_AGE: &str = "tenure:max_age_ms";

/// The fact that says that the caller chose the ttl.
const TTL_CHOSEN: &str = "tenure:ttl";

/// The fact that keeps the path that is leased, as people know it.
const PATH: &str = "tenure:path";

/// How long an agent's detached hold outlives the agent's last sign of life, if its caller says nothing else.
pub const SILENCE_MS: u64 = 15 * 60_000;

/// The age at which an agent's detached hold ends, if its caller says nothing else.
pub const AGENT_AGE_MS: u64 = 2 * 3_600_000;

/// The highest age that an agent's detached hold may be given. What is older says nothing about any hold, so a store
/// may remove it.
pub const AGENT_AGE_MAX_MS: u64 = 24 * 3_600_000;

const HOST_BYTES_MAX: usize = 32;
const PART_BYTES_MAX: usize = 128;

/// Who an agent is: `HOST/SESSION` for a whole session, `HOST/SESSION/AGENT` for one of its agents.
///
/// # Examples
/// ```
/// use tenure_core::AgentKey;
/// let session: AgentKey = "claude/1f3c".parse()?;
/// let agent: AgentKey = "claude/1f3c/a6b4".parse()?;
/// assert!(session.covers(&agent) && !agent.covers(&session));
/// # Ok::<(), tenure_core::AgentKeyError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentKey {
    host: String,
    session: String,
    agent: Option<String>,
}

impl AgentKey {
    /// Checks the parts of a key.
    ///
    /// # Errors
    /// - [`AgentKeyError`] if a part is empty, too long, or has another character.
    pub fn new(host: &str, session: &str, agent: Option<&str>) -> Result<Self, AgentKeyError> {
        let is_host = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        let fits = |text: &str, max: usize, is_good: &dyn Fn(char) -> bool| {
            (1..=max).contains(&text.len()) && text.chars().all(is_good)
        };
        if fits(host, HOST_BYTES_MAX, &is_host)
            && fits(session, PART_BYTES_MAX, &is_part)
            && agent.is_none_or(|agent| fits(agent, PART_BYTES_MAX, &is_part))
        {
            return Ok(Self {
                host: host.to_owned(),
                session: session.to_owned(),
                agent: agent.map(ToOwned::to_owned),
            });
        }
        Err(AgentKeyError)
    }

    /// The program that runs the agents, as `claude`.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The session, as its host calls it.
    pub fn session(&self) -> &str {
        &self.session
    }

    /// The agent within its session; `None` for the whole session.
    pub fn agent(&self) -> Option<&str> {
        self.agent.as_deref()
    }

    /// The key of the whole session.
    #[must_use]
    pub fn of_session(&self) -> Self {
        Self {
            agent: None,
            ..self.clone()
        }
    }

    /// Whether this key speaks for `other`: it is the same, or the key of its whole session.
    pub fn covers(&self, other: &Self) -> bool {
        self.host == other.host
            && self.session == other.session
            && (self.agent.is_none() || self.agent == other.agent)
    }
}

impl core::str::FromStr for AgentKey {
    type Err = AgentKeyError;

    fn from_str(text: &str) -> Result<Self, AgentKeyError> {
        let (host, rest) = text.split_once('/').ok_or(AgentKeyError)?;
        match rest.split_once('/') {
            Some((session, agent)) => Self::new(host, session, Some(agent)),
            None => Self::new(host, rest, None),
        }
    }
}

impl fmt::Display for AgentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.session)?;
        match &self.agent {
            Some(agent) => write!(f, "/{agent}"),
            None => Ok(()),
        }
    }
}

/// A text is no [`AgentKey`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentKeyError;

impl fmt::Display for AgentKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "write HOST/SESSION or HOST/SESSION/AGENT, with a HOST of 1 to 32 of a-z 0-9 and -, the others of 1 \
             to 128 of A-Z a-z 0-9 _ . and -",
        )
    }
}

impl core::error::Error for AgentKeyError {}

impl Holder {
    /// Names the agent that the claim is made for.
    pub fn set_agent(&mut self, agent: &AgentKey) {
        self.set_fact(AGENT, agent.to_string());
    }

    /// The agent that the claim was made for, if it names one.
    pub fn agent(&self) -> Option<AgentKey> {
        self.fact(AGENT)?.parse().ok()
    }

    /// Says that the caller chose the ttl of the hold, which then counts where its process cannot be seen.
    pub fn set_ttl_chosen(&mut self) {
        self.set_fact(TTL_CHOSEN, "chosen".into());
    }

    /// Whether the caller chose the ttl.
    pub(crate) fn is_ttl_chosen(&self) -> bool {
        self.fact(TTL_CHOSEN).is_some()
    }

    /// Says at which age the hold ends, whatever is renewed.
    pub fn set_max_age_ms(&mut self, max_age_ms: u64) {
        self.set_fact(MAX_AGE, max_age_ms.to_string());
    }

    /// The age at which the hold ends, in milliseconds; `None` if its age does not matter.
    pub fn max_age_ms(&self) -> Option<u64> {
        self.fact(MAX_AGE)?.parse().ok()
    }

    /// Says which path is leased, for people.
    pub fn set_path(&mut self, path: &str) {
        self.set_fact(PATH, path.to_owned());
    }

    /// The path that is leased; `None` for a lock with a name of its own.
    pub fn path(&self) -> Option<&str> {
        self.fact(PATH)
    }
}

impl Claim {
    /// Whether the silence of its agent ends this hold, though the process that it names goes on.
    ///
    /// The process of such a claim is the host of all agents of a session, and of an idle terminal too. Its life
    /// proves nothing about the work of a single agent. A row that never believes a heartbeat does not believe this
    /// one either.
    pub fn ends_by_silence(&self, policy: &Policy) -> bool {
        self.is_limited(policy) && self.holder.fact(AGENT).is_some()
    }

    /// The age at which this hold ends under this row, in milliseconds.
    pub(crate) fn age_limit_ms(&self, policy: &Policy) -> Option<u64> {
        if self.is_limited(policy) {
            self.holder.max_age_ms()
        } else {
            None
        }
    }

    fn is_limited(&self, policy: &Policy) -> bool {
        self.kind == Kind::Detached
            && self.token.is_some()
            && policy.unknown_life == UnknownLife::AliveUntilTtl
    }

    /// The time until this hold ends by a limit of its own, in milliseconds, though its process lives; `None` for
    /// a hold without such a limit. A renewal may put it off.
    pub fn limited_ms(&self, policy: &Policy, now: &Now) -> Option<u64> {
        let boot = self.boot();
        let since = self.since.unwrap_or(self.entered);
        let by_age = self
            .age_limit_ms(policy)
            .map(|limit| limit.saturating_sub(since.age_ms(boot, now)));
        let by_silence = self
            .ends_by_silence(policy)
            .then(|| self.lease.remaining_ms(boot, now));
        match (by_age, by_silence) {
            (Some(age), Some(silence)) => Some(age.min(silence)),
            (age, silence) => age.or(silence),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> AgentKey {
        text.parse().expect("a key")
    }

    #[test]
    fn a_key_is_shown_as_it_was_written() {
        for text in ["claude/1f3c", "codex/9b.2_A-z/a6b4", "a-1/5/-"] {
            assert_eq!(key(text).to_string(), text);
        }
        let agent = key("claude/1f3c/a6b4");
        assert_eq!(
            (agent.host(), agent.session(), agent.agent()),
            ("claude", "1f3c", Some("a6b4"))
        );
        assert_eq!(agent.of_session(), key("claude/1f3c"));
    }

    #[test]
    fn what_is_no_key_is_refused_in_one_sentence() {
        for bad in [
            "",
            "claude",
            "claude/",
            "/1f3c",
            "Claude/1f3c",
            "claude/1f3c/",
            "claude/1f3c/a/b",
            "claude/1 f",
            "claude/1f3c/é",
            "clau_de/1",
            "claude/1\n",
        ] {
            assert_eq!(bad.parse::<AgentKey>(), Err(AgentKeyError), "{bad:?}");
        }
        assert!(AgentKey::new(&"a".repeat(32), &"s".repeat(128), Some(&"b".repeat(128))).is_ok());
        assert!(AgentKey::new(&"a".repeat(33), "s", None).is_err());
        assert!(AgentKey::new("a", &"s".repeat(129), None).is_err());
    }

    #[test]
    fn a_session_speaks_for_its_agents_and_an_agent_for_itself() {
        let session = key("claude/1f3c");
        let agent = key("claude/1f3c/a6b4");
        assert!(session.covers(&session) && session.covers(&agent));
        assert!(agent.covers(&agent) && !agent.covers(&session));
        assert!(!agent.covers(&key("claude/1f3c/b")));
        assert!(!session.covers(&key("claude/1f3c2")));
        assert!(!session.covers(&key("codex/1f3c")));
    }
}
