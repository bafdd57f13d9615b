//! The file store: one coordination file per lock, kernel locks on single bytes of it.
//!
//! The file holds the list of claims, in two pages (`pages`, the store's `codec`). Where a profile
//! publishes, other programs see a hold as a record beside the file (`publication`). List and record are
//! brought together whenever they are read (`joined`).
//!
//! | question | module |
//! |---|---|
//! | what is done to the files in a change, and what a crash leaves | `transact`, with `guarded` |
//! | how a lock is looked at without a change | `look` |
//! | whether a hold stands, as its own holder sees it | `own` |
//! | how a waiter sleeps, how a holder hears of a change | `wait` |
//! | what keeps a claim alive | `handle` |
//! | what a holder finds as it left it | `wrote` |
//! | which folders and files are refused | `folder` |
//! | when an agent was at work | `agents` |
//! | why numbers go on rising when a file is removed | `floor` |
//! | whether a folder holds nothing but files of tenure | `tenures` |
//! | whether an administrator makes a folder | `machine` |
//! | what a folder is like, and whether its locks hold, for a caller that only looks | `survey`, `trial` |
//!
//! # What it leaves to others
//! The core decides which change is right (by way of the [verbs](super::verbs)), and the profile how a
//! record looks. The [`Sleeper`] decides how a thread of this process sleeps in the kernel: a command may
//! use signals for that, a library may not.

mod agents;
mod bytes;
mod ends;
mod floor;
mod folder;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod guarded;
mod handle;
mod joined;
mod lines;
mod look;
mod machine;
mod names;
mod own;
mod pages;
mod partial;
mod publication;
mod segments;
mod sleeper;
#[cfg(unix)]
#[doc(hidden)]
pub mod survey;
mod transact;
#[cfg(unix)]
#[doc(hidden)]
pub mod trial;
mod wait;
mod wrote;

#[cfg(target_os = "linux")]
pub use bytes::is_kept_by;
pub use bytes::{Byte, Mode};
#[doc(hidden)]
pub use machine::MACHINE_FILE;
#[doc(hidden)]
pub use own::Own;
pub use sleeper::{ByteLock, Sleeper, ThreadSleeper, poll_readable};

use super::contract::{
    Agents, Ask, Draft, Handle, Location, Notices, Outcome, Parked, Ring, Rules, Step, Store,
    Waiting, Which, Within,
};
use super::{Reading, StoreError, Wake};
use crate::profile::{LEDGER, Native, Profile, SUFFIX};
use ends::Ends;
use folder::{Folder, Latest, Opened, fault, is_open_to_others};
use names::Names;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tenure_core::{Host, Left, LockName, Now};
use tenure_os::clock::{Clock, SystemClock};
use tenure_os::os::{self, Root, Sharing};
use tenure_os::process::Identity;
use tenure_os::process::Sights;
use tenure_os::trust::Named;
use wrote::Wrote;

/// What the system calls an open file: a file descriptor on Unix, a handle on Windows.
pub type Descriptor = os::Descriptor;

/// A borrowed descriptor.
pub type BorrowedDescriptor<'a> = os::BorrowedDescriptor<'a>;

/// The folder in [`LEDGER`] for native locks that a run takes beside a lock of another format. It is a
/// folder of its own, because the coordination file of a record may have any lock's name.
const NATIVE_BESIDE: &str = "locks";

/// Why no folder is opened by its path.
const LEFT_ROOT: &str = "this process has another root (chroot, mount namespace) than when it opened its locks, so the path \
                         may lead to another folder; take a lock before that, or open the locks anew to use this folder";

