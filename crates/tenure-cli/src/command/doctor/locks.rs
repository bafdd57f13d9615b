//! What stands in the locks: whether each can be read, what dead holders left behind, and what the times of the
//! claims say of the clock. For locks on servers, first whether they answer.

use super::super::session::Session;
use crate::render::doctor::Report;
use crate::render::findings::Status;
use crate::store::Clusters;
use std::collections::BTreeSet;
use std::time::Duration;
use tenure_core::{Claim, LockName, Now, StaleUnforced, Stamp, Standing, UnreadableRule};
use tenure_engine::readings::{self, LockReading, Readings};
use tenure_os::clock;
use tenure_os::trust::{self, Distrust};
use tenure_store::advice;
use tenure_store::contract::Which;
use tenure_store::profile::{ends_without_release, is_dated_ahead};
use tenure_store::{Content, Reading, StoreError};

/// How many locks are named in a line.
const NAMED_MAX: usize = 3;

/// A clock is set in steps that are larger than this, and drifts by less, in milliseconds.
const STEP_MS: u64 = 2_000;

/// What all locks together show.
#[derive(Default)]
struct Seen {
    all: usize,
    left: Vec<LockName>,
    unreadable: Vec<Unread>,
    stepped: Option<Step>,
    ahead: Option<LockName>,
}

/// A lock that cannot be read.
struct Unread {
    name: LockName,
    said: String,
    /// The line that mends it, if there is one.
    fix: Option<String>,
}

impl Unread {
    fn by(name: LockName, error: &StoreError) -> Self {
        // The refusals of a lock that have a remedy of their own. Whoever removed a file of another format could remove
        // one under a live hold.
        let fix = match error {
            StoreError::Format { by, .. } => Some(format!(
                "use the program that wrote it for all callers of {name}: {by}"
            )),
            StoreError::Permission { place, doing } if doing.contains("chmod 660") => {
                Some(format!("chmod 660 {}", advice::word(place)))
            }
            _ => None,
        };
        let said = error.to_string();
        Self { name, said, fix }
    }
}

/// Whether the file of a lock belongs to another user.
fn is_of_other_user(session: &Session, name: &LockName) -> bool {
    let file = session.store.location(name).file;
    let facts = file.and_then(|file| file.symlink_metadata().ok());
    facts.is_some_and(|facts| facts.is_file() && trust::own(&facts) == Err(Distrust::Strangers))
}

/// How far the wall clock was set since a claim was written.
struct Step {
    name: LockName,
    ms: i64,
}

pub(super) fn look(session: &Session, report: &mut Report) {
    // What keeps the caller from the folder keeps it from every lock there.
    if report.checks.is_wrong("folder") {
        return;
    }
    let is_remote = session.store.is_remote();
    let began = clock::instant();
    let names = match readings::names(&*session.store, Which::Locks) {
        Ok(names) => names,
        Err(error) => {
            // An earlier line says that the folder cannot be used.
            let clusters = session.store.clusters().unwrap_or_default();
            if is_remote && !says_several(&clusters, report) {
                unreachable(&error, report);
            }
            return;
        }
    };
    if is_remote {
        servers(session, clock::since(began), report);
    }
    let is_each_users = report.is_for_each_user();
    let seen = seen_in(session, names, is_each_users);
    leftovers(session, &seen, report);
    unreadable(session, &seen, report);
    clocks(&seen, report);
}

