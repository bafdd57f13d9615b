//! The fleet profile, lock/v1: what stands in `<name>.lock`, which names a lock may have, and
//! which records are corrupt.
//!
//! Only the age of the heartbeat judges such a lock, and the core does that. The process id in a record is
//! information.

use super::{FolderRules, Profile, Record, Signs, document, instant, own};
use crate::audit::Layout;
use serde_json::{Map, Value};
use tenure_core::{Claim, Host, LockName, Now, Policy, RequestId};

/// The one version of the format.
const VERSION: &str = "v1";

/// What the facts that stand in `metadata` begin with.
const METADATA: &str = "metadata.";

/// The key in `metadata` under which tenure's own additions stand.
const OWN: &str = "tenure";

/// The longest ttl that is believed: 100 years.
const TTL_SECONDS_MAX: u64 = 100 * 31_557_600;

const SECOND_MS: u64 = 1_000;

/// The profile.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fleet;

impl Profile for Fleet {
    fn policy(&self) -> Policy {
        Policy::FLEET
    }

    fn place(&self) -> FolderRules {
        FolderRules {
            private: true,
            ..FolderRules::default()
        }
    }

    fn audit_layout(&self) -> Layout {
        Layout::PerRequest
    }

    fn check_name(&self, name: &LockName) -> Result<(), String> {
        let name = name.as_str();
        let inner = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '_' | '-');
        let outer = |c: char| matches!(c, 'a'..='z' | '0'..='9');
        if let Some(bad) = name.chars().find(|c| !inner(*c)) {
            return Err(format!(
                "contains {bad:?}; lower-case letters, digits, _ and - are allowed"
            ));
        }
        if name.starts_with(outer) && name.ends_with(outer) {
            Ok(())
        } else {
            Err("has to begin and end with a letter or a digit".to_owned())
        }
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

impl Record for Fleet {
    /// A heartbeat rewrites `last_heartbeat_at`. A claim without a process is written with the
    /// process id of its fact `pid`, else 0.
    fn encode(
        &self,
        name: &LockName,
        claim: &Claim,
        previous: Option<&[u8]>,
    ) -> Result<Vec<u8>, String> {
        let last_heartbeat_at = instant::seconds(claim.lease.renewed)?;
        if let Some(previous) = previous {
            return document::with_text(previous, "last_heartbeat_at", &last_heartbeat_at);
        }
        let holder = &claim.holder;
        let required = |key| {
            holder
                .fact(key)
                .ok_or_else(|| format!("a fleet lock names its {key}, and none was given"))
        };
        let actor = document::some(&holder.actor).unwrap_or_else(|| "unknown".to_owned());
        let host_id = holder.fact("host_id").unwrap_or(&holder.host.name);
        let created_at = instant::seconds(document::since(claim)?)?;
        let mut object = document::Fields::default();
        object.put("lock_version", VERSION);
        object.put("lock_name", name.as_str());
        object.put("request_id", holder.request_id.as_str());
        object.put("actor", actor);
        object.put("intent", required("intent")?);
        object.put("intent_version", required("intent_version")?);
        object.put("host_id", host_id);
        object.put("pid", document::pid_of(holder)?);
        object.put("created_at", created_at);
        object.put("last_heartbeat_at", last_heartbeat_at);
        object.put("ttl_seconds", ttl_seconds(claim)?);
        object.put_object("metadata", metadata(claim, host_id)?);
        let mut bytes = document::pretty(&object)?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Beyond the form of each field, the record has to be this lock's. Its heartbeat must not be further
    /// ahead than its ttl, or it would not become stale in time.
    fn decode(&self, name: &LockName, bytes: &[u8], now: &Now, _: &Host) -> Result<Claim, String> {
        let object = document::object(bytes)?;
        if document::string(&object, "lock_version")? != VERSION {
            return Err(format!("its lock_version is not {VERSION}"));
        }
        if document::string(&object, "lock_name")? != name.as_str() {
            return Err("its lock_name is another lock's".to_owned());
        }
        let request_id = document::string(&object, "request_id")?;
        if !(1..=RequestId::RECORDED_MAX).contains(&request_id.chars().count()) {
            return Err(format!(
                "its request_id does not have 1 to {} characters",
                RequestId::RECORDED_MAX
            ));
        }
        let actor = document::string(&object, "actor")?;
        let intent = document::string(&object, "intent")?;
        let intent_version = document::string(&object, "intent_version")?;
        let host_id = document::string(&object, "host_id")?;
        let number = document::whole(&object, "pid")?;
        let pid = u32::try_from(number).ok().filter(|pid| *pid != 0);
        let created_ms = document::time(&object, "created_at")?;
        let heartbeat_ms = document::time(&object, "last_heartbeat_at")?;
        let ttl_ms = ttl_ms(&object)?;
        if heartbeat_ms > now.stamp().wall_ms.saturating_add(ttl_ms) {
            return Err(
                "its last_heartbeat_at is later than its ttl from now, so the clock of this host or of its writer \
                 is wrong"
                    .to_owned(),
            );
        }
        let nothing = Map::new();
        let metadata = match object.get("metadata") {
            None => &nothing,
            Some(Value::Object(metadata)) => metadata,
            Some(_) => return Err("its metadata is not an object".to_owned()),
        };

        let host = Host {
            name: host_id.to_owned(),
            ..Host::default()
        };
        let mut claim = own::foreign(request_id, pid, host, created_ms);
        claim.lease.ttl_ms = ttl_ms;
        claim.lease.renewed.wall_ms = heartbeat_ms;
        let holder = &mut claim.holder;
        actor.clone_into(&mut holder.actor);
        let mut put = |key: String, value: &str| holder.facts.push((key, value.to_owned()));
        put("intent".to_owned(), intent);
        put("intent_version".to_owned(), intent_version);
        put("host_id".to_owned(), host_id);
        if pid.is_none() && number != 0 {
            put("pid".to_owned(), &number.to_string());
        }
        for (key, value) in metadata.iter().filter(|(key, _)| *key != OWN) {
            if let Value::String(text) = value {
                put(format!("{METADATA}{key}"), text);
            }
        }
        if let Some(own) = document::own(metadata.get(OWN).cloned()) {
            // A field for which the format has a key of its own is never read from the additions.
            own::Own {
                request_id: None,
                ttl_ms: None,
                actor: None,
                ..own
            }
            .apply(&mut claim);
        }
        Ok(claim)
    }

    /// The contract sets the form of each field, and a tool that breaks one of them still holds the lock: its ttl also
    /// counts as a fraction or a text.
    fn signs(&self, bytes: &[u8], now: &Now) -> Option<Signs> {
        let object = document::object(bytes).ok()?;
        let ttl_ms = object.get("ttl_seconds").and_then(loose_ttl_ms);
        let latest = now.stamp().wall_ms;
        let latest = latest.saturating_add(ttl_ms.unwrap_or(0).max(Policy::FLEET.detached_ttl_ms));
        let renewed_ms = document::time(&object, "last_heartbeat_at").ok();
        let renewed_ms = renewed_ms.filter(|at| *at <= latest);
        (renewed_ms.is_some() || ttl_ms.is_some()).then_some(Signs { renewed_ms, ttl_ms })
    }
}

/// A ttl of a record that breaks a rule.
fn loose_ttl_ms(value: &Value) -> Option<u64> {
    let seconds = match value {
        Value::Number(seconds) => seconds.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }?;
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "it is between 0 and 100 years"
    )]
    let believed = (seconds > 0.0 && seconds <= TTL_SECONDS_MAX as f64)
        .then(|| (seconds * SECOND_MS as f64).ceil() as u64);
    believed
}

