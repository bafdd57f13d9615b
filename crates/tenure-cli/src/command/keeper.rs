//! The process that keeps the lease of a hold that belongs to another one: a fact of each claim that a serve makes on
//! servers.
//!
//! In files a kernel lock says it, and ends with the process. A lease on a server goes on for up to its ttl after the
//! death of a serve. A new serve of the same program could not adopt before, and other machines could have the lock by then.

use tenure_core::Process;
#[cfg(unix)]
use tenure_core::{Claim, Host, Liveness};
#[cfg(unix)]
use tenure_os::process::liveness;

/// The name of the fact.
const KEY: &str = "serve";

/// The fact that this process keeps the lease.
pub(super) fn mark(keeper: Process) -> (&'static str, String) {
    let started = keeper.started.unwrap_or_default();
    (KEY, format!("{}/{started}", keeper.pid))
}

/// Whether the process that keeps the claim's lease is proven dead. It ran in the namespace of the holder, which
/// the caller has compared with its own.
#[cfg(unix)]
pub(super) fn is_dead(claim: &Claim, here: &Host) -> bool {
    let written = claim.holder.fact(KEY).and_then(|fact| fact.split_once('/'));
    let keeper = written.and_then(|(pid, started)| {
        Some(Process {
            pid: pid.parse().ok()?,
            started: Some(started.parse().ok().filter(|started| *started != 0)?),
        })
    });
    keeper.is_some_and(|keeper| {
        matches!(
            liveness(&keeper, &claim.holder.host, here, false),
            Liveness::Dead(_)
        )
    })
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::process;
    use tenure_core::{Kind, Lease, RequestId, Stamp};
    use tenure_os::process::Identity;

    fn kept_by(fact: &str, host: &Host) -> Claim {
        let holder = tenure_core::Holder {
            request_id: RequestId::as_recorded("r-1"),
            actor: String::new(),
            process: None,
            command: None,
            host: host.clone().into(),
            why: String::new(),
            facts: vec![(KEY.to_owned(), fact.to_owned())],
        };
        let lease = Lease {
            ttl_ms: 1_000,
            renewed: Stamp::default(),
            renewals: 0,
        };
        Claim::new(1, Kind::Kernel, holder, Stamp::default(), lease)
    }

    #[test]
    fn only_a_keeper_that_is_proven_dead_is_dead() {
        let identity = Identity::current();
        let here = &identity.host;
        let (_, own) = mark(identity.process);
        assert!(!is_dead(&kept_by(&own, here), here), "this process lives");
        let earlier = format!("{}/1", process::id());
        assert!(
            is_dead(&kept_by(&earlier, here), here),
            "this number belonged to a process that started with the machine"
        );
        for fact in ["", "7", "7/", "/7", "x/y", "7/0"] {
            assert!(
                !is_dead(&kept_by(fact, here), here),
                "{fact:?} proves nothing"
            );
        }
    }
}
