//! What the timeline shows: a row for each lock, with holds, waits and incidents, and the sums that answer an incident's
//! questions.
//!
//! Every number is calculated here, once. `text`, `svg` and `page` put them on a screen.

mod document;
pub(crate) mod page;
pub(crate) mod svg;
pub(crate) mod text;

use super::clean;
use super::width::cut;
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use tenure_engine::audit::{
    EventName, HoldOutcome, Incident, Participant, Passage, PastHold, PastWait, WaitOutcome,
};
use tenure_os::process::actor_name;

/// How many of the longest, and of those that did something most often, are named.
const NAMED: usize = 10;

/// How many lanes are told apart. Who draws fewer says how many bars are left out.
const LANES_MAX: usize = 1_000;

/// How many columns of a name are shown.
const NAME_COLUMNS: usize = 200;

/// How long behind the release of a lock its line is dated at most. The next holder's grant may be dated before that.
const DATED_LATE_MS: u64 = 1_000;

/// A hold in its row.
#[derive(Debug)]
pub(crate) struct HoldBar {
    pub(crate) hold: PastHold,
    /// Holds beside each other have lanes of their own.
    pub(crate) lane: usize,
    /// How long others waited for the lock during the hold, all of them together.
    pub(crate) blocked_ms: u64,
    /// How many others waited for the lock during the hold.
    pub(crate) blocked: usize,
}

/// A wait in its row.
#[derive(Debug)]
pub(crate) struct WaitBar {
    pub(crate) wait: PastWait,
    pub(crate) lane: usize,
}

/// What happened to a lock.
#[derive(Debug, Default)]
pub(crate) struct LockRow {
    lock: String,
    path: Option<String>,
    /// What people are shown: the name, or the path that the lock stands for.
    pub(crate) name: String,
    pub(crate) holds: Vec<HoldBar>,
    pub(crate) waits: Vec<WaitBar>,
    pub(crate) incidents: Vec<Incident>,
    /// How many lanes the holds have, and the waits.
    pub(crate) hold_lanes: usize,
    pub(crate) wait_lanes: usize,
    /// Holders that others waited for: how long, and for how many holds.
    blockers: BTreeMap<String, (u64, usize)>,
}

/// What is shown.
#[derive(Debug)]
pub(crate) struct Chart {
    /// The time that was asked for, in milliseconds since the Unix epoch; of what was not, all that there is.
    pub(crate) since_ms: u64,
    pub(crate) until_ms: u64,
    /// The part of it that a picture draws: from a moment before the first event to a moment behind the last one.
    pub(crate) axis_ms: (u64, u64),
    /// Locks, those for which callers waited longest first.
    pub(crate) locks: Vec<LockRow>,
    pub(crate) summary: Summary,
}

/// The answers to an incident's questions.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Summary {
    pub(crate) counts: Counts,
    pub(crate) longest_waits: Vec<LongWait>,
    pub(crate) longest_holds: Vec<LongHold>,
    pub(crate) blocked_most: Vec<Blocker>,
    pub(crate) refusals: Vec<Refusals>,
}

/// How often things happened.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    pub(crate) locks: usize,
    pub(crate) holds: usize,
    /// Callers that got their lock after a wait.
    pub(crate) waits: usize,
    pub(crate) waited_ms: u64,
    pub(crate) refused: usize,
    pub(crate) skipped: usize,
    /// Holders and waiters that gave up their place.
    pub(crate) superseded: usize,
    /// Locks that callers took from holders that were gone.
    pub(crate) left: usize,
    /// Locks that callers took by force.
    pub(crate) taken_over: usize,
    pub(crate) lost: usize,
    /// Holds that no event has ended.
    pub(crate) open: usize,
}

/// A caller that waited.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LongWait {
    pub(crate) lock: String,
    pub(crate) who: String,
    #[serde(rename = "since", serialize_with = "as_instant")]
    pub(crate) since_ms: u64,
    pub(crate) waited_ms: u64,
    pub(crate) behind: Option<String>,
    pub(crate) outcome: &'static str,
}

