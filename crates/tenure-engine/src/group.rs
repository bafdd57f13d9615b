//! The lock of a group: a native lock whose name is made of any text.
//!
//! What a run in a group means is the command line's affair.

use tenure_core::{LockName, NameError};
use tenure_store::printed::{HASH_DIGITS, hash, hex};
use unicode_normalization::UnicodeNormalization;

/// How long the readable beginning of a long name is. With `=.` and the hash it fits a lock's name of 128 bytes.
const BEGINNING_MAX: usize = LockName::BYTES_MAX - 2 - HASH_DIGITS;

/// The name of the lock that `tenure run --group TEXT` takes, made of any text but an empty one. The rule stays as it is:
/// - Letters are written in lower case, so `Main` and `main` are one lock, and in the composed form of Unicode (NFC), so
///   the two spellings of `é` are one.
/// - Letters and digits of ASCII stand as they are, and so do `. _ - @ +`, but not at the beginning, nor a dot after a dot.
/// - Any other character is written as `=` and two hexadecimal digits for each byte, `=` itself too. At the beginning a `_`
///   stands before it.
/// - A name that would be longer than 128 bytes is its beginning, `=.` and 32 digits of a hash of the whole text. No other
///   text gives a name with `=.` in it.
///
/// Two texts that differ in more than that have two names.
///
/// # Errors
/// - [`NameError::Empty`] if the text is empty.
///
/// # Examples
/// ```
/// # mod tenure { pub mod guard { pub use tenure_engine::group::lock_name; } }
/// use tenure::guard::lock_name;
/// assert_eq!(lock_name("CI-refs/heads/main")?.as_str(), "ci-refs=2fheads=2fmain");
/// assert_eq!(lock_name("issue-42")?.as_str(), "issue-42");
/// # Ok::<(), tenure_core::NameError>(())
/// ```
pub fn lock_name(text: &str) -> Result<LockName, NameError> {
    let mut lock = String::with_capacity(text.len());
    let text = &*folded(text);
    for character in text.chars() {
        let first = lock.is_empty();
        // A rule from before a lock's name could have two dots together.
        let is_second_dot = character == '.' && lock.ends_with('.');
        let plain = character.is_ascii_alphanumeric()
            || (!first && !is_second_dot && matches!(character, '_' | '.' | '@' | '+' | '-'));
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
                lock.push_str(&hex(&[byte]));
            }
        }
    }
    if lock.len() > LockName::BYTES_MAX {
        lock = shortened(lock, text);
    }
    LockName::new(lock)
}

/// The one spelling of a group's text: lower case, composed. A file name of macOS comes apart (NFD), and what a person types
/// does not.
pub fn folded(text: &str) -> String {
    let small = text.to_lowercase();
    if small.is_ascii() {
        return small;
    }
    small.nfc().collect()
}

#[cold]
fn shortened(mut lock: String, name: &str) -> String {
    lock.truncate(BEGINNING_MAX);
    // No `=` without its digits.
    let last = lock.rfind('=').unwrap_or_default();
    if last + 2 >= lock.len() && last > 0 {
        lock.truncate(last);
    }
    lock.push_str("=.");
    lock.push_str(&hash(name));
    lock
}

/// The group whose lock this is; `None` where no group has a lock of that name.
pub fn of_lock(lock: &LockName) -> Option<String> {
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
    let is_its_lock = lock_name(&name).is_ok_and(|of| of == *lock);
    is_its_lock.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::{lock_name as group, of_lock};
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
            ("main...dev", "main.=2e.dev"),
            ("x..", "x.=2e"),
        ] {
            let made = group(name).map(|lock| lock.to_string());
            assert_eq!(made.ok().as_deref(), Some(lock), "{name}");
            let of = LockName::new(lock).ok().and_then(|lock| of_lock(&lock));
            assert_eq!(of, Some(name.to_lowercase()), "{lock}");
            seen.insert(lock);
        }
        assert_eq!(seen.len(), 10, "no two are the same");
        // Composed and taken apart, small and large: one text.
        for spelling in ["ärger", "a\u{308}rger", "A\u{308}RGER"] {
            let made = group(spelling).map(|lock| lock.to_string());
            assert_eq!(made.ok().as_deref(), Some("_=c3=a4rger"), "{spelling:?}");
        }
        for lock in [
            "Deploy", "_x", "a=", "a=2", "a=zz", "a=ff", "a=61", "a=+f", "_=41",
        ] {
            let lock = LockName::new(lock).expect("a name");
            assert_eq!(of_lock(&lock), None, "{lock} is no group's");
        }
        assert!(group("").is_err(), "a name has a text");
    }

    #[test]
    fn a_long_group_has_a_readable_lock_of_its_own() {
        let branch = "dependabot/npm_and_yarn/frontend/types/node-and-babel-core-and-react-dom-and-typescript-eslint-7.18.0-and-vite-5.3.1-and-vitest";
        let mut seen = HashSet::new();
        for name in [
            branch,
            &format!("{branch}2"),
            &"x".repeat(129),
            &"x".repeat(130),
            &"/".repeat(60),
            &"=".repeat(400),
            &"é/".repeat(40),
        ] {
            let lock = group(name).expect("any text").to_string();
            assert!(lock.len() <= 128, "{lock}");
            assert_eq!(
                group(&name.to_uppercase()).map(|it| it.to_string()),
                Ok(lock.clone())
            );
            assert_eq!(of_lock(&LockName::new(lock.clone()).expect("a name")), None);
            seen.insert(lock);
        }
        assert_eq!(seen.len(), 7, "no two are the same");
        let lock = group(branch).expect("any text").to_string();
        assert!(
            lock.starts_with("dependabot=2fnpm_and_yarn=2ffrontend=2f"),
            "{lock}"
        );
        let longest = "x".repeat(128);
        assert_eq!(
            group(&longest).map(|it| it.to_string()),
            Ok(longest.clone())
        );
        for length in 100..140 {
            let name = format!("{}/", "x".repeat(length));
            let lock = group(&name).expect("any text").to_string();
            assert!(lock.len() <= 128 && !lock.contains("=="), "{lock}");
        }
    }
}
