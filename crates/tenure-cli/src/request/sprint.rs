//! What a sprint call asks for: its flags, and the document on stdin if there is one. This step finds
//! everything that is wrong with them, before anything is touched.

mod fields;

pub(crate) use fields::Fields;

use super::{
    Acquire, AcquireArgs, Acquiring, Check, CheckArgs, Place, Release, ReleaseArgs, ShownId,
    Surroundings,
};
use crate::args::Common;
use crate::args::value::{self, Owner, Typed};
use crate::exit::Exit;
use crate::failure::Failure;
use fields::BYTES_MAX;
#[cfg(unix)]
use rustix::fs::Access;
use std::io::{ErrorKind, Read as _};
use std::path::Path;
use tenure_core::{LockName, RequestId};
use tenure_engine::envelope::clean_path;

/// The longest `epic_spec`: as long as the longest path.
const EPIC_SPEC_BYTES_MAX: usize = 4096;

/// The name of a project's one lock.
pub(super) const NAME: &str = "sprint";

/// Reads the document, if one is asked for.
pub(crate) fn fields(input: Option<&str>) -> Result<Fields, Failure> {
    match input {
        None => return Ok(Fields::default()),
        Some("-") => {}
        Some(other) => {
            return Err(Failure::bad_arguments(format!(
                "--input {other}: the document is read from stdin only; write --input -"
            )));
        }
    }
    let mut bytes = Vec::new();
    std::io::stdin()
        .lock()
        .take(BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| {
            Failure::new(
                Exit::StoreUnavailable,
                "NO_INPUT",
                format!("--input -: stdin cannot be read: {error}"),
            )
        })?;
    fields::parse(&bytes).map_err(|why| Failure::bad_arguments(format!("--input -: {why}")))
}

/// Checks the mode in a document: the verb says which it is, and a document may not differ.
pub(crate) fn check_mode(fields: &Fields, verb: &str) -> Result<(), Failure> {
    let Some(mode) = fields.mode.as_deref().filter(|mode| *mode != verb) else {
        return Ok(());
    };
    Err(if is_mode(mode) {
        Failure::bad_arguments(format!(
            "Invalid mode {mode:?}: the verb on the command line is {verb}"
        ))
    } else {
        invalid_mode(mode)
    })
}

/// Whether a word is one of the three modes.
pub(crate) fn is_mode(word: &str) -> bool {
    ["acquire", "release", "check"].contains(&word)
}

/// The answer to a call that names no mode, neither as its verb nor in its document.
pub(crate) fn no_mode() -> Failure {
    Failure::bad_arguments(
        "mode required: acquire, release or check, in the document or as the verb",
    )
}

/// The answer to an unknown mode.
pub(crate) fn invalid_mode(mode: &str) -> Failure {
    Failure::bad_arguments(format!(
        "Invalid mode {mode:?}; it is one of acquire, release, check"
    ))
}

/// `acquire` with all required values, from its flags and from the document's fields beside them.
pub(crate) fn acquire(args: &AcquireArgs, fields: Fields) -> Result<AcquireArgs, Failure> {
    let mut args = args.clone();
    args.input = None;
    place(&mut args.common, &fields)?;
    let claiming = &mut args.claiming;
    claiming.request_id = id(claiming.request_id.take(), fields.session_id);
    let epic_spec = claiming.epic_spec.take().or(fields.epic_spec);
    claiming.epic_spec = epic_spec.filter(|text| !text.is_empty());
    claiming.force |= fields.force.unwrap_or(false);
    claiming.yes |= fields.yes.unwrap_or(false);
    if !claiming.patience.nonblock {
        let wait = fields.wait.map(|wait| Typed::of(wait, value::wait));
        claiming.patience.wait = claiming.patience.wait.take().or(wait);
    }
    if args.owner.ok() == Some(&Owner::Auto)
        && let Some(owner) = fields.owner.or(fields.pid)
    {
        args.owner = Typed::of(owner, value::owner);
    }
    let Some(session_id) = &claiming.request_id else {
        return Err(Failure::bad_arguments(
            "session_id required for acquire mode",
        ));
    };
    session_id.value(SESSION_ID)?;
    let Some(epic_spec) = &claiming.epic_spec else {
        return Err(Failure::bad_arguments(
            "epic_spec required for acquire mode",
        ));
    };
    if epic_spec.len() > EPIC_SPEC_BYTES_MAX {
        return Err(Failure::bad_arguments(format!(
            "epic_spec is longer than {EPIC_SPEC_BYTES_MAX} bytes"
        )));
    }
    if claiming.yes && !claiming.force {
        return Err(Failure::bad_arguments(
            "yes confirms force, which was not asked for",
        ));
    }
    if args.owner.ok() == Some(&Owner::None) {
        return Err(Failure::bad_arguments(
            "a sprint lock lives by a process; name one with --owner PID",
        ));
    }
    args.name = Some(lock(args.name.as_ref())?);
    Ok(args)
}

/// The meaning of these arguments.
pub(crate) fn acquiring(args: &AcquireArgs, around: &Surroundings) -> Result<Acquire, Failure> {
    match Acquiring::of(args, around)? {
        Acquiring::Lock(acquire) => {
            let access = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
            root(&acquire.place, access)?;
            Ok(acquire)
        }
        // Only an intent means that, and intents were refused.
        Acquiring::Nothing { .. } => Err(Failure::bad_arguments("a sprint takes its lock")),
    }
}

