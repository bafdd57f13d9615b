//! The modelled machine: what is on the disk, which bytes are locked, where each contender stands,
//! and every small step that may happen next.
//!
//! The contenders follow the file store's protocol; all that is decided on the way is decided by
//! the core itself (`Entry`, `Attempt`). Which order the steps happen in is the explorer's affair.

use tenure_core::{
    Advance, Attempt, Beacon, Claim, Death, Effect, Entering, Entry, Event, Evidence, Force,
    Holder, Host, Input, Kind, Liveness, Now, Outcome, Ownership, Patience, Policy, Predecessor,
    Process, Reason, Renewal, Request, RequestId, StaleReason, Stamp, Standing, Takeover,
    UnknownLife, judge,
};

#[path = "key.rs"]
mod key;

/// What a contender is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Job {
    /// `run`: a supervisor with a command.
    Run,
    /// `acquire`: a process that takes the lock for a lasting owner and goes away.
    Detached,
    /// `clean`: sweeps what is dead.
    Clean,
}

/// When a command closes the descriptor of the beacon that it inherited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closes {
    Never,
    /// Some time after the supervisor has recorded who it is.
    OnceNamed,
    /// As soon as it likes.
    Anytime,
}

/// What one contender does, and what may befall it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) job: Job,
    pub(crate) rounds: u8,
    pub(crate) force: Force,
    pub(crate) patience: Patience,
    /// May lose its patience in any sleep.
    pub(crate) gives_up: bool,
    /// The work never ends by itself: a command has to be asked, an owner has to be overridden.
    pub(crate) endless: bool,
    /// Renews once while it works.
    pub(crate) renews: bool,
    pub(crate) closes: Closes,
    /// The owner of a detached hold may die at any time.
    pub(crate) mortal_owner: bool,
}

impl Script {
    pub(crate) const RUN: Self = Self {
        job: Job::Run,
        rounds: 1,
        force: Force::No,
        patience: Patience::Queue,
        gives_up: false,
        endless: false,
        renews: false,
        closes: Closes::Never,
        mortal_owner: false,
    };
    pub(crate) const DETACHED: Self = Self {
        job: Job::Detached,
        ..Self::RUN
    };
    pub(crate) const CLEAN: Self = Self {
        job: Job::Clean,
        ..Self::RUN
    };
}

/// A change to the protocol that the invariants have to notice (or have to prove harmless).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Defect {
    /// The claim is written first and its byte locked afterwards, both under the guard.
    LightsAfterCommit,
    /// The claim's byte is locked only after the guard was let go.
    LightsAfterUnlock,
    /// The byte is let go first and the claim taken out afterwards.
    PutsOutBeforeLeaving,
    /// As before, and the one who wakes goes on with the list as it read it when it fell asleep.
    PutsOutBeforeLeavingAndWakesWithAStaleList,
    /// Whoever wakes up holds, without a look at the list.
    HoldsOnWaking,
    /// A waiter looks and writes without the guard.
    LooksWithoutTheGuard,
    /// A renewal writes back what it read before it had the guard.
    RenewsWithoutTheGuard,
    /// The byte on which a waiter woke up stays locked by it.
    KeepsThePredecessorsByte,
    /// Leaving takes the first claim out, whosever it is.
    LeavesWithoutATicket,
    /// Releasing by request id believes anybody.
    ReleasesWithoutOwnership,
    /// A change of the record is noticed only if it happens during the sleep.
    NoticesOnlyNewChanges,
    /// A waiter that gives up takes its claim out and keeps its byte locked.
    GivesUpWithItsBeaconLit,
    /// The command does not inherit the beacon.
    BeaconIsNotInherited,
    /// Nobody asks whether the command still runs.
    NeverAsksTheCommand,
    /// The lock is given back before the work has ended.
    ReleasesBeforeTheWorkEnds,
    /// The record is written in place: a crash leaves nothing.
    WritesInPlace,
    /// The guard is let go between the decision and the write.
    UnlocksBeforeCommit,
    /// A process that cannot be seen is reported as dead.
    ReportsWaitersAsDead,
}

/// One configuration to explore.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) policy: Policy,
    pub(crate) scripts: Vec<Script>,
    /// How many crashes may happen altogether.
    pub(crate) crashes: u8,
    /// The readings that the clock goes through, as (wall in µs, boot in ms). Time passes from one
    /// to the next at any moment, but surely in the end.
    pub(crate) clock: &'static [(u64, u64)],
    /// The command is recorded before it may begin: it waits, forked, until its supervisor has
    /// named it, and ends without beginning if the supervisor dies first.
    pub(crate) gated: bool,
    pub(crate) defect: Option<Defect>,
    /// Contenders keep their names when states are compared.
    pub(crate) named: bool,
}

impl Scenario {
    pub(crate) fn native(name: &'static str, scripts: &[Script]) -> Self {
        Self {
            name,
            policy: Policy::NATIVE,
            scripts: scripts.to_vec(),
            crashes: 0,
            clock: &[(0, 0)],
            gated: false,
            defect: None,
            named: false,
        }
    }

    pub(crate) fn crashes(self, crashes: u8) -> Self {
        Self { crashes, ..self }
    }

    pub(crate) fn gated(self) -> Self {
        Self {
            gated: true,
            ..self
        }
    }

    pub(crate) fn defect(self, defect: Defect) -> Self {
        Self {
            defect: Some(defect),
            ..self
        }
    }

