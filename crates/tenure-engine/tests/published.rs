//! What the file store promises where a profile publishes: a record stands at the path that other
//! programs look at, whole or not at all. No record of another program is overwritten or removed, and the
//! owner of the record holds the lock, whatever our own list says.
//!
//! The test itself plays the other programs, with the system calls that they use.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test says what it expects by failing, and which format it was at"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "the other programs that the test plays know nothing of the store and its clock"
)]

mod processes;

use processes::dead_pid;
#[cfg(unix)]
use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};
#[cfg(unix)]
use rustix::io::Errno;
use std::fs;
use std::num::NonZeroU32;
#[cfg(unix)]
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
#[cfg(unix)]
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use tenure_core::{
    Claim, Entering, Event, Force, Forced, Holder, Host, Kind, Left, LockName, Now, Ownership,
    Patience, Policy, Process, Reason, Released, Renewal, Request, RequestId, StaleReason,
    Standing, Takeover,
};
use tenure_engine::engine::{self, Observer, Wait, Waiting};
use tenure_engine::formats::{Fleet, Resume, Session, Sprint};
use tenure_os::clock::{Clock, SystemClock, instant};
use tenure_os::process::{Identity, start_time};
use tenure_store::Verbs;
use tenure_store::contract::{Handle, Which};
use tenure_store::file::{BorrowedDescriptor, ByteLock, FileStore, Sleeper, ThreadSleeper};
use tenure_store::profile::{Native, Profile, Record};
use tenure_store::verbs::Entered;
use tenure_store::{Content, RenewedOwned, Store, StoreError, Wake};

/// A claim of a caller in this process.
type ClaimHandle = Box<dyn Handle>;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;

/// The four formats that other programs read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Sprint,
    Resume,
    Session,
    Fleet,
}

use Format::{Fleet as F, Resume as R, Session as S, Sprint as P};

const ALL: [Format; 4] = [P, R, S, F];

/// A record of another program.
#[derive(Debug, Clone)]
struct Foreign {
    id: String,
    pid: u32,
    /// How long ago it was written or renewed.
    ago_ms: u64,
    /// How far ahead its time lies.
    ahead_ms: u64,
    host: String,
}

impl Format {
    fn profile(self) -> Box<dyn Profile> {
        match self {
            P => Box::new(Sprint::default()),
            R => Box::new(Resume),
            S => Box::new(Session::default()),
            F => Box::new(Fleet),
        }
    }

    fn lock(self) -> LockName {
        let name = match self {
            P => "sprint",
            R => "job-1",
            S => "42",
            F => "app-prod",
        };
        LockName::new(name).expect("an accepted name")
    }

    fn folder(self, root: &Path) -> PathBuf {
        match self {
            P | F => root.to_owned(),
            R => root.join("resume_locks"),
            S => root.join("locks"),
        }
    }

    fn file(self) -> &'static str {
        match self {
            P => ".sprint-running",
            R => "job-1.lock",
            S => "42.lock",
            F => "app-prod.lock",
        }
    }

    /// Whether only force takes what is stale.
    fn asks_for_force(self) -> bool {
        matches!(self, P | F)
    }

    fn write(self, foreign: &Foreign) -> String {
        let at = wall_ms() - foreign.ago_ms + foreign.ahead_ms;
        let Foreign { id, pid, host, .. } = foreign;
        match self {
            P => format!(
                "pid: {pid}\nsession_id: {id}\nstarted_at: {:?}\nepic_spec: epic5\nlock_version: 1\n",
                time(at)
            ),
            R => format!(
                "{{\n  \"job_id\": \"job-1\",\n  \"process_id\": {pid},\n  \"hostname\": {host:?},\n  \
                 \"acquired_at\": {:?}\n}}",
                time(at)
            ),
            S => format!(
                "{{\n  \"issueNumber\": 42,\n  \"runId\": {id:?},\n  \"acquiredAt\": {:?},\n  \"pid\": \
                 {pid}\n}}\n",
                time(at)
            ),
            F => format!(
                "{{\"lock_version\":\"v1\",\"lock_name\":\"app-prod\",\"request_id\":{id:?},\
                 \"actor\":\"alice\",\"intent\":\"deploy\",\"intent_version\":\"1.0.0\",\
                 \"host_id\":\"fleet-3\",\"pid\":{pid},\"created_at\":{at:?},\
                 \"last_heartbeat_at\":{at:?},\"ttl_seconds\":900}}\n",
                at = &time(at / 1_000 * 1_000)
            ),
        }
    }
}

fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.expect("after 1970").as_millis()).expect("a date of ours")
}

fn time(ms: u64) -> String {
    let ms = i64::try_from(ms).expect("a date of ours");
    jiff::Timestamp::from_millisecond(ms)
        .expect("a date of ours")
        .to_string()
}

/// Closes a folder to other users; on Windows the folder around it does that.
fn ours_alone(folder: &Path) {
    #[cfg(unix)]
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).expect("a mode");
    #[cfg(windows)]
    assert!(folder.is_dir(), "a folder");
}

/// A place for locks of one format.
struct Place {
    format: Format,
    scratch: tempfile::TempDir,
    host: Host,
    name: LockName,
}

impl Place {
    fn new(format: Format) -> Self {
        let scratch = tempfile::tempdir().expect("a folder");
        ours_alone(scratch.path());
        Self {
            format,
            scratch,
            host: Identity::current().host,
            name: format.lock(),
        }
    }

    /// With the folder of the records, as another program would have made it.
    fn with_folder(format: Format) -> Self {
        let place = Self::new(format);
        fs::create_dir_all(place.folder()).expect("a folder");
        ours_alone(&place.folder());
        place
    }

    fn folder(&self) -> PathBuf {
        self.format.folder(self.scratch.path())
    }

    fn record(&self) -> PathBuf {
        self.folder().join(self.format.file())
    }

    fn ledger(&self) -> PathBuf {
        self.folder().join(".tenure")
    }

    fn store(&self) -> FileStore {
        FileStore::with_profile(
            self.format.profile(),
            self.scratch.path(),
            self.host.clone(),
            Box::new(ThreadSleeper),
        )
    }

    fn now(&self) -> Now {
        SystemClock::new(self.host.boot_id.as_deref()).now()
    }

    fn request(&self, id: &str) -> Request {
        let pid = std::process::id();
        let facts = [
            ("intent", "deploy"),
            ("intent_version", "1.0.0"),
            ("epic_spec", "epic5"),
        ];
        Request {
            holder: Holder {
                facts: facts.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec(),
                request_id: RequestId::new(id).expect("an accepted id"),
                actor: "test".to_owned(),
                process: Some(Process {
                    pid,
                    started: start_time(pid),
                }),
                command: None,
                host: self.host.clone().into(),
                why: "testing".to_owned(),
            },
            kind: Kind::Detached,
            ttl_ms: self.format.profile().policy().detached_ttl_ms,
            force: Force::No,
            patience: Patience::AtOnce,
            terms: tenure_core::Terms::default(),
        }
    }

    fn forced(&self, id: &str, force: Force) -> Request {
        Request {
            force,
            ..self.request(id)
        }
    }

    /// The force that it takes to get a stale lock.
    fn taking(&self, id: &str) -> Request {
        let force = if self.format.asks_for_force() {
            Force::Asked
        } else {
            Force::No
        };
        self.forced(id, force)
    }

    fn try_enter(&self, request: Request) -> Result<Entered, StoreError> {
        self.store().enter(&self.name, request, &self.now())
    }

    fn grant(&self, request: Request) -> (ClaimHandle, u64) {
        let entered = self.try_enter(request).expect("an answer");
        match entered.entering {
            Entering::Granted { token, .. } => (entered.handle.expect("a handle"), token),
            other => panic!("{:?}: expected a grant, saw {other:?}", self.format),
        }
    }

    fn granted(&self, id: &str) -> (ClaimHandle, u64) {
        self.grant(self.request(id))
    }

    #[track_caller]
    fn refused(&self, request: Request) -> (Reason, Standing) {
        let entered = self.try_enter(request).expect("an answer");
        match entered.entering {
            Entering::Refused(refusal) => (refusal.reason, refusal.standing),
            other => panic!("{:?}: expected a refusal, saw {other:?}", self.format),
        }
    }

    fn release(&self, handle: &dyn Handle) -> Left {
        let left = self.store().release(handle, &self.now());
        left.expect("a release")
    }

    fn renew(&self, handle: &dyn Handle) -> Renewal {
        let renewed = self.store().renew(handle, &self.now());
        renewed.expect("a renewal")
    }

    /// Whether the hold of this handle stands.
    fn still_has(&self, handle: &dyn Handle) -> bool {
        let verified = self.store().verify(handle, &self.now());
        !is_lost(verified.expect("an answer"))
    }

    fn bytes(&self) -> Vec<u8> {
        fs::read(self.record()).expect("a record")
    }

    fn text(&self) -> String {
        String::from_utf8(self.bytes()).expect("text")
    }

    /// Writes a record as a program does that takes no care.
    fn plant(&self, text: &str) {
        fs::create_dir_all(self.folder()).expect("a folder");
        fs::write(self.record(), text).expect("a record");
    }

    /// Writes a record as a program does that writes a private file and renames it over the path.
    fn plant_by_rename(&self, text: &str) {
        let new = self.folder().join("foreign.new");
        fs::write(&new, text).expect("a private file");
        rename_over(&new, &self.record());
    }

    fn foreign(&self) -> Foreign {
        Foreign {
            id: "theirs-1".to_owned(),
            pid: std::process::id(),
            ago_ms: 0,
            ahead_ms: 0,
            host: self.host.name.clone(),
        }
    }

    fn live(&self) -> String {
        self.format.write(&self.foreign())
    }

    fn stale(&self) -> String {
        let mut foreign = self.foreign();
        match self.format {
            P | R => foreign.pid = dead_pid(),
            S => foreign.ago_ms = 11 * MINUTE_MS,
            F => foreign.ago_ms = 16 * MINUTE_MS,
        }
        self.format.write(&foreign)
    }

    fn age(&self, by: Duration) {
        let file = fs::File::options()
            .write(true)
            .open(self.record())
            .expect("the record");
        file.set_modified(SystemTime::now() - by).expect("a time");
    }

    fn standing(&self) -> Standing {
        let reading = self.store().read(&self.name, None).expect("a reading");
        let policy = self.store().rules().policy;
        reading.standing(&policy, &self.now()).0
    }

    /// Everything below the place, with `/` after folders.
    fn tree(&self) -> Vec<String> {
        fn walk(folder: &Path, below: &str, found: &mut Vec<String>) {
            for item in fs::read_dir(folder).expect("a folder") {
                let item = item.expect("an item");
                let name = format!("{below}{}", item.file_name().to_string_lossy());
                if item.file_type().expect("a kind").is_dir() {
                    found.push(format!("{name}/"));
                    walk(&item.path(), &format!("{name}/"), found);
                } else {
                    found.push(name);
                }
            }
        }
        let mut found = Vec::new();
        walk(self.scratch.path(), "", &mut found);
        found.sort();
        found
    }

