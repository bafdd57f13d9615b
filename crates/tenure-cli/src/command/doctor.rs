//! `doctor`: says where the locks of a call are and what says so, and looks at what they rest on. It changes nothing.
//!
//! Every answer comes from the function that a call asks (`request/place`, the store's `survey`, the audit's
//! `look`). Nothing that is found ends the verb: each check stands for itself.
//!
//! | what is looked at | module |
//! |---|---|
//! | the folder, its mount, whether its locks hold, what git would do | `folder`, `trial` |
//! | what stands in the locks: leftovers, unreadable files, clocks | `locks` |

mod folder;
mod locks;
mod trial;

pub(super) use trial::take_part;

use super::session::Session;
use crate::failure::Failure;
use crate::render::doctor::{Audit, Report, Users, Where};
use crate::render::findings::Status;
use crate::render::{Reporter, clean_path};
use crate::request::{Doctor, Place};
use crate::verb;
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;
use tenure_engine::audit::Recording;
use tenure_engine::place::Why;
use tenure_store::file::survey;

/// How long servers may take to answer.
const SERVERS_WITHIN: Duration = Duration::from_secs(5);

#[cold]
#[inline(never)]
pub(super) fn doctor(doctor: Doctor, reporter: &mut Reporter) -> Result<(String, Value), Failure> {
    let Doctor { place, files } = doctor;
    let program = std::env::current_exe().ok().map(clean_path);
    let mut report = Report::of(verb::version(), program);
    let why = place.as_ref().ok().and_then(Place::why);
    let is_default = matches!(why, None | Some(Why::Default));
    let opened = place.and_then(|mut place| {
        place.patience = Some(SERVERS_WITHIN);
        let shown = clean_path(&place.folder);
        let why = place.why().map(ToString::to_string);
        report.place = Some(Where::named(shown, why, place.is_folder()));
        report.profile = Some(place.profile().policy().name.to_owned());
        Session::open(place)
    });
    match &opened {
        // Why not is said of the configuration.
        Err(_) if files.is_err() => {}
        Err(failure) => report.checks.add(
            "place",
            Status::Wrong,
            &failure.message,
            Some(
                "say which place with --dir, --store or --scope, or set the variable anew"
                    .to_owned(),
            ),
        ),
        Ok(_) => {
            let said = match (&report.place, is_default) {
                (Some(Where { why: Some(why), .. }), false) => format!("{why} names it"),
                _ => "nothing names another one".to_owned(),
            };
            report.checks.ok("place", &said);
        }
    }
    let opened_place = opened.as_ref().ok().map(|session| &session.place);
    let passed_over = opened_place.and_then(|place| place.passed_over());
    let without_main = opened_place.and_then(Place::without_main);
    configuration(&mut report, &files, passed_over, without_main.as_deref());
    if let Ok(session) = opened {
        of_place(&session, &mut report);
    }
    let text = report.text(reporter.is_quiet());
    report.checks.answer(text, report.json(), true)
}

/// What is known of the place itself.
fn of_place(session: &Session, report: &mut Report) {
    let only_looks = session.place.is_folder() && folder::look(session, report);
    locks::look(session, report);
    let (log, recording) = session.audit_writer.kept();
    let dir = clean_path(log.dir());
    match log.look() {
        Ok(is_there) => {
            let said = match recording {
                Recording::Incidents => {
                    "only takeovers, losses, requests to stop and forced ends are recorded"
                }
                Recording::All => "every event is recorded",
                Recording::Arguments => "every event is recorded, with the arguments of commands",
            };
            let yet = if is_there {
                ""
            } else {
                "; its folder is not there yet"
            };
            report.checks.ok("audit", format!("{said}{yet}"));
        }
        // A user who takes no lock has nothing to record.
        Err(error) if only_looks => {
            report
                .checks
                .add("audit", Status::Note, error.to_string(), None);
        }
        // The log lies in the folder of the locks, of which that was said already.
        Err(_)
            if report.checks.is_wrong("folder") && log.dir().starts_with(&session.place.folder) => {
        }
        Err(error) => report.checks.add(
            "audit",
            Status::Wrong,
            error.to_string(),
            Some(
                "give yourself the right to write there, or name another folder (--audit-dir)"
                    .to_owned(),
            ),
        ),
    }
    report.audit = Some(Audit {
        folder: dir,
        recording,
    });
}

/// Whether the configurations can be used. One of another user counts for no call that names its place.
fn configuration(
    report: &mut Report,
    files: &Result<Vec<PathBuf>, Failure>,
    passed_over: Option<&str>,
    without_main: Option<&str>,
) {
    let what = "configuration";
    match (files, passed_over) {
        (Ok(_), None) if without_main.is_some() => report.checks.add(
            what,
            Status::Note,
            without_main.unwrap_or_default(),
            Some("git config core.worktree CHECKOUT, or name the file with --config".to_owned()),
        ),
        (Ok(_), Some(why)) => report.checks.add(
            what,
            Status::Note,
            format!("not read: {why}"),
            Some("name the file with --config if it is meant for you".to_owned()),
        ),
        (Ok(files), None) if files.is_empty() => {
            report.checks.ok(what, "no tenure.toml speaks here");
        }
        (Ok(files), None) => {
            let shown = files.iter().map(clean_path);
            let shown: Vec<_> = shown.collect();
            report
                .checks
                .ok(what, format!("{} can be read", shown.join(", ")));
        }
        (Err(failure), _) => report.checks.add(
            what,
            Status::Wrong,
            &failure.message,
            Some("correct that file; until then no call that reads it takes a lock".to_owned()),
        ),
    }
}

/// The users whom the locks are for.
fn users_of(users: survey::Users) -> Users {
    match users {
        survey::Users::Owner(owner) => Users::owner(owner),
        survey::Users::OwnerAndReaders { owner, group } => Users::readers(owner, group),
        survey::Users::Group(group) => Users::group(group),
        survey::Users::Listed(owner) => Users::listed(owner),
        survey::Users::Each => Users::each(),
    }
}
