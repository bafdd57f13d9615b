//! What the file store promises beyond the contract of all stores: which places it refuses, what it
//! leaves on disk, and how it behaves on a hostile or broken machine.
//!
//! Rights, links, pipes, mounted disks, stopped processes and inherited locks are Unix's own, and so
//! are their tests.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects by failing"
)]
#![allow(clippy::print_stdout, reason = "a test that is skipped says why")]

#[cfg(unix)]
use rustix::fs::{AtFlags, CWD, FileType, Mode, mknodat, symlinkat};
#[cfg(unix)]
use rustix::process::{Pid, Signal, WaitOptions};
use std::fs;
use std::io;
#[cfg(unix)]
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
#[cfg(unix)]
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};
#[cfg(unix)]
use tenure_core::LivenessLock;
use tenure_core::{
    Claim, Death, Entering, Entry, Event, Force, Holder, Host, Kept, Kind, Left, LockName, Now,
    Ownership, Patience, Policy, Predecessor, Released, Renewal, Request, RequestId, StaleReason,
    Standing, Takeover, TryGrant,
};
#[cfg(unix)]
use tenure_os::cancel::{self, Cancel};
use tenure_os::clock::{Clock, SystemClock, instant};
use tenure_os::process::Identity;
use tenure_store::Handle;
use tenure_store::Verbs;
use tenure_store::contract::{About, Ask, Step, Which};
use tenure_store::file::{BorrowedDescriptor, ByteLock, FileStore, Sleeper, ThreadSleeper};
#[cfg(unix)]
use tenure_store::file::{Byte, Mode as LockMode};
use tenure_store::profile::{Native, Profile};
use tenure_store::verbs::Entered;
use tenure_store::{Content, Store, StoreError, Wake};

const TTL_MS: u64 = 600_000;

/// A claim of a caller in this process.
type ClaimHandle = Box<dyn Handle>;

/// A folder for locks, one lock name, and the host that the tests use.
struct Place {
    scratch: tempfile::TempDir,
    host: Host,
    name: LockName,
}

impl Place {
    fn new() -> Self {
        Self {
            scratch: tempfile::tempdir().expect("a folder"),
            host: Identity::current().host,
            name: LockName::new("lock").expect("an accepted name"),
        }
    }

    /// The folder, made and empty.
    fn with_folder() -> Self {
        let place = Self::new();
        fs::create_dir(place.folder()).expect("a folder");
        #[cfg(unix)]
        place.chmod(&place.folder(), 0o700);
        place
    }

    fn folder(&self) -> PathBuf {
        self.scratch.path().join("locks")
    }

    fn file(&self) -> PathBuf {
        self.folder().join("lock.tenure")
    }

    #[cfg(unix)]
    fn chmod(&self, path: &Path, mode: u32) {
        assert!(path.starts_with(self.scratch.path()), "only our own files");
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a new mode");
    }

    fn store(&self) -> FileStore {
        self.store_in(&self.folder())
    }

    fn store_in(&self, folder: &Path) -> FileStore {
        FileStore::new(folder, self.host.clone(), Box::new(ThreadSleeper))
    }

    fn now(&self) -> Now {
        SystemClock::new(self.host.boot_id.as_deref()).now()
    }

    fn request(&self, id: &str) -> Request {
        Request {
            holder: Holder {
                facts: Vec::new(),
                request_id: RequestId::new(id).expect("an accepted id"),
                actor: "test".to_owned(),
                process: None,
                command: None,
                host: self.host.clone().into(),
                why: "testing".to_owned(),
            },
            kind: Kind::Kernel,
            ttl_ms: TTL_MS,
            force: Force::No,
            patience: Patience::Queue,
            terms: tenure_core::Terms::default(),
        }
    }

    fn forced(&self, force: Force) -> Request {
        Request {
            force,
            ..self.request("forcing")
        }
    }

    fn try_enter(&self, request: Request) -> Result<Entered, StoreError> {
        self.store().enter(&self.name, request, &self.now())
    }

    fn enter(&self, request: Request) -> Entered {
        self.try_enter(request).expect("an entered claim")
    }

    fn granted(&self, id: &str) -> (ClaimHandle, u64) {
        let entered = self.enter(self.request(id));
        match entered.entering {
            Entering::Granted { token, .. } => (entered.handle.expect("a handle"), token),
            other => panic!("expected a grant, saw {other:?}"),
        }
    }

    fn queued(&self, id: &str) -> (ClaimHandle, Predecessor) {
        let entered = self.enter(self.request(id));
        match entered.entering {
            Entering::Queued { behind, .. } => (entered.handle.expect("a handle"), behind),
            other => panic!("expected a place in the queue, saw {other:?}"),
        }
    }

    fn content(&self) -> Content {
        let reading = self.store().read(&self.name, None);
        reading.expect("a reading").content
    }

    fn list(&self) -> Entry {
        match self.content() {
            Content::Whole { entry, .. } => entry,
            Content::Unreadable { why, .. } => panic!("unreadable: {why}"),
        }
    }

    fn tickets(&self) -> Vec<u64> {
        let entry = self.list();
        entry.claims.iter().map(|claim| claim.ticket).collect()
    }

    /// The names of all files in the folder.
    fn files(&self) -> Vec<String> {
        let mut files: Vec<String> = fs::read_dir(self.folder())
            .expect("a folder")
            .map(|file| file.expect("a file").file_name())
            .map(|name| name.into_string().expect("a name in text"))
            .collect();
        // On a system without POSIX rules, a removed file keeps a name until no process has it open.
        // That name means nothing to any program.
        files.retain(|file| Path::new(file).extension().is_none_or(|end| end != "gone"));
        files.sort();
        files
    }

    /// Every call that touches the lock's file, by its name.
    fn every_call(&self) -> Vec<(&'static str, Result<(), StoreError>)> {
        let store = self.store();
        let owns = |_: &Claim| Ownership::Shown;
        let (name, now) = (&self.name, self.now());
        vec![
            ("read", store.read(name, None).map(drop)),
            (
                "enter",
                store.enter(name, self.request("other"), &now).map(drop),
            ),
            ("renew", store.renew_owned(name, &owns, &now).map(drop)),
            ("release", store.release_owned(name, &owns, &now).map(drop)),
            ("clean", store.clean(name, &now, false).map(drop)),
        ]
    }
}

/// Whether a file that is removed by hand stays as it was while a process has it open, as under Wine.
/// Windows itself takes its name away at once.
fn keeps_removed_files() -> bool {
    let keeps = std::env::var_os("TENURE_TESTS_UNDER_WINE").is_some();
    if keeps {
        println!("skipped: Wine does not remove files that are open");
    }
    keeps
}

/// Removes a file, as a user would who does not know of the locks.
fn remove_by_hand(file: &Path) {
    #[cfg(unix)]
    rustix::fs::unlinkat(CWD, file, AtFlags::empty()).expect("a removal");
    #[cfg(windows)]
    #[allow(clippy::disallowed_methods, reason = "by hand")]
    fs::remove_file(file).expect("a removal");
}

#[cfg(unix)]
fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).expect("metadata").mode() & 0o7777
}

#[cfg(unix)]
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The number of a user and a group that own nothing.
#[cfg(unix)]
const OTHER_USER: u32 = 65_534;

/// Runs something as a user who may not override permissions.
#[cfg(unix)]
fn without_privileges<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|threads| {
        let work = threads.spawn(|| {
            if is_root() {
                // For this thread alone, which ends with the work.
                let other = rustix::process::Uid::from_raw(OTHER_USER);
                rustix::thread::set_thread_res_uid(other, other, other).expect("another uid");
            }
            work()
        });
        work.join().expect("the work")
    })
}

// --- Places that are refused -------------------------------------------------------------------

#[cfg(unix)]
#[test]
fn a_folder_that_everybody_may_write_needs_the_sticky_bit() {
    let place = Place::with_folder();
    place.chmod(&place.folder(), 0o777);
    for (call, answer) in place.every_call() {
        assert!(
            matches!(answer, Err(StoreError::Unsafe { .. })),
            "{call}: {answer:?}"
        );
    }
    assert!(place.files().is_empty(), "a refusal creates nothing");
    place.chmod(&place.folder(), 0o1777);
    let (handle, _) = place.granted("holder");
    assert_eq!(mode_of(&place.file()), 0o600, "the file is ours alone");
    drop(handle);
}

#[cfg(unix)]
#[test]
fn in_a_shared_folder_a_file_of_somebody_else_is_refused() {
    if !is_root() {
        println!("skipped: only root can give a file away");
        return;
    }
    let place = Place::with_folder();
    place.chmod(&place.folder(), 0o1777);
    drop(place.granted("holder"));
    std::os::unix::fs::chown(place.file(), Some(OTHER_USER), None).expect("another owner");
    let before = fs::read(place.file()).expect("the file");
    for (call, answer) in place.every_call() {
        // Entering opens with O_CREAT, which fs.protected_regular may refuse before we do.
        assert!(
            matches!(
                answer,
                Err(StoreError::Unsafe { .. } | StoreError::Permission { .. })
            ),
            "{call}: {answer:?}"
        );
    }
    let after = fs::read(place.file()).expect("the file");
    assert_eq!(after, before, "a foreign file is not written to");
}

/// Puts a foreign thing in place of the lock's file.
#[cfg(unix)]
type Plant<'a> = &'a dyn Fn(&Place);

