//! The promises about what a request may ask for beyond the plain exclusive lock: holding beside
//! others, queues in which the newest takes the place of the waiter, kept places, requests to stop
//! that reach every holder, and notes of what a hold waits for.
//!
//! What it leaves to others: the promises about every lock, and what a promise is (`conformance`).

use super::scene::{HoldingClaim, Scene, later, tickets};
use super::{Broken, Harness, SHORT_WAIT};
use std::num::NonZeroU32;
use std::sync::mpsc;
use std::thread;
use tenure_core::{
    CancelKind, Entering, Entry, Event, Kept, Mode, Queueing, Renewal, Request, StopRequest, Terms,
    TryGrant, WaitingFor,
};
use tenure_os::clock::instant;
use tenure_store::{Handle, Verbs, Wake};

/// How long a place is kept, in milliseconds, where nothing depends on it.
const GRACE_MS: u64 = 600_000;

/// A grace that is over soon, in milliseconds; longer than it takes to come back at once.
const GRACE_BRIEF_MS: u64 = 60_000;

fn with<H: Harness>(scene: &Scene<'_, H>, id: &str, terms: Terms) -> Result<Request, Broken> {
    Ok(Request {
        terms,
        ..scene.request(id)?
    })
}

fn holding_as(mode: Mode) -> Terms {
    Terms {
        mode,
        ..Terms::default()
    }
}

fn single() -> Terms {
    Terms {
        queueing: Queueing::Single,
        ..Terms::default()
    }
}

fn back_to(kept: Kept) -> Terms {
    Terms {
        kept: Some(kept),
        ..Terms::default()
    }
}

/// Shared claims hold beside each other; an exclusive one waits until the last of them is gone, and
/// they wait for it.
pub(super) fn shared_claims_hold_beside_each_other_and_an_exclusive_one_alone<H: Harness>(
    scene: &Scene<'_, H>,
) -> Result<(), Broken> {
    let store = scene.store();
    let shared = |id| with(scene, id, holding_as(Mode::Shared));
    let first = scene.granted_request(&store, shared("first")?)?;
    let second = scene.granted_request(&scene.store(), shared("second")?)?;
    scene.holds(second.token > first.token, || {
        format!("a second hold got {} after {}", second.token, first.token)
    })?;
    let writer = scene.queued(&store, "writer")?;
    scene.release(&store, &first)?;
    let writer = scene.tries(&store, writer)?;
    drop(second);
    let writer = scene.wait(&store, writer)?;
    let readers = [
        scene.queued_request(&store, shared("third")?)?,
        scene.queued_request(&store, shared("fourth")?)?,
    ];
    scene.release(&store, &writer)?;
    let mut held = Vec::new();
    for reader in readers {
        held.push(scene.wait(&store, reader)?);
    }
    let entry = scene.list(&store)?;
    scene.same("how many hold together", &entry.granted().count(), &2)?;
    held.iter().try_for_each(|held| scene.release(&store, held))
}

/// A writer that waits goes before the readers that come later, although they could hold beside the
/// holders.
pub(super) fn readers_that_come_later_wait_for_the_writer<H: Harness>(
    scene: &Scene<'_, H>,
) -> Result<(), Broken> {
    let store = scene.store();
    let shared = |id| with(scene, id, holding_as(Mode::Shared));
    let reader = scene.granted_request(&store, shared("reader")?)?;
    let writer = scene.queued(&store, "writer")?;
    let later = scene.queued_request(&store, shared("later")?)?;
    let later = scene.tries(&store, later)?;
    scene.release(&store, &reader)?;
    let later = scene.tries(&store, later)?;
    let writer = scene.wait(&store, writer)?;
    let later = scene.tries(&store, later)?;
    scene.release(&store, &writer)?;
    scene.takes_its_turn(&store, later)
}

