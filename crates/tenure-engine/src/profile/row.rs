//! A user's own profile: a row over the same axes as the built-in ones, as `tenure.toml` has it.
//!
//! A row begins as a built-in one, whose file format it keeps, and says what is different. This file reads
//! its words, and refuses rows that contradict themselves. The core decides what the answers on the axes
//! lead to, for every profile alike.

use super::{Place, Profile, Record, Settings, built_in};
use crate::audit::Layout;
use crate::duration::{self, DurationError};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tenure_core::{
    AbsentRelease, AgeLimit, AgeRule, ForceOnHeld, HeldUnforced, LockName, OwnAgain, Policy,
    ReleaseByOther, StaleUnforced, UnknownLife, UnreadableRule,
};

/// The longest name of a profile, in characters.
const NAME_CHARS_MAX: usize = 32;

/// One `[profile.NAME]`, as written. What it leaves out is as in the row that it begins as.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowConfig {
    /// The built-in profile to begin with, and whose file format is used; `native` if left out.
    pub like: Option<String>,
    /// The age since the grant at which a lock is stale, or `never`.
    pub stale_after: Option<String>,
    /// The silence since the last renewal at which a lock is stale, or `ttl`.
    pub stale_silence: Option<String>,
    /// What it means when a process cannot be judged.
    pub unknown_process: Option<String>,
    /// What an unreadable record means.
    pub unreadable: Option<String>,
    /// What a plain request does about a stale lock.
    pub stale: Option<String>,
    /// What a plain request does about a held one: `refuse`, or how long it waits.
    pub held: Option<String>,
    /// The answer to the owner of a held one that asks again.
    pub own_again: Option<String>,
    /// What force may do to a held one.
    pub force: Option<String>,
    /// What happens when a caller other than the owner releases.
    pub release_by_other: Option<String>,
    /// What releasing an absent lock answers.
    pub absent_release: Option<String>,
    /// The ttl of a supervised run.
    pub ttl: Option<String>,
    /// The ttl of a hold without a supervisor.
    pub detached_ttl: Option<String>,
}

/// Why a row cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RowError {
    /// Its name is not of the form that names of profiles have.
    #[error(
        "the name of a profile has 1 to {NAME_CHARS_MAX} lower-case letters, digits and hyphens, \
         and no hyphen first"
    )]
    NameForm,
    /// Its name is that of a built-in profile.
    #[error("this name is a built-in profile's; choose another and write `like` for its row")]
    NameTaken,
    /// A setting of the call cannot be used with it.
    #[error("{0}")]
    Setting(String),
    /// A key has a value that it does not know.
    #[error("{key} = {given:?}: write {expected}")]
    Value {
        /// The key.
        key: &'static str,
        /// What it says.
        given: String,
        /// What it may say.
        expected: String,
    },
    /// A key has a duration that cannot be used.
    #[error("{key}: {source}")]
    Duration {
        /// The key.
        key: &'static str,
        /// Why not.
        r#source: DurationError,
    },
    /// A key has a duration of nothing.
    #[error("{key} = {given:?}: it has to last longer than nothing")]
    Nothing {
        /// The key.
        key: &'static str,
        /// What it says.
        given: String,
    },
    /// Two ages were given.
    #[error("stale_after and stale_silence exclude each other: only one age makes a lock stale")]
    TwoAges,
    /// Nothing would ever make a lock stale.
    #[error(
        "unknown_process = \"not-asked\" needs stale_after or stale_silence: else nothing would \
         ever make a lock stale"
    )]
    NeverStale,
    /// Its holders cannot be asked to stop.
    #[error("force = \"ask-to-stop\" is for profiles like native; no other asks a run to stop")]
    NobodyToAsk,
    /// A live run would lose its lock while its command goes on.
    #[error(
        "{key} = {given:?} would take the lock from a run that works; a profile like native may \
         say {expected}"
    )]
    TwoRuns {
        /// The key.
        key: &'static str,
        /// What it says.
        given: &'static str,
        /// What it may say.
        expected: String,
    },
}

/// A value of an axis that one word stands for, in `tenure.toml` and in answers.
pub trait Word: Copy + 'static {
    /// Every value.
    const ALL: &'static [Self];

    /// Its word.
    fn word(self) -> &'static str;
}

