//! The calls that there are, and what each may answer with. A call is drawn as a whole before it is
//! made, so that nothing that happens changes what is drawn after it.

use crate::hand::{Daemon, Plan, Role};
use crate::preset::Extent;
use crate::random::Random;
use crate::surroundings::{Messages, Surroundings};
use crate::witness::{Mode, Resource};
use crate::world::World;
use std::time::Duration;

/// The profile that a call is made in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    Native,
    Sprint,
    Resume,
    Session,
    Fleet,
}

impl Profile {
    /// A lock of it, and what a run of that has to be told.
    pub(crate) fn lock(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Native => ("A", &[]),
            Self::Sprint => ("sprint", &["--epic-spec", "epic5"]),
            Self::Resume => ("job-1", &[]),
            Self::Session => ("42", &[]),
            Self::Fleet => (
                "app-prod",
                &[
                    "--intent-name",
                    "x",
                    "--intent-version",
                    "1",
                    "--ttl",
                    "5s",
                    "--force-lock",
                ],
            ),
        }
    }
}

/// All of them.
pub(crate) const PROFILES: [Profile; 5] = [
    Profile::Native,
    Profile::Sprint,
    Profile::Resume,
    Profile::Session,
    Profile::Fleet,
];

/// What is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Tenure,
    /// util-linux's.
    Flock,
    Hand,
}

/// When a process is struck, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// After it was called: on its way, in the queue, or wherever it is by then.
    Asked(u64),
    /// After its command began to work.
    AtWork(u64),
}

/// What is done to the process that was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strike {
    Term,
    Int,
    Hup,
    /// SIGKILL for it alone.
    Kill,
    /// SIGKILL for it and its command, once that works.
    KillAll,
    /// SIGSTOP for so many milliseconds.
    Stop(u64),
    /// SIGSTOP for so many milliseconds, and SIGKILL before the process goes on.
    StopKill(u64),
}

impl Strike {
    /// The signal of which the call may die, or with 128 more as its code.
    pub(crate) fn signal(self) -> Option<i32> {
        match self {
            Self::Hup => Some(1),
            Self::Int => Some(2),
            Self::Kill | Self::KillAll | Self::StopKill(_) => Some(9),
            Self::Term => Some(15),
            Self::Stop(_) => None,
        }
    }
}

/// A call.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) kind: &'static str,
    /// What its command does, in a few words.
    pub(crate) does: String,
    pub(crate) program: Program,
    pub(crate) words: Vec<String>,
    pub(crate) id: String,
    /// The lock whose next holder's start is the recovery from the death of this call with all of
    /// its processes.
    pub(crate) recovers: Option<String>,
    /// When it is struck, and how.
    pub(crate) strike: Option<(When, Strike)>,
    pub(crate) allowed: Vec<i32>,
    /// 4 comes only after so many milliseconds.
    pub(crate) waits_ms: u64,
    pub(crate) around: Surroundings,
}

/// What a worker does next.
#[derive(Debug, Clone)]
pub(crate) enum Round {
    Call(Call),
    /// `acquire`, `heartbeat`, `release`, of a lock that no other call overrides.
    Owned(Owned),
    /// `acquire`, `heartbeat` and `release`, with `--force --yes` among them.
    Overridden {
        forces: bool,
        releases: bool,
        pause_ms: u64,
    },
}

/// A hold of a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owned {
    pub(crate) pause_ms: u64,
    pub(crate) end: OwnedEnd,
    /// The first `acquire` is killed after so many milliseconds, and asked again.
    pub(crate) kill_acquire_ms: Option<u64>,
    /// The `release` is killed after so many milliseconds, and asked again.
    pub(crate) kill_release_ms: Option<u64>,
}

/// How it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnedEnd {
    Releases,
    DiesAtWork,
    DiesWaiting,
}

/// The names of the native locks that are held exclusively at the end, to see whether they can be.
pub(crate) const NATIVE: [&str; 9] = ["A", "S", "N", "O", "F", "g", "C", "D", "E"];

