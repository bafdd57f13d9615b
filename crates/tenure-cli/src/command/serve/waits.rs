//! Requests for locks that have no answer yet: in line behind other requests of the program, or waiting in a store.
//!
//! What becomes of a grant is decided elsewhere (`holds`).

use super::calls::{self, Asked, Taken};
use super::frames::{self, Id};
use super::output::About;
use super::{Event, Serve, abandoned, already_held, is_same_place};
use crate::command::Session;
use crate::exit::Exit;
use crate::failure::{Failure, Retry};
use crate::render::Listener;
use crate::request::Run;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tenure_core::LockName;
use tenure_engine::cancel::Cancel;
use tenure_engine::clock::instant;
use tenure_engine::engine::{Wait, Waiting};
use tenure_engine::envelope::LockView;

/// How many requests for locks may wait.
const WAITS_MAX: usize = 10_000;
/// How many of them may wait in a store at a time: each has a thread.
const WAITERS_MAX: usize = 1_000;

/// How often requests that stand behind others are told how they stand.
pub(super) const TELL: Duration = Duration::from_secs(5);

/// A request for locks that has no answer yet.
pub(super) struct Pending {
    pub(super) cancel: Cancel,
    /// It is not wanted any more.
    pub(super) is_abandoned: bool,
    /// The requests that said so.
    pub(super) abandons: Vec<Id>,
    pub(super) caller: Option<String>,
    /// Set while it stands behind another request of this program.
    pub(super) start: Option<Box<Start>>,
    /// The lock for which it waits in line or at the head of the line.
    pub(super) line: Option<LineKey>,
}

/// A line of requests for one lock: where, and its name.
pub(super) type LineKey = (String, LockName);

/// A request that has not begun to wait in its store.
pub(super) struct Start {
    pub(super) asked: Asked,
    pub(super) began: Instant,
    pub(super) deadline: Option<Instant>,
}

