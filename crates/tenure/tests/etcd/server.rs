//! etcd servers on loopback, started by the test that needs them and ended with it.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tenure::clock::instant;
use tenure::store::etcd::Address;

/// One member of a cluster of one.
pub(crate) struct Server {
    child: Child,
    folder: tempfile::TempDir,
    port: u16,
    peer: u16,
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("its number").port()
}

/// A folder in memory where there is one: these tests are not about the disk, and a busy one takes
/// seconds for a write.
fn folder() -> tempfile::TempDir {
    let made = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    made.expect("a folder")
}

/// The program, which Debian's `etcd-server` brings (`scripts/install-tools`).
fn program() -> PathBuf {
    let found = std::env::var_os("PATH")
        .and_then(|path| {
            let mut folders = std::env::split_paths(&path);
            folders.find(|folder| folder.join("etcd").is_file())
        })
        .map(|folder| folder.join("etcd"));
    found.expect("etcd is not installed; scripts/install-tools gets it")
}

impl Server {
    pub(crate) fn start() -> Self {
        // Somebody else may take a port between our look and etcd's; then etcd says so and ends.
        for _ in 0..5 {
            let folder = folder();
            let (port, peer) = (free_port(), free_port());
            let child = spawn(&folder, port, peer);
            let mut server = Self {
                child,
                folder,
                port,
                peer,
            };
            if server.is_up() {
                return server;
            }
        }
        panic!("etcd does not start");
    }

    /// Kills it, as a crash would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a signal to a child");
        self.child.wait().expect("the child's end");
    }

    /// Starts it again with what it has on disk.
    pub(crate) fn again(&mut self) {
        self.child = spawn(&self.folder, self.port, self.peer);
        assert!(self.is_up(), "etcd does not start again");
    }

    fn is_up(&mut self) -> bool {
        let end = instant() + Duration::from_secs(20);
        while instant() < end {
            if self.child.try_wait().expect("a child").is_some() {
                return false;
            }
            // It listens before it serves; a write tells.
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() && self.answers() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    fn answers(&self) -> bool {
        let status = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.endpoint(), "put", "/up", "yes"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The locks below a prefix of one's own.
    pub(crate) fn address(&self, prefix: &str) -> Address {
        address(&self.endpoint(), prefix)
    }

    /// What etcdctl answers.
    pub(crate) fn etcdctl(&self, arguments: &[&str]) -> String {
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.endpoint()])
            .args(arguments)
            .output()
            .expect("etcdctl");
        assert!(output.status.success(), "etcdctl {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }
}

pub(crate) fn address(endpoints: &str, prefix: &str) -> Address {
    Address::parse(&format!("etcd://{endpoints}/{prefix}")).expect("an address")
}

fn spawn(folder: &tempfile::TempDir, port: u16, peer: u16) -> Child {
    let client = format!("http://127.0.0.1:{port}");
    let peer = format!("http://127.0.0.1:{peer}");
    Command::new(program())
        .args(["--name", "one", "--log-level", "error"])
        .arg("--data-dir")
        .arg(folder.path().join("data"))
        .args(["--listen-client-urls", &client])
        .args(["--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer])
        .args(["--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("one={peer}")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("etcd")
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
