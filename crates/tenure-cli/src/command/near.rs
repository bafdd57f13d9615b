//! Points out a slip in a lock's name: whoever asks for a name that nobody has used, while a lock in use
//! is called nearly the same, may mean that one. A hint and no more: nothing fails by it.

use super::Session;
use crate::render::Reporter;
use crate::spelling::is_slip;
use tenure_engine::store::Reading;
use tenure_engine::store::contract::Which;
use tenure_engine::tenure_core::LockName;

/// Says so, if it is so.
#[cold]
#[inline(never)]
pub(super) fn point_out(
    session: &Session,
    reporter: &mut Reporter,
    name: &LockName,
    reading: &Reading,
) {
    // Whatever has been held, or is waited for, has drawn a number.
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
