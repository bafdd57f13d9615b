//! What a program does with locks beside holding them: check, list, wait, cancel, clean.
//!
//! The meaning of each is the engine's, and the command line's verbs of these names have the same.

use super::error::{AcquireError, AdminError};
use super::status::{LockHolder, LockStatus};
use super::{Again, CANCEL_LOOK, Cancel, LockManager, Options, named};
use crate::cancel;
use crate::clock::instant;
use crate::offload;
use crate::profile::why;
use crate::store::contract::Which;
use crate::store::{StoreError, Verbs};
use std::fmt;
use std::time::Instant;
use tenure_core::{CancelKind, LockName, Mode, StopRequest};
use tenure_engine::cleaning::{self, Step};
use tenure_engine::engine;
use tenure_engine::readings::{LockReading, Readings, names};
use tenure_engine::vacancy::{Look, Onlooker, WaitResult, until_room};

impl LockManager {
    /// How a lock stands: who holds it, who waits. Takes nothing and writes nothing. The answer may be old as soon as it
    /// is there: a program that wants the lock tries to take it.
    ///
    /// # Errors
    /// - [`AdminError::Name`] if the name cannot be the name of a lock.
    /// - [`AdminError::Store`] if the place cannot be read.
    /// - [`AdminError::Forked`] in a copy of the process that made this manager.
    ///
    /// # Examples
    /// ```
    /// # let locks = tenure::testing::locks();
    /// let guard = locks.acquire("deploy")?;
    /// let status = locks.check("deploy")?;
    /// assert_eq!(status.holders[0].token, Some(guard.token()));
    /// println!("{status}"); // deploy is held by PID 4711 (ada@host) since …
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check(&self, name: &str) -> Result<LockStatus, AdminError> {
        let name = self.may_manage(name)?;
        let shared = &self.shared;
        // Before it is read: a holder that has sent its heartbeats is then never taken for a silent one.
        let now = shared.clock.now();
        let reading = shared.store.read(&name, None)?;
        Ok(LockStatus::of(name, &reading, &shared.policy, &now))
    }

