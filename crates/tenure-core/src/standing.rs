//! What a claim's evidence amounts to: the only judge of alive, stale and unknown.
//!
//! Evidence is weighed from the strongest to the weakest: a kernel lock that the holder keeps, a
//! machine that restarted, the identity of a process, the silence of a heartbeat, the age of the
//! record. The policy row says which of them is asked at all. Unknown is never dead unless the
//! row says so in as many words.
//!
//! `decision` says what to do about a standing.

use crate::claim::{Claim, Kind};
use crate::policy::{AgeLimit, Policy, UnknownLife, UnreadableRule};
use crate::time::Now;

/// The kernel lock that a claimant keeps for as long as it, or its command, lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LivenessLock {
    /// A process keeps it.
    Held,
    /// No process on this kernel keeps it.
    Released,
    /// A lease on servers that ran out. The claimant has been silent for longer than its ttl; it may be dead,
    /// stopped or cut off. Over a network no process proves anything: clones of one machine share all by which a
    /// process is known. So the lease alone decides.
    Lapsed,
    /// The store has no liveness locks, or the claim never had one.
    None,
}

/// Why a process is certainly gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Death {
    /// No process has that number.
    Gone,
    /// The process has ended and only waits to be collected.
    Zombie,
    /// Another process has its number now.
    Replaced,
    /// The machine has restarted since.
    Rebooted,
}

/// What is known of a recorded process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// The process runs.
    Alive,
    /// The process certainly does not run.
    Dead(Death),
    /// The process cannot be seen from here.
    Unknown,
    /// The record names none.
    NotRecorded,
}

/// All that was gathered about one claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evidence {
    /// State of the liveness lock.
    pub liveness_lock: LivenessLock,
    /// The supervisor of a run, the owner of a detached hold.
    pub process: Liveness,
    /// The command of a run.
    pub command: Liveness,
}

/// Why a claim no longer counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StaleReason {
    /// The liveness lock is released and the command, if there was one, is gone.
    LivenessLockReleased,
    /// The process is dead.
    ProcessDead(Death),
    /// The process cannot be judged, and this profile takes that as dead.
    ProcessUnknown,
    /// Nothing can be seen of it, and its heartbeat has been silent for longer than its ttl.
    Silent,
    /// The claim is older than this profile, or the claim itself, allows.
    Aged,
    /// The record cannot be read, and this profile takes that as stale.
    Unreadable,
}

/// How a held lock is kept alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// By a supervised run or a guard, with a liveness lock.
    Supervised,
    /// By a run whose supervisor died while its command goes on.
    Orphaned,
    /// By a record alone: an owner's process or a ttl.
    Detached,
}

/// What a lock, or one claim on it, amounts to now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// No claim has it.
    Free,
    /// A live claim has it.
    Held(Life),
    /// A claim that no longer counts has it.
    Stale(StaleReason),
    /// The record cannot be understood.
    Unreadable,
    /// The standing could not be found out. Never the same as free.
    Unknown,
}

