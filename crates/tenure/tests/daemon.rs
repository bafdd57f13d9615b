//! What daemons do under a lock: another root, another user, a copy by fork, another program by exec.
//!
//! The test program is started again as the daemon, which says line by line what it did, and goes on when it is told.

#![cfg(target_os = "linux")]
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects by failing"
)]
#![allow(unsafe_code, reason = "what daemons do has no safe calls")]

use nix::libc;
use std::ffi::CString;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;
use tenure::guard::{
    AcquireError, AdoptError, Again, Guard, GuardState, HandedOn, LockManager, Options,
    ReleaseError, Wait,
};
use tenure::resume::{ResumeLockError, ResumeLockManager};
use tenure::store::file::{FileStore, ThreadSleeper};
use tenure::store::{Store, StoreError, Verbs};
use tenure_core::{Claim, Force, Holder, Kind, LockName, Patience, Request, Terms};
use tenure_os::clock::{Clock, SystemClock, instant, since};
use tenure_os::process::{Identity, new_request_id};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

const ROLE: &str = "TENURE_TEST_DAEMON_ROLE";
const FOLDER: &str = "TENURE_TEST_DAEMON_FOLDER";

/// Heartbeats come every 100 ms.
const TTL: Duration = Duration::from_millis(300);

/// Long enough for some heartbeats, and for a look at where the folder is.
const SOME_HEARTBEATS: Duration = Duration::from_millis(3_500);

fn is_root() -> bool {
    // SAFETY: asks a number.
    unsafe { libc::geteuid() == 0 }
}

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a folder"));
        std::fs::create_dir(place.0.path().join("jail")).expect("a folder");
        place
    }

    fn locks(&self) -> LockManager {
        LockManager::new(self.0.path().join("locks")).expect("a folder with a name")
    }

    fn daemon(&self, role: &str) -> Daemon {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--exact", "what_a_daemon_does", "--nocapture"])
            .env(ROLE, role)
            .env(FOLDER, self.0.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        Daemon {
            stdin: child.stdin.take(),
            child,
            lines,
        }
    }

    fn is_held(&self, name: &str) -> bool {
        match self.locks().try_acquire(name) {
            Ok(guard) => {
                guard.release().expect("a release");
                false
            }
            Err(error) if error.is_held() => true,
            Err(error) => panic!("{name}: {error}"),
        }
    }

    fn claims(&self, name: &str) -> Vec<Claim> {
        let name = LockName::new(name).expect("a name");
        let reading = file_store(self.0.path())
            .read(&name, None)
            .expect("a readable lock");
        reading.entry().expect("a whole list").claims.clone()
    }

    /// What stands in the jail.
    fn jail(&self) -> Vec<String> {
        let jail = std::fs::read_dir(self.0.path().join("jail")).expect("a folder");
        let names = jail.map(|item| item.expect("an item").file_name());
        names
            .map(|name| name.to_string_lossy().into_owned())
            .collect()
    }
}

struct Daemon {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Daemon {
    /// Waits until it has done this.
    #[track_caller]
    fn did(&mut self, what: &str) -> &mut Self {
        let said = self.lines.find(|line| {
            let line = line.as_ref().expect("its output");
            line.starts_with("did ") || line.starts_with("failed")
        });
        let said = said.map(|line| line.expect("its output"));
        assert_eq!(said.as_deref(), Some(&*format!("did {what}")));
        self
    }

    fn goes_on(&mut self) -> &mut Self {
        let stdin = self.stdin.as_mut().expect("its input");
        writeln!(stdin, "on").expect("it reads");
        self
    }

