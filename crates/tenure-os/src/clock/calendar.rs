//! Instants of the wall clock as text, in UTC.

use std::fmt;

/// The last second that is written as a date. A later one is no time that a clock shows.
const LAST: u64 = 253_402_207_200;

const SECONDS_OF_DAY: u64 = 24 * 3_600;

/// Days of 400 years, after which the calendar repeats.
const DAYS_OF_ERA: u64 = 146_097;

/// Days from the beginning of an era, on the first of March, to 1970.
const DAYS_TO_EPOCH: u64 = 719_468;

/// An instant of the calendar, to the second. Its text is RFC 3339 in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Date {
    year: u64,
    month: u64,
    day: u64,
    /// Seconds since midnight.
    rest: u64,
}

impl Date {
    /// The instant so many seconds after the Unix epoch; `None` beyond the year 9999.
    pub fn of_second(second: u64) -> Option<Self> {
        if second > LAST {
            return None;
        }
        // Counted from a first of March, the leap day is the last day of a year.
        let days = second / SECONDS_OF_DAY + DAYS_TO_EPOCH;
        let (era, day_of_era) = (days / DAYS_OF_ERA, days % DAYS_OF_ERA);
        let leap_days = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
        let year_of_era = (day_of_era - leap_days) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        // Months of 31 and 30 days in turns, five of which have 153.
        let from_march = (5 * day_of_year + 2) / 153;
        let (month, turn) = if from_march < 10 {
            (from_march + 3, 0)
        } else {
            (from_march - 9, 1)
        };
        Some(Self {
            year: 400 * era + year_of_era + turn,
            month,
            day: day_of_year - (153 * from_march + 2) / 5 + 1,
            rest: second % SECONDS_OF_DAY,
        })
    }

    /// Writes the instant so many microseconds after the Unix epoch, in RFC 3339 with as many digits as it takes.
    pub(crate) fn text_of_micros(micros: u64) -> String {
        let (second, part) = (micros / 1_000_000, micros % 1_000_000);
        let Some(date) = Self::of_second(second) else {
            return Self::text_of_micros(LAST * 1_000_000);
        };
        if part == 0 {
            return date.to_string();
        }
        let digits = format!("{part:06}");
        let (whole, digits) = (date.to_string(), digits.trim_end_matches('0'));
        format!("{}.{digits}Z", whole.trim_end_matches('Z'))
    }

    fn parts(self) -> [u64; 6] {
        let (hours, rest) = (self.rest / 3_600, self.rest % 3_600);
        [self.year, self.month, self.day, hours, rest / 60, rest % 60]
    }

    /// `YYYY-MM-DD HH:MM:SS UTC`.
    pub fn for_people(self) -> String {
        let [year, month, day, hour, minute, second] = self.parts();
        format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [year, month, day, hour, minute, second] = self.parts();
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_until_9999_is_that_of_the_calendar() {
        for day in 0..=LAST / SECONDS_OF_DAY {
            let second = day * SECONDS_OF_DAY + day % SECONDS_OF_DAY;
            let Ok(theirs) = jiff::Timestamp::from_second(second.try_into().expect("a number"))
            else {
                continue;
            };
            // A text of each takes its time, so the table is thinned out. 61 has no factor of a week or a year.
            if day % 61 == 0 || day < 3_000 {
                let ours = Date::of_second(second).expect("a date");
                assert_eq!(ours.to_string(), theirs.to_string());
            }
        }
        assert_eq!(Date::of_second(LAST + 1), None);
    }

    #[test]
    fn microseconds_have_as_many_digits_as_they_take() {
        for micros in [
            0,
            1,
            10,
            999_999,
            1_700_000_000_120_000,
            1_795_000_000_000_000,
        ] {
            let theirs = jiff::Timestamp::from_microsecond(micros).expect("an instant");
            let ours = Date::text_of_micros(micros.try_into().expect("positive"));
            assert_eq!(ours, theirs.to_string());
        }
        assert_eq!(Date::text_of_micros(u64::MAX), "9999-12-30T22:00:00Z");
    }
}
