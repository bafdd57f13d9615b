//! The identity of this process, and whether a recorded process still runs.
//!
//! A process is recognised by its number **and** its start time, on the same boot and in the same PID
//! namespace. Any difference in the surroundings makes it unknown, never dead. Two things prove death.
//! Either the kernel says that there is no such process, that it is a zombie, or that the number belongs to
//! a younger one. Or the machine has started anew since.
//!
//! Nothing here ever sends a signal to a number that was read from a record, nor ends its process.
//! Looking uses signal 0, which the kernel checks and does not deliver; on Windows a handle that may
//! only look.
//!
//! `unix` and `windows` read what each system shows of its processes, and have one surface. On any other
//! system nothing can be seen, so every process is taken to run (`other`).

mod forked;
mod kin;
#[cfg(any(test, not(any(unix, windows))))]
pub(crate) mod other;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[doc(hidden)]
pub use forked::BeforeFork;
pub use kin::{Ancestors, Kin, is_descendant_of, is_reached, kin_of_run, process_of, upwards};
#[cfg(unix)]
pub use unix::{children, group_is_alive, group_of, session_of};

pub use system::{Stat, arguments, name_of, parent_of_self, probe, stat};

#[cfg(not(any(unix, windows)))]
use other as system;
#[cfg(unix)]
use unix as system;
#[cfg(windows)]
use windows as system;

use crate::clock::{instant, since};
use crate::os::{self, Descriptor};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tenure_core::{Claim, Death, Holder, Host, Liveness, Now, Process, RequestId};

/// The calling process and the surroundings in which its number means something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Where it runs.
    pub host: Host,
    /// The process itself.
    pub process: Process,
    /// User of the process: `$USER`, `$LOGNAME`, else its number (see [`actor_name`]); on Windows `%USERNAME%`.
    pub actor: String,
}

impl Identity {
    /// Reads the identity of the calling process. Costs some 20 µs on Linux, and a look at all
    /// processes on Windows, so read it once.
    ///
    /// Whatever cannot be read stays empty, and makes later judgements *unknown*.
    pub fn current() -> Self {
        let pid = std::process::id();
        Self {
            host: system::current_host(),
            process: Process {
                pid,
                started: start_time(pid),
            },
            actor: actor(),
        }
    }
}

fn actor() -> String {
    let named = |variable: &str| {
        std::env::var(variable)
            .ok()
            .filter(|user: &String| !user.is_empty())
    };
    system::USER_VARIABLES
        .iter()
        .find_map(|variable| named(variable))
        .map_or_else(system::nameless_user, |user| {
            user.chars().take(ACTOR_CHARS_MAX).collect()
        })
}

/// How much of a user's name is kept. The longest that Linux systems allow is 256, and no text in the
/// environment is to make a record grow.
const ACTOR_CHARS_MAX: usize = 64;

/// An actor's name for people: a number that the local table knows gets its name. That is done when a
/// person looks, and not when a run makes its claim, where it would cost every run: it ends before its user's account does.
/// A detached hold may not, so its name is looked up when it is made.
pub fn actor_name(actor: &str) -> String {
    system::name_of_user(actor).unwrap_or_else(|| actor.to_owned())
}

/// A user's name and home, by name or number; `None` where the system's table of users does not show it.
pub fn user(wanted: &str) -> Option<(String, PathBuf)> {
    #[cfg(unix)]
    {
        system::user(wanted)
    }
    #[cfg(not(unix))]
    {
        let _ = wanted;
        None
    }
}

/// A request id that no other caller has: `req_` and 32 hex digits of the kernel's randomness. The clock
/// and the process would nearly do; chance makes up for a clock that was set back.
///
/// # Errors
/// - The system's answer, if it gives no random bytes.
pub fn new_request_id() -> std::io::Result<RequestId> {
    let mut bytes = [0_u8; ID_BYTES];
    os::random(&mut bytes)?;
    request_id_of(&bytes)
}

/// How many random bytes a request id has.
const ID_BYTES: usize = 16;

/// The request ids of one process, which draws the random bytes of eight at once: a system call less for each acquire.
/// The copy that a fork makes would give the same ids again. So the owner gives none in another process than its own.
pub struct RequestIds {
    drawn: [u8; 8 * ID_BYTES],
    /// How many of these bytes, from the beginning, no id has yet.
    left: usize,
}

