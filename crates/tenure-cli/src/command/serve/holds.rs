//! The holds of the program: how they are looked after, what it is told of them, and how they are given back.

use super::calls::{self, Adopting, HoldPart, Leaves, LockLook};
use super::frames::{self, Adopt, Id};
use super::kept::KeptPart;
use super::output::About;
use super::waits::no_thread_for;
use super::{Event, Serve, Whose, abandoned, already_held, is_same_place};
use crate::exit::Exit;
use crate::failure::Failure;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use tenure_core::LockName;
use tenure_engine::inherited::{self, AROUND};
use tenure_engine::keep::releases::Leaving;
use tenure_engine::keep::{self, Life, Loss, News};
use tenure_os::brief::briefly;
use tenure_os::clock::{Clock, instant};

/// Why a hold is lost whose lease is over.
const SILENCE: &str = "no renewal has succeeded in time";

/// An adoption that has no answer yet.
pub(super) struct Adoption {
    id: Id,
    /// The folder and the request id.
    key: (String, String),
    /// Other requests for the same hold.
    followers: Vec<(Id, Adopt)>,
}

/// A hold of the program.
pub(super) struct ServedHold {
    pub(super) caller: Option<String>,
    pub(super) parts: Vec<Arc<KeptPart>>,
    /// For how long the program was told last that the hold is good, as a time of the boot clock.
    told_until_ms: Option<u64>,
    /// The program was told that it is lost.
    pub(super) is_lost: bool,
    was_asked_to_stop: bool,
    /// Set if the hold is being given back; these requests want to know.
    pub(super) releasing: Option<Vec<Id>>,
}

impl ServedHold {
    pub(super) fn parts(&self) -> impl Iterator<Item = &Arc<HoldPart>> {
        self.parts.iter().map(|kept| &kept.part)
    }

    /// How long others leave it alone, if no renewal succeeds before; `None` for as long as the program lives.
    fn good_for_ms(&self) -> Option<u64> {
        self.parts.iter().filter_map(|kept| kept.left_ms()).min()
    }

