//! An event of the audit as a person reads it: a row of a table, the most telling fields last, in the zone of the viewer.
//!
//! All text in the row comes from a file, so all of it is cleaned.

use super::clean;
use super::lock::age;
use super::table::{Cells, Giving};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use tenure_engine::audit::{Entry, EventName};
use tenure_os::process::actor_name;

/// The common fields, which every line begins with, and those that have a column.
const COMMON: [&str; 11] = [
    "event",
    "lock_name",
    "request_id",
    "timestamp",
    "actor",
    "pid",
    "host",
    "waited_ms",
    "held_ms",
    "command",
    "why",
];

/// The columns, as their first line names them.
pub(crate) fn header(zone: &TimeZone) -> Cells<7> {
    let time = format!("TIME ({})", zone_name(zone)).into();
    let [event, lock, who, waited, held, what] =
        ["EVENT", "LOCK", "WHO", "WAITED", "HELD", "WHAT"].map(Cow::from);
    [time, event, lock, who, waited, held, what]
}

/// The name of a viewer's zone. Times of a zone that is not known here are in UTC.
pub(super) fn zone_name(zone: &TimeZone) -> &str {
    let unnamed = if zone.is_unknown() {
        "UTC"
    } else {
        "local time"
    };
    zone.iana_name().unwrap_or(unnamed)
}

/// What the table gives up on a narrow terminal.
pub(crate) const GIVING: Giving<'static> = Giving {
    spare: &[],
    long: (6, 20),
    last: (3, 12),
};

/// An event with those that repeat it.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) at_ms: u64,
    /// How long a caller waited, and how long a holder held.
    pub(crate) waited_ms: Option<u64>,
    pub(crate) held_ms: Option<u64>,
    /// By which a repetition is known: of a refusal all that matters of it but its instant.
    pub(crate) repeats: Option<String>,
    /// How often it came, and when last.
    pub(crate) times: u64,
    last_ms: u64,
    cells: Cells<7>,
}

/// Who asked holders to go, as earlier events tell. The line of the release knows only how the command ended.
#[derive(Debug, Default)]
pub(crate) struct Endings(BTreeMap<(String, String), String>);

impl Endings {
    /// Takes in an event. Of a release the answer is what made the holder give up the lock.
    pub(crate) fn of(&mut self, entry: &Entry) -> Option<String> {
        let key = || (entry.lock_name().to_owned(), entry.request_id().to_owned());
        match EventName::from_word(entry.event()) {
            // Who only waited has nothing to release.
            Some(EventName::LockSuperseded) if entry.number("token").is_some() => {
                let fields = entry.fields();
                let what = match fields.get("kind").and_then(Value::as_str) {
                    Some("cancel") => "cancelled",
                    _ => "superseded",
                };
                let by = superseder(fields.get("superseded_by"));
                self.0.insert(key(), format!("{what} by {by}"));
                None
            }
            Some(EventName::LockReleased) => self.0.remove(&key()),
            Some(EventName::LockAcquired) => {
                self.0.remove(&key());
                None
            }
            _ => None,
        }
    }
}

