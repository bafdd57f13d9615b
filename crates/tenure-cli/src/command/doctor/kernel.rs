//! What the kernel gives of what tenure uses. Each is asked for by the call that uses it, and changes nothing.

use crate::render::doctor::{Finding, Report, Status};
use tenure_engine::process::Identity;

/// The kernel, for people.
pub(super) fn name() -> String {
    let uname = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    format!("{} {}", text(uname.sysname()), text(uname.release()))
}

/// What is missing, and what follows from that.
pub(super) fn look(report: &mut Report) {
    let missing = missing();
    if missing.is_empty() {
        report.ok(Finding::Kernel, "it gives all that tenure uses");
        return;
    }
    let (said, fix): (Vec<_>, Vec<_>) = missing.into_iter().unzip();
    report.add(
        Finding::Kernel,
        Status::Note,
        &said.join("; "),
        Some(fix.join("; ")),
    );
}

fn missing() -> Vec<(&'static str, &'static str)> {
    let mut missing = Vec::new();
    let host = Identity::current().host;
    if host.boot_id.is_none() {
        missing.push((
            "no boot id can be read, so what a restart left behind is found by its age alone",
            "mount /proc in this container",
        ));
    }
    if host.pid_namespace.is_none() {
        missing.push((
            "the PID namespace is not known, so recorded processes cannot be looked at",
            "mount /proc in this container",
        ));
    }
    #[cfg(target_os = "linux")]
    missing.extend(of_linux());
    missing
}

#[cfg(target_os = "linux")]
fn of_linux() -> Vec<(&'static str, &'static str)> {
    use rustix::fs::inotify;
    use rustix::process::{PidfdFlags, getpid, pidfd_open};
    let mut missing = Vec::new();
    if pidfd_open(getpid(), PidfdFlags::empty()).is_err() {
        missing.push((
            "no handles on processes (pidfd_open), so ends of processes are looked for in pauses",
            "Linux 5.3 or newer, and a container that allows the call",
        ));
    }
    if rustix::process::child_subreaper().is_err() {
        missing.push((
            "no adoption of descendants (PR_SET_CHILD_SUBREAPER), so daemons of a command may outlive it",
            "Linux 3.4 or newer, and a container that allows the call",
        ));
    }
    if inotify::init(inotify::CreateFlags::CLOEXEC).is_err() {
        missing.push((
            "no watch on files can be had (inotify), so changes are looked for in pauses",
            "sudo sysctl fs.inotify.max_user_instances=1024",
        ));
    }
    if hides_processes() {
        missing.push((
            "/proc hides processes of other users (hidepid), so each of them that exists counts as alive",
            "sudo mount -o remount,hidepid=0 /proc, where users share locks",
        ));
    }
    missing
}

/// Whether this process is not shown those of other users.
#[cfg(target_os = "linux")]
fn hides_processes() -> bool {
    let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mounts = String::from_utf8_lossy(&mounts);
    let mut of_proc = mounts
        .lines()
        .filter(|line| line.split(' ').nth(4) == Some("/proc"));
    // Of several mounts the last one is seen.
    let options = of_proc.next_back().and_then(|line| line.rsplit(' ').next());
    let hides = |option: &str| {
        option
            .strip_prefix("hidepid=")
            .is_some_and(|how| !matches!(how, "0" | "off"))
    };
    let is_root = rustix::process::geteuid().is_root();
    !is_root && options.is_some_and(|options| options.split(',').any(hides))
}
