//! Where a call keeps its locks: in local files, or in etcd. Everything else of the binary asks this
//! one and does not know which of them it is.
//!
//! A binary that was built without the feature `etcd` knows files only, and says so.

#[cfg(unix)]
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use tenure::profile::Profile;
#[cfg(unix)]
use tenure::store::Notices;
#[cfg(all(feature = "etcd", unix))]
use tenure::store::contract::Handle;
#[cfg(all(feature = "etcd", unix))]
use tenure::store::etcd::{self, EtcdStore};
use tenure::store::file::{self, FileStore, Sleeper};
use tenure::store::{
    Advanced, Cleaned, Entered, ForcedRelease, Reading, RenewedOwned, Store, StoreError, Wake,
};
use tenure_core::{
    Claim, Entry, Force, Host, Left, LockName, Now, Ownership, Policy, Predecessor, Process,
    Released, Renewal, Request, StopRequest, WaitingFor,
};

use crate::failure::Failure;
use crate::request::{Location, Place};

/// The locks of a call.
#[allow(
    clippy::large_enum_variant,
    reason = "there are one or two of it in a process, and the local path pays for no box"
)]
pub(crate) enum Locks {
    Files(FileStore),
    #[cfg(all(feature = "etcd", unix))]
    Etcd(Box<Remote>),
}

/// Locks on servers, and the profile by which their answers are given.
#[cfg(all(feature = "etcd", unix))]
pub(crate) struct Remote {
    store: EtcdStore,
    profile: Box<dyn Profile>,
}

/// A claim's place in one of them.
pub(crate) enum Seat {
    File(file::Seat),
    #[cfg(all(feature = "etcd", unix))]
    Etcd(Box<dyn Handle>),
}

impl Seat {
    pub(crate) fn ticket(&self) -> u64 {
        match self {
            Self::File(seat) => seat.ticket(),
            #[cfg(all(feature = "etcd", unix))]
            Self::Etcd(seat) => seat.ticket(),
        }
    }

    pub(crate) fn name(&self) -> &LockName {
        match self {
            Self::File(seat) => seat.name(),
            #[cfg(all(feature = "etcd", unix))]
            Self::Etcd(seat) => seat.name(),
        }
    }

    /// What a command has to inherit for the lock to outlive its supervisor with it; `None` where
    /// there is no such thing.
    #[cfg(unix)]
    #[cfg_attr(
        not(feature = "etcd"),
        allow(clippy::unnecessary_wraps, reason = "only a lock on servers has none")
    )]
    pub(crate) fn beacon(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::File(seat) => Some(seat.beacon()),
            #[cfg(all(feature = "etcd", unix))]
            Self::Etcd(_) => None,
        }
    }
}

/// A password is not sent, and a certificate not shown, to servers that are only named by a file
/// which root has found and another user wrote.
#[cfg(all(feature = "etcd", unix))]
fn secrets_are_kept(file: &std::path::Path) -> Failure {
    Failure::new(
        crate::exit::Exit::Permission,
        "UNSAFE_PLACE",
        format!(
            "{} names the servers, was found, and belongs to the user of SUDO_UID; name it with \
             --config FILE, or the servers with --store, to show them TENURE_ETCD_USER or \
             TENURE_ETCD_CERT",
            crate::render::clean(&file.display().to_string())
        ),
    )
}

/// A part in the hold of the run around this one. Dropping it gives it back.
pub(crate) struct Part(
    #[cfg_attr(windows, allow(dead_code, reason = "nothing inherits it there"))]
    Option<file::Within>,
);

impl Part {
    /// What a command has to inherit for its part to outlive its supervisor with it; `None` where there is
    /// no such thing.
    #[cfg(unix)]
    pub(crate) fn beacon(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(file::Within::beacon)
    }
}

