//! Decides what a supervisor does about what happens to its command: events in, actions out.
//!
//! Nothing here sends a signal, reads a clock or touches a terminal; `driver` does that, and the
//! table of this file can be tested without a process.
//!
//! The rules:
//! - The lock is released only after the work has ended. The work is the command itself, and once
//!   an end was forced (a signal, a cancel, a lost lock) its whole process group as well.
//! - Whoever is asked to end gets the grace to do so; then it is killed. An interrupt is followed
//!   by SIGTERM after three quarters of the grace (7.5 s and 2.5 s by default, as CI runners do).
//! - A key on the terminal (the kernel's own signal) that reached the command's group anyway is
//!   not sent a second time and forces nothing: the command may well want to go on.
//! - A second SIGTERM changes nothing. A second SIGINT ends us at once, **without** releasing; the
//!   kernel frees the lock when the work is gone.
//! - A rollback is watched over like the command before it, and what was asked of the command
//!   counts for it too: after a first signal a second SIGTERM changes nothing, and a second SIGINT
//!   ends us at once. A request for the lock waits until the rollback is over.
//! - Work that is nearly always over in a moment, and leaves disorder behind when it is cut short, can
//!   be given that moment before it is asked to end.
//! - A lost lock ends the command, unless the caller wants to be warned only.

pub(crate) mod driver;
pub(crate) mod heartbeats;
mod terminal;

use std::time::Duration;

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// The command ended; nothing of it is left but its code.
    Ended(End),
    /// The command was stopped by this signal.
    Stopped(i32),
    /// A signal arrived here. `shared` says that the command got it as well.
    Signal { number: i32, shared: bool },
    /// Another claim asks for the lock.
    CancelRequested { by: String },
    /// The lock is not ours any more.
    Lost,
    /// A time that was asked for has come.
    Time,
    /// Asked after [`Action::WatchGroup`]: whether anything of the group still runs.
    Group { alive: bool },
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Send this signal to the command (to its group, where it has one of its own).
    Send(i32),
    /// Stop this process as the command was stopped, and afterwards let both go on.
    StopSelf(i32),
    /// Let the command go on.
    Continue,
    /// See whether anything of the command's group is left, and report it.
    WatchGroup,
    /// End at once and leave the lock to the kernel.
    Abandon(i32),
    /// The work is over: release, and answer.
    Finish(Verdict),
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// As its command did.
    Command(End),
    /// By a signal to this process.
    Signalled(i32),
    /// Because another claim asked for the lock.
    Superseded { by: String },
    /// Because the lock was lost.
    Lost,
}

/// What a lost lock means to the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnLost {
    /// It is ended.
    Terminate,
    /// It goes on, and somebody is told.
    Warn,
}

/// What was asked of a command before the one that is watched now. A rollback goes on from there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Before {
    /// How often we were interrupted.
    pub(crate) interrupts: u32,
    /// A signal has asked us to end.
    pub(crate) signalled: bool,
}

#[derive(Debug, Clone)]
struct Ending {
    verdict: Verdict,
    began: Duration,
    /// What is still to be sent, each after this much of the grace.
    steps: Vec<(Duration, i32)>,
}

/// The state of one supervised command.
#[derive(Debug)]
pub(crate) struct Supervision {
    grace: Duration,
    /// The command leads a group of its own, so that all of it can be ended together.
    own_group: bool,
    on_lost: OnLost,
    /// How long nothing is sent to whoever is to end.
    patience: Duration,
    /// Set for a rollback.
    before: Option<Before>,
    interrupts: u32,
    ending: Option<Ending>,
    ended: Option<End>,
}

impl Supervision {
    pub(crate) fn new(grace: Duration, own_group: bool, on_lost: OnLost) -> Self {
        Self {
            grace,
            own_group,
            on_lost,
            patience: Duration::ZERO,
            before: None,
            interrupts: 0,
            ending: None,
            ended: None,
        }
    }

