//! Counts: calls under strace(1), and once more under callgrind.

use super::round;
use super::table::{Costs, EVENTS, INSTRUCTIONS, Row};
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

/// The first word of a process that becomes the program named by the others, without a terminal.
pub(crate) const ALONE: &str = "alone";

/// The first word of such a process, whose program finds no auxiliary vector ([`hide_auxv`]).
pub(crate) const WITHOUT_AUXV: &str = "without-auxv";

const TENURE: &str = env!("CARGO_BIN_EXE_tenure");

/// How many rounds of the library the shorter and the longer loop make.
const ROUNDS: [u32; 2] = [4, 34];

/// How long a waiter has to fall asleep, once it has said that it waits. If it needs longer, it makes the
/// same calls.
const ASLEEP: Duration = Duration::from_millis(300);

/// Longer than any of this takes.
const LONG: u32 = 1_200;

type Counts = BTreeMap<String, f64>;

/// How a process is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Calls,
    Instructions,
}

/// What everything costs.
pub(crate) fn all() -> Result<Costs, String> {
    let scratch = tempfile::tempdir().map_err(|error| format!("no folder: {error}"))?;
    let place = Place {
        folder: scratch.path(),
        strace: tool("strace")?,
        valgrind: tool("valgrind")?,
    };
    let start = place.counts(By::Calls, TENURE, &["--version"])?;
    let of_calls = |call: &str, counts: [Counts; 2]| Row {
        call: call.to_owned(),
        is_round: false,
        counts: joined(counts, &start),
    };
    // The first call makes the folder and the file.
    place.untraced(&["run", "x", "--", "/bin/true"])?;
    let both = |words: &[&str]| -> Result<[Counts; 2], String> {
        Ok([
            place.counts(By::Calls, TENURE, words)?,
            place.counts(By::Instructions, TENURE, words)?,
        ])
    };
    let rows = vec![
        of_calls(
            "run x -- /bin/true",
            both(&["run", "x", "--", "/bin/true"])?,
        ),
        of_calls(
            "run x -- /bin/true, behind a holder",
            [place.behind(By::Calls)?, place.behind(By::Instructions)?],
        ),
        of_calls("check x", both(&["check", "x"])?),
        place.round(round::HOLD)?,
        place.round(round::HAND_OVER)?,
    ];
    let rust = Command::new("rustc").arg("-V").output();
    let rust = rust.map_err(|error| format!("rustc: {error}"))?;
    let rust = String::from_utf8_lossy(&rust.stdout).trim().to_owned();
    let link = if is_static()? { STATIC } else { "" };
    Ok(Costs {
        build: format!("{rust}{link}"),
        rows,
    })
}

/// What the table says of a binary that was linked statically, beside the Rust.
const STATIC: &str = ", static C library";

/// Whether the binary starts without a loader, which would add instructions: the build script of the package links
/// it so where the system has the archives.
fn is_static() -> Result<bool, String> {
    let unread = |error| format!("{TENURE}: {error}");
    let mut head = Vec::new();
    let file = std::fs::File::open(TENURE).map_err(unread)?;
    // The name of the loader stands close behind the program's headers.
    file.take(4_096).read_to_end(&mut head).map_err(unread)?;
    Ok(!head.windows(9).any(|bytes| bytes == b"/ld-linux"))
}

/// Instructions first, then the calls beyond those of a start.
fn joined([calls, instructions]: [Counts; 2], start: &Counts) -> Vec<(String, f64)> {
    let beyond = calls.into_iter().map(|(kind, count)| {
        let of_start = start.get(&kind).copied().unwrap_or_default();
        (kind, (count - of_start).max(0.0))
    });
    let beyond = beyond.filter(|(_, count)| *count > 0.0);
    instructions.into_iter().chain(beyond).collect()
}

/// The path of a tool.
fn tool(name: &str) -> Result<String, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name));
    let mut found = found.filter(|path| path.is_file());
    let found = found
        .next()
        .and_then(|path| path.into_os_string().into_string().ok());
    found.ok_or_else(|| {
        format!("{name} is missing and this test is nothing without it; run scripts/test, which installs it")
    })
}

/// A folder of locks, and the tools.
struct Place<'a> {
    folder: &'a Path,
    strace: String,
    valgrind: String,
}

