//! Whether git would commit a new file: whether it lies in a work tree, and no rule of git's ignores it.
//!
//! It reads the files that git reads: `.gitignore` from the root of the work tree down to the file, `info/exclude`
//! of the repository, and the user's own file of rules. It starts no git. What git tracks already, by an earlier
//! `git add`, is not looked at.

use super::{GIT, common_folder, core_setting};
use crate::os;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The file by which git is told what to leave alone in a folder.
pub(crate) const IGNORE_FILE: &str = ".gitignore";

/// The rules of one repository that no work tree has, below the common folder.
const EXCLUDE: &str = "info/exclude";

/// How many bytes of rules and settings are read in all.
const RULES_BYTES_MAX: u64 = 1 << 20;

/// What git would do with a new file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It lies in no work tree, or in git's own folder.
    Unseen,
    /// A rule ignores it.
    Ignored,
    /// `git add --all` takes it into the work tree at this path.
    Committed(PathBuf),
    /// The rules are too long to be read.
    Unknown,
}

/// The root of the work tree in which a folder lies, by its path without links. `None` for git's own folder, of
/// which git commits nothing.
pub fn work_tree(folder: &Path) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    for folder in folder.ancestors() {
        if folder.file_name().is_some_and(|name| name == GIT) {
            return None;
        }
        if folder.join(GIT).symlink_metadata().is_ok() {
            return Some(folder.to_owned());
        }
    }
    None
}

/// What git would do with a new file of this name in a folder, which is there.
pub fn fate_of(folder: &Path, file: &str) -> Fate {
    let Some(tree) = work_tree(folder) else {
        return Fate::Unseen;
    };
    let Ok(folder) = folder.canonicalize() else {
        return Fate::Unseen;
    };
    let path = folder.join(file);
    let Ok(below) = path.strip_prefix(&tree) else {
        return Fate::Unseen;
    };
    let names: Vec<String> = below
        .components()
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect();
    let mut budget = Budget(RULES_BYTES_MAX);
    fate_by(&mut budget, &tree, &names).unwrap_or(Fate::Unknown)
}

/// The same by the names on the way from the root of the work tree. `None` if the rules are too long.
fn fate_by(budget: &mut Budget, tree: &Path, names: &[String]) -> Option<Fate> {
    let mut sources = outer_rules(budget, tree)?;
    let mut at = tree.to_owned();
    for (depth, name) in names.iter().enumerate() {
        // The rules beside a name count for more than those further up.
        sources.push(Source {
            depth,
            // Git follows no link of this name, and no other one in the tree.
            rules: rules_in(budget, &at.join(IGNORE_FILE), false)?,
        });
        let is_folder = depth + 1 < names.len();
        let path = names.get(..=depth).unwrap_or_default();
        let mut said = sources
            .iter()
            .rev()
            .filter_map(|source| source.says(path, is_folder));
        // What is in an ignored folder is ignored, whatever other rules say.
        if said.next() == Some(true) {
            return Some(Fate::Ignored);
        }
        at.push(name);
    }
    Some(Fate::Committed(tree.to_owned()))
}

/// The rules that stand in no folder of the work tree; those of the repository count for more.
fn outer_rules(budget: &mut Budget, tree: &Path) -> Option<Vec<Source>> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let settings = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| home.as_ref().map(|home| home.join(".config")))
        .map(|folder| folder.join("git"));
    let common = common_folder(tree).ok();
    let files = [
        common.as_ref().map(|common| common.join("config")),
        home.as_ref().map(|home| home.join(".gitconfig")),
        settings.as_ref().map(|folder| folder.join("config")),
    ];
    let mut named = None;
    for file in files.into_iter().flatten() {
        let text = budget.text_of(&file, true)?;
        if let Some(setting) = core_setting(&text, "excludesfile") {
            named = Some(match (setting.strip_prefix("~/"), &home) {
                (Some(rest), Some(home)) => home.join(rest),
                _ => PathBuf::from(setting),
            });
            break;
        }
    }
    let users = named.or_else(|| settings.map(|folder| folder.join("ignore")));
    let of_repository = common.map(|common| common.join(EXCLUDE));
    [users, of_repository]
        .into_iter()
        .flatten()
        .map(|file| {
            let rules = rules_in(budget, &file, true)?;
            Some(Source { depth: 0, rules })
        })
        .collect()
}

/// The rules of one file.
struct Source {
    /// How many folders lie between the root of the work tree and the file.
    depth: usize,
    rules: Vec<Rule>,
}

impl Source {
    /// What the last rule that fits says: whether git ignores it. `None` if none fits.
    fn says(&self, path: &[String], is_folder: bool) -> Option<bool> {
        let below = path.get(self.depth..)?;
        let fitting = self.rules.iter().rev();
        let mut fitting = fitting.filter(|rule| rule.fits(below, is_folder));
        fitting.next().map(|rule| rule.ignores)
    }
}

/// One line of such a file.
struct Rule {
    ignores: bool,
    for_folders: bool,
    /// The parts between slashes. One that begins nowhere certain begins with `**`.
    parts: Vec<Part>,
}

