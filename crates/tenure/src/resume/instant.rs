//! The instants of a resume lock: the standard library's, or chrono's with the feature of that name.
//!
//! Both are written the same way, in the file and to people.

use jiff::Timestamp;
use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Error as _, Serializer};
use std::time::SystemTime;

/// When a lock was acquired: an instant in UTC.
///
/// A [`SystemTime`], or chrono's `DateTime<Utc>` with the feature `chrono`. The original program has
/// chrono's type there, so code that was written against its types compiles unchanged. **The feature
/// changes the type for every crate of a build.** A library that others depend on should not turn it on,
/// and should convert where it reads the field (`SystemTime::from` and `DateTime::<Utc>::from` take
/// either).
#[cfg(not(feature = "chrono"))]
pub type AcquiredAt = SystemTime;

/// When a lock was acquired: an instant in UTC.
///
/// chrono's `DateTime<Utc>`, as in the original program; without the feature `chrono` the standard
/// library's [`SystemTime`]. **The feature changes the type for every crate of a build.** A library that
/// others depend on should not turn it on, and should convert where it reads the field
/// (`SystemTime::from` and `DateTime::<Utc>::from` take either).
#[cfg(feature = "chrono")]
pub type AcquiredAt = chrono::DateTime<chrono::Utc>;

/// A type of instants.
trait Instant: Sized {
    fn of(at: Timestamp) -> Self;
    fn stamp(&self) -> Result<Timestamp, jiff::Error>;
}

impl Instant for SystemTime {
    fn of(at: Timestamp) -> Self {
        at.into()
    }

    fn stamp(&self) -> Result<Timestamp, jiff::Error> {
        Timestamp::try_from(*self)
    }
}

// Not through a `SystemTime`: its range differs between systems, and chrono's conversion from it panics.
#[cfg(feature = "chrono")]
impl Instant for chrono::DateTime<chrono::Utc> {
    fn of(at: Timestamp) -> Self {
        // chrono counts the part of a second forwards, also before 1970.
        let part = i64::from(at.subsec_nanosecond());
        let seconds = at.as_second() - i64::from(part < 0);
        let part = u32::try_from(part.rem_euclid(1_000_000_000)).unwrap_or_default();
        // chrono's years go further than jiff's.
        Self::from_timestamp(seconds, part).unwrap_or_default()
    }

    fn stamp(&self) -> Result<Timestamp, jiff::Error> {
        // In a leap second this part is a second or more.
        let part = jiff::SignedDuration::from_nanos(self.timestamp_subsec_nanos().into());
        Timestamp::from_second(self.timestamp())?.checked_add(part)
    }
}

/// The instant of a record, in milliseconds since 1970.
pub(super) fn of_millis(wall_ms: u64) -> AcquiredAt {
    // No record holds an instant without a date; the epoch would stand for it.
    let at = i64::try_from(wall_ms).ok().map(Timestamp::from_millisecond);
    AcquiredAt::of(at.and_then(Result::ok).unwrap_or(Timestamp::UNIX_EPOCH))
}

/// `YYYY-MM-DD HH:MM:SS UTC`.
#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "how large an instant is differs between platforms"
)]
pub(super) fn utc(at: &AcquiredAt) -> String {
    at.stamp().map_or_else(
        |_| "at an unknown time".to_owned(),
        |at| at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
    )
}

/// Writes an instant as the file has it, RFC 3339.
#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde wants a reference; how large an instant is differs between platforms"
)]
pub(super) fn serialize<S: Serializer>(at: &AcquiredAt, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&at.stamp().map_err(S::Error::custom)?)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<AcquiredAt, D::Error> {
    let at = String::deserialize(from)?
        .parse()
        .map_err(D::Error::custom)?;
    Ok(AcquiredAt::of(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Debug;
    use std::time::Duration;

    /// In steps of 100 ns, which the instants of every system have.
    const INSTANTS: [&str; 5] = [
        "2026-02-07T10:00:00.1234567Z",
        "1970-01-01T00:00:00Z",
        "1969-12-31T23:59:59.9Z",
        "1900-01-01T00:00:00.0000001Z",
        "9999-01-01T00:00:00Z",
    ];

    fn comes_back<T: Instant + Debug>() {
        for text in INSTANTS {
            let at: Timestamp = text.parse().expect("an instant");
            let there = T::of(at);
            assert_eq!(there.stamp().expect(text), at, "{there:?}");
        }
    }

    #[test]
    fn an_instant_comes_back_from_either_type() {
        comes_back::<SystemTime>();
        #[cfg(feature = "chrono")]
        comes_back::<chrono::DateTime<chrono::Utc>>();
    }

    /// As far as the system's own instants go: some 29,000 years on Windows.
    fn far() -> SystemTime {
        SystemTime::UNIX_EPOCH
            .checked_add(Duration::from_secs(1 << 60))
            .unwrap_or(SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 39))
    }

    #[test]
    fn an_instant_that_no_calendar_has_is_no_instant_of_ours() {
        assert!(far().stamp().is_err(), "said, and not panicked about");
        #[cfg(feature = "chrono")]
        for at in [
            chrono::DateTime::<chrono::Utc>::MAX_UTC,
            chrono::DateTime::<chrono::Utc>::MIN_UTC,
        ] {
            assert!(at.stamp().is_err(), "{at}");
        }
        #[cfg(not(feature = "chrono"))]
        let far = far();
        #[cfg(feature = "chrono")]
        let far = AcquiredAt::MAX_UTC;
        assert_eq!(utc(&far), "at an unknown time");
        assert!(serialize(&far, serde_json::value::Serializer).is_err());
        assert_eq!(of_millis(u64::MAX), of_millis(0), "no record has it");
    }

    #[cfg(feature = "chrono")]
    #[test]
    fn a_leap_second_is_the_end_of_its_minute() {
        let leap = chrono::NaiveDate::from_ymd_opt(2016, 12, 31)
            .and_then(|day| day.and_hms_nano_opt(23, 59, 59, 1_500_000_000))
            .expect("a leap second")
            .and_utc();
        let stamp = leap.stamp().expect("an instant");
        assert_eq!(stamp.to_string(), "2017-01-01T00:00:00.5Z");
    }
}
