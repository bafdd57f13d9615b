//! What can go wrong with a guard: one enum per verb, fields in place of texts.
//!
//! [`envelope`](crate::envelope) decides how a program sees a refusal.

use super::Again;
use super::status::{LockHolder, LockStatus, LockWaiter};
use crate::advice::by_variables;
#[cfg(feature = "full")]
use crate::config::ConfigError;
use crate::store::StoreError;
use crate::view::LockView;
use std::fmt;
use std::io::ErrorKind;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::Duration;
use tenure_core::{Claim, Entry, Holder, LockName, NameError, Now, Policy, Reason, Refusal};

/// Why there is no place for locks.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// A configuration cannot be used, or none names a folder.
    #[cfg(feature = "full")]
    Config(ConfigError),
    /// The folder cannot be named.
    Folder {
        /// Why not.
        r#source: std::io::Error,
    },
    /// The locks are kept on servers. A program that wants them opens them by name, and says what it
    /// trusts them by.
    Elsewhere {
        /// The URL that `TENURE_STORE` or a `tenure.toml` names.
        url: String,
    },
    /// The connection to the servers cannot be started.
    Servers {
        /// Why not.
        source: StoreError,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            #[cfg(feature = "full")]
            Self::Config(error) => f.write_str(&by_variables(&error.to_string())),
            Self::Folder { source } => write!(f, "the lock folder cannot be named: {source}"),
            Self::Elsewhere { url } => write!(
                f,
                "the locks are kept at {url}; open them with LockManager::etcd"
            ),
            Self::Servers { source } => source.fmt(f),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Servers { source } => source.source(),
            _ => None,
        }
    }
}

#[cfg(feature = "full")]
impl From<ConfigError> for OpenError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

/// What a caller does that this process refuses, by how the caller asked.
fn advice(again: Again) -> &'static str {
    match again {
        Again::Refuse | Again::Wait => {
            "threads and tasks that take turns ask with Again::Wait, a layer under the lock with Again::Reenter"
        }
        Again::Reenter => {
            "Again::Reenter joins a hold of the same manager that is exclusive or of the mode that is asked for; \
             acquire the lock in that mode first, or release it before"
        }
    }
}

