//! Decides where the locks of a call are: which folder or which servers, and what said so.
//!
//! The first of these that says anything of the place counts:
//! 1. a flag;
//! 2. a variable, or the configuration of a project, that the run around the call did not see. Where there is no such
//!    run, that is all of them, in the order of 4. In a folder where variables and files mean another place or profile
//!    than in the folder of the run, the call is outside of it;
//! 3. the place of the run around the call, while that run lives (`inherited`);
//! 4. a variable; the project's configuration, the user's, the machine's (`config`);
//! 5. nothing: the user's own folder.
//!
//! Nested calls of a run have its locks, whatever named these. In another project they have that project's, as every
//! other call there has.
//!
//! Where files say nothing of the place, what else they say counts all the same. So callers of one lock agree about it,
//! however each of them names its place.
//!
//! Two variables that name different places are an error: of two callers, each could have meant the other one.
//!
//! Whether a place can be used, and which users' files are believed there, the store decides.

mod life;

use crate::config::{self, Config, ConfigError, Scope, Source};
pub use crate::inherited::At;
use crate::inherited::{AROUND, Around, Saw, variables};
pub use crate::inherited::{CONFIG, DIR, SCOPE, STORE};
use crate::repository::{self, RepositoryError};
pub use crate::search::MACHINE_FOLDER;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tenure_os::process;
use tenure_os::trust::Named;

/// Where the locks of a repository lie, below git's common folder.
const REPOSITORY_FOLDER: &str = "tenure/locks";

/// What the flags of a call say. At most one of them is given.
#[derive(Debug, Clone, Copy, Default)]
pub struct Flags<'a> {
    /// The folder, and the flag that names it.
    pub dir: Option<(&'a Path, &'static str)>,
    /// A URL.
    pub store: Option<&'a str>,
    /// A scope.
    pub scope: Option<Scope>,
}

impl Flags<'_> {
    /// Whether any of them is given.
    pub fn says(&self) -> bool {
        self.dir.is_some() || self.store.is_some() || self.scope.is_some()
    }
}

/// What the variables say, as they are written; `None` for one that is not set, or that the run around the call saw.
#[derive(Debug, Clone, Default)]
pub struct Variables {
    /// The place of the run around the call, while that run lives.
    pub around: Option<Around>,
    /// Something is wrong with what names a place for a call in this folder, and nothing was for the run. A call that
    /// takes locks is refused for it ([`refuse_outside`]): outside of the run it would be.
    pub is_troubled: bool,
    /// [`DIR`].
    pub dir: Option<PathBuf>,
    /// [`STORE`].
    pub store: Option<OsString>,
    /// [`SCOPE`].
    pub scope: Option<OsString>,
    /// [`CONFIG`].
    pub config: Option<PathBuf>,
}

/// Whether a flag or a variable of the call names the folder or the URL of its locks. A scope names neither.
pub fn is_named(flags: &Flags<'_>, variables: &Variables) -> bool {
    let by_variable =
        flags.scope.is_none() && (variables.dir.is_some() || variables.store.is_some());
    flags.dir.is_some() || flags.store.is_some() || by_variable
}

/// What is read only if the call depends on it.
pub trait Files {
    /// How that fails.
    type Error: From<ConfigError>;

    /// The folder of the call.
    ///
    /// # Errors
    /// - The system does not name it.
    fn here(&self) -> Result<&Path, Self::Error>;

    /// The configuration that the caller names, and whether a flag does.
    ///
    /// # Errors
    /// - It cannot be used.
    fn named(&self) -> Result<Option<(Arc<Config>, bool)>, Self::Error>;

    /// The configuration that a search finds.
    ///
    /// # Errors
    /// - It cannot be used.
    fn found(&self) -> Result<Option<Arc<Config>>, Self::Error>;

    /// What the search finds, where the nearest file is a project's that the run around the call did not see, and the
    /// caller names no configuration. `None` without such a run.
    ///
    /// # Errors
    /// - It cannot be used.
    fn unseen(&self) -> Result<Option<Arc<Config>>, Self::Error>;
}