/// Locks kept as files in one folder.
pub struct FileStore {
    path: PathBuf,
    /// The folder that the caller names, if the records lie in one below it.
    around: Option<PathBuf>,
    named: Named,
    is_machines: bool,
    /// Says of a folder that is not there whether the administrator of the machine makes it.
    is_of_machine: fn(&Path) -> bool,
    allow_network: bool,
    profile: Arc<dyn Profile>,
    rules: Rules,
    here: Host,
    clock: SystemClock,
    sleeper: Box<dyn Sleeper>,
    /// Where the records are, for a profile that publishes.
    records: Latest,
    /// Where the coordination files are.
    folder: Latest,
    /// Set for native locks that lie beside records: where those records are.
    beside: Option<Beside>,
    /// Set for a program whose threads hold locks: how they wait for each other.
    ends: Option<Arc<Ends<ClaimKey>>>,
    /// Set for a program that may get another root: the one from which its paths lead.
    root: Option<Arc<Root>>,
    wrote: Wrote,
    /// Why the floor of the folder was not believed.
    set_aside: OnceLock<String>,
}

/// A claim, by the inode of its coordination file and its ticket. While a handle keeps the file open, no
/// other file has that inode.
type ClaimKey = ((u64, u64), u64);

/// The folder of a format's records, with native locks beside them.
struct Beside {
    place: PathBuf,
    /// The rule for the folder, if the records lie in `place` itself. Otherwise the folder is not for
    /// locks alone: the contract of sessions has `sessions/` there, which is committed.
    rule: Option<crate::profile::FolderRules>,
    must_exist: bool,
}

fn fd(opened: &Opened) -> BorrowedDescriptor<'_> {
    os::borrow(&opened.fd)
}

/// Makes a folder for locks and nothing else, and the folders above it, as a call that takes a lock does: for this user alone
/// or for the group around it, and ignored by git. One that is there stays as it is.
///
/// # Errors
/// - The system's, if it cannot be made.
pub fn make_folder(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    tenure_os::private::make_own_folder(path).map_err(|(_, errno)| errno.into())
}

impl FileStore {
    /// Native locks in `folder`, judged from `here`. Touches nothing yet: the first call that needs the
    /// folder opens it, and makes it if necessary.
    pub fn new(folder: impl Into<PathBuf>, here: Host, sleeper: Box<dyn Sleeper>) -> Self {
        Self::with_profile(Box::new(Native), &folder.into(), here, sleeper)
    }

    /// Native locks in `folder` for a program that runs here, as [`FileStore::within_program`] says.
    pub fn for_program(folder: impl Into<PathBuf>) -> Self {
        let here = Identity::current().host;
        Self::new(folder, here, Box::new(ThreadSleeper)).within_program()
    }

    /// Locks of any profile; `place` is the folder that its contract calls its storage.
    #[doc(hidden)]
    pub fn with_profile(
        profile: Box<dyn Profile>,
        place: &Path,
        here: Host,
        sleeper: Box<dyn Sleeper>,
    ) -> Self {
        let path = profile.folder(place);
        Self {
            around: (path != place).then(|| place.to_owned()),
            path,
            named: Named::ByCaller,
            is_machines: false,
            is_of_machine: machine::names,
            allow_network: false,
            rules: Rules {
                // A published record has room for one holder.
                beside: profile.record().is_none(),
                ..Rules::local(profile.policy())
            },
            profile: profile.into(),
            clock: SystemClock::new(here.boot_id.as_deref()),
            here,
            sleeper,
            records: Latest::default(),
            folder: Latest::default(),
            beside: None,
            ends: None,
            root: None,
            wrote: Wrote::default(),
            set_aside: OnceLock::new(),
        }
    }

    /// The native locks beside those of a profile that publishes records in `place`. They lie in a
    /// folder of ours, `.tenure/locks`, which git ignores. For a profile that publishes none, the native
    /// locks of `place` itself.
    #[doc(hidden)]
    pub fn beside(
        profile: &dyn Profile,
        place: &Path,
        here: Host,
        sleeper: Box<dyn Sleeper>,
    ) -> Self {
        let folder = Self::folder_beside(profile, place);
        let rule = profile.place();
        Self {
            beside: profile.record().is_some().then(|| Beside {
                place: place.to_owned(),
                must_exist: rule.must_exist,
                rule: (profile.folder(place) == place).then_some(rule),
            }),
            ..Self::new(folder, here, sleeper)
        }
    }

