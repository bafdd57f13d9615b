//! Many real processes want one lock while others among them are killed and stopped at random
//! moments, and a witness that knows nothing of the lock says whether two of them ever worked at
//! the same time.
//!
//! # What they do
//! A command keeps the witness locked from its first line to the end of its last process
//! (`support_crash/witness.rs`), and appends its token to a log. The order of the lines is the order of
//! the work, so the tokens have to rise from line to line.
//!
//! # How much
//! 8 contenders with 25 rounds each; `TENURE_CONTENTION=long` makes it 20 with 200.
//! `TENURE_SEED` repeats the random choices of an earlier run (not the moments at which they
//! meet the processes). The figures are printed.
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

use crate::support_crash::witness::{self, Log};
use crate::support_crash::{
    Answer, Fault, NAME, Process, Random, SOON, Site, Started, eventually, line, readable, seed,
    stat_of, was_killed, word,
};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tenure_engine::clock::instant;

/// Nothing in here takes longer. The contenders themselves wait for 30 s at most.
const STUCK: Duration = Duration::from_secs(60);

/// Works for a moment: `WITNESS LOG SECONDS`. The work is a child, so that there are two
/// processes to be killed.
const WORK: &str = concat!(
    crate::enter!(),
    r#"echo "$TENURE_TOKEN" >>"$1"; echo "$TENURE_TOKEN $PPID $$"; sleep "$2"; :"#
);

/// Calls `SCRIPT` with a witness for each number of a slot: `WITNESS SCRIPT LOG SECONDS`. A command without a
/// number shares one witness with all others like it.
const IN_ITS_SLOT: &str = r#"exec bash -c "$1" "$0.${TENURE_SLOT-none}" "$2" "$3""#;

/// Works for a moment and writes down its number: `WITNESS LOG SECONDS`.
const WORK_IN_A_SLOT: &str = concat!(
    crate::enter!(),
    r#"echo "$TENURE_SLOT" >>"$1"; echo "$TENURE_TOKEN $PPID $$"; sleep "$2"; :"#
);

/// Works until its input ends.
const WORK_ON: &str = concat!(
    crate::enter!(),
    r#"echo "$TENURE_TOKEN" >>"$1"; echo "$TENURE_TOKEN $PPID $$"; cat >/dev/null; :"#
);

/// Writes down for which request it works: `WITNESS LOG`.
const WORK_IN_TURN: &str = concat!(crate::enter!(), r#"echo "$TENURE_REQUEST_ID" >>"$1""#);

/// Owns a detached hold: works from the token it is told to the next line, and lives on.
const OWN: &str = concat!(
    "read -r token || exit 0\n",
    crate::enter!(),
    r#"echo "$token" >>"$1"; echo in
read -r word || exit 0
exec 200>&-; echo out
read -r word"#
);

/// How many contend, and how often.
#[derive(Debug, Clone, Copy)]
struct Extent {
    contenders: u64,
    rounds: u64,
}

impl Extent {
    fn of_environment() -> Self {
        match std::env::var("TENURE_CONTENTION").as_deref() {
            Ok("long") => Self {
                contenders: 20,
                rounds: 200,
            },
            _ => Self {
                contenders: 8,
                rounds: 25,
            },
        }
    }
}

/// What was done to the contenders.
#[derive(Debug, Default)]
struct Tally {
    supervisor_alone: u64,
    supervisor_and_command: u64,
    waiter: u64,
    stopped_waiter: u64,
    stopped_holder: u64,
    owner_at_work: u64,
    owner_waiting: u64,
    rounds: u64,
    asked_again: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} rounds; killed: {} supervisors alone, {} with their command, {} waiters (or \
             callers on their way), {} owners at work, {} owners in the queue; stopped and \
             continued: {} holders, {} waiters; {} calls repeated after a kill",
            self.rounds,
            self.supervisor_alone,
            self.supervisor_and_command,
            self.waiter,
            self.owner_at_work,
            self.owner_waiting,
            self.stopped_holder,
            self.stopped_waiter,
            self.asked_again,
        )
    }
}