/// A hold, and what it did to others.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LongHold {
    pub(crate) lock: String,
    pub(crate) who: String,
    #[serde(rename = "since", serialize_with = "as_known_instant")]
    pub(crate) since_ms: Option<u64>,
    /// How long it took; `None` for one without a recorded end.
    pub(crate) held_ms: Option<u64>,
    pub(crate) blocked_ms: u64,
    pub(crate) outcome: &'static str,
}

/// A holder, by all of its holds.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Blocker {
    pub(crate) who: String,
    /// How long others waited while it had the lock, all of them together. Of several holds at once each wait counts once.
    pub(crate) blocked_ms: u64,
    /// How many of its holds others waited for.
    pub(crate) holds: usize,
    /// The lock that others waited for longest.
    pub(crate) lock: String,
}

/// A caller that was refused, or whose run was skipped.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Refusals {
    pub(crate) who: String,
    pub(crate) refused: usize,
    pub(crate) skipped: usize,
    /// The lock that it was refused most often.
    pub(crate) lock: String,
}

/// The passages that are shown.
pub(crate) struct Wanted<'a> {
    pub(crate) since_ms: Option<u64>,
    pub(crate) until_ms: Option<u64>,
    /// Whether a passage of these callers is shown.
    pub(crate) is_of: &'a dyn Fn(&Participant) -> bool,
}

impl Chart {
    /// Lays passages out. A hold or a wait is shown if a part of it lies in the time that is wanted.
    pub(crate) fn of(
        passages: impl IntoIterator<Item = Passage>,
        wanted: &Wanted<'_>,
        now_ms: u64,
    ) -> Self {
        let mut locks = BTreeMap::<String, LockRow>::new();
        let mut actors = Actors::default();
        for mut passage in passages {
            let (first, last) = extent(&passage);
            if last.is_some_and(|last| wanted.since_ms.is_some_and(|since| last < since))
                || wanted.until_ms.is_some_and(|until| first > until)
            {
                continue;
            }
            let name = match &passage {
                Passage::Hold(hold) => &hold.lock,
                Passage::Wait(wait) => &wait.held_lock,
                Passage::Incident(incident) => &incident.lock,
            };
            let row = match locks.get_mut(name) {
                Some(row) => row,
                None => locks.entry(name.clone()).or_default(),
            };
            actors.name_all(&mut passage);
            row.take(passage);
        }
        for (name, row) in &mut locks {
            name.clone_into(&mut row.lock);
            row.name = shown(row.path.as_ref().unwrap_or(name));
            // Callers that are not shown count in what a holder has done to others.
            let waiting = Waiting::of(&row.waits);
            row.trim();
            row.keep(wanted.is_of);
            row.weigh(&waiting, now_ms);
            row.lay_out();
        }
        let mut locks: Vec<_> = locks.into_values().filter(|row| !row.is_empty()).collect();
        locks.sort_by_cached_key(|row| (Reverse(row.waited_ms()), row.name.clone()));
        let (since_ms, until_ms) = window(&locks, wanted, now_ms);
        Self {
            since_ms,
            until_ms,
            axis_ms: axis(&locks, (since_ms, until_ms)),
            summary: Summary::of(&locks),
            locks,
        }
    }

    /// How many bars there are.
    pub(crate) fn bars(&self) -> usize {
        self.locks.iter().map(LockRow::bars).sum()
    }
}

/// Names of actors, each looked up once.
#[derive(Default)]
struct Actors(BTreeMap<String, String>);

impl Actors {
    /// Gives callers that are known by a number their names.
    fn name_all(&mut self, passage: &mut Passage) {
        match passage {
            Passage::Hold(hold) => self.name(&mut hold.by),
            Passage::Wait(wait) => {
                self.name(&mut wait.by);
                wait.behind.iter_mut().for_each(|behind| self.name(behind));
            }
            Passage::Incident(incident) => {
                self.name(&mut incident.by);
                incident.whom.iter_mut().for_each(|whom| self.name(whom));
            }
        }
    }