    /// Files that an interrupted change has left behind.
    fn leftovers(&self) -> Vec<String> {
        let left = |file: &String| {
            let path = Path::new(file);
            path.extension()
                .is_some_and(|end| end == "new" || end == "old" || end == "tmp")
        };
        self.tree().into_iter().filter(left).collect()
    }

    fn release_shown(&self) -> Released {
        let owns = |_: &Claim| Ownership::Shown;
        let released = self.store().release_owned(&self.name, &owns, &self.now());
        released.expect("an answer")
    }
}

/// What another program does that renames over the path. On Windows it has to try again while a process
/// has the file open.
fn rename_over(new: &Path, record: &Path) {
    let began = instant();
    while let Err(error) = fs::rename(new, record) {
        let is_open = error.kind() == std::io::ErrorKind::PermissionDenied;
        assert!(cfg!(windows) && is_open, "{error}");
        assert!(
            tenure_os::clock::since(began) < Duration::from_secs(10),
            "{error}"
        );
        thread::sleep(Duration::from_millis(1));
    }
}

fn is_lost(renewal: Renewal) -> bool {
    matches!(renewal, Renewal::Lost)
}

fn each(mut test: impl FnMut(Format)) {
    for format in ALL {
        println!("{format:?}");
        test(format);
    }
}

/// Runs the test at a place of each format, with the folder of its records.
fn each_place(test: impl Fn(Format, Place)) {
    each(|format| test(format, Place::with_folder(format)));
}

// --- What others see ---------------------------------------------------------------------------

#[test]
fn a_hold_shows_a_whole_private_record_and_its_release_none() {
    each(|format| {
        for kind in [Kind::Detached, Kind::Kernel] {
            let place = Place::with_folder(format);
            let (handle, token) = place.grant(Request {
                kind,
                ..place.request("ours-1")
            });
            let text = place.text();
            assert!(text.contains(&token.to_string()), "its token: {text}");
            assert_eq!(
                place.store().location(&place.name).shown,
                place.record().display().to_string(),
                "{format:?}: what people are told"
            );
            #[cfg(unix)]
            {
                let mode = fs::metadata(place.record()).expect("a record").mode();
                assert_eq!(mode & 0o7777, 0o600, "{format:?}");
            }
            assert!(matches!(place.standing(), Standing::Held(_)), "{format:?}");
            let left = place.release(&*handle);
            assert!(matches!(left, Left::Released { .. }), "{left:?}");
            assert!(!place.record().exists(), "{format:?}: the record is gone");
            let (_, next) = place.granted("ours-2");
            assert!(next > token, "{format:?}: tokens rise");
            assert!(
                matches!(place.release_shown(), Released::Done { .. }),
                "{format:?}: by name"
            );
            assert!(!place.record().exists(), "{format:?}: gone again");
            assert_eq!(place.leftovers(), Vec::<String>::new(), "{format:?}");
        }
    });
}

/// A part of a long list would not say whose record stands.
#[test]
fn the_hold_before_a_long_queue_ends_with_its_record() {
    each_place(|format, place| {
        let (holder, _) = place.granted("ours-1");
        let waits = |number: u32| Request {
            kind: Kind::Kernel,
            patience: Patience::Queue,
            ..place.request(&format!("waits-{number}"))
        };
        let waiters = (0..8).map(|number| place.try_enter(waits(number)).expect("a place"));
        let waiters: Vec<Entered> = waiters.collect();
        assert!(matches!(place.release(&*holder), Left::Released { .. }));
        assert!(!place.record().exists(), "{format:?}");
        drop(waiters);
    });
}

#[cfg(unix)]
#[test]
fn a_strict_umask_takes_nothing_from_the_record() {
    // The umask belongs to the whole process, so another process looks.
    if std::env::var_os("PUBLISHED_UMASK").is_none() {
        let me = std::env::current_exe().expect("this program");
        let name = "a_strict_umask_takes_nothing_from_the_record";
        let status = Command::new(me)
            .args(["--exact", name])
            .env("PUBLISHED_UMASK", "1")
            .stdout(Stdio::null())
            .status()
            .expect("a process");
        assert!(status.success(), "with a strict umask");
        return;
    }
    rustix::process::umask(Mode::from_raw_mode(0o377));
    each_place(|format, place| {
        let (handle, _) = place.granted("ours-1");
        let mode = fs::metadata(place.record()).expect("a record").mode();
        assert_eq!(mode & 0o7777, 0o600, "{format:?}");
        let list = fs::read_dir(place.ledger()).expect("the ledger");
        let list = list.map(|file| file.expect("a file").path());
        for file in list.filter(|file| file.extension().is_some_and(|end| end == "tenure")) {
            let mode = fs::metadata(&file).expect("the list").mode();
            assert_eq!(mode & 0o7777, 0o600, "{format:?}: {}", file.display());
        }
        place.release(&*handle);
    });
}

#[test]
fn a_live_record_of_another_program_stays_byte_for_byte() {
    each_place(|format, place| {
        let text = place.live();
        place.plant(&text);
        let before = fs::metadata(place.record()).expect("a record");
        let store = place.store();
        let (name, now) = (&place.name, place.now());
        assert_eq!(place.refused(place.request("ours-1")).0, Reason::Held);
        let queue = Request {
            patience: Patience::Queue,
            ..place.request("ours-2")
        };
        let queued = store.enter(name, queue, &now).expect("a place");
        assert!(matches!(queued.entering, Entering::Queued { .. }));
        let handle = queued.handle.expect("a handle");
        let advanced = store.try_grant(&*handle, &now).expect("an answer").grant;
        assert!(
            matches!(advanced, tenure_core::TryGrant::Behind(_)),
            "{advanced:?}"
        );
        store.release(&*handle, &now).expect("a withdrawal");
        store.clean(name, &now, false).expect("nothing to clean");
        let no_owner = |_: &Claim| Ownership::Missing;
        let renewed = store.renew_owned(name, &no_owner, &now).expect("an answer");
        assert!(matches!(renewed, RenewedOwned::NotOwner { .. }));
        if format != P {
            // Every caller may release a sprint's lock.
            let released = store
                .release_owned(name, &no_owner, &now)
                .expect("an answer");
            assert!(
                matches!(
                    released,
                    Released::NotOwner { .. } | Released::Ignored { .. }
                ),
                "{format:?}: {released:?}"
            );
        }
        let after = fs::metadata(place.record()).expect("a record");
        assert_eq!(place.text(), text, "{format:?}: its bytes");
        #[cfg(unix)]
        assert_eq!(before.ino(), after.ino(), "{format:?}: the same file");
        #[cfg(unix)]
        assert_eq!(before.mode(), after.mode(), "{format:?}: its mode");
        assert_eq!(
            before.modified().expect("a time"),
            after.modified().expect("a time"),
            "{format:?}: its time"
        );
    });
}

#[test]
fn programs_that_create_without_replacing_are_excluded() {
    each_place(|format, place| {
        let (handle, _) = place.granted("ours-1");
        let before = place.bytes();
        let record = place.record();
        let new = place.folder().join("foreign.new");
        fs::write(&new, place.live()).expect("a private file");
        let created = fs::File::options()
            .write(true)
            .create_new(true)
            .open(&record);
        assert_eq!(
            created.expect_err("O_EXCL").kind(),
            std::io::ErrorKind::AlreadyExists,
            "{format:?}"
        );
        let linked = fs::hard_link(&new, &record);
        assert_eq!(
            linked.expect_err("a link").kind(),
            std::io::ErrorKind::AlreadyExists,
            "{format:?}"
        );
        #[cfg(unix)]
        {
            let renamed = renameat_with(CWD, &new, CWD, &record, RenameFlags::NOREPLACE);
            assert_eq!(renamed, Err(Errno::EXIST), "{format:?}: rename");
        }
        assert_eq!(place.bytes(), before, "{format:?}: our record");
        assert!(place.still_has(&*handle), "{format:?}: the hold");
    });
}

// --- Renewals ----------------------------------------------------------------------------------

/// Adds a field that no version of ours knows.
fn with_unknown_field(format: Format, text: &str) -> String {
    match format {
        P => format!("{text}later:\n  deep: [1.50, null]\n"),
        _ => text.replacen('{', "{\"later\": {\"deep\": [1.50, null]},", 1),
    }
}

#[test]
fn a_renewal_keeps_what_others_added_and_changes_nothing_but_its_time() {
    each_place(|format, place| {
        let (handle, token) = place.granted("ours-1");
        let edited = with_unknown_field(format, &place.text());
        place.plant(&edited);
        assert!(place.still_has(&*handle), "{format:?}: still ours");
        // Fleet's times are whole seconds.
        thread::sleep(Duration::from_millis(1_100));
        let renewed = place.renew(&*handle);
        assert_eq!(
            renewed,
            Renewal::Renewed {
                token,
                cancel_requested: false
            }
        );
        let after = place.text();
        let field = match format {
            S => "\"acquiredAt\": \"",
            F => "\"last_heartbeat_at\": \"",
            P | R => {
                assert_eq!(after, edited, "{format:?} has nothing to renew");
                return;
            }
        };
        let split = |text: &str| {
            let (before, rest) = text.split_once(field).expect("the field");
            let (value, after) = rest.split_once('"').expect("its end");
            (before.to_owned(), value.to_owned(), after.to_owned())
        };
        let (was, is) = (split(&edited), split(&after));
        assert_eq!((&was.0, &was.2), (&is.0, &is.2), "{format:?}: all else");
        assert!(is.1 > was.1, "{format:?}: {} > {}", is.1, was.1);
        #[cfg(unix)]
        let mode = fs::metadata(place.record()).expect("a record").mode() & 0o7777;
        #[cfg(unix)]
        assert_eq!(mode, 0o600, "{format:?}");
        assert_eq!(place.leftovers(), Vec::<String>::new(), "{format:?}");
    });
}

#[cfg(target_os = "linux")]
#[test]
fn a_renewal_ends_the_notices_of_a_handle_where_it_replaces_the_file() {
    let inode = |path: &Path| fs::metadata(path).expect("a file").ino();
    let renewed = |place: &Place, store: &FileStore, path: &Path| {
        let entered = store.enter(&place.name, place.request("ours-1"), &place.now());
        let handle = entered.expect("an answer").handle.expect("a handle");
        let notices = store.notices(&*handle).expect("a descriptor");
        let before = inode(path);
        let mut now = place.now();
        now.wall_us += 1_000_000;
        now.boot_ms += 1_000;
        let renewal = store.renew(&*handle, &now).expect("an answer");
        assert!(!is_lost(renewal));
        (inode(path) != before, notices.ends_with_renewal)
    };
    // The formats that are renewed.
    for format in [S, F] {
        let place = Place::with_folder(format);
        let store = place.store();
        let ends = renewed(&place, &store, &place.record());
        assert_eq!(ends, (true, true), "{format:?}");
    }
    let place = Place::with_folder(R);
    let sleeper = Box::new(ThreadSleeper);
    let store = FileStore::new(place.folder(), place.host.clone(), sleeper);
    let ends = renewed(&place, &store, &place.folder().join("job-1.tenure"));
    assert_eq!(ends, (false, false), "native");
}

