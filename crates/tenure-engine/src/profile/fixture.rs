//! One claim that the tests of every format write and read again.

use tenure_core::{Claim, Holder, Host, Kind, Lease, LockName, Now, Process, RequestId, Stamp};

/// 2026-02-07T10:00:00Z.
pub(super) const AT_MS: u64 = 1_770_458_400_000;

pub(super) fn name(name: &str) -> LockName {
    LockName::new(name).expect("an accepted name")
}

/// Five seconds after the grant.
pub(super) fn now() -> Now {
    Now {
        wall_us: (AT_MS + 5_000) * 1_000,
        boot_ms: 105_000,
        boot_id: "boot-a".to_owned(),
    }
}

pub(super) fn here() -> Host {
    Host {
        name: "build-7".to_owned(),
        machine_id: Some("machine-a".to_owned()),
        boot_id: Some("boot-a".to_owned()),
        pid_namespace: Some(4_026_531_836),
    }
}

pub(super) fn claim(facts: &[(&str, &str)]) -> Claim {
    let at = Stamp {
        wall_ms: AT_MS,
        boot_ms: 100_000,
    };
    let mut claim = Claim::new(
        3,
        Kind::Detached,
        Holder {
            request_id: RequestId::new("req_0123456789ab").expect("an accepted id"),
            actor: "ada".to_owned(),
            process: Some(Process {
                pid: 4_242,
                started: Some(987_654),
            }),
            command: None,
            host: here(),
            why: "make deploy".to_owned(),
            facts: facts
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
        },
        at,
        Lease {
            ttl_ms: 900_000,
            renewed: at,
            renewals: 0,
        },
    );
    claim.token = Some(1_770_458_400_000_123);
    claim.since = Some(at);
    claim
}

/// Asserts that reading gave back what decides.
pub(super) fn assert_same(read: &Claim, written: &Claim) {
    assert_eq!(read.kind, Kind::Foreign, "a record is all that is known");
    assert_eq!(read.ticket, 0, "it stands before all others");
    assert_eq!(read.token, written.token, "the token");
    let (a, b) = (&read.holder, &written.holder);
    assert_eq!(a.request_id, b.request_id, "the owner");
    assert_eq!(a.process, b.process, "the process");
    assert_eq!(a.host, b.host, "where the process was recorded");
    assert_eq!(a.actor, b.actor, "on whose behalf");
    assert_eq!(a.why, b.why, "what for");
    for (key, value) in &b.facts {
        assert_eq!(a.fact(key), Some(value.as_str()), "the fact {key}");
    }
    let wall = |stamp: Option<Stamp>| stamp.map(|stamp| stamp.wall_ms);
    assert_eq!(wall(read.since), wall(written.since), "since when");
    assert_eq!(
        read.lease.renewed.wall_ms, written.lease.renewed.wall_ms,
        "the last renewal"
    );
    assert_eq!(read.lease.ttl_ms, written.lease.ttl_ms, "the ttl");
    assert_eq!(
        read.lease.renewed.boot_ms,
        Stamp::OTHER_BOOT,
        "a record's instants carry the wall clock alone"
    );
}