#[cfg(unix)]
#[test]
fn what_stands_in_place_of_a_lock_file_is_refused_and_left_alone() {
    let victim = |place: &Place| {
        let victim = place.scratch.path().join("victim");
        fs::write(&victim, "precious").expect("a file");
        victim
    };
    let plant: [(&str, Plant<'_>); 6] = [
        ("a link to a file", &|place| {
            symlinkat(victim(place), CWD, place.file()).expect("a link");
        }),
        ("a link to nowhere", &|place| {
            let nowhere = place.scratch.path().join("nowhere");
            symlinkat(nowhere, CWD, place.file()).expect("a link");
        }),
        ("a second name", &|place| {
            fs::hard_link(victim(place), place.file()).expect("a hard link");
        }),
        ("a FIFO", &|place| {
            mknodat(
                CWD,
                place.file(),
                FileType::Fifo,
                Mode::RUSR | Mode::WUSR,
                0,
            )
            .expect("a FIFO");
        }),
        ("a socket", &|place| {
            std::os::unix::net::UnixListener::bind(place.file()).expect("a socket");
        }),
        ("a folder", &|place| {
            fs::create_dir(place.file()).expect("a folder");
        }),
    ];
    for (what, plant) in plant {
        let place = Place::with_folder();
        plant(&place);
        let before = fs::symlink_metadata(place.file()).expect("what was planted");
        for (call, answer) in place.every_call() {
            assert!(
                matches!(answer, Err(StoreError::Unsafe { .. })),
                "{what}: {call}: {answer:?}"
            );
        }
        let forced = place.try_enter(place.forced(Force::Confirmed));
        assert!(forced.is_err(), "{what}: force does not help");
        let after = fs::symlink_metadata(place.file()).expect("what was planted");
        assert_eq!(
            (before.ino(), before.mode(), before.len()),
            (after.ino(), after.mode(), after.len()),
            "{what} is left as it was"
        );
        let victim = place.scratch.path().join("victim");
        if victim.exists() {
            let text = fs::read_to_string(victim).expect("the victim");
            assert_eq!(text, "precious", "{what}: nothing was written through it");
        }
        assert!(
            !place.scratch.path().join("nowhere").exists(),
            "{what}: nothing was made through it"
        );
    }
}

#[test]
fn a_file_in_place_of_the_folder_is_an_error_and_not_a_free_lock() {
    let place = Place::new();
    fs::write(place.folder(), "a file").expect("a file");
    for (call, answer) in place.every_call() {
        assert!(answer.is_err(), "{call}: {answer:?}");
    }
}

// --- Content that is not ours ------------------------------------------------------------------

/// Content that a lock's file may have and that is no list.
fn foreign_contents() -> Vec<(&'static str, Vec<u8>)> {
    let mut torn = vec![b'x'; 4096];
    torn.splice(..30, *b"tenure 1 7 100 0123456789abcde");
    vec![
        ("a PID file", b"12345\n".to_vec()),
        ("two torn slots", torn),
        ("noise", (0..=255).cycle().take(10_000).collect()),
        ("text", b"{\"holder\": \"somebody\"}\n".repeat(50)),
    ]
}

#[test]
fn a_record_that_cannot_be_read_is_left_as_it_is_until_force_replaces_it() {
    for (what, content) in foreign_contents() {
        let place = Place::with_folder();
        fs::write(place.file(), &content).expect("a file");
        assert!(
            matches!(place.content(), Content::Unreadable { .. }),
            "{what}: {:?}",
            place.content()
        );
        for (call, answer) in place.every_call() {
            let expected = match call {
                "read" => answer.is_ok(),
                _ => matches!(answer, Err(StoreError::Unreadable { .. })),
            };
            assert!(expected, "{what}: {call}: {answer:?}");
            let after = fs::read(place.file()).expect("the file");
            assert_eq!(after, content, "{what}: {call} leaves every byte");
        }
        let entered = place.enter(place.forced(Force::Confirmed));
        assert!(
            matches!(entered.entering, Entering::Granted { .. }),
            "{what}: {:?}",
            entered.entering
        );
        let corrupt = Event::Stolen {
            why: Takeover::Corrupt,
            previous: None,
            record: Vec::new(),
        };
        assert!(
            entered.events.contains(&corrupt),
            "{what}: replacing is loud: {:?}",
            entered.events
        );
        let handle = entered.handle.expect("a handle");
        assert_eq!(place.tickets(), [handle.ticket()], "{what}: a whole list");
        let (waiter, _) = place.queued("waiter");
        assert_eq!(place.tickets(), [handle.ticket(), waiter.ticket()]);
        let left = place
            .store()
            .release(&*handle, &place.now())
            .expect("a release");
        assert!(matches!(left, Left::Released { .. }), "{what}: {left:?}");
    }
}

/// The list may be newer than any that this build finds in the file, so force does not help either.
#[test]
fn a_lock_file_of_another_format_is_refused_by_every_call_and_stays_as_it_is() {
    let refused = |place: &Place, call: &str, answer: Result<(), StoreError>| {
        let Err(error @ StoreError::Format { .. }) = answer else {
            panic!("{call}: {answer:?}");
        };
        let said = error.to_string();
        let here = format!(
            "this is tenure {}, which knows format 1",
            env!("CARGO_PKG_VERSION")
        );
        for part in ["has format 2 of lock files, written by tenure 0.9.0", &here] {
            assert!(said.contains(part), "{call}: {said}");
        }
        assert!(
            said.starts_with(&place.folder().display().to_string()),
            "{call}: {said}"
        );
    };
    let later = b"tenure 2 8 3 0123456789abcdef 0.9.0\nx\n\n";
    for is_beside_a_list in [false, true] {
        let place = Place::with_folder();
        if is_beside_a_list {
            let (handle, _) = place.granted("holder");
            place
                .store()
                .release(&*handle, &place.now())
                .expect("a release");
        }
        let mut content = fs::read(place.file()).unwrap_or_default();
        content.splice(..later.len().min(content.len()), *later);
        fs::write(place.file(), &content).expect("a file");
        for (call, answer) in place.every_call() {
            refused(&place, call, answer);
        }
        for force in [Force::Asked, Force::Confirmed] {
            refused(
                &place,
                "force",
                place.try_enter(place.forced(force)).map(drop),
            );
        }
        assert_eq!(fs::read(place.file()).expect("the file"), content);
    }
    let place = Place::new();
    let (handle, _) = place.granted("holder");
    place
        .store()
        .release(&*handle, &place.now())
        .expect("a release");
    fs::write(place.folder().join(".floor.tenure"), later).expect("a floor");
    let cleaned = place.store().clean(&place.name, &place.now(), false);
    refused(&place, "clean", cleaned.map(drop));
    // Any member of a shared folder can write such a floor, so it keeps no new lock out.
    remove_by_hand(&place.file());
    let store = place.store();
    let entered = store.enter(&place.name, place.request("anew"), &place.now());
    assert!(entered.expect("a new lock").handle.is_some());
    let warning = store.warning().expect("an answer").expect("a warning");
    assert!(warning.contains("has format 2"), "{warning}");
}

#[test]
fn a_change_writes_over_what_it_does_not_understand_only_where_it_says_so() {
    let place = Place::with_folder();
    fs::write(place.file(), "garbage").expect("a file");
    let now = place.now();
    let ask = Ask::new(&place.name, About::All, &now);
    let written = place.store().transact(&ask, &mut |_| Step::write_if(true));
    assert!(matches!(written, Err(StoreError::Misused { .. })));
    let left = fs::read_to_string(place.file()).expect("a file");
    assert_eq!(left, "garbage");
}

#[test]
fn force_does_not_replace_a_record_while_somebody_alive_stands_in_it() {
    let place = Place::with_folder();
    let (holder, _) = place.granted("holder");
    // Damaged in place, as by an editor or a bad disk: the holder's liveness lock is still held.
    fs::write(place.file(), "damaged").expect("a damaged file");
    for force in [Force::No, Force::Asked, Force::Confirmed] {
        let answer = place.try_enter(place.forced(force));
        assert!(
            matches!(answer, Err(StoreError::Unreadable { .. })),
            "{force:?} lets a second one in: {answer:?}"
        );
    }
    drop(holder);
    let entered = place.enter(place.forced(Force::Confirmed));
    assert!(
        matches!(entered.entering, Entering::Granted { .. }),
        "once the holder is gone: {:?}",
        entered.entering
    );
}

#[test]
fn a_record_damaged_under_its_holder_is_an_error_and_no_loss() {
    let place = Place::with_folder();
    let (holder, _) = place.granted("holder");
    let (waiter, _) = place.queued("waiter");
    let whole = fs::read(place.file()).expect("the file");
    fs::write(place.file(), "damaged").expect("a damaged file");
    let store = place.store();
    let now = place.now();
    let answers = [
        ("verify", store.verify(&*holder, &place.now()).map(drop)),
        ("renew", store.renew(&*holder, &now).map(drop)),
        ("try_grant", store.try_grant(&*waiter, &now).map(drop)),
    ];
    for (call, answer) in answers {
        assert!(
            matches!(answer, Err(StoreError::Unreadable { .. })),
            "{call}: {answer:?}"
        );
    }
    fs::write(place.file(), whole).expect("the file as it was");
    let renewed = store.renew(&*holder, &now).expect("an answer");
    assert!(matches!(renewed, Renewal::Renewed { .. }), "{renewed:?}");
}

#[test]
fn a_file_that_was_emptied_under_a_holder_is_not_a_free_lock() {
    let place = Place::with_folder();
    let (holder, _) = place.granted("holder");
    fs::write(place.file(), "").expect("an empty file");
    for (call, answer) in place.every_call() {
        let expected = match call {
            "read" => answer.is_ok(),
            _ => matches!(answer, Err(StoreError::Unreadable { .. })),
        };
        assert!(expected, "{call}: {answer:?}");
    }
    let content = place.content();
    let is_free = matches!(content, Content::Whole { .. });
    assert!(!is_free, "{content:?}");
    let forced = place.try_enter(place.forced(Force::Confirmed));
    assert!(forced.is_err(), "force lets a second one in: {forced:?}");
    drop(holder);
    place.granted("next");
}

/// A power cut may tear both pages. The next boot begins anew where all that is left says that every claim ended with its
/// machine, and refuses in every other case.
#[test]
fn a_torn_list_is_begun_anew_only_after_the_end_of_all_its_claims_table() {
    let lives = Some(tenure_core::Process {
        pid: std::process::id(),
        started: tenure_os::process::start_time(std::process::id()),
    });
    let boot = |id: &str, machine: Option<&str>| {
        let host = Identity::current().host;
        Host {
            boot_id: Some(id.to_owned()),
            machine_id: machine.map(str::to_owned).or(host.machine_id),
            ..host
        }
    };
    let (ended, now) = (boot("ended", None), boot("now", None));
    let tears_frames: fn(&str) -> String = |text| text.replace("tenure 1 ", "tenure x ");
    let tears_claims: fn(&str) -> String = |text| text.replace("\"ttl_ms\"", "\"ttl_mx\"");
    for (what, host, process, tears, is_begun) in [
        ("of an ended boot", &ended, lives, tears_claims, true),
        ("no header is left", &ended, lives, tears_frames, false),
        ("no process", &ended, None, tears_claims, false),
        ("of this boot", &now, lives, tears_claims, false),
        (
            "of another machine",
            &boot("ended", Some("another")),
            lives,
            tears_claims,
            false,
        ),
    ] {
        let mut place = Place::with_folder();
        place.host = host.clone();
        for id in ["first", "second", "third"] {
            let mut request = place.request(id);
            (request.kind, request.holder.process) = (Kind::Detached, process);
            request.terms.mode = tenure_core::Mode::Shared;
            let entered = place.store().enter(&place.name, request, &place.now());
            let entered = entered.expect("an answer").entering;
            assert!(matches!(entered, Entering::Granted { .. }), "{what}");
        }
        let text = fs::read_to_string(place.file()).expect("two pages");
        fs::write(place.file(), tears(&text)).expect("torn pages");
        place.host = now.clone();
        let read = place.store().read(&place.name, None).expect("a reading");
        let is_readable = matches!(read.content, Content::Whole { .. });
        assert_eq!(is_readable, is_begun, "{what}: as a look sees it");
        let next = (place.store()).enter(&place.name, place.request("next"), &place.now());
        match next.map(|entered| entered.entering) {
            Ok(Entering::Granted { .. }) => assert!(is_begun, "{what}"),
            Err(StoreError::Unreadable { .. }) => assert!(!is_begun, "{what}"),
            other => panic!("{what}: {other:?}"),
        }
    }
}

/// A caller that has its bytes already is about to write its claim.
#[test]
fn a_reader_waits_for_the_list_of_an_empty_file_in_which_a_process_has_a_place() {
    let place = Place::with_folder();
    let (holder, _) = place.granted("holder");
    let list = fs::read(place.file()).expect("the list");
    fs::write(place.file(), "").expect("an empty file");
    thread::scope(|scope| {
        let reader = scope.spawn(|| place.tickets());
        thread::sleep(Duration::from_millis(100));
        fs::write(place.file(), list).expect("the list");
        assert_eq!(reader.join().expect("a reading"), [holder.ticket()]);
    });
}

/// How many bytes this thread has read so far.
#[cfg(unix)]
fn bytes_read() -> u64 {
    let io = fs::read_to_string("/proc/thread-self/io").expect("the thread's counters");
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.and_then(|number| number.parse().ok()).expect("rchar")
}

#[cfg(unix)]
#[test]
fn a_huge_file_is_not_read_whole() {
    // Ten times what is read at most.
    const HUGE: usize = 80 << 20;
    let place = Place::with_folder();
    fs::write(place.file(), vec![b'x'; HUGE]).expect("a huge file");
    let before = bytes_read();
    assert!(matches!(place.content(), Content::Unreadable { .. }));
    let answer = place.try_enter(place.request("holder"));
    assert!(matches!(answer, Err(StoreError::Unreadable { .. })));
    let read = bytes_read() - before;
    assert!(
        read < (HUGE / 2) as u64,
        "two calls read {read} of {HUGE} bytes"
    );
    // A good list with something behind it is a good list; the next write removes what is behind it.
    let place = Place::with_folder();
    let (holder, _) = place.granted("holder");
    let mut content = fs::read(place.file()).expect("the file");
    content.resize(HUGE, b'x');
    fs::write(place.file(), content).expect("a huge file");
    assert_eq!(place.tickets(), [holder.ticket()]);
    let (waiter, _) = place.queued("waiter");
    assert_eq!(place.tickets(), [holder.ticket(), waiter.ticket()]);
}

// --- What is left on disk ----------------------------------------------------------------------

#[cfg(unix)]
#[test]
fn folders_and_files_are_ours_alone_whatever_the_umask() {
    // Folders above are not tenure's: they are for others to look into, where the umask says so.
    for (umask, above) in [(0, 0o755), (0o022, 0o755), (0o077, 0o700), (0o777, 0o700)] {
        let place = Place::new();
        let deep = place.scratch.path().join("a/b/locks");
        let before = rustix::process::umask(Mode::from_raw_mode(umask));
        let entered =
            place
                .store_in(&deep)
                .enter(&place.name, place.request("holder"), &place.now());
        rustix::process::umask(before);
        entered.expect("a grant");
        for (folder, mode) in [("a", above), ("a/b", above), ("a/b/locks", 0o700)] {
            let made = mode_of(&place.scratch.path().join(folder));
            assert_eq!(made, mode, "{folder} under {umask:o}");
        }
        assert_eq!(mode_of(&deep.join("lock.tenure")), 0o600);
    }
    let beside = Place::new();
    let before = rustix::process::umask(Mode::empty());
    let simple = beside.try_enter(beside.request("holder"));
    rustix::process::umask(before);
    simple.expect("a grant");
    assert_eq!(mode_of(&beside.folder()), 0o700);
    assert_eq!(mode_of(&beside.file()), 0o600);
}

#[cfg(unix)]
#[test]
fn what_others_were_given_of_a_file_of_ours_is_left_to_them() {
    let place = Place::with_folder();
    drop(place.granted("first"));
    for mode in [0o640, 0o664] {
        place.chmod(&place.file(), mode);
        drop(place.granted("next"));
        assert_eq!(mode_of(&place.file()), mode);
    }
}

/// As where the folder became the group's after the file was made.
#[cfg(unix)]
#[test]
fn a_file_in_a_folder_of_a_group_gets_the_group_s_rights_from_a_call_that_may_make_it() {
    let place = Place::with_folder();
    let (handle, _) = place.granted("first");
    place.chmod(&place.folder(), 0o2770);
    let renewed = place.store().renew(&*handle, &place.now());
    assert!(
        matches!(renewed, Ok(Renewal::Renewed { .. })),
        "{renewed:?}"
    );
    assert_eq!(place.tickets(), [handle.ticket()]);
    assert_eq!(mode_of(&place.file()), 0o600, "neither makes a file");
    drop(handle);
    drop(place.granted("next"));
    assert_eq!(mode_of(&place.file()), 0o660);
    place.chmod(&place.folder(), 0o2750);
    remove_by_hand(&place.file());
    drop(place.granted("last"));
    assert_eq!(mode_of(&place.file()), 0o640, "the group may look");
}

/// The owner of a folder could not use a file of root's there.
#[cfg(unix)]
#[test]
fn root_gives_what_it_makes_to_the_owner_of_a_folder_that_is_one_user_s() {
    if !is_root() {
        println!("skipped: only root can give a file away");
        return;
    }
    let owner_of = |path: &Path| fs::metadata(path).expect("metadata").uid();
    for (mode, owner) in [
        (0o700, OTHER_USER),
        (0o755, OTHER_USER),
        (0o2770, 0),
        (0o2750, OTHER_USER),
        (0o1777, 0),
    ] {
        let place = Place::with_folder();
        std::os::unix::fs::chown(place.folder(), Some(OTHER_USER), None).expect("another owner");
        place.chmod(&place.folder(), mode);
        drop(place.granted("holder"));
        assert_eq!(owner_of(&place.file()), owner, "{mode:o}");
        remove_by_hand(&place.file());
        fs::write(place.file(), "").expect("an empty file");
        place.chmod(&place.file(), 0o600);
        drop(place.granted("holder"));
        assert_eq!(owner_of(&place.file()), 0, "{mode:o}: it was there");
    }
    let place = Place::new();
    drop(place.granted("holder"));
    std::os::unix::fs::chown(place.folder(), Some(OTHER_USER), None).expect("another owner");
    drop(place.granted("next"));
    assert_eq!(owner_of(&place.file()), 0, "it has a content of root's");
}

#[cfg(unix)]
#[test]
fn a_file_that_may_not_be_opened_is_named_for_what_it_is() {
    if !is_root() {
        println!("skipped: only root can be two users");
        return;
    }
    let place = Place::with_folder();
    place.chmod(place.scratch.path(), 0o755);
    fs::write(place.file(), "").expect("a file");
    let refused = || {
        without_privileges(|| {
            let read = place.store().read(&place.name, None);
            match read.map(drop).expect_err("a refusal") {
                StoreError::Permission { doing, .. } => doing.to_owned(),
                StoreError::Unsafe { why, .. } => why,
                other => panic!("{other:?}"),
            }
        })
    };
    place.chmod(&place.folder(), 0o755);
    for mode in [0o600, 0o400] {
        place.chmod(&place.file(), mode);
        assert_eq!(refused(), "opening the lock", "{mode:o}");
    }
    // The thread keeps its group, which is the folder's.
    place.chmod(&place.folder(), 0o2770);
    assert!(
        refused().contains("keeps it from the group"),
        "{}",
        refused()
    );
    place.chmod(&place.file(), 0o660);
    std::os::unix::fs::chown(place.file(), None, Some(OTHER_USER)).expect("another group");
    assert_eq!(refused(), "opening the lock", "another group's");
    place.chmod(&place.folder(), 0o755);
    remove_by_hand(&place.file());
    mknodat(CWD, place.file(), FileType::Fifo, Mode::empty(), 0).expect("a FIFO");
    assert_eq!(refused(), "it is not a regular file");
}

#[cfg(unix)]
#[test]
fn a_folder_of_another_user_that_no_caller_named_is_neither_used_nor_made_below() {
    if !is_root() {
        println!("skipped: only root can give a folder away");
        return;
    }
    for is_there in [true, false] {
        let place = Place::with_folder();
        if !is_there {
            fs::remove_dir(place.folder()).expect("an empty folder");
        }
        let theirs = if is_there {
            place.folder()
        } else {
            place.scratch.path().to_owned()
        };
        std::os::unix::fs::chown(theirs, Some(OTHER_USER), None).expect("another owner");
        let entered =
            place
                .store()
                .found()
                .enter(&place.name, place.request("holder"), &place.now());
        assert!(
            matches!(entered, Err(StoreError::Unsafe { .. })),
            "{is_there}: {entered:?}"
        );
        assert_eq!(place.folder().exists(), is_there);
        drop(place.granted("named"));
    }
}

#[cfg(unix)]
#[test]
fn the_machine_s_folder_is_made_by_no_call() {
    let place = Place::new();
    let machine_s = || place.store().of_machine();
    let enter = || machine_s().enter(&place.name, place.request("holder"), &place.now());
    let read = machine_s().read(&place.name, None);
    assert!(matches!(read, Err(StoreError::Missing { .. })), "{read:?}");
    let entered = enter();
    assert!(
        matches!(entered, Err(StoreError::Missing { .. })),
        "{entered:?}"
    );
    fs::write(place.folder(), "").expect("a file in its place");
    let entered = enter();
    assert!(
        matches!(&entered, Err(StoreError::Unsafe { why, .. }) if why.contains("administrator")),
        "{entered:?}"
    );
    let entered = place.try_enter(place.request("holder"));
    assert!(
        matches!(entered, Err(StoreError::Io { .. })),
        "another folder's administrator is its user: {entered:?}"
    );
    remove_by_hand(&place.folder());
    fs::create_dir(place.folder()).expect("a folder");
    place.chmod(&place.folder(), 0o700);
    enter().expect("a grant");
}

/// A run tells its command the folder alone, so a caller may not know whose it is.
#[test]
fn a_folder_that_the_machine_names_is_made_by_no_call() {
    let place = Place::new();
    let enter = |store: FileStore| store.enter(&place.name, place.request("first"), &place.now());
    let refused = enter(place.store().asking(|_| true));
    assert!(
        matches!(refused, Err(StoreError::Missing { .. })),
        "{refused:?}"
    );
    assert!(!place.folder().exists(), "nothing is made");
    enter(place.store().asking(|_| false)).expect("a claim");
    enter(place.store().asking(|_| true)).expect("a claim in a folder that is there");
}

/// With a separator behind its folder, and without.
#[test]
fn a_lock_is_shown_by_its_path() {
    let place = Place::new();
    drop(place.granted("holder"));
    for end in ["", std::path::MAIN_SEPARATOR_STR] {
        let folder = format!("{}{end}", place.folder().display());
        let store = place.store_in(Path::new(&folder));
        let reading = store.read(&place.name, None).expect("a reading");
        assert_eq!(Path::new(&reading.place), place.file());
        assert_eq!(reading.place, place.file().display().to_string());
    }
}

#[cfg(unix)]
#[test]
fn reading_needs_no_right_to_write_and_creates_nothing() {
    let place = Place::with_folder();
    let (holder, _) = place.granted("holder");
    place.chmod(place.scratch.path(), 0o755);
    place.chmod(&place.file(), 0o444);
    place.chmod(&place.folder(), 0o555);
    let other = LockName::new("other").expect("an accepted name");
    let free = Content::Whole {
        entry: Entry::default(),
        evidence: Vec::new(),
    };
    without_privileges(|| {
        let store = place.store();
        match store.read(&place.name, None).expect("a reading").content {
            Content::Whole { entry, evidence } => {
                assert_eq!(entry.claims.len(), 1, "the holder is seen");
                let liveness_locks: Vec<_> =
                    evidence.iter().map(|seen| seen.liveness_lock).collect();
                assert_eq!(liveness_locks, [LivenessLock::Held], "and that it is alive");
            }
            Content::Unreadable { why, .. } => panic!("unreadable: {why}"),
        }
        let absent = store.read(&other, None).expect("a reading");
        assert_eq!(absent.content, free, "an absent lock is free");
        let elsewhere = place.store_in(&place.folder().join("deeper/folder"));
        let absent = elsewhere.read(&place.name, None).expect("a reading");
        assert_eq!(absent.content, free, "an absent folder holds nothing");
        let mut names = Vec::new();
        store
            .names(Which::Locks, &mut |name| names.push(name))
            .expect("names");
        assert_eq!(names, std::slice::from_ref(&place.name));
        let seen = store.read(&place.name, None).expect("a reading");
        let soon = Some(instant() + Duration::from_millis(20));
        let woken = store.watch(&place.name, &seen, &place.now(), soon);
        assert_eq!(woken.expect("a watch"), Wake::Expired, "watching works too");
        for name in [&place.name, &other] {
            let entered = store.enter(name, place.request("other"), &place.now());
            assert!(
                matches!(entered, Err(StoreError::Permission { .. })),
                "{name}: {entered:?}"
            );
        }
    });
    assert_eq!(place.files(), ["lock.tenure"], "nothing was created");
    place.chmod(&place.folder(), 0o700);
    drop(holder);
}

#[test]
fn a_removed_lock_leaves_a_floor_that_is_no_lock() {
    let place = Place::new();
    let store = place.store();
    let mut now = place.now();
    let (handle, first) = place.granted("first");
    store.release(&*handle, &now).expect("a release");
    let cleaned = store.clean(&place.name, &now, false).expect("a cleaning");
    assert!(cleaned.removed);
    assert_eq!(place.files(), [".floor.tenure"]);
    #[cfg(unix)]
    assert_eq!(mode_of(&place.folder().join(".floor.tenure")), 0o600);
    let mut names = Vec::new();
    store
        .names(Which::Locks, &mut |name| names.push(name))
        .expect("names");
    assert_eq!(names, [], "the floor is not listed");
    // Another name than the removed one: the floor belongs to the folder.
    now.wall_us = 1;
    let other = LockName::new("other").expect("an accepted name");
    let entered = store.enter(&other, place.request("second"), &now);
    match entered.expect("a grant").entering {
        Entering::Granted { ticket, token } => {
            assert!(first < ticket && ticket < token, "{first} {ticket} {token}");
        }
        other => panic!("expected a grant, saw {other:?}"),
    }
}

#[cfg(unix)]
#[test]
fn in_a_shared_folder_the_floor_of_one_user_locks_nobody_out() {
    if !is_root() {
        println!("skipped: only root can be two users");
        return;
    }
    let place = Place::with_folder();
    place.chmod(place.scratch.path(), 0o755);
    place.chmod(&place.folder(), 0o1777);
    let (handle, _) = place.granted("root");
    let store = place.store();
    store.release(&*handle, &place.now()).expect("a release");
    let cleaned = store.clean(&place.name, &place.now(), false);
    assert!(cleaned.expect("a cleaning").removed);
    without_privileges(|| {
        let mut last = 0;
        for _ in 0..2 {
            let store = place.store();
            let mut now = place.now();
            now.wall_us = 1;
            let entered = store.enter(&place.name, place.request("nobody"), &now);
            let entered = entered.expect("another user's own lock");
            let Entering::Granted { token, .. } = entered.entering else {
                panic!("expected a grant, saw {:?}", entered.entering);
            };
            assert!(token > last, "{token} after {last}");
            last = token;
            let handle = entered.handle.expect("a handle");
            store.release(&*handle, &now).expect("a release");
            let cleaned = store.clean(&place.name, &now, false);
            assert!(cleaned.expect("a cleaning of one's own").removed);
        }
    });
}

#[test]
fn a_damaged_floor_is_set_aside_by_a_lock_that_begins_anew() {
    let place = Place::new();
    let (handle, _) = place.granted("first");
    let release = |handle: ClaimHandle| place.store().release(&*handle, &place.now());
    release(handle).expect("a release");
    fs::write(place.folder().join(".floor.tenure"), "damaged").expect("a file");
    release(place.granted("again").0).expect("a release");
    remove_by_hand(&place.file());
    let store = place.store();
    assert_eq!(store.warning().expect("an answer"), None, "not asked yet");
    let entered = store.enter(&place.name, place.request("anew"), &place.now());
    let entered = entered.expect("no floor keeps a user out");
    assert!(matches!(entered.entering, Entering::Granted { .. }));
    let warning = store.warning().expect("an answer").expect("a warning");
    assert!(warning.contains(".floor.tenure"), "{warning}");
    store
        .release(&*entered.handle.expect("a handle"), &place.now())
        .expect("a release");
    let cleaned = store.clean(&place.name, &place.now(), false);
    assert!(cleaned.expect("a cleaning").removed, "it mends the floor");
    let anew = place.store();
    let entered = anew.enter(&place.name, place.request("again"), &place.now());
    assert!(entered.expect("a lock").handle.is_some());
    assert_eq!(anew.warning().expect("an answer"), None, "it was mended");
}

/// What is no plain file keeps no user out, and is put away by who may rename it.
#[cfg(unix)]
#[test]
fn floor_that_is_no_file_keeps_no_user_out_table() {
    for what in ["fifo", "folder"] {
        let place = Place::with_folder();
        let floor = place.folder().join(".floor.tenure");
        if what == "fifo" {
            let made = Command::new("mkfifo").arg(&floor).status();
            assert!(made.expect("mkfifo").success());
        } else {
            fs::create_dir(&floor).expect("a folder");
        }
        let (handle, _) = place.granted("first");
        place.store().release(&*handle, &place.now()).expect(what);
        let cleaned = place.store().clean(&place.name, &place.now(), false);
        assert!(cleaned.expect("a cleaning").removed, "{what}");
        let store = place.store();
        let entered = store.enter(&place.name, place.request("next"), &place.now());
        assert!(entered.expect(what).handle.is_some());
        assert_eq!(store.warning().expect("an answer"), None, "{what}: mended");
    }
}

/// As one that a user has put back from a copy.
#[test]
fn a_lock_that_is_removed_once_more_leaves_the_floor_as_it_is() {
    let place = Place::new();
    let (handle, _) = place.granted("holder");
    let store = place.store();
    store.release(&*handle, &place.now()).expect("a release");
    drop(handle);
    let list = fs::read(place.file()).expect("the list");
    let mut floors = Vec::new();
    for _ in 0..2 {
        fs::write(place.file(), &list).expect("the list");
        let cleaned = store.clean(&place.name, &place.now(), false);
        assert!(cleaned.expect("a cleaning").removed);
        floors.push(fs::read(place.folder().join(".floor.tenure")).expect("the floor"));
    }
    assert_eq!(floors[0], floors[1]);
}

#[cfg(unix)]
#[test]
fn those_who_may_make_locks_in_a_folder_may_read_its_floor() {
    let place = Place::with_folder();
    place.chmod(&place.folder(), 0o770);
    let (handle, _) = place.granted("holder");
    let store = place.store();
    store.release(&*handle, &place.now()).expect("a release");
    let cleaned = store.clean(&place.name, &place.now(), false);
    assert!(cleaned.expect("a cleaning").removed);
    let floor = place.folder().join(".floor.tenure");
    assert_eq!(mode_of(&floor), 0o664, "{:o}", mode_of(&floor));
}

#[cfg(unix)]
#[test]
fn a_floor_that_may_not_be_written_stops_those_who_have_to_raise_it() {
    let place = Place::new();
    place.chmod(place.scratch.path(), 0o777);
    without_privileges(|| {
        let (name, store) = (
            |name: &str| LockName::new(name).expect("a name"),
            place.store(),
        );
        let enter = |lock: &str| {
            let entered = store.enter(&name(lock), place.request("user"), &place.now());
            let handle = entered?.handle.expect("a handle");
            store.release(&*handle, &place.now())
        };
        let clean = |lock: &str| store.clean(&name(lock), &place.now(), false);
        let is_refused = |answer: &Result<(), StoreError>| matches!(answer, Err(StoreError::Permission { doing, .. }) if doing.contains("removed locks"));
        for lock in ["lower", "first"] {
            enter(lock).expect("a lock");
        }
        assert!(clean("first").expect("a cleaning").removed);
        let floor = place.folder().join(".floor.tenure");
        place.chmod(&floor, 0o444);
        assert!(clean("lower").expect("it is high enough").removed);
        enter("higher").expect("a lock");
        assert!(is_refused(&clean("higher").map(drop)), "it has to rise");
        place.chmod(&floor, 0o000);
        enter("next").expect("no floor keeps a user out");
        let warning = store.warning().expect("an answer").expect("a warning");
        assert!(warning.contains(" clean`, run by root"), "{warning}");
        place.chmod(&floor, 0o600);
        fs::write(&floor, "").expect("an empty floor");
        place.chmod(&floor, 0o000);
        enter("next").expect("an empty floor says nothing");
    });
}

#[test]
fn a_long_queue_grows_the_file_and_a_short_one_shrinks_it() {
    const CLAIMS: usize = 300;
    let place = Place::new();
    let length = || fs::metadata(place.file()).expect("metadata").len();
    let mut handles = vec![place.granted("holder").0];
    for number in 1..CLAIMS {
        handles.push(place.queued(&format!("w{number}")).0);
    }
    let expected: Vec<u64> = handles.iter().map(|handle| handle.ticket()).collect();
    assert_eq!(place.tickets(), expected, "all of them, in order");
    assert!(
        length() > 64 << 10,
        "{} bytes hold {CLAIMS} claims",
        length()
    );
    assert!(length() <= 1 << 20, "{} bytes", length());
    // From the middle outwards, so that the list takes every length in disorder.
    let store = place.store();
    while handles.len() > 1 {
        let handle = handles.remove(handles.len() / 2);
        let left = store.release(&*handle, &place.now()).expect("a withdrawal");
        assert_eq!(left, Left::Withdrawn);
        if handles.len() % 50 == 0 {
            let expected: Vec<u64> = handles.iter().map(|handle| handle.ticket()).collect();
            assert_eq!(place.tickets(), expected, "the rest stays in order");
        }
    }
    assert_eq!(length(), 4096, "a short list needs one page");
    let left = store
        .release(&*handles[0], &place.now())
        .expect("a release");
    assert!(matches!(left, Left::Released { .. }), "{left:?}");
    assert!(place.tickets().is_empty());
}

/// A holder, and as many waiters as it takes to read the list in parts.
fn crowd(place: &Place) -> Vec<ClaimHandle> {
    let waiters = (1..8).map(|number| place.queued(&format!("w{number}")).0);
    std::iter::once(place.granted("holder").0)
        .chain(waiters)
        .collect()
}

#[test]
fn who_comes_last_in_a_long_queue_reads_its_ends_and_counts_the_others() {
    let place = Place::new();
    let crowd = crowd(&place);
    let entered = place.enter(place.request("last"));
    assert_eq!(entered.unread, crowd.len() - 2, "all but the two ends");
    let behind = Predecessor::LivenessLock {
        ticket: crowd[crowd.len() - 1].ticket(),
    };
    match &entered.entering {
        Entering::Queued { behind: seen, .. } => assert_eq!(*seen, behind),
        other => panic!("expected a place in the queue, saw {other:?}"),
    }
    assert_eq!(
        place.tickets().len(),
        crowd.len() + 1,
        "no claim is left out"
    );
}

#[test]
fn dead_ends_of_a_long_queue_give_nobody_the_turn_of_those_between() {
    let place = Place::new();
    let mut crowd = crowd(&place);
    drop(crowd.remove(0));
    drop(crowd.pop());
    let entered = place.enter(place.request("last"));
    let behind = Predecessor::LivenessLock {
        ticket: crowd[crowd.len() - 1].ticket(),
    };
    match &entered.entering {
        Entering::Queued { behind: seen, .. } => assert_eq!(*seen, behind),
        other => panic!("expected a place in the queue, saw {other:?}"),
    }
    assert_eq!(entered.unread, 0, "what lies between had to be read");
}

#[test]
fn a_waiter_far_from_its_turn_sleeps_behind_the_live_claim_before_it_and_counts_the_others() {
    let place = Place::new();
    let mut crowd = crowd(&place);
    crowd.extend((8..14).map(|number| place.queued(&format!("w{number}")).0));
    let own = crowd.pop().expect("the last waiter");
    let looks = |crowd: &[ClaimHandle]| {
        let tried = place.store().try_grant(&*own, &place.now());
        let tried = tried.expect("a look");
        let behind = Predecessor::LivenessLock {
            ticket: crowd[crowd.len() - 1].ticket(),
        };
        assert_eq!(tried.grant, TryGrant::Behind(behind));
        tried
    };
    let tried = looks(&crowd);
    let front = tried.entry.claims.first().map(|claim| claim.ticket);
    assert_eq!(front, Some(crowd[0].ticket()), "it sees who holds");
    assert_eq!(
        tried.unread,
        crowd.len() - 6,
        "it reads the first five and the one before its own"
    );
    drop(crowd.pop());
    let tried = looks(&crowd);
    assert_eq!(tried.unread, 0, "behind a dead claim it reads all of them");
}

#[test]
fn a_queue_that_is_full_refuses_the_next_and_keeps_the_rest() {
    let place = Place::new();
    let (holder, _) = place.granted("holder");
    let mut handles = Vec::new();
    let full = loop {
        let mut request = place.request("waiter");
        request.holder.why = "w".repeat(20_000);
        match place.try_enter(request) {
            Ok(entered) => handles.push(entered.handle.expect("a handle")),
            Err(error) => break error,
        }
        assert!(handles.len() < 100, "the queue has no end");
    };
    assert!(
        matches!(full, StoreError::Full { claims, .. } if claims == handles.len() + 2),
        "{full:?} after {}",
        handles.len()
    );
    assert_eq!(place.tickets().len(), handles.len() + 1, "the rest stays");
    let left = place.store().release(&*handles[0], &place.now());
    assert_eq!(left.expect("a withdrawal"), Left::Withdrawn);
    let mut request = place.request("waiter");
    request.holder.why = "w".repeat(20_000);
    place.try_enter(request).expect("room again");
    drop(holder);
}

/// Waiters whose claims take more than a page of memory each.
#[cfg(unix)]
fn with_long_claims(place: &Place) -> Vec<ClaimHandle> {
    let waits = |number: u32| {
        let mut request = place.request(&format!("w{number}"));
        request.holder.why = "w".repeat(9_000);
        place.enter(request).handle.expect("a handle")
    };
    (0..9).map(waits).collect()
}

#[cfg(unix)]
#[test]
fn a_holder_before_long_claims_reads_none_of_them() {
    let place = Place::new();
    let (holder, _) = place.granted("holder");
    let _waiters = with_long_claims(&place);
    let store = place.store();
    let before = bytes_read();
    let named = store.name_command(&*holder, Identity::current().process, &place.now());
    let read = bytes_read() - before;
    assert!(named.expect("an answer"));
    assert!(read < 9_000, "{read} bytes");
}

/// The waiters in it ended with the machine; of living ones no caller can tell whom the damage hit.
#[cfg(unix)]
#[test]
fn a_damaged_part_of_a_long_list_is_passed_over_once_no_process_lives_in_it() {
    /// Where a list has its first segment.
    const SEGMENTS_START: u64 = 63 << 12;
    let place = Place::new();
    let (holder, _) = place.granted("holder");
    let waiters = with_long_claims(&place);
    let file = fs::File::options().write(true).open(place.file());
    let damaged = file.and_then(|file| file.write_all_at(&[0; 100], SEGMENTS_START));
    damaged.expect("damage");
    let owns = |_: &Claim| Ownership::Shown;
    let refused = (place.store()).release_owned(&place.name, &owns, &place.now());
    assert!(
        matches!(refused, Err(StoreError::Unreadable { .. })),
        "{refused:?}"
    );
    drop((holder, waiters));
    place.granted("next");
}

#[test]
fn a_reader_never_sees_a_torn_or_an_older_list() {
    const WRITES: u64 = 300;
    const READINGS: u64 = 10;
    let place = Place::new();
    let (holder, _) = place.granted("holder");
    // Long enough that one reading spans several writes, and often a change between two page sizes.
    let crowd: Vec<ClaimHandle> = (0..40).map(|_| place.queued("crowd").0).collect();
    let writing = AtomicBool::new(true);
    let readings = [AtomicU64::new(0), AtomicU64::new(0)];
    thread::scope(|threads| {
        let (place, holder, writing) = (&place, &holder, &writing);
        let readers: Vec<_> = readings
            .iter()
            .map(|readings| {
                threads.spawn(move || {
                    let store = place.store();
                    let mut last = 0;
                    while writing.load(Ordering::Relaxed) {
                        let reading = store.read(&place.name, None).expect("a reading");
                        let entry = match reading.content {
                            Content::Whole { entry, .. } => entry,
                            Content::Unreadable { why, .. } => panic!("a torn list: {why}"),
                        };
                        let claim = entry.claim(holder.ticket()).expect("the holder");
                        let renewed = claim.lease.renewed.wall_ms;
                        assert!(renewed >= last, "an older list: {renewed} after {last}");
                        last = renewed;
                        readings.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let store = place.store();
        let began = place.now();
        // On a busy machine a reader may have had no time yet, even after so many writes.
        let is_enough = |write| {
            let all = readings
                .iter()
                .all(|read| read.load(Ordering::Relaxed) > READINGS);
            write >= WRITES && all
        };
        for write in (0..).take_while(|write| !is_enough(*write)) {
            assert!(!readers.iter().any(ScopedJoinHandle::is_finished));
            let mut now = began.clone();
            now.wall_us += write * 1_000;
            let renewed = store.renew(&**holder, &now).expect("a renewal");
            assert!(matches!(renewed, Renewal::Renewed { .. }));
            if write % 8 == 0 {
                let mut request = place.request("passing");
                request.holder.why = "w".repeat(30_000);
                let entered = store.enter(&place.name, request, &now).expect("a place");
                let handle = entered.handle.expect("a handle");
                store.release(&*handle, &now).expect("a withdrawal");
            }
        }
        writing.store(false, Ordering::Relaxed);
        for reader in readers {
            reader.join().expect("a reader without complaints");
        }
    });
    drop(crowd);
}

// --- A full disk -------------------------------------------------------------------------------

/// A file system of a few pages, gone when dropped.
#[cfg(unix)]
struct TinyDisk(PathBuf);

#[cfg(unix)]
impl TinyDisk {
    /// Mounts it; `None`, with a printed reason, where that is not possible.
    fn mount(at: &Path) -> Option<Self> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64k,mode=700", "tenure-test"])
            .arg(at)
            .stdin(Stdio::null())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(at.to_owned())),
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr);
                println!("skipped: no small disk could be mounted: {}", why.trim());
                None
            }
            Err(error) => {
                println!("skipped: no small disk could be mounted: {error}");
                None
            }
        }
    }

    /// Leaves this many pages free.
    fn fill_but(&self, pages: u64) {
        use std::io::Write;
        let path = self.0.join("filler");
        let mut filler = fs::File::create(path).expect("a file");
        while filler.write_all(&[b'x'; 4096]).is_ok() {}
        let length = filler.metadata().expect("metadata").len() / 4096 * 4096;
        filler
            .set_len(length.saturating_sub(pages * 4096))
            .expect("a shorter file");
    }

    fn empty(&self) {
        fs::File::create(self.0.join("filler")).expect("an empty file");
    }
}

#[cfg(unix)]
impl Drop for TinyDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[cfg(unix)]
#[test]
fn a_full_disk_leaves_the_state_before_and_releases_still_work() {
    let place = Place::with_folder();
    let Some(disk) = TinyDisk::mount(&place.folder()) else {
        return;
    };
    let store = place.store();
    let full = |error: &StoreError| {
        matches!(error, StoreError::Io { source, .. }
            if source.kind() == io::ErrorKind::StorageFull)
    };

    disk.fill_but(0);
    let answer = place.try_enter(place.request("first"));
    assert!(answer.as_ref().is_err_and(full), "{answer:?}");
    assert!(
        place.tickets().is_empty(),
        "the lock is free, and can be read"
    );

    for pages in [1, 2, 3, 4, 5, 6, 7, 8] {
        disk.empty();
        let mut handles = vec![place.granted("holder").0];
        disk.fill_but(pages);
        let error = loop {
            match place.try_enter(place.request("waiter")) {
                Ok(entered) => handles.push(entered.handle.expect("a handle")),
                Err(error) => break error,
            }
            assert!(handles.len() < 1_000, "{pages} pages never fill up");
        };
        assert!(full(&error), "{pages} pages: {error:?}");
        let expected: Vec<u64> = handles.iter().map(|handle| handle.ticket()).collect();
        assert_eq!(place.tickets(), expected, "{pages} pages: the list before");
        let renewed = store.renew(&*handles[0], &place.now());
        assert!(
            matches!(renewed, Ok(Renewal::Renewed { .. }) | Err(_)),
            "{pages} pages: a failing renewal is an error and no loss: {renewed:?}"
        );
        let holder = &place.list().claims[0];
        assert_eq!(
            holder.lease.renewals,
            u64::from(renewed.is_ok()),
            "{pages} pages: and what was answered was written"
        );
        // A shorter list leaves more room, so each claim leaves without help.
        for handle in handles.iter().rev() {
            let left = store.release(&**handle, &place.now());
            let left = left.unwrap_or_else(|error| panic!("{pages} pages: leaving: {error}"));
            assert_ne!(left, Left::Absent, "{pages} pages");
        }
        assert!(
            place.tickets().is_empty(),
            "{pages} pages: no claim is left"
        );
    }
}

#[cfg(unix)]
#[test]
fn what_a_full_disk_kept_from_being_written_is_made_good_by_the_next_caller() {
    let place = Place::with_folder();
    let Some(disk) = TinyDisk::mount(&place.folder()) else {
        return;
    };
    let store = place.store();
    let now = place.now();
    for pages in [1, 2, 3, 4] {
        disk.empty();
        let mut handles = vec![place.granted("holder").0];
        disk.fill_but(pages);
        while let Ok(entered) = place.try_enter(place.request("waiter")) {
            handles.push(entered.handle.expect("a handle"));
        }
        // The holder of the longest list that had room leaves: written or not, it is gone.
        let holder = handles.remove(0);
        let left = store.release(&*holder, &now);
        assert!(
            !matches!(left, Ok(Left::Absent | Left::Withdrawn)),
            "{pages} pages: {left:?}"
        );
        disk.empty();
        for handle in handles {
            let advanced = store.try_grant(&*handle, &now).expect("an answer").grant;
            assert!(
                matches!(advanced, TryGrant::Granted { .. }),
                "{pages} pages: {advanced:?}"
            );
            store.release(&*handle, &now).expect("a release");
        }
        assert!(
            place.tickets().is_empty(),
            "{pages} pages: no claim is left"
        );
    }
}

#[cfg(unix)]
#[test]
fn a_long_first_claim_that_did_not_fit_on_the_disk_leaves_a_free_lock() {
    let place = Place::with_folder();
    let Some(disk) = TinyDisk::mount(&place.folder()) else {
        return;
    };
    let mut long = place.request("long");
    long.holder.why = "w".repeat(6_000);
    disk.fill_but(1);
    let answer = place.try_enter(long.clone());
    assert!(answer.is_err(), "six pages do not fit into one: {answer:?}");
    assert!(
        place.tickets().is_empty(),
        "what was never whole was never a list"
    );
    disk.empty();
    let entered = place.enter(long);
    assert!(
        matches!(entered.entering, Entering::Granted { .. }),
        "{:?}",
        entered.entering
    );
}

// --- Other machines, other boots ---------------------------------------------------------------

#[test]
fn a_hold_of_this_machine_s_last_boot_is_over() {
    let mut place = Place::new();
    place.host.machine_id = Some("this machine".to_owned());
    let mut before = place.request("before");
    before.kind = Kind::Detached;
    before.holder.process = Some(Identity::current().process);
    Arc::make_mut(&mut before.holder.host).boot_id = Some("another boot".to_owned());
    let before = place.enter(before);
    assert!(matches!(before.entering, Entering::Granted { .. }));
    let next = place.enter(Request {
        patience: Patience::AtOnce,
        ..place.request("next")
    });
    let why = next.events.iter().find_map(|event| match event {
        Event::Stolen { why, .. } => Some(*why),
        _ => None,
    });
    let rebooted = Takeover::Stale(StaleReason::ProcessDead(Death::Rebooted));
    assert_eq!(why, Some(rebooted), "{:?}", next.entering);
}

#[test]
fn a_claim_of_another_boot_that_waits_or_runs_has_no_liveness_lock_and_is_passed() {
    let place = Place::new();
    let mut request = place.request("before");
    Arc::make_mut(&mut request.holder.host).boot_id = Some("another boot".to_owned());
    Arc::make_mut(&mut request.holder.host).machine_id = Some("another machine".to_owned());
    drop(place.enter(request));
    let standing = |store: &FileStore| {
        let reading = store.read(&place.name, None).expect("a reading");
        reading.standing(&store.rules().policy, &place.now()).0
    };
    assert_eq!(
        standing(&place.store()),
        Standing::Stale(StaleReason::LivenessLockReleased)
    );
    place.granted("next");
}

// --- Files removed by hand ---------------------------------------------------------------------

#[test]
fn a_file_removed_by_hand_is_a_lost_lock_and_nothing_brings_it_back() {
    if keeps_removed_files() {
        return;
    }
    let place = Place::new();
    let store = place.store();
    let (holder, _) = place.granted("holder");
    let (waiter, _) = place.queued("waiter");
    let lost = |what: &str| {
        let now = place.now();
        let renewed = store.renew(&*holder, &now).expect("an answer");
        assert_eq!(renewed, Renewal::Lost, "{what}");
        assert_eq!(
            store.verify(&*holder, &place.now()).expect("an answer"),
            Renewal::Lost
        );
        let advanced = store.try_grant(&*waiter, &now).expect("an answer");
        assert_eq!(advanced.grant, TryGrant::Gone, "{what}");
        let named = store.name_command(&*holder, Identity::current().process, &now);
        assert!(!named.expect("an answer"), "{what}");
        assert_eq!(
            store.release(&*waiter, &now).expect("an answer"),
            Left::Absent
        );
    };
    remove_by_hand(&place.file());
    lost("the file is gone");
    assert!(place.files().is_empty(), "nothing was created");
    let (other, _) = place.granted("other");
    let before = fs::read(place.file()).expect("the new file");
    lost("another caller has a new file");
    assert_eq!(
        store.release(&*holder, &place.now()).expect("ok"),
        Left::Absent
    );
    let after = fs::read(place.file()).expect("the new file");
    assert_eq!(after, before, "the new holder is left alone");
    assert_eq!(place.tickets(), [other.ticket()]);
}

#[test]
fn a_copy_in_place_of_the_file_is_not_the_lock_although_it_says_the_same() {
    if keeps_removed_files() {
        return;
    }
    let place = Place::new();
    let (holder, _) = place.granted("holder");
    let list = fs::read(place.file()).expect("the file");
    remove_by_hand(&place.file());
    // As from a backup: a caller that opens this file finds the bytes of all claims free.
    fs::write(place.file(), list).expect("a copy");
    let store = place.store();
    assert_eq!(
        store.verify(&*holder, &place.now()).expect("an answer"),
        Renewal::Lost
    );
    let renewed = store.renew(&*holder, &place.now()).expect("an answer");
    assert_eq!(renewed, Renewal::Lost);
}

/// A link is not the file of the hold. That file with a second name is, and is refused.
#[cfg(unix)]
#[test]
fn what_may_not_be_read_loses_a_hold_only_where_its_file_is_gone() {
    let place = Place::new();
    let (holder, _) = place.granted("holder");
    let store = place.store();
    let verify = || store.verify(&*holder, &place.now());
    let second = place.scratch.path().join("second");
    fs::hard_link(place.file(), &second).expect("a second name");
    let refused = verify();
    assert!(
        matches!(refused, Err(StoreError::Unsafe { .. })),
        "{refused:?}"
    );
    remove_by_hand(&place.file());
    symlinkat(second, CWD, place.file()).expect("a link");
    assert_eq!(verify().expect("an answer"), Renewal::Lost);
}

// A folder in which a process has a file open cannot be removed on Windows.
#[cfg(unix)]
#[test]
fn a_store_that_is_kept_open_finds_what_stands_in_a_folder_that_was_made_anew() {
    let place = Place::new();
    let kept = place.store();
    let (lost, _) = place.granted("lost");
    let read = || {
        let reading = kept.read(&place.name, None).expect("a reading");
        let entry = reading.entry().expect("a list").clone();
        entry.claims.iter().map(|claim| claim.ticket).collect()
    };
    let before: Vec<u64> = read();
    assert_eq!(before, [lost.ticket()]);
    fs::remove_dir_all(place.folder()).expect("a removal by hand");
    let gone: Vec<u64> = read();
    assert!(gone.is_empty(), "no claim holds");
    assert!(!place.folder().exists(), "looking makes nothing");

    let (holder, _) = place.granted("holder");
    let after: Vec<u64> = read();
    assert_eq!(after, [holder.ticket()], "it is not free");
    let mut names = Vec::new();
    kept.names(Which::Locks, &mut |name| names.push(name))
        .expect("names");
    assert_eq!(names, std::slice::from_ref(&place.name));
    let verified = kept.verify(&*lost, &place.now()).expect("an answer");
    assert_eq!(verified, Renewal::Lost);
    let renewed = kept.renew(&*lost, &place.now()).expect("an answer");
    assert_eq!(renewed, Renewal::Lost);
    let owns = |_: &Claim| Ownership::Shown;
    let released = kept.release_owned(&place.name, &owns, &place.now());
    let is_found = matches!(released, Ok(Released::Done { .. }));
    assert!(is_found, "it is found by its name: {released:?}");
}

#[cfg(unix)]
#[test]
fn the_end_of_long_work_tells_whether_the_folder_got_another_name() {
    for is_renamed in [false, true] {
        let place = Place::new();
        let store = place.store();
        let entered = store.enter(&place.name, place.request("holder"), &place.now());
        let holder = entered.expect("a grant").handle.expect("a handle");
        assert!(store.notices(&*holder).is_some(), "its work lasts");
        if is_renamed {
            let elsewhere = place.scratch.path().join("elsewhere");
            fs::rename(place.folder(), elsewhere).expect("another name");
        }
        let left = store.release(&*holder, &place.now()).expect("an answer");
        assert_eq!(left == Left::Absent, is_renamed, "{left:?}");
    }
}

/// A caller that has the old folder open is granted nothing in it, and comes to the folder that others
/// find.
#[cfg(unix)]
#[test]
fn a_folder_that_got_another_name_grants_nothing_and_confirms_nothing() {
    let place = Place::new();
    let store = place.store();
    let enter = |id: &str| {
        let entered = store.enter(&place.name, place.request(id), &place.now());
        entered.expect("an entered claim")
    };
    let holder = enter("holder").handle.expect("a handle");
    let waiter = enter("waiter").handle.expect("a handle");
    let elsewhere = place.scratch.path().join("elsewhere");
    assert_eq!(store.moves(), 1);
    fs::rename(place.folder(), &elsewhere).expect("another name");
    assert_eq!(store.moves(), 2, "it has moved");
    store.release(&*holder, &place.now()).expect("a release");
    let advanced = store.try_grant(&*waiter, &place.now()).expect("an answer");
    assert_eq!(
        advanced.grant,
        TryGrant::Gone,
        "no caller would find its hold"
    );
    let verified = store.verify(&*waiter, &place.now()).expect("an answer");
    assert_eq!(verified, Renewal::Lost);
    assert!(!place.folder().exists(), "looking makes nothing");
    let again = enter("waiter");
    assert!(matches!(again.entering, Entering::Granted { .. }));
    assert_eq!(place.tickets().len(), 1, "where others find it");
    assert_eq!(store.moves(), 2);
}

// --- Liveness locks and descriptors -------------------------------------------------------------------

#[cfg(unix)]
#[test]
fn a_place_whose_byte_somebody_has_is_an_error_at_once_and_changes_nothing() {
    let place = Place::new();
    let (first, _) = place.granted("first");
    let mut now = place.now();
    now.wall_us += 1_000_000;
    // The next ticket is the time, and a process has its byte without a claim in the list.
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(place.file())
        .expect("the lock's file");
    let byte = ByteLock {
        byte: Byte::of_ticket(now.wall_us),
        mode: LockMode::Exclusive,
    };
    let fd = std::os::fd::AsFd::as_fd(&file);
    assert!(byte.try_take(fd).expect("an answer"), "the byte is free");
    let store = place.store();
    let began = instant();
    let answer = store.enter(&place.name, place.request("next"), &now);
    assert!(
        matches!(&answer, Err(StoreError::Io { source, place: named, .. })
            if source.kind() == io::ErrorKind::AddrInUse
                && Path::new(named) == place.file()),
        "{answer:?}"
    );
    assert!(
        tenure_os::clock::since(began) < Duration::from_secs(2),
        "it is not waited for"
    );
    assert_eq!(place.tickets(), [first.ticket()]);
    byte.give_back(fd).expect("it is let go");
    let entered = store.enter(&place.name, place.request("next"), &now);
    let handle = entered.expect("a place").handle.expect("a handle");
    assert_eq!(handle.ticket(), now.wall_us);
}

#[cfg(target_os = "linux")]
#[test]
fn a_store_opens_its_folder_once() {
    let place = Place::new();
    let store = place.store();
    let opened = || {
        let links = fs::read_dir("/proc/self/fd").expect("our descriptors");
        links
            .filter_map(|link| fs::read_link(link.ok()?.path()).ok())
            .filter(|to| *to == place.folder())
            .count()
    };
    for round in 0..4 {
        let entered = store.enter(&place.name, place.request("holder"), &place.now());
        let handle = entered.expect("a grant").handle.expect("a handle");
        store.release(&*handle, &place.now()).expect("a release");
        assert_eq!(opened(), 1, "round {round}");
    }
}

/// A process that keeps a copy of a handle's descriptor, as a command keeps the one it inherited.
#[cfg(unix)]
struct Renewer(std::process::Child);

#[cfg(unix)]
impl Renewer {
    fn of(handle: &ClaimHandle) -> Self {
        let liveness_lock = handle.descriptor().expect("a descriptor");
        let copy = liveness_lock.try_clone_to_owned().expect("a copy");
        // The child gets the copy as its standard input, so that no other child of this process inherits it.
        let child = Command::new("sleep")
            .arg("600")
            .stdin(Stdio::from(copy))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.expect("a process"))
    }
}

