//! For authors of command-line tools: declare the lock beside the command, and that is all.
//!
//! A [`Tool`] is a clap-derived command that says which [`Lock`] it needs. [`main`] does the rest:
//! it reads `--wait`, acquires, runs the command, answers with one JSON document
//! ([the envelope](crate::envelope)), and ends with the documented exit code.
//!
//! ```no_run
//! use clap::Parser;
//! use tenure::framework::{self, Context, Error, Lock, Tool};
//!
//! #[derive(Parser)]
//! enum Deploy {
//!     /// Brings an environment up to date
//!     Deploy {
//!         #[arg(long)]
//!         env: String,
//!     },
//!     /// Shows what runs where
//!     Status,
//! }
//!
//! impl Tool for Deploy {
//!     type Answer = String;
//!
//!     fn lock(&self) -> Lock {
//!         match self {
//!             Self::Deploy { env } => Lock::named(format!("deploy-{env}")),
//!             Self::Status => Lock::none(),
//!         }
//!     }
//!
//!     fn run(self, context: &Context) -> Result<String, Error> {
//!         match self {
//!             Self::Deploy { env } => {
//!                 for _step in 0..10 {
//!                     context.check()?; // asked to stop?
//!                     // … one step; `context.token()` goes to whatever can refuse an older one
//!                 }
//!                 Ok(env)
//!             }
//!             Self::Status => Ok("all is well".to_owned()),
//!         }
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     framework::main::<Deploy>()
//! }
//! ```
//!
//! # What the caller of the tool gets
//! - `--wait DURATION`, before or after the subcommand, else `$TENURE_WAIT`, else what the
//!   declaration says, else 10 s. `0` does not wait, and `forever` has to be asked for.
//! - One JSON document on stdout, whatever happens; `--help` and `--version` are answered as clap
//!   does. Prose goes to stderr.
//! - Exit 4 and `LOCK_HELD` with a hint when to come back. Exit 2 for bad arguments, before anything is
//!   touched. 129, 130 and 143 after SIGHUP, SIGINT and SIGTERM; 80 after a lost lock; 79 when the
//!   command stopped because another one asked for it. 1 otherwise ([`Exit`]).
//!
//! The locks are those of `tenure run` in the same place ([`LockManager::open`]): the two exclude
//! each other, and `tenure check` shows them.
//!
//! # How a command is ended
//! The command runs on the **main thread**, as it would without this module. A thread beside it
//! receives the signals, a lost lock, and a request to stop. It then **asks**: [`Context::check`]
//! fails, [`Context::sleep`] ends, [`Context::is_cancelled`] is true. The command returns, the lock
//! is released, the document is written, the process ends.
//!
//! **A command that never asks** is given a grace (10 s, [`Lock::grace`]). After it the document is
//! written and the process *ends while the command is at work*. The lock is not released before: the
//! kernel frees it as the process ends, so that no other caller starts earlier. No destructor runs, and a
//! file that the command was writing is left as it is. A command that blocks in one long call should
//! be a program of its own under `tenure run`.
//!
//! A second SIGTERM changes nothing; a second SIGINT ends the process at once, without a document.
//!
//! **A reader that does not read** delays none of this. A thread of its own writes the prose. After a
//! signal the call ends even if its document is unread: when its grace is over, and not before 5 s after
//! the command's end. A document that cannot be written (a full disk) is exit 1.
//!
//! # Limitations
//! - Processes that the command has started do not end with it, and do not keep the lock. End
//!   them in the command, or run them under `tenure run`.
//! - A panic that unwinds is answered with `PANICKED` and exit 1, after the lock was released. With
//!   `panic = "abort"` there is no document; the kernel frees the lock.
//! - [`std::process::exit`] in the command ends the process without a document. The kernel frees the
//!   lock.
//! - What the command prints on stdout stands before the document. It belongs on stderr.
//! - The signals SIGHUP, SIGINT and SIGTERM belong to this module for the rest of the process (unless
//!   they were ignored when it began, as under nohup(1)). This is the only part of the library that
//!   installs handlers.
//! - Defaults by lock name in a `tenure.toml` are not read.
//!
//! The [`envelope`](crate::envelope) decides what is in the document, and the core who gets the
//! lock.

