//! `release`: its flags, and what they mean.

use super::{Place, ShownId, Surroundings, lock, refuse_input, text};
use crate::args::value::{self, Typed, WorkResult, typed};
use crate::args::{Calling, Common, FLEET, OfLock, SPRINT};
use crate::failure::Failure;
use clap::Args;
use tenure_core::{LockName, RequestId};

/// `release`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure release deploy                      from the script that acquired it
  tenure release deploy --request-id run-42  from a sub-shell, or anywhere

Without the id only the caller that took the lock can release it, or its owner once that caller has ended. To \
release a free lock succeeds, with a warning.")]
pub(crate) struct ReleaseArgs {
    /// The name of the lock (a sprint has only one)
    #[arg(value_name = "NAME", value_parser = typed(value::name))]
    pub(crate) name: Option<Typed<LockName>>,
    #[command(flatten)]
    pub(crate) of: OfLock,
    /// The request id that `acquire` printed
    #[arg(long, value_name = "ID", visible_aliases = ["session-id", "run-id"], value_parser = typed(value::request_id))]
    pub(crate) request_id: Option<Typed<RequestId>>,
    /// How the work ended: success or failure
    #[arg(long, value_name = "RESULT", value_enum, hide_possible_values = true, help_heading = FLEET)]
    pub(crate) result: Option<WorkResult>,
    /// The step that failed; says that the work failed [default: command]
    #[arg(long, value_name = "NAME", help_heading = FLEET)]
    pub(crate) failure_step: Option<String>,
    /// `-`: read the call from stdin, as YAML or JSON
    #[arg(long, value_name = "-", help_heading = SPRINT)]
    pub(crate) input: Option<String>,
    #[command(flatten)]
    pub(crate) calling: Calling,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Gives back what `acquire` took.
#[derive(Debug)]
pub(crate) struct Release {
    pub(crate) place: Place,
    pub(crate) name: LockName,
    pub(crate) shown: ShownId,
    /// How the work ended, if the caller said so.
    pub(crate) work: Option<Work>,
}

/// How work under a lock ended, as its holder says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Work {
    Succeeded,
    Failed {
        /// In this step, if the caller named it.
        step: Option<String>,
    },
}

impl Release {
    /// Gives back a hold, and says nothing else about it.
    #[cfg(all(feature = "mcp", unix))]
    pub(crate) fn plain(place: Place, name: LockName, shown: ShownId) -> Self {
        Self {
            place,
            name,
            shown,
            work: None,
        }
    }

    pub(crate) fn of(typed: &ReleaseArgs, around: &Surroundings) -> Result<Self, Failure> {
        refuse_input(typed.input.as_deref())?;
        let place = Place::of_hold(&typed.common, around, text(typed.name.as_ref()))?;
        let step = typed.failure_step.clone();
        Ok(Self {
            name: lock(&place, typed.name.as_ref(), around)?,
            shown: ShownId::of(typed.request_id.as_ref(), &place, around),
            // A caller that names a failed step says that the work failed.
            work: match (typed.result, step) {
                (Some(WorkResult::Success), Some(_)) => {
                    return Err(Failure::bad_arguments(
                        "--result success and --failure-step contradict each other",
                    ));
                }
                (Some(WorkResult::Success), None) => Some(Work::Succeeded),
                (Some(WorkResult::Failure), step) | (None, step @ Some(_)) => {
                    Some(Work::Failed { step })
                }
                (None, None) => None,
            },
            place,
        })
    }
}
