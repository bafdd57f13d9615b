//! Folds the events of an audit into holds, waits and incidents: in one pass, in the order in which [`Events`](super::Events)
//! reads them.
//!
//! Lines come late, or not at all. A holder that is killed writes no end, and the next holder's grant may stand before the
//! line of the release that made room for it. So a hold that another grant has passed keeps waiting for its own end, and
//! counts as ended at that grant if none comes. A hold whose beginning was rotated away begins where its later events say, or
//! nowhere. Of each lock only holds without an end are kept, and the last few that have one.
//!
//! Callers decide which passages they show, and add them up.

use super::text::at_ms;
use super::{Entry, EventName, StealReason};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, VecDeque};

/// What the grant of a free lock may take. A caller that waited shorter than this, and behind nobody, did not wait.
const MOMENT_MS: u64 = 20;

/// How many holds of a lock are remembered that ended, or that another grant has passed.
const REMEMBERED: usize = 16;

/// How many holds of a lock are kept that have no end. Of more, the first one is told as it stands.
const OPEN_MAX: usize = 4_096;

/// A caller as an event names it. Text that the event does not have is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Participant {
    /// The request id.
    pub request_id: String,
    /// On whose behalf the request acts.
    pub actor: String,
    /// The host.
    pub host: String,
    /// The process.
    pub pid: Option<u64>,
    /// The key of the agent in whose name the request acts.
    pub agent: String,
}

impl Participant {
    /// The caller that acts in an event.
    pub fn of(entry: &Entry) -> Self {
        Self {
            request_id: entry.request_id().to_owned(),
            agent: entry.agent().to_owned(),
            ..Self::named(entry.fields())
        }
    }

    /// A caller that an event names beside the one that acts.
    fn met(fields: Option<&Value>) -> Option<Self> {
        fields?.as_object().map(Self::named)
    }

    /// A holder that an event names by its request.
    fn met_by_request(fields: Option<&Value>) -> Option<Self> {
        Self::met(fields).filter(|met| !met.request_id.is_empty())
    }

    fn named(fields: &Map<String, Value>) -> Self {
        let text = |key: &str| text(fields, key).unwrap_or_default().to_owned();
        let agent = fields.get("agent").and_then(|agent| agent.get("key"));
        Self {
            request_id: text("request_id"),
            actor: text("actor"),
            host: match text("host") {
                host if host.is_empty() => text("host_id"),
                host => host,
            },
            pid: number(fields, "pid"),
            agent: agent.and_then(Value::as_str).unwrap_or_default().to_owned(),
        }
    }
}

/// How the beginning of a hold is known; instants are in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldBegin {
    /// The grant was recorded.
    Recorded(u64),
    /// A later event says when it began.
    Inferred(u64),
    /// The hold began before the events that are left.
    Unknown,
}

impl HoldBegin {
    fn inferred(since_ms: Option<u64>) -> Self {
        since_ms.map_or(Self::Unknown, Self::Inferred)
    }

    fn since_ms(self) -> Option<u64> {
        match self {
            Self::Recorded(since) | Self::Inferred(since) => Some(since),
            Self::Unknown => None,
        }
    }
}

/// How a hold ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HoldOutcome {
    /// No event ends it.
    Open,
    /// The holder released it.
    Released,
    /// The holder released it after work that failed.
    Failed,
    /// Another caller released it or ended its work.
    Forced,
    /// The holder gave it up because another caller asked for that.
    Superseded,
    /// A holder ended without releasing it, or stopped renewing it, and the next caller found it so.
    Left,
    /// Another caller took it over by force, or replaced a record that could not be read.
    TakenOver,
    /// The holder found that the lock was not its own any more.
    Lost,
    /// Another caller had the lock next, and no event says what became of this hold.
    Unknown,
}

impl HoldOutcome {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Open,
        Self::Released,
        Self::Failed,
        Self::Forced,
        Self::Superseded,
        Self::Left,
        Self::TakenOver,
        Self::Lost,
        Self::Unknown,
    ];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Released => "released",
            Self::Failed => "failed",
            Self::Forced => "forced",
            Self::Superseded => "superseded",
            Self::Left => "left",
            Self::TakenOver => "taken_over",
            Self::Lost => "lost",
            Self::Unknown => "unknown",
        }
    }
}

