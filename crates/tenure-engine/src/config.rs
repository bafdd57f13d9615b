//! What `tenure.toml` says: where locks are kept, and defaults. Which files count, and which of them first.
//!
//! A search finds up to three files: the nearest one upwards, the user's, the machine's. The first of them
//! that says something about a key counts for that key. A file that is named takes the place of the nearest
//! one. `place` says what follows for the place of the locks, and when no file is looked for at all.
//!
//! In a linked work tree of git the search goes on at the root of the main checkout. So all work trees of a
//! clone find the same files.
//!
//! A file that a search finds has to belong to the caller, to root, or to the user who became root by sudo
//! (decision 0023). Another file ends a call that it could lead to another place. A call that names its place
//! goes on without it. A file that the caller names is read whichever user owns it.

mod agent;
mod lock;
mod profiles;

pub use agent::{AgentRules, CommandRule, Glob, How, OnError, PathRule, Words};
pub use lock::LockDefaults;
pub use profiles::OwnSection;
use profiles::Profiles;

use crate::audit::Recording;
use crate::inherited::Saw;
use crate::repository;
use crate::search::{self, STATE_OF_HOME, absolute, is_machines, state_folder};
pub use crate::search::{FILE, MACHINE_FILE, is_for_all_folders, user_file};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use tenure_os::os::{self, Errno, Facts};
use tenure_os::regular;
use tenure_os::trust::{self, Distrust, OpenPath, OpenRefusal, Whose};
pub use tenure_store::advice::by_variables;
use tenure_store::printed::for_its_author;
use wildmatch::WildMatchPattern;

/// The largest configuration file that is read.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// What a configuration file says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The file itself.
    #[serde(skip)]
    pub file: PathBuf,
    /// How the file was found.
    #[serde(skip)]
    pub source: Source,
    /// The file that is asked for what this one does not say.
    #[serde(skip)]
    pub farther: Option<Box<Self>>,
    /// The callers that see the same locks.
    pub scope: Option<Scope>,
    /// The lock folder. Relative paths begin at the file's own folder; beside `scope = "repo"` the path is
    /// relative, and begins at git's common folder.
    pub dir: Option<PathBuf>,
    /// `dir` is written relative to the file, or to git's own folder.
    #[serde(skip)]
    pub is_relative: bool,
    /// The store by its URL, where the locks are not in a folder: `etcd://HOST:PORT/PREFIX`.
    pub store: Option<String>,
    /// The folder of the audit; relative paths begin at the file's own folder.
    pub audit_dir: Option<PathBuf>,
    /// The events that the audit records; all of them if absent.
    pub audit: Option<Recording>,
    /// What this machine is called in the records of a fleet; else its host name.
    pub host_id: Option<String>,
    /// Defaults by lock name. `*` stands for any characters; the longest pattern that fits wins.
    #[serde(default, rename = "lock")]
    pub locks: BTreeMap<String, LockDefaults>,
    /// What a run of any lock does that does not get it.
    pub on_held: Option<String>,
    /// The profile of calls that name none.
    #[serde(default, rename = "profile")]
    profiles: Profiles,
    /// What agents run under locks, and what they edit under leases.
    #[serde(default)]
    pub agent: AgentRules,
    /// What found files may ask for (`consent`). Only the user's and the machine's file say it.
    pub allow: Option<Vec<String>>,
}

/// The callers that see the same locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The user's own processes.
    User,
    /// The callers in any work tree of one clone of a repository.
    Repo,
    /// All users of the machine that its administrator lets in.
    Machine,
}

impl Scope {
    /// All of them, from the smallest on.
    pub const ALL: [Self; 3] = [Self::User, Self::Repo, Self::Machine];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Repo => "repo",
            Self::Machine => "machine",
        }
    }

    /// The scope of a word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == word)
    }
}

/// How a configuration file was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// The caller named it. What it says is as good as the caller's own words.
    #[default]
    Named,
    /// A search found it, and it is the caller's own or root's.
    Found,
    /// A search by root found it, and it belongs to the user who became root by sudo. The places that it
    /// names are to get no secrets of root's.
    FoundOfSudoUser,
}

