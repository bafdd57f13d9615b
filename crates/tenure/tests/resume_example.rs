//! The job runner of `examples/resume`. Two at once do no item twice and lose none, and another run goes
//! on from the checkpoint of a killed one.

#![allow(clippy::expect_used, reason = "a test says what it expects by failing")]

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;
use tenure_os::clock::instant;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

const ITEMS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// The example's program. `cargo test` and `cargo nextest` build it next to the tests.
fn program() -> PathBuf {
    let test = std::env::current_exe().expect("this program");
    let folder = test.parent().and_then(|deps| deps.parent());
    let program = folder
        .expect("the build's folder")
        .join("examples")
        .join(format!("resume{}", std::env::consts::EXE_SUFFIX));
    assert!(
        program.exists(),
        "{} was not built: cargo build -p tenure --example resume",
        program.display()
    );
    program
}

struct Job(tempfile::TempDir);

impl Job {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn spawn(&self, words: &[&str]) -> Child {
        Command::new(program())
            .arg(self.0.path())
            .args(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the example")
    }

    fn run(&self, words: &[&str]) -> Output {
        self.spawn(words).wait_with_output().expect("its end")
    }

    fn start(&self, delay_ms: &str) -> Child {
        let words = ["start", "job-7", "--delay-ms", delay_ms];
        self.spawn(&[words.as_slice(), &ITEMS].concat())
    }

    /// The items in the output with the processes that did them.
    fn done(&self) -> Vec<(String, u32)> {
        let text = fs::read_to_string(self.0.path().join("job-7.out")).unwrap_or_default();
        text.lines()
            .filter_map(|line| {
                let (item, pid) = line.split_once(' ')?;
                Some((item.to_owned(), pid.parse().ok()?))
            })
            .collect()
    }

    fn wait_until_done(&self, items: usize) {
        let began = instant();
        while self.done().len() < items {
            assert!(
                tenure_os::clock::since(began) < PATIENCE,
                "waited too long for {items}"
            );
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn assert_whole(&self) {
        let items: Vec<String> = self.done().into_iter().map(|(item, _)| item).collect();
        assert_eq!(items, ITEMS, "each item once, in order, and none lost");
    }
}

fn said(output: &Output) -> String {
    format!(
        "{:?} {}{}",
        output.status.code(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn resume_example_both_layers_take_the_lock_and_do_not_block_each_other() {
    let job = Job::new();
    let output = job.start("0").wait_with_output().expect("its end");
    assert!(output.status.success(), "{}", said(&output));
    job.assert_whole();
    assert!(
        !job.0.path().join("resume_locks/job-7.lock").exists(),
        "released"
    );
    let status = job.run(&["status", "job-7"]);
    assert!(
        said(&status).contains("8 of 8 items done"),
        "{}",
        said(&status)
    );
}

#[test]
fn resume_example_two_resumes_at_once_do_no_item_twice_and_lose_none() {
    for round in 0..5 {
        let job = Job::new();
        let mut first = job.start("5");
        job.wait_until_done(1 + round % 3);
        first.kill().expect("still at it");
        first.wait().expect("its end");
        let resume = ["resume", "job-7", "--delay-ms", "5"];
        let both = [job.spawn(&resume), job.spawn(&resume)];
        let both = both.map(|child| child.wait_with_output().expect("its end"));
        job.assert_whole();
        assert!(
            both.iter().any(|output| output.status.success()),
            "one of them went on"
        );
        for output in &both {
            let blocked = output.status.code() == Some(4)
                && said(output).contains("Resume already in progress for job job-7")
                && said(output).contains("Lock held by: PID ");
            assert!(output.status.success() || blocked, "{}", said(output));
        }
    }
}

#[test]
fn resume_example_two_starts_at_once_begin_one_job() {
    let job = Job::new();
    let both = [job.start("5"), job.start("5")];
    let both = both.map(|child| child.wait_with_output().expect("its end"));
    job.assert_whole();
    let began = both.iter().filter(|output| output.status.success()).count();
    assert_eq!(began, 1, "{} / {}", said(&both[0]), said(&both[1]));
}

#[test]
fn resume_example_a_resume_while_one_works_is_blocked_with_the_message() {
    let job = Job::new();
    let first = job.start("40");
    job.wait_until_done(1);
    let pid = first.id();
    let second = job.run(&["resume", "job-7"]);
    assert_eq!(second.status.code(), Some(4), "{}", said(&second));
    let named = format!("Lock held by: PID {pid} on ");
    assert!(said(&second).contains(&named), "{}", said(&second));
    let first = first.wait_with_output().expect("its end");
    assert!(first.status.success(), "{}", said(&first));
    job.assert_whole();
}

#[test]
fn resume_example_a_resume_after_sigkill_goes_on_from_the_checkpoint() {
    let job = Job::new();
    let mut first = job.start("100");
    let killed = first.id();
    job.wait_until_done(3);
    first.kill().expect("still at it");
    first.wait().expect("its end");
    assert!(
        job.0.path().join("resume_locks/job-7.lock").exists(),
        "no process released"
    );
    let second = job.run(&["resume", "job-7"]);
    assert!(second.status.success(), "{}", said(&second));
    job.assert_whole();
    let by_first = job.done().iter().filter(|(_, pid)| *pid == killed).count();
    assert!(
        (2..ITEMS.len()).contains(&by_first),
        "what was done before the kill was not done again: {:?}",
        job.done()
    );
}

#[test]
fn resume_example_an_output_beyond_the_checkpoint_is_done_again() {
    let job = Job::new();
    let mut first = job.start("100");
    job.wait_until_done(3);
    first.kill().expect("still at it");
    first.wait().expect("its end");
    // As after a kill in the middle of a line.
    let out = job.0.path().join("job-7.out");
    let mut text = fs::read_to_string(&out).expect("the output");
    text.push_str("d 1");
    fs::write(&out, text).expect("half a line");
    let second = job.run(&["resume", "job-7"]);
    assert!(second.status.success(), "{}", said(&second));
    job.assert_whole();
}

#[test]
fn resume_example_a_forced_resume_takes_over_and_the_old_one_stops() {
    let job = Job::new();
    let first = job.start("50");
    job.wait_until_done(2);
    let second = job.run(&["resume", "job-7", "--force", "--delay-ms", "60"]);
    assert!(second.status.success(), "{}", said(&second));
    let first = first.wait_with_output().expect("its end");
    assert_eq!(first.status.code(), Some(1), "{}", said(&first));
    assert!(
        said(&first).contains("The resume lock for job-7 is lost"),
        "{}",
        said(&first)
    );
    job.assert_whole();
}
