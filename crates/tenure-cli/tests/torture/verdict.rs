//! What has to hold when all have left, and the figures.

use crate::call::{NATIVE, Profile};
use crate::journal::now_ns;
use crate::worker::since_ns;
use crate::world::{World, locked};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;
use tenure_os::clock::instant;

/// How long whatever was left to itself may take to end: orphans, and daemons.
const SETTLES: Duration = Duration::from_secs(20);

/// How many lines of the journal are shown with a violation.
const SHOWN: usize = 40;

/// Checks, prints, and answers whether all is as it has to be.
pub(crate) fn pass(world: World) -> bool {
    left_behind(&world);
    stuck(&world);
    let mut read = read_journal(&world);
    read.recoveries_us.sort_unstable();
    nothing_was_tried(&world, &read);
    let violations = locked(&world.violations).len();
    print(&world, &read, violations);
    if violations == 0 {
        return true;
    }
    let World { root, seed, .. } = world;
    eprintln!("\n{violations} violations; --seed {seed}; the last events before the first:");
    let journal = std::fs::read_to_string(root.path().join("journal")).unwrap_or_default();
    let lines: Vec<&str> = journal.lines().collect();
    let is_one = |line: &&str| line.contains(" violation ") || line.contains(" overlap w");
    let first = lines.iter().position(is_one);
    let end = first.map_or(lines.len(), |at| at + 5).min(lines.len());
    for line in &lines[end.saturating_sub(SHOWN)..end] {
        eprintln!("  {line}");
    }
    eprintln!("all of it: {}", root.keep().display());
    false
}

/// The table, and one line for programs.
fn print(world: &World, read: &Read, violations: usize) {
    let (counts, answers) = (world.counts(), world.answers());
    let of = |name: &str| counts.get(name).copied().unwrap_or(0);
    let kills: u64 = sum(&counts, "kills: ");
    let recoveries = &read.recoveries_us;
    let percentile = |hundredths: usize| {
        let at = (recoveries.len() * hundredths / 100).min(recoveries.len().saturating_sub(1));
        recoveries.get(at).copied().unwrap_or(0)
    };
    let ms = |micros: u64| format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100);
    let line = |what: &str, figure: String| println!("  {what:<42} {figure}");
    println!();
    line("calls, and how they ended", of("calls").to_string());
    for (kind, ends) in &answers {
        let ends: Vec<String> = ends
            .iter()
            .map(|(end, count)| format!("{end}: {count}"))
            .collect();
        println!("    {kind:<24} {}", ends.join(", "));
    }
    for (name, count) in counts
        .iter()
        .filter(|(name, _)| name.starts_with("kills: "))
    {
        line(name, count.to_string());
    }
    for (name, count) in counts
        .iter()
        .filter(|(name, _)| name.starts_with("around: "))
    {
        line(name, count.to_string());
    }
    line("stopped and continued", of("stopped").to_string());
    line("signalled", of("signalled").to_string());
    let set = ["clock: set forward", "clock: set back"].map(of);
    line(
        "the clock set forward / back",
        format!("{} / {}", set[0], set[1]),
    );
    line(
        "refused as a record from the future",
        of("clock: refused as from the future").to_string(),
    );
    line("began to work under a lock", read.begun.to_string());
    line("two at once", read.overlaps.to_string());
    line("tokens that did not rise", read.token_faults.to_string());
    line("survivors of a forced end", read.survivors.to_string());
    line("stuck", of("stuck").to_string());
    line(
        "waited for the end of a killed process",
        read.dying.to_string(),
    );
    let figures = [
        ("median", percentile(50)),
        ("p99", percentile(99)),
        ("longest", percentile(100)),
    ];
    let figures = figures.map(|(name, figure)| format!("{name} {}", ms(figure)));
    let figures = format!("{}, of {}", figures.join(", "), recoveries.len());
    line("from a death at work to the next at work", figures);
    line("violations", violations.to_string());
    println!(
        "\n{}",
        json!({
            "seed": world.seed,
            "extent": format!("{:?}", world.preset.extent),
            "over": world.preset.name,
            "surrounded": sum(&counts, "around: "),
            "calls": of("calls"),
            "begun": read.begun,
            "kills": kills,
            "stops": of("stopped"),
            "signals": of("signalled"),
            "clock_forward": set[0],
            "clock_back": set[1],
            "from_the_future": of("clock: refused as from the future"),
            "overlaps": read.overlaps,
            "token_faults": read.token_faults,
            "survivors": read.survivors,
            "stuck": of("stuck"),
            "dying": read.dying,
            "recoveries": recoveries.len(),
            "recovery_p50_us": percentile(50),
            "recovery_p99_us": percentile(99),
            "violations": violations,
            "answers": answers,
        })
    );
}