/// How long a fleet's record is good for without a heartbeat: the `--ttl` below.
pub(crate) const FLEET_TTL: Duration = Duration::from_secs(5);

/// A wait that is long enough for every caller.
const LONG: (&str, u64) = ("30s", 30_000);

struct Draw<'a> {
    world: &'a World,
    random: &'a mut Random,
    id: String,
}

/// Draws what is done next.
pub(crate) fn draw(world: &World, random: &mut Random, id: &str) -> Round {
    let id = id.to_owned();
    let chosen = loop {
        let chosen = random.between(0, 147);
        if (world.preset.has)(chosen) {
            break chosen;
        }
    };
    let mut draw = Draw { world, random, id };
    let mut call = match chosen {
        0..14 => draw.exclusive(),
        14..20 => draw.shared(),
        20..28 => draw.slots(),
        28..44 => draw.group(),
        44..52 => draw.several(),
        52..61 => draw.nested(),
        61..65 => draw.reentrant(),
        65..70 => draw.agent(),
        70..77 => return draw.owned(),
        77..81 => draw.beside_owned(),
        81..86 => draw.exec(),
        86..89 => draw.close(),
        89..92 => draw.limited(),
        92..96 => draw.waits_for_all(),
        96..100 => draw.forces(),
        100..103 => {
            return Round::Overridden {
                forces: draw.random.one_in(2),
                releases: draw.random.one_in(4),
                pause_ms: draw.random.between(0, 20),
            };
        }
        103..107 => draw.published(Profile::Sprint),
        107..113 => draw.published(Profile::Resume),
        113..116 => draw.published(Profile::Session),
        116..119 => draw.published(Profile::Fleet),
        119..128 => draw.flock(),
        128..135 => draw.cancel(),
        135..139 => draw.clean(),
        139..146 => draw.reads(),
        _ => draw.numbered(),
    };
    draw.surround(&mut call);
    Round::Call(call)
}

fn owned_words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

