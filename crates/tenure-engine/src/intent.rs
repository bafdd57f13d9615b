//! Reads a fleet intent: what it is called, whether it may lock, and which lock its parameters
//! name.
//!
//! An intent is YAML in one of two forms, with its keys below `metadata` and `spec` or at the top.
//! Only the keys that a lock needs are read; the rest is for the intent's executor. The lock is a template
//! in which `${params.X}` stands for a parameter. The result is a name or an error: no text is changed to
//! make it a name.
//!
//! An intent may leave out its name and its version, because its executor may know them. Only a text that
//! has none of the keys is no intent. Otherwise half a file would count as an intent that needs no lock.
//!
//! The caller decides where the text comes from, what is said beside it, and what the mode means for a run.

use crate::duration::{self, DurationError};
use crate::yaml;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;
use tenure_core::LockName;

/// The largest intent that is read, in bytes.
pub const BYTES_MAX: usize = 1 << 20;

/// The longest name of a fleet's lock, in bytes.
const NAME_BYTES_MAX: usize = 128;

const OPENING: &str = "${";
const PARAMETER: &str = "${params.";

/// What an intent says about its lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// Name of the intent, if it says one.
    pub name: Option<String>,
    /// Version of the intent as written, if it says one.
    pub version: Option<String>,
    /// What it may do.
    pub mode: Mode,
    /// The template of its lock's name.
    pub lock: Option<String>,
    /// The ttl of its lock: whole seconds, at least one.
    pub lock_ttl: Option<Duration>,
}

/// What an intent may do to the fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The script only looks: it must not lock, even if it names a lock, and is never blocked.
    Observe,
    /// The script changes something, and locks if it names a lock.
    #[default]
    Mutate,
    /// The script brings something to a wanted state, and should lock.
    Reconcile,
}

impl Mode {
    /// The word of the mode.
    pub fn word(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Mutate => "mutate",
            Self::Reconcile => "reconcile",
        }
    }

    /// Whether an intent of this mode may take a lock at all.
    pub fn may_lock(self) -> bool {
        match self {
            Self::Observe => false,
            Self::Mutate | Self::Reconcile => true,
        }
    }
}

/// Why an intent, or the name of its lock, cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IntentError {
    /// The text is larger than a mebibyte.
    #[error("the intent has {bytes} bytes; {BYTES_MAX} are the most")]
    TooLarge {
        /// How large it is.
        bytes: usize,
    },
    /// The text is no YAML, or a key has a value of another kind.
    #[error("the intent cannot be read: {why}")]
    Syntax {
        /// What, and where.
        why: String,
    },
    /// The text has none of the keys by which an intent is known.
    #[error("the intent says nothing: it has no name, version, mode or lock")]
    Nothing,
    /// The two places of one key say different things.
    #[error("{first} and {second} say different things")]
    Contradiction {
        /// The one place.
        first: &'static str,
        /// The other place.
        second: &'static str,
    },
    /// The mode is none.
    #[error("mode {given:?} is none; write observe, mutate or reconcile")]
    Mode {
        /// What it says.
        given: String,
    },
    /// The ttl is no duration.
    #[error("lock_ttl: {source}")]
    Ttl {
        /// Why not.
        r#source: DurationError,
    },
    /// The ttl cannot be recorded.
    #[error("lock_ttl {given:?}: a lock is leased for whole seconds, at least one")]
    TtlSeconds {
        /// What it says.
        given: String,
    },
    /// The template has something in it that is no parameter.
    #[error(
        "controls.lock has {text:?}, which is no parameter; write ${{params.NAME}} with letters, \
         digits and _ . - in NAME"
    )]
    Template {
        /// From where on it is not understood.
        text: String,
    },
    /// Parameters were not given.
    #[error("not every parameter of the lock is given; add {}", flags(.parameters))]
    ParametersMissing {
        /// The parameters, in the order of the template.
        parameters: Vec<String>,
    },
    /// A parameter is empty.
    #[error("parameter {parameter:?} is empty")]
    ParameterEmpty {
        /// The parameter.
        parameter: String,
    },
    /// A parameter brings a placeholder into the name.
    #[error("parameter {parameter:?} leaves `${{` in the name of the lock")]
    ParameterOpen {
        /// The parameter.
        parameter: String,
    },
    /// The name is empty.
    #[error("the name of the lock is empty")]
    NameEmpty,
    /// The name is too long.
    #[error(
        "the name of the lock has {bytes} bytes, at most {NAME_BYTES_MAX} are allowed: {name:?}"
    )]
    NameTooLong {
        /// The name.
        name: String,
        /// How long it is.
        bytes: usize,
    },
    /// The name has a character that no fleet lock has.
    #[error(
        "the name of the lock {name:?} contains {character:?}; lower-case letters, digits, _ and \
         - are allowed"
    )]
    NameCharacter {
        /// The name.
        name: String,
        /// The first such character.
        character: char,
    },
    /// The name begins or ends with a character that may only stand inside.
    #[error(
        "the name of the lock {name:?} begins or ends with {character:?}; a letter or a digit has \
         to stand there"
    )]
    NameEdge {
        /// The name.
        name: String,
        /// The character.
        character: char,
    },
}

