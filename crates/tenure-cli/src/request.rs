//! What the words mean: names checked, durations read, the place of the locks settled. Everything
//! that can be wrong with a call is found here, before anything is touched.

use crate::args::{Claiming, Common, Patience};
use crate::exit::Exit;
use crate::face;
use crate::failure::Failure;
use crate::render::{Output, Surface};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tenure::audit;
use tenure::config::{self, Config, LockDefaults};
use tenure::duration::{self, DurationError};
use tenure::engine::Wait;
use tenure::profile::{self, Native, Profile, Settings};
use tenure::store::file::FileStore;
use tenure_core::{Force, HeldUnforced, LockName, Policy, RequestId};

/// What kind of place the locks are in.
#[derive(Debug, Clone)]
pub(crate) enum Location {
    /// A folder on this machine, absolute.
    Folder(PathBuf),
    /// An etcd.
    #[cfg(all(feature = "etcd", unix))]
    Etcd(tenure::store::etcd::Address),
}

/// Where the locks are, and what a project says about them.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) location: Location,
    /// The folder that has the locks, absolute; of locks on servers, their URL in its place: what a
    /// hold is noted by.
    pub(crate) folder: PathBuf,
    /// The locks are native ones beside the records of this profile.
    pub(crate) beside: Option<Box<dyn Profile>>,
    pub(crate) allow_network: bool,
    /// The caller said where: by a flag, a variable, or a configuration file that a flag or a variable
    /// names. A search or a default is nobody's word.
    pub(crate) is_named: bool,
    config: Config,
    profile: Option<Box<dyn Profile>>,
}

impl Place {
    /// Settles the place.
    pub(crate) fn of(common: &Common) -> Result<Self, Failure> {
        let profile = profile(common)?;
        let config = named_configuration(common)?;
        let url = common
            .store
            .clone()
            .or_else(|| variable("TENURE_STORE").filter(|_| common.dir.is_none()));
        let dir = common.dir.as_ref().or(common.project_root.as_ref());
        if common.project_root.is_some() && !profile.place().must_exist {
            return Err(Failure::bad_arguments(
                "--project-root is the sprint profile's; name the folder with --dir",
            ));
        }
        let told = |dir: PathBuf| Ok(Location::Folder(dir));
        let (named, config): (Option<Result<_, Failure>>, _) = match (dir, url, config) {
            (Some(dir), _, config) => (Some(told(dir.clone())), config),
            (None, Some(url), config) => (Some(location_of("--store", &url)), config),
            (None, None, Some(config)) => {
                let of_file = location_of_file(&config);
                let of_environment = folder_of_environment().map(told);
                let named = if common.config.is_some() {
                    of_file.or(of_environment)
                } else {
                    of_environment.or(of_file)
                };
                (named, Some(config))
            }
            (None, None, None) => match folder_of_environment() {
                Some(dir) => (Some(told(dir)), None),
                None => (None, Config::nearest(&current_folder()?)?),
            },
        };
        let is_named = named.is_some();
        let location = named
            .or_else(|| config.as_ref().and_then(location_of_file))
            .unwrap_or_else(default_location);
        let location = location?;
        let location = match location {
            Location::Folder(folder) if folder.as_os_str().is_empty() => {
                return Err(Failure::bad_arguments("--dir: the folder's name is empty"));
            }
            Location::Folder(folder) => Location::Folder(absolute(&folder)?),
            #[cfg(all(feature = "etcd", unix))]
            servers @ Location::Etcd(_) => servers,
        };
        let config = config.unwrap_or_default();
        check_defaults(&config)?;
        Ok(Self {
            folder: name_of(&location),
            location,
            beside: None,
            allow_network: common.allow_network_fs,
            is_named,
            config,
            profile: Some(profile),
        })
    }

    /// The place of groups, which are native locks: the same; beside published records a folder of ours
    /// there, because records stand in work trees whose files are committed.
    pub(crate) fn of_groups(common: &Common) -> Result<Self, Failure> {
        let mut place = Self::of(common)?;
        let profile = place.take_profile();
        if let Location::Folder(folder) = &place.location
            && profile.record().is_some()
        {
            place.folder = FileStore::folder_beside(&*profile, folder);
            place.beside = Some(profile);
        }
        Ok(place)
    }

