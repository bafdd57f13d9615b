//! A run within the hold of another. It goes on under that hold (`--reentrant`), and the outer run stays until
//! the inner one has ended. A run of an agent goes on in the same way under what that agent took by itself; no run stays
//! there for it, and while it works the agent is not silent.
//!
//! # Crash safety
//! The part that an inner run has in a hold is a byte of the lock's file, which all inner runs share. Its
//! command inherits the byte as it would a liveness lock. The process that gives the hold back looks for the
//! byte under the guard. So the hold stays while any of these processes works, whichever of them is killed:
//! - the inner supervisor: its command has the byte;
//! - the inner command: its supervisor ends, and gives the byte back;
//! - the outer supervisor: all processes below it have inherited the liveness lock, the inner run too, and
//!   keep the lock held. With `--close` they have not. Then the next caller gets in, and the inner run finds
//!   the hold gone at its next look, within a second.
//!
//! On servers there is no such byte. An inner run that goes on in the background learns by that look that
//! the hold is over, and ends its work.

use super::plan::{Outer, outer_lost};
use crate::failure::Failure;
use crate::store::Part;
use crate::supervise::locks::{Around, OfAgent};

/// Goes on under these holds, if they still stand.
pub(super) fn enter(outers: &[Outer<'_>]) -> Result<Vec<Part>, Failure> {
    let enter = |outer: &Outer<'_>| {
        let store = &outer.session.store;
        match store.go_within(&outer.name, outer.token) {
            Ok(Some(part)) => Ok(part),
            Ok(None) => Err(outer_lost(&outer.name)),
            Err(error) => Err(outer.session.store_failed(&outer.name, error)),
        }
    };
    outers.iter().map(enter).collect()
}

/// The holds in the form that the driver takes.
pub(super) fn around<'b>(outers: &'b [Outer<'_>], parts: &'b [Part]) -> Vec<Around<'b>> {
    let of = |(outer, part): (&'b Outer<'_>, &'b Part)| Around {
        store: &outer.session.store,
        name: &outer.name,
        token: outer.token,
        lapses: outer.session.store.rules().lapse(outer.ttl),
        agent: (outer.session.place.agent.as_ref())
            .filter(|_| outer.is_agents)
            .map(|key| OfAgent {
                key,
                clock: &outer.session.clock,
                silence: outer.ttl,
            }),
        part,
    };
    outers.iter().zip(parts).map(of).collect()
}
