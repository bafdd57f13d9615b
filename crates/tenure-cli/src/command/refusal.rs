//! What a refusal says: the facts of the lock that stands in the way, in the words of the profile.

use super::ownership::give_back;
use super::session::Session;
use super::ticket;
use crate::dialect::CallRefusal;
use crate::exit::{Exit, signalled};
use crate::failure::Failure;
use crate::render::clean;
use crate::render::lock::{LockView, age, failure_of};
#[cfg(windows)]
use crate::signals::numbers as libc;
use crate::signals::stop_asked;
use serde_json::json;
use tenure_core::{
    Cancel, Entry, Force, LockName, Reason, Refusal, RequestId, StaleReason, Standing, UnknownLife,
    UnreadableRule,
};
use tenure_engine::engine::AcquireError;
use tenure_engine::envelope;
use tenure_os::clock::Clock;
use tenure_os::process::stopped_among;
use tenure_store::{Content, StoreError};

impl Session {
    /// Turns an error of the store into the caller's failure, in the words of the profile.
    pub(crate) fn store_failed(&self, name: &LockName, error: StoreError) -> Failure {
        let unreadable = match &error {
            StoreError::Unreadable { why, .. } => Some(why.clone()),
            _ => None,
        };
        match unreadable {
            Some(why) => {
                let mut failure = Failure::from(error);
                let advice = if self.store.policy().unreadable == UnreadableRule::Stale {
                    "the next `acquire` or `run` replaces it".to_owned()
                } else {
                    let line = self.advice(name).line(&["force-release"], &[]);
                    format!("look at what stands there; `{line}` removes it")
                };
                failure.text = Some(format!("{}\n{:8}{advice}", failure.message, ""));
                let why = CallRefusal::Unreadable { name, why: &why };
                self.dialect.refusal(failure, &why)
            }
            None => error.into(),
        }
    }

    /// Puts a refusal because of another holder into the words of the profile.
    pub(crate) fn blocked(&self, failure: Failure, view: &LockView, reason: Reason) -> Failure {
        let why = CallRefusal::Blocked { view, reason };
        self.dialect.refusal(failure, &why)
    }

    /// The facts of a refusal. One more read says what is wrong with an unreadable record.
    pub(crate) fn refused(&self, name: &LockName, refusal: &Refusal, entry: &Entry) -> LockView {
        let mut view = LockView::refused(
            name,
            self.store.place(name),
            refusal,
            entry,
            self.store.policy(),
            &self.clock.now(),
        );
        self.call_as_asked(&mut view, name);
        if !self.store.is_remote() {
            let claims = entry.granted().chain(refusal.blocker.as_deref());
            view.show_stopped(&stopped_among(claims, &self.identity.host));
        }
        let nobody_is_named = matches!(refusal.standing, Standing::Stale(StaleReason::Unreadable));
        if (refusal.reason == Reason::Unreadable || nobody_is_named)
            && let Ok(reading) = self.reading(name)
            && let Content::Unreadable { why, silence } = reading.content
        {
            view.unreadable(why, silence, self.store.policy());
        }
        // Only this profile says more of a holder that cannot be seen.
        if self.store.policy().unknown_life == UnknownLife::Alive
            && let Ok(reading) = self.reading(name)
        {
            view.show_sight(&reading, self.store.policy(), &self.clock.now());
            let ends = view.holder.as_ref().and_then(|holder| holder.ends_in_ms);
            view.retry_after_ms = ends.or(view.retry_after_ms);
            view.free_in_ms = ends.or(view.free_in_ms);
        }
        // The refusal judged only the blocker, so the other holders are judged here.
        if !view.other_holders.is_empty()
            && let Ok(reading) = self.reading(name)
            && let Some(entry) = reading.entry()
        {
            for other in &mut view.other_holders {
                let claim = entry.granted().find(|claim| claim.token == other.token);
                if claim.is_some_and(|claim| reading.is_orphan(claim)) {
                    other.is_orphaned();
                }
            }
        }
        view
    }

    /// The refusal of a call that used force: it does not advise force, but says why force did not help.
    pub(crate) fn after_force(
        &self,
        mut failure: Failure,
        name: &LockName,
        force: Force,
    ) -> Failure {
        if failure.code != "LOCK_UNREADABLE" || force == Force::No {
            return failure;
        }
        // A profile's own answer is a document, which says when force helps.
        if !failure.is_answer {
            failure.text = None;
        }
        // Without this entry the store itself refused, and its message says why.
        let because = failure.context.get("unreadable_because");
        let Some(because) = because
            .and_then(serde_json::Value::as_str)
            .map(str::to_owned)
        else {
            return failure;
        };
        let rest = failure.context.get("force_after_ms");
        let why = match rest.and_then(serde_json::Value::as_u64) {
            Some(rest) => format!(
                "{because}; what can be read of it counts for {} yet",
                age(rest)
            ),
            None => because,
        };
        failure.message = format!(
            "{} cannot be read, and --force did not replace it: {why}",
            self.store.place(name)
        );
        failure
    }