impl Word for UnknownLife {
    const ALL: &'static [Self] = &[Self::Alive, Self::AliveUntilTtl, Self::Dead, Self::NotAsked];

    fn word(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::AliveUntilTtl => "alive-until-ttl",
            Self::Dead => "dead",
            Self::NotAsked => "not-asked",
        }
    }
}

impl Word for UnreadableRule {
    const ALL: &'static [Self] = &[Self::Stale, Self::RefuseUnlessForced, Self::RefuseUntilTtl];

    fn word(self) -> &'static str {
        match self {
            Self::Stale => "stale",
            Self::RefuseUnlessForced => "refuse",
            Self::RefuseUntilTtl => "refuse-until-ttl",
        }
    }
}

impl Word for StaleUnforced {
    const ALL: &'static [Self] = &[Self::TakeOver, Self::Refuse];

    fn word(self) -> &'static str {
        match self {
            Self::TakeOver => "take-over",
            Self::Refuse => "refuse",
        }
    }
}

impl Word for OwnAgain {
    const ALL: &'static [Self] = &[Self::Yours, Self::Held];

    fn word(self) -> &'static str {
        match self {
            Self::Yours => "yours",
            Self::Held => "held",
        }
    }
}

impl Word for ForceOnHeld {
    const ALL: &'static [Self] = &[
        Self::Never,
        Self::Override,
        Self::OverrideConfirmed,
        Self::AskToStop,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Override => "override",
            Self::OverrideConfirmed => "override-confirmed",
            Self::AskToStop => "ask-to-stop",
        }
    }
}

impl Word for ReleaseByOther {
    const ALL: &'static [Self] = &[Self::Refuse, Self::WarnAndRelease, Self::Ignore];

    fn word(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::WarnAndRelease => "warn",
            Self::Ignore => "ignore",
        }
    }
}

impl Word for AbsentRelease {
    const ALL: &'static [Self] = &[Self::Success, Self::SuccessWithWarning];

    fn word(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::SuccessWithWarning => "warn",
        }
    }
}

impl RowConfig {
    /// The policy of the profile of this name, under the name of the row that it begins as.
    ///
    /// # Errors
    /// - [`RowError`] says what is wrong with the name or the row.
    pub fn policy(&self, name: &str) -> Result<Policy, RowError> {
        check_name(name)?;
        let mut built_in = Policy::ALL.into_iter();
        let base = built_in.find(|policy| policy.name == self.like());
        self.apply(base.ok_or_else(|| self.like_nothing())?)
    }

    /// The name of the profile that it begins as.
    pub fn like(&self) -> &str {
        self.like.as_deref().unwrap_or(Policy::NATIVE.name)
    }

    fn base(&self, settings: &Settings) -> Result<Box<dyn Profile>, RowError> {
        match built_in(self.like(), settings) {
            Ok(Some(profile)) => Ok(profile),
            Ok(None) => Err(self.like_nothing()),
            Err(error) => Err(RowError::Setting(error.to_string())),
        }
    }

    fn like_nothing(&self) -> RowError {
        RowError::Value {
            key: "like",
            given: self.like().to_owned(),
            expected: one_of(Policy::ALL.map(|policy| policy.name)),
        }
    }

    /// What the row makes of another one.
    ///
    /// # Errors
    /// - [`RowError`] says which key has no meaning, or which contradict each other.
    pub fn apply(&self, base: Policy) -> Result<Policy, RowError> {
        let policy = Policy {
            name: base.name,
            asks_liveness_lock: base.asks_liveness_lock,
            unknown_life: word("unknown_process", self.unknown_process.as_deref())?
                .unwrap_or(base.unknown_life),
            age: self.age(base.age)?,
            unreadable: word("unreadable", self.unreadable.as_deref())?.unwrap_or(base.unreadable),
            stale_unforced: word("stale", self.stale.as_deref())?.unwrap_or(base.stale_unforced),
            held_unforced: self.held()?.unwrap_or(base.held_unforced),
            own_again: word("own_again", self.own_again.as_deref())?.unwrap_or(base.own_again),
            force_on_held: word("force", self.force.as_deref())?.unwrap_or(base.force_on_held),
            release_by_other: word("release_by_other", self.release_by_other.as_deref())?
                .unwrap_or(base.release_by_other),
            absent_release: word("absent_release", self.absent_release.as_deref())?
                .unwrap_or(base.absent_release),
            supervised_ttl_ms: lasting("ttl", self.ttl.as_deref())?
                .unwrap_or(base.supervised_ttl_ms),
            detached_ttl_ms: lasting("detached_ttl", self.detached_ttl.as_deref())?
                .unwrap_or(base.detached_ttl_ms),
        };
        consistent(&policy)?;
        Ok(policy)
    }

