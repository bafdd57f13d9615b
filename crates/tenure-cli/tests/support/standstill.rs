//! How long the machine stood still. A virtual machine may lose its processors for seconds, and no bound of a test
//! means that time: a thread sleeps in short naps, and what a nap is too long was lost.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tenure_engine::clock::{instant, since};

const NAP: Duration = Duration::from_millis(20);
/// A nap that is late by less shows a busy machine.
const LATE: Duration = Duration::from_millis(500);

static LOST_MS: AtomicU64 = AtomicU64::new(0);

/// Measures from now on.
pub(crate) struct Standstill(u64);

impl Standstill {
    pub(crate) fn watch() -> Self {
        static WATCH: OnceLock<()> = OnceLock::new();
        WATCH.get_or_init(|| {
            std::thread::spawn(|| {
                loop {
                    let began = instant();
                    std::thread::sleep(NAP);
                    let late = since(began).saturating_sub(NAP);
                    if late > LATE {
                        let late = u64::try_from(late.as_millis()).unwrap_or(u64::MAX);
                        LOST_MS.fetch_add(late, Ordering::Relaxed);
                    }
                }
            });
        });
        Self(LOST_MS.load(Ordering::Relaxed))
    }

    /// What is left of a time without that in which the machine stood still.
    pub(crate) fn without(&self, took: Duration) -> Duration {
        // The watching thread may wake after this one.
        std::thread::sleep(3 * NAP);
        let lost = LOST_MS.load(Ordering::Relaxed).saturating_sub(self.0);
        took.saturating_sub(Duration::from_millis(lost))
    }
}
