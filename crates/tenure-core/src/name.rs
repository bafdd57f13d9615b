//! Rules for lock names and request ids, checked before anything touches a disk.

use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;

/// The longest lock name, in bytes. With a suffix it stays below the 255 bytes that every
/// common file system takes for one file name.
pub(crate) const NAME_BYTES_MAX: usize = 128;

/// What a name of a lock is made of, in words.
const NAME_CHARACTERS: &str = "letters, digits and . _ - @ + =";

/// The name of a lock, checked: it is one file name and can never leave its folder.
///
/// Letters, digits and `. _ - @ + =`, starting with a letter, a digit or `_`, 1 to 128 bytes.
///
/// # Examples
/// ```
/// use tenure_core::LockName;
/// assert!(LockName::new("deploy-prod").is_ok());
/// assert!(LockName::new("../etc/passwd").is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(Arc<str>);

impl LockName {
    /// The longest name, in bytes.
    pub const BYTES_MAX: usize = NAME_BYTES_MAX;

    /// Checks a name.
    ///
    /// # Errors
    /// - [`NameError`] says which rule the name breaks.
    pub fn new(name: impl AsRef<str>) -> Result<Self, NameError> {
        let name = name.as_ref();
        let first = name.bytes().next().ok_or(NameError::Empty)?;
        if name.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong { bytes: name.len() });
        }
        if let Some(bad) = name.chars().find(|c| !is_name_char(*c)) {
            return Err(NameError::Character {
                character: bad,
                allowed: NAME_CHARACTERS,
            });
        }
        if !(first.is_ascii_alphanumeric() || first == b'_') {
            return Err(NameError::Start {
                character: char::from(first),
                allowed: "a letter, a digit or _",
            });
        }
        Ok(Self(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for LockName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@' | '+' | '=')
}

/// The request id of a hold: a caller that shows it may renew and release.
///
/// `[A-Za-z0-9][A-Za-z0-9_.-]{0,127}`, the same in every profile.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestId(Arc<str>);

impl RequestId {
    /// Checks a request id.
    ///
    /// # Errors
    /// - [`NameError`] says which rule the id breaks.
    pub fn new(id: impl AsRef<str>) -> Result<Self, NameError> {
        let id = id.as_ref();
        let first = id.chars().next().ok_or(NameError::Empty)?;
        if id.len() > NAME_BYTES_MAX {
            return Err(NameError::TooLong { bytes: id.len() });
        }
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        // By bytes first: each byte of any other character is a bad one. To ask all of them at once takes less time
        // than to stop at the first.
        let all_good = id.bytes().fold(true, |good, byte| good & is_good(byte));
        if !all_good && let Some(bad) = id.chars().find(|c| !u8::try_from(*c).is_ok_and(is_good)) {
            return Err(NameError::Character {
                character: bad,
                allowed: "letters, digits and . _ -",
            });
        }
        if !first.is_ascii_alphanumeric() {
            return Err(NameError::Start {
                character: first,
                allowed: "a letter or a digit",
            });
        }
        Ok(Self(id.into()))
    }

    /// An id as another program's record has it, in whatever form. It is compared and shown, and never
    /// becomes a part of a name as it stands. Cut after [`RequestId::RECORDED_MAX`] characters.
    pub fn as_recorded(id: &str) -> Self {
        Self(
            id.chars()
                .take(Self::RECORDED_MAX)
                .collect::<String>()
                .into(),
        )
    }

    /// How many characters of another program's id count.
    pub const RECORDED_MAX: usize = 256;

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The rule that a name or an id breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameError {
    /// Nothing was given.
    Empty,
    /// Longer than 128 bytes.
    TooLong {
        /// How long it is.
        bytes: usize,
    },
    /// A character outside the accepted set: a separator, a space, NUL, a control character …
    Character {
        /// The first such character.
        character: char,
        /// The characters that are accepted, in words.
        allowed: &'static str,
    },
    /// Accepted characters, but not at the start.
    Start {
        /// The first character.
        character: char,
        /// What it may begin with, in words.
        allowed: &'static str,
    },
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("it is empty"),
            Self::TooLong { bytes } => {
                write!(
                    f,
                    "it has {bytes} bytes, at most {NAME_BYTES_MAX} are allowed"
                )
            }
            Self::Character { character, allowed } => {
                write!(f, "it contains {character:?}; {allowed} are allowed")
            }
            Self::Start { character, allowed } => {
                write!(
                    f,
                    "it starts with {character:?}; it has to start with {allowed}"
                )
            }
        }
    }
}

impl core::error::Error for NameError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn names_that_could_leave_the_folder_are_refused() {
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "a\\b",
            "../a",
            "a\0b",
            "a b",
            "-x",
            ".hidden",
            "a\nb",
            "é",
            "a:b",
            "\u{1b}[31m",
        ] {
            assert!(LockName::new(bad).is_err(), "{bad:?} must be refused");
        }
        assert!(LockName::new("a".repeat(129)).is_err(), "over-long");
    }

    #[test]
    fn names_that_people_use_are_accepted() {
        for good in [
            "a",
            "deploy-prod",
            "issue-42",
            "repo@main",
            "v1.2",
            "_x",
            "A9",
            // A device's lock as uucp names it. A name that begins with a letter leads out of no folder.
            "LCK..ttyUSB0",
            "a..",
        ] {
            assert!(LockName::new(good).is_ok(), "{good:?} must be accepted");
        }
        assert!(
            LockName::new("a".repeat(128)).is_ok(),
            "128 bytes are allowed"
        );
    }

    #[test]
    fn request_ids_have_one_rule_in_every_profile() {
        for good in ["r", "req_0123456789ab", "sprint-2026-02-07-001", "9.a_b-c"] {
            assert!(RequestId::new(good).is_ok(), "{good:?} must be accepted");
        }
        for bad in ["", "_a", "-a", ".a", "a b", "a/b", "a@b"] {
            assert!(RequestId::new(bad).is_err(), "{bad:?} must be refused");
        }
        assert!(RequestId::new("a".repeat(129)).is_err(), "over-long");
    }

    #[test]
    fn an_id_of_another_program_is_taken_as_it_stands_and_cut() {
        assert_eq!(RequestId::as_recorded("a b/c").as_str(), "a b/c");
        assert_eq!(
            RequestId::as_recorded(&"é".repeat(300)).as_str(),
            "é".repeat(256)
        );
    }

    #[test]
    fn an_error_names_the_rule_of_what_was_given() {
        let name = |text: &str| LockName::new(text).expect_err("no name").to_string();
        let id = |text: &str| RequestId::new(text).expect_err("no id").to_string();
        let rows = [
            (
                name("a/b"),
                "it contains '/'; letters, digits and . _ - @ + = are allowed",
            ),
            (
                name("-a"),
                "it starts with '-'; it has to start with a letter, a digit or _",
            ),
            (
                id("a@b"),
                "it contains '@'; letters, digits and . _ - are allowed",
            ),
            (
                id("_a"),
                "it starts with '_'; it has to start with a letter or a digit",
            ),
        ];
        for (said, rule) in rows {
            assert_eq!(said, rule);
        }
    }
}