/// The keys that are read, in both forms.
#[derive(Deserialize)]
struct Document {
    metadata: Option<Metadata>,
    spec: Option<Spec>,
    intent: Option<String>,
    intent_version: Option<String>,
    mode: Option<String>,
    controls: Option<Controls>,
    timeouts: Option<Timeouts>,
}

#[derive(Deserialize)]
struct Metadata {
    name: Option<String>,
    version: Option<String>,
}

#[derive(Deserialize, Default)]
struct Spec {
    mode: Option<String>,
    controls: Option<Controls>,
    timeouts: Option<Timeouts>,
}

#[derive(Deserialize)]
struct Controls {
    lock: Option<String>,
}

#[derive(Deserialize)]
struct Timeouts {
    lock_ttl: Option<String>,
}

impl Intent {
    /// Reads an intent.
    ///
    /// # Errors
    /// - [`IntentError::TooLarge`] before anything is read.
    /// - [`IntentError::Syntax`] for what is no YAML, says a key twice, or makes much of little by
    ///   aliases.
    /// - [`IntentError::Nothing`] without a name, a version, a mode and a lock.
    /// - [`IntentError::Contradiction`] if both forms are used and differ.
    /// - [`IntentError::Mode`], [`IntentError::Ttl`] and [`IntentError::TtlSeconds`] for values
    ///   that mean nothing.
    ///
    /// # Examples
    /// ```
    /// use tenure_engine::intent::Intent;
    /// let intent = Intent::parse("intent: deploy\nintent_version: 1.10\n")?;
    /// assert_eq!(intent.version.as_deref(), Some("1.10"));
    /// # Ok::<(), tenure_engine::intent::IntentError>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, IntentError> {
        if text.len() > BYTES_MAX {
            return Err(IntentError::TooLarge { bytes: text.len() });
        }
        let Document {
            metadata,
            spec,
            intent,
            intent_version,
            mode,
            controls,
            timeouts,
        } = read(text)?;
        let (name, version) = metadata.map_or((None, None), |it| (it.name, it.version));
        let spec = spec.unwrap_or_default();
        let mode = one(spec.mode, mode, "spec.mode", "mode")?;
        let lock = one(
            spec.controls.and_then(|it| it.lock),
            controls.and_then(|it| it.lock),
            "spec.controls.lock",
            "controls.lock",
        )?;
        let lock_ttl = one(
            spec.timeouts.and_then(|it| it.lock_ttl),
            timeouts.and_then(|it| it.lock_ttl),
            "spec.timeouts.lock_ttl",
            "timeouts.lock_ttl",
        )?;
        let said = |text: &String| !text.trim().is_empty();
        let name = one(name, intent, "metadata.name", "intent")?.filter(said);
        let version = one(
            version,
            intent_version,
            "metadata.version",
            "intent_version",
        )?
        .filter(said);
        let says_nothing = name.is_none() && version.is_none() && mode.is_none() && lock.is_none();
        if says_nothing && lock_ttl.is_none() {
            return Err(IntentError::Nothing);
        }
        Ok(Self {
            name,
            version,
            mode: mode
                .as_deref()
                .map(mode_of)
                .transpose()?
                .unwrap_or_default(),
            lock,
            lock_ttl: lock_ttl.as_deref().map(seconds).transpose()?,
        })
    }

    /// The name of its lock with these parameters; `None` if it has none.
    ///
    /// The intent's mode says whether the lock may be taken ([`Mode::may_lock`]).
    ///
    /// # Errors
    /// - [`IntentError::Template`] if the template is not understood.
    /// - [`IntentError::ParametersMissing`] names all that were not given, [`IntentError::ParameterEmpty`]
    ///   and [`IntentError::ParameterOpen`] the first that makes no name.
    /// - [`IntentError::NameEmpty`], [`IntentError::NameTooLong`],
    ///   [`IntentError::NameCharacter`] and [`IntentError::NameEdge`] if what comes out is no name
    ///   of a fleet's lock.
    ///
    /// # Examples
    /// ```
    /// use tenure_engine::intent::Intent;
    /// let intent = Intent::parse(
    ///     "{intent: deploy, intent_version: 1, controls: {lock: '${params.app}-lock'}}",
    /// )?;
    /// let name = intent.lock_name(&[("app".to_owned(), "shop".to_owned())].into())?;
    /// assert_eq!(name.as_ref().map(|name| name.as_str()), Some("shop-lock"));
    /// # Ok::<(), tenure_engine::intent::IntentError>(())
    /// ```
    pub fn lock_name(
        &self,
        params: &BTreeMap<String, String>,
    ) -> Result<Option<LockName>, IntentError> {
        let resolved = self.lock.as_deref().map(|lock| resolve(lock, params));
        resolved.transpose()?.map(fleet_name).transpose()
    }
}