impl Default for RequestIds {
    /// Draws when it is first asked.
    fn default() -> Self {
        Self {
            drawn: [0; 8 * ID_BYTES],
            left: 0,
        }
    }
}

impl RequestIds {
    /// A request id that no other caller has ([`new_request_id`]).
    ///
    /// # Errors
    /// - The system's answer, if it gives no random bytes.
    pub fn draw(&mut self) -> std::io::Result<RequestId> {
        if self.left == 0 {
            os::random(&mut self.drawn)?;
            self.left = self.drawn.len();
        }
        self.left -= ID_BYTES;
        let bytes = self.drawn.get(self.left..).and_then(<[u8]>::first_chunk);
        request_id_of(bytes.ok_or(std::io::ErrorKind::UnexpectedEof)?)
    }
}

impl std::fmt::Debug for RequestIds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // No reader of a log learns an id before a caller has it.
        f.debug_struct("RequestIds").finish_non_exhaustive()
    }
}

fn request_id_of(bytes: &[u8; ID_BYTES]) -> std::io::Result<RequestId> {
    let digits = |byte: u8| [byte >> 4, byte & 15].map(hex_digit);
    let mut id = *b"req_00000000000000000000000000000000";
    for (two, byte) in id.chunks_exact_mut(2).skip(2).zip(bytes) {
        two.copy_from_slice(&digits(*byte));
    }
    let id = std::str::from_utf8(&id).map_err(std::io::Error::other)?;
    RequestId::new(id).map_err(std::io::Error::other)
}

/// A number below 16 as a digit.
pub(crate) fn hex_digit(number: u8) -> u8 {
    match number {
        0..=9 => b'0' + number,
        _ => b'a' + number - 10,
    }
}

/// Fills a buffer with the kernel's random bytes.
///
/// # Errors
/// - The system's answer, if it gives none.
pub fn fill_randomly(bytes: &mut [u8]) -> std::io::Result<()> {
    os::random(bytes)
}

/// The name of this machine, as records have it; empty where it cannot be found out.
pub fn host_name() -> String {
    system::host_name()
}

/// Whether the process ids of `host` are of another PID namespace than this process's, on this very boot:
/// of a container, as a rule. False if that is not known. What another machine recorded is told by its host
/// name.
pub fn is_other_namespace(host: &Host, now: &Now) -> bool {
    now.is_on(host.boot_id.as_deref())
        && host.pid_namespace.is_some()
        && own_pid_namespace().is_some_and(|ours| host.pid_namespace != Some(ours))
}

/// The PID namespace of this process, which it never leaves.
fn own_pid_namespace() -> Option<u64> {
    static OURS: OnceLock<Option<u64>> = OnceLock::new();
    *OURS.get_or_init(system::pid_namespace)
}

/// What one look shows of a process that was recorded on `host`; `None` if it cannot be seen from here, as on another boot
/// or in another PID namespace.
pub fn look_at(process: &Process, host: &Host, now: &Now) -> Option<Sight> {
    let is_here = now.is_on(host.boot_id.as_deref())
        && host.pid_namespace.is_some()
        && host.pid_namespace == own_pid_namespace();
    is_here.then(|| Sight::of(process))
}

/// The first PID namespace of a Linux machine, by the number that its kernel has for it (`PROC_PID_INIT_INO`).
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Whether this process is in a PID namespace of a container: its number means nothing outside, and who looks from there
/// cannot see that it lives.
pub fn is_in_container(here: &Host) -> bool {
    here.pid_namespace
        .is_some_and(|own| own != FIRST_PID_NAMESPACE)
}

/// The process that started this one; `None` if it cannot be seen from here.
pub fn parent() -> Option<u32> {
    Some(parent_of_self()).filter(|pid| *pid != 0)
}

/// When a process started: in clock ticks since boot on Linux, in microseconds since 1970 on Windows and
/// macOS. The ticks are the machine's own, in a time namespace too; `None` where they cannot be told
/// exactly.
pub fn start_time(pid: u32) -> Option<u64> {
    stat(pid)?.started()
}

