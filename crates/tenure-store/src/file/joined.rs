//! A lock's list and its published record, brought together.
//!
//! # The record is the truth about the holder
//! Where a profile publishes, the owner of the record at the path holds, whatever our list says: other
//! programs judge by that record. So list and record are brought together each time they are read:
//! - the record carries the token of a granted claim in the list: that claim holds, and the record's
//!   times and process count;
//! - the record has another owner: it becomes a claim of the kind `Foreign` before all others, and a
//!   granted claim in the list has lost its hold;
//! - there is no record: no claim holds, and a granted claim in the list has lost its hold.
//!
//! # What a power cut leaves
//! After a cut a record may be there without its bytes, with zeros, or with a part of them. What it is then, [`damage`]
//! alone says, for all formats: what can be read of the record counts, then what the list says of that hold, then that
//! nobody can have it. Whoever could empty a record could have removed it, and no program keeps an empty one while it works.
//! File times prove nothing more, for a clock may be set after the boot.

use super::publication::Published;
use crate::profile::FUTURE;
use crate::profile::Record;
use std::time::Duration;
use tenure_core::{
    Claim, Entry, Event, Host, Kind, LockName, Now, Policy, Silence, Stamp, UnknownLife,
    UnreadableRule,
};

/// How long content that cannot be understood is read again before it is judged: another program may be
/// writing it at this instant.
pub(super) const SETTLE: Duration = Duration::from_secs(2);

/// The highest token that a record is believed to carry. It is half of what JSON readers keep exactly,
/// and in microseconds it is the year 2112.
const TOKEN_BELIEVED_MAX: u64 = 1 << 52;

/// By what a list and a record are brought together.
pub(super) struct JoinContext<'a> {
    pub(super) name: &'a LockName,
    pub(super) format: &'a dyn Record,
    pub(super) policy: &'a Policy,
    pub(super) now: &'a Now,
    pub(super) here: &'a Host,
    /// Whether a process has a byte of the list.
    pub(super) is_kept: &'a dyn Fn() -> bool,
}

/// Brings a list together with the record at the path. See the module's documentation.
///
/// # Errors
/// - [`Broken`] says what is wrong with the record. Then no claim of the list holds.
pub(super) fn join(
    entry: &mut Entry,
    published: Option<&Published>,
    around: &JoinContext<'_>,
) -> Result<(), Broken> {
    let &JoinContext {
        name,
        format,
        now,
        here,
        ..
    } = around;
    let mut claims = entry.claims.iter().enumerate();
    let held = claims.find(|(_, claim)| claim.token.is_some());
    let held = held.map(|(place, claim)| (place, claim.clone()));
    entry.claims.retain(|claim| claim.token.is_none());
    let Some(published) = published else {
        return Ok(());
    };
    let shown = if published.is_too_long {
        Err("it is too long to be a record".to_owned())
    } else {
        let shown = format.decode(name, &published.bytes, now, here);
        shown.or_else(|why| {
            let (_, held) = held.as_ref().ok_or_else(|| why.clone())?;
            as_written(held, published, around).ok_or(why)
        })
    };
    let shown = match shown {
        Ok(shown) => shown,
        Err(why) => {
            let listed = held.as_ref().map(|(_, held)| held);
            match (damage(published, listed, &entry.claims, around), held) {
                (Damage::Nobodys, _) => {}
                (Damage::Listed, Some((place, held))) => entry.claims.insert(place, held),
                (Damage::Listed, None) => return Err(Broken::list(why)),
                (Damage::Unknown(silence), _) => return Err(Broken { why, silence }),
            }
            return Ok(());
        }
    };
    let token = shown.token.unwrap_or(0);
    // A number that no clock of ours gives would leave no room for later numbers.
    if token <= TOKEN_BELIEVED_MAX {
        entry.raise(token);
    }
    // Our claim keeps its place, behind reserved places of callers that are away. Another program's
    // record has no ticket, and stands before all claims.
    let (place, claim) = match held {
        Some((place, held)) if is_of(&shown, &held) => (place, merged(held, shown, format)),
        _ => (0, shown),
    };
    entry.claims.insert(place, claim);
    Ok(())
}