/// As many hold as there are slots. The slot of a dead holder is free, and that wakes the first waiter. The
/// next is woken once the first waits no longer, and so finds what is left. No other waiter is woken.
pub(super) fn a_free_slot_wakes_the_first_waiter_and_nobody_else<H: Harness>(
    scene: &Scene<'_, H>,
) -> Result<(), Broken> {
    let store = scene.store();
    let slots = NonZeroU32::MIN.saturating_add(2);
    let request = |id| with(scene, id, holding_as(Mode::Slots(slots)));
    let dies = scene.granted_request(&store, request("dies")?)?;
    let stays = scene.granted_request(&store, request("stays")?)?;
    let leaves = scene.granted_request(&store, request("leaves")?)?;
    let first = scene.queued_request(&store, request("first")?)?;
    let second = scene.queued_request(&store, request("second")?)?;
    let third = scene.queued_request(&store, request("third")?)?;
    drop(dies);
    for waiting in [&second, &third] {
        let wake = scene.sleep(&store, waiting, instant() + SHORT_WAIT)?;
        scene.same("a waiter behind the first", &wake, &Wake::Expired)?;
    }
    let first = scene.wait(&store, first)?;
    let end = instant() + scene.harness.patience();
    let wake = scene.sleep(&store, &second, end)?;
    scene.same("the second, once the first holds", &wake, &Wake::Ready)?;
    let second = scene.tries(&store, second)?;
    let wake = scene.sleep(&store, &third, instant() + SHORT_WAIT)?;
    scene.same("the third", &wake, &Wake::Expired)?;
    scene.release(&store, &leaves)?;
    let second = scene.wait(&store, second)?;
    let entry = scene.list(&store)?;
    scene.same("how many hold together", &entry.granted().count(), &3)?;
    for held in [&stays, &first, &second] {
        scene.release(&store, held)?;
    }
    scene.takes_its_turn(&store, third)
}

/// Each holder of a slot has a number that no other has, and keeps it through every change of its claim. A
/// number is free again once its holder has left or died. A claim of another number of slots waits for all.
pub(super) fn a_slot_has_a_number_that_no_other_has<H: Harness>(
    scene: &Scene<'_, H>,
) -> Result<(), Broken> {
    let store = scene.store();
    let two = NonZeroU32::MIN.saturating_add(1);
    let slots = |id, slots| with(scene, id, holding_as(Mode::Slots(slots)));
    let number = |held: &HoldingClaim| -> Result<Option<u32>, Broken> {
        let entry = scene.list(&store)?;
        Ok(entry.claim(held.ticket).and_then(|claim| claim.slot))
    };
    let first = scene.granted_request(&store, slots("first", two)?)?;
    let dies = scene.granted_request(&store, slots("dies", two)?)?;
    scene.same("the number of the first", &number(&first)?, &Some(0))?;
    scene.same("the number of the second", &number(&dies)?, &Some(1))?;
    scene.renewed(&store, &*first.handle)?;
    scene.same("the first, renewed", &number(&first)?, &Some(0))?;
    drop(dies);
    let second = scene.granted_request(&store, slots("second", two)?)?;
    scene.same("the number of a dead one", &number(&second)?, &Some(1))?;
    let three = two.saturating_add(1);
    let other = scene.queued_request(&store, slots("other", three)?)?;
    let waits = scene.queued_request(&store, slots("waits", two)?)?;
    scene.release(&store, &first)?;
    let other = scene.tries(&store, other)?;
    scene.release(&store, &second)?;
    let other = scene.wait(&store, other)?;
    scene.same("the number of the other one", &number(&other)?, &Some(0))?;
    let waits = scene.tries(&store, waits)?;
    scene.release(&store, &other)?;
    let last = scene.wait(&store, waits)?;
    scene.same("the number of the last", &number(&last)?, &Some(0))?;
    scene.release(&store, &last)
}

