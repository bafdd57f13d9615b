//! A set in etcd to which many machines add, each element once and none lost.
//!
//! ```text
//! etcd-fence etcd://HOST:PORT/PREFIX add ELEMENT [--ttl-ms N] [--pause-ms N]
//! etcd-fence etcd://HOST:PORT/PREFIX show
//! ```
//!
//! To add means to read the set and to write it again with one element more, so two callers that do it
//! at once lose one. A lock keeps them apart, but **no lock in a network does so for certain**: its
//! holder may be stopped right before it writes, for longer than its lease, and go on as if nothing had
//! been. No look at the lock helps, for the stop may come after the look. What helps is that the
//! resource itself refuses a holder that comes too late.
//!
//! # The fence
//! `PREFIX/example/fence` has the highest token that was ever shown. Each hold has a token that is
//! higher than all before it. A holder that reads the set raises the fence to its token in the same
//! transaction, which fails if the fence is higher already. A holder writes on the condition that the
//! fence still shows its own token. So once a newer holder has read, no older one writes.
//!
//! `--pause-ms` waits between reading and writing: time to stop this program, wait until its lease has
//! run out, add something else, and let it go on. It is refused then, with exit code 3, and the set is
//! as the other one left it.
//!
//! The set is read and written with `etcdctl txn`, as a shell would do it, so that this program needs no
//! client of etcd; the conditions are the same in each.
//!
//! What it leaves to others: to try again. The set and the fence are below the prefix of the locks
//! here; they could as well be anywhere in the same etcd, but not in another one, for the condition and
//! the write belong together.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for the command line answers there"
)]

use std::io::Write;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;
use tenure::guard::{Guard, LockManager, Options};
use tenure::store::etcd::{Address, Credentials};

/// The lock that guards the set.
const LOCK: &str = "example-set";

const USAGE: &str =
    "usage: etcd-fence etcd://HOST:PORT/PREFIX add ELEMENT [--ttl-ms N] [--pause-ms N]
       etcd-fence etcd://HOST:PORT/PREFIX show";

/// Why an element was not added.
enum Failure {
    /// The call makes no sense.
    Usage(String),
    /// The lock was not to be had, or etcd does not answer.
    NotNow(String),
    /// A newer holder has been here: the element was not added, and never will be by this call.
    Fenced { token: u64 },
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::NotNow(format!("etcdctl: {error}"))
    }
}

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(Failure::Usage(why)) => {
            eprintln!("etcd-fence: {why}\n{USAGE}");
            ExitCode::from(2)
        }
        Err(Failure::Fenced { token }) => {
            eprintln!("etcd-fence: refused: a token newer than {token} has been shown");
            ExitCode::from(3)
        }
        Err(Failure::NotNow(why)) => {
            eprintln!("etcd-fence: {why}");
            ExitCode::from(12)
        }
    }
}

fn run(words: &[String]) -> Result<String, Failure> {
    let usage = |why: &str| Failure::Usage(why.to_owned());
    let [url, verb, rest @ ..] = words else {
        return Err(usage("a URL and a verb are needed"));
    };
    let address = Address::parse(url).map_err(|error| usage(&format!("{url}: {error}")))?;
    if address.is_encrypted() {
        return Err(usage("this example talks in the clear only"));
    }
    match (verb.as_str(), rest) {
        ("show", []) => Resource::of(&address).show(),
        ("add", [element, options @ ..]) => {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            if element.is_empty() || !element.chars().all(is_plain) {
                return Err(usage(
                    "an element is made of letters, digits, `-`, `_` and `.`",
                ));
            }
            let (mut ttl, mut pause) = (Duration::from_secs(30), Duration::ZERO);
            for pair in options.chunks(2) {
                let number = pair.get(1).and_then(|number| number.parse().ok());
                let number = number.ok_or_else(|| usage("an option wants milliseconds"))?;
                match pair.first().map(String::as_str) {
                    Some("--ttl-ms") => ttl = Duration::from_millis(number),
                    Some("--pause-ms") => pause = Duration::from_millis(number),
                    _ => return Err(usage("there is no such option")),
                }
            }
            let not_now = |error: &dyn std::error::Error| Failure::NotNow(error.to_string());
            let locks = LockManager::etcd(&address, &Credentials::default());
            let locks = locks.map_err(|error| not_now(&error))?;
            let guard = locks.acquire_with(LOCK, &Options::new().ttl(ttl));
            let guard = guard.map_err(|error| not_now(&error))?;
            add(&address, &guard, element, pause)?;
            Ok(format!("added {element} under token {}", guard.token()))
            // The lock ends with the guard.
        }
        _ => Err(usage("the verbs are add and show")),
    }
}

