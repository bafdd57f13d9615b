//! What a change to the list rests on: what a store has to find as the change has read it.
//!
//! A store that keeps a lock around each change has nothing to compare. A store on servers reads, lets
//! the core decide, and commits under conditions: the claims that the change alters stand as it has read
//! them, and so does what is said here. If one of them does not, the change is decided anew.
//!
//! The model (`tests/model.rs`) lets contenders commit by these rules and by narrower ones. By these,
//! every invariant holds; each narrower one that is seeded there gives two holders or loses a claim.
//!
//! What it leaves to others: how a store compares.

use crate::claims::{Claim, Entering, Force, Kind, Predecessor, Request, TryGrant};
use crate::event::Event;
use crate::mode::{Mode, Queueing};

/// What a change rests on, beyond the claims that it alters. If any of that differs when the store
/// commits, the change runs again.
///
/// A claim that ended meanwhile makes no decision wrong: it only frees what was taken for held. So a
/// store need not notice that a claim has gone, unless the change alters it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestsOn {
    /// Nothing else.
    Nothing,
    /// The claims up to the own one, for a claim that is in the list.
    Before,
    /// The whole list: that each of its claims is as it was, and that no other one has come.
    All,
}

impl RestsOn {
    /// What entering rests on; `None` if there is nothing to write. `last` is the ticket of the last
    /// claim before the request entered.
    ///
    /// A plain request that only queues rests on nothing: its ticket is given by the order of writing,
    /// and a claim before it that ended meanwhile ends its first sleep at once. Every other one rests on
    /// the whole list: a grant on each claim that would be in its way, a claim that takes the places of
    /// others on all who wait, a refusal on each claim that it blames.
    ///
    /// That is more than the model needs for four kinds: a claim that queues detached, one that queues
    /// after it asked holders to stop, one that queues at its kept place, and a refusal that asked holders
    /// to stop. What each of them depends on it alters, or it sleeps until that changes. They are rare, and
    /// keep the simpler rule.
    pub fn entering(
        request: &Request,
        entering: &Entering,
        events: &[Event],
        last: Option<u64>,
    ) -> Option<Self> {
        match entering {
            Entering::Queued { ticket, .. } => {
                let is_new = last.is_none_or(|last| *ticket > last);
                let only_queues = is_new && events.is_empty() && request.is_plain();
                Some(if only_queues {
                    Self::Nothing
                } else {
                    Self::All
                })
            }
            Entering::Granted { .. } => Some(Self::All),
            Entering::Yours { .. } | Entering::Refused(_) | Entering::NotKept => {
                (!events.is_empty()).then_some(Self::All)
            }
        }
    }

    /// What it rests on that a waiting claim of this mode looked whether it holds; `None` if there is
    /// nothing to write. `was_passed` is [`Claim::was_passed`] of the claim before it looked.
    ///
    /// An exclusive claim rests on those before it, also after its caller was away. Claims behind it wait
    /// for it, but for two kinds of holders that the look has to see:
    /// - One that was granted while this claim's caller was away. Such a grant rested on this claim, so none
    ///   is committed once the caller is back.
    /// - One that overrode a hold. That hold stood when this look read the list, since nothing else is
    ///   granted past an exclusive claim. So the look found it live and grants nothing, or it takes that
    ///   hold out itself and is overtaken.
    ///
    /// Two kinds of claims rest on the whole list when they are granted, for a grant behind them need not
    /// have counted them:
    /// - One that was passed. Another claim may pass it once more, and writes nothing to it that second
    ///   time. The look of the process that goes on would not notice.
    /// - One that holds beside others. A caller who overrides a hold goes before those who wait, and may
    ///   tolerate no other holder.
    ///
    /// A look that grants nothing could rest on nothing: it takes out what is dead, or says that the claim
    /// stands aside no longer.
    pub fn looking(
        mode: Mode,
        was_passed: bool,
        grant: &TryGrant,
        events: &[Event],
    ) -> Option<Self> {
        match grant {
            TryGrant::Granted { .. } if was_passed || mode != Mode::Exclusive => Some(Self::All),
            TryGrant::Granted { .. } => Some(Self::Before),
            TryGrant::Behind(_)
            | TryGrant::Yours { .. }
            | TryGrant::Cancelled { .. }
            | TryGrant::Blocked(_)
            | TryGrant::Gone => (was_passed || !events.is_empty()).then_some(Self::Before),
        }
    }

    /// What it rests on that dead claims were swept; `None` if there is nothing to write. `removes` says
    /// that no claim is left, and that the lock goes with them: a claim that is made meanwhile must not
    /// lose its lock.
    pub fn sweeping(swept: &[Claim], removes: bool) -> Option<Self> {
        if removes {
            Some(Self::All)
        } else {
            (!swept.is_empty()).then_some(Self::Nothing)
        }
    }
}

impl Entering {
    /// Whether a claim came to wait directly behind this one. Of a plain exclusive request that says that
    /// it has nothing to do with the claims before that: it looks from the end of the list, and passed
    /// over none.
    pub fn queues_behind(&self, last: Option<u64>) -> bool {
        match self {
            Self::Queued {
                behind: Predecessor::LivenessLock { ticket },
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
    /// Whether it does nothing but take its place at the end of the list.
    pub fn is_plain(&self) -> bool {
        let terms = &self.terms;
        self.kind == Kind::Kernel
            && self.force == Force::No
            && terms.queueing == Queueing::Fifo
            && !terms.cancel_in_progress
            && terms.kept.is_none()
    }
}
