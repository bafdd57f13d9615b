//! How contenders commit where no process keeps a guard: as a store on servers does it.
//!
//! A contender reads what its change is about and lets the core decide. What it then has in hand is the
//! difference: the claims that it alters, and what that rests on. At the commit the store compares. If
//! another commit altered one of those claims, the contender reads again and decides anew; else the
//! difference becomes part of the list as it is by then, and new tickets and tokens are drawn.
//!
//! A plan is set back by the commit that overtakes it, and not when it comes to its own commit: it could
//! never succeed any more, for a store compares versions and not contents.
//!
//! Three liberties of a real store are not taken, or are taken to the full, so that the model allows more
//! than any store does. A renewal that leaves everything as it was overtakes no plan. No contender compares
//! the history, which no decision looks at. A claim that has gone overtakes only plans that alter it.

use super::transitions::{admits, entered, granted};
use super::{Answer, At, Plan, Purpose, World};
use crate::scenario::{Defect, Scenario};
use std::rc::Rc;
use tenure_core::{Claim, Entering, Entry, Event, Mode, Renewal, Request, RestsOn, TryGrant};

/// The ticket of a claim that is not committed yet. The store draws the final one.
const NEW_TICKET: u64 = u64::MAX - 1;

/// The token of a grant that is not committed yet.
const NEW_TOKEN: u64 = u64::MAX;

/// Under which conditions a plan is committed. Its list has the claims that it alters or makes, and no
/// others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Conditions {
    pub(super) rests_on: RestsOn,
    /// The claim that asks; a new one stands behind all others.
    pub(super) own: u64,
    /// The claims that are taken out.
    pub(super) takes_out: Vec<u64>,
    /// The lock is removed with all its claims.
    pub(super) removes: bool,
}

/// What the core decided on a list that other contenders may change.
pub(super) struct Decided<'a> {
    /// What was shown of the list.
    pub(super) shown: &'a Entry,
    /// What the core made of it.
    pub(super) entry: Entry,
    pub(super) answer: Answer,
    pub(super) events: &'a [Event],
    pub(super) exempt: Vec<u64>,
}

/// What a commit has done to the list.
struct Touched {
    /// The claims that it altered or made.
    written: Vec<u64>,
    /// The claims that it took out.
    taken_out: Vec<u64>,
}

impl World {
    /// What a contender is shown, which is the least that a store may show: to a plain newcomer the last
    /// claim, if it queues behind that; of a waiting claim's turn the claims before it and those that
    /// hold; of a change to the own claim that alone.
    pub(super) fn shown(&self, scenario: &Scenario, who: usize, purpose: Purpose) -> Entry {
        let mut shown = Entry::clone(&self.disk);
        if scenario.is_compared() {
            let own = self.people[who].ticket.unwrap_or(0);
            match purpose {
                Purpose::ReleaseById | Purpose::Clean => {}
                Purpose::Enter => {
                    let request = self.request(scenario, who);
                    let mut end = shown.clone();
                    end.claims.drain(..end.claims.len().saturating_sub(1));
                    let last = end.claims.last().map(|claim| claim.ticket);
                    let mut asked = end.clone();
                    let answer = self.ask(scenario, who, purpose, &mut asked, &mut Vec::new());
                    let queues = matches!(&answer, Answer::Entering(e) if e.queues_behind(last));
                    if queues && request.is_plain() && request.terms.mode == Mode::Exclusive {
                        shown = end;
                    }
                }
                Purpose::Look => {
                    (shown.claims).retain(|claim| claim.ticket <= own || claim.token.is_some());
                }
                Purpose::Leave
                | Purpose::Reserve
                | Purpose::Name
                | Purpose::Renew
                | Purpose::Release => shown.claims.retain(|claim| claim.ticket == own),
            }
        }
        shown
    }

    /// What a change rests on; `None` if there is nothing to write.
    fn rests_on(
        &self,
        scenario: &Scenario,
        who: usize,
        purpose: Purpose,
        decided: &Decided<'_>,
    ) -> Option<RestsOn> {
        let Decided { shown, events, .. } = *decided;
        let own = self.people[who].ticket.and_then(|t| shown.claim(t));
        let was_passed = own.is_some_and(Claim::was_passed);
        let rule = match (purpose, &decided.answer) {
            (Purpose::Enter, Answer::Entering(entering)) => {
                let last = shown.claims.last().map(|claim| claim.ticket);
                let request = self.request(scenario, who);
                let rule = RestsOn::entering(&request, entering, events, last)?;
                narrower_entering(scenario, &request, entering, rule)
            }
            (Purpose::Look, Answer::TryGrant(grant)) => {
                let mode = scenario.scripts[who].mode;
                let rule = RestsOn::looking(mode, was_passed, grant, events)?;
                narrower_look(scenario, was_passed, mode, rule)
            }
            (Purpose::Clean, _) => {
                let gone = |claim: &&Claim| decided.entry.claim(claim.ticket).is_none();
                let swept: Vec<Claim> = shown.claims.iter().filter(gone).cloned().collect();
                let rule = RestsOn::sweeping(&swept, decided.entry.claims.is_empty())?;
                if scenario.has(Defect::RemovesRestOnNothing) {
                    RestsOn::Nothing
                } else {
                    rule
                }
            }
            (Purpose::Renew, Answer::Renewal(Renewal::Lost)) => return None,
            (Purpose::Renew, _) => RestsOn::Nothing,
            (_, _) => (decided.entry != *shown).then_some(RestsOn::Nothing)?,
        };
        Some(rule)
    }

