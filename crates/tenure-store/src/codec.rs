//! The list of claims as bytes: what a coordination file keeps, and what a store of your own may keep.
//!
//! ```
//! use tenure_store::codec;
//! use tenure_core::Entry;
//!
//! let bytes = codec::encode(&Entry::default())?;
//! assert_eq!(codec::decode(&bytes)?, Entry::default());
//! # Ok::<(), codec::CodecError>(())
//! ```
//!
//! The body is JSON lines: first the header (the rising counter, past holds), then one claim per line in
//! queue order. A reader skips unknown keys, so an older program reads what a newer one wrote. When the
//! older program writes, it drops those keys, except in claims that it leaves unread. It keeps `facts`, which
//! it copies as it read them. So the number of a slot stands there: lost, it would be given to a second holder.
//!
//! Claims that only a published record shows ([`Kind::Foreign`], [`Kind::Sealed`]) are never written
//! here: for them the record itself counts.

use crate::profile::is_durable;
use memchr::arch::all::memchr::One;
use std::borrow::Cow;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use tenure_core::{
    Cancel, CancelKind, Claim, Entry, Force, History, Holder, Host, Kind, Lease, Mode, Process,
    Queueing, RequestId, Reservation, Stamp, WaitingFor,
};

pub(crate) mod json;

use json::{Json, object};

/// The fact that keeps the number of a slot. It is the last one of a claim that has a slot.
const SLOT: &str = "slot";

/// No claim's line is shorter: its keys alone take more.
const CLAIM_BYTES_MIN: usize = 64;

/// The largest number that every JSON reader keeps exactly.
const NUMBER_MAX: u64 = 1 << 53;

#[derive(PartialEq)]
struct Header<'a> {
    /// [`Marks::durable`]. The first key, so that the beginning of a list shows it ([`has_durable`]).
    durable: bool,
    /// [`Marks::outlives`].
    outlives: bool,
    last: u64,
    holds: u64,
    mean_hold_ms: u64,
    /// When the last hold ended; written only while there are claims.
    ended_ms: Option<u64>,
    ended_boot_ms: Option<u64>,
    /// The hosts of the claims. Each claim names its own by number, so that a thousand waiters on one
    /// machine do not repeat its ids a thousand times.
    hosts: Vec<HostLine<'a>>,
}

#[derive(PartialEq)]
struct HostLine<'a> {
    name: Cow<'a, str>,
    machine_id: Option<Cow<'a, str>>,
    boot_id: Option<Cow<'a, str>>,
    pid_namespace: Option<u64>,
}

#[derive(PartialEq)]
struct CancelLine<'a> {
    by: Cow<'a, str>,
    at_ms: u64,
    at_boot_ms: u64,
    actor: Cow<'a, str>,
    why: Cow<'a, str>,
    /// A newer run asks, and no operator.
    newer: bool,
    grace_ms: Option<u64>,
}

#[derive(PartialEq)]
#[allow(
    clippy::struct_field_names,
    reason = "the unit ends the name of each number"
)]
struct ReservationLine {
    since_ms: u64,
    since_boot_ms: u64,
    grace_ms: u64,
}

#[derive(PartialEq)]
struct WaitingLine<'a> {
    place: Cow<'a, str>,
    name: Cow<'a, str>,
    ticket: u64,
}

/// A claim. `partial` relies on the order of its keys: a new one belongs at the end.
#[derive(PartialEq)]
struct ClaimLine<'a> {
    ticket: u64,
    token: Option<u64>,
    detached: bool,
    request_id: Cow<'a, str>,
    pid: Option<u32>,
    started: Option<u64>,
    command_pid: Option<u32>,
    command_started: Option<u64>,
    actor: Cow<'a, str>,
    host: usize,
    why: Cow<'a, str>,
    entered_ms: u64,
    entered_boot_ms: u64,
    since_ms: Option<u64>,
    since_boot_ms: Option<u64>,
    renewed_ms: Option<u64>,
    renewed_boot_ms: Option<u64>,
    renewals: u64,
    facts: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    ttl_ms: u64,
    force: Option<Cow<'a, str>>,
    /// How many claims may hold at once; 0 means any number of shared claims. An exclusive claim has
    /// none.
    slots: Option<u32>,
    queue: Option<Cow<'a, str>>,
    grace_ms: u64,
    cancel: Option<CancelLine<'a>>,
    /// On disk the field keeps its older name.
    reservation: Option<ReservationLine>,
    waiting_for: Option<WaitingLine<'a>>,
    /// Since when it stands aside while its process is stopped.
    aside_ms: Option<u64>,
    aside_boot_ms: Option<u64>,
}

object! {
    Header<'a>:
    durable "durable",
    outlives "outlives",
    last "last" must,
    holds "holds",
    mean_hold_ms "mean_hold_ms",
    ended_ms "ended_ms",
    ended_boot_ms "ended_boot_ms",
    hosts "hosts",
}

object! {
    HostLine<'a>:
    name "name" must,
    machine_id "machine_id",
    boot_id "boot_id",
    pid_namespace "pid_namespace",
}

