//! How a caller gets a lock: it waits under attendance, and what happened on the way is reported.

use super::attend::{Attendance, Tend};
use super::ownership::{Looks, already_held};
use super::run::is_ordinary_end;
use super::session::Session;
use super::{ignored, near};
use crate::dialect::PersonLine;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::lock::LockView;
use crate::render::{Reporter, clean, clean_path};
use crate::request::Place;
use std::path::Path;
use tenure_core::{
    Claim, Entry, Event, Evidence, Force, ForceOnHeld, Liveness, LivenessLock, LockName, Process,
    Request, is_orphan,
};
use tenure_engine::engine::{self, Acquired, Limits, Lot};
use tenure_os::clock::{Clock, instant, since};
use tenure_os::offload::at_once;
use tenure_os::process::liveness;
use tenure_store::profile::{Native, Profile as _};

impl Session {
    /// Acquires a lock, shows the wait, and reports what happened on the way.
    pub(crate) fn acquire(
        &self,
        reporter: &mut Reporter,
        name: &LockName,
        request: &Request,
        limits: Limits,
        tend: &mut (dyn Tend + Send + Sync),
    ) -> Result<Acquired, Failure> {
        at_once(self.acquire_in(None, reporter, name, request, limits, tend))
    }

    /// [`Session::acquire`] for a caller that sleeps in a lot.
    pub(crate) async fn acquire_in(
        &self,
        lot: Option<&dyn Lot>,
        reporter: &mut Reporter,
        name: &LockName,
        request: &Request,
        limits: Limits,
        tend: &mut (dyn Tend + Send + Sync),
    ) -> Result<Acquired, Failure> {
        let began = instant();
        let acquired = self.try_acquire_in(lot, reporter, name, request, limits, tend);
        let acquired = acquired.await;
        if let Err(failure) = &acquired {
            self.record_refusal(reporter, name, request, failure, since(began));
        }
        acquired
    }

    pub(super) async fn try_acquire_in(
        &self,
        lot: Option<&dyn Lot>,
        reporter: &mut Reporter,
        name: &LockName,
        request: &Request,
        limits: Limits,
        tend: &mut (dyn Tend + Send + Sync),
    ) -> Result<Acquired, Failure> {
        self.refuse_older_hold(name)?;
        let mut attendance = Attendance::new(reporter, self, name, request, limits.wait, tend);
        let (store, clock) = (&*self.store, &self.clock);
        let acquired = engine::acquire_in(
            lot,
            store,
            clock,
            name,
            request.clone(),
            limits,
            &mut attendance,
        );
        let acquired = acquired.await;
        let (interruption, own) = (attendance.interruption.take(), attendance.own.take());
        let behind = attendance.behind.take();
        drop(attendance);
        match (&acquired, interruption, own) {
            (Err(_), Some(interruption), _) => return Err(interruption.failure()),
            (Err(_), None, Some(own)) if own.kind.is_detached() => {
                return Err(self.waits_for_itself(name, &own));
            }
            (Err(_), None, Some(own)) => return Err(already_held(name, &own)),
            (Err(_), None, None) | (Ok(_), _, _) => {}
        }
        if let Ok(Some(warning)) = self.store.warning() {
            reporter.warn(warning);
        }
        let looks_around = match &acquired {
            Ok(_) => true,
            Err(_) => reporter.shows_waits(),
        };
        if looks_around {
            near::point_out_others(self, reporter, name);
        }
        if acquired.as_ref().is_ok_and(|acquired| acquired.is_first) {
            near::point_out_case(self, reporter, name);
        }
        let mut acquired = acquired.map_err(|error| {
            let failure = self.explain(name, error);
            if failure.code == "LOCK_HELD"
                && let Ok(Some(outer)) = self.outer_hold(name, Looks::Everywhere)
            {
                return already_held(name, &outer);
            }
            // A caller that does not wait has not found that out on the way.
            if failure.code == "LOCK_HELD"
                && self.place.is_agents
                && let Ok(reading) = self.reading(name)
                && let Some(own) = self.own_hold(&reading, request.terms.mode, u64::MAX)
            {
                return self.waits_for_itself(name, &own);
            }
            if failure.code == "LOCK_HELD" {
                self.say_unheeded(reporter, request.force);
            }
            self.after_force(failure, name, request.force)
        })?;
        acquired.events.retain(|event| !is_ordinary_end(event));
        self.record_grant(reporter, name, &acquired, request.force, behind.as_ref());
        self.tell(reporter, &PersonLine::Acquired { name });
        ignored::tell(reporter, self, name);
        Ok(acquired)
    }

