//! What works under a lock: takes the witness, writes itself down, perhaps leaves a daemon or calls
//! `tenure` itself, and ends. The same program as the test, called as `hand PLAN`.
//!
//! The hand trusts nothing that the lock says but the token, which it writes down for others to judge.

use crate::journal::Journal;
use crate::versions;
use crate::witness::{self, Mode, Resource};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Two worked at once.
pub(crate) const OVERLAP: u8 = 97;
/// The hand itself could not do what it had to.
pub(crate) const BROKEN: u8 = 96;
/// A reentrant run was given another token than the run around it.
pub(crate) const OTHER_TOKEN: u8 = 98;

/// How often an agent with short waits asks.
const ATTEMPTS: u32 = 60;

/// What a daemon does with what it inherits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Daemon {
    /// Keeps it.
    Inherits,
    /// Closes all of it, and ignores every signal that asks.
    Closes,
}

/// Who a hand is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Role {
    /// The command of a run.
    Work,
    /// The owner of an `acquire`: works from the token that it is told to the next line.
    Own,
    /// Left behind by a command.
    Daemon,
    /// Goes on under the lock that the run around it holds.
    Reenter,
    /// Calls again and again until it gets the lock, as an agent with short waits does.
    Insist,
}

/// What a hand does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) role: Role,
    pub(crate) root: PathBuf,
    pub(crate) call: String,
    pub(crate) resources: Vec<Resource>,
    pub(crate) pause_ms: u64,
    pub(crate) code: u8,
    pub(crate) daemon: Option<Daemon>,
    /// The lock is kept until all that was started has ended, so the witness is as well.
    pub(crate) stays: bool,
    /// Whether those who come after may expect that nothing of this is left.
    pub(crate) is_on_roster: bool,
    /// Calls of `tenure` that it makes, and what they may answer with.
    pub(crate) nested: Vec<(Vec<String>, Vec<u8>)>,
    /// Whether the nested calls find nothing of what the run around them hands down, as behind `env -i` or sudo.
    pub(crate) is_stripped: bool,
}

/// What a run hands down, but for the place of its locks, which the test names itself.
const HANDED_DOWN: [&str; 7] = [
    "TENURE_HELD",
    "TENURE_AROUND",
    "TENURE_NAME",
    "TENURE_TOKEN",
    "TENURE_SLOT",
    "TENURE_GROUP",
    "TENURE_REQUEST_ID",
];

impl Plan {
    pub(crate) fn words(&self) -> Vec<String> {
        let program = std::env::current_exe().map(|path| path.display().to_string());
        let plan = serde_json::to_string(self);
        // Neither fails; if one did, the call would, and be seen.
        vec![
            program.unwrap_or_default(),
            "hand".to_owned(),
            plan.unwrap_or_default(),
        ]
    }
}

pub(crate) fn main(words: &[String]) -> u8 {
    let plan = words
        .first()
        .and_then(|text| serde_json::from_str(text).ok());
    let Some(plan): Option<Plan> = plan else {
        return BROKEN;
    };
    let Ok(journal) = Journal::open(&plan.root) else {
        return BROKEN;
    };
    let result = match plan.role {
        Role::Work => work(&plan, &journal),
        Role::Own => own(&plan, &journal),
        Role::Reenter => Ok(reenter(&plan)),
        Role::Insist => insist(&plan),
        Role::Daemon => {
            let _ = rustix::process::setsid();
            journal.write(format_args!("daemon {} {}", plan.call, std::process::id()));
            std::thread::sleep(Duration::from_millis(plan.pause_ms));
            Ok(0)
        }
    };
    result.unwrap_or_else(|error| {
        journal.write(format_args!("broken {} {error}", plan.call));
        BROKEN
    })
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// The token under which a resource is held: 0 where there is none.
fn token_of(name: &str) -> u64 {
    let held = variable("TENURE_HELD");
    let own = held.split(';').rev().find_map(|hold| {
        let (token, place) = hold.split_once('=')?;
        place
            .ends_with(&format!("/{name}"))
            .then(|| token.parse().ok())?
    });
    own.or_else(|| variable("TENURE_TOKEN").parse().ok())
        .unwrap_or(0)
}

/// Takes the witnesses and writes itself down; `None` if another process works.
fn begin(
    plan: &Plan,
    journal: &Journal,
    token: impl Fn(&str) -> u64,
) -> std::io::Result<Option<Vec<File>>> {
    let (call, pid) = (&plan.call, std::process::id());
    let parent = std::os::unix::process::parent_id();
    let mut files = Vec::new();
    for resource in &plan.resources {
        let Resource { name, mode } = resource;
        let token = token(name);
        let taken = loop {
            if let Some(taken) = witness::witness(&plan.root, resource)? {
                break taken;
            }
            if let Some(other) = witness::at_work(&plan.root, resource) {
                journal.write(format_args!(
                    "overlap {call} {pid} {name} {mode:?} {token} with {other}"
                ));
                return Ok(None);
            }
            // The kernel is about to let go of it for a dead process.
            journal.write(format_args!("dying {call} {pid} {name}"));
            std::thread::sleep(Duration::from_micros(200));
        };
        files.extend(taken);
        for (other, survivor) in witness::survivors(&plan.root, name) {
            journal.write(format_args!(
                "survivor {call} {pid} {name} {other} {survivor}"
            ));
        }
        let slot = match mode {
            Mode::Slot(_) => format!("={}", variable("TENURE_SLOT")),
            Mode::Exclusive | Mode::Shared | Mode::AllSlots(_) => String::new(),
        };
        journal.write(format_args!(
            "in {call} {pid} {name} {mode:?}{slot} {token} {parent}"
        ));
        if mode.is_alone() {
            let mut file = File::create(witness::roster(&plan.root, name))?;
            if plan.is_on_roster {
                enlist(&mut file, call, pid)?;
            }
        }
    }
    let live = plan.root.join("live").join(call);
    std::fs::write(live.with_extension("new"), pid.to_string())?;
    std::fs::rename(live.with_extension("new"), live)?;
    Ok(Some(files))
}

fn enlist(file: &mut File, call: &str, pid: u32) -> std::io::Result<()> {
    match witness::start_of(pid) {
        Some(start) => file.write_all(format!("{call} {pid} {start}\n").as_bytes()),
        None => Ok(()),
    }
}

fn end(plan: &Plan, journal: &Journal, files: &[File]) -> std::io::Result<()> {
    for resource in &plan.resources {
        if resource.mode.is_alone() && !plan.stays {
            // What it leaves behind may live on: it ended by itself.
            File::create(witness::roster(&plan.root, &resource.name))?;
        }
        journal.write(format_args!(
            "out {} {} {}",
            plan.call,
            std::process::id(),
            resource.name
        ));
    }
    if !plan.stays {
        witness::let_go(files);
    }
    Ok(())
}

fn leave_behind(plan: &Plan, daemon: Daemon) -> std::io::Result<()> {
    let words = Plan {
        role: Role::Daemon,
        resources: Vec::new(),
        nested: Vec::new(),
        ..plan.clone()
    }
    .words();
    let line = match daemon {
        Daemon::Inherits => r#"exec "$0" "$@""#,
        Daemon::Closes => {
            r#"trap "" INT TERM HUP
            for f in /proc/$$/fd/*; do n=${f##*/}; [ "$n" -lt 3 ] || eval "exec $n>&-"; done 2>/dev/null
            exec "$0" "$@""#
        }
    };
    let child = Command::new("bash")
        .args(["-c", line])
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    for resource in &plan.resources {
        if resource.mode.is_alone() && plan.is_on_roster {
            let path = witness::roster(&plan.root, &resource.name);
            enlist(
                &mut OpenOptions::new().append(true).open(path)?,
                &plan.call,
                child.id(),
            )?;
        }
    }
    Ok(())
}

