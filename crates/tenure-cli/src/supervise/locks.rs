//! The locks under which a command runs: what follows for it from the news of each hold.
//!
//! [`Life`] says what a renewal or a look means. The driver decides when to look and on what to sleep
//! meanwhile; the supervision decides what an event leads to.
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
use tenure_core::{AgentKey, Cancel, LockName, Now, Process, Renewal};
use tenure_engine::keep::{Ask, Life, Loss, News, Step};
use tenure_os::clock::{Clock, SystemClock};
use tenure_os::process::BeforeFork;
#[cfg(unix)]
use tenure_store::file::Own;
use tenure_store::{Handle, StoreError};

/// A lock under which a command runs.
pub(crate) struct RunLock<'a> {
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
    /// The agent that took it, where that is no run's.
    pub(crate) agent: Option<OfAgent<'a>>,
    #[cfg_attr(
        windows,
        allow(dead_code, reason = "a command inherits no part in a hold there")
    )]
    pub(crate) part: &'a Part,
}

/// A hold that ends by the silence of its agent, of which this run is a sign of life.
#[derive(Clone, Copy)]
pub(crate) struct OfAgent<'a> {
    pub(crate) key: &'a AgentKey,
    pub(crate) clock: &'a SystemClock,
    pub(crate) silence: Duration,
}

/// What a supervised run needs.
pub(crate) struct Driver<'a> {
    /// The locks, in the order in which they were taken; none for a command that runs without one.
    pub(crate) held: Vec<RunLock<'a>>,
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
    /// Called once the command runs: what need not be done before.
    pub(crate) on_started: &'a dyn Fn(),
}

