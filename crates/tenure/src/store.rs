//! The contract of a store: where the claims on a lock are kept, and what every store promises.
//!
//! A store keeps the ordered list of claims ([`Entry`]) of every lock and does four things with
//! it: reads it, changes it in one conditional step, wakes a waiter when the claim before it
//! ends, and gathers evidence of life. Which change is right is not the store's business: it runs
//! the core's transition on the list as it stands and writes the result back only if the list is
//! still what the transition saw.
//!
//! # What every store promises
//! - **Each call is one atomic step.** Two callers never see the same list and both write.
//! - **Nothing is written unless the transition asks for it**, and nothing is created by a
//!   renewal, a release or a reading.
//! - **A claim that was written carries evidence from that moment on.** There is no instant at
//!   which a live claimant looks dead.
//! - **Dropping a seat without leaving is dying**: its beacon goes out, its claim is swept by the
//!   next who asks, and whoever waits behind it wakes up.
//! - **Whoever could hold is woken**, and so is whoever was asked to stop while it sleeps, also when
//!   the one who brought that about dies right after its change.
//! - **A waiter that cannot move holds nobody up for ever.** One whose process is stopped is passed by
//!   those behind it once it has had its turn for a grace, and keeps its place; or, where a store
//!   cannot see that, its claim dies by its ttl.
//! - **A place that is kept has one seat at a time.** Coming back to it gives a new one, of which an
//!   older seat takes nothing when it is dropped.
//! - **An error means: not done, or not known.** It never means *free*.
//!
//! [`conformance`] holds every store to this; a store of your own can run it too.

pub mod conformance;
pub mod contract;
#[cfg(all(feature = "etcd", unix))]
pub mod etcd;
pub mod file;
pub mod memory;
pub mod verbs;

use self::verbs::Verbs;
use crate::clock::instant;
use crate::profile::ends_without_release;
use std::time::{Duration, Instant};
use tenure_core::{
    Advance, AgeLimit, Claim, Entering, Entry, Event, Evidence, Force, Forced, Kind, Left,
    LockName, Mode, Now, Ownership, Policy, Predecessor, Process, Released, Renewal, Request,
    StaleUnforced, Standing, Standstill, StopRequest, WaitingFor, judge,
};

/// How a sleep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// Something happened that is worth a look.
    Ready,
    /// The time is up.
    Expired,
    /// The caller was interrupted and wants to stop waiting.
    Interrupted,
}

/// A lock as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// Where the lock is kept, for people.
    pub place: String,
    /// What is kept, with the evidence for each claim in the same order.
    pub content: Content,
    /// The tickets of the claims whose processes are certainly stopped, where the store looks for
    /// that.
    pub stopped: Vec<u64>,
    /// Whether anything is kept. Of a handle: whether the lock is still the one in which its claim was
    /// made.
    pub stored: bool,
    /// The bytes that other programs see; empty where there are none.
    pub record: Vec<u8>,
}

/// What a reading found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A whole list; an absent lock is an empty one.
    Whole {
        /// The list.
        entry: Entry,
        /// What is known of each claim.
        evidence: Vec<Evidence>,
    },
    /// Something that cannot be understood.
    Unreadable {
        /// What is wrong with it.
        why: String,
        /// When it was written last, in milliseconds since the epoch, where the store knows.
        modified_ms: Option<u64>,
    },
}

impl Reading {
    /// What the lock amounts to under `policy`, and the claim that makes it so.
    pub fn standing(&self, policy: &Policy, now: &Now) -> (Standing, Option<&Claim>) {
        match &self.content {
            Content::Whole { entry, evidence } => {
                let known = known_of(entry, evidence);
                let stopped = |claim: &Claim| self.is_stopped(claim);
                match entry.standing_seeing(policy, now, known, stopped) {
                    // What had to end like that was left behind by nobody, if whoever comes next may
                    // take it.
                    (Standing::Stale(_), Some(claim))
                        if policy.stale_unforced == StaleUnforced::TakeOver
                            && ends_without_release(claim) =>
                    {
                        self.left_by_another(entry, policy, now)
                    }
                    standing => standing,
                }
            }
            Content::Unreadable { .. } => (tenure_core::unreadable(policy), None),
        }
    }

