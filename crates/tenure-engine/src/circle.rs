//! Circles of waits (deadlocks), between runs and programs: a holder that waits for another lock writes that down in its
//! hold. A waiter that finds a circle of such waits, and is the youngest in it, is the victim: its wait ends.
//!
//! Each waiter writes first and looks afterwards, again and again. So of the waiters that close a
//! circle at least the last one sees all of it, and the others do at their next look. All of them
//! compare the same instants and find the same youngest. A note names the ticket that waits, and counts
//! only while that claim does, so the note of a killed waiter deceives no other.
//!
//! A hold has room for one note. Of several waits at once under one hold the first is noted, and the
//! next one as soon as that is over.
//!
//! Only native locks take part. Which holds a caller waits under, the caller says.

use crate::engine::Waiting;
use crate::inherited::{self, Folder, Hold, kin_of};
use std::fmt;
use std::path::Path;
use tenure_core::{Claim, Host, LockName, Mode, Standing, WaitingFor};
use tenure_os::clock::Clock;
use tenure_os::process::Kin;
use tenure_store::{Reading, Store, Verbs};

/// How many locks a circle may have. Real ones have two or three.
const LENGTH_MAX: usize = 64;

/// A wait in a circle: when it began, and its lock and ticket, which decide between two that began
/// together.
type Wait = (u64, Folder, String, u64);

/// Opens the other places that a note or a hold names.
pub trait Elsewhere {
    /// The native locks of a folder, or of the servers of a URL; `None` for a place that this caller does not open.
    fn open(&self, folder: &Path) -> Option<Box<dyn Store>>;
}

/// Where a wait takes place, and by which clock.
pub struct Scene<'a> {
    /// The folder of the locks, or the URL of their servers.
    pub folder: &'a Path,
    /// The locks there.
    pub store: &'a dyn Store,
    /// The host of the caller.
    pub host: &'a Host,
    /// The clock of the caller.
    pub clock: &'a (dyn Clock + Sync),
}

/// A wait by a caller that holds other locks.
pub struct NestedWait<'a, E: Elsewhere> {
    scene: Scene<'a>,
    elsewhere: E,
    name: &'a LockName,
    holds: Vec<Hold>,
    noted: Option<u64>,
}

impl<E: Elsewhere> fmt::Debug for NestedWait<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("NestedWait");
        shown.field("name", &self.name).field("holds", &self.holds);
        shown.finish_non_exhaustive()
    }
}

impl<'a, E: Elsewhere> NestedWait<'a, E> {
    /// For a caller that waits for a native lock under these holds; `None` for one without.
    pub fn of(
        scene: Scene<'a>,
        elsewhere: E,
        name: &'a LockName,
        holds: Vec<Hold>,
    ) -> Option<Self> {
        (!holds.is_empty()).then_some(Self {
            scene,
            elsewhere,
            name,
            holds,
            noted: None,
        })
    }

    /// Whether this wait is the youngest of a circle.
    pub fn gives_way(&mut self, waiting: &Waiting<'_>) -> bool {
        self.note(waiting.ticket);
        let Some(own) = waiting.entry.claim(waiting.ticket) else {
            return false;
        };
        let here = self.scene.folder;
        let mut path = vec![wait_of(own, here, self.name.as_str())];
        if !self.is_stuck(here, self.name.as_str(), own.mode, &mut path) {
            return false;
        }
        path.iter().max() == path.first()
    }

    /// Whether a claim of this mode on this lock cannot go on until this process does. `path` collects
    /// the waits that show it.
    fn is_stuck(&self, folder: &Path, name: &str, mode: Mode, path: &mut Vec<Wait>) -> bool {
        if path.len() > LENGTH_MAX {
            return false;
        }
        let Some(reading) = self.read(folder, name) else {
            return false;
        };
        let Some(entry) = reading.entry() else {
            return false;
        };
        let mut stuck = false;
        for holder in entry
            .granted()
            .filter(|claim| self.is_live(&reading, claim))
        {
            let before = path.len();
            let waits = self.is_mine(folder, name, holder) || self.waits_for_me(holder, path);
            if !waits {
                path.truncate(before);
            }
            match mode {
                // Any such holder keeps an exclusive or shared claim from going on.
                Mode::Exclusive | Mode::Shared if waits => return true,
                Mode::Exclusive | Mode::Shared => {}
                // A holder blocks as well that does not hold beside it: an exclusive one, or one of another
                // number of slots.
                Mode::Slots(_) if !mode.holds_beside(holder.mode) => {
                    if waits {
                        return true;
                    }
                }
                // A single free slot is enough.
                Mode::Slots(_) if !waits => return false,
                Mode::Slots(_) => stuck = true,
            }
        }
        stuck
    }

