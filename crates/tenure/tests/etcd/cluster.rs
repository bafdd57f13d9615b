//! A cluster of three, on machines of its own, and workers on others: leaders are killed, cables
//! pulled, workers stopped for longer than their leases and killed, disks made slow, clocks set.
//!
//! The workers add numbers to a set in etcd, under a lock and fenced by its token. This is the set
//! guarded by a lock of the Jepsen analysis of etcd, where a lock alone loses elements. Each worker
//! writes down what it was told, and when it relied on it, by a clock that all of them share. The
//! judgement does not use the lock's own data.
//!
//! `TENURE_ETCD=long` makes it last ten minutes. [`night`] lives in the same cluster.

#[path = "night.rs"]
mod night;

use super::api::{Client, Compare, CompareResult, RangeRequest, RequestOp, Response, TxnRequest};
use super::net::{Machine, Net};
use super::proxy::Dice;
use super::{is_long, until};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tenure::guard::{Guard, LockManager, Options};
use tenure::store::etcd::{Address, Credentials};
use tenure_engine::engine::Wait;
use tenure_os::clock::{Clock, SystemClock, instant};
use tenure_os::process::Identity;
use tonic::transport::Endpoint;

const TTL: Duration = Duration::from_secs(3);
const LOCK: &str = "set";
/// How long a worker waits for the lock.
const PATIENCE: Duration = Duration::from_secs(20);
/// Tells a worker what to do: its number, its servers and its folder.
const TASK: &str = "TENURE_ETCD_WORKER";

/// While there is such a file in the folder, a worker keeps the lock until it is told that it is lost.
const STAY: &str = "stay";

/// The clock that all processes of this machine share, in nanoseconds. It also serves those in a time
/// namespace, whose boot clock differs.
fn shared_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    u64::try_from(now.tv_sec).expect("after 1970") * 1_000_000_000
        + u64::try_from(now.tv_nsec).expect("no more than a second")
}

/// A worker's loop until it is told to stop or killed.
#[test]
#[ignore = "a worker of the cluster's tests, which start it themselves"]
fn worker() {
    let Ok(task) = std::env::var(TASK) else {
        return;
    };
    let mut parts = task.split('|');
    let mut part = || parts.next().expect("a whole task").to_owned();
    let (number, url, folder, user) = (part(), part(), PathBuf::from(part()), part());
    let address = Address::parse(&url).expect("an address");
    let credentials = night::credentials(&folder, &user);
    let locks = LockManager::etcd(&address, &credentials).expect("a manager");
    let journal = folder.join(format!("worker-{number}-{}", std::process::id()));
    let mut journal = Journal::new(&journal, &number);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    let hosts: Vec<String> = address
        .servers()
        .iter()
        .map(|host| format!("http://{host}"))
        .collect();
    let mut dice = Dice::new(u64::from(std::process::id()));
    let in_line = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&in_line);
    let options = Options::new()
        .ttl(TTL)
        .wait(Wait::For(PATIENCE))
        .on_wait(move |_, _| told.store(true, Ordering::Relaxed));
    let mut element = 0;
    while !folder.join("stop").exists() {
        let began = instant();
        in_line.store(false, Ordering::Relaxed);
        let guard = match locks.acquire_with(LOCK, &options) {
            Ok(guard) => guard,
            Err(error) => {
                // Whoever stood in line leaves it at the timeout, in an outage with the servers' fault, and for
                // another cluster.
                let is_over = since(began) + Duration::from_millis(500) >= PATIENCE;
                let said = error.to_string();
                let why = match in_line.load(Ordering::Relaxed) {
                    _ if said.contains("of etcd cluster") => "refused",
                    _ if is_over => "over",
                    true => "lost",
                    false => "unreached",
                };
                journal.say(&format!("F {why} {said}"));
                // Each new connection of a user makes a server work for a tenth of a second.
                let pause = if user.is_empty() { 50 } else { 5_000 };
                std::thread::sleep(Duration::from_millis(pause));
                continue;
            }
        };
        element += 1;
        let own = format!("{number}.{}.{element}", std::process::id());
        journal.relies(&guard);
        let machine = Identity::current().host.boot_id.unwrap_or_default();
        let wall_us = SystemClock::new(None).now().wall_us;
        let ahead = wall_us.cast_signed() - (shared_ns() / 1_000).cast_signed();
        journal.say(&format!("C {} {machine}", ahead / 1_000_000));
        // What the servers lose in a restore is no set to look at afterwards.
        if user.is_empty() {
            let some = usize::try_from(dice.below(hosts.len() as u64)).expect("small");
            let added = runtime.block_on(async {
                let adding = add(&hosts[some], guard.token(), &own);
                tokio::time::timeout(Duration::from_secs(2), adding).await
            });
            let added = match added {
                Ok(Ok(true)) => "added",
                Ok(Ok(false)) => "fenced",
                // The element may have been written, and the judge cannot know either.
                Ok(Err(_)) | Err(_) => "unknown",
            };
            journal.say(&format!("A {own} {added}"));
        }
        let end = instant() + Duration::from_millis(dice.below(60));
        while (instant() < end || folder.join(STAY).exists()) && journal.relies(&guard) {
            std::thread::sleep(Duration::from_millis(2));
        }
        journal.relies(&guard);
        let token = guard.token();
        let ended = match guard.release() {
            Ok(()) => "released".to_owned(),
            Err(error) => error.to_string(),
        };
        journal.say(&format!("E {token} {ended}"));
    }
}