    /// The first claim that was left behind and should have been released; a free lock if there is
    /// none.
    fn left_by_another<'a>(
        &self,
        entry: &'a Entry,
        policy: &Policy,
        now: &Now,
    ) -> (Standing, Option<&'a Claim>) {
        let mut left = entry
            .granted()
            .filter(|claim| !ends_without_release(claim))
            .map(|claim| (self.standing_of(policy, claim, now), Some(claim)))
            .filter(|(standing, _)| matches!(standing, Standing::Stale(_)));
        left.next().unwrap_or((Standing::Free, None))
    }

    /// Whether the process of one of its claims is certainly stopped.
    pub fn is_stopped(&self, claim: &Claim) -> bool {
        self.stopped.contains(&claim.ticket)
    }

    /// Whether nobody holds, and the process of the claim that is next is stopped.
    pub fn standstill(&self, policy: &Policy, now: &Now) -> Option<(Standstill, &Claim)> {
        let Content::Whole { entry, evidence } = &self.content else {
            return None;
        };
        // In most lists nobody is stopped.
        if self.stopped.is_empty() {
            return None;
        }
        let known = known_of(entry, evidence);
        entry.standstill_seeing(policy, now, known, |claim| self.is_stopped(claim))
    }

    /// What one of its claims amounts to under `policy`.
    pub fn standing_of(&self, policy: &Policy, claim: &Claim, now: &Now) -> Standing {
        match self.evidence_of(claim) {
            Some(evidence) => judge(policy, claim, &evidence, now),
            None => Standing::Unknown,
        }
    }

    /// Whether one of its claims waits in vain, because its caller has died or its place has
    /// lapsed.
    pub fn is_gone(&self, policy: &Policy, claim: &Claim, now: &Now) -> bool {
        let evidence = self.evidence_of(claim);
        evidence.is_some_and(|evidence| claim.is_gone(policy, evidence, now))
    }

    /// What is known of one of its claims.
    pub fn evidence_of(&self, claim: &Claim) -> Option<Evidence> {
        let Content::Whole { entry, evidence } = &self.content else {
            return None;
        };
        let index = entry.position(claim.ticket)?;
        evidence.get(index).copied()
    }

    /// The claims, if they could be read.
    pub fn entry(&self) -> Option<&Entry> {
        match &self.content {
            Content::Whole { entry, .. } => Some(entry),
            Content::Unreadable { .. } => None,
        }
    }
}

/// What was found out about each claim of a list; about any other, nothing.
fn known_of<'a>(entry: &'a Entry, evidence: &'a [Evidence]) -> impl Fn(&Claim) -> Evidence + 'a {
    |claim| {
        let known = entry.position(claim.ticket);
        let known = known.and_then(|index| evidence.get(index).copied());
        known.unwrap_or(Evidence {
            beacon: tenure_core::Beacon::None,
            process: tenure_core::Liveness::Unknown,
            command: tenure_core::Liveness::Unknown,
        })
    }
}

/// The answer to [`Store::enter`].
#[derive(Debug)]
pub struct Entered<Seat> {
    /// What happened.
    pub entering: Entering,
    /// The list afterwards, for messages and hints. Of a long one in which the caller waits, perhaps
    /// not all.
    pub entry: Entry,
    /// How many waiting claims before the caller's were left out of it.
    pub unread: usize,
    /// What an audit would record.
    pub events: Vec<Event>,
    /// The caller's place, if it got one.
    pub seat: Option<Seat>,
}

/// The answer to [`Store::advance`].
#[derive(Debug)]
pub struct Advanced {
    /// What happened.
    pub advance: Advance,
    /// The list afterwards.
    pub entry: Entry,
    /// What an audit would record.
    pub events: Vec<Event>,
}

/// What [`Store::clean`] did to one lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleaned {
    /// The claims that no longer counted.
    pub swept: Vec<Claim>,
    /// Whether nothing is left of the lock.
    pub removed: bool,
    /// The bytes of the record that was removed; empty where there was none.
    pub record: Vec<u8>,
}