/// Why a lock was not acquired.
#[derive(Debug)]
#[non_exhaustive]
pub enum AcquireError {
    /// The name cannot be the name of a lock.
    Name {
        /// What was given.
        name: String,
        /// The rule that the name breaks.
        r#source: NameError,
    },
    /// A pool of 0 slots was wanted.
    NoSlots {
        /// The lock.
        name: LockName,
    },
    /// Another caller has it, and the wait is over or was not wanted.
    Held(Box<Refused>),
    /// Something else stands there: a record that cannot be read, or a stale one that this policy
    /// leaves alone.
    Refused(Box<Refused>),
    /// The calling process has the lock, in some thread or task, so that waiting for it might never end. See [`Again`].
    HeldByThisProcess {
        /// The lock.
        name: LockName,
        /// The fencing token of that hold.
        token: Option<u64>,
        /// How the caller asked. With [`Again::Reenter`] that hold does not cover the call, or is another manager's.
        again: Again,
    },
    /// The `tenure run` around this process has it, or the program that started it with [`Guard::envs`](super::Guard::envs). That
    /// waits for this process.
    HeldByOuterRun {
        /// The lock.
        name: LockName,
        /// The fencing token of that hold.
        token: u64,
    },
    /// The lock is held from before this process was made by a fork, or became this program by an exec, and nobody but
    /// this process keeps it by now: by a descriptor that it inherited. So a wait would never end.
    HeldFromBefore {
        /// The lock.
        name: LockName,
        /// The fencing token of that hold.
        token: Option<u64>,
    },
    /// Another caller has the lock and waits, itself or through others, for one that this caller works under
    /// ([`Options::under`](super::Options::under)), and this caller came last. Its claim has left the queue. The others go on
    /// once it gives back what it has.
    Deadlock {
        /// The lock.
        name: LockName,
    },
    /// The wait was cancelled. The claim has left the queue.
    Cancelled {
        /// The lock.
        name: LockName,
    },
    /// Another claim asked this one to stop before it held anything.
    Superseded {
        /// The lock.
        name: LockName,
        /// The request id of the caller that asked.
        by: String,
    },
    /// The calling process is a copy (by a fork) of the one that made the manager.
    Forked {
        /// The lock.
        name: LockName,
    },
    /// The system gives no thread for heartbeats, and the lock was given back.
    Thread {
        /// The lock.
        name: LockName,
        /// Why not.
        r#source: std::io::Error,
    },
    /// The store failed: permissions, a full disk, a network file system.
    Store {
        /// The lock.
        name: LockName,
        /// How.
        r#source: StoreError,
    },
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { name, source } => {
                write!(f, "the lock name {name:?} cannot be used: {source}")
            }
            Self::NoSlots { name } => write!(f, "{name}: nobody can have one of 0 slots"),
            Self::Held(refused) | Self::Refused(refused) => refused.fmt(f),
            Self::HeldByThisProcess { name, again, .. } => {
                write!(f, "{name} is held by this process; {}", advice(*again))
            }
            Self::HeldByOuterRun { name, .. } => write!(
                f,
                "{name} is held by the run or program that this process works for"
            ),
            Self::HeldFromBefore { name, .. } => write!(
                f,
                "{name} is held by what this process inherited from an earlier one, which has ended; LockManager::adopt (after a \
         fork) or adopt_handed_on (after an exec) goes on with that hold"
            ),
            Self::Deadlock { name } => write!(
                f,
                "waiting for {name} would never end: its holder waits for a lock that this caller has"
            ),
            Self::Cancelled { name } => write!(f, "waiting for {name} was cancelled"),
            Self::Superseded { name, by } => {
                write!(f, "waiting for {name} was given up in favour of {by}")
            }
            Self::Forked { name } => write!(
                f,
                "{name}: after a fork the copy needs a lock manager of its own"
            ),
            Self::Thread { name, source } => {
                write!(f, "{name}: no thread for heartbeats: {source}")
            }
            Self::Store { name, source } => {
                write!(f, "{name}: {}", by_variables(&source.to_string()))
            }
        }
    }
}

impl std::error::Error for AcquireError {}

impl AcquireError {
    /// Whether the lock is held: by another caller ([`AcquireError::Held`]), by this process, or by the
    /// run around it. For a program that does something else then.
    ///
    /// # Examples
    /// ```
    /// use tenure::testing::Scene;
    /// let scene = Scene::new();
    /// let _theirs = scene.another_process().acquire("deploy")?;
    /// match scene.locks().try_acquire("deploy") {
    ///     Ok(_guard) => println!("mine"),
    ///     Err(error) if error.is_held() => println!("not now: {error}"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok::<(), tenure::guard::AcquireError>(())
    /// ```
    pub fn is_held(&self) -> bool {
        match self {
            Self::Held(_)
            | Self::HeldByThisProcess { .. }
            | Self::HeldByOuterRun { .. }
            | Self::HeldFromBefore { .. }
            | Self::Deadlock { .. } => true,
            Self::Name { .. }
            | Self::NoSlots { .. }
            | Self::Refused(_)
            | Self::Cancelled { .. }
            | Self::Superseded { .. }
            | Self::Forked { .. }
            | Self::Thread { .. }
            | Self::Store { .. } => false,
        }
    }

