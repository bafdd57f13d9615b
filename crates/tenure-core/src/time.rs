//! What the core knows of time: instants that the caller hands in.

use alloc::sync::Arc;

/// The instant at which a question is asked, read once by the caller.
///
/// Two clocks, because they answer different questions. People read the wall clock, and another machine
/// can compare it; it may be set back. The boot clock never steps and goes on while the machine sleeps,
/// so every age on the same boot is taken from it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Now {
    /// Microseconds since the Unix epoch, as the machine believes them to be.
    pub wall_us: u64,
    /// Milliseconds since this machine started, sleep included.
    pub boot_ms: u64,
    /// The id of this boot; empty where the platform has none.
    pub boot_id: Arc<str>,
}

impl Now {
    /// Stamps this instant, for a record that was made on this boot.
    pub fn stamp(&self) -> Stamp {
        Stamp {
            wall_ms: self.wall_us / 1_000,
            boot_ms: self.boot_ms,
        }
    }

    /// Whether a recorded boot is the one that is running. An empty id names none.
    pub fn is_on<'a>(&self, recorded_boot: impl Into<Boot<'a>>) -> bool {
        recorded_boot
            .into()
            .id
            .is_some_and(|boot| !boot.is_empty() && *boot == *self.boot_id)
    }

    /// Stamps this instant, for a record that was made on `recorded_boot`. On another boot only the wall
    /// clock is written: a reader would take the boot clock for that other boot's own.
    pub fn stamp_for<'a>(&self, recorded_boot: impl Into<Boot<'a>>) -> Stamp {
        let same = recorded_boot
            .into()
            .id
            .is_some_and(|boot| *boot == *self.boot_id);
        Stamp {
            boot_ms: if same {
                self.boot_ms
            } else {
                Stamp::OTHER_BOOT
            },
            ..self.stamp()
        }
    }
}

/// An instant as it stands in a record: both clocks, without the boot id, which a record keeps
/// once for all its instants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Milliseconds since the Unix epoch.
    pub wall_ms: u64,
    /// Milliseconds since the start of the machine whose boot id the record carries, or
    /// [`Stamp::OTHER_BOOT`].
    pub boot_ms: u64,
}

impl Stamp {
    /// Stands for the boot clock of an instant that was taken on another boot than the record's.
    pub const OTHER_BOOT: u64 = u64::MAX;

    /// Milliseconds from this instant until `now`, never negative.
    ///
    /// `recorded_boot` is the boot under which the stamp was written. On the same boot the boot clock
    /// decides, and a stepped wall clock changes nothing. Otherwise only the wall clock can be compared,
    /// and an instant in the future counts as age 0. But an instant of an ended boot of this machine is at least as
    /// old as the boot that is running, whatever the wall clock says: it may have started in 1970.
    pub fn age_ms<'a>(&self, recorded_boot: impl Into<Boot<'a>>, now: &Now) -> u64 {
        let boot = recorded_boot.into();
        let by_wall_ms = (now.wall_us / 1_000).saturating_sub(self.wall_ms);
        match self.boot_ms {
            Self::OTHER_BOOT => by_wall_ms,
            boot_ms if now.is_on(boot) => now.boot_ms.saturating_sub(boot_ms),
            _ if boot.has_ended => by_wall_ms.max(now.boot_ms),
            _ => by_wall_ms,
        }
    }
}

/// The boot of a machine under which instants were recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Boot<'a> {
    /// Boot id; `None` where the platform has none.
    pub id: Option<&'a str>,
    /// Whether it is known to be an earlier boot of the machine that asks.
    pub has_ended: bool,
}

/// A boot of which only the id is known.
impl<'a> From<Option<&'a str>> for Boot<'a> {
    fn from(id: Option<&'a str>) -> Self {
        Self {
            id,
            has_ended: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(wall_ms: u64, boot_ms: u64, boot: &str) -> Now {
        Now {
            wall_us: wall_ms * 1_000,
            boot_ms,
            boot_id: boot.into(),
        }
    }

    #[test]
    fn a_stepped_wall_clock_changes_no_age_on_the_same_boot() {
        let stamp = Stamp {
            wall_ms: 50_000,
            boot_ms: 1_000,
        };
        for wall in [0, 50_000, 9_000_000] {
            assert_eq!(
                stamp.age_ms(Some("boot-a"), &now(wall, 4_000, "boot-a")),
                3_000,
                "the boot clock decides, whatever the wall clock says"
            );
        }
    }

    #[test]
    fn a_renewal_from_another_boot_is_as_old_as_the_wall_clock_says() {
        let renewed = now(1_100_000, 5_000, "boot-b").stamp_for(Some("boot-a"));
        assert_eq!(
            renewed.age_ms(Some("boot-a"), &now(1_101_000, 201_000, "boot-a")),
            1_000,
            "the other boot's clock is not read as this one's"
        );
    }

    #[test]
    fn another_boot_is_compared_by_the_wall_clock_and_the_future_is_age_zero() {
        let stamp = Stamp {
            wall_ms: 50_000,
            boot_ms: 1_000,
        };
        assert_eq!(
            stamp.age_ms(Some("boot-a"), &now(53_000, 10, "boot-b")),
            3_000
        );
        assert_eq!(
            stamp.age_ms(Some("boot-a"), &now(40_000, 10, "boot-b")),
            0,
            "a record from the future is not infinitely old"
        );
        assert_eq!(
            stamp.age_ms(Some(""), &now(53_000, 9_000, "")),
            3_000,
            "two unknown boots are not the same boot"
        );
    }

    #[test]
    fn an_instant_of_an_ended_boot_is_as_old_as_this_boot() {
        let ended = Boot {
            id: Some("boot-a"),
            has_ended: true,
        };
        let stamp = Stamp {
            wall_ms: 50_000,
            boot_ms: 9_000_000,
        };
        let age = |wall_ms, boot| stamp.age_ms(boot, &now(wall_ms, 7_000, "boot-b"));
        assert_eq!(age(0, ended), 7_000, "the clock starts at 1970");
        assert_eq!(age(51_000, ended), 7_000, "it is behind");
        assert_eq!(age(80_000, ended), 30_000, "it is right");
        assert_eq!(age(0, Some("boot-a").into()), 0, "another machine's boot");
        let renewed = now(50_000, 1, "boot-c").stamp_for(Some("boot-a"));
        assert_eq!(
            renewed.age_ms(ended, &now(50_500, 7_000, "boot-b")),
            500,
            "it was renewed on a later boot"
        );
    }
}