/// Why a store could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The place refuses us.
    #[error("{place}: permission denied ({doing})")]
    Permission {
        /// What was touched.
        place: String,
        /// What was tried.
        doing: &'static str,
    },
    /// The servers refuse this user: it has no right to do this, its password is wrong, or none was
    /// given.
    #[error("{place}: permission denied ({doing}): {why}")]
    Denied {
        /// The servers.
        place: String,
        /// What was tried.
        doing: &'static str,
        /// What they say.
        why: String,
    },
    /// The place is not safe to keep locks in.
    #[error("{place} is not a safe place for locks: {why}")]
    Unsafe {
        /// What was looked at.
        place: String,
        /// Why.
        why: String,
    },
    /// The file system does not promise working locks.
    #[error("{place} is on {kind}, {why}")]
    FileSystem {
        /// What was looked at.
        place: String,
        /// The kind of file system.
        kind: String,
        /// What follows.
        why: &'static str,
    },
    /// The record cannot be read, and this call may not replace it.
    #[error("{place} cannot be read as a lock: {why}")]
    Unreadable {
        /// The record.
        place: String,
        /// What is wrong with it.
        why: String,
    },
    /// The claim cannot be written down in the format that this profile publishes.
    #[error("{place}: {why}")]
    Record {
        /// The record.
        place: String,
        /// What the claim lacks.
        why: String,
    },
    /// Other programs changed the record each time that we were about to.
    #[error("{place}: another program changes it again and again")]
    Contended {
        /// The record.
        place: String,
    },
    /// The list has grown beyond what the store keeps.
    #[error("{place}: the queue is full ({claims} claims)")]
    Full {
        /// The lock.
        place: String,
        /// How many claims stand in it.
        claims: usize,
    },
    /// Another process keeps the guard for longer than any transition takes.
    #[error(
        "{place}: another process has been in the middle of a change for {waited_ms} ms; \
         it may be stopped"
    )]
    Stuck {
        /// The lock.
        place: String,
        /// How long was waited.
        waited_ms: u64,
    },
    /// The servers cannot be reached, or do not answer in time. Whether the call was carried out may
    /// be unknown; nobody who gets this holds anything.
    #[error("{place}: {doing}: {why}")]
    Unreachable {
        /// The servers.
        place: String,
        /// What was tried.
        doing: &'static str,
        /// How it failed.
        why: String,
    },
    /// A handle of another store, or a store that breaks its contract. Nobody may be told anything about
    /// the lock then.
    #[error("{place}: {why}")]
    Misused {
        /// The lock.
        place: String,
        /// What is wrong.
        why: &'static str,
    },
    /// The system failed.
    #[error("{place}: {doing}: {source}")]
    Io {
        /// What was touched.
        place: String,
        /// What was tried.
        doing: &'static str,
        /// How it failed.
        r#source: std::io::Error,
    },
}

/// What [`Store::notices`] gives: the system's own kind of descriptor, which does not block.
pub type Notices = crate::os::Descriptor;

/// Where claims are kept. The module's documentation is the contract.
pub trait Store {
    /// A claim's place. Whoever keeps it is alive for this store; dropping it is dying.
    type Seat;

    /// The row by which this store judges and decides.
    fn policy(&self) -> &Policy;

    /// Where a lock is kept, for people.
    fn place(&self, name: &LockName) -> String;

    /// After how long a silence others may take a hold of this ttl although its holder lives; `None`
    /// where they never do. Whoever holds has to renew within that time, or to stop relying on the
    /// lock: counted from before the last renewal that succeeded was begun, and until there is one
    /// from the last sign of life that the granted claim shows (`lease.renewed`), which may be older
    /// than the grant.
    fn lapses(&self, ttl: Duration) -> Option<Duration> {
        let rule = self.policy().age?;
        match rule.limit {
            AgeLimit::SilenceTtl => Some(ttl),
            AgeLimit::SilenceMs(limit_ms) => Some(Duration::from_millis(limit_ms)),
            // No renewal changes when that happens.
            AgeLimit::SinceGrantMs(_) => None,
        }
    }

    /// A descriptor that can be read each time that something has happened to the claim of a seat, for
    /// whoever holds and has other things to do. `None` where the store does not tell; then a holder
    /// finds out with its next renewal.
    fn notices(&self, _seat: &Self::Seat) -> Option<Notices> {
        None
    }

