//! The resume profile on the command line: one process resumes a session or job at a time.

use crate::support::transcript::Caller;
use crate::support::{Answer, Gate, Scene, Started, eventually};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

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

    /// Makes the calls of transcripts, in which `[ME]` is this process and `[HOST]` this host.
    fn caller(&self) -> Caller<'_> {
        Caller::new(&self.scene, &["--profile", "resume"])
            .knowing("[ME]", std::process::id().to_string())
            .knowing("[HOST]", host())
    }

    #[track_caller]
    fn follows(&self, transcript: &str) {
        self.caller().follows(transcript);
    }

    fn start(&self, words: &[&str]) -> Started {
        let mut command = self
            .scene
            .tenure(["--profile", "resume"].iter().chain(words));
        Started::piped(&mut command)
    }

    fn file(&self, id: &str) -> PathBuf {
        self.scene.locks().join(format!("resume_locks/{id}.lock"))
    }

    fn text(&self, id: &str) -> String {
        fs::read_to_string(self.file(id)).expect("a record")
    }

    /// What stands in the record while a run holds the lock.
    fn record_of_a_run(&self, id: &str) -> Value {
        let script = format!("cat {}", self.file(id).display());
        let run = self.run(&["run", id, "--", "sh", "-c", &script]);
        serde_json::from_str(&run.expect(0, "free").stdout()).expect("JSON")
    }

    fn plant_text(&self, id: &str, text: &str) {
        crate::support::plant(&self.file(id), text, SystemTime::UNIX_EPOCH);
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
    let record = storage.record_of_a_run("job-1");
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
    assert!(!storage.file("job-1").exists(), "gone after the release");
    storage.follows(
        "
        $ tenure run job-1 -- true
        ! Acquired resume lock for job-1
        ! Released resume lock for job-1
        ",
    );
}

#[test]
fn a_blocked_resume_is_told_who_where_and_since_when() {
    let storage = Storage::new();
    let planted = storage.plant("job", std::process::id(), &host());
    storage.follows(
        "
        $ tenure run job -- true
        ? 4
        ! Resume already in progress for job job
        ! Lock held by: PID [ME] on [HOST] (acquired 2026-02-07 10:00:00 UTC)
        ! Please wait for the other process to complete, or use --force to override.
        ",
    );
    assert_eq!(storage.text("job"), planted);
    let json = storage.run(&["--output", "json", "run", "job", "--", "true"]);
    let error = json.expect(4, "held").json()["error"].clone();
    assert_eq!(error["code"], "LOCK_HELD");
    assert_eq!(error["context"]["holder"]["pid"], std::process::id());
}

#[test]
fn a_dead_process_is_cleaned_up_with_a_warning_and_the_resume_goes_on() {
    let storage = Storage::new();
    // The last two are no numbers of a process.
    for pid in [dead_pid(), 0, 2_147_483_648] {
        let _ = storage.plant("job", pid, &host());
        storage.caller().knowing("[DEAD]", pid.to_string()).follows(
            "
            $ tenure run job -- true
            ! Removing stale lock for job (PID [DEAD] no longer running)
            ! Acquired resume lock for job
            ! Released resume lock for job
            ",
        );
    }
}

