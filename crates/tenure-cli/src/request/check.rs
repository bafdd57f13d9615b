//! `check`: its flags, and what they mean.

use super::{Place, ShownId, Surroundings, asked_for, refuse_input, room, text};
use crate::args::value::{self, Typed, typed};
use crate::args::{Calling, Common, OfLock, OfMode, SPRINT};
use crate::failure::Failure;
use clap::Args;
use tenure_core::{LockName, Mode, RequestId};

/// `check`.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "Examples:
  tenure check deploy                who holds it, since when, why; who waits
  tenure check deploy --output json  the same for a program
  tenure check                       every lock; exit 4 if any is another's

Exit code: 0 if the lock is free (also if its holder is dead) or mine, 4 if it is held or unreadable. check only \
reads: it creates and takes nothing.")]
pub(crate) struct CheckArgs {
    /// The name of the lock; all of them if it is left out
    #[arg(value_name = "NAME", value_parser = typed(value::name))]
    pub(crate) name: Option<Typed<LockName>>,
    #[command(flatten)]
    pub(crate) of: OfLock,
    #[command(flatten)]
    pub(crate) room: OfMode,
    /// Ask whether a living holder has it: exit code 0 if so, 4 if not
    #[arg(long, conflicts_with_all = ["shared", "slots", "request_id", "health"])]
    pub(crate) held: bool,
    /// Report a lock held under this id as mine
    #[arg(long, value_name = "ID", visible_aliases = ["session-id", "run-id"], value_parser = typed(value::request_id))]
    pub(crate) request_id: Option<Typed<RequestId>>,
    /// Answer in a health check's words: pass, warn or fail
    #[arg(long, help_heading = SPRINT)]
    pub(crate) health: bool,
    /// `-`: read the call from stdin, as YAML or JSON
    #[arg(long, value_name = "-", help_heading = SPRINT)]
    pub(crate) input: Option<String>,
    #[command(flatten)]
    pub(crate) calling: Calling,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Says how a lock stands, or all of them.
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) place: Place,
    pub(crate) name: Option<LockName>,
    /// For which mode the lock is to have room; `None` for the one of a plain request.
    pub(crate) mode: Option<Mode>,
    /// Whether it is held by a living holder, and not whether it is free.
    pub(crate) held: bool,
    pub(crate) shown: ShownId,
    /// Other holders and waiters are left out.
    pub(crate) short: bool,
}

impl Check {
    pub(crate) fn of(typed: &CheckArgs, around: &Surroundings) -> Result<Self, Failure> {
        refuse_input(typed.input.as_deref())?;
        let place = Place::of_hold(&typed.common, around, text(typed.name.as_ref()))?;
        let place = place.asked_about(around);
        let name = asked_for(&place, typed.name.as_ref(), around)?;
        if typed.held && name.is_none() {
            return Err(Failure::bad_arguments("--held is about one lock; name it"));
        }
        let shown = typed.request_id.as_ref();
        Ok(Self {
            held: typed.held,
            shown: if name.is_none() && shown.is_none() {
                ShownId::default()
            } else {
                ShownId::of(shown, &place, around)
            },
            mode: room(&typed.room, name.as_ref(), &place)?,
            name: name.map(|name| place.checked(name)).transpose()?,
            short: typed.common.quiet,
            place,
        })
    }
}
