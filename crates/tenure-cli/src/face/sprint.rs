//! How the sprint profile speaks: one status object on stdout, whatever happened, with the words,
//! the questions and the exit codes that a sprint's workflow knows.
//!
//! Whether a lock is a zombie and who may have it is decided by the core, as for every profile.

mod acquire;
mod consent;
mod document;
mod fields;
mod ignored;
mod input;
#[cfg_attr(windows, path = "sprint/no_prompt.rs")]
mod prompt;

use super::{Face, TakenOver};
use crate::args::{self, AcquireArgs, CheckArgs, DocumentArgs, ReleaseArgs, Verb};
use crate::command::result::RunResult;
use crate::command::{Call, Ended, Session};
use crate::exit::Exit;
use crate::failure::{Failure, Retry, object};
use crate::render::lock::LockView;
use crate::render::{Output, Surface, clean};
use crate::request::{self, Asked, Intends, Surroundings};
use document::{Document, LockInfo, Seen, Status, because};
use tenure::clock::Clock;
use tenure::store::{Reading, StoreError, Verbs};
use tenure_core::{Claim, Kind, LockName, Ownership, Reason, Released, Takeover, retry_after_ms};

pub(super) struct Sprint;

/// What is told, and how the call ends.
struct Answer {
    status: Status,
    document: Document,
    /// The envelope's code, where the status is no success.
    code: &'static str,
    retry_after_ms: Option<u64>,
    holder_age_ms: Option<u64>,
    lock_file: String,
}

impl Answer {
    fn new(status: Status, document: Document, lock_file: String) -> Self {
        let code = match status {
            Status::ZombieDetected => "LOCK_STALE",
            _ => "LOCK_HELD",
        };
        Self {
            status,
            document,
            code,
            retry_after_ms: None,
            holder_age_ms: None,
            lock_file,
        }
    }

    fn show(self, surface: Surface) -> Exit {
        let json = self.document.json();
        if self.status.exit() == Exit::Success {
            return surface.succeed(self.document.yaml().trim_end(), &json);
        }
        let mut failure =
            Failure::new(self.status.exit(), self.code, self.document.message.clone())
                .with_text(self.document.yaml().trim_end())
                .with_context(object(json));
        failure.is_answer = true;
        failure.retry = self.retry_after_ms.map(|after_ms| Retry {
            after_ms,
            strategy: "linear_backoff",
        });
        if self.code == "LOCK_HELD" {
            failure.phase = Some(if self.document.mode == "acquire" {
                "acquire"
            } else {
                "check"
            });
            failure.detail = Some(self.detail());
        }
        surface.fail(&failure)
    }

    /// The same facts as every refusal has them.
    fn detail(&self) -> String {
        let info = &self.document.lock_info;
        let unknown = || "unknown".to_owned();
        format!(
            "lock_file={} holder_pid={} holder_age_ms={}",
            self.lock_file,
            info.pid.map_or_else(unknown, |pid| pid.to_string()),
            self.holder_age_ms
                .map_or_else(unknown, |age| age.to_string()),
        )
    }
}

/// Shows a failure as the object that every call answers with.
fn show_failure(surface: Surface, mode: &str, failure: Failure) -> Exit {
    surface.fail(&as_document(mode, failure))
}

fn as_document(mode: &str, mut failure: Failure) -> Failure {
    // 4 is the answer that somebody else has the lock, and this is none.
    if failure.exit == Exit::Precondition {
        failure.exit = Exit::StoreUnavailable;
    }
    let document = Document::failed(mode, &failure);
    failure.text = Some(document.yaml().trim_end().to_owned());
    failure.context = object(document.json());
    failure.is_answer = true;
    failure
}

/// What a failed store is, in the words that users know.
fn store_failed(error: &StoreError) -> Failure {
    let said = error.to_string();
    let reading = match error {
        StoreError::Permission { doing, .. }
        | StoreError::Denied { doing, .. }
        | StoreError::Io { doing, .. } => doing.starts_with("reading"),
        StoreError::Unsafe { .. } | StoreError::Unreadable { .. } => true,
        _ => false,
    };
    let message = match error {
        _ if reading => format!("Cannot read lock file: {said}"),
        StoreError::Permission { .. } => format!("Project root not accessible: {said}"),
        _ => said,
    };
    let (exit, code) = match error {
        StoreError::Permission { .. } | StoreError::Denied { .. } => {
            (Exit::Permission, "PERMISSION_DENIED")
        }
        StoreError::Unsafe { .. } => (Exit::Permission, "UNSAFE_PLACE"),
        StoreError::Unreadable { .. } => (Exit::StoreUnavailable, "LOCK_UNREADABLE"),
        _ => (Exit::StoreUnavailable, "STORE_UNAVAILABLE"),
    };
    Failure::new(exit, code, clean(&message))
}

