//! What callers do with a store: each verb once, over one transaction.
//!
//! A verb runs a transition of the core on the list that the store shows, and says what the change rests
//! on. Its change is an `Fn`: a run leaves nothing behind but its draft and its answer. So a store may
//! run it as often as it likes and name the run that counts.
//!
//! What it leaves to others: which change is right (the core), and how a change is committed (the
//! store).

use super::contract::{
    About, Ask, Committed, Corrupt, Depth, Draft, Handle, NewClaim, Outcome, Parked, REMOVING,
    Ring, Rules, Run, Step, Store, Waiting, Write,
};
use super::{Cleaned, Content, ForcedRelease, Reading, RenewedOwned, StoreError, Wake};
use std::borrow::{Borrow, Cow};
use std::time::{Duration, Instant};
use tenure_core::{
    AgeLimit, AgentKey, Claim, Entering, Entry, Event, Evidence, Force, Forced, Holder, Kind, Left,
    Liveness, LivenessLock, LockName, Mode, Now, Ownership, Patience, Policy, Predecessor, Process,
    Reason, Refusal, ReleaseByOther, Released, Renewal, Request, RestsOn, Silence, StaleReason,
    StaleUnforced, Stamp, Standing, StopRequest, Takeover, TryGrant, UnreadableRule, WaitingFor,
    Watched, judge, unreadable,
};

/// The answer to [`Verbs::enter`].
#[derive(Debug)]
pub struct Entered {
    /// What happened.
    pub entering: Entering,
    /// The list afterwards, for messages and hints. If the caller waits in a long list, perhaps not all
    /// of it.
    pub entry: Entry,
    /// How many waiting claims before the caller's were left out of it.
    pub unread: usize,
    /// What an audit would record.
    pub events: Vec<Event>,
    /// The caller's claim, if it got one.
    pub handle: Option<Box<dyn Handle>>,
}

/// The answer to [`Verbs::try_grant`].
#[derive(Debug)]
pub struct Tried {
    /// What happened.
    pub grant: TryGrant,
    /// The list afterwards. Of a long one, perhaps not all.
    pub entry: Entry,
    /// How many waiting claims before the caller's were left out of it.
    pub unread: usize,
    /// What an audit would record.
    pub events: Vec<Event>,
}

/// The answer to [`Verbs::adopt`] and [`Verbs::hand_over`].
#[derive(Debug)]
pub enum Adopted {
    /// The caller keeps the hold alive now.
    Done {
        /// The claim.
        claim: Box<Claim>,
        /// New handle of the hold.
        handle: Box<dyn Handle>,
    },
    /// Another process still keeps its liveness lock.
    Kept,
    /// No such hold is in the list.
    Absent,
}

/// A process that adopts a hold, for [`Verbs::adopt`].
pub struct Adopter<'a> {
    /// Says which hold is meant. It has to recognise the process that the hold belongs to: the store cannot tell one
    /// caller from another.
    pub owns: &'a dyn Fn(&Claim) -> Ownership,
    /// Whether the process that kept the hold is proven dead, although its liveness lock still stands. A kernel lock
    /// ends with its process; a lease on a server outlasts it by up to its ttl.
    pub is_orphan: &'a dyn Fn(&Claim) -> bool,
    /// A fact that the hold has from now on.
    pub mark: Option<(&'a str, String)>,
}

/// What callers do with a store. Every [`Store`] has these.
pub trait Verbs: Store {
    /// Enters a claim, or refuses it.
    ///
    /// # Errors
    /// - [`StoreError::Unreadable`] if the lock cannot be understood and the caller may not replace it.
    /// - [`StoreError::Record`] if the claim would hold beside others where the record has room for one.
    /// - [`StoreError`] if the transaction failed. The caller has no claim then.
    fn enter(
        &self,
        name: &LockName,
        request: impl Borrow<Request>,
        now: &Now,
    ) -> Result<Entered, StoreError> {
        self.enter_within(name, request, now, None)
    }

    /// Enters a claim, with less patience than the store has by itself.
    ///
    /// # Errors
    /// - As for [`Verbs::enter`].
    fn enter_within(
        &self,
        name: &LockName,
        request: impl Borrow<Request>,
        now: &Now,
        within: Option<Duration>,
    ) -> Result<Entered, StoreError> {
        let (rules, request) = (self.rules(), request.borrow());
        let mut request = Cow::Borrowed(request);
        if request.ttl_ms < rules.ttl_min_ms() {
            request.to_mut().ttl_ms = rules.ttl_min_ms();
        }
        let request = &*request;
        if !rules.beside && request.terms.mode != Mode::Exclusive {
            return Err(StoreError::Record {
                place: self.location(name).shown,
                why: "its format has room for one holder, and this claim would hold beside others"
                    .to_owned(),
            });
        }
        let is_plain = request.is_plain();
        let about = About::NewClaim {
            ends: is_plain && request.terms.mode != Mode::Shared,
            // A list that no run has looked at may hold a stale claim. Where a stale claim refuses a
            // caller, the caller has to look first.
            unseen: is_plain
                && request.patience == Patience::Queue
                && rules.policy.stale_unforced == StaleUnforced::TakeOver,
        };
        let ask = Ask {
            waits: request.patience == Patience::Queue,
            ..Ask::new(name, about, now).within(within)
        };
        let entered = run(self, &ask, |draft| entering(rules, request, now, draft))?;
        let Some((answer, done)) = entered else {
            return Err(self.misused(name, "the call that makes a claim makes its lock"));
        };
        let Committed {
            entry,
            events,
            unread,
            own,
            handle,
            ..
        } = done;
        let token = own.and_then(|own| entry.claim(own)?.token);
        let entered = |entering, handle| Entered {
            entering,
            entry,
            unread,
            events,
            handle,
        };
        match (answer, own, token) {
            (Some(Err(error)), ..) => Err(error),
            (Some(Ok(refused @ Entering::Refused(_))), None, _) => Ok(entered(refused, None)),
            // The store's numbers count, not those of the draft.
            (_, Some(ticket), Some(token)) => {
                Ok(entered(Entering::Granted { ticket, token }, handle))
            }
            (Some(Ok(Entering::Queued { behind, .. })), Some(ticket), None) => {
                Ok(entered(Entering::Queued { ticket, behind }, handle))
            }
            (Some(Ok(other)), ..) => Ok(entered(other, handle)),
            (None, Some(ticket), None) => match handle {
                Some(handle) => {
                    let unseen = entered(queued_behind_no_claim(ticket), None);
                    look_again(self, unseen, handle, ticket, now)
                }
                None => Err(self.misused(name, "a claim that was made has a handle")),
            },
            (None, None, _) => Err(self.misused(name, "a claim that was made has a ticket")),
        }
    }

