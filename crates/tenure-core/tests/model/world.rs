//! The modelled machine: what is on the disk, which bytes are locked, where each contender stands,
//! what can be seen of all that, and what must hold.
//!
//! The possible steps are `steps`' business, what they do is `transitions`'.

#[path = "comparing.rs"]
mod comparing;
#[path = "key.rs"]
mod key;
#[path = "steps.rs"]
mod steps;
#[path = "transitions.rs"]
mod transitions;

use crate::scenario::{Defect, Scenario};
use std::fmt::Write as _;
use std::rc::Rc;
use tenure_core::{
    Claim, Death, Entering, Entry, Evidence, Input, Kind, Liveness, LivenessLock, Mode, Now,
    Predecessor, Process, Queueing, Renewal, RequestId, STOPPED_GRACE_MS, Standing, TryGrant,
    UnknownLife, judge,
};

/// What a transition is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Enter,
    Look,
    Leave,
    Reserve,
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
    TryGrant(TryGrant),
    Renewal(Renewal),
    Named(bool),
    Reserved(bool),
    Nothing,
}

/// A decided transition on its way to the disk.
#[derive(Debug, Clone)]
struct Plan {
    purpose: Purpose,
    entry: Rc<Entry>,
    /// The list differs from what was read.
    changed: bool,
    answer: Answer,
    /// The holds that the contract itself allows to break, if this is committed.
    exempt: Vec<u64>,
    /// Set where contenders commit by comparison.
    conditions: Option<comparing::Conditions>,
}

/// Where a contender stands; named after what it does next.
#[derive(Debug, Clone)]
enum At {
    Start,
    Guard(Purpose),
    Read(Purpose),
    TakesLiveness(Rc<Plan>),
    Commit(Rc<Plan>),
    Unlock(Rc<Plan>),
    FallAsleep(Predecessor),
    Sleep(Predecessor),
    /// Asleep, and only a change that comes later would be noticed (a defect).
    Deaf,
    LetGo,
    /// Granted, and about to let go of the byte of its turn.
    GiveTurn(u64),
    Section,
    Working,
    PutOut,
    Exit,
    Holding,
    /// The place is kept, and none of its processes is there.
    Away,
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

/// A contender: a supervisor with its command, or an acquirer with its owner.
#[expect(clippy::struct_excessive_bools, reason = "a state is a list of facts")]
#[derive(Debug, Clone)]
struct Person {
    round: u8,
    at: At,
    /// The supervisor, the acquirer, or the process that releases for the owner.
    alive: bool,
    owner_alive: bool,
    ticket: Option<u64>,
    token: Option<u64>,
    giving_up: Option<Input>,
    command: Command,
    /// The supervisor has seen a request to stop, or that the lock is lost.
    asked: bool,
    renewed: bool,
    /// Whether the place is kept from now on.
    reserved: bool,
    /// Whether the contender has come back to its place once. It leaves it for good the next time.
    returned: bool,
    /// Whether the contender asks for the place that was kept.
    returning: bool,
    /// Whether the contender believes that it holds.
    inside: bool,
    /// Whether the process is stopped.
    stopped: bool,
    /// Whether the process was stopped in this round already.
    was_stopped: bool,
    /// Whether the hold was broken as its contract allows.
    exempt: bool,
    /// What it read last; kept only by the defects that go on with it.
    seen: Option<Rc<Entry>>,
    /// How it holds.
    mode: Mode,
}

/// The processes that keep the byte of one ticket locked, a bit for each contender.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Byte {
    ticket: u64,
    /// The claimant's process.
    renewers: u8,
    /// The claimant's command.
    commands: u8,
    /// Waiters that the kernel has just handed the byte to. They have it shared, so no process takes them
    /// for an owner; but none can become its owner meanwhile.
    wakers: u8,
    /// The claimant's process, of the byte of its turn.
    turns: u8,
}

impl Byte {
    fn is_held(&self) -> bool {
        self.renewers | self.commands != 0
    }

    fn is_taken(&self) -> bool {
        self.is_held() || self.wakers != 0
    }

    fn is_free(&self) -> bool {
        !self.is_taken() && self.turns == 0
    }
}

/// A step that leads from one state to another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) who: u8,
    pub(crate) what: &'static str,
    /// Sure to happen if nothing else does; a crash, say, is not.
    pub(crate) certain: bool,
}

