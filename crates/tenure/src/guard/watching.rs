//! How the thread of a manager learns what other processes do to its holds.

use std::time::Duration;

/// How holds are watched.
#[derive(Debug, Clone)]
pub(super) enum Watching {
    /// The kernel reports changes to the files in which the store keeps its locks.
    Files,
    /// The thread looks at each hold this often, or less often where there are many.
    Looks(Duration),
    /// The same for a clock that stands still while the test sleeps: at all of them, this often.
    Always(Duration),
}

impl Watching {
    /// How long a sleep of this manager lasts at most, by the machine's clock.
    pub(super) fn nap(&self) -> Option<Duration> {
        match self {
            Self::Files | Self::Looks(_) => None,
            Self::Always(nap) => Some(*nap),
        }
    }
}
