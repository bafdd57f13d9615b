//! Where locks are kept: the [`contract`] of a store, its [`verbs`], and the stores.
//!
//! A store of your own implements [`Store`], six methods. What callers do with a store is in [`Verbs`], which every store has.
//! [`mod@file`], [`memory`] and `etcd` are the stores that there are, [`codec`] the bytes of a list. A [`profile`] says by which rules
//! locks are judged and whether other programs read a record. The native one is here; foreign formats stand behind the trait.
//!
//! **Who may call whom.** This crate calls `tenure-core` for each decision and `tenure-os` for each question to the system. It
//! reads no configuration: what a store has to know of one is handed in. The engine, the conformance suite, the library and the
//! binary call it.
//!
//! Nothing here is promised to other programs but what the library shows as `tenure::store`: any version may change the rest.

pub mod advice;
pub mod codec;
pub mod contract;
mod error;
#[cfg(all(feature = "etcd", unix))]
pub mod etcd;
pub mod file;
pub mod memory;
pub mod printed;
pub mod profile;
mod reading;
pub mod verbs;

pub use contract::{Handle, Store};
pub use error::StoreError;
pub use reading::{Content, Reading};
pub use verbs::Verbs;

use tenure_core::{Claim, Forced};
// By the name under which `tests/interleavings` of `tenure` puts primitives that try orders out.
use tenure_os::sync;

/// How a sleep ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// Something happened: the caller should look again.
    Ready,
    /// The wait timed out.
    Expired,
    /// The caller was interrupted and wants to stop waiting.
    Interrupted,
}

/// What [`Verbs::clean`] did to one lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleaned {
    /// The claims that no longer counted.
    pub swept: Vec<Claim>,
    /// Whether nothing is left of the lock.
    pub removed: bool,
    /// The bytes of the record that was removed; empty where there was none.
    pub record: Vec<u8>,
}

/// The answer to [`Verbs::renew_owned`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RenewedOwned {
    /// The hold is renewed.
    Renewed {
        /// The claim as it stands now, with a request to stop if there is one.
        claim: Box<Claim>,
    },
    /// Another owner holds the lock.
    NotOwner {
        /// The claim of the other owner.
        claim: Box<Claim>,
    },
    /// No claim holds the lock.
    Lost,
}

/// The answer to [`Verbs::force_release`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForcedRelease {
    /// What was done to the lock.
    pub released: Forced,
    /// What an audit would record of the bytes that other programs saw.
    pub record: Vec<u8>,
}
