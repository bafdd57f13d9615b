//! `run --die-with-parent` and `--die-with PID`: Linux alone lets a process follow another one by a handle of it.

use crate::args::value::Follow;
use crate::failure::Failure;
use std::convert::Infallible;
use std::time::Duration;

/// Nothing is followed here, and so nothing ends.
pub(super) fn reason() -> Option<String> {
    None
}

/// Nothing is followed here.
pub(super) struct FollowTargets(Infallible);

pub(super) fn begin(follow: Follow, _: Duration) -> Result<Option<FollowTargets>, Failure> {
    // The caller named no process, so nothing is refused.
    if follow == Follow::Auto {
        return Ok(None);
    }
    Err(Failure::bad_arguments(
        "--die-with: only on Linux a run can follow the life of another process; leave the flag out",
    ))
}

impl FollowTargets {
    pub(super) fn watch(self) -> Result<(), Failure> {
        match self.0 {}
    }
}
