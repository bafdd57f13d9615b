//! What people are told of a resume lock.

use tenure_core::{LockName, Process, StaleReason, Takeover};

/// The sentence about a lock that was taken over from a process.
pub fn takeover_text(name: &LockName, why: Takeover, from: Option<Process>) -> String {
    let pid = from.map_or_else(|| "unknown".to_owned(), |known| known.pid.to_string());
    match why {
        // Of a process that cannot be seen, nobody knows whether it runs.
        Takeover::Stale(StaleReason::Silent) => {
            format!("Removing stale lock for {name} (PID {pid} silent for longer than its ttl)")
        }
        Takeover::Stale(_) => {
            format!("Removing stale lock for {name} (PID {pid} no longer running)")
        }
        Takeover::Corrupt => format!("Replacing an unreadable lock for {name}"),
        Takeover::Active => format!(
            "Overriding the lock for {name} held by PID {pid}; two processes may be at work until \
             it notices"
        ),
    }
}
