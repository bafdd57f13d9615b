//! The holds of the program: how they are looked after, what it is told of them, and how they are given back.

use super::calls::{self, Adopting, Part, Seen};
use super::frames::{self, Adopt, Id};
use super::output::About;
use super::{Event, Serve, Whose, abandoned, already_held, is_same_place};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::holds;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tenure_core::LockName;
use tenure_engine::clock::{Clock, instant};
use tenure_engine::inherited::AROUND;
use tenure_engine::keep::{Ask, Life, Loss, Step};
use tenure_engine::os::{self, Descriptor};

/// How long a hold lasts before its file is watched, and how many are watched by one watch each.
pub(super) const SETTLE: Duration = Duration::from_millis(20);
const WATCHES_MAX: usize = 16;
/// How often a hold is looked at, and with N holds at most once in N times the share; in milliseconds.
const LOOK_MS: u64 = 1_000;
const LOOK_SHARE_MS: u64 = 2;
/// How often a release that failed is tried again.
pub(super) const AGAIN: Duration = Duration::from_secs(1);

/// An adoption that has no answer yet.
pub(super) struct Adoption {
    id: Id,
    /// The folder and the request id.
    key: (String, String),
    /// Other requests for the same hold.
    followers: Vec<(Id, Adopt)>,
}

/// A hold of the program.
pub(super) struct Kept {
    pub(super) caller: Option<String>,
    pub(super) parts: Vec<(Arc<Part>, Life)>,
    pub(super) began: Instant,
    pub(super) watches: Vec<Descriptor>,
    /// It may be watched, and was not yet.
    pub(super) settles: bool,
    /// The program was told that it is lost.
    pub(super) is_lost: bool,
    pub(super) was_asked_to_stop: bool,
    /// It is being given back; these requests want to know.
    pub(super) releasing: Option<Vec<Id>>,
}

impl Kept {
    /// How long others leave it alone, if no renewal succeeds before; `None` for as long as the program lives.
    pub(super) fn good_for_ms(&self) -> Option<u64> {
        let left = self
            .parts
            .iter()
            .filter_map(|(part, life)| life.good_for_ms(part.session.clock.now().boot_ms));
        left.min()
    }

    /// Watches its files, where the store tells of changes. A record that is renewed is another file, so it is
    /// looked at from time to time instead.
    fn watch(&mut self) {
        for (part, _) in &self.parts {
            let store = &part.session.store;
            if store.is_remote() || store.publishes() {
                continue;
            }
            let notices = store.notices(&*part.handle);
            self.watches
                .extend(notices.map(|notices| notices.descriptor));
        }
    }
}

impl Serve {
    /// Takes over a hold of the program, if this process does not keep it already.
    pub(super) fn adopt(&mut self, id: &Id, adopt: Adopt) -> Result<(), Failure> {
        let (place, groups, names) = self.usual.known(&adopt.place(), &adopt.locks)?;
        let adopting = Adopting {
            session: self.session(place, false)?,
            group_session: self.session(groups, true)?,
            request_id: adopt.request_id.clone(),
            token: adopt.token,
            locks: adopt.locks.iter().cloned().zip(names).collect(),
            owner: self.parent.process,
        };
        if let Some(hold) = self.known(&adopting)? {
            let granted = self.granted(hold);
            self.answer(id, granted.ok_or_else(|| no_hold(hold)));
            return Ok(());
        }
        let key = (
            adopting.session.place.folder.display().to_string(),
            adopt.request_id.clone(),
        );
        // A second request for the same hold learns what the first one comes to.
        if let Some(first) = self.adopting.iter_mut().find(|first| first.key == key) {
            first.followers.push((id.clone(), adopt));
            return Ok(());
        }
        let (own, caller) = (id.clone(), adopt.caller);
        self.run(move || Event::Adopted {
            id: own,
            caller,
            adopted: calls::adopt(&adopting),
        });
        self.adopting.push(Adoption {
            id: id.clone(),
            key,
            followers: Vec::new(),
        });
        Ok(())
    }

    /// What an adoption came to.
    pub(super) fn adopted(
        &mut self,
        id: &Id,
        caller: Option<String>,
        adopted: Result<Vec<(Part, Life)>, Failure>,
    ) {
        let index = self.adopting.iter().position(|first| first.id == *id);
        let followers = index.map(|index| self.adopting.swap_remove(index).followers);
        match adopted {
            // The program closed our stdin meanwhile, which ends its holds.
            Ok(parts) if self.is_over => {
                let parts = parts.into_iter().map(|(part, _)| Arc::new(part));
                self.give(Whose::Unwanted(id.clone(), Vec::new()), parts.collect());
            }
            adopted => {
                let adopted = adopted.map(|parts| self.keep(caller, parts));
                self.answer(id, adopted);
            }
        }
        for (follower, adopt) in followers.into_iter().flatten() {
            let begun = if self.is_ending {
                Err(abandoned())
            } else {
                self.adopt(&follower, adopt)
            };
            if let Err(failure) = begun {
                self.answer(&follower, Err(failure));
            }
        }
    }