/// Why a configuration could not be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    Read {
        /// The file.
        path: String,
        /// How it failed.
        r#source: std::io::Error,
    },
    /// The file says something that is not understood.
    Syntax {
        /// The file.
        path: String,
        /// What, and where.
        why: String,
    },
    /// A search found it, and its owner or its mode lets another user say what stands in it.
    Untrusted {
        /// The file.
        path: String,
        /// The user who owns the file, or may write it.
        why: String,
    },
    /// A search found it in a clone, and it asks for what no one has allowed ([`consent`](crate::consent)).
    Unallowed {
        /// The file.
        path: String,
        /// What it does, as the end of a sentence about it.
        what: String,
        /// What else helps, as the end of the sentence.
        instead: String,
        /// The line that gives consent.
        line: String,
    },
    /// No folder can be named: there is neither a configuration nor a home.
    NoPlace,
    /// What says where the locks are leads to what another user has made.
    Unsafe {
        /// The variable, or the file and its key.
        said: String,
        /// What, and which user owns it.
        why: String,
    },
    /// What says where the locks are cannot be used.
    Place {
        /// The variable, or the file and its key.
        said: String,
        /// Why, and what to write instead.
        why: String,
    },
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Read { path, source } => write!(f, "{path}: {source}"),
            Self::Syntax { path, why } => write!(f, "{path}: {why}"),
            Self::Untrusted { path, why } => write!(
                f,
                "{path} {why}; tenure reads such a file only if you name it with --config FILE (or TENURE_CONFIG)"
            ),
            Self::Unallowed {
                path,
                what,
                instead,
                line,
            } => write!(
                f,
                "{path} came with this folder and {what}; `{line}` allows that{instead}"
            ),
            Self::NoPlace => write!(
                f,
                "no lock folder is known, because {home} is not set to a whole path; name one with --dir or TENURE_DIR",
                home = if cfg!(windows) {
                    "LOCALAPPDATA"
                } else {
                    "HOME"
                }
            ),
            Self::Unsafe { said, why } | Self::Place { said, why } => {
                write!(f, "{said}: {why}")
            }
        }
    }
}

impl std::error::Error for ConfigError {}

impl ConfigError {
    /// Whether a file was found that this process may not read or must not believe.
    fn is_about_rights(&self) -> bool {
        match self {
            Self::Untrusted { .. } => true,
            Self::Read { source, .. } => source.kind() == std::io::ErrorKind::PermissionDenied,
            _ => false,
        }
    }
}