    /// Makes a plan of what was decided, if there is anything to write.
    pub(super) fn plan_to_compare(
        &self,
        scenario: &Scenario,
        who: usize,
        purpose: Purpose,
        mut decided: Decided<'_>,
    ) -> Plan {
        let rests_on = self.rests_on(scenario, who, purpose, &decided);
        let shown = decided.shown;
        let removes = purpose == Purpose::Clean && decided.entry.claims.is_empty();
        let gone = |claim: &&Claim| decided.entry.claim(claim.ticket).is_none();
        let gone = shown.claims.iter().filter(gone);
        let takes_out: Vec<u64> = gone.map(|claim| claim.ticket).collect();
        let mut altered = Vec::new();
        for claim in std::mem::take(&mut decided.entry.claims) {
            let before = shown.claim(claim.ticket);
            if before != Some(&claim) {
                altered.push(provisional(before, claim));
            }
        }
        let own = match &mut decided.answer {
            Answer::Entering(Entering::Granted { ticket, token }) => {
                *token = NEW_TOKEN;
                provisional_ticket(shown, ticket)
            }
            Answer::Entering(Entering::Queued { ticket, .. }) => provisional_ticket(shown, ticket),
            Answer::TryGrant(TryGrant::Granted { token }) => {
                *token = NEW_TOKEN;
                self.people[who].ticket.unwrap_or(0)
            }
            _ => self.people[who].ticket.unwrap_or(0),
        };
        Plan {
            purpose,
            changed: rests_on.is_some(),
            entry: Rc::new(Entry {
                claims: altered,
                ..Entry::default()
            }),
            answer: decided.answer,
            exempt: decided.exempt,
            conditions: Some(Conditions {
                rests_on: rests_on.unwrap_or(RestsOn::Nothing),
                own,
                takes_out,
                removes,
            }),
        }
    }

    /// Commits a plan that no other has overtaken, and overtakes others. One atomic step, in which the
    /// claim's liveness lock is held as well.
    pub(super) fn compare_and_commit(&mut self, scenario: &Scenario, who: usize, plan: &Plan) {
        let Some(conditions) = &plan.conditions else {
            return;
        };
        let mut entry = Entry::clone(&self.disk);
        entry
            .claims
            .retain(|claim| !conditions.removes && !conditions.takes_out.contains(&claim.ticket));
        let mut written = Vec::new();
        let mut answer = plan.answer.clone();
        for claim in &plan.entry.claims {
            let mut claim = claim.clone();
            let place = entry.position(claim.ticket);
            let is_own = claim.ticket == conditions.own;
            if claim.ticket == NEW_TICKET {
                entry.last += 1;
                claim.ticket = entry.last;
            }
            if claim.token == Some(NEW_TOKEN) {
                entry.last += 1;
                claim.token = Some(entry.last);
            }
            if is_own {
                settle(&mut answer, &claim);
            }
            written.push(claim.ticket);
            match place {
                Some(place) => entry.claims[place] = claim,
                None => entry.claims.push(claim),
            }
        }
        let taken_out = conditions.takes_out.clone();
        let done = Plan {
            entry: Rc::new(entry),
            answer,
            conditions: None,
            ..plan.clone()
        };
        if admits(&done) {
            self.people[who].ticket = entered(&done.answer);
            self.take_liveness_lock(scenario, who, &done);
        }
        if plan.purpose == Purpose::Enter {
            self.people[who].returning = false;
        }
        self.commit(scenario, who, &done);
        self.overtake(who, &Touched { written, taken_out });
        self.after(scenario, who, done);
    }

    /// Sets those back whose plans rest on what was touched.
    fn overtake(&mut self, by: usize, touched: &Touched) {
        for (who, person) in self.people.iter_mut().enumerate() {
            let At::Commit(plan) = &person.at else {
                continue;
            };
            if who != by && plan.is_overtaken(touched) {
                person.at = At::Guard(plan.purpose);
            }
        }
    }
}

/// How many commits of others come between a decision and its own commit where that is tried out.
const COMMITS_BETWEEN: u8 = 2;

