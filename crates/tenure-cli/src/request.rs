//! What the words mean: names checked, durations read, the place of the locks settled. Everything
//! that can be wrong with a call is found here, before anything is touched.

use crate::args::{Claiming, Common, Patience};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::{Output, Surface};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tenure::config::{self, Config, LockDefaults};
use tenure::core::{Force, HeldUnforced, LockName, Policy, RequestId};
use tenure::duration::{self, DurationError};
use tenure::engine::Wait;
use tenure::profile::{self, Native, Profile, Settings};

/// Where the locks are, and what a project says about them.
#[derive(Debug)]
pub(crate) struct Place {
    /// The folder, absolute.
    pub(crate) folder: PathBuf,
    pub(crate) allow_network: bool,
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
        let (folder, config) = match (dir, url, config) {
            (Some(dir), _, config) => (dir.clone(), config),
            (None, Some(url), config) => (folder_of(&url)?, config),
            (None, None, Some(config)) => (
                match if common.config.is_some() {
                    config.dir.clone().or_else(folder_of_environment)
                } else {
                    folder_of_environment().or_else(|| config.dir.clone())
                } {
                    Some(dir) => dir,
                    None => config::default_folder()?,
                },
                Some(config),
            ),
            (None, None, None) => {
                if let Some(dir) = folder_of_environment() {
                    (dir, None)
                } else {
                    let here = current_folder()?;
                    let config = Config::nearest(&here)?;
                    match config.as_ref().and_then(|config| config.dir.clone()) {
                        Some(dir) => (dir, config),
                        None => (config::default_folder()?, config),
                    }
                }
            }
        };
        if folder.as_os_str().is_empty() {
            return Err(Failure::bad_arguments("--dir: the folder's name is empty"));
        }
        let config = config.unwrap_or_default();
        check_defaults(&config)?;
        Ok(Self {
            folder: absolute(&folder)?,
            allow_network: common.allow_network_fs,
            config,
            profile: Some(profile),
        })
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

/// The folder of the audit, and whether somebody named it: what was typed, else the environment,
/// else the project, else beside the locks. Whether there is one is not looked at.
pub(crate) fn audit_folder(
    common: &Common,
    place: &Place,
    profile: &dyn Profile,
) -> Result<(PathBuf, bool), Failure> {
    let told = || {
        std::env::var_os("TENURE_AUDIT_DIR")
            .filter(|dir| !dir.is_empty())
            .map(PathBuf::from)
    };
    let folder = common
        .audit_dir
        .clone()
        .or_else(told)
        .or_else(|| place.config.audit_dir.clone());
    let is_named = folder.is_some();
    let folder = folder.unwrap_or_else(|| profile.audit_folder(&place.folder));
    if folder.as_os_str().is_empty() {
        return Err(Failure::bad_arguments(
            "--audit-dir: the folder's name is empty",
        ));
    }
    Ok((absolute(&folder)?, is_named))
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

fn folder_of(url: &str) -> Result<PathBuf, Failure> {
    match url.split_once(':') {
        Some(("file", rest)) => {
            let path = rest.strip_prefix("//").unwrap_or(rest);
            if path.is_empty() {
                return Err(Failure::bad_arguments(format!(
                    "--store {url}: no folder is named; write file:DIR"
                )));
            }
            Ok(PathBuf::from(path))
        }
        Some(("etcd", _)) => Err(Failure::bad_arguments(format!(
            "--store {url}: this version keeps locks in local files only; write file:DIR"
        ))),
        _ => Err(Failure::bad_arguments(format!(
            "--store {url}: write file:DIR"
        ))),
    }
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
    let native = Policy::NATIVE.name;
    Surface::new(
        output,
        common.quiet,
        common.verbose,
        command.to_owned(),
        conflict_exit_code,
    )
    .plain(common.profile.as_deref().is_some_and(|name| name != native))
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
