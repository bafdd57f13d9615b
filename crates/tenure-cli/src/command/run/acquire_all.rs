//! Takes the locks of a run in order, all or none, and gives them back.
//!
//! Every run takes several locks in the same order: a group first, then by name. So two runs that
//! want the same ones never wait for each other.

use crate::command::attend::{Interruption, NoLocks, Tend};
use crate::command::refusal::note_superseded;
use crate::command::session::Session;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::Reporter;
use crate::signals;
use crate::supervise::locks::{self, RunLock};
use std::time::Duration;
use tenure_core::{Claim, LeaseTerms, LockName, Now, Renewal, Request, RequestId};
use tenure_engine::audit::Occasion;
use tenure_engine::engine::{Limits, Lot, Wait};
use tenure_engine::inherited;
use tenure_engine::keep::{Ask, Life, Step};
use tenure_os::clock::Clock;
use tenure_os::offload::at_once;
use tenure_store::profile::known_as;
use tenure_store::{Handle, Verbs};

/// A lock that a run wants.
pub(crate) struct RunTarget<'a> {
    pub(crate) session: &'a Session,
    pub(crate) name: LockName,
    pub(crate) request: Request,
}

/// A lock that it has.
pub(crate) struct Hold<'a> {
    pub(crate) session: &'a Session,
    pub(crate) claim: Claim,
    pub(crate) handle: Box<dyn Handle>,
    /// The id under which the audit knows it.
    pub(crate) id: RequestId,
    /// The requests that gave up their place for it.
    pub(crate) displaced: Vec<RequestId>,
    /// When it is renewed: from its grant on, while the run waits for others and while its command runs.
    pub(crate) life: Life,
}

impl Hold<'_> {
    pub(crate) fn name(&self) -> &LockName {
        self.handle.name()
    }

    /// An occasion for the audit on which its holder acts.
    pub(crate) fn occasion(&self, now: &Now) -> Occasion<'_> {
        let holder = Some(&self.claim.holder);
        self.session.occasion(self.name(), &self.id, holder, now)
    }

    /// Has its lines written that were held back.
    pub(crate) fn catch_up(&self) {
        self.session.audit_writer.catch_up();
    }

    /// The hold in the form that the driver takes.
    pub(crate) fn held<'b>(&'b self, on_heartbeat_failed: &'b dyn Fn(u32, &str)) -> RunLock<'b> {
        RunLock {
            store: &self.session.store,
            handle: &*self.handle,
            on_heartbeat_failed,
        }
    }

    /// Looks, without a change, whether another caller has it or asks for it. If that is not known, neither.
    fn look(&self) -> Option<Interruption> {
        let name = || self.name().clone();
        match self
            .session
            .store
            .verify(&*self.handle, &self.session.clock.now())
        {
            Ok(Renewal::Lost) => Some(Interruption::Lost { name: name() }),
            Ok(Renewal::Renewed {
                cancel_requested: true,
                ..
            }) => {
                let by = locks::who_asks(&self.held(&|_, _| {}), &self.session.clock.now());
                let by = Box::new(by.map_or_else(locks::unknown, |asked| asked.cancel));
                Some(Interruption::WantedBack { name: name(), by })
            }
            Ok(Renewal::Renewed { .. }) | Err(_) => None,
        }
    }

    /// Renews it, if that is due. A failed renewal is tried again when the schedule says so, here or by the
    /// supervisor.
    fn keep_fresh(&mut self) {
        if self.life.due(self.session.clock.now().boot_ms) != Step::Nothing {
            self.renew();
        }
    }

    fn renew(&mut self) {
        let now = self.session.clock.now();
        self.life.begin(Ask::Renew, now.boot_ms);
        let answer = signals::unstopped(|| self.session.store.renew(&*self.handle, &now));
        let now = self.session.clock.now();
        let news = self.life.answered(Ask::Renew, &answer, now.boot_ms);
        if let (Some(failed), Err(error)) = (news.failed, answer)
            && failed.is_event
        {
            let occasion = self.occasion(&now);
            let audit_writer = &self.session.audit_writer;
            audit_writer.heartbeat_failed(occasion, failed.consecutive, &error.to_string());
        }
    }

    /// Why the wait for the next lock has to end.
    fn tend(&mut self) -> Option<Interruption> {
        self.keep_fresh();
        if self.life.has_lapsed(self.session.clock.now().boot_ms) {
            let name = self.name().clone();
            return Some(Interruption::Lost { name });
        }
        self.look()
    }

    /// Why no command may start under it. If its lease is about to run out, or has run out while this process
    /// was stopped, one more renewal is tried.
    fn refuses_start(&mut self) -> Option<Interruption> {
        self.keep_fresh();
        if !self.is_reliable() {
            self.renew();
        }
        if self.is_reliable() {
            return self.look();
        }
        let name = self.name().clone();
        Some(Interruption::Lost { name })
    }

    fn is_reliable(&self) -> bool {
        let now_ms = self.session.clock.now().boot_ms;
        self.life.is_reliable(now_ms)
    }
}

