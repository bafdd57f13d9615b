//! The storms: the locks that are called for, how many call, and for how long.
//!
//! What a call is and does is for `call` to say.

use crate::call::{PROFILES, Profile};
use std::time::Duration;

/// How long a storm lasts.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Extent {
    /// How many seconds the storm lasts, in which the clock is set back and forth.
    Seconds(u64),
    /// How many rounds each worker makes. The clock stands still, so that each recovery is known.
    Rounds(u64),
}

/// A storm.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Preset {
    pub(crate) name: &'static str,
    pub(crate) workers: u64,
    pub(crate) extent: Extent,
    /// Whether a number, by which a call is drawn, stands for one of its calls.
    pub(crate) has: fn(u64) -> bool,
    /// The profiles whose locks are called for.
    pub(crate) profiles: &'static [Profile],
    /// How soon after the death of all of a holder the next one has to be at work, by the witness.
    recovery: &'static [(&'static str, Duration)],
    /// Whether the locks are in an etcd.
    pub(crate) is_over_etcd: bool,
}

/// Everything at once.
const FILES: Preset = Preset {
    name: "files",
    workers: 12,
    extent: Extent::Seconds(15),
    has: |drawn| drawn < 146,
    profiles: &PROFILES,
    recovery: &[],
    is_over_etcd: false,
};

/// A single lock that all want.
const RUNS: Preset = Preset {
    name: "runs",
    workers: 8,
    extent: Extent::Rounds(25),
    has: |drawn| drawn < 14,
    profiles: &[Profile::Native],
    ..FILES
};

/// All of them. The first is what is done where none is named.
pub(crate) const PRESETS: [Preset; 9] = [
    FILES,
    Preset {
        name: "native",
        has: |drawn| matches!(drawn, 0..103 | 119..146),
        profiles: &[Profile::Native],
        ..FILES
    },
    Preset {
        name: "profiles",
        has: |drawn| matches!(drawn, 103..119 | 135..139),
        ..FILES
    },
    Preset {
        name: "etcd",
        // Of the rest, part wants the kernel's locks, and part a hold without a supervisor.
        has: |drawn| matches!(drawn, 0..65 | 89..100 | 128..146),
        profiles: &[Profile::Native],
        is_over_etcd: true,
        ..FILES
    },
    RUNS,
    Preset {
        name: "slots",
        workers: 32,
        extent: Extent::Rounds(5),
        has: |drawn| drawn == 146,
        ..RUNS
    },
    Preset {
        name: "owners",
        has: |drawn| matches!(drawn, 70..81),
        ..RUNS
    },
    Preset {
        name: "records",
        extent: Extent::Rounds(12),
        has: |drawn| matches!(drawn, 103..113),
        profiles: &[Profile::Sprint, Profile::Resume],
        recovery: &[("resume", Duration::from_millis(1_500))],
        ..RUNS
    },
    Preset {
        name: "aged",
        workers: 12,
        extent: Extent::Rounds(4),
        has: |drawn| matches!(drawn, 113..119),
        profiles: &[Profile::Session, Profile::Fleet],
        // By their rule they are held for 5 s.
        recovery: &[
            ("session", Duration::from_secs(7)),
            ("fleet", Duration::from_millis(7_500)),
        ],
        ..RUNS
    },
];

impl Preset {
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let mut all = PRESETS.into_iter();
        all.find(|preset| preset.name == name || preset.test() == name)
    }

    /// Whether it is short enough for a test of every build.
    pub(crate) fn is_test(&self) -> bool {
        self.name == FILES.name || matches!(self.extent, Extent::Rounds(_))
    }

    /// The name of that test.
    pub(crate) fn test(&self) -> String {
        if self.name == FILES.name {
            "torture".to_owned()
        } else {
            format!("contention::{}", self.name)
        }
    }

    /// The storm of a night: `TENURE_CONTENTION=long`.
    pub(crate) fn at_length(mut self) -> Self {
        if let Extent::Rounds(rounds) = &mut self.extent {
            *rounds *= 8;
            self.workers = self.workers.max(20);
        }
        self
    }

    pub(crate) fn recovery_max(&self, witness: &str) -> Option<Duration> {
        let mut known = self.recovery.iter();
        known
            .find(|(name, _)| *name == witness)
            .map(|(_, max)| *max)
    }
}
