//! ```no_run
//! # fn deploy(_: u64) {}
//! let locks = tenure::guard::LockManager::open()?; // where `tenure run` keeps its locks
//! let guard = locks.acquire("deploy-prod")?;       // waits up to 10 s, in the same queue as `tenure run`
//! deploy(guard.token());                           // the fencing token: let the resource refuse smaller ones
//! guard.release()?;                                // or let it drop
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Locks for scripts, CI jobs and AI agents: one holder at a time.
//!
//! # The model
//! A lock is an ordered list of claims, kept by a [`store`]. The first live claim holds. A claim lives by a
//! kernel lock that its process keeps, by an owner's process, or by a ttl. A waiter sleeps in the kernel
//! until the claim before its own ends. At the grant a claim gets a *fencing token*; tokens only rise.
//!
//! # Where to begin
//! - [`guard`] is a lock as a guard, blocking or async: several at once, shared, slots, cancellation, a loss
//!   that can be awaited. [`testing`] lets you test what you build on it.
//! - [`resume`] is the same for a program that resumes sessions or jobs: one call.
//! - `framework` (with the feature of that name) is for authors of command-line tools: a lock declared
//!   beside a clap-derived command. [`envelope`] says why a call failed.
//! - [`fence`] is for the resource's side: it refuses a caller with an old token.
//! - [`store`] is for a store of your own. [`model`] has the types of a lock that the others name: claims, policies, instants.
//!
//! # Limitations
//! - A file store excludes processes on **one machine** that see the same folder on a file system
//!   with working locks. Network file systems are refused unless asked for.
//! - A lease that lives by its ttl alone is not mutual exclusion: a paused holder may continue after
//!   its lease has ended. Hand the fencing token to the resource.
//! - Deleting a lock's file by hand while it is held lets another caller in. The holder learns of it
//!   afterwards, not before.
//! - A guard cannot stop the work under it. It reports a request to stop and a lost lock; the work has
//!   to check.
//!
//! # Features
//! `docs/library.md` has the table. None of the default ones brings clap, tokio or YAML.
//! - `full` (default): [`LockManager::open`](guard::LockManager::open) and `tenure.toml`, the audit, [`resume`], [`envelope`], and the
//!   conformance suite of [`store`]. Without it a program names the folder of its locks
//!   ([`LockManager::new`](guard::LockManager::new)), and the crate comes with 11 others.
//! - `tracing` (with `full`): what guards tell the log.
//! - `framework`: locks declared beside a clap command, for tools of one's own.
//! - `etcd`: locks for many machines.
//! - `chrono`: the time of a resume lock is a `chrono::DateTime<Utc>`, as in the original's types
//!   ([`resume::AcquiredAt`]). It changes a type for a whole build, so it is for programs and not for libraries.

pub mod clock;
#[cfg(feature = "full")]
pub mod envelope;
#[cfg(feature = "framework")]
pub mod framework;
pub mod guard;
pub mod model;
#[cfg(feature = "full")]
pub mod resume;
pub mod store;
pub mod testing;

pub use tenure_engine::fence;

/// The whole core, for programs that were written before [`model`]. Nothing of it is promised.
#[doc(hidden)]
pub use tenure_core;

#[cfg(feature = "framework")]
use tenure_engine::duration;
#[cfg(feature = "full")]
use tenure_engine::{audit, config, formats, place};
use tenure_engine::{circle, engine, herald, inherited, keep, line, search, view};
use tenure_os::{cancel, offload, os, process, sync, trust};
#[cfg(feature = "framework")]
use tenure_store::printed;
use tenure_store::{advice, profile};

/// The programs of the guide for those who write Rust: examples that compile.
#[cfg(all(doctest, feature = "full"))]
#[doc = include_str!("../../../docs/guides/from-rust.md")]
struct Guide;
