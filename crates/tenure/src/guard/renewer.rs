//! The one thread of a manager: heartbeats, requests to stop, and lost locks, for any number of
//! guards.
//!
//! It starts with the first guard and ends with the manager and its last guard. It renews each hold
//! three times within its ttl, a few together, so that not all of many holds are renewed at once. Where
//! the store's files can be watched, the kernel says when one was touched. The thread looks at holds
//! that cannot be watched from time to time, so seldom that all of them together cost next to nothing.
//! A hold that ends within [`SETTLE`] costs this thread nothing but one look at a list of pending
//! holds.
//!
//! Where a hold lapses although its holder lives (a lease in etcd), this thread only keeps the time.
//! Another one (`worker`) asks the store, whose answers may take as long as a network does. A hold
//! without an answer has to learn that it is lost before other callers may have the lock.
//!
//! `hold` decides what follows from an answer.

use super::hold::Hold;
use super::pending::Ring;
use super::watching::Watching;
use super::worker::{Answer, Worker};
use super::{GuardState, Shared, log};
use crate::clock::instant;
use crate::os::{self, Bell, BorrowedDescriptor, Descriptor, Ringer, Told};
use crate::store::file::poll_readable;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::sync::Weak;
use std::time::{Duration, Instant};
use tenure_core::{Due, Schedule};

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

/// Heartbeats that are due within this many milliseconds are done together: a wake-up costs as much as
/// a heartbeat.
const TOGETHER_MS: u64 = 250;

/// This many holds that were taken in a row are renewed in a row: their data lie side by side, here and
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

/// Starts the thread. It ends once the ringer that this returns is dropped.
pub(super) fn start(shared: Weak<Shared>) -> io::Result<Ringer> {
    let (hears, wake) = os::bell()?;
    std::thread::Builder::new()
        .name("tenure-renewer".to_owned())
        .spawn(move || keep(&shared, &hears))?;
    Ok(wake)
}

fn keep(shared: &Weak<Shared>, hears: &Bell) {
    let mut renewer = Renewer {
        kept: BTreeMap::new(),
        due: BTreeSet::new(),
        notices: HashMap::new(),
        next_id: 0,
        files: None,
        worker: None,
        place: None,
    };
    let mut nap = Duration::ZERO;
    loop {
        let mut fds: Vec<BorrowedDescriptor<'_>> = vec![hears.descriptor()];
        fds.extend(renewer.files.as_ref().map(files::Files::descriptor));
        fds.extend(renewer.worker.as_ref().map(Worker::bell));
        fds.extend(renewer.notices.values().map(os::borrow));
        if poll_readable(&fds, nap, None).is_err() {
            // Out of memory, say. Heartbeats go on.
            tenure_engine::clock::nap(LOOK);
        }
        if hears.hear() {
            return;
        }
        let Some(shared) = shared.upgrade() else {
            return;
        };
        nap = renewer.turn(&shared);
    }
}

/// What the thread knows of a hold. Times are of the boot clock, in milliseconds.
struct Kept {
    hold: Weak<Hold>,
    schedule: Schedule,
    /// When it is renewed: within what its schedule allows, together with others.
    renew_at_ms: u64,
    due_ms: u64,
    /// The worker was asked whether it stands, and has not answered yet.
    checking: bool,
    /// It lapses although its holder lives, so the worker asks its store.
    lapses: bool,
    /// The number of its file's watch.
    watch: Option<i32>,
}

/// The thread's side.
struct Renewer {
    kept: BTreeMap<u64, Kept>,
    due: BTreeSet<(u64, u64)>,
    /// Becomes readable once something has happened to a hold, where the store reports that. Kept apart
    /// from the holds, because the thread goes through these descriptors at every wake-up.
    notices: HashMap<u64, Descriptor>,
    next_id: u64,
    files: Option<files::Files>,
    worker: Option<Worker>,
    /// How often the place of the locks had moved at the last look, and when the next look is due;
    /// `None` before the first hold.
    place: Option<(u64, Instant)>,
}