    /// Turns a failed attempt to acquire into the caller's failure.
    #[cold]
    #[inline(never)]
    pub(crate) fn explain(&self, name: &LockName, error: AcquireError) -> Failure {
        match error {
            AcquireError::Refused {
                refusal,
                entry,
                waited,
                retry_after_ms,
                kept,
                displaced,
            } => {
                let mut view = self.refused(name, &refusal, &entry);
                let own = self.own_blocker(&refusal);
                view.mine = own.is_some();
                let failure = failure_of(view.clone(), refusal.reason, waited, retry_after_ms);
                let mut failure = self.blocked(failure, &view, refusal.reason);
                if let (Some(own), Some(text)) = (own, &mut failure.text) {
                    text.push_str("\n        the caller may be waiting for itself: ");
                    text.push_str(&give_back(&view.advice, own));
                }
                note_superseded(&mut failure, &displaced);
                if let Some(ticket) = kept {
                    let kept_ms = u64::try_from(ticket::GRACE.as_millis()).unwrap_or(u64::MAX);
                    failure.context.insert("ticket".into(), ticket.into());
                    failure
                        .context
                        .insert("ticket_kept_ms".into(), kept_ms.into());
                    // Other profiles' answers are documents or sentences of their own.
                    if !self.store.publishes()
                        && let Some(text) = &mut failure.text
                    {
                        text.push_str("\n        ");
                        text.push_str(&ticket::how_to_come_back(ticket));
                    }
                }
                failure
            }
            AcquireError::NotKept => Failure::new(
                Exit::NotFound,
                "TICKET_NOT_FOUND",
                format!(
                    "no place is kept in the queue of {name} under that ticket; it lapsed, or \
                     another call uses it"
                ),
            ),
            AcquireError::Deadlock => Failure::new(
                Exit::Deadlock,
                "DEADLOCK",
                format!(
                    "deadlock: the holder of {name} waits for this run itself, so this run stops"
                ),
            ),
            AcquireError::Interrupted => cancelled("acquire"),
            AcquireError::Superseded { by } => {
                envelope::Failure::cancelled_for(name, &by, false).into()
            }
            AcquireError::Store(error) => self.store_failed(name, error),
        }
    }
}

/// Says in the answer of a call that gives up which runs made way for it.
pub(crate) fn note_superseded(failure: &mut Failure, displaced: &[RequestId]) {
    if displaced.is_empty() {
        return;
    }
    let ids: Vec<&str> = displaced.iter().map(RequestId::as_str).collect();
    let all = failure.context.entry("superseded").or_insert(json!([]));
    if let Some(all) = all.as_array_mut() {
        all.extend(ids.iter().map(|id| json!(id)));
    }
    // A document of another system stands as it is.
    if failure.is_answer {
        return;
    }
    let made_way = format!(
        "request id {} made way for this call, and does not come back",
        clean(&ids.join(", "))
    );
    match &mut failure.text {
        Some(text) => {
            text.push_str("\n        ");
            text.push_str(&made_way);
        }
        None => failure.text = Some(format!("{}\n        {made_way}", failure.message)),
    }
}

/// The answer of a call that a signal ended.
pub(crate) fn cancelled(phase: &'static str) -> Failure {
    cancelled_by(stop_asked().unwrap_or(libc::SIGTERM), phase)
}

/// The answer of a call that a known signal ended.
pub(crate) fn cancelled_by(number: i32, phase: &'static str) -> Failure {
    let signal = match number {
        libc::SIGINT => "SIGINT",
        libc::SIGHUP => "SIGHUP",
        libc::SIGQUIT => "SIGQUIT",
        _ => "SIGTERM",
    };
    let mut failure = Failure::new(
        signalled(number),
        "CANCELLED",
        format!("Cancelled by {signal}"),
    );
    failure.partial = true;
    failure.signal = Some(signal);
    failure.phase = Some(phase);
    failure
}

/// The answer of a run that another one displaced.
pub(crate) fn superseded(name: &LockName, by: &Cancel) -> Failure {
    envelope::Failure::cancelled_for(name, by, true).into()
}

/// The answer of a run that lost a lock while it waited for the next one, so its command does not start.
pub(crate) fn lost_before_the_start(name: &LockName) -> Failure {
    Failure::new(
        Exit::LockLost,
        "LOCK_LOST",
        format!("{name} was lost before the command started, so it has not run"),
    )
    .with_context(json!({ "name": name.as_str() }))
}