#[test]
fn a_record_that_another_program_wrote_over_ours_is_a_lost_hold() {
    each(|format| {
        let by_rename = |place: &Place| place.plant_by_rename(&place.live());
        let in_place = |place: &Place| place.plant(&place.live());
        for write in [&by_rename as &dyn Fn(&Place), &in_place] {
            let place = Place::with_folder(format);
            let (handle, token) = place.granted("ours-1");
            write(&place);
            let theirs = place.bytes();
            let store = place.store();
            let now = place.now();
            assert!(is_lost(
                store.verify(&*handle, &place.now()).expect("an answer")
            ));
            assert!(is_lost(store.renew(&*handle, &now).expect("an answer")));
            let named = store.name_command(
                &*handle,
                Process {
                    pid: 1,
                    started: None,
                },
                &now,
            );
            assert!(!named.expect("an answer"), "{format:?}: no command of it");
            let ours = |claim: &Claim| {
                if claim.holder.request_id.as_str() == "ours-1" {
                    Ownership::Shown
                } else {
                    Ownership::Missing
                }
            };
            let renewed = store.renew_owned(&place.name, &ours, &now);
            assert!(matches!(renewed, Ok(RenewedOwned::NotOwner { .. })));
            assert_eq!(
                store.release(&*handle, &now).expect("a leave"),
                Left::Absent
            );
            assert_eq!(place.bytes(), theirs, "{format:?}: theirs stands");
            fs::remove_file(place.record()).expect("their release");
            let (_, next) = place.granted("ours-2");
            assert!(next > token, "{format:?}: tokens rise");
        }
    });
}

#[test]
fn a_record_rewritten_by_another_process_under_the_same_id_in_the_same_second_is_not_ours() {
    // Both asked under one id, at the same time. The other program looked before our record stood there,
    // and overwrote it afterwards. It believes that it holds, so we must not.
    // The formats that are renewed.
    for format in [S, F] {
        let place = Place::with_folder(format);
        let (handle, _) = place.granted("shared-1");
        let mut theirs = place.foreign();
        theirs.id = "shared-1".to_owned();
        theirs.pid = 1;
        place.plant_by_rename(&format.write(&theirs));
        let verified = place
            .store()
            .verify(&*handle, &place.now())
            .expect("an answer");
        assert!(
            is_lost(verified),
            "{format:?}: a record of PID 1 is taken for that of PID {}",
            std::process::id()
        );
    }
}

#[test]
fn a_record_removed_by_hand_is_a_lost_hold_and_nothing_brings_it_back() {
    each_place(|format, place| {
        let (handle, token) = place.granted("ours-1");
        fs::remove_file(place.record()).expect("the record");
        let store = place.store();
        let now = place.now();
        assert!(is_lost(
            store.verify(&*handle, &place.now()).expect("an answer")
        ));
        assert!(is_lost(store.renew(&*handle, &now).expect("an answer")));
        assert_eq!(place.standing(), Standing::Free, "{format:?}");
        assert!(!place.record().exists(), "{format:?}: not made again");
        let (other, next) = place.granted("ours-2");
        assert!(next > token, "{format:?}: tokens rise");
        let before = place.bytes();
        assert!(is_lost(store.renew(&*handle, &now).expect("an answer")));
        assert_eq!(
            store.release(&*handle, &now).expect("a leave"),
            Left::Absent
        );
        assert_eq!(place.bytes(), before, "{format:?}: the successor's");
        assert!(!is_lost(
            place
                .store()
                .verify(&*other, &place.now())
                .expect("an answer")
        ));
    });
}

#[test]
fn no_change_of_ours_costs_another_program_its_record_whenever_it_comes() {
    // The other program renames over the path once, at any instant of a renewal or a release. Its record
    // has to be there afterwards, whatever that does to us.
    for format in ALL {
        let place = Place::with_folder(format);
        let mut lost = 0;
        for round in 0_u32..150 {
            let (handle, _) = place.granted("ours-1");
            let text = place.live();
            let new = place.folder().join("foreign.new");
            fs::write(&new, &text).expect("a private file");
            let store = place.store();
            thread::scope(|scope| {
                let (new, record) = (&new, place.record());
                scope.spawn(move || {
                    let until = instant() + Duration::from_micros(u64::from(round) * 7);
                    while instant() < until {
                        std::hint::spin_loop();
                    }
                    rename_over(new, &record);
                });
                for ahead in 0..6 {
                    let mut now = place.now();
                    // Move the clock, so that there is something to write each time.
                    now.wall_us += (ahead + 1) * 1_000_000;
                    now.boot_ms += (ahead + 1) * 1_000;
                    match store.renew(&*handle, &now) {
                        Ok(Renewal::Lost) => lost += 1,
                        Ok(Renewal::Renewed { .. }) => {}
                        Err(error) => panic!("{format:?}: {error}"),
                    }
                }
                let _ = store.release(&*handle, &place.now()).expect("a leave");
            });
            assert_eq!(place.text(), text, "{format:?}, round {round}: theirs");
            fs::remove_file(place.record()).expect("their release");
        }
        println!("{format:?}: lost {lost} times");
        assert_eq!(place.leftovers(), Vec::<String>::new(), "{format:?}");
    }
}

/// A program that writes its record anew each time after ours was read, until it has written enough.
#[derive(Debug)]
struct Meddler {
    record: PathBuf,
    times: AtomicUsize,
}

impl Profile for Meddler {
    fn policy(&self) -> Policy {
        Resume.policy()
    }

    fn folder(&self, place: &Path) -> PathBuf {
        Resume.folder(place)
    }

    fn file_name(&self, name: &LockName) -> String {
        Resume.file_name(name)
    }

    fn name_of(&self, file: &str) -> Option<LockName> {
        Resume.name_of(file)
    }

    fn record(&self) -> Option<&dyn Record> {
        Some(self)
    }
}

impl Record for Meddler {
    fn encode(
        &self,
        name: &LockName,
        claim: &Claim,
        previous: Option<&[u8]>,
    ) -> Result<Vec<u8>, String> {
        // Add a byte, so that a renewal has something to write.
        let mut bytes = Resume.encode(name, claim, previous)?;
        bytes.push(b' ');
        Ok(bytes)
    }

    fn decode(
        &self,
        name: &LockName,
        bytes: &[u8],
        now: &Now,
        here: &Host,
    ) -> Result<Claim, String> {
        let left = self.times.load(Ordering::SeqCst);
        if left > 0 {
            self.times.store(left - 1, Ordering::SeqCst);
            let new = self.record.with_extension("meddled");
            fs::write(&new, bytes).expect("a private file");
            rename_over(&new, &self.record);
        }
        Resume.decode(name, bytes, now, here)
    }
}

/// Every call that changes a lock, with something to change each time, while another program writes the
/// record anew this often.
fn calls_that_are_overtaken(times: usize) -> Vec<(&'static str, Result<bool, StoreError>)> {
    let owns = |_: &Claim| Ownership::Shown;
    let scene = |text: Option<&str>| {
        let place = Place::with_folder(R);
        let handle = match text {
            None => Some(place.granted("ours-1").0),
            Some(text) => {
                place.plant(text);
                None
            }
        };
        let meddler = Meddler {
            record: place.record(),
            times: AtomicUsize::new(times),
        };
        let store = FileStore::with_profile(
            Box::new(meddler),
            place.scratch.path(),
            place.host.clone(),
            Box::new(ThreadSleeper),
        );
        (place, store, handle)
    };
    let (mut calls, stale) = (Vec::new(), Place::new(R).stale());

    let (place, store, _) = scene(Some(&stale));
    let entered = store.enter(&place.name, place.request("ours-2"), &place.now());
    let is_granted = |entered: Entered| matches!(entered.entering, Entering::Granted { .. });
    calls.push(("enter", entered.map(is_granted)));

    let (place, store, handle) = scene(None);
    let handle = handle.expect("a handle");
    let renewed = store.renew(&*handle, &place.now());
    calls.push(("renew", renewed.map(|renewed| !is_lost(renewed))));

    let (place, store, _handle) = scene(None);
    let released = store.release_owned(&place.name, &owns, &place.now());
    let is_done = |released| matches!(released, Released::Done { .. });
    calls.push(("release", released.map(is_done)));

    let (place, store, _) = scene(Some(&stale));
    let cleaned = store.clean(&place.name, &place.now(), false);
    calls.push(("clean", cleaned.map(|cleaned| cleaned.swept.len() == 1)));
    calls
}

#[test]
fn a_change_that_another_program_comes_before_a_few_times_is_made() {
    for (call, answer) in calls_that_are_overtaken(5) {
        assert!(matches!(answer, Ok(true)), "{call}: {answer:?}");
    }
}

#[test]
fn a_change_that_another_program_always_comes_before_is_given_up() {
    for (call, answer) in calls_that_are_overtaken(usize::MAX) {
        assert!(
            matches!(answer, Err(StoreError::Contended { .. })),
            "{call}: {answer:?}"
        );
    }
}

// --- Taking over -------------------------------------------------------------------------------

#[test]
fn a_stale_record_is_replaced_in_one_step_and_only_as_its_rule_says() {
    each_place(|format, place| {
        let text = place.stale();
        place.plant(&text);
        #[cfg(unix)]
        let inode = fs::metadata(place.record()).expect("a record").ino();
        if format.asks_for_force() {
            let (reason, _) = place.refused(place.request("ours-1"));
            assert_eq!(reason, Reason::StaleNeedsForce, "{format:?}");
            assert_eq!(place.text(), text, "{format:?}: unchanged");
            #[cfg(unix)]
            {
                let same = fs::metadata(place.record()).expect("a record").ino();
                assert_eq!(inode, same, "{format:?}: the same file");
            }
        }
        let entered = place.try_enter(place.taking("ours-2")).expect("an answer");
        assert!(matches!(entered.entering, Entering::Granted { .. }));
        let stolen = entered.events.iter().find_map(|event| match event {
            Event::Stolen { why, record, .. } => Some((*why, record.clone())),
            _ => None,
        });
        let (why, record) = stolen.expect("an event");
        assert!(matches!(why, Takeover::Stale(_)), "{format:?}: {why:?}");
        assert_eq!(record, text.as_bytes(), "{format:?}: the replaced bytes");
        assert!(place.text().contains("ours-2"), "{format:?}: our record");
        assert_eq!(place.leftovers(), Vec::<String>::new(), "{format:?}");
    });
}

