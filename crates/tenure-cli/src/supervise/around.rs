//! Watches the holds of the run around this one, under which this run goes on without holds of its own
//! (`--reentrant`). Their supervisor waits for this run before it gives them back. But they can end in
//! other ways: by `tenure release` of an acquired lock, by the removal of a lock file, or on servers,
//! where no supervisor waits. Then the work of this run has to end.
//!
//! The hold of an agent ends by the agent's silence. A command of that agent in the background is none.
//!
//! A thread of its own looks from time to time, because an answer may take as long as a network does.

use super::locks::{Around, OfAgent};
use crate::store::Locks;
use std::io;
#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::Scope;
use std::time::{Duration, Instant};
use tenure_core::{Entry, LockName};
use tenure_engine::agent::Agent;
use tenure_os::clock::instant;
use tenure_store::contract::AgentSign;

/// How often a hold is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// The thread, as the supervisor sees it. Dropping it ends the thread.
pub(super) struct Watch {
    lost: Receiver<usize>,
    #[cfg(unix)]
    bell: OwnedFd,
    _stop: Sender<()>,
}

/// What is known of a hold.
struct AroundHold<'a> {
    store: &'a Locks,
    name: &'a LockName,
    token: u64,
    lapses: Option<Duration>,
    agent: Option<OfAgent<'a>>,
    /// When its agent was heard of last.
    heard: Instant,
    /// When it was seen to stand last.
    at: Instant,
    is_over: bool,
}

impl AroundHold<'_> {
    /// Looks again. True if it is found to be over, for the first time.
    fn ends(&mut self) -> bool {
        if self.is_over {
            return false;
        }
        let now = instant();
        if let Some(of) = self.agent
            && now.saturating_duration_since(self.heard) >= of.silence / 4
        {
            let agent = Agent {
                store: &**self.store,
                clock: of.clock,
                key: of.key,
            };
            // A sign that cannot be written is tried again at the next look.
            if agent.seen(AgentSign::Seen).is_ok() {
                self.heard = now;
            }
        }
        match self.stands() {
            Some(true) => self.at = now,
            Some(false) => self.is_over = true,
            // Not known is not lost, until other callers may count its lease as run out. A third of
            // that time is for the work to end.
            None => {
                let silence = now.saturating_duration_since(self.at);
                self.is_over = self.lapses.is_some_and(|lapses| silence >= lapses * 2 / 3);
            }
        }
        self.is_over
    }

    fn stands(&self) -> Option<bool> {
        let reading = self.store.read(self.name).ok()?;
        let mut granted = reading.entry().map(Entry::granted)?;
        Some(granted.any(|claim| claim.token == Some(self.token)))
    }
}

impl Watch {
    /// Starts the thread for these holds; it reports a hold by its index.
    pub(super) fn start<'scope, 'a: 'scope>(
        scope: &'scope Scope<'scope, '_>,
        around: &'scope [Around<'a>],
    ) -> io::Result<Self> {
        #[cfg(unix)]
        let (bell, rings) = crate::signals::pipe()?;
        let (stop, stopped) = mpsc::channel();
        let (tells, lost) = mpsc::channel();
        let seen = around.iter().map(|around| AroundHold {
            store: around.store,
            name: around.name,
            token: around.token,
            lapses: around.lapses,
            agent: around.agent,
            heard: instant(),
            at: instant(),
            is_over: false,
        });
        let mut seen: Vec<AroundHold<'_>> = seen.collect();
        std::thread::Builder::new()
            .name("tenure-around".to_owned())
            .spawn_scoped(scope, move || {
                while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                    for (index, seen) in seen.iter_mut().enumerate() {
                        if !seen.ends() {
                            continue;
                        }
                        if tells.send(index).is_err() {
                            return;
                        }
                        #[cfg(unix)]
                        let _ = rustix::io::write(&rings, &[1]);
                    }
                }
            })?;
        Ok(Self {
            lost,
            #[cfg(unix)]
            bell,
            _stop: stop,
        })
    }

    /// Becomes readable when a hold is over.
    #[cfg(unix)]
    pub(super) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The next hold that is over.
    pub(super) fn lost(&self) -> Option<usize> {
        #[cfg(unix)]
        {
            let mut buffer = [0; 64];
            while rustix::io::read(&self.bell, &mut buffer).is_ok_and(|read| read > 0) {}
        }
        self.lost.try_recv().ok()
    }
}
