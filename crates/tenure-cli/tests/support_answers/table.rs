//! What there is: the profiles, the verbs and the situations, and which of their combinations do not
//! exist, with the reason.

/// A profile.
#[derive(Debug)]
pub(crate) struct Profile {
    pub(crate) name: &'static str,
}

pub(crate) const PROFILES: [Profile; 5] = [
    Profile { name: "native" },
    Profile { name: "sprint" },
    Profile { name: "resume" },
    Profile { name: "session" },
    Profile { name: "fleet" },
];

impl Profile {
    /// Whether programs of its own system read its answers.
    pub(crate) fn is_published(&self) -> bool {
        self.name != "native"
    }
}

/// A verb; `check` without a name asks something else than with one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Run,
    Acquire,
    Release,
    ForceRelease,
    Cancel,
    Heartbeat,
    Check,
    CheckAll,
    List,
    Wait,
    Fence,
    Clean,
    Doctor,
    Profiles,
    Audit,
    Timeline,
    Push,
    GroupName,
    Flock,
}

pub(crate) const VERBS: [Verb; 19] = [
    Verb::Run,
    Verb::Acquire,
    Verb::Release,
    Verb::ForceRelease,
    Verb::Cancel,
    Verb::Heartbeat,
    Verb::Check,
    Verb::CheckAll,
    Verb::List,
    Verb::Wait,
    Verb::Fence,
    Verb::Clean,
    Verb::Doctor,
    Verb::Profiles,
    Verb::Audit,
    Verb::Timeline,
    Verb::Push,
    Verb::GroupName,
    Verb::Flock,
];

impl Verb {
    /// As it is typed, and as its schema is called.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Acquire => "acquire",
            Self::Release => "release",
            Self::ForceRelease => "force-release",
            Self::Cancel => "cancel",
            Self::Heartbeat => "heartbeat",
            Self::Check | Self::CheckAll => "check",
            Self::List => "list",
            Self::Wait => "wait",
            Self::Fence => "fence",
            Self::Clean => "clean",
            Self::Doctor => "doctor",
            Self::Profiles => "profiles",
            Self::Audit => "audit",
            Self::Timeline => "timeline",
            Self::Push => "push",
            Self::GroupName => "group-name",
            Self::Flock => "flock",
        }
    }

    /// As the tables have it.
    pub(crate) fn shown(self) -> &'static str {
        match self {
            Self::CheckAll => "check(all)",
            other => other.word(),
        }
    }

    /// Whether it is asked with the name of one lock.
    pub(crate) fn names_a_lock(self) -> bool {
        match self {
            Self::Run
            | Self::Acquire
            | Self::Release
            | Self::ForceRelease
            | Self::Cancel
            | Self::Heartbeat
            | Self::Check
            | Self::Wait
            | Self::Fence => true,
            Self::CheckAll
            | Self::List
            | Self::Clean
            | Self::Doctor
            | Self::Profiles
            | Self::Audit
            | Self::Timeline
            | Self::Push
            | Self::GroupName
            | Self::Flock => false,
        }
    }

    fn may_wait(self) -> bool {
        matches!(self, Self::Run | Self::Acquire | Self::Wait)
    }

    fn takes(self) -> bool {
        matches!(self, Self::Run | Self::Acquire)
    }
}

