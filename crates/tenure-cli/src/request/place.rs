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
use tenure_core::{AgentKey, Host, LockName, Mode, Policy};
use tenure_engine::audit::{self, Recording};
use tenure_engine::config::{self, Config, ConfigError, Source};
use tenure_engine::envelope::clean_path;
use tenure_engine::formats::{self, Settings};
use tenure_engine::group::of_lock;
use tenure_engine::inherited::{self, Around, Hold, Saw};
use tenure_engine::leased_path::{self, PathLock};
use tenure_engine::place::{self, At, Why};
use tenure_engine::repository;
use tenure_os::process::Identity;
use tenure_os::trust::Named;
use tenure_store::advice::{self, Advice};
use tenure_store::contract::Which;
use tenure_store::file::{FileStore, Sleeper, ThreadSleeper};
use tenure_store::profile::{Native, Profile};

/// What a call is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The call takes locks, or waits for them.
    Take,
    /// The call looks at locks, or is about what is held already.
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
    /// Set if the place has the locks of groups whose runs publish records of this profile in this folder.
    records_of_groups: Option<(Box<dyn Profile>, PathBuf)>,
    pub(crate) allow_network: bool,
    /// The caller named the place: by a flag, a variable, or a configuration file that a flag or a variable
    /// names. A place from a search or a default is not named.
    is_named: bool,
    /// Only the machine's administrator makes the folder.
    is_machines: bool,
    /// The folder depends on where the call was made, or on where the file lies that says so.
    is_relative: bool,
    /// What says that the locks are here; `None` for a place that follows from another one.
    why: Option<Why>,
    /// The flags by which another call that is made here finds the same locks.
    flags: Vec<String>,
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
    /// The lock of the group that the call is about.
    pub(crate) group: Option<LockName>,
    /// The call need not know where the runs of that group keep it ([`Place::groups_beside`]).
    looks_beside: bool,
    /// The configuration file that was read, absolute.
    pub(crate) config_file: Option<PathBuf>,
    config: Option<Arc<Config>>,
    /// The folder that a flag or a variable names for the audit, absolute.
    audit_dir: Option<PathBuf>,
    /// The folder that the configuration names for the audit, absolute, and how the file was found that
    /// names it.
    audit_of_project: Option<(PathBuf, Source)>,
    /// The events that the audit records.
    pub(crate) recording: Recording,
    profile: Option<Box<dyn Profile>>,
    /// The profile, where it publishes records.
    records: Option<String>,
    /// What a call saw that hands this place down ([`Place::seen_by`]).
    saw: Saw,
    /// Where the groups of its runs are, beside records.
    groups: Option<At>,
    /// Where an older tenure kept these native locks: in the folder of the records, or beside them.
    pub(crate) was_at: Option<PathBuf>,
}

impl Place {
    /// Finds the place of a call that needs nothing else of a file.
    pub(crate) fn of(common: &Common, around: &Surroundings) -> Result<Self, Failure> {
        match around.group()? {
            Some(group) => Self::of_group(common, around, Purpose::Tend, group),
            None => Self::found(common, around, Purpose::Tend, None),
        }
    }

    /// The place of the lock of a group that a call is about.
    fn of_group(
        common: &Common,
        around: &Surroundings,
        purpose: Purpose,
        group: LockName,
    ) -> Result<Self, Failure> {
        if around.leased()?.is_some() {
            return Err(Failure::bad_arguments(
                "--group and --path name two locks; leave one out",
            ));
        }
        let mut place = Self::of_groups(common, around, purpose)?;
        place.looks_beside = purpose == Purpose::Tend;
        place.group = Some(group);
        Ok(place)
    }

    /// The place of a call that takes locks or waits for them: what the files say of a lock counts, whatever names
    /// the place.
    pub(crate) fn of_taker(common: &Common, around: &Surroundings) -> Result<Self, Failure> {
        match around.group()? {
            Some(group) => Self::of_group(common, around, Purpose::Take, group),
            None => Self::found(common, around, Purpose::Take, around.beside()?),
        }
    }