#[cfg(unix)]
impl Drop for Renewer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(unix)]
#[test]
fn a_daemon_with_a_copy_of_the_liveness_lock_keeps_nothing_after_the_release() {
    let place = Place::new();
    let (holder, _) = place.granted("holder");
    let (waiter, behind) = place.queued("waiter");
    let _daemon = Renewer::of(&holder);
    let store = place.store();
    store.release(&*holder, &place.now()).expect("a release");
    drop(holder);
    let end = Some(instant() + Duration::from_secs(10));
    let woken = store.sleep(&*waiter, &behind, &place.now(), end);
    assert_eq!(woken.expect("a sleep"), Wake::Ready);
    let advanced = store.try_grant(&*waiter, &place.now()).expect("an answer");
    assert!(
        matches!(advanced.grant, TryGrant::Granted { .. }),
        "{:?}",
        advanced.grant
    );
}

#[cfg(unix)]
#[test]
fn a_command_with_a_copy_of_the_liveness_lock_keeps_the_lock_until_it_ends() {
    let place = Place::new();
    let (holder, _) = place.granted("holder");
    let (waiter, behind) = place.queued("waiter");
    let command = Renewer::of(&holder);
    // The supervisor dies, the command works on.
    drop(holder);
    let store = place.store();
    let advanced = store.try_grant(&*waiter, &place.now()).expect("an answer");
    assert_eq!(advanced.grant, TryGrant::Behind(behind.clone()));
    drop(command);
    let end = Some(instant() + Duration::from_secs(10));
    let woken = store.sleep(&*waiter, &behind, &place.now(), end);
    assert_eq!(woken.expect("a sleep"), Wake::Ready);
    let advanced = store.try_grant(&*waiter, &place.now()).expect("an answer");
    assert!(
        matches!(advanced.grant, TryGrant::Granted { .. }),
        "{:?}",
        advanced.grant
    );
}

