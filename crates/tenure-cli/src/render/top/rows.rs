//! The rows of `top`: which lock comes first, and what a line says of it and of those who hold it too or wait.
//!
//! How a lock stands, [`LockView`] says; nothing is judged here. All text from a record is cleaned by the frame that
//! draws it.

use super::history::{History, Usual};
use crate::render::lock::{HolderView, LockView, state};
use crate::render::table::Cells;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::time::Duration;
use tenure_engine::envelope::{AgentView, QueueView};

/// In which order locks are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Sort {
    /// What needs a person, then what is waited for, then what is held longer than usual.
    #[default]
    Need,
    /// The longest wait first.
    Wait,
    /// The longest hold first.
    Age,
    /// As people count.
    Name,
}

impl Sort {
    /// The next one.
    pub(crate) fn next(self) -> Self {
        match self {
            Self::Need => Self::Wait,
            Self::Wait => Self::Age,
            Self::Age => Self::Name,
            Self::Name => Self::Need,
        }
    }

    /// The word for the order.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Need => "need",
            Self::Wait => "wait",
            Self::Age => "age",
            Self::Name => "name",
        }
    }
}

/// How much a lock matters to the person who looks, most first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// Only a person helps.
    Need,
    Waited,
    /// Held longer than each of its last holds.
    Long,
    Held,
    Free,
}

/// A lock, as a row shows it.
pub(super) struct Row<'a> {
    pub(super) view: &'a LockView,
    pub(super) state: &'static str,
    pub(super) rank: Rank,
    pub(super) usual: Option<Usual>,
    /// Age of the oldest hold.
    pub(super) age_ms: Option<u64>,
    /// The longest wait in line.
    pub(super) waited_ms: Option<u64>,
    since_look_ms: u64,
}

impl<'a> Row<'a> {
    /// The row of a lock that was read some time ago.
    pub(super) fn of(view: &'a LockView, history: &History, since_look: Duration) -> Self {
        let since_look_ms = u64::try_from(since_look.as_millis()).unwrap_or(u64::MAX);
        let usual = history.usual(&view.name);
        let later = |ms: u64| ms.saturating_add(since_look_ms);
        let is_held = view.standing == "held" && view.standstill.is_none();
        let ages = holders(view).filter(|_| is_held).map(|it| it.age_ms);
        let age_ms = ages.max().map(later);
        let is_long = age_ms
            .zip(usual)
            .is_some_and(|(age_ms, usual)| age_ms > usual.longest_ms);
        let state = word(view, is_long);
        Self {
            view,
            state,
            rank: rank(view, state),
            usual,
            age_ms,
            waited_ms: view.queue.iter().map(|it| later(it.waiting_ms)).max(),
            since_look_ms,
        }
    }

    /// Whether a person who looks for this text, in small letters, finds it in the row or its waiters as they are shown: the
    /// lock, its state, who and what for. Nobody looks for a part of a number or of an id.
    pub(super) fn has(&self, text: &str, here: &str) -> bool {
        let has = |field: &str| field.to_lowercase().contains(text);
        let is = |pid: Option<u32>| pid.is_some_and(|pid| pid.to_string() == text);
        let is_person = |actor: &str, why: &str, host: &str, agent: Option<&AgentView>| {
            let is_agent = agent.is_some_and(|agent| has(&agent.words()));
            is_agent || has(actor) || has(why) || (host != here && has(host))
        };
        let of_holder = |it: &HolderView| {
            let member = it.member.as_deref().is_some_and(has);
            let is_it = member || is(it.pid) || is(it.command_pid);
            is_it || is_person(&it.actor, &it.why, &it.host, it.agent.as_ref())
        };
        let of_waiter = |it: &QueueView| {
            is(it.pid) || is_person(&it.actor, &it.why, &it.host, it.agent.as_ref())
        };
        text.is_empty()
            || has(&self.view.called())
            || has(&self.view.name)
            || has(self.state)
            || holders(self.view).any(of_holder)
            || self.view.queue.iter().any(of_waiter)
    }

