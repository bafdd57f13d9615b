//! `timeline`: draws who held and who waited, from the audit. Reads only; a folder that is not there has no events.
//!
//! The whole audit is read, whatever time is asked for: a hold that began before and ended later has no event in between.

use super::audit::warn_of_all;
use crate::failure::Failure;
use crate::render::Reporter;
use crate::render::timeline::{Chart, Wanted, page, svg, text};
use crate::request::{Picture, Timeline};
use jiff::tz::TimeZone;
use serde_json::Value;
use tenure_engine::audit::{Events, Filter, History, Passage};
use tenure_os::process::Identity;

#[cold]
#[inline(never)]
pub(super) fn timeline(
    timeline: Timeline,
    reporter: &mut Reporter,
) -> Result<(String, Value), Failure> {
    let Timeline {
        place,
        filter,
        picture,
        now_ms,
    } = timeline;
    let (folder, _) = place.audit_folder(place.profile())?;
    let mut events = Events::open(folder, Filter::default())?;
    let passages = passages(&mut events, &filter);
    warn_of_all(reporter, &events);
    let wanted = Wanted {
        since_ms: filter.since_ms,
        until_ms: filter.until_ms,
        is_of: &|by| filter.is_of(&by.request_id, &by.agent),
    };
    let chart = Chart::of(passages, &wanted, now_ms);
    if !reporter.is_text() {
        return Ok((String::new(), chart.document()));
    }
    let zone = TimeZone::system();
    let text = match picture {
        Some(Picture::Html) => page::of(&chart),
        Some(Picture::Svg) => svg::of(&chart, &zone),
        None => text::of(&chart, &zone, &Identity::current().host.name),
    };
    Ok((text, Value::Null))
}

/// What the events say of the locks that are wanted.
fn passages(events: &mut Events, filter: &Filter) -> Vec<Passage> {
    let mut history = History::default();
    let mut passages = Vec::new();
    let mut keep = |passage: Passage| {
        let lock = match &passage {
            Passage::Hold(hold) => &hold.lock,
            Passage::Wait(wait) => &wait.held_lock,
            Passage::Incident(incident) => &incident.lock,
        };
        if filter.is_about(lock) {
            passages.push(passage);
        }
    };
    for entry in events {
        history.take(&entry, &mut keep);
    }
    history.into_open().map(Passage::Hold).for_each(&mut keep);
    passages
}