    fn name(&mut self, by: &mut Participant) {
        if let Some(name) = self.0.get(&by.actor) {
            name.clone_into(&mut by.actor);
            return;
        }
        let name = actor_name(&by.actor);
        let number = std::mem::replace(&mut by.actor, name.clone());
        self.0.insert(number, name);
    }
}

/// The first and the last instant of a passage; no last one for a hold that is open.
fn extent(passage: &Passage) -> (u64, Option<u64>) {
    match passage {
        Passage::Hold(hold) => (
            hold.since_ms().or(hold.until_ms).unwrap_or(0),
            hold.until_ms,
        ),
        Passage::Wait(wait) => (wait.since_ms, Some(wait.until_ms)),
        Passage::Incident(incident) => (incident.at_ms, Some(incident.at_ms)),
    }
}

/// The time that is drawn: what was asked for, else all that there is, until now if a hold is open.
fn window(locks: &[LockRow], wanted: &Wanted<'_>, now_ms: u64) -> (u64, u64) {
    let holds = || locks.iter().flat_map(|row| &row.holds);
    let waits = || locks.iter().flat_map(|row| &row.waits);
    let incidents = || locks.iter().flat_map(|row| &row.incidents);
    let begins = holds().filter_map(|bar| bar.hold.since_ms().or(bar.hold.until_ms));
    let begins = begins.chain(waits().map(|bar| bar.wait.since_ms));
    let first = begins
        .chain(incidents().map(|incident| incident.at_ms))
        .min();
    let ends = holds().map(|bar| bar.hold.until_ms.unwrap_or(now_ms));
    let ends = ends.chain(waits().map(|bar| bar.wait.until_ms));
    let last = ends.chain(incidents().map(|incident| incident.at_ms)).max();
    let since = wanted.since_ms.or(first).unwrap_or(now_ms);
    let until = wanted.until_ms.map(|until| until.min(now_ms.max(since)));
    (since, until.or(last).unwrap_or(now_ms).max(since))
}

/// The part of the time asked for in which something happened, with a margin. Of a hold without an end it has a tenth more.
fn axis(locks: &[LockRow], (since, until): (u64, u64)) -> (u64, u64) {
    let (mut first, mut last, mut is_open) = (u64::MAX, 0, false);
    let mut see = |at: u64| {
        let at = at.clamp(since, until);
        (first, last) = (first.min(at), last.max(at));
    };
    for row in locks {
        for bar in &row.holds {
            is_open |= bar.hold.until_ms.is_none();
            let ends = [bar.hold.since_ms(), bar.hold.until_ms];
            ends.into_iter().flatten().for_each(&mut see);
        }
        for bar in &row.waits {
            see(bar.wait.since_ms);
            see(bar.wait.until_ms);
        }
        row.incidents
            .iter()
            .for_each(|incident| see(incident.at_ms));
    }
    if first > last || (is_open && first == last) {
        return (first.clamp(since, until), until);
    }
    let span = last - first;
    let (before, behind) = (span / 100, if is_open { span / 10 } else { span / 100 });
    (
        first.saturating_sub(before).max(since),
        last.saturating_add(behind).min(until),
    )
}

impl LockRow {
    fn take(&mut self, passage: Passage) {
        let path = match &passage {
            Passage::Hold(hold) => hold.path.as_ref(),
            Passage::Wait(wait) => wait.path.as_ref(),
            Passage::Incident(_) => None,
        };
        if self.path.is_none() {
            self.path = path.cloned();
        }
        match passage {
            Passage::Hold(hold) => self.holds.push(HoldBar {
                hold,
                lane: 0,
                blocked_ms: 0,
                blocked: 0,
            }),
            Passage::Wait(wait) => self.waits.push(WaitBar { wait, lane: 0 }),
            Passage::Incident(incident) => self.incidents.push(incident),
        }
    }

    fn is_empty(&self) -> bool {
        self.bars() == 0
    }

