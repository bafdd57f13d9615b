//! What only this store promises: leases count and wall clocks do not, and a lost lease is noticed. A
//! server may go and come back, and nothing outside the prefix is touched.

use super::api::{Client, FilterType, RangeRequest, RequestOp, TxnRequest, WatchCreateRequest};
use super::proxy::{Fault, Proxy, Weather};
use super::server::{self, Server, Tls};
use super::{
    ClaimHandle, caller, caller_as, claims, client, end_of, hold_twice, line_up, name, now,
    request, take, until, wait,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::{Duration, Instant};
use tenure::guard::{AcquireError, Again, GuardState, LockManager, Options};
use tenure::store::Verbs;
use tenure::store::contract::Which;
use tenure::store::etcd::{Address, Credentials, EtcdStore};
use tenure::store::file::ThreadSleeper;
use tenure::store::{Content, Store, StoreError, Wake};
use tenure_core::{
    Entering, Event, Force, Forced, Host, Kind, Left, LockName, Mode, Now, Ownership, Patience,
    Predecessor, Renewal, Standing, TryGrant,
};
use tenure_engine::engine::Wait;
use tenure_os::clock::instant;
use tenure_os::process::Identity;

const LONG: Duration = Duration::from_secs(600);
/// How long a waiter may take to notice something on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Another machine, whose wall clock is some hours off.
struct Elsewhere {
    host: Host,
    wall_offset_us: i64,
}

impl Elsewhere {
    fn new(hours: i64) -> Self {
        Self {
            host: Host {
                name: "elsewhere".to_owned(),
                machine_id: Some("another-machine".to_owned()),
                boot_id: Some("another-boot".to_owned()),
                pid_namespace: Some(1),
            },
            wall_offset_us: hours * 3_600_000_000,
        }
    }

    fn store(&self, address: &Address) -> EtcdStore {
        let sleeper = Box::new(ThreadSleeper);
        EtcdStore::new(address, &Credentials::default(), self.host.clone(), sleeper)
            .expect("a store")
    }

    fn now(&self) -> Now {
        let here = now();
        Now {
            wall_us: here
                .wall_us
                .checked_add_signed(self.wall_offset_us)
                .expect("a time"),
            // The boot clock means nothing here, whatever it shows.
            boot_ms: 12_345,
            boot_id: "another-boot".into(),
        }
    }
}

/// A holder on another machine holds as long as its lease runs, and no longer, whatever its wall clock
/// showed at the grant.
#[test]
fn a_holder_on_another_machine_is_judged_by_its_lease_and_not_by_its_clock() {
    let server = Server::start();
    let address = server.address("elsewhere");
    let here = caller(&address);
    for hours in [-7, 0, 7] {
        for kind in [Kind::Kernel, Kind::Detached] {
            let name = name(&format!("h{hours}-{kind:?}"));
            let elsewhere = Elsewhere::new(hours);
            let theirs = elsewhere.store(&address);
            let ttl = Duration::from_secs(3);
            let mut request = request("theirs", ttl);
            request.kind = kind;
            request.holder.host = elsewhere.host.clone().into();
            let began = instant();
            let entered = theirs.enter(&name, request, &elsewhere.now());
            let entered = entered.expect("an etcd that answers");
            assert!(matches!(entered.entering, Entering::Granted { .. }));

            let reading = here.read(&name, None).expect("an etcd that answers");
            let (standing, _) = reading.standing(&here.rules().policy, &now());
            assert!(
                matches!(standing, Standing::Held(_)),
                "{hours} h off, {kind:?}: {standing:?}"
            );
            let held = claims(&here, &name).remove(0);
            let since = held.since.expect("a hold").wall_ms;
            let apart = since.abs_diff(now().wall_us / 1_000);
            assert!(apart < 5_000, "{hours} h off: shown as {apart} ms ago");
            let (waiter, behind) = line_up(&here, &name, "ours", LONG);
            // The process ends without a word: only a lease is left of it.
            if kind == Kind::Kernel {
                revoke_all_but(&server, &[&here_lease(&server, &name, "ours")]);
            }
            wait(&here, &waiter, behind, PATIENCE);
            let after = instant().saturating_duration_since(began);
            if kind == Kind::Detached {
                assert!(
                    after >= ttl,
                    "{hours} h off: others got in after {after:?} of {ttl:?}"
                );
                assert!(after < ttl * 3, "{hours} h off: only after {after:?}");
            }
            drop(entered);
        }
    }
}

/// The lease that a claim's lease key is attached to, as etcdctl writes it; found by the request's id.
fn here_lease(server: &Server, name: &LockName, id: &str) -> String {
    on(server, async |client| {
        let everything = RangeRequest::of("/").with_range(end_of("/"));
        let found = client.get(everything).await.expect("keys");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let claim = found.kvs.iter().find(|pair| {
            let key = text(&pair.key);
            let value = text(&pair.value);
            key.contains(&format!("/{name}/claims/")) && value.contains(&format!("\"{id}\""))
        });
        let claim = text(&claim.expect("the claim").key);
        let lease_key = claim.replace("/claims/", "/lives/");
        let lease_key = found.kvs.iter().find(|pair| text(&pair.key) == lease_key);
        format!("{:x}", lease_key.expect("its lease key").lease)
    })
}

/// Ends leases as a server does that gets no renewals.
pub(super) fn revoke_all_but(server: &Server, spared: &[&str]) {
    let leases = server.etcdctl(&["lease", "list"]);
    let leases = leases.lines().map(str::trim);
    let leases = leases.filter(|line| line.bytes().all(|byte| byte.is_ascii_hexdigit()));
    for lease in leases.filter(|lease| !lease.is_empty() && !spared.contains(lease)) {
        server.etcdctl(&["lease", "revoke", lease]);
    }
}

/// Does something with a client of the tests' own.
fn on<T>(server: &Server, work: impl AsyncFnOnce(Client) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime
        .expect("a runtime")
        .block_on(async { work(client(format!("http://{}", server.endpoint())).await).await })
}

/// While a holder was cut off, its lease ran out and another caller entered: the holder is told so.
#[test]
fn a_lease_that_ran_out_is_a_loss_once_somebody_else_came() {
    let server = Server::start();
    let address = server.address("lost");
    let name = name("lost");
    let (one, two) = (caller(&address), caller(&address));
    let (handle, token) = take(&one, &name, "one", LONG);
    let (waiter, behind) = line_up(&two, &name, "two", LONG);
    let spared = here_lease(&server, &name, "two");
    revoke_all_but(&server, &[&spared]);
    let next = wait(&two, &waiter, behind, PATIENCE);
    assert!(next > token, "the token rises: {token}, {next}");
    let renewed = one.renew(&*handle, &now()).expect("an etcd that answers");
    assert_eq!(renewed, Renewal::Lost);
    assert_eq!(
        one.verify(&*handle, &now()).expect("an answer"),
        Renewal::Lost
    );
    let left = one.release(&*handle, &now()).expect("an etcd that answers");
    assert_eq!(left, Left::Absent, "what is not held cannot be released");
    let standing = two.verify(&*waiter, &now()).expect("an etcd that answers");
    assert!(
        matches!(standing, Renewal::Renewed { .. }),
        "the other holds on"
    );
}

/// If no other caller entered, the hold was never interrupted: it goes on with its token.
#[test]
fn a_lease_that_ran_out_unnoticed_is_lit_again_with_the_same_token() {
    let server = Server::start();
    let address = server.address("lit");
    let name = name("lit");
    let (one, two) = (caller(&address), caller(&address));
    let (handle, token) = take(&one, &name, "one", LONG);
    for asking in ["renew", "verify"] {
        revoke_all_but(&server, &[]);
        let reading = two.read(&name, None).expect("an etcd that answers");
        let (standing, _) = reading.standing(&two.rules().policy, &now());
        assert!(
            matches!(standing, Standing::Stale(_)),
            "any caller could enter: {standing:?}"
        );
        let answer = match asking {
            "renew" => one.renew(&*handle, &now()),
            _ => one.verify(&*handle, &now()),
        };
        let answer = answer.expect("an etcd that answers");
        assert!(
            matches!(answer, Renewal::Renewed { token: same, .. } if same == token),
            "{asking}: {answer:?}"
        );
        let (_waiter, behind) = line_up(&two, &name, "two", LONG);
        assert!(
            matches!(behind, Predecessor::LivenessLock { .. }),
            "{asking}: a caller that enters now has to wait: {behind:?}"
        );
    }
}

/// A waiter whose own lease ran out during its sleep attaches its lease key again, or learns that it has
/// lost its place.
#[test]
fn a_waiter_outlives_the_end_of_its_lease() {
    let server = Server::start();
    let address = server.address("waiter");
    let (one, two, three) = (caller(&address), caller(&address), caller(&address));
    let (kept, swept) = (name("kept"), name("swept"));

    let (handle, _) = take(&one, &kept, "one", LONG);
    let (waiter, behind) = line_up(&two, &kept, "two", LONG);
    let spared = here_lease(&server, &kept, "one");
    revoke_all_but(&server, &[&spared]);
    one.release(&*handle, &now()).expect("an etcd that answers");
    wait(&two, &waiter, behind, PATIENCE);
    let standing = three.read(&kept, None).expect("an etcd that answers");
    let (standing, _) = standing.standing(&three.rules().policy, &now());
    assert!(matches!(standing, Standing::Held(_)), "{standing:?}");

    let (_handle, _) = take(&one, &swept, "one", LONG);
    let (waiter, behind) = line_up(&two, &swept, "two", LONG);
    let spared = here_lease(&server, &swept, "one");
    revoke_all_but(&server, &[&spared]);
    three
        .clean(&swept, &now(), false)
        .expect("an etcd that answers");
    let until = Some(instant() + PATIENCE);
    let wake = two
        .sleep(&*waiter, &behind, &now(), until)
        .expect("a sleep");
    assert_eq!(wake, Wake::Ready, "a waiter that lost its place is woken");
    let advanced = two
        .try_grant(&*waiter, &now())
        .expect("an etcd that answers");
    assert_eq!(advanced.grant, TryGrant::Gone);
}

/// The history in which a watch would begin may be compacted away before or during the sleep.
#[test]
fn a_compaction_wakes_whoever_sleeps_and_loses_nobody() {
    let server = Server::start();
    let address = server.address("compacted");
    let name = name("compacted");
    let (one, two) = (caller(&address), caller(&address));
    let (handle, _) = take(&one, &name, "one", LONG);
    let (waiter, behind) = line_up(&two, &name, "two", LONG);
    let compact = || {
        for _ in 0..3 {
            server.etcdctl(&["put", "/elsewhere", "x"]);
        }
        let revision = on(&server, async |client| {
            let found = client.get(RangeRequest::of("/elsewhere")).await;
            found.expect("a key").header.expect("a header").revision
        });
        server.etcdctl(&["compact", &revision.to_string()]);
    };
    compact();
    // The waiter's watch begins before the revisions that etcd still has.
    let end = Some(instant() + PATIENCE);
    let wake = two.sleep(&*waiter, &behind, &now(), end).expect("a sleep");
    assert_eq!(wake, Wake::Ready, "it has to look for itself");
    let advanced = two
        .try_grant(&*waiter, &now())
        .expect("an etcd that answers");
    let TryGrant::Behind(behind) = advanced.grant else {
        panic!("it still waits: {:?}", advanced.grant);
    };
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| wait(&two, &waiter, behind, PATIENCE));
        compact();
        one.release(&*handle, &now()).expect("an etcd that answers");
        sleeper.join().expect("it was woken");
    });
}

