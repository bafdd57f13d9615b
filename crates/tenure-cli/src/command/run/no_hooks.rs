//! Hooks on Windows: there are none. `request` refuses the flags that ask for one before anything is touched.

use super::child_env::ChildEnv;
use crate::render::Reporter;
use std::ffi::OsString;
use std::time::Duration;

/// A hook and what bounds it.
pub(super) struct Hook<'a> {
    /// The flag that names it, for messages.
    pub(super) flag: &'static str,
    /// The line for a shell.
    pub(super) program: &'a str,
    /// How long it may take.
    #[allow(dead_code, reason = "one surface with the hooks of Unix")]
    pub(super) grace: Duration,
    /// Whether a signal that asks the run to stop ends it at once.
    #[allow(dead_code, reason = "one surface with the hooks of Unix")]
    pub(super) yields: bool,
}

impl Hook<'_> {
    /// Says that it is not run.
    pub(super) fn run(
        &self,
        _: &ChildEnv,
        _: &[(&str, OsString)],
        _: &mut dyn FnMut(),
        reporter: &mut Reporter,
    ) {
        let Self { flag, program, .. } = self;
        reporter.warn(format!("{flag} {program:?} is not run on Windows"));
    }
}
