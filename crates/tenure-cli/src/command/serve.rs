//! `serve`: holds locks for the program that started it, which speaks to it by JSON-RPC on stdin and stdout.
//!
//! **The holds belong to the program.** Each claim names it as its process and as its command, and this process keeps
//! the claim's liveness lock beside that. The claim counts while either lives. So the end of this process, however it
//! comes, frees nothing: the program goes on working under its holds, and a new `serve` adopts them. Holds end when the
//! program says so, when it closes our stdin, or with its own end.
//!
//! One thread reads, writes, keeps time and has all state. What may block is done by others (`work`), which answer
//! with events. So a parent that does not read, a slow store and a long wait delay nothing else.
//!
//! `docs/clients.md` is the protocol, for people who write clients.

mod calls;
mod frames;
mod output;
mod parent;
mod work;

use super::Session;
use crate::args::ServeArgs;
use crate::exit::Exit;
use crate::failure::{Failure, Retry};
use crate::holds;
use crate::render::{Listener, say};
use crate::request::serve::Usual;
use crate::request::{Place, Run, Surroundings};
use crate::signals;
use calls::{Adopting, Asked, Part, Seen, Taken};
use frames::{Id, LINE_MAX, Line, Method, PROTOCOL};
use output::{About, Output};
use parent::Parent;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};
use tenure_core::{LockName, Renewal, Schedule};
use tenure_engine::cancel::Cancel;
use tenure_engine::clock::{Clock, instant};
use tenure_engine::engine::{Wait, Waiting};
use tenure_engine::envelope::LockView;
use tenure_engine::os::{self, Bell, Descriptor, Ringer};
use work::Crew;

/// How many requests for locks may wait.
const WAITS_MAX: usize = 10_000;

/// How many of them may wait in a store at a time: each has a thread.
const WAITERS_MAX: usize = 1_000;

/// How many other requests are carried out at a time, before no further one is read.
const CALLS_MAX: usize = 1_000;

/// How many places one program may have locks in.
const PLACES_MAX: usize = 1_000;

/// How long a hold lasts before its file is watched, and how many are watched by one watch each.
const SETTLE: Duration = Duration::from_millis(20);
const WATCHES_MAX: usize = 16;

/// How often a hold is looked at, and with N holds at most once in N times the share.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_SHARE: Duration = Duration::from_millis(2);

/// How often a release that failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// How often the parent is looked at where the system does not tell of its end.
const PARENT_LOOK: Duration = Duration::from_millis(250);

/// How long the end of this process may take.
const END_MAX: Duration = Duration::from_secs(30);

/// How long one sleep lasts at most.
const NAP_MAX: Duration = Duration::from_secs(60);

/// Carries it out.
pub(super) fn serve(args: &ServeArgs) -> Exit {
    let served = Serve::begin(args).and_then(|mut serve| {
        let end = serve.attend();
        serve.finish(&end);
        match end {
            End::Over => Ok(()),
            End::Broken(why) => Err(Failure::new(Exit::BadArguments, "NO_MESSAGE", why)),
        }
    });
    match served {
        Ok(()) => Exit::Success,
        Err(failure) => {
            say(&failure.message);
            failure.exit
        }
    }
}

/// Why this process ends.
enum End {
    /// The program has closed our stdin, or has ended.
    Over,
    /// What came was no message. The program did not say that it is done with its holds, so they stay.
    Broken(String),
}

/// What a thread answers with.
enum Event {
    /// How a wait stands.
    Waiting { id: Id, place: usize, holder: Value },
    /// What an `acquire` came to.
    Taken { id: Id, taken: Taken },
    /// What a look at a hold showed. `asked` is the request that it answers, if it does.
    Seen {
        hold: u64,
        seen: Vec<(usize, Seen)>,
        renewed: bool,
        asked: Option<Id>,
    },
    /// Locks were given back, or could not be.
    GivenBack {
        whose: Whose,
        results: Vec<Result<bool, Failure>>,
        left: Vec<Arc<Part>>,
    },
    /// A hold was taken over, or not.
    Adopted {
        id: Id,
        caller: Option<String>,
        adopted: Result<Vec<(Part, Schedule)>, Failure>,
    },
    /// A request was carried out.
    Done {
        id: Id,
        result: Result<Value, Failure>,
    },
}

/// Which locks were given back.
enum Whose {
    Hold(u64),
    /// Those of a grant that was not wanted any more; its request is answered now.
    Unwanted(Id, Pending),
    /// Those that could not be given back before.
    Left,
}

/// Where threads answer.
#[derive(Clone)]
struct Teller {
    events: Sender<Event>,
    bell: Arc<Ringer>,
}

impl Teller {
    fn tell(&self, event: Event) {
        if self.events.send(event).is_ok() {
            self.bell.ring();
        }
    }
}

/// A request for locks that has no answer yet.
struct Pending {
    cancel: Cancel,
    /// It is not wanted any more.
    is_abandoned: bool,
    /// The requests that said so.
    abandons: Vec<Id>,
    caller: Option<String>,
    /// Set while it stands behind another request of this program.
    start: Option<Box<Start>>,
    /// The lock for which it waits in line or at the head of the line.
    line: Option<LineKey>,
}

