//! When two states are the same: a state written down as bytes, with everything taken out that no
//! step depends on.
//!
//! Three things are taken out. *Numbers*: tickets and tokens are only ever compared, and a new one is
//! above all others, so each is replaced by its rank among those that are still in use. *Names*:
//! contenders with the same script are put into an order that depends on where they stand and not
//! on which is which. Both only rename a state, so every state that is left out behaves exactly
//! like one that is kept. *Numbers of slots*, except where a defect is seeded: what is kept of them is
//! whether they are sound. No step asks for more than which of them are free. From sound numbers, a grant
//! by the core's rule makes sound ones, whichever they are. So a state that is left out does not lead to an
//! unsound one unless a state that is kept does.

use super::{Answer, At, Byte, Person, Plan, World, claimant};
use crate::scenario::Scenario;
use tenure_core::{Claim, Entering, Entry, Input, Kind, Mode, Predecessor, Stamp, TryGrant};

impl World {
    /// The state as bytes: equal for equal states.
    pub(crate) fn key(&self, scenario: &Scenario) -> Box<[u8]> {
        let mut writer = Writer {
            numbers: Vec::new(),
            ranked: false,
            out: Vec::with_capacity(256),
            names: None,
            timed: scenario.is_timed(),
            numbered: scenario.defect.is_some(),
        };
        let order: Vec<usize> = (0..self.people.len()).collect();
        // First every number that occurs. The clock's readings count where a draw looks at them.
        writer.world(self, scenario, &order);
        if scenario.clock.len() > 1 {
            let readings = scenario.clock.iter().map(|(wall, _)| *wall);
            writer.numbers.extend(readings);
        }
        writer.numbers.push(0);
        writer.numbers.sort_unstable();
        writer.numbers.dedup();
        writer.ranked = true;

        let mut order: Vec<(Vec<u8>, usize)> = order
            .into_iter()
            .map(|who| {
                writer.out.clear();
                writer.person(&self.people[who], scenario, who);
                writer.bits(&self.bytes, who);
                writer
                    .out
                    .push(u8::from(self.guard == u8::try_from(who).ok()));
                (writer.out.clone(), who)
            })
            .collect();
        if !scenario.named {
            order.sort();
        }
        let order: Vec<usize> = order.into_iter().map(|(_, who)| who).collect();
        let mut names = [0; 8];
        for (name, who) in order.iter().enumerate() {
            names[*who] = u8::try_from(name).expect("a handful of contenders");
        }
        writer.names = Some(names);
        writer.out.clear();
        writer.world(self, scenario, &order);
        writer.out.into_boxed_slice()
    }
}

struct Writer {
    numbers: Vec<u64>,
    ranked: bool,
    out: Vec<u8>,
    /// The new name of each contender; before they are known, names are left out.
    names: Option<[u8; 8]>,
    timed: bool,
    numbered: bool,
}

impl Writer {
    fn number(&mut self, number: u64) {
        if self.ranked {
            let rank = self.numbers.partition_point(|n| *n < number);
            self.byte(u8::try_from(rank).expect("a handful of numbers"));
        } else {
            self.numbers.push(number);
        }
    }

    fn maybe(&mut self, number: Option<u64>) {
        match number {
            Some(number) => self.number(number),
            None => self.byte(u8::MAX),
        }
    }

    fn byte(&mut self, byte: u8) {
        self.out.push(byte);
    }

    fn stamp(&mut self, stamp: Stamp) {
        if self.timed {
            self.out.extend(stamp.wall_ms.to_le_bytes());
            self.out.extend(stamp.boot_ms.to_le_bytes());
        }
    }

    fn world(&mut self, world: &World, scenario: &Scenario, order: &[usize]) {
        self.entry(&world.disk);
        self.byte(world.crashes);
        self.byte(u8::try_from(world.reading).expect("a handful of readings"));
        self.number(world.top);
        for byte in &world.bytes {
            self.number(byte.ticket);
        }
        for who in order {
            self.byte(u8::MAX);
            self.person(&world.people[*who], scenario, *who);
            self.bits(&world.bytes, *who);
            self.byte(u8::from(world.guard == u8::try_from(*who).ok()));
        }
    }

    fn bits(&mut self, bytes: &[Byte], who: usize) {
        for byte in bytes {
            let sets = [byte.renewers, byte.commands, byte.wakers, byte.turns];
            let own = sets.map(|set| (set >> who) & 1);
            self.byte(own[0] | own[1] << 1 | own[2] << 2 | own[3] << 3);
        }
    }

    fn person(&mut self, person: &Person, scenario: &Scenario, who: usize) {
        let script = &scenario.scripts[who];
        let class = scenario.scripts.iter().position(|other| other == script);
        self.byte(u8::try_from(class.unwrap_or(who)).expect("a handful of contenders"));
        self.byte(person.round);
        let flags = [
            person.alive,
            person.owner_alive,
            person.asked,
            person.renewed,
            person.inside,
            person.exempt,
            person.reserved,
            person.returned,
            person.returning,
            person.stopped,
            person.was_stopped,
        ];
        self.byte(person.command as u8);
        let set = flags
            .iter()
            .fold(0, |set: u16, flag| set << 1 | u16::from(*flag));
        self.out.extend(set.to_le_bytes());
        self.maybe(person.ticket);
        self.maybe(person.token);
        self.byte(match &person.giving_up {
            None => 0,
            Some(Input::Expired) => 1,
            Some(Input::Interrupted) => 2,
            Some(_) => 3,
        });
        self.at(&person.at);
        match &person.seen {
            Some(seen) => self.entry(seen),
            None => self.byte(u8::MAX),
        }
    }

