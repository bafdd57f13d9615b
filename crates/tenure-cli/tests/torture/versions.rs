//! The program that a call is made with: the one of this test, or another build beside it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The variable that names the other build.
const BESIDE: &str = "TORTURE_BESIDE";

/// The program for the next call. Another build makes every second call of a process, the first of every second process:
/// so each of the two is nested in the other, and follows it.
pub(crate) fn tenure() -> &'static str {
    static OTHER: OnceLock<Option<String>> = OnceLock::new();
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let other = OTHER.get_or_init(|| std::env::var(BESIDE).ok());
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    match other {
        Some(other) if (call + u64::from(std::process::id())).is_multiple_of(2) => other,
        Some(_) | None => env!("CARGO_BIN_EXE_tenure"),
    }
}