/// A record as our list wrote it, by the clock of that instant. The boot clock knows how old it is, so it is not of the
/// future, however far the wall clock was set back since. `None` if another program has renewed it, or its boot is another
/// machine's.
fn as_written(held: &Claim, published: &Published, around: &JoinContext<'_>) -> Option<Claim> {
    let &JoinContext {
        name,
        format,
        now,
        here,
        ..
    } = around;
    let renewed = held.lease.renewed;
    let is_known = now.is_on(held.boot()) || held.is_of_ended_boot;
    if !is_known || renewed.boot_ms == Stamp::OTHER_BOOT {
        return None;
    }
    let then = Now {
        wall_us: renewed.wall_ms.saturating_mul(1_000),
        ..now.clone()
    };
    let shown = format.decode(name, &published.bytes, &then, here).ok()?;
    let is_unchanged = is_of(&shown, held) && same_instant(renewed, shown.lease.renewed) == renewed;
    is_unchanged.then_some(shown)
}

/// What a record is that cannot be read.
enum Damage {
    /// Nobody's.
    Nobodys,
    /// The record of the hold in the list, which is judged in its place.
    Listed,
    /// The policy judges it by how long its holder has been silent.
    Unknown(Silence),
}

/// Judges a record that cannot be read, by what stands in the list beside it.
fn damage(
    published: &Published,
    held: Option<&Claim>,
    waiting: &[Claim],
    around: &JoinContext<'_>,
) -> Damage {
    let &JoinContext {
        format,
        policy,
        now,
        is_kept,
        ..
    } = around;
    let now_ms = now.stamp().wall_ms;
    let written_ms = now_ms.saturating_sub(published.modified_ms);
    // A program that truncates and then writes may be in between.
    let is_settled = u128::from(written_ms) >= SETTLE.as_millis();
    let has_ended = |claim: &Claim| is_settled && claim.is_of_ended_boot;
    if let Some(signs) = format.signs(&published.bytes, now) {
        let renewed_ms = signs.renewed_ms.map(|at| now_ms.saturating_sub(at));
        return Damage::Unknown(Silence {
            silent_ms: renewed_ms.map_or(written_ms, |renewed| renewed.min(written_ms)),
            ttl_ms: signs.ttl_ms.unwrap_or(0).max(policy.detached_ttl_ms),
        });
    }
    match held {
        // By ages alone an ended boot ends no hold. But it renews none, and nothing else speaks for this one.
        Some(held) if has_ended(held) && policy.unknown_life == UnknownLife::NotAsked => {
            Damage::Unknown(Silence::UNTOLD)
        }
        Some(held) if has_ended(held) => Damage::Listed,
        Some(held) => {
            let boot = held.boot();
            Damage::Unknown(Silence {
                silent_ms: written_ms.min(held.lease.silent_ms(boot, now)),
                ttl_ms: held.lease.ttl_ms,
            })
        }
        None => {
            let is_emptied = is_settled
                && !published.is_too_long
                && published.bytes.iter().all(|byte| *byte == 0);
            if !is_emptied || !waiting.iter().all(has_ended) || is_kept() {
                return Damage::Unknown(Silence {
                    silent_ms: written_ms,
                    ttl_ms: 0,
                });
            }
            match policy.unreadable {
                UnreadableRule::RefuseUnlessForced => Damage::Nobodys,
                UnreadableRule::RefuseUntilTtl | UnreadableRule::Stale => {
                    Damage::Unknown(Silence::UNTOLD)
                }
            }
        }
    }
}

/// What no claims can be made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Broken {
    /// What is wrong with it.
    pub(super) why: String,
    pub(super) silence: Silence,
}

impl Broken {
    /// A list that is wrong. Only this program writes it, so its age says nothing.
    pub(super) fn list(why: String) -> Self {
        Self {
            why,
            silence: Silence::UNTOLD,
        }
    }
}

