//! No log: a build without the feature `tracing`.

use crate::store::StoreError;
use std::time::Duration;
use tenure_core::{Claim, Event, LockName};

pub(super) fn acquired(_: &LockName, _: &Claim, _: &[Event], _: Duration) {}

pub(super) fn released(_: &LockName, _: u64, _: u64) {}

pub(super) fn release_failed(_: &LockName, _: &str) {}

pub(super) fn renew_failed(_: &LockName, _: &StoreError) {}

pub(super) fn stop_requested(_: &LockName, _: u64) {}

pub(super) fn lost(_: &LockName, _: u64) {}
