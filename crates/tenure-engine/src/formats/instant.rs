//! How instants stand in published records: ISO 8601 text in (and of some formats a number of
//! seconds or milliseconds since 1970), ISO 8601 UTC text out.
//!
//! The format that asks decides what an instant means, and whether it can be true.

use jiff::Timestamp;
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::TimeZone;
use std::time::Duration;
use tenure_core::Stamp;

/// How many digits of a fraction are read. What comes after is below a nanosecond.
const FRACTION_DIGITS_MAX: usize = 9;

/// Milliseconds since the Unix epoch. Accepts `Z` and offsets, and a fraction of any length;
/// never a time without a zone, which would be a guess. What lies before 1970 counts as 1970.
pub(super) fn parse(text: &str) -> Option<u64> {
    let timestamp: Timestamp = match text.find(['.', ',']) {
        None => text.parse().ok()?,
        Some(point) => {
            let digits = text.get(point + 1..)?;
            let end = digits
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(digits.len());
            let kept = point + 1 + end.min(FRACTION_DIGITS_MAX);
            let short = format!("{}{}", text.get(..kept)?, digits.get(end..)?);
            short.parse().ok()?
        }
    };
    Some(u64::try_from(timestamp.as_millisecond()).unwrap_or(0))
}

/// Reads an instant of a format whose times are UTC by definition, also where no zone is written.
pub(super) fn parse_utc(text: &str) -> Option<u64> {
    parse(text).or_else(|| parse(&format!("{}Z", text.trim())))
}

/// Reads an instant of a format whose records other tools and people write. Beside the forms above: dates as JavaScript
/// prints them (`toUTCString`, `toString`, `toLocaleString` in English), as Go, Ruby and `date` do, dates as people
/// write them, and numbers of [`of_epoch`]. A date without a zone is UTC.
pub(super) fn as_people_write(text: &str) -> Option<u64> {
    // The name of the zone, and the monotonic clock of Go.
    let text = text.split(" (").next().unwrap_or(text);
    let text = text.split(" m=").next().unwrap_or(text).trim();
    let read = parse_utc(text).or_else(|| of_epoch(text));
    read.or_else(|| {
        let text = without_names_of_utc(text);
        let dates = DATES.iter();
        let read = dates.filter_map(|form| BrokenDownTime::parse(form, &text).ok());
        let millis = read.filter_map(|read| {
            let time = read.to_timestamp().or_else(|_| {
                let date = read.to_date()?;
                let time = read.to_time().unwrap_or_default();
                date.to_datetime(time)
                    .to_zoned(TimeZone::UTC)
                    .map(|at| at.timestamp())
            });
            Some(u64::try_from(time.ok()?.as_millisecond()).unwrap_or(0))
        });
        millis.into_iter().next()
    })
}

/// The words of a date without those that say it is UTC, and without the name of a zone behind its number.
fn without_names_of_utc(text: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    for word in text.split_whitespace() {
        let is_behind_number = words
            .last()
            .is_some_and(|last| last.starts_with(['+', '-']))
            && word.bytes().all(|byte| byte.is_ascii_alphabetic());
        if !is_behind_number && !matches!(word, "UTC" | "GMT" | "Z") {
            words.push(word);
        }
    }
    words.join(" ")
}

/// How JavaScript, Go, Ruby and date(1) print dates, and how people do.
const DATES: [&str; 17] = [
    "%a, %d %b %Y %H:%M:%S",
    "%a, %d %b %Y %H:%M:%S %z",
    "%A, %d-%b-%y %H:%M:%S",
    "%a %b %d %Y %H:%M:%S GMT%z",
    "%a %b %d %H:%M:%S %Y",
    "%a %b %d %I:%M:%S %p %Y",
    "%Y/%m/%d %H:%M",
    "%Y-%m-%d %H:%M:%S%.f %z",
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%d %H:%M",
    "%Y/%m/%d %H:%M:%S",
    "%Y/%m/%d",
    "%m/%d/%Y, %I:%M:%S %p",
    "%m/%d/%Y %H:%M:%S",
    "%b %d, %Y %H:%M:%S",
    "%a %b %d %Y",
    "%Y-%m-%d",
];