    pub(crate) fn bars(&self) -> usize {
        self.holds.len() + self.waits.len() + self.incidents.len()
    }

    pub(crate) fn waited_ms(&self) -> u64 {
        self.waits.iter().map(|bar| bar.wait.waited_ms()).sum()
    }

    /// Sorts holds by their beginning, and ends those that nobody can hold beside where the next one begins, if a line is
    /// only dated late.
    fn trim(&mut self) {
        let begin = |bar: &HoldBar| bar.hold.since_ms().unwrap_or(0);
        self.holds.sort_by_key(begin);
        for at in 1..self.holds.len() {
            let (before, rest) = self.holds.split_at_mut(at);
            let (Some(last), Some(next)) = (before.last_mut(), rest.first()) else {
                continue;
            };
            let (since, is_alone) = (begin(next), last.hold.mode.is_none());
            if let Some(until) = &mut last.hold.until_ms
                && is_alone
                && (since..since.saturating_add(DATED_LATE_MS)).contains(until)
                && next.hold.mode.is_none()
            {
                *until = since;
            }
        }
    }

    /// Finds out what each hold, and each holder, has done to others.
    fn weigh(&mut self, waiting: &Waiting, now_ms: u64) {
        let mut counted = BTreeMap::<String, u64>::new();
        for bar in &mut self.holds {
            let until = bar.hold.until_ms.unwrap_or(now_ms);
            let since = bar.hold.since_ms().unwrap_or(until);
            (bar.blocked_ms, bar.blocked) = waiting.between(since, until);
            if bar.blocked_ms == 0 {
                continue;
            }
            // Up to here, the waits behind this holder are counted.
            let who = who(&bar.hold.by);
            let counted = counted.entry(who.clone()).or_default();
            let (blocked_ms, _) = waiting.between(since.max(*counted), until);
            *counted = until.max(*counted);
            let blocker = self.blockers.entry(who).or_default();
            blocker.0 += blocked_ms;
            blocker.1 += 1;
        }
    }

    /// Leaves out callers that are not wanted.
    fn keep(&mut self, is_of: &dyn Fn(&Participant) -> bool) {
        self.holds.retain(|bar| is_of(&bar.hold.by));
        self.waits.retain(|bar| is_of(&bar.wait.by));
        self.incidents
            .retain(|incident| is_of(&incident.by) || incident.whom.iter().any(is_of));
    }

    /// Sorts by time, and gives what stands beside each other lanes of its own.
    fn lay_out(&mut self) {
        let begin = |hold: &PastHold| hold.since_ms().unwrap_or(0);
        self.waits
            .sort_by_key(|bar| (bar.wait.since_ms, bar.wait.until_ms));
        self.incidents.sort_by_key(|incident| incident.at_ms);
        let mut lanes = Lanes::default();
        for bar in &mut self.holds {
            bar.lane = lanes.take(begin(&bar.hold), bar.hold.until_ms.unwrap_or(u64::MAX));
        }
        self.hold_lanes = lanes.ends.len();
        let mut lanes = Lanes::default();
        for bar in &mut self.waits {
            bar.lane = lanes.take(bar.wait.since_ms, bar.wait.until_ms);
        }
        self.wait_lanes = lanes.ends.len();
    }
}

/// Lanes of a row, by when the last bar in each ends.
#[derive(Default)]
struct Lanes {
    ends: Vec<u64>,
}

impl Lanes {
    /// The first lane that has room.
    fn take(&mut self, since: u64, until: u64) -> usize {
        let lane = self.ends.iter().position(|end| *end <= since);
        let lane = lane.unwrap_or_else(|| {
            if self.ends.len() < LANES_MAX {
                self.ends.push(0);
            }
            self.ends.len() - 1
        });
        if let Some(end) = self.ends.get_mut(lane) {
            *end = until;
        }
        lane
    }
}

/// How many callers waited for a lock, at every instant.
struct Waiting {
    begins: Vec<u64>,
    ends: Vec<u64>,
    /// Where the number changes, the number from there on, and how long all had waited until then.
    steps: Vec<(u64, u64, u64)>,
}

