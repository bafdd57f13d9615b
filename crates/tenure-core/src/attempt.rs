//! An acquisition from the first try to its end, as a state machine. An [`Input`] says what happened; an
//! [`Effect`] says what to do next.
//!
//! A driver (the engine, or a test) carries out the effects against a store and reports back. The machine
//! knows nothing of files, threads or signals. It decides the order of the steps. Above all, a claim that
//! gives up **leaves the list before its caller is notified**, so that no waiter stands behind a caller that
//! has gone.

use crate::claim::Cancel;
use crate::claims::{Entering, TryGrant};
use crate::turn::{Predecessor, Refusal};
use alloc::boxed::Box;

/// What the driver has to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Effect {
    /// Enter the list; report [`Input::Entered`].
    Enter,
    /// Sleep until the claim before ends, the wait times out, or the caller interrupts; report
    /// [`Input::Woken`], [`Input::Expired`] or [`Input::Interrupted`].
    Sleep {
        /// The claim to sleep behind.
        behind: Predecessor,
    },
    /// Look whether the claim holds now; report [`Input::Tried`].
    Look,
    /// Take the claim out of the list; report [`Input::Left`].
    Leave,
    /// Keep the claim's place while its caller is away; report [`Input::Left`], or
    /// [`Input::Woken`] if there is nothing that could be kept.
    Reserve,
    /// The attempt is over.
    Finish(Outcome),
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The store answered to [`Effect::Enter`].
    Entered(Entering),
    /// The sleep ended for a reason that is worth a look.
    Woken,
    /// The wait timed out.
    Expired,
    /// The caller does not want to wait any longer.
    Interrupted,
    /// The store answered to [`Effect::Look`].
    Tried(TryGrant),
    /// The claim has left the list, or stands aside in it.
    Left,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The lock is held.
    Granted {
        /// The claim's ticket.
        ticket: u64,
        /// Fencing token of the grant.
        token: u64,
    },
    /// The owner held the lock already, by an earlier claim.
    Yours {
        /// Ticket of the earlier claim.
        ticket: u64,
        /// Fencing token of the earlier claim.
        token: u64,
    },
    /// Refused without waiting, or a stale claim in front needs a person's decision.
    Refused(Refusal),
    /// The time was up.
    TimedOut,
    /// The caller interrupted.
    Interrupted,
    /// Another caller asked this claim to stop before it held the lock.
    Superseded {
        /// The request of that caller.
        by: Box<Cancel>,
    },
    /// The place that the caller wanted back is not kept (any more).
    NotKept,
}

/// The machine. Start with [`Attempt::start`], feed [`Attempt::on`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attempt {
    ticket: u64,
    keeps_place: bool,
    giving_up: Option<Outcome>,
}

impl Attempt {
    /// A fresh attempt and its first effect.
    pub fn start() -> (Self, Effect) {
        (Self::default(), Effect::Enter)
    }

    /// Keeps the place in the queue at the timeout, for a caller that may come back.
    #[must_use]
    pub fn keeping_place(mut self) -> Self {
        self.keeps_place = true;
        self
    }

    /// What to do after `input`.
    ///
    /// An input that does not fit the state, such as a wake-up overtaken by the end of the time, leads to
    /// another look. It never leads to a grant: only the store's own answer grants.
    pub fn on(&mut self, input: Input) -> Effect {
        match input {
            Input::Entered(Entering::Granted { ticket, token }) => {
                Effect::Finish(Outcome::Granted { ticket, token })
            }
            Input::Entered(Entering::Yours { ticket, token }) => {
                Effect::Finish(Outcome::Yours { ticket, token })
            }
            Input::Entered(Entering::NotKept) => Effect::Finish(Outcome::NotKept),
            Input::Entered(Entering::Refused(refusal)) => Effect::Finish(Outcome::Refused(refusal)),
            Input::Entered(Entering::Queued { ticket, behind }) => {
                self.ticket = ticket;
                Effect::Sleep { behind }
            }
            Input::Woken => Effect::Look,
            Input::Expired if self.keeps_place => {
                self.giving_up = Some(Outcome::TimedOut);
                Effect::Reserve
            }
            Input::Expired => self.give_up(Outcome::TimedOut),
            Input::Interrupted => self.give_up(Outcome::Interrupted),
            Input::Tried(TryGrant::Granted { token }) => Effect::Finish(Outcome::Granted {
                ticket: self.ticket,
                token,
            }),
            Input::Tried(TryGrant::Behind(behind)) => Effect::Sleep { behind },
            Input::Tried(TryGrant::Yours { ticket, token }) => {
                self.give_up(Outcome::Yours { ticket, token })
            }
            Input::Tried(TryGrant::Cancelled { by }) => self.give_up(Outcome::Superseded { by }),
            Input::Tried(TryGrant::Blocked(refusal)) => self.give_up(Outcome::Refused(refusal)),
            // The list was begun anew under another file: the place is gone, so enter again.
            Input::Tried(TryGrant::Gone) => Effect::Enter,
            Input::Left => match self.giving_up.take() {
                Some(outcome) => Effect::Finish(outcome),
                None => Effect::Finish(Outcome::Interrupted),
            },
        }
    }

    fn give_up(&mut self, outcome: Outcome) -> Effect {
        self.giving_up = Some(outcome);
        Effect::Leave
    }
}
