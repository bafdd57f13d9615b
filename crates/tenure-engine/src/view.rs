//! What is said of a lock: its facts gathered once, and the lines that people read of them.
//!
//! `envelope` makes a document of the same facts: the `context` of a refusal, and what `tenure check` and `list` answer.

use crate::agent_view::AgentView;
use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::num::NonZeroU32;
use std::time::Duration;
use tenure_core::{
    AgentKey, Caller, Cancel, CancelKind, Claim, Death, Decision, Entry, Evidence, Force,
    ForceOnHeld, Kind, Life, Liveness, LivenessLock, LockName, Mode, Now, Patience, Policy,
    Process, RETRY_FLOOR_MS, Reason, Refusal, Silence, StaleReason, Standing, Standstill, decide,
    free_in_ms, has_ended, is_orphan, retry_after_ms,
};
use tenure_os::clock::Date;
use tenure_os::process::{actor_name, is_other_namespace, look_at};
use tenure_store::advice::Advice;
use tenure_store::printed::{called, clean};
use tenure_store::profile::known_as;
use tenure_store::{Content, Reading};

/// A structure that is also a document, as its `serde` attributes say. A light build has no documents, and no serde.
#[cfg(feature = "full")]
macro_rules! document {
    ($(#[doc = $doc:literal])* #[derive($($derive:ident),*)] $($rest:tt)*) => {
        $(#[doc = $doc])*
        #[derive($($derive,)* serde::Serialize)]
        $($rest)*
    };
}

#[cfg(not(feature = "full"))]
macro_rules! document {
    (
        $(#[doc = $doc:literal])* #[derive($($derive:ident),*)] $(#[allow($($allow:tt)*)])?
        pub struct $Name:ident {
            $($(#[doc = $about:literal])* $(#[serde($($serde:tt)*)])? $see:vis $field:ident: $Type:ty,)*
        }
    ) => {
        $(#[doc = $doc])*
        #[derive($($derive),*)]
        $(#[allow($($allow)*)])?
        pub struct $Name {
            $($(#[doc = $about])* $see $field: $Type,)*
        }
    };
}

/// Whether a refusal for this reason may end by itself.
pub fn is_retryable(reason: Reason) -> bool {
    match reason {
        Reason::Held | Reason::QueueFull => true,
        Reason::StaleNeedsForce
        | Reason::NeedsConfirmation
        | Reason::Unreadable
        | Reason::Unknown => false,
    }
}

document! {
/// A lock.
#[derive(Debug, Clone)]
pub struct LockView {
    /// The lock.
    pub name: String,
    /// The path that is leased, if the lock stands for one and a claim says which.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// `free`, `held`, `stale`, `unreadable` or `unknown`.
    pub standing: &'static str,
    /// Whether the caller is the holder.
    pub mine: bool,
    /// Whether a plain request would get it now.
    pub available: bool,
    /// Why its holder no longer counts.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "in_words")]
    pub stale_because: Option<StaleReason>,
    /// What is wrong with its record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable_because: Option<String>,
    /// Milliseconds until force may replace a record that cannot be read. Set where that is not now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force_after_ms: Option<u64>,
    /// Where it is kept.
    pub lock_file: String,
    /// The modes that have room beside the holders. Set where one of them holds beside others, or another mode than
    /// an exclusive one is asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub room: Option<RoomView>,
    /// Holder of the lock.
    pub holder: Option<HolderView>,
    /// The other holders, if several may hold at once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_holders: Vec<HolderView>,
    /// Set if no claim holds it and the process of the next claim is stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standstill: Option<StandstillView>,
    /// The waiter before the caller, if the holders alone would let the caller hold beside them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ahead: Option<QueueView>,
    /// The waiters, in order.
    pub queue: Vec<QueueView>,
    /// When a retry is likely to succeed; a hint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// When the lock is likely free, for a person: set where past holds, or a limit of this one, support it.
    #[serde(skip)]
    pub free_in_ms: Option<u64>,
    /// How the reader calls the program again about it.
    #[serde(skip)]
    pub advice: Advice,
    /// Whether force may end a live hold of it.
    #[serde(skip)]
    yields_to_force: bool,
}
}

document! {
/// The modes that have room: a new claim of that mode would hold at once.
#[derive(Debug, Clone, Copy)]
pub struct RoomView {
    /// Alone.
    pub exclusive: bool,
    /// Beside other shared holders.
    pub shared: bool,
    /// Room in the pool of slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<SlotsView>,
}
}

document! {
/// Slots of a lock.
#[derive(Debug, Clone, Copy)]
pub struct SlotsView {
    /// How many there are.
    pub of: u32,
    /// How many of them are held.
    pub held: u32,
    /// Whether a new claim of one would hold at once: no waiter comes before it.
    pub room: bool,
}
}

document! {
/// The claim that does not take its turn because its process is stopped.
#[derive(Debug, Clone)]
pub struct StandstillView {
    /// Process of the claim.
    pub pid: Option<u32>,
    /// Request id of the claim.
    pub request_id: String,
    /// Place of the claim in line.
    pub ticket: u64,
    /// Since when it is its turn, RFC 3339 in UTC.
    pub since: Timestamp,
    /// For how long, in milliseconds.
    pub age_ms: u64,
    /// The time until it stands aside and lets others pass; 0 if it already does.
    pub stands_aside_in_ms: u64,
    /// Whether its process is seen to be stopped. Else it is only seen that it does not take its turn, as where a
    /// container is paused.
    pub stopped: bool,
}
}

impl StandstillView {
    /// When it lets others pass, for people.
    pub(crate) fn stands_aside(&self) -> String {
        match self.stands_aside_in_ms {
            0 => "stands aside for the next caller".to_owned(),
            rest_ms => format!("stands aside in {}", age(rest_ms)),
        }
    }

    /// What keeps a claim from its turn, after "is next in line and".
    pub fn why(stopped: bool) -> &'static str {
        if stopped {
            "stopped"
        } else {
            "does not take its turn (frozen or paused, perhaps)"
        }
    }
}

document! {
/// The holder of a lock.
#[derive(Debug, Clone)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "facts of a holder that have nothing to do with each other, as the document has them"
)]
pub struct HolderView {
    /// `run` (supervised, lives by a kernel lock), `detached` (lives by its record) or `foreign`
    /// (a record of another program).
    pub kind: &'static str,
    /// The supervisor died and its command goes on.
    pub orphaned: bool,
    /// The holder's process is stopped, by SIGSTOP or Ctrl-Z say.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// Process that is at work: of a run the supervisor, and once that is dead the command.
    #[serde(rename = "pid")]
    pub work_pid: Option<u32>,
    /// The supervisor of an orphan, which is dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supervisor_pid: Option<u32>,
    /// Process of the holder, as its claim names it.
    #[serde(skip)]
    pub pid: Option<u32>,
    /// The process ids are of another PID namespace of this machine, as in a container. Here they name no
    /// process, or another one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub other_pid_namespace: bool,
    /// The command of a run.
    pub command_pid: Option<u32>,
    /// Request id of the hold.
    pub request_id: String,
    /// Fencing token; `None` while the lock is being handed over.
    pub token: Option<u64>,
    /// On whose behalf.
    pub actor: String,
    /// The agent in whose name, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentView>,
    /// On which machine.
    pub host: String,
    /// What for.
    pub why: String,
    /// Since when, RFC 3339 in UTC.
    pub since: Timestamp,
    /// For how long, in milliseconds, counted from the acquisition.
    pub age_ms: u64,
    /// Instant of the last renewal, likewise.
    pub last_heartbeat: Timestamp,
    /// How long the hold outlives that where nothing stronger can be seen. An agent's detached hold never
    /// outlives it.
    pub ttl_ms: u64,
    /// The age at which the hold ends, whatever is renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_age_ms: Option<u64>,
    /// Another caller asked it to stop.
    pub cancel_requested: bool,
    /// The request id of the caller that asked first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_requested_by: Option<String>,
    /// On whose behalf, if that caller said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_requested_actor: Option<String>,
    /// What for, if that caller said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_requested_why: Option<String>,
    /// `cancel` or `newer_run`: which kind of caller asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_requested_kind: Option<&'static str>,
    /// `exclusive`, `shared` or `slots`.
    pub mode: &'static str,
    /// How many claims may hold at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// Slot of the holder, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<u32>,
    /// What that slot stands for, in a pool with members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// Recorded on this boot of this machine, whatever the machine was called then.
    #[serde(skip)]
    pub is_of_this_boot: bool,
    /// A sign of its life is seen from here.
    #[serde(skip)]
    pub is_seen_alive: bool,
    /// All processes of the holder are proven dead. The record may count for a while.
    #[serde(skip)]
    pub has_ended: bool,
    /// Milliseconds until it ends by silence, if that ends it.
    #[serde(skip)]
    pub ends_in_ms: Option<u64>,
    /// Whether the holder's process is the one that is told this.
    #[serde(skip)]
    pub is_this_process: bool,
    /// Place in the list.
    #[serde(skip)]
    pub ticket: u64,
    /// When it began, in milliseconds since the epoch.
    #[serde(skip)]
    pub since_ms: u64,
    /// The last renewal, likewise.
    #[serde(skip)]
    pub renewed_ms: u64,
    /// How long there has been none.
    #[serde(skip)]
    pub silent_ms: u64,
    /// What the profile's record says beyond this.
    #[serde(skip)]
    pub facts: Vec<(String, String)>,
}
}

document! {
/// A waiter.
#[derive(Debug, Clone)]
pub struct QueueView {
    /// 1 is next.
    pub position: usize,
    /// Place in line.
    pub ticket: u64,
    /// `exclusive`, `shared` or `slots`.
    pub mode: &'static str,
    /// How many claims may hold at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// The waiter's caller is away, and its place is kept.
    pub away: bool,
    /// The waiter's process is stopped, by SIGSTOP or Ctrl-Z say.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// Process of the waiter.
    pub pid: Option<u32>,
    /// As of a holder.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub other_pid_namespace: bool,
    /// Request id of the waiter.
    pub request_id: String,
    /// On whose behalf.
    pub actor: String,
    /// The agent in whose name, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentView>,
    /// On which machine.
    pub host: String,
    /// What for.
    pub why: String,
    /// Since when, RFC 3339 in UTC.
    pub since: Timestamp,
    /// For how long, in milliseconds.
    pub waiting_ms: u64,
}
}

impl LockView {
    /// Gathers the facts from a reading. `mine` says of a claim whether it is the caller's.
    pub fn of(
        name: &LockName,
        reading: &Reading,
        policy: &Policy,
        now: &Now,
        mine: impl Fn(&Claim) -> bool,
    ) -> Self {
        let (standing, claim) = reading.standing(policy, now);
        let entry = reading.entry();
        // A caller that is one of several holders asks about itself.
        let own = entry
            .into_iter()
            .flat_map(Entry::granted)
            .find_map(|claim| {
                let standing = reading.standing_of(policy, claim, now);
                (matches!(standing, Standing::Held(_)) && mine(claim)).then_some((standing, claim))
            });
        let (standing, claim) =
            own.map_or((standing, claim), |(standing, own)| (standing, Some(own)));
        let mut view = Self::bare(name.as_str(), standing, policy, reading.place.clone());
        view.mine = claim.is_some_and(|claim| claim.token.is_some() && mine(claim));
        if let Content::Unreadable { why, silence } = &reading.content {
            view.unreadable(why.clone(), *silence, policy);
        }
        if let Some(entry) = entry {
            let standing_of = |claim: &Claim| reading.standing_of(policy, claim, now);
            let is_gone = |claim: &Claim| reading.is_gone(policy, claim, now);
            view.fill(entry, (standing, claim), standing_of, is_gone, policy, now);
            view.show_sight(reading, policy, now);
            view.show_stopped(&reading.stopped);
            if let Some((still, next)) = reading.standstill(policy, now) {
                view.show_standstill(next, still, now);
            }
        }
        view
    }

    /// Says what is wrong with what cannot be read, and when force may replace it.
    pub fn unreadable(&mut self, why: String, silence: Silence, policy: &Policy) {
        self.unreadable_because = Some(why);
        let rest_ms = silence.rest_ms(policy);
        self.force_after_ms = (rest_ms > 0).then_some(rest_ms);
    }

    /// Gathers the facts of a refusal from the list as it was seen then.
    pub fn refused(
        name: &LockName,
        place: String,
        refusal: &Refusal,
        entry: &Entry,
        policy: &Policy,
        now: &Now,
    ) -> Self {
        let mut view = Self::bare(name.as_str(), refusal.standing, policy, place);
        view.fill(
            entry,
            (refusal.standing, refusal.blocker.as_deref()),
            // The other claims were not looked at.
            |_| Standing::Held(Life::Supervised),
            |_| false,
            policy,
            now,
        );
        if let (Some(still), Some(next)) = (refusal.standstill, &refusal.blocker) {
            if still.is_stopped {
                view.show_stopped(&[next.ticket]);
            }
            view.show_standstill(next, still, now);
        }
        view.show_ahead(refusal.ahead.as_deref());
        view
    }

    fn show_ahead(&mut self, ahead: Option<&Claim>) {
        let ahead = ahead.map(|claim| claim.ticket);
        let mut queue = self.queue.iter();
        self.ahead = queue.find(|waiting| Some(waiting.ticket) == ahead).cloned();
    }

    /// Says whether a claim of this mode would hold at once, and which others would.
    #[must_use]
    pub fn for_mode(mut self, mode: Mode, reading: &Reading, policy: &Policy, now: &Now) -> Self {
        let holders = self.holder.iter().chain(&self.other_holders);
        let held = holders.filter(|holder| holder.token.is_some());
        let in_use = held.clone().find_map(|holder| holder.slots);
        let are_alone = held.clone().all(|holder| holder.mode == "exclusive");
        if (are_alone && mode == Mode::Exclusive) || reading.entry().is_none() {
            return self;
        }
        let of = match mode {
            Mode::Slots(slots) => Some(slots),
            Mode::Exclusive | Mode::Shared => in_use.and_then(NonZeroU32::new),
        };
        let has_room = |mode| reading.has_room(policy, mode, now);
        let room = RoomView {
            exclusive: has_room(Mode::Exclusive),
            shared: has_room(Mode::Shared),
            slots: of.map(|of| SlotsView {
                of: of.get(),
                // A shared holder takes up one of them.
                held: u32::try_from(
                    held.filter(|holder| holder.slots == Some(of.get()) || holder.mode == "shared")
                        .count(),
                )
                .unwrap_or(u32::MAX),
                room: has_room(Mode::Slots(of)),
            }),
        };
        self.available = match mode {
            Mode::Exclusive => room.exclusive,
            Mode::Shared => room.shared,
            Mode::Slots(_) => room.slots.is_some_and(|slots| slots.room),
        };
        self.room = Some(room);
        if !self.available {
            self.show_ahead(reading.ahead_of(policy, mode, now));
        }
        self
    }

    /// A lock that could not be looked at.
    pub fn unknown(name: &LockName, policy: &Policy, lock_file: String) -> Self {
        Self::bare(name.as_str(), Standing::Unknown, policy, lock_file)
    }

    /// What is said of one claim: its record, and what a look at its processes shows where they can be seen from here. A
    /// wait reads the list alone, so this is its one way to hear of a holder that is stopped, or whose supervisor died.
    pub fn holder_of(claim: &Claim, now: &Now) -> HolderView {
        let mut view = holder(claim, Standing::Held(Life::Supervised), now);
        let look = |process: Option<Process>| look_at(&process?, &claim.holder.host, now);
        let Some(seen) = look(claim.holder.process) else {
            return view;
        };
        view.stopped = seen.is_stopped;
        let command = look(claim.holder.command).map(|seen| seen.liveness);
        let evidence = Evidence {
            liveness_lock: LivenessLock::None,
            process: seen.liveness,
            command: command.unwrap_or(Liveness::NotRecorded),
        };
        if is_orphan(claim, &evidence) {
            view.is_orphaned();
        }
        view
    }

    fn bare(name: &str, standing: Standing, policy: &Policy, lock_file: String) -> Self {
        let decision = decide(policy, standing, Force::No, Patience::AtOnce, Caller::Other);
        Self {
            name: name.to_owned(),
            path: None,
            standing: match standing {
                Standing::Free => "free",
                Standing::Held(_) => "held",
                Standing::Stale(_) => "stale",
                Standing::Unreadable => "unreadable",
                Standing::Unknown => "unknown",
            },
            mine: false,
            available: matches!(decision, Decision::Grant | Decision::TakeOver),
            stale_because: match standing {
                Standing::Stale(reason) => Some(reason),
                _ => None,
            },
            unreadable_because: None,
            force_after_ms: None,
            lock_file,
            room: None,
            holder: None,
            other_holders: Vec::new(),
            standstill: None,
            ahead: None,
            queue: Vec::new(),
            retry_after_ms: None,
            free_in_ms: None,
            advice: Advice::plain(name),
            yields_to_force: policy.force_on_held != ForceOnHeld::Never,
        }
    }

    fn fill(
        &mut self,
        entry: &Entry,
        (standing, claim): (Standing, Option<&Claim>),
        standing_of: impl Fn(&Claim) -> Standing,
        is_gone: impl Fn(&Claim) -> bool,
        policy: &Policy,
        now: &Now,
    ) {
        self.holder = claim.map(|claim| holder(claim, standing, now));
        let mut claims = claim.into_iter().chain(&entry.claims);
        self.path = claims.find_map(|claim| claim.holder.path().map(str::to_owned));
        let front = claim.map(|claim| claim.ticket);
        self.other_holders = entry
            .granted()
            .filter(|other| Some(other.ticket) != front)
            .map(|other| (other, standing_of(other)))
            .filter(|(_, standing)| matches!(standing, Standing::Held(_)))
            .map(|(other, standing)| holder(other, standing, now))
            .collect();
        if matches!(standing, Standing::Held(_)) {
            self.retry_after_ms = Some(retry_after_ms(entry, policy, now));
            self.free_in_ms = free_in_ms(entry, policy, now);
        }
        self.queue = entry
            .claims
            .iter()
            .filter(|waiting| waiting.token.is_none() && Some(waiting.ticket) != front)
            // A claim that was asked to stop waits for nothing any more.
            .filter(|waiting| waiting.cancel.is_none() && !is_gone(waiting))
            .enumerate()
            .map(|(index, waiting)| queued(index + 1, waiting, now))
            .collect();
    }

    /// Shows what is seen of the holders in a reading.
    pub fn show_sight(&mut self, reading: &Reading, policy: &Policy, now: &Now) {
        let holders = self.holder.iter_mut().chain(&mut self.other_holders);
        for holder in holders {
            let claim = reading.entry().and_then(|entry| entry.claim(holder.ticket));
            let Some(claim) = claim else {
                continue;
            };
            if reading.is_orphan(claim) {
                holder.is_orphaned();
            }
            holder.is_seen_alive = reading.is_seen_alive(claim);
            let evidence = reading.evidence_of(claim);
            holder.has_ended = evidence.is_some_and(|evidence| has_ended(&evidence));
            holder.ends_in_ms = reading.ends_in_ms(policy, claim, now);
        }
    }

    /// Says that the processes of the claims with these tickets are stopped.
    pub fn show_stopped(&mut self, stopped: &[u64]) {
        let holders = self.holder.iter_mut().chain(&mut self.other_holders);
        for holder in holders {
            holder.stopped |= stopped.contains(&holder.ticket);
        }
        for waiting in &mut self.queue {
            waiting.stopped |= stopped.contains(&waiting.ticket);
        }
    }

    fn show_standstill(&mut self, next: &Claim, still: Standstill, now: &Now) {
        if self.retry_after_ms.is_some() {
            let rest_ms = still.rest_ms.max(RETRY_FLOOR_MS);
            (self.retry_after_ms, self.free_in_ms) = (Some(rest_ms), Some(rest_ms));
        }
        self.standstill = Some(StandstillView {
            pid: next.holder.process.map(|process| process.pid),
            request_id: next.holder.request_id.to_string(),
            ticket: next.ticket,
            since: timestamp((now.wall_us / 1_000).saturating_sub(still.since_ms)),
            age_ms: still.since_ms,
            stands_aside_in_ms: still.rest_ms,
            stopped: still.is_stopped,
        });
    }

    /// The standing in one word, for people. A lock is `free` if no claim holds it any more and a plain
    /// request gets it, whichever claim was left behind. Programs find the two facts apart, in `standing`
    /// and `available`.
    pub fn word(&self) -> &'static str {
        if self.available && self.standing != "held" {
            "free"
        } else {
            self.standing
        }
    }

    /// For which claims there is room beside the holders, as a line for people; `None` if a claim holds alone, or none
    /// does.
    fn told_of_room(&self) -> Option<String> {
        let room = self.room.as_ref().filter(|_| self.standing == "held")?;
        Some(match room.slots {
            Some(slots) if slots.room => {
                format!(
                    "{} of {} slots free",
                    slots.of.saturating_sub(slots.held),
                    slots.of
                )
            }
            Some(slots) if slots.held < slots.of && slots.held > 0 => format!(
                "{} of {} slots free, for those who wait",
                slots.of - slots.held,
                slots.of
            ),
            Some(slots) if slots.held >= slots.of => match slots.of {
                1 => "the only slot is taken".to_owned(),
                2 => "both slots are taken".to_owned(),
                of => format!("all {of} slots are taken"),
            },
            // Another mode holds it.
            Some(_) => "no slot is free".to_owned(),
            None if room.shared => "room for more shared holders".to_owned(),
            None => "no room for shared holders".to_owned(),
        })
    }

    /// How its last holder left it behind, as a sentence without its end; `None` unless it did.
    pub fn left_behind(&self) -> Option<String> {
        let because = self.stale_because?;
        let Some(holder) = &self.holder else {
            let why = self.unreadable_because.as_deref().unwrap_or("damaged");
            return Some(format!("what stands there cannot be read ({why})"));
        };
        // Silence is no death: the holder may go on under a lock that is another's by then.
        if because == StaleReason::Silent {
            let who = holder.who();
            let because = stale_reason(because);
            return Some(format!("the lease of {who} ran out ({because})"));
        }
        // A claim that only waited had nothing but its place.
        let what = if holder.token.is_none() && holder.kind != "foreign" {
            "its place in line"
        } else {
            "it"
        };
        let goes_on = if holder.orphaned {
            holder.goes_on()
        } else {
            String::new()
        };
        let is_dead = matches!(
            because,
            StaleReason::LivenessLockReleased
                | StaleReason::ProcessDead(Death::Gone | Death::Zombie)
        );
        if is_dead && what == "it" && goes_on.is_empty() {
            return Some(format!("{} ended without releasing it", holder.who()));
        }
        Some(format!(
            "{} left {what} behind ({}){goes_on}",
            holder.who(),
            stale_reason(because)
        ))
    }

    /// Whether an agent that `key` covers holds it, or waits for it.
    pub fn is_of(&self, key: &AgentKey) -> bool {
        let holders = self.holder.iter().chain(&self.other_holders);
        let holders = holders.map(|holder| holder.agent.as_ref());
        let waiting = self.queue.iter().map(|waiting| waiting.agent.as_ref());
        let mut agents = holders.chain(waiting).flatten();
        agents.any(|agent| agent.key.parse().is_ok_and(|agent| key.covers(&agent)))
    }

    /// What people call the lock: the path that it stands for, else its name.
    pub fn called(&self) -> Cow<'_, str> {
        self.path
            .as_deref()
            .map_or(Cow::Borrowed(&*self.name), called)
    }

    /// Says in a line for people whether the lock is held, by whom, where, since when and why. The
    /// first of [`LockView::text`].
    pub fn headline(&self) -> String {
        let called = self.called();
        if let (Some(next), Some(still)) = (&self.holder, &self.standstill) {
            return format!(
                "{} is not held: {} is next in line and {}; it has had its turn since {} ({} ago) and {}",
                called,
                next.who(),
                StandstillView::why(still.stopped),
                still.since,
                age(still.age_ms),
                still.stands_aside()
            );
        }
        if let Some(left) = self.left_behind() {
            let name = &called;
            return match self.word() {
                "stale" => format!("{name} is stale, and taken over with --force alone: {left}"),
                word => format!("{name} is {word}; {left}"),
            };
        }
        match (&self.holder, self.standing) {
            (Some(holder), "held") if self.mine => {
                format!("{} is held by you: {}", called, holder.sentence())
            }
            (Some(holder), "held") => {
                let ahead = self.ahead.as_ref().map(|ahead| {
                    let (who, waiting) = (ahead.who(), age(ahead.waiting_ms));
                    format!(
                        "; {who} waits before you for {waiting}{}",
                        purpose(&ahead.why)
                    )
                });
                let ahead = ahead.unwrap_or_default();
                format!("{} is held by {}{ahead}", called, holder.sentence())
            }
            (_, "unreadable") => format!(
                "{} cannot be read: {} ({})",
                called,
                self.unreadable_because.as_deref().unwrap_or("damaged"),
                clean(&self.lock_file)
            ),
            _ => format!("{} is {}", called, self.word()),
        }
    }

    /// Lines for people: the headline, the other holders, and the waiters.
    pub fn text(&self) -> String {
        self.headline() + &self.company()
    }

    /// The other holders and the waiters, each on a line of its own that begins with a line's end.
    pub fn company(&self) -> String {
        let mut text = String::new();
        if let Some(room) = self.told_of_room() {
            let _ = write!(text, "\n{:8}{room}", "");
        }
        for other in &self.other_holders {
            let _ = write!(text, "\n{:8}and by {}", "", other.sentence());
        }
        for waiting in &self.queue {
            let (position, sentence) = (waiting.position, waiting.sentence());
            let _ = write!(text, "\n{:8}{position}. {sentence}", "");
        }
        text
    }

    /// Whether the profile lets force end a live hold, by whatever it takes.
    pub fn yields_to_force(&self) -> bool {
        self.yields_to_force
    }
}

impl HolderView {
    /// A fact by the name of its key.
    pub fn fact(&self, key: &str) -> Option<&str> {
        let found = self.facts.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str())
    }

    /// Says that its supervisor is dead, and its command goes on.
    pub fn is_orphaned(&mut self) {
        self.orphaned = true;
        self.work_pid = self.command_pid.or(self.pid);
        self.supervisor_pid = self.pid.filter(|_| self.work_pid != self.pid);
    }

    /// The holder's agent, process, request, actor and host, as far as the record says.
    pub fn who(&self) -> String {
        let process = (self.pid, self.other_pid_namespace);
        let texts = [&*self.request_id, &self.actor, &self.host];
        if self.is_this_process {
            return "this process".to_owned();
        }
        who(self.agent.as_ref(), process, texts)
    }

    /// The holder, its slot and what for.
    pub fn line(&self) -> String {
        let mut line = self.who();
        line.push_str(&self.slot_of_slots());
        if let Some(stopped) = self.is_stopped_and() {
            line.extend([", ", &stopped]);
        }
        add_purpose(&mut line, &self.why);
        line
    }

    /// The holder's slot, as a part of a sentence; empty for another lock.
    pub fn slot_of_slots(&self) -> String {
        let member = self.member.as_deref().map(clean);
        let member = member.map(|member| format!(", member {member}"));
        match (self.slot, self.slots) {
            (Some(slot), Some(slots)) => {
                format!(", slot {slot} of {slots}{}", member.unwrap_or_default())
            }
            (Some(_), None) | (None, _) => String::new(),
        }
    }

    /// What for, as the end of a sentence; empty where the record does not say.
    pub fn purpose(&self) -> String {
        purpose(&self.why)
    }

    /// Says that the holder is stopped and what continues it, as a part of a sentence.
    pub fn is_stopped_and(&self) -> Option<String> {
        let continues = self.continuing();
        let continues = continues.map(|line| format!("stopped (`{line}` continues it)"));
        continues.or_else(|| self.stopped.then(|| "stopped".to_owned()))
    }

    /// The line that continues its stopped process, where its number means something here.
    pub fn continuing(&self) -> Option<String> {
        let pid = self.pid.filter(|_| self.stopped)?;
        (!self.other_pid_namespace).then(|| format!("kill -CONT {pid}"))
    }

    /// The caller that asked the holder to stop, and what for, as a part of a sentence.
    fn asked(&self) -> String {
        let by = match (&self.cancel_requested_actor, &self.cancel_requested_by) {
            (Some(actor), _) => format!(" by {}", shown(actor)),
            (None, Some(by)) => format!(" by request id {}", shown(by)),
            (None, None) => String::new(),
        };
        let why = self.cancel_requested_why.as_deref();
        let why = why.map_or_else(String::new, |why| format!(": {}", shown(why)));
        format!(", asked to stop{by}{why}")
    }

    /// Of an orphan: what died, and what goes on.
    pub fn goes_on(&self) -> String {
        match self.command_pid {
            // A program that holds by `tenure serve` is its own command.
            Some(_) if self.command_pid == self.pid => {
                " (its tenure serve died; it goes on)".to_owned()
            }
            Some(pid) => format!(" (it died; its command, PID {pid}, goes on)"),
            // A program with a guard has no command, and neither has a run that died as it started one.
            None => " (it died; what it forked or started goes on)".to_owned(),
        }
    }

    /// The holder, its host, since when and why.
    pub fn sentence(&self) -> String {
        let orphaned = if self.orphaned {
            self.goes_on()
        } else {
            String::new()
        };
        let mut apart = self.slot_of_slots();
        if let Some(stopped) = self.is_stopped_and() {
            apart.extend([", ", &stopped]);
        }
        if !apart.is_empty() {
            apart.push(',');
        }
        let asked = if self.cancel_requested {
            self.asked()
        } else if self.fact("future").is_some() {
            ", dated in the future".to_owned()
        } else {
            String::new()
        };
        format!(
            "{}{orphaned}{apart} since {} ({} ago{asked}){}",
            self.who(),
            self.since,
            age(self.age_ms),
            self.purpose()
        )
    }
}

impl QueueView {
    /// The waiter, for how long it has waited and what for.
    pub fn sentence(&self) -> String {
        let state = if self.away {
            "away, in line"
        } else if self.stopped {
            "stopped, in line"
        } else {
            "waiting"
        };
        let (who, waiting) = (self.who(), age(self.waiting_ms));
        format!("{who} {state} for {waiting}{}", purpose(&self.why))
    }

    fn who(&self) -> String {
        let process = (self.pid, self.other_pid_namespace);
        let texts = [&*self.request_id, &self.actor, &self.host];
        who(self.agent.as_ref(), process, texts)
    }
}

/// A lease that another agent has, as facts in one sentence. A model reads it, and takes an order from a tool for an
/// attempt to steer it. `place` is the place in line that is kept for the caller, from 1.
pub fn leased(view: &LockView, place: Option<usize>) -> String {
    let called = view.called();
    let Some(holder) = &view.holder else {
        return format!("{called} is {}", view.word());
    };
    let by = match &holder.agent {
        Some(agent) => agent.words(),
        None => holder.who(),
    };
    // Of an instant that is not known, the age says enough.
    let since = holder.since.to_string();
    let since = since.get(11..16).unwrap_or("an unknown time");
    let mut said = format!(
        "{called} is leased by {by} since {since} UTC, active {} ago",
        age(holder.silent_ms)
    );
    if let Some(after_ms) = view.retry_after_ms {
        let _ = write!(
            said,
            "; {} (retry_after_ms {after_ms})",
            free_in(view.free_in_ms)
        );
    }
    if let Some(place) = place {
        let _ = write!(said, "; your place {place} is kept");
    }
    said
}

/// When a lock is free, as far as something supports a guess.
pub fn free_in(guess_ms: Option<u64>) -> String {
    guess_ms.map_or_else(
        || "when it is free is not known".to_owned(),
        |ms| format!("free in about {}", age(ms)),
    )
}

/// What for, as the end of a sentence.
fn purpose(why: &str) -> String {
    let mut purpose = String::new();
    add_purpose(&mut purpose, why);
    purpose
}

/// Adds to a sentence what for, where the record says it.
fn add_purpose(sentence: &mut String, why: &str) {
    if !why.is_empty() {
        sentence.extend([": ", &clean(why)]);
    }
}

/// A holder or a waiter by its agent, process, request, actor and host, as far as the record says. The process may be one
/// of another PID namespace.
fn who(
    agent: Option<&AgentView>,
    (pid, is_elsewhere): (Option<u32>, bool),
    texts: [&str; 3],
) -> String {
    let [request_id, actor, host] = texts.map(clean);
    let mut who = String::with_capacity(64);
    // Writing to a `String` cannot fail.
    if let Some(agent) = agent {
        let _ = write!(who, "agent {}, ", agent.key);
    }
    match pid {
        Some(pid) => {
            let _ = write!(who, "PID {pid}");
            if is_elsewhere {
                who.push_str(" of another PID namespace");
            }
        }
        None if request_id.is_empty() => who.push_str("an unknown holder"),
        None => who.extend(["request ", &request_id]),
    }
    // A record of another program may name neither.
    match (actor.is_empty(), host.is_empty(), request_id.is_empty()) {
        (true, true, false) if pid.is_some() => who.extend([" (request ", &request_id, ")"]),
        (true, true, _) => {}
        (true, false, _) => who.extend([" (", &host, ")"]),
        (false, true, _) => who.extend([" (", &actor, ")"]),
        (false, false, _) => who.extend([" (", &actor, "@", &host, ")"]),
    }
    who
}

/// A duration as people write it, to the millisecond: what a caller said is what is said. [`age`] words what was measured.
pub fn human(duration: Duration) -> String {
    let millis = duration.subsec_millis();
    if duration.as_secs() == 0 {
        return format!("{millis}ms");
    }
    let seconds = duration.as_secs();
    let (days, hours, minutes, rest) = (
        seconds / 86_400,
        seconds / 3_600 % 24,
        seconds / 60 % 60,
        seconds % 60,
    );
    let mut text = String::new();
    // Writing to a `String` cannot fail.
    for (number, unit) in [(days, 'd'), (hours, 'h'), (minutes, 'm')] {
        if number > 0 {
            let _ = write!(text, "{number}{unit}");
        }
    }
    if millis > 0 {
        let fraction = format!("{millis:03}");
        let _ = write!(text, "{rest}.{}s", fraction.trim_end_matches('0'));
    } else if rest > 0 {
        let _ = write!(text, "{rest}s");
    }
    text
}

/// An age, or another time that was measured, in the unit that says enough: from a second on, without its fraction.
pub fn age(millis: u64) -> String {
    let fraction = if millis < 1_000 { 0 } else { millis % 1_000 };
    human(Duration::from_millis(millis - fraction))
}

/// The caller that asks for a lock, and its reason, as its holder is told.
pub fn asks_for_the_lock(cancel: &Cancel) -> String {
    let (who, why) = (asker(cancel), because(cancel));
    match cancel.kind {
        CancelKind::NewerRun => format!("{who} asks for the lock{why}"),
        CancelKind::Operator => format!("{who} asks this run to stop{why}"),
    }
}

/// Who ended a run and why, as its caller is told. `has_begun` says that the run had the lock.
pub(crate) fn ended_by(cancel: &Cancel, has_begun: bool) -> String {
    let (who, why) = (asker(cancel), because(cancel));
    match cancel.kind {
        CancelKind::NewerRun if has_begun => format!("{who} took over, so this run has ended"),
        CancelKind::NewerRun => {
            format!("{who} took its place in line, so this run has not begun")
        }
        CancelKind::Operator => format!("{who} cancelled this run{why}"),
    }
}

fn asker(cancel: &Cancel) -> String {
    let by = shown(&cancel.by);
    let actor = shown(&actor_name(&cancel.actor));
    match (cancel.kind, actor.as_str()) {
        (CancelKind::Operator, "") => format!("request id {by}"),
        (CancelKind::Operator, actor) => format!("{actor} (request id {by})"),
        (CancelKind::NewerRun, "") => format!("a newer run (request id {by})"),
        (CancelKind::NewerRun, actor) => format!("a newer run of {actor} (request id {by})"),
    }
}

fn because(cancel: &Cancel) -> String {
    match cancel.why.as_str() {
        "" => String::new(),
        why => format!(": {}", shown(why)),
    }
}

/// Kind of a request to stop, in documents and variables: `cancel` or `newer_run`.
pub fn kind(kind: CancelKind) -> &'static str {
    match kind {
        CancelKind::Operator => "cancel",
        CancelKind::NewerRun => "newer_run",
    }
}

/// Text that another program wrote, safe for a terminal and no longer than a reason may be.
fn shown(text: &str) -> String {
    clean(&tenure_store::profile::why(text)).into_owned()
}

/// A text, unless it is missing or empty.
fn said(text: Option<&String>) -> Option<String> {
    text.filter(|text| !text.is_empty()).cloned()
}

fn holder(claim: &Claim, standing: Standing, now: &Now) -> HolderView {
    let boot = claim.boot();
    let since = claim.since.unwrap_or(claim.entered);
    // A record of another program may say 0, which is no process.
    let pid = claim.holder.process.map(|process| process.pid);
    let pid = pid.filter(|pid| *pid > 0);
    let cancel_actor = claim
        .cancel
        .as_ref()
        .map(|cancel| actor_name(&cancel.actor));
    let mut view = HolderView {
        kind: match claim.kind {
            Kind::Kernel => "run",
            Kind::Detached => "detached",
            Kind::Foreign | Kind::Sealed => "foreign",
        },
        orphaned: false,
        // The caller of this function finds that out.
        stopped: false,
        is_this_process: false,
        pid,
        work_pid: pid,
        supervisor_pid: None,
        other_pid_namespace: is_other_namespace(&claim.holder.host, now),
        is_of_this_boot: now.is_on(boot),
        is_seen_alive: false,
        has_ended: false,
        ends_in_ms: None,
        command_pid: claim.holder.command.map(|process| process.pid),
        request_id: known_as(&claim.holder).to_owned(),
        token: claim.token.filter(|token| *token > 0),
        actor: actor_name(&claim.holder.actor),
        agent: AgentView::of(claim),
        host: claim.holder.host.name.clone(),
        why: claim.holder.why.clone(),
        since: timestamp(since.wall_ms),
        age_ms: since.age_ms(boot, now),
        last_heartbeat: timestamp(claim.lease.renewed.wall_ms),
        ttl_ms: claim.lease.ttl_ms,
        max_age_ms: claim.holder.max_age_ms(),
        cancel_requested: claim.cancel.is_some(),
        cancel_requested_by: claim.cancel.as_ref().map(|cancel| cancel.by.clone()),
        cancel_requested_actor: said(cancel_actor.as_ref()),
        cancel_requested_why: said(claim.cancel.as_ref().map(|cancel| &cancel.why)),
        cancel_requested_kind: claim.cancel.as_ref().map(|cancel| kind(cancel.kind)),
        mode: mode(claim.mode),
        slots: slots(claim.mode),
        slot: claim.slot,
        member: claim.member().map(str::to_owned),
        ticket: claim.ticket,
        since_ms: since.wall_ms,
        renewed_ms: claim.lease.renewed.wall_ms,
        silent_ms: claim.lease.silent_ms(boot, now),
        facts: claim.holder.facts.clone(),
    };
    if standing == Standing::Held(Life::Orphaned) {
        view.is_orphaned();
    }
    view
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
        Mode::Slots(_) => "slots",
    }
}

fn slots(mode: Mode) -> Option<u32> {
    match mode {
        Mode::Exclusive | Mode::Shared => None,
        Mode::Slots(slots) => Some(slots.get()),
    }
}

fn queued(position: usize, claim: &Claim, now: &Now) -> QueueView {
    let boot = claim.boot();
    QueueView {
        position,
        ticket: claim.ticket,
        mode: mode(claim.mode),
        slots: slots(claim.mode),
        away: claim.reservation.is_some(),
        stopped: false,
        pid: claim.holder.process.map(|process| process.pid),
        other_pid_namespace: is_other_namespace(&claim.holder.host, now),
        request_id: claim.holder.request_id.to_string(),
        actor: actor_name(&claim.holder.actor),
        agent: AgentView::of(claim),
        host: claim.holder.host.name.clone(),
        why: claim.holder.why.clone(),
        since: timestamp(claim.entered.wall_ms),
        waiting_ms: claim.entered.age_ms(boot, now),
    }
}

/// An instant of the wall clock. Both for people and for programs it is in the form of RFC 3339, in UTC and to the
/// second. One that no calendar has is said to be unknown.
#[derive(Debug, Clone, Copy)]
pub struct Timestamp {
    wall_ms: u64,
}

/// The instant so many milliseconds after the Unix epoch.
pub fn timestamp(wall_ms: u64) -> Timestamp {
    Timestamp { wall_ms }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Date::of_second(self.wall_ms / 1_000) {
            Some(date) => date.fmt(f),
            None => f.write_str(UNKNOWN),
        }
    }
}

