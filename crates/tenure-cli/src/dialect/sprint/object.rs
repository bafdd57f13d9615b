//! The status object that a sprint's workflow reads back: exactly these fields, whatever happened.
//!
//! `lock_info` says how the lock stands when the call returns. An unknown field is null.

use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::clean;
use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt::Write as _;
use tenure_core::{Claim, Death, Kind, Liveness, Now, Policy, StaleReason, Stamp, Standing, judge};
use tenure_engine::yaml::quoted;
use tenure_store::{Content, Reading};

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// The lock is the caller's.
    Acquired,
    /// The lock is free now.
    Released,
    /// A live session has it, or the caller did not say yes to a takeover.
    Blocked,
    /// A dead session left it.
    ZombieDetected,
    /// No lock is there.
    Clean,
    /// The call could not be carried out.
    Failure,
}

impl Status {
    /// The word that scripts compare.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Acquired => "acquired",
            Self::Released => "released",
            Self::Blocked => "blocked",
            Self::ZombieDetected => "zombie-detected",
            Self::Clean => "clean",
            Self::Failure => "failure",
        }
    }

    /// The word of a health check.
    pub(crate) fn health(self) -> &'static str {
        match self {
            Self::Clean | Self::Acquired | Self::Released => "pass",
            Self::Blocked => "fail",
            Self::ZombieDetected => "warn",
            Self::Failure => self.word(),
        }
    }

    /// The exit code of an answer; a failure has its own.
    pub(crate) fn exit(self) -> Exit {
        match self {
            Self::Acquired | Self::Released | Self::Clean => Exit::Success,
            Self::Blocked | Self::ZombieDetected => Exit::Precondition,
            Self::Failure => Exit::General,
        }
    }
}

/// The object.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Document {
    pub(crate) status: &'static str,
    pub(crate) mode: String,
    pub(crate) lock_info: LockInfo,
    pub(crate) message: String,
    pub(crate) errors: Vec<String>,
}

/// The lock file.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct LockInfo {
    pub(crate) exists: Option<bool>,
    pub(crate) pid: Option<u32>,
    pub(crate) session_id: Option<String>,
    pub(crate) started_at: Option<String>,
    pub(crate) epic_spec: Option<String>,
    pub(crate) age_hours: Option<f64>,
    pub(crate) pid_alive: Option<bool>,
    pub(crate) is_zombie: Option<bool>,
}

impl LockInfo {
    /// What the facts of a refusal say of the lock file: nothing where the refusal is not about it.
    pub(crate) fn of_view(facts: &Map<String, Value>) -> Self {
        let Some(standing) = facts.get("standing").and_then(Value::as_str) else {
            return Self::default();
        };
        let mut info = Self {
            exists: Some(standing != "free"),
            is_zombie: Some(matches!(standing, "stale" | "unreadable")),
            ..Self::default()
        };
        if let Some(holder) = facts.get("holder").filter(|holder| holder.is_object()) {
            let text = |key| holder.get(key).and_then(Value::as_str).and_then(some);
            let number = |key| holder.get(key).and_then(Value::as_u64);
            info.pid = number("pid").and_then(|pid| u32::try_from(pid).ok());
            info.session_id = text("request_id");
            info.started_at = text("since");
            info.epic_spec = text("why");
            info.age_hours = number("age_ms").map(hours);
        }
        info
    }
}

impl Document {
    pub(crate) fn new(
        status: Status,
        mode: &str,
        lock_info: LockInfo,
        message: impl Into<String>,
    ) -> Self {
        Self {
            status: status.word(),
            mode: mode.to_owned(),
            lock_info,
            message: message.into(),
            errors: Vec::new(),
        }
    }

    /// The object of a call that could not be carried out.
    pub(crate) fn failed(mode: &str, failure: &Failure) -> Self {
        let mut document = Self::new(
            Status::Failure,
            mode,
            LockInfo::default(),
            failure.message.clone(),
        );
        document.errors.push(failure.message.clone());
        document
    }

    /// The object as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::to_value(self).unwrap_or(Value::Null)
    }

    /// The object as YAML. Every text but the words of the contract stands in double quotes, and all
    /// characters that a terminal would act on are escaped. So readers of YAML 1.1 and 1.2 read the same text.
    pub(crate) fn yaml(&self) -> String {
        let info = &self.lock_info;
        let mut yaml = String::new();
        let mut line = |key: &str, value: String| {
            let gap = if value.is_empty() { "" } else { " " };
            // Writing to a `String` cannot fail.
            let _ = writeln!(yaml, "{key}:{gap}{value}");
        };
        line("status", self.status.to_owned());
        line("mode", word(&self.mode));
        line("lock_info", String::new());
        line("  exists", shown(info.exists));
        line("  pid", shown(info.pid));
        line("  session_id", text(info.session_id.as_deref()));
        line("  started_at", text(info.started_at.as_deref()));
        line("  epic_spec", text(info.epic_spec.as_deref()));
        line(
            "  age_hours",
            shown(info.age_hours.map(|hours| format!("{hours:?}"))),
        );
        line("  pid_alive", shown(info.pid_alive));
        line("  is_zombie", shown(info.is_zombie));
        line("message", quoted(&self.message));
        if self.errors.is_empty() {
            line("errors", "[]".to_owned());
        } else {
            line("errors", String::new());
            for error in &self.errors {
                let _ = writeln!(yaml, "  - {}", quoted(error));
            }
        }
        yaml
    }
}

