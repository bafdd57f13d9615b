//! The key `profile` of `tenure.toml`: rules of the user's own, and the profile of calls that name none.
//!
//! `profile = "fleet"` chooses one. A file with own rules has the table `[profile.NAME]` for each, and chooses
//! by `default = "NAME"` in `[profile]`: TOML gives one key one kind of value.

use crate::profile::{RowConfig, Rows};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::ops::Deref;

/// The key that chooses one in the table.
const DEFAULT: &str = "default";

/// The user's own profiles, and the one that calls have which name none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profiles {
    /// The profile of calls that name none.
    pub default: Option<String>,
    /// The user's own profiles, by name.
    pub rows: Rows,
}

impl Deref for Profiles {
    type Target = Rows;

    fn deref(&self) -> &Rows {
        &self.rows
    }
}

impl<'a> IntoIterator for &'a Profiles {
    type Item = (&'a String, &'a RowConfig);
    type IntoIter = std::collections::btree_map::Iter<'a, String, RowConfig>;

    fn into_iter(self) -> Self::IntoIter {
        self.rows.iter()
    }
}

impl<'de> Deserialize<'de> for Profiles {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Either)
    }
}

struct Either;

impl<'de> Visitor<'de> for Either {
    type Value = Profiles;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a profile, or a table for each profile of your own")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Profiles, E> {
        Ok(Profiles {
            default: Some(name.to_owned()),
            rows: Rows::new(),
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Profiles, A::Error> {
        let mut profiles = Profiles::default();
        while let Some(name) = map.next_key::<String>()? {
            match map.next_value()? {
                Said::Row(row) => {
                    profiles.rows.insert(name, *row);
                }
                Said::Name(chosen) if name == DEFAULT => profiles.default = Some(chosen),
                Said::Name(_) => {
                    return Err(Error::custom(format!(
                        "{name:?} is neither a table [profile.{name}] nor `default = \"NAME\"`"
                    )));
                }
            }
        }
        Ok(profiles)
    }
}

/// One value in the table.
enum Said {
    Name(String),
    Row(Box<RowConfig>),
}

impl<'de> Deserialize<'de> for Said {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(One)
    }
}

struct One;

impl<'de> Visitor<'de> for One {
    type Value = Said;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of rules")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Said, E> {
        Ok(Said::Name(name.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Said, A::Error> {
        let row = RowConfig::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Said::Row(Box::new(row)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn read(text: &str) -> Result<Profiles, String> {
        let config = toml::from_str::<Config>(text).map_err(|error| error.message().to_owned());
        config.map(|config| config.profiles)
    }

    #[test]
    fn one_key_chooses_a_profile_or_says_rules() {
        let chosen = read("profile = \"fleet\"").expect("a name");
        assert_eq!(chosen.default.as_deref(), Some("fleet"));
        assert!(chosen.rows.is_empty());
        let own = "[profile]\ndefault = \"nightly\"\n[profile.nightly]\nheld = \"1m\"\n";
        let own = read(own).expect("both");
        assert_eq!(own.default.as_deref(), Some("nightly"));
        assert!(own.contains_key("nightly"));
        let named_default = read("[profile.default]\nheld = \"1m\"\n").expect("rules");
        assert!(named_default.contains_key("default") && named_default.default.is_none());
    }

    #[test]
    fn what_is_neither_is_named() {
        for (text, word) in [
            ("profile = 3", "the name of a profile, or a table"),
            ("[profile]\nnightly = \"x\"", "[profile.nightly]"),
            ("[profile]\nnightly = 3", "a table of rules"),
            ("[profile.nightly]\nhold = \"1m\"", "hold"),
        ] {
            let said = read(text).expect_err(text);
            assert!(said.contains(word), "{text}: {said}");
        }
    }
}
