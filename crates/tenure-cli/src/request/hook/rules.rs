//! What an agent's call meets in the configuration: rules, as seen from the folder that the call is about.
//!
//! A configuration that cannot be used says no rule. What follows then depends on what it was meant to say, as far as
//! its lines show it: commands go on unless a line is closed, and edits are refused unless each rule for paths is open.
//! What becomes of the call, `command/hook` decides.

use crate::request::Surroundings;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tenure_engine::config::{Config, ConfigError, ConfigSearch};

/// A configuration cannot be used.
#[derive(Debug)]
pub(crate) struct Misread {
    /// The file, the line, and why.
    pub(crate) why: String,
    /// The file whose text is wrong, or that cannot be read.
    pub(crate) file: Option<PathBuf>,
    /// A search found another user's file. It has no rules for this caller, and cannot close anything.
    is_foreign: bool,
}

/// What a call is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum About {
    Commands,
    Paths,
}

impl Surroundings {
    /// The configuration that counts here.
    pub(crate) fn rules(&self) -> Result<Option<Arc<Config>>, Misread> {
        self.config().map_err(|failure| {
            let why = failure.message.clone();
            self.misread(why)
        })
    }

    fn misread(&self, why: String) -> Misread {
        let found = match self.variables.place.config_file() {
            Ok(Some(named)) => Config::named_at_once(&named),
            _ => Config::search(self.folder().ok()),
        };
        let error = found.and_then(ConfigSearch::all).err();
        Misread {
            why,
            is_foreign: matches!(error, Some(ConfigError::Untrusted { .. })),
            file: match error {
                Some(ConfigError::Syntax { path, .. } | ConfigError::Read { path, .. }) => {
                    Some(path.into())
                }
                _ => None,
            },
        }
    }
}

impl Misread {
    /// Where another user's file was found: the person's own rules, which decide then. A stranger's file opens nothing
    /// that they close.
    pub(crate) fn own(&self) -> Option<Arc<Config>> {
        let own = self.is_foreign.then(|| Config::search(None).ok());
        let own = own?.and_then(|found| found.config);
        Some(Arc::new(own.unwrap_or_default()))
    }

    /// Whether the rules of the file would have refused a call for a fault, as far as its lines say so.
    ///
    /// What they do not say is what a rule is that says nothing: open for commands, closed for paths. A file may be
    /// about any path in words that these lines do not show, so only rules that all say `open` open it.
    pub(crate) fn is_closed(&self, about: About) -> bool {
        // The configurations that are read are not larger.
        let text = self.file.as_deref().and_then(read_some).unwrap_or_default();
        let is_about_paths = |line: &str| line.starts_with('[') && heading(line) == "agent.path";
        let mut closed = about == About::Paths && !text.lines().map(str::trim).any(is_about_paths);
        // What the rule under the last header of its kind says.
        let mut rule: Option<bool> = None;
        for line in text.lines().map(str::trim) {
            if line.starts_with('[') {
                closed |= rule == Some(true);
                rule = match (heading(line).as_str(), about) {
                    ("agent.command", About::Commands) => Some(false),
                    ("agent.path", About::Paths) => Some(true),
                    _ => None,
                };
            } else if let (Some(rule), Some(value)) = (&mut rule, value_of(line, "on_error")) {
                *rule = value != "open";
            }
        }
        closed || rule == Some(true)
    }
}

fn read_some(file: &Path) -> Option<String> {
    let bytes = tenure_os::regular::bytes(file, 1 << 20).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The name in `[name]` or `[[name]]`.
fn heading(line: &str) -> String {
    let name = line.trim_start_matches('[').split(']').next();
    name.unwrap_or_default().split_whitespace().collect()
}

fn value_of<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(key)?.trim_start().strip_prefix('=')?;
    rest.trim_start()
        .trim_start_matches(['"', '\''])
        .split(['"', '\''])
        .next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_a_broken_file_say_what_its_rules_would_do() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("tenure.toml");
        for (text, commands, paths) in [
            ("", false, true),
            ("[lock.x]\nttll = 1\n", false, true),
            ("[[agent.path]]\nmtch = []\n", false, true),
            ("[[ agent.path ]]\non_error=\"open\"\nx\n", false, false),
            (
                "[[agent.path]]\non_error = 'open'\n[[agent.path]]\n",
                false,
                true,
            ),
            ("[[agent.command]]\nhow = 1\n", false, true),
            ("[[agent.command]]\non_error = \"closed\"\nx\n", true, true),
            (
                "[[agent.command]]\n[lock.x]\non_error = \"closed\"\n",
                false,
                true,
            ),
        ] {
            std::fs::write(&file, text).expect("a file");
            let misread = Misread {
                why: String::new(),
                file: Some(file.clone()),
                is_foreign: false,
            };
            assert_eq!(misread.is_closed(About::Commands), commands, "{text}");
            assert_eq!(misread.is_closed(About::Paths), paths, "{text}");
        }
    }
}