    /// Begins its release, which these requests want to know of.
    pub(super) fn releases(&mut self, asking: Vec<Id>) {
        self.releasing = Some(asking);
        for kept in &self.parts {
            kept.leaves();
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
        self.lose_what_lapsed();
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
        })?;
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
        adopted: Result<Vec<(HoldPart, Life)>, Failure>,
    ) {
        let index = self.adopting.iter().position(|first| first.id == *id);
        let followers = index.map(|index| self.adopting.swap_remove(index).followers);
        match adopted {
            // The program closed our stdin meanwhile, which ends its holds.
            Ok(parts) if self.is_over => {
                let parts = parts.into_iter().map(|(part, _)| Arc::new(part));
                let whose = Whose::Refused(id.clone(), Vec::new(), Box::new(abandoned()));
                self.give(whose, parts.collect());
            }
            adopted => {
                // A hold that cannot be kept stays as it was: its program works under it.
                let adopted = adopted
                    .and_then(|parts| self.keep(caller, parts).map_err(|(failure, _)| failure));
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
        let is_meant = |part: &HoldPart| {
            (is_same_place(part.session, adopting.session)
                || is_same_place(part.session, adopting.group_session))
                && part.session.format.shows(&part.claim, &adopting.request_id)
        };
        for (hold, kept) in &self.holds {
            let mut meant = kept.parts();
            let Some(first) = meant.find(|part| is_meant(part)) else {
                continue;
            };
            let stands = |name: &LockName, token: Option<u64>| {
                kept.parts().any(|part| {
                    part.name() == name && token.is_none_or(|token| part.claim.token == Some(token))
                })
            };
            let mut tokens = kept.parts().map(|part| part.claim.token);
            let is_same = if adopting.locks.is_empty() {
                adopting.token.is_none() || tokens.any(|token| token == adopting.token)
            } else {
                let mut locks = adopting.locks.iter();
                locks.all(|(known, name)| stands(name, adopting.token_of(known)))
            };
            if !is_same {
                let names = |name| kept.parts().any(|part| part.name() == name);
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

    /// Keeps a hold; answers with what the client is told of it, or with the locks of a hold that cannot be kept.
    pub(super) fn keep(
        &mut self,
        caller: Option<String>,
        parts: Vec<(HoldPart, Life)>,
    ) -> Result<Value, (Failure, Vec<Arc<HoldPart>>)> {
        let hold = self.next_hold;
        self.next_hold += 1;
        let parts = parts.into_iter().map(|(part, life)| {
            let teller = self.teller.clone();
            Arc::new(KeptPart::new(hold, Arc::new(part), life, teller))
        });
        let parts: Vec<_> = parts.collect();
        let begun = parts.iter().try_for_each(|kept| {
            let mut places = self.places.values();
            let place = places.find(|(session, _)| std::ptr::eq(*session, kept.part.session));
            place.map_or(Ok(()), |(_, place)| keep::keep(place, kept))
        });
        if let Err(error) = begun {
            let left = parts.into_iter().map(|kept| {
                kept.leaves();
                Arc::clone(&kept.part)
            });
            return Err((no_thread_for(&error), left.collect()));
        }
        let kept = ServedHold {
            caller,
            parts,
            told_until_ms: None,
            is_lost: false,
            was_asked_to_stop: false,
            releasing: None,
        };
        self.holds.insert(hold, kept);
        Ok(self.granted(hold).unwrap_or_default())
    }

    /// What the client is told of a hold that it was granted.
    fn granted(&self, hold: u64) -> Option<Value> {
        let kept = self.holds.get(&hold)?;
        let mut env = serde_json::Map::new();
        let mut held = inherited::held().to_owned();
        for part in kept.parts() {
            let of_project = part.env_of_project.iter();
            env.extend(of_project.map(|(name, value)| (name.clone(), value.as_str().into())));
            let (token, folder) = (
                part.claim.token.unwrap_or_default(),
                &part.session.place.folder,
            );
            inherited::extend(&mut held, token, folder, part.name());
        }
        // The parts have one place, and any of them proves that the program still holds.
        if let Some(last) = kept.parts().last() {
            let (session, token) = (&last.session, last.claim.token.unwrap_or_default());
            let hold = Some((last.name(), token));
            let around = session.place.handed_down(&session.identity, hold);
            env.insert(AROUND.to_owned(), around.value().into());
        }
        env.insert(inherited::HELD.to_owned(), held.into());
        let request_id = kept
            .parts()
            .next()
            .map(|part| part.claim.holder.request_id.as_str().to_owned());
        let locks: Vec<Value> = kept.parts().map(|part| part.json()).collect();
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
            let parts = kept.parts().cloned().collect();
            self.give(Whose::Hold(hold), parts);
        }
    }

    /// Gives locks back, the last one first. What moments are not enough for is tried by a thread until it is done; its first
    /// try says how.
    pub(super) fn give(&mut self, whose: Whose, parts: Vec<Arc<HoldPart>>) {
        let Some(leaves) = Leaves::of(parts) else {
            return self.given_back(whose, Ok(true));
        };
        if leaves.is_prompt()
            && let Ok(were_ours) = briefly(|| leaves.tries_to_leave(true)).answer
        {
            return self.given_back(whose, Ok(were_ours));
        }
        let (teller, leaves) = (self.teller.clone(), Arc::new(leaves));
        self.giving += 1;
        self.leaving.retain(|leaves| leaves.strong_count() > 0);
        self.leaving.push(Arc::downgrade(&leaves));
        let own = Arc::clone(&leaves);
        self.releases.add(leaves, move |answer| {
            let result = answer.map_err(|error| own.failure(error));
            teller.tell(Event::GivenBack { whose, result });
        });
    }

    /// The names of the locks that are not given back yet.
    pub(super) fn left(&self) -> Vec<String> {
        let leaving = self.leaving.iter().filter_map(Weak::upgrade);
        leaving.flat_map(|leaves| leaves.names()).collect()
    }

    pub(super) fn given_back(&mut self, whose: Whose, result: Result<bool, Failure>) {
        match whose {
            Whose::Refused(id, abandons, failure) => self.refuse(&id, &abandons, *failure),
            Whose::Hold(hold) => {
                let Some(kept) = self.holds.remove(&hold) else {
                    return;
                };
                self.output.forget(&About::Hold(hold));
                let result = match result {
                    Err(failure) => Err(failure),
                    Ok(were_ours) if kept.is_lost || !were_ours => Err(lost(&kept)),
                    Ok(_) => Ok(json!({ "released": true })),
                };
                for id in kept.releasing.into_iter().flatten() {
                    self.answer(&id, result.clone());
                }
            }
        }
    }

    /// Has a thread look at the locks of a hold, for a request of the program.
    pub(super) fn verify(&self, hold: u64, id: &Id) -> Result<(), Failure> {
        let parts: Vec<_> = (self.holds.get(&hold).into_iter())
            .flat_map(ServedHold::parts)
            .cloned()
            .collect();
        let id = id.clone();
        self.run(move || Event::Verified {
            id,
            hold,
            seen: (parts.into_iter())
                .map(|part| {
                    let seen = calls::look(&part, None);
                    (part, seen)
                })
                .collect(),
        })
    }

    /// Answers the request of the program.
    pub(super) fn verified(&mut self, id: &Id, hold: u64, seen: Vec<(Arc<HoldPart>, LockLook)>) {
        self.lose_what_lapsed();
        let mut failure = None;
        for (part, LockLook { renewal, asked_by }) in seen {
            let news = match renewal {
                Ok(renewal) => News::of(renewal),
                Err(error) => {
                    failure = Some(part.session.store_failed(part.name(), error));
                    continue;
                }
            };
            self.found((hold, &part), &news, asked_by.as_deref(), false);
        }
        let result = match (self.holds.get(&hold), failure) {
            // The hold was given back meanwhile.
            (None, _) => Err(no_hold(hold)),
            (Some(kept), _) if kept.is_lost => Err(lost(kept)),
            (Some(_), Some(failure)) => Err(failure),
            (Some(kept), None) => Ok(json!({ "hold": hold, "good_for_ms": kept.good_for_ms() })),
        };
        self.answer(id, result);
    }

    /// Tells the program what was found of a lock.
    pub(super) fn found(
        &mut self,
        (hold, part): (u64, &Arc<HoldPart>),
        news: &News,
        by: Option<&str>,
        is_renewed: bool,
    ) {
        if news.lost.is_some() {
            part.is_lost.store(true, Ordering::Relaxed);
        }
        match &news.lost {
            Some(Loss::Gone(_)) => self.lose(hold, "gone"),
            Some(Loss::Silence { .. }) => self.lose(hold, SILENCE),
            None => {}
        }
        let Some(kept) = self.holds.get_mut(&hold) else {
            return;
        };
        if kept.is_lost || kept.releasing.is_some() {
            return;
        }
        if let Some(by) = by
            && !std::mem::replace(&mut kept.was_asked_to_stop, true)
        {
            let params = json!({ "hold": hold, "by": by });
            self.output
                .say(&frames::notification("stop_requested", &params));
        }
        let good_for_ms = kept.good_for_ms();
        // Of several locks the one counts that is good for the shortest time.
        let until_ms = kept.parts.first().zip(good_for_ms).map(|(first, left_ms)| {
            let now = first.part.session.clock.now();
            now.boot_ms.saturating_add(left_ms)
        });
        // Of several locks in folders the first one speaks for all.
        let speaks = until_ms.is_some() || kept.parts.first().is_some_and(|first| first.is(part));
        if is_renewed
            && speaks
            && good_for_ms != Some(0)
            && (until_ms.is_none() || until_ms > kept.told_until_ms)
        {
            kept.told_until_ms = until_ms;
            let params = json!({ "hold": hold, "good_for_ms": good_for_ms });
            let frame = frames::notification("renewed", &params);
            self.output.update(About::Hold(hold), frame);
        }
    }

    /// Has the audit note that several renewals in a row have failed.
    pub(super) fn note_failure(&self, part: Arc<HoldPart>, consecutive: u32, error: String) {
        // Without a thread there is no line.
        let _ = self.has_done(move || calls::note_failure(&part, consecutive, &error));
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
        self.output.forget(&About::Hold(hold));
        let params = json!({ "hold": hold, "reason": reason });
        self.output.say(&frames::notification("lost", &params));
    }

    /// Tells the program of each hold whose lease is over, also after this process was stopped: before anything else is
    /// said of it.
    fn lose_what_lapsed(&mut self) {
        let lapsed = self.holds.iter().filter(|(_, kept)| {
            !kept.is_lost && kept.releasing.is_none() && kept.good_for_ms() == Some(0)
        });
        let lapsed: Vec<u64> = lapsed.map(|(hold, _)| *hold).collect();
        for hold in lapsed {
            self.lose(hold, SILENCE);
        }
    }

    /// Does what is due.
    pub(super) fn keep_time(&mut self) {
        let now = instant();
        self.lose_what_lapsed();
        self.tell_lines(now);
    }
}

pub(super) fn no_hold(hold: u64) -> Failure {
    Failure::new(
        Exit::NotFound,
        "NO_SUCH_HOLD",
        format!("this serve has no hold {hold}; it was given back, or another serve granted it"),
    )
}

pub(super) fn lost(kept: &ServedHold) -> Failure {
    let names = kept.parts().map(|part| part.name().as_str());
    let names: Vec<_> = names.collect();
    let name = names.first().copied().unwrap_or_default();
    Failure::new(
        Exit::LockLost,
        "LOCK_LOST",
        format!("{} was lost while the work went on", names.join(", ")),
    )
    .with_context(json!({ "name": name }))
}