// On Windows the record is gone for an instant: `docs/windows.md`.
#[cfg(unix)]
#[test]
fn the_path_is_never_empty_during_a_takeover() {
    each_place(|format, place| {
        let over = std::sync::atomic::AtomicBool::new(false);
        let order = Ordering::SeqCst;
        place.plant(&place.stale());
        thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut looks = 0_u32;
                while !over.load(order) {
                    let text = fs::read_to_string(place.record());
                    let text = text.expect("a record at every instant");
                    let end = if format == R { "}" } else { "\n" };
                    assert!(text.ends_with(end), "{format:?}: half a record: {text:?}");
                    looks += 1;
                }
                looks
            });
            for round in 0..40 {
                let id = format!("ours-{round}");
                place.grant(place.taking(&id));
                // The record becomes stale again, without ever being away.
                place.plant_by_rename(&place.stale());
            }
            over.store(true, order);
            println!("{} looks", watcher.join().expect("no half record"));
        });
    });
}

#[test]
fn a_half_written_record_is_waited_for() {
    each_place(|format, place| {
        let text = place.live();
        let half = &text[..text.len() / 2];
        for reads in [false, true] {
            place.plant(half);
            let began = instant();
            thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(Duration::from_millis(500));
                    place.plant(&text);
                });
                if reads {
                    assert!(matches!(place.standing(), Standing::Held(_)), "{format:?}");
                } else {
                    let (reason, _) = place.refused(place.request("ours-1"));
                    assert_eq!(reason, Reason::Held, "{format:?}");
                }
            });
            let took = tenure_os::clock::since(began);
            assert!(took < Duration::from_millis(1_500), "{format:?}: {took:?}");
            assert_eq!(place.text(), text, "{format:?}: theirs");
        }
    });
}

/// Does not sleep: meanwhile, another program writes the rest of its record.
struct Mender {
    record: PathBuf,
    text: String,
    naps: Arc<AtomicUsize>,
}

impl Sleeper for Mender {
    fn lock(
        &self,
        file: BorrowedDescriptor<'_>,
        lock: ByteLock,
        patience: Duration,
    ) -> std::io::Result<Wake> {
        ThreadSleeper.lock(file, lock, patience)
    }

    fn pass(
        &self,
        file: BorrowedDescriptor<'_>,
        lock: ByteLock,
        until: Option<Instant>,
        wake_up: Option<BorrowedDescriptor<'_>>,
    ) -> std::io::Result<Wake> {
        ThreadSleeper.pass(file, lock, until, wake_up)
    }

    fn poll(
        &self,
        _: &[BorrowedDescriptor<'_>],
        _: Duration,
        _: Option<Instant>,
    ) -> std::io::Result<Wake> {
        self.naps.fetch_add(1, Ordering::SeqCst);
        fs::write(&self.record, &self.text)?;
        Ok(Wake::Ready)
    }
}

#[test]
fn every_call_reads_again_what_is_half_written_and_nothing_that_is_whole() {
    type Call<'a> = (
        &'a str,
        &'a dyn Fn(&FileStore, &Place, &ClaimHandle) -> bool,
    );
    let owns = |_: &Claim| Ownership::Shown;
    let calls: [Call<'_>; 7] = [
        ("read", &|store, place, _| {
            let reading = store.read(&place.name, None).expect("a reading");
            matches!(reading.content, Content::Whole { .. })
        }),
        ("enter", &|store, place, _| {
            let entered = store.enter(&place.name, place.request("ours-2"), &place.now());
            matches!(entered.expect("an answer").entering, Entering::Refused(_))
        }),
        ("renew", &|store, place, handle| {
            !is_lost(store.renew(&**handle, &place.now()).expect("an answer"))
        }),
        ("renew by name", &|store, place, _| {
            let renewed = store.renew_owned(&place.name, &owns, &place.now());
            matches!(renewed, Ok(RenewedOwned::Renewed { .. }))
        }),
        ("release", &|store, place, _| {
            let released = store.release_owned(&place.name, &owns, &place.now());
            matches!(released, Ok(Released::Done { .. }))
        }),
        ("dry clean", &|store, place, _| {
            let cleaned = store.clean(&place.name, &place.now(), true);
            cleaned.expect("an answer").swept.is_empty()
        }),
        ("clean", &|store, place, _| {
            let cleaned = store.clean(&place.name, &place.now(), false);
            cleaned.expect("an answer").swept.is_empty()
        }),
    ];
    each(|format| {
        for (what, call) in calls {
            for is_whole in [true, false] {
                let place = Place::with_folder(format);
                let (handle, _) = place.granted("ours-1");
                let text = place.text();
                if !is_whole {
                    // Written in place, as a program writes that does not rename.
                    fs::write(place.record(), &text[..7]).expect("its first bytes");
                }
                let naps = Arc::new(AtomicUsize::new(0));
                let mender = Mender {
                    record: place.record(),
                    text,
                    naps: Arc::clone(&naps),
                };
                let store = FileStore::with_profile(
                    format.profile(),
                    place.scratch.path(),
                    place.host.clone(),
                    Box::new(mender),
                );
                assert!(call(&store, &place, &handle), "{format:?}: {what}");
                let napped = naps.load(Ordering::SeqCst);
                assert_eq!(napped, usize::from(!is_whole), "{format:?}: {what}");
            }
        }
    });
}

#[test]
fn what_cannot_be_read_is_judged_once_it_has_settled() {
    // Written just now, and never completed: 2 s later the row decides.
    each_place(|format, place| {
        place.plant("{ \"half\": ");
        let began = instant();
        let entered = place.try_enter(place.request("ours-1"));
        let took = tenure_os::clock::since(began);
        match (format, &entered) {
            (S, Ok(entered)) => {
                assert!(matches!(entered.entering, Entering::Granted { .. }));
            }
            (P, Ok(entered)) => assert!(
                matches!(&entered.entering, Entering::Refused(refusal)
                    if refusal.reason == Reason::StaleNeedsForce),
                "{entered:?}"
            ),
            (R | F, Err(StoreError::Unreadable { .. })) => {}
            _ => panic!("{format:?}: {entered:?} after {took:?}"),
        }
        assert!(
            took > Duration::from_millis(1_800) && took < Duration::from_secs(4),
            "{format:?}: {took:?}"
        );
    });
}

#[test]
fn releases_and_cleaning_wait_for_a_record_to_settle_too() {
    for format in [P, S] {
        let place = Place::with_folder(format);
        place.plant("{ \"half\": ");
        let owns = |_: &Claim| Ownership::Shown;
        let now = place.now();
        if format == P {
            let released = place.store().release_owned(&place.name, &owns, &now);
            assert!(
                matches!(released, Ok(Released::Unreadable { .. })),
                "{released:?}"
            );
        } else {
            let cleaned = place.store().clean(&place.name, &now, false);
            assert!(
                cleaned.as_ref().is_ok_and(|cleaned| cleaned.removed),
                "{cleaned:?}"
            );
        }
        assert!(!place.record().exists(), "{format:?}: removed");
    }
}

#[test]
fn an_old_unreadable_record_is_judged_by_the_row() {
    const BAD: &str = "no record at all\n";
    let old = Duration::from_secs(5);
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    // Whether a plain request gets it, and whether one with force does.
    for (format, age, plain, forced) in [
        (P, old, false, true),
        (R, old, false, true),
        (S, old, true, true),
        (F, old, false, false),
        (F, minutes(14), false, false),
        (F, minutes(16), false, true),
    ] {
        for (force, gets) in [(Force::No, plain), (Force::Asked, forced)] {
            let place = Place::with_folder(format);
            place.plant(BAD);
            place.age(age);
            let began = instant();
            let entered = place.try_enter(place.forced("ours-1", force));
            let took = tenure_os::clock::since(began);
            assert!(
                took < Duration::from_secs(1),
                "{format:?}: at once, {took:?}"
            );
            // A caller with force, or one that asks where force would succeed, is refused; for any other
            // it is an error.
            let is_error = matches!(entered, Err(StoreError::Unreadable { .. }));
            let nothing_helps = force == Force::No && matches!(format, R | F);
            assert_eq!(is_error, nothing_helps, "{format:?} with {force:?}");
            let granted = match entered {
                Ok(entered) => {
                    let granted = matches!(entered.entering, Entering::Granted { .. });
                    let stolen = entered.events.iter().any(|event| {
                        matches!(event, Event::Stolen { why: Takeover::Corrupt, record, .. }
                            if record == BAD.as_bytes())
                    });
                    assert_eq!(granted, stolen, "{format:?}: it is told");
                    granted
                }
                Err(StoreError::Unreadable { place, why }) => {
                    assert!(place.contains(format.file()) && !why.is_empty());
                    false
                }
                Err(other) => panic!("{format:?}: {other}"),
            };
            assert_eq!(granted, gets, "{format:?} with {force:?} at {age:?}");
            if !gets {
                assert_eq!(place.text(), BAD, "{format:?}: left alone");
            }
        }
    }
}

/// The list that stands beside it goes on with its own numbers.
#[test]
fn a_caller_that_replaces_an_unreadable_record_asks_no_floor() {
    let place = Place::new(R);
    let (handle, _) = place.granted("ours-1");
    place.release(&*handle);
    place.plant("no record at all\n");
    place.age(Duration::from_secs(5));
    fs::write(place.ledger().join(".floor.tenure"), "damaged").expect("a file");
    place.grant(place.forced("ours-2", Force::Asked));
}

#[test]
fn a_record_edited_by_hand_to_look_old_is_stale() {
    for (format, field) in [
        (P, "started_at"),
        (S, "acquiredAt"),
        (F, "last_heartbeat_at"),
    ] {
        for kind in [Kind::Detached, Kind::Kernel] {
            let place = Place::with_folder(format);
            let (handle, token) = place.grant(Request {
                kind,
                ..place.request("ours-1")
            });
            let text = place.text();
            let start = text.find(field).expect("the field");
            let digits = start + text[start..].find("20").expect("a year");
            let mut edited = text.clone();
            let old = time(wall_ms() - 25 * HOUR_MS);
            edited.replace_range(digits..digits + 19, &old[..19]);
            place.plant(&edited);
            assert_eq!(
                place.standing(),
                Standing::Stale(StaleReason::Aged),
                "{format:?}, {kind:?}: {edited}"
            );
            assert!(
                place.still_has(&*handle),
                "{format:?}: no caller has taken it yet"
            );
            let (_, next) = place.grant(place.taking("ours-2"));
            assert!(next > token, "{format:?}: tokens rise");
            assert!(is_lost(
                place
                    .store()
                    .verify(&*handle, &place.now())
                    .expect("an answer")
            ));
        }
    }
}

