//! The one line of a wait on a terminal, and which parts give way on a narrow terminal.
//!
//! Apart from the estimate, the line says nothing that the longer line of a log does not say as well.

use super::{Estimate, WaitView};
use crate::failure::human;
use crate::render::clean;
use crate::render::lock::HolderView;
use crate::render::width::{cut, width};
use std::time::Duration;
use tenure_core::LockName;

/// A reason needs at least so many columns to say something.
const WHY_MIN: usize = 10;
/// How many columns of a reason come before the number of a process.
const WHY_BEFORE_PROCESS: usize = 40;
/// A name needs at least so many columns to be told from others.
const NAME_MIN: usize = 16;
/// In fewer columns there is no room for both the lock's name and its holder.
const BOTH_MIN: usize = 12;
const BETWEEN: &str = " · ";
/// At most so many columns of a holder's name are shown.
const WHO_MAX: usize = 24;

/// The parts of the line.
#[derive(Debug, Default)]
pub(super) struct Short {
    name: String,
    /// The holder of the lock, or a text in its place.
    who: String,
    /// The holder's process, if `who` does not say that.
    process: String,
    /// For how long it has held the lock.
    age: String,
    /// What is out of the ordinary about the holder.
    remark: &'static str,
    why: String,
    place: String,
    estimate: String,
    left: String,
}

/// The parts that give way, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Without {
    Nothing,
    Process,
    Why,
    LongName,
    Estimate,
    Since,
    Remark,
}

const WITHOUT: [Without; 7] = [
    Without::Nothing,
    Without::Process,
    Without::Why,
    Without::LongName,
    Without::Estimate,
    Without::Since,
    Without::Remark,
];

impl Short {
    pub(super) fn of(
        name: &LockName,
        sight: &WaitView,
        here: &str,
        left: Option<Duration>,
    ) -> Self {
        let name = name.to_string();
        let place = match sight.before {
            None => String::new(),
            Some(0) => "next".to_owned(),
            Some(before) => format!("place {}", before + 1),
        };
        let estimate = match sight.estimate {
            None => String::new(),
            Some(Estimate::Rest(ms)) if place.is_empty() => format!("free in about {}", about(ms)),
            Some(Estimate::Rest(ms)) => format!("in about {}", about(ms)),
            Some(Estimate::Usual(ms)) => format!("usually {}", about(ms)),
        };
        let left = left.map_or_else(String::new, |left| format!("{} left", seconds(left)));
        let line = Self {
            name,
            place,
            estimate,
            left,
            ..Self::default()
        };
        let Some(front) = &sight.front else {
            let who = "about to be free".to_owned();
            return Self { who, ..line };
        };
        let (who, process) = who(front, here);
        let age = seconds(Duration::from_millis(front.age_ms));
        let why = clean(&front.why).into_owned();
        if let Some((rest, is_stopped)) = sight.still {
            let rest = seconds(rest.max(Duration::from_secs(1)));
            let why = if is_stopped {
                "is stopped"
            } else {
                "does not act"
            };
            let who = format!("not held, {} {why}, passes in {rest}", cut(&who, WHO_MAX));
            return Self { who, ..line };
        }
        if !sight.holds {
            let who = format!("passes to {}", cut(&who, WHO_MAX));
            return Self {
                who,
                process,
                why,
                ..line
            };
        }
        Self {
            who: cut(&who, WHO_MAX).into_owned(),
            process,
            age,
            remark: if front.orphaned {
                "supervisor dead"
            } else if front.stopped {
                "stopped"
            } else if front.cancel_requested {
                "asked to stop"
            } else {
                ""
            },
            why,
            ..line
        }
    }

    /// As much as fits into so many columns, the important things first.
    pub(super) fn fit(&self, room: usize) -> String {
        for without in WITHOUT {
            let tail = self.tail(without);
            let state = self.state(without);
            let fixed = width(&self.name) + 2 + width(&state) + width(&tail);
            let why = if without >= Without::Why || self.why.is_empty() {
                String::new()
            } else {
                let rest = room.saturating_sub(fixed + 2);
                // The process gives way to a reason that tells something.
                let least = match without {
                    Without::Nothing => WHY_BEFORE_PROCESS,
                    _ => WHY_MIN,
                };
                if rest < least.min(width(&self.why)) {
                    continue;
                }
                format!(", {}", cut(&self.why, rest))
            };
            if fixed + width(&why) <= room {
                return format!("{}: {state}{why}{tail}", self.name);
            }
            let rest = room.saturating_sub(fixed - width(&self.name));
            if without >= Without::LongName && rest >= NAME_MIN {
                return format!("{}: {state}{tail}", cut(&self.name, rest));
            }
        }
        let tail = self.tail(Without::Remark);
        let state = self.state(Without::Remark);
        let rest = room.saturating_sub(width(&tail));
        let head = if rest < BOTH_MIN {
            self.who.clone()
        } else {
            let name = rest.saturating_sub(2 + width(&state)).max(rest / 3);
            format!("{}: {state}", cut(&self.name, name))
        };
        let line = cut(&head, rest) + tail.as_str();
        cut(line.trim_start_matches(BETWEEN), room).into_owned()
    }