    /// The folder of the locks that [`FileStore::beside`] keeps.
    #[doc(hidden)]
    pub fn folder_beside(profile: &dyn Profile, place: &Path) -> PathBuf {
        if profile.record().is_some() {
            place.join(LEDGER).join(NATIVE_BESIDE)
        } else {
            place.to_owned()
        }
    }

    /// Accepts a network file system, for people who know that its locks work.
    #[must_use]
    pub fn allow_network(mut self, allow: bool) -> Self {
        self.allow_network = allow;
        self
    }

    /// No user named the folder: a search or a default led there. It is used if it belongs to the caller
    /// or to root. It is also used if it is made for several users: setgid and writable by its group, or
    /// sticky. Any other folder is [`StoreError::Unsafe`].
    #[must_use]
    pub fn found(mut self) -> Self {
        self.named = Named::ByNobody;
        self
    }

    /// The folder is for all users whom the machine's administrator lets in. Only the administrator makes
    /// it: as long as it is not there, every call is [`StoreError::Missing`].
    #[must_use]
    pub fn of_machine(mut self) -> Self {
        self.is_machines = true;
        self
    }

    /// Asks this, instead of the text of `/etc/tenure.toml`, whether the administrator of the machine makes a folder that is not
    /// there. A caller that reads the file as a configuration knows it exactly.
    #[doc(hidden)]
    #[must_use]
    pub fn asking(self, is_of_machine: fn(&Path) -> bool) -> Self {
        Self {
            is_of_machine,
            ..self
        }
    }

    /// For a program whose threads hold locks, and whose child processes inherit none of them:
    /// - the handle of a claim has no [`Handle::descriptor`];
    /// - a thread that waits for a claim of this store is woken by the thread that ends it.
    ///
    /// The store's [`Sleeper`] has to be one that a [`tenure_os::cancel::Cancel`] ends, as [`ThreadSleeper`] is. In a
    /// copy of the process that a fork made, the program drops handles and makes no call.
    #[must_use]
    pub fn within_program(mut self) -> Self {
        self.ends = Some(Arc::new(Ends::new()));
        self
    }

    /// For a program that lives longer than one call, and may get another root meanwhile (`chroot`, `pivot_root`,
    /// another mount namespace). It goes on in the folder that it has opened. A path leads elsewhere then, so no other
    /// folder is opened or made: such a call is [`StoreError::Unsafe`].
    #[doc(hidden)]
    #[must_use]
    pub fn rooted(self) -> Self {
        let root = Root::present().map(Arc::new);
        Self { root, ..self }
    }

    /// Takes the root that another store has had from its beginning.
    #[doc(hidden)]
    #[must_use]
    pub fn rooted_as(self, other: &Self) -> Self {
        let root = other.root.clone();
        Self { root, ..self }
    }

    /// Whether this process has another root than it had at first.
    fn has_left_root(&self) -> bool {
        self.root.as_ref().is_some_and(|root| root.is_left())
    }

    /// The folder in which other programs see the locks.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The profile by which locks are kept.
    #[doc(hidden)]
    pub fn profile(&self) -> &Arc<dyn Profile> {
        &self.profile
    }

    /// The present instant, for a call that was given none.
    fn now(&self) -> Now {
        self.clock.now()
    }

    /// The folder of the records, opened as [`FileStore::folder`] is.
    fn records(&self, create: bool) -> Result<Option<&Folder>, StoreError> {
        if let Some(folder) = self.records.get().filter(|folder| folder.is_in_place()) {
            return Ok(Some(folder));
        }
        let rule = self.profile.place();
        let create = create && !rule.must_exist;
        let around = self
            .around
            .as_ref()
            .and_then(|place| os::facts_of(place).ok());
        let around = around.filter(is_open_to_others);
        // The caller names the folder around it. Another user may have made this one, or a link.
        let named = match around {
            Some(_) => Named::ByNobody,
            None => self.named,
        };
        let opened = self.open_top(&self.path, create, rule.private, named)?;
        if let (Some(opened), Some(around)) = (&opened, &around) {
            opened.check_within(around)?;
        }
        match opened {
            Some(folder) => Ok(Some(self.records.put(folder))),
            None => Ok(None),
        }
    }