    /// Looks whether a waiting claim holds now, and grants it in the same step.
    ///
    /// The change is shown the claims before it and those that hold: some of them may have been granted
    /// behind it while its caller was away. The core says what the change rests on
    /// ([`RestsOn::looking`]).
    ///
    /// # Errors
    /// - [`StoreError`] if the transaction failed.
    fn try_grant(&self, handle: &dyn Handle, now: &Now) -> Result<Tried, StoreError> {
        self.try_grant_having(handle, Watched::default(), now, None)
    }

    /// Looks for a waiter that has watched a claim which does not take its turn, perhaps with less patience than the
    /// store has by itself.
    ///
    /// # Errors
    /// - As for [`Verbs::try_grant`].
    fn try_grant_having(
        &self,
        handle: &dyn Handle,
        watched: Watched,
        now: &Now,
        within: Option<Duration>,
    ) -> Result<Tried, StoreError> {
        let (rules, ticket) = (self.rules(), handle.ticket());
        let watched = (!rules.network).then_some(watched);
        let ask = Ask::new(handle.name(), About::Turn(handle), now).within(within);
        let (mut grant, done) = settled(self, &ask, Ok(TryGrant::Gone), |draft| {
            whole(draft, |draft| advancing(rules, ticket, watched, now, draft))
        })?;
        let (entry, unread, events) = match done {
            Some(done) => (done.entry, done.unread, done.events),
            None => Default::default(),
        };
        if let Ok(TryGrant::Granted { token }) = &mut grant
            && let Some(counts) = entry.claim(ticket).and_then(|claim| claim.token)
        {
            *token = counts;
        }
        Ok(Tried {
            grant: grant?,
            entry,
            unread,
            events,
        })
    }

    /// Sleeps until the claim before ends, and no later than `until`. May wake up early.
    ///
    /// # Errors
    /// - [`StoreError`] if the store cannot tell when that happens.
    fn sleep(
        &self,
        handle: &dyn Handle,
        behind: &Predecessor,
        now: &Now,
        until: Option<Instant>,
    ) -> Result<Wake, StoreError> {
        self.wait(&Waiting::of(handle, behind, now), until)
    }

    /// Parks behind the claim before, without a thread that sleeps: [`Store::park`].
    ///
    /// # Errors
    /// - As [`Store::park`].
    fn park_behind(
        &self,
        handle: &dyn Handle,
        behind: &Predecessor,
        now: &Now,
        ring: &Ring,
    ) -> Result<Option<Parked>, StoreError> {
        self.park(&Waiting::of(handle, behind, now), ring)
    }

    /// Names the command that a granted claim was taken for. False if the claim is gone.
    ///
    /// # Errors
    /// - [`StoreError`] if the transaction failed.
    fn name_command(
        &self,
        handle: &dyn Handle,
        command: Process,
        now: &Now,
    ) -> Result<bool, StoreError> {
        own(self, &Ask::own(handle, now), false, |draft| {
            let named = draft.entry.name_command(handle.ticket(), command);
            (named, Step::write_if(named))
        })
    }

    /// Records for a waiting claim what the slots of the lock stand for by now. False if it waits no longer. `within` is how
    /// long the store may take, if that is less than its own patience.
    ///
    /// # Errors
    /// - [`StoreError`] if the transaction failed.
    fn set_members(
        &self,
        handle: &dyn Handle,
        members: &[String],
        now: &Now,
        within: Option<Duration>,
    ) -> Result<bool, StoreError> {
        let ask = Ask::own(handle, now).within(within);
        own(self, &ask, false, |draft| {
            let set = draft.entry.set_members(handle.ticket(), members);
            (set, Step::write_if(set))
        })
    }

    /// Renews a granted claim. Never creates one.
    ///
    /// # Errors
    /// - [`StoreError`] if the transaction failed.
    fn renew(&self, handle: &dyn Handle, now: &Now) -> Result<Renewal, StoreError> {
        self.renew_within(handle, now, None)
    }

    /// Renews a granted claim with less patience than the store has by itself.
    ///
    /// # Errors
    /// - As for [`Verbs::renew`].
    fn renew_within(
        &self,
        handle: &dyn Handle,
        now: &Now,
        within: Option<Duration>,
    ) -> Result<Renewal, StoreError> {
        let ask = Ask::new(handle.name(), About::Renewal(handle), now).within(within);
        let (renewal, _) = settled(self, &ask, Ok(Renewal::Lost), |draft| {
            whole(draft, |draft| {
                let renewal = draft.entry.renew(handle.ticket(), now);
                let renewed = matches!(renewal, Renewal::Renewed { .. });
                (renewal, Step::write_if(renewed))
            })
        })?;
        renewal
    }

