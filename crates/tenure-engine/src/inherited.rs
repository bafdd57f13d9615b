//! What a process inherits from a run around it: the holds (`TENURE_HELD`), and the place of the run's locks with what
//! the run saw when it found that place (`TENURE_AROUND`).
//!
//! Both variables outlive the run: a terminal server or a daemon keeps the environment that it was started in. So a
//! hold that is read here is a claim, which the store proves or refutes, and a place counts while its run lives
//! (`place`).
//!
//! A hold is `TOKEN=FOLDER/NAME`. A lock name contains no `/`, so the last one ends the folder. Holds, and the parts of
//! the place, are separated by `;`. In a value `;`, `%` and bytes that are no UTF-8 are written as `%` and two hex digits.

mod whose;

pub use whose::{Folder, have, is_unnamed_run, kin_of, of};

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tenure_core::{Host, LockName, Process};
use tenure_os::process::Identity;

/// The variable that names a folder.
pub const DIR: &str = "TENURE_DIR";

/// The variable that names a store by its URL.
pub const STORE: &str = "TENURE_STORE";

/// The variable that names a scope.
pub const SCOPE: &str = "TENURE_SCOPE";

/// The variable that names a configuration.
pub const CONFIG: &str = "TENURE_CONFIG";

/// The variables of this process that name places, each with its value.
pub(crate) fn variables() -> Vec<(&'static str, OsString)> {
    let values = [DIR, STORE, SCOPE, CONFIG].map(|name| (name, std::env::var_os(name)));
    let values = values.into_iter();
    values
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

/// The variable with the holds.
pub const HELD: &str = "TENURE_HELD";

/// The variable with the place.
pub const AROUND: &str = "TENURE_AROUND";

/// The variable with the holds that an earlier program hands on to this one, which goes on with them.
pub const HANDED_ON: &str = "TENURE_HANDED_ON";

/// The value of [`HANDED_ON`]; empty for a program that was handed nothing.
pub fn handed_on() -> &'static str {
    static VALUE: OnceLock<String> = OnceLock::new();
    VALUE.get_or_init(|| std::env::var(HANDED_ON).unwrap_or_default())
}

/// A hold that a process inherits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// The fencing token.
    pub token: u64,
    /// The folder of its lock, or the URL of its servers.
    pub folder: PathBuf,
    /// The lock.
    pub name: String,
}

/// The holds that this process inherited.
pub fn holds() -> Vec<Hold> {
    parse(held())
}

/// The value of [`HELD`] as this process inherited it. The first call reads it: a process does not change its own.
pub fn held() -> &'static str {
    static VALUE: OnceLock<String> = OnceLock::new();
    VALUE.get_or_init(|| std::env::var(HELD).unwrap_or_default())
}

/// Adds one more hold to a value of [`HELD`].
pub fn extend(value: &mut String, token: u64, folder: &Path, name: &LockName) {
    if !value.is_empty() {
        value.push(';');
    }
    let _ = write!(value, "{token}=");
    encode(value, folder.as_os_str());
    let _ = write!(value, "/{name}");
}

/// The holds that a value of [`HELD`] names. Text that is no entry is skipped.
pub fn parse(value: &str) -> Vec<Hold> {
    value.split(';').filter_map(hold).collect()
}

fn hold(entry: &str) -> Option<Hold> {
    let (token, path) = entry.split_once('=')?;
    let (folder, name) = path.rsplit_once('/')?;
    Some(Hold {
        token: token.parse().ok()?,
        folder: decode(folder).into(),
        name: name.to_owned(),
    })
}

/// Where locks are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum At {
    /// In a folder. A relative path begins at the folder of the call.
    Folder(PathBuf),
    /// Where a URL says.
    Url(String),
}

/// The place of a run's locks, as the run hands it down to its command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Around {
    /// Where the locks are: a whole path, or a URL.
    pub at: At,
    /// The folder is the machine's.
    pub is_machines: bool,
    /// The profile of the locks, where it publishes records. Native locks of the command are elsewhere then.
    pub records: Option<String>,
    /// Where the group of the run is, beside its records.
    pub groups: Option<At>,
    /// The configuration that the run read.
    pub config: Option<PathBuf>,
    /// What the run saw.
    pub saw: Saw,
    /// The process that supervises the run.
    pub process: Process,
    /// Where that process runs.
    pub host: Host,
    /// A hold of the run. The hold stands as long as its command lives, also where the supervisor was killed.
    pub hold: Option<Hold>,
}

/// What a run saw when it found its place. Only what a run did not see says more of a place than the run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Saw {
    /// Variables that name places, each with a value.
    pub variables: Vec<(String, OsString)>,
    /// Configurations of projects, by their resolved paths.
    pub files: Vec<PathBuf>,
    /// The folder from which the run looked for configurations and repositories. A call that the same words and files
    /// lead elsewhere from its own folder belongs to another project ([`crate::place`]).
    pub folder: Option<PathBuf>,
}

