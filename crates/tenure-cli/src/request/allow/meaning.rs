//! What a call of `allow` is about: what the files of clones ask for, and what consent to it is written down; and which
//! cluster servers belong to.

use super::AllowArgs;
use crate::failure::Failure;
use crate::request::Surroundings;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tenure_engine::config::{self, Config};
use tenure_engine::consent::HASH;
use tenure_engine::envelope::clean_path;

/// How many hex digits a hash has.
const HASH_DIGITS: usize = 64;

/// Something to which a person may consent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Consent {
    /// As it stands in the configuration.
    pub(crate) text: String,
    /// What it lets calls do, in a few words.
    pub(crate) lets: String,
    /// The file that asks for it, if one does.
    pub(crate) file: Option<PathBuf>,
}

/// A call of `allow`.
#[derive(Debug)]
pub(crate) struct Allow {
    /// What is allowed, or no longer. Without it, the call shows what there is.
    pub(crate) what: Option<Vec<Consent>>,
    pub(crate) revokes: bool,
    /// The clusters to which servers belong from now on.
    #[cfg_attr(
        not(feature = "etcd"),
        expect(dead_code, reason = "without stores on servers there is none")
    )]
    pub(crate) clusters: Vec<Cluster>,
    /// What the files of this folder's clone ask for.
    pub(crate) asked: Vec<Consent>,
    pub(crate) config: Option<Arc<Config>>,
    /// The user's own configuration.
    pub(crate) file: PathBuf,
}

impl Allow {
    pub(crate) fn of(typed: &AllowArgs, around: &Surroundings) -> Result<Self, Failure> {
        let Some(file) = config::user_file() else {
            return Err(Failure::bad_arguments(
                "HOME names no folder, so there is no configuration of your own",
            ));
        };
        let mut what = Vec::new();
        let mut clusters = Vec::new();
        for word in &typed.what {
            if let Some((url, id)) = word.split_once('#').filter(|(url, _)| url.contains("://")) {
                clusters.push(cluster(word, url, id)?);
                continue;
            }
            what.append(&mut meant(word, around)?);
        }
        let config = around.config()?;
        let asked = config.iter().flat_map(|config| config.of_clones());
        Ok(Self {
            what: (!typed.what.is_empty()).then_some(what),
            revokes: typed.revoke,
            clusters,
            asked: asked.flat_map(asked_by).collect(),
            config,
            file,
        })
    }

    /// Whether the user or the machine allows something.
    pub(crate) fn is_allowed(&self, consent: &Consent) -> bool {
        let Some(config) = &self.config else {
            return false;
        };
        #[cfg(feature = "etcd")]
        if let Ok(address) = tenure_store::etcd::Address::parse(&consent.text) {
            return config.allows_servers(&address);
        }
        config.allows_hash(&consent.text)
    }
}

/// Servers, and the cluster to which they belong.
#[derive(Debug)]
#[cfg_attr(
    not(feature = "etcd"),
    expect(dead_code, reason = "without stores on servers there is none")
)]
pub(crate) struct Cluster {
    /// As it was typed.
    pub(crate) text: String,
    #[cfg(feature = "etcd")]
    pub(crate) address: tenure_store::etcd::Address,
    pub(crate) id: u64,
}

#[cfg(feature = "etcd")]
fn cluster(word: &str, url: &str, id: &str) -> Result<Cluster, Failure> {
    use tenure_store::etcd::Address;
    let address =
        Address::parse(url).map_err(|error| Failure::bad_arguments(format!("{url}: {error}")))?;
    let id = u64::from_str_radix(id, 16).map_err(|_| {
        let said = format!("{word}: a cluster's id is up to 16 hex digits, as a refusal shows it");
        Failure::bad_arguments(said)
    })?;
    Ok(Cluster {
        text: word.to_owned(),
        address,
        id,
    })
}

#[cfg(not(feature = "etcd"))]
fn cluster(_: &str, url: &str, _: &str) -> Result<Cluster, Failure> {
    of_store(url).map(|_| Cluster {
        text: String::new(),
        id: 0,
    })
}

/// What a word of the call means.
fn meant(word: &str, around: &Surroundings) -> Result<Vec<Consent>, Failure> {
    if let Some(digits) = word.strip_prefix(HASH) {
        let is_hash =
            digits.len() == HASH_DIGITS && digits.bytes().all(|it| it.is_ascii_hexdigit());
        if !is_hash {
            return Err(Failure::bad_arguments(format!(
                "{word}: a hash is {HASH} and {HASH_DIGITS} hex digits, as `tenure allow` shows it"
            )));
        }
        return Ok(vec![Consent {
            text: word.to_ascii_lowercase(),
            lets: "variables and commands of that hash".to_owned(),
            file: None,
        }]);
    }
    if word.contains("://") {
        return Ok(vec![of_store(word)?]);
    }
    let path = around.absolute(Path::new(word))?;
    let path = if path.is_dir() {
        path.join(config::FILE)
    } else {
        path
    };
    let file = Config::read(&path)?;
    if config::is_for_all_folders(&path) {
        return Err(Failure::bad_arguments(format!(
            "{} is not from a clone, and needs no consent",
            clean_path(&path)
        )));
    }
    Ok(asked_by(&file))
}

#[cfg(feature = "etcd")]
fn of_store(word: &str) -> Result<Consent, Failure> {
    use tenure_store::etcd::Address;
    Address::parse(word).map_err(|error| Failure::bad_arguments(format!("{word}: {error}")))?;
    Ok(Consent {
        text: word.to_owned(),
        lets: "a store on these servers".to_owned(),
        file: None,
    })
}

#[cfg(not(feature = "etcd"))]
fn of_store(word: &str) -> Result<Consent, Failure> {
    Err(Failure::bad_arguments(format!(
        "{word}: this binary was built without stores on servers, so no file leads to one"
    )))
}

/// What one file asks for.
fn asked_by(file: &Config) -> Vec<Consent> {
    let mut asked = Vec::new();
    #[cfg(feature = "etcd")]
    if let Some(address) = file.servers() {
        asked.push(Consent {
            text: address.to_string(),
            lets: "a store on these servers".to_owned(),
            file: Some(file.file.clone()),
        });
    }
    if let Some(hash) = file.hash_of_what_runs() {
        let keys = file.keys_of_what_runs().join(", ");
        asked.push(Consent {
            text: hash,
            lets: format!("{keys} for calls of agents"),
            file: Some(file.file.clone()),
        });
    }
    asked
}
