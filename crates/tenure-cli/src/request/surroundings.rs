//! What a call may know beside its words: its variables, its folder, its configuration. Each is read here, at
//! most once; folder and configuration only if the meaning of the words depends on them.
//!
//! The rest of `request` decides what follows from them.

use crate::args::value::{self, Typed};
use crate::args::{Calling, Common, OfLock, OfPath};
use crate::exit::Exit;
use crate::failure::Failure;
use std::cell::{Cell, OnceCell};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tenure_core::{AgentKey, LockName};
use tenure_engine::audit::Recording;
use tenure_engine::config::{self, Config, ConfigError, ConfigSearch, OwnSection, Source};
use tenure_engine::inherited::Saw;
use tenure_engine::leased_path::{self, Across, PathLock};
use tenure_engine::place::{self, Files, Why};

/// The folder of the audit.
const AUDIT_DIR: &str = "TENURE_AUDIT_DIR";

/// The events that the audit records.
const AUDIT: &str = "TENURE_AUDIT";

/// The name of the profile.
const PROFILE: &str = "TENURE_PROFILE";

/// The agent in whose name calls are made.
pub(crate) const AGENT: &str = "TENURE_AS";

/// The variables that change what a call means. An empty one says nothing, unless it names a place.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    /// The variables that name a place. An empty one of these is a mistake.
    pub(crate) place: place::Variables,
    /// As it is written. An empty one is a mistake, too.
    audit_dir: Option<PathBuf>,
    recording: Option<String>,
    /// As it is written. An empty one is a mistake: another profile is another lock.
    profile: Option<OsString>,
    pub(crate) wait: Option<String>,
    /// The actor of a fleet's claim.
    pub(crate) actor: Option<String>,
    /// The CI run by which a session's caller is known.
    pub(crate) run_id: Option<String>,
    /// The lock that the run around this call is named after, and its fencing token.
    pub(crate) name: Option<String>,
    pub(crate) token: Option<String>,
    /// The shell of `run --shell`.
    pub(crate) shell: Option<OsString>,
    /// The agent in whose name calls are made. An empty one is a mistake.
    pub(crate) agent: Option<OsString>,
    /// The variables by which a service manager speaks to one process, and that name this one.
    pub(crate) of_service: Vec<&'static str>,
}

impl Variables {
    fn read(place: place::Variables) -> Self {
        Self {
            place,
            audit_dir: std::env::var_os(AUDIT_DIR).map(PathBuf::from),
            recording: text(AUDIT),
            profile: std::env::var_os(PROFILE),
            wait: text("TENURE_WAIT"),
            actor: text("ACTOR"),
            run_id: text("GITHUB_RUN_ID"),
            name: text("TENURE_NAME"),
            token: text("TENURE_TOKEN"),
            agent: std::env::var_os(AGENT),
            shell: variable(if cfg!(windows) { "ComSpec" } else { "SHELL" }),
            of_service: (["LISTEN_PID", "WATCHDOG_PID"].into_iter())
                .filter(|name| text(name).is_some_and(|pid| pid == std::process::id().to_string()))
                .collect(),
        }
    }

    /// The profile that a variable names.
    pub(super) fn profile(&self) -> Result<Option<String>, Failure> {
        let Some(written) = &self.profile else {
            return Ok(None);
        };
        match written.to_str() {
            Some("") => Err(Failure::bad_arguments(format!(
                "{PROFILE}: it is empty; unset it, or write the name of a profile: native, sprint, resume, session \
                 or fleet"
            ))),
            Some(name) => Ok(Some(name.to_owned())),
            None => Err(Failure::bad_arguments(format!(
                "{PROFILE}: it is not UTF-8; unset it, or write the name of a profile"
            ))),
        }
    }

    /// The events that the audit records, if a variable says so.
    pub(super) fn recording(&self) -> Result<Option<Recording>, Failure> {
        let read = |word: &String| {
            Recording::from_word(word).ok_or_else(|| {
                Failure::bad_arguments(format!(
                    "{AUDIT}: {word:?} is none of the words for what the audit records; write incidents, all or arguments"
                ))
            })
        };
        self.recording.as_ref().map(read).transpose()
    }

