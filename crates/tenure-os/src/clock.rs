//! The only place where clocks are read.
//!
//! Everything else is handed an instant. Records carry the wall clock for people and for other
//! machines, and the boot clock (which never steps and counts sleep) for ages on this boot.
//!
//! A boot clock that a time namespace has shifted is brought back first (`shift`).
//!
//! A build for tests can be told that its wall clock was set: the feature `testing-clock`.

mod calendar;
#[cfg(target_os = "linux")]
mod shift;
#[cfg(feature = "testing-clock")]
#[doc(hidden)]
pub mod stepped;

pub use calendar::Date;
#[cfg(target_os = "linux")]
pub(crate) use shift::{Shift, TICK_NANOS, shift};

use std::sync::Arc;
use std::time::{Duration, Instant};
use tenure_core::Now;

// A user who can set a program's clock by a variable can make other programs' locks look old to it.
#[cfg(all(feature = "testing-clock", not(debug_assertions)))]
compile_error!(
    "the feature `testing-clock` is for tests; a build that is released must not have it"
);

/// A source of instants.
pub trait Clock {
    /// The instant for records.
    fn now(&self) -> Now;
    /// The instant for measuring a wait; it never steps.
    fn instant(&self) -> Instant;
}

/// The machine's own clocks.
#[derive(Debug, Clone)]
pub struct SystemClock {
    boot_id: Arc<str>,
}

