//! The folder of the locks: whether calls can use it, whether its locks hold, and what git would do with them.

use super::super::ignored::{Fate, fate_of, line_that_ends, line_that_ignores, pattern_of_records};
use super::super::session::Session;
use super::{trial, users_of};
use crate::render::clean_path;
use crate::render::doctor::Report;
use crate::render::findings::Status;
use std::path::Path;
use tenure_core::LockName;
use tenure_engine::readings;
use tenure_store::StoreError;
use tenure_store::advice;
use tenure_store::advice::line_that_makes;
use tenure_store::contract::Which;
use tenure_store::file::survey::{Nearest, Survey, Users};

/// A file as the store makes them.
const LOCK_FILE: &str = "x.tenure";

/// A lock, for the name of its record.
const LOCK: &str = "x";

/// The file system of most containers.
const OVERLAY: &str = "overlay";

/// How many records git is asked about.
const RECORDS_MAX: usize = 8;

/// What is advised where the locks of other machines may not count.
const ELSEWHERE: &str = "keep the locks in a folder of this machine, or for several machines in etcd (--store etcd://HOST:PORT/PREFIX)";

/// Says whether this user is one who may only look at the locks.
pub(super) fn look(session: &Session, report: &mut Report) -> bool {
    let Some(survey) = session.store.survey() else {
        return false;
    };
    describe(&survey, report);
    usable(session, &survey, report);
    mount(&survey, report);
    let only_looks = locks(&survey, report);
    git(session, &survey, report);
    only_looks
}

/// Whether it is the folder itself that was found, and not one above it.
fn is_itself(nearest: &Nearest, survey: &Survey) -> bool {
    nearest.path == survey.path
}

/// What is said of the folder before the checks.
fn describe(survey: &Survey, report: &mut Report) {
    let Some(place) = &mut report.place else {
        return;
    };
    place.shown = clean_path(&survey.path);
    place.exists = Some(survey.whose.is_some());
    // A folder that is refused for what it is, is for no user.
    if matches!(
        survey.is_there,
        Ok(true) | Err(StoreError::Permission { .. })
    ) {
        place.users = survey.whose.clone().map(|(_, users)| users_of(users));
    }
    if let Some(users) = survey.will_be.clone() {
        place.users = Some(users_of(users));
    }
    let Some(nearest) = &survey.nearest else {
        return;
    };
    if place.users.is_some() && is_itself(nearest, survey) {
        place.mode = Some(nearest.mode());
    }
    let mount = nearest.mount.as_ref();
    place.file_system = mount
        .map(|mount| mount.file_system.clone())
        .or_else(|| nearest.remote.map(str::to_owned));
    place.network = Some(nearest.remote.is_some());
    place.is_apart = mount.is_some_and(|mount| mount.is_apart || mount.file_system == OVERLAY);
}

/// What the mount of the folder means for its locks: who else sees them, and whether they outlast a restart.
fn mount(survey: &Survey, report: &mut Report) {
    let Some(mount) = survey
        .nearest
        .as_ref()
        .and_then(|nearest| nearest.mount.as_ref())
    else {
        return;
    };
    let mut note = |said: &str, fix: &str| {
        report
            .checks
            .add("mount", Status::Note, said, Some(fix.to_owned()));
    };
    if mount.is_apart {
        note(
            "a mount of this unit or namespace alone (PrivateTmp=, ProtectHome=tmpfs, unshare): callers outside of it \
             have another folder of this name, and so a holder of their own",
            "name a folder that all callers see, with --dir or TENURE_DIR",
        );
    }
    match mount.file_system.as_str() {
        OVERLAY => note(
            "overlay: what is written goes to a layer of this container, so callers in another container over the same \
             files do not see it, and have a holder of their own",
            "keep the locks in a volume that all of these containers have, and name it with --dir or TENURE_DIR",
        ),
        kind @ ("tmpfs" | "ramfs") => note(
            &format!(
                "{kind}: a restart empties it. Tokens go on from the clock then, and fall if the clock is behind"
            ),
            "for tokens that a resource checks, name a folder on a disk with --dir or TENURE_DIR",
        ),
        _ => {}
    }
}