    /// The holder in the way, if it is another one and its record could be read: its process, its host,
    /// on whose behalf and what for.
    ///
    /// # Examples
    /// ```
    /// use tenure::guard::Options;
    /// use tenure::testing::Scene;
    /// let scene = Scene::new();
    /// let other = scene.another_process();
    /// let _theirs = other.acquire_with("deploy", &Options::new().why("nightly"))?;
    /// let refused = scene.locks().try_acquire("deploy").expect_err("it is held");
    /// assert_eq!(refused.holder().map(|holder| holder.why.as_str()), Some("nightly"));
    /// # Ok::<(), tenure::guard::AcquireError>(())
    /// ```
    pub fn holder(&self) -> Option<&Holder> {
        self.refused()?.holder()
    }

    /// When another try is likely to succeed, a hint; `None` if every try fails until something
    /// changes.
    ///
    /// # Examples
    /// ```
    /// use tenure::testing::Scene;
    /// let scene = Scene::new();
    /// let _theirs = scene.another_process().acquire("deploy")?;
    /// let refused = scene.locks().try_acquire("deploy").expect_err("it is held");
    /// assert!(refused.retry_after().is_some());
    /// let bad = scene.locks().try_acquire("../etc").expect_err("no name");
    /// assert_eq!(bad.retry_after(), None);
    /// # Ok::<(), tenure::guard::AcquireError>(())
    /// ```
    pub fn retry_after(&self) -> Option<Duration> {
        let refused = self.refused()?;
        crate::view::is_retryable(refused.refusal.reason).then_some(refused.retry_after)
    }

    /// The holder in the way as [`AcquireError::holder`] has it, with since when it holds. Its text is a line for people:
    /// `PID 4711 (ada@host) since … (3s ago): deploy`.
    ///
    /// # Examples
    /// ```
    /// use tenure::testing::Scene;
    /// let scene = Scene::new();
    /// let _theirs = scene.another_process().acquire("deploy")?;
    /// let refused = scene.locks().try_acquire("deploy").expect_err("it is held");
    /// let holder = refused.held_by().expect("another process");
    /// assert!(holder.to_string().starts_with("PID "));
    /// # Ok::<(), tenure::guard::AcquireError>(())
    /// ```
    pub fn held_by(&self) -> Option<LockHolder> {
        let refused = self.refused()?;
        let view = refused.view();
        Some(LockHolder::seen(refused.blocker()?, view.holder.as_ref()?))
    }

    /// Whether the system, or the servers, refuse access: no wait helps, and no other name.
    pub fn is_permission(&self) -> bool {
        matches!(self, Self::Store { source, .. } if source.is_permission())
    }

    fn refused(&self) -> Option<&Refused> {
        match self {
            Self::Held(refused) | Self::Refused(refused) => Some(refused),
            Self::Name { .. }
            | Self::NoSlots { .. }
            | Self::HeldByThisProcess { .. }
            | Self::HeldByOuterRun { .. }
            | Self::HeldFromBefore { .. }
            | Self::Deadlock { .. }
            | Self::Cancelled { .. }
            | Self::Superseded { .. }
            | Self::Forked { .. }
            | Self::Thread { .. }
            | Self::Store { .. } => None,
        }
    }
}

impl OpenError {
    /// Whether the system, or the servers, refuse access.
    pub fn is_permission(&self) -> bool {
        let denied = |source: &std::io::Error| source.kind() == ErrorKind::PermissionDenied;
        match self {
            #[cfg(feature = "full")]
            Self::Config(error) => {
                matches!(error, ConfigError::Read { source, .. } if denied(source))
            }
            Self::Folder { source } => denied(source),
            Self::Servers { source } => source.is_permission(),
            Self::Elsewhere { .. } => false,
        }
    }
}

