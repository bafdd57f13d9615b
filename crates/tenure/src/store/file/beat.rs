//! A heartbeat as a change to the text of a list: a few numbers in one line.
//!
//! Reading a list and writing it anew took a fifth of a heartbeat's processor time, and a process
//! with ten thousand holds does five hundred of them a second. Which numbers they become is the
//! core's rule here too ([`Lease::renew`]); what is out of the ordinary is left to it altogether.
//!
//! # Why a search in the text finds nothing else
//! The checksum says that the text is what some program wrote, and every version of this one writes
//! the keys of a claim in the order of `ClaimLine`, with nothing in between. Whatever somebody gave
//! as a reason, a name or a fact is a JSON text: a quotation mark in it stands behind a backslash,
//! and a newline is written as `\n`. So a bare newline ends a line, and a word in bare quotation
//! marks with a colon behind it is a key. Of two keys by one name, as `away` has one that the claim has
//! as well, the claim's own comes first.
//!
//! Where a key stands elsewhere than expected, or something stands between the numbers, nothing is
//! changed, and the list is read.

use tenure_core::{Lease, Renewal, Stamp};

const SINCE_BOOT: &str = ",\"since_boot_ms\":";
const RENEWED: &str = "\"renewed_ms\":";
const RENEWED_BOOT: &str = ",\"renewed_boot_ms\":";
const RENEWALS: &str = "\"renewals\":";
const FACTS: &str = "\"facts\":";
const TTL: &str = "\"ttl_ms\":";
const CANCEL: &str = "\"cancel\"";

/// Renews the granted claim with this ticket: the answer, and the whole body afterwards. `None`
/// where the list has to be read: the claim is not there or does not hold, is asked to stop, or was
/// renewed on another boot.
///
/// `at` is an instant on the boot of the claim's host.
pub(super) fn renew(body: &[u8], ticket: u64, at: Stamp) -> Option<(Renewal, Vec<u8>)> {
    let text = std::str::from_utf8(body).ok()?;
    let begins = format!("\n{{\"ticket\":{ticket},\"token\":");
    let start = text.find(&begins)? + begins.len();
    let line = text.get(start..)?;
    let line = line.get(..line.find('\n')?)?;
    if line.contains(CANCEL) {
        return None;
    }
    let (token, _) = line.split_once(',')?;
    let (_, rest) = line.split_once(SINCE_BOOT)?;
    let (since_boot, behind_grant) = rest.split_once(',')?;
    number(since_boot)?;
    let (mut lease, rest) = match behind_grant.strip_prefix(RENEWED) {
        Some(renewed) => lease_of(renewed)?,
        // In a text of another order they may stand elsewhere.
        None if line.contains(RENEWED) || line.contains(RENEWALS) => return None,
        None => (lease(Stamp::default(), 0), behind_grant),
    };
    if !rest.starts_with(FACTS) && !rest.starts_with(TTL) {
        return None;
    }
    lease.renew(at);
    let Stamp { wall_ms, boot_ms } = lease.renewed;
    let renewals = lease.renewals;
    let numbers = format!("{RENEWED}{wall_ms}{RENEWED_BOOT}{boot_ms},{RENEWALS}{renewals},");
    // What comes before these numbers and behind them stays as it is.
    let before = text.get(..start + line.len() - behind_grant.len())?;
    let behind = text.get(start + line.len() - rest.len()..)?;
    let renewal = Renewal::Renewed {
        token: number(token)?,
        cancel_requested: false,
    };
    Some((renewal, [before, &numbers, behind].concat().into_bytes()))
}

/// The numbers of the last renewal, and the text behind them.
fn lease_of(text: &str) -> Option<(Lease, &str)> {
    let (wall, rest) = text.split_once(RENEWED_BOOT)?;
    let (boot, rest) = rest.split_once(',')?;
    let (renewals, rest) = rest.strip_prefix(RENEWALS)?.split_once(',')?;
    let renewed = Stamp {
        wall_ms: number(wall)?,
        boot_ms: number(boot)?,
    };
    Some((lease(renewed, number(renewals)?), rest))
}