impl Draw<'_> {
    /// Gives a call its surroundings, and the strikes that the store has an answer to.
    fn surround(&mut self, call: &mut Call) {
        let drawn = Surroundings::draw(self.random);
        let is_fleet = call.words.iter().any(|word| word == "fleet");
        call.around = match call.program {
            Program::Flock => Surroundings::USUAL,
            // A shell's part is what the hand plays.
            Program::Hand => Surroundings {
                blocks: false,
                ..drawn
            },
            // What a fleet's call says decides whether it was right.
            Program::Tenure if is_fleet => Surroundings {
                messages: Messages::File,
                ..drawn
            },
            Program::Tenure => drawn,
        };
        if self.world.preset.is_over_etcd {
            if let Some((_, strike @ (Strike::Kill | Strike::StopKill(_)))) = &mut call.strike {
                *strike = Strike::KillAll;
            }
            if call.kind.starts_with("run") {
                call.allowed.push(80);
            }
        }
    }

    fn plan(&mut self, resources: &[(&str, Mode)]) -> Plan {
        Plan {
            role: Role::Work,
            root: self.world.root.path().to_owned(),
            call: self.id.clone(),
            resources: resources
                .iter()
                .map(|(name, mode)| Resource::new(name, *mode))
                .collect(),
            pause_ms: self.random.between(0, 25),
            code: self.random.of(&[0, 0, 0, 7]),
            daemon: None,
            stays: false,
            is_on_roster: true,
            nested: Vec::new(),
            is_stripped: false,
        }
    }

    /// A call of `run` for which nothing is killed but by signals that it may answer.
    fn run(&mut self, kind: &'static str, words: &[&str], plan: &Plan) -> Call {
        let mut all = owned_words(&["run"]);
        all.extend(owned_words(words));
        all.push("--".to_owned());
        all.extend(plan.words());
        let strike = self.strike();
        let alone = plan
            .resources
            .iter()
            .find(|resource| resource.mode.is_alone());
        let is_plain = plan.nested.is_empty() && plan.daemon.is_none();
        Call {
            kind,
            does: format!("{} ms, daemon {:?}", plan.pause_ms, plan.daemon),
            program: Program::Tenure,
            words: all,
            id: self.id.clone(),
            recovers: alone
                .filter(|_| is_plain)
                .map(|resource| resource.name.clone()),
            strike,
            allowed: vec![0, 7],
            waits_ms: 0,
            around: Surroundings::USUAL,
        }
    }

    fn strike(&mut self) -> Option<(When, Strike)> {
        let at_ms = self.random.between(0, 80);
        let at = match self.random.between(0, 3) {
            0 => When::AtWork(at_ms / 8),
            _ => When::Asked(at_ms),
        };
        let pause = self.random.between(1, 50);
        let strike = match self.random.between(0, 20) {
            0 | 1 => Strike::Kill,
            2 | 3 => Strike::KillAll,
            4 => Strike::Term,
            5 => Strike::Int,
            6 => Strike::Hup,
            7 | 8 => Strike::Stop(pause),
            9 => Strike::StopKill(pause),
            _ => return None,
        };
        Some((at, strike))
    }

    fn exclusive(&mut self) -> Call {
        let plan = self.plan(&[("A", Mode::Exclusive)]);
        let words: &[&str] = match self.random.between(0, 3) {
            0 => &["A", "-w", LONG.0],
            1 => &["-q", "A", "-w", LONG.0, "--grace", "2s"],
            _ => &["A", "-w", LONG.0, "-x", "--output", "json"],
        };
        self.run("run", words, &plan).refused_after(LONG.1)
    }

    fn shared(&mut self) -> Call {
        let plan = self.plan(&[("A", Mode::Shared)]);
        self.run("run --shared", &["A", "--shared", "-w", LONG.0], &plan)
            .refused_after(LONG.1)
    }

    fn slots(&mut self) -> Call {
        if self.random.one_in(6) {
            let plan = self.plan(&[("S", Mode::AllSlots(3))]);
            return self
                .run("run beside slots", &["S", "-w", LONG.0], &plan)
                .refused_after(LONG.1);
        }
        let plan = self.plan(&[("S", Mode::Slot(3))]);
        self.run("run --slots", &["S", "--slots", "3", "-w", LONG.0], &plan)
            .refused_after(LONG.1)
    }

    /// Draws a call for a lock of numbered slots that many want.
    fn numbered(&mut self) -> Call {
        let mut plan = self.plan(&[("N", Mode::Slot(4))]);
        plan.pause_ms += 10;
        self.run("run --slots 4", &["N", "--slots", "4", "-w", LONG.0], &plan)
            .refused_after(LONG.1)
    }

    /// Sometimes with a daemon that has to be ended with the run.
    fn with_daemon(&mut self, plan: &mut Plan) {
        plan.daemon = match self.random.between(0, 6) {
            0 => Some(Daemon::Inherits),
            1 => Some(Daemon::Closes),
            _ => None,
        };
        plan.pause_ms += self.random.between(0, 60);
    }

    fn group(&mut self) -> Call {
        let mut plan = self.plan(&[("g", Mode::Exclusive)]);
        self.with_daemon(&mut plan);
        let mut words = vec!["--group", self.random.of(&["G", "g"]), "--grace", "300ms"];
        words.extend(match self.random.between(0, 6) {
            0 => &["--queue", "max"][..],
            1 => &["--queue", "fifo"],
            2 => &["--queue", "single"],
            3 => &["--cancel-in-progress", "--on-superseded", "true"],
            4 => &["--cancel-in-progress", "--on-supersede", "true"],
            _ => &[],
        });
        let mut call = self.run("run --group", &words, &plan);
        call.allowed.push(79);
        call
    }

    fn several(&mut self) -> Call {
        let (words, names) = self.random.of(&[
            (&["-l", "C", "-l", "D"][..], &["C", "D"][..]),
            (&["E", "-l", "C"], &["C", "E"]),
            (&["-l", "E", "-l", "D", "-l", "C"], &["C", "D", "E"]),
            (&["--group", "G", "C"], &["g", "C"]),
        ]);
        let resources: Vec<_> = names.iter().map(|name| (*name, Mode::Exclusive)).collect();
        let plan = self.plan(&resources);
        let words = [words, &["-w", LONG.0]].concat();
        let mut call = self.run("run -l -l", &words, &plan).refused_after(LONG.1);
        call.recovers = None;
        call.allowed.extend([79, 81]);
        call
    }

    /// A run whose command takes another lock: circles arise.
    fn nested(&mut self) -> Call {
        let (outer, inner) = self.random.of(&[
            ("C", &["D"][..]),
            ("D", &["C"]),
            ("D", &["E"]),
            ("E", &["C"]),
            ("E", &["D", "C"]),
        ]);
        let mut plan = self.plan(&[(outer, Mode::Exclusive)]);
        let id = self.id.clone();
        for (number, name) in inner.iter().enumerate() {
            self.id = format!("{id}.{number}");
            let mut within = self.plan(&[(name, Mode::Exclusive)]);
            within.is_on_roster = false;
            let mut words = owned_words(&["run", name, "-w", "10s", "-q", "--"]);
            words.extend(within.words());
            plan.nested.push((words, vec![4, 7, 79, 81]));
        }
        self.id = id;
        let mut call = self.run("run in run", &[outer, "-w", LONG.0], &plan);
        call.allowed.extend([4, 79, 81]);
        call
    }

    fn reentrant(&mut self) -> Call {
        let mut plan = self.plan(&[("A", Mode::Exclusive)]);
        plan.is_stripped = self.random.one_in(2);
        let id = self.id.clone();
        self.id = format!("{id}.0");
        let mut within = self.plan(&[("A", Mode::Exclusive)]);
        within.is_on_roster = false;
        let (kind, allowed) = if self.random.one_in(3) {
            let mut words = owned_words(&["run", "A", "-w", "5s", "-q", "--"]);
            words.extend(within.words());
            plan.nested.push((words, vec![81]));
            let kind = if plan.is_stripped {
                "run waiting for itself, stripped"
            } else {
                "run waiting for itself"
            };
            (kind, 81)
        } else {
            within.role = Role::Reenter;
            within.resources.clear();
            let mut words = owned_words(&["run", "--reentrant", "A", "--"]);
            words.extend(within.words());
            plan.nested.push((words, vec![7]));
            let kind = if plan.is_stripped {
                "run --reentrant, stripped"
            } else {
                "run --reentrant"
            };
            (kind, 7)
        };
        self.id = id;
        let mut call = self
            .run(kind, &["A", "-w", LONG.0], &plan)
            .refused_after(LONG.1);
        call.allowed.push(allowed);
        call
    }

    /// An agent that waits for a short time only and comes back to its place.
    fn agent(&mut self) -> Call {
        let work = self.plan(&[("A", Mode::Exclusive)]);
        let mut words = owned_words(&["run", "A", "-w", "40ms", "--ticket", "auto", "-q", "--"]);
        words.extend(work.words());
        let agent = Plan {
            role: Role::Insist,
            resources: Vec::new(),
            nested: vec![(words, Vec::new())],
            ..work
        };
        let mut call = self.run("run --ticket auto", &[], &agent);
        call.program = Program::Hand;
        call.words = agent.words().split_off(1);
        call.allowed.push(4);
        if let Some((_, strike @ (Strike::Kill | Strike::KillAll | Strike::StopKill(_)))) =
            &mut call.strike
        {
            // The call goes on without it.
            *strike = Strike::Kill;
        }
        call
    }

    fn owned(&mut self) -> Round {
        let kill_acquire_ms = self.random.one_in(4).then(|| self.random.between(0, 30));
        let kill_release_ms = self.random.one_in(4).then(|| self.random.between(0, 8));
        Round::Owned(Owned {
            pause_ms: self.random.between(0, 10),
            kill_acquire_ms,
            kill_release_ms,
            end: self.random.of(&[
                OwnedEnd::Releases,
                OwnedEnd::Releases,
                OwnedEnd::DiesAtWork,
                OwnedEnd::DiesWaiting,
            ]),
        })
    }

    fn beside_owned(&mut self) -> Call {
        let plan = self.plan(&[("O", Mode::Exclusive)]);
        self.run("run beside acquire", &["O", "-w", LONG.0], &plan)
            .refused_after(LONG.1)
    }

    fn exec(&mut self) -> Call {
        let mut plan = self.plan(&[("A", Mode::Exclusive)]);
        plan.is_on_roster = false;
        let mut call = self.run("run --exec", &["--exec", "A", "-w", LONG.0], &plan);
        if let Some((_, strike @ Strike::KillAll)) = &mut call.strike {
            *strike = Strike::Kill;
        }
        call.refused_after(LONG.1)
    }

    fn close(&mut self) -> Call {
        let plan = self.plan(&[("A", Mode::Exclusive)]);
        let call = self.run("run --close", &["--close", "A", "-w", LONG.0], &plan);
        call.refused_after(LONG.1)
    }

    fn limited(&mut self) -> Call {
        let mut plan = self.plan(&[("A", Mode::Exclusive)]);
        self.with_daemon(&mut plan);
        let words = [
            "A",
            "-w",
            LONG.0,
            "--max-runtime",
            "40ms",
            "--grace",
            "300ms",
        ];
        let mut call = self
            .run("run --max-runtime", &words, &plan)
            .refused_after(LONG.1);
        call.allowed.push(10);
        call
    }

    fn waits_for_all(&mut self) -> Call {
        let mut plan = self.plan(&[("A", Mode::Exclusive)]);
        plan.daemon = Some(self.random.of(&[Daemon::Inherits, Daemon::Closes]));
        plan.stays = true;
        let words = ["A", "-w", LONG.0, "--wait-all", "--grace", "300ms"];
        self.run("run --wait-all", &words, &plan)
            .refused_after(LONG.1)
    }

    fn forces(&mut self) -> Call {
        let mut plan = self.plan(&[("C", Mode::Exclusive)]);
        self.with_daemon(&mut plan);
        let words = ["C", "-w", LONG.0, "--force", "--grace", "300ms"];
        let mut call = self.run("run --force", &words, &plan).refused_after(LONG.1);
        call.allowed.push(79);
        call
    }

    fn published(&mut self, profile: Profile) -> Call {
        let kind = match profile {
            Profile::Sprint => "sprint run",
            Profile::Resume => "resume run",
            Profile::Session => "session run",
            Profile::Native | Profile::Fleet => "fleet run",
        };
        let (lock, more) = profile.lock();
        let mut plan = self.plan(&[(kind.split(' ').next().unwrap_or(kind), Mode::Exclusive)]);
        if self.random.one_in(3) {
            // Long enough for the clock to be set meanwhile.
            plan.pause_ms += self.random.between(0, 200);
        }
        let place = self.world.place(profile);
        let mut words: Vec<&str> = vec![lock];
        words.extend(place.iter().map(String::as_str));
        words.extend(more);
        words.extend(["-w", "20s"]);
        // What a killed sprint left behind is refused until it is forced or cleaned.
        if profile == Profile::Sprint && self.random.one_in(2) {
            words.push("--force");
        }
        let mut call = self.run(kind, &words, &plan);
        let rarely = self.random.one_in(4);
        call.strike = call.strike.and_then(|(at, strike)| {
            let strike = match (profile, strike) {
                // Only the kernel's locks protect a command whose supervisor was killed.
                (Profile::Native | Profile::Resume, strike) => strike,
                (_, Strike::Kill | Strike::StopKill(_)) => Strike::KillAll,
                (_, strike) => strike,
            };
            // Records that live by their age are stale seconds later.
            let lasts = matches!(profile, Profile::Session | Profile::Fleet);
            let kills = strike.signal() == Some(9);
            (!(lasts && kills) || rarely).then_some((at, strike))
        });
        // Of a killed sprint nothing is had without force, and by age only while the clock stands still.
        let is_known = match profile {
            Profile::Native | Profile::Resume => true,
            Profile::Sprint => false,
            Profile::Session | Profile::Fleet => {
                matches!(self.world.preset.extent, Extent::Rounds(_))
            }
        };
        call.recovers = call.recovers.filter(|_| is_known);
        call.refused_after(20_000)
    }

    fn flock(&mut self) -> Call {
        let is_shared = self.random.one_in(3);
        let is_ours = self.random.one_in(2);
        let mode = if is_shared {
            Mode::Shared
        } else {
            Mode::Exclusive
        };
        let mut plan = self.plan(&[("flock", mode)]);
        plan.is_on_roster = false;
        let file = self.world.path("locked-file").display().to_string();
        let mut words = owned_words(if is_ours { &["flock"] } else { &[] });
        words.extend(owned_words(if is_shared { &["-s"] } else { &["-x"] }));
        let (patience, gives_up): (&[&str], bool) =
            self.random
                .of(&[(&["-n"][..], true), (&["-w", "0.05"], true), (&[], false)]);
        words.extend(owned_words(patience));
        let becomes = self.random.one_in(4);
        if becomes {
            words.push("-F".to_owned());
        }
        words.push(file);
        words.extend(plan.words());
        let mut call = self.run("", &[], &plan);
        call.kind = if is_ours { "tenure flock" } else { "flock" };
        call.program = if is_ours {
            Program::Tenure
        } else {
            Program::Flock
        };
        call.words = words;
        call.recovers = None;
        if gives_up {
            call.allowed.push(1);
        }
        if let Some((_, strike @ Strike::KillAll)) = &mut call.strike {
            *strike = Strike::Kill;
        }
        call
    }

    fn verb(&mut self, kind: &'static str, words: Vec<String>, allowed: &[i32]) -> Call {
        let at = When::Asked(self.random.between(0, 10));
        let strike = self.strike().map(|(_, strike)| match strike {
            Strike::KillAll => (at, Strike::Kill),
            strike => (at, strike),
        });
        Call {
            kind,
            does: "no command".to_owned(),
            program: Program::Tenure,
            words,
            id: self.id.clone(),
            recovers: None,
            strike,
            allowed: allowed.to_vec(),
            waits_ms: 0,
            around: Surroundings::USUAL,
        }
    }

    fn cancel(&mut self) -> Call {
        let words = self.random.of(&[
            &["cancel", "--group", "G"][..],
            &["cancel", "C"],
            &["cancel", "D"],
            &["cancel", "E"],
        ]);
        self.verb("cancel", owned_words(words), &[0, 4, 5])
    }

    fn clean(&mut self) -> Call {
        let profile = self.random.of(self.world.preset.profiles);
        let mut words = self.world.place(profile);
        words.insert(0, "clean".to_owned());
        self.verb("clean", words, &[0])
    }

    fn reads(&mut self) -> Call {
        let lock = self.random.of(&NATIVE);
        let (kind, words, allowed): (_, &[&str], &[i32]) = match self.random.between(0, 6) {
            0 => ("check", &["check", lock], &[0, 4]),
            1 => ("check", &["check", "--output", "json"], &[0, 4]),
            2 => ("list", &["list"], &[0]),
            3 => ("wait", &["wait", lock, "-w", "50ms"], &[0, 4]),
            4 => (
                "heartbeat",
                &["heartbeat", lock, "--request-id", "nobody"],
                &[6, 80],
            ),
            _ => ("fence", &["fence", "check", "1", "--name", lock], &[80]),
        };
        self.verb(kind, owned_words(words), allowed)
    }
}

impl Call {
    fn refused_after(mut self, waits_ms: u64) -> Self {
        self.allowed.push(4);
        self.waits_ms = waits_ms;
        self
    }
}
