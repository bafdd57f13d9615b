//! Figures, not promises. What does a lock in etcd cost in units of one put? How long does a hand-over
//! take beside `etcdctl lock`? What do a hundred waiters ask of the server? `scripts/bench-etcd` runs it
//! and prints Markdown. Ratios of one run count; absolute times belong to the machine and the day.

use super::api::{Client, Compare, CompareResult, RangeRequest, RequestOp, TxnRequest};
use super::server::Server;
use super::{caller, claims, client, line_up, name, now, request, take, until, wait};
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};
use tenure::guard::{Again, LockManager, Options};
use tenure::store::Verbs;
use tenure_core::{Entering, TryGrant};
use tenure_engine::engine::Wait;
use tenure_os::clock::{Clock, SystemClock, instant};

const TTL: Duration = Duration::from_secs(30);

fn since(then: Instant) -> Duration {
    instant().saturating_duration_since(then)
}

/// Sorted, in milliseconds.
struct Times(Vec<f64>);

impl Times {
    fn of(times: &[Duration]) -> Self {
        let mut times: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        times.sort_by(f64::total_cmp);
        Self(times)
    }

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index among a few hundred"
    )]
    fn at(&self, share: f64) -> f64 {
        self.0[((self.0.len() - 1) as f64 * share).round() as usize]
    }

    fn median(&self) -> f64 {
        self.at(0.5)
    }

    fn row(&self, what: &str, unit: f64) {
        println!(
            "| {what} | {:.2} | {:.2} | {:.2} | {:.2} |",
            self.median(),
            self.at(0.9),
            self.at(0.99),
            self.median() / unit
        );
    }
}

/// How many requests of a method the server answered between two looks.
pub(super) fn handled(
    before: &BTreeMap<String, f64>,
    after: &BTreeMap<String, f64>,
    method: &str,
) -> f64 {
    let of = |seen: &BTreeMap<String, f64>| -> f64 {
        let wanted = format!("grpc_method=\"{method}\"");
        let found = seen.iter().filter(|(name, _)| {
            name.starts_with("grpc_server_handled_total") && name.contains(&wanted)
        });
        found.map(|(_, value)| value).sum()
    };
    of(after) - of(before)
}

fn counted(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>, name: &str) -> f64 {
    let of = |seen: &BTreeMap<String, f64>| seen.get(name).copied().unwrap_or(f64::NAN);
    of(after) - of(before)
}

#[test]
#[ignore = "a measurement: scripts/bench-etcd"]
fn figures() {
    let server = Server::on_disk();
    let told = std::env::var("TENURE_FIGURES_RUNS").ok();
    if let Some(runs) = told.and_then(|runs| runs.parse::<u32>().ok()) {
        // The uncontended lock alone, so often.
        for _ in 0..runs {
            uncontended(&server, "");
        }
        return;
    }
    let put = uncontended(&server, "");
    hand_overs(&server, put);
    crowd(&server, 100, 5);
    many_holds(&server);
    drop(server);
    let slower = Server::on_slower_disk(Duration::from_millis(2));
    uncontended(&slower, ", each write of the disk 2 ms longer");
}

