//! Where a call's locks are, which profile they have, and what a project says about them.

use super::{Defaults, Format, Surroundings, defaults, surroundings};
use crate::args::Common;
use crate::args::value;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::store::{Location, Locks};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tenure_core::{AgentKey, Host, LockName, Policy};
use tenure_engine::audit;
use tenure_engine::config::{self, Config, Source};
use tenure_engine::envelope::clean_path;
use tenure_engine::inherited::{Around, Hold, Saw};
use tenure_engine::leased_path::PathLock;
use tenure_engine::place::{self, At, Why};
use tenure_engine::process::Identity;
use tenure_engine::profile::{self, Native, Profile, Settings};
use tenure_engine::repository;
use tenure_engine::store::file::{FileStore, Sleeper};
use tenure_engine::trust::Named;

/// What a call is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// It takes locks, or waits for them.
    Take,
    /// It looks at locks, or is about what is held already.
    Tend,
}

/// Where the locks are, and what a project says about them.
#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "they are facts of a call that do not depend on each other"
)]
pub(crate) struct Place {
    location: Location,
    /// The folder of the locks, absolute; for locks on servers, their URL in its place. Notes of a hold name
    /// its place by it.
    pub(crate) folder: PathBuf,
    /// The locks are native ones beside the records of this profile.
    beside: Option<Box<dyn Profile>>,
    pub(crate) allow_network: bool,
    /// The caller named the place: by a flag, a variable, or a configuration file that a flag or a variable
    /// names. A place from a search or a default is not named.
    is_named: bool,
    /// Only the machine's administrator makes the folder.
    is_machines: bool,
    /// What says that the locks are here; `None` for a place that follows from another one.
    why: Option<Why>,
    /// Why a `tenure.toml` that was found does not count.
    passed_over: Option<String>,
    /// The actor of a claim that names none; `None` for the user's own name.
    pub(crate) actor: Option<String>,
    /// The agent in whose name the call is made.
    pub(crate) agent: Option<AgentKey>,
    /// The call itself names that agent (`--as`), so what it takes is the agent's. An agent that the call has
    /// inherited (`TENURE_AS`) is a label: a script under `run --as` keeps its own holds, with their own rules.
    pub(crate) is_agents: bool,
    /// How long servers may be silent until the call gives up, where that is not their store's own patience.
    #[cfg_attr(
        not(all(feature = "etcd", unix)),
        allow(dead_code, reason = "a folder is never silent")
    )]
    pub(crate) patience: Option<Duration>,
    /// The lock of the path that the call names.
    pub(crate) leased: Option<PathLock>,
    /// The configuration file that was read, absolute.
    pub(crate) config_file: Option<PathBuf>,
    config: Option<Arc<Config>>,
    /// The folder that a flag or a variable names for the audit, absolute.
    audit_dir: Option<PathBuf>,
    /// The folder that the configuration names for the audit, absolute, and how the file was found that
    /// names it.
    audit_of_project: Option<(PathBuf, Source)>,
    profile: Option<Box<dyn Profile>>,
    /// The profile, where it publishes records.
    records: Option<String>,
    /// What a call saw that hands this place down ([`Place::seen_by`]).
    saw: Saw,
    /// Where 0.1.0 kept native locks inside a run with records: the folder of the records.
    pub(crate) was_at: Option<PathBuf>,
}

impl Place {
    /// Finds the place of a call that needs nothing else of a file.
    pub(crate) fn of(common: &Common, around: &Surroundings) -> Result<Self, Failure> {
        Self::found(common, around, Purpose::Tend, None)
    }

    /// The same for a call that takes locks or waits for them: what the files say of a lock counts, whatever names
    /// the place.
    pub(crate) fn of_taker(common: &Common, around: &Surroundings) -> Result<Self, Failure> {
        Self::found(common, around, Purpose::Take, around.beside()?)
    }