    /// The hold that this process keeps already.
    fn known(&self, adopting: &Adopting) -> Result<Option<u64>, Failure> {
        let is_meant = |part: &Part| {
            (is_same_place(part.session, adopting.session)
                || is_same_place(part.session, adopting.group_session))
                && part.session.format.shows(&part.claim, &adopting.request_id)
        };
        for (hold, kept) in &self.holds {
            let mut meant = kept.parts.iter().map(|(part, _)| part);
            let Some(first) = meant.find(|part| is_meant(part)) else {
                continue;
            };
            let stands = |name: &LockName, token: Option<u64>| {
                let mut parts = kept.parts.iter().map(|(part, _)| part);
                parts.any(|part| {
                    part.name() == name && token.is_none_or(|token| part.claim.token == Some(token))
                })
            };
            let mut tokens = kept.parts.iter().map(|(part, _)| part.claim.token);
            let is_same = if adopting.locks.is_empty() {
                adopting.token.is_none() || tokens.any(|token| token == adopting.token)
            } else {
                let mut locks = adopting.locks.iter();
                locks.all(|(known, name)| stands(name, adopting.token_of(known)))
            };
            if !is_same {
                let names = |name| kept.parts.iter().any(|(part, _)| part.name() == name);
                if adopting.locks.iter().any(|(_, name)| names(name)) {
                    return Err(already_held(
                        first,
                        "this serve keeps it for the program already",
                    ));
                }
                continue;
            }
            if kept.releasing.is_some() {
                return Err(already_held(first, "this serve is giving it back"));
            }
            if kept.is_lost {
                return Err(lost(kept));
            }
            return Ok(Some(*hold));
        }
        Ok(None)
    }

    /// Keeps a hold; answers with what the client is told of it.
    pub(super) fn keep(&mut self, caller: Option<String>, parts: Vec<(Part, Life)>) -> Value {
        let (hold, now) = (self.next_hold, instant());
        self.next_hold += 1;
        let parts = parts.into_iter();
        let parts: Vec<_> = parts
            .map(|(part, mut life)| {
                life.look_at(Some(part.session.clock.now().boot_ms + LOOK_MS));
                (Arc::new(part), life)
            })
            .collect();
        let kept = Kept {
            caller,
            parts,
            began: now,
            watches: Vec::new(),
            settles: true,
            is_lost: false,
            was_asked_to_stop: false,
            releasing: None,
        };
        self.holds.insert(hold, kept);
        self.granted(hold).unwrap_or_default()
    }

    /// What the client is told of a hold that it was granted.
    fn granted(&self, hold: u64) -> Option<Value> {
        let kept = self.holds.get(&hold)?;
        let parts = &kept.parts;
        let mut env = serde_json::Map::new();
        let mut held = holds::inherited_value().to_owned();
        for (part, _) in parts {
            let (token, folder) = (
                part.claim.token.unwrap_or_default(),
                &part.session.place.folder,
            );
            holds::extend(&mut held, token, folder, part.name());
        }
        // The parts have one place, and any of them proves that the program still holds.
        if let Some((last, _)) = parts.last() {
            let (session, token) = (&last.session, last.claim.token.unwrap_or_default());
            let hold = Some((last.name(), token));
            let around = session.place.handed_down(&session.identity, hold);
            env.insert(AROUND.to_owned(), around.value().into());
        }
        env.insert(holds::VARIABLE.to_owned(), held.into());
        let first = parts.first().map(|(part, _)| part);
        let request_id = first.map(|part| part.claim.holder.request_id.as_str().to_owned());
        let locks: Vec<Value> = parts.iter().map(|(part, _)| part.json()).collect();
        Some(json!({
            "hold": hold,
            "request_id": request_id,
            "locks": locks,
            "good_for_ms": kept.good_for_ms(),
            "env": env,
        }))
    }

    /// Gives the locks of a hold back.
    pub(super) fn give_back(&mut self, hold: u64) {
        if let Some(kept) = self.holds.get(&hold) {
            let parts = kept.parts.iter().map(|(part, _)| Arc::clone(part));
            let parts = parts.collect();
            self.give(Whose::Hold(hold), parts);
        }
    }

