//! Everything at once, at random: processes that run, acquire, release, renew, force, cancel and
//! clean, native and in every profile, while they are killed, stopped and signalled and the wall clock
//! is set back and forth; and a witness that knows nothing of the locks.
//!
//! ```text
//! cargo test -p tenure-cli --features testing-clock --test torture -- --seconds 600 --seed 7
//! ```
//!
//! `--seconds` is 15 unless it is given, `--long` is 600; without `--seed` one is drawn and printed;
//! `--workers` is how many callers there are (12). Each worker draws its decisions from the seed
//! and its own number, so the same seed is the same sequence of calls and strikes for each of them;
//! at which moments they meet is the machine's affair. Exit 1, with the seed, if anything is not as
//! it has to be; the folder with the journal is kept then.
//!
//! # The witness
//! Whoever works under a lock keeps files locked with flock(2), taken without waiting (`witness`),
//! and appends its token to a journal while it has them. The kernel says whether two worked at
//! once, and the order of the lines is the order of the work.
//!
//! # What is no violation
//! What the documents allow: an overridden `acquire` (it has to learn of it at its next heartbeat),
//! and, where a supervisor was killed, processes that had closed all that they inherited. And while the
//! clock stands behind what it was by more than a fleet record's ttl, such a record may be refused as one
//! from the future (`worker`, `future`).
//!
//! Left out: Windows. Killing, stopping and signalling are done as Unix does it.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the figures are for reading"
)]

#[cfg(unix)]
mod call;
#[cfg(unix)]
mod clock;
#[cfg(unix)]
mod detached;
#[cfg(unix)]
mod hand;
#[cfg(unix)]
mod journal;
#[cfg(unix)]
mod random;
#[cfg(unix)]
mod verdict;
#[cfg(unix)]
mod witness;
#[cfg(unix)]
mod worker;
#[cfg(unix)]
mod world;

#[cfg(unix)]
use std::process::ExitCode;
#[cfg(unix)]
use std::time::Duration;
#[cfg(unix)]
use world::World;

/// What is asked for.
#[cfg(unix)]
#[derive(Debug, Clone, Copy)]
struct Options {
    seconds: u64,
    seed: u64,
    workers: u64,
}

#[cfg(unix)]
fn options(words: &[String]) -> Result<Options, String> {
    let mut options = Options {
        seconds: 15,
        seed: random::drawn(),
        workers: 12,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut number = || {
            let text = words.next().ok_or(format!("{word} wants a number"))?;
            let number = text.parse::<u64>();
            number.map_err(|_| format!("{word} wants a number, not {text:?}"))
        };
        match word.as_str() {
            "--seconds" => options.seconds = number()?,
            "--seed" => options.seed = number()?,
            "--workers" => options.workers = number()?.max(1),
            "--long" => options.seconds = 600,
            // What cargo and nextest say to every test.
            "--exact" | "--nocapture" | "--quiet" | "torture" => {}
            other => return Err(format!("{other}: no such option of this test")),
        }
    }
    Ok(options)
}

#[cfg(unix)]
fn torture(options: Options) -> Result<bool, String> {
    let world = World::new(options.seed).map_err(|error| format!("no folder: {error}"))?;
    println!(
        "seed {}, {} s, {} workers",
        options.seed, options.seconds, options.workers
    );
    if !detached::is_witnessed(&world) {
        return Err("the witness does not see two who work at once".to_owned());
    }
    if !clock::is_taken(&world) {
        return Err("the binary does not take the clock that it is given".to_owned());
    }
    let until = tenure::clock::instant() + Duration::from_secs(options.seconds);
    std::thread::scope(|scope| {
        for number in 0..options.workers {
            let world = &world;
            scope.spawn(move || worker::work(world, number, until));
        }
        let mut random = random::Random::new(options.seed, options.workers);
        clock::steps(&world, &mut random, until);
    });
    Ok(verdict::pass(world, options.seconds))
}

#[cfg(unix)]
fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("hand", plan)) = words
        .split_first()
        .map(|(word, rest)| (word.as_str(), rest))
    {
        return ExitCode::from(hand::main(plan));
    }
    // As nextest asks for the tests.
    if words.iter().any(|word| word == "--list") {
        if !words.iter().any(|word| word == "--ignored") {
            println!("torture: test");
        }
        return ExitCode::SUCCESS;
    }
    match options(&words).and_then(torture) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(why) => {
            eprintln!("torture: {why}");
            ExitCode::from(2)
        }
    }
}

#[cfg(not(unix))]
fn main() {
    println!("skipped: it kills, stops and signals as Unix does");
}