impl Place<'_> {
    /// A command that sees nothing of what surrounds the test: no terminal either, for a run asks it things.
    fn command(&self, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(words)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.folder)
            .env("TENURE_DIR", self.folder.join("locks"))
            .current_dir(self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    fn untraced(&self, words: &[&str]) -> Result<(), String> {
        ended(self.command(TENURE, words).spawn(), words)
    }

    /// A command under a tool that counts, which writes what it counted to a file.
    fn watched(&self, by: By, program: &str, words: &[&str]) -> Command {
        let out = self.out(by);
        let out = out.to_string_lossy();
        let file = format!("--callgrind-out-file={out}");
        let this = std::env::current_exe().unwrap_or_default();
        let this = this.to_string_lossy();
        // The thread that makes the call counts, and no other one or its command: a renewer of the library works by
        // the time, and not by the round.
        let mut all = match by {
            By::Calls => vec![ALONE, &self.strace, "-qq", "-o", &out, program],
            By::Instructions => vec![
                WITHOUT_AUXV,
                &self.valgrind,
                "-q",
                "--tool=callgrind",
                "--toggle-collect=main",
                &file,
                program,
            ],
        };
        all.extend(words);
        self.command(&this, &all)
    }

    fn out(&self, by: By) -> std::path::PathBuf {
        self.folder.join(match by {
            By::Calls => "calls",
            By::Instructions => "instructions",
        })
    }

    fn counts(&self, by: By, program: &str, words: &[&str]) -> Result<Counts, String> {
        ended(self.watched(by, program, words).spawn(), words)?;
        self.counted(by)
    }

    fn counted(&self, by: By) -> Result<Counts, String> {
        let out = self.out(by);
        let text = std::fs::read_to_string(&out);
        let text = text.map_err(|error| format!("{}: {error}", out.display()))?;
        Ok(match by {
            By::Calls => calls(&text),
            By::Instructions => {
                let total = text.lines().find_map(|line| {
                    let total = line.strip_prefix("totals: ");
                    total.or_else(|| line.strip_prefix("summary: "))
                });
                let total = total.and_then(|total| total.trim().parse().ok());
                let total = total.ok_or("callgrind has counted nothing")?;
                Counts::from([(INSTRUCTIONS.to_owned(), total)])
            }
        })
    }

    /// A run that waits behind another one, and gets the lock from it.
    fn behind(&self, by: By) -> Result<Counts, String> {
        let held = ["run", "x", "--", "/bin/sh", "-c", "echo held; cat"];
        let mut holder = self.command(TENURE, &held);
        let holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut holder = holder.map_err(|error| format!("{held:?}: {error}"))?;
        said(holder.stdout.take(), "held")?;
        let words = ["run", "--wait", "5m", "x", "--", "/bin/true"];
        let mut waiter = self.watched(by, TENURE, &words);
        let mut waiter = waiter
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{words:?}: {error}"))?;
        let waits = said(waiter.stderr.take(), "is held by");
        std::thread::sleep(ASLEEP);
        drop(holder.stdin.take());
        waits?;
        ended(Ok(holder), &held)?;
        ended(Ok(waiter), &words)?;
        self.counted(by)
    }

    /// What one more round of the library costs.
    fn round(&self, kind: &str) -> Result<Row, String> {
        let this = std::env::current_exe().map_err(|error| error.to_string())?;
        let this = this.to_string_lossy();
        let locks = self.folder.join("rounds");
        let locks = locks.to_string_lossy();
        let mut of_round = Counts::new();
        // Whose instructions end a wait depends on the load: a waiter under callgrind that comes late finds the lock
        // free. One state of the code counted 1.02, 1.22 and 1.44 million on machines under different loads.
        let counted: &[By] = match kind {
            round::HAND_OVER => &[By::Calls],
            _ => &[By::Instructions, By::Calls],
        };
        for &by in counted {
            let mut loops = Vec::new();
            for times in ROUNDS {
                let times = times.to_string();
                loops.push(self.counts(by, &this, &[round::WORD, kind, &locks, &times])?);
            }
            let more = f64::from(ROUNDS[1] - ROUNDS[0]);
            for (kind, count) in &loops[1] {
                let fewer = loops[0].get(kind).copied().unwrap_or_default();
                of_round.insert(kind.clone(), (count - fewer).max(0.0) / more);
            }
        }
        if kind == round::HAND_OVER {
            // Chance decides which thread is the last to have the handle, and closes its file.
            of_round.remove("close");
        }
        let first: Counts = of_round.remove_entry(INSTRUCTIONS).into_iter().collect();
        Ok(Row {
            call: kind.to_owned(),
            is_round: true,
            counts: joined([of_round, first], &Counts::new()),
        })
    }
}

/// Waits until a process has ended well.
fn ended(child: std::io::Result<Child>, words: &[&str]) -> Result<(), String> {
    let mut child = child.map_err(|error| format!("{words:?}: {error}"))?;
    for _ in 0..LONG {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("{words:?}: {status}")),
            Ok(None) => std::thread::sleep(Duration::from_millis(100)),
            Err(error) => return Err(format!("{words:?}: {error}")),
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    Err(format!("{words:?}: it does not end"))
}

/// Reads until the process has said these words. It drops what the process says afterwards, so that no full pipe
/// stops the process.
fn said(from: Option<impl Read + Send + 'static>, words: &str) -> Result<(), String> {
    let mut from = from.ok_or("there is no pipe")?;
    let (mut text, mut byte) = (String::new(), [0]);
    while !text.contains(words) {
        match from.read(&mut byte) {
            Ok(1) => text.push(char::from(byte[0])),
            _ => return Err(format!("'{words}' was not said: {text}")),
        }
    }
    std::thread::spawn(move || std::io::copy(&mut from, &mut std::io::sink()));
    Ok(())
}