    /// Has a thread give locks back, the last one first.
    pub(super) fn give(&mut self, whose: Whose, mut parts: Vec<Arc<Part>>) {
        parts.reverse();
        self.giving += 1;
        let teller = self.teller.clone();
        self.crew.run_first(Box::new(move || {
            let results = parts
                .iter()
                .map(|part| calls::give_back(part))
                .collect::<Vec<_>>();
            let all = parts.into_iter().zip(&results);
            let left = all
                .filter(|(_, result)| result.is_err())
                .map(|(part, _)| part);
            let left = left.collect();
            teller.tell(Event::GivenBack {
                whose,
                results,
                left,
            });
        }));
    }

    pub(super) fn given_back(
        &mut self,
        whose: Whose,
        results: Vec<Result<bool, Failure>>,
        left: Vec<Arc<Part>>,
    ) {
        self.giving = self.giving.saturating_sub(1);
        if !left.is_empty() {
            self.left.extend(left);
            self.again = instant() + AGAIN;
        }
        match whose {
            Whose::Left => {}
            Whose::Unwanted(id, abandons) => self.refuse(&id, &abandons, abandoned()),
            Whose::Hold(hold) => {
                let Some(kept) = self.holds.remove(&hold) else {
                    return;
                };
                self.output.forget(&About::Hold(hold));
                let were_ours = results.iter().all(|result| !matches!(result, Ok(false)));
                let failure = results.into_iter().find_map(Result::err);
                let result = match failure {
                    Some(failure) => Err(failure),
                    None if kept.is_lost || !were_ours => Err(lost(&kept)),
                    None => Ok(json!({ "released": true })),
                };
                for id in kept.releasing.into_iter().flatten() {
                    self.answer(&id, result.clone());
                }
            }
        }
    }

    /// Has a thread ask about the locks of a hold, for the program or because it is due.
    pub(super) fn look(&mut self, hold: u64, ask: Ask, asked: Option<Id>) {
        let Some(kept) = self.holds.get_mut(&hold) else {
            return;
        };
        let mut parts = Vec::with_capacity(kept.parts.len());
        for (index, (part, life)) in kept.parts.iter_mut().enumerate() {
            let is_under_way = match ask {
                Ask::Renew => life.is_renewing(),
                // What the program wants to know is asked in any case.
                Ask::Look => asked.is_none() && !life.may_look(),
            };
            if !is_under_way {
                life.begin(ask, part.session.clock.now().boot_ms);
                parts.push((index, Arc::clone(part)));
            }
        }
        let looking = move || Event::Seen {
            hold,
            seen: (parts.iter())
                .map(|(index, part)| (*index, calls::look(part, ask)))
                .collect(),
            ask,
            asked,
        };
        match ask {
            Ask::Renew => {
                let teller = self.teller.clone();
                self.crew
                    .run_first(Box::new(move || teller.tell(looking())));
            }
            Ask::Look => self.run(looking),
        }
    }

    /// What follows from a look at a hold.
    pub(super) fn seen(
        &mut self,
        hold: u64,
        seen: Vec<(usize, Seen)>,
        ask: Ask,
        asked: Option<Id>,
    ) {
        let share_ms = LOOK_SHARE_MS * u64::try_from(self.holds.len()).unwrap_or(u64::MAX);
        let Some(kept) = self.holds.get_mut(&hold) else {
            // It was given back meanwhile.
            if let Some(id) = asked {
                self.answer(&id, Err(no_hold(hold)));
            }
            return;
        };
        let (mut why, mut by, mut failure, mut notes) = (None, None, None, Vec::new());
        for (index, seen) in seen {
            let Some((part, life)) = kept.parts.get_mut(index) else {
                continue;
            };
            let now_ms = part.session.clock.now().boot_ms;
            let news = life.answered(ask, &seen.renewal, now_ms);
            life.look_at(Some(now_ms + LOOK_MS.max(share_ms)));
            by = by.or(seen.asked_by);
            why = why.or(news.lost.as_ref().map(reason));
            if let Err(error) = seen.renewal {
                if let Some(failed) = news.failed.filter(|failed| failed.is_event) {
                    notes.push((Arc::clone(part), failed.consecutive, error.to_string()));
                }
                failure = Some(part.session.store_failed(part.name(), error));
            }
        }
        let was_lost = kept.is_lost;
        let is_releasing = kept.releasing.is_some();
        if let Some(why) = why {
            self.lose(hold, why);
        }
        let Some(kept) = self.holds.get_mut(&hold) else {
            return;
        };
        if let Some(by) = by
            && !kept.is_lost
            && !is_releasing
            && !std::mem::replace(&mut kept.was_asked_to_stop, true)
        {
            let params = json!({ "hold": hold, "by": by });
            self.output
                .say(&frames::notification("stop_requested", &params));
        }
        let Some(kept) = self.holds.get(&hold) else {
            return;
        };
        let good_for_ms = kept.good_for_ms();
        if let Some(id) = asked {
            let result = match failure {
                _ if kept.is_lost => Err(lost(kept)),
                Some(failure) => Err(failure),
                None => Ok(json!({ "hold": hold, "good_for_ms": good_for_ms })),
            };
            self.answer(&id, result);
        } else if ask == Ask::Renew
            && failure.is_none()
            && !was_lost
            && !is_releasing
            && why.is_none()
        {
            let params = json!({ "hold": hold, "good_for_ms": good_for_ms });
            let frame = frames::notification("renewed", &params);
            self.output.update(About::Hold(hold), frame);
        }
        for (part, consecutive, error) in notes {
            let noting = Box::new(move || calls::note_failure(&part, consecutive, &error));
            self.crew.run(noting);
        }
    }