/// The server is killed and started again, with a holder and a sleeping waiter.
#[test]
fn a_server_may_go_and_come_back() {
    let mut server = Server::start();
    let address = server.address("restarted");
    let name = name("restarted");
    let (one, two) = (caller(&address), caller(&address));
    let (handle, token) = take(&one, &name, "one", LONG);
    let (waiter, behind) = line_up(&two, &name, "two", LONG);
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| wait(&two, &waiter, behind, Duration::from_secs(60)));
        server.kill();
        server.again();
        // A call may come too early for the new server; it says so.
        until("the holder is answered again", PATIENCE, || {
            match one.renew(&*handle, &now()) {
                Ok(Renewal::Renewed { token: same, .. }) => same == token,
                Ok(Renewal::Lost) => panic!("the hold outlives its server"),
                Err(StoreError::Unreachable { .. }) => false,
                Err(other) => panic!("{other}"),
            }
        });
        one.release(&*handle, &now()).expect("an etcd that answers");
        let next = sleeper.join().expect("it was woken");
        assert!(next > token, "the token rises");
    });
}

/// Every verb, on the handle of a holder and on that of a waiter.
fn ask_everything(
    store: &EtcdStore,
    name: &LockName,
    handle: &ClaimHandle,
    each: &dyn Fn(&str, Instant, Option<StoreError>),
) {
    let anybody = |_: &tenure_core::Claim| Ownership::Shown;
    let ask = |verb: &str, answer: &dyn Fn() -> Option<StoreError>| {
        let began = instant();
        each(verb, began, answer());
    };
    let process = tenure_core::Process {
        pid: std::process::id(),
        started: None,
    };
    ask("read", &|| store.read(name, None).err());
    ask("enter", &|| {
        store.enter(name, request("more", LONG), &now()).err()
    });
    ask("try_grant", &|| store.try_grant(&**handle, &now()).err());
    ask("name_command", &|| {
        store.name_command(&**handle, process, &now()).err()
    });
    ask("renew", &|| store.renew(&**handle, &now()).err());
    ask("verify", &|| store.verify(&**handle, &now()).err());
    ask("park", &|| {
        store.reserve(&**handle, None, 1_000, &now(), None).err()
    });
    ask("cancel", &|| {
        store.cancel(name, "somebody".into(), None, &now()).err()
    });
    ask("note_waiting", &|| {
        store.note_waiting(name, 1, None, &now()).err()
    });
    ask("renew_owned", &|| {
        store.renew_owned(name, &anybody, &now()).err()
    });
    ask("release_owned", &|| {
        store.release_owned(name, &anybody, &now()).err()
    });
    ask("force_release", &|| {
        store.force_release(name, Force::Confirmed, &now()).err()
    });
    ask("names", &|| store.names(Which::Locks, &mut |_| {}).err());
    ask("clean", &|| store.clean(name, &now(), false).err());
    ask("leave", &|| store.release(&**handle, &now()).err());
}

/// With etcd out of reach, each call says so within its patience, and none says that a lock is free.
#[test]
fn without_etcd_every_call_says_so_in_time() {
    let patience = Duration::from_millis(600);
    for weather in [Weather::Refusing, Weather::Parted] {
        let server = Server::start();
        let proxy = Proxy::to(server.port());
        let store = caller(&proxy.address("down")).patience(patience);
        let name = name("down");
        let (handle, _) = take(&store, &name, "one", LONG);
        proxy.weather(weather);
        ask_everything(&store, &name, &handle, &|verb, began, error| {
            let took = instant().saturating_duration_since(began);
            assert!(
                matches!(error, Some(StoreError::Unreachable { .. })),
                "{weather:?}: {verb} says {error:?}"
            );
            // A request may be under way at the end, and the machine may be busy.
            assert!(
                took < patience + Duration::from_secs(4),
                "{weather:?}: {verb} took {took:?}"
            );
        });
        proxy.weather(Weather::Fair);
        until("it comes back", PATIENCE, || {
            store.read(&name, None).is_ok()
        });
    }
}

