//! `fence`: its flags, and what they mean.

use super::{Place, Surroundings, asked_for, default_name, text};
use crate::args::value::{self, Typed, typed};
use crate::args::{Common, OfLock};
use crate::failure::Failure;
use clap::{Args, ValueHint};
use std::path::PathBuf;
use tenure_core::LockName;

/// `fence`.
#[derive(Debug, Clone, Args)]
#[command(
    override_usage = "tenure fence check [OPTIONS] [TOKEN]",
    after_help = "Examples:
  tenure fence check || exit             under `tenure run`: do I still hold it?
  tenure fence check 17 --name deploy    does anybody hold it with token 17?
  tenure fence check 17 --guard db.mark  the resource's side: 80 if too late

Without --guard, tenure reads the lock: 0 if a live hold has the token, 80 if none has it (any more), 12 if \
tenure cannot find out. The answer may be old when it arrives.

With --guard, tenure reads no lock: FILE keeps the highest token that the resource has seen. An equal or higher \
token is recorded (0), a lower one is refused (80). This stops a holder that was paused while it lost its lock; \
docs/fencing.md shows how."
)]
pub(crate) struct FenceArgs {
    /// What to do
    #[arg(value_name = "check", hide_possible_values = true)]
    pub(crate) action: FenceAction,
    /// The fencing token: 1 to 9007199254740991 [default: $TENURE_TOKEN]
    #[arg(value_name = "TOKEN", value_parser = typed(value::token))]
    pub(crate) token: Option<Typed<u64>>,
    /// The lock that gave the fencing token [default: $TENURE_NAME]
    #[arg(long, value_name = "NAME", conflicts_with = "guard", value_parser = typed(value::name))]
    pub(crate) name: Option<Typed<LockName>>,
    #[command(flatten)]
    pub(crate) of: OfLock,
    /// Ask the resource in place of the lock: the file that keeps its highest token
    #[arg(long, value_name = "FILE", conflicts_with_all = ["group", "path"], value_hint = ValueHint::FilePath)]
    pub(crate) guard: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// What `fence` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum FenceAction {
    /// Ask whether a fencing token is still good
    Check,
}

/// Asks whether a fencing token is still good.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one in the life of a process"
)]
pub(crate) enum Fence {
    /// The resource, by the file that keeps its mark.
    Resource {
        guard: PathBuf,
        token: u64,
        allow_network: bool,
    },
    /// The lock.
    Lock {
        place: Place,
        name: LockName,
        /// `None` for the token of the hold that the caller inherited.
        token: Option<u64>,
    },
}

impl Fence {
    pub(crate) fn of(typed: &FenceArgs, around: &Surroundings) -> Result<Self, Failure> {
        let FenceAction::Check = typed.action;
        let told = &around.variables.token;
        let given = value::given("TOKEN", typed.token.as_ref())?;
        let or_told = |given: Option<u64>| match given {
            Some(token) => Ok(Some(token)),
            None => value::read("TOKEN", told.as_deref(), value::token),
        };
        if let Some(guard) = &typed.guard {
            return Ok(Self::Resource {
                guard: guard.clone(),
                token: or_told(given)?.ok_or_else(no_token)?,
                allow_network: typed.common.allow_network_fs,
            });
        }
        let place = Place::of_hold(
            &typed.common,
            around,
            text(typed.name.as_ref()).or(around.variables.name.as_deref()),
        )?;
        let named = asked_for(&place, typed.name.as_ref(), around)?;
        let held = around.variables.name.as_deref();
        let name = match named {
            Some(name) => Some(name),
            None => value::read(value::LOCK_NAME, held, value::name)?,
        };
        let name = match name {
            Some(name) => Some(name),
            None => default_name(&place)?,
        };
        let Some(name) = name else {
            return Err(Failure::bad_arguments(
                "no lock is named: give --name, or call this under `tenure run`, which sets TENURE_NAME",
            ));
        };
        Ok(Self::Lock {
            name: place.checked(name.clone())?,
            // $TENURE_TOKEN belongs to $TENURE_NAME; the run may hold another lock under another token.
            token: if held == Some(name.as_str()) {
                Some(or_told(given)?.ok_or_else(no_token)?)
            } else {
                given
            },
            place,
        })
    }
}

/// The answer if no token is known.
pub(crate) fn no_token() -> Failure {
    Failure::bad_arguments("no fencing TOKEN is given, and TENURE_TOKEN has none of this lock")
}