/// What a worker writes down.
struct Journal(std::fs::File);

impl Journal {
    fn new(path: &Path, number: &str) -> Self {
        let file = std::fs::File::create(path).expect("a journal");
        let mut journal = Self(file);
        journal.say(&format!("P {number}"));
        journal
    }

    fn say(&mut self, line: &str) {
        let line = format!("{}\n", line.replace('\n', " "));
        self.0.write_all(line.as_bytes()).expect("a journal");
    }

    /// Writes down that the worker relies on the lock, unless the guard says that it is lost. The
    /// instant is one before the guard was asked.
    fn relies(&mut self, guard: &Guard) -> bool {
        let at = shared_ns();
        if guard.is_lost() {
            self.say(&format!("L {} {at}", guard.token()));
            return false;
        }
        self.say(&format!("R {} {at}", guard.token()));
        true
    }
}

/// Reads the set and writes it with one more element, both with the token as a condition. A reader shows
/// its token too, so that no older holder writes after that.
async fn add(host: &str, token: u64, element: &str) -> Result<bool, Box<dyn std::error::Error>> {
    // Of a fixed length, so that etcd's order of bytes is the order of the numbers.
    let (own, next) = (format!("{token:020}"), format!("{:020}", token + 1));
    let channel = Endpoint::from_shared(host.to_owned())?;
    let client = Client::new(channel.connect().await?, None, false, None).await?;
    let not_older = Compare::value("/work/fence", CompareResult::Less, next);
    let raise = TxnRequest::default().when([not_older]).and_then([
        RequestOp::put("/work/fence", own.clone()),
        RequestOp::get(RangeRequest::of("/work/set")),
    ]);
    let raised = client.txn(raise).await?;
    if !raised.succeeded {
        return Ok(false);
    }
    let mut set = String::new();
    for step in &raised.responses {
        if let Some(Response::ResponseRange(found)) = &step.response
            && let Some(pair) = found.kvs.first()
        {
            str::from_utf8(&pair.value)?.clone_into(&mut set);
        }
    }
    let _ = write!(set, "{element} ");
    let is_mine = Compare::value("/work/fence", CompareResult::Equal, own);
    let write = TxnRequest::default()
        .when([is_mine])
        .and_then([RequestOp::put("/work/set", set)]);
    Ok(client.txn(write).await?.succeeded)
}

/// A process that ends with the test.
struct Running(Child);

impl Running {
    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.0);
        let _ = kill_process(pid, signal);
    }

    fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.signal(Signal::CONT);
        self.kill();
    }
}

struct Member {
    machine: Machine,
    number: usize,
    data: PathBuf,
    running: Option<Running>,
}

/// Three members and machines for workers.
struct Cluster {
    members: Vec<Member>,
    hosts: Vec<Machine>,
    folder: tempfile::TempDir,
    /// Certificates and users, if it asks for them.
    safety: Option<night::Safety>,
    /// What made its id.
    generation: usize,
    // Last, because the processes on it have to end first.
    _net: Net,
}

