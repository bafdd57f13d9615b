//! Everything at once, at random: processes that run, acquire, release, renew, force, cancel and
//! clean, native and in every profile, while they are killed, stopped and signalled and the wall clock
//! is set back and forth; and a witness that knows nothing of the locks.
//!
//! ```text
//! cargo test -p tenure-cli --features testing-clock --test torture -- --seconds 600 --seed 7
//! ```
//!
//! `--seconds` is 15 unless it is given, `--long` is 600; without `--seed` (or `TENURE_SEED`) one is drawn
//! and printed; `--workers` is how many callers there are (12); `--over` says which storm it is (`preset`):
//! `files`, the default, is all locks in one folder; `native` and `profiles` are parts of that, `etcd` is a
//! server that the test starts. `runs`, `slots`, `owners`, `records` and `aged` are one kind of lock that
//! all want, for some rounds of each worker and with a clock that stands still. Each of these is a test named
//! `contention::NAME`, and eight times as long with `TENURE_CONTENTION=long`.
//!
//! Each worker draws its decisions from the seed and its own number, so the same seed is
//! the same sequence of calls and strikes for each of them. The moments at which they meet differ from
//! run to run. Exit 1, with the seed, if anything is not as it has to be; the folder with the journal is
//! kept then.
//!
//! # The witness
//! Each process that works under a lock keeps files locked with flock(2), taken without waiting
//! (`witness`). It appends its token to a journal while it has them. The kernel says whether two worked
//! at once, and the order of the lines is the order of the work.
//!
//! # Surroundings
//! Every third call has worse ones than a test usually gives (`surroundings`). Its stderr is a pipe that
//! is full for ever, a terminal on which Ctrl-S was typed, or one that takes a few bytes at a time. Its
//! caller has blocked the signals that a supervisor lives by.
//!
//! # What is no violation
//! What the documents allow: an overridden `acquire` (it has to learn of it at its next heartbeat),
//! and, where a supervisor was killed, processes that had closed all that they inherited. And while the
//! clock stands behind what it was by more than a fleet record's ttl, such a record may be refused as one
//! from the future (`worker`, `future`).
//!
//! Over etcd no supervisor is killed without its command: nothing there protects a command that goes on
//! alone, which the documents say. A call with the code `80` there has lost its lease, as a process does
//! that the machine did not let work for as long as the ttl.
//!
//! # Two versions
//! With `TORTURE_BESIDE=PATH` every second call is made with the program of that path, such as the release before
//! (`scripts/try-versions`).
//!
//! Left out: Windows. Killing, stopping and signalling are done as Unix does it.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the figures are for reading"
)]

#[cfg(all(unix, feature = "etcd"))]
#[path = "../../../tenure/tests/etcd/server.rs"]
#[allow(
    dead_code,
    clippy::expect_used,
    clippy::panic,
    reason = "the library's tests use the rest of it; without a server there is nothing to try"
)]
mod server;

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
mod preset;
#[cfg(unix)]
mod random;
#[cfg(unix)]
mod surroundings;
#[cfg(unix)]
mod verdict;
#[cfg(unix)]
mod versions;
#[cfg(unix)]
mod witness;
#[cfg(unix)]
mod worker;
#[cfg(unix)]
mod world;

#[cfg(unix)]
use preset::{Extent, PRESETS, Preset};
#[cfg(unix)]
use std::process::ExitCode;
#[cfg(unix)]
use std::time::Duration;
#[cfg(unix)]
use world::World;

/// No storm of rounds lasts longer.
#[cfg(unix)]
const NIGHT: u64 = 12 * 3_600;

/// What is asked for.
#[cfg(unix)]
#[derive(Debug, Clone, Copy)]
struct Options {
    seed: u64,
    preset: Preset,
}

#[cfg(unix)]
fn options(words: &[String]) -> Result<Options, String> {
    let (mut named, mut seed) = (PRESETS[0].name, random::seed());
    let (mut seconds, mut workers) = (None, None);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut number = || {
            let text = words.next().ok_or(format!("{word} wants a number"))?;
            let number = text.parse::<u64>();
            number.map_err(|_| format!("{word} wants a number, not {text:?}"))
        };
        match word.as_str() {
            "--seconds" => seconds = Some(number()?),
            "--seed" => seed = number()?,
            "--workers" => workers = Some(number()?.max(1)),
            "--long" => seconds = Some(600),
            "--over" => named = words.next().ok_or("--over wants a name")?,
            // What cargo and nextest say to every test.
            "--exact" | "--nocapture" | "--quiet" => {}
            // A test is named as well.
            other => named = other,
        }
    }
    let preset = Preset::of_name(named);
    let mut preset = preset.ok_or(format!("{named}: no such option or storm"))?;
    if std::env::var("TENURE_CONTENTION").as_deref() == Ok("long") {
        preset = preset.at_length();
    }
    preset.extent = seconds.map_or(preset.extent, Extent::Seconds);
    preset.workers = workers.unwrap_or(preset.workers);
    Ok(Options { seed, preset })
}

/// The etcd of a run that wants one.
#[cfg(all(unix, feature = "etcd"))]
struct Etcd(server::Server);

#[cfg(all(unix, feature = "etcd"))]
impl Etcd {
    #[allow(
        clippy::unnecessary_wraps,
        reason = "a build without etcd has a reason to refuse"
    )]
    fn start(preset: &Preset) -> Result<Option<Self>, String> {
        Ok((preset.is_over_etcd).then(|| Self(server::Server::start())))
    }

    fn url(&self) -> String {
        format!("etcd://{}/torture", self.0.endpoint())
    }
}

#[cfg(all(unix, not(feature = "etcd")))]
enum Etcd {}

#[cfg(all(unix, not(feature = "etcd")))]
impl Etcd {
    fn start(preset: &Preset) -> Result<Option<Self>, String> {
        if preset.is_over_etcd {
            return Err("--over etcd wants a build with --features etcd".to_owned());
        }
        Ok(None)
    }

    fn url(&self) -> String {
        match *self {}
    }
}

#[cfg(unix)]
fn torture(Options { seed, preset }: Options) -> Result<bool, String> {
    let server = Etcd::start(&preset)?;
    let store = server.as_ref().map(Etcd::url);
    let world = World::new(seed, preset, store);
    let world = world.map_err(|error| format!("no folder: {error}"))?;
    let Preset {
        name,
        workers,
        extent,
        ..
    } = preset;
    println!("seed {seed}, {extent:?}, {workers} workers, over {name}");
    if !detached::is_witnessed(&world) {
        return Err("the witness does not see two who work at once".to_owned());
    }
    if !clock::is_taken(&world) {
        return Err("the binary does not take the clock that it is given".to_owned());
    }
    let seconds = match extent {
        Extent::Seconds(seconds) => seconds,
        Extent::Rounds(_) => NIGHT,
    };
    let until = tenure_os::clock::instant() + Duration::from_secs(seconds);
    std::thread::scope(|scope| {
        for number in 0..workers {
            let world = &world;
            scope.spawn(move || worker::work(world, number, until));
        }
        if let Extent::Seconds(_) = extent {
            let mut random = random::Random::new(seed, workers);
            clock::steps(&world, &mut random, until);
        }
    });
    Ok(verdict::pass(world))
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
            for preset in PRESETS.iter().filter(|preset| preset.is_test()) {
                println!("{}: test", preset.test());
            }
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