object! {
    CancelLine<'a>:
    by "by" must,
    at_ms "at_ms" must,
    at_boot_ms "at_boot_ms" must,
    actor "actor",
    why "why",
    newer "newer",
    grace_ms "grace_ms",
}

object! {
    ReservationLine:
    since_ms "since_ms" must,
    since_boot_ms "since_boot_ms" must,
    grace_ms "grace_ms" must,
}

object! {
    WaitingLine<'a>:
    place "place" must,
    name "name" must,
    ticket "ticket" must,
}

object! {
    ClaimLine<'a>:
    ticket "ticket" must,
    token "token",
    detached "detached",
    request_id "request_id" must,
    pid "pid",
    started "started",
    command_pid "command_pid",
    command_started "command_started",
    actor "actor" must,
    host "host",
    why "why" must,
    entered_ms "entered_ms" must,
    entered_boot_ms "entered_boot_ms" must,
    since_ms "since_ms",
    since_boot_ms "since_boot_ms",
    renewed_ms "renewed_ms",
    renewed_boot_ms "renewed_boot_ms",
    renewals "renewals",
    facts "facts",
    ttl_ms "ttl_ms" must,
    force "force",
    slots "slots",
    queue "queue",
    grace_ms "grace_ms",
    cancel "cancel",
    reservation "away",
    waiting_for "waiting_for",
    aside_ms "aside_ms",
    aside_boot_ms "aside_boot_ms",
}

/// Why bytes are no list of claims, or a list cannot become bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodecError(String);

impl std::fmt::Display for CodecError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl std::error::Error for CodecError {}

impl From<String> for CodecError {
    fn from(why: String) -> Self {
        Self(why)
    }
}

impl From<&str> for CodecError {
    fn from(why: &str) -> Self {
        Self(why.to_owned())
    }
}

impl From<CodecError> for String {
    fn from(error: CodecError) -> Self {
        error.0
    }
}

/// Writes a list as bytes.
///
/// # Errors
/// - [`CodecError`], never in practice: every field is text or a number.
pub fn encode(entry: &Entry) -> Result<Vec<u8>, CodecError> {
    let mut body = Vec::with_capacity(512 * (1 + entry.claims.len()));
    let mut hosts: Vec<&Host> = Vec::new();
    for claim in entry.claims.iter().filter(|claim| is_kept(claim)) {
        if !hosts.contains(&&*claim.holder.host) {
            hosts.push(&*claim.holder.host);
        }
    }
    write_head(&mut body, entry, &hosts, Marks::of(&entry.claims))?;
    for claim in &entry.claims {
        write_claim(&mut body, claim, &hosts);
    }
    Ok(body)
}

/// Writes the header's line.
///
/// # Errors
/// - As [`encode`].
pub(crate) fn write_head(
    body: &mut Vec<u8>,
    entry: &Entry,
    hosts: &[&Host],
    marks: Marks,
) -> Result<(), CodecError> {
    if entry.last > NUMBER_MAX {
        return Err("its counter is out of range, and no caller could read it again".into());
    }
    // Claims name hosts. Without hosts there is no claim that waits for its turn.
    let ended = entry.ended.filter(|_| !hosts.is_empty());
    let header = Header {
        durable: marks.durable,
        outlives: marks.outlives,
        last: entry.last,
        holds: entry.history.holds,
        mean_hold_ms: entry.history.mean_ms,
        ended_ms: ended.map(|ended| ended.wall_ms),
        ended_boot_ms: boot_ms_of(ended),
        hosts: hosts.iter().map(|host| host_line(host)).collect(),
    };
    write_line(body, &header);
    Ok(())
}

/// Writes a claim's line, if the list keeps claims of its kind.
pub(crate) fn write_claim(body: &mut Vec<u8>, claim: &Claim, hosts: &[&Host]) {
    if is_kept(claim) {
        let host = hosts.iter().position(|host| **host == *claim.holder.host);
        write_line(body, &line(claim, host.unwrap_or(0)));
    }
}

fn write_line<'a>(body: &mut Vec<u8>, line: &impl Json<'a>) {
    line.write(body);
    body.push(b'\n');
}

fn is_kept(claim: &Claim) -> bool {
    matches!(claim.kind, Kind::Kernel | Kind::Detached)
}

fn host_line(host: &Host) -> HostLine<'_> {
    HostLine {
        name: Cow::Borrowed(&host.name),
        machine_id: host.machine_id.as_deref().map(Cow::Borrowed),
        boot_id: host.boot_id.as_deref().map(Cow::Borrowed),
        pid_namespace: host.pid_namespace,
    }
}

