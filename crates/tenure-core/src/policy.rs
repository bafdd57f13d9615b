//! The policy axes: each profile is one row of data, and only that row decides.
//!
//! Five rows come with the product. Reading a row aloud should give the sentence of its contract.

/// When the record's age makes it stale, if it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgeRule {
    /// The age at which it happens.
    pub limit: AgeLimit,
    /// Whether reaching the limit is enough (`>=`), or it has to be passed (`>`).
    pub inclusive: bool,
    /// Whether ages are compared in whole seconds, for a format that writes no fractions. Its instants are
    /// rounded down, and a holder that renews in time must not lose by that.
    pub whole_seconds: bool,
}

/// The age that is compared, and its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgeLimit {
    /// The age since the grant, against a fixed number of milliseconds.
    SinceGrantMs(u64),
    /// The silence since the last renewal, against a fixed number of milliseconds.
    SilenceMs(u64),
    /// The silence since the last renewal, against the claim's own ttl.
    SilenceTtl,
}

/// What it means when a process cannot be judged (another host, another PID namespace).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownLife {
    /// Alive, without end.
    Alive,
    /// Alive until the claim's heartbeat has been silent for its ttl.
    AliveUntilTtl,
    /// Dead (only a contract that asks before it acts may say so).
    Dead,
    /// The process is never asked; only ages decide.
    NotAsked,
}

/// What an unreadable record means, once it has settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnreadableRule {
    /// Treated like a stale record.
    Stale,
    /// Blocks; force may replace the record.
    RefuseUnlessForced,
    /// Blocks; force may replace the record once no process has written it for longer than the ttl.
    RefuseUntilTtl,
}

/// What a plain request does about a stale claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StaleUnforced {
    /// Take it over and say so.
    TakeOver,
    /// Leave it and report it, so that a person decides.
    Refuse,
}

/// What a plain request does about a live claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldUnforced {
    /// Queue, for the default time unless another was asked for.
    WaitMs(u64),
    /// Refuse at once unless a wait was asked for.
    Refuse,
}

/// The answer to an owner that asks again under the request id of its live detached hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnAgain {
    /// The caller has the lock.
    Yours,
    /// The answer that every other caller gets: the lock is held.
    Held,
}

/// What force may do to a live claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForceOnHeld {
    /// Nothing, ever.
    Never,
    /// Override it.
    Override,
    /// Override it after a second, explicit yes.
    OverrideConfirmed,
    /// A supervised run is asked to stop, and the caller waits for that. A detached hold is overridden
    /// after a second, explicit yes.
    AskToStop,
}

/// What happens when a caller other than the owner releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseByOther {
    /// Refused; nothing changes.
    Refuse,
    /// A warning, and the lock is released.
    WarnAndRelease,
    /// A message; nothing changes, and that counts as success.
    Ignore,
}

/// What releasing an absent lock answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbsentRelease {
    /// Success.
    Success,
    /// Success, with a warning.
    SuccessWithWarning,
}

/// A profile's answers to the questions on which the five systems differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// The profile's name.
    pub name: &'static str,
    /// Whether a kernel lock kept by the holder (its liveness lock) is evidence.
    pub asks_liveness_lock: bool,
    /// Whether and how the recorded process is asked.
    pub unknown_life: UnknownLife,
    /// Whether age makes a claim stale, whatever else is known.
    pub age: Option<AgeRule>,
    /// What an unreadable record means.
    pub unreadable: UnreadableRule,
    /// What a plain request does about a stale claim.
    pub stale_unforced: StaleUnforced,
    /// What a plain request does about a live one.
    pub held_unforced: HeldUnforced,
    /// The answer to the owner of a live one.
    pub own_again: OwnAgain,
    /// What force may do to a live one.
    pub force_on_held: ForceOnHeld,
    /// What happens when a caller other than the owner releases.
    pub release_by_other: ReleaseByOther,
    /// What releasing nothing answers.
    pub absent_release: AbsentRelease,
    /// The ttl of a hold whose life a supervisor renews, in milliseconds.
    pub supervised_ttl_ms: u64,
    /// The ttl of a hold without a supervisor, in milliseconds.
    pub detached_ttl_ms: u64,
}

const SECOND_MS: u64 = 1_000;
const MINUTE_MS: u64 = 60 * SECOND_MS;
const HOUR_MS: u64 = 60 * MINUTE_MS;

impl Policy {
    /// The default: kernel locks prove life, callers queue, and a live run is asked to stop, never
    /// overridden.
    pub const NATIVE: Self = Self {
        name: "native",
        asks_liveness_lock: true,
        unknown_life: UnknownLife::AliveUntilTtl,
        age: None,
        unreadable: UnreadableRule::RefuseUnlessForced,
        stale_unforced: StaleUnforced::TakeOver,
        held_unforced: HeldUnforced::WaitMs(10 * SECOND_MS),
        own_again: OwnAgain::Yours,
        force_on_held: ForceOnHeld::AskToStop,
        release_by_other: ReleaseByOther::Refuse,
        absent_release: AbsentRelease::SuccessWithWarning,
        supervised_ttl_ms: 30 * SECOND_MS,
        detached_ttl_ms: 15 * MINUTE_MS,
    };