    fn age(&self, base: Option<AgeRule>) -> Result<Option<AgeRule>, RowError> {
        // The format decides how exact the instants are, so that stays.
        let whole_seconds = base.is_some_and(|rule| rule.whole_seconds);
        let inclusive = |limit| {
            Some(AgeRule {
                limit,
                inclusive: true,
                whole_seconds,
            })
        };
        match (self.stale_after.as_deref(), self.stale_silence.as_deref()) {
            (Some(_), Some(_)) => Err(RowError::TwoAges),
            (None, None) => Ok(base),
            (Some("never"), None) => Ok(None),
            (None, Some("ttl")) => Ok(Some(AgeRule {
                limit: AgeLimit::SilenceTtl,
                inclusive: false,
                whole_seconds,
            })),
            (after @ Some(_), None) => Ok(lasting("stale_after", after)?
                .map(AgeLimit::SinceGrantMs)
                .and_then(inclusive)),
            (None, silence @ Some(_)) => Ok(lasting("stale_silence", silence)?
                .map(AgeLimit::SilenceMs)
                .and_then(inclusive)),
        }
    }

    fn held(&self) -> Result<Option<HeldUnforced>, RowError> {
        let Some(given) = self.held.as_deref() else {
            return Ok(None);
        };
        if given == "refuse" {
            return Ok(Some(HeldUnforced::Refuse));
        }
        match duration::parse(given) {
            Ok(wait) => Ok(Some(match millis(wait) {
                0 => HeldUnforced::Refuse,
                wait => HeldUnforced::WaitMs(wait),
            })),
            Err(DurationError::Form { .. }) => Err(RowError::Value {
                key: "held",
                given: given.to_owned(),
                expected: "\"refuse\" or how long to wait, like \"30s\"".to_owned(),
            }),
            Err(source) => Err(RowError::Duration {
                key: "held",
                source,
            }),
        }
    }
}

/// Refuses rows whose answers contradict each other, or contradict what holds in every profile.
fn consistent(policy: &Policy) -> Result<(), RowError> {
    if policy.unknown_life == UnknownLife::NotAsked && policy.age.is_none() {
        return Err(RowError::NeverStale);
    }
    // Where kernel locks prove that a run works, no caller may take the lock from under it.
    match (policy.asks_liveness_lock, policy.force_on_held) {
        (false, ForceOnHeld::AskToStop) => return Err(RowError::NobodyToAsk),
        (true, given @ (ForceOnHeld::Override | ForceOnHeld::OverrideConfirmed)) => {
            return Err(RowError::TwoRuns {
                key: "force",
                given: given.word(),
                expected: one_of([ForceOnHeld::Never, ForceOnHeld::AskToStop].map(Word::word)),
            });
        }
        (_, ForceOnHeld::Never)
        | (true, ForceOnHeld::AskToStop)
        | (false, ForceOnHeld::Override | ForceOnHeld::OverrideConfirmed) => {}
    }
    match (policy.asks_liveness_lock, policy.release_by_other) {
        (true, given @ ReleaseByOther::WarnAndRelease) => Err(RowError::TwoRuns {
            key: "release_by_other",
            given: given.word(),
            expected: one_of([ReleaseByOther::Refuse, ReleaseByOther::Ignore].map(Word::word)),
        }),
        (_, ReleaseByOther::Refuse | ReleaseByOther::Ignore)
        | (false, ReleaseByOther::WarnAndRelease) => Ok(()),
    }
}

