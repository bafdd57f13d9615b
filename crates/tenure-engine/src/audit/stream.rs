//! The streams of an audit, and the names of their files.

use super::SUFFIX;

/// What lines stand together, under a bound of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stream {
    /// What broke, or could have broken, a holder's trust in its lock: takeovers, losses, requests to stop, forced ends.
    /// Of events of one instant these come first: a takeover before the grant that follows.
    Incidents,
    /// Grants, releases, and what fails in between.
    Ordinary,
    /// Callers that got nothing: refusals and skipped runs.
    Refusals,
}

impl Stream {
    /// All of them, in the order in which events of one instant are shown.
    pub const ALL: [Self; 3] = [Self::Incidents, Self::Ordinary, Self::Refusals];

    fn word(self) -> &'static str {
        match self {
            Self::Incidents => "incidents",
            Self::Ordinary => "audit",
            Self::Refusals => "refusals",
        }
    }

    /// The file of its lines. In a folder where several users write, each has a file with its number in the name, which
    /// the others cannot write.
    pub(super) fn file(self, user: Option<u32>) -> String {
        match user {
            Some(user) => format!("{}.{user}{SUFFIX}", self.word()),
            None => format!("{}{SUFFIX}", self.word()),
        }
    }
}

/// Whether a name says that another program made the file of one of a stream: by rotation, or by packing it.
pub(super) fn is_made_of_one(name: &str) -> bool {
    let is_of = |stream: Stream| {
        let rest = name.strip_prefix(stream.word());
        rest.is_some_and(|rest| rest.starts_with('.') && rest.contains(SUFFIX))
    };
    StreamFile::of(name).is_none() && Stream::ALL.into_iter().any(is_of)
}

/// A file name of a stream, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamFile<'a> {
    pub(super) stream: Stream,
    /// The user who writes it.
    pub(super) user: Option<u32>,
    /// The name of the file that is written to.
    pub(super) file: &'a str,
    /// How many rotations ago; 0 for the file that is written to.
    pub(super) age: u32,
}

impl<'a> StreamFile<'a> {
    /// `None` for the name of any other file.
    pub(super) fn of(name: &'a str) -> Option<Self> {
        let end = name.rfind(SUFFIX)? + SUFFIX.len();
        let (file, age) = name.split_at_checked(end)?;
        let age = match age {
            "" => 0,
            age => number(age.strip_prefix('.')?)?,
        };
        let begin = file.strip_suffix(SUFFIX)?;
        let (word, user) = match begin.split_once('.') {
            Some((word, user)) => (word, Some(number(user)?)),
            None => (begin, None),
        };
        let stream = Stream::ALL
            .into_iter()
            .find(|stream| stream.word() == word)?;
        Some(Self {
            stream,
            user,
            file,
            age,
        })
    }
}

/// A number as this module writes it.
fn number(text: &str) -> Option<u32> {
    text.parse()
        .ok()
        .filter(|number: &u32| number.to_string() == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_a_stream_is_told_from_every_other_by_its_name() {
        for stream in Stream::ALL {
            for user in [None, Some(0), Some(1_000)] {
                let file = stream.file(user);
                for age in [0, 1, 12] {
                    let name = match age {
                        0 => file.clone(),
                        age => format!("{file}.{age}"),
                    };
                    let named = StreamFile {
                        stream,
                        user,
                        file: &file,
                        age,
                    };
                    assert_eq!(StreamFile::of(&name), Some(named), "{name}");
                }
            }
        }
        for other in [
            "audit",
            "audit.jsonl.x",
            "audit.jsonl.01",
            "audit.jsonl-20260207",
            "audit.bob.jsonl",
            "audit.1.2.jsonl",
            "other.jsonl",
            ".audit.jsonl.00.new",
            "audit.jsonl.gz",
            "audit.+1.jsonl",
            "2026-02-07",
            "",
        ] {
            assert_eq!(StreamFile::of(other), None, "{other}");
            let is_of_one = other.starts_with("audit.");
            assert_eq!(is_made_of_one(other), is_of_one, "{other}");
        }
        assert!(!is_made_of_one("audit.jsonl.1"), "it is one itself");
    }
}
