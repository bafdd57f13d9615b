//! A thread that looks after any number of holds: it sleeps until something is due or has happened, asks their stores,
//! and tells each hold what follows.
//!
//! The thread starts with the first hold and ends with its home and the last hold. It renews a few holds together, and not
//! all of many at once. Where the store's files can be watched, the kernel says when one was touched. The thread looks at
//! holds that cannot be watched from time to time, so seldom that all of them together cost next to nothing.
//! A hold that ends within [`SETTLE`] costs this thread nothing but one look at a list of pending
//! holds.
//!
//! Where a hold lapses although its holder lives (a lease in etcd), this thread only keeps the time.
//! Another one (`worker`) asks the store, whose answers may take as long as a network does. A hold
//! without an answer has to learn that it is lost before other callers may have the lock.
//!
//! [`Life`] decides what is due and what an answer means.

use super::files::Files;
use super::kept::{Home, KeeperHold, Watching};
use super::pending::Ring;
use super::worker::{HoldAnswer, Worker};
use super::{Ask, Life, News, Step};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tenure_os::clock::{instant, nap};
use tenure_os::os::{self, Bell, BorrowedDescriptor, Descriptor, Notice, Ringer};
use tenure_store::StoreError;
use tenure_store::file::poll_readable;

/// How long a hold has to last before the thread looks after it.
const SETTLE: Duration = Duration::from_millis(20);

/// How long the thread sleeps at most. Nothing depends on it; a sleep has to have an end.
const NAP_MAX: Duration = Duration::from_secs(3_600);

/// With N holds, the thread looks at an unwatched one at most once in N times this long.
const LOOK_SHARE: Duration = Duration::from_millis(2);

/// How often the thread checks that the folder of the locks is still where it was. No kernel reports
/// what happens to the folders above it.
const PLACE_LOOK: Duration = Duration::from_secs(3);

/// How often the thread looks at a hold that is not watched, and how long it sleeps after a poll that
/// failed.
const LOOK: Duration = Duration::from_secs(1);

/// How many holds that were taken in a row are renewed in a row: their data lie side by side, here and
/// in the kernel. With ten thousand holds, none of them in any cache by the time it is renewed, a
/// heartbeat took a sixth less time.
const NEIGHBOURS: u64 = 64;

/// After this many heartbeats in a row the thread reads what the kernel reports of files. The kernel's
/// list is finite, and a request to stop should not wait for thousands of heartbeats.
const BEATS_MAX: usize = 64;

impl Ring for Ringer {
    fn ring(&self) {
        Self::ring(self);
    }
}

/// Has a hold looked after, for as long as it is used elsewhere.
///
/// # Errors
/// - The system's answer, if it gives no thread.
pub fn keep<H: Home>(home: &Arc<H>, hold: &Arc<H::Hold>) -> io::Result<()> {
    let start = || start(Arc::downgrade(home));
    home.pending().add(hold, instant(), start)
}

/// Starts the thread. It ends once the ringer that this returns is dropped.
fn start<H: Home>(home: Weak<H>) -> io::Result<Ringer> {
    let (hears, wake) = os::bell()?;
    std::thread::Builder::new()
        .name("tenure-renewer".to_owned())
        .spawn(move || attend(&home, &hears))?;
    Ok(wake)
}

fn attend<H: Home>(home: &Weak<H>, hears: &Bell) {
    let mut renewer = Renewer {
        kept: BTreeMap::new(),
        due: BTreeSet::new(),
        notices: HashMap::new(),
        next_id: 0,
        files: None,
        worker: None,
        place: None,
    };
    let mut rest = Duration::ZERO;
    loop {
        let mut fds: Vec<BorrowedDescriptor<'_>> = vec![hears.descriptor()];
        fds.extend(renewer.files.as_ref().map(Files::descriptor));
        fds.extend(renewer.worker.as_ref().map(Worker::bell));
        fds.extend(renewer.notices.values().map(os::borrow));
        if poll_readable(&fds, rest, None).is_err() {
            // Out of memory, say. Heartbeats go on.
            nap(LOOK);
        }
        if hears.hear() {
            return;
        }
        let Some(home) = home.upgrade() else {
            return;
        };
        rest = renewer.turn(&*home);
    }
}