fn line(claim: &Claim, host: usize) -> ClaimLine<'_> {
    let holder = &claim.holder;
    // Until a claim is renewed, its last sign of life is the last thing that happened to it.
    let last = claim.since.unwrap_or(claim.entered);
    let renewed = Some(claim.lease.renewed).filter(|renewed| *renewed != last);
    ClaimLine {
        ticket: claim.ticket,
        token: claim.token,
        detached: claim.kind == Kind::Detached,
        request_id: Cow::Borrowed(holder.request_id.as_str()),
        pid: holder.process.map(|process| process.pid),
        started: holder.process.and_then(|process| process.started),
        command_pid: holder.command.map(|command| command.pid),
        command_started: holder.command.and_then(|command| command.started),
        actor: Cow::Borrowed(&holder.actor),
        host,
        why: Cow::Borrowed(&holder.why),
        entered_ms: claim.entered.wall_ms,
        entered_boot_ms: claim.entered.boot_ms,
        since_ms: claim.since.map(|since| since.wall_ms),
        since_boot_ms: claim.since.map(|since| since.boot_ms),
        renewed_ms: renewed.map(|renewed| renewed.wall_ms),
        renewed_boot_ms: renewed
            .map(|renewed| renewed.boot_ms)
            .filter(|boot_ms| *boot_ms != Stamp::OTHER_BOOT),
        renewals: claim.lease.renewals,
        facts: holder
            .facts
            .iter()
            .map(|(key, value)| (Cow::Borrowed(key.as_str()), Cow::Borrowed(value.as_str())))
            .chain(
                claim
                    .slot
                    .map(|slot| (Cow::Borrowed(SLOT), Cow::Owned(slot.to_string()))),
            )
            .collect(),
        ttl_ms: claim.lease.ttl_ms,
        force: match claim.force {
            Force::No => None,
            Force::Asked => Some(Cow::Borrowed("asked")),
            Force::Confirmed => Some(Cow::Borrowed("confirmed")),
        },
        slots: match claim.mode {
            Mode::Exclusive => None,
            Mode::Shared => Some(0),
            Mode::Slots(slots) => Some(slots.get()),
        },
        queue: match claim.queueing {
            Queueing::Fifo => None,
            Queueing::Single => Some(Cow::Borrowed("single")),
            Queueing::Max => Some(Cow::Borrowed("max")),
        },
        grace_ms: claim.grace_ms,
        cancel: claim.cancel.as_ref().map(|cancel| CancelLine {
            by: Cow::Borrowed(&cancel.by),
            at_ms: cancel.at.wall_ms,
            at_boot_ms: cancel.at.boot_ms,
            actor: Cow::Borrowed(&cancel.actor),
            why: Cow::Borrowed(&cancel.why),
            newer: cancel.kind == CancelKind::NewerRun,
            grace_ms: cancel.grace_ms,
        }),
        reservation: claim.reservation.map(|reservation| ReservationLine {
            since_ms: reservation.since.wall_ms,
            since_boot_ms: reservation.since.boot_ms,
            grace_ms: reservation.grace_ms,
        }),
        waiting_for: claim.waiting_for.as_ref().map(|waiting| WaitingLine {
            place: Cow::Borrowed(&waiting.place),
            name: Cow::Borrowed(&waiting.name),
            ticket: waiting.ticket,
        }),
        aside_ms: claim.aside.map(|aside| aside.wall_ms),
        aside_boot_ms: boot_ms_of(claim.aside),
    }
}

/// What the boot clock showed, if the boot is the one that the record names.
fn boot_ms_of(stamp: Option<Stamp>) -> Option<u64> {
    stamp
        .map(|stamp| stamp.boot_ms)
        .filter(|boot_ms| *boot_ms != Stamp::OTHER_BOOT)
}

/// Reads a list back. No bytes are an empty list.
///
/// # Errors
/// - [`CodecError`] says what cannot be understood.
pub fn decode(body: &[u8]) -> Result<Entry, CodecError> {
    if body.is_empty() {
        return Ok(Entry::default());
    }
    let lines = body.split(|byte| *byte == b'\n');
    // Empty lines, which another program may have written, are no claims.
    let mut lines = lines.filter(|line| !line.is_empty());
    let first = lines.next().ok_or("it has no header")?;
    let Head {
        mut entry, hosts, ..
    } = read_head(first)?;
    // A line for each claim behind that of the header. Without any there is room for the first one.
    let claims = One::new(b'\n').count(body);
    let claims = claims.saturating_sub(1).min(body.len() / CLAIM_BYTES_MIN);
    entry.claims.reserve_exact(claims.max(1));
    for line in lines {
        let claim = read_claim(line, &hosts)?;
        if claim.ticket == 0 || claim.ticket > entry.last {
            return Err("a ticket was never drawn".into());
        }
        let last = entry.claims.last();
        if last.is_some_and(|last| last.ticket >= claim.ticket) {
            return Err("its claims are not in the order of their tickets".into());
        }
        entry.claims.push(claim);
    }
    Ok(entry)
}

/// A list without its claims, and the hosts that they name by number.
pub(crate) struct Head {
    pub(crate) entry: Entry,
    pub(crate) hosts: Vec<Arc<Host>>,
    pub(crate) marks: Marks,
}

/// What a header says of the claims behind it, for a reader that does not see all of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// Whether one of the claims is a hold that no power cut may end.
    pub(crate) durable: bool,
    /// Whether one of the claims has no process, and so does not end with the machine.
    pub(crate) outlives: bool,
}