/// A second server takes over from one that is dead, or accepts and never answers, or stops answering.
#[test]
fn another_endpoint_is_asked_when_one_is_dead_or_mute() {
    let server = Server::start();
    let (mute, good) = (Proxy::to(server.port()), Proxy::to(server.port()));
    mute.weather(Weather::Parted);
    let dead = format!("127.0.0.1:{}", server::free_port());
    for (kind, bad) in [("dead", dead), ("mute", mute.endpoint())] {
        for endpoints in [
            format!("{bad},{}", good.endpoint()),
            format!("{},{bad}", good.endpoint()),
        ] {
            let store = caller(&server::address(&endpoints, "endpoints"));
            let name = name(&format!("{kind}-{}", endpoints.len()));
            let (handle, _) = take(&store, &name, "one", LONG);
            let began = instant();
            let verified = store.verify(&*handle, &now()).expect("an answer");
            assert!(matches!(verified, Renewal::Renewed { .. }));
            assert!(
                instant().saturating_duration_since(began) < Duration::from_secs(2),
                "{kind}: the server that was found is asked first from then on"
            );
            store.release(&*handle, &now()).expect("an answer");
        }
    }
    // The server that is asked stops answering while one caller sleeps and another holds.
    let endpoints = format!("{},{}", good.endpoint(), server.endpoint());
    let address = server::address(&endpoints, "endpoints");
    let (one, two) = (caller(&address), caller(&address));
    let name = name("switched");
    let (handle, token) = take(&one, &name, "one", LONG);
    let (waiter, behind) = line_up(&two, &name, "two", LONG);
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| wait(&two, &waiter, behind, Duration::from_secs(40)));
        good.weather(Weather::Parted);
        let renewed = one.renew(&*handle, &now()).expect("the other one answers");
        assert!(matches!(renewed, Renewal::Renewed { token: same, .. } if same == token));
        one.release(&*handle, &now())
            .expect("the other one answers");
        sleeper
            .join()
            .expect("it was woken by way of the other one");
    });
}