fn read(text: &str) -> Result<Document, IntentError> {
    yaml::read(text).map_err(|why| IntentError::Syntax { why })
}

/// The value of a key that has two places; both may say the same.
fn one(
    first: Option<String>,
    second: Option<String>,
    first_key: &'static str,
    second_key: &'static str,
) -> Result<Option<String>, IntentError> {
    match (first, second) {
        (Some(first), Some(second)) if first != second => Err(IntentError::Contradiction {
            first: first_key,
            second: second_key,
        }),
        (first, second) => Ok(first.or(second)),
    }
}

fn mode_of(given: &str) -> Result<Mode, IntentError> {
    [Mode::Observe, Mode::Mutate, Mode::Reconcile]
        .into_iter()
        .find(|mode| mode.word() == given)
        .ok_or_else(|| IntentError::Mode {
            given: given.to_owned(),
        })
}

/// A ttl: a number of seconds or a duration; a record has room for whole seconds only.
fn seconds(given: &str) -> Result<Duration, IntentError> {
    let ttl = duration::parse(given).map_err(|source| IntentError::Ttl { source })?;
    if ttl.is_zero() || ttl.subsec_nanos() != 0 {
        return Err(IntentError::TtlSeconds {
            given: given.to_owned(),
        });
    }
    Ok(ttl)
}

/// How parameters are given, as a part of a sentence.
fn flags(parameters: &[String]) -> String {
    let flags: Vec<_> = parameters
        .iter()
        .map(|parameter| format!("--param {parameter}=VALUE"))
        .collect();
    flags.join(" ")
}

/// The parameters of a template that were not given, each once.
fn missing(template: &str, params: &BTreeMap<String, String>) -> Result<Vec<String>, IntentError> {
    let mut missing: Vec<String> = Vec::new();
    let mut rest = template;
    while let Some(at) = rest.find(OPENING) {
        let (parameter, after) = placeholder(rest.split_at(at).1)?;
        if !params.contains_key(parameter) && missing.iter().all(|known| known != parameter) {
            missing.push(parameter.to_owned());
        }
        rest = after;
    }
    Ok(missing)
}

/// Puts parameters into a template, once: placeholders in their values are left as they are.
fn resolve(template: &str, params: &BTreeMap<String, String>) -> Result<String, IntentError> {
    let parameters = missing(template, params)?;
    if !parameters.is_empty() {
        return Err(IntentError::ParametersMissing { parameters });
    }
    let mut resolved = String::new();
    let mut rest = template;
    let mut last: Option<&str> = None;
    loop {
        let (literal, tail) = match rest.find(OPENING) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        resolved.push_str(literal);
        // The template's own placeholders never come this far, so a parameter brought it.
        if let Some(parameter) = last.filter(|_| resolved.contains(OPENING)) {
            return Err(IntentError::ParameterOpen {
                parameter: parameter.to_owned(),
            });
        }
        if tail.is_empty() {
            return Ok(resolved);
        }
        let (parameter, after) = placeholder(tail)?;
        resolved.push_str(value(parameter, params)?);
        last = Some(parameter);
        rest = after;
    }
}