/// How the lock stands, and what is wrong with the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Situation {
    /// The lock was never used.
    Free,
    /// The caller took it before, and shows its id.
    Mine,
    /// Another one took it.
    Held,
    /// Another one's command runs under it.
    HeldByRun,
    /// Two hold it together, and one waits.
    Shared,
    /// The lock is held, and another caller waits.
    Queued,
    /// The supervisor was killed and its command goes on.
    Orphan,
    /// The lock is held until the caller's wait timed out.
    TimedOut,
    /// A signal ends the call.
    Cancelled,
    /// The lock was left behind.
    Stale,
    /// The lock was left behind, and the caller forces.
    StaleForced,
    /// The lock is held, and the caller forces.
    Forced,
    /// The lock is held, and the caller forces with a second yes.
    ForcedYes,
    /// A run holds it, and the caller forces with a second yes.
    RunForced,
    /// The record cannot be read and is old.
    Unreadable,
    /// The record cannot be read and is old, and the caller forces.
    UnreadableForced,
    /// The record is a minute old, and the caller forces.
    UnreadableFresh,
    /// Another program holds it.
    Foreign,
    /// Another program holds the lock, by a record that names no holder.
    ForeignBare,
    /// Another program holds the lock, by a record of a later version.
    ForeignNewer,
    /// Another program left it behind.
    ForeignStale,
    /// The lock is held, and the caller shows an id that no holder has.
    OtherId,
    /// The lock is taken away while the caller works.
    Lost,
    /// Another one asks the caller to stop.
    Displaced,
    /// The caller is within a run that holds it.
    Nested,
    /// A flag that does not exist.
    BadFlag,
    /// A name that cannot be one.
    BadName,
    /// A configuration that makes no sense.
    BadConfig,
    /// A link stands where the record should.
    Unsafe,
    /// The folder is a file.
    NoPlace,
    /// Of two locks, one cannot be looked at.
    OneUnsafe,
    /// The command does not exist.
    NoCommand,
    /// The command cannot be run.
    NoProgram,
    /// The command takes longer than it may.
    TooLong,
    /// A ticket that was never given.
    NoTicket,
    /// An intent that is not there.
    NoIntent,
    /// An owner that is not there.
    NoOwner,
}

pub(crate) const SITUATIONS: [Situation; 37] = [
    Situation::Free,
    Situation::Mine,
    Situation::Held,
    Situation::HeldByRun,
    Situation::Shared,
    Situation::Queued,
    Situation::Orphan,
    Situation::TimedOut,
    Situation::Cancelled,
    Situation::Stale,
    Situation::StaleForced,
    Situation::Forced,
    Situation::ForcedYes,
    Situation::RunForced,
    Situation::Unreadable,
    Situation::UnreadableForced,
    Situation::UnreadableFresh,
    Situation::Foreign,
    Situation::ForeignBare,
    Situation::ForeignNewer,
    Situation::ForeignStale,
    Situation::OtherId,
    Situation::Lost,
    Situation::Displaced,
    Situation::Nested,
    Situation::BadFlag,
    Situation::BadName,
    Situation::BadConfig,
    Situation::Unsafe,
    Situation::NoPlace,
    Situation::OneUnsafe,
    Situation::NoCommand,
    Situation::NoProgram,
    Situation::TooLong,
    Situation::NoTicket,
    Situation::NoIntent,
    Situation::NoOwner,
];

impl Situation {
    /// As the tables have it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Mine => "mine",
            Self::Held => "held",
            Self::HeldByRun => "held-by-run",
            Self::Shared => "shared",
            Self::Queued => "queued",
            Self::Orphan => "orphan",
            Self::TimedOut => "timed-out",
            Self::Cancelled => "cancelled",
            Self::Stale => "stale",
            Self::StaleForced => "stale-forced",
            Self::Forced => "forced",
            Self::ForcedYes => "forced-yes",
            Self::RunForced => "run-forced",
            Self::Unreadable => "unreadable",
            Self::UnreadableForced => "unreadable-forced",
            Self::UnreadableFresh => "unreadable-fresh",
            Self::Foreign => "foreign",
            Self::ForeignBare => "foreign-bare",
            Self::ForeignNewer => "foreign-newer",
            Self::ForeignStale => "foreign-stale",
            Self::OtherId => "other-id",
            Self::Lost => "lost",
            Self::Displaced => "displaced",
            Self::Nested => "nested",
            Self::BadFlag => "bad-flag",
            Self::BadName => "bad-name",
            Self::BadConfig => "bad-config",
            Self::Unsafe => "unsafe",
            Self::NoPlace => "no-place",
            Self::OneUnsafe => "one-unsafe",
            Self::NoCommand => "no-command",
            Self::NoProgram => "no-program",
            Self::TooLong => "too-long",
            Self::NoTicket => "no-ticket",
            Self::NoIntent => "no-intent",
            Self::NoOwner => "no-owner",
        }
    }
}

/// Why a combination does not exist; `None` if it does, and then it has to be made.
pub(crate) fn no_such(profile: &Profile, verb: Verb, situation: Situation) -> Option<&'static str> {
    by_verb(verb, situation).or_else(|| by_format(profile, situation))
}

