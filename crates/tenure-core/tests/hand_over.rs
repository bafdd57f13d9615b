//! A hold that goes on in another process, as a table: what of it stays, and what is new.
#![allow(clippy::expect_used, reason = "a test says what it expects by failing")]

use core::num::NonZeroU32;
use std::sync::Arc;
use tenure_core::{
    Cancel, Claim, Entry, Holder, Kind, Lease, Mode, Now, Process, RequestId, Stamp,
};

fn holder(id: &str, pid: u32) -> Holder {
    Holder {
        facts: vec![("tenure:members".to_owned(), "x\n".to_owned())],
        request_id: RequestId::new(id).expect("an id"),
        actor: id.to_owned(),
        process: Some(Process { pid, started: None }),
        command: None,
        host: Arc::default(),
        why: id.to_owned(),
    }
}

fn claim(ticket: u64, token: Option<u64>, kind: Kind) -> Claim {
    let (at, id) = (Stamp::default(), format!("claim-{ticket}"));
    let lease = Lease {
        ttl_ms: 30_000,
        renewed: at,
        renewals: 3,
    };
    let mut claim = Claim::new(ticket, kind, holder(&id, 1), at, lease);
    claim.token = token;
    claim.mode = Mode::Slots(NonZeroU32::new(2).expect("some"));
    claim.slot = token.map(|_| 1);
    claim.cancel = Some(Cancel::default());
    claim
}

#[test]
fn only_a_hold_that_a_process_keeps_goes_on_in_another() {
    let now = Now {
        boot_ms: 9_000,
        ..Now::default()
    };
    let rows = [
        ("a hold", 1, Some(2), Kind::Kernel, true),
        ("a waiter", 1, None, Kind::Kernel, false),
        ("a detached hold", 1, Some(2), Kind::Detached, false),
        ("no such claim", 9, Some(2), Kind::Kernel, false),
    ];
    for (what, ticket, token, kind, goes_on) in rows {
        let waiter = claim(3, None, Kind::Kernel);
        let mut entry = Entry {
            last: 3,
            claims: vec![claim(1, token, kind), waiter.clone()],
            ..Entry::default()
        };
        let before = entry.clone();
        let handed = entry.hand_over(ticket, &holder("copy", 7), &now);
        assert_eq!(handed, goes_on.then_some((4, 5)), "{what}");
        if !goes_on {
            assert_eq!(entry, before, "{what}");
            continue;
        }
        let [first, last] = entry.claims.as_slice() else {
            unreachable!("as many as before");
        };
        assert_eq!(*first, waiter, "waiters keep their places");
        let old = &before.claims[0];
        let mut expected = old.clone();
        (expected.ticket, expected.token) = (4, Some(5));
        expected.lease.renewed = now.stamp();
        let new = holder("copy", 7);
        (expected.holder.request_id, expected.holder.process) = (new.request_id, new.process);
        assert_eq!(*last, expected, "all else stays");
        assert_eq!(entry.history, before.history, "nothing was released");
    }
}