/// In a queue of one, a caller takes the place of the waiter there, and of no other. The displaced waiter is
/// told at once, also in its sleep, and learns by whom.
pub(super) fn the_newest_displaces_who_waits_in_a_queue_of_one<H: Harness>(
    scene: &Scene<'_, H>,
) -> Result<(), Broken> {
    let store = scene.store();
    let holder = scene.granted(&store, "holder")?;
    let patient = scene.queued(&store, "patient")?;
    let older = scene.queued_request(&store, with(scene, "older", single())?)?;
    let (asleep, began) = mpsc::channel();
    let newer = thread::scope(|threads| {
        let older = &older;
        let sleeping = threads.spawn(move || {
            let store = scene.store();
            let _ = asleep.send(());
            let wake = scene.sleep(&store, older, instant() + scene.harness.patience())?;
            scene.same("the sleep of the displaced waiter", &wake, &Wake::Ready)
        });
        // The waiter falls asleep before or after it was displaced; both have to come out the same.
        let _ = began.recv();
        thread::sleep(SHORT_WAIT);
        let entered = scene.enter(&store, with(scene, "newer", single())?, &scene.now())?;
        let displaced: Vec<u64> = (entered.events.iter())
            .filter_map(|event| match event {
                Event::Displaced { claim } => Some(claim.ticket),
                _ => None,
            })
            .collect();
        let told = scene.joined(sleeping.join());
        scene.same("the displaced waiters", &displaced, &vec![older.ticket])?;
        told?;
        scene.placed(entered)
    })?;
    let advanced = scene.tried(&store, &*older.handle)?;
    let by = match advanced.grant {
        TryGrant::Cancelled { by } => Some((by.by, by.kind)),
        _ => None,
    };
    let expected = Some(("newer".to_owned(), CancelKind::NewerRun));
    scene.same("what the displaced waiter finds", &by, &expected)?;
    // The displaced waiter blocks no other, even before it has left.
    scene.release(&store, &holder)?;
    scene.takes_its_turn(&store, patient)?;
    scene.withdraw(&store, &older)?;
    scene.takes_its_turn(&store, newer)
}

/// While a caller is away, its place blocks no other. When it is back, it goes before all that came later,
/// with a token above all earlier ones. Only a place that waits can be kept, and the end of the handle that
/// it had changes nothing.
pub(super) fn a_kept_place_blocks_nobody_and_goes_before_later_ones<H: Harness>(
    scene: &Scene<'_, H>,
) -> Result<(), Broken> {
    let (store, other) = (scene.store(), scene.store());
    let holder = scene.granted(&store, "holder")?;
    let kept = scene.queued(&store, "kept")?;
    let later = scene.queued(&other, "later")?;
    let reserve = |handle: &dyn Handle| store.reserve(handle, None, GRACE_MS, &scene.now(), None);
    let reserved = scene.done("keeping a hold", reserve(&*holder.handle))?;
    scene.same("whether a hold is kept as a place", &reserved, &false)?;
    let reserved = scene.done("keeping a place", reserve(&*kept.handle))?;
    scene.same("whether the place is kept", &reserved, &true)?;
    scene.release(&store, &holder)?;
    let later = scene.wait(&other, later)?;
    let last = scene.queued(&other, "last")?;
    let back = with(scene, "back", back_to(Kept::Ticket(kept.ticket)))?;
    let back = scene.queued_request(&store, back)?;
    scene.same(
        "the ticket of the caller that is back",
        &back.ticket,
        &kept.ticket,
    )?;
    drop(kept.handle);
    let last = scene.tries(&other, last)?;
    scene.release(&other, &later)?;
    let last = scene.tries(&other, last)?;
    let back = scene.wait(&store, back)?;
    scene.holds(back.token > later.token, || {
        format!(
            "the caller that is back got {} after {}",
            back.token, later.token
        )
    })?;
    scene.release(&store, &back)?;
    scene.takes_its_turn(&other, last)
}

