//! The trial of the locks by two processes. The other one is this very program, by a flag that help does not show.

use crate::exit::Exit;
use crate::render::findings::Status;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use tenure_os::clock::instant;
use tenure_store::Wake;
use tenure_store::file::poll_readable;
use tenure_store::file::trial::{self, Other, Trial, TrialResult};

/// How long the other process may take for one step.
const PATIENCE: Duration = Duration::from_secs(2);

/// The path of this program as it was started, whatever stands at its own path by now.
#[cfg(target_os = "linux")]
const THIS: &str = "/proc/self/exe";

/// The other process.
struct Partner {
    child: Child,
    says: ChildStdout,
}

impl Other for Partner {
    fn says(&mut self) -> Option<u8> {
        let until = instant() + PATIENCE;
        // A signal wakes the sleep as well. Then the read waits, and the other process has something to say or ends.
        match poll_readable(&[self.says.as_fd()], PATIENCE, Some(until)) {
            Ok(Wake::Ready) => {
                let mut byte = [0];
                match self.says.read(&mut byte) {
                    Ok(1) => byte.first().copied(),
                    Ok(_) | Err(_) => None,
                }
            }
            Ok(Wake::Expired | Wake::Interrupted) | Err(_) => None,
        }
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Goes through the trial, and says what it has shown.
pub(super) fn tried(mut trial: Trial) -> (Status, String) {
    if let Err(error) = trial.begin() {
        // Only what the system says of the file system is a finding about it.
        let has_none = error.raw_os_error().is_some_and(|number| {
            [
                libc::ENOLCK,
                libc::ENOTSUP,
                libc::EOPNOTSUPP,
                libc::ENOSYS,
                libc::EINVAL,
            ]
            .contains(&number)
        });
        return if has_none {
            let said = format!("there are no locks on this file system: {error}");
            (Status::Wrong, said)
        } else {
            let said = format!("not tried, so not known whether they hold: {error}");
            (Status::Note, said)
        };
    }
    let (shown, how) = match start(&trial) {
        Some(Ok(mut partner)) => {
            trial.hand_over();
            (trial.with(&mut partner), "tried by two processes")
        }
        Some(Err(_)) | None => (
            trial.alone(),
            "tried within one process, as no other one could be started",
        ),
    };
    match shown {
        TrialResult::Holds => (
            Status::Ok,
            format!("{how}: they hold, and end with their process"),
        ),
        TrialResult::Fails(what) => (Status::Wrong, format!("{how}: {what}")),
        TrialResult::Nothing => (Status::Note, format!("{how}: not known whether they hold")),
    }
}

fn start(trial: &Trial) -> Option<io::Result<Partner>> {
    #[cfg(target_os = "linux")]
    let program = THIS;
    #[cfg(not(target_os = "linux"))]
    let program = std::env::current_exe().ok()?;
    let file = trial.other()?;
    let spawned = Command::new(program)
        .args(["doctor", "--in-trial"])
        .env_clear()
        .stdin(Stdio::from(file))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let partner = |mut child: Child| {
        if let Some(says) = child.stdout.take() {
            return Ok(Partner { child, says });
        }
        let _ = child.kill();
        let _ = child.wait();
        Err(io::ErrorKind::BrokenPipe.into())
    };
    Some(spawned.and_then(partner))
}

/// The other process's part: the file is its stdin.
pub(in crate::command) fn take_part() -> Exit {
    let mut out = io::stdout();
    let done = trial::take_part(io::stdin().as_fd(), &mut |byte| {
        out.write_all(&[byte])?;
        out.flush()
    });
    match done {
        Ok(()) => Exit::Success,
        Err(_) => Exit::General,
    }
}