/// The parent of a process, 0 if that cannot be seen from here; `None` if there is no such process.
pub fn parent_of(pid: u32) -> Option<u32> {
    stat(pid).map(|stat| stat.parent)
}

/// Whether `process`, recorded on `host`, still runs, as far as `here` can tell.
///
/// `local` says that the record lies on a file system that only this machine can reach. Only then does
/// another boot of the same machine id prove a restart, because machine ids do get cloned.
pub fn liveness(process: &Process, host: &Host, here: &Host, local: bool) -> Liveness {
    out_of_sight(host, here, local).unwrap_or_else(|| probe(process))
}

/// Whether a process of a claim is gone whose byte is free, where the id of the boot is not known: to the claim, or here
/// (`ProcSubset=pid`). A number that nobody has in the namespace where it was recorded proves it: whatever boot that was.
/// A number that somebody has proves nothing.
pub fn is_absent(process: &Process, host: &Host, here: &Host, local: bool) -> bool {
    let is_same_machine = local && host.machine_id == here.machine_id;
    let is_boot_unknown = host.boot_id.is_none() || here.boot_id.is_none();
    let is_same_namespace =
        host.pid_namespace.is_some() && host.pid_namespace == here.pid_namespace;
    let number = Process {
        started: None,
        ..*process
    };
    is_same_machine
        && is_boot_unknown
        && is_same_namespace
        && probe(&number) == Liveness::Dead(Death::Gone)
}

/// Whether what was recorded on `host` is of this machine before it was started last, as far as machine ids say.
pub fn is_of_an_ended_boot(host: &Host, here: &Host) -> bool {
    host.machine_id.is_some()
        && host.machine_id == here.machine_id
        && host.boot_id.is_some()
        && here.boot_id.is_some()
        && host.boot_id != here.boot_id
}

/// Whether process ids mean the same processes on both: they are of one boot and one PID namespace. What is not known is not
/// the same.
pub fn shares_processes(host: &Host, here: &Host) -> bool {
    host.boot_id.is_some()
        && host.boot_id == here.boot_id
        && host.pid_namespace.is_some()
        && host.pid_namespace == here.pid_namespace
}

/// Whether a holder names a process by all that the process says of itself on its own host. What neither knows is the same.
pub fn names(holder: &Holder, process: Process, here: &Host) -> bool {
    holder.process == Some(process)
        && holder.host.boot_id == here.boot_id
        && holder.host.pid_namespace == here.pid_namespace
}

/// What is known of the processes that were recorded on `host`, if it is not by looking at each of them.
fn out_of_sight(host: &Host, here: &Host, local: bool) -> Option<Liveness> {
    if shares_processes(host, here) {
        None
    } else if local && is_of_an_ended_boot(host, here) {
        Some(Liveness::Dead(Death::Rebooted))
    } else {
        Some(Liveness::Unknown)
    }
}

/// Whether `process`, recorded on `host`, is certainly stopped: by SIGSTOP, Ctrl-Z or another signal of
/// that kind. False for a process that cannot be seen from here, and for one whose start is not known:
/// another process may have the number.
///
/// Where the system does not tell (Windows, macOS), no process counts as stopped.
pub fn is_stopped(process: &Process, host: &Host, here: &Host, local: bool) -> bool {
    out_of_sight(host, here, local).is_none() && Sight::of(process).is_stopped
}

/// The tickets of those claims whose processes are certainly stopped, by a look at each. Over a network no process is seen.
pub fn stopped_among<'a>(claims: impl Iterator<Item = &'a Claim>, here: &Host) -> Vec<u64> {
    let is_stopped = |claim: &&Claim| {
        let holder = &claim.holder;
        (holder.process).is_some_and(|process| is_stopped(&process, &holder.host, here, false))
    };
    claims
        .filter(is_stopped)
        .map(|claim| claim.ticket)
        .collect()
}

/// What one look shows of a process of this boot and namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sight {
    /// Whether it runs.
    pub liveness: Liveness,
    /// Whether a signal has stopped it.
    pub is_stopped: bool,
}

impl Sight {
    fn of(process: &Process) -> Self {
        let (liveness, stat) = system::look_at(process);
        Self {
            liveness,
            // The start and the state come out of one look, so they belong to the same process.
            is_stopped: liveness == Liveness::Alive
                && process.started.is_some()
                && stat.is_some_and(|stat| stat.is_stopped() && stat.started() == process.started),
        }
    }
}

