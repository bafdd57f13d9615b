//! How long to pause between attempts at something that other processes attempt too. The pause doubles each
//! time, up to a limit. A random part keeps two processes from pausing equally long.
//!
//! The random number and the first pause are arguments: nothing here sleeps or draws.

/// How often the pause doubles before it stays as it is: sixteen times the first one at most.
const DOUBLINGS_MAX: u32 = 4;

/// The pause in milliseconds after the failed attempt of this number (1 for the first). It is `base_ms`
/// times 1, 2, 4, 8, 16, 16 …, spread evenly over three to five quarters of that.
///
/// `random` is any number of an even distribution; 0 gives the shortest pause, `u32::MAX` the longest.
///
/// # Examples
/// ```
/// use tenure_core::pause_ms;
/// assert_eq!(pause_ms(1_000, 1, 0), 750);
/// assert_eq!(pause_ms(1_000, 5, u32::MAX), 20_000);
/// ```
pub fn pause_ms(base_ms: u64, attempt: u32, random: u32) -> u64 {
    let doublings = attempt.saturating_sub(1).min(DOUBLINGS_MAX);
    let full = base_ms.saturating_mul(1 << doublings);
    let shortest = full - full / 4;
    let spread = u128::from(full / 2) * u128::from(random) / u128::from(u32::MAX);
    shortest.saturating_add(u64::try_from(spread).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::pause_ms;

    #[test]
    fn the_pause_doubles_up_to_sixteen_times_and_is_spread_by_a_quarter() {
        for (attempt, shortest, middle, longest) in [
            (0, 750, 999, 1_250),
            (1, 750, 999, 1_250),
            (2, 1_500, 1_999, 2_500),
            (3, 3_000, 3_999, 5_000),
            (4, 6_000, 7_999, 10_000),
            (5, 12_000, 15_999, 20_000),
            (6, 12_000, 15_999, 20_000),
            (u32::MAX, 12_000, 15_999, 20_000),
        ] {
            let pauses = [0, u32::MAX / 2, u32::MAX].map(|random| pause_ms(1_000, attempt, random));
            assert_eq!(pauses, [shortest, middle, longest], "attempt {attempt}");
        }
    }

    #[test]
    fn no_base_is_too_short_or_too_long() {
        for (base_ms, shortest, longest) in [
            (0, 0, 0),
            (1, 1, 1),
            (20, 15, 25),
            (u64::MAX, u64::MAX - u64::MAX / 4, u64::MAX),
        ] {
            assert_eq!(pause_ms(base_ms, 1, 0), shortest, "{base_ms}");
            assert_eq!(pause_ms(base_ms, 1, u32::MAX), longest, "{base_ms}");
            assert!(pause_ms(base_ms, 9, u32::MAX) >= longest, "{base_ms}");
        }
    }
}