#[cfg(unix)]
#[test]
fn force_does_not_ask_an_orphan_to_stop_because_nobody_is_there_to_hear_it() {
    let place = Place::new();
    let mut request = place.request("holder");
    let mut supervisor = Identity::current().process;
    supervisor.started = supervisor.started.map(|ticks| ticks + 1);
    request.holder.process = Some(supervisor);
    let holder = place.enter(request).handle.expect("a handle");
    let _command = Renewer::of(&holder);
    drop(holder);
    let entered = place.enter(place.forced(Force::Asked));
    assert!(
        matches!(entered.entering, Entering::Queued { .. }),
        "{:?}",
        entered.entering
    );
    assert_eq!(entered.events, [], "no holder was asked");
    assert!(
        place
            .list()
            .claims
            .iter()
            .all(|claim| claim.cancel.is_none()),
        "and nothing was written down"
    );
}

/// What reads a lock once more finds its holder's process as it was a moment ago.
#[cfg(target_os = "linux")]
#[test]
fn a_list_of_locks_looks_at_each_process_once() {
    let place = Place::new();
    let store = place.store();
    let names = ["a", "b", "c", "d"].map(|name| LockName::new(name).expect("an accepted name"));
    let mut handles = Vec::new();
    for name in &names {
        let mut request = place.request("holder");
        request.holder.process = Some(Identity::current().process);
        let entered = store.enter(name, request, &place.now());
        handles.push(entered.expect("a grant").handle);
    }
    let read_for = |read: &dyn Fn()| {
        let before = bytes_read();
        read();
        bytes_read() - before
    };
    let apart = read_for(&|| {
        for name in &names {
            store.read(name, None).expect("a reading");
        }
    });
    let together = read_for(&|| {
        let read = store.read_several(&names);
        assert!(read.iter().all(Result::is_ok), "{read:?}");
    });
    assert!(together < apart, "{together} bytes, and {apart} one by one");
}

