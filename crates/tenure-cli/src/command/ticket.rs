//! `--ticket`: by what a caller's place in line is found again, and for whom it is kept.

use crate::failure::{Failure, human};
use std::time::Duration;
use tenure::engine::{Keep, Wait};
use tenure::process::choose_owner;
use tenure_core::Kept;

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

/// Refuses a ticket that could never be given: only who has waited has a place to keep.
pub(crate) fn refuse_unless_waiting(wait: Wait) -> Result<(), Failure> {
    match wait {
        Wait::For(_) | Wait::Forever => Ok(()),
        Wait::No => Err(Failure::bad_arguments(
            "--ticket keeps the place of a caller who has waited, and this call does not wait; \
             give it a little, as with --wait 1s",
        )),
    }
}

/// What a refused caller reads about its place.
pub(crate) fn how_to_come_back(ticket: u64) -> String {
    format!(
        "its place in line is kept for {}: come back with --ticket {ticket}",
        human(GRACE)
    )
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
