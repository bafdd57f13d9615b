//! The sprint profile: what stands in a project's one lock file, five keys of YAML, and which
//! name that file has.
//!
//! Other modules decide whether the recorded process lives, and what a zombie is.

use super::{FolderRules, Profile, Record, document, instant, own};
use crate::yaml::{self, quoted};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use tenure_core::{Claim, Host, Kind, LockName, Now, Policy};

/// What the one lock of a project is called.
const NAME: &str = "sprint";

/// What its file is called unless another name was asked for.
const FILE: &str = ".sprint-running";

/// The longest file name that is accepted, in bytes.
const FILE_BYTES_MAX: usize = 200;

/// The version of the format that is written, and the latest that is understood.
const VERSION: u32 = 1;

/// The profile.
#[derive(Debug, Clone)]
pub struct Sprint {
    file: String,
}

impl Default for Sprint {
    fn default() -> Self {
        Self {
            file: FILE.to_owned(),
        }
    }
}

impl Sprint {
    /// The profile with another file name.
    ///
    /// # Errors
    /// - The rule that the name breaks, as the end of a sentence that begins with the name.
    pub fn new(file: impl Into<String>) -> Result<Self, String> {
        let file = file.into();
        if file.is_empty() || file == "." || file == ".." {
            return Err("is not the name of a file".to_owned());
        }
        if file == tenure_store::profile::LEDGER {
            return Err("is the folder of what is kept beside the locks".to_owned());
        }
        if file.contains(['/', '\\']) {
            return Err("contains a separator; a bare file name is needed".to_owned());
        }
        if file.contains(char::is_control) {
            return Err("contains a control character".to_owned());
        }
        if file.len() > FILE_BYTES_MAX {
            return Err(format!("is longer than {FILE_BYTES_MAX} bytes"));
        }
        Ok(Self { file })
    }
}

impl Profile for Sprint {
    fn policy(&self) -> Policy {
        Policy::SPRINT
    }

    fn place(&self) -> FolderRules {
        FolderRules {
            must_exist: true,
            ..FolderRules::default()
        }
    }

    /// A project has a folder of that name sooner or later, so the audit stands with the other files of
    /// tenure there.
    fn audit_folder(&self, place: &Path) -> PathBuf {
        place.join(".tenure/audit")
    }

    fn temporary(&self, _: &LockName) -> Option<String> {
        Some(format!("{}.tmp", self.file))
    }

    fn check_name(&self, name: &LockName) -> Result<(), String> {
        if name.as_str() == NAME {
            Ok(())
        } else {
            Err(format!("is not {NAME}, the one lock of a project"))
        }
    }

    fn file_name(&self, _: &LockName) -> String {
        self.file.clone()
    }

    fn name_of(&self, file: &str) -> Option<LockName> {
        (file == self.file)
            .then(|| LockName::new(NAME).ok())
            .flatten()
    }

    fn record(&self) -> Option<&dyn Record> {
        Some(self)
    }
}

impl Record for Sprint {
    /// The format has nothing that a heartbeat renews: every byte of a previous record stays.
    fn encode(
        &self,
        _: &LockName,
        claim: &Claim,
        previous: Option<&[u8]>,
    ) -> Result<Vec<u8>, String> {
        if let Some(previous) = previous {
            read(document::text(previous)?)?;
            return Ok(previous.to_owned());
        }
        let holder = &claim.holder;
        let process = holder
            .process
            .ok_or("a sprint lock lives by a process, and none was named")?;
        let started_at = instant::milliseconds(document::since(claim)?)?;
        let epic_spec = holder.fact("epic_spec").unwrap_or(&holder.why);
        let own = own::Own {
            ttl_ms: Some(claim.lease.ttl_ms),
            host: document::some(&holder.host.name),
            actor: document::some(&holder.actor),
            why: Some(&holder.why).filter(|why| *why != epic_spec).cloned(),
            ..own::Own::of(claim)
        };
        let mut text = format!(
            "pid: {}\nsession_id: {}\nstarted_at: {}\nepic_spec: {}\nlock_version: {VERSION}\n",
            process.pid,
            quoted(holder.request_id.as_str()),
            quoted(&started_at),
            quoted(epic_spec),
        );
        text.push_str("tenure:\n");
        if let Value::Object(fields) = document::extra(&own)? {
            for (key, value) in fields {
                let value = match value {
                    Value::String(value) => quoted(&value),
                    other => other.to_string(),
                };
                // Writing to a `String` cannot fail.
                let _ = writeln!(text, "  {key}: {value}");
            }
        }
        Ok(text.into_bytes())
    }

