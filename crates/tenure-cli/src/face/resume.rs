//! How the resume profile speaks: the sentences that users of resume locks know.

use super::{Face, TakenOver};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::lock::{HolderView, LockView, orphan_hint, utc};
use crate::render::{Surface, clean};
use std::path::Path;
use tenure_core::{Claim, LockName, Reason};

pub(super) struct Resume;

impl Face for Resume {
    /// The format knows its owner by nothing but the process.
    fn lets_descendants_release(&self) -> bool {
        true
    }

    fn on_acquired(&self, surface: &mut Surface, name: &LockName, _: &Claim) {
        surface.inform(&format!("Acquired resume lock for {name}"));
    }

    fn on_released(&self, surface: &mut Surface, name: &LockName) {
        surface.inform(&format!("Released resume lock for {name}"));
    }

    fn took_over(&self, taken: &TakenOver<'_>) -> String {
        let from = taken.previous.and_then(|claim| claim.holder.process);
        tenure::profile::resume::takeover_text(taken.name, taken.why, from)
    }

    fn refused(&self, mut failure: Failure, view: &LockView, reason: Reason) -> Failure {
        // Whoever is next and stopped holds nothing yet, and this sentence speaks of a hold.
        let is_held = reason == Reason::Held && view.standstill.is_none();
        let Some(holder) = view.holder.as_ref().filter(|_| is_held) else {
            return failure;
        };
        // What is at work is the command, once its supervisor is dead.
        let at_work = match holder.command_pid.filter(|_| holder.orphaned) {
            Some(command) => Some(command),
            None => holder.pid,
        };
        let pid = at_work.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string());
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
        if holder.orphaned
            && let Some(text) = &mut failure.text
        {
            text.push('\n');
            text.push_str(&orphan_hint(&view.name));
        }
        if let (Some(text), Some(command)) = (&mut failure.text, out_of_sight(view, holder)) {
            text.push_str(
                "\nThat is another machine or container, so whether the process still runs cannot be \
                 seen from here. If it does not: ",
            );
            text.push_str(&command);
            failure.fix_command = Some(command);
        }
        failure
    }

    fn unreadable(&self, mut failure: Failure, name: &LockName, why: &str) -> Failure {
        failure.text = Some(format!(
            "Failed to check lock status for {name}: {}",
            clean(why)
        ));
        failure.exit = Exit::Precondition;
        failure
    }
}

/// What removes the lock of a holder on another machine or in another container, of which a PID says
/// nothing here.
fn out_of_sight(view: &LockView, holder: &HolderView) -> Option<String> {
    let here = tenure::process::host_name();
    if !view.yields_to_force() {
        return None;
    }
    if holder.host == here && here != "unknown" && !holder.other_pid_namespace {
        return None;
    }
    let folder = Path::new(&view.lock_file).parent()?.parent()?;
    Some(tenure::profile::resume::override_command(
        folder, &view.name,
    ))
}