    /// Looks whether a granted claim still stands, and whether it was asked to stop. Writes nothing,
    /// with one exception: a claim whose liveness lock has lapsed and that no other caller has taken yet
    /// is renewed.
    ///
    /// # Errors
    /// - [`StoreError::Unreadable`] if the lock cannot be understood. That says nothing about the hold.
    /// - [`StoreError`] if the place cannot be read.
    fn verify(&self, handle: &dyn Handle, now: &Now) -> Result<Renewal, StoreError> {
        let reading = self.read(handle.name(), Some(handle))?;
        if !reading.stored {
            return Ok(Renewal::Lost);
        }
        match &reading.content {
            Content::Unreadable { why, .. } => Err(StoreError::Unreadable {
                place: reading.place,
                why: why.clone(),
            }),
            Content::Whole { entry, .. } => {
                let claim = entry.claim(handle.ticket());
                let seen = claim.and_then(|claim| reading.evidence_of(claim));
                // Any other caller may take it now, so the holder cannot rely on the claim until it is
                // renewed.
                if self.rules().leased
                    && seen.is_some_and(|seen| seen.liveness_lock == LivenessLock::Lapsed)
                {
                    return self.renew(handle, now);
                }
                Ok(entry.verify(handle.ticket()))
            }
        }
    }

    /// Removes a claim from the list and releases its liveness lock, in this order.
    ///
    /// # Errors
    /// - [`StoreError`] if the transaction failed. The liveness lock is released all the same: then the
    ///   claim is dead, and the next caller sweeps it.
    fn release(&self, handle: &dyn Handle, now: &Now) -> Result<Left, StoreError> {
        let left = leave(self, &Ask::own(handle, now), handle, false)?;
        Ok(left.unwrap_or(Left::Absent))
    }

    /// Releases with less patience than the store has by itself, for a waiter that timed out.
    ///
    /// # Errors
    /// - As for [`Verbs::release`].
    fn give_up(
        &self,
        handle: &dyn Handle,
        now: &Now,
        within: Duration,
    ) -> Result<Left, StoreError> {
        let ask = Ask::own(handle, now).within(Some(within));
        let left = leave(self, &ask, handle, false)?;
        Ok(left.unwrap_or(Left::Absent))
    }

    /// Releases a hold that other runs may have joined ([`Store::go_within`]): `None`, and nothing is
    /// changed, while they work.
    ///
    /// # Errors
    /// - As for [`Verbs::release`].
    fn release_if_alone(&self, handle: &dyn Handle, now: &Now) -> Result<Option<Left>, StoreError> {
        leave(self, &Ask::own(handle, now), handle, true)
    }

    /// Takes the liveness lock of a hold whose keeper has died, and renews the hold.
    ///
    /// # Crash safety
    /// The store takes the liveness lock before it writes. A process that dies in between leaves the hold as it
    /// found it. Of two callers that adopt one hold, the second finds the liveness lock held.
    ///
    /// # Errors
    /// - As for [`Verbs::cancel`].
    fn adopt(
        &self,
        name: &LockName,
        adopter: &Adopter<'_>,
        now: &Now,
    ) -> Result<Adopted, StoreError> {
        let ask = Ask::new(name, About::All, now);
        let (found, done) = settled(self, &ask, Ok(None), |draft| {
            whole(draft, |draft| adopting(draft, adopter, now))
        })?;
        match (found?, done) {
            (None, _) => Ok(Adopted::Absent),
            (Some(false), _) => Ok(Adopted::Kept),
            (Some(true), done) => self.adopted(name, done),
        }
    }

    /// Hands the hold that `is_meant` recognises over to the process of `to`, which is the caller: a copy that its keeper's
    /// process made by a fork, or the program that it has become. The hold gets another token, and the earlier
    /// process finds it lost.
    ///
    /// # Crash safety
    /// The new claim has its liveness lock before the write that replaces the old one. Death before that write leaves the
    /// hold with its keeper; death after it leaves a dead claim, which the next caller sweeps.
    ///
    /// # Errors
    /// - As for [`Verbs::cancel`].
    fn hand_over(
        &self,
        name: &LockName,
        is_meant: &dyn Fn(&Claim) -> bool,
        to: &Holder,
        now: &Now,
    ) -> Result<Adopted, StoreError> {
        let ask = Ask::new(name, About::All, now);
        let (found, done) = settled(self, &ask, Ok(false), |draft| {
            whole(draft, |draft| handing_over(draft, is_meant, to, now))
        })?;
        if found? {
            self.adopted(name, done)
        } else {
            Ok(Adopted::Absent)
        }
    }

    /// The answer to a caller that has made a hold its own.
    #[doc(hidden)]
    fn adopted(&self, name: &LockName, done: Option<Committed>) -> Result<Adopted, StoreError> {
        let (handle, entry) =
            done.map_or((None, Entry::default()), |done| (done.handle, done.entry));
        let claim = handle.as_ref().and_then(|own| entry.claim(own.ticket()));
        let claim = claim.cloned().map(Box::new);
        match (claim, handle) {
            (Some(claim), Some(handle)) => Ok(Adopted::Done { claim, handle }),
            _ => Err(self.misused(name, "a claim that was taken over has a handle")),
        }
    }

