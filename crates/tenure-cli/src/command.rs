//! Carries a call out: one file per verb, and here what several of them share.

mod acquire;
mod audit;
mod check;
mod clean;
mod heartbeat;
mod release;
mod run;
mod wait;

use crate::args::{Common, Verb};
use crate::exit::Exit;
use crate::failure::{Failure, object};
use crate::holds::{self, Hold};
use crate::render::Surface;
use crate::render::lock::LockView;
use crate::render::waiting::Progress;
use crate::request::{self, Place};
use crate::signals::{self, SignalSleeper, Signals};
use serde_json::json;
use tenure::clock::{Clock, SystemClock};
use tenure::core::{Claim, Event, Kind, LockName, Request, Takeover};
use tenure::engine::{self, AcquireError, Acquired, Wait};
use tenure::process::{Identity, is_descendant_of};
use tenure::store::file::{FileStore, Seat, ThreadSleeper};
use tenure::store::{Reading, Store, StoreError};

/// Does what was asked and answers with the exit code.
pub(crate) fn carry_out(verb: Verb) -> Exit {
    match verb {
        Verb::Run(args) => run::run(&args),
        Verb::Acquire(args) => acquire::acquire(&args),
        Verb::Release(args) => release::release(&args),
        Verb::Heartbeat(args) => heartbeat::heartbeat(&args),
        Verb::Check(args) => check::check(&args),
        Verb::List(args) => check::list(&args),
        Verb::Wait(args) => wait::wait(&args),
        Verb::Clean(args) => clean::clean(&args),
        Verb::Audit(args) => audit::audit(&args),
    }
}

/// What every verb works with.
struct Session {
    place: Place,
    identity: Identity,
    clock: SystemClock,
    store: FileStore,
}

impl Session {
    /// For verbs that never sleep.
    fn open(common: &Common) -> Result<Self, Failure> {
        Self::with(common, Box::new(ThreadSleeper))
    }

    /// For verbs that may wait: the signals that end a wait are collected from here on.
    fn waiting(common: &Common, signals: Signals) -> Result<Self, Failure> {
        Self::with(common, Box::new(SignalSleeper(signals)))
    }

    fn with(
        common: &Common,
        sleeper: Box<dyn tenure::store::file::Sleeper>,
    ) -> Result<Self, Failure> {
        let place = Place::of(common)?;
        let identity = Identity::current();
        let clock = SystemClock::new(identity.host.boot_id.as_deref());
        let store = FileStore::new(&place.folder, identity.host.clone(), sleeper)
            .allow_network(place.allow_network);
        Ok(Self {
            place,
            identity,
            clock,
            store,
        })
    }

    /// Whether a claim belongs to the caller: by the id it shows, by a hold that it inherited, or
    /// because the claim's owner is one of its ancestors.
    fn is_mine(&self, claim: &Claim, shown: Option<&str>, inherited: &[Hold]) -> bool {
        if let Some(id) = shown {
            return claim.holder.request_id.as_str() == id;
        }
        if inherited.iter().any(|hold| Some(hold.token) == claim.token) {
            return true;
        }
        claim.kind == Kind::Detached
            && claim.holder.process.is_some_and(|owner| {
                is_descendant_of(&owner, &claim.holder.host, &self.identity.host)
            })
    }

    fn inherited(&self, name: &LockName) -> Vec<Hold> {
        holds::of(&self.place.folder, name)
    }

    fn reading(&self, name: &LockName) -> Result<Reading, StoreError> {
        self.store.read(name)
    }

    /// The facts of a lock as it stands now.
    fn view(&self, name: &LockName, shown: Option<&str>) -> Result<LockView, Failure> {
        Ok(self.view_of(name, &self.reading(name)?, shown))
    }

    /// The facts of a lock as it was read.
    fn view_of(&self, name: &LockName, reading: &Reading, shown: Option<&str>) -> LockView {
        let inherited = self.inherited(name);
        LockView::of(
            name,
            reading,
            self.store.policy(),
            &self.clock.now(),
            |claim| self.is_mine(claim, shown, &inherited),
        )
    }

    /// Waiting, inside a run, for a lock that this very run holds would never end.
    fn refuse_nesting(&self, name: &LockName) -> Result<(), Failure> {
        let inherited = self.inherited(name);
        if inherited.is_empty() {
            return Ok(());
        }
        let reading = self.store.read(name)?;
        let live = reading.entry().and_then(|entry| {
            let tokens = entry.claims.iter().filter_map(|claim| claim.token);
            tokens
                .into_iter()
                .find(|token| inherited.iter().any(|hold| hold.token == *token))
        });
        let Some(token) = live else {
            return Ok(());
        };
        Err(Failure::new(
            Exit::Deadlock,
            "ALREADY_HELD",
            format!("{name} is held by this run itself; waiting for it would never end"),
        )
        .with_context(object(json!({ "name": name.as_str(), "token": token }))))
    }

