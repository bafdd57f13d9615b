//! How the sprint profile speaks: one status object on stdout, whatever happened, with the words and the
//! exit codes that a sprint's workflow knows.

mod object;

pub(crate) use object::{Document, LockFileView, LockInfo, Status, alive, because};

use super::{CallRefusal, CallResult, Dialect, PersonLine, own_line};
use crate::exit::Exit;
use crate::failure::{Failure, Retry, object};
use crate::render::clean;
use serde_json::Value;
use tenure_core::{Claim, Life, Standing, Takeover};
use tenure_store::StoreError;

pub(crate) struct Sprint;

/// The verbs beside the three modes that answer with the object, too. The envelope of each is tenure's own.
const VERBS: [&str; 4] = ["run", "heartbeat", "force-release", "wait"];

impl Dialect for Sprint {
    fn answer(&self, done: &CallResult<'_>) -> Option<String> {
        let free = || LockInfo {
            exists: Some(false),
            ..LockInfo::default()
        };
        let none = "There is no sprint lock";
        let document = match done {
            CallResult::ForceReleased { .. } => Document::new(
                Status::Released,
                "force-release",
                free(),
                "Lock released successfully",
            ),
            CallResult::Absent { .. } => {
                Document::new(Status::Released, "force-release", free(), none)
            }
            CallResult::Free { .. } => Document::new(Status::Clean, "wait", free(), none),
            CallResult::Renewed { claim, now, .. } => {
                let alive = claim.holder.process.map(|_| true);
                let standing = Standing::Held(Life::Detached);
                let seen = LockFileView::claimed(standing, (*claim).clone(), alive);
                let message = format!(
                    "The lock is held by this session {}; a heartbeat makes it last no longer: it lasts until its \
                     process ends, at most 24 hours",
                    seen.whose()
                );
                Document::new(Status::Acquired, "heartbeat", seen.info(now), message)
            }
            _ => return None,
        };
        Some(document.yaml().trim_end().to_owned())
    }

    fn document(&self, verb: &str) -> Option<crate::render::FailureDocument> {
        answers_with_the_object(verb).then_some(refused)
    }

    fn line(&self, about: &PersonLine<'_>) -> Option<String> {
        match about {
            PersonLine::TookOver { why, previous, .. } => Some(took_over(*why, *previous)),
            other => own_line(other),
        }
    }

    fn refusal(&self, mut failure: Failure, why: &CallRefusal<'_>) -> Failure {
        let Some((_, holder)) = why.holder() else {
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

/// Whether a verb beside the three modes answers with the object.
pub(crate) fn answers_with_the_object(verb: &str) -> bool {
    VERBS.contains(&verb)
}

/// The object of such a verb that was refused or failed.
fn refused(verb: &str, _: Option<&str>, failure: &Failure) -> String {
    let status = match &*failure.code {
        "LOCK_HELD" | "QUEUE_FULL" | "CONFIRMATION_REQUIRED" | "NOT_OWNER" => Status::Blocked,
        "LOCK_STALE" | "LOCK_UNREADABLE" => Status::ZombieDetected,
        _ => Status::Failure,
    };
    let message = failure.text.as_ref().unwrap_or(&failure.message);
    let info = LockInfo::of_view(&failure.context);
    let mut document = Document::new(status, verb, info, message.as_str());
    if status == Status::Failure {
        document.errors.push(message.clone());
    }
    document.yaml().trim_end().to_owned()
}

fn took_over(why: Takeover, previous: Option<&Claim>) -> String {
    let whose = previous.map_or_else(
        || "that cannot be read".to_owned(),
        |claim| LockFileView::claimed(Standing::Unknown, claim.clone(), None).whose(),
    );
    match why {
        Takeover::Stale(reason) => {
            format!("Overriding zombie lock {whose}: {}", because(reason))
        }
        Takeover::Corrupt => format!("Overriding zombie lock {whose}"),
        Takeover::Active => format!(
            "OVERRIDING ACTIVE LOCK {whose}; state may be corrupted until that session notices"
        ),
    }
}

/// The object of a call, and how the call ends.
pub(crate) struct SprintAnswer {
    pub(crate) status: Status,
    pub(crate) document: Document,
    /// The envelope's code, if the status is no success.
    pub(crate) code: &'static str,
    pub(crate) retry_after_ms: Option<u64>,
    pub(crate) holder_age_ms: Option<u64>,
    pub(crate) lock_file: String,
}

impl SprintAnswer {
    pub(crate) fn new(status: Status, document: Document, lock_file: String) -> Self {
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

    /// The answer as a success, or as a failure whose text is the object too.
    pub(crate) fn said(self) -> Result<(String, Value), Failure> {
        let (json, yaml) = (self.document.json(), self.document.yaml());
        let yaml = yaml.trim_end().to_owned();
        if self.status.exit() == Exit::Success {
            return Ok((yaml, json));
        }
        let message = self.document.message.clone();
        let mut failure = Failure::new(self.status.exit(), self.code, message)
            .with_text(yaml)
            .with_context(json);
        failure.is_answer = true;
        failure.retry = self.retry_after_ms.map(Retry::linear);
        if self.code == "LOCK_HELD" {
            failure.phase = Some(if self.document.mode == "acquire" {
                "acquire"
            } else {
                "check"
            });
            failure.detail = Some(self.detail());
        }
        Err(failure)
    }

    /// The facts of the answer, in the form of every refusal.
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

/// The object of a call that could not be carried out.
pub(crate) fn failed(mode: &str, mut failure: Failure) -> Failure {
    // Exit 4 says that another session has the lock, and this failure does not.
    if failure.exit == Exit::Precondition {
        failure.exit = Exit::StoreUnavailable;
    }
    let document = Document::failed(mode, &failure);
    failure.text = Some(document.yaml().trim_end().to_owned());
    failure.context = object(document.json());
    failure.is_answer = true;
    failure
}

/// Turns an error of the store into a failure, in the words that users know.
pub(crate) fn store_failed(error: StoreError) -> Failure {
    let reading = match &error {
        StoreError::Permission { doing, .. }
        | StoreError::Denied { doing, .. }
        | StoreError::Io { doing, .. } => doing.starts_with("reading"),
        StoreError::Unsafe { .. } | StoreError::Unreadable { .. } => true,
        _ => false,
    };
    let is_permission = matches!(error, StoreError::Permission { .. });
    let usual = Failure::from(error);
    let message = match usual.message.as_str() {
        said if reading => format!("Cannot read lock file: {said}"),
        said if is_permission => format!("Project root not accessible: {said}"),
        said => said.to_owned(),
    };
    // The contract tells only these apart.
    match &*usual.code {
        "PERMISSION_DENIED" | "UNSAFE_PLACE" | "LOCK_UNREADABLE" => {
            Failure::new(usual.exit, &*usual.code, clean(&message))
        }
        _ => Failure::new(Exit::StoreUnavailable, "STORE_UNAVAILABLE", clean(&message)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_failure_is_the_object_too() {
        let failure = failed("check", Failure::bad_arguments("project_root required"));
        assert_eq!(failure.exit, Exit::BadArguments);
        assert!(failure.is_answer, "on stdout");
        let context = Value::Object(failure.context.clone());
        assert_eq!(context["status"], "failure");
        assert_eq!(context["mode"], "check");
        assert_eq!(context["lock_info"]["exists"], Value::Null);
        assert_eq!(context["errors"][0], "project_root required");
    }
}
