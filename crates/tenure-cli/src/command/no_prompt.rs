//! Windows has no prompt: every call there is like one without a terminal. It says `--yes`, or gets the
//! answer of a call without it.

use crate::signals::Signals;

/// The person's reply.
#[allow(dead_code, reason = "one surface with the prompt of Unix")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A clear yes.
    Yes,
    /// Anything else, silence included.
    No,
    /// An event that asks this process to end.
    Interrupted,
}

/// Whether a person can be asked.
pub(crate) fn can_ask() -> bool {
    false
}

/// Asks no person.
pub(crate) fn ask(_: &str, _: Signals) -> Reply {
    Reply::No
}