    /// A record names no host. It is of this host, because a project is worked on where it lies. Of a newer
    /// version, and of a mapping whose process cannot be judged, as much is read as can be. It is
    /// a lock in any case, so it is sealed, and only an explicit yes overrides it. A start that cannot be
    /// read is now: a process that lives is protected by it, and one that is dead is dead whatever the date.
    fn decode(&self, _: &LockName, bytes: &[u8], now: &Now, here: &Host) -> Result<Claim, String> {
        let document = read(document::text(bytes)?)?;
        let now_ms = now.stamp().wall_ms;
        let newer = is_newer(&document.deciding.lock_version);
        let (process, started) = (document.deciding.pid(), document.deciding.started_ms());
        let undated = started.is_err();
        let is_sealed = newer || document.fault.is_some() || process.is_err();
        let lacks = process.as_ref().err().or(started.as_ref().err()).cloned();
        let unjudged = document.fault.or(lacks).filter(|_| !newer);
        let (pid, started_ms) = (process.ok(), started.unwrap_or(now_ms));
        let session_id = document.session_id.unwrap_or_default();
        let epic_spec = document.epic_spec.unwrap_or_default();

        let mut claim = own::foreign(&session_id, pid, here.clone(), started_ms);
        claim.lease.ttl_ms = Policy::SPRINT.detached_ttl_ms;
        if is_sealed {
            claim.kind = Kind::Sealed;
        }
        let holder = &mut claim.holder;
        holder.why.clone_from(&epic_spec);
        holder.facts.push(("epic_spec".to_owned(), epic_spec));
        if undated {
            let undated = (document::UNDATED.to_owned(), "true".to_owned());
            holder.facts.push(undated);
        }
        if let Some(why) = unjudged {
            holder.facts.push((document::UNJUDGED.to_owned(), why));
        }
        if started_ms > now_ms {
            holder.facts.push(document::future());
        }
        if let Some(own) = document::own(Some(document.deciding.tenure)) {
            own::Own {
                // The format has a key of its own for it.
                request_id: None,
                ..own
            }
            .apply(&mut claim);
        }
        Ok(claim)
    }
}

/// What is read of a record.
#[derive(Debug, Default)]
struct Document {
    deciding: Deciding,
    session_id: Option<String>,
    epic_spec: Option<String>,
    /// Why none of this could be read, for a mapping.
    fault: Option<String>,
}

/// What decides about a record, in the spellings that programs and people give it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Deciding {
    pid: Value,
    #[serde(rename = "PID")]
    pid_in_capitals: Value,
    #[serde(rename = "Pid")]
    pid_capitalised: Value,
    started_at: Value,
    #[serde(rename = "STARTED_AT")]
    started_at_in_capitals: Value,
    timestamp: Value,
    #[serde(rename = "TIMESTAMP")]
    timestamp_in_capitals: Value,
    #[serde(rename = "Timestamp")]
    timestamp_capitalised: Value,
    lock_version: Value,
    tenure: Value,
}

/// The rest, which is for people: a value of another type than expected does not make the lock stale. Text
/// is taken as it is spelt, be it `5`, `yes` or `"yes"`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Described {
    session_id: Option<String>,
    epic_spec: Option<String>,
}

/// A record of a newer version may be anything else, and one in which a key stands twice says two things.
/// Both count as locks, as every mapping does.
///
/// A value with a tag (`!!timestamp 2026-02-07`) is what stands behind the tag, where the parser knows no such value.
fn read(text: &str) -> Result<Document, String> {
    let untagged;
    let text = match parse::<Deciding>(text) {
        Err(_) if text.contains('!') => {
            untagged = yaml::without_tags(text);
            &*untagged
        }
        _ => text,
    };
    match parse::<Deciding>(text) {
        Ok(_) if !yaml::is_mapping(text) => Err("it is not a mapping of YAML".to_owned()),
        Ok(deciding) => {
            let described = parse::<Described>(text).unwrap_or_default();
            Ok(Document {
                deciding,
                session_id: described.session_id,
                epic_spec: described.epic_spec,
                fault: None,
            })
        }
        Err(error) if yaml::is_mapping(text) => Ok(Document {
            fault: Some(error),
            ..Document::default()
        }),
        Err(error) => Err(error),
    }
}

