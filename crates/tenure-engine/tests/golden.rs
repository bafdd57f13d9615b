//! The four published formats, byte for byte: what we write, what other programs have written, and what
//! happens to both when bytes are damaged.

#![allow(clippy::expect_used, reason = "a test says what it expects by failing")]

use std::time::Duration;
use tenure_core::{Claim, Holder, Host, Kind, Lease, LockName, Now, Process, RequestId, Stamp};
use tenure_engine::formats::{Fleet, Resume, Session, Sprint};
use tenure_os::clock::instant;
use tenure_store::profile::Profile;

/// 2026-02-07T10:00:00.250Z.
const AT_MS: u64 = 1_770_458_400_250;

/// How long the reading of one damaged record may take, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);

macro_rules! golden {
    ($file:literal) => {
        include_bytes!(concat!("golden/", $file)).as_slice()
    };
}

struct Case {
    profile: Box<dyn Profile>,
    lock: &'static str,
    ours: &'static [u8],
    foreign: &'static [u8],
}

fn cases() -> Vec<Case> {
    vec![
        Case {
            profile: Box::new(Sprint::default()),
            lock: "sprint",
            ours: golden!("sprint/ours.yaml"),
            foreign: golden!("sprint/foreign.yaml"),
        },
        Case {
            profile: Box::new(Resume),
            lock: "job-7",
            ours: golden!("resume/ours.lock"),
            foreign: golden!("resume/foreign.lock"),
        },
        Case {
            profile: Box::new(Session::default()),
            lock: "42",
            ours: golden!("session/ours.lock"),
            foreign: golden!("session/foreign.lock"),
        },
        Case {
            profile: Box::new(Fleet),
            lock: "money-tracker-production",
            ours: golden!("fleet/ours.lock"),
            foreign: golden!("fleet/foreign.lock"),
        },
    ]
}

impl Case {
    fn name(&self) -> LockName {
        LockName::new(self.lock).expect("an accepted name")
    }

    fn encode(&self, claim: &Claim, previous: Option<&[u8]>) -> Result<Vec<u8>, String> {
        let record = self.profile.record().expect("a published format");
        record.encode(&self.name(), claim, previous)
    }

    fn decode(&self, bytes: &[u8]) -> Result<Claim, String> {
        let record = self.profile.record().expect("a published format");
        record.decode(&self.name(), bytes, &now(), &here())
    }

    fn system(&self) -> &'static str {
        self.profile.policy().name
    }
}