    /// The sprint mutex.
    pub const SPRINT: Self = Self {
        name: "sprint",
        asks_liveness_lock: false,
        unknown_life: UnknownLife::Dead,
        age: Some(AgeRule {
            limit: AgeLimit::SinceGrantMs(24 * HOUR_MS),
            inclusive: true,
            whole_seconds: false,
        }),
        unreadable: UnreadableRule::Stale,
        stale_unforced: StaleUnforced::Refuse,
        held_unforced: HeldUnforced::Refuse,
        own_again: OwnAgain::Held,
        force_on_held: ForceOnHeld::OverrideConfirmed,
        release_by_other: ReleaseByOther::WarnAndRelease,
        absent_release: AbsentRelease::Success,
        supervised_ttl_ms: 24 * HOUR_MS,
        detached_ttl_ms: 24 * HOUR_MS,
    };

    /// The resume lock.
    pub const RESUME: Self = Self {
        name: "resume",
        asks_liveness_lock: false,
        unknown_life: UnknownLife::Alive,
        age: None,
        unreadable: UnreadableRule::RefuseUnlessForced,
        stale_unforced: StaleUnforced::TakeOver,
        held_unforced: HeldUnforced::Refuse,
        own_again: OwnAgain::Held,
        force_on_held: ForceOnHeld::Override,
        release_by_other: ReleaseByOther::Refuse,
        absent_release: AbsentRelease::Success,
        supervised_ttl_ms: MINUTE_MS,
        detached_ttl_ms: 15 * MINUTE_MS,
    };

    /// The session lock.
    pub const SESSION: Self = Self {
        name: "session",
        asks_liveness_lock: false,
        unknown_life: UnknownLife::NotAsked,
        age: Some(AgeRule {
            limit: AgeLimit::SilenceMs(10 * MINUTE_MS),
            inclusive: true,
            whole_seconds: false,
        }),
        unreadable: UnreadableRule::Stale,
        stale_unforced: StaleUnforced::TakeOver,
        held_unforced: HeldUnforced::Refuse,
        own_again: OwnAgain::Held,
        force_on_held: ForceOnHeld::Never,
        release_by_other: ReleaseByOther::Ignore,
        absent_release: AbsentRelease::Success,
        supervised_ttl_ms: 10 * MINUTE_MS,
        detached_ttl_ms: 10 * MINUTE_MS,
    };

    /// Fleet locks, lock/v1.
    pub const FLEET: Self = Self {
        name: "fleet",
        asks_liveness_lock: false,
        unknown_life: UnknownLife::NotAsked,
        age: Some(AgeRule {
            limit: AgeLimit::SilenceTtl,
            inclusive: false,
            whole_seconds: true,
        }),
        unreadable: UnreadableRule::RefuseUntilTtl,
        stale_unforced: StaleUnforced::Refuse,
        held_unforced: HeldUnforced::Refuse,
        own_again: OwnAgain::Held,
        force_on_held: ForceOnHeld::Never,
        release_by_other: ReleaseByOther::Refuse,
        absent_release: AbsentRelease::SuccessWithWarning,
        supervised_ttl_ms: 15 * MINUTE_MS,
        detached_ttl_ms: 15 * MINUTE_MS,
    };

    /// Whether force changes anything about a lock that can be read: it ends a live hold, or takes over a
    /// stale one.
    pub fn heeds_force(&self) -> bool {
        self.force_on_held != ForceOnHeld::Never || self.stale_unforced == StaleUnforced::Refuse
    }

    /// All rows that come with the product, in the order in which they are shown.
    pub const ALL: [Self; 5] = [
        Self::NATIVE,
        Self::SPRINT,
        Self::RESUME,
        Self::SESSION,
        Self::FLEET,
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In plain numbers, so that a slip in the arithmetic above is seen.
    #[test]
    fn the_times_of_each_row_are_those_of_its_contract() {
        let times = |policy: Policy| {
            let wait = match policy.held_unforced {
                HeldUnforced::WaitMs(wait) => Some(wait),
                HeldUnforced::Refuse => None,
            };
            let limit = policy.age.and_then(|rule| match rule.limit {
                AgeLimit::SinceGrantMs(limit) | AgeLimit::SilenceMs(limit) => Some(limit),
                AgeLimit::SilenceTtl => None,
            });
            (
                policy.supervised_ttl_ms,
                policy.detached_ttl_ms,
                wait,
                limit,
            )
        };
        let (half, ten, fifteen, day) = (30_000, 600_000, 900_000, 86_400_000);
        assert_eq!(times(Policy::NATIVE), (half, fifteen, Some(10_000), None));
        assert_eq!(times(Policy::SPRINT), (day, day, None, Some(day)));
        assert_eq!(times(Policy::RESUME), (2 * half, fifteen, None, None));
        assert_eq!(times(Policy::SESSION), (ten, ten, None, Some(ten)));
        assert_eq!(times(Policy::FLEET), (fifteen, fifteen, None, None));
    }
}