/// An instant that no calendar has.
const UNKNOWN: &str = "an unknown time";

/// `YYYY-MM-DD HH:MM:SS UTC`.
pub fn utc(wall_ms: u64) -> String {
    let date = Date::of_second(wall_ms / 1_000);
    date.map_or_else(|| UNKNOWN.to_owned(), Date::for_people)
}

#[cfg(feature = "full")]
#[allow(
    clippy::ref_option,
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a field so"
)]
fn in_words<S: serde::Serializer>(
    reason: &Option<StaleReason>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&reason.map(stale_reason), serializer)
}

/// Why a claim no longer counts, in words.
pub fn stale_reason(reason: StaleReason) -> &'static str {
    match reason {
        StaleReason::LivenessLockReleased => "it ended without releasing",
        StaleReason::ProcessDead(Death::Rebooted) => "the machine has restarted since",
        StaleReason::ProcessDead(Death::Replaced) => "its PID belongs to another process now",
        StaleReason::ProcessDead(Death::Gone | Death::Zombie) => "its process is dead",
        StaleReason::ProcessUnknown => "its process cannot be checked",
        StaleReason::Silent => "no heartbeat for longer than its ttl; it may be stopped or cut off",
        StaleReason::Aged => "too old",
        StaleReason::Unreadable => "unreadable",
    }
}
