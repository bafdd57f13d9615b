//! `fence check`: says whether a fencing token is still good. It asks the lock, or the guard that a
//! resource keeps.
//!
//! Both are needed. The lock knows a new holder at once, but its answer may be old when it arrives. The
//! guard knows only the tokens that it has seen, but after a newer token it lets no older one pass.
//! `tenure_engine::fence` keeps the guard.

use super::session::Session;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::Reporter;
use crate::request::{Fence, Place, no_token};
use serde_json::{Value, json};
use std::path::Path;
use tenure_core::{Claim, Entry, LockName, Standing};
use tenure_engine::fence::{Admission, Guard};
use tenure_os::clock::{Clock, SystemClock};
use tenure_store::Content;

/// No etcd has so many revisions. Tokens follow the clock, in microseconds, and are higher.
const BARE_REVISION_MAX: u64 = 1 << 44;

/// Text for people, and facts for programs.
type Said = (String, Value);

#[cold]
#[inline(never)]
pub(super) fn fence(fence: Fence, reporter: &mut Reporter) -> Result<Said, Failure> {
    match fence {
        Fence::Resource {
            guard,
            token,
            allow_network,
        } => {
            let mark = Guard::open(&guard, allow_network)?;
            pass_guard(reporter, &guard, &mark, token)
        }
        Fence::Lock { place, name, token } => ask_lock(reporter, place, &name, token),
    }
}

/// Whether a live hold of the lock has this token.
fn ask_lock(
    reporter: &mut Reporter,
    place: Place,
    name: &LockName,
    token: Option<u64>,
) -> Result<Said, Failure> {
    let session = Session::of_hold(place, name, None, token)?;
    session.tell_place(reporter);
    let inherited = || session.inherited(name).last().map(|hold| hold.token);
    let token = token.or_else(inherited).ok_or_else(no_token)?;
    let reading = session.reading(name).map_err(unknown_if_unreadable)?;
    if let Content::Unreadable { why, .. } = &reading.content {
        return Err(unknown(format!("{} cannot be read: {why}", reading.place)));
    }
    let now = session.clock.now();
    let mut granted = reading.entry().into_iter().flat_map(Entry::granted);
    let claim = granted.find(|claim| claim.token == Some(token));
    let standing = claim.map(|claim| reading.standing_of(session.store.policy(), claim, &now));
    let view = session.view_of(name, &reading, None);
    match standing {
        Some(Standing::Held(_)) => {
            reporter.explain(&format!(
                "fencing token {token} of {name} is good: {}",
                view.headline()
            ));
            Ok((
                String::new(),
                json!({ "name": name.as_str(), "token": token }),
            ))
        }
        Some(Standing::Unknown | Standing::Unreadable) => Err(unknown(format!(
            "it could not be found out whether the holder with fencing token {token} of {name} is alive"
        ))),
        Some(Standing::Stale(_) | Standing::Free) | None => {
            let mut context = view.json();
            context.insert("token".into(), token.into());
            Err(lost(name, token, claim, &view.headline()).with_context(context))
        }
    }
}

fn lost(name: &LockName, token: u64, left: Option<&Claim>, now: &str) -> Failure {
    let message = if left.is_some() {
        format!("the hold of {name} with fencing token {token} is over: {now}")
    } else {
        format!("no live hold of {name} has fencing token {token}: {now}")
    };
    Failure::new(Exit::LockLost, "LOCK_LOST", message)
}

fn unknown(message: String) -> Failure {
    Failure::new(Exit::StoreUnavailable, "STORE_UNAVAILABLE", message)
}

/// A lock that cannot be read says nothing about a token. That is no refusal.
fn unknown_if_unreadable(error: tenure_store::StoreError) -> Failure {
    match error {
        tenure_store::StoreError::Unreadable { .. } => unknown(error.to_string()),
        other => other.into(),
    }
}

/// Whether a request with this token may still touch the resource of a guard.
fn pass_guard(
    reporter: &Reporter,
    file: &Path,
    guard: &Guard,
    token: u64,
) -> Result<Said, Failure> {
    let shown = file.display().to_string();
    let (before, recorded) = match guard.admit(token)? {
        Admission::Recorded { before } => (before, true),
        Admission::Known => (Some(token), false),
        Admission::Refused { mark } => {
            let why = if token < BARE_REVISION_MAX && mark >= BARE_REVISION_MAX {
                "the token is a bare revision of etcd, as earlier versions of tenure gave it: use one version"
            } else if mark > SystemClock::new(None).now().wall_us {
                // A token is never below the clock of its grant.
                "which is ahead of this machine's clock. A newer holder works on this, or the clock is behind since the \
                 last one: in that case set it right and take the lock anew. If no older holder can write any more, \
                 removing the file makes the resource forget"
            } else {
                "so a newer holder works on this"
            };
            let message =
                format!("fencing token {token} is too old: {shown} has seen {mark}, {why}");
            let context = json!({ "guard": shown, "token": token, "mark": mark });
            return Err(Failure::new(Exit::LockLost, "FENCED", message).with_context(context));
        }
        // Nothing but an answer that is understood lets a request through.
        _ => return Err(unknown(format!("the answer of {shown} is not understood"))),
    };
    reporter.explain(&format!(
        "fencing token {token} may go on; the mark of {shown} is {token}"
    ));
    let data = json!({ "guard": shown, "token": token, "before": before, "recorded": recorded });
    Ok((String::new(), data))
}