fn refused(answer: Result<tenure::store::Reading, StoreError>) -> String {
    match answer {
        Ok(reading) => panic!("answered: {reading:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_user_and_a_password_are_needed_where_the_server_wants_them() {
    let server = Server::start();
    for arguments in [
        ["user", "add", "root:secret"].as_slice(),
        &["user", "grant-role", "root", "root"],
        &["role", "add", "locks"],
        &[
            "role",
            "grant-permission",
            "locks",
            "readwrite",
            "/mine/",
            "--prefix",
        ],
        &["user", "add", "ann:pass:word"],
        &["user", "grant-role", "ann", "locks"],
        &["auth", "enable"],
    ] {
        server.etcdctl(arguments);
    }
    let name = name("guarded");
    let as_user = |user: Option<(&str, &str)>, prefix: &str| {
        let user = user.map(|(name, password)| (name.to_owned(), password.to_owned()));
        let credentials = Credentials {
            user,
            ..Credentials::default()
        };
        caller_as(&server.address(prefix), &credentials).patience(Duration::from_secs(2))
    };
    let ann = as_user(Some(("ann", "pass:word")), "mine");
    let (handle, _) = take(&ann, &name, "ann", LONG);
    let (waiter, behind) = line_up(&ann, &name, "again", LONG);
    assert!(matches!(
        ann.release(&*handle, &now()),
        Ok(Left::Released { .. })
    ));
    wait(&ann, &waiter, behind, PATIENCE);

    let wrong = as_user(Some(("ann", "wrong")), "mine");
    let denied = |answer: Result<tenure::store::Reading, StoreError>| {
        assert!(
            matches!(answer, Err(StoreError::Denied { .. })),
            "it is the user who is refused: {answer:?}"
        );
        refused(answer)
    };
    let said = denied(wrong.read(&name, None));
    assert!(said.contains("authentication failed"), "{said}");
    assert!(!said.contains("wrong"), "no password in a message: {said}");
    let said = denied(as_user(None, "mine").read(&name, None));
    assert!(said.contains("user name is empty"), "{said}");
    let theirs = as_user(Some(("ann", "pass:word")), "theirs");
    let said = denied(theirs.read(&name, None));
    assert!(said.contains("permission denied"), "{said}");
    let written = theirs.force_release(&name, Force::Confirmed, &now());
    assert!(
        matches!(written, Err(StoreError::Denied { .. })),
        "{written:?}"
    );
}

#[test]
fn an_encrypted_connection_trusts_its_own_authority_only() {
    let tls = Tls::make();
    let server = Server::with(Some(&tls));
    let name = name("sealed");
    let plain = server.address("tls").to_string();
    let address = Address::parse(&plain.replace("etcd://", "etcds://")).expect("an address");
    let with = |authority: &str, certificate: Option<&str>| {
        let credentials = Credentials {
            authority: Some(tls.read(&format!("{authority}.crt"))),
            certificate: certificate.map(|name| {
                (
                    tls.read(&format!("{name}.crt")),
                    tls.read(&format!("{name}.key")),
                )
            }),
            ..Credentials::default()
        };
        caller_as(&address, &credentials).patience(Duration::from_secs(2))
    };
    let trusted = with("ca", Some("client"));
    let (handle, _) = take(&trusted, &name, "one", LONG);
    let (waiter, behind) = line_up(&trusted, &name, "two", LONG);
    trusted
        .release(&*handle, &now())
        .expect("an etcd that answers");
    wait(&trusted, &waiter, behind, PATIENCE);

    for (why, store) in [
        (
            "whose server is vouched for by another",
            with("other", Some("client")),
        ),
        (
            "without the certificate that the server wants",
            with("ca", None),
        ),
        (
            "with a certificate of another authority",
            with("ca", Some("stranger")),
        ),
        (
            "in the clear",
            caller(&server.address("tls")).patience(Duration::from_secs(2)),
        ),
    ] {
        let answer = store.read(&name, None);
        assert!(
            matches!(answer, Err(StoreError::Unreachable { .. })),
            "{why}: {answer:?}"
        );
    }
    let here = Identity::current().host;
    let blind = EtcdStore::new(
        &address,
        &Credentials::default(),
        here,
        Box::new(ThreadSleeper),
    );
    let said = blind
        .expect_err("no authority vouches for the server")
        .to_string();
    assert!(said.contains("TENURE_ETCD_CACERT"), "{said}");
}

#[test]
fn every_key_is_below_the_prefix_and_no_prefix_sees_another() {
    let server = Server::start();
    let ours = ["/one", "/one/two", "/one-two"];
    let stores = ours.map(|prefix| caller(&server.address(&prefix[1..])));
    let name = name("same");
    for (store, prefix) in stores.iter().zip(ours) {
        let (handle, _) = take(store, &name, "holder", LONG);
        let (waiter, behind) = line_up(store, &name, "waiter", LONG);
        store
            .release(&*handle, &now())
            .expect("an etcd that answers");
        wait(store, &waiter, behind, PATIENCE);
        store.renew(&*waiter, &now()).expect("an etcd that answers");
        let mut detached = request("detached", LONG);
        detached.kind = Kind::Detached;
        let other = LockName::new("other").expect("a name");
        let entered = store.enter(&other, detached, &now());
        assert!(matches!(
            entered.expect("an etcd that answers").entering,
            Entering::Granted { .. }
        ));
        let mut names = Vec::new();
        store
            .names(Which::Locks, &mut |name| names.push(name.to_string()))
            .expect("an etcd that answers");
        names.sort();
        assert_eq!(names, ["other", "same"], "below {prefix}");
        // The waiter dies, and a caller that looks at the others' locks is not affected.
        drop(waiter);
    }
    let keys = server.etcdctl(&["get", "", "--prefix", "--keys-only"]);
    for key in keys.lines().filter(|key| !key.is_empty() && *key != "/up") {
        assert!(
            ours.iter()
                .any(|prefix| key.starts_with(&format!("{prefix}/locks/"))),
            "a key outside of every prefix: {key}"
        );
    }
    let [one, two, three] = &stores;
    one.clean(&name, &now(), false)
        .expect("an etcd that answers");
    assert_eq!(claims(one, &name).len(), 0);
    assert_eq!(
        claims(two, &name).len(),
        1,
        "another prefix's is left alone"
    );
    assert_eq!(claims(three, &name).len(), 1, "and so is this");
}

/// What cannot be understood refuses every caller but one with force; what a later version wrote refuses
/// that one too.
#[test]
fn junk_among_the_claims_refuses_until_force_replaces_it() {
    let server = Server::start();
    let store = caller(&server.address("junk"));
    let junk = "not a claim at all";
    let newer = "{\"tenure\":99,\"life\":\"x\"}\n{}\n{}\n";
    for (name, text, forceable) in [
        (name("junk"), junk, true),
        (name("empty"), "", true),
        (name("newer"), newer, false),
    ] {
        let key = format!("/junk/locks/{name}/claims/0-0");
        on(&server, async |client| {
            client.put(key.clone(), text).await.expect("a put");
        });
        let reading = store.read(&name, None).expect("an etcd that answers");
        assert!(
            matches!(reading.content, Content::Unreadable { .. }),
            "{name}: {reading:?}"
        );
        let (standing, _) = reading.standing(&store.rules().policy, &now());
        assert_eq!(standing, Standing::Unreadable, "{name}");
        for patience in [Patience::AtOnce, Patience::Queue] {
            let mut request = request("one", LONG);
            request.patience = patience;
            let entered = store.enter(&name, request, &now()).expect("an answer");
            assert!(
                matches!(&entered.entering, Entering::Refused(_)),
                "{name}, {patience:?}: {:?}",
                entered.entering
            );
            assert!(
                entered.handle.is_none(),
                "no caller holds what cannot be read"
            );
        }
        let cleaned = store.clean(&name, &now(), false);
        assert!(
            matches!(cleaned, Err(StoreError::Unreadable { .. })),
            "{name}: {cleaned:?}"
        );
        let left = server.etcdctl(&[
            "get",
            &format!("/junk/locks/{name}/"),
            "--prefix",
            "--keys-only",
        ]);
        assert_eq!(left.trim(), key, "nothing was added or removed");
        let mut forced = request("forced", LONG);
        forced.force = Force::Confirmed;
        let entered = store.enter(&name, forced, &now()).expect("an answer");
        if forceable {
            assert!(
                matches!(entered.entering, Entering::Granted { .. }),
                "{name}: {:?}",
                entered.entering
            );
            assert_eq!(claims(&store, &name).len(), 1, "{name}");
        } else {
            assert!(
                matches!(entered.entering, Entering::Refused(_)),
                "{name}: {:?}",
                entered.entering
            );
            let forced = store.force_release(&name, Force::Confirmed, &now());
            let forced = forced.expect("an answer").released;
            assert!(matches!(forced, Forced::Refused(_)), "{name}: {forced:?}");
        }
    }
}

/// Also more unreadable keys than one transaction removes are removed.
#[test]
fn much_junk_among_the_claims_is_replaced_as_one() {
    let server = Server::start();
    let store = caller(&server.address("much"));
    for name in [name("entered"), name("released")] {
        on(&server, async |client| {
            let junk = (0..150).map(|number| {
                let key = format!("/much/locks/{name}/claims/0-{number}");
                RequestOp::put(key, "junk")
            });
            // etcd takes 128 operations in one transaction.
            for some in junk.collect::<Vec<_>>().chunks(100) {
                let written = client.txn(TxnRequest::default().and_then(some)).await;
                written.expect("junk among the claims");
            }
        });
        if name.as_str() == "entered" {
            let mut forced = request("forced", LONG);
            forced.force = Force::Confirmed;
            let entered = store.enter(&name, forced, &now()).expect("an answer");
            assert!(matches!(entered.entering, Entering::Granted { .. }));
            assert_eq!(claims(&store, &name).len(), 1);
        } else {
            let forced = store.force_release(&name, Force::Confirmed, &now());
            let forced = forced.expect("an answer").released;
            assert!(
                matches!(forced, Forced::Done { claim: None, .. }),
                "{forced:?}"
            );
            assert_eq!(claims(&store, &name), Vec::new());
        }
    }
}

/// Claims that were written as copies of a real one, all on one lease.
fn plant(server: &Server, prefix: &str, name: &LockName, count: usize, label: &str) -> i64 {
    on(server, async |client| {
        let claims = format!("/{prefix}/locks/{name}/claims/");
        let range = RangeRequest::of(claims.clone()).with_range(end_of(&claims));
        let found = client.get(range).await.expect("a claim");
        let model = found.kvs.last().expect("a claim to copy");
        let id = String::from_utf8_lossy(&model.key)[claims.len()..].to_owned();
        let value = String::from_utf8_lossy(&model.value).into_owned();
        assert!(
            value.contains(&id),
            "its lease key has the name of the claim: {value}"
        );
        let lease = client.grant_lease(600).await.expect("a lease");
        // Put one after the other: keys that are written together have one revision, and so one ticket.
        for number in 0..count {
            let own = format!("{label}-{number}");
            let claim = RequestOp::put(format!("{claims}{own}"), value.replace(&id, &own));
            let lease_key = format!("/{prefix}/locks/{name}/lives/{own}");
            let both = [claim, RequestOp::leased(lease_key, "", lease)];
            let both = client.txn(TxnRequest::default().and_then(both)).await;
            both.expect("a claim");
        }
        lease
    })
}

fn revoke(server: &Server, lease: i64) {
    server.etcdctl(&["lease", "revoke", &format!("{lease:x}")]);
}

/// On a full disk holders go on and can leave; no caller gets in.
#[test]
fn with_a_full_disk_holders_go_on_and_leave_and_nobody_gets_in() {
    let server = Server::start();
    let address = server.address("full");
    let (one, two) = (caller(&address), caller(&address));
    let (name, other) = (name("full"), name("other"));
    let (handle, token) = take(&one, &name, "one", LONG);
    let (waiter, _) = line_up(&two, &name, "two", LONG);
    let (_theirs, their_token) = take(&two, &other, "theirs", LONG);
    server.fill();
    for asked in [one.renew(&*handle, &now()), one.verify(&*handle, &now())] {
        let asked = asked.expect("the lease is renewed");
        assert!(matches!(asked, Renewal::Renewed { token: same, .. } if same == token));
    }
    let entered = one.enter(&name, request("more", LONG), &now());
    let error = entered.expect_err("no caller gets in").to_string();
    assert!(error.contains("space exceeded"), "{error}");
    let waiting = tenure_core::WaitingFor {
        place: "elsewhere".to_owned(),
        name: "other".to_owned(),
        ticket: 7,
    };
    let noted = two.note_waiting(&other, their_token, Some(&waiting), &now());
    assert!(noted.is_err(), "nothing is written: {noted:?}");
    assert_eq!(claims(&two, &name).len(), 2, "no other claim was made");
    let left = two.release(&*waiter, &now()).expect("an answer");
    assert_eq!(left, Left::Withdrawn);
    let left = one.release(&*handle, &now()).expect("an answer");
    assert!(matches!(left, Left::Released { .. }), "{left:?}");
    assert_eq!(claims(&two, &name), Vec::new());
    let owns = |_: &tenure_core::Claim| Ownership::Shown;
    let released = one.release_owned(&other, &owns, &now()).expect("an answer");
    assert!(matches!(released, tenure_core::Released::Done { .. }));
    assert_eq!(claims(&two, &other), Vec::new());
    server.etcdctl(&["alarm", "disarm"]);
    take(&one, &name, "next", LONG);
}

/// A queue of more keys than are read at once. All its claims die at once, and they are more than one
/// transaction of etcd removes.
#[test]
fn a_queue_of_many_pages_is_read_and_swept() {
    let server = Server::start();
    let address = server.address("many");
    let (one, two) = (caller(&address), caller(&address));
    let name = name("many");
    let (handle, token) = take(&one, &name, "holder", LONG);
    let (model, _) = line_up(&one, &name, "waiter", LONG);
    // Two keys for each claim, and 2,000 are read at once.
    let lease = plant(&server, "many", &name, 1_500, "plant");
    assert_eq!(claims(&two, &name).len(), 1_502);
    let mut names = Vec::new();
    two.names(Which::Locks, &mut |name| names.push(name))
        .expect("an answer");
    assert_eq!(
        names.len(),
        1,
        "a lock of many pages is one lock: {names:?}"
    );
    let mut at_once = request("at-once", LONG);
    at_once.patience = Patience::AtOnce;
    let entered = two.enter(&name, at_once, &now()).expect("an answer");
    assert!(
        matches!(entered.entering, Entering::Refused(_)),
        "it is held"
    );
    let (waiter, behind) = line_up(&two, &name, "last", LONG);

    // The claims die in the middle of the queue, with one claim before them and one behind them.
    revoke(&server, lease);
    drop(model);
    one.release(&*handle, &now()).expect("an answer");
    let next = wait(&two, &waiter, behind, Duration::from_secs(60));
    assert!(next > token, "the token rises");
    assert_eq!(claims(&two, &name).len(), 1, "the dead are gone");

    // And once more, for a caller that cleans.
    let (model, _) = line_up(&one, &name, "waiter", LONG);
    let lease = plant(&server, "many", &name, 300, "more");
    drop(model);
    revoke(&server, lease);
    let dry = one.clean(&name, &now(), true).expect("an answer");
    assert_eq!(dry.swept.len(), 301, "what it would remove");
    let cleaned = one.clean(&name, &now(), false).expect("an answer");
    assert_eq!(cleaned.swept.len(), 301, "what it removed");
    assert!(!cleaned.removed, "a claim holds it");
    assert_eq!(claims(&two, &name).len(), 1);
}

/// A claimant dies far back in a long queue. The waiter behind it moves up, although more claims stand
/// before it than etcd compares in one transaction.
#[test]
fn a_death_far_back_in_a_long_queue_moves_the_next_one_up() {
    let server = Server::start();
    let address = server.address("long");
    let (one, two) = (caller(&address), caller(&address));
    let name = name("long");
    let (_holder, _) = take(&one, &name, "holder", LONG);
    let (_model, _) = line_up(&one, &name, "waiter", LONG);
    let _living = plant(&server, "long", &name, 200, "living");
    let dying = plant(&server, "long", &name, 3, "dying");
    let (waiter, behind) = line_up(&two, &name, "last", LONG);
    revoke(&server, dying);
    let end = Some(instant() + PATIENCE);
    let wake = two.sleep(&*waiter, &behind, &now(), end).expect("a sleep");
    assert_eq!(wake, Wake::Ready);
    let advanced = two.try_grant(&*waiter, &now()).expect("an answer");
    let TryGrant::Behind(Predecessor::LivenessLock { ticket }) = advanced.grant else {
        panic!("it waits behind another one: {:?}", advanced.grant);
    };
    let before = claims(&two, &name);
    let before = before.iter().rev().nth(1).expect("a claim before the last");
    assert_eq!(ticket, before.ticket, "behind the last of the living");
    assert_eq!(claims(&two, &name).len(), 203, "the dead are gone");
}

/// Has `two`, behind a proxy, queue on a lock with more claims than a transaction reads. It reads the list once
/// `meanwhile` is done, and so sees what came after it.
fn queues_and_reads_late(
    proxy: &Proxy,
    (two, name): (&EtcdStore, &LockName),
    meanwhile: impl FnOnce(),
) -> (ClaimHandle, u64, Predecessor) {
    // The second request reads the list. The read is lost, and the next one gets through when the network is
    // fair again.
    proxy.strike_after(1, &format!("/locks/{name}"), Fault::Swallow);
    let entered = std::thread::scope(|scope| {
        let last = scope.spawn(|| two.enter(name, request("last", LONG), &now()));
        until("it reads the list", PATIENCE, || proxy.has_struck());
        proxy.weather(Weather::Parted);
        meanwhile();
        proxy.weather(Weather::Fair);
        last.join().expect("a place in the queue")
    });
    let entered = entered.expect("an etcd that answers");
    match entered.entering {
        Entering::Queued { ticket, behind } => (entered.handle.expect("a handle"), ticket, behind),
        other => panic!("expected a place in the queue, saw {other:?}"),
    }
}

/// A claim never waits behind one that came after it, which waits for it too: then the end of the hold would
/// wake neither.
#[test]
fn a_claim_in_a_long_queue_waits_behind_the_one_before_it_and_not_behind_a_later_one() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let one = caller(&server.address("later"));
    let two = caller(&proxy.address("later")).patience(LONG);
    let name = name("later");
    let (_holder, _) = take(&one, &name, "holder", LONG);
    let (_model, _) = line_up(&one, &name, "waiter", LONG);
    // Two keys for each claim, and 500 are read with a transaction.
    let _living = plant(&server, "later", &name, 260, "living");
    let mut later = None;
    let (last, own, behind) = queues_and_reads_late(&proxy, (&two, &name), || {
        later = Some(line_up(&one, &name, "later", LONG));
    });
    let (later, later_behind) = later.expect("a later claim");
    assert!(own < later.ticket(), "it came earlier");
    assert_eq!(later_behind, Predecessor::LivenessLock { ticket: own });
    let before = claims(&one, &name);
    let before = before.iter().rev().find(|claim| claim.ticket < own);
    let ticket = before.expect("a claim before it").ticket;
    assert_eq!(last.ticket(), own);
    assert_eq!(behind, Predecessor::LivenessLock { ticket });
}

/// The claims before one in a long queue end, and a later claim takes the hold out: the first waits for that hold.
#[test]
fn a_claim_in_a_long_queue_sees_a_later_claim_that_overrode_the_hold() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let one = caller(&server.address("forced"));
    let two = caller(&proxy.address("forced")).patience(LONG);
    let name = name("forced");
    let mut detached = request("detached", LONG);
    detached.kind = Kind::Detached;
    let entered = one.enter(&name, detached, &now()).expect("an answer");
    assert!(matches!(entered.entering, Entering::Granted { .. }));
    let (model, _) = line_up(&one, &name, "waiter", LONG);
    let dying = plant(&server, "forced", &name, 260, "dying");
    let mut holds = None;
    let (last, own, behind) = queues_and_reads_late(&proxy, (&two, &name), || {
        drop(model);
        revoke(&server, dying);
        let mut forced = request("forced", LONG);
        (forced.force, forced.patience) = (Force::Confirmed, Patience::AtOnce);
        let forced = one.enter(&name, forced, &now()).expect("an answer");
        assert!(matches!(forced.entering, Entering::Granted { .. }));
        holds = forced.handle;
    });
    let holds = holds.expect("a hold");
    assert!(own < holds.ticket(), "it came earlier");
    let ticket = holds.ticket();
    assert_eq!(behind, Predecessor::LivenessLock { ticket });
    let left = one.release(&*holds, &now()).expect("an answer");
    assert!(matches!(left, Left::Released { .. }), "{left:?}");
    let token = wait(&two, &last, behind, PATIENCE);
    assert!(token > ticket, "the token rises");
}