/// A hold of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastHold {
    /// The lock.
    pub lock: String,
    /// The path that the lock stands for, if it is one's.
    pub path: Option<String>,
    /// The holder.
    pub by: Participant,
    /// What for, unless that is only a command line.
    pub why: Option<String>,
    /// The name of the program that worked under the lock.
    pub command: Option<String>,
    /// The fencing token.
    pub token: Option<u64>,
    /// `shared` or `slots`; `None` for an exclusive hold, and for one of which that is not known.
    pub mode: Option<String>,
    /// The number of its slot.
    pub slot: Option<u64>,
    /// The beginning.
    pub begin: HoldBegin,
    /// The end; `None` for one that is open.
    pub until_ms: Option<u64>,
    /// How long its holder waited for it.
    pub waited_ms: Option<u64>,
    /// How it ended.
    pub outcome: HoldOutcome,
    /// Duration of the hold by a clock that nobody sets, where its end says so.
    told_ms: Option<u64>,
}

impl PastHold {
    fn new(lock: &str, by: Participant, begin: HoldBegin) -> Self {
        Self {
            lock: lock.to_owned(),
            path: None,
            by,
            why: None,
            command: None,
            token: None,
            mode: None,
            slot: None,
            begin,
            until_ms: None,
            waited_ms: None,
            outcome: HoldOutcome::Open,
            told_ms: None,
        }
    }

    /// When it began, as far as that is known.
    pub fn since_ms(&self) -> Option<u64> {
        self.begin.since_ms()
    }

    /// How long it took. `None` while it is open, and where its beginning is not known.
    pub fn held_ms(&self) -> Option<u64> {
        self.told_ms
            .or_else(|| Some(self.until_ms?.saturating_sub(self.since_ms()?)))
    }
}

/// How a wait ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitOutcome {
    /// The caller got the lock.
    Granted,
    /// The caller did not get it, and its answer had this code.
    Refused(String),
    /// The run was skipped.
    Skipped,
    /// The caller gave up its place in line because another one asked for that.
    Superseded,
}

impl WaitOutcome {
    /// The word for it.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Refused(_) => "refused",
            Self::Skipped => "skipped",
            Self::Superseded => "superseded",
        }
    }
}

/// A wait for a lock. A caller that was refused at once has waited for no time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastWait {
    /// The lock by which the caller is known: of a skipped run its first one.
    pub lock: String,
    /// The lock that the caller waited for.
    pub held_lock: String,
    /// The path that the lock stands for, if it is one's.
    pub path: Option<String>,
    /// The waiter.
    pub by: Participant,
    /// What for, unless that is only a command line.
    pub why: Option<String>,
    /// The beginning, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// The end.
    pub until_ms: u64,
    /// The holder: of a granted wait when it began, else when it ended.
    pub behind: Option<Participant>,
    /// How many others waited before it.
    pub ahead: Option<u64>,
    /// How it ended.
    pub outcome: WaitOutcome,
}

impl PastWait {
    /// How long it took.
    pub fn waited_ms(&self) -> u64 {
        self.until_ms.saturating_sub(self.since_ms)
    }
}

/// An event that breaks, or could break, the course of a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incident {
    /// When, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// What happened.
    pub event: EventName,
    /// The lock.
    pub lock: String,
    /// The caller that acts.
    pub by: Participant,
    /// The holders or waiters that suffer it, or that asked for it.
    pub whom: Vec<Participant>,
    /// The event's own word for why: a reason, a kind, an error.
    pub reason: String,
}

impl Incident {
    /// Whether the caller only took what a holder had left that was gone: nobody used force.
    pub fn is_unforced_takeover(&self) -> bool {
        is_unforced(self.event, &self.reason)
    }
}

fn is_unforced(event: EventName, reason: &str) -> bool {
    event == EventName::LockStolen && reason == StealReason::StaleLock.as_str()
}

/// A part of the history of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Passage {
    /// A hold.
    Hold(PastHold),
    /// A wait.
    Wait(PastWait),
    /// A takeover, a loss, a request to stop, a failure.
    Incident(Incident),
}

/// A hold that has no end yet.
#[derive(Debug)]
struct OpenHold {
    hold: PastHold,
    /// When a grant passed it.
    passed_ms: Option<u64>,
    /// When a refused caller met it last, where nothing else is known of it.
    met_ms: Option<u64>,
    /// Another caller asked for it.
    is_asked_for: bool,
}

