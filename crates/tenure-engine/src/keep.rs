//! The life of a hold between its grant and its release: when its store is asked, what an answer means, when its holder
//! must stop relying on the lock, and until when the lock is surely the holder's.
//!
//! [`Life`] is that life for one lock. It reads no clock, asks no store and sleeps on nothing: a driver does, tells it
//! what came, and acts on the [`News`]. Four drivers use it: the thread of a guard's manager, `serve`, the MCP server, and
//! the supervisor of a command.
//!
//! The rules:
//! - A renewal is due as [`Schedule`] says. A look changes nothing. It is due when something was noticed, and from time to
//!   time where nothing can be noticed.
//! - One question of a kind is under way at a time. A renewal answers a look too.
//! - An answer that the claim is gone is a loss. A failed look proves nothing. A failed or silent renewal is a loss once
//!   the lease is about to run out ([`Loss::Silence`]), and not before.
//! - A loss is reported once. After a loss by silence, a renewal that succeeds proves that no other caller took the lock;
//!   the holder may rely on it again ([`News::is_back`]).
//! - The answer to a renewal that is known to have failed or succeeded already counts as a look.
//!
//! What is **not** guaranteed:
//! - A driver that does not run (a stopped process, a machine without time for it) tells its holder nothing. Each holder
//!   asks [`Life::has_lapsed`] before it relies on an older answer.
//! - Time is the boot clock of this machine. A lease on servers is counted by theirs; the two may drift apart by as much as
//!   the rest of the lease allows that the schedule keeps for the work to end.
//! - A resource that takes no fencing token takes late writes of a work that did not end in time.

mod files;
mod kept;
mod pending;
pub mod releases;
mod thread;
mod worker;

pub use kept::{Home, KeeperHold, Watching};
pub use pending::NewHolds;

pub use thread::keep;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tenure_core::{Due, Failed, LeaseTerms, Renewal, Schedule};
use tenure_store::file::Own;

/// What a driver asks a store about a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// To renew its lease, which is also a look.
    Renew,
    /// Whether its claim stands.
    Look,
}

/// What there is to do for a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing yet.
    Nothing,
    /// [`Life::begin`], and the question to the store.
    Ask(Ask),
    /// [`Life::unanswered`]: there is no more time to wait for the answer to a renewal.
    Unanswered,
}

/// Why a holder must stop relying on a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// The claim is gone. What happened, as a clause that names the file, if that is known.
    Gone(Option<String>),
    /// No renewal has succeeded in time. Other callers may have the lock after so many milliseconds.
    Silence {
        /// The time that the work has left.
        left_ms: u64,
    },
}

/// What a holder learns from an answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct News {
    /// Set if the holder must stop relying on the lock.
    pub lost: Option<Loss>,
    /// Whether the holder may rely on the lock again.
    pub is_back: bool,
    /// Another caller asks it to stop. Reported with each answer that says so.
    pub stop_requested: bool,
    /// A renewal has failed, or has no answer.
    pub failed: Option<Failed>,
    /// The answer showed too little: the driver looks again soon.
    pub is_unsure: bool,
}

impl News {
    /// What a look without a [`Life`] has found.
    pub fn of(renewal: Renewal) -> Self {
        match renewal {
            Renewal::Lost => Self {
                lost: Some(Loss::Gone(None)),
                ..Self::default()
            },
            Renewal::Renewed {
                cancel_requested, ..
            } => Self {
                stop_requested: cancel_requested,
                ..Self::default()
            },
        }
    }

    fn failed(failed: Failed) -> Self {
        Self {
            lost: failed.runs_out_ms.map(|left_ms| Loss::Silence { left_ms }),
            failed: Some(failed),
            ..Self::default()
        }
    }

    /// Whether its claim is gone, so that nothing is left to be done for it.
    pub fn is_gone(&self) -> bool {
        matches!(self.lost, Some(Loss::Gone(_)))
    }
}