    /// The folder of the coordination files. If it was removed or renamed since it was opened, it is
    /// opened again by its name. Callers who come now do not find the old folder, and another claim may
    /// hold in the folder that took its place.
    fn folder(&self, create: bool) -> Result<Option<&Folder>, StoreError> {
        if let Some(folder) = self.folder.get().filter(|folder| folder.is_in_place()) {
            return Ok(Some(folder));
        }
        let opened = if self.profile.record().is_some() {
            let Some(records) = self.records(create)? else {
                return Ok(None);
            };
            if create && self.profile.place().ignored {
                records.ignore_all()?;
            }
            records.open_below(LEDGER, create)?
        } else if let Some(beside) = &self.beside {
            self.open_beside(beside, create)?
        } else {
            self.open_top(&self.path, create, false, self.named)?
        };
        Ok(opened.map(|folder| self.folder.put(folder)))
    }

    /// Opens a folder by its path. The machine's is made by no call, also if the caller does not say that it is
    /// the machine's: a run tells its command the folder alone.
    fn open_top(
        &self,
        path: &Path,
        create: bool,
        private: bool,
        named: Named,
    ) -> Result<Option<Folder>, StoreError> {
        if self.has_left_root() {
            return Err(StoreError::Unsafe {
                place: path.display().to_string(),
                why: LEFT_ROOT.to_owned(),
            });
        }
        let open = |create| Folder::open_named(path, create, self.allow_network, private, named);
        let missing = || StoreError::Missing {
            place: path.display().to_string(),
        };
        let opened = match open(false) {
            Ok(None) if create && !self.is_machines => {
                if (self.is_of_machine)(path) {
                    return Err(missing());
                }
                open(true)
            }
            opened => opened,
        };
        let opened = opened.map_err(|error| match error {
            // A change that only an administrator can make, as where it is not there.
            StoreError::Io { place, source, .. }
                if self.is_machines && source.kind() == std::io::ErrorKind::NotADirectory =>
            {
                let why = "it is no folder; an administrator has to remove it".to_owned();
                StoreError::Unsafe { place, why }
            }
            error => error,
        })?;
        if opened.is_none() && self.is_machines {
            return Err(missing());
        }
        Ok(opened.map(|mut folder| {
            folder.root.clone_from(&self.root);
            folder
        }))
    }

    /// Whether the coordination files lie in a folder that is ours by its name.
    fn is_ledger(&self) -> bool {
        self.profile.record().is_some() || self.beside.is_some()
    }

    /// The folder of native locks that lie beside records. Each folder is opened from within the one
    /// above, beginning with the records' folder, so that no link leads out of it.
    fn open_beside(&self, beside: &Beside, create: bool) -> Result<Option<Folder>, StoreError> {
        let create_place = create && !beside.must_exist;
        let place = || {
            let private = beside.rule.is_some_and(|rule| rule.private);
            let create = create_place && beside.rule.is_some();
            self.open_top(&beside.place, create, private, self.named)
        };
        let opened = match place()? {
            None if create_place => {
                Folder::make_place(&beside.place)?;
                place()?
            }
            opened => opened,
        };
        let Some(opened) = opened else {
            return Ok(None);
        };
        let Some(ledger) = opened.open_below(LEDGER, create)? else {
            return Ok(None);
        };
        ledger.open_below(NATIVE_BESIDE, create)
    }

    fn names_of(&self, name: &LockName) -> Names {
        let file = self.profile.file_name(name);
        if self.profile.record().is_none() {
            return Names {
                name: name.clone(),
                list: file,
                record: String::new(),
            };
        }
        Names {
            name: name.clone(),
            list: format!("{file}{SUFFIX}"),
            record: file,
        }
    }