    pub(crate) fn policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    pub(crate) fn clock(self, clock: &'static [(u64, u64)]) -> Self {
        Self { clock, ..self }
    }

    fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// Stamps are part of a state only where an age may decide something.
    fn is_timed(&self) -> bool {
        self.policy.age.is_some()
    }
}

/// What a transition is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Enter,
    Look,
    Leave,
    Name,
    Renew,
    Release,
    ReleaseById,
    Clean,
}

/// What the core answered.
#[derive(Debug, Clone)]
enum Answer {
    Entering(Entering),
    Advance(Advance),
    Renewal(Renewal),
    Named(bool),
    Nothing,
}

/// A decided transition on its way to the disk.
#[derive(Debug, Clone)]
struct Plan {
    purpose: Purpose,
    entry: Entry,
    /// The list differs from what was read.
    changed: bool,
    answer: Answer,
    /// The holds that the contract itself allows to break, if this is committed.
    exempt: Vec<u64>,
}

/// Where a contender stands; named after what it does next.
#[derive(Debug, Clone)]
enum At {
    Start,
    Guard(Purpose),
    Read(Purpose),
    Light(Box<Plan>),
    Commit(Box<Plan>),
    Unlock(Box<Plan>),
    FallAsleep(Predecessor),
    Sleep(Predecessor),
    /// Asleep, and only a change that comes later would be noticed (a defect).
    Deaf,
    LetGo,
    Section,
    Working,
    PutOut,
    Exit,
    Holding,
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    No,
    /// Forked, and waiting for leave to begin.
    Gated,
    Running,
    Ended,
}

/// One contender: a supervisor with its command, or an acquirer with its owner.
#[derive(Debug, Clone)]
struct Person {
    round: u8,
    at: At,
    /// The supervisor, the acquirer, or whoever releases for the owner.
    alive: bool,
    owner_alive: bool,
    ticket: Option<u64>,
    token: Option<u64>,
    giving_up: Option<Input>,
    command: Command,
    /// The supervisor has seen a request to stop, or that the lock is lost.
    asked: bool,
    renewed: bool,
    /// It believes that it holds.
    inside: bool,
    /// Its hold was broken as its contract allows.
    exempt: bool,
    /// What it read last; kept only by the defects that go on with it.
    seen: Option<Entry>,
}

/// Who keeps the byte of one ticket locked, one bit for each contender.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Byte {
    ticket: u64,
    /// The claimant's process.
    keepers: u8,
    /// The claimant's command.
    commands: u8,
    /// A waiter that the kernel has just handed the byte to.
    wakers: u8,
}

/// A step that leads from one state to another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) who: u8,
    pub(crate) what: &'static str,
    /// It is sure to happen if nothing else does; a crash, say, is not.
    pub(crate) certain: bool,
}

/// One state.
#[derive(Debug, Clone)]
pub(crate) struct World {
    disk: Entry,
    guard: Option<u8>,
    bytes: Vec<Byte>,
    people: Vec<Person>,
    crashes: u8,
    reading: usize,
    /// The greatest token granted so far.
    top: u64,
    /// A step broke an invariant that only shows while it happens.
    broken: Option<&'static str>,
}

const SUPERVISOR: u32 = 1;
const COMMAND: u32 = 2;
const OWNER: u32 = 3;

fn process(role: u32, who: usize, round: u8) -> Process {
    let who = u32::try_from(who).expect("a handful of contenders");
    Process {
        pid: role * 10_000 + who * 100 + u32::from(round),
        started: None,
    }
}

/// The contender and the round that a claim belongs to.
fn claimant(claim: &Claim) -> (usize, u8) {
    let pid = claim.holder.process.map_or(0, |process| process.pid);
    let round = u8::try_from(pid % 100).expect("a handful of rounds");
    ((pid / 100 % 100) as usize, round)
}

fn request_id(who: usize, round: u8) -> RequestId {
    RequestId::new(format!("r{who}.{round}")).expect("a proper request id")
}

