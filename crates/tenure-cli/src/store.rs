//! Where a call keeps its locks: in local files, or in etcd. The rest of the binary asks here, and does
//! not know which of the two it is.
//!
//! A binary that was built without the feature `etcd` knows files only, and says so.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
#[cfg(all(feature = "etcd", unix))]
use std::time::Duration;
#[cfg(unix)]
use tenure_core::Now;
use tenure_core::{LockName, Policy};
#[cfg(unix)]
use tenure_store::Handle;
use tenure_store::contract::Within;
#[cfg(all(feature = "etcd", unix))]
use tenure_store::etcd::EtcdStore;
use tenure_store::file::FileStore;
#[cfg(unix)]
use tenure_store::file::{Own, survey::Survey};
use tenure_store::profile::Profile;
use tenure_store::{Reading, Store, StoreError};

/// What kind of place the locks are in.
#[derive(Debug, Clone)]
pub(crate) enum Location {
    /// A folder on this machine, absolute.
    Folder(PathBuf),
    /// An etcd.
    #[cfg(all(feature = "etcd", unix))]
    Etcd(tenure_store::etcd::Address),
}

/// A part in the hold of the run around this one. Dropping it gives it back.
pub(crate) type Part = Box<dyn Within>;

/// The locks of a call.
pub(crate) struct Locks {
    store: Backend,
    profile: Arc<dyn Profile>,
    /// Whether records are published that other programs read.
    publishes: bool,
}

/// The servers of the locks, each with the id of its cluster or why that is not known.
#[cfg(unix)]
pub(crate) type Clusters = Vec<(String, Result<u64, StoreError>)>;

/// In which store they are kept.
enum Backend {
    Files(Box<FileStore>),
    #[cfg(all(feature = "etcd", unix))]
    Servers(Box<EtcdStore>),
}

impl Deref for Locks {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        match &self.store {
            Backend::Files(store) => &**store,
            #[cfg(all(feature = "etcd", unix))]
            Backend::Servers(store) => &**store,
        }
    }
}

impl Locks {
    /// The locks of a folder.
    pub(crate) fn of_files(store: FileStore) -> Self {
        let profile = Arc::clone(store.profile());
        Self {
            publishes: profile.record().is_some(),
            profile,
            store: Backend::Files(Box::new(store)),
        }
    }

    /// The store alone.
    pub(crate) fn into_store(self) -> Box<dyn Store> {
        match self.store {
            Backend::Files(store) => store,
            #[cfg(all(feature = "etcd", unix))]
            Backend::Servers(store) => store,
        }
    }

    /// Limits the patience: servers that do not answer within this time cannot be reached.
    #[cfg(all(feature = "etcd", unix))]
    pub(crate) fn patience(self, limit: Duration) -> Self {
        let store = match self.store {
            Backend::Servers(store) => Backend::Servers(Box::new(store.patience(limit))),
            files @ Backend::Files(_) => files,
        };
        Self { store, ..self }
    }

