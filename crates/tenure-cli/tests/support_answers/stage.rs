//! Makes a situation with the real program, asks a verb in it, and answers with what it said.

use super::table::{Profile, Situation, Verb};
use crate::support::{Answer, Gate, Held, Scene, Started, answer, eventually, is_alive, send};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

/// How the caller wants its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speech {
    Json,
    /// As the profile answers where nothing else is asked for.
    Own,
}

/// The folder and the processes of one combination.
pub(crate) struct Stage<'a> {
    scene: &'a Scene,
    profile: &'a Profile,
    speech: Speech,
    /// Processes whose lives locks follow, ended with the stage.
    owners: RefCell<Vec<Started>>,
    /// Runs that are at work, and what waits for them.
    runs: RefCell<Vec<Held>>,
    waiting: RefCell<Vec<Started>>,
}

const HOLDER: &str = "holder-1";
const CALLER: &str = "caller-1";

impl<'a> Stage<'a> {
    pub(crate) fn new(scene: &'a Scene, profile: &'a Profile, speech: Speech) -> Self {
        let stage = Self {
            scene,
            profile,
            speech,
            owners: RefCell::default(),
            runs: RefCell::default(),
            waiting: RefCell::default(),
        };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(stage.record().parent().unwrap())
            .unwrap();
        stage
    }