impl Waiting {
    fn of(waits: &[WaitBar]) -> Self {
        let waits = waits.iter().map(|bar| &bar.wait);
        let waits: Vec<_> = waits.filter(|wait| wait.waited_ms() > 0).collect();
        let mut begins: Vec<_> = waits.iter().map(|wait| wait.since_ms).collect();
        let mut ends: Vec<_> = waits.iter().map(|wait| wait.until_ms).collect();
        begins.sort_unstable();
        ends.sort_unstable();
        let changes = begins.iter().map(|at| (*at, true));
        let mut changes: Vec<_> = changes.chain(ends.iter().map(|at| (*at, false))).collect();
        changes.sort_unstable();
        let mut steps = Vec::new();
        let (mut count, mut total, mut last) = (0_u64, 0_u64, 0);
        for (at, begins) in changes {
            total = total.saturating_add(count.saturating_mul(at - last));
            count = if begins {
                count + 1
            } else {
                count.saturating_sub(1)
            };
            last = at;
            steps.push((at, count, total));
        }
        Self {
            begins,
            ends,
            steps,
        }
    }

    /// How long all had waited until an instant.
    fn until(&self, at: u64) -> u64 {
        let after = self.steps.partition_point(|(step, _, _)| *step <= at);
        let step = after.checked_sub(1).and_then(|step| self.steps.get(step));
        step.map_or(0, |(step, count, total)| {
            total.saturating_add(count.saturating_mul(at - step))
        })
    }

    /// How long callers waited between two instants, all together, and how many callers that were.
    fn between(&self, since: u64, until: u64) -> (u64, usize) {
        let begun = self.begins.partition_point(|begin| *begin < until);
        let ended = self.ends.partition_point(|end| *end <= since);
        let waited = self.until(until).saturating_sub(self.until(since));
        (waited, begun.saturating_sub(ended))
    }
}

impl Summary {
    fn of(locks: &[LockRow]) -> Self {
        let mut counts = Counts {
            locks: locks.len(),
            ..Counts::default()
        };
        let mut longest_waits = Vec::new();
        let mut longest_holds = Vec::new();
        let mut blockers = BTreeMap::<String, (Blocker, u64)>::new();
        let mut refusals = BTreeMap::<String, (Refusals, BTreeMap<&str, usize>)>::new();
        for row in locks {
            for bar in &row.holds {
                counts.holds += 1;
                counts.open += usize::from(bar.hold.outcome == HoldOutcome::Open);
                let who = who(&bar.hold.by);
                longest_holds.push(LongHold {
                    lock: row.name.clone(),
                    who,
                    since_ms: bar.hold.since_ms(),
                    held_ms: bar.hold.held_ms(),
                    blocked_ms: bar.blocked_ms,
                    outcome: bar.hold.outcome.as_str(),
                });
            }
            for (who, (blocked_ms, holds)) in &row.blockers {
                let (blocker, most) = blockers.entry(who.clone()).or_default();
                blocker.blocked_ms += blocked_ms;
                blocker.holds += holds;
                if blocked_ms > most {
                    *most = *blocked_ms;
                    row.name.clone_into(&mut blocker.lock);
                }
            }
            for bar in &row.waits {
                let (wait, who) = (&bar.wait, who(&bar.wait.by));
                counts.waited_ms += wait.waited_ms();
                match wait.outcome {
                    WaitOutcome::Granted => counts.waits += 1,
                    WaitOutcome::Refused(_) | WaitOutcome::Skipped => {
                        let (of_caller, locks) = refusals.entry(who.clone()).or_default();
                        let is_refused = wait.outcome != WaitOutcome::Skipped;
                        counts.refused += usize::from(is_refused);
                        counts.skipped += usize::from(!is_refused);
                        of_caller.refused += usize::from(is_refused);
                        of_caller.skipped += usize::from(!is_refused);
                        *locks.entry(&row.name).or_default() += 1;
                    }
                    WaitOutcome::Superseded => counts.superseded += 1,
                }
                if wait.waited_ms() > 0 {
                    longest_waits.push(LongWait {
                        lock: row.name.clone(),
                        who,
                        since_ms: wait.since_ms,
                        waited_ms: wait.waited_ms(),
                        behind: wait.behind.as_ref().map(self::who),
                        outcome: wait.outcome.as_str(),
                    });
                }
            }
            for incident in &row.incidents {
                match incident.event {
                    EventName::LockStolen if incident.is_unforced_takeover() => counts.left += 1,
                    EventName::LockStolen => counts.taken_over += 1,
                    EventName::LockLost => counts.lost += 1,
                    EventName::LockSuperseded => counts.superseded += 1,
                    _ => {}
                }
            }
        }
        longest_waits.sort_by_key(|wait| Reverse(wait.waited_ms));
        longest_waits.truncate(NAMED);
        // Nobody knows how long those without an end took: they come last.
        longest_holds.sort_by_key(|hold| Reverse(hold.held_ms));
        longest_holds.truncate(NAMED);
        let blockers = blockers.into_iter();
        let mut blocked_most: Vec<_> = blockers
            .map(|(who, (blocker, _))| Blocker { who, ..blocker })
            .collect();
        blocked_most.sort_by_key(|blocker| Reverse(blocker.blocked_ms));
        blocked_most.truncate(NAMED);
        let refusals = refusals.into_iter().map(|(who, (of_caller, locks))| {
            let most = locks.into_iter().max_by_key(|(_, times)| *times);
            let lock = most.map(|(lock, _)| lock.to_owned()).unwrap_or_default();
            Refusals {
                who,
                lock,
                ..of_caller
            }
        });
        let mut refusals: Vec<_> = refusals.collect();
        refusals.sort_by_key(|of_caller| Reverse(of_caller.refused + of_caller.skipped));
        refusals.truncate(NAMED);
        Self {
            counts,
            longest_waits,
            longest_holds,
            blocked_most,
            refusals,
        }
    }
}