impl World {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let person = Person {
            round: 0,
            at: At::Start,
            alive: true,
            owner_alive: true,
            ticket: None,
            token: None,
            giving_up: None,
            command: Command::No,
            asked: false,
            renewed: false,
            inside: false,
            exempt: false,
            seen: None,
        };
        Self {
            disk: Entry::default(),
            guard: None,
            bytes: Vec::new(),
            people: vec![person; scenario.scripts.len()],
            crashes: scenario.crashes,
            reading: 0,
            top: 0,
            broken: None,
        }
    }

    /// Every state that one step leads to.
    pub(crate) fn successors(&self, scenario: &Scenario) -> Vec<(Step, Self)> {
        let mut next = Successors {
            world: self,
            scenario,
            out: Vec::with_capacity(8),
        };
        for who in 0..self.people.len() {
            next.of(who);
        }
        if self.reading + 1 < scenario.clock.len() {
            next.step(usize::from(u8::MAX), "time passes", true, |world| {
                world.reading += 1;
            });
        }
        next.out
    }

    /// The state in a few lines, for the report of a violation.
    pub(crate) fn summary(&self) -> String {
        let mut lines = format!("then: last {}, top token {}\n", self.disk.last, self.top);
        for claim in &self.disk.claims {
            let (who, _) = claimant(claim);
            let lit = if self.is_lit(claim.ticket) {
                "lit"
            } else {
                "out"
            };
            lines += &format!(
                "  claim {} of #{who}: {:?}, token {:?}, beacon {lit}\n",
                claim.ticket, claim.kind, claim.token
            );
        }
        for (who, person) in self.people.iter().enumerate() {
            let at = format!("{:?}", person.at);
            let at = at.split(['(', ' ']).next().unwrap_or_default();
            lines += &format!(
                "  #{who} at {at}: alive {}, ticket {:?}, token {:?}, command {:?}, inside {}\n",
                person.alive, person.ticket, person.token, person.command, person.inside
            );
        }
        lines
    }

    fn now(&self, scenario: &Scenario) -> Now {
        let (wall_us, boot_ms) = scenario.clock[self.reading];
        Now {
            wall_us,
            boot_ms,
            boot_id: "boot".into(),
        }
    }

    fn is_lit(&self, ticket: u64) -> bool {
        self.bytes.iter().any(|byte| byte.ticket == ticket)
    }

    fn keep(&mut self, ticket: u64, change: impl FnOnce(&mut Byte)) {
        let index = self.bytes.iter().position(|byte| byte.ticket == ticket);
        let index = index.unwrap_or_else(|| {
            self.bytes.push(Byte {
                ticket,
                keepers: 0,
                commands: 0,
                wakers: 0,
            });
            self.bytes.sort_by_key(|byte| byte.ticket);
            self.bytes
                .iter()
                .position(|byte| byte.ticket == ticket)
                .expect("it was pushed just now")
        });
        change(&mut self.bytes[index]);
        self.bytes
            .retain(|byte| byte.keepers | byte.commands | byte.wakers != 0);
    }

    fn let_go_everywhere(&mut self, change: impl Fn(&mut Byte)) {
        for byte in &mut self.bytes {
            change(byte);
        }
        self.bytes
            .retain(|byte| byte.keepers | byte.commands | byte.wakers != 0);
    }

    /// Unlocks a byte for everybody who inherited it, as an explicit unlock does.
    fn put_out(&mut self, who: usize) {
        if let Some(ticket) = self.people[who].ticket {
            let bit = 1u8 << who;
            self.keep(ticket, |byte| {
                byte.keepers &= !bit;
                byte.commands &= !bit;
            });
        }
    }

    fn life_of(&self, process: Option<Process>) -> Liveness {
        let Some(process) = process else {
            return Liveness::NotRecorded;
        };
        let person = &self.people[(process.pid / 100 % 100) as usize];
        let alive = u32::from(person.round) == process.pid % 100
            && match process.pid / 10_000 {
                SUPERVISOR => person.alive && !matches!(person.at, At::Done),
                COMMAND => matches!(person.command, Command::Running | Command::Gated),
                _ => person.owner_alive,
            };
        if alive {
            Liveness::Alive
        } else {
            Liveness::Dead(Death::Gone)
        }
    }

    /// What anybody on this machine can find out about a claim at this moment.
    fn evidence(&self, scenario: &Scenario, claim: &Claim) -> Evidence {
        Evidence {
            beacon: if self.is_lit(claim.ticket) {
                Beacon::Lit
            } else {
                Beacon::Out
            },
            process: self.life_of(claim.holder.process),
            command: if scenario.has(Defect::NeverAsksTheCommand) {
                Liveness::NotRecorded
            } else {
                self.life_of(claim.holder.command)
            },
        }
    }

    /// Whether somebody alive is behind a claim, whatever anybody can see of it.
    fn is_alive(&self, claim: &Claim) -> bool {
        let (who, round) = claimant(claim);
        let person = &self.people[who];
        let at_work = person.alive && !matches!(person.at, At::Done);
        person.round == round
            && match claim.kind {
                Kind::Kernel => at_work || person.command == Command::Running,
                Kind::Detached if claim.token.is_none() => at_work,
                Kind::Detached => {
                    person.owner_alive && !person.exempt && !matches!(person.at, At::Done)
                }
            }
    }

    /// Whether a claim may rightly keep others waiting: a waiter by being alive, whatever its age;
    /// a hold by what its row says, which may look at its age alone.
    fn is_truly_live(&self, scenario: &Scenario, claim: &Claim) -> bool {
        let by_age_alone = scenario.policy.unknown_life == UnknownLife::NotAsked;
        match claim.token {
            None => self.is_alive(claim),
            Some(_) => (by_age_alone || self.is_alive(claim)) && self.judged_held(scenario, claim),
        }
    }

    fn judged_held(&self, scenario: &Scenario, claim: &Claim) -> bool {
        let seen = self.evidence(scenario, claim);
        let standing = judge(&scenario.policy, claim, &seen, &self.now(scenario));
        matches!(standing, Standing::Held(_))
    }

    /// Whether a sleep behind `behind` would end at once: the kernel's answer for a byte; for a
    /// record, a sleeper that misses neither a change nor a verdict.
    fn wakes(&self, scenario: &Scenario, entry: &Entry, behind: &Predecessor) -> bool {
        match behind {
            Predecessor::Beacon { ticket } => !self.is_lit(*ticket),
            Predecessor::Record(claim) => {
                entry.claim(claim.ticket) != Some(claim.as_ref())
                    || !self.judged_held(scenario, claim)
            }
        }
    }

    /// The name of an invariant that does not hold here.
    pub(crate) fn violation(&self) -> Option<&'static str> {
        if self.broken.is_some() {
            return self.broken;
        }
        let mut believers = 0;
        let mut lost = false;
        for (who, person) in self.people.iter().enumerate() {
            let believes = person.inside || person.command == Command::Running;
            if !believes || person.exempt {
                continue;
            }
            believers += 1;
            let kept =
                self.disk.claims.iter().any(|claim| {
                    claimant(claim) == (who, person.round) && claim.token == person.token
                });
            lost |= !kept;
        }
        if believers > 1 {
            return Some("one holder at a time");
        }
        if lost {
            return Some("a holder's claim stays in the list");
        }
        let mut numbers = self.disk.claims.iter().map(|claim| claim.ticket);
        if numbers.any(|n| n > self.disk.last) || self.top > self.disk.last {
            return Some("the counter is above every number drawn");
        }
        None
    }

    /// The name of an invariant that does not hold in a state from which nothing surely goes on.
    pub(crate) fn violation_at_the_end(&self, scenario: &Scenario) -> Option<&'static str> {
        for (who, person) in self.people.iter().enumerate() {
            let script = &scenario.scripts[who];
            let waits = match person.at {
                At::Sleep(_) | At::Deaf => true,
                At::Done => false,
                At::Holding => !script.endless,
                At::Working => !(script.endless && person.command == Command::Running),
                _ => person.alive,
            };
            if !waits {
                continue;
            }
            let asleep = matches!(person.at, At::Sleep(_) | At::Deaf);
            let mut before = self.disk.claims.iter();
            if !before.any(|claim| {
                asleep && Some(claim.ticket) < person.ticket && self.is_truly_live(scenario, claim)
            }) {
                return Some("nobody waits behind nobody");
            }
        }
        for claim in &self.disk.claims {
            if self.judged_held(scenario, claim) && !self.is_truly_live(scenario, claim) {
                return Some("only dead claims are left behind");
            }
        }
        None
    }
}

