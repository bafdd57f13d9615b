//! How an agent is shown: to programs, in envelopes and in the audit, and to people.
//!
//! What an agent's key is made of is in the core (`agent`).

use tenure_core::{AgentKey, Claim};

/// An agent, as a claim names it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "full", derive(serde::Serialize))]
pub struct AgentView {
    /// The whole key.
    pub key: String,
    /// The program that runs it.
    pub host: String,
    /// Session of the agent.
    pub session: String,
    /// The agent within the session; `None` for the session itself.
    pub agent: Option<String>,
}

impl From<&AgentKey> for AgentView {
    fn from(key: &AgentKey) -> Self {
        Self {
            key: key.to_string(),
            host: key.host().to_owned(),
            session: key.session().to_owned(),
            agent: key.agent().map(str::to_owned),
        }
    }
}

impl AgentView {
    /// The agent that a claim names, if it names one.
    pub fn of(claim: &Claim) -> Option<Self> {
        claim.holder.agent().as_ref().map(Self::from)
    }

    /// For people: `claude 1f3c/a6b4`.
    pub fn words(&self) -> String {
        match &self.agent {
            Some(agent) => format!("{} {}/{agent}", self.host, self.session),
            None => format!("{} {}", self.host, self.session),
        }
    }
}
