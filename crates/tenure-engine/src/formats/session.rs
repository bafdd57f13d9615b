//! The session profile: what stands in `locks/<N>.lock`, four fields of JSON by which runs for one issue do
//! not overlap. It also says after which silence such a lock no longer counts.
//!
//! The format has no place for when a hold really began, and how often it was renewed: a renewal rewrites
//! its only time. The coordination file keeps both.

use super::{FolderRules, Profile, Record, document, instant, own};
use serde_json::Value;
use std::path::{Path, PathBuf};
use tenure_core::{AgeLimit, AgeRule, Claim, Host, LockName, Now, Policy};
use tenure_store::profile::RUN;

/// The profile.
#[derive(Debug, Clone, Copy, Default)]
pub struct Session {
    stale_after_ms: Option<u64>,
}

impl Session {
    /// The profile with another age, in milliseconds, at which a lock becomes stale.
    pub fn stale_after_ms(stale_after_ms: u64) -> Self {
        Self {
            stale_after_ms: Some(stale_after_ms),
        }
    }
}

impl Profile for Session {
    fn policy(&self) -> Policy {
        let Some(limit_ms) = self.stale_after_ms else {
            return Policy::SESSION;
        };
        Policy {
            age: Some(AgeRule {
                limit: AgeLimit::SilenceMs(limit_ms),
                inclusive: true,
                whole_seconds: false,
            }),
            supervised_ttl_ms: limit_ms,
            detached_ttl_ms: limit_ms,
            ..Policy::SESSION
        }
    }

    fn folder(&self, place: &Path) -> PathBuf {
        place.join("locks")
    }

    fn place(&self) -> FolderRules {
        FolderRules {
            ignored: true,
            ..FolderRules::default()
        }
    }

    fn check_name(&self, name: &LockName) -> Result<(), String> {
        issue(name).map(|_| ())
    }

    fn file_name(&self, name: &LockName) -> String {
        format!("{name}.lock")
    }

    fn name_of(&self, file: &str) -> Option<LockName> {
        let name = LockName::new(file.strip_suffix(".lock")?).ok()?;
        self.check_name(&name).is_ok().then_some(name)
    }

    fn record(&self) -> Option<&dyn Record> {
        Some(self)
    }
}

/// The issue's number. Without leading zeros, so that one issue has one file.
fn issue(name: &LockName) -> Result<u64, String> {
    let digits = name.as_str();
    let decimal = digits.bytes().all(|byte| byte.is_ascii_digit());
    if !decimal || (digits.len() > 1 && digits.starts_with('0')) {
        return Err("is not an issue number: digits alone, without leading zeros".to_owned());
    }
    digits
        .parse()
        .map_err(|_| "is too large for an issue number".to_owned())
}

