//! `demo`: shows in twenty seconds what a lock does, with real calls of this program in a scratch folder.
//!
//! **Nothing is left, and nothing else is touched**: each call has the folder, its own configuration and its own home there, and
//! no variable of tenure from outside. At the end, and when a signal comes, the calls are ended first, and then the folder
//! is removed.
//!
//! The story is true: what is shown as typed is what is called, and a call that ends otherwise than told fails the demo.

use super::call::one_form;
use super::refusal::cancelled_by;
use super::session::collect_signals;
use crate::args::value;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;
use crate::render::colour::shows_colours;
use crate::render::width::room_on_stdout;
use crate::render::{Unheard, clean_path, print_lines};
use crate::request::DemoArgs;
use crate::signals::{Signals, pause_if_asked, stop_asked};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tenure_os::clock::{instant, since};
use tenure_store::printed::is_plain;

/// How long a beat takes, unless said otherwise. The story has about twenty.
const BEAT: Duration = Duration::from_millis(950);

/// How long a call may take to end, when it is asked to and when it should end by itself.
const END_MAX: Duration = Duration::from_secs(5);
const STEP_MAX: Duration = Duration::from_secs(30);

/// How often a call is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// Variables that a call of the demo keeps. Others may name places, or change what it does.
const KEPT: [&str; 7] = ["PATH", "LANG", "LC_ALL", "TERM", "USER", "TMPDIR", "TZ"];

/// What workers and agents do: say that they begin, work until their file is there, say that they have done it. Without the demo
/// they end by themselves.
const WORK: &str = r#"echo "   $1 works"
: >"$1.begun"
n=0
until [ -e "$1.done" ] || [ $n -ge 600 ]; do sleep 0.05; n=$((n + 1)); done
echo "   $1 has done it"
"#;

#[cold]
#[inline(never)]
pub(super) fn demo(args: &DemoArgs) -> Exit {
    let reporter = match one_form(args.output, "demo", "a story") {
        Ok(reporter) => reporter,
        Err(exit) => return exit,
    };
    match told(args) {
        Ok(()) => Exit::Success,
        Err(failure) => reporter.fail(&failure),
    }
}

fn told(args: &DemoArgs) -> Result<(), Failure> {
    let beat = value::given("--beat", args.beat.as_ref())?.unwrap_or(BEAT);
    let signals = collect_signals()?;
    let mut stage = Stage::set(beat, signals).map_err(|error| cannot("begin", &error))?;
    let ended = stage.play();
    // Before anything is said of it: the calls end, and the folder goes.
    let swept = stage.strike();
    match stop_asked() {
        Some(number) => Err(Failure::already_said(
            cancelled_by(number, "demo").exit,
            Output::Text,
        )),
        None => match ended {
            Err(Step::Unheard) => Ok(()),
            Err(Step::Failed(failure)) => Err(*failure),
            Ok(()) => swept.map_err(|error| cannot("remove its folder", &error)),
        },
    }
}

fn cannot(what: &str, error: &io::Error) -> Failure {
    let why = tenure_engine::audit::error_text(error);
    Failure::new(
        Exit::General,
        "NO_DEMO",
        format!("the demo cannot {what}: {why}"),
    )
}

/// Why the story does not go on.
enum Step {
    /// The reader has gone, or a signal came.
    Unheard,
    Failed(Box<Failure>),
}

impl From<io::Error> for Step {
    fn from(error: io::Error) -> Self {
        Self::Failed(Box::new(cannot("go on", &error)))
    }
}

impl From<Unheard> for Step {
    fn from(unheard: Unheard) -> Self {
        match unheard {
            Unheard::Gone | Unheard::Stopped(_) => Self::Unheard,
            Unheard::Failed(_) => Self::Failed(Box::new(unheard.failure())),
        }
    }
}

/// The scratch folder, and the calls that are under way.
struct Stage {
    folder: Option<TempDir>,
    program: PathBuf,
    beat: Duration,
    signals: Signals,
    calls: Vec<Child>,
    colours: bool,
}