/// A place is kept for its grace and no longer, and no longer than its owner lives; it is found by
/// its ticket, by its owner or by its agent. A caller that names one that is not there makes no claim.
pub(super) fn a_kept_place_lapses_with_its_grace_and_its_owner<H: Harness>(
    scene: &Scene<'_, H>,
) -> Result<(), Broken> {
    let store = scene.store();
    let holder = scene.granted(&store, "holder")?;
    let owner = scene.harness.start_process();
    let keep = |id: &str, owner, grace_ms| {
        let waiting = scene.queued(&store, id)?;
        let reserved = store.reserve(&*waiting.handle, owner, grace_ms, &scene.now(), None);
        let reserved = scene.done("keeping a place", reserved)?;
        scene.same("whether the place is kept", &reserved, &true)?;
        Ok::<u64, Broken>(waiting.ticket)
    };
    let find = |kept, now: &_| scene.enter(&store, with(scene, "back", back_to(kept))?, now);
    let is_not_kept = |ticket, now: &_| {
        let before = scene.list(&store)?;
        let entered = find(Kept::Ticket(ticket), now)?;
        scene.same("a lapsed place", &entered.entering, &Entering::NotKept)?;
        scene.holds(entered.handle.is_none(), || "it has a handle".to_owned())?;
        scene.is_unchanged(&store, &before)
    };
    let now = scene.now();
    is_not_kept(holder.ticket, &now)?;
    let brief = keep("brief", None, GRACE_BRIEF_MS)?;
    is_not_kept(brief, &later(&scene.now(), GRACE_BRIEF_MS + 1))?;
    let owned = keep("owned", Some(owner), GRACE_MS)?;
    let back = scene.placed(find(Kept::Owner(owner), &scene.now())?)?;
    scene.same("the place of an owner", &back.ticket, &owned)?;
    let reserved = store.reserve(&*back.handle, Some(owner), GRACE_MS, &scene.now(), None);
    let reserved = scene.done("keeping a place again", reserved)?;
    scene.same("whether the place is kept again", &reserved, &true)?;
    scene.harness.end_process(owner);
    is_not_kept(owned, &scene.now())?;
    let anew = scene.placed(find(Kept::Owner(owner), &scene.now())?)?;
    scene.holds(anew.ticket > owned, || {
        format!("the ticket {} of a dead owner was found", anew.ticket)
    })?;
    scene.withdraw(&store, &anew)?;
    let of_agent = |id: &str, agent: &str, kept| {
        let mut request = with(
            scene,
            id,
            Terms {
                kept,
                ..Terms::default()
            },
        )?;
        if let Ok(agent) = agent.parse() {
            request.holder.set_agent(&agent);
        }
        Ok::<Request, Broken>(request)
    };
    let waiting = scene.queued_request(&store, of_agent("agent", "claude/s/a", None)?)?;
    let reserved = store.reserve(&*waiting.handle, None, GRACE_MS, &scene.now(), None);
    let reserved = scene.done("keeping the place of an agent", reserved)?;
    scene.same("whether the place of an agent is kept", &reserved, &true)?;
    let auto = |agent| of_agent("comes", agent, Some(Kept::Agent));
    let sibling = scene.placed(scene.enter(&store, auto("claude/s/b")?, &scene.now())?)?;
    scene.holds(sibling.ticket > waiting.ticket, || {
        format!("the ticket {} of a sibling was found", sibling.ticket)
    })?;
    scene.withdraw(&store, &sibling)?;
    let back = scene.placed(scene.enter(&store, auto("claude/s/a")?, &scene.now())?)?;
    scene.same("the place of an agent", &back.ticket, &waiting.ticket)?;
    let reserved = store.reserve(&*back.handle, None, GRACE_MS, &scene.now(), None);
    scene.done("keeping it again", reserved)?;
    for (key, expected) in [("claude/t", 0), ("claude/s", 1), ("claude/s", 0)] {
        let Ok(agent) = key.parse() else { continue };
        let forgotten = store.forget_places(&scene.name, &agent, &scene.now());
        let forgotten = scene.done("forgetting the places of a session", forgotten)?;
        scene.same("how many places it had", &forgotten, &expected)?;
    }
    let anew = scene.placed(scene.enter(&store, auto("claude/s/a")?, &scene.now())?)?;
    scene.holds(anew.ticket > waiting.ticket, || {
        format!("the ticket {} that was given up was found", anew.ticket)
    })?;
    scene.withdraw(&store, &anew)?;
    scene.release(&store, &holder)
}

