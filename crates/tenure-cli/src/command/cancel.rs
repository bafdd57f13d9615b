//! `cancel`: asks the holders of a lock to stop.

#[cfg(target_os = "linux")]
mod orphan;
#[cfg(target_os = "linux")]
mod stopped;

use super::near;

use super::session::Session;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::ids::request_id_or_new;
use crate::render::Reporter;
use crate::render::lock::{COUNTS_STILL, stop_hint, timestamp};
use crate::request::{Cancel, Whom, millis};
use serde_json::{Value, json};
use tenure_core::{CancelKind, Claim, Kind, LockName, RequestId, StopRequest, has_ended};
use tenure_engine::inherited::is_unnamed_run;
use tenure_os::clock::Clock;
use tenure_store::profile::{ends_without_release, known_as};
use tenure_store::{Reading, Verbs};

#[cold]
#[inline(never)]
pub(crate) fn cancel(cancel: Cancel, reporter: &mut Reporter) -> Result<(String, Value), Failure> {
    let Cancel {
        place,
        name,
        meant,
        by,
        whom,
    } = cancel;
    let meant = meant.as_ref().map(RequestId::as_str);
    let session = Session::open(place)?;
    session.tell_place(reporter);
    let by = request_id_or_new(by)?;
    reporter.set_request_id(by.as_str());
    let (actor, why, grace, force) = match whom {
        #[cfg(target_os = "linux")]
        Whom::Orphan(how) => {
            return orphan::end(how, &session, &name, meant, &by, reporter);
        }
        #[cfg(not(target_os = "linux"))]
        Whom::Orphan(_) => {
            return Err(Failure::bad_arguments(
                "--orphan needs handles on processes, which only Linux has",
            ));
        }
        #[cfg(not(target_os = "linux"))]
        Whom::Holder { force: true, .. } => {
            return Err(Failure::bad_arguments(
                "--force needs handles on processes, which only Linux has",
            ));
        }
        Whom::Holder {
            actor,
            why,
            grace,
            force,
        } => (actor, why, grace, force),
    };
    let now = session.clock.now();
    let actor = session.actor(actor);
    let request = StopRequest {
        by: by.as_str(),
        actor: &actor,
        why: &why,
        kind: CancelKind::Operator,
        grace_ms: grace.map(millis),
    };
    let is_meant = |claim: &Claim| meant.is_some_and(|id| known_as(&claim.holder) == id);
    let whom = meant
        .is_some()
        .then_some(&is_meant as &dyn Fn(&Claim) -> bool);
    let asked = session.store.cancel(&name, request, whom, &now);
    let asked = asked.map_err(|error| session.store_failed(&name, error))?;
    if let Some(refusal) = refusal(&asked, &name, meant) {
        if asked.is_empty() {
            near::point_out_absent(&session, reporter, &name);
        }
        return Err(refusal);
    }
    let mut occasion = session.occasion(&name, &by, None, &now);
    if let Some(party) = &mut occasion.by {
        (party.actor, party.why) = (&actor, Some(why.as_str()));
    }
    session.audit_writer.cancelled(reporter, occasion, &asked);
    let reading = session.reading(&name).ok();
    let asked: Vec<StopTarget<'_>> = asked
        .iter()
        .map(|claim| StopTarget {
            claim,
            how: Answering::of(claim, meant.is_some(), reading.as_ref()),
            is_stopped: reading
                .as_ref()
                .is_some_and(|reading| reading.is_stopped(claim)),
            has_ended: false,
        })
        .collect();
    let is_heard = |asked: &StopTarget<'_>| {
        !matches!(
            asked.how,
            Answering::Orphaned | Answering::Exec | Answering::Ended
        )
    };
    if !asked.iter().any(is_heard)
        && let Some(asked) = asked.first()
    {
        return Err(cannot_hear(&session, &name, asked));
    }
    #[cfg(target_os = "linux")]
    let asked = if force {
        stopped::continue_all(asked, &session, &name)?
    } else {
        asked
    };
    #[cfg(not(target_os = "linux"))]
    let _ = force;
    Ok(answer(&session, &name, meant, &asked, now.wall_us / 1_000))
}