/// Collects the steps that are possible in one state.
struct Successors<'a> {
    world: &'a World,
    scenario: &'a Scenario,
    out: Vec<(Step, World)>,
}

impl Successors<'_> {
    fn step(&mut self, who: usize, what: &'static str, certain: bool, f: impl FnOnce(&mut World)) {
        let mut world = self.world.clone();
        f(&mut world);
        let who = u8::try_from(who).expect("a handful of contenders");
        self.out.push((Step { who, what, certain }, world));
    }

    fn of(&mut self, who: usize) {
        let person = &self.world.people[who];
        let script = self.scenario.scripts[who];
        let bit = 1u8 << who;
        if person.alive {
            self.process(who);
            if self.world.crashes > 0 && !matches!(person.at, At::Start | At::Done) {
                let scenario = self.scenario;
                self.step(who, "crashes", false, |world| world.crash(scenario, who));
            }
        }
        if person.command == Command::Gated && !person.alive {
            self.step(who, "its command ends without beginning", true, |world| {
                world.end_command(who);
            });
        }
        if person.command == Command::Running {
            if !script.endless {
                self.step(who, "its command ends", true, |world| {
                    world.end_command(who);
                });
            }
            let named = || {
                let claim = person.ticket.and_then(|t| self.world.disk.claim(t));
                claim.is_some_and(|claim| claim.holder.command.is_some())
            };
            let inherited = self.world.bytes.iter().any(|b| b.commands & bit != 0);
            let may_close = match script.closes {
                Closes::Never => false,
                Closes::OnceNamed => named(),
                Closes::Anytime => true,
            };
            if inherited && may_close {
                self.step(
                    who,
                    "its command closes the inherited beacon",
                    false,
                    |world| world.let_go_everywhere(|byte| byte.commands &= !bit),
                );
            }
        }
        if script.job == Job::Detached {
            if script.mortal_owner
                && person.owner_alive
                && !matches!(person.at, At::Start | At::Done)
            {
                self.step(who, "its owner dies", false, |world| {
                    let person = &mut world.people[who];
                    person.owner_alive = false;
                    person.inside = false;
                });
            }
            if matches!(person.at, At::Holding) && !person.alive {
                if !person.owner_alive {
                    self.step(who, "is history", true, |world| {
                        world.people[who].at = At::Done;
                    });
                } else if !script.endless {
                    self.step(who, "releases by request id", true, |world| {
                        let person = &mut world.people[who];
                        person.alive = true;
                        person.inside = false;
                        person.at = At::Guard(Purpose::ReleaseById);
                    });
                }
            }
        }
    }

    fn process(&mut self, who: usize) {
        let scenario = self.scenario;
        let person = &self.world.people[who];
        let script = scenario.scripts[who];
        match &person.at {
            At::Start => self.step(who, "starts", true, |world| {
                let purpose = match script.job {
                    Job::Clean => Purpose::Clean,
                    Job::Run | Job::Detached => match Attempt::start() {
                        (_, Effect::Enter) => Purpose::Enter,
                        (_, other) => panic!("an attempt begins with {other:?}"),
                    },
                };
                world.people[who].at = At::Guard(purpose);
            }),
            At::Guard(purpose) => self.guard(who, *purpose),
            At::Read(purpose) => {
                let purpose = *purpose;
                self.step(who, decide_label(purpose), true, |world| {
                    world.decide(scenario, who, purpose);
                });
            }
            At::Light(plan) => self.step(who, "lights its beacon", true, |world| {
                world.light(who);
                world.people[who].at = if scenario.has(Defect::LightsAfterCommit) {
                    At::Unlock(plan.clone())
                } else if scenario.has(Defect::LightsAfterUnlock) {
                    world.after(scenario, who, plan.as_ref().clone());
                    return;
                } else if scenario.has(Defect::UnlocksBeforeCommit) {
                    At::Unlock(plan.clone())
                } else {
                    At::Commit(plan.clone())
                };
            }),
            At::Commit(plan) => self.step(who, "commits", true, |world| {
                world.commit(scenario, who, plan);
            }),
            At::Unlock(plan) => self.step(who, "unlocks the guard", true, |world| {
                if world.guard == u8::try_from(who).ok() {
                    world.guard = None;
                }
                if scenario.has(Defect::LightsAfterUnlock) && admits(plan) {
                    world.people[who].at = At::Light(plan.clone());
                } else if scenario.has(Defect::UnlocksBeforeCommit) && plan.changed {
                    world.people[who].at = At::Commit(plan.clone());
                } else {
                    world.after(scenario, who, plan.as_ref().clone());
                }
            }),
            At::FallAsleep(behind) => self.step(who, "falls asleep", true, |world| {
                let changed = match behind {
                    Predecessor::Record(claim) => world.disk.claim(claim.ticket) != Some(claim),
                    Predecessor::Beacon { .. } => false,
                };
                world.people[who].at = if changed && scenario.has(Defect::NoticesOnlyNewChanges) {
                    At::Deaf
                } else {
                    At::Sleep(behind.clone())
                };
            }),
            At::Sleep(behind) => self.sleep(who, behind),
            At::LetGo => self.step(who, "lets go of that byte", true, |world| {
                if !scenario.has(Defect::KeepsThePredecessorsByte) {
                    let bit = 1u8 << who;
                    world.let_go_everywhere(|byte| byte.wakers &= !bit);
                }
                world.feed(scenario, who, Input::Woken);
            }),
            At::Section => self.section(who),
            At::Working => self.working(who),
            At::PutOut => self.step(who, "puts its beacon out", true, |world| {
                let gave_up = world.people[who].giving_up.is_some();
                if !(gave_up && scenario.has(Defect::GivesUpWithItsBeaconLit)) {
                    world.put_out(who);
                }
                if gave_up {
                    world.feed(scenario, who, Input::Left);
                } else if scenario.has(Defect::PutsOutBeforeLeaving)
                    || scenario.has(Defect::PutsOutBeforeLeavingAndWakesWithAStaleList)
                {
                    world.people[who].at = At::Guard(Purpose::Release);
                } else {
                    world.end_round(scenario, who);
                }
            }),
            At::Exit => self.step(who, "exits, its owner lives on", true, |world| {
                let bit = 1u8 << who;
                world.let_go_everywhere(|byte| byte.keepers &= !bit);
                world.people[who].alive = false;
                world.people[who].at = At::Holding;
            }),
            At::Deaf | At::Holding | At::Done => {}
        }
    }

    fn guard(&mut self, who: usize, purpose: Purpose) {
        let without = match purpose {
            Purpose::Look => self.scenario.has(Defect::LooksWithoutTheGuard),
            _ => false,
        };
        if without || self.world.guard.is_none() {
            self.step(who, "locks the guard", true, |world| {
                if !without {
                    world.guard = u8::try_from(who).ok();
                }
                world.people[who].at = At::Read(purpose);
            });
        }
    }

    fn sleep(&mut self, who: usize, behind: &Predecessor) {
        let (world, scenario) = (self.world, self.scenario);
        let person = &world.people[who];
        if world.wakes(scenario, &world.disk, behind) {
            if let Predecessor::Beacon { ticket } = behind {
                self.step(who, "is handed the byte before it", true, |world| {
                    world.keep(*ticket, |byte| byte.wakers |= 1u8 << who);
                    world.people[who].at = At::LetGo;
                });
            } else {
                self.step(who, "wakes up", true, |world| {
                    world.feed(scenario, who, Input::Woken);
                });
            }
        }
        if person.ticket.is_some_and(|t| world.disk.is_cancelled(t)) {
            self.step(who, "is woken by a request to stop", true, |world| {
                world.feed(scenario, who, Input::Woken);
            });
        }
        if scenario.scripts[who].gives_up {
            self.step(who, "gives up", false, |world| {
                world.feed(scenario, who, Input::Expired);
            });
        }
    }

    fn section(&mut self, who: usize) {
        let scenario = self.scenario;
        let person = &self.world.people[who];
        let ticket = person.ticket.expect("a holder has a ticket");
        if self.world.disk.is_cancelled(ticket) {
            self.step(who, "was asked to stop before it began", true, |world| {
                world.begin_release(scenario, who);
            });
            return;
        }
        self.step(who, "starts its command", true, |world| {
            world.people[who].command = if scenario.gated {
                Command::Gated
            } else {
                Command::Running
            };
            if !scenario.has(Defect::BeaconIsNotInherited) {
                world.keep(ticket, |byte| byte.commands |= 1u8 << who);
            }
            world.people[who].at = At::Guard(Purpose::Name);
        });
    }

    fn working(&mut self, who: usize) {
        let scenario = self.scenario;
        let script = scenario.scripts[who];
        let person = &self.world.people[who];
        let ticket = person.ticket.expect("a holder has a ticket");
        let running = person.command == Command::Running;
        if person.command == Command::Gated {
            self.step(who, "lets its command begin, or not", true, |world| {
                if world.people[who].asked {
                    world.end_command(who);
                } else {
                    world.people[who].command = Command::Running;
                }
            });
            return;
        }
        if !running || scenario.has(Defect::ReleasesBeforeTheWorkEnds) {
            self.step(who, "begins its release", true, |world| {
                world.begin_release(scenario, who);
            });
        }
        if running && !person.asked && self.world.disk.is_cancelled(ticket) {
            self.step(who, "sees a request to stop", true, |world| {
                world.people[who].asked = true;
            });
        }
        if running && person.asked {
            self.step(who, "ends its command", true, |world| {
                world.end_command(who)
            });
        }
        if script.renews && !person.renewed && running {
            self.step(who, "wants to renew", true, |world| {
                world.people[who].renewed = true;
                world.people[who].at = At::Guard(Purpose::Renew);
                if scenario.has(Defect::RenewsWithoutTheGuard) {
                    world.people[who].seen = Some(world.disk.clone());
                }
            });
        }
    }
}

