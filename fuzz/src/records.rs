//! The four published formats.

use super::draw::Draw;
use tenure_core::{Claim, Holder, Host, Kind, Lease, LockName, Now, Process, RequestId, Stamp};
use tenure_engine::formats::{Fleet, Resume, Session, Sprint};
use tenure_store::profile::Profile;

/// 2026-02-07T10:00:05.250Z.
const NOW_MS: u64 = 1_770_458_405_250;

fn now() -> Now {
    Now {
        wall_us: NOW_MS * 1_000,
        boot_ms: 105_000,
        boot_id: "11111111-2222-3333-4444-555555555555".into(),
    }
}

fn here() -> Host {
    Host {
        name: "build-7".to_owned(),
        machine_id: Some("0123456789abcdef0123456789abcdef".to_owned()),
        boot_id: Some("11111111-2222-3333-4444-555555555555".to_owned()),
        pid_namespace: Some(4_026_531_836),
    }
}

pub fn sprint(data: &[u8]) {
    read(&Sprint::default(), "sprint", data);
}

pub fn resume(data: &[u8]) {
    read(&Resume, "job-7", data);
}

pub fn session(data: &[u8]) {
    read(&Session::default(), "42", data);
}

pub fn fleet(data: &[u8]) {
    read(&Fleet, "money-tracker-production", data);
}

/// A record is refused in one line, or it is a hold of the kind that records are; then a renewal
/// keeps it readable and changes nothing but its time, and written anew in the same holder's name
/// it says the same about whoever holds.
fn read(profile: &dyn Profile, lock: &str, bytes: &[u8]) {
    let name = LockName::new(lock).expect("a name");
    let record = profile.record().expect("a format");
    let claim = match record.decode(&name, bytes, &now(), &here()) {
        Ok(claim) => claim,
        Err(why) => return super::is_a_line(&why),
    };
    assert!(matches!(claim.kind, Kind::Foreign | Kind::Sealed));
    assert_eq!(claim.ticket, 0, "it stands before all others");
    assert!(claim.token.is_some(), "a record is a hold");
    assert_eq!(
        claim.since.map(|at| at.boot_ms),
        Some(Stamp::OTHER_BOOT),
        "its instants are those of the wall clock"
    );
    let mut renewed = claim.clone();
    renewed.lease.renewed.wall_ms = NOW_MS;
    match record.encode(&name, &renewed, Some(bytes)) {
        Ok(again) => {
            let mut read = record
                .decode(&name, &again, &now(), &here())
                .expect("a renewal keeps a record readable");
            // Where the format has one time, a renewal moves the grant as well; one that lay in
            // the future no longer does.
            (read.since, read.entered, read.lease) = (claim.since, claim.entered, claim.lease);
            let mut before = claim.clone();
            for facts in [&mut read.holder.facts, &mut before.holder.facts] {
                facts.retain(|(key, _)| key != "future");
            }
            assert_eq!(read, before, "a renewal changes times alone");
        }
        Err(why) => super::is_a_line(&why),
    }
    if claim.kind == Kind::Sealed {
        return;
    }
    if let Ok(anew) = record.encode(&name, &claim, None) {
        let read = record.decode(&name, &anew, &now(), &here());
        same(&read.expect("what is written is read"), &claim, profile);
    }
}

/// What is written of any hold is read as the same hold.
pub fn claims(data: &[u8]) {
    let mut draw = Draw(data);
    let (profile, lock): (&dyn Profile, _) = match draw.below(4) {
        0 => (&Sprint::default(), "sprint"),
        1 => (&Resume, "job-7"),
        2 => (&Session::default(), "42"),
        _ => (&Fleet, "money-tracker-production"),
    };
    let claim = drawn(&mut draw);
    let name = LockName::new(lock).expect("a name");
    let record = profile.record().expect("a format");
    match record.encode(&name, &claim, None) {
        Ok(bytes) => {
            let read = record.decode(&name, &bytes, &now(), &here());
            same(&read.expect("what is written is read"), &claim, profile);
        }
        Err(why) => super::is_a_line(&why),
    }
}

fn drawn(draw: &mut Draw<'_>) -> Claim {
    let wall_ms = NOW_MS - draw.number() % (NOW_MS + 1);
    let at = Stamp {
        wall_ms,
        boot_ms: draw.number(),
    };
    let mut facts = vec![
        ("intent".to_owned(), draw.text()),
        ("intent_version".to_owned(), draw.text()),
    ];
    for key in [
        "epic_spec",
        "runId",
        "host_id",
        "metadata.a",
        "metadata.\u{1b}\"b",
    ] {
        if let Some(value) = draw.some(Draw::text) {
            facts.push((key.to_owned(), value));
        }
    }
    let mut claim = Claim::new(
        3,
        Kind::Detached,
        Holder {
            request_id: RequestId::new(draw.name()).expect("letters of names"),
            actor: draw.text(),
            process: draw.some(|draw| Process {
                pid: 1 + u32::from(draw.byte()) * 65_537,
                started: draw.some(Draw::number),
            }),
            command: None,
            host: std::sync::Arc::new(Host {
                name: draw.text(),
                machine_id: draw.some(Draw::text),
                boot_id: draw.some(Draw::text),
                pid_namespace: draw.some(Draw::number),
            }),
            why: draw.text(),
            facts,
        },
        at,
        Lease {
            ttl_ms: draw.number(),
            renewed: at,
            renewals: 0,
        },
    );
    claim.token = Some(draw.number());
    claim.since = Some(at);
    claim
}

/// What decides, and what people read.
fn same(read: &Claim, written: &Claim, profile: &dyn Profile) {
    let fleet = profile.policy().name == "fleet";
    let (a, b) = (&read.holder, &written.holder);
    assert_eq!(read.token, written.token, "the token");
    assert_eq!(a.request_id, b.request_id, "the owner");
    if let Some(process) = b.process {
        assert_eq!(a.process.map(|process| process.pid), Some(process.pid));
    }
    // Where the process was is known by the boot; without one, nothing is said.
    if b.host.boot_id.is_some() {
        if b.process.is_some() {
            assert_eq!(a.process, b.process, "which process it was");
        }
        assert_eq!(a.host.machine_id, b.host.machine_id, "the machine");
        assert_eq!(a.host.boot_id, b.host.boot_id, "the boot");
        assert_eq!(a.host.pid_namespace, b.host.pid_namespace, "the namespace");
    }
    // The fleet's times are whole seconds.
    let unit = if fleet { 1_000 } else { 1 };
    let wall = |at: Stamp| at.wall_ms / unit;
    assert_eq!(read.since.map(wall), written.since.map(wall), "since when");
    assert_eq!(
        wall(read.lease.renewed),
        wall(written.lease.renewed),
        "the last sign of life"
    );
    let ttl_ms = written.lease.ttl_ms;
    let expected = if fleet {
        ttl_ms.div_ceil(1_000) * 1_000
    } else {
        ttl_ms
    };
    assert_eq!(read.lease.ttl_ms, expected, "the ttl");
    if !b.actor.is_empty() {
        assert_eq!(a.actor, b.actor, "on whose behalf");
    }
    if !b.why.is_empty() {
        assert_eq!(a.why, b.why, "what for");
    }
    for (key, value) in &b.facts {
        let kept = match profile.policy().name {
            "sprint" => key == "epic_spec",
            "session" => key == "runId",
            "fleet" => key.starts_with("metadata.") || key.starts_with("intent"),
            _ => false,
        };
        assert!(!kept || a.fact(key) == Some(value), "the fact {key}");
    }
}
