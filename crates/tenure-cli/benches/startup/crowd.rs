//! Many contenders that loop without thinking: how many holds a second, how long the unluckiest
//! waits, and what it costs in processor time.
//!
//! Each contender is a thread here that starts one process after the other until the time is up;
//! what is counted is what began while all of them were at it.

use super::{Bench, FLOCK, Hold, Outcome, now, read_holds};
use rustix::param::clock_ticks_per_second;
use std::fs::{self, File, OpenOptions};
use std::thread;
use std::time::Duration;

/// How many contend.
const CROWDS: [usize; 4] = [2, 8, 32, 100];

/// What one tool showed with one crowd.
pub(super) struct Crowd {
    label: String,
    contenders: usize,
    holds_per_second: f64,
    median: Duration,
    longest: Duration,
    /// Processor time of all processes, per hold.
    processor: Duration,
}

/// What the tools are called, in the order in which they take turns.
pub(super) fn measure(
    bench: &Bench,
    labels: &[String],
    lasts: Duration,
    blocks: usize,
) -> Outcome<Vec<Crowd>> {
    let mut crowds = Vec::new();
    for contenders in CROWDS {
        let mut blocks_of: Vec<(String, Vec<Block>)> = labels
            .iter()
            .map(|label| (label.clone(), Vec::new()))
            .collect();
        for _ in 0..blocks {
            for (label, measured) in &mut blocks_of {
                measured.push(block(bench, label, contenders, lasts)?);
            }
        }
        for (label, measured) in blocks_of {
            crowds.push(Crowd::of(label, contenders, &measured));
        }
    }
    Ok(crowds)
}

/// A stretch of contention.
struct Block {
    holds: usize,
    lasted: Duration,
    waits: Vec<Duration>,
    processor: Duration,
}

impl Crowd {
    fn of(label: String, contenders: usize, blocks: &[Block]) -> Self {
        let holds: usize = blocks.iter().map(|block| block.holds).sum();
        let lasted: Duration = blocks.iter().map(|block| block.lasted).sum();
        let processor: Duration = blocks.iter().map(|block| block.processor).sum();
        let mut waits: Vec<Duration> = blocks
            .iter()
            .flat_map(|block| block.waits.clone())
            .collect();
        waits.sort_unstable();
        let counted = u32::try_from(holds.max(1)).unwrap_or(u32::MAX);
        Self {
            label,
            contenders,
            holds_per_second: f64::from(counted) / lasted.as_secs_f64().max(1e-9),
            median: waits.get(waits.len() / 2).copied().unwrap_or_default(),
            longest: waits.last().copied().unwrap_or_default(),
            processor: processor / counted,
        }
    }
}

fn block(bench: &Bench, label: &str, contenders: usize, lasts: Duration) -> Outcome<Block> {
    let log = bench.place.path().join("crowd.log");
    File::create(&log)?;
    let silent = OpenOptions::new().write(true).open("/dev/null")?;
    let mut commands = Vec::new();
    for contender in 0..contenders {
        let work = bench.stamping(&log, u64::try_from(contender)?, Duration::ZERO);
        let mut command = bench
            .wrappers(&work)
            .into_iter()
            .find_map(|(candidate, command)| (candidate == label).then_some(command))
            .ok_or("a contestant disappeared")?;
        command.stderr(silent.try_clone()?);
        commands.push(command);
    }
    let before = processor_time();
    let begun = now();
    let end = begun + lasts;
    let spawned: Vec<Vec<Duration>> = thread::scope(|scope| -> Outcome<_> {
        let running: Vec<_> = commands
            .into_iter()
            .map(|mut command| {
                scope.spawn(move || -> Result<Vec<Duration>, String> {
                    let mut spawned = Vec::new();
                    while now() < end {
                        spawned.push(now());
                        let ended = command.spawn().and_then(|mut child| child.wait());
                        match ended {
                            Ok(status) if status.success() => {}
                            Ok(status) => return Err(status.to_string()),
                            Err(error) => return Err(error.to_string()),
                        }
                    }
                    Ok(spawned)
                })
            })
            .collect();
        let mut all = Vec::new();
        for thread in running {
            let ended = thread.join().map_err(|_| "a contender's thread failed")?;
            all.push(ended.map_err(|why| format!("{label} failed under contention: {why}"))?);
        }
        Ok(all)
    })?;
    let processor = processor_time().saturating_sub(before);
    let holds = read_holds(&log)?;
    let all = holds.len();
    let counted = |hold: &&Hold| hold.start < end;
    // A contender's holds stand in the log in the order in which it began to want them.
    let waits = spawned.iter().enumerate().flat_map(|(contender, spawned)| {
        let own = u64::try_from(contender).unwrap_or(u64::MAX);
        let own = holds.iter().filter(move |hold| hold.contender == own);
        own.zip(spawned)
            .map(|(hold, spawned)| hold.start.saturating_sub(*spawned))
    });
    let waits = waits.collect();
    let in_time = holds.iter().filter(counted).count();
    Ok(Block {
        holds: in_time,
        lasted: lasts,
        waits,
        // What came after the time was up has cost as much as what came before.
        processor: processor.mul_f64(count(in_time) / count(all.max(1))),
    })
}

/// Processor time of all children that have ended, and of theirs, to a hundredth of a second.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in brackets may contain anything; what follows it begins with the third field.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = rest.split_whitespace().skip(13);
    let mut ticks = || fields.next().and_then(|field| field.parse::<u64>().ok());
    let (user, system) = (ticks().unwrap_or(0), ticks().unwrap_or(0));
    Duration::from_millis((user + system) * 1_000 / clock_ticks_per_second())
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

/// The table.
pub(super) fn print(crowds: &[Crowd]) {
    println!(
        "\nMany contenders loop without thinking; *wait* is from the start of a contender's process to \
         the first\ninstruction of its command, the ideal longest wait that of everybody once:\n"
    );
    println!(
        "| contenders | lock | holds/s | × flock(1) | wait, median (ms) | longest (ms) | longest / ideal | processor time per hold (µs) | × flock(1) |"
    );
    println!("|--:|---|--:|--:|--:|--:|--:|--:|--:|");
    for crowd in crowds {
        let peer = crowds
            .iter()
            .find(|other| other.label == FLOCK && other.contenders == crowd.contenders);
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        let ideal = count(crowd.contenders) / crowd.holds_per_second.max(1e-9);
        let by = |own: f64, other: Option<f64>| match other {
            Some(other) if other > 0.0 => format!("{:.2}", own / other),
            _ => "–".to_owned(),
        };
        println!(
            "| {} | {} | {:.0} | {} | {:.1} | {:.1} | {:.1} | {:.0} | {} |",
            crowd.contenders,
            crowd.label,
            crowd.holds_per_second,
            by(
                crowd.holds_per_second,
                peer.map(|peer| peer.holds_per_second)
            ),
            millis(crowd.median),
            millis(crowd.longest),
            crowd.longest.as_secs_f64() / ideal.max(1e-9),
            crowd.processor.as_secs_f64() * 1e6,
            by(
                crowd.processor.as_secs_f64(),
                peer.map(|peer| peer.processor.as_secs_f64())
            ),
        );
    }
}
