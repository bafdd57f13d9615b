//! The facts of a lock as a document, and the failure of a call that did not get it.

use super::{Exit, Failure, Retry, human};
use crate::view::{HolderView, LockView, StandstillView, Timestamp, age, is_retryable};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use std::time::Duration;
use tenure_core::{PENDING_MAX, Reason};
use tenure_store::advice;

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl LockView {
    /// The object.
    pub fn json(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(object)) => object,
            // A structure with texts for keys is an object.
            _ => Map::new(),
        }
    }

    /// The failure for a caller that wanted this lock.
    pub fn into_failure(
        self,
        reason: Reason,
        waited: Option<Duration>,
        retry_after_ms: u64,
    ) -> Failure {
        self.into_refusal(reason, waited, retry_after_ms, "Resource lock", "acquire")
    }

    /// The failure for a caller that only asked how this lock stands: it names the lock.
    pub fn into_answer(self) -> Failure {
        let reason = match self.standing {
            "unreadable" => Reason::Unreadable,
            "stale" => Reason::StaleNeedsForce,
            "unknown" => Reason::Unknown,
            _ => Reason::Held,
        };
        let retry_after_ms = self.retry_after_ms.unwrap_or(1_000);
        let called = format!("Resource lock {}", self.name);
        self.into_refusal(reason, None, retry_after_ms, &called, "check")
    }

    fn into_refusal(
        self,
        reason: Reason,
        waited: Option<Duration>,
        retry_after_ms: u64,
        called: &str,
        phase: &'static str,
    ) -> Failure {
        let holder = self.holder.as_ref();
        let after = waited
            .map(|waited| format!(" — acquisition timed out after {}", human(waited)))
            .unwrap_or_default();
        let by = holder.map_or_else(
            || "an unknown holder".to_owned(),
            |holder| match holder.work_pid {
                Some(_) if holder.is_this_process => "this process".to_owned(),
                Some(pid) => format!("PID {pid}"),
                // A record of another program may name no process and no request.
                None if holder.request_id.is_empty() => "an unknown holder".to_owned(),
                None => format!("request {}", holder.request_id),
            },
        );
        let aged = holder
            .map(|holder| format!(" (age: {})", age(holder.age_ms)))
            .unwrap_or_default();
        let ahead = self.ahead.as_ref().map(|ahead| match ahead.pid {
            Some(pid) => format!(", and PID {pid} waits before this call"),
            None => format!(", and request {} waits before this call", ahead.request_id),
        });
        let ahead = ahead.unwrap_or_default();
        let mut failure = match reason {
            Reason::Held => Failure::new(
                Exit::Precondition,
                "LOCK_HELD",
                match &self.standstill {
                    None => format!("{called} held by {by}{aged}{ahead}{after}"),
                    Some(still) => format!(
                        "{called} not held; {by} is next in line and {}, and {}{after}",
                        StandstillView::why(still.stopped),
                        still.stands_aside()
                    ),
                },
            ),
            Reason::QueueFull => Failure::new(
                Exit::Precondition,
                "QUEUE_FULL",
                format!(
                    "{called} held by {by}{aged}, and {PENDING_MAX} wait for it already, as \
                     many as --queue max lets"
                ),
            ),
            Reason::NeedsConfirmation => Failure::new(
                Exit::Precondition,
                "CONFIRMATION_REQUIRED",
                format!(
                    "{called} {} needs --yes beside --force",
                    self.overrides(&by, &aged)
                ),
            ),
            Reason::StaleNeedsForce => Failure::new(
                Exit::Precondition,
                "LOCK_STALE",
                format!("{called} is stale, left by {by}{aged}; --force takes it over"),
            ),
            Reason::Unreadable => Failure::new(
                Exit::Precondition,
                "LOCK_UNREADABLE",
                match self.force_after_ms {
                    None => format!("{} cannot be read; --force replaces it", self.lock_file),
                    Some(rest) => format!(
                        "{} cannot be read; --force replaces it in {}, if nothing renews or writes it until then",
                        self.lock_file,
                        age(rest)
                    ),
                },
            ),
            Reason::Unknown => Failure::new(
                Exit::StoreUnavailable,
                "STORE_UNAVAILABLE",
                format!("It could not be found out who holds {}", self.name),
            ),
        };
        if is_retryable(reason) {
            failure.retry = Some(Retry::linear(retry_after_ms));
            let fact = |value: Option<String>| value.unwrap_or_else(|| "unknown".to_owned());
            failure.detail = Some(format!(
                "lock_file={} holder_pid={} holder_age_ms={}",
                advice::word(&self.lock_file),
                fact(
                    holder
                        .and_then(|holder| holder.work_pid)
                        .map(|pid| pid.to_string())
                ),
                fact(holder.map(|holder| holder.age_ms.to_string())),
            ));
            failure.phase = Some(phase);
        }
        failure.fix_command = holder.and_then(HolderView::continuing);
        let mut context = self.json();
        if let Some(waited) = waited {
            let millis = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
            context.insert("waited_ms".into(), millis.into());
        }
        failure.context = context;
        failure
    }
}

impl LockView {
    /// What force would do to a hold that it does not end without a second yes.
    fn overrides(&self, by: &str, aged: &str) -> String {
        if self.standing == "stale" {
            return format!(
                "is stale, left by {by}; by the clock of its file system it was renewed within its ttl, so the clocks of \
                 two hosts differ; ending a living holder"
            );
        }
        format!("held by {by}{aged}; overriding it may let two holders work at once and")
    }
}