/// Asking to stop reaches every holder, names them, and reaches no waiter. On a free lock it creates
/// nothing.
pub(super) fn asking_to_stop_reaches_every_holder_and_nobody_else<H: Harness>(
    scene: &Scene<'_, H>,
) -> Result<(), Broken> {
    let store = scene.store();
    let operator = StopRequest {
        by: "operator",
        actor: "ada",
        why: "an \"update\"",
        kind: CancelKind::Operator,
        grace_ms: None,
    };
    let ask = || {
        scene.done(
            "asking",
            store.cancel(&scene.name, operator, None, &scene.now()),
        )
    };
    scene.same("the holders asked on an absent lock", &ask()?, &Vec::new())?;
    scene.same("its list", &scene.list(&store)?, &Entry::default())?;
    let shared = |id| with(scene, id, holding_as(Mode::Shared));
    let holders = [
        scene.granted_request(&store, shared("first")?)?,
        scene.granted_request(&store, shared("second")?)?,
    ];
    let waiting = scene.queued(&store, "waiting")?;
    let asked: Vec<u64> = ask()?.iter().map(|claim| claim.ticket).collect();
    let expected: Vec<u64> = holders.iter().map(|held| held.ticket).collect();
    scene.same("the holders that are asked", &asked, &expected)?;
    for claim in scene.list(&store)?.granted() {
        let seen = claim.cancel.as_ref();
        let seen = seen.map(|cancel| (&*cancel.by, &*cancel.actor, &*cancel.why));
        let expected = Some((operator.by, operator.actor, operator.why));
        scene.same("by whom it is asked, and what for", &seen, &expected)?;
    }
    for held in &holders {
        let renewed = scene.renewed(&store, &*held.handle)?;
        let expected = Renewal::Renewed {
            token: held.token,
            cancel_requested: true,
        };
        scene.same("what a holder is told", &renewed, &expected)?;
    }
    let waiting = scene.tries(&store, waiting)?;
    for held in &holders {
        scene.release(&store, held)?;
    }
    let next = scene.wait(&store, waiting)?;
    let seen = scene.verified(&store, &*next.handle)?;
    let expected = Renewal::Renewed {
        token: next.token,
        cancel_requested: false,
    };
    scene.same("what the next holder is told", &seen, &expected)?;
    scene.release(&store, &next)
}

/// What a hold waits for is written down under its token, shows to every reader, and goes with the hold.
/// Under a token that no hold has, nothing is written.
pub(super) fn a_note_of_waiting_stands_with_its_hold_and_goes_with_it<H: Harness>(
    scene: &Scene<'_, H>,
) -> Result<(), Broken> {
    let store = scene.store();
    let waits = WaitingFor {
        place: "/elsewhere".to_owned(),
        name: "other".to_owned(),
        ticket: 7,
    };
    let note = |token, what: Option<&WaitingFor>| {
        scene.done(
            "noting",
            store.note_waiting(&scene.name, token, what, &scene.now()),
        )
    };
    scene.same("a note on an absent lock", &note(1, Some(&waits))?, &false)?;
    scene.same("its list", &scene.list(&store)?, &Entry::default())?;
    let held = scene.granted(&store, "holder")?;
    let waiting = scene.queued(&store, "waiting")?;
    let before = scene.list(&store)?;
    for token in [waiting.ticket, held.token + 1] {
        scene.same(
            "a note under the token of no hold",
            &note(token, Some(&waits))?,
            &false,
        )?;
    }
    scene.is_unchanged(&store, &before)?;
    let seen = || {
        let entry = scene.list(&scene.store())?;
        let notes = entry.claims.into_iter().map(|claim| claim.waiting_for);
        Ok::<_, Broken>(notes.collect::<Vec<_>>())
    };
    scene.same("a note", &note(held.token, Some(&waits))?, &true)?;
    scene.same("the notes", &seen()?, &vec![Some(waits.clone()), None])?;
    scene.same("taking it back", &note(held.token, None)?, &true)?;
    scene.same("the notes", &seen()?, &vec![None, None])?;
    scene.same("a second note", &note(held.token, Some(&waits))?, &true)?;
    scene.release(&store, &held)?;
    let next = scene.wait(&store, waiting)?;
    scene.same("the notes of the next holder", &seen()?, &vec![None])?;
    scene.same("an old token", &note(held.token, Some(&waits))?, &false)?;
    scene.same(
        "the tickets in the list",
        &tickets(&scene.list(&store)?),
        &vec![next.ticket],
    )?;
    scene.release(&store, &next)
}