/// All claims that hold together are asked to stop, even if they are more than etcd writes at once.
#[test]
fn more_holders_than_a_transaction_takes_are_asked_to_stop() {
    let server = Server::start();
    let address = server.address("readers");
    let (one, two) = (caller(&address), caller(&address));
    let name = name("readers");
    let mut shared = request("reader", LONG);
    shared.terms.mode = Mode::Shared;
    let entered = one.enter(&name, shared, &now()).expect("an answer");
    let token = match entered.entering {
        Entering::Granted { token, .. } => token,
        other => panic!("expected a grant, saw {other:?}"),
    };
    let _lease = plant(&server, "readers", &name, 200, "reader");
    let asked = two
        .cancel(&name, "somebody".into(), None, &now())
        .expect("an answer");
    assert_eq!(asked.len(), 201, "every holder was asked");
    let left = claims(&two, &name);
    let left = left.iter().filter(|claim| claim.cancel.is_none()).count();
    assert_eq!(left, 0, "and every holder can see it");
    assert!(token > 0);
}

/// A caller that takes the lock over from more dead holders than one transaction removes is told of
/// each.
#[test]
fn more_dead_holders_than_a_transaction_takes_are_all_told_of() {
    let server = Server::start();
    let address = server.address("dead");
    let (one, two) = (caller(&address), caller(&address));
    let name = name("dead");
    let mut shared = request("reader", LONG);
    shared.terms.mode = Mode::Shared;
    let entered = one.enter(&name, shared, &now()).expect("an answer");
    assert!(matches!(entered.entering, Entering::Granted { .. }));
    let lease = plant(&server, "dead", &name, 200, "reader");
    drop(entered);
    revoke(&server, lease);
    let entered = two.enter(&name, request("next", LONG), &now());
    let entered = entered.expect("an answer");
    assert!(
        matches!(entered.entering, Entering::Granted { .. }),
        "{:?}",
        entered.entering
    );
    let events = entered.events.iter();
    let stolen = events.filter(|event| matches!(event, Event::Stolen { .. }));
    assert_eq!(stolen.count(), 201, "each of them is told");
    assert_eq!(entered.entry.claims.len(), 1, "{:?}", entered.entry);
    assert_eq!(claims(&two, &name).len(), 1, "the dead are gone");
}