    /// How all locks of the place stand, in the order of their names, as [`LockManager::check`] says it. A lock that cannot be
    /// read is [`Unknown`](super::LockStanding::Unknown), and the others are still listed.
    ///
    /// # Errors
    /// - [`AdminError::Store`] if the place cannot be listed.
    /// - [`AdminError::Forked`] in a copy of the process that made this manager.
    ///
    /// # Examples
    /// ```
    /// # let locks = tenure::testing::locks();
    /// let both = locks.acquire_all(["schema", "data"], &tenure::guard::Options::new())?;
    /// let names: Vec<_> = locks.list()?.into_iter().map(|lock| lock.name.to_string()).collect();
    /// assert_eq!(names, ["data", "schema"]);
    /// # drop(both);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn list(&self) -> Result<Vec<LockStatus>, AdminError> {
        self.is_ours()?;
        let (store, clock) = (&*self.shared.store, &*self.shared.clock);
        let names = names(store, Which::Locks)?;
        let readings = Readings::of(store, clock, names);
        let policy = &self.shared.policy;
        let status = readings.map(|LockReading { name, reading, now }| {
            if let Ok(reading) = reading {
                return LockStatus::of(name, &reading, policy, &now);
            }
            let place = store.location(&name).shown;
            LockStatus::unknown(name, policy, place)
        });
        Ok(status.collect())
    }

    /// Waits until a request with these options would hold at once, and takes nothing: whoever asks first has the lock
    /// then. The mode, the wait, the cancel and [`Again`] of `options` count, and nothing else of them.
    ///
    /// # Errors
    /// - As [`LockManager::acquire_with`].
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tenure::guard::Options;
    /// # let locks = tenure::testing::locks();
    /// locks.wait("deploy", &Options::new().wait(Duration::from_secs(5)))?;
    /// # Ok::<(), tenure::guard::AcquireError>(())
    /// ```
    pub fn wait(&self, name: &str, options: &Options) -> Result<(), AcquireError> {
        let name = named(name)?;
        let shared = &self.shared;
        let mode = shared.may_ask(&name, options)?;
        let limit = self.patience(options);
        let mut waiting = Waiting {
            locks: self,
            name: &name,
            mode,
            options,
        };
        let (store, clock) = (&*shared.store, &*shared.clock);
        let vacancy = cancel::listening(options.cancel.as_ref(), || {
            until_room(store, clock, &name, mode, limit, &mut waiting)
        });
        let vacancy = vacancy.map_err(|ended| match ended {
            EarlyEnd::Answer(error) => *error,
            EarlyEnd::Store(source) => AcquireError::Store {
                name: name.clone(),
                source,
            },
        })?;
        let error = match vacancy.found {
            WaitResult::Room => return Ok(()),
            WaitResult::Interrupted => engine::AcquireError::Interrupted,
            WaitResult::Refused {
                refusal,
                entry,
                retry_after_ms,
            } => engine::AcquireError::Refused {
                refusal,
                entry,
                waited: limit.limit(),
                retry_after_ms,
                kept: None,
                displaced: Vec::new(),
            },
        };
        Err(shared.explain(name, options.again, (mode, None), error))
    }

    /// [`LockManager::wait`] for async code, on any executor. A thread waits, for as long as the future lives.
    ///
    /// # Errors
    /// - As [`LockManager::wait`].
    pub fn wait_async(
        &self,
        name: &str,
        options: &Options,
    ) -> impl Future<Output = Result<(), AcquireError>> + Send + use<> {
        let (locks, name, options) = (self.clone(), name.to_owned(), options.clone());
        async move {
            let failed = named(&name)?;
            let given = options.cancel.clone();
            let done = offload::cancellable("tenure-wait", given, move |cancel| {
                locks.wait(&name, &options.cancel(cancel))
            });
            let thread = |source| AcquireError::Thread {
                name: failed,
                source,
            };
            done.await.map_err(thread)?
        }
    }

    /// Asks the holders of a lock to stop, as `tenure cancel` does, and says who was asked: nobody if it is not held. No
    /// lock is taken from its holder. A `tenure run` ends its command; a guard shows
    /// [`StopRequested`](super::GuardState::StopRequested), and its work has to end. `reason` is shown to them.
    ///
    /// # Errors
    /// - [`AdminError::Name`] if the name cannot be the name of a lock.
    /// - [`AdminError::Store`] if the request cannot be written.
    /// - [`AdminError::Forked`] in a copy of the process that made this manager.
    ///
    /// # Crash safety
    /// The request is one change of the list: it is there or not.
    ///
    /// # Examples
    /// ```
    /// # let scene = tenure::testing::Scene::new();
    /// let theirs = scene.another_process().acquire("deploy")?;
    /// let asked = scene.locks().cancel("deploy", "the release was withdrawn")?;
    /// assert_eq!(asked.len(), 1);
    /// scene.until(|| theirs.should_stop());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(&self, name: &str, reason: &str) -> Result<Vec<LockHolder>, AdminError> {
        let name = self.may_manage(name)?;
        let (shared, reason) = (&self.shared, why(reason));
        let by = shared.new_request_id()?;
        let request = StopRequest {
            by: by.as_str(),
            actor: &shared.identity.actor,
            why: &reason,
            kind: CancelKind::Operator,
            grace_ms: None,
        };
        let now = shared.clock.now();
        let asked = shared.store.cancel(&name, request, None, &now)?;
        let asked = asked.iter().map(|claim| LockHolder::of(claim, &now));
        Ok(asked.collect())
    }

    /// Removes claims whose holders are gone, and the files of unused locks, as `tenure clean` does. Nothing depends on it:
    /// the next caller of a lock passes what is stale.
    ///
    /// # Errors
    /// - [`AdminError::Store`] if the place cannot be listed. What fails for one lock is in the answer.
    /// - [`AdminError::Forked`] in a copy of the process that made this manager.
    ///
    /// # Crash safety
    /// Each lock is cleaned in one change, which is done or not.
    pub fn clean(&self) -> Result<CleanReport, AdminError> {
        self.is_ours()?;
        let (store, clock) = (&*self.shared.store, &*self.shared.clock);
        let mut report = CleanReport::default();
        let locks = names(store, Which::Locks)?;
        cleaning::clean(store, clock, locks, false, |step| {
            let now = clock.now();
            match step {
                Step::Lock(name, Ok(cleaned)) => {
                    report.files += usize::from(cleaned.removed);
                    let swept = cleaned.swept.iter();
                    let swept = swept.map(|claim| (name.clone(), LockHolder::of(claim, &now)));
                    report.claims.extend(swept);
                }
                Step::Leftover(Ok(cleaned)) => report.files += usize::from(cleaned.removed),
                Step::Signs(Ok(files)) => report.files += files,
                Step::Lock(_, Err(source))
                | Step::Leftover(Err(source))
                | Step::Signs(Err(source)) => report.failed.push(AdminError::Store { source }),
            }
            Ok::<_, AdminError>(())
        })?;
        Ok(report)
    }

    fn may_manage(&self, name: &str) -> Result<LockName, AdminError> {
        self.is_ours()?;
        LockName::new(name).map_err(|source| AdminError::Name {
            name: name.to_owned(),
            source,
        })
    }

    fn is_ours(&self) -> Result<(), AdminError> {
        if self.shared.is_here() {
            Ok(())
        } else {
            Err(AdminError::Forked)
        }
    }
}

