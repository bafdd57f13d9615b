//! `run --die-with-parent` and `--die-with PID`: the run follows the life of another process.
//!
//! A harness ends a job by SIGTERM and then SIGKILL to its process group. A supervisor in that group is killed, and what it
//! supervised goes on with the lock. So the process that the harness has started is only a *relay* here. Before it touches
//! anything it makes a copy of itself, the *guardian*, in a session of its own. The guardian takes the lock, supervises the
//! command, and gives the lock back, as every run does.
//!
//! - The guardian follows the relay and the process that was named. When one of them ends, however it ends, the run ends
//!   as if SIGTERM had come: a wait leaves the line, the work is asked to end, and is killed after its grace.
//! - The relay passes signals on, and ends as the guardian does. Right before an orderly end the guardian writes a last word
//!   into a pipe. Without that word it was killed, or left its work behind at a second Ctrl-C. Then its children come to the
//!   relay, which ends them: after a kill with the grace, after a Ctrl-C at once.
//! - A process that had children before (a shell that has become tenure) would get their orphans as well. There one more relay
//!   stands between, which has none; the first one only passes signals on.
//!
//! Both hold a handle (pidfd) of what they follow, so no other process that gets its number is taken for it. The handle is of
//! the process: the end of the thread that has started it means nothing.
//!
//! **What is not guaranteed.** If relay and guardian are killed at the same instant, nobody is left to end the work. What has
//! inherited the liveness lock then keeps the lock held, as for a run without these flags.

use crate::args::value::Follow;
use crate::exit::{Ending, Exit, leave_at_once, speak_last_word_to};
use crate::failure::Failure;
use crate::render::say;
use crate::signals::{self, Forked, Signals};
use crate::supervise::end_all_children;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, kill_process, pidfd_open, waitid,
};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::time::Duration;
use tenure_engine::caller;
use tenure_os::clock::nap;
use tenure_os::process::{self, children};

/// How often something is looked at that no descriptor tells of.
const LOOK: Duration = Duration::from_millis(5);

/// What has ended that the run follows.
static ENDED: OnceLock<String> = OnceLock::new();

/// Why the run ends, in words, if the end of another process is the reason.
pub(super) fn reason() -> Option<String> {
    let what = ENDED.get()?;
    Some(format!("{what}, and this run ends with it"))
}

/// What a guardian follows.
pub(super) struct FollowTargets {
    /// Each with the words for its end.
    handles: Vec<(OwnedFd, String)>,
}

/// Makes the guardian, in which this returns. The relay stays in here, and ends with the guardian. `None` where a caller that
/// named no process has none that can be followed.
pub(super) fn begin(follow: Follow, grace: Duration) -> Result<Option<FollowTargets>, Failure> {
    let (named, flag, what) = match follow {
        Follow::Parent => (parent()?, "--die-with-parent", "its parent"),
        Follow::Process(number) => (
            of_number(number)?,
            "--die-with",
            "the process that it follows",
        ),
        Follow::Auto => match job() {
            Some(job) => (job, "--die-with", "what has called it"),
            None => return Ok(None),
        },
    };
    let number = named.as_raw_pid();
    let handle = open(named, flag)?;
    // The number may have gone to another process before the handle was there.
    let is_it = process::parent() == u32::try_from(number).ok();
    if follow == Follow::Parent && !is_it {
        return Err(gone(number, flag));
    }
    let ours = || "the process that was started has ended".to_owned();
    let mut handles = vec![
        (handle, format!("{what} (PID {number}) has ended")),
        (open(getpid(), flag)?, ours()),
    ];
    if !children().is_empty() {
        match signals::fork().map_err(|error| cannot(&error))? {
            Forked::Parent(inner) => relay(inner, None, &handles),
            Forked::Child => handles.push((open(getpid(), flag)?, ours())),
        }
    }
    let (hears, speaks) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|errno| cannot(&errno.into()))?;
    // Any number but zero switches it on.
    let _ = rustix::process::set_child_subreaper(Some(Pid::INIT));
    match signals::fork().map_err(|error| cannot(&error))? {
        Forked::Parent(guardian) => {
            drop(speaks);
            relay(guardian, Some((hears, grace)), &handles)
        }
        Forked::Child => {
            // Of a process that leads no group this does not fail.
            let _ = rustix::process::setsid();
            speak_last_word_to(speaks);
            Ok(Some(FollowTargets { handles }))
        }
    }
}

/// The direct parent. PID 1 is a parent that many processes get only when theirs has ended.
fn parent() -> Result<Pid, Failure> {
    let parent = process::parent();
    let parent = parent.and_then(|number| i32::try_from(number).ok().and_then(Pid::from_raw));
    match parent {
        Some(parent) if parent != Pid::INIT => Ok(parent),
        Some(_) => Err(Failure::bad_arguments(
            "--die-with-parent: the parent is PID 1, which the parent of this process has become, or which never ends; \
             leave the flag out",
        )),
        None => Err(Failure::bad_arguments(
            "--die-with-parent: the parent is in another PID namespace and cannot be seen",
        )),
    }
}

/// What a hold of this caller would follow: the host of an agent, the job of a CI system. `None` where that cannot be seen
/// from here, as from another PID namespace.
fn job() -> Option<Pid> {
    let chosen = caller::job_of_caller().ok()?;
    of_number(chosen.process.pid).ok()
}