impl Config {
    /// Reads one file. Relative paths in it are made absolute.
    ///
    /// # Errors
    /// - [`ConfigError::Read`] if it cannot be read, is no regular file, or is larger than a mebibyte.
    /// - [`ConfigError::Syntax`] if it is not TOML or has keys that mean nothing.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        // What people name for a file that says nothing.
        if path == Path::new("/dev/null") {
            return Self::parse("", path);
        }
        let file = regular::open(path, std::fs::OpenOptions::new().read(true));
        Self::of_file(path, file.map_err(|source| unread(path, source))?)
    }

    /// [`Config::read`] of a file that may be a pipe (`<(…)`), for which the caller waits.
    fn read_waiting(path: &Path) -> Result<Self, ConfigError> {
        let file = std::fs::File::open(path);
        Self::of_file(path, file.map_err(|source| unread(path, source))?)
    }

    fn of_file(path: &Path, file: std::fs::File) -> Result<Self, ConfigError> {
        use std::io::{Error, ErrorKind, Read};
        let read = || -> std::io::Result<String> {
            let mut bytes = Vec::new();
            file.take(CONFIG_BYTES_MAX + 1).read_to_end(&mut bytes)?;
            // The first part of a file may be a whole one, which says something else.
            if bytes.len() as u64 > CONFIG_BYTES_MAX {
                let why = format!("it is larger than {CONFIG_BYTES_MAX} bytes");
                return Err(Error::new(ErrorKind::FileTooLarge, why));
            }
            String::from_utf8(bytes)
                .map_err(|_| Error::new(ErrorKind::InvalidData, "it is not UTF-8"))
        };
        Self::parse(&read().map_err(|source| unread(path, source))?, path)
    }

    /// Reads the text of the file at this path. Relative paths in it are made absolute.
    ///
    /// # Errors
    /// - As [`Config::read`].
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let mut config: Self = toml::from_str(text).map_err(|error| ConfigError::Syntax {
            path: path.display().to_string(),
            why: located(text, &error),
        })?;
        path.clone_into(&mut config.file);
        config.take_paths().map_err(|why| ConfigError::Syntax {
            path: path.display().to_string(),
            why,
        })?;
        let empty = |what: String| ConfigError::Syntax {
            path: path.display().to_string(),
            why: format!("{what}, or leave it out"),
        };
        if config
            .host_id
            .as_deref()
            .is_some_and(|name| name.trim().is_empty())
        {
            return Err(empty(
                "host_id: it is empty; write what this machine is called".to_owned(),
            ));
        }
        if config.allow.is_some() && !is_for_all_folders(path) {
            return Err(ConfigError::Syntax {
                path: path.display().to_string(),
                why: "allow: only the user's own tenure.toml and the machine's say what is allowed; leave it out"
                    .to_owned(),
            });
        }
        for (pattern, defaults) in &config.locks {
            if pattern.trim().is_empty() {
                let what = "[lock.\"\"]: the name is empty; write that of a lock, or a pattern as deploy-*";
                return Err(empty(what.to_owned()));
            }
            if let Some((key, why)) = defaults.mistake() {
                return Err(ConfigError::Syntax {
                    path: path.display().to_string(),
                    why: format!("[lock.{pattern:?}] {key}: {why}"),
                });
            }
        }
        Ok(config)
    }

    /// Looks whether what it says of folders fits together, and makes its paths begin where they are to.
    fn take_paths(&mut self) -> Result<(), String> {
        let is_machines = self.is_machines();
        if let Some(why) = match (&self.dir, &self.store, self.scope) {
            (Some(_), Some(_), _) => {
                Some("dir and store both say where the locks are; leave one of them out".to_owned())
            }
            (_, Some(_), Some(_)) => Some(
                "scope and store both say where the locks are; leave one of them out".to_owned(),
            ),
            (Some(_), _, Some(scope @ (Scope::User | Scope::Machine))) if !is_machines => {
                let scope = scope.as_str();
                Some(format!(
                    "scope = {scope:?} and dir both say where the locks are; leave one of them out"
                ))
            }
            _ => None,
        } {
            return Err(why);
        }
        let folder = self.file.parent().map(Path::to_owned).unwrap_or_default();
        let in_repository = self.scope == Some(Scope::Repo) && !is_machines;
        if let Some(dir) = &mut self.dir {
            let read = path_of(dir).map_err(|why| format!("dir: {why}"))?;
            self.is_relative = read.is_relative();
            if in_repository {
                let is_inside = |part| matches!(part, Component::Normal(_) | Component::CurDir);
                if !read.components().all(is_inside) {
                    return Err(
                        "dir: with scope = \"repo\" it lies in git's own folder; write a relative \
                         path without `..`, or leave scope out"
                            .to_owned(),
                    );
                }
                let first = read.components().find_map(|part| match part {
                    Component::Normal(name) => Some(name),
                    _ => None,
                });
                if first.is_none_or(repository::is_gits_own) {
                    return Err(format!(
                        "dir: {} is git's own; write a name that git does not use, as tenure/locks",
                        read.display()
                    ));
                }
                *dir = read;
            } else {
                *dir = folder.join(read);
            }
        }
        if let Some(dir) = &mut self.audit_dir {
            let read = path_of(dir).map_err(|why| format!("audit_dir: {why}"))?;
            *dir = folder.join(read);
        }
        Ok(())
    }

    /// Whether it is the machine's configuration.
    pub fn is_machines(&self) -> bool {
        is_machines(&self.file)
    }

    /// Reads the files that a search from `start` finds: the nearest one upwards, the user's, the machine's.
    /// The first of them asks the others for what it does not say. Without a start there is no nearest one.
    ///
    /// The way up ends at a file that does not count: the user who planted it could hide the next one.
    ///
    /// # Errors
    /// - As [`Config::read`], except that a file which this process may not read does not count.
    pub fn search(start: Option<&Path>) -> Result<ConfigSearch, ConfigError> {
        let mut found = ConfigSearch::default();
        let nearest = found.counting(start.map_or(Ok(None), Self::nearest))?;
        let farther = found.others()?;
        found.config = match nearest {
            Some(nearest) => Some(Self { farther, ..nearest }),
            None => farther.map(|farther| *farther),
        };
        Ok(found)
    }

    /// As [`Config::search`], where the nearest file is a project's that a run around the call did not see.
    ///
    /// A file that the run saw is not read: a mistake in it, made after the grant, must not keep the hold from its
    /// heartbeat.
    ///
    /// # Errors
    /// - As [`Config::search`].
    pub fn unseen(start: Option<&Path>, saw: &Saw) -> Result<ConfigSearch, ConfigError> {
        let nearest = start.and_then(search::project);
        if nearest.is_none_or(|file| saw.file(&file)) {
            return Ok(ConfigSearch::default());
        }
        let found = Self::search(start)?;
        let is_projects = |config: &Self| !is_for_all_folders(&config.file);
        Ok(ConfigSearch {
            config: found.config.filter(is_projects),
            ..found
        })
    }

    /// Reads the file that the caller names, and the user's and the machine's behind it.
    ///
    /// # Errors
    /// - As [`Config::read`] for the file, and as [`Config::search`] for the others.
    pub fn named(path: &Path) -> Result<ConfigSearch, ConfigError> {
        Self::named_read(path, Self::read_waiting)
    }

    /// [`Config::named`] for a caller that waits for no pipe.
    ///
    /// # Errors
    /// - As [`Config::named`], and if it is no regular file.
    pub fn named_at_once(path: &Path) -> Result<ConfigSearch, ConfigError> {
        Self::named_read(path, Self::read)
    }

    fn named_read(
        path: &Path,
        read: fn(&Path) -> Result<Self, ConfigError>,
    ) -> Result<ConfigSearch, ConfigError> {
        let mut found = ConfigSearch::default();
        let (named, farther) = (read(path)?, found.others()?);
        found.config = Some(Self { farther, ..named });
        Ok(found)
    }

    /// The file at a path to which a search leads, if there is one.
    fn at(path: &Path) -> Result<Option<Self>, ConfigError> {
        let Some((file, source)) = found(path)? else {
            return Ok(None);
        };
        let config = Self::of_file(path, file)?;
        // The sudo user would decide what root runs, also by a variable (`LD_PRELOAD`); sudo itself passes none on.
        if source == Source::FoundOfSudoUser
            && let Some(key) = config.decides_what_runs()
        {
            let what = match key {
                "env" => "sets variables (env) for",
                "rollback" => "says (rollback)",
                "on_supersede" => "says (on_supersede)",
                _ => "says (on_superseded)",
            };
            return Err(ConfigError::Untrusted {
                path: tenure_store::printed::clean_path(path),
                why: format!(
                    "{what} what root runs, and belongs to the user who became root by sudo"
                ),
            });
        }
        Ok(Some(Self { source, ..config }))
    }

    /// The machine's file.
    pub(crate) fn machines() -> Result<Option<Self>, ConfigError> {
        if cfg!(unix) {
            Self::at(Path::new(MACHINE_FILE))
        } else {
            Ok(None)
        }
    }

    /// The nearest file from `start` upwards. The machine's is not one of these: below `/etc`, too, the
    /// user's counts for more. From the root of a linked work tree on, the way up is that of
    /// the main checkout.
    fn nearest(start: &Path) -> Result<Option<Self>, ConfigError> {
        search::upwards(start, Self::at)
    }

    /// The files that count, this one first, in the order in which they are asked.
    pub fn files(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |config| config.farther.as_deref())
    }

    /// Whether this file itself says where the locks are.
    pub fn names_a_place(&self) -> bool {
        self.dir.is_some() || self.store.is_some() || self.scope.is_some()
    }

    /// The first file that says where the locks are.
    pub fn whereabouts(&self) -> Option<&Self> {
        self.files().find(|file| file.names_a_place())
    }

    /// The events that the audit records.
    pub fn recording(&self) -> Option<Recording> {
        self.files().find_map(|file| file.audit)
    }

    /// The folder of the audit, and the file that names it.
    pub fn audit_folder(&self) -> Option<(&Path, &Self)> {
        let mut named = self.files();
        named.find_map(|file| Some((file.audit_dir.as_deref()?, file)))
    }

    /// What this machine is called in the records of a fleet.
    pub fn host_id(&self) -> Option<&str> {
        let mut said = self.files().filter_map(|file| file.host_id.as_deref());
        said.find(|id| !id.trim().is_empty())
    }

    /// The sections of profiles of the user's own, in the order in which the files are asked.
    pub fn own_profiles(&self) -> impl Iterator<Item = OwnSection<'_>> {
        self.files().flat_map(|config| {
            let file = config.file.as_path();
            let own = config.profiles.own.iter();
            own.map(move |(name, profile)| OwnSection {
                file,
                name,
                profile,
            })
        })
    }

    /// The first of them with this name.
    pub fn own_profile(&self, name: &str) -> Option<OwnSection<'_>> {
        self.own_profiles().find(|section| section.name == name)
    }

    /// The profile of calls that name none: that of the first file that names one.
    pub fn default_profile(&self) -> Option<&str> {
        let mut said = self
            .files()
            .filter_map(|file| file.profiles.default.as_deref());
        said.next()
    }

    fn decides_what_runs(&self) -> Option<&'static str> {
        let mut tables = self.locks.values();
        tables.find_map(LockDefaults::decides_what_runs)
    }

    /// What the table of one lock says in this file alone.
    pub(crate) fn own_defaults(&self, name: &str) -> Option<&LockDefaults> {
        let own = self.locks.iter().filter(|(pattern, _)| fits(pattern, name));
        own.max_by_key(|(pattern, _)| pattern.len())
            .map(|(_, defaults)| defaults)
    }

    /// The defaults for one lock: of each, what the first file says that says something.
    /// A file says it in the lock's own table, else above all tables.
    pub fn defaults(&self, name: &str) -> LockDefaults {
        let of_all = LockDefaults {
            on_held: self.on_held.clone(),
            ..LockDefaults::default()
        };
        let own = self.own_defaults(name).cloned();
        let own = own.unwrap_or_default().or(of_all);
        match &self.farther {
            Some(farther) => own.or(farther.defaults(name)),
            None => own,
        }
    }
}