    /// How often the place in which this store keeps its locks was found to be another one than before:
    /// removed, renamed, or hidden by something mounted over it. Costs one question to the system. A
    /// keeper of holds asks it every few seconds, and looks at its holds when the answer changes.
    fn moves(&self) -> u64 {
        0
    }

    /// Reads one lock. Creates nothing and needs no right to write.
    fn read(&self, name: &LockName) -> Result<Reading, StoreError>;

    /// Enters a claim, or refuses it.
    fn enter(
        &self,
        name: &LockName,
        request: Request,
        now: &Now,
    ) -> Result<Entered<Self::Seat>, StoreError>;

    /// Sleeps until the claim before ends, and no later than `until`. May wake up early; keeps
    /// nothing of the predecessor's when it returns.
    fn sleep(
        &self,
        seat: &Self::Seat,
        behind: &Predecessor,
        now: &Now,
        until: Option<Instant>,
    ) -> Result<Wake, StoreError>;

    /// Looks whether a waiting claim holds now, and grants it in the same step.
    fn advance(&self, seat: &Self::Seat, now: &Now) -> Result<Advanced, StoreError>;

    /// Names the command that a granted claim was taken for. False if the claim is gone.
    fn name_command(
        &self,
        seat: &Self::Seat,
        command: Process,
        now: &Now,
    ) -> Result<bool, StoreError>;

    /// Renews a granted claim. Never creates one.
    fn renew(&self, seat: &Self::Seat, now: &Now) -> Result<Renewal, StoreError>;

    /// Looks whether a granted claim still stands, and whether it was asked to stop. Writes
    /// nothing.
    fn verify(&self, seat: &Self::Seat, now: &Now) -> Result<Renewal, StoreError>;

    /// Takes a claim out of the list and puts its beacon out, in this order.
    fn leave(&self, seat: &Self::Seat, now: &Now) -> Result<Left, StoreError>;

    /// The same for whoever may be followed by others in its own hold ([`Store::is_entered`]): `None`, and
    /// nothing is changed, while they work. Where the store knows of none, it is [`Store::leave`].
    fn leave_if_alone(&self, seat: &Self::Seat, now: &Now) -> Result<Option<Left>, StoreError> {
        self.leave(seat, now).map(Some)
    }

    /// Whether others work within the hold of a seat: runs that went on under it by `--reentrant`.
    fn is_entered(&self, _seat: &Self::Seat) -> bool {
        false
    }

    /// Keeps a waiting claim's place while its caller is away, and puts its beacon out, in this
    /// order. False if there is nothing that could be kept: it holds, it was asked to stop, or it
    /// is gone. The seat is of no use afterwards; [`Store::enter`] gives a new one.
    fn park(
        &self,
        seat: &Self::Seat,
        owner: Option<Process>,
        grace_ms: u64,
        now: &Now,
    ) -> Result<bool, StoreError>;

    /// Asks whoever holds and is alive to stop, and says whom. For a caller who does not want the
    /// lock.
    fn cancel(
        &self,
        name: &LockName,
        by: StopRequest<'_>,
        now: &Now,
    ) -> Result<Vec<Claim>, StoreError>;

    /// Writes down what the work under a hold waits for on another lock, or that it waits no
    /// longer. False if nothing is held under this token.
    fn note_waiting(
        &self,
        name: &LockName,
        token: u64,
        waiting_for: Option<&WaitingFor>,
        now: &Now,
    ) -> Result<bool, StoreError>;

    /// Renews the hold of which `owns` says so.
    fn renew_owned(
        &self,
        name: &LockName,
        owns: &dyn Fn(&Claim) -> Ownership,
        now: &Now,
    ) -> Result<RenewedOwned, StoreError>;

    /// Releases whatever is held, if the policy lets this caller.
    fn release_owned(
        &self,
        name: &LockName,
        owns: &dyn Fn(&Claim) -> Ownership,
        now: &Now,
    ) -> Result<Released, StoreError>;

