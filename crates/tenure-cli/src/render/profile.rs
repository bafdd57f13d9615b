//! How the rules of a profile are shown: a column of words for people, the words of `tenure.toml`
//! for programs.

use crate::render::lock::age;
use serde_json::{Value, json};
use tenure_core::{
    AbsentRelease, AgeLimit, AgeRule, ForceOnHeld, HeldUnforced, OwnAgain, Policy, ReleaseByOther,
    StaleUnforced, UnknownLife, UnreadableRule,
};
use tenure_engine::profile::row::Word;

/// How wide a table may be. With more profiles than fit, another one begins below.
const COLUMNS_MAX: usize = 100;

/// How far two columns stand apart.
const GAP: usize = 2;

/// How wide the column of labels is.
const LABEL_WIDTH: usize = 12;

/// The room that the labels leave for the profiles.
const ROOM: usize = COLUMNS_MAX - LABEL_WIDTH;

/// The cell of a profile that has no such rule.
const NOTHING: &str = "-";

/// The labels of the table's lines. `tenure profiles --help` explains them.
const LABELS: [&str; 14] = [
    "PROFILE",
    "like",
    "judged by",
    "if unseen",
    "too old",
    "unreadable",
    "left behind",
    "held",
    "held by you",
    "force",
    "another's",
    "already free",
    "ttl of a run",
    "ttl detached",
];

/// What one profile says, a cell for each of [`LABELS`].
type Column = [String; LABELS.len()];

/// One profile, to be shown.
#[derive(Debug)]
pub(crate) struct ProfileView {
    policy: Policy,
    /// The built-in profile from which a user's own one begins.
    like: Option<String>,
}

impl ProfileView {
    pub(crate) fn of(policy: &Policy, like: Option<&str>) -> Self {
        Self {
            policy: *policy,
            like: like.map(str::to_owned),
        }
    }

    /// Every axis with the words of `tenure.toml`.
    pub(crate) fn json(&self) -> Value {
        let policy = &self.policy;
        let (mut stale_after_ms, mut stale_silence_ms, mut stale_past_ttl) = (None, None, false);
        match policy.age.map(|rule| rule.limit) {
            None => {}
            Some(AgeLimit::SinceGrantMs(limit)) => stale_after_ms = Some(limit),
            Some(AgeLimit::SilenceMs(limit)) => stale_silence_ms = Some(limit),
            Some(AgeLimit::SilenceTtl) => stale_past_ttl = true,
        }
        let (held, held_wait_ms) = match policy.held_unforced {
            HeldUnforced::WaitMs(wait) => ("wait", Some(wait)),
            HeldUnforced::Refuse => ("refuse", None),
        };
        json!({
            "name": policy.name,
            "like": self.like,
            "asks_beacon": policy.asks_liveness_lock,
            "unknown_process": policy.unknown_life.word(),
            "stale_after_ms": stale_after_ms,
            "stale_silence_ms": stale_silence_ms,
            "stale_past_ttl": stale_past_ttl,
            "unreadable": policy.unreadable.word(),
            "stale": policy.stale_unforced.word(),
            "held": held,
            "held_wait_ms": held_wait_ms,
            "own_again": policy.own_again.word(),
            "force": policy.force_on_held.word(),
            "release_by_other": policy.release_by_other.word(),
            "absent_release": policy.absent_release.word(),
            "ttl_ms": policy.supervised_ttl_ms,
            "detached_ttl_ms": policy.detached_ttl_ms,
        })
    }

    fn cells(&self) -> Column {
        let policy = &self.policy;
        [
            policy.name.to_owned(),
            self.like.clone().unwrap_or_else(|| NOTHING.to_owned()),
            judged_by(policy).to_owned(),
            if_unseen(policy.unknown_life).to_owned(),
            policy.age.map_or_else(|| NOTHING.to_owned(), too_old),
            unreadable(policy.unreadable).to_owned(),
            left_behind(policy.stale_unforced).to_owned(),
            held(policy.held_unforced),
            held_by_you(policy.own_again).to_owned(),
            force(policy.force_on_held).to_owned(),
            of_another(policy.release_by_other).to_owned(),
            already_free(policy.absent_release).to_owned(),
            age(policy.supervised_ttl_ms),
            age(policy.detached_ttl_ms),
        ]
    }
}

fn judged_by(policy: &Policy) -> &'static str {
    match (policy.asks_liveness_lock, policy.unknown_life) {
        (true, UnknownLife::Alive | UnknownLife::AliveUntilTtl | UnknownLife::Dead) => {
            "kernel, process"
        }
        (true, UnknownLife::NotAsked) => "kernel",
        (false, UnknownLife::Alive | UnknownLife::AliveUntilTtl | UnknownLife::Dead) => "process",
        (false, UnknownLife::NotAsked) => "age alone",
    }
}

fn if_unseen(life: UnknownLife) -> &'static str {
    match life {
        UnknownLife::Alive => "alive",
        UnknownLife::AliveUntilTtl => "alive until ttl",
        UnknownLife::Dead => "dead",
        UnknownLife::NotAsked => NOTHING,
    }
}