impl Cluster {
    /// `None` where the cluster cannot be had; a message says so.
    fn start(label: &str, hosts: usize, is_safe: bool) -> Option<Self> {
        let net = Net::new(label).and_then(|mut net| {
            let mut machines = |label: &str, count: usize, last: usize| {
                let numbers = 1..=count;
                let machines = numbers.map(|number| {
                    let address = format!("10.89.7.{}", last + number);
                    net.machine(&format!("{label}{number}"), &address)
                });
                machines.collect::<Result<Vec<_>, _>>()
            };
            let (members, hosts) = (machines("member", 3, 0)?, machines("host", hosts, 10)?);
            Ok((net, members, hosts))
        });
        let (net, machines, hosts) = match net {
            Ok(net) => net,
            Err(why) => {
                println!("SKIPPED, nothing is proven about clusters: {why}");
                return None;
            }
        };
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        let folder = folder.expect("a folder");
        let addresses = machines.iter().chain(&hosts);
        let addresses = addresses.map(|machine| machine.address.clone());
        let safety = is_safe.then(|| night::Safety::make(folder.path(), addresses));
        let members = machines
            .into_iter()
            .enumerate()
            .map(|(index, machine)| Member {
                data: folder.path().join(format!("member-{index}")),
                machine,
                number: index + 1,
                running: None,
            });
        let mut cluster = Self {
            members: members.collect(),
            hosts,
            safety,
            generation: 1,
            folder,
            _net: net,
        };
        for index in 0..3 {
            cluster.boot(index);
        }
        cluster.serves();
        Some(cluster)
    }

    fn serves(&self) {
        // On a busy machine a restored cluster proves passwords of all workers before it answers this one.
        until("the cluster serves", Duration::from_secs(300), || {
            // For a key that does not exist, etcd compares no value.
            self.etcdctl(&["put", "/work/fence", &format!("{:020}", 0)])
                .is_some()
        });
    }

    fn peers(&self) -> String {
        let peers = self.members.iter().map(|member| {
            let number = member.number;
            format!("m{number}=http://{}:2380", member.machine.address)
        });
        peers.collect::<Vec<_>>().join(",")
    }

    fn token(&self) -> String {
        format!("generation-{}", self.generation)
    }

    fn boot(&mut self, index: usize) {
        let (peers, token) = (self.peers(), self.token());
        let safe = self.safety.as_ref().map(night::Safety::of_a_server);
        let scheme = safe.as_ref().map_or("http", |_| "https");
        let member = &mut self.members[index];
        let at = |port: u16| format!("http://{}:{port}", member.machine.address);
        let client = format!("{scheme}://{}:2379", member.machine.address);
        let child = member
            .machine
            .command("etcd")
            .args(safe.unwrap_or_default())
            .args(["--initial-cluster-token", &token])
            .args([
                "--name",
                &format!("m{}", member.number),
                "--log-level",
                "error",
            ])
            .arg("--data-dir")
            .arg(&member.data)
            .args([
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
            ])
            .args([
                "--listen-peer-urls",
                &at(2380),
                "--initial-advertise-peer-urls",
                &at(2380),
            ])
            .args(["--initial-cluster", &peers])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        member.running = Some(Running(child.expect("etcd")));
    }

    fn member_addresses(&self) -> Vec<String> {
        let members = self.members.iter();
        members
            .map(|member| member.machine.address.clone())
            .collect()
    }

    fn machines_of_members(&self, each: impl Fn(&Machine)) {
        self.members.iter().for_each(|member| each(&member.machine));
    }

    fn endpoints(&self) -> String {
        let hosts = self.members.iter();
        let hosts = hosts.map(|member| format!("{}:2379", member.machine.address));
        hosts.collect::<Vec<_>>().join(",")
    }

    /// The output of etcdctl on a worker's machine; empty if it fails.
    fn etcdctl(&self, arguments: &[&str]) -> Option<String> {
        let output = self.asks(&self.endpoints(), "3s", arguments);
        (output.status.success()).then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn asks(&self, endpoints: &str, patience: &str, arguments: &[&str]) -> Output {
        let safe = self.safety.as_ref().map(night::Safety::of_etcdctl);
        let output = self.hosts[0]
            .command("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--command-timeout", patience, "--endpoints", endpoints])
            .args(safe.unwrap_or_default())
            .args(arguments)
            .output();
        output.expect("etcdctl")
    }

    /// The member that leads.
    fn leader(&self) -> Option<usize> {
        (0..3).find(|index| {
            let endpoint = format!("{}:2379", self.members[*index].machine.address);
            let said = self.asks(&endpoint, "1s", &["endpoint", "status", "-w", "simple"]);
            let said = said.stdout;
            let said = String::from_utf8_lossy(&said).into_owned();
            said.split(", ").nth(4) == Some("true")
        })
    }