/// Says what each server of the list says.
fn servers(session: &Session, took: Duration, report: &mut Report) {
    let clusters = session.store.clusters().unwrap_or_default();
    if says_several(&clusters, report) {
        return;
    }
    let took = took.as_millis().max(1);
    let mut ids = clusters.iter().filter_map(|(_, id)| id.as_ref().ok());
    let id = ids
        .next()
        .map_or_else(String::new, |id| format!(", of cluster {id:x}"));
    let silent = clusters.iter().filter(|(_, answer)| answer.is_err());
    let silent = silent.map(|(server, _)| server.as_str());
    let silent: Vec<_> = silent.collect();
    let Some(first) = silent.first() else {
        let said = format!("they answered within {took} ms{id}");
        report.checks.ok("servers", &said);
        return;
    };
    let all = clusters.len();
    let (answered, silent) = (all - silent.len(), silent.join(", "));
    let said = format!("{answered} of {all} answered within {took} ms{id}; not {silent}");
    let fix = format!("see that etcd runs on {first}");
    report.checks.add("servers", Status::Note, &said, Some(fix));
}

/// Whether the servers of a list are of several clusters; then it is said.
fn says_several(clusters: &Clusters, report: &mut Report) -> bool {
    let ids = clusters.iter().filter_map(|(_, id)| id.as_ref().ok());
    let ids: BTreeSet<u64> = ids.copied().collect();
    if ids.len() < 2 {
        return false;
    }
    let each = clusters.iter().filter_map(|(server, id)| {
        let id = id.as_ref().ok()?;
        Some(format!("{server} is of cluster {id:x}"))
    });
    let each: Vec<_> = each.collect();
    let said = format!("the list names several clusters: {}", each.join(", "));
    let fix = "name the servers of one cluster; a holder in another one is not seen";
    report
        .checks
        .add("servers", Status::Wrong, &said, Some(fix.to_owned()));
    true
}

fn unreachable(error: &StoreError, report: &mut Report) {
    let fix = match error {
        StoreError::Unsafe { .. } => "see which cluster that is, before you accept it",
        _ => {
            "see that etcd runs and can be reached from here, and that the URL and the password are right"
        }
    };
    report.checks.add(
        "servers",
        Status::Wrong,
        error.to_string(),
        Some(fix.to_owned()),
    );
}

fn seen_in(session: &Session, names: Vec<LockName>, is_each_users: bool) -> Seen {
    let policy = session.store.policy();
    let mut seen = Seen {
        all: names.len(),
        ..Seen::default()
    };
    for LockReading { name, reading, now } in Readings::of(&*session.store, &session.clock, names) {
        let reading = match reading {
            Ok(reading) => reading,
            // Where each user has locks of their own, those of others are refused, and that is meant.
            Err(_) if is_each_users && is_of_other_user(session, &name) => {
                seen.all = seen.all.saturating_sub(1);
                continue;
            }
            Err(error) => {
                seen.unreadable.push(Unread::by(name, &error));
                continue;
            }
        };
        if !session.store.is_remote() {
            seen.times(&name, &reading, &now);
        }
        match &reading.content {
            // The profile counts it as left behind.
            Content::Unreadable { .. } if policy.unreadable == UnreadableRule::Stale => {
                seen.left.push(name);
            }
            Content::Unreadable { why, .. } => {
                let said = format!("{} cannot be read as a lock: {why}", reading.place);
                let fix = None;
                seen.unreadable.push(Unread { name, said, fix });
            }
            Content::Whole { entry, .. } => {
                let is_left = |claim: &Claim| {
                    let standing = reading.standing_of(policy, claim, &now);
                    matches!(standing, Standing::Stale(_)) && !ends_without_release(claim)
                };
                if entry.granted().any(is_left) {
                    seen.left.push(name);
                }
            }
        }
    }
    seen
}