/// From this number on, seconds since 1970 are believed: 9 September 2001. A smaller number is something
/// else, as a date written in digits alone is.
const EPOCH_SECONDS_MIN: f64 = 1e9;

/// How many times the smallest number of seconds lies beyond every clock, and likewise with milliseconds.
const EPOCH_FACTOR: f64 = 100.0;

/// How many there are to a second of what programs count since 1970: seconds, milliseconds, microseconds, nanoseconds.
const EPOCH_UNITS: [f64; 4] = [1.0, 1e3, 1e6, 1e9];

/// Milliseconds since the Unix epoch, of a decimal number of one of [`EPOCH_UNITS`] since then. Its size says which of
/// them it is: seconds are read from 2001 to the year 5138, the others likewise. A number between or beyond is no time.
pub(super) fn of_epoch(text: &str) -> Option<u64> {
    let text = text.trim();
    let is_decimal = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number: f64 = text.parse().ok().filter(|_| is_decimal)?;
    let within = |unit: f64| {
        (EPOCH_SECONDS_MIN * unit..EPOCH_SECONDS_MIN * unit * EPOCH_FACTOR).contains(&number)
    };
    let unit = EPOCH_UNITS.into_iter().find(|unit| within(*unit))?;
    let seconds = number / unit;
    // A fraction in binary lies a little beside the decimal one that was written.
    let since = Duration::try_from_secs_f64(seconds).ok()? + Duration::from_micros(50);
    u64::try_from(since.as_millis()).ok()
}

/// The instant as whole seconds, `YYYY-MM-DDTHH:MM:SSZ`. Fractions of a second are cut, so that a record
/// never claims a later sign of life than there was.
pub(super) fn seconds(at: Stamp) -> Result<String, String> {
    Ok(format!("{:.0}", timestamp(at)?))
}

/// The instant with its milliseconds, `YYYY-MM-DDTHH:MM:SS.mmmZ`.
pub(super) fn milliseconds(at: Stamp) -> Result<String, String> {
    Ok(format!("{:.3}", timestamp(at)?))
}

/// The instant with as many digits as it needs, in RFC 3339.
pub(super) fn shortest(at: Stamp) -> Result<String, String> {
    Ok(timestamp(at)?.to_string())
}