/// What the thread knows of a hold.
struct HoldEntry<T> {
    hold: Weak<T>,
    life: Life,
    /// When it is looked after next, in milliseconds of the boot clock.
    due_ms: u64,
    /// Whether the hold lapses although its holder lives, so that the worker asks its store.
    lapses: bool,
    /// The number of its file's watch.
    watch: Option<i32>,
}

/// The thread's side.
struct Renewer<T> {
    kept: BTreeMap<u64, HoldEntry<T>>,
    due: BTreeSet<(u64, u64)>,
    /// Becomes readable once something has happened to a hold, where the store reports that. Kept apart
    /// from the holds, because the thread goes through these descriptors at every wake-up.
    notices: HashMap<u64, Descriptor>,
    next_id: u64,
    files: Option<Files>,
    worker: Option<Worker<T>>,
    /// How often the place of the locks had moved at the last look, and when the next look is due;
    /// `None` before the first hold.
    place: Option<(u64, Instant)>,
}

impl<T: KeeperHold> Renewer<T> {
    /// Does what is due; returns how long there is nothing to do.
    fn turn(&mut self, home: &impl Home<Hold = T>) -> Duration {
        let (settled, next) = home.pending().settled(instant(), SETTLE);
        for hold in settled {
            self.take(home, &hold);
        }
        self.look_at(home, &[]);
        self.look_at_place(home);
        self.hear(home);
        self.do_what_is_due(home);
        let rest = match (home.watching(), self.due.first()) {
            (_, None) => NAP_MAX,
            (Watching::Always(nap), Some(_)) => *nap,
            (Watching::Files | Watching::Looks(_) | Watching::Both(_), Some((at_ms, _))) => {
                Duration::from_millis(at_ms.saturating_sub(home.clock().now().boot_ms))
            }
        };
        // A millisecond more than to the instant itself, so that none is looked at too early.
        let mut rest = rest.saturating_add(Duration::from_millis(1));
        if let (Some((_, at)), false) = (self.place, self.kept.is_empty()) {
            rest = rest.min(at.saturating_duration_since(instant()));
        }
        next.map_or(rest, |next| next.min(rest)).min(NAP_MAX)
    }

    fn do_what_is_due(&mut self, home: &impl Home<Hold = T>) {
        let now_ms = home.clock().now().boot_ms;
        let all = matches!(home.watching(), Watching::Always(_));
        let due = self.due.iter();
        let due = due.take_while(|(at_ms, _)| all || *at_ms <= now_ms);
        let due: Vec<u64> = due.map(|(_, id)| *id).collect();
        let mut renewed = Vec::new();
        for id in due {
            let Some(kept) = self.kept.get_mut(&id) else {
                continue;
            };
            // Our process may have been stopped: its holder must know before anything else is asked.
            let lapsed = kept.life.lapse(now_ms);
            if lapsed.lost.is_some() {
                self.tell(home, id, Ask::Renew, lapsed, None);
                continue;
            }
            match kept.life.due(now_ms) {
                Step::Unanswered => {
                    let news = kept.life.unanswered(now_ms);
                    self.tell(home, id, Ask::Renew, news, None);
                }
                Step::Ask(Ask::Renew) => {
                    self.ask(home, id, Ask::Renew);
                    renewed.push(id);
                }
                Step::Ask(Ask::Look) => self.ask(home, id, Ask::Look),
                Step::Nothing if all => self.ask(home, id, Ask::Look),
                Step::Nothing => self.plan(id),
            }
            if renewed.len() == BEATS_MAX {
                self.look_at(home, &std::mem::take(&mut renewed));
            }
        }
        if !renewed.is_empty() {
            self.look_at(home, &renewed);
        }
    }

