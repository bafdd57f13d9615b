//! What a change to the list rests on: what a store must still find as the change read it.
//!
//! A store that keeps a lock around each change has nothing to compare. A store on servers reads, lets the
//! core decide, and commits under conditions. The claims that the change alters must stand as it read them,
//! and so must what this module names. If a condition fails, the change is decided anew.
//!
//! The model (`tests/model.rs`) lets contenders commit by these rules and by narrower ones. By these, every
//! invariant holds. Each narrower rule that is seeded there gives two holders or loses a claim.
//!
//! What it leaves to others: how a store compares.

use crate::claim::{Claim, Force, Kind, Request};
use crate::claims::{Entering, TryGrant};
use crate::event::Event;
use crate::mode::{Mode, Queueing};
use crate::queue::Standstill;
use crate::turn::{Predecessor, Refusal};

/// What a change rests on, beyond the claims that it alters. If any of that differs when the store
/// commits, the change runs again.
///
/// A claim that ended meanwhile makes no decision wrong: it only frees what the change took for held. So a
/// store need not notice that a claim has gone, unless the change alters it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestsOn {
    /// Nothing else.
    Nothing,
    /// The claims up to its own, for a claim that is in the list.
    Before,
    /// The whole list: each of its claims is as it was, and no other claim has come.
    All,
}

impl RestsOn {
    /// What entering rests on; `None` if there is nothing to write. `last` is the ticket of the last
    /// claim before the request entered.
    ///
    /// A plain request that only queues rests on nothing. The order of writing gives its ticket, and a
    /// claim before it that ended meanwhile ends its first sleep at once. Every other outcome rests on the
    /// whole list:
    /// - A grant rests on each claim that could block it.
    /// - A claim that takes the places of others rests on all waiters.
    /// - A refusal rests on each claim that it blames.
    /// - A mark that lets waiters stand aside rests on those waiters.
    ///
    /// The model needs less for four kinds: a claim that queues detached, one that queues after it asked
    /// holders to stop, one that queues at its kept place, and a refusal that asked holders to stop. Each
    /// of them alters what it depends on, or sleeps until that changes. They are rare, and keep the simpler
    /// rule.
    pub fn entering(
        request: &Request,
        entering: &Entering,
        events: &[Event],
        last: Option<u64>,
    ) -> Option<Self> {
        match entering {
            Entering::Queued { ticket, behind } => {
                let is_new = last.is_none_or(|last| *ticket > last);
                let only_queues =
                    is_new && events.is_empty() && request.is_plain() && !marks(behind);
                Some(if only_queues {
                    Self::Nothing
                } else {
                    Self::All
                })
            }
            Entering::Granted { .. }
            | Entering::Refused(Refusal {
                standstill: Some(Standstill { marks: true, .. }),
                ..
            }) => Some(Self::All),
            Entering::Yours { .. } | Entering::Refused(_) | Entering::NotKept => {
                (!events.is_empty()).then_some(Self::All)
            }
        }
    }

    /// What the look of a waiting claim of this mode rests on; `None` if there is nothing to write.
    /// `was_passed` is [`Claim::was_passed`] of the claim before it looked.
    ///
    /// An exclusive claim rests on the claims before it, also after its caller was away. Claims behind it
    /// wait for it, except for two kinds of holders that the look has to see:
    /// - A claim that was granted while this claim's caller was away. Such a grant rested on this claim, so
    ///   none is committed once the caller is back.
    /// - A claim that overrode a hold. That hold stood when this look read the list, since nothing else is
    ///   granted past an exclusive claim. So the look found it live and grants nothing, or it takes that
    ///   hold out itself and is overtaken.
    ///
    /// Two kinds of claims rest on the whole list when they are granted, because a grant behind them need
    /// not have counted them:
    /// - A claim that was passed. Another claim may pass it once more, and writes nothing to it that second
    ///   time. The look of the process that goes on would not notice.
    /// - A claim that holds beside others. A caller that overrides a hold goes before the waiters, and may
    ///   tolerate no other holder.
    ///
    /// A look that grants nothing could rest on nothing: it takes out dead claims, or says that the claim
    /// no longer stands aside.
    pub fn looking(
        mode: Mode,
        was_passed: bool,
        grant: &TryGrant,
        events: &[Event],
    ) -> Option<Self> {
        match grant {
            TryGrant::Granted { .. } if was_passed || mode != Mode::Exclusive => Some(Self::All),
            TryGrant::Granted { .. } => Some(Self::Before),
            TryGrant::Behind(behind) if marks(behind) => Some(Self::Before),
            TryGrant::Behind(_)
            | TryGrant::Yours { .. }
            | TryGrant::Cancelled { .. }
            | TryGrant::Blocked(_)
            | TryGrant::Gone => (was_passed || !events.is_empty()).then_some(Self::Before),
        }
    }

    /// What a sweep of dead claims rests on; `None` if there is nothing to write. `removes` says that no
    /// claim is left, and that the lock goes with them: a claim that is made meanwhile must not lose its
    /// lock.
    pub fn sweeping(swept: &[Claim], removes: bool) -> Option<Self> {
        if removes {
            Some(Self::All)
        } else {
            (!swept.is_empty()).then_some(Self::Nothing)
        }
    }
}

/// Whether a look let claims stand aside.
fn marks(behind: &Predecessor) -> bool {
    matches!(behind, Predecessor::Still { still, .. } if still.marks)
}

impl Entering {
    /// Whether the request came to wait directly behind the claim `last`. A plain exclusive request then
    /// has nothing to do with the claims before `last`: it looks from the end of the list, and passed over
    /// none. One for a slot found no room beside the claims that it saw, so there is none beside all of them.
    pub fn queues_behind(&self, last: Option<u64>) -> bool {
        match self {
            Self::Queued {
                behind: Predecessor::LivenessLock { ticket } | Predecessor::Turn { ticket },
                ..
            } => Some(*ticket) == last,
            Self::Queued { .. }
            | Self::Granted { .. }
            | Self::Yours { .. }
            | Self::Refused(_)
            | Self::NotKept => false,
        }
    }
}

impl Request {
    /// Whether the request does nothing but take its place at the end of the list.
    pub fn is_plain(&self) -> bool {
        let terms = &self.terms;
        self.kind == Kind::Kernel
            && self.force == Force::No
            && terms.queueing == Queueing::Fifo
            && !terms.cancel_in_progress
            && terms.kept.is_none()
    }
}
