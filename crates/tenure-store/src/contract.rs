//! The contract of a store: where the claims on a lock are kept, and what every store promises.
//!
//! A store keeps the ordered list of claims ([`Entry`]) of every lock. It reads the list, commits a
//! change to it in one conditional step ([`Store::transact`]), keeps a claim alive ([`Handle`]), and
//! wakes a waiter. It does not decide which change is right: the [verbs](super::verbs) are written once,
//! over these few methods, and run the core's transitions.
//!
//! # What every store promises
//! - **Each transaction is one atomic step.** It commits what the change made of the list that the
//!   commit replaces, as far as the change [rests on](RestsOn) that list.
//! - **A transaction writes nothing that its change did not ask for.** Only a call that makes a claim makes a lock.
//! - **A claim has its liveness lock before any caller can see it.** A live claimant never looks dead.
//! - **Dropping a handle is dying.** The store releases the liveness lock. The next caller that looks
//!   sweeps the claim, and the waiter behind it wakes up.
//! - **A waiter that could hold is woken.** So is a sleeping waiter that was asked to stop, even if the
//!   asking process dies right after its change.
//! - **A reserved place has one handle at a time.** Dropping an older handle takes nothing from the
//!   newer one.
//! - **The outcome is known.** If a request may or may not have been carried out, the store finds out
//!   inside the transaction. An error means *not done, or not known*; it never means *free*.
//!
//! A change is pure: it looks at its [`Draft`] and alters nothing else. So a store may run it again on a
//! newer list, or beforehand on the list that it expects. At the end the store says which run counts.
//!
//! `tenure-conformance` holds every store to this; a store of your own can run it too.

use super::{Reading, StoreError, Wake};
use std::any::Any;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tenure_core::{
    AgeLimit, AgentKey, Claim, Entering, Entry, Event, Evidence, Kind, Left, LockName, Mode, Now,
    Policy, Predecessor, RestsOn, Silence,
};

/// The shortest lease that servers give, in milliseconds.
pub(crate) const LEASE_MIN_MS: u64 = 2_000;

/// The rules by which a store judges claims, and what silence does to a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The row by which claims are judged.
    pub policy: Policy,
    /// Every claim lapses at its ttl although its process lives: the store keeps it by a lease.
    pub leased: bool,
    /// An answer may take as long as a network does.
    pub network: bool,
    /// Several claims may hold beside each other. False where a published record has room for one.
    pub beside: bool,
}

impl Rules {
    /// The rules of a store on this machine, where several claims may hold beside each other.
    pub fn local(policy: Policy) -> Self {
        Self {
            policy,
            leased: false,
            network: false,
            beside: true,
        }
    }

    /// The shortest ttl of a claim here, in milliseconds; a shorter one is raised to it. Servers give no shorter lease, and
    /// no holder could renew one in time.
    pub fn ttl_min_ms(&self) -> u64 {
        if self.leased && self.network {
            LEASE_MIN_MS
        } else {
            1
        }
    }

    /// How long a hold with this ttl may be silent until other callers may take it although its process
    /// lives; `None` where they never may. A holder renews within that time, or stops relying on the
    /// lock.
    ///
    /// The time counts from the instant before the last successful renewal began. Before the first one,
    /// it counts from the last sign of life of the granted claim (`lease.renewed`), which may be older
    /// than the grant.
    pub fn lapse(&self, ttl: Duration) -> Option<Duration> {
        if self.leased {
            return Some(ttl);
        }
        match self.policy.age?.limit {
            AgeLimit::SilenceTtl => Some(ttl),
            AgeLimit::SilenceMs(limit_ms) => Some(Duration::from_millis(limit_ms)),
            // A renewal does not move this limit.
            AgeLimit::SinceGrantMs(_) => None,
        }
    }
}

/// Where a lock is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// As people are shown it.
    pub shown: String,
    /// The file that changes with the lock, for a caller that watches many locks; `None` where no path of this process
    /// leads to it.
    pub file: Option<PathBuf>,
}

/// A claim that this process keeps alive. Dropping it is dying.
pub trait Handle: Any + Debug + Send + Sync {
    /// The lock.
    fn name(&self) -> &LockName;