/// Times a put, and a lock with its release, in turns. Returns the median of the put.
fn uncontended(server: &Server, on: &str) -> f64 {
    const ROUNDS: u32 = 500;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    let client = runtime.block_on(client(format!("http://{}", server.endpoint())));
    let store = caller(&server.address("figures"));
    let locks = LockManager::with_store(caller(&server.address("figures")));
    let (name, value) = (name("uncontended"), vec![b'x'; 400]);
    // A program shows its user once.
    let wish = request("one", TTL);
    let clock = SystemClock::new(wish.holder.host.boot_id.as_deref());
    let mut puts = Vec::new();
    let mut gets = Vec::new();
    let (mut bare_locks, mut bares) = (vec![], vec![]);
    let lease = runtime.block_on(client.grant_lease(600));
    let lease = lease.expect("a lease");
    let (mut locked, mut unlocked, mut both, mut guards) = (vec![], vec![], vec![], vec![]);
    for round in 0..ROUNDS + 50 {
        let began = instant();
        let put = client.put("/figures/put", value.clone());
        runtime.block_on(put).expect("a put");
        let put = since(began);
        let began = instant();
        runtime
            .block_on(client.get(RangeRequest::of("/figures/put")))
            .expect("a get");
        let get = since(began);
        let began = instant();
        runtime.block_on(bare_lock(&client, lease, &value));
        let bare_lock = since(began);
        runtime.block_on(bare_unlock(&client));
        let bare = since(began);
        let began = instant();
        let entered = store.enter(&name, wish.clone(), &clock.now());
        let handle = entered.expect("an answer").handle.expect("a free lock");
        let lock = since(began);
        store.release(&*handle, &clock.now()).expect("an answer");
        let whole = since(began);
        drop(handle);
        let began = instant();
        drop(locks.acquire("guarded").expect("a free lock"));
        let guard = since(began);
        // The first ones make connections, leases and keys.
        if round >= 50 {
            puts.push(put);
            gets.push(get);
            bare_locks.push(bare_lock);
            bares.push(bare);
            locked.push(lock);
            unlocked.push(whole.saturating_sub(lock));
            both.push(whole);
            guards.push(guard);
        }
    }
    let puts = Times::of(&puts);
    let unit = puts.median();
    println!("\nUncontended, {ROUNDS} rounds in turns{on}, in ms:\n");
    println!("| | median | p90 | p99 | × one put |\n|---|--:|--:|--:|--:|");
    puts.row("one put of 400 bytes", unit);
    Times::of(&gets).row("one get", unit);
    Times::of(&bare_locks).row("the transaction of a lock, bare client", unit);
    Times::of(&bares).row("those of a lock and an unlock, bare client", unit);
    Times::of(&locked).row("lock", unit);
    Times::of(&unlocked).row("unlock", unit);
    Times::of(&both).row("lock and unlock, store", unit);
    Times::of(&guards).row("lock and unlock, guard", unit);
    unit
}

/// The keys that a lock writes and their conditions, without the rest.
async fn bare_lock(client: &Client, lease: i64, value: &[u8]) {
    let alone = Compare::create_revision("/figures/bare/claims/", CompareResult::Equal, 0);
    let txn = TxnRequest::default()
        .when([alone.with_range("/figures/bare/claims0")])
        .and_then([
            RequestOp::put("/figures/bare/claims/1", value),
            RequestOp::leased("/figures/bare/lives/1", "", lease),
            RequestOp::get(RangeRequest::of("/figures/bare/header")),
        ]);
    assert!(client.txn(txn).await.expect("an answer").succeeded);
}

/// The keys that an unlock writes and their conditions, without the rest.
async fn bare_unlock(client: &Client) {
    let txn = TxnRequest::default().and_then([
        RequestOp::delete("/figures/bare/claims/1"),
        RequestOp::delete("/figures/bare/lives/1"),
        RequestOp::put("/figures/bare/header", "the number of holds and so on"),
    ]);
    client.txn(txn).await.expect("an answer");
}