    /// What stands in the columns: state, lock, age, what is usual, the line and the holder.
    pub(super) fn cells(&self, here: &str) -> Cells<6> {
        let dash = || Cow::Borrowed("-");
        let line = self.waited_ms.map_or_else(dash, |waited_ms| {
            let count = self.view.queue.len();
            format!("{count}, {}", short(waited_ms)).into()
        });
        let usual = self.usual.map(|usual| short(usual.median_ms).into());
        [
            self.state.into(),
            self.view.called().into_owned().into(),
            self.age_ms.map_or_else(dash, |ms| short(ms).into()),
            usual.unwrap_or_else(dash),
            line,
            self.by(here).into(),
        ]
    }

    /// Who has it, and what for.
    fn by(&self, here: &str) -> String {
        let view = self.view;
        if let Some(left) = view.left_behind() {
            return left;
        }
        let Some(holder) = &view.holder else {
            let why = view.unreadable_because.as_deref();
            return why
                .unwrap_or(match view.standing {
                    "unknown" => "it could not be read",
                    _ => "-",
                })
                .to_owned();
        };
        if view.standstill.is_some() {
            return format!("none; {} is next and does not act", whose(holder, here));
        }
        match several(view) {
            Some(several) => several,
            None => format!("{}{}", whose(holder, here), purpose(&holder.why)),
        }
    }

    /// Whether its holders have lines of their own.
    fn lists_holders(&self) -> bool {
        several(self.view).is_some() && self.view.standstill.is_none()
    }

    /// How many lines [`Row::company`] has.
    pub(super) fn company_length(&self, most: usize) -> usize {
        let own = self.lists_holders().then(|| holders(self.view).count());
        own.unwrap_or(0).min(most) + self.view.queue.len().min(most)
    }

    /// Lines below the row: the holders where there may be several, and the waiters. `most` of each are shown, and how many
    /// more there are.
    pub(super) fn company(&self, here: &str, most: usize) -> Vec<String> {
        let view = self.view;
        let mut lines = Vec::new();
        if most == 0 {
            return Vec::new();
        }
        let age = |ms: u64| short(ms.saturating_add(self.since_look_ms));
        if self.lists_holders() {
            let mut all: Vec<&HolderView> = holders(view).collect();
            all.sort_by_key(|holder| (holder.slot, Reverse(holder.age_ms)));
            let rest = all.len().saturating_sub(most);
            for holder in all.iter().take(most) {
                let label = match (holder.slot, &holder.member) {
                    (Some(slot), Some(member)) => format!("slot {slot} {member}"),
                    (Some(slot), None) => format!("slot {slot}"),
                    (None, _) => holder.mode.to_owned(),
                };
                let trouble = match (holder.stopped, holder.orphaned) {
                    (true, _) => "stopped ",
                    (false, true) => "orphaned ",
                    (false, false) => "",
                };
                let (for_, who) = (age(holder.age_ms), whose(holder, here));
                let why = purpose(&holder.why);
                lines.push((label, format!("{for_:>6}  {trouble}{who}{why}")));
            }
            more(&mut lines, rest);
        }
        let rest = view.queue.len().saturating_sub(most);
        for waiting in view.queue.iter().take(most) {
            let what = match (waiting.away, waiting.stopped) {
                (true, _) => "away",
                (false, true) => "stopped",
                (false, false) => "waits",
            };
            let place = format!("{}. {what}", waiting.position);
            let agent = waiting.agent.as_ref().map(|agent| &*agent.key);
            let process = (waiting.pid, waiting.other_pid_namespace);
            let texts = [&*waiting.actor, &waiting.host, &waiting.request_id];
            let who = party(agent, process, texts, here);
            let why = purpose(&waiting.why);
            let for_ = age(waiting.waiting_ms);
            lines.push((place, format!("{for_:>6}  {who}{why}")));
        }
        more(&mut lines, rest);
        let lines = lines.into_iter();
        lines
            .map(|(label, said)| format!("{label:<14} {said}"))
            .collect()
    }
}

/// Says on the last line how many like it are not shown.
fn more(lines: &mut [(String, String)], rest: usize) {
    if let Some((label, _)) = lines.last_mut().filter(|_| rest > 0) {
        *label = format!("{label} (+{rest})");
    }
}

/// All holders.
pub(super) fn holders(view: &LockView) -> impl Iterator<Item = &HolderView> {
    view.holder.iter().chain(&view.other_holders)
}

