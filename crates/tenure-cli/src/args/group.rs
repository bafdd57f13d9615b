//! The names of groups.
//!
//! A group is a native lock whose name is written in lower case. `request/run` decides what a run in a
//! group means.

use tenure_core::LockName;

/// The lock of a group. Any text may be the name of a group (`ci-refs/heads/main`). Characters that a
/// lock's name cannot have are written as `=` and two hexadecimal digits for each byte, `=` itself too.
pub(crate) fn group(name: &str) -> Result<LockName, String> {
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
    LockName::new(lock).map_err(|why| format!("{name:?} cannot be used: {why}"))
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

#[cfg(test)]
mod tests {
    use super::{group, of_lock};
    use std::collections::HashSet;
    use tenure_core::LockName;

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
