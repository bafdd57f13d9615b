//! How the fleet profile speaks: the JSON documents of lock/v1.
//!
//! Every answer of the contract's verbs is one document on stdout, a failure too. With `--output json`
//! the product's envelope is printed instead, and a refusal carries the same document's fields in its
//! `context`.

use super::{CallRefusal, CallResult, Dialect, PersonLine, own_line, seconds};
use crate::failure::{Failure, object};
use crate::render::FailureDocument;
use crate::render::lock::{HolderView, LockView, timestamp};
use serde_json::{Map, Value, json};
use tenure_core::{Claim, LockName, Now, Reason, Takeover};
use tenure_engine::envelope::json_line;

pub(crate) struct Fleet;

const WAIT: &str = "Wait for completion or use --force-lock if stale";

const FORCE: &str = "Use --force-lock to acquire (stale lock will be logged)";

const OWNER: &str = "Show the request_id of the lock with --request-id";

/// The verbs of the contract. The others answer in tenure's own way.
const VERBS: [&str; 8] = [
    "run",
    "acquire",
    "release",
    "force-release",
    "heartbeat",
    "check",
    "list",
    "wait",
];

impl Dialect for Fleet {
    fn answer(&self, done: &CallResult<'_>) -> Option<String> {
        Some(json_line(&document_of(done)?))
    }

    fn standing(&self) -> Option<fn(&LockView) -> Value> {
        Some(standing)
    }

    fn line(&self, about: &PersonLine<'_>) -> Option<String> {
        match about {
            PersonLine::TookOver {
                name,
                why,
                previous,
                now,
            } => Some(took_over(name, *why, *previous, now)),
            other => own_line(other),
        }
    }

    fn refusal(&self, mut failure: Failure, why: &CallRefusal<'_>) -> Failure {
        match why {
            CallRefusal::Blocked { view, reason, .. } => {
                let document = match reason {
                    Reason::Held | Reason::QueueFull => {
                        blocked(&view.name, &holder(view), &wait_of(view))
                    }
                    Reason::NeedsConfirmation => {
                        let mut document = stale(view);
                        document["suggestion"] = failure.message.as_str().into();
                        document
                    }
                    Reason::StaleNeedsForce => stale(view),
                    Reason::Unreadable => blocked(&view.name, &Value::Null, &corrupt_of(view)),
                    Reason::Unknown => return failure,
                };
                answered(failure, document)
            }
            CallRefusal::Unreadable { name, why } => {
                let suggestion = corrupt_because(why);
                answered(failure, blocked(name.as_str(), &Value::Null, &suggestion))
            }
            CallRefusal::NotOwner(view) => {
                failure.text = Some(json_line(&json!({
                    "error": error_of(&failure),
                    "lock_name": view.name,
                    "held_by": holder(view),
                    "message": format!("{}{}", failure.message, stopped_of(view)),
                    "suggestion": OWNER,
                })));
                failure.is_answer = true;
                failure
            }
            CallRefusal::Checked(view) => {
                failure.context.extend(object(standing(view)));
                failure
            }
        }
    }

    fn document(&self, verb: &str) -> Option<FailureDocument> {
        VERBS.contains(&verb).then_some(failed)
    }
}

/// The document of a success, if the contract has one.
fn document_of(done: &CallResult<'_>) -> Option<Value> {
    Some(match done {
        CallResult::Acquired {
            name,
            claim,
            lock_file,
        } => json!({
            "status": "acquired",
            "lock_name": name.as_str(),
            "request_id": claim.holder.request_id.as_str(),
            "lock_path": lock_file,
            "ttl_seconds": seconds(claim.lease.ttl_ms),
            "token": claim.token,
        }),
        CallResult::Unlocked { id, mode } => json!({
            "status": "unlocked",
            "mode": mode.word(),
            "lock_name": null,
            "request_id": id.as_str(),
            "lock_path": null,
            "ttl_seconds": null,
            "token": null,
        }),
        CallResult::Released {
            name,
            request_id,
            held_ms,
            result,
            failure_step,
        } => {
            let mut answer = json!({
                "status": "released",
                "lock_name": name.as_str(),
                "request_id": request_id,
                "held_duration_seconds": seconds(*held_ms),
                "result": result,
            });
            if let Some(step) = failure_step {
                answer["failure_step"] = (*step).into();
            }
            answer
        }
        CallResult::ForceReleased {
            name,
            request_id,
            held_ms,
        } => json!({
            "status": "released",
            "lock_name": name.as_str(),
            "request_id": request_id,
            // Nobody knows how long a corrupt lock was held.
            "held_duration_seconds": request_id.map(|_| seconds(*held_ms)),
            "result": "forced",
        }),
        CallResult::Absent { name } => json!({ "status": "absent", "lock_name": name.as_str() }),
        CallResult::Renewed { name, claim, .. } => json!({
            "status": "renewed",
            "lock_name": name.as_str(),
            "request_id": claim.holder.request_id.as_str(),
            "last_heartbeat_at": timestamp(claim.lease.renewed.wall_ms),
            "ttl_seconds": seconds(claim.lease.ttl_ms),
            "token": claim.token.filter(|token| *token > 0),
        }),
        CallResult::Free { name } => json!({ "lock_name": name.as_str(), "status": "free" }),
        CallResult::Checked(view) => standing(view),
        CallResult::Cleaned { .. } => return None,
    })
}