impl Row {
    /// `here` is this host, which need not be named; `ending` is what [`Endings`] knows of the event.
    pub(crate) fn of(entry: &Entry, here: &str, ending: Option<&str>) -> Self {
        let fields = entry.fields();
        let text = |key: &str| fields.get(key).and_then(Value::as_str);
        let (waited_ms, held_ms) = (entry.number("waited_ms"), entry.number("held_ms"));
        let event = entry.event();
        let word = event
            .strip_prefix("lock_")
            .unwrap_or(event)
            .replace('_', " ");
        let lock = or_dash(text("path").unwrap_or(entry.lock_name()));
        let who = who(entry, here);
        let telling = telling(entry, here, ending);
        let repeats = matches!(
            EventName::from_word(event),
            Some(EventName::LockRefused | EventName::LockSkipped)
        );
        let met = fields.get("held_by").map(ToString::to_string);
        let actor = text("actor").unwrap_or_default();
        let repeats =
            repeats.then(|| format!("{event}\0{lock}\0{actor}\0{}", met.unwrap_or_default()));
        let what = match (entry.request_id(), &*telling) {
            ("", telling) => telling.to_owned(),
            (id, "") => id.to_owned(),
            (id, telling) => format!("{telling}  {id}"),
        };
        let of = |ms: Option<u64>| ms.map_or(Cow::from("-"), |ms| Cow::from(short_age(ms)));
        let cleaned = |text: &str| Cow::from(clean(text.trim_end()).into_owned());
        Self {
            at_ms: entry.at_ms(),
            waited_ms,
            held_ms,
            repeats,
            times: 1,
            last_ms: entry.at_ms(),
            cells: [
                Cow::from(""),
                cleaned(&word),
                cleaned(lock),
                cleaned(&who),
                of(waited_ms),
                of(held_ms),
                cleaned(&what),
            ],
        }
    }

    /// Takes in one that repeats it.
    pub(crate) fn add(&mut self, other: &Self) {
        self.times += other.times;
        self.last_ms = self.last_ms.max(other.last_ms);
        if other.waited_ms > self.waited_ms {
            self.waited_ms = other.waited_ms;
            self.cells[4].clone_from(&other.cells[4]);
        }
    }

    /// What stands in the columns.
    pub(crate) fn cells(mut self, zone: &TimeZone) -> Cells<7> {
        self.cells[0] = time(self.at_ms, zone).into();
        if self.times > 1 {
            let (first, last) = (time(self.at_ms, zone), time(self.last_ms, zone));
            let last = match (first.split_once(' '), last.split_once(' ')) {
                (Some((first, _)), Some((day, time))) if first == day => time,
                _ => &last,
            };
            let what = format!("{} times until {last}: {}", self.times, self.cells[6]);
            self.cells[6] = what.into();
        }
        self.cells
    }
}

/// To the second; a column of a wait or a hold that took less is exact.
pub(super) fn short_age(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms}ms"),
        _ => age(ms - ms % 1_000),
    }
}

