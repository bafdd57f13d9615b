//! What an intent makes of a call: the lock that the call takes and in whose name, or that it takes none.
//!
//! Every verb with an intent asks here. The intent's word counts. The command line says what the intent
//! leaves out, and may repeat what the intent says. A contradiction is a mistake, because one of the two is
//! not what the caller meant. The caller may change only the ttl. One message names everything that is missing.
//!
//! Only the intent's own file is touched here.

use super::{ClaimWords, Intends, Takes};
use crate::args::Claiming;
use crate::args::value::{self, Typed};
use crate::exit::Exit;
use crate::failure::Failure;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use tenure_engine::intent::{self, Intent, IntentError, Mode};
use tenure_store::printed::short;

/// The key in `metadata` that is the product's own.
const OWN: &str = "tenure";

/// Reads the intent of a call, if it has one, and says what the call means.
pub(crate) fn meaning(asked: &ClaimWords<'_>) -> Result<Intends, Failure> {
    let metadata = metadata(asked.claiming)?;
    let mut intends = match &asked.claiming.intent {
        Some(file) => of_intent(asked, file)?,
        None if asked.claiming.param.is_empty() => of_flags(asked)?,
        None => {
            return Err(Failure::bad_arguments(
                "--param is a parameter of an intent, and --intent is missing",
            ));
        }
    };
    let metadata = metadata.into_iter();
    intends
        .facts
        .extend(metadata.map(|(key, value)| (format!("metadata.{key}"), value)));
    Ok(intends)
}

/// What the record says about an intent.
fn facts(name: Option<String>, version: Option<String>) -> Vec<(String, String)> {
    let facts = [("intent", name), ("intent_version", version)];
    let said = facts.into_iter().filter_map(|(key, value)| {
        let value = value.filter(|text| says(Some(text)))?;
        Some((key.to_owned(), value))
    });
    said.collect()
}

/// A call without an intent says everything itself.
fn of_flags(asked: &ClaimWords<'_>) -> Result<Intends, Failure> {
    let claiming = asked.claiming;
    let names_any = asked.name.is_some() || asked.locks;
    // A group alone is a native lock, whose record knows no intent.
    if names_any || !asked.group {
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
    Ok(Intends {
        facts: facts(
            claiming.intent_name.clone(),
            claiming.intent_version.clone(),
        ),
        ..Intends::as_typed(asked)?
    })
}

fn of_intent(asked: &ClaimWords<'_>, file: &Path) -> Result<Intends, Failure> {
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::bad_arguments(format!("{}: {error}", file.display()))
    };
    let params = pairs("--param", &asked.claiming.param)?;
    let intent = Intent::parse(&text_of(file)?).map_err(|error| wrong(&error))?;
    let may_lock = intent.mode.may_lock();
    if !may_lock && (asked.name.is_some() || asked.locks || asked.group) {
        return Err(wrong(
            &"it only observes and takes no lock; leave NAME, --lock and --group out",
        ));
    }

    let mut gaps = Gaps::default();
    // An intent that only observes needs no lock name, so it does not fail by its template.
    let lock = match intent.lock_name(&params) {
        _ if !may_lock => None,
        Ok(lock) => lock,
        Err(IntentError::ParametersMissing { parameters }) => {
            gaps.parameters(&parameters);
            None
        }
        Err(error) => return Err(wrong(&error)),
    };
    let claiming = asked.claiming;
    let typed_name = asked.name.filter(|_| gaps.missing.is_empty());
    let of_intent = lock.as_ref().map(ToString::to_string);
    gaps.settle("the lock", of_intent, typed_name.map(|name| &*name.text));
    let typed_name = claiming.intent_name.as_deref();
    let intent_name = gaps.settle("the intent's name", intent.name, typed_name);
    let typed_version = claiming.intent_version.as_deref();
    let intent_version = gaps.settle("its version", intent.version, typed_version);
    // The name of an observing intent is recorded nowhere.
    if may_lock {
        gaps.need("--intent-name NAME", intent_name.as_ref());
        gaps.need("--intent-version VERSION", intent_version.as_ref());
    }
    gaps.close().map_err(|why| wrong(&why))?;

    let name = match (lock, asked.name) {
        (Some(lock), _) => Some(lock),
        (None, Some(typed)) if says(Some(&typed.text)) => Some(typed.value(value::LOCK_NAME)?),
        (None, _) => None,
    };
    let ttl = value::given("--ttl", claiming.ttl.as_ref())?;
    Ok(Intends {
        takes: if name.is_none() && !asked.locks && !asked.group {
            Takes::Nothing {
                mode: intent.mode,
                warning: warning(intent.mode),
            }
        } else {
            Takes::Locks
        },
        name,
        ttl: ttl.or(intent.lock_ttl),
        facts: facts(intent_name, intent_version),
    })
}

/// The warning about an intent that takes no lock.
fn warning(mode: Mode) -> Option<&'static str> {
    match mode {
        Mode::Observe => None,
        Mode::Mutate => Some("Mutate intent without lock - concurrent execution possible"),
        Mode::Reconcile => Some("Reconcile intent without lock - concurrent execution possible"),
    }
}

/// What an intent and a call together leave open, gathered for one message.
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

    /// The value that counts: the intent's, or else the typed one. Two that differ are a contradiction.
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

/// Whether there is a text with more than spaces.
fn says(text: Option<&str>) -> bool {
    text.is_some_and(|text| !text.trim().is_empty())
}

/// Words as a sentence lists them.
fn listed(words: &[&str]) -> String {
    match words.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => words.concat(),
    }
}

/// The caller's own facts.
fn metadata(claiming: &Claiming) -> Result<BTreeMap<String, String>, Failure> {
    let metadata = pairs("--metadata", &claiming.metadata)?;
    if metadata.contains_key(OWN) {
        return Err(Failure::bad_arguments(format!(
            "--metadata {OWN}: this key is tenure's own"
        )));
    }
    Ok(metadata)
}

/// The values of a flag that takes `KEY=VALUE` and may be given several times.
fn pairs(
    flag: &str,
    given: &[Typed<(String, String)>],
) -> Result<BTreeMap<String, String>, Failure> {
    let mut pairs = BTreeMap::new();
    for pair in given {
        let (key, value) = pair.value(flag)?;
        if pairs.contains_key(&key) {
            return Err(Failure::bad_arguments(format!(
                "{flag} {key} is given twice"
            )));
        }
        pairs.insert(key, value);
    }
    Ok(pairs)
}

/// The text of an intent's file, at most one byte more than is allowed.
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
        Failure::new(
            exit,
            code,
            format!("--intent {}: {}", file.display(), short(&error)),
        )
    })
}
