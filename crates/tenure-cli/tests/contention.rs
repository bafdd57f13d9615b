//! Real processes want one lock, and one of them is killed or stopped at a given moment; a witness that
//! knows nothing of the lock says whether two of them ever worked at the same time. Storms of many, at random,
//! are the torture's (`torture/preset.rs`).
//!
//! A command keeps the witness locked from its first line to the end of its last process
//! (`support_crash/witness.rs`).
//!
//! Unix only: it works with shells, signals, links and rights. `windows.rs` has what Windows has.
#![cfg(unix)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test says what it expects by failing, and its figures are for reading"
)]

mod support_crash;

use crate::support_crash::{
    Fault, NAME, Process, Site, Started, eventually, stat_of, was_killed, witness, word,
};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeMap;
use std::time::Duration;
use tenure_os::clock::instant;

/// Works until its input ends.
const WORK_ON: &str = concat!(
    crate::enter!(),
    r#"echo "$TENURE_TOKEN" >>"$1"; echo "$TENURE_TOKEN $PPID $$"; cat >/dev/null; :"#
);

/// Writes down for which request it works: `WITNESS LOG`.
const WORK_IN_TURN: &str = concat!(crate::enter!(), r#"echo "$TENURE_REQUEST_ID" >>"$1""#);

/// Starts a run whose command works until its input ends.
fn start_lasting(site: &Site) -> Process {
    let (witness, log) = (site.witness(), site.path("log"));
    let command = ["bash", "-c", WORK_ON, word(&witness), word(&log)];
    let words = ["run", NAME, "--wait", "30s", "--"];
    Process::start_with_input(site.tenure(words.into_iter().chain(command)))
}

/// Starts such a run, and answers once its command works.
fn start_holding(site: &Site) -> (Process, Started) {
    let mut holder = start_lasting(site);
    let at_work = Started::of(holder.line().expect("a line")).expect("a holder");
    (holder, at_work)
}

/// A run at work, and another one that waits for it.
struct HolderAndWaiter {
    site: Site,
    holder: Process,
    at_work: Started,
    waiter: Process,
}

impl HolderAndWaiter {
    fn new() -> Self {
        let site = Site::new();
        let (holder, at_work) = start_holding(&site);
        let mut waiter = start_lasting(&site);
        waiter.end_input();
        assert!(
            waiter.says("waiting up to").expect("a line"),
            "it has to wait"
        );
        Self {
            site,
            holder,
            at_work,
            waiter,
        }
    }

    /// The process group of the holder's command.
    fn group_of_command(&self) -> Pid {
        let own = self.holder.pid().as_raw_nonzero().get().unsigned_abs();
        let parent = stat_of(self.at_work.command).map(|(_, parent, _)| parent);
        assert_eq!(parent, Some(own), "the command is the holder's child");
        let command = i32::try_from(self.at_work.command).ok();
        let command = command.and_then(Pid::from_raw).expect("a command");
        tenure_os::process::group_of(command).expect("its group")
    }

    /// Waits until the waiter works, which has a higher token.
    fn waiter_works(&mut self) -> Result<(), Fault> {
        let next = Started::of(self.waiter.line()?)?;
        crate::ensure!(next.token > self.at_work.token, "the token has not risen");
        Ok(())
    }
}

mod contention {
    use super::*;

    /// A command under the witness of a site, without any lock.
    fn unlocked(site: &Site, script: &str) -> Process {
        let mut bash = std::process::Command::new("bash");
        bash.args(["-c", script, word(&site.witness()), word(&site.path("log"))]);
        bash.env("TENURE_TOKEN", "1");
        Process::start_with_input(bash)
    }

    #[test]
    fn is_seen_by_the_witness_where_two_commands_work_at_once() {
        witness::need();
        let site = Site::new();
        let mut first = unlocked(&site, WORK_ON);
        Started::of(first.line().expect("a line")).expect("the first one works");
        let beside = unlocked(&site, WORK_ON).answer().expect("an end");
        assert!(beside.is(witness::OVERLAP), "it is refused: {beside}");
        assert_eq!(beside.out, "refused\n");
        first.kill(Signal::KILL);
        let end = first.wait().expect("an end");
        assert!(was_killed(end), "it was killed");
        // The child has the witness too, and ends with the input.
        first.end_input();
        assert_eq!(
            first.line(),
            Ok(None),
            "no process of the first one is left"
        );
        let mut after = unlocked(&site, WORK_ON);
        Started::of(after.line().expect("a line")).expect("it works after a dead one");
        let log = std::fs::read_to_string(site.path("log")).expect("a log");
        assert_eq!(log, "1\noverlap\n1\n");
    }

    #[test]
    fn is_seen_by_the_witness_also_before_a_command_has_named_itself() {
        witness::need();
        let site = Site::new();
        let slow = r#"exec 200>>"$0"; flock -n 200; echo locked; read -r word; echo $$ >&200"#;
        let mut slow = unlocked(&site, slow);
        assert_eq!(slow.line(), Ok(Some("locked".to_owned())));
        let beside = unlocked(&site, WORK_ON);
        assert!(
            beside.is_silent_for(Duration::from_millis(200)),
            "no process is known to have the witness, so it waits for a moment"
        );
        slow.tell("go on").expect("it listens");
        let beside = beside.answer().expect("an end");
        assert!(beside.is(witness::OVERLAP), "another took it: {beside}");
    }

    /// Some of a crowd leave, some are killed, and the others go on in their order.
    #[test]
    fn hands_over_in_order_within_a_crowd_of_which_some_die_and_some_leave() {
        const CROWD: usize = 120;
        witness::need();
        let site = Site::new();
        let witness = site.witness();
        let (mut holder, _) = start_holding(&site);
        let order = site.path("order");
        let mut crowd = BTreeMap::new();
        for number in 0..CROWD {
            let id = format!("waiter-{number}");
            let command = ["bash", "-c", WORK_IN_TURN, word(&witness), word(&order)];
            let words = ["run", NAME, "--wait", "2m", "--request-id", &id, "--"];
            let words = words.into_iter().chain(command);
            crowd.insert(id.clone(), Process::start(site.tenure(words)));
        }
        let mut queue = Vec::new();
        eventually("a crowd that waits", || {
            queue = site
                .check()
                .map_or_else(|_| Vec::new(), |standing| standing.queue);
            queue.len() == CROWD
        })
        .expect("all of them wait");
        let mut place = 0;
        queue.retain(|id| {
            place += 1;
            let ends = match place % 5 {
                1 => Signal::KILL,
                3 => Signal::TERM,
                _ => return true,
            };
            let waiter = crowd.remove(id).expect("one of the crowd");
            waiter.kill(ends);
            let answer = waiter.answer().expect("an end");
            assert!(!answer.is(0), "a waiter that was ended: {answer}");
            false
        });
        holder.end_input();
        for (id, waiter) in crowd {
            let answer = waiter.answer().expect("an end");
            assert!(answer.is(0), "{id}: {answer}");
        }
        let order = std::fs::read_to_string(order).expect("the order");
        assert_eq!(order.lines().collect::<Vec<_>>(), queue, "out of order");
        assert!(
            holder.wait().expect("an end").success(),
            "the holder ended well"
        );
    }

    #[test]
    fn waits_for_the_command_of_a_killed_supervisor() {
        witness::need();
        let mut pair = HolderAndWaiter::new();
        let input = pair.holder.take_input().expect("the command's input");
        pair.holder.kill(Signal::KILL);
        let end = pair.holder.wait().expect("an end");
        assert!(was_killed(end), "it was killed");
        assert!(
            pair.waiter.is_silent_for(Duration::from_millis(300)),
            "the waiter began to work while the command of the killed supervisor did"
        );
        let standing = pair.site.check().expect("an answer");
        assert!(standing.is_held(), "its command is at work: {standing:?}");
        let began = instant();
        drop(input);
        pair.waiter_works().expect("the waiter works");
        let took = instant().saturating_duration_since(began);
        println!("from the end of an orphaned command to the next one's work: {took:?}");
        let end = pair.waiter.wait().expect("an end");
        assert!(end.success(), "the waiter ends well");
    }

    /// Off a terminal there is no shell that would continue a supervisor which stopped together
    /// with its command.
    #[test]
    fn goes_on_after_a_command_that_was_stopped_for_a_while() {
        witness::need();
        let mut pair = HolderAndWaiter::new();
        let group = pair.group_of_command();
        kill_process_group(group, Signal::STOP).expect("a live command");
        eventually("the stop of the command", || {
            stat_of(pair.at_work.command).is_some_and(|(state, ..)| state == 'T')
        })
        .expect("a stopped command");
        // What the supervisor does about it, it does at once.
        assert!(
            pair.waiter.is_silent_for(Duration::from_millis(100)),
            "the waiter began to work beside a command that is only stopped"
        );
        kill_process_group(group, Signal::CONT).expect("a live command");
        pair.holder.end_input();
        let works = pair.waiter_works();
        // Also if the test fails, no stopped supervisor is left.
        pair.holder.kill(Signal::CONT);
        works.expect("the command was continued and has ended, so the waiter works");
        for process in [&mut pair.holder, &mut pair.waiter] {
            assert!(process.wait().expect("an end").success(), "it ends well");
        }
    }

    #[test]
    fn goes_on_at_once_after_a_killed_run() {
        witness::need();
        let mut all = Vec::new();
        for _ in 0..20 {
            let mut pair = HolderAndWaiter::new();
            let group = pair.group_of_command();
            pair.holder.kill(Signal::KILL);
            kill_process_group(group, Signal::KILL).expect("a live command");
            let began = instant();
            pair.waiter_works().expect("the waiter works");
            let took = instant().saturating_duration_since(began);
            assert!(
                took < Duration::from_millis(500),
                "the lock of a run that was killed as a whole was free only after {took:?}"
            );
            all.push(took);
            let end = pair.waiter.wait().expect("an end");
            assert!(end.success(), "the waiter ends well");
            pair.holder.wait().expect("an end");
        }
        all.sort_unstable();
        println!(
            "from SIGKILL of a whole run to the next one's work: median {:?}, most {:?}",
            all[all.len() / 2],
            all[all.len() - 1]
        );
    }
}
