//! The types of a lock that the other modules name: pure, without a clock or a file.
//!
//! The crate `tenure-core` has them and the rules by which it decides. Only what stands here is promised.
//!
//! ```
//! use tenure::*;
//! use core::time::Duration; // no module of this crate hides the standard library's
//!
//! let options = guard::Options::new().ttl(Duration::from_secs(60));
//! assert!(model::LockName::new("deploy-prod").is_ok());
//! # let _ = options;
//! ```

pub use tenure_core::{
    AbsentRelease, AgeLimit, AgeRule, AgentKey, AgentKeyError, Boot, Cancel, CancelKind, Claim,
    Death, Entering, Entry, Event, Evidence, Force, ForceOnHeld, Forced, HeldUnforced, History,
    Holder, Host, Kept, Kind, Lease, Left, Life, Liveness, LivenessLock, LockName, Mode, NameError,
    Now, OwnAgain, Ownership, Patience, Policy, Predecessor, Process, Queueing, Reason, Refusal,
    ReleaseByOther, Released, Renewal, Request, RequestId, Reservation, RestsOn, Silence,
    StaleReason, StaleUnforced, Stamp, Standing, Standstill, StopRequest, Takeover, Terms,
    TryGrant, UnknownLife, UnreadableRule, WaitingFor, Watched, judge,
};
