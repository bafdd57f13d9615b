//! The resume profile on the command line: one process resumes a session or job at a time.

use crate::support::{Answer, Gate, Scene, Started, eventually, send};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

struct Storage {
    scene: Scene,
}

impl Storage {
    fn new() -> Self {
        Self {
            scene: Scene::new(),
        }
    }

    fn run(&self, words: &[&str]) -> Answer {
        self.scene.run(["--profile", "resume"].iter().chain(words))
    }

    fn start(&self, words: &[&str]) -> Started {
        let mut command = self
            .scene
            .tenure(["--profile", "resume"].iter().chain(words));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Started::new(&mut command)
    }

    fn file(&self, id: &str) -> PathBuf {
        self.scene.locks().join(format!("resume_locks/{id}.lock"))
    }

    fn plant_text(&self, id: &str, text: &str) {
        for folder in [self.scene.locks(), self.scene.locks().join("resume_locks")] {
            fs::create_dir_all(&folder).expect("a folder");
            fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).expect("a mode");
        }
        fs::write(self.file(id), text).expect("a record");
        let old = std::time::SystemTime::UNIX_EPOCH;
        let file = fs::File::options()
            .write(true)
            .open(self.file(id))
            .expect("a record");
        file.set_modified(old).expect("a time");
    }

    /// A record as the original program writes it.
    fn plant(&self, id: &str, pid: u32, host: &str) -> String {
        let text = format!(
            "{{\n  \"job_id\": \"{id}\",\n  \"process_id\": {pid},\n  \"hostname\": \"{host}\",\n  \
             \"acquired_at\": \"2026-02-07T10:00:00.123456789Z\"\n}}"
        );
        self.plant_text(id, &text);
        text
    }
}

fn host() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/hostname").expect("a host name");
    text.trim().to_owned()
}

/// A process that has ended and was collected.
fn dead_pid() -> u32 {
    let mut child = std::process::Command::new("true")
        .spawn()
        .expect("a process");
    let pid = child.id();
    child.wait().expect("its end");
    pid
}

#[test]
fn the_record_has_the_four_fields_and_process_identity_under_one_key() {
    let storage = Storage::new();
    let script = format!("cat {}", storage.file("job-1").display());
    let run = storage.run(&["run", "job-1", "--", "sh", "-c", &script]);
    let run = run.expect(0, "free");
    let record: Value = serde_json::from_str(&run.stdout()).expect("JSON");
    let keys: Vec<_> = record.as_object().expect("an object").keys().collect();
    assert_eq!(
        keys,
        ["job_id", "process_id", "hostname", "acquired_at", "tenure"]
    );
    assert_eq!(record["job_id"], "job-1");
    assert_eq!(record["hostname"], host().as_str());
    for key in ["started", "boot_id", "token"] {
        assert!(!record["tenure"][key].is_null(), "{record}");
    }
    let said = run.stderr();
    assert!(said.contains("Acquired resume lock for job-1"), "{said}");
    assert!(said.contains("Released resume lock for job-1"), "{said}");
    assert!(!storage.file("job-1").exists(), "gone after the release");
}

#[test]
fn a_blocked_resume_is_told_who_where_and_since_when() {
    let storage = Storage::new();
    let me = std::process::id();
    let planted = storage.plant("job", me, &host());
    let refused = storage.run(&["run", "job", "--", "true"]).expect(4, "held");
    assert_eq!(
        refused.stderr(),
        format!(
            "Resume already in progress for job job\nLock held by: PID {me} on {} (acquired \
             2026-02-07 10:00:00 UTC)\nPlease wait for the other process to complete, or use \
             --force to override.\n",
            host()
        )
    );
    assert_eq!(
        fs::read_to_string(storage.file("job")).expect("a record"),
        planted
    );
    let json = storage.run(&["--output", "json", "run", "job", "--", "true"]);
    let error = json.expect(4, "held").json()["error"].clone();
    assert_eq!(error["code"], "LOCK_HELD");
    assert_eq!(error["context"]["holder"]["pid"], me);
}

#[test]
fn a_dead_process_is_cleaned_up_with_a_warning_and_the_resume_goes_on() {
    let storage = Storage::new();
    let pid = dead_pid();
    let _ = storage.plant("job", pid, &host());
    let run = storage
        .run(&["run", "job", "--", "true"])
        .expect(0, "stale");
    let warning = format!("Removing stale lock for job (PID {pid} no longer running)");
    assert!(run.stderr().contains(&warning), "{}", run.said());
    for never in [0, 2_147_483_648] {
        let _ = storage.plant("job", never, &host());
        let _ = storage
            .run(&["run", "job", "--", "true"])
            .expect(0, "not a process");
    }
}

