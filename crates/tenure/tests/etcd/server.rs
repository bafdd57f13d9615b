//! etcd servers on loopback, started by the test that needs them and ended with it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tenure_os::clock::instant;
use tenure_store::etcd::Address;

/// A member of a cluster of one.
pub(crate) struct Server {
    child: Child,
    folder: tempfile::TempDir,
    port: u16,
    peer: u16,
    tls: Vec<String>,
    /// The user that etcdctl shows.
    user: Option<String>,
    /// How it makes the tokens of users.
    tokens: String,
    /// How much longer each of its syncs takes than the disk's own.
    delay: Duration,
}

/// Keys and certificates of an authority, a server and a client; and of strangers.
pub(crate) struct Tls {
    folder: tempfile::TempDir,
}

impl Tls {
    pub(crate) fn make() -> Self {
        Self::at(&["127.0.0.1".to_owned()])
    }

    /// The server is at any of these addresses.
    pub(crate) fn at(addresses: &[String]) -> Self {
        let tls = Self { folder: folder() };
        let names = addresses.iter().map(|address| format!("IP:{address}"));
        let names = format!("subjectAltName={}", names.collect::<Vec<_>>().join(","));
        for (name, by) in [
            ("ca", None),
            ("other", None),
            ("server", Some("ca")),
            ("client", Some("ca")),
            ("stranger", Some("other")),
        ] {
            tls.certify(name, by, &names);
        }
        tls
    }

    fn path(&self, file: &str) -> String {
        self.folder.path().join(file).display().to_string()
    }

    pub(crate) fn read(&self, file: &str) -> Vec<u8> {
        std::fs::read(self.path(file)).expect("a file that was made")
    }

    fn certify(&self, name: &str, by: Option<&str>, names: &str) {
        let (key, certificate) = (format!("{name}.key"), format!("{name}.crt"));
        let mut openssl = Command::new("openssl");
        openssl
            .args([
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
            ])
            .args([
                "-nodes",
                "-days",
                "2",
                "-subj",
                &format!("/CN=tenure test {name}"),
            ])
            .args([
                "-keyout",
                &self.path(&key),
                "-out",
                &self.path(&certificate),
            ]);
        if let Some(by) = by {
            openssl
                .args(["-CA", &self.path(&format!("{by}.crt"))])
                .args(["-CAkey", &self.path(&format!("{by}.key"))])
                .args(["-addext", "basicConstraints=critical,CA:FALSE"])
                .args(["-addext", names]);
        }
        let output = openssl.output();
        let output = output.expect("openssl, which scripts/install-tools gets");
        assert!(output.status.success(), "openssl: {output:?}");
    }
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("its number").port()
}