    /// Reserves a waiting claim's place while its caller is away, and releases its liveness lock, in
    /// this order. False if there is no waiting claim to reserve: it holds, it was asked to stop, or it
    /// is gone. After that the handle is useless; [`Verbs::enter`] gives a new one. `within` is how long the store may take,
    /// if that is less than its own patience.
    ///
    /// # Errors
    /// - [`StoreError`] if the transaction failed.
    fn reserve(
        &self,
        handle: &dyn Handle,
        owner: Option<Process>,
        grace_ms: u64,
        now: &Now,
        within: Option<Duration>,
    ) -> Result<bool, StoreError> {
        let ask = Ask::own(handle, now).within(within);
        let reserved = own(self, &ask, false, |draft| {
            let reserved = draft.entry.reserve(handle.ticket(), owner, grace_ms, now);
            (reserved, Step::write_if(reserved))
        })?;
        // A process that is killed before this line releases its liveness lock by its death; the place
        // stays reserved.
        if reserved {
            handle.let_go();
        }
        Ok(reserved)
    }

    /// Asks the live holders to stop, and says which they are. For a caller that does not want the lock. With `whom`, asks
    /// the live claims of which that says yes, waiting or holding, and no others.
    ///
    /// # Errors
    /// - [`StoreError::Unreadable`] if what stands there cannot be understood.
    /// - [`StoreError`] if the transaction failed.
    fn cancel(
        &self,
        name: &LockName,
        by: StopRequest<'_>,
        whom: Option<&dyn Fn(&Claim) -> bool>,
        now: &Now,
    ) -> Result<Vec<Claim>, StoreError> {
        let policy = &self.rules().policy;
        by_name(self, name, Vec::new(), now, |draft| {
            let evidence = |claim: &Claim| (draft.evidence)(claim, Depth::Thorough);
            let asked = (draft.entry).cancel_seeing(policy, by, whom, now, evidence, draft.stopped);
            let changed = !asked.is_empty();
            (asked, Step::write_if(changed))
        })
    }

    /// Gives up the places that are kept for an agent, or for all agents of a session. Returns how many there were.
    ///
    /// # Errors
    /// - As for [`Verbs::cancel`].
    fn forget_places(
        &self,
        name: &LockName,
        agent: &AgentKey,
        now: &Now,
    ) -> Result<usize, StoreError> {
        by_name(self, name, 0, now, |draft| {
            let forgotten = draft.entry.forget_places(agent);
            (forgotten, Step::write_if(forgotten > 0))
        })
    }

    /// Records which other lock the work under a hold waits for, or that it no longer waits. False if no
    /// hold has this token.
    ///
    /// # Errors
    /// - As for [`Verbs::cancel`].
    fn note_waiting(
        &self,
        name: &LockName,
        token: u64,
        waiting_for: Option<&WaitingFor>,
        now: &Now,
    ) -> Result<bool, StoreError> {
        by_name(self, name, false, now, |draft| {
            let noted = draft.entry.note_waiting(token, waiting_for);
            (noted, Step::write_if(noted))
        })
    }

    /// Renews the hold that `owns` recognises as the caller's.
    ///
    /// # Errors
    /// - As for [`Verbs::cancel`].
    fn renew_owned(
        &self,
        name: &LockName,
        owns: &dyn Fn(&Claim) -> Ownership,
        now: &Now,
    ) -> Result<RenewedOwned, StoreError> {
        by_name(self, name, RenewedOwned::Lost, now, |draft| {
            let (answer, renewed) = renewing_owned(&mut draft.entry, owns, now);
            (answer, Step::write_if(renewed))
        })
    }

    /// Releases the hold, if the policy lets this caller do that.
    ///
    /// # Errors
    /// - As for [`Verbs::cancel`].
    fn release_owned(
        &self,
        name: &LockName,
        owns: &dyn Fn(&Claim) -> Ownership,
        now: &Now,
    ) -> Result<Released, StoreError> {
        let policy = &self.rules().policy;
        let any_caller_may = policy.release_by_other == ReleaseByOther::WarnAndRelease
            && policy.unreadable == UnreadableRule::Stale;
        let ask = Ask {
            tidies: true,
            ..Ask::new(name, About::All, now)
        };
        let (released, _) = settled(self, &ask, Ok(Released::Absent), |draft| {
            if let Some(corrupt) = &draft.corrupt {
                return discard(corrupt, any_caller_may, |record| Released::Unreadable {
                    record,
                });
            }
            let released = draft.entry.release(policy, owns, now);
            let changed = matches!(released, Released::Done { .. });
            (Ok(released), Step::write_if(changed))
        })?;
        released
    }

    /// Removes every hold, if the policy lets force do that. For an operator who wants the lock gone and
    /// does not want to hold it.
    ///
    /// # Errors
    /// - As for [`Verbs::cancel`].
    fn force_release(
        &self,
        name: &LockName,
        force: Force,
        now: &Now,
    ) -> Result<ForcedRelease, StoreError> {
        self.force_release_of(name, None, force, now)
    }

