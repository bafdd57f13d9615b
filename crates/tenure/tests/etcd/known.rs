//! The server behind an address is not taken for the one that was known: clusters that were restored or replaced, and
//! two of them in one list.

use super::proxy::{Fault, Proxy, Weather};
use super::server::{Server, Tls, address};
use super::{caller, caller_as, claims, line_up, name, now, request, take, until, wait};
use std::sync::Mutex;
use std::time::Duration;
use tenure::guard::{Again, Guard, LockManager, Options, Wait};
use tenure::store::etcd::{Address, CredentialFiles, Credentials, EtcdStore, accept_cluster};
use tenure::store::{RenewedOwned, Store, StoreError, Verbs};
use tenure_core::{Entering, Kind, Left, Ownership, Patience, Process, Renewal, TryGrant};
use tenure_os::clock::{instant, since};
use tenure_os::process::start_time;

const LONG: Duration = Duration::from_secs(60);

/// A caller whose machine remembers clusters in this folder.
fn remembering(address: &Address, folder: &tempfile::TempDir) -> EtcdStore {
    caller(address)
        .patience(Duration::from_secs(3))
        .remembering(Some(folder.path().to_owned()))
}

/// What a call is refused with.
#[track_caller]
fn refused(store: &EtcdStore) -> String {
    let refused = store.read(&name("x"), None).expect_err("another cluster");
    assert!(matches!(refused, StoreError::Unsafe { .. }), "{refused:?}");
    refused.to_string()
}

#[test]
fn two_clusters_in_one_list_are_refused_in_each_order() {
    let servers = [Server::start(), Server::start()];
    let [one, two] = servers.each_ref().map(Server::endpoint);
    for list in [format!("{one},{two}"), format!("{two},{one}")] {
        let address = address(&list, "both");
        let said = refused(&caller(&address));
        assert!(
            said.contains(&format!("tenure allow '{address}#")),
            "{said}"
        );
        let locks = LockManager::with_store(caller(&address));
        let failed = locks.try_acquire("x").expect_err("another cluster");
        assert!(failed.to_string().contains("of etcd cluster"), "{failed}");
    }
}

#[test]
fn a_machine_remembers_the_cluster_of_each_server() {
    let mut servers = [Server::start(), Server::start()];
    let folder = tempfile::tempdir().expect("a folder");
    let [one, two] = servers.each_ref().map(Server::endpoint);
    let alone = remembering(&address(&one, "both"), &folder);
    alone.read(&name("x"), None).expect("an answer");
    servers[0].kill();
    let both = address(&format!("{one},{two}"), "both");
    let said = refused(&remembering(&both, &folder));
    let id = said.split_once('#').expect("a line").1;
    let id = u64::from_str_radix(id.trim_end_matches('\''), 16).expect("an id");
    // A process that lives on hears of the user's word too.
    let store = remembering(&both, &folder);
    refused(&store);
    accept_cluster(folder.path(), &both, id).expect("a folder");
    store.read(&name("x"), None).expect("the accepted cluster");
    remembering(&both, &folder)
        .read(&name("x"), None)
        .expect("the accepted cluster");
    servers[0].again();
    refused(&remembering(&both, &folder));
}

/// The guard's lock as it is after a restore, and how long its holder took to hear of it.
fn heard_of(guard: &Guard, restored: std::time::Instant) -> Duration {
    until("the holder hears of it", Duration::from_secs(10), || {
        guard.is_lost()
    });
    since(restored)
}

#[test]
fn a_restore_that_forgets_a_hold_ends_it_at_once_and_tokens_rise() {
    // Revisions are lower after the one, and have been overtaken by others after the other.
    for writes in [0, 200] {
        let mut server = Server::start();
        let address = server.address("restored");
        let snapshot = server.snapshot();
        let locks = LockManager::with_store(caller(&address));
        for _ in 0..10 {
            drop(locks.try_acquire("x").expect("a free lock"));
        }
        let guard = locks.try_acquire("x").expect("a free lock");
        let next = caller(&address);
        server.restore(&snapshot);
        for number in 0..writes {
            server.etcdctl(&["put", "/other", &number.to_string()]);
        }
        let restored = instant();
        let took = heard_of(&guard, restored);
        assert!(took < Duration::from_secs(3), "{took:?}");
        let (_handle, token) = take(&next, &name("x"), "next", LONG);
        assert!(token > guard.token(), "{token} after {}", guard.token());
        // The program goes on with the servers as they are.
        drop(locks.try_acquire("y").expect("a free lock"));
    }
}