/// What [`LockManager::clean`] removed, and in its text how much.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct CleanReport {
    /// The claims that no longer counted, with their locks.
    pub claims: Vec<(LockName, LockHolder)>,
    /// How many files of unused locks.
    pub files: usize,
    /// What could not be cleaned.
    pub failed: Vec<AdminError>,
}

impl fmt::Display for CleanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&cleaning::removed(false, self.claims.len(), self.files))
    }
}

/// A wait that takes nothing.
struct Waiting<'a> {
    locks: &'a LockManager,
    name: &'a LockName,
    mode: Mode,
    options: &'a Options,
}

/// What ends such a wait early.
enum EarlyEnd {
    Answer(Box<AcquireError>),
    Store(StoreError),
}

impl From<StoreError> for EarlyEnd {
    fn from(source: StoreError) -> Self {
        Self::Store(source)
    }
}

impl Waiting<'_> {
    fn ends(&self, error: impl FnOnce(LockName) -> AcquireError) -> EarlyEnd {
        EarlyEnd::Answer(Box::new(error(self.name.clone())))
    }
}

impl Onlooker for Waiting<'_> {
    type Error = EarlyEnd;

    fn sees(&mut self, look: &Look<'_>) -> Result<(), EarlyEnd> {
        let (shared, options) = (&self.locks.shared, self.options);
        if options.cancel.as_ref().is_some_and(Cancel::is_cancelled) {
            return Err(self.ends(|name| AcquireError::Cancelled { name }));
        }
        let Some(entry) = look.reading.entry().filter(|_| !look.view.available) else {
            return Ok(());
        };
        if options.again != Again::Wait
            && let Some(own) = shared.own_blocker(self.name, entry, self.mode, None)
        {
            let (token, again) = (own.token, options.again);
            return Err(self.ends(|name| AcquireError::HeldByThisProcess { name, token, again }));
        }
        match super::outer_run(shared, self.name, entry) {
            Some(token) => Err(self.ends(|name| AcquireError::HeldByOuterRun { name, token })),
            None => Ok(()),
        }
    }

    fn sleeps(&mut self, _: &Look<'_>) -> Result<Option<Instant>, EarlyEnd> {
        let looks = self.options.cancel.is_some() && !self.locks.shared.hears_cancel;
        Ok(looks.then(|| instant() + CANCEL_LOOK))
    }

    fn hindered(&mut self, _: &StoreError) -> Result<(), EarlyEnd> {
        if self
            .options
            .cancel
            .as_ref()
            .is_some_and(Cancel::is_cancelled)
        {
            return Err(self.ends(|name| AcquireError::Cancelled { name }));
        }
        Ok(())
    }
}