    /// The ticket of the claim.
    fn ticket(&self) -> u64;

    /// Releases the liveness lock, after the claim left the list or its place was reserved. It unlocks
    /// explicitly, because another process may have inherited the descriptor.
    fn let_go(&self);

    /// What a command inherits so that the claim lives on after its supervisor dies; `None` where the
    /// store has no descriptor.
    ///
    /// No other thread may be in the middle of a change by this handle when it is asked for, nor when a process with a
    /// copy is forked.
    #[cfg(unix)]
    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }

    /// Notes that the claim is lost or given up: dropping the handle waits for no answer.
    fn forsake(&self) {}

    /// No process has a copy of the descriptor any more. A caller that does not know it does not say it.
    #[doc(hidden)]
    fn taken_back(&self) {}

    /// The hold goes on as another claim ([`Verbs::hand_over`](super::verbs::Verbs::hand_over)), and this handle is the copy
    /// that a fork made: wakes the waiters that sleep behind the old claim. Touches no mutex, which another thread may have had
    /// at the fork.
    #[doc(hidden)]
    fn handed_over(&self) {}

    /// Frees the list for others where the process that made this handle died in the middle of a change: the copy that a fork
    /// made has the guard with its descriptor. Only for a copy, and only once its maker is dead.
    #[doc(hidden)]
    fn frees_list(&self) {}

    /// [`Handle::handed_over`] in the program that got [`Handle::for_exec`], by the handle of the new claim. `from` is the
    /// ticket of the old one. Closes the descriptor of this number, if it is the one.
    #[cfg(unix)]
    #[doc(hidden)]
    fn took_over(&self, from: u64, descriptor: i32) {
        let _ = (from, descriptor);
    }

    /// A descriptor for [`Handle::handed_over`] in the program that this process becomes or starts: it carries the liveness
    /// lock, and an exec leaves it open. `None` where the store has none. From now on changes go by another open file, so
    /// that an exec in the middle of one leaves no guard behind.
    ///
    /// # Errors
    /// - The system's, if it gives no descriptor.
    #[cfg(unix)]
    #[doc(hidden)]
    fn for_exec(&self) -> std::io::Result<Option<std::os::fd::OwnedFd>> {
        Ok(None)
    }

    /// Whether other runs work within this hold (`run --reentrant`). A look that fails answers true,
    /// because it does not prove that they have gone.
    fn is_entered(&self) -> bool {
        false
    }
}

/// A part in the hold of another process ([`Store::go_within`]). Dropping it gives it back.
pub trait Within: Debug + Send + Sync {
    /// What a command inherits so that the part outlives its supervisor; `None` where the store has no
    /// descriptor.
    #[cfg(unix)]
    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }
}

/// How much the store finds out about a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// A held liveness lock is enough.
    Quick,
    /// The store looks at the recorded processes as well.
    Thorough,
}

/// What a change is about.
///
/// A store may show and compare more than this, never less. Only [`About::Renewal`] makes the store do
/// something: it renews the lease.
#[derive(Debug, Clone, Copy)]
pub enum About<'a> {
    /// A new claim. It makes the lock if there is none.
    NewClaim {
        /// The two ends of the list are enough if the claim queues behind the last one.
        ends: bool,
        /// The store may put the claim at the end of a list that no run has looked at. If the claim
        /// could hold there, the verb looks again.
        unseen: bool,
    },
    /// A waiting claim, the claims before it, and the claims that hold.
    Turn(&'a dyn Handle),
    /// The claim of this handle alone.
    Own(&'a dyn Handle),
    /// The claim of this handle alone. Before the change, the store renews what keeps it alive.
    Renewal(&'a dyn Handle),
    /// The whole list.
    All,
}

impl<'a> About<'a> {
    /// The handle of the claim that asks, if there is one already.
    pub fn handle(&self) -> Option<&'a dyn Handle> {
        match self {
            Self::Turn(handle) | Self::Own(handle) | Self::Renewal(handle) => Some(*handle),
            Self::NewClaim { .. } | Self::All => None,
        }
    }
}

/// What a caller asks of a transaction.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The lock.
    pub name: &'a LockName,
    /// What the change is about.
    pub about: About<'a>,
    /// The instant at which the caller asks.
    pub now: &'a Now,
    /// How long the store may take, if that is less than its own patience.
    pub within: Option<Duration>,
    /// The caller waits for its turn, so a crowd that changes the lock in turns is no reason to give up.
    pub waits: bool,
    /// A release by name: the store also removes what the format's original tool left beside the record,
    /// even where no claim holds.
    pub tidies: bool,
}

