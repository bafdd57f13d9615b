//! What a person has allowed that a found configuration asks for.
//!
//! A `tenure.toml` that a search finds came with a clone: it belongs to the caller, and its words are still somebody else's.
//! Two things in it reach beyond the locks of that clone, and need the person's consent:
//! - a store over a network: the servers would get the caller's credentials, and see its work;
//! - variables and commands (`env`, `rollback`, `on_supersede`, `on_superseded`), where nobody typed the call that obeys
//!   them. A person who types `tenure run` in a folder trusts it as with `make`; an agent's hook runs at any edit.
//!
//! Consent stands in the user's configuration or the machine's, as `allow = [...]`: the URL of a store, or the hash of
//! exactly those keys. So it holds for every clone and work tree, and ends when the file asks for something else.

use crate::config::{self, Config, ConfigError, LockDefaults, Source};
use hmac_sha256::Hash as Sha256;
use std::path::Path;
use tenure_store::advice;

/// Stands before the hash of what a file lets calls run.
pub const HASH: &str = "sha256:";

/// Whether a file's words need consent: a search found it, and it is neither the user's nor the machine's.
fn is_of_a_clone(file: &Config) -> bool {
    file.source != Source::Named && !config::is_for_all_folders(&file.file)
}

impl Config {
    /// What the user and the machine allow, as written, and the file that says so.
    pub fn consents(&self) -> impl Iterator<Item = (&str, &Path)> {
        let own = self
            .files()
            .filter(|file| config::is_for_all_folders(&file.file));
        own.flat_map(|file| {
            let allowed = file.allow.iter().flatten();
            allowed.map(|consent| (consent.as_str(), file.file.as_path()))
        })
    }

    /// The hash of the keys of this file by which it decides what calls run, if it has any of them.
    pub fn hash_of_what_runs(&self) -> Option<String> {
        let says = |defaults: &&LockDefaults| defaults.decides_what_runs().is_some();
        if !self.locks.values().any(|defaults| says(&defaults)) {
            return None;
        }
        let mut hash = Sha256::new();
        let mut put = |text: &str| {
            // With its length, so that no two lists of texts are one text.
            hash.update(u64::try_from(text.len()).unwrap_or(u64::MAX).to_le_bytes());
            hash.update(text.as_bytes());
        };
        for (pattern, defaults) in &self.locks {
            for (key, value) in defaults.what_runs() {
                put(pattern);
                put(&key);
                put(&value);
            }
        }
        Some(format!(
            "{HASH}{}",
            tenure_store::printed::hex(&hash.finalize())
        ))
    }

    /// The keys of this file by which it decides what calls run.
    pub fn keys_of_what_runs(&self) -> Vec<&'static str> {
        let mut keys: Vec<_> = (self.locks.values())
            .flat_map(LockDefaults::keys_of_what_runs)
            .collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// The files of clones among these.
    pub fn of_clones(&self) -> impl Iterator<Item = &Self> {
        self.files().filter(|file| is_of_a_clone(file))
    }

    /// Whether the user or the machine allows a hash.
    pub fn allows_hash(&self, hash: &str) -> bool {
        self.consents().any(|(consent, _)| consent == hash)
    }

    /// Refuses a call that nobody typed under this lock, if a file of a clone decides what it runs and no one allows that.
    ///
    /// # Errors
    /// - [`ConfigError::Unallowed`].
    pub fn refuse_untyped(&self, name: &str) -> Result<(), ConfigError> {
        for file in self.of_clones() {
            let key = file
                .own_defaults(name)
                .and_then(LockDefaults::decides_what_runs);
            let hash = file.hash_of_what_runs();
            let (Some(key), Some(hash)) = (key, hash) else {
                continue;
            };
            if !self.allows_hash(&hash) {
                let path = &file.file;
                return Err(ConfigError::Unallowed {
                    path: tenure_store::printed::clean_path(path),
                    what: format!("decides by {key} what an agent's call runs"),
                    instead: String::new(),
                    line: advice::line([advice::PROGRAM, "allow", &path.to_string_lossy()]),
                });
            }
        }
        Ok(())
    }

    /// The store over a network that this file names, if it names one.
    #[cfg(all(feature = "etcd", unix))]
    pub fn servers(&self) -> Option<tenure_store::etcd::Address> {
        tenure_store::etcd::Address::parse(self.store.as_deref()?).ok()
    }

    /// Whether the user or the machine allows a store.
    #[cfg(all(feature = "etcd", unix))]
    pub fn allows_servers(&self, address: &tenure_store::etcd::Address) -> bool {
        self.consents()
            .any(|(consent, _)| address.is_allowed_by(consent))
    }
}

/// Refuses a store over a network that only a file of a clone names, unless the user or the machine allows it.
///
/// # Errors
/// - [`ConfigError::Unallowed`].
#[cfg(all(feature = "etcd", unix))]
pub(crate) fn store(files: &Config, file: &Config) -> Result<(), ConfigError> {
    // What is no address reaches no server, and is refused with a better sentence later.
    let Some(address) = file.servers() else {
        return Ok(());
    };
    if !is_of_a_clone(file) || files.allows_servers(&address) {
        return Ok(());
    }
    Err(ConfigError::Unallowed {
        path: tenure_store::printed::clean_path(&file.file),
        what: format!("keeps the locks on servers (store = \"{address}\")"),
        instead: ", or name the store yourself with --store or TENURE_STORE".to_owned(),
        line: advice::line([advice::PROGRAM, "allow", &address.to_string()]),
    })
}