/// A format by whose first name another process makes the folder, with a lock in it.
#[derive(Debug)]
struct Meanwhile {
    from: PathBuf,
    to: PathBuf,
}

impl Profile for Meanwhile {
    fn policy(&self) -> Policy {
        Native.policy()
    }

    fn file_name(&self, name: &LockName) -> String {
        if self.from.exists() {
            fs::rename(&self.from, &self.to).expect("the folder");
        }
        Native.file_name(name)
    }

    fn name_of(&self, file: &str) -> Option<LockName> {
        Native.name_of(file)
    }
}

#[test]
fn a_list_of_locks_shows_one_whose_folder_is_made_while_it_is_read() {
    let place = Place::new();
    drop(place.granted("holder"));
    let (from, to) = (place.folder(), place.scratch.path().join("made"));
    let profile = Box::new(Meanwhile {
        from,
        to: to.clone(),
    });
    let here = place.host.clone();
    let store = FileStore::with_profile(profile, &to, here, Box::new(ThreadSleeper));
    let mut read = store.read_several(std::slice::from_ref(&place.name));
    let reading = read.remove(0).expect("a reading");
    assert!(to.exists(), "it is made");
    let claims = reading.entry().map(|entry| entry.claims.len());
    assert_eq!(claims, Some(1));
}

