//! `metrics`: what happened to locks as counters, and how they stand as gauges, in the text of Prometheus.
//!
//! `counts` has the counts, and `kept` keeps them from call to call. The text is `render::metrics`.
//!
//! # Crash safety
//! A call writes the counts first, with the place in the audit up to which they count, as one file. Only then it shows
//! them. Death before that write counts nothing, and the next call counts all of it; death after it has counted, and
//! the next call shows it. A lock beside the file lets one call of a user count at a time, so two callers never count
//! one event twice.

mod counts;
mod kept;

use self::counts::{Counts, Room};
use self::kept::{Keeper, Readers, not_written, replace};
use super::check;
use super::session::Session;
use crate::failure::Failure;
use crate::render::metrics::{Exposition, Live, LockMetrics};
use crate::render::{Reporter, clean_path};
use crate::request::Metrics;
use serde_json::Value;
use std::collections::BTreeMap;
use tenure_engine::audit::{Events, Totals};
use tenure_os::clock::Clock as _;

#[cold]
#[inline(never)]
pub(super) fn metrics(
    metrics: Metrics,
    reporter: &mut Reporter,
) -> Result<(String, Value), Failure> {
    let Metrics {
        place,
        textfile,
        state,
        makes_folder,
        locks_max,
    } = metrics;
    if !reporter.is_text() {
        return Err(Failure::bad_arguments(
            "metrics prints Prometheus' text, which has no other format; unset TENURE_OUTPUT",
        ));
    }
    let (audit, _) = place.audit_folder(place.profile())?;
    let session = Session::open(place)?;
    session.tell_place(reporter);
    let at = clean_path(&session.place.folder);
    // Whoever cannot be asked is asked before anything is counted.
    let (live, unreadable) = stand(&session, reporter)?;
    let mut keeper = Keeper::lock(&state, makes_folder)?;
    let mut counts = keeper.counts(&clean_path(audit.dir()), &at)?;
    let mut events = Events::since(audit, std::mem::take(&mut counts.bookmark))?;
    let now_ms = session.clock.now().wall_us / 1_000;
    let room = Room { locks_max, now_ms };
    for entry in events.by_ref() {
        counts.add(&entry, room, |name| live.contains_key(name));
    }
    for name in live.keys() {
        counts.uses(name, room, |name| live.contains_key(name));
    }
    counts.bookmark = events.bookmark()?;
    super::audit::warn_of_all(reporter, &events);
    keeper.keep(&counts)?;
    let text = exposed(&counts, &live, unreadable, &at);
    let Some(file) = textfile else {
        return Ok((text.trim_end().to_owned(), Value::Null));
    };
    let written = replace(&file, text.as_bytes(), Readers::All);
    written.map_err(|error| not_written(&file.path(), &error))?;
    Ok((String::new(), Value::Null))
}

/// The locks that are held or waited for, and how many locks cannot be read.
fn stand(
    session: &Session,
    reporter: &mut Reporter,
) -> Result<(BTreeMap<String, Live>, u64), Failure> {
    let (mut live, mut unreadable) = (BTreeMap::new(), 0);
    check::each(session, reporter, |view| {
        unreadable += u64::from(matches!(view.standing, "unreadable" | "unknown"));
        let stands = Live::of(&view);
        if stands.holders + stands.waiters > 0 {
            live.insert(view.name, stands);
        }
    })?;
    Ok((live, unreadable))
}

/// The text, with the locks that have a label of their own and then the others together.
fn exposed(counts: &Counts, live: &BTreeMap<String, Live>, unreadable: u64, at: &str) -> String {
    let mut others = Live::default();
    for (name, live) in live {
        if !counts.locks.contains_key(name) {
            others.join(*live);
        }
    }
    let mut locks: Vec<_> = (counts.locks.iter())
        .map(|(name, lock)| LockMetrics {
            name: Some(name),
            totals: &lock.totals,
            live: live.get(name).copied().unwrap_or_default(),
        })
        .collect();
    if others.holders + others.waiters > 0 || counts.others != Totals::default() {
        locks.push(LockMetrics {
            name: None,
            totals: &counts.others,
            live: others,
        });
    }
    Exposition::of(at, &locks, unreadable)
}