fn too_old(rule: AgeRule) -> String {
    let over = if rule.inclusive { "" } else { "over " };
    match rule.limit {
        AgeLimit::SinceGrantMs(limit) => format!("{over}{} old", age(limit)),
        AgeLimit::SilenceMs(limit) => format!("{over}{} silent", age(limit)),
        AgeLimit::SilenceTtl => format!("{over}ttl silent"),
    }
}

fn unreadable(rule: UnreadableRule) -> &'static str {
    match rule {
        UnreadableRule::Stale => "as left behind",
        UnreadableRule::RefuseUnlessForced => "needs force",
        UnreadableRule::RefuseUntilTtl => "ttl, then force",
    }
}

fn left_behind(rule: StaleUnforced) -> &'static str {
    match rule {
        StaleUnforced::TakeOver => "taken over",
        StaleUnforced::Refuse => "needs force",
    }
}

fn held(rule: HeldUnforced) -> String {
    match rule {
        HeldUnforced::WaitMs(wait) => format!("waits {}", age(wait)),
        HeldUnforced::Refuse => "refused".to_owned(),
    }
}

fn held_by_you(rule: OwnAgain) -> &'static str {
    match rule {
        OwnAgain::Yours => "still yours",
        OwnAgain::Held => "as for others",
    }
}

fn force(rule: ForceOnHeld) -> &'static str {
    match rule {
        ForceOnHeld::Never => "never",
        ForceOnHeld::Override => "overrides",
        ForceOnHeld::OverrideConfirmed => "with --yes",
        ForceOnHeld::AskToStop => "asks to stop",
    }
}

fn of_another(rule: ReleaseByOther) -> &'static str {
    match rule {
        ReleaseByOther::Refuse => "refused",
        ReleaseByOther::WarnAndRelease => "warns, releases",
        ReleaseByOther::Ignore => "ignored",
    }
}

fn already_free(rule: AbsentRelease) -> &'static str {
    match rule {
        AbsentRelease::Success => "success",
        AbsentRelease::SuccessWithWarning => "warns",
    }
}

/// One column for each profile, in as many tables below each other as are needed.
pub(crate) fn table(views: &[ProfileView]) -> String {
    let mut tables: Vec<Vec<Column>> = Vec::new();
    let mut previous: Option<&ProfileView> = None;
    for view in views {
        let column = view.cells();
        // The built-in profiles stand by themselves: only users' own ones are like another.
        let same_kind = previous.is_some_and(|other| other.like.is_some() == view.like.is_some());
        match tables.last_mut().filter(|columns| {
            same_kind && columns.iter().chain([&column]).map(width).sum::<usize>() <= ROOM
        }) {
            Some(columns) => columns.push(column),
            None => tables.push(vec![column]),
        }
        previous = Some(view);
    }
    let tables: Vec<String> = tables.iter().map(|columns| lines(columns)).collect();
    tables.join("\n\n")
}

/// How wide a column is, with the gap before it.
fn width(column: &Column) -> usize {
    let widest = column.iter().map(|cell| cell.chars().count()).max();
    GAP + widest.unwrap_or(0)
}

/// One table. Lines on which no profile has anything to say are left out.
fn lines(columns: &[Column]) -> String {
    let mut text = String::new();
    for (number, label) in LABELS.iter().enumerate() {
        let cells = || columns.iter().filter_map(|column| column.get(number));
        if cells().all(|cell| cell == NOTHING) {
            continue;
        }
        let mut line = format!("{label:<LABEL_WIDTH$}");
        for (cell, width) in cells().zip(columns.iter().map(width)) {
            line.push_str(&" ".repeat(GAP));
            line.push_str(cell);
            let rest = width.saturating_sub(GAP + cell.chars().count());
            line.push_str(&" ".repeat(rest));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(name: &'static str) -> ProfileView {
        let policy = Policy {
            name,
            ..Policy::NATIVE
        };
        ProfileView::of(&policy, Some("native"))
    }

    #[test]
    fn no_label_is_wider_than_its_column() {
        let widest = LABELS.iter().map(|label| label.len()).max();
        assert_eq!(widest, Some(LABEL_WIDTH));
    }

    #[test]
    fn however_many_profiles_there_are_no_line_is_too_wide() {
        let mut views: Vec<_> = Policy::ALL
            .iter()
            .map(|policy| ProfileView::of(policy, None))
            .collect();
        for name in ["a", "thirty-two-characters-as-a-name-", "b", "c", "d", "e"] {
            views.push(own(name));
        }
        let text = table(&views);
        for line in text.lines() {
            assert!(line.chars().count() <= COLUMNS_MAX, "{line}");
        }
        for view in &views {
            let shown = text
                .split_whitespace()
                .filter(|word| *word == view.policy.name);
            assert!(shown.count() >= 1, "{} is shown", view.policy.name);
        }
        assert_eq!(
            text.lines()
                .filter(|line| line.starts_with("PROFILE"))
                .count(),
            3,
            "the built-in ones stand alone:\n{text}"
        );
    }

    #[test]
    fn nothing_to_show_is_no_line() {
        assert_eq!(table(&[]), "");
        let text = table(&[ProfileView::of(&Policy::NATIVE, None)]);
        assert!(!text.contains("like"), "{text}");
        assert!(!text.contains("too old"), "{text}");
    }
}