    /// Acquires a lock, shows the wait, and tells of what happened on the way.
    fn acquire(
        &self,
        surface: &mut Surface,
        name: &LockName,
        request: &Request,
        wait: Wait,
    ) -> Result<Acquired<Seat>, Failure> {
        let mut progress = Progress::new(surface, name, wait);
        let acquired =
            engine::acquire(&self.store, &self.clock, name, request, wait, &mut progress);
        drop(progress);
        let acquired = acquired.map_err(|error| self.explain(name, error))?;
        report_events(surface, name, &acquired.events);
        Ok(acquired)
    }

    /// What an attempt that did not succeed is to the caller.
    fn explain(&self, name: &LockName, error: AcquireError) -> Failure {
        match error {
            AcquireError::Refused {
                refusal,
                entry,
                waited,
                retry_after_ms,
            } => LockView::refused(
                name,
                self.store.place(name),
                &refusal,
                &entry,
                self.store.policy(),
                &self.clock.now(),
            )
            .into_failure(refusal.reason, waited, retry_after_ms),
            AcquireError::Interrupted => cancelled("acquire"),
            AcquireError::Superseded { by } => superseded(name, &by),
            AcquireError::Store(error) => error.into(),
            other => Failure::new(Exit::General, "ACQUIRE_FAILED", other.to_string()),
        }
    }
}

/// The answer of a call that a signal ended.
fn cancelled(phase: &'static str) -> Failure {
    cancelled_by(signals::stop_asked().unwrap_or(libc::SIGTERM), phase)
}

/// The same for a signal that is known.
fn cancelled_by(number: i32, phase: &'static str) -> Failure {
    let signal = match number {
        libc::SIGINT => "SIGINT",
        libc::SIGHUP => "SIGHUP",
        libc::SIGQUIT => "SIGQUIT",
        _ => "SIGTERM",
    };
    let mut failure = Failure::new(
        Exit::Signalled(number),
        "CANCELLED",
        format!("Cancelled by {signal}"),
    );
    failure.partial = true;
    failure.signal = Some(signal);
    failure.phase = Some(phase);
    failure
}

/// The answer of a run that another one displaced.
fn superseded(name: &LockName, by: &str) -> Failure {
    Failure::new(
        Exit::Superseded,
        "SUPERSEDED",
        format!("{name} was asked for by request {by}, so this run has ended"),
    )
}

/// Tells about what happened on the way to a grant.
fn report_events(surface: &mut Surface, name: &LockName, events: &[Event]) {
    for event in events {
        let Event::Stolen { why, previous, .. } = event else {
            continue;
        };
        let whose = match previous.as_deref().and_then(|claim| claim.holder.process) {
            Some(process) => format!("PID {}", process.pid),
            None => previous.as_deref().map_or_else(
                || "an unreadable record".to_owned(),
                |claim| format!("request {}", claim.holder.request_id),
            ),
        };
        surface.warn(match why {
            Takeover::Stale(_) => {
                format!("{name}: took over from {whose}, which ended without releasing")
            }
            Takeover::Corrupt => format!("{name}: replaced {whose}"),
            Takeover::Active => format!(
                "{name}: OVERRODE the live hold of {whose}; two holders may be at work until it \
                 notices"
            ),
        });
    }
}

/// Runs the body of a verb and shows whichever way it ended.
fn finish(
    mut surface: Surface,
    body: impl FnOnce(&mut Surface) -> Result<(String, serde_json::Value), Failure>,
) -> Exit {
    match body(&mut surface) {
        Ok((text, data)) => surface.succeed(&text, &data),
        Err(failure) => surface.fail(&failure),
    }
}

/// Starts to collect the signals that end a wait.
fn collect_signals() -> Result<Signals, Failure> {
    Signals::collect().map_err(|error| {
        Failure::new(
            Exit::General,
            "NO_SIGNALS",
            format!("signals cannot be collected: {error}"),
        )
    })
}

/// The caller's own text, or what stands for it.
fn why(given: Option<&str>, otherwise: impl FnOnce() -> String) -> String {
    tenure::profile::why(&given.map_or_else(otherwise, str::to_owned))
}

/// The request id that a caller shows, checked.
fn shown(given: Option<&str>) -> Result<Option<String>, Failure> {
    given
        .map(|id| request::request_id(id).map(|id| id.to_string()))
        .transpose()
}
