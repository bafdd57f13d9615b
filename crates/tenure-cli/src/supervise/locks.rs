//! The locks under which a command runs: what a renewal or a look says of them, and what follows.
//!
//! Every driver asks here. The driver decides when to look and on what to sleep meanwhile; the
//! supervision decides what an event leads to.
//!
//! **First act, then speak.** Messages about a finding, and lines for the audit, are kept with the
//! state of the run ([`RunState::speak`]) until the driver has acted on the finding. A reader who does
//! not read, or an audit that another process has locked, must not keep a command running whose lock is
//! lost.

#[cfg(unix)]
use super::descendants::Descendants;
use super::{Before, Event, OnLost, Terms};
use crate::render::lock::asks_for_the_lock;
use crate::render::say;
use crate::signals::Signals;
use crate::store::{Locks, Part};
use std::time::{Duration, Instant};
use tenure_engine::clock::Clock;
#[cfg(unix)]
use tenure_engine::clock::instant;
use tenure_engine::process::BeforeFork;
#[cfg(unix)]
use tenure_engine::store::file::Own;
use tenure_engine::store::{Handle, StoreError};
use tenure_engine::tenure_core::{Cancel, Due, Failed, LockName, Now, Process, Renewal, Schedule};

/// A lock under which a command runs.
pub(crate) struct Held<'a> {
    pub(crate) store: &'a Locks,
    pub(crate) handle: &'a dyn Handle,
    /// Called when several renewals in a row have failed: how many, and how the last one did.
    pub(crate) on_heartbeat_failed: &'a dyn Fn(u32, &str),
}

/// A lock of the run around this one, under which a command runs too.
#[derive(Clone, Copy)]
pub(crate) struct Around<'a> {
    pub(crate) store: &'a Locks,
    pub(crate) name: &'a LockName,
    pub(crate) token: u64,
    /// After how long without an answer other callers may have it.
    pub(crate) lapses: Option<Duration>,
    #[cfg_attr(
        windows,
        allow(dead_code, reason = "a command inherits no part in a hold there")
    )]
    pub(crate) part: &'a Part,
}

/// What a supervised run needs.
pub(crate) struct Driver<'a> {
    /// The locks, in the order in which they were taken; none for a command that runs without one.
    pub(crate) held: Vec<Held<'a>>,
    /// The locks of the run around it.
    pub(crate) around: Vec<Around<'a>>,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) signals: Signals,
    pub(crate) terms: Terms,
    /// The command does not inherit what keeps the lock held.
    #[cfg_attr(
        windows,
        allow(
            dead_code,
            reason = "nothing that keeps a lock held is inherited there"
        )
    )]
    pub(crate) close: bool,
    pub(crate) quiet: bool,
}

/// What outlasts one command: a rollback goes on from where the command has left off.
pub(crate) struct RunState {
    /// One for each lock, in the order in which they were taken.
    pub(super) holds: Vec<HoldState>,
    /// Which of the locks of the run around it was found gone first.
    around_lost: Option<usize>,
    /// When the first command was started.
    #[cfg_attr(windows, allow(dead_code, reason = "nothing goes on from there"))]
    pub(super) began: Option<Instant>,
    /// What was asked of the command; `None` until it has ended.
    pub(super) asked: Option<Before>,
    /// What is left of all that was run; `None` until something is.
    #[cfg(unix)]
    pub(super) descendants: Option<Descendants>,
    /// What to say of findings, once the driver has acted on them.
    unsaid: Vec<Remark>,
}

/// What there is to say of a finding.
enum Remark {
    /// For stderr, unless the caller wants it quiet.
    Told(String),
    /// About a lost lock.
    Loss(String),
    /// For the audit: several renewals in a row have failed.
    HeartbeatFailed {
        index: usize,
        consecutive: u32,
        error: String,
    },
}

/// The state of one hold.
pub(super) struct HoldState {
    pub(super) schedule: Schedule,
    /// The lock must not be relied on any more.
    lost: bool,
    /// The last looks found something that may be a write of another program in two steps.
    #[cfg(unix)]
    doubt: Option<Doubt>,
}

/// How often, and for how long, the files of a lock have to be in a state that may be the middle of another
/// program's write, before the lock counts as lost. Of the time between two looks no more than the last figure
/// counts: a supervisor that was stopped, or had no processor, has seen nothing of it.
#[cfg(unix)]
const DOUBT_LOOKS: u32 = 3;
#[cfg(unix)]
const DOUBT: Duration = Duration::from_millis(500);
#[cfg(unix)]
const DOUBT_GAP_MAX: Duration = Duration::from_millis(250);