    /// Removes whatever is there, if the policy lets force do that. For an operator who wants the
    /// lock gone and not for himself.
    fn force_release(
        &self,
        name: &LockName,
        force: Force,
        now: &Now,
    ) -> Result<ForcedRelease, StoreError>;

    /// Sleeps until the first live claim of a lock changes or ends; for callers without a claim.
    fn watch(
        &self,
        name: &LockName,
        seen: &Reading,
        now: &Now,
        until: Option<Instant>,
    ) -> Result<Wake, StoreError>;

    /// Shows the name of every lock that this store keeps, in no order, one at a time.
    fn names(&self, each: &mut dyn FnMut(LockName)) -> Result<(), StoreError>;

    /// Removes what is proven stale; with `dry_run` only says what it would remove.
    fn clean(&self, name: &LockName, now: &Now, dry_run: bool) -> Result<Cleaned, StoreError>;
}

/// Every store over one transaction is one of the older kind.
impl<S: contract::Store> Store for S {
    type Seat = Box<dyn contract::Handle>;

    fn policy(&self) -> &Policy {
        &self.rules().policy
    }

    fn place(&self, name: &LockName) -> String {
        self.location(name).shown
    }

    fn lapses(&self, ttl: Duration) -> Option<Duration> {
        self.rules().lapse(ttl)
    }

    fn notices(&self, seat: &Self::Seat) -> Option<Notices> {
        let notices = contract::Store::notices(self, &**seat);
        notices.map(|notices| notices.descriptor)
    }

    fn moves(&self) -> u64 {
        contract::Store::moves(self)
    }

    fn read(&self, name: &LockName) -> Result<Reading, StoreError> {
        contract::Store::read(self, name, None)
    }

    fn enter(
        &self,
        name: &LockName,
        request: Request,
        now: &Now,
    ) -> Result<Entered<Self::Seat>, StoreError> {
        let entered = Verbs::enter(self, name, request, now)?;
        Ok(Entered {
            entering: entered.entering,
            entry: entered.entry,
            unread: entered.unread,
            events: entered.events,
            seat: entered.handle,
        })
    }

    fn sleep(
        &self,
        seat: &Self::Seat,
        behind: &Predecessor,
        now: &Now,
        until: Option<Instant>,
    ) -> Result<Wake, StoreError> {
        Verbs::sleep(self, &**seat, behind, now, until)
    }

    fn advance(&self, seat: &Self::Seat, now: &Now) -> Result<Advanced, StoreError> {
        let tried = self.try_grant(&**seat, now)?;
        Ok(Advanced {
            advance: tried.advance,
            entry: tried.entry,
            events: tried.events,
        })
    }

    fn name_command(
        &self,
        seat: &Self::Seat,
        command: Process,
        now: &Now,
    ) -> Result<bool, StoreError> {
        Verbs::name_command(self, &**seat, command, now)
    }

    fn renew(&self, seat: &Self::Seat, now: &Now) -> Result<Renewal, StoreError> {
        Verbs::renew(self, &**seat, now)
    }

    fn verify(&self, seat: &Self::Seat, now: &Now) -> Result<Renewal, StoreError> {
        Verbs::verify(self, &**seat, now)
    }

    fn leave(&self, seat: &Self::Seat, now: &Now) -> Result<Left, StoreError> {
        self.release(&**seat, now)
    }

    fn leave_if_alone(&self, seat: &Self::Seat, now: &Now) -> Result<Option<Left>, StoreError> {
        self.release_if_alone(&**seat, now)
    }

    fn is_entered(&self, seat: &Self::Seat) -> bool {
        contract::Handle::is_entered(&**seat)
    }

    fn park(
        &self,
        seat: &Self::Seat,
        owner: Option<Process>,
        grace_ms: u64,
        now: &Now,
    ) -> Result<bool, StoreError> {
        self.reserve(&**seat, owner, grace_ms, now)
    }

    fn cancel(
        &self,
        name: &LockName,
        by: StopRequest<'_>,
        now: &Now,
    ) -> Result<Vec<Claim>, StoreError> {
        Verbs::cancel(self, name, by, now)
    }

    fn note_waiting(
        &self,
        name: &LockName,
        token: u64,
        waiting_for: Option<&WaitingFor>,
        now: &Now,
    ) -> Result<bool, StoreError> {
        Verbs::note_waiting(self, name, token, waiting_for, now)
    }

