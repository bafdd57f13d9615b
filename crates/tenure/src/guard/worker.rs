//! Asks a store about holds on a thread of its own, because an answer may take as long as a network
//! does. It asks one question after the other; each of them ends by itself, because the store bounds
//! its requests.
//!
//! The thread ends with its renewer. `renewer` decides when to ask, and what follows from the answers.

use super::GuardState;
use super::hold::Hold;
use crate::os::{self, Bell, BorrowedDescriptor};
use crate::store::StoreError;
use std::sync::Weak;
use std::sync::mpsc::{self, Receiver, Sender};

/// An answer about a hold.
pub(super) struct Answer {
    pub(super) id: u64,
    /// Whether the question was a renewal.
    pub(super) renews: bool,
    /// `None` if the hold was released meanwhile.
    pub(super) found: Option<Result<GuardState, StoreError>>,
}

/// The thread, as the renewer sees it.
pub(super) struct Worker {
    questions: Sender<(u64, Weak<Hold>, bool)>,
    answers: Receiver<Answer>,
    bell: Bell,
}

impl Worker {
    /// `None` where the system gives no thread or no pipe; then the renewer asks for itself.
    pub(super) fn start() -> Option<Self> {
        let (bell, rings) = os::bell().ok()?;
        let (questions, asked) = mpsc::channel::<(u64, Weak<Hold>, bool)>();
        let (answered, answers) = mpsc::channel();
        let work = move || {
            for (id, hold, renews) in asked {
                let hold = hold.upgrade();
                let found = (hold.as_ref())
                    .and_then(|hold| if renews { hold.renew() } else { hold.check() });
                drop(hold);
                if answered.send(Answer { id, renews, found }).is_err() {
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

    pub(super) fn ask(&self, id: u64, hold: &Weak<Hold>, renews: bool) {
        // The thread lives for as long as this end of its channel.
        let _ = self.questions.send((id, hold.clone(), renews));
    }

    /// Becomes readable when there are answers.
    pub(super) fn bell(&self) -> BorrowedDescriptor<'_> {
        self.bell.descriptor()
    }

    /// The answers that have come.
    pub(super) fn answers(&self) -> Vec<Answer> {
        self.bell.hear();
        self.answers.try_iter().collect()
    }
}
