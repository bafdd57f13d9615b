//! What `tenure.toml` says about some locks: defaults that save a flag, and what a lock is for everybody.
//!
//! A value is kept as written; the code that uses it reads it by the parser of the flag. This file looks at
//! what has no flag (`members`, `env`), and whether the keys of one table contradict each other. What a typed
//! flag changes, `request` decides.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::num::NonZeroU32;

/// Stands in a value of `env` for the member that the number of the slot names.
const MEMBER: &str = "{member}";

/// Stands there for the number itself.
const SLOT: &str = "{slot}";

/// Defaults for some locks, as written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockDefaults {
    /// How long to wait.
    pub wait: Option<String>,
    /// The ttl.
    pub ttl: Option<String>,
    /// The age at which a detached hold ends.
    pub max_age: Option<String>,
    /// How many may hold the lock at a time.
    pub slots: Option<NonZeroU32>,
    /// Whether callers hold it beside other shared holders.
    pub shared: Option<bool>,
    /// What the slots stand for, in the order of their numbers.
    pub members: Option<Vec<String>>,
    /// Variables for the command.
    pub env: Option<BTreeMap<String, String>>,
    /// The group that a run of this lock is in.
    pub group: Option<String>,
    /// How a run waits.
    pub queue: Option<String>,
    /// Whether a run asks the present holder to stop.
    pub cancel_in_progress: Option<bool>,
    /// How long the work may take to end.
    pub grace: Option<String>,
    /// When SIGTERM follows whatever asked the work to end.
    pub term_after: Option<String>,
    /// What asks the work to end.
    pub signal: Option<String>,
    /// How long the work may take.
    pub max_runtime: Option<String>,
    /// What a run does whose lock is lost.
    pub on_lost: Option<String>,
    /// What a run does that does not get the lock.
    pub on_held: Option<String>,
    /// Whether a run goes on under the lock of the run around it.
    pub reentrant: Option<bool>,
    /// Whether a run stays until everything has ended that its command has started.
    pub wait_all: Option<bool>,
    /// Whether the command does not inherit what keeps the lock held.
    pub close: Option<bool>,
    /// A line for a shell that undoes a failed command.
    pub rollback: Option<String>,
    /// A line for a shell before the command, when a run takes the place of others.
    pub on_supersede: Option<String>,
    /// A line for a shell after the command, when another run takes its place.
    pub on_superseded: Option<String>,
}

