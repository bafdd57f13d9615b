//! What a person sees and types: an interactive shell with job control on a real terminal, in a
//! tmux server of the test's own.
//!
//! Unix only: it works with shells, signals, links and rights. `windows.rs` has what Windows has.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects by failing"
)]

mod support;

use rustix::process::Signal;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::{
    BOUND, Scene, children, eventually, foreground, has_stopped, is_alive, runs, state, throughout,
};
use tenure_os::clock::instant;

/// The shell's prompt; nothing else on the screen looks like it.
const PROMPT: &str = "ready>";

/// What stands between the parts of the line of a wait, and nowhere else.
const WAITING: &str = " · ";

/// A terminal with an interactive shell.
struct Terminal {
    scene: Scene,
    /// The PID of the shell.
    shell: u32,
    counter: std::cell::Cell<u32>,
}

impl Terminal {
    fn new() -> Self {
        Self::with_shell(&format!(
            "PS1='{PROMPT} ' PS2='' HISTFILE= exec bash --norc --noprofile -i"
        ))
    }

    /// A terminal with a shell that is started by this line.
    fn with_shell(shell: &str) -> Self {
        let there = Command::new("tmux")
            .arg("-V")
            .stdout(Stdio::null())
            .status();
        assert!(
            there.is_ok_and(|status| status.success()),
            "the terminal tests need tmux, and it cannot be run; `scripts/install-tools` gets it"
        );
        let mut terminal = Self {
            scene: Scene::new(),
            shell: 0,
            counter: 0.into(),
        };
        let mut start = terminal.tmux(["new-session", "-d", "-x", "150", "-y", "40"]);
        start.args(["-P", "-F", "#{pane_pid}", "-c"]);
        start.arg(terminal.scene.root()).arg(shell);
        let started = String::from_utf8(start.output().expect("starting tmux").stdout);
        let pid = started.expect("a PID").trim().parse();
        terminal.shell = pid.expect("tmux starts a session");
        terminal.until("the shell's prompt", |screen| screen.contains(PROMPT));
        terminal
    }