impl SystemClock {
    /// Clocks of the boot with this id; see [`crate::process::Identity`].
    pub fn new(boot_id: Option<&str>) -> Self {
        Self {
            boot_id: boot_id.unwrap_or_default().into(),
        }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Now {
        let (wall_us, boot_ms) = read();
        Now {
            wall_us: as_set(wall_us),
            boot_ms,
            boot_id: Arc::clone(&self.boot_id),
        }
    }

    fn instant(&self) -> Instant {
        instant()
    }
}

/// The monotonic clock, for code that measures how long it slept.
#[allow(clippy::disallowed_methods, reason = "this is the place")]
pub fn instant() -> Instant {
    Instant::now()
}

/// How long ago an instant was, by the monotonic clock, without the time that the machine slept. It is for
/// a caller's patience, and for what another process of this machine does meanwhile, which sleeps with it.
pub fn since(began: Instant) -> Duration {
    instant().saturating_duration_since(began)
}

/// How long it is until an instant, by the same clock; `None` once it has come.
pub fn rest_until(until: Instant) -> Option<Duration> {
    let rest = until.saturating_duration_since(instant());
    (!rest.is_zero()).then_some(rest)
}

/// A short pause between two looks. The time that the machine slept is not in it, so it is no longer than a
/// second: a lease can run out meanwhile. A longer sleep is `os::poll_readable`'s.
pub fn nap(length: Duration) {
    debug_assert!(length <= Duration::from_secs(1), "a short one: {length:?}");
    std::thread::sleep(length);
}

/// The wall clock as an answer tells it: RFC 3339 in UTC.
pub fn timestamp() -> String {
    Date::text_of_micros(SystemClock::new(None).now().wall_us)
}

/// When the kernel says that a file was written, by the clock that records are compared with.
pub fn written_ms(real_ms: u64) -> u64 {
    #[cfg(feature = "testing-clock")]
    let real_ms = stepped::written_ms(real_ms);
    real_ms
}

/// The wall clock, in microseconds, as a test has set it; otherwise the machine's own.
fn as_set(real_us: u64) -> u64 {
    #[cfg(feature = "testing-clock")]
    let real_us = stepped::wall_us(real_us);
    real_us
}

#[cfg(target_os = "linux")]
fn read() -> (u64, u64) {
    let (seconds, nanos) = reading(rustix::time::ClockId::Realtime);
    let wall_us = seconds
        .saturating_mul(1_000_000)
        .saturating_add(nanos / 1_000);
    (wall_us, shift().unshifted(own_boot_ns()) / 1_000_000)
}

/// Seconds and nanoseconds of a clock. A clock before its epoch reads as the epoch: no record is older than that.
#[cfg(target_os = "linux")]
fn reading(clock: rustix::time::ClockId) -> (u64, u64) {
    let now = rustix::time::clock_gettime(clock);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    (seconds, u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// The boot clock as this process sees it, in nanoseconds.
#[cfg(target_os = "linux")]
fn own_boot_ns() -> u64 {
    let (seconds, nanos) = reading(rustix::time::ClockId::Boottime);
    // 64 bits of nanoseconds are five centuries since the boot.
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

#[cfg(windows)]
fn read() -> (u64, u64) {
    (wall_us(), crate::os::raw::since_boot_ms())
}

#[cfg(target_os = "macos")]
fn read() -> (u64, u64) {
    // The monotonic clock counts sleep there, from an instant that is the same for all processes of a boot.
    let boot = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(boot.tv_sec).unwrap_or(0);
    let millis = u64::try_from(boot.tv_nsec).unwrap_or(0) / 1_000_000;
    (wall_us(), seconds.saturating_mul(1_000) + millis)
}

#[cfg(not(any(target_os = "linux", target_os = "macos", windows)))]
fn read() -> (u64, u64) {
    let wall = wall_us();
    // Without a boot clock, ages come from the wall clock; the boot id is empty there.
    (wall, wall / 1_000)
}

/// The machine's own wall clock, in microseconds since 1970.
#[cfg(not(target_os = "linux"))]
#[allow(clippy::disallowed_methods, reason = "this is the place")]
fn wall_us() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
        })
}

/// The machine's boot clock, in nanoseconds. `None` in a time namespace with a clock of its own.
#[cfg(target_os = "linux")]
pub(crate) fn boot_ns() -> Option<u64> {
    (shift() == Shift::Nanos(0)).then(own_boot_ns)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, reason = "a test says what it expects by failing")]

    use super::{instant, rest_until};
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    #[test]
    fn an_instant_that_has_come_leaves_no_rest() {
        let now = instant();
        assert_eq!(rest_until(now), None);
        let hour = Duration::from_secs(3_600);
        let rest = rest_until(now + hour).expect("it has not come");
        assert!(rest <= hour && rest > hour / 2, "{rest:?}");
    }

    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|end| end == "rs") {
                found.push(path);
            }
        }
    }

    /// Sleeps of the standard library do not count the time that the machine slept. The lints know no such
    /// rule for the program alone: tests may sleep as they like.
    #[test]
    #[allow(clippy::too_many_lines, reason = "most of it is the table")]
    fn only_these_sleep_by_the_clock_that_stands_still_with_the_machine() {
        const SLEEPS: [&str; 5] = [
            "thread::sleep(",
            ".recv_timeout(",
            ".wait_timeout(",
            ".wait_timeout_while(",
            "park_timeout(",
        ];
        const KNOWN: [(&str, &str); 21] = [
            (
                "tenure-cli/src/command/agent/ask.rs",
                "a bound for an answer",
            ),
            ("tenure-os/src/clock.rs", "`nap` itself"),
            (
                "tenure-conformance/src/terms.rs",
                "a promise of the suite is a test",
            ),
            ("tenure-os/src/os/windows.rs", "parts of 50 ms"),
            (
                "tenure-os/src/os/windows/raw.rs",
                "the process is ended meanwhile",
            ),
            ("tenure-store/src/etcd/handle.rs", "a bound for an answer"),
            (
                "tenure-store/src/file/ends.rs",
                "a bounded wait of the caller (decision 0006)",
            ),
            (
                "tenure-store/src/file/sleeper.rs",
                "a bounded wait of the caller (decision 0006)",
            ),
            (
                "tenure-store/src/memory.rs",
                "its processes are threads of one program",
            ),
            ("tenure/src/guard/hold.rs", "a bound for an answer"),
            (
                "tenure-engine/src/line/turns.rs",
                "a bounded wait of the caller (decision 0006)",
            ),
            ("tenure-engine/src/line/pool.rs", "a thread without work"),
            (
                "tenure-engine/src/keep/releases.rs",
                "bounds for answers, and pauses between tries",
            ),
            (
                "tenure-engine/src/line/due.rs",
                "bounded waits of callers (decision 0006)",
            ),
            (
                "tenure-cli/src/supervise/around.rs",
                "a second between two looks",
            ),
            (
                "tenure/src/framework/monitor.rs",
                "a tool's own bound for its command",
            ),
            (
                "tenure-cli/src/command/completions.rs",
                "a bound for an answer",
            ),
            ("tenure-cli/src/command/hook.rs", "a bound for an answer"),
            (
                "tenure-cli/src/command.rs",
                "a bound for an event (Windows)",
            ),
            (
                "tenure-cli/src/signals/windows.rs",
                "the process is ended meanwhile",
            ),
            (
                "tenure-cli/src/signals/writing_of_windows.rs",
                "a bound for an answer",
            ),
        ];
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut files = Vec::new();
        for entry in fs::read_dir(&crates).expect("the crates") {
            let path = entry.expect("an entry").path();
            sources(&path.join("src"), &mut files);
        }
        let sleeps = |path: &Path| {
            let text = fs::read_to_string(path).expect("a source");
            let code = text
                .split("#[cfg(test)]\nmod tests")
                .next()
                .unwrap_or_default();
            let mut lines = code
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"));
            lines.any(|line| SLEEPS.iter().any(|sleep| line.contains(sleep)))
        };
        let mut found: Vec<String> = files
            .iter()
            .filter(|path| sleeps(path))
            .map(|path| {
                path.strip_prefix(&crates)
                    .expect("below the crates")
                    .display()
                    .to_string()
                    .replace('\\', "/")
            })
            .collect();
        found.sort();
        let mut known: Vec<String> = KNOWN.iter().map(|(path, _)| (*path).to_owned()).collect();
        known.sort();
        assert_eq!(
            found, known,
            "`clock::nap` is for a pause, `os::poll_readable` for a longer sleep"
        );
    }
}