/// `release`.
pub(crate) fn release(
    args: &ReleaseArgs,
    fields: Fields,
    around: &Surroundings,
) -> Result<Release, Failure> {
    let mut args = args.clone();
    args.input = None;
    place(&mut args.common, &fields)?;
    args.name = Some(lock(args.name.as_ref())?);
    let id = id(args.request_id.take(), fields.session_id);
    let release = Release {
        shown: shown(id.as_ref()),
        ..Release::of(&args, around)?
    };
    // A call that has nothing to remove needs no right to write.
    root(&release.place, Access::READ_OK | Access::EXEC_OK)?;
    Ok(release)
}

/// `check`, and whether it is answered in a health check's words.
pub(crate) fn check(
    args: &CheckArgs,
    fields: Fields,
    around: &Surroundings,
) -> Result<(Check, bool), Failure> {
    if args.held {
        let why = "--held is no question about a sprint; ask `check --health`";
        return Err(Failure::bad_arguments(why));
    }
    let mut args = args.clone();
    args.input = None;
    place(&mut args.common, &fields)?;
    args.name = Some(lock(args.name.as_ref())?);
    let id = id(args.request_id.take(), fields.session_id);
    let health = args.health || fields.health.unwrap_or(false);
    let check = Check {
        shown: shown(id.as_ref()),
        ..Check::of(&args, around)?
    };
    root(&check.place, Access::READ_OK | Access::EXEC_OK)?;
    Ok((check, health))
}

/// The name by which a message calls the id of a session.
const SESSION_ID: &str = "session_id";

/// A flag, else the document's field. An empty one counts as not given.
fn id(flag: Option<Typed<RequestId>>, field: Option<String>) -> Option<Typed<RequestId>> {
    let field = field.map(|text| Typed::of(text, value::request_id));
    flag.or(field).filter(|id| !id.text.is_empty())
}

/// The session that the caller names.
fn shown(id: Option<&Typed<RequestId>>) -> ShownId {
    id.map_or_else(ShownId::default, |id| ShownId::typed(SESSION_ID, id))
}

/// The project and the name of its lock file.
fn place(common: &mut Common, fields: &Fields) -> Result<(), Failure> {
    let named = common.dir.is_some() || common.store.is_some() || common.project_root.is_some();
    if !named {
        let root = fields.project_root.as_deref();
        let root = root.filter(|root| !root.is_empty());
        common.project_root = Some(
            root.ok_or_else(|| Failure::bad_arguments("project_root required"))?
                .into(),
        );
    }
    if common.lock_file_name.is_none() {
        common.lock_file_name.clone_from(&fields.lock_file_name);
    }
    Ok(())
}

/// A project has one lock, which need not be named.
fn lock(name: Option<&Typed<LockName>>) -> Result<Typed<LockName>, Failure> {
    match name {
        None => Ok(Typed::of(NAME, value::name)),
        Some(name) if name.text == NAME => Ok(name.clone()),
        Some(other) => Err(Failure::bad_arguments(format!(
            "the lock name {:?} cannot be used: a project has one lock, {NAME}",
            other.text
        ))),
    }
}

/// Looks at the project's folder. A bad name is bad input; a folder that may not be used is not.
fn root(place: &Place, access: Access) -> Result<(), Failure> {
    if !place.is_folder() {
        return Ok(());
    }
    let folder = &place.folder;
    let refuse = |exit, code, why: &str| {
        let folder = clean_path(folder);
        Err(Failure::new(
            exit,
            code,
            format!("Project root not accessible: {folder} {why}"),
        ))
    };
    let bad = |why| refuse(Exit::BadArguments, "BAD_ARGUMENTS", why);
    let denied = |why| refuse(Exit::Permission, "PERMISSION_DENIED", why);
    match std::fs::metadata(folder) {
        Ok(found) if !found.is_dir() => bad("is not a directory"),
        Ok(_) => match may(folder, access) {
            Ok(()) => Ok(()),
            Err(_) if access.contains(Access::WRITE_OK) => denied("is not writable"),
            Err(_) => denied("cannot be read"),
        },
        Err(error) => match error.kind() {
            ErrorKind::NotFound => bad("does not exist"),
            ErrorKind::NotADirectory => bad("is not a directory"),
            ErrorKind::InvalidInput | ErrorKind::InvalidFilename => {
                bad("is not a name of a folder")
            }
            ErrorKind::PermissionDenied => denied("cannot be looked at"),
            _ => refuse(
                Exit::StoreUnavailable,
                "STORE_UNAVAILABLE",
                &format!("cannot be looked at: {error}"),
            ),
        },
    }
}

#[cfg(unix)]
fn may(folder: &Path, access: Access) -> std::io::Result<()> {
    use rustix::fs::{AtFlags, CWD, accessat};
    Ok(accessat(CWD, folder, access, AtFlags::EACCESS)?)
}

/// What a call wants to do with a folder.
#[cfg(windows)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Access(u8);

#[cfg(windows)]
impl Access {
    const READ_OK: Self = Self(1);
    const WRITE_OK: Self = Self(2);
    const EXEC_OK: Self = Self(4);

    fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

#[cfg(windows)]
impl std::ops::BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Whether a folder may be looked at. Its access list would say whether it may be written to, but that is not
/// read: the attempt will tell.
#[cfg(windows)]
fn may(folder: &Path, _: Access) -> std::io::Result<()> {
    std::fs::read_dir(folder).map(drop)
}
