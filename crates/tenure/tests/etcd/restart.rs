//! A program that replaces itself (exec), with its locks on servers.

use super::server::Server;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;
use tenure::guard::{AcquireError, Guard, LockManager, Options, Wait};
use tenure::store::etcd::{Address, Credentials};

const ADDRESS: &str = "TENURE_TEST_RESTART_ADDRESS";
const ROLE: &str = "TENURE_TEST_RESTART_ROLE";

/// The lease of an earlier program is waited out, and that is not long.
const TTL: Duration = Duration::from_secs(3);

fn program(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", "restart::what_a_program_does", "--nocapture"])
        .env(ROLE, role);
    command
}

/// Does nothing by itself: other tests start this program again for it.
#[test]
fn what_a_program_does() {
    let (Ok(address), Ok(role)) = (std::env::var(ADDRESS), std::env::var(ROLE)) else {
        return;
    };
    let address = Address::parse(&address).expect("an address");
    let locks = LockManager::etcd(&address, &Credentials::default()).expect("a connection");
    let options = Options::new().ttl(TTL);
    let acquire = |name| locks.acquire_with(name, &options).expect("a free lock");
    match &*role {
        "plain" => {
            let _guard = acquire("a");
            panic!("{}", program("became").exec());
        }
        "became" => {
            let refused = locks.try_acquire("a").expect_err("its lease runs");
            let text = refused.to_string();
            assert!(
                text.contains("before it restarted, and is free in "),
                "{text}"
            );
            let rest = refused.retry_after().expect("it ends");
            assert!(rest <= TTL && refused.is_held(), "{rest:?}");
            let waits = Options::new().wait(Wait::Forever).ttl(TTL);
            let guard = locks
                .acquire_with("a", &waits)
                .expect("its lease has run out");
            let own = locks.try_acquire("a").expect_err("it has it");
            assert!(
                matches!(own, AcquireError::HeldByThisProcess { .. }),
                "{own}"
            );
            guard.release().expect("a release");
        }
        "hands" => {
            let guard = acquire("a");
            let handed = guard.hand_on().expect("a hand-over");
            let role = format!("adopts {}", guard.token());
            panic!("{}", program(&role).envs([handed.env()]).exec());
        }
        adopts => {
            let before = adopts.strip_prefix("adopts ").expect("a role");
            let guard = locks
                .adopt_handed_on("a")
                .expect("an answer")
                .expect("it stands");
            assert!(guard.token() > before.parse().expect("a token"));
            std::thread::sleep(2 * TTL);
            guard.verify().expect("it is renewed");
            guard.release().expect("a release");
        }
    }
}

fn ends_well(role: &str) {
    let server = Server::start();
    let address = server.address("restart");
    let status = program(role).env(ADDRESS, address.to_string()).status();
    assert!(status.expect("a process").success());
}

#[test]
fn a_restarted_program_waits_for_the_lease_that_it_left() {
    ends_well("plain");
}

#[test]
fn a_restarted_program_goes_on_with_the_lock_that_it_handed_on() {
    ends_well("hands");
}

/// A copy by fork has none of the connections, and makes its own.
#[test]
#[allow(unsafe_code, reason = "there is no safe fork")]
fn a_copy_goes_on_with_a_lock_on_servers() {
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};
    let server = Server::start();
    let address = server.address("copy");
    let open = || LockManager::etcd(&address, &Credentials::default()).expect("a connection");
    let locks = open();
    let guard = locks
        .acquire_with("a", &Options::new().ttl(TTL))
        .expect("a free lock");
    // SAFETY: the copy goes on by this thread alone, and leaves what its maker has alone.
    match unsafe { fork() }.expect("a copy") {
        ForkResult::Child => {
            let adopted = open().adopt(guard);
            std::thread::sleep(2 * TTL);
            let stands = adopted
                .as_ref()
                .is_ok_and(|guard: &Guard| guard.verify().is_ok());
            let released = adopted.is_ok_and(|guard| guard.release().is_ok());
            // SAFETY: ends this process and nothing else.
            unsafe { nix::libc::_exit(i32::from(!(stands && released))) }
        }
        ForkResult::Parent { child } => {
            super::until("the copy has it", Duration::from_secs(10), || {
                guard.is_lost()
            });
            let end = waitpid(child, None).expect("its end");
            assert_eq!(end, WaitStatus::Exited(child, 0), "it held and released");
            open()
                .try_acquire("a")
                .expect("a free lock")
                .release()
                .expect("a release");
        }
    }
}