/// Whether a record is the one that was published for a claim. Its token says so. Another program of its
/// system may have rewritten it without the token. Then the same owner, process and instant of the grant
/// say so: an owner that comes twice is not the same holder.
pub(super) fn is_of(shown: &Claim, held: &Claim) -> bool {
    match shown.token {
        // Not the token alone: another owner may have copied it with the rest of our record.
        Some(token) if token != 0 => {
            held.token == Some(token) && shown.holder.request_id == held.holder.request_id
        }
        _ => {
            let second = |claim: &Claim| claim.since.map(|since| since.wall_ms / 1_000);
            let pids = [shown, held].map(|claim| claim.holder.process.map(|process| process.pid));
            shown.holder.request_id == held.holder.request_id
                && second(shown) == second(held)
                && (pids[0].is_none() || pids[0] == pids[1])
        }
    }
}

/// Our claim as its record shows it: the record's values count, and the list adds what the record has no
/// place for.
///
/// An instant that the record has not changed keeps its boot clock, so that a stepped wall clock changes
/// no age. An instant that another program wrote has a wall clock only.
fn merged(mut held: Claim, shown: Claim, format: &dyn Record) -> Claim {
    let process = match (held.holder.process, shown.holder.process) {
        // A format that does not judge by the process may leave it out.
        (held, None) => held,
        (Some(held), Some(shown)) if held.pid == shown.pid => Some(held),
        (_, shown) => shown,
    };
    let renewed = if format.is_renewed() {
        same_instant(held.lease.renewed, shown.lease.renewed)
    } else {
        held.lease.renewed
    };
    // An instant whose age the boot clock knows is not in the future: the wall clock was set back since.
    let is_known = renewed == held.lease.renewed
        || (held.since.zip(shown.since))
            .is_some_and(|(held, shown)| same_instant(held, shown) == held);
    let mut lease = held.lease;
    lease.renewed = renewed;
    // 0 stands for a format without a ttl.
    if shown.lease.ttl_ms > 0 {
        lease.ttl_ms = shown.lease.ttl_ms;
    }
    let holder = &mut held.holder;
    holder.process = process;
    holder.facts.retain(|(key, _)| key != FUTURE);
    let facts = shown.holder.facts.into_iter();
    for (key, value) in facts.filter(|(key, _)| !(is_known && key == FUTURE)) {
        match holder.facts.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => *known = value,
            None => holder.facts.push((key, value)),
        }
    }
    if let (Some(first), Some(shown)) = (held.since, shown.since)
        && !held_is_first(first, shown, &lease)
    {
        held.since = Some(same_instant(first, shown));
    }
    if shown.kind == Kind::Sealed {
        held.kind = Kind::Sealed;
    }
    held.lease = lease;
    held
}

/// Whether the record's only time is that of the last renewal, so that only the list knows when the hold
/// began. That holds also after the clock was set back, if the last renewal was ours.
fn held_is_first(held: Stamp, shown: Stamp, lease: &tenure_core::Lease) -> bool {
    let is_later = held.wall_ms < shown.wall_ms || lease.renewed.boot_ms != Stamp::OTHER_BOOT;
    lease.renewals > 0 && shown.wall_ms == lease.renewed.wall_ms && is_later
}

/// The instant of a record. It is our own exact one, if the two differ only by what the format cuts off.
fn same_instant(ours: Stamp, shown: Stamp) -> Stamp {
    match ours.wall_ms.checked_sub(shown.wall_ms) {
        Some(cut) if cut < 1_000 => ours,
        _ => shown,
    }
}