    fn found(
        common: &Common,
        around: &Surroundings,
        purpose: Purpose,
        beside: Option<Arc<Config>>,
    ) -> Result<Self, Failure> {
        let profile = profile_of(common, around, purpose)?;
        // What a call names itself does not depend on any run around it.
        if profile.record().is_none()
            && let Some(outside) = around.outside(common)
        {
            let beside = match purpose {
                Purpose::Take => outside.beside()?,
                Purpose::Tend => None,
            };
            let place = Self::found(common, &outside, purpose, beside)?;
            let run = around.variables.place.around.as_ref();
            let was_at = run.and_then(|run| match &run.at {
                At::Folder(folder) => Some(folder.clone()),
                At::Url(_) => None,
            });
            return Ok(Self { was_at, ..place });
        }
        let variables = &around.variables;
        if common.project_root.is_some() && !profile.place().must_exist {
            return Err(Failure::bad_arguments(
                "--project-root is the sprint profile's; name the folder with --dir",
            ));
        }
        let leased = around.leased()?.cloned();
        if leased.is_some() && profile.record().is_some() {
            return Err(Failure::bad_arguments(format!(
                "--path: the {} profile has locks of its own names; only native locks stand for paths",
                profile.policy().name
            )));
        }
        let flags = surroundings::flags(common);
        let (found, config) = place::find(&flags, &variables.place, around)?;
        let location = match &found.at {
            At::Folder(folder) => Location::Folder(folder.clone()),
            At::Url(url) => location_of(&found.why.to_string(), url)?,
        };
        let location = match location {
            Location::Folder(folder) => Location::Folder(around.absolute(&folder)?),
            #[cfg(all(feature = "etcd", unix))]
            servers @ Location::Etcd(_) => servers,
        };
        let config = config.or(beside);
        if let Some(config) = &config {
            if purpose == Purpose::Take {
                check_defaults(config)?;
            }
            around.note_own_profiles(config);
        }
        let whole = match &config {
            Some(file) if around.counts_whole(file)? => Some(file),
            _ => None,
        };
        let audit_dir = match &common.audit_dir {
            Some(typed) => Some(around.absolute(&place::path_typed("--audit-dir", typed)?)?),
            None => variables.audit_folder()?,
        };
        let of_project = whole.and_then(|config| config.audit());
        let audit_of_project = match of_project {
            Some((dir, file)) => Some((around.absolute(dir)?, file.source)),
            None => None,
        };
        Ok(Self {
            folder: name_of(&location),
            location,
            beside: None,
            allow_network: common.allow_network_fs,
            is_named: found.named == Named::ByCaller,
            is_machines: found.is_machines,
            why: Some(found.why),
            passed_over: around.passed_over(),
            actor: Format::named(profile.policy().name).actor(variables),
            agent: around.agent()?,
            is_agents: around.types_agent(),
            patience: None,
            leased,
            config_file: whole
                .filter(|config| !config.file.as_os_str().is_empty())
                .and_then(|config| around.absolute(&config.file).ok()),
            audit_of_project,
            config,
            audit_dir,
            records: profile
                .record()
                .is_some()
                .then(|| profile.policy().name.to_owned()),
            profile: Some(profile),
            saw: Saw::default(),
            was_at: None,
        })
    }

    /// The place of groups, which are native locks. It is the same place, or beside published records a folder
    /// of tenure's own there. Records stand in work trees whose files are committed.
    pub(crate) fn of_groups(
        common: &Common,
        around: &Surroundings,
        purpose: Purpose,
    ) -> Result<Self, Failure> {
        let mut place = Self::found(common, around, purpose, None)?;
        let profile = place.take_profile();
        place.actor = None;
        if let Location::Folder(folder) = &place.location
            && profile.record().is_some()
        {
            place.folder = FileStore::folder_beside(&*profile, folder);
            place.beside = Some(profile);
        }
        Ok(place)
    }

