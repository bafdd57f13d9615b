//! The resume profile: what stands in `resume_locks/<id>.lock`, four fields of pretty JSON by
//! which a session or a job is resumed once at a time.
//!
//! Other modules ask whether the recorded process lives. This file only says on which machine its number
//! means something.

mod words;

pub use words::takeover_text;

use super::{Profile, Record, document, instant, own};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tenure_core::{Claim, Host, LockName, Now, Policy};

/// Stands in a record for a host name that could not be found out; it names no host.
const UNKNOWN_HOST: &str = "unknown";

/// The profile.
#[derive(Debug, Clone, Copy, Default)]
pub struct Resume;

impl Profile for Resume {
    fn policy(&self) -> Policy {
        Policy::RESUME
    }

    fn folder(&self, place: &Path) -> PathBuf {
        place.join("resume_locks")
    }

    fn file_name(&self, name: &LockName) -> String {
        format!("{name}.lock")
    }

    fn name_of(&self, file: &str) -> Option<LockName> {
        LockName::new(file.strip_suffix(".lock")?).ok()
    }

    fn record(&self) -> Option<&dyn Record> {
        Some(self)
    }
}

impl Record for Resume {
    fn is_renewed(&self) -> bool {
        false
    }

    /// The format has nothing that a heartbeat renews: every byte of a previous record stays.
    fn encode(
        &self,
        name: &LockName,
        claim: &Claim,
        previous: Option<&[u8]>,
    ) -> Result<Vec<u8>, String> {
        if let Some(previous) = previous {
            document::object(previous)?;
            return Ok(previous.to_owned());
        }
        let holder = &claim.holder;
        let process = holder
            .process
            .ok_or("a resume lock lives by a process, and none was named")?;
        let hostname = document::some(&holder.host.name).unwrap_or_else(|| UNKNOWN_HOST.to_owned());
        let own = own::Own {
            request_id: Some(holder.request_id.as_str().to_owned()),
            ttl_ms: Some(claim.lease.ttl_ms),
            actor: document::some(&holder.actor),
            why: document::some(&holder.why),
            ..own::Own::of(claim)
        };
        let mut object = document::Fields::default();
        object.put("job_id", name.as_str());
        object.put("process_id", process.pid);
        object.put("hostname", hostname);
        let acquired_at = instant::shortest(document::since(claim)?)?;
        object.put("acquired_at", acquired_at);
        object.put_object("tenure", document::Field::Own(own));
        document::pretty(&object)
    }

    /// A record of the original program names no owner: its request id is empty, which no caller's can be.
    fn decode(&self, _: &LockName, bytes: &[u8], _: &Now, here: &Host) -> Result<Claim, String> {
        let mut object = document::object(bytes)?;
        document::string(&object, "job_id")?;
        let pid = document::pid(&object, "process_id")?;
        let hostname = document::string(&object, "hostname")?;
        let since_ms = document::time(&object, "acquired_at")?;
        let mut claim = own::foreign("", Some(pid), host(hostname, here), since_ms);
        claim.lease.ttl_ms = Policy::RESUME.detached_ttl_ms;
        if let Some(own) = document::own(object.remove("tenure")) {
            own.apply(&mut claim);
        }
        Ok(claim)
    }
}

/// The rules of [`Resume`] for records that are all of this machine, whatever its name was when they
/// were written. A record that shows nothing of its machine but a name is judged by its process number,
/// as the original program does.
#[derive(Debug, Clone, Copy)]
pub struct OneMachine;

impl Profile for OneMachine {
    fn policy(&self) -> Policy {
        Resume.policy()
    }

    fn folder(&self, place: &Path) -> PathBuf {
        Resume.folder(place)
    }

    fn file_name(&self, name: &LockName) -> String {
        Resume.file_name(name)
    }

    fn name_of(&self, file: &str) -> Option<LockName> {
        Resume.name_of(file)
    }

    fn record(&self) -> Option<&dyn Record> {
        Some(self)
    }
}

impl Record for OneMachine {
    fn is_renewed(&self) -> bool {
        Resume.is_renewed()
    }