/// A waiting future that is dropped leaves no claim; a guard that is dropped frees the lock.
#[test]
fn a_dropped_future_and_a_dropped_guard_leave_nothing() {
    let server = Server::start();
    let address = server.address("dropped");
    let locks = LockManager::with_store(caller(&address));
    let others = LockManager::with_store(caller(&address));
    let watcher = caller(&address);
    let lock = name("dropped");
    let held = locks.acquire("dropped").expect("a free lock");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let options = Options::new().wait(Wait::Forever);
        let options = options.again(Again::Wait);
        let waiting = others.acquire_async("dropped", &options);
        let timeout = tokio::time::timeout(Duration::from_secs(2), waiting).await;
        assert!(timeout.is_err(), "another claim holds it");
    });
    until("its claim is gone", PATIENCE, || {
        claims(&watcher, &lock).len() == 1
    });
    drop(held);
    let next = others
        .try_acquire("dropped")
        .expect("a lock that is free again");
    drop(next);
    assert_eq!(claims(&watcher, &lock), Vec::new());
}

/// A guard whose etcd is out of reach tells of the loss before others can get in.
/// Where the lock is that a child of a test asks for.
const ADDRESS: &str = "TENURE_TEST_ADDRESS";

/// A program that runs below a `tenure run`, and asks for a lock.
#[test]
fn what_a_child_is_answered() {
    let Ok(address) = std::env::var(ADDRESS) else {
        return;
    };
    let address = Address::parse(&address).expect("an address");
    let locks = LockManager::etcd(&address, &Credentials::default()).expect("a manager");
    match locks.acquire_timeout("x", Duration::from_millis(100)) {
        Err(AcquireError::Held(_)) => println!("\nit is held"),
        Err(AcquireError::HeldByOuterRun { .. }) => println!("\nit is held around us"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_hold_that_a_program_inherits_from_another_cluster_is_none_of_this_one() {
    let servers = [Server::start(), Server::start()];
    let stores = servers
        .each_ref()
        .map(|server| caller(&server.address("same")));
    let name = name("x");
    let holds = stores.each_ref().map(|store| take(store, &name, "a", LONG));
    let [_, (_, here)] = &holds;
    let state = tempfile::tempdir().expect("a folder");
    let answer = |inherited: &Server| {
        let mut child = std::process::Command::new(std::env::current_exe().expect("a path"));
        child
            .args(["--exact", "store::what_a_child_is_answered", "--nocapture"])
            .env(ADDRESS, servers[1].address("same").to_string())
            .env("XDG_STATE_HOME", state.path())
            .env(
                "TENURE_HELD",
                format!("{here}={}/x", inherited.address("same")),
            );
        let output = child.output().expect("a child");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let told = said.lines().find(|line| line.starts_with("it is held"));
        told.unwrap_or_else(|| panic!("{said}")).to_owned()
    };
    assert_eq!(answer(&servers[0]), "it is held");
    assert_eq!(answer(&servers[1]), "it is held around us");
}

#[test]
fn a_guard_that_is_cut_off_tells_before_others_get_in() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let locks = LockManager::with_store(caller(&proxy.address("guard")));
    let others = LockManager::with_store(caller(&server.address("guard")));
    let ttl = Duration::from_secs(3);
    let guard = locks.acquire_with("cut-off", &Options::new().ttl(ttl));
    let guard = guard.expect("a free lock");
    assert_eq!(guard.state(), GuardState::Held);
    let (told, got_in) = std::thread::scope(|scope| {
        let told = scope.spawn(|| {
            until("the loss is told", PATIENCE, || guard.is_lost());
            instant()
        });
        proxy.weather(Weather::Parted);
        let patient = Options::new().again(Again::Wait).wait(Wait::For(PATIENCE));
        let next = others.acquire_with("cut-off", &patient);
        let next = next.expect("its lease runs out");
        let got_in = instant();
        drop(next);
        (told.join().expect("it was told"), got_in)
    });
    assert!(
        told <= got_in,
        "told {:?} after another caller got in",
        told.saturating_duration_since(got_in)
    );
    proxy.weather(Weather::Fair);
}

/// A descriptor tells a holder that another caller asks it to stop, or that its lease key ended.
#[test]
fn news_of_a_claim_come_by_a_descriptor() {
    let server = Server::start();
    let address = server.address("notices");
    let (one, two) = (caller(&address), caller(&address));
    let name = name("notices");
    let (handle, _) = take(&one, &name, "one", LONG);
    let notices = one.notices(&*handle).expect("a descriptor");
    let is_ready = |patience: Duration| {
        let mut fds = [PollFd::new(&notices.descriptor, PollFlags::IN)];
        let timeout = Timespec::try_from(patience).expect("a time");
        let ready = poll(&mut fds, Some(&timeout)).expect("a poll") > 0;
        let mut buffer = [0; 64];
        if ready {
            let _ = rustix::io::read(&notices.descriptor, &mut buffer);
        }
        ready
    };
    assert!(
        !is_ready(Duration::from_millis(300)),
        "nothing happened yet"
    );
    two.cancel(&name, "somebody".into(), None, &now())
        .expect("an answer");
    assert!(is_ready(PATIENCE), "it was asked to stop");
    let verified = one.verify(&*handle, &now()).expect("an answer");
    assert!(matches!(
        verified,
        Renewal::Renewed {
            cancel_requested: true,
            ..
        }
    ));
    revoke_all_but(&server, &[]);
    assert!(is_ready(PATIENCE), "its lease key ended");
}

/// A copy of the process made by fork has no connection. Its calls fail at once, and what it does leaves
/// the parent's hold alone.
#[test]
#[allow(unsafe_code, reason = "there is no safe fork, and this is about forks")]
fn a_forked_child_has_nothing_and_takes_nothing() {
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};
    let server = Server::start();
    let address = server.address("forked");
    let store = caller(&address);
    let watcher = caller(&address);
    let name = name("forked");
    let ttl = Duration::from_secs(2);
    let (handle, token) = take(&store, &name, "parent", ttl);
    let (waiter, behind) = line_up(&store, &name, "waiter", ttl);
    // SAFETY: the child calls nothing but the library under test, and ends without handlers; the
    // C library's allocator may be used after a fork.
    match unsafe { fork() }.expect("a fork") {
        ForkResult::Child => {
            let began = instant();
            let mut wrong = 0;
            for answer in [
                store.read(&name, None).err(),
                store.verify(&*handle, &now()).err(),
                store.renew(&*handle, &now()).err(),
                store.release(&*handle, &now()).err(),
                store.enter(&name, request("child", ttl), &now()).err(),
            ] {
                wrong = (wrong << 1) | i32::from(answer.is_none());
            }
            // Nothing will ever wake it, so it must not sleep.
            let end = Some(began + PATIENCE);
            let _ = store.sleep(&*waiter, &behind, &now(), end);
            // A thread of the child's own may get the handle that the connection's thread had.
            let own = std::thread::spawn(|| std::thread::sleep(Duration::from_millis(100)));
            drop((handle, waiter, store));
            if own.join().is_err() {
                wrong |= 32;
            }
            if instant().saturating_duration_since(began) > Duration::from_secs(5) {
                wrong |= 64;
            }
            // SAFETY: nothing of the parent's is to be run at exit.
            unsafe { nix::libc::_exit(wrong) }
        }
        ForkResult::Parent { child } => {
            let end = instant() + PATIENCE;
            let status = loop {
                match waitpid(child, Some(WaitPidFlag::WNOHANG)).expect("a child") {
                    WaitStatus::StillAlive if instant() < end => {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    status => break status,
                }
            };
            if status == WaitStatus::StillAlive {
                nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGKILL).expect("a signal");
                waitpid(child, None).expect("the child's end");
            }
            assert_eq!(
                status,
                WaitStatus::Exited(child, 0),
                "which calls were answered, 32 for a thread that is not to be joined, 64 for too late"
            );
            // Longer than the lease runs without renewals.
            let end = instant() + ttl * 2;
            while instant() < end {
                let held = claims(&watcher, &name);
                assert_eq!(held.len(), 2, "both claims stand: {held:?}");
                assert_eq!(held[0].token, Some(token), "the parent holds");
                let reading = watcher.read(&name, None).expect("an answer");
                let (standing, _) = reading.standing(&watcher.rules().policy, &now());
                assert!(matches!(standing, Standing::Held(_)), "{standing:?}");
                std::thread::sleep(Duration::from_millis(200));
            }
            let left = store.release(&*handle, &now()).expect("an answer");
            assert!(matches!(left, Left::Released { .. }), "{left:?}");
            wait(&store, &waiter, behind, PATIENCE);
        }
    }
}

/// etcd walks over the deleted keys of a range until they are compacted away. So a caller that locks
/// again and again must leave few of them.
#[test]
fn holds_one_after_the_other_are_made_of_the_same_keys() {
    const HOLDS: usize = 20;
    let server = Server::start();
    let store = caller(&server.address("again"));
    let name = name("again");
    let mut tokens = Vec::new();
    for _ in 0..HOLDS {
        let (handle, token) = take(&store, &name, "one", LONG);
        tokens.push(token);
        let left = store.release(&*handle, &now()).expect("an answer");
        assert!(matches!(left, Left::Released { .. }), "{left:?}");
    }
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    // Two at once need two.
    let (held, _) = take(&store, &name, "one", LONG);
    let (waiting, _) = line_up(&store, &name, "two", LONG);
    assert_eq!(claims(&store, &name).len(), 2);
    drop((held, waiting));

    let made = on(&server, async |client| {
        let claims = "/again/locks/again/claims/";
        let watched = WatchCreateRequest {
            key: claims.into(),
            range_end: end_of(claims).into(),
            start_revision: 1,
            filters: vec![FilterType::Nodelete.into()],
        };
        let watched = client.watch([watched]).await;
        let mut stream = watched.expect("a watch");
        let mut made = Vec::new();
        while made.len() < HOLDS + 2 {
            let answer = stream
                .message()
                .await
                .expect("a notice")
                .expect("another notice");
            let keys = answer.events.into_iter().filter_map(|event| event.kv);
            made.extend(keys.map(|pair| pair.key));
        }
        made
    });
    let mut different = made;
    different.sort();
    different.dedup();
    assert_eq!(different.len(), 2, "of {} claims", HOLDS + 2);
}

/// The second hold of a program sees everything that has happened to the lock since its first.
#[test]
fn what_happens_between_two_holds_of_a_program_is_seen() {
    let server = Server::start();
    let (store, other) = (
        caller(&server.address("between")),
        caller(&server.address("between")),
    );
    let holds = |name: &LockName| {
        let reading = store.read(name, None).expect("an answer");
        reading.entry().expect("a list").history.holds
    };

    let held = name("held");
    hold_twice(&store, &held);
    let (theirs, token) = take(&other, &held, "theirs", LONG);
    let (handle, behind) = line_up(&store, &held, "mine", LONG);
    assert_eq!(claims(&store, &held)[0].token, Some(token), "they hold on");
    other.release(&*theirs, &now()).expect("an answer");
    assert!(wait(&store, &handle, behind, Duration::from_secs(20)) > token);
    store.release(&*handle, &now()).expect("an answer");
    assert_eq!(holds(&held), 4, "every hold is counted");

    let waited_for = name("waited-for");
    hold_twice(&store, &waited_for);
    let (handle, _) = take(&store, &waited_for, "mine", LONG);
    let (theirs, behind) = line_up(&other, &waited_for, "theirs", LONG);
    store.release(&*handle, &now()).expect("an answer");
    let (again, _) = line_up(&store, &waited_for, "again", LONG);
    wait(&other, &theirs, behind, Duration::from_secs(20));
    drop((again, theirs));

    let used = name("used");
    hold_twice(&store, &used);
    let (theirs, _) = take(&other, &used, "theirs", LONG);
    other.release(&*theirs, &now()).expect("an answer");
    let (handle, _) = take(&store, &used, "mine", LONG);
    store.release(&*handle, &now()).expect("an answer");
    assert_eq!(holds(&used), 4, "every hold is counted");

    let cleaned = name("cleaned");
    hold_twice(&store, &cleaned);
    let gone = other.clean(&cleaned, &now(), false).expect("an answer");
    assert!(gone.removed, "no claim holds it");
    let (handle, _) = take(&store, &cleaned, "mine", LONG);
    store.release(&*handle, &now()).expect("an answer");
    assert_eq!(holds(&cleaned), 1, "what was remembered was removed");
}

/// A claim that holds beside others may find that one of them has ended meanwhile, and has been counted.
#[test]
fn holds_beside_each_other_are_all_counted() {
    let server = Server::start();
    let (store, other) = (
        caller(&server.address("beside")),
        caller(&server.address("beside")),
    );
    let name = name("beside");
    let share = |store: &EtcdStore, id| {
        let mut request = request(id, LONG);
        request.terms.mode = Mode::Shared;
        let entered = store.enter(&name, request, &now()).expect("an answer");
        assert!(matches!(entered.entering, Entering::Granted { .. }));
        entered.handle.expect("a handle")
    };
    for round in 1..=3 {
        let (one, two) = (share(&store, "one"), share(&other, "two"));
        for (store, handle) in [(&store, &one), (&other, &two)] {
            let left = store.release(&**handle, &now()).expect("an answer");
            assert!(matches!(left, Left::Released { .. }), "{left:?}");
        }
        let reading = store.read(&name, None).expect("an answer");
        let history = reading.entry().expect("a list").history;
        assert_eq!(history.holds, 2 * round);
    }
}

/// A guard's watch belongs to the guard, and ends with it.
#[test]
fn a_guard_that_has_gone_watches_nothing() {
    const HOLDS: u32 = 5;
    let server = Server::start();
    let locks = LockManager::with_store(caller(&server.address("watched")));
    let watchers = || server.metrics()["etcd_debugging_mvcc_watcher_total"];
    for round in 1..=HOLDS {
        let guard = locks.acquire("watched").expect("a free lock");
        until("it is watched", PATIENCE, || watchers() >= 1.0);
        assert!(watchers() <= 4.0, "{} after {round} holds", watchers());
        drop(guard);
    }
    until("nothing is watched any more", PATIENCE, || watchers() < 0.5);
}

/// Nor is the thread that keeps guards woken for it any longer.
#[test]
fn a_guard_that_has_gone_keeps_nobody_busy() {
    // In ticks of 10 ms.
    let busy = || {
        let tasks = std::fs::read_dir("/proc/self/task").expect("this process");
        let renewers = tasks.filter_map(|task| {
            let stat = std::fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
            let (name, rest) = stat.rsplit_once(')')?;
            let numbers: Vec<&str> = rest.split_whitespace().collect();
            let ticks = |field: usize| numbers.get(field)?.parse::<u64>().ok();
            // The fields 14 and 15 of proc(5); these begin with the third.
            name.ends_with("(tenure-renewer").then_some(())?;
            Some(ticks(11)? + ticks(12)?)
        });
        renewers.sum::<u64>()
    };
    let server = Server::start();
    let locks = LockManager::with_store(caller(&server.address("idle")));
    for _ in 0..20 {
        let guard = locks.acquire("idle").expect("a free lock");
        std::thread::sleep(Duration::from_millis(45));
        drop(guard);
    }
    let before = busy();
    std::thread::sleep(Duration::from_secs(1));
    let spent = busy() - before;
    assert!(spent < 20, "{spent} hundredths of a second in one second");
}

/// The end of a thread drops its guards too, and before that the data that a runtime keeps of the
/// thread.
#[test]
fn a_guard_goes_with_its_thread() {
    use std::cell::RefCell;
    std::thread_local! {
        static KEPT: RefCell<Option<tenure::guard::Guard>> = const { RefCell::new(None) };
    }
    let server = Server::start();
    let address = server.address("thread");
    let locks = LockManager::with_store(caller(&address));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Registered before the runtime's own data, and so dropped after it.
            KEPT.with(|kept| *kept.borrow_mut() = None);
            let guard = locks.acquire("thread").expect("a free lock");
            KEPT.with(|kept| *kept.borrow_mut() = Some(guard));
        });
    });
    let (store, name) = (caller(&address), name("thread"));
    until("it is released", PATIENCE, || {
        claims(&store, &name).is_empty()
    });
}

