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
use tenure::engine::Wait;
use tenure::profile::{Native, Profile};

/// The longest duration that is accepted: beyond it, `forever` is meant.
const DURATION_MAX: Duration = Duration::from_secs(366 * 24 * 3_600);

/// Where the locks are, and what a project says about them.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The folder, absolute.
    pub(crate) folder: PathBuf,
    pub(crate) allow_network: bool,
    config: Config,
}

impl Place {
    /// Settles the place.
    pub(crate) fn of(common: &Common) -> Result<Self, Failure> {
        if let Some(profile) = &common.profile
            && profile != Native.policy().name
        {
            return Err(Failure::bad_arguments(format!(
                "--profile {profile}: this version has one profile, native"
            )));
        }
        // A run tells its command which configuration it read; the folder is told as well and
        // counts for more than what that file says.
        let told = std::env::var_os(CONFIG).filter(|path| !path.is_empty());
        let config = match (&common.config, told) {
            (Some(path), _) => Some(Config::read(path)?),
            (None, Some(path)) => Some(Config::read(Path::new(&path))?),
            (None, None) => None,
        };
        let url = common
            .store
            .clone()
            .or_else(|| variable("TENURE_STORE").filter(|_| common.dir.is_none()));
        let (folder, config) = match (&common.dir, url, config) {
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
        })
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

/// The folder of the audit: what was typed, else the environment, else the project, else beside
/// the locks. Whether there is one is not looked at.
pub(crate) fn audit_folder(common: &Common, place: &Place) -> Result<PathBuf, Failure> {
    let told = || {
        std::env::var_os("TENURE_AUDIT_DIR")
            .filter(|dir| !dir.is_empty())
            .map(PathBuf::from)
    };
    let folder = common
        .audit_dir
        .clone()
        .or_else(told)
        .or_else(|| place.config.audit_dir.clone())
        .unwrap_or_else(|| place.folder.join("audit"));
    if folder.as_os_str().is_empty() {
        return Err(Failure::bad_arguments(
            "--audit-dir: the folder's name is empty",
        ));
    }
    absolute(&folder)
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

/// A lock's name.
pub(crate) fn name(text: &str) -> Result<LockName, Failure> {
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
    if let Some(text) = given {
        return request_id(text);
    }
    let mut bytes = [0_u8; 12];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    if filled != Ok(bytes.len()) {
        return Err(Failure::new(
            Exit::General,
            "NO_RANDOMNESS",
            "the system gives no random bytes for a request id; give one with --request-id",
        ));
    }
    let mut id = String::with_capacity(28);
    id.push_str("req_");
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
        return Ok(match policy.held_unforced {
            HeldUnforced::WaitMs(millis) => Wait::For(Duration::from_millis(millis)),
            HeldUnforced::Refuse => Wait::No,
        });
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

/// A duration: `90s`, `15m`, `1h30m`, `250ms`; a bare number is seconds, as in flock(1) and
/// timeout(1).
pub(crate) fn duration(source: &str, text: &str) -> Result<Duration, Failure> {
    let bad = || {
        Failure::bad_arguments(format!(
            "{source} {text:?} is not a duration; write 90s, 15m, 1h30m or a number of seconds (a wait may also be `forever`)"
        ))
    };
    let trimmed = text.trim();
    let looks_bare = trimmed
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let duration = if looks_bare && !trimmed.is_empty() {
        let seconds: f64 = trimmed.parse().map_err(|_| bad())?;
        Duration::try_from_secs_f64(seconds).map_err(|_| bad())?
    } else {
        let span: jiff::Span = trimmed.parse().map_err(|_| bad())?;
        let signed = span
            .to_duration(jiff::SpanRelativeTo::days_are_24_hours())
            .map_err(|_| bad())?;
        Duration::try_from(signed).map_err(|_| bad())?
    };
    if duration > DURATION_MAX {
        return Err(Failure::bad_arguments(format!(
            "{source} {text}: a year is the most; write `forever` to wait without a limit"
        )));
    }
    Ok(duration)
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
    Surface::new(
        output,
        common.quiet,
        common.verbose,
        command.to_owned(),
        conflict_exit_code,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_as_people_write_them() {
        for (text, millis) in [
            ("90s", 90_000),
            ("15m", 900_000),
            ("1h30m", 5_400_000),
            ("250ms", 250),
            ("5", 5_000),
            ("0.5", 500),
            ("0", 0),
            ("1 hour", 3_600_000),
            ("1d", 86_400_000),
        ] {
            let parsed = duration("--wait", text).ok();
            assert_eq!(parsed, Some(Duration::from_millis(millis)), "{text}");
        }
        for text in [
            "",
            "x",
            "-5",
            "-5s",
            "5 potatoes",
            "1e3",
            "inf",
            "99999d",
            ".",
        ] {
            assert!(duration("--wait", text).is_err(), "{text}");
        }
    }

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