impl Saw {
    /// Whether the run saw this variable with this value.
    pub fn variable(&self, name: &str, value: &OsStr) -> bool {
        let mut saw = self.variables.iter();
        saw.any(|(other, saw)| other == name && saw == value)
    }

    /// Whether the run saw this file.
    pub fn file(&self, file: &Path) -> bool {
        let resolved = file.canonicalize();
        let resolved = resolved.as_deref().unwrap_or(file);
        self.files.iter().any(|saw| saw == resolved)
    }

    /// Adds what this call sees by itself: its variables, its folder, the configuration of its project.
    #[must_use]
    pub fn with_callers(mut self, folder: Option<&Path>, project: Option<&Path>) -> Self {
        if self.folder.is_none() {
            self.folder = folder.map(Path::to_owned);
        }
        for (name, value) in variables() {
            if !self.variable(name, &value) {
                self.variables.push((name.to_owned(), value));
            }
        }
        if let Some(file) = project
            && !self.file(file)
        {
            let resolved = file.canonicalize();
            self.files
                .push(resolved.unwrap_or_else(|_| file.to_owned()));
        }
        self
    }
}

impl Around {
    /// A place as a process hands it down that says nothing more of it.
    pub fn of(at: At, by: &Identity) -> Self {
        Self {
            at,
            is_machines: false,
            records: None,
            groups: None,
            config: None,
            saw: Saw::default(),
            process: by.process,
            host: by.host.clone(),
            hold: None,
        }
    }

    /// The value of [`AROUND`].
    pub fn value(&self) -> String {
        let mut value = String::new();
        let mut part = |key: &str, part: &OsStr| {
            if !value.is_empty() {
                value.push(';');
            }
            let _ = write!(value, "{key}=");
            encode(&mut value, part);
        };
        match &self.at {
            At::Folder(folder) => part("dir", folder.as_os_str()),
            At::Url(url) => part("store", OsStr::new(url)),
        }
        if self.is_machines {
            part("machines", OsStr::new("1"));
        }
        if let Some(profile) = &self.records {
            part("records", OsStr::new(profile));
        }
        match &self.groups {
            Some(At::Folder(folder)) => part("groups", folder.as_os_str()),
            Some(At::Url(url)) => part("groups-store", OsStr::new(url)),
            None => {}
        }
        if let Some(config) = &self.config {
            part("config", config.as_os_str());
        }
        for (name, seen) in &self.saw.variables {
            part(&format!("saw={name}"), seen);
        }
        for file in &self.saw.files {
            part("file", file.as_os_str());
        }
        if let Some(folder) = &self.saw.folder {
            part("from", folder.as_os_str());
        }
        part("pid", OsStr::new(&self.process.pid.to_string()));
        let numbers = [
            ("started", self.process.started),
            ("namespace", self.host.pid_namespace),
        ];
        for (key, number) in numbers {
            if let Some(number) = number {
                part(key, OsStr::new(&number.to_string()));
            }
        }
        let texts = [
            ("boot", &self.host.boot_id),
            ("machine", &self.host.machine_id),
        ];
        for (key, text) in texts {
            if let Some(text) = text {
                part(key, OsStr::new(text));
            }
        }
        if let Some(hold) = &self.hold
            && let Ok(name) = LockName::new(&*hold.name)
        {
            let mut held = String::new();
            extend(&mut held, hold.token, &hold.folder, &name);
            part("hold", OsStr::new(&held));
        }
        value
    }

    /// Reads a value of [`AROUND`]. Parts that this build does not know are passed over.
    pub fn parse(value: &str) -> Option<Self> {
        let (mut at, mut pid) = (None, None);
        let mut around = Self {
            at: At::Folder(PathBuf::new()),
            is_machines: false,
            records: None,
            groups: None,
            config: None,
            saw: Saw::default(),
            process: Process {
                pid: 0,
                started: None,
            },
            host: Host::default(),
            hold: None,
        };
        for part in value.split(';') {
            let (key, written) = part.split_once('=')?;
            let text = || decode(written).into_string().ok();
            match key {
                "dir" => at = Some(At::Folder(decode(written).into())),
                "store" => at = Some(At::Url(text()?)),
                "machines" => around.is_machines = true,
                "records" => around.records = text(),
                "groups" => around.groups = Some(At::Folder(decode(written).into())),
                "groups-store" => around.groups = Some(At::Url(text()?)),
                "config" => around.config = Some(decode(written).into()),
                "saw" => {
                    let (name, seen) = written.split_once('=')?;
                    around.saw.variables.push((name.to_owned(), decode(seen)));
                }
                "file" => around.saw.files.push(decode(written).into()),
                "from" => around.saw.folder = Some(decode(written).into()),
                "pid" => pid = written.parse().ok(),
                "started" => around.process.started = written.parse().ok(),
                "namespace" => around.host.pid_namespace = written.parse().ok(),
                "boot" => around.host.boot_id = text(),
                "machine" => around.host.machine_id = text(),
                "hold" => {
                    let held = hold(&text()?);
                    around.hold = held.filter(|held| LockName::new(&*held.name).is_ok());
                }
                _ => {}
            }
        }
        around.at = at?;
        around.process.pid = pid?;
        Some(around)
    }
}