/// A storm in which no process worked or was struck shows nothing, and neither does one of slots that leaves a
/// number out.
fn nothing_was_tried(world: &World, read: &Read) {
    let counts = world.counts();
    // A short storm of records that outlive their process draws few kills, and now and then none.
    let strikes = ["kills: ", "signalled", "stopped"].map(|kind| sum(&counts, kind));
    if read.begun == 0 || strikes.iter().sum::<u64>() == 0 {
        world.violation(format!("{} began to work, of {counts:?}", read.begun));
    }
    if !read.numbers.is_empty() && read.numbers.len() != 4 {
        world.violation(format!("not all slots were used: {:?}", read.numbers));
    }
}

fn sum(counts: &BTreeMap<String, u64>, prefix: &str) -> u64 {
    counts
        .iter()
        .filter(|(name, _)| name.starts_with(prefix))
        .map(|(_, count)| count)
        .sum()
}

/// The processes whose words name the folder, apart from those that only wait to be collected.
fn processes(world: &World) -> Vec<String> {
    let root = world.root.path().to_string_lossy().into_owned();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok())
        .filter_map(|entry| {
            let words = std::fs::read(entry.path().join("cmdline")).ok()?;
            let words = String::from_utf8_lossy(&words).replace('\0', " ");
            words
                .contains(&root)
                .then(|| format!("{} {words}", entry.file_name().to_string_lossy()))
        })
        .collect()
}

fn left_behind(world: &World) {
    let until = instant() + SETTLES;
    let mut left = processes(world);
    while !left.is_empty() && instant() < until {
        std::thread::sleep(Duration::from_millis(50));
        left = processes(world);
    }
    for process in left {
        world.violation(format!(
            "still there {SETTLES:?} after all is over: {process}"
        ));
    }
}

fn answer(world: &World, command: &mut Command, what: &str) -> String {
    let began = now_ns();
    match command.output() {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
        other => {
            world.count("stuck");
            world.violation(format!(
                "STUCK: {what} after {:?}: {other:?}",
                since_ns(began)
            ));
            String::new()
        }
    }
}

/// Every lock can be had again, and afterwards nothing is left of any.
///
/// First by a clock that stands before all that was done: our own holds age by the boot clock, so dead
/// holders are found to be dead. A fleet's record from its future is refused by that format's rule, so
/// that lock has to be had once the clock is right again.
fn stuck(world: &World) {
    set(world, world.clock.set_after_all());
    let profiles = world.preset.profiles;
    for profile in [Profile::Session, Profile::Fleet] {
        if profiles.contains(&profile) {
            dies(world, profile);
        }
    }
    set(world, world.clock.set_before_all());
    for name in NATIVE {
        let words = ["run", name, "-w", "5s", "--", "true"];
        let _ = answer(
            world,
            &mut world.tenure(&words),
            &format!("{name} is not to be had"),
        );
    }
    for profile in [Profile::Sprint, Profile::Resume, Profile::Session] {
        if profiles.contains(&profile) {
            is_to_be_had(world, profile);
        }
    }
    set(world, world.clock.set_after_all());
    if profiles.contains(&Profile::Fleet) {
        is_to_be_had(world, Profile::Fleet);
    }
    flock_and_clean(world);
}

fn set(world: &World, result: std::io::Result<()>) {
    if let Err(error) = result {
        world.violation(format!("the clock cannot be set: {error}"));
    }
}

/// A run of a lock of a profile.
fn run_of(world: &World, profile: Profile, command: &[&str]) -> Command {
    let (lock, more) = profile.lock();
    // What a killed sprint left behind is refused until it is forced.
    let force: &[&str] = match profile {
        Profile::Sprint => &["--force"],
        _ => &[],
    };
    let place = world.place(profile);
    let place: Vec<&str> = place.iter().map(String::as_str).collect();
    let words = [
        &["run", lock],
        &place[..],
        more,
        force,
        &["-w", "10s", "--"],
    ]
    .concat();
    let mut run = world.tenure(&words);
    run.args(command);
    run
}

fn is_to_be_had(world: &World, profile: Profile) {
    let mut run = run_of(world, profile, &["true"]);
    let _ = answer(world, &mut run, &format!("{profile:?} is not to be had"));
}