fn shown(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "null".to_owned(), |value| value.to_string())
}

fn text(value: Option<&str>) -> String {
    value.map_or_else(|| "null".to_owned(), quoted)
}

/// A mode as it was asked for: a word of the contract as it is, everything else in quotes.
fn word(mode: &str) -> String {
    match mode {
        "acquire" | "release" | "check" => mode.to_owned(),
        other => quoted(other),
    }
}

/// The lock file as it was seen.
#[derive(Debug, Clone)]
pub(crate) struct LockFileView {
    pub(crate) standing: Standing,
    /// The claim of its record; `None` if the record could not be read or does not exist.
    pub(crate) claim: Option<Claim>,
    /// Whether its process runs.
    pub(crate) alive: Option<bool>,
    /// What is wrong with the record.
    pub(crate) unreadable: Option<String>,
}

impl LockFileView {
    /// A claim, judged already.
    pub(crate) fn claimed(standing: Standing, claim: Claim, alive: Option<bool>) -> Self {
        Self {
            standing,
            claim: Some(claim),
            alive,
            unreadable: None,
        }
    }

    /// What a reading found. A waiter has no record and is not seen here.
    pub(crate) fn of(reading: &Reading, policy: &Policy, now: &Now) -> Self {
        let (entry, evidence) = match &reading.content {
            Content::Whole { entry, evidence } => (entry, evidence),
            Content::Unreadable { why, .. } => {
                return Self {
                    standing: tenure_core::unreadable(policy),
                    claim: None,
                    alive: None,
                    unreadable: Some(why.clone()),
                };
            }
        };
        let mut held = entry.claims.iter().zip(evidence);
        match held.find(|(claim, _)| claim.token.is_some()) {
            None => Self {
                standing: Standing::Free,
                claim: None,
                alive: None,
                unreadable: None,
            },
            Some((claim, evidence)) => {
                let standing = judge(policy, claim, evidence, now);
                Self::claimed(standing, claim.clone(), alive(evidence.process))
            }
        }
    }

    /// Why the record cannot be judged, although it is a session's. The end of a process needs no other proof.
    pub(crate) fn unjudged(&self) -> Option<&str> {
        let why = self.claim.as_ref()?.holder.fact("unjudged")?;
        (!self.is_zombie()).then_some(why)
    }

    pub(crate) fn is_zombie(&self) -> bool {
        matches!(self.standing, Standing::Stale(_) | Standing::Unreadable)
    }

    /// Whether there is no lock.
    pub(crate) fn is_free(&self) -> bool {
        self.standing == Standing::Free
    }

    /// The facts for the document.
    pub(crate) fn info(&self, now: &Now) -> LockInfo {
        let mut info = LockInfo {
            exists: Some(!self.is_free()),
            is_zombie: self.unjudged().is_none().then(|| self.is_zombie()),
            pid_alive: self.alive,
            ..LockInfo::default()
        };
        if let Some(claim) = &self.claim {
            let holder = &claim.holder;
            let epic = holder.fact("epic_spec").unwrap_or(&holder.why);
            info.pid = holder.process.map(|process| process.pid);
            info.session_id = some(holder.request_id.as_str());
            info.epic_spec = some(epic);
            info.started_at = started(claim);
            info.age_hours = self.age_ms(now).map(hours);
        }
        info
    }

    /// How long ago it was taken.
    pub(crate) fn age_ms(&self, now: &Now) -> Option<u64> {
        let claim = self.claim.as_ref()?;
        let boot = claim.boot();
        since(claim).map(|since| since.age_ms(boot, now))
    }