    /// The folder that a variable names for the audit.
    pub(super) fn audit_folder(&self) -> Result<Option<PathBuf>, Failure> {
        let written = self.audit_dir.as_deref();
        let folder = written.map(|folder| place::folder_in(AUDIT_DIR, folder));
        Ok(folder.transpose()?)
    }
}

/// The value of a variable, unless it is empty.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The value of a variable, if it is text and not empty.
pub(crate) fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// What a call may know.
#[derive(Debug, Default)]
pub(crate) struct Surroundings {
    pub(crate) variables: Variables,
    /// The configuration that the call names.
    given: Option<PathBuf>,
    /// A flag or a variable names the folder or the URL of the locks.
    is_named: bool,
    /// Why a file that was found does not count.
    passed_over: OnceCell<String>,
    /// The section of a profile of the user's own in a configuration that was read, and whether that was told.
    own_profile: OnceCell<String>,
    is_told: Cell<bool>,
    folder: OnceCell<PathBuf>,
    /// The lock of the path that the call names, or why there is none. The place of the lock is looked for from
    /// there, and not from the folder of the call.
    leased: Option<Result<PathLock, Failure>>,
    /// The group whose lock the call is about.
    group: Option<Typed<LockName>>,
    typed_agent: Option<Typed<AgentKey>>,
    /// An agents' server: its variable was set for its calls.
    is_agents_server: bool,
    named: OnceCell<Option<Arc<Config>>>,
    nearest: OnceCell<Option<Arc<Config>>>,
    unseen: OnceCell<Option<Arc<Config>>>,
    /// The call is about what is held already: no mistake in a file of a run keeps it from that.
    tends: Cell<bool>,
}

impl Surroundings {
    /// Of a call with these flags.
    pub(crate) fn of(common: &Common) -> Self {
        Self::of_calling(common, &Calling::default(), &OfPath::default())
    }

    /// Surroundings of a verb that an agent may call, or that names its lock by a path.
    pub(crate) fn of_calling(common: &Common, calling: &Calling, path: &OfPath) -> Self {
        let mut around = Self {
            given: common.config.clone(),
            typed_agent: calling.agent.clone(),
            ..Self::default()
        };
        let of_path = |named| lock_of(named, path.across, around.folder()?);
        around.leased = path.path.as_deref().map(of_path);
        around.read(common)
    }

    /// Surroundings of a call about the lock of a group.
    pub(crate) fn of_group(mut self, of: &OfLock) -> Self {
        self.group.clone_from(&of.group);
        self
    }

    /// The lock of the group that the call is about, if it names one.
    pub(crate) fn group(&self) -> Result<Option<LockName>, Failure> {
        value::given(value::GROUP_NAME, self.group.as_ref())
    }

    /// Adds what the variables say to a call of this folder.
    fn read(self, common: &Common) -> Self {
        let place = place::Variables::read(|| self.start().ok());
        Self {
            is_named: place::is_named(&flags(common), &place),
            variables: Variables::read(place),
            ..self
        }
    }

    /// Surroundings of this call as if no run were around it: for native locks, where the run around it publishes records
    /// of another profile.
    pub(super) fn outside(&self, common: &Common) -> Option<Self> {
        let around = self.variables.place.around.as_ref()?;
        around.records.as_ref()?;
        Some(self.without_run(common))
    }

    /// Surroundings of this call with these flags, as if no run were around it.
    pub(super) fn without_run(&self, common: &Common) -> Self {
        let variables = Variables::read(place::Variables::all());
        Self {
            is_named: place::is_named(&flags(common), &variables.place),
            variables,
            given: self.given.clone(),
            folder: self.folder.clone(),
            leased: self.leased.clone(),
            typed_agent: self.typed_agent.clone(),
            is_agents_server: self.is_agents_server,
            ..Self::default()
        }
    }

    /// Puts the call into this folder.
    pub(super) fn from(self, folder: &Path) -> Self {
        Self {
            folder: OnceCell::from(folder.to_owned()),
            leased: None,
            ..self
        }
    }