/// Leaves a record whose holder is dead, supervisor and command.
fn dies(world: &World, profile: Profile) {
    let command = ["sh", "-c", "kill -KILL $PPID $$"];
    let answer = run_of(world, profile, &command).output();
    let signal = answer.as_ref().ok().and_then(|out| out.status.signal());
    if signal != Some(9) {
        world.count("stuck");
        world.violation(format!("STUCK: {profile:?} is not to be had: {answer:?}"));
    }
}

fn flock_and_clean(world: &World) {
    let file = world.path("locked-file");
    let mut flock = world.program("flock");
    flock.arg("-w").arg("5").arg(file).arg("true");
    let _ = answer(world, &mut flock, "the flock(1) is not to be had");
    for &profile in world.preset.profiles {
        let mut words = world.place(profile);
        words.insert(0, "clean".to_owned());
        let _ = answer(
            world,
            &mut world.tenure(&words),
            &format!("clean {profile:?}"),
        );
        "list".clone_into(&mut words[0]);
        words.extend(["--output".to_owned(), "json".to_owned()]);
        let said = answer(
            world,
            &mut world.tenure(&words),
            &format!("list {profile:?}"),
        );
        let document: serde_json::Value = serde_json::from_str(&said).unwrap_or_default();
        let locks = document["data"]["locks"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        // The call of an agent that was killed may find the process above it that adopted it. A place
        // that is kept for that process is kept for its minute.
        let is_kept = |lock: &serde_json::Value| {
            let queue = lock["queue"].as_array();
            let is_away = |place: &serde_json::Value| place["away"] == true;
            lock["holder"].is_null()
                && queue.is_some_and(|queue| !queue.is_empty() && queue.iter().all(is_away))
        };
        for lock in locks.iter().filter(|lock| !is_kept(lock)) {
            world.violation(format!("left after clean, {profile:?}: {lock}"));
        }
    }
}

/// What the journal says.
#[derive(Default)]
struct Read {
    begun: u64,
    overlaps: u64,
    token_faults: u64,
    survivors: u64,
    /// Looks at a witness that a killed process had not let go of yet.
    dying: u64,
    recoveries_us: Vec<u64>,
    /// Slots of the lock that many want.
    numbers: BTreeSet<String>,
}

fn read_journal(world: &World) -> Read {
    let text = std::fs::read_to_string(world.path("journal")).unwrap_or_default();
    let mut read = Read::default();
    // By lock: the highest token, and the highest of an exclusive hold.
    let mut tops: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut asked: BTreeMap<&str, u64> = BTreeMap::new();
    let mut dead: BTreeMap<&str, u64> = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let at = words
            .first()
            .and_then(|word| word.parse().ok())
            .unwrap_or(0_u64);
        match words.get(1..).unwrap_or_default() {
            // The trial of the witness.
            [_, call, ..] if call.starts_with("trial-") => {}
            ["ask", call, ..] => {
                let _ = asked.insert(call, at);
            }
            ["dead", _, name] => {
                let _ = dead.insert(name, at);
            }
            ["in", call, _, name, mode, token, _] => {
                read.begun += 1;
                let token: u64 = token.parse().unwrap_or(0);
                if *name == "N" {
                    read.numbers
                        .extend(mode.split_once('=').map(|(_, it)| it.to_owned()));
                }
                if let Some(death) = dead.remove(name)
                    && asked.get(call).is_some_and(|asked| *asked < death)
                {
                    let took = Duration::from_nanos(at - death);
                    read.recoveries_us.push((at - death) / 1_000);
                    if (world.preset.recovery_max(name)).is_some_and(|max| took > max) {
                        world.violation(format!("RECOVERY only after {took:?}: {line}"));
                    }
                }
                let top = tops.entry(name).or_default();
                let is_alone = mode.starts_with("Exclusive") || mode.starts_with("AllSlots");
                let least = if is_alone { top.0 } else { top.1 };
                // flock(1) has none.
                if *name != "flock" && token <= least {
                    read.token_faults += 1;
                    world.violation(format!("TOKEN: not above {least}: {line}"));
                }
                top.0 = top.0.max(token);
                if is_alone {
                    top.1 = top.1.max(token);
                }
            }
            ["overlap", ..] => {
                read.overlaps += 1;
                world.violation(format!("OVERLAP: {line}"));
            }
            ["dying", ..] => read.dying += 1,
            ["survivor", ..] => {
                read.survivors += 1;
                world.violation(format!("SURVIVOR of a forced end: {line}"));
            }
            ["nested", call, ..] if !world.path("excused").join(call).exists() => {
                world.violation(format!(
                    "an answer that the nested call cannot have: {line}"
                ));
            }
            ["broken", ..] => world.violation(format!("a hand that could not: {line}")),
            _ => {}
        }
    }
    read
}