#[test]
fn a_process_of_another_host_is_unknown_and_counts_as_alive() {
    let storage = Storage::new();
    for name in ["test-host", "unknown"] {
        let planted = storage.plant("job", 999_999, name);
        let refused = storage
            .run(&["run", "job", "--", "true"])
            .expect(4, "unknown");
        assert!(
            refused.stderr().contains(&format!("on {name} (")),
            "{}",
            refused.said()
        );
        assert!(
            refused.stderr().contains("force-release job"),
            "{}",
            refused.said()
        );
        assert_eq!(
            fs::read_to_string(storage.file("job")).expect("a record"),
            planted
        );
    }
}

#[test]
fn force_reaches_the_lock_without_yes_and_the_old_holder_is_told() {
    let storage = Storage::new();
    let old = storage.start(&["run", "job", "--", "sleep", "30"]);
    eventually("it holds", || storage.file("job").exists());
    let script = format!("cat {}", storage.file("job").display());
    let new = storage.run(&["run", "job", "--force", "--", "sh", "-c", &script]);
    let new = new.expect(0, "force overrides an active lock");
    assert!(
        new.stderr().contains("Overriding the lock for job"),
        "{}",
        new.said()
    );
    let old = old
        .finish()
        .expect(80, "the old holder is told and its work ends");
    assert!(old.stderr().contains("lost"), "{}", old.said());
    assert!(
        !storage.file("job").exists(),
        "the old one took nothing of the new one's"
    );
    let events = storage
        .run(&["audit", "--event", "lock_stolen", "--output", "json"])
        .json();
    assert_eq!(events["data"]["events"][0]["reason"], "active_lock_forced");
}

/// The hold goes to the caller who forces; who waits stays in line behind it.
#[test]
fn force_reaches_the_lock_also_where_others_wait_for_it() {
    let storage = Storage::new();
    let owner = std::process::id().to_string();
    let acquire = ["acquire", "job", "--owner", &owner, "--request-id"];
    let taken = |id, force: &[&str]| storage.run(&[&acquire[..], &[id], force].concat());
    let _ = taken("req_1", &[]).expect(0, "it is free");
    let waiting = storage.start(&["run", "job", "--wait", "60s", "--", "true"]);
    let queued = || {
        let checked = storage.run(&["check", "job", "--output", "json"]).json();
        let facts = [&checked["data"], &checked["error"]["context"]];
        facts.iter().any(|facts| facts["queue"][0].is_object())
    };
    eventually("it waits", queued);
    let forced = storage.run(&["run", "job", "--force", "--", "true"]);
    let _ = forced.expect(0, "force overrides, whoever waits");
    let _ = waiting.finish().expect(0, "its turn came after that");

    let _ = taken("req_2", &[]).expect(0, "it is free");
    let waiting = storage.start(&["run", "job", "--wait", "60s", "--", "true"]);
    eventually("it waits", queued);
    let forced = taken("req_3", &["--force"]);
    let _ = forced.expect(0, "force overrides, whoever waits");
    assert!(queued(), "it waits on");
    let released = storage.run(&["release", "job", "--request-id", "req_3"]);
    let _ = released.expect(0, "its own");
    let _ = waiting.finish().expect(0, "its turn came after that");
}

#[test]
fn an_unreadable_record_blocks_and_only_force_takes_it() {
    let storage = Storage::new();
    for text in ["", "{", "{\"job_id\": \"job\"}"] {
        storage.plant_text("job", text);
        let refused = storage
            .run(&["run", "job", "--", "true"])
            .expect(4, "unreadable");
        assert!(
            refused
                .stderr()
                .starts_with("Failed to check lock status for job: "),
            "{}",
            refused.said()
        );
        assert_eq!(
            fs::read_to_string(storage.file("job")).expect("a record"),
            text
        );
        let _ = storage
            .run(&["run", "job", "--force", "--", "true"])
            .expect(0, "forced");
        assert!(!storage.file("job").exists());
    }
}

#[test]
fn a_resume_succeeds_at_once_after_the_first_completed_failed_or_was_killed() {
    let storage = Storage::new();
    let _ = storage
        .run(&["run", "job", "--", "true"])
        .expect(0, "completed");
    let _ = storage
        .run(&["run", "job", "--", "false"])
        .expect(1, "failed");
    let killed = storage.start(&["run", "job", "--", "sleep", "30"]);
    eventually("it holds", || storage.file("job").exists());
    let command = crate::support::children(killed.pid());
    send(killed.pid(), Signal::KILL);
    for command in command {
        send(command, Signal::KILL);
    }
    eventually("the next one succeeds", || {
        storage.run(&["run", "job", "--", "true"]).code() == 0
    });
}