/// The call that a contender has under way.
#[derive(Default)]
struct Slot {
    process: Option<Process>,
    /// Its command is at work.
    started: Option<Started>,
    /// It was sent SIGKILL.
    doomed: bool,
}

/// All contenders, and what happened so far.
struct Arena {
    site: Site,
    slots: Vec<Mutex<Slot>>,
    /// When a contender began to work.
    starts: Mutex<Vec<Instant>>,
    /// When all of a run, or an owner at work, was killed.
    deaths: Mutex<Vec<Instant>>,
    tally: Mutex<Tally>,
    over: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Arena {
    fn new(contenders: u64) -> Self {
        Self {
            site: Site::new(),
            slots: (0..contenders).map(|_| Mutex::default()).collect(),
            starts: Mutex::default(),
            deaths: Mutex::default(),
            tally: Mutex::default(),
            over: AtomicBool::new(false),
        }
    }

    fn log(&self) -> std::path::PathBuf {
        self.site.path("log")
    }

    /// Makes a call that the killer knows of, and waits for its end. `None` if it was killed.
    fn call(
        &self,
        slot: &Mutex<Slot>,
        words: &[&str],
        mut at_output: impl FnMut(&mut std::process::ChildStdout) -> Result<Option<Started>, Fault>,
    ) -> Result<Option<Answer>, Fault> {
        let (end, output) = {
            let mut slot = locked(slot);
            let mut process = Process::start(self.site.tenure(words.iter().copied()));
            let taken = (process.end(), process.take_output());
            *slot = Slot {
                process: Some(process),
                ..Slot::default()
            };
            taken
        };
        let mut output = output.ok_or("no output")?;
        let started = at_output(&mut output)?;
        if started.is_some() {
            locked(&self.starts).push(instant());
            locked(slot).started = started;
        }
        crate::ensure!(
            readable(end.as_fd(), STUCK),
            "{words:?} was stuck for {STUCK:?}"
        );
        let mut slot = locked(slot);
        let doomed = slot.doomed;
        slot.started = None;
        let process = slot.process.take().ok_or("no process")?;
        drop(slot);
        let mut answer = process.answer()?;
        if was_killed(answer.status) && doomed {
            return Ok(None);
        }
        // What `at_output` left.
        output
            .read_to_string(&mut answer.out)
            .map_err(|error| error.to_string())?;
        Ok(Some(answer))
    }

    /// One round of `run`.
    fn run_once(&self, slot: &Mutex<Slot>, random: &mut Random) -> Result<(), Fault> {
        let (witness, log) = (self.site.witness(), self.log());
        let seconds = format!("0.00{}", random.between(1, 10));
        let command = ["bash", "-c", WORK, word(&witness), word(&log), &seconds];
        self.run_to_its_end(slot, &[], &command)
    }

    /// One round of `run --slots`.
    fn run_in_a_slot(
        &self,
        slot: &Mutex<Slot>,
        slots: &str,
        random: &mut Random,
    ) -> Result<(), Fault> {
        let (witness, log) = (self.site.witness(), self.log());
        let (witness, log) = (word(&witness), word(&log));
        let seconds = format!("0.0{}", random.between(10, 40));
        let command = [
            "bash",
            "-c",
            IN_ITS_SLOT,
            witness,
            WORK_IN_A_SLOT,
            log,
            &seconds,
        ];
        self.run_to_its_end(slot, &["--slots", slots], &command)
    }

    fn run_to_its_end(
        &self,
        slot: &Mutex<Slot>,
        flags: &[&str],
        command: &[&str],
    ) -> Result<(), Fault> {
        let words = [&["run", NAME, "--wait", "30s"], flags, &["--"], command].concat();
        let mut worked = false;
        let answer = self.call(slot, &words, |output| {
            Ok(match line(output, STUCK)? {
                None => None,
                said => {
                    worked = true;
                    Some(Started::of(said)?)
                }
            })
        })?;
        if let Some(answer) = answer {
            crate::ensure!(
                answer.is(0) && worked,
                "a run that was not killed went wrong: {answer}"
            );
        }
        Ok(())
    }

    /// Calls a verb until it was not killed, and answers with what it said then.
    fn insist(&self, slot: &Mutex<Slot>, words: &[&str]) -> Result<Answer, Fault> {
        Ok(self.insist_counting(slot, words)?.0)
    }

    /// The same, and whether it was asked more than once.
    fn insist_counting(&self, slot: &Mutex<Slot>, words: &[&str]) -> Result<(Answer, bool), Fault> {
        let mut again = false;
        loop {
            if let Some(answer) = self.call(slot, words, |_| Ok(None))? {
                return Ok((answer, again));
            }
            again = true;
            locked(&self.tally).asked_again += 1;
        }
    }

    /// One round of `acquire` in the name of a process, which releases or dies.
    fn own_once(&self, slot: &Mutex<Slot>, id: &str, random: &mut Random) -> Result<(), Fault> {
        let (witness, log) = (self.site.witness(), self.log());
        let mut bash = std::process::Command::new("bash");
        bash.args(["-c", OWN, word(&witness), word(&log)]);
        let mut owner = Process::start_with_input(bash);
        let pid = owner.pid().as_raw_nonzero().to_string();
        let words = ["acquire", NAME, "--owner", &pid, "--request-id", id];
        let words = [&words[..], &["--wait", "30s", "--output", "json"]].concat();
        if random.one_in(6) {
            return self.die_waiting(slot, &words, owner, random);
        }
        let acquired = self.insist(slot, &words)?;
        crate::ensure!(acquired.is(0), "acquire went wrong: {acquired}");
        let token = serde_json::from_str::<serde_json::Value>(&acquired.out)
            .ok()
            .and_then(|document| document["data"]["token"].as_u64())
            .ok_or_else(|| format!("acquire named no token: {acquired}"))?;
        owner.tell(&token.to_string())?;
        let said = owner.line()?;
        crate::ensure!(
            said.as_deref() == Some("in"),
            "the owner could not begin to work: {said:?}"
        );
        locked(&self.starts).push(instant());
        let renewed = self
            .site
            .call(["heartbeat", NAME, "--request-id", id, "--quiet"])?;
        crate::ensure!(renewed.is(0), "the hold was not renewed: {renewed}");
        // It works for a moment.
        owner.is_silent_for(Duration::from_millis(random.between(1, 8)));
        if random.one_in(2) {
            owner.kill(Signal::KILL);
            locked(&self.deaths).push(instant());
            locked(&self.tally).owner_at_work += 1;
            owner.wait()?;
            return Ok(());
        }
        owner.tell("leave")?;
        let said = owner.line()?;
        crate::ensure!(said.as_deref() == Some("out"), "the owner said {said:?}");
        let words = ["release", NAME, "--request-id", id];
        let (released, again) = self.insist_counting(slot, &words)?;
        // A release that was killed after its write has released, and the next contender may hold.
        let is_right = released.is(0) || (again && released.is(6));
        crate::ensure!(is_right, "release went wrong: {released}");
        Ok(())
    }

    /// The owner dies while the call waits for its lock. Should the call succeed, no process works under
    /// the lock, and the next contender gets it.
    fn die_waiting(
        &self,
        slot: &Mutex<Slot>,
        words: &[&str],
        mut owner: Process,
        random: &mut Random,
    ) -> Result<(), Fault> {
        let pause = Duration::from_millis(random.between(0, 15));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(pause);
                owner.kill(Signal::KILL);
                locked(&self.tally).owner_waiting += 1;
            });
            let answer = self.insist(slot, words)?;
            // 2: it was gone before the call looked at it.
            crate::ensure!(
                answer.is(0) || answer.is(2),
                "acquire for an owner that died went wrong: {answer}"
            );
            Ok(())
        })?;
        owner.wait()?;
        Ok(())
    }

    /// Kills and stops until all is over.
    fn harass(&self, random: &mut Random) {
        while !self.over.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_micros(random.between(1_000, 16_000)));
            let first = usize::try_from(random.number() % 1_000).unwrap_or(0);
            let holder = random.one_in(2);
            let all = self.slots.len();
            let chosen = (0..all)
                .filter_map(|step| self.slots.get((first + step) % all))
                .map(locked)
                .find(|slot| {
                    slot.started.is_some() == holder
                        && !slot.doomed
                        && slot
                            .process
                            .as_ref()
                            .is_some_and(|process| !process.ends_within(Duration::ZERO))
                });
            if let Some(mut slot) = chosen {
                self.strike(&mut slot, random);
            }
        }
    }

    /// Does something to a call. The slot is locked, so its process is not collected meanwhile and
    /// its number is its own.
    fn strike(&self, slot: &mut Slot, random: &mut Random) {
        let Some(process) = &slot.process else {
            return;
        };
        let Some(started) = slot.started else {
            if random.one_in(2) {
                stop_and_continue(process, random);
                locked(&self.tally).stopped_waiter += 1;
            } else {
                slot.doomed = true;
                process.kill(Signal::KILL);
                locked(&self.tally).waiter += 1;
            }
            return;
        };
        match random.between(0, 3) {
            0 => {
                stop_and_continue(process, random);
                locked(&self.tally).stopped_holder += 1;
            }
            1 => {
                slot.doomed = true;
                process.kill(Signal::KILL);
                locked(&self.tally).supervisor_alone += 1;
            }
            _ => {
                // Its child, in a group of its own, and not collected: it is the command.
                let own = process.pid().as_raw_nonzero().get().unsigned_abs();
                let is_command = stat_of(started.command).is_some_and(|(state, parent, group)| {
                    state != 'Z' && parent == own && group == started.command
                });
                let group = i32::try_from(started.command).ok().and_then(Pid::from_raw);
                let Some(group) = group.filter(|_| is_command) else {
                    return;
                };
                slot.doomed = true;
                if random.one_in(2) {
                    process.kill(Signal::KILL);
                    let _ = kill_process_group(group, Signal::KILL);
                } else {
                    let _ = kill_process_group(group, Signal::KILL);
                    process.kill(Signal::KILL);
                }
                locked(&self.deaths).push(instant());
                locked(&self.tally).supervisor_and_command += 1;
            }
        }
    }

    /// The lock is granted at once when all have left, and no claim is listed.
    fn verify_that_all_have_left(&self) {
        let last = self
            .site
            .call(["run", NAME, "--wait", "1s", "--", "true"])
            .expect("an answer");
        assert!(
            last.is(0),
            "no contender is left, and the lock is not granted: {last}"
        );
        let standing = self.site.check().expect("an answer");
        assert!(
            standing.is_free() && standing.holder.is_none() && standing.queue.is_empty(),
            "no contender is left, and the lock is not free: {standing:?}"
        );
        let listed = self
            .site
            .call(["list", "--output", "json"])
            .expect("an answer");
        let listed: serde_json::Value = serde_json::from_str(&listed.out).expect("a document");
        for lock in listed["data"]["locks"].as_array().expect("locks") {
            assert!(
                lock["holder"].is_null() && lock["queue"].as_array().is_some_and(Vec::is_empty),
                "no contender is left, and a claim is listed: {lock}"
            );
        }
    }

    /// What has to hold when all have left.
    fn verify(&self, what: &str, seed: u64, began: Instant) {
        self.verify_that_all_have_left();
        let log = Log::read(&self.log());
        log.assert_in_turn(what);
        let mut starts = locked(&self.starts).clone();
        starts.sort_unstable();
        let mut recovered: Vec<Duration> = locked(&self.deaths)
            .iter()
            .filter_map(|death| {
                let next = starts.iter().find(|start| *start > death)?;
                Some(next.saturating_duration_since(*death))
            })
            .collect();
        recovered.sort_unstable();
        println!(
            "{what} (TENURE_SEED={seed}): {:.1} s, {}; {} at work in turn, overlaps 0, stuck 0, \
             tokens rising; from the death of all of a holder to the next one's work: median \
             {:?}, p99 {:?}, most {:?} ({} times)",
            instant().saturating_duration_since(began).as_secs_f64(),
            locked(&self.tally),
            log.tokens.len(),
            rank(&recovered, 50),
            rank(&recovered, 99),
            rank(&recovered, 100),
            recovered.len(),
        );
    }
}

