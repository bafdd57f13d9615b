//! What the library `tenure` and the binary of that name share: stores, what is done with them, profiles,
//! processes, the audit.
//!
//! Nothing here is promised to other programs: any version may change all of it. Programs use `tenure`,
//! which shows the part of it that stays.

pub mod advice;
pub mod agent;
mod agent_view;
pub mod audit;
pub mod cancel;
pub mod circle;
pub mod cleaning;
pub mod clock;
pub mod config;
pub mod conformance;
pub mod consent;
pub mod duration;
pub mod engine;
pub mod envelope;
pub mod fence;
mod gathered;
pub mod group;
pub mod herald;
pub mod inherited;
#[cfg(feature = "yaml")]
pub mod intent;
pub mod keep;
pub mod leased_path;
pub mod line;
pub mod offload;
pub mod os;
pub mod place;
pub mod printed;
mod private;
pub mod process;
pub mod profile;
pub mod readings;
pub mod regular;
pub mod repository;
pub mod shell;
pub mod store;
pub mod sync;
pub mod trust;
pub mod vacancy;
#[cfg(feature = "yaml")]
pub mod yaml;

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