    /// The place of groups whose runs publish records in this folder, as seen from a call that names no
    /// profile. Only for asking: which profile it is decides how the folder is made.
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
            config: Config::default(),
            profile: None,
        })
    }

    /// The place of the lock of a push: outside of the tree that is pushed, and the same for all clones
    /// of this user. So a folder counts only if the call itself names it, and not what a run around it
    /// or a project names for locks of its own. Servers lie in no tree.
    #[cfg(unix)]
    pub(crate) fn of_push(common: &Common) -> Result<Self, Failure> {
        let mut place = Self::of(common)?;
        if place.is_folder() && common.dir.is_none() && common.store.is_none() {
            let folder = config::default_folder().map_err(|_| {
                Failure::bad_arguments(
                    "no folder is known for the lock of a push, because there is no home; name one \
                     with --dir",
                )
            })?;
            place.location = Location::Folder(folder.clone());
            place.folder = folder;
        }
        Ok(place)
    }

    /// The place of a hold or a note, by what `folder` said of it.
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
            // Whoever noted it was let in there.
            is_named: true,
            config: Config::default(),
            profile: None,
        })
    }

    /// Whether the locks are files on this machine.
    pub(crate) fn is_folder(&self) -> bool {
        matches!(self.location, Location::Folder(_))
    }

    /// What tells a command where the locks are. Of native locks beside records, where those are: the
    /// command may ask for them under the same profile.
    pub(crate) fn variable(&self) -> (&'static str, std::ffi::OsString) {
        let name = match self.location {
            Location::Folder(_) => "TENURE_DIR",
            #[cfg(all(feature = "etcd", unix))]
            Location::Etcd(_) => "TENURE_STORE",
        };
        (name, name_of(&self.location).into())
    }

    /// What would tell it otherwise.
    pub(crate) fn other_variable(&self) -> &'static str {
        match self.location {
            Location::Folder(_) => "TENURE_STORE",
            #[cfg(all(feature = "etcd", unix))]
            Location::Etcd(_) => "TENURE_DIR",
        }
    }

    /// The profile by which the locks are kept, for whoever opens the store.
    pub(crate) fn take_profile(&mut self) -> Box<dyn Profile> {
        self.profile.take().unwrap_or_else(|| Box::new(Native))
    }

    /// The configuration file that was read, absolute.
    pub(crate) fn config_file(&self) -> Option<PathBuf> {
        Some(&self.config.file)
            .filter(|file| !file.as_os_str().is_empty())
            .and_then(|file| absolute(file).ok())
    }

    /// The file that alone names the place, where that is another user's whom root has only to trust
    /// with less: the user who became root by sudo.
    #[cfg(all(feature = "etcd", unix))]
    pub(crate) fn named_by_sudo_user(&self) -> Option<&Path> {
        let is_theirs = !self.is_named && self.config.source == config::Source::FoundOfSudoUser;
        is_theirs.then_some(&*self.config.file)
    }

    pub(crate) fn defaults(&self, name: &LockName) -> LockDefaults {
        if self.config.locks.is_empty() {
            return LockDefaults::default();
        }
        self.config.defaults(name.as_str())
    }
}

/// The profile that a call names.
fn profile(common: &Common) -> Result<Box<dyn Profile>, Failure> {
    let given = common.lock_file_name.is_some() || common.stale_after.is_some();
    let name = match &common.profile {
        // Nothing is looked up for what nearly every call wants.
        None if !given => return Ok(Box::new(Native)),
        None => Policy::NATIVE.name,
        Some(name) => name,
    };
    let stale_after = common.stale_after.as_deref();
    let settings = Settings {
        lock_file_name: common.lock_file_name.clone(),
        stale_after_ms: stale_after
            .map(|text| lease("--stale-after", text))
            .transpose()?
            .map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
    };
    let config = if Policy::ALL.iter().any(|policy| policy.name == name) {
        Config::default()
    } else {
        configuration(common)?
    };
    Ok(profile::by_name(name, &settings, &config)?)
}

