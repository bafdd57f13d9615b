//! Requests for locks that have no answer yet: in line behind other requests of the program, or waiting in a store.
//!
//! What becomes of a grant is decided elsewhere (`holds`).

use super::calls::{self, AcquireOutcome, AcquireTask};
use super::frames::{self, Id};
use super::output::About;
use super::{Event, Serve, Teller, Whose, abandoned, already_held, is_same_place};
use crate::command::session::Session;
use crate::exit::Exit;
use crate::failure::{Failure, Retry};
use crate::render::Listener;
use crate::request::Run;
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};
use tenure_core::LockName;
use tenure_engine::engine::{Wait, Waiting};
use tenure_engine::envelope::LockView;
use tenure_engine::line::{
    self, Deadline, Deadlines, Duty, Errand, Lines, Parking, Pool, Timed, Turn, Work,
};
use tenure_os::brief::briefly;
use tenure_os::cancel::Cancel;
use tenure_os::clock::instant;

/// How many requests for locks may wait.
const WAITS_MAX: usize = 10_000;

/// How often requests that stand behind others are told how they stand.
pub(super) const TELL: Duration = Duration::from_secs(5);

/// A request for locks that has no answer yet.
pub(super) struct Pending {
    pub(super) cancel: Cancel,
    /// Whether the request is no longer wanted.
    pub(super) is_abandoned: bool,
    /// The requests that said so.
    pub(super) abandons: Vec<Id>,
    pub(super) caller: Option<String>,
    place: Option<InLine>,
}

/// A line of requests for one lock: where, and its name.
pub(super) type LineKey = Arc<(String, LockName)>;

/// The place of a request in a line, or at its head.
struct InLine {
    line: LineKey,
    /// `None` for one that found the turn free.
    number: Option<u64>,
    deadline: Option<Deadline>,
}

/// What was last seen of a lock, for the requests that stand in its line.
#[derive(Default)]
pub(super) struct LineState {
    /// The place of the first one in the store.
    place: usize,
    holder: Value,
    /// The first one has seen something since the others were told.
    pub(super) is_stale: bool,
    /// When the others were told.
    pub(super) told: Option<Instant>,
}

/// What requests for locks wait with.
pub(super) struct Waits {
    lines: Arc<Lines<LineKey, Start>>,
    /// For locks in folders, and for those on servers.
    pools: [Pool; 2],
    deadlines: Deadlines<Due>,
}

impl Default for Waits {
    fn default() -> Self {
        Self {
            lines: Arc::default(),
            pools: [false, true].map(Pool::new),
            deadlines: Deadlines::default(),
        }
    }
}

/// What is due of them.
pub(super) enum Due {
    /// The wait of a request in that line is over.
    Over(LineKey),
    /// A wait ends that has no thread.
    Wake(Box<Waker>),
}

impl From<Waker> for Due {
    fn from(waker: Waker) -> Self {
        Self::Wake(Box::new(waker))
    }
}

impl Timed for Waits {
    type Due = Due;

    fn deadlines(&self) -> &Deadlines<Due> {
        &self.deadlines
    }

    fn number(&self) -> u64 {
        self.lines.number()
    }
}

impl Duty<Waits> for Due {
    fn see_to(self, number: u64, waits: &Waits) {
        match self {
            // The request looks at the lock once, and is refused with what it sees.
            Self::Over(line) => {
                if let Some(start) = waits.lines.take_back(&line, number) {
                    line::begin(None, start);
                }
            }
            Self::Wake(waker) => waker.wake(),
        }
    }
}

/// A request that has not begun to wait in its store.
pub(super) struct Start {
    id: Id,
    asked: AcquireTask,
    began: Instant,
    cancel: Cancel,
    teller: Teller,
    waits: Arc<Waits>,
}

impl Errand<LineKey> for Start {
    fn start(self, turn: Turn<LineKey, Self>) {
        line::begin(Some(turn), self);
    }

    fn stands(&mut self) {}
}

impl Work<LineKey> for Start {
    fn pool(&self) -> &Pool {
        let [folders, servers] = &self.waits.pools;
        if self.asked.session.store.is_remote() {
            servers
        } else {
            folders
        }
    }

