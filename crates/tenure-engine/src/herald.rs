//! Tells others on a thread of its own. A listener that takes its time (a subscriber of the log that writes
//! to a full pipe, a waker that waits for a mutex) delays only the listeners that are notified after it.
//!
//! The thread is made for the first message, and ends with its herald once all was told. The caller decides
//! what there is to tell, and has changed the state *before*.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How many messages may wait before those that can be spared are left out.
const WAITING_MAX: usize = 1_024;

/// How often a caller looks whether all was told.
const LOOK: Duration = Duration::from_millis(1);

type Message = Box<dyn FnOnce() + Send>;

/// Tells messages, one after the other.
pub struct Herald {
    name: &'static str,
    messages: Mutex<Option<Sender<Message>>>,
    waiting: Arc<AtomicUsize>,
}

impl Herald {
    /// A herald whose thread has this name.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            messages: Mutex::new(None),
            waiting: Arc::default(),
        }
    }

    /// Hands over a message, to be told after all that were handed over before.
    pub fn tell(&self, message: impl FnOnce() + Send + 'static) {
        let mut sender = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let mut message: Message = Box::new(message);
        if let Some(thread) = &*sender {
            match thread.send(message) {
                Ok(()) => return,
                // The thread was told something that panicked.
                Err(unsent) => message = unsent.0,
            }
        }
        *sender = self.start();
        let unsent = match &*sender {
            Some(thread) => thread.send(message).err().map(|unsent| unsent.0),
            None => Some(message),
        };
        drop(sender);
        // The system gives no thread, so the caller has to tell it.
        if let Some(message) = unsent {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            message();
        }
    }

    /// Hands over a message that can be left out if too many wait already.
    pub fn tell_unless_busy(&self, message: impl FnOnce() + Send + 'static) {
        if self.waiting.load(Ordering::Acquire) < WAITING_MAX {
            self.tell(message);
        }
    }

    /// Waits until all was told, for so long at most.
    pub fn settle(&self, patience: Duration) {
        let began = tenure_os::clock::instant();
        while self.waiting.load(Ordering::Acquire) > 0
            && tenure_os::clock::instant().saturating_duration_since(began) < patience
        {
            tenure_os::clock::nap(LOOK);
        }
    }

    fn start(&self) -> Option<Sender<Message>> {
        let (sender, message) = channel::<Message>();
        let waiting = Arc::clone(&self.waiting);
        waiting.store(1, Ordering::Release);
        let work = move || {
            for message in message {
                let _told = NotifiedCount(&waiting);
                message();
            }
        };
        let thread = std::thread::Builder::new().name(self.name.to_owned());
        thread.spawn(work).ok().map(|_| sender)
    }
}

/// Counts one message as told, also if it panics.
struct NotifiedCount<'a>(&'a AtomicUsize);

impl Drop for NotifiedCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl std::fmt::Debug for Herald {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Herald")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::RecvTimeoutError;

    #[test]
    fn who_takes_its_time_keeps_neither_the_caller_nor_what_comes_after_a_panic() {
        let herald = Herald::new("test-herald");
        let (go, waits) = channel::<()>();
        let (tells, told) = channel();
        herald.tell(move || {
            let _ = waits.recv();
        });
        let after = tells.clone();
        herald.tell(move || after.send("after").expect("a listener"));
        let soon = Duration::from_millis(20);
        assert_eq!(told.recv_timeout(soon), Err(RecvTimeoutError::Timeout));
        for _ in 0..2 * WAITING_MAX {
            herald.tell_unless_busy(|| ());
        }
        assert!(
            herald.waiting.load(Ordering::Acquire) <= WAITING_MAX,
            "bounded"
        );
        drop(go);
        let bound = Duration::from_secs(20);
        assert_eq!(told.recv_timeout(bound), Ok("after"));
        herald.tell(|| std::panic::panic_any("what a subscriber may do"));
        while told.recv_timeout(soon).is_err() {
            let again = tells.clone();
            herald.tell(move || {
                let _ = again.send("again");
            });
        }
    }
}