fn rank(sorted: &[Duration], percent: usize) -> Duration {
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or_default()
}

fn stop_and_continue(process: &Process, random: &mut Random) {
    process.kill(Signal::STOP);
    std::thread::sleep(Duration::from_millis(random.between(1, 25)));
    process.kill(Signal::CONT);
}

/// Lets all contend while the killer kills and stops them. Answers with what went wrong.
fn contend(
    arena: &Arena,
    extent: Extent,
    seed: u64,
    round: impl Fn(&Mutex<Slot>, u64, u64, &mut Random) -> Result<(), Fault> + Sync,
) -> Vec<Fault> {
    let faults = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let contenders: Vec<_> = (0..extent.contenders)
            .zip(&arena.slots)
            .map(|(index, slot)| {
                let (faults, round) = (&faults, &round);
                scope.spawn(move || {
                    let mut random = Random::new(seed.wrapping_mul(1_000).wrapping_add(index));
                    for number in 0..extent.rounds {
                        match round(slot, index, number, &mut random) {
                            Ok(()) => locked(&arena.tally).rounds += 1,
                            Err(fault) => {
                                let told = format!("contender {index}, round {number}: {fault}");
                                locked(faults).push(told);
                                break;
                            }
                        }
                    }
                })
            })
            .collect();
        let killer = scope.spawn(|| arena.harass(&mut Random::new(seed)));
        for contender in contenders {
            if contender.join().is_err() {
                locked(&faults).push("a contender's own thread failed".to_owned());
            }
        }
        arena.over.store(true, Ordering::SeqCst);
        let _ = killer.join();
    });
    faults.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a run whose command works until its input ends.