    /// Finds the place of a verb about a hold, of this lock if one is named. Where nothing that the call itself says leads to a
    /// place, and what is found leads to none, an inherited hold says where it is.
    pub(crate) fn of_hold(
        common: &Common,
        around: &Surroundings,
        name: Option<&str>,
    ) -> Result<Self, Failure> {
        let failure = match Self::of(common, around) {
            Err(failure) if !surroundings::flags(common).says() => failure,
            found => return found,
        };
        let mut holds = inherited::holds().into_iter();
        let hold = holds.rfind(|hold| name.is_none_or(|name| name == hold.name));
        let noted = hold.and_then(|hold| {
            let native = || Box::new(Native) as Box<dyn Profile>;
            let profile = profile_of(common, around, Purpose::Tend);
            let profile = profile.unwrap_or_else(|_| native());
            Self::noted_of(&hold.folder, common.allow_network_fs, profile)
        });
        noted.ok_or(failure)
    }

    fn found(
        common: &Common,
        around: &Surroundings,
        purpose: Purpose,
        beside: Option<Arc<Config>>,
    ) -> Result<Self, Failure> {
        let profile = profile_of(common, around, purpose)?;
        if let Some(flag) = flag_of_groups(common) {
            return Err(Failure::bad_arguments(format!(
                "--dir and {flag} name two places; beside the records of a profile, and with --group, {flag} says where \
                 the group is"
            )));
        }
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
        let is_relative = found.is_relative;
        let location = match location {
            Location::Folder(folder) => Location::Folder(around.absolute(&folder)?),
            #[cfg(all(feature = "etcd", unix))]
            servers @ Location::Etcd(_) => servers,
        };
        let run = variables.place.around.as_ref();
        let run = run.filter(|_| found.why == Why::Around);
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
        let recording = recording(variables, config.as_deref())?;
        let of_project = whole.and_then(|config| config.audit_folder());
        let audit_of_project = match of_project {
            Some((dir, file)) => Some((around.absolute(dir)?, file.source)),
            None => None,
        };
        Ok(Self {
            is_named: found.named == Named::ByCaller,
            is_machines: found.is_machines,
            is_relative,
            // A reader of the answer may be outside of the run that names the place.
            flags: match found.why {
                Why::Around => flags_to(&location, &*profile),
                _ => flags_of(common),
            },
            why: Some(found.why),
            passed_over: around.passed_over(),
            actor: Format::named(profile.policy().name).actor(variables),
            agent: around.agent()?,
            is_agents: around.types_agent(),
            leased,
            config_file: whole
                .filter(|config| !config.file.as_os_str().is_empty())
                .and_then(|config| around.absolute(&config.file).ok()),
            audit_of_project,
            recording,
            config,
            audit_dir,
            records: profile
                .record()
                .is_some()
                .then(|| profile.policy().name.to_owned()),
            profile: Some(profile),
            groups: run.and_then(|run| run.groups.clone()),
            ..Self::of_location(location, common.allow_network_fs)
        })
    }

    /// The place of a run's own locks. Where its profile publishes records and it has a group, a flag beside `--dir`
    /// says where the group is ([`Place::of_groups`]).
    pub(crate) fn of_run(
        common: &Common,
        around: &Surroundings,
        has_group: bool,
    ) -> Result<Self, Failure> {
        let publishes = has_group
            && flag_of_groups(common).is_some()
            && profile_of(common, around, Purpose::Take)?
                .record()
                .is_some();
        if publishes {
            return Self::of_taker(&of_records(common), around);
        }
        Self::of_taker(common, around)
    }