    /// The address of the locks for a worker on a machine; each worker asks another member first.
    fn url(&self, host: usize) -> String {
        let wrong = self.safety.as_ref().and_then(|safety| safety.wrong.clone());
        if let Some(list) = wrong.filter(|_| host + 1 == night::HOSTS) {
            return list;
        }
        let mut endpoints: Vec<String> = self.endpoints().split(',').map(str::to_owned).collect();
        if host % 6 > 2 {
            endpoints.reverse();
        }
        endpoints.rotate_left(host % 3);
        let scheme = self.safety.as_ref().map_or("etcd", |_| "etcds");
        format!("{scheme}://{}/locks", endpoints.join(","))
    }

    /// A worker on a machine. The second machine was booted by itself, so for the others its records
    /// count by their wall clock. The third one has another boot clock under the same boot id.
    fn work(&self, host: usize) -> Running {
        let url = self.url(host);
        let own = std::env::current_exe().expect("this program");
        let own = own.to_str().expect("its path");
        let machine = &self.hosts[host];
        let mut command = if host == 1 {
            let boot_id = self.folder.path().join("boot-id");
            std::fs::write(&boot_id, "1b7d1a52-05b6-4a62-9a5f-5f0a6f1c0e11\n").expect("a file");
            let mut command = machine.command("sh");
            let mount = r#"mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@""#;
            command.args(["-c", mount]).arg(boot_id).arg(own);
            command
        } else if host == 2 && has_time_namespaces() {
            let mut command = machine.command("unshare");
            command.args(["--time", "--monotonic", "86400", "--boottime", "86400", own]);
            command
        } else {
            machine.command(own)
        };
        command.env("XDG_STATE_HOME", self.state(host));
        #[cfg(feature = "testing-clock")]
        command.env(tenure_os::clock::stepped::STEPS, self.clock(host));
        let user = self.safety.as_ref().map_or("", |safety| &safety.user);
        let task = format!("{host}|{url}|{}|{user}", self.folder.path().display());
        let child = command
            .args(["--exact", "cluster::worker", "--ignored", "--nocapture"])
            .env(TASK, task)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Running(child.expect("a worker"))
    }

    /// What a machine remembers.
    fn state(&self, host: usize) -> PathBuf {
        self.folder.path().join(format!("state-{host}"))
    }

    /// The file that says how a machine's wall clock is set.
    #[cfg(feature = "testing-clock")]
    fn clock(&self, host: usize) -> PathBuf {
        self.folder.path().join(format!("clock-{host}"))
    }

    /// Sets a machine's wall clock this many seconds ahead of the true time, or behind.
    #[cfg(feature = "testing-clock")]
    fn set_clock(&self, host: usize, seconds: i64) {
        let stepped = tenure_os::clock::stepped::set(&self.clock(host), seconds * 1_000_000);
        stepped.expect("a clock that can be set");
    }