fn by_verb(verb: Verb, situation: Situation) -> Option<&'static str> {
    use Situation as S;
    match verb {
        Verb::Flock => return Some("it speaks flock(1)'s way and has no document"),
        Verb::Profiles | Verb::Push | Verb::GroupName => {
            return match situation {
                S::Free | S::BadFlag => None,
                S::BadConfig if verb != Verb::GroupName => None,
                _ => Some("it looks at no lock that the caller names"),
            };
        }
        Verb::Doctor => {
            return match situation {
                S::Free
                | S::Held
                | S::Stale
                | S::Unreadable
                | S::BadFlag
                | S::BadConfig
                | S::Unsafe
                | S::NoPlace => None,
                _ => Some("it looks at all locks alike, and takes none"),
            };
        }
        Verb::Audit | Verb::Timeline => {
            return match situation {
                S::Free | S::BadFlag | S::BadName | S::BadConfig | S::Unsafe => None,
                _ => Some("it reads the log and no lock"),
            };
        }
        Verb::Run
        | Verb::Acquire
        | Verb::Release
        | Verb::ForceRelease
        | Verb::Cancel
        | Verb::Heartbeat
        | Verb::Check
        | Verb::CheckAll
        | Verb::List
        | Verb::Wait
        | Verb::Fence
        | Verb::Clean => {}
    }
    match situation {
        S::Free
        | S::Mine
        | S::Held
        | S::HeldByRun
        | S::Shared
        | S::Queued
        | S::Orphan
        | S::Stale
        | S::Unreadable
        | S::Foreign
        | S::ForeignBare
        | S::ForeignNewer
        | S::ForeignStale
        | S::BadFlag
        | S::BadConfig
        | S::Unsafe
        | S::NoPlace => None,
        S::BadName if verb.names_a_lock() => None,
        S::BadName => Some("it takes no name"),
        S::TimedOut | S::Cancelled | S::Nested if verb.may_wait() => None,
        S::TimedOut => Some("it never waits"),
        S::Cancelled => Some("it neither waits nor works, so a signal finds nothing to end"),
        S::Nested => Some("it never waits, so not for itself either"),
        S::Forced | S::StaleForced | S::UnreadableForced | S::UnreadableFresh if verb.takes() => {
            None
        }
        S::ForcedYes | S::RunForced if verb.takes() || verb == Verb::ForceRelease => None,
        S::UnreadableFresh if verb == Verb::ForceRelease => None,
        S::Forced
        | S::ForcedYes
        | S::RunForced
        | S::StaleForced
        | S::UnreadableForced
        | S::UnreadableFresh => Some("it has no --force"),
        S::OtherId => match verb {
            Verb::Acquire | Verb::Release | Verb::Heartbeat | Verb::Check | Verb::CheckAll => None,
            _ => Some("it judges nobody by an id"),
        },
        S::Lost | S::Displaced | S::NoCommand | S::NoProgram | S::TooLong => match verb {
            Verb::Run => None,
            _ => Some("it runs no command"),
        },
        S::OneUnsafe => match verb {
            Verb::CheckAll | Verb::List | Verb::Clean => None,
            _ => Some("it looks at one lock"),
        },
        S::NoTicket if verb.takes() => None,
        S::NoTicket => Some("it takes no place in line"),
        S::NoIntent if verb == Verb::Run => None,
        S::NoIntent => Some("it reads no intent"),
        S::NoOwner if verb == Verb::Acquire => None,
        S::NoOwner => Some("it names no owner"),
    }
}

fn by_format(profile: &Profile, situation: Situation) -> Option<&'static str> {
    use Situation as S;
    match situation {
        S::Foreign | S::ForeignBare | S::ForeignNewer | S::ForeignStale
            if profile.name == "native" =>
        {
            Some("no other program writes native records")
        }
        S::ForeignBare if profile.name == "fleet" => {
            Some("lock/v1 requires all of its fields; a record without them cannot be read")
        }
        S::ForeignNewer if profile.name != "sprint" => {
            Some("its format has no version that readers have to respect unread")
        }
        S::Shared if profile.name != "native" => Some("its record names one holder"),
        S::Stale if matches!(profile.name, "session" | "fleet") => {
            Some("age alone makes it stale: see foreign-stale")
        }
        S::NoIntent if profile.name != "fleet" => Some("only fleet has intents"),
        S::OneUnsafe if profile.name == "sprint" => Some("a project has one lock"),
        _ => None,
    }
}