/// Adds an element under a lock that is held.
fn add(address: &Address, guard: &Guard, element: &str, pause: Duration) -> Result<(), Failure> {
    let resource = Resource::of(address);
    let token = guard.token();
    let mut set = resource.read(token)?;
    if set.split_whitespace().any(|known| known == element) {
        return Ok(());
    }
    if !pause.is_zero() {
        eprintln!("etcd-fence: has read the set");
        std::thread::sleep(pause);
    }
    // A guard that says so saves a request; that it does not would prove nothing.
    if guard.is_lost() {
        eprintln!("etcd-fence: the lock is lost; writing all the same, to show the fence");
    }
    if !set.is_empty() {
        set.push(' ');
    }
    set.push_str(element);
    resource.write(token, &set)
}

/// The set and its fence.
struct Resource {
    endpoints: String,
    set: String,
    fence: String,
}

/// A token as the fence has it: of one length, so that the order of etcd's bytes is that of the
/// numbers.
fn shown(token: u64) -> String {
    format!("{token:020}")
}

impl Resource {
    fn of(address: &Address) -> Self {
        // An address shows itself as etcd://HOST:PORT[,HOST:PORT]/PREFIX.
        let url = address.to_string();
        let hosts = url.trim_start_matches("etcd://").split('/').next();
        let prefix = address.prefix();
        Self {
            endpoints: hosts.unwrap_or_default().to_owned(),
            set: format!("{prefix}/example/set"),
            fence: format!("{prefix}/example/fence"),
        }
    }

    /// What etcdctl says to this.
    fn etcdctl(&self, arguments: &[&str], stdin: &str) -> Result<String, Failure> {
        let mut etcdctl = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.endpoints])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut said) = etcdctl.stdin.take() {
            said.write_all(stdin.as_bytes())?;
        }
        let output = etcdctl.wait_with_output()?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            return Err(Failure::NotNow(format!("etcdctl: {}", why.trim())));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Takes steps on a condition. Answers with what they say; `None` where the condition is not met.
    fn txn(&self, condition: &str, steps: &[&str]) -> Result<Option<String>, Failure> {
        let words = format!("{condition}\n\n{}\n\n\n", steps.join("\n"));
        let said = self.etcdctl(&["txn"], &words)?;
        Ok(said.strip_prefix("SUCCESS").map(str::to_owned))
    }

    fn show(&self) -> Result<String, Failure> {
        let said = self.etcdctl(&["get", "--print-value-only", &self.set], "")?;
        Ok(said.trim_end().to_owned())
    }

    /// Reads the set, and shows the fence the token; in one step.
    fn read(&self, token: u64) -> Result<String, Failure> {
        let fence = &self.fence;
        // etcd compares no value of a key that is not there, so the fence is there from the first use.
        let absent = format!("version(\"{fence}\") = \"0\"");
        self.txn(&absent, &[&format!("put {fence} {}", shown(0))])?;
        let not_newer = format!("value(\"{fence}\") < \"{}\"", shown(token + 1));
        let raise = format!("put {fence} {}", shown(token));
        let read = format!("get {}", self.set);
        let said = self.txn(&not_newer, &[&raise, &read])?;
        let said = said.ok_or(Failure::Fenced { token })?;
        // What stands there comes after its key.
        let mut lines = said.lines().skip_while(|line| *line != self.set);
        Ok(lines.nth(1).unwrap_or_default().to_owned())
    }

    /// Writes the set, if no newer holder has read it since.
    fn write(&self, token: u64, set: &str) -> Result<(), Failure> {
        let is_mine = format!("value(\"{}\") = \"{}\"", self.fence, shown(token));
        let write = format!("put {} \"{set}\"", self.set);
        let said = self.txn(&is_mine, &[&write])?;
        said.map(drop).ok_or(Failure::Fenced { token })
    }
}
