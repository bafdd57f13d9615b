//! What `tenure.toml` says about one lock, read by the parsers of the flags: the rows of `flags!` name the keys. A flag
//! counts for more than a variable, and a variable for more than the file.
//!
//! Some keys say what a lock *is* for all callers: how many slots it has. There a flag may repeat the file,
//! and a flag that contradicts it is refused: two callers that disagree would not share one lock.

use super::run::{RunArgs, usual_grace};
use crate::args::flags::Flags as _;
use crate::args::value::{self, Queue, Typed};
use crate::failure::Failure;
use std::time::Duration;
use tenure_core::{LockName, Mode, Queueing};
use tenure_engine::config::LockDefaults;
use tenure_engine::engine::Wait;

/// What becomes of a run that does not get its lock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum OnHeld {
    /// The call is refused.
    #[default]
    Refuse,
    /// The call has nothing to do, and that is a success.
    Skip,
}

/// Reads one.
pub(super) fn on_held(text: &str) -> Result<OnHeld, String> {
    match text {
        "refuse" => Ok(OnHeld::Refuse),
        "skip" => Ok(OnHeld::Skip),
        _ => Err(format!("{text:?}: write skip or refuse")),
    }
}

/// What a project says about one lock.
#[derive(Debug, Default)]
pub(crate) struct Defaults {
    /// What it says by keys that stand for flags, as if these had been typed. Without a file nothing is made of them.
    flags: Option<Box<RunArgs>>,
    pub(super) max_age: Option<Duration>,
    /// In which mode all callers hold it.
    mode: Option<Mode>,
    pub(super) on_held: Option<OnHeld>,
    /// For what has no flag.
    said: LockDefaults,
    /// The file that says it, for messages.
    file: String,
}

impl Defaults {
    /// Reads what a file says. `source` names a key in messages.
    pub(super) fn of(
        said: LockDefaults,
        file: String,
        source: impl Fn(&str) -> String,
    ) -> Result<Self, Failure> {
        let mut flags = Box::new(RunArgs::default());
        flags.read_keys(&said, &source)?;
        flags.claiming.read_keys(&said, &source)?;
        flags.claiming.patience.read_keys(&said, &source)?;
        if let Some(after) = &flags.term_after {
            let grace = flags.grace.clone().unwrap_or_else(usual_grace);
            if after.value(&source("term_after"))? > grace.value(&source("grace"))? {
                return Err(Failure::bad_arguments(format!(
                    "{} {:?}: SIGTERM would come after the end of the grace of {}",
                    source("term_after"),
                    after.text,
                    grace.text
                )));
            }
        }
        let is_shared = said.shared == Some(true);
        Ok(Self {
            flags: Some(flags),
            max_age: value::read(&source("max_age"), said.max_age.as_deref(), value::lease)?,
            mode: (said.slots().map(Mode::Slots)).or(is_shared.then_some(Mode::Shared)),
            on_held: value::read(&source("on_held"), said.on_held.as_deref(), on_held)?,
            said,
            file,
        })
    }

    /// What it says by keys that stand for flags.
    pub(super) fn flags(&self) -> Option<&RunArgs> {
        self.flags.as_deref()
    }

    /// How long to wait.
    pub(crate) fn wait(&self) -> Option<Wait> {
        said(self.flags()?.claiming.patience.wait.as_ref())
    }

    /// How long the hold outlives its last heartbeat.
    pub(super) fn ttl(&self) -> Option<Duration> {
        said(self.flags()?.claiming.ttl.as_ref())
    }