/// The cost of a lock after many holds of it, none of which etcd has compacted away: for one program
/// that keeps running, and for one that is started anew for each.
fn many_holds(server: &Server) {
    const HOLDS: u32 = 5_000;
    const MEASURED: u32 = 500;
    println!("\nThe median of a lock in ms, after so many holds of the same lock:\n");
    println!("| | {MEASURED} | {HOLDS} |\n|---|--:|--:|");
    for (what, is_anew) in [("by one program", false), ("by a new program each", true)] {
        let name = name(if is_anew { "anew" } else { "again" });
        let mut store = caller(&server.address("holds"));
        let (mut first, mut last) = (vec![], vec![]);
        let wish = request("one", TTL);
        let clock = SystemClock::new(wish.holder.host.boot_id.as_deref());
        for hold in 0..HOLDS {
            if is_anew {
                store = caller(&server.address("holds"));
                // The connection and the lease are not measured.
                let other = super::name("other");
                let (handle, _) = take(&store, &other, "one", TTL);
                store.release(&*handle, &clock.now()).expect("an answer");
            }
            let began = instant();
            let entered = store.enter(&name, wish.clone(), &clock.now());
            let took = since(began);
            let handle = entered.expect("an answer").handle.expect("a free lock");
            store.release(&*handle, &clock.now()).expect("an answer");
            if hold < MEASURED {
                first.push(took);
            }
            if hold >= HOLDS - MEASURED {
                last.push(took);
            }
        }
        let (first, last) = (Times::of(&first).median(), Times::of(&last).median());
        println!("| {what} | {first:.2} | {last:.2} |");
    }
}

/// Two callers that take turns, each with a connection of its own, and the same with etcd's own tool.
fn hand_overs(server: &Server, put: f64) {
    println!("\nHand-over between two that wait in turns, in ms:\n");
    println!("| | median | p90 | p99 | × one put |\n|---|--:|--:|--:|--:|");
    let row = |what: &str, rest| {
        let times = hand_over(server, rest);
        Times::of(&times).row(&format!("guards, {} hand-overs{what}", times.len()), put);
    };
    row("", Duration::from_millis(5));
    row(", who releases lines up again at once", Duration::ZERO);
    etcdctl(server);
}

/// From before the release to after the grant. The releasing caller rests this long before it enters
/// again.
fn hand_over(server: &Server, rest: Duration) -> Vec<Duration> {
    const ROUNDS: usize = 300;
    let released = Mutex::new(None::<Instant>);
    let times = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let locks = LockManager::with_store(caller(&server.address("turns")));
                let options = Options::new().again(Again::Wait).wait(Wait::Forever);
                loop {
                    let guard = locks.acquire_with("turns", &options).expect("a turn");
                    let got = instant();
                    let mut times = times.lock().expect("no panic");
                    if let Some(released) = released.lock().expect("no panic").take() {
                        times.push(got.saturating_duration_since(released));
                    }
                    let is_over = times.len() >= ROUNDS;
                    drop(times);
                    // The other caller stands in the queue by then.
                    std::thread::sleep(Duration::from_millis(8));
                    *released.lock().expect("no panic") = Some(instant());
                    guard.release().expect("a release");
                    if is_over {
                        return;
                    }
                    std::thread::sleep(rest);
                }
            });
        }
    });
    times.into_inner().expect("no panic")
}

/// Times a hand-over with etcd's own tool: from the end of one command to the first moment of the next.
fn etcdctl(server: &Server) {
    const ROUNDS: usize = 15;
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let script = format!(
        "date +%s%N >> {0}; sleep 0.3; date +%s%N >> {0}",
        log.display()
    );
    let children: Vec<_> = (0..=ROUNDS)
        .map(|_| {
            Command::new("etcdctl")
                .env("ETCDCTL_API", "3")
                .args(["--endpoints", &server.endpoint(), "lock", "/etcdctl"])
                .args(["--", "sh", "-c", &script])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("etcdctl")
        })
        .collect();
    for mut child in children {
        child.wait().expect("its end");
    }
    let text = std::fs::read_to_string(&log).expect("the log");
    let stamps: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
    let gaps = stamps[1..].chunks_exact(2);
    let gaps: Vec<Duration> = gaps
        .map(|gap| Duration::from_nanos(gap[1].saturating_sub(gap[0])))
        .collect();
    let times = Times::of(&gaps);
    println!(
        "| `etcdctl lock`, {} hand-overs, with the start of a shell | {:.1} | {:.1} | {:.1} | |",
        gaps.len(),
        times.median(),
        times.at(0.9),
        times.at(0.99)
    );
}