fn check_name(name: &str) -> Result<(), RowError> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let begins = name.bytes().next().is_some_and(|first| first != b'-');
    if !begins || name.len() > NAME_CHARS_MAX || !name.bytes().all(fits) {
        return Err(RowError::NameForm);
    }
    if Policy::ALL.iter().any(|policy| policy.name == name) {
        return Err(RowError::NameTaken);
    }
    Ok(())
}

/// The value that a key's word stands for.
fn word<T: Word>(key: &'static str, given: Option<&str>) -> Result<Option<T>, RowError> {
    let Some(given) = given else {
        return Ok(None);
    };
    let known = T::ALL.iter().copied().find(|value| value.word() == given);
    known.map(Some).ok_or_else(|| RowError::Value {
        key,
        given: given.to_owned(),
        expected: one_of(T::ALL.iter().copied().map(Word::word)),
    })
}

/// A key's duration, in milliseconds; never 0.
fn lasting(key: &'static str, given: Option<&str>) -> Result<Option<u64>, RowError> {
    let Some(given) = given else {
        return Ok(None);
    };
    let duration = duration::parse(given).map_err(|source| RowError::Duration { key, source })?;
    match millis(duration) {
        0 => Err(RowError::Nothing {
            key,
            given: given.to_owned(),
        }),
        millis => Ok(Some(millis)),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// `"a", "b" or "c"`.
fn one_of(words: impl IntoIterator<Item = &'static str>) -> String {
    let quoted: Vec<String> = words.into_iter().map(|word| format!("{word:?}")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

/// A profile of the user's own: another one with a row of its own.
#[derive(Debug)]
pub struct Custom {
    base: Box<dyn Profile>,
    policy: Policy,
}

impl Custom {
    /// Makes the profile of a row.
    ///
    /// # Errors
    /// - [`RowError`] says what is wrong with the name or the row.
    pub fn new(name: &str, row: &RowConfig, settings: &Settings) -> Result<Self, RowError> {
        let policy = row.policy(name)?;
        // A policy is data that is copied freely and mostly constant, so its name is a `'static` one. The
        // name of an own profile is kept for as long as the program lives: 32 bytes at most, once for each
        // profile that is made. A run of the binary makes one.
        let name: &'static str = Box::leak(name.into());
        Ok(Self {
            base: row.base(settings)?,
            policy: Policy { name, ..policy },
        })
    }
}

impl Profile for Custom {
    fn policy(&self) -> Policy {
        self.policy
    }

    fn format(&self) -> &'static str {
        self.base.format()
    }

    fn folder(&self, place: &Path) -> PathBuf {
        self.base.folder(place)
    }

    fn place(&self) -> Place {
        self.base.place()
    }

    fn audit_folder(&self, place: &Path) -> PathBuf {
        self.base.audit_folder(place)
    }

    fn audit_layout(&self) -> Layout {
        self.base.audit_layout()
    }

    fn temporary(&self, name: &LockName) -> Option<String> {
        self.base.temporary(name)
    }

    fn check_name(&self, name: &LockName) -> Result<(), String> {
        self.base.check_name(name)
    }

    fn file_name(&self, name: &LockName) -> String {
        self.base.file_name(name)
    }

    fn name_of(&self, file: &str) -> Option<LockName> {
        self.base.name_of(file)
    }

    fn record(&self) -> Option<&dyn Record> {
        self.base.record()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(text: &str) -> RowConfig {
        toml::from_str(text).expect("a row")
    }

    fn applied(text: &str, base: Policy) -> Policy {
        row(text).apply(base).expect("a row that can be used")
    }

    fn refused(text: &str) -> String {
        row(text)
            .policy("nightly")
            .expect_err("a row that cannot be used")
            .to_string()
    }

    /// The row that says everything which a policy answers.
    fn written(policy: &Policy) -> RowConfig {
        let in_words = |millis: u64| format!("{millis}ms");
        let (mut stale_after, mut stale_silence) = (None, None);
        match policy.age.map(|rule| rule.limit) {
            None => stale_after = Some("never".to_owned()),
            Some(AgeLimit::SinceGrantMs(limit)) => stale_after = Some(in_words(limit)),
            Some(AgeLimit::SilenceMs(limit)) => stale_silence = Some(in_words(limit)),
            Some(AgeLimit::SilenceTtl) => stale_silence = Some("ttl".to_owned()),
        }
        let word = |word: &str| Some(word.to_owned());
        RowConfig {
            like: None,
            stale_after,
            stale_silence,
            unknown_process: word(policy.unknown_life.word()),
            unreadable: word(policy.unreadable.word()),
            stale: word(policy.stale_unforced.word()),
            held: Some(match policy.held_unforced {
                HeldUnforced::Refuse => "refuse".to_owned(),
                HeldUnforced::WaitMs(wait) => in_words(wait),
            }),
            own_again: word(policy.own_again.word()),
            force: word(policy.force_on_held.word()),
            release_by_other: word(policy.release_by_other.word()),
            absent_release: word(policy.absent_release.word()),
            ttl: Some(in_words(policy.supervised_ttl_ms)),
            detached_ttl: Some(in_words(policy.detached_ttl_ms)),
        }
    }

    #[test]
    fn every_built_in_row_can_be_written_as_an_own_one() {
        for policy in Policy::ALL {
            for base in Policy::ALL {
                if base.asks_liveness_lock != policy.asks_liveness_lock {
                    continue;
                }
                // The format decides how exact instants are.
                let in_seconds = base.age.is_some_and(|rule| rule.whole_seconds);
                let expected = Policy {
                    age: policy.age.map(|rule| AgeRule {
                        whole_seconds: in_seconds,
                        ..rule
                    }),
                    name: base.name,
                    ..policy
                };
                assert_eq!(
                    written(&policy).apply(base),
                    Ok(expected),
                    "{} over {}: every axis but the liveness lock can be said",
                    policy.name,
                    base.name
                );
            }
        }
    }

    #[test]
    fn what_a_row_leaves_out_is_as_in_the_one_it_begins_as() {
        for base in Policy::ALL {
            assert_eq!(applied("", base), base, "an empty row changes nothing");
            let one = applied("absent_release = \"warn\"\nttl = \"7s\"", base);
            let expected = Policy {
                absent_release: AbsentRelease::SuccessWithWarning,
                supervised_ttl_ms: 7_000,
                ..base
            };
            assert_eq!(one, expected, "and a short one no more than it says");
        }
    }

    #[test]
    fn a_row_without_like_begins_as_native() {
        let policy = row("held = \"30s\"").policy("nightly").expect("a row");
        let expected = Policy {
            held_unforced: HeldUnforced::WaitMs(30_000),
            ..Policy::NATIVE
        };
        assert_eq!(policy, expected);
        let policy = row("like = \"session\"").policy("nightly").expect("a row");
        assert_eq!(policy, Policy::SESSION);
    }

    #[test]
    fn ages_are_reached_and_the_ttl_is_passed() {
        let age = |text| applied(text, Policy::SESSION).age;
        let rule = |limit, inclusive| {
            Some(AgeRule {
                limit,
                inclusive,
                whole_seconds: false,
            })
        };
        assert_eq!(
            age("stale_after = \"2h\""),
            rule(AgeLimit::SinceGrantMs(7_200_000), true)
        );
        assert_eq!(
            age("stale_silence = \"10m\""),
            rule(AgeLimit::SilenceMs(600_000), true)
        );
        assert_eq!(
            age("stale_silence = \"ttl\""),
            rule(AgeLimit::SilenceTtl, false)
        );
        let never = applied("stale_after = \"never\"", Policy::SPRINT);
        assert_eq!(never.age, None, "the age of the base row is dropped");
    }

    #[test]
    fn waiting_for_nothing_is_refusing() {
        for text in ["held = \"0\"", "held = \"refuse\""] {
            let policy = applied(text, Policy::NATIVE);
            assert_eq!(policy.held_unforced, HeldUnforced::Refuse, "{text}");
        }
    }

    #[test]
    fn every_mistake_is_one_sentence_that_names_the_key() {
        for (text, key, word) in [
            ("like = \"foreign\"", "like", "\"native\""),
            ("stale_after = \"soon\"", "stale_after", "soon"),
            ("stale_after = \"0\"", "stale_after", "nothing"),
            ("stale_after = \"ttl\"", "stale_after", "ttl"),
            ("stale_silence = \"never\"", "stale_silence", "never"),
            (
                "unknown_process = \"x\"",
                "unknown_process",
                "alive-until-ttl",
            ),
            ("unreadable = \"x\"", "unreadable", "refuse-until-ttl"),
            ("stale = \"x\"", "stale", "take-over"),
            ("held = \"forever\"", "held", "30s"),
            ("held = \"9999d\"", "held", "year"),
            ("own_again = \"x\"", "own_again", "yours"),
            ("force = \"x\"", "force", "override-confirmed"),
            ("release_by_other = \"x\"", "release_by_other", "ignore"),
            ("absent_release = \"x\"", "absent_release", "warn"),
            ("ttl = \"0s\"", "ttl", "nothing"),
            ("detached_ttl = \"-5s\"", "detached_ttl", "-5s"),
            ("detached_ttl = \"9999d\"", "detached_ttl", "year"),
        ] {
            let said = refused(text);
            assert!(said.starts_with(key), "{text} names its key: {said}");
            assert!(said.contains(word), "{text} says {word}: {said}");
            assert_eq!(said.lines().count(), 1, "{text} takes one line: {said}");
        }
    }

    #[test]
    fn a_row_has_one_age() {
        let said = refused("stale_after = \"2h\"\nstale_silence = \"ttl\"");
        assert!(said.contains("exclude each other"), "{said}");
    }

    #[test]
    fn a_row_that_asks_nothing_needs_an_age() {
        let said = refused("unknown_process = \"not-asked\"");
        assert!(said.contains("stale_after or stale_silence"), "{said}");
        let said = refused("like = \"fleet\"\nstale_after = \"never\"");
        assert!(said.contains("stale_after or stale_silence"), "{said}");
        let policy = applied(
            "unknown_process = \"not-asked\"\nstale_silence = \"ttl\"",
            Policy::NATIVE,
        );
        assert_eq!(policy.unknown_life, UnknownLife::NotAsked);
    }

    #[test]
    fn only_rows_like_native_ask_a_run_to_stop() {
        for like in ["sprint", "resume", "session", "fleet"] {
            let said = refused(&format!("like = {like:?}\nforce = \"ask-to-stop\""));
            assert!(said.starts_with("force"), "{like}: {said}");
        }
        let policy = applied("force = \"ask-to-stop\"", Policy::NATIVE);
        assert_eq!(policy.force_on_held, ForceOnHeld::AskToStop);
    }

    #[test]
    fn no_row_takes_the_lock_from_a_native_run_that_works() {
        for text in [
            "force = \"override\"",
            "force = \"override-confirmed\"",
            "release_by_other = \"warn\"",
        ] {
            let said = refused(text);
            assert!(said.contains("a run that works"), "{text}: {said}");
            let policy = row(text).apply(Policy::RESUME);
            assert!(policy.is_ok(), "{text}: a published format may say so");
        }
    }

    #[test]
    fn a_profile_has_a_name_that_can_be_typed_and_is_its_own() {
        let row = RowConfig::default();
        for good in ["a", "nightly-2", "2", "a-", &"x".repeat(32)] {
            assert!(row.policy(good).is_ok(), "{good:?} is a name");
        }
        for bad in [
            "",
            "-",
            "-a",
            "Nightly",
            "a b",
            "a_b",
            "a/b",
            "é",
            &"x".repeat(33),
        ] {
            assert_eq!(row.policy(bad), Err(RowError::NameForm), "{bad:?}");
        }
        for policy in Policy::ALL {
            assert_eq!(row.policy(policy.name), Err(RowError::NameTaken));
        }
    }

    #[test]
    fn words_are_told_apart() {
        fn distinct<T: Word>() {
            let words: std::collections::BTreeSet<_> =
                T::ALL.iter().map(|value| value.word()).collect();
            assert_eq!(words.len(), T::ALL.len(), "{words:?}");
        }
        distinct::<UnknownLife>();
        distinct::<UnreadableRule>();
        distinct::<StaleUnforced>();
        distinct::<OwnAgain>();
        distinct::<ForceOnHeld>();
        distinct::<ReleaseByOther>();
        distinct::<AbsentRelease>();
    }
}
