//! How the work under a lock ended, as an audit tells it.

use crate::args::{ReleaseArgs, RunArgs};
use crate::failure::Failure;
use crate::supervise::locks::SpawnError;
use crate::supervise::{End, Verdict};
use serde_json::{Map, Value};
use tenure::audit::Ending;

/// What a step is called that nobody named.
const STEP: &str = "command";

/// How the work ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunResult {
    /// `success` or `failure`.
    pub(crate) result: &'static str,
    /// The step that failed, where one did.
    pub(crate) failure_step: Option<String>,
}

impl RunResult {
    pub(super) fn of(succeeded: bool, step: Option<&str>) -> Self {
        if succeeded {
            Self {
                result: "success",
                failure_step: None,
            }
        } else {
            Self {
                result: "failure",
                failure_step: Some(step.unwrap_or(STEP).to_owned()),
            }
        }
    }

    /// Of a supervised command.
    pub(crate) fn of_run(verdict: &Result<Verdict, SpawnError>, args: &RunArgs) -> Self {
        let succeeded = matches!(verdict, Ok(Verdict::Command(End::Code(0))));
        Self::of(succeeded, args.failure_step.as_deref())
    }

    /// Of a run that a signal ended before its command began.
    pub(crate) fn of_nothing(args: &RunArgs) -> Self {
        Self::of(false, args.failure_step.as_deref())
    }

    /// As whoever releases says it: who names a step that failed says that the work failed.
    pub(crate) fn of_release(args: &ReleaseArgs) -> Result<Self, Failure> {
        let step = args.failure_step.as_deref();
        match (args.result.as_deref(), step) {
            (Some("success"), Some(_)) => Err(Failure::bad_arguments(
                "--result success and --failure-step contradict each other",
            )),
            (Some("success") | None, None) => Ok(Self::of(true, None)),
            (Some(_), _) | (None, Some(_)) => Ok(Self::of(false, step)),
        }
    }

    /// As an audit has it.
    pub(crate) fn ending(&self) -> Ending<'_> {
        match &self.failure_step {
            Some(step) => Ending::Failure { step },
            None => Ending::Success,
        }
    }

    /// Adds it to an answer.
    pub(crate) fn add_to(&self, answer: &mut Map<String, Value>) {
        answer.insert("result".into(), self.result.into());
        if let Some(step) = &self.failure_step {
            answer.insert("failure_step".into(), step.as_str().into());
        }
    }
}