/// Sleeps for nothing but moments.
struct Sleepless;

impl Sleeper for Sleepless {
    fn lock(&self, _: BorrowedDescriptor<'_>, _: ByteLock, _: Duration) -> io::Result<Wake> {
        Err(io::Error::other("the guard is free"))
    }

    fn pass(
        &self,
        _: BorrowedDescriptor<'_>,
        _: ByteLock,
        _: Option<Instant>,
        _: Option<BorrowedDescriptor<'_>>,
    ) -> io::Result<Wake> {
        Err(io::Error::other("no claim is before"))
    }

    fn poll(
        &self,
        fds: &[BorrowedDescriptor<'_>],
        nap: Duration,
        until: Option<Instant>,
    ) -> io::Result<Wake> {
        ThreadSleeper.poll(fds, nap, until)
    }
}

#[test]
fn a_holder_whose_hold_other_runs_work_within_takes_a_free_guard_without_a_sleep() {
    let place = Place::new();
    let store = FileStore::new(place.folder(), place.host.clone(), Box::new(Sleepless));
    let entered = store.enter(&place.name, place.request("holder"), &place.now());
    let entered = entered.expect("a grant");
    let Entering::Granted { token, .. } = entered.entering else {
        panic!("expected a grant, saw {:?}", entered.entering);
    };
    let holder = entered.handle.expect("a handle");
    let within = store.go_within(&place.name, token).expect("an answer");
    assert!(within.is_some(), "it stands");
    let renewed = store.renew(&*holder, &place.now());
    assert!(
        matches!(renewed, Ok(Renewal::Renewed { .. })),
        "{renewed:?}"
    );
}

/// Whether a sleep is ever well under the second after which a sleeper looks by itself that was not told. Other work
/// of the machine may make any of them longer.
fn is_ever_at_once(mut sleep: impl FnMut() -> Wake) -> bool {
    (0..5).any(|_| {
        let began = instant();
        assert_eq!(sleep(), Wake::Ready);
        tenure_os::clock::since(began) < Duration::from_millis(900)
    })
}

#[test]
fn a_watcher_sleeps_behind_a_hold_whose_byte_says_nothing_and_not_behind_one_that_is_gone() {
    let place = Place::new();
    let mut request = place.request("detached");
    request.kind = Kind::Detached;
    request.holder.process = Some(Identity::current().process);
    place.enter(request);
    let store = place.store();
    let seen = store.read(&place.name, None).expect("a reading");
    let watch = |length| {
        let until = Some(instant() + length);
        let wake = store.watch(&place.name, &seen, &place.now(), until);
        wake.expect("a watch")
    };
    assert_eq!(watch(Duration::from_millis(20)), Wake::Expired);
    let owns = |_: &Claim| Ownership::Shown;
    let released = store.release_owned(&place.name, &owns, &place.now());
    assert!(
        matches!(released, Ok(Released::Done { .. })),
        "{released:?}"
    );
    assert!(is_ever_at_once(|| watch(Duration::from_secs(10))));
}

#[test]
fn a_watcher_looks_again_as_a_lease_runs_out_that_nothing_else_tells_of() {
    assert!(is_ever_at_once(|| {
        let place = Place::new();
        let mut request = place.request("stranger");
        request.kind = Kind::Detached;
        request.ttl_ms = 150;
        let host = Arc::make_mut(&mut request.holder.host);
        host.machine_id = Some("another machine".to_owned());
        host.boot_id = Some("another boot".to_owned());
        place.enter(request);
        let store = place.store();
        let seen = store.read(&place.name, None).expect("a reading");
        let until = Some(instant() + Duration::from_secs(10));
        let wake = store.watch(&place.name, &seen, &place.now(), until);
        wake.expect("a watch")
    }));
}

// A caller that has the folder open goes on in it while nothing is known of its path: a link that leads
// to itself can be neither followed nor watched.
#[cfg(unix)]
#[test]
fn where_no_watch_is_to_be_had_a_watcher_sleeps_for_as_long_as_the_same_hold_stands() {
    let place = Place::new();
    let mut request = place.request("detached");
    request.kind = Kind::Detached;
    request.holder.process = Some(Identity::current().process);
    place.enter(request);
    let seen = place.store().read(&place.name, None).expect("a reading");
    let elsewhere = place.folder();
    let link = place.scratch.path().join("link");
    let link_to = |target: &Path| std::os::unix::fs::symlink(target, &link).expect("a link");
    link_to(&elsewhere);
    let store = place.store_in(&link);
    store.read(&place.name, None).expect("a reading");
    fs::rename(&link, place.scratch.path().join("was")).expect("another name");
    link_to(&link);
    let watch = |length: u64| {
        let until = Some(instant() + Duration::from_millis(length));
        let wake = store.watch(&place.name, &seen, &place.now(), until);
        wake.expect("a watch")
    };
    assert_eq!(watch(20), Wake::Expired, "it stands");
    let owns = |_: &Claim| Ownership::Shown;
    let released = place
        .store_in(&elsewhere)
        .release_owned(&place.name, &owns, &place.now());
    assert!(
        matches!(released, Ok(Released::Done { .. })),
        "{released:?}"
    );
    assert_eq!(watch(10_000), Wake::Ready, "it is gone");
}

/// How many helper threads of this process sleep for a waiter.
#[cfg(unix)]
fn sleeping_helpers() -> usize {
    let threads = fs::read_dir("/proc/self/task").expect("our threads");
    threads
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.trim() == "tenure-wait")
        .count()
}