pub(super) fn time(at_ms: u64, zone: &TimeZone) -> String {
    let at = i64::try_from(at_ms).ok();
    let at = at.and_then(|at| Timestamp::from_millisecond(at).ok());
    at.map_or_else(
        || "an unknown time".to_owned(),
        |at| {
            let at = at.to_zoned(zone.clone());
            // A clock that is set back shows an hour twice.
            let comes_twice = zone.to_ambiguous_timestamp(at.datetime()).is_ambiguous();
            let offset = if comes_twice { "%:z" } else { "" };
            at.strftime(&format!("%Y-%m-%d %H:%M:%S{offset}"))
                .to_string()
        },
    )
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

/// What a person wants to know of an event at a glance: without what programs know it by.
pub(crate) fn brief(entry: &Entry, here: &str, ending: Option<&str>) -> String {
    let time = |key: &str, word: &str| {
        // Each caller waits for a moment, and most events are no news of that.
        let ms = entry
            .number(key)
            .filter(|ms| key != "waited_ms" || *ms >= 1_000)?;
        Some(format!("{word} {}", short_age(ms)))
    };
    let told = match EventName::from_word(entry.event()) {
        Some(EventName::LockAcquired) => {
            let behind = met(entry.fields().get("behind"), here);
            let behind = behind.map(|holder| format!("behind {holder}"));
            let of = [work(entry), behind];
            of.into_iter().flatten().collect::<Vec<_>>().join(", ")
        }
        _ => telling(entry, here, ending),
    };
    let of = [time("waited_ms", "waited"), time("held_ms", "held")];
    let of = of.into_iter().flatten().chain([told]);
    of.filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(", ")
}

/// What the lock was held for.
fn work(entry: &Entry) -> Option<String> {
    let get = |key: &str| entry.fields().get(key).filter(|value| !value.is_null());
    get("why").or_else(|| get("command")).map(plain)
}

/// Who acted.
fn who(entry: &Entry, here: &str) -> String {
    let mut who = party(entry.fields(), here);
    if !entry.agent().is_empty() {
        who.push_str(" as ");
        who.push_str(entry.agent());
    }
    who
}

/// What a person wants to know of an event, beyond the common fields.
fn telling(entry: &Entry, here: &str, ending: Option<&str>) -> String {
    let get = |key: &str| {
        let value = entry.fields().get(key).filter(|value| !value.is_null());
        value.map(plain)
    };
    let word = |key: &str| get(key).unwrap_or_else(|| "?".to_owned());
    let work = work(entry);
    match EventName::from_word(entry.event()) {
        Some(EventName::LockAcquired) => {
            let token = get("token").map(|token| format!("token {token}"));
            let ttl = get("ttl_seconds").map(|ttl| format!("ttl {ttl}s"));
            let behind = met(entry.fields().get("behind"), here);
            let behind = behind.map(|holder| format!("behind {holder}"));
            let of = [work, token, ttl, behind];
            of.into_iter().flatten().collect::<Vec<_>>().join(", ")
        }
        Some(EventName::LockStolen) => {
            let keys = ["request_id", "actor", "pid", "host_id"];
            let whose = whose(
                entry.fields().get("previous_lock"),
                keys,
                Some("last_heartbeat_at"),
            );
            format!(
                "{} from {}",
                word("reason"),
                whose.unwrap_or_else(|| "an unreadable record".to_owned())
            )
        }
        Some(EventName::LockReleased) => {
            let step = get("failure_step").map_or_else(String::new, |step| format!(" in {step}"));
            let other = match entry.fields().get("by_other") {
                Some(Value::Bool(true)) => ", by another",
                _ => "",
            };
            let work = work.map_or_else(String::new, |work| format!("{work}, "));
            match ending {
                Some(ending) => format!("{work}{ending}"),
                None => format!("{work}{}{step}{other}", word("result")),
            }
        }
        Some(EventName::LockReleaseFailed) => {
            format!(
                "{}: {} ({})",
                word("lock_path"),
                word("error"),
                word("action")
            )
        }
        Some(EventName::HeartbeatFailed) => {
            format!(
                "{} in a row: {}",
                word("consecutive_failures"),
                word("error")
            )
        }
        Some(EventName::OrphanEnded) => {
            let pids = entry.fields().get("ended_pids").and_then(Value::as_array);
            let pids = pids.map(|pids| pids.iter().map(plain).collect::<Vec<_>>().join(", "));
            format!(
                "command PID {}; ended: {}",
                word("command_pid"),
                pids.filter(|pids| !pids.is_empty())
                    .unwrap_or_else(|| "none".to_owned())
            )
        }
        Some(EventName::LockSkipped) => {
            let whose = met(entry.fields().get("held_by"), here);
            format!(
                "{} was held by {}",
                word("held_lock"),
                whose.unwrap_or_else(|| "an unknown holder".to_owned())
            )
        }
        Some(EventName::LockRefused) => {
            let whose = met(entry.fields().get("held_by"), here);
            let by = whose.map_or_else(String::new, |whose| format!(", held by {whose}"));
            format!("{}{by}", word("code"))
        }
        Some(EventName::LockLost) => format!("token {}", word("token")),
        Some(EventName::LockSuperseded) => {
            let by = superseder(entry.fields().get("superseded_by"));
            format!("{} by {by}", word("kind"))
        }
        Some(EventName::LockCancelled) => {
            let asked = entry.fields().get("asked").and_then(Value::as_array);
            let asked = asked.into_iter().flatten();
            let asked = asked.filter_map(|holder| met(Some(holder), here));
            let why = get("why").map_or_else(String::new, |why| format!(": {why}"));
            format!("asked {}{why}", asked.collect::<Vec<_>>().join(", "))
        }
        // An event of a later version: all of its fields.
        None => entry
            .fields()
            .iter()
            .filter(|(key, _)| !COMMON.contains(&key.as_str()))
            .map(|(key, value)| format!("{key}={}", plain(value)))
            .collect::<Vec<_>>()
            .join(" "),
    }
}

/// The caller that asked a holder to go.
fn superseder(by: Option<&Value>) -> String {
    let said = |key: &str| by.and_then(|by| by.get(key)).and_then(Value::as_str);
    let actor = said("actor").map_or_else(String::new, |actor| format!(" ({})", actor_name(actor)));
    format!("{}{actor}", said("request_id").unwrap_or("?"))
}

/// A holder that another caller met: its actor and process, and the host if that is another one.
fn met(holder: Option<&Value>, here: &str) -> Option<String> {
    holder?.as_object().map(|holder| party(holder, here))
}

/// Who acts, by the keys that each line has.
fn party(holder: &Map<String, Value>, here: &str) -> String {
    let text = |key: &str| holder.get(key).and_then(Value::as_str).unwrap_or_default();
    let name = actor_name(or_dash(text("actor")));
    let pid = holder.get("pid").and_then(Value::as_u64);
    with_process(name, pid, text("host"), here)
}

/// A name with its process, and the host if that is another one than here.
pub(super) fn with_process(name: String, pid: Option<u64>, host: &str, here: &str) -> String {
    let mut met = name;
    let host = Some(host).filter(|host| !host.is_empty() && *host != here);
    let pid = pid.map(|pid| format!("PID {pid}"));
    let parts = [pid, host.map(|host| format!("on {host}"))];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    if !parts.is_empty() {
        let _ = write!(met, " ({})", parts.join(" "));
    }
    met
}

/// The holder that an event names: request, actor, process and host by their keys, and its last heartbeat.
fn whose(holder: Option<&Value>, keys: [&str; 4], heartbeat: Option<&str>) -> Option<String> {
    let holder = holder.filter(|value| value.is_object())?;
    let word = |key: &str| {
        let known = |value: &&Value| !value.is_null() && value.as_str() != Some("");
        let value = holder.get(key).filter(known);
        value.map_or_else(|| "?".to_owned(), plain)
    };
    let [request, actor, pid, host] = keys.map(word);
    let actor = actor_name(&actor);
    let last = heartbeat.map_or_else(String::new, |key| format!(", last heartbeat {}", word(key)));
    Some(format!("{request} ({actor}, PID {pid} on {host}{last})"))
}

/// A value without the quotes.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cells but the time, for a viewer on the host `box`.
    fn shown(rest: &str) -> String {
        let text = format!(
            "{{\"lock_name\":\"deploy\",\"request_id\":\"req_1\",\
             \"timestamp\":\"2026-02-07T10:00:00.000Z\",{rest}}}"
        );
        let entry = Entry::parse(text.as_bytes()).expect("an event");
        let [time, cells @ ..] = Row::of(&entry, "box", None).cells(&TimeZone::UTC);
        assert_eq!(time, "2026-02-07 10:00:00");
        cells.join(" | ")
    }

    #[test]
    fn every_event_tells_what_matters_about_it() {
        for (rest, expected) in [
            (
                r#""event":"lock_acquired","ttl_seconds":900,"token":7"#,
                "acquired | deploy | - | - | - | token 7, ttl 900s  req_1",
            ),
            (
                r#""event":"lock_acquired","token":7,"actor":"ann","pid":4,"host":"box","why":null,"command":"make",
                "waited_ms":61500,"behind":{"actor":"bob","pid":5,"host":"far","request_id":"req_0"}"#,
                "acquired | deploy | ann (PID 4) | 1m1s | - | make, token 7, behind bob (PID 5 on far)  req_1",
            ),
            (
                r#""event":"lock_stolen","reason":"stale_lock","previous_lock":{"request_id":"req_0",
                "actor":"ci","pid":42,"host_id":"box","last_heartbeat_at":"2026-02-07T09:00:00Z"}"#,
                "stolen | deploy | - | - | - | stale_lock from req_0 (ci, PID 42 on box, \
                 last heartbeat 2026-02-07T09:00:00Z)  req_1",
            ),
            (
                r#""event":"lock_stolen","reason":"corrupt_lock","previous_lock":null"#,
                "stolen | deploy | - | - | - | corrupt_lock from an unreadable record  req_1",
            ),
            (
                r#""event":"lock_released","result":"failure","failure_step":"migrate","held_ms":999"#,
                "released | deploy | - | - | 999ms | failure in migrate  req_1",
            ),
            (
                r#""event":"lock_released","result":"forced","held_ms":2000,"by_other":true"#,
                "released | deploy | - | - | 2s | forced, by another  req_1",
            ),
            (
                r#""event":"lock_release_failed","lock_path":"/l","error":"EACCES: permission denied",
                "action":"manual_cleanup_required""#,
                "release failed | deploy | - | - | - | /l: EACCES: permission denied \
                 (manual_cleanup_required)  req_1",
            ),
            (
                r#""event":"heartbeat_failed","consecutive_failures":3,"error":"ENOSPC: no space""#,
                "heartbeat failed | deploy | - | - | - | 3 in a row: ENOSPC: no space  req_1",
            ),
            (
                r#""event":"lock_refused","code":"LOCK_HELD","waited_ms":0,"held_by":{"actor":"bob","pid":5}"#,
                "refused | deploy | - | 0ms | - | LOCK_HELD, held by bob (PID 5)  req_1",
            ),
            (
                r#""event":"lock_lost","token":7"#,
                "lost | deploy | - | - | - | token 7  req_1",
            ),
            (
                r#""event":"lock_superseded","kind":"newer_run","superseded_by":{"request_id":"req_2","actor":"bob"}"#,
                "superseded | deploy | - | - | - | newer_run by req_2 (bob)  req_1",
            ),
            (
                r#""event":"lock_cancelled","why":"now","asked":[{"actor":"bob","pid":5}]"#,
                "cancelled | deploy | - | - | - | asked bob (PID 5): now  req_1",
            ),
            (
                r#""event":"lock_dreamt","of":"sheep","count":3"#,
                "dreamt | deploy | - | - | - | of=sheep count=3  req_1",
            ),
        ] {
            assert_eq!(shown(rest), expected);
        }
    }

    #[test]
    fn a_release_tells_who_made_its_holder_go() {
        for (kind, told) in [("newer_run", "superseded"), ("cancel", "cancelled")] {
            let line = |event: &str, rest: &str| {
                let text = format!(
                    r#"{{"event":"lock_{event}","lock_name":"x","request_id":"r1","timestamp":"2026-02-07T10:00:00Z"{rest}}}"#
                );
                Entry::parse(text.as_bytes()).expect("an event")
            };
            let asked = format!(
                r#","token":1,"kind":"{kind}","superseded_by":{{"request_id":"r2","actor":"bob"}}"#
            );
            let failed =
                r#","why":"make","result":"failure","failure_step":"command","held_ms":1000"#;
            let mut endings = Endings::default();
            let mut what = |entry: &Entry| {
                let ending = endings.of(entry);
                let cells = Row::of(entry, "box", ending.as_deref()).cells(&TimeZone::UTC);
                cells[6].to_string()
            };
            what(&line("superseded", &asked));
            let released = line("released", failed);
            assert_eq!(what(&released), format!("make, {told} by r2 (bob)  r1"));
            let next = "make, failure in command  r1";
            assert_eq!(what(&released), next, "the next hold of the request");
        }
    }

    #[test]
    fn nothing_in_an_event_reaches_the_terminal_as_a_command() {
        let line = shown(r#""event":"lock_\u001b[2J\nstolen","x\u202e":"\u009b1m""#);
        assert!(!line.contains(char::is_control), "{line:?}");
        assert!(!line.contains('\u{202e}'), "{line:?}");
    }
}