/// What says where the locks are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// A flag.
    Flag(&'static str),
    /// The flag `--scope`.
    Scope(Scope),
    /// A variable, and its value if that is not the place itself.
    Variable(&'static str, Option<Scope>),
    /// A file, its key, and how it was found.
    File {
        /// The file.
        file: PathBuf,
        /// The key, and its value if that is not the place itself.
        key: String,
        /// How it was found.
        source: Source,
    },
    /// The run around the call.
    Around,
    /// The clone in which the records lie, for the groups of their runs.
    CloneOfRecords,
    /// Nothing does.
    Default,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => f.write_str(flag),
            Self::Scope(scope) => write!(f, "--scope {}", scope.as_str()),
            Self::Variable(name, None) => f.write_str(name),
            Self::Variable(name, Some(scope)) => write!(f, "{name}={}", scope.as_str()),
            Self::File { file, key, .. } => {
                let file = tenure_store::printed::clean_path(file);
                write!(f, "{file}: {key}")
            }
            Self::Around => write!(f, "the run around this call ({AROUND})"),
            Self::CloneOfRecords => f.write_str("of the clone in which the records lie"),
            Self::Default => f.write_str("the default; nothing names another place"),
        }
    }
}

/// The place of a call's locks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Where it is.
    pub at: At,
    /// What says so.
    pub why: Why,
    /// Whether the caller named it, or a search or a default led there. A scope names no folder: the caller
    /// did not see which one it is.
    pub named: Named,
    /// Whether the place is the machine's: its administrator makes it, and no call does.
    pub is_machines: bool,
    /// Whether the folder depends on where the call is made, or on where the file lies that names it.
    pub is_relative: bool,
}

impl Place {
    fn folder(folder: PathBuf, why: Why, named: Named) -> Self {
        Self {
            is_relative: folder.is_relative(),
            at: At::Folder(folder),
            why,
            named,
            is_machines: false,
        }
    }

    /// A place that a variable names.
    fn told(at: At, why: Why) -> Self {
        let is_machines = match &at {
            At::Folder(folder) => cfg!(unix) && folder == Path::new(MACHINE_FOLDER),
            At::Url(_) => false,
        };
        Self {
            at,
            why,
            named: Named::ByCaller,
            is_machines,
            is_relative: false,
        }
    }

    /// Of a URL, as it is written. One of a folder is that folder.
    fn of_url(url: &str, why: Why, named: Named) -> Result<Self, ConfigError> {
        let at = match config::folder_of_url(url) {
            Some(folder) => {
                let read = config::path_of(&folder);
                At::Folder(read.map_err(|wrong| place_error(&why.to_string(), wrong))?)
            }
            None => At::Url(url.to_owned()),
        };
        Ok(Self {
            at,
            why,
            named,
            is_machines: false,
            is_relative: false,
        })
    }
}

