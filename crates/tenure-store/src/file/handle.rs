//! A claim that this process keeps alive by a byte of the coordination file.
//!
//! The *liveness lock* is the byte of the claim's ticket. A claim keeps a second byte while it waits,
//! its *turn*, if its grant lets other waiters go on. Runs within a hold share a third byte ([`HoldPart`]).
//! `wait` says how a waiter sleeps.

use super::bytes::{self, Byte};
use super::ends::Begun;
use super::folder::Opened;
use super::names::Names;
use super::publication::Published;
use super::{ClaimKey, fd};
use crate::contract::{Handle, Within};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use tenure_core::{Claim, Entry, LockName, Queueing};
use tenure_os::os::{self, Watch};

/// A claim of this process. Its descriptor carries the liveness lock: dropping it is dying.
///
/// # Its open files
/// Locks belong to the open file, and a command inherits the one that has the liveness lock. If a change took the guard
/// on that one, a supervisor killed in the middle of the change would leave the guard with its command. So while a
/// command may have a copy, changes go by a second open file, and by the first one before and after that.
///
/// The kernel keeps the locks of a file in one list, in the order in which their open files took the first one. So those of
/// a claim whose turn has come stand at the front. Those of an open file that has no other are put behind the locks of all
/// waiters: each call goes through these, and so does the kernel where such a file is closed.
#[derive(Debug)]
pub(super) struct FileHandle {
    pub(super) ticket: u64,
    /// Has the liveness lock, except on Windows.
    pub(super) opened: Opened,
    /// On Windows a look at the byte takes it for an instant, which an open file that has it already cannot do. There the
    /// liveness lock has an open file of its own.
    pub(super) apart: Option<Opened>,
    /// Whether a command may have a copy of the descriptor. `None` for a claim that no command inherits.
    pub(super) lent: Option<AtomicBool>,
    /// Whether another program may get a copy of the descriptor ([`Handle::for_exec`]).
    pub(super) is_handed: AtomicBool,
    /// Made for the first change that comes while a command may have a copy.
    pub(super) beside: OnceLock<Opened>,
    /// Whether the liveness lock is held.
    pub(super) is_alive: AtomicBool,
    /// By which the threads of this process learn that the claim has ended.
    pub(super) begun: Option<Begun<ClaimKey>>,
    pub(super) names: Arc<Names>,
    /// Whether it keeps the byte of its turn while it waits.
    pub(super) has_turn: bool,
    /// How a waiting claim learns that it was asked to stop, if it may be asked.
    pub(super) wake_up: WakeUp,
    /// Whether the holder's work lasts long. Such a holder watches over the folder, and its last
    /// change asks once more whether the folder was renamed.
    pub(super) lasts: AtomicBool,
    /// The claim as it was granted, if a record of it is published.
    pub(super) granted: OnceLock<Box<PublishedClaim>>,
    /// Locked during a change. The guard byte belongs to the open file. So it excludes every other
    /// caller, but not a second thread with this same handle.
    pub(super) changing: Mutex<()>,
}

/// A claim of which a record is published.
#[derive(Debug)]
pub(super) struct PublishedClaim {
    pub(super) claim: Claim,
    /// The record as it was published with the grant, if this call published it.
    pub(super) record: Option<Vec<u8>>,
}

impl PublishedClaim {
    /// Whether the record that stands is the one that was published with the grant, byte for byte, and the
    /// list has this claim as its only holder. Then record and list say the same, and neither has to be read
    /// for what the other says.
    ///
    /// A record says a little more than the list (what its format derives), and a little less (what it cuts
    /// off). So this is for a change that looks at the claim alone and takes it out or names its command.
    /// Whatever it leaves in the list, the next reader brings together with the record again. Equal bytes in
    /// another file are as good: only the file that was looked at is removed.
    pub(super) fn is(&self, published: &Published, entry: &Entry) -> bool {
        let mut held = entry.granted();
        let is_listed = held.next().is_some_and(|held| {
            held.ticket == self.claim.ticket
                && held.token == self.claim.token
                && held.holder.request_id == self.claim.holder.request_id
        });
        is_listed
            && held.next().is_none()
            && !published.is_too_long
            && Some(&published.bytes) == self.record.as_ref()
    }
}

/// How a waiter that sleeps on another claim's byte learns that it was asked to stop.
#[derive(Debug)]
pub(super) enum WakeUp {
    /// No caller may ask it while it waits.
    Never,
    /// A watch for the touch that tells the waiter; its first sleep opens it.
    Watch(OnceLock<Watch>),
    /// Nothing can be watched here: the waiter looks from time to time.
    Looks,
}

