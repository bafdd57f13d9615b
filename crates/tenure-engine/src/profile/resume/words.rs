//! What people are told of a resume lock.

use crate::printed::{is_plain, quoted_for_unix};
use std::path::Path;
use tenure_core::{LockName, Process, StaleReason, Takeover};

/// The sentence about a lock that was taken over from a process.
pub fn takeover_text(name: &LockName, why: Takeover, from: Option<Process>) -> String {
    let pid = from.map_or_else(|| "unknown".to_owned(), |known| known.pid.to_string());
    match why {
        // Of a process that cannot be seen, nobody knows whether it runs.
        Takeover::Stale(StaleReason::Silent) => {
            format!("Removing stale lock for {name} (PID {pid} silent for longer than its ttl)")
        }
        Takeover::Stale(_) => {
            format!("Removing stale lock for {name} (PID {pid} no longer running)")
        }
        Takeover::Corrupt => format!("Replacing an unreadable lock for {name}"),
        Takeover::Active => format!(
            "Overriding the lock for {name} held by PID {pid}; two processes may be at work until \
             it notices"
        ),
    }
}

/// The command that removes a lock whose process cannot be seen from where it is wanted, as a
/// shell takes it.
pub fn override_command(storage: &Path, id: &str) -> String {
    let storage = quoted(&storage.to_string_lossy());
    format!("tenure --profile resume --dir {storage} force-release {id}")
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    if cfg!(windows) {
        quoted_for_windows(word)
    } else {
        quoted_for_unix(word)
    }
}

/// As `cmd` and PowerShell take it. No path can have a quote in it there.
fn quoted_for_windows(word: &str) -> String {
    if is_plain(word, r"\/._-+:") {
        return word.to_owned();
    }
    format!("\"{}\"", word.replace('"', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_with_a_quote_is_still_one_word() {
        assert_eq!(quoted_for_unix("/srv/a-b_c.d"), "/srv/a-b_c.d");
        assert_eq!(quoted_for_unix("/srv/it's here"), r"'/srv/it'\''s here'");
        assert_eq!(quoted_for_unix(""), "''");
        assert_eq!(quoted_for_windows(r"C:\locks\a-b_c.d"), r"C:\locks\a-b_c.d");
        assert_eq!(quoted_for_windows(r"C:\it's here"), r#""C:\it's here""#);
        assert_eq!(quoted_for_windows(""), r#""""#);
    }
}
