//! Asks a store about holds on a thread of its own, because an answer may take as long as a network
//! does. It asks one question after the other; each of them ends by itself, because the store bounds
//! its requests.
//!
//! The thread ends with its renewer. `thread` decides when to ask, and what follows from the answers.

use super::Ask;
use super::kept::KeeperHold;
use std::sync::Weak;
use std::sync::mpsc::{self, Receiver, Sender};
use tenure_core::{Now, Renewal};
use tenure_os::os::{self, Bell, BorrowedDescriptor};
use tenure_store::StoreError;

/// A question about a hold.
struct Question<T> {
    id: u64,
    hold: Weak<T>,
    /// Since when it is to be renewed; `None` for a look.
    renews: Option<Now>,
}

/// An answer about a hold.
pub(super) struct HoldAnswer {
    pub(super) id: u64,
    pub(super) ask: Ask,
    /// `None` if the hold was released meanwhile.
    pub(super) found: Option<Result<Renewal, StoreError>>,
}

/// The thread, as the renewer sees it.
pub(super) struct Worker<T> {
    questions: Sender<Question<T>>,
    answers: Receiver<HoldAnswer>,
    bell: Bell,
}

impl<T: KeeperHold> Worker<T> {
    /// `None` where the system gives no thread or no pipe; then the renewer asks for itself.
    pub(super) fn start() -> Option<Self> {
        let (bell, rings) = os::bell().ok()?;
        let (questions, asked) = mpsc::channel::<Question<T>>();
        let (answered, answers) = mpsc::channel();
        let work = move || {
            for Question { id, hold, renews } in asked {
                let hold = hold.upgrade();
                let found = (hold.as_ref()).and_then(|hold| hold.asked(renews.as_ref()));
                drop(hold);
                let ask = renews.map_or(Ask::Look, |_| Ask::Renew);
                if answered.send(HoldAnswer { id, ask, found }).is_err() {
                    return;
                }
                rings.ring();
            }
        };
        let thread = std::thread::Builder::new().name("tenure-worker".to_owned());
        thread.spawn(work).ok()?;
        Some(Self {
            questions,
            answers,
            bell,
        })
    }

    /// Asks about a hold, or for its renewal as of this instant. Many that are asked for together are
    /// answered one after the other; the instant tells a store what one of them did for those behind it.
    pub(super) fn ask(&self, id: u64, hold: &Weak<T>, renews: Option<Now>) {
        let hold = hold.clone();
        // The thread lives for as long as this end of its channel.
        let _ = self.questions.send(Question { id, hold, renews });
    }

    /// Becomes readable when there are answers.
    pub(super) fn bell(&self) -> BorrowedDescriptor<'_> {
        self.bell.descriptor()
    }

    /// The answers that have come.
    pub(super) fn answers(&self) -> Vec<HoldAnswer> {
        self.bell.hear();
        self.answers.try_iter().collect()
    }
}
