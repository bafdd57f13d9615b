//! `wait`: its flags, and what they mean.

use super::{Place, Surroundings, lock, room, said_wait, usual_wait};
use crate::args::value::{self, Typed, typed};
use crate::args::{Calling, Common, OfLock, OfMode, Patience};
use crate::failure::Failure;
use clap::Args;
use tenure_core::{LockName, Mode};
use tenure_engine::engine;

/// `wait`.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "Examples:
  tenure wait deploy --wait 5m && echo free
  tenure wait deploy -n                      do not wait: exit 4 if it is held

The lock may be taken again by the time this returns; to have it, use `run` or `acquire`.")]
pub(crate) struct WaitArgs {
    /// The name of the lock (a sprint has only one)
    #[arg(value_name = "NAME", value_parser = typed(value::name))]
    pub(crate) name: Option<Typed<LockName>>,
    #[command(flatten)]
    pub(crate) of: OfLock,
    #[command(flatten)]
    pub(crate) room: OfMode,
    #[command(flatten)]
    pub(crate) patience: Patience,
    #[command(flatten)]
    pub(crate) calling: Calling,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Waits until a lock has room for a claim.
#[derive(Debug)]
pub(crate) struct Wait {
    pub(crate) place: Place,
    pub(crate) name: LockName,
    /// For which mode it is to have room.
    pub(crate) mode: Mode,
    pub(crate) limit: engine::Wait,
}

impl Wait {
    pub(crate) fn of(typed: &WaitArgs, around: &Surroundings) -> Result<Self, Failure> {
        let place = match around.group()? {
            Some(_) => Place::of(&typed.common, around)?,
            None => Place::of_taker(&typed.common, around)?,
        };
        let name = lock(&place, typed.name.as_ref(), around)?;
        let said = said_wait(&typed.patience, around)?.or(place.defaults(&name)?.wait());
        Ok(Self {
            limit: said.unwrap_or_else(|| usual_wait(&place)),
            mode: match room(&typed.room, Some(&name), &place)? {
                Some(mode) => mode,
                None => place.plain_mode(&name),
            },
            name,
            place,
        })
    }
}