/// What a change leaves out never changes its answer. Tried out in every state: each claim that would be
/// granted if its caller looked now is granted still, and rightly, after every commit of others that
/// leaves as it was what the grant rests on. A caller may look at any time, for a wait may end early.
impl World {
    pub(crate) fn violation_of_scopes(&self, scenario: &Scenario) -> Option<&'static str> {
        if !scenario.looks_ahead {
            return None;
        }
        (0..self.people.len()).find_map(|who| {
            let person = &self.people[who];
            let purpose = match person.at {
                At::Sleep(_) | At::FallAsleep(_) => Purpose::Look,
                At::Guard(purpose @ (Purpose::Look | Purpose::Enter)) => purpose,
                _ => return None,
            };
            if person.stopped {
                return None;
            }
            let mut decided = self.clone();
            decided.decide(scenario, who, purpose);
            let plans = decided.plans_to_hold(who);
            plans.then(|| decided.stays_right(scenario, who, purpose, COMMITS_BETWEEN))?
        })
    }

    /// Whether a contender is about to commit that it holds.
    fn plans_to_hold(&self, who: usize) -> bool {
        matches!(&self.people[who].at, At::Commit(plan) if granted(&plan.answer).is_some())
    }

    /// Looks whether a plan to hold is right, now and after some commits of others.
    fn stays_right(
        &self,
        scenario: &Scenario,
        who: usize,
        purpose: Purpose,
        commits: u8,
    ) -> Option<&'static str> {
        if !self.plans_to_hold(who) {
            // The plan was set back, and will be decided anew.
            return None;
        }
        let mut again = self.clone();
        again.decide(scenario, who, purpose);
        if !again.plans_to_hold(who) {
            return Some("an answer depends on nothing but what it rests on");
        }
        let mut holds = self.clone();
        holds.commit_now(scenario, who);
        if let Some(invariant) = holds.violation() {
            return Some(invariant);
        }
        if commits == 0 {
            return None;
        }
        (0..self.people.len()).find_map(|other| {
            let mut next = self.clone();
            let person = &next.people[other];
            if other == who || !person.alive || person.stopped {
                return None;
            }
            if let At::Guard(purpose) = person.at {
                next.decide(scenario, other, purpose);
            }
            let commits_now = matches!(next.people[other].at, At::Commit(_));
            commits_now.then(|| {
                next.commit_now(scenario, other);
                next.stays_right(scenario, who, purpose, commits - 1)
            })?
        })
    }

    fn commit_now(&mut self, scenario: &Scenario, who: usize) {
        if let At::Commit(plan) = self.people[who].at.clone() {
            self.compare_and_commit(scenario, who, &plan);
        }
    }
}

impl Plan {
    fn is_overtaken(&self, touched: &Touched) -> bool {
        let Some(conditions) = &self.conditions else {
            return false;
        };
        let alters = |ticket: &u64| {
            conditions.takes_out.contains(ticket) || self.entry.claim(*ticket).is_some()
        };
        let rests_on = |ticket: &u64| match conditions.rests_on {
            RestsOn::Nothing => false,
            RestsOn::Before => *ticket <= conditions.own,
            RestsOn::All => true,
        };
        touched.taken_out.iter().any(alters)
            || touched.written.iter().any(|t| alters(t) || rests_on(t))
    }
}

/// A claim as it stands in a plan: with numbers that say only that they are new.
fn provisional(before: Option<&Claim>, mut claim: Claim) -> Claim {
    if claim.token.is_some() && before.is_none_or(|before| before.token.is_none()) {
        claim.token = Some(NEW_TOKEN);
    }
    if before.is_none() {
        claim.ticket = NEW_TICKET;
    }
    claim
}

fn provisional_ticket(shown: &Entry, ticket: &mut u64) -> u64 {
    if shown.claim(*ticket).is_none() {
        *ticket = NEW_TICKET;
    }
    *ticket
}

/// Puts the final numbers of a claim into the answer to its caller.
fn settle(answer: &mut Answer, claim: &Claim) {
    match answer {
        Answer::Entering(Entering::Granted { ticket, token }) => {
            *ticket = claim.ticket;
            *token = claim.token.unwrap_or(*token);
        }
        Answer::Entering(Entering::Queued { ticket, .. }) => *ticket = claim.ticket,
        Answer::TryGrant(TryGrant::Granted { token }) => *token = claim.token.unwrap_or(*token),
        _ => {}
    }
}

/// What entering rests on with a defect.
fn narrower_entering(
    scenario: &Scenario,
    request: &Request,
    entering: &Entering,
    rule: RestsOn,
) -> RestsOn {
    let is_granted = matches!(entering, Entering::Granted { .. });
    let is_queued = matches!(entering, Entering::Queued { .. });
    let is_back = request.terms.kept.is_some();
    if (scenario.has(Defect::GrantsAtOnceRestOnNothing) && is_granted)
        || (scenario.has(Defect::QueuesRestOnNothing) && is_queued)
    {
        RestsOn::Nothing
    } else if scenario.has(Defect::ReturnsRestOnBefore) && is_back {
        RestsOn::Before
    } else {
        rule
    }
}

/// What a look rests on with a defect.
fn narrower_look(scenario: &Scenario, was_passed: bool, mode: Mode, rule: RestsOn) -> RestsOn {
    let beside = mode != Mode::Exclusive;
    if scenario.has(Defect::LooksRestOnNothing) {
        RestsOn::Nothing
    } else if (scenario.has(Defect::LooksOfThePassedRestOnBefore) && was_passed)
        || (scenario.has(Defect::LooksBesideOthersRestOnBefore) && beside)
    {
        RestsOn::Before
    } else {
        rule
    }
}