    /// The holder, and for how long it has held the lock.
    fn state(&self, without: Without) -> String {
        let mut state = self.who.clone();
        if without < Without::Process && !self.process.is_empty() {
            state = format!("{state} ({})", self.process);
        }
        if !self.age.is_empty() {
            let since = if without < Without::Since {
                "since "
            } else {
                ""
            };
            state = format!("{state} {since}{}", self.age);
        }
        if without < Without::Remark && !self.remark.is_empty() {
            state = format!("{state}, {}", self.remark);
        }
        state
    }

    /// What concerns the caller itself.
    fn tail(&self, without: Without) -> String {
        let estimate = if without < Without::Estimate {
            self.estimate.as_str()
        } else {
            ""
        };
        let parts = [self.place.as_str(), estimate, self.left.as_str()];
        let parts = parts.iter().filter(|part| !part.is_empty());
        parts.fold(String::new(), |tail, part| tail + BETWEEN + part)
    }
}

/// The name by which people know a holder, and its process.
fn who(front: &HolderView, here: &str) -> (String, String) {
    let pid = front.work_pid;
    let process = pid.map_or_else(String::new, |pid| format!("PID {pid}"));
    let (actor, host) = (clean(&front.actor), clean(&front.host));
    let is_elsewhere = !host.is_empty() && host != here;
    match (actor.is_empty(), is_elsewhere) {
        (false, true) => (format!("{actor}@{host}"), process),
        (false, false) => (actor.into_owned(), process),
        (true, _) if !process.is_empty() => (process, String::new()),
        (true, _) => (front.who(), String::new()),
    }
}

/// A duration to the second, for a line that changes every second.
fn seconds(duration: Duration) -> String {
    match duration.as_secs() {
        0 => "0s".to_owned(),
        seconds => human(Duration::from_secs(seconds)),
    }
}