    /// Tells the client that it cannot rely on a hold any more, once. The claim stays until the client gives it
    /// back: while its work goes on, it keeps others out as well as it still can.
    pub(super) fn lose(&mut self, hold: u64, reason: &str) {
        let Some(kept) = self.holds.get_mut(&hold) else {
            return;
        };
        // While it is given back, a look may find it gone because of that very release, whose own answer counts.
        if kept.releasing.is_some() || std::mem::replace(&mut kept.is_lost, true) {
            return;
        }
        kept.watches.clear();
        self.output.forget(&About::Hold(hold));
        let params = json!({ "hold": hold, "reason": reason });
        self.output.say(&frames::notification("lost", &params));
    }

    /// Does what is due.
    pub(super) fn keep_time(&mut self) {
        let now = instant();
        let watched = self.holds.values().filter(|kept| !kept.watches.is_empty());
        let mut room = WATCHES_MAX.saturating_sub(watched.count());
        let (mut late, mut looks) = (Vec::new(), Vec::new());
        for (hold, kept) in &mut self.holds {
            if kept.releasing.is_some() {
                continue;
            }
            let mut was_touched = false;
            for watch in &kept.watches {
                was_touched |= os::read_all(watch) != os::Told::Nothing;
            }
            if kept.settles && now >= kept.began + SETTLE {
                kept.settles = false;
                if room > 0 && !kept.is_lost {
                    room -= 1;
                    kept.watch();
                    was_touched = true;
                }
            }
            let mut asks: Option<Ask> = None;
            for (part, life) in &mut kept.parts {
                let now_ms = part.session.clock.now().boot_ms;
                if was_touched {
                    life.look_at(Some(now_ms));
                }
                // Also after this process was stopped: before anything else is said of the hold.
                if !kept.is_lost && life.has_lapsed(now_ms) {
                    late.push(*hold);
                }
                match life.due(now_ms) {
                    Step::Nothing => {}
                    // A renewal of one renews all, and is a look at all.
                    Step::Ask(ask) => asks = asks.filter(|asks| *asks == Ask::Renew).or(Some(ask)),
                    Step::Unanswered => {
                        if life.unanswered(now_ms).lost.is_some() {
                            late.push(*hold);
                        }
                    }
                }
            }
            if let Some(ask) = asks.filter(|ask| *ask == Ask::Renew || !kept.is_lost) {
                looks.push((*hold, ask));
            }
        }
        for hold in late {
            self.lose(hold, SILENCE);
        }
        for (hold, ask) in looks {
            self.look(hold, ask, None);
        }
        if !self.left.is_empty() && now >= self.again {
            let left = std::mem::take(&mut self.left);
            self.give(Whose::Left, left);
        }
        self.end_waits(now);
        self.tell_lines(now);
        // Where no thread could be started, for lack of memory say, it is tried again.
        self.crew.call();
    }
}

/// Why a hold is lost whose lease runs out.
const SILENCE: &str = "no renewal has succeeded in time";

/// Why a hold is lost, in a word or two for the client.
fn reason(loss: &Loss) -> &'static str {
    match loss {
        Loss::Gone(_) => "gone",
        Loss::Silence { .. } => SILENCE,
    }
}

pub(super) fn no_hold(hold: u64) -> Failure {
    Failure::new(
        Exit::NotFound,
        "NO_SUCH_HOLD",
        format!("this serve has no hold {hold}; it was given back, or another serve granted it"),
    )
}

pub(super) fn lost(kept: &Kept) -> Failure {
    let names = kept.parts.iter().map(|(part, _)| part.name().as_str());
    let names: Vec<_> = names.collect();
    let name = names.first().copied().unwrap_or_default();
    Failure::new(
        Exit::LockLost,
        "LOCK_LOST",
        format!("{} was lost while the work went on", names.join(", ")),
    )
    .with_context(json!({ "name": name }))
}