    /// What the caller should know about the record beside its standing.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some(why) = &self.unreadable {
            warnings.push(format!("Cannot read lock file: {}", clean(why)));
        }
        if let Some(claim) = &self.claim {
            if claim.holder.fact("future").is_some() {
                warnings.push(
                    "started_at lies in the future; the lock counts as just taken".to_owned(),
                );
            }
            if let Some(why) = self.unjudged() {
                warnings.push(format!(
                    "whether the lock is active cannot be judged: {}; overriding it needs --force \
                     and --yes",
                    clean(why)
                ));
            } else if claim.kind == Kind::Sealed {
                let although = match self.alive {
                    Some(false) => ", so it counts as active although its process is dead",
                    Some(true) | None => "",
                };
                warnings.push(format!(
                    "lock_version is above 1, which tenure cannot judge{although}; overriding it needs \
                     --force and --yes"
                ));
            }
        }
        warnings
    }

    /// Whose it is, in the words that users know.
    pub(crate) fn whose(&self) -> String {
        let claim = self.claim.as_ref();
        let unknown = || "unknown".to_owned();
        let pid = claim.and_then(|claim| claim.holder.process);
        let session = claim.and_then(|claim| some(claim.holder.request_id.as_str()));
        let started = claim.and_then(started);
        format!(
            "(PID: {}, session: {}, started: {})",
            pid.map_or_else(unknown, |process| process.pid.to_string()),
            session.map_or_else(unknown, |session| clean(&session).into_owned()),
            started.unwrap_or_else(unknown),
        )
    }

    /// Why it is a zombie.
    pub(crate) fn because(&self) -> &'static str {
        match self.standing {
            Standing::Stale(reason) => because(reason),
            Standing::Unreadable => because(StaleReason::Unreadable),
            Standing::Free | Standing::Held(_) | Standing::Unknown => "it counts no longer",
        }
    }

    pub(crate) fn running(&self) -> String {
        format!("Sprint already running {}", self.whose())
    }

    pub(crate) fn zombie(&self) -> String {
        format!("Zombie lock detected {}: {}", self.whose(), self.because())
    }
}

/// When it was taken, unless the record does not say so.
fn since(claim: &Claim) -> Option<Stamp> {
    let since = claim.since;
    since.filter(|_| claim.holder.fact("undated").is_none())
}

pub(crate) fn because(reason: StaleReason) -> &'static str {
    match reason {
        StaleReason::ProcessDead(Death::Rebooted) => "the machine has restarted since",
        StaleReason::ProcessDead(Death::Replaced) => "its PID belongs to another process now",
        StaleReason::ProcessDead(Death::Gone | Death::Zombie) => "its process is dead",
        StaleReason::ProcessUnknown => "its process cannot be checked",
        StaleReason::LivenessLockReleased => "it ended without releasing",
        StaleReason::Silent | StaleReason::Aged => "it is too old",
        StaleReason::Unreadable => "it cannot be read",
    }
}

/// What is known of a process, as the document has it.
pub(crate) fn alive(process: Liveness) -> Option<bool> {
    match process {
        Liveness::Alive => Some(true),
        Liveness::Dead(_) => Some(false),
        Liveness::Unknown | Liveness::NotRecorded => None,
    }
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// When a lock was taken, in UTC and with milliseconds, as tenure writes it. Whole seconds in another
/// program's record stay whole, as such programs mostly write them.
fn started(claim: &Claim) -> Option<String> {
    let since = since(claim)?;
    let millis = i64::try_from(since.wall_ms).ok()?;
    let time = jiff::Timestamp::from_millisecond(millis).ok()?;
    let whole = millis % 1_000 == 0 && matches!(claim.kind, Kind::Foreign | Kind::Sealed);
    Some(if whole {
        time.to_string()
    } else {
        format!("{time:.3}")
    })
}

/// Hours to three places, cut and not rounded: an active lock never shows 24.0.
fn hours(millis: u64) -> f64 {
    let thousandths = u32::try_from(millis / 3_600).unwrap_or(u32::MAX);
    f64::from(thousandths) / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Document {
        Document::new(
            Status::Clean,
            "check",
            LockInfo::default(),
            "There is no lock",
        )
    }

    #[test]
    fn yaml_and_json_say_the_same_of_every_text() {
        for text in [
            "",
            " ",
            "~",
            "yes",
            "no",
            "null",
            "1",
            "1.5",
            "0x1F",
            "a: b",
            "- a",
            "#",
            "'",
            "\"",
            "\\",
            "\\n",
            "a\nb",
            "a\r\nb",
            "\t",
            "\0",
            "\u{1b}[31m",
            "\u{7f}",
            "\u{85}",
            "\u{9b}",
            "\u{2028}",
            "\u{202e}x",
            "\u{feff}",
            "é漢🔒",
        ] {
            let mut document = document();
            document.mode = text.to_owned();
            document.lock_info.session_id = Some(text.to_owned());
            document.lock_info.age_hours = Some(1.5);
            document.message = text.to_owned();
            document.errors = vec![text.to_owned(), "second".to_owned()];
            let yaml = document.yaml();
            assert!(
                yaml.chars().all(|c| c == '\n' || !c.is_control()),
                "nothing that a terminal would act on: {yaml:?}"
            );
            let read: Value = serde_saphyr::from_str(&yaml).expect(&yaml);
            assert_eq!(read, document.json(), "{yaml}");
        }
    }

    #[test]
    fn hours_are_cut() {
        for (millis, expected) in [
            (0, "0.0"),
            (3_599, "0.0"),
            (3_600, "0.001"),
            (5_400_000, "1.5"),
            (86_399_999, "23.999"),
            (86_400_000, "24.0"),
        ] {
            assert_eq!(format!("{:?}", hours(millis)), expected);
        }
    }
}