impl WakeUp {
    pub(super) fn of(queueing: Queueing) -> Self {
        match (queueing.yields(), os::WATCHES) {
            (false, _) => Self::Never,
            (true, true) => Self::Watch(OnceLock::new()),
            (true, false) => Self::Looks,
        }
    }
}

impl FileHandle {
    /// The open file that has the liveness lock. A command that inherits a copy keeps the lock held, and
    /// gets no other right by it.
    fn liveness(&self) -> &Opened {
        self.apart.as_ref().unwrap_or(&self.opened)
    }

    /// The open file for a change, if it is there: `None` while a command may have a copy of the first one and the second
    /// one is still to be opened.
    pub(super) fn for_a_change(&self) -> Option<&Opened> {
        let is_lent = |lent: &AtomicBool| lent.load(Ordering::Acquire);
        let is_lent = self.lent.as_ref().is_some_and(is_lent) || is_lent(&self.is_handed);
        if self.apart.is_none() && is_lent {
            self.beside.get()
        } else {
            Some(&self.opened)
        }
    }

    /// The claim's ticket, if this open file has its liveness lock. An open file does not see its own locks,
    /// so looks by it take the claim for alive without asking.
    pub(super) fn ticket_on(&self, opened: &Opened) -> Option<u64> {
        let is_here = std::ptr::eq(opened, self.liveness());
        (is_here && self.is_alive.load(Ordering::Acquire)).then_some(self.ticket)
    }

    /// Releases the guard and all bytes of the claim in one call: the claim has left the list.
    pub(super) fn unguard_and_let_go(&self) {
        if bytes::unlock_all(fd(&self.opened)).is_ok() {
            self.is_alive.store(false, Ordering::Release);
        } else {
            let _ = bytes::unguard(fd(&self.opened));
        }
    }

    /// The claim waits no longer: the waiters behind its turn go on.
    pub(super) fn give_turn(&self) {
        if self.has_turn {
            // Against a failure that lasts we can do nothing; closing the file releases the byte.
            let _ = bytes::unlock(fd(&self.opened), Byte::of_turn(self.ticket));
        }
    }
}

impl Handle for FileHandle {
    fn name(&self) -> &LockName {
        &self.names.name
    }

    fn ticket(&self) -> u64 {
        self.ticket
    }

    fn let_go(&self) {
        self.give_turn();
        if self.is_alive.swap(false, Ordering::AcqRel) {
            let _ = bytes::unlock(fd(self.liveness()), Byte::of_ticket(self.ticket));
        }
        if let Some(begun) = &self.begun {
            begun.end();
        }
    }

    #[cfg(unix)]
    fn descriptor(&self) -> Option<super::BorrowedDescriptor<'_>> {
        self.lent.as_ref()?.store(true, Ordering::Release);
        Some(fd(self.liveness()))
    }

    fn handed_over(&self) {
        let _ = bytes::unlock(fd(self.liveness()), Byte::of_ticket(self.ticket));
    }

    fn frees_list(&self) {
        let _ = bytes::unguard(fd(&self.opened));
    }

    #[cfg(unix)]
    fn took_over(&self, from: u64, descriptor: i32) {
        if let Some(copy) = os::given(descriptor, self.opened.inode()) {
            // Unlocked explicitly: another process may have a copy as well.
            let _ = bytes::unlock(os::borrow(&copy), Byte::of_ticket(from));
        }
    }

    #[cfg(unix)]
    fn for_exec(&self) -> std::io::Result<Option<os::Descriptor>> {
        // A change that is under way by the first open file ends before that has a copy.
        let _changing = crate::sync::locked(&self.changing);
        let copy = os::left_open(fd(self.liveness()))?;
        self.is_handed.store(true, Ordering::Release);
        Ok(Some(copy))
    }

    fn taken_back(&self) {
        if let Some(lent) = &self.lent {
            lent.store(false, Ordering::Release);
        }
    }

    fn is_entered(&self) -> bool {
        // A look that fails does not prove that they have gone.
        bytes::is_shared(fd(&self.opened), Byte::of_within(self.ticket)) != Ok(false)
    }
}

/// A part in the hold of another process. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct HoldPart {
    /// An open file of its own, so that a command that inherits it gets nothing but these bytes.
    pub(super) opened: Opened,
    pub(super) ticket: u64,
}