#![allow(
    clippy::result_large_err,
    reason = "a call fails once, and the process ends then"
)]

mod answer;
mod arguments;
mod arrivals;
mod monitor;

pub use crate::envelope::{Exit, Failure};
pub use crate::guard::Wait;
pub use arguments::WaitArgs;

use crate::engine::Waiting;
use crate::envelope::LockView;
use crate::guard::{Cancel, Guard, Guards, Holding, LockManager, OpenError, Options};
use crate::printed::whole;
use answer::Surface;
use clap::Parser;
use monitor::{Monitor, RunState};
use serde::Serialize;
use serde_json::Value;
use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tenure_core::{LockName, RequestId};

/// How long a command may take to end once it was asked to.
const GRACE: Duration = Duration::from_secs(10);

/// Any error that a command fails with. A [`Failure`] keeps its code, exit code and context; every
/// other error is `FAILED` and exit 1, with its causes in the message.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A command-line tool: what clap parses, which lock each call needs, and what it does.
pub trait Tool: Parser {
    /// What a call answers; becomes the document's `data`.
    type Answer: Serialize;

    /// The lock that this call needs.
    fn lock(&self) -> Lock;

    /// The work, done while the lock is held.
    ///
    /// # Errors
    /// - Whatever makes the call fail.
    fn run(self, context: &Context) -> Result<Self::Answer, Error>;

    /// Where the locks are: with those of `tenure run`, unless the tool says otherwise.
    ///
    /// # Errors
    /// - [`OpenError`] as [`LockManager::open`].
    fn locks(&self) -> Result<LockManager, OpenError> {
        LockManager::open()
    }
}

/// What a command declares: the locks that it needs, and how.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct Lock {
    names: Vec<String>,
    holding: Holding,
    wait: Option<Wait>,
    grace: Option<Duration>,
    why: Option<String>,
}

impl Lock {
    /// No lock at all.
    pub fn none() -> Self {
        Self::default()
    }

    /// The lock of this name. A name that cannot be used, such as one built from bad arguments, is refused
    /// before anything is touched.
    pub fn named(name: impl Into<String>) -> Self {
        Self::none().and(name)
    }

    /// Adds a lock. The call takes all of them, in one order, or none.
    pub fn and(mut self, name: impl Into<String>) -> Self {
        self.names.push(name.into());
        self
    }

    /// Holds beside other shared holds.
    pub fn shared(mut self) -> Self {
        self.holding = Holding::SHARED;
        self
    }

    /// Holds one of `slots` slots, at least one. With 0, the call ends with exit 2.
    pub fn slots(mut self, slots: u32) -> Self {
        self.holding = Holding::slots(slots);
        self
    }

    /// How long to wait, unless the caller says otherwise.
    pub fn wait(mut self, wait: impl Into<Wait>) -> Self {
        self.wait = Some(wait.into());
        self
    }

    /// How long the command may take to end once it was asked to, instead of 10 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// What the lock is held for, as other callers see it; else the name of the program and its subcommand.
    pub fn why(mut self, text: impl Into<String>) -> Self {
        self.why = Some(text.into());
        self
    }

    fn options(&self, wait: Option<Wait>, why: &str, cancel: &Cancel) -> Options {
        let options = Options::new()
            .cancel(cancel)
            .why(self.why.as_deref().unwrap_or(why))
            .holding(self.holding);
        match wait.or(self.wait) {
            Some(wait) => options.wait(wait),
            None => options,
        }
    }
}

/// What a command can ask and tell the framework.
#[derive(Debug)]
pub struct Context {
    guards: Guards,
    run_state: Arc<RunState>,
    request_id: String,
    warnings: Mutex<Vec<String>>,
    surface: Surface,
}