#[test]
fn a_waiter_hears_of_servers_that_were_set_back() {
    let mut server = Server::start();
    let address = server.address("restored");
    let (one, two) = (caller(&address), caller(&address));
    let name = name("x");
    let snapshot = server.snapshot();
    let (_holder, _) = take(&one, &name, "one", LONG);
    for number in 0..50 {
        server.etcdctl(&["put", "/other", &number.to_string()]);
    }
    let (waiter, behind) = line_up(&two, &name, "two", LONG);
    server.restore(&snapshot);
    let began = instant();
    let end = began + Duration::from_secs(9);
    two.sleep(&*waiter, &behind, &now(), Some(end))
        .expect("a sleep");
    assert!(since(began) < Duration::from_secs(5), "{:?}", since(began));
    let tried = two.try_grant(&*waiter, &now()).expect("an answer");
    assert_eq!(tried.grant, TryGrant::Gone);
}

/// The one claim of a lock, as the servers keep it.
struct Kept {
    key: String,
    value: String,
    lives: String,
    lease: String,
}

impl Kept {
    fn of(server: &Server, lock: &str) -> Self {
        let claims = format!("{lock}/claims/");
        let key = server.etcdctl(&["get", "--prefix", "--keys-only", &claims]);
        let key = key.trim().to_owned();
        let id = key.rsplit('/').next().expect("an id");
        Self {
            value: server.etcdctl(&["get", "--print-value-only", &key]),
            lives: format!("{lock}/lives/{id}"),
            lease: id.split('-').next().expect("a lease").to_owned(),
            key,
        }
    }

    /// Puts it back, as servers do that were restored.
    fn comes_back(&self, server: &Server) {
        server.etcdctl(&["put", &self.key, self.value.trim_end_matches('\n')]);
        server.etcdctl(&["put", "--lease", &self.lease, &self.lives, ""]);
    }
}

#[test]
fn a_claim_that_servers_bring_back_is_removed() {
    let server = Server::start();
    let store = caller(&server.address("back"));
    let name = name("x");
    let (handle, _) = take(&store, &name, "one", LONG);
    let kept = Kept::of(&server, "/back/locks/x");
    let left = store.release(&*handle, &now()).expect("an answer");
    assert!(matches!(left, Left::Released { .. }), "{left:?}");
    drop(handle);
    kept.comes_back(&server);
    let (handle, _) = take(&store, &name, "two", LONG);
    let left: Vec<_> = claims(&store, &name)
        .iter()
        .map(|claim| claim.holder.request_id.to_string())
        .collect();
    assert_eq!(left, ["two"]);
    let renewed = store.renew(&*handle, &now()).expect("an answer");
    assert!(matches!(renewed, Renewal::Renewed { .. }), "{renewed:?}");
}

/// A process uses the names of its claims again. If the answer to an attempt is lost, and servers that were restored have
/// an earlier claim of that name, that claim is not what the attempt made.
#[test]
fn an_earlier_claim_of_the_name_is_not_taken_for_an_attempt_without_an_answer() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let store = caller(&proxy.address("again"));
    let name = name("x");
    let (handle, first) = take(&store, &name, "one", LONG);
    let kept = Kept::of(&server, "/again/locks/x");
    let left = store.release(&*handle, &now()).expect("an answer");
    assert!(matches!(left, Left::Released { .. }), "{left:?}");
    drop(handle);
    kept.comes_back(&server);
    proxy.strike(&format!("{name}/claims/"), Fault::CutBefore);
    let (handle, second) = take(&store, &name, "two", LONG);
    assert!(proxy.has_struck());
    assert!(second > first, "{second} after {first}");
    until("the earlier claim is gone", Duration::from_secs(5), || {
        let claims = claims(&store, &name);
        let left: Vec<_> = claims
            .iter()
            .map(|it| it.holder.request_id.as_str())
            .collect();
        left == ["two"]
    });
    let renewed = store.renew(&*handle, &now()).expect("an answer");
    assert!(matches!(renewed, Renewal::Renewed { .. }), "{renewed:?}");
}