/// The life of one hold. Times are milliseconds of the boot clock.
#[derive(Debug, Clone)]
pub struct Life {
    schedule: Schedule,
    /// When it is renewed: as the schedule says, or earlier, together with others.
    renew_at_ms: u64,
    /// Whether the hold is one of many of its driver.
    is_among_many: bool,
    /// When it is looked at.
    look_at_ms: Option<u64>,
    /// Something was noticed since the last question.
    is_touched: bool,
    is_looking: bool,
    doubt: Option<Doubt>,
}

impl Life {
    /// The life of a hold whose last sign of life was at `sign_ms`.
    pub fn new(terms: LeaseTerms, sign_ms: u64) -> Self {
        let mut life = Self {
            schedule: Schedule::new(terms, sign_ms),
            renew_at_ms: 0,
            is_among_many: false,
            look_at_ms: None,
            is_touched: false,
            is_looking: false,
            doubt: None,
        };
        life.plan();
        life
    }

    /// The life of one of many holds of a driver. Its first renewal comes earlier by this share of what the schedule
    /// allows, so that not all come at once. The later ones come together with others that are due at about that time.
    #[must_use]
    pub fn among_many(mut self, share: u32) -> Self {
        if let Some(next) = self.schedule.next() {
            let early = (u128::from(next.early_ms) * u128::from(share)) >> u32::BITS;
            let early = u64::try_from(early).unwrap_or_default();
            self.renew_at_ms = next.at_ms.saturating_sub(early);
        }
        self.is_among_many = true;
        self.renew_at_ms = self.together(self.renew_at_ms);
        self
    }

    /// Until when others leave the lock alone, as far as is known now.
    pub fn lease_end(&self) -> LeaseEnd {
        LeaseEnd::new(self.schedule.lapse_ms(), self.schedule.sign_ms())
    }

    /// When [`Life::due`] has to be asked next, if nothing comes before; `None` if only an answer can come.
    pub fn next_ms(&self) -> Option<u64> {
        let next = self.schedule.next()?.at_ms;
        if self.schedule.is_asking() {
            return Some(next);
        }
        let look = self.next_look_ms().filter(|_| self.may_look());
        Some(look.map_or(self.renew_at_ms, |look| look.min(self.renew_at_ms)))
    }

    /// What there is to do now.
    pub fn due(&self, now_ms: u64) -> Step {
        if self.schedule.next().is_none() {
            return Step::Nothing;
        }
        match self.schedule.due(now_ms) {
            Due::Tell => Step::Unanswered,
            Due::Renew => Step::Ask(Ask::Renew),
            Due::Nothing if self.schedule.is_asking() => Step::Nothing,
            Due::Nothing if now_ms >= self.renew_at_ms => Step::Ask(Ask::Renew),
            Due::Nothing
                if self.may_look() && self.next_look_ms().is_some_and(|at| now_ms >= at) =>
            {
                Step::Ask(Ask::Look)
            }
            Due::Nothing => Step::Nothing,
        }
    }

    /// Has it looked at from now on at this time, and no look earlier.
    pub fn look_at(&mut self, at_ms: Option<u64>) {
        self.look_at_ms = at_ms;
    }

    /// Something was noticed: it is looked at as soon as that can be.
    pub fn touched(&mut self) {
        self.is_touched = true;
    }

    fn next_look_ms(&self) -> Option<u64> {
        if self.is_touched {
            Some(0)
        } else {
            self.look_at_ms
        }
    }

    /// Whether a look would say anything that is not asked already.
    pub fn may_look(&self) -> bool {
        !self.is_lost() && !self.is_looking && !self.schedule.is_asking()
    }

    /// Whether a renewal is under way.
    pub fn is_renewing(&self) -> bool {
        self.schedule.is_asking()
    }

    /// Whether the holder can rely on the lock by this time.
    pub fn is_reliable(&self, now_ms: u64) -> bool {
        self.schedule.is_reliable(now_ms)
    }

    /// Whether other callers may have the lock by now, as far as its holder can know.
    pub fn has_lapsed(&self, now_ms: u64) -> bool {
        self.schedule.has_lapsed(now_ms)
    }

