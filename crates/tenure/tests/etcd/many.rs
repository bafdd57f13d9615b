//! Many holds of one process: they share one lease, whose renewal is one request, and all of them learn of
//! its end.
//!
//! `TENURE_ETCD=long` takes 10,000 holds, and says what they cost.

use super::figures::handled;
use super::proxy::{Proxy, Weather};
use super::server::Server;
use super::{ClaimHandle, caller, is_long, name, now, request, take, until};
use std::time::Duration;
use tenure::guard::{Guard, LockManager, Options};
use tenure::store::Verbs;
use tenure_core::{Entering, LockName, Renewal};
use tenure_os::clock::instant;

fn several() -> usize {
    if is_long() { 10_000 } else { 300 }
}

fn names(count: usize) -> Vec<LockName> {
    (0..count)
        .map(|number| name(&format!("many-{number}")))
        .collect()
}

/// How many leases the server knows.
fn leases(server: &Server) -> usize {
    let listed = server.etcdctl(&["lease", "list"]);
    let is_lease = |line: &&str| {
        let line = line.trim();
        !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    listed.lines().filter(is_lease).count()
}

/// How many descriptors this process has open.
fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// The memory of this process that is in use, in KiB.
fn memory_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[test]
fn holds_of_one_ttl_share_a_lease_whose_renewal_is_one_request() {
    let server = Server::start();
    let address = server.address("many");
    let (one, two) = (caller(&address), caller(&address));
    let names = names(several());
    // Renewed every two seconds.
    let ttl = Duration::from_secs(6);
    let (began, before) = (instant(), memory_kib());
    let held: Vec<(ClaimHandle, u64)> = (names.iter())
        .map(|name| take(&one, name, "one", ttl))
        .collect();
    let took = instant().saturating_duration_since(began);
    println!(
        "{} holds: {took:.1?}, {} KiB",
        held.len(),
        memory_kib().saturating_sub(before)
    );
    assert_eq!(leases(&server), 1, "one process, one ttl");

    let metrics = server.metrics();
    std::thread::sleep(ttl);
    let later = server.metrics();
    let renewals = handled(&metrics, &later, "LeaseKeepAlive");
    assert!(
        (1.0..=5.0).contains(&renewals),
        "{renewals} renewals in a whole ttl"
    );
    for method in ["Txn", "Range"] {
        let others = handled(&metrics, &later, method);
        assert!(
            others < 1.0,
            "{others} requests ({method}) for holds that rest"
        );
    }

    let (other, _) = take(&one, &name("other"), "one", ttl * 2);
    assert_eq!(leases(&server), 2, "another ttl, another lease");
    let left = one.release(&*other, &now());
    left.expect("an etcd that answers");

    // The lease ends, and another process takes every lock.
    super::store::revoke_all_but(&server, &[]);
    let taken: Vec<(ClaimHandle, u64)> = (names.iter().zip(&held))
        .map(|(name, (_, token))| {
            let (handle, next) = take(&two, name, "two", ttl * 20);
            assert!(next > *token, "{name}: the token rises");
            (handle, next)
        })
        .collect();
    for (handle, _) in &held {
        let renewed = one.renew(&**handle, &now());
        assert_eq!(renewed.expect("an etcd that answers"), Renewal::Lost);
    }
    for (handle, token) in &taken {
        let standing = two.verify(&**handle, &now());
        let standing = standing.expect("an etcd that answers");
        assert!(
            matches!(standing, Renewal::Renewed { token: same, .. } if same == *token),
            "{standing:?}"
        );
    }
}

#[test]
fn guards_of_one_process_are_renewed_together_and_all_told_before_others_get_in() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let names = names(several() / 2);
    // At 5,000 guards there is a record to write for each of them within every third of this.
    let ttl = Duration::from_secs(if is_long() { 60 } else { 9 });
    let locks = LockManager::with_store(caller(&proxy.address("guards")));
    let options = Options::new().ttl(ttl);
    let (began, before) = (instant(), memory_kib());
    let descriptors = open_descriptors();
    let guards: Vec<Guard> = (names.iter())
        .map(|name| {
            locks
                .acquire_with(name.as_str(), &options)
                .expect("a free lock")
        })
        .collect();
    let took = instant().saturating_duration_since(began);
    println!(
        "{} guards: {took:.1?}, {} KiB",
        guards.len(),
        memory_kib().saturating_sub(before)
    );
    assert_eq!(leases(&server), 1, "one process, one ttl");

    let metrics = server.metrics();
    std::thread::sleep(ttl);
    let later = server.metrics();
    let of = |method| handled(&metrics, &later, method);
    let (renewals, records, looks) = (of("LeaseKeepAlive"), of("Txn"), of("Range"));
    println!(
        "within a ttl: {renewals} renewals of the lease, {records} transactions, {looks} reads, {} descriptors",
        open_descriptors().saturating_sub(descriptors)
    );
    let count = f64::from(u32::try_from(guards.len()).expect("some thousand"));
    assert!(guards.iter().all(|guard| !guard.is_lost()), "all are held");
    assert!(
        renewals < count,
        "{renewals} renewals of one lease, for {count} guards"
    );

    proxy.weather(Weather::Parted);
    let cut = instant();
    until("all are told", ttl * 2, || {
        guards.iter().all(Guard::is_lost)
    });
    let told = instant();
    println!(
        "all were told after {:.1?}",
        told.saturating_duration_since(cut)
    );
    let other = caller(&server.address("guards"));
    let rules = tenure::store::Store::rules(&other);
    let lapse = rules.lapse(ttl).expect("leases run out");
    assert!(
        told.saturating_duration_since(cut) < lapse,
        "before the lease can have run out"
    );
    // Only then does another caller get any of them.
    until("the lease runs out", ttl * 3, || {
        let entered = other.enter(&names[0], request("other", ttl), &now());
        let entered = entered.expect("an etcd that answers");
        matches!(entered.entering, Entering::Granted { .. })
    });
    proxy.weather(Weather::Fair);
}