/// A state of the modelled machine. Most steps leave the list and the plans as they are, so a state shares
/// them with the one before.
#[derive(Debug, Clone)]
pub(crate) struct World {
    disk: Rc<Entry>,
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

/// Whether a waiting claim stands there for nothing: its caller is away, or was asked to stop.
fn stands_aside(claim: &Claim) -> bool {
    claim.reservation.is_some() || claim.cancel.is_some()
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
            reserved: false,
            returned: false,
            returning: false,
            inside: false,
            stopped: false,
            was_stopped: false,
            exempt: false,
            seen: None,
            mode: Mode::Exclusive,
        };
        Self {
            disk: Rc::default(),
            guard: None,
            bytes: Vec::new(),
            people: (scenario.scripts.iter())
                .map(|script| Person {
                    mode: script.mode,
                    ..person.clone()
                })
                .collect(),
            crashes: scenario.crashes,
            reading: 0,
            top: 0,
            broken: None,
        }
    }

    /// The state in a few lines, for the report of a violation.
    pub(crate) fn summary(&self) -> String {
        let mut lines = format!("then: last {}, top token {}\n", self.disk.last, self.top);
        for claim in &self.disk.claims {
            let (who, _) = claimant(claim);
            let held = if self.is_held(claim.ticket) {
                "held"
            } else {
                "out"
            };
            let _ = writeln!(
                lines,
                "  claim {} of #{who}: {:?}, token {:?}, liveness lock {held}",
                claim.ticket, claim.kind, claim.token
            );
        }
        for (who, person) in self.people.iter().enumerate() {
            let at = format!("{:?}", person.at);
            let at = at.split(['(', ' ']).next().unwrap_or_default();
            let _ = writeln!(
                lines,
                "  #{who} at {at}: alive {}, ticket {:?}, token {:?}, command {:?}, inside {}",
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

    fn is_held(&self, ticket: u64) -> bool {
        let mut bytes = self.bytes.iter();
        bytes.any(|byte| byte.ticket == ticket && byte.is_held())
    }

    fn keeps_turn(&self, ticket: u64) -> bool {
        let mut bytes = self.bytes.iter();
        bytes.any(|byte| byte.ticket == ticket && byte.turns != 0)
    }

    fn keep(&mut self, ticket: u64, change: impl FnOnce(&mut Byte)) {
        let index = self.bytes.iter().position(|byte| byte.ticket == ticket);
        let index = index.unwrap_or_else(|| {
            self.bytes.push(Byte {
                ticket,
                renewers: 0,
                commands: 0,
                wakers: 0,
                turns: 0,
            });
            self.bytes.sort_by_key(|byte| byte.ticket);
            self.bytes
                .iter()
                .position(|byte| byte.ticket == ticket)
                .expect("it was pushed just now")
        });
        change(&mut self.bytes[index]);
        self.bytes.retain(|byte| !byte.is_free());
    }

    fn let_go_everywhere(&mut self, change: impl Fn(&mut Byte)) {
        for byte in &mut self.bytes {
            change(byte);
        }
        self.bytes.retain(|byte| !byte.is_free());
    }

    /// Unlocks a byte for every process that inherited it, as an explicit unlock does.
    fn put_out(&mut self, who: usize) {
        if let Some(ticket) = self.people[who].ticket {
            let bit = 1u8 << who;
            self.keep(ticket, |byte| {
                byte.renewers &= !bit;
                byte.commands &= !bit;
                byte.turns &= !bit;
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

    /// What any process on this machine can find out about a claim at this moment.
    fn evidence(&self, scenario: &Scenario, claim: &Claim) -> Evidence {
        Evidence {
            liveness_lock: if self.is_held(claim.ticket) {
                LivenessLock::Held
            } else {
                LivenessLock::Released
            },
            process: self.life_of(claim.holder.process),
            command: if scenario.has(Defect::NeverAsksTheCommand) {
                Liveness::NotRecorded
            } else {
                self.life_of(claim.holder.command)
            },
        }
    }

    /// Whether the process of a claim is stopped, as any process on this machine can see.
    fn is_stopped(&self, claim: &Claim) -> bool {
        let (who, round) = claimant(claim);
        let person = &self.people[who];
        person.stopped && person.round == round
    }

    /// Whether the grace of every waiter is over. Here it counts from the beginning of time.
    fn grace_is_over(&self, scenario: &Scenario) -> bool {
        self.now(scenario).boot_ms >= STOPPED_GRACE_MS
    }

    /// Whether a waiting claim may keep no other waiting any more, because its process is stopped.
    fn lets_pass(&self, scenario: &Scenario, claim: &Claim) -> bool {
        let is_over = self.grace_is_over(scenario) || claim.aside.is_some();
        claim.token.is_none() && self.is_stopped(claim) && is_over
    }

    /// Whether a live process is behind a claim, whatever other processes can see of it.
    fn is_alive(&self, claim: &Claim) -> bool {
        let (who, round) = claimant(claim);
        let person = &self.people[who];
        let at_work = person.alive && !matches!(person.at, At::Done);
        person.round == round
            && match claim.kind {
                Kind::Kernel => at_work || person.command == Command::Running,
                // No contender of the model publishes; what another program left has no process behind it.
                Kind::Foreign | Kind::Sealed => false,
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
            Predecessor::LivenessLock { ticket } => !self.is_held(*ticket),
            Predecessor::Record(claim) => self.has_changed(scenario, entry, claim),
            // Servers tell of a change of the claim itself.
            Predecessor::Turn { ticket } if scenario.is_compared() => {
                let waits = |claim: &Claim| claim.token.is_none() && self.is_held(*ticket);
                !entry.claim(*ticket).is_some_and(waits)
            }
            Predecessor::Turn { ticket } => !self.keeps_turn(*ticket),
            Predecessor::Still { behind, .. } => {
                self.grace_is_over(scenario) || self.wakes(scenario, entry, behind)
            }
            Predecessor::AnyOf(claims) => claims
                .iter()
                .any(|claim| self.has_changed(scenario, entry, claim)),
        }
    }

    fn has_changed(&self, scenario: &Scenario, entry: &Entry, claim: &Claim) -> bool {
        entry.claim(claim.ticket) != Some(claim) || !self.judged_held(scenario, claim)
    }

    /// Whether a claim of this mode at this place could hold beside those of the list that `counts`: all
    /// holders, and all waiters before it. The rule is the same for every mode. So it also says what the
    /// quicker way of an exclusive claim has to come to.
    fn could_hold(
        entry: &Entry,
        ticket: u64,
        mode: Mode,
        mut counts: impl FnMut(&Claim) -> bool,
    ) -> bool {
        let others = entry.claims.iter().filter(|claim| claim.ticket != ticket);
        let in_the_way: Vec<Mode> = others
            .filter(|claim| claim.token.is_some() || claim.ticket < ticket)
            .filter(|claim| claim.token.is_some() || !stands_aside(claim))
            .filter(|claim| counts(claim))
            .map(|claim| claim.mode)
            .collect();
        let capacities = in_the_way.iter().map(|other| other.capacity());
        let least = capacities.fold(mode.capacity(), usize::min);
        in_the_way.len() < least && in_the_way.iter().all(|other| mode.holds_beside(*other))
    }

    /// The name of an invariant that does not hold here.
    pub(crate) fn violation(&self) -> Option<&'static str> {
        if self.broken.is_some() {
            return self.broken;
        }
        let mut believers = 0;
        let mut least = usize::MAX;
        let mut lost = false;
        let mut slots: Vec<(Mode, Option<u32>)> = Vec::new();
        for (who, person) in self.people.iter().enumerate() {
            let believes = person.inside || person.command == Command::Running;
            if !believes || person.exempt {
                continue;
            }
            believers += 1;
            least = least.min(person.mode.capacity());
            let own = self.disk.claims.iter().find(|claim| {
                claimant(claim) == (who, person.round) && claim.token == person.token
            });
            lost |= own.is_none();
            if let (Mode::Slots(_), Some(own)) = (person.mode, own) {
                slots.push((person.mode, own.slot));
            }
        }
        if believers > least {
            return Some(match least {
                1 => "one holder at a time",
                _ => "no more holders than each of them tolerates",
            });
        }
        if lost {
            return Some("a holder's claim stays in the list");
        }
        for (index, (mode, number)) in slots.iter().enumerate() {
            if number.is_none_or(|number| number as usize >= mode.capacity()) {
                return Some("a holder of a slot has one of its numbers");
            }
            let others = slots.iter().skip(index + 1);
            for (other_mode, other) in others {
                if other == number || other_mode != mode {
                    return Some("no two holders share the number of a slot");
                }
            }
        }
        let single = self.disk.claims.iter().filter(|claim| {
            claim.token.is_none()
                && claim.queueing == Queueing::Single
                && !stands_aside(claim)
                && self.is_alive(claim)
        });
        if single.count() > 1 {
            return Some("one waits in a queue of one");
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
                _ if person.stopped => false,
                At::Sleep(_) | At::Deaf => true,
                At::Done | At::Away => false,
                At::Holding => !script.endless,
                At::Working => !(script.endless && person.command == Command::Running),
                _ => person.alive,
            };
            if !waits {
                continue;
            }
            let own = person.ticket.unwrap_or(0);
            if self.disk.is_cancelled(own) {
                return Some("a waiter that was asked to stop leaves");
            }
            let asleep = matches!(person.at, At::Sleep(_) | At::Deaf);
            let live = |claim: &Claim| {
                self.is_truly_live(scenario, claim) && !self.lets_pass(scenario, claim)
            };
            if !asleep || Self::could_hold(&self.disk, own, script.mode, live) {
                return Some("every waiter has something to wait for");
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
