//! What the larger steps do. All that is decided on the way is decided by the core itself
//! (`Entry`, `Attempt`).

use super::comparing::Decided;
use super::{
    Answer, At, COMMAND, Command, OWNER, Person, Plan, Purpose, SUPERVISOR, World, claimant,
    process, request_id, stands_aside,
};
use crate::scenario::{Defect, Job, Place, Scenario};
use std::rc::Rc;
use std::sync::Arc;
use tenure_core::{
    Attempt, Claim, Effect, Entering, Entry, Event, Force, Holder, Host, Input, Kept, Kind,
    LivenessLock, Mode, Outcome, Ownership, Patience, Policy, Predecessor, Queueing, Reason,
    Renewal, Request, StaleReason, Stamp, Takeover, Terms, TryGrant, Watched,
};

/// How long a place is kept: longer than nothing, shorter than an hour.
const GRACE_MS: u64 = 60_000;

/// Whether a plan brings a new claim into the list.
pub(super) fn admits(plan: &Plan) -> bool {
    matches!(
        plan.answer,
        Answer::Entering(Entering::Granted { .. } | Entering::Queued { .. })
    )
}

pub(super) fn granted(answer: &Answer) -> Option<u64> {
    match answer {
        Answer::Entering(Entering::Granted { token, .. })
        | Answer::TryGrant(TryGrant::Granted { token }) => Some(*token),
        _ => None,
    }
}

impl World {
    pub(super) fn request(&self, scenario: &Scenario, who: usize) -> Request {
        let script = scenario.scripts[who];
        let round = self.people[who].round;
        let role = match script.job {
            Job::Detached => OWNER,
            Job::Run | Job::Clean => SUPERVISOR,
        };
        Request {
            holder: Holder {
                facts: Vec::new(),
                request_id: request_id(who, round),
                actor: String::new(),
                process: Some(process(role, who, round)),
                command: None,
                host: Arc::new(Host {
                    boot_id: scenario.is_timed().then(|| "boot".into()),
                    ..Host::default()
                }),
                why: String::new(),
            },
            kind: match script.job {
                Job::Detached => Kind::Detached,
                Job::Run | Job::Clean => Kind::Kernel,
            },
            ttl_ms: scenario.policy.supervised_ttl_ms,
            force: script.force,
            patience: script.patience,
            terms: Terms {
                mode: script.mode,
                queueing: if scenario.has(Defect::NeverDisplaces) {
                    Queueing::Fifo
                } else {
                    script.queueing
                },
                cancel_in_progress: script.cancels,
                grace_ms: 0,
                kept: (self.people[who].returning).then(|| Kept::Owner(process(OWNER, who, round))),
                watched: None,
            },
        }
    }

