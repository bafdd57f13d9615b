//! Reads the locks and the audit in a thread of its own, and tells the screen what it found.
//!
//! Locks in files are read when the kernel reports a change of their folder: a grant, a release, a waiter, the death of a
//! process that had a lock. What it reports of no file (a stopped process) is found at the interval, at which locks on servers
//! are read, too. **Reading is never more than a small share of a core**: the interval grows with what a look takes.

use super::past::Past;
use crate::command::check;
use crate::command::session::Session;
use crate::output::Output;
use crate::render::Reporter;
use crate::render::lock::LockView;
use crate::signals::for_a_thread;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tenure_core::LockName;
use tenure_engine::audit::{Entry, Follower};
use tenure_os::clock::{Clock, instant, since};
use tenure_os::os::{self, Bell, Ringer, Watch, WatchFor};

/// The shortest time between two looks, however much happens.
const PAUSE: Duration = Duration::from_millis(150);

/// How many times as long as a look the pause is that follows it: a tenth of a core where much happens, and a third of a hundredth
/// where nothing does.
const BUSY: u32 = 10;
const IDLE: u32 = 300;

/// How many folders are watched at most: records may stand anywhere.
const FOLDERS_MAX: usize = 64;

/// What a look found.
pub(super) enum Found {
    Locks(Vec<LockView>),
    /// The locks could not be read.
    Nothing(String),
    Events(Vec<Entry>),
    /// What became of a change that a key asked for.
    Done(String),
}

/// The thread, as the screen sees it.
pub(super) struct Looker {
    pub(super) found: Receiver<Found>,
    /// Rings when something was found.
    pub(super) bell: Bell,
    /// Wakes the thread.
    wake: Ringer,
    teller: Teller,
}

/// Tells the screen.
#[derive(Clone)]
struct Teller {
    found: Sender<Found>,
    bell: Arc<Ringer>,
}

impl Teller {
    fn tell(&self, found: Found) {
        if self.found.send(found).is_ok() {
            self.bell.ring();
        }
    }
}

/// What the thread has.
struct Looks {
    session: Session,
    past: Past,
    interval: Duration,
    teller: Teller,
    woken: Bell,
    watch: Option<Watch>,
    watched: BTreeSet<PathBuf>,
    follower: Option<Follower>,
}

impl Looker {
    pub(super) fn start(session: Session, past: Past, interval: Duration) -> io::Result<Self> {
        let (bell, ringer) = os::bell()?;
        let (woken, wake) = os::bell()?;
        let (send, found) = channel();
        let teller = Teller {
            found: send,
            bell: Arc::new(ringer),
        };
        let mut looks = Looks {
            watch: session
                .place
                .is_folder()
                .then(Watch::new)
                .and_then(Result::ok),
            session,
            past,
            interval,
            teller: teller.clone(),
            woken,
            watched: BTreeSet::new(),
            follower: None,
        };
        for_a_thread(|| {
            std::thread::Builder::new()
                .name("looker".to_owned())
                .spawn(move || looks.go_on())
        })?;
        Ok(Self {
            found,
            bell,
            wake,
            teller,
        })
    }

    /// Has the locks read at once.
    pub(super) fn wake(&self) {
        self.wake.ring();
    }

    /// Does something that may take long, and tells what became of it.
    pub(super) fn beside(
        &self,
        action: impl FnOnce() -> String + Send + 'static,
    ) -> io::Result<()> {
        let teller = self.teller.clone();
        for_a_thread(|| {
            std::thread::Builder::new().spawn(move || teller.tell(Found::Done(action())))
        })?;
        Ok(())
    }
}

impl Looks {
    fn go_on(&mut self) {
        loop {
            if let Some(watch) = &self.watch {
                watch.settle();
            }
            self.watch_folders(None);
            let began = instant();
            let found = self.look();
            let cost = since(began);
            self.teller.tell(found);
            self.follow();
            let now = instant();
            let earliest = now + PAUSE.max(cost.saturating_mul(BUSY));
            let latest = now + self.interval.max(cost.saturating_mul(IDLE));
            self.sleep(earliest, latest);
        }
    }

    fn look(&mut self) -> Found {
        // What cannot be read of a lock stands in its row.
        let mut silent = Reporter::new(Output::Text, true, false, "top".to_owned());
        let mut views = Vec::new();
        match check::each(&self.session, &mut silent, |view| views.push(view)) {
            Ok(()) => {
                let names = views
                    .iter()
                    .filter_map(|view| LockName::new(&view.name).ok());
                let names: Vec<_> = names.collect();
                for name in &names {
                    self.watch_folders(Some(name));
                }
                Found::Locks(views)
            }
            Err(failure) => Found::Nothing(failure.message.clone()),
        }
    }

    /// Watches the folder of a lock, or of all of them.
    fn watch_folders(&mut self, name: Option<&LockName>) {
        let Some(watch) = &self.watch else {
            return;
        };
        let folder = match name {
            None => Some(self.session.place.folder.clone()),
            Some(name) => {
                let file = self.session.store.location(name).file;
                file.and_then(|file| file.parent().map(PathBuf::from))
            }
        };
        let Some(folder) = folder else {
            return;
        };
        // The folder of all locks may have been replaced; it is asked for anew each time.
        let is_new = !self.watched.contains(&folder) && self.watched.len() < FOLDERS_MAX;
        if (is_new || name.is_none()) && watch.add(&folder, WatchFor::Ends).is_ok() {
            self.watched.insert(folder);
        }
    }

    /// Tells what was written to the audit since the last time.
    fn follow(&mut self) {
        if self.follower.is_none() {
            let now_ms = self.session.clock.now().wall_us / 1_000;
            let events = self.past.to_follow(now_ms);
            self.follower = events.ok().map(tenure_engine::audit::Events::follow);
        }
        let looked = self.follower.as_mut().map(Follower::look);
        match looked {
            Some(Ok(entries)) if !entries.is_empty() => self.teller.tell(Found::Events(entries)),
            // A folder that cannot be read now may be read later.
            Some(Ok(_) | Err(_)) | None => {}
        }
    }

    /// Sleeps until it is time for a look: at `latest`, and from `earliest` on when something has changed.
    fn sleep(&mut self, earliest: Instant, latest: Instant) {
        let mut is_changed = false;
        loop {
            let until = if is_changed { earliest } else { latest };
            let rest = until.saturating_duration_since(instant());
            if rest.is_zero() {
                return;
            }
            let notices = self.follower.as_ref().map(Follower::notices);
            let (notices, nap) = notices.unwrap_or((None, rest));
            let watch = self.watch.as_ref().filter(|_| !is_changed);
            let woken = self.woken.descriptor();
            let mut fds = vec![PollFd::new(&woken, PollFlags::IN)];
            let watched = watch.map(|watch| watch.descriptor());
            if let Some(watched) = &watched {
                fds.push(PollFd::new(watched, PollFlags::IN));
            }
            if let Some(notices) = &notices {
                fds.push(PollFd::new(notices, PollFlags::IN));
            }
            let timeout = Timespec::try_from(rest.min(nap)).ok();
            let _ = poll(&mut fds, timeout.as_ref());
            let ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
            let (is_woken, is_watched) = (ready(0), watched.is_some() && ready(1));
            drop(fds);
            is_changed |= is_watched;
            if is_woken {
                self.woken.hear();
                return;
            }
            self.follow();
        }
    }
}