/// Whether the version is beyond what is understood. One that is missing or empty is 1, and so are `1.0`, `"1.0"`, `1.0.0` and
/// `v1`. A word is no version. One that is more than 1, or not a whole number, comes from a program that knows more than this
/// one, and so does a list.
fn is_newer(version: &Value) -> bool {
    let is_beyond = |number: f64| number.fract() != 0.0 || number > f64::from(VERSION);
    match version {
        Value::Null | Value::Bool(_) => false,
        Value::Number(number) => number.as_f64().is_none_or(is_beyond),
        Value::String(text) => {
            let text = text.trim();
            let text = text.strip_prefix(['v', 'V']).unwrap_or(text);
            if !text.starts_with(|c: char| c.is_ascii_digit()) {
                return false;
            }
            let parts: Result<Vec<u32>, _> = text.split('.').map(str::parse).collect();
            match parts.as_deref() {
                Ok([first, rest @ ..]) if *first == VERSION => rest.iter().any(|part| *part != 0),
                Ok([first, ..]) => *first > VERSION,
                Ok([]) | Err(_) => text.parse().map_or(true, is_beyond),
            }
        }
        Value::Array(_) | Value::Object(_) => true,
    }
}

impl Deciding {
    /// The process, or why it cannot be judged, as the end of a sentence.
    fn pid(&self) -> Result<u32, String> {
        let spelt = [&self.pid, &self.pid_in_capitals, &self.pid_capitalised];
        one_of(&spelt, "pid", "a process id", |value| {
            let number = match value {
                Value::Number(number) => number.to_string(),
                Value::String(text) => text.trim().to_owned(),
                Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
            };
            let whole = number.strip_suffix(".0").unwrap_or(&number);
            whole.parse().ok().filter(|pid| *pid != 0)
        })
    }

    /// When it was taken, in milliseconds since 1970, or why that cannot be judged.
    fn started_ms(&self) -> Result<u64, String> {
        let spelt = [
            &self.started_at,
            &self.started_at_in_capitals,
            &self.timestamp,
            &self.timestamp_in_capitals,
            &self.timestamp_capitalised,
        ];
        one_of(&spelt, "started_at", "a time", |value| match value {
            Value::Number(number) => instant::of_epoch(&number.to_string()),
            Value::String(text) => instant::as_people_write(text),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        })
    }
}

/// The meaning of a field that may stand under several names. A field that stands there twice and says two
/// things means nothing.
fn one_of<T: PartialEq>(
    spelt: &[&Value],
    key: &str,
    what: &str,
    meaning: impl Fn(&Value) -> Option<T>,
) -> Result<T, String> {
    let mut meant = None;
    for value in spelt.iter().filter(|value| !value.is_null()) {
        let this = meaning(value).ok_or_else(|| format!("its {key} is not {what}"))?;
        if meant.as_ref().is_some_and(|meant| *meant != this) {
            return Err(format!("its {key} stands there twice, and differs"));
        }
        meant = Some(this);
    }
    meant.ok_or_else(|| format!("it has no {key}"))
}