    /// The place of groups, which are native locks. Without published records, groups lie where the other locks do.
    /// Records stand in work trees whose files are committed, and each work tree has its own. So where a flag says where
    /// the records are, the groups lie
    /// 1. where `--scope` or `--store` says, beside that flag;
    /// 2. where any native lock of this call would, if something says so; no run around it, whose place would part this
    ///    call from the same one elsewhere;
    /// 3. in the clone of the records, for all its work trees;
    /// 4. beside the records, in a folder of tenure's own, where these are in no clone.
    ///
    /// Where no flag names the records, 3 and 4 alone.
    pub(crate) fn of_groups(
        common: &Common,
        around: &Surroundings,
        purpose: Purpose,
    ) -> Result<Self, Failure> {
        let profile = profile_of(common, around, purpose)?;
        if profile.record().is_none() {
            let mut place = Self::found(common, around, purpose, None)?;
            place.take_profile();
            place.actor = None;
            return Ok(place);
        }
        let mut place = Self::found(&of_records(common), around, purpose, None)?;
        place.take_profile();
        place.actor = None;
        place.records = None;
        place.flags = flags_of(common);
        if !place.is_folder() {
            return Ok(place);
        }
        let records = place.folder.clone();
        let was_at = FileStore::folder_beside(&*profile, &records);
        let named = match place.groups.take() {
            // The run around the call has a group of its own there.
            Some(At::Folder(folder)) if folder == was_at => None,
            Some(At::Folder(folder)) => Self::noted(&folder, common.allow_network_fs),
            Some(At::Url(url)) => Self::noted(Path::new(&url), common.allow_network_fs),
            None => Self::named_for_groups(common, around, purpose, &records)?,
        };
        // The folder of the records says nothing of groups, whatever else names it.
        let named = named.filter(|named| !inherited::Folder::is_same(&named.folder, &records));
        if let Some(named) = named {
            place.location = named.location;
            place.folder = named.folder;
            place.is_named = named.is_named;
            place.is_machines = named.is_machines;
            place.is_relative = named.is_relative;
            place.why = named.why;
            place.was_at = Some(was_at);
        } else if let Some(folder) = place::locks_of_clone(&records)? {
            place.location = Location::Folder(folder.clone());
            place.folder = folder;
            place.is_named = false;
            place.is_machines = false;
            place.is_relative = true;
            place.why = Some(Why::CloneOfRecords);
            place.was_at = Some(was_at);
        } else {
            place.folder = was_at;
        }
        place.records_of_groups = Some((profile, records));
        Ok(place)
    }

    /// What says where groups are, apart from the records.
    fn named_for_groups(
        common: &Common,
        around: &Surroundings,
        purpose: Purpose,
        records: &Path,
    ) -> Result<Option<Self>, Failure> {
        if common.dir.is_none() && common.project_root.is_none() {
            return Ok(None);
        }
        let native = Common {
            dir: None,
            project_root: None,
            lock_file_name: None,
            stale_after: None,
            profile: Some(Policy::NATIVE.name.to_owned()),
            ..common.clone()
        };
        // From there, so that all runs of a folder of records have one group, wherever they are called.
        let around = around.without_run(&native).from(records);
        let place = match Self::found(&native, &around, purpose, None) {
            // Nothing names a place.
            Err(failure) if failure.message == ConfigError::NoPlace.to_string() => return Ok(None),
            found => found?,
        };
        let is_of_records = match &place.why {
            Some(Why::Default) | None => true,
            Some(Why::File { .. }) => around.config()?.is_some_and(|config| {
                let profile = config.default_profile();
                profile.is_some_and(|name| name != Policy::NATIVE.name)
            }),
            Some(_) => false,
        };
        Ok((!is_of_records).then_some(place))
    }

    /// Where groups were or may be as well, as seen from this place: beside the records in this folder, for a call that
    /// names no profile, and where an older tenure kept them. The call may use that folder, but not make it: how it is
    /// made depends on the profile.
    pub(crate) fn groups_beside(&self) -> Option<Self> {
        if let Some(was_at) = &self.was_at {
            return Self::noted(was_at, self.allow_network);
        }
        if self.records_of_groups.is_some() || !self.is_folder() {
            return None;
        }
        let records = formats::Session::default();
        let folder = name_of(&self.location);
        Some(Self {
            folder: FileStore::folder_beside(&records, &folder),
            records_of_groups: Some((Box::new(records), folder)),
            flags: self.flags.clone(),
            is_named: self.is_named,
            is_machines: self.is_machines,
            audit_dir: self.audit_dir.clone(),
            recording: self.recording,
            ..Self::of_location(self.location.clone(), self.allow_network)
        })
    }

