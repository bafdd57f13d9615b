//! `cancel --force`: continues holders that are stopped, so that they hear what they were asked and end their work.
//!
//! Only the process that is proven to keep the claim is continued (`supervise::orphan`), and nothing else is sent to it: its
//! own supervisor ends the command, as for every cancel. A crash of this call leaves a holder that was asked, whether it was
//! continued or not, and the next call does the rest.

use super::super::session::Session;
use super::orphan::{hold_of, is_here};
use super::{Answering, StopTarget, who};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::lock::age;
use crate::supervise::orphan::{Holder, Unproven};
use serde_json::json;
use std::time::Duration;
use tenure_core::{Claim, Kind, LockName};
use tenure_os::clock::{instant, nap, since};

/// How often this call looks whether the hold has ended.
const LOOK: Duration = Duration::from_millis(20);

/// What the end of the work may take beyond its grace and that of a hook.
const SLACK: Duration = Duration::from_secs(7);

/// Continues each holder that is stopped and can be proven, and waits for the end of those that end by themselves.
pub(super) fn continue_all<'a>(
    asked: Vec<StopTarget<'a>>,
    session: &Session,
    name: &LockName,
) -> Result<Vec<StopTarget<'a>>, Failure> {
    let asked = asked.into_iter().map(|mut asked| {
        if asked.is_stopped && asked.claim.kind == Kind::Kernel {
            asked.has_ended = goes_on(&asked, session, name)?;
            asked.is_stopped = false;
        }
        Ok(asked)
    });
    asked.collect()
}

/// Continues one. Returns whether its claim has left the list since.
fn goes_on(asked: &StopTarget<'_>, session: &Session, name: &LockName) -> Result<bool, Failure> {
    let claim = asked.claim;
    let process = claim.holder.process.filter(|_| is_here(session, claim));
    let opened = process.ok_or(Unproven::Gone);
    let opened = opened.and_then(|it| Holder::open(&it, &hold_of(session, name, claim)));
    let holder = opened.map_err(|why| unproven(name, claim, &why))?;
    // Judged again now that the handle is open: if the claim still stands, the opened process is its.
    if !stands(session, name, claim)? {
        return Ok(true);
    }
    holder
        .goes_on()
        .map_err(|errno| unproven(name, claim, &Unproven::Unseen(errno)))?;
    if matches!(asked.how, Answering::Program | Answering::Served) {
        return Ok(false);
    }
    let said = claim.cancel.as_ref().and_then(|cancel| cancel.grace_ms);
    let grace_ms = claim.grace_ms.min(said.unwrap_or(u64::MAX));
    let patience = Duration::from_millis(grace_ms.saturating_mul(2)).saturating_add(SLACK);
    let began = instant();
    while stands(session, name, claim)? {
        if since(began) >= patience {
            let waited = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
            let why = format!("was continued, and has not ended within {}", age(waited));
            return Err(remains(name, claim, "HOLDER_REMAINS", &why));
        }
        nap(LOOK);
    }
    Ok(true)
}

/// Whether a claim stands in the list as it was.
fn stands(session: &Session, name: &LockName, claim: &Claim) -> Result<bool, Failure> {
    let reading = session.reading(name)?;
    let found = reading.entry().and_then(|entry| entry.claim(claim.ticket));
    Ok(found.is_some_and(|found| (found.token, &found.holder) == (claim.token, &claim.holder)))
}

fn unproven(name: &LockName, claim: &Claim, why: &Unproven) -> Failure {
    let because = match why {
        Unproven::Gone => "has ended",
        Unproven::Unseen(_) => {
            let why = "was not continued: that is for its own user or root";
            let mut failure = remains(name, claim, "PERMISSION_DENIED", why);
            failure.exit = Exit::Permission;
            return failure;
        }
        Unproven::KeepsNothing | Unproven::NamesNothing | Unproven::Own => {
            "does not keep the lock on the file, so it may be another one"
        }
    };
    let why = format!("was not continued, for the process of that number {because}");
    remains(name, claim, "HOLDER_UNPROVEN", &why)
}

fn remains(name: &LockName, claim: &Claim, code: &'static str, why: &str) -> Failure {
    let message = format!("{name}: {} was asked to stop; it {why}", who(claim));
    Failure::new(Exit::Precondition, code, message).with_context(json!({
        "name": name.as_str(),
        "request_id": claim.holder.request_id.as_str(),
        "pid": claim.holder.process.map(|process| process.pid),
        "token": claim.token,
    }))
}
