//! `force-release`: its flags, and what they mean.

use super::{Meant, Place, Surroundings, lock};
use crate::args::value::{self, Typed, typed};
use crate::args::{Common, OfLock};
use crate::failure::Failure;
use clap::Args;
use tenure_core::{Force, LockName, RequestId};

/// `force-release`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure force-release deploy --yes              end a detached hold, loudly
  tenure force-release deploy --yes --token 17   only the hold that you saw
  tenure --profile fleet force-release app-prod  remove a stale lock only

force-release never ends a supervised run: `tenure cancel` asks it to stop.")]
pub(crate) struct ForceReleaseArgs {
    /// The name of the lock (a sprint has only one)
    #[arg(value_name = "NAME", value_parser = typed(value::name))]
    pub(crate) name: Option<Typed<LockName>>,
    #[command(flatten)]
    pub(crate) of: OfLock,
    /// Only the hold with this request id; if there is none, nothing happens (exit code 5)
    #[arg(long, value_name = "ID", visible_aliases = ["session-id", "run-id"], value_parser = typed(value::request_id))]
    pub(crate) request_id: Option<Typed<RequestId>>,
    /// Only the hold with this fencing token, likewise
    #[arg(long, value_name = "TOKEN", value_parser = typed(value::token))]
    pub(crate) token: Option<Typed<u64>>,
    /// Confirm the end of a live hold
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Removes another's hold.
#[derive(Debug)]
pub(crate) struct ForceRelease {
    pub(crate) place: Place,
    pub(crate) name: LockName,
    pub(crate) meant: Meant,
    pub(crate) force: Force,
}

impl ForceRelease {
    pub(crate) fn of(typed: &ForceReleaseArgs, around: &Surroundings) -> Result<Self, Failure> {
        let place = Place::of(&typed.common, around)?;
        Ok(Self {
            name: lock(&place, typed.name.as_ref(), around)?,
            meant: Meant {
                request_id: typed.request_id.as_ref().map(|id| id.text.clone()),
                token: value::given("--token", typed.token.as_ref())?,
            },
            force: if typed.yes {
                Force::Confirmed
            } else {
                Force::Asked
            },
            place,
        })
    }
}