fn now() -> Now {
    Now {
        wall_us: (AT_MS + 5_000) * 1_000,
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

fn claim() -> Claim {
    let at = Stamp {
        wall_ms: AT_MS,
        boot_ms: 100_000,
    };
    let facts = [
        (
            "epic_spec",
            "epic 5: \"locks\"\n- first\u{85}then\u{2028}é 🔒",
        ),
        ("runId", "1234567890"),
        ("intent", "deploy"),
        ("intent_version", "1.2.0"),
        ("metadata.ticket", "OPS-1"),
    ];
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
    claim.token = Some(1_770_458_400_250_000);
    claim.since = Some(at);
    claim
}

#[test]
fn a_record_of_ours_is_written_byte_for_byte() {
    for case in cases() {
        let bytes = case.encode(&claim(), None).expect("a record");
        assert_eq!(
            String::from_utf8_lossy(&bytes),
            String::from_utf8_lossy(case.ours),
            "{}: what other programs read must not change unnoticed",
            case.system()
        );
    }
}

#[test]
fn a_record_of_ours_is_read_as_it_was_meant() {
    for case in cases() {
        let system = case.system();
        let (read, written) = (case.decode(case.ours).expect(system), claim());
        assert_eq!(read.kind, Kind::Foreign, "{system}");
        assert_eq!(read.token, written.token, "{system}: the token");
        let (a, b) = (&read.holder, &written.holder);
        assert_eq!(a.request_id, b.request_id, "{system}: the owner");
        assert_eq!(a.process, b.process, "{system}: the process");
        assert_eq!(a.host, b.host, "{system}: the host");
        assert_eq!(a.actor, b.actor, "{system}: on whose behalf");
        assert_eq!(a.why, b.why, "{system}: what for");
        for (key, value) in &a.facts {
            if key != "host_id" {
                assert_eq!(b.fact(key), Some(value.as_str()), "{system}: {key}");
            }
        }
        // The fleet's times are whole seconds.
        let wall_ms = if system == "fleet" {
            AT_MS - 250
        } else {
            AT_MS
        };
        assert_eq!(read.since.map(|at| at.wall_ms), Some(wall_ms), "{system}");
        assert_eq!(read.lease.renewed.wall_ms, wall_ms, "{system}");
        assert_eq!(read.lease.ttl_ms, written.lease.ttl_ms, "{system}");
    }
}

#[test]
fn a_record_of_another_program_is_understood() {
    for case in cases() {
        let system = case.system();
        let read = case.decode(case.foreign).expect(system);
        let pid = read.holder.process.map(|process| process.pid);
        assert_eq!(pid, Some(31_337), "{system}");
        assert_eq!(read.token, Some(0), "{system}: it has no token of ours");
        assert_eq!(read.ticket, 0, "{system}: it stands before all others");
        let since_ms = match system {
            "resume" => 1_714_557_600_123,
            _ => 1_770_458_400_000,
        };
        assert_eq!(read.since.map(|at| at.wall_ms), Some(since_ms), "{system}");
        let (owner, fact) = match system {
            "sprint" => ("sprint-2026-02-07-001", ("epic_spec", "epic5")),
            "session" => ("9876543210", ("runId", "9876543210")),
            "fleet" => ("req_abcdef012345", ("intent", "deploy-service")),
            _ => ("", ("", "")),
        };
        assert_eq!(read.holder.request_id.as_str(), owner, "{system}");
        if system == "resume" {
            assert_eq!(
                read.holder.host,
                here().into(),
                "the host that it names is this one"
            );
            assert!(read.holder.facts.is_empty(), "it has no more to say");
        } else {
            assert_eq!(read.holder.fact(fact.0), Some(fact.1), "{system}");
        }
    }
}

#[test]
fn a_heartbeat_changes_the_renewed_time_alone() {
    let mut renewed = claim();
    renewed.lease.renewed.wall_ms += 60_000;
    for case in cases() {
        let system = case.system();
        for previous in [case.ours, case.foreign] {
            let bytes = case.encode(&renewed, Some(previous)).expect(system);
            let before = String::from_utf8_lossy(previous);
            let after = String::from_utf8_lossy(&bytes);
            let changed: Vec<&str> = after
                .lines()
                .zip(before.lines())
                .filter_map(|(after, before)| (after != before).then_some(after.trim()))
                .collect();
            let expected: &[&str] = match system {
                "session" => &["\"acquiredAt\": \"2026-02-07T10:01:00.250Z\","],
                "fleet" => &["\"last_heartbeat_at\": \"2026-02-07T10:01:00Z\","],
                _ => &[],
            };
            assert_eq!(changed, expected, "{system}");
            assert_eq!(after.lines().count(), before.lines().count(), "{system}");
        }
    }
}

/// Knuth's generator: the same damage in every run.
struct Damage(u64);

impl Damage {
    fn draw(&mut self, below: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % below.max(1)
    }

    fn strike(&mut self, bytes: &mut Vec<u8>) {
        const TELLING: &[u8] = b"\"\\{}[],:-?&*!|>%@#~ \t\r\n\0\x1b0129.eETZ+<='\xff\xc3";
        let at = self.draw(bytes.len());
        match self.draw(6) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..(at + self.draw(9)).min(bytes.len()))),
            2 => bytes.insert(at, TELLING[self.draw(TELLING.len())]),
            3 => {
                let copied = bytes[at..(at + self.draw(40)).min(bytes.len())].to_vec();
                let to = self.draw(bytes.len());
                bytes.splice(to..to, copied);
            }
            _ if bytes.is_empty() => {}
            4 => bytes[at] = TELLING[self.draw(TELLING.len())],
            _ => bytes[at] ^= 1 << self.draw(8),
        }
    }
}

#[test]
fn damaged_records_are_read_or_refused_and_never_more() {
    let mut damage = Damage(0x7E_4E);
    for case in cases() {
        let mut refused = 0;
        for round in 0..4_000 {
            let golden = if round % 2 == 0 {
                case.ours
            } else {
                case.foreign
            };
            let mut bytes = golden.to_vec();
            for _ in 0..=damage.draw(4) {
                damage.strike(&mut bytes);
            }
            let began = instant();
            if let Err(why) = case.decode(&bytes) {
                refused += 1;
                assert!(why.chars().count() < 400, "a short sentence: {why}");
                assert!(!why.contains(char::is_control), "on one line: {why:?}");
            }
            // A previous record in the file may be damaged as well.
            let renewed = case.encode(&claim(), Some(&bytes));
            if case.decode(&bytes).is_ok() && renewed.is_ok() {
                let again = renewed.map(|bytes| case.decode(&bytes));
                assert!(
                    matches!(again, Ok(Ok(_))),
                    "{}: a renewal keeps a record readable: {}",
                    case.system(),
                    String::from_utf8_lossy(&bytes)
                );
            }
            assert!(
                instant().saturating_duration_since(began) < PATIENCE,
                "{}: {}",
                case.system(),
                String::from_utf8_lossy(&bytes)
            );
        }
        assert!(refused > 500, "{}: most damage is seen", case.system());
    }
}

#[test]
fn records_beyond_a_mebibyte_are_refused_unread() {
    for case in cases() {
        for filler in [b' ', b'\n', b'[', b'0', 0xff] {
            let error = case.decode(&vec![filler; (1 << 20) + 1]);
            assert_eq!(
                error,
                Err("it is larger than 1048576 bytes".to_owned()),
                "{}",
                case.system()
            );
        }
    }
}