/// A hold whose owner this machine takes for dead, as the clone of a machine takes that of the other one.
#[test]
fn a_process_proves_nothing_over_a_network() {
    let server = Server::start();
    let store = caller(&server.address("clone"));
    let name = name("x");
    let mut ended = std::process::Command::new("true")
        .spawn()
        .expect("a process");
    let process = Process {
        pid: ended.id(),
        started: start_time(ended.id()),
    };
    ended.wait().expect("its end");
    let detached = |id: &str, patience| {
        let mut request = request(id, Duration::from_secs(3));
        request.kind = Kind::Detached;
        request.patience = patience;
        request.holder.process = Some(process);
        request
    };
    let enter = |id: &str| {
        let entered = store.enter(&name, detached(id, Patience::AtOnce), &now());
        entered.expect("an answer").entering
    };
    assert!(matches!(enter("one"), Entering::Granted { .. }));
    let early = enter("two");
    assert!(
        matches!(early, Entering::Refused(_)),
        "its lease runs: {early:?}"
    );
    until("its lease is over", Duration::from_secs(10), || {
        matches!(enter("two"), Entering::Granted { .. })
    });
}

#[test]
fn waiters_outlast_an_outage_in_their_order() {
    let mut server = Server::start();
    let address = server.address("outage");
    let locks: Vec<_> = (0..4)
        .map(|_| LockManager::with_store(caller(&address)))
        .collect();
    let guard = locks[0].try_acquire("x").expect("a free lock");
    let store = caller(&address);
    let order = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (number, locks) in locks.iter().enumerate().skip(1) {
            let order = &order;
            scope.spawn(move || {
                let options = Options::new().wait(Wait::For(LONG)).again(Again::Wait);
                let guard = locks.acquire_with("x", &options).expect("its turn");
                order.lock().expect("no panic").push(number);
                guard.release().expect("an answer");
            });
            until("it stands in line", LONG, || {
                claims(&store, &name("x")).len() == number + 1
            });
        }
        server.kill();
        // A waiter looks every ten seconds, and tries for six.
        std::thread::sleep(Duration::from_secs(17));
        server.again();
        drop(guard);
    });
    assert_eq!(order.into_inner().expect("no panic"), [1, 2, 3]);
}

#[test]
fn a_waiter_with_a_used_up_lease_renews_it_before_it_holds() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let here = caller(&server.address("old"));
    let there = caller(&proxy.address("old"));
    let (name, ttl) = (name("x"), Duration::from_secs(6));
    let (first, _) = take(&here, &name, "one", LONG);
    let (waiter, behind) = line_up(&there, &name, "two", ttl);
    proxy.weather(Weather::Parted);
    std::thread::sleep(ttl * 3 / 4);
    here.release(&*first, &now()).expect("an answer");
    proxy.weather(Weather::Fair);
    wait(&there, &waiter, behind, LONG);
    let now = now();
    let held = claims(&here, &name).remove(0);
    let age = held
        .lease
        .silent_ms(held.holder.host.boot_id.as_deref(), &now);
    assert!(
        age < 2_500,
        "{age} ms of {ttl:?} were used up before it began"
    );
}

