//! What this process was before: the program that it replaced (exec), or the process that it is a copy of (fork).
//!
//! A claim names a process by its number and start, which an exec leaves as they are. So a claim in the name of this process
//! is perhaps that of an earlier program, which has ended.
//!
//! What it leaves to others: what follows for a caller (`guard`), and how a hold goes on on purpose (`adopt`).

use crate::clock::Clock;
use std::sync::OnceLock;
use tenure_core::Claim;

/// The calling program, as it was when it made its first manager.
#[derive(Debug, Clone, Copy)]
pub(super) struct Image {
    /// The number of its process. A copy of that process (by fork) has another one.
    pub(super) pid: u32,
    /// When that was, by the boot clock.
    began_ms: u64,
}

impl Image {
    /// The image of this program, for all managers. Noted before any of them makes a claim.
    pub(super) fn present(clock: &dyn Clock) -> Self {
        static FIRST: OnceLock<Image> = OnceLock::new();
        *FIRST.get_or_init(|| Self {
            pid: std::process::id(),
            began_ms: clock.now().boot_ms,
        })
    }

    /// For a clock of a test, by which no program came before this one.
    pub(super) fn always() -> Self {
        Self {
            pid: std::process::id(),
            began_ms: 0,
        }
    }

    /// Whether a claim in the name of this process gave a sign of life since this program began. An earlier program gave
    /// none. Another copy of this library in this program may have been first; it gives one with its next heartbeat.
    pub(super) fn has(self, claim: &Claim) -> bool {
        let signs = claim.since.into_iter().chain([claim.lease.renewed]);
        signs.map(|at| at.boot_ms).any(|at| at >= self.began_ms)
    }
}