/// A claim that was asked to stop.
struct StopTarget<'a> {
    claim: &'a Claim,
    how: Answering,
    /// The process is stopped, and hears nothing until it goes on.
    is_stopped: bool,
    /// The process was continued, and the hold has ended.
    has_ended: bool,
}

/// The refusal if no claim could be asked.
fn refusal(asked: &[Claim], name: &LockName, meant: Option<&str>) -> Option<Failure> {
    if asked.is_empty() {
        return Some(match meant {
            Some(id) => not_there(name, id),
            None => Failure::new(
                Exit::NotFound,
                "NO_HOLDER",
                format!("{name} is not held, so there is no holder to ask"),
            ),
        });
    }
    // A record of another program has no room for a request, and that program would not read it.
    let deaf = |claim: &&Claim| matches!(claim.kind, Kind::Foreign | Kind::Sealed);
    let claim = asked.iter().find(deaf)?;
    Some(Failure::new(
        Exit::Precondition,
        "CANNOT_ASK",
        format!(
            "{name} is held by {}, by a record of another program, which cannot be asked to stop",
            who(claim)
        ),
    ))
}

/// The answer about the claims that were asked.
fn answer(
    session: &Session,
    name: &LockName,
    meant: Option<&str>,
    asked: &[StopTarget<'_>],
    now_ms: u64,
) -> (String, Value) {
    let lines: Vec<String> = asked
        .iter()
        .map(|asked| line(session, name, asked, now_ms))
        .collect();
    let whom = match meant {
        Some(id) => format!("asked request {id} to stop, in {name}"),
        None if asked.iter().any(|asked| asked.how == Answering::Passive) => {
            format!("{name} is not held; asked the waiter that is next in line to stop")
        }
        None => format!("asked the holder of {name} to stop"),
    };
    let text = format!("{whom}: {}", lines.join("; "));
    let holders: Vec<_> = asked
        .iter()
        .map(|asked| {
            let claim = asked.claim;
            let mut holder = json!({
                "request_id": known_as(&claim.holder),
                "pid": claim.holder.process.map(|process| process.pid),
                "token": claim.token,
                "supervised": asked.how == Answering::Supervised && !asked.is_stopped,
                "waits": claim.token.is_none(),
                "killed_at": killed_at(asked, now_ms).map(timestamp),
                "asked_by": claim.cancel.as_ref().map(|cancel| cancel.by.clone()),
            });
            for (key, is_so) in [("stopped", asked.is_stopped), ("ended", asked.has_ended)] {
                if is_so {
                    holder[key] = true.into();
                }
            }
            holder
        })
        .collect();
    (text, json!({ "name": name.as_str(), "asked": holders }))
}

/// How a holder answers to a request to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answering {
    /// The supervisor ends the command.
    Supervised,
    /// Program that holds by `tenure serve`, and is told.
    Served,
    /// The supervisor is dead, and no other process ends its command. The hold lasts until the command ends.
    Orphaned,
    /// All processes of the hold are dead, and its record still counts.
    Ended,
    /// Program with a guard of the library, whose work ends when it looks.
    Program,
    /// The holder became its command.
    Exec,
    /// The holder has no supervisor, and learns of the request only if it looks by itself.
    Detached,
    /// Waiter that does not act.
    Passive,
    /// Waiter that leaves the line.
    Waiting,
    /// Place that was kept for a caller who is away, and is so no longer.
    Away,
}

impl Answering {
    fn of(claim: &Claim, meant: bool, reading: Option<&Reading>) -> Self {
        let is_orphaned = reading.is_some_and(|reading| reading.is_orphan(claim));
        let evidence = reading.and_then(|reading| reading.evidence_of(claim));
        let has_ended = evidence.is_some_and(|evidence| has_ended(&evidence));
        match claim.kind {
            Kind::Kernel | Kind::Detached if claim.token.is_none() => match &claim.reservation {
                Some(_) => Self::Away,
                None if meant => Self::Waiting,
                None => Self::Passive,
            },
            _ if has_ended => Self::Ended,
            Kind::Detached | Kind::Foreign | Kind::Sealed => Self::Detached,
            Kind::Kernel if ends_without_release(claim) => Self::Exec,
            Kind::Kernel if is_orphaned => Self::Orphaned,
            Kind::Kernel
                if claim.holder.command.is_some()
                    && claim.holder.command == claim.holder.process =>
            {
                Self::Served
            }
            Kind::Kernel if claim.holder.command.is_none() && !is_unnamed_run(claim) => {
                Self::Program
            }
            Kind::Kernel => Self::Supervised,
        }
    }
}

