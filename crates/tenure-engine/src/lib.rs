//! What one call means, and how a hold is kept: the rules between a store and those who want a lock.
//!
//! - Before a lock: `caller` says who calls, [`inherited`] what a run around it hands down, `place` where its locks are, `config`
//!   what a project and its users want.
//! - One lock: [`engine`] drives an attempt, [`mod@line`] orders the callers of one process, [`keep`] renews what they hold and gives
//!   it back, [`circle`] finds waits that would never end.
//! - For others: `formats` has the records of other systems, `audit` what happened, `envelope` each failure with its exit code,
//!   [`view`] a lock as it is shown, `shell` what a line of shell runs.
//!
//! **Who may call whom.** The engine calls the stores (`tenure-store`), the system (`tenure-os`) and the rules (`tenure-core`). The
//! library and the binary call it. It draws no terminal, reads no arguments and starts no command.
//!
//! Nothing here is promised to other programs: any version may change all of it. Programs use `tenure`,
//! which shows the part of it that stays.
//!
//! **Without the feature `full`** there is what guards need: no `tenure.toml`, no records of other formats, no audit, no documents.
//! What belongs to those is in modules of its own, and left out as such.

// Helpers that only left-out modules call stay. The full build finds what nobody calls.
#![cfg_attr(
    not(feature = "full"),
    allow(dead_code, unused_imports, unreachable_pub)
)]

#[cfg(feature = "full")]
pub mod agent;
mod agent_view;
#[cfg(feature = "full")]
pub mod audit;
#[cfg(feature = "full")]
pub mod caller;
pub mod circle;
pub mod cleaning;
#[cfg(feature = "full")]
pub mod config;
#[cfg(feature = "full")]
pub mod consent;
#[cfg(feature = "full")]
pub mod document;
#[cfg(feature = "full")]
pub mod duration;
pub mod engine;
#[cfg(feature = "full")]
pub mod envelope;
pub mod fence;
#[cfg(feature = "full")]
pub mod formats;
#[cfg(feature = "full")]
mod gathered;
#[cfg(feature = "full")]
pub mod group;
pub mod herald;
pub mod inherited;
#[cfg(feature = "yaml")]
pub mod intent;
pub mod keep;
#[cfg(feature = "full")]
pub mod leased_path;
pub mod line;
#[cfg(feature = "full")]
pub mod place;
pub mod readings;
pub mod repository;
pub mod search;
#[cfg(feature = "full")]
pub mod shell;
#[cfg(feature = "full")]
pub mod trace;
pub mod vacancy;
pub mod view;
#[cfg(feature = "yaml")]
pub mod yaml;

// By the name under which `tests/interleavings` of `tenure` puts primitives that try orders out.
use tenure_os::sync;

/// The pure core, whose types this crate names. By its own name: `core` would take the place of the
/// standard library's in a program that says `use tenure_engine::*`.
///
/// ```
/// use tenure_engine::*;
/// use core::time::Duration;
///
/// assert_eq!(duration::parse("2s"), Ok(Duration::from_secs(2)));
/// assert!(tenure_core::LockName::new("deploy-prod").is_ok());
/// ```
pub use tenure_core;