/// The folder of the audit, and whether somebody said that there is to be one: what was typed, else
/// the environment, else the project, else beside the locks. Whether there is one is not looked at.
pub(crate) fn audit_folder(
    common: &Common,
    place: &Place,
    profile: &dyn Profile,
) -> Result<(audit::Place, bool), Failure> {
    let told = || {
        std::env::var_os("TENURE_AUDIT_DIR")
            .filter(|dir| !dir.is_empty())
            .map(PathBuf::from)
    };
    if let Some(folder) = common.audit_dir.clone().or_else(told) {
        if folder.as_os_str().is_empty() {
            return Err(Failure::bad_arguments(
                "--audit-dir: the folder's name is empty",
            ));
        }
        return Ok((absolute(&folder)?.into(), true));
    }
    if let Some(folder) = &place.config.audit_dir {
        let folder = audit::Place::from(absolute(folder)?);
        return Ok(match place.config.source {
            config::Source::Named => (folder, true),
            _ => (folder.found(), true),
        });
    }
    // Of locks on servers, each machine records what it did itself.
    let is_folder = place.is_folder();
    let (profile, locks) = match &place.beside {
        _ if !is_folder => (profile, config::default_folder()?),
        // What happens to a group is found where its run's own lock is recorded.
        Some(records) => (&**records, name_of(&place.location)),
        None => (profile, place.folder.clone()),
    };
    let locks = absolute(&locks)?;
    let folder = audit::Place::below(locks.clone(), profile.audit_folder(&locks));
    Ok(if is_folder && place.is_named {
        (folder, false)
    } else {
        (folder.found(), false)
    })
}

/// An instant, in milliseconds since the Unix epoch: RFC 3339, or a duration, which means so long
/// before `now_ms`.
pub(crate) fn moment(source: &str, text: &str, now_ms: u64) -> Result<u64, Failure> {
    if let Ok(at) = text.trim().parse::<jiff::Timestamp>() {
        // Before 1970 there were no locks.
        return Ok(u64::try_from(at.as_millisecond()).unwrap_or(0));
    }
    let ago = duration(source, text).map_err(|_| {
        Failure::bad_arguments(format!(
            "{source} {text:?} is neither a time with its zone (2026-02-07T10:00:00Z) nor a \
             duration of up to a year (15m, which means that long ago)"
        ))
    })?;
    let ago_ms = u64::try_from(ago.as_millis()).unwrap_or(u64::MAX);
    Ok(now_ms.saturating_sub(ago_ms))
}

/// Tells a command which configuration its run has read.
pub(crate) const CONFIG: &str = "TENURE_CONFIG";

/// The configuration that the caller names, or that a run has told its command. The run tells the
/// folder as well, which counts for more than what that file says.
fn named_configuration(common: &Common) -> Result<Option<Config>, Failure> {
    let told = std::env::var_os(CONFIG).filter(|path| !path.is_empty());
    Ok(match (&common.config, told) {
        (Some(path), _) => Some(Config::read(path)?),
        (None, Some(path)) => Some(Config::read(Path::new(&path))?),
        (None, None) => None,
    })
}

/// The configuration that is named, else the nearest one; for what does not depend on a place.
pub(crate) fn configuration(common: &Common) -> Result<Config, Failure> {
    if let Some(config) = named_configuration(common)? {
        return Ok(config);
    }
    Ok(Config::nearest(&current_folder()?)?.unwrap_or_default())
}

/// One pair of a flag that takes `KEY=VALUE` and may be given several times.
pub(crate) fn pair<'a>(flag: &str, text: &'a str) -> Result<(&'a str, &'a str), Failure> {
    text.split_once('=')
        .filter(|(key, _)| !key.is_empty())
        .ok_or_else(|| Failure::bad_arguments(format!("{flag} {text:?}: write KEY=VALUE")))
}

/// Looks at every default of a configuration, so that a mistake is found by the first call and not
/// by the first that needs it.
fn check_defaults(config: &Config) -> Result<(), Failure> {
    for (pattern, defaults) in &config.locks {
        let source = |key| format!("{}: [lock.{pattern:?}] {key}", config.file.display());
        if let Some(wait) = defaults.wait.as_deref().filter(|wait| *wait != "forever") {
            duration(&source("wait"), wait)?;
        }
        if let Some(ttl) = &defaults.ttl {
            lease(&source("ttl"), ttl)?;
        }
    }
    Ok(())
}