/// What outlasts one command: a rollback goes on from where the command has left off.
pub(crate) struct RunState {
    /// Lives of the holds, in the order in which the locks were taken.
    pub(super) holds: Vec<Life>,
    /// The lock of the run around it that was found gone first.
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

/// What an answer about a lock leads to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Consequence {
    pub(super) event: Option<Event>,
    /// Whether the answer showed too little: the driver looks again soon.
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
pub(crate) struct StopNotice {
    pub(crate) cancel: Cancel,
    /// The time that is left to the work, where the request shortens its grace.
    within: Option<Duration>,
}

/// The request to stop that the holder of a lock has got.
pub(crate) fn who_asks(held: &RunLock<'_>, now: &Now) -> Option<StopNotice> {
    let reading = held.store.read(held.handle.name()).ok()?;
    let claim = reading.entry()?.claim(held.handle.ticket())?;
    let cancel = claim.cancel.clone()?;
    let within = cancel.grace_ms.map(|grace_ms| {
        let boot = claim.boot();
        Duration::from_millis(grace_ms.saturating_sub(cancel.at.age_ms(boot, now)))
    });
    Some(StopNotice { cancel, within })
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
fn what_happened(held: &RunLock<'_>, now: &Now) -> Option<String> {
    match held.store.look_at_own(held.handle, now)? {
        Ok(Own::Lost(what) | Own::Doubtful(what)) => Some(what),
        Ok(Own::Stands(_) | Own::Unsettled(_)) | Err(_) => None,
    }
}

#[cfg(windows)]
fn what_happened(_: &RunLock<'_>, _: &Now) -> Option<String> {
    None
}

impl Driver<'_> {
    /// Has `name` write down which process the command is, which was forked since. Returns the first lock that is lost.
    pub(super) fn name_command(
        &self,
        pid: u32,
        forked: BeforeFork,
        mut name: impl FnMut(usize, &RunLock<'_>, Process) -> Result<bool, StoreError>,
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
    /// The lives are those of the driver's holds, in the same order.
    pub(crate) fn new(holds: impl IntoIterator<Item = Life>) -> Self {
        Self {
            holds: holds.into_iter().collect(),
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

    /// The lives, to go on with under another state.
    #[cfg(unix)]
    pub(crate) fn into_lives(self) -> Vec<Life> {
        self.holds
    }

    /// When [`RunState::due`] has to be asked next, by the clock of leases.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.holds.iter().filter_map(Life::next_ms).min()
    }

    /// What there is to do for a lock.
    pub(super) fn due(&self, driver: &Driver<'_>, index: usize) -> Step {
        let now_ms = lease_clock(driver.clock);
        let hold = self.holds.get(index);
        hold.map_or(Step::Nothing, |hold| hold.due(now_ms))
    }

    /// Notes that a renewal begins at this instant.
    pub(super) fn begin(&mut self, index: usize, now: &Now) {
        if let Some(hold) = self.holds.get_mut(index) {
            hold.begin(Ask::Renew, now.boot_ms);
        }
    }

    /// No answer comes any more to what an earlier driver asked.
    #[cfg(unix)]
    pub(super) fn forget_questions(&mut self) {
        self.holds.iter_mut().for_each(Life::forget_questions);
    }

    /// Whether any of the locks is not to be relied on any more.
    pub(crate) fn is_lost(&self) -> bool {
        self.around_lost.is_some() || self.holds.iter().any(Life::is_lost)
    }

    /// The lock of the run around it that was found gone first.
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

    /// What follows from an answer about a lock. Here and below, `is_ending` says that an end of the command is under
    /// way.
    pub(super) fn on_answer(
        &mut self,
        driver: &Driver<'_>,
        index: usize,
        (ask, answer): (Ask, Result<Renewal, StoreError>),
        is_ending: bool,
    ) -> Consequence {
        let Some(hold) = self.holds.get_mut(index) else {
            return Consequence::default();
        };
        let news = hold.answered(ask, &answer, lease_clock(driver.clock));
        let error = answer.err().map(|error| error.to_string());
        self.on_news(driver, index, (news, error.as_deref()), is_ending)
    }

    /// Ends the wait for the answer to a renewal: no time is left.
    #[cfg_attr(windows, allow(dead_code, reason = "every answer is waited for there"))]
    pub(super) fn on_no_answer(
        &mut self,
        driver: &Driver<'_>,
        index: usize,
        is_ending: bool,
    ) -> Consequence {
        let Some(hold) = self.holds.get_mut(index) else {
            return Consequence::default();
        };
        let news = hold.unanswered(lease_clock(driver.clock));
        self.on_news(driver, index, (news, None), is_ending)
    }

    /// What follows from a look of the holder at its own files.
    #[cfg(unix)]
    pub(super) fn on_look(
        &mut self,
        driver: &Driver<'_>,
        index: usize,
        seen: Result<Own, StoreError>,
        is_ending: bool,
    ) -> Consequence {
        let Some(hold) = self.holds.get_mut(index) else {
            return Consequence::default();
        };
        let news = hold.looked(seen, lease_clock(driver.clock));
        self.on_news(driver, index, (news, None), is_ending)
    }

    /// A lock is proven to be lost.
    pub(super) fn lose(
        &mut self,
        driver: &Driver<'_>,
        index: usize,
        is_ending: bool,
    ) -> Consequence {
        let Some(hold) = self.holds.get_mut(index) else {
            return Consequence::default();
        };
        let news = hold.lose(None);
        self.on_news(driver, index, (news, None), is_ending)
    }

    fn on_news(
        &mut self,
        driver: &Driver<'_>,
        index: usize,
        (news, error): (News, Option<&str>),
        is_ending: bool,
    ) -> Consequence {
        let error = error.unwrap_or("no answer yet");
        if news.is_back {
            self.remark("the heartbeat works again; no other caller has taken the lock");
        }
        if let Some(failed) = news.failed {
            if failed.is_event {
                self.unsaid.push(Remark::HeartbeatFailed {
                    index,
                    consecutive: failed.consecutive,
                    error: error.to_owned(),
                });
            }
            // Over a network the next try comes so soon that one message is enough.
            let is_remote = (driver.held.get(index)).is_some_and(|held| held.store.is_remote());
            if news.lost.is_none() && !is_ending && (!is_remote || failed.consecutive == 1) {
                self.remark(format!("the heartbeat failed, the work goes on: {error}"));
            }
        }
        let event = match news.lost {
            // While the work is being ended anyhow, nothing more follows.
            Some(Loss::Gone(_)) if is_ending => None,
            Some(Loss::Gone(what)) => {
                self.tell_of_loss(driver, index, what);
                Some(Event::Lost { within: None })
            }
            // A failure by itself proves nothing about the lock; the end of its lease does.
            Some(Loss::Silence { left_ms }) => {
                self.unsaid.push(Remark::Loss(format!(
                    "the heartbeat has failed until the lease was about to run out, so the lock can no \
                     longer be relied on ({error}); {}",
                    driver.what_follows(is_ending)
                )));
                let within = Some(Duration::from_millis(left_ms));
                Some(Event::Lost { within })
            }
            None if news.stop_requested => self.on_request(driver, index, is_ending),
            None => None,
        };
        Consequence {
            event,
            is_unsure: news.is_unsure,
        }
    }

    /// Says that a lock is gone; `what` is what happened to its file, if that is known already.
    fn tell_of_loss(&mut self, driver: &Driver<'_>, index: usize, what: Option<String>) {
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
            driver.what_follows(false)
        )));
    }

    /// Another caller asks for a lock.
    fn on_request(&mut self, driver: &Driver<'_>, index: usize, is_ending: bool) -> Option<Event> {
        // A rollback is finished first.
        if self.asked.is_some() {
            return None;
        }
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

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use tenure_core::LeaseTerms;
    use tenure_os::clock::SystemClock;

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
            on_started: &|| {},
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
        let mut state = RunState::new([Life::new(LEASE, now.boot_ms)]);
        let answered = |state: &mut RunState, renewal| {
            let followed = state.on_answer(&driver, 0, (Ask::Renew, renewal), false);
            followed.event
        };
        state.begin(0, &now);
        // By another way, and then the answer to what was asked first.
        assert_eq!(answered(&mut state, Ok(renewed(false))), None);
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
    fn nothing_follows_from_a_loss_while_the_command_is_being_ended() {
        let clock = SystemClock::new(None);
        let driver = driver(&clock);
        let mut state = RunState::new([Life::new(LEASE, clock.now().boot_ms)]);
        let followed = state.on_answer(&driver, 0, (Ask::Look, Ok(Renewal::Lost)), true);
        assert_eq!(followed, Consequence::default());
        assert!(state.is_lost());
    }
}