impl Locks {
    /// Opens the locks of a place. Nothing is asked of any server yet.
    #[cfg_attr(
        not(all(feature = "etcd", unix)),
        allow(
            clippy::unnecessary_wraps,
            reason = "only what is opened on servers can fail"
        )
    )]
    pub(crate) fn open(
        place: &Place,
        profile: Box<dyn Profile>,
        here: Host,
        sleeper: Box<dyn Sleeper>,
    ) -> Result<Self, Failure> {
        match &place.location {
            Location::Folder(folder) => {
                let store = match &place.beside {
                    Some(records) => FileStore::beside(&**records, folder, here, sleeper),
                    None => FileStore::with_profile(profile, folder, here, sleeper),
                };
                let store = store.allow_network(place.allow_network);
                Ok(Self::Files(if place.is_named {
                    store
                } else {
                    store.found()
                }))
            }
            #[cfg(all(feature = "etcd", unix))]
            Location::Etcd(address) => {
                let credentials = etcd::Credentials::from_environment()
                    .map_err(|error| Failure::bad_arguments(error.to_string()))?;
                if let Some(file) = place.named_by_sudo_user()
                    && (credentials.user.is_some() || credentials.certificate.is_some())
                {
                    return Err(secrets_are_kept(file));
                }
                let policy = profile.policy();
                let store = EtcdStore::with_policy(policy, address, &credentials, here, sleeper)?;
                Ok(Self::Etcd(Box::new(Remote { store, profile })))
            }
        }
    }

    pub(crate) fn profile(&self) -> &dyn Profile {
        match self {
            Self::Files(store) => store.profile(),
            #[cfg(all(feature = "etcd", unix))]
            Self::Etcd(remote) => &*remote.profile,
        }
    }

    /// Whether records are published that other programs read.
    pub(crate) fn publishes(&self) -> bool {
        match self {
            Self::Files(store) => store.profile().record().is_some(),
            #[cfg(all(feature = "etcd", unix))]
            Self::Etcd(_) => false,
        }
    }

    /// Whether a call may take as long as a network does.
    pub(crate) fn is_remote(&self) -> bool {
        match self {
            Self::Files(_) => false,
            #[cfg(all(feature = "etcd", unix))]
            Self::Etcd(_) => true,
        }
    }

    /// A descriptor that can be read once something has happened to the claim of a seat.
    #[cfg(unix)]
    pub(crate) fn news(&self, seat: &Seat) -> Option<Notices> {
        match (self, seat) {
            (Self::Files(store), Seat::File(seat)) => store.news(seat).ok(),
            #[cfg(all(feature = "etcd", unix))]
            (Self::Etcd(remote), Seat::Etcd(seat)) => remote.store.notices(seat),
            #[cfg(all(feature = "etcd", unix))]
            _ => None,
        }
    }

    /// Whether a renewal of our own ends the news.
    #[cfg(unix)]
    pub(crate) fn renewals_end_news(&self) -> bool {
        match self {
            Self::Files(store) => store.renewals_end_news(),
            #[cfg(all(feature = "etcd", unix))]
            Self::Etcd(_) => false,
        }
    }

    /// Goes on under a hold of the run around this one; `None` if it is gone. On servers nobody waits
    /// until its part has ended.
    pub(crate) fn go_within(
        &self,
        name: &LockName,
        token: u64,
    ) -> Result<Option<Part>, StoreError> {
        match self {
            Self::Files(store) => Ok(store.go_within(name, token)?.map(|part| Part(Some(part)))),
            #[cfg(all(feature = "etcd", unix))]
            Self::Etcd(remote) => {
                let reading = remote.store.read(name)?;
                let mut granted = reading.entry().into_iter().flat_map(Entry::granted);
                let stands = granted.any(|claim| claim.token == Some(token));
                Ok(stands.then_some(Part(None)))
            }
        }
    }

    /// What is left of interrupted calls, by the names of the locks.
    pub(crate) fn leftovers(&self, each: &mut dyn FnMut(LockName)) -> Result<(), StoreError> {
        match self {
            Self::Files(store) => store.leftovers(each),
            #[cfg(all(feature = "etcd", unix))]
            Self::Etcd(_) => Ok(()),
        }
    }

    /// What its user should know about the place.
    pub(crate) fn warning(&self) -> Result<Option<String>, StoreError> {
        match self {
            Self::Files(store) => store.warning(),
            #[cfg(all(feature = "etcd", unix))]
            Self::Etcd(_) => Ok(None),
        }
    }

    /// A seat of another store than the one that is asked: no call mixes two, and if one ever did,
    /// nobody may be told anything about the lock.
    #[cfg(all(feature = "etcd", unix))]
    fn mismatch(&self, seat: &Seat) -> StoreError {
        StoreError::Unreachable {
            place: self.place(seat.name()),
            doing: "looking for a claim",
            why: "it was made in another store".to_owned(),
        }
    }
}

/// Does the same to whichever store it is.
macro_rules! of_store {
    ($self:ident, $store:ident => $call:expr) => {
        match $self {
            Locks::Files($store) => $call,
            #[cfg(all(feature = "etcd", unix))]
            Locks::Etcd(remote) => {
                let $store = &remote.store;
                $call
            }
        }
    };
}

/// The same for a call about a seat.
macro_rules! of_seat {
    ($self:ident, $of:ident, $store:ident, $seat:ident => $call:expr) => {
        match ($self, $of) {
            (Locks::Files($store), Seat::File($seat)) => $call,
            #[cfg(all(feature = "etcd", unix))]
            (Locks::Etcd(remote), Seat::Etcd($seat)) => {
                let $store = &remote.store;
                $call
            }
            #[cfg(all(feature = "etcd", unix))]
            _ => Err($self.mismatch($of)),
        }
    };
}

impl Store for Locks {
    type Seat = Seat;

    fn policy(&self) -> &Policy {
        of_store!(self, store => store.policy())
    }

    fn place(&self, name: &LockName) -> String {
        of_store!(self, store => store.place(name))
    }

