//! Ends a wait from another thread: a flag, and a bell for a sleeper when the flag is raised.
//!
//! A wait listens to the [`Cancel`] that [`listening`] gave to its thread, so neither the engine nor the
//! contract of a store has to know of it. The engine decides what becomes of a wait that was ended: its
//! claim leaves the queue before the caller is answered.

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex, Weak, locked};
use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;

/// Ends waits for locks, from any thread. Clones are one and the same.
///
/// Stays cancelled: a wait that begins afterwards ends at once.
#[derive(Clone, Default)]
pub struct Cancel {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    asked: AtomicBool,
    bells: Mutex<Vec<Weak<Ring>>>,
}

type Ring = dyn Fn() + Send + Sync;

/// Rings for as long as it is kept.
pub struct Bell {
    _ring: Arc<Ring>,
}

impl Cancel {
    /// A new one, not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends all waits that hear it, now and later.
    pub fn cancel(&self) {
        self.shared.asked.store(true, Ordering::SeqCst);
        let bells = std::mem::take(&mut *locked(&self.shared.bells));
        for ring in bells.iter().filter_map(Weak::upgrade) {
            ring();
        }
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.shared.asked.load(Ordering::SeqCst)
    }

    /// Calls `ring` when it is cancelled. Look at [`Cancel::is_cancelled`] afterwards: a cancellation
    /// before this call does not ring.
    pub(crate) fn ring(&self, ring: impl Fn() + Send + Sync + 'static) -> Bell {
        let ring: Arc<Ring> = Arc::new(ring);
        let mut bells = locked(&self.shared.bells);
        // Bells that are gone are looked for only where the list would grow: thousands may hear one.
        if bells.len() == bells.capacity() {
            bells.retain(|bell| bell.strong_count() > 0);
        }
        bells.push(Arc::downgrade(&ring));
        Bell { _ring: ring }
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel")
            .field("cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}

/// Has `ring` called when `cancel` is cancelled. As `Cancel::ring`, for the crates above. The library shows [`Cancel`], so this is no method of it.
pub fn rings(cancel: &Cancel, ring: impl Fn() + Send + Sync + 'static) -> Bell {
    cancel.ring(ring)
}

thread_local! {
    static HEARD: RefCell<Option<Cancel>> = const { RefCell::new(None) };
}

/// The [`Cancel`] that ends the waits of this thread.
pub fn heard() -> Option<Cancel> {
    HEARD.with_borrow(Clone::clone)
}

/// Does `work`, whose waits `cancel` ends.
pub fn listening<T>(cancel: Option<&Cancel>, work: impl FnOnce() -> T) -> T {
    struct Before(Option<Cancel>);
    impl Drop for Before {
        fn drop(&mut self) {
            HEARD.set(self.0.take());
        }
    }
    let _before = Before(HEARD.replace(cancel.cloned()));
    work()
}

/// [`listening`] for a future: whatever thread polls it.
pub async fn listened<T>(cancel: &Cancel, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    poll_fn(|context| listening(Some(cancel), || work.as_mut().poll(context))).await
}
