//! The command lines that answers advise. Each works as it stands, in the folder and with the environment of the call that
//! is answered.
//!
//! No other place writes such a line: the program, the flags by which it finds the same locks, the verb, and what names
//! the lock, each quoted for the shell. Which flags these are is the caller's affair.

use crate::printed::{acts, is_plain};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use tenure_core::LockName;

/// The program's name, where nothing else is known of how it is found.
pub const PROGRAM: &str = "tenure";

/// How the program is called again about one lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// The caller is this program itself, so its path helps where its name does not. No call looks for it before a line is made.
    is_of_program: bool,
    /// The flags of the place.
    flags: Vec<String>,
    /// What names the lock.
    lock: Vec<String>,
}

impl Advice {
    /// Of a lock that these words name, by a call of this very program with these flags.
    pub fn of_program(flags: Vec<String>, lock: Vec<String>) -> Self {
        Self {
            is_of_program: true,
            flags,
            lock,
        }
    }

    /// Of a lock where plain calls find it.
    pub fn plain(name: &str) -> Self {
        Self {
            is_of_program: false,
            flags: Vec::new(),
            lock: vec![name.to_owned()],
        }
    }

    /// Of a lock of this profile in this folder, wherever the reader is.
    pub fn of_folder(profile: &str, folder: &Path, name: &LockName) -> Self {
        let folder = folder.to_string_lossy().into_owned();
        let flags = ["--profile", profile, "--dir", &folder].map(str::to_owned);
        Self {
            flags: flags.into(),
            ..Self::plain(name.as_str())
        }
    }

    /// The line of a verb about the lock. Some flags stand before what names it, some behind.
    pub fn line(&self, before: &[&str], behind: &[&str]) -> String {
        let lock = self.lock.iter().map(String::as_str);
        let program = if self.is_of_program {
            program()
        } else {
            PROGRAM.to_owned()
        };
        let flags = self.flags.iter().map(String::as_str);
        let words = std::iter::once(&*program).chain(flags);
        let words = words.chain(before.iter().copied()).chain(lock);
        line(words.chain(behind.iter().copied()))
    }
}

/// How a shell that reads a line of this very program finds it: by its name if that leads to a program, else by its path.
pub fn program() -> String {
    let own = std::env::current_exe().ok();
    match own.as_deref().and_then(Path::to_str) {
        Some(own) if !cfg!(windows) && on_path(PROGRAM).is_none() => own.to_owned(),
        _ => PROGRAM.to_owned(),
    }
}

/// Names this program by its whole path, for lines that are read where the `PATH` is another one. A name on the `PATH` that leads to
/// this very file outlives an update better than the file's own.
pub fn path() -> String {
    let Ok(own) = std::env::current_exe() else {
        return PROGRAM.to_owned();
    };
    let is_own = |path: &PathBuf| path.canonicalize().is_ok_and(|path| path == own);
    let found = programs(None, PROGRAM).find(is_own).unwrap_or(own);
    let found = found.to_str().filter(|_| !cfg!(windows));
    found.map_or_else(program, str::to_owned)
}

/// The first program of this name on the `PATH`.
pub fn on_path(name: &str) -> Option<PathBuf> {
    programs(None, name).next()
}

/// The programs of this name in the folders of a `PATH`, of the caller's own if none is given. A folder that is not named from
/// the root on may be any project's, and is passed over.
pub fn programs(path: Option<OsString>, name: &str) -> impl Iterator<Item = PathBuf> {
    let path = path
        .or_else(|| std::env::var_os("PATH"))
        .unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let name = name.to_owned();
    let absolute = folders.into_iter().filter(|folder| folder.is_absolute());
    let files = absolute.map(move |folder| folder.join(&name));
    files.filter(|file| is_program(file))
}

