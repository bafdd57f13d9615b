//! The formats of other systems: each is a policy row and the record that its programs read. [`by_name`] chooses among all
//! profiles; behind it nobody knows which is used. How a record is written and removed is the file store's.

pub(crate) mod document;
#[cfg(test)]
mod fixture;
mod fleet;
mod instant;
pub(crate) mod own;
pub mod resume;
mod session;
#[cfg(all(test, feature = "yaml"))]
mod spellings;
#[cfg(feature = "yaml")]
mod sprint;

pub use fleet::Fleet;
pub use resume::OneMachine;
pub use resume::Resume;
pub use session::Session;
#[cfg(feature = "yaml")]
pub use sprint::Sprint;

use tenure_core::Policy;
use tenure_store::profile::{FolderRules, Native, Profile, Record, Signs};

/// Why there is no such profile.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProfileError {
    /// No profile has this name.
    Unknown {
        /// The name.
        name: String,
    },
    /// A setting cannot be used with this profile.
    Setting(String),
}

impl std::fmt::Display for ProfileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown { name } => write!(
                f,
                "there is no profile {name:?}; it is one of {}",
                Policy::ALL.map(|policy| policy.name).join(", ")
            ),
            Self::Setting(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for ProfileError {}

/// What a call may say about a profile beside its name. Each is for one format alone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// The name of a sprint's lock file.
    pub lock_file_name: Option<String>,
    /// The age at which a session's lock no longer counts, in milliseconds.
    pub stale_after_ms: Option<u64>,
}

/// The profile of a name.
///
/// # Errors
/// - [`ProfileError::Unknown`] if there is none.
/// - [`ProfileError::Setting`] if a setting cannot be used with it.
///
/// # Examples
/// ```
/// use tenure_engine::formats::Settings;
/// let fleet = tenure_engine::formats::by_name("fleet", &Settings::default())?;
/// assert_eq!(fleet.policy().name, "fleet");
/// # Ok::<(), tenure_engine::formats::ProfileError>(())
/// ```
pub fn by_name(name: &str, settings: &Settings) -> Result<Box<dyn Profile>, ProfileError> {
    let profile: Box<dyn Profile> = match name {
        "native" => Box::new(Native),
        "sprint" => sprint(settings)?,
        "resume" => Box::new(Resume),
        "session" => match settings.stale_after_ms {
            Some(limit_ms) => Box::new(Session::stale_after_ms(limit_ms)),
            None => Box::new(Session::default()),
        },
        "fleet" => Box::new(Fleet),
        _ => {
            return Err(ProfileError::Unknown {
                name: name.to_owned(),
            });
        }
    };
    for (given, format, what) in [
        (
            settings.lock_file_name.is_some(),
            "sprint",
            "a lock file's name",
        ),
        (settings.stale_after_ms.is_some(), "session", "an age"),
    ] {
        let name = profile.policy().name;
        if given && name != format {
            return Err(ProfileError::Setting(format!(
                "{what} can be set for locks in the format of {format}, and these are in the format \
                 of {name}"
            )));
        }
    }
    Ok(profile)
}

#[cfg(feature = "yaml")]
fn sprint(settings: &Settings) -> Result<Box<dyn Profile>, ProfileError> {
    let profile = match &settings.lock_file_name {
        Some(file) => Sprint::new(file)
            .map_err(|why| ProfileError::Setting(format!("the lock file name {file:?} {why}")))?,
        None => Sprint::default(),
    };
    Ok(Box::new(profile))
}

/// A lock whose record cannot be read might count as free, so there is no such profile here.
#[cfg(not(feature = "yaml"))]
fn sprint(_: &Settings) -> Result<Box<dyn Profile>, ProfileError> {
    Err(ProfileError::Setting(
        "the format of sprint is YAML, and this program was built without the feature `yaml`"
            .to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(feature = "yaml"))]
    #[test]
    fn without_yaml_there_is_no_profile_sprint_and_one_sentence_says_so() {
        let refused = by_name("sprint", &Settings::default()).expect_err("no sprint");
        let said = refused.to_string();
        assert!(said.contains("built without the feature `yaml`"), "{said}");
    }

    #[cfg(feature = "yaml")]
    #[test]
    fn every_row_has_its_profile() {
        for policy in Policy::ALL {
            let profile = by_name(policy.name, &Settings::default()).expect("a built-in profile");
            assert_eq!(profile.policy(), policy);
        }
    }

    #[test]
    fn an_unknown_profile_is_answered_with_those_that_there_are() {
        let error = by_name("nightli", &Settings::default()).expect_err("no such profile");
        assert_eq!(
            error.to_string(),
            "there is no profile \"nightli\"; it is one of native, sprint, resume, session, fleet"
        );
    }
}