    /// Where the lock of the group may be instead, for a call that takes nothing.
    pub(crate) fn group_beside(&self) -> Option<(LockName, Self)> {
        let group = self.group.as_ref().filter(|_| self.looks_beside)?;
        Some((group.clone(), self.groups_beside()?))
    }

    /// The place of the lock of a push: outside of the tree that is pushed, and the same for all clones
    /// of this user. So a folder or a scope counts only if the call itself names it. A run around it or a
    /// project names one for locks of its own. Servers lie in no tree.
    #[cfg(unix)]
    pub(crate) fn of_push(common: &Common, around: &Surroundings) -> Result<Self, Failure> {
        if let Ok(Some(name)) = profile_name(common, around) {
            built_in(name, around, Purpose::Take)?;
        }
        let around = &around.without_run(common);
        // Whatever profile the locks of the project have.
        let native = Some(Policy::NATIVE.name.to_owned());
        let common = &Common {
            profile: common.profile.clone().or(native),
            ..common.clone()
        };
        let mut place = Self::of_taker(common, around)?;
        let is_typed = surroundings::flags(common).says();
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
            place.flags = flags_to(&place.location, &Native);
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
            // The process that noted it was let in there.
            is_named: true,
            ..Self::of_location(location, allow_network)
        })
    }

    /// The place of a hold of this profile, from the `folder` in it.
    pub(crate) fn noted_of(
        folder: &Path,
        allow_network: bool,
        profile: Box<dyn Profile>,
    ) -> Option<Self> {
        let name = profile.policy().name;
        let records = profile.record().is_some().then(|| name.to_owned());
        let noted = Self::noted(folder, allow_network)?;
        Some(Self {
            flags: flags_to(&noted.location, &*profile),
            profile: Some(profile),
            records,
            ..noted
        })
    }

    /// A place of native locks of which no more is known.
    fn of_location(location: Location, allow_network: bool) -> Self {
        Self {
            folder: name_of(&location),
            flags: flags_to(&location, &Native),
            location,
            records_of_groups: None,
            allow_network,
            is_named: false,
            is_machines: false,
            is_relative: false,
            why: None,
            passed_over: None,
            actor: None,
            agent: None,
            is_agents: false,
            patience: None,
            leased: None,
            group: None,
            looks_beside: false,
            config_file: None,
            config: None,
            audit_dir: None,
            audit_of_project: None,
            recording: Recording::default(),
            profile: None,
            records: None,
            saw: Saw::default(),
            groups: None,
            was_at: None,
        }
    }

    /// What names the lock of the call in place of a name: a path, or a group.
    pub(super) fn named_otherwise(&self) -> Option<&LockName> {
        let leased = self.leased.as_ref().map(|leased| &leased.name);
        leased.or(self.group.as_ref())
    }

    /// The lock of a path that is called so, if there is one: the one whose claims say it, else that of the file there, from the
    /// root of the work tree on. A candidate that cannot be read may be the one, and is not passed over.
    pub(super) fn lock_shown_as(
        &self,
        called: &str,
        around: &Surroundings,
    ) -> Result<Option<LockName>, Failure> {
        let here = Identity::current().host;
        let store = self.open(Box::new(Native), here, Box::new(ThreadSleeper))?;
        let mut candidates = Vec::new();
        store.names(Which::Locks, &mut |name| {
            if leased_path::may_stand_for(&name, called) {
                candidates.push(name);
            }
        })?;
        let mut found = Vec::new();
        for name in &candidates {
            let reading = store.read(name)?;
            let mut claims = reading.entry().into_iter().flat_map(|entry| &entry.claims);
            if claims
                .any(|claim| claim.holder.path().map(leased_path::called) == Some(called.into()))
            {
                found.push(name);
            }
        }
        match &*found {
            [one] => Ok(Some(LockName::clone(one))),
            [] if candidates.is_empty() => Ok(None),
            [] => {
                let here = around.folder()?;
                let root = leased_path::root_of(here).unwrap_or(here);
                let name = surroundings::lock_of(Path::new(called), None, root)?.name;
                Ok(Some(name).filter(|name| candidates.contains(name)))
            }
            several => {
                let names: Vec<_> = several.iter().map(|name| name.as_str()).collect();
                Err(Failure::bad_arguments(format!(
                    "{called} stands for {} locks, of several work trees or ranges: {}; name one of them, or the file with \
                     --path",
                    names.len(),
                    names.join(", ")
                )))
            }
        }
    }

    /// How the reader of an answer calls the program again about this lock.
    pub(crate) fn advice(&self, name: &LockName) -> Advice {
        let leased = self.leased.as_ref().filter(|leased| leased.name == *name);
        let lock = if let Some(leased) = leased {
            let path = leased.target.to_string_lossy().into_owned();
            let across = leased.across.as_str();
            vec![
                "--path".to_owned(),
                path,
                "--across".to_owned(),
                across.to_owned(),
            ]
        } else if self.records_of_groups.is_some() {
            let text = of_lock(name).unwrap_or_else(|| name.to_string());
            vec!["--group".to_owned(), text]
        } else {
            vec![name.to_string()]
        };
        Advice::of_program(self.flags.clone(), lock)
    }

    /// The line by which that reader calls a verb about the whole place.
    pub(crate) fn line(&self, words: &[&str]) -> String {
        let (program, flags) = (advice::program(), self.flags.iter().map(String::as_str));
        let start = std::iter::once(&*program).chain(flags);
        advice::line(start.chain(words.iter().copied()))
    }

    /// Whether nothing says where the locks are.
    pub(crate) fn is_default(&self) -> bool {
        self.why == Some(Why::Default)
    }

    /// Whether a flag of the call says where the locks are.
    pub(crate) fn is_typed(&self) -> bool {
        matches!(self.why, Some(Why::Flag(_) | Why::Scope(_)))
    }

    /// The link of a release behind which the folder of the locks is, as `current` that leads to `releases/7`. The path of
    /// the locks goes through it, or the folder of the call was reached through it, as far as the shell says so (`PWD`).
    ///
    /// A link that leads elsewhere than beside itself, or to a folder of its own name, is how systems are laid out
    /// (`/home`, `/var/lock`), and stays.
    pub(crate) fn link_of_release(&self) -> Option<PathBuf> {
        // What a variable names costs no call a look: a person has set it.
        let is_named = matches!(&self.why, Some(Why::Flag(_) | Why::File { .. }));
        if !self.is_folder() || !(self.is_relative || is_named) {
            return None;
        }
        let mut ways = self.folder.ancestors();
        let locks = ways.find_map(|folder| folder.canonicalize().ok())?;
        let leads_to_locks = |link: &Path, is_beside: bool| {
            let is_link = link
                .symlink_metadata()
                .is_ok_and(|facts| facts.is_symlink());
            let target = is_link.then(|| link.canonicalize().ok()).flatten();
            target.is_some_and(|target| {
                let above = link.parent().and_then(|above| above.canonicalize().ok());
                let beside = above.is_some_and(|above| target.starts_with(above));
                locks.starts_with(&target)
                    && target.file_name() != link.file_name()
                    && (beside || !is_beside)
            })
        };
        // A link that is the folder itself was made for it.
        let mut above = self.folder.ancestors().skip(1);
        if let Some(link) = above.find(|way| leads_to_locks(way, true)) {
            return Some(link.to_owned());
        }
        let logical = PathBuf::from(std::env::var_os("PWD")?);
        let here = std::env::current_dir().ok()?;
        if !self.is_relative || logical == here || logical.canonicalize().ok()? != here {
            return None;
        }
        let link = logical.ancestors().find(|way| leads_to_locks(way, false))?;
        Some(link.to_owned())
    }

    /// The user who called sudo, that program, and the folder of that user's locks, where nothing says where these locks
    /// are.
    pub(crate) fn folder_of_caller_of_sudo(&self) -> Option<(String, &'static str, PathBuf)> {
        let is_handed_down = || {
            let usual = config::default_folder();
            self.why == Some(Why::Around) && usual.is_ok_and(|usual| usual == self.folder)
        };
        if !self.is_default() && !is_handed_down() {
            return None;
        }
        place::folder_of_caller_of_sudo().filter(|(_, _, folder)| *folder != self.folder)
    }

    /// Whether the locks are files on this machine.
    pub(crate) fn is_folder(&self) -> bool {
        matches!(self.location, Location::Folder(_))
    }

    /// Notes what the call sees of what names places: for a call that hands the place down.
    #[must_use]
    pub(crate) fn seen_by(self, around: &Surroundings) -> Self {
        let saw = match &self.why {
            Some(why) => around.saw(why),
            None => Saw::default(),
        };
        Self { saw, ..self }
    }

    fn at(&self) -> At {
        match &self.location {
            Location::Folder(folder) => At::Folder(folder.clone()),
            #[cfg(all(feature = "etcd", unix))]
            Location::Etcd(address) => At::Url(address.to_string()),
        }
    }

    /// Notes where the group of a run of this place is.
    #[must_use]
    pub(crate) fn with_groups(self, groups: Option<&Self>) -> Self {
        match groups {
            Some(groups) => Self {
                groups: Some(groups.at()),
                ..self
            },
            None => self,
        }
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
            is_machines: self.is_machines,
            records: self.records.clone(),
            groups: self.groups.clone(),
            config: self.config_file.clone(),
            saw: self.saw.clone(),
            hold,
            ..Around::of(self.at(), identity)
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
                let store = match &self.records_of_groups {
                    Some((records, at)) if at == folder => {
                        FileStore::beside(&**records, folder, here, sleeper)
                    }
                    _ => FileStore::with_profile(profile, folder, here, sleeper),
                };
                let store = store.allow_network(self.allow_network);
                let store = store.asking(config::is_machines_folder);
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
        let says = |file: &Config| !file.locks.is_empty() || file.on_held.is_some();
        if !config.files().any(says) {
            return Ok(Defaults::default());
        }
        let file = config.file.display().to_string();
        let defaults = Defaults::of(config.defaults(name.as_str()), file, str::to_owned)?;
        Ok(match &self.group {
            // A single run has a group at a time, whatever is said about locks of such names.
            Some(_) => defaults.without_mode(),
            None => defaults,
        })
    }

    /// Refuses a run that an agent's hook has written, or the agent, where a file of a clone decides what it runs and no
    /// one allows that.
    pub(super) fn refuse_untyped(&self, name: &LockName) -> Result<(), Failure> {
        if self.is_agents {
            self.refuse_to_agents(name)
        } else {
            Ok(())
        }
    }

    /// Refuses the run that a hook is about to write.
    pub(crate) fn refuse_to_agents(&self, name: &LockName) -> Result<(), Failure> {
        match &self.config {
            Some(config) => Ok(config.refuse_untyped(name.as_str())?),
            None => Ok(()),
        }
    }

    /// The place for a question about a lock: what the files say of it counts, whatever names the place.
    pub(crate) fn asked_about(self, around: &Surroundings) -> Self {
        let config = self
            .config
            .clone()
            .or_else(|| around.beside().ok().flatten());
        Self { config, ..self }
    }

    /// The mode of a plain request for a lock: the one that the project says for all callers, else an exclusive one. A
    /// mistake in a file is told to callers that take the lock.
    pub(crate) fn plain_mode(&self, name: &LockName) -> Mode {
        if self.records.is_some() {
            return Mode::Exclusive;
        }
        let said = self.defaults(name).and_then(|said| said.mode(None, name));
        said.map_or(Mode::Exclusive, |(mode, _)| mode)
    }

    /// What the slots of a lock stand for, as its file says now. A file that cannot be read for the moment says nothing.
    pub(crate) fn members_now(&self, name: &LockName) -> Option<Vec<String>> {
        let config = Config::read(&self.config.as_ref()?.file).ok()?;
        config.defaults(name.as_str()).members
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
        let (profile, locks) = match &self.records_of_groups {
            // The events of a group are recorded where those of its run's own lock are.
            Some((records, folder)) => (&**records, folder.clone()),
            None if !is_folder => (profile, config::default_folder()?),
            None => (profile, self.folder.clone()),
        };
        let mut folder = audit::Place::below(locks.clone(), profile.audit_folder(&locks));
        if profile.folder(&locks) != locks {
            folder = folder.among_others();
        }
        Ok(if is_folder && self.is_named {
            (folder, false)
        } else {
            (folder.found(), false)
        })
    }
}

