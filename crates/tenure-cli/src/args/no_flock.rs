//! The words of `flock` on Windows, where it is refused: nothing is read of them.

/// What `tenure flock --help` says.
pub(crate) fn help(name: &str) -> String {
    format!("{name} is not there on Windows: locks of flock(1) are Unix's own.\n")
}