/// The state in a word.
fn word(view: &LockView, is_long: bool) -> &'static str {
    match state(view) {
        "held" if view.standstill.is_some() => "stuck",
        "held" if holders(view).any(|holder| holder.has_ended) => "ended",
        "held" if holders(view).any(|holder| holder.cancel_requested) => "ending",
        "held" if is_long => "long",
        state => state,
    }
}

fn rank(view: &LockView, state: &str) -> Rank {
    match state {
        "stopped" | "orphaned" | "stuck" | "ended" | "unreadable" | "unknown" | "stale" => {
            Rank::Need
        }
        _ if !view.queue.is_empty() => Rank::Waited,
        "long" => Rank::Long,
        "free" => Rank::Free,
        _ => Rank::Held,
    }
}

/// Sorts the rows, which come in the order of their names.
pub(super) fn sort(rows: &mut [Row<'_>], by: Sort) {
    match by {
        Sort::Need => {
            rows.sort_by_key(|row| (row.rank, Reverse(row.waited_ms), Reverse(row.age_ms)));
        }
        Sort::Wait => rows.sort_by_key(|row| (Reverse(row.waited_ms), row.rank)),
        Sort::Age => rows.sort_by_key(|row| Reverse(row.age_ms)),
        Sort::Name => {}
    }
}

/// What is said in place of one holder, where several may hold it.
fn several(view: &LockView) -> Option<String> {
    let holder = view.holder.as_ref()?;
    let count = 1 + view.other_holders.len();
    match (holder.slots, holder.mode) {
        (Some(slots), _) => Some(format!("{count} of {slots} slots held")),
        (None, "shared") => Some(match count {
            1 => "1 shared holder".to_owned(),
            count => format!("{count} shared holders"),
        }),
        (None, _) if count > 1 => Some(format!("{count} holders")),
        (None, _) => None,
    }
}

/// A holder: who, and which process.
fn whose(holder: &HolderView, here: &str) -> String {
    let agent = holder.agent.as_ref().map(|agent| &*agent.key);
    let process = (holder.pid, holder.other_pid_namespace);
    let texts = [&*holder.actor, &holder.host, &holder.request_id];
    let who = party(agent, process, texts, here);
    match holder.command_pid {
        Some(pid) if holder.orphaned && holder.command_pid != holder.pid => {
            format!("command PID {pid} goes on, {who} died")
        }
        _ if holder.orphaned => who + &holder.goes_on(),
        _ => who,
    }
}

/// A person or an agent with its process, and the host if that is another one.
fn party(
    agent: Option<&str>,
    (pid, is_elsewhere): (Option<u32>, bool),
    [actor, host, request_id]: [&str; 3],
    here: &str,
) -> String {
    let named = [agent.unwrap_or_default(), actor, request_id];
    let name = named.into_iter().find(|name| !name.is_empty());
    let mut process = Vec::new();
    if let Some(pid) = pid {
        let elsewhere = if is_elsewhere { " in a container" } else { "" };
        process.push(format!("PID {pid}{elsewhere}"));
    }
    if !host.is_empty() && host != here {
        process.push(format!("on {host}"));
    }
    let name = name.unwrap_or("an unknown holder");
    if process.is_empty() {
        return name.to_owned();
    }
    format!("{name} ({})", process.join(" "))
}

fn purpose(why: &str) -> String {
    if why.is_empty() {
        return String::new();
    }
    format!(": {why}")
}

/// A time in its two largest units.
pub(super) fn short(ms: u64) -> String {
    let seconds = ms / 1_000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, 10..) => format!("{minutes}m"),
        (0, 0, _) => format!("{minutes}m{}s", seconds % 60),
        (0, _, _) => format!("{hours}h{minutes}m"),
        (1..=99, _, _) => format!("{days}d{hours}h"),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn a_time_has_two_units() {
        for (seconds, shown) in [
            (0, "0s"),
            (59, "59s"),
            (61, "1m1s"),
            (600, "10m"),
            (3_599, "59m"),
            (3_600, "1h0m"),
            (90_000, "1d1h"),
            (8_640_000, "100d"),
        ] {
            assert_eq!(short(seconds * 1_000), shown);
        }
    }
}
