//! Programs in other languages hold locks by serve, their network is cut, and another machine takes over. Each program
//! writes down when it wrote and when it was told; the judge does not ask the lock.

use super::proxy::{Proxy, Weather};
use super::server::Server;
use super::support::{Scene, Started, eventually};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tenure::guard::{LockManager, Options, Wait};
use tenure::store::etcd::Credentials;

const TASKS: usize = 6;

/// The clock of the programs, in nanoseconds.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).expect("after the boot") * 1_000_000_000
        + u64::try_from(now.tv_nsec).expect("no more than a second")
}

/// The last time of each kind of event, by task.
fn events(file: &Path) -> BTreeMap<(String, usize), u64> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let whole = text.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let kind = words.next()?.to_owned();
        let task = words.next()?.parse().ok()?;
        Some(((kind, task), words.next()?.parse().ok()?))
    });
    whole.collect()
}

fn six_tasks(interpreter: &str, program: &str, ttl: Duration) {
    let what = format!("{program}, ttl {ttl:?}");
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let scene = Scene::new();
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support_told");
    let file = scene.path("events");
    let mut command = scene.program(interpreter);
    command
        .arg(own.join(program))
        .arg(proxy.address("told").to_string())
        .arg(ttl.as_millis().to_string())
        .arg(&file)
        .stdout(Stdio::null());
    let program = Started::new(&mut command);
    eventually("all tasks to hold", || {
        let seen = events(&file);
        (0..TASKS).all(|task| seen.contains_key(&("WROTE".to_owned(), task)))
    });
    std::thread::sleep(ttl / 3);
    proxy.weather(Weather::Parted);
    let others = LockManager::etcd(&server.address("told"), &Credentials::default());
    let others = others.expect("a manager");
    let patient = Options::new().wait(Wait::For(ttl * 3 + Duration::from_secs(20)));
    let taken: Vec<u64> = std::thread::scope(|scope| {
        let asks = |task| {
            let (others, patient) = (&others, &patient);
            scope.spawn(move || {
                let theirs = others.acquire_with(&format!("lock-{task}"), patient);
                let at = now_ns();
                let theirs = theirs.expect("the lease runs out");
                theirs.release().expect("etcd answers");
                at
            })
        };
        let asks: Vec<_> = (0..TASKS).map(asks).collect();
        let taken = asks.into_iter().map(|asks| asks.join().expect("no panic"));
        taken.collect()
    });
    program.finish().expect(0, &what);
    let seen = events(&file);
    for (task, taken) in taken.into_iter().enumerate() {
        for kind in ["WROTE", "TOLD"] {
            let at = seen.get(&(kind.to_owned(), task));
            let at = at.unwrap_or_else(|| panic!("{what}: task {task} has no {kind}"));
            assert!(*at < taken, "{what}: task {task} {kind} after the takeover");
        }
    }
    proxy.weather(Weather::Fair);
}

/// As the library's test of that name, for programs of serve.
#[test]
fn each_loss_is_told_before_another_machine_has_the_lock_table() {
    let is_long = std::env::var_os("TENURE_ETCD").is_some_and(|length| length == "long");
    let ttls: &[u64] = if is_long { &[2, 6, 30] } else { &[2] };
    for ttl in ttls {
        for (interpreter, program) in [("python3", "six_tasks.py"), ("node", "six_tasks.mjs")] {
            six_tasks(interpreter, program, Duration::from_secs(*ttl));
        }
    }
}