/// The command was asked to stop; see [`Context::check`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("asked to stop")]
#[non_exhaustive]
pub struct Stopped;

impl Context {
    /// The fencing token of the lock, or of the first of several; `None` without a lock. Hand it to
    /// a resource that can refuse an older one.
    pub fn token(&self) -> Option<u64> {
        self.guards.first().map(Guard::token)
    }

    /// The locks that are held.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// The id of this call, as in the document and in every view of the lock.
    pub fn request_id(&self) -> &str {
        &self.request_id
    }

    /// Whether the command should end: after a signal, after the lock was lost, or because another
    /// caller asked for the lock.
    pub fn is_cancelled(&self) -> bool {
        self.run_state.is_asked()
    }

    /// [`Context::is_cancelled`] for `?`: between any two steps.
    ///
    /// # Errors
    /// - [`Stopped`] if the command should end. Return it, and the framework gives the right answer.
    pub fn check(&self) -> Result<(), Stopped> {
        if self.is_cancelled() {
            return Err(Stopped);
        }
        Ok(())
    }

    /// Sleeps, and wakes up early if the command should end.
    ///
    /// # Errors
    /// - [`Stopped`] if it should.
    pub fn sleep(&self, time: Duration) -> Result<(), Stopped> {
        self.run_state.sleep(time);
        self.check()
    }

    /// Tells a person something on stderr, and a program under the document's `warnings`.
    pub fn warn(&self, message: impl Into<String>) {
        let message = message.into();
        self.surface.say(&message);
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        warnings.push(message);
    }
}

/// The whole of a tool's `main`.
pub fn main<T: Tool>() -> ExitCode {
    main_of::<T>(std::env::args_os())
}

/// [`main`] for a command line that comes from elsewhere; its first word is the program.
pub fn main_of<T: Tool>(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut surface = Surface::new();
    let call = match arguments::parse::<T>(words, &mut surface) {
        Ok(Some(call)) => call,
        Ok(None) => return Exit::Success.into(),
        Err(failure) => return surface.answer(Err(&failure)).into(),
    };
    match carry_out(call, &surface) {
        Ok(data) => surface.answer(Ok(data)).into(),
        Err(failure) => surface.answer(Err(&failure)).into(),
    }
}

fn carry_out<T: Tool>(call: arguments::Call<T>, surface: &Surface) -> Result<Value, Failure> {
    let lock = call.tool.lock();
    for name in &lock.names {
        LockName::new(name).map_err(|why| {
            Failure::bad_arguments(format!("the lock name {name:?} cannot be used: {why}"))
        })?;
    }
    let run_state = Arc::new(RunState::new(lock.grace.unwrap_or(GRACE)));
    let monitor = Monitor::start(&run_state, surface).map_err(|error| {
        let message = format!("signals cannot be received: {error}");
        Failure::new(Exit::General, "NO_SIGNALS", message)
    })?;
    let answer = under_watch(call, &lock, &run_state, &monitor, surface);
    run_state.settle();
    answer
}