    /// Removes the hold that is meant. Nothing happens where no hold is that one, or where what stands there cannot be
    /// read: the question is answered in the step that would release it.
    ///
    /// # Errors
    /// - As for [`Verbs::cancel`].
    fn force_release_of(
        &self,
        name: &LockName,
        meant: Option<&dyn Fn(&Claim) -> bool>,
        force: Force,
        now: &Now,
    ) -> Result<ForcedRelease, StoreError> {
        let policy = &self.rules().policy;
        let ask = Ask::new(name, About::All, now);
        let (released, done) = settled(self, &ask, Ok(Forced::Absent), |draft| {
            if let Some(corrupt) = &draft.corrupt {
                if meant.is_some() {
                    return (Ok(Forced::Absent), Step::Keep);
                }
                // The age of the store's own list does not count.
                let force = forced_at(corrupt, force);
                let silence = if corrupt.is_record {
                    silence_of(policy, force, corrupt, draft.written_ago_ms)
                } else {
                    Silence::BROKEN
                };
                return match Entry::replace_unreadable(policy, force, silence) {
                    Err(refusal) => (Ok(Forced::Refused(refusal)), Step::Keep),
                    Ok(()) => discard(corrupt, true, |_| Forced::Done {
                        claim: None,
                        standing: unreadable(policy),
                        held_ms: 0,
                    }),
                };
            }
            if let Some(refusal) = in_doubt(policy, force, now, draft) {
                return (Ok(Forced::Refused(refusal)), Step::Keep);
            }
            let evidence = |claim: &Claim| (draft.evidence)(claim, Depth::Thorough);
            let stopped = draft.stopped;
            let forced =
                (draft.entry).force_release_seeing(policy, meant, force, now, evidence, stopped);
            let changed = matches!(forced, Forced::Done { .. } | Forced::SetAside { .. });
            (Ok(forced), Step::write_if(changed))
        })?;
        Ok(ForcedRelease {
            released: released?,
            record: done.map_or_else(Vec::new, |done| done.record),
        })
    }

    /// Removes what is proven stale. With `dry_run` it only reads, and says what it would remove. The files of an
    /// unused lock stay where the system lets only their owner remove them.
    ///
    /// # Errors
    /// - As for [`Verbs::cancel`].
    fn clean(&self, name: &LockName, now: &Now, dry_run: bool) -> Result<Cleaned, StoreError> {
        let policy = &self.rules().policy;
        if dry_run {
            return would_clean(policy, self.read(name, None)?, now);
        }
        let ask = Ask::new(name, About::All, now);
        let (mut swept, mut record, mut removes_lock) = (Vec::new(), Vec::new(), true);
        // What is swept is written first, and told whatever becomes of the files: a removal that the system refuses
        // must lose no line of the audit.
        let removed = loop {
            let pass = settled(self, &ask, Ok((Vec::new(), false)), |draft| {
                if let Some(corrupt) = &draft.corrupt {
                    return discard(corrupt, sweeps_unreadable(policy), |_| (Vec::new(), true));
                }
                let evidence = |claim: &Claim| (draft.evidence)(claim, Depth::Thorough);
                let swept = draft.entry.sweep(policy, now, evidence);
                let removes = removes_lock && swept.is_empty() && draft.entry.claims.is_empty();
                let step = match RestsOn::sweeping(&swept, removes) {
                    None => Step::Keep,
                    Some(rests_on) => Step::Write(Write {
                        rests_on,
                        removes,
                        ..Write::PLAIN
                    }),
                };
                (Ok((swept, removes)), step)
            });
            let (cleaned, done) = match pass {
                // In a folder with the sticky bit, the files of a lock stay with the user who made them. An empty list
                // does no harm.
                Err(StoreError::Permission {
                    doing: REMOVING, ..
                }) if removes_lock => {
                    removes_lock = false;
                    continue;
                }
                pass => pass?,
            };
            let (more, removed) = cleaned?;
            if record.is_empty() {
                record = done.map_or_else(Vec::new, |done| done.record);
            }
            if more.is_empty() {
                break removed;
            }
            swept.extend(more);
        };
        Ok(Cleaned {
            record: record_of(&swept, removed, record),
            swept,
            removed,
        })
    }

    /// Sleeps until the first claim of a lock that counts has ended or changed. For callers without a
    /// claim.
    ///
    /// # Errors
    /// - [`StoreError`] if the store cannot tell when that happens.
    fn watch(
        &self,
        name: &LockName,
        seen: &Reading,
        now: &Now,
        until: Option<Instant>,
    ) -> Result<Wake, StoreError> {
        let Some(entry) = seen.entry() else {
            return Ok(Wake::Ready);
        };
        let rules = self.rules();
        let asks_liveness = rules.policy.asks_liveness_lock || rules.leased;
        // Holders come first: a waiter that lets others pass may stand in the list before them.
        let waiters = entry.claims.iter().filter(|claim| claim.token.is_none());
        for claim in entry.granted().chain(waiters) {
            let evidence = seen.evidence_of(claim);
            let is_held =
                evidence.is_some_and(|evidence| evidence.liveness_lock == LivenessLock::Held);
            let behind = if asks_liveness && is_held {
                Predecessor::LivenessLock {
                    ticket: claim.ticket,
                }
            } else if claim.token.is_some() {
                Predecessor::Record(Box::new(claim.clone()))
            } else {
                continue;
            };
            let waiting = Waiting {
                name,
                by: None,
                behind: &behind,
                since: Some(entry.last),
                now,
            };
            return self.wait(&waiting, until);
        }
        Ok(Wake::Ready)
    }

    /// The error for a store that breaks its contract.
    #[doc(hidden)]
    fn misused(&self, name: &LockName, why: &'static str) -> StoreError {
        StoreError::Misused {
            place: self.location(name).shown,
            why,
        }
    }
}

impl<S: Store + ?Sized> Verbs for S {}