#[test]
fn a_process_of_another_host_is_unknown_and_counts_as_alive() {
    let storage = Storage::new();
    for name in ["test-host", "unknown"] {
        let planted = storage.plant("job", 999_999, name);
        storage.caller().knowing("[OTHER]", name).follows(
            "
            $ tenure run job -- true
            ? 4
            ! Resume already in progress for job job
            ! Lock held by: PID 999999 on [OTHER] (acquired 2026-02-07 10:00:00 UTC)
            ! Please wait for the other process to complete, or use --force to override.
            ! That is another machine or container, [..]: tenure [..] force-release job
            ",
        );
        assert_eq!(storage.text("job"), planted);
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

/// The hold goes to the caller that forces. A waiter stays in line behind it.
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
    let _ = forced.expect(0, "force overrides, although another one waits");
    let _ = waiting.finish().expect(0, "its turn came after that");

    let _ = taken("req_2", &[]).expect(0, "it is free");
    let waiting = storage.start(&["run", "job", "--wait", "60s", "--", "true"]);
    eventually("it waits", queued);
    let forced = taken("req_3", &["--force"]);
    let _ = forced.expect(0, "force overrides, although another one waits");
    assert!(queued(), "it waits on");
    let released = storage.run(&["release", "job", "--request-id", "req_3"]);
    let _ = released.expect(0, "its own");
    let _ = waiting.finish().expect(0, "its turn came after that");
}

#[test]
fn an_unreadable_record_blocks_and_only_force_takes_it() {
    let storage = Storage::new();
    for text in [" ", "{", "{\"job_id\": \"job\"}"] {
        storage.plant_text("job", text);
        storage.follows(
            "
            $ tenure run job -- true
            ? 4
            ! Failed to check lock status for job: [..]
            ",
        );
        assert_eq!(storage.text("job"), text);
        storage.follows(
            "
            $ tenure run job --force -- true
            ! Replacing an unreadable lock for job
            ! Acquired resume lock for job
            ! Released resume lock for job
            $ test -e locks/resume_locks/job.lock
            ? 1
            ",
        );
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
    killed.kill_with_children();
    eventually("the next one succeeds", || {
        storage.run(&["run", "job", "--", "true"]).code() == 0
    });
}

#[test]
fn a_reused_number_is_another_process() {
    let storage = Storage::new();
    let mut record = storage.record_of_a_run("job");
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
    storage.follows(
        r#"
        $ tenure run b -- true
        ! Acquired resume lock for b
        ! Released resume lock for b
        # Also while a run of ours holds one.
        $ tenure run c -- env -u TENURE_HELD tenure --profile resume run d -- echo ran
        ran
        ! Acquired resume lock for c
        ! Acquired resume lock for d
        ! Released resume lock for d
        ! Released resume lock for c
        $ tenure run ../x -- true
        ? 2
        ! the lock name "../x" cannot be used: [..]
        "#,
    );
}

#[test]
fn the_same_run_asking_again_is_answered_at_once() {
    Storage::new().follows(
        "
        $ tenure run job -- sh -c 'tenure --profile resume run job -- true; echo $?'
        81
        ! Acquired resume lock for job
        ! job is held by this run itself; waiting for it would never end ([..])
        ! Released resume lock for job
        ",
    );
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
    // Names, numbers and times differ from run to run; the words between them do not.
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

/// A power cut leaves a record without its bytes. Nobody is needed then; a living holder keeps the lock all the same.
#[test]
fn a_record_that_a_power_cut_has_emptied_is_nobodys_table() {
    for (what, text) in [("empty", String::new()), ("zeros", "\0".repeat(400))] {
        let storage = Storage::new();
        storage.plant_text("j", &text);
        storage.run(&["check", "j"]).expect(0, what);
        let run = storage
            .run(&["run", "j", "--", "echo", "ran"])
            .expect(0, what);
        assert_eq!(run.stdout(), "ran\n", "{what}");
        assert!(run.stderr().contains("power cut"), "{what}: {}", run.said());
        let run = storage.run(&["run", "j", "--", "true"]).expect(0, what);
        assert!(!run.stderr().contains("power"), "{what}: it is said once");
        // A record that says anything else, or of which a process has a byte, waits for a person.
        storage.plant_text("torn", "{\"job_id\": \"torn");
        let torn = storage.run(&["run", "torn", "--", "true"]);
        torn.expect(4, "it may be anybody's");
        let gate = Gate::new(&storage.scene, "held");
        let script = gate.script("");
        let held = storage.start(&["run", "h", "--", "sh", "-c", &script]);
        gate.entered();
        storage.plant_text("h", &text);
        for force in [&[][..], &["--force"]] {
            let words = [&["run", "h"], force, &["--", "true"]].concat();
            let refused = storage.run(&words);
            assert_ne!(refused.code(), 0, "{what}, {force:?}: {}", refused.said());
        }
        gate.open();
        let _ = held.finish();
    }
}
