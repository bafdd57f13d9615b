//! A caller: draws, calls, strikes, waits, and judges the answer.

use crate::call::{self, Call, Program, Round, Strike, When};
use crate::detached;
use crate::hand;
use crate::journal::now_ns;
use crate::preset::Extent;
use crate::random::Random;
use crate::surroundings::Surroundings;
use crate::versions;
use crate::world::World;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};
use tenure_os::clock::instant;

/// No call takes longer.
pub(crate) const STUCK: Duration = Duration::from_secs(60);

/// How long a command that is to be struck at work is waited for.
const BEGINS: Duration = Duration::from_secs(10);

/// Works until its rounds or the time are over.
pub(crate) fn work(world: &World, number: u64, until: Instant) {
    let mut random = Random::new(world.seed, number);
    let rounds = match world.preset.extent {
        Extent::Seconds(_) => u64::MAX,
        Extent::Rounds(rounds) => rounds,
    };
    for round in (1..=rounds).take_while(|_| instant() < until) {
        let id = format!("w{number}r{round}");
        match call::draw(world, &mut random, &id) {
            Round::Call(call) => make(world, number, &call),
            Round::Owned(owned) => detached::own(world, &id, owned),
            Round::Overridden {
                forces,
                releases,
                pause_ms,
            } => detached::override_others(world, &id, forces, releases, pause_ms),
        }
    }
}

/// Whether a child ends within `limit`. It is not collected: its number stays its own.
pub(crate) fn ends_within(child: &Child, limit: Duration) -> bool {
    let Ok(end) = pidfd_open(Pid::from_child(child), PidfdFlags::empty()) else {
        return true;
    };
    let until = instant() + limit;
    loop {
        let rest = Timespec::try_from(until.saturating_duration_since(instant()));
        let mut fds = [PollFd::new(&end, PollFlags::IN)];
        match poll(&mut fds, rest.ok().as_ref()) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(_) => {}
        }
    }
}

fn make(world: &World, number: u64, call: &Call) {
    let own = std::env::current_exe().unwrap_or_default();
    let own = own.to_string_lossy();
    let program = match call.program {
        Program::Tenure => versions::tenure(),
        Program::Flock => "flock",
        Program::Hand => &own,
    };
    let around = call.around;
    let mut words = around.words();
    words.push(program.to_owned());
    let (program, before) = (words.remove(0), words);
    let mut command = if around.is_terminal() {
        // The call begins a session, which takes a process that leads no group.
        world.program_in_our_group(&program)
    } else {
        world.program(&program)
    };
    command.args(before).args(&call.words);
    let said = world.path(&format!("said/{number}"));
    let files = File::create(&said).and_then(|file| Ok((file.try_clone()?, file)));
    let Ok((out, errors)) = files else {
        return world.violation(format!("{}: no file for what it says", call.id));
    };
    world
        .journal
        .write(format_args!("ask {}", told_briefly(call)));
    let (began, began_ns) = (instant(), now_ns());
    let kept = match around.give(command.stdout(out), errors) {
        Ok(kept) => kept,
        Err(error) => return world.violation(format!("{around:?} cannot be made: {error}")),
    };
    for around in around.counted_as() {
        world.count(around);
    }
    let spawned = command.spawn();
    // With what it was given on our side, a terminal would never be hung up.
    drop(command);
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return world.violation(format!("{} does not start: {error}", told(call))),
    };
    let was_struck = strike(world, call, &child);
    if !ends_within(&child, STUCK) {
        world.count("stuck");
        world.violation(format!("stuck for {STUCK:?}: {}", told(call)));
        excuse(world, &call.id);
        send(&child, Signal::KILL);
    }
    let Ok(status) = child.wait() else {
        return world.violation(format!("{} was collected by another process", call.id));
    };
    let took = tenure_os::clock::since(began);
    drop(kept);
    world
        .journal
        .write(format_args!("answer {} {status}", call.id));
    world.answered(call.kind, status);
    let Some(why) = fault(call, status, took, was_struck) else {
        return;
    };
    let said = std::fs::read_to_string(&said).unwrap_or_default();
    if status.code() == Some(4) && is_of_the_future(world, call, began_ns, &said) {
        world.count("clock: refused as from the future");
    } else {
        world.violation(format!(
            "{why}: {status} after {took:?}, struck: {was_struck}: {}\n  it said {said:?}",
            told(call)
        ));
    }
}

/// Names the call.
fn told_briefly(call: &Call) -> String {
    let Call {
        id,
        kind,
        does,
        strike,
        around,
        ..
    } = call;
    let Surroundings { messages, blocks } = around;
    format!("{id} {kind}, {does}, strike {strike:?}, {messages:?}, blocks {blocks}")
}

/// Names the call, with all its words.
fn told(call: &Call) -> String {
    format!("{}: {}", told_briefly(call), call.words.join(" "))
}

