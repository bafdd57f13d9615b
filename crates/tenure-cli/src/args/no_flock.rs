//! The words of `flock` on Windows, where it is refused: none of them is read.

/// An option as the help describes it.
pub(crate) struct OptionHelp {
    pub(crate) words: &'static [&'static str],
    pub(crate) value: &'static str,
    pub(crate) about: &'static str,
    pub(crate) behind_file: bool,
}

/// Empty: this build has no `flock`.
pub(crate) const OPTIONS: [OptionHelp; 0] = [];

/// The ways to call it: none.
pub(crate) const USAGES: [&str; 0] = [];

/// Why there is nothing else to know.
pub(crate) const NOTES: [&str; 1] =
    ["It is not there on Windows: locks of flock(1) are Unix's own."];

/// What `tenure flock --help` says.
pub(crate) fn help(name: &str) -> String {
    format!("{name} is not there on Windows: locks of flock(1) are Unix's own.\n")
}

/// What `tenure flock -h` says.
pub(crate) fn brief(name: &str) -> String {
    help(name)
}

/// Whether an option has its value in the word that follows it.
pub(crate) fn takes_next_word(_: &str) -> bool {
    false
}