    async fn work(self) {
        let Self {
            id,
            mut asked,
            began,
            cancel,
            teller,
            waits,
        } = self;
        asked.wait = calls::rest(asked.wait, instant().saturating_duration_since(began));
        let listener = {
            let (id, teller) = (id.clone(), teller.clone());
            Listener(Arc::new(move |_: &LockName, waiting: &Waiting<'_>| {
                let holder = waiting.front().filter(|front| front.token.is_some());
                let holder = holder.map(|claim| LockView::holder_of(claim, waiting.now));
                teller.tell(Event::Waiting {
                    id: id.clone(),
                    place: waiting.before() + 1,
                    holder: serde_json::to_value(holder).unwrap_or_default(),
                });
            }))
        };
        let taken = calls::take(&Parking(&waits), &asked, &cancel, listener).await;
        teller.tell(Event::Taken { id, taken });
    }

    fn fail(self, why: io::Error) {
        let taken = Err((no_thread_for(&why), Vec::new()));
        self.teller.tell(Event::Taken { id: self.id, taken });
    }
}

impl Waits {
    /// A place in a line is not needed any more.
    fn forget(&self, place: &InLine) {
        if let Some(deadline) = place.deadline {
            self.deadlines.forget(deadline);
        }
    }
}

impl Serve {
    pub(super) fn acquire(
        &mut self,
        id: &Id,
        run: Run,
        order: Vec<String>,
        caller: Option<String>,
    ) -> Result<(), Failure> {
        let Run {
            place,
            group_place,
            task,
        } = run;
        let session = self.session(place, false)?;
        let group_session = match group_place {
            Some(place) => self.session(place, true)?,
            None => session,
        };
        for wanted in &task.locks {
            self.refuse_own(caller.as_deref(), session, &wanted.name)?;
        }
        if self.pending.len() >= WAITS_MAX {
            return Err(too_many(&format!(
                "{WAITS_MAX} requests for locks wait already"
            )));
        }
        let line = match task.locks.as_slice() {
            [only]
                if task.group().is_none()
                    && task.ticket.is_none()
                    && task.wait != Wait::No
                    && !only.terms.cancel_in_progress
                    && !only.terms.queueing.yields() =>
            {
                let folder = session.place.folder.display().to_string();
                Some(Arc::new((folder, only.name.clone())))
            }
            _ => None,
        };
        let began = instant();
        let deadline = task.wait.deadline(began);
        let asked = AcquireTask {
            wait: task.wait,
            task,
            session,
            group_session,
            owner: self.parent.process,
            order,
        };
        let cancel = Cancel::new();
        let start = Start {
            id: id.clone(),
            asked,
            began,
            cancel: cancel.clone(),
            teller: self.teller.clone(),
            waits: Arc::clone(&self.waits),
        };
        let begin = || {
            if let Some(line) = line {
                return Some(self.stand(line, start, deadline));
            }
            line::begin(None, start);
            None
        };
        let place = if session.store.is_prompt() && group_session.store.is_prompt() {
            briefly(begin)
        } else {
            begin()
        };
        let pending = Pending {
            cancel,
            is_abandoned: false,
            abandons: Vec::new(),
            caller,
            place,
        };
        self.pending.insert(id.clone(), pending);
        self.calls.retain(|call| call != id);
        Ok(())
    }

    /// Has a request stand in a line.
    fn stand(&mut self, line: LineKey, start: Start, deadline: Option<Instant>) -> InLine {
        let (waits, id) = (Arc::clone(&self.waits), start.id.clone());
        let number = waits.lines.leave(&line, start);
        let mut place = InLine {
            line,
            number,
            deadline: None,
        };
        let (Some(number), line) = (number, Arc::clone(&place.line)) else {
            return place;
        };
        if let Some(at) = deadline {
            let due = Due::Over(Arc::clone(&line));
            match waits.deadlines.add(&waits, (at, number), due) {
                Ok(deadline) => place.deadline = Some(deadline),
                Err(why) => {
                    if let Some(start) = waits.lines.take_back(&line, number) {
                        start.fail(why);
                    }
                }
            }
        }
        // Before the first of them has seen the lock, nothing is known of it.
        if let Some(seen) = self.seen.get(&line) {
            let behind = waits.lines.before(&line, number) + 1;
            let (place, holder) = (seen.place + behind, seen.holder.clone());
            self.tell_wait(&id, place, &holder);
        }
        place
    }

    /// The lock that the caller itself has. A wait for it would never end.
    pub(super) fn refuse_own(
        &self,
        caller: Option<&str>,
        session: &Session,
        name: &LockName,
    ) -> Result<(), Failure> {
        let Some(caller) = caller else {
            return Ok(());
        };
        let mut own = self
            .holds
            .values()
            .filter(|kept| kept.caller.as_deref() == Some(caller) && kept.releasing.is_none());
        let found = own.find_map(|kept| {
            let mut parts = kept.parts();
            parts.find(|part| part.name() == name && is_same_place(part.session, session))
        });
        match found {
            None => Ok(()),
            Some(part) => Err(already_held(
                part,
                "this caller holds it; the wait would never end",
            )),
        }
    }