#[cfg(unix)]
#[test]
fn a_waiter_that_looks_often_does_not_gather_threads() {
    const LOOKS: usize = 100;
    let place = Place::new();
    let (holder, _) = place.granted("holder");
    let (waiter, behind) = place.queued("waiter");
    let store = place.store();
    for _ in 0..LOOKS {
        let soon = Some(instant() + Duration::from_millis(1));
        let woken = store.sleep(&*waiter, &behind, &place.now(), soon);
        assert_eq!(woken.expect("a sleep"), Wake::Expired);
    }
    // Tests that run beside this one may have some of their own.
    let helpers = sleeping_helpers();
    assert!(helpers < LOOKS / 2, "{helpers} threads after {LOOKS} looks");
    drop(holder);
}

// --- A program whose threads hold locks ---------------------------------------------------------

/// The store of such a program, and a claim that holds there.
#[cfg(unix)]
fn held_in_a_program(place: &Place) -> (FileStore, ClaimHandle) {
    let store = place.store().within_program();
    let entered = store.enter(&place.name, place.request("holder"), &place.now());
    let holder = entered.expect("a grant").handle.expect("a handle");
    (store, holder)
}

/// A claim that waits behind it in the same store.
#[cfg(unix)]
fn waits_in_a_program(place: &Place, store: &FileStore) -> (ClaimHandle, Predecessor) {
    let entered = store.enter(&place.name, place.request("waiter"), &place.now());
    let entered = entered.expect("an answer");
    match entered.entering {
        Entering::Queued { behind, .. } => (entered.handle.expect("a handle"), behind),
        other => panic!("expected a place in the queue, saw {other:?}"),
    }
}

#[cfg(unix)]
#[test]
fn a_claim_of_a_program_has_one_open_file() {
    let place = Place::new();
    let (_store, holder) = held_in_a_program(&place);
    assert!(holder.descriptor().is_none(), "no command inherits it");
    let open = fs::read_dir("/proc/self/fd").expect("our descriptors");
    let list = place.folder().join(format!("{}.tenure", place.name));
    let open = open
        .filter_map(|link| fs::read_link(link.ok()?.path()).ok())
        .filter(|to| *to == list)
        .count();
    assert_eq!(open, 1);
}