/// A line of requests for one lock: where, and its name.
type LineKey = (String, LockName);

/// A request that has not begun to wait in its store.
struct Start {
    asked: Asked,
    began: Instant,
    deadline: Option<Instant>,
}

/// The requests of this program for one lock. The first one waits in the store; the others stand here.
#[derive(Default)]
struct Queue {
    behind: VecDeque<Id>,
    /// What the first one saw last.
    place: usize,
    holder: Value,
}

/// A hold of the program.
struct Kept {
    caller: Option<String>,
    parts: Vec<(Arc<Part>, Schedule)>,
    began: Instant,
    watches: Vec<Descriptor>,
    /// When it is looked at next.
    look: Instant,
    /// It may be watched, and was not yet.
    settles: bool,
    /// A thread looks at it.
    is_asked: bool,
    is_lost: bool,
    was_asked_to_stop: bool,
    /// It is being given back; these requests want to know.
    releasing: Option<Vec<Id>>,
}

impl Kept {
    /// How long others leave it alone, if no renewal succeeds before; `None` for as long as the program lives.
    fn good_for_ms(&self) -> Option<u64> {
        let left = self
            .parts
            .iter()
            .filter_map(|(part, schedule)| schedule.left_ms(part.session.clock.now().boot_ms));
        left.min()
    }
}

struct Serve {
    usual: Usual,
    parent: Parent,
    output: Output,
    input: Vec<u8>,
    crew: Crew,
    teller: Teller,
    events: Receiver<Event>,
    bell: Bell,
    sessions: BTreeMap<(String, bool), &'static Session>,
    pending: BTreeMap<Id, Pending>,
    lines: BTreeMap<LineKey, Queue>,
    waiters: usize,
    /// The other requests without an answer.
    calls: Vec<Id>,
    holds: BTreeMap<u64, Kept>,
    next_hold: u64,
    /// Locks that could not be given back, and when that is tried again.
    left: Vec<Arc<Part>>,
    again: Instant,
    /// How many threads give locks back.
    giving: usize,
    is_greeted: bool,
}

impl Serve {
    fn begin(args: &ServeArgs) -> Result<Self, Failure> {
        let parent = Parent::find()?;
        // Ctrl-C and the stop of a service must reach the program first; it decides what becomes of its holds. A
        // leader of a group cannot have a session of its own, and hears no request either.
        signals::ignore_requests();
        let _ = rustix::process::setsid();
        let (sender, events) = mpsc::channel();
        let (bell, ringer) = os::bell().map_err(|error| {
            Failure::new(
                Exit::General,
                "NO_BELL",
                format!("no pipe could be made: {error}"),
            )
        })?;
        Ok(Self {
            usual: Usual {
                around: Surroundings::of(&args.common),
                common: args.common.clone(),
            },
            parent,
            output: Output::default(),
            input: Vec::new(),
            crew: Crew::default(),
            teller: Teller {
                events: sender,
                bell: Arc::new(ringer),
            },
            events,
            bell,
            sessions: BTreeMap::new(),
            pending: BTreeMap::new(),
            lines: BTreeMap::new(),
            waiters: 0,
            calls: Vec::new(),
            holds: BTreeMap::new(),
            next_hold: 1,
            left: Vec::new(),
            again: instant(),
            giving: 0,
            is_greeted: false,
        })
    }

    /// Answers requests until the end.
    fn attend(&mut self) -> End {
        loop {
            let may_read = !self.output.is_full() && self.calls.len() < CALLS_MAX;
            let woken = self.sleep(may_read);
            self.hear();
            if self.parent.is_gone() {
                return End::Over;
            }
            if woken.reads {
                match self.read() {
                    Ok(true) => {}
                    Ok(false) => return End::Over,
                    Err(end) => return end,
                }
            }
            if let Err(end) = self.carry_out_lines() {
                return end;
            }
            if woken.is_closed && !woken.reads {
                return End::Over;
            }
            self.keep_time();
            self.output.flush();
        }
    }