/// Whether calls can use the folder.
fn usable(session: &Session, survey: &Survey, report: &mut Report) {
    if let Some(why) = &survey.set_aside {
        let mend = Some(session.place.line(&["clean"]));
        report.checks.add("folder", Status::Wrong, why, mend);
    }
    let shown = advice::word(&survey.path.display().to_string());
    let error = match &survey.is_there {
        Ok(true) => {
            if let Some(group) = keeps_out(survey) {
                let said = format!("only members of the group {group} take locks there");
                report
                    .checks
                    .add("folder", Status::Wrong, &said, Some(rights_of(survey)));
            } else if let Some(kind) = survey.nearest.as_ref().and_then(|nearest| nearest.remote) {
                report.checks.add(
                    "folder",
                    Status::Note,
                    format!(
                        "{kind} is a network file system: locks of other machines may not count"
                    ),
                    Some(ELSEWHERE.to_owned()),
                );
            } else {
                report.checks.ok("folder", "you may use it");
            }
            return;
        }
        Ok(false) => {
            report.checks.ok(
                "folder",
                "not there yet; the first call that takes a lock makes it",
            );
            return;
        }
        Err(error) => error,
    };
    let fix = match error {
        StoreError::Missing { place } => line_that_makes(place, "GROUP"),
        StoreError::FileSystem { .. } => ELSEWHERE.to_owned(),
        StoreError::Unsafe { .. } if survey.is_open_to_all() => format!("chmod o-w {shown}"),
        StoreError::Permission { .. } => rights_of(survey),
        _ => "mend that, or name another folder with --dir".to_owned(),
    };
    let said = match error {
        // The line that makes it stands below.
        StoreError::Missing { place } => format!(
            "{place} is not there; an administrator makes it once for the members of a group, by the line below"
        ),
        error => error.to_string(),
    };
    report.checks.add("folder", Status::Wrong, &said, Some(fix));
}

/// The group whose folder it is, if this user may read in it and is no member.
fn keeps_out(survey: &Survey) -> Option<String> {
    let nearest = survey.nearest.as_ref()?;
    match (nearest.users(), nearest.may_write()) {
        (Users::Group(group), Err(StoreError::Permission { .. })) => Some(group),
        _ => None,
    }
}

/// Where the right comes from that is missing.
fn rights_of(survey: &Survey) -> String {
    let right = match &survey.whose {
        Some((_, Users::Group(group) | Users::OwnerAndReaders { group, .. })) => {
            format!("become a member of the group {group} (sudo usermod -aG {group} $USER)")
        }
        Some((owner, _)) => format!("ask {owner} for the right to use it"),
        None => match &survey.nearest {
            Some(above) => format!(
                "ask {} for the right to write in {}",
                above.owner(),
                above.path.display()
            ),
            None => "get the right to write there".to_owned(),
        },
    };
    format!("{right}, or name another folder with --dir")
}

/// Whether a lock can be written, and whether locks hold. True if this user is one who may only look.
fn locks(survey: &Survey, report: &mut Report) -> bool {
    // A folder that calls refuse is not written in.
    let Ok(is_there) = survey.is_there else {
        return false;
    };
    if report.checks.is_wrong("folder") {
        return false;
    }
    let Some(nearest) = &survey.nearest else {
        let said = "not tried: the system does not let the folder be looked at";
        report.checks.add("locks", Status::Note, said, None);
        return false;
    };
    let trial = match nearest.trial(is_there) {
        Ok(Some(trial)) => trial,
        Ok(None) => {
            let said =
                "not tried: a trial would leave a file above the folder that is not there yet";
            report.checks.add("locks", Status::Note, said, None);
            return false;
        }
        Err(error) => {
            // Members who may only read are meant to look.
            let only_looks = matches!(nearest.users(), Users::OwnerAndReaders { .. })
                && matches!(error, StoreError::Permission { .. });
            if only_looks {
                let said = format!(
                    "you may look at the locks, and {} may take them",
                    nearest.owner()
                );
                report.checks.add("locks", Status::Note, &said, None);
            } else {
                cannot_write(nearest, &error, report);
            }
            return only_looks;
        }
    };
    if let Err(error) = trial.write(&nearest.path) {
        cannot_write(nearest, &error, report);
        return false;
    }
    let (status, said) = trial::tried(trial);
    let fix = (status == Status::Wrong).then(|| ELSEWHERE.to_owned());
    report.checks.add("locks", status, &said, fix);
    false
}