fn decide_label(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Enter => "reads and decides to enter",
        Purpose::Look => "reads and looks whether it holds",
        Purpose::Leave => "reads and withdraws its claim",
        Purpose::Name => "reads and names its command",
        Purpose::Renew => "reads and renews",
        Purpose::Release => "reads and releases",
        Purpose::ReleaseById => "reads and releases by its id",
        Purpose::Clean => "reads and sweeps",
    }
}

/// Whether a plan brings a new claim into the list.
fn admits(plan: &Plan) -> bool {
    matches!(
        plan.answer,
        Answer::Entering(Entering::Granted { .. } | Entering::Queued { .. })
    )
}

fn granted(answer: &Answer) -> Option<u64> {
    match answer {
        Answer::Entering(Entering::Granted { token, .. })
        | Answer::Advance(Advance::Granted { token }) => Some(*token),
        _ => None,
    }
}

impl World {
    fn request(&self, scenario: &Scenario, who: usize) -> Request {
        let script = scenario.scripts[who];
        let round = self.people[who].round;
        let role = match script.job {
            Job::Detached => OWNER,
            Job::Run | Job::Clean => SUPERVISOR,
        };
        Request {
            holder: Holder {
                request_id: request_id(who, round),
                actor: String::new(),
                process: Some(process(role, who, round)),
                command: None,
                host: Host {
                    boot_id: scenario.is_timed().then(|| "boot".into()),
                    ..Host::default()
                },
                why: String::new(),
            },
            kind: match script.job {
                Job::Detached => Kind::Detached,
                Job::Run | Job::Clean => Kind::Kernel,
            },
            ttl_ms: scenario.policy.supervised_ttl_ms,
            force: script.force,
            patience: script.patience,
        }
    }

