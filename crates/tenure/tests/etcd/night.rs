//! A night in the life of a cluster: twelve hosts that speak TLS as a user, one of them with a wrong server in its list.
//!
//! Beside the blows of the ring above, members are restarted in turn and compacted, restored from snapshots, and replaced
//! by a cluster with another id; certificates and the authority are rotated, and the user with its password is replaced.
//! A restore loses what the servers know, so the workers' own journals are the only witness.
//!
//! `TENURE_NIGHT` is how many seconds it lasts; else an hour.

use super::super::server::Tls;
use super::*;
use rustix::process::Signal;
use tenure::store::etcd::{CredentialFiles, accept_cluster};

/// The workers' machines; the last one has the wrong server in its list.
pub(super) const HOSTS: usize = 12;
/// By so much a snapshot has to be older than its restore for tokens to rise: docs/many-machines.md.
const OLD_ENOUGH: Duration = Duration::from_secs(12);
/// Who may do everything.
const ROOT: &str = "root:secret";

/// What a cluster asks of its clients.
pub(super) struct Safety {
    folder: PathBuf,
    addresses: Vec<String>,
    authority: Tls,
    /// The name and the password of the workers.
    pub(super) user: String,
    users: usize,
    has_users: bool,
    /// The list of the last host.
    pub(super) wrong: Option<String>,
}

impl Safety {
    /// `addresses`: of the machines that a server may be on.
    pub(super) fn make(folder: &Path, addresses: impl IntoIterator<Item = String>) -> Self {
        let addresses: Vec<String> = addresses.into_iter().collect();
        let safety = Self {
            folder: folder.to_owned(),
            authority: Tls::at(&addresses),
            addresses,
            user: String::new(),
            users: 0,
            has_users: false,
            wrong: None,
        };
        safety.put("ca.crt", &safety.authority.read("ca.crt"));
        safety.put_pairs();
        safety
    }

    fn put(&self, file: &str, text: &[u8]) {
        let new = self.folder.join("new");
        std::fs::write(&new, text).expect("a file");
        std::fs::rename(new, self.folder.join(file)).expect("a file");
    }

    fn put_pairs(&self) {
        for file in ["server.crt", "server.key", "client.crt", "client.key"] {
            self.put(file, &self.authority.read(file));
        }
    }

    fn path(&self, file: &str) -> String {
        self.folder.join(file).display().to_string()
    }

    pub(super) fn of_a_server(&self) -> Vec<String> {
        [
            ["--trusted-ca-file", &self.path("ca.crt")],
            ["--cert-file", &self.path("server.crt")],
            ["--key-file", &self.path("server.key")],
            ["--client-cert-auth", "--logger=zap"],
        ]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect()
    }

    pub(super) fn of_etcdctl(&self) -> Vec<String> {
        let mut words: Vec<String> = [
            ["--cacert", &self.path("ca.crt")],
            ["--cert", &self.path("client.crt")],
            ["--key", &self.path("client.key")],
        ]
        .concat()
        .into_iter()
        .map(str::to_owned)
        .collect();
        if self.has_users {
            words.extend(["--user".to_owned(), ROOT.to_owned()]);
        }
        words
    }
}

/// What a worker shows; without a user, nothing.
pub(super) fn credentials(folder: &Path, user: &str) -> Credentials {
    let Some((name, password)) = user.split_once(':') else {
        return Credentials::default();
    };
    let file = |name: &str| folder.join(name);
    let read = |name: &str| std::fs::read(file(name)).expect("a file");
    Credentials {
        user: Some((name.to_owned(), password.to_owned())),
        authority: Some(read("ca.crt")),
        certificate: Some((read("client.crt"), read("client.key"))),
        files: CredentialFiles {
            authority: Some(file("ca.crt")),
            certificate: Some((file("client.crt"), file("client.key"))),
        },
    }
}

/// What happens in a night beside the blows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Struck(Blow),
    /// Each member, with a compaction.
    RestartedInTurn,
    /// After the leases from before are over, as the page says.
    RestoredByTheBook,
    /// As soon as the members have ended.
    RestoredInHaste,
    /// From a snapshot, with another id.
    Replaced,
    CertificatesRotated,
    UserReplaced,
}

/// Clocks stay right: after a clock that was ahead, a restore may bring tokens again (docs/many-machines.md).
const EVENTS: [Event; 15] = [
    Event::Struck(Blow::StopAWorker),
    Event::RestoredByTheBook,
    Event::Struck(Blow::KillTheLeader),
    Event::CertificatesRotated,
    Event::Struck(Blow::MuteAWorker),
    Event::RestoredInHaste,
    Event::Struck(Blow::CutOffAWorker),
    Event::UserReplaced,
    Event::Struck(Blow::MuteTheLeader),
    Event::RestartedInTurn,
    Event::Struck(Blow::DeafenAWorker),
    Event::Struck(Blow::SlowDisk),
    Event::Replaced,
    Event::Struck(Blow::KillAWorker),
    Event::Struck(Blow::CutOffTheLeader),
];