impl OpenHold {
    fn new(hold: PastHold) -> Self {
        Self {
            hold,
            passed_ms: None,
            met_ms: None,
            is_asked_for: false,
        }
    }

    /// The hold as it is told where its end is not recorded.
    fn left(mut self) -> PastHold {
        if let Some(until) = self.passed_ms.or(self.met_ms) {
            self.hold.end(until, HoldOutcome::Unknown);
        }
        self.hold
    }

    /// Whether no other hold can stand beside this one and the other.
    fn gives_way_to(&self, other: &PastHold) -> bool {
        let (own, others) = (&self.hold.mode, &other.mode);
        own.is_none() || others.is_none() || own != others || {
            self.hold.slot.is_some() && self.hold.slot == other.slot
        }
    }
}

impl PastHold {
    /// Ends it. A clock that was set back does not end it before its beginning.
    fn end(&mut self, at_ms: u64, outcome: HoldOutcome) {
        self.until_ms = Some(at_ms.max(self.since_ms().unwrap_or(at_ms)));
        self.outcome = outcome;
    }
}

/// What is remembered of a hold that ended.
#[derive(Debug)]
struct EndedHold {
    request_id: String,
    token: Option<u64>,
    until_ms: u64,
    /// The end was read, and no grant before it.
    lacks_grant: bool,
}

/// What is known of a lock so far.
#[derive(Debug, Default)]
struct LockPast {
    /// Holds without an end, in the order of their grants.
    open: Vec<OpenHold>,
    ended: VecDeque<EndedHold>,
}

impl LockPast {
    /// The open hold of a request, or of a token if one is known. Of several the one that began nearest to `since_ms`.
    fn find(&self, id: &str, token: Option<u64>, since_ms: Option<u64>) -> Option<usize> {
        let is_it = |hold: &PastHold| match (token, hold.token) {
            (Some(token), Some(of_hold)) => token == of_hold,
            (_, _) => hold.by.request_id == id,
        };
        let distance = |hold: &PastHold| match (since_ms, hold.since_ms()) {
            (Some(since), Some(of_hold)) => since.abs_diff(of_hold),
            (_, _) => 0,
        };
        let found = self.open.iter().enumerate();
        let found = found.filter(|(_, open)| is_it(&open.hold));
        let nearest = found.min_by_key(|(_, open)| distance(&open.hold));
        nearest.map(|(at, _)| at)
    }

    /// Whether the end of this hold was read already.
    fn has_ended(&self, id: &str, token: Option<u64>, at_ms: u64) -> bool {
        self.ended.iter().any(|ended| match (token, ended.token) {
            (Some(token), Some(of_hold)) => token == of_hold,
            (_, _) => ended.request_id == id && ended.until_ms >= at_ms,
        })
    }

    /// Whether an end of this hold would be the first that is read.
    fn is_news(&self, id: &str, token: Option<u64>, since_ms: u64) -> bool {
        self.find(id, token, None).is_some() || !self.has_ended(id, token, since_ms)
    }

    /// Whether an event is the first that is read of the end of an owner's hold. One that names no owner ends the only hold.
    fn is_end_of(&self, whose: Option<&Participant>, since_ms: u64) -> bool {
        match whose {
            Some(whose) => self.is_news(&whose.request_id, None, since_ms),
            None => self.open.len() == 1,
        }
    }

    /// Ends a hold, and remembers that.
    fn end(&mut self, mut hold: PastHold, at_ms: u64, outcome: HoldOutcome) -> PastHold {
        hold.end(at_ms, outcome);
        self.remember(&hold);
        hold
    }

    fn remember(&mut self, hold: &PastHold) {
        self.ended.push_back(EndedHold {
            request_id: hold.by.request_id.clone(),
            token: hold.token,
            until_ms: hold.until_ms.unwrap_or_default(),
            lacks_grant: !matches!(hold.begin, HoldBegin::Recorded(_)),
        });
        if self.ended.len() > REMEMBERED {
            self.ended.pop_front();
        }
    }
}