/// A rounded estimate: of an hour, the seconds are not known.
fn about(ms: u64) -> String {
    let seconds = ms.div_ceil(1_000).max(1);
    let step = match seconds {
        0..120 => 1,
        120..3_600 => 10,
        _ => 60,
    };
    human(Duration::from_secs(seconds.div_ceil(step) * step))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::lock::LockView;
    use std::sync::Arc;
    use tenure_core::{Claim, Holder, Host, Kind, Lease, Now, Process, RequestId, Stamp};

    const SECOND: Duration = Duration::from_secs(1);

    fn front(actor: &str, why: &str) -> HolderView {
        let stamp = Stamp {
            wall_ms: 1_000_000,
            boot_ms: 1_000_000,
        };
        let mut claim = Claim::new(
            1,
            Kind::Kernel,
            Holder {
                request_id: RequestId::new("req_1").expect("an id"),
                actor: actor.to_owned(),
                process: Some(Process {
                    pid: 4711,
                    started: None,
                }),
                command: None,
                host: Arc::new(Host {
                    name: "here".to_owned(),
                    boot_id: Some("boot".to_owned()),
                    ..Host::default()
                }),
                why: why.to_owned(),
                facts: Vec::new(),
            },
            stamp,
            Lease {
                ttl_ms: 60_000,
                renewed: stamp,
                renewals: 0,
            },
        );
        claim.token = Some(2);
        claim.since = Some(stamp);
        let now = Now {
            wall_us: 1_012_000_000,
            boot_ms: 1_012_000,
            boot_id: "boot".into(),
        };
        LockView::holder_of(&claim, &now)
    }

    fn sight(front: HolderView) -> WaitView {
        WaitView {
            front: Some(front),
            holds: true,
            still: None,
            before: Some(0),
            estimate: None,
        }
    }

    fn line(name: &str, sight: &WaitView, room: usize) -> String {
        let name = LockName::new(name).expect("a name");
        let line = Short::of(&name, sight, "here", Some(56 * SECOND)).fit(room);
        assert!(width(&line) <= room, "{line:?} in {room} columns");
        line
    }

    #[test]
    fn eighty_columns_say_who_since_when_what_for_which_place_and_what_is_left() {
        let mut seen = sight(front("ada", "./backup.sh --all --to=/srv/backups"));
        let shown = |seen: &WaitView| line("backup", seen, 76);
        assert_eq!(
            shown(&seen),
            "backup: ada since 12s, ./backup.sh --all --to=/srv/backups · next · 56s left"
        );
        seen.estimate = Some(Estimate::Rest(27_500));
        assert_eq!(
            shown(&seen),
            "backup: ada since 12s, ./backup.sh --all -… · next · in about 28s · 56s left"
        );
        (seen.before, seen.estimate) = (Some(2), Some(Estimate::Usual(8_000)));
        assert_eq!(
            shown(&seen),
            "backup: ada since 12s, ./backup.sh --all… · place 3 · usually 8s · 56s left"
        );
        seen.before = None;
        seen.estimate = Some(Estimate::Rest(3_599_000));
        assert_eq!(
            shown(&seen),
            "backup: ada since 12s, ./backup.sh --all --to… · free in about 1h · 56s left"
        );
        let short = sight(front("ada", "./backup.sh"));
        assert_eq!(
            shown(&short),
            "backup: ada (PID 4711) since 12s, ./backup.sh · next · 56s left"
        );
    }

    #[test]
    fn what_matters_least_gives_way_first() {
        let mut seen = sight(front("ada", "./backup.sh --all"));
        seen.estimate = Some(Estimate::Rest(28_000));
        let whole =
            "backup: ada (PID 4711) since 12s, ./backup.sh --all · next · in about 28s · 56s left";
        for (room, shown) in [
            (width(whole), whole),
            (
                width(whole) - 1,
                "backup: ada since 12s, ./backup.sh --all · next · in about 28s · 56s left",
            ),
            (
                66,
                "backup: ada since 12s, ./backup.… · next · in about 28s · 56s left",
            ),
            (64, "backup: ada since 12s · next · in about 28s · 56s left"),
            (53, "backup: ada since 12s · next · 56s left"),
            (36, "backup: ada 12s · next · 56s left"),
            (30, "bac…: ada 1… · next · 56s left"),
            (24, "ada · next · 56s left"),
            (18, "next · 56s left"),
            (8, "next ·…"),
            (0, ""),
        ] {
            assert_eq!(line("backup", &seen, room), shown, "in {room} columns");
        }
        seen.before = Some(1);
        assert_eq!(
            line("nightly-backup-of-all-databases-of-the-firm", &seen, 76),
            "nightly-backup-of-all-da…: ada since 12s · place 2 · in about 28s · 56s left"
        );
    }

    #[test]
    fn whatever_somebody_wrote_fits_and_the_place_stays_whole() {
        let hostile = "\u{1b}[2J\u{202e}備份🔒\n".repeat(20);
        let actors = ["", "ada", "a b", hostile.as_str()];
        let names = [
            "x",
            "a-lock-with-a-name-that-is-much-too-long-for-any-screen-at-all",
        ];
        for (actor, name) in actors
            .iter()
            .flat_map(|a| names.iter().map(move |n| (a, n)))
        {
            for why in ["", "./backup.sh", hostile.as_str()] {
                let mut seen = sight(front(actor, why));
                for orphaned in [false, true] {
                    if let Some(front) = &mut seen.front {
                        front.orphaned = orphaned;
                    }
                    for room in 0..100 {
                        let shown = line(name, &seen, room);
                        assert!(!shown.contains(['\u{1b}', '\u{202e}', '\n']), "{shown:?}");
                        let tail = "next · 56s left";
                        let has_room = room >= width(tail) + width(BETWEEN);
                        assert!(!has_room || shown.ends_with(tail), "{shown:?} in {room}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_out_of_the_ordinary_is_said() {
        let mut seen = sight(front("ada", "./backup.sh"));
        let shown = |seen: &WaitView| line("backup", seen, 76);
        let change = |seen: &mut WaitView, change: &dyn Fn(&mut HolderView)| {
            seen.front.as_mut().map(change);
        };
        change(&mut seen, &|front| front.cancel_requested = true);
        assert_eq!(
            shown(&seen),
            "backup: ada since 12s, asked to stop, ./backup.sh · next · 56s left"
        );
        change(&mut seen, &|front| {
            (front.orphaned, front.work_pid) = (true, Some(4712));
            front.host = "there".to_owned();
        });
        assert_eq!(
            line("backup", &seen, 100),
            "backup: ada@there (PID 4712) since 12s, supervisor dead, ./backup.sh · next · 56s left"
        );
        seen.still = Some((8 * SECOND, true));
        assert_eq!(
            shown(&seen),
            "backup: not held, ada@there is stopped, passes in 8s · next · 56s left"
        );
        seen.still = Some((8 * SECOND, false));
        assert_eq!(
            shown(&seen),
            "backup: not held, ada@there does not act, passes in 8s · next · 56s left"
        );
        (seen.still, seen.holds) = (None, false);
        assert_eq!(
            shown(&seen),
            "backup: passes to ada@there (PID 4712), ./backup.sh · next · 56s left"
        );
        seen.front = None;
        assert_eq!(shown(&seen), "backup: about to be free · next · 56s left");
    }
}