impl Renewer {
    /// Does what is due; returns how long there is nothing to do.
    fn turn(&mut self, shared: &Shared) -> Duration {
        let (settled, next) = shared.pending.settled(instant(), SETTLE);
        for hold in settled {
            self.take(shared, &hold);
        }
        self.look_at(shared, &[]);
        self.look_at_place(shared);
        self.hear(shared);
        let now_ms = shared.clock.now().boot_ms;
        let all = matches!(shared.watching, Watching::Always(_));
        let due: Vec<u64> = self
            .due
            .iter()
            .take_while(|(at_ms, _)| all || *at_ms <= now_ms)
            .map(|(_, id)| *id)
            .collect();
        let mut renewed = Vec::new();
        for id in due {
            let Some(kept) = self.kept.get(&id) else {
                continue;
            };
            if kept.schedule.due(now_ms) == Due::Tell {
                self.lapse(shared, id);
                continue;
            }
            let renews = kept.renew_at_ms <= now_ms;
            self.look(shared, id, renews);
            if renews {
                renewed.push(id);
            }
            if renewed.len() == BEATS_MAX {
                self.look_at(shared, &std::mem::take(&mut renewed));
            }
        }
        if !renewed.is_empty() {
            self.look_at(shared, &renewed);
        }
        let rest = match (&shared.watching, self.due.first()) {
            (_, None) => NAP_MAX,
            (Watching::Always(nap), Some(_)) => *nap,
            (Watching::Files | Watching::Looks(_), Some((at_ms, _))) => {
                Duration::from_millis(at_ms.saturating_sub(shared.clock.now().boot_ms))
            }
        };
        // A millisecond more than to the instant itself, so that none is looked at too early.
        let mut rest = rest.saturating_add(Duration::from_millis(1));
        if let (Some((_, at)), false) = (self.place, self.kept.is_empty()) {
            rest = rest.min(at.saturating_duration_since(instant()));
        }
        next.map_or(rest, |next| next.min(rest)).min(NAP_MAX)
    }

    /// Looks at the holds whose files were touched. It leaves out a hold that has just been renewed if
    /// that write was the only touch. Another process may come within the few microseconds between a
    /// heartbeat and the next one; the heartbeat that follows finds what it did.
    fn look_at(&mut self, shared: &Shared, renewed: &[u64]) {
        let files = self.files.as_mut();
        let touched = files.map(|files| files.touched(renewed));
        for id in touched.into_iter().flatten() {
            self.look(shared, id, false);
        }
    }

    /// Looks at all holds if their place has moved since the last time.
    fn look_at_place(&mut self, shared: &Shared) {
        let now = instant();
        let Some((before, _)) = self.place.filter(|(_, at)| *at <= now) else {
            return;
        };
        if self.kept.is_empty() {
            return;
        }
        let moves = shared.store.moves();
        self.place = Some((moves, now + PLACE_LOOK));
        if moves != before {
            let all: Vec<u64> = self.kept.keys().copied().collect();
            for id in all {
                self.look(shared, id, false);
            }
        }
    }

    fn take(&mut self, shared: &Shared, hold: &Weak<Hold>) {
        let Some(kept) = hold.upgrade() else {
            return;
        };
        let id = self.next_id;
        self.next_id += 1;
        let watch = match shared.watching {
            Watching::Files => {
                if self.files.is_none() {
                    self.files = files::Files::new();
                }
                let place = shared.store.location(kept.name());
                let place = place.file.map(|_| place.shown);
                let files = self.files.as_mut().zip(place);
                files.and_then(|(files, place)| files.watch(&place, id))
            }
            Watching::Looks(_) | Watching::Always(_) => None,
        };
        // Before the first look at the hold: every later move of the place is a change.
        if matches!(shared.watching, Watching::Files) && self.place.is_none() {
            self.place = Some((shared.store.moves(), instant() + PLACE_LOOK));
        }
        let now_ms = shared.clock.now().boot_ms;
        let schedule = kept.schedule();
        let lapses = kept.lapses();
        // Somewhere within the time that the schedule leaves: not all at once. Over a network no two
        // holds have the same moment, because one would wait for the other's answer.
        let moment = if lapses { id } else { id / NEIGHBOURS };
        let share = moment.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        let renew_at_ms = schedule.next().map_or(now_ms, |next| {
            let early_ms = (u128::from(next.early_ms) * u128::from(share)) >> 24;
            let early_ms = u64::try_from(early_ms).unwrap_or(0);
            next.at_ms.saturating_sub(early_ms)
        });
        self.kept.insert(
            id,
            Kept {
                hold: hold.clone(),
                renew_at_ms: together(renew_at_ms, schedule.interval_ms()),
                schedule,
                due_ms: now_ms,
                checking: false,
                lapses,
                watch,
            },
        );
        if let Some(notices) = lapses.then(|| kept.notices()).flatten() {
            self.notices.insert(id, notices.descriptor);
        }
        // At once: the kernel does not report what happened before the watch was there.
        self.look(shared, id, false);
    }