    fn record_path(&self, names: &Names) -> PathBuf {
        self.path.join(&names.record)
    }

    /// Whether a record stands at the path where other programs look.
    fn record_stands(&self, names: &Names) -> Result<bool, StoreError> {
        if self.profile.record().is_none() {
            return Ok(false);
        }
        let records = self.records(false)?;
        Ok(records.is_some_and(|records| publication::stands(records, &names.record)))
    }

    /// The file of a lock's list, in which its claims keep their bytes.
    pub fn list_of(&self, name: &LockName) -> PathBuf {
        self.list_path(&self.names_of(name))
    }

    fn list_path(&self, names: &Names) -> PathBuf {
        match self.folder.get() {
            Some(folder) => folder.path_of(&names.list),
            None => self.path.join(&names.list),
        }
    }

    /// The path that people are shown: the record's path where one is published.
    fn shown_path(&self, names: &Names) -> PathBuf {
        self.path.join(names.shown())
    }

    fn shown(&self, names: &Names) -> String {
        // Thousands of times for a list: the path itself, where it is text.
        let path = self.shown_path(names).into_os_string().into_string();
        path.unwrap_or_else(|path| Path::new(&path).display().to_string())
    }

    fn contended(&self, names: &Names) -> StoreError {
        StoreError::Contended {
            place: self.record_path(names).display().to_string(),
        }
    }

    /// Shows the name of every lock.
    fn locks(&self, each: &mut dyn FnMut(LockName)) -> Result<(), StoreError> {
        let folder = if self.profile.record().is_some() {
            self.records(false)?
        } else {
            self.folder(false)?
        };
        let Some(folder) = folder else {
            return Ok(());
        };
        // A folder is never a lock, whatever its name. A link may be one, for programs that follow it.
        self.each_file(folder, &mut |file| {
            if let Some(name) = self.profile.name_of(file) {
                each(name);
            }
        })
    }

    /// Shows the name of every lock of which only our own file is left, for cleaning. A profile that
    /// publishes no records has none: there that file is the lock.
    fn leftovers(&self, each: &mut dyn FnMut(LockName)) -> Result<(), StoreError> {
        if self.profile.record().is_none() {
            return Ok(());
        }
        let (Some(folder), Some(records)) = (self.folder(false)?, self.records(false)?) else {
            return Ok(());
        };
        self.each_file(folder, &mut |file| {
            let record = file.strip_suffix(SUFFIX);
            let alone = record.filter(|record| !publication::stands(records, record));
            if let Some(name) = alone.and_then(|record| self.profile.name_of(record)) {
                each(name);
            }
        })
    }

    fn each_file(&self, folder: &Folder, each: &mut dyn FnMut(&str)) -> Result<(), StoreError> {
        os::each_file(folder.fd(), each)
            .map_err(|errno| fault(&self.path, "listing the lock folder", errno))
    }
}

impl Store for FileStore {
    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn location(&self, name: &LockName) -> Location {
        let path = self.shown_path(&self.names_of(name));
        Location {
            shown: path.display().to_string(),
            file: (!self.has_left_root()).then_some(path),
        }
    }

    fn read(&self, name: &LockName, of: Option<&dyn Handle>) -> Result<Reading, StoreError> {
        match of {
            None => self.reading(
                &self.names_of(name),
                None,
                &Sights::default(),
                self.folders()?,
            ),
            Some(handle) => {
                let handle = self.own_handle(handle)?;
                let has_moved = |latest: &Latest| {
                    let folder = latest.get();
                    folder.is_some_and(|folder| !folder.is_in_place())
                };
                let folders = match self.folders() {
                    // What is in the place of a folder may be none that this process may use. For the holder, its
                    // own is gone.
                    Err(_) if has_moved(&self.folder) || has_moved(&self.records) => {
                        return Ok(self.gone(&handle.names));
                    }
                    folders => folders?,
                };
                self.reading(&handle.names, Some(handle), &Sights::default(), folders)
            }
        }
    }