/// The parameter that a template names at its beginning, and what follows.
fn placeholder(template: &str) -> Result<(&str, &str), IntentError> {
    template
        .strip_prefix(PARAMETER)
        .and_then(|rest| rest.split_once('}'))
        .filter(|(name, _)| {
            let fits =
                |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
            !name.is_empty() && name.bytes().all(fits)
        })
        .ok_or_else(|| IntentError::Template {
            text: template.to_owned(),
        })
}

fn value<'a>(
    parameter: &str,
    params: &'a BTreeMap<String, String>,
) -> Result<&'a str, IntentError> {
    let parameter = || parameter.to_owned();
    match params.get(&parameter()).map(String::as_str) {
        None => Err(IntentError::ParametersMissing {
            parameters: vec![parameter()],
        }),
        Some("") => Err(IntentError::ParameterEmpty {
            parameter: parameter(),
        }),
        Some(value) if value.contains(OPENING) => Err(IntentError::ParameterOpen {
            parameter: parameter(),
        }),
        Some(value) => Ok(value),
    }
}

/// A name by the fleet's rule: `[a-z0-9_-]`, 1 to 128 characters, the first and the last one
/// alphanumeric.
fn fleet_name(name: String) -> Result<LockName, IntentError> {
    let inside = |c: char| is_edge(c) || matches!(c, '_' | '-');
    if let Some(character) = name.chars().find(|c| !inside(*c)) {
        return Err(IntentError::NameCharacter { name, character });
    }
    let edges = [name.chars().next(), name.chars().next_back()];
    if let Some(character) = edges.into_iter().flatten().find(|c| !is_edge(*c)) {
        return Err(IntentError::NameEdge { name, character });
    }
    let bytes = name.len();
    if bytes > NAME_BYTES_MAX {
        return Err(IntentError::NameTooLong { name, bytes });
    }
    // The rule for every profile's names is wider, but for the empty one.
    LockName::new(name).map_err(|_| IntentError::NameEmpty)
}