    /// Looks at a hold, or has the worker do it.
    fn look(&mut self, shared: &Shared, id: u64, renews: bool) {
        let Some(kept) = self.kept.get_mut(&id) else {
            return;
        };
        if kept.schedule.is_asking() || (kept.checking && !renews) {
            return;
        }
        let asked = renews.then(|| shared.clock.now());
        if let Some(asked) = &asked {
            kept.schedule.begin(asked.boot_ms);
        }
        if kept.lapses && self.worker.is_none() {
            self.worker = Worker::start();
        }
        if let (true, Some(worker)) = (kept.lapses, &self.worker) {
            kept.checking |= !renews;
            worker.ask(id, &kept.hold, asked);
            self.plan(shared, id);
            return;
        }
        let hold = kept.hold.upgrade();
        let found = hold.as_ref().and_then(|hold| hold.asked(asked.as_ref()));
        self.found(shared, Answer { id, renews, found });
    }

    /// Takes the worker's answers, and the notices of the store.
    fn hear(&mut self, shared: &Shared) {
        let answers = self.worker.as_ref().map(Worker::answers);
        for answer in answers.into_iter().flatten() {
            if let Some(kept) = self.kept.get_mut(&answer.id) {
                kept.checking &= answer.renews;
            }
            self.found(shared, answer);
        }
        let notices = self
            .notices
            .iter()
            .map(|(id, notices)| (*id, os::read_all(notices)));
        let notices: Vec<(u64, Told)> =
            notices.filter(|(_, told)| *told != Told::Nothing).collect();
        for (id, told) in notices {
            if told == Told::Ended {
                // The hold has gone, or its store. A descriptor that has ended would wake us for ever.
                self.notices.remove(&id);
            }
            self.look(shared, id, false);
        }
    }

    /// Notes what was found of a hold, and when to look again.
    fn found(&mut self, shared: &Shared, answer: Answer) {
        let Answer { id, renews, found } = answer;
        let Some(kept) = self.kept.get_mut(&id) else {
            return;
        };
        let hold = kept.hold.upgrade();
        let ended = match (&hold, found) {
            (None, _) | (_, None) | (Some(_), Some(Ok(GuardState::Lost))) => true,
            (Some(_), Some(Ok(GuardState::Held | GuardState::StopRequested))) => {
                if renews {
                    kept.schedule.renewed();
                }
                false
            }
            (Some(hold), Some(Err(error))) => {
                let name = hold.name().clone();
                let told = move || log::renew_failed(&name, &error);
                shared.logs.tell_unless_busy(told);
                let now_ms = shared.clock.now().boot_ms;
                let failed = renews.then(|| kept.schedule.failed(now_ms));
                // Other callers may count it as stale by its silence. Its holder has to know before
                // they do.
                let is_over = failed.is_some_and(|failed| failed.runs_out_ms.is_some());
                if is_over {
                    hold.is_lost_by_silence();
                }
                is_over
            }
        };
        if ended {
            self.forget(id);
            return;
        }
        if renews && let Some(next) = kept.schedule.next() {
            kept.renew_at_ms = together(next.at_ms, kept.schedule.interval_ms());
        }
        self.plan(shared, id);
    }