/// The fold of events into passages.
///
/// # Examples
/// ```
/// use tenure_engine::audit::{Entry, HoldOutcome, History, Passage};
///
/// let mut history = History::default();
/// let mut told = Vec::new();
/// for line in [
///     r#"{"event":"lock_acquired","lock_name":"deploy","request_id":"a","timestamp":"2026-02-07T10:00:00Z"}"#,
///     r#"{"event":"lock_released","lock_name":"deploy","request_id":"a","timestamp":"2026-02-07T10:00:05Z"}"#,
/// ] {
///     let entry = Entry::parse(line.as_bytes()).expect("an event");
///     history.take(&entry, |passage| told.push(passage));
/// }
/// let Some(Passage::Hold(hold)) = told.first() else { panic!("a hold") };
/// assert_eq!((hold.held_ms(), hold.outcome), (Some(5_000), HoldOutcome::Released));
/// assert_eq!(history.into_open().count(), 0);
/// ```
#[derive(Debug, Default)]
pub struct History {
    locks: BTreeMap<String, LockPast>,
    times_ms: Option<(u64, u64)>,
}

impl History {
    /// The earliest and the latest instant of the events so far.
    pub fn times_ms(&self) -> Option<(u64, u64)> {
        self.times_ms
    }

    /// Takes the next event, and tells what has ended with it.
    pub fn take(&mut self, entry: &Entry, mut tell: impl FnMut(Passage)) {
        let at_ms = entry.at_ms();
        let (first, last) = self.times_ms.unwrap_or((at_ms, at_ms));
        self.times_ms = Some((first.min(at_ms), last.max(at_ms)));
        let Some(event) = EventName::from_word(entry.event()) else {
            return;
        };
        let event = Happened {
            entry,
            fields: entry.fields(),
            at_ms,
            event,
        };
        let name = event.lock();
        let lock = match self.locks.get_mut(name) {
            Some(lock) => lock,
            None => self.locks.entry(name.to_owned()).or_default(),
        };
        match event.event {
            EventName::LockAcquired => lock.acquired(&event, &mut tell),
            EventName::LockReleased => lock.released(&event, &mut tell),
            EventName::LockStolen => {
                let outcome = if is_unforced(event.event, event.text("reason").unwrap_or_default())
                {
                    HoldOutcome::Left
                } else {
                    HoldOutcome::TakenOver
                };
                lock.ended_by_another(&event, "previous_lock", outcome, &mut tell);
            }
            EventName::LockLost => lock.lost(&event, &mut tell),
            EventName::LockSuperseded => lock.superseded(&event, &mut tell),
            EventName::LockSkipped | EventName::LockRefused => lock.refused(&event, &mut tell),
            EventName::OrphanEnded => {
                lock.ended_by_another(&event, "holder", HoldOutcome::Forced, &mut tell);
            }
            EventName::LockCancelled
            | EventName::LockReleaseFailed
            | EventName::HeartbeatFailed => {
                tell(Passage::Incident(event.incident(event.asked())));
            }
        }
    }

    /// The holds that no event has ended, once all events are taken.
    pub fn into_open(self) -> impl Iterator<Item = PastHold> {
        let locks = self.locks.into_values();
        locks.flat_map(|lock| lock.open.into_iter().map(OpenHold::left))
    }
}

impl LockPast {
    fn acquired(&mut self, event: &Happened<'_>, tell: &mut impl FnMut(Passage)) {
        let waited_ms = event.number("waited_ms");
        let behind = event.fields.get("behind");
        let least_ms = if behind.is_some() { 1 } else { MOMENT_MS };
        if waited_ms.is_some_and(|waited| waited >= least_ms) {
            let ahead = behind.and_then(|behind| behind.get("waiting"));
            let wait = PastWait {
                behind: Participant::met_by_request(behind),
                ahead: ahead.and_then(Value::as_u64),
                ..event.wait(WaitOutcome::Granted)
            };
            tell(Passage::Wait(wait));
        }
        let mode = event.text("mode").filter(|mode| *mode != "exclusive");
        let hold = PastHold {
            path: event.owned("path"),
            why: event.owned("why"),
            command: event.owned("command"),
            token: event.number("token"),
            mode: mode.map(str::to_owned),
            slot: event.number("slot"),
            waited_ms,
            ..event.hold(
                Participant::of(event.entry),
                HoldBegin::Recorded(event.at_ms),
            )
        };
        // The line of a grant may come behind that of its end, and one grant may be told twice.
        let is_late = |ended: &EndedHold| {
            ended.lacks_grant
                && ended.request_id == hold.by.request_id
                && ended.until_ms >= event.at_ms
        };
        if let Some(late) = self.ended.iter_mut().find(|ended| is_late(ended)) {
            late.lacks_grant = false;
            return;
        }
        let known = self.find(&hold.by.request_id, hold.token, None);
        match known.and_then(|at| self.open.get_mut(at)) {
            Some(open) if open.hold.token.is_none() => {
                // A refused caller met the holder before the line of its grant was written.
                (open.hold, open.met_ms) = (hold, None);
                return;
            }
            Some(open) if open.hold.token == hold.token => return,
            Some(_) | None => {}
        }
        for open in &mut self.open {
            if open.gives_way_to(&hold) {
                open.passed_ms.get_or_insert(event.at_ms);
            }
        }
        self.open.push(OpenHold::new(hold));
        let passed = |open: &OpenHold| open.passed_ms.is_some();
        if self.open.iter().filter(|open| passed(open)).count() > REMEMBERED
            && let Some(at) = self.open.iter().position(passed)
        {
            let hold = self.open.remove(at).left();
            self.remember(&hold);
            tell(Passage::Hold(hold));
        }
        if self.open.len() > OPEN_MAX {
            tell(Passage::Hold(self.open.remove(0).left()));
        }
    }