/// How long a caller that looks at many locks believes what it saw of a process.
const BELIEVED: Duration = Duration::from_millis(50);

/// What a caller that looks at many locks sees of their processes: many of one process cost one look.
///
/// A process that was dead stays dead, for its start is part of what it is; the same number with an unknown
/// start may come to life, so that is looked at each time. A process that lived may have ended within
/// `BELIEVED`: then the answer about its lock is that of this moment before. So this is for callers that
/// show locks, and none that decides by what it sees may use it.
#[derive(Debug)]
pub struct Sights {
    began: Cell<Instant>,
    seen: RefCell<BTreeMap<(u32, u64), Sight>>,
}

impl Default for Sights {
    /// Nothing was seen yet.
    fn default() -> Self {
        Self {
            began: Cell::new(instant()),
            seen: RefCell::default(),
        }
    }
}

impl Sights {
    /// As [`liveness`] and [`is_stopped`] together.
    pub fn of(&self, process: &Process, host: &Host, here: &Host, local: bool) -> Sight {
        if let Some(liveness) = out_of_sight(host, here, local) {
            return Sight {
                liveness,
                is_stopped: false,
            };
        }
        let Some(started) = process.started else {
            return Sight::of(process);
        };
        let mut seen = self.seen.borrow_mut();
        if since(self.began.get()) >= BELIEVED {
            self.began.set(instant());
            seen.clear();
        }
        *seen
            .entry((process.pid, started))
            .or_insert_with(|| Sight::of(process))
    }
}

/// A handle on a recorded process that can be polled for its end, if it is that process and runs. It is
/// opened first and compared afterwards, so no other process can get the number in between. `None` also
/// where the system has no such handles.
pub fn open(process: &Process, host: &Host, here: &Host, local: bool) -> Option<Descriptor> {
    if liveness(process, host, here, local) != Liveness::Alive {
        return None;
    }
    let opened = system::open(process.pid)?;
    (!is_another(process, start_time(process.pid))).then_some(opened)
}

