//! The only place where clocks are read.
//!
//! Everything else is handed an instant. Records carry the wall clock for people and for other
//! machines, and the boot clock (which never steps and counts sleep) for ages on this boot.
//!
//! A boot clock that a time namespace has shifted is brought back first (`shift`).
//!
//! A build for tests can be told that its wall clock was set: the feature `testing-clock`.

#[cfg(target_os = "linux")]
mod shift;
#[cfg(feature = "testing-clock")]
#[doc(hidden)]
pub mod stepped;

#[cfg(target_os = "linux")]
pub(crate) use shift::{Shift, shift};

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
    boot_id: String,
}

impl SystemClock {
    /// Clocks of the boot with this id; see [`crate::process::Identity`].
    pub fn new(boot_id: Option<&str>) -> Self {
        Self {
            boot_id: boot_id.unwrap_or_default().to_owned(),
        }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Now {
        let (wall_us, boot_ms) = read();
        Now {
            wall_us: as_set(wall_us),
            boot_ms,
            boot_id: self.boot_id.clone(),
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

/// The wall clock as an answer tells it: RFC 3339 in UTC.
pub fn timestamp() -> String {
    let micros = i64::try_from(SystemClock::new(None).now().wall_us).ok();
    let at = micros.and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok());
    at.unwrap_or(jiff::Timestamp::MAX).to_string()
}

/// When the kernel says that a file was written, by the clock that records are compared with.
pub(crate) fn written_ms(real_ms: u64) -> u64 {
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
    use rustix::time::{ClockId, clock_gettime};
    let wall = clock_gettime(ClockId::Realtime);
    let boot = clock_gettime(ClockId::Boottime);
    let nanos = |t: rustix::time::Timespec| {
        // A clock before its epoch reads as the epoch: no record is older than that.
        let seconds = u128::try_from(t.tv_sec).unwrap_or(0);
        let nanos = u128::try_from(t.tv_nsec).unwrap_or(0);
        seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
    };
    let units = |nanos: u128, unit| u64::try_from(nanos / unit).unwrap_or(u64::MAX);
    (
        units(nanos(wall), 1_000),
        units(shift().unshifted(nanos(boot)), 1_000_000),
    )
}

#[cfg(windows)]
fn read() -> (u64, u64) {
    (wall_us(), crate::os::raw::since_boot_ms())
}

#[cfg(target_os = "macos")]
fn read() -> (u64, u64) {
    // This one counts sleep there, from an instant that is the same for all processes of a boot.
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
pub(crate) fn wall_us() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
        })
}
