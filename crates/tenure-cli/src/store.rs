//! Where a call keeps its locks: in local files, or in etcd. Everything else of the binary asks this
//! one and does not know which of them it is.
//!
//! A binary that was built without the feature `etcd` knows files only, and says so.

use crate::failure::Failure;
use crate::request::{Location, Place};
use std::ops::Deref;
use std::sync::Arc;
use tenure::profile::Profile;
use tenure::store::contract::Within;
#[cfg(all(feature = "etcd", unix))]
use tenure::store::etcd::{self, EtcdStore};
use tenure::store::file::{FileStore, Sleeper};
use tenure::store::{Reading, Store, StoreError};
use tenure_core::{Host, LockName, Policy};

/// A part in the hold of the run around this one. Dropping it gives it back.
pub(crate) type Part = Box<dyn Within>;

/// The locks of a call.
pub(crate) struct Locks {
    store: Box<dyn Store>,
    profile: Arc<dyn Profile>,
    /// Whether records are published that other programs read.
    publishes: bool,
}

impl Deref for Locks {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.store
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
                let store = if place.is_named { store } else { store.found() };
                let profile = Arc::clone(store.profile());
                Ok(Self {
                    publishes: profile.record().is_some(),
                    profile,
                    store: Box::new(store),
                })
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
                Ok(Self {
                    publishes: false,
                    profile: profile.into(),
                    store: Box::new(store),
                })
            }
        }
    }

    pub(crate) fn profile(&self) -> &dyn Profile {
        &*self.profile
    }

    /// Whether records are published that other programs read.
    pub(crate) fn publishes(&self) -> bool {
        self.publishes
    }

    /// The row by which claims are judged.
    pub(crate) fn policy(&self) -> &Policy {
        &self.rules().policy
    }

    /// Where a lock is kept, for people.
    pub(crate) fn place(&self, name: &LockName) -> String {
        self.location(name).shown
    }

    /// Whether a call may take as long as a network does.
    pub(crate) fn is_remote(&self) -> bool {
        self.rules().network
    }

    /// Reads a lock.
    pub(crate) fn read(&self, name: &LockName) -> Result<Reading, StoreError> {
        self.store.read(name, None)
    }
}