    /// Looks at the holds whose files were touched. It leaves out a hold that has just been renewed if
    /// that write was the only touch. Another process may come within the few microseconds between a
    /// heartbeat and the next one; the heartbeat that follows finds what it did.
    fn look_at(&mut self, home: &impl Home<Hold = T>, renewed: &[u64]) {
        let files = self.files.as_mut();
        let touched = files.map(|files| files.touched(renewed));
        for id in touched.into_iter().flatten() {
            self.ask(home, id, Ask::Look);
        }
    }

    /// Looks at all holds if their place has moved since the last time.
    fn look_at_place(&mut self, home: &impl Home<Hold = T>) {
        let now = instant();
        let Some((before, _)) = self.place.filter(|(_, at)| *at <= now) else {
            return;
        };
        if self.kept.is_empty() {
            return;
        }
        let moves = home.moves();
        self.place = Some((moves, now + PLACE_LOOK));
        if moves != before {
            let all: Vec<u64> = self.kept.keys().copied().collect();
            for id in all {
                self.ask(home, id, Ask::Look);
            }
        }
    }

    fn take(&mut self, home: &impl Home<Hold = T>, hold: &Weak<T>) {
        let Some(kept) = hold.upgrade() else {
            return;
        };
        let id = self.next_id;
        self.next_id += 1;
        let watches = matches!(home.watching(), Watching::Files | Watching::Both(_));
        let file = if watches { kept.file() } else { None };
        let watch = file.and_then(|file| {
            if self.files.is_none() {
                self.files = Files::new();
            }
            let files = self.files.as_mut();
            files.and_then(|files| files.watch(&file, id))
        });
        // Before the first look at the hold: every later move of the place is a change.
        if watches && self.place.is_none() {
            self.place = Some((home.moves(), instant() + PLACE_LOOK));
        }
        let lapses = kept.lapses();
        // Somewhere within the time that the schedule leaves: not all at once. Over a network no two
        // holds have the same moment, because one would wait for the other's answer.
        let moment = if lapses { id } else { id / NEIGHBOURS };
        let share = moment.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let share = u32::try_from(share).unwrap_or_default();
        self.kept.insert(
            id,
            HoldEntry {
                hold: hold.clone(),
                life: kept.life().among_many(share),
                due_ms: home.clock().now().boot_ms,
                lapses,
                watch,
            },
        );
        if let Some(notices) = lapses.then(|| kept.notices()).flatten() {
            self.notices.insert(id, notices);
        }
        self.plan_looks(home, id, false);
        // At once: the kernel does not report what happened before the watch was there.
        self.ask(home, id, Ask::Look);
    }

    /// Asks about a hold, or has the worker do it.
    fn ask(&mut self, home: &impl Home<Hold = T>, id: u64, ask: Ask) {
        let Some(kept) = self.kept.get_mut(&id) else {
            return;
        };
        if ask == Ask::Look && !kept.life.may_look() {
            // The answer that is under way may be older than what was noticed.
            kept.life.touched();
            self.plan(id);
            return;
        }
        let now = home.clock().now();
        kept.life.begin(ask, now.boot_ms);
        let asked = (ask == Ask::Renew).then_some(now);
        if kept.lapses && self.worker.is_none() {
            self.worker = Worker::start();
        }
        if let (true, Some(worker)) = (kept.lapses, &self.worker) {
            worker.ask(id, &kept.hold, asked);
            self.plan(id);
            return;
        }
        let hold = kept.hold.upgrade();
        let found = hold.as_ref().and_then(|hold| hold.asked(asked.as_ref()));
        self.found(home, HoldAnswer { id, ask, found });
    }