/// What stood in the way of an acquire.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// The lock.
    pub name: LockName,
    /// Where it is kept.
    pub place: String,
    /// The policy by which it was judged.
    pub policy: Policy,
    /// The reason, and the claim that stood in the way.
    pub refusal: Refusal,
    /// The whole list as it was seen last.
    pub entry: Entry,
    /// When that was.
    pub seen: Now,
    /// What is wrong with its record, if it cannot be read.
    pub unreadable_because: Option<String>,
    /// The tickets of the claims in the way whose processes were seen to be stopped.
    pub(super) stopped: Vec<u64>,
    /// The claim that stood in the way is of this process.
    pub(super) is_own: bool,
    /// How long the caller waited; `None` if it did not want to wait.
    pub waited: Option<Duration>,
    /// When a retry is likely to succeed; a hint.
    pub retry_after: Duration,
    /// Set where this process itself holds the lock on servers, from before it replaced its program (exec): when that hold
    /// is free.
    pub before_restart: Option<Duration>,
}

impl Refused {
    /// The claim that stood in the way, where it could be read.
    pub fn blocker(&self) -> Option<&Claim> {
        self.refusal.blocker.as_deref()
    }

    /// The holder of that claim.
    pub fn holder(&self) -> Option<&Holder> {
        self.blocker().map(|claim| &claim.holder)
    }

    /// The waiter before the caller, if the holders alone would have let the caller hold beside them: a writer in line
    /// before a reader.
    pub fn ahead(&self) -> Option<LockWaiter> {
        let claim = self.refusal.ahead.as_deref()?;
        Some(LockWaiter::seen(claim, self.view().ahead.as_ref()?))
    }

    /// How the lock stood, as it was seen last.
    pub fn status(&self) -> LockStatus {
        LockStatus::seen(self.name.clone(), self.view(), Some(&self.entry))
    }
}

impl Refused {
    /// The lock's facts, as a document has them.
    pub(crate) fn view(&self) -> LockView {
        let mut view = LockView::refused(
            &self.name,
            self.place.clone(),
            &self.refusal,
            &self.entry,
            &self.policy,
            &self.seen,
        );
        view.show_stopped(&self.stopped);
        view.unreadable_because.clone_from(&self.unreadable_because);
        if let Some(holder) = &mut view.holder {
            holder.is_this_process = self.is_own;
        }
        view
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rest) = self.before_restart {
            let (name, seconds) = (&self.name, rest.as_secs() + 1);
            return write!(
                f,
                "{name} is held by this process from before it restarted, and is free in {seconds} s"
            );
        }
        let view = self.view();
        match self.refusal.reason {
            Reason::Held | Reason::Unreadable => f.write_str(&view.headline()),
            Reason::QueueFull => {
                write!(f, "{}, and as many wait as may", view.headline())
            }
            Reason::StaleNeedsForce | Reason::NeedsConfirmation => {
                let stale = |left| format!("{} is stale: {left}", self.name);
                let stands = view.left_behind().map_or_else(|| view.headline(), stale);
                write!(f, "{stands}, and nobody takes it over unasked")
            }
            Reason::Unknown => write!(f, "{}: it cannot be found out who has it", self.name),
        }
    }
}

/// What went wrong in a release. The guard is gone: nothing more has to be done, and the error keeps nothing.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lock was not held any more, so two holders may have been at work. The new holder keeps it.
    Lost {
        /// The lock.
        name: LockName,
    },
    /// The store failed. In a folder the lock is free as soon as the next caller looks. On servers the manager tries again
    /// by itself, until the lease of the hold has run out.
    Store {
        /// The lock.
        name: LockName,
        /// How it failed.
        r#source: StoreError,
    },
    /// The calling process is a copy (by a fork) of the one that made the guard, which keeps the lock.
    Forked {
        /// The lock.
        name: LockName,
    },
}

impl fmt::Display for ReleaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { name } => write!(f, "{name} was lost before it was released"),
            Self::Store { name, source } => write!(f, "{name} was not released: {source}"),
            Self::Forked { name } => write!(
                f,
                "{name} belongs to the process that this one is a copy of"
            ),
        }
    }
}

impl std::error::Error for ReleaseError {}

impl ReleaseError {
    /// Whether the system, or the servers, refuse access.
    pub fn is_permission(&self) -> bool {
        matches!(self, Self::Store { source, .. } if source.is_permission())
    }

