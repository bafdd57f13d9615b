//! What is explored: which contenders take part, under which row, and what may go wrong.

use tenure_core::{Force, Mode, Patience, Policy, Queueing};

/// What a contender is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Job {
    /// `run`: a supervisor with a command.
    Run,
    /// `acquire`: a process that takes the lock for a lasting owner and goes away.
    Detached,
    /// `clean`: sweeps what is dead.
    Clean,
}

/// When a command closes the descriptor of the liveness lock that it inherited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closes {
    Never,
    /// Some time after the supervisor has recorded its identity.
    OnceNamed,
    /// As soon as it likes.
    Anytime,
}

/// What becomes of its place when a contender has lost its patience.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The claim leaves the list.
    Left,
    /// The place is kept, and its contender comes back to it, once in each round.
    Kept,
    /// The place is kept, and its contender never comes back to it.
    Abandoned,
}

/// Whether a contender's process may be stopped while it waits, once in each round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stops {
    Never,
    /// The process goes on some time.
    ForAWhile,
    /// The process never goes on.
    ForEver,
}

/// What one contender does, and what may befall it.
#[expect(
    clippy::struct_excessive_bools,
    reason = "a script is a list of switches"
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) job: Job,
    pub(crate) rounds: u8,
    pub(crate) force: Force,
    pub(crate) patience: Patience,
    /// May lose its patience in any sleep.
    pub(crate) gives_up: bool,
    /// The work never ends by itself: a command has to be asked, an owner has to be overridden.
    pub(crate) endless: bool,
    /// Renews once while it works.
    pub(crate) renews: bool,
    pub(crate) closes: Closes,
    /// The owner of a detached hold may die at any time.
    pub(crate) mortal_owner: bool,
    pub(crate) mode: Mode,
    pub(crate) queueing: Queueing,
    /// Asks the holders to stop when it has to wait.
    pub(crate) cancels: bool,
    pub(crate) place: Place,
    pub(crate) stops: Stops,
}

impl Script {
    pub(crate) const RUN: Self = Self {
        job: Job::Run,
        rounds: 1,
        force: Force::No,
        patience: Patience::Queue,
        gives_up: false,
        endless: false,
        renews: false,
        closes: Closes::Never,
        mortal_owner: false,
        mode: Mode::Exclusive,
        queueing: Queueing::Fifo,
        cancels: false,
        place: Place::Left,
        stops: Stops::Never,
    };
    pub(crate) const DETACHED: Self = Self {
        job: Job::Detached,
        ..Self::RUN
    };
    pub(crate) const CLEAN: Self = Self {
        job: Job::Clean,
        ..Self::RUN
    };
}

/// A change to the protocol that the invariants have to notice (or have to prove harmless).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Defect {
    /// The claim is written first and its byte locked afterwards, both under the guard.
    TakesLivenessAfterCommit,
    /// The claim's byte is locked only after the guard was let go.
    TakesLivenessAfterUnlock,
    /// The byte is let go first and the claim taken out afterwards.
    PutsOutBeforeLeaving,
    /// As before, and a waiter that wakes goes on with the list as it read it when it fell asleep.
    PutsOutBeforeLeavingAndWakesWithAStaleList,
    /// A waiter that wakes up holds, without a look at the list.
    HoldsOnWaking,
    /// A waiter looks and writes without the guard.
    LooksWithoutTheGuard,
    /// A renewal writes back what it read before it had the guard.
    RenewsWithoutTheGuard,
    /// The byte on which a waiter woke up was locked by it as an owner does, and stays so.
    KeepsThePredecessorsByte,
    /// Leaving takes the first claim out, whichever it is.
    LeavesWithoutATicket,
    /// Releasing by request id believes every caller.
    ReleasesWithoutOwnership,
    /// A change of the record is noticed only if it happens during the sleep.
    NoticesOnlyNewChanges,
    /// A waiter that gives up takes its claim out and keeps its byte locked.
    GivesUpWithItsLivenessLockHeld,
    /// The command does not inherit the liveness lock.
    LivenessLockIsNotInherited,
    /// The core is not told whether the command still runs.
    NeverAsksTheCommand,
    /// The lock is given back before the work has ended.
    ReleasesBeforeTheWorkEnds,
    /// The record is written in place: a crash leaves nothing.
    WritesInPlace,
    /// The guard is let go between the decision and the write.
    UnlocksBeforeCommit,
    /// A process that cannot be seen is reported as dead.
    ReportsWaitersAsDead,
    /// A waiter lets go of its turn's byte between the decision and the write, both under the
    /// guard.
    GivesItsTurnBeforeCommit,
    /// A waiter lets go of its turn's byte as it wakes up, before it has looked.
    GivesItsTurnBeforeLooking,
    /// A holder keeps its turn's byte until it leaves.
    KeepsItsTurn,
    /// A waiter that was asked to stop still blocks the others.
    CountsWhoWasDisplaced,
    /// A claim whose caller is away blocks the others.
    CountsWhoIsAway,
    /// A caller that comes back to its place does not see a claim that was granted behind it.
    OverlooksHoldersBehind,
    /// A caller that waits in a queue of one leaves the waiter before it there.
    NeverDisplaces,
    /// A waiter is not woken by a request to stop.
    SleepsThroughRequestsToStop,
    /// A place is kept with the write alone: its liveness lock goes on being held.
    ReservesWithItsLivenessLockHeld,
    /// A waiter whose process is stopped keeps its turn.
    WaitsForTheStopped,
    /// A waiter that is slow counts as stopped.
    TakesTheSlowForStopped,
    /// A waiter that was passed is passed again when its process goes on.
    ForgetsWhoGoesOn,
    /// A waiting claim that is granted rests on nothing.
    LooksRestOnNothing,
    /// A waiter that was passed while it was stopped looks at those before it alone.
    LooksOfThePassedRestOnBefore,
    /// A claim that holds beside others looks at those before it alone.
    LooksBesideOthersRestOnBefore,
    /// A claim that holds as it enters rests on nothing.
    GrantsAtOnceRestOnNothing,
    /// A claim that queues rests on nothing, also if it takes the places of others.
    QueuesRestOnNothing,
    /// A claim that comes back to its place rests on those before it alone.
    ReturnsRestOnBefore,
    /// A lock is removed even if a claim came to it meanwhile.
    RemovesRestOnNothing,
    /// A claim of slots gets as its number how many others hold.
    NumbersByCount,
}