fn of_number(number: u32) -> Result<Pid, Failure> {
    let pid = i32::try_from(number).ok().and_then(Pid::from_raw);
    match pid {
        Some(Pid::INIT) | None => Err(Failure::bad_arguments(format!(
            "--die-with {number}: a run follows a process that ends, with a number from 2 on"
        ))),
        Some(pid) if pid == getpid() => Err(Failure::bad_arguments(format!(
            "--die-with {number}: that is this very process"
        ))),
        Some(pid) => Ok(pid),
    }
}

fn open(pid: Pid, flag: &str) -> Result<OwnedFd, Failure> {
    pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| match errno {
        rustix::io::Errno::SRCH => gone(pid.as_raw_pid(), flag),
        errno => cannot(&errno.into()),
    })
}

fn gone(number: i32, flag: &str) -> Failure {
    Failure::bad_arguments(format!(
        "{flag}: PID {number} is not there, so the run would end at once"
    ))
}

fn cannot(error: &std::io::Error) -> Failure {
    Failure::new(
        Exit::General,
        "CANNOT_FOLLOW",
        format!("the run cannot follow another process: {error}"),
    )
}

impl FollowTargets {
    /// Has the run end when one of them has. Called once signals are collected.
    pub(super) fn watch(self) -> Result<(), Failure> {
        let watch = move || {
            let mut polled: Vec<_> = (self.handles.iter())
                .map(|(handle, _)| PollFd::new(handle, PollFlags::IN))
                .collect();
            while poll(&mut polled, None).is_err() {
                nap(LOOK);
            }
            let ended = polled.iter().position(|fd| !fd.revents().is_empty());
            if let Some((_, what)) = ended.and_then(|index| self.handles.get(index)) {
                let _ = ENDED.set(what.clone());
            }
            // The thread says nothing itself: what it writes would disturb the timer that wakes the main thread.
            signals::arrive(Signal::TERM.as_raw());
        };
        let thread = std::thread::Builder::new().name("tenure-follow".to_owned());
        signals::for_a_thread(|| thread.spawn(watch))
            .map(drop)
            .map_err(|error| cannot(&error))
    }
}

/// Passes signals on to a process until that has ended, and ends in the same way. With the other end of its last word, this
/// process ends what was left behind without that word.
fn relay(to: Pid, last_word: Option<(OwnedFd, Duration)>, followed: &[(OwnedFd, String)]) -> ! {
    let signals = Signals::collect();
    if let Ok(signals) = signals {
        signals.pass_on(true);
    }
    loop {
        if let Some(ending) = ended(to) {
            if let Some((hears, grace)) = last_word
                && !matches!(rustix::io::read(&hears, &mut [0]), Ok(1))
            {
                // A process that ended by itself without a word was told to end at once.
                let is_killed = matches!(ending, Ending::DieBy(_));
                let grace = if is_killed { grace } else { Duration::ZERO };
                end_what_is_left(grace, signals.as_ref().ok().copied(), followed);
            }
            leave_at_once(ending);
        }
        let Ok(signals) = &signals else {
            nap(LOOK);
            continue;
        };
        let descriptor = signals.descriptor();
        let _ = poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None);
        while let Some(arrived) = signals.next() {
            match arrived.number {
                libc::SIGCHLD => {}
                // A session without a terminal is not stopped by one.
                libc::SIGTSTP => signals::stop_self(libc::SIGTSTP),
                number => {
                    if let Some(signal) = signals::signal_of(number) {
                        let _ = kill_process(to, signal);
                    }
                }
            }
        }
    }
}

/// How a process of ours has ended, if it has.
fn ended(pid: Pid) -> Option<Ending> {
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    match retry_on_intr(|| waitid(WaitId::Pid(pid), ended)) {
        Ok(None) => None,
        Ok(Some(status)) => Some(match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Ending::Command(code),
            (None, number) => Ending::DieBy(number.unwrap_or(libc::SIGKILL)),
        }),
        Err(_) => Some(Ending::DieBy(libc::SIGKILL)),
    }
}

/// Ends what a guardian has left behind. A signal, or the end of a process that is followed, ends the grace.
fn end_what_is_left(grace: Duration, signals: Option<Signals>, followed: &[(OwnedFd, String)]) {
    let hurries = || {
        let mut polled: Vec<_> = (followed.iter())
            .map(|(handle, _)| PollFd::new(handle, PollFlags::IN))
            .collect();
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let has_ended = poll(&mut polled, Some(&at_once)).is_ok_and(|ready| ready > 0);
        let arrived = signals.and_then(Signals::next);
        has_ended || arrived.is_some_and(|arrived| signals::ends(arrived.number))
    };
    let left = end_all_children(grace, hurries);
    if !left.is_empty() {
        let numbers: Vec<_> = left
            .iter()
            .map(|pid| pid.as_raw_pid().to_string())
            .collect();
        say(&format!(
            "SIGKILL has not ended PID {} (another user's, or in a call of the kernel that cannot be interrupted); \
             what has the lock keeps it until it is gone",
            numbers.join(", ")
        ));
    }
}
