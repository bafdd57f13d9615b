//! Wakes the runs that were asked to stop while they wait.
//!
//! A waiter sleeps in the kernel behind the claim before it, and looks at the list every ten seconds. A watch of the list
//! would tell it at once, and would cost each waiter one of the 128 that a user may have. So the caller that asks sends
//! SIGCONT, which does nothing to a process that runs and does not wait for a lock of tenure.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tenure_core::{Claim, Host, Kind};
use tenure_engine::process::{is_stopped, start_time};

/// Wakes the run of this waiting claim. Without proof that the process is that run, or the right to signal it, the run
/// learns of the request by its next look. A process that is stopped stays so.
pub(super) fn nudge(claim: &Claim, here: &Host) {
    let there = &claim.holder.host;
    let is_here = there.boot_id.is_some()
        && there.boot_id == here.boot_id
        && there.pid_namespace.is_some()
        && there.pid_namespace == here.pid_namespace;
    let Some(process) = claim.holder.process.filter(|_| is_here) else {
        return;
    };
    if claim.kind != Kind::Kernel || process.started.is_none() {
        return;
    }
    let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
    let Some(handle) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
        return;
    };
    // The number was taken by no other process before the handle was opened.
    if start_time(process.pid) != process.started || is_stopped(&process, there, here, true) {
        return;
    }
    let _ = pidfd_send_signal(handle, Signal::CONT);
}
