//! The flow of a sprint's three modes. One object answers every call, and a call may stand in a document on
//! stdin. A zombie is taken over only after a yes. A release compares the session only if the caller names one.
//!
//! The core decides whether a lock is a zombie and which caller may have it, as for every profile. The words
//! stand in `dialect`, and what a call means in `request`.

mod acquire;
mod consent;

use super::call::{Call, finish, warn_of};
use super::result::RunResult;
use super::session::Session;
use crate::dialect::PersonLine;
use crate::dialect::sprint::{
    Document, LockFileView, LockInfo, SprintAnswer, Status, answers_with_the_object, failed,
    store_failed,
};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::lock::trouble;
use crate::render::{Output, Reporter, clean};
use crate::request::sprint::{self as request, Fields};
use crate::request::{AcquireArgs, CheckArgs, ReleaseArgs};
use crate::request::{Check, Place, Release};
use crate::verb::{self, DocumentArgs, Verb};
use tenure_core::{Claim, Kind, LockName, Ownership, Released, retry_after_ms};
use tenure_os::clock::Clock;
use tenure_store::Reading;

/// What a call asks for beyond its flags.
pub(super) enum ExtraInput<'a> {
    /// What stands in the document of `--input`, if there is one.
    Input(Option<&'a str>),
    /// A document that was read already, because it names the verb.
    Fields(Fields),
}

impl<'a> From<Option<&'a str>> for ExtraInput<'a> {
    fn from(input: Option<&'a str>) -> Self {
        Self::Input(input)
    }
}

/// The object itself is YAML; only JSON has an envelope.
fn with_own_yaml(mut reporter: Reporter) -> Reporter {
    if reporter.output == Output::Yaml {
        reporter.output = Output::Text;
    }
    reporter
}

/// Reads what is asked, carries it out and shows the object.
fn carry_out(
    verb: &'static str,
    reporter: Reporter,
    given: ExtraInput<'_>,
    body: impl FnOnce(&str, Fields, &mut Reporter) -> Result<SprintAnswer, Failure>,
) -> Exit {
    finish(with_own_yaml(reporter), |reporter| {
        let fields = match given {
            ExtraInput::Input(input) => request::fields(input),
            ExtraInput::Fields(fields) => Ok(fields),
        };
        let fields = fields.map_err(|failure| failed(verb, failure))?;
        let mode = fields.mode.clone().unwrap_or_else(|| verb.to_owned());
        request::check_mode(&fields, verb)
            .and_then(|()| body(&mode, fields, reporter))
            .map_err(|failure| failed(&mode, failure))?
            .said()
    })
}

pub(super) fn acquire(args: &AcquireArgs, call: Call, given: ExtraInput<'_>) -> Exit {
    let Call { around, reporter } = call.held_exit(args.claiming.patience.conflict_exit_code);
    carry_out("acquire", reporter, given, |mode, fields, reporter| {
        let args = request::acquire(args, fields)?;
        if let Some(id) = &args.claiming.request_id {
            reporter.set_request_id(&id.text);
        }
        let acquire = request::acquiring(&args, &around)?;
        warn_of(&around, reporter);
        let again = || Place::of(&args.common, &around);
        acquire::acquire(acquire, &again, mode, reporter)
    })
}

pub(super) fn release(args: &ReleaseArgs, call: Call, given: ExtraInput<'_>) -> Exit {
    let Call { around, reporter } = call;
    carry_out("release", reporter, given, |mode, fields, reporter| {
        let release = request::release(args, fields, &around)?;
        warn_of(&around, reporter);
        give_back(release, mode, reporter)
    })
}

pub(super) fn check(args: &CheckArgs, call: Call, given: ExtraInput<'_>) -> Exit {
    let Call { around, reporter } = call;
    carry_out("check", reporter, given, |mode, fields, reporter| {
        let (check, health) = request::check(args, fields, &around)?;
        warn_of(&around, reporter);
        look(check, health, mode, reporter)
    })
}