impl Stage {
    fn set(beat: Duration, signals: Signals) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("tenure-demo-").tempdir()?;
        std::fs::write(folder.path().join("work"), WORK)?;
        // The nearest configuration, so that none above this folder counts.
        std::fs::write(folder.path().join("tenure.toml"), "dir = \"locks\"\n")?;
        Ok(Self {
            folder: Some(folder),
            program: std::env::current_exe()?,
            beat,
            signals,
            calls: Vec::new(),
            colours: shows_colours(&io::stdout()),
        })
    }

    fn play(&mut self) -> Result<(), Step> {
        self.opening()?;
        self.two_workers()?;
        self.a_killed_holder()?;
        self.newest_wins()?;
        self.two_agents()?;
        self.afterwards()
    }

    fn opening(&mut self) -> Result<(), Step> {
        let folder = self.folder.as_ref().map(|folder| clean_path(folder.path()));
        let folder = folder.unwrap_or_default();
        print_lines(&format!(
            "Five scenes with real calls in {folder}, which is gone at the end.\n"
        ))?;
        self.rest(1)
    }

    fn two_workers(&mut self) -> Result<(), Step> {
        self.title("1. Two workers, one lock: the second waits for its turn.")?;
        let work = ["run", "-q", "build", "--", "sh", "work"];
        let first = self.begin(&[&work[..], &["worker-1"]].concat())?;
        self.has_begun("worker-1")?;
        self.rest(1)?;
        let second = self.begin(&[&work[..], &["worker-2"]].concat())?;
        self.until_queued("build")?;
        // Held, so the code says 4.
        self.call(&["check", "build"], 4)?;
        self.rest(1)?;
        self.has_done("worker-1")?;
        self.until(first, 0)?;
        self.rest(1)?;
        self.has_done("worker-2")?;
        self.until(second, 0)
    }

    fn a_killed_holder(&mut self) -> Result<(), Step> {
        self.title("2. A holder is killed: the next one has the lock at once. Nobody cleans up.")?;
        let killed = self.begin(&["run", "-q", "build", "--", "sh", "work", "worker-3"])?;
        self.has_begun("worker-3")?;
        self.rest(1)?;
        let next = self.begin(&["run", "-q", "build", "--", "sh", "work", "worker-4"])?;
        self.until_queued("build")?;
        self.rest(1)?;
        let holder = self.check("build")?["holder"].clone();
        let pids = [&holder["pid"], &holder["command_pid"]].map(Value::as_i64);
        let pids: Vec<i32> = pids.into_iter().flatten().flat_map(i32::try_from).collect();
        let words: Vec<String> = pids.iter().map(i32::to_string).collect();
        self.typed(&format!("kill -9 {}", words.join(" ")))?;
        for pid in pids.into_iter().filter_map(Pid::from_raw) {
            // The supervisor is a child of this process, and its record named its command a moment ago.
            kill_process(pid, Signal::KILL).map_err(io::Error::from)?;
        }
        self.ended(killed)?;
        self.rest(1)?;
        self.has_done("worker-4")?;
        self.until(next, 0)
    }

    fn newest_wins(&mut self) -> Result<(), Step> {
        self.title("3. Newest wins: a newer run of a group ends the older one.")?;
        let words = ["run", "-q", "--group", "deploy", "--cancel-in-progress"];
        let words = [&words[..], &["--", "sh", "work"]].concat();
        let older = self.begin(&[&words[..], &["version-1"]].concat())?;
        self.has_begun("version-1")?;
        self.rest(2)?;
        let newer = self.begin(&[&words[..], &["version-2"]].concat())?;
        self.until(older, 79)?;
        self.rest(1)?;
        self.has_done("version-2")?;
        self.until(newer, 0)
    }

    fn two_agents(&mut self) -> Result<(), Step> {
        self.title(
            "4. Two agents, one file: the second is told who has it, and comes when it is free.",
        )?;
        let [one, two] = ["demo/one", "demo/two"]
            .map(|agent| ["run", "-q", "--as", agent, "--path", "notes.md"]);
        let first = self.begin(&[&one[..], &["--", "sh", "work", "agent-1"]].concat())?;
        self.has_begun("agent-1")?;
        self.rest(1)?;
        let at_once = ["run", "-n", "--as", "demo/two", "--path", "notes.md"];
        self.call(
            &[&at_once[..], &["--", "sh", "work", "agent-2"]].concat(),
            4,
        )?;
        self.rest(1)?;
        let second = self.begin(&[&two[..], &["--", "sh", "work", "agent-2"]].concat())?;
        self.rest(1)?;
        self.has_done("agent-1")?;
        self.until(first, 0)?;
        self.rest(1)?;
        self.has_done("agent-2")?;
        self.until(second, 0)
    }

    fn afterwards(&mut self) -> Result<(), Step> {
        self.title("5. And the audit knows who waited, and for how long.")?;
        self.call(&["audit", "build", "--waited"], 0)?;
        self.rest(2)?;
        Ok(print_lines(
            "\nYours begins with: tenure run NAME -- COMMAND\n",
        )?)
    }
}