/// A late tombstone whose caller has gone makes a lease key of its name. A caller that uses the name
/// again asks by another one instead of giving up.
#[test]
fn a_name_that_is_taken_by_a_late_burial_is_given_up() {
    let server = Server::start();
    let store = caller(&server.address("late"));
    let name = name("late");
    hold_twice(&store, &name);
    let (handle, _) = take(&store, &name, "one", LONG);
    let lease_key = on(&server, async |client| {
        let lease_keys = "/late/locks/late/lives/";
        let range = RangeRequest::of(lease_keys).with_range(end_of(lease_keys));
        let found = client.get(range).await;
        found.expect("an answer").kvs.remove(0).key
    });
    store.release(&*handle, &now()).expect("an answer");
    on(&server, async |client| {
        client.put(lease_key, "buried").await.expect("an answer");
    });
    let mut request = request("two", LONG);
    request.patience = Patience::AtOnce;
    let began = instant();
    let entered = store.enter(&name, request, &now()).expect("an answer");
    assert!(matches!(entered.entering, Entering::Granted { .. }));
    assert!(instant() - began < Duration::from_secs(3));
}

/// A guard is blocking, and async code still uses and drops it.
#[test]
fn a_guard_in_async_code_is_got_and_dropped() {
    let server = Server::start();
    let address = server.address("async");
    let locks = LockManager::with_store(caller(&address));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        for _ in 0..3 {
            let guard = locks.acquire("async").expect("a free lock");
            assert_eq!(guard.state(), GuardState::Held);
            drop(guard);
            let guard = locks
                .acquire_async("async", &Options::new())
                .await
                .expect("a free lock");
            guard.release().expect("an answer");
        }
    });
    assert!(claims(&caller(&address), &name("async")).is_empty());
}