fn work(plan: &Plan, journal: &Journal) -> std::io::Result<u8> {
    let Some(files) = begin(plan, journal, token_of)? else {
        return Ok(OVERLAP);
    };
    if let Some(daemon) = plan.daemon {
        leave_behind(plan, daemon)?;
    }
    std::thread::sleep(Duration::from_millis(plan.pause_ms));
    let mut code = plan.code;
    for (words, allowed) in &plan.nested {
        let answer = tenure(words, plan.is_stripped)?;
        if answer != 0 && !allowed.contains(&answer) && answer < 128 {
            journal.write(format_args!(
                "nested {} {answer} {}",
                plan.call,
                words.join(" ")
            ));
            return Ok(if answer < BROKEN { BROKEN } else { answer });
        }
        if answer != 0 {
            code = answer;
            break;
        }
    }
    end(plan, journal, &files)?;
    Ok(code)
}

/// Calls the binary; a death by signal N is 128 + N.
fn tenure(words: &[String], is_stripped: bool) -> std::io::Result<u8> {
    let mut command = Command::new(versions::tenure());
    if is_stripped {
        for name in HANDED_DOWN {
            command.env_remove(name);
        }
    }
    let status = command
        .args(words)
        .env("TORTURE_OUTER", variable("TENURE_TOKEN"))
        .status()?;
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    Ok(code
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(BROKEN))
}

fn reenter(plan: &Plan) -> u8 {
    std::thread::sleep(Duration::from_millis(plan.pause_ms));
    if variable("TORTURE_OUTER") == variable("TENURE_TOKEN") {
        plan.code
    } else {
        OTHER_TOKEN
    }
}

/// Calls again and again, each time with a short wait, until a call is not refused.
fn insist(plan: &Plan) -> std::io::Result<u8> {
    for _ in 0..ATTEMPTS {
        for (words, _) in &plan.nested {
            let answer = tenure(words, false)?;
            if answer != 4 {
                return Ok(answer);
            }
        }
        std::thread::sleep(Duration::from_millis(plan.pause_ms));
    }
    Ok(4)
}

fn own(plan: &Plan, journal: &Journal) -> std::io::Result<u8> {
    let mut lines = std::io::stdin().lock().lines();
    let mut said = std::io::stdout();
    let Some(token) = lines.next() else {
        return Ok(0);
    };
    let token: u64 = token?.parse().unwrap_or(0);
    let Some(files) = begin(plan, journal, |_: &str| token)? else {
        said.write_all(b"overlap\n")?;
        return Ok(OVERLAP);
    };
    said.write_all(b"in\n")?;
    if lines.next().is_some() {
        end(plan, journal, &files)?;
        said.write_all(b"out\n")?;
        let _ = lines.next();
    }
    Ok(0)
}

/// The number of the process that works for a call, once it does.
pub(crate) fn worker_of(root: &Path, call: &str) -> Option<u32> {
    let text = std::fs::read_to_string(root.join("live").join(call)).ok()?;
    text.parse().ok()
}