impl Marks {
    pub(crate) fn of(claims: &[Claim]) -> Self {
        Self {
            durable: claims.iter().any(is_durable),
            outlives: (claims.iter())
                .any(|claim| claim.kind == Kind::Detached && claim.holder.process.is_none()),
        }
    }

    /// Joins the marks of two parts of a list.
    pub(crate) fn and(self, others: Self) -> Self {
        Self {
            durable: self.durable || others.durable,
            outlives: self.outlives || others.outlives,
        }
    }
}

/// Whether the list in these bytes has a hold that no power cut may end.
pub(crate) fn has_durable(list: &[u8]) -> bool {
    list.starts_with(b"{\"durable\":true,")
}

/// Reads the header's line.
///
/// # Errors
/// - A sentence that says what cannot be understood.
pub(crate) fn read_head(line: &[u8]) -> Result<Head, String> {
    let header: Header<'_> = json::read(line).map_err(|wrong| format!("its header: {wrong}"))?;
    if header.last > NUMBER_MAX {
        return Err("its counter is out of range".to_owned());
    }
    Ok(Head {
        entry: Entry {
            last: header.last,
            history: History {
                holds: header.holds,
                mean_ms: header.mean_hold_ms,
            },
            ended: header.ended_ms.map(|wall_ms| Stamp {
                wall_ms,
                boot_ms: header.ended_boot_ms.unwrap_or(Stamp::OTHER_BOOT),
            }),
            claims: Vec::new(),
        },
        hosts: header.hosts.into_iter().map(host).collect(),
        marks: Marks {
            durable: header.durable,
            outlives: header.outlives,
        },
    })
}

/// Reads a claim's line.
///
/// # Errors
/// - A sentence that says what cannot be understood.
pub(crate) fn read_claim(line: &[u8], hosts: &[Arc<Host>]) -> Result<Claim, String> {
    let line: ClaimLine<'_> = json::read(line).map_err(|wrong| format!("a claim: {wrong}"))?;
    let host = hosts.get(line.host).ok_or("a claim names no host")?;
    claim(line, Arc::clone(host))
}

/// The host that was read last. Mostly the next list names the same one. It is kept for the process and not for each
/// thread: the first value with a destructor that a thread keeps takes six system calls, for the list of those.
static LAST_HOST: Mutex<Option<Arc<Host>>> = Mutex::new(None);

fn host(line: HostLine<'_>) -> Arc<Host> {
    // While another thread looks, or in the copy that a fork made in the middle of a look, the host is made anew.
    let mut last = LAST_HOST.try_lock().ok();
    let known = last.as_deref().and_then(Option::as_ref);
    if let Some(known) = known.filter(|known| line.is(known)) {
        return Arc::clone(known);
    }
    let host = Arc::new(Host {
        name: line.name.into_owned(),
        machine_id: line.machine_id.map(Cow::into_owned),
        boot_id: line.boot_id.map(Cow::into_owned),
        pid_namespace: line.pid_namespace,
    });
    if let Some(last) = &mut last {
        **last = Some(Arc::clone(&host));
    }
    host
}

impl HostLine<'_> {
    fn is(&self, host: &Host) -> bool {
        self.name == host.name
            && self.machine_id.as_deref() == host.machine_id.as_deref()
            && self.boot_id.as_deref() == host.boot_id.as_deref()
            && self.pid_namespace == host.pid_namespace
    }
}

fn claim(line: ClaimLine<'_>, host: Arc<Host>) -> Result<Claim, String> {
    let stamp = |wall_ms, boot_ms| Stamp { wall_ms, boot_ms };
    let entered = stamp(line.entered_ms, line.entered_boot_ms);
    let since = line
        .since_ms
        .map(|wall| stamp(wall, line.since_boot_ms.unwrap_or(Stamp::OTHER_BOOT)));
    Ok({
        let mut claim = Claim::new(
            line.ticket,
            if line.detached {
                Kind::Detached
            } else {
                Kind::Kernel
            },
            Holder {
                request_id: RequestId::new(line.request_id)
                    .map_err(|error| format!("a request id: {error}"))?,
                actor: line.actor.into_owned(),
                process: line.pid.map(|pid| Process {
                    pid,
                    started: line.started,
                }),
                command: line.command_pid.map(|pid| Process {
                    pid,
                    started: line.command_started,
                }),
                host,
                why: line.why.into_owned(),
                facts: line
                    .facts
                    .into_iter()
                    .map(|(key, value)| (key.into_owned(), value.into_owned()))
                    .collect(),
            },
            entered,
            Lease {
                ttl_ms: line.ttl_ms,
                renewed: line.renewed_ms.map_or_else(
                    || since.unwrap_or(entered),
                    |wall| stamp(wall, line.renewed_boot_ms.unwrap_or(Stamp::OTHER_BOOT)),
                ),
                renewals: line.renewals,
            },
        );
        claim.token = line.token;
        claim.since = since;
        claim.force = match line.force.as_deref() {
            Some("confirmed") => Force::Confirmed,
            Some("asked") => Force::Asked,
            _ => Force::No,
        };
        claim.mode = match line.slots {
            None => Mode::Exclusive,
            Some(slots) => NonZeroU32::new(slots).map_or(Mode::Shared, Mode::Slots),
        };
        claim.slot = slot(claim.mode, &mut claim.holder.facts);
        claim.queueing = match line.queue.as_deref() {
            Some("single") => Queueing::Single,
            Some("max") => Queueing::Max,
            _ => Queueing::Fifo,
        };
        claim.grace_ms = line.grace_ms;
        claim.cancel = line.cancel.map(|cancel| Cancel {
            by: cancel.by.into_owned(),
            at: stamp(cancel.at_ms, cancel.at_boot_ms),
            actor: cancel.actor.into_owned(),
            why: cancel.why.into_owned(),
            kind: if cancel.newer {
                CancelKind::NewerRun
            } else {
                CancelKind::Operator
            },
            grace_ms: cancel.grace_ms,
        });
        claim.reservation = line.reservation.map(|away| Reservation {
            since: stamp(away.since_ms, away.since_boot_ms),
            grace_ms: away.grace_ms,
        });
        claim.waiting_for = line.waiting_for.map(|waiting| WaitingFor {
            place: waiting.place.into_owned(),
            name: waiting.name.into_owned(),
            ticket: waiting.ticket,
        });
        claim.aside = line
            .aside_ms
            .map(|wall| stamp(wall, line.aside_boot_ms.unwrap_or(Stamp::OTHER_BOOT)));
        claim
    })
}

