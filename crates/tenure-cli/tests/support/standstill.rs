//! How long the machine stood still. A virtual machine may lose its processors for seconds, or its disk, and no bound of
//! a test means that time. A thread sleeps in short naps, another one writes to the disk: what takes too long was lost.

use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tenure_os::clock::{instant, since};

const NAP: Duration = Duration::from_millis(20);
/// Between two writes, which keep other processes from the disk.
const WRITES: Duration = Duration::from_millis(250);
/// A nap or a write that is late by less shows a busy machine.
const LATE: Duration = Duration::from_millis(500);

/// What was lost by the naps, and by the writes. Both may have lost the same time.
static LOST_MS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

fn lost_ms() -> [u64; 2] {
    [0, 1].map(|index| LOST_MS[index].load(Ordering::Relaxed))
}

/// Does something again and again, and counts what it takes longer than `usual`.
fn count(index: usize, usual: Duration, mut step: impl FnMut() + Send + 'static) {
    std::thread::spawn(move || {
        loop {
            let began = instant();
            step();
            let late = since(began).saturating_sub(usual);
            if late > LATE {
                let late = u64::try_from(late.as_millis()).unwrap_or(u64::MAX);
                LOST_MS[index].fetch_add(late, Ordering::Relaxed);
            }
        }
    });
}

/// Measures from now on.
pub(crate) struct Standstill([u64; 2]);

impl Standstill {
    pub(crate) fn watch() -> Self {
        static WATCH: OnceLock<()> = OnceLock::new();
        WATCH.get_or_init(|| {
            count(0, NAP, || std::thread::sleep(NAP));
            let mut file = tempfile::tempfile().expect("a file");
            count(1, WRITES, move || {
                std::thread::sleep(WRITES);
                file.write_all(b".").expect("a write");
                file.sync_data().expect("a file on disk");
            });
        });
        Self(lost_ms())
    }

    /// What is left of a time without that in which the machine stood still.
    pub(crate) fn without(&self, took: Duration) -> Duration {
        // The watching threads may wake after this one.
        std::thread::sleep(WRITES + 3 * NAP);
        let now = lost_ms();
        let lost = [0, 1].map(|index| now[index].saturating_sub(self.0[index]));
        took.saturating_sub(Duration::from_millis(lost[0].max(lost[1])))
    }
}