fn folder_of_environment() -> Option<PathBuf> {
    std::env::var_os("TENURE_DIR")
        .filter(|dir| !dir.is_empty())
        .map(PathBuf::from)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn current_folder() -> Result<PathBuf, Failure> {
    std::env::current_dir().map_err(|error| {
        Failure::new(
            Exit::General,
            "NO_CURRENT_FOLDER",
            format!("the current folder cannot be named: {error}"),
        )
    })
}

/// The command may change its folder, so what it is told has to be absolute.
fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    if path.is_absolute() {
        return Ok(path.to_owned());
    }
    Ok(current_folder()?.join(path))
}

/// What stands for a place where a folder is noted.
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

/// The place that a configuration names.
fn location_of_file(config: &Config) -> Option<Result<Location, Failure>> {
    match (&config.dir, &config.store) {
        (Some(dir), _) => Some(Ok(Location::Folder(dir.clone()))),
        (None, Some(url)) => {
            let source = format!("{}: store", config.file.display());
            Some(location_of(&source, url))
        }
        (None, None) => None,
    }
}

fn default_location() -> Result<Location, Failure> {
    Ok(Location::Folder(config::default_folder()?))
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
        _ => Err(Failure::bad_arguments(format!(
            "{source} {url}: write file:DIR, or etcd://HOST:PORT[,HOST:PORT]/PREFIX"
        ))),
    }
}