    fn journals(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.folder.path()).expect("the folder");
        let files = files.map(|file| file.expect("a file").path());
        let files = files.filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with("worker-"))
        });
        files
            .map(|path| std::fs::read_to_string(path).expect("a journal"))
            .collect()
    }

    /// Until workers on this many machines work.
    fn works(&self, machines: usize) {
        until("every worker works", Duration::from_secs(60), || {
            self.journals().len() >= machines && self.holds() > 5
        });
    }

    /// Until there are new holds. Answers how long it took.
    fn goes_on(&self, after: &str) -> Duration {
        let (struck, before) = (instant(), self.holds());
        while self.holds() <= before + 2 {
            if since(struck) > Duration::from_secs(60) {
                let journals = self.journals();
                let last = journals.iter().filter_map(|journal| journal.lines().last());
                let last: Vec<_> = last.collect();
                panic!("no worker holds after {after}: {last:#?}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        since(struck)
    }

    /// Tells the workers to stop, and waits for them.
    fn ends(&self, workers: &mut [Running]) {
        std::fs::write(self.folder.path().join("stop"), "").expect("a file");
        for worker in workers {
            let end = instant() + Duration::from_secs(60);
            while worker.0.try_wait().expect("a child").is_none() {
                assert!(instant() < end, "a worker is stuck");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    /// How many holds there were so far.
    fn holds(&self) -> usize {
        let journals = self.journals();
        let lines = journals.iter().flat_map(|journal| journal.lines());
        lines.filter(|line| line.starts_with("E ")).count()
    }
}

/// A process with a clock of its own is a grandchild: only the children of `unshare --time` are in the
/// new namespace, and the program that it becomes is not.
fn has_time_namespaces() -> bool {
    Path::new("/proc/self/ns/time_for_children").exists()
        && Command::new("unshare")
            .args(["--time", "--boottime", "5", "true"])
            .status()
            .is_ok_and(|status| status.success())
}

/// What the test does to the cluster or its workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blow {
    KillTheLeader,
    CutOffAWorker,
    CutOffTheLeader,
    /// What a worker sends is lost.
    MuteAWorker,
    /// What is sent to a worker is lost.
    DeafenAWorker,
    /// What the leader sends to other members is lost.
    MuteTheLeader,
    StopAWorker,
    KillAWorker,
    SlowDisk,
    #[cfg(feature = "testing-clock")]
    SetTheClocks,
}

const BLOWS: &[Blow] = &[
    Blow::StopAWorker,
    Blow::KillTheLeader,
    #[cfg(feature = "testing-clock")]
    Blow::SetTheClocks,
    Blow::CutOffAWorker,
    Blow::SlowDisk,
    Blow::KillAWorker,
    Blow::CutOffTheLeader,
    Blow::MuteTheLeader,
    Blow::MuteAWorker,
    Blow::DeafenAWorker,
];

/// How many of them every build tries.
const SHORT: usize = if cfg!(feature = "testing-clock") {
    7
} else {
    6
};

/// By how many seconds a clock is set: less than a ttl, an hour, a year, and back to the true time.
#[cfg(feature = "testing-clock")]
const STEPS: [i64; 7] = [-31_536_000, -3_600, -2, 0, 2, 3_600, 31_536_000];

/// The worker that holds the lock now, if the last line of a journal says so.
fn holder(cluster: &Cluster) -> Option<usize> {
    let seen = cluster.journals();
    let last = seen.iter().filter_map(|journal| {
        let host = journal
            .lines()
            .next()?
            .strip_prefix("P ")?
            .parse::<usize>()
            .ok()?;
        let line = journal.lines().last()?;
        let at: u64 = line.strip_prefix("R ")?.split(' ').nth(1)?.parse().ok()?;
        Some((at, host))
    });
    last.max().map(|(_, host)| host)
}

/// Hits the worker that holds the lock, in the middle of its work, for longer than its lease: so it is told of the loss.
fn hit_the_holder(cluster: &Cluster, hit: impl FnOnce(usize), undo: impl FnOnce(usize)) {
    let stay = cluster.folder.path().join(STAY);
    std::fs::write(&stay, "").expect("a file");
    let mut stays = None;
    until("a worker stays", Duration::from_secs(60), || {
        stays = holder(cluster);
        // Longer than a release takes that was under way.
        std::thread::sleep(Duration::from_millis(500));
        stays.is_some() && holder(cluster) == stays
    });
    let victim = stays.expect("a holder");
    hit(victim);
    std::thread::sleep(TTL * 2);
    undo(victim);
    #[allow(clippy::disallowed_methods, reason = "it is the test's own file")]
    std::fs::remove_file(&stay).expect("its end");
}

fn strike(cluster: &mut Cluster, workers: &mut [Running], blow: Blow, dice: &mut Dice) {
    let mut some_of = |count: usize| usize::try_from(dice.below(count as u64)).expect("small");
    let some = some_of(3);
    let victim = holder(cluster).unwrap_or(some);
    let pause = |time: Duration| std::thread::sleep(time);
    match blow {
        Blow::KillTheLeader => {
            let leader = cluster.leader().unwrap_or(some);
            if let Some(running) = &mut cluster.members[leader].running {
                running.kill();
            }
            pause(Duration::from_secs(3));
            cluster.boot(leader);
        }
        Blow::CutOffAWorker => hit_the_holder(
            cluster,
            |host| cluster.hosts[host].unplug(),
            |host| cluster.hosts[host].plug_in(),
        ),
        Blow::CutOffTheLeader => {
            let leader = cluster.leader().unwrap_or(some);
            cluster.members[leader].machine.unplug();
            pause(TTL * 2);
            cluster.members[leader].machine.plug_in();
        }
        Blow::MuteAWorker => hit_the_holder(
            cluster,
            |host| cluster.hosts[host].loses(&cluster.member_addresses()),
            |host| cluster.hosts[host].loses_nothing(&cluster.member_addresses()),
        ),
        Blow::DeafenAWorker => hit_the_holder(
            cluster,
            |host| {
                let address = [cluster.hosts[host].address.clone()];
                cluster.machines_of_members(|member| member.loses(&address));
            },
            |host| {
                let address = [cluster.hosts[host].address.clone()];
                cluster.machines_of_members(|member| member.loses_nothing(&address));
            },
        ),
        Blow::MuteTheLeader => {
            let leader = &cluster.members[cluster.leader().unwrap_or(some)].machine;
            let mut others = cluster.member_addresses();
            others.retain(|address| *address != leader.address);
            leader.loses(&others);
            pause(TTL * 2);
            leader.loses_nothing(&others);
        }
        Blow::StopAWorker => hit_the_holder(
            cluster,
            |host| workers[host].signal(Signal::STOP),
            |host| workers[host].signal(Signal::CONT),
        ),
        Blow::KillAWorker => {
            workers[victim].kill();
            workers[victim] = cluster.work(victim);
        }
        Blow::SlowDisk => {
            let running = cluster.members[some].running.as_ref().expect("a member");
            // In microseconds.
            let strace = Command::new("strace")
                .args(["-f", "-q", "-o", "/dev/null", "-e", "trace=fdatasync"])
                .args(["-e", "inject=fdatasync:delay_enter=400000"])
                .args(["-p", &running.0.id().to_string()])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            let mut strace = Running(strace.expect("strace, which scripts/install-tools gets"));
            pause(Duration::from_secs(4));
            // strace releases what it traces, and ends.
            strace.signal(Signal::TERM);
            let _ = strace.0.wait();
        }
        #[cfg(feature = "testing-clock")]
        Blow::SetTheClocks => {
            // Regardless of which worker holds or waits at that moment; each machine by itself. The
            // clocks stay as they were set last.
            for _ in 0..12 {
                let host = some_of(cluster.hosts.len());
                cluster.set_clock(host, STEPS[some_of(STEPS.len())]);
                pause(Duration::from_millis(150));
            }
        }
    }
}

/// A hold as its worker wrote it down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Relied {
    from: u64,
    to: u64,
    token: u64,
}

#[test]
fn a_cluster_that_is_beaten_loses_nothing() {
    let Some(mut cluster) = Cluster::start("beaten", 3, false) else {
        return;
    };
    let mut workers: Vec<Running> = (0..3).map(|host| cluster.work(host)).collect();
    cluster.works(3);
    let began = instant();
    let time = Duration::from_secs(if is_long() { 600 } else { 0 });
    let mut dice = Dice::new(5);
    let mut recoveries: Vec<(Blow, Duration)> = Vec::new();
    loop {
        for &blow in BLOWS
            .iter()
            .take(if is_long() { BLOWS.len() } else { SHORT })
        {
            strike(&mut cluster, &mut workers, blow, &mut dice);
            recoveries.push((blow, cluster.goes_on(&format!("{blow:?}"))));
        }
        if since(began) >= time {
            break;
        }
    }
    cluster.ends(&mut workers);
    judge(&cluster, &recoveries);
}

fn since(then: Instant) -> Duration {
    instant().saturating_duration_since(then)
}

/// What the workers wrote down.
#[derive(Default)]
struct Story {
    /// In the order in which they began.
    holds: Vec<Relied>,
    /// The one that the lines of a journal are about. Tokens are what is judged, so none says which hold it is.
    current: Option<usize>,
    told_lost: BTreeSet<String>,
    added: Vec<String>,
    fenced: usize,
    unknown: usize,
    /// The calls without the lock: why, and how many.
    failed: BTreeMap<String, usize>,
    /// What the waiters were told that left the line before their time was over.
    lost_waiters: Vec<String>,
    by_wrong_clocks: usize,
    boots: BTreeSet<String>,
}

impl Story {
    fn of(journals: &[String]) -> Self {
        let mut story = Self::default();
        for line in journals.iter().flat_map(|journal| journal.lines()) {
            story.read(line);
        }
        story.holds.sort_unstable();
        story
    }

    fn read(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["R", token, at] => {
                // The last line of a killed worker may be incomplete.
                let (Ok(token), Ok(at)) = (token.parse(), at.parse()) else {
                    return;
                };
                let current = self.current.and_then(|index| self.holds.get_mut(index));
                if let Some(hold) = current.filter(|hold| hold.token == token) {
                    hold.to = at;
                } else {
                    self.current = Some(self.holds.len());
                    self.holds.push(Relied {
                        from: at,
                        to: at,
                        token,
                    });
                }
            }
            ["P" | "E", ..] => self.current = None,
            ["L", token, _] => {
                self.told_lost.insert((*token).to_owned());
            }
            ["A", element, "added"] => self.added.push((*element).to_owned()),
            ["A", _, "fenced"] => self.fenced += 1,
            ["A", _, "unknown"] => self.unknown += 1,
            ["F", why, ..] => {
                *self.failed.entry((*why).to_owned()).or_default() += 1;
                if *why == "lost" {
                    self.lost_waiters.push(line.to_owned());
                }
            }
            ["C", ahead, boot] => {
                self.boots.insert((*boot).to_owned());
                self.by_wrong_clocks += usize::from(*ahead != "0");
            }
            _ => {}
        }
    }

    /// Each hold with the next one.
    fn pairs(&self) -> impl Iterator<Item = (&Relied, &Relied)> {
        self.holds.iter().zip(self.holds.iter().skip(1))
    }

    fn overlaps(&self) -> Vec<(&Relied, &Relied)> {
        self.pairs()
            .filter(|(one, other)| one.to > other.from)
            .collect()
    }

    /// What holds for every cluster.
    fn is_sound(&self) {
        assert!(
            !self.told_lost.is_empty(),
            "no worker lost the lock, so nothing is proven of losses"
        );
        let falls: Vec<_> = self
            .pairs()
            .filter(|(one, other)| one.token >= other.token)
            .collect();
        let some: Vec<_> = self.lost_waiters.iter().take(3).collect();
        assert!(some.is_empty(), "waiters whose time was not over: {some:?}");
        let some: Vec<_> = falls.iter().take(3).collect();
        assert!(some.is_empty(), "tokens that did not rise: {some:?}");
    }
}

fn judge(cluster: &Cluster, recoveries: &[(Blow, Duration)]) {
    let story = Story::of(&cluster.journals());
    let mut set = None;
    // The last blow may have been a moment ago.
    until("the cluster serves again", Duration::from_secs(60), || {
        set = cluster.etcdctl(&["get", "/work/set", "--print-value-only"]);
        set.is_some()
    });
    let set = set.expect("it serves");
    let set: BTreeSet<&str> = set.split_whitespace().collect();
    let lost = story.added.iter().filter(|own| !set.contains(own.as_str()));
    let lost: Vec<&String> = lost.collect();
    let overlaps = story.overlaps();
    println!(
        "{} holds, {} of them by a clock that was set wrong, {} elements added, {} fenced off, {} of unknown fate, calls \
         without the lock {:?}, {} losses told; overlaps {}, elements lost {}",
        story.holds.len(),
        story.by_wrong_clocks,
        story.added.len(),
        story.fenced,
        story.unknown,
        story.failed,
        story.told_lost.len(),
        overlaps.len(),
        lost.len(),
    );
    for (blow, recovery) in recoveries {
        println!(
            "{blow:?}: held again {:.1} s after it was over",
            recovery.as_secs_f64()
        );
    }
    assert!(story.added.len() > 10, "hardly anything was done");
    let boots = &story.boots;
    assert_eq!(boots.len(), 2, "machines by what booted them: {boots:?}");
    if cfg!(feature = "testing-clock") {
        assert!(story.by_wrong_clocks > 0, "no clock was set");
    }
    assert!(
        overlaps.is_empty(),
        "two relied on the lock at once: {overlaps:?}"
    );
    assert!(
        lost.is_empty(),
        "elements that were added are lost: {lost:?}"
    );
    story.is_sound();
    nobody_is_left(cluster);
}

/// Nothing that a dead worker leaves behind blocks the others for longer than a lease.
fn nobody_is_left(cluster: &Cluster) {
    let end = instant() + TTL * 4;
    let lease_keys = ["get", "/locks/locks/set/lives/", "--prefix", "--keys-only"];
    loop {
        let left = cluster
            .etcdctl(&lease_keys)
            .unwrap_or_else(|| "no answer".to_owned());
        if left.trim().is_empty() {
            break;
        }
        let everything = cluster.etcdctl(&["get", "/locks/", "--prefix", "-w", "fields"]);
        assert!(
            instant() < end,
            "a dead worker seems to live: {left}\n{everything:?}"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}