    /// Reads the committed list, gathers the evidence and lets the core decide.
    fn decide(&mut self, scenario: &Scenario, who: usize, purpose: Purpose) {
        let now = self.now(scenario);
        let policy = &scenario.policy;
        let own = self.people[who].ticket;
        let ticket = own.unwrap_or(0);
        let goes_on_with_what_it_saw = match purpose {
            Purpose::Look => scenario.has(Defect::PutsOutBeforeLeavingAndWakesWithAStaleList),
            Purpose::Renew => scenario.has(Defect::RenewsWithoutTheGuard),
            _ => false,
        };
        let mut entry = match &self.people[who].seen {
            Some(seen) if goes_on_with_what_it_saw => seen.clone(),
            _ => self.disk.clone(),
        };
        let mut events = Vec::new();
        let evidence = |claim: &Claim| {
            let mut seen = self.evidence(scenario, claim);
            if scenario.has(Defect::ReportsWaitersAsDead) && claim.token.is_none() {
                seen.beacon = Beacon::Out;
            }
            seen
        };
        let answer = match purpose {
            Purpose::Enter => {
                let request = self.request(scenario, who);
                Answer::Entering(entry.enter(policy, request, &now, evidence, &mut events))
            }
            Purpose::Look if scenario.has(Defect::HoldsOnWaking) => {
                entry.last += 1;
                let token = entry.last;
                match entry.claim_mut(ticket) {
                    Some(claim) => {
                        claim.token = Some(token);
                        Answer::Advance(Advance::Granted { token })
                    }
                    None => Answer::Advance(Advance::Gone),
                }
            }
            Purpose::Look => {
                Answer::Advance(entry.advance(policy, ticket, &now, evidence, &mut events))
            }
            Purpose::Leave | Purpose::Release => {
                let first = entry.claims.first().map_or(0, |claim| claim.ticket);
                let ticket = if scenario.has(Defect::LeavesWithoutATicket) {
                    first
                } else {
                    ticket
                };
                let _left = entry.leave(ticket, &now);
                Answer::Nothing
            }
            Purpose::Name => {
                let command = process(COMMAND, who, self.people[who].round);
                Answer::Named(entry.name_command(ticket, command))
            }
            Purpose::Renew => Answer::Renewal(entry.renew(ticket, &now)),
            Purpose::ReleaseById => {
                let id = request_id(who, self.people[who].round);
                let owns = |claim: &Claim| {
                    if claim.holder.request_id == id
                        || scenario.has(Defect::ReleasesWithoutOwnership)
                    {
                        Ownership::Shown
                    } else {
                        Ownership::Missing
                    }
                };
                let _released = entry.release(policy, owns, &now);
                Answer::Nothing
            }
            Purpose::Clean => {
                let _swept = entry.sweep(policy, &now, evidence);
                Answer::Nothing
            }
        };
        for event in &events {
            if let Event::CancelRequested { ticket } = event
                && entry
                    .claim(*ticket)
                    .is_some_and(|claim| claim.token.is_none())
            {
                self.broken = Some("only a holder is asked to stop");
            }
        }
        self.check_answer(scenario, who, &entry, &answer);
        self.normalise(scenario, &mut entry);
        let plan = Box::new(Plan {
            purpose,
            changed: entry != self.disk,
            entry,
            answer,
            exempt: exempted(&events),
        });
        self.people[who].at = if admits(&plan)
            && !scenario.has(Defect::LightsAfterCommit)
            && !scenario.has(Defect::LightsAfterUnlock)
        {
            self.people[who].ticket = entered(&plan.answer);
            At::Light(plan)
        } else if scenario.has(Defect::UnlocksBeforeCommit) {
            At::Unlock(plan)
        } else if plan.changed {
            At::Commit(plan)
        } else {
            At::Unlock(plan)
        };
    }