#[test]
fn a_foreign_record_that_was_seen_before_lends_nothing_to_its_successor() {
    // Two records of the original resume program have the same (empty) owner, and these two have the
    // same second. The second record is another host's, where nothing is known of its process.
    let place = Place::with_folder(R);
    let first = place.foreign();
    place.plant(&R.write(&first));
    let queue = Request {
        patience: Patience::Queue,
        ..place.request("ours-1")
    };
    let queued = place.try_enter(queue).expect("a place");
    assert!(matches!(queued.entering, Entering::Queued { .. }));
    let elsewhere = Foreign {
        pid: dead_pid(),
        host: "elsewhere".to_owned(),
        ..first
    };
    let text = place.text();
    let instant = text.split("\"acquired_at\": ").nth(1).expect("a time");
    let (head, _) = R
        .write(&elsewhere)
        .split_once("\"acquired_at\": ")
        .map(|(head, tail)| (head.to_owned(), tail.to_owned()))
        .expect("a time");
    place.plant_by_rename(&format!("{head}\"acquired_at\": {instant}"));
    let handle = queued.handle.expect("a handle");
    let advanced = place.store().try_grant(&*handle, &place.now());
    let advanced = advanced.expect("an answer").grant;
    assert!(
        matches!(advanced, tenure_core::TryGrant::Behind(_)),
        "a process of another host is taken for a dead one of this: {advanced:?}"
    );
}

// --- The folder beside the records -------------------------------------------------------------

#[cfg(unix)]
#[test]
fn without_its_ledger_a_record_of_ours_is_judged_by_what_it_says() {
    each_place(|format, place| {
        let (handle, token) = place.granted("ours-1");
        fs::remove_dir_all(place.ledger()).expect("the ledger");
        assert!(matches!(place.standing(), Standing::Held(_)), "{format:?}");
        let (reason, _) = place.refused(place.request("ours-2"));
        assert_eq!(reason, Reason::Held, "{format:?}");
        let shown = |claim: &Claim| {
            assert_eq!(claim.token, Some(token), "{format:?}: its token");
            if claim.holder.request_id.as_str() == "ours-1" {
                Ownership::Shown
            } else {
                Ownership::Missing
            }
        };
        let renewed = place.store().renew_owned(&place.name, &shown, &place.now());
        assert!(
            matches!(renewed, Ok(RenewedOwned::Renewed { .. })),
            "{format:?}: its owner can go on: {renewed:?}"
        );
        let released = place
            .store()
            .release_owned(&place.name, &shown, &place.now());
        assert!(
            matches!(released, Ok(Released::Done { .. })),
            "{released:?}"
        );
        assert!(!place.record().exists(), "{format:?}: gone");
        let (_, next) = place.granted("ours-3");
        assert!(next > token, "{format:?}: tokens rise");
        drop(handle);
    });
}

#[test]
fn tokens_rise_above_a_record_s_even_if_the_clock_went_back_and_the_ledger_is_gone() {
    each_place(|format, place| {
        let mut ahead = place.now();
        // Further ahead than its ttl would make a corrupt record of one format.
        ahead.wall_us += 600_000_000;
        let request = place.request("ours-1");
        let entered = place.store().enter(&place.name, request, &ahead);
        let Entering::Granted { token, .. } = entered.expect("an answer").entering else {
            panic!("{format:?}: not granted");
        };
        fs::remove_dir_all(place.ledger()).expect("the ledger");
        let released = place.release_shown();
        assert!(matches!(released, Released::Done { .. }), "{released:?}");
        let (_, next) = place.granted("ours-2");
        assert!(next > token, "{format:?}: {next} > {token}");
    });
}

// A folder in which a process has a file open cannot be removed on Windows.
#[cfg(unix)]
#[test]
fn a_store_that_is_kept_open_finds_a_ledger_that_was_removed() {
    each_place(|format, place| {
        let store = place.store();
        let entered = store.enter(&place.name, place.request("ours-1"), &place.now());
        let handle = entered.expect("an answer").handle.expect("a handle");
        store.release(&*handle, &place.now()).expect("a release");
        fs::remove_dir_all(place.ledger()).expect("the ledger");
        let entered = store.enter(&place.name, place.request("ours-2"), &place.now());
        let entered = entered.map(|entered| entered.entering);
        assert!(
            matches!(entered, Ok(Entering::Granted { .. })),
            "{format:?}: {entered:?}"
        );
    });
}

// A folder in which a process has a file open cannot be removed on Windows.
#[cfg(unix)]
#[test]
fn a_store_that_is_kept_open_finds_the_record_in_a_folder_that_was_made_anew() {
    each_place(|format, place| {
        let kept = place.store();
        drop(place.granted("ours-1"));
        let standing = || {
            let reading = kept.read(&place.name, None).expect("a reading");
            reading.standing(&kept.rules().policy, &place.now()).0
        };
        assert!(matches!(standing(), Standing::Held(_)), "{format:?}");
        fs::remove_dir_all(place.folder()).expect("a removal by hand");
        assert_eq!(standing(), Standing::Free, "{format:?}: it is free");
        fs::create_dir_all(place.folder()).expect("a folder");
        ours_alone(&place.folder());
        place.plant(&place.live());
        assert!(
            matches!(standing(), Standing::Held(_)),
            "{format:?}: theirs"
        );
    });
}

/// The record is the truth about the holder: while it stands it keeps all callers out, and once its holder
/// is gone it keeps out none.
#[cfg(unix)] // on Windows no folder goes while a file in it is open
#[test]
fn a_hold_whose_coordination_files_were_removed_takes_its_record_with_it() {
    each(|format| {
        for somebody_comes in [false, true] {
            let why = format!("{format:?}, {somebody_comes}");
            let place = Place::with_folder(format);
            let store = place.store();
            let entered = store.enter(&place.name, place.request("ours-1"), &place.now());
            let handle = entered.expect("an answer").handle.expect("a handle");
            let token = store.read(&place.name, None).expect("a reading");
            let token = token.entry().and_then(|entry| entry.claims.first()?.token);
            fs::remove_dir_all(place.ledger()).expect("a removal by hand");
            if somebody_comes {
                let (reason, _) = place.refused(place.request("next-1"));
                assert_eq!(reason, Reason::Held, "{why}: the record stands");
                assert!(place.ledger().exists(), "{why}: and is coordinated anew");
            }
            let verified = store.verify(&*handle, &place.now()).expect("an answer");
            assert_eq!(verified, Renewal::Lost, "{why}: its place is gone");
            let left = store.release(&*handle, &place.now()).expect("an answer");
            let is_released = matches!(left, Left::Released { .. });
            assert!(is_released, "{why}: it held as long as it stood: {left:?}");
            assert!(!place.record().exists(), "{why}: nothing blocks the next");
            let (_, next) = place.granted("next-1");
            assert!(Some(next) > token, "{why}: and its number is higher");
        }
    });
}

#[cfg(unix)] // on Windows no folder goes while a file in it is open
#[test]
fn no_run_goes_on_within_a_hold_of_which_the_record_alone_is_left() {
    each_place(|format, place| {
        let (_handle, token) = place.granted("ours-1");
        fs::remove_dir_all(place.ledger()).expect("a removal by hand");
        let (reason, _) = place.refused(place.request("next-1"));
        assert_eq!(reason, Reason::Held, "{format:?}: the record stands");
        let within = place.store().go_within(&place.name, token);
        assert!(within.expect("an answer").is_none(), "{format:?}");
    });
}

#[cfg(unix)] // on Windows no folder goes while a file in it is open
#[test]
fn a_hold_that_was_waited_for_takes_its_record_with_it_too() {
    each_place(|format, place| {
        let store = place.store();
        let (first, _) = place.granted("ours-1");
        let waits = Request {
            kind: Kind::Kernel,
            patience: Patience::Queue,
            ..place.request("ours-2")
        };
        let entered = store.enter(&place.name, waits, &place.now());
        let waiter = entered.expect("an answer").handle.expect("a handle");
        assert!(matches!(place.release(&*first), Left::Released { .. }));
        let tried = store.try_grant(&*waiter, &place.now()).expect("a look");
        assert!(
            matches!(tried.grant, tenure_core::TryGrant::Granted { .. }),
            "{format:?}"
        );
        fs::remove_dir_all(place.ledger()).expect("a removal by hand");
        store.release(&*waiter, &place.now()).expect("an answer");
        assert!(!place.record().exists(), "{format:?}");
    });
}

#[cfg(unix)] // on Windows no folder goes while a file in it is open
#[test]
fn whoever_lost_its_coordination_files_leaves_the_record_of_another_alone() {
    each_place(|format, place| {
        let store = place.store();
        let entered = store.enter(&place.name, place.request("ours-1"), &place.now());
        let handle = entered.expect("an answer").handle.expect("a handle");
        fs::remove_dir_all(place.ledger()).expect("a removal by hand");
        fs::remove_file(place.record()).expect("a removal by hand");
        let (_theirs, _) = place.granted("next-1");
        let before = place.bytes();
        let left = store.release(&*handle, &place.now()).expect("an answer");
        assert_eq!(left, Left::Absent, "{format:?}");
        assert_eq!(place.bytes(), before, "{format:?}: the next one's");
        place.plant("{ nothing that can be read");
        let left = store.release(&*handle, &place.now()).expect("an answer");
        assert_eq!(left, Left::Absent, "{format:?}");
        assert!(place.record().exists(), "{format:?}: nor what is garbage");
    });
}

#[test]
fn the_folder_of_the_records_is_made_unless_it_is_somebody_s_project() {
    each(|format| {
        let place = Place::new(format);
        let root = place.scratch.path().join("deeper");
        let store = FileStore::with_profile(
            format.profile(),
            &root,
            place.host.clone(),
            Box::new(ThreadSleeper),
        );
        let entered = store.enter(&place.name, place.request("ours-1"), &place.now());
        if format == P {
            assert!(
                matches!(&entered, Err(StoreError::Io { .. })),
                "{entered:?}"
            );
            assert!(!root.exists(), "nothing was made");
        } else {
            let entering = entered.expect("an answer").entering;
            assert!(matches!(entering, Entering::Granted { .. }), "{entering:?}");
            assert!(format.folder(&root).is_dir(), "{format:?}");
        }
    });
}

#[cfg(target_os = "linux")]
#[test]
fn a_store_opens_its_two_folders_once() {
    each_place(|format, place| {
        let store = place.store();
        let opened = |folder: &Path| {
            let links = fs::read_dir("/proc/self/fd").expect("our descriptors");
            links
                .filter_map(|link| fs::read_link(link.ok()?.path()).ok())
                .filter(|to| to == folder)
                .count()
        };
        for round in 0..3 {
            let entered = store.enter(&place.name, place.request("ours-1"), &place.now());
            let handle = entered.expect("an answer").handle.expect("a handle");
            store.release(&*handle, &place.now()).expect("a release");
            assert_eq!(opened(&place.folder()), 1, "{format:?}, round {round}");
            assert_eq!(opened(&place.ledger()), 1, "{format:?}, round {round}");
        }
    });
}

#[test]
fn what_is_left_of_a_lock_without_its_record_is_named_for_cleaning() {
    each_place(|format, place| {
        let left = |place: &Place| {
            let mut names = Vec::new();
            let store = place.store();
            let mut each = |name| names.push(name);
            let listed = store.names(Which::Leftovers, &mut each);
            listed.expect("a list");
            names
        };
        assert_eq!(left(&place), [], "{format:?}: nothing was made yet");
        let (handle, _) = place.granted("ours-1");
        assert_eq!(left(&place), [], "{format:?}: its record stands");
        place.release(&*handle);
        assert_eq!(
            left(&place),
            std::slice::from_ref(&place.name),
            "{format:?}"
        );
    });
}

