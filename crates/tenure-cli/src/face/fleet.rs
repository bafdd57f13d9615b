//! How the fleet profile speaks: the JSON documents of lock/v1, what its record wants to know, and
//! what an intent means for a run.
//!
//! Every answer of the contract's verbs is one document on stdout, a failure too. With `--output json`
//! the product's envelope is printed instead, and a refusal carries the same document's fields in its
//! `context`.

use super::{Face, TakenOver, seconds};
use crate::failure::{Failure, object};
use crate::render::Document;
use crate::render::lock::{HolderView, LockView, timestamp};
use crate::request::{self, Asked, Intends, Surroundings, Variables, intended};
use serde_json::{Map, Value, json};
use tenure::envelope::json_line;
use tenure::intent::Mode;
use tenure::tenure_core::{Claim, LockName, Reason, RequestId, Takeover};

pub(super) struct Fleet;

const WAIT: &str = "Wait for completion or use --force-lock if stale";

const FORCE: &str = "Use --force-lock to acquire (stale lock will be logged)";

const OWNER: &str = "Show the request_id of the lock with --request-id";

const SECOND_MS: u64 = 1_000;

/// The verbs of the contract. What the others answer is the product's own.
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

impl Face for Fleet {
    fn misread(&self, verb: &str, mut failure: Failure) -> Failure {
        if let Some(document) = self.failures(verb) {
            failure.text = Some(document(None, &failure));
            failure.is_answer = true;
        }
        failure
    }

    fn failures(&self, verb: &str) -> Option<Document> {
        VERBS.contains(&verb).then_some(failed)
    }

    /// An intent says which lock is taken, or that none is; the record wants to know which intent it was.
    fn intends(&self, asked: &Asked<'_>, around: &Surroundings) -> Result<Intends, Failure> {
        let mut intends = intended::meaning(asked)?;
        let config = around.configuration()?;
        let host_id = config.host_id.as_ref();
        if let Some(id) = host_id.filter(|id| !id.trim().is_empty()) {
            intends.facts.push(("host_id".to_owned(), id.clone()));
        }
        Ok(intends)
    }

    /// `req_` and 12 hex digits.
    fn request_id(&self, given: Option<RequestId>) -> Result<RequestId, Failure> {
        given.map_or_else(request::fresh_id::<6>, Ok)
    }

    fn actor(&self, variables: &Variables) -> Option<String> {
        let named = variables.actor.as_deref().map(tenure::profile::why);
        Some(named.unwrap_or_else(|| "unknown".to_owned()))
    }

    fn check_ttl(&self, ttl_ms: u64) -> Result<(), Failure> {
        if ttl_ms >= SECOND_MS && ttl_ms.is_multiple_of(SECOND_MS) {
            return Ok(());
        }
        Err(Failure::bad_arguments(
            "--ttl: a fleet lock is leased for whole seconds, at least one",
        ))
    }

    /// The contract knows its owners by `request_id`; a process id is information only.
    fn knows_owners_by_process(&self) -> bool {
        false
    }

    fn tells_results(&self) -> bool {
        true
    }

    fn took_over(&self, taken: &TakenOver<'_>) -> String {
        let name = taken.name;
        let Some(claim) = taken.previous else {
            return format!("Replaced a corrupt lock for {name}");
        };
        let id = &claim.holder.request_id;
        let boot = claim.holder.host.boot_id.as_deref();
        let silent = seconds(claim.lease.silent_ms(boot, taken.now));
        match taken.why {
            Takeover::Stale(_) | Takeover::Corrupt => format!(
                "Replaced the stale lock for {name} of request {id} (no heartbeat for {silent}s, \
                 ttl {}s)",
                seconds(claim.lease.ttl_ms)
            ),
            Takeover::Active => format!("Overrode the lock for {name} of request {id}"),
        }
    }

    fn acquired_text(&self, name: &LockName, claim: &Claim, _: String, data: &Value) -> String {
        json_line(&json!({
            "status": "acquired",
            "lock_name": name.as_str(),
            "request_id": claim.holder.request_id.as_str(),
            "lock_path": data["lock_file"],
            "ttl_seconds": seconds(claim.lease.ttl_ms),
            "token": claim.token,
        }))
    }

    fn released_text(&self, name: &LockName, _: String, data: &Value) -> String {
        let mut answer = json!({
            "status": "released",
            "lock_name": name.as_str(),
            "request_id": data["request_id"],
            "held_duration_seconds": data["held_ms"].as_u64().map(seconds),
            "result": data["result"],
        });
        if let Some(step) = data.get("failure_step") {
            answer["failure_step"] = step.clone();
        }
        json_line(&answer)
    }

