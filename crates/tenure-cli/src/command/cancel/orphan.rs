//! `cancel --orphan`: ends the work of a run whose supervisor is dead, and says whether it is gone.
//!
//! Ends only processes that are proven to be that work (`supervise::orphan`), names the others, and
//! leaves them alone.

use super::super::prompt::{self, Reply};
use super::super::refusal::cancelled;
use super::super::run::terms::usual_without_signals;
use super::super::session::{Session, collect_signals};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::lock::stop_hint;
use crate::render::{Reporter, clean};
use crate::request::EndOrphan;
use crate::supervise::Terms;
use crate::supervise::orphan::{HoldOf, Orphan, OrphanEnd, Unproven, ignores};
use serde_json::{Value, json};
use std::time::Duration;
use tenure_core::{
    Claim, Entry, Evidence, Liveness, LivenessLock, LockName, Process, RequestId, Standing,
};
use tenure_os::clock::{Clock, instant, nap, since};
use tenure_os::process;
use tenure_store::profile::{ends_without_release, known_as};
use tenure_store::{Content, Reading};

/// How long the kernel may take to release the liveness lock of processes that have ended.
const LIVENESS_LOCK_ENDS: Duration = Duration::from_secs(2);

/// How often this call looks at the lock meanwhile.
const LOOK: Duration = Duration::from_millis(20);

/// The work's grace if its run has recorded none.
const GRACE: Duration = Duration::from_secs(10);

pub(super) fn end(
    how: EndOrphan,
    session: &Session,
    name: &LockName,
    meant: Option<&str>,
    by: &RequestId,
    reporter: &mut Reporter,
) -> Result<(String, Value), Failure> {
    let mut orphans = orphans(session, name)?;
    if let Some(id) = meant {
        orphans.retain(|claim| known_as(&claim.holder) == id);
        if orphans.is_empty() {
            return Err(super::not_there(name, id));
        }
    }
    let mut ended = Vec::new();
    let mut lines = Vec::new();
    for claim in &orphans {
        let command = command_of(session, name, claim)?;
        let orphan = Orphan::open(&command, hold_of(session, name, claim));
        let orphan = orphan.map_err(|why| unproven(name, claim, &command, &why))?;
        // Judged again now that the handle on its process is open: if the claim still stands, its command
        // is the process that was opened.
        let reading = session.reading(name)?;
        if !is_same_orphan(&reading, claim) {
            return Err(not_orphaned(session, name, &reading));
        }
        let numbers = orphan.numbers();
        if how.dry_run {
            lines.push(format!("{} (PID {})", who(claim), listed(&numbers)));
            ended.push(json!({
                "request_id": known_as(&claim.holder),
                "token": claim.token,
                "supervisor_pid": claim.holder.process.map(|process| process.pid),
                "command_pid": command.pid,
                "ended_pids": [],
                "would_end_pids": numbers,
                "is_free": false,
            }));
            continue;
        }
        if !how.yes && !may_end(name, claim, &numbers)? {
            return Err(Failure::new(
                Exit::Precondition,
                "CONFIRMATION_REQUIRED",
                format!("{name}: no process was ended, for the answer was no yes"),
            ));
        }
        let done = orphan.end(terms_of(how, claim, &command));
        record(session, reporter, name, by, claim, &done);
        let outcome = outcome(session, name, claim, &done)?;
        let afterwards = if outcome.is_free {
            "; all that it held the lock by is gone"
        } else if session.store.is_remote() {
            "; its lease has yet to run out"
        } else {
            "; its record stands until it is too old for this profile"
        };
        lines.push(format!(
            "{} (PID {}){afterwards}",
            who(claim),
            listed(&done.gone)
        ));
        ended.push(json!({
            "request_id": known_as(&claim.holder),
            "token": claim.token,
            "supervisor_pid": claim.holder.process.map(|process| process.pid),
            "command_pid": command.pid,
            "ended_pids": done.gone,
            "is_free": outcome.is_free,
        }));
    }
    let did = if how.dry_run { "would end" } else { "ended" };
    let text = format!("{did} what was left of {name}: {}", lines.join("; "));
    Ok((text, json!({ "name": name.as_str(), "ended": ended })))
}

/// The hold of a claim, as its processes are known by it.
pub(super) fn hold_of(session: &Session, name: &LockName, claim: &Claim) -> HoldOf {
    HoldOf {
        token: claim.token.unwrap_or_default(),
        folder: session.place.folder.clone(),
        name: name.as_str().to_owned(),
        byte: session.store.list_of(name).map(|list| (list, claim.ticket)),
    }
}

fn listed(numbers: &[u32]) -> String {
    let words: Vec<_> = numbers.iter().map(u32::to_string).collect();
    words.join(", ")
}