/// The place of a call's locks, and the configuration that was read for it. For a call that names the folder or the
/// URL, that is the one that it names; nothing is searched.
///
/// # Errors
/// - [`ConfigError::Place`] if a variable is empty, is no whole path, or contradicts another one, and if the
///   scope is a repository and there is none.
/// - [`ConfigError::NoPlace`] if nothing names a place.
/// - As [`Files`] says.
pub fn find<F: Files>(
    flags: &Flags<'_>,
    variables: &Variables,
    files: &F,
) -> Result<(Place, Option<Arc<Config>>), F::Error> {
    let named = files.named()?;
    let is_typed = named.as_ref().is_some_and(|(_, is_typed)| *is_typed);
    let config = named.map(|(config, _)| config);
    if let Some((dir, flag)) = flags.dir {
        let place = Place::folder(path_typed(flag, dir)?, Why::Flag(flag), Named::ByCaller);
        return Ok((place, config));
    }
    if let Some(url) = flags.store {
        let place = Place::of_url(url, Why::Flag("--store"), Named::ByCaller)?;
        return Ok((place, config));
    }
    let search = |config: Option<Arc<Config>>| match config {
        Some(config) => Ok(Some(config)),
        None => files.found(),
    };
    if let Some(scope) = flags.scope {
        let config = search(config)?;
        let place = of_scope(scope, &Why::Scope(scope), config.as_deref(), files)?;
        return Ok((place, config));
    }
    let of_file = |config: Option<&Config>, named| match config {
        Some(config) => of_files(config, named, files),
        None => Ok(None),
    };
    // A file that a flag names counts for more than a variable. This is said of that file alone, and not of those
    // behind it.
    let typed = config.as_deref().filter(|_| is_typed);
    let says_it_itself = |typed: &&Config| typed.names_a_place();
    if variables.store.is_none()
        && let Some(place) = of_file(typed.filter(says_it_itself), Named::ByCaller)?
    {
        return Ok((place, config));
    }
    if let Some(told) = variables.told()? {
        if let Some(scope) = variables.scope()? {
            let files_of_scope = search(config.clone())?;
            agree(&told, scope, files_of_scope.as_deref(), files)?;
        }
        return Ok((told, config));
    }
    let (named, is_named) = (config.clone(), config.is_some());
    let config = search(config)?;
    if let Some(scope) = variables.scope()? {
        let why = Why::Variable(SCOPE, Some(scope));
        return Ok((of_scope(scope, &why, config.as_deref(), files)?, config));
    }
    if let Some(around) = &variables.around {
        let unseen = files.unseen()?.filter(|config| config.names_a_place());
        if let Some(place) = of_file(unseen.as_deref(), Named::ByNobody)? {
            return Ok((place, unseen));
        }
        let mut place = Place::told(around.at.clone(), Why::Around);
        place.is_machines |= around.is_machines;
        return Ok((place, named));
    }
    let named = if is_named {
        Named::ByCaller
    } else {
        Named::ByNobody
    };
    let place = match of_file(config.as_deref(), named)? {
        Some(place) => place,
        None => Place::folder(config::default_folder()?, Why::Default, Named::ByNobody),
    };
    Ok((place, config))
}