    /// Sleeps until there is something to do.
    fn sleep(&self, may_read: bool) -> Woken {
        let has_line = may_read && self.input.contains(&b'\n');
        let nap = if has_line { Duration::ZERO } else { self.nap() };
        let (stdin, stdout) = (rustix::stdio::stdin(), rustix::stdio::stdout());
        let bell = self.bell.descriptor();
        let reading = if may_read {
            PollFlags::IN
        } else {
            PollFlags::empty()
        };
        let mut fds = vec![
            PollFd::new(&stdin, reading),
            PollFd::new(&bell, PollFlags::IN),
        ];
        let handle = self.parent.handle();
        fds.extend(
            handle
                .as_ref()
                .map(|handle| PollFd::new(handle, PollFlags::IN)),
        );
        if !self.output.is_empty() {
            fds.push(PollFd::new(&stdout, PollFlags::OUT));
        }
        let watches = self.holds.values().flat_map(|kept| &kept.watches);
        let watches: Vec<_> = watches.map(os::borrow).collect();
        fds.extend(
            watches
                .iter()
                .map(|watch| PollFd::new(watch, PollFlags::IN)),
        );
        let nap = Timespec {
            tv_sec: i64::try_from(nap.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: nap.subsec_nanos().into(),
        };
        // A failure is a signal, or a lack of memory for a moment.
        let _ = poll(&mut fds, Some(&nap));
        let seen = fds
            .first()
            .map(PollFd::revents)
            .unwrap_or(PollFlags::empty());
        let closed = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        Woken {
            reads: may_read && !seen.is_empty(),
            is_closed: seen.intersects(closed),
        }
    }

    /// How long there is nothing to do.
    fn nap(&self) -> Duration {
        let now = instant();
        let mut nap = NAP_MAX;
        if self.parent.handle().is_none() {
            nap = nap.min(PARENT_LOOK);
        }
        let until = |at: Instant| at.saturating_duration_since(now);
        for kept in self.holds.values().filter(|kept| kept.releasing.is_none()) {
            for (part, schedule) in &kept.parts {
                let now_ms = part.session.clock.now().boot_ms;
                if let Some(next) = schedule.next() {
                    let rest = next.at_ms.saturating_sub(now_ms).saturating_add(1);
                    nap = nap.min(Duration::from_millis(rest));
                }
            }
            if kept.settles {
                nap = nap.min(until(kept.began + SETTLE));
            }
            if !kept.is_asked && !kept.is_lost {
                nap = nap.min(until(kept.look));
            }
        }
        if !self.left.is_empty() {
            nap = nap.min(until(self.again));
        }
        let starts = self.lines.values().flat_map(|queue| &queue.behind);
        let starts = starts.filter_map(|id| self.pending.get(id)?.start.as_ref()?.deadline);
        starts.map(until).min().map_or(nap, |rest| nap.min(rest))
    }

    /// Reads what there is. False at the end of stdin.
    fn read(&mut self) -> Result<bool, End> {
        let mut buffer = [0; 1 << 16];
        match rustix::io::read(rustix::stdio::stdin(), &mut buffer) {
            // What has no end of a line was cut, and is no request.
            Ok(0) => Ok(false),
            Ok(count) => {
                self.input.extend(buffer.get(..count).unwrap_or_default());
                Ok(true)
            }
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Ok(true),
            Err(errno) => Err(End::Broken(format!("stdin cannot be read: {errno}"))),
        }
    }

    /// Carries out the whole lines that were read.
    fn carry_out_lines(&mut self) -> Result<(), End> {
        let input = std::mem::take(&mut self.input);
        let mut rest = input.as_slice();
        let mut broken = None;
        while !self.output.is_full() && self.calls.len() < CALLS_MAX {
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
                if rest.len() >= LINE_MAX {
                    broken = Some(frames::garbage("the line is longer than 1 MiB"));
                }
                break;
            };
            let (line, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            if line.len() >= LINE_MAX {
                broken = Some(frames::garbage("the line is longer than 1 MiB"));
                break;
            }
            match frames::read(line) {
                Line::Request(request) => self.carry_out(request.id, request.method),
                Line::Refused(answer) => self.output.say(&answer),
                Line::Ignored => {}
                garbage @ Line::Garbage(_) => {
                    broken = Some(garbage);
                    break;
                }
            }
        }
        self.input = rest.to_vec();
        match broken {
            Some(Line::Garbage(answer)) => {
                self.output.say(&answer);
                Err(End::Broken(
                    "what came on stdin is no message of the protocol; the program's holds stay its own"
                        .to_owned(),
                ))
            }
            _ => Ok(()),
        }
    }

    fn answer(&mut self, id: &Id, result: Result<Value, Failure>) {
        self.calls.retain(|call| call != id);
        self.output.forget(&About::Request(id.clone()));
        self.output.say(&frames::answer(id, result));
    }

    fn carry_out(&mut self, id: Id, method: Method) {
        if self.pending.contains_key(&id) || self.calls.contains(&id) {
            let why = "id: a request with this id has no answer yet";
            return self
                .output
                .say(&frames::answer(&id, Err(Failure::bad_arguments(why))));
        }
        if !self.is_greeted && !matches!(method, Method::Hello(_)) {
            let why = "begin with hello, which says the protocol";
            return self.answer(&id, Err(Failure::bad_arguments(why)));
        }
        self.calls.push(id.clone());
        if let Err(failure) = self.begin_call(&id, method) {
            self.answer(&id, Err(failure));
        }
    }

    /// Begins what a request asks for. What is done at once is answered at once.
    fn begin_call(&mut self, id: &Id, method: Method) -> Result<(), Failure> {
        match method {
            Method::Hello(hello) => {
                let greeting = self.greet(&hello)?;
                self.answer(id, Ok(greeting));
            }
            Method::Acquire(params) => {
                let run = self.usual.acquire(&params, &self.parent.command)?;
                self.acquire(id, run, params.caller)?;
            }
            Method::Adopt(adopt) => {
                let (place, groups, names) = self.usual.known(&adopt.place(), &adopt.locks)?;
                if names.is_empty() {
                    return Err(Failure::bad_arguments("locks: name the locks of the hold"));
                }
                let adopting = Adopting {
                    session: self.session(place, false)?,
                    group_session: self.session(groups, true)?,
                    request_id: adopt.request_id,
                    locks: adopt.locks.into_iter().zip(names).collect(),
                    owner: self.parent.process,
                };
                self.refuse_known(&adopting)?;
                let (id, caller) = (id.clone(), adopt.caller);
                self.run(move || Event::Adopted {
                    id,
                    caller,
                    adopted: calls::adopt(&adopting),
                })?;
            }
            Method::Release(of) => {
                let kept = self
                    .holds
                    .get_mut(&of.hold)
                    .ok_or_else(|| no_hold(of.hold))?;
                match &mut kept.releasing {
                    Some(asking) => asking.push(id.clone()),
                    None => {
                        kept.releasing = Some(vec![id.clone()]);
                        self.give_back(of.hold);
                    }
                }
            }
            Method::Verify(of) => {
                let kept = self.holds.get(&of.hold).ok_or_else(|| no_hold(of.hold))?;
                if kept.is_lost {
                    return Err(lost(kept));
                }
                self.look(of.hold, false, Some(id.clone()))?;
            }
            Method::Abandon(of) => self.abandon(id, &of),
            Method::Check(check) => {
                let meant = self.usual.check(&check.place(), &check.name)?;
                let session = self.session(meant.place, false)?;
                let name = meant
                    .name
                    .ok_or_else(|| Failure::bad_arguments("name: name a lock"))?;
                let own = self.tokens_of(session, &name);
                self.done(id, move || calls::check(session, &name, &own))?;
            }
            Method::List(list) => {
                let meant = self.usual.list(&list.place(), list.all)?;
                let (session, all) = (self.session(meant.place, false)?, meant.all);
                self.done(id, move || calls::list(session, all))?;
            }
            Method::Cancel(cancel) => {
                let meant = self.usual.cancel(
                    &cancel.place(),
                    cancel.name.as_deref(),
                    cancel.group.as_deref(),
                    cancel.request_id.as_deref(),
                    cancel.why.clone(),
                )?;
                self.done(id, move || calls::cancel(meant))?;
            }
        }
        Ok(())
    }

    fn greet(&mut self, hello: &frames::Hello) -> Result<Value, Failure> {
        let version = env!("CARGO_PKG_VERSION");
        if hello.protocol != PROTOCOL {
            return Err(Failure::new(
                Exit::BadArguments,
                "PROTOCOL_UNKNOWN",
                format!(
                    "the client speaks protocol {}, and tenure {version} speaks protocol {PROTOCOL}",
                    hello.protocol
                ),
            )
            .with_context(json!({ "client": hello.protocol, "serve": PROTOCOL, "version": version })));
        }
        let parent = self.parent.process.pid;
        if let Some(pid) = hello.pid.filter(|pid| *pid != parent) {
            return Err(Failure::new(
                Exit::Conflict,
                "NOT_THE_PARENT",
                format!(
                    "the client is PID {pid}, and PID {parent} ({}) has started serve; holds would end with \
                     that process, so start serve without a program in between",
                    self.parent.command
                ),
            )
            .with_context(json!({ "client": pid, "parent": parent })));
        }
        self.is_greeted = true;
        Ok(json!({
            "protocol": PROTOCOL,
            "version": version,
            "pid": std::process::id(),
            "parent": { "pid": parent, "command": self.parent.command },
        }))
    }

    /// The locks of a place, opened once.
    fn session(&mut self, place: Place, of_groups: bool) -> Result<&'static Session, Failure> {
        let key = (place.folder.display().to_string(), of_groups);
        if let Some(session) = self.sessions.get(&key) {
            return Ok(session);
        }
        if self.sessions.len() >= PLACES_MAX {
            return Err(Failure::bad_arguments(format!(
                "one serve has locks in at most {PLACES_MAX} places; start another one"
            )));
        }
        // Holds name it, and it is of use for as long as this process lives.
        let session: &'static Session = Box::leak(Box::new(Session::open(place)?));
        self.sessions.insert(key, session);
        Ok(session)
    }

