//! `acquire` in a sprint's way. A live session blocks at once. A zombie is taken over only after the caller
//! has said so, with a flag or at the terminal.
//!
//! The store decides every takeover by what stands there at that instant. A yes that was
//! given here only says how much the next attempt may insist.

use super::consent::{Hold, Only};
use super::read;
use crate::command::acquire::{owner, unless_heard};
use crate::command::ignored;
use crate::command::prompt::{self, Reply};
use crate::command::refusal::cancelled;
use crate::command::session::{Session, collect_signals};
use crate::dialect::PersonLine;
use crate::dialect::sprint::{
    Document, LockFileView, LockInfo, SprintAnswer, Status, alive, because, store_failed,
};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::Reporter;
use crate::render::lock::trouble;
use crate::render::waiting::Progress;
use crate::request::{Acquire, Owner, Place};
use crate::signals::{SignalSleeper, Signals};
use crate::store::Locks;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tenure_core::{
    Claim, Entry, Force, Kind, LockName, Patience, Reason, Refusal, Request, Standing,
};
use tenure_engine::caller::OwnerError;
use tenure_engine::engine::{self, AcquireError, Wait};
use tenure_os::clock::Clock;
use tenure_os::process::{is_other_namespace, liveness};
use tenure_store::StoreError;

/// How often a call begins its wait anew because it could not read the record in the middle of the wait.
const UNREADABLE_MAX: usize = 16;

/// Carries it out; `again` gives its place once more.
pub(super) fn acquire(
    acquire: Acquire,
    again: &dyn Fn() -> Result<Place, Failure>,
    mode: &str,
    reporter: &mut Reporter,
) -> Result<SprintAnswer, Failure> {
    let Acquire {
        place,
        name,
        ttl_ms,
        wait,
        force,
        owner: whose,
        who,
        ..
    } = acquire;
    let signals = collect_signals()?;
    let session = Session::waiting(place, signals)?;
    let request_id = session.format.request_id(who.id)?;
    reporter.set_request_id(request_id.as_str());
    let policy = *session.store.policy();
    let owner = owner(whose).map_err(|mut failure| {
        // The general advice does not fit here: a lock without an owner is a zombie from the start.
        if failure.message == OwnerError::NoneFound.to_string() {
            failure.message = String::from(
                "no lasting process was found that could own the lock; name one with --owner PID",
            );
        }
        failure
    })?;
    if wait != Wait::No {
        session.refuse_own_hold(&name)?;
    }
    let epic_spec = who.facts.iter().find(|(key, _)| key == "epic_spec");
    let epic_spec = epic_spec.map(|(_, epic_spec)| tenure_store::profile::why(epic_spec));
    let why = who.why.or(epic_spec).unwrap_or_default();
    let process = owner.as_ref().map(|owner| owner.process);
    let holder = session.holder(request_id, who.actor, process, why, who.facts, &name);
    let chosen = owner.filter(|_| whose == Owner::Auto).map(|owner| {
        let name = crate::render::clean(&owner.name);
        format!(
            "The lock lives as long as PID {} ({name}) does",
            owner.process.pid
        )
    });
    let mut granted = None;
    let answer = Acquisition {
        again,
        chosen,
        mode,
        session: &session,
        name: &name,
        signals,
        request: Request {
            holder,
            kind: Kind::Detached,
            ttl_ms: ttl_ms.unwrap_or(policy.detached_ttl_ms),
            force: session.force(force)?,
            patience: Patience::Default,
            terms: tenure_core::Terms::default(),
        },
        deadline: wait.deadline(session.clock.instant()),
        wait,
        asked: false,
        spared: None,
    }
    .take(reporter, &mut granted)?;
    if let Some(SprintGrant { claim, already }) = granted {
        ignored::tell(reporter, &session, &name);
        unless_heard(reporter, session, name, claim, already);
    }
    Ok(answer)
}

/// What the call was granted.
struct SprintGrant {
    claim: Claim,
    /// The session had it before.
    already: bool,
}