    fn at(&mut self, at: &At) {
        match at {
            At::Start => self.byte(0),
            At::Guard(purpose) => self.out.extend([1, *purpose as u8]),
            At::Read(purpose) => self.out.extend([2, *purpose as u8]),
            At::TakesLiveness(plan) => self.plan(3, plan),
            At::Commit(plan) => self.plan(4, plan),
            At::Unlock(plan) => self.plan(5, plan),
            At::FallAsleep(behind) => {
                self.byte(15);
                self.behind(behind);
            }
            At::Sleep(behind) => {
                self.byte(6);
                self.behind(behind);
            }
            At::Deaf => self.byte(7),
            At::LetGo => self.byte(8),
            At::Section => self.byte(9),
            At::Working => self.byte(10),
            At::PutOut => self.byte(11),
            At::Exit => self.byte(12),
            At::Holding => self.byte(13),
            At::Done => self.byte(14),
            At::GiveTurn(token) => {
                self.byte(16);
                self.number(*token);
            }
            At::Away => self.byte(17),
        }
    }

    fn behind(&mut self, behind: &Predecessor) {
        match behind {
            Predecessor::LivenessLock { ticket } => {
                self.byte(0);
                self.number(*ticket);
            }
            Predecessor::Record(claim) => {
                self.byte(1);
                self.claim(claim);
            }
            Predecessor::Turn { ticket } => {
                self.byte(2);
                self.number(*ticket);
            }
            Predecessor::Still { behind, .. } => {
                self.byte(4);
                self.behind(behind);
            }
            Predecessor::AnyOf(claims) => {
                self.byte(3);
                for claim in claims {
                    self.claim(claim);
                }
            }
        }
    }

    fn plan(&mut self, what: u8, plan: &Plan) {
        self.out
            .extend([what, plan.purpose as u8, u8::from(plan.changed)]);
        match &plan.answer {
            Answer::Entering(Entering::Granted { ticket, token }) => {
                self.byte(0);
                self.number(*ticket);
                self.number(*token);
            }
            Answer::Entering(Entering::Queued { ticket, behind }) => {
                self.byte(1);
                self.number(*ticket);
                self.behind(behind);
            }
            Answer::Entering(Entering::Yours { .. }) => self.byte(2),
            Answer::Entering(Entering::Refused(_) | Entering::NotKept) => self.byte(3),
            Answer::TryGrant(TryGrant::Granted { token }) => {
                self.byte(4);
                self.number(*token);
            }
            Answer::TryGrant(TryGrant::Behind(behind)) => {
                self.byte(5);
                self.behind(behind);
            }
            Answer::TryGrant(TryGrant::Cancelled { .. }) => self.byte(6),
            Answer::TryGrant(TryGrant::Blocked(_)) => self.byte(7),
            Answer::TryGrant(TryGrant::Gone) => self.byte(8),
            Answer::TryGrant(TryGrant::Yours { .. }) => self.byte(15),
            Answer::Renewal(tenure_core::Renewal::Lost) => self.byte(9),
            Answer::Renewal(tenure_core::Renewal::Renewed {
                cancel_requested, ..
            }) => self.byte(10 + u8::from(*cancel_requested)),
            Answer::Named(there) => self.byte(12 + u8::from(*there)),
            Answer::Nothing => self.byte(14),
            Answer::Reserved(done) => self.byte(16 + u8::from(*done)),
        }
        self.byte(u8::try_from(plan.exempt.len()).expect("a handful of claims"));
        for ticket in &plan.exempt {
            self.number(*ticket);
        }
        self.entry(&plan.entry);
        if let Some(conditions) = &plan.conditions {
            let flags = [conditions.rests_on as u8, u8::from(conditions.removes)];
            self.out.extend(flags);
            self.number(conditions.own);
            for ticket in &conditions.takes_out {
                self.number(*ticket);
            }
        }
    }

    fn entry(&mut self, entry: &Entry) {
        self.number(entry.last);
        self.byte(u8::try_from(entry.claims.len()).expect("a handful of claims"));
        self.byte(u8::from(are_numbers_sound(entry)));
        for claim in &entry.claims {
            self.claim(claim);
        }
    }

    fn claim(&mut self, claim: &Claim) {
        let (who, round) = claimant(claim);
        self.number(claim.ticket);
        self.maybe(claim.token);
        let name = self.names.map_or(0, |names| names[who]);
        let named = u8::from(claim.holder.command.is_some());
        let kind = u8::from(claim.kind == Kind::Detached);
        let asked = u8::from(claim.cancel.is_some());
        let away = u8::from(claim.reservation.is_some());
        let aside = u8::from(claim.aside.is_some());
        let flags = named | kind << 1 | asked << 2 | away << 3 | aside << 4;
        self.out.extend([name, round, flags]);
        // The wall clock alone: places are kept in scenarios without ages.
        let since = claim.reservation.map_or(0, |away| away.since.wall_ms);
        self.out.extend(since.to_le_bytes());
        if self.numbered {
            self.out
                .extend(claim.slot.unwrap_or(u32::MAX).to_le_bytes());
        }
        self.stamp(claim.entered);
        self.stamp(claim.since.unwrap_or_default());
        self.stamp(claim.lease.renewed);
    }
}

/// Whether each holder of a slot has one of its numbers, and no two have the same.
fn are_numbers_sound(entry: &Entry) -> bool {
    let mut taken = Vec::new();
    entry.granted().all(|claim| match (claim.mode, claim.slot) {
        (Mode::Slots(slots), Some(number)) if number < slots.get() => {
            let is_new = !taken.contains(&number);
            taken.push(number);
            is_new
        }
        (Mode::Slots(_), _) => false,
        (Mode::Exclusive | Mode::Shared, number) => number.is_none(),
    })
}