/// What one part of a path has to be.
enum Part {
    /// `**`: any number of parts.
    Any,
    /// One part, by its characters.
    Like(Vec<Piece>),
}

/// What one character has to be.
enum Piece {
    /// `*`: any number of them.
    Any,
    /// `?`.
    One,
    Char(char),
    /// `[a-z]`, or what is not of that kind.
    Of {
        ranges: Vec<(char, char)>,
        is_meant: bool,
    },
}

/// How many bytes may still be read.
struct Budget(u64);

impl Budget {
    /// The text of a regular file; nothing where there is none. `None` if there is more of it than may be read.
    fn text_of(&mut self, file: &Path, through_links: bool) -> Option<String> {
        let Ok(file) = os::open_by_path(file, through_links) else {
            return Some(String::new());
        };
        if !os::facts(&file).is_ok_and(|facts| facts.is_regular()) {
            return Some(String::new());
        }
        let mut bytes = Vec::new();
        let file = std::fs::File::from(file);
        if file.take(self.0 + 1).read_to_end(&mut bytes).is_err() {
            return Some(String::new());
        }
        let read = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.0 = self.0.checked_sub(read)?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// The rules of one file. `None` if they are too long.
fn rules_in(budget: &mut Budget, file: &Path, through_links: bool) -> Option<Vec<Rule>> {
    let text = budget.text_of(file, through_links)?;
    Some(text.lines().filter_map(Rule::of).collect())
}

impl Rule {
    fn of(line: &str) -> Option<Self> {
        let bare = line.trim_end_matches(['\r', ' ']);
        // A space that is escaped belongs to the name.
        let line = match bare.strip_suffix('\\') {
            Some(_) if bare.len() < line.len() => line.get(..=bare.len())?,
            _ => bare,
        };
        if line.is_empty() || line.starts_with('#') {
            return None;
        }
        let (line, ignores) = match line.strip_prefix('!') {
            Some(rest) => (rest, false),
            None => (line, true),
        };
        let (line, for_folders) = match line.strip_suffix('/') {
            Some(rest) => (rest, true),
            None => (line, false),
        };
        let begins = line.contains('/');
        let line = line.strip_prefix('/').unwrap_or(line);
        if line.is_empty() {
            return None;
        }
        let mut parts = Vec::new();
        if !begins {
            parts.push(Part::Any);
        }
        for part in line.split('/') {
            parts.push(match part {
                "**" => Part::Any,
                part => Part::Like(pieces(part)),
            });
        }
        // What is in a folder, and not the folder itself.
        if line.ends_with("/**") {
            parts.push(Part::Like(vec![Piece::Any]));
        }
        Some(Self {
            ignores,
            for_folders,
            parts,
        })
    }

    fn fits(&self, path: &[String], is_folder: bool) -> bool {
        (is_folder || !self.for_folders)
            && fit(
                &self.parts,
                path,
                |part| matches!(part, Part::Any),
                |part, name| match part {
                    Part::Any => true,
                    Part::Like(pieces) => {
                        let name: Vec<char> = name.chars().collect();
                        fit(
                            pieces,
                            &name,
                            |piece| matches!(piece, Piece::Any),
                            |piece, c| piece.fits(*c),
                        )
                    }
                },
            )
    }
}

impl Piece {
    fn fits(&self, c: char) -> bool {
        match self {
            Self::Any | Self::One => true,
            Self::Char(own) => *own == c,
            Self::Of { ranges, is_meant } => {
                ranges
                    .iter()
                    .any(|(first, last)| (*first..=*last).contains(&c))
                    == *is_meant
            }
        }
    }
}

fn pieces(part: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = part.chars();
    while let Some(c) = rest.next() {
        pieces.push(match c {
            '*' => Piece::Any,
            '?' => Piece::One,
            '\\' => Piece::Char(rest.next().unwrap_or('\\')),
            '[' => match class(rest.as_str()) {
                Some((piece, behind)) => {
                    rest = behind.chars();
                    piece
                }
                None => Piece::Char('['),
            },
            other => Piece::Char(other),
        });
    }
    pieces
}

/// A class of characters up to its `]`, and what stands behind it.
fn class(text: &str) -> Option<(Piece, &str)> {
    let negated = text.strip_prefix(['!', '^']);
    let mut rest = negated.unwrap_or(text).chars().peekable();
    let mut ranges = Vec::new();
    let mut is_first = true;
    loop {
        let mut first = rest.next()?;
        if first == ']' && !is_first {
            break;
        }
        is_first = false;
        if first == '\\' {
            first = rest.next()?;
        }
        let mut last = first;
        if rest.peek() == Some(&'-') {
            let mut ahead = rest.clone();
            ahead.next();
            if ahead.peek().is_some_and(|c| *c != ']') {
                last = ahead.next()?;
                rest = ahead;
            }
        }
        ranges.push((first, last));
    }
    let behind: usize = rest.map(char::len_utf8).sum();
    let piece = Piece::Of {
        ranges,
        is_meant: negated.is_none(),
    };
    Some((piece, text.get(text.len() - behind..)?))
}

/// Whether items fit a pattern in which some stand for any number of them. As with `fits` of the configuration,
/// only the last of those is tried again, so no pattern keeps a reader busy.
fn fit<P, T>(
    pattern: &[P],
    items: &[T],
    is_any: impl Fn(&P) -> bool,
    fits: impl Fn(&P, &T) -> bool,
) -> bool {
    let (mut at, mut item) = (0, 0);
    // Behind the last `any`, and the item at which what follows it is tried.
    let mut again: Option<(usize, usize)> = None;
    while let Some(next) = items.get(item) {
        match pattern.get(at) {
            Some(any) if is_any(any) => {
                at += 1;
                again = Some((at, item));
            }
            Some(one) if fits(one, next) => {
                at += 1;
                item += 1;
            }
            _ => match again {
                Some((behind, tried)) => {
                    again = Some((behind, tried + 1));
                    (at, item) = (behind, tried + 1);
                }
                None => return false,
            },
        }
    }
    pattern.get(at..).unwrap_or_default().iter().all(is_any)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    /// Git itself says what it ignores, and has the same answer.
    #[test]
    #[allow(clippy::print_stdout, reason = "what is skipped is said")]
    fn what_git_ignores_is_ignored_and_nothing_else() {
        if std::env::var_os("TENURE_TESTS_UNDER_WINE").is_some() {
            println!("skipped: there is no git under Wine");
            return;
        }
        let scratch = tempfile::tempdir().expect("a folder");
        let tree = scratch.path().canonicalize().expect("its own path");
        let git = |words: &[&str]| {
            let mut git = Command::new("git");
            git.current_dir(&tree).args(words);
            git.env("HOME", &tree).env("GIT_CONFIG_NOSYSTEM", "1");
            git.status().expect("git").success()
        };
        assert!(git(&["init", "-q"]));
        fs::create_dir_all(tree.join("a/b/locks")).expect("folders");
        let cases: [(&str, &[&str], &str); 20] = [
            ("", &["*.tenure"], ""),
            ("", &["locks"], ""),
            ("", &["locks/"], ""),
            ("", &["/locks"], ""),
            ("", &["/a"], ""),
            ("", &["a/b/locks"], ""),
            ("", &["b/locks"], ""),
            ("", &["**/locks"], ""),
            ("", &["a/**"], ""),
            ("", &["a/**/locks/x.tenure"], ""),
            ("", &["a/*/x.tenure"], ""),
            ("", &["*", "!a", "!*.tenure"], ""),
            ("", &["*", "!*/", "!*.tenure"], ""),
            ("", &["[a-w].tenure"], ""),
            ("", &["[!a-w].tenure"], ""),
            ("", &["?.tenure "], ""),
            ("", &["# x.tenure", "\\x.tenure"], ""),
            ("a/b/locks", &["*"], ""),
            ("a/b", &["/x.tenure"], ""),
            ("a/b/locks", &["!x.tenure"], "*.tenure"),
        ];
        for (folder, rules, exclude) in cases {
            let file = tree.join(folder).join(IGNORE_FILE);
            fs::write(&file, rules.join("\n")).expect("rules");
            fs::write(tree.join(".git").join(EXCLUDE), exclude).expect("rules");
            let locks = tree.join("a/b/locks");
            let expected = git(&["check-ignore", "-q", "a/b/locks/x.tenure"]);
            let fate = fate_of(&locks, "x.tenure");
            let found = match &fate {
                Fate::Ignored => true,
                Fate::Committed(root) => {
                    assert_eq!(root, &tree);
                    false
                }
                Fate::Unseen | Fate::Unknown => panic!("it lies in a work tree"),
            };
            assert_eq!(found, expected, "{folder} {rules:?} {exclude}");
            fs::write(&file, "").expect("no rules");
        }
        assert_eq!(fate_of(&tree.join(".git"), "x.tenure"), Fate::Unseen);
    }

    #[cfg(unix)]
    #[test]
    fn rules_are_read_through_no_link_and_up_to_a_limit() {
        let scratch = tempfile::tempdir().expect("a folder");
        let tree = scratch.path().canonicalize().expect("its own path");
        fs::create_dir_all(tree.join(".git")).expect("a work tree");
        fs::create_dir_all(tree.join("a/b/locks")).expect("folders");
        let (rules, link) = (tree.join("rules"), tree.join("a/b").join(IGNORE_FILE));
        fs::write(&rules, "*").expect("rules");
        std::os::unix::fs::symlink(&rules, &link).expect("a link");
        let locks = tree.join("a/b/locks");
        assert_eq!(fate_of(&locks, "x.tenure"), Fate::Committed(tree.clone()));
        fs::write(tree.join(IGNORE_FILE), vec![b'#'; 2 << 20]).expect("a long file");
        assert_eq!(fate_of(&locks, "x.tenure"), Fate::Unknown);
    }
}
