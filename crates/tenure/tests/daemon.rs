//! What daemons do under a lock: another root, another user, a copy by fork, another program by exec.
//!
//! This test program is started again as the daemon. It says what it did line by line, and goes on when it is told.

#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, reason = "a test says what it expects by failing")]
#![allow(unsafe_code, reason = "what daemons do has no safe calls")]

use nix::libc;
use std::ffi::CString;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;
use tenure::guard::{AcquireError, Guard, GuardState, LockManager, Options, Wait};
use tenure::resume::{ResumeLockError, ResumeLockManager};
use tenure::store::StoreError;
use tenure_engine::clock::{instant, since};

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
                // The same path is there in the jail.
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

fn ask_to_stop(place: &Place, name: &str) {
    use tenure::store::Verbs;
    use tenure::store::file::{FileStore, ThreadSleeper};
    use tenure_engine::clock::{Clock, SystemClock};
    let here = tenure_engine::process::Identity::current().host;
    let now = SystemClock::new(here.boot_id.as_deref()).now();
    let store = FileStore::new(place.0.path().join("locks"), here, Box::new(ThreadSleeper));
    let name = tenure::guard::LockName::new(name).expect("a name");
    let asked = store.cancel(&name, "somebody".into(), None, &now);
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
