//! Decides what a supervisor does about what happens to its command: events in, actions out.
//!
//! Nothing here sends a signal, reads a clock or touches a terminal. `driver` does that, so the table of
//! this file can be tested without a process.
//!
//! The rules:
//! - The lock is released only after the work has ended. The work is the command itself. Once an end was
//!   forced (a signal, a cancel, a lost lock, a run that takes too long), it is everything that descends
//!   from the command as well. With `wait_all` that is so in any case.
//! - Work that is asked to end gets the grace to do so; then it is killed. Unless the first signal was
//!   SIGTERM itself, SIGTERM follows it after three quarters of the grace (7.5 s and 2.5 s by default, as
//!   CI runners do).
//! - A key on the terminal is the kernel's own signal. If it reached the command's group anyway, it is
//!   not sent a second time and forces nothing: the command may well want to go on.
//! - A second SIGTERM changes nothing. A second SIGINT ends us at once, **without** releasing; the
//!   kernel frees the lock when the work is gone. What one process sends within a second is one SIGINT:
//!   timeout(1) signals its child, and then the group of its child.
//! - A rollback is watched over like the command before it, and what was asked of the command counts
//!   for it too. After a first signal a second SIGTERM changes nothing, and a second SIGINT ends us at
//!   once. A request for the lock waits until the rollback is over.
//! - Some work is nearly always over in a moment, and leaves disorder behind when it is cut short. It
//!   can be given that moment before it is asked to end.
//! - A lost lock ends the command, unless the caller wants to be warned only.
//! - A limit on the time of a run is one on the work: its rollback has none.

mod around;
#[cfg(unix)]
#[cfg_attr(not(target_os = "linux"), path = "supervise/no_cgroup.rs")]
mod cgroup;
#[cfg(unix)]
mod descendants;
#[cfg(target_os = "linux")]
pub(crate) use descendants::end_all_children;
#[cfg_attr(windows, path = "supervise/job.rs")]
mod driver;
pub(crate) mod locks;
#[cfg(target_os = "linux")]
pub(crate) mod orphan;
#[cfg(unix)]
mod remote;
#[cfg(unix)]
mod terminal;

#[cfg(windows)]
use crate::signals::numbers as libc;
use std::time::Duration;
use tenure_core::Cancel;

/// Within this time all SIGINTs of one process count as one.
const ONE_INTERRUPT: Duration = Duration::from_secs(1);

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    #[cfg_attr(
        windows,
        allow(dead_code, reason = "no process ends by a signal there")
    )]
    Signal(i32),
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// The command ended; nothing of it is left but its code.
    Ended(End),
    /// The command was stopped by this signal.
    #[cfg_attr(
        windows,
        allow(dead_code, reason = "nothing is stopped there and goes on")
    )]
    Stopped(i32),
    /// A signal arrived here. `shared` says that the command got it as well; `sender` is the process that sent it, and
    /// `None` for a key.
    Signal {
        number: i32,
        shared: bool,
        sender: Option<u32>,
    },
    /// Another caller asks the work to stop; `within` says that it has only so much more time.
    CancelRequested {
        by: Box<Cancel>,
        within: Option<Duration>,
    },
    /// The lock is lost, or may be lost after this much more time: by then nothing of the work may be
    /// left.
    Lost { within: Option<Duration> },
    /// A time that [`Supervision::next_time`] asked for has come.
    Time,
    /// Reported after [`Action::WatchRest`]: nothing that descends from the command runs any more.
    RestEnded,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    /// Pass this signal on to the command (to its group, where it has one of its own).
    Send(i32),
    /// Ask all of the work to end by this signal.
    Ask(i32),
    /// Stop this process as the command was stopped, and afterwards let both go on.
    StopSelf(i32),
    /// Let the command go on.
    Continue,
    /// The command itself has ended: watch what is left of it, and report its end.
    WatchRest,
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
    /// By a signal to this process, whatever the command did then. `end` says how the command ended, if
    /// it has.
    Signalled { number: i32, end: Option<End> },
    /// Because another caller asked it to stop.
    Superseded { by: Box<Cancel> },
    /// Because the lock was lost.
    Lost,
    /// Because the work took longer than allowed.
    MaxRuntime,
}

