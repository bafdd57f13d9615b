//! `wait`: returns when a lock has room for a claim. It takes nothing and writes nothing.

use super::near;

use super::refusal::cancelled;

use super::session::{Session, collect_signals};
use crate::dialect::CallResult;
use crate::failure::Failure;
use crate::render::Reporter;
use crate::render::lock::failure_of;
use crate::render::waiting::{Progress, WaitView};
use crate::request;
use crate::signals::stop_asked;
use serde_json::{Value, json};
use std::time::Instant;
use tenure_core::{Entry, LockName, Mode, Reason};
use tenure_engine::engine::{Observer, Wait};
use tenure_engine::vacancy::{Look, Onlooker, Vacancy, WaitResult, until_room};
use tenure_store::StoreError;

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

/// Waits for a caller that has opened the locks, and sleeps in its own way.
pub(super) fn until_free(
    session: &Session,
    name: &LockName,
    mode: Mode,
    limit: Wait,
    reporter: &mut Reporter,
) -> Result<(String, Value), Failure> {
    session.tell_place(reporter);
    near::point_out_others(session, reporter, name);
    let mut showing = Showing {
        session,
        name,
        mode,
        limit,
        progress: Progress::new(reporter, name, &session.identity.host, limit),
        reporter,
    };
    let vacancy = until_room(
        &*session.store,
        &session.clock,
        name,
        mode,
        limit,
        &mut showing,
    )?;
    drop(showing);
    let Vacancy {
        mut view,
        waited,
        found,
    } = vacancy;
    session.call_as_asked(&mut view, name);
    match found {
        WaitResult::Room => {}
        WaitResult::Interrupted => return Err(cancelled("wait")),
        WaitResult::Refused { refusal, .. } if refusal.reason != Reason::Held => {
            let failure = failure_of(view.clone(), refusal.reason, None, 0);
            return Err(session.blocked(failure, &view, refusal.reason));
        }
        WaitResult::Refused { retry_after_ms, .. } => {
            // The wait has run out.
            let waited = (limit != Wait::No).then(|| limit.limit().unwrap_or(waited));
            let mut failure = failure_of(view.clone(), Reason::Held, waited, retry_after_ms);
            failure.phase = Some("wait");
            return Err(session.blocked(failure, &view, Reason::Held));
        }
    }
    let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
    let done = CallResult::Free { name };
    let text = session.text_of(&done, || match view.room {
        Some(_) => format!("{name} has room"),
        None => format!("{name} is free"),
    });
    let mut data = json!({ "name": name.as_str(), "standing": "free", "waited_ms": waited_ms });
    if let Some(room) = view.room {
        data["standing"] = view.standing.into();
        data["room"] = json!(room);
    }
    Ok((text, data))
}

/// Shows a person the wait, and refuses what would never end.
struct Showing<'a> {
    session: &'a Session,
    name: &'a LockName,
    mode: Mode,
    limit: Wait,
    progress: Progress<'a>,
    reporter: &'a mut Reporter,
}

impl Onlooker for Showing<'_> {
    type Error = Failure;

    fn sees(&mut self, look: &Look<'_>) -> Result<(), Failure> {
        let (session, name) = (self.session, self.name);
        if !look.has_waited {
            // As for a caller that takes it.
            session.refuse_own_hold(name)?;
            session.refuse_another_pool((name, look.reading), self.mode)?;
            if look.view.available {
                near::point_out(session, self.reporter, name, look.reading);
            }
        }
        Ok(())
    }

    fn sleeps(&mut self, look: &Look<'_>) -> Result<Option<Instant>, Failure> {
        let may_be_own = self.limit == Wait::Forever || self.session.place.is_agents;
        if may_be_own && let Some(own) = self.session.own_hold(look.reading, self.mode, look.before)
        {
            return Err(self.session.waits_for_itself(self.name, &own));
        }
        let empty = Entry::default();
        Ok(self.progress.show(|| {
            let entry = look.reading.entry().unwrap_or(&empty);
            WaitView::from_outside(look.view, entry, look.front, look.now)
        }))
    }

    fn hindered(&mut self, error: &StoreError) -> Result<(), Failure> {
        if !self.progress.hindered(error) || stop_asked().is_some() {
            return Err(cancelled("wait"));
        }
        Ok(())
    }
}
