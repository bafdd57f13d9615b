//! The key `profile` of `tenure.toml`: the profile of calls that name none.
//!
//! Old files also have tables `[profile.NAME]`, each with a profile of the user's own. Such profiles are gone. Their
//! names are still read, and the built-in profile that each began as: a hold that was taken under one lies where
//! that profile keeps it. Which calls go on and which are refused, the caller decides.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use tenure_core::Policy;
use tenure_store::printed::clean_path;
use toml::{Table, Value};

/// The key that chooses a profile in a file with such tables: TOML gives one key one kind of value.
const DEFAULT: &str = "default";

/// What the key says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub(super) struct Profiles {
    /// The profile of calls that name none.
    pub(super) default: Option<String>,
    /// The profiles of the user's own, by name.
    pub(super) own: BTreeMap<String, OwnProfile>,
}

/// A profile of the user's own, as far as it is still read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OwnProfile {
    like: String,
    /// What else it said.
    keys: Vec<String>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "write the name of a profile")]
enum Written {
    Name(String),
    Tables(Table),
}

impl TryFrom<Written> for Profiles {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let mut profiles = Self::default();
        let tables = match written {
            Written::Name(name) => {
                profiles.default = Some(name);
                return Ok(profiles);
            }
            Written::Tables(tables) => tables,
        };
        for (name, said) in tables {
            match said {
                Value::Table(own) => {
                    let own =
                        OwnProfile::of(&own).map_err(|why| format!("[profile.{name:?}] {why}"))?;
                    profiles.own.insert(name, own);
                }
                Value::String(chosen) if name == DEFAULT => profiles.default = Some(chosen),
                _ => return Err(format!("{name:?} in [profile]: write profile = \"NAME\"")),
            }
        }
        Ok(profiles)
    }
}

impl OwnProfile {
    /// Refuses what no build ever took: nothing was ever held under it.
    fn of(table: &Table) -> Result<Self, String> {
        let is_built_in = |name: &&str| Policy::ALL.iter().any(|policy| policy.name == *name);
        let like = match table.get("like") {
            None => Policy::NATIVE.name,
            Some(like) => like.as_str().filter(is_built_in).ok_or_else(|| {
                format!("like: there is no profile {like:?}; write native, sprint, resume, session or fleet")
            })?,
        };
        Ok(Self {
            like: like.to_owned(),
            keys: table.keys().filter(|key| *key != "like").cloned().collect(),
        })
    }

    /// What says today what a key said.
    fn successor(&self, key: &str) -> Option<&'static str> {
        match (key, self.like.as_str()) {
            ("held", _) => Some("wait in [lock.\"*\"]"),
            ("ttl" | "detached_ttl", _) | ("stale_silence", "native") => {
                Some("ttl in [lock.\"*\"]")
            }
            ("stale_after", "native") => Some("max_age in [lock.\"*\"]"),
            ("stale_silence", "session") => Some("--stale-after"),
            _ => None,
        }
    }
}

/// The section of a profile of the user's own. Its text says that such profiles are gone, and what to write instead.
#[derive(Debug, Clone, Copy)]
pub struct OwnSection<'a> {
    pub(super) file: &'a Path,
    pub(super) name: &'a str,
    pub(super) profile: &'a OwnProfile,
}

impl<'a> OwnSection<'a> {
    /// The name of the built-in profile that it began as, and where its locks are.
    pub fn like(&self) -> &'a str {
        &self.profile.like
    }
}

impl fmt::Display for OwnSection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, profile, .. } = self;
        let file = clean_path(self.file);
        write!(
            f,
            "{file}: [profile.{name:?}]: profiles of your own are gone; use the profile {:?} instead",
            profile.like
        )?;
        let mut before = ", with";
        let mut without = Vec::new();
        for key in &profile.keys {
            match profile.successor(key) {
                Some(successor) => {
                    write!(f, "{before} {successor} for {key}")?;
                    before = ",";
                }
                None => without.push(format!("{key:?}")),
            }
        }
        if without.is_empty() {
            return Ok(());
        }
        write!(f, "; nothing replaces {}", without.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use std::path::Path;

    fn read(text: &str) -> Config {
        Config::parse(text, Path::new("/p/tenure.toml")).expect(text)
    }

    #[test]
    fn a_file_chooses_a_profile_with_or_without_sections_of_old() {
        for text in [
            "profile = \"fleet\"",
            "[profile]\ndefault = \"fleet\"",
            "[profile]\ndefault = \"fleet\"\n[profile.nightly]\nheld = \"1m\"\n",
        ] {
            assert_eq!(read(text).default_profile(), Some("fleet"), "{text}");
        }
        let named_default = read("[profile.default]\nheld = \"1m\"\n");
        assert_eq!(named_default.default_profile(), None);
        assert!(named_default.own_profile("default").is_some());
    }

    #[test]
    fn what_chooses_no_profile_is_refused() {
        for text in [
            "profile = 3",
            "[profile]\nnightly = \"x\"",
            "[profile]\nx = 3",
            "[profile.x]\nlike = \"nope\"",
            "[profile.x]\nlike = 3",
        ] {
            let said = Config::parse(text, Path::new("/p/tenure.toml"));
            let said = said.expect_err(text).to_string();
            assert!(said.contains("rofile"), "{text}: {said}");
        }
    }

    #[test]
    fn a_section_of_old_says_what_to_write_instead() {
        for (section, like, said) in [
            ("", "native", "use the profile \"native\" instead"),
            (
                "held = \"1m\"\nttl = \"45s\"\nforce = \"never\"\nstale_after = \"2h\"\n",
                "native",
                "use the profile \"native\" instead, with wait in [lock.\"*\"] for held, max_age in \
                 [lock.\"*\"] for stale_after, ttl in [lock.\"*\"] for ttl; nothing replaces \"force\"",
            ),
            (
                "like = \"session\"\nstale_silence = \"1h\"\nstale = 3\nown_again = \"yours\"\n",
                "session",
                "use the profile \"session\" instead, with --stale-after for stale_silence; nothing \
                 replaces \"own_again\", \"stale\"",
            ),
            (
                "like = \"sprint\"\nstale_after = \"2h\"\n",
                "sprint",
                "use the profile \"sprint\" instead; nothing replaces \"stale_after\"",
            ),
        ] {
            let config = read(&format!("[profile.mine]\n{section}"));
            let own = config.own_profile("mine").expect("a section");
            assert_eq!(own.like(), like);
            assert_eq!(
                own.to_string(),
                format!(
                    "/p/tenure.toml: [profile.\"mine\"]: profiles of your own are gone; {said}"
                )
            );
        }
    }
}