impl Record for Session {
    /// A heartbeat rewrites `acquiredAt`, the only time that other tools read. A claim without a
    /// process is written with the process id of its fact `pid`, else 0.
    fn encode(
        &self,
        name: &LockName,
        claim: &Claim,
        previous: Option<&[u8]>,
    ) -> Result<Vec<u8>, String> {
        let acquired_at = instant::milliseconds(claim.lease.renewed)?;
        if let Some(previous) = previous {
            return document::with_text(previous, "acquiredAt", &acquired_at);
        }
        document::since(claim)?;
        let holder = &claim.holder;
        let owner = holder.request_id.as_str();
        let own = own::Own {
            // All jobs and re-runs of a run share its id.
            request_id: Some(owner.to_owned()),
            ttl_ms: Some(claim.lease.ttl_ms),
            host: document::some(&holder.host.name),
            actor: document::some(&holder.actor),
            why: document::some(&holder.why),
            ..own::Own::of(claim)
        };
        let mut object = document::Fields::default();
        object.put("issueNumber", issue(name)?);
        let run_id = holder.fact(RUN).unwrap_or(owner);
        object.put(RUN, run_id);
        object.put("acquiredAt", acquired_at);
        object.put("pid", document::pid_of(holder)?);
        object.put_object("tenure", document::Field::Own(own));
        let mut bytes = document::pretty(&object)?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// `acquiredAt` is both the grant and the last renewal. An instant in the future is taken for now, and
    /// the fact `future` says so. In a record of tenure's it stays as it is: by it the list knows the
    /// instant again, and has its boot clock. If the list does not know it, the age is 0 either way. The
    /// process is never asked about, and so has no host unless the record is tenure's.
    ///
    /// Nothing but `acquiredAt` is required, because the original program judges by nothing else. A record
    /// that only lacks or misspells another field is a live lock of another program. The file's name says
    /// which issue it is for, so `issueNumber` is not read.
    fn decode(&self, _: &LockName, bytes: &[u8], now: &Now, _: &Host) -> Result<Claim, String> {
        let mut object = document::object(bytes)?;
        let own = document::own(object.remove("tenure"));
        let run_id = run_id(object.get(RUN));
        let acquired_ms = acquired_ms(object.get("acquiredAt"))?;
        let pid = pid(object.get("pid"));
        let now_ms = now.stamp().wall_ms;
        let is_ours = own.as_ref().is_some_and(|own| own.token.is_some());
        let mut claim = own::foreign(
            &run_id,
            pid,
            Host::default(),
            if is_ours {
                acquired_ms
            } else {
                acquired_ms.min(now_ms)
            },
        );
        claim.lease.ttl_ms = self.policy().detached_ttl_ms;
        let facts = &mut claim.holder.facts;
        facts.push((RUN.to_owned(), run_id));
        if acquired_ms > now_ms {
            facts.push(document::future());
        }
        if let Some(own) = own {
            own.apply(&mut claim);
        }
        Ok(claim)
    }
}

/// The run as text, because its owner shows it as text: a number in its decimal digits. With any other
/// value no caller can be known as the owner, and no caller releases the record before it has expired.
fn run_id(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        None | Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) => {
            String::new()
        }
    }
}

/// When the lock was acquired or renewed: a text, or a number as `Date.now()` gives it. A text without a
/// zone is UTC. Taken for garbage, it would be cleaned at once, and a lock that is held some hours too long
/// is the smaller harm.
fn acquired_ms(value: Option<&Value>) -> Result<u64, String> {
    let read = match value {
        None => return Err("it has no acquiredAt".to_owned()),
        Some(Value::String(text)) => instant::as_people_write(text),
        Some(Value::Number(number)) => instant::of_epoch(&number.to_string()),
        Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) => None,
    };
    read.ok_or_else(|| "its acquiredAt is not a time".to_owned())
}