/// An acquisition on its way, with the person's yes so far.
struct Acquisition<'a> {
    /// Names the place of the lock once more.
    again: &'a dyn Fn() -> Result<Place, Failure>,
    /// Tells which process the lock's life follows, if the caller named none.
    chosen: Option<String>,
    mode: &'a str,
    session: &'a Session,
    name: &'a LockName,
    signals: Signals,
    request: Request,
    wait: Wait,
    deadline: Option<Instant>,
    /// The force comes from a person's yes to a zombie, and not from a flag.
    asked: bool,
    /// The force of the call, while it waits for a live session that this force does not reach.
    spared: Option<Force>,
}

/// A store that overrides one hold only, and whether it met another.
struct Confirmed {
    store: Locks,
    met_another: Arc<AtomicBool>,
}

/// What to do after a refusal.
enum Next {
    Again(Option<Box<Confirmed>>),
    Answer(Box<SprintAnswer>),
}

impl Acquisition<'_> {
    fn take(
        mut self,
        reporter: &mut Reporter,
        granted: &mut Option<SprintGrant>,
    ) -> Result<SprintAnswer, Failure> {
        let mut confirmed: Option<Box<Confirmed>> = None;
        let mut unreadable = 0;
        loop {
            let error = match self.attempt(reporter, confirmed.as_deref()) {
                Ok(had) => {
                    let answer = self.acquired(reporter, &had.claim);
                    *granted = Some(had);
                    return Ok(answer);
                }
                Err(error) => error,
            };
            match error {
                AcquireError::Refused {
                    ref refusal,
                    ref entry,
                    waited,
                    retry_after_ms,
                    ..
                } => match self.refused(reporter, refusal, entry, retry_after_ms)? {
                    Next::Answer(answer) => {
                        let waited = waited.unwrap_or_default();
                        let failure = self.session.explain(self.name, error);
                        self.session.record_refusal(
                            reporter,
                            self.name,
                            &self.request,
                            &failure,
                            waited,
                        );
                        return Ok(*answer);
                    }
                    Next::Again(next) => confirmed = next,
                },
                // Another session has the lock now, and no person was asked about that one: all begins anew.
                AcquireError::Store(StoreError::Record { .. })
                    if confirmed
                        .as_ref()
                        .is_some_and(|it| it.met_another.load(Ordering::SeqCst)) =>
                {
                    confirmed = None;
                    self.request.force = Force::Asked;
                }
                // A waiter meets a record that another program is writing this instant. A new attempt
                // reads it until it has settled.
                AcquireError::Store(StoreError::Unreadable { .. })
                    if self.wait != Wait::No && unreadable < UNREADABLE_MAX =>
                {
                    unreadable += 1;
                }
                AcquireError::Store(error) => return Err(store_failed(error)),
                AcquireError::Interrupted => return Err(cancelled("acquire")),
                other => return Err(self.session.explain(self.name, other)),
            }
        }
    }

    /// How long the call may still wait.
    fn rest(&self) -> Wait {
        match (self.wait, self.deadline) {
            (Wait::For(_), Some(deadline)) => {
                let rest = deadline.saturating_duration_since(self.session.clock.instant());
                if rest.is_zero() {
                    Wait::No
                } else {
                    Wait::For(rest)
                }
            }
            (wait, _) => wait,
        }
    }

    fn attempt(
        &self,
        reporter: &mut Reporter,
        confirmed: Option<&Confirmed>,
    ) -> Result<SprintGrant, AcquireError> {
        let wait = self.rest();
        let store = confirmed.map_or(&self.session.store, |confirmed| &confirmed.store);
        let mut progress = Progress::new(reporter, self.name, &self.session.identity.host, wait);
        let acquired = engine::acquire(
            &**store,
            &self.session.clock,
            self.name,
            self.request.clone(),
            wait,
            &mut progress,
        );
        drop(progress);
        let acquired = acquired?;
        self.session
            .record_grant(reporter, self.name, &acquired, self.request.force, None);
        Ok(SprintGrant {
            claim: acquired.claim,
            already: acquired.already,
        })
    }

    fn acquired(&self, reporter: &mut Reporter, claim: &Claim) -> SprintAnswer {
        self.session
            .tell(reporter, &PersonLine::Acquired { name: self.name });
        if let Some(chosen) = &self.chosen {
            reporter.inform(chosen);
        }
        let standing = Standing::Held(tenure_core::Life::Detached);
        let alive = claim.holder.process.map(|_| true);
        let seen = LockFileView::claimed(standing, claim.clone(), alive);
        let session_id = &claim.holder.request_id;
        self.answer(
            Status::Acquired,
            &seen,
            format!("Lock acquired successfully for session {session_id}"),
        )
    }

    fn refused(
        &mut self,
        reporter: &mut Reporter,
        refusal: &Refusal,
        entry: &Entry,
        retry_after_ms: u64,
    ) -> Result<Next, Failure> {
        let seen = self.seen(refusal, entry)?;
        match refusal.reason {
            Reason::StaleNeedsForce | Reason::Unreadable => {
                if let Some(force) = self.spared.take() {
                    self.request.force = force;
                    return Ok(Next::Again(None));
                }
                self.zombie(reporter, &seen)
            }
            Reason::NeedsConfirmation if self.waits_first(&seen) => {
                self.spared = Some(std::mem::replace(&mut self.request.force, Force::No));
                Ok(Next::Again(None))
            }
            Reason::NeedsConfirmation => self.active(&seen, retry_after_ms),
            Reason::Held if self.spared.is_some() => self.active(&seen, retry_after_ms),
            Reason::Held | Reason::QueueFull => {
                self.session.say_unheeded(reporter, self.request.force);
                Ok(self.blocked(&seen, retry_after_ms, None))
            }
            Reason::Unknown => Err(Failure::new(
                Exit::StoreUnavailable,
                "STORE_UNAVAILABLE",
                "Cannot read lock file: it could not be found out who holds the lock",
            )),
        }
    }

    /// Whether the call waits for a live session before force has to be confirmed: one that may wait, and has nobody to ask.
    /// No end of a process ends a record that cannot be judged.
    fn waits_first(&self, seen: &LockFileView) -> bool {
        let is_judged = (seen.claim.as_ref()).is_some_and(|claim| claim.kind != Kind::Sealed);
        is_judged && self.rest() != Wait::No && (self.asked || !prompt::can_ask())
    }

    /// What a refusal says of the lock.
    fn seen(&self, refusal: &Refusal, entry: &Entry) -> Result<LockFileView, Failure> {
        let held = entry.claims.iter().find(|claim| claim.token.is_some());
        let claim = held.or(refusal.blocker.as_deref());
        let Some(claim) = claim else {
            // A record that cannot be read has no claim. One more read says what is wrong with it.
            let reading = read(self.session, self.name)?;
            let now = self.session.clock.now();
            return Ok(LockFileView::of(
                &reading,
                self.session.store.policy(),
                &now,
            ));
        };
        let here = &self.session.identity.host;
        let process = claim.holder.process;
        let process = process.map(|process| liveness(&process, &claim.holder.host, here, false));
        let alive = match refusal.standing {
            Standing::Stale(tenure_core::StaleReason::ProcessDead(_)) => Some(false),
            _ => process.and_then(alive),
        };
        Ok(LockFileView::claimed(
            refusal.standing,
            claim.clone(),
            alive,
        ))
    }

    fn zombie(&mut self, reporter: &mut Reporter, seen: &LockFileView) -> Result<Next, Failure> {
        if !prompt::can_ask() {
            let mut answer = self.answer(
                Status::ZombieDetected,
                seen,
                format!("{}; --force takes it over", seen.zombie()),
            );
            answer.code = "LOCK_STALE";
            return Ok(Next::Answer(Box::new(answer)));
        }
        let question = format!("{}. override the zombie lock?", seen.zombie());
        match prompt::ask(&question, self.signals) {
            Reply::Yes => {
                reporter.explain("the zombie lock is overridden as confirmed");
                self.request.force = Force::Asked;
                self.asked = true;
                Ok(Next::Again(None))
            }
            Reply::No => {
                let message = format!("Zombie lock not overridden {}", seen.whose());
                let mut answer = self.answer(Status::Blocked, seen, message);
                answer.code = "LOCK_STALE";
                Ok(Next::Answer(Box::new(answer)))
            }
            Reply::Interrupted => Err(cancelled("acquire")),
        }
    }

    /// Force meets a live session, which needs a second yes. Only a flag can give it where no person can
    /// be asked, or where the record cannot be judged.
    fn active(&mut self, seen: &LockFileView, retry_after_ms: u64) -> Result<Next, Failure> {
        let claim = seen.claim.as_ref();
        let hold = claim.filter(|claim| claim.kind != Kind::Sealed && seen.unjudged().is_none());
        let Some(hold) = hold.filter(|_| !self.asked && prompt::can_ask()) else {
            // A yes to a zombie is no yes to a session that has taken the lock since.
            let mut hint =
                "overriding an active lock may corrupt state and needs --yes beside --force"
                    .to_owned();
            let now = self.session.clock.now();
            if claim.is_some_and(|claim| is_other_namespace(&claim.holder.host, &now)) {
                hint.push_str("; its PID is of another PID namespace (a container), and it keeps its lock on the file");
            }
            return Ok(self.blocked(seen, retry_after_ms, (!self.asked).then_some(&*hint)));
        };
        let question = format!(
            "{}. Overriding an active lock may corrupt the state that both sessions work on. \
             override it all the same?",
            seen.running()
        );
        match prompt::ask(&question, self.signals) {
            Reply::Yes => {
                let confirmed = self.only(Hold::of(hold))?;
                self.request.force = Force::Confirmed;
                Ok(Next::Again(Some(Box::new(confirmed))))
            }
            Reply::No => Ok(self.blocked(seen, retry_after_ms, None)),
            Reply::Interrupted => Err(cancelled("acquire")),
        }
    }

    /// Opens the store once more, for one override of this hold.
    fn only(&self, hold: Hold) -> Result<Confirmed, Failure> {
        let mut place = (self.again)()?;
        let (profile, met_another) = Only::over(place.take_profile(), hold);
        let store = place.open(
            Box::new(profile),
            self.session.identity.host.clone(),
            Box::new(SignalSleeper(self.signals)),
        )?;
        Ok(Confirmed { store, met_another })
    }

    fn blocked(&self, seen: &LockFileView, retry_after_ms: u64, hint: Option<&str>) -> Next {
        let (message, zombie) = match seen.standing {
            Standing::Stale(reason) => (
                format!(
                    "Zombie lock left alone {}: {}",
                    seen.whose(),
                    because(reason)
                ),
                true,
            ),
            _ => (seen.running(), false),
        };
        let mut answer = self.answer(Status::Blocked, seen, message);
        if seen.is_free() {
            // The holder released it at the very end of the wait; another session was first.
            answer.document.lock_info = LockInfo::default();
        }
        answer.document.errors.extend(hint.map(str::to_owned));
        answer.code = match (hint, zombie) {
            (Some(_), _) => "CONFIRMATION_REQUIRED",
            (None, true) => "LOCK_STALE",
            (None, false) => "LOCK_HELD",
        };
        answer.retry_after_ms = (answer.code == "LOCK_HELD").then_some(retry_after_ms);
        Next::Answer(Box::new(answer))
    }

    fn answer(&self, status: Status, seen: &LockFileView, message: String) -> SprintAnswer {
        let now = self.session.clock.now();
        let info = seen.info(&now);
        let mut document = Document::new(status, self.mode, info, message);
        document.errors = seen.warnings();
        let view = self.session.view(self.name, None);
        (document.errors).extend(view.ok().as_ref().and_then(trouble));
        let mut answer = SprintAnswer::new(status, document, self.session.store.place(self.name));
        answer.holder_age_ms = seen.age_ms(&now);
        answer
    }
}