    /// The place of groups whose runs publish records in this folder, as seen from a call that names no
    /// profile. The call may use this folder, but not make it: how it is made depends on the profile.
    pub(crate) fn groups_beside(&self) -> Option<Self> {
        if self.beside.is_some() || !self.is_folder() {
            return None;
        }
        let records = profile::Session::default();
        Some(Self {
            location: self.location.clone(),
            folder: FileStore::folder_beside(&records, &name_of(&self.location)),
            beside: Some(Box::new(records)),
            allow_network: self.allow_network,
            is_named: self.is_named,
            is_machines: self.is_machines,
            why: None,
            passed_over: None,
            actor: None,
            agent: None,
            is_agents: false,
            patience: None,
            leased: None,
            config_file: None,
            config: None,
            audit_dir: self.audit_dir.clone(),
            audit_of_project: None,
            profile: None,
            records: None,
            saw: Saw::default(),
            was_at: None,
        })
    }

    /// The place of the lock of a push: outside of the tree that is pushed, and the same for all clones
    /// of this user. So a folder or a scope counts only if the call itself names it. A run around it or a
    /// project names one for locks of its own. Servers lie in no tree.
    #[cfg(unix)]
    pub(crate) fn of_push(common: &Common, around: &Surroundings) -> Result<Self, Failure> {
        if let Ok(Some(name)) = profile_name(common, around) {
            built_in(name, around, Purpose::Take)?;
        }
        // Whatever profile the locks of the project have.
        let native = Some(Policy::NATIVE.name.to_owned());
        let common = &Common {
            profile: common.profile.clone().or(native),
            ..common.clone()
        };
        let mut place = Self::of_taker(common, around)?;
        let is_typed = common.dir.is_some() || common.store.is_some() || common.scope.is_some();
        if place.is_folder() && !is_typed {
            let folder = config::default_folder().map_err(|_| {
                Failure::bad_arguments(
                    "no folder is known for the lock of a push, because there is no home; name one \
                     with --dir",
                )
            })?;
            place.location = Location::Folder(folder.clone());
            place.folder = folder;
            place.is_machines = false;
            place.why = None;
        }
        Ok(place)
    }

    /// The place of a hold or a note, from the `folder` in it.
    pub(crate) fn noted(folder: &Path, allow_network: bool) -> Option<Self> {
        let location = match folder.to_str() {
            Some(url) if is_servers(url) => location_of("--store", url).ok()?,
            _ => Location::Folder(folder.to_owned()),
        };
        Some(Self {
            folder: name_of(&location),
            location,
            beside: None,
            allow_network,
            // The process that noted it was let in there.
            is_named: true,
            is_machines: false,
            why: None,
            passed_over: None,
            actor: None,
            agent: None,
            is_agents: false,
            patience: None,
            leased: None,
            config_file: None,
            config: None,
            audit_dir: None,
            audit_of_project: None,
            profile: None,
            records: None,
            saw: Saw::default(),
            was_at: None,
        })
    }

    /// Whether nothing says where the locks are.
    pub(crate) fn is_default(&self) -> bool {
        self.why == Some(Why::Default)
    }

    /// Whether a flag or a variable of the call says where the locks are.
    pub(crate) fn is_typed(&self) -> bool {
        matches!(
            self.why,
            Some(Why::Flag(_) | Why::Scope(_) | Why::Variable(..))
        )
    }

    /// Whether the locks are files on this machine.
    pub(crate) fn is_folder(&self) -> bool {
        matches!(self.location, Location::Folder(_))
    }

    /// The same place, with what the call sees of what names places: for a call that hands the place down.
    #[must_use]
    pub(crate) fn seen_by(self, around: &Surroundings) -> Self {
        let saw = match &self.why {
            Some(why) => around.saw(why),
            None => Saw::default(),
        };
        Self { saw, ..self }
    }

    /// What a process hands down to a command of this place, with the name and the token of a hold.
    pub(crate) fn handed_down(
        &self,
        identity: &Identity,
        hold: Option<(&LockName, u64)>,
    ) -> Around {
        let hold = hold.map(|(name, token)| Hold {
            token,
            folder: self.folder.clone(),
            name: name.as_str().to_owned(),
        });
        Around {
            at: match &self.location {
                Location::Folder(folder) => At::Folder(folder.clone()),
                #[cfg(all(feature = "etcd", unix))]
                Location::Etcd(address) => At::Url(address.to_string()),
            },
            is_machines: self.is_machines,
            records: self.records.clone(),
            config: self.config_file.clone(),
            saw: self.saw.clone(),
            process: identity.process,
            host: identity.host.clone(),
            hold,
        }
    }

