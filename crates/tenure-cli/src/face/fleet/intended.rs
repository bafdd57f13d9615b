//! What an intent makes of a call: the lock that it takes and in whose name, or that it takes none.
//!
//! Every verb that takes an intent asks here. The intent's word counts. The command line says what the
//! intent leaves out, and may repeat what it says; to say otherwise is a mistake, for one of the two is
//! not what was meant. Only the ttl is the caller's to change. Whatever is missing is told at once.
//!
//! Nothing is touched here but the intent's own file.

use super::{Fleet, OWN};
use crate::args::Claiming;
use crate::exit::Exit;
use crate::face::Face;
use crate::failure::Failure;
use crate::request;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use tenure::config::LockDefaults;
use tenure::intent::{self, Intent, IntentError, Mode};
use tenure::tenure_core::RequestId;

/// What was typed about a lock.
pub(super) struct Typed<'a> {
    pub(super) name: Option<&'a str>,
    /// Whether other flags name locks of the profile (`--lock`).
    pub(super) locks: bool,
    /// Whether a group is named, which is no lock of the profile.
    pub(super) group: bool,
    pub(super) claiming: &'a Claiming,
}

/// What the call is to do.
pub(super) enum Meaning {
    /// It takes a lock.
    Locked {
        /// `None` only if other flags name what is taken.
        name: Option<String>,
        claiming: Box<Claiming>,
    },
    /// It takes none.
    Unlocked {
        id: RequestId,
        mode: Mode,
        warning: Option<&'static str>,
    },
}

/// Reads the intent of a call, if it has one, and says what the call means.
pub(super) fn meaning(typed: &Typed<'_>) -> Result<Meaning, Failure> {
    metadata(typed.claiming)?;
    match &typed.claiming.intent {
        Some(file) => of_intent(typed, file),
        None if typed.claiming.param.is_empty() => of_flags(typed),
        None => Err(Failure::bad_arguments(
            "--param is a parameter of an intent, and --intent is missing",
        )),
    }
}

/// The call says everything itself.
fn of_flags(typed: &Typed<'_>) -> Result<Meaning, Failure> {
    let claiming = typed.claiming;
    let names_any = typed.name.is_some() || typed.locks;
    // A group alone is a native lock, whose record knows no intent.
    if names_any || !typed.group {
        let wanted = [
            ("NAME", names_any),
            ("--intent-name", says(claiming.intent_name.as_deref())),
            ("--intent-version", says(claiming.intent_version.as_deref())),
        ];
        let missing: Vec<&str> = wanted
            .into_iter()
            .filter(|(_, is_there)| !is_there)
            .map(|(what, _)| what)
            .collect();
        if !missing.is_empty() {
            let verb = if missing.len() == 1 { "is" } else { "are" };
            return Err(Failure::bad_arguments(format!(
                "{} {verb} missing: a fleet lock has a name and the name and version of its intent; \
                 --intent FILE may say all of it",
                listed(&missing)
            )));
        }
    }
    Ok(Meaning::Locked {
        name: typed.name.map(str::to_owned),
        claiming: Box::new(claiming.clone()),
    })
}

fn of_intent(typed: &Typed<'_>, file: &Path) -> Result<Meaning, Failure> {
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::bad_arguments(format!("{}: {error}", file.display()))
    };
    let params = params(&typed.claiming.param)?;
    let intent = Intent::parse(&text_of(file)?).map_err(|error| wrong(&error))?;
    let may_lock = intent.mode.may_lock();
    if !may_lock && (typed.name.is_some() || typed.locks || typed.group) {
        return Err(wrong(
            &"it only observes and takes no lock; leave NAME, --lock and --group out",
        ));
    }

    let mut gaps = Gaps::default();
    // An intent that only looks is not held up by a template that it has no use for.
    let lock = match intent.lock_name(&params) {
        _ if !may_lock => None,
        Ok(lock) => lock.map(|lock| lock.to_string()),
        Err(IntentError::ParametersMissing { parameters }) => {
            gaps.parameters(&parameters);
            None
        }
        Err(error) => return Err(wrong(&error)),
    };
    let claiming = typed.claiming;
    let typed_name = typed.name.filter(|_| gaps.missing.is_empty());
    let name = gaps.settle("the lock", lock, typed_name);
    let typed_name = claiming.intent_name.as_deref();
    let intent_name = gaps.settle("the intent's name", intent.name, typed_name);
    let typed_version = claiming.intent_version.as_deref();
    let intent_version = gaps.settle("its version", intent.version, typed_version);
    // What an observing intent is called is written nowhere.
    if may_lock {
        gaps.need("--intent-name NAME", intent_name.as_ref());
        gaps.need("--intent-version VERSION", intent_version.as_ref());
    }
    gaps.close().map_err(|why| wrong(&why))?;

    let mut claiming = claiming.clone();
    if let (None, Some(ttl)) = (&claiming.ttl, intent.lock_ttl) {
        claiming.ttl = Some(ttl.as_secs().to_string());
    }
    if let Some(ttl_ms) = request::ttl(&claiming, &LockDefaults::default())? {
        Fleet.check_ttl(ttl_ms)?;
    }
    if name.is_none() && !typed.locks && !typed.group {
        return Ok(Meaning::Unlocked {
            id: Fleet.request_id(claiming.request_id.as_deref())?,
            mode: intent.mode,
            warning: match intent.mode {
                Mode::Observe => None,
                Mode::Mutate => Some("Mutate intent without lock - concurrent execution possible"),
                Mode::Reconcile => {
                    Some("Reconcile intent without lock - concurrent execution possible")
                }
            },
        });
    }
    claiming.intent = None;
    claiming.param.clear();
    claiming.intent_name = intent_name;
    claiming.intent_version = intent_version;
    Ok(Meaning::Locked {
        name,
        claiming: Box::new(claiming),
    })
}