#[cfg(unix)]
#[test]
fn a_folder_that_others_can_read_deserves_a_warning_where_the_format_wants_it_private() {
    each_place(|format, place| {
        assert_eq!(place.store().warning().expect("an answer"), None);
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(place.folder(), mode).expect("a mode");
        let warning = place.store().warning().expect("an answer");
        let path = place.folder().display().to_string();
        let is_warned = warning.is_some_and(|warning| warning.starts_with(&path));
        assert_eq!(is_warned, format == F, "{format:?}");
    });
}

#[test]
fn names_are_those_of_records() {
    each_place(|format, place| {
        let listed = |place: &Place| {
            let mut names = Vec::new();
            let listed = place
                .store()
                .names(Which::Locks, &mut |name| names.push(name));
            listed.expect("a list");
            names
        };
        assert!(listed(&place).is_empty(), "{format:?}: nothing yet");
        let (handle, _) = place.granted("ours-1");
        for stray in [
            "README",
            "42.lock.tmp",
            ".hidden.lock",
            "x y.lock",
            "app.tenure",
            ".sprint-running.tmp",
        ] {
            fs::write(place.folder().join(stray), "stray").expect("a file");
        }
        assert_eq!(
            listed(&place),
            std::slice::from_ref(&place.name),
            "{format:?}"
        );
        place.release(&*handle);
        assert!(listed(&place).is_empty(), "{format:?}: free ones are gone");
        place.plant(&place.live());
        assert_eq!(
            listed(&place),
            std::slice::from_ref(&place.name),
            "{format:?}: foreign"
        );
    });
}

#[test]
fn looking_creates_nothing() {
    each(|format| {
        for record in [None, Some(false), Some(true)] {
            let place = Place::new(format);
            match record {
                None => {}
                Some(true) => place.plant(&place.live()),
                Some(false) => place.plant(&place.stale()),
            }
            let before = place.tree();
            let store = place.store();
            let (name, now) = (&place.name, place.now());
            let reading = store.read(name, None).expect("a reading");
            assert!(reading.entry().is_some(), "{format:?}: {reading:?}");
            store.names(Which::Locks, &mut |_| {}).expect("a list");
            let soon = Some(instant() + Duration::from_millis(5));
            store.watch(name, &reading, &now, soon).expect("a wait");
            store.clean(name, &now, true).expect("a dry run");
            store.warning().expect("a warning or none");
            if record.is_none() {
                let owns = |_: &Claim| Ownership::Shown;
                let released = store.release_owned(name, &owns, &now);
                assert!(matches!(released, Ok(Released::Absent)), "{released:?}");
                let renewed = store.renew_owned(name, &owns, &now);
                assert!(matches!(renewed, Ok(RenewedOwned::Lost)), "{renewed:?}");
                let forced = store.force_release(name, Force::Confirmed, &now);
                assert_eq!(forced.expect("an answer").released, Forced::Absent);
                store.clean(name, &now, false).expect("nothing to clean");
            }
            assert_eq!(place.tree(), before, "{format:?}, {record:?}");
        }
    });
}

// --- What may lie in the way -------------------------------------------------------------------

#[cfg(unix)]
#[test]
fn what_is_no_file_at_the_record_s_path_is_refused_and_not_followed() {
    type Plant<'a> = (&'a str, &'a dyn Fn(&Place));
    let plants: [Plant<'_>; 5] = [
        ("a link to a record", &|place| {
            let victim = place.scratch.path().join("victim");
            fs::write(&victim, place.stale()).expect("a file");
            std::os::unix::fs::symlink(victim, place.record()).expect("a link");
        }),
        ("a link to nowhere", &|place| {
            let nowhere = place.scratch.path().join("nowhere");
            std::os::unix::fs::symlink(nowhere, place.record()).expect("a link");
        }),
        ("a FIFO", &|place| {
            let mode = Mode::RUSR | Mode::WUSR;
            mknodat(CWD, place.record(), FileType::Fifo, mode, 0).expect("a FIFO");
        }),
        ("a socket", &|place| {
            std::os::unix::net::UnixListener::bind(place.record()).expect("a socket");
        }),
        ("a folder", &|place| {
            fs::create_dir(place.record()).expect("a folder");
        }),
    ];
    for (what, plant) in plants {
        each_place(|format, place| {
            plant(&place);
            let look = || {
                let meta = fs::symlink_metadata(place.record()).expect("what was planted");
                (meta.ino(), meta.mode(), meta.len(), meta.mtime_nsec())
            };
            let before = look();
            let store = place.store();
            let (name, now) = (&place.name, place.now());
            let owns = |_: &Claim| Ownership::Shown;
            let forced = place.forced("ours-2", Force::Confirmed);
            let answers: Vec<(&str, Result<(), StoreError>)> = vec![
                ("read", store.read(name, None).map(drop)),
                (
                    "enter",
                    store.enter(name, place.request("ours-1"), &now).map(drop),
                ),
                ("force", store.enter(name, forced, &now).map(drop)),
                ("release", store.release_owned(name, &owns, &now).map(drop)),
                ("renew", store.renew_owned(name, &owns, &now).map(drop)),
                (
                    "force-release",
                    store.force_release(name, Force::Confirmed, &now).map(drop),
                ),
                ("clean", store.clean(name, &now, false).map(drop)),
            ];
            for (call, answer) in answers {
                assert!(
                    matches!(answer, Err(StoreError::Unsafe { .. })),
                    "{format:?}, {what}: {call}: {answer:?}"
                );
            }
            assert_eq!(look(), before, "{format:?}: {what} is left as it was");
            assert!(!place.scratch.path().join("nowhere").exists());
        });
    }
}

#[cfg(unix)]
#[test]
fn a_planted_ledger_is_refused() {
    each_place(|format, place| {
        let elsewhere = tempfile::tempdir().expect("a folder");
        std::os::unix::fs::symlink(elsewhere.path(), place.ledger()).expect("a link");
        let entered = place.try_enter(place.request("ours-1"));
        assert!(
            matches!(entered, Err(StoreError::Unsafe { .. })),
            "{format:?}: {entered:?}"
        );
        let made = fs::read_dir(elsewhere.path()).expect("a folder").count();
        assert_eq!(made, 0, "{format:?}: nothing was made through the link");
        assert!(!place.record().exists(), "{format:?}");
    });
}

#[cfg(unix)]
fn set_mode(folder: &Path, mode: u32) {
    fs::set_permissions(folder, fs::Permissions::from_mode(mode)).expect("a mode");
}

/// The number of a user who owns nothing.
#[cfg(unix)]
const OTHER_USER: u32 = 65_534;

/// Another user could have prepared it, or could replace what is in it.
#[cfg(unix)]
#[test]
fn a_folder_of_records_or_a_ledger_is_as_safe_as_the_shared_folder_around_it() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can give a folder away");
        return;
    }
    // The folder that several users write to, the one in it, its owner, and whether it is refused.
    for (around, mode, owner, is_refused) in [
        (0o1777, 0o700, OTHER_USER, true),
        (0o1777, 0o1777, OTHER_USER, true),
        (0o1777, 0o700, 0, false),
        (0o3770, 0o2770, OTHER_USER, true),
        (0o3770, 0o3770, OTHER_USER, false),
        (0o3770, 0o2770, 0, false),
        (0o2770, 0o2770, OTHER_USER, false),
        (0o700, 0o700, OTHER_USER, false),
    ] {
        let place = Place::with_folder(R);
        set_mode(place.scratch.path(), around);
        std::os::unix::fs::chown(place.folder(), Some(owner), None).expect("its owner");
        set_mode(&place.folder(), mode);
        let entered = place.try_enter(place.request("ours-1"));
        let refused = matches!(entered, Err(StoreError::Unsafe { .. }));
        let case = format!("{around:o} {mode:o} {owner}: {entered:?}");
        assert_eq!(refused, is_refused, "records in {case}");
        if mode == 0o1777 {
            continue;
        }
        let place = Place::with_folder(R);
        set_mode(&place.folder(), around);
        fs::create_dir(place.ledger()).expect("a ledger");
        std::os::unix::fs::chown(place.ledger(), Some(owner), None).expect("its owner");
        set_mode(&place.ledger(), mode);
        let entered = place.try_enter(place.request("ours-1"));
        let refused = matches!(entered, Err(StoreError::Unsafe { .. }));
        assert_eq!(refused, is_refused, "a ledger in {case}");
    }
}

#[cfg(unix)]
#[test]
fn a_ledger_that_all_users_may_write_is_refused() {
    each_place(|format, place| {
        fs::create_dir(place.ledger()).expect("a ledger");
        set_mode(&place.ledger(), 0o1777);
        let entered = place.try_enter(place.request("ours-1"));
        assert!(
            matches!(entered, Err(StoreError::Unsafe { .. })),
            "{format:?}: {entered:?}"
        );
    });
}

/// Members of the group may read a record where the folder says so, and the format lets them.
#[cfg(unix)]
#[test]
fn who_may_read_a_record_follows_from_its_folder_and_its_format() {
    let group_s = Some("chmod o-rwx");
    let owner_s = Some("chmod 700");
    for (format, mode, used) in [
        (R, 0o700, Some((0o600, None))),
        (R, 0o770, Some((0o600, None))),
        (R, 0o2750, Some((0o640, None))),
        (R, 0o2770, Some((0o660, None))),
        (R, 0o1777, Some((0o600, None))),
        (F, 0o700, Some((0o600, None))),
        (F, 0o770, None),
        (F, 0o1777, None),
        (F, 0o750, Some((0o600, owner_s))),
        (F, 0o2750, Some((0o600, owner_s))),
        (F, 0o2770, Some((0o660, None))),
        (F, 0o2775, Some((0o660, group_s))),
    ] {
        let place = Place::with_folder(format);
        set_mode(&place.folder(), mode);
        let entered = place.try_enter(place.request("ours-1"));
        let case = format!("{format:?} {mode:o}: {entered:?}");
        let Some((record, told)) = used else {
            assert!(matches!(entered, Err(StoreError::Unsafe { .. })), "{case}");
            continue;
        };
        assert!(entered.is_ok(), "{case}");
        let facts = fs::metadata(place.record()).expect("a record");
        assert_eq!(facts.mode() & 0o777, record, "{case}");
        let warning = place.store().warning().expect("an answer");
        assert_eq!(warning.is_some(), told.is_some(), "{case}: {warning:?}");
        if let (Some(warning), Some(told)) = (warning, told) {
            assert!(warning.contains(told), "{case}: {warning}");
        }
    }
}

