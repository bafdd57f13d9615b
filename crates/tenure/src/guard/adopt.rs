//! Holds that go on in another process: a copy that a fork made, or the program that this process becomes or starts.
//!
//! The new process makes the hold its own: a new claim with a liveness lock of its own takes the place of the old one in
//! one write. So neither the end of the earlier process nor what it does with its guard touches the hold from then on.
//!
//! What it leaves to others: how a claim is handed over (the core, by a verb of the store).

use super::error::AdoptError;
use super::{Guard, Guards, LockManager, LockName, Options};
#[cfg(unix)]
use crate::inherited;
use crate::process;
use crate::store::verbs::Adopted;
use crate::store::{Handle, StoreError, Verbs};
#[cfg(unix)]
use std::fmt::Write;
#[cfg(unix)]
use std::io;
use tenure_core::{Claim, Liveness, RequestId};

/// A hold as the process knows it that goes on with it.
struct Handed {
    ticket: u64,
    token: u64,
    request_id: RequestId,
}

impl Handed {
    fn is(&self, claim: &Claim) -> bool {
        claim.ticket == self.ticket
            && claim.token == Some(self.token)
            && claim.holder.request_id == self.request_id
    }
}

impl LockManager {
    /// Goes on with a hold in a copy of the process that acquired it, made by a fork: for a daemon that takes its lock while
    /// its user still reads what it says. The copy makes a manager of its own first. The earlier process ends without
    /// dropping its guard ([`std::process::exit`]), or drops it after this: then it has nothing to give back.
    ///
    /// The new guard has **a new token**, higher than before, so that a resource can refuse the earlier process. The guard of
    /// that process shows [`GuardState::Lost`](super::GuardState::Lost). In the process that acquired it, the guard comes back as it is.
    ///
    /// # Errors
    /// - [`AdoptError::Lost`] if the lock is not held any more: the earlier process gave it back, or somebody took it.
    /// - [`AdoptError::Forked`] if this manager is a copy as well.
    /// - [`AdoptError::Thread`] if the system gives no thread. The lock was given back.
    /// - [`AdoptError::Store`] if the store failed. The lock stays with the earlier process.
    ///
    /// After an error this guard is gone, and with it what this process inherited: in a folder the lock is free if its
    /// first process has ended.
    ///
    /// # Crash safety
    /// The copy has a liveness lock of its own before the write that hands the hold over. Death before that write leaves the
    /// hold with the earlier process; death after it leaves a dead claim, which the next caller sweeps.
    ///
    /// # Examples
    /// ```no_run
    /// # fn fork() -> u32 { 0 }
    /// # let folder = "/run/agent/locks";
    /// use tenure::guard::LockManager;
    ///
    /// let guard = LockManager::new(folder)?.try_acquire("agent")?; // refused while the terminal can be told
    /// if fork() != 0 {
    ///     std::process::exit(0); // no drop, so no release
    /// }
    /// let locks = LockManager::new(folder)?;
    /// let guard = locks.adopt(guard)?;
    /// # let _ = guard;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn adopt(&self, guard: Guard) -> Result<Guard, AdoptError> {
        if guard.is_here() {
            return Ok(guard);
        }
        let handed = Handed {
            ticket: guard.handle().ticket(),
            token: guard.token(),
            request_id: guard.holder().request_id.clone(),
        };
        let name = guard.name();
        // Waiters that sleep behind the old claim look again.
        let wakes = |_: &dyn Handle| guard.handle().handed_over();
        let own = match self.take_over(name.clone(), &handed, wakes) {
            Err(AdoptError::Store {
                source: StoreError::Stuck { .. },
                ..
            }) if self.is_dead(&guard) => {
                guard.handle().frees_list();
                self.take_over(name.clone(), &handed, wakes)?
            }
            own => own?,
        };
        let own = own.ok_or_else(|| AdoptError::Lost { name: name.clone() })?;
        Ok(own.for_async(guard.is_async()))
    }

    /// [`LockManager::adopt`] for several locks.
    ///
    /// # Errors
    /// - As [`LockManager::adopt`], of the first that cannot be had. Those that were adopted before are given back.
    ///
    /// # Crash safety
    /// As [`LockManager::adopt`], one after the other.
    pub fn adopt_all(&self, guards: Guards) -> Result<Guards, AdoptError> {
        let mut own = Guards::default();
        for guard in guards.apart() {
            own.push(self.adopt(guard)?);
        }
        Ok(own)
    }

    /// Goes on with a hold that this program was handed ([`Guard::hand_on`]) by the program that it was before an exec, or that
    /// started it. `None` if it was handed none of this lock, or that is not held any more: then it acquires the lock as
    /// everybody does. As [`LockManager::adopt`], it gives a new token.
    ///
    /// # Errors
    /// - As [`LockManager::adopt`], without [`AdoptError::Lost`].
    /// - [`AdoptError::Name`] if the name cannot be the name of a lock.
    ///
    /// # Crash safety
    /// As [`LockManager::adopt`].
    #[cfg(unix)]
    pub fn adopt_handed_on(&self, name: &str) -> Result<Option<Guard>, AdoptError> {
        let named = LockName::new(name).map_err(|source| AdoptError::Name {
            name: name.to_owned(),
            source,
        })?;
        let mut entries = inherited::handed_on().split(';');
        let Some((handed, descriptor)) = entries.find_map(|entry| parse(entry, name)) else {
            return Ok(None);
        };
        let wakes = |own: &dyn Handle| {
            if let Some(descriptor) = descriptor {
                own.took_over(handed.ticket, descriptor);
            }
        };
        self.take_over(named, &handed, wakes)
    }

    /// Whether the process that acquired a guard has certainly ended.
    fn is_dead(&self, guard: &Guard) -> bool {
        let (holder, here) = (guard.holder(), &self.shared.identity.host);
        let seen = (holder.process).map(|it| process::liveness(&it, &holder.host, here, true));
        matches!(seen, Some(Liveness::Dead(_)))
    }

    /// Makes a hold this manager's. `None` if there is no such hold.
    fn take_over(
        &self,
        name: LockName,
        handed: &Handed,
        wakes: impl FnOnce(&dyn Handle),
    ) -> Result<Option<Guard>, AdoptError> {
        let shared = &self.shared;
        if !shared.is_here() {
            return Err(AdoptError::Forked { name });
        }
        let holder = match shared.new_request_id() {
            Ok(request_id) => shared.holder(&Options::new(), request_id),
            Err(source) => return Err(AdoptError::Store { name, source }),
        };
        let now = shared.clock.now();
        let is_meant = |claim: &Claim| handed.is(claim);
        match shared.store.hand_over(&name, &is_meant, &holder, &now) {
            Ok(Adopted::Done { claim, handle }) => {
                wakes(&*handle);
                let kept = self.keep(name.clone(), handle, *claim, false);
                kept.map(Some)
                    .map_err(|source| AdoptError::Thread { name, source })
            }
            Ok(Adopted::Kept | Adopted::Absent) => Ok(None),
            Err(source) => Err(AdoptError::Store { name, source }),
        }
    }
}

