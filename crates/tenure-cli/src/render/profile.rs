//! How the rules of a profile are shown: a column of words for people, stable words for programs.

use crate::render::lock::age;
use serde_json::{Value, json};
use tenure_core::{
    AbsentRelease, AgeLimit, AgeRule, ForceOnHeld, HeldUnforced, OwnAgain, Policy, ReleaseByOther,
    StaleUnforced, UnknownLife, UnreadableRule,
};

/// How far two columns stand apart.
const GAP: usize = 2;

/// How wide the column of labels is.
const LABEL_WIDTH: usize = 12;

/// The cell of a profile that has no such rule.
const NOTHING: &str = "-";

/// The labels of the table's lines. `tenure profiles --help` explains them.
const LABELS: [&str; 13] = [
    "PROFILE",
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

/// Every axis of a profile, for programs.
pub(crate) fn json(policy: &Policy) -> Value {
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
        "asks_beacon": policy.asks_liveness_lock,
        "unknown_process": match policy.unknown_life {
            UnknownLife::Alive => "alive",
            UnknownLife::AliveUntilTtl => "alive-until-ttl",
            UnknownLife::Dead => "dead",
            UnknownLife::NotAsked => "not-asked",
        },
        "stale_after_ms": stale_after_ms,
        "stale_silence_ms": stale_silence_ms,
        "stale_past_ttl": stale_past_ttl,
        "unreadable": match policy.unreadable {
            UnreadableRule::Stale => "stale",
            UnreadableRule::RefuseUnlessForced => "refuse",
            UnreadableRule::RefuseUntilTtl => "refuse-until-ttl",
        },
        "stale": match policy.stale_unforced {
            StaleUnforced::TakeOver => "take-over",
            StaleUnforced::Refuse => "refuse",
        },
        "held": held,
        "held_wait_ms": held_wait_ms,
        "own_again": match policy.own_again {
            OwnAgain::Yours => "yours",
            OwnAgain::Held => "held",
        },
        "force": match policy.force_on_held {
            ForceOnHeld::Never => "never",
            ForceOnHeld::Override => "override",
            ForceOnHeld::OverrideConfirmed => "override-confirmed",
            ForceOnHeld::AskToStop => "ask-to-stop",
        },
        "release_by_other": match policy.release_by_other {
            ReleaseByOther::Refuse => "refuse",
            ReleaseByOther::WarnAndRelease => "warn",
            ReleaseByOther::Ignore => "ignore",
        },
        "absent_release": match policy.absent_release {
            AbsentRelease::Success => "success",
            AbsentRelease::SuccessWithWarning => "warn",
        },
        "ttl_ms": policy.supervised_ttl_ms,
        "detached_ttl_ms": policy.detached_ttl_ms,
    })
}

fn cells(policy: &Policy) -> Column {
    [
        policy.name.to_owned(),
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

/// A column for each profile. Lines on which no profile has anything to say are left out.
pub(crate) fn table(policies: &[Policy]) -> String {
    let columns: Vec<Column> = policies.iter().map(cells).collect();
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

/// How wide a column is, with the gap before it.
fn width(column: &Column) -> usize {
    let widest = column.iter().map(|cell| cell.chars().count()).max();
    GAP + widest.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_label_is_wider_than_its_column() {
        let widest = LABELS.iter().map(|label| label.len()).max();
        assert_eq!(widest, Some(LABEL_WIDTH));
    }

    #[test]
    fn nothing_to_show_is_no_line() {
        assert_eq!(table(&[]), "");
        let text = table(&[Policy::NATIVE]);
        assert!(!text.contains("too old"), "{text}");
    }
}