/// What a lost lock means to the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnLost {
    /// The command is ended.
    Terminate,
    /// The command goes on, and the loss is said on stderr.
    Warn,
}

/// How the work of a call is supervised, as its caller wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    /// The signal that asks the work to end, unless a signal from outside does.
    pub(crate) signal: i32,
    /// When SIGTERM follows, unless it came first.
    pub(crate) term_after: Duration,
    /// When SIGKILL follows.
    pub(crate) grace: Duration,
    /// How long work that is to end is left alone before the first signal.
    pub(crate) patience: Duration,
    /// How long the work may take.
    pub(crate) max_runtime: Option<Duration>,
    /// Whether the work is everything that descends from the command, in any case.
    pub(crate) wait_all: bool,
    pub(crate) on_lost: OnLost,
}

/// What was asked of the command before this one. A rollback goes on from there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Before {
    /// How often we were interrupted, and by which process at last.
    pub(crate) interrupts: u32,
    pub(crate) interrupted_by: Option<u32>,
    /// A signal has asked us to end.
    pub(crate) signalled: bool,
}

#[derive(Debug, Clone)]
struct EndPlan {
    verdict: Verdict,
    began: Duration,
    /// The signals that are still to be sent, each with its time after `began`.
    steps: Vec<(Duration, i32)>,
}

/// The state of one supervised command.
#[derive(Debug)]
pub(crate) struct Supervision {
    terms: Terms,
    /// Set for a rollback.
    before: Option<Before>,
    interrupts: u32,
    /// The process that sent the last interrupt, and when.
    interrupted: Option<(u32, Duration)>,
    ending: Option<EndPlan>,
    ended: Option<End>,
}

impl Supervision {
    pub(crate) fn new(terms: Terms) -> Self {
        Self {
            terms,
            before: None,
            interrupts: 0,
            interrupted: None,
            ending: None,
            ended: None,
        }
    }

    /// The supervision of a rollback, after a command that was asked this.
    #[must_use]
    pub(crate) fn after(mut self, before: Before) -> Self {
        self.interrupts = before.interrupts;
        // The second of a pair may come when the rollback has begun.
        self.interrupted = before.interrupted_by.map(|sender| (sender, Duration::ZERO));
        self.before = Some(before);
        self.terms.max_runtime = None;
        self
    }

    /// What has been asked so far.
    pub(crate) fn asked(&self) -> Before {
        let before = self.before.unwrap_or_default();
        let signalled = matches!(
            self.ending,
            Some(EndPlan {
                verdict: Verdict::Signalled { .. },
                ..
            })
        );
        Before {
            interrupts: self.interrupts,
            interrupted_by: self.interrupted.map(|(sender, _)| sender),
            signalled: before.signalled || signalled,
        }
    }