/// What a search has found.
#[derive(Debug, Default)]
pub struct ConfigSearch {
    /// The first file, with the others behind it.
    pub config: Option<Config>,
    /// Why the first of the other files does not count: another user could have written it, or this process may
    /// not read it.
    pub passed_over: Option<ConfigError>,
}

impl ConfigSearch {
    /// What was found, for a call whose place may depend on it.
    ///
    /// # Errors
    /// - [`ConfigError::Untrusted`] if a file belongs to neither the caller nor root (nor, if root asks, to the
    ///   user of `SUDO_UID`), or if all users may write it.
    /// - [`ConfigError::Read`] if this process may not read one.
    pub fn all(self) -> Result<Option<Config>, ConfigError> {
        match self.passed_over {
            Some(error) => Err(error),
            None => Ok(self.config),
        }
    }

    /// What was found, for a call that names its place: why a file does not count is kept apart. Of the files of
    /// the user who became root by sudo none counts. Rules of sudo may let a user call tenure for one place alone.
    pub fn beside(mut self) -> (Option<Config>, Option<String>) {
        let mut why = self.passed_over.as_ref().map(ToString::to_string);
        while let Some(config) = &mut self.config
            && config.source == Source::FoundOfSudoUser
        {
            let file = tenure_store::printed::clean_path(&config.file);
            why.get_or_insert(format!(
                "{file} belongs to the user who became root by sudo"
            ));
            self.config = config.farther.take().map(|farther| *farther);
        }
        (self.config, why)
    }

