//! The ends of this process's own claims, as its threads wait for them.
//!
//! A thread that waits behind a claim of its own process need not ask the kernel: the thread that ends the
//! claim wakes it. So it needs no second thread that sleeps in the kernel for it, and it is woken once
//! instead of twice.
//!
//! The kernel stays the judge. A woken thread looks at the list again, as after every sleep. If the claim
//! still stands there, it is not found here any more, and the next sleep is in the kernel.
//!
//! **No end is missed**: it is noted under the mutex under which a waiter looks for it before it sleeps. A
//! claim ends here when its byte is released, or at the latest when its handle is dropped. A process that
//! dies takes its waiting threads with it.
//!
//! **After a fork** the copy touches nothing of this: another thread may have had the mutex at that moment. A copy
//! has handles to drop, and a drop looks whose copy it is. Callers do nothing else there: a manager of guards refuses
//! each call in a copy before it comes to a store, so that the process is asked for once and not three times.

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Condvar, Mutex, Weak, locked};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::sync::PoisonError;
use std::time::Duration;

/// The claims of one process that have not ended, by their key.
pub(crate) struct Ends<K> {
    /// The process whose claims they are.
    pid: u32,
    live: Mutex<BTreeMap<K, Weak<End>>>,
}

struct End {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    has_come: bool,
    /// What else is called then, beside the threads that sleep.
    rings: Vec<Weak<Ring>>,
}

type Ring = dyn Fn() + Send + Sync;

impl<K: Ord + Clone> Ends<K> {
    pub(crate) fn new() -> Self {
        Self {
            pid: std::process::id(),
            live: Mutex::new(BTreeMap::new()),
        }
    }

    fn is_here(&self) -> bool {
        self.pid == std::process::id()
    }

    /// Notes a claim that begins.
    pub(crate) fn begin(ends: &Arc<Self>, key: K) -> Begun<K> {
        let end = Arc::new(End {
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        locked(&ends.live).insert(key.clone(), Arc::downgrade(&end));
        Begun {
            ends: Arc::clone(ends),
            key,
            end,
            has_ended: AtomicBool::new(false),
        }
    }

    /// The end to wait for, if it is that of a claim of this process.
    pub(crate) fn of(&self, key: &K) -> Option<Awaited> {
        if !self.is_here() {
            return None;
        }
        let end = locked(&self.live).get(key)?.upgrade()?;
        Some(Awaited { end })
    }
}

impl<K> fmt::Debug for Ends<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ends").finish_non_exhaustive()
    }
}

/// A claim that has begun. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Begun<K: Ord + Clone> {
    ends: Arc<Ends<K>>,
    key: K,
    end: Arc<End>,
    has_ended: AtomicBool,
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("End").finish_non_exhaustive()
    }
}

impl<K: Ord + Clone> Begun<K> {
    /// Wakes the threads that wait for the end. Called after the claim's byte was released, so that a woken
    /// thread finds the byte free.
    pub(crate) fn end(&self) {
        if self.has_ended.swap(true, Ordering::AcqRel) {
            return;
        }
        {
            let mut live = locked(&self.ends.live);
            // The claim of a place that was reserved may have begun again under the same key.
            let known = live.get(&self.key);
            if known.is_some_and(|known| known.as_ptr() == Arc::as_ptr(&self.end)) {
                live.remove(&self.key);
            }
        }
        let rings = {
            let mut state = locked(&self.end.state);
            state.has_come = true;
            std::mem::take(&mut state.rings)
        };
        for ring in rings.iter().filter_map(Weak::upgrade) {
            ring();
        }
        // A thread that waits for it has it as well. Without any, the end makes no system call.
        if Arc::strong_count(&self.end) > 1 {
            self.end.changed.notify_all();
        }
    }
}

impl<K: Ord + Clone> Drop for Begun<K> {
    fn drop(&mut self) {
        // Mostly it has ended before.
        if !self.has_ended.load(Ordering::Acquire) && self.ends.is_here() {
            self.end();
        }
    }
}

/// The end that a thread waits for.
pub(crate) struct Awaited {
    end: Arc<End>,
}

impl Awaited {
    /// What has the waiting thread ask again how long it sleeps.
    pub(crate) fn bell(&self) -> impl Fn() + Send + Sync + 'static {
        let end = Arc::downgrade(&self.end);
        move || {
            if let Some(end) = end.upgrade() {
                // With the mutex: a thread that has just asked is asleep by then.
                drop(locked(&end.state));
                end.changed.notify_all();
            }
        }
    }

    /// Has `ring` called when the end comes, for as long as the answer is kept; at once if it has come.
    pub(crate) fn rings(&self, ring: impl Fn() + Send + Sync + 'static) -> Arc<Ring> {
        let ring: Arc<Ring> = Arc::new(ring);
        let mut state = locked(&self.end.state);
        if state.has_come {
            drop(state);
            ring();
        } else {
            // Rings that are gone are looked for only where the list would grow.
            if state.rings.len() == state.rings.capacity() {
                state.rings.retain(|ring| ring.strong_count() > 0);
            }
            state.rings.push(Arc::downgrade(&ring));
        }
        ring
    }

    /// Sleeps until the end has come: true. Before each sleep `nap` says how long that lasts at most, or
    /// that the wait is over: false then.
    pub(crate) fn wait(&self, mut nap: impl FnMut() -> ControlFlow<(), Option<Duration>>) -> bool {
        let mut state = locked(&self.end.state);
        while !state.has_come {
            let changed = &self.end.changed;
            state = match nap() {
                ControlFlow::Break(()) => break,
                ControlFlow::Continue(None) => {
                    let woken = changed.wait(state);
                    woken.unwrap_or_else(PoisonError::into_inner)
                }
                ControlFlow::Continue(Some(rest)) => {
                    let woken = changed.wait_timeout(state, rest);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        state.has_come
    }
}