impl Stage {
    fn title(&mut self, title: &str) -> Result<(), Step> {
        self.rest(1)?;
        let title = if self.colours {
            format!("\n\x1b[1m{title}\x1b[0m\n")
        } else {
            format!("\n{title}\n")
        };
        Ok(print_lines(&title)?)
    }

    /// Shows a line as it is typed.
    fn typed(&self, line: &str) -> Result<(), Step> {
        let line = if self.colours {
            format!("   \x1b[36m$ {line}\x1b[0m\n")
        } else {
            format!("   $ {line}\n")
        };
        Ok(print_lines(&line)?)
    }

    /// The file by which a worker or an agent says something, or is told something.
    fn sign(&self, who: &str, what: &str) -> PathBuf {
        let folder = self.folder.as_ref().map(TempDir::path);
        let folder = folder.map(Path::to_owned).unwrap_or_default();
        folder.join(format!("{who}.{what}"))
    }

    /// Waits until the worker or the agent of the last call is at work.
    fn has_begun(&mut self, who: &str) -> Result<(), Step> {
        let (began, sign) = (instant(), self.sign(who, "begun"));
        while !sign.exists() {
            let call = self.calls.last_mut().map(Child::try_wait).transpose()?;
            if since(began) > STEP_MAX || call.flatten().is_some() {
                return Err(off_script(&format!("{who} does not begin")));
            }
            self.nap(LOOK)?;
        }
        Ok(())
    }

    /// Lets a worker or an agent end its work.
    fn has_done(&self, who: &str) -> io::Result<()> {
        std::fs::write(self.sign(who, "done"), "")
    }

    /// Lets some beats pass.
    fn rest(&mut self, beats: u32) -> Result<(), Step> {
        let (began, span) = (instant(), self.beat * beats);
        while let Some(rest) = span
            .checked_sub(since(began))
            .filter(|rest| !rest.is_zero())
        {
            self.nap(rest)?;
        }
        Ok(())
    }

    /// Sleeps at most so long. A signal ends the story.
    fn nap(&self, nap: Duration) -> Result<(), Step> {
        let signal = self.signals.descriptor();
        let mut fds = [PollFd::new(&signal, PollFlags::IN)];
        let nap = Timespec::try_from(nap).ok();
        let _ = poll(&mut fds, nap.as_ref());
        while self.signals.next().is_some() {}
        pause_if_asked();
        match stop_asked() {
            Some(_) => Err(Step::Unheard),
            None => Ok(()),
        }
    }