    /// The profile of the locks, for the code that opens the store.
    pub(crate) fn take_profile(&mut self) -> Box<dyn Profile> {
        self.profile.take().unwrap_or_else(|| Box::new(Native))
    }

    /// Opens its locks. This sends nothing to any server yet.
    #[cfg_attr(
        not(all(feature = "etcd", unix)),
        allow(
            clippy::unnecessary_wraps,
            reason = "only what is opened on servers can fail"
        )
    )]
    pub(crate) fn open(
        &self,
        profile: Box<dyn Profile>,
        here: Host,
        sleeper: Box<dyn Sleeper>,
    ) -> Result<Locks, Failure> {
        match &self.location {
            Location::Folder(folder) => {
                let store = match &self.beside {
                    Some(records) => FileStore::beside(&**records, folder, here, sleeper),
                    None => FileStore::with_profile(profile, folder, here, sleeper),
                };
                let store = store.allow_network(self.allow_network);
                let store = if self.is_named { store } else { store.found() };
                let store = if self.is_machines {
                    store.of_machine()
                } else {
                    store
                };
                Ok(Locks::of_files(store))
            }
            #[cfg(all(feature = "etcd", unix))]
            Location::Etcd(address) => {
                let found = self.named_by_sudo_user();
                let locks = Locks::of_servers(address, found, profile, here, sleeper)?;
                Ok(match self.patience {
                    Some(patience) => locks.patience(patience),
                    None => locks,
                })
            }
        }
    }

    /// The configuration file of the user who became root by sudo, if only this file names the place. Root
    /// trusts that user with less.
    #[cfg(all(feature = "etcd", unix))]
    fn named_by_sudo_user(&self) -> Option<&Path> {
        match &self.why {
            Some(Why::File { file, source, .. }) if !self.is_named => {
                (*source == Source::FoundOfSudoUser).then_some(file.as_path())
            }
            _ => None,
        }
    }

    /// Why a file that was found does not count.
    #[cfg(unix)]
    pub(crate) fn passed_over(&self) -> Option<&str> {
        self.passed_over.as_deref()
    }

    /// What says that the locks are here, if anything does.
    #[cfg(unix)]
    pub(crate) fn why(&self) -> Option<&Why> {
        self.why.as_ref()
    }

    /// Where the locks are and what says so, for people.
    pub(crate) fn told(&self) -> String {
        let place = clean_path(&self.folder);
        let Some(why) = &self.why else {
            return format!("the locks are in {place}");
        };
        let mut told = format!("the locks are in {place} ({why})");
        if let Some(passed_over) = &self.passed_over {
            told = format!("{told}; not read: {passed_over}");
        }
        match self.without_main() {
            Some(why) => format!("{told}; {why}"),
            None => told,
        }
    }

    /// Why no file of the main checkout counts, where the work tree of the call has one that cannot be found.
    pub(crate) fn without_main(&self) -> Option<String> {
        // A file that was named needs no search.
        let first = self.config.as_ref().map(|config| config.source);
        let is_searched = first != Some(Source::Named);
        let here = std::env::current_dir().ok().filter(|_| is_searched)?;
        let tree = repository::tree_without_main(&here)?;
        // The way up has ended before.
        let nearest = self.config.as_ref().map(|config| config.file.as_path());
        if nearest.is_some_and(|file| file.starts_with(tree)) {
            return None;
        }
        Some(format!(
            "no tenure.toml of the main checkout counts, because {} is linked to a repository that \
             does not say where that is (core.worktree)",
            clean_path(tree)
        ))
    }

    /// What the project says about a lock.
    pub(crate) fn defaults(&self, name: &LockName) -> Result<Defaults, Failure> {
        let Some(config) = &self.config else {
            return Ok(Defaults::default());
        };
        if config.locks.is_empty() && config.on_held.is_none() {
            return Ok(Defaults::default());
        }
        let file = config.file.display().to_string();
        Defaults::of(config.defaults(name.as_str()), file, str::to_owned)
    }

    /// The rules of the locks.
    pub(crate) fn profile(&self) -> &dyn Profile {
        self.profile.as_deref().unwrap_or(&Native)
    }

    /// A name, by the rules of the profile.
    pub(crate) fn checked(&self, name: LockName) -> Result<LockName, Failure> {
        let profile = self.profile();
        profile.check_name(&name).map_err(|why| {
            Failure::bad_arguments(format!(
                "the lock name {:?} cannot be used in the {} profile: {why}",
                name.as_str(),
                profile.policy().name
            ))
        })?;
        Ok(name)
    }

    /// The folder of the audit, and whether the caller or the project asks for one. It is the typed one, else
    /// the environment's, else the project's, else one beside the locks. This does not look whether it exists.
    pub(crate) fn audit_folder(
        &self,
        profile: &dyn Profile,
    ) -> Result<(audit::Place, bool), Failure> {
        if let Some(folder) = &self.audit_dir {
            return Ok((folder.clone().into(), true));
        }
        if let Some((folder, source)) = &self.audit_of_project {
            let folder = audit::Place::from(folder.clone());
            return Ok(match source {
                Source::Named => (folder, true),
                _ => (folder.found(), true),
            });
        }
        // For locks on servers, each machine records what it did itself.
        let is_folder = self.is_folder();
        let (profile, locks) = match &self.beside {
            _ if !is_folder => (profile, config::default_folder()?),
            // The events of a group are recorded where those of its run's own lock are.
            Some(records) => (&**records, name_of(&self.location)),
            None => (profile, self.folder.clone()),
        };
        let folder = audit::Place::below(locks.clone(), profile.audit_folder(&locks));
        Ok(if is_folder && self.is_named {
            (folder, false)
        } else {
            (folder.found(), false)
        })
    }
}

