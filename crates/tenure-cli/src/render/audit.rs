//! An event of the audit as a person reads it: one line, the most telling fields last.
//!
//! All text in the line comes from a file, so the whole line is cleaned.

use super::clean;
use serde_json::Value;
use tenure_engine::audit::{Entry, EventName};

/// As wide as the longest name of an event.
const EVENT_COLUMNS: usize = 19;

/// The common fields, which every line begins with.
const COMMON: [&str; 4] = ["event", "lock_name", "request_id", "timestamp"];

/// One line without its newline.
pub(crate) fn line(entry: &Entry) -> String {
    let path = entry.fields().get("path").and_then(Value::as_str);
    let agent = match entry.agent() {
        "" => String::new(),
        agent => format!(" agent={agent}"),
    };
    let line = format!(
        "{}  {:<EVENT_COLUMNS$}  {}  {}  {}{agent}",
        entry.timestamp(),
        entry.event(),
        or_dash(path.unwrap_or(entry.lock_name())),
        or_dash(entry.request_id()),
        telling(entry),
    );
    clean(line.trim_end()).into_owned()
}

fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

/// What a person wants to know of an event, beyond the common fields.
fn telling(entry: &Entry) -> String {
    let get = |key: &str| {
        let value = entry.fields().get(key).filter(|value| !value.is_null());
        value.map(plain)
    };
    let word = |key: &str| get(key).unwrap_or_else(|| "?".to_owned());
    match EventName::from_word(entry.event()) {
        Some(EventName::LockAcquired) => [("ttl", "ttl_seconds"), ("token", "token")]
            .into_iter()
            .filter_map(|(name, key)| {
                let unit = if key == "ttl_seconds" { "s" } else { "" };
                Some(format!("{name}={}{unit}", get(key)?))
            })
            .collect::<Vec<_>>()
            .join(" "),
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
            // An older line has only the seconds, with decimals.
            let held_ms = entry.fields().get("held_ms").and_then(Value::as_u64);
            let held = held_ms.map_or_else(
                || word("held_duration_seconds"),
                |held_ms| match held_ms % 1_000 {
                    0 => (held_ms / 1_000).to_string(),
                    rest => format!("{}.{rest:03}", held_ms / 1_000),
                },
            );
            format!("{}{step} after {held}s{other}", word("result"))
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
            let keys = ["request_id", "actor", "pid", "host"];
            let whose = whose(entry.fields().get("held_by"), keys, None);
            format!(
                "{} was held by {}",
                word("held_lock"),
                whose.unwrap_or_else(|| "an unknown holder".to_owned())
            )
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

/// The holder that an event names: request, actor, process and host by their keys, and its last heartbeat.
fn whose(holder: Option<&Value>, keys: [&str; 4], heartbeat: Option<&str>) -> Option<String> {
    let holder = holder.filter(|value| value.is_object())?;
    let word = |key: &str| {
        let known = |value: &&Value| !value.is_null() && value.as_str() != Some("");
        let value = holder.get(key).filter(known);
        value.map_or_else(|| "?".to_owned(), plain)
    };
    let [request, actor, pid, host] = keys.map(word);
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

    fn shown(rest: &str) -> String {
        let text = format!(
            "{{\"lock_name\":\"deploy\",\"request_id\":\"req_1\",\
             \"timestamp\":\"2026-02-07T10:00:00.000Z\",{rest}}}"
        );
        line(&Entry::parse(text.as_bytes()).expect("an event"))
    }

    #[test]
    fn every_event_tells_what_matters_about_it() {
        for (rest, expected) in [
            (
                r#""event":"lock_acquired","ttl_seconds":900,"token":7"#,
                "lock_acquired        deploy  req_1  ttl=900s token=7",
            ),
            (
                r#""event":"lock_stolen","reason":"stale_lock","previous_lock":{"request_id":"req_0",
                "actor":"ci","pid":42,"host_id":"box","last_heartbeat_at":"2026-02-07T09:00:00Z"}"#,
                "lock_stolen          deploy  req_1  stale_lock from req_0 (ci, PID 42 on box, \
                 last heartbeat 2026-02-07T09:00:00Z)",
            ),
            (
                r#""event":"lock_stolen","reason":"corrupt_lock","previous_lock":null"#,
                "lock_stolen          deploy  req_1  corrupt_lock from an unreadable record",
            ),
            (
                r#""event":"lock_released","result":"failure","failure_step":"migrate",
                "held_duration_seconds":1.5"#,
                "lock_released        deploy  req_1  failure in migrate after 1.5s",
            ),
            (
                r#""event":"lock_released","result":"success","held_duration_seconds":1,"held_ms":1050"#,
                "lock_released        deploy  req_1  success after 1.050s",
            ),
            (
                r#""event":"lock_released","result":"forced","held_duration_seconds":2,"by_other":true"#,
                "lock_released        deploy  req_1  forced after 2s, by another",
            ),
            (
                r#""event":"lock_release_failed","lock_path":"/l","error":"EACCES: permission denied",
                "action":"manual_cleanup_required""#,
                "lock_release_failed  deploy  req_1  /l: EACCES: permission denied \
                 (manual_cleanup_required)",
            ),
            (
                r#""event":"heartbeat_failed","consecutive_failures":3,"error":"ENOSPC: no space""#,
                "heartbeat_failed     deploy  req_1  3 in a row: ENOSPC: no space",
            ),
            (
                r#""event":"lock_dreamt","of":"sheep","count":3"#,
                "lock_dreamt          deploy  req_1  of=sheep count=3",
            ),
        ] {
            assert_eq!(shown(rest), format!("2026-02-07T10:00:00.000Z  {expected}"));
        }
    }

    #[test]
    fn nothing_in_an_event_reaches_the_terminal_as_a_command() {
        let line = shown(r#""event":"lock_\u001b[2J\nstolen","x\u202e":"\u009b1m""#);
        assert!(!line.contains(char::is_control), "{line:?}");
        assert!(!line.contains('\u{202e}'), "{line:?}");
    }
}