/// An instant in UTC.
fn instant(at_ms: u64) -> String {
    let at = i64::try_from(at_ms).ok();
    let at = at.and_then(|at| Timestamp::from_millisecond(at).ok());
    format!("{:.3}", at.unwrap_or(Timestamp::MAX))
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands a reference to the field"
)]
fn as_instant<S: Serializer>(at_ms: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&instant(*at_ms))
}

#[allow(clippy::ref_option, reason = "serde hands a reference to the field")]
fn as_known_instant<S: Serializer>(at_ms: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    at_ms.map(instant).serialize(serializer)
}

/// The name by which a person knows a caller: its agent, its actor, or its request.
pub(crate) fn who(by: &Participant) -> String {
    let name = match (&*by.agent, &*by.actor, &*by.request_id) {
        ("", "", "") => "an unknown caller",
        ("", "", id) => id,
        ("", actor, _) => actor,
        (agent, _, _) => agent,
    };
    shown(name)
}

/// A name as people are shown it.
fn shown(name: &str) -> String {
    cut(&clean(name), NAME_COLUMNS).into_owned()
}

/// Words of an outcome for people.
pub(crate) fn word(outcome: &str) -> String {
    if outcome == HoldOutcome::Open.as_str() {
        return "no end recorded".to_owned();
    }
    if outcome == HoldOutcome::Left.as_str() {
        return "ended without release".to_owned();
    }
    outcome.replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_engine::audit::{Entry, History};

    /// The chart of these events: milliseconds, event, request, and further fields.
    fn chart(events: &[(u64, &str, &str, &str)]) -> Chart {
        chart_of(events, None, None)
    }

    fn chart_of(
        events: &[(u64, &str, &str, &str)],
        since_ms: Option<u64>,
        until_ms: Option<u64>,
    ) -> Chart {
        let mut history = History::default();
        let mut passages = Vec::new();
        for (at, event, id, rest) in events {
            let line = format!(
                r#"{{"event":"lock_{event}","lock_name":"x","request_id":"{id}","timestamp":"{}"{rest}}}"#,
                instant(*at)
            );
            let entry = Entry::parse(line.as_bytes()).expect("an event");
            history.take(&entry, |passage| passages.push(passage));
        }
        passages.extend(history.into_open().map(Passage::Hold));
        let wanted = Wanted {
            since_ms,
            until_ms,
            is_of: &|_| true,
        };
        Chart::of(passages, &wanted, 100_000)
    }

    #[test]
    fn a_wait_counts_once_behind_two_holds_of_one_holder() {
        let slot = |slot: u8| format!(r#","mode":"slots","slot":{slot},"token":{}"#, slot + 1);
        let shown = chart(&[
            (0, "acquired", "a", &slot(0)),
            (0, "acquired", "a", &slot(1)),
            (6_000, "refused", "c", r#","waited_ms":4000"#),
            (10_000, "released", "a", r#","held_ms":10000"#),
        ]);
        assert_eq!(shown.locks[0].hold_lanes, 2);
        let blocked: Vec<_> = shown.locks[0]
            .holds
            .iter()
            .map(|bar| bar.blocked_ms)
            .collect();
        assert_eq!(blocked, [4_000, 4_000], "each hold was in its way");
        let expected = Blocker {
            who: "a".to_owned(),
            blocked_ms: 4_000,
            holds: 2,
            lock: "x".to_owned(),
        };
        assert_eq!(shown.summary.blocked_most, [expected]);
    }

    #[test]
    fn a_hold_without_an_end_is_no_long_one() {
        let shown = chart(&[
            (0, "acquired", "killed", r#","token":1"#),
            (9_000, "acquired", "b", r#","mode":"shared","token":2"#),
            (10_000, "acquired", "c", r#","mode":"shared","token":3"#),
            (15_000, "released", "c", r#","token":3,"held_ms":5000"#),
        ]);
        let holds = shown.summary.longest_holds.iter();
        let holds: Vec<_> = holds.map(|hold| (&*hold.who, hold.held_ms)).collect();
        let expected = [("killed", Some(9_000)), ("c", Some(5_000)), ("b", None)];
        assert_eq!(holds, expected);
        assert_eq!(shown.summary.counts.open, 1);
    }

    #[test]
    fn an_axis_fits_to_what_happened_in_the_time_asked_for() {
        let hold = [
            (40_000, "acquired", "a", r#","token":1"#),
            (50_000, "released", "a", r#","held_ms":10000"#),
        ];
        let one = &hold[..1];
        for (events, since, until, expected) in [
            (&hold[..], None, None, (40_000, 50_000)),
            (&hold, Some(0), None, (39_900, 50_000)),
            (&hold, Some(0), Some(90_000), (39_900, 50_100)),
            // A part of the hold lies there.
            (&hold, Some(45_000), Some(90_000), (45_000, 50_050)),
            // An open hold may go on until now.
            (one, Some(0), None, (40_000, 100_000)),
            (&[], Some(7_000), None, (100_000, 100_000)),
        ] {
            let shown = chart_of(events, since, until);
            assert_eq!(shown.axis_ms, expected, "{since:?} {until:?}");
            assert_eq!(shown.since_ms, since.unwrap_or(shown.since_ms), "as asked");
        }
    }

    #[test]
    fn a_release_that_is_dated_behind_the_next_grant_opens_no_lane() {
        let first = (0, "acquired", "a", r#","token":1"#);
        let next = (5_000, "acquired", "b", r#","token":2"#);
        let release = (5_003, "released", "a", r#","held_ms":4999"#);
        for events in [[first, next, release], [first, release, next]] {
            let shown = chart(&events);
            let row = &shown.locks[0];
            assert_eq!(
                (row.hold_lanes, row.holds[0].hold.until_ms),
                (1, Some(5_000))
            );
            assert_eq!(row.holds[0].hold.held_ms(), Some(4_999), "as it was told");
        }
    }
}