    /// Notes when a hold has to be looked at again.
    fn plan(&mut self, shared: &Shared, id: u64) {
        let looks = self.look_interval(shared);
        let Some(kept) = self.kept.get(&id) else {
            return;
        };
        let is_told = kept.watch.is_some() || self.notices.contains_key(&id);
        let due_ms = match kept.schedule.next() {
            // The answer wakes the thread; only the end of the lease does not wait for it.
            next if kept.schedule.is_asking() => next.map_or(u64::MAX, |next| next.at_ms),
            _ if is_told || kept.checking => kept.renew_at_ms,
            _ => {
                let looks_ms = u64::try_from(looks.as_millis()).unwrap_or(u64::MAX);
                let now_ms = shared.clock.now().boot_ms;
                kept.renew_at_ms.min(now_ms.saturating_add(looks_ms))
            }
        };
        self.due_at(id, due_ms);
    }

    /// There is no more time to wait for the answer to a heartbeat: the hold counts as lost.
    fn lapse(&mut self, shared: &Shared, id: u64) {
        let Some(kept) = self.kept.get_mut(&id) else {
            return;
        };
        let _ = kept.schedule.unanswered(shared.clock.now().boot_ms);
        if let Some(hold) = kept.hold.upgrade() {
            hold.is_lost_by_silence();
        }
        self.forget(id);
    }

    fn due_at(&mut self, id: u64, due_ms: u64) {
        if let Some(kept) = self.kept.get_mut(&id) {
            self.due.remove(&(kept.due_ms, id));
            kept.due_ms = due_ms;
            self.due.insert((due_ms, id));
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
    fn look_interval(&self, shared: &Shared) -> Duration {
        let count = u32::try_from(self.kept.len()).unwrap_or(u32::MAX);
        match shared.watching {
            Watching::Files => LOOK.max(LOOK_SHARE.saturating_mul(count)),
            Watching::Looks(looks) => looks.max(LOOK_SHARE.saturating_mul(count)),
            Watching::Always(_) => Duration::ZERO,
        }
    }
}

/// The time at which a heartbeat is done with others: never later than `at_ms`, and so little earlier that
/// the interval stays what it is.
fn together(at_ms: u64, interval_ms: u64) -> u64 {
    let step = TOGETHER_MS.min(interval_ms / 16).max(1);
    at_ms - at_ms % step
}

/// Files that the kernel watches, each under a number of its own.
#[cfg(target_os = "linux")]
mod files {
    use crate::os::{BorrowedDescriptor, Descriptor, borrow};
    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
    use std::collections::HashMap;
    use std::mem::MaybeUninit;

    /// One instance for all holds.
    pub(super) struct Files {
        watch: Descriptor,
        /// A file may be the lock of several holds.
        holds: HashMap<i32, Vec<u64>>,
    }

    impl Files {
        /// `None` where the system gives no more instances.
        pub(super) fn new() -> Option<Self> {
            let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
            Some(Self {
                watch,
                holds: HashMap::new(),
            })
        }

        pub(super) fn descriptor(&self) -> BorrowedDescriptor<'_> {
            borrow(&self.watch)
        }

        /// `None` where the system gives no more watches.
        pub(super) fn watch(&mut self, file: &str, hold: u64) -> Option<i32> {
            let what = WatchFlags::MODIFY
                | WatchFlags::ATTRIB
                | WatchFlags::DELETE_SELF
                | WatchFlags::MOVE_SELF;
            let number = inotify::add_watch(&self.watch, file, what).ok()?;
            self.holds.entry(number).or_default().push(hold);
            Some(number)
        }

        pub(super) fn forget(&mut self, number: i32, hold: u64) {
            if let Some(holds) = self.holds.get_mut(&number) {
                holds.retain(|other| *other != hold);
                if holds.is_empty() {
                    self.holds.remove(&number);
                    // A file that is gone has taken its watch with it.
                    let _ = inotify::remove_watch(&self.watch, number);
                }
            }
        }

        /// The holds whose files another process touched, as far as that can be seen. A heartbeat is
        /// one write, which the kernel reports once. It also reports equal events in a row once. So a
        /// change between two heartbeats of ours to one file cannot be told from them: then all holds
        /// of that file are returned.
        pub(super) fn touched(&mut self, renewed: &[u64]) -> Vec<u64> {
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut reader = inotify::Reader::new(&self.watch, &mut buffer);
            let mut once: HashMap<i32, bool> = HashMap::new();
            let mut touched = Vec::new();
            while let Ok(event) = reader.next() {
                if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                    touched.extend(self.holds.values().flatten());
                }
                let is_write = event.events() == ReadFlags::MODIFY;
                once.entry(event.wd())
                    .and_modify(|once| *once = false)
                    .or_insert(is_write);
            }
            for (number, once) in once {
                let holds = self.holds.get(&number).map_or(&[][..], Vec::as_slice);
                let is_ours = |hold: &&u64| renewed.contains(hold);
                let ours_alone = once && holds.iter().filter(is_ours).count() == 1;
                touched.extend(holds.iter().filter(|hold| !(ours_alone && is_ours(hold))));
            }
            touched.sort_unstable();
            touched.dedup();
            touched
        }
    }
}

