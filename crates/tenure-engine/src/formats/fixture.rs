//! What the tests of every format share: one claim, and how its record is written and read again.

use super::Record;
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
        boot_id: "boot-a".into(),
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
            host: here().into(),
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

/// The records of one lock in one format.
pub(super) struct Records<R> {
    pub(super) format: R,
    pub(super) lock: &'static str,
}

impl<R: Record> Records<R> {
    /// What a record says, read on [`here`] at [`now`].
    pub(super) fn read(&self, text: &str) -> Result<Claim, String> {
        self.read_on(&here(), text)
    }

    /// What a record says, read on another host.
    pub(super) fn read_on(&self, host: &Host, text: &str) -> Result<Claim, String> {
        (self.format).decode(&name(self.lock), text.as_bytes(), &now(), host)
    }

    /// The record of a claim, which replaces the previous one.
    pub(super) fn written(&self, claim: &Claim, previous: Option<&str>) -> Result<String, String> {
        let previous = previous.map(str::as_bytes);
        let bytes = self.format.encode(&name(self.lock), claim, previous)?;
        Ok(String::from_utf8(bytes).expect("text"))
    }

    /// Writes the record of a claim, reads it again, and compares what decides. Answers with the record.
    #[track_caller]
    pub(super) fn assert_read_again(&self, claim: &Claim) -> String {
        let text = self.written(claim, None).expect("a record");
        assert_same(&self.read(&text).expect("a record of ours"), claim);
        text
    }

    /// Asserts that a record is refused where `from` became `to`, and why, for each `(from, to, why)`.
    #[track_caller]
    pub(super) fn assert_refused(&self, record: &str, changes: &[(&str, &str, &str)]) {
        for (from, to, why) in changes {
            let refused = self.read(&record.replace(from, to));
            assert_eq!(refused, Err((*why).to_owned()), "{from} became {to}");
        }
    }

    /// Asserts that a renewal keeps a previous record but for `from`, which becomes `to`, and that it does
    /// not replace one that cannot be read.
    #[track_caller]
    pub(super) fn assert_renewed(&self, claim: &Claim, previous: &str, from: &str, to: &str) {
        assert_eq!(
            self.written(claim, Some(previous)),
            Ok(previous.replace(from, to)),
            "nested and unknown fields, their order and their spelling stay"
        );
        for torn in ["", "{", "[]", "{\"pid\": 1}"] {
            let renewed = self.written(claim, Some(torn));
            assert!(renewed.is_err(), "{torn:?} is not renewed");
        }
    }
}

/// A claim that holds nothing yet.
pub(super) fn waiting(mut claim: Claim) -> Claim {
    claim.since = None;
    claim
}

/// A claim without a process.
pub(super) fn without_process(mut claim: Claim) -> Claim {
    claim.holder.process = None;
    claim
}

pub(super) fn pid_of(claim: &Claim) -> Option<u32> {
    claim.holder.process.map(|process| process.pid)
}

pub(super) fn since_ms(claim: &Claim) -> Option<u64> {
    claim.since.map(|at| at.wall_ms)
}

/// Asserts that reading gave back what decides.
#[track_caller]
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
    assert_eq!(since_ms(read), since_ms(written), "since when");
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
