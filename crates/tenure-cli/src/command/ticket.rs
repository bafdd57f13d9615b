//! `--ticket`: how a caller's place in line is found again, and for which process or agent it is kept.

use crate::failure::{Failure, human};
use crate::request;
use std::time::Duration;
use tenure_core::{Kept, Process};
use tenure_engine::caller::choose_owner;
use tenure_engine::engine::{self, Keep};

/// How long a place is kept for a caller that is away. It is longer than an agent thinks between two
/// calls, and so short that no caller relies on a forgotten place.
pub(crate) const GRACE: Duration = Duration::from_secs(60);

/// The place to which a caller wants to come back.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ticket {
    /// The place that the caller has, if it has one.
    pub(crate) kept: Option<Kept>,
    /// What becomes of its place when the wait is over, if the place is kept.
    pub(crate) keep: Option<Keep>,
}

/// The message to a refused caller about its place.
pub(crate) fn how_to_come_back(ticket: u64) -> String {
    format!(
        "its place in line is kept for {}: come back with --ticket {ticket}",
        human(GRACE)
    )
}

/// For a client that always comes back. Each wait of its keeps the place, and a call without a ticket takes a place that
/// an earlier one has left: otherwise the client would wait behind itself.
pub(crate) fn of_client(
    asked: Option<request::Ticket>,
    client: Process,
    wait: engine::Wait,
) -> Ticket {
    if wait == engine::Wait::No {
        return Ticket::default();
    }
    Ticket {
        kept: Some(match asked {
            None | Some(request::Ticket::Auto) => Kept::Owner(client),
            Some(request::Ticket::Numbered(ticket)) => Kept::Ticket(ticket),
        }),
        keep: Some(Keep {
            owner: Some(client),
            grace: GRACE,
        }),
    }
}

/// Finds the owner of the place. That of an agent's call is the agent, and no process: each call may be made by another
/// one, of a sandbox or of a script that ends with the refusal. Such a place lasts as long as its grace.
pub(crate) fn of(asked: Option<request::Ticket>, is_agents: bool) -> Result<Ticket, Failure> {
    let grace = GRACE;
    let Some(asked) = asked else {
        return Ok(Ticket::default());
    };
    let owner = match asked {
        _ if is_agents => None,
        request::Ticket::Auto => Some(choose_owner(None)?.process),
        // A place that follows no process lasts as long as its grace.
        request::Ticket::Numbered(_) => choose_owner(None).ok().map(|owner| owner.process),
    };
    let kept = match asked {
        request::Ticket::Numbered(ticket) => Kept::Ticket(ticket),
        request::Ticket::Auto => owner.map_or(Kept::Agent, Kept::Owner),
    };
    Ok(Ticket {
        kept: Some(kept),
        keep: Some(Keep { owner, grace }),
    })
}