/// Reads a YAML document that is a mapping.
fn parse<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    yaml::read(text).map_err(|why| format!("it is not YAML of this format: {why}"))
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{
        AT_MS, Records, claim, here, name, now, pid_of, since_ms, waiting, without_process,
    };
    use super::*;

    const FOREIGN: &str = "pid: 999\n\
        session_id: sprint-2026-02-07-001\n\
        started_at: 2026-02-07T10:00:00Z\n\
        epic_spec: epic5\n\
        lock_version: 1\n";

    fn records() -> Records<Sprint> {
        Records {
            format: Sprint::default(),
            lock: "sprint",
        }
    }

    fn read(text: &str) -> Result<Claim, String> {
        records().read(text)
    }

    fn written(claim: &Claim, previous: Option<&str>) -> Result<String, String> {
        records().written(claim, previous)
    }

    fn id(claim: &Claim) -> &str {
        claim.holder.request_id.as_str()
    }

    #[test]
    fn what_was_written_is_read_again() {
        for facts in [[].as_slice(), &[("epic_spec", "epic5")]] {
            records().assert_read_again(&claim(facts));
        }
        let mut bare = claim(&[]);
        bare.holder.why.clear();
        records().assert_read_again(&bare);
    }

    #[test]
    fn every_text_survives_as_the_same_text() {
        for text in [
            "",
            " ",
            "~",
            "null",
            "true",
            "no",
            "5",
            "1.5",
            ".nan",
            "0x1F",
            "1_000",
            "- a",
            "a: b",
            "a #b",
            "#b",
            "&a",
            "*a",
            "!!int 5",
            "<<",
            "? a",
            "| a",
            "> a",
            "%a",
            "@a",
            "`a",
            "'",
            "\"",
            "\\",
            "\\n",
            "\n",
            "\r\n",
            "a\n\n b\n",
            "\ttab\t",
            " lead",
            "trail ",
            "---",
            "...",
            "{a}",
            "[a]",
            "2026-02-07",
            "\0",
            "\u{7}\u{8}\u{b}\u{c}\u{1b}[31m",
            "\u{7f}",
            "\u{80}\u{85}\u{9f}\u{a0}",
            "\u{2028}\u{2029}",
            "\u{feff}x",
            "\u{fffe}\u{ffff}",
            "é漢🔒\u{10ffff}",
            "\u{e000}\u{d7ff}",
        ] {
            let mut claim = claim(&[("epic_spec", text)]);
            claim.holder.why = text.to_owned();
            claim.holder.actor = format!("-{text}");
            let yaml = records().assert_read_again(&claim);
            assert!(
                yaml.chars().all(|c| c == '\n' || !c.is_control()),
                "nothing that a terminal would act on: {yaml:?}"
            );
            assert_eq!(yaml.lines().next(), Some("pid: 4242"), "{yaml}");
        }
    }

    #[test]
    fn random_texts_survive_as_well() {
        let mut seed = 0x5EED_u64;
        let mut draw = |below: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..500 {
            let length = draw(20);
            let text: String = (0..length)
                .filter_map(|_| {
                    let ceiling =
                        [0x30, 0x100, 0x3000, 0x11_0000][usize::try_from(draw(4)).unwrap()];
                    char::from_u32(u32::try_from(draw(ceiling)).unwrap())
                })
                .collect();
            records().assert_read_again(&claim(&[("epic_spec", &text)]));
        }
    }

    #[test]
    fn a_record_of_the_original_program_means_a_process_of_this_host() {
        let read = read(FOREIGN).expect("five plain keys");
        assert_eq!(id(&read), "sprint-2026-02-07-001");
        assert_eq!(pid_of(&read), Some(999));
        assert_eq!(*read.holder.host, here());
        assert_eq!(read.holder.why, "epic5");
        assert_eq!(read.holder.fact("epic_spec"), Some("epic5"));
        assert_eq!(read.holder.fact("future"), None);
        assert_eq!(since_ms(&read), Some(AT_MS));
        assert_eq!(read.kind, Kind::Foreign);
    }

    #[test]
    fn yaml_may_be_written_in_many_ways() {
        for text in [
            "{pid: 999, started_at: 2026-02-07T10:00:00Z}",
            "{\"pid\": 999, \"started_at\": \"2026-02-07T10:00:00.000Z\"}",
            "---\npid: 999 # a shell\nstarted_at: '2026-02-07T11:00:00+01:00'\n...\n",
            "pid: 999\r\nstarted_at: 2026-02-07 10:00:00+00:00\r\n",
            "\u{feff}pid: 999\nstarted_at: 2026-02-07T10:00:00.123456789012Z\n",
            "pid: 999\nstarted_at: 2026-02-07T10:00:00Z\nsession_id: ~\nepic_spec:\nlock_version:\n",
            "new: {deep: [1, .nan, ~]}\n7: x\npid: 999\nstarted_at: 2026-02-07T10:00:00Z\n",
        ] {
            let read = read(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(pid_of(&read), Some(999));
            assert_eq!(read.since.map(|at| at.wall_ms / 1_000), Some(AT_MS / 1_000));
            assert_eq!(id(&read), "", "none is named");
            assert_eq!(read.holder.fact("epic_spec"), Some(""));
        }
    }

    #[test]
    fn a_session_id_that_looks_like_a_number_is_its_text() {
        for spelt in ["20260207", "007", "1_0", "1e3", "yes", "0x1F"] {
            let text = FOREIGN.replace("sprint-2026-02-07-001", spelt);
            let read = read(&text).expect("a text all the same");
            assert_eq!(id(&read), spelt);
        }
    }

    #[test]
    fn a_mapping_whose_process_or_start_cannot_be_judged_says_why_and_without_a_process_is_sealed()
    {
        let both = |second: &str| format!("Z\n{second}");
        for (from, to, why) in [
            ("pid:", "p:", "it has no pid"),
            ("999", "~", "it has no pid"),
            ("999", "\"\"", "its pid is not a process id"),
            ("999", "0", "its pid is not a process id"),
            ("999", "-1", "its pid is not a process id"),
            ("999", "9.5", "its pid is not a process id"),
            ("999", "yes", "its pid is not a process id"),
            ("999", "[999]", "its pid is not a process id"),
            ("999", "4294967296", "its pid is not a process id"),
            ("started_at:", "s:", "it has no started_at"),
            ("2026-02-07T10:00:00Z", "~", "it has no started_at"),
            ("2026-02-07T10:00:00Z", "5", "its started_at is not a time"),
            (
                "2026-02-07T10:00:00Z",
                "20260207",
                "its started_at is not a time",
            ),
            (
                "2026-02-07T10:00:00Z",
                "[now]",
                "its started_at is not a time",
            ),
            ("2026-02-07T", "yesterday ", "its started_at is not a time"),
            (
                "Z\n",
                &both("PID: 998\n"),
                "its pid stands there twice, and differs",
            ),
            ("Z\n", &both("PID: x\n"), "its pid is not a process id"),
            (
                "Z\n",
                &both("timestamp: 1770458401\n"),
                "its started_at stands there twice, and differs",
            ),
        ] {
            let read = read(&FOREIGN.replace(from, to)).expect("a mapping");
            let kind = if why.contains("pid") {
                Kind::Sealed
            } else {
                Kind::Foreign
            };
            assert_eq!(read.kind, kind, "{from} became {to}");
            let undated = why.contains("started_at").then_some("true");
            assert_eq!(read.holder.fact("undated"), undated, "{from} became {to}");
            assert_eq!(
                read.holder.fact("unjudged"),
                Some(why),
                "{from} became {to}"
            );
        }
        for text in ["{}", "a: b\n", "999: x\n", "? [a, b]\n: x\npid: 999\n"] {
            let read = read(text).expect(text);
            assert_eq!(read.kind, Kind::Sealed, "{text}");
            assert!(read.holder.fact("unjudged").is_some(), "{text}");
        }
        for twice in ["pid: 5\n", "x: 5\nx: 6\n", "x: {y: 5, y: 6}\n"] {
            let read = read(&format!("{FOREIGN}{twice}")).expect("a mapping");
            assert_eq!(read.kind, Kind::Sealed, "{twice}");
            let why = read.holder.fact("unjudged").expect("a reason");
            assert!(why.starts_with("it is not YAML of this format"), "{why}");
        }
    }

    #[test]
    fn a_process_and_a_start_are_read_in_the_spellings_that_are_met() {
        for (from, to) in [
            ("999", "\"999\""),
            ("999", "' 999 '"),
            ("999", "999.0"),
            ("pid:", "PID:"),
            ("pid:", "Pid:"),
            ("pid: 999\n", "PID: \"999\"\npid: 999\n"),
            ("pid: 999\n", "PID: 999\npid: ~\n"),
            ("started_at:", "timestamp:"),
            ("started_at:", "TIMESTAMP:"),
            ("started_at:", "Timestamp:"),
            ("started_at:", "STARTED_AT:"),
            ("started_at:", "timestamp: 1770458400\nstarted_at:"),
            ("2026-02-07T10:00:00Z", "\"2026-02-07T10:00:00Z\""),
            ("2026-02-07T10:00:00Z", "2026-02-07T10:00:00"),
            ("2026-02-07T10:00:00Z", "1770458400"),
            ("2026-02-07T10:00:00Z", "\"1770458400\""),
            ("2026-02-07T10:00:00Z", "1770458400.0"),
            ("2026-02-07T10:00:00Z", "1770458400000"),
            ("2026-02-07T10:00:00Z", "Sat Feb  7 10:00:00 UTC 2026"),
            ("2026-02-07T10:00:00Z", "Sat, 07 Feb 2026 10:00:00 +0000"),
            ("2026-02-07T10:00:00Z", "2026/02/07 10:00:00"),
            ("2026-02-07T10:00:00Z", "2026/02/07 10:00"),
            ("2026-02-07T10:00:00Z", "2026-02-07 10:00:00"),
            ("2026-02-07T10:00:00Z", "2026-02-07 11:00:00 +0100"),
            ("2026-02-07T10:00:00Z", "2026-02-07T11:00:00+01:00"),
            (
                "2026-02-07T10:00:00Z",
                "Sat Feb 07 2026 10:00:00 GMT+0000 (Coordinated Universal Time)",
            ),
        ] {
            let text = FOREIGN.replacen(from, to, 1);
            assert_eq!(read(&text), read(FOREIGN), "{from} became {to}");
        }
    }

    /// Records of other versions may mean anything, so they are never overridden silently.
    #[test]
    fn versions_that_are_not_ours_are_sealed_and_ours_in_any_spelling_is_not() {
        for version in [
            "2",
            "\"2\"",
            "1.5",
            "2.0",
            "\"2.0\"",
            "\"1.5\"",
            "[2]",
            "{v: 2}",
            "v2",
            "2.0.0",
            "1.1.0",
            "1.0.0-rc1",
            "V1.5",
            "1.0.0.1",
            "10",
            "1beta",
            "99999999999.0.0",
        ] {
            let text = FOREIGN.replace(": 1\n", &format!(": {version}\n"));
            let read = read(&text).expect(version);
            assert_eq!(read.kind, Kind::Sealed, "{version}");
        }
        for version in [
            "1",
            "\"1\"",
            "1.0",
            "\"1.0\"",
            "' 1 '",
            "0",
            "~",
            "1.0.0",
            "v1",
            "V1",
            "v1.0",
            "\"1.0.0.0\"",
            "0.9.0",
            "one",
            "x",
            "latest",
            "true",
            "inf",
            "\"\"",
            "vintage",
        ] {
            let text = FOREIGN.replace(": 1\n", &format!(": {version}\n"));
            let read = read(&text).expect(version);
            assert_eq!(read.kind, Kind::Foreign, "{version}");
        }
    }

    #[test]
    fn what_is_only_for_people_makes_no_record_unreadable() {
        for (from, to) in [
            ("sprint-2026-02-07-001", "{a: b}"),
            ("epic5", "[a, b]"),
            ("10:00:00Z", "10:00:00"),
            ("2026-02-07T10:00:00Z", "2026-02-07 10:00:00.000123"),
        ] {
            let read = read(&FOREIGN.replace(from, to)).expect(to);
            assert_eq!(pid_of(&read), Some(999));
            assert_eq!(since_ms(&read), Some(AT_MS), "{to}");
        }
    }

    #[test]
    fn what_is_no_mapping_of_yaml_is_unreadable() {
        let two_documents = format!("{FOREIGN}---\n{FOREIGN}");
        for text in [
            "",
            "\n",
            "# nothing\n",
            "~",
            "999",
            "hello",
            "- 999\n- x\n- 2026-02-07T10:00:00Z\n",
            "[999, x, 2026-02-07T10:00:00Z, y, 1, {}]",
            "pid: [",
            "pid: 999\n\tstarted_at: x",
            &two_documents,
        ] {
            let error = read(text).expect_err(text);
            assert!(error.chars().count() < 300, "a short sentence: {error}");
            assert!(!error.contains('\n'), "one line: {error}");
        }
        let raw = Sprint::default().decode(&name("sprint"), b"pid: \xff", &now(), &here());
        assert_eq!(raw, Err("it is not UTF-8".to_owned()));
    }

    #[test]
    fn a_document_that_unfolds_is_refused() {
        let mut bomb = String::from("a: &a [x, x, x, x, x, x, x, x, x]\n");
        for (from, to) in ('a'..'i').zip('b'..='i') {
            let _ = writeln!(
                bomb,
                "{to}: &{to} [*{from}, *{from}, *{from}, *{from}, *{from}, *{from}, *{from}]"
            );
        }
        bomb.push_str(FOREIGN);
        assert!(read(&bomb).is_err(), "aliases of aliases");
        let merged = format!("{bomb}tenure: {{<<: *i}}\n");
        assert!(read(&merged).is_err(), "merged aliases");
        for storm in [
            "[", "- ", "? ", "{a: ", "&a ", "!a ", "\"a\": ", "a:\n", "--- \n", "#\n",
        ] {
            let text = storm.repeat(document::BYTES_MAX / storm.len());
            assert!(read(&text).is_err(), "a mebibyte of {storm:?}");
        }
        let large = format!("{FOREIGN}x: {}\n", "y".repeat(document::BYTES_MAX));
        assert_eq!(
            read(&large),
            Err("it is larger than 1048576 bytes".to_owned())
        );
    }

    #[test]
    fn a_start_in_the_future_is_kept_and_flagged() {
        let read = read(&FOREIGN.replace("2026-02-07T", "2126-02-07T")).expect("a date");
        assert!(read.since.is_some_and(|at| at.wall_ms > AT_MS + 5_000));
        assert_eq!(read.holder.fact("future"), Some("true"));
    }

    #[test]
    fn a_newer_version_is_sealed_whatever_else_it_says() {
        let newer = read(&FOREIGN.replace(": 1\n", ": 2\n")).expect("sealed");
        assert_eq!(newer.kind, Kind::Sealed);
        assert_eq!(pid_of(&newer), Some(999));
        for text in [
            "lock_version: 2\n",
            "lock_version: 99999999999999999999\n",
            "lock_version: 18446744073709551615\npid: {a: b}\n",
            "lock_version: 3\nsession_id: {id: x}\nstarted_at: [soon]\n",
        ] {
            let newer = read(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(newer.kind, Kind::Sealed, "{text}");
            assert_eq!(newer.holder.process, None);
            assert_eq!(since_ms(&newer), Some(AT_MS + 5_000), "now");
            assert_eq!(newer.holder.fact("undated"), Some("true"), "and it says so");
        }
        for version in ["0", "-3"] {
            let older = read(&FOREIGN.replace(": 1\n", &format!(": {version}\n")));
            assert_eq!(older.map(|claim| claim.kind), Ok(Kind::Foreign));
        }
    }

    #[test]
    fn an_extra_key_of_another_shape_leaves_the_record_as_the_original_program_wrote_it() {
        for tenure in ["[]", "7", "x", "~", "{token: x}", "{token: -1}", "{why: 5}"] {
            let text = format!("{FOREIGN}tenure: {tenure}\n");
            assert_eq!(read(&text), read(FOREIGN), "{tenure} is not ours");
        }
        let text = format!("{FOREIGN}tenure: {{request_id: x, token: 5}}\n");
        let read = read(&text).expect("a record of ours");
        assert_eq!(read.token, Some(5));
        assert_eq!(id(&read), "sprint-2026-02-07-001", "the format's own key");
    }

    #[test]
    fn a_heartbeat_changes_nothing() {
        let previous = format!("# by hand\n{FOREIGN}new: {{x: [1.50, ~]}}\n");
        assert_eq!(
            written(&claim(&[]), Some(&previous)).as_ref(),
            Ok(&previous)
        );
        assert!(written(&claim(&[]), Some("pid: [")).is_err());
    }

    #[test]
    fn a_claim_without_a_process_has_no_record() {
        let ownerless = without_process(claim(&[]));
        assert!(written(&ownerless, None).is_err());
        let waiting = waiting(claim(&[]));
        assert!(written(&waiting, None).is_err());
    }

    #[test]
    fn a_project_has_one_lock_in_one_file() {
        let sprint = Sprint::default();
        let lock = name("sprint");
        assert_eq!(sprint.check_name(&lock), Ok(()));
        assert!(sprint.check_name(&name("sprint2")).is_err());
        assert_eq!(sprint.file_name(&lock), ".sprint-running");
        assert_eq!(sprint.name_of(".sprint-running"), Some(lock.clone()));
        for other in ["sprint", "sprint.lock", ".sprint-running.tmp", ""] {
            assert_eq!(sprint.name_of(other), None, "{other:?} is no lock");
        }
        let other = Sprint::new("my lock.yaml").expect("a bare file name");
        assert_eq!(other.file_name(&lock), "my lock.yaml");
        assert_eq!(other.name_of("my lock.yaml"), Some(lock));
        assert_eq!(other.name_of(".sprint-running"), None);
    }

    #[test]
    fn a_file_name_is_bare() {
        let longest = "a".repeat(200);
        for good in ["a", ".a", "..a", "é", &longest] {
            assert!(Sprint::new(good).is_ok(), "{good:?}");
        }
        let long = "a".repeat(201);
        for bad in [
            "", ".", "..", ".tenure", "a/b", "/a", "a/", "a\\b", "a\0b", "a\n", "\u{85}", &long,
        ] {
            assert!(Sprint::new(bad).is_err(), "{bad:?}");
        }
    }
}