    fn encode(
        &self,
        name: &LockName,
        claim: &Claim,
        previous: Option<&[u8]>,
    ) -> Result<Vec<u8>, String> {
        Resume.encode(name, claim, previous)
    }

    fn decode(
        &self,
        name: &LockName,
        bytes: &[u8],
        now: &Now,
        here: &Host,
    ) -> Result<Claim, String> {
        let mut claim = Resume.decode(name, bytes, now, here)?;
        let host = &mut claim.holder.host;
        if host.boot_id.is_none() {
            // People are told the name that stands in the record.
            *host = Arc::new(Host {
                name: host.name.clone(),
                ..here.clone()
            });
        }
        Ok(claim)
    }
}

/// The present host if the record names it, else a host of which only the name is known.
fn host(name: &str, here: &Host) -> Host {
    if name == here.name && !name.is_empty() && name != UNKNOWN_HOST {
        here.clone()
    } else {
        Host {
            name: name.to_owned(),
            ..Host::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{
        AT_MS, Records, assert_same, claim, here, name, pid_of, since_ms, waiting, without_process,
    };
    use super::*;

    const FOREIGN: &str = r#"{
  "job_id": "job-1",
  "process_id": 999,
  "hostname": "build-7",
  "acquired_at": "2026-02-07T10:00:00.123456789Z"
}"#;

    fn records_of<R>(format: R) -> Records<R> {
        Records {
            format,
            lock: "job-1",
        }
    }

    fn records() -> Records<Resume> {
        records_of(Resume)
    }

    fn read(text: &str) -> Result<Claim, String> {
        records().read(text)
    }

    fn written(claim: &Claim, previous: Option<&str>) -> Result<String, String> {
        records().written(claim, previous)
    }

    #[test]
    fn what_was_written_is_read_again() {
        let claim = claim(&[]);
        let text = records().assert_read_again(&claim);
        let elsewhere = Host {
            name: "elsewhere".to_owned(),
            ..Host::default()
        };
        let read = records().read_on(&elsewhere, &text);
        assert_same(&read.expect("a record of ours"), &claim);
    }

    #[test]
    fn a_record_of_the_original_program_means_a_process_of_the_host_it_names() {
        let ours = read(FOREIGN).expect("four fields are enough");
        assert_eq!(pid_of(&ours), Some(999));
        assert_eq!(*ours.holder.host, here(), "this host");
        assert_eq!(since_ms(&ours), Some(AT_MS + 123));
        assert_eq!(ours.holder.request_id.as_str(), "", "no token of ours");

        for other in ["test-host", "unknown", ""] {
            let text = FOREIGN.replace("build-7", other);
            let theirs = read(&text).expect("any host name is one");
            assert_eq!(theirs.holder.host.name, other);
            assert_eq!(
                theirs.holder.host.boot_id, None,
                "a process of another host cannot be asked"
            );
        }
    }

    #[test]
    fn on_one_machine_every_host_that_shows_no_more_than_a_name_is_this_one() {
        for other in ["build-7", "test-host", "unknown", ""] {
            let text = FOREIGN.replace("build-7", other);
            let read = records_of(OneMachine).read(&text);
            let host = read.expect("a record").holder.host;
            let (boot_id, pid_namespace) = (here().boot_id, here().pid_namespace);
            assert_eq!(
                (host.name.as_str(), host.boot_id.clone(), host.pid_namespace),
                (other, boot_id, pid_namespace)
            );
        }
        let mut elsewhere = claim(&[]);
        Arc::make_mut(&mut elsewhere.holder.host).boot_id = Some("another boot".to_owned());
        let text = written(&elsewhere, None).expect("a record");
        let read = records_of(OneMachine).read(&text);
        assert_eq!(
            read.expect("a record of ours").holder.host,
            elsewhere.holder.host,
            "what a record shows of its machine is believed"
        );
    }

    #[test]
    fn a_host_that_is_called_unknown_is_not_this_one() {
        let here = Host {
            name: "unknown".to_owned(),
            ..here()
        };
        let text = FOREIGN.replace("build-7", "unknown");
        let read = records().read_on(&here, &text);
        assert_eq!(read.expect("a record").holder.host.boot_id, None);
    }

    #[test]
    fn a_record_without_a_host_name_is_ours_by_its_boot_id() {
        let mut claim = claim(&[]);
        Arc::make_mut(&mut claim.holder.host).name.clear();
        let text = written(&claim, None).expect("a record");
        let read = read(&text).expect("a record of ours");
        assert_eq!(read.holder.host.name, "unknown");
        assert_eq!(read.holder.host.boot_id, claim.holder.host.boot_id);
        assert_eq!(read.holder.process, claim.holder.process);
    }

    #[test]
    fn numbers_that_are_no_process_are_left_to_liveness() {
        for pid in [0, 2_147_483_648, 4_294_967_295_u32] {
            let text = FOREIGN.replace("999", &pid.to_string());
            let read = read(&text).expect("a number is enough");
            assert_eq!(pid_of(&read), Some(pid));
        }
    }

    #[test]
    fn each_of_the_four_fields_is_required_with_its_type() {
        let refused = [
            ("\"job_id\"", "\"x\"", "it has no job_id"),
            ("\"job-1\"", "1", "its job_id is not a text"),
            ("\"process_id\"", "\"x\"", "it has no process_id"),
            ("999", "\"999\"", "its process_id is not a whole number"),
            ("999", "-1", "its process_id is not a whole number"),
            ("999", "1.5", "its process_id is not a whole number"),
            ("999", "4294967296", "its process_id is not a process id"),
            ("\"hostname\"", "\"x\"", "it has no hostname"),
            ("\"build-7\"", "null", "its hostname is not a text"),
            ("\"acquired_at\"", "\"x\"", "it has no acquired_at"),
            ("2026-02-07T", "yesterday ", "its acquired_at is not a time"),
            ("789Z", "789", "its acquired_at is not a time"),
        ];
        records().assert_refused(FOREIGN, &refused);
        assert_eq!(read("[]"), Err("it is not a JSON object".to_owned()));
        let torn = read(&FOREIGN[..40]).expect_err("half a record");
        assert!(torn.starts_with("it is not JSON: "), "{torn}");
        assert!(read("").is_err(), "nothing");
    }

    #[test]
    fn an_extra_key_of_another_shape_leaves_the_record_as_the_original_program_wrote_it() {
        for tenure in [
            "[]",
            "7",
            "\"x\"",
            "null",
            "{\"token\":\"x\"}",
            "{\"token\":-1}",
        ] {
            let text = FOREIGN.replacen('{', &format!("{{\"tenure\":{tenure},"), 1);
            assert_eq!(read(&text), read(FOREIGN), "{tenure} is not ours");
        }
    }

    #[test]
    fn a_heartbeat_changes_nothing() {
        let previous = FOREIGN.replacen('{', "{\"later\": {\"x\": [1.50, null]},", 1);
        let kept = written(&claim(&[]), Some(&previous));
        assert_eq!(kept, Ok(previous));
        let torn = written(&claim(&[]), Some("{"));
        assert!(torn.is_err(), "what cannot be read is not renewed");
    }

    #[test]
    fn a_claim_without_a_process_has_no_record() {
        let ownerless = without_process(claim(&[]));
        assert!(written(&ownerless, None).is_err());
        let waiting = waiting(claim(&[]));
        assert!(written(&waiting, None).is_err());
    }

    #[test]
    fn the_locks_stand_in_a_folder_of_their_own() {
        assert_eq!(Resume.folder(Path::new("/s")), Path::new("/s/resume_locks"));
        assert_eq!(Resume.file_name(&name("job-1")), "job-1.lock");
        assert_eq!(Resume.name_of("job-1.lock"), Some(name("job-1")));
        for other in ["job-1", ".lock", "a b.lock", ".x.lock", "job-1.lock.tmp"] {
            assert_eq!(Resume.name_of(other), None, "{other:?} is no lock");
        }
    }
}
