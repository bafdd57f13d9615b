//! A set in etcd to which many machines add, each element once and none lost.
//!
//! ```text
//! etcd-fence etcd://HOST:PORT/PREFIX add ELEMENT [--ttl-ms N] [--pause-ms N]
//! etcd-fence etcd://HOST:PORT/PREFIX show
//! ```
//!
//! To add means to read the set and to write it again with one element more, so two who do it at once
//! lose one. A lock keeps them apart, but **no lock in a network does so for certain**: its holder may
//! be stopped right before it writes, for longer than its lease, and go on as if nothing had been.
//! No look at the lock helps, for the stop may come after the look. What helps is that the resource
//! itself refuses whoever comes too late.
//!
//! # The fence
//! `PREFIX/example/fence` has the highest token that was ever shown. Each hold has a token that is
//! higher than all before it. Whoever reads the set raises the fence to its token in the same
//! transaction, which fails if the fence is higher already; whoever writes does so on the condition
//! that the fence still shows its own. So once somebody newer has read, nobody older writes.
//!
//! `--pause-ms` waits between reading and writing: time to stop this program, wait until its lease has
//! run out, add something else, and let it go on. It is refused then, with exit code 3, and the set is
//! as the other one left it.
//!
//! What it leaves to others: to try again. The set and the fence are below the prefix of the locks
//! here; they could as well be anywhere in the same etcd, but not in another one, for the condition and
//! the write belong together.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for the command line answers there"
)]

use etcd_client::{Client, Compare, CompareOp, Txn, TxnOp, TxnOpResponse};
use std::process::ExitCode;
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
    /// Somebody newer has been here: the element was not added, and never will be by this call.
    Fenced { token: u64 },
}

impl From<etcd_client::Error> for Failure {
    fn from(error: etcd_client::Error) -> Self {
        Self::NotNow(error.to_string())
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
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::NotNow(error.to_string()))?;
    match (verb.as_str(), rest) {
        ("show", []) => runtime.block_on(async {
            let mut resource = Resource::connect(&address).await?;
            resource.show().await
        }),
        ("add", [element, options @ ..]) => {
            if element.is_empty() || element.contains(char::is_whitespace) {
                return Err(usage("an element has no spaces in it"));
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
            runtime.block_on(add(&address, &guard, element, pause))?;
            Ok(format!("added {element} under token {}", guard.token()))
            // The lock ends with the guard.
        }
        _ => Err(usage("the verbs are add and show")),
    }
}

/// Adds an element under a lock that is held.
async fn add(
    address: &Address,
    guard: &Guard,
    element: &str,
    pause: Duration,
) -> Result<(), Failure> {
    let mut resource = Resource::connect(address).await?;
    let token = guard.token();
    let mut set = resource.read(token).await?;
    if set.split_whitespace().any(|known| known == element) {
        return Ok(());
    }
    if !pause.is_zero() {
        eprintln!("etcd-fence: has read the set");
        tokio::time::sleep(pause).await;
    }
    // That the guard says so saves a request; that it does not would prove nothing.
    if guard.is_lost() {
        eprintln!("etcd-fence: the lock is lost; writing all the same, to show the fence");
    }
    if !set.is_empty() {
        set.push(' ');
    }
    set.push_str(element);
    resource.write(token, set).await
}

/// The set and its fence.
struct Resource {
    client: Client,
    set: String,
    fence: String,
}

/// A token as the fence has it: of one length, so that the order of etcd's bytes is that of the
/// numbers.
fn shown(token: u64) -> String {
    format!("{token:020}")
}

impl Resource {
    async fn connect(address: &Address) -> Result<Self, Failure> {
        // An address shows itself as etcd://HOST:PORT[,HOST:PORT]/PREFIX.
        let url = address.to_string();
        let hosts = url.trim_start_matches("etcd://").split('/').next();
        let hosts = hosts.unwrap_or_default().split(',');
        let hosts: Vec<String> = hosts.map(|host| format!("http://{host}")).collect();
        let prefix = address.prefix();
        Ok(Self {
            client: Client::connect(hosts, None).await?,
            set: format!("{prefix}/example/set"),
            fence: format!("{prefix}/example/fence"),
        })
    }

    async fn show(&mut self) -> Result<String, Failure> {
        let found = self.client.get(self.set.clone(), None).await?;
        let text = found.kvs().first().map(|pair| pair.value_str());
        Ok(text.transpose()?.unwrap_or_default().to_owned())
    }

    /// Reads the set, and shows the fence the token; in one step.
    async fn read(&mut self, token: u64) -> Result<String, Failure> {
        // etcd compares no value of a key that is not there, so the fence is there from the first use.
        let absent = Compare::version(self.fence.clone(), CompareOp::Equal, 0);
        let lowest = TxnOp::put(self.fence.clone(), shown(0), None);
        self.client
            .txn(Txn::new().when([absent]).and_then([lowest]))
            .await?;
        let not_newer = Compare::value(self.fence.clone(), CompareOp::Less, shown(token + 1));
        let read = Txn::new().when([not_newer]).and_then([
            TxnOp::put(self.fence.clone(), shown(token), None),
            TxnOp::get(self.set.clone(), None),
        ]);
        let answer = self.client.txn(read).await?;
        if !answer.succeeded() {
            return Err(Failure::Fenced { token });
        }
        for response in answer.op_responses() {
            if let TxnOpResponse::Get(found) = response
                && let Some(pair) = found.kvs().first()
            {
                return Ok(pair.value_str()?.to_owned());
            }
        }
        Ok(String::new())
    }

    /// Writes the set, if nobody newer has read it since.
    async fn write(&mut self, token: u64, set: String) -> Result<(), Failure> {
        let is_mine = Compare::value(self.fence.clone(), CompareOp::Equal, shown(token));
        let write = TxnOp::put(self.set.clone(), set, None);
        let answer = self
            .client
            .txn(Txn::new().when([is_mine]).and_then([write]));
        if answer.await?.succeeded() {
            Ok(())
        } else {
            Err(Failure::Fenced { token })
        }
    }
}
