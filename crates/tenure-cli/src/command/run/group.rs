//! What the flags of groups mean: which locks a run takes, and how it waits for them.
//!
//! A group is a native lock whose name is written in lower case. The semantics are those of
//! concurrency groups in GitHub Actions: one runs, and of those who wait for it only the newest
//! does (`single`), or up to a hundred in turn (`max`), or any number (`fifo`).

use crate::args::RunArgs;
use crate::failure::Failure;
use crate::request;
use std::time::Duration;
use tenure::profile::Profile;
use tenure_core::{LockName, Mode, Queueing, Terms};

/// What a run wants beyond one plain lock.
pub(super) struct Wanted {
    /// The group, if there is one.
    pub(super) group: Option<LockName>,
    /// The terms of the group's claim, or else of the lock's own.
    pub(super) terms: Terms,
    /// Nobody waits, whatever else was said.
    pub(super) at_once: bool,
}

/// Reads the flags.
pub(super) fn wanted(args: &RunArgs, grace: Duration) -> Result<Wanted, Failure> {
    let group = args.group.as_deref().map(group).transpose()?;
    let newest_wins = group.is_some() || args.cancel_in_progress;
    let queue = args.queue.as_deref();
    let queueing = match queue.unwrap_or(if newest_wins { "single" } else { "fifo" }) {
        "single" => Queueing::Single,
        "max" => Queueing::Max,
        _ => Queueing::Fifo,
    };
    let at_once = queue == Some("none");
    if args.cancel_in_progress && at_once {
        return Err(Failure::bad_arguments(
            "--queue none and --cancel-in-progress contradict each other: the one does not wait, \
             and whoever is asked to stop takes a while to",
        ));
    }
    if args.cancel_in_progress && queueing != Queueing::Single {
        return Err(Failure::bad_arguments(format!(
            "--queue {} and --cancel-in-progress contradict each other: the one lets others wait \
             for the run, the other ends it for the newest",
            queue.unwrap_or("fifo")
        )));
    }
    if at_once && group.is_some() {
        return Err(Failure::bad_arguments(
            "--queue none and --group contradict each other: in a group, the newest run waits",
        ));
    }
    if at_once && (args.claiming.patience.wait.is_some()) {
        return Err(Failure::bad_arguments(
            "--queue none and --wait contradict each other",
        ));
    }
    // A run that becomes its command hears nobody, and so needs no time to end.
    let grace_ms = if args.exec {
        0
    } else {
        u64::try_from(grace.as_millis()).unwrap_or(u64::MAX)
    };
    Ok(Wanted {
        group,
        terms: Terms {
            mode: Mode::Exclusive,
            queueing,
            cancel_in_progress: args.cancel_in_progress,
            grace_ms,
            kept: None,
        },
        at_once,
    })
}

/// The lock of a group. Names of groups are anybody's text (`ci-refs/heads/main`), so what a lock's
/// name cannot have is written as `=` and two hexadecimal digits for each byte, `=` itself too.
pub(crate) fn group(name: &str) -> Result<LockName, Failure> {
    let mut lock = String::with_capacity(name.len());
    for character in name.to_lowercase().chars() {
        let first = lock.is_empty();
        let plain = character.is_ascii_alphanumeric()
            || (!first && matches!(character, '_' | '.' | '@' | '+' | '-'));
        if plain {
            lock.push(character);
        } else {
            if first {
                // A lock's name cannot begin with `=`.
                lock.push('_');
            }
            let mut buffer = [0; 4];
            for byte in character.encode_utf8(&mut buffer).bytes() {
                lock.push('=');
                for digit in [byte >> 4, byte & 15] {
                    lock.extend(char::from_digit(digit.into(), 16));
                }
            }
        }
    }
    LockName::new(lock).map_err(|why| {
        Failure::bad_arguments(format!("the group name {name:?} cannot be used: {why}"))
    })
}

/// The group whose lock this is; `None` where no group has a lock of that name.
pub(crate) fn of_lock(lock: &LockName) -> Option<String> {
    let mut bytes = Vec::new();
    let name = lock.as_str();
    // What stands before a first `=` is there because a lock's name cannot begin with one.
    let name = name.strip_prefix('_').unwrap_or(name);
    let mut rest = name.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'=' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next()?, rest.next()?];
        let digits = std::str::from_utf8(&digits).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
    }
    let name = String::from_utf8(bytes).ok()?;
    let is_its_lock = group(&name).is_ok_and(|of| of == *lock);
    is_its_lock.then_some(name)
}

/// How a claim holds, as far as its profile lets it.
pub(crate) fn mode(
    shared: bool,
    slots: Option<u32>,
    profile: &dyn Profile,
) -> Result<Mode, Failure> {
    let (flag, mode) = match (shared, slots.and_then(std::num::NonZeroU32::new)) {
        (false, None) => return Ok(Mode::Exclusive),
        (true, _) => ("--shared", Mode::Shared),
        (false, Some(slots)) => ("--slots", Mode::Slots(slots)),
    };
    if profile.record().is_some() {
        return Err(Failure::bad_arguments(format!(
            "{flag}: a lock of the {} profile has one record and so one holder; only native locks \
             can have several",
            profile.policy().name
        )));
    }
    Ok(mode)
}

/// Whether whoever holds in one mode has what another one would give.
pub(crate) fn covers(held: Mode, wanted: Mode) -> bool {
    held == Mode::Exclusive || held == wanted
}

/// The names of the locks of a run, in the one order in which everybody takes them.
pub(super) fn names(args: &RunArgs) -> Result<Vec<LockName>, Failure> {
    let given = args.name.iter().chain(&args.lock);
    let mut names = given
        .map(|name| request::name(Some(name)))
        .collect::<Result<Vec<_>, _>>()?;
    names.sort();
    let before = names.len();
    names.dedup();
    if names.len() < before {
        return Err(Failure::bad_arguments(
            "--lock: the same lock is named twice; each is taken once",
        ));
    }
    if names.is_empty() && args.group.is_none() {
        request::name(None)?;
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::{group, of_lock};
    use std::collections::HashSet;
    use tenure::tenure_core::LockName;

    #[test]
    fn a_group_may_have_any_name_and_no_two_share_a_lock() {
        let mut seen = HashSet::new();
        for (name, lock) in [
            ("Issue-42", "issue-42"),
            ("pr-7.x@a+b_c", "pr-7.x@a+b_c"),
            ("CI-refs/heads/main", "ci-refs=2fheads=2fmain"),
            ("a b", "a=20b"),
            ("a=20b", "a=3d20b"),
            ("/x", "_=2fx"),
            ("_/x", "_=5f=2fx"),
            ("Ärger", "_=c3=a4rger"),
        ] {
            let made = group(name).map(|lock| lock.to_string());
            assert_eq!(made.ok().as_deref(), Some(lock), "{name}");
            let of = LockName::new(lock).ok().and_then(|lock| of_lock(&lock));
            assert_eq!(of, Some(name.to_lowercase()), "{lock}");
            seen.insert(lock);
        }
        assert_eq!(seen.len(), 8, "no two are the same");
        for lock in [
            "Deploy", "_x", "a=", "a=2", "a=zz", "a=ff", "a=61", "a=+f", "_=41",
        ] {
            let lock = LockName::new(lock).expect("a name");
            assert_eq!(of_lock(&lock), None, "{lock} is no group's");
        }
        for name in ["", &"x".repeat(129), &"/".repeat(60)] {
            assert!(group(name).is_err(), "{name:?}");
        }
    }
}