    fn lapses(&self, ttl: Duration) -> Option<Duration> {
        of_store!(self, store => store.lapses(ttl))
    }

    fn moves(&self) -> u64 {
        of_store!(self, store => store.moves())
    }

    fn read(&self, name: &LockName) -> Result<Reading, StoreError> {
        of_store!(self, store => store.read(name))
    }

    fn enter(
        &self,
        name: &LockName,
        request: Request,
        now: &Now,
    ) -> Result<Entered<Seat>, StoreError> {
        match self {
            Self::Files(store) => Ok(seated(store.enter(name, request, now)?, Seat::File)),
            #[cfg(all(feature = "etcd", unix))]
            Self::Etcd(remote) => Ok(seated(remote.store.enter(name, request, now)?, Seat::Etcd)),
        }
    }

    fn sleep(
        &self,
        seat: &Seat,
        behind: &Predecessor,
        now: &Now,
        until: Option<Instant>,
    ) -> Result<Wake, StoreError> {
        of_seat!(self, seat, store, seat => store.sleep(seat, behind, now, until))
    }

    fn advance(&self, seat: &Seat, now: &Now) -> Result<Advanced, StoreError> {
        of_seat!(self, seat, store, seat => store.advance(seat, now))
    }

    fn name_command(&self, seat: &Seat, command: Process, now: &Now) -> Result<bool, StoreError> {
        of_seat!(self, seat, store, seat => store.name_command(seat, command, now))
    }

    fn renew(&self, seat: &Seat, now: &Now) -> Result<Renewal, StoreError> {
        of_seat!(self, seat, store, seat => store.renew(seat, now))
    }

    fn verify(&self, seat: &Seat, now: &Now) -> Result<Renewal, StoreError> {
        of_seat!(self, seat, store, seat => store.verify(seat, now))
    }

    fn leave(&self, seat: &Seat, now: &Now) -> Result<Left, StoreError> {
        of_seat!(self, seat, store, seat => store.leave(seat, now))
    }

    fn leave_if_alone(&self, seat: &Seat, now: &Now) -> Result<Option<Left>, StoreError> {
        of_seat!(self, seat, store, seat => store.leave_if_alone(seat, now))
    }

    fn is_entered(&self, seat: &Seat) -> bool {
        match (self, seat) {
            (Self::Files(store), Seat::File(seat)) => store.is_entered(seat),
            #[cfg(all(feature = "etcd", unix))]
            _ => false,
        }
    }

    fn park(
        &self,
        seat: &Seat,
        owner: Option<Process>,
        grace_ms: u64,
        now: &Now,
    ) -> Result<bool, StoreError> {
        of_seat!(self, seat, store, seat => store.park(seat, owner, grace_ms, now))
    }

    fn cancel(
        &self,
        name: &LockName,
        by: StopRequest<'_>,
        now: &Now,
    ) -> Result<Vec<Claim>, StoreError> {
        of_store!(self, store => store.cancel(name, by, now))
    }

    fn note_waiting(
        &self,
        name: &LockName,
        token: u64,
        waiting_for: Option<&WaitingFor>,
        now: &Now,
    ) -> Result<bool, StoreError> {
        of_store!(self, store => store.note_waiting(name, token, waiting_for, now))
    }

    fn renew_owned(
        &self,
        name: &LockName,
        owns: &dyn Fn(&Claim) -> Ownership,
        now: &Now,
    ) -> Result<RenewedOwned, StoreError> {
        of_store!(self, store => store.renew_owned(name, owns, now))
    }

    fn release_owned(
        &self,
        name: &LockName,
        owns: &dyn Fn(&Claim) -> Ownership,
        now: &Now,
    ) -> Result<Released, StoreError> {
        of_store!(self, store => store.release_owned(name, owns, now))
    }

    fn force_release(
        &self,
        name: &LockName,
        force: Force,
        now: &Now,
    ) -> Result<ForcedRelease, StoreError> {
        of_store!(self, store => store.force_release(name, force, now))
    }

    fn watch(
        &self,
        name: &LockName,
        seen: &Reading,
        now: &Now,
        until: Option<Instant>,
    ) -> Result<Wake, StoreError> {
        of_store!(self, store => store.watch(name, seen, now, until))
    }

    fn names(&self, each: &mut dyn FnMut(LockName)) -> Result<(), StoreError> {
        of_store!(self, store => store.names(each))
    }

    fn clean(&self, name: &LockName, now: &Now, dry_run: bool) -> Result<Cleaned, StoreError> {
        of_store!(self, store => store.clean(name, now, dry_run))
    }
}

fn seated<One, Other>(entered: Entered<One>, seat: impl FnOnce(One) -> Other) -> Entered<Other> {
    Entered {
        entering: entered.entering,
        entry: entered.entry,
        unread: entered.unread,
        events: entered.events,
        seat: entered.seat.map(seat),
    }
}