/// What an intent and a call leave open between them, gathered to be told at once.
#[derive(Default)]
struct Gaps {
    /// The flags that are to be added.
    missing: Vec<String>,
    contradictions: Vec<String>,
}

impl Gaps {
    fn parameters(&mut self, names: &[String]) {
        let flags = names.iter().map(|name| format!("--param {name}=VALUE"));
        self.missing.extend(flags);
    }

    fn need(&mut self, flag: &str, said: Option<&String>) {
        if said.is_none() {
            self.missing.push(flag.to_owned());
        }
    }

    /// What counts of what the intent says and what was typed.
    fn settle(
        &mut self,
        what: &str,
        intent: Option<String>,
        typed: Option<&str>,
    ) -> Option<String> {
        let typed = typed.filter(|text| says(Some(text)));
        match (intent, typed) {
            (Some(intent), Some(typed)) if intent != typed => {
                self.contradictions
                    .push(format!("{what} is {intent:?} there and {typed:?} here"));
                None
            }
            (intent, typed) => intent.or_else(|| typed.map(str::to_owned)),
        }
    }

    fn close(self) -> Result<(), String> {
        if !self.contradictions.is_empty() {
            return Err(format!(
                "the intent and the command line say different things: {}",
                self.contradictions.join(", ")
            ));
        }
        if !self.missing.is_empty() {
            return Err(format!(
                "the intent does not say everything; add {}",
                self.missing.join(" ")
            ));
        }
        Ok(())
    }
}

/// Whether something was said, and not nothing but spaces.
pub(super) fn says(text: Option<&str>) -> bool {
    text.is_some_and(|text| !text.trim().is_empty())
}

/// Words as a sentence lists them.
fn listed(words: &[&str]) -> String {
    match words.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => words.concat(),
    }
}

fn params(given: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let mut params = BTreeMap::new();
    for text in given {
        let (key, value) = request::pair("--param", text)?;
        if params.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(Failure::bad_arguments(format!(
                "--param {key} is given twice"
            )));
        }
    }
    Ok(params)
}

/// The caller's own facts.
pub(super) fn metadata(claiming: &Claiming) -> Result<BTreeMap<String, String>, Failure> {
    let mut metadata = BTreeMap::new();
    for text in &claiming.metadata {
        let (key, value) = request::pair("--metadata", text)?;
        if key == OWN {
            return Err(Failure::bad_arguments(format!(
                "--metadata {key}: this key is tenure's own"
            )));
        }
        if metadata.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(Failure::bad_arguments(format!(
                "--metadata {key} is given twice"
            )));
        }
    }
    Ok(metadata)
}

/// The text of an intent's file, as far as one is read.
fn text_of(file: &Path) -> Result<String, Failure> {
    let read = || -> std::io::Result<String> {
        let mut text = String::new();
        let most = u64::try_from(intent::BYTES_MAX).unwrap_or(u64::MAX);
        std::fs::File::open(file)?
            .take(most.saturating_add(1))
            .read_to_string(&mut text)?;
        Ok(text)
    };
    read().map_err(|error| {
        let (exit, code) = match error.kind() {
            std::io::ErrorKind::NotFound => (Exit::NotFound, "NOT_FOUND"),
            std::io::ErrorKind::PermissionDenied => (Exit::Permission, "PERMISSION_DENIED"),
            _ => (Exit::BadArguments, "BAD_ARGUMENTS"),
        };
        Failure::new(exit, code, format!("--intent {}: {error}", file.display()))
    })
}