/// The requests of this program for one lock. The first one waits in the store; the others stand here.
#[derive(Default)]
pub(super) struct Queue {
    pub(super) behind: VecDeque<Id>,
    /// What the first one saw last.
    pub(super) place: usize,
    pub(super) holder: Value,
    /// The first one has seen something since the others were told.
    pub(super) is_stale: bool,
    /// When the others were told.
    pub(super) told: Option<Instant>,
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
                Some((
                    session.place.folder.display().to_string(),
                    only.name.clone(),
                ))
            }
            _ => None,
        };
        let began = instant();
        let deadline = task.wait.deadline(began);
        let asked = Asked {
            wait: task.wait,
            task,
            session,
            group_session,
            owner: self.parent.process,
            order,
        };
        let start = Box::new(Start {
            asked,
            began,
            deadline,
        });
        let mut pending = Pending {
            cancel: Cancel::new(),
            is_abandoned: false,
            abandons: Vec::new(),
            caller,
            start: None,
            line: line.clone(),
        };
        if let Some(line) = line {
            if let Some(queue) = self.lines.get_mut(&line) {
                queue.behind.push_back(id.clone());
                if let Some(deadline) = deadline {
                    self.deadlines.insert((deadline, id.clone()));
                }
                let behind = queue.behind.len();
                let place = queue.place + behind;
                let holder = queue.holder.clone();
                pending.start = Some(start);
                self.pending.insert(id.clone(), pending);
                self.calls.retain(|call| call != id);
                // Before the first of them has seen the lock, nothing is known of it.
                if place > behind {
                    self.tell_wait(id, place, &holder);
                }
                return Ok(());
            }
            self.lines.insert(line, Queue::default());
        }
        self.pending.insert(id.clone(), pending);
        self.calls.retain(|call| call != id);
        self.start(id, *start);
        Ok(())
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

    /// Has a request wait in its store.
    pub(super) fn start(&mut self, id: &Id, start: Start) {
        let Start {
            mut asked, began, ..
        } = start;
        asked.wait = calls::rest(asked.wait, instant().saturating_duration_since(began));
        let Some(pending) = self.pending.get(id) else {
            return;
        };
        let (cancel, teller, own) = (pending.cancel.clone(), self.teller.clone(), id.clone());
        let listener = {
            let (id, teller) = (id.clone(), self.teller.clone());
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
        let waits = asked.wait != Wait::No;
        let work = move || {
            let taken = calls::take(&asked, &cancel, listener);
            teller.tell(Event::Taken { id: own, taken });
        };
        let begun = if !waits {
            self.crew.run(Box::new(work));
            Ok(())
        } else if self.waiters >= WAITERS_MAX {
            Err(std::io::ErrorKind::WouldBlock.into())
        } else {
            self.crew.run_apart(Box::new(work))
        };
        self.waiters += 1;
        if let Err(error) = begun {
            // As an answer of a thread: the next one in line may fare the same, and so on.
            let taken = Err((no_thread(&error), Vec::new()));
            self.teller.tell(Event::Taken {
                id: id.clone(),
                taken,
            });
        }
    }

    /// What an `acquire` came to.
    pub(super) fn taken(&mut self, id: &Id, taken: Taken) {
        self.waiters = self.waiters.saturating_sub(1);
        let Some(pending) = self.pending.remove(id) else {
            return;
        };
        if let Some(line) = &pending.line {
            self.call_next(line);
        }
        match taken {
            // The grant and the word that it is not wanted have crossed. It is given back before the answer.
            Ok(parts) if pending.is_abandoned => {
                let parts = parts.into_iter().map(|(part, _)| Arc::new(part));
                let whose = super::Whose::Unwanted(id.clone(), pending.abandons);
                self.give(whose, parts.collect());
            }
            Ok(parts) => {
                let granted = self.keep(pending.caller, parts, false);
                self.answer(id, granted);
            }
            Err((failure, left)) => {
                self.left.extend(left.into_iter().map(Arc::new));
                let failure = if pending.is_abandoned {
                    abandoned()
                } else {
                    failure
                };
                self.refuse(id, &pending.abandons, failure);
            }
        }
    }

    /// Answers a request that got nothing, and those that did not want it any more.
    pub(super) fn refuse(&mut self, id: &Id, abandons: &[Id], failure: Failure) {
        self.answer(id, Err(failure));
        for abandon in abandons {
            self.answer(abandon, Ok(json!({ "abandoned": true })));
        }
    }

    /// Lets the next request for a lock wait in the store.
    pub(super) fn call_next(&mut self, line: &LineKey) {
        let Some(queue) = self.lines.get_mut(line) else {
            return;
        };
        let next = queue.behind.pop_front();
        match next.and_then(|id| Some((id.clone(), self.pending.get_mut(&id)?.start.take()?))) {
            Some((id, start)) => {
                self.forget_deadline(&id, &start);
                self.start(&id, *start);
            }
            None => {
                self.lines.remove(line);
            }
        }
    }

    /// Takes a request out of the line of this program; `None` if it does not stand there.
    pub(super) fn leave_line(&mut self, id: &Id) -> Option<Box<Start>> {
        let pending = self.pending.get_mut(id)?;
        let start = pending.start.take()?;
        if let Some(queue) = pending
            .line
            .take()
            .and_then(|line| self.lines.get_mut(&line))
        {
            queue.behind.retain(|behind| behind != id);
        }
        self.forget_deadline(id, &start);
        Some(start)
    }

    fn forget_deadline(&mut self, id: &Id, start: &Start) {
        if let Some(deadline) = start.deadline {
            self.deadlines.remove(&(deadline, id.clone()));
        }
    }

    pub(super) fn abandon(&mut self, id: &Id, of: &Id) {
        let Some(pending) = self.pending.get_mut(of) else {
            // Its answer has been written, or it never was: whatever was granted is the client's.
            return self.answer(id, Ok(json!({ "abandoned": false })));
        };
        pending.is_abandoned = true;
        pending.abandons.push(id.clone());
        pending.cancel.cancel();
        if self.leave_line(of).is_some()
            && let Some(pending) = self.pending.remove(of)
        {
            self.refuse(of, &pending.abandons, abandoned());
        }
    }

    /// Ends the waits in lines of this program whose time is over: they look at the lock once, and are refused with
    /// what they see.
    pub(super) fn end_waits(&mut self, now: Instant) {
        while let Some((deadline, id)) = self.deadlines.first().cloned()
            && deadline <= now
        {
            if let Some(start) = self.leave_line(&id) {
                self.start(&id, *start);
            }
            self.deadlines.remove(&(deadline, id));
        }
    }

    /// How the wait of a request stands, and of those behind it.
    pub(super) fn waiting(&mut self, id: &Id, place: usize, holder: &Value) {
        let Some(pending) = self.pending.get(id) else {
            return;
        };
        let line = pending.line.clone();
        self.tell_wait(id, place, holder);
        let Some(queue) = line.and_then(|line| self.lines.get_mut(&line)) else {
            return;
        };
        (queue.place, queue.holder) = (place, holder.clone());
        queue.is_stale = true;
        self.tell_lines(instant());
    }

    /// Tells the requests in lines how they stand now. Each turn moves all that are behind, so they are told from
    /// time to time: a line of N would otherwise be told N times N things.
    pub(super) fn tell_lines(&mut self, now: Instant) {
        let mut told = Vec::new();
        for queue in self.lines.values_mut() {
            if !queue.is_stale || queue.told.is_some_and(|told| now < told + TELL) {
                continue;
            }
            queue.is_stale = false;
            if queue.behind.is_empty() {
                continue;
            }
            queue.told = Some(now);
            for (index, id) in queue.behind.iter().enumerate() {
                told.push((id.clone(), queue.place + index + 1, queue.holder.clone()));
            }
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

fn no_thread(error: &std::io::Error) -> Failure {
    match error.kind() {
        std::io::ErrorKind::WouldBlock => {
            too_many(&format!("requests wait for {WAITERS_MAX} locks already"))
        }
        _ => no_thread_for(error),
    }
}

pub(super) fn no_thread_for(error: &std::io::Error) -> Failure {
    too_many(&format!("no thread could be started: {error}"))
}