fn cannot_write(nearest: &Nearest, error: &StoreError, report: &mut Report) {
    let fix = match error {
        StoreError::Permission { .. } => format!(
            "ask {} for the right to write there, or name another folder with --dir",
            nearest.owner()
        ),
        _ => "make room there, or name another folder with --dir".to_owned(),
    };
    let said = format!("no lock can be written: {error}");
    report.checks.add("locks", Status::Wrong, &said, Some(fix));
}

/// Whether git would commit what lies in the folder.
fn git(session: &Session, survey: &Survey, report: &mut Report) {
    if let Some(records) = &survey.records
        && record_is_committed(session, survey, records, report)
    {
        return;
    }
    let (Some(nearest), Ok(true)) = (&survey.nearest, &survey.is_there) else {
        return;
    };
    match fate_of(&nearest.path, LOCK_FILE) {
        Fate::Unseen => report.checks.ok("git", "no work tree has the folder in it"),
        Fate::Ignored | Fate::Tracked { .. } => report.checks.ok("git", "git ignores the folder"),
        Fate::Unknown => is_not_known(report),
        Fate::Committed(tree) => {
            report.checks.add(
                "git",
                Status::Wrong,
                format!(
                    "`git add` in {} would commit the lock files",
                    clean_path(&tree)
                ),
                Some(line_that_ignores(&nearest.path, "*.tenure")),
            );
        }
    }
}

fn is_not_known(report: &mut Report) {
    let said = "not known: git gives no answer here";
    report.checks.add("git", Status::Note, said, None);
}

/// Whether git would commit the records, which other programs read; then that is said.
fn record_is_committed(
    session: &Session,
    survey: &Survey,
    records: &Path,
    report: &mut Report,
) -> bool {
    let profile = session.store.profile();
    let names = readings::names(&*session.store, Which::Locks).unwrap_or_default();
    let is_there = |name: &LockName| {
        let record = records.join(profile.file_name(name));
        record.symlink_metadata().is_ok()
    };
    let mut names: Vec<_> = names
        .into_iter()
        .filter(is_there)
        .take(RECORDS_MAX)
        .collect();
    // The first call that takes a lock has git ignore such a folder.
    if !profile.place().ignored || matches!(survey.is_there, Ok(true)) {
        names.extend(LockName::new(LOCK));
    }
    let fates = names
        .into_iter()
        .map(|name| (fate_of(records, &profile.file_name(&name)), name));
    let is_fine = |fate: &Fate| matches!(fate, Fate::Unseen | Fate::Ignored);
    let Some((fate, name)) = fates.into_iter().find(|(fate, _)| !is_fine(fate)) else {
        return false;
    };
    let file = profile.file_name(&name);
    let meant = pattern_of_records(profile, &name);
    let line = line_that_ends(&fate, records, &file, &meant);
    let said = match &fate {
        Fate::Committed(tree) => format!(
            "`git add` in {} would commit the record {meant}",
            clean_path(tree)
        ),
        Fate::Tracked { .. } => format!("git tracks the record {file}"),
        Fate::Unknown => {
            is_not_known(report);
            return true;
        }
        Fate::Unseen | Fate::Ignored => return false,
    };
    report.checks.add("git", Status::Wrong, &said, line);
    true
}
