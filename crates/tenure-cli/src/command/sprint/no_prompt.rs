//! Asking the person at the terminal: not on Windows, where every call is as one without a terminal, and
//! says `--yes` or is answered without it.

use crate::signals::Signals;

/// What came back.
#[allow(dead_code, reason = "one surface with the prompt of Unix")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    /// A clear yes.
    Yes,
    /// Anything else, silence included.
    No,
    /// An event that asks this process to end.
    Interrupted,
}

/// Whether a person can be asked.
pub(super) fn can_ask() -> bool {
    false
}

/// Asks no person.
pub(super) fn ask(_: &str, _: Signals) -> Reply {
    Reply::No
}
