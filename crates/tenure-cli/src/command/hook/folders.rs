//! In which folder each command of a text runs, as far as the text tells.
//!
//! The prefix looks for its lock where the shell is by then. So the rules have to be those of that folder too: behind
//! `cd sub &&`, those of `sub`. A `cd` counts if it names its folder plainly and that folder is there now. Where
//! another command decides whether it runs (`test && cd sub && make; make`), it counts for what is joined to it. Every
//! other one is passed over, and the rules of the folder before it go on: `cd "$x"`, a folder that an earlier command
//! is about to make, a `cd` that only runs if another command fails.
//!
//! What the rules of a folder are, the caller asks (`request/hook`).

use std::path::{Component, Path, PathBuf};
use tenure_engine::shell::{Line, Simple};

/// The folder of each simple command, in their order. None for a text that is not understood.
pub(super) fn of(text: &str, line: &Line, start: &Path) -> Vec<PathBuf> {
    let Line::Plain(commands) = line else {
        return Vec::new();
    };
    let mut folders = Vec::with_capacity(commands.len());
    let (mut here, mut before) = (start.to_owned(), None);
    // Where the list begins that is joined by `&&` and `||`, and whether all of it has run so far.
    let (mut settled, mut has_run) = (here.clone(), true);
    for (number, command) in commands.iter().enumerate() {
        let last = number.checked_sub(1).and_then(|last| commands.get(last));
        let between = last.and_then(|last| text.get(last.to..command.from));
        let joined = |sign: &str| between.is_some_and(|between| between.contains(sign));
        if !(command.is_piped || joined("&&") || joined("||")) {
            here.clone_from(&settled);
            has_run = true;
        }
        folders.push(here.clone());
        // Each part of a pipe has a shell of its own.
        let next = commands.get(number + 1);
        let is_piped = command.is_piped || next.is_some_and(|next| next.is_piped);
        let to = match target(command) {
            _ if is_piped || joined("||") => None,
            Some(Target::Folder(folder)) => lexically(&here, &folder),
            Some(Target::Before) => before.clone(),
            None => None,
        };
        match to.filter(|to| to.is_dir()) {
            Some(to) => {
                before = Some(std::mem::replace(&mut here, to));
                if has_run {
                    settled.clone_from(&here);
                }
            }
            // Variables alone are set whatever comes of it.
            None => has_run &= command.words.is_empty(),
        }
    }
    folders
}

enum Target {
    Folder(PathBuf),
    /// `cd -`.
    Before,
}

/// Where a command leads that changes the folder; `None` for any other, and where that cannot be told.
fn target(command: &Simple) -> Option<Target> {
    let (first, rest) = command.words.split_first()?;
    if first.text.as_deref() != Some("cd") || command.assigned.iter().any(|name| name == "CDPATH") {
        return None;
    }
    let is_flag = |text: &str| matches!(text, "--" | "-L");
    let mut words = rest
        .iter()
        .skip_while(|word| word.text.as_deref().is_some_and(is_flag));
    let (Some(word), None) = (words.next(), words.next()) else {
        return None;
    };
    let text = word.text.as_deref().filter(|text| !text.is_empty())?;
    match text.strip_prefix('~') {
        Some(rest) if !word.is_quoted => {
            let home = std::env::var_os("HOME").map(PathBuf::from);
            let home = home.filter(|home| home.is_absolute())?;
            Some(Target::Folder(home.join(rest.strip_prefix('/')?)))
        }
        // A quote may stand before the sign, or behind it.
        Some(_) => None,
        None if text == "-" => Some(Target::Before),
        None if text.starts_with('-') => None,
        None => Some(Target::Folder(text.into())),
    }
}

/// A folder as shells name it: `..` takes the last name away, whatever link it is.
fn lexically(here: &Path, to: &Path) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for part in here.join(to).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path.is_absolute().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_engine::shell;

    #[test]
    fn a_plain_cd_leads_to_a_folder_that_is_there() {
        let scene = tempfile::tempdir().expect("a folder");
        let root = scene.path().canonicalize().expect("a path");
        for folder in ["a/b", "c d"] {
            std::fs::create_dir_all(root.join(folder)).expect("a folder");
        }
        std::os::unix::fs::symlink(root.join("a/b"), root.join("link")).expect("a link");
        for (text, expected) in [
            ("make", ""),
            ("cd a && make", "a"),
            ("cd a/b; make", "a/b"),
            ("cd a\nmake", "a"),
            ("cd a/b && cd .. && make", "a"),
            ("cd ./a/./b/../ && make", "a"),
            ("cd link && cd .. && make", ""),
            ("cd a && cd - && make", ""),
            ("cd -- 'c d' && make", "c d"),
            ("cd \"c d\" >/dev/null && make", "c d"),
            ("A=1 cd a && make", "a"),
            ("cd none || cd a; make", ""),
            ("cd a || exit 1; make", "a"),
            ("cd none && make", ""),
            ("test x && cd a && make", "a"),
            ("test x && cd a; make", ""),
            ("cd c\\ d && test x && cd ../a\nmake", "c d"),
            ("cd a && cd b && true; make", "a/b"),
            ("A=1 && cd a; make", "a"),
            ("make | cat && cd a; make", ""),
            ("cd a && make || true; make", "a"),
            ("cd \"$X\" && make", ""),
            ("cd a b && make", ""),
            ("cd && make", ""),
            ("cd -P a && make", ""),
            ("cd a | cat; make", ""),
            ("echo x | cd a; make", ""),
            ("CDPATH=/x cd a; make", ""),
            ("cd '~' && make", ""),
            ("echo cd a && make", ""),
        ] {
            let line = shell::read(text);
            let folders = of(text, &line, &root);
            let last = folders.last().expect("a command");
            assert_eq!(
                *last,
                root.join(expected).components().collect::<PathBuf>(),
                "{text}"
            );
        }
        assert!(of("(cd a)", &shell::read("(cd a)"), &root).is_empty());
    }
}