/// No kernel reports on files here: the thread looks at every hold from time to time.
#[cfg(not(target_os = "linux"))]
mod files {
    use crate::os::BorrowedDescriptor;
    use std::convert::Infallible;

    /// There are none.
    pub(super) struct Files(Infallible);

    impl Files {
        pub(super) fn new() -> Option<Self> {
            None
        }

        pub(super) fn descriptor(&self) -> BorrowedDescriptor<'_> {
            match self.0 {}
        }

        pub(super) fn watch(&mut self, _: &str, _: u64) -> Option<i32> {
            match self.0 {}
        }

        pub(super) fn forget(&mut self, _: i32, _: u64) {
            match self.0 {}
        }

        pub(super) fn touched(&mut self, _: &[u64]) -> Vec<u64> {
            match self.0 {}
        }
    }
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use super::files::Files;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    /// Two watched files, of which the second is the lock of two holds.
    fn watched(folder: &tempfile::TempDir) -> (Files, [File; 2]) {
        let mut files = Files::new().expect("an inotify instance");
        let opened = ["a", "b"].map(|name| {
            let path = folder.path().join(name);
            let file = File::create(&path).expect("a file");
            let path = path.to_str().expect("a plain name");
            let holds: &[u64] = if name == "a" { &[1] } else { &[2, 3] };
            for hold in holds {
                assert!(files.watch(path, *hold).is_some(), "watched");
            }
            file
        });
        (files, opened)
    }

    fn write(file: &File) {
        file.write_all_at(b"x", 0).expect("a write");
    }

    #[test]
    fn a_heartbeats_own_write_is_told_from_what_others_do() {
        let folder = tempfile::tempdir().expect("a folder");
        let (mut files, [a, b]) = watched(&folder);
        write(&a);
        assert!(files.touched(&[1]).is_empty(), "our own");
        write(&a);
        assert_eq!(files.touched(&[]), [1], "another process's");
        write(&a);
        write(&b);
        assert_eq!(files.touched(&[1, 2]), [3], "the other hold of that file");
        write(&a);
        write(&b);
        write(&a);
        let all = files.touched(&[1, 2, 3]);
        assert_eq!(all, [1, 2, 3], "one of the two is not ours");
        for _ in 0..3 {
            write(&b);
        }
        let both = files.touched(&[2, 3]);
        assert_eq!(
            both,
            [2, 3],
            "another process may have come between two of ours"
        );
        write(&a);
        crate::os::touch(&a).expect("its own file");
        assert_eq!(files.touched(&[1]), [1], "asked to stop beside a heartbeat");
        write(&a);
        std::fs::rename(folder.path().join("a"), folder.path().join("c")).expect("a file");
        assert_eq!(files.touched(&[1]), [1], "and gone beside one");
        assert!(files.touched(&[]).is_empty(), "told once");
    }
}