    /// When [`Event::Time`] is wanted next, measured as `now` is.
    pub(crate) fn next_time(&self) -> Option<Duration> {
        let Some(ending) = &self.ending else {
            return self.terms.max_runtime;
        };
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
                if self.is_ending() || self.terms.wait_all {
                    vec![Action::WatchRest]
                } else {
                    vec![Action::Finish(self.verdict(end))]
                }
            }
            Event::RestEnded => match self.ended {
                Some(end) => vec![Action::Finish(self.verdict(end))],
                None => Vec::new(),
            },
            Event::Stopped(number) => vec![Action::StopSelf(number)],
            Event::Signal {
                number,
                shared,
                sender,
            } => self.on_signal(number, shared, sender, now),
            // The claim that asks for the lock gets it when the rollback is over.
            Event::CancelRequested { .. } if self.before.is_some() => Vec::new(),
            Event::CancelRequested { by, within } => {
                self.end_within(Verdict::Superseded { by }, within, now)
            }
            Event::Lost { within } => match self.terms.on_lost {
                // SIGKILL comes a moment before another holder may begin.
                OnLost::Terminate => {
                    let within = within.map(|within| within.mul_f64(0.875));
                    self.end_within(Verdict::Lost, within, now)
                }
                OnLost::Warn => Vec::new(),
            },
            Event::Time => self.on_time(now),
        }
    }

    fn on_signal(
        &mut self,
        number: i32,
        shared: bool,
        sender: Option<u32>,
        now: Duration,
    ) -> Vec<Action> {
        // Keys on a shared terminal reach the command by themselves; it decides.
        if number == libc::SIGINT && !shared {
            let is_again = self.interrupted.is_some_and(|(before, at)| {
                sender == Some(before) && now.saturating_sub(at) < ONE_INTERRUPT
            });
            if is_again {
                return Vec::new();
            }
            self.interrupted = sender.map(|sender| (sender, now));
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
                let verdict = Verdict::Signalled { number, end: None };
                self.end_with(verdict, number, now)
            }
            libc::SIGCONT => vec![Action::Continue],
            _ if shared => Vec::new(),
            // No process reports that what is left of a command was stopped.
            libc::SIGTSTP if self.ended.is_some() => {
                vec![Action::Send(number), Action::StopSelf(number)]
            }
            other => vec![Action::Send(other)],
        }
    }

    fn on_time(&mut self, now: Duration) -> Vec<Action> {
        let Some(ending) = &mut self.ending else {
            return match self.terms.max_runtime {
                Some(limit) if now >= limit => self.end(Verdict::MaxRuntime, now),
                Some(_) | None => Vec::new(),
            };
        };
        let mut actions = Vec::new();
        while let Some((after, signal)) = ending.steps.first().copied() {
            if now < ending.began + after {
                break;
            }
            ending.steps.remove(0);
            actions.push(Action::Ask(signal));
        }
        actions
    }

    /// Begins an end that no signal from outside asks for.
    fn end(&mut self, verdict: Verdict, now: Duration) -> Vec<Action> {
        if self.is_ending() {
            return Vec::new();
        }
        self.end_with(verdict, self.terms.signal, now)
    }

    /// Begins such an end; nothing of the work may be left after `within`, if that is said.
    fn end_within(
        &mut self,
        verdict: Verdict,
        within: Option<Duration>,
        now: Duration,
    ) -> Vec<Action> {
        let mut actions = self.end(verdict, now);
        if let Some(within) = within {
            self.hasten(now, within);
            actions.extend(self.on_time(now));
        }
        actions
    }

    fn end_with(&mut self, verdict: Verdict, first: i32, now: Duration) -> Vec<Action> {
        let mut steps = Vec::with_capacity(3);
        let patience = self.terms.patience;
        let at_once = patience.is_zero();
        if !at_once {
            steps.push((patience, first));
        }
        if first != libc::SIGTERM && first != libc::SIGKILL {
            steps.push((patience + self.terms.term_after, libc::SIGTERM));
        }
        if first != libc::SIGKILL {
            steps.push((patience + self.terms.grace, libc::SIGKILL));
        }
        self.ending = Some(EndPlan {
            verdict,
            began: now,
            steps,
        });
        // A stopped command cannot answer, and would be killed without having been asked.
        if at_once {
            vec![Action::Ask(first), Action::Continue]
        } else {
            vec![Action::Continue]
        }
    }

    /// Moves the signals that are still to be sent forward, so that the last of them, SIGKILL, comes when `within` is over.
    fn hasten(&mut self, now: Duration, within: Duration) {
        let Some(ending) = &mut self.ending else {
            return;
        };
        let Some((last, _)) = ending.steps.last().copied() else {
            return;
        };
        let latest = (now + within).saturating_sub(ending.began);
        let passed = now.saturating_sub(ending.began);
        if last <= latest {
            return;
        }
        let share = latest.saturating_sub(passed).as_secs_f64()
            / last.saturating_sub(passed).as_secs_f64().max(f64::EPSILON);
        for (after, _) in &mut ending.steps {
            *after = passed + after.saturating_sub(passed).mul_f64(share.clamp(0.0, 1.0));
        }
    }

    fn verdict(&self, end: End) -> Verdict {
        match self.ending.as_ref().map(|ending| ending.verdict.clone()) {
            None => Verdict::Command(end),
            Some(Verdict::Signalled { number, .. }) => Verdict::Signalled {
                number,
                end: Some(end),
            },
            Some(verdict) => verdict,
        }
    }
}