    fn force_released_text(&self, name: &LockName, _: String, data: &Value) -> String {
        json_line(&json!({
            "status": "released",
            "lock_name": name.as_str(),
            "request_id": data["request_id"],
            "held_duration_seconds": match data["request_id"] {
                // Nobody knows how long a corrupt one was held.
                Value::Null => None,
                _ => data["held_ms"].as_u64().map(seconds),
            },
            "result": "forced",
        }))
    }

    fn absent_text(&self, name: &LockName) -> String {
        json_line(&json!({ "status": "absent", "lock_name": name.as_str() }))
    }

    fn renewed_text(&self, name: &LockName, claim: &Claim, _: String, _: &Value) -> String {
        json_line(&json!({
            "status": "renewed",
            "lock_name": name.as_str(),
            "request_id": claim.holder.request_id.as_str(),
            "last_heartbeat_at": timestamp(claim.lease.renewed.wall_ms),
            "ttl_seconds": seconds(claim.lease.ttl_ms),
            "token": claim.token.filter(|token| *token > 0),
        }))
    }

    fn refused(&self, failure: Failure, view: &LockView, reason: Reason) -> Failure {
        let document = match reason {
            Reason::Held | Reason::QueueFull | Reason::NeedsConfirmation => {
                blocked(&view.name, &holder(view), WAIT)
            }
            Reason::StaleNeedsForce => stale(view),
            Reason::Unreadable => {
                let why = view.unreadable_because.as_deref();
                corrupt(&view.name, why.unwrap_or("it cannot be understood"))
            }
            Reason::Unknown => return failure,
        };
        answered(failure, document)
    }

    fn not_owner(&self, mut failure: Failure, view: &LockView) -> Failure {
        failure.text = Some(json_line(&json!({
            "error": error_of(&failure),
            "lock_name": view.name,
            "held_by": holder(view),
            "message": failure.message,
            "suggestion": OWNER,
        })));
        failure.is_answer = true;
        failure
    }

    fn waited_text(&self, name: &LockName, _: String) -> String {
        json_line(&json!({ "lock_name": name.as_str(), "status": "free" }))
    }

    fn unreadable(&self, failure: Failure, name: &LockName, why: &str) -> Failure {
        answered(failure, corrupt(name.as_str(), why))
    }

    fn checked(&self, mut failure: Failure, view: &LockView) -> Failure {
        failure.context.extend(object(standing(view)));
        failure
    }

    fn checked_text(&self, view: &LockView) -> String {
        json_line(&standing(view))
    }

    fn listed_text(&self, views: &[LockView], _: String) -> String {
        let locks: Vec<Value> = views.iter().map(standing).collect();
        json_line(&json!({ "locks": locks }))
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
fn failed(lock: Option<&str>, failure: &Failure) -> String {
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

/// The answer to `acquire` for an intent that takes no lock.
pub(crate) fn unlocked(id: &RequestId, mode: Mode) -> (String, Value) {
    let text = json_line(&json!({
        "status": "unlocked",
        "mode": mode.word(),
        "lock_name": null,
        "request_id": id.as_str(),
        "lock_path": null,
        "ttl_seconds": null,
        "token": null,
    }));
    let data = json!({
        "name": null,
        "status": "unlocked",
        "mode": mode.word(),
        "already_held": false,
        "request_id": id.as_str(),
        "token": null,
        "owner_pid": null,
        "owner_name": null,
        "ttl_ms": null,
        "lock_file": null,
    });
    (text, data)
}

fn blocked(name: &str, held_by: &Value, suggestion: &str) -> Value {
    json!({
        "error": "lock_blocked",
        "lock_name": name,
        "held_by": held_by,
        "suggestion": suggestion,
    })
}

fn corrupt(name: &str, why: &str) -> Value {
    blocked(name, &Value::Null, &corrupt_because(why))
}

fn corrupt_because(why: &str) -> String {
    format!(
        "The lock file is corrupt: {why}; --force-lock replaces it once it has not been written \
         for longer than the TTL"
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
        "held" => ("active", (!view.mine).then(|| WAIT.to_owned())),
        "stale" => ("stale", Some(FORCE.to_owned())),
        "unreadable" => {
            let why = view.unreadable_because.as_deref();
            let why = why.unwrap_or("it cannot be understood");
            ("corrupt", Some(corrupt_because(why)))
        }
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

/// Who has it, by the names of the record.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_has_whole_seconds() {
        for good in [1_000, 2_000, 900_000] {
            assert!(Fleet.check_ttl(good).is_ok(), "{good} ms");
        }
        for bad in [1, 500, 999, 1_001, 1_500] {
            assert!(Fleet.check_ttl(bad).is_err(), "{bad} ms");
        }
    }
}