    /// Refuses a native lock that a caller before this release holds in the folder of the records around this call.
    pub(super) fn refuse_older_hold(&self, name: &LockName) -> Result<(), Failure> {
        let Some(folder) = &self.place.was_at else {
            return Ok(());
        };
        let Some((older, view)) = self.held_elsewhere(name, folder)? else {
            return Ok(());
        };
        let message = format!(
            "{} (in {}, where an older tenure keeps it)",
            view.headline(),
            clean_path(&older.place.folder)
        );
        Err(Failure::new(Exit::Precondition, "LOCK_HELD", message).with_context(view.json()))
    }

    /// The native lock of this name in another folder, if it is held there.
    pub(super) fn held_elsewhere(
        &self,
        name: &LockName,
        folder: &Path,
    ) -> Result<Option<(Self, LockView)>, Failure> {
        if folder
            .join(Native.file_name(name))
            .symlink_metadata()
            .is_err()
        {
            return Ok(None);
        }
        let Some(place) = Place::noted(folder, self.place.allow_network) else {
            return Ok(None);
        };
        let other = Self::open(place)?;
        let (reading, now) = (other.reading(name)?, other.clock.now());
        let mut granted = reading.entry().into_iter().flat_map(Entry::granted);
        if !granted.any(|claim| other.is_held(&reading, claim, &now)) {
            return Ok(None);
        }
        let view = other.view_of(name, &reading, None);
        Ok(Some((other, view)))
    }

    /// How much the caller insists. Refuses force that would change nothing: the call would wait, or be
    /// refused, just as without it.
    pub(crate) fn force(&self, force: Force) -> Result<Force, Failure> {
        let policy = self.store.policy();
        if force == Force::No || policy.heeds_force() {
            return Ok(force);
        }
        Err(Failure::bad_arguments(format!(
            "--force has no effect in the profile {}: it never ends a live hold (force = \"never\"), \
             and a stale one is taken over without it",
            policy.name
        )))
    }

    /// Says why force did not end the blocking live hold, if the profile never lets it.
    pub(crate) fn say_unheeded(&self, reporter: &mut Reporter, force: Force) {
        let policy = self.store.policy();
        if force != Force::No && policy.force_on_held == ForceOnHeld::Never {
            reporter.warn(format!(
                "force never ends a live hold in the profile {} (force = \"never\")",
                policy.name
            ));
        }
    }

    /// Warns of each takeover on the way to a grant.
    #[cold]
    #[inline(never)]
    pub(super) fn report_events(&self, reporter: &mut Reporter, name: &LockName, events: &[Event]) {
        let now = self.clock.now();
        for event in events {
            if let Event::Stolen { why, previous, .. } = event {
                let line = self.dialect.line(&PersonLine::TookOver {
                    name,
                    why: *why,
                    previous: previous.as_deref(),
                    now: &now,
                });
                if let Some(line) = line {
                    reporter.warn(line);
                }
                if let Some(line) = previous
                    .as_deref()
                    .and_then(|claim| self.goes_on(name, claim))
                {
                    reporter.warn(line);
                }
            }
        }
    }

    /// The warning that the command of a hold that was taken over is still at work.
    pub(super) fn goes_on(&self, name: &LockName, claim: &Claim) -> Option<String> {
        let (holder, here) = (&claim.holder, &self.identity.host);
        let seen = |process: Option<Process>| match process {
            Some(process) => liveness(&process, &holder.host, here, false),
            None => Liveness::NotRecorded,
        };
        // The byte went with the claim. A run whose supervisor lives learns of the loss, and ends its command.
        let evidence = Evidence {
            liveness_lock: LivenessLock::None,
            process: seen(holder.process),
            command: seen(holder.command),
        };
        let command = holder.command.filter(|_| is_orphan(claim, &evidence));
        command.map(|command| {
            format!(
                "{name}: the command of the run before, PID {} ({}), is still at work, and no supervisor is left to \
                 end it",
                command.pid,
                clean(&claim.holder.why)
            )
        })
    }
}
