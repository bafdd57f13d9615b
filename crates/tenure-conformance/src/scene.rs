//! The steps that the promises of the suite are told in: entering and expecting a grant, waiting
//! and expecting to be woken, and reporting what was seen instead.
//!
//! What it leaves to others: what is promised (`conformance`).

use super::{Broken, Harness, TTL_MS};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ScopedJoinHandle};
use std::time::Instant;
use tenure_core::{
    Claim, Entering, Entry, Event, Evidence, Force, Holder, Kind, Left, LivenessLock, LockName,
    Now, Ownership, Patience, Policy, Predecessor, Process, Refusal, Renewal, Request, RequestId,
    Standing, TryGrant,
};
use tenure_os::clock::{Clock, SystemClock, instant};
use tenure_store::contract::Which;
use tenure_store::verbs::{Entered, Tried};
use tenure_store::{Content, Handle, Reading, Store, Verbs, Wake};

/// What one promise has: its name for the report, a lock of its own, and the steps that the promises are
/// told in.
pub(super) struct Scene<'a, H> {
    pub(super) harness: &'a H,
    promise: &'static str,
    pub(super) name: LockName,
    pub(super) clock: SystemClock,
}

/// A claim that waits.
pub(super) struct WaitingClaim {
    pub(super) handle: Box<dyn Handle>,
    pub(super) ticket: u64,
    pub(super) behind: Predecessor,
}

/// A claim that holds.
pub(super) struct HoldingClaim {
    pub(super) handle: Box<dyn Handle>,
    pub(super) ticket: u64,
    pub(super) token: u64,
    events: Vec<Event>,
}

impl HoldingClaim {
    /// The ticket of the claim that this one was taken over from.
    pub(super) fn stolen(&self) -> Option<u64> {
        self.events.iter().find_map(|event| match event {
            Event::Stolen { previous, .. } => previous.as_ref().map(|claim| claim.ticket),
            _ => None,
        })
    }
}

/// Says that a thread has ended, however it does.
pub(super) struct Countdown<'a>(pub(super) &'a AtomicU64);

impl Drop for Countdown<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(super) fn tickets(entry: &Entry) -> Vec<u64> {
    entry.claims.iter().map(|claim| claim.ticket).collect()
}

pub(super) fn later(now: &Now, milliseconds: u64) -> Now {
    Now {
        wall_us: now.wall_us + milliseconds * 1_000,
        boot_ms: now.boot_ms + milliseconds,
        boot_id: now.boot_id.clone(),
    }
}

