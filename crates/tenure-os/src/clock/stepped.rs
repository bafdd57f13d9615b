//! A wall clock that a test sets: the feature `testing-clock`, which no build without debug assertions
//! takes.
//!
//! The file that [`STEPS`] names has one line for each time that the clock was set, `REAL_US OFFSET_US`.
//! From that instant of the machine's own wall clock on, all processes with the same file read it so many
//! microseconds ahead. If the number is negative, they read it behind. A step is one more line, appended in
//! one write ([`set`]). The times of files, which the kernel writes by itself, are read as the clock of
//! that moment would have written them.
//!
//! No user can set the boot clock, and no test sets it.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

/// The environment variable that names the file. Without it nothing is set.
pub const STEPS: &str = "TENURE_TESTING_CLOCK";

/// The kernel takes the times of files from a coarser clock. Near a step, such a time does not tell under
/// which of the two offsets the file was written.
const COARSE: Duration = Duration::from_millis(20);

/// The machine's own wall clock, in microseconds since 1970.
pub fn real_us() -> u64 {
    super::read().0
}

/// Sets the clock of all processes with this file, so many microseconds ahead of the machine's own.
///
/// # Errors
/// - The system's answer, if the file cannot be written.
pub fn set(file: &Path, ahead_us: i64) -> io::Result<()> {
    let line = format!("{} {ahead_us}\n", real_us());
    let mut file = std::fs::File::options()
        .append(true)
        .create(true)
        .open(file)?;
    file.write_all(line.as_bytes())
}

fn steps() -> Option<String> {
    std::fs::read_to_string(std::env::var_os(STEPS)?).ok()
}

/// The whole lines, the last one first: since when, and by how much.
fn backwards(text: &str) -> impl Iterator<Item = (u64, i64)> {
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().rev().filter_map(|line| {
        let (since, offset) = line.trim_end().split_once(' ')?;
        Some((since.parse().ok()?, offset.trim_start().parse().ok()?))
    })
}

/// What the wall clock says, in microseconds, where the machine's own says `real_us`.
pub(super) fn wall_us(real_us: u64) -> u64 {
    let set = steps().and_then(|text| backwards(&text).next());
    real_us.saturating_add_signed(set.map_or(0, |(_, offset)| offset))
}

/// What the kernel would have written down, in milliseconds, where it wrote `real_ms`.
pub(super) fn written_ms(real_ms: u64) -> u64 {
    steps().map_or(real_ms, |text| written_by(&text, real_ms))
}

/// Near a step it is the later one, so that nothing counts as older than it is.
fn written_by(text: &str, real_ms: u64) -> u64 {
    let real_us = real_ms.saturating_mul(1_000);
    let coarse_us = u64::try_from(COARSE.as_micros()).unwrap_or(0);
    let mut offset = None;
    for (since, set) in backwards(text) {
        if since <= real_us.saturating_add(coarse_us) {
            offset = offset.max(Some(set));
        }
        if since.saturating_add(coarse_us) <= real_us {
            break;
        }
    }
    real_us.saturating_add_signed(offset.unwrap_or(0)) / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "1000000 0\n2000000 60000000\n3000000 -5000000\n40";

    #[test]
    fn the_last_whole_line_counts() {
        assert_eq!(backwards(TEXT).next(), Some((3_000_000, -5_000_000)));
        assert_eq!(backwards("12").next(), None, "nothing is whole");
    }

    #[test]
    fn a_file_s_time_is_that_of_the_clock_it_was_written_under() {
        assert_eq!(written_by(TEXT, 500), 500, "before the first step");
        assert_eq!(written_by(TEXT, 1_500), 1_500);
        assert_eq!(written_by(TEXT, 2_500), 62_500);
        assert_eq!(written_by(TEXT, 8_000), 3_000);
    }

    #[test]
    fn near_a_step_a_file_is_as_young_as_it_can_be() {
        assert_eq!(written_by(TEXT, 1_990), 61_990, "forward");
        assert_eq!(written_by(TEXT, 3_010), 63_010, "back");
    }
}