impl Variables {
    /// The variables of this process that count for a call in this folder: the place of a run around it, and what that
    /// run did not see. In another project than the run's all variables count, as if no run were around the call.
    pub fn read<'s>(start: impl FnOnce() -> Option<&'s Path>) -> Self {
        let all = Self::all();
        let Some(around) = life::around() else {
            return all;
        };
        let elsewhere = elsewhere(&all, &around.saw, start());
        if let Ok(true) = elsewhere {
            return all;
        }
        let seen: Vec<&str> = variables()
            .into_iter()
            .filter(|(name, value)| around.saw.variable(name, value))
            .map(|(name, _)| name)
            .collect();
        let counts = |name: &str| !seen.contains(&name);
        Self {
            dir: all.dir.clone().filter(|_| counts(DIR)),
            store: all.store.clone().filter(|_| counts(STORE)),
            scope: all.scope.clone().filter(|_| counts(SCOPE)),
            config: all.config.clone().filter(|_| counts(CONFIG)),
            around: Some(around),
            is_troubled: elsewhere.is_err(),
        }
    }

    /// The variables of this process, as if no run were around it.
    pub fn all() -> Self {
        use std::env::var_os;
        Self {
            around: None,
            is_troubled: false,
            dir: var_os(DIR).map(PathBuf::from),
            store: var_os(STORE),
            scope: var_os(SCOPE),
            config: var_os(CONFIG).map(PathBuf::from),
        }
    }

    /// The configuration that a variable names.
    ///
    /// # Errors
    /// - [`ConfigError::Place`] if its value is no whole path.
    pub fn config_file(&self) -> Result<Option<PathBuf>, ConfigError> {
        let path = self.config.as_deref();
        path.map(|path| whole(CONFIG, path, "file")).transpose()
    }

    /// Reads the configuration that a variable names, with the user's and the machine's file behind it.
    ///
    /// # Errors
    /// - As [`Variables::config_file`], [`Config::named`] and [`config::ConfigSearch::all`].
    pub fn config(&self) -> Result<Option<Arc<Config>>, ConfigError> {
        match self.config_file()? {
            Some(path) => Ok(Config::named(&path)?.all()?.map(Arc::new)),
            None => Ok(None),
        }
    }

    /// The place that a variable names by a folder or a URL.
    fn told(&self) -> Result<Option<Place>, ConfigError> {
        let bad = |said: &str, why: String| Err(place_error(said, why));
        if let Some(url) = &self.store {
            let url = text_of(
                STORE,
                url,
                "a folder with such a name can be named by TENURE_DIR",
            )?;
            if url.trim().is_empty() {
                return bad(
                    STORE,
                    "it is empty; unset it, or write a URL as file:DIR".to_owned(),
                );
            }
            let Place { at, why, .. } =
                Place::of_url(url, Why::Variable(STORE, None), Named::ByCaller)?;
            let place = Place::told(at, why);
            if let At::Folder(folder) = &place.at
                && folder.is_relative()
            {
                let folder = folder.display();
                return bad(
                    STORE,
                    format!("{url}: write the whole path, as file:/…/{folder}"),
                );
            }
            return Ok(Some(place));
        }
        let Some(dir) = &self.dir else {
            return Ok(None);
        };
        let folder = folder_in(DIR, dir)?;
        Ok(Some(Place::told(
            At::Folder(folder),
            Why::Variable(DIR, None),
        )))
    }

    fn scope(&self) -> Result<Option<Scope>, ConfigError> {
        let Some(word) = &self.scope else {
            return Ok(None);
        };
        let word = text_of(SCOPE, word, "write user, repo or machine")?;
        Scope::from_word(word).map(Some).ok_or_else(|| {
            let word = tenure_store::printed::clean(word);
            place_error(SCOPE, format!("{word:?}: write user, repo or machine"))
        })
    }
}

/// Whether variables and files mean another place, or another profile, for a call that begins here than for one in the
/// folder of the run. Where nothing says anything here, nothing means another place.
///
/// # Errors
/// - What is said here cannot be used, and what is said there could.
fn elsewhere(all: &Variables, saw: &Saw, here: Option<&Path>) -> Result<bool, ConfigError> {
    let (Some(there), Some(here)) = (&saw.folder, here) else {
        return Ok(false);
    };
    if here == there {
        return Ok(false);
    }
    let mut ways = there.ancestors();
    let there = ways.find(|way| way.is_dir()).unwrap_or(there);
    let there = Plain::meant(all, there);
    match (Plain::meant(all, here), there) {
        (Ok(here), there) => {
            let says = here != (None, None);
            Ok(says && there.map_or(true, |there| there != here))
        }
        (Err(error), Ok(_)) => Err(error),
        (Err(_), Err(_)) => Ok(false),
    }
}

/// Refuses a call that would be refused outside of the run around it.
///
/// # Errors
/// - As [`find`].
pub fn refuse_outside(folder: &Path) -> Result<(), ConfigError> {
    Plain::meant(&Variables::all(), folder).map(drop)
}

/// A call in some folder, without flags and without a run around it.
struct Plain<'a> {
    variables: &'a Variables,
    folder: &'a Path,
}

impl Plain<'_> {
    /// The place and the profile that such a call means, where anything says so.
    fn meant(
        variables: &Variables,
        folder: &Path,
    ) -> Result<(Option<At>, Option<String>), ConfigError> {
        let call = Plain { variables, folder };
        let (place, config) = match find(&Flags::default(), variables, &call) {
            Err(ConfigError::NoPlace) => return Ok((None, None)),
            found => found?,
        };
        let at = match (place.why, place.at) {
            (Why::Default, _) => None,
            (_, At::Folder(relative)) => Some(At::Folder(folder.join(relative))),
            (_, url) => Some(url),
        };
        let profile = config.as_deref().and_then(Config::default_profile);
        Ok((at, profile.map(str::to_owned)))
    }
}