/// Whether a file is one that can be started.
pub fn is_program(path: &Path) -> bool {
    #[cfg(unix)]
    let may_start = |facts: &std::fs::Metadata| {
        std::os::unix::fs::PermissionsExt::mode(&facts.permissions()) & 0o111 != 0
    };
    #[cfg(not(unix))]
    let may_start = |_: &std::fs::Metadata| true;
    let facts = path.metadata();
    facts.is_ok_and(|facts| facts.is_file() && may_start(&facts))
}

/// The rights of the folder for the locks that all users of a machine share: its group uses the locks, and no member removes
/// another one's.
const MACHINE_RIGHTS: u32 = 0o3770;

/// The line by which an administrator makes that folder.
pub fn line_that_makes(folder: &str, group: &str) -> String {
    let rights = format!("{MACHINE_RIGHTS:o}");
    line(["sudo", "install", "-d", "-m", &rights, "-g", group, folder])
}

/// Words as one line for a shell.
pub fn line<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<_> = words.into_iter().map(word).collect();
    words.join(" ")
}

/// A word, quoted for the shell of this system where it has to be.
pub fn word(word: &str) -> String {
    if cfg!(windows) {
        for_windows(word)
    } else {
        for_unix(word)
    }
}

/// As `sh` takes it. The quotes keep control characters as they are, and a terminal would act on those: bash, zsh and ksh
/// read them from `$''`.
fn for_unix(word: &str) -> String {
    if is_plain(word, "/._-+=@:,") {
        return word.to_owned();
    }
    let acts = |c: char| c.is_control() || acts(c);
    if !word.contains(acts) {
        return format!("'{}'", word.replace('\'', r"'\''"));
    }
    let mut quoted = "$'".to_owned();
    for c in word.chars() {
        match c {
            '\'' | '\\' => quoted.extend(['\\', c]),
            c if acts(c) => {
                for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                    // Writing to a `String` cannot fail.
                    let _ = write!(quoted, "\\{byte:03o}");
                }
            }
            c => quoted.push(c),
        }
    }
    quoted.push('\'');
    quoted
}

/// As `cmd` and PowerShell take it. No path can have a quote in it there.
fn for_windows(word: &str) -> String {
    if is_plain(word, r"\/._-+:") {
        return word.to_owned();
    }
    format!("\"{}\"", word.replace('"', ""))
}

/// A message as a program gets it, which has no flags: each of them has a variable that says the same.
pub fn by_variables(message: &str) -> String {
    let pairs = [
        ("--dir or TENURE_DIR", "TENURE_DIR"),
        ("--dir", "TENURE_DIR"),
        ("--store", "TENURE_STORE"),
        ("--scope user", "TENURE_SCOPE=user"),
        ("--scope machine", "TENURE_SCOPE=machine"),
        ("--scope", "TENURE_SCOPE"),
    ];
    let said = |text: String, (flag, variable)| text.replace(flag, variable);
    pairs.into_iter().fold(message.to_owned(), said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_one_word_to_its_shell() {
        for (plain, quoted) in [
            ("/srv/a-b_c.d", "/srv/a-b_c.d"),
            ("/srv/it's here", r"'/srv/it'\''s here'"),
            ("", "''"),
            ("$HOME", "'$HOME'"),
            ("a\nb\u{1b}'\\", r"$'a\012b\033\'\\'"),
            ("a\u{202e}b", r"$'a\342\200\256b'"),
        ] {
            assert_eq!(for_unix(plain), quoted);
        }
        assert_eq!(for_windows(r"C:\locks\a-b_c.d"), r"C:\locks\a-b_c.d");
        assert_eq!(for_windows(r"C:\it's here"), r#""C:\it's here""#);
        assert_eq!(for_windows(""), r#""""#);
    }

    #[test]
    fn a_line_has_the_flags_of_its_place_first() {
        let advice = Advice {
            flags: ["--dir", "a b"].map(str::to_owned).into(),
            lock: ["--group", "g"].map(str::to_owned).into(),
            ..Advice::plain("")
        };
        assert_eq!(
            advice.line(&["cancel", "--orphan"], &["--grace", "0s"]),
            "tenure --dir 'a b' cancel --orphan --group g --grace 0s"
        );
    }
}