impl Seen {
    /// Compares the two clocks of each claim with those of now.
    fn times(&mut self, name: &LockName, reading: &Reading, now: &Now) {
        let claims = reading.entry().into_iter().flat_map(|entry| &entry.claims);
        for claim in claims {
            if is_dated_ahead(claim) {
                self.ahead.get_or_insert_with(|| name.clone());
            }
            let stamps = [Some(claim.entered), claim.since, Some(claim.lease.renewed)];
            let boot = claim.boot();
            for stamp in stamps.into_iter().flatten() {
                if now.is_on(boot) && stamp.boot_ms != Stamp::OTHER_BOOT {
                    let step = offset_ms(now.stamp()).saturating_sub(offset_ms(stamp));
                    let is_larger = |known: &Step| step.unsigned_abs() > known.ms.unsigned_abs();
                    if step.unsigned_abs() > STEP_MS && self.stepped.as_ref().is_none_or(is_larger)
                    {
                        let name = name.clone();
                        self.stepped = Some(Step { name, ms: step });
                    }
                } else if stamp.wall_ms > now.stamp().wall_ms.saturating_add(STEP_MS) {
                    self.ahead.get_or_insert_with(|| name.clone());
                }
            }
        }
    }
}

/// How far the wall clock is ahead of the boot clock.
fn offset_ms(stamp: Stamp) -> i64 {
    let of = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    of(stamp.wall_ms).saturating_sub(of(stamp.boot_ms))
}

/// A few names, and how many more there are.
fn named(names: &[LockName]) -> String {
    let shown: Vec<_> = names.iter().take(NAMED_MAX).map(LockName::as_str).collect();
    match names.len().checked_sub(NAMED_MAX) {
        None | Some(0) => shown.join(", "),
        Some(more) => format!("{} and {more} more", shown.join(", ")),
    }
}

fn leftovers(session: &Session, seen: &Seen, report: &mut Report) {
    let Some(first) = seen.left.first() else {
        let said = match seen.all.saturating_sub(seen.unreadable.len()) {
            0 if seen.all > 0 => "no lock could be looked at".to_owned(),
            0 => "there are no locks yet".to_owned(),
            1 => "none: 1 lock looked at".to_owned(),
            all => format!("none: {all} locks looked at"),
        };
        report.checks.ok("leftovers", &said);
        return;
    };
    let (status, then, fix) = match session.store.policy().stale_unforced {
        StaleUnforced::TakeOver => (
            Status::Note,
            "the next call takes it over",
            session.place.line(&["clean"]),
        ),
        StaleUnforced::Refuse => (
            Status::Wrong,
            "this profile takes it over by force only",
            session.advice(first).line(&["force-release"], &[]),
        ),
    };
    report.checks.add(
        "leftovers",
        status,
        format!("left behind by dead holders: {}; {then}", named(&seen.left)),
        Some(fix),
    );
}

fn unreadable(session: &Session, seen: &Seen, report: &mut Report) {
    let Some(Unread { name, said, fix }) = seen.unreadable.first() else {
        report.checks.ok("lock_files", "each of them can be read");
        return;
    };
    let more = match seen.unreadable.len() {
        1 => String::new(),
        all => format!(" (and {} more)", all - 1),
    };
    report.checks.add(
        "lock_files",
        Status::Wrong,
        format!("{said}{more}"),
        Some(fix.clone().unwrap_or_else(|| {
            let line = session.advice(name).line(&["check"], &[]);
            format!("see what it is ({line}), and remove the file when no caller has the lock")
        })),
    );
}

fn clocks(seen: &Seen, report: &mut Report) {
    let (status, said, fix) = if let Some(step) = &seen.stepped {
        let (far, way) = match u64::try_from(step.ms) {
            Ok(ms) => (ms, "forward"),
            Err(_) => (step.ms.unsigned_abs(), "back"),
        };
        let far = crate::render::lock::age(far);
        let said = format!(
            "the wall clock was set {way} by {far} since {} was written; ages of this boot are not taken from it",
            step.name
        );
        (Status::Note, said, Some("timedatectl status"))
    } else if let Some(name) = &seen.ahead {
        let said = format!(
            "{name} was written at a time that is still to come here; its age counts as 0 until then"
        );
        (Status::Note, said, Some("timedatectl status"))
    } else {
        (Status::Ok, "no step was seen".to_owned(), None)
    };
    report
        .checks
        .add("clock", status, &said, fix.map(str::to_owned));
}