fn start_lasting(site: &Site) -> Process {
    let (witness, log) = (site.witness(), site.path("log"));
    let command = ["bash", "-c", WORK_ON, word(&witness), word(&log)];
    let words = ["run", NAME, "--wait", "30s", "--"];
    Process::start_with_input(site.tenure(words.into_iter().chain(command)))
}

/// The same, once its command works.
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
        let group = i32::try_from(self.at_work.command).ok();
        group.and_then(Pid::from_raw).expect("a group")
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
        // Its child has the witness too, and ends with the input.
        first.end_input();
        assert_eq!(
            first.line(),
            Ok(None),
            "no process of the first one is left"
        );
        let mut after = unlocked(&site, WORK_ON);
        Started::of(after.line().expect("a line")).expect("it works after a dead one");
        let log = Log::read(&site.path("log"));
        assert_eq!((log.overlaps, log.tokens), (1, vec![1, 1]));
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

    #[test]
    fn of_runs_that_are_killed_and_stopped_at_random() {
        witness::need();
        let (extent, seed, began) = (Extent::of_environment(), seed(), instant());
        println!("TENURE_SEED={seed}, {extent:?}");
        let arena = Arena::new(extent.contenders);
        let faults = contend(&arena, extent, seed, |slot, _, _, random| {
            arena.run_once(slot, random)
        });
        assert!(faults.is_empty(), "TENURE_SEED={seed}: {faults:#?}");
        arena.verify("runs", seed, began);
    }

    /// No two work under one number, whatever becomes of the holders before, and every number is used. A
    /// kernel lock for each number says so.
    #[test]
    fn of_thirty_two_runs_for_four_numbered_slots() {
        witness::need();
        let rounds = Extent::of_environment().rounds.div_ceil(6);
        let (contenders, seed, began) = (32, seed(), instant());
        let extent = Extent { contenders, rounds };
        println!("TENURE_SEED={seed}, {extent:?}");
        let arena = Arena::new(contenders);
        let faults = contend(&arena, extent, seed, |slot, _, _, random| {
            arena.run_in_a_slot(slot, "4", random)
        });
        assert!(faults.is_empty(), "TENURE_SEED={seed}: {faults:#?}");
        arena.verify_that_all_have_left();
        let log = std::fs::read_to_string(arena.log()).expect("a log");
        let mut used = [0_u32; 4];
        for line in log.lines() {
            // `overlap`, an empty line or another number is a fault.
            let number = line.parse().ok();
            let count = number.and_then(|number: usize| used.get_mut(number));
            *count.unwrap_or_else(|| panic!("TENURE_SEED={seed}: {line:?} in\n{log}")) += 1;
        }
        assert!(
            used.iter().all(|times| *times > 0),
            "each is used: {used:?}"
        );
        println!(
            "slots (TENURE_SEED={seed}): {:.1} s, {}; the numbers were used {used:?} times",
            instant().saturating_duration_since(began).as_secs_f64(),
            locked(&arena.tally),
        );
    }

    #[test]
    fn of_runs_and_owners_that_release_or_die() {
        witness::need();
        let (extent, seed, began) = (Extent::of_environment(), seed(), instant());
        println!("TENURE_SEED={seed}, {extent:?}");
        let arena = Arena::new(extent.contenders);
        let faults = contend(&arena, extent, seed, |slot, index, number, random| {
            if index.is_multiple_of(2) {
                arena.own_once(slot, &format!("owner-{index}-{number}"), random)
            } else {
                arena.run_once(slot, random)
            }
        });
        assert!(faults.is_empty(), "TENURE_SEED={seed}: {faults:#?}");
        arena.verify("runs and owners", seed, began);
    }

    #[test]
    fn hands_over_in_the_order_of_the_queue() {
        witness::need();
        let site = Site::new();
        let witness = site.witness();
        let (mut holder, _) = start_holding(&site);
        let order = site.path("order");
        let ids: Vec<String> = (0..16).map(|number| format!("waiter-{number}")).collect();
        let mut waiters = Vec::new();
        for (count, id) in ids.iter().enumerate() {
            let command = ["bash", "-c", WORK_IN_TURN, word(&witness), word(&order)];
            let words = ["run", NAME, "--wait", "30s", "--request-id", id, "--"];
            let words = words.into_iter().chain(command);
            waiters.push(Process::start(site.tenure(words)));
            eventually("the waiter's place in the queue", || {
                site.check().is_ok_and(|standing| {
                    standing.queue.len() == count + 1 && standing.queue.last() == Some(id)
                })
            })
            .expect("a queue that grows at its end");
        }
        let began = instant();
        holder.end_input();
        for waiter in waiters {
            let answer = waiter.answer().expect("an end");
            assert!(answer.is(0), "a waiter in a queue of 16: {answer}");
        }
        let took = instant().saturating_duration_since(began);
        let order = std::fs::read_to_string(order).expect("the order");
        assert_eq!(
            order.lines().collect::<Vec<_>>(),
            ids.iter().map(String::as_str).collect::<Vec<_>>(),
            "the lock was not handed over in the order of the queue"
        );
        println!("hand-over: 16 waiters in order, {:?} each", took / 16);
        assert!(
            holder.wait().expect("an end").success(),
            "the holder ended well"
        );
    }

    /// The list of a crowd stands in segments. Some of it leave, some are killed, and the others go on in their order.
    #[test]
    fn hands_over_in_order_within_a_crowd_of_which_some_die_and_some_leave() {
        const CROWD: usize = 120;
        witness::need();
        let site = Site::new();
        let witness = site.witness();
        let (mut holder, _) = start_holding(&site);
        let order = site.path("order");
        let mut random = Random::new(seed());
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
        let list = std::fs::read(site.locks().join(format!("{NAME}.tenure"))).expect("a list");
        let list = String::from_utf8_lossy(&list);
        assert!(list.contains("{\"segments\":[["), "a crowd is too few");
        queue.retain(|id| {
            let ends = match random.between(0, 5) {
                0 => Signal::KILL,
                1 => Signal::TERM,
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
            rank(&all, 50),
            rank(&all, 100)
        );
    }

    const _: () = assert!(SOON.as_secs() < STUCK.as_secs(), "patience grows outwards");
}