/// The name of the profile of a call: what it types, else what `TENURE_PROFILE` says, else what the
/// configuration says. `None` for the native one.
pub(super) fn profile_name(
    common: &Common,
    around: &Surroundings,
) -> Result<Option<String>, Failure> {
    let typed = common.profile.clone();
    let said = match typed {
        None => around.variables.profile()?,
        typed => typed,
    };
    if said.is_some() {
        return Ok(said);
    }
    let config = around.whole()?;
    Ok(config.and_then(|config| config.default_profile().map(str::to_owned)))
}

/// The name of the built-in profile that a name stands for. A profile of the user's own stands for the one that it
/// began as, so that what was taken under it can be looked at and given back. No call takes anything under it.
pub(super) fn built_in(
    name: String,
    around: &Surroundings,
    purpose: Purpose,
) -> Result<String, Failure> {
    if Policy::ALL.iter().any(|policy| policy.name == name) {
        return Ok(name);
    }
    let config = around.configuration()?;
    let Some(section) = config.own_profile(&name) else {
        return Ok(name);
    };
    match purpose {
        Purpose::Take => Err(Failure::new(
            Exit::BadArguments,
            "BAD_CONFIGURATION",
            section.to_string(),
        )),
        Purpose::Tend => {
            around.note_own_profile(&section);
            Ok(section.like().to_owned())
        }
    }
}

/// The names of the profiles that are shown: the typed one, or all.
pub(crate) fn shown_profiles(
    typed: Option<&str>,
    around: &Surroundings,
) -> Result<Vec<String>, Failure> {
    let shown = match typed {
        Some(name) => vec![built_in(name.to_owned(), around, Purpose::Tend)?],
        None => Policy::ALL.map(|policy| policy.name.to_owned()).into(),
    };
    around.note_own_profiles(&*around.configuration()?);
    Ok(shown)
}