    /// Whether its holder must not rely on the lock.
    pub fn is_lost(&self) -> bool {
        self.schedule.is_told()
    }

    /// Notes that the store is asked now.
    pub fn begin(&mut self, ask: Ask, now_ms: u64) {
        self.is_touched = false;
        match ask {
            Ask::Renew => self.schedule.begin(now_ms),
            Ask::Look => self.is_looking = true,
        }
    }

    /// Notes that no answer comes any more to what was asked: whoever asked has ended.
    pub fn forget_questions(&mut self) {
        self.schedule.forget_question();
        self.is_looking = false;
    }

    /// Takes in an answer.
    pub fn answered<E>(&mut self, ask: Ask, answer: &Result<Renewal, E>, now_ms: u64) -> News {
        let renews = match ask {
            Ask::Renew => self.schedule.is_asking(),
            Ask::Look => {
                self.is_looking = false;
                false
            }
        };
        match answer {
            Ok(Renewal::Lost) => self.lose(None),
            Ok(Renewal::Renewed {
                cancel_requested, ..
            }) => {
                let is_back = renews && self.schedule.renewed();
                if renews {
                    self.plan();
                }
                News {
                    is_back,
                    stop_requested: *cancel_requested,
                    ..News::default()
                }
            }
            Err(_) if renews => {
                let failed = self.schedule.failed(now_ms);
                self.plan();
                News::failed(failed)
            }
            Err(_) => News {
                is_unsure: ask == Ask::Look,
                ..News::default()
            },
        }
    }

    /// Ends the wait for the answer to a renewal: no time is left.
    pub fn unanswered(&mut self, now_ms: u64) -> News {
        let failed = self.schedule.unanswered(now_ms);
        News::failed(failed)
    }

    /// Notes that the lease is over, if it is: this process was stopped, say.
    pub fn lapse(&mut self, now_ms: u64) -> News {
        if self.is_lost() || !self.has_lapsed(now_ms) {
            return News::default();
        }
        let is_asking = self.is_renewing();
        let mut news = self.unanswered(now_ms);
        // Where nothing was asked, no renewal has failed.
        news.failed = news.failed.filter(|_| is_asking);
        news
    }

    /// Takes in what the holder saw of its own files. A state that may be the middle of another program's write is a loss
    /// only if it stays.
    pub fn looked<E>(&mut self, seen: Result<Own, E>, now_ms: u64) -> News {
        self.is_looking = false;
        let unsure = |is_unsure| News {
            is_unsure,
            ..News::default()
        };
        match seen {
            // Not known is not lost; the next look may know.
            Err(_) => unsure(true),
            Ok(Own::Stands(renewal)) => {
                self.doubt = None;
                self.answered(Ask::Look, &Ok::<_, E>(renewal), now_ms)
            }
            Ok(Own::Unsettled(renewal)) => {
                let watched_ms = self.doubt_more(now_ms).watched_ms;
                let mut news = self.answered(Ask::Look, &Ok::<_, E>(renewal), now_ms);
                news.is_unsure = watched_ms < millis(UNSETTLED_MAX);
                news
            }
            Ok(Own::Lost(what)) => self.lose(Some(what)),
            Ok(Own::Doubtful(what)) => {
                if self.doubt_more(now_ms).is_over() {
                    self.lose(Some(what))
                } else {
                    unsure(!self.is_lost())
                }
            }
        }
    }

    /// Notes that the claim is gone. Reported once.
    pub fn lose(&mut self, what: Option<String>) -> News {
        News {
            lost: (self.schedule.lost()).then_some(Loss::Gone(what)),
            ..News::default()
        }
    }

    fn doubt_more(&mut self, now_ms: u64) -> Doubt {
        let doubt = Doubt::after(self.doubt, now_ms);
        self.doubt = Some(doubt);
        doubt
    }

    /// Plans the next renewal.
    fn plan(&mut self) {
        if let Some(next) = self.schedule.next() {
            self.renew_at_ms = self.together(next.at_ms);
        }
    }