    /// The user's file, and the machine's behind it.
    fn others(&mut self) -> Result<Option<Box<Config>>, ConfigError> {
        let users = user_file().map_or(Ok(None), |path| Config::at(&path));
        let users = self.counting(users)?;
        let farther = self.counting(Config::machines())?.map(Box::new);
        Ok(match users {
            Some(config) => Some(Box::new(Config { farther, ..config })),
            None => farther,
        })
    }

    /// A file, if it counts.
    fn counting(
        &mut self,
        file: Result<Option<Config>, ConfigError>,
    ) -> Result<Option<Config>, ConfigError> {
        match file {
            Err(error) if error.is_about_rights() => {
                self.passed_over.get_or_insert(error);
                Ok(None)
            }
            read => read,
        }
    }
}

/// Whether the machine's file names this folder: its administrator makes it, and no call does. A file that
/// cannot be read names none.
pub fn is_machines_folder(folder: &Path) -> bool {
    let machines = Config::machines().ok().flatten();
    machines.is_some_and(|file| file.dir.as_deref() == Some(folder))
}

fn unread(path: &Path, source: std::io::Error) -> ConfigError {
    let path = path.display().to_string();
    ConfigError::Read { path, source }
}

/// Opens a file that a search has come by. In a sticky folder where every user makes files (`/tmp`), what a stranger put there is
/// no part of any project below: the search goes on as if it were not there.
fn found(path: &Path) -> Result<Option<(std::fs::File, Source)>, ConfigError> {
    match found_there(path) {
        Err(_) if is_strangers_in_an_open_folder(path) => Ok(None),
        found => found,
    }
}

