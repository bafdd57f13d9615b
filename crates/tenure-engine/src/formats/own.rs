//! What tenure adds to a published record, under the one extra key `tenure`: the fencing token and the
//! identity of the process. The identity tells a process number that was used again from its first owner.
//!
//! Every field may be missing: a record of another program has none of them, and is respected by what its
//! own format says.

use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tenure_core::{Claim, Host, Kind, Process, RequestId, Stamp};

/// The extra key's object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Own {
    /// The fencing token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<u64>,
    /// The request id, where the format has no unique name for the owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request_id: Option<String>,
    /// The time to live, where the format has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ttl_ms: Option<u64>,
    /// When the process started, in clock ticks since boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) started: Option<u64>,
    /// The host name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<String>,
    /// The machine id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) machine_id: Option<String>,
    /// The boot id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) boot_id: Option<String>,
    /// The PID namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pid_namespace: Option<u64>,
    /// On whose behalf.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) actor: Option<String>,
    /// What for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
}

impl Own {
    /// What is added to the record of a claim: the token and the process. A format adds what else
    /// it has no key of its own for.
    pub(crate) fn of(claim: &Claim) -> Self {
        let host = &claim.holder.host;
        Self {
            token: claim.token,
            started: claim.holder.process.and_then(|process| process.started),
            machine_id: host.machine_id.clone(),
            boot_id: host.boot_id.clone(),
            pid_namespace: host.pid_namespace,
            ..Self::default()
        }
    }

    /// Puts what was added into a claim that was read from the format's own keys.
    ///
    /// Where the process was recorded is known only if the record names the boot; otherwise the
    /// claim's host stays as the format said.
    pub(crate) fn apply(self, claim: &mut Claim) {
        let holder = &mut claim.holder;
        claim.token = self.token.or(claim.token);
        if let Some(id) = self.request_id {
            holder.request_id = RequestId::as_recorded(&id);
        }
        if let Some(ttl_ms) = self.ttl_ms {
            claim.lease.ttl_ms = ttl_ms;
        }
        if self.boot_id.is_some() {
            holder.host = Arc::new(Host {
                name: self.host.unwrap_or_else(|| holder.host.name.clone()),
                machine_id: self.machine_id,
                boot_id: self.boot_id,
                pid_namespace: self.pid_namespace,
            });
            if let Some(process) = &mut holder.process {
                process.started = self.started;
            }
        }
        if let Some(actor) = self.actor {
            holder.actor = actor;
        }
        if let Some(why) = self.why {
            holder.why = why;
        }
    }
}

/// A claim as a format's own keys say it, to begin with.
pub(crate) fn foreign(request_id: &str, pid: Option<u32>, host: Host, since_ms: u64) -> Claim {
    let at = Stamp {
        wall_ms: since_ms,
        boot_ms: Stamp::OTHER_BOOT,
    };
    let mut claim = Claim::new(
        0,
        Kind::Foreign,
        tenure_core::Holder {
            request_id: RequestId::as_recorded(request_id),
            actor: String::new(),
            process: pid.map(|pid| Process { pid, started: None }),
            command: None,
            host: host.into(),
            why: String::new(),
            facts: Vec::new(),
        },
        at,
        tenure_core::Lease {
            ttl_ms: 0,
            renewed: at,
            renewals: 0,
        },
    );
    // A hold without a token of tenure's counts as granted all the same; no token is ever 0.
    claim.token = Some(0);
    claim.since = Some(at);
    claim
}