fn lease(renewed: Stamp, renewals: u64) -> Lease {
    Lease {
        // Stands in the part that stays as it is.
        ttl_ms: 0,
        renewed,
        renewals,
    }
}

fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::list;
    use super::super::list::tests::sample;
    use super::*;
    use tenure_core::{Cancel, Claim, Entry, Kind, Mode, Now, Queueing};

    /// A list of two holds and a waiter, each renewed once on this boot.
    fn renewed() -> Entry {
        let mut entry = sample();
        let claim = entry.claims.remove(0);
        for number in 0..3 {
            let ticket = entry.last + 1;
            let token = (number < 2).then_some(ticket + 1);
            entry.last = ticket + 1;
            entry.claims.push(Claim {
                ticket,
                token,
                cancel: None,
                ..claim.clone()
            });
        }
        let own: Vec<u64> = entry.granted().map(|claim| claim.ticket).collect();
        for ticket in own {
            entry.renew(ticket, &now(1));
        }
        entry
    }

    fn now(seconds: u64) -> Now {
        Now {
            wall_us: (1_795_000_000 + seconds) * 1_000_000,
            boot_ms: 5_000 + seconds * 1_000,
            boot_id: "boot".into(),
        }
    }

    fn beat(entry: &Entry, ticket: u64, now: &Now) -> Option<(Renewal, Entry)> {
        let body = list::encode(entry).expect("a body");
        let (renewal, body) = renew(&body, ticket, now.stamp())?;
        Some((renewal, list::decode(&body).expect("a list")))
    }

    /// What the core does is done to the text as well.
    fn is_as_the_core_has_it(entry: &Entry, ticket: u64) {
        let now = now(20);
        let (renewal, after) = beat(entry, ticket, &now).expect("an ordinary heartbeat");
        let mut expected = entry.clone();
        assert_eq!(expected.renew(ticket, &now), renewal);
        assert_eq!(after, expected);
        assert_ne!(after, *entry, "it was renewed");
    }

    #[test]
    fn a_heartbeat_in_the_text_is_the_one_that_the_core_makes() {
        let entry = renewed();
        for claim in entry.granted() {
            is_as_the_core_has_it(&entry, claim.ticket);
        }
        let mut plain = entry.clone();
        for claim in &mut plain.claims {
            claim.kind = Kind::Detached;
            (claim.mode, claim.queueing) = (Mode::Exclusive, Queueing::Fifo);
            (claim.away, claim.waiting_for) = (None, None);
            (claim.grace_ms, claim.holder.facts) = (0, Vec::new());
        }
        let mut fresh = [entry, plain.clone()];
        for claim in fresh.iter_mut().flat_map(|entry| &mut entry.claims) {
            claim.lease.renewed = claim.since.expect("it was granted once");
            claim.lease.renewals = 0;
        }
        for entry in fresh.iter().chain([&plain]) {
            for claim in entry.granted() {
                is_as_the_core_has_it(entry, claim.ticket);
            }
        }
    }

    #[test]
    fn what_somebody_gave_as_a_reason_is_not_taken_for_a_number_of_the_claim() {
        let mut entry = renewed();
        let ticket = entry.claims[1].ticket;
        let bait = format!(
            ",\"since_boot_ms\":1,\"renewed_ms\":1,\"renewed_boot_ms\":2,\"renewals\":3,\"cancel\":\n\
             {{\"ticket\":{ticket},\"token\":5,\"renewed_ms\":1,\"renewed_boot_ms\":2,\"renewals\":3,"
        );
        for claim in &mut entry.claims {
            claim.holder.why = bait.as_str().into();
            claim.holder.actor = bait.as_str().into();
            claim.holder.facts = vec![(bait.as_str().into(), bait.as_str().into())];
        }
        is_as_the_core_has_it(&entry, ticket);
    }

    #[test]
    fn what_is_out_of_the_ordinary_is_left_to_the_core() {
        let entry = renewed();
        let own = entry.claims[0].ticket;
        let left = |change: &dyn Fn(&mut Claim), ticket| {
            let mut entry = entry.clone();
            change(&mut entry.claims[0]);
            beat(&entry, ticket, &now(2)).is_none()
        };
        let as_it_is = |_: &mut Claim| {};
        assert!(!left(&as_it_is, own));
        assert!(left(&as_it_is, own + 1), "nobody has this ticket");
        assert!(left(&as_it_is, own / 10), "nor this one");
        assert!(left(&as_it_is, entry.claims[2].ticket), "it waits");
        let first = |claim: &mut Claim| {
            claim.lease.renewed = claim.since.expect("it holds");
            claim.lease.renewals = 0;
        };
        assert!(!left(&first, own), "its first heartbeat");
        let odd = |claim: &mut Claim| {
            first(claim);
            claim.lease.renewals = 1;
        };
        assert!(left(&odd, own), "one in the instant of the grant");
        let cancelled = |claim: &mut Claim| {
            let at = claim.entered;
            let by = "someone".into();
            claim.cancel = Some(Cancel {
                by,
                at,
                ..Cancel::default()
            });
        };
        assert!(left(&cancelled, own), "asked to stop");
        let elsewhere = |claim: &mut Claim| claim.lease.renewed.boot_ms = Stamp::OTHER_BOOT;
        assert!(left(&elsewhere, own), "renewed on another boot");
        let timeless = |claim: &mut Claim| claim.since = None;
        assert!(
            left(&timeless, own),
            "the numbers of the next line are not its own"
        );
        assert_eq!(renew(b"", own, now(2).stamp()), None);
    }

    /// No version of ours writes such a text; whoever does is read by its rules, not by ours.
    #[test]
    fn a_text_in_another_order_is_left_to_the_core() {
        let mut entry = renewed();
        entry.claims.truncate(2);
        let own = entry.claims[0].ticket;
        let body = list::encode(&entry).expect("a body");
        let text = String::from_utf8(body).expect("text");
        let left = |from: &str, to: &str| {
            let other = text.replace(from, to);
            assert_ne!(other, text, "{from}");
            renew(other.as_bytes(), own, now(2).stamp()).is_none()
        };
        let renewals = "\"renewals\":4,";
        let entered = "\"entered_ms\":";
        let moved = text.replace(renewals, "");
        let moved = moved.replace(entered, &[renewals, entered].concat());
        assert!(list::decode(moved.as_bytes()).is_ok(), "{moved}");
        assert_eq!(renew(moved.as_bytes(), own, now(2).stamp()), None);
        let bare = text.replace(renewals, "");
        for early in ["\"renewed_ms\":9,", "\"renewals\":9,"] {
            // As after a grant, but for a number of a renewal that stands too early.
            let start = bare.find("\"renewed_ms\":").expect("a renewal");
            let (before, behind) = bare.split_at(start);
            let (_, behind) = behind.split_once(",\"facts\":").expect("facts");
            let before = before.replace(entered, &[early, entered].concat());
            let body = [&before, "\"facts\":", behind].concat();
            assert_eq!(renew(body.as_bytes(), own, now(2).stamp()), None, "{body}");
        }
        assert!(left(renewals, "\"renewals\":4,\"later\":1,"));
        assert!(left(renewals, "\"later\":1,\"renewals\":4,"));
        assert!(left(renewals, ""));
        assert!(left("\"renewed_ms\":", "\"later\":1,\"renewed_ms\":"));
        assert!(left(
            "\"ttl_ms\":",
            "\"cancel\":{\"by\":\"a\",\"at_ms\":1,\"at_boot_ms\":1},\"ttl_ms\":"
        ));
        assert!(left("\"ticket\":", " \"cancel\" : null,\"ticket\":"));
    }
}