    fn renew_owned(
        &self,
        name: &LockName,
        owns: &dyn Fn(&Claim) -> Ownership,
        now: &Now,
    ) -> Result<RenewedOwned, StoreError> {
        Verbs::renew_owned(self, name, owns, now)
    }

    fn release_owned(
        &self,
        name: &LockName,
        owns: &dyn Fn(&Claim) -> Ownership,
        now: &Now,
    ) -> Result<Released, StoreError> {
        Verbs::release_owned(self, name, owns, now)
    }

    fn force_release(
        &self,
        name: &LockName,
        force: Force,
        now: &Now,
    ) -> Result<ForcedRelease, StoreError> {
        Verbs::force_release(self, name, force, now)
    }

    fn watch(
        &self,
        name: &LockName,
        seen: &Reading,
        now: &Now,
        until: Option<Instant>,
    ) -> Result<Wake, StoreError> {
        Verbs::watch(self, name, seen, now, until)
    }

    fn names(&self, each: &mut dyn FnMut(LockName)) -> Result<(), StoreError> {
        contract::Store::names(self, contract::Which::Locks, each)
    }

    fn clean(&self, name: &LockName, now: &Now, dry_run: bool) -> Result<Cleaned, StoreError> {
        Verbs::clean(self, name, now, dry_run)
    }
}

/// The answer to [`Store::renew_owned`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RenewedOwned {
    /// The hold is renewed.
    Renewed {
        /// The claim as it stands now, with a request to stop if there is one.
        claim: Box<Claim>,
    },
    /// Somebody else holds the lock.
    NotOwner {
        /// That claim.
        claim: Box<Claim>,
    },
    /// Nobody does.
    Lost,
}

/// The answer to [`Store::force_release`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForcedRelease {
    /// What was done.
    pub released: Forced,
    /// What an audit would record of the bytes that other programs saw.
    pub record: Vec<u8>,
}

/// How a sleep ended that was to last until `until` and was cut shorter, for a look.
pub(crate) fn woken_early(wake: Wake, until: Option<Instant>) -> Wake {
    match wake {
        Wake::Expired if until.is_none_or(|until| until > instant()) => Wake::Ready,
        other => other,
    }
}

/// A place that [`Entry::enter`] has just made in the list.
pub(crate) struct NewPlace {
    /// Its ticket.
    pub(crate) ticket: u64,
    /// Whether its beacon has to be lit before it can be seen. A detached hold lives by its
    /// record; while it waits, it has a beacon like every other claim.
    pub(crate) beacon: bool,
}

impl NewPlace {
    /// The place that a claim of this kind got; `None` if none was made.
    pub(crate) fn of(entering: &Entering, kind: Kind, _mode: Mode) -> Option<Self> {
        match entering {
            Entering::Granted { ticket, .. } => Some(Self {
                ticket: *ticket,
                beacon: kind == Kind::Kernel,
            }),
            Entering::Queued { ticket, .. } => Some(Self {
                ticket: *ticket,
                beacon: true,
            }),
            Entering::Yours { .. } | Entering::Refused(_) | Entering::NotKept => None,
        }
    }
}

/// The transition of [`Store::renew_owned`], and whether it changed the list.
pub(crate) fn renew_owned(
    entry: &mut Entry,
    owns: &dyn Fn(&Claim) -> Ownership,
    now: &Now,
) -> (RenewedOwned, bool) {
    let granted = || entry.claims.iter().filter(|claim| claim.token.is_some());
    let own = granted().find(|claim| owns(claim) == Ownership::Shown);
    let Some(ticket) = own.map(|claim| claim.ticket) else {
        let other = granted().next().cloned().map(Box::new);
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

/// The transition of [`Store::release_owned`], and whether it changed the list.
pub(crate) fn release_owned(
    entry: &mut Entry,
    policy: &Policy,
    owns: &dyn Fn(&Claim) -> Ownership,
    now: &Now,
) -> (Released, bool) {
    let released = entry.release(policy, owns, now);
    let changed = matches!(released, Released::Done { .. });
    (released, changed)
}
