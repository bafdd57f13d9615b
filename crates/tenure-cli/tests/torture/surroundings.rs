//! What is around a call: where its messages go, and which signals its caller has blocked.
//!
//! A program that supervises must not depend on a reader. So some calls get a pipe that is full and
//! stays full, some a terminal whose output was stopped (Ctrl-S), and some a terminal that takes a
//! few bytes at a time. Other calls come from a caller that has blocked the signals that a
//! supervisor lives by, as a daemon with a signal thread does.

use crate::random::Random;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Action, tcflow};
use std::fs::File;
use std::io::{Error, Read, Result};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// What a supervisor and a waiter live by, and what asks them to end.
const BLOCKED: &str = "CHLD,TERM,INT,HUP,QUIT,USR1,USR2,URG,IO,ALRM,PIPE";

/// How many bytes a slow terminal takes at a time, and how long it rests between two times.
const SLOWLY: (usize, Duration) = (40, Duration::from_millis(40));

/// Where the messages of a call go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Messages {
    /// Into a file, to be read when something is wrong.
    File,
    FullPipe,
    /// A terminal on which Ctrl-S was typed.
    StoppedTerminal,
    SlowTerminal,
}

/// All of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surroundings {
    pub(crate) messages: Messages,
    pub(crate) blocks: bool,
}

impl Surroundings {
    /// What nothing is wrong with.
    pub(crate) const USUAL: Self = Self {
        messages: Messages::File,
        blocks: false,
    };

    pub(crate) fn draw(random: &mut Random) -> Self {
        let messages = match random.between(0, 18) {
            0..3 => Messages::FullPipe,
            3 => Messages::StoppedTerminal,
            4 => Messages::SlowTerminal,
            _ => Messages::File,
        };
        Self {
            messages,
            blocks: random.one_in(10),
        }
    }

    /// For the table of figures.
    pub(crate) fn counted_as(self) -> impl Iterator<Item = &'static str> {
        let messages = match self.messages {
            Messages::File => None,
            Messages::FullPipe => Some("around: stderr is a full pipe"),
            Messages::StoppedTerminal => Some("around: a stopped terminal"),
            Messages::SlowTerminal => Some("around: a slow terminal"),
        };
        let blocks = self.blocks.then_some("around: signals are blocked");
        messages.into_iter().chain(blocks)
    }

    /// The words before the call: programs that set things up and become the next one.
    pub(crate) fn words(self) -> Vec<String> {
        let mut words = Vec::new();
        if self.is_terminal() {
            // The terminal on stdin becomes the one that controls a new session.
            words.extend(["setsid", "--ctty"].map(str::to_owned));
        }
        if self.blocks {
            words.extend(["env".to_owned(), format!("--block-signal={BLOCKED}")]);
        }
        words
    }

    pub(crate) fn is_terminal(self) -> bool {
        matches!(
            self.messages,
            Messages::StoppedTerminal | Messages::SlowTerminal
        )
    }

    /// Gives the command its stderr (and a terminal as stdin, where there is one). What is answered
    /// has to be kept until the call has ended.
    pub(crate) fn give(self, command: &mut Command, file: File) -> Result<Kept> {
        match self.messages {
            Messages::File => {
                command.stderr(file);
                Ok(Kept::default())
            }
            Messages::FullPipe => {
                let (reader, writer) = full_pipe()?;
                command.stderr(writer);
                Ok(Kept {
                    ends: vec![reader],
                    reading: None,
                })
            }
            Messages::StoppedTerminal | Messages::SlowTerminal => self.give_terminal(command),
        }
    }

    fn give_terminal(self, command: &mut Command) -> Result<Kept> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let terminal = openpt(flags)?;
        grantpt(&terminal)?;
        unlockpt(&terminal)?;
        let name = ptsname(&terminal, Vec::new())?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let side = rustix::fs::open(name, flags, rustix::fs::Mode::empty())?;
        let reading = if self.messages == Messages::StoppedTerminal {
            tcflow(&side, Action::OOff)?;
            None
        } else {
            Some(Reading::start(terminal.try_clone()?)?)
        };
        command.stdin(Stdio::from(side.try_clone()?)).stderr(side);
        Ok(Kept {
            ends: vec![terminal],
            reading,
        })
    }
}

/// The other ends of what a call was given.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    #[allow(dead_code, reason = "they are kept open")]
    ends: Vec<OwnedFd>,
    reading: Option<Reading>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(mut reading) = self.reading.take() {
            reading.is_over.store(true, Ordering::SeqCst);
            let _ = reading.thread.take().map(JoinHandle::join);
        }
    }
}

/// A thread that reads a terminal slowly.
#[derive(Debug)]
struct Reading {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Reading {
    fn start(terminal: OwnedFd) -> Result<Self> {
        // Of this side only, which no other process has.
        let flags = fcntl_getfl(&terminal)?;
        fcntl_setfl(&terminal, flags | OFlags::NONBLOCK)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let mut terminal = File::from(terminal);
            let mut buffer = [0; SLOWLY.0];
            while !told.load(Ordering::SeqCst) {
                // Nothing there, or no writer left: either is seen again later.
                let _ = terminal.read(&mut buffer);
                std::thread::sleep(SLOWLY.1);
            }
        });
        Ok(Self {
            is_over,
            thread: Some(thread),
        })
    }
}

/// A pipe into which not one byte goes any more, with a writing end that would wait for ever.
fn full_pipe() -> Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    let flags = fcntl_getfl(&writer)?;
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK)?;
    fill(writer.as_fd())?;
    fcntl_setfl(&writer, flags)?;
    Ok((reader, writer))
}

fn fill(writer: impl AsFd) -> Result<()> {
    for size in [4096, 1] {
        loop {
            match rustix::io::write(&writer, &[b'.'; 4096][..size]) {
                Ok(_) => {}
                Err(rustix::io::Errno::AGAIN) => break,
                Err(error) => return Err(Error::from(error)),
            }
        }
    }
    Ok(())
}