/// Whether another user put this file, or link, into a sticky folder where every user makes files.
fn is_strangers_in_an_open_folder(path: &Path) -> bool {
    let folder = path.parent().and_then(|above| os::open_folder(above).ok());
    let (Some(folder), Some(name)) = (folder, path.file_name()) else {
        return false;
    };
    os::facts(&folder).is_ok_and(|facts| facts.all_may_write() && facts.is_sticky())
        && os::facts_at(&folder, name).is_ok_and(|it| trust::whose(&it) == Whose::Stranger)
}

/// Opens a file, if it is one, and looks at its owner. It is opened once, so the
/// file that is judged is the file that is read, however its name changes meanwhile.
fn found_there(path: &Path) -> Result<Option<(std::fs::File, Source)>, ConfigError> {
    let distrust = |why: String| {
        Err(ConfigError::Untrusted {
            path: tenure_store::printed::clean_path(path),
            why,
        })
    };
    // The owner of a link decides where it leads, and at which folder its paths begin. A stranger
    // cannot put another user's link into a folder of their own: links get no second names.
    let believes = |link: &Facts| trust::whose(link) != Whose::Stranger;
    let OpenPath { fd, facts, .. } = match OpenPath::at(path, believes) {
        Ok(opened) => opened,
        Err(OpenRefusal::Distrust(Distrust::StrangersLink(owner))) => {
            return distrust(format!("is a link that belongs to {owner}"));
        }
        // The file does not exist, or stands in a folder that this process may not look into.
        Err(OpenRefusal::Opening(errno)) if !is_absent(path, errno) => {
            return Err(unread(path, errno.into()));
        }
        Err(_) => return Ok(None),
    };
    if !facts.is_regular() {
        return Ok(None);
    }
    let source = match trust::whose(&facts) {
        Whose::Ours => Source::Found,
        Whose::SudoUser => Source::FoundOfSudoUser,
        Whose::Stranger => return distrust(format!("belongs to {}", facts.owner_text())),
    };
    if facts.all_may_write() {
        return distrust("can be written by everybody".to_owned());
    }
    Ok(Some((fd.into(), source)))
}