/// For how long a record that no caller can read is looked at again and again. A program that writes it in two steps has
/// long written the second by then; what is written later wakes the holder.
#[cfg(unix)]
const UNSETTLED_MAX: Duration = Duration::from_secs(10);

/// Looks in a row that found a lock in such a state.
#[cfg(unix)]
#[derive(Debug, Clone, Copy)]
struct Doubt {
    looks: u32,
    watched: Duration,
    last: Instant,
}

#[cfg(unix)]
impl Doubt {
    /// One look more.
    fn after(before: Option<Self>, now: Instant) -> Self {
        match before {
            None => Self {
                looks: 1,
                watched: Duration::ZERO,
                last: now,
            },
            Some(Self {
                looks,
                watched,
                last,
            }) => Self {
                looks: looks.saturating_add(1),
                watched: watched + now.saturating_duration_since(last).min(DOUBT_GAP_MAX),
                last: now,
            },
        }
    }

    /// Whether it is the middle of a write no more.
    fn is_over(self) -> bool {
        self.looks >= DOUBT_LOOKS && self.watched >= DOUBT
    }
}

/// What a look by the holder leads to.
#[cfg(unix)]
pub(super) struct Looked {
    pub(super) event: Option<Event>,
    /// It showed too little: the driver looks again soon.
    pub(super) is_unsure: bool,
}

/// Why a command did not start.
#[derive(Debug)]
pub(crate) enum SpawnError {
    /// The system does not start it.
    Command(std::io::Error),
    /// The lock could not be tied to the command's life, and the command has not run.
    LivenessLock(std::io::Error),
    /// The store could not write down which process the command is. Nothing else would have shown that
    /// it lives, so nothing of it has run.
    #[cfg_attr(windows, allow(dead_code, reason = "a job speaks for it there"))]
    Unnamed(StoreError),
    /// The kernel refuses to report on children, so the command's end could not be seen. It was not
    /// started.
    #[cfg_attr(windows, allow(dead_code, reason = "a handle tells of the end there"))]
    Unseen(std::io::Error),
}

/// The clock by which leases run out, in milliseconds.
pub(crate) fn lease_clock(clock: &dyn Clock) -> u64 {
    clock.now().boot_ms
}

/// A request to stop that the holder of a lock has got.
pub(crate) struct Asked {
    pub(crate) cancel: Cancel,
    /// The time that is left to the work, where the request shortens its grace.
    within: Option<Duration>,
}

/// The request to stop that the holder of a lock has got.
pub(crate) fn who_asks(held: &Held<'_>, now: &Now) -> Option<Asked> {
    let reading = held.store.read(held.handle.name()).ok()?;
    let claim = reading.entry()?.claim(held.handle.ticket())?;
    let cancel = claim.cancel.clone()?;
    let within = cancel.grace_ms.map(|grace_ms| {
        let boot = claim.holder.host.boot_id.as_deref();
        Duration::from_millis(grace_ms.saturating_sub(cancel.at.age_ms(boot, now)))
    });
    Some(Asked { cancel, within })
}

/// A request of which no more is known.
pub(crate) fn unknown() -> Cancel {
    Cancel {
        by: "unknown".to_owned(),
        ..Cancel::default()
    }
}

/// What happened to the file of a lock that a renewal has found lost.
#[cfg(unix)]
fn what_happened(held: &Held<'_>, now: &Now) -> Option<String> {
    match held.store.look_at_own(held.handle, now)? {
        Ok(Own::Lost(what) | Own::Doubtful(what)) => Some(what),
        Ok(Own::Stands(_) | Own::Unsettled(_)) | Err(_) => None,
    }
}

#[cfg(windows)]
fn what_happened(_: &Held<'_>, _: &Now) -> Option<String> {
    None
}

