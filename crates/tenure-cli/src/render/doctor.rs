//! What `doctor` found, as lines for people and as a document for programs.

use super::findings::{Findings, Form, Status, line};
use super::width::room_on_stdout;
use serde_json::{Value, json};
use std::fmt::Write as _;
use tenure_engine::audit::Recording;

/// The column of the labels.
const LABEL_COLUMNS: usize = 15;

const LISTED: &str = "access_list";
const EACH_USER: &str = "each_user";

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

    /// Who uses the folder. In one of some modes others see names of locks, and take none.
    fn text(&self, mode: Option<&str>) -> String {
        let mode = mode.and_then(|mode| u32::from_str_radix(mode, 8).ok());
        let others_read = mode.is_some_and(|mode| mode & 0o044 != 0);
        match (&self.owner, &self.group) {
            (Some(owner), Some(group)) => format!("{owner}; members of the group {group} may look"),
            (Some(owner), None) if self.word == LISTED => {
                format!("{owner}, and those whom its access list (ACL) lets in")
            }
            (Some(owner), None) if others_read => format!("{owner} writes, others read"),
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
    pub(crate) checks: Findings,
}

impl Report {
    pub(crate) fn of(version: String, program: Option<String>) -> Self {
        Self {
            place: None,
            profile: None,
            audit: None,
            version,
            program,
            checks: Findings::default(),
        }
    }

    /// Whether each user has locks of their own in the folder.
    pub(crate) fn is_for_each_user(&self) -> bool {
        let users = self.place.as_ref().and_then(|place| place.users.as_ref());
        users.is_some_and(|users| users.word == EACH_USER)
    }

    /// For programs.
    pub(crate) fn json(&self) -> Value {
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
            "checks": self.checks.json("check"),
        })
    }

    /// For people; a quiet one names only what is wrong.
    pub(crate) fn text(&self, is_quiet: bool) -> String {
        let room = room_on_stdout();
        let form = Form {
            label_columns: LABEL_COLUMNS,
            before_fix: "-> ",
        };
        if is_quiet {
            return self.checks.text(form, |status| status == Status::Wrong);
        }
        let mut text = String::new();
        self.facts(&mut text, room);
        let checks = self.checks.text(form, |_| true);
        let ends = |count: usize, one: &str, more: &str| match count {
            1 => format!("1 {one}"),
            count => format!("{count} {more}"),
        };
        let wrong = match self.checks.count(Status::Wrong) {
            0 => "Nothing is wrong".to_owned(),
            count => ends(count, "thing is wrong", "things are wrong"),
        };
        let notes = match self.checks.count(Status::Note) {
            0 => String::new(),
            count => format!("; {}", ends(count, "note", "notes")),
        };
        let _ = write!(text, "\n{checks}\n\n{wrong}{notes}.");
        text
    }

    fn facts(&self, text: &mut String, room: Option<usize>) {
        let mut fact = |label: &str, said: &str| line(text, "", (label, LABEL_COLUMNS), said, room);
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
                let users = users.text(mode.map(String::as_str));
                fact("for", &format!("{users}{more}"));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_that_lets_others_read_is_not_said_to_be_for_one_alone() {
        for (mode, told) in [
            (None, "root alone"),
            (Some("700"), "root alone"),
            (Some("711"), "root alone"),
            (Some("755"), "root writes, others read"),
            (Some("750"), "root writes, others read"),
            (Some("704"), "root writes, others read"),
        ] {
            assert_eq!(Users::owner("root".to_owned()).text(mode), told, "{mode:?}");
        }
    }
}