impl HoldPart {
    /// The first byte tells a release that other runs may be within a hold of the lock, the second tells
    /// in which.
    pub(super) fn bytes(&self) -> [Byte; 2] {
        [Byte::WITHIN_ANY, Byte::of_within(self.ticket)]
    }
}

impl Within for HoldPart {
    #[cfg(unix)]
    fn descriptor(&self) -> Option<super::BorrowedDescriptor<'_>> {
        Some(fd(&self.opened))
    }
}

impl Drop for HoldPart {
    fn drop(&mut self) {
        // Unlocked explicitly, because a daemon that the command left behind may keep a copy of the
        // descriptor.
        for byte in self.bytes().into_iter().rev() {
            let _ = bytes::unlock(fd(&self.opened), byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::joined::tests::listed;
    use super::*;
    use tenure_core::RequestId;

    /// The maker died in the middle of a change, and the copy that a fork made has the guard with its descriptor.
    #[cfg(unix)]
    #[test]
    fn a_copy_frees_the_list_that_its_maker_left_guarded() {
        use super::super::{FileStore, Mode, ThreadSleeper};
        use crate::StoreError;
        use crate::verbs::{Adopted, Verbs};
        use std::time::Duration;
        use tenure_core::{Force, Kind, Patience, Request, Terms};
        use tenure_os::process::Identity;
        let scratch = tempfile::tempdir().expect("a folder");
        let here = Identity::current().host;
        let store = || FileStore::new(scratch.path(), here.clone(), Box::new(ThreadSleeper));
        let (maker, copy) = (store(), store());
        let mut request = Request {
            holder: listed(1, None).holder,
            kind: Kind::Kernel,
            ttl_ms: 600_000,
            force: Force::No,
            patience: Patience::AtOnce,
            terms: Terms::default(),
        };
        request.holder.host = here.clone().into();
        let name = LockName::new("lock").expect("a name");
        let entered = maker.enter(&name, &request, &maker.now()).expect("a claim");
        let handle = entered.handle.expect("a handle");
        let own = copy.own_handle(&*handle).expect("one of files");
        let guarded = bytes::try_lock(fd(&own.opened), Byte::GUARD, Mode::Exclusive);
        assert_eq!(guarded, Ok(true));
        let within = Some(Duration::from_millis(20));
        let stuck = copy.enter_within(&name, &request, &copy.now(), within);
        assert!(matches!(stuck, Err(StoreError::Stuck { .. })), "{stuck:?}");
        handle.frees_list();
        let adopted = copy.hand_over(&name, &|_| true, &request.holder, &copy.now());
        let Ok(Adopted::Done { handle: own, .. }) = adopted else {
            unreachable!("{adopted:?}");
        };
        // Waiters that sleep behind the old claim wake up, although its maker goes on.
        let own = copy.own_handle(&*own).expect("one of files");
        let is_kept = |ticket| bytes::probe(fd(&own.opened), Byte::of_ticket(ticket));
        assert_eq!(is_kept(handle.ticket()), Ok(true));
        handle.handed_over();
        assert_eq!(is_kept(handle.ticket()), Ok(false));
    }

    #[test]
    fn what_was_granted_is_known_while_its_record_and_its_claim_stand_unchanged() {
        let granted = PublishedClaim {
            claim: listed(2, Some(9)),
            record: Some(b"ours".to_vec()),
        };
        let is_known = |bytes: &[u8], is_too_long, change: fn(&mut Entry)| {
            let mut published = Published::of_bytes(bytes);
            published.is_too_long = is_too_long;
            let mut entry = Entry {
                claims: vec![listed(2, Some(9)), listed(3, None)],
                ..Entry::default()
            };
            change(&mut entry);
            granted.is(&published, &entry)
        };
        assert!(is_known(b"ours", false, |_| {}));
        assert!(!is_known(b"theirs", false, |_| {}));
        assert!(!is_known(b"ours", true, |_| {}), "there is more of it");
        let changes: [fn(&mut Entry); 5] = [
            |entry| entry.claims[0].ticket = 1,
            |entry| entry.claims[0].token = Some(8),
            |entry| entry.claims[0].holder.request_id = RequestId::new("b").expect("an id"),
            |entry| entry.claims[1].token = Some(10),
            |entry| entry.claims.clear(),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            assert!(!is_known(b"ours", false, change), "change {number}");
        }
    }
}
