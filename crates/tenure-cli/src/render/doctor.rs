//! What `doctor` found, as lines for people and as a document for programs.

use super::colour::{paint, shows_colours};
use super::width::{pad, room_on_stdout, width};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::stdout;
use tenure_engine::audit::Recording;

/// The column of the labels.
const LABEL_COLUMNS: usize = 15;

/// The column of a check's status.
const STATUS_COLUMNS: usize = 5;

/// A text is not broken into lines that are shorter than this.
const TEXT_COLUMNS_MIN: usize = 30;

/// What a check is about. Its word is stable, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    Configuration,
    Place,
    Folder,
    Mount,
    Locks,
    Servers,
    Leftovers,
    LockFiles,
    Git,
    Audit,
    Clock,
}

impl Finding {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Place => "place",
            Self::Folder => "folder",
            Self::Mount => "mount",
            Self::Locks => "locks",
            Self::Servers => "servers",
            Self::Leftovers => "leftovers",
            Self::LockFiles => "lock_files",
            Self::Git => "git",
            Self::Audit => "audit",
            Self::Clock => "clock",
        }
    }

    fn label(self) -> String {
        self.word().replace('_', " ")
    }
}

const LISTED: &str = "access_list";
const EACH_USER: &str = "each_user";

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Ok,
    /// Worth knowing; calls work.
    Note,
    /// Calls fail, or a promise does not hold.
    Wrong,
}

impl Status {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Wrong => "wrong",
        }
    }
}

/// A check and what it found.
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) finding: Finding,
    pub(crate) status: Status,
    message: String,
    fix: Option<String>,
}

/// The users whom the locks of a folder are for.
#[derive(Debug)]
pub(crate) struct Users {
    word: &'static str,
    owner: Option<String>,
    group: Option<String>,
}

impl Users {
    pub(crate) fn owner(owner: String) -> Self {
        Self {
            word: "owner",
            owner: Some(owner),
            group: None,
        }
    }

    pub(crate) fn readers(owner: String, group: String) -> Self {
        Self {
            word: "owner_and_readers",
            owner: Some(owner),
            group: Some(group),
        }
    }

    pub(crate) fn group(group: String) -> Self {
        Self {
            word: "group",
            owner: None,
            group: Some(group),
        }
    }

    pub(crate) fn listed(owner: String) -> Self {
        Self {
            word: LISTED,
            owner: Some(owner),
            group: None,
        }
    }

    pub(crate) fn each() -> Self {
        Self {
            word: EACH_USER,
            owner: None,
            group: None,
        }
    }

    fn text(&self) -> String {
        match (&self.owner, &self.group) {
            (Some(owner), Some(group)) => format!("{owner}; members of the group {group} may look"),
            (Some(owner), None) if self.word == LISTED => {
                format!("{owner}, and those whom its access list (ACL) lets in")
            }
            (Some(owner), None) => format!("{owner} alone"),
            (None, Some(group)) => format!("the members of the group {group}"),
            (None, None) => "each user, for locks of their own".to_owned(),
        }
    }
}

/// Where the locks are.
#[derive(Debug)]
pub(crate) struct Where {
    is_folder: bool,
    /// The folder or the URL.
    pub(crate) shown: String,
    pub(crate) why: Option<String>,
    pub(crate) exists: Option<bool>,
    pub(crate) users: Option<Users>,
    pub(crate) mode: Option<String>,
    pub(crate) file_system: Option<String>,
    pub(crate) network: Option<bool>,
    /// Not all programs of this machine have this folder by its name.
    pub(crate) is_apart: bool,
}

impl Where {
    pub(crate) fn named(shown: String, why: Option<String>, is_folder: bool) -> Self {
        Self {
            is_folder,
            shown,
            why,
            exists: None,
            users: None,
            mode: None,
            file_system: None,
            network: None,
            is_apart: false,
        }
    }

    fn json(&self) -> Value {
        json!({
            "kind": if self.is_folder { "folder" } else { "etcd" },
            "at": self.shown,
            "because": self.why,
            "exists": self.exists,
            "users": self.users.as_ref().map(|users| json!({
                "who": users.word,
                "owner": users.owner,
                "group": users.group,
            })),
            "mode": self.mode,
            "file_system": self.file_system,
            "network": self.network,
        })
    }
}

/// The audit of the calls.
#[derive(Debug)]
pub(crate) struct Audit {
    pub(crate) folder: String,
    pub(crate) recording: Recording,
}

/// Everything that was found.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) place: Option<Where>,
    pub(crate) profile: Option<String>,
    pub(crate) audit: Option<Audit>,
    version: String,
    /// Path of this program.
    program: Option<String>,
    pub(crate) checks: Vec<Check>,
}

impl Report {
    pub(crate) fn of(version: String, program: Option<String>) -> Self {
        Self {
            place: None,
            profile: None,
            audit: None,
            version,
            program,
            checks: Vec::new(),
        }
    }

    /// A check that found nothing.
    pub(crate) fn ok(&mut self, finding: Finding, message: &str) {
        self.add(finding, Status::Ok, message, None);
    }

    /// Whether that check has found something wrong.
    pub(crate) fn is_wrong(&self, finding: Finding) -> bool {
        let mut checks = self.checks.iter();
        checks.any(|check| check.finding == finding && check.status == Status::Wrong)
    }

    pub(crate) fn add(
        &mut self,
        finding: Finding,
        status: Status,
        message: &str,
        fix: Option<String>,
    ) {
        self.checks.push(Check {
            finding,
            status,
            message: super::clean(message).into_owned(),
            fix: fix.map(|fix| super::clean(&fix).into_owned()),
        });
    }

