//! `serve`: holds locks for the program that started it, which speaks to it by JSON-RPC on stdin and stdout.
//!
//! **The holds belong to the program.** Each claim names it as its process and as its command, and this process keeps
//! the claim's liveness lock beside that. The claim counts while either lives. So the end of this process, however it
//! comes, frees nothing: the program goes on working under its holds, and a new `serve` adopts them. Holds end when the
//! program says so, when it closes our stdin, or with its own end.
//!
//! A single thread reads, writes, keeps time and has all state. In a folder of this machine that thread takes a free lock and gives
//! one back itself, which takes moments, and writes the audit's lines after the answer. What may block is done by the threads of
//! a pool, which answer with events: a request behind another caller, or for a store over a network. So a parent that does
//! not read, a slow store and a long wait delay nothing else.
//!
//! `frames` reads messages, `output` keeps what a parent does not read yet, and `parent` notices its end. `calls` carries
//! out what it asks, `holds` looks after its holds, `waits` has requests without an answer, and `sleep` waits for a byte.
//!
//! `docs/clients.md` is the protocol, for people who write clients.

mod calls;
mod frames;
mod holds;
mod kept;
mod output;
mod parent;
mod waits;

use super::session::Session;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::say;
use crate::request::ServeArgs;
use crate::request::serve::Usual;
use crate::request::{Place, Surroundings};
use crate::signals;
use calls::{AcquireOutcome, HoldPart, Leaves, LockLook};
use frames::{Frame, Id, LINE_MAX, Method, PROTOCOL};
use holds::{Adoption, ServedHold, lost, no_hold};
use kept::PlaceOfHolds;
use output::{About, Output};
use parent::Parent;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tenure_engine::keep::releases::Releases;
use tenure_engine::keep::{Life, News};
use tenure_engine::line::Pool;
use tenure_os::brief::{briefly, may_sleep};
use tenure_os::clock::{instant, nap};
use tenure_os::os::{self, Bell, Ringer};
use tenure_store::file::ThreadSleeper;
use waits::{LineKey, Pending, TELL, Waits, no_thread_for};

/// How many other requests are carried out at a time, before no further one is read.
const CALLS_MAX: usize = 1_000;

/// How many places one program may have locks in.
const PLACES_MAX: usize = 1_000;

/// How often the parent is looked at where the system does not tell of its end.
const PARENT_LOOK: Duration = Duration::from_millis(250);

/// How long the end of this process may take.
const END_MAX: Duration = Duration::from_secs(30);

/// How often the end of this process looks whether the audit has all lines.
const LINES_LOOK: Duration = Duration::from_millis(2);

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
    Taken { id: Id, taken: AcquireOutcome },
    /// What the keeper has found of a lock of a hold.
    Kept {
        hold: u64,
        part: Arc<HoldPart>,
        news: News,
        is_renewed: bool,
        /// The request that asks the program to stop.
        by: Option<String>,
        /// How a renewal has failed.
        error: Option<String>,
    },
    /// How the locks of a hold stand, which the program wants to know.
    Verified {
        id: Id,
        hold: u64,
        seen: Vec<(Arc<HoldPart>, LockLook)>,
    },
    /// Locks were given back, or could not be.
    GivenBack {
        whose: Whose,
        result: Result<bool, Failure>,
    },
    /// A hold was taken over, or not.
    Adopted {
        id: Id,
        caller: Option<String>,
        adopted: Result<Vec<(HoldPart, Life)>, Failure>,
    },
    /// A request was carried out.
    Done {
        id: Id,
        result: Result<Value, Failure>,
    },
}

/// The locks that were given back.
enum Whose {
    Hold(u64),
    /// Locks of a request that is refused. It is answered so now, and so are the requests that abandoned it.
    Refused(Id, Vec<Id>, Box<Failure>),
}

/// Where threads answer.
#[derive(Clone)]
struct Teller {
    events: Sender<Event>,
    bell: Arc<Ringer>,
}

impl Teller {
    fn tell(&self, event: Event) {
        // The thread that hears looks by itself after what it did briefly.
        if self.events.send(event).is_ok() && may_sleep() {
            self.bell.ring();
        }
    }
}