    /// Reads the committed list, gathers the evidence and lets the core decide.
    pub(super) fn decide(&mut self, scenario: &Scenario, who: usize, purpose: Purpose) {
        let goes_on_with_what_it_saw = match purpose {
            Purpose::Look => scenario.has(Defect::PutsOutBeforeLeavingAndWakesWithAStaleList),
            Purpose::Renew => scenario.has(Defect::RenewsWithoutTheGuard),
            _ => false,
        };
        let mut entry = match &self.people[who].seen {
            Some(seen) if goes_on_with_what_it_saw => Entry::clone(seen),
            _ => self.shown(scenario, who, purpose),
        };
        let shown = scenario.is_compared().then(|| entry.clone());
        let mut events = Vec::new();
        let own = self.own_ticket(who);
        let hidden = Self::hide(scenario, purpose, own, &mut entry);
        let mut answer = self.ask(scenario, who, purpose, &mut entry, &mut events);
        Self::show_again(scenario, who, hidden, &mut entry);
        for event in &events {
            if let Event::CancelRequested { ticket } = event
                && entry
                    .claim(*ticket)
                    .is_some_and(|claim| claim.token.is_none())
            {
                self.broken = Some("only a holder is asked to stop");
            }
        }
        self.check_displaced(&events);
        if granted(&answer).is_some() {
            let own = entered(&answer).or(self.people[who].ticket);
            let before = entry.claims.iter().filter(|c| Some(c.ticket) < own);
            for claim in before.filter(|claim| claim.token.is_none() && !stands_aside(claim)) {
                let was_passed = self.disk.claim(claim.ticket).is_some_and(Claim::was_passed);
                let may_pass = scenario.unseen || was_passed || self.is_stopped(claim);
                if claim.aside.is_some() && self.is_alive(claim) && !may_pass {
                    self.broken = Some("no waiter is passed that is not stopped");
                }
            }
        }
        if let Answer::TryGrant(_) = &answer
            && let Some(own) = self.people[who].ticket.and_then(|own| entry.claim(own))
            && own.was_passed()
        {
            self.broken = Some("a waiter that looks counts again");
        }
        self.check_answer(scenario, who, &entry, &answer);
        Self::normalise(scenario, &mut entry);
        if let Answer::Entering(Entering::Queued { behind, .. })
        | Answer::TryGrant(TryGrant::Behind(behind)) = &mut answer
        {
            Self::normalise_behind(scenario, behind);
        }
        if let Some(shown) = &shown {
            let decided = Decided {
                shown,
                entry,
                answer,
                exempt: exempted(&events),
                events: &events,
            };
            let plan = self.plan_to_compare(scenario, who, purpose, decided);
            if plan.changed {
                self.people[who].at = At::Commit(Rc::new(plan));
            } else {
                self.people[who].returning &= purpose != Purpose::Enter;
                self.after(scenario, who, plan);
            }
            return;
        }
        if purpose == Purpose::Enter {
            self.people[who].returning = false;
        }
        if scenario.has(Defect::GivesItsTurnBeforeCommit) && granted(&answer).is_some() {
            self.give_turn(who);
        }
        let plan = Rc::new(Plan {
            purpose,
            // A renewal always differs, even where stamps are no part of a state.
            changed: entry != *self.disk || purpose == Purpose::Renew,
            entry: Rc::new(entry),
            answer,
            exempt: exempted(&events),
            conditions: None,
        });
        self.people[who].at = if admits(&plan)
            && !scenario.has(Defect::TakesLivenessAfterCommit)
            && !scenario.has(Defect::TakesLivenessAfterUnlock)
        {
            self.people[who].ticket = entered(&plan.answer);
            At::TakesLiveness(plan)
        } else if scenario.has(Defect::UnlocksBeforeCommit) {
            At::Unlock(plan)
        } else if plan.changed {
            At::Commit(plan)
        } else {
            At::Unlock(plan)
        };
    }

    /// The ticket of a contender's claim, also while it comes back to it.
    fn own_ticket(&self, who: usize) -> u64 {
        let mut claims = self.disk.claims.iter();
        let kept = claims.find(|claim| claim.reservation.is_some() && claimant(claim).0 == who);
        let kept = kept.map(|claim| claim.ticket);
        self.people[who].ticket.or(kept).unwrap_or(0)
    }

    /// What the core must not see, as a defect has it: the requests to stop of waiters, that a caller is
    /// away, or the holds behind a place.
    fn hide(scenario: &Scenario, purpose: Purpose, own: u64, entry: &mut Entry) -> Vec<Claim> {
        let asks = matches!(purpose, Purpose::Enter | Purpose::Look);
        let mut before = entry.claims.clone();
        if asks && scenario.has(Defect::CountsWhoWasDisplaced) {
            let others = entry.claims.iter_mut().filter(|claim| claim.ticket != own);
            for claim in others.filter(|claim| claim.token.is_none()) {
                claim.cancel = None;
            }
        }
        if asks && scenario.has(Defect::CountsWhoIsAway) {
            entry
                .claims
                .iter_mut()
                .for_each(|claim| claim.reservation = None);
        }
        if scenario.has(Defect::OverlooksHoldersBehind) {
            let is_there = asks && entry.position(own).is_some();
            let behind = |claim: &Claim| is_there && claim.ticket > own && claim.token.is_some();
            entry.claims.retain(|claim| !behind(claim));
            before.retain(behind);
        }
        before
    }