/// The refusal if no run of this request id is in the list.
fn not_there(name: &LockName, id: &str) -> Failure {
    Failure::new(
        Exit::NotFound,
        "NO_HOLDER",
        format!("no run with request id {id} holds {name} or waits for it, so nothing was asked"),
    )
    .with_context(json!({ "name": name.as_str(), "request_id": id }))
}

/// When what is left of the work is killed at the latest, in milliseconds of the wall clock. If that is over, the run is at
/// its rollback or a hook, which have a time of their own.
fn killed_at(asked: &StopTarget<'_>, now_ms: u64) -> Option<u64> {
    let is_heard = asked.how == Answering::Supervised && !asked.is_stopped && !asked.has_ended;
    let claim = asked.claim;
    let cancel = claim.cancel.as_ref().filter(|_| is_heard)?;
    let grace_ms = claim.grace_ms.min(cancel.grace_ms.unwrap_or(u64::MAX));
    Some(cancel.at.wall_ms.saturating_add(grace_ms)).filter(|at| *at >= now_ms)
}

/// The refusal if no supervisor is left that could be asked.
fn cannot_hear(session: &Session, name: &LockName, asked: &StopTarget<'_>) -> Failure {
    let claim = asked.claim;
    let is_orphaned = asked.how == Answering::Orphaned;
    let message = match session.view(name, None) {
        Ok(view) => format!("{}; {}", view.headline(), stop_hint(&view)),
        Err(_) => format!("{name} is held by {}", who(claim)),
    };
    Failure::new(Exit::Precondition, "CANNOT_ASK", message).with_context(json!({
        "name": name.as_str(),
        "orphaned": is_orphaned,
        "pid": claim.holder.process.map(|process| process.pid),
        "command_pid": claim.holder.command.map(|process| process.pid),
    }))
}

fn who(claim: &Claim) -> String {
    match claim.holder.process {
        Some(process) => format!("PID {}", process.pid),
        None => format!("request {}", known_as(&claim.holder)),
    }
}

fn line(session: &Session, name: &LockName, asked: &StopTarget<'_>, now_ms: u64) -> String {
    let who = who(asked.claim);
    if asked.has_ended {
        return format!("{who} was continued, and its hold has ended");
    }
    if asked.is_stopped {
        let pid = asked.claim.holder.process.map_or(0, |process| process.pid);
        let then = match asked.how {
            Answering::Supervised => "ends its command when it goes on",
            Answering::Waiting => "leaves the line when it goes on",
            _ => "is told when it goes on",
        };
        let force = match asked.how {
            Answering::Supervised | Answering::Program | Answering::Served => {
                let line = session.advice(name).line(&["cancel", "--force"], &[]);
                format!(", and `{line}` has it end, too")
            }
            _ => String::new(),
        };
        return format!("{who} is stopped and {then}; `kill -CONT {pid}` continues it{force}");
    }
    match asked.how {
        Answering::Supervised => match killed_at(asked, now_ms) {
            Some(at) => format!(
                "{who} ends its command, and kills what is left of it at {} at the latest",
                timestamp(at)
            ),
            None => format!("{who} ends its command"),
        },
        Answering::Orphaned => {
            let line = session.advice(name).line(&["cancel", "--orphan"], &[]);
            format!("{who} is dead and can ask no command to stop (`{line}` ends its command)")
        }
        Answering::Ended => {
            format!("{who} has ended, and nothing of it runs; {COUNTS_STILL}")
        }
        Answering::Exec => {
            format!("{who} has become its command, and no supervisor is there to end that")
        }
        Answering::Detached => {
            format!("{who} has no supervisor; `check` and `heartbeat` tell it")
        }
        Answering::Passive => {
            format!("{who} does not act; it lets others pass, and ends when it goes on")
        }
        Answering::Served => format!("the program of {who} is told"),
        Answering::Program => {
            format!("{who} is told, and its work ends when it looks; no command is ended")
        }
        Answering::Waiting => format!("{who} waits, and leaves the line"),
        Answering::Away => format!("{who} is away, and its place is no longer kept"),
    }
}