/// How often each kind of call was made, by the lines of strace.
fn calls(text: &str) -> Counts {
    let mut counts = Counts::new();
    for line in text.lines() {
        let name = line.split_once('(').map(|(name, _)| name);
        // Other lines are signals, ends of processes, and the second halves of calls.
        let is_name = |name: &&str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        // A debug build of the standard library asks so whether the file that it closes is open.
        if line.contains(", F_GETFD)") {
            continue;
        }
        if let Some(kind) = name.filter(is_name).and_then(kind) {
            *counts.entry(kind.to_owned()).or_default() += 1.0;
        }
    }
    counts
}

/// The kind of a call. One kind for all calls among which a C library or a kernel chooses, and none for
/// those that a C library makes when it likes.
fn kind(name: &str) -> Option<&str> {
    Some(match name {
        // Memory; threads that wait for each other; the end. Then clocks, which the kernel and the debugger
        // let a program read with a call or without; what a C library does for a new thread; and how a
        // program learns what the kernel told it at its start.
        "brk" | "mmap" | "munmap" | "mprotect" | "mremap" | "madvise" | "futex" | "sched_yield"
        | "restart_syscall" | "exit" | "exit_group" | "execve" | "clock_gettime"
        | "gettimeofday" | "set_robust_list" | "rseq" | "sigaltstack" | "gettid"
        | "sched_getaffinity" | "prctl" | "getrandom" => return None,
        "open" | "openat" | "openat2" => "open",
        "stat" | "lstat" | "fstat" | "newfstatat" | "statx" => "stat",
        "access" | "faccessat" | "faccessat2" => "access",
        "readlink" | "readlinkat" => "readlink",
        "clone" | "clone3" | "fork" | "vfork" => "clone",
        "dup" | "dup2" | "dup3" => "dup",
        "pipe" | "pipe2" => "pipe",
        "read" | "write" | "poll" | "ppoll" | "epoll_wait" | "epoll_pwait" | "wait4" | "waitid"
        | "rt_sigreturn" | "nanosleep" | "clock_nanosleep" => EVENTS,
        other => other,
    })
}

/// Becomes the program that is named.
pub(crate) fn becomes(hidden: bool, words: &[String]) -> ExitCode {
    let [program, rest @ ..] = words else {
        return ExitCode::FAILURE;
    };
    let alone = rustix::process::setsid().map_err(std::io::Error::from);
    let ready = alone.and_then(|_| if hidden { hide_auxv() } else { Ok(()) });
    let error = match ready {
        Ok(()) => Command::new(program).args(rest).exec(),
        Err(error) => error,
    };
    eprintln!("{program}: {error}");
    ExitCode::FAILURE
}

/// Lets no program find the auxiliary vector by prctl(2).
///
/// Valgrind takes the kernel's own code (vDSO) away from a program and hides it in that vector. The kernel
/// still shows it to a program that asks by `PR_GET_AUXV`, which would then read where nothing is. Where
/// that call fails, as in Linux before 6.4, the program reads the file that valgrind provides.
#[allow(unsafe_code, reason = "no crate that we have sets such a filter")]
fn hide_auxv() -> std::io::Result<()> {
    use libc::{
        BPF_ABS, BPF_JEQ, BPF_JMP, BPF_JUMP, BPF_K, BPF_LD, BPF_RET, BPF_STMT, BPF_W, EINVAL,
        PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, SECCOMP_RET_ALLOW,
        SECCOMP_RET_ERRNO, SYS_prctl,
    };
    const PR_GET_AUXV: u32 = 0x4155_5856;
    /// The lower half of the first argument in `seccomp_data`, after number, architecture and address.
    const FIRST_ARGUMENT: u32 = 16;

    let code = |bits: u32| u16::try_from(bits).unwrap_or_default();
    let prctl = u32::try_from(SYS_prctl).unwrap_or_default();
    let fails = SECCOMP_RET_ERRNO | u32::try_from(EINVAL).unwrap_or_default();
    // SAFETY: these two only build values.
    let mut filter = unsafe {
        [
            BPF_STMT(code(BPF_LD | BPF_W | BPF_ABS), 0),
            BPF_JUMP(code(BPF_JMP | BPF_JEQ | BPF_K), prctl, 0, 3),
            BPF_STMT(code(BPF_LD | BPF_W | BPF_ABS), FIRST_ARGUMENT),
            BPF_JUMP(code(BPF_JMP | BPF_JEQ | BPF_K), PR_GET_AUXV, 0, 1),
            BPF_STMT(code(BPF_RET | BPF_K), fails),
            BPF_STMT(code(BPF_RET | BPF_K), SECCOMP_RET_ALLOW),
        ]
    };
    let filter = libc::sock_fprog {
        len: 6,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the filter, which lives until the call returns.
    let is_set = unsafe {
        libc::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    if is_set {
        return Ok(());
    }
    Err(std::io::Error::last_os_error())
}
