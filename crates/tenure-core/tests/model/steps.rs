//! The steps that are possible in a state: for each contender the next one of the file store's
//! protocol, and what may befall it there.

use super::transitions::admits;
use super::{At, Command, Purpose, Step, World};
use crate::scenario::{Closes, Defect, Job, Place, Scenario, Stops};
use tenure_core::{Attempt, Claim, Effect, Input, Predecessor, TryGrant};

impl World {
    /// Every state that one step leads to.
    pub(crate) fn successors(&self, scenario: &Scenario) -> Vec<(Step, Self)> {
        let mut next = Successors {
            world: self,
            scenario,
            out: Vec::with_capacity(8),
        };
        for who in 0..self.people.len() {
            next.of(who);
        }
        if self.reading + 1 < scenario.clock.len() {
            next.step(usize::from(u8::MAX), "time passes", true, |world| {
                world.reading += 1;
            });
        }
        next.out
    }
}

/// Collects the steps that are possible in one state.
struct Successors<'a> {
    world: &'a World,
    scenario: &'a Scenario,
    out: Vec<(Step, World)>,
}

impl Successors<'_> {
    fn step(&mut self, who: usize, what: &'static str, certain: bool, f: impl FnOnce(&mut World)) {
        let mut world = self.world.clone();
        f(&mut world);
        let who = u8::try_from(who).expect("a handful of contenders");
        self.out.push((Step { who, what, certain }, world));
    }

    fn of(&mut self, who: usize) {
        let person = &self.world.people[who];
        let script = self.scenario.scripts[who];
        let bit = 1u8 << who;
        if person.alive {
            if person.stopped {
                if script.stops == Stops::ForAWhile {
                    self.step(who, "goes on", true, |world| {
                        world.people[who].stopped = false;
                    });
                }
            } else {
                self.process(who);
            }
            self.stop(who);
            if self.world.crashes > 0 && !matches!(person.at, At::Start | At::Done) {
                let scenario = self.scenario;
                self.step(who, "crashes", false, |world| world.crash(scenario, who));
            }
        }
        if person.command == Command::Gated && !person.alive {
            self.step(who, "its command ends without beginning", true, |world| {
                world.end_command(who);
            });
        }
        if person.command == Command::Running {
            if !script.endless {
                self.step(who, "its command ends", true, |world| {
                    world.end_command(who);
                });
            }
            let named = || {
                let claim = person.ticket.and_then(|t| self.world.disk.claim(t));
                claim.is_some_and(|claim| claim.holder.command.is_some())
            };
            let inherited = self.world.bytes.iter().any(|b| b.commands & bit != 0);
            let may_close = match script.closes {
                Closes::Never => false,
                Closes::OnceNamed => named(),
                Closes::Anytime => true,
            };
            if inherited && may_close {
                self.step(
                    who,
                    "its command closes the inherited liveness lock",
                    false,
                    |world| world.let_go_everywhere(|byte| byte.commands &= !bit),
                );
            }
        }
        if matches!(person.at, At::Away) && script.place == Place::Kept {
            self.step(who, "comes back to its place", true, |world| {
                let person = &mut world.people[who];
                person.alive = true;
                person.ticket = None;
                person.returned = true;
                person.returning = true;
                person.at = At::Guard(Purpose::Enter);
            });
        }
        if script.job == Job::Detached {
            if script.mortal_owner
                && person.owner_alive
                && !matches!(person.at, At::Start | At::Done)
            {
                self.step(who, "its owner dies", false, |world| {
                    let person = &mut world.people[who];
                    person.owner_alive = false;
                    person.inside = false;
                });
            }
            if matches!(person.at, At::Holding) && !person.alive {
                if !person.owner_alive {
                    self.step(who, "is history", true, |world| {
                        world.people[who].at = At::Done;
                    });
                } else if !script.endless {
                    self.step(who, "releases by request id", true, |world| {
                        let person = &mut world.people[who];
                        person.alive = true;
                        person.inside = false;
                        person.at = At::Guard(Purpose::ReleaseById);
                    });
                }
            }
        }
    }

    fn process(&mut self, who: usize) {
        let scenario = self.scenario;
        let person = &self.world.people[who];
        let script = scenario.scripts[who];
        match &person.at {
            At::Start => self.step(who, "starts", true, |world| {
                let purpose = match script.job {
                    Job::Clean => Purpose::Clean,
                    Job::Run | Job::Detached => match Attempt::start() {
                        (_, Effect::Enter) => Purpose::Enter,
                        (_, other) => panic!("an attempt begins with {other:?}"),
                    },
                };
                world.people[who].at = At::Guard(purpose);
            }),
            At::Guard(purpose) => self.guard(who, *purpose),
            At::Read(purpose) => {
                let purpose = *purpose;
                self.step(who, decide_label(purpose), true, |world| {
                    world.decide(scenario, who, purpose);
                });
            }
            // A waiter that slept on the byte of a kept place has it for an instant; the store tries again.
            At::TakesLiveness(_) if person.returned && self.world.is_taken_by_others(who) => {}
            At::TakesLiveness(plan) => self.step(who, "takes its liveness lock", true, |world| {
                world.take_liveness_lock(scenario, who, plan);
                world.people[who].at = if scenario.has(Defect::TakesLivenessAfterCommit) {
                    At::Unlock(plan.clone())
                } else if scenario.has(Defect::TakesLivenessAfterUnlock) {
                    world.after(scenario, who, plan.as_ref().clone());
                    return;
                } else if scenario.has(Defect::UnlocksBeforeCommit) {
                    At::Unlock(plan.clone())
                } else {
                    At::Commit(plan.clone())
                };
            }),
            At::Commit(plan) => self.step(who, "commits", true, |world| {
                if scenario.is_compared() {
                    world.compare_and_commit(scenario, who, plan);
                } else {
                    world.commit(scenario, who, plan);
                }
            }),
            At::Unlock(plan) => self.step(who, "unlocks the guard", true, |world| {
                if world.guard == u8::try_from(who).ok() {
                    world.guard = None;
                }
                if scenario.has(Defect::TakesLivenessAfterUnlock) && admits(plan) {
                    world.people[who].at = At::TakesLiveness(plan.clone());
                } else if scenario.has(Defect::UnlocksBeforeCommit) && plan.changed {
                    world.people[who].at = At::Commit(plan.clone());
                } else {
                    world.after(scenario, who, plan.as_ref().clone());
                }
            }),
            At::FallAsleep(behind) => self.step(who, "falls asleep", true, |world| {
                let changed = match behind {
                    Predecessor::Record(claim) => world.disk.claim(claim.ticket) != Some(claim),
                    Predecessor::AnyOf(claims) => claims
                        .iter()
                        .any(|claim| world.disk.claim(claim.ticket) != Some(claim)),
                    Predecessor::LivenessLock { .. }
                    | Predecessor::Turn { .. }
                    | Predecessor::Still { .. } => false,
                };
                world.people[who].at = if changed && scenario.has(Defect::NoticesOnlyNewChanges) {
                    At::Deaf
                } else {
                    At::Sleep(behind.clone())
                };
            }),
            At::Sleep(behind) => self.sleep(who, behind),
            At::LetGo => self.step(who, "lets go of that byte", true, |world| {
                if !scenario.has(Defect::KeepsThePredecessorsByte) {
                    let bit = 1u8 << who;
                    world.let_go_everywhere(|byte| byte.wakers &= !bit);
                }
                if scenario.has(Defect::GivesItsTurnBeforeLooking) {
                    world.give_turn(who);
                }
                world.feed(scenario, who, Input::Woken);
            }),
            At::GiveTurn(token) => {
                let token = *token;
                self.step(who, "lets go of its turn", true, |world| {
                    world.give_turn(who);
                    world.feed(scenario, who, Input::Tried(TryGrant::Granted { token }));
                });
            }
            At::Section => self.section(who),
            At::Working => self.working(who),
            At::PutOut => self.put_out(who),
            At::Exit => self.step(who, "exits, its owner lives on", true, |world| {
                let bit = 1u8 << who;
                world.let_go_everywhere(|byte| byte.renewers &= !bit);
                world.people[who].alive = false;
                world.people[who].at = At::Holding;
            }),
            At::Deaf | At::Holding | At::Away | At::Done => {}
        }
    }

    /// A waiter may be stopped wherever it stands, except in the middle of a change that it makes under the
    /// guard: no other process changes anything then.
    fn stop(&mut self, who: usize) {
        let (world, scenario) = (self.world, self.scenario);
        let (person, script) = (&world.people[who], &scenario.scripts[who]);
        let is_waiting = matches!(
            person.at,
            At::FallAsleep(_) | At::Sleep(_) | At::LetGo | At::Guard(Purpose::Look)
        ) || is_between(&person.at, scenario);
        if script.stops != Stops::Never && !person.was_stopped && is_waiting {
            self.step(who, "is stopped", false, |world| {
                world.people[who].stopped = true;
                world.people[who].was_stopped = true;
            });
        }
    }

    fn put_out(&mut self, who: usize) {
        let scenario = self.scenario;
        self.step(who, "releases its liveness lock", true, |world| {
            let person = &world.people[who];
            let gave_up = person.giving_up.is_some();
            let stays_held = (gave_up && scenario.has(Defect::GivesUpWithItsLivenessLockHeld))
                || (person.reserved && scenario.has(Defect::ReservesWithItsLivenessLockHeld));
            if !stays_held {
                world.put_out(who);
            }
            if gave_up {
                world.feed(scenario, who, Input::Left);
            } else if scenario.has(Defect::PutsOutBeforeLeaving)
                || scenario.has(Defect::PutsOutBeforeLeavingAndWakesWithAStaleList)
            {
                world.people[who].at = At::Guard(Purpose::Release);
            } else {
                world.end_round(scenario, who);
            }
        });
    }

    fn guard(&mut self, who: usize, purpose: Purpose) {
        let scenario = self.scenario;
        if scenario.is_compared() {
            self.step(who, decide_label(purpose), true, |world| {
                world.decide(scenario, who, purpose);
            });
            return;
        }
        let without = match purpose {
            Purpose::Look => self.scenario.has(Defect::LooksWithoutTheGuard),
            _ => false,
        };
        if without || self.world.guard.is_none() {
            self.step(who, "locks the guard", true, |world| {
                if !without {
                    world.guard = u8::try_from(who).ok();
                }
                world.people[who].at = At::Read(purpose);
            });
        }
    }

    fn sleep(&mut self, who: usize, behind: &Predecessor) {
        let (world, scenario) = (self.world, self.scenario);
        let person = &world.people[who];
        if world.wakes(scenario, &world.disk, behind) {
            if let (Predecessor::LivenessLock { ticket }, false) = (behind, scenario.is_compared())
            {
                self.step(who, "is handed the byte before it", true, |world| {
                    let bit = 1u8 << who;
                    world.keep(*ticket, |byte| {
                        if scenario.has(Defect::KeepsThePredecessorsByte) {
                            byte.renewers |= bit;
                        } else {
                            byte.wakers |= bit;
                        }
                    });
                    world.people[who].at = At::LetGo;
                });
            } else {
                self.step(who, "wakes up", true, |world| {
                    if scenario.has(Defect::GivesItsTurnBeforeLooking) {
                        world.give_turn(who);
                    }
                    world.feed(scenario, who, Input::Woken);
                });
            }
        }
        // From time to time a waiter looks by itself. Only where that changes something, it is a step.
        let own = person.ticket.unwrap_or(0);
        let live = |claim: &Claim| world.judged_held(scenario, claim);
        let passes = |claim: &Claim| live(claim) && !world.lets_pass(scenario, claim);
        let mode = scenario.scripts[who].mode;
        if world.people.iter().any(|person| person.stopped)
            && !World::could_hold(&world.disk, own, mode, live)
            && World::could_hold(&world.disk, own, mode, passes)
            && !world.wakes(scenario, &world.disk, behind)
            && !scenario.has(Defect::WaitsForTheStopped)
        {
            self.step(who, "looks by itself", true, |world| {
                world.feed(scenario, who, Input::Woken);
            });
        }
        let hears = !scenario.has(Defect::SleepsThroughRequestsToStop);
        if hears && person.ticket.is_some_and(|t| world.disk.is_cancelled(t)) {
            self.step(who, "is woken by a request to stop", true, |world| {
                world.feed(scenario, who, Input::Woken);
            });
        }
        if scenario.scripts[who].gives_up {
            self.step(who, "gives up", false, |world| {
                world.feed(scenario, who, Input::Expired);
            });
        }
    }

    fn section(&mut self, who: usize) {
        let scenario = self.scenario;
        let person = &self.world.people[who];
        let ticket = person.ticket.expect("a holder has a ticket");
        if self.world.disk.is_cancelled(ticket) {
            self.step(who, "was asked to stop before it began", true, |world| {
                world.begin_release(scenario, who);
            });
            return;
        }
        self.step(who, "starts its command", true, |world| {
            world.people[who].command = if scenario.gated {
                Command::Gated
            } else {
                Command::Running
            };
            if !scenario.has(Defect::LivenessLockIsNotInherited) {
                world.keep(ticket, |byte| byte.commands |= 1u8 << who);
            }
            world.people[who].at = At::Guard(Purpose::Name);
        });
    }

    fn working(&mut self, who: usize) {
        let scenario = self.scenario;
        let script = scenario.scripts[who];
        let person = &self.world.people[who];
        let ticket = person.ticket.expect("a holder has a ticket");
        let running = person.command == Command::Running;
        if person.command == Command::Gated {
            self.step(who, "lets its command begin, or not", true, |world| {
                if world.people[who].asked {
                    world.end_command(who);
                } else {
                    world.people[who].command = Command::Running;
                }
            });
            return;
        }
        if !running || scenario.has(Defect::ReleasesBeforeTheWorkEnds) {
            self.step(who, "begins its release", true, |world| {
                world.begin_release(scenario, who);
            });
        }
        if running && !person.asked && self.world.disk.is_cancelled(ticket) {
            self.step(who, "sees a request to stop", true, |world| {
                world.people[who].asked = true;
            });
        }
        if running && person.asked {
            self.step(who, "ends its command", true, |world| {
                world.end_command(who);
            });
        }
        if script.renews && !person.renewed && running {
            self.step(who, "wants to renew", true, |world| {
                world.people[who].renewed = true;
                world.people[who].at = At::Guard(Purpose::Renew);
                if scenario.has(Defect::RenewsWithoutTheGuard) {
                    world.people[who].seen = Some(world.disk.clone());
                }
            });
        }
    }
}

/// Whether a waiter has read the list and not written it yet, and others may write meanwhile.
fn is_between(at: &At, scenario: &Scenario) -> bool {
    let looks = matches!(at, At::Commit(plan) if plan.purpose == Purpose::Look);
    looks && scenario.is_compared()
}

fn decide_label(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Enter => "reads and decides to enter",
        Purpose::Look => "reads and looks whether it holds",
        Purpose::Leave => "reads and withdraws its claim",
        Purpose::Reserve => "reads and keeps its place",
        Purpose::Name => "reads and names its command",
        Purpose::Renew => "reads and renews",
        Purpose::Release => "reads and releases",
        Purpose::ReleaseById => "reads and releases by its id",
        Purpose::Clean => "reads and sweeps",
    }
}
