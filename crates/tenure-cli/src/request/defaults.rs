//! What `tenure.toml` says about one lock, read by the parsers of the flags. A flag counts for more than a
//! variable, and a variable for more than the file.
//!
//! Some keys say what a lock *is* for all callers: how many slots it has. There a flag may repeat the file,
//! and a flag that contradicts it is refused: two callers that disagree would not share one lock.

use super::run::{Hooks, RunArgs};
use crate::args::value::{self, Queue, Typed};
use crate::failure::Failure;
use crate::supervise::OnLost;
use clap::ValueEnum;
use std::time::Duration;
use tenure_core::{LockName, Mode, Queueing};
use tenure_engine::config::LockDefaults;
use tenure_engine::engine::Wait;
use tenure_engine::group::folded;

/// The time that work is given to end if no one says another.
const GRACE: &str = "10s";

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

fn queue(text: &str) -> Result<Queue, String> {
    Queue::from_str(text, false).map_err(|_| format!("{text:?}: write fifo, single, max or none"))
}

fn on_lost(text: &str) -> Result<OnLost, String> {
    OnLost::from_str(text, false).map_err(|_| format!("{text:?}: write terminate or warn"))
}

/// What a project says about one lock.
#[derive(Debug, Default)]
pub(crate) struct Defaults {
    pub(crate) wait: Option<Wait>,
    pub(super) ttl: Option<Duration>,
    pub(super) max_age: Option<Duration>,
    /// In which mode all callers hold it.
    mode: Option<Mode>,
    pub(super) group: Option<LockName>,
    queue: Option<Queue>,
    cancel_in_progress: bool,
    grace: Option<Typed<Duration>>,
    signal: Option<i32>,
    term_after: Option<Typed<Duration>>,
    max_runtime: Option<(Duration, String)>,
    on_lost: Option<OnLost>,
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
        let text = |text: &Option<String>| text.clone();
        let (grace, limit) = (text(&said.grace), text(&said.max_runtime));
        let typed = |text| Typed::of(text, value::duration);
        let read_limit = value::read(&source("max_runtime"), limit.as_deref(), value::limit)?;
        let grace = grace.map(typed);
        if let Some(grace) = &grace {
            grace.value(&source("grace"))?;
        }
        let term_after = text(&said.term_after).map(typed);
        if let Some(after) = &term_after {
            let time = grace.clone().unwrap_or_else(|| typed(GRACE.to_owned()));
            if after.value(&source("term_after"))? > time.value(&source("grace"))? {
                return Err(Failure::bad_arguments(format!(
                    "{} {:?}: SIGTERM would come after the end of the grace of {}",
                    source("term_after"),
                    after.text,
                    time.text
                )));
            }
        }
        let is_shared = said.shared == Some(true);
        Ok(Self {
            wait: value::read(&source("wait"), said.wait.as_deref(), value::wait)?,
            ttl: value::read(&source("ttl"), said.ttl.as_deref(), value::lease)?,
            max_age: value::read(&source("max_age"), said.max_age.as_deref(), value::lease)?,
            mode: (said.slots().map(Mode::Slots)).or(is_shared.then_some(Mode::Shared)),
            group: value::read(&source("group"), said.group.as_deref(), value::group)?,
            queue: value::read(&source("queue"), said.queue.as_deref(), queue)?,
            cancel_in_progress: said.cancel_in_progress == Some(true),
            grace,
            term_after,
            signal: value::read(&source("signal"), said.signal.as_deref(), value::signal)?,
            max_runtime: read_limit.zip(limit),
            on_lost: value::read(&source("on_lost"), said.on_lost.as_deref(), on_lost)?,
            on_held: value::read(&source("on_held"), said.on_held.as_deref(), on_held)?,
            said,
            file,
        })
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

    /// How a run waits, and whether it asks the present holder to stop. What is typed counts for more: a file
    /// that contradicts it says nothing.
    /// The same for the lock of a group, which has no mode and no slots.
    pub(super) fn without_mode(mut self) -> Self {
        self.mode = None;
        self.said.members = None;
        self.said.slots = None;
        self
    }

    /// The group as the file names it, in its one spelling.
    pub(super) fn group_text(&self) -> Option<String> {
        self.said.group.as_deref().map(folded)
    }