// The tables have signals that only Unix has.
#[cfg(all(test, unix))]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(10);

    fn at(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    const TERMS: Terms = Terms {
        signal: libc::SIGINT,
        term_after: Duration::from_millis(7_500),
        grace: GRACE,
        patience: Duration::ZERO,
        max_runtime: None,
        wait_all: false,
        on_lost: OnLost::Terminate,
    };

    fn supervision() -> Supervision {
        Supervision::new(TERMS)
    }

    fn by(id: &str) -> Cancel {
        Cancel {
            by: id.to_owned(),
            ..Cancel::default()
        }
    }

    fn cancel(id: &str) -> Event {
        Event::CancelRequested {
            by: by(id).into(),
            within: None,
        }
    }

    fn signal(number: i32) -> Event {
        Event::Signal {
            number,
            shared: false,
            sender: None,
        }
    }

    #[test]
    fn a_command_that_ends_by_itself_is_released_with_its_own_code() {
        let mut supervision = supervision();
        assert_eq!(
            supervision.on(Event::Ended(End::Code(3)), at(1.0)),
            [Action::Finish(Verdict::Command(End::Code(3)))]
        );
    }

    #[test]
    fn a_later_request_shortens_a_grace_that_runs_and_never_extends_it() {
        let hurry = |within| Event::CancelRequested {
            by: by("other").into(),
            within: Some(at(within)),
        };
        let mut supervision = supervision();
        let _ = supervision.on(cancel("other"), at(0.0));
        assert_eq!(supervision.on(hurry(60.0), at(1.0)), []);
        assert_eq!(supervision.next_time(), Some(at(7.5)), "as before");
        assert_eq!(supervision.on(hurry(4.0), at(2.0)), []);
        let kill = [Action::Ask(libc::SIGTERM), Action::Ask(libc::SIGKILL)];
        assert_eq!(supervision.on(Event::Time, at(6.0)), kill);
        let mut supervision = self::supervision();
        let _ = supervision.on(signal(libc::SIGTERM), at(0.0));
        let killed = supervision.on(hurry(0.0), at(0.5));
        assert_eq!(
            killed,
            [Action::Ask(libc::SIGKILL)],
            "a signal began the end"
        );
        let mut supervision = self::supervision();
        let actions = supervision.on(hurry(0.0), at(0.0));
        assert_eq!(actions.last(), Some(&Action::Ask(libc::SIGKILL)));
    }

    #[test]
    fn a_cancel_asks_then_insists_then_kills_and_waits_for_the_rest() {
        let mut supervision = supervision();
        let by = || Box::new(by("other"));
        assert_eq!(
            supervision.on(cancel("other"), at(0.0)),
            [Action::Ask(libc::SIGINT), Action::Continue]
        );
        assert_eq!(supervision.next_time(), Some(at(7.5)));
        assert_eq!(supervision.on(Event::Time, at(7.4)), []);
        assert_eq!(
            supervision.on(Event::Time, at(7.5)),
            [Action::Ask(libc::SIGTERM)]
        );
        assert_eq!(
            supervision.on(Event::Time, at(10.0)),
            [Action::Ask(libc::SIGKILL)]
        );
        assert_eq!(
            supervision.on(Event::Ended(End::Signal(9)), at(10.1)),
            [Action::WatchRest],
            "a grandchild may still be at work"
        );
        assert_eq!(
            supervision.on(Event::RestEnded, at(10.2)),
            [Action::Finish(Verdict::Superseded { by: by() })]
        );
    }

    #[test]
    fn a_lease_that_runs_out_leaves_no_more_time_than_it_has_itself() {
        let mut supervision = supervision();
        let lost = |seconds| Event::Lost {
            within: Some(at(seconds)),
        };
        assert_eq!(
            supervision.on(lost(4.0), at(100.0)),
            [Action::Ask(libc::SIGINT), Action::Continue]
        );
        assert_eq!(
            supervision.on(Event::Time, at(102.7)),
            [Action::Ask(libc::SIGTERM)],
            "after three quarters of what is left"
        );
        assert_eq!(
            supervision.on(Event::Time, at(103.5)),
            [Action::Ask(libc::SIGKILL)],
            "an eighth before others may take the lock"
        );

        // An end that is under way is hastened, and never slowed down.
        for (left, killed) in [(4.0, 6.5), (60.0, 10.0)] {
            let mut supervision = Supervision::new(TERMS);
            let _ = supervision.on(signal(libc::SIGTERM), at(0.0));
            let _ = supervision.on(lost(left), at(3.0));
            assert_eq!(
                supervision.next_time(),
                Some(at(killed)),
                "{left} s are left"
            );
        }
    }

    #[test]
    fn a_patient_end_asks_nobody_who_is_over_in_time() {
        let patience = Duration::from_secs(1);
        let mut supervision = Supervision::new(Terms { patience, ..TERMS });
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
                [Action::Ask(number)]
            );
        }
    }

    #[test]
    fn a_signal_to_us_wins_over_the_commands_own_code() {
        let mut supervision = supervision();
        assert_eq!(
            supervision.on(signal(libc::SIGTERM), at(0.0)),
            [Action::Ask(libc::SIGTERM), Action::Continue]
        );
        assert_eq!(
            supervision.on(signal(libc::SIGTERM), at(0.1)),
            [],
            "a second SIGTERM is ignored"
        );
        assert_eq!(
            supervision.on(Event::Ended(End::Code(0)), at(0.2)),
            [Action::WatchRest]
        );
        assert_eq!(
            supervision.on(Event::RestEnded, at(0.3)),
            [Action::Finish(Verdict::Signalled {
                number: libc::SIGTERM,
                end: Some(End::Code(0)),
            })]
        );
    }

    #[test]
    fn a_second_interrupt_ends_us_without_releasing() {
        let mut supervision = supervision();
        let _ = supervision.on(signal(libc::SIGINT), at(0.0));
        assert_eq!(
            supervision.on(signal(libc::SIGINT), at(0.1)),
            [Action::Abandon(libc::SIGINT)]
        );
    }

    #[test]
    fn interrupts_of_one_process_within_a_second_are_one() {
        let sent = |sender| Event::Signal {
            number: libc::SIGINT,
            shared: false,
            sender: Some(sender),
        };
        let abandons = [Action::Abandon(libc::SIGINT)];
        for (sender, seconds, expected) in [
            (7, 0.0005, &[][..]),
            (7, 0.5, &[]),
            (7, 1.0, &abandons),
            (8, 0.0005, &abandons),
        ] {
            let mut supervision = supervision();
            assert_ne!(supervision.on(sent(7), at(0.0)), []);
            assert_eq!(
                supervision.on(sent(sender), at(seconds)),
                expected,
                "{sender} after {seconds}"
            );
        }
        // Also where the command has ended between the two.
        let mut before = supervision();
        assert_ne!(before.on(sent(7), at(5.0)), []);
        let mut rollback = supervision().after(before.asked());
        assert_eq!(rollback.on(sent(7), at(0.1)), []);
        assert_eq!(rollback.on(sent(8), at(0.2)), abandons);
    }

    #[test]
    fn a_key_that_the_command_got_too_is_not_sent_twice_and_forces_nothing() {
        let mut supervision = supervision();
        for _ in 0..3 {
            let key = Event::Signal {
                number: libc::SIGINT,
                shared: true,
                sender: None,
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
        let mut supervision = supervision();
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
        let mut supervision = supervision();
        assert_eq!(
            supervision.on(Event::Stopped(libc::SIGTSTP), at(0.0)),
            [Action::StopSelf(libc::SIGTSTP)]
        );
    }

    #[test]
    fn the_first_cause_of_an_end_is_the_one_that_is_told() {
        let mut supervision = supervision();
        let _ = supervision.on(Event::Lost { within: None }, at(0.0));
        let _ = supervision.on(cancel("x"), at(0.0));
        let _ = supervision.on(signal(libc::SIGTERM), at(0.0));
        let _ = supervision.on(Event::Ended(End::Code(0)), at(1.0));
        assert_eq!(
            supervision.on(Event::RestEnded, at(1.0)),
            [Action::Finish(Verdict::Lost)]
        );
    }

    #[test]
    fn a_lost_lock_ends_nothing_where_a_warning_is_wanted() {
        let mut supervision = Supervision::new(Terms {
            on_lost: OnLost::Warn,
            ..TERMS
        });
        assert_eq!(supervision.on(Event::Lost { within: None }, at(0.0)), []);
        assert!(!supervision.is_ending());
        assert_eq!(
            supervision.on(Event::Ended(End::Code(7)), at(1.0)),
            [Action::Finish(Verdict::Command(End::Code(7)))],
            "the command keeps its own result"
        );
    }

    #[test]
    fn a_rollback_is_finished_before_whoever_asks_gets_the_lock() {
        let mut rollback = supervision().after(Before::default());
        assert_eq!(rollback.on(cancel("other"), at(0.0)), []);
        assert!(!rollback.is_ending());
    }

    #[test]
    fn the_first_signal_ends_a_rollback_too() {
        let mut rollback = supervision().after(Before::default());
        assert_eq!(
            rollback.on(signal(libc::SIGTERM), at(0.0)),
            [Action::Ask(libc::SIGTERM), Action::Continue]
        );
    }

    #[test]
    fn after_a_signal_to_the_command_the_rollback_knows_it_as_the_first() {
        let mut command = supervision();
        let _ = command.on(signal(libc::SIGTERM), at(0.0));
        let mut rollback = supervision().after(command.asked());
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

        let mut command = supervision();
        let _ = command.on(signal(libc::SIGINT), at(0.0));
        let mut rollback = supervision().after(command.asked());
        assert_eq!(
            rollback.on(signal(libc::SIGINT), at(0.0)),
            [Action::Abandon(libc::SIGINT)],
            "wherever the first one came"
        );
    }

    /// What is sent, and when, until there is nothing more to send.
    fn state(terms: Terms, event: Event) -> Vec<(Duration, i32)> {
        let mut supervision = Supervision::new(terms);
        let mut now = Duration::ZERO;
        let mut actions = supervision.on(event, now);
        let mut sent = Vec::new();
        loop {
            for action in actions {
                if let Action::Ask(number) = action {
                    sent.push((now, number));
                }
            }
            match supervision.next_time() {
                Some(next) => now = next,
                None => return sent,
            }
            actions = supervision.on(Event::Time, now);
        }
    }

    #[test]
    fn what_asks_first_is_followed_by_sigterm_and_sigkill() {
        use libc::{SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGUSR1};
        let cancel = || cancel("x");
        for (first, sent) in [
            (SIGINT, vec![(0.0, SIGINT), (7.5, SIGTERM), (10.0, SIGKILL)]),
            (
                SIGUSR1,
                vec![(0.0, SIGUSR1), (7.5, SIGTERM), (10.0, SIGKILL)],
            ),
            (SIGTERM, vec![(0.0, SIGTERM), (10.0, SIGKILL)]),
            (SIGKILL, vec![(0.0, SIGKILL)]),
        ] {
            let terms = Terms {
                signal: first,
                ..TERMS
            };
            let sent: Vec<_> = sent
                .into_iter()
                .map(|(after, number)| (at(after), number))
                .collect();
            assert_eq!(state(terms, cancel()), sent, "--signal {first}");
            assert_eq!(
                state(terms, Event::Lost { within: None }),
                sent,
                "a lost lock, --signal {first}"
            );
        }
        let terms = Terms {
            signal: SIGTERM,
            ..TERMS
        };
        assert_eq!(
            state(terms, signal(SIGHUP)),
            [(at(0.0), SIGHUP), (at(7.5), SIGTERM), (at(10.0), SIGKILL)],
            "what we were sent is passed on as it is"
        );
    }

    #[test]
    fn work_that_takes_too_long_is_ended() {
        let limited = Terms {
            max_runtime: Some(at(5.0)),
            ..TERMS
        };
        let mut supervision = Supervision::new(limited);
        assert_eq!(supervision.next_time(), Some(at(5.0)));
        assert_eq!(supervision.on(Event::Time, at(4.9)), []);
        assert_eq!(
            supervision.on(Event::Time, at(5.0)),
            [Action::Ask(libc::SIGINT), Action::Continue]
        );
        assert_eq!(
            supervision.next_time(),
            Some(at(12.5)),
            "the grace begins now"
        );
        let _ = supervision.on(Event::Ended(End::Code(0)), at(6.0));
        assert_eq!(
            supervision.on(Event::RestEnded, at(6.0)),
            [Action::Finish(Verdict::MaxRuntime)]
        );

        let rollback = Supervision::new(limited).after(Before::default());
        assert_eq!(rollback.next_time(), None, "what undoes it has no limit");
    }

    #[test]
    fn a_limit_ends_nothing_that_is_being_ended_already() {
        let mut supervision = Supervision::new(Terms {
            max_runtime: Some(at(5.0)),
            ..TERMS
        });
        let _ = supervision.on(signal(libc::SIGTERM), at(4.0));
        assert_eq!(supervision.on(Event::Time, at(5.0)), []);
        let _ = supervision.on(Event::Ended(End::Code(0)), at(6.0));
        assert_eq!(
            supervision.on(Event::RestEnded, at(6.0)),
            [Action::Finish(Verdict::Signalled {
                number: libc::SIGTERM,
                end: Some(End::Code(0)),
            })]
        );
    }

    #[test]
    fn all_of_it_can_be_waited_for_and_ended_while_that_lasts() {
        let all = Terms {
            wait_all: true,
            ..TERMS
        };
        let mut supervision = Supervision::new(all);
        assert_eq!(
            supervision.on(Event::Ended(End::Code(3)), at(1.0)),
            [Action::WatchRest]
        );
        assert_eq!(
            supervision.on(signal(libc::SIGTSTP), at(2.0)),
            [Action::Send(libc::SIGTSTP), Action::StopSelf(libc::SIGTSTP)],
            "no other process would stop us"
        );
        assert_eq!(
            supervision.on(Event::RestEnded, at(9.0)),
            [Action::Finish(Verdict::Command(End::Code(3)))],
            "the code is the command's own"
        );

        let mut supervision = Supervision::new(all);
        let _ = supervision.on(Event::Ended(End::Code(0)), at(1.0));
        assert_eq!(
            supervision.on(signal(libc::SIGTERM), at(2.0)),
            [Action::Ask(libc::SIGTERM), Action::Continue]
        );
        assert_eq!(supervision.next_time(), Some(at(12.0)), "it has its grace");
        assert_eq!(
            supervision.on(Event::RestEnded, at(3.0)),
            [Action::Finish(Verdict::Signalled {
                number: libc::SIGTERM,
                end: Some(End::Code(0)),
            })]
        );
    }
}
