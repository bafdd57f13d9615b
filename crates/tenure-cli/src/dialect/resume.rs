//! How the resume profile speaks: the sentences that users of resume locks know.

use super::{CallRefusal, Dialect, PersonLine, own_line};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::clean;
use crate::render::lock::{HolderView, LockView, age, stop_hint, utc};

pub(crate) struct Resume;

impl Dialect for Resume {
    fn line(&self, about: &PersonLine<'_>) -> Option<String> {
        match about {
            PersonLine::Acquired { name } => Some(format!("Acquired resume lock for {name}")),
            PersonLine::Released { name } => Some(format!("Released resume lock for {name}")),
            PersonLine::TookOver {
                name,
                why,
                previous,
                ..
            } => {
                let from = previous.and_then(|claim| claim.holder.process);
                Some(tenure_engine::formats::resume::takeover_text(
                    name, *why, from,
                ))
            }
            PersonLine::Ignored { .. } | PersonLine::Unreadable { .. } => own_line(about),
        }
    }

    fn refusal(&self, mut failure: Failure, why: &CallRefusal<'_>) -> Failure {
        match why {
            CallRefusal::Blocked { view, .. } => match why.holder() {
                Some((_, holder)) => blocked(failure, view, holder),
                None => failure,
            },
            CallRefusal::Unreadable { name, why } => {
                failure.text = Some(format!(
                    "Failed to check lock status for {name}: {}",
                    clean(why)
                ));
                failure.exit = Exit::Precondition;
                failure
            }
            CallRefusal::NotOwner(_) | CallRefusal::Checked(_) => failure,
        }
    }
}

fn blocked(mut failure: Failure, view: &LockView, holder: &HolderView) -> Failure {
    let pid = holder
        .work_pid
        .map_or_else(|| "unknown".to_owned(), |pid| pid.to_string());
    let or_force = if view.yields_to_force() {
        ", or use --force to override"
    } else {
        ""
    };
    failure.text = Some(format!(
        "Resume already in progress for job {}\nLock held by: PID {pid} on {} (acquired {})\n\
         Please wait for the other process to complete{or_force}.",
        view.name,
        clean(&holder.host),
        utc(holder.since_ms),
    ));
    if let Some(stopped) = holder.is_stopped_and()
        && let Some(text) = &mut failure.text
    {
        text.push_str("\nThe other process is ");
        text.push_str(&stopped);
        text.push('.');
    }
    if (holder.orphaned || holder.stopped)
        && let Some(text) = &mut failure.text
    {
        text.push('\n');
        text.push_str(&stop_hint(view));
    }
    let is_here = holder.is_of_this_boot && !holder.other_pid_namespace;
    let Some(text) = failure.text.as_mut().filter(|_| !is_here) else {
        return failure;
    };
    if holder.is_seen_alive {
        text.push_str("\nThat is another container of this machine, and the holder is alive: it keeps its lock on the file.");
    } else if let Some(ends_in_ms) = holder.ends_in_ms {
        let rest = age(ends_in_ms);
        text.push_str(
            "\nThat is another container of this machine, and whether its work goes on cannot be seen from here. Unless it \
             gives a sign of life, the next resume takes the lock over in ",
        );
        text.push_str(&rest);
        text.push('.');
        if let Some(retry) = &mut failure.retry {
            retry.after_ms = ends_in_ms;
        }
    } else if let Some(command) = override_of(view) {
        text.push_str(
            "\nThat is another machine or container, so whether the process still runs cannot be \
             seen from here. If it does not: ",
        );
        text.push_str(&command);
        failure.fix_command = Some(command);
    }
    failure
}

/// The command that removes the lock of a holder that cannot be seen from here. Its PID says nothing here.
fn override_of(view: &LockView) -> Option<String> {
    let line = || view.advice.line(&["force-release"], &[]);
    view.yields_to_force().then(line)
}
