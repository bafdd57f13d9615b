//! Points out a slip in a lock's name. A caller that asks for a name that was never used may mean a lock in
//! use with nearly the same name. This is only a hint: no call fails because of it.

use super::Session;
use crate::render::Reporter;
use crate::spelling::is_slip;
use tenure_engine::store::Reading;
use tenure_engine::store::contract::Which;
use tenure_engine::tenure_core::LockName;

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
    let mut near = Vec::new();
    let mut is_known = false;
    let named = session.store.names(Which::Locks, &mut |other| {
        is_known |= other == *name;
        if is_slip(name.as_str(), other.as_str()) {
            near.push(other);
        }
    });
    if is_known || named.is_err() {
        return;
    }
    near.sort();
    let used = near.iter().find(|other| {
        let view = session.view(other, None);
        view.is_ok_and(|view| view.holder.is_some() || !view.queue.is_empty())
    });
    if let Some(used) = used {
        reporter.warn(format!(
            "{name} was never used; {used}, which is in use, is nearly the same name: is that the one?"
        ));
    }
}