impl<'a> Ask<'a> {
    /// Asks with the store's own patience.
    pub fn new(name: &'a LockName, about: About<'a>, now: &'a Now) -> Self {
        Self {
            name,
            about,
            now,
            within: None,
            waits: false,
            tidies: false,
        }
    }

    /// Asks about the claim of this handle alone.
    pub fn own(handle: &'a dyn Handle, now: &'a Now) -> Self {
        Self::new(handle.name(), About::Own(handle), now)
    }

    /// Sets how long the store may take, if that is less than its own patience.
    #[must_use]
    pub fn within(self, within: Option<Duration>) -> Self {
        Self { within, ..self }
    }
}

/// What a store found and cannot understand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corrupt {
    /// What is wrong with it.
    pub why: String,
    /// Where it lies, for people.
    pub place: String,
    /// How long its holder has been silent.
    pub silence: Silence,
    /// Bytes of the record, if other programs see them.
    pub record: Vec<u8>,
    /// Whether this is a record of another program's format, and not the store's own list.
    pub is_record: bool,
    /// True: a caller that may not replace it is refused, as it would be by a claim that holds. False:
    /// its call fails.
    pub refuses: bool,
    /// Why no caller may replace it, as the end of a sentence: a live claim stands in it, or a newer
    /// version of this program wrote it.
    pub sealed: Option<&'static str>,
}

/// A list in the making: everything that a change may look at or alter.
pub struct Draft<'a> {
    /// The list. Tickets and tokens that the change assigns are provisional.
    pub entry: Entry,
    /// What happened, for the audit.
    pub events: Vec<Event>,
    /// How many waiting claims before the end were left out of the list.
    pub unread: usize,
    /// What could not be understood. The list above is what remains without it.
    pub corrupt: Option<Corrupt>,
    /// Finds out about a claim of the list.
    pub evidence: &'a dyn Fn(&Claim, Depth) -> Evidence,
    /// Whether the process of a claim is certainly stopped.
    pub stopped: &'a dyn Fn(&Claim) -> bool,
    /// Whether other runs work within the hold of the handle that asks.
    pub entered: &'a dyn Fn() -> bool,
    /// How long ago the published record was written, in milliseconds: by the clock of a file system that other machines
    /// reach. `None` elsewhere, for there the one clock is that of this machine.
    pub written_ago_ms: &'a dyn Fn() -> Option<u64>,
}

impl<'a> Draft<'a> {
    /// A whole list that was understood. Its store neither asks whether processes are stopped nor counts
    /// the runs within a hold.
    pub fn whole(entry: Entry, evidence: &'a dyn Fn(&Claim, Depth) -> Evidence) -> Self {
        Self {
            entry,
            events: Vec::new(),
            unread: 0,
            corrupt: None,
            evidence,
            stopped: &|_| false,
            entered: &|| false,
            written_ago_ms: &|| None,
        }
    }
}

impl Debug for Draft<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Draft")
            .field("entry", &self.entry)
            .field("events", &self.events)
            .field("unread", &self.unread)
            .field("corrupt", &self.corrupt)
            .finish_non_exhaustive()
    }
}

/// A claim that a change makes, or a reserved claim that its caller comes back to. The store takes its
/// liveness lock before it writes the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewClaim {
    /// Ticket of the claim in the draft.
    pub ticket: u64,
    /// How it proves that it lives.
    pub kind: Kind,
    /// Whether it needs a liveness lock. A granted detached claim lives by its record; while it waits,
    /// it has a liveness lock like every other claim.
    pub liveness: bool,
    /// Whether other waiters may go on once this claim no longer waits. Then the store has to tell them.
    pub turn: bool,
}