impl Files for Plain<'_> {
    type Error = ConfigError;

    fn here(&self) -> Result<&Path, ConfigError> {
        Ok(self.folder)
    }

    fn named(&self) -> Result<Option<(Arc<Config>, bool)>, ConfigError> {
        let config = self.variables.config()?;
        Ok(config.map(|config| (config, false)))
    }

    fn found(&self) -> Result<Option<Arc<Config>>, ConfigError> {
        Ok(Config::search(Some(self.folder))?.all()?.map(Arc::new))
    }

    fn unseen(&self) -> Result<Option<Arc<Config>>, ConfigError> {
        Ok(None)
    }
}

/// The folder that a variable names by its whole path.
///
/// # Errors
/// - [`ConfigError::Place`] if its value is no whole path.
pub fn folder_in(variable: &str, written: &Path) -> Result<PathBuf, ConfigError> {
    whole(variable, written, "folder")
}

/// The whole path in a variable, of a folder or a file.
fn whole(variable: &str, written: &Path, what: &str) -> Result<PathBuf, ConfigError> {
    if config::is_blank(written) {
        let why = format!("it is empty; unset it, or write the whole path of a {what}");
        return Err(place_error(variable, why));
    }
    let read = config::path_of(written).map_err(|why| place_error(variable, why))?;
    if read.is_relative() {
        let read = read.display();
        let why = format!(
            "{read} would be another {what} in each working folder; write its whole path, as \
             /…/{read}"
        );
        return Err(place_error(variable, why));
    }
    Ok(read)
}

/// The path that a flag names. A shell leaves `~/` as it is behind `--dir=`, and `$HOME` in single quotes; a unit
/// or a crontab has no shell that would read them. A folder of such a name would be another one in each working
/// folder.
///
/// # Errors
/// - [`ConfigError::Place`] if its value is no path.
pub fn path_typed(flag: &str, written: &Path) -> Result<PathBuf, ConfigError> {
    if written.as_os_str().is_empty() {
        return Err(place_error(
            flag,
            "the folder's name is empty; write a folder, or leave the flag out".to_owned(),
        ));
    }
    config::path_of(written).map_err(|why| place_error(flag, why))
}

/// The value of a variable that has to be text.
fn text_of<'a>(variable: &str, value: &'a OsStr, instead: &str) -> Result<&'a str, ConfigError> {
    let wrong = || place_error(variable, format!("it is not UTF-8; {instead}"));
    value.to_str().ok_or_else(wrong)
}

fn place_error(said: &str, why: String) -> ConfigError {
    ConfigError::Place {
        said: said.to_owned(),
        why,
    }
}

/// Looks whether a scope is the place that another variable names.
fn agree<F: Files>(
    told: &Place,
    scope: Scope,
    config: Option<&Config>,
    files: &F,
) -> Result<(), F::Error> {
    let why = Why::Variable(SCOPE, Some(scope));
    let meant = of_scope(scope, &why, config, files)?;
    let folder = |place: &Place| match &place.at {
        At::Folder(folder) => Some(folder.clone()),
        At::Url(url) => config::folder_of_url(url),
    };
    let (one, other) = (folder(told), folder(&meant));
    if one.is_some() && one == other {
        return Ok(());
    }
    let text = |place: &Place| match &place.at {
        At::Folder(folder) => tenure_store::printed::clean_path(folder),
        // A URL may have a password in it.
        At::Url(_) => "another store".to_owned(),
    };
    let error = place_error(
        &format!("{} and {why}", told.why),
        format!(
            "they name two places ({} and {}); unset one of them, or say which with --dir, --store \
             or --scope",
            text(told),
            text(&meant)
        ),
    );
    Err(error.into())
}