/// A claim that overrides a hold stands behind the waiters, and holds before them. A waiter must not
/// take the end of the hold before it for its turn.
#[test]
fn a_claim_that_overrides_a_hold_holds_before_those_who_wait() {
    let server = Server::start();
    let address = server.address("ahead");
    let (one, two, three) = (caller(&address), caller(&address), caller(&address));
    for (label, is_alone) in [("alone", true), ("beside", false)] {
        let name = name(label);
        let mut detached = request("detached", LONG);
        detached.kind = Kind::Detached;
        let entered = one.enter(&name, detached, &now()).expect("an answer");
        assert!(matches!(entered.entering, Entering::Granted { .. }));
        let mut waits = request("waits", LONG);
        if !is_alone {
            waits.terms.mode = Mode::Shared;
        }
        let waiter = two.enter(&name, waits, &now()).expect("an answer");
        let Entering::Queued { behind, .. } = waiter.entering else {
            panic!("expected a place in the queue, saw {:?}", waiter.entering);
        };
        let waiter = waiter.handle.expect("a handle");
        let mut forced = request("forced", LONG);
        (forced.force, forced.patience) = (Force::Confirmed, Patience::AtOnce);
        let forced = three.enter(&name, forced, &now()).expect("an answer");
        assert!(matches!(forced.entering, Entering::Granted { .. }));
        let forced = forced.handle.expect("a handle");
        let end = Some(instant() + Duration::from_secs(10));
        let woken = two.sleep(&*waiter, &behind, &now(), end);
        assert_eq!(woken.expect("a sleep"), Wake::Ready, "the hold has ended");
        for look in ["when it is woken", "when it looks by itself"] {
            let looked = two.try_grant(&*waiter, &now()).expect("an answer").grant;
            assert!(
                matches!(looked, TryGrant::Behind(_)),
                "{label}, {look}: {looked:?}"
            );
        }
        assert_eq!(
            claims(&two, &name)
                .iter()
                .filter(|c| c.token.is_some())
                .count(),
            1
        );
        let left = three.release(&*forced, &now()).expect("an answer");
        assert!(matches!(left, Left::Released { .. }), "{left:?}");
        let looked = two.try_grant(&*waiter, &now()).expect("an answer").grant;
        assert!(
            matches!(looked, TryGrant::Granted { .. }),
            "{label}: {looked:?}"
        );
        two.release(&*waiter, &now()).expect("an answer");
        let cleaned = one.clean(&name, &now(), false).expect("an answer");
        assert!(cleaned.removed, "{label}: {cleaned:?}");
    }
    let keys = server.etcdctl(&["get", "--prefix", "--keys-only", "/ahead/"]);
    assert_eq!(
        keys.trim(),
        "/ahead/locks/floor",
        "nothing is left of either lock"
    );
}