    /// What holds of an answer at the moment at which it is given.
    fn check_answer(&mut self, scenario: &Scenario, who: usize, entry: &Entry, answer: &Answer) {
        match answer {
            Answer::Entering(Entering::Queued { behind, .. })
            | Answer::Advance(Advance::Behind(behind)) => {
                if self.wakes(scenario, entry, behind) {
                    self.broken = Some("nobody is sent to sleep behind what has ended");
                }
                if scenario.scripts[who].patience == Patience::AtOnce {
                    self.broken = Some("who never waits is never queued");
                }
            }
            Answer::Entering(Entering::Refused(refusal))
            | Answer::Advance(Advance::Blocked(refusal)) => {
                let live = |claim: &Claim| self.is_truly_live(scenario, claim);
                let held = self.disk.claims.iter().any(live);
                if refusal.reason == Reason::Held && !held {
                    self.broken = Some("nobody is refused for a lock that nobody has");
                }
                let forces = scenario.scripts[who].force != Force::No;
                if refusal.reason == Reason::StaleNeedsForce && forces {
                    self.broken = Some("who brought force is not refused for want of it");
                }
                let waiter = refusal.blocker.as_ref().is_some_and(|b| b.token.is_none());
                if refusal.reason == Reason::StaleNeedsForce && waiter {
                    self.broken = Some("no waiter needs force to be passed");
                }
            }
            _ => {}
        }
    }

    /// Takes out of the list what no decision ever looks at, so that fewer states differ.
    fn normalise(&self, scenario: &Scenario, entry: &mut Entry) {
        entry.history = tenure_core::History::default();
        if let Some(cancel) = &mut entry.cancel {
            cancel.by.clear();
            cancel.at = Stamp::default();
        }
        if !scenario.is_timed() {
            for claim in &mut entry.claims {
                claim.entered = Stamp::default();
                claim.since = claim.token.map(|_| Stamp::default());
                claim.lease.renewed = Stamp::default();
            }
        }
    }

    fn light(&mut self, who: usize) {
        let ticket = self.people[who].ticket.expect("a claimant has a ticket");
        self.keep(ticket, |byte| byte.keepers |= 1u8 << who);
    }

    /// Writes the list. One atomic step: of a write that is cut short, the old slot is left.
    fn commit(&mut self, scenario: &Scenario, who: usize, plan: &Plan) {
        for ticket in &plan.exempt {
            let Some(claim) = self.disk.claim(*ticket) else {
                continue;
            };
            if scenario.policy == Policy::NATIVE && claim.kind == Kind::Kernel {
                self.broken = Some("not even force breaks a run");
            }
            let (victim, round) = claimant(claim);
            if self.people[victim].round == round {
                self.people[victim].exempt = true;
            }
        }
        for claim in &self.disk.claims {
            let gone = plan.entry.claim(claim.ticket).is_none();
            let other = Some(claim.ticket) != self.people[who].ticket;
            if gone && other && claim.token.is_none() && self.is_alive(claim) {
                self.broken = Some("nobody alive is thrown out of the queue");
            }
        }
        self.disk = plan.entry.clone();
        if let Some(ticket) = entered(&plan.answer) {
            self.people[who].ticket = Some(ticket);
        }
        if let Some(token) = granted(&plan.answer) {
            self.grant(scenario, who, token);
        }
        self.people[who].at = if scenario.has(Defect::LightsAfterCommit) && admits(plan) {
            At::Light(Box::new(plan.clone()))
        } else if scenario.has(Defect::UnlocksBeforeCommit) {
            self.after(scenario, who, plan.clone());
            return;
        } else {
            At::Unlock(Box::new(plan.clone()))
        };
    }

    fn grant(&mut self, scenario: &Scenario, who: usize, token: u64) {
        if token <= self.top {
            self.broken = Some("tokens rise in the order of the grants");
        }
        self.top = self.top.max(token);
        let own = self.people[who].ticket;
        for claim in &self.disk.claims {
            let waits = Some(claim.ticket) < own && claim.token.is_none();
            if waits && self.is_truly_live(scenario, claim) {
                self.broken = Some("who came first goes first");
            }
        }
        let person = &mut self.people[who];
        person.token = Some(token);
        person.inside = match scenario.scripts[who].job {
            Job::Detached => person.owner_alive,
            Job::Run | Job::Clean => true,
        };
    }