impl Driver<'_> {
    /// Has `name` write down which process the command is, which was forked since. Returns the first lock that is lost.
    pub(super) fn name_command(
        &self,
        pid: u32,
        forked: BeforeFork,
        mut name: impl FnMut(usize, &Held<'_>, Process) -> Result<bool, StoreError>,
    ) -> Result<Option<usize>, StoreError> {
        if self.held.is_empty() {
            return Ok(None);
        }
        let started = forked.start_time(pid);
        for (index, held) in self.held.iter().enumerate() {
            if !name(index, held, Process { pid, started })? {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// An ended command shows the loss by its exit code. If the command goes on, only this message shows
    /// it.
    fn tell_of_loss(&self, message: &str) {
        match self.terms.on_lost {
            OnLost::Terminate => self.tell(message),
            OnLost::Warn => say(message),
        }
    }

    pub(super) fn tell(&self, message: &str) {
        if !self.quiet {
            say(message);
        }
    }

    /// The command could not be written down; that is no loss, and the next renewal says more.
    pub(super) fn tell_unnamed(&self, error: &StoreError) {
        self.tell(&format!("the command could not be recorded: {error}"));
    }

    /// What a lost lock leads to, in words.
    fn what_follows(&self, is_ending: bool) -> &'static str {
        match self.terms.on_lost {
            _ if is_ending => "the command is being ended",
            OnLost::Terminate => "ending the command",
            OnLost::Warn => "the command goes on without it",
        }
    }
}

impl RunState {
    /// The schedules are those of the driver's locks, in the same order.
    pub(crate) fn new(schedules: impl IntoIterator<Item = Schedule>) -> Self {
        let holds = schedules.into_iter().map(|schedule| HoldState {
            schedule,
            lost: false,
            #[cfg(unix)]
            doubt: None,
        });
        Self {
            holds: holds.collect(),
            around_lost: None,
            began: None,
            asked: None,
            #[cfg(unix)]
            descendants: None,
            unsaid: Vec::new(),
        }
    }

    /// Says what was found, after it was acted upon. People come first: they may wait for it, and the
    /// audit may take a moment.
    pub(super) fn speak(&mut self, driver: &Driver<'_>) {
        let (audited, said): (Vec<_>, Vec<_>) = std::mem::take(&mut self.unsaid)
            .into_iter()
            .partition(|remark| matches!(remark, Remark::HeartbeatFailed { .. }));
        for remark in said.into_iter().chain(audited) {
            match remark {
                Remark::Told(message) => driver.tell(&message),
                Remark::Loss(message) => driver.tell_of_loss(&message),
                Remark::HeartbeatFailed {
                    index,
                    consecutive,
                    error,
                } => {
                    if let Some(held) = driver.held.get(index) {
                        (held.on_heartbeat_failed)(consecutive, &error);
                    }
                }
            }
        }
    }

    fn remark(&mut self, message: impl Into<String>) {
        self.unsaid.push(Remark::Told(message.into()));
    }

    /// The schedules, to go on with under another state.
    #[cfg(unix)]
    pub(crate) fn into_schedules(self) -> impl Iterator<Item = Schedule> {
        self.holds.into_iter().map(|hold| hold.schedule)
    }

    /// When the schedules have to be looked at next, by the clock of leases.
    pub(super) fn next_ms(&self) -> Option<u64> {
        let moments = self.holds.iter().filter_map(|hold| hold.schedule.next());
        moments.map(|moment| moment.at_ms).min()
    }

    /// What there is to do for a lock.
    pub(super) fn due(&self, driver: &Driver<'_>, index: usize) -> Due {
        let now_ms = lease_clock(driver.clock);
        let hold = self.holds.get(index);
        hold.map_or(Due::Nothing, |hold| hold.schedule.due(now_ms))
    }

    /// Notes that a renewal begins at this instant.
    pub(super) fn begin(&mut self, index: usize, now: &Now) {
        if let Some(hold) = self.holds.get_mut(index) {
            hold.schedule.begin(now.boot_ms);
        }
    }

    /// No answer comes any more to what an earlier driver asked.
    #[cfg(unix)]
    pub(super) fn forget_questions(&mut self) {
        for hold in &mut self.holds {
            hold.schedule.forget_question();
        }
    }

    /// Whether any of the locks is not to be relied on any more.
    pub(crate) fn is_lost(&self) -> bool {
        self.around_lost.is_some() || self.holds.iter().any(|hold| hold.lost)
    }

    /// Which of the locks of the run around it was found gone first.
    pub(crate) fn around_lost(&self) -> Option<usize> {
        self.around_lost
    }

    /// Goes on with the first `holds` locks: the others were given back.
    pub(crate) fn keep(&mut self, holds: usize) {
        self.holds.truncate(holds);
    }

    /// A lock of the run around this one is gone.
    pub(super) fn lose_around(
        &mut self,
        driver: &Driver<'_>,
        index: usize,
        is_ending: bool,
    ) -> Option<Event> {
        let around = driver.around.get(index)?;
        self.around_lost.get_or_insert(index);
        driver.tell_of_loss(&format!(
            "the hold of {}, under which this run went on, is over; {}",
            around.name,
            driver.what_follows(is_ending)
        ));
        Some(Event::Lost { within: None })
    }

    /// What follows from a renewal. Here and below, `is_ending` says that an end of the command is under
    /// way.
    pub(super) fn on_renewed(
        &mut self,
        driver: &Driver<'_>,
        index: usize,
        renewal: Result<Renewal, StoreError>,
        is_ending: bool,
    ) -> Option<Event> {
        let hold = self.holds.get_mut(index)?;
        match renewal {
            Ok(renewal) => {
                if let Renewal::Renewed { .. } = renewal {
                    hold.schedule.renewed();
                    if std::mem::take(&mut hold.lost) {
                        self.remark(
                            "the heartbeat works again; no other caller has taken the lock",
                        );
                    }
                }
                self.on_renewal(driver, index, renewal, is_ending)
            }
            Err(error) => {
                let failed = hold.schedule.failed(lease_clock(driver.clock));
                self.on_failure(driver, index, failed, &error.to_string(), is_ending)
            }
        }
    }

    /// The same for a renewal that another thread has asked for. The hold may have been renewed by another way
    /// meanwhile. Then the answer counts as a look: it may be the only one that tells of a request to stop. The
    /// store reports no change of a claim that a renewal's answer has told already.
    #[cfg(unix)]
    pub(super) fn on_answered_renewal(
        &mut self,
        driver: &Driver<'_>,
        index: usize,
        renewal: Result<Renewal, StoreError>,
        is_ending: bool,
    ) -> Option<Event> {
        let hold = self.holds.get(index)?;
        match renewal {
            renewal if hold.schedule.is_asking() => {
                self.on_renewed(driver, index, renewal, is_ending)
            }
            Ok(renewal) => self.on_renewal(driver, index, renewal, is_ending),
            Err(_) => None,
        }
    }

    /// There is no more time to wait for the answer to a renewal.
    #[cfg_attr(windows, allow(dead_code, reason = "every answer is waited for there"))]
    pub(super) fn on_no_answer(
        &mut self,
        driver: &Driver<'_>,
        index: usize,
        is_ending: bool,
    ) -> Option<Event> {
        let hold = self.holds.get_mut(index)?;
        let failed = hold.schedule.unanswered(lease_clock(driver.clock));
        self.on_failure(driver, index, failed, "no answer yet", is_ending)
    }

    /// A failure by itself proves nothing about the lock; the end of its lease does.
    fn on_failure(
        &mut self,
        driver: &Driver<'_>,
        index: usize,
        failed: Failed,
        error: &str,
        is_ending: bool,
    ) -> Option<Event> {
        let held = driver.held.get(index)?;
        let hold = self.holds.get_mut(index)?;
        hold.lost |= failed.runs_out_ms.is_some();
        if failed.is_event {
            self.unsaid.push(Remark::HeartbeatFailed {
                index,
                consecutive: failed.consecutive,
                error: error.to_owned(),
            });
        }
        let Some(left_ms) = failed.runs_out_ms else {
            // Over a network the next try comes so soon that one message is enough.
            if !is_ending && (!held.store.is_remote() || failed.consecutive == 1) {
                self.remark(format!("the heartbeat failed, the work goes on: {error}"));
            }
            return None;
        };
        self.unsaid.push(Remark::Loss(format!(
            "the heartbeat has failed until the lease was about to run out, so the lock can no \
             longer be relied on ({error}); {}",
            driver.what_follows(is_ending)
        )));
        let within = Some(Duration::from_millis(left_ms));
        Some(Event::Lost { within })
    }

    /// What follows from a look of the holder at its own files.
    #[cfg(unix)]
    pub(super) fn on_look(
        &mut self,
        driver: &Driver<'_>,
        index: usize,
        seen: Result<Own, StoreError>,
        is_ending: bool,
    ) -> Looked {
        let unsure = |is_unsure| Looked {
            event: None,
            is_unsure,
        };
        let Some(hold) = self.holds.get_mut(index) else {
            return unsure(false);
        };
        // Not known is not lost; the next look may know.
        let Ok(seen) = seen else {
            return unsure(true);
        };
        let event = match seen {
            Own::Stands(renewal) => {
                hold.doubt = None;
                self.on_renewal(driver, index, renewal, is_ending)
            }
            Own::Unsettled(renewal) => {
                let doubt = Doubt::after(hold.doubt, instant());
                hold.doubt = Some(doubt);
                return Looked {
                    event: self.on_renewal(driver, index, renewal, is_ending),
                    is_unsure: doubt.watched < UNSETTLED_MAX,
                };
            }
            Own::Lost(what) => self.is_gone(driver, index, Some(what), is_ending),
            Own::Doubtful(what) => {
                let doubt = Doubt::after(hold.doubt, instant());
                hold.doubt = Some(doubt);
                if !doubt.is_over() {
                    return unsure(!hold.lost);
                }
                self.is_gone(driver, index, Some(what), is_ending)
            }
        };
        Looked {
            event,
            is_unsure: false,
        }
    }

    /// A lock is proven to be lost.
    pub(super) fn lose(
        &mut self,
        driver: &Driver<'_>,
        index: usize,
        is_ending: bool,
    ) -> Option<Event> {
        self.lose_by(driver, index, None, is_ending)
    }

    /// A lock was found lost. While the work is being ended anyhow, nothing more follows.
    fn is_gone(
        &mut self,
        driver: &Driver<'_>,
        index: usize,
        what: Option<String>,
        is_ending: bool,
    ) -> Option<Event> {
        if is_ending {
            self.holds.get_mut(index)?.lost = true;
            return None;
        }
        self.lose_by(driver, index, what, is_ending)
    }

    /// The same; `what` says what happened to its file, if that is known already.
    fn lose_by(
        &mut self,
        driver: &Driver<'_>,
        index: usize,
        what: Option<String>,
        is_ending: bool,
    ) -> Option<Event> {
        let hold = self.holds.get_mut(index)?;
        hold.schedule.lost();
        if std::mem::replace(&mut hold.lost, true) {
            return None;
        }
        let held = driver.held.get(index);
        let lock = match (driver.held.as_slice(), held) {
            ([_], _) | (_, None) => "the lock".to_owned(),
            (_, Some(held)) => format!("the lock {}", held.handle.name()),
        };
        let what = what.or_else(|| what_happened(held?, &driver.clock.now()));
        let what = what.map_or_else(String::new, |what| {
            format!(", because {}", crate::render::clean(&what))
        });
        self.unsaid.push(Remark::Loss(format!(
            "{lock} is lost{what}; {}",
            driver.what_follows(is_ending)
        )));
        Some(Event::Lost { within: None })
    }

    /// What follows from the state in which a lock was found.
    pub(super) fn on_renewal(
        &mut self,
        driver: &Driver<'_>,
        index: usize,
        renewal: Renewal,
        is_ending: bool,
    ) -> Option<Event> {
        match renewal {
            Renewal::Lost => self.is_gone(driver, index, None, is_ending),
            Renewal::Renewed {
                cancel_requested: false,
                ..
            } => None,
            // A rollback is finished first.
            Renewal::Renewed { .. } if self.asked.is_some() => None,
            Renewal::Renewed { .. } => {
                let held = driver.held.get(index);
                let asked = held.and_then(|held| who_asks(held, &driver.clock.now()));
                let within = asked.as_ref().and_then(|asked| asked.within);
                // While the work is ending already, only a shorter grace is news.
                if is_ending && within.is_none() {
                    return None;
                }
                let cancel = asked.map_or_else(unknown, |asked| asked.cancel);
                if !is_ending {
                    let asks = asks_for_the_lock(&cancel);
                    self.remark(format!("{asks}; ending the command"));
                }
                let by = Box::new(cancel);
                Some(Event::CancelRequested { by, within })
            }
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use tenure_engine::clock::SystemClock;
    use tenure_engine::tenure_core::LeaseTerms;

    const LEASE: LeaseTerms = LeaseTerms {
        ttl_ms: 60_000,
        lapse_ms: Some(60_000),
        grace_ms: 0,
        network: true,
    };

    fn driver(clock: &dyn Clock) -> Driver<'_> {
        Driver {
            held: Vec::new(),
            around: Vec::new(),
            clock,
            signals: Signals,
            terms: Terms {
                signal: libc::SIGINT,
                term_after: Duration::ZERO,
                grace: Duration::ZERO,
                patience: Duration::ZERO,
                max_runtime: None,
                wait_all: false,
                on_lost: OnLost::Terminate,
            },
            close: false,
            quiet: true,
        }
    }

    fn renewed(cancel_requested: bool) -> Renewal {
        Renewal::Renewed {
            token: 1,
            cancel_requested,
        }
    }

    fn unreachable() -> StoreError {
        StoreError::Unreachable {
            place: "etcd://".to_owned(),
            doing: "writing the lock",
            why: "no answer".to_owned(),
        }
    }

    #[test]
    fn an_answer_that_comes_after_another_renewal_tells_of_a_request_to_stop() {
        let clock = SystemClock::new(None);
        let driver = driver(&clock);
        let now = clock.now();
        let mut state = RunState::new([Schedule::new(LEASE, now.boot_ms)]);
        let answered =
            |state: &mut RunState, renewal| state.on_answered_renewal(&driver, 0, renewal, false);
        state.begin(0, &now);
        // By another way, and then the answer to what was asked first.
        assert_eq!(
            state.on_renewed(&driver, 0, Ok(renewed(false)), false),
            None
        );
        let next = state.next_ms();
        assert_eq!(answered(&mut state, Err(unreachable())), None);
        assert_eq!(answered(&mut state, Ok(renewed(false))), None);
        assert_eq!(
            state.next_ms(),
            next,
            "it is neither a failure nor a sign of life"
        );
        let (by, within) = (Box::new(unknown()), None);
        let asked = answered(&mut state, Ok(renewed(true)));
        assert_eq!(asked, Some(Event::CancelRequested { by, within }));
        let lost = answered(&mut state, Ok(Renewal::Lost));
        assert_eq!(lost, Some(Event::Lost { within: None }));
    }

    #[test]
    fn a_state_that_may_be_the_middle_of_a_write_is_a_loss_if_it_stays() {
        let clock = SystemClock::new(None);
        let driver = driver(&clock);
        let mut state = RunState::new([Schedule::new(LEASE, clock.now().boot_ms)]);
        let doubtful = || Ok(Own::Doubtful("the file is gone".to_owned()));
        let mut look = |seen| {
            let looked = state.on_look(&driver, 0, seen, false);
            (looked.event, looked.is_unsure)
        };
        assert_eq!(look(doubtful()), (None, true));
        assert_eq!(look(doubtful()), (None, true), "no time has passed");
        // What is not known neither ends the doubt nor is a loss.
        assert_eq!(look(Err(unreachable())), (None, true));
        let stands = renewed(false);
        assert_eq!(look(Ok(Own::Stands(stands))), (None, false));
        let began = instant();
        let event = loop {
            match look(doubtful()) {
                (Some(event), _) => break event,
                (None, is_unsure) => assert!(is_unsure, "it looks again"),
            }
            tenure_engine::clock::nap(Duration::from_millis(20));
        };
        assert_eq!(event, Event::Lost { within: None });
        assert!(tenure_engine::clock::since(began) >= DOUBT, "it stayed");
        let gone = Ok(Own::Lost("the file is gone".to_owned()));
        assert_eq!(look(gone), (None, false), "it is said once");
    }

    #[test]
    fn of_the_time_between_two_looks_a_quarter_of_a_second_counts() {
        let began = instant();
        let at = |ms| began + Duration::from_millis(ms);
        let after = |moments: &[u64]| {
            let doubt = moments
                .iter()
                .fold(None, |doubt, ms| Some(Doubt::after(doubt, at(*ms))));
            doubt.is_some_and(Doubt::is_over)
        };
        assert!(!after(&[0, 60_000]), "it was stopped for a minute");
        assert!(after(&[0, 60_000, 120_000]));
        assert!(!after(&[0, 100, 499]));
        assert!(after(&[0, 250, 500]));
        assert!(!after(&[0, 600]), "two looks");
    }

    #[test]
    fn an_answer_that_is_waited_for_renews() {
        let clock = SystemClock::new(None);
        let driver = driver(&clock);
        let now = clock.now();
        let mut state = RunState::new([Schedule::new(LEASE, now.boot_ms - 1_000)]);
        let next = state.next_ms();
        state.begin(0, &now);
        let answer = state.on_answered_renewal(&driver, 0, Ok(renewed(false)), false);
        assert_eq!(answer, None);
        assert_eq!(state.next_ms(), next.map(|at_ms| at_ms + 1_000));
    }
}