/// Many waiters, each with a connection of its own: what they ask of the server, and in which order they
/// are granted.
fn crowd(server: &Server, waiters: usize, rounds: usize) {
    let name = name("crowd");
    let address = server.address("crowd");
    let gate = caller(&address);
    let (handle, _) = take(&gate, &name, "gate", Duration::from_secs(600));
    let barrier = Barrier::new(waiters + 1);
    let grants = Mutex::new(Vec::new());
    let (mut before, mut after, mut took) = (BTreeMap::new(), BTreeMap::new(), Duration::ZERO);
    let looks = Mutex::new(0_u64);
    std::thread::scope(|scope| {
        for who in 0..waiters {
            let (barrier, grants, address, name, looks) =
                (&barrier, &grants, &address, &name, &looks);
            scope.spawn(move || {
                let store = caller(address);
                let ttl = Duration::from_secs(600);
                let (handle, behind) = line_up(&store, name, &format!("w{who}"), ttl);
                let ticket = handle.ticket();
                barrier.wait();
                let mut waiting = Some((handle, behind, ticket));
                for round in 0..rounds {
                    let (handle, ticket) = if let Some((handle, behind, ticket)) = waiting.take() {
                        wait(&store, &handle, behind, Duration::from_secs(300));
                        (handle, ticket)
                    } else {
                        let request = request(&format!("w{who}-{round}"), ttl);
                        let entered = store.enter(name, request, &now()).expect("an answer");
                        let handle = entered.handle.expect("a handle");
                        let ticket = handle.ticket();
                        let mut behind = match entered.entering {
                            Entering::Queued { behind, .. } => Some(behind),
                            _ => None,
                        };
                        while let Some(before) = behind.take() {
                            let end = Some(instant() + Duration::from_secs(300));
                            store
                                .sleep(&*handle, &before, &now(), end)
                                .expect("a sleep");
                            *looks.lock().expect("no panic") += 1;
                            let looked = store.try_grant(&*handle, &now()).expect("an answer");
                            if let TryGrant::Behind(before) = looked.grant {
                                behind = Some(before);
                            }
                        }
                        (handle, ticket)
                    };
                    grants.lock().expect("no panic").push((instant(), ticket));
                    store.release(&*handle, &now()).expect("an answer");
                }
            });
        }
        barrier.wait();
        until("all wait", Duration::from_secs(60), || {
            claims(&gate, &name).len() == waiters + 1
        });
        before = server.metrics();
        let began = instant();
        gate.release(&*handle, &now()).expect("an answer");
        until("all have had their turns", Duration::from_secs(300), || {
            grants.lock().expect("no panic").len() == waiters * rounds
        });
        took = since(began);
        after = server.metrics();
    });
    let mut grants = grants.into_inner().expect("no panic");
    grants.sort();
    let out_of_turn = grants
        .windows(2)
        .filter(|pair| pair[0].1 > pair[1].1)
        .count();
    let turns = u32::try_from(grants.len()).expect("some hundred");
    let each = |count: f64| count / f64::from(turns);
    let method = |method| each(handled(&before, &after, method));
    println!("\n{waiters} waiters with a connection each, {rounds} turns each:\n");
    println!("| | |\n|---|--:|");
    println!("| hand-overs | {turns} |");
    println!(
        "| hand-overs per second | {:.0} |",
        f64::from(turns) / took.as_secs_f64()
    );
    println!("| out of turn | {out_of_turn} |");
    println!("| reads (Range) per hand-over | {:.2} |", method("Range"));
    println!(
        "| transactions per hand-over | {:.2} |",
        method("TxnRequest")
    );
    println!(
        "| watch streams that ended per hand-over | {:.2} |",
        method("Watch")
    );
    let events = counted(&before, &after, "etcd_debugging_mvcc_events_total");
    println!(
        "| events sent to watchers per hand-over | {:.2} |",
        each(events)
    );
    let sent = counted(&before, &after, "etcd_network_client_grpc_sent_bytes_total");
    println!(
        "| bytes sent by the server per hand-over | {:.0} |",
        each(sent)
    );
}