/// Whether an error of opening means that there is no file for this process.
fn is_absent(path: &Path, errno: Errno) -> bool {
    match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ISDIR | Errno::NXIO => true,
        // Nobody knows what an unreadable file says, so the file counts as there.
        _ => !path.is_file(),
    }
}

/// What a parser has to say, with the line and, as far as it can be told, the key.
fn located(text: &str, error: &toml::de::Error) -> String {
    let said = for_its_author(error.message());
    let Some((before, after)) = error
        .span()
        .and_then(|span| text.split_at_checked(span.start))
    else {
        return said;
    };
    let number = before.matches('\n').count() + 1;
    let line = before.rsplit('\n').next().into_iter();
    let line: String = line.chain(after.split('\n').next()).collect();
    let key = line.split_once('=').map(|(key, _)| key.trim());
    match key.filter(|key| !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic())) {
        Some(key) => format!("line {number}, {key}: {said}"),
        None => format!("line {number}: {said}"),
    }
}

/// Whether a pattern with `*` fits a whole name. Nothing else stands for a character: nobody writes the other sign.
fn fits(pattern: &str, name: &str) -> bool {
    WildMatchPattern::<'*', '\0'>::new(pattern).matches(name)
}

/// The folder that the URL of a store names, `file:DIR` or `file://DIR`; `None` if it names another
/// kind of store, or no folder.
pub fn folder_of_url(url: &str) -> Option<PathBuf> {
    let rest = url.strip_prefix("file:")?;
    let path = rest.strip_prefix("//").unwrap_or(rest);
    (!path.is_empty()).then(|| PathBuf::from(path))
}

/// Whether nothing is written, or only blanks.
pub(crate) fn is_blank(written: &Path) -> bool {
    written.to_str().is_some_and(|text| text.trim().is_empty())
}

/// A folder as people write it in a file or a variable, which no shell reads: `~/` is the home folder.
///
/// # Errors
/// - What to write instead of an empty text, or of a variable.
pub fn path_of(written: &Path) -> Result<PathBuf, String> {
    if is_blank(written) {
        return Err("it is empty; write a folder, or leave it out".to_owned());
    }
    let text = written.to_string_lossy();
    let names = |rest: &str| rest.starts_with(|c: char| "{(_".contains(c) || c.is_alphabetic());
    if text.split('$').skip(1).any(names) {
        return Err(format!(
            "{text}: variables are not expanded here; write the whole path, or ~/ for the home folder"
        ));
    }
    let Ok(rest) = written.strip_prefix("~") else {
        if text.starts_with('~') {
            return Err(format!(
                "{text}: only ~/ stands for a home folder, which is the caller's own; write the whole path"
            ));
        }
        return Ok(written.to_owned());
    };
    match absolute("HOME") {
        Some(home) => Ok(home.join(rest)),
        None => Err(format!(
            "{text}: HOME names no folder, so there is nothing for ~; write the whole path"
        )),
    }
}

/// The folder that the user with this home has by default.
pub(crate) fn default_folder_of(home: &Path) -> PathBuf {
    locks_below(&home.join(STATE_OF_HOME))
}

fn locks_below(state: &Path) -> PathBuf {
    state.join("tenure").join("locks")
}

/// The folder of what is remembered of agents and their hosts, beside that of the locks.
pub fn agents_folder() -> Result<PathBuf, ConfigError> {
    let locks = default_folder()?;
    Ok(locks.parent().unwrap_or(&locks).join("agents"))
}

/// The folder that is used when no other was named.
///
/// # Errors
/// - [`ConfigError::NoPlace`] if neither `XDG_STATE_HOME` nor `HOME` (on Windows: `LOCALAPPDATA`) is set
///   to an absolute path.
pub fn default_folder() -> Result<PathBuf, ConfigError> {
    let state = state_folder().ok_or(ConfigError::NoPlace)?;
    Ok(locks_below(&state))
}