#[test]
fn certificates_are_read_for_each_connection() {
    let tls = Tls::make();
    let server = Server::with(Some(&tls));
    let plain = server.address("tls").to_string();
    let address = Address::parse(&plain.replace("etcd://", "etcds://")).expect("an address");
    let folder = tempfile::tempdir().expect("a folder");
    let put = |file: &str, from: &str| {
        let path = folder.path().join(file);
        std::fs::write(&path, tls.read(from)).expect("a file");
        path
    };
    let files = CredentialFiles {
        authority: Some(put("ca.crt", "other.crt")),
        certificate: Some((
            put("own.crt", "stranger.crt"),
            put("own.key", "stranger.key"),
        )),
    };
    let credentials = Credentials {
        authority: Some(tls.read("other.crt")),
        certificate: None,
        files,
        ..Credentials::default()
    };
    let store = caller_as(&address, &credentials).patience(Duration::from_secs(2));
    store.read(&name("x"), None).expect_err("a stranger");
    put("ca.crt", "ca.crt");
    store.read(&name("x"), None).expect_err("still a stranger");
    put("own.crt", "client.crt");
    put("own.key", "client.key");
    store.read(&name("x"), None).expect("an answer");
    let clear =
        caller(&Address::parse(&plain).expect("an address")).patience(Duration::from_secs(2));
    let said = clear
        .read(&name("x"), None)
        .expect_err("it speaks TLS")
        .to_string();
    assert!(said.contains("write etcds://"), "{said}");
}

#[test]
fn the_heartbeat_of_a_detached_hold_goes_on_without_room() {
    let server = Server::start();
    let store = caller(&server.address("full"));
    let name = name("x");
    let mut request = request("one", Duration::from_secs(3));
    request.kind = Kind::Detached;
    let entered = store.enter(&name, request, &now()).expect("an answer");
    assert!(
        matches!(entered.entering, Entering::Granted { .. }),
        "{entered:?}"
    );
    server.fill();
    for _ in 0..5 {
        std::thread::sleep(Duration::from_secs(1));
        let renewed = store.renew_owned(&name, &|_| Ownership::Shown, &now());
        let renewed = renewed.expect("an answer");
        assert!(
            matches!(renewed, RenewedOwned::Renewed { .. }),
            "{renewed:?}"
        );
    }
}

/// A simple token names a place in the log, and a restored server is silent about places that its log has not reached.
#[test]
fn a_restored_server_is_silent_about_tokens_and_keeps_no_user_out() {
    let mut server = Server::start();
    let credentials = users(&mut server);
    let store = caller_as(&server.address("users"), &credentials);
    let snapshot = server.snapshot();
    for number in 0..50 {
        server.etcdctl(&["put", "/other", &number.to_string()]);
    }
    // The user's token is of this late place.
    let late = caller_as(&server.address("users"), &credentials);
    for store in [&store, &late] {
        store.read(&name("x"), None).expect("an answer");
    }
    server.restore(&snapshot);
    for store in [&store, &late] {
        let began = instant();
        let read = || store.read(&name("x"), None).is_ok();
        until("an answer", Duration::from_secs(20), read);
        assert!(since(began) < Duration::from_secs(8), "{:?}", since(began));
    }
}

/// Users with rights to everything.
fn users(server: &mut Server) -> Credentials {
    for words in [
        ["user", "add", "root:secret"].as_slice(),
        &["user", "grant-role", "root", "root"],
        &["auth", "enable"],
    ] {
        server.etcdctl(words);
    }
    server.shows("root:secret");
    Credentials {
        user: Some(("root".to_owned(), "secret".to_owned())),
        ..Credentials::default()
    }
}

#[test]
fn a_change_of_users_ends_nobody_with_signed_tokens() {
    let keys = tempfile::tempdir().expect("a folder");
    let mut server = Server::with_signed_tokens(keys.path());
    let credentials = users(&mut server);
    let [one, two] = [(); 2].map(|()| caller_as(&server.address("jwt"), &credentials));
    let name = name("x");
    let (holder, _) = take(&one, &name, "one", LONG);
    let (waiter, behind) = line_up(&two, &name, "two", LONG);
    for user in ["ann:1", "bob:2"] {
        server.etcdctl(&["user", "add", user]);
        let renewed = one.renew(&*holder, &now()).expect("an answer");
        assert!(matches!(renewed, Renewal::Renewed { .. }), "{renewed:?}");
    }
    let left = one.release(&*holder, &now()).expect("an answer");
    assert!(matches!(left, Left::Released { .. }), "{left:?}");
    wait(&two, &waiter, behind, LONG);
}