/// The life of a granted claim.
pub(crate) fn life_of(session: &Session, claim: &Claim) -> Life {
    let ttl = Duration::from_millis(claim.lease.ttl_ms);
    let lapse = session.store.rules().lapse(ttl);
    let lapse_ms = lapse.map(|lapse| u64::try_from(lapse.as_millis()).unwrap_or(u64::MAX));
    let terms = LeaseTerms {
        ttl_ms: claim.lease.ttl_ms,
        lapse_ms,
        grace_ms: claim.grace_ms,
        network: session.store.is_remote(),
    };
    Life::new(terms, claim.lease.renewed.boot_ms)
}

/// Renews the run's locks while a hook keeps it from going on.
pub(super) fn keep_fresh(holds: &mut [Hold<'_>]) {
    holds.iter_mut().for_each(Hold::keep_fresh);
}

/// The lock that another request asks for.
#[cold]
#[inline(never)]
pub(super) fn asked_for(holds: &[Hold<'_>]) -> Option<LockName> {
    let asked = |hold: &&Hold<'_>| matches!(hold.look(), Some(Interruption::WantedBack { .. }));
    holds.iter().find(asked).map(|hold| hold.name().clone())
}

/// The lock that is proven not to be this run's any more.
#[cold]
#[inline(never)]
pub(super) fn lost(holds: &[Hold<'_>]) -> Option<LockName> {
    let is_lost = |hold: &&Hold<'_>| matches!(hold.look(), Some(Interruption::Lost { .. }));
    holds.iter().find(is_lost).map(|hold| hold.name().clone())
}

/// Refuses to start the command if another request asks for one of the locks, or one is lost.
#[cold]
#[inline(never)]
pub(super) fn refuse_start(holds: &mut [Hold<'_>]) -> Result<(), Failure> {
    match holds.iter_mut().find_map(Hold::refuses_start) {
        Some(interruption) => Err(interruption.failure()),
        None => Ok(()),
    }
}

/// Takes one lock after the other, within one wait. A failure comes with the locks that were taken before
/// it; the caller gives them back.
pub(crate) fn acquire_all<'a>(
    targets: Vec<RunTarget<'a>>,
    limits: Limits,
    reporter: &mut Reporter,
) -> Result<Vec<Hold<'a>>, (Vec<Hold<'a>>, Failure)> {
    at_once(acquire_all_in(None, targets, limits, reporter))
}

/// [`acquire_all`] for a caller that sleeps in a lot.
pub(crate) async fn acquire_all_in<'a>(
    lot: Option<&dyn Lot>,
    targets: Vec<RunTarget<'a>>,
    mut limits: Limits,
    reporter: &mut Reporter,
) -> Result<Vec<Hold<'a>>, (Vec<Hold<'a>>, Failure)> {
    let mut holds: Vec<Hold<'a>> = Vec::with_capacity(targets.len());
    let mut may_be_asked = false;
    for target in targets {
        let RunTarget {
            session,
            name,
            request,
        } = target;
        // The next lock may take long.
        holds.iter().for_each(Hold::catch_up);
        let (mut none, mut some);
        let tend: &mut (dyn Tend + Send + Sync) = if holds.is_empty() {
            none = NoLocks;
            &mut none
        } else {
            some = HoldsSoFar(&mut holds);
            &mut some
        };
        let taken = session.acquire_in(lot, reporter, &name, &request, limits, tend);
        let acquired = match taken.await {
            Ok(acquired) => acquired,
            Err(mut failure) => {
                let displaced = holds.iter().flat_map(|hold| &hold.displaced);
                note_superseded(&mut failure, &displaced.cloned().collect::<Vec<_>>());
                return Err((holds, failure));
            }
        };
        let Some(handle) = acquired.handle else {
            let failure = Failure::new(
                Exit::General,
                "NO_SEAT",
                "the lock was granted without a place to hold it by",
            );
            return Err((holds, failure));
        };
        if let Some(token) = acquired.claim.token {
            reporter.explain(&format!("holding {name}, fencing token {token}"));
        }
        let hold = Hold {
            session,
            id: RequestId::as_recorded(known_as(&acquired.claim.holder)),
            life: life_of(session, &acquired.claim),
            claim: acquired.claim,
            handle,
            displaced: acquired.displaced,
        };
        may_be_asked |= hold.claim.queueing.yields() || !holds.is_empty();
        holds.push(hold);
        if let Wait::For(left) = limits.wait {
            let left = left.saturating_sub(acquired.waited);
            limits.wait = if left.is_zero() {
                Wait::No
            } else {
                Wait::For(left)
            };
        }
    }
    // A plain lock that was granted this instant is fresh, and no request asks for it yet.
    if may_be_asked && let Err(failure) = refuse_start(&mut holds) {
        return Err((holds, failure));
    }
    Ok(holds)
}

/// The locks that a run has while it waits for the next one.
struct HoldsSoFar<'a, 'b>(&'b mut Vec<Hold<'a>>);

impl Tend for HoldsSoFar<'_, '_> {
    fn tend(&mut self) -> Option<Interruption> {
        self.0.iter_mut().find_map(Hold::tend)
    }

    fn holds(&self) -> Vec<inherited::Hold> {
        let holds = self.0.iter().map(|hold| inherited::Hold {
            token: hold.claim.token.unwrap_or_default(),
            folder: hold.session.place.folder.clone(),
            name: hold.name().as_str().to_owned(),
        });
        holds.collect()
    }
}