    /// The time at which a renewal is done with others: never later than `at_ms`, and so little earlier that
    /// the interval stays what it is.
    fn together(&self, at_ms: u64) -> u64 {
        if !self.is_among_many {
            return at_ms;
        }
        let step = TOGETHER_MS.min(self.schedule.interval_ms() / 16).max(1);
        at_ms - at_ms % step
    }
}

/// Until when others leave a lock alone, for all threads that work under it. Times are milliseconds of the boot clock,
/// which also runs while this process is stopped or its machine sleeps.
#[derive(Debug)]
pub struct LeaseEnd {
    lapse_ms: Option<u64>,
    /// When the last renewal that succeeded was begun.
    renewed_ms: AtomicU64,
}

impl LeaseEnd {
    /// The end of a hold whose last sign of life was at `sign_ms`. After a silence of `lapse_ms` others may take the
    /// lock although its holder lives; without it they never may.
    pub fn new(lapse_ms: Option<u64>, sign_ms: u64) -> Self {
        Self {
            lapse_ms,
            renewed_ms: AtomicU64::new(sign_ms),
        }
    }

    /// The silence after which others may take the lock although its holder lives.
    pub fn lapse_ms(&self) -> Option<u64> {
        self.lapse_ms
    }

    /// The last sign of life.
    pub fn sign_ms(&self) -> u64 {
        self.renewed_ms.load(Ordering::Acquire)
    }

    /// Notes that a renewal has succeeded that was begun at this time.
    pub fn renewed(&self, began_ms: u64) {
        self.renewed_ms.fetch_max(began_ms, Ordering::AcqRel);
    }

    /// How long others leave the lock alone, if no renewal succeeds before; `None` if no silence ends the hold.
    pub fn left_ms(&self, now_ms: u64) -> Option<u64> {
        let end_ms = |lapse_ms| self.sign_ms().saturating_add(lapse_ms);
        self.lapse_ms
            .map(|lapse_ms| end_ms(lapse_ms).saturating_sub(now_ms))
    }

    /// Whether others may have the lock by now.
    pub fn is_over(&self, now_ms: u64) -> bool {
        self.left_ms(now_ms) == Some(0)
    }
}

/// How long a renewal in a folder waits for a process that is stopped in the middle of a change: other holds are renewed
/// behind it, and the next try is not far.
pub const RENEWAL_MAX: Duration = Duration::from_millis(500);

/// Renewals that are due within this many milliseconds are done together: a wake-up costs as much as
/// a renewal.
const TOGETHER_MS: u64 = 250;

/// How often, and for how long, the files of a lock have to be in a state that may be the middle of another
/// program's write, before the lock counts as lost. Of the time between two looks no more than the last figure
/// counts: a driver that was stopped, or had no processor, has seen nothing of it.
const DOUBT_LOOKS: u32 = 3;
const DOUBT: Duration = Duration::from_millis(500);
const DOUBT_GAP_MAX: Duration = Duration::from_millis(250);

/// For how long a record that no caller can read is looked at again and again. A program that writes it in two steps has
/// long written the second by then; what is written later wakes the holder.
const UNSETTLED_MAX: Duration = Duration::from_secs(10);

/// Looks in a row that found a lock in such a state.
#[derive(Debug, Clone, Copy)]
struct Doubt {
    looks: u32,
    watched_ms: u64,
    last_ms: u64,
}

impl Doubt {
    /// Counts a further look.
    fn after(before: Option<Self>, now_ms: u64) -> Self {
        match before {
            None => Self {
                looks: 1,
                watched_ms: 0,
                last_ms: now_ms,
            },
            Some(before) => {
                let gap = now_ms.saturating_sub(before.last_ms);
                Self {
                    looks: before.looks.saturating_add(1),
                    watched_ms: before.watched_ms + gap.min(millis(DOUBT_GAP_MAX)),
                    last_ms: now_ms,
                }
            }
        }
    }

    /// Whether it is the middle of a write no more.
    fn is_over(self) -> bool {
        self.looks >= DOUBT_LOOKS && self.watched_ms >= millis(DOUBT)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