/// How a change comes into the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Commits {
    /// Under the guard of the file store.
    Guarded,
    /// By comparison, as in a store on servers.
    Compared,
}

/// A configuration to explore.
#[expect(
    clippy::struct_excessive_bools,
    reason = "a scenario is a list of switches"
)]
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) policy: Policy,
    pub(crate) scripts: Vec<Script>,
    /// How many crashes may happen altogether.
    pub(crate) crashes: u8,
    /// The readings that the clock goes through, as (wall in µs, boot in ms). Time passes from one
    /// to the next at any moment, but surely in the end.
    pub(crate) clock: &'static [(u64, u64)],
    /// The command is recorded before it may begin: it waits, forked, until its supervisor has
    /// named it, and ends without beginning if the supervisor dies first.
    pub(crate) gated: bool,
    pub(crate) commits: Commits,
    /// Every state is asked as well whether what a change leaves out changes its answer.
    pub(crate) looks_ahead: bool,
    pub(crate) defect: Option<Defect>,
    /// Nobody sees whether a process is stopped. Who looks has watched for a grace that the next claim does not take its
    /// turn, whether that one runs or not.
    pub(crate) unseen: bool,
    /// Contenders keep their names when states are compared.
    pub(crate) named: bool,
}

impl Scenario {
    pub(crate) fn native(name: &'static str, scripts: &[Script]) -> Self {
        Self {
            name,
            policy: Policy::NATIVE,
            scripts: scripts.to_vec(),
            crashes: 0,
            clock: &[(0, 0)],
            gated: false,
            commits: Commits::Guarded,
            looks_ahead: false,
            defect: None,
            unseen: false,
            named: false,
        }
    }

    pub(crate) fn crashes(self, crashes: u8) -> Self {
        Self { crashes, ..self }
    }

    pub(crate) fn gated(self) -> Self {
        Self {
            gated: true,
            ..self
        }
    }

    pub(crate) fn defect(self, defect: Defect) -> Self {
        Self {
            defect: Some(defect),
            ..self
        }
    }

    pub(crate) fn policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    pub(crate) fn clock(self, clock: &'static [(u64, u64)]) -> Self {
        Self { clock, ..self }
    }

    pub(crate) fn unseen(self) -> Self {
        Self {
            unseen: true,
            ..self
        }
    }

    pub(crate) fn compared(self) -> Self {
        Self {
            commits: Commits::Compared,
            ..self
        }
    }

    pub(crate) fn looks_ahead(self) -> Self {
        Self {
            looks_ahead: true,
            ..self
        }
    }

    pub(crate) fn is_compared(&self) -> bool {
        self.commits == Commits::Compared
    }

    pub(crate) fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// Stamps are part of a state only where an age may decide something.
    pub(crate) fn is_timed(&self) -> bool {
        self.policy.age.is_some()
    }
}