    /// Puts what was hidden back where the core has not changed it.
    fn show_again(scenario: &Scenario, who: usize, hidden: Vec<Claim>, entry: &mut Entry) {
        if scenario.has(Defect::NeverDisplaces) {
            let single = scenario.scripts[who].queueing;
            let own = entry.claims.iter_mut().filter(|c| claimant(c).0 == who);
            own.for_each(|claim| claim.queueing = single);
        }
        for before in hidden {
            match entry.claim_mut(before.ticket) {
                Some(claim) if claim.token == before.token => {
                    if claim.cancel.is_none() {
                        claim.cancel = before.cancel;
                    }
                    let returned = claim.holder.process != before.holder.process;
                    if scenario.has(Defect::CountsWhoIsAway) && !returned {
                        claim.reservation = before.reservation;
                    }
                }
                None if scenario.has(Defect::OverlooksHoldersBehind) && before.token.is_some() => {
                    let place = entry.claims.partition_point(|c| c.ticket < before.ticket);
                    entry.claims.insert(place, before);
                }
                Some(_) | None => {}
            }
        }
    }

    /// What the boldest of all watchers has seen: it lets a waiter stand aside as soon as the clock lets it.
    fn watched(&self, own: u64, entry: &Entry) -> Watched {
        let mut waiting = entry.claims.iter().filter(|claim| claim.token.is_none());
        let front = waiting
            .find(|claim| !stands_aside(claim) && claim.ticket != own && self.is_alive(claim));
        Watched {
            front: front.map_or(0, |claim| claim.ticket),
            ms: u64::MAX,
        }
    }

