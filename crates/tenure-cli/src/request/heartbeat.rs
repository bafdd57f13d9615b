//! `heartbeat`: its flags, and what they mean.

use super::{Place, ShownId, Surroundings, lock, text};
use crate::args::value::{self, Typed, typed};
use crate::args::{Calling, Common, OfLock};
use crate::failure::Failure;
use clap::Args;
use tenure_core::{LockName, RequestId};

/// `heartbeat`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure heartbeat deploy --request-id run-42 || exit
  tenure heartbeat deploy --output json | jq .data.cancel_requested

Exit code: 80 if the lock is lost, 6 if it is another owner's.

With --output json the answer has cancel_requested: another caller asks the holder to stop.")]
pub(crate) struct HeartbeatArgs {
    /// The name of the lock (a sprint has only one)
    #[arg(value_name = "NAME", value_parser = typed(value::name))]
    pub(crate) name: Option<Typed<LockName>>,
    #[command(flatten)]
    pub(crate) of: OfLock,
    /// The request id that `acquire` printed
    #[arg(long, value_name = "ID", visible_aliases = ["session-id", "run-id"], value_parser = typed(value::request_id))]
    pub(crate) request_id: Option<Typed<RequestId>>,
    #[command(flatten)]
    pub(crate) calling: Calling,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Renews a hold.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    pub(crate) place: Place,
    pub(crate) name: LockName,
    pub(crate) shown: ShownId,
}

impl Heartbeat {
    pub(crate) fn of(typed: &HeartbeatArgs, around: &Surroundings) -> Result<Self, Failure> {
        let place = Place::of_hold(&typed.common, around, text(typed.name.as_ref()))?;
        Ok(Self {
            name: lock(&place, typed.name.as_ref(), around)?,
            shown: ShownId::of(typed.request_id.as_ref(), &place, around),
            place,
        })
    }
}
