//! The pure core of tenure: it decides from values alone which claim may hold a lock.
//!
//! Nothing in this crate reads a clock, a file or the process table, starts a thread or allocates a
//! descriptor. Time is an argument, evidence of life is an argument, and what a store has to write
//! afterwards is a return value. So a test can explore every interleaving of three contenders
//! (`tests/model.rs`). CI builds the crate for a target that has no standard library at all.
//!
//! A lock is an **ordered list of claims** ([`Entry`]). An exclusive claim holds once no live
//! claim stands before it. A position in the list is called a *ticket*; at the grant a claim
//! draws its *fencing token* from the same rising counter.
//!
//! What it leaves to others: how the list is kept and guarded (`tenure-store`), how evidence is gathered
//! (`tenure-os`) and what people see (the binary).
//!
//! **Who may call whom.** This crate calls no other one, and every other one may call it.
#![no_std]

extern crate alloc;

mod agent;
mod attempt;
mod backoff;
mod ci_event;
mod claim;
mod claims;
mod decision;
mod event;
mod holder;
mod lease;
mod mode;
mod name;
mod policy;
mod queue;
mod release;
mod renewal;
mod rests_on;
mod retry_hint;
mod schedule;
mod standing;
mod time;
mod turn;

pub use agent::{AGENT_AGE_MAX_MS, AGENT_AGE_MS, AgentKey, AgentKeyError, SILENCE_MS};
pub use attempt::{Attempt, Effect, Input, Outcome};
pub use backoff::pause_ms;
pub use ci_event::{CiEvent, GroupNameError, Subject, group_name};
pub use claim::{
    Cancel, CancelKind, Claim, Entry, Force, History, Kept, Kind, Patience, Request, Reservation,
    StopRequest, Terms, WaitingFor, Watched,
};
pub use claims::{Entering, TryGrant};
pub use decision::{Caller, Decision, Reason, decide};
pub use event::{Event, Takeover};
pub use holder::{Holder, Host, Process};
pub use lease::{Lease, Silence};
pub use mode::{Mode, PENDING_MAX, Queueing};
pub use name::{LockName, NameError, RequestId};
pub use policy::{
    AbsentRelease, AgeLimit, AgeRule, ForceOnHeld, HeldUnforced, OwnAgain, Policy, ReleaseByOther,
    StaleUnforced, UnknownLife, UnreadableRule,
};
pub use queue::{
    LOOK_AGAIN_MS, LOOK_AGAIN_SHORT_MS, SHORT_LINE, STOPPED_GRACE_MS, Standstill, UNTAKEN_MS,
    WATCH_MS,
};
pub use release::{Forced, Left, Ownership, Released};
pub use renewal::Renewal;
pub use rests_on::RestsOn;
pub use retry_hint::{RETRY_CEILING_MS, RETRY_FLOOR_MS, free_in_ms, retry_after_ms};
pub use schedule::{Due, Failed, LeaseTerms, Moment, Schedule, interval_ms};
pub use standing::{
    Death, Evidence, Life, Liveness, LivenessLock, StaleReason, Standing, has_ended, is_orphan,
    judge, unreadable,
};
pub use time::{Boot, Now, Stamp};
pub use turn::{Predecessor, Refusal};