/// Takes the number of a claim's slot out of its facts. In another mode the fact is the caller's own.
fn slot(mode: Mode, facts: &mut Vec<(String, String)>) -> Option<u32> {
    match mode {
        Mode::Exclusive | Mode::Shared => return None,
        Mode::Slots(_) => {}
    }
    let (key, value) = facts.last()?;
    // Only as it is written: another text would be read and then be lost.
    let number: u32 = value.parse().ok().filter(|_| key == SLOT)?;
    (number.to_string() == *value).then(|| {
        facts.pop();
        number
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A list of one claim that has everything a claim can have.
    pub(crate) fn sample() -> Entry {
        let stamp = Stamp {
            wall_ms: 1_795_000_000_000,
            boot_ms: 5_000,
        };
        Entry {
            last: 1_795_000_000_000_002,
            history: History {
                holds: 3,
                mean_ms: 40,
            },
            ended: Some(stamp),
            claims: vec![{
                let mut claim = Claim::new(
                    1_795_000_000_000_001,
                    Kind::Kernel,
                    Holder {
                        request_id: RequestId::new("req_1").expect("an id"),
                        actor: "a \"quoted\"\nname".into(),
                        process: Some(Process {
                            pid: 7,
                            started: Some(70),
                        }),
                        command: Some(Process {
                            pid: 8,
                            started: None,
                        }),
                        host: Arc::new(Host {
                            name: "host".into(),
                            machine_id: None,
                            boot_id: Some("boot".into()),
                            pid_namespace: Some(9),
                        }),
                        why: "./backup.sh".into(),
                        facts: vec![("intent".into(), "deploy".into())],
                    },
                    stamp,
                    Lease {
                        ttl_ms: 30_000,
                        renewed: stamp,
                        renewals: 3,
                    },
                );
                claim.token = Some(1_795_000_000_000_002);
                claim.since = Some(stamp);
                claim.force = Force::Asked;
                claim.mode = NonZeroU32::new(3).map_or(Mode::Shared, Mode::Slots);
                claim.slot = Some(2);
                claim.queueing = Queueing::Single;
                claim.cancel = Some(Cancel {
                    by: "someone".into(),
                    at: stamp,
                    actor: "ada".into(),
                    why: "it says \"actor\":\"b\" and more".into(),
                    kind: CancelKind::NewerRun,
                    grace_ms: Some(2_000),
                });
                claim.reservation = Some(Reservation {
                    since: stamp,
                    grace_ms: 60_000,
                });
                claim.waiting_for = Some(WaitingFor {
                    place: "/a\nplace".into(),
                    name: "other".into(),
                    ticket: 7,
                });
                claim.aside = Some(stamp);
                claim
            }],
        }
    }

    /// Reading and writing name each field of a claim by hand. This test finds a new field that the
    /// sample lacks.
    #[test]
    fn the_sample_has_everything_that_a_claim_can_have() {
        let mut claims = sample().claims;
        let mut full = claims.pop().expect("one claim");
        // The sample leaves it out; the modes and queues below bring it.
        full.grace_ms = 10_000;
        let holder = Holder {
            request_id: RequestId::new("other").expect("an id"),
            actor: String::new(),
            process: None,
            command: None,
            host: Arc::default(),
            why: String::new(),
            facts: Vec::new(),
        };
        let lease = Lease {
            ttl_ms: 0,
            renewed: Stamp::default(),
            renewals: 0,
        };
        let bare = Claim::new(0, Kind::Detached, holder, Stamp::default(), lease);
        let parts = |claim: &Claim| {
            let text = format!("{claim:#?}");
            let parts: Vec<_> = text.split("\n    ").map(str::to_owned).collect();
            let mut fields: Vec<String> = Vec::new();
            for part in parts.into_iter().skip(1) {
                match fields.last_mut() {
                    // A field further in, or the end of one.
                    Some(field) if part.starts_with([' ', '}', ')', ']']) => field.push_str(&part),
                    _ => fields.push(part),
                }
            }
            // The store says this of a claim; no record does.
            fields.retain(|field| !field.starts_with("is_of_ended_boot"));
            fields
        };
        let (full, bare) = (parts(&full), parts(&bare));
        assert_eq!(full.len(), bare.len(), "{full:?}");
        assert!(full.len() > 10, "{full:?}");
        for (full, bare) in full.iter().zip(&bare) {
            assert_ne!(full, bare, "as in a claim of which nothing is said");
        }
    }

    #[test]
    fn a_list_comes_back_as_it_was_written() {
        let entry = sample();
        let body = encode(&entry).expect("a body");
        assert_eq!(decode(&body), Ok(entry));
    }

    #[test]
    fn every_mode_and_queue_comes_back_as_it_was_written() {
        let modes = [
            Mode::Exclusive,
            Mode::Shared,
            Mode::Slots(NonZeroU32::MIN),
            Mode::Slots(NonZeroU32::MAX),
        ];
        let queues = [Queueing::Fifo, Queueing::Single, Queueing::Max];
        for (mode, queueing) in modes
            .into_iter()
            .flat_map(|mode| queues.map(|queueing| (mode, queueing)))
        {
            let mut entry = sample();
            for claim in &mut entry.claims {
                (claim.mode, claim.queueing, claim.grace_ms) = (mode, queueing, 10_000);
                claim.slot = match mode {
                    Mode::Exclusive | Mode::Shared => None,
                    Mode::Slots(slots) => Some(slots.get() - 1),
                };
            }
            let body = encode(&entry).expect("a body");
            assert_eq!(decode(&body), Ok(entry), "{mode:?}, {queueing:?}");
        }
    }

    /// The lines of a body, each after this change to its object.
    fn rewritten(
        body: &[u8],
        change: impl Fn(&mut serde_json::Map<String, serde_json::Value>),
    ) -> Vec<u8> {
        let lines = body
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        let mut rewritten = Vec::new();
        for line in lines {
            let mut object = serde_json::from_slice(line).expect("an object");
            change(&mut object);
            serde_json::to_writer(&mut rewritten, &object).expect("a line");
            rewritten.push(b'\n');
        }
        rewritten
    }

    /// A program that does not know the later keys takes such a claim for an exclusive one that blocks
    /// it. So it waits where it need not, and never lets a claim in wrongly.
    #[test]
    fn without_the_later_keys_every_claim_is_there_and_plain() {
        let entry = sample();
        let body = rewritten(&encode(&entry).expect("a body"), |line| {
            for later in [
                "slots",
                "queue",
                "grace_ms",
                "cancel",
                "away",
                "waiting_for",
            ] {
                line.remove(later);
            }
        });
        let mut plain = entry;
        for claim in &mut plain.claims {
            (claim.mode, claim.queueing) = (Mode::Exclusive, Queueing::Fifo);
            // A version without numbers takes the number for a fact, which it keeps.
            let number = claim.slot.take().map(|slot| slot.to_string());
            claim
                .holder
                .facts
                .extend(number.map(|number| (SLOT.to_owned(), number)));
            (claim.cancel, claim.reservation, claim.waiting_for) = (None, None, None);
        }
        assert_eq!(decode(&body), Ok(plain));
    }

    /// As versions wrote it that recorded only the id of the caller that asks.
    #[test]
    fn a_request_to_stop_without_a_name_and_a_reason_is_one() {
        let entry = sample();
        let body = rewritten(&encode(&entry).expect("a body"), |line| {
            let cancel = line
                .get_mut("cancel")
                .and_then(serde_json::Value::as_object_mut);
            if let Some(cancel) = cancel {
                cancel.remove("actor");
                cancel.remove("why");
                cancel.remove("newer");
                cancel.remove("grace_ms");
            }
        });
        let mut bare = entry;
        for cancel in bare
            .claims
            .iter_mut()
            .filter_map(|claim| claim.cancel.as_mut())
        {
            cancel.actor.clear();
            cancel.why.clear();
            (cancel.kind, cancel.grace_ms) = (CancelKind::Operator, None);
        }
        assert_eq!(decode(&body), Ok(bare.clone()));
        let text = String::from_utf8(encode(&bare).expect("a body")).expect("text");
        assert!(
            text.contains(r#""cancel":{"by":"someone","at_ms":1795000000000,"at_boot_ms":5000}"#),
            "what was not said is not written: {text}"
        );
    }

    #[test]
    fn a_plain_claim_has_none_of_the_later_keys() {
        let mut entry = sample();
        for claim in &mut entry.claims {
            (claim.mode, claim.queueing) = (Mode::Exclusive, Queueing::Fifo);
            claim.slot = None;
            (claim.cancel, claim.reservation, claim.waiting_for) = (None, None, None);
        }
        let body = String::from_utf8(encode(&entry).expect("a body")).expect("text");
        for later in [
            "slots",
            "queue",
            "grace_ms",
            "cancel",
            "away",
            "waiting_for",
        ] {
            let key = format!("{later:?}:");
            assert!(!body.contains(&key), "{key} in {body}");
        }
    }

    /// A version without numbers copies the facts of every claim that it writes. So the number of a live hold
    /// outlives its changes, and is not given to a second holder.
    #[test]
    fn a_version_without_numbers_keeps_them() {
        let entry = sample();
        let written = encode(&entry).expect("a body");
        let text = String::from_utf8(written.clone()).expect("text");
        let facts = r#""facts":[["intent","deploy"],["slot","2"]]"#;
        assert!(
            text.contains(facts),
            "what that version reads and writes: {text}"
        );
        assert_eq!(decode(&written), Ok(entry.clone()));
        // The holds of that version have no number.
        let theirs = text.replace(r#",["slot","2"]"#, "");
        let mut bare = entry;
        bare.claims.iter_mut().for_each(|claim| claim.slot = None);
        assert_eq!(decode(theirs.as_bytes()), Ok(bare));
    }

    #[test]
    fn only_a_claim_of_slots_has_a_number_and_no_other_fact_is_taken_for_one() {
        for (mode, fact, number) in [
            (Mode::Slots(NonZeroU32::MIN), ("slot", "0"), Some(0)),
            (Mode::Slots(NonZeroU32::MIN), ("slot", "00"), None),
            (Mode::Slots(NonZeroU32::MIN), ("slot", "+1"), None),
            (Mode::Slots(NonZeroU32::MIN), ("slot", "gpu"), None),
            (Mode::Slots(NonZeroU32::MIN), ("number", "1"), None),
            (Mode::Exclusive, ("slot", "1"), None),
            (Mode::Shared, ("slot", "1"), None),
        ] {
            let mut entry = sample();
            for claim in &mut entry.claims {
                (claim.mode, claim.slot) = (mode, None);
                let (key, value) = fact;
                claim.holder.facts.push((key.to_owned(), value.to_owned()));
            }
            let body = encode(&entry).expect("a body");
            let read = decode(&body).expect("a list");
            let slot = read.claims.first().expect("a claim").slot;
            assert_eq!(slot, number, "{mode:?}, {fact:?}");
            assert_eq!(encode(&read).expect("a body"), body, "{mode:?}, {fact:?}");
        }
    }

    fn text_of(entry: &Entry) -> String {
        String::from_utf8(encode(entry).expect("a body")).expect("text")
    }

    /// A list is only as long as it has to be, because each change may read a thousand waiters.
    #[test]
    fn what_is_as_usual_is_not_written() {
        let mut entry = sample();
        entry.history = History::default();
        for claim in &mut entry.claims {
            claim.lease.renewals = 0;
            claim.force = Force::No;
        }
        let body = text_of(&entry);
        for usual in [
            "holds",
            "mean_hold_ms",
            "detached",
            "host",
            "renewals",
            "renewed_ms",
            "force",
        ] {
            let key = format!("{usual:?}:");
            assert!(!body.contains(&key), "{key} in {body}");
        }
        assert_eq!(decode(body.as_bytes()), Ok(entry));
    }

    #[test]
    fn every_way_to_insist_and_every_renewal_comes_back_as_it_was_written() {
        let later = |boot_ms| Stamp {
            wall_ms: 1_795_000_000_500,
            boot_ms,
        };
        for force in [Force::No, Force::Asked, Force::Confirmed] {
            for renewed in [later(5_500), later(Stamp::OTHER_BOOT)] {
                let mut entry = sample();
                for claim in &mut entry.claims {
                    claim.force = force;
                    claim.lease.renewed = renewed;
                }
                assert_eq!(decode(text_of(&entry).as_bytes()), Ok(entry), "{force:?}");
            }
        }
        // Before the grant, its last sign of life is that it entered.
        let mut waits = sample();
        for claim in &mut waits.claims {
            (claim.token, claim.since) = (None, None);
        }
        assert_eq!(decode(text_of(&waits).as_bytes()), Ok(waits));
    }

    #[test]
    fn claims_of_several_hosts_keep_their_own_and_each_host_is_named_once() {
        let mut entry = sample();
        for (number, name) in ["host", "other", "host"].into_iter().enumerate() {
            let mut claim = sample().claims.remove(0);
            claim.kind = Kind::Detached;
            claim.ticket += 1 + number as u64;
            Arc::make_mut(&mut claim.holder.host).name = name.into();
            entry.last = claim.ticket;
            entry.claims.push(claim);
        }
        let body = text_of(&entry);
        assert_eq!(body.matches("pid_namespace").count(), 2, "{body}");
        assert_eq!(decode(body.as_bytes()), Ok(entry));
    }

    #[test]
    fn what_only_a_record_shows_is_not_written() {
        for kind in [Kind::Foreign, Kind::Sealed] {
            let mut entry = sample();
            for claim in &mut entry.claims {
                claim.kind = kind;
            }
            let body = encode(&entry).expect("a body");
            entry.claims.clear();
            // Nor when the last hold ended, because no claim waits.
            entry.ended = None;
            assert_eq!(decode(&body), Ok(entry), "{kind:?}");
        }
    }

    #[test]
    fn a_ticket_was_drawn_from_the_counter_and_the_counter_stays_exact() {
        let ticketed = |ticket: u64, last: u64| {
            let mut entry = sample();
            entry.last = last;
            for claim in &mut entry.claims {
                claim.ticket = ticket;
            }
            encode(&entry).is_ok_and(|body| decode(&body).is_ok())
        };
        assert!(ticketed(1, 2) && ticketed(2, 2));
        assert!(!ticketed(3, 2), "it was never drawn");
        assert!(!ticketed(0, 2), "it begins at 1");
        assert!(ticketed(1, NUMBER_MAX));
        assert!(!ticketed(1, NUMBER_MAX + 1), "no JSON reader keeps it");
        let beyond = text_of(&sample()).replacen("\"last\":", "\"last\":90071992547409", 1);
        assert!(decode(beyond.as_bytes()).is_err(), "{beyond}");
    }

    #[test]
    fn keys_of_a_later_version_change_nothing() {
        let entry = sample();
        let body = rewritten(&encode(&entry).expect("a body"), |line| {
            line.insert("later".into(), serde_json::json!({"deep": [1, null]}));
        });
        assert_eq!(decode(&body), Ok(entry));
    }

    #[test]
    fn a_newline_in_a_field_cannot_begin_a_line_of_its_own() {
        let body = encode(&sample()).expect("a body");
        let lines = body.split_inclusive(|byte| *byte == b'\n').count();
        assert_eq!(lines, 2, "the header and one claim");
    }

    #[test]
    fn claims_out_of_order_are_not_a_list() {
        let mut entry = sample();
        let mut second = entry.claims.first().expect("a claim").clone();
        second.ticket -= 1;
        entry.claims.push(second);
        let body = encode(&entry).expect("a body");
        assert!(decode(&body).is_err());
    }

    #[test]
    fn unknown_keys_are_skipped_and_missing_ones_are_not_guessed() {
        assert!(decode(b"{\"last\":4,\"later\":true}\n").is_ok());
        assert!(decode(b"{\"holds\":4}\n").is_err(), "no counter");
        assert!(decode(b"{\"last\":4}\n{\"ticket\":1}\n").is_err());
    }

    #[test]
    fn what_is_wrong_is_said_alike_by_the_error_and_by_its_text() {
        let error = decode(b"{\"holds\":4}\n").expect_err("no counter");
        let text = error.to_string();
        assert!(text.contains("missing field `last`"), "{text}");
        assert_eq!(String::from(error), text);
    }

    /// Another user may write empty lines, and a claim takes far more memory than a line break.
    #[test]
    fn a_list_takes_room_for_as_many_claims_as_it_has_and_little_for_empty_lines() {
        let mut entry = sample();
        let claim = entry.claims.remove(0);
        for ticket in 1..=100 {
            let mut claim = claim.clone();
            claim.ticket = ticket;
            entry.claims.push(claim);
        }
        let read = decode(&encode(&entry).expect("a body")).expect("a list");
        assert!((100..110).contains(&read.claims.capacity()));
        let empty = [b"{\"last\":4}\n".as_slice(), &[b'\n'; 6_400]].concat();
        let read = decode(&empty).expect("a list");
        assert!((1..=110).contains(&read.claims.capacity()));
    }

    #[test]
    fn a_list_shares_its_host_with_the_list_before_it_where_all_of_the_host_is_the_same() {
        let changes: [fn(&mut Host); 8] = [
            |_| {},
            |host| host.name = "other".into(),
            |host| host.machine_id = Some("machine".into()),
            |host| host.machine_id = Some("another".into()),
            |host| host.boot_id = None,
            |host| host.boot_id = Some("later".into()),
            |host| host.pid_namespace = None,
            |host| host.pid_namespace = Some(10),
        ];
        let hosts = changes.map(|change| {
            let mut host = Arc::unwrap_or_clone(sample().claims.remove(0).holder.host);
            change(&mut host);
            host
        });
        let read = |host: &Host| {
            let mut entry = sample();
            entry.claims[0].holder.host = Arc::new(host.clone());
            let body = encode(&entry).expect("a body");
            let read = decode(&body).expect("a list").claims.remove(0);
            read.holder.host
        };
        for (before, host) in hosts.iter().flat_map(|a| hosts.iter().map(move |b| (a, b))) {
            read(before);
            assert_eq!(*read(host), *host, "after {before:?}");
        }
        // Another test may read its own list in between.
        let is_shared = |host| (0..1_000).any(|_| Arc::ptr_eq(&read(host), &read(host)));
        assert!(hosts.iter().all(is_shared));
    }
}