fn took_over(name: &LockName, why: Takeover, previous: Option<&Claim>, now: &Now) -> String {
    let Some(claim) = previous else {
        return format!("Replaced a corrupt lock for {name}");
    };
    let id = &claim.holder.request_id;
    let boot = claim.boot();
    let silent = seconds(claim.lease.silent_ms(boot, now));
    match why {
        Takeover::Stale(_) | Takeover::Corrupt => format!(
            "Replaced the stale lock for {name} of request {id} (no heartbeat for {silent}s, \
             ttl {}s)",
            seconds(claim.lease.ttl_ms)
        ),
        Takeover::Active => format!("Overrode the lock for {name} of request {id}"),
    }
}

/// The failure with a document as its answer.
fn answered(mut failure: Failure, document: Value) -> Failure {
    failure.text = Some(json_line(&document));
    failure.is_answer = true;
    failure.context.extend(object(document));
    failure
}

/// The document of a failure that the contract has no words for.
fn failed(_: &str, lock: Option<&str>, failure: &Failure) -> String {
    json_line(&json!({
        "error": error_of(failure),
        "lock_name": lock,
        "message": failure.message,
    }))
}

/// What the document calls the failure: the envelope's code, as the contract spells its words.
fn error_of(failure: &Failure) -> String {
    failure.code.to_ascii_lowercase()
}

fn blocked(name: &str, held_by: &Value, suggestion: &str) -> Value {
    json!({
        "error": "lock_blocked",
        "lock_name": name,
        "held_by": held_by,
        "suggestion": suggestion,
    })
}

/// What to do about an active lock.
fn wait_of(view: &LockView) -> String {
    format!("{WAIT}{}", stopped_of(view))
}

/// Says at the end of a sentence that the holder is stopped. A stopped holder renews nothing until somebody continues it.
fn stopped_of(view: &LockView) -> String {
    let stopped = view.holder.as_ref().and_then(HolderView::is_stopped_and);
    let stopped = stopped.map(|stopped| format!("; its holder is {stopped}"));
    stopped.unwrap_or_default()
}

fn corrupt_of(view: &LockView) -> String {
    let why = view.unreadable_because.as_deref();
    corrupt_because(why.unwrap_or("it cannot be understood"))
}

fn corrupt_because(why: &str) -> String {
    format!(
        "The lock file is corrupt: {why}; --force-lock replaces it once it has been silent for longer \
         than the TTL"
    )
}

fn stale(view: &LockView) -> Value {
    let silence = view.holder.as_ref();
    json!({
        "error": "lock_stale",
        "lock_name": view.name,
        "stale_since": silence.map(|holder| timestamp(holder.renewed_ms)),
        "age_seconds": silence.map(|holder| seconds(holder.silent_ms)),
        "ttl_seconds": silence.map(|holder| seconds(holder.ttl_ms)),
        "held_by": holder(view),
        "suggestion": FORCE,
    })
}

/// How a lock stands.
fn standing(view: &LockView) -> Value {
    let holder_view = view.holder.as_ref();
    let (status, suggestion) = match view.standing {
        "held" => ("active", (!view.mine).then(|| wait_of(view))),
        "stale" => ("stale", Some(FORCE.to_owned())),
        "unreadable" => ("corrupt", Some(corrupt_of(view))),
        other => (other, None),
    };
    let mut answer = Map::new();
    answer.insert("lock_name".into(), view.name.as_str().into());
    answer.insert("status".into(), status.into());
    answer.insert("held_by".into(), holder(view));
    let whole = |of: fn(&HolderView) -> u64| holder_view.map(|view| seconds(of(view))).into();
    answer.insert("age_seconds".into(), whole(|holder| holder.silent_ms));
    answer.insert("ttl_seconds".into(), whole(|holder| holder.ttl_ms));
    if let Some(suggestion) = suggestion {
        answer.insert("suggestion".into(), suggestion.into());
    }
    Value::Object(answer)
}

/// The holder, by the names of the record.
fn holder(view: &LockView) -> Value {
    let Some(holder) = &view.holder else {
        return Value::Null;
    };
    let pid = holder.pid.map(u64::from);
    // A number that is no process id is shown as the record has it.
    let pid = pid.or_else(|| holder.fact("pid")?.parse().ok());
    json!({
        "request_id": holder.request_id,
        "actor": holder.actor,
        "intent": holder.fact("intent"),
        "created_at": timestamp(holder.since_ms),
        "last_heartbeat_at": timestamp(holder.renewed_ms),
        "host_id": holder.fact("host_id").unwrap_or(&holder.host),
        "pid": pid.unwrap_or(0),
    })
}