    fn released(&mut self, event: &Happened<'_>, tell: &mut impl FnMut(Passage)) {
        let is_by_other = event.fields.get("by_other") == Some(&Value::Bool(true));
        let whose = if is_by_other {
            Participant::met(event.fields.get("previous_lock"))
        } else {
            Some(Participant::of(event.entry))
        };
        let told_ms = event.number("held_ms");
        let since_ms = told_ms.map(|held| event.at_ms.saturating_sub(held));
        if !self.is_end_of(whose.as_ref(), since_ms.unwrap_or(event.at_ms)) {
            return;
        }
        let begin = HoldBegin::inferred(since_ms);
        let mut open = self.take_open(event, whose.as_ref(), None, begin);
        open.hold.told_ms = told_ms;
        let outcome = match (is_by_other, open.is_asked_for, event.text("result")) {
            (true, _, _) => HoldOutcome::Forced,
            (false, true, _) => HoldOutcome::Superseded,
            (false, false, Some("failure")) => HoldOutcome::Failed,
            (false, false, _) => HoldOutcome::Released,
        };
        let hold = self.end(open.hold, event.at_ms, outcome);
        tell(Passage::Hold(hold));
    }

    /// Ends the hold whose owner another caller's event describes under this key. A record that could not be read names no
    /// owner: then the only open hold has ended.
    fn ended_by_another(
        &mut self,
        event: &Happened<'_>,
        key: &str,
        outcome: HoldOutcome,
        tell: &mut impl FnMut(Passage),
    ) {
        let owner = event.fields.get(key);
        let whose = Participant::met(owner);
        let since = owner.and_then(|owner| owner.get("created_at"));
        let since_ms = since.and_then(Value::as_str).and_then(at_ms);
        if self.is_end_of(whose.as_ref(), since_ms.unwrap_or(0)) {
            let begin = HoldBegin::inferred(since_ms);
            let open = self.take_open(event, whose.as_ref(), None, begin);
            let hold = self.end(open.hold, event.at_ms, outcome);
            tell(Passage::Hold(hold));
        }
        tell(Passage::Incident(
            event.incident(whose.into_iter().collect()),
        ));
    }

    fn lost(&mut self, event: &Happened<'_>, tell: &mut impl FnMut(Passage)) {
        let by = Participant::of(event.entry);
        let token = event.number("token");
        // A holder learns of its loss after the caller that has the lock now.
        if self.is_news(&by.request_id, token, 0) {
            let open = self.take_open(event, Some(&by), token, HoldBegin::Unknown);
            let hold = self.end(open.hold, event.at_ms, HoldOutcome::Lost);
            tell(Passage::Hold(hold));
        }
        tell(Passage::Incident(event.incident(Vec::new())));
    }

    fn superseded(&mut self, event: &Happened<'_>, tell: &mut impl FnMut(Passage)) {
        let by = Participant::met(event.fields.get("superseded_by"));
        let token = event.number("token");
        if token.is_none() {
            let wait = PastWait {
                behind: by,
                ..event.wait(WaitOutcome::Superseded)
            };
            tell(Passage::Wait(wait));
            return;
        }
        // The release of the hold follows.
        let asked = self.find(event.entry.request_id(), token, None);
        if let Some(open) = asked.and_then(|at| self.open.get_mut(at)) {
            open.is_asked_for = true;
        }
        tell(Passage::Incident(event.incident(by.into_iter().collect())));
    }

