//! The machine's wall clock, which is set back and forth while all goes on: one for all processes, as a
//! machine has one. The binary reads it from a file (`tenure_os::clock::stepped`); nothing sets the
//! boot clock, by which this test measures.

use crate::journal::now_ns;
use crate::random::Random;
use crate::world::{World, locked};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tenure_os::clock::{instant, stepped};

/// The name of the file.
pub(crate) const FILE: &str = "clock";

const SECOND_US: i64 = 1_000_000;
const HOUR_US: i64 = 3_600 * SECOND_US;
const YEAR_US: i64 = 365 * 24 * HOUR_US;

/// The clock, and when it was set to what.
#[derive(Debug)]
pub(crate) struct Clock {
    file: PathBuf,
    /// Since when, in nanoseconds of the journal, and by how many microseconds it is ahead.
    set: Mutex<Vec<(u64, i64)>>,
}

impl Clock {
    pub(crate) fn new(root: &Path) -> std::io::Result<Self> {
        let clock = Self {
            file: root.join(FILE),
            set: Mutex::default(),
        };
        clock.set(0)?;
        Ok(clock)
    }

    /// Sets it, that much ahead of the machine's own.
    pub(crate) fn set(&self, offset_us: i64) -> std::io::Result<()> {
        locked(&self.set).push((now_ns(), offset_us));
        stepped::set(&self.file, offset_us)
    }

    /// Forgets how it was set up to now, as nothing was done under it yet.
    fn forget(&self) {
        let mut set = locked(&self.set);
        let last = set.len().saturating_sub(1);
        set.drain(..last);
    }

    fn offsets(&self) -> Vec<i64> {
        locked(&self.set)
            .iter()
            .map(|(_, offset)| *offset)
            .collect()
    }

    /// Sets it ahead of all that was ever written down.
    pub(crate) fn set_after_all(&self) -> std::io::Result<()> {
        self.set(self.offsets().into_iter().max().unwrap_or(0))
    }

    /// Sets it behind all that was ever written down.
    pub(crate) fn set_before_all(&self) -> std::io::Result<()> {
        self.set(self.offsets().into_iter().min().unwrap_or(0) - 24 * HOUR_US)
    }

    /// Whether at some instant since `began_ns` it stood by more than `by` behind an earlier value. Then
    /// a record may come from that far in its future.
    pub(crate) fn was_behind(&self, began_ns: u64, by: Duration) -> bool {
        let set = locked(&self.set);
        let first = set.partition_point(|(since, _)| *since <= began_ns);
        let from = first.saturating_sub(1);
        (from..set.len()).any(|at| {
            let before = set[..at].iter().map(|(_, offset)| *offset).max();
            let back = before.map_or(0, |before| before - set[at].1);
            u128::try_from(back).is_ok_and(|back| back > by.as_micros())
        })
    }
}

/// Whether the binary takes the clock that it is given: without that, no step means anything.
pub(crate) fn is_taken(world: &World) -> bool {
    let asked = |offset_us: i64| {
        world.clock.set(offset_us).ok()?;
        let answer = world.tenure(&["list", "--output", "json"]).output().ok()?;
        let document: serde_json::Value = serde_json::from_slice(&answer.stdout).ok()?;
        let at: jiff::Timestamp = document["meta"]["timestamp"].as_str()?.parse().ok()?;
        Some(at.as_microsecond())
    };
    let real = i64::try_from(stepped::real_us()).unwrap_or(0);
    let is_near = |answer: Option<i64>, ahead: i64| {
        answer.is_some_and(|at| (at - real - ahead).abs() < HOUR_US)
    };
    let taken = [YEAR_US, -YEAR_US, 0].map(|ahead| is_near(asked(ahead), ahead));
    world.clock.forget();
    taken == [true; 3]
}

/// Sets it at random until the time is over. It is off by seconds (as a server of time leaves it), by
/// hours (as a wrong time zone does), by up to a year (as an empty battery does), or right again.
pub(crate) fn steps(world: &World, random: &mut Random, until: Instant) {
    let mut stands = 0;
    while instant() < until {
        std::thread::sleep(Duration::from_millis(random.between(100, 2_000)));
        let furthest = match random.between(0, 10) {
            0..4 => 10 * SECOND_US,
            4..7 => 30 * HOUR_US,
            7 => YEAR_US,
            _ => 0,
        };
        let width = u64::try_from(furthest).unwrap_or(0) * 2 + 1;
        let drawn = i64::try_from(random.between(0, width)).unwrap_or(0) - furthest;
        world.journal.write(format_args!("clock {drawn}"));
        if let Err(error) = world.clock.set(drawn) {
            return world.violation(format!("the clock cannot be set: {error}"));
        }
        match drawn.cmp(&stands) {
            std::cmp::Ordering::Less => world.count("clock: set back"),
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Greater => world.count("clock: set forward"),
        }
        stands = drawn;
    }
}
