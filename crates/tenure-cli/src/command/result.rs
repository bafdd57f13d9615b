//! How the work under a lock ended, as an audit tells it.

use crate::request::{Task, Work};
use crate::supervise::locks::SpawnError;
use crate::supervise::{End, Verdict};
use serde_json::{Map, Value};
use tenure_engine::audit::Ending;

/// The name of a step to which the caller gave none.
const STEP: &str = "command";

/// How the work ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunResult {
    /// `success` or `failure`.
    pub(crate) result: &'static str,
    /// The step that failed, where one did.
    pub(crate) failure_step: Option<String>,
    /// The work ended because the lock was lost.
    pub(super) is_lost: bool,
}

impl RunResult {
    pub(super) fn of(succeeded: bool, step: Option<&str>) -> Self {
        if succeeded {
            Self {
                result: "success",
                failure_step: None,
                is_lost: false,
            }
        } else {
            Self {
                result: "failure",
                failure_step: Some(step.unwrap_or(STEP).to_owned()),
                is_lost: false,
            }
        }
    }

    /// Of a supervised command.
    pub(crate) fn of_run(verdict: &Result<Verdict, SpawnError>, task: &Task) -> Self {
        let succeeded = matches!(verdict, Ok(Verdict::Command(End::Code(0))));
        Self {
            is_lost: matches!(verdict, Ok(Verdict::Lost)),
            ..Self::of(succeeded, task.failure_step())
        }
    }

    /// Of a run that a signal ended before its command began.
    pub(crate) fn of_nothing(task: &Task) -> Self {
        Self::of(false, task.failure_step())
    }

    /// As the caller of `release` says it.
    pub(crate) fn of_work(work: Option<&Work>) -> Self {
        match work {
            None | Some(Work::Succeeded) => Self::of(true, None),
            Some(Work::Failed { step }) => Self::of(false, step.as_deref()),
        }
    }

    /// As an audit records it.
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