    /// The mode of a claim: what the file says for all callers, or else what was typed, with the words that said it.
    pub(super) fn mode(
        &self,
        typed: Option<Mode>,
        name: &LockName,
    ) -> Result<(Mode, Option<String>), Failure> {
        let flag = match typed {
            Some(Mode::Shared) => "--shared".to_owned(),
            Some(Mode::Slots(slots)) => format!("--slots {slots}"),
            Some(Mode::Exclusive) => "--exclusive".to_owned(),
            None => String::new(),
        };
        match (self.mode, typed) {
            (Some(said @ Mode::Slots(slots)), typed) if typed.is_none_or(|typed| typed == said) => {
                Ok((said, Some(format!("slots = {slots} in {}", self.file))))
            }
            (Some(Mode::Slots(slots)), _) => Err(Failure::bad_arguments(format!(
                "{flag}: {name} has {slots} slots for all callers, as {} says; leave the flag out",
                self.file
            ))),
            // Readers and writers of one lock differ, so a flag of one call counts for more.
            (Some(said @ Mode::Shared), None) => {
                Ok((said, Some(format!("shared = true in {}", self.file))))
            }
            (_, Some(Mode::Exclusive) | None) => Ok((Mode::Exclusive, None)),
            (_, Some(typed)) => Ok((typed, Some(flag))),
        }
    }

    /// The variables for a command whose hold has this number, and the member of the pool that it names.
    pub(crate) fn pool(self) -> Pool {
        Pool(self.said)
    }

    /// What the file says, for the lock of a group: it has no mode and no slots.
    pub(super) fn without_mode(mut self) -> Self {
        self.mode = None;
        self.said.members = None;
        self.said.slots = None;
        self
    }

    /// How a run waits, and whether it asks the present holder to stop. What is typed counts for more: a file
    /// that contradicts it says nothing.
    pub(super) fn line(&self, typed: &RunArgs, in_group: bool, says_wait: bool) -> (Queue, bool) {
        let single = Queue::Line(Queueing::Single);
        let cancels = typed.cancel_in_progress
            || (self.flags().is_some_and(|file| file.cancel_in_progress)
                && typed.queue.is_none_or(|queue| queue == single));
        let usual = if in_group || cancels {
            Queueing::Single
        } else {
            Queueing::Fifo
        };
        let fits = |queue: &Queue| match queue {
            Queue::None => !in_group && !says_wait && !cancels,
            Queue::Line(queueing) => !cancels || *queueing == Queueing::Single,
        };
        let of_file = || self.flags().and_then(|file| file.queue).filter(fits);
        let queue = typed.queue.or_else(of_file);
        (queue.unwrap_or(Queue::Line(usual)), cancels)
    }

    /// Whether the file names any hook.
    #[cfg(windows)]
    pub(super) fn says_hooks(&self) -> bool {
        self.flags()
            .is_some_and(|file| file.on_supersede.is_some() || file.on_superseded.is_some())
    }

    /// Refuses a run that leaves no supervisor behind, if the file wants what only a supervisor does.
    pub(super) fn refuse_exec(&self) -> Result<(), Failure> {
        let Some(said) = self.flags() else {
            return Ok(());
        };
        let (what, key) = if let Some(limit) = &said.max_runtime {
            (
                "end the work after",
                format!("max_runtime = {:?}", limit.text),
            )
        } else if let Some(line) = &said.rollback {
            ("undo a failed command by", format!("rollback = {line:?}"))
        } else if let Some(line) = &said.on_superseded {
            ("run", format!("on_superseded = {line:?}"))
        } else if said.wait_all {
            (
                "wait for the rest of the work,",
                "wait_all = true".to_owned(),
            )
        } else if said.close {
            ("keep the lock for itself,", "close = true".to_owned())
        } else {
            return Ok(());
        };
        Err(Failure::bad_arguments(format!(
            "no supervisor stays behind with --exec to {what} {key}, as {} says; leave --exec out",
            self.file
        )))
    }
}

/// What a key says that was read before.
fn said<T: Clone>(key: Option<&Typed<T>>) -> Option<T> {
    key.and_then(Typed::ok).cloned()
}

/// What the slots of a lock stand for, and the variables that say so to a command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Pool(LockDefaults);

impl Pool {
    /// All that the slots stand for.
    pub(crate) fn members(&self) -> Option<&[String]> {
        self.0.members.as_deref()
    }

    /// The variables for a command under a hold of this number, which stands for this member.
    pub(crate) fn env(&self, slot: Option<u32>, member: Option<&str>) -> Vec<(String, String)> {
        self.0.env_of(slot, member)
    }
}