fn timestamp(at: Stamp) -> Result<Timestamp, String> {
    i64::try_from(at.wall_ms)
        .ok()
        .and_then(|ms| Timestamp::from_millisecond(ms).ok())
        .ok_or_else(|| "a time of it lies beyond the year 9999".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_MS: u64 = 1_770_458_400_000;

    fn at(wall_ms: u64) -> Stamp {
        Stamp {
            wall_ms,
            boot_ms: 0,
        }
    }

    #[test]
    fn what_javascript_prints_of_a_date_is_read() {
        // 2026-11-29 13:20:19 UTC.
        let at = 1_795_958_419_000;
        for (text, expected) in [
            ("2026-11-29T13:20:19.000Z", at),
            ("Sun, 29 Nov 2026 13:20:19 GMT", at),
            (
                "Sun Nov 29 2026 13:20:19 GMT+0000 (Coordinated Universal Time)",
                at,
            ),
            (
                "Sun Nov 29 2026 14:20:19 GMT+0100 (Central European Standard Time)",
                at,
            ),
            ("Sun, 29 Nov 2026 13:20:19 +0000", at),
            ("Sun Nov 29 13:20:19 2026", at),
            ("2026-11-29 13:20:19", at),
            ("2026-11-29 13:20:19.500", at + 500),
            ("2026-11-29 14:20:19 +0100", at),
            ("11/29/2026, 1:20:19 PM", at),
            ("2026/11/29 13:20:19", at),
            ("Nov 29, 2026 13:20:19", at),
        ] {
            assert_eq!(as_people_write(text), Some(expected), "{text}");
        }
        for text in ["", "yesterday", "29", "Sun", "2026-13-40", "13:20:19"] {
            assert_eq!(as_people_write(text), None, "{text}");
        }
    }

    #[test]
    fn an_instant_is_read_with_z_or_offset_and_any_fraction() {
        for (text, ms) in [
            ("2026-02-07T10:00:00Z", AT_MS),
            ("2026-02-07t10:00:00z", AT_MS),
            ("2026-02-07 10:00:00Z", AT_MS),
            ("2026-02-07T11:30:00+01:30", AT_MS),
            ("2026-02-07T05:00:00-05:00", AT_MS),
            ("2026-02-07T10:00:00+00:00", AT_MS),
            ("2026-02-07T10:00:00.5Z", AT_MS + 500),
            ("2026-02-07T10:00:00,25Z", AT_MS + 250),
            ("2026-02-07T10:00:00.123456789Z", AT_MS + 123),
            (
                "2026-02-07T10:00:00.123456789012345678901234567890+00:00",
                AT_MS + 123,
            ),
            ("0001-01-01T00:00:00Z", 0),
        ] {
            assert_eq!(parse(text), Some(ms), "{text:?} is an instant");
        }
    }

    #[test]
    fn what_is_no_instant_is_not_guessed_at() {
        for text in [
            "",
            "now",
            "2026-02-07",
            "2026-02-07T10:00:00",
            "2026-02-30T10:00:00Z",
            "2026-02-07T25:00:00Z",
            "2026-02-07T10:00:00.Z",
            "2026-02-07T10:00:00Z.5",
            "1770458400000",
            "2026-02-07T10:00:00Z ",
            "é.5Z",
            "…",
        ] {
            assert_eq!(parse(text), None, "{text:?} is no instant");
        }
    }

    #[test]
    fn a_number_is_seconds_or_milliseconds_by_its_size_and_else_no_time() {
        for (text, ms) in [
            ("1770458400", Some(AT_MS)),
            (" 1770458400 ", Some(AT_MS)),
            ("1770458400.0", Some(AT_MS)),
            ("1770458400.5", Some(AT_MS + 500)),
            ("1770458400.123456", Some(AT_MS + 123)),
            ("1770458400000", Some(AT_MS)),
            ("1770458400999", Some(AT_MS + 999)),
            ("1770458400000.25", Some(AT_MS)),
            ("1000000000", Some(1_000_000_000_000)),
            ("99999999999", Some(99_999_999_999_000)),
            ("1000000000000", Some(1_000_000_000_000)),
            ("99999999999999", Some(99_999_999_999_999)),
            ("1770458400000000", Some(AT_MS)),
            ("1770458400123456789", Some(AT_MS + 123)),
            ("999999999", None),
            ("100000000000", None),
            ("999999999999", None),
            ("100000000000000", None),
            ("20260207", None),
            ("5", None),
            ("0", None),
            ("-1770458400", None),
            ("+1770458400", None),
            ("1e9", None),
            ("inf", None),
            ("NaN", None),
            ("1.2.3", None),
            (".", None),
            ("", None),
        ] {
            assert_eq!(of_epoch(text), ms, "{text:?}");
        }
    }

    #[test]
    fn each_precision_is_written_as_its_format_wants_it() {
        let late = at(AT_MS + 999);
        assert_eq!(seconds(late).as_deref(), Ok("2026-02-07T10:00:00Z"), "cut");
        assert_eq!(
            milliseconds(at(AT_MS)).as_deref(),
            Ok("2026-02-07T10:00:00.000Z"),
            "always three digits"
        );
        assert_eq!(
            shortest(late).as_deref(),
            Ok("2026-02-07T10:00:00.999Z"),
            "as many digits as needed"
        );
        assert!(seconds(at(u64::MAX)).is_err(), "beyond the calendar");
    }
}