/// The yes of the person at the terminal; where none can be asked, the call itself is one.
fn may_end(name: &LockName, claim: &Claim, numbers: &[u32]) -> Result<bool, Failure> {
    if !prompt::can_ask() {
        return Ok(true);
    }
    let question = format!(
        "{name}: {}, {}. End PID {}?",
        who(claim),
        clean(&claim.holder.why),
        listed(numbers)
    );
    let signals = collect_signals()?;
    match prompt::ask(&question, signals) {
        Reply::Yes => Ok(true),
        Reply::No => Ok(false),
        Reply::Interrupted => Err(cancelled("cancel")),
    }
}

/// The holds to be ended. At least one.
fn orphans(session: &Session, name: &LockName) -> Result<Vec<Claim>, Failure> {
    let reading = session.reading(name)?;
    let Content::Whole { entry, .. } = &reading.content else {
        return Err(not_orphaned(session, name, &reading));
    };
    let orphans: Vec<Claim> = entry
        .granted()
        .filter(|claim| is_same_orphan(&reading, claim))
        .cloned()
        .collect();
    if orphans.is_empty() {
        return Err(not_orphaned(session, name, &reading));
    }
    Ok(orphans)
}

/// Whether a claim stands in the list as it was, and its supervisor is dead while its work goes on, however the lock stands.
fn is_same_orphan(reading: &Reading, wanted: &Claim) -> bool {
    let Some(claim) = reading.entry().and_then(|entry| entry.claim(wanted.ticket)) else {
        return false;
    };
    (claim.token, &claim.holder) == (wanted.token, &wanted.holder) && reading.is_orphan(claim)
}

/// Whether the process ids of a claim are of this machine, boot and PID namespace.
pub(super) fn is_here(session: &Session, claim: &Claim) -> bool {
    let here = &session.identity.host;
    process::shares_processes(&claim.holder.host, here)
}

/// The recorded command, if its number is of this machine, boot and PID namespace.
fn command_of(session: &Session, name: &LockName, claim: &Claim) -> Result<Process, Failure> {
    let why = match claim.holder.command {
        _ if !is_here(session, claim) => "its record is of another machine, boot or PID namespace",
        None if ends_without_release(claim) => {
            "it had become its command, which has ended, and what keeps the lock now was started by that"
        }
        None => "its supervisor died before it could record its command",
        Some(command) if command.started.is_none() => {
            "its record does not say when its command started"
        }
        Some(command) => return Ok(command),
    };
    Err(cannot(name, claim, why))
}

fn who(claim: &Claim) -> String {
    match claim.holder.process {
        Some(process) => format!("the run of PID {}", process.pid),
        None => format!("the run of request {}", known_as(&claim.holder)),
    }
}

fn cannot(name: &LockName, claim: &Claim, why: &str) -> Failure {
    let command = claim.holder.command;
    let by_hand = command.map_or_else(String::new, |it| format!(" (`kill {}`)", it.pid));
    Failure::new(
        Exit::Precondition,
        "ORPHAN_UNPROVEN",
        format!(
            "{name} is held by what is left of {}, and no process was ended: {why}. If it is that work, end it by \
             hand{by_hand}, or wait for it",
            who(claim)
        ),
    )
    .with_context(facts(name, claim))
}

fn facts(name: &LockName, claim: &Claim) -> Value {
    json!({
        "name": name.as_str(),
        "request_id": known_as(&claim.holder),
        "token": claim.token,
        "supervisor_pid": claim.holder.process.map(|process| process.pid),
        "command_pid": claim.holder.command.map(|process| process.pid),
    })
}

fn unproven(name: &LockName, claim: &Claim, command: &Process, why: &Unproven) -> Failure {
    let pid = command.pid;
    let is = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let is = match is.trim_end() {
        "" => String::new(),
        is => format!(" ({})", clean(is)),
    };
    let why = match why {
        Unproven::Gone => format!(
            "its command, PID {pid}, has ended, and what keeps the lock now was started by it and has \
             lost its parent, so it cannot be told from others"
        ),
        Unproven::Own => "this very call is a part of its work".to_owned(),
        Unproven::Unseen(errno) => format!("its command, PID {pid}, cannot be looked at ({errno})"),
        Unproven::KeepsNothing => format!(
            "PID {pid}{is} has the number of its command, and does not keep its lock on the file (a command that closed the \
             descriptor, as sudo does, or another process)"
        ),
        Unproven::NamesNothing => format!(
            "PID {pid}{is} has the number of its command, and its environment does not name this hold"
        ),
    };
    cannot(name, claim, &why)
}

