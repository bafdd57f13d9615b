//! Where claims are kept: the [`contract`] of a store, its [`verbs`], and the stores.
//!
//! A store of your own implements [`Store`], six methods. What callers do with a store is in [`Verbs`],
//! which every store has.

pub mod codec;
pub mod contract;
#[cfg(all(feature = "etcd", unix))]
pub mod etcd;
pub mod file;
pub mod memory;
pub mod verbs;

pub use contract::{Handle, Store};
pub use verbs::Verbs;

use crate::profile::ends_without_release;
use tenure_core::{
    Claim, Entry, Evidence, Forced, Liveness, LivenessLock, Mode, Now, Policy, Silence,
    StaleReason, StaleUnforced, Standing, Standstill, is_orphan, judge,
};

/// How a sleep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// Something happened: the caller should look again.
    Ready,
    /// The wait timed out.
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
    /// The tickets of the claims whose processes are certainly stopped. Empty where the store does not
    /// ask that.
    pub stopped: Vec<u64>,
    /// Whether anything is kept. In a reading through a handle: whether this is still the lock in which
    /// its claim was made.
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
        /// How long its holder has been silent.
        silence: Silence,
    },
}

impl Reading {
    /// The standing of the lock under `policy`, and the claim that decides it.
    pub fn standing(&self, policy: &Policy, now: &Now) -> (Standing, Option<&Claim>) {
        match &self.content {
            Content::Whole { entry, evidence } => {
                let known = known_of(entry, evidence);
                let stopped = |claim: &Claim| self.is_stopped(claim);
                match entry.standing_seeing(policy, now, known, stopped) {
                    // The holder of this claim could not release it, so it did not leave the lock
                    // behind. The next caller may take it over.
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

    /// The first claim that is stale although its holder could have released it; a free lock if there is
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

    /// Whether no claim holds, and the next claim does not take its turn.
    pub fn standstill(&self, policy: &Policy, now: &Now) -> Option<(Standstill, &Claim)> {
        let Content::Whole { entry, evidence } = &self.content else {
            return None;
        };
        let known = known_of(entry, evidence);
        entry.standstill_seeing(policy, now, known, |claim| self.is_stopped(claim))
    }

    /// The waiter before a new claim of this mode, if that claim could hold beside the holders but for it.
    pub fn ahead_of(&self, policy: &Policy, mode: Mode, now: &Now) -> Option<&Claim> {
        match &self.content {
            Content::Whole { entry, evidence } => {
                entry.ahead_of(policy, mode, now, known_of(entry, evidence))
            }
            Content::Unreadable { .. } => None,
        }
    }

    /// Whether a new claim of this mode would hold at once, without force.
    pub fn has_room(&self, policy: &Policy, mode: Mode, now: &Now) -> bool {
        match &self.content {
            Content::Whole { entry, evidence } => {
                let known = known_of(entry, evidence);
                entry.has_room(policy, mode, now, known, |claim| self.is_stopped(claim))
            }
            Content::Unreadable { .. } => false,
        }
    }

    /// The standing of one of its claims under `policy`.
    pub fn standing_of(&self, policy: &Policy, claim: &Claim, now: &Now) -> Standing {
        match self.evidence_of(claim) {
            Some(evidence) => judge(policy, claim, &evidence, now),
            None => Standing::Unknown,
        }
    }

    /// Whether a sign of life of one of its claims is seen from here: a byte that is kept, or a process that runs.
    pub fn is_seen_alive(&self, claim: &Claim) -> bool {
        self.evidence_of(claim).is_some_and(|evidence| {
            evidence.liveness_lock == LivenessLock::Held
                || evidence.process == Liveness::Alive
                || evidence.command == Liveness::Alive
        })
    }

    /// Whether one of its claims is a run whose supervisor is dead while its work goes on, however the lock stands.
    pub fn is_orphan(&self, claim: &Claim) -> bool {
        let evidence = self.evidence_of(claim);
        evidence.is_some_and(|evidence| is_orphan(claim, &evidence))
    }

    /// Milliseconds until one of its claims, which counts now, ends by silence; `None` if silence does not end it.
    pub fn ends_in_ms(&self, policy: &Policy, claim: &Claim, now: &Now) -> Option<u64> {
        let boot = claim.boot();
        let rest_ms = claim.lease.remaining_ms(boot, now).saturating_add(1);
        let later = Now {
            wall_us: now.wall_us.saturating_add(rest_ms.saturating_mul(1_000)),
            boot_ms: now.boot_ms.saturating_add(rest_ms),
            ..now.clone()
        };
        let ends = self.standing_of(policy, claim, &later) == Standing::Stale(StaleReason::Silent);
        ends.then_some(rest_ms)
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

/// The evidence that was found for each claim of the list; for any other claim, none.
fn known_of<'a>(entry: &'a Entry, evidence: &'a [Evidence]) -> impl Fn(&Claim) -> Evidence + 'a {
    |claim| {
        let known = entry.position(claim.ticket);
        let known = known.and_then(|index| evidence.get(index).copied());
        known.unwrap_or(Evidence {
            liveness_lock: LivenessLock::None,
            process: Liveness::Unknown,
            command: Liveness::Unknown,
        })
    }
}

/// What [`Verbs::clean`] did to one lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleaned {
    /// The claims that no longer counted.
    pub swept: Vec<Claim>,
    /// Whether nothing is left of the lock.
    pub removed: bool,
    /// The bytes of the record that was removed; empty where there was none.
    pub record: Vec<u8>,
}

/// The process that keeps the guard of a lock, as a message names it.
fn named(keeper: Option<u32>) -> String {
    match keeper {
        Some(pid) => format!("PID {pid}"),
        None => "another process".to_owned(),
    }
}

/// Why a store could not do what a caller asked.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// The system refuses us access to the place.
    Permission {
        /// The path.
        place: String,
        /// What the store was doing.
        doing: &'static str,
    },
    /// The servers refuse this user: it has no right to do this, its password is wrong, or none was
    /// given.
    Denied {
        /// The servers.
        place: String,
        /// What the store was doing.
        doing: &'static str,
        /// The servers' answer.
        why: String,
    },
    /// The machine's lock folder is not there, and only an administrator makes it.
    Missing {
        /// The path.
        place: String,
    },
    /// The place is not safe to keep locks in.
    Unsafe {
        /// The path.
        place: String,
        /// Why.
        why: String,
    },
    /// The file system does not promise working locks.
    FileSystem {
        /// The path.
        place: String,
        /// The kind of file system.
        kind: String,
        /// What that means for locks.
        why: &'static str,
    },
    /// The record cannot be read, and this call may not replace it.
    Unreadable {
        /// The record.
        place: String,
        /// What is wrong with it.
        why: String,
    },
    /// The lock file has a format that this build does not know. No call reads, writes, replaces or removes such a file.
    Format {
        /// The lock file.
        place: String,
        /// The number of its format.
        found: String,
        /// The number of the format that this build reads and writes.
        known: u32,
        /// The program that wrote the format, as far as the file says so.
        by: String,
    },
    /// The claim cannot be written down in the format that this profile publishes.
    Record {
        /// The record.
        place: String,
        /// What the claim lacks.
        why: String,
    },
    /// Each time that we were about to change the record, another program changed it first.
    Contended {
        /// The record.
        place: String,
    },
    /// The list has no room for one more claim. A lock file keeps 1 MiB of claims: some four thousand plain
    /// waiters.
    Full {
        /// The lock.
        place: String,
        /// How many claims stand in it.
        claims: usize,
    },
    /// Another process keeps the guard for longer than any transition takes.
    Stuck {
        /// The lock.
        place: String,
        /// How long this caller waited.
        waited_ms: u64,
        /// Process id of the keeper, if the system shows it.
        keeper: Option<u32>,
    },
    /// Other callers, of this process or of others, change the lock one after the other all the time.
    Crowded {
        /// The lock.
        place: String,
        /// How long this caller waited.
        waited_ms: u64,
    },
    /// The servers cannot be reached, or do not answer in time. It may be unknown whether they carried
    /// out the call; a caller that gets this error holds nothing.
    Unreachable {
        /// The servers.
        place: String,
        /// What the store was doing.
        doing: &'static str,
        /// How it failed.
        why: String,
    },
    /// The handle belongs to another store, or the store breaks its contract. Then the caller is told
    /// nothing about the lock.
    Misused {
        /// The lock.
        place: String,
        /// What is wrong.
        why: &'static str,
    },
    /// The system failed.
    Io {
        /// The path, or the servers.
        place: String,
        /// What the store was doing.
        doing: &'static str,
        /// How it failed.
        r#source: std::io::Error,
    },
}

impl std::fmt::Display for StoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Permission { place, doing } => write!(f, "{place}: permission denied ({doing})"),
            Self::Denied { place, doing, why } => {
                write!(f, "{place}: permission denied ({doing}): {why}")
            }
            Self::Missing { place } => write!(
                f,
                "{place} is not there; an administrator makes it once for the members of a group: {}",
                crate::search::line_that_makes(place, "GROUP")
            ),
            Self::Unsafe { place, why } => {
                write!(f, "{place} is not a safe place for locks: {why}")
            }
            Self::FileSystem { place, kind, why } => write!(f, "{place} is on {kind}, {why}"),
            Self::Unreadable { place, why } => write!(f, "{place} cannot be read as a lock: {why}"),
            Self::Format {
                place,
                found,
                known,
                by,
            } => write!(
                f,
                "{place} has format {found} of lock files, written by {by}; this is tenure {}, which knows format {known}: use \
         one version of tenure for this lock",
                env!("CARGO_PKG_VERSION")
            ),
            Self::Record { place, why } => write!(f, "{place}: {why}"),
            Self::Contended { place } => {
                write!(f, "{place}: another program changes it again and again")
            }
            Self::Full { place, claims } => {
                write!(f, "{place}: the queue is full ({claims} claims)")
            }
            Self::Stuck {
                place,
                waited_ms,
                keeper,
            } => write!(
                f,
                "{place}: {} has been in the middle of a change for {waited_ms} ms; it may be stopped",
                named(*keeper)
            ),
            Self::Crowded { place, waited_ms } => write!(
                f,
                "{place}: so many callers change it that this one had no turn for {waited_ms} ms"
            ),
            Self::Unreachable { place, doing, why } => write!(f, "{place}: {doing}: {why}"),
            Self::Misused { place, why } => write!(f, "{place}: {why}"),
            Self::Io {
                place,
                doing,
                source,
            } => write!(f, "{place}: {doing}: {source}"),
        }
    }
}

impl std::error::Error for StoreError {}

impl StoreError {
    /// Whether the system, or the servers, refuse access.
    pub fn is_permission(&self) -> bool {
        match self {
            Self::Permission { .. } | Self::Denied { .. } => true,
            Self::Io { source, .. } => source.kind() == std::io::ErrorKind::PermissionDenied,
            _ => false,
        }
    }
}

/// Errors of the system are in it, which nothing changes any more.
impl std::panic::UnwindSafe for StoreError {}
impl std::panic::RefUnwindSafe for StoreError {}

/// The answer to [`Verbs::renew_owned`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RenewedOwned {
    /// The hold is renewed.
    Renewed {
        /// The claim as it stands now, with a request to stop if there is one.
        claim: Box<Claim>,
    },
    /// Another owner holds the lock.
    NotOwner {
        /// The claim of the other owner.
        claim: Box<Claim>,
    },
    /// No claim holds the lock.
    Lost,
}

/// The answer to [`Verbs::force_release`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForcedRelease {
    /// What was done to the lock.
    pub released: Forced,
    /// What an audit would record of the bytes that other programs saw.
    pub record: Vec<u8>,
}