    /// Asks the core, and reads nothing else unless a defect says so.
    pub(super) fn ask(
        &self,
        scenario: &Scenario,
        who: usize,
        purpose: Purpose,
        entry: &mut Entry,
        events: &mut Vec<Event>,
    ) -> Answer {
        let now = self.now(scenario);
        let policy = &scenario.policy;
        let ticket = self.people[who].ticket.unwrap_or(0);
        let evidence = |claim: &Claim| {
            let mut seen = self.evidence(scenario, claim);
            if scenario.has(Defect::ReportsWaitersAsDead) && claim.token.is_none() {
                seen.liveness_lock = LivenessLock::Released;
            }
            let aside = self.disk.claim(claim.ticket);
            if scenario.has(Defect::CountsWhoIsAway)
                && aside.is_some_and(|c| c.reservation.is_some())
            {
                seen.liveness_lock = LivenessLock::Held;
            }
            seen
        };
        let watched = scenario.unseen.then(|| self.watched(ticket, entry));
        let is_stopped = |claim: &Claim| {
            let goes_on = claim.aside.is_some() && scenario.has(Defect::ForgetsWhoGoesOn);
            let is_seen = !scenario.unseen && !scenario.has(Defect::WaitsForTheStopped);
            scenario.has(Defect::TakesTheSlowForStopped)
                || (is_seen && (goes_on || self.is_stopped(claim)))
        };
        let count_again = |entry: &mut Entry, answer: Answer| {
            let others = entry.granted().count().saturating_sub(1);
            if let Some(token) = granted(&answer).filter(|_| scenario.has(Defect::NumbersByCount))
                && let Some(own) = entry.claims.iter_mut().find(|c| c.token == Some(token))
            {
                own.slot = own.slot.and(u32::try_from(others).ok());
            }
            answer
        };
        match purpose {
            Purpose::Enter => {
                let mut request = self.request(scenario, who);
                request.terms.watched = watched;
                let entering =
                    entry.enter_seeing(policy, request, &now, evidence, is_stopped, events);
                count_again(entry, Answer::Entering(entering))
            }
            Purpose::Look if scenario.has(Defect::HoldsOnWaking) => {
                entry.last += 1;
                let token = entry.last;
                match entry.claim_mut(ticket) {
                    Some(claim) => {
                        claim.token = Some(token);
                        Answer::TryGrant(TryGrant::Granted { token })
                    }
                    None => Answer::TryGrant(TryGrant::Gone),
                }
            }
            Purpose::Look => {
                let grant = entry
                    .try_grant_seeing(policy, ticket, &now, evidence, is_stopped, watched, events);
                if scenario.has(Defect::ForgetsWhoGoesOn)
                    && let Some(before) = self.disk.claim(ticket)
                    && let Some(own) = entry.claim_mut(ticket).filter(|own| own.token.is_none())
                {
                    own.aside = before.aside;
                }
                count_again(entry, Answer::TryGrant(grant))
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
            Purpose::Reserve => {
                let owner = process(OWNER, who, self.people[who].round);
                Answer::Reserved(entry.reserve(ticket, Some(owner), GRACE_MS, &now))
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
        }
    }

    /// What holds of the claims that have to give up their places at that moment.
    fn check_displaced(&mut self, events: &[Event]) {
        for event in events {
            if let Event::Displaced { claim } = event
                && (claim.token.is_some() || !claim.queueing.yields() || claim.cancel.is_some())
            {
                self.broken = Some("only a waiter that yields is displaced, and once");
            }
        }
    }

    /// What holds of an answer at the moment at which it is given.
    fn check_answer(&mut self, scenario: &Scenario, who: usize, entry: &Entry, answer: &Answer) {
        match answer {
            Answer::Entering(Entering::Queued { behind, .. })
            | Answer::TryGrant(TryGrant::Behind(behind)) => {
                // The grace of the stopped begins anew with a holder that is found dead, which this clock
                // does not show; then the next look lets it pass.
                let has_grace = matches!(behind, Predecessor::Still { .. });
                if !has_grace && self.wakes(scenario, entry, behind) {
                    self.broken = Some("no waiter is sent to sleep behind what has ended");
                }
                let own = entered(answer).or(self.people[who].ticket).unwrap_or(0);
                let mode = scenario.scripts[who].mode;
                let counts = |claim: &Claim| {
                    self.judged_held(scenario, claim) && !self.lets_pass(scenario, claim)
                };
                let sees = !has_grace && !scenario.has(Defect::WaitsForTheStopped);
                if sees && Self::could_hold(entry, own, mode, counts) {
                    self.broken = Some("no waiter is sent to sleep that could hold");
                }
                if scenario.scripts[who].patience == Patience::AtOnce {
                    self.broken = Some("a caller that never waits is never queued");
                }
            }
            Answer::Entering(Entering::Refused(refusal))
            | Answer::TryGrant(TryGrant::Blocked(refusal)) => {
                let live = |claim: &Claim| self.is_truly_live(scenario, claim);
                let held = self.disk.claims.iter().any(live);
                if refusal.reason == Reason::Held && !held {
                    self.broken = Some("no request is refused for a lock that no claim has");
                }
                let forces = scenario.scripts[who].force != Force::No;
                if refusal.reason == Reason::StaleNeedsForce && forces {
                    self.broken = Some("a caller that brought force is not refused for want of it");
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
    fn normalise(scenario: &Scenario, entry: &mut Entry) {
        entry.history = tenure_core::History::default();
        entry.ended = None;
        for claim in &mut entry.claims {
            Self::normalise_claim(scenario, claim);
        }
    }

    fn normalise_behind(scenario: &Scenario, behind: &mut Predecessor) {
        match behind {
            Predecessor::LivenessLock { .. } | Predecessor::Turn { .. } => {}
            Predecessor::Still { behind, still } => {
                // The clock of a scenario says it all.
                (still.since_ms, still.rest_ms, still.marks) = (0, 0, false);
                Self::normalise_behind(scenario, behind);
            }
            Predecessor::Record(claim) => Self::normalise_claim(scenario, claim),
            Predecessor::AnyOf(claims) => {
                for claim in claims {
                    Self::normalise_claim(scenario, claim);
                }
            }
        }
    }

    fn normalise_claim(scenario: &Scenario, claim: &mut Claim) {
        if let Some(cancel) = &mut claim.cancel {
            cancel.by.clear();
            cancel.actor.clear();
            cancel.why.clear();
            cancel.at = Stamp::default();
        }
        claim.aside = claim.aside.map(|_| Stamp::default());
        if !scenario.is_timed() {
            claim.entered = Stamp::default();
            claim.since = claim.token.map(|_| Stamp::default());
            claim.lease.renewed = Stamp::default();
        }
    }

    /// Whether another process has the liveness lock's byte that a contender is about to take.
    pub(super) fn is_taken_by_others(&self, who: usize) -> bool {
        let ticket = self.people[who].ticket;
        let mut bytes = self.bytes.iter();
        bytes.any(|byte| Some(byte.ticket) == ticket && byte.is_taken())
    }

    /// Lets go of the byte of a contender's turn.
    pub(super) fn give_turn(&mut self, who: usize) {
        let bit = 1u8 << who;
        self.let_go_everywhere(|byte| byte.turns &= !bit);
    }

    pub(super) fn take_liveness_lock(&mut self, scenario: &Scenario, who: usize, plan: &Plan) {
        let person = &self.people[who];
        let ticket = person.ticket.expect("a claimant has a ticket");
        let waits = matches!(plan.answer, Answer::Entering(Entering::Queued { .. }));
        let has_turn = waits && person.mode != Mode::Exclusive && !scenario.is_compared();
        self.keep(ticket, |byte| {
            byte.renewers |= 1u8 << who;
            byte.turns |= u8::from(has_turn) << who;
        });
    }

    /// Writes the list. One atomic step: of a write that is cut short, the old slot is left.
    pub(super) fn commit(&mut self, scenario: &Scenario, who: usize, plan: &Plan) {
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
            let here = claim.token.is_none() && claim.reservation.is_none();
            if gone && other && here && self.is_alive(claim) {
                self.broken = Some("no live waiter is thrown out of the queue");
            }
        }
        self.disk = plan.entry.clone();
        if let Some(ticket) = entered(&plan.answer) {
            self.people[who].ticket = Some(ticket);
        }
        if let Some(token) = granted(&plan.answer) {
            self.grant(scenario, who, token);
        }
        self.people[who].at = if scenario.has(Defect::TakesLivenessAfterCommit) && admits(plan) {
            At::TakesLiveness(Rc::new(plan.clone()))
        } else if scenario.has(Defect::UnlocksBeforeCommit) {
            self.after(scenario, who, plan.clone());
            return;
        } else {
            At::Unlock(Rc::new(plan.clone()))
        };
    }

    fn grant(&mut self, scenario: &Scenario, who: usize, token: u64) {
        if token <= self.top {
            self.broken = Some("tokens rise in the order of the grants");
        }
        self.top = self.top.max(token);
        // A waiter in front may be about to hold as well, and still can.
        let own = self.people[who].ticket;
        for claim in &self.disk.claims {
            let waits = Some(claim.ticket) < own && claim.token.is_none();
            let live = |claim: &Claim| self.is_truly_live(scenario, claim);
            // A waiter that was passed, as it may be, can have gone on since that was decided. Force goes
            // before waiters.
            if waits
                && claim.aside.is_none()
                && scenario.scripts[who].force == Force::No
                && !stands_aside(claim)
                && live(claim)
                && !Self::could_hold(&self.disk, claim.ticket, claim.mode, live)
            {
                self.broken = Some("the first to come is the first to hold");
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
    pub(super) fn after(&mut self, scenario: &Scenario, who: usize, plan: Plan) {
        if scenario.has(Defect::PutsOutBeforeLeavingAndWakesWithAStaleList) {
            self.people[who].seen = Some(plan.entry);
        }
        match plan.answer {
            Answer::Entering(entering) => self.feed(scenario, who, Input::Entered(entering)),
            Answer::TryGrant(TryGrant::Granted { token })
                if self.keeps_turn(self.people[who].ticket.unwrap_or(0))
                    && !scenario.has(Defect::KeepsItsTurn) =>
            {
                self.people[who].at = At::GiveTurn(token);
            }
            Answer::TryGrant(grant) => self.feed(scenario, who, Input::Tried(grant)),
            Answer::Reserved(true) => {
                self.people[who].reserved = true;
                self.people[who].at = At::PutOut;
            }
            Answer::Reserved(false) => {
                self.people[who].giving_up = None;
                self.feed(scenario, who, Input::Woken);
            }
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
    pub(super) fn feed(&mut self, scenario: &Scenario, who: usize, input: Input) {
        // The attempt itself cannot be copied with the state, so it is led there again.
        let (mut attempt, _enter) = Attempt::start();
        let person = &mut self.people[who];
        if scenario.scripts[who].place != Place::Left && !person.returned {
            attempt = attempt.keeping_place();
        }
        if let Some(ticket) = person.ticket {
            let behind = Predecessor::LivenessLock { ticket: 0 };
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
            Effect::Reserve => {
                person.giving_up = Some(input);
                self.people[who].at = At::Guard(Purpose::Reserve);
            }
            Effect::Finish(Outcome::TimedOut) if person.reserved => self.go_away(who),
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
                | Outcome::Superseded { .. }
                | Outcome::NotKept,
            ) => self.end_round(scenario, who),
        }
    }

    /// The process has ended and its place is kept.
    fn go_away(&mut self, who: usize) {
        let person = &mut self.people[who];
        person.alive = false;
        person.reserved = false;
        person.giving_up = None;
        person.at = At::Away;
    }

    pub(super) fn begin_release(&mut self, scenario: &Scenario, who: usize) {
        self.people[who].inside = false;
        self.people[who].at = if scenario.has(Defect::PutsOutBeforeLeaving)
            || scenario.has(Defect::PutsOutBeforeLeavingAndWakesWithAStaleList)
        {
            At::PutOut
        } else {
            At::Guard(Purpose::Release)
        };
    }

    pub(super) fn end_command(&mut self, who: usize) {
        let bit = 1u8 << who;
        self.people[who].command = Command::Ended;
        self.let_go_everywhere(|byte| byte.commands &= !bit);
    }

    pub(super) fn end_round(&mut self, scenario: &Scenario, who: usize) {
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
            reserved: false,
            returned: false,
            returning: false,
            inside: false,
            stopped: false,
            was_stopped: false,
            exempt: false,
            seen: None,
            mode: script.mode,
        };
    }

    /// The process ends at once. The kernel lets go of all that it kept; a command lives on.
    pub(super) fn crash(&mut self, scenario: &Scenario, who: usize) {
        let bit = 1u8 << who;
        self.crashes -= 1;
        if self.guard == u8::try_from(who).ok() {
            self.guard = None;
        }
        if scenario.has(Defect::WritesInPlace) && matches!(self.people[who].at, At::Commit(_)) {
            self.disk = Rc::default();
        }
        self.let_go_everywhere(|byte| {
            byte.renewers &= !bit;
            byte.wakers &= !bit;
            byte.turns &= !bit;
        });
        let own = self.people[who].ticket.and_then(|t| self.disk.claim(t));
        if own.is_some_and(|claim| claim.reservation.is_some()) {
            self.go_away(who);
            return;
        }
        let person = &mut self.people[who];
        person.alive = false;
        person.stopped = false;
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

pub(super) fn entered(answer: &Answer) -> Option<u64> {
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
            ..
        } => Some(claim.ticket),
        _ => None,
    });
    stolen.collect()
}
