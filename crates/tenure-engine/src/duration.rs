//! Reads durations as people write them: on the command line, in `tenure.toml`, in an intent.
//!
//! The caller decides what a duration of zero or the word `forever` means.

use std::time::Duration;

/// The longest duration that is accepted: a leap year. A caller that means more means no limit.
pub const MAX: Duration = Duration::from_secs(366 * 24 * 3_600);

/// Why a text is no duration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DurationError {
    /// The text is not written like a duration.
    Form {
        /// The text.
        text: String,
    },
    /// The duration is longer than [`MAX`].
    TooLong {
        /// The text.
        text: String,
    },
}

impl std::fmt::Display for DurationError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Form { text } => write!(
                f,
                "{text:?} is not a duration; write 90s, 15m, 1h30m or a number of seconds"
            ),
            Self::TooLong { text } => write!(f, "{text}: a year is the most"),
        }
    }
}

impl std::error::Error for DurationError {}

/// Reads `90s`, `15m`, `1h30m`, `250ms`; a bare number is seconds, as in flock(1) and timeout(1).
///
/// # Errors
/// - [`DurationError::Form`] if it is written otherwise, or is negative.
/// - [`DurationError::TooLong`] beyond [`MAX`].
///
/// # Examples
/// ```
/// use std::time::Duration;
/// assert_eq!(tenure_engine::duration::parse("1h30m"), Ok(Duration::from_secs(5_400)));
/// assert!(tenure_engine::duration::parse("soon").is_err());
/// ```
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let bad = || DurationError::Form {
        text: text.to_owned(),
    };
    if let Some(plain) = plain(text) {
        return Ok(plain);
    }
    let trimmed = text.trim();
    let looks_bare = trimmed
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let duration = if looks_bare && !trimmed.is_empty() {
        let seconds: f64 = trimmed.parse().map_err(|_| bad())?;
        Duration::try_from_secs_f64(seconds).map_err(|_| bad())?
    } else {
        let span: jiff::Span = trimmed.parse().map_err(|_| bad())?;
        let signed = span
            .to_duration(jiff::SpanRelativeTo::days_are_24_hours())
            .map_err(|_| bad())?;
        Duration::try_from(signed).map_err(|_| bad())?
    };
    if duration > MAX {
        return Err(DurationError::TooLong {
            text: text.to_owned(),
        });
    }
    Ok(duration)
}

/// The commonest form, `90s` or `250ms`, without the parser. Every run reads one, and the parser's code
/// alone costs the start of a process as much as opening a file.
fn plain(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    // Four digits of any of these units are below the longest.
    if !(1..=4).contains(&digits) {
        return None;
    }
    let number: u64 = number.parse().ok()?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_secs(number * 60)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_without_the_parser_means_the_same_to_it() {
        for number in ["0", "1", "007", "42", "999", "9999"] {
            for unit in ["ms", "s", "m"] {
                let text = format!("{number}{unit}");
                let span: jiff::Span = text.parse().expect("a span");
                let signed = span
                    .to_duration(jiff::SpanRelativeTo::days_are_24_hours())
                    .expect("a duration");
                let by_parser = Duration::try_from(signed).expect("not negative");
                assert_eq!(plain(&text), Some(by_parser), "{text}");
            }
        }
        for text in ["", "s", "5", "5h", "5 s", "12345s", "-5s", "5sm", "é5s"] {
            assert_eq!(plain(text), None, "{text:?} is left to the parser");
        }
    }

    #[test]
    fn durations_as_people_write_them() {
        for (text, millis) in [
            ("90s", 90_000),
            ("15m", 900_000),
            ("1h30m", 5_400_000),
            ("250ms", 250),
            ("5", 5_000),
            ("0.5", 500),
            ("0", 0),
            ("1 hour", 3_600_000),
            ("1d", 86_400_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "x", "-5", "-5s", "5 potatoes", "1e3", "inf", "."] {
            let text = text.to_owned();
            assert_eq!(parse(&text), Err(DurationError::Form { text }));
        }
        let text = "99999d".to_owned();
        assert_eq!(parse(&text), Err(DurationError::TooLong { text }));
    }
}