impl LockDefaults {
    /// Joins these defaults with the others, of which counts what these do not say. Slots, their members
    /// and `shared` are one statement.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        let says_mode = self.slots.is_some() || self.members.is_some() || self.shared.is_some();
        let mode = if says_mode {
            (self.slots, self.members, self.shared)
        } else {
            (others.slots, others.members, others.shared)
        };
        Self {
            wait: self.wait.or(others.wait),
            ttl: self.ttl.or(others.ttl),
            max_age: self.max_age.or(others.max_age),
            slots: mode.0,
            members: mode.1,
            shared: mode.2,
            env: self.env.or(others.env),
            group: self.group.or(others.group),
            queue: self.queue.or(others.queue),
            cancel_in_progress: self.cancel_in_progress.or(others.cancel_in_progress),
            grace: self.grace.or(others.grace),
            term_after: self.term_after.or(others.term_after),
            signal: self.signal.or(others.signal),
            max_runtime: self.max_runtime.or(others.max_runtime),
            on_lost: self.on_lost.or(others.on_lost),
            on_held: self.on_held.or(others.on_held),
            reentrant: self.reentrant.or(others.reentrant),
            wait_all: self.wait_all.or(others.wait_all),
            close: self.close.or(others.close),
            rollback: self.rollback.or(others.rollback),
            on_supersede: self.on_supersede.or(others.on_supersede),
            on_superseded: self.on_superseded.or(others.on_superseded),
        }
    }

    /// How many may hold the lock at a time, if that is said.
    pub fn slots(&self) -> Option<NonZeroU32> {
        let members = self.members.as_ref().map(Vec::len);
        let members = members.and_then(|count| NonZeroU32::new(u32::try_from(count).ok()?));
        self.slots.or(members)
    }

    /// The variables for a command whose hold has this number and stands for this member; none if what they depend on is
    /// not known.
    pub fn env_of(&self, slot: Option<u32>, member: Option<&str>) -> Vec<(String, String)> {
        let told = |value: &str| {
            let value = match slot {
                Some(slot) => value.replace(SLOT, &slot.to_string()),
                None if value.contains(SLOT) => return None,
                None => value.to_owned(),
            };
            // The text of a member is not looked at again.
            match member {
                Some(member) => Some(value.replace(MEMBER, member)),
                None => (!value.contains(MEMBER)).then_some(value),
            }
        };
        let env = self.env.iter().flatten();
        env.filter_map(|(name, value)| Some((name.clone(), told(value)?)))
            .collect()
    }

    /// The first key by which the file decides what its caller's machine runs, or with which variables.
    pub(crate) fn decides_what_runs(&self) -> Option<&'static str> {
        self.keys_of_what_runs().next()
    }

    /// All of these keys.
    pub(crate) fn keys_of_what_runs(&self) -> impl Iterator<Item = &'static str> {
        let lines = self.lines().map(|(key, line)| (line.is_some(), key));
        let keys = [(self.env.is_some(), "env")].into_iter().chain(lines);
        keys.filter_map(|(says, key)| says.then_some(key))
    }

    /// All that it says of that, by key. The members are a part of it where a variable names them.
    pub(crate) fn what_runs(&self) -> Vec<(String, String)> {
        let env = self.env.iter().flatten();
        let mut said: Vec<_> = env
            .map(|(name, value)| (format!("env {name}"), value.clone()))
            .collect();
        if said.iter().any(|(_, value)| value.contains(MEMBER)) {
            let members = self.members.iter().flatten();
            said.extend(members.map(|member| ("member".to_owned(), member.clone())));
        }
        let lines = self.lines().into_iter();
        said.extend(lines.filter_map(|(key, line)| Some((key.to_owned(), line?.to_owned()))));
        said
    }

    /// The lines for a shell, by key.
    fn lines(&self) -> [(&'static str, Option<&str>); 3] {
        [
            ("rollback", self.rollback.as_deref()),
            ("on_supersede", self.on_supersede.as_deref()),
            ("on_superseded", self.on_superseded.as_deref()),
        ]
    }

    /// What is wrong with the keys of this table: the key, and why, as the end of a sentence.
    pub(super) fn mistake(&self) -> Option<(&'static str, String)> {
        let members = self.mistake_of_members().map(|why| ("members", why));
        let env = || self.mistake_of_env().map(|why| ("env", why));
        members.or_else(env).or_else(|| self.contradiction())
    }

    fn mistake_of_members(&self) -> Option<String> {
        let members = self.members.as_ref()?;
        if members.is_empty() {
            return Some("it is empty; name what the slots stand for, or leave it out".to_owned());
        }
        if members.iter().any(|member| member.trim().is_empty()) {
            return Some("a member is empty; name what its slot stands for".to_owned());
        }
        if let Some(bad) = members.iter().find(|member| member.contains(['\0', '\n'])) {
            return Some(format!(
                "{bad:?} contains a NUL or a line break; a member is one line"
            ));
        }
        let mut seen = Vec::new();
        for member in members {
            if seen.contains(&member) {
                return Some(format!(
                    "{member:?} stands there twice; two holders would have it at a time"
                ));
            }
            seen.push(member);
        }
        let slots = self.slots.map(NonZeroU32::get)?;
        (usize::try_from(slots).ok() != Some(members.len())).then(|| {
            format!(
                "slots = {slots}, and {} are named here; leave slots out",
                members.len()
            )
        })
    }

    fn mistake_of_env(&self) -> Option<String> {
        for (name, value) in self.env.iter().flatten() {
            if name.is_empty() || name.contains(['=', '\0']) {
                return Some(format!("{name:?} is no name of a variable"));
            }
            if name.starts_with("TENURE_") {
                return Some(format!("{name}: tenure itself sets variables of this name"));
            }
            if value.contains('\0') {
                return Some(format!("{name}: its value contains a NUL"));
            }
            if let Some(unknown) = unknown_placeholder(value) {
                return Some(format!(
                    "{name}: {unknown} is unknown; write {SLOT} or {MEMBER}"
                ));
            }
            if value.contains(MEMBER) && self.members.is_none() {
                return Some(format!(
                    "{name}: {MEMBER} needs members = […]; the number of the slot is {SLOT}"
                ));
            }
            if value.contains(SLOT) && self.slots().is_none() {
                return Some(format!("{name}: {SLOT} needs slots = N, or members = […]"));
            }
        }
        None
    }

    /// As on the command line: keys that cannot be heeded together.
    fn contradiction(&self) -> Option<(&'static str, String)> {
        let cancels = self.cancel_in_progress == Some(true);
        let against = |key: &str| format!("it contradicts {key}; leave one of them out");
        match self.queue.as_deref() {
            Some("none" | "fifo" | "max") if cancels => {
                Some(("queue", against("cancel_in_progress")))
            }
            Some("none") if self.group.is_some() => Some(("queue", against("group"))),
            Some("none") if self.wait.is_some() => Some(("queue", against("wait"))),
            _ if self.shared == Some(true) && self.slots.is_some() => {
                Some(("shared", against("slots")))
            }
            _ if self.shared == Some(true) && self.members.is_some() => {
                Some(("shared", against("members")))
            }
            _ => self.mistake_of_lines(),
        }
    }
}

