//! Holds that outlive the call that took them: `acquire` for a process, `heartbeat`, `release`.

use crate::call::{Owned, OwnedEnd};
use crate::hand::{Plan, Role};
use crate::witness::{Mode, Resource};
use crate::worker::{STUCK, ends_within};
use crate::world::World;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Output, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// An owner, and its conversation.
struct Owner<'a> {
    world: &'a World,
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl<'a> Owner<'a> {
    fn start(world: &'a World, id: &str, resources: Vec<Resource>) -> Option<Self> {
        let plan = Plan {
            role: Role::Own,
            root: world.root.path().to_owned(),
            call: id.to_owned(),
            resources,
            pause_ms: 0,
            code: 0,
            daemon: None,
            stays: false,
            is_on_roster: false,
            nested: Vec::new(),
            is_stripped: false,
        };
        let words = plan.words();
        let (program, words) = words.split_first()?;
        let mut command = world.program(program);
        command
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().ok()?;
        let said = BufReader::new(child.stdout.take()?);
        Some(Self { world, child, said })
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn tell(&mut self, words: &str) {
        if let Some(input) = &mut self.child.stdin {
            let _ = writeln!(input, "{words}");
        }
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        let _ = self.said.read_line(&mut line);
        line.trim_end().to_owned()
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
    }
}

impl Drop for Owner<'_> {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        if !ends_within(&self.child, STUCK) {
            self.world
                .violation(format!("owner {} does not end", self.child.id()));
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// Calls the binary; killed after `kill_ms`, if it has not ended then.
fn call(world: &World, words: &[&str], kill_ms: Option<u64>) -> Option<Output> {
    let mut command = world.tenure(words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().ok()?;
    if let Some(kill_ms) = kill_ms
        && !ends_within(&child, Duration::from_millis(kill_ms))
    {
        world.count("kills: a process alone");
        let _ = child.kill();
    }
    if !ends_within(&child, STUCK) {
        world.count("stuck");
        world.violation(format!("stuck for {STUCK:?}: {words:?}"));
        let _ = child.kill();
    }
    let output = child.wait_with_output().ok()?;
    world.answered(words[0], output.status);
    Some(output)
}

/// Calls the binary, which has to answer with one of these codes. `None` if it was killed.
fn expect(world: &World, words: &[&str], allowed: &[i32], kill_ms: Option<u64>) -> Option<Output> {
    let output = call(world, words, kill_ms)?;
    if kill_ms.is_some() && output.status.signal() == Some(9) {
        return None;
    }
    if !output
        .status
        .code()
        .is_some_and(|code| allowed.contains(&code))
    {
        world.violation(format!(
            "an answer that this call cannot have: {}: {words:?}\n  it said {}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        ));
    }
    Some(output)
}

fn token_of(output: &Output) -> Option<u64> {
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    document["data"]["token"].as_u64()
}

/// Whether the witness sees two who work at once: without that, nothing it does not see means
/// anything.
pub(crate) fn is_witnessed(world: &World) -> bool {
    let resource = || vec![Resource::new("trial", Mode::Exclusive)];
    let mut owners = ["trial-1", "trial-2"].map(|id| Owner::start(world, id, resource()));
    let said = owners.each_mut().map(|owner| {
        owner.as_mut().map(|owner| {
            owner.tell("1");
            owner.hear()
        })
    });
    said.each_ref().map(Option::as_deref) == [Some("in"), Some("overlap")]
}

/// Takes and gives back a lock that no other call overrides, under the witness.
pub(crate) fn own(world: &World, id: &str, owned: Owned) {
    let Some(mut owner) = Owner::start(world, id, vec![Resource::new("O", Mode::Exclusive)]) else {
        return world.violation(format!("{id}: no owner"));
    };
    let pid = owner.pid();
    let words = [
        "acquire",
        "O",
        "--owner",
        &pid,
        "--request-id",
        id,
        "-w",
        "30s",
    ];
    let words = [&words[..], &["--output", "json"]].concat();
    world.journal.write(format_args!("ask {id} acquire"));
    if owned.end == OwnedEnd::DiesWaiting {
        let pause = Duration::from_millis(owned.pause_ms);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(pause);
                owner.kill();
                world.count("kills: an owner in the queue");
            });
            // 2: it was gone before the call looked at it.
            let _ = expect(world, &words, &[0, 2], None);
        });
        return;
    }
    let mut kill_ms = owned.kill_acquire_ms;
    let acquired = loop {
        let asked = expect(world, &words, &[0], kill_ms);
        if asked.is_some() || kill_ms.is_none() {
            break asked;
        }
        // What it may have taken is found again by its id.
        kill_ms = None;
    };
    let Some(token) = acquired.as_ref().and_then(token_of) else {
        return world.violation(format!("{id}: acquire named no token: {acquired:?}"));
    };
    owner.tell(&token.to_string());
    let said = owner.hear();
    if said != "in" {
        return world.violation(format!("OVERLAP: {id}, the owner of O, said {said:?}"));
    }
    let _ = expect(world, &["heartbeat", "O", "--request-id", id], &[0], None);
    std::thread::sleep(Duration::from_millis(owned.pause_ms));
    if owned.end == OwnedEnd::DiesAtWork {
        owner.kill();
        world.journal.write(format_args!("dead {id} O"));
        world.count("kills: an owner at work");
        return;
    }
    owner.tell("leave");
    let _ = owner.hear();
    let release = ["release", "O", "--request-id", id];
    let mut allowed: &[i32] = &[0];
    if owned.kill_release_ms.is_some() {
        let released = expect(world, &release, allowed, owned.kill_release_ms);
        if released.is_some() {
            return;
        }
        // A release that was killed after its write has released, and another may hold by now.
        allowed = &[0, 6];
    }
    let _ = expect(world, &release, allowed, None);
}