#[test]
fn a_reused_number_is_another_process() {
    let storage = Storage::new();
    let script = format!("cat {}", storage.file("job").display());
    let run = storage.run(&["run", "job", "--", "sh", "-c", &script]);
    let mut record: Value = serde_json::from_str(&run.stdout()).expect("JSON");
    record["process_id"] = std::os::unix::process::parent_id().into();
    storage.plant_text("job", &record.to_string());
    let taken = storage.run(&["run", "job", "--", "true"]);
    let _ = taken.expect(
        0,
        "alive, but it started at another time than the record says",
    );
}

#[test]
fn ids_never_block_each_other_and_never_leave_the_folder() {
    let storage = Storage::new();
    let _ = storage.plant("a", std::process::id(), &host());
    let _ = storage
        .run(&["run", "b", "--", "true"])
        .expect(0, "another id");
    let script = format!(
        "env -u TENURE_HELD {} --profile resume --dir {} run d -- echo ran",
        env!("CARGO_BIN_EXE_tenure"),
        storage.scene.locks().display()
    );
    let both = storage.run(&["run", "c", "--", "sh", "-c", &script]);
    let both = both.expect(0, "another id, also while a run of ours holds one");
    assert_eq!(both.stdout(), "ran\n", "{}", both.said());
    let _ = storage
        .run(&["run", "../x", "--", "true"])
        .expect(2, "a path");
}

#[test]
fn the_same_run_asking_again_is_answered_at_once() {
    let storage = Storage::new();
    let script = format!(
        "{} --profile resume --dir {} run job -- true; echo $?",
        env!("CARGO_BIN_EXE_tenure"),
        storage.scene.locks().display()
    );
    let run = storage.run(&["run", "job", "--", "sh", "-c", &script]);
    assert_eq!(run.expect(0, "free").stdout(), "81\n");
}

#[test]
fn a_heartbeat_does_not_keep_what_a_dead_process_left_behind() {
    let storage = Storage::new();
    let mut sleeper = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .expect("a process");
    let pid = sleeper.id().to_string();
    let words = ["acquire", "job", "--request-id", "r", "--owner", &pid];
    let _ = storage.run(&words).expect(0, "free");
    let beat = ["heartbeat", "job", "--request-id", "r"];
    let _ = storage.run(&beat).expect(0, "its owner lives");
    sleeper.kill().expect("a signal");
    sleeper.wait().expect("its end");
    let lost = storage.run(&beat).expect(80, "its owner is dead");
    assert!(
        lost.stderr().contains("its process is dead"),
        "{}",
        lost.said()
    );
}

/// RES-29: the page for its users says what locks and when, what the error is, what to do about a stuck
/// lock, how to migrate and how to go back; and the error that it shows is the one that they get.
#[test]
fn the_page_for_users_answers_their_questions_with_the_real_error() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/systems/resume.md");
    let page = fs::read_to_string(page).expect("the page");
    let section = |title: &str| {
        let begins = page.find(&format!("\n## {title}\n"));
        let rest = begins.and_then(|at| page.get(at + 4 + title.len()..));
        let rest = rest.unwrap_or_else(|| panic!("the page has no section {title:?}"));
        rest.split("\n## ")
            .next()
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    for (title, says) in [
        ("What locks, and when", "acquire_lock(id)"),
        ("The error", "InProgress"),
        ("A stuck lock", "resume_locks/<id>.lock"),
        ("Migration", "Nothing to do"),
        ("Rollback", "resume_locks/"),
    ] {
        assert!(
            section(title).contains(says),
            "{title}: {says:?} is not in it"
        );
    }

    let scene = Scene::new();
    let gate = Gate::new(&scene, "session-42");
    let holder = scene.hold_with("session-42", ["--profile", "resume"], &gate, "");
    let refused = scene.run(["--profile", "resume", "run", "session-42", "--", "true"]);
    let said = refused.expect(4, "it is resumed already").stderr();
    // Names, numbers and times are whoever's they are; the words between them are not.
    let words = |text: &str| {
        let kept = text.split_whitespace().filter(|word| {
            word.bytes()
                .all(|byte| byte.is_ascii_alphabetic() || b"-.:,()".contains(&byte))
        });
        kept.map(str::to_owned).collect::<Vec<_>>()
    };
    let shown = section("The error");
    let shown = shown
        .split("```")
        .nth(1)
        .expect("the error, as it is shown");
    let shown = shown.strip_prefix("text").unwrap_or(shown);
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy().into_owned();
    let without_host = |line: &str| line.replace(&host, " ").replace("build-7", " ");
    for line in shown.lines().filter(|line| !line.is_empty()) {
        let wanted = words(&without_host(line).replace("session-42", " "));
        let found = said
            .lines()
            .any(|said| words(&without_host(said).replace("session-42", " ")).ends_with(&wanted));
        assert!(found, "the page shows {line:?}, and this came:\n{said}");
    }
    gate.open();
    holder.finish().expect(0, "the holder");
}