/// The place that a configuration names.
fn of_files<F: Files>(config: &Config, named: Named, files: &F) -> Result<Option<Place>, F::Error> {
    let Some(file) = config.whereabouts() else {
        return Ok(None);
    };
    // Only the first file is named by the caller, and the search led to those behind it.
    let named = if std::ptr::eq(file, config) {
        named
    } else {
        Named::ByNobody
    };
    let why = |key: String| Why::File {
        file: file.file.clone(),
        key,
        source: file.source,
    };
    let place = match (&file.dir, &file.store, file.scope) {
        (Some(dir), _, None) => Place {
            is_machines: file.is_machines(),
            is_relative: file.is_relative,
            ..Place::folder(dir.clone(), why("dir".to_owned()), named)
        },
        (_, _, Some(scope)) => {
            let key = format!("scope = {:?}", scope.as_str());
            of_scope(scope, &why(key), Some(config), files)?
        }
        (None, Some(url), None) => {
            // Without the store of servers, no call reaches any.
            #[cfg(all(feature = "etcd", unix))]
            if named == Named::ByNobody {
                crate::consent::store(config, file)?;
            }
            let mut place = Place::of_url(url, why("store".to_owned()), named)?;
            if let At::Folder(folder) = &mut place.at {
                let above = file.file.parent().unwrap_or(Path::new(""));
                place.is_relative = folder.is_relative();
                *folder = above.join(&folder);
            }
            place
        }
        (None, None, None) => return Ok(None),
    };
    Ok(Some(place))
}

/// The folder of a scope. A file that says the same scope may say where in it.
fn of_scope<F: Files>(
    scope: Scope,
    why: &Why,
    config: Option<&Config>,
    files: &F,
) -> Result<Place, F::Error> {
    let place = |folder| Place::folder(folder, why.clone(), Named::ByNobody);
    match scope {
        Scope::User => Ok(place(config::default_folder()?)),
        Scope::Repo => {
            let file = config.and_then(Config::whereabouts);
            let file = file.filter(|file| file.scope == Some(scope) && !file.is_machines());
            let below = file.and_then(|file| file.dir.as_deref());
            let common = repository_of(why, files)?;
            Ok(Place {
                is_relative: true,
                ..place(common.join(below.unwrap_or(Path::new(REPOSITORY_FOLDER))))
            })
        }
        Scope::Machine if cfg!(windows) => Err(place_error(
            &why.to_string(),
            "there is no such folder on Windows; name one with --dir".to_owned(),
        )
        .into()),
        Scope::Machine => {
            let machines = config.and_then(|config| config.files().find(|file| file.is_machines()));
            Ok(Place {
                is_machines: true,
                ..place(folder_of_machine(machines))
            })
        }
    }
}

/// The user who called sudo (or doas, or pkexec), that program, and the folder of that user's locks where nothing names
/// another one.
pub fn folder_of_caller_of_sudo() -> Option<(String, &'static str, PathBuf)> {
    let said = |name: &str| std::env::var(name).ok().filter(|said| !said.is_empty());
    let (user, by) = [
        ("SUDO_USER", "sudo"),
        ("DOAS_USER", "doas"),
        ("SUDO_UID", "sudo"),
        ("PKEXEC_UID", "pkexec"),
    ]
    .into_iter()
    .find_map(|(name, by)| Some((said(name)?, by)))?;
    let (name, home) = match said("SUDO_HOME") {
        Some(home) => (user, PathBuf::from(home)),
        None => process::user(&user)?,
    };
    Some((name, by, config::default_folder_of(&home)))
}

/// The machine's folder, by what its configuration says.
fn folder_of_machine(machines: Option<&Config>) -> PathBuf {
    let named = machines.and_then(|file| file.dir.clone());
    named.unwrap_or_else(|| PathBuf::from(MACHINE_FOLDER))
}