impl NewClaim {
    /// The claim that entering made, with this kind and mode; `None` if entering made none.
    pub fn of(entering: &Entering, kind: Kind, mode: Mode) -> Option<Self> {
        let (ticket, liveness, turn) = match entering {
            Entering::Granted { ticket, .. } => (*ticket, kind == Kind::Kernel, false),
            Entering::Queued { ticket, .. } => (*ticket, true, mode != Mode::Exclusive),
            Entering::Yours { .. } | Entering::Refused(_) | Entering::NotKept => return None,
        };
        Some(Self {
            ticket,
            kind,
            liveness,
            turn,
        })
    }
}

/// What the store does with a draft after the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// Write nothing.
    Keep,
    /// Claims that were left out matter: the store runs the change again on the whole list.
    ShowAll,
    /// Write the draft.
    Write(Write),
}

/// How a draft is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// The claim that the change made.
    pub makes: Option<NewClaim>,
    /// What the change rests on. A scope that is too narrow gives two holders. The rule ([`RestsOn`])
    /// says what each verb leaves out, and why its answer does not depend on that.
    pub rests_on: RestsOn,
    /// The store replaces what could not be understood, or removes it where no claim is left.
    pub discards: bool,
    /// The store removes the lock and keeps its highest number. Only for a list in which the change found no claims.
    pub removes: bool,
}

impl Write {
    /// A change that makes no claim and rests on the claims that it alters.
    pub const PLAIN: Self = Self {
        makes: None,
        rests_on: RestsOn::Nothing,
        discards: false,
        removes: false,
    };
}

impl Step {
    /// Writes a change that rests on the claims that it alters, if it altered any.
    pub fn write_if(changed: bool) -> Self {
        if changed {
            Self::Write(Write::PLAIN)
        } else {
            Self::Keep
        }
    }
}

/// How a transaction ended.
#[derive(Debug)]
pub enum Outcome {
    /// The lock does not exist, or is no longer the lock in which the handle's claim was made.
    Absent,
    /// The change counts.
    Done(Committed),
}

/// The run of the change that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Run {
    /// The run with this number, counted from 0.
    Nth(usize),
    /// No run: the store put the claim at the end of a list that no run had looked at.
    Unseen,
}

/// A change that counts.
#[derive(Debug)]
pub struct Committed {
    /// The run whose answer counts.
    pub run: Run,
    /// The list afterwards, with the final tickets and tokens.
    pub entry: Entry,
    /// What happened, with the final numbers and the bytes of a record that was replaced.
    pub events: Vec<Event>,
    /// How many waiting claims before the end were left out of the list above. After a look of a waiter
    /// ([`About::Turn`]): how many before its own.
    pub unread: usize,
    /// The bytes that other programs saw before the change; empty where there were none.
    pub record: Vec<u8>,
    /// The final ticket of the claim that the change made.
    pub own: Option<u64>,
    /// The handle of that claim.
    pub handle: Option<Box<dyn Handle>>,
}

impl Committed {
    /// The first run of a change that made no claim. The store keeps the numbers of the draft.
    pub fn first(draft: Draft<'_>) -> Self {
        Self {
            run: Run::Nth(0),
            entry: draft.entry,
            events: draft.events,
            unread: draft.unread,
            record: Vec::new(),
            own: None,
            handle: None,
        }
    }
}

/// What a caller waits for.
#[derive(Debug, Clone, Copy)]
pub struct Waiting<'a> {
    /// The lock.
    pub name: &'a LockName,
    /// The waiter's own claim; `None` for a caller without one.
    pub by: Option<&'a dyn Handle>,
    /// What the waiter stands behind.
    pub behind: &'a Predecessor,
    /// [`Entry::last`] of the list in which a caller without a claim saw that predecessor. A handle
    /// remembers the list that it was shown last.
    pub since: Option<u64>,
    /// The instant at which the wait begins.
    pub now: &'a Now,
}

impl<'a> Waiting<'a> {
    /// The wait of a claim.
    pub(super) fn of(handle: &'a dyn Handle, behind: &'a Predecessor, now: &'a Now) -> Self {
        Self {
            name: handle.name(),
            by: Some(handle),
            behind,
            since: None,
            now,
        }
    }
}