/// Reads the document of a call without a verb, and the flags as those of the verb that it names.
pub(super) fn document(args: &DocumentArgs, call: Call) -> Exit {
    let refuse = |mode: &str, failure| with_own_yaml(call.reporter).fail(&failed(mode, failure));
    let fields = match request::fields(Some(&args.input.to_string_lossy())) {
        Ok(fields) => fields,
        Err(failure) => return refuse("", failure),
    };
    let Some(mode) = fields.mode.clone() else {
        return refuse("", request::no_mode());
    };
    if !request::is_mode(&mode) {
        return refuse(&mode, request::invalid_mode(&mode));
    }
    let given = ExtraInput::Fields(fields);
    match verb::parse_as(&mode, &args.words) {
        Ok(Verb::Acquire(args)) => acquire(
            &args,
            Call::calling("acquire", &args.common, &args.calling, &args.of.path),
            given,
        ),
        Ok(Verb::Release(args)) => release(
            &args,
            Call::calling("release", &args.common, &args.calling, &args.of.path),
            given,
        ),
        Ok(Verb::Check(args)) => check(
            &args,
            Call::calling("check", &args.common, &args.calling, &args.of.path),
            given,
        ),
        Ok(_) => refuse(&mode, request::invalid_mode(&mode)),
        Err(failure) => refuse(&mode, failure),
    }
}

/// Answers a call that could not be read with the object too, unless it names another verb.
pub(super) fn misread(verb: &str, mut failure: Failure) -> Failure {
    match verb {
        "acquire" | "release" | "check" => {}
        other if answers_with_the_object(other) => {}
        other if verb::is_verb(other) => return failure,
        // A flag stands where the verb should, and none follows it.
        other if other.starts_with('-') => return failed("", failure).with_own_yaml(),
        other => failure
            .message
            .clone_from(&request::invalid_mode(other).message),
    }
    failed(verb, failure).with_own_yaml()
}

fn look(
    check: Check,
    health: bool,
    mode: &str,
    reporter: &mut Reporter,
) -> Result<SprintAnswer, Failure> {
    let name = check.name.ok_or_else(request::no_mode)?;
    let (session, id) = Session::of_caller(check.place, &name, &check.shown, reporter)?;
    let reading = read(&session, &name)?;
    let now = session.clock.now();
    let seen = LockFileView::of(&reading, session.store.policy(), &now);
    let is_own = seen
        .claim
        .as_ref()
        .is_some_and(|claim| id.is_some_and(|id| session.format.shows(claim, id)));
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
    (document.errors).extend(trouble(&session.view_of(&name, &reading, None)));
    if health {
        document.status = status.health();
    }
    let mut answer = SprintAnswer::new(status, document, session.store.place(&name));
    if status == Status::Blocked {
        answer.holder_age_ms = seen.age_ms(&now);
        let entry = reading.entry();
        answer.retry_after_ms =
            entry.map(|entry| retry_after_ms(entry, session.store.policy(), &now));
    }
    Ok(answer)
}

fn read(session: &Session, name: &LockName) -> Result<Reading, Failure> {
    session.reading(name).map_err(store_failed)
}

fn give_back(
    release: Release,
    mode: &str,
    reporter: &mut Reporter,
) -> Result<SprintAnswer, Failure> {
    let Release {
        place,
        name,
        shown,
        work,
        ..
    } = release;
    let result = RunResult::of_work(work.as_ref());
    let (session, id) = Session::of_caller(place, &name, &shown, reporter)?;
    // The lock of a supervised run is released too: its supervisor finds that it is lost and says so.
    let owns = |claim: &Claim| match id {
        Some(id) if !session.format.shows(claim, id) => Ownership::Missing,
        _ => Ownership::Shown,
    };
    let released = session.release_owned(reporter, &name, id, &result, &owns, store_failed)?;
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
            claim, by_other, ..
        } => {
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
        Released::Unreadable { .. } => {
            errors.push("the lock file could not be read and was removed".to_owned());
        }
        // A sprint's rules warn of another's hold and release it.
        Released::NotOwner { claim } | Released::Ignored { claim } => {
            return Err(Failure::new(Exit::Conflict, "NOT_OWNER", mismatch(&claim)));
        }
    }
    for error in &errors {
        reporter.warn(error.clone());
    }
    let info = absence(&session, &name, removed.as_deref(), &mut errors)?;
    session.tell(reporter, &PersonLine::Released { name: &name });
    let mut document = Document::new(Status::Released, mode, info, "Lock released successfully");
    document.errors = errors;
    let place = session.store.place(&name);
    Ok(SprintAnswer::new(Status::Released, document, place))
}

/// Looks whether the lock is gone. A session that has taken it since is no leftover. If another program has
/// made the lock file again, the answer says so.
fn absence(
    session: &Session,
    name: &LockName,
    removed: Option<&Claim>,
    errors: &mut Vec<String>,
) -> Result<LockInfo, Failure> {
    let reading = read(session, name)?;
    let now = session.clock.now();
    let seen = LockFileView::of(&reading, session.store.policy(), &now);
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