/// Takes and gives back a lock that others override. No witness helps here, because the override of a
/// hold that lives is allowed. But its token is higher, and the old holder learns of it when it asks.
pub(crate) fn override_others(
    world: &World,
    id: &str,
    forces: bool,
    releases: bool,
    pause_ms: u64,
) {
    let Some(owner) = Owner::start(world, id, Vec::new()) else {
        return world.violation(format!("{id}: no owner"));
    };
    let pid = owner.pid();
    if releases {
        let _ = expect(world, &["force-release", "F", "--yes"], &[0, 4, 5], None);
    }
    let words = [
        "acquire",
        "F",
        "--owner",
        &pid,
        "--request-id",
        id,
        "-w",
        "1s",
    ];
    let force: &[&str] = if forces { &["--force", "--yes"] } else { &[] };
    let words = [&words[..], &["--output", "json"], force].concat();
    let before = world.top();
    let allowed: &[i32] = if forces { &[0] } else { &[0, 4] };
    let acquired = expect(world, &words, allowed, None);
    let Some(token) = acquired.as_ref().and_then(token_of) else {
        return;
    };
    if token <= before {
        world.violation(format!(
            "TOKEN: {id} was given {token} on F after {before} was"
        ));
    }
    world.overridden_top.fetch_max(token, Ordering::SeqCst);
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(pause_ms));
        let top = world.top();
        let beat = expect(
            world,
            &["heartbeat", "F", "--request-id", id],
            &[0, 6, 80],
            None,
        );
        let is_told_mine = beat.is_some_and(|beat| beat.status.code() == Some(0));
        if is_told_mine && top > token {
            world.violation(format!(
                "LOST UNDETECTED: {id} holds F with {token}, says its heartbeat, after {top} was granted"
            ));
        }
    }
    let _ = expect(
        world,
        &["release", "F", "--request-id", id],
        &[0, 6, 80],
        None,
    );
}
