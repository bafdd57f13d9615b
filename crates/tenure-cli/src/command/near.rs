//! Points out that a caller may mean another lock. This is only a hint: no call fails because of it.
//!
//! - A name that was never used may be a slip, if a lock in use has nearly the same name.
//! - A native lock may have the name of a record of another profile in the same folder. Its holder and a
//!   native one do not exclude each other.
//! - A folder of locks may be another one with the next release, or for root than for the user who called sudo.

use super::session::Session;
use crate::render::{Reporter, clean, clean_path};
use crate::spelling::is_slip;
use tenure_core::LockName;
use tenure_engine::formats::{Fleet, Resume, Session as Sessions};
use tenure_store::Reading;
use tenure_store::contract::Which;
use tenure_store::profile::Profile;

/// Warns, if callers may not mean the same lock by this name and the same words. Each call that names a lock and gets it,
/// is refused it, or finds it free looks: what lies near may have come since the last one.
pub(super) fn point_out_others(session: &Session, reporter: &mut Reporter, name: &LockName) {
    point_out_records(session, reporter, name);
    let small = name.as_str().to_lowercase();
    if small != name.as_str()
        && let Ok(small) = LockName::new(small)
        && is_in_use(session, &small)
    {
        reporter.warn(differs_in_case(name, &small));
    }
    if let Some(link) = session.place.link_of_release() {
        let (locks, link) = (clean_path(&session.place.folder), clean_path(&link));
        reporter.warn(format!(
            "the locks are in {locks}, because {link} leads there now; once it leads elsewhere, the same call has other \
             locks: name a folder outside of it with --dir, or with dir in tenure.toml"
        ));
    }
    if let Some((user, by, folder)) = session.place.folder_of_caller_of_sudo()
        && let Ok(Some((_, held))) = session.held_elsewhere(name, &folder)
    {
        reporter.warn(format!(
            "{} (in {}, for {}, who called {by}); this call has other locks: --scope machine has the same for both",
            held.headline(),
            clean_path(&folder),
            clean(&user)
        ));
    }
}

/// Warns as [`point_out_others`] does, for a call about a hold that is not there, and of any case.
pub(super) fn point_out_absent(session: &Session, reporter: &mut Reporter, name: &LockName) {
    point_out_case(session, reporter, name);
    point_out_others(session, reporter, name);
}

/// Whether a lock has a holder or a waiter.
fn is_in_use(session: &Session, name: &LockName) -> bool {
    let view = session.view(name, None);
    view.is_ok_and(|view| view.holder.is_some() || !view.queue.is_empty())
}

fn differs_in_case(name: &LockName, other: &LockName) -> String {
    format!(
        "{other} is in use and differs from {name} in case alone; they are two locks (the lock of a group is in lower \
         case, however --group writes it)"
    )
}

/// Warns, if a lock of the same name in other case is in use. For a lock that nobody has used yet.
#[cold]
#[inline(never)]
pub(super) fn point_out_case(session: &Session, reporter: &mut Reporter, name: &LockName) {
    let mut others = Vec::new();
    let named = session.store.names(Which::Locks, &mut |other| {
        if is_other_case(name, &other) {
            others.push(other);
        }
    });
    if named.is_ok() {
        warn_of_case(session, reporter, name, &others);
    }
}

/// Whether a lock has the same name in other case. The one in lower case is looked at by each call
/// ([`point_out_others`]).
fn is_other_case(name: &LockName, other: &LockName) -> bool {
    let small = name.as_str().to_lowercase();
    other != name && other.as_str() != small && other.as_str().to_lowercase() == small
}

fn warn_of_case(session: &Session, reporter: &mut Reporter, name: &LockName, others: &[LockName]) {
    if let Some(used) = others.iter().find(|other| is_in_use(session, other)) {
        reporter.warn(differs_in_case(name, used));
    }
}

/// Warns, if there is such a lock.
#[cold]
#[inline(never)]
pub(super) fn point_out(
    session: &Session,
    reporter: &mut Reporter,
    name: &LockName,
    reading: &Reading,
) {
    // A lock that was held, or that has a waiter, has given out a number.
    let is_new = reading
        .entry()
        .is_some_and(|entry| entry.last == 0 && entry.claims.is_empty());
    if !is_new {
        return;
    }
    let (mut near, mut others) = (Vec::new(), Vec::new());
    let mut is_known = false;
    let named = session.store.names(Which::Locks, &mut |other| {
        is_known |= other == *name;
        if is_other_case(name, &other) {
            others.push(other);
            return;
        }
        let is_same = other.as_str().eq_ignore_ascii_case(name.as_str());
        if !is_same && is_slip(name.as_str(), other.as_str()) {
            near.push(other);
        }
    });
    if named.is_err() {
        return;
    }
    warn_of_case(session, reporter, name, &others);
    if is_known {
        return;
    }
    near.sort();
    let used = near.iter().find(|other| is_in_use(session, other));
    if let Some(used) = used {
        reporter.warn(format!(
            "{name} was never used; {used}, which is in use, is nearly the same name: is that the one?"
        ));
    }
}

/// Warns, if a record of another profile stands beside a native lock of this name.
#[inline(never)]
fn point_out_records(session: &Session, reporter: &mut Reporter, name: &LockName) {
    if session.store.publishes() || !session.place.is_folder() {
        return;
    }
    let folder = &session.place.folder;
    let others: [&dyn Profile; 3] = [&Fleet, &Resume, &Sessions::default()];
    for other in others {
        let record = other.folder(folder).join(other.file_name(name));
        if other.check_name(name).is_ok() && record.symlink_metadata().is_ok() {
            let (shown, profile) = (clean_path(&record), other.policy().name);
            reporter.warn(format!(
                "{shown} is the record of another lock of this name, which a native lock does not exclude; \
                 if that one is meant, say --profile {profile}"
            ));
        }
    }
}
