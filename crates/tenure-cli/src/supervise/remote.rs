//! Asks servers about locks on a thread of its own: an answer may take as long as a network does.
//! Meanwhile the supervisor has to pass signals on, and to see the end of the command.
//!
//! The thread asks one question after the other, in their order. Each of them ends by itself, because
//! the store bounds its requests; so the thread ends soon after the last question.
//!
//! `driver` decides what follows from the answers.

use super::locks::RunLock;
use crate::store::Locks;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::Scope;
use tenure_core::{Now, Process, Renewal};
use tenure_store::{Handle, StoreError, Verbs};

/// What is asked about a hold.
#[derive(Debug, Clone)]
pub(super) enum Question {
    /// Write down its command.
    Name(Process, Now),
    /// Renew it.
    Renew(Now),
    /// Does it still stand?
    Verify(Now),
}

/// What the store answered.
#[derive(Debug)]
pub(super) enum StoreAnswer {
    Named(Result<bool, StoreError>),
    Renewed(Result<Renewal, StoreError>),
    Verified(Result<Renewal, StoreError>),
}

/// The thread, as the supervisor sees it.
pub(super) struct Asker {
    questions: Sender<(usize, Question)>,
    answers: Receiver<(usize, StoreAnswer)>,
    bell: OwnedFd,
}

impl Asker {
    /// Starts the thread for these holds; a question names a hold by its index.
    pub(super) fn start<'scope, 'a: 'scope>(
        scope: &'scope Scope<'scope, '_>,
        held: &'scope [RunLock<'a>],
    ) -> io::Result<Self> {
        let (bell, rings) = crate::signals::pipe()?;
        let (questions, asked) = mpsc::channel::<(usize, Question)>();
        let (answered, answers) = mpsc::channel();
        let stores: Vec<(&Locks, &dyn Handle)> =
            held.iter().map(|held| (held.store, held.handle)).collect();
        let thread = std::thread::Builder::new().name("tenure-asker".to_owned());
        let ask = move || {
            for (index, question) in asked {
                let Some(&(store, handle)) = stores.get(index) else {
                    continue;
                };
                let answer = match question {
                    Question::Name(process, now) => {
                        StoreAnswer::Named(store.name_command(handle, process, &now))
                    }
                    Question::Renew(now) => StoreAnswer::Renewed(store.renew(handle, &now)),
                    Question::Verify(now) => StoreAnswer::Verified(store.verify(handle, &now)),
                };
                if answered.send((index, answer)).is_err() {
                    return;
                }
                // A full pipe wakes the supervisor as well.
                let _ = rustix::io::write(&rings, &[1]);
            }
        };
        // Signals are for the thread that supervises.
        crate::signals::for_a_thread(|| thread.spawn_scoped(scope, ask))?;
        Ok(Self {
            questions,
            answers,
            bell,
        })
    }

    pub(super) fn ask(&self, index: usize, question: Question) {
        // The thread lives for as long as this end of its channel.
        let _ = self.questions.send((index, question));
    }

    /// Becomes readable when there are answers.
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The next answer, if there is one.
    pub(super) fn answered(&self) -> Option<(usize, StoreAnswer)> {
        let mut buffer = [0; 64];
        while rustix::io::read(&self.bell, &mut buffer).is_ok_and(|read| read > 0) {}
        self.answers.try_recv().ok()
    }
}
