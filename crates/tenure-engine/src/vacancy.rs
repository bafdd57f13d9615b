//! Waits until a lock has room for a claim, without making one: `tenure wait`, and a program's wait.
//!
//! Whoever comes first takes the lock then. What a caller is shown meanwhile, and what else ends its wait, is the
//! caller's affair ([`Onlooker`]).

use crate::engine::{Wait, refusal_of};
use crate::view::LockView;
use std::time::{Duration, Instant};
use tenure_core::{Claim, Entry, LockName, Mode, Now, Reason, Refusal, Standing};
use tenure_os::clock::{Clock, nap};
use tenure_store::{Reading, Store, StoreError, Verbs, Wake};

/// How long one sleep lasts at most; a file deleted by hand is noticed by then.
const NAP: Duration = Duration::from_secs(10);

/// How long one sleep lasts where a waiter does not take its turn, and others may pass it any moment.
const STILL_NAP: Duration = Duration::from_secs(1);

/// How long one sleep lasts where the holders of the lock may leave room.
const ROOM_NAP: Duration = Duration::from_millis(200);

/// How long after an error of servers they are asked again.
const REACHED_AGAIN: Duration = Duration::from_millis(200);

/// A look at the lock.
#[derive(Debug)]
pub struct Look<'a> {
    /// The lock as it was read.
    pub reading: &'a Reading,
    /// The lock's facts for a claim of the mode that is asked about.
    pub view: &'a LockView,
    /// The claim that decides how it stands.
    pub front: Option<&'a Claim>,
    /// The instant of the look.
    pub now: &'a Now,
    /// Whether the caller has slept before this look.
    pub has_waited: bool,
    /// The last ticket of the list when the wait began.
    pub before: u64,
}

/// An onlooker is shown each look, and may end the wait.
pub trait Onlooker {
    /// Why it ends the wait.
    type Error: From<StoreError>;

    /// Sees a look before it is judged.
    ///
    /// # Errors
    /// - What ends the wait.
    fn sees(&mut self, look: &Look<'_>) -> Result<(), Self::Error>;

    /// Sees a look after which the caller sleeps, and says when it wants to be called again.
    ///
    /// # Errors
    /// - What ends the wait.
    fn sleeps(&mut self, look: &Look<'_>) -> Result<Option<Instant>, Self::Error>;

    /// Hears that the servers are out of reach for now.
    ///
    /// # Errors
    /// - What ends the wait.
    fn hindered(&mut self, error: &StoreError) -> Result<(), Self::Error>;
}

/// How a wait for room ended.
#[derive(Debug)]
pub struct Vacancy {
    /// The facts of the lock at the last look.
    pub view: LockView,
    /// How long the caller waited.
    pub waited: Duration,
    /// What it found.
    pub found: WaitResult,
}

/// What a wait for room found.
#[derive(Debug)]
pub enum WaitResult {
    /// The lock has room.
    Room,
    /// The lock is held and the wait timed out, or something stands there that no wait ends.
    Refused {
        /// Why, as for a caller that wanted to take it.
        refusal: Box<Refusal>,
        /// The whole list.
        entry: Box<Entry>,
        /// When a look is likely to find room.
        retry_after_ms: u64,
    },
    /// The sleep was interrupted.
    Interrupted,
}

/// Waits until a claim of this mode would hold at once, or the wait is over.
///
/// # Errors
/// - What the onlooker ends the wait with, and the errors of the store.
pub fn until_room<O: Onlooker>(
    store: &dyn Store,
    clock: &dyn Clock,
    name: &LockName,
    mode: Mode,
    limit: Wait,
    onlooker: &mut O,
) -> Result<Vacancy, O::Error> {
    let policy = store.rules().policy;
    let began = clock.instant();
    let deadline = match limit {
        Wait::No => Some(began),
        limit => limit.deadline(began),
    };
    let (mut before, mut has_waited) = (None, false);
    loop {
        let is_over = || deadline.is_some_and(|deadline| clock.instant() >= deadline);
        let reading = match store.read(name, None) {
            // Servers that were there come back. The wait goes on as long as the caller said.
            Err(error @ StoreError::Unreachable { .. }) if has_waited && !is_over() => {
                nap(REACHED_AGAIN);
                onlooker.hindered(&error)?;
                continue;
            }
            reading => reading?,
        };
        let now = clock.now();
        let (standing, front) = reading.standing(&policy, &now);
        let view = LockView::of(name, &reading, &policy, &now, |_| false);
        let view = view.for_mode(mode, &reading, &policy, &now);
        let waited = clock.instant().saturating_duration_since(began);
        let last = || reading.entry().map_or(0, |entry| entry.last);
        let look = Look {
            reading: &reading,
            view: &view,
            front,
            now: &now,
            has_waited,
            before: *before.get_or_insert_with(last),
        };
        onlooker.sees(&look)?;
        if view.available {
            let found = WaitResult::Room;
            return Ok(Vacancy {
                view,
                waited,
                found,
            });
        }
        let in_the_way = match standing {
            // Waiting ends neither: a person has to decide.
            Standing::Unreadable => Some(Reason::Unreadable),
            Standing::Stale(_) => Some(Reason::StaleNeedsForce),
            Standing::Free | Standing::Held(_) | Standing::Unknown => None,
        };
        if let Some(reason) = in_the_way.or_else(|| is_over().then_some(Reason::Held)) {
            let found = WaitResult::Refused {
                refusal: Box::new(refusal_of(&reading, &policy, mode, reason, &now)),
                entry: Box::new(reading.entry().cloned().unwrap_or_default()),
                retry_after_ms: view.retry_after_ms.unwrap_or(1_000),
            };
            return Ok(Vacancy {
                view,
                waited,
                found,
            });
        }
        has_waited = true;
        let again = onlooker.sleeps(&look)?;
        let rest = match &view.standstill {
            // The stopped waiters stand aside then.
            Some(still) if still.stands_aside_in_ms > 0 => {
                NAP.min(Duration::from_millis(still.stands_aside_in_ms))
            }
            Some(_) => STILL_NAP,
            // No byte tells that a waiter has left which stood before a claim that holds beside others.
            None if view.room.is_some() => ROOM_NAP,
            None => NAP,
        };
        let until = [deadline, again, clock.instant().checked_add(rest)];
        let until = until.into_iter().flatten().min();
        if store.watch(name, &reading, &now, until)? == Wake::Interrupted {
            let found = WaitResult::Interrupted;
            return Ok(Vacancy {
                view,
                waited,
                found,
            });
        }
    }
}