    /// The lock of the path that the call names, if it names one.
    pub(crate) fn leased(&self) -> Result<Option<&PathLock>, Failure> {
        let leased = self.leased.as_ref().map(Result::as_ref);
        leased.transpose().map_err(Clone::clone)
    }

    /// The agent in whose name the call is made, if it names one.
    pub(crate) fn agent(&self) -> Result<Option<AgentKey>, Failure> {
        if let Some(key) = value::given("--as", self.typed_agent.as_ref())? {
            return Ok(Some(key));
        }
        let told = self.variables.agent.as_ref();
        let told = told.map(|told| told.to_string_lossy().into_owned());
        value::read(AGENT, told.as_deref(), value::agent)
    }

    /// Surroundings of an agents' server, whose variable was set for it, so that names the agent as `--as` does.
    #[cfg(all(feature = "mcp", unix))]
    pub(super) fn of_agents_server(common: &Common, calling: &Calling, path: &OfPath) -> Self {
        let mut around = Self::of_calling(common, calling, path);
        around.is_agents_server = true;
        around
    }

    /// Whether the call itself names that agent.
    pub(super) fn types_agent(&self) -> bool {
        self.typed_agent.is_some() || (self.is_agents_server && self.variables.agent.is_some())
    }

    /// What this call sees of what names places. A call in the place of the run around it saw what that run saw, too.
    pub(super) fn saw(&self, place: &Why) -> Saw {
        let saw = match &self.variables.place.around {
            Some(around) if *place == Why::Around => around.saw.clone(),
            _ => Saw::default(),
        };
        // The search has often been made already.
        let searched = self.nearest.get();
        let is_projects = |config: &&Arc<Config>| !config::is_for_all_folders(&config.file);
        let nearest = searched.and_then(Option::as_ref).filter(is_projects);
        let file = match searched {
            Some(_) => nearest.map(|config| config.file.clone()),
            None => self.start().ok().and_then(tenure_engine::search::project),
        };
        // Not asked for where the run around has one.
        let start = saw.folder.is_none().then(|| self.start().ok()).flatten();
        saw.with_callers(start, file.as_deref())
    }

    /// Where the search for a configuration or a repository begins.
    fn start(&self) -> Result<&Path, Failure> {
        match &self.leased {
            Some(Ok(leased)) => Ok(&leased.folder),
            Some(Err(_)) | None => self.folder(),
        }
    }

    /// Of a call without flags that is about this folder, wherever it was made.
    pub(crate) fn at(folder: PathBuf) -> Self {
        let around = Self::default();
        around.folder.get_or_init(|| folder);
        around.read(&Common::default())
    }

    /// Of a call without any, in this folder.
    #[cfg(test)]
    pub(crate) fn bare(folder: &str) -> Self {
        let around = Self::default();
        around.folder.get_or_init(|| folder.into());
        around.nearest.get_or_init(|| None);
        around
    }

    /// Of a call without any, where the nearest configuration says this.
    #[cfg(test)]
    pub(crate) fn saying(config: Config) -> Self {
        let around = Self::default();
        around.folder.get_or_init(|| "/here".into());
        around.nearest.get_or_init(|| Some(Arc::new(config)));
        around
    }

    /// The folder in which the call was made.
    pub(crate) fn folder(&self) -> Result<&Path, Failure> {
        if let Some(folder) = self.folder.get() {
            return Ok(folder);
        }
        let folder = std::env::current_dir().map_err(|error| {
            Failure::new(
                Exit::General,
                "NO_CURRENT_FOLDER",
                format!("the current folder cannot be named: {error}"),
            )
        })?;
        Ok(self.folder.get_or_init(|| folder))
    }

    /// The path as an absolute one: the command may change its folder.
    pub(super) fn absolute(&self, path: &Path) -> Result<PathBuf, Failure> {
        if path.is_absolute() {
            return Ok(path.to_owned());
        }
        Ok(self.folder()?.join(path))
    }