    /// Takes the worker's answers, and the notices of the store.
    fn hear(&mut self, home: &impl Home<Hold = T>) {
        let answers = self.worker.as_ref().map(Worker::answers);
        for answer in answers.into_iter().flatten() {
            self.found(home, answer);
        }
        let notices = self.notices.iter();
        let notices = notices.map(|(id, notices)| (*id, os::read_all(notices)));
        let notices: Vec<(u64, Notice)> = notices
            .filter(|(_, told)| *told != Notice::Nothing)
            .collect();
        for (id, told) in notices {
            if told == Notice::Ended {
                // The hold has gone, or its store. A descriptor that has ended would wake us for ever.
                self.notices.remove(&id);
                self.plan_looks(home, id, true);
            }
            self.ask(home, id, Ask::Look);
        }
    }

    /// Notes what was found of a hold, and when to look again.
    fn found(&mut self, home: &impl Home<Hold = T>, answer: HoldAnswer) {
        let HoldAnswer { id, ask, found } = answer;
        let Some(kept) = self.kept.get_mut(&id) else {
            return;
        };
        let Some(found) = found else {
            self.forget(id);
            return;
        };
        let news = kept.life.answered(ask, &found, home.clock().now().boot_ms);
        self.tell(home, id, ask, news, found.err());
    }

    /// Tells a hold what was found, and plans what follows.
    fn tell(
        &mut self,
        home: &impl Home<Hold = T>,
        id: u64,
        ask: Ask,
        news: News,
        error: Option<StoreError>,
    ) {
        let hold = self.kept.get(&id).and_then(|kept| kept.hold.upgrade());
        let is_unsure = news.is_unsure;
        if hold.is_some_and(|hold| hold.told(ask, news, error)) {
            self.plan_looks(home, id, is_unsure);
            self.plan(id);
        } else {
            self.forget(id);
        }
    }

    /// Plans the next look at a hold that nothing tells of, or of which the last look has shown too little.
    fn plan_looks(&mut self, home: &impl Home<Hold = T>, id: u64, is_unsure: bool) {
        let looks = self.look_interval(home.watching());
        let is_told = !is_unsure
            && !matches!(home.watching(), Watching::Both(_))
            && (self.notices.contains_key(&id)
                || self.kept.get(&id).is_some_and(|kept| kept.watch.is_some()));
        if let Some(kept) = self.kept.get_mut(&id) {
            let looks_ms = u64::try_from(looks.as_millis()).unwrap_or(u64::MAX);
            let at_ms = home.clock().now().boot_ms.saturating_add(looks_ms);
            kept.life.look_at((!is_told).then_some(at_ms));
        }
    }

    /// Notes when a hold has to be looked after again.
    fn plan(&mut self, id: u64) {
        if let Some(kept) = self.kept.get_mut(&id) {
            self.due.remove(&(kept.due_ms, id));
            // The answer wakes the thread; only the end of the lease does not wait for it.
            kept.due_ms = kept.life.next_ms().unwrap_or(u64::MAX);
            self.due.insert((kept.due_ms, id));
        }
    }

    fn forget(&mut self, id: u64) {
        let Some(kept) = self.kept.remove(&id) else {
            return;
        };
        self.due.remove(&(kept.due_ms, id));
        self.notices.remove(&id);
        if let (Some(files), Some(watch)) = (&mut self.files, kept.watch) {
            files.forget(watch, id);
        }
    }

    /// How often the thread looks at a hold that is not watched.
    fn look_interval(&self, watching: &Watching) -> Duration {
        let count = u32::try_from(self.kept.len()).unwrap_or(u32::MAX);
        match watching {
            Watching::Files => LOOK.max(LOOK_SHARE.saturating_mul(count)),
            Watching::Looks(looks) | Watching::Both(looks) => {
                (*looks).max(LOOK_SHARE.saturating_mul(count))
            }
            Watching::Always(_) => Duration::ZERO,
        }
    }
}