impl Cluster {
    fn safety(&mut self) -> &mut Safety {
        self.safety.as_mut().expect("a safe cluster")
    }

    fn must(&self, arguments: &[&str]) -> String {
        let mut said = None;
        until(&format!("{arguments:?}"), Duration::from_secs(30), || {
            said = self.etcdctl(arguments);
            said.is_some()
        });
        said.expect("an answer")
    }

    /// A user of the locks, and nothing else.
    fn add_user(&mut self) {
        self.safety().users += 1;
        let name = format!("worker{}", self.safety().users);
        let user = format!("{name}:password-of-{name}");
        self.must(&["user", "add", &user]);
        self.must(&["user", "grant-role", &name, "worker"]);
        self.safety().user = user;
    }

    fn begin_users(&mut self) {
        self.must(&["user", "add", ROOT]);
        self.must(&["user", "grant-role", "root", "root"]);
        self.must(&["role", "add", "worker"]);
        self.must(&[
            "role",
            "grant-permission",
            "--prefix=true",
            "worker",
            "readwrite",
            "/locks/",
        ]);
        self.add_user();
        self.must(&["auth", "enable"]);
        self.safety().has_users = true;
    }

    /// A server that is none of theirs, with the same users and certificates, and the list that has it in the middle.
    fn wrong_server(&mut self) -> Running {
        let safety = self.safety.as_ref().expect("a safe cluster");
        let machine = self.hosts.last().expect("a machine");
        let client = format!("https://{}:2379", machine.address);
        let child = machine
            .command("etcd")
            .args(safety.of_a_server())
            .args(["--log-level", "error", "--initial-cluster-token", "wrong"])
            .args(["--listen-client-urls", &client])
            .args(["--advertise-client-urls", &client, "--data-dir"])
            .arg(self.folder.path().join("wrong"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let running = Running(child.expect("etcd"));
        let list = self
            .url(0)
            .replacen(',', &format!(",{}:2379,", machine.address), 1);
        let (user, _) = safety.user.split_once(':').expect("a user");
        let endpoint = format!("{}:2379", machine.address);
        for (is_safe, words) in [
            (false, ["user", "add", ROOT].as_slice()),
            (false, &["user", "grant-role", "root", "root"]),
            (false, &["user", "add", &safety.user]),
            (false, &["user", "grant-role", user, "root"]),
            (false, &["auth", "enable"]),
            (true, &["put", "/work/fence", ""]),
        ] {
            until(&format!("{words:?}"), Duration::from_secs(30), || {
                let options = safety.of_etcdctl();
                let skipped = if is_safe { 0 } else { 2 };
                let options = &options[..options.len() - skipped];
                let output = machine
                    .command("etcdctl")
                    .env("ETCDCTL_API", "3")
                    .args(["--command-timeout", "3s", "--endpoints", &endpoint])
                    .args(options)
                    .args(words)
                    .output();
                output.expect("etcdctl").status.success()
            });
        }
        self.safety().wrong = Some(list);
        running
    }

    fn restart_in_turn(&mut self) {
        for index in 0..self.members.len() {
            if let Some(running) = &mut self.members[index].running {
                running.signal(Signal::TERM);
                let _ = running.0.wait();
            }
            self.boot(index);
            let endpoint = format!("{}:2379", self.members[index].machine.address);
            until("a member serves", Duration::from_secs(60), || {
                self.asks(&endpoint, "3s", &["get", "/work/fence"])
                    .status
                    .success()
            });
        }
    }

    fn compact(&self) {
        let said = self.must(&["get", "/work/fence", "-w", "fields"]);
        let revision = said
            .lines()
            .find_map(|line| line.strip_prefix("\"Revision\" : "));
        self.must(&["compact", revision.expect("a revision")]);
        self.must(&["defrag"]);
    }

    /// From a snapshot that holds and waiters of now are not in. Answers when the members had ended.
    fn restore(&mut self, waits: bool, is_other: bool) -> u64 {
        let file = self.folder.path().join("snapshot").display().to_string();
        let endpoint = format!("{}:2379", self.members[0].machine.address);
        until("a snapshot", Duration::from_secs(30), || {
            self.asks(&endpoint, "10s", &["snapshot", "save", &file])
                .status
                .success()
        });
        std::thread::sleep(OLD_ENOUGH);
        for member in &mut self.members {
            member.running = None;
        }
        let ended = shared_ns();
        if waits {
            std::thread::sleep(TTL);
        }
        self.generation += usize::from(is_other);
        let (peers, token) = (self.peers(), self.token());
        for member in &self.members {
            std::fs::remove_dir_all(&member.data).expect("its data");
            let output = Command::new("etcdctl")
                .env("ETCDCTL_API", "3")
                .args(["snapshot", "restore", &file])
                .args(["--name", &format!("m{}", member.number)])
                .args([
                    "--initial-cluster",
                    &peers,
                    "--initial-cluster-token",
                    &token,
                ])
                .arg("--initial-advertise-peer-urls")
                .arg(format!("http://{}:2380", member.machine.address))
                .arg("--data-dir")
                .arg(&member.data)
                .output()
                .expect("etcdctl");
            assert!(output.status.success(), "{output:?}");
        }
        for index in 0..self.members.len() {
            self.boot(index);
        }
        self.serves();
        ended
    }

    /// Each machine accepts the cluster as it is now, as a person does by `tenure allow`.
    fn allow(&self) {
        let said = self.must(&["get", "/work/fence", "-w", "fields"]);
        let id = said
            .lines()
            .find_map(|line| line.strip_prefix("\"ClusterID\" : "));
        let id = id.and_then(|id| id.parse().ok()).expect("an id");
        for host in 0..HOSTS - 1 {
            let address = Address::parse(&self.url(host)).expect("an address");
            let folder = self.state(host).join("tenure").join("servers");
            accept_cluster(&folder, &address, id).expect("a folder");
        }
    }

    fn rotate_certificates(&mut self) {
        let next = Tls::at(&self.safety().addresses);
        let both = [self.safety().authority.read("ca.crt"), next.read("ca.crt")].concat();
        self.safety().put("ca.crt", &both);
        // etcd reads the authority when it starts, and a certificate for each connection.
        self.restart_in_turn();
        self.safety().authority = next;
        self.safety().put_pairs();
        let only = self.safety().authority.read("ca.crt");
        self.safety().put("ca.crt", &only);
        self.restart_in_turn();
    }

    fn replace_the_user(&mut self, workers: &mut [Running]) {
        let old = self.safety().user.clone();
        self.add_user();
        for (host, worker) in workers.iter_mut().enumerate() {
            worker.kill();
            *worker = self.work(host);
        }
        let (name, _) = old.split_once(':').expect("a user");
        self.must(&["user", "delete", name]);
    }
}

#[test]
#[ignore = "an hour by night: TENURE_NIGHT=SECONDS cargo nextest run --profile long --run-ignored only a_cluster_lives_a_night"]
fn a_cluster_lives_a_night() {
    let time = std::env::var("TENURE_NIGHT").ok();
    let time = time.and_then(|time| time.parse().ok()).unwrap_or(3_600);
    let Some(mut cluster) = Cluster::start("night", HOSTS + 1, true) else {
        return;
    };
    cluster.begin_users();
    let _wrong = cluster.wrong_server();
    let mut workers: Vec<Running> = (0..HOSTS).map(|host| cluster.work(host)).collect();
    cluster.works(HOSTS);
    let mut dice = Dice::new(7);
    let began = instant();
    let (mut hasty, mut counts) = (Vec::new(), BTreeMap::new());
    while since(began) < Duration::from_secs(time) {
        for event in EVENTS {
            match event {
                Event::Struck(blow) => strike(&mut cluster, &mut workers, blow, &mut dice),
                Event::RestartedInTurn => {
                    cluster.restart_in_turn();
                    cluster.compact();
                }
                Event::RestoredByTheBook => {
                    cluster.restore(true, false);
                }
                Event::RestoredInHaste => hasty.push(cluster.restore(false, false)),
                Event::Replaced => {
                    cluster.restore(true, true);
                    cluster.allow();
                }
                Event::CertificatesRotated => cluster.rotate_certificates(),
                Event::UserReplaced => cluster.replace_the_user(&mut workers),
            }
            let took = cluster.goes_on(&format!("{event:?}"));
            println!("{:?} {event:?}: held again after {took:.1?}", since(began));
            let (count, longest) = counts.entry(format!("{event:?}")).or_insert((0, took));
            *count += 1;
            *longest = took.max(*longest);
        }
    }
    cluster.ends(&mut workers);
    // The last host may hold in either cluster, until the other one has answered for the first time.
    let (misled, others): (Vec<_>, Vec<_>) = cluster
        .journals()
        .into_iter()
        .partition(|journal| journal.starts_with(&format!("P {}\n", HOSTS - 1)));
    let (misled, story) = (Story::of(&misled), Story::of(&others));
    // Only what a hasty restore forgot may work beside the next holder, until it reaches the servers.
    let (excused, wrong): (Vec<_>, Vec<_>) =
        story.overlaps().into_iter().partition(|(one, other)| {
            let is_over = |ended: &u64| one.from < *ended && *ended < other.from;
            hasty.iter().any(is_over) && Duration::from_nanos(one.to - other.from) < TTL
        });
    println!(
        "{} holds, {} losses told, calls without the lock {:?} ({} and {:?} with a wrong server); overlaps {}, after {} hasty \
         restores {excused:?}; events, and the longest time to the next holds: {counts:#?}",
        story.holds.len(),
        story.told_lost.len(),
        story.failed,
        misled.holds.len(),
        misled.failed,
        wrong.len(),
        hasty.len(),
    );
    assert!(
        wrong.is_empty(),
        "two relied on the lock at once: {wrong:?}"
    );
    assert!(misled.holds.len() < 10, "{} holds", misled.holds.len());
    assert!(misled.failed.contains_key("refused"), "{:?}", misled.failed);
    story.is_sound();
    nobody_is_left(&cluster);
}
