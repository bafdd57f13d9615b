//! What an operating system gives to `tenure`: system calls, clocks, processes, threads, and folders that can be trusted.
//!
//! A question that systems answer differently is asked here, under one surface: [`os`] has the calls, [`process`] who runs,
//! [`clock`] every reading of a clock. [`trust`] opens a folder and refuses what another user may have planted, and
//! [`private`] makes folders and files with the rights that they are to have. Nothing here knows what a lock is.
//!
//! **Who may call whom.** This crate calls `tenure-core` alone, for the words in which it answers (`Process`, `Host`, `Now`).
//! The stores, the engine, the library and the binary call it, and each of them asks the system through it.
//!
//! Nothing here is promised to other programs: any version may change all of it.

pub mod brief;
pub mod cancel;
pub mod clock;
#[cfg(feature = "tracing")]
mod logs;
#[cfg(not(feature = "tracing"))]
#[path = "no_logs.rs"]
mod logs;
pub mod offload;
pub mod os;
pub mod private;
pub mod process;
pub mod regular;
pub mod sync;
pub mod trust;
