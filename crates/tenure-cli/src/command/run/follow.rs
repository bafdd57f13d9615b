//! `run --die-with-parent` and `--die-with PID`: the run follows the life of another process.
//!
//! A harness ends a job by SIGTERM and then SIGKILL to its process group. A supervisor in that group is killed, and what it
//! supervised goes on with the lock. So the process that the harness has started is only a *relay* here. Before it touches
//! anything it makes a copy of itself, the *guardian*, in a session of its own. The guardian takes the lock, supervises the
//! command, and gives the lock back, as every run does.
//!
//! - The guardian follows the relay and the process that was named. When one of them ends, however it ends, the run ends
//!   as if SIGTERM had come: a wait leaves the line, the work is asked to end, and is killed after its grace.
//! - The relay passes signals on, and ends as the guardian does. If the guardian is killed, what it has left comes to the
//!   relay, which ends it in the same way.
//!
//! Both hold a handle (pidfd) of what they follow, so no other process that gets its number is taken for it. The handle is of
//! the process: the end of the thread that has started it means nothing.
//!
//! **What is not guaranteed.** If relay and guardian are killed at the same instant, nobody is left to end the work. What has
//! inherited the liveness lock then keeps the lock held, as for a run without these flags.

use crate::exit::{Ending, leave_at_once};
use crate::failure::Failure;
use crate::render::say;
use crate::request::Follow;
use crate::signals::{self, Forked, Signals};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, kill_process, pidfd_open, waitid,
};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tenure_engine::clock::{instant, nap, since};
use tenure_engine::process::{self, children};

/// How often the relay looks at what a killed guardian has left.
const LOOK: Duration = Duration::from_millis(5);

/// How long after SIGKILL the relay waits for processes that it may not end, or that the kernel keeps.
const AFTER_KILL: Duration = Duration::from_secs(2);

/// What a guardian follows.
pub(super) struct Followed {
    /// In the order in which they are named in a message.
    handles: Vec<(OwnedFd, String)>,
}

/// Makes the guardian, in which this returns. The relay stays in here, and ends with the guardian.
pub(super) fn begin(follow: Follow, grace: Duration) -> Result<Followed, Failure> {
    let (named, what) = match follow {
        Follow::Parent => (parent()?, "its parent"),
        Follow::Process(number) => (of_number(number)?, "the process that it follows"),
    };
    let number = named.as_raw_pid();
    let handle = open(named)?;
    // Its number may have gone to another process before the handle was there.
    if follow == Follow::Parent
        && process::parent() != Some(named.as_raw_nonzero().get().unsigned_abs())
    {
        return Err(gone(number));
    }
    let own = open(getpid())?;
    // What this process had started before (a shell that has become tenure) is none of the work.
    let before: BTreeSet<u32> = children().into_iter().collect();
    // Any number but zero switches it on.
    let _ = rustix::process::set_child_subreaper(Some(Pid::INIT));
    match signals::fork().map_err(|error| cannot(&error))? {
        Forked::Parent(guardian) => relay(guardian, &before, grace),
        Forked::Child => {
            // Of a process that leads no group this does not fail.
            let _ = rustix::process::setsid();
            Ok(Followed {
                handles: vec![
                    (handle, format!("{what} (PID {number}) has ended")),
                    (own, "the process that was started has ended".to_owned()),
                ],
            })
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

fn open(pid: Pid) -> Result<OwnedFd, Failure> {
    pidfd_open(pid, PidfdFlags::empty()).map_err(|errno| match errno {
        rustix::io::Errno::SRCH => gone(pid.as_raw_pid()),
        errno => cannot(&errno.into()),
    })
}

fn gone(number: i32) -> Failure {
    Failure::bad_arguments(format!(
        "--die-with: PID {number} is not there, so the run would end at once"
    ))
}

fn cannot(error: &std::io::Error) -> Failure {
    Failure::bad_arguments(format!(
        "--die-with: this system does not let a run follow a process ({error})"
    ))
}

impl Followed {
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
            signals::arrive(Signal::TERM.as_raw());
            if let Some((_, what)) = ended.and_then(|index| self.handles.get(index)) {
                say(&format!("{what}; this run ends with it"));
            }
        };
        let thread = std::thread::Builder::new().name("tenure-follow".to_owned());
        signals::for_a_thread(|| thread.spawn(watch))
            .map(drop)
            .map_err(|error| cannot(&error))
    }
}

/// Passes signals on to the guardian until it has ended, and ends in the same way.
fn relay(guardian: Pid, before: &BTreeSet<u32>, grace: Duration) -> ! {
    let signals = Signals::collect();
    if let Ok(signals) = signals {
        signals.pass_on(true);
    }
    loop {
        if let Some(ending) = ended(guardian) {
            if let Ending::DieBy(_) = ending {
                end_what_is_left(before, grace);
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
                    if let Some(signal) = Signal::from_named_raw(number) {
                        let _ = kill_process(guardian, signal);
                    }
                }
            }
        }
    }
}

/// How the guardian has ended, if it has.
fn ended(guardian: Pid) -> Option<Ending> {
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    match retry_on_intr(|| waitid(WaitId::Pid(guardian), ended)) {
        Ok(None) => None,
        Ok(Some(status)) => Some(match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Ending::Command(code),
            (None, number) => Ending::DieBy(number.unwrap_or(libc::SIGKILL)),
        }),
        Err(_) => Some(Ending::DieBy(libc::SIGKILL)),
    }
}

/// Ends what a killed guardian has left: its children have come to this process, and so does each one that loses its
/// parent meanwhile. No other process has the number of a child that was not collected.
fn end_what_is_left(before: &BTreeSet<u32>, grace: Duration) {
    let (began, mut asked) = (instant(), BTreeSet::new());
    loop {
        let is_late = since(began) >= grace;
        let left = left(before);
        if left.is_empty() {
            return;
        }
        if since(began) >= grace + AFTER_KILL {
            let numbers: Vec<_> = left
                .iter()
                .map(|pid| pid.as_raw_pid().to_string())
                .collect();
            say(&format!(
                "SIGKILL has not ended PID {} (another user's, or in a call of the kernel that cannot be interrupted); \
                 the lock stays held until it is gone",
                numbers.join(", ")
            ));
            return;
        }
        for child in left {
            if is_late {
                let _ = kill_process(child, Signal::KILL);
            } else if asked.insert(child.as_raw_pid()) {
                let _ = kill_process(child, Signal::TERM);
                // A stopped process cannot answer.
                let _ = kill_process(child, Signal::CONT);
            }
        }
        nap(LOOK);
    }
}

/// The children that live and came after the start. Those that have ended are collected.
fn left(before: &BTreeSet<u32>) -> Vec<Pid> {
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    let new = children()
        .into_iter()
        .filter(|child| !before.contains(child));
    new.filter_map(|child| i32::try_from(child).ok().and_then(Pid::from_raw))
        .filter(|child| {
            let waited = retry_on_intr(|| waitid(WaitId::Pid(*child), ended));
            matches!(waited, Ok(None))
        })
        .collect()
}
