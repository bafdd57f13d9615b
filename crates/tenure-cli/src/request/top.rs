//! `top`: its flags, and what they mean.

use super::{Place, Surroundings};
use crate::args::Common;
use crate::args::value::{self, Typed, typed};
use crate::failure::Failure;
use clap::Args;
use std::time::Duration;

/// How often locks are read whose store reports no change, unless said otherwise.
const INTERVAL: Duration = Duration::from_secs(2);

/// The shortest interval: a store of many machines serves others, too.
const INTERVAL_MIN: Duration = Duration::from_millis(200);

/// `top`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure top                       who needs help, who waits, who holds what
  tenure top --once                one frame as text, also without a terminal
  tenure top --scope machine       the locks of all users of this machine

Locks that need a person come first (stopped, orphaned, unreadable), then locks with waiters, then locks that \
are held longer than usual. top reads the usual time, and what happened lately, from the audit.

Keys: / filters, s sorts, Enter shows all of a lock, c asks its holder to stop, a shows free locks too, ? helps, q ends.")]
pub(crate) struct TopArgs {
    /// Print one frame as text and end
    #[arg(long)]
    pub(crate) once: bool,
    /// How often to poll locks whose store reports no changes [default: 2s]
    #[arg(long, value_name = "DURATION", value_parser = typed(value::duration), conflicts_with = "once")]
    pub(crate) interval: Option<Typed<Duration>>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Shows the locks, and goes on showing them.
#[derive(Debug)]
pub(crate) struct Top {
    pub(crate) place: Place,
    pub(crate) once: bool,
    #[cfg_attr(not(unix), allow(dead_code, reason = "one frame is read once"))]
    pub(crate) interval: Duration,
}

impl Top {
    pub(crate) fn of(typed: &TopArgs, around: &Surroundings) -> Result<Self, Failure> {
        let interval = value::given("--interval", typed.interval.as_ref())?.unwrap_or(INTERVAL);
        if interval < INTERVAL_MIN {
            return Err(Failure::bad_arguments(
                "--interval: at least 200ms, for each reads all locks",
            ));
        }
        Ok(Self {
            place: Place::of(&typed.common, around)?.asked_about(around),
            once: typed.once,
            interval,
        })
    }
}