    /// The lock.
    pub fn name(&self) -> &LockName {
        match self {
            Self::Lost { name } | Self::Store { name, .. } | Self::Forked { name } => name,
        }
    }
}

/// Why a process did not get a hold of an earlier one.
#[derive(Debug)]
#[non_exhaustive]
pub enum AdoptError {
    /// The name cannot be the name of a lock.
    Name {
        /// What was given.
        name: String,
        /// The rule that the name breaks.
        r#source: NameError,
    },
    /// The lock is not held any more: the earlier process gave it back, or somebody took it.
    Lost {
        /// The lock.
        name: LockName,
    },
    /// The calling process is a copy (by a fork) of the one that made the manager.
    Forked {
        /// The lock.
        name: LockName,
    },
    /// The system gives no thread for heartbeats, and the lock was given back.
    Thread {
        /// The lock.
        name: LockName,
        /// Why not.
        r#source: std::io::Error,
    },
    /// The store failed. The lock stays with the earlier process.
    Store {
        /// The lock.
        name: LockName,
        /// How.
        r#source: StoreError,
    },
}

impl fmt::Display for AdoptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { name, source } => {
                write!(f, "the lock name {name:?} cannot be used: {source}")
            }
            Self::Lost { name } => write!(f, "{name} was lost before this process went on with it"),
            Self::Forked { name } => write!(
                f,
                "{name}: after a fork the copy needs a lock manager of its own"
            ),
            Self::Thread { name, source } => {
                write!(f, "{name}: no thread for heartbeats: {source}")
            }
            Self::Store { name, source } => write!(f, "{name}: {source}"),
        }
    }
}

impl std::error::Error for AdoptError {}

/// Why a lock could not be looked at, asked about or cleaned.
#[derive(Debug)]
#[non_exhaustive]
pub enum AdminError {
    /// The name cannot be the name of a lock.
    Name {
        /// What was given.
        name: String,
        /// The rule that the name breaks.
        r#source: NameError,
    },
    /// The store failed.
    Store {
        /// How.
        r#source: StoreError,
    },
    /// The calling process is a copy (by a fork) of the one that made the manager.
    Forked,
}

impl fmt::Display for AdminError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { name, source } => {
                write!(f, "the lock name {name:?} cannot be used: {source}")
            }
            Self::Store { source } => source.fmt(f),
            Self::Forked => f.write_str("after a fork the copy needs a lock manager of its own"),
        }
    }
}

impl From<StoreError> for AdminError {
    fn from(source: StoreError) -> Self {
        Self::Store { source }
    }
}

impl std::error::Error for AdminError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store { source } => source.source(),
            _ => None,
        }
    }
}

impl AdminError {
    /// Whether the system, or the servers, refuse access.
    pub fn is_permission(&self) -> bool {
        matches!(self, Self::Store { source } if source.is_permission())
    }
}

/// Errors of the system are in it, which nothing changes any more.
impl UnwindSafe for AcquireError {}
impl RefUnwindSafe for AcquireError {}
impl UnwindSafe for OpenError {}
impl RefUnwindSafe for OpenError {}

/// Why a hold could not be shown to stand.
#[derive(Debug)]
#[non_exhaustive]
pub enum VerifyError {
    /// The guard does not hold the lock, or not in this process.
    Lost {
        /// The lock.
        name: LockName,
    },
    /// The store failed, and cannot tell.
    Store {
        /// The lock.
        name: LockName,
        /// How.
        r#source: StoreError,
    },
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { name } => write!(f, "{name} is lost"),
            Self::Store { name, source } => write!(f, "{name}: {source}"),
        }
    }
}

impl std::error::Error for VerifyError {}

impl VerifyError {
    /// Whether the system, or the servers, refuse access.
    pub fn is_permission(&self) -> bool {
        matches!(self, Self::Store { source, .. } if source.is_permission())
    }
}