/// What is wrong with an answer.
fn fault(
    call: &Call,
    status: ExitStatus,
    took: Duration,
    was_struck: bool,
) -> Option<&'static str> {
    let signal = call
        .strike
        .filter(|_| was_struck)
        .and_then(|(_, strike)| strike.signal());
    let Some(code) = status.code() else {
        let is_ours = signal.is_some() && status.signal() == signal;
        return (!is_ours).then_some("died by a signal that this test did not send");
    };
    if i32::from(hand::OVERLAP) == code {
        return Some("OVERLAP: two worked at once");
    }
    if i32::from(hand::BROKEN) == code {
        return Some("the command or what it called went wrong");
    }
    if signal.is_some_and(|signal| code == 128 + signal) {
        return None;
    }
    if !call.allowed.contains(&code) {
        return Some("an exit code that this call cannot have");
    }
    // Stale sprints are refused at once; the waits are measured with some slack.
    let least = Duration::from_millis(call.waits_ms * 9 / 10);
    if code == 4 && took < least && call.kind != "sprint run" {
        return Some("refused before its wait was over");
    }
    None
}

/// Whether it was refused for a record that lies in the future by more than its ttl: the format's rule
/// of a fleet, which has no clock but the one that was set. That it was set back so far is looked up
/// here, whatever the answer says. A run finds its reason by a second look, which may come after the
/// next step.
fn is_of_the_future(world: &World, call: &Call, began_ns: u64, said: &str) -> bool {
    let is_a_reason = said.contains("its last_heartbeat_at is later than its ttl from now")
        || (call.kind == "fleet run" && said.contains("The lock file is corrupt: it cannot be"));
    is_a_reason
        && call.words.iter().any(|word| word == "fleet")
        && world.clock.was_behind(began_ns, call::FLEET_TTL)
}

/// What was killed cannot end what it started.
fn excuse(world: &World, id: &str) {
    let _ = File::create(world.path("excused").join(id));
}

fn send(child: &Child, signal: Signal) {
    // Not collected yet, so the number is its own.
    let _ = kill_process(Pid::from_child(child), signal);
}

/// Strikes; whether it did.
fn strike(world: &World, call: &Call, child: &Child) -> bool {
    let Some((at, strike)) = call.strike else {
        return false;
    };
    let at_ms = match at {
        When::Asked(at_ms) => at_ms,
        When::AtWork(at_ms) if begins(world, call, child).is_some() => at_ms,
        When::AtWork(_) => return false,
    };
    if ends_within(child, Duration::from_millis(at_ms)) {
        return false;
    }
    let kill = || {
        excuse(world, &call.id);
        world.journal.write(format_args!("kill {}", call.id));
        world.count("kills: a process alone");
        send(child, Signal::KILL);
    };
    let stop = |pause_ms: u64| {
        world.count("stopped");
        send(child, Signal::STOP);
        std::thread::sleep(Duration::from_millis(pause_ms));
    };
    match strike {
        Strike::Term | Strike::Int | Strike::Hup => {
            world.count("signalled");
            send(
                child,
                match strike {
                    Strike::Term => Signal::TERM,
                    Strike::Int => Signal::INT,
                    _ => Signal::HUP,
                },
            );
        }
        Strike::Kill => kill(),
        Strike::Stop(pause_ms) => {
            stop(pause_ms);
            send(child, Signal::CONT);
        }
        Strike::StopKill(pause_ms) => {
            stop(pause_ms);
            kill();
        }
        Strike::KillAll => return kill_all(world, call, child),
    }
    true
}

/// Waits until the command of a call works: its number.
fn begins(world: &World, call: &Call, child: &Child) -> Option<u32> {
    let until = instant() + BEGINS;
    loop {
        match hand::worker_of(world.root.path(), &call.id) {
            None if instant() > until || ends_within(child, Duration::from_millis(2)) => {
                return None;
            }
            None => {}
            command => return command,
        }
    }
}

fn kill_all(world: &World, call: &Call, child: &Child) -> bool {
    let Some(command) = begins(world, call, child) else {
        return false;
    };
    // The child, in a group of its own, and not collected: that is the command.
    let Some(group) = group_below(command, child.id()) else {
        return false;
    };
    excuse(world, &call.id);
    world
        .journal
        .write(format_args!("kill {} and {command}", call.id));
    // A supervisor that saw its command end would release. What the command has started would go on
    // without the lock, as after any other end.
    send(child, Signal::STOP);
    let _ = kill_process_group(group, Signal::KILL);
    send(child, Signal::KILL);
    if let Some(name) = &call.recovers {
        world.journal.write(format_args!("dead {} {name}", call.id));
    }
    world.count("kills: a run with its command");
    true
}

/// The group of a process, if that is the child of another one, and in a group that is not that one's.
fn group_below(pid: u32, parent: u32) -> Option<Pid> {
    let seen = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, rest) = stat.rsplit_once(')')?;
        let mut words = rest.split_ascii_whitespace();
        let (state, above) = (words.next()?.to_owned(), words.next()?.to_owned());
        Some((state, above, words.next()?.parse::<i32>().ok()?))
    };
    let (state, above, group) = seen(pid)?;
    let (_, _, own) = seen(parent)?;
    // A process that is being collected is in no group any more.
    let is_its_own = state != "Z" && above == parent.to_string() && group != own && group > 0;
    is_its_own.then(|| Pid::from_raw(group))?
}

/// The time since then.
pub(crate) fn since_ns(then: u64) -> Duration {
    Duration::from_nanos(now_ns().saturating_sub(then))
}
