//! `--ticket`: by what a caller's place in line is found again, and for whom it is kept.

use crate::failure::Failure;
use std::time::Duration;
use tenure::core::Kept;
use tenure::engine::Keep;
use tenure::process::choose_owner;

/// How long a place is kept for a caller who is away: longer than an agent thinks between two
/// calls, and short enough that nobody relies on a place that was forgotten.
pub(crate) const GRACE: Duration = Duration::from_secs(60);

/// What a caller wants to come back to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ticket {
    /// The place that it has, if it has one.
    pub(crate) kept: Option<Kept>,
    /// What becomes of its place when the wait is over.
    pub(crate) keep: Option<Keep>,
}

/// Reads the flag.
pub(crate) fn of(given: Option<&str>) -> Result<Ticket, Failure> {
    let Some(text) = given else {
        return Ok(Ticket::default());
    };
    let grace = GRACE;
    if text == "auto" {
        let owner = choose_owner(None)?.process;
        return Ok(Ticket {
            kept: Some(Kept::Owner(owner)),
            keep: Some(Keep {
                owner: Some(owner),
                grace,
            }),
        });
    }
    let ticket: u64 = text.parse().map_err(|_| {
        Failure::bad_arguments(format!(
            "--ticket {text:?}: write auto, or the ticket that a refusal named"
        ))
    })?;
    // A place without anybody to follow lasts as long as its grace.
    let owner = choose_owner(None).ok().map(|owner| owner.process);
    Ok(Ticket {
        kept: Some(Kept::Ticket(ticket)),
        keep: Some(Keep { owner, grace }),
    })
}