fn is_edge(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEAD: &str = "intent: i\nintent_version: '1'\n";

    fn parsed(text: &str) -> Intent {
        Intent::parse(text).expect("an intent")
    }

    fn refused(text: &str) -> IntentError {
        Intent::parse(text).expect_err("no intent")
    }

    fn with_lock(lock: &str) -> Intent {
        Intent {
            name: Some("i".to_owned()),
            version: Some("1".to_owned()),
            mode: Mode::Mutate,
            lock: Some(lock.to_owned()),
            lock_ttl: None,
        }
    }

    fn named(lock: &str, params: &[(&str, &str)]) -> Result<String, IntentError> {
        let params = params
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let name = with_lock(lock).lock_name(&params)?;
        Ok(name.expect("a lock").to_string())
    }

    #[test]
    fn both_forms_say_the_same() {
        let nested = parsed(
            "apiVersion: x/v1\nkind: Intent\nmetadata:\n  name: deploy\n  version: 1.10\n  \
             labels: {a: b}\nspec:\n  mode: reconcile\n  controls:\n    lock: \
             ${params.app}-${params.environment}\n    retries: 3\n  timeouts:\n    lock_ttl: 600\n    \
             step: 5m\n  steps: [{run: x}]\n",
        );
        let top = parsed(
            "intent: deploy\nintent_version: 1.10\nmode: reconcile\ncontrols:\n  lock: \
             ${params.app}-${params.environment}\ntimeouts:\n  lock_ttl: 10m\nsteps: []\n",
        );
        assert_eq!(nested, top);
        assert_eq!(
            nested,
            Intent {
                name: Some("deploy".to_owned()),
                version: Some("1.10".to_owned()),
                mode: Mode::Reconcile,
                lock: Some("${params.app}-${params.environment}".to_owned()),
                lock_ttl: Some(Duration::from_secs(600)),
            }
        );
    }

    #[test]
    fn a_version_may_be_a_number_and_keeps_its_text() {
        for (written, version) in [
            ("1", "1"),
            ("1.10", "1.10"),
            ("'2.0'", "2.0"),
            ("2026-02-07", "2026-02-07"),
            ("v1", "v1"),
            ("0x1f", "0x1f"),
        ] {
            let intent = parsed(&format!("intent: i\nintent_version: {written}\n"));
            assert_eq!(intent.version.as_deref(), Some(version), "{written}");
        }
    }

    #[test]
    fn a_name_and_a_version_may_be_left_out_but_not_everything() {
        for (text, name, version) in [
            ("intent: i\n", Some("i"), None),
            ("intent_version: 1\n", None, Some("1")),
            ("metadata: {name: '', version: 1}\n", None, Some("1")),
            ("metadata: {name: ~, version: 1}\n", None, Some("1")),
            ("intent: i\nintent_version: ' '\n", Some("i"), None),
            ("controls: {lock: x}\n", None, None),
            ("spec: {controls: {lock: x}}\n", None, None),
            ("mode: observe\n", None, None),
        ] {
            let intent = parsed(text);
            assert_eq!(intent.name.as_deref(), name, "{text:?}");
            assert_eq!(intent.version.as_deref(), version, "{text:?}");
        }
        for text in [
            "{}",
            "metadata:\n",
            "# all of it was cut off\n",
            "timeouts: {step: 5m}\n",
            "services: {web: {image: x}}\n",
            "intent: ' '\n",
        ] {
            assert_eq!(refused(text), IntentError::Nothing, "{text:?}");
        }
    }

    #[test]
    fn the_two_forms_may_be_mixed_but_not_contradict_each_other() {
        let mixed = parsed("metadata: {name: i}\nintent_version: 1\nmode: observe\n");
        assert_eq!(mixed.mode, Mode::Observe);
        let same = parsed("metadata: {name: i, version: 1}\nintent: i\nintent_version: 1\n");
        assert_eq!(same.name.as_deref(), Some("i"));
        for (text, key) in [
            ("metadata: {name: a, version: 1}\nintent: b\n", "intent"),
            ("mode: observe\nspec: {mode: mutate}\n", "spec.mode"),
            (
                "controls: {lock: a}\nspec: {controls: {lock: b}}\n",
                "spec.controls.lock",
            ),
            (
                "timeouts: {lock_ttl: 1}\nspec: {timeouts: {lock_ttl: 2}}\n",
                "spec.timeouts.lock_ttl",
            ),
        ] {
            let error = Intent::parse(text).expect_err("a contradiction");
            assert!(
                matches!(error, IntentError::Contradiction { .. }),
                "{text:?}: {error}"
            );
            assert!(error.to_string().contains(key), "{error}");
        }
    }

    #[test]
    fn a_mode_is_one_of_three_and_mutate_unless_said() {
        assert_eq!(parsed(HEAD).mode, Mode::Mutate);
        for mode in [Mode::Observe, Mode::Mutate, Mode::Reconcile] {
            let intent = parsed(&format!("{HEAD}mode: {}\n", mode.word()));
            assert_eq!(intent.mode, mode);
            assert_eq!(mode.may_lock(), mode != Mode::Observe);
        }
        for bad in ["Observe", "read", "''"] {
            let error = refused(&format!("{HEAD}spec: {{mode: {bad}}}\n"));
            assert!(matches!(error, IntentError::Mode { .. }), "{bad}: {error}");
        }
    }

    #[test]
    fn a_ttl_is_whole_seconds_or_a_duration() {
        for (written, seconds) in [
            ("900", 900),
            ("'15m'", 900),
            ("1h30m", 5_400),
            ("PT15M", 900),
            ("900.0", 900),
            ("1d", 86_400),
        ] {
            let intent = parsed(&format!("{HEAD}timeouts: {{lock_ttl: {written}}}\n"));
            assert_eq!(
                intent.lock_ttl,
                Some(Duration::from_secs(seconds)),
                "{written}"
            );
        }
        for bad in ["0", "0.5", "1500ms", "-1", "soon", "''", "9999d", "true"] {
            let error = refused(&format!("{HEAD}timeouts: {{lock_ttl: {bad}}}\n"));
            assert!(error.to_string().starts_with("lock_ttl"), "{bad}: {error}");
        }
        assert_eq!(parsed(HEAD).lock_ttl, None);
        // The contract shows the ttl alone; the command line says the rest.
        let alone = parsed("timeouts:\n  lock_ttl: 1800\n");
        assert_eq!(alone.lock_ttl, Some(Duration::from_secs(1_800)));
    }

    #[test]
    fn an_intent_without_a_lock_has_no_name_of_one() {
        for text in [
            HEAD.to_owned(),
            format!("{HEAD}controls: {{retries: 3}}\n"),
            format!("{HEAD}controls: {{lock: ~}}\nspec:\n"),
        ] {
            let name = parsed(&text).lock_name(&BTreeMap::new());
            assert_eq!(name, Ok(None), "{text}");
        }
    }

    #[test]
    fn a_template_is_filled_with_its_parameters() {
        let given = [
            ("app", "money-tracker"),
            ("environment", "production"),
            ("a.b_c-D", "x"),
        ];
        for (template, name) in [
            (
                "${params.app}-${params.environment}",
                "money-tracker-production",
            ),
            ("${params.app}", "money-tracker"),
            ("plain", "plain"),
            ("a${params.a.b_c-D}${params.a.b_c-D}z", "axxz"),
        ] {
            assert_eq!(named(template, &given).as_deref(), Ok(name), "{template}");
        }
    }

    #[test]
    fn a_parameter_that_is_missing_empty_or_open_is_named() {
        let error = |template, value| {
            let given: Vec<_> = Option::map(value, |value| ("app", value))
                .into_iter()
                .collect();
            named(template, &given).expect_err("no name")
        };
        let parameter = "app".to_owned();
        let template = "x-${params.app}";
        assert_eq!(
            error(template, None),
            IntentError::ParametersMissing {
                parameters: vec![parameter.clone()]
            }
        );
        assert_eq!(
            error(template, Some("")),
            IntentError::ParameterEmpty {
                parameter: parameter.clone()
            }
        );
        for (template, value) in [
            (template, "${params.app}"),
            (template, "a${"),
            (template, "${HOME}"),
            ("x$${params.app}", "{y}"),
            ("${params.app}{y}", "x$"),
        ] {
            let open = IntentError::ParameterOpen {
                parameter: parameter.clone(),
            };
            assert_eq!(error(template, Some(value)), open, "{template} and {value}");
        }
    }

    #[test]
    fn all_missing_parameters_are_told_at_once() {
        let template = "${params.app}-${params.env}-${params.zone}-${params.app}";
        let error = named(template, &[("env", "x")]).expect_err("no name");
        assert_eq!(
            error.to_string(),
            "not every parameter of the lock is given; add --param app=VALUE --param zone=VALUE"
        );
        let error = named("${params.app}-${env}", &[]).expect_err("no name");
        assert!(
            matches!(error, IntentError::Template { .. }),
            "what no flag can mend comes first: {error}"
        );
    }

    #[test]
    fn what_a_template_has_that_is_no_parameter_is_an_error() {
        for template in [
            "${app}",
            "${env.HOME}",
            "${params.}",
            "${params.app",
            "${params.a b}",
            "${params.${params.app}}",
            "x-${",
            "${ params.app }",
        ] {
            let error = named(template, &[("app", "x"), ("", "x"), ("a b", "x")]);
            assert!(
                matches!(error, Err(IntentError::Template { .. })),
                "{template}: {error:?}"
            );
        }
    }

    #[test]
    fn the_name_that_comes_out_is_checked_and_never_changed() {
        for (value, character) in [
            ("Money", 'M'),
            ("a b", ' '),
            ("a/b", '/'),
            ("a.b", '.'),
            ("a$b", '$'),
            ("é", 'é'),
            ("a\n", '\n'),
        ] {
            let error = named("${params.x}", &[("x", value)]).expect_err("no name");
            assert_eq!(
                error,
                IntentError::NameCharacter {
                    name: value.to_owned(),
                    character
                }
            );
            assert!(
                error.to_string().contains(&format!("{character:?}")),
                "the character is named: {error}"
            );
        }
        for (value, character) in [
            ("-a", '-'),
            ("a-", '-'),
            ("_a", '_'),
            ("a_", '_'),
            ("-", '-'),
        ] {
            let edge = IntentError::NameEdge {
                name: value.to_owned(),
                character,
            };
            assert_eq!(named("${params.x}", &[("x", value)]), Err(edge));
        }
        assert_eq!(named("", &[]), Err(IntentError::NameEmpty));
        assert!(named("${params.x}", &[("x", &"a".repeat(128))]).is_ok());
        let long = named("${params.x}", &[("x", &"a".repeat(129))]);
        assert!(
            matches!(long, Err(IntentError::NameTooLong { bytes: 129, .. })),
            "{long:?}"
        );
    }

    #[test]
    fn what_is_no_intent_is_refused() {
        for text in [
            "",
            "just text",
            "- a list\n",
            "intent: [a]\nintent_version: 1\n",
            "intent: {a: b}\nintent_version: 1\n",
            "intent: i\nintent: i\nintent_version: 1\n",
            "metadata: text\n",
            "metadata: {name: i, name: j, version: 1}\n",
            "intent: \"open\n",
            "intent: i\nintent_version: 1\n---\nintent: j\nintent_version: 1\n",
        ] {
            let error = refused(text);
            assert!(
                matches!(error, IntentError::Syntax { .. } | IntentError::Nothing),
                "{text:?}: {error}"
            );
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn an_intent_beyond_a_mebibyte_is_not_read() {
        let text = format!("{HEAD}# {}", "x".repeat(BYTES_MAX));
        assert_eq!(refused(&text), IntentError::TooLarge { bytes: text.len() });
        let rest = BYTES_MAX - HEAD.len() - 2;
        let text = format!("{HEAD}# {}", "x".repeat(rest));
        assert_eq!(text.len(), BYTES_MAX);
        assert!(Intent::parse(&text).is_ok(), "the limit itself is allowed");
    }

    #[test]
    fn aliases_are_understood_in_moderation() {
        let intent = parsed(&format!(
            "{HEAD}vars: &common {{lock: shop}}\ncontrols: *common\n"
        ));
        assert_eq!(intent.lock.as_deref(), Some("shop"));
    }

    #[test]
    fn alias_bombs_are_refused_wherever_they_stand() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let inner = vec![format!("*a{}", level - 1); 10].join(", ");
            let line = format!("a{level}: &a{level} [{inner}]\n");
            bomb.push_str(&line);
        }
        for text in [
            format!("{HEAD}{bomb}"),
            format!("{bomb}{HEAD}"),
            format!("{HEAD}{bomb}controls: *a11\n"),
            format!("{HEAD}{bomb}controls: {{lock: *a11}}\n"),
            format!(
                "{HEAD}deep: {}{}\n",
                "[".repeat(100_000),
                "]".repeat(100_000)
            ),
            format!("{HEAD}many: [{}]\n", "x,".repeat(100_000)),
        ] {
            let error = refused(&text);
            assert!(matches!(error, IntentError::Syntax { .. }), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "\\PC*") {
            let _ = Intent::parse(&text);
        }

        #[test]
        fn no_template_and_parameter_make_the_resolver_panic_or_bend_a_name(
            template in "(\\$\\{params\\.[a-c]\\}|[a-c${}._-]){0,8}",
            values in proptest::collection::btree_map("[a-c]", "[a-z${}A -]{0,3}", 0..4),
        ) {
            let named = with_lock(&template).lock_name(&values);
            if let Ok(Some(name)) = named {
                let mut expected = template.clone();
                for (parameter, value) in &values {
                    expected = expected.replace(&format!("${{params.{parameter}}}"), value);
                }
                prop_assert_eq!(name.as_str(), expected, "the values stand as they were given");
                let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
                prop_assert!(name.as_str().chars().all(fits), "{}", name);
            }
        }

        #[test]
        fn good_parameters_make_the_name_that_they_spell(
            parts in proptest::collection::vec(("[A-Za-z0-9_.-]{1,6}", "[a-z0-9]{1,8}"), 1..6),
        ) {
            let values: BTreeMap<String, String> = parts.into_iter().collect();
            let keys: Vec<_> = values.keys().map(|key| format!("${{params.{key}}}")).collect();
            let spelt: Vec<_> = values.values().cloned().collect();
            let named = with_lock(&keys.join("-")).lock_name(&values);
            let named = named.map(|name| name.map(|name| name.to_string()));
            prop_assert_eq!(named, Ok(Some(spelt.join("-"))));
        }

        #[test]
        fn one_missing_parameter_is_an_error_that_names_it(
            keys in proptest::collection::btree_set("[a-z]{1,4}", 1..5),
            lost in any::<prop::sample::Index>(),
        ) {
            let keys: Vec<_> = keys.into_iter().collect();
            let lost = lost.get(&keys);
            let places: Vec<_> = keys.iter().map(|key| format!("${{params.{key}}}")).collect();
            let template = places.concat();
            let values = keys
                .iter()
                .filter(|key| *key != lost)
                .map(|key| (key.clone(), "x".to_owned()))
                .collect();
            let named = with_lock(&template).lock_name(&values);
            prop_assert_eq!(named, Err(IntentError::ParametersMissing { parameters: vec![lost.clone()] }));
        }
    }
}
