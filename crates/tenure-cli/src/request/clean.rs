//! `clean`: its flags, and what they mean.

use super::{Place, Surroundings};
use crate::args::Common;
use crate::failure::Failure;
use clap::Args;

/// `clean`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure clean --dry-run  what would be removed
  tenure clean

Removes claims whose holder is proven dead, and the files of locks without a holder or a waiter. \
Fencing tokens go on rising afterwards.")]
pub(crate) struct CleanArgs {
    /// Only say what would be removed
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Removes what is proven stale.
#[derive(Debug)]
pub(crate) struct Clean {
    pub(crate) place: Place,
    pub(crate) dry_run: bool,
}

impl Clean {
    pub(crate) fn of(typed: &CleanArgs, around: &Surroundings) -> Result<Self, Failure> {
        Ok(Self {
            place: Place::of(&typed.common, around)?,
            dry_run: typed.dry_run,
        })
    }
}