/// Whether the process that is seen under a recorded number is another one. A start that is not seen, or not recorded,
/// tells nothing.
fn is_another(recorded: &Process, started: Option<u64>) -> bool {
    let both = recorded.started.zip(started);
    both.is_some_and(|(recorded, seen)| recorded != seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_are_alive_and_our_number_with_another_start_time_is_not_us() {
        let me = Identity::current();
        assert_eq!(
            liveness(&me.process, &me.host, &me.host, true),
            Liveness::Alive
        );
        let younger = Process {
            pid: me.process.pid,
            started: me.process.started.map(|ticks| ticks + 1),
        };
        assert_eq!(
            liveness(&younger, &me.host, &me.host, true),
            Liveness::Dead(Death::Replaced),
            "a reused number is another process"
        );
    }

    #[test]
    fn other_surroundings_make_a_process_unknown_never_dead() {
        let me = Identity::current();
        let gone = Process {
            pid: 999_999_999,
            started: Some(1),
        };
        assert_eq!(
            liveness(&gone, &me.host, &me.host, true),
            Liveness::Dead(Death::Gone)
        );
        let mut elsewhere = me.host.clone();
        elsewhere.pid_namespace = Some(1);
        assert_eq!(
            liveness(&gone, &elsewhere, &me.host, true),
            Liveness::Unknown,
            "another PID namespace"
        );
        let mut elsewhere = me.host.clone();
        elsewhere.boot_id = Some("another".into());
        elsewhere.machine_id = Some("another".into());
        assert_eq!(
            liveness(&gone, &elsewhere, &me.host, true),
            Liveness::Unknown,
            "another machine"
        );
        elsewhere.machine_id = None;
        assert_eq!(
            liveness(&gone, &elsewhere, &me.host, true),
            Liveness::Unknown,
            "a machine without an id"
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_is_stopped_only_where_that_is_certain() {
        use rustix::process::{Pid, Signal, kill_process};
        let me = Identity::current();
        let mut child = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .expect("a child");
        let process = Process {
            pid: child.id(),
            started: start_time(child.id()),
        };
        let here = &me.host;
        assert!(!is_stopped(&process, here, here, true), "it runs");
        let pid = Pid::from_child(&child);
        kill_process(pid, Signal::STOP).expect("it is ours");
        while !is_stopped(&process, here, here, true) {
            std::thread::yield_now();
        }
        let mut elsewhere = here.clone();
        elsewhere.pid_namespace = Some(1);
        assert!(!is_stopped(&process, &elsewhere, here, true), "not seen");
        let mut other = process;
        other.started = process.started.map(|ticks| ticks + 1);
        assert!(!is_stopped(&other, here, here, true), "another process");
        other.started = None;
        assert!(!is_stopped(&other, here, here, true), "perhaps another");
        kill_process(pid, Signal::CONT).expect("it is ours");
        while is_stopped(&process, here, here, true) {
            std::thread::yield_now();
        }
        kill_process(pid, Signal::STOP).expect("it is ours");
        child.kill().expect("it is ours");
        child.wait().expect("its end");
        assert!(!is_stopped(&process, here, here, true), "it has ended");
    }

    #[test]
    fn where_no_process_can_be_looked_at_nothing_is_known_of_any() {
        let process = Process {
            pid: 999_999_999,
            started: None,
        };
        assert_eq!(other::probe(&process), Liveness::Unknown);
    }

    #[test]
    fn another_boot_of_this_machine_is_death_only_on_a_local_file_system() {
        let mut me = Identity::current();
        me.host.machine_id = Some("m".into());
        let mut before = me.host.clone();
        before.boot_id = Some("the boot before".into());
        assert_eq!(
            liveness(&me.process, &before, &me.host, true),
            Liveness::Dead(Death::Rebooted)
        );
        assert_eq!(
            liveness(&me.process, &before, &me.host, false),
            Liveness::Unknown
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_seen_for_many_locks_is_what_a_look_at_each_process_shows() {
        use rustix::process::{Pid, Signal, kill_process};
        let me = Identity::current();
        let here = &me.host;
        let mut child = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .expect("a child");
        let process = Process {
            pid: child.id(),
            started: start_time(child.id()),
        };
        let nameless = Process {
            started: None,
            ..process
        };
        let gone = Process {
            pid: 999_999_999,
            started: Some(1),
        };
        let mut elsewhere = here.clone();
        elsewhere.pid_namespace = Some(1);
        let sights = Sights::default();
        let seen = |process: &Process, host: &Host| {
            let sight = sights.of(process, host, here, true);
            (sight.liveness, sight.is_stopped)
        };
        let looked = |process: &Process, host: &Host| {
            let stopped = is_stopped(process, host, here, true);
            (liveness(process, host, here, true), stopped)
        };
        for process in [&me.process, &process, &nameless, &gone] {
            for host in [here, &elsewhere] {
                assert_eq!(seen(process, host), looked(process, host), "{process:?}");
            }
        }
        let pid = Pid::from_child(&child);
        kill_process(pid, Signal::STOP).expect("it is ours");
        while !seen(&process, here).1 {
            std::thread::yield_now();
        }
        child.kill().expect("it is ours");
        child.wait().expect("its end");
        assert_eq!(seen(&nameless, here).0, Liveness::Dead(Death::Gone));
        while seen(&process, here).0 == Liveness::Alive {
            std::thread::yield_now();
        }
        assert_eq!(seen(&process, here), (Liveness::Dead(Death::Gone), false));
    }

    #[test]
    fn the_ancestors_of_the_caller_are_those_that_it_descends_from() {
        let me = Identity::current();
        let ancestors = Ancestors::of_caller();
        let of = |pid| Process {
            pid,
            started: start_time(pid),
        };
        let mut other = me.process;
        other.started = other.started.map(|started| started + 1);
        let unknown = Process {
            started: None,
            ..me.process
        };
        for owner in [me.process, other, unknown, of(parent().unwrap_or(1))] {
            assert_eq!(
                ancestors.have(&owner, &me.host, &me.host),
                is_descendant_of(&owner, &me.host, &me.host),
                "{owner:?}"
            );
        }
        assert!(ancestors.have(&me.process, &me.host, &me.host));
        assert!(!ancestors.have(&me.process, &Host::default(), &me.host));
    }
}