pub(super) fn owned_by(id: &str) -> impl Fn(&Claim) -> Ownership + '_ {
    move |claim| {
        if claim.holder.request_id.as_str() == id {
            Ownership::Shown
        } else {
            Ownership::Missing
        }
    }
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a, H: Harness> Scene<'a, H> {
    pub(super) fn new(harness: &'a H, promise: &'static str) -> Result<Self, Broken> {
        let scene = Self {
            harness,
            promise,
            name: harness.name(),
            clock: SystemClock::new(harness.host().boot_id.as_deref()),
        };
        let policy = harness.store().rules().policy;
        scene.same("the policy of the store", &policy, &Policy::NATIVE)?;
        Ok(scene)
    }

    pub(super) fn broken(&self, what: impl Into<String>) -> Broken {
        Broken {
            promise: self.promise,
            what: what.into(),
        }
    }

    pub(super) fn holds(&self, holds: bool, what: impl FnOnce() -> String) -> Result<(), Broken> {
        if holds {
            Ok(())
        } else {
            Err(self.broken(what()))
        }
    }

    pub(super) fn same<T: PartialEq + fmt::Debug>(
        &self,
        what: &str,
        seen: &T,
        expected: &T,
    ) -> Result<(), Broken> {
        self.holds(seen == expected, || {
            format!("{what}: expected {expected:?}, saw {seen:?}")
        })
    }

    /// The answer of a call that must not fail.
    pub(super) fn done<T, E: fmt::Display>(
        &self,
        doing: &str,
        answer: Result<T, E>,
    ) -> Result<T, Broken> {
        answer.map_err(|error| self.broken(format!("{doing} failed: {error}")))
    }

    pub(super) fn joined(&self, ended: thread::Result<Result<(), Broken>>) -> Result<(), Broken> {
        ended.unwrap_or_else(|_| Err(self.broken("a caller panicked")))
    }

    /// Waits for the end of all these callers. The first that failed is the answer.
    pub(super) fn all_joined<'t>(
        &self,
        callers: impl IntoIterator<Item = ScopedJoinHandle<'t, Result<(), Broken>>>,
    ) -> Result<(), Broken> {
        let ended = callers.into_iter().map(|caller| self.joined(caller.join()));
        ended.fold(Ok(()), Result::and)
    }

    /// A new caller.
    pub(super) fn store(&self) -> H::Store {
        self.harness.store()
    }

    pub(super) fn now(&self) -> Now {
        self.clock.now()
    }

    /// A supervised claim that queues.
    pub(super) fn request(&self, id: &str) -> Result<Request, Broken> {
        Ok(Request {
            holder: Holder {
                facts: Vec::new(),
                request_id: self.done("naming a request", RequestId::new(id))?,
                actor: "conformance".to_owned(),
                process: None,
                command: None,
                host: self.harness.host().into(),
                why: self.promise.to_owned(),
            },
            kind: Kind::Kernel,
            ttl_ms: TTL_MS,
            force: Force::No,
            patience: Patience::Queue,
            terms: tenure_core::Terms::default(),
        })
    }

    pub(super) fn detached(&self, id: &str, owner: Option<Process>) -> Result<Request, Broken> {
        let mut request = self.request(id)?;
        request.kind = Kind::Detached;
        request.holder.process = owner;
        Ok(request)
    }

    pub(super) fn enter(
        &self,
        store: &H::Store,
        request: Request,
        now: &Now,
    ) -> Result<Entered, Broken> {
        self.done("entering", store.enter(&self.name, request, now))
    }

    pub(super) fn handle(
        &self,
        handle: Option<Box<dyn Handle>>,
    ) -> Result<Box<dyn Handle>, Broken> {
        handle.ok_or_else(|| self.broken("a claim came without a handle"))
    }

    /// Enters with [`Scene::request`], and is granted at once.
    pub(super) fn granted(&self, store: &H::Store, id: &str) -> Result<HoldingClaim, Broken> {
        self.granted_request(store, self.request(id)?)
    }

    pub(super) fn granted_request(
        &self,
        store: &H::Store,
        request: Request,
    ) -> Result<HoldingClaim, Broken> {
        self.granted_at(store, request, &self.now())
    }

    /// A hold of a new process.
    pub(super) fn detached_hold(
        &self,
        store: &H::Store,
        id: &str,
    ) -> Result<(Process, HoldingClaim), Broken> {
        let owner = self.harness.start_process();
        let held = self.granted_request(store, self.detached(id, Some(owner))?)?;
        Ok((owner, held))
    }

    pub(super) fn granted_at(
        &self,
        store: &H::Store,
        request: Request,
        now: &Now,
    ) -> Result<HoldingClaim, Broken> {
        self.holding(self.enter(store, request, now)?)
    }

    pub(super) fn holding(&self, entered: Entered) -> Result<HoldingClaim, Broken> {
        match entered.entering {
            Entering::Granted { ticket, token } => {
                let written = entered.entry.claim(ticket).and_then(|claim| claim.token);
                self.same("the token in the list", &written, &Some(token))?;
                Ok(HoldingClaim {
                    handle: self.handle(entered.handle)?,
                    ticket,
                    token,
                    events: entered.events,
                })
            }
            other => Err(self.broken(format!("expected a grant, saw {other:?}"))),
        }
    }

    /// Enters with [`Scene::request`], and has to queue.
    pub(super) fn queued(&self, store: &H::Store, id: &str) -> Result<WaitingClaim, Broken> {
        self.queued_request(store, self.request(id)?)
    }

    pub(super) fn queued_request(
        &self,
        store: &H::Store,
        request: Request,
    ) -> Result<WaitingClaim, Broken> {
        self.placed(self.enter(store, request, &self.now())?)
    }

    pub(super) fn placed(&self, entered: Entered) -> Result<WaitingClaim, Broken> {
        match entered.entering {
            Entering::Queued { ticket, behind } => Ok(WaitingClaim {
                handle: self.handle(entered.handle)?,
                ticket,
                behind,
            }),
            other => Err(self.broken(format!("expected a place in the queue, saw {other:?}"))),
        }
    }

    pub(super) fn refused(&self, store: &H::Store, request: Request) -> Result<Refusal, Broken> {
        let entered = self.enter(store, request, &self.now())?;
        self.holds(entered.handle.is_none(), || {
            "a refused claim has a handle".to_owned()
        })?;
        match entered.entering {
            Entering::Refused(refusal) => Ok(refusal),
            other => Err(self.broken(format!("expected a refusal, saw {other:?}"))),
        }
    }

    pub(super) fn sleep(
        &self,
        store: &H::Store,
        waiting: &WaitingClaim,
        until: Instant,
    ) -> Result<Wake, Broken> {
        let woken = store.sleep(&*waiting.handle, &waiting.behind, &self.now(), Some(until));
        self.done("sleeping", woken)
    }

    /// Looks once; the claim has to stand behind another one still.
    pub(super) fn tries(
        &self,
        store: &H::Store,
        waiting: WaitingClaim,
    ) -> Result<WaitingClaim, Broken> {
        match self.tried(store, &*waiting.handle)?.grant {
            TryGrant::Behind(behind) => Ok(WaitingClaim { behind, ..waiting }),
            other => Err(self.broken(format!("expected to wait on, saw {other:?}"))),
        }
    }

    pub(super) fn tried(&self, store: &H::Store, handle: &dyn Handle) -> Result<Tried, Broken> {
        self.done("looking", store.try_grant(handle, &self.now()))
    }

    /// Looks at what the claim stands behind.
    pub(super) fn stands_behind(&self, waiting: &WaitingClaim, ticket: u64) -> Result<(), Broken> {
        self.same(
            "what the claim stands behind",
            &waiting.behind,
            &Predecessor::LivenessLock { ticket },
        )
    }

    /// Looks at what the claim stands behind, where that is a hold without a liveness lock.
    pub(super) fn stands_behind_record(
        &self,
        waiting: &WaitingClaim,
        ticket: u64,
    ) -> Result<(), Broken> {
        let behind = &waiting.behind;
        self.holds(
            matches!(behind, Predecessor::Record(claim) if claim.ticket == ticket),
            || format!("expected to stand behind the record {ticket}, saw {behind:?}"),
        )
    }

    /// Sleeps and looks until the claim holds, and releases it.
    pub(super) fn takes_its_turn(
        &self,
        store: &H::Store,
        waiting: WaitingClaim,
    ) -> Result<(), Broken> {
        let held = self.wait(store, waiting)?;
        self.release(store, &held)
    }

    /// Sleeps and looks until the claim holds.
    pub(super) fn wait(
        &self,
        store: &H::Store,
        mut waiting: WaitingClaim,
    ) -> Result<HoldingClaim, Broken> {
        let mut events = Vec::new();
        let patience = self.harness.patience();
        let end = instant() + patience;
        loop {
            let woken = self.sleep(store, &waiting, end)?;
            self.holds(woken == Wake::Ready && instant() < end, || {
                format!("a waiter was not woken within {patience:?} ({woken:?})")
            })?;
            let advanced = self.tried(store, &*waiting.handle)?;
            events.extend(advanced.events);
            match advanced.grant {
                TryGrant::Granted { token } => {
                    let written = advanced.entry.claim(waiting.ticket);
                    let written = written.and_then(|claim| claim.token);
                    self.same("the token in the list", &written, &Some(token))?;
                    return Ok(HoldingClaim {
                        handle: waiting.handle,
                        ticket: waiting.ticket,
                        token,
                        events,
                    });
                }
                TryGrant::Behind(behind) => waiting.behind = behind,
                other => return Err(self.broken(format!("expected a grant, saw {other:?}"))),
            }
        }
    }

    pub(super) fn leave(
        &self,
        store: &H::Store,
        handle: &dyn Handle,
        expected: &Left,
    ) -> Result<(), Broken> {
        let left = self.done("leaving", store.release(handle, &self.now()))?;
        self.same("what leaving did", &left, expected)
    }

    pub(super) fn release(&self, store: &H::Store, held: &HoldingClaim) -> Result<(), Broken> {
        self.leave_hold(store, &*held.handle)
    }

    /// Gives up waiting.
    pub(super) fn withdraw(&self, store: &H::Store, waiting: &WaitingClaim) -> Result<(), Broken> {
        self.leave(store, &*waiting.handle, &Left::Withdrawn)
    }

    pub(super) fn leave_hold(&self, store: &H::Store, handle: &dyn Handle) -> Result<(), Broken> {
        match self.done("leaving", store.release(handle, &self.now()))? {
            Left::Released { .. } => Ok(()),
            other => Err(self.broken(format!("leaving a hold answered {other:?}"))),
        }
    }

    pub(super) fn named(
        &self,
        store: &H::Store,
        handle: &dyn Handle,
        command: Process,
    ) -> Result<(), Broken> {
        let named = self.done(
            "naming the command",
            store.name_command(handle, command, &self.now()),
        )?;
        self.same("whether the command was named", &named, &true)
    }

    pub(super) fn renewed(&self, store: &H::Store, handle: &dyn Handle) -> Result<Renewal, Broken> {
        self.done("renewing", store.renew(handle, &self.now()))
    }

    /// The list has the renewal that was made at this time.
    pub(super) fn was_renewed(
        &self,
        store: &H::Store,
        ticket: u64,
        at: &Now,
    ) -> Result<(), Broken> {
        let renewed = self.list(store)?;
        let renewed = renewed.claim(ticket).map(|claim| claim.lease.renewed);
        self.same("the recorded renewal", &renewed, &Some(at.stamp()))
    }

    pub(super) fn verified(
        &self,
        store: &H::Store,
        handle: &dyn Handle,
    ) -> Result<Renewal, Broken> {
        self.done("verifying", store.verify(handle, &self.now()))
    }

    pub(super) fn reading(&self, store: &H::Store) -> Result<Reading, Broken> {
        self.done("reading", store.read(&self.name, None))
    }

    /// How the lock stands, and by which claim.
    pub(super) fn standing(
        &self,
        store: &H::Store,
        now: &Now,
    ) -> Result<(Standing, Option<Claim>), Broken> {
        let reading = self.reading(store)?;
        let (standing, claim) = reading.standing(&store.rules().policy, now);
        Ok((standing, claim.cloned()))
    }

    pub(super) fn content(&self, store: &H::Store) -> Result<(Entry, Vec<Evidence>), Broken> {
        match self.reading(store)?.content {
            Content::Whole { entry, evidence } => {
                self.same(
                    "how many claims come with evidence",
                    &evidence.len(),
                    &entry.claims.len(),
                )?;
                Ok((entry, evidence))
            }
            Content::Unreadable { why, .. } => Err(self.broken(format!("unreadable: {why}"))),
        }
    }

    pub(super) fn list(&self, store: &H::Store) -> Result<Entry, Broken> {
        Ok(self.content(store)?.0)
    }

    /// The list is as it was. The last number of a store that draws it for all its locks may rise meanwhile: a request
    /// about another lock came late.
    pub(super) fn is_unchanged(&self, store: &H::Store, before: &Entry) -> Result<(), Broken> {
        let mut seen = self.list(store)?;
        seen.last = seen.last.min(before.last);
        self.same("the list afterwards", &seen, before)
    }

    pub(super) fn is_listed(&self, store: &H::Store) -> Result<bool, Broken> {
        let mut listed = false;
        let names = store.names(Which::Locks, &mut |name| listed |= name == self.name);
        self.done("listing", names)?;
        Ok(listed)
    }

    /// A claim may leave between the reading of the list and the look at its liveness lock; it is gone
    /// from the next reading then.
    pub(super) fn no_live_claim_looks_dead(&self, store: &H::Store) -> Result<(), Broken> {
        let (entry, evidence) = self.content(store)?;
        let mut out = entry.claims.iter().zip(&evidence);
        let Some((claim, _)) = out.find(|(_, seen)| seen.liveness_lock != LivenessLock::Held)
        else {
            return Ok(());
        };
        let after = self.list(store)?;
        self.holds(after.claim(claim.ticket).is_none(), || {
            format!("the live claim {} looks dead", claim.ticket)
        })
    }
}
