//! What the threads of this process synchronise by: the standard library's own primitives.
//!
//! Modules in which an order of events could do harm name them through this one: `cancel`, `offload`, `file/ends` of the store,
//! `keep/pending` and `line/turns` of the engine, `guard/term` of the library. They name nothing else of their crate, and there
//! this module is `crate::sync`. So `tests/interleavings` can compile the very same files with primitives that try the orders
//! out (decision 0014).

pub use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};

/// Numbers and flags.
pub mod atomic {
    pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
}

/// Threads.
pub mod thread {
    pub use std::thread::Builder;
}

use std::sync::PoisonError;

/// Takes a mutex, also after a panic: what it protects is whole between any two statements.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