/// What a run takes beside a lock of another format.
#[test]
fn native_locks_beside_records_lie_in_a_folder_of_ours_that_git_ignores() {
    each_place(|format, place| {
        let (profile, root) = (format.profile(), place.scratch.path());
        let folder = FileStore::folder_beside(&*profile, root);
        assert_eq!(folder, root.join(".tenure/locks"), "{format:?}");
        let here = place.host.clone();
        let store = FileStore::beside(&*profile, root, here, Box::new(ThreadSleeper));
        let name = LockName::new("native").expect("a name");
        let entered = store.enter(&name, place.request("ours-1"), &place.now());
        assert!(entered.is_ok(), "{format:?}: {entered:?}");
        assert!(folder.join("native.tenure").exists(), "{format:?}");
        assert!(root.join(".tenure/.gitignore").exists(), "{format:?}");
    });
    let root = Path::new("anywhere");
    assert_eq!(FileStore::folder_beside(&Native, root), root);
}

#[test]
fn the_place_of_native_locks_beside_records_is_made_by_no_look_and_in_no_project() {
    each(|format| {
        let place = Place::new(format);
        let root = place.scratch.path().join("deeper");
        let here = place.host.clone();
        let profile = format.profile();
        let store = FileStore::beside(&*profile, &root, here, Box::new(ThreadSleeper));
        let name = LockName::new("native").expect("a name");
        store.read(&name, None).expect("a reading");
        assert!(!root.exists(), "{format:?}: a look");
        let entered = store.enter(&name, place.request("ours-1"), &place.now());
        assert_eq!(entered.is_ok(), format != P, "{format:?}: {entered:?}");
        assert_eq!(root.exists(), format != P, "{format:?}");
    });
}

#[cfg(unix)]
#[test]
fn native_locks_lie_beside_records_only_where_the_records_may_lie() {
    for (format, is_refused) in [(F, true), (R, false)] {
        let place = Place::with_folder(format);
        set_mode(place.scratch.path(), 0o770);
        let (root, here) = (place.scratch.path(), place.host.clone());
        let store = FileStore::beside(&*format.profile(), root, here, Box::new(ThreadSleeper));
        let name = LockName::new("native").expect("a name");
        let entered = store.enter(&name, place.request("ours-1"), &place.now());
        let refused = matches!(entered, Err(StoreError::Unsafe { .. }));
        assert_eq!(refused, is_refused, "{format:?}: {entered:?}");
    }
}

#[cfg(unix)]
#[test]
fn in_a_shared_folder_a_ledger_of_somebody_else_is_refused_and_ours_is_none() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can give a folder away");
        return;
    }
    let place = Place::with_folder(R);
    let shared = |mode| {
        fs::set_permissions(place.folder(), fs::Permissions::from_mode(mode)).expect("a mode");
    };
    shared(0o1777);
    let (handle, _) = place.granted("ours-1");
    place.release(&*handle);
    std::os::unix::fs::chown(place.ledger(), Some(OTHER_USER), None).expect("another owner");
    let entered = place.try_enter(place.request("ours-2"));
    assert!(
        matches!(entered, Err(StoreError::Unsafe { .. })),
        "{entered:?}"
    );
    assert!(!place.record().exists(), "nothing was published");
    // Where no other user can make files, the ledger's owner does not matter.
    shared(0o700);
    place.granted("ours-3");
}

#[test]
fn git_is_told_to_leave_the_ledger_alone_unless_it_was_told_something_else() {
    each_place(|format, place| {
        let ignore = place.ledger().join(".gitignore");
        drop(place.granted("ours-1"));
        let told = fs::read_to_string(&ignore).expect("a .gitignore");
        assert_eq!(told, "*\n", "{format:?}");
        fs::write(&ignore, "!42.lock\n").expect("a rule of the user's own");
        assert!(matches!(place.release_shown(), Released::Done { .. }));
        drop(place.granted("ours-2"));
        let told = fs::read_to_string(&ignore).expect("a .gitignore");
        assert_eq!(told, "!42.lock\n", "{format:?}");
    });
}

/// A process may die after it made the ledger and before it tells git of it.
#[test]
fn git_is_told_of_a_ledger_that_is_there_already() {
    each_place(|format, place| {
        fs::create_dir_all(place.ledger()).expect("a ledger");
        drop(place.granted("ours-1"));
        let told = fs::read_to_string(place.ledger().join(".gitignore"));
        assert_eq!(told.expect("a .gitignore"), "*\n", "{format:?}");
    });
}

#[cfg(unix)]
#[test]
fn private_files_planted_in_the_ledger_are_not_written_through() {
    each_place(|format, place| {
        let (handle, _) = place.granted("ours-1");
        place.release(&*handle);
        let victim = place.scratch.path().join("victim");
        fs::write(&victim, "precious").expect("a file");
        for end in ["new", "old"] {
            let private = place.ledger().join(format!("{}.{end}", format.file()));
            std::os::unix::fs::symlink(&victim, private).expect("a link");
        }
        let (handle, _) = place.granted("ours-2");
        place.release(&*handle);
        assert_eq!(
            fs::read_to_string(&victim).expect("the victim"),
            "precious",
            "{format:?}"
        );
        assert!(!place.record().exists(), "{format:?}: gone");
    });
}

#[test]
fn ten_megabytes_are_no_record_and_are_not_read_whole() {
    each_place(|format, place| {
        // A whole record in front of it does not make it one.
        let mut text = place.live();
        text.push_str(&" ".repeat(10 << 20));
        place.plant(&text);
        place.age(Duration::from_secs(60));
        let reading = place.store().read(&place.name, None).expect("a reading");
        assert!(
            matches!(reading.content, Content::Unreadable { .. }),
            "{format:?}"
        );
        let entered = place.try_enter(place.request("ours-1"));
        if format == S {
            let entered = entered.expect("an answer");
            assert!(matches!(entered.entering, Entering::Granted { .. }));
            let kept = entered.events.iter().find_map(|event| match event {
                Event::Stolen { record, .. } => Some(record.len()),
                _ => None,
            });
            assert!(kept.is_some_and(|kept| kept <= 4 << 20), "{kept:?}");
            assert!(place.bytes().len() < 4_096, "ours");
        } else {
            assert_eq!(place.text().len(), text.len(), "{format:?}: left alone");
        }
    });
}

#[test]
fn the_ledger_s_own_name_cannot_be_a_record_s() {
    for file in [".tenure", ".tenure/x"] {
        assert!(Sprint::new(file).is_err(), "{file:?} is accepted");
    }
}

// --- Holds beside each other -----------------------------------------------------------------------

#[test]
fn a_format_with_room_for_one_holder_refuses_who_would_hold_beside_others() {
    let place = Place::with_folder(F);
    let mut request = place.request("a");
    let two = NonZeroU32::new(2);
    request.terms.mode = two.map_or(tenure_core::Mode::Exclusive, tenure_core::Mode::Slots);
    let entered = place.store().enter(&place.name, request, &place.now());
    assert!(
        matches!(entered, Err(StoreError::Record { .. })),
        "{entered:?}"
    );
    let left = fs::read_dir(place.folder()).expect("a folder").count();
    assert_eq!(left, 0, "and makes nothing");
}

// --- Waiting -----------------------------------------------------------------------------------

/// Counts how often a waiter begins to sleep.
#[derive(Default)]
struct Naps(u32);

impl Observer for Naps {
    fn waiting(&mut self, _: &Waiting<'_>) -> Option<Instant> {
        self.0 += 1;
        None
    }
}

fn wait(place: &Place, id: &str, wait: Duration) -> (Result<u64, String>, u32) {
    let store = place.store();
    let clock = SystemClock::new(place.host.boot_id.as_deref());
    let mut naps = Naps::default();
    let request = Request {
        kind: Kind::Kernel,
        ..place.request(id)
    };
    let acquired = engine::acquire(
        &store,
        &clock,
        &place.name,
        request,
        Wait::For(wait),
        &mut naps,
    );
    let answer = match acquired {
        Ok(acquired) => {
            let token = acquired.claim.token.unwrap_or_default();
            thread::sleep(Duration::from_millis(20));
            if let Some(handle) = acquired.handle {
                store.release(&*handle, &place.now()).expect("a release");
            }
            Ok(token)
        }
        Err(error) => Err(format!("{error:?}")),
    };
    (answer, naps.0)
}

#[test]
fn waiters_behind_another_program_get_the_lock_in_their_order_once_it_is_released() {
    each_place(|format, place| {
        place.plant(&place.live());
        let (done, order) = channel();
        thread::scope(|scope| {
            for number in 0..4_usize {
                let (place, done) = (&place, done.clone());
                scope.spawn(move || {
                    let id = format!("ours-{number}");
                    let (answer, _) = wait(place, &id, Duration::from_secs(20));
                    done.send((number, answer, instant())).expect("a listener");
                });
                // Entered before the next one comes.
                let queued = || match place.store().read(&place.name, None).expect("read").content {
                    Content::Whole { entry, .. } => entry.claims.len(),
                    Content::Unreadable { .. } => 0,
                };
                let until = instant() + Duration::from_secs(10);
                while queued() < number + 2 {
                    assert!(instant() < until, "{format:?}: {number} does not queue");
                    thread::sleep(Duration::from_millis(2));
                }
            }
            let removed = instant();
            fs::remove_file(place.record()).expect("their release");
            let mut last = 0;
            for expected in 0..4 {
                let (number, answer, at) = order
                    .recv_timeout(Duration::from_secs(20))
                    .expect("an answer");
                assert_eq!(number, expected, "{format:?}: the order");
                let token = answer.expect("the lock");
                assert!(token > last, "{format:?}: tokens rise");
                last = token;
                let took = at - removed;
                assert!(
                    took < Duration::from_millis(1_500),
                    "{format:?}: {expected} after {took:?}"
                );
            }
        });
        assert!(!place.record().exists(), "{format:?}");
    });
}

#[test]
fn a_waiter_outlasts_the_instant_in_which_a_record_is_written_anew() {
    // Programs that write in place empty the record first.
    each_place(|format, place| {
        place.plant(&place.live());
        thread::scope(|scope| {
            let waiting = scope.spawn(|| wait(&place, "ours-1", Duration::from_secs(10)));
            thread::sleep(Duration::from_millis(200));
            let text = place.live();
            place.plant(&text[..text.len() / 2]);
            thread::sleep(Duration::from_millis(400));
            place.plant(&text);
            thread::sleep(Duration::from_millis(300));
            fs::remove_file(place.record()).expect("their release");
            let (answer, _) = waiting.join().expect("an end");
            assert!(answer.is_ok(), "{format:?}: {answer:?}");
        });
    });
}

#[test]
fn a_waiter_sleeps_however_the_record_is_dated() {
    each(|format| {
        for ahead_ms in [0, 10 * MINUTE_MS] {
            let place = Place::with_folder(format);
            let mut foreign = place.foreign();
            foreign.ahead_ms = ahead_ms;
            place.plant(&format.write(&foreign));
            let (answer, naps) = wait(&place, "ours-1", Duration::from_millis(1_500));
            assert!(answer.is_err(), "{format:?}: it is held");
            assert!(
                naps < 20,
                "{format:?}, {ahead_ms} ms ahead: it looked {naps} times in 1.5 s"
            );
        }
    });
}