/// What a call asks for beyond its flags.
enum Given<'a> {
    /// What stands in the document of `--input`, if there is one.
    Input(Option<&'a str>),
    /// A document that was read already, for it has the verb.
    Fields(fields::Fields),
}

impl Given<'_> {
    fn fields(self) -> Result<fields::Fields, Failure> {
        match self {
            Self::Input(input) => input::fields(input),
            Self::Fields(fields) => Ok(fields),
        }
    }
}

/// The object itself is YAML; only JSON has an envelope.
fn with_own_yaml(mut surface: Surface) -> Surface {
    if surface.output == Output::Yaml {
        surface.output = Output::Text;
    }
    surface
}

/// Reads what is asked, carries it out and shows the object.
fn carry_out(
    verb: &'static str,
    surface: Surface,
    given: Given<'_>,
    body: impl FnOnce(&str, fields::Fields, &mut Surface) -> Result<Answer, Failure>,
) -> Exit {
    let mut surface = with_own_yaml(surface);
    let fields = match given.fields() {
        Ok(fields) => fields,
        Err(failure) => return show_failure(surface, verb, failure),
    };
    let mode = fields.mode.clone().unwrap_or_else(|| verb.to_owned());
    let answer = input::check_mode(&fields, verb).and_then(|()| body(&mode, fields, &mut surface));
    match answer {
        Ok(answer) => answer.show(surface),
        Err(failure) => show_failure(surface, &mode, failure),
    }
}

fn carry_out_acquire(args: &AcquireArgs, call: Call, given: Given<'_>) -> Exit {
    let Call { around, surface } = call.held_exit(args.claiming.patience.conflict_exit_code);
    carry_out("acquire", surface, given, |mode, fields, surface| {
        let args = input::acquire(args, fields)?;
        if let Some(id) = &args.claiming.request_id {
            surface.set_request_id(&id.text);
        }
        let acquire = input::acquiring(&args, &around)?;
        let again = || request::Place::of(&args.common, &around);
        acquire::acquire(acquire, &again, mode, surface)
    })
}

fn carry_out_release(args: &ReleaseArgs, call: Call, given: Given<'_>) -> Exit {
    let Call { around, surface } = call;
    carry_out("release", surface, given, |mode, fields, surface| {
        release(input::release(args, fields, &around)?, mode, surface)
    })
}

fn carry_out_check(args: &CheckArgs, call: Call, given: Given<'_>) -> Exit {
    let Call { around, surface } = call;
    carry_out("check", surface, given, |mode, fields, surface| {
        let (check, health) = input::check(args, fields, &around)?;
        self::check(check, health, mode, surface)
    })
}

/// Reads the document of a call without a verb, and the flags as those of the verb that it names.
fn carry_out_document(args: &DocumentArgs, call: Call) -> Exit {
    let refuse =
        |mode: &str, failure: Failure| show_failure(with_own_yaml(call.surface), mode, failure);
    let fields = match input::fields(Some(&args.input.to_string_lossy())) {
        Ok(fields) => fields,
        Err(failure) => return refuse("", failure),
    };
    let Some(mode) = fields.mode.clone() else {
        return refuse("", input::no_mode());
    };
    if !input::is_mode(&mode) {
        return refuse(&mode, input::invalid_mode(&mode));
    }
    let given = Given::Fields(fields);
    match args::parse_as(&mode, &args.words) {
        Ok(Verb::Acquire(args)) => {
            carry_out_acquire(&args, Call::of("acquire", &args.common), given)
        }
        Ok(Verb::Release(args)) => {
            carry_out_release(&args, Call::of("release", &args.common), given)
        }
        Ok(Verb::Check(args)) => carry_out_check(&args, Call::of("check", &args.common), given),
        Ok(_) => refuse(&mode, input::invalid_mode(&mode)),
        Err(failure) => refuse(&mode, failure),
    }
}