/// The folder of the locks of the clone in whose work tree a folder lies, or will: for the groups of runs whose records
/// lie there. `None` outside of a clone.
///
/// # Errors
/// - [`ConfigError::Unsafe`] if the clone is another user's, who does not share it.
/// - [`ConfigError::Place`] if the work tree leads to no repository.
pub fn locks_of_clone(folder: &Path) -> Result<Option<PathBuf>, ConfigError> {
    let mut ways = folder.ancestors();
    let existing = ways.find_map(|above| above.canonicalize().ok());
    let Some(tree) = existing.as_deref().and_then(tenure_os::private::work_tree) else {
        return Ok(None);
    };
    match repository::common_folder(&tree) {
        Ok(common) => Ok(Some(common.join(REPOSITORY_FOLDER))),
        Err(RepositoryError::None { .. }) => Ok(None),
        Err(missing) => {
            let text = format!("{missing}; or say with --scope or --store where the group is");
            Err(unusable(&Why::CloneOfRecords, &missing, text))
        }
    }
}

/// The error of a repository that these words mean and that cannot be used.
fn unusable(why: &Why, missing: &RepositoryError, text: String) -> ConfigError {
    let said = why.to_string();
    match missing {
        RepositoryError::Untrusted { .. } => ConfigError::Unsafe { said, why: text },
        _ => place_error(&said, text),
    }
}