/// The events that the audit records: the environment's word, else that of a file.
fn recording(variables: &super::Variables, config: Option<&Config>) -> Result<Recording, Failure> {
    let of_file = || config.and_then(Config::recording).unwrap_or_default();
    Ok(variables.recording()?.unwrap_or_else(of_file))
}

/// The flag that says where groups are, beside one that names the folder of the records.
fn flag_of_groups(common: &Common) -> Option<&'static str> {
    common.dir.as_ref().or(common.project_root.as_ref())?;
    let scope = common.scope.map(|_| "--scope");
    scope.or(common.store.as_ref().map(|_| "--store"))
}

/// The flags of a call, as far as they are about its records.
fn of_records(common: &Common) -> Common {
    let mut records = common.clone();
    if flag_of_groups(common).is_some() {
        (records.scope, records.store) = (None, None);
    }
    records
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
    Ok(formats::by_name(&name, &settings)?)
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

/// The typed flags by which another call finds the same place.
fn flags_of(common: &Common) -> Vec<String> {
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    let store = common.store.as_deref().map(shown_url);
    let scope = common.scope.map(|scope| scope.as_str().to_owned());
    let stale_after = common.stale_after.as_ref().map(|age| age.text.clone());
    let named = [
        ("--profile", common.profile.clone()),
        ("--dir", path(&common.dir)),
        ("--store", store),
        ("--scope", scope),
        ("--project-root", path(&common.project_root)),
        ("--lock-file-name", common.lock_file_name.clone()),
        ("--stale-after", stale_after),
        ("--config", path(&common.config)),
    ];
    let named = named
        .into_iter()
        .filter_map(|(flag, value)| Some([flag.to_owned(), value?]));
    let network = common
        .allow_network_fs
        .then(|| "--allow-network-fs".to_owned());
    named.flatten().chain(network).collect()
}

/// The flags by which a call finds a place, wherever it is made.
fn flags_to(location: &Location, profile: &dyn Profile) -> Vec<String> {
    let place = name_of(location).display().to_string();
    let (flag, place) = match location {
        Location::Folder(_) => ("--dir", place),
        #[cfg(all(feature = "etcd", unix))]
        Location::Etcd(_) => ("--store", shown_url(&place)),
    };
    let name = profile.policy().name;
    let profile = profile.record().is_some().then_some(["--profile", name]);
    let flags = profile.into_iter().flatten().chain([flag, &*place]);
    flags.map(str::to_owned).collect()
}

/// A URL may have a password in it, and the line is printed.
fn shown_url(url: &str) -> String {
    if url.contains('@') { "URL" } else { url }.to_owned()
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
    let address = tenure_store::etcd::Address::parse(url).map_err(|why| {
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