/// Appends a value.
fn encode(to: &mut String, value: &OsStr) {
    for chunk in bytes_of(value).utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                ';' => to.push_str("%3B"),
                '%' => to.push_str("%25"),
                other => to.push(other),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(to, "%{byte:02X}");
        }
    }
}

/// A folder as text from which [`folder_of`] makes it again, whatever its bytes are. Most folders are their own text.
pub fn text_of(folder: &Path) -> String {
    match folder.to_str() {
        Some(text) if !text.starts_with(BYTES) => text.to_owned(),
        _ => {
            let mut text = BYTES.to_owned();
            encode(&mut text, folder.as_os_str());
            text
        }
    }
}

/// The folder of such a text.
pub fn folder_of(text: &str) -> PathBuf {
    text.strip_prefix(BYTES)
        .map_or_else(|| PathBuf::from(text), |text| decode(text).into())
}

/// Stands before a folder that is no text.
const BYTES: &str = "bytes:";

/// Reads a value. A `%` before anything but two hex digits stands for itself.
fn decode(written: &str) -> OsString {
    let mut bytes = Vec::with_capacity(written.len());
    let mut rest = written;
    while let Some((before, behind)) = rest.split_once('%') {
        bytes.extend_from_slice(before.as_bytes());
        let digits = behind.get(..2);
        if let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            bytes.push(byte);
            rest = &behind[2..];
        } else {
            bytes.push(b'%');
            rest = behind;
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    of_bytes(bytes)
}

#[cfg(unix)]
fn bytes_of(value: &OsStr) -> &[u8] {
    std::os::unix::ffi::OsStrExt::as_bytes(value)
}

#[cfg(unix)]
fn of_bytes(bytes: Vec<u8>) -> OsString {
    std::os::unix::ffi::OsStringExt::from_vec(bytes)
}

/// Names on Windows that are no Unicode have no bytes here.
#[cfg(not(unix))]
fn bytes_of(value: &OsStr) -> &[u8] {
    value.to_str().unwrap_or_default().as_bytes()
}

#[cfg(not(unix))]
fn of_bytes(bytes: Vec<u8>) -> OsString {
    String::from_utf8(bytes).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_with_any_name_comes_back() {
        let name = LockName::new("a").expect("a name");
        let mut folders: Vec<OsString> = ["/x", "/a;b=c/d", "/50%3B", "/with space", "/é%", "/%zz"]
            .map(OsString::from)
            .into();
        if cfg!(unix) {
            folders.push(of_bytes(b"/stra\xdfe/\xff%;".to_vec()));
        }
        for folder in folders {
            let mut value = "3=/other/b".to_owned();
            extend(&mut value, 7, Path::new(&folder), &name);
            assert_eq!(folder_of(&text_of(Path::new(&folder))), Path::new(&folder));
            let last = parse(&value).pop().expect("an entry");
            assert_eq!(last.folder, Path::new(&folder));
            assert_eq!((last.token, last.name.as_str()), (7, "a"));
        }
    }

    #[test]
    fn what_is_not_an_entry_is_skipped() {
        assert_eq!(parse("nonsense;=;x=/a/b"), []);
    }

    #[test]
    fn place_comes_back_whole() {
        let host = Host {
            machine_id: Some("m".to_owned()),
            boot_id: Some("b".to_owned()),
            pid_namespace: Some(3),
            ..Host::default()
        };
        let around = Around {
            at: At::Folder("/a;b/%41".into()),
            is_machines: true,
            records: Some("session".to_owned()),
            groups: Some(At::Folder("/g;%".into())),
            config: Some("/p=q/tenure.toml".into()),
            saw: Saw {
                variables: vec![("TENURE_DIR".to_owned(), "/x=;y".into())],
                files: vec!["/p/tenure.toml".into(), "/q".into()],
                folder: Some("/p".into()),
            },
            process: Process {
                pid: 7,
                started: Some(9),
            },
            host,
            hold: Some(Hold {
                token: 4,
                folder: "/a;b/%41".into(),
                name: "x".to_owned(),
            }),
        };
        let value = around.value();
        assert_eq!(Around::parse(&value), Some(around.clone()));
        assert_eq!(Around::parse(&format!("{value};newer=1")), Some(around));
        for other in ["", "x", "dir=/a", "pid=1"] {
            assert_eq!(Around::parse(other), None, "{other}");
        }
    }
}