#[cfg(all(feature = "etcd", unix))]
fn servers(source: &str, url: &str) -> Result<Location, Failure> {
    let address = tenure::store::etcd::Address::parse(url).map_err(|why| {
        // What it is wrong about may be a password, which is not repeated.
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

/// A lock's name, as far as it can be checked without knowing the profile.
pub(crate) fn name(given: Option<&str>) -> Result<LockName, Failure> {
    let text = given.ok_or_else(|| {
        Failure::bad_arguments("the following required arguments were not provided: <NAME>")
    })?;
    LockName::new(text).map_err(|why| {
        Failure::bad_arguments(format!("the lock name {text:?} cannot be used: {why}"))
    })
}

/// A given request id.
pub(crate) fn request_id(text: &str) -> Result<RequestId, Failure> {
    RequestId::new(text)
        .map_err(|why| Failure::bad_arguments(format!("--request-id {text:?}: {why}")))
}

/// The given request id, or a fresh one: `req_` and 24 hex digits of the kernel's randomness.
pub(crate) fn request_id_or_new(given: Option<&str>) -> Result<RequestId, Failure> {
    match given {
        Some(text) => request_id(text),
        None => fresh_id::<12>(),
    }
}

/// A fresh request id with two hex digits for each of so many bytes.
pub(crate) fn fresh_id<const BYTES: usize>() -> Result<RequestId, Failure> {
    let mut bytes = [0_u8; BYTES];
    if tenure::process::fill_randomly(&mut bytes).is_err() {
        return Err(Failure::new(
            Exit::General,
            "NO_RANDOMNESS",
            "the system gives no random bytes for a request id; give one with --request-id",
        ));
    }
    let mut id = "req_".to_owned();
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            id.extend(char::from_digit(digit.into(), 16));
        }
    }
    request_id(&id)
}

/// How long to wait: what was typed, else the environment, else the project, else the profile.
pub(crate) fn wait(
    patience: &Patience,
    defaults: &LockDefaults,
    policy: &Policy,
) -> Result<Wait, Failure> {
    let otherwise = match policy.held_unforced {
        HeldUnforced::WaitMs(millis) => Wait::For(Duration::from_millis(millis)),
        HeldUnforced::Refuse => Wait::No,
    };
    wait_or(patience, defaults, otherwise)
}

/// The same where the verb itself knows what to do if nobody says anything.
pub(crate) fn wait_or(
    patience: &Patience,
    defaults: &LockDefaults,
    otherwise: Wait,
) -> Result<Wait, Failure> {
    if patience.nonblock {
        return Ok(Wait::No);
    }
    let given = patience
        .wait
        .clone()
        .map(|text| ("--wait", text))
        .or_else(|| variable("TENURE_WAIT").map(|text| ("TENURE_WAIT", text)))
        .or_else(|| defaults.wait.clone().map(|text| ("wait", text)));
    let Some((source, text)) = given else {
        return Ok(otherwise);
    };
    if text == "forever" {
        return Ok(Wait::Forever);
    }
    let duration = duration(source, &text)?;
    Ok(if duration.is_zero() {
        Wait::No
    } else {
        Wait::For(duration)
    })
}

/// A ttl, if one was given.
pub(crate) fn ttl(claiming: &Claiming, defaults: &LockDefaults) -> Result<Option<u64>, Failure> {
    let given = claiming
        .ttl
        .as_deref()
        .map(|text| ("--ttl", text))
        .or_else(|| defaults.ttl.as_deref().map(|text| ("ttl", text)));
    let Some((source, text)) = given else {
        return Ok(None);
    };
    let duration = lease(source, text)?;
    Ok(Some(
        u64::try_from(duration.as_millis())
            .unwrap_or(u64::MAX)
            .max(1),
    ))
}

/// The duration of a lease.
fn lease(source: &str, text: &str) -> Result<Duration, Failure> {
    let duration = duration(source, text)?;
    if duration.is_zero() {
        return Err(Failure::bad_arguments(format!(
            "{source} {text}: a lease has to last longer than nothing"
        )));
    }
    Ok(duration)
}

/// A duration that was typed or configured; `source` says where.
pub(crate) fn duration(source: &str, text: &str) -> Result<Duration, Failure> {
    duration::parse(text).map_err(|error| {
        let hint = match error {
            DurationError::TooLong { .. } => "; write `forever` to wait without a limit",
            _ => " (a wait may also be `forever`)",
        };
        Failure::bad_arguments(format!("{source} {error}{hint}"))
    })
}

/// Refuses an intent where no profile carries one out.
#[cold]
#[inline(never)]
fn no_intent() -> Failure {
    Failure::bad_arguments("--intent and --param belong to the fleet profile; name the lock itself")
}

/// The same for a call that may have one.
pub(crate) fn refuse_intent(claiming: &Claiming) -> Result<(), Failure> {
    if claiming.intent.is_some() || !claiming.param.is_empty() {
        return Err(no_intent());
    }
    Ok(())
}

/// How much the caller insists.
pub(crate) fn force(claiming: &Claiming) -> Force {
    match (claiming.force, claiming.yes) {
        (false, _) => Force::No,
        (true, false) => Force::Asked,
        (true, true) => Force::Confirmed,
    }
}

/// How answers are printed.
pub(crate) fn surface(
    common: &Common,
    command: &'static str,
    conflict_exit_code: Option<u8>,
) -> Surface {
    let output = common
        .output
        .or_else(Output::from_environment)
        .unwrap_or(Output::Text);
    let is_plain = speaks_plainly(common);
    let documents = is_plain
        .then(|| face::of(common).ok())
        .flatten()
        .and_then(|face| face.failures(command));
    Surface::new(
        output,
        common.quiet,
        common.verbose,
        command.to_owned(),
        conflict_exit_code,
    )
    .plain(is_plain)
    .documenting(documents)
}

/// Whether the messages of a call are sentences that the users of another system know, and stand without
/// our name. An own profile speaks as the one whose format it has.
fn speaks_plainly(common: &Common) -> bool {
    let native = Policy::NATIVE.name;
    match common.profile.as_deref() {
        None => false,
        Some(name) if Policy::ALL.iter().any(|policy| policy.name == name) => name != native,
        Some(_) => profile(common).is_ok_and(|profile| profile.format() != native),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_times_or_durations_ago() {
        let now = 1_770_458_400_000;
        for (text, millis) in [
            ("2026-02-07T10:00:00Z", now),
            ("2026-02-07T11:00:00.007+01:00", now + 7),
            ("1960-01-01T00:00:00Z", 0),
            ("15m", now - 900_000),
            ("0s", now),
            ("90", now - 90_000),
        ] {
            let parsed = moment("--since", text, now).ok();
            assert_eq!(parsed, Some(millis), "{text}");
        }
        for text in ["", "yesterday", "2026-02-07T10:00:00", "-5m", "forever"] {
            assert!(moment("--since", text, now).is_err(), "{text}");
        }
    }

    #[test]
    fn generated_ids_are_valid_and_differ() {
        let ids: Vec<_> = (0..2)
            .filter_map(|_| request_id_or_new(None).ok())
            .collect();
        let [first, second] = ids.as_slice() else {
            panic!("two ids");
        };
        assert_ne!(first, second);
    }
}