    /// The transition is over: on to what comes next.
    fn after(&mut self, scenario: &Scenario, who: usize, plan: Plan) {
        if scenario.has(Defect::PutsOutBeforeLeavingAndWakesWithAStaleList) {
            self.people[who].seen = Some(plan.entry);
        }
        match plan.answer {
            Answer::Entering(entering) => self.feed(scenario, who, Input::Entered(entering)),
            Answer::Advance(advance) => self.feed(scenario, who, Input::Advanced(advance)),
            Answer::Named(there) => {
                self.people[who].asked |= !there;
                self.people[who].at = At::Working;
            }
            Answer::Renewal(renewal) => {
                self.people[who].asked |= match renewal {
                    Renewal::Renewed {
                        cancel_requested, ..
                    } => cancel_requested,
                    Renewal::Lost => true,
                };
                self.people[who].at = At::Working;
            }
            Answer::Nothing => match plan.purpose {
                Purpose::Leave => self.people[who].at = At::PutOut,
                Purpose::Release
                    if !scenario.has(Defect::PutsOutBeforeLeaving)
                        && !scenario.has(Defect::PutsOutBeforeLeavingAndWakesWithAStaleList) =>
                {
                    self.people[who].at = At::PutOut;
                }
                _ => self.end_round(scenario, who),
            },
        }
    }

    /// Feeds the contender's attempt and does what it says.
    fn feed(&mut self, scenario: &Scenario, who: usize, input: Input) {
        // The attempt itself cannot be copied with the state, so it is led there again.
        let (mut attempt, _enter) = Attempt::start();
        let person = &mut self.people[who];
        if let Some(ticket) = person.ticket {
            let behind = Predecessor::Beacon { ticket: 0 };
            let _sleep = attempt.on(Input::Entered(Entering::Queued { ticket, behind }));
        }
        if let Some(why) = person.giving_up.clone() {
            let _leave = attempt.on(why);
        }
        match attempt.on(input.clone()) {
            Effect::Enter => {
                self.put_out(who);
                self.people[who].ticket = None;
                self.people[who].exempt = false;
                self.people[who].at = At::Guard(Purpose::Enter);
            }
            Effect::Sleep { behind } => {
                self.people[who].at = At::FallAsleep(behind);
            }
            Effect::Look => self.people[who].at = At::Guard(Purpose::Look),
            Effect::Leave => {
                person.giving_up = Some(input);
                self.people[who].at = At::Guard(Purpose::Leave);
            }
            Effect::Finish(Outcome::Granted { ticket, token }) => {
                if person.ticket != Some(ticket) || person.token != Some(token) {
                    self.broken = Some("the attempt reports what was granted");
                }
                self.people[who].at = match scenario.scripts[who].job {
                    Job::Detached => At::Exit,
                    Job::Run | Job::Clean => At::Section,
                };
            }
            Effect::Finish(Outcome::Yours { .. }) => self.people[who].at = At::Exit,
            Effect::Finish(
                Outcome::Refused(_)
                | Outcome::TimedOut
                | Outcome::Interrupted
                | Outcome::Superseded { .. },
            ) => self.end_round(scenario, who),
        }
    }

    fn begin_release(&mut self, scenario: &Scenario, who: usize) {
        self.people[who].inside = false;
        self.people[who].at = if scenario.has(Defect::PutsOutBeforeLeaving)
            || scenario.has(Defect::PutsOutBeforeLeavingAndWakesWithAStaleList)
        {
            At::PutOut
        } else {
            At::Guard(Purpose::Release)
        };
    }

    fn end_command(&mut self, who: usize) {
        let bit = 1u8 << who;
        self.people[who].command = Command::Ended;
        self.let_go_everywhere(|byte| byte.commands &= !bit);
    }

    fn end_round(&mut self, scenario: &Scenario, who: usize) {
        let person = &mut self.people[who];
        let script = scenario.scripts[who];
        if person.round + 1 == script.rounds {
            person.at = At::Done;
            person.inside = false;
            return;
        }
        *person = Person {
            round: person.round + 1,
            at: At::Start,
            alive: true,
            owner_alive: true,
            ticket: None,
            token: None,
            giving_up: None,
            command: Command::No,
            asked: false,
            renewed: false,
            inside: false,
            exempt: false,
            seen: None,
        };
    }

    /// The process ends at once. The kernel lets go of all that it kept; a command lives on.
    fn crash(&mut self, scenario: &Scenario, who: usize) {
        let bit = 1u8 << who;
        self.crashes -= 1;
        if self.guard == u8::try_from(who).ok() {
            self.guard = None;
        }
        if scenario.has(Defect::WritesInPlace) && matches!(self.people[who].at, At::Commit(_)) {
            self.disk = Entry::default();
        }
        self.let_go_everywhere(|byte| {
            byte.keepers &= !bit;
            byte.wakers &= !bit;
        });
        let person = &mut self.people[who];
        person.alive = false;
        person.inside = false;
        person.giving_up = None;
        person.seen = None;
        // A hold that was granted for an owner stands, whether or not the owner was told.
        let granted = person.ticket.and_then(|t| self.disk.claim(t));
        let granted = granted.is_some_and(|claim| claim.token.is_some());
        person.at = match scenario.scripts[who].job {
            Job::Detached if granted => At::Holding,
            _ => At::Done,
        };
    }
}

fn entered(answer: &Answer) -> Option<u64> {
    match answer {
        Answer::Entering(Entering::Granted { ticket, .. } | Entering::Queued { ticket, .. }) => {
            Some(*ticket)
        }
        _ => None,
    }
}

/// The holds that ended because a contract says so: by force, or by the end of a lease.
fn exempted(events: &[Event]) -> Vec<u64> {
    let stolen = events.iter().filter_map(|event| match event {
        Event::Stolen {
            why: Takeover::Active | Takeover::Stale(StaleReason::Aged | StaleReason::Silent),
            previous: Some(claim),
        } => Some(claim.ticket),
        _ => None,
    });
    stolen.collect()
}