/// The common folder of the repository that the scope means. The words of a call and the files of a user and of
/// the machine mean the one around the call. A project's file means its own repository, wherever the call is
/// made: cron calls from the home folder. In a folder above several clones it is in none, and means each.
fn repository_of<F: Files>(why: &Why, files: &F) -> Result<PathBuf, F::Error> {
    let failed =
        |missing: RepositoryError| F::Error::from(unusable(why, &missing, missing.to_string()));
    let here = files.here()?;
    if let Why::File { file, .. } = why
        && !config::is_for_all_folders(file)
    {
        let above = here.join(file.parent().unwrap_or(Path::new("")));
        match repository::common_folder(&above.canonicalize().unwrap_or(above)) {
            Err(RepositoryError::None { .. }) => {}
            found => return found.map_err(failed),
        }
    }
    repository::common_folder(here).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files of a call in a folder of a test's own.
    struct Searched {
        here: PathBuf,
        named: Option<(Arc<Config>, bool)>,
        found: Option<Arc<Config>>,
    }

    impl Files for Searched {
        type Error = ConfigError;

        fn here(&self) -> Result<&Path, ConfigError> {
            Ok(&self.here)
        }

        fn named(&self) -> Result<Option<(Arc<Config>, bool)>, ConfigError> {
            Ok(self.named.clone())
        }

        fn found(&self) -> Result<Option<Arc<Config>>, ConfigError> {
            Ok(self.found.clone())
        }

        fn unseen(&self) -> Result<Option<Arc<Config>>, ConfigError> {
            Ok(None)
        }
    }

    /// With paths of Unix, and the machine's folder.
    #[cfg(unix)]
    mod unix {
        use super::*;

        fn around() -> Searched {
            Searched {
                here: PathBuf::from("/nowhere/at/all"),
                named: None,
                found: None,
            }
        }

        fn variables(dir: Option<&str>, store: Option<&str>, scope: Option<&str>) -> Variables {
            Variables {
                dir: dir.map(PathBuf::from),
                store: store.map(OsString::from),
                scope: scope.map(OsString::from),
                ..Variables::default()
            }
        }

        fn at(flags: &Flags<'_>, variables: &Variables) -> Result<(At, String), String> {
            let found = find(flags, variables, &around());
            found
                .map(|(place, _)| (place.at, place.why.to_string()))
                .map_err(|error| error.to_string())
        }

        #[test]
        fn a_flag_counts_for_more_than_a_variable_and_of_variables_the_store_first() {
            let told = variables(Some("/v"), Some("file:/s"), None);
            let dir = Flags {
                dir: Some((Path::new("d"), "--dir")),
                ..Flags::default()
            };
            assert_eq!(
                at(&dir, &told),
                Ok((At::Folder("d".into()), "--dir".to_owned()))
            );
            let machine = Flags {
                scope: Some(Scope::Machine),
                ..Flags::default()
            };
            let expected = (
                At::Folder(MACHINE_FOLDER.into()),
                "--scope machine".to_owned(),
            );
            assert_eq!(at(&machine, &told), Ok(expected));
            let none = Flags::default();
            let expected = (At::Folder("/s".into()), STORE.to_owned());
            assert_eq!(at(&none, &told), Ok(expected));
        }

        #[test]
        fn a_variable_that_cannot_be_a_place_says_what_to_write_instead() {
            for (dir, store, scope, part) in [
                (Some(""), None, None, "TENURE_DIR: it is empty; unset it"),
                (Some("locks"), None, None, "write its whole path"),
                (
                    Some("$HOME/locks"),
                    None,
                    None,
                    "variables are not expanded",
                ),
                (Some("${HOME}/locks"), None, None, "~/"),
                (None, Some(""), None, "TENURE_STORE: it is empty"),
                (None, Some("file:locks"), None, "write the whole path"),
                (None, None, Some("project"), "write user, repo or machine"),
                (None, None, Some(""), "write user, repo or machine"),
                (
                    Some("/v"),
                    None,
                    Some("machine"),
                    "two places (/v and /var/lib/tenure/locks)",
                ),
                (
                    None,
                    Some("etcd://h:1/p"),
                    Some("machine"),
                    "two places (another store and",
                ),
                (
                    None,
                    None,
                    Some("repo"),
                    "TENURE_SCOPE=repo: /nowhere/at/all is in no git repository",
                ),
            ] {
                let said = at(&Flags::default(), &variables(dir, store, scope));
                let said = said.expect_err("no place");
                assert!(said.contains(part), "`{part}` is said: {said}");
            }
            let same = variables(Some(MACHINE_FOLDER), None, Some("machine"));
            let expected = (At::Folder(MACHINE_FOLDER.into()), DIR.to_owned());
            assert_eq!(
                at(&Flags::default(), &same),
                Ok(expected),
                "they name one place"
            );
            // A dollar that begins no name is a character as any other.
            let odd = variables(Some("/srv/a$/5$5"), None, None);
            assert!(at(&Flags::default(), &odd).is_ok());
        }
    }

    #[test]
    fn a_flag_that_says_what_the_file_says_changes_nothing() {
        let scratch = tempfile::tempdir().expect("a folder");
        let here = scratch.path().canonicalize().expect("its own path");
        let git = here.join(".git");
        for folder in ["objects", "refs"] {
            std::fs::create_dir_all(git.join(folder)).expect("a repository");
        }
        std::fs::write(git.join("HEAD"), "ref: refs/heads/main\n").expect("a head");
        let file = here.join(config::FILE);
        let locks = |text: &str, scope| {
            std::fs::write(&file, text).expect("a file");
            let around = Searched {
                here: here.clone(),
                named: None,
                found: Some(Arc::new(Config::read(&file).expect("a configuration"))),
            };
            let flags = Flags {
                scope,
                ..Flags::default()
            };
            let (place, _) = find(&flags, &Variables::default(), &around).expect("a place");
            assert_eq!(place.named, Named::ByNobody);
            place.at
        };
        let within = At::Folder(git.join("ci"));
        let text = "scope = \"repo\"\ndir = \"ci\"\n";
        assert_eq!(locks(text, None), within);
        assert_eq!(locks(text, Some(Scope::Repo)), within);
        let usual = At::Folder(git.join("tenure/locks"));
        assert_eq!(locks("scope = \"repo\"\n", None), usual);
        assert_eq!(
            locks("dir = \"ci\"\n", Some(Scope::Repo)),
            usual,
            "dir is of another scope"
        );
        assert_eq!(locks("dir = \"ci\"\n", None), At::Folder(here.join("ci")));
        let beside = At::Folder(here.join("s"));
        assert_eq!(locks("store = \"file:s\"\n", None), beside);
    }
}