impl Face for Sprint {
    fn default_name(&self) -> Option<&'static str> {
        Some(input::NAME)
    }

    fn misread(&self, verb: &str, mut failure: Failure) -> Failure {
        match verb {
            "acquire" | "release" | "check" => {}
            other if args::is_verb(other) => return failure,
            other if other.starts_with('-') => {}
            other => failure.message = input::invalid_mode(other).message,
        }
        as_document(verb, failure).with_own_yaml()
    }

    fn is_first_use(&self, session: &Session, name: &LockName) -> bool {
        ignored::is_first_use(session, name)
    }

    fn on_first_use(&self, surface: &mut Surface, session: &Session, name: &LockName) {
        ignored::tell(surface, session, name);
    }

    fn document(&self, args: &DocumentArgs, call: Call) -> Exit {
        carry_out_document(args, call)
    }

    fn acquire(&self, args: &AcquireArgs, call: Call) -> Exit {
        carry_out_acquire(args, call, Given::Input(args.input.as_deref()))
    }

    fn release(&self, args: &ReleaseArgs, call: Call) -> Exit {
        carry_out_release(args, call, Given::Input(args.input.as_deref()))
    }

    fn check(&self, args: &CheckArgs, call: Call) -> Exit {
        carry_out_check(args, call, Given::Input(args.input.as_deref()))
    }

    fn intends(&self, asked: &Asked<'_>, _: &Surroundings) -> Result<Intends, Failure> {
        let mut intends = Intends::as_typed(asked)?;
        let epic_spec = asked.claiming.epic_spec.clone();
        let fact = epic_spec.map(|epic_spec| ("epic_spec".to_owned(), epic_spec));
        intends.facts.extend(fact);
        Ok(intends)
    }

    fn took_over(&self, taken: &TakenOver<'_>) -> String {
        let whose = taken.previous.map_or_else(
            || "that cannot be read".to_owned(),
            |claim| {
                Seen {
                    standing: tenure_core::Standing::Unknown,
                    claim: Some(claim.clone()),
                    alive: None,
                    unreadable: None,
                }
                .whose()
            },
        );
        match taken.why {
            Takeover::Stale(reason) => {
                format!("Overriding zombie lock {whose}: {}", because(reason))
            }
            Takeover::Corrupt => format!("Overriding zombie lock {whose}"),
            Takeover::Active => format!(
                "OVERRIDING ACTIVE LOCK {whose}; state may be corrupted until that session notices"
            ),
        }
    }

    fn refused(&self, mut failure: Failure, view: &LockView, reason: Reason) -> Failure {
        // Whoever is next and stopped holds nothing yet, and this sentence speaks of a hold.
        let is_held = reason == Reason::Held && view.standstill.is_none();
        let Some(holder) = view.holder.as_ref().filter(|_| is_held) else {
            return failure;
        };
        failure.text = Some(format!(
            "Sprint already running (PID: {}, session: {}, started: {})",
            holder
                .pid
                .map_or_else(|| "unknown".to_owned(), |pid| pid.to_string()),
            clean(&holder.request_id),
            holder.since,
        ));
        failure
    }
}

fn check(
    check: request::Check,
    health: bool,
    mode: &str,
    surface: &mut Surface,
) -> Result<Answer, Failure> {
    let session = Session::open(check.place)?;
    let name = check.name.ok_or_else(input::no_mode)?;
    let id = session.shown(&name, &check.shown)?;
    surface.set_request_id(id.unwrap_or_default());
    let reading = read(&session, &name)?;
    let now = session.clock.now();
    let seen = Seen::of(&reading, session.store.policy(), &now);
    let is_own = seen
        .claim
        .as_ref()
        .is_some_and(|claim| id.is_some_and(|id| session.face.shows(claim, id)));
    let (status, message) = if seen.is_free() {
        (Status::Clean, "There is no sprint lock".to_owned())
    } else if seen.is_zombie() {
        (Status::ZombieDetected, seen.zombie())
    } else if is_own {
        let message = format!("The lock is held by this session {}", seen.whose());
        (Status::Acquired, message)
    } else {
        (Status::Blocked, seen.running())
    };
    let mut document = Document::new(status, mode, seen.info(&now), message);
    document.errors = seen.warnings();
    if health {
        document.status = status.health();
    }
    let mut answer = Answer::new(status, document, session.store.place(&name));
    if status == Status::Blocked {
        answer.holder_age_ms = seen.age_ms(&now);
        let entry = reading.entry();
        answer.retry_after_ms =
            entry.map(|entry| retry_after_ms(entry, session.store.policy(), &now));
    }
    Ok(answer)
}