impl LockDefaults {
    fn mistake_of_lines(&self) -> Option<(&'static str, String)> {
        self.lines().into_iter().find_map(|(key, line)| {
            let line = line?;
            if line.trim().is_empty() {
                let why = "it is empty; write a line for sh -c, or leave it out";
                return Some((key, why.to_owned()));
            }
            line.contains('\0').then(|| {
                (
                    key,
                    "it contains a NUL, which no command can have".to_owned(),
                )
            })
        })
    }
}

/// A word in braces that stands for nothing. Other braces are text, as in JSON.
fn unknown_placeholder(value: &str) -> Option<&str> {
    let mut rest = value;
    while let Some(start) = rest.find('{') {
        rest = rest.get(start..)?;
        let inner = rest.get(1..).and_then(|inner| inner.split_once('}'));
        if let Some((word, _)) = inner
            && !word.is_empty()
            && word
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        {
            let whole = rest.get(..word.len() + 2)?;
            if whole != MEMBER && whole != SLOT {
                return Some(whole);
            }
        }
        rest = rest.get(1..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> LockDefaults {
        toml::from_str(text).expect("a table")
    }

    #[test]
    fn a_pool_names_its_members_by_the_numbers_of_its_slots() {
        let gpu = table(
            "members = [\"a\", \"b\"]\nenv = { DEVICE = \"{member}\", ALL = \"{slot}:{member}\", X = \"{\\\"y\\\":1}\" }",
        );
        assert_eq!(gpu.mistake(), None);
        assert_eq!(gpu.slots(), NonZeroU32::new(2));
        let told = |slot, member| {
            let told = gpu.env_of(slot, member);
            told.into_iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect::<Vec<_>>()
        };
        let all = ["ALL=0:b", "DEVICE=b", "X={\"y\":1}"];
        assert_eq!(told(Some(0), Some("b")), all);
        let some = ["X={\"y\":1}"];
        assert_eq!(told(None, None), some, "nothing is guessed");
        assert_eq!(told(Some(2), None), some, "there is no such member");
    }

    #[test]
    fn keys_that_mean_nothing_together_are_named() {
        for (text, key, word) in [
            ("members = []", "members", "empty"),
            ("members = [\"a\", \"a\"]", "members", "twice"),
            (
                "members = [\"a\", \"b\"]\nslots = 3",
                "members",
                "slots = 3",
            ),
            ("env = { \"A=B\" = \"x\" }", "env", "no name"),
            ("env = { \"\" = \"x\" }", "env", "no name"),
            ("env = { TENURE_DIR = \"x\" }", "env", "itself sets"),
            (
                "slots = 2\nenv = { A = \"{membr}\" }",
                "env",
                "{membr} is unknown",
            ),
            (
                "slots = 2\nenv = { A = \"{member}\" }",
                "env",
                "needs members",
            ),
            ("env = { A = \"{slot}\" }", "env", "needs slots"),
            ("queue = \"none\"\nwait = \"1s\"", "queue", "wait"),
            ("queue = \"none\"\ngroup = \"g\"", "queue", "group"),
            (
                "queue = \"max\"\ncancel_in_progress = true",
                "queue",
                "cancel_in_progress",
            ),
            ("shared = true\nslots = 2", "shared", "slots"),
            ("shared = true\nmembers = [\"a\"]", "shared", "members"),
            ("rollback = \" \"", "rollback", "empty"),
            ("on_superseded = \"a\\u0000\"", "on_superseded", "NUL"),
        ] {
            let (found, why) = table(text).mistake().expect(text);
            assert_eq!(found, key, "{text}: {why}");
            assert!(why.contains(word), "{text}: {why}");
        }
        for fine in [
            "slots = 2\nmembers = [\"a\", \"b\"]",
            "queue = \"single\"\ncancel_in_progress = true",
            "queue = \"none\"\ncancel_in_progress = false",
            "shared = false\nslots = 2",
            "slots = 1\nenv = { A = \"{ }{}{\", B = \"{Slot}\", C = \"{{slot}}\" }",
        ] {
            assert_eq!(table(fine).mistake(), None, "{fine}");
        }
        assert!(toml::from_str::<LockDefaults>("slots = 0").is_err());
        assert!(toml::from_str::<LockDefaults>("slot = 2").is_err());
    }

    #[test]
    fn what_one_file_leaves_out_another_may_say() {
        let near = table("slots = 3\nwait = \"1s\"");
        let far = table("members = [\"a\"]\nwait = \"2s\"\nttl = \"5s\"");
        let both = near.clone().or(far.clone());
        assert_eq!(both, table("slots = 3\nwait = \"1s\"\nttl = \"5s\""));
        assert_eq!(
            table("ttl = \"1s\"").or(far).members.map(|it| it.len()),
            Some(1)
        );
    }
}