/// The profile of a call.
fn profile_of(
    common: &Common,
    around: &Surroundings,
    purpose: Purpose,
) -> Result<Box<dyn Profile>, Failure> {
    let given = common.lock_file_name.is_some() || common.stale_after.is_some();
    let name = match profile_name(common, around)? {
        // Nearly every call wants this profile, so nothing is looked up for it.
        None if !given => return Ok(Box::new(Native)),
        None => Policy::NATIVE.name.to_owned(),
        Some(name) => built_in(name, around, purpose)?,
    };
    let stale_after = common.stale_after.as_ref();
    let stale_after = stale_after.map(|limit| limit.value("--stale-after"));
    let settings = Settings {
        lock_file_name: common.lock_file_name.clone(),
        stale_after_ms: stale_after.transpose()?.map(value::millis),
    };
    Ok(profile::by_name(&name, &settings)?)
}

/// The files that a call made here would read, in the order in which they are asked. Each of them is looked at
/// as a call does.
#[cfg(unix)]
pub(super) fn files_of(around: &Surroundings) -> Result<Vec<PathBuf>, Failure> {
    let config = match around.named()? {
        Some(named) => Some(named),
        None => around.nearest()?,
    };
    let Some(config) = config else {
        return Ok(Vec::new());
    };
    check_defaults(&config)?;
    if let Some(chosen) = config.default_profile() {
        built_in(chosen.to_owned(), around, Purpose::Take)?;
    }
    Ok(config.files().map(|file| file.file.clone()).collect())
}

/// Looks at every default of a configuration, so that the first call finds a mistake, and not only the
/// first call that needs the default.
fn check_defaults(config: &Config) -> Result<(), Failure> {
    for config in config.files() {
        let file = config.file.display().to_string();
        value::read(
            &format!("{file}: on_held"),
            config.on_held.as_deref(),
            defaults::on_held,
        )?;
        for (pattern, said) in &config.locks {
            let source = |key: &str| format!("{file}: [lock.{pattern:?}] {key}");
            Defaults::of(said.clone(), String::new(), source)?;
        }
    }
    Ok(())
}

/// The name of a place in notes: its folder or its URL.
fn name_of(location: &Location) -> PathBuf {
    match location {
        Location::Folder(folder) => folder.clone(),
        #[cfg(all(feature = "etcd", unix))]
        Location::Etcd(address) => PathBuf::from(address.to_string()),
    }
}

/// Whether a URL names servers.
fn is_servers(url: &str) -> bool {
    url.starts_with("etcd:") || url.starts_with("etcds:")
}

/// The place that a URL names.
fn location_of(source: &str, url: &str) -> Result<Location, Failure> {
    match url.split_once(':') {
        Some(("file", _)) => match config::folder_of_url(url) {
            Some(folder) => Ok(Location::Folder(folder)),
            None => Err(Failure::bad_arguments(format!(
                "{source} {url}: no folder is named; write file:DIR"
            ))),
        },
        Some(("etcd" | "etcds", _)) => servers(source, url),
        _ if url.trim().is_empty() => Err(Failure::bad_arguments(format!(
            "{source}: it is empty; write file:DIR, or etcd://HOST:PORT[,HOST:PORT]/PREFIX"
        ))),
        _ => Err(Failure::bad_arguments(format!(
            "{source} {url}: write file:DIR, or etcd://HOST:PORT[,HOST:PORT]/PREFIX"
        ))),
    }
}

#[cfg(all(feature = "etcd", unix))]
fn servers(source: &str, url: &str) -> Result<Location, Failure> {
    let address = tenure_engine::store::etcd::Address::parse(url).map_err(|why| {
        // The wrong part may be a password, so the message does not repeat it.
        Failure::bad_arguments(format!("{source}: {why}"))
    })?;
    Ok(Location::Etcd(address))
}

#[cfg(not(all(feature = "etcd", unix)))]
fn servers(source: &str, _: &str) -> Result<Location, Failure> {
    Err(Failure::bad_arguments(format!(
        "{source}: this binary was built without etcd; build it with `--features etcd`, or write \
         file:DIR"
    )))
}