#[cfg(unix)]
#[test]
fn a_list_that_is_emptied_under_a_claim_of_a_program_is_damaged_and_not_free() {
    let place = Place::new();
    let (store, holder) = held_in_a_program(&place);
    let list = place.folder().join(format!("{}.tenure", place.name));
    let file = fs::File::options().write(true).open(list);
    file.and_then(|file| file.set_len(0))
        .expect("an empty list");
    let renewed = store.renew(&*holder, &place.now());
    assert!(
        matches!(renewed, Err(StoreError::Unreadable { .. })),
        "{renewed:?}"
    );
    let entered = place
        .store()
        .enter(&place.name, place.request("other"), &place.now());
    assert!(
        matches!(entered, Err(StoreError::Unreadable { .. })),
        "a live process has a place in it"
    );
}

#[cfg(unix)]
#[test]
fn a_thread_waits_for_another_one_of_its_program_without_a_helper() {
    let place = Place::new();
    for is_released in [true, false] {
        let (store, holder) = held_in_a_program(&place);
        let (waiter, behind) = waits_in_a_program(&place, &store);
        let now = place.now();
        let soon = instant() + Duration::from_millis(5);
        let wake = store.sleep(&*waiter, &behind, &now, Some(soon));
        assert_eq!(wake.expect("a sleep"), Wake::Expired);
        assert!(instant() >= soon, "its time is up");
        let cancel = Cancel::new();
        let late = || Some(instant() + Duration::from_secs(10));
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let sleep = || store.sleep(&*waiter, &behind, &now, late());
                cancel::listening(Some(&cancel), sleep).expect("a sleep")
            });
            cancel.cancel();
            assert_eq!(waits.join().expect("no panic"), Wake::Interrupted);
            let waits = scope.spawn(|| store.sleep(&*waiter, &behind, &now, late()));
            // Tests that run beside this one in the same process may have some of their own.
            if std::env::var_os("NEXTEST").is_some() {
                assert_eq!(sleeping_helpers(), 0, "it sleeps by itself");
            }
            if is_released {
                store.release(&*holder, &now).expect("a release");
            }
            // A claim that is dropped dies, and that is an end as well.
            drop(holder);
            let wake = waits.join().expect("no panic");
            assert_eq!(wake.expect("a sleep"), Wake::Ready);
        });
        let tried = store.try_grant(&*waiter, &now).expect("a look");
        assert!(matches!(tried.grant, TryGrant::Granted { .. }), "{tried:?}");
        store.release(&*waiter, &now).expect("a release");
    }
}

// --- A process that was stopped in the middle of a change --------------------------------------

#[cfg(unix)]
const GUARDED_FILE: &str = "TENURE_TEST_GUARDED_FILE";

/// Not a test: the next one starts this in a process of its own.
#[cfg(unix)]
#[test]
#[ignore = "keeps a guard and stops; started by the test below"]
fn helper_that_stops_with_the_guard() {
    let Some(path) = std::env::var_os(GUARDED_FILE) else {
        return;
    };
    let file = fs::File::options().read(true).write(true).open(path);
    let file = file.expect("the lock's file");
    let guard = ByteLock {
        byte: Byte::GUARD,
        mode: LockMode::Exclusive,
    };
    let fd = std::os::fd::AsFd::as_fd(&file);
    assert!(guard.try_take(fd).expect("an answer"), "the guard is free");
    rustix::process::kill_process(rustix::process::getpid(), Signal::STOP).expect("a stop");
    // The stop may reach this thread a little later; until then it keeps the guard.
    loop {
        thread::park();
    }
}

#[cfg(unix)]
#[test]
fn a_process_stopped_with_the_guard_is_named_as_stuck_and_its_end_frees_the_lock() {
    let place = Place::new();
    let (holder, _) = place.granted("holder");
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "helper_that_stops_with_the_guard", "--ignored"])
        .env(GUARDED_FILE, place.file())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("a process");
    let pid = Pid::from_child(&child);
    let stopped = rustix::process::waitpid(Some(pid), WaitOptions::UNTRACED);
    let (_, status) = stopped.expect("a child").expect("its state");
    assert!(status.stopped(), "the helper has ended: {status:?}");

    let began = instant();
    thread::scope(|threads| {
        let stuck = |what: &str, error: &StoreError| {
            let StoreError::Stuck { waited_ms, .. } = error else {
                panic!("{what}: {error:?}");
            };
            assert!(*waited_ms >= 1_000, "{what}: {error:?}");
            if cfg!(target_os = "linux") {
                let named = format!("PID {} has been in the middle", child.id());
                assert!(error.to_string().contains(&named), "{what}: {error}");
            }
        };
        let entering = threads.spawn(|| place.try_enter(place.request("other")));
        let renewing = threads.spawn(|| place.store().renew(&*holder, &place.now()));
        let reading = threads.spawn(|| place.tickets());
        let seen = reading.join().expect("a reader");
        assert_eq!(seen, [holder.ticket()], "reading needs no guard");
        let entered = entering.join().expect("an answer");
        stuck("entering", &entered.expect_err("a refusal"));
        let renewed = renewing.join().expect("an answer");
        stuck("renewing", &renewed.expect_err("a refusal"));
    });
    let waited = instant().saturating_duration_since(began);
    assert!(waited < Duration::from_secs(9), "{waited:?}");

    child.kill().expect("a signal to a child");
    child.wait().expect("the child's end");
    let renewed = place.store().renew(&*holder, &place.now());
    assert!(
        matches!(renewed, Ok(Renewal::Renewed { .. })),
        "the hold stands: {renewed:?}"
    );
    place.queued("other");
}

/// A guard that changes hands is no process that is stuck. The file shows each change, as it does here.
#[cfg(unix)]
#[test]
fn a_guard_that_others_take_in_turns_is_named_as_crowded() {
    let place = Place::new();
    let (holder, _) = place.granted("holder");
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(place.file());
    let file = file.expect("the lock's file");
    let guard = ByteLock {
        byte: Byte::GUARD,
        mode: LockMode::Exclusive,
    };
    let fd = std::os::fd::AsFd::as_fd(&file);
    assert!(guard.try_take(fd).expect("an answer"), "the guard is free");
    let busy = Duration::from_secs(6);
    let within = Some(Duration::from_millis(300));
    thread::scope(|threads| {
        let at_once = Request {
            patience: Patience::AtOnce,
            ..place.request("other")
        };
        let entering = threads.spawn(|| place.try_enter(at_once));
        let waiting = threads.spawn(|| place.try_enter(place.request("waiting")));
        let renewing = || place.store().renew_within(&*holder, &place.now(), within);
        let renewing = threads.spawn(renewing);
        let began = instant();
        while instant().saturating_duration_since(began) < busy {
            let now = Duration::from_micros(place.now().wall_us);
            let now = std::time::SystemTime::UNIX_EPOCH + now;
            file.set_modified(now).expect("its own file");
            thread::sleep(Duration::from_millis(20));
        }
        guard.give_back(fd).expect("it is let go");
        let renewed = renewing.join().expect("an answer");
        let error = renewed.expect_err("its patience is short");
        let named = matches!(error, StoreError::Crowded { waited_ms: 300, .. });
        assert!(named, "{error:?}");
        let waiting = waiting.join().expect("an answer");
        let waiting = waiting.expect("a caller that waits goes on while others take turns");
        assert!(matches!(waiting.entering, Entering::Queued { .. }));
        let entered = entering.join().expect("an answer");
        let error = entered.expect_err("its patience is five seconds");
        let named = matches!(
            error,
            StoreError::Crowded { waited_ms, .. } if waited_ms.abs_diff(5_000) < 100
        );
        assert!(named, "{error:?}");
    });
}

// --- Releases by name --------------------------------------------------------------------------

#[test]
fn an_absent_folder_has_nothing_to_release() {
    let place = Place::new();
    let owns = |_: &Claim| Ownership::Shown;
    let released = place
        .store()
        .release_owned(&place.name, &owns, &place.now());
    assert_eq!(released.expect("an answer"), Released::Absent);
    assert!(!place.folder().exists(), "and is not made");
}

#[cfg(unix)]
#[test]
fn a_relative_folder_is_a_folder() {
    let place = Place::new();
    let here = std::env::current_dir().expect("a folder");
    let up = here.components().skip(1).map(|_| "..").collect::<PathBuf>();
    let path = up.join(place.folder().strip_prefix("/").expect("an absolute path"));
    let store = place.store_in(&path);
    let entered = store.enter(&place.name, place.request("holder"), &place.now());
    let handle = entered.expect("a grant").handle.expect("a handle");
    assert_eq!(place.tickets(), [handle.ticket()], "it is the same lock");
}

/// The end of a queue is far away, and only a new claim finds it: what is still to be written about the
/// claims in the list has room of its own.
#[test]
fn a_full_list_refuses_a_new_claim_and_nothing_else() {
    let place = Place::new();
    let store = place.store();
    let long = |id: &str| Request {
        holder: Holder {
            why: "x".repeat(100_000),
            ..place.request(id).holder
        },
        ..place.request(id)
    };
    let mut claims = Vec::new();
    let refused = loop {
        match place.try_enter(long(&format!("r{}", claims.len()))) {
            Ok(entered) => claims.push(entered.handle.expect("a handle")),
            Err(error) => break error,
        }
        assert!(claims.len() < 20, "a list of 2 MB was accepted");
    };
    assert!(
        matches!(refused, StoreError::Full { claims: 11, .. }),
        "ten were accepted: {refused}"
    );
    assert!(
        refused
            .to_string()
            .ends_with("the queue is full (11 claims)")
    );
    // A short one still has room.
    let entered = place.try_enter(place.request("short")).expect("a claim");
    claims.push(entered.handle.expect("a handle"));
    // In turn, each is granted, named, renewed and released; and the next caller gets in.
    for (index, handle) in claims.into_iter().enumerate() {
        if index > 0 {
            let tried = store.try_grant(&*handle, &place.now()).expect("a turn");
            let is_granted = matches!(tried.grant, TryGrant::Granted { .. });
            assert!(is_granted, "claim {index}: {:?}", tried.grant);
        }
        let command = tenure_core::Process {
            pid: 4_194_304,
            started: Some(u64::MAX),
        };
        let is_named = store.name_command(&*handle, command, &place.now());
        assert!(is_named.expect("a name"), "claim {index}");
        let left = store.release(&*handle, &place.now()).expect("a release");
        assert!(
            matches!(left, Left::Released { .. }),
            "claim {index}: {left:?}"
        );
    }
    let (handle, _) = place.granted("after");
    store.release(&*handle, &place.now()).expect("a release");
    let length = fs::metadata(place.file()).expect("its file").len();
    assert_eq!(length, 4_096, "a short list needs one page of memory");
}

#[test]
fn who_comes_back_last_to_a_full_list_gets_in() {
    let place = Place::new();
    let long = |id: &str, kept: Option<Kept>| {
        let mut request = place.request(id);
        request.holder.why = "x".repeat(100_000);
        request.terms.kept = kept;
        place.try_enter(request)
    };
    let long_claims = (0..10).map(|number| long(&format!("r{number}"), None).expect("a claim"));
    let _claims: Vec<Entered> = long_claims.collect();
    let entered = place.try_enter(place.request("away")).expect("a claim");
    let away = entered.handle.expect("a handle");
    let ticket = away.ticket();
    let kept = place
        .store()
        .reserve(&*away, None, 60_000, &place.now(), None);
    assert!(kept.expect("an answer"), "its place is kept");
    assert!(long("new", None).is_err(), "the list is full");
    let back = long("back", Some(Kept::Ticket(ticket))).expect("its place");
    assert!(
        matches!(back.entering, Entering::Queued { ticket: own, .. } if own == ticket),
        "{:?}",
        back.entering
    );
}