    /// The same for a command that may well be over by itself within this time.
    #[must_use]
    pub(crate) fn patient(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The same for a rollback, after a command of which this was asked.
    #[must_use]
    pub(crate) fn after(mut self, before: Before) -> Self {
        self.interrupts = before.interrupts;
        self.before = Some(before);
        self
    }

    /// What has been asked so far.
    pub(crate) fn asked(&self) -> Before {
        let before = self.before.unwrap_or_default();
        let signalled = matches!(
            self.ending,
            Some(Ending {
                verdict: Verdict::Signalled(_),
                ..
            })
        );
        Before {
            interrupts: self.interrupts,
            signalled: before.signalled || signalled,
        }
    }

    /// When [`Event::Time`] is wanted next, measured as `now` is.
    pub(crate) fn next_time(&self) -> Option<Duration> {
        let ending = self.ending.as_ref()?;
        ending.steps.first().map(|(after, _)| ending.began + *after)
    }

    /// Whether an end was forced.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// What to do after `event`, at `now` since the command began.
    #[must_use]
    pub(crate) fn on(&mut self, event: Event, now: Duration) -> Vec<Action> {
        match event {
            Event::Ended(end) => {
                self.ended = Some(end);
                if self.is_ending() && self.own_group {
                    vec![Action::WatchGroup]
                } else {
                    vec![Action::Finish(self.verdict(end))]
                }
            }
            Event::Group { alive: false } => match self.ended {
                Some(end) => vec![Action::Finish(self.verdict(end))],
                None => Vec::new(),
            },
            Event::Group { alive: true } => Vec::new(),
            Event::Stopped(number) => vec![Action::StopSelf(number)],
            Event::Signal { number, shared } => self.on_signal(number, shared, now),
            // Whoever asks for the lock gets it when the rollback is over.
            Event::CancelRequested { .. } if self.before.is_some() => Vec::new(),
            Event::CancelRequested { by } => self.end(Verdict::Superseded { by }, now),
            Event::Lost => match self.on_lost {
                OnLost::Terminate => self.end(Verdict::Lost, now),
                OnLost::Warn => Vec::new(),
            },
            Event::Time => self.on_time(now),
        }
    }

    fn on_signal(&mut self, number: i32, shared: bool, now: Duration) -> Vec<Action> {
        // Keys on a shared terminal reach the command by themselves; it decides.
        if number == libc::SIGINT && !shared {
            self.interrupts += 1;
            if self.interrupts > 1 {
                return vec![Action::Abandon(number)];
            }
        }
        match number {
            libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT => {
                if shared || self.is_ending() || self.asked().signalled {
                    return Vec::new();
                }
                self.end_with(Verdict::Signalled(number), number, now)
            }
            libc::SIGCONT => vec![Action::Continue],
            _ if shared => Vec::new(),
            other => vec![Action::Send(other)],
        }
    }

    fn on_time(&mut self, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        if let Some(ending) = &mut self.ending {
            while let Some((after, signal)) = ending.steps.first().copied() {
                if now < ending.began + after {
                    break;
                }
                ending.steps.remove(0);
                actions.push(Action::Send(signal));
            }
        }
        if self.ended.is_some() {
            actions.push(Action::WatchGroup);
        }
        actions
    }

    /// Begins an end that starts with an interrupt.
    fn end(&mut self, verdict: Verdict, now: Duration) -> Vec<Action> {
        if self.is_ending() {
            return Vec::new();
        }
        self.end_with(verdict, libc::SIGINT, now)
    }

    fn end_with(&mut self, verdict: Verdict, first: i32, now: Duration) -> Vec<Action> {
        let mut steps = Vec::with_capacity(3);
        let at_once = self.patience.is_zero();
        if !at_once {
            steps.push((self.patience, first));
        }
        if first == libc::SIGINT {
            steps.push((self.patience + self.grace * 3 / 4, libc::SIGTERM));
        }
        steps.push((self.patience + self.grace, libc::SIGKILL));
        self.ending = Some(Ending {
            verdict,
            began: now,
            steps,
        });
        // A stopped command cannot answer, and would be killed without having been asked.
        if at_once {
            vec![Action::Send(first), Action::Continue]
        } else {
            vec![Action::Continue]
        }
    }

    fn verdict(&self, end: End) -> Verdict {
        self.ending
            .as_ref()
            .map_or(Verdict::Command(end), |ending| ending.verdict.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(10);

    fn at(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    fn supervision(own_group: bool) -> Supervision {
        Supervision::new(GRACE, own_group, OnLost::Terminate)
    }

    fn signal(number: i32) -> Event {
        Event::Signal {
            number,
            shared: false,
        }
    }

    #[test]
    fn a_command_that_ends_by_itself_is_released_with_its_own_code() {
        let mut supervision = supervision(true);
        assert_eq!(
            supervision.on(Event::Ended(End::Code(3)), at(1.0)),
            [Action::Finish(Verdict::Command(End::Code(3)))]
        );
    }

    #[test]
    fn a_cancel_asks_then_insists_then_kills_and_waits_for_the_group() {
        let mut supervision = supervision(true);
        let by = || "other".to_owned();
        assert_eq!(
            supervision.on(Event::CancelRequested { by: by() }, at(0.0)),
            [Action::Send(libc::SIGINT), Action::Continue]
        );
        assert_eq!(supervision.next_time(), Some(at(7.5)));
        assert_eq!(supervision.on(Event::Time, at(7.4)), []);
        assert_eq!(
            supervision.on(Event::Time, at(7.5)),
            [Action::Send(libc::SIGTERM)]
        );
        assert_eq!(
            supervision.on(Event::Time, at(10.0)),
            [Action::Send(libc::SIGKILL)]
        );
        assert_eq!(
            supervision.on(Event::Ended(End::Signal(9)), at(10.1)),
            [Action::WatchGroup],
            "a grandchild may still be at work"
        );
        assert_eq!(supervision.on(Event::Group { alive: true }, at(10.1)), []);
        assert_eq!(
            supervision.on(Event::Group { alive: false }, at(10.2)),
            [Action::Finish(Verdict::Superseded { by: by() })]
        );
    }

    #[test]
    fn a_patient_end_asks_nobody_who_is_over_in_time() {
        let patience = Duration::from_secs(1);
        let mut supervision = supervision(false).patient(patience);
        assert_eq!(
            supervision.on(signal(libc::SIGINT), at(5.0)),
            [Action::Continue]
        );
        assert_eq!(supervision.on(Event::Time, at(5.9)), []);
        for (seconds, number) in [
            (6.0, libc::SIGINT),
            (13.5, libc::SIGTERM),
            (16.0, libc::SIGKILL),
        ] {
            assert_eq!(supervision.next_time(), Some(at(seconds)));
            assert_eq!(
                supervision.on(Event::Time, at(seconds)),
                [Action::Send(number)]
            );
        }
        assert_eq!(
            supervision.on(Event::Ended(End::Code(0)), at(16.1)),
            [Action::Finish(Verdict::Signalled(libc::SIGINT))]
        );
    }

    #[test]
    fn a_signal_to_us_wins_over_the_commands_own_code() {
        let mut supervision = supervision(false);
        assert_eq!(
            supervision.on(signal(libc::SIGTERM), at(0.0)),
            [Action::Send(libc::SIGTERM), Action::Continue]
        );
        assert_eq!(
            supervision.on(signal(libc::SIGTERM), at(0.1)),
            [],
            "a second SIGTERM is ignored"
        );
        assert_eq!(
            supervision.on(Event::Ended(End::Code(0)), at(0.2)),
            [Action::Finish(Verdict::Signalled(libc::SIGTERM))]
        );
    }

    #[test]
    fn a_second_interrupt_ends_us_without_releasing() {
        let mut supervision = supervision(true);
        let _ = supervision.on(signal(libc::SIGINT), at(0.0));
        assert_eq!(
            supervision.on(signal(libc::SIGINT), at(0.1)),
            [Action::Abandon(libc::SIGINT)]
        );
    }

    #[test]
    fn a_key_that_the_command_got_too_is_not_sent_twice_and_forces_nothing() {
        let mut supervision = supervision(false);
        for _ in 0..3 {
            let key = Event::Signal {
                number: libc::SIGINT,
                shared: true,
            };
            assert_eq!(supervision.on(key, at(0.0)), []);
        }
        assert_eq!(supervision.next_time(), None);
        assert_eq!(
            supervision.on(Event::Ended(End::Code(0)), at(60.0)),
            [Action::Finish(Verdict::Command(End::Code(0)))],
            "a command that handled the key and went on keeps its code"
        );
    }

    #[test]
    fn other_signals_are_passed_on_and_end_nothing() {
        let mut supervision = supervision(true);
        for number in [libc::SIGUSR1, libc::SIGUSR2, libc::SIGWINCH, libc::SIGTSTP] {
            assert_eq!(
                supervision.on(signal(number), at(0.0)),
                [Action::Send(number)]
            );
        }
        assert_eq!(
            supervision.on(signal(libc::SIGCONT), at(0.0)),
            [Action::Continue]
        );
        assert!(!supervision.is_ending());
    }

    #[test]
    fn a_stop_is_passed_on_to_us() {
        let mut supervision = supervision(true);
        assert_eq!(
            supervision.on(Event::Stopped(libc::SIGTSTP), at(0.0)),
            [Action::StopSelf(libc::SIGTSTP)]
        );
    }

    #[test]
    fn the_first_cause_of_an_end_is_the_one_that_is_told() {
        let mut supervision = supervision(false);
        let _ = supervision.on(Event::Lost, at(0.0));
        let _ = supervision.on(Event::CancelRequested { by: "x".into() }, at(0.0));
        let _ = supervision.on(signal(libc::SIGTERM), at(0.0));
        assert_eq!(
            supervision.on(Event::Ended(End::Code(0)), at(1.0)),
            [Action::Finish(Verdict::Lost)]
        );
    }

    #[test]
    fn a_lost_lock_ends_nothing_where_a_warning_is_wanted() {
        let mut supervision = Supervision::new(GRACE, true, OnLost::Warn);
        assert_eq!(supervision.on(Event::Lost, at(0.0)), []);
        assert!(!supervision.is_ending());
        assert_eq!(
            supervision.on(Event::Ended(End::Code(7)), at(1.0)),
            [Action::Finish(Verdict::Command(End::Code(7)))],
            "the command keeps its own result"
        );
    }

    #[test]
    fn a_rollback_is_finished_before_whoever_asks_gets_the_lock() {
        let mut rollback = supervision(true).after(Before::default());
        let by = "other".to_owned();
        assert_eq!(rollback.on(Event::CancelRequested { by }, at(0.0)), []);
        assert!(!rollback.is_ending());
    }

    #[test]
    fn the_first_signal_ends_a_rollback_too() {
        let mut rollback = supervision(true).after(Before::default());
        assert_eq!(
            rollback.on(signal(libc::SIGTERM), at(0.0)),
            [Action::Send(libc::SIGTERM), Action::Continue]
        );
    }

    #[test]
    fn after_a_signal_to_the_command_the_rollback_knows_it_as_the_first() {
        let mut command = supervision(false);
        let _ = command.on(signal(libc::SIGTERM), at(0.0));
        let mut rollback = supervision(true).after(command.asked());
        assert_eq!(rollback.on(signal(libc::SIGTERM), at(0.0)), []);
        assert_eq!(
            rollback.on(signal(libc::SIGINT), at(0.0)),
            [],
            "the first interrupt"
        );
        assert_eq!(
            rollback.on(signal(libc::SIGINT), at(0.0)),
            [Action::Abandon(libc::SIGINT)],
            "the second one ends us at once"
        );

        let mut command = supervision(false);
        let _ = command.on(signal(libc::SIGINT), at(0.0));
        let mut rollback = supervision(true).after(command.asked());
        assert_eq!(
            rollback.on(signal(libc::SIGINT), at(0.0)),
            [Action::Abandon(libc::SIGINT)],
            "wherever the first one came"
        );
    }
}