/// Where a holder learns that something happened to its claim.
#[derive(Debug)]
pub struct Notices {
    /// Becomes readable each time that something happens. It does not block.
    pub descriptor: tenure_os::os::Descriptor,
    /// The holder's own renewal ends the notices, because it replaces a file that is watched.
    pub ends_with_renewal: bool,
}

/// The names that a store is to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The names of locks.
    Locks,
    /// The names of which only our own file is left, beside a record that is gone.
    Leftovers,
}

/// What an agent does, as its host says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentSign<'a> {
    /// The agent is at work.
    Seen,
    /// The agent is at work, and holds something here: its signs count from now on.
    Holds,
    /// The agent began a call of this name, which may take long. Its holds live as long as the call goes on.
    Began(&'a str),
    /// The call of this name has ended.
    Ended(&'a str),
    /// The agent ended its turn: no call of its own is under way, whether or not its end was reported.
    Rests,
}

/// The signs of life of agents, kept apart from their claims, so that a sign costs the same however many claims an
/// agent has. The claims that the store shows are as fresh as the signs of their agents.
pub trait Agents {
    /// Notes a sign of an agent. For an agent that has taken nothing here, only the calls count that are under way: it may
    /// take a lock while they last.
    ///
    /// # Errors
    /// - [`StoreError`] if the sign cannot be written.
    fn note(&self, agent: &AgentKey, sign: AgentSign<'_>, now: &Now) -> Result<(), StoreError>;

    /// Whether an agent that `key` covers may hold something here. False is certain.
    ///
    /// # Errors
    /// - [`StoreError`] if the place cannot be read.
    fn may_hold(&self, key: &AgentKey) -> Result<bool, StoreError>;

    /// Forgets the signs of all agents that `key` covers, for a caller that has ended their holds, and says whether there
    /// were any.
    ///
    /// # Errors
    /// - [`StoreError`] if one cannot be removed.
    fn forget(&self, key: &AgentKey) -> Result<bool, StoreError>;

    /// Removes signs that are too old to say anything about a hold, and says how many there were. With `dry_run`
    /// it only looks.
    ///
    /// # Errors
    /// - [`StoreError`] if the place cannot be read, or one cannot be removed.
    fn forget_old(&self, now: &Now, dry_run: bool) -> Result<usize, StoreError>;
}

/// What a store does last with a lock that it removes ([`Write::removes`]). If the system refuses only that, all else is
/// written, and the lock is free.
pub(crate) const REMOVING: &str = "removing an unused lock";

/// What ends a sleep without a thread. It may be called on any thread, more than once, and does not block.
pub type Ring = Arc<dyn Fn() + Send + Sync>;

/// A sleep without a thread, for as long as this is kept.
pub struct Parked {
    /// When it ends at the latest, whatever happens.
    pub until: Option<Instant>,
    /// What listens.
    pub listens: Box<dyn Any + Send + Sync>,
}

impl Debug for Parked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parked")
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}

/// A place that keeps claims. The module's documentation is the contract.
pub trait Store: Send + Sync {
    /// The rules by which claims are judged here.
    fn rules(&self) -> &Rules;

    /// Where a lock is.
    fn location(&self, name: &LockName) -> Location;

    /// Reads a lock. With a handle: the lock in which its claim was made, or what is left of it; then a
    /// store may show that claim alone. Creates nothing, needs no right to write, and waits for no other
    /// process's change.
    ///
    /// # Errors
    /// - [`StoreError`] if the place cannot be read. Content that can be read but not understood is
    ///   [`Content::Unreadable`](super::Content::Unreadable).
    fn read(&self, name: &LockName, of: Option<&dyn Handle>) -> Result<Reading, StoreError>;

    /// Shows the list to `change`, and commits what the change made of it in one conditional step.
    ///
    /// # Crash safety
    /// A process that dies at any instant has committed the whole change or nothing. A committed claim
    /// whose handle died with its process is a dead claim. A store whose steps are bounded may commit a
    /// change that is too large for one step in parts (etcd does). After each part the list is whole: a part
    /// removes or rewrites claims, each of which rests on itself alone, and a grant comes with the last part.
    ///
    /// # Errors
    /// - [`StoreError`] if the change was not committed, or the store cannot find out whether it was.
    ///   The caller holds nothing then: the store gives up a claim that may have been made.
    fn transact(
        &self,
        ask: &Ask<'_>,
        change: &mut dyn FnMut(&mut Draft<'_>) -> Step,
    ) -> Result<Outcome, StoreError>;

    /// Sleeps until the waiter's predecessor has ended or changed, the waiter is asked to stop, or
    /// `until`. May wake early. Keeps nothing of the predecessor's when it returns.
    ///
    /// # Errors
    /// - [`StoreError`] if the store cannot tell when one of these happens.
    fn wait(&self, waiting: &Waiting<'_>, until: Option<Instant>) -> Result<Wake, StoreError>;

    /// The sleep of [`Store::wait`] without a thread that sleeps: has `ring` called once it would end, perhaps before this
    /// returns. `None` where the store knows no other sleep than that of a thread.
    ///
    /// # Errors
    /// - As [`Store::wait`].
    fn park(&self, _waiting: &Waiting<'_>, _ring: &Ring) -> Result<Option<Parked>, StoreError> {
        Ok(None)
    }

    /// Shows every name, in no order, one at a time.
    ///
    /// # Errors
    /// - [`StoreError`] if the place cannot be listed.
    fn names(&self, which: Which, each: &mut dyn FnMut(LockName)) -> Result<(), StoreError>;

    /// Reads locks one after the other, for a caller that shows many. Each answer is that of [`Store::read`].
    /// Where several claims name one process, the store may use for all of them what it saw of that process a
    /// moment before.
    fn read_several(&self, names: &[LockName]) -> Vec<Result<Reading, StoreError>> {
        names.iter().map(|name| self.read(name, None)).collect()
    }

    /// Where the holder of a claim learns that something happened to it. `None` where the store does not
    /// tell; there a holder finds out with its next renewal.
    fn notices(&self, _of: &dyn Handle) -> Option<Notices> {
        None
    }

    /// What a user should know about the place before relying on it.
    ///
    /// # Errors
    /// - [`StoreError`] if the place cannot be looked at.
    fn warning(&self) -> Result<Option<String>, StoreError> {
        Ok(None)
    }

    /// How often the store found another place than before: the old one was removed, renamed, or hidden
    /// by a mount. A renewer of many holds asks every few seconds, and looks at its holds when the
    /// number changes.
    fn moves(&self) -> u64 {
        0
    }

    /// Removes what still stands of a hold whose claim left the list without its holder: the record that
    /// other programs see. `None` if nothing stands.
    ///
    /// # Errors
    /// - [`StoreError`] if something stands and cannot be removed.
    fn withdraw(&self, _of: &dyn Handle, _now: &Now) -> Result<Option<Left>, StoreError> {
        Ok(None)
    }

    /// Where the store keeps the signs of life of agents, if it keeps them apart from their claims. `None`: a
    /// sign of an agent is a renewal of each of its claims.
    fn agents(&self) -> Option<&dyn Agents> {
        None
    }

    /// Takes part in a hold that stands; `None` if no hold has this token any more. While the part is
    /// kept, [`Handle::is_entered`] of the hold is true where the store can tell.
    ///
    /// # Errors
    /// - [`StoreError`] if the place cannot be read.
    fn go_within(
        &self,
        name: &LockName,
        token: u64,
    ) -> Result<Option<Box<dyn Within>>, StoreError> {
        let reading = self.read(name, None)?;
        let mut granted = reading.entry().into_iter().flat_map(Entry::granted);
        let stands = granted.any(|claim| claim.token == Some(token));
        Ok(stands.then(|| -> Box<dyn Within> { Box::new(NoPart) }))
    }
}

/// A part in a hold, of a store that does not count the parts.
#[derive(Debug)]
struct NoPart;

impl Within for NoPart {}

/// Casts a handle to the store's own kind.
///
/// # Errors
/// - [`StoreError::Misused`] if another store made it.
pub fn own<H: Handle>(
    handle: &dyn Handle,
    place: impl FnOnce() -> String,
) -> Result<&H, StoreError> {
    let any: &dyn Any = handle;
    any.downcast_ref().ok_or_else(|| StoreError::Misused {
        place: place(),
        why: "the claim was made in another store",
    })
}