    fn waits_for_me(&self, holder: &Claim, path: &mut Vec<Wait>) -> bool {
        let Some(note) = &holder.waiting_for else {
            return false;
        };
        let folder = &*inherited::folder_of(&note.place);
        let Some(waiter) = self.waiter(note) else {
            return false;
        };
        let wait = wait_of(&waiter, folder, &note.name);
        if path.contains(&wait) {
            return false;
        }
        path.push(wait);
        self.is_stuck(folder, &note.name, waiter.mode, path)
    }

    /// The claim that a note names, if it waits.
    fn waiter(&self, note: &WaitingFor) -> Option<Claim> {
        let reading = self.read(&inherited::folder_of(&note.place), &note.name)?;
        let claim = reading.entry()?.claim(note.ticket)?;
        let waits = claim.token.is_none() && claim.is_in_line() && self.is_live(&reading, claim);
        waits.then(|| claim.clone())
    }

    fn is_live(&self, reading: &Reading, claim: &Claim) -> bool {
        let now = self.scene.clock.now();
        let standing = reading.standing_of(&self.scene.store.rules().policy, claim, &now);
        matches!(standing, Standing::Held(_))
    }

    fn is_mine(&self, folder: &Path, name: &str, claim: &Claim) -> bool {
        let mut holds = self.holds.iter();
        !self.is_outside(claim)
            && holds.any(|hold| {
                hold.name == name
                    && Some(hold.token) == claim.token
                    && Folder::is_same(&hold.folder, folder)
            })
    }

    /// Whether the caller is seen to be no part of the work of a hold, although it has inherited its variables.
    fn is_outside(&self, claim: &Claim) -> bool {
        kin_of(claim, self.scene.host) == Kin::Outside
    }

    fn read(&self, folder: &Path, name: &str) -> Option<Reading> {
        let name = LockName::new(name).ok()?;
        self.with_store(folder, |store| store.read(&name, None).ok())?
    }

    /// Asks the locks of a place that a note or a hold names.
    fn with_store<T>(&self, folder: &Path, ask: impl FnOnce(&dyn Store) -> T) -> Option<T> {
        if folder == self.scene.folder {
            return Some(ask(self.scene.store));
        }
        Some(ask(&*self.elsewhere.open(folder)?))
    }

    /// Writes this wait into every hold, unless another caller's wait stands there. If a hold cannot be
    /// written, its circle stays unseen and the wait goes on.
    fn note(&mut self, ticket: u64) {
        let own = self.own_note(ticket);
        for hold in &self.holds {
            let Some(held) = self.held(hold).filter(|held| !self.is_outside(held)) else {
                continue;
            };
            let note = held.waiting_for;
            let is_taken = note.is_some_and(|note| note == own || self.waiter(&note).is_some());
            if !is_taken {
                self.write(hold, Some(&own));
            }
        }
        self.noted = Some(ticket);
    }

    fn own_note(&self, ticket: u64) -> WaitingFor {
        WaitingFor {
            place: inherited::text_of(self.scene.folder),
            name: self.name.as_str().to_owned(),
            ticket,
        }
    }

    /// The claim of a hold, if it is still there.
    fn held(&self, hold: &Hold) -> Option<Claim> {
        let reading = self.read(&hold.folder, &hold.name)?;
        let mut granted = reading.entry()?.granted();
        granted
            .find(|claim| claim.token == Some(hold.token))
            .cloned()
    }

    fn write(&self, hold: &Hold, note: Option<&WaitingFor>) {
        if let Ok(name) = LockName::new(&*hold.name) {
            let _ = self.with_store(&hold.folder, |store| {
                store.note_waiting(&name, hold.token, note, &self.scene.clock.now())
            });
        }
    }
}

impl<E: Elsewhere> Drop for NestedWait<'_, E> {
    fn drop(&mut self) {
        let Some(ticket) = self.noted else { return };
        let own = self.own_note(ticket);
        for hold in &self.holds {
            let note = self.held(hold).and_then(|held| held.waiting_for);
            if note.as_ref() == Some(&own) {
                self.write(hold, None);
            }
        }
    }
}

fn wait_of(claim: &Claim, folder: &Path, name: &str) -> Wait {
    let folder = Folder::of(folder);
    (claim.entered.wall_ms, folder, name.to_owned(), claim.ticket)
}