    fn tmux<const N: usize>(&self, words: [&str; N]) -> Command {
        let mut command = self.scene.program("tmux");
        command
            .env("TERM", "xterm-256color")
            .env("SHELL", "/bin/sh")
            .arg("-u")
            .arg("-S")
            .arg(self.scene.path("tmux"))
            .args(["-f", "/dev/null"])
            .args(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        command
    }

    /// Types a key that tmux knows by name.
    fn key(&self, key: &str) {
        let status = self.tmux(["send-keys", key]).status().expect("tmux");
        assert!(status.success(), "tmux types {key}");
    }

    /// Types characters as they are.
    fn keys(&self, text: &str) {
        let status = self
            .tmux(["send-keys", "-l", "--", text])
            .status()
            .expect("tmux");
        assert!(status.success(), "tmux types {text}");
    }

    /// Types a line.
    fn line(&self, text: &str) {
        self.keys(text);
        self.key("Enter");
    }

    /// What stands on the screen and above it, without blank lines at the end.
    fn screen(&self) -> String {
        self.captured(["capture-pane", "-p", "-J", "-S", "-200"])
    }

    /// What stands on the screen: a row of the terminal is a line.
    fn visible(&self) -> String {
        self.captured(["capture-pane", "-p"])
    }

    fn captured<const N: usize>(&self, words: [&str; N]) -> String {
        let output = self.tmux(words).output().expect("tmux");
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    }

    /// Waits until the screen satisfies a condition; the failure shows the screen.
    #[track_caller]
    fn until(&self, what: &str, mut condition: impl FnMut(&str) -> bool) -> String {
        let until = instant() + BOUND;
        loop {
            let screen = self.screen();
            if condition(&screen) {
                return screen;
            }
            assert!(
                instant() < until,
                "waited in vain for {what}; the screen shows:\n{screen}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Types a line and waits until the shell is back; answers with `$?`.
    #[track_caller]
    fn command(&self, text: &str) -> i32 {
        self.line(text);
        self.status(&format!("`{text}` to end"))
    }

    /// Asks the shell, which has to be at its prompt or get there, for the last exit code.
    #[track_caller]
    fn status(&self, what: &str) -> i32 {
        let number = self.counter.get() + 1;
        self.counter.set(number);
        let file = self.scene.path(&format!("status.{number}"));
        // What is typed before the prompt is back lies in the terminal until the shell reads it.
        self.line(&format!(
            "echo $? >'{0}.new'; mv '{0}.new' '{0}'",
            file.display()
        ));
        self.until(what, |_| file.exists());
        let text = std::fs::read_to_string(&file).expect("the shell's answer");
        text.trim().parse().expect("an exit code")
    }

    /// Waits for the prompt at the very end of the screen: the shell has the terminal.
    #[track_caller]
    fn until_prompt(&self, what: &str) -> String {
        self.until(what, |screen| {
            screen
                .lines()
                .last()
                .is_some_and(|line| line.trim() == PROMPT)
        })
    }

    /// Starts a run of [`until_go`] by this line, and returns the PID of its command.
    #[track_caller]
    fn begins(&self, line: &str) -> u32 {
        self.line(line);
        self.until("the command to begin", |screen| screen.contains("\nbegun"));
        self.held("x")
    }

    /// Stops the job by Ctrl-Z, and waits for the shell.
    #[track_caller]
    fn suspend(&self) {
        self.key("C-z");
        let screen = self.until_prompt("the prompt after Ctrl-Z");
        assert!(screen.contains("Stopped"), "the stop is reported: {screen}");
    }

    /// Waits until a job of the shell gets what is typed. Before that it is the shell's, or lost.
    fn until_job(&self) {
        eventually("a job to get what is typed", || {
            foreground(self.shell).is_some_and(|group| group != self.shell)
        });
    }

    /// Stops the terminal, to which a job writes without a pause, and waits until nothing more is shown.
    fn stop(&self) {
        self.key("C-s");
        eventually("the terminal to stand still", || {
            let before = self.screen();
            std::thread::sleep(Duration::from_millis(300));
            self.screen() == before
        });
    }

    /// What a line prints, with its colours as escape sequences.
    #[track_caller]
    fn painted(&self, line: &str) -> String {
        assert_eq!(self.command("clear; tmux -S ./tmux clear-history"), 0);
        assert_eq!(self.command(line), 0, "{line}");
        // The terminal shows all of it before the prompt that follows.
        self.until_prompt("the prompt");
        self.captured(["capture-pane", "-p", "-e", "-J", "-S", "-200"])
    }

    /// The PID of the supervisor that holds a lock.
    fn supervisor(&self, name: &str) -> u32 {
        let pid = self.scene.check(name)["holder"]["pid"].as_u64();
        u32::try_from(pid.expect("a holder")).expect("a PID")
    }

    /// Makes it so many columns wide.
    fn width(&self, columns: usize) {
        let columns = columns.to_string();
        let resized = self
            .tmux(["resize-window", "-x", columns.as_str()])
            .status();
        assert!(resized.is_ok_and(|status| status.success()), "tmux resizes");
    }

    /// Waits until a run holds a lock and answers with the PID of its command.
    #[track_caller]
    fn held(&self, name: &str) -> u32 {
        let mut command = None;
        eventually(
            &format!("{name} to be held by a run with a command"),
            || {
                command = self.scene.check(name)["holder"]["command_pid"].as_u64();
                command.is_some()
            },
        );
        u32::try_from(command.expect("a PID")).expect("a PID")
    }

    /// The terminal's settings, as stty prints them.
    fn modes(&self) -> String {
        let number = self.counter.get() + 1;
        self.counter.set(number);
        let file = self.scene.path(&format!("modes.{number}"));
        let code = self.command(&format!("stty -a >'{}'", file.display()));
        assert_eq!(code, 0, "stty answers");
        std::fs::read_to_string(file).expect("what stty printed")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.tmux(["kill-server"]).stderr(Stdio::null()).status();
    }
}

/// A command in `sh` that says `ready` and then waits until the file `go` is there.
// The parentheses make dash fork. For a plain command it calls vfork: a Ctrl-Z just then stops the child before
// its exec, and the shell, which waits for that exec in the kernel, cannot stop.
fn until_go(prelude: &str, end: &str) -> String {
    format!("sh -c '{prelude}; echo begun; while [ ! -e go ]; do (exec sleep 0.02); done; {end}'")
}

impl Terminal {
    /// Lets [`until_go`] end.
    fn go(&self) {
        self.scene.write("go", "");
    }

    /// A run in the background, started outside of the terminal, that holds a lock.
    fn held_elsewhere(&self, name: &str) -> support::Held {
        self.scene.hold(name, ["--why", "the other one"])
    }
}

#[test]
fn terminal_ctrl_c_ends_the_command_and_frees_the_lock() {
    let terminal = Terminal::new();
    terminal.line("tenure run x -- sleep 100");
    let command = terminal.held("x");
    terminal.key("C-c");
    let code = terminal.status("the prompt after Ctrl-C");
    assert_eq!(code, 130, "the shell sees an interrupted command");
    assert!(!is_alive(command), "the command is gone");
    assert!(terminal.scene.is_free("x"), "the lock is free");
}

/// The frame is drawn on the other screen, follows what happens, and each key does what it says.
#[test]
fn terminal_top_follows_the_locks_and_its_keys() {
    let terminal = Terminal::new();
    let _other = terminal.held_elsewhere("backup");
    let held = terminal.scene.hold("deploy", ["-q", "--actor", "ann"]);
    terminal.line("tenure top");
    let shown = |what: &str, words: &[&str]| {
        terminal.until(what, |screen| {
            words.iter().all(|word| screen.contains(word))
        })
    };
    shown(
        "both locks",
        &["STATE", "backup", "deploy", "2 held", "q quit"],
    );
    terminal.width(60);
    terminal.until("a narrow frame", |screen| {
        screen.contains("deploy")
            && screen
                .lines()
                .all(|line| line.trim_end().chars().count() <= 60)
    });
    terminal.width(150);
    // The kernel reports it: nobody waits for a look that comes by itself.
    let waiting = terminal.scene.tenure([
        "run", "deploy", "-q", "-w", "100", "--actor", "bob", "--", "true",
    ]);
    let waiting = support::Started::piped(&mut { waiting });
    shown("the waiter", &["1. waits", "bob (PID"]);
    // Each row has a request id, which nobody sees here.
    terminal.keys("/req_");
    shown("a filter without a row", &["no lock has the text"]);
    terminal.key("Escape");
    shown("all rows again", &["backup", "deploy", "STATE"]);
    terminal.keys("/depl");
    terminal.until("the lock of the filter alone", |screen| {
        let is_row = |line: &str| line.contains("held  ") && line.contains("backup");
        screen.contains("/depl_") && !screen.lines().any(is_row)
    });
    terminal.key("Enter");
    shown("the filter", &["filter (depl)"]);
    terminal.key("Enter");
    shown(
        "all of the lock",
        &["deploy is held by", "kept in", "Esc back"],
    );
    terminal.key("Escape");
    shown("the locks again", &["STATE"]);
    terminal.keys("?");
    shown("help", &["orphaned", "the supervisor died"]);
    terminal.key("Escape");
    terminal.keys("c");
    shown("the question", &["deploy: ask the holder to stop?"]);
    terminal.keys("n");
    shown("that it asks nobody", &["nothing was done"]);
    assert!(is_alive(held.command), "a no ends nothing");
    terminal.keys("c");
    shown("the question", &["deploy: ask the holder to stop?"]);
    terminal.keys("y");
    shown("the answer", &["asked request", "to stop, in deploy"]);
    let _ = held.finish().expect(79, "it was asked to stop");
    let _ = waiting.finish().expect(0, "the waiter had its turn");
    let asked_about = terminal.scene.hold("deploy", ["-q", "--actor", "cho"]);
    shown("the next holder", &["cho (PID"]);
    terminal.keys("c");
    shown("the question", &["deploy: ask the holder to stop?"]);
    let _ = asked_about.open().expect(0, "it ends by itself");
    let next = terminal.scene.hold("deploy", ["-q", "--actor", "dan"]);
    terminal.keys("y");
    shown(
        "that the one of the question is gone",
        &["no run with request id"],
    );
    terminal.key("Enter");
    shown("all of the lock", &["deploy is held by", "dan"]);
    let _ = next.open().expect(0, "nobody asked it to stop");
    shown("the same lock", &["deploy is free", "Esc back"]);
    terminal.key("Escape");
    terminal.until("an empty frame", |screen| {
        screen.contains("no lock has the text")
    });
    terminal.keys("q");
    // Until then, keys are those of the view.
    terminal.until_prompt("the prompt");
    assert_eq!(terminal.status("the prompt"), 0, "q is a good end");
}

/// A person who waits for servers sees that, and no dark screen.
#[cfg(feature = "etcd")]
#[test]
fn terminal_top_says_that_servers_have_not_answered() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = silent.local_addr().expect("its address");
    let terminal = Terminal::new();
    terminal.line(&format!("tenure top --store etcd://{at}/x"));
    terminal.until("a frame", |screen| screen.contains("no answer yet"));
    let screen = terminal.visible();
    assert!(!screen.contains("no locks"), "nobody knows that: {screen}");
    terminal.keys("q");
    terminal.until_prompt("the prompt");
    assert_eq!(terminal.status("the prompt"), 0);
}

/// However it ends or stops, the terminal is as it was: its modes, its screen, its cursor.
#[test]
fn terminal_top_gives_the_terminal_back_whatever_ends_it() {
    let terminal = Terminal::new();
    let _held = terminal.held_elsewhere("deploy");
    let modes = terminal.modes();
    let is_drawn = |screen: &str| screen.contains("STATE") && screen.contains("deploy");
    let cursor = || terminal.captured(["display-message", "-p", "#{cursor_flag} #{alternate_on}"]);
    for (end, code) in [
        ("q", 0),
        ("C-c", 130),
        ("TERM", 143),
        ("HUP", 129),
        ("C-z", 148),
    ] {
        terminal.line("clear; tenure top");
        terminal.until("a frame", is_drawn);
        assert_eq!(cursor(), "0 1", "{end}: no cursor, on the other screen");
        match end {
            "TERM" | "HUP" => {
                let signal = if end == "TERM" {
                    Signal::TERM
                } else {
                    Signal::HUP
                };
                let group = foreground(terminal.shell).expect("a job");
                support::send(group, signal);
            }
            "q" => terminal.keys("q"),
            key => terminal.key(key),
        }
        terminal.until_prompt("the prompt");
        assert_eq!(terminal.status("the prompt"), code, "{end}");
        assert_eq!(cursor(), "1 0", "{end}: the cursor, on the own screen");
        assert!(!is_drawn(&terminal.visible()), "{end} leaves no frame");
        assert_eq!(terminal.modes(), modes, "{end}");
    }
    terminal.line("fg");
    terminal.until("a frame again", is_drawn);
    terminal.keys("q");
    terminal.until_prompt("the prompt");
    assert_eq!(terminal.status("the prompt"), 0);
    assert_eq!(terminal.modes(), modes);
}

/// A command that makes a group of its own would have no keys in a group that it does not lead. Without a lock it leads its
/// job already, so the terminal follows it.
#[test]
fn terminal_keys_reach_a_command_with_a_group_of_its_own_table() {
    let terminal = Terminal::new();
    let perl = "perl -e 'sleep $ARGV[0]; setpgrp; exec @ARGV[1..$#ARGV]'";
    let python =
        "python3 -c 'import os, sys; os.setpgid(0, 0); os.execvp(sys.argv[1], sys.argv[1:])'";
    for wrapper in [
        "timeout 50".to_owned(),
        "env timeout -k 5 50".to_owned(),
        python.to_owned(),
        format!("{perl} 0"),
        format!("{perl} 2"),
    ] {
        let begins = |work: &str| {
            terminal.line(&format!("clear; tenure run x -- {wrapper} {work}"));
            let command = terminal.held("x");
            eventually("the command to have the terminal", || {
                foreground(command) == Some(command)
            });
            command
        };
        let command = begins("sleep 100");
        terminal.key("C-c");
        let code = terminal.status("the prompt after Ctrl-C");
        assert!([124, 130].contains(&code), "{wrapper}: {code}");
        assert!(!is_alive(command), "{wrapper}: the command is gone");
        begins("sh -c 'while [ ! -e go ]; do (exec sleep 0.02); done; exit 5'");
        terminal.suspend();
        terminal.go();
        terminal.line("fg");
        assert_eq!(terminal.status("the end after fg"), 5, "{wrapper}");
        terminal.command("rm go");
        begins("sh -c 'read a; echo \"<$a>\"; exit 6'");
        terminal.line("answer");
        terminal.until("the answer", |screen| screen.contains("\n<answer>"));
        assert_eq!(terminal.status("the end after the answer"), 6, "{wrapper}");
        assert!(terminal.scene.is_free("x"), "{wrapper}: the lock is free");
    }
}

/// A shell with job control gives the terminal back to the group from which it was started.
#[test]
fn terminal_shells_with_job_control_end_with_their_code() {
    let terminal = Terminal::new();
    for shell in ["dash -i", "bash --norc --noprofile -i", "zsh -f -i"] {
        if terminal.command(&format!("command -v {shell} >/dev/null")) != 0 {
            continue;
        }
        terminal.line(&format!("clear; PS1='inner> ' tenure run x -- {shell}"));
        terminal.until("the inner shell", |screen| screen.ends_with("inner>"));
        terminal.line("exit 7");
        assert_eq!(terminal.status("the outer prompt"), 7, "{shell}");
        let screen = terminal.screen();
        assert!(!screen.contains("tty"), "{shell}: {screen}");
    }
}

#[test]
fn terminal_ctrl_c_that_the_command_handles_ends_nothing() {
    let terminal = Terminal::new();
    let loops = until_go("trap \"echo caught\" INT", "exit 7");
    let command = terminal.begins(&format!("tenure run x -- {loops}"));
    for times in 1..=3 {
        terminal.key("C-c");
        // The line that was typed has one more.
        terminal.until("the trap to run", |screen| {
            screen.matches("caught").count() > times
        });
    }
    assert!(is_alive(command), "the command goes on");
    assert_eq!(terminal.scene.standing("x"), "held", "and so does the hold");
    terminal.go();
    let code = terminal.status("the prompt");
    assert_eq!(code, 7, "a command that handled the key keeps its own code");
}

/// Ctrl-S stops the terminal, and with it every process that writes. The waiter draws its line eight
/// times a second.
#[test]
fn terminal_that_was_stopped_does_not_keep_a_waiter_from_its_turn() {
    let terminal = Terminal::new();
    let done = terminal.scene.path("done");
    let holder = terminal.held_elsewhere("x");
    terminal.line(&format!(
        "tenure run x --wait forever -- touch '{}'",
        done.display()
    ));
    terminal.until("the line of the wait", |screen| screen.contains(WAITING));
    terminal.stop();
    let _ = holder.open().expect(0, "the holder");
    eventually("the waiter to run in its turn", || done.exists());
    eventually("and to give the lock back", || terminal.scene.is_free("x"));
    terminal.key("C-q");
    // The line of the wait is left where the terminal was stopped for longer than its last try.
    assert_eq!(terminal.status("the prompt"), 0);
}

/// A waiter whose wait is bounded ends as well.
#[test]
fn terminal_that_was_stopped_does_not_keep_a_waiter_from_its_end() {
    let terminal = Terminal::new();
    let holder = terminal.held_elsewhere("x");
    let ended = terminal.scene.path("ended");
    terminal.line("tenure run x --wait 2s -- true; echo $? >ended");
    terminal.until("the line of the wait", |screen| {
        screen.contains(WAITING) || ended.exists()
    });
    terminal.stop();
    assert_eq!(support::read_number(&ended), 4);
    terminal.key("C-q");
    let _ = holder.open().expect(0, "the holder");
}

/// A supervisor in front of a stopped terminal still gives way.
#[test]
fn terminal_that_was_stopped_does_not_keep_work_running() {
    let terminal = Terminal::new();
    terminal.line("tenure run x -- sh -c 'while sleep 0.05; do cat /proc/uptime; done'");
    let command = terminal.held("x");
    terminal.stop();
    let words = ["run", "x", "--force", "--wait", "20s", "--", "true"];
    let _ = terminal.scene.run(words).expect(0, "the next one has it");
    assert!(!is_alive(command), "the old work is gone");
    terminal.key("C-q");
    assert_eq!(terminal.status("the run to end"), 79);
}

#[test]
fn terminal_ctrl_z_stops_the_job_and_fg_lets_it_finish() {
    let terminal = Terminal::new();
    let command = terminal.begins(&format!("tenure run x -- {}", until_go(":", "exit 5")));
    terminal.suspend();
    terminal.line("jobs");
    terminal.until("jobs to show it", |screen| {
        screen.matches("Stopped").count() == 2
    });
    eventually("the command to stop", || has_stopped(command));
    assert_eq!(
        terminal.scene.standing("x"),
        "held",
        "a stopped holder still holds"
    );
    terminal.go();
    throughout(
        Duration::from_millis(300),
        "a stopped command does nothing",
        || has_stopped(command),
    );
    terminal.line("fg");
    let code = terminal.status("the command to finish after fg");
    assert_eq!(code, 5, "its code is passed on");
    assert!(terminal.scene.is_free("x"), "the lock is free");
}

#[test]
fn terminal_ctrl_c_works_after_ctrl_z_and_fg() {
    let terminal = Terminal::new();
    terminal.line("tenure run x -- sleep 100");
    let command = terminal.held("x");
    terminal.suspend();
    terminal.line("fg");
    eventually("the command to go on", || state(command) == Some('S'));
    terminal.key("C-c");
    let code = terminal.status("the prompt after Ctrl-C");
    assert_eq!(code, 130, "the command was interrupted");
    assert!(terminal.scene.is_free("x"), "the lock is free");
}

#[test]
fn terminal_bg_lets_a_stopped_job_go_on_behind_the_prompt() {
    let terminal = Terminal::new();
    let command = terminal.begins(&format!("tenure run x -- {}", until_go(":", "echo over")));
    terminal.suspend();
    terminal.line("bg");
    eventually("the command to go on", || state(command) == Some('S'));
    let code = terminal.command("echo the shell is there");
    assert_eq!(code, 0, "the shell has the terminal");
    terminal.go();
    terminal.until("the end of the job", |screen| {
        screen.ends_with("over") || screen.contains("over\n")
    });
    // The shell reports it before a prompt, once it has seen it.
    eventually("the shell to report the end", || {
        terminal.command("jobs") == 0 && terminal.screen().contains("Done")
    });
    assert!(terminal.scene.is_free("x"), "the lock is free");
}

#[test]
fn terminal_fg_of_a_running_job_gives_it_the_keyboard() {
    let terminal = Terminal::new();
    let reads = until_go(":", "read line; echo got $line");
    let command = terminal.begins(&format!("tenure run x -- {reads}"));
    terminal.suspend();
    terminal.line("bg");
    eventually("the command to go on", || state(command) == Some('S'));
    // A shell sends no SIGCONT to a job that runs already.
    terminal.line("fg");
    terminal.until_job();
    terminal.go();
    terminal.line("hello");
    terminal.until("the command to read what is typed", |screen| {
        screen.contains("got hello")
    });
    assert_eq!(terminal.status("the prompt"), 0, "it ended well");
}

#[test]
fn terminal_a_job_that_reads_in_the_background_stops_and_goes_on_in_the_foreground() {
    let terminal = Terminal::new();
    terminal.line("tenure run x -- cat &");
    eventually("the lock to be held", || {
        terminal.scene.standing("x") == "held"
    });
    let supervisor = terminal.supervisor("x");
    // The kernel stops the whole group of the process that reads, tenure with it.
    eventually("the reading job to stop", || state(supervisor) == Some('T'));
    terminal.line("fg");
    terminal.until_job();
    terminal.line("hello");
    terminal.until("cat to answer", |screen| {
        screen.matches("\nhello").count() >= 2
    });
    terminal.key("C-d");
    assert_eq!(terminal.status("the prompt"), 0, "cat ended well");
}

impl Terminal {
    /// Starts a run that waits for what its command has left behind, in a session of its own. Once the
    /// command has ended, returns the PIDs of the supervisor and of the process that was left behind.
    fn waits_for_all(&self) -> (u32, u32) {
        // What a shell starts behind itself ignores Ctrl-C, so SIGTERM has to follow.
        let flags = "--wait-all --grace 20s --term-after 100ms";
        self.line(&format!(
            "tenure run x {flags} -- sh -c '(setsid sleep 600 &); exit 3'"
        ));
        let command = self.held("x");
        let supervisor = self.supervisor("x");
        // Until then keys go to the command's group, in which no process is left that could answer them.
        eventually("the supervisor to take the terminal back", || {
            foreground(supervisor) == Some(supervisor)
        });
        let rest = children(supervisor).into_iter().find(|pid| *pid != command);
        (supervisor, rest.expect("what is left"))
    }
}

#[test]
fn terminal_ctrl_c_ends_what_is_left_of_a_run_that_waits_for_all() {
    let terminal = Terminal::new();
    let (_, rest) = terminal.waits_for_all();
    terminal.key("C-c");
    let code = terminal.status("the prompt after Ctrl-C");
    assert_eq!(code, 130, "no other process was there to answer the key");
    assert!(!is_alive(rest), "all of it is gone");
    assert!(terminal.scene.is_free("x"), "the lock is free");
}

#[test]
fn terminal_ctrl_z_stops_a_run_that_waits_for_all_and_fg_lets_it_wait_on() {
    let terminal = Terminal::new();
    let (supervisor, rest) = terminal.waits_for_all();
    terminal.suspend();
    assert_eq!(state(supervisor), Some('T'), "it has stopped");
    assert_eq!(terminal.scene.standing("x"), "held", "and keeps the lock");
    terminal.line("fg");
    eventually("it to go on", || state(supervisor) != Some('T'));
    support::send(rest, Signal::TERM);
    let code = terminal.status("the prompt after the end");
    assert_eq!(code, 3, "the command's own code");
}

/// In a pipeline the command shares our group; what it starts is ended with it all the same.
#[test]
fn terminal_a_signal_to_a_run_in_a_pipeline_ends_all_that_descends_from_it() {
    let terminal = Terminal::new();
    terminal.line("tenure run x --grace 20s -- sh -c 'sleep 600; echo over' | cat");
    let command = terminal.held("x");
    let supervisor = terminal.supervisor("x");
    eventually("the grandchild", || children(command).len() == 1);
    let grandchild = children(command)[0];
    support::send(supervisor, Signal::TERM);
    terminal.until_prompt("the prompt");
    assert!(!is_alive(command), "the command is gone");
    assert!(!is_alive(grandchild), "and its child, which was asked too");
    assert!(terminal.scene.is_free("x"), "the lock is free");
}

#[test]
fn terminal_typed_lines_reach_a_command_that_reads() {
    let terminal = Terminal::new();
    terminal.line("tenure run x -- cat");
    terminal.held("x");
    terminal.line("hello");
    terminal.until("cat to answer", |screen| {
        screen.matches("\nhello").count() >= 2
    });
    terminal.key("C-d");
    assert_eq!(terminal.status("the prompt"), 0, "cat ended well");
    assert!(terminal.scene.is_free("x"), "the lock is free");
}

#[test]
fn terminal_a_command_that_opens_the_terminal_itself_can_be_answered() {
    // As ssh and sudo do when they ask for a password.
    let terminal = Terminal::new();
    terminal.line(
        "tenure run x -- sh -c 'echo question >/dev/tty; read a </dev/tty; echo got $a >/dev/tty' \
         </dev/null >out 2>&1",
    );
    terminal.until("the question", |screen| screen.contains("\nquestion"));
    terminal.line("answer");
    terminal.until("the command to read the answer", |screen| {
        screen.contains("\ngot answer")
    });
    assert_eq!(terminal.status("the prompt"), 0, "it ended well");
}

#[test]
fn terminal_a_shell_with_job_control_works_inside() {
    let terminal = Terminal::new();
    terminal.line("PS1='inner> ' tenure run x -- bash --norc --noprofile -i");
    terminal.until("the inner shell", |screen| screen.ends_with("inner>"));
    terminal.line("sleep 100");
    let inner = terminal.held("x");
    // A child takes the terminal before it becomes another program.
    let is_job = |child: &u32| runs(*child, "sleep");
    eventually("sleep to run", || children(inner).iter().any(is_job));
    terminal.key("C-z");
    terminal.until("the inner shell to report the stop", |screen| {
        screen.contains("Stopped") && screen.ends_with("inner>")
    });
    let supervisor = terminal.supervisor("x");
    assert_ne!(state(supervisor), Some('T'), "only the inner job stopped");
    terminal.line("fg");
    // A key that comes earlier is the shell's.
    let goes_on = |job: &u32| state(*job) == Some('S');
    eventually("the job to go on", || {
        children(inner).first().is_some_and(goes_on)
    });
    terminal.key("C-c");
    terminal.until("the inner prompt", |screen| screen.ends_with("inner>"));
    terminal.line("exit 3");
    assert_eq!(terminal.status("the outer prompt"), 3, "the shell's code");
    assert!(terminal.scene.is_free("x"), "the lock is free");
}

#[test]
fn terminal_pipelines_end_as_they_do_without_a_lock() {
    let terminal = Terminal::new();
    terminal.line("yes | tenure run x -- head -1; echo \"codes ${PIPESTATUS[*]}\"");
    terminal.until("the pipeline's codes", |screen| {
        screen.contains("\ncodes 141 0")
    });
    assert!(terminal.scene.is_free("x"), "the lock is free");

    terminal.line("tenure run x -- seq 1 100000 | less; echo \"and ${PIPESTATUS[*]}\"");
    terminal.until("the first page", |screen| screen.ends_with("\n:"));
    terminal.key("q");
    terminal.until("the pipeline's codes", |screen| {
        screen.contains("\nand 141 0")
    });
    assert!(terminal.scene.is_free("x"), "the lock is free");
}

#[test]
fn terminal_ctrl_c_ends_a_pipeline() {
    let terminal = Terminal::new();
    terminal.line("tenure run x -- sleep 100 | cat; echo \"codes ${PIPESTATUS[*]}\"");
    let command = terminal.held("x");
    terminal.key("C-c");
    terminal.status("the prompt after Ctrl-C");
    assert!(!is_alive(command), "the command is gone");
    terminal.scene.until_free("x");
}

#[test]
fn terminal_ctrl_z_stops_a_pipeline_and_fg_lets_it_finish() {
    let terminal = Terminal::new();
    let pipeline = format!("tenure run x -- {} | cat", until_go(":", "echo over"));
    let command = terminal.begins(&pipeline);
    terminal.suspend();
    // The shell waits for its own children, cat and tenure. The kernel stops the command at its next turn.
    eventually("the command to stop", || has_stopped(command));
    terminal.go();
    terminal.line("fg");
    terminal.until("the end", |screen| screen.contains("\nover"));
    assert_eq!(terminal.status("the prompt"), 0, "the pipeline ended well");
    assert!(terminal.scene.is_free("x"), "the lock is free");
}

#[test]
fn terminal_a_key_that_is_passed_on_once_more_is_not_a_second_interrupt() {
    // Task runners do that: the terminal interrupts the whole group, and the runner sends the
    // same interrupt on to what it started.
    let terminal = Terminal::new();
    let handles = until_go("trap \"echo caught\" INT", "exit 5");
    terminal.begins(&format!("tenure run x -- {handles} | (trap '' INT; cat)"));
    let supervisor = terminal.supervisor("x");
    terminal.key("C-c");
    terminal.until("the trap", |screen| screen.matches("caught").count() > 1);
    support::send(supervisor, Signal::INT);
    throughout(
        Duration::from_millis(500),
        "tenure stays with its command",
        || is_alive(supervisor),
    );
    terminal.go();
    terminal.until_prompt("the prompt");
    terminal.scene.until_free("x");
}

#[test]
fn terminal_make_runs_in_parallel_under_a_lock_and_with_a_lock_in_a_recipe() {
    let terminal = Terminal::new();
    // `a` and `b` wait for each other: they end only if make runs both at once.
    let makefile = "\
all: a b\n\
a:\n\t@touch a.here; while [ ! -e b.here ]; do sleep 0.01; done; echo made a\n\
b:\n\t@touch b.here; while [ ! -e a.here ]; do sleep 0.01; done; echo made b\n\
inner:\n\t+@tenure run y -- $(MAKE) --no-print-directory all\n";
    terminal.scene.write("Makefile", makefile);
    let code = terminal.command("tenure run x -- make -j4 all");
    assert_eq!(code, 0, "make under a lock: {}", terminal.screen());
    let code = terminal.command("rm -f a.here b.here; tenure run x -- make -j4 inner >log 2>&1");
    let log = std::fs::read_to_string(terminal.scene.path("log")).expect("make's output");
    assert_eq!(code, 0, "make with a lock in its recipe: {log}");
    assert!(
        !log.contains("jobserver"),
        "the inner make gets the outer one's slots: {log}"
    );
    for lock in ["x", "y"] {
        assert!(terminal.scene.is_free(lock), "{lock} is free");
    }
}

#[test]
fn terminal_a_full_screen_program_gets_its_keys_and_leaves_the_terminal_as_it_was() {
    let terminal = Terminal::new();
    let before = terminal.modes();
    let code = terminal.command("seq 1 1000 >numbers");
    assert_eq!(code, 0, "a file to look at");
    terminal.line("tenure run x -- less numbers");
    terminal.until("the first page", |screen| screen.contains("\n20\n"));
    terminal.key("G");
    terminal.until("the last page", |screen| screen.contains("\n1000"));
    terminal.suspend();
    terminal.line("fg");
    terminal.until("the last page again", |screen| {
        screen.contains("\n1000") && !screen.ends_with(PROMPT)
    });
    terminal.key("q");
    assert_eq!(terminal.status("the prompt"), 0, "less ended well");
    assert_eq!(terminal.modes(), before, "the terminal's settings");
    assert!(terminal.scene.is_free("x"), "the lock is free");
}

#[test]
fn terminal_a_wait_shows_holder_age_and_place_and_is_erased_when_it_is_over() {
    let terminal = Terminal::new();
    let holder = terminal.held_elsewhere("x");
    terminal.line("clear; tenure run x --wait 2m -- echo mine");
    let process = format!("(PID {}) since ", holder.pid());
    let facts = [process.as_str(), ", the other one · next · ", " left"];
    terminal.until(&format!("the waiting line with {facts:?}"), |screen| {
        facts.iter().all(|fact| screen.contains(fact))
    });
    // Both clocks run: the line is kept up to date. A slow machine may not show each second.
    terminal.until("a second more", |screen| {
        let mut later = (2..60).map(|second| format!(" since {second}s, "));
        later.any(|since| screen.contains(&since)) && screen.contains(" · 1m")
    });
    let _ = holder.open().expect(0, "the other run ends well");
    terminal.until("the command", |screen| screen.contains("mine"));
    let screen = terminal.until_prompt("the prompt");
    assert!(
        !screen.contains(WAITING),
        "the waiting line is gone: {screen}"
    );
}

#[test]
fn terminal_a_narrow_one_shows_what_matters_and_follows_its_width() {
    let terminal = Terminal::new();
    terminal.width(80);
    let why = "./backup.sh --all --to=/srv/backups --keep=12 --verify";
    let _holder = terminal
        .scene
        .hold("backup", ["--actor", "ada", "--why", why]);
    terminal.line("clear; tenure run backup --wait 10m -- echo mine");
    // How long it takes is not known: it was never held before.
    for (columns, shown) in [
        (80, "s, ./backup.sh --all --to=/srv/"),
        (40, " · next · 9m"),
        (60, "s, ./backup.sh "),
        (30, "ada · next · 9m"),
        (
            150,
            "s, ./backup.sh --all --to=/srv/backups --keep=12 --verify · next · 9m",
        ),
    ] {
        terminal.width(columns);
        let mut screen = String::new();
        terminal.until(&format!("`{shown}` alone in {columns} columns"), |_| {
            screen = terminal.visible();
            screen.contains(shown) && screen.lines().count() == 1
        });
        let line = screen.trim();
        assert!(line.contains(" · next · "), "the place: {screen}");
        assert!(line.ends_with(" left"), "the countdown is whole: {screen}");
        assert!(line.chars().count() <= columns, "no line wraps: {screen}");
    }
    terminal.key("C-c");
    terminal.status("the prompt");
}

#[test]
fn terminal_a_wait_says_how_long_it_may_take_where_the_lock_has_a_past() {
    let terminal = Terminal::new();
    terminal.width(80);
    let scene = &terminal.scene;
    for _ in 0..3 {
        let _ = scene
            .run(["run", "x", "--", "sleep", "1.2"])
            .expect(0, "a hold of about a second");
    }
    let holder = scene.hold("x", ["--why", "w", "--actor", "ada"]);
    terminal.line("clear; tenure run x --wait 10m -- echo mine");
    // The run before it may have taken longer than its command.
    let usually = |screen: &str, before: &str, after: &str| {
        (2..60).any(|second| screen.contains(&format!("{before}usually {second}s · {after}")))
    };
    terminal.until("what is usual", |screen| {
        usually(screen, ", w · next · ", "")
    });
    terminal.key("C-c");
    terminal.status("the prompt");
    terminal.line("clear; tenure wait x --wait 2m");
    terminal.until("the same of who only looks", |screen| {
        screen.contains("x: ada (PID ") && usually(screen, ", w · ", "1m")
    });
    let _ = holder.open().expect(0, "the other run ends well");
    let screen = terminal.until("the answer", |screen| screen.contains("x is free"));
    assert!(!screen.contains(WAITING), "the line is gone: {screen}");
    assert_eq!(terminal.status("the prompt"), 0);
}

#[test]
fn terminal_ctrl_c_while_waiting_leaves_the_queue_and_no_trace() {
    let terminal = Terminal::new();
    terminal.width(80);
    let holder = terminal.held_elsewhere("x");
    terminal.line("clear; tenure run x --wait 10m -- echo mine");
    terminal.until("the waiting line", |screen| screen.contains(WAITING));
    terminal.scene.until_queued("x", 1);
    terminal.key("C-c");
    let code = terminal.status("the prompt after Ctrl-C");
    assert_eq!(code, 130, "interrupted");
    terminal.scene.until_queued("x", 0);
    let screen = terminal.screen();
    assert!(
        !screen.contains(WAITING),
        "the waiting line is gone: {screen}"
    );
    let _ = holder.open().expect(0, "the other run was not disturbed");
}

#[test]
fn terminal_ctrl_z_while_waiting_keeps_the_place() {
    let terminal = Terminal::new();
    let holder = terminal.held_elsewhere("x");
    terminal.line("tenure run x --wait 10m -- echo mine");
    terminal.until("the waiting line", |screen| screen.contains(WAITING));
    terminal.scene.until_queued("x", 1);
    terminal.suspend();
    terminal.scene.until_queued("x", 1);
    let _ = holder.open().expect(0, "the other run ends well");
    throughout(
        Duration::from_millis(300),
        "a stopped caller starts nothing",
        || !terminal.screen().contains("\nmine"),
    );
    terminal.line("fg");
    terminal.until("the command after fg", |screen| screen.contains("\nmine"));
    assert_eq!(terminal.status("the prompt"), 0, "it ended well");
    assert!(terminal.scene.is_free("x"), "the lock is free");
}

#[test]
fn terminal_a_wait_in_the_background_leaves_the_prompt_alone() {
    let terminal = Terminal::new();
    let holder = terminal.held_elsewhere("x");
    terminal.line("clear; tenure run x --wait 10m -- echo mine &");
    terminal.until("the wait to be told", |screen| {
        screen.contains("is held by")
    });
    terminal.keys("half a line");
    let typed = |screen: &str| screen.ends_with("half a line");
    terminal.until("what was typed to be shown", typed);
    throughout(
        Duration::from_millis(600),
        "what is typed stays readable while a job waits in the background",
        || typed(&terminal.screen()),
    );
    terminal.key("C-u");
    let _ = holder.open().expect(0, "the other run ends well");
    terminal.until("the command", |screen| {
        screen.lines().any(|line| line.ends_with("mine"))
    });
}

/// The kernel stops a process that reads from the background, and its whole group with it. A supervisor
/// that is stopped in the middle of a change would keep every caller from that lock.
#[test]
fn terminal_jobs_that_are_stopped_as_they_start_leave_no_lock_stuck() {
    const JOBS: usize = 60;
    let terminal = Terminal::new();
    let jobs = format!("for i in {{1..{JOBS}}}; do tenure run x$i -- cat & done");
    assert_eq!(terminal.command(&jobs), 0, "the jobs are started");
    for number in 1..=JOBS {
        let name = format!("x{number}");
        eventually(&format!("{name} to be held"), || {
            terminal.scene.standing(&name) == "held"
        });
        let supervisor = terminal.supervisor(&name);
        eventually("the job to stop", || state(supervisor) == Some('T'));
    }
    for number in 1..=JOBS {
        let name = format!("x{number}");
        let (answer, took) =
            support::timed(|| terminal.scene.run(["run", "-n", &name, "--", "true"]));
        let _ = answer.expect(4, "held by a job that is stopped");
        assert!(
            took < Duration::from_secs(3),
            "{name}: the answer comes without a wait; it took {took:?}"
        );
    }
}

/// `ssh -t`, a container or a window of a multiplexer run a command without a shell around it.
/// Nothing can continue it there, so the kernel lets nothing stop it.
#[test]
fn terminal_ctrl_z_without_a_shell_leaves_the_command_at_work() {
    let terminal = Terminal::new();
    // In parentheses, as above: a child that Ctrl-Z stops before its exec keeps dash from being stopped and continued.
    let script = terminal.scene.script(
        "work",
        "#!/bin/sh\necho begun\nwhile [ ! -e go ]; do (exec sleep 0.02); done\necho over\nread line\n",
    );
    let mut window = terminal.tmux(["new-window"]);
    window.arg("-c").arg(terminal.scene.root());
    window.arg(format!("exec tenure run x -- {}", script.display()));
    assert!(
        window.status().is_ok_and(|status| status.success()),
        "a window"
    );
    terminal.until("the command to begin", |screen| screen.contains("begun"));
    let command = terminal.held("x");
    terminal.key("C-z");
    terminal.until("the key to be echoed", |screen| screen.contains("^Z"));
    terminal.go();
    terminal.until("the command to go on", |screen| screen.contains("over"));
    terminal.key("Enter");
    eventually("the command to end", || !is_alive(command));
    terminal.scene.until_free("x");
}

#[test]
fn terminal_the_shell_has_it_back_when_tenure_is_killed() {
    let terminal = Terminal::new();
    terminal.line("tenure run x -- sleep 100");
    let command = terminal.held("x");
    support::send(terminal.supervisor("x"), Signal::KILL);
    assert_eq!(terminal.status("the prompt"), 137, "tenure was killed");
    assert!(is_alive(command), "the command goes on");
    assert_eq!(
        terminal.scene.check("x")["holder"]["orphaned"],
        true,
        "and holds"
    );
    support::send(command, Signal::KILL);
    terminal.scene.until_free("x");
}

/// A clone in the terminal's folder, with a commit that came after another user's. The rebase stands
/// still in its middle as long as the folder `still` is there.
fn behind_another(terminal: &Terminal) {
    let script = "git init -q --bare -b main b && git clone -q b other && cd other && \
                  git config user.name t && git config user.email t@localhost && \
                  echo 1 >README && git add README && git commit -q -m 1 && \
                  git push -q origin HEAD:main && cd .. && git clone -q b mine && cd mine && \
                  git config user.name t && git config user.email t@localhost && \
                  echo 2 >mine && git add mine && git commit -q -m 2 && cd ../other && \
                  echo 3 >theirs && git add theirs && git commit -q -m 3 && \
                  git push -q origin HEAD:main && mkdir ../still && cd ../mine && \
                  printf '#!/bin/sh\\necho >../entered; while [ -d ../still ]; do sleep 0.01; done\\n' \
                  >.git/hooks/prepare-commit-msg && chmod +x .git/hooks/prepare-commit-msg";
    let root = terminal.scene.root().display();
    let made = terminal.scene.shell(&format!("cd '{root}' && {script}"));
    assert_eq!(made.code(), 0, "{}", made.said());
    let inside = terminal.command("cd mine");
    assert_eq!(inside, 0, "there is a clone");
}

#[test]
fn terminal_ctrl_c_in_the_middle_of_a_pushs_rebase_leaves_none_behind() {
    let terminal = Terminal::new();
    behind_another(&terminal);
    let clone = terminal.scene.path("mine");
    terminal.line("tenure push --backoff 20ms");
    let entered = terminal.scene.path("entered");
    eventually("the rebase to be in its middle", || entered.exists());
    assert!(clone.join(".git/rebase-merge").exists(), "it is");
    terminal.key("C-c");
    let code = terminal.status("the prompt after Ctrl-C");
    assert_eq!(code, 130, "it was interrupted");
    assert!(!clone.join(".git/rebase-merge").exists(), "it was aborted");
    assert_eq!(
        terminal.command("git diff --quiet HEAD"),
        0,
        "nothing differs"
    );
    let is_head =
        "test $(git log -1 --format=%s) = 2 && test $(git symbolic-ref HEAD) = refs/heads/main";
    assert_eq!(terminal.command(is_head), 0, "HEAD is where it was");
    std::fs::remove_dir(terminal.scene.path("still")).expect("the gate");
    assert_eq!(
        terminal.command("tenure push --backoff 20ms"),
        0,
        "it lands"
    );
}

#[test]
fn terminal_ctrl_z_stops_the_pause_of_a_push_and_ctrl_c_ends_it() {
    let terminal = Terminal::new();
    behind_another(&terminal);
    terminal.line("tenure push --backoff 1h");
    terminal.until("the pause", |screen| {
        screen.contains("Push attempt 1/5 failed.")
    });
    terminal.suspend();
    terminal.line("fg");
    terminal.until_job();
    terminal.key("C-c");
    let code = terminal.status("the prompt after Ctrl-C");
    assert_eq!(code, 130, "it was interrupted");
}

#[test]
fn terminal_that_is_closed_ends_the_run_and_frees_the_lock() {
    let terminal = Terminal::new();
    terminal.line("tenure run x -- sleep 100");
    let command = terminal.held("x");
    let status = terminal.tmux(["kill-server"]).status().expect("tmux");
    assert!(status.success(), "the terminal is closed");
    eventually("the command to end", || !is_alive(command));
    terminal.scene.until_free("x");
}

#[test]
fn terminal_quiet_waits_in_silence() {
    let terminal = Terminal::new();
    let holder = terminal.held_elsewhere("x");
    terminal.line("clear; tenure run -q x --wait forever -- echo mine");
    terminal.scene.until_queued("x", 1);
    let _ = holder.open().expect(0, "the other run ends well");
    let screen = terminal.until("the command", |screen| {
        screen.lines().any(|line| line == "mine")
    });
    assert!(!screen.contains(WAITING), "nothing was shown: {screen}");
}

#[test]
fn terminal_colours_are_for_terminals_that_want_them() {
    let terminal = Terminal::new();
    let holder = terminal.held_elsewhere("x");
    let escape = '\u{1b}';
    let coloured = |line: &str| {
        let screen = terminal.painted(line);
        assert!(screen.contains("STANDING"), "a table is shown: {screen}");
        screen.contains(escape)
    };
    assert!(coloured("tenure list"), "on a terminal");
    assert!(
        !coloured("NO_COLOR=1 tenure list"),
        "not for a caller that asks for none"
    );
    assert!(!coloured("tenure list | cat"), "not for a pipe");
    terminal.command("tenure list >list; tenure check >check");
    for file in ["list", "check"] {
        let text = std::fs::read_to_string(terminal.scene.path(file)).expect("a table");
        assert!(text.contains("STANDING"), "a table: {text}");
        assert!(!text.contains(escape), "not for a file: {text:?}");
    }
    let _ = holder.open().expect(0, "the holder");
}

/// The document of the profile is for programs.
#[test]
fn terminal_a_list_of_fleet_is_a_table_for_people() {
    let terminal = Terminal::new();
    let acquire =
        "tenure --profile fleet acquire x --intent-name i --intent-version 1 --owner none >it";
    assert_eq!(terminal.command(acquire), 0, "a lock");
    let screen = terminal.painted("tenure --profile fleet list");
    assert!(screen.contains("STANDING"), "a table: {screen}");
    assert_eq!(terminal.command("tenure --profile fleet list >list"), 0);
    let text = std::fs::read_to_string(terminal.scene.path("list")).expect("a document");
    assert!(text.starts_with(r#"{"locks":[{"lock_name":"x""#), "{text}");
}

#[test]
fn terminal_a_list_is_as_wide_as_it_and_elsewhere_whole() {
    let terminal = Terminal::new();
    let why = format!("備份🔒 ./backup.sh {}the-end", "--all ".repeat(25));
    let name = "nightly-backup-of-all-databases-of-the-firm";
    let _holder = terminal.scene.hold(name, ["--actor", "ada", "--why", &why]);
    let hostile = "\u{1b}[2J\u{202e}turned";
    let _other = terminal.scene.hold("x", ["--actor", hostile]);
    let words = ["run", name, "-q", "--wait", "forever", "--", "true"];
    let mut waiting = terminal.scene.tenure(words);
    waiting.stdout(Stdio::null()).stderr(Stdio::null());
    let mut waiting = waiting.spawn().expect("a waiter");
    terminal.scene.until_queued(name, 1);
    for columns in [150, 80, 40] {
        terminal.width(columns);
        let over = format!("over-{columns}");
        // What is typed is broken into rows as well, and must not look like what is printed.
        // And tmux takes its time to tell the shell how wide it is.
        terminal.line(&format!(
            "while [ \"$(stty size | cut -d' ' -f2)\" != {columns} ]; do sleep 0.02; done; \
             clear; tenure list; echo over-$(({columns}))"
        ));
        let mut rows = Vec::new();
        terminal.until(&format!("a table in {columns} columns"), |_| {
            rows = terminal.visible().lines().map(str::to_owned).collect();
            rows.contains(&over)
        });
        rows.truncate(rows.iter().position(|row| *row == over).unwrap_or_default());
        // A row that wraps would be two.
        assert_eq!(rows.len(), 4, "{columns}: {rows:#?}");
        assert!(
            rows[0].starts_with("NAME") && rows[0].contains("HOLDER"),
            "{rows:#?}"
        );
        let token = rows[0].contains("TOKEN");
        assert_eq!(token, columns > 80, "what people miss first: {rows:#?}");
        assert!(
            rows[1].starts_with("nightly-bac") && rows[1].ends_with('…'),
            "{rows:#?}"
        );
        assert!(
            rows[2].trim_start().starts_with("1. PID "),
            "who waits: {rows:#?}"
        );
        assert!(
            rows[3].starts_with("x  ") && rows[3].contains("PID "),
            "{rows:#?}"
        );
        assert!(!rows.concat().contains(['\u{1b}', '\u{202e}']), "{rows:#?}");
    }
    assert_eq!(terminal.command("tenure list | cat >list"), 0, "a pipe");
    let text = std::fs::read_to_string(terminal.scene.path("list")).expect("a table");
    assert!(
        text.contains("the-end"),
        "the reader gets all of it: {text}"
    );
    let _ = waiting.kill();
    let _ = waiting.wait();
}

/// A sprint's lock in the folder `project`, and a person at the terminal who is asked about it.
impl Terminal {
    fn sprint_file(&self) -> std::path::PathBuf {
        self.scene.path("project/.sprint-running")
    }

    /// Puts a lock of this process there, taken some hours ago.
    fn sprint_lock(&self, pid: u32, session: &str) -> String {
        use tenure_os::clock::Clock as _;
        std::fs::create_dir_all(self.scene.path("project")).expect("a folder");
        let now_ms = tenure_os::clock::SystemClock::new(None)
            .now()
            .stamp()
            .wall_ms;
        let at = i64::try_from(now_ms - 3_600_000).expect("an instant");
        let record = format!(
            "pid: {pid}\nsession_id: {session}\nstarted_at: {}\nepic_spec: epic5\n\
             lock_version: 1\n",
            jiff::Timestamp::from_millisecond(at).expect("an instant")
        );
        let fresh = self.scene.write("fresh", &record);
        std::fs::rename(fresh, self.sprint_file()).expect("a lock file");
        record
    }

    /// Types `acquire` with these flags; its answer goes to the file `answer`.
    fn sprint_acquire(&self, flags: &str) {
        self.line(&format!(
            "tenure --profile sprint acquire --project-root project --session-id new \
             --epic-spec epic6 {flags} >answer"
        ));
    }

    fn until_asked(&self, what: &str) {
        self.until(what, |screen| {
            screen.replace('\n', "").trim_end().ends_with("[y/N]")
        });
    }

    /// The status of the answer, once the shell is back.
    #[track_caller]
    fn sprint_status(&self, code: i32) -> String {
        assert_eq!(self.status("the answer"), code, "{}", self.screen());
        let answer = std::fs::read_to_string(self.scene.path("answer")).expect("an answer");
        let status = answer.lines().next().unwrap_or_default();
        status.trim_start_matches("status: ").to_owned()
    }

    fn sprint_text(&self) -> String {
        std::fs::read_to_string(self.sprint_file()).expect("a lock file")
    }
}

/// No process has this number.
const NOBODY: u32 = 999_999_999;

#[test]
fn terminal_sprint_a_zombie_is_overridden_after_a_yes() {
    for yes in ["y", "YES"] {
        let terminal = Terminal::new();
        terminal.sprint_lock(NOBODY, "old");
        terminal.sprint_acquire("");
        terminal.until_asked("the question");
        let screen = terminal.screen().replace('\n', "");
        assert!(screen.contains("session: old"), "whose it was: {screen}");
        assert!(screen.contains("override the zombie lock?"), "{screen}");
        terminal.line(yes);
        assert_eq!(terminal.sprint_status(0), "acquired");
        assert!(terminal.sprint_text().contains("session_id: \"new\""));
    }
}

#[test]
fn terminal_sprint_every_other_answer_is_a_no() {
    let terminal = Terminal::new();
    let before = terminal.sprint_lock(NOBODY, "old");
    for no in ["", "n", "maybe"] {
        terminal.sprint_acquire("");
        terminal.until_asked("the question");
        terminal.line(no);
        assert_eq!(terminal.sprint_status(4), "blocked", "{no:?}");
        assert_eq!(terminal.sprint_text(), before, "unchanged after {no:?}");
    }
    terminal.sprint_acquire("");
    terminal.until_asked("the question");
    terminal.key("C-d");
    assert_eq!(terminal.sprint_status(4), "blocked", "the end of all input");
    assert_eq!(terminal.sprint_text(), before, "unchanged");
}

#[test]
fn terminal_sprint_silence_of_30_seconds_is_a_no() {
    let terminal = Terminal::new();
    let before = terminal.sprint_lock(NOBODY, "old");
    let began = instant();
    terminal.sprint_acquire("");
    terminal.until_asked("the question");
    throughout(Duration::from_secs(25), "the question stands", || {
        std::fs::read_to_string(terminal.scene.path("answer")).is_ok_and(|text| text.is_empty())
    });
    terminal.until("the end of the patience", |screen| {
        screen.contains("no answer within 30 s")
    });
    assert!(
        tenure_os::clock::since(began) >= Duration::from_secs(29),
        "30 seconds"
    );
    assert_eq!(terminal.sprint_status(4), "blocked");
    assert_eq!(terminal.sprint_text(), before, "unchanged");
}

#[test]
fn terminal_sprint_what_was_typed_before_the_question_is_no_answer() {
    let terminal = Terminal::new();
    let before = terminal.sprint_lock(NOBODY, "old");
    // The shell's command reads nothing, so what is typed lies in the terminal.
    terminal.line(
        "sh -c 'echo waiting; while [ ! -e go ]; do sleep 0.02; done'; tenure --profile sprint \
         acquire --project-root project --session-id new --epic-spec e >answer",
    );
    terminal.until("the command", |screen| screen.contains("\nwaiting"));
    terminal.line("y");
    terminal.until("it to be typed", |screen| screen.ends_with("\ny"));
    terminal.go();
    terminal.until_asked("the question");
    throughout(Duration::from_millis(500), "nothing is taken over", || {
        terminal.sprint_text() == before
    });
    terminal.line("n");
    assert_eq!(terminal.sprint_status(4), "blocked");
}

#[test]
fn terminal_sprint_force_on_a_zombie_asks_nobody() {
    let terminal = Terminal::new();
    terminal.sprint_lock(NOBODY, "old");
    terminal.sprint_acquire("--force");
    assert_eq!(terminal.sprint_status(0), "acquired");
    let screen = terminal.screen();
    assert!(!screen.contains("[y/N]"), "no question: {screen}");
    assert!(
        screen.contains("Overriding zombie lock"),
        "but a word: {screen}"
    );
}

#[test]
fn terminal_sprint_an_active_lock_is_not_asked_about_without_force() {
    let terminal = Terminal::new();
    let before = terminal.sprint_lock(std::process::id(), "old");
    terminal.sprint_acquire("");
    assert_eq!(terminal.sprint_status(4), "blocked");
    assert!(!terminal.screen().contains("[y/N]"), "no question");
    assert_eq!(terminal.sprint_text(), before, "unchanged");
}

#[test]
fn terminal_sprint_force_on_an_active_lock_is_confirmed_with_a_warning() {
    let terminal = Terminal::new();
    let before = terminal.sprint_lock(std::process::id(), "old");
    terminal.sprint_acquire("--force");
    terminal.until_asked("the confirmation");
    let screen = terminal.screen().replace('\n', " ");
    assert!(screen.contains("may corrupt"), "what it may do: {screen}");
    terminal.line("n");
    assert_eq!(terminal.sprint_status(4), "blocked");
    assert_eq!(terminal.sprint_text(), before, "unchanged");
    terminal.line("clear");
    terminal.until("a clear screen", |screen| !screen.contains("[y/N]"));
    terminal.sprint_acquire("--force");
    terminal.until_asked("the confirmation");
    terminal.line("y");
    assert_eq!(terminal.sprint_status(0), "acquired");
    assert!(terminal.sprint_text().contains("session_id: \"new\""));
}

#[test]
fn terminal_sprint_a_hold_of_our_own_can_be_confirmed_too() {
    let terminal = Terminal::new();
    std::fs::create_dir(terminal.scene.path("project")).expect("a folder");
    terminal.sprint_acquire("");
    assert_eq!(terminal.sprint_status(0), "acquired");
    terminal.sprint_acquire("--force");
    terminal.until_asked("the confirmation");
    terminal.line("y");
    assert_eq!(terminal.sprint_status(0), "acquired");
}

#[test]
fn terminal_sprint_a_yes_to_a_zombie_is_none_to_whoever_is_alive_by_then() {
    let terminal = Terminal::new();
    terminal.sprint_lock(NOBODY, "old");
    terminal.sprint_acquire("");
    terminal.until_asked("the question");
    let meanwhile = terminal.sprint_lock(std::process::id(), "other");
    terminal.line("y");
    assert_eq!(terminal.sprint_status(4), "blocked");
    assert_eq!(terminal.sprint_text(), meanwhile, "unchanged");
}

#[test]
fn terminal_sprint_a_yes_to_one_session_is_none_to_another() {
    let terminal = Terminal::new();
    terminal.sprint_lock(std::process::id(), "old");
    terminal.sprint_acquire("--force");
    terminal.until_asked("the confirmation");
    let meanwhile = terminal.sprint_lock(std::process::id(), "other");
    terminal.line("y");
    terminal.until("the next question", |screen| {
        let screen = screen.replace('\n', "");
        screen.matches("[y/N]").count() == 2 && screen.contains("session: other")
    });
    assert_eq!(terminal.sprint_text(), meanwhile, "unchanged");
    terminal.line("n");
    assert_eq!(terminal.sprint_status(4), "blocked");
    assert_eq!(terminal.sprint_text(), meanwhile, "unchanged");
}

#[test]
fn terminal_sprint_a_newer_version_is_not_asked_about() {
    let terminal = Terminal::new();
    let text = terminal.sprint_lock(NOBODY, "old");
    let newer = text.replace("lock_version: 1", "lock_version: 2");
    std::fs::write(terminal.sprint_file(), &newer).expect("a lock file");
    terminal.sprint_acquire("--force");
    assert_eq!(terminal.sprint_status(4), "blocked");
    assert!(!terminal.screen().contains("[y/N]"), "no question");
    assert_eq!(terminal.sprint_text(), newer, "unchanged");
}

#[test]
fn terminal_sprint_without_a_terminal_on_either_side_nobody_is_asked() {
    let terminal = Terminal::new();
    let before = terminal.sprint_lock(NOBODY, "old");
    for redirected in ["</dev/null", "2>/dev/null"] {
        terminal.sprint_acquire(redirected);
        assert_eq!(terminal.sprint_status(4), "zombie-detected", "{redirected}");
        assert_eq!(terminal.sprint_text(), before, "unchanged");
    }
}

#[test]
fn terminal_sprint_ctrl_c_at_the_question_changes_nothing() {
    let terminal = Terminal::new();
    let before = terminal.sprint_lock(NOBODY, "old");
    terminal.sprint_acquire("");
    terminal.until_asked("the question");
    terminal.key("C-c");
    assert_eq!(terminal.sprint_status(130), "failure");
    assert_eq!(terminal.sprint_text(), before, "unchanged");
}

#[test]
fn terminal_sprint_the_question_survives_ctrl_z_and_fg() {
    let terminal = Terminal::new();
    terminal.sprint_lock(NOBODY, "old");
    terminal.sprint_acquire("");
    terminal.until_asked("the question");
    terminal.suspend();
    terminal.line("fg");
    terminal.until_job();
    terminal.line("y");
    assert_eq!(terminal.sprint_status(0), "acquired");
}

#[test]
fn terminal_help_fits_the_screen_and_is_in_colour_unless_nobody_wants_it() {
    let terminal = Terminal::new();
    let resized = terminal
        .tmux(["resize-window", "-x", "80", "-y", "40"])
        .status();
    assert!(
        resized.is_ok_and(|status| status.success()),
        "80 columns, 40 lines"
    );
    for (before, has_colours) in [
        ("", true),
        ("CLICOLOR=1 NO_COLOR= ", true),
        ("NO_COLOR=1 ", false),
        ("CLICOLOR=0 ", false),
        ("TERM=dumb ", false),
    ] {
        for words in [
            "-h",
            "run -h",
            "--profile fleet run -h",
            "check --help",
            "flock -h",
        ] {
            let screen = terminal.painted(&format!("{before}tenure {words}"));
            assert!(screen.contains("--help"), "the page is there: {screen}");
            let page = screen.split("Usage:").nth(1).unwrap_or_default();
            let is_painted = page.contains("\u{1b}[36m");
            assert_eq!(
                is_painted, has_colours,
                "{before}tenure {words}: {screen:?}"
            );
        }
    }
    // What the table says is the same question.
    assert_eq!(terminal.command("tenure run x -- true"), 0);
    for (before, has_colours) in [("", true), ("NO_COLOR=1 ", false), ("CLICOLOR=0 ", false)] {
        let screen = terminal.painted(&format!("{before}tenure list --all --output text"));
        let is_painted = screen.contains("\u{1b}[32mfree");
        assert_eq!(is_painted, has_colours, "{before}tenure list: {screen:?}");
    }
}

/// A terminal that cannot take a line back is written to line by line.
#[test]
fn terminal_a_dumb_one_is_not_drawn_on_while_waiting() {
    let terminal = Terminal::new();
    let holder = terminal.scene.hold("x", ["-q"]);
    let gate = terminal.scene.path("typescript");
    let wait = |before: &str| {
        let log = gate.display();
        let code = terminal.command(&format!(
            "{before} script -qec 'tenure run x --wait 700ms -- true' {log} </dev/null"
        ));
        assert_eq!(code, 4, "not free in time");
        let shown = std::fs::read_to_string(&gate).expect("what was shown");
        assert!(shown.contains("x is held by"), "who holds it: {shown:?}");
        shown
    };
    let drawn = wait("");
    assert!(
        drawn.contains("\r\u{1b}[K\u{1b}[?7l⠋"),
        "a terminal is drawn on: {drawn:?}"
    );
    for unwanted in ["NO_COLOR=1", "CLICOLOR=0"] {
        let plain = wait(unwanted);
        assert!(!plain.contains('\u{1b}'), "no sequence: {plain:?}");
        assert!(plain.contains(" \r⠋"), "and drawn all the same: {plain:?}");
    }
    let log = wait("CI=true");
    assert!(!log.contains('⠋'), "no person looks: {log:?}");
    let dumb = wait("TERM=dumb");
    assert!(
        !dumb.contains('\u{1b}') && !dumb.contains('⠋'),
        "lines alone: {dumb:?}"
    );
    let _ = holder.open().expect(0, "the holder");
}

/// A shell that completes, and what it is given to read first.
struct Completing {
    shell: &'static str,
    start: String,
    setup: &'static str,
    /// A file that the set-up needs, and the package that has it.
    needs: Option<(&'static str, &'static str)>,
    /// What leaves it without any program.
    unplug: &'static str,
}

fn completing(shell: &str) -> Completing {
    match shell {
        "bash" => Completing {
            shell: "bash",
            start: format!("PS1='{PROMPT} ' PS2='' HISTFILE= exec bash --norc --noprofile -i"),
            setup: "eval \"$(tenure completions bash)\"",
            needs: None,
            unplug: "PATH=/",
        },
        "bash with bash-completion" => Completing {
            shell: "bash",
            setup: ". /usr/share/bash-completion/bash_completion; . <(tenure completions bash)",
            needs: Some((
                "/usr/share/bash-completion/bash_completion",
                "bash-completion",
            )),
            ..completing("bash")
        },
        "zsh" => Completing {
            shell: "zsh",
            start: format!("PROMPT='{PROMPT} ' exec zsh -f -i"),
            setup: "unsetopt beep promptsp; autoload -U compinit; compinit -D -u; source <(tenure completions zsh)",
            needs: None,
            unplug: "PATH=/",
        },
        _ => Completing {
            shell: "fish",
            start: format!(
                "exec fish --no-config -i -C 'function fish_prompt; echo -n \"{PROMPT} \"; end; \
                 function fish_greeting; end; set -g fish_autosuggestion_enabled 0'"
            ),
            setup: "tenure completions fish | source",
            needs: None,
            unplug: "set PATH /",
        },
    }
}

impl Terminal {
    /// A terminal whose shell has read the script.
    fn completing(of: &str) -> Self {
        let with = completing(of);
        let there = Command::new(with.shell)
            .args(["-c", "true"])
            .stdout(Stdio::null())
            .status();
        assert!(
            there.is_ok_and(|status| status.success()),
            "this test needs {}, and it cannot be run; `scripts/install-tools` gets it",
            with.shell
        );
        if let Some((file, package)) = with.needs {
            assert!(
                std::path::Path::new(file).exists(),
                "this test needs {package}; `scripts/install-tools` gets it"
            );
        }
        let terminal = Self::with_shell(&with.start);
        terminal.line(with.setup);
        terminal.until("it to be typed", |screen| screen.trim() != PROMPT);
        terminal.line("clear");
        terminal.until("an empty screen", |screen| screen.trim() == PROMPT);
        terminal
    }

    /// The line that is being typed.
    fn typed(&self) -> String {
        let screen = self.screen();
        let at = screen.rfind(PROMPT).map_or(0, |at| at + PROMPT.len());
        screen[at..].trim().to_owned()
    }

    /// Types the beginning of a line and has it completed.
    #[track_caller]
    fn completes(&self, typed: &str, whole: &str) {
        self.until("an empty line", |_| self.typed().is_empty());
        self.keys(typed);
        self.until("the line", |_| self.typed().starts_with(typed));
        self.key("Tab");
        let what = format!("{typed:?} to become {whole:?}");
        self.until(&what, |_| self.typed() == whole);
        self.key("C-e");
        self.key("C-u");
    }

    /// Has a line completed whose last word is then read by the shell.
    #[track_caller]
    fn means(&self, typed: &str, close: &str, word: &str) {
        self.until("an empty line", |_| self.typed().is_empty());
        self.keys(typed);
        self.until("the line", |_| self.typed().starts_with(typed));
        self.key("Tab");
        self.until("something more", |_| self.typed().len() > typed.len() + 5);
        self.keys(close);
        self.key("C-a");
        self.keys("printf '[%s]\\n' ");
        self.key("Enter");
        self.until(&format!("{word:?}"), |screen| {
            screen.contains(&format!("[{word}]"))
        });
        self.line("clear");
        self.until("an empty screen", |screen| screen.trim() == PROMPT);
    }
}

/// What every shell has to do.
fn completes_what_there_is(shell: &str) {
    let terminal = Terminal::completing(shell);
    let scene = &terminal.scene;
    let hostile = "ci a$(touch pwned)`touch pwned`; 'b' \"c\"";
    let _backup = scene.hold("backup", ["-n"]);
    let _group = scene.hold("x1", ["--group", hostile]);
    scene.write("deploy intent.yaml", "");
    std::fs::create_dir_all(scene.path("a folder/inner")).expect("folders");

    terminal.completes("tenure forc", "tenure force-release");
    terminal.completes("tenure run --cancel", "tenure run --cancel-in-progress");
    terminal.completes("tenure -q check ba", "tenure -q check backup");
    terminal.completes("tenure release 'ba", "tenure release 'backup'");
    terminal.completes("tenure --profile=fl", "tenure --profile=fleet");
    terminal.completes("tenure list --profile fl", "tenure list --profile fleet");
    terminal.completes("tenure --dir a", "tenure --dir a\\ folder/");
    terminal.completes("tenure --dir=a", "tenure --dir=a\\ folder/");
    terminal.completes(
        "tenure run --intent dep",
        "tenure run --intent deploy\\ intent.yaml",
    );
    terminal.completes("tenure run x -- tmu", "tenure run x -- tmux");
    terminal.completes(
        "tenure run x -- cat depl",
        "tenure run x -- cat deploy\\ intent.yaml",
    );
    terminal.completes(
        "tenure flock -n depl",
        "tenure flock -n deploy\\ intent.yaml",
    );
    terminal.completes("tenure flock f tmu", "tenure flock f tmux");
    terminal.completes("tenure flock --conf", "tenure flock --conflict-exit-code");

    terminal.means("tenure cancel --group ci", "", hostile);
    terminal.means("tenure cancel --group \"ci", "", hostile);
    assert!(!scene.path("pwned").exists(), "a name was run");

    // Where there is nothing to say, nothing is said; nor where no tenure is.
    terminal.keys("tenure frob x");
    terminal.key("Tab");
    terminal.keys("y");
    let screen = terminal.until("what is typed", |screen| screen.contains("frob xy"));
    assert_eq!(
        screen.lines().count(),
        1,
        "the prompt is disturbed:\n{screen}"
    );
    terminal.key("C-u");
    terminal.until("an empty line", |_| terminal.typed().is_empty());
    terminal.line(completing(shell).unplug);
    terminal.until("the next prompt", |screen| {
        screen.matches(PROMPT).count() == 2 && screen.ends_with(PROMPT)
    });
    terminal.keys("tenure chec");
    terminal.key("Tab");
    terminal.keys("z");
    let screen = terminal.until("what is typed", |screen| screen.contains("checz"));
    assert_eq!(
        screen.lines().count(),
        2,
        "the prompt is disturbed:\n{screen}"
    );
    // A key starts no program that is only typed.
    let planted = scene.script("tenure", "#!/bin/sh\n: > planted\n");
    assert!(planted.exists());
    terminal.key("C-u");
    terminal.until("an empty line", |_| terminal.typed().is_empty());
    terminal.keys("./tenure chec");
    terminal.key("Tab");
    terminal.keys("z");
    terminal.until("what is typed", |screen| screen.contains("./tenure checz"));
    assert!(
        !scene.path("planted").exists(),
        "a key started what was typed"
    );
}

#[test]
fn bash_completes_what_there_is() {
    completes_what_there_is("bash");
}

#[test]
fn bash_completes_what_there_is_with_its_package_of_completions() {
    completes_what_there_is("bash with bash-completion");
}

#[test]
fn zsh_completes_what_there_is() {
    completes_what_there_is("zsh");
}

#[test]
fn fish_completes_what_there_is() {
    completes_what_there_is("fish");
}

/// The top of a page that is too long has left the screen when the prompt is back.
#[test]
fn terminal_of_24_lines_shows_a_whole_page_of_help_and_a_document_on_its_own_line() {
    let terminal = Terminal::new();
    let size = ["resize-window", "-x", "80", "-y", "24"];
    assert!(terminal.tmux(size).status().expect("tmux").success());
    for words in [
        "run -h",
        "--profile fleet run -h",
        "--profile sprint acquire -h",
        "-h",
    ] {
        let page = terminal.scene.run(words.split(' ')).stdout();
        terminal.line(&format!("clear; tenure {words}"));
        let last = page.trim_end().lines().last().expect("a page");
        terminal.until("the page and the prompt", |screen| {
            screen.contains(last) && screen.trim_end().ends_with(PROMPT)
        });
        assert_eq!(terminal.visible(), format!("{page}{PROMPT}"), "{words}");
    }
    let command = "printf \"progress 50%%\"; kill -TERM $PPID; sleep 60";
    terminal.line(&format!(
        "clear; tenure run x --output json -- sh -c '{command}'"
    ));
    terminal.until("the document", |screen| {
        let mut lines = screen
            .lines()
            .skip_while(|line| !line.starts_with("progress 50%"));
        lines.next() == Some("progress 50%") && lines.any(|line| line.starts_with("{\"ok\":false"))
    });
}

/// At a terminal a person says yes before the work of a dead supervisor is ended.
#[test]
fn terminal_cancel_orphan_asks_first() {
    let terminal = Terminal::new();
    let mut run = terminal
        .scene
        .tenure(["run", "-q", "j", "--", "sleep", "600"]);
    let mut run = run.stdin(Stdio::null()).spawn().expect("a run");
    let command = || terminal.scene.check("j")["holder"]["command_pid"].as_u64();
    eventually("a command", || command().is_some());
    let command = u32::try_from(command().expect("a command")).expect("a number");
    run.kill().expect("it is ours");
    run.wait().expect("its end");
    terminal.line("tenure cancel --orphan --dry-run j");
    assert_eq!(
        terminal.status("what it would do"),
        0,
        "{}",
        terminal.screen()
    );
    terminal.line("tenure cancel --orphan j --output json >answer");
    terminal.until_asked("the question");
    let screen = terminal.screen().replace('\n', "");
    assert!(screen.contains(&format!("End PID {command}?")), "{screen}");
    terminal.line("n");
    assert_eq!(terminal.status("no yes"), 4, "{}", terminal.screen());
    let answer = std::fs::read_to_string(terminal.scene.path("answer")).expect("an answer");
    assert!(answer.contains("CONFIRMATION_REQUIRED"), "{answer}");
    assert!(is_alive(command), "no process was ended");
    terminal.line("tenure cancel --orphan j");
    terminal.until("the next question", |screen| {
        screen.replace('\n', "").matches("[y/N]").count() == 2
    });
    terminal.line("y");
    assert_eq!(terminal.status("a yes"), 0, "{}", terminal.screen());
    assert!(!is_alive(command), "ended");
}