    /// The cluster that each server of the locks belongs to, or why that is not known; empty for files.
    #[cfg(unix)]
    #[cfg_attr(
        not(feature = "etcd"),
        allow(clippy::unnecessary_wraps, reason = "only servers can fail")
    )]
    pub(crate) fn clusters(&self) -> Result<Clusters, StoreError> {
        match &self.store {
            Backend::Files(_) => Ok(Vec::new()),
            #[cfg(feature = "etcd")]
            Backend::Servers(store) => store.clusters(),
        }
    }

    /// What the folder of the locks is like; `None` for locks on servers.
    #[cfg(unix)]
    #[cfg_attr(
        not(feature = "etcd"),
        allow(clippy::unnecessary_wraps, reason = "only servers have no folder")
    )]
    pub(crate) fn survey(&self) -> Option<Survey> {
        match &self.store {
            Backend::Files(store) => Some(store.survey()),
            #[cfg(feature = "etcd")]
            Backend::Servers(_) => None,
        }
    }

    /// The file of a lock's list; `None` for locks on servers.
    #[cfg(target_os = "linux")]
    #[cfg_attr(
        not(feature = "etcd"),
        allow(clippy::unnecessary_wraps, reason = "only servers have no file")
    )]
    pub(crate) fn list_of(&self, name: &LockName) -> Option<PathBuf> {
        match &self.store {
            Backend::Files(store) => Some(store.list_of(name)),
            #[cfg(feature = "etcd")]
            Backend::Servers(_) => None,
        }
    }

    pub(crate) fn profile(&self) -> &dyn Profile {
        &*self.profile
    }

    /// Whether records are published that other programs read.
    pub(crate) fn publishes(&self) -> bool {
        self.publishes
    }

    /// The policy by which claims are judged.
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

    /// Whether a change takes moments where no other caller is in the way: a list in a folder of this machine, without records.
    #[cfg(unix)]
    pub(crate) fn is_prompt(&self) -> bool {
        match &self.store {
            Backend::Files(store) => !self.publishes && store.is_local(),
            #[cfg(feature = "etcd")]
            Backend::Servers(_) => false,
        }
    }

    /// Looks at a hold of this process, by its own file; `None` for locks on servers.
    #[cfg(unix)]
    #[cfg_attr(
        not(feature = "etcd"),
        expect(
            clippy::unnecessary_wraps,
            reason = "a build without servers has no other case"
        )
    )]
    pub(crate) fn look_at_own(
        &self,
        handle: &dyn Handle,
        now: &Now,
    ) -> Option<Result<Own, StoreError>> {
        match &self.store {
            Backend::Files(store) => Some(store.look_at_own(handle, now)),
            #[cfg(feature = "etcd")]
            Backend::Servers(_) => None,
        }
    }

    /// Whether another user may change or replace what keeps a lock, so that its holder has to look again and again.
    #[cfg(unix)]
    pub(crate) fn others_may_write(&self) -> bool {
        match &self.store {
            Backend::Files(store) => store.others_may_write(),
            #[cfg(feature = "etcd")]
            Backend::Servers(_) => false,
        }
    }

    /// Reads a lock.
    pub(crate) fn read(&self, name: &LockName) -> Result<Reading, StoreError> {
        (**self).read(name, None)
    }
}

#[cfg(all(feature = "etcd", unix))]
mod servers {
    use super::{Backend, Locks};
    use crate::failure::Failure;
    use std::path::Path;
    use tenure_core::Host;
    use tenure_store::etcd::{self, EtcdStore};
    use tenure_store::file::Sleeper;
    use tenure_store::profile::Profile;

    impl Locks {
        /// The locks on servers. Asks them nothing yet. `found` is the file that names them, if root
        /// only found it and another user wrote it: then root shows them no secrets.
        pub(crate) fn of_servers(
            address: &etcd::Address,
            found: Option<&Path>,
            profile: Box<dyn Profile>,
            here: Host,
            sleeper: Box<dyn Sleeper>,
        ) -> Result<Self, Failure> {
            let credentials = etcd::Credentials::from_environment()
                .map_err(|error| Failure::bad_arguments(error.to_string()))?;
            if let Some(file) = found
                && (credentials.user.is_some() || credentials.certificate.is_some())
            {
                return Err(secrets_are_kept(file));
            }
            let policy = profile.policy();
            let store = EtcdStore::with_policy(policy, address, &credentials, here, sleeper)?
                .remembering(tenure_engine::config::servers_folder());
            Ok(Self {
                publishes: false,
                profile: profile.into(),
                store: Backend::Servers(Box::new(store)),
            })
        }
    }

    /// Root sends no password, and shows no certificate, to servers that only a found file of another
    /// user names.
    fn secrets_are_kept(file: &Path) -> Failure {
        Failure::new(
            crate::exit::Exit::Permission,
            "UNSAFE_PLACE",
            format!(
                "{} names the servers, was found, and belongs to the user of SUDO_UID; name it with \
                 --config FILE, or the servers with --store, to show them TENURE_ETCD_USER or \
                 TENURE_ETCD_CERT",
                tenure_engine::envelope::clean_path(file)
            ),
        )
    }
}