/// On a slow disk a waiter sleeps milliseconds after its change.
#[test]
fn a_waiter_sleeps_whatever_instant_its_last_change_had() {
    each(|format| {
        for ahead_ms in [0, 10 * MINUTE_MS] {
            let place = Place::with_folder(format);
            let mut foreign = place.foreign();
            (foreign.ago_ms, foreign.ahead_ms) = (MINUTE_MS, ahead_ms);
            place.plant(&format.write(&foreign));
            let mut earlier = place.now();
            let queues = Request {
                patience: Patience::Queue,
                kind: Kind::Kernel,
                ..place.request("ours-1")
            };
            earlier.wall_us -= 5_000;
            earlier.boot_ms -= 5;
            let store = place.store();
            let entered = store.enter(&place.name, queues, &earlier);
            let entered = entered.expect("an answer");
            let Entering::Queued { behind, .. } = entered.entering else {
                panic!("{format:?}: it is held");
            };
            let waiter = entered.handle.expect("a handle");
            let soon = instant() + Duration::from_millis(50);
            let wake = store.sleep(&*waiter, &behind, &place.now(), Some(soon));
            let wake = wake.expect("a sleep");
            assert_eq!(wake, Wake::Expired, "{format:?}, {ahead_ms} ms ahead");
        }
    });
}

#[test]
fn a_waiter_behind_a_newer_version_sleeps() {
    let place = Place::with_folder(P);
    place.plant("lock_version: 2\nwho: somebody\n");
    let (answer, naps) = wait(&place, "ours-1", Duration::from_millis(1_500));
    assert!(answer.is_err(), "it is held");
    assert!(naps < 20, "it looked {naps} times in 1.5 s");
}

// --- Force, cleaning, releasing ----------------------------------------------------------------

#[test]
fn what_force_release_may_remove_is_in_the_row() {
    // By profile: a live record, with and without a yes; a stale one.
    for (format, live, live_confirmed) in [
        (P, false, true),
        (R, true, true),
        (S, false, false),
        (F, false, false),
    ] {
        for (stale, force, goes) in [
            (false, Force::Asked, live),
            (false, Force::Confirmed, live_confirmed),
            (true, Force::Asked, true),
        ] {
            for foreign in [true, false] {
                let place = Place::with_folder(format);
                let handle = if foreign {
                    place.plant(&if stale { place.stale() } else { place.live() });
                    None
                } else if stale {
                    continue;
                } else {
                    Some(place.granted("ours-1").0)
                };
                let before = place.bytes();
                let forced = place
                    .store()
                    .force_release(&place.name, force, &place.now());
                let forced = forced.expect("an answer");
                assert_eq!(forced.record, before, "{format:?}: what others saw");
                let done = matches!(forced.released, Forced::Done { .. });
                assert_eq!(
                    done, goes,
                    "{format:?}, stale {stale}, foreign {foreign}, {force:?}: {:?}",
                    forced.released
                );
                assert_eq!(place.record().exists(), !goes, "{format:?}");
                if !goes {
                    assert_eq!(place.bytes(), before, "{format:?}: left alone");
                }
                if let Some(handle) = handle {
                    let verified = place
                        .store()
                        .verify(&*handle, &place.now())
                        .expect("an answer");
                    assert_eq!(is_lost(verified), goes, "{format:?}: its holder learns");
                }
            }
        }
    }
}

#[test]
fn a_record_that_cannot_be_read_is_removed_by_force_where_the_row_says_so() {
    const BAD: &str = "no record at all\n";
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    for (format, age, goes) in [
        (P, minutes(1), true),
        (R, minutes(1), true),
        (S, minutes(1), true),
        (F, minutes(14), false),
        (F, minutes(16), true),
    ] {
        let place = Place::with_folder(format);
        place.plant(BAD);
        place.age(age);
        let store = place.store();
        let forced = store.force_release(&place.name, Force::Asked, &place.now());
        let forced = forced.expect("an answer");
        assert_eq!(forced.record, BAD.as_bytes(), "{format:?}: what others saw");
        let done = matches!(forced.released, Forced::Done { claim: None, .. });
        assert_eq!(done, goes, "{format:?}, {age:?}: {:?}", forced.released);
        assert_eq!(place.record().exists(), !goes, "{format:?}, {age:?}");
    }
}

#[test]
fn cleaning_removes_what_a_plain_request_would_take_over() {
    each_place(|format, place| {
        let takes = matches!(format, R | S);
        place.plant(&place.stale());
        let before = place.text();
        let would = place.store().clean(&place.name, &place.now(), true);
        let would = would.expect("a dry run");
        assert_eq!(place.text(), before, "{format:?}: a dry run");
        let cleaned = place.store().clean(&place.name, &place.now(), false);
        let cleaned = cleaned.expect("an answer");
        assert_eq!(would, cleaned, "{format:?}: as announced");
        assert_eq!(
            (cleaned.swept.len(), cleaned.removed),
            (usize::from(takes), takes)
        );
        let expected = if takes { before.as_str() } else { "" };
        assert_eq!(cleaned.record, expected.as_bytes(), "{format:?}");
        assert_eq!(place.record().exists(), !takes, "{format:?}");
        if !takes {
            assert_eq!(place.text(), before, "{format:?}: left alone");
        }

        place.plant("garbage");
        place.age(Duration::from_secs(5));
        let would = place.store().clean(&place.name, &place.now(), true);
        let cleaned = place.store().clean(&place.name, &place.now(), false);
        if format == S {
            let cleaned = cleaned.expect("an answer");
            assert!(cleaned.removed, "{format:?}");
            assert_eq!(cleaned.record, b"garbage", "{format:?}: for the audit");
            assert_eq!(would.expect("a dry run"), cleaned, "{format:?}");
            assert!(!place.record().exists(), "{format:?}");
        } else {
            assert!(
                matches!(
                    (would, cleaned),
                    (
                        Err(StoreError::Unreadable { .. }),
                        Err(StoreError::Unreadable { .. })
                    )
                ),
                "{format:?}"
            );
            assert_eq!(place.text(), "garbage", "{format:?}: left alone");
        }
    });
}

/// Another program has left something where a lock was cleaned away.
#[test]
fn a_grant_over_what_cannot_be_read_keeps_the_numbers_rising() {
    for format in [R, S] {
        let place = Place::with_folder(format);
        let (handle, token) = place.granted("ours-1");
        place.release(&*handle);
        let cleaned = place.store().clean(&place.name, &place.now(), false);
        assert!(cleaned.is_ok_and(|cleaned| cleaned.removed), "{format:?}");
        place.plant("garbage");
        place.age(Duration::from_secs(5));
        let mut earlier = place.now();
        earlier.wall_us -= 3_600_000_000;
        let request = place.forced("ours-2", Force::Asked);
        let entered = place.store().enter(&place.name, request, &earlier);
        let entered = entered.expect("an answer");
        let Entering::Granted { token: next, .. } = entered.entering else {
            panic!("{format:?}: not granted");
        };
        assert!(next > token, "{format:?}: {next} > {token}");
    }
}

#[test]
fn a_release_by_somebody_else_does_what_the_row_says() {
    each_place(|format, place| {
        let (handle, _) = place.granted("ours-1");
        let before = place.bytes();
        let no_owner = |_: &Claim| Ownership::Missing;
        let released = place
            .store()
            .release_owned(&place.name, &no_owner, &place.now());
        let released = released.expect("an answer");
        match (format, &released) {
            (P, Released::Done { by_other: true, .. }) => {
                assert!(!place.record().exists());
                assert!(is_lost(
                    place
                        .store()
                        .verify(&*handle, &place.now())
                        .expect("an answer")
                ));
                return;
            }
            (R | F, Released::NotOwner { .. }) | (S, Released::Ignored { .. }) => {}
            _ => panic!("{format:?}: {released:?}"),
        }
        assert_eq!(place.bytes(), before, "{format:?}: left alone");
    });
}

#[test]
fn an_unreadable_record_is_released_by_sprint_alone() {
    each_place(|format, place| {
        place.plant("pid: [\n");
        place.age(Duration::from_secs(5));
        let temporary = place.folder().join(".sprint-running.tmp");
        fs::write(&temporary, "left behind").expect("a file");
        let owns = |_: &Claim| Ownership::Missing;
        let released = place
            .store()
            .release_owned(&place.name, &owns, &place.now());
        if format == P {
            assert!(
                matches!(&released, Ok(Released::Unreadable { record }) if record == b"pid: [\n"),
                "with what stood there: {released:?}"
            );
            assert!(!place.record().exists() && !temporary.exists());
        } else {
            assert!(
                matches!(released, Err(StoreError::Unreadable { .. })),
                "{format:?}: {released:?}"
            );
            assert_eq!(place.text(), "pid: [\n", "{format:?}: left alone");
        }
    });
}

#[test]
fn a_holder_whose_record_became_garbage_does_not_remove_it_and_is_not_told_that_all_is_well() {
    each_place(|format, place| {
        let (handle, _) = place.granted("ours-1");
        place.plant("garbage");
        place.age(Duration::from_secs(5));
        let verified = place.store().verify(&*handle, &place.now());
        assert!(
            !matches!(verified, Ok(Renewal::Renewed { .. })),
            "{format:?}: {verified:?}"
        );
        let renewed = place.store().renew(&*handle, &place.now());
        assert!(
            !matches!(renewed, Ok(Renewal::Renewed { .. })),
            "{format:?}: {renewed:?}"
        );
        let left = place.store().release(&*handle, &place.now());
        assert!(
            !matches!(left, Ok(Left::Released { .. })),
            "{format:?}: {left:?}"
        );
        assert_eq!(place.text(), "garbage", "{format:?}: left alone");
    });
}

// --- Among ourselves ---------------------------------------------------------------------------

#[test]
fn of_many_who_want_a_stale_record_one_gets_it() {
    each(|format| {
        for round in 0..15 {
            let place = Place::with_folder(format);
            place.plant(&place.stale());
            let barrier = std::sync::Barrier::new(6);
            let granted: Vec<bool> = thread::scope(|scope| {
                let threads: Vec<_> = (0..6)
                    .map(|number| {
                        let (place, barrier) = (&place, &barrier);
                        scope.spawn(move || {
                            let request = place.taking(&format!("ours-{number}"));
                            barrier.wait();
                            let entered = place.try_enter(request).expect("an answer");
                            matches!(entered.entering, Entering::Granted { .. })
                        })
                    })
                    .collect();
                threads
                    .into_iter()
                    .map(|thread| thread.join().expect("an end"))
                    .collect()
            });
            let winners = granted.iter().filter(|granted| **granted).count();
            assert_eq!(winners, 1, "{format:?}, round {round}: {granted:?}");
            let winner = granted.iter().position(|granted| *granted);
            let id = format!("ours-{}", winner.expect("a winner"));
            assert!(place.text().contains(&id), "{format:?}: its record");
            assert_eq!(place.leftovers(), Vec::<String>::new(), "{format:?}");
        }
    });
}