    fn ends(&mut self) {
        self.stdin = None;
        assert!(self.child.wait().expect("its end").success());
    }
}

/// In the daemon: says what it did, and waits until it is told to go on.
#[allow(clippy::print_stdout, reason = "its parent reads that")]
fn did(what: &str) {
    println!("\ndid {what}");
    std::io::stdout().flush().expect("a parent");
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    assert!(read.is_ok_and(|length| length > 0), "it is told to go on");
}

#[track_caller]
fn eventually(is_so: impl Fn() -> bool) {
    let began = instant();
    while !is_so() {
        assert!(since(began) < PATIENCE, "waited too long");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Tries all rows of a table at the same time: each of them waits for heartbeats.
fn at_once<const N: usize>(rows: [&str; N], tries: impl Fn(&str) + Sync) {
    thread::scope(|threads| {
        for row in rows {
            let tries = &tries;
            threads.spawn(move || tries(row));
        }
    });
}

/// Does nothing by itself: other tests start this program again for it.
#[test]
fn what_a_daemon_does() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let place = PathBuf::from(std::env::var_os(FOLDER).expect("a folder"));
    let (role, how) = role.split_once(' ').unwrap_or((&role, ""));
    match role {
        "root" => goes_on_in_another_root(&place, how),
        "fork" => goes_on_in_a_copy(&place, how),
        "drop" => drops_what_its_copy_has(&place),
        "exec" => becomes_another_program(&place, how),
        "became" => goes_on_as_another_program(&place, how),
        "second" => is_refused_by_another_copy_of_the_library(&place),
        "renamed" => notices_in_another_root_that_the_folder_is_gone(&place),
        "user" => goes_on_as_another_user(&place, how),
        other => unreachable!("no such role: {other}"),
    }
}

fn text(path: &Path) -> CString {
    CString::new(path.to_str().expect("a plain name")).expect("no NUL")
}

fn done(call: libc::c_int) {
    assert_eq!(call, 0, "{}", std::io::Error::last_os_error());
}

/// Gets another root in one of the ways that there are.
fn leave_root(place: &Path, how: &str) {
    let jail = text(&place.join("jail"));
    let none = std::ptr::null();
    // SAFETY: the texts end with NUL, and live as long as the calls.
    unsafe {
        let private = || {
            done(libc::unshare(libc::CLONE_NEWNS));
            let flags = libc::MS_REC | libc::MS_PRIVATE;
            done(libc::mount(
                c"none".as_ptr(),
                c"/".as_ptr(),
                none,
                flags,
                none.cast(),
            ));
        };
        match how {
            "chroot" => done(libc::chroot(jail.as_ptr())),
            "chroot-to-copy" => {
                // A folder of this path is in the jail as well.
                let inner = place
                    .join("jail")
                    .join(place.strip_prefix("/").expect("a whole path"));
                std::fs::create_dir_all(inner.join("locks")).expect("a folder");
                done(libc::chroot(jail.as_ptr()));
            }
            "mounts" => {
                private();
                for over in ["locks", "storage"] {
                    let over = text(&place.join(over));
                    let kind = c"tmpfs".as_ptr();
                    done(libc::mount(kind, over.as_ptr(), kind, 0, none.cast()));
                }
            }
            "pivot" => {
                private();
                let kind = c"tmpfs".as_ptr();
                done(libc::mount(kind, jail.as_ptr(), kind, 0, none.cast()));
                std::fs::create_dir(place.join("jail/old")).expect("a folder");
                let old = text(&place.join("jail/old"));
                let pivoted = libc::syscall(libc::SYS_pivot_root, jail.as_ptr(), old.as_ptr());
                assert_eq!(pivoted, 0, "{}", std::io::Error::last_os_error());
                done(libc::chdir(c"/".as_ptr()));
                done(libc::umount2(c"/old".as_ptr(), libc::MNT_DETACH));
            }
            other => unreachable!("no such way: {other}"),
        }
        done(libc::chdir(c"/".as_ptr()));
    }
}

const WAYS: [&str; 4] = ["chroot", "chroot-to-copy", "mounts", "pivot"];

fn goes_on_in_another_root(place: &Path, how: &str) {
    let locks = LockManager::new(place.join("locks")).expect("a folder with a name");
    let unused = LockManager::new(place.join("unused")).expect("a folder with a name");
    let resumes = ResumeLockManager::new(place.join("storage")).expect("a folder");
    let options = Options::new().ttl(TTL);
    let guard = locks.acquire_with("a", &options).expect("a free lock");
    let lock = resumes.acquire_lock_blocking("a").expect("a free lock");
    did("hold");
    leave_root(place, how);
    thread::sleep(SOME_HEARTBEATS);
    assert_eq!(guard.state(), GuardState::Held);
    guard.verify().expect("it stands");
    lock.verify().expect("it stands");
    let theirs = locks.try_acquire("theirs");
    assert!(
        theirs.as_ref().is_err_and(AcquireError::is_held),
        "{theirs:?}"
    );
    let theirs = resumes.acquire_lock_blocking("theirs");
    assert!(
        matches!(theirs, Err(ResumeLockError::InProgress { .. })),
        "{theirs:?}"
    );
    let later = locks.acquire_with("later", &options).expect("a free lock");
    let later_too = resumes.acquire_lock_blocking("later").expect("a free lock");
    let refused = unused
        .try_acquire("a")
        .expect_err("it would be a folder of the jail");
    let is_clear = matches!(&refused, AcquireError::Store { source: StoreError::Unsafe { why, .. }, .. }
        if why.contains("another root"));
    assert!(is_clear, "{refused}");
    let copy = place.join("unused");
    assert!(!copy.exists(), "nothing is made there");
    did("another root");
    eventually(|| later.should_stop());
    assert_eq!(later.state(), GuardState::StopRequested);
    guard.release().expect("a release");
    later.release().expect("a release");
    lock.release().expect("a release");
    later_too.release().expect("a release");
    did("release");
}

#[test]
fn a_lock_is_held_on_in_another_root() {
    if !is_root() {
        return;
    }
    at_once(WAYS, |how| {
        let place = Place::new();
        let resumes = ResumeLockManager::new(place.0.path().join("storage")).expect("a folder");
        let theirs = place.locks().acquire("theirs").expect("a free lock");
        let resumed = resumes
            .acquire_lock_blocking("theirs")
            .expect("a free lock");
        let mut daemon = place.daemon(&format!("root {how}"));
        daemon.did("hold");
        let jail = place.jail();
        daemon.goes_on().did("another root");
        assert!(place.is_held("a") && place.is_held("later"), "{how}");
        for name in ["a", "later"] {
            let answer = resumes.acquire_lock_blocking(name);
            assert!(
                matches!(answer, Err(ResumeLockError::InProgress { .. })),
                "{how}: {answer:?}"
            );
        }
        ask_to_stop(&place, "later");
        daemon.goes_on().did("release");
        assert!(!place.is_held("a") && !place.is_held("later"), "{how}");
        if how == "chroot" {
            assert_eq!(place.jail(), jail, "nothing is made in the jail");
        }
        for name in ["a", "later"] {
            drop(resumes.acquire_lock_blocking(name).expect("a free lock"));
        }
        daemon.goes_on().ends();
        theirs.release().expect("a release");
        resumed.release().expect("a release");
    });
}

fn notices_in_another_root_that_the_folder_is_gone(place: &Path) {
    let locks = LockManager::new(place.join("locks")).expect("a folder with a name");
    let options = Options::new().ttl(TTL);
    let guard = locks.acquire_with("a", &options).expect("a free lock");
    leave_root(place, "chroot");
    guard.verify().expect("it stands");
    did("another root");
    eventually(|| guard.is_lost());
    guard.verify().expect_err("others find another folder");
    let refused = locks
        .try_acquire("a")
        .expect_err("the path leads elsewhere");
    let is_unsafe = matches!(
        &refused,
        AcquireError::Store {
            source: StoreError::Unsafe { .. },
            ..
        }
    );
    assert!(is_unsafe, "{refused}");
    did("notice");
}

#[test]
fn a_folder_that_is_gone_is_a_loss_also_in_another_root() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    let mut daemon = place.daemon("renamed");
    daemon.did("another root");
    let folder = place.0.path();
    std::fs::rename(folder.join("locks"), folder.join("old")).expect("another name");
    assert!(!place.is_held("a"), "another folder");
    daemon.goes_on().did("notice");
    assert_eq!(place.jail(), [""; 0]);
    daemon.goes_on().ends();
}

fn file_store(place: &Path) -> FileStore {
    let here = Identity::current().host;
    FileStore::new(place.join("locks"), here, Box::new(ThreadSleeper))
}

fn ask_to_stop(place: &Place, name: &str) {
    let here = Identity::current().host;
    let now = SystemClock::new(here.boot_id.as_deref()).now();
    let name = LockName::new(name).expect("a name");
    let asked = file_store(place.0.path()).cancel(&name, "somebody".into(), None, &now);
    assert_eq!(asked.expect("a lock").len(), 1, "one holder is asked");
}

fn goes_on_as_another_user(place: &Path, how: &str) {
    let locks = LockManager::new(place.join("locks")).expect("a folder with a name");
    let options = Options::new().ttl(TTL);
    let guard = locks.acquire_with("a", &options).expect("a free lock");
    let lost = locks.acquire_with("lost", &options).expect("a free lock");
    // SAFETY: changes whose rights this process has.
    unsafe {
        match how {
            "setuid" => {
                done(libc::setgid(65_534));
                done(libc::setuid(65_534));
            }
            "seteuid" => done(libc::seteuid(65_534)),
            other => unreachable!("no such way: {other}"),
        }
    }
    let before = guard_file(&guard, place);
    assert!(before.is_err(), "the folder is closed to it");
    did("another user");
    eventually(|| lost.is_lost());
    lost.verify().expect_err("its file is gone");
    lost.release().expect_err("nothing to release");
    thread::sleep(SOME_HEARTBEATS);
    assert_eq!(guard.state(), GuardState::Held);
    guard.verify().expect("it stands");
    let refused = locks.try_acquire("b").expect_err("no right to the folder");
    assert!(matches!(refused, AcquireError::Store { .. }), "{refused}");
    did("hold");
    guard.release().expect("a release");
    did("release");
}

/// Copies this process.
fn fork() -> libc::pid_t {
    // SAFETY: the copy goes on by this thread alone. It makes a manager of its own, and leaves that of its maker alone.
    let copy = unsafe { libc::fork() };
    assert!(copy >= 0, "{}", std::io::Error::last_os_error());
    copy
}

/// Ends this process as a daemon's first process does: no drop runs.
fn end() -> ! {
    // SAFETY: ends this process and nothing else.
    unsafe { libc::_exit(0) }
}

fn goes_on_in_a_copy(place: &Path, how: &str) {
    let locks = LockManager::new(place.join("locks")).expect("a folder with a name");
    let options = Options::new().ttl(TTL);
    let guard = locks.acquire_with("a", &options).expect("a free lock");
    let both = locks.acquire_all(["b", "c"], &options).expect("free locks");
    let other = locks.acquire_with("d", &options).expect("a free lock");
    did("lock");
    if fork() != 0 {
        end();
    }
    let forked = locks.adopt(other).expect_err("the copy of a manager");
    assert!(matches!(forked, AdoptError::Forked { .. }), "{forked}");
    let before = guard.token();
    let own = LockManager::new(place.join("locks")).expect("a folder with a name");
    // The maker may live for another moment. Then nothing would wake this wait.
    for (name, wait) in [
        ("a", Wait::Forever),
        ("b", Wait::For(PATIENCE)),
        ("c", Wait::No),
    ] {
        let options = Options::new().wait(wait).again(Again::Wait);
        let answer = own
            .acquire_with(name, &options)
            .expect_err("its own descriptor keeps it");
        let is_told = matches!(answer, AcquireError::HeldFromBefore { .. });
        assert!(is_told && answer.to_string().contains("adopt"), "{answer}");
    }
    did("refusal");
    let guard = own.adopt(guard).expect("it stands");
    let both = own.adopt_all(both).expect("they stand");
    assert!(guard.token() > before);
    assert_eq!(
        guard.holder().process.map(|it| it.pid),
        Some(std::process::id())
    );
    let again = own.adopt(guard).expect("it is this process's");
    let refused = own.try_acquire("a");
    assert!(
        matches!(refused, Err(AcquireError::HeldByThisProcess { .. })),
        "{refused:?}"
    );
    thread::sleep(SOME_HEARTBEATS);
    for guard in both.iter().chain([&again]) {
        assert_eq!(guard.state(), GuardState::Held);
        guard.verify().expect("it stands");
    }
    did("adoption");
    if how == "release" {
        again.release().expect("a release");
        both.release().expect("a release");
        did("release");
    }
    end()
}

#[test]
fn a_daemon_goes_on_with_the_locks_of_the_process_that_it_is_a_copy_of() {
    at_once(["release", "death"], |how| {
        let place = Place::new();
        let mut daemon = place.daemon(&format!("fork {how}"));
        daemon.did("lock");
        let locks = place.locks();
        thread::scope(|threads| {
            let waits = threads.spawn(|| {
                let forever = Options::new().wait(Wait::Forever);
                locks.acquire_with("a", &forever).expect("its turn")
            });
            eventually(|| place.claims("a").len() == 2);
            daemon.goes_on().did("refusal");
            assert!(place.is_held("a") && place.is_held("c"), "{how}");
            let shown = place.claims("a");
            daemon.goes_on().did("adoption");
            let adopted = place.claims("a");
            let holder = |claims: &[Claim]| {
                let held = claims.iter().find(|claim| claim.token.is_some());
                held.and_then(|claim| claim.holder.process)
                    .expect("a process")
                    .pid
            };
            assert_eq!(holder(&shown), daemon.child.id());
            assert_ne!(holder(&adopted), daemon.child.id(), "others see the copy");
            assert!(place.is_held("a") && place.is_held("c"), "{how}");
            assert!(!waits.is_finished(), "{how}: it waits on");
            daemon.goes_on();
            if how == "release" {
                daemon.did("release").goes_on();
            }
            let next = waits.join().expect("no panic");
            assert!(next.token() > adopted.iter().filter_map(|it| it.token).max().unwrap_or(0));
            eventually(|| !place.is_held("b") && !place.is_held("c"));
        });
        daemon.ends();
    });
}

fn drops_what_its_copy_has(place: &Path) {
    let locks = LockManager::new(place.join("locks")).expect("a folder with a name");
    let guard = locks
        .acquire_with("a", &Options::new().ttl(TTL))
        .expect("a free lock");
    let mut ends = [0; 2];
    // SAFETY: fills two numbers.
    done(unsafe { libc::pipe(ends.as_mut_ptr()) });
    if fork() == 0 {
        let own = LockManager::new(place.join("locks")).expect("a folder with a name");
        let adopted = own.adopt(guard).expect("it stands");
        // SAFETY: writes one byte that is there.
        assert_eq!(unsafe { libc::write(ends[1], ends.as_ptr().cast(), 1) }, 1);
        eventually(|| place.join("end").exists());
        adopted.verify().expect("it stands");
        adopted.release().expect("a release");
        end();
    }
    let mut byte = 0_u8;
    // SAFETY: reads one byte into one.
    assert_eq!(unsafe { libc::read(ends[0], (&raw mut byte).cast(), 1) }, 1);
    eventually(|| guard.is_lost());
    guard.verify().expect_err("its copy has it");
    let lost = guard.release().expect_err("nothing to give back");
    assert!(matches!(lost, ReleaseError::Lost { .. }), "{lost}");
    did("drop");
    std::fs::write(place.join("end"), "").expect("a file");
}

#[test]
fn a_guard_whose_copy_was_adopted_gives_nothing_back() {
    let place = Place::new();
    let mut daemon = place.daemon("drop");
    daemon.did("drop");
    assert!(place.is_held("a"));
    daemon.goes_on().ends();
    eventually(|| !place.is_held("a"));
}

/// Becomes this program again, as another daemon.
fn exec(role: &str, handed: Option<&HandedOn>) -> ! {
    let mut new = Command::new(std::env::current_exe().expect("this program"));
    new.args(["--exact", "what_a_daemon_does", "--nocapture"])
        .env(ROLE, role);
    new.envs(handed.map(HandedOn::env));
    let error = std::os::unix::process::CommandExt::exec(&mut new);
    panic!("{error}")
}

fn becomes_another_program(place: &Path, how: &str) {
    let locks = LockManager::new(place.join("locks")).expect("a folder with a name");
    let resumes = ResumeLockManager::new(place.join("storage")).expect("a folder");
    let options = Options::new().ttl(TTL);
    let _resumed = resumes.acquire_lock_blocking("a").expect("a free lock");
    let readers = Options::new().shared().ttl(TTL);
    let _shared = locks.acquire_with("shared", &readers).expect("a free lock");
    let both = locks.acquire_all(["a", "b"], &options).expect("free locks");
    did("lock");
    if how == "handed" {
        let handed = both.hand_on().expect("descriptors");
        // Heartbeats go on meanwhile.
        thread::sleep(2 * TTL);
        both.verify().expect("they stand");
        exec(&format!("became {}", both[1].token()), Some(&handed));
    }
    exec("became", None)
}

fn goes_on_as_another_program(place: &Path, before: &str) {
    let locks = LockManager::new(place.join("locks")).expect("a folder with a name");
    let resumes = ResumeLockManager::new(place.join("storage")).expect("a folder");
    resumes
        .acquire_lock_blocking("a")
        .expect("nobody has it any more")
        .release()
        .expect("a release");
    let alone = locks.try_acquire("shared").expect("nobody has it any more");
    alone.release().expect("a release");
    let none = locks.adopt_handed_on("c").expect("an answer");
    assert!(none.is_none(), "nothing of that lock was handed on");
    if before.is_empty() {
        for name in ["a", "b"] {
            assert!(locks.adopt_handed_on(name).expect("an answer").is_none());
            locks
                .try_acquire(name)
                .expect("nobody has it any more")
                .release()
                .expect("a release");
        }
    } else {
        let early = locks.acquire_with("a", &Options::new().wait(Wait::Forever));
        let is_told = matches!(early, Err(AcquireError::HeldFromBefore { .. }));
        assert!(is_told, "{early:?}");
        let adopt = |name| locks.adopt_handed_on(name).expect("an answer");
        let guards = ["a", "b"].map(|name| adopt(name).expect("it was handed on"));
        let before: u64 = before.parse().expect("a token");
        assert!(guards[1].token() > before);
        assert!(adopt("a").is_none(), "once");
        thread::sleep(SOME_HEARTBEATS);
        for guard in &guards {
            guard.verify().expect("it stands");
            assert_eq!(guard.state(), GuardState::Held);
        }
        did("adoption");
        for guard in guards {
            guard.release().expect("a release");
        }
    }
    did("release");
}

#[test]
fn a_program_that_replaces_itself_keeps_the_locks_that_it_hands_on() {
    let place = Place::new();
    let mut daemon = place.daemon("exec handed");
    daemon.did("lock");
    let locks = place.locks();
    thread::scope(|threads| {
        let waits = threads.spawn(|| {
            let forever = Options::new().wait(Wait::Forever);
            locks.acquire_with("a", &forever).expect("its turn")
        });
        eventually(|| place.claims("a").len() == 2);
        daemon.goes_on().did("adoption");
        assert!(!waits.is_finished(), "nobody got in between");
        assert!(place.is_held("a") && place.is_held("b"));
        daemon.goes_on().did("release");
        drop(waits.join().expect("no panic"));
    });
    assert!(!place.is_held("b"));
    daemon.goes_on().ends();
}

#[test]
fn a_program_that_replaces_itself_finds_its_earlier_locks_free() {
    let place = Place::new();
    let mut daemon = place.daemon("exec plain");
    daemon.did("lock").goes_on().did("release").goes_on().ends();
}

/// Another copy of this library in the same program has a list of holds of its own, and makes claims before the first
/// manager of this one is made.
fn is_refused_by_another_copy_of_the_library(place: &Path) {
    let store = file_store(place);
    let me = Identity::current();
    let now = SystemClock::new(me.host.boot_id.as_deref()).now();
    let request = Request {
        holder: Holder {
            request_id: new_request_id().expect("random bytes"),
            actor: String::new(),
            process: Some(me.process),
            command: None,
            host: me.host.into(),
            why: String::new(),
            facts: Vec::new(),
        },
        kind: Kind::Kernel,
        ttl_ms: 60_000,
        force: Force::No,
        patience: Patience::AtOnce,
        terms: Terms::default(),
    };
    let name = LockName::new("a").expect("a name");
    let theirs = store.enter(&name, request, &now).expect("a free lock");
    thread::sleep(Duration::from_millis(5));
    let locks = LockManager::new(place.join("locks")).expect("a folder with a name");
    let refused = locks.acquire_with("a", &Options::new().wait(Wait::Forever));
    let is_ours = matches!(refused, Err(AcquireError::HeldByThisProcess { .. }));
    assert!(is_ours, "its byte is locked: {refused:?}");
    drop(theirs);
    locks
        .try_acquire("a")
        .expect("its byte is free")
        .release()
        .expect("a release");
}

#[test]
fn the_byte_says_whether_a_claim_of_this_process_counts() {
    Place::new().daemon("second").ends();
}

fn guard_file(guard: &Guard, place: &Path) -> std::io::Result<std::fs::File> {
    std::fs::File::open(place.join("locks").join(format!("{}.tenure", guard.name())))
}

#[test]
fn a_lock_is_held_on_by_another_user() {
    if !is_root() {
        return;
    }
    at_once(["setuid", "seteuid"], |how| {
        let place = Place::new();
        let mut daemon = place.daemon(&format!("user {how}"));
        daemon.did("another user");
        std::fs::rename(
            place.0.path().join("locks/lost.tenure"),
            place.0.path().join("locks/lost.old"),
        )
        .expect("another name");
        #[expect(clippy::disallowed_methods, reason = "a hand does")]
        std::fs::remove_file(place.0.path().join("locks/lost.old")).expect("it is gone");
        daemon.goes_on().did("hold");
        let list = place.0.path().join("locks/a.tenure");
        let renewals = |path: &Path| std::fs::metadata(path).and_then(|it| it.modified());
        let before = renewals(&list).expect("a file");
        eventually(|| renewals(&list).is_ok_and(|now| now > before));
        assert!(place.is_held("a"), "{how}");
        daemon.goes_on().did("release");
        let freed = place
            .locks()
            .acquire_with("a", &Options::new().wait(Wait::No));
        freed.expect("a free lock").release().expect("a release");
        daemon.goes_on().ends();
    });
}