/// The folder in which this user's programs remember to which cluster each server of locks belongs. `None` if the user
/// has no home folder: then nothing is remembered.
pub fn servers_folder() -> Option<PathBuf> {
    Some(state_folder()?.join("tenure").join("servers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_pattern_that_fits_wins() {
        let config: Config = toml::from_str(
            "[lock.\"deploy-*\"]\nwait = \"1m\"\n[lock.\"*\"]\nwait = \"1s\"\n\
             [lock.\"deploy-*-eu\"]\nttl = \"5s\"\n",
        )
        .expect("a configuration");
        assert_eq!(config.defaults("deploy-us").wait.as_deref(), Some("1m"));
        assert_eq!(config.defaults("other").wait.as_deref(), Some("1s"));
        assert_eq!(config.defaults("deploy-a-eu").ttl.as_deref(), Some("5s"));
    }

    #[test]
    fn patterns_fit_whole_names() {
        for (pattern, name, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b", "a-b-c", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("*-*-eu", "a-b-eu", true),
            ("*-*-eu", "a-eu", false),
            ("**", "é", true),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} on {name}");
        }
    }

    /// Trying every place for every star took minutes for a line of a file that a build merely
    /// finds in the tree it works on.
    #[test]
    fn a_pattern_of_many_stars_is_answered_at_once() {
        let began = tenure_os::clock::instant();
        let name = "a".repeat(128);
        assert!(!fits(&format!("{}b", "*a".repeat(60)), &name));
        assert!(fits(&"*a".repeat(128), &name));
        let took = tenure_os::clock::instant().saturating_duration_since(began);
        assert!(took < std::time::Duration::from_secs(1), "it took {took:?}");
    }

    #[test]
    fn a_file_that_is_too_large_is_refused_and_not_cut() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE);
        let limit = usize::try_from(CONFIG_BYTES_MAX).expect("a size");
        let mut text = "dir = \"locks\"\n#".to_owned();
        text.push_str(&"x".repeat(limit - text.len()));
        std::fs::write(&path, &text).expect("a file");
        assert!(Config::read(&path).is_ok(), "as large as it may be");
        // Cut at the limit, it would be the same file without its last line.
        text.push_str("\naudit_dir = \"log\"\n");
        std::fs::write(&path, &text).expect("a file");
        let said = Config::read(&path).expect_err("too large").to_string();
        assert!(said.contains("larger than 1048576 bytes"), "{said}");
    }

    #[test]
    fn keys_that_contradict_each_other_are_named_with_their_lock() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE);
        std::fs::write(&path, "[lock.gpu]\nmembers = []\n").expect("a file");
        let said = Config::read(&path).expect_err("no members").to_string();
        assert!(
            said.contains("tenure.toml: [lock.\"gpu\"] members: it is empty"),
            "{said}"
        );
    }

    #[test]
    fn a_key_that_means_nothing_is_an_error_and_not_ignored() {
        assert!(toml::from_str::<Config>("dri = \"x\"").is_err());
    }

    #[test]
    fn a_value_of_another_kind_is_found_by_its_line_and_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE);
        std::fs::write(&path, "[lock.x]\nwait = \"1s\"\nttl = 5\n").expect("a file");
        let said = Config::read(&path).expect_err("no text").to_string();
        assert!(said.contains(": line 3, ttl: invalid type"), "{said}");
    }

    #[test]
    fn the_nearest_file_upwards_counts_and_its_paths_begin_beside_it() {
        let top = tempfile::tempdir().expect("a folder");
        let deep = top.path().join("a/b");
        std::fs::create_dir_all(&deep).expect("folders");
        std::fs::write(
            top.path().join(FILE),
            "dir = \"locks\"\naudit_dir = \"log\"",
        )
        .expect("a file");
        let found = Config::search(Some(&deep)).expect("a search");
        let config = found.all().expect("all count").expect("found");
        assert_eq!(config.dir, Some(top.path().join("locks")));
        assert_eq!(config.audit_dir, Some(top.path().join("log")));
    }
}