/// The process, for people alone.
fn pid(value: Option<&Value>) -> Option<u32> {
    let pid = match value? {
        Value::Number(number) => u32::try_from(number.as_u64()?).ok()?,
        Value::String(text) => text.trim().parse().ok()?,
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    (pid != 0).then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{
        AT_MS, Records, claim, here, name, now, pid_of, since_ms, without_process,
    };
    use super::*;

    const FOREIGN: &str = r#"{
  "issueNumber": 42,
  "runId": "1234567890",
  "acquiredAt": "2026-02-07T10:00:00.000Z",
  "pid": 999
}
"#;

    fn records() -> Records<Session> {
        Records {
            format: Session::default(),
            lock: "42",
        }
    }

    fn read(text: &str) -> Result<Claim, String> {
        records().read(text)
    }

    fn written(claim: &Claim, previous: Option<&str>) -> Result<String, String> {
        records().written(claim, previous)
    }

    #[test]
    fn what_was_written_is_read_again() {
        for facts in [
            [("runId", "1234567890")].as_slice(),
            &[("runId", "a \"b\"\n\u{1b}\u{7f}é\u{2028}🔒")],
            &[],
        ] {
            let text = records().assert_read_again(&claim(facts));
            assert!(text.ends_with("}\n"), "a final newline");
        }
    }

    #[test]
    fn the_run_id_is_shown_and_the_owner_token_decides() {
        let text = written(&claim(&[("runId", "77")]), None).expect("a record");
        let read = read(&text).expect("a record of ours");
        assert_eq!(read.holder.fact("runId"), Some("77"));
        assert_eq!(read.holder.request_id.as_str(), "req_0123456789ab");
    }

    #[test]
    fn a_record_of_the_original_program_is_owned_by_its_run() {
        let read = read(FOREIGN).expect("four fields are enough");
        assert_eq!(read.holder.request_id.as_str(), "1234567890");
        assert_eq!(read.holder.fact("runId"), Some("1234567890"));
        assert_eq!(read.holder.fact("future"), None);
        assert_eq!(pid_of(&read), Some(999));
        assert_eq!(*read.holder.host, Host::default(), "no host is named");
        assert_eq!(since_ms(&read), Some(AT_MS));
        assert_eq!(read.lease.renewed.wall_ms, AT_MS);
        assert_eq!(read.lease.ttl_ms, 600_000, "ten minutes");
    }

    #[test]
    fn a_time_in_the_future_is_now_and_flagged() {
        let read = read(&FOREIGN.replace("2026", "2126")).expect("a date all the same");
        assert_eq!(read.lease.renewed.wall_ms, AT_MS + 5_000, "now");
        assert_eq!(since_ms(&read), Some(AT_MS + 5_000));
        assert_eq!(read.holder.fact("future"), Some("true"));
    }

    #[test]
    fn a_time_of_ours_in_the_future_is_kept_for_the_list_to_know_it_again() {
        let mut ahead = claim(&[("runId", "1")]);
        ahead.lease.renewed.wall_ms += 3_600_000;
        let text = written(&ahead, None).expect("a record");
        let read = read(&text).expect("a record of ours");
        assert_eq!(read.lease.renewed.wall_ms, AT_MS + 3_600_000);
        assert_eq!(read.holder.fact("future"), Some("true"));
    }

    #[test]
    fn the_time_alone_is_required() {
        let refused = [
            ("\"acquiredAt\"", "\"x\"", "it has no acquiredAt"),
            ("2026-02-07T", "7 Feb ", "its acquiredAt is not a time"),
            (
                "\"2026-02-07T10:00:00.000Z\"",
                "null",
                "its acquiredAt is not a time",
            ),
            (
                "\"2026-02-07T10:00:00.000Z\"",
                "5",
                "its acquiredAt is not a time",
            ),
        ];
        records().assert_refused(FOREIGN, &refused);
        assert!(read(&FOREIGN[..50]).is_err(), "half a record");
        for text in ["[]", "7", "\"2026-02-07T10:00:00.000Z\"", "null"] {
            assert!(read(text).is_err(), "{text} is no object");
        }
    }

    #[test]
    fn what_the_time_is_written_as_does_not_matter() {
        for written in [
            "\"2026-02-07T11:00:00+01:00\"",
            "\"2026-02-07T10:00:00\"",
            "\"2026-02-07 10:00:00.000000\"",
            "1770458400000",
            "1770458400",
            "1770458400.0",
        ] {
            let read = read(&FOREIGN.replace("\"2026-02-07T10:00:00.000Z\"", written));
            let read = read.unwrap_or_else(|why| panic!("{written}: {why}"));
            assert_eq!(read.lease.renewed.wall_ms, AT_MS, "{written}");
        }
    }

    #[test]
    fn a_young_record_that_lacks_or_misspells_the_rest_is_held_all_the_same() {
        for (from, to, run, pid) in [
            ("\"issueNumber\"", "\"x\"", "1234567890", Some(999)),
            (": 42", ": \"42\"", "1234567890", Some(999)),
            (": 42", ": 43", "1234567890", Some(999)),
            ("\"runId\"", "\"x\"", "", Some(999)),
            ("\"1234567890\"", "1234567890", "1234567890", Some(999)),
            ("\"1234567890\"", "-7", "-7", Some(999)),
            ("\"1234567890\"", "[1]", "", Some(999)),
            ("\"pid\"", "\"x\"", "1234567890", None),
            ("999", "\"999\"", "1234567890", Some(999)),
            ("999", "0", "1234567890", None),
            ("999", "-1", "1234567890", None),
            ("999", "4294967296", "1234567890", None),
            ("999", "null", "1234567890", None),
        ] {
            let text = FOREIGN.replace(from, to);
            let read = read(&text).unwrap_or_else(|why| panic!("{from} became {to}: {why}"));
            assert_eq!(read.holder.request_id.as_str(), run, "{from} became {to}");
            assert_eq!(read.holder.fact("runId"), Some(run), "{from} became {to}");
            assert_eq!(pid_of(&read), pid, "{to}");
            assert_eq!(read.lease.renewed.wall_ms, AT_MS, "{from} became {to}");
        }
        let least = read("{\"acquiredAt\": \"2026-02-07T10:00:00.000Z\"}");
        assert_eq!(least.map(|claim| claim.lease.renewed.wall_ms), Ok(AT_MS));
    }

    #[test]
    fn a_heartbeat_rewrites_the_time_and_nothing_else() {
        let previous = FOREIGN.replacen(
            '{',
            "{\n  \"later\": {\"acquiredAt\": \"x\", \"n\": [1.50, 1e999]},",
            1,
        );
        let mut claim = claim(&[("runId", "other")]);
        claim.lease.renewed.wall_ms += 90_500;
        records().assert_renewed(&claim, &previous, "10:00:00.000", "10:01:30.500");
    }

    #[test]
    fn a_claim_without_a_process_names_the_fact_or_none() {
        let mut claim = without_process(claim(&[]));
        let text = records().assert_read_again(&claim);
        assert!(text.contains("\"pid\": 0,"), "{text}");
        claim.holder.facts.push(("pid".to_owned(), "77".to_owned()));
        let text = written(&claim, None).expect("a record");
        assert!(text.contains("\"pid\": 77,"), "{text}");
    }

    #[test]
    fn a_name_is_an_issue_number_in_its_one_spelling() {
        let session = Session::default();
        for good in ["0", "7", "42", "18446744073709551615"] {
            assert_eq!(session.check_name(&name(good)), Ok(()));
            let file = session.file_name(&name(good));
            assert_eq!(session.name_of(&file), Some(name(good)));
        }
        for bad in [
            "007",
            "00",
            "4a",
            "a",
            "1.0",
            "1e3",
            "4+2",
            "18446744073709551616",
        ] {
            assert!(session.check_name(&name(bad)).is_err(), "{bad:?}");
            assert!(session.encode(&name(bad), &claim(&[]), None).is_err());
            assert_eq!(
                session.name_of(&format!("{bad}.lock")),
                None,
                "{bad:?} names no lock"
            );
        }
        assert_eq!(session.name_of("+4.lock"), None);
        assert_eq!(session.name_of("4"), None);
        assert_eq!(session.folder(Path::new("/s")), Path::new("/s/locks"));
    }

    #[test]
    fn the_age_limit_is_the_rows_unless_another_was_asked_for() {
        assert_eq!(Session::default().policy(), Policy::SESSION);
        let other = Session::stale_after_ms(1_000);
        assert_eq!(
            other.policy().age,
            Some(AgeRule {
                limit: AgeLimit::SilenceMs(1_000),
                whole_seconds: false,
                inclusive: true
            })
        );
        let read = other.decode(&name("42"), FOREIGN.as_bytes(), &now(), &here());
        assert_eq!(read.map(|claim| claim.lease.ttl_ms), Ok(1_000));
    }
}