    /// Whether each user has locks of their own in the folder.
    pub(crate) fn is_for_each_user(&self) -> bool {
        let users = self.place.as_ref().and_then(|place| place.users.as_ref());
        users.is_some_and(|users| users.word == EACH_USER)
    }

    pub(crate) fn wrong(&self) -> impl Iterator<Item = &Check> {
        let checks = self.checks.iter();
        checks.filter(|check| check.status == Status::Wrong)
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
        let checks = self.checks.iter().map(|check| {
            json!({
                "check": check.finding.word(),
                "status": check.status.word(),
                "message": check.message,
                "fix": check.fix,
            })
        });
        json!({
            "place": self.place.as_ref().map(Where::json),
            "profile": self.profile,
            "audit": self.audit.as_ref().map(|audit| json!({
                "folder": audit.folder,
                "records": match audit.recording {
                    Recording::Incidents => "exceptions",
                    Recording::All | Recording::Arguments => "everything",
                },
            })),
            "version": self.version,
            "program": self.program,
            "checks": checks.collect::<Vec<_>>(),
        })
    }

    /// For people; a quiet one names only what is wrong.
    pub(crate) fn text(&self, is_quiet: bool) -> String {
        let room = room_on_stdout();
        let mut text = String::new();
        if !is_quiet {
            self.facts(&mut text, room);
            text.push('\n');
        }
        for check in &self.checks {
            if !is_quiet || check.status == Status::Wrong {
                check.line(&mut text, room);
            }
        }
        if is_quiet {
            return text.trim_end().to_owned();
        }
        let count = |status| {
            self.checks
                .iter()
                .filter(|check| check.status == status)
                .count()
        };
        let (wrong, notes) = (count(Status::Wrong), count(Status::Note));
        let ends = |count: usize, one: &str, more: &str| match count {
            1 => format!("1 {one}"),
            count => format!("{count} {more}"),
        };
        let wrong = match wrong {
            0 => "Nothing is wrong".to_owned(),
            count => ends(count, "thing is wrong", "things are wrong"),
        };
        let notes = match notes {
            0 => String::new(),
            count => format!("; {}", ends(count, "note", "notes")),
        };
        let _ = write!(text, "\n{wrong}{notes}.");
        text
    }

    fn facts(&self, text: &mut String, room: Option<usize>) {
        let mut fact = |label: &str, said: &str| line(text, "", label, said, room);
        if let Some(place) = &self.place {
            fact(
                if place.is_folder { "folder" } else { "servers" },
                &place.shown,
            );
            if let Some(why) = &place.why {
                fact("because of", why);
            }
            if let Some(users) = &place.users {
                let mode = place.mode.as_ref();
                let more = match (place.exists, mode) {
                    (Some(false), _) => ", once a call has made it".to_owned(),
                    (_, Some(mode)) => format!(" (mode {mode})"),
                    (_, None) => String::new(),
                };
                fact("for", &format!("{}{more}", users.text()));
            } else if place.is_folder {
                fact("for", "no user: calls refuse it, see below");
            } else {
                fact("for", "all callers whom the servers let in, on any machine");
            }
            if let Some(kind) = &place.file_system {
                let reach = match place.network {
                    Some(true) => "other machines or programs stand behind it",
                    _ if place.is_apart => "of a part of this machine, see below",
                    Some(false) | None => "of this machine",
                };
                fact("file system", &format!("{kind}, {reach}"));
            }
        } else {
            fact("place", "not known");
        }
        if let Some(profile) = &self.profile {
            fact("profile", profile);
        }
        if let Some(audit) = &self.audit {
            let what = audit.recording.as_str();
            fact("audit", &format!("{what}, {}", audit.folder));
        }
        let program = self.program.as_deref().unwrap_or("from an unknown path");
        fact("version", &format!("{}, {program}", self.version));
    }
}

impl Check {
    fn line(&self, text: &mut String, room: Option<usize>) {
        let word = pad(self.status.word(), STATUS_COLUMNS);
        let word = if shows_colours(&stdout()) {
            paint(&word, self.status.word())
        } else {
            word
        };
        line(
            text,
            &format!("{word}  "),
            &self.finding.label(),
            &self.message,
            room,
        );
        if let Some(fix) = &self.fix {
            line(
                text,
                &" ".repeat(STATUS_COLUMNS + 2),
                "",
                &format!("-> {fix}"),
                room,
            );
        }
    }
}

/// A label and a text behind it, broken at spaces so that it fits.
fn line(text: &mut String, before: &str, label: &str, said: &str, room: Option<usize>) {
    let indent = if before.is_empty() {
        LABEL_COLUMNS
    } else {
        STATUS_COLUMNS + 2 + LABEL_COLUMNS
    };
    text.push_str(before);
    text.push_str(&pad(label, LABEL_COLUMNS));
    let room = room.map(|room| room.saturating_sub(indent).max(TEXT_COLUMNS_MIN));
    let lines = broken(said, room);
    text.push_str(&lines.join(&format!("\n{:indent$}", "")));
    text.push('\n');
}

fn broken(said: &str, room: Option<usize>) -> Vec<String> {
    let Some(room) = room else {
        return vec![said.to_owned()];
    };
    let mut lines = vec![String::new()];
    for word in said.split(' ') {
        let Some(last) = lines.last_mut() else {
            break;
        };
        if last.is_empty() {
            last.push_str(word);
        } else if width(last) + 1 + width(word) <= room {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_broken_at_spaces_and_only_where_it_has_to_be() {
        assert_eq!(broken("a b c", None), ["a b c"]);
        assert_eq!(broken("aa bb cc", Some(5)), ["aa bb", "cc"]);
        assert_eq!(broken("aaaaaaaa b", Some(5)), ["aaaaaaaa", "b"]);
    }
}