    /// The tokens of the program's own holds of a lock.
    fn tokens_of(&self, session: &Session, name: &LockName) -> Vec<u64> {
        let parts = self.holds.values().flat_map(|kept| &kept.parts);
        let own = parts
            .map(|(part, _)| part)
            .filter(|part| part.name() == name && is_same_place(part.session, session));
        own.filter_map(|part| part.claim.token).collect()
    }

    /// Has a thread do it.
    fn run(&self, work: impl FnOnce() -> Event + Send + 'static) -> Result<(), Failure> {
        let teller = self.teller.clone();
        let job = self.crew.run(Box::new(move || teller.tell(work())));
        job.map_err(|error| no_thread(&error))
    }

    fn done(
        &self,
        id: &Id,
        work: impl FnOnce() -> Result<Value, Failure> + Send + 'static,
    ) -> Result<(), Failure> {
        let id = id.clone();
        self.run(move || Event::Done { id, result: work() })
    }

    fn acquire(&mut self, id: &Id, run: Run, caller: Option<String>) -> Result<(), Failure> {
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
        let deadline = match task.wait {
            Wait::For(limit) => began.checked_add(limit),
            Wait::No | Wait::Forever => None,
        };
        let asked = Asked {
            wait: task.wait,
            task,
            session,
            group_session,
            owner: self.parent.process,
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
                let place = queue.place + queue.behind.len();
                let holder = queue.holder.clone();
                pending.start = Some(start);
                self.pending.insert(id.clone(), pending);
                self.calls.retain(|call| call != id);
                self.tell_wait(id, place, &holder);
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
    fn refuse_own(
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
            let mut parts = kept.parts.iter().map(|(part, _)| part);
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

    /// The hold that this process keeps already.
    fn refuse_known(&self, adopting: &Adopting) -> Result<(), Failure> {
        let parts = self.holds.values().flat_map(|kept| &kept.parts);
        let known = parts.map(|(part, _)| part).find(|part| {
            let is_named = adopting.locks.iter().any(|(_, name)| name == part.name());
            is_named
                && is_same_place(part.session, adopting.session)
                && part.session.format.shows(&part.claim, &adopting.request_id)
        });
        match known {
            None => Ok(()),
            Some(part) => Err(already_held(
                part,
                "this serve keeps it for the program already",
            )),
        }
    }

    /// Has a request wait in its store.
    fn start(&mut self, id: &Id, start: Start) {
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
            self.crew.run(Box::new(work))
        } else if self.waiters >= WAITERS_MAX {
            Err(std::io::ErrorKind::WouldBlock.into())
        } else {
            Crew::run_apart(Box::new(work))
        };
        self.waiters += 1;
        if let Err(error) = begun {
            let failure = no_thread(&error);
            self.taken(id, Err((failure, Vec::new())));
        }
    }

    /// What an `acquire` came to.
    fn taken(&mut self, id: &Id, taken: Taken) {
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
                self.give(Whose::Unwanted(id.clone(), pending), parts.collect());
            }
            Ok(parts) => {
                let granted = self.keep(pending.caller, parts);
                self.answer(id, Ok(granted));
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
    fn refuse(&mut self, id: &Id, abandons: &[Id], failure: Failure) {
        self.answer(id, Err(failure));
        for abandon in abandons {
            self.answer(abandon, Ok(json!({ "abandoned": true })));
        }
    }

    /// Lets the next request for a lock wait in the store.
    fn call_next(&mut self, line: &LineKey) {
        let Some(queue) = self.lines.get_mut(line) else {
            return;
        };
        let next = queue.behind.pop_front();
        match next.and_then(|id| Some((id.clone(), self.pending.get_mut(&id)?.start.take()?))) {
            Some((id, start)) => self.start(&id, *start),
            None => {
                self.lines.remove(line);
            }
        }
    }

    /// Takes a request out of the line of this program; `None` if it does not stand there.
    fn leave_line(&mut self, id: &Id) -> Option<Box<Start>> {
        let pending = self.pending.get_mut(id)?;
        let start = pending.start.take()?;
        if let Some(queue) = pending
            .line
            .take()
            .and_then(|line| self.lines.get_mut(&line))
        {
            queue.behind.retain(|behind| behind != id);
        }
        Some(start)
    }

    fn abandon(&mut self, id: &Id, of: &Id) {
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

    /// Keeps a hold; answers with what the client is told of it.
    fn keep(&mut self, caller: Option<String>, parts: Vec<(Part, Schedule)>) -> Value {
        let (hold, now) = (self.next_hold, instant());
        self.next_hold += 1;
        let parts = parts.into_iter();
        let parts: Vec<_> = parts
            .map(|(part, schedule)| (Arc::new(part), schedule))
            .collect();
        let mut env = serde_json::Map::new();
        let mut held = holds::inherited_value();
        for (part, _) in &parts {
            let (token, folder) = (
                part.claim.token.unwrap_or_default(),
                &part.session.place.folder,
            );
            holds::extend(&mut held, token, folder, part.name());
            let (variable, place) = part.session.place.variable();
            env.insert(variable.to_owned(), place.to_string_lossy().into());
        }
        env.insert(holds::VARIABLE.to_owned(), held.into());
        let first = parts.first().map(|(part, _)| part);
        let request_id = first.map(|part| part.claim.holder.request_id.as_str().to_owned());
        let locks: Vec<Value> = parts.iter().map(|(part, _)| part.json()).collect();
        let kept = Kept {
            caller,
            parts,
            began: now,
            watches: Vec::new(),
            look: now + LOOK,
            settles: true,
            is_asked: false,
            is_lost: false,
            was_asked_to_stop: false,
            releasing: None,
        };
        let good_for_ms = kept.good_for_ms();
        self.holds.insert(hold, kept);
        json!({
            "hold": hold,
            "request_id": request_id,
            "locks": locks,
            "good_for_ms": good_for_ms,
            "env": env,
        })
    }

    /// Gives the locks of a hold back.
    fn give_back(&mut self, hold: u64) {
        if let Some(kept) = self.holds.get(&hold) {
            let parts = kept.parts.iter().map(|(part, _)| Arc::clone(part));
            let parts = parts.collect();
            self.give(Whose::Hold(hold), parts);
        }
    }

    /// Has a thread give locks back, the last one first.
    fn give(&mut self, whose: Whose, mut parts: Vec<Arc<Part>>) {
        parts.reverse();
        self.giving += 1;
        let teller = self.teller.clone();
        let given = parts.clone();
        let job = self.crew.run(Box::new(move || {
            let results = parts
                .iter()
                .map(|part| calls::give_back(part))
                .collect::<Vec<_>>();
            let all = parts.into_iter().zip(&results);
            let left = all
                .filter(|(_, result)| result.is_err())
                .map(|(part, _)| part);
            let left = left.collect();
            teller.tell(Event::GivenBack {
                whose,
                results,
                left,
            });
        }));
        if job.is_err() {
            // No thread can be made, for lack of memory say: it is tried again.
            self.giving -= 1;
            self.left.extend(given);
            self.again = instant() + AGAIN;
        }
    }

    fn given_back(
        &mut self,
        whose: Whose,
        results: Vec<Result<bool, Failure>>,
        left: Vec<Arc<Part>>,
    ) {
        self.giving = self.giving.saturating_sub(1);
        if !left.is_empty() {
            self.left.extend(left);
            self.again = instant() + AGAIN;
        }
        match whose {
            Whose::Left => {}
            Whose::Unwanted(id, pending) => self.refuse(&id, &pending.abandons, abandoned()),
            Whose::Hold(hold) => {
                let Some(kept) = self.holds.remove(&hold) else {
                    return;
                };
                self.output.forget(&About::Hold(hold));
                let were_ours = results.iter().all(|result| !matches!(result, Ok(false)));
                let failure = results.into_iter().find_map(Result::err);
                let result = match failure {
                    Some(failure) => Err(failure),
                    None if kept.is_lost || !were_ours => Err(lost(&kept)),
                    None => Ok(json!({ "released": true })),
                };
                for id in kept.releasing.into_iter().flatten() {
                    self.answer(&id, result.clone());
                }
            }
        }
    }

    /// Has a thread look at a hold, or renew what is due of it.
    fn look(&mut self, hold: u64, renews: bool, asked: Option<Id>) -> Result<(), Failure> {
        let Some(kept) = self.holds.get_mut(&hold) else {
            return Ok(());
        };
        let mut parts = Vec::with_capacity(kept.parts.len());
        for (index, (part, schedule)) in kept.parts.iter_mut().enumerate() {
            if renews {
                schedule.begin(part.session.clock.now().boot_ms);
            }
            parts.push((index, Arc::clone(part)));
        }
        kept.is_asked = true;
        self.run(move || Event::Seen {
            hold,
            seen: (parts.iter())
                .map(|(index, part)| (*index, calls::look(part, renews)))
                .collect(),
            renewed: renews,
            asked,
        })
    }

    /// What follows from a look at a hold.
    fn seen(&mut self, hold: u64, seen: Vec<(usize, Seen)>, renewed: bool, asked: Option<Id>) {
        let share = LOOK_SHARE * u32::try_from(self.holds.len()).unwrap_or(u32::MAX);
        let Some(kept) = self.holds.get_mut(&hold) else {
            // It was given back meanwhile.
            if let Some(id) = asked {
                self.answer(&id, Err(no_hold(hold)));
            }
            return;
        };
        kept.is_asked = false;
        kept.look = instant() + LOOK.max(share);
        let (mut why, mut by, mut failure, mut notes) = (None, None, None, Vec::new());
        for (index, seen) in seen {
            let Some((part, schedule)) = kept.parts.get_mut(index) else {
                continue;
            };
            by = by.or(seen.asked_by);
            match seen.renewal {
                Ok(Renewal::Lost) => {
                    schedule.lost();
                    why = why.or(Some("gone"));
                }
                Ok(Renewal::Renewed { .. }) if renewed => {
                    schedule.renewed();
                }
                Ok(Renewal::Renewed { .. }) => {}
                Err(error) => {
                    if renewed {
                        let failed = schedule.failed(part.session.clock.now().boot_ms);
                        if failed.is_event {
                            notes.push((Arc::clone(part), failed.consecutive, error.to_string()));
                        }
                        if failed.runs_out_ms.is_some() {
                            why = why.or(Some("no renewal has succeeded in time"));
                        }
                    }
                    failure = Some(part.session.store_failed(part.name(), error));
                }
            }
        }
        let was_lost = kept.is_lost;
        let is_releasing = kept.releasing.is_some();
        if let Some(why) = why {
            self.lose(hold, why);
        }
        let Some(kept) = self.holds.get_mut(&hold) else {
            return;
        };
        if let Some(by) = by
            && !kept.is_lost
            && !is_releasing
            && !std::mem::replace(&mut kept.was_asked_to_stop, true)
        {
            let params = json!({ "hold": hold, "by": by });
            self.output
                .say(&frames::notification("stop_requested", &params));
        }
        let Some(kept) = self.holds.get(&hold) else {
            return;
        };
        let good_for_ms = kept.good_for_ms();
        if let Some(id) = asked {
            let result = match failure {
                _ if kept.is_lost => Err(lost(kept)),
                Some(failure) => Err(failure),
                None => Ok(json!({ "hold": hold, "good_for_ms": good_for_ms })),
            };
            self.answer(&id, result);
        } else if renewed && failure.is_none() && !was_lost && !is_releasing && why.is_none() {
            let params = json!({ "hold": hold, "good_for_ms": good_for_ms });
            let frame = frames::notification("renewed", &params);
            self.output.update(About::Hold(hold), frame);
        }
        for (part, consecutive, error) in notes {
            let noting = Box::new(move || calls::note_failure(&part, consecutive, &error));
            let _ = self.crew.run(noting);
        }
    }

    /// Tells the client that it cannot rely on a hold any more, once. The claim stays until the client gives it
    /// back: while its work goes on, it keeps others out as well as it still can.
    fn lose(&mut self, hold: u64, reason: &str) {
        let Some(kept) = self.holds.get_mut(&hold) else {
            return;
        };
        // While it is given back, a look may find it gone because of that very release, whose own answer counts.
        if kept.releasing.is_some() || std::mem::replace(&mut kept.is_lost, true) {
            return;
        }
        kept.watches.clear();
        self.output.forget(&About::Hold(hold));
        let params = json!({ "hold": hold, "reason": reason });
        self.output.say(&frames::notification("lost", &params));
    }

    /// Does what is due.
    fn keep_time(&mut self) {
        let now = instant();
        let watched = self.holds.values().filter(|kept| !kept.watches.is_empty());
        let mut room = WATCHES_MAX.saturating_sub(watched.count());
        let (mut late, mut looks) = (Vec::new(), Vec::new());
        for (hold, kept) in &mut self.holds {
            if kept.releasing.is_some() {
                continue;
            }
            let mut renews = false;
            let mut is_late = false;
            for (part, schedule) in &mut kept.parts {
                let now_ms = part.session.clock.now().boot_ms;
                // Also after this process was stopped: before anything else is said of the hold.
                is_late |= !kept.is_lost && schedule.has_lapsed(now_ms);
                match schedule.due(now_ms) {
                    tenure_core::Due::Nothing => {}
                    tenure_core::Due::Renew => renews = true,
                    tenure_core::Due::Tell => {
                        is_late |= schedule.unanswered(now_ms).runs_out_ms.is_some();
                    }
                }
            }
            if is_late {
                late.push(*hold);
            }
            let mut was_touched = false;
            for watch in &kept.watches {
                was_touched |= os::read_all(watch) != os::Told::Nothing;
            }
            if kept.settles && now >= kept.began + SETTLE {
                kept.settles = false;
                if room > 0 && !kept.is_lost {
                    room -= 1;
                    kept.watch();
                    was_touched = true;
                }
            }
            let is_due = (now >= kept.look || was_touched) && !kept.is_lost;
            if !kept.is_asked && (renews || is_due) {
                looks.push((*hold, renews));
            } else if was_touched {
                kept.look = now;
            }
        }
        for hold in late {
            self.lose(hold, "no renewal has succeeded in time");
        }
        for (hold, renews) in looks {
            if self.look(hold, renews, None).is_err()
                && let Some(kept) = self.holds.get_mut(&hold)
            {
                kept.is_asked = false;
                kept.look = now + LOOK;
            }
        }
        if !self.left.is_empty() && now >= self.again {
            let left = std::mem::take(&mut self.left);
            self.give(Whose::Left, left);
        }
        self.end_waits(now);
    }

    /// Ends the waits in lines of this program whose time is over: they look at the lock once, and are refused with
    /// what they see.
    fn end_waits(&mut self, now: Instant) {
        let waiting = self.lines.values().flat_map(|queue| &queue.behind);
        let over: Vec<Id> = waiting
            .filter(|id| {
                let start = self
                    .pending
                    .get(*id)
                    .and_then(|pending| pending.start.as_ref());
                start.is_some_and(|start| start.deadline.is_some_and(|deadline| deadline <= now))
            })
            .cloned()
            .collect();
        for id in over {
            if let Some(start) = self.leave_line(&id) {
                self.start(&id, *start);
            }
        }
    }

    /// Takes in what threads have answered.
    fn hear(&mut self) {
        self.bell.hear();
        while let Ok(event) = self.events.try_recv() {
            match event {
                Event::Waiting { id, place, holder } => self.waiting(&id, place, holder),
                Event::Taken { id, taken } => self.taken(&id, taken),
                Event::Seen {
                    hold,
                    seen,
                    renewed,
                    asked,
                } => self.seen(hold, seen, renewed, asked),
                Event::GivenBack {
                    whose,
                    results,
                    left,
                } => self.given_back(whose, results, left),
                Event::Adopted {
                    id,
                    caller,
                    adopted,
                } => {
                    let adopted = adopted.map(|parts| self.keep(caller, parts));
                    self.answer(&id, adopted);
                }
                Event::Done { id, result } => self.answer(&id, result),
            }
        }
    }

    /// How the wait of a request stands, and of those behind it.
    fn waiting(&mut self, id: &Id, place: usize, holder: Value) {
        let Some(pending) = self.pending.get(id) else {
            return;
        };
        let line = pending.line.clone();
        self.tell_wait(id, place, &holder);
        let Some(queue) = line.and_then(|line| self.lines.get_mut(&line)) else {
            return;
        };
        (queue.place, queue.holder) = (place, holder.clone());
        let behind: Vec<Id> = queue.behind.iter().cloned().collect();
        for (index, id) in behind.iter().enumerate() {
            self.tell_wait(id, place + index + 1, &holder);
        }
    }

    fn tell_wait(&mut self, id: &Id, place: usize, holder: &Value) {
        let own: Value = serde_json::from_str(id).unwrap_or_default();
        let params = json!({ "id": own, "place": place, "holder": holder });
        let frame = frames::notification("waiting", &params);
        self.output.update(About::Request(id.clone()), frame);
    }

    /// Ends all waits. Gives all holds back, unless they are to stay the program's.
    fn finish(&mut self, end: &End) {
        let ids: Vec<Id> = self.pending.keys().cloned().collect();
        for id in ids {
            if self.leave_line(&id).is_some() {
                self.pending.remove(&id);
            } else if let Some(pending) = self.pending.get_mut(&id) {
                pending.is_abandoned = true;
                pending.cancel.cancel();
            }
        }
        if matches!(end, End::Over) {
            let holds: Vec<u64> = self.holds.keys().copied().collect();
            for hold in holds {
                let Some(kept) = self.holds.get_mut(&hold) else {
                    continue;
                };
                if kept.releasing.is_none() {
                    kept.releasing = Some(Vec::new());
                    self.give_back(hold);
                }
            }
        }
        let deadline = instant() + END_MAX;
        while (!self.pending.is_empty() || self.giving > 0 || !self.left.is_empty())
            && instant() < deadline
        {
            let fd = self.bell.descriptor();
            let fd = fd.as_fd();
            let nap = Timespec {
                tv_sec: 0,
                tv_nsec: 100_000_000,
            };
            let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&nap));
            self.hear();
            if !self.left.is_empty() && instant() >= self.again {
                let left = std::mem::take(&mut self.left);
                self.give(Whose::Left, left);
            }
        }
        self.output.flush();
        let stay = self.left.iter().map(|part| part.name().to_string());
        let stay: Vec<_> = stay.collect();
        if !stay.is_empty() {
            say(&format!(
                "{} could not be given back, and stays held until PID {} ends",
                stay.join(", "),
                self.parent.process.pid
            ));
        }
    }
}

impl Kept {
    /// Watches its files, where the store tells of changes. A record that is renewed is another file, so it is
    /// looked at from time to time instead.
    fn watch(&mut self) {
        for (part, _) in &self.parts {
            let store = &part.session.store;
            if store.is_remote() || store.publishes() {
                continue;
            }
            let notices = store.notices(&*part.handle);
            self.watches
                .extend(notices.map(|notices| notices.descriptor));
        }
    }
}

struct Woken {
    /// There is something to read, or the end.
    reads: bool,
    /// The other end of stdin is closed.
    is_closed: bool,
}

fn is_same_place(one: &Session, other: &Session) -> bool {
    one.place.folder == other.place.folder
}

fn no_hold(hold: u64) -> Failure {
    Failure::new(
        Exit::NotFound,
        "NO_SUCH_HOLD",
        format!("this serve has no hold {hold}; it was given back, or another serve granted it"),
    )
}

fn lost(kept: &Kept) -> Failure {
    let names = kept.parts.iter().map(|(part, _)| part.name().as_str());
    let names: Vec<_> = names.collect();
    let name = names.first().copied().unwrap_or_default();
    Failure::new(
        Exit::LockLost,
        "LOCK_LOST",
        format!("{} was lost while the work went on", names.join(", ")),
    )
    .with_context(json!({ "name": name }))
}

fn already_held(part: &Part, why: &str) -> Failure {
    let name = part.name();
    Failure::new(
        Exit::Deadlock,
        "ALREADY_HELD",
        format!("{name} is held already: {why}"),
    )
    .with_context(json!({ "name": name.as_str(), "token": part.claim.token }))
}

fn abandoned() -> Failure {
    Failure::new(
        Exit::General,
        "ABANDONED",
        "the request was abandoned, and nothing is held for it",
    )
}

fn too_many(why: &str) -> Failure {
    let mut failure = Failure::new(Exit::General, "TOO_MANY_REQUESTS", why);
    failure.retry = Some(Retry {
        after_ms: 1_000,
        strategy: "exponential_backoff",
    });
    failure
}

fn no_thread(error: &std::io::Error) -> Failure {
    match error.kind() {
        std::io::ErrorKind::WouldBlock => {
            too_many(&format!("requests wait for {WAITERS_MAX} locks already"))
        }
        _ => too_many(&format!("no thread could be started: {error}")),
    }
}