/// Holds on their way to another program: the one that this process becomes by an exec, or one that it starts.
///
/// The descriptors of the holds stay open for it until this is dropped.
///
/// # Examples
/// A program that replaces itself, and keeps its lock:
/// ```no_run
/// use std::os::unix::process::CommandExt;
/// # let locks = tenure::testing::locks();
/// // At the start: goes on with what an earlier program hands on.
/// let guard = match locks.adopt_handed_on("agent")? {
///     Some(guard) => guard,
///     None => locks.acquire("agent")?,
/// };
/// // To replace itself:
/// let handed = guard.hand_on()?;
/// let mut new = std::process::Command::new(std::env::current_exe()?);
/// let error = new.envs([handed.env()]).exec(); // comes back only if that failed
/// # let _ = error;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(unix)]
#[derive(Debug)]
#[must_use = "the descriptors are closed as soon as it is dropped"]
pub struct HandedOn {
    value: String,
    _left_open: Vec<std::os::fd::OwnedFd>,
}

#[cfg(unix)]
impl HandedOn {
    fn of(guards: &[Guard]) -> io::Result<Self> {
        let (mut value, mut left_open) = (String::new(), Vec::new());
        for guard in guards {
            let handle = guard.handle();
            let copy = handle.for_exec()?;
            let number = copy.as_ref().map_or(-1, std::os::fd::AsRawFd::as_raw_fd);
            left_open.extend(copy);
            if !value.is_empty() {
                value.push(';');
            }
            let (ticket, token) = (handle.ticket(), guard.token());
            let (id, name) = (&guard.holder().request_id, guard.name());
            let _ = write!(value, "{number}:{ticket}:{token}:{id}={name}");
        }
        Ok(Self {
            value,
            _left_open: left_open,
        })
    }

    /// The variable that the program has to get.
    pub fn env(&self) -> (&'static str, &str) {
        (inherited::HANDED_ON, &self.value)
    }
}

/// The hold of a lock in an entry of the variable, and the number of its descriptor.
#[cfg(unix)]
fn parse(entry: &str, name: &str) -> Option<(Handed, Option<i32>)> {
    let (numbers, named) = entry.split_once('=')?;
    let mut numbers = numbers.splitn(4, ':');
    let descriptor: i32 = numbers.next()?.parse().ok()?;
    let (ticket, token) = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
    let request_id = RequestId::new(numbers.next()?).ok()?;
    let handed = Handed {
        ticket,
        token,
        request_id,
    };
    (named == name).then(|| (handed, (descriptor >= 0).then_some(descriptor)))
}

impl Guard {
    /// Hands the hold on to the program that this process becomes by an exec, or that it starts and that outlives it. That
    /// program calls [`LockManager::adopt_handed_on`]; until then the lock stays held, and without it as long as that
    /// program keeps the descriptor. Without this, an exec frees the lock in a folder, and the next in line gets it; on
    /// servers the lock is nobody's until its lease has run out.
    ///
    /// # Errors
    /// - The system's, if it gives no descriptor.
    ///
    /// # Crash safety
    /// Changes to the list go by another open file from now on. So an exec in the middle of a heartbeat leaves a whole list,
    /// and no lock on it.
    #[cfg(unix)]
    pub fn hand_on(&self) -> io::Result<HandedOn> {
        HandedOn::of(std::slice::from_ref(self))
    }
}

impl Guards {
    /// [`Guard::hand_on`] of all of them.
    ///
    /// # Errors
    /// - As [`Guard::hand_on`].
    #[cfg(unix)]
    pub fn hand_on(&self) -> io::Result<HandedOn> {
        HandedOn::of(self)
    }
}

impl super::Shared {
    pub(super) fn new_request_id(&self) -> Result<RequestId, StoreError> {
        let drawn = crate::sync::locked(&self.ids).draw();
        drawn.map_err(|source| StoreError::Io {
            place: "the system".to_owned(),
            doing: "drawing random bytes for a request id",
            source,
        })
    }
}
