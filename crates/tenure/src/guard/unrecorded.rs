//! No audit: a build without the feature `full` records nothing.

#![allow(clippy::unused_self, reason = "one surface with the audit")]

use super::error::AcquireError;
use super::{Options, Shared};
use crate::engine::Acquired;
use std::time::Duration;
use tenure_core::{Claim, Holder, LockName, Mode};

#[derive(Default)]
pub(super) struct Audit(());

impl Audit {
    pub(super) fn is_on(&self) -> bool {
        false
    }
}

/// Nobody reads it.
#[allow(dead_code, reason = "it is made as the audit wants it")]
pub(super) struct Behind {
    pub(super) holder: Option<Claim>,
    pub(super) waiting: usize,
}

#[derive(Debug, Clone)]
pub(super) struct Line;

impl Line {
    pub(super) fn of(_: &Shared, _: &LockName, _: &Holder) -> Option<Self> {
        None
    }

    pub(super) fn released(&self, _: Duration) {}

    pub(super) fn lost(&self, _: u64) {}
}

pub(super) fn acquired(_: &Shared, _: &LockName, _: &Acquired, _: Duration, _: Option<&Behind>) {}

pub(super) fn refused(
    _: &Shared,
    _: &LockName,
    _: (&Options, Mode),
    _: &AcquireError,
    _: Duration,
) {
}
