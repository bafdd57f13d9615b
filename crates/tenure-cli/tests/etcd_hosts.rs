//! `tenure` on two machines behaves as two hosts: each is a network namespace with a cable that can be
//! pulled, and a process namespace of its own, so neither sees the other's processes.
//!
//! The test takes root, and is skipped aloud without.
#![cfg(all(feature = "etcd", target_os = "linux"))]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test says what it expects by failing, and what it skips"
)]

#[path = "../../tenure/tests/etcd/net.rs"]
#[allow(dead_code, reason = "the library's tests use the rest of it")]
mod net;

use net::{Machine, Net};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use tenure_os::clock::instant;

const SERVER: &str = "10.89.9.1";

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Site {
    hosts: [Machine; 2],
    folder: tempfile::TempDir,
    _etcd: Running,
    // Last, for what runs on it has to go before.
    _net: Net,
}

impl Site {
    fn start(label: &str) -> Option<Self> {
        let net = Net::new(label).and_then(|mut net| {
            let server = net.machine("server", SERVER)?;
            let hosts = [
                net.machine("left", "10.89.9.11")?,
                net.machine("right", "10.89.9.12")?,
            ];
            Ok((net, server, hosts))
        });
        let (net, server, hosts) = match net {
            Ok(net) => net,
            Err(why) => {
                println!("SKIPPED, nothing is proven about two hosts: {why}");
                return None;
            }
        };
        let folder = tempfile::tempdir().expect("a folder");
        let client = format!("http://{SERVER}:2379");
        let etcd = server
            .command("etcd")
            .args(["--log-level", "error", "--data-dir"])
            .arg(folder.path().join("etcd"))
            .args([
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let site = Self {
            hosts,
            folder,
            _etcd: Running(etcd.expect("etcd")),
            _net: net,
        };
        until("etcd serves", Duration::from_secs(30), || {
            site.tenure(0, &["list"])
                .output()
                .expect("tenure")
                .status
                .success()
        });
        Some(site)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `tenure` on a host: with its own network, processes and name.
    fn tenure(&self, host: usize, words: &[&str]) -> Command {
        let mut command = self.hosts[host].command("unshare");
        command
            .args(["--uts", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .arg(env!("CARGO_BIN_EXE_tenure"))
            .args(["--store", &format!("etcd://{SERVER}/site")])
            .args(words)
            .env_remove("TENURE_STORE")
            .env("HOME", self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self, host: usize, words: &[&str]) -> Output {
        self.tenure(host, words).output().expect("tenure")
    }
}

#[track_caller]
fn until(what: &str, patience: Duration, is_so: impl Fn() -> bool) {
    let end = instant() + patience;
    while !is_so() {
        assert!(instant() < end, "not within {patience:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn numbers(path: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// A host holds the lock and the other is refused, and told from where; the other waits, and comes next.
#[test]
fn a_lock_on_one_host_is_held_on_the_other() {
    let Some(site) = Site::start("held") else {
        return;
    };
    let gate = site.path("gate");
    let script = format!(
        "echo $TENURE_TOKEN >> {0}/tokens; until [ -e {0}/gate ]; do sleep 0.05; done",
        site.folder.path().display()
    );
    let run = ["run", "deploy", "--wait", "30s", "--", "sh", "-c", &script];
    let holder = Running(site.tenure(0, &run).spawn().expect("tenure"));
    let tokens = site.path("tokens");
    until("it holds", Duration::from_secs(20), || {
        numbers(&tokens).len() == 1
    });
    let refused = site.run(1, &["run", "deploy", "-n", "--", "true"]);
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    let check = site.run(1, &["check", "deploy"]);
    assert_eq!(
        check.status.code(),
        Some(4),
        "held on the other host: {check:?}"
    );
    let waiter = Running(site.tenure(1, &run).spawn().expect("tenure"));
    until("it waits", Duration::from_secs(20), || {
        let list = site.run(0, &["check", "deploy", "--output", "json"]);
        let said: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap_or_default();
        let queue = &said["error"]["context"]["queue"];
        queue.as_array().is_some_and(|queue| queue.len() == 1)
    });
    assert_eq!(numbers(&tokens).len(), 1, "it only waits");
    std::fs::write(gate, "").expect("a file");
    for mut run in [holder, waiter] {
        let status = run.0.wait().expect("its end");
        assert!(status.success(), "{status:?}");
    }
    let tokens = numbers(&tokens);
    assert!(matches!(tokens[..], [one, two] if one < two), "{tokens:?}");
    assert!(
        site.run(0, &["check", "deploy"]).status.success(),
        "it is free"
    );
}

/// The holder's cable is pulled: its work has ended before the other host's begins, and it says so.
#[test]
fn a_host_that_is_cut_off_ends_its_work_before_the_other_begins() {
    let Some(site) = Site::start("cut") else {
        return;
    };
    // What is at work writes down when, by a clock that both hosts share.
    let stamps = |name: &str, end: &str| {
        format!(
            "trap 'exit 9' TERM; while :; do date +%s%N >> {}/{name}; {end}; sleep 0.02; done",
            site.folder.path().display()
        )
    };
    let (left, right) = (stamps("left", ":"), stamps("right", "exit 0"));
    let hold = [
        "run", "deploy", "--ttl", "4s", "--grace", "500ms", "--", "sh", "-c", &left,
    ];
    let mut holder = Running(site.tenure(0, &hold).spawn().expect("tenure"));
    until("it is at work", Duration::from_secs(20), || {
        numbers(&site.path("left")).len() > 3
    });
    let wait = ["run", "deploy", "--wait", "60s", "--", "sh", "-c", &right];
    let mut waiter = Running(site.tenure(1, &wait).spawn().expect("tenure"));
    site.hosts[0].unplug();
    let status = waiter.0.wait().expect("its end");
    assert!(status.success(), "the other host gets the lock: {status:?}");
    let (left, right) = (numbers(&site.path("left")), numbers(&site.path("right")));
    let (last, first) = (left.last().expect("work"), right.first().expect("work"));
    assert!(
        last < first,
        "they worked at once for {} ms",
        (last - first) / 1_000_000
    );
    let status = holder.0.wait().expect("its end");
    assert!(
        !status.success(),
        "a hold that was lost is no success: {status:?}"
    );
    site.hosts[0].plug_in();
}

/// Both hosts loop; a folder that only one can make is the witness.
#[test]
fn two_hosts_that_contend_never_work_at_once() {
    const ROUNDS: usize = 8;
    let Some(site) = Site::start("loop") else {
        return;
    };
    let folder = site.folder.path().display();
    let work = format!(
        "mkdir {folder}/busy || echo overlap >> {folder}/wrong
         echo $TENURE_TOKEN >> {folder}/tokens; sleep 0.02; rmdir {folder}/busy"
    );
    std::thread::scope(|scope| {
        for host in [0, 1, 0, 1] {
            let (site, work) = (&site, &work);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let run = ["run", "deploy", "--wait", "60s", "--", "sh", "-c", work];
                    let done = site.run(host, &run);
                    assert!(done.status.success(), "{done:?}");
                }
            });
        }
    });
    assert!(!site.path("wrong").exists(), "two worked at once");
    let tokens = numbers(&site.path("tokens"));
    assert_eq!(tokens.len(), 4 * ROUNDS);
    assert!(tokens.is_sorted(), "tokens rise: {tokens:?}");
}

/// A whole host is killed while it holds: the other waits for the end of its lease, and no longer.
#[test]
fn a_host_that_dies_is_followed_after_its_lease() {
    let Some(site) = Site::start("dies") else {
        return;
    };
    let ready = site.path("ready");
    let script = format!("touch {}; sleep 600", ready.display());
    let hold = ["run", "deploy", "--ttl", "4s", "--", "sh", "-c", &script];
    let holder = Running(site.tenure(0, &hold).spawn().expect("tenure"));
    until("it is at work", Duration::from_secs(20), || ready.exists());
    // With everything in its process namespace, as when the power goes.
    kill_process(Pid::from_child(&holder.0), Signal::KILL).expect("a signal to a child");
    let died = instant();
    let next = site.run(1, &["run", "deploy", "--wait", "60s", "--", "true"]);
    let after = instant().saturating_duration_since(died);
    assert!(next.status.success(), "{next:?}");
    assert!(
        after < Duration::from_secs(20),
        "after {after:?}, with a lease of 4 s"
    );
}