    fn name(&self) -> &'static str {
        match self.profile.name {
            "sprint" => "sprint",
            "session" => "42",
            "fleet" => "app-prod",
            _ => "job-1",
        }
    }

    /// What the format calls its storage.
    fn place(&self) -> PathBuf {
        self.scene.path("locks")
    }

    /// Where the record stands.
    pub(crate) fn record(&self) -> PathBuf {
        self.record_of(self.name())
    }

    fn record_of(&self, name: &str) -> PathBuf {
        let place = self.place();
        match self.profile.name {
            "sprint" => place.join(".sprint-running"),
            "resume" => place.join(format!("resume_locks/{name}.lock")),
            "session" => place.join(format!("locks/{name}.lock")),
            "fleet" => place.join(format!("{name}.lock")),
            _ => place.join(format!("{name}.tenure")),
        }
    }

    /// The flags that say whose rules hold and where the locks are.
    fn flags(&self, place: &Path) -> Vec<String> {
        let mut flags = vec!["--profile".to_owned(), self.profile.name.to_owned()];
        let root = match self.profile.name {
            "sprint" => "--project-root",
            _ => "--dir",
        };
        flags.extend([root.to_owned(), place.to_str().unwrap().to_owned()]);
        flags
    }

    /// What the format wants to know of a claim.
    fn claiming(&self) -> &'static [&'static str] {
        match self.profile.name {
            "fleet" => &["--intent-name", "x", "--intent-version", "1"],
            "sprint" => &["--epic-spec", "epic5"],
            _ => &[],
        }
    }

    /// A process whose life a lock may follow.
    fn owner(&self) -> String {
        let owner = Started::new(self.scene.program("sleep").arg("600"));
        let pid = owner.pid().to_string();
        self.owners.borrow_mut().push(owner);
        pid
    }

    fn ask(&self, words: &[&str]) -> Answer {
        let flags = self.flags(&self.place());
        answer(
            &mut self.scene.tenure(
                words
                    .iter()
                    .copied()
                    .chain(flags.iter().map(String::as_str)),
            ),
        )
    }

    /// What `list` says of the one lock.
    fn listed(&self) -> Value {
        let list = self.ask(&["list", "--output", "json", "-q"]);
        list.json()["data"]["locks"][0].clone()
    }

    /// Takes the lock under an id, for a process that lives on.
    fn take(&self, id: &str, more: &[&str]) {
        let owner = self.owner();
        let mut words = vec!["acquire", self.name(), "--output", "json"];
        words.extend(["--owner", &owner, "--request-id", id]);
        words.extend(self.claiming());
        words.extend(more);
        let _ = self.ask(&words).expect(0, "a hold to begin with");
    }

    /// Starts a command under the lock.
    fn work(&self, id: &str, more: &[&str]) -> Held {
        let gate = Gate::new(self.scene, "work");
        let mut flags: Vec<String> = self.flags(&self.place());
        flags.extend(["--request-id", id].map(str::to_owned));
        flags.extend(
            self.claiming()
                .iter()
                .chain(more)
                .map(|word| (*word).to_owned()),
        );
        self.scene.hold_with(self.name(), flags, &gate, "")
    }

    /// The caller's own run, in its own words.
    fn own_work(&self, more: &[&str]) -> Held {
        let mut flags = more.to_vec();
        if self.speech == Speech::Json {
            flags.extend(["--output", "json"]);
        }
        self.work(CALLER, &flags)
    }

    /// Starts a waiter, and returns once it stands in line.
    fn queue(&self) {
        let flags = self.flags(&self.place());
        let mut words = vec!["run", self.name(), "--wait", "forever", "-q"];
        words.extend(self.claiming());
        words.extend(flags.iter().map(String::as_str));
        words.extend(["--", "true"]);
        let mut command = self.scene.tenure(words);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.waiting.borrow_mut().push(Started::new(&mut command));
        self.until_queued();
    }

    fn until_queued(&self) {
        eventually("a waiter in the queue", || {
            self.listed()["queue"].as_array().map(Vec::len) == Some(1)
        });
    }

    /// Puts bytes where the record is, written so long ago.
    fn plant(&self, text: &str, ago: Duration) {
        let path = self.record();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() - ago).unwrap();
    }

    /// A record as the original program writes it.
    fn foreign(&self, ago: Duration, pid: &str) -> String {
        let at = time(SystemTime::now() - ago);
        let host = tenure_os::process::Identity::current().host.name;
        match self.profile.name {
            "sprint" => format!(
                "pid: {pid}\nsession_id: theirs 1\nstarted_at: \"{at}\"\nepic_spec: epic5\n\
                 lock_version: 1\n"
            ),
            "resume" => json!({
                "job_id": self.name(), "process_id": pid.parse::<u32>().unwrap(),
                "hostname": host, "acquired_at": at,
            })
            .to_string(),
            "session" => json!({
                "issueNumber": 42, "runId": "theirs-1", "acquiredAt": at,
                "pid": pid.parse::<u32>().unwrap(),
            })
            .to_string(),
            _ => json!({
                "lock_version": "v1", "lock_name": self.name(), "request_id": "theirs-1",
                "actor": "alice", "intent": "deploy", "intent_version": "1.0.0",
                "host_id": "fleet-3", "pid": pid.parse::<u32>().unwrap(), "created_at": at,
                "last_heartbeat_at": at, "ttl_seconds": 900,
            })
            .to_string(),
        }
    }

    /// The least that the original program's readers put up with.
    fn foreign_bare(&self) -> String {
        let pid = self.owner();
        let at = time(SystemTime::now());
        match self.profile.name {
            "sprint" => format!("pid: {pid}\nstarted_at: \"{at}\"\n"),
            "resume" => json!({
                "job_id": self.name(), "process_id": 0, "hostname": "", "acquired_at": at,
            })
            .to_string(),
            _ => json!({ "issueNumber": 42, "runId": "", "acquiredAt": at, "pid": 0 }).to_string(),
        }
    }

    /// Leaves the lock behind.
    fn leave_behind(&self) {
        if matches!(self.profile.name, "session" | "fleet") {
            self.plant_stale();
            return;
        }
        self.take(HOLDER, &[]);
        // Dropping it ends it.
        self.owners.borrow_mut().clear();
    }

    fn plant_stale(&self) {
        let text = match self.profile.name {
            // Age alone decides.
            "session" | "fleet" => self.foreign(Duration::from_secs(1_000), &self.owner()),
            _ => {
                let mut child = Command::new("true").spawn().unwrap();
                child.wait().unwrap();
                self.foreign(Duration::from_secs(60), &child.id().to_string())
            }
        };
        self.plant(&text, Duration::from_secs(60));
    }

    /// Brings the situation about, as far as it is one of the lock's.
    fn set(&self, situation: Situation) {
        use Situation as S;
        let old = Duration::from_secs(3_600);
        match situation {
            S::Mine => self.take(CALLER, &[]),
            S::Held
            | S::TimedOut
            | S::Cancelled
            | S::Forced
            | S::ForcedYes
            | S::OtherId
            | S::NoTicket => self.take(HOLDER, &[]),
            S::HeldByRun | S::RunForced => {
                let run = self.work(HOLDER, &["-q"]);
                self.runs.borrow_mut().push(run);
            }
            S::Shared => {
                self.take(HOLDER, &["--shared"]);
                self.take("holder-2", &["--shared"]);
                self.queue();
            }
            S::Queued => {
                self.take(HOLDER, &[]);
                self.queue();
            }
            S::Orphan => {
                let mut run = self.work(HOLDER, &["-q"]);
                let pid = run.pid();
                eventually("the command to be named", || {
                    self.listed()["holder"]["command_pid"].is_u64()
                });
                run.signal(Signal::KILL);
                let _ = run.started.end();
                assert!(!is_alive(pid));
                self.runs.borrow_mut().push(run);
            }
            S::Stale | S::StaleForced => self.leave_behind(),
            S::Unreadable | S::UnreadableForced => self.plant("no record\n", old),
            S::UnreadableFresh => self.plant("no record\n", Duration::from_secs(60)),
            S::Foreign => self.plant(&self.foreign(Duration::ZERO, &self.owner()), Duration::ZERO),
            S::ForeignBare => self.plant(&self.foreign_bare(), Duration::from_secs(60)),
            S::ForeignNewer => {
                let text = self.foreign(Duration::ZERO, &self.owner());
                let newer = text.replace("lock_version: 1", "lock_version: 2");
                self.plant(&newer, Duration::from_secs(60));
            }
            S::ForeignStale => self.plant_stale(),
            S::Unsafe | S::OneUnsafe => {
                let target = self.scene.write("elsewhere", "");
                if situation == S::OneUnsafe {
                    self.take(HOLDER, &[]);
                    let second = self.record_of("43");
                    std::os::unix::fs::symlink(target, second).unwrap();
                } else {
                    std::os::unix::fs::symlink(target, self.record()).unwrap();
                }
            }
            S::BadConfig => {
                self.scene.write("bad.toml", "dri = 1\n");
            }
            S::NoPlace => {
                self.scene.write("file", "");
            }
            S::Free
            | S::Lost
            | S::Displaced
            | S::Nested
            | S::BadFlag
            | S::BadName
            | S::NoCommand
            | S::NoProgram
            | S::TooLong
            | S::NoIntent
            | S::NoOwner => {}
        }
    }

    /// The call.
    fn words(&self, verb: Verb, situation: Situation) -> Vec<String> {
        use Situation as S;
        let name = match situation {
            S::BadName => "a/b",
            _ => self.name(),
        };
        let mut words = vec![verb.word().to_owned()];
        let mut add = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));
        if self.speech == Speech::Json {
            add(&["--output", "json"]);
        }
        if verb == Verb::Fence {
            let token = self.token_of(situation);
            add(&["check", &token, "--name", name]);
        } else if (verb.names_a_lock() && situation != S::NoIntent)
            || (matches!(verb, Verb::Audit | Verb::Timeline) && situation == S::BadName)
        {
            add(&[name]);
        }
        let place = match situation {
            S::NoPlace => self.scene.path("file"),
            _ => self.place(),
        };
        for flag in self.flags(&place) {
            add(&[&flag]);
        }
        let id = match situation {
            S::OtherId => "nobody-1",
            _ => CALLER,
        };
        match verb {
            Verb::Run | Verb::Acquire => {
                add(&["--request-id", id]);
                if situation != S::NoIntent {
                    add(self.claiming());
                }
            }
            Verb::Release | Verb::Heartbeat | Verb::Check | Verb::CheckAll => {
                add(&["--request-id", id]);
            }
            Verb::Cancel => add(&["--by", id]),
            Verb::GroupName => add(&["--event", "issues", "--number", "7"]),
            Verb::Push => add(&["--branch", "main", "--backoff", "5ms"]),
            Verb::ForceRelease
            | Verb::List
            | Verb::Wait
            | Verb::Fence
            | Verb::Clean
            | Verb::Doctor
            | Verb::Profiles
            | Verb::Audit
            | Verb::Timeline
            | Verb::Flock => {}
        }
        if verb == Verb::Acquire {
            let owner = match situation {
                S::NoOwner => "999999999".to_owned(),
                _ => self.owner(),
            };
            add(&["--owner", &owner]);
        }
        match situation {
            S::TimedOut | S::NoTicket => add(&["--wait", "100ms"]),
            S::Cancelled => add(&["--wait", "forever"]),
            // A native run is asked to stop, and waited for.
            S::RunForced if self.profile.name == "native" && verb != Verb::ForceRelease => {
                add(&["--wait", "20s"]);
            }
            _ if matches!(verb, Verb::Run | Verb::Acquire | Verb::Wait) => add(&["--wait", "0"]),
            _ => {}
        }
        match situation {
            S::StaleForced | S::Forced | S::UnreadableForced | S::UnreadableFresh
                if verb != Verb::ForceRelease =>
            {
                add(&["--force"]);
            }
            S::ForcedYes | S::RunForced if verb == Verb::ForceRelease => add(&["--yes"]),
            S::ForcedYes | S::RunForced => add(&["--force", "--yes"]),
            S::NoTicket => add(&["--ticket", "7"]),
            S::BadFlag => add(&["--nonsense"]),
            S::BadConfig => {
                let file = self.scene.path("bad.toml");
                let place = words.iter().position(|word| word == "--config");
                let file = file.to_str().unwrap().to_owned();
                match place {
                    Some(place) => words[place + 1] = file,
                    None => words.extend(["--config".to_owned(), file]),
                }
                return with_command(verb, situation, words);
            }
            S::NoIntent => add(&["--intent", "missing.yaml"]),
            S::Orphan if verb == Verb::Cancel => add(&["--orphan", "--signal", "KILL"]),
            S::Unsafe if matches!(verb, Verb::Audit | Verb::Timeline) => {
                let file = self.scene.path("elsewhere");
                add(&["--audit-dir", file.to_str().unwrap()]);
            }
            _ => {}
        }
        with_command(verb, situation, words)
    }

    /// A token that is the holder's, where there is one.
    fn token_of(&self, situation: Situation) -> String {
        match situation {
            Situation::NoPlace | Situation::Unsafe | Situation::BadName => "5".to_owned(),
            _ => self.listed()["holder"]["token"]
                .as_u64()
                .unwrap_or(5)
                .to_string(),
        }
    }

    /// Brings the situation about, asks, and answers with what was said.
    pub(crate) fn play(&self, verb: Verb, situation: Situation) -> Answer {
        use Situation as S;
        self.set(situation);
        match situation {
            S::Lost => {
                let run = self.own_work(&[]);
                let gone = self.scene.path("gone");
                fs::rename(self.record(), gone).unwrap();
                run.finish()
            }
            S::Displaced => {
                let run = self.own_work(&[]);
                let asked = self.ask(&["cancel", self.name(), "--by", "new-1"]);
                let _ = asked.expect(0, "the caller is asked to stop");
                run.finish()
            }
            S::TooLong => self.own_work(&["--max-runtime", "300ms"]).finish(),
            S::Cancelled => {
                let words = self.words(verb, situation);
                let mut command = self.scene.tenure(&words);
                command.stdout(Stdio::piped()).stderr(Stdio::piped());
                let mut waiting = Started::new(&mut command);
                if verb == Verb::Wait {
                    use std::io::Read;
                    let mut first = [0; 8];
                    waiting.stderr().read_exact(&mut first).expect("its line");
                } else {
                    self.until_queued();
                }
                waiting.signal(Signal::TERM);
                waiting.finish()
            }
            S::Nested => {
                let mut words = vec!["run".to_owned(), "-q".to_owned(), self.name().to_owned()];
                words.extend(self.flags(&self.place()));
                words.extend(self.claiming().iter().map(|word| (*word).to_owned()));
                words.extend(["--", "tenure"].map(str::to_owned));
                words.extend(self.words(verb, situation));
                self.scene.run(words)
            }
            _ => {
                let words = self.words(verb, situation);
                let mut command = self.scene.tenure(&words);
                if verb == Verb::Push {
                    command.current_dir(self.repository());
                }
                answer(&mut command)
            }
        }
    }

    /// A clone with one commit, to be pushed.
    fn repository(&self) -> PathBuf {
        let made = self.scene.shell(&format!(
            "cd '{}' && git init -q --bare -b main b && git clone -q b c && cd c && \
             git config user.name t && git config user.email t@localhost && \
             git commit -q --allow-empty -m 1",
            self.scene.root().display()
        ));
        let _ = made.expect(0, "a repository");
        self.scene.path("c")
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        for run in self.runs.get_mut() {
            run.signal(Signal::KILL);
            send(run.command, Signal::KILL);
        }
    }
}

/// An instant as all formats accept it.
fn time(at: SystemTime) -> String {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let seconds = i64::try_from(since.as_secs()).unwrap();
    jiff::Timestamp::from_second(seconds).unwrap().to_string()
}

/// The words with the command behind them that `run` runs.
fn with_command(verb: Verb, situation: Situation, mut words: Vec<String>) -> Vec<String> {
    if verb == Verb::Run {
        let program = match situation {
            Situation::NoCommand => "no-such-program-anywhere",
            Situation::NoProgram => "/",
            _ => "true",
        };
        words.extend(["--", program].map(str::to_owned));
    }
    words
}