    /// A call of this program in the scratch folder.
    fn tenure(&self, words: &[&str]) -> Command {
        let folder = self.folder.as_ref().map(|folder| folder.path().to_owned());
        let folder = folder.unwrap_or_default();
        let mut command = Command::new(&self.program);
        let kept = KEPT.into_iter();
        let kept: Vec<(&str, OsString)> = kept
            .filter_map(|name| Some((name, std::env::var_os(name)?)))
            .collect();
        command
            .args(words)
            .env_clear()
            .envs(kept)
            .env("HOME", &folder)
            .env("TENURE_DIR", folder.join("locks"))
            .current_dir(&folder)
            .stdin(Stdio::null());
        if let Some(columns) = room_on_stdout() {
            command.env("COLUMNS", columns.to_string());
        }
        command
    }

    /// Shows a call and begins it. Answers with its place among the calls.
    fn begin(&mut self, words: &[&str]) -> Result<usize, Step> {
        let shown: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        self.typed(&format!("tenure {} &", shown.join(" ")))?;
        self.calls.push(self.tenure(words).spawn()?);
        Ok(self.calls.len() - 1)
    }

    /// Shows a call, and wants this code of it.
    fn call(&mut self, words: &[&str], code: i32) -> Result<(), Step> {
        let shown: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        self.typed(&format!("tenure {}", shown.join(" ")))?;
        self.calls.push(self.tenure(words).spawn()?);
        self.until(self.calls.len() - 1, code)
    }

    /// Waits for the end of a call.
    fn ended(&mut self, call: usize) -> Result<ExitStatus, Step> {
        let began = instant();
        loop {
            let child = self.calls.get_mut(call);
            if let Some(status) = child.map(Child::try_wait).transpose()?.flatten() {
                return Ok(status);
            }
            if since(began) > STEP_MAX {
                return Err(off_script("a call did not end"));
            }
            self.nap(LOOK)?;
        }
    }

    /// Waits for the end of a call, which has this code.
    fn until(&mut self, call: usize, code: i32) -> Result<(), Step> {
        let status = self.ended(call)?;
        if status.code() == Some(code) {
            if code != 0 {
                print_lines(&format!("   (exit code {code})\n"))?;
            }
            return Ok(());
        }
        Err(off_script(&format!("a call ended with {status}")))
    }

    /// What is known of a lock.
    fn check(&self, name: &str) -> Result<Value, Step> {
        let mut check = self.tenure(&["check", name, "--output", "json"]);
        let output = check.stderr(Stdio::null()).output()?;
        let document: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        Ok(document["error"]["context"].clone())
    }

    /// Waits until a caller stands in line.
    fn until_queued(&self, name: &str) -> Result<(), Step> {
        let began = instant();
        while self.check(name)?["queue"].get(0).is_none() {
            if since(began) > STEP_MAX {
                return Err(off_script("nobody waits"));
            }
            self.nap(LOOK)?;
        }
        Ok(())
    }

    /// Ends all calls that are under way, and removes the folder.
    fn strike(&mut self) -> io::Result<()> {
        let mut calls = std::mem::take(&mut self.calls);
        let mut left: Vec<&mut Child> = calls.iter_mut().collect();
        let is_running = |call: &mut Child| matches!(call.try_wait(), Ok(None));
        left.retain_mut(|call| is_running(call));
        for call in &left {
            let pid = i32::try_from(call.id()).ok().and_then(Pid::from_raw);
            let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
        }
        let began = instant();
        while !left.is_empty() && since(began) < END_MAX {
            tenure_os::clock::nap(LOOK);
            left.retain_mut(|call| is_running(call));
        }
        for call in left {
            let _ = call.kill();
            let _ = call.wait();
        }
        self.folder.take().map_or(Ok(()), TempDir::close)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.strike();
    }
}

fn off_script(what: &str) -> Step {
    let said = format!("the demo went another way than it tells: {what}");
    Step::Failed(Box::new(Failure::new(Exit::General, "NO_DEMO", said)))
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    if is_plain(word, "-_./=") {
        return word.to_owned();
    }
    format!("\"{word}\"")
}