    fn refused(&mut self, event: &Happened<'_>, tell: &mut impl FnMut(Passage)) {
        let outcome = match event.event {
            EventName::LockSkipped => WaitOutcome::Skipped,
            _ => WaitOutcome::Refused(event.text("code").unwrap_or_default().to_owned()),
        };
        let held_by = event.fields.get("held_by");
        let behind = Participant::met_by_request(held_by);
        let since = held_by.and_then(|held| held.get("since"));
        let since_ms = since.and_then(Value::as_str).and_then(at_ms);
        if let Some((holder, since_ms)) = behind.as_ref().zip(since_ms) {
            self.meet(event, holder, since_ms);
        }
        tell(Passage::Wait(PastWait {
            behind,
            ..event.wait(outcome)
        }));
    }

    /// Learns of a holder from a caller that it kept out.
    fn meet(&mut self, event: &Happened<'_>, holder: &Participant, since_ms: u64) {
        let known = self.find(&holder.request_id, None, Some(since_ms));
        if let Some(open) = known.and_then(|at| self.open.get_mut(at)) {
            open.met_ms = open.met_ms.map(|met| met.max(event.at_ms));
            return;
        }
        if self.is_news(&holder.request_id, None, since_ms) {
            let hold = event.hold(holder.clone(), HoldBegin::Inferred(since_ms));
            self.open.push(OpenHold {
                met_ms: Some(event.at_ms),
                ..OpenHold::new(hold)
            });
        }
    }

    /// Takes the open hold of an owner out. If none is known, its end is the first that is heard of it.
    fn take_open(
        &mut self,
        event: &Happened<'_>,
        whose: Option<&Participant>,
        token: Option<u64>,
        begin: HoldBegin,
    ) -> OpenHold {
        let found = match whose {
            Some(whose) => self.find(&whose.request_id, token, begin.since_ms()),
            None if self.open.len() == 1 => Some(0),
            None => None,
        };
        if let Some(at) = found {
            return self.open.remove(at);
        }
        let hold = event.hold(whose.cloned().unwrap_or_default(), begin);
        OpenHold::new(PastHold { token, ..hold })
    }
}

/// An event whose name is known.
struct Happened<'a> {
    entry: &'a Entry,
    fields: &'a Map<String, Value>,
    at_ms: u64,
    event: EventName,
}

impl<'a> Happened<'a> {
    fn text(&self, key: &str) -> Option<&'a str> {
        text(self.fields, key)
    }

    fn owned(&self, key: &str) -> Option<String> {
        self.text(key).map(str::to_owned)
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.entry.number(key)
    }

    /// The lock that the event is about: of several locks of a skipped run the one that was held.
    fn lock(&self) -> &'a str {
        let held = self.text("held_lock");
        held.unwrap_or_else(|| self.entry.lock_name())
    }

    fn hold(&self, by: Participant, begin: HoldBegin) -> PastHold {
        PastHold::new(self.lock(), by, begin)
    }

    fn wait(&self, outcome: WaitOutcome) -> PastWait {
        let waited_ms = self.number("waited_ms").unwrap_or(0);
        PastWait {
            lock: self.entry.lock_name().to_owned(),
            held_lock: self.lock().to_owned(),
            path: self.owned("path"),
            by: Participant::of(self.entry),
            why: self.owned("why"),
            since_ms: self.at_ms.saturating_sub(waited_ms),
            until_ms: self.at_ms,
            behind: None,
            ahead: None,
            outcome,
        }
    }

    /// Holders or waiters that were asked to stop.
    fn asked(&self) -> Vec<Participant> {
        let asked = self.fields.get("asked").and_then(Value::as_array);
        let asked = asked.into_iter().flatten();
        asked
            .filter_map(|met| Participant::met(Some(met)))
            .collect()
    }

    fn incident(&self, whom: Vec<Participant>) -> Incident {
        let reason = ["reason", "kind", "error", "why"];
        let reason = reason.into_iter().find_map(|key| self.owned(key));
        Incident {
            at_ms: self.at_ms,
            event: self.event,
            lock: self.lock().to_owned(),
            by: Participant::of(self.entry),
            whom,
            reason: reason.unwrap_or_default(),
        }
    }
}

fn text<'a>(fields: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    fields.get(key).and_then(Value::as_str)
}