    pub(super) fn line(&self, typed: &RunArgs, in_group: bool, says_wait: bool) -> (Queue, bool) {
        let single = Queue::Line(Queueing::Single);
        let cancels = typed.cancel_in_progress
            || (self.cancel_in_progress && typed.queue.is_none_or(|queue| queue == single));
        let usual = if in_group || cancels {
            Queueing::Single
        } else {
            Queueing::Fifo
        };
        let fits = |queue: &Queue| match queue {
            Queue::None => !in_group && !says_wait && !cancels,
            Queue::Line(queueing) => !cancels || *queueing == Queueing::Single,
        };
        let of_file = || self.queue.filter(fits);
        let queue = typed.queue.or_else(of_file);
        (queue.unwrap_or(Queue::Line(usual)), cancels)
    }

    /// How long the work may take to end, with its text.
    pub(super) fn grace(&self, typed: &RunArgs) -> Result<Typed<Duration>, Failure> {
        let said = typed.grace.clone().or_else(|| self.grace.clone());
        let grace = said.unwrap_or_else(|| Typed::of(GRACE, value::duration));
        grace.value("--grace")?;
        Ok(grace)
    }

    /// The signal that asks the work to end.
    pub(super) fn signal(&self, typed: &RunArgs) -> Result<Option<i32>, Failure> {
        let typed = value::given("--signal", typed.signal.as_ref())?;
        Ok(typed.or(self.signal))
    }

    /// How long the work may take, with its text.
    pub(super) fn max_runtime(
        &self,
        typed: &RunArgs,
    ) -> Result<Option<(Duration, String)>, Failure> {
        match &typed.max_runtime {
            Some(limit) => Ok(Some((limit.value("--max-runtime")?, limit.text.clone()))),
            None => Ok(self.max_runtime.clone()),
        }
    }

    pub(super) fn on_lost(&self, typed: &RunArgs) -> OnLost {
        let said = typed.on_lost.or(self.on_lost);
        said.unwrap_or(OnLost::Terminate)
    }

    /// When SIGTERM follows; what the file says of it counts as far as it is within the grace that was typed.
    pub(super) fn term_after(
        &self,
        typed: &RunArgs,
        grace: &Typed<Duration>,
    ) -> Result<Duration, Failure> {
        let time = grace.value("--grace")?;
        if let Some(after) = &typed.term_after {
            let value = after.value("--term-after")?;
            if value > time {
                return Err(Failure::bad_arguments(format!(
                    "--term-after {}: SIGTERM would come after the end of --grace {}",
                    after.text, grace.text
                )));
            }
            return Ok(value);
        }
        let said = self.term_after.as_ref();
        let said = said.map(|after| after.value("term_after")).transpose()?;
        Ok(said.filter(|said| *said <= time).unwrap_or(time * 3 / 4))
    }

    pub(super) fn reentrant(&self, typed: &RunArgs) -> bool {
        typed.reentrant || self.said.reentrant == Some(true)
    }

    pub(super) fn wait_all(&self, typed: &RunArgs) -> bool {
        typed.wait_all || self.said.wait_all == Some(true)
    }

    pub(super) fn close(&self, typed: &RunArgs) -> bool {
        typed.close || self.said.close == Some(true)
    }

    pub(super) fn rollback(&self, typed: &RunArgs) -> Option<String> {
        or_else(typed.rollback.as_ref(), self.said.rollback.as_ref())
    }

    pub(super) fn hooks(&self, typed: &RunArgs) -> Hooks {
        Hooks {
            on_supersede: or_else(typed.on_supersede.as_ref(), self.said.on_supersede.as_ref()),
            on_superseded: or_else(
                typed.on_superseded.as_ref(),
                self.said.on_superseded.as_ref(),
            ),
        }
    }

    /// Whether the file names any hook.
    #[cfg(windows)]
    pub(super) fn says_hooks(&self) -> bool {
        self.said.on_supersede.is_some() || self.said.on_superseded.is_some()
    }

    /// Refuses a run that leaves no supervisor behind, if the file wants what only a supervisor does.
    pub(super) fn refuse_exec(&self) -> Result<(), Failure> {
        let said = &self.said;
        let (what, key) = if let Some((_, limit)) = &self.max_runtime {
            ("end the work after", format!("max_runtime = {limit:?}"))
        } else if let Some(line) = &said.rollback {
            ("undo a failed command by", format!("rollback = {line:?}"))
        } else if let Some(line) = &said.on_superseded {
            ("run", format!("on_superseded = {line:?}"))
        } else if said.wait_all == Some(true) {
            (
                "wait for the rest of the work,",
                "wait_all = true".to_owned(),
            )
        } else if said.close == Some(true) {
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

fn or_else(typed: Option<&String>, said: Option<&String>) -> Option<String> {
    typed.or(said).cloned()
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