/// Puts the bytes of the replaced record into the events that report the replacement.
pub(super) fn note_bytes(events: &mut [Event], published: Option<&Published>) {
    let Some(published) = published else {
        return;
    };
    for event in events {
        if let Event::Stolen { record, .. } = event {
            record.clone_from(&published.bytes);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::sync::Arc;
    use tenure_core::{Holder, Lease, Process, RequestId, StaleReason, Takeover};

    const PROCESS: Process = Process {
        pid: 7,
        started: Some(70),
    };

    pub(in super::super) fn stamp(wall_ms: u64) -> Stamp {
        Stamp {
            wall_ms,
            boot_ms: 500,
        }
    }

    /// An instant as a record shows it.
    pub(in super::super) fn theirs(wall_ms: u64) -> Stamp {
        Stamp {
            wall_ms,
            boot_ms: Stamp::OTHER_BOOT,
        }
    }

    /// A claim of our list. It entered, was granted and gave its last sign of life at 10.5 seconds.
    pub(in super::super) fn listed(ticket: u64, token: Option<u64>) -> Claim {
        let mut claim = Claim::new(
            ticket,
            Kind::Kernel,
            Holder {
                request_id: RequestId::new("a").expect("an id"),
                actor: "somebody".into(),
                process: Some(PROCESS),
                command: None,
                host: Arc::default(),
                why: String::new(),
                facts: vec![("intent".into(), "deploy".into())],
            },
            stamp(10_500),
            Lease {
                ttl_ms: 30_000,
                renewed: stamp(10_500),
                renewals: 0,
            },
        );
        claim.token = token;
        claim.since = token.map(|_| stamp(10_500));
        claim
    }

    /// The claim as its published record shows it: whole seconds, a process number without a start time,
    /// no ttl.
    fn shown(token: Option<u64>) -> Claim {
        let mut claim = listed(0, Some(1));
        let second = theirs(10_000);
        claim.token = token;
        claim.kind = Kind::Foreign;
        claim.holder.process = Some(Process {
            started: None,
            ..PROCESS
        });
        claim.since = Some(second);
        (claim.lease.renewed, claim.lease.ttl_ms) = (second, 0);
        claim
    }

    /// A format in which every record shows this claim.
    #[derive(Debug)]
    struct Shows(Result<Claim, String>);

    /// A format that has a place for renewals.
    const ANY: Shows = Shows(Err(String::new()));

    impl Record for Shows {
        fn encode(&self, _: &LockName, _: &Claim, _: Option<&[u8]>) -> Result<Vec<u8>, String> {
            Err("nothing is written".into())
        }

        fn decode(&self, _: &LockName, _: &[u8], _: &Now, _: &Host) -> Result<Claim, String> {
            self.0.clone()
        }
    }

    fn joined(entry: &mut Entry, record: Option<Result<Claim, String>>) -> Result<(), String> {
        let published = record.as_ref().map(|_| Published::of_bytes(b"a record"));
        let shows = record.unwrap_or(Err("there is none".into()));
        joined_with(entry, published.as_ref(), shows)
    }

    /// Joins a list with a record of which the format makes this.
    fn joined_with(
        entry: &mut Entry,
        published: Option<&Published>,
        shows: Result<Claim, String>,
    ) -> Result<(), String> {
        let name = LockName::new("a").expect("a name");
        let (now, here) = (Now::default(), Host::default());
        let around = JoinContext {
            name: &name,
            format: &Shows(shows),
            policy: &Policy::RESUME,
            now: &now,
            here: &here,
            is_kept: &|| false,
        };
        join(entry, published, &around).map_err(|broken| broken.why)
    }

    /// Two waiting claims, and between them a holder that passed a reserved place.
    fn list() -> Entry {
        Entry {
            last: 20,
            claims: vec![listed(1, None), listed(2, Some(9)), listed(3, None)],
            ..Entry::default()
        }
    }

    pub(in super::super) fn tickets(entry: &Entry) -> Vec<(u64, bool)> {
        let claims = entry.claims.iter();
        claims
            .map(|claim| (claim.ticket, claim.token.is_some()))
            .collect()
    }

    #[test]
    fn the_record_says_who_holds_and_the_list_who_waits() {
        let mut entry = list();
        assert_eq!(joined(&mut entry, None), Ok(()));
        assert_eq!(tickets(&entry), [(1, false), (3, false)], "no record");

        let mut entry = list();
        assert_eq!(joined(&mut entry, Some(Ok(shown(Some(9))))), Ok(()));
        assert_eq!(tickets(&entry), [(1, false), (2, true), (3, false)], "ours");
        assert_eq!(entry.claims[1].kind, Kind::Kernel);

        let mut entry = list();
        assert_eq!(joined(&mut entry, Some(Ok(shown(Some(8))))), Ok(()));
        assert_eq!(
            tickets(&entry),
            [(0, true), (1, false), (3, false)],
            "another one's"
        );
        assert_eq!(entry.claims[0].kind, Kind::Foreign);

        let mut entry = list();
        let garbage = joined(&mut entry, Some(Err("it is garbage".into())));
        assert_eq!(garbage, Err("it is garbage".into()));
        assert_eq!(tickets(&entry), [(1, false), (3, false)], "garbage");
    }

    #[test]
    fn what_is_too_long_is_no_record_whatever_it_begins_with() {
        let mut entry = list();
        let mut published = Published::of_bytes(b"a record");
        published.is_too_long = true;
        assert!(joined_with(&mut entry, Some(&published), Ok(shown(Some(9)))).is_err());
        assert_eq!(entry.granted().count(), 0);
    }

    /// What a row expects: how many hold then; or how long the holder has been silent, and its ttl.
    type Judged = Result<usize, (u64, u64)>;

    /// What it is, the bytes, when they were written, the claims of the list, and what resume, sprint, session and fleet make
    /// of that.
    type Row = (&'static str, &'static [u8], u64, Vec<Claim>, [Judged; 4]);

    fn host(boot: Option<&str>, machine: &str) -> Host {
        Host {
            boot_id: boot.map(str::to_owned),
            machine_id: Some(machine.to_owned()),
            ..Host::default()
        }
    }

    /// Damaged records; of the row with "locked" a process has a byte.
    fn damaged() -> [Row; 17] {
        let claims = |token, boot: Option<&str>, machine: &str| {
            let mut claim = listed(2, token);
            claim.holder.host = host(boot, machine).into();
            claim.is_of_ended_boot = boot == Some("ended") && machine == "this machine";
            vec![claim]
        };
        // Ids of machines get cloned, so other machines' boots end for nobody over a network.
        let over_network = |mut claims: Vec<Claim>| {
            claims[0].is_of_ended_boot = false;
            claims
        };
        let hold = |boot, machine| claims(Some(9), boot, machine);
        let here = |boot| hold(Some(boot), "this machine");
        let waiter = |boot| claims(None, boot, "this machine");
        let untold: Judged = Err((u64::MAX, 0));
        let all = |judged: Judged| [judged; 4];
        // Resume and sprint go by the life of the owner, session and fleet by ages.
        let by_life = [Ok(1), Ok(1), untold, untold];
        let nobodys = [Ok(0), untold, untold, untold];
        let old = all(Err((12_000, 0)));
        let listed = all(Err((1_500, 30_000)));
        [
            ("empty", b"", 0, vec![], nobodys),
            ("zeros", &[0; 512], 0, vec![], nobodys),
            ("just written", b"", 10_001, vec![], all(Err((1_999, 0)))),
            ("a locked byte", b"", 0, vec![], old),
            ("a waiter", b"", 0, waiter(Some("this boot")), old),
            ("a waiter of no boot", b"", 0, waiter(None), old),
            ("a dead waiter", b"", 0, waiter(Some("ended")), nobodys),
            ("torn", b"{\"job_id\"", 0, vec![], old),
            ("a hold of this boot", b"", 0, here("this boot"), listed),
            (
                "of this boot, just written",
                b"{",
                11_000,
                here("this boot"),
                all(Err((1_000, 30_000))),
            ),
            ("of an ended boot", b"", 0, here("ended"), by_life),
            (
                "of one over a network",
                b"",
                0,
                over_network(here("ended")),
                listed,
            ),
            (
                "a dead waiter over one",
                b"",
                0,
                over_network(waiter(Some("ended"))),
                old,
            ),
            // By the wall clock alone: the boot clock of that claim has ended.
            (
                "of one, just written",
                b"",
                10_001,
                here("ended"),
                all(Err((1_999, 30_000))),
            ),
            ("of one, torn and locked", b"{", 0, here("ended"), by_life),
            (
                "of another machine",
                b"",
                0,
                hold(Some("ended"), "another"),
                listed,
            ),
            (
                "of an unknown boot",
                b"",
                0,
                hold(None, "this machine"),
                listed,
            ),
        ]
    }

    #[test]
    fn a_damaged_record_is_judged_by_the_list_beside_it_table() {
        let here = host(Some("this boot"), "this machine");
        let name = LockName::new("a").expect("a name");
        let now = Now {
            wall_us: 12_000_000,
            boot_ms: 2_000,
            boot_id: "this boot".into(),
        };
        let policies = [
            Policy::RESUME,
            Policy::SPRINT,
            Policy::SESSION,
            Policy::FLEET,
        ];
        for (what, bytes, modified_ms, claims, judged) in damaged() {
            let mut published = Published::of_bytes(bytes);
            published.modified_ms = modified_ms;
            for (policy, expected) in policies.iter().zip(judged) {
                let mut entry = Entry {
                    claims: claims.clone(),
                    ..Entry::default()
                };
                let around = JoinContext {
                    name: &name,
                    format: &ANY,
                    policy,
                    now: &now,
                    here: &here,
                    is_kept: &|| what.contains("locked"),
                };
                let joined = join(&mut entry, Some(&published), &around);
                let found = joined.map(|()| entry.granted().count());
                let silence = |broken: Broken| (broken.silence.silent_ms, broken.silence.ttl_ms);
                let found = found.map_err(silence);
                assert_eq!(found, expected, "{what}, {}", policy.name);
            }
        }
    }

    #[test]
    fn the_counter_follows_a_record_s_token_as_far_as_a_clock_of_ours_could_have_given_it() {
        let last = |token| {
            let mut entry = list();
            assert_eq!(joined(&mut entry, Some(Ok(shown(token)))), Ok(()));
            entry.last
        };
        let highest = 4_503_599_627_370_496;
        assert_eq!(last(None), 20);
        assert_eq!(last(Some(19)), 20);
        assert_eq!(last(Some(21)), 21);
        assert_eq!(last(Some(highest)), highest);
        assert_eq!(last(Some(highest + 1)), 20, "it would use up the room");
    }

    #[test]
    fn a_record_is_ours_by_its_token_and_owner() {
        let held = listed(2, Some(9));
        assert!(is_of(&shown(Some(9)), &held));
        assert!(!is_of(&shown(Some(8)), &held), "another token");
        let mut copied = shown(Some(9));
        copied.holder.request_id = RequestId::new("b").expect("an id");
        assert!(!is_of(&copied, &held), "copied by another owner");
    }

    #[test]
    fn without_a_token_a_record_is_ours_by_owner_process_and_second() {
        let held = listed(2, Some(9));
        for none in [None, Some(0)] {
            let is_ours = |change: fn(&mut Claim)| {
                let mut shown = shown(none);
                change(&mut shown);
                is_of(&shown, &held)
            };
            assert!(is_ours(|_| {}), "{none:?}");
            assert!(is_ours(|shown| shown.holder.process = None), "not named");
            assert!(
                !is_ours(|shown| shown.holder.request_id = RequestId::new("b").expect("an id")),
                "another owner"
            );
            assert!(
                !is_ours(|shown| shown.holder.process = Some(Process {
                    pid: 8,
                    started: None
                })),
                "another process"
            );
            assert!(!is_ours(|shown| shown.since = Some(stamp(11_000))), "later");
            assert!(
                !is_ours(|shown| shown.since = Some(stamp(9_999))),
                "earlier"
            );
        }
    }

    #[test]
    fn of_a_process_the_record_says_the_number_and_the_list_when_it_started() {
        let process = |held: Option<Process>, shown_as: Option<Process>| {
            let (mut held_by, mut record) = (listed(2, Some(9)), shown(Some(9)));
            (held_by.holder.process, record.holder.process) = (held, shown_as);
            merged(held_by, record, &ANY).holder.process
        };
        let number = |pid| Process { pid, started: None };
        assert_eq!(process(Some(PROCESS), None), Some(PROCESS));
        assert_eq!(process(Some(PROCESS), Some(number(7))), Some(PROCESS));
        assert_eq!(process(Some(PROCESS), Some(number(8))), Some(number(8)));
        assert_eq!(process(None, Some(number(7))), Some(number(7)));
    }

    #[test]
    fn what_a_record_says_counts_and_what_it_has_no_place_for_stays() {
        let held = listed(2, Some(9));
        let plain = merged(held.clone(), shown(Some(9)), &ANY);
        assert_eq!(plain, held, "it says what was written");

        let mut record = shown(Some(9));
        record.lease.ttl_ms = 1;
        let fact = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        record.holder.facts = vec![fact("intent", "test"), fact("branch", "main")];
        record.kind = Kind::Sealed;
        let mut held = held;
        held.holder.facts.push(fact("slot", "1"));
        let claim = merged(held, record, &ANY);
        assert_eq!(claim.lease.ttl_ms, 1);
        assert_eq!(
            claim.holder.facts,
            [
                fact("intent", "test"),
                fact("slot", "1"),
                fact("branch", "main")
            ]
        );
        assert_eq!(claim.kind, Kind::Sealed, "a newer version's");
    }

    #[test]
    fn a_record_is_of_the_future_only_where_the_boot_clock_knows_none_of_its_instants() {
        let is_future = |granted_at, renewed_at| {
            let (held, mut record) = (listed(2, Some(9)), shown(Some(9)));
            record
                .holder
                .facts
                .push((FUTURE.to_owned(), "true".to_owned()));
            (record.since, record.lease.renewed) = (Some(theirs(granted_at)), theirs(renewed_at));
            merged(held, record, &ANY).holder.fact(FUTURE).is_some()
        };
        assert!(is_future(60_000, 60_000));
        assert!(!is_future(10_500, 60_000), "the grant is ours");
        assert!(!is_future(60_000, 10_500), "the renewal is ours");
    }

    #[test]
    fn an_instant_that_the_record_only_cut_keeps_its_boot_clock() {
        for (wall_ms, is_ours) in [
            (10_500, true),
            (10_000, true),
            (9_501, true),
            (9_500, false),
            (10_501, false),
            (60_000, false),
        ] {
            let expected = if is_ours {
                stamp(10_500)
            } else {
                theirs(wall_ms)
            };
            let found = same_instant(stamp(10_500), theirs(wall_ms));
            assert_eq!(found, expected, "{wall_ms}");
            let mut record = shown(Some(9));
            (record.since, record.lease.renewed) = (Some(theirs(wall_ms)), theirs(wall_ms));
            let claim = merged(listed(2, Some(9)), record, &ANY);
            assert_eq!(claim.since, Some(expected), "granted at {wall_ms}");
            assert_eq!(claim.lease.renewed, expected, "renewed at {wall_ms}");
        }
    }

    #[test]
    fn a_record_with_one_time_says_when_it_was_renewed_and_the_list_when_it_began() {
        let since = |renewals, shown_at, renewed_at| {
            let (mut held, mut record) = (listed(2, Some(9)), shown(Some(9)));
            held.lease.renewals = renewals;
            record.since = Some(theirs(shown_at));
            record.lease.renewed = theirs(renewed_at);
            merged(held, record, &ANY).since.map(|since| since.wall_ms)
        };
        assert_eq!(since(1, 40_000, 40_000), Some(10_500), "its only time");
        assert_eq!(since(0, 40_000, 40_000), Some(40_000), "never renewed");
        assert_eq!(since(1, 40_000, 41_000), Some(40_000), "it has two");
        assert_eq!(since(1, 2_000, 2_000), Some(2_000), "earlier than ours");
        // Our own renewal, by a clock that was set back since the grant.
        let (mut held, mut record) = (listed(2, Some(9)), shown(Some(9)));
        (held.lease.renewals, held.lease.renewed) = (1, stamp(2_000));
        (record.since, record.lease.renewed) = (Some(theirs(2_000)), theirs(2_000));
        assert_eq!(merged(held, record, &ANY).since, Some(stamp(10_500)));
    }

    #[test]
    fn the_bytes_of_a_record_that_was_taken_over_go_with_the_news() {
        let stolen = || Event::Stolen {
            why: Takeover::Stale(StaleReason::Aged),
            previous: None,
            record: Vec::new(),
        };
        let bytes = |published: Option<Published>| {
            let mut events = [Event::Acquired { token: 1 }, stolen()];
            note_bytes(&mut events, published.as_ref());
            let [_, Event::Stolen { record, .. }] = events else {
                return None;
            };
            Some(record)
        };
        assert_eq!(bytes(None), Some(Vec::new()));
        let published = Published::of_bytes(b"theirs");
        assert_eq!(bytes(Some(published)), Some(b"theirs".to_vec()));
    }
}