fn number(fields: &Map<String, Value>, key: &str) -> Option<u64> {
    fields.get(key).and_then(Value::as_u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN: u64 = 1_770_458_400_000;

    /// An event `at` seconds after ten.
    fn entry(at: u64, event: &str, id: &str, rest: &str) -> Entry {
        let time = super::super::text::to_the_millisecond(TEN + at * 1_000);
        let comma = if rest.is_empty() { "" } else { "," };
        let line = format!(
            r#"{{"event":"lock_{event}","lock_name":"deploy","request_id":"{id}","actor":"{id}","timestamp":"{time}"{comma}{rest}}}"#
        );
        Entry::parse(line.as_bytes()).expect("an event")
    }

    /// Passages in words: `hold a 0..5 released`. Instants are seconds after ten.
    fn told(events: &[(u64, &str, &str, &str)]) -> Vec<String> {
        let at = |ms: Option<u64>| {
            ms.map_or_else(
                || "?".to_owned(),
                |ms| {
                    (i64::try_from(ms).unwrap_or(0) - i64::try_from(TEN).unwrap_or(0))
                        .div_euclid(1_000)
                        .to_string()
                },
            )
        };
        let who = |who: &Participant| who.request_id.clone();
        let mut history = History::default();
        let mut all = Vec::new();
        for (at, event, id, rest) in events {
            history.take(&entry(*at, event, id, rest), |passage| all.push(passage));
        }
        all.extend(history.into_open().map(Passage::Hold));
        let word = |passage: &Passage| match passage {
            Passage::Hold(hold) => format!(
                "hold {} {}..{} {}",
                who(&hold.by),
                at(hold.since_ms()),
                at(hold.until_ms),
                hold.outcome.as_str()
            ),
            Passage::Wait(wait) => format!(
                "wait {} {}..{} {} behind {}",
                who(&wait.by),
                at(Some(wait.since_ms)),
                at(Some(wait.until_ms)),
                wait.outcome.as_str(),
                wait.behind.as_ref().map_or_else(|| "?".to_owned(), who)
            ),
            Passage::Incident(incident) => format!(
                "{} {} at {}: {}",
                incident.event.as_str(),
                who(&incident.by),
                at(Some(incident.at_ms)),
                incident.reason
            ),
        };
        all.iter().map(word).collect()
    }

    #[test]
    fn events_fold_into_holds_and_waits() {
        let behind_a = r#""token":2,"waited_ms":4000,"behind":{"request_id":"a","waiting":0}"#;
        assert_eq!(
            told(&[
                (0, "acquired", "a", r#""token":1"#),
                (5, "acquired", "b", behind_a),
                // The line of the release that made room for it comes behind its grant.
                (5, "released", "a", r#""held_ms":5000,"result":"failure""#),
                (
                    6,
                    "refused",
                    "c",
                    r#""code":"LOCK_HELD","waited_ms":1000,"held_by":{"request_id":"b","since":"2026-02-07T10:00:05Z"}"#
                ),
                (
                    7,
                    "superseded",
                    "b",
                    r#""token":2,"kind":"newer_run","superseded_by":{"request_id":"d"}"#
                ),
                (8, "released", "b", r#""held_ms":3000,"result":"failure""#),
                (9, "acquired", "d", r#""token":3"#),
            ]),
            [
                "wait b 1..5 granted behind a",
                "hold a 0..5 failed",
                "wait c 5..6 refused behind b",
                "lock_superseded b at 7: newer_run",
                "hold b 5..8 superseded",
                "hold d 9..? open",
            ]
        );
    }

    #[test]
    fn a_hold_without_an_end_ends_with_the_next_grant_or_the_takeover() {
        let of_b = r#""reason":"stale_lock","previous_lock":{"request_id":"b","created_at":"2026-02-07T10:00:03Z"}"#;
        assert_eq!(
            told(&[
                (0, "acquired", "a", r#""token":1"#),
                (3, "acquired", "b", r#""token":2"#),
                (7, "stolen", "c", of_b),
                (7, "acquired", "c", r#""token":3"#),
                // The holder that was stopped comes back, and learns of it.
                (9, "lost", "b", r#""token":2"#),
            ]),
            [
                "hold b 3..7 left",
                "lock_stolen c at 7: stale_lock",
                "lock_lost b at 9: ",
                "hold a 0..3 unknown",
                "hold c 7..? open",
            ]
        );
    }

    #[test]
    fn a_log_whose_beginning_is_gone_is_open_at_the_left() {
        let of_y = r#""reason":"stale_lock_forced","previous_lock":{"request_id":"y","created_at":"2026-02-07T09:59:50Z"}"#;
        assert_eq!(
            told(&[
                (0, "released", "x", r#""held_ms":30000"#),
                (1, "stolen", "a", of_y),
                (2, "lost", "z", r#""token":9"#),
                (
                    3,
                    "refused",
                    "c",
                    r#""code":"LOCK_HELD","held_by":{"request_id":"w","since":"2026-02-07T09:59:58Z"}"#
                ),
                (
                    4,
                    "refused",
                    "c",
                    r#""code":"LOCK_HELD","held_by":{"request_id":"w","since":"2026-02-07T09:59:58Z"}"#
                ),
            ]),
            [
                "hold x -30..0 released",
                "hold y -10..1 taken_over",
                "lock_stolen a at 1: stale_lock_forced",
                "hold z ?..2 lost",
                "lock_lost z at 2: ",
                "wait c 3..3 refused behind w",
                "wait c 4..4 refused behind w",
                "hold w -2..4 unknown",
            ]
        );
    }

    #[test]
    fn holds_beside_each_other_do_not_end_each_other() {
        let slot = |slot: u8, token: u8| format!(r#""token":{token},"mode":"slots","slot":{slot}"#);
        let (first, second, third) = (slot(0, 1), slot(1, 2), slot(0, 3));
        assert_eq!(
            told(&[
                (0, "acquired", "a", &first),
                (1, "acquired", "b", &second),
                (2, "acquired", "c", &third),
                (3, "released", "b", r#""held_ms":2000"#),
            ]),
            [
                "hold b 1..3 released",
                "hold a 0..2 unknown",
                "hold c 2..? open"
            ]
        );
        // A version that did not record the mode: both ends are there.
        assert_eq!(
            told(&[
                (0, "acquired", "a", r#""token":1"#),
                (1, "acquired", "b", r#""token":2"#),
                (4, "released", "a", r#""held_ms":4000"#),
                (5, "released", "b", r#""held_ms":4000"#),
            ]),
            ["hold a 0..4 released", "hold b 1..5 released"]
        );
    }

    #[test]
    fn a_clock_that_is_set_back_makes_no_hold_end_before_it_began() {
        let mut history = History::default();
        let mut holds = Vec::new();
        for event in [
            entry(100, "acquired", "a", r#""token":1"#),
            entry(40, "released", "a", r#""held_ms":7000"#),
            // A grant that is read behind its end.
            entry(50, "released", "b", r#""held_ms":3000"#),
            entry(47, "acquired", "b", r#""token":2"#),
        ] {
            history.take(&event, |passage| {
                if let Passage::Hold(hold) = passage {
                    holds.push((hold.since_ms(), hold.until_ms, hold.held_ms()));
                }
            });
        }
        let at = |seconds: u64| Some(TEN + seconds * 1_000);
        assert_eq!(
            holds,
            [
                (at(100), at(100), Some(7_000)),
                (at(47), at(50), Some(3_000))
            ]
        );
        assert_eq!(history.into_open().count(), 0);
    }

    #[test]
    fn of_each_lock_only_what_is_open_is_kept() {
        let mut history = History::default();
        let mut told = 0;
        for at in 0..1_000 {
            let event = entry(
                at,
                "acquired",
                &format!("r{at}"),
                &format!(r#""token":{}"#, at + 1),
            );
            history.take(&event, |_| told += 1);
        }
        let lock = history.locks.get("deploy").expect("the lock");
        assert!(lock.open.len() <= REMEMBERED + 1 && lock.ended.len() <= REMEMBERED);
        assert_eq!(told + history.into_open().count(), 1_000);
    }

    #[test]
    fn a_skipped_run_waited_for_the_lock_that_was_held() {
        let mut history = History::default();
        let mut waits = Vec::new();
        let event = entry(1, "skipped", "a", r#""held_lock":"db","held_by":null"#);
        history.take(&event, |passage| waits.push(passage));
        let [Passage::Wait(wait)] = waits.as_slice() else {
            panic!("{waits:?}");
        };
        assert_eq!((&*wait.lock, &*wait.held_lock), ("deploy", "db"));
        assert_eq!(wait.outcome, WaitOutcome::Skipped);
    }
}