/// The ttl to write, rounded up to whole seconds.
fn ttl_seconds(claim: &Claim) -> Result<u64, String> {
    let seconds = claim.lease.ttl_ms.div_ceil(SECOND_MS);
    if (1..=TTL_SECONDS_MAX).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("its ttl is not between a second and 100 years".to_owned())
    }
}

fn ttl_ms(object: &Map<String, Value>) -> Result<u64, String> {
    let seconds = document::whole(object, "ttl_seconds")?;
    if (1..=TTL_SECONDS_MAX).contains(&seconds) {
        Ok(seconds.saturating_mul(SECOND_MS))
    } else {
        Err("its ttl_seconds is not between 1 and 100 years".to_owned())
    }
}

/// The caller's own pairs, then tenure's additions.
fn metadata(claim: &Claim, host_id: &str) -> Result<document::Field, String> {
    let holder = &claim.holder;
    let mut metadata = document::Fields::default();
    for (key, value) in &holder.facts {
        if let Some(key) = key.strip_prefix(METADATA) {
            metadata.put(key, value.as_str());
        }
    }
    let own = own::Own {
        host: Some(&holder.host.name)
            .filter(|host| *host != host_id)
            .cloned(),
        why: document::some(&holder.why),
        ..own::Own::of(claim)
    };
    if metadata.has(OWN) {
        return Err(format!("the metadata key {OWN} is taken"));
    }
    metadata.put_object(OWN, document::Field::Own(own));
    Ok(document::Field::Fields(metadata))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{
        self, AT_MS, Records, name, pid_of, since_ms, waiting, without_process,
    };
    use super::*;

    fn records() -> Records<Fleet> {
        Records {
            format: Fleet,
            lock: "money-tracker-production",
        }
    }

    const FOREIGN: &str = r#"{
  "lock_version": "v1",
  "lock_name": "money-tracker-production",
  "request_id": "req_abcdef012345",
  "actor": "alice",
  "intent": "deploy",
  "intent_version": "1.2.0",
  "host_id": "fleet-3",
  "pid": 999,
  "created_at": "2026-02-07T09:59:00Z",
  "last_heartbeat_at": "2026-02-07T10:00:00Z",
  "ttl_seconds": 900
}
"#;

    fn claim(facts: &[(&str, &str)]) -> Claim {
        let intent = [("intent", "deploy"), ("intent_version", "1.2.0")];
        fixture::claim(&[intent.as_slice(), facts].concat())
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
            [].as_slice(),
            &[("host_id", "fleet-3")],
            &[
                ("metadata.ticket", "OPS-1"),
                ("metadata.a b", "\"\n\u{1b}\u{7f}é\u{2028}🔒"),
            ],
        ] {
            let claim = claim(facts);
            records().assert_read_again(&claim);
        }
    }

    #[test]
    fn a_record_of_the_original_program_is_understood() {
        let read = read(FOREIGN).expect("metadata is optional");
        let holder = &read.holder;
        assert_eq!(holder.request_id.as_str(), "req_abcdef012345");
        assert_eq!(holder.actor, "alice");
        assert_eq!(holder.fact("intent"), Some("deploy"));
        assert_eq!(holder.fact("intent_version"), Some("1.2.0"));
        assert_eq!(holder.fact("host_id"), Some("fleet-3"));
        assert_eq!(holder.host.name, "fleet-3");
        assert_eq!(holder.host.boot_id, None, "its process is never asked");
        assert_eq!(pid_of(&read), Some(999));
        assert_eq!(since_ms(&read), Some(AT_MS - 60_000));
        assert_eq!(read.lease.renewed.wall_ms, AT_MS);
        assert_eq!(read.lease.ttl_ms, 900_000);
    }

    #[test]
    fn every_required_field_is_required_with_its_type() {
        let whole: Map<String, Value> = document::object(FOREIGN.as_bytes()).expect("an object");
        assert_eq!(whole.len(), 11, "all of them are tried");
        for key in whole.keys() {
            let mut without = whole.clone();
            without.shift_remove(key);
            let text = Value::Object(without).to_string();
            assert_eq!(read(&text), Err(format!("it has no {key}")));
            for wrong in [Value::Null, Value::from(-1), Value::from(1.5), true.into()] {
                let mut mistyped = whole.clone();
                mistyped.insert(key.clone(), wrong.clone());
                let text = Value::Object(mistyped).to_string();
                let error = read(&text).expect_err("a mistyped field");
                assert!(
                    error.starts_with(&format!("its {key} is not")),
                    "{key} as {wrong}: {error}"
                );
            }
        }
    }

    #[test]
    fn a_record_that_breaks_a_rule_is_corrupt() {
        let refused = [
            ("\"v1\"", "\"v2\"", "its lock_version is not v1"),
            ("\"v1\"", "\"1\"", "its lock_version is not v1"),
            ("-production", "-staging", "its lock_name is another lock's"),
            ("999", "\"999\"", "its pid is not a whole number"),
            ("09:59:00Z", "09:59", "its created_at is not a time"),
            (
                "10:00:00Z",
                "10:00:00",
                "its last_heartbeat_at is not a time",
            ),
            ("900", "\"900\"", "its ttl_seconds is not a whole number"),
            ("900", "0", "its ttl_seconds is not between 1 and 100 years"),
            (
                "900",
                "3155760001",
                "its ttl_seconds is not between 1 and 100 years",
            ),
            (
                "10:00:00Z",
                "10:15:06Z",
                "its last_heartbeat_at is later than its ttl from now, so the clock of this host or of its \
                 writer is wrong",
            ),
            (
                "900",
                "900, \"metadata\": []",
                "its metadata is not an object",
            ),
            (
                "900",
                "900, \"metadata\": null",
                "its metadata is not an object",
            ),
        ];
        records().assert_refused(FOREIGN, &refused);
        for bad in ["", &"é".repeat(257)] {
            let error = read(&FOREIGN.replace("req_abcdef012345", bad)).expect_err("a bad id");
            assert!(error.starts_with("its request_id does not"), "{error}");
        }
        for id in ["_a", "a b", "../a:b", "é", &"é".repeat(256)] {
            let claim = read(&FOREIGN.replace("req_abcdef012345", id)).expect("an id");
            assert_eq!(claim.holder.request_id.as_str(), id, "whole");
        }
        assert_eq!(read("[]"), Err("it is not a JSON object".to_owned()));
        assert!(read(&FOREIGN[..99]).is_err(), "half a record");
    }

    #[test]
    fn what_stays_within_the_rules_is_read() {
        for (from, to) in [
            ("10:00:00Z", "10:15:05Z"),
            ("10:00:00Z", "11:00:00.25+01:00"),
            ("900", "3155760000"),
            ("900", "900, \"metadata\": {}"),
            (
                "900",
                "900, \"metadata\": {\"n\": 1, \"tenure\": 7}, \"new\": []",
            ),
            ("999", "18446744073709551615"),
        ] {
            let text = FOREIGN.replace(from, to);
            assert!(read(&text).is_ok(), "{from} may become {to}");
        }
    }

    #[test]
    fn additions_never_overrule_the_formats_own_fields() {
        let text = FOREIGN.replace(
            "900",
            r#"900, "metadata": {"tenure": {"token": 5, "request_id": "x", "ttl_ms": 1, "actor": "y"}}"#,
        );
        let read = read(&text).expect("a record");
        assert_eq!(read.token, Some(5));
        assert_eq!(read.holder.request_id.as_str(), "req_abcdef012345");
        assert_eq!(read.holder.actor, "alice");
        assert_eq!(read.lease.ttl_ms, 900_000);
    }

    #[test]
    fn a_heartbeat_rewrites_its_time_and_nothing_else() {
        let previous = FOREIGN.replace(
            "900",
            "900,\n  \"metadata\": {\"z\": {\"last_heartbeat_at\": 1.50}, \"a\": null},\n  \"new\":[ ]",
        );
        let mut claim = claim(&[]);
        claim.lease.renewed.wall_ms += 30_999;
        records().assert_renewed(&claim, &previous, "10:00:00Z", "10:00:30Z");
    }

    #[test]
    fn a_claim_without_an_intent_has_no_record() {
        for missing in ["intent", "intent_version"] {
            let mut claim = claim(&[]);
            claim.holder.facts.retain(|(key, _)| key != missing);
            let error = written(&claim, None).expect_err("an incomplete claim");
            assert!(error.contains(missing), "{error}");
        }
        let taken = claim(&[("metadata.tenure", "x")]);
        assert!(written(&taken, None).is_err(), "the extra key is ours");
        let waiting = waiting(claim(&[]));
        assert!(written(&waiting, None).is_err(), "nothing is held yet");
    }

    #[test]
    fn a_ttl_is_rounded_up_to_seconds() {
        let mut claim = claim(&[]);
        claim.lease.ttl_ms = 1;
        let text = written(&claim, None).expect("a record");
        assert!(text.contains("\"ttl_seconds\": 1,"), "{text}");
        for impossible in [0, u64::MAX] {
            claim.lease.ttl_ms = impossible;
            assert!(written(&claim, None).is_err(), "{impossible} ms");
        }
    }

    #[test]
    fn who_is_not_known_is_written_so() {
        let mut claim = without_process(claim(&[]));
        claim.holder.actor.clear();
        let text = written(&claim, None).expect("a record");
        assert!(text.contains("\"actor\": \"unknown\""), "{text}");
        assert!(text.contains("\"pid\": 0,"), "{text}");
        assert_eq!(read(&text).expect("a record").holder.process, None);
        claim.holder.facts.push(("pid".to_owned(), "77".to_owned()));
        let text = written(&claim, None).expect("a record");
        assert!(text.contains("\"pid\": 77,"), "{text}");
        claim.holder.facts.retain(|(key, _)| key != "pid");
        claim.holder.facts.push(("pid".to_owned(), "x".to_owned()));
        assert!(written(&claim, None).is_err(), "not a number");
    }

    #[test]
    fn names_have_the_alphabet_of_lock_v1() {
        let longest = "a".repeat(128);
        for good in ["a", "0", "a_b", "a-b", "money-tracker-production", &longest] {
            assert_eq!(Fleet.check_name(&name(good)), Ok(()));
            let file = Fleet.file_name(&name(good));
            assert_eq!(Fleet.name_of(&file), Some(name(good)));
        }
        for bad in ["A", "aB", "_a", "a_", "a-", "a.b", "a@b", "a+b", "a=b"] {
            assert!(Fleet.check_name(&name(bad)).is_err(), "{bad:?}");
            assert_eq!(
                Fleet.name_of(&format!("{bad}.lock")),
                None,
                "{bad:?} names no lock"
            );
        }
    }
}