struct Serve {
    usual: Usual,
    parent: Parent,
    output: Output,
    input: Vec<u8>,
    /// The threads for what may block beside waits.
    calling: Pool,
    teller: Teller,
    events: Receiver<Event>,
    bell: Bell,
    places: BTreeMap<(String, bool), (&'static Session, Arc<PlaceOfHolds>)>,
    folders: Arc<PlaceOfHolds>,
    pending: BTreeMap<Id, Pending>,
    waits: Arc<Waits>,
    /// What was last seen of the locks with a line.
    seen: BTreeMap<LineKey, waits::LineState>,
    /// The other requests without an answer.
    calls: Vec<Id>,
    holds: BTreeMap<u64, ServedHold>,
    /// The number of the next hold; no other serve of this parent uses it.
    next_hold: u64,
    /// What is given back, and is tried again.
    releases: Releases,
    /// The locks of these are still there.
    leaving: Vec<Weak<Leaves>>,
    /// How many of them have no answer yet.
    giving: usize,
    /// The adoptions without an answer.
    adopting: Vec<Adoption>,
    /// Whether this process ends, and begins nothing more.
    is_ending: bool,
    /// The program is done with all its holds: what it is still granted is given back at once.
    is_over: bool,
    is_greeted: bool,
    /// How many messages without an id came.
    notified: u64,
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
            calling: Pool::new(false),
            teller: Teller {
                events: sender,
                bell: Arc::new(ringer),
            },
            events,
            bell,
            places: BTreeMap::new(),
            folders: Arc::new(PlaceOfHolds::of_folders()),
            pending: BTreeMap::new(),
            waits: Arc::default(),
            seen: BTreeMap::new(),
            calls: Vec::new(),
            holds: BTreeMap::new(),
            next_hold: first_hold(),
            releases: Releases::default(),
            leaving: Vec::new(),
            giving: 0,
            adopting: Vec::new(),
            is_ending: false,
            is_over: false,
            is_greeted: false,
            notified: 0,
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
            self.hear();
            if woken.is_closed && !woken.reads {
                return End::Over;
            }
            self.keep_time();
            self.output.flush();
            self.log();
            if woken.is_unread || self.output.is_closed() {
                return self.unread();
            }
        }
    }

    /// The program has closed our stdout, and learns nothing any more. If it closes our stdin as well, it is done.
    fn unread(&self) -> End {
        let stdin = rustix::stdio::stdin();
        let wait = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        // Nothing but the end of stdin is waited for. Some clients close stdout first.
        let mut polled = [PollFd::new(&stdin, PollFlags::empty())];
        let ended = poll(&mut polled, Some(&wait)).is_ok_and(|ready| ready > 0);
        if ended || self.parent.is_gone() {
            return End::Over;
        }
        End::Broken("stdout is closed; the program's holds stay its own".to_owned())
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
        let writing = if self.output.is_empty() {
            PollFlags::empty()
        } else {
            PollFlags::OUT
        };
        let mut fds = vec![
            PollFd::new(&stdin, reading),
            PollFd::new(&bell, PollFlags::IN),
            PollFd::new(&stdout, writing),
        ];
        let handle = self.parent.handle();
        fds.extend(
            handle
                .as_ref()
                .map(|handle| PollFd::new(handle, PollFlags::IN)),
        );
        let nap = Timespec {
            tv_sec: i64::try_from(nap.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: nap.subsec_nanos().into(),
        };
        // A failure is a signal, or a lack of memory for a moment.
        let _ = poll(&mut fds, Some(&nap));
        let seen = fds.first().map_or(PollFlags::empty(), PollFd::revents);
        if fds.get(1).is_some_and(|bell| !bell.revents().is_empty()) {
            self.bell.hear();
        }
        let closed = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
        Woken {
            reads: may_read && !seen.is_empty(),
            is_closed: seen.intersects(closed),
            is_unread: fds
                .get(2)
                .is_some_and(|stdout| stdout.revents().intersects(closed)),
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
        let stale = self.seen.values().filter(|seen| seen.is_stale);
        let told = stale.filter_map(|seen| seen.told);
        told.map(|told| until(told + TELL)).fold(nap, Duration::min)
    }

    /// Reads what there is. False at the end of stdin.
    fn read(&mut self) -> Result<bool, End> {
        let mut buffer = [0; 1 << 14];
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
                if rest.len() > LINE_MAX {
                    broken = Some(frames::garbage("the line is longer than 1 MiB"));
                }
                break;
            };
            let (line, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or_default();
            if line.len() > LINE_MAX {
                broken = Some(frames::garbage("the line is longer than 1 MiB"));
                break;
            }
            match frames::read(line) {
                Frame::Request(request) => self.carry_out(&request.id, request.method),
                Frame::Refused(answer) => self.output.say(&answer),
                Frame::Notified(method) => {
                    self.notified += 1;
                    self.carry_out(&frames::silent(self.notified), method);
                }
                Frame::Ignored => {}
                garbage @ Frame::Garbage(_) => {
                    broken = Some(garbage);
                    break;
                }
            }
        }
        self.input = rest.to_vec();
        match broken {
            Some(Frame::Garbage(answer)) => {
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
        if !frames::is_silent(id) {
            self.output.say(&frames::answer(id, result));
        }
    }

    fn carry_out(&mut self, id: &Id, method: Method) {
        if self.pending.contains_key(id) || self.calls.contains(id) {
            let why = "id: a request with this id has no answer yet";
            return self
                .output
                .say(&frames::answer(id, Err(Failure::bad_arguments(why))));
        }
        if !self.is_greeted && !matches!(method, Method::Hello(_)) {
            let why = "begin with hello, which says the protocol";
            return self.answer(id, Err(Failure::bad_arguments(why)));
        }
        self.calls.push(id.clone());
        if let Err(failure) = self.begin_call(id, method) {
            self.answer(id, Err(failure));
        }
        if let Some(warning) = self.usual.around.warning() {
            say(warning);
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
                let order = params.locks.into_iter().map(|lock| lock.name);
                self.acquire(id, run, order.collect(), params.caller)?;
            }
            Method::Adopt(adopt) => {
                self.adopt(id, adopt)?;
            }
            Method::Release(of) => {
                let kept = self
                    .holds
                    .get_mut(&of.hold)
                    .ok_or_else(|| no_hold(of.hold))?;
                if let Some(asking) = &mut kept.releasing {
                    asking.push(id.clone());
                } else {
                    kept.releases(vec![id.clone()]);
                    self.give_back(of.hold);
                }
            }
            Method::Verify(of) => {
                let kept = self.holds.get(&of.hold).ok_or_else(|| no_hold(of.hold))?;
                if kept.is_lost {
                    return Err(lost(kept));
                }
                self.verify(of.hold, id)?;
            }
            Method::Abandon(of) => self.abandon(id, &of),
            Method::Check(check) => {
                let meant = self.usual.check(&check)?;
                let name = meant
                    .name
                    .ok_or_else(|| Failure::bad_arguments("name: name a lock"))?;
                let plain = || meant.place.plain_mode(&name);
                let mode = meant.mode.unwrap_or_else(plain);
                let session = self.session(meant.place, false)?;
                let own = self.own(session);
                self.done(id, move || calls::check(session, &name, mode, &own))?;
            }
            Method::List(list) => {
                let meant = self.usual.list(&list.place(), list.all)?;
                let (session, all) = (self.session(meant.place, false)?, meant.all);
                let own = self.own(session);
                self.done(id, move || calls::list(session, all, &own))?;
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
        if hello.protocol.as_u64() != Some(PROTOCOL) {
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
        // A process whose parent has ended before this one looked has PID 1 as its parent.
        if parent == 1 && hello.pid.is_none() {
            return Err(Failure::new(
                Exit::Conflict,
                "NOT_THE_PARENT",
                "the parent of serve is PID 1, to which the system also gives a process whose parent has ended; if \
                 the client is PID 1, write pid: 1",
            )
            .with_context(json!({ "client": null, "parent": parent })));
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
        if let Some((session, _)) = self.places.get(&key) {
            return Ok(session);
        }
        if self.places.len() >= PLACES_MAX {
            return Err(Failure::bad_arguments(format!(
                "one serve has locks in at most {PLACES_MAX} places; start another one"
            )));
        }
        // Holds name it, and it is of use for as long as this process lives.
        let sleeper = Box::new(ThreadSleeper);
        let mut session = Session::at(place, sleeper)?;
        session.audit_writer.serves(&self.parent.command);
        let session: &'static Session = Box::leak(Box::new(session));
        let place = if session.store.is_remote() {
            Arc::new(PlaceOfHolds::of_cluster())
        } else {
            Arc::clone(&self.folders)
        };
        place.add(session);
        self.places.insert(key, (session, place));
        Ok(session)
    }

    /// The program's own holds in a place.
    fn own(&self, session: &Session) -> calls::Own {
        let parts = self.holds.values().flat_map(|kept| &kept.parts);
        let own = parts.filter(|kept| is_same_place(kept.part.session, session));
        own.filter_map(|kept| Some((kept.part.name().clone(), kept.part.claim.token?)))
            .collect()
    }

    /// Has a thread do it.
    fn has_done(&self, work: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
        let room = self.calling.reserve();
        let room = room.map_err(|error| no_thread_for(&error))?;
        room.spawn(async move { work() });
        Ok(())
    }

    /// Has a thread do it and tell of it.
    fn run(&self, work: impl FnOnce() -> Event + Send + 'static) -> Result<(), Failure> {
        let teller = self.teller.clone();
        self.has_done(move || teller.tell(work()))
    }

    fn done(
        &self,
        id: &Id,
        work: impl FnOnce() -> Result<Value, Failure> + Send + 'static,
    ) -> Result<(), Failure> {
        let id = id.clone();
        self.run(move || Event::Done { id, result: work() })
    }

    /// Takes in what threads have answered.
    fn hear(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            match event {
                Event::Waiting { id, place, holder } => self.waiting(&id, place, &holder),
                Event::Taken { id, taken } => self.taken(&id, taken),
                Event::Kept {
                    hold,
                    part,
                    news,
                    is_renewed,
                    by,
                    error,
                } => {
                    let is_kept = self.holds.get(&hold);
                    let is_kept = is_kept.is_some_and(|kept| kept.releasing.is_none());
                    let failed = news.failed.filter(|failed| failed.is_event && is_kept);
                    if let Some(failed) = failed {
                        let error = error.unwrap_or_else(|| "no answer yet".to_owned());
                        self.note_failure(Arc::clone(&part), failed.consecutive, error);
                    }
                    self.found((hold, &part), &news, by.as_deref(), is_renewed);
                }
                Event::Verified { id, hold, seen } => self.verified(&id, hold, seen),
                Event::GivenBack { whose, result } => {
                    self.giving = self.giving.saturating_sub(1);
                    self.given_back(whose, result);
                }
                Event::Adopted {
                    id,
                    caller,
                    adopted,
                } => self.adopted(&id, caller, adopted),
                Event::Done { id, result } => self.answer(&id, result),
            }
        }
    }

    /// Writes the lines of the audit that were held back. A line that another process keeps from being written is left to a
    /// thread. Answers whether there is such a one.
    fn log(&self) -> bool {
        let mut is_behind = false;
        for (session, _) in self.places.values() {
            let writer = &session.audit_writer;
            let is_written = briefly(|| writer.catch_up());
            if !is_written && (self.is_ending || self.has_done(|| _ = writer.catch_up()).is_err()) {
                writer.catch_up();
            }
            if let Some(why) = writer.why_unwritten() {
                say(&why);
            }
            is_behind |= writer.is_behind();
        }
        is_behind
    }

    /// Ends all waits. Gives all holds back, unless they are to stay the program's.
    fn finish(&mut self, end: &End) {
        self.is_ending = true;
        let ids: Vec<Id> = self.pending.keys().cloned().collect();
        for id in ids {
            if self.leave_line(&id) {
                self.pending.remove(&id);
            } else if let Some(pending) = self.pending.get_mut(&id) {
                pending.is_abandoned = true;
                pending.cancel.cancel();
            }
        }
        if matches!(end, End::Over) {
            self.is_over = true;
            let holds: Vec<u64> = self.holds.keys().copied().collect();
            for hold in holds {
                let Some(kept) = self.holds.get_mut(&hold) else {
                    continue;
                };
                if kept.releasing.is_none() {
                    kept.releases(Vec::new());
                    self.give_back(hold);
                }
            }
        }
        let deadline = instant() + END_MAX;
        while (!self.pending.is_empty()
            || !self.adopting.is_empty()
            || self.giving > 0
            || !self.left().is_empty())
            && instant() < deadline
        {
            let fd = self.bell.descriptor();
            let fd = fd.as_fd();
            let nap = Timespec {
                tv_sec: 0,
                tv_nsec: 100_000_000,
            };
            let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&nap));
            self.bell.hear();
            self.hear();
        }
        self.output.flush();
        while self.log() && instant() < deadline {
            nap(LINES_LOOK);
        }
        let stay = self.left();
        if !stay.is_empty() {
            say(&format!(
                "{} could not be given back, and stays held until PID {} ends",
                stay.join(", "),
                self.parent.process.pid
            ));
        }
    }
}

struct Woken {
    /// Whether there is something to read, or the end.
    reads: bool,
    /// The other end of stdin is closed.
    is_closed: bool,
    /// The other end of stdout is closed.
    is_unread: bool,
}

/// The first number of a hold: the microseconds since the boot.
///
/// An earlier serve of this parent ran on the same boot and began with a lower number. It gave numbers more slowly than
/// the clock counts, so it never came as far as this one begins. A client that names a hold of that serve here is told
/// `NO_SUCH_HOLD`; it cannot release another hold. The number stays below 2^53, which every JSON reader keeps exact.
fn first_hold() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let micros = u64::try_from(now.tv_nsec).unwrap_or_default() / 1_000;
    (seconds.saturating_mul(1_000_000).saturating_add(micros) % (1 << 52)) + 1
}

fn is_same_place(one: &Session, other: &Session) -> bool {
    one.place.folder == other.place.folder
}

fn abandoned() -> Failure {
    Failure::new(
        Exit::General,
        "ABANDONED",
        "the request was abandoned, and nothing is held for it",
    )
}

fn already_held(part: &HoldPart, why: &str) -> Failure {
    let name = part.name();
    Failure::new(
        Exit::Deadlock,
        "ALREADY_HELD",
        format!("{name} is held already: {why}"),
    )
    .with_context(json!({ "name": name.as_str(), "token": part.claim.token }))
}