/// Acquires, runs the command, releases.
fn under_watch<T: Tool>(
    call: arguments::Call<T>,
    lock: &Lock,
    run_state: &Arc<RunState>,
    monitor: &Monitor,
    surface: &Surface,
) -> Result<Value, Failure> {
    let guards = if lock.names.is_empty() {
        Guards::default()
    } else {
        acquire(&call, lock, run_state, surface)?
    };
    // After a signal before this point the command never starts.
    if let Some(signal) = run_state.signal() {
        return Err(Failure::cancelled(signal, "acquire"));
    }
    monitor.watch(&guards);
    surface.started(guards.first());
    let context = Context {
        guards,
        request_id: surface.request_id(),
        run_state: Arc::clone(run_state),
        warnings: Mutex::default(),
        surface: surface.clone(),
    };
    let tool = call.tool;
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let answer = tool.run(&context)?;
        Ok(serde_json::to_value(answer)?)
    }));
    let outcome = outcome.unwrap_or_else(|_| {
        let message = "The command panicked; what it said is on stderr";
        Err(Failure::new(Exit::General, "PANICKED", message).into())
    });
    // From here on this thread answers, and not the monitor.
    run_state.settle();
    let Context {
        guards, warnings, ..
    } = context;
    surface.warn(
        warnings
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner),
    );
    let lost = guards.iter().find(|guard| guard.is_lost());
    let lost = lost.map(|guard| guard.name().clone());
    let lost = match guards.release() {
        Ok(()) => lost,
        Err(error) => {
            surface.warn([error.to_string()]);
            match error {
                // Whatever became of another release, the work went on under its lock to the end.
                crate::guard::ReleaseError::Lost { name } => lost.or(Some(name)),
                _ => lost,
            }
        }
    };
    match (run_state.signal(), lost, outcome) {
        (Some(signal), ..) => Err(Failure::cancelled(signal, "run")),
        (None, Some(name), _) => Err(Failure::lock_lost(&name)),
        (None, None, Ok(data)) => Ok(data),
        (None, None, Err(error)) => Err(failure(error, run_state)),
    }
}

fn acquire<T: Tool>(
    call: &arguments::Call<T>,
    lock: &Lock,
    run_state: &RunState,
    surface: &Surface,
) -> Result<Guards, Failure> {
    let locks = call.tool.locks()?;
    let why = surface.why();
    let wait = call.wait;
    let prose = surface.clone();
    let told = move |name: &LockName, waiting: &Waiting<'_>| tell(&prose, name, waiting);
    let options = lock.options(wait, &why, run_state.cancel()).on_wait(told);
    let names = lock.names.iter().map(String::as_str);
    locks.acquire_all(names, &options).map_err(|error| {
        // Only a signal cancels.
        match run_state.signal() {
            Some(signal) => Failure::cancelled(signal, "acquire"),
            None => error.into(),
        }
    })
}

/// Tells a person which holder the call waits for.
fn tell(surface: &Surface, name: &LockName, waiting: &Waiting<'_>) {
    let Some(claim) = waiting.front() else {
        return;
    };
    let holder = LockView::holder_of(claim, waiting.now);
    if let Some(still) = waiting.standstill {
        surface.say(&format!(
            "waiting for {name}, not held; {} is next in line and {}",
            holder.who(),
            tenure_engine::envelope::StandstillView::why(still.is_stopped),
        ));
        return;
    }
    surface.say(&format!(
        "waiting for {name}, held by {}",
        holder.sentence()
    ));
}

/// The failure that the caller sees for a command's own error.
fn failure(error: Error, run_state: &RunState) -> Failure {
    let error = match error.downcast::<Failure>() {
        Ok(failure) => return *failure,
        Err(error) => error,
    };
    match (error.downcast_ref::<Stopped>(), run_state.wanted()) {
        // Neither a signal nor a loss: another caller asked for the lock.
        (Some(Stopped), Some((name, by))) => Failure::superseded(&name, by.as_deref()),
        (Some(Stopped), None) | (None, _) => Failure::new(Exit::General, "FAILED", whole(&*error)),
    }
}

/// An id for a call that holds nothing.
fn new_id() -> String {
    crate::process::new_request_id().map_or_else(|_| String::new(), |id: RequestId| id.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("deploying prod")]
    struct Deploying {
        source: std::io::Error,
    }

    #[test]
    fn a_commands_own_error_is_answered_with_what_it_is_caused_by() {
        let source = std::io::Error::other("the disk is full");
        let run_state = RunState::new(GRACE);
        let failure = failure(Deploying { source }.into(), &run_state);
        assert_eq!(failure.message, "deploying prod: the disk is full");
        assert_eq!(
            (failure.code.as_str(), failure.exit),
            ("FAILED", Exit::General)
        );
    }
}