/// Runs a pure change. Gives what was committed, and the answer of the run that counts. No answer if the
/// store put the claim at the end unseen; nothing at all for an absent lock.
#[allow(
    clippy::type_complexity,
    reason = "two layers of absence, each with its own meaning"
)]
fn run<S: Store + ?Sized, A>(
    store: &S,
    ask: &Ask<'_>,
    change: impl Fn(&mut Draft<'_>) -> (A, Step),
) -> Result<Option<(Option<A>, Committed)>, StoreError> {
    // Nearly always one.
    let mut answers = Vec::with_capacity(1);
    let outcome = store.transact(ask, &mut |draft| {
        let (answer, step) = change(draft);
        answers.push(answer);
        step
    })?;
    let Outcome::Done(done) = outcome else {
        return Ok(None);
    };
    let answer = match done.run {
        Run::Unseen => None,
        Run::Nth(nth) => {
            let counts = answers.into_iter().nth(nth);
            Some(counts.ok_or_else(|| store.misused(ask.name, "the change had no such run"))?)
        }
    };
    Ok(Some((answer, done)))
}

/// Runs a change that makes no claim.
fn settled<S: Store + ?Sized, A>(
    store: &S,
    ask: &Ask<'_>,
    absent: A,
    change: impl Fn(&mut Draft<'_>) -> (A, Step),
) -> Result<(A, Option<Committed>), StoreError> {
    Ok(match run(store, ask, change)? {
        None => (absent, None),
        Some((answer, done)) => (answer.unwrap_or(absent), Some(done)),
    })
}

/// The error for a change to a lock that cannot be understood.
fn unreadable_at(corrupt: &Corrupt) -> StoreError {
    StoreError::Unreadable {
        place: corrupt.place.clone(),
        why: corrupt.why.clone(),
    }
}

/// Makes a change only where the whole lock can be understood.
fn whole<A>(
    draft: &mut Draft<'_>,
    change: impl Fn(&mut Draft<'_>) -> (A, Step),
) -> (Result<A, StoreError>, Step) {
    if let Some(corrupt) = &draft.corrupt {
        return (Err(unreadable_at(corrupt)), Step::Keep);
    }
    let (answer, step) = change(draft);
    (Ok(answer), step)
}

/// A change to the own claim of a handle alone.
fn own<S: Store + ?Sized, A>(
    store: &S,
    ask: &Ask<'_>,
    absent: A,
    change: impl Fn(&mut Draft<'_>) -> (A, Step),
) -> Result<A, StoreError> {
    let (answer, _) = settled(store, ask, Ok(absent), |draft| whole(draft, &change))?;
    answer
}

/// A change to a lock by its name.
fn by_name<S: Store + ?Sized, A>(
    store: &S,
    name: &LockName,
    absent: A,
    now: &Now,
    change: impl Fn(&mut Draft<'_>) -> (A, Step),
) -> Result<A, StoreError> {
    let ask = Ask::new(name, About::All, now);
    let (answer, _) = settled(store, &ask, Ok(absent), |draft| whole(draft, &change))?;
    answer
}

/// Removes what cannot be understood, if the caller may remove it and nothing seals it.
fn discard<A>(
    corrupt: &Corrupt,
    may: bool,
    answer: impl FnOnce(Vec<u8>) -> A,
) -> (Result<A, StoreError>, Step) {
    if !may || !corrupt.is_record || corrupt.sealed.is_some() {
        return (Err(unreadable_at(corrupt)), Step::Keep);
    }
    let write = Write {
        discards: true,
        ..Write::PLAIN
    };
    (Ok(answer(corrupt.record.clone())), Step::Write(write))
}

/// Whether a plain request takes over what cannot be understood.
fn sweeps_unreadable(policy: &Policy) -> bool {
    policy.unreadable == UnreadableRule::Stale && policy.stale_unforced == StaleUnforced::TakeOver
}

/// The bytes that an audit records of a lock that was cleaned.
fn record_of(swept: &[Claim], discarded: bool, record: Vec<u8>) -> Vec<u8> {
    // The record of a lock without claims says nothing worth recording.
    if swept.is_empty() && !discarded {
        Vec::new()
    } else {
        record
    }
}

/// What [`Verbs::clean`] would do to a lock that was read.
///
/// # Errors
/// - [`StoreError::Unreadable`] if it cannot be understood, and the policy does not count that as stale.
pub fn would_clean(policy: &Policy, reading: Reading, now: &Now) -> Result<Cleaned, StoreError> {
    let record = reading.record.clone();
    match &reading.content {
        Content::Whole { entry, .. } => {
            let mut rest = entry.clone();
            let known = |claim: &Claim| reading.evidence_of(claim).unwrap_or(UNSEEN);
            let swept = rest.sweep(policy, now, known);
            let removed = reading.stored && rest.claims.is_empty();
            Ok(Cleaned {
                record: record_of(&swept, false, record),
                swept,
                removed,
            })
        }
        Content::Unreadable { .. } if sweeps_unreadable(policy) => Ok(Cleaned {
            swept: Vec::new(),
            removed: true,
            record,
        }),
        Content::Unreadable { why, .. } => Err(StoreError::Unreadable {
            place: reading.place,
            why: why.clone(),
        }),
    }
}

/// The evidence for a claim that was not looked at.
const UNSEEN: Evidence = Evidence {
    liveness_lock: LivenessLock::None,
    process: Liveness::Unknown,
    command: Liveness::Unknown,
};

/// The change of [`Verbs::enter`].
fn entering(
    rules: &Rules,
    request: &Request,
    now: &Now,
    draft: &mut Draft<'_>,
) -> (Result<Entering, StoreError>, Step) {
    let policy = &rules.policy;
    if let Some(corrupt) = &draft.corrupt {
        match may_replace(policy, request.force, corrupt, draft.written_ago_ms) {
            Ok(()) => draft.events.push(Event::Stolen {
                why: Takeover::Corrupt,
                previous: None,
                record: corrupt.record.clone(),
            }),
            Err(answer) => {
                draft.entry = Entry::default();
                return (answer.map(Entering::Refused), Step::Keep);
            }
        }
    }
    if let Some(refusal) = in_doubt(policy, request.force, now, draft) {
        return (Ok(Entering::Refused(refusal)), Step::Keep);
    }
    let discards = draft.corrupt.is_some();
    let depth = if looks_closer(request) {
        Depth::Thorough
    } else {
        Depth::Quick
    };
    let last = draft.entry.claims.last().map(|last| last.ticket);
    let entering = draft.entry.enter_seeing(
        policy,
        request,
        now,
        |claim| (draft.evidence)(claim, depth),
        draft.stopped,
        &mut draft.events,
    );
    if draft.unread > 0 && !entering.queues_behind(last) {
        return (Ok(entering), Step::ShowAll);
    }
    let makes = NewClaim::of(&entering, request.kind, request.terms.mode);
    // Replacing what could not be understood is an event as well, so the change is written.
    let step = match RestsOn::entering(request, &entering, &draft.events, last) {
        None => Step::Keep,
        Some(rests_on) => Step::Write(Write {
            makes,
            rests_on,
            discards,
            removes: false,
        }),
    };
    (Ok(entering), step)
}

/// Whether a caller that enters may replace what cannot be understood; if not, its answer.
#[allow(
    clippy::result_large_err,
    reason = "an answer, which is given in either case"
)]
fn may_replace(
    policy: &Policy,
    force: Force,
    corrupt: &Corrupt,
    written_ago_ms: &dyn Fn() -> Option<u64>,
) -> Result<(), Result<Refusal, StoreError>> {
    let force = forced_at(corrupt, force);
    let silence = silence_of(policy, force, corrupt, written_ago_ms);
    match Entry::replace_unreadable(policy, force, silence) {
        Err(refusal)
            if force == Force::No
                && refusal.standing == Standing::Unreadable
                && !corrupt.refuses =>
        {
            Err(Err(unreadable_at(corrupt)))
        }
        Err(refusal) => Err(Ok(refusal)),
        Ok(()) => match corrupt.sealed {
            Some(reason) => Err(Err(StoreError::Unreadable {
                place: corrupt.place.clone(),
                why: format!("{}; {reason}", corrupt.why),
            })),
            None => Ok(()),
        },
    }
}

/// How long nothing has spoken for what cannot be understood. Where another machine's clock has dated the file, that clock
/// counts too: the one here may be behind.
fn silence_of(
    policy: &Policy,
    force: Force,
    corrupt: &Corrupt,
    written_ago_ms: &dyn Fn() -> Option<u64>,
) -> Silence {
    let silence = corrupt.silence;
    if force == Force::No || !corrupt.is_record || silence.rest_ms(policy) == 0 {
        return silence;
    }
    let silent_ms = written_ago_ms().map_or(silence.silent_ms, |ms| ms.max(silence.silent_ms));
    Silence {
        silent_ms,
        ..silence
    }
}

/// The refusal of force where two clocks disagree about a hold: the wall clock here calls it silent, and by the clock of
/// the file system its record was written within its ttl. The rule of the format lets force end it, and it may live: that
/// takes a second yes.
fn in_doubt(policy: &Policy, force: Force, now: &Now, draft: &Draft<'_>) -> Option<Refusal> {
    let goes_by_silence = (policy.age).is_some_and(|rule| rule.limit == AgeLimit::SilenceTtl);
    if force != Force::Asked || !goes_by_silence {
        return None;
    }
    let held = draft.entry.granted().next()?;
    let is_by_boot_clock =
        now.is_on(held.boot()) && held.lease.renewed.boot_ms != Stamp::OTHER_BOOT;
    let standing = judge(policy, held, &UNSEEN, now);
    let is_in_doubt = standing == Standing::Stale(StaleReason::Aged)
        && !is_by_boot_clock
        && (draft.written_ago_ms)().is_some_and(|ago_ms| ago_ms <= held.lease.ttl_ms);
    is_in_doubt.then(|| Refusal::new(Reason::NeedsConfirmation, standing, Some(held.clone())))
}

/// How much force a caller keeps against content that cannot be understood.
fn forced_at(corrupt: &Corrupt, force: Force) -> Force {
    if corrupt.refuses && corrupt.sealed.is_some() {
        Force::No
    } else {
        force
    }
}

/// The change of [`Verbs::try_grant`].
fn advancing(
    rules: &Rules,
    ticket: u64,
    watched: Option<Watched>,
    now: &Now,
    draft: &mut Draft<'_>,
) -> (TryGrant, Step) {
    let claims = draft.entry.claims.len();
    let own = draft.entry.claim(ticket);
    let (mode, was_passed) =
        own.map_or((Mode::Exclusive, false), |own| (own.mode, own.was_passed()));
    let grant = draft.entry.try_grant_seeing(
        &rules.policy,
        ticket,
        now,
        |claim| (draft.evidence)(claim, Depth::Quick),
        draft.stopped,
        watched,
        &mut draft.events,
    );
    // Each look reads the claims of dead waiters, which is expensive across a network. So the first
    // waiter that passes them removes them.
    let sweeps = rules.network && draft.entry.claims.len() < claims;
    let rests_on = RestsOn::looking(mode, was_passed, &grant, &draft.events);
    let step = match rests_on.or(sweeps.then_some(RestsOn::Before)) {
        None => Step::Keep,
        Some(rests_on) => Step::Write(Write {
            rests_on,
            ..Write::PLAIN
        }),
    };
    (grant, step)
}

/// Whether the answer depends on the recorded processes, and not only on which claims are alive. Three
/// things need them: what force may do, which claims can hear a request to stop, and what a refusal
/// tells.
fn looks_closer(request: &Request) -> bool {
    request.force != Force::No
        || request.terms.cancel_in_progress
        || request.patience != Patience::Queue
}

/// Behind a claim that no list has, so a sleep behind it ends at once.
fn queued_behind_no_claim(ticket: u64) -> Entering {
    Entering::Queued {
        ticket,
        behind: Predecessor::LivenessLock { ticket: 0 },
    }
}

/// Looks again for a claim that the store put at the end unseen. It may hold by now; else it has to know
/// behind which claim it waits.
fn look_again<S: Store + ?Sized>(
    store: &S,
    mut entered: Entered,
    handle: Box<dyn Handle>,
    ticket: u64,
    now: &Now,
) -> Result<Entered, StoreError> {
    let tried = store.try_grant(&*handle, now)?;
    entered.entry = tried.entry;
    entered.unread = tried.unread;
    entered.events.extend(tried.events);
    match tried.grant {
        TryGrant::Granted { token } => entered.entering = Entering::Granted { ticket, token },
        TryGrant::Behind(behind) => entered.entering = Entering::Queued { ticket, behind },
        TryGrant::Blocked(refusal) => {
            store.release(&*handle, now)?;
            entered.entering = Entering::Refused(refusal);
            return Ok(entered);
        }
        // At its next look the claim hears what it was asked meanwhile.
        TryGrant::Yours { .. } | TryGrant::Cancelled { .. } | TryGrant::Gone => {}
    }
    entered.handle = Some(handle);
    Ok(entered)
}

/// The change of [`Verbs::adopt`]: `None` for no such hold, else whether its keeper is gone.
fn adopting(draft: &mut Draft<'_>, adopter: &Adopter<'_>, now: &Now) -> (Option<bool>, Step) {
    let is_meant =
        |claim: &&Claim| claim.kind == Kind::Kernel && (adopter.owns)(claim) == Ownership::Shown;
    let found = draft.entry.granted().find(is_meant).cloned();
    let Some(claim) = found else {
        return (None, Step::Keep);
    };
    let is_kept = (draft.evidence)(&claim, Depth::Quick).liveness_lock == LivenessLock::Held;
    if is_kept && !(adopter.is_orphan)(&claim) {
        return (Some(false), Step::Keep);
    }
    draft.entry.renew(claim.ticket, now);
    if let (Some((key, value)), Some(claim)) = (&adopter.mark, draft.entry.claim_mut(claim.ticket))
    {
        let facts = &mut claim.holder.facts;
        facts.retain(|(known, _)| known != key);
        facts.push(((*key).to_owned(), value.clone()));
    }
    let makes = NewClaim {
        ticket: claim.ticket,
        kind: claim.kind,
        liveness: true,
        turn: false,
    };
    // The change alters the claim itself, and depends on no other.
    let write = Write {
        makes: Some(makes),
        ..Write::PLAIN
    };
    (Some(true), Step::Write(write))
}

/// The change of [`Verbs::hand_over`]: whether there is such a hold.
fn handing_over(
    draft: &mut Draft<'_>,
    is_meant: &dyn Fn(&Claim) -> bool,
    to: &Holder,
    now: &Now,
) -> (bool, Step) {
    let meant = draft.entry.granted().find(|claim| is_meant(claim));
    let meant = meant.map(|claim| (claim.ticket, claim.kind));
    let handed = meant.and_then(|(ticket, kind)| {
        let (ticket, _) = draft.entry.hand_over(ticket, to, now)?;
        Some((ticket, kind))
    });
    let Some((ticket, kind)) = handed else {
        return (false, Step::Keep);
    };
    let write = Write {
        makes: Some(NewClaim {
            ticket,
            kind,
            liveness: true,
            turn: false,
        }),
        rests_on: RestsOn::All,
        ..Write::PLAIN
    };
    (true, Step::Write(write))
}

/// Leaves the list. With `heeds`, and while other runs work within the hold: `None`, and nothing
/// changes.
fn leave<S: Store + ?Sized>(
    store: &S,
    ask: &Ask<'_>,
    handle: &dyn Handle,
    heeds: bool,
) -> Result<Option<Left>, StoreError> {
    let now = ask.now;
    let left = own(store, ask, Some(Left::Absent), |draft| {
        if heeds && (draft.entered)() {
            return (None, Step::Keep);
        }
        let left = draft.entry.leave(handle.ticket(), now);
        let changed = left != Left::Absent;
        (Some(left), Step::write_if(changed))
    });
    if let Ok(None) = left {
        return Ok(None);
    }
    let withdrawn = match &left {
        Ok(Some(Left::Absent)) => store.withdraw(handle, now),
        _ => Ok(None),
    };
    // The list first, the liveness lock afterwards. The lock is released after an error too: then the
    // claim stands in the list as a dead one, which the next caller sweeps.
    handle.let_go();
    let left = left?;
    Ok(withdrawn?.or(left))
}

/// The transition of [`Verbs::renew_owned`], and whether it changed the list.
fn renewing_owned(
    entry: &mut Entry,
    owns: &dyn Fn(&Claim) -> Ownership,
    now: &Now,
) -> (RenewedOwned, bool) {
    let own = entry
        .granted()
        .find(|claim| owns(claim) == Ownership::Shown);
    let Some(ticket) = own.map(|claim| claim.ticket) else {
        let other = entry.granted().next().cloned().map(Box::new);
        let answer = other.map_or(RenewedOwned::Lost, |claim| RenewedOwned::NotOwner { claim });
        return (answer, false);
    };
    match (entry.renew(ticket, now), entry.claim(ticket).cloned()) {
        (Renewal::Renewed { .. }, Some(claim)) => {
            let claim = Box::new(claim);
            (RenewedOwned::Renewed { claim }, true)
        }
        _ => (RenewedOwned::Lost, false),
    }
}
