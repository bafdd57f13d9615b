//! Processes that tests look at, on every system.

#![allow(dead_code, reason = "each test binary uses its own part")]

use std::process::{Child, Command, Stdio};

/// A process that runs until it is killed.
pub(crate) fn lasting() -> Child {
    let mut command = if cfg!(windows) {
        let mut command = Command::new("cmd");
        // `pause` waits for a key; the pipe that its `Child` keeps open never brings one.
        command.args(["/d", "/c", "pause"]).stdin(Stdio::piped());
        command
    } else {
        let mut command = Command::new("sleep");
        command.arg("600").stdin(Stdio::null());
        command
    };
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a process")
}

/// The number of a process that ran a moment ago and has ended.
pub(crate) fn dead_pid() -> u32 {
    let mut child = if cfg!(windows) {
        Command::new("cmd").args(["/d", "/c", "exit"]).spawn()
    } else {
        Command::new("true").spawn()
    }
    .expect("a child");
    let pid = child.id();
    child.wait().expect("its end");
    pid
}
