//! Many real processes want one lock while others among them are killed and stopped at random
//! moments, and a witness that knows nothing of the lock says whether two of them ever worked at
//! the same time.
//!
//! # The witness
//! Whoever works keeps a file locked with flock(2), from its first command to the end of its
//! last process, and appends its token to a log. A second one that finds the file locked writes
//! `overlap` there. The order of the lines is the order of the work, so the tokens have to rise
//! from line to line.
//!
//! The witness is a high descriptor (which only bash can name): of a process that ends, Linux lets
//! go of the highest one first, and the witness has to be gone before the copy of the liveness lock is.
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

use crate::support_crash::{
    Answer, Fault, NAME, Process, Random, SOON, Site, Started, eventually, line, need, readable,
    stat_of, was_killed, word,
};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fmt;
use std::io::Read;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tenure_engine::clock::instant;

/// Nothing in here takes longer. The contenders themselves wait for 30 s at most.
const STUCK: Duration = Duration::from_secs(60);

/// Takes the witness, and says who has it. It may be refused although nobody works: where two processes die
/// at once on two processors, one may close the liveness lock for the last time while the other one, which
/// is past its last instruction too, still has the witness open. Two processes without any of our code do the
/// same (2 of 8,609 deaths on a busy machine, for up to 3.4 ms). So who had it is looked at: a process of
/// that group that is not on its way out makes it an overlap.
macro_rules! enter {
    () => {
        r#"exec 2>/dev/null 200>>"$0"
dying() {
  local stat line pid
  for stat in /proc/[0-9]*/stat; do
    { read -r line <"$stat"; } || continue
    pid=${line%% *}; set -- ${line##*) }
    [ "$3" = "$before" ] || [ "$pid" = "$before" ] || continue
    [ "$1" = Z ] || [ "$1" = X ] || [ $(( $7 & 4 )) != 0 ] || return 1
  done
}
flock -n 200 || {
  before=$(tail -n 1 "$0")
  dying && flock -w 1 200 || { echo overlap >>"$1"; echo refused; exit 97; }
}
echo $$ >&200
"#
    };
}

/// Works for a moment: `WITNESS LOG SECONDS`. The work is a child, so that there are two
/// processes to be killed.
const WORK: &str = concat!(
    enter!(),
    r#"echo "$TENURE_TOKEN" >>"$1"; echo "$TENURE_TOKEN $PPID $$"; sleep "$2"; :"#
);

/// Works until its input ends.
const WORK_ON: &str = concat!(
    enter!(),
    r#"echo "$TENURE_TOKEN" >>"$1"; echo "$TENURE_TOKEN $PPID $$"; cat >/dev/null; :"#
);

/// Writes down who it works for.
const WORK_IN_TURN: &str = r#"exec 200>>"$0"; flock -n 200 || { echo refused; exit 97; }
echo "$TENURE_REQUEST_ID" >>"$1""#;

/// Owns a detached hold: works from the token it is told to the next line, and lives on.
const OWN: &str = r#"read -r token || exit 0
exec 200>>"$0"; flock -n 200 || { echo overlap >>"$1"; echo refused; exit 97; }
echo $$ >&200; echo "$token" >>"$1"; echo in
read -r word || exit 0
exec 200>&-; echo out
read -r word"#;

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

fn seed() -> u64 {
    std::env::var("TENURE_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| {
            use std::hash::{BuildHasher, RandomState};
            RandomState::new().hash_one(std::process::id()) % 1_000_000
        })
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

/// Everybody, and what happened so far.
struct Arena {
    site: Site,
    slots: Vec<Mutex<Slot>>,
    /// When somebody began to work.
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
        let words = [&["run", NAME, "--wait", "30s", "--"], &command[..]].concat();
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
                "a run that nobody killed went wrong: {answer}"
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

    /// The owner dies while its lock is being waited for. Whether the call then succeeds, nobody
    /// is there to work, and the lock goes on to the next.
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

    /// What has to hold when all have left.
    fn verify(&self, what: &str, seed: u64, began: Instant) {
        let last = self
            .site
            .call(["run", NAME, "--wait", "1s", "--", "true"])
            .expect("an answer");
        assert!(
            last.is(0),
            "nobody is left and the lock is not to be had: {last}"
        );
        let standing = self.site.check().expect("an answer");
        assert!(
            standing.is_free() && standing.holder.is_none() && standing.queue.is_empty(),
            "nobody is left and the lock is not free: {standing:?}"
        );
        let listed = self
            .site
            .call(["list", "--output", "json"])
            .expect("an answer");
        let listed: serde_json::Value = serde_json::from_str(&listed.out).expect("a document");
        for lock in listed["data"]["locks"].as_array().expect("locks") {
            assert!(
                lock["holder"].is_null() && lock["queue"].as_array().is_some_and(Vec::is_empty),
                "nobody is left and somebody is listed: {lock}"
            );
        }
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        let overlaps = log.lines().filter(|line| *line == "overlap").count();
        assert_eq!(overlaps, 0, "two were at work at the same time");
        let tokens: Vec<u64> = log
            .lines()
            .map(|line| line.parse().expect("a token in the log"))
            .collect();
        let falls: Vec<_> = tokens
            .windows(2)
            .filter(|pair| matches!(pair, [before, after] if before >= after))
            .collect();
        assert!(falls.is_empty(), "tokens did not rise: {falls:?}");
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
            tokens.len(),
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

/// Lets everybody contend while the killer is at it, and answers with what went wrong.
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

/// The words of a run whose command works until its input ends.
fn lasting<'a>(witness: &'a str, log: &'a str, wait: &'a str) -> Vec<&'a str> {
    let command = ["--", "bash", "-c", WORK_ON, witness, log];
    [&["run", NAME, "--wait", wait], &command[..]].concat()
}

mod contention {
    use super::*;

    #[test]
    fn of_runs_that_are_killed_and_stopped_at_random() {
        for tool in ["bash", "flock"] {
            need(tool);
        }
        let (extent, seed, began) = (Extent::of_environment(), seed(), instant());
        println!("TENURE_SEED={seed}, {extent:?}");
        let arena = Arena::new(extent.contenders);
        let faults = contend(&arena, extent, seed, |slot, _, _, random| {
            arena.run_once(slot, random)
        });
        assert!(faults.is_empty(), "TENURE_SEED={seed}: {faults:#?}");
        arena.verify("runs", seed, began);
    }

    #[test]
    fn of_runs_and_owners_that_release_or_die() {
        for tool in ["bash", "flock"] {
            need(tool);
        }
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
        for tool in ["bash", "flock"] {
            need(tool);
        }
        let site = Site::new();
        let (witness, log) = (site.witness(), site.path("log"));
        let words = lasting(word(&witness), word(&log), "30s");
        let mut holder = Process::start_with_input(site.tenure(words));
        Started::of(holder.line().expect("a line")).expect("a holder");
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

    #[test]
    fn waits_for_the_command_of_a_killed_supervisor() {
        for tool in ["bash", "flock"] {
            need(tool);
        }
        let site = Site::new();
        let (witness, log) = (site.witness(), site.path("log"));
        let words = lasting(word(&witness), word(&log), "30s");
        let mut holder = Process::start_with_input(site.tenure(words.iter().copied()));
        let first = Started::of(holder.line().expect("a line")).expect("a holder");
        let mut waiter = Process::start(site.tenure(words));
        assert!(
            waiter.says("waiting up to").expect("a line"),
            "it has to wait"
        );
        let input = holder.take_input().expect("the command's input");
        holder.kill(Signal::KILL);
        assert!(was_killed(holder.wait().expect("an end")), "it was killed");
        assert!(
            waiter.is_silent_for(Duration::from_millis(300)),
            "the waiter began to work while the command of the killed supervisor did"
        );
        let standing = site.check().expect("an answer");
        assert!(standing.is_held(), "its command is at work: {standing:?}");
        let began = instant();
        drop(input);
        let second = Started::of(waiter.line().expect("a line")).expect("the waiter works");
        let took = instant().saturating_duration_since(began);
        println!("from the end of an orphaned command to the next one's work: {took:?}");
        assert!(second.token > first.token, "the token has risen");
        assert!(
            waiter.wait().expect("an end").success(),
            "the waiter ends well"
        );
    }

    /// Off a terminal there is no shell that would continue a supervisor which stopped together
    /// with its command.
    #[test]
    fn goes_on_after_a_command_that_was_stopped_for_a_while() {
        for tool in ["bash", "flock"] {
            need(tool);
        }
        let site = Site::new();
        let (witness, log) = (site.witness(), site.path("log"));
        let words = lasting(word(&witness), word(&log), "30s");
        let mut holder = Process::start_with_input(site.tenure(words.iter().copied()));
        let first = Started::of(holder.line().expect("a line")).expect("a holder");
        let mut waiter = Process::start(site.tenure(words));
        assert!(
            waiter.says("waiting up to").expect("a line"),
            "it has to wait"
        );
        let own = holder.pid().as_raw_nonzero().get().unsigned_abs();
        let parent = stat_of(first.command).map(|(_, parent, _)| parent);
        assert_eq!(parent, Some(own), "the command is the holder's child");
        let group = i32::try_from(first.command).ok().and_then(Pid::from_raw);
        let group = group.expect("a group");
        kill_process_group(group, Signal::STOP).expect("a live command");
        eventually("the stop of the command", || {
            stat_of(first.command).is_some_and(|(state, ..)| state == 'T')
        })
        .expect("a stopped command");
        // What the supervisor does about it, it does at once.
        assert!(
            waiter.is_silent_for(Duration::from_millis(100)),
            "the waiter began to work beside a command that is only stopped"
        );
        kill_process_group(group, Signal::CONT).expect("a live command");
        holder.end_input();
        let line = waiter.line();
        // Whatever came of it, nothing stays behind.
        holder.kill(Signal::CONT);
        let second = Started::of(line.unwrap_or_else(|fault| {
            panic!("the command was continued and has ended, and nobody gets the lock: {fault}")
        }));
        let second = second.expect("the waiter works");
        assert!(second.token > first.token, "the token has risen");
        for process in [&mut holder, &mut waiter] {
            assert!(process.wait().expect("an end").success(), "it ends well");
        }
    }

    #[test]
    fn goes_on_at_once_after_a_killed_run() {
        for tool in ["bash", "flock"] {
            need(tool);
        }
        let mut all = Vec::new();
        for _ in 0..20 {
            let site = Site::new();
            let (witness, log) = (site.witness(), site.path("log"));
            let words = lasting(word(&witness), word(&log), "30s");
            let mut holder = Process::start_with_input(site.tenure(words.iter().copied()));
            let first = Started::of(holder.line().expect("a line")).expect("a holder");
            let mut waiter = Process::start(site.tenure(words));
            assert!(
                waiter.says("waiting up to").expect("a line"),
                "it has to wait"
            );
            let own = holder.pid().as_raw_nonzero().get().unsigned_abs();
            let parent = stat_of(first.command).map(|(_, parent, _)| parent);
            assert_eq!(parent, Some(own), "the command is the holder's child");
            let group = i32::try_from(first.command).ok().and_then(Pid::from_raw);
            holder.kill(Signal::KILL);
            kill_process_group(group.expect("a group"), Signal::KILL).expect("a live command");
            let began = instant();
            let second = Started::of(waiter.line().expect("a line")).expect("the waiter works");
            let took = instant().saturating_duration_since(began);
            assert!(
                took < Duration::from_millis(500),
                "the lock of a run that was killed as a whole was free only after {took:?}"
            );
            all.push(took);
            assert!(second.token > first.token, "the token has risen");
            assert!(
                waiter.wait().expect("an end").success(),
                "the waiter ends well"
            );
            holder.wait().expect("an end");
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