fn read(session: &Session, name: &LockName) -> Result<Reading, Failure> {
    let reading = session.reading(name);
    reading.map_err(|error| store_failed(&error))
}

fn release(
    release: request::Release,
    mode: &str,
    surface: &mut Surface,
) -> Result<Answer, Failure> {
    let request::Release {
        place,
        name,
        shown,
        work,
    } = release;
    let result = RunResult::of_work(work.as_ref());
    let session = Session::open(place)?;
    let id = session.shown(&name, &shown)?;
    surface.set_request_id(id.unwrap_or_default());
    // A supervised run's lock goes as well: its supervisor finds that it is lost and says so.
    let owns = |claim: &Claim| match id {
        Some(id) if !session.face.shows(claim, id) => Ownership::Missing,
        _ => Ownership::Shown,
    };
    let released = session
        .store
        .release_owned(&name, &owns, &session.clock.now());
    let released = match released {
        Ok(released) => released,
        Err(error) => {
            session.record_failed_release(surface, &name, id, &error)?;
            return Err(store_failed(&error));
        }
    };
    let mismatch = |claim: &Claim| {
        format!(
            "Lock session mismatch (expected: {}, actual: {})",
            id.unwrap_or("none"),
            clean(claim.holder.request_id.as_str())
        )
    };
    let mut errors = Vec::new();
    let mut removed = None;
    match released {
        Released::Done {
            claim,
            by_other,
            held_ms,
        } => {
            let ended = Ended {
                name: &name,
                claim: &claim,
                held_ms,
                by_other,
            };
            session.record_release(surface, id, &ended, &result)?;
            if by_other {
                errors.push(mismatch(&claim));
            }
            match (claim.holder.fact("unjudged"), claim.kind) {
                (Some(why), _) => errors.push(format!(
                    "whether the removed lock was active could not be judged: {}",
                    clean(why)
                )),
                (None, Kind::Sealed) => {
                    errors.push("the removed lock had a lock_version above 1".to_owned());
                }
                (None, Kind::Kernel | Kind::Detached | Kind::Foreign) => {}
            }
            removed = Some(claim);
        }
        Released::Absent => {}
        Released::Unreadable { record } => {
            session.record_unreadable(surface, &name, id, &record)?;
            errors.push("the lock file could not be read and was removed".to_owned());
        }
        // Only a profile of the user's own can want that.
        Released::NotOwner { claim } | Released::Ignored { claim } => {
            return Err(Failure::new(Exit::Conflict, "NOT_OWNER", mismatch(&claim)));
        }
    }
    for error in &errors {
        surface.warn(error.clone());
    }
    let info = absence(&session, &name, removed.as_deref(), &mut errors)?;
    session.face.on_released(surface, &name);
    let mut document = Document::new(Status::Released, mode, info, "Lock released successfully");
    document.errors = errors;
    let place = session.store.place(&name);
    Ok(Answer::new(Status::Released, document, place))
}

/// Looks whether the lock is gone. Whoever has taken it since is no leftover, but a lock file of
/// another program's is worth a word.
fn absence(
    session: &Session,
    name: &LockName,
    removed: Option<&Claim>,
    errors: &mut Vec<String>,
) -> Result<LockInfo, Failure> {
    let reading = read(session, name)?;
    let now = session.clock.now();
    let seen = Seen::of(&reading, session.store.policy(), &now);
    if let Some(claim) = &seen.claim {
        let hold = consent::Hold::of(claim);
        if removed.is_some_and(|removed| consent::Hold::of(removed) == hold) {
            return Err(Failure::new(
                Exit::StoreUnavailable,
                "STORE_UNAVAILABLE",
                format!("the lock file stands there still {}", seen.whose()),
            ));
        }
        if matches!(claim.kind, Kind::Foreign | Kind::Sealed) {
            errors.push(format!(
                "another program has created the lock file again {}",
                seen.whose()
            ));
        }
    } else if seen.unreadable.is_some() {
        errors.push("another program has created the lock file again".to_owned());
    }
    Ok(seen.info(&now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_failure_is_the_object_too() {
        let failure = as_document("check", Failure::bad_arguments("project_root required"));
        assert_eq!(failure.exit, Exit::BadArguments);
        assert!(failure.is_answer, "on stdout");
        let context = Value::Object(failure.context);
        assert_eq!(context["status"], "failure");
        assert_eq!(context["mode"], "check");
        assert_eq!(context["lock_info"]["exists"], Value::Null);
        assert_eq!(context["errors"][0], "project_root required");
    }
}