    fn read_several(&self, names: &[LockName]) -> Vec<Result<Reading, StoreError>> {
        let sights = Sights::default();
        // A folder that gets another name in the middle of this shows what it has, as it does to a call that
        // is a little earlier. One that cannot be opened is told of each lock.
        let folders = self.folders();
        let read = |name| match &folders {
            // A folder that another process makes meanwhile is looked for by each read.
            Ok(folders) if folders.are_there() => {
                self.reading(&self.names_of(name), None, &sights, *folders)
            }
            Ok(_) | Err(_) => self.read(name, None),
        };
        names.iter().map(read).collect()
    }

    fn transact(
        &self,
        ask: &Ask<'_>,
        change: &mut dyn FnMut(&mut Draft<'_>) -> Step,
    ) -> Result<Outcome, StoreError> {
        self.run_change(ask, change)
    }

    fn wait(&self, waiting: &Waiting<'_>, until: Option<Instant>) -> Result<Wake, StoreError> {
        let handle = match waiting.by {
            Some(handle) => Some(self.own_handle(handle)?),
            None => None,
        };
        self.wait_behind(waiting, handle, until)
    }

    fn park(&self, waiting: &Waiting<'_>, ring: &Ring) -> Result<Option<Parked>, StoreError> {
        match waiting.by {
            Some(handle) => self.park_behind(waiting, self.own_handle(handle)?, ring),
            None => Ok(None),
        }
    }

    fn names(&self, which: Which, each: &mut dyn FnMut(LockName)) -> Result<(), StoreError> {
        match which {
            Which::Locks => self.locks(each),
            Which::Leftovers => self.leftovers(each),
        }
    }

    fn notices(&self, of: &dyn Handle) -> Option<Notices> {
        self.notices_of(self.own_handle(of).ok()?)
    }

    fn warning(&self) -> Result<Option<String>, StoreError> {
        if let Some(set_aside) = self.set_aside.get() {
            return Ok(Some(set_aside.clone()));
        }
        if !self.profile.place().private {
            return Ok(None);
        }
        let readable = self.records(false)?.filter(|records| records.readable);
        Ok(readable.map(|records| {
            let line = match records.sharing {
                Sharing::Group => "chmod o-rwx",
                Sharing::GroupReads | Sharing::Owner => "chmod 700",
            };
            format!(
                "{}: others can read this folder; `{line}` it if they should not know who \
                 holds what",
                self.path.display()
            )
        }))
    }

    fn moves(&self) -> u64 {
        self.folder.moves()
    }

    fn withdraw(&self, of: &dyn Handle, now: &Now) -> Result<Option<Left>, StoreError> {
        self.withdraw_record(self.own_handle(of)?, now)
    }

    fn agents(&self) -> Option<&dyn Agents> {
        // A record is judged by its contract, which knows no agents.
        self.profile.record().is_none().then_some(self as _)
    }

    fn go_within(
        &self,
        name: &LockName,
        token: u64,
    ) -> Result<Option<Box<dyn Within>>, StoreError> {
        let part = self.take_part(name, token)?;
        Ok(part.map(|part| -> Box<dyn Within> { Box::new(part) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store_in(folder: &Path) -> FileStore {
        let here = Identity::current().host;
        FileStore::new(folder, here, Box::new(ThreadSleeper))
    }

    #[test]
    fn locks_are_local_where_a_folder_was_opened_that_only_this_machine_reaches() {
        for is_local in [true, false] {
            let scratch = tempfile::tempdir().expect("a folder");
            let store = store_in(scratch.path());
            assert!(!store.is_local(), "nothing was opened yet");
            let folder = Folder::open(scratch.path(), false, false, false);
            let mut folder = folder.expect("a good folder").expect("it is there");
            assert!(folder.local, "as the system says");
            folder.local = is_local;
            store.records.put(folder);
            assert_eq!(store.is_local(), is_local);
        }
    }
}
