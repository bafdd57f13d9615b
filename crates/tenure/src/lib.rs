//! One holder at a time, for scripts, CI jobs and AI agents.
//!
//! # The model
//! A lock is an ordered list of claims, kept by a [`store`]. The first live claim holds. Every
//! claim carries evidence of life: a kernel lock that its process keeps (its *beacon*), or the
//! identity of an owner's process, or a ttl. Whoever waits sleeps in the kernel until the claim
//! before it ends. At the grant a claim draws a *fencing token* that only ever rises.
//!
//! # Limitations
//! - A file store excludes processes on **one machine** that see the same folder on a file system
//!   with working locks. Network file systems are refused unless asked for.
//! - A lease that lives by its ttl alone is not mutual exclusion: a paused holder may go on after
//!   it ended. Hand the fencing token to the resource.
//! - Deleting a lock's file by hand while it is held lets another caller in. The holder notices
//!   and is told, but not before it happened.
//! - A guard cannot stop the work under it. It says that the lock was asked for or is lost; the work
//!   has to look.
//!
//! # Features
//! None is on by default.
//! - `framework`: locks declared beside a clap command, for tools of one's own.
//! - `etcd`: locks for many machines.
//! - `chrono`: the time of a resume lock is a `chrono::DateTime<Utc>`, as in the original's types
//!   ([`resume::AcquiredAt`]). It changes a type for a whole build, so it is for programs and not for libraries.
//!
//! # Where to begin
//! - [`guard`] is a lock as a guard: `LockManager::open()?.acquire("deploy")?`. Several at once,
//!   shared, slots, cancellation, a loss that can be awaited. [`testing`] lets you test what you
//!   build on it.
//! - `framework` (with the feature of that name) is for authors of command-line tools: a lock declared
//!   beside a clap-derived command. [`envelope`] is the document that it answers with.
//! - [`resume`] is a lock as a guard, for a Rust program that resumes sessions or jobs: one call,
//!   blocking or async.
//! - [`fence`] is for the resource's side: it refuses whoever comes with an old token.
//! - [`tenure_core`] decides: pure types, without a clock or a file.
//! - [`engine`] with a [`store`] and a [`profile`] is everything that the binary `tenure` does,
//!   which is a thin user of this crate.

#[cfg(feature = "framework")]
pub mod framework;
pub mod guard;
pub mod resume;
pub mod testing;

#[cfg(feature = "framework")]
use tenure_engine::printed;
pub use tenure_engine::{
    audit, clock, config, duration, engine, envelope, fence, process, profile, store,
};
use tenure_engine::{cancel, herald, offload, os, sync, trust};

/// The pure core, whose types this crate names. By its own name: `core` would take the place of the
/// standard library's in a program that says `use tenure::*`.
///
/// ```
/// use tenure::*;
/// use core::time::Duration;
///
/// assert_eq!(duration::parse("2s"), Ok(Duration::from_secs(2)));
/// assert!(tenure_core::LockName::new("deploy-prod").is_ok());
/// ```
pub use tenure_core;
