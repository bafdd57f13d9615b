//! `wait`: returns when a lock has room for a claim. It takes nothing and writes nothing.

use super::{Session, attend, cancelled, collect_signals, near, waits_for_itself};
use crate::dialect::Done;
use crate::failure::Failure;
use crate::render::Reporter;
use crate::render::lock::{LockView, failure_of};
use crate::render::waiting::{Progress, Sight};
use crate::request;
use crate::signals::stop_asked;
use serde_json::{Value, json};
use std::time::Duration;
use tenure_engine::clock::{self, Clock, instant, since};
use tenure_engine::engine::{Observer, Wait};
use tenure_engine::store::{StoreError, Verbs, Wake};
use tenure_engine::tenure_core::{Entry, LockName, Mode, Reason, Standing};

/// How long one sleep lasts at most; a file deleted by hand is noticed by then.
const NAP: Duration = Duration::from_secs(10);

/// How long one sleep lasts where a waiter does not take its turn, and others may pass it any moment.
const STILL_NAP: Duration = Duration::from_secs(1);

/// How long after an error of servers they are asked again.
const REACHED_AGAIN: Duration = Duration::from_millis(200);

/// How long one sleep lasts where the holders of the lock may leave room.
const ROOM_NAP: Duration = Duration::from_millis(200);

#[cold]
#[inline(never)]
pub(super) fn wait(
    wait: request::Wait,
    reporter: &mut Reporter,
) -> Result<(String, Value), Failure> {
    let request::Wait {
        place,
        name,
        mode,
        limit,
    } = wait;
    let session = Session::waiting(place, collect_signals()?)?;
    until_free(&session, &name, mode, limit, reporter)
}

/// The same for a caller that has opened the locks, and sleeps in its own way.
pub(super) fn until_free(
    session: &Session,
    name: &LockName,
    mode: Mode,
    limit: Wait,
    reporter: &mut Reporter,
) -> Result<(String, Value), Failure> {
    session.tell_place(reporter);
    let policy = *session.store.policy();
    let mut last = None;
    let began = instant();
    let deadline = match limit {
        Wait::No => Some(began),
        Wait::For(duration) => began.checked_add(duration),
        Wait::Forever => None,
    };
    let empty = Entry::default();
    let mut progress = Progress::new(reporter, name, &session.identity.host, limit);
    let mut has_waited = false;
    near::point_out_others(session, reporter, name);
    loop {
        let reading = match session.store.read(name) {
            // Servers that were there come back. The wait goes on as long as the caller said.
            Err(error @ StoreError::Unreachable { .. })
                if has_waited && deadline.is_none_or(|deadline| instant() < deadline) =>
            {
                clock::nap(REACHED_AGAIN);
                if !progress.hindered(&error) || stop_asked().is_some() {
                    return Err(cancelled("wait"));
                }
                continue;
            }
            reading => reading?,
        };
        let now = session.clock.now();
        let (standing, front) = reading.standing(&policy, &now);
        let view = LockView::of(name, &reading, &policy, &now, |_| false);
        let view = view.for_mode(mode, &reading, &policy, &now);
        let waited = since(began);
        if !has_waited {
            // As for a caller that takes it.
            session.refuse_own_hold(name)?;
            session.refuse_another_pool((name, &reading), mode)?;
        }
        if view.available {
            if !has_waited {
                near::point_out(session, reporter, name, &reading);
            }
            let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
            let done = Done::Free { name };
            let text = session.text_of(&done, || match view.room {
                Some(_) => format!("{name} has room"),
                None => format!("{name} is free"),
            });
            let mut data =
                json!({ "name": name.as_str(), "standing": "free", "waited_ms": waited_ms });
            if let Some(room) = view.room {
                data["standing"] = view.standing.into();
                data["room"] = json!(room);
            }
            return Ok((text, data));
        }
        let entry = reading.entry();
        let before = *last.get_or_insert_with(|| entry.map_or(0, |entry| entry.last));
        if limit == Wait::Forever
            && let Some(own) = attend::own_hold(session, &reading, mode, before)
        {
            return Err(waits_for_itself(name, &own));
        }
        let in_the_way = match standing {
            // Waiting ends neither: a person has to decide.
            Standing::Unreadable => Some(Reason::Unreadable),
            Standing::Stale(_) => Some(Reason::StaleNeedsForce),
            Standing::Free | Standing::Held(_) | Standing::Unknown => None,
        };
        if let Some(reason) = in_the_way {
            let failure = failure_of(view.clone(), reason, None, 0);
            return Err(session.blocked(failure, &view, reason));
        }
        if deadline.is_some_and(|deadline| instant() >= deadline) {
            let waited = (limit != Wait::No).then_some(waited);
            let retry_after_ms = view.retry_after_ms.unwrap_or(1_000);
            let mut failure = failure_of(view.clone(), Reason::Held, waited, retry_after_ms);
            failure.phase = Some("wait");
            return Err(session.blocked(failure, &view, Reason::Held));
        }
        has_waited = true;
        let frame = progress.show(|here| {
            let entry = reading.entry().unwrap_or(&empty);
            Sight::from_outside(&view, entry, front, &now, here)
        });
        let nap = match &view.standstill {
            // The stopped waiters stand aside then.
            Some(still) if still.stands_aside_in_ms > 0 => {
                NAP.min(Duration::from_millis(still.stands_aside_in_ms))
            }
            Some(_) => STILL_NAP,
            // No byte tells that a waiter has left which stood before a claim that holds beside others.
            None if view.room.is_some() => ROOM_NAP,
            None => NAP,
        };
        let until = [deadline, frame, instant().checked_add(nap)]
            .into_iter()
            .flatten()
            .min();
        if session.store.watch(name, &reading, &now, until)? == Wake::Interrupted {
            return Err(cancelled("wait"));
        }
    }
}