/// The refusal if there is no orphan to end.
fn not_orphaned(session: &Session, name: &LockName, reading: &Reading) -> Failure {
    let view = session.view_of(name, reading, None);
    match view.standing {
        "held" => {
            let holder = view.holder.as_ref();
            let how = match holder.map(|holder| holder.kind) {
                Some("run") => format!(
                    "its supervisor is not known to be dead; {}",
                    stop_hint(&view)
                ),
                _ => "it has no supervisor that could have died".to_owned(),
            };
            Failure::new(
                Exit::Precondition,
                "NOT_ORPHANED",
                format!("{}; {how}", view.headline()),
            )
            .with_context(view.json())
        }
        _ => Failure::new(
            Exit::NotFound,
            "NO_HOLDER",
            format!("{name} is not held, so there is nothing to end"),
        ),
    }
}

/// The terms with which the run was started, unless the operator gives others.
fn terms_of(how: EndOrphan, claim: &Claim, command: &Process) -> Terms {
    let recorded = Some(claim.grace_ms).filter(|grace_ms| *grace_ms > 0);
    let grace = how.grace.or(recorded.map(Duration::from_millis));
    let signal = how.signal.unwrap_or_else(|| {
        // The command ignores SIGINT from its start, as all commands do that a script starts with `&`.
        if ignores(command.pid, libc::SIGINT) {
            libc::SIGTERM
        } else {
            libc::SIGINT
        }
    });
    usual_without_signals(grace.unwrap_or(GRACE), signal)
}

struct Outcome {
    is_free: bool,
}

/// What is left once the proven work has ended.
fn outcome(
    session: &Session,
    name: &LockName,
    claim: &Claim,
    done: &OrphanEnd,
) -> Result<Outcome, Failure> {
    if done.refused {
        return Err(Failure::new(
            Exit::Permission,
            "PERMISSION_DENIED",
            format!(
                "{name} is held by what is left of {}, which belongs to another user; only that user or \
                 root can end it",
                who(claim)
            ),
        )
        .with_context(facts(name, claim)));
    }
    let patience = if session.store.is_remote() {
        Duration::from_millis(claim.lease.ttl_ms) + LIVENESS_LOCK_ENDS
    } else {
        LIVENESS_LOCK_ENDS
    };
    let began = instant();
    loop {
        let reading = session.reading(name)?;
        let now = session.clock.now();
        let stands = reading.entry().and_then(|entry| entry.claim(claim.ticket));
        let stands = stands.filter(|stands| stands.token == claim.token);
        let is_free = stands.is_none_or(|stands| {
            let standing = reading.standing_of(session.store.policy(), stands, &now);
            !matches!(standing, Standing::Held(_))
        });
        if is_free && done.left.is_empty() {
            return Ok(Outcome { is_free });
        }
        if since(began) >= patience || !done.left.is_empty() {
            let seen = stands.and_then(|stands| evidence_of(&reading, stands));
            let keeps = seen.is_some_and(|seen| {
                seen.command == Liveness::Alive
                    || (seen.liveness_lock == LivenessLock::Held && !session.store.is_remote())
            });
            // A profile that goes by the age of a record frees the lock when the record is old enough.
            if !keeps && done.left.is_empty() {
                return Ok(Outcome { is_free });
            }
            return Err(remains(name, claim, done));
        }
        nap(LOOK);
    }
}

fn evidence_of(reading: &Reading, claim: &Claim) -> Option<Evidence> {
    let Content::Whole { entry, evidence } = &reading.content else {
        return None;
    };
    evidence.get(Entry::position(entry, claim.ticket)?).copied()
}

fn remains(name: &LockName, claim: &Claim, done: &OrphanEnd) -> Failure {
    let what = if done.left.is_empty() {
        "a process that it had started keeps it. That one has lost its parent, so it cannot be told from \
         others and was not ended"
            .to_owned()
    } else {
        format!("PID {} has not ended", listed(&done.left))
    };
    let mut failure = Failure::new(
        Exit::Precondition,
        "ORPHAN_REMAINS",
        format!(
            "{name} is still held: of {}, PID {} has ended, but {what}",
            who(claim),
            listed(&done.gone)
        ),
    );
    failure.partial = true;
    let mut context = facts(name, claim);
    context["ended_pids"] = done.gone.clone().into();
    context["left_pids"] = done.left.clone().into();
    failure.with_context(context)
}

/// A caller has ended the work of another run: the audit always records that.
fn record(
    session: &Session,
    reporter: &mut Reporter,
    name: &LockName,
    by: &RequestId,
    claim: &Claim,
    done: &OrphanEnd,
) {
    let now = session.clock.now();
    session.audit_writer.orphan_ended(
        reporter,
        session.occasion(name, by, None, &now),
        claim,
        &done.gone,
    );
}
