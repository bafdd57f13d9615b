//! What a person sees of a lock, as the library gathers and words it, and what a refusal at a command line
//! says beyond that.

use crate::failure::Failure;
use std::time::Duration;
use tenure_core::Reason;
use tenure_engine::envelope::human;
pub(crate) use tenure_engine::envelope::{
    HolderView, LockView, StandstillView, age, asks_for_the_lock, stale_reason, timestamp, utc,
};
use tenure_store::advice::Advice;
use tenure_store::profile::ENDS_WITHOUT_RELEASE;

/// The failure of a caller that wanted this lock.
pub(crate) fn failure_of(
    view: LockView,
    reason: Reason,
    waited: Option<Duration>,
    retry_after_ms: u64,
) -> Failure {
    let line = view.headline();
    let check = view.advice.line(&["check"], &[]);
    let told = |holder: &&HolderView| holder.orphaned || holder.stopped || is_ending(holder);
    let hint = view.holder.as_ref().filter(told).map(|_| stop_hint(&view));
    let free_in_ms = view.free_in_ms;
    let mut failure = Failure::from(view.into_failure(reason, waited, retry_after_ms));
    if failure.retry.is_some() {
        failure.free_in_ms = free_in_ms;
        let again = free_in_ms
            .map(|ms| format!("try again in about {}, ", age(ms)))
            .unwrap_or_default();
        let (waited, wait) = match waited {
            Some(waited) => (
                format!("waited {}; ", human(waited)),
                "wait longer with --wait",
            ),
            None => (String::new(), "wait for it with --wait 1m"),
        };
        failure.text = Some(format!(
            "{line}\n{:8}{waited}{again}{wait}, or look with `{check}`",
            "",
        ));
    }
    if let (Some(hint), Some(text)) = (hint, &mut failure.text) {
        text.push_str("\n        ");
        text.push_str(&hint);
    }
    failure
}

/// The state of a lock in a word: what of its holders, or of the next in line, needs a person, else its standing.
pub(crate) fn state(view: &LockView) -> &'static str {
    let holders = || view.holder.iter().chain(&view.other_holders);
    let is_stopped = view.standstill.as_ref().is_some_and(|still| still.stopped);
    if view.stale_because.is_some() {
        view.word()
    } else if is_stopped || holders().any(|holder| holder.stopped) {
        "stopped"
    } else if holders().any(|holder| holder.orphaned) {
        "orphaned"
    } else {
        view.word()
    }
}

/// Whether a supervisor ends the work of this holder, which takes its time.
fn is_ending(holder: &HolderView) -> bool {
    // A program that holds by `tenure serve` is its own command, and a supervisor that is stopped hears nothing.
    let is_heard = !holder.orphaned && !holder.stopped && holder.command_pid != holder.pid;
    holder.cancel_requested && holder.kind == "run" && is_heard && !is_its_command(holder)
}

/// Whether the process of a run has become its command (`--exec`).
fn is_its_command(holder: &HolderView) -> bool {
    let mut facts = holder.facts.iter();
    facts.any(|(key, _)| key == ENDS_WITHOUT_RELEASE)
}

/// Until when the record of a hold counts whose processes have all ended.
pub(crate) const COUNTS_STILL: &str = "its record counts until it is too old for this profile";

/// What an operator can do about the holder of a lock.
pub(crate) fn stop_hint(view: &LockView) -> String {
    let (advice, holder) = (&view.advice, view.holder.as_ref());
    if let Some(orphan) = holder.filter(|holder| holder.orphaned) {
        orphan_hint(advice, orphan.command_pid)
    } else if holder.is_some_and(|holder| holder.has_ended) {
        format!("nothing of it runs any more; {COUNTS_STILL}")
    } else if holder.is_some_and(|holder| holder.stopped && holder.kind == "run") {
        let line = advice.line(&["cancel", "--force"], &[]);
        format!(
            "it hears nothing while it is stopped; `{line}` continues it, so that it ends its work"
        )
    } else if holder.is_some_and(is_ending) {
        let line = advice.line(&["cancel"], &["--grace", "0s"]);
        format!(
            "it was asked to stop, and its command has its grace to end; `{line}` has its supervisor kill the command now"
        )
    } else if holder.is_some_and(is_its_command) {
        its_command_hint()
    } else {
        format!("`{}` asks it to stop", advice.line(&["cancel"], &[]))
    }
}

/// What a person has to look after about the holder of a lock, for answers whose form has no other place for it.
pub(crate) fn trouble(view: &LockView) -> Option<String> {
    let holder = view.holder.as_ref()?;
    let what = match (holder.orphaned, holder.is_stopped_and()) {
        (true, _) => format!("its holder is {}{}", holder.who(), holder.goes_on()),
        (false, Some(stopped)) => format!("its holder, {}, is {stopped}", holder.who()),
        (false, None) => return None,
    };
    Some(format!("{what}; {}", stop_hint(view)))
}

/// What an operator can do about a holder that has become its command.
fn its_command_hint() -> String {
    "it has become its command (--exec), and no supervisor is there to end that; the lock is free when it ends".to_owned()
}

/// What an operator can do about a holder whose supervisor is dead. Where its record names no command, nobody can prove which
/// process is at work: a program with a guard forked, or a run died as it started its command.
fn orphan_hint(advice: &Advice, command: Option<u32>) -> String {
    if command.is_none() {
        return "no process is left to be asked to stop; the lock is free once all that have it from there have ended"
            .to_owned();
    }
    format!(
        "no supervisor is left to be asked to stop; the lock is free once that command has ended, and `{}` ends it",
        advice.line(&["cancel", "--orphan"], &[])
    )
}