/// A folder in memory, if there is one: these tests are not about the disk, and a busy disk takes
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
        Self::with(None)
    }

    /// A server with its data on a disk, like a real one: for figures.
    pub(crate) fn on_disk() -> Self {
        Self::on_slower_disk(Duration::ZERO)
    }

    /// A server on a disk that takes this much longer for a durable write.
    pub(crate) fn on_slower_disk(delay: Duration) -> Self {
        let on_disk = || tempfile::tempdir().expect("a folder");
        Self::made(None, on_disk, delay, "simple")
    }

    /// A server that accepts only clients that the authority vouches for.
    pub(crate) fn with(tls: Option<&Tls>) -> Self {
        Self::made(tls, folder, Duration::ZERO, "simple")
    }

    /// A server whose users get tokens that it signs.
    #[allow(dead_code, reason = "the library's tests use it")]
    pub(crate) fn with_signed_tokens(keys: &std::path::Path) -> Self {
        let [private, public] = ["jwt.key", "jwt.pub"].map(|file| keys.join(file));
        let openssl = |words: &[&str]| {
            let output = Command::new("openssl").args(words).output();
            let output = output.expect("openssl, which scripts/install-tools gets");
            assert!(output.status.success(), "openssl: {output:?}");
        };
        let [private, public] = [private, public].map(|file| file.display().to_string());
        openssl(&["genrsa", "-out", &private, "2048"]);
        openssl(&["rsa", "-in", &private, "-pubout", "-out", &public]);
        let tokens = format!("jwt,pub-key={public},priv-key={private},sign-method=RS256,ttl=10m");
        Self::made(None, folder, Duration::ZERO, &tokens)
    }

    fn made(
        tls: Option<&Tls>,
        folder: impl Fn() -> tempfile::TempDir,
        delay: Duration,
        tokens: &str,
    ) -> Self {
        let tls = tls.map_or_else(Vec::new, |tls| {
            vec![
                tls.path("ca.crt"),
                tls.path("server.crt"),
                tls.path("server.key"),
            ]
        });
        // Another process may take a port between our look and etcd's; then etcd says so and ends.
        for _ in 0..5 {
            let folder = folder();
            let (port, peer) = (free_port(), free_port());
            let child = spawn(&folder, port, peer, &tls, delay, tokens);
            let tls = tls.clone();
            let mut server = Self {
                child,
                folder,
                port,
                peer,
                tls,
                user: None,
                tokens: tokens.to_owned(),
                delay,
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

    /// Stops it: connections stay, and no request is answered. A kill ends it as ever.
    #[allow(dead_code, reason = "the tests of the program use it")]
    pub(crate) fn stop(&self) {
        self.signal(rustix::process::Signal::STOP);
    }

    /// Lets it go on.
    #[allow(dead_code, reason = "the tests of the program use it")]
    pub(crate) fn go_on(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    #[allow(dead_code, reason = "the tests of the program use it")]
    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("a signal to a child");
    }

    /// Starts it again with what it has on disk.
    pub(crate) fn again(&mut self) {
        let (folder, tls) = (&self.folder, &self.tls);
        self.child = spawn(folder, self.port, self.peer, tls, self.delay, &self.tokens);
        assert!(self.is_up(), "etcd does not start again");
    }

    /// A snapshot of what it has.
    pub(crate) fn snapshot(&self) -> PathBuf {
        let file = self.folder.path().join("snapshot");
        self.etcdctl(&["snapshot", "save", &file.display().to_string()]);
        file
    }

    /// Kills it, and starts it with what a snapshot has. It keeps its port.
    pub(crate) fn restore(&mut self, snapshot: &std::path::Path) {
        self.kill();
        let data = self.folder.path().join("data");
        std::fs::remove_dir_all(&data).expect("its data");
        let peer = format!("http://127.0.0.1:{}", self.peer);
        let output = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["snapshot", "restore"])
            .arg(snapshot)
            .args(["--name", "one", "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("one={peer}"), "--data-dir"])
            .arg(&data)
            .output()
            .expect("etcdctl, which scripts/install-tools gets");
        assert!(output.status.success(), "{output:?}");
        self.again();
    }

    /// From now on etcdctl shows this name and password.
    #[allow(dead_code, reason = "the library's tests use it")]
    pub(crate) fn shows(&mut self, user: &str) {
        self.user = Some(user.to_owned());
    }

    fn is_up(&mut self) -> bool {
        let end = instant() + Duration::from_secs(20);
        while instant() < end {
            if self.child.try_wait().expect("a child").is_some() {
                return false;
            }
            // The server listens before it serves; a write shows that it serves.
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() && self.answers() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    fn answers(&self) -> bool {
        let status = self
            .command()
            .args(["put", "/up", "yes"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    }

    fn command(&self) -> Command {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3");
        let endpoint = self.endpoint();
        match self.tls.as_slice() {
            [authority, certificate, key] => command
                .args(["--endpoints", &format!("https://{endpoint}")])
                .args(["--cacert", authority, "--cert", certificate, "--key", key]),
            _ => command.args(["--endpoints", &endpoint]),
        };
        if let Some(user) = &self.user {
            command.args(["--user", user]);
        }
        command
    }

    /// The server's answer to an HTTP request.
    fn web(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port())).expect("the server");
        stream.write_all(request.as_bytes()).expect("a question");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        text
    }

    /// Makes it refuse more writes, as on a full disk, until it is told that it has room again: `alarm
    /// disarm`.
    pub(crate) fn fill(&self) {
        let alarm = "{\"action\":\"ACTIVATE\",\"alarm\":\"NOSPACE\"}";
        let answer = self.web(&format!(
            "POST /v3/maintenance/alarm HTTP/1.0\r\nHost: x\r\nContent-Length: {}\r\n\r\n{alarm}",
            alarm.len()
        ));
        assert!(answer.contains("200 OK"), "{answer}");
        assert!(self.etcdctl(&["alarm", "list"]).contains("NOSPACE"));
    }

    /// The server's own metrics: counters by name.
    pub(crate) fn metrics(&self) -> BTreeMap<String, f64> {
        let text = self.web("GET /metrics HTTP/1.0\r\nHost: x\r\n\r\n");
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines
            .filter_map(|line| {
                let (name, value) = line.rsplit_once(' ')?;
                Some((name.to_owned(), value.parse().ok()?))
            })
            .collect()
    }

    /// The server's folder, in which a client may keep what it remembers.
    #[allow(
        dead_code,
        reason = "the tests of the program have folders of their own"
    )]
    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
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

    /// The output of etcdctl.
    pub(crate) fn etcdctl(&self, arguments: &[&str]) -> String {
        let output = self.command().args(arguments).output();
        let output = output.expect("etcdctl, which scripts/install-tools gets");
        assert!(output.status.success(), "etcdctl {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }
}

pub(crate) fn address(endpoints: &str, prefix: &str) -> Address {
    Address::parse(&format!("etcd://{endpoints}/{prefix}")).expect("an address")
}

fn spawn(
    folder: &tempfile::TempDir,
    port: u16,
    peer: u16,
    tls: &[String],
    delay: Duration,
    tokens: &str,
) -> Child {
    let scheme = if tls.is_empty() { "http" } else { "https" };
    let client = format!("{scheme}://127.0.0.1:{port}");
    let peer = format!("http://127.0.0.1:{peer}");
    let mut command = if delay.is_zero() {
        Command::new(program())
    } else {
        // strace runs as a detached process (`-D`), so that the child is etcd. No other call stops it.
        let mut strace = Command::new("strace");
        let slower = format!("inject=fdatasync:delay_exit={}", delay.as_micros());
        strace
            .args(["-D", "-f", "-qq", "--seccomp-bpf", "-o", "/dev/null"])
            .args(["-e", "trace=fdatasync", "-e", &slower])
            .arg(program());
        strace
    };
    if let [authority, certificate, key] = tls {
        command
            .args(["--client-cert-auth", "--trusted-ca-file", authority])
            .args(["--cert-file", certificate, "--key-file", key]);
    }
    command
        .args([
            "--name",
            "one",
            "--log-level",
            "error",
            "--auth-token",
            tokens,
        ])
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