    /// The configuration that the caller names, else the one that the run around the call read.
    pub(super) fn named(&self) -> Result<Option<Arc<Config>>, Failure> {
        if let Some(named) = self.named.get() {
            return Ok(named.clone());
        }
        let path = match &self.given {
            Some(given) => Some(place::path_typed("--config", given)?),
            None => self.variables.place.config_file()?,
        };
        let is_typed = path.is_some();
        let path = match (path, &self.variables.place.around) {
            (None, Some(around)) if self.unseen()?.is_none() => around.config.clone(),
            (path, _) => path,
        };
        let config = match path {
            Some(path) => {
                // The words of a call may name a pipe (`<(…)`); nobody waits for one that stands around it.
                let read = match &self.given {
                    Some(_) => Config::named,
                    None => Config::named_at_once,
                };
                let found = match read(&path) {
                    Err(_) if self.tends.get() && !is_typed => ConfigSearch::default(),
                    found => found?,
                };
                let is_place = found.config.as_ref().is_some_and(Config::names_a_place);
                // Such a file counts before what else names a place (`place::find`).
                if self.types_config() && is_place {
                    found.all()?.map(Arc::new)
                } else {
                    self.counting(found)?
                }
            }
            None => None,
        };
        Ok(self.named.get_or_init(|| config).clone())
    }

    /// Notes that the call is about what is held already.
    pub(crate) fn tends(&self) {
        self.tends.set(true);
    }

    /// Whether the configuration is named by the call itself: by a flag, or by a variable that the run around the call
    /// did not see.
    fn types_config(&self) -> bool {
        let place = &self.variables.place;
        self.given.is_some() || (place.around.is_some() && place.config.is_some())
    }

    /// The configuration of a project that the run around the call did not see.
    fn unseen(&self) -> Result<Option<Arc<Config>>, Failure> {
        let Some(around) = &self.variables.place.around else {
            return Ok(None);
        };
        if self.types_config() {
            return Ok(None);
        }
        if self.variables.place.is_troubled && !self.tends.get() {
            place::refuse_outside(self.start()?)?;
        }
        if let Some(unseen) = self.unseen.get() {
            return Ok(unseen.clone());
        }
        let found = match Config::unseen(self.start().ok(), &around.saw) {
            Err(_) if self.tends.get() => ConfigSearch::default(),
            found => found?,
        };
        let (config, why) = found.beside();
        if let Some(why) = why {
            self.passed_over.get_or_init(|| why);
        }
        let config = config.map(Arc::new);
        Ok(self.unseen.get_or_init(|| config).clone())
    }

    /// Whether no file says where the locks are: a flag, a variable or the run around the call does.
    fn names_place(&self) -> Result<bool, Failure> {
        if self.is_named || self.variables.place.around.is_none() {
            return Ok(self.is_named);
        }
        let unseen = self.unseen()?;
        Ok(!unseen.is_some_and(|config| config.names_a_place()))
    }

    /// The configuration that is found from the folder of the call.
    pub(super) fn nearest(&self) -> Result<Option<Arc<Config>>, Failure> {
        if let Some(nearest) = self.nearest.get() {
            return Ok(nearest.clone());
        }
        let start = match self.start() {
            // The folder was removed. Only a call that names its place can do without it.
            Err(_) if self.names_place()? => None,
            folder => Some(folder?),
        };
        let config = self.counting(Config::search(start)?)?;
        Ok(self.nearest.get_or_init(|| config).clone())
    }

    /// What was found. A file of another user ends a call that it could lead to another place. A call that
    /// names its place goes on without that file: otherwise any user could stop it by a file on its way up.
    fn counting(&self, found: ConfigSearch) -> Result<Option<Arc<Config>>, Failure> {
        if !self.names_place()? {
            return Ok(found.all()?.map(Arc::new));
        }
        let (config, why) = found.beside();
        if let Some(why) = why {
            self.passed_over.get_or_init(|| why);
        }
        Ok(config.map(Arc::new))
    }

    /// What the files say of a lock whose place the call names: the configuration that is found. There is no search
    /// for a call that names its configuration, nor for one whose place a file may name: that one has read it.
    pub(super) fn beside(&self) -> Result<Option<Arc<Config>>, Failure> {
        if self.names_place()? && self.named()?.is_none() {
            return self.nearest();
        }
        Ok(None)
    }

