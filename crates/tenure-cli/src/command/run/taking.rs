//! Takes the locks of a run in order, all or none, and gives them back.
//!
//! Everybody takes several locks in the same order (a group first, then by name), so two runs that
//! want the same ones never wait for each other.

use crate::command::attend::{NoLocks, Tend, WantedBack};
use crate::command::{Session, superseded};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::holds;
use crate::render::Surface;
use crate::store::Seat;
use crate::supervise::heartbeats::Heartbeats;
use crate::supervise::locks::{self, Held};
use std::time::{Duration, Instant};
use tenure::clock::{Clock, instant};
use tenure::core::{Claim, LockName, Renewal, Request, RequestId};
use tenure::engine::{Keep, Limits, Wait};
use tenure::profile::known_as;
use tenure::store::Store;

/// A lock that a run wants.
pub(crate) struct Target<'a> {
    pub(crate) session: &'a Session,
    pub(crate) name: LockName,
    pub(crate) request: Request,
}

/// A lock that it has.
pub(crate) struct Hold<'a> {
    pub(crate) session: &'a Session,
    pub(crate) claim: Claim,
    pub(crate) seat: Seat,
    /// The id under which the audit knows it.
    pub(crate) id: RequestId,
    /// Who gave up a place for it.
    pub(crate) displaced: Vec<RequestId>,
    /// When it was renewed last while the run waited for others.
    renewed: Instant,
}

impl Hold<'_> {
    pub(crate) fn name(&self) -> &LockName {
        self.seat.name()
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(self.claim.lease.ttl_ms)
    }

    /// Its renewals from now on.
    pub(crate) fn heartbeats(&self) -> Heartbeats {
        let limit = self.session.store.lapses(self.ttl());
        let granted = Duration::from_millis(self.claim.lease.renewed.boot_ms);
        let grace = Duration::from_millis(self.claim.grace_ms);
        let heartbeats = Heartbeats::new(self.ttl(), limit, granted).leaving(grace);
        if self.session.store.is_remote() {
            heartbeats.over_a_network()
        } else {
            heartbeats
        }
    }

    /// As the driver wants it.
    pub(crate) fn held<'b>(&'b self, on_heartbeat_failed: &'b dyn Fn(u32, &str)) -> Held<'b> {
        Held {
            store: &self.session.store,
            seat: &self.seat,
            on_heartbeat_failed,
        }
    }

    /// Whether somebody asks for it.
    fn wanted_back(&self) -> Option<WantedBack> {
        let by = locks::who_asks(&self.held(&|_, _| {}))?;
        let name = self.name().clone();
        Some(WantedBack { name, by })
    }

    /// Renews it, if it is about time. A failed renewal is tried again by the next look, and by the
    /// supervisor's own.
    fn keep_fresh(&mut self) {
        let is_silent_soon = self.renewed.elapsed() >= self.ttl() / 3;
        if is_silent_soon
            && let Ok(Renewal::Renewed { .. }) =
                (self.session.store).renew(&self.seat, &self.session.clock.now())
        {
            self.renewed = instant();
        }
    }
}

/// Renews what the run has while it is kept from its command.
pub(super) fn keep_fresh(holds: &mut [Hold<'_>]) {
    holds.iter_mut().for_each(Hold::keep_fresh);
}

/// Which of the locks somebody asks for.
#[cold]
#[inline(never)]
pub(super) fn asked_for(holds: &[Hold<'_>]) -> Option<LockName> {
    let wanted = holds.iter().find_map(Hold::wanted_back)?;
    Some(wanted.name)
}

/// Which of the locks is proven to be somebody else's.
#[cold]
#[inline(never)]
pub(super) fn lost(holds: &[Hold<'_>]) -> Option<LockName> {
    let is_lost = |hold: &&Hold<'_>| {
        let verified = hold.session.store.verify(&hold.seat);
        matches!(verified, Ok(Renewal::Lost))
    };
    holds.iter().find(is_lost).map(|hold| hold.name().clone())
}

/// Whether somebody asks for one of the locks before the command has started, which then never
/// starts.
#[cold]
#[inline(never)]
pub(super) fn refuse_asked_for(holds: &[Hold<'_>]) -> Result<(), Failure> {
    match holds.iter().find_map(Hold::wanted_back) {
        Some(WantedBack { name, by }) => Err(superseded(&name, &by)),
        None => Ok(()),
    }
}

/// Takes one lock after the other, within one wait. Whatever was taken before a failure comes back
/// with it, for the caller to give back.
pub(crate) fn take_all<'a>(
    targets: Vec<Target<'a>>,
    mut wait: Wait,
    keep: Option<Keep>,
    surface: &mut Surface,
) -> Result<Vec<Hold<'a>>, (Vec<Hold<'a>>, Failure)> {
    let mut holds: Vec<Hold<'a>> = Vec::with_capacity(targets.len());
    let mut may_be_asked = false;
    for target in targets {
        let Target {
            session,
            name,
            request,
        } = target;
        let limits = Limits { wait, keep };
        let taken = if holds.is_empty() {
            session.acquire(surface, &name, &request, limits, &mut NoLocks)
        } else {
            session.acquire(surface, &name, &request, limits, &mut Taken(&mut holds))
        };
        let acquired = match taken {
            Ok(acquired) => acquired,
            Err(failure) => return Err((holds, failure)),
        };
        let Some(seat) = acquired.seat else {
            let failure = Failure::new(
                Exit::General,
                "NO_SEAT",
                "the lock was granted without a place to hold it by",
            );
            return Err((holds, failure));
        };
        if let Some(token) = acquired.claim.token {
            surface.explain(&format!("holding {name}, token {token}"));
        }
        let hold = Hold {
            session,
            id: RequestId::as_recorded(known_as(&acquired.claim.holder)),
            claim: acquired.claim,
            seat,
            displaced: acquired.displaced,
            renewed: instant(),
        };
        may_be_asked |= hold.claim.queueing.yields() || !holds.is_empty();
        holds.push(hold);
        if let Wait::For(left) = wait {
            let left = left.saturating_sub(acquired.waited);
            wait = if left.is_zero() {
                Wait::No
            } else {
                Wait::For(left)
            };
        }
    }
    // A plain lock that was granted this instant is asked for by nobody yet.
    if may_be_asked && let Err(failure) = refuse_asked_for(&holds) {
        return Err((holds, failure));
    }
    Ok(holds)
}

/// What was taken already, while the next one is waited for.
struct Taken<'a, 'b>(&'b mut Vec<Hold<'a>>);

impl Tend for Taken<'_, '_> {
    fn tend(&mut self) -> Option<WantedBack> {
        keep_fresh(self.0);
        self.0.iter().find_map(Hold::wanted_back)
    }

    fn holds(&self) -> Vec<holds::Hold> {
        let holds = self.0.iter().map(|hold| holds::Hold {
            token: hold.claim.token.unwrap_or_default(),
            folder: hold.session.place.folder.display().to_string(),
            name: hold.name().as_str().to_owned(),
        });
        holds.collect()
    }
}