    /// What an `acquire` came to.
    pub(super) fn taken(&mut self, id: &Id, taken: AcquireOutcome) {
        let Some(pending) = self.pending.remove(id) else {
            return;
        };
        if let Some(place) = &pending.place {
            self.waits.forget(place);
            if self.waits.lines.is_empty(&place.line) {
                self.seen.remove(&place.line);
            }
        }
        let (failure, parts) = match taken {
            // The grant and the word that it is not wanted have crossed.
            Ok(parts) if pending.is_abandoned => {
                let parts = parts.into_iter().map(|(part, _)| Arc::new(part));
                (abandoned(), parts.collect())
            }
            Ok(parts) => match self.keep(pending.caller, parts) {
                Ok(granted) => return self.answer(id, Ok(granted)),
                Err(refused) => refused,
            },
            Err((_, parts)) if pending.is_abandoned => {
                (abandoned(), parts.into_iter().map(Arc::new).collect())
            }
            Err((failure, parts)) => (failure, parts.into_iter().map(Arc::new).collect()),
        };
        let whose = Whose::Refused(id.clone(), pending.abandons, Box::new(failure));
        self.give(whose, parts);
    }

    /// Answers a request that got nothing, and those that did not want it any more.
    pub(super) fn refuse(&mut self, id: &Id, abandons: &[Id], failure: Failure) {
        self.answer(id, Err(failure));
        for abandon in abandons {
            self.answer(abandon, Ok(json!({ "abandoned": true })));
        }
    }

    /// Takes a request out of the line of this program; false if it does not stand there.
    pub(super) fn leave_line(&mut self, id: &Id) -> bool {
        let place = self
            .pending
            .get(id)
            .and_then(|pending| pending.place.as_ref());
        let Some(place) = place else {
            return false;
        };
        let left = place.number.and_then(|number| {
            let lines = &self.waits.lines;
            lines.take_back(&place.line, number)
        });
        if left.is_some() {
            self.waits.forget(place);
        }
        left.is_some()
    }

    pub(super) fn abandon(&mut self, id: &Id, of: &Id) {
        let Some(pending) = self.pending.get_mut(of) else {
            // The answer has been written, or never was wanted: whatever was granted is the client's.
            return self.answer(id, Ok(json!({ "abandoned": false })));
        };
        pending.is_abandoned = true;
        pending.abandons.push(id.clone());
        pending.cancel.cancel();
        if self.leave_line(of)
            && let Some(pending) = self.pending.remove(of)
        {
            self.refuse(of, &pending.abandons, abandoned());
        }
    }

    /// How the wait of a request stands, and of those behind it.
    pub(super) fn waiting(&mut self, id: &Id, place: usize, holder: &Value) {
        let Some(pending) = self.pending.get(id) else {
            return;
        };
        let line = pending.place.as_ref().map(|place| Arc::clone(&place.line));
        self.tell_wait(id, place, holder);
        let Some(line) = line else {
            return;
        };
        let seen = self.seen.entry(line).or_default();
        (seen.place, seen.holder) = (place, holder.clone());
        seen.is_stale = true;
        self.tell_lines(instant());
    }

    /// Tells the requests in lines how they stand now. Each turn moves all that are behind, so they are told from
    /// time to time: a line of N would otherwise be told N times N things.
    pub(super) fn tell_lines(&mut self, now: Instant) {
        let mut told = Vec::new();
        for (line, seen) in &mut self.seen {
            if !seen.is_stale || seen.told.is_some_and(|told| now < told + TELL) {
                continue;
            }
            seen.is_stale = false;
            let mut place = seen.place;
            self.waits.lines.each(line, |behind| {
                place += 1;
                told.push((behind.id.clone(), place, seen.holder.clone()));
                seen.told = Some(now);
            });
        }
        for (id, place, holder) in told {
            self.tell_wait(&id, place, &holder);
        }
    }

    pub(super) fn tell_wait(&mut self, id: &Id, place: usize, holder: &Value) {
        let own: Value = serde_json::from_str(id).unwrap_or_default();
        let params = json!({ "id": own, "place": place, "holder": holder });
        let frame = frames::notification("waiting", &params);
        self.output.update(About::Request(id.clone()), frame);
    }
}

pub(super) fn too_many(why: &str) -> Failure {
    let mut failure = Failure::new(Exit::General, "TOO_MANY_REQUESTS", why);
    failure.retry = Some(Retry::exponential(1_000));
    failure
}

pub(super) fn no_thread_for(error: &io::Error) -> Failure {
    too_many(&format!("no thread could be started: {error}"))
}