    /// Whether a file counts whole. Where the call names its place, a file that was merely found does not: it says
    /// nothing of which lock this is, so neither its profile nor the folder of its audit counts.
    pub(super) fn counts_whole(&self, file: &Config) -> Result<bool, Failure> {
        Ok(file.source == Source::Named || !self.names_place()?)
    }

    /// Why a file that was found does not count for this call.
    pub(super) fn passed_over(&self) -> Option<String> {
        self.passed_over.get().cloned()
    }

    /// Notes that the profile of the call is one of the user's own.
    pub(super) fn note_own_profile(&self, section: &OwnSection<'_>) {
        self.own_profile.get_or_init(|| section.to_string());
    }

    /// Notes that a configuration has profiles of the user's own, unless one of them is noted.
    pub(super) fn note_own_profiles(&self, config: &Config) {
        if let Some(section) = config.own_profiles().next() {
            self.note_own_profile(&section);
        }
    }

    /// What the caller should know of the configuration, once.
    pub(crate) fn warning(&self) -> Option<&str> {
        let own_profile = self.own_profile.get()?;
        (!self.is_told.replace(true)).then_some(own_profile)
    }

    /// The configuration that is named, else the nearest one.
    pub(super) fn config(&self) -> Result<Option<Arc<Config>>, Failure> {
        match self.named()? {
            Some(config) => Ok(Some(config)),
            None => self.nearest(),
        }
    }

    /// The configuration that is named, else the nearest one where it counts whole.
    pub(super) fn whole(&self) -> Result<Option<Arc<Config>>, Failure> {
        if self.names_place()? {
            return self.named();
        }
        self.config()
    }

    /// The configuration that is named, else the nearest one, or one that says nothing.
    pub(crate) fn configuration(&self) -> Result<Arc<Config>, Failure> {
        Ok(self.config()?.unwrap_or_default())
    }
}

/// The lock of a path. Which callers mean the same lock by it, the rule of the folder says that an agent's hook goes by, unless
/// the call itself does: otherwise a leased path looked free.
pub(super) fn lock_of(
    path: &Path,
    across: Option<Across>,
    here: &Path,
) -> Result<PathLock, Failure> {
    let read = |across| {
        let lock = leased_path::lock_of(path, across, here);
        lock.map_err(|error| Failure::bad_arguments(error.to_string()))
    };
    let lock = read(across.unwrap_or_default())?;
    if across.is_some() {
        return Ok(lock);
    }
    let config = match Surroundings::at(lock.folder.clone()).config() {
        // A stranger's file has no rules for this caller.
        Err(_) if is_strangers(&lock.folder) => Config::search(None)?.config.map(Arc::new),
        config => config?,
    };
    let rules = config.iter().flat_map(|config| config.path_rules(&lock));
    match rules.map(|rule| rule.across).next() {
        Some(Across::Repo) => read(Across::Repo),
        Some(Across::Worktree) | None => Ok(lock),
    }
}

/// Whether a search from this folder finds another user's file.
fn is_strangers(folder: &Path) -> bool {
    let found = Config::search(Some(folder)).and_then(ConfigSearch::all);
    matches!(found, Err(ConfigError::Untrusted { .. }))
}

/// What the flags of a call say of its place.
pub(super) fn flags(common: &Common) -> place::Flags<'_> {
    let dir = common.dir.as_deref().map(|dir| (dir, "--dir"));
    let project = || Some((common.project_root.as_deref()?, "--project-root"));
    place::Flags {
        dir: dir.or_else(project),
        store: common.store.as_deref(),
        scope: common.scope,
    }
}

impl Files for Surroundings {
    type Error = Failure;

    fn here(&self) -> Result<&Path, Failure> {
        self.start()
    }

    fn named(&self) -> Result<Option<(Arc<Config>, bool)>, Failure> {
        let named = Self::named(self)?;
        Ok(named.map(|config| (config, self.types_config())))
    }

    fn found(&self) -> Result<Option<Arc<Config>>, Failure> {
        self.nearest()
    }

    fn unseen(&self) -> Result<Option<Arc<Config>>, Failure> {
        Self::unseen(self)
    }
}