/// Judges one claim by one row.
pub fn judge(policy: &Policy, claim: &Claim, evidence: &Evidence, now: &Now) -> Standing {
    let boot = claim.boot();
    let life = match claim.kind {
        Kind::Kernel if is_orphan(claim, evidence) => Life::Orphaned,
        Kind::Kernel => Life::Supervised,
        Kind::Detached | Kind::Foreign | Kind::Sealed => Life::Detached,
    };
    if claim.kind == Kind::Sealed {
        return Standing::Held(life);
    }

    // A waiting claim has its waiter's liveness lock, in every profile and however it will hold later. Once
    // that lock is released, the waiter is gone and can never take its turn.
    let waits = claim.token.is_none();
    let by_liveness_lock = evidence.liveness_lock != LivenessLock::None
        && (waits || (policy.asks_liveness_lock && claim.kind == Kind::Kernel));
    if by_liveness_lock {
        if evidence.liveness_lock == LivenessLock::Held {
            return Standing::Held(life);
        }
        if evidence.liveness_lock == LivenessLock::Lapsed {
            return Standing::Stale(StaleReason::Silent);
        }
        let over = StaleReason::LivenessLockReleased;
        if waits {
            return Standing::Stale(over);
        }
        // A released lock proves that the supervisor is gone, for a supervisor never lets go before its
        // claim leaves the list. Only a command that closed the inherited descriptor may still be at work.
        return match evidence.command {
            Liveness::Alive => Standing::Held(Life::Orphaned),
            Liveness::Dead(_) | Liveness::NotRecorded => Standing::Stale(over),
            Liveness::Unknown if claim.lease.is_silent(boot, now) => {
                Standing::Stale(StaleReason::Silent)
            }
            Liveness::Unknown => Standing::Held(life),
        };
    }

    // A waiting claim is no hold, so it does not age.
    if let Some(rule) = policy.age.filter(|_| !waits) {
        let (age, limit) = match rule.limit {
            AgeLimit::SinceGrantMs(limit) => {
                let since = claim.since.unwrap_or(claim.entered);
                (since.age_ms(boot, now), limit)
            }
            AgeLimit::SilenceMs(limit) => (claim.lease.silent_ms(boot, now), limit),
            AgeLimit::SilenceTtl => (claim.lease.silent_ms(boot, now), claim.lease.ttl_ms),
        };
        let unit = if rule.whole_seconds { 1_000 } else { 1 };
        let (age, limit) = (age / unit, limit / unit);
        if age > limit || (rule.inclusive && age == limit) {
            return Standing::Stale(StaleReason::Aged);
        }
    }

    // A hold that has limits of its own ends by them while its process lives: that process is the host of many
    // agents, and says nothing of this one's work.
    if let Some(limit_ms) = claim.age_limit_ms(policy) {
        let since = claim.since.unwrap_or(claim.entered);
        if since.age_ms(boot, now) > limit_ms {
            return Standing::Stale(StaleReason::Aged);
        }
    }
    if claim.ends_by_silence(policy) && claim.lease.is_silent(boot, now) {
        return Standing::Stale(StaleReason::Silent);
    }

    // A profile that asks for the process of a run takes its liveness lock for a sign of life as well. That
    // lock is held while a command runs whose supervisor died before it could name the command.
    if policy.unknown_life != UnknownLife::NotAsked {
        match evidence.liveness_lock {
            LivenessLock::Held => return Standing::Held(life),
            // Where silence is no death, the process has to be seen dead as well.
            LivenessLock::Lapsed if policy.unknown_life != UnknownLife::Alive => {
                return Standing::Stale(StaleReason::Silent);
            }
            LivenessLock::Lapsed | LivenessLock::Released | LivenessLock::None => {}
        }
    }

    // Either of the two processes keeps the claim alive; only if neither does may it be stale.
    let process = strongest(evidence.process, evidence.command);
    match (policy.unknown_life, process) {
        (UnknownLife::NotAsked, _) | (_, Liveness::Alive) => Standing::Held(life),
        (UnknownLife::Alive, Liveness::Unknown | Liveness::NotRecorded) => {
            unseen(claim, *evidence, life, now)
        }
        (_, Liveness::Dead(death)) => Standing::Stale(StaleReason::ProcessDead(death)),
        (UnknownLife::Dead, Liveness::Unknown | Liveness::NotRecorded) => {
            Standing::Stale(StaleReason::ProcessUnknown)
        }
        (UnknownLife::AliveUntilTtl, Liveness::Unknown | Liveness::NotRecorded) => {
            if claim.lease.is_silent(boot, now) {
                Standing::Stale(StaleReason::Silent)
            } else {
                Standing::Held(life)
            }
        }
    }
}

/// Whether the supervisor of a run is dead and its work goes on. A row that goes by age may call such a lock stale; the work
/// goes on all the same.
pub fn is_orphan(claim: &Claim, evidence: &Evidence) -> bool {
    claim.kind == Kind::Kernel
        && claim.token.is_some()
        && matches!(evidence.process, Liveness::Dead(_))
        && (evidence.liveness_lock == LivenessLock::Held || evidence.command == Liveness::Alive)
}

/// Whether the processes of a hold are all proven dead. A row that goes by age, or a store with leases, lets such a hold
/// count for a while.
pub fn has_ended(evidence: &Evidence) -> bool {
    let is_dead = |process| matches!(process, Liveness::Dead(_));
    evidence.liveness_lock != LivenessLock::Held
        && is_dead(evidence.process)
        && (is_dead(evidence.command) || evidence.command == Liveness::NotRecorded)
}

/// The standing of a claim whose process cannot be seen, under a row that takes it as alive. Its own kernel and its own
/// words say more: a byte that nobody keeps on the kernel of the claim proves that its supervisor is gone, and a caller
/// that chose a ttl wants it to count.
fn unseen(claim: &Claim, evidence: Evidence, life: Life, now: &Now) -> Standing {
    let boot = claim.boot();
    let is_released = claim.kind == Kind::Kernel
        && now.is_on(boot)
        && evidence.liveness_lock == LivenessLock::Released;
    let ends_by_ttl = is_released || (claim.kind.is_detached() && claim.holder.is_ttl_chosen());
    match evidence.command {
        Liveness::Dead(_) | Liveness::NotRecorded if is_released => {
            Standing::Stale(StaleReason::LivenessLockReleased)
        }
        _ if ends_by_ttl && claim.lease.is_silent(boot, now) => {
            Standing::Stale(StaleReason::Silent)
        }
        _ => Standing::Held(life),
    }
}

/// What an unreadable record amounts to under this row.
pub fn unreadable(policy: &Policy) -> Standing {
    match policy.unreadable {
        UnreadableRule::Stale => Standing::Stale(StaleReason::Unreadable),
        UnreadableRule::RefuseUnlessForced | UnreadableRule::RefuseUntilTtl => Standing::Unreadable,
    }
}

fn strongest(process: Liveness, command: Liveness) -> Liveness {
    match (process, command) {
        (Liveness::Alive, _) | (_, Liveness::Alive) => Liveness::Alive,
        (Liveness::Unknown, _) | (_, Liveness::Unknown) => Liveness::Unknown,
        (Liveness::NotRecorded, other) | (other, _) => other,
    }
}
