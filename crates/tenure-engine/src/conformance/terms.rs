//! The promises about what a request may ask for beyond the plain exclusive lock: holding beside
//! others, queues in which the newest takes the place of who waits, kept places, requests to stop
//! that reach every holder, and notes of what a hold waits for.
//!
//! What it leaves to others: the promises about every lock, and what a promise is (`conformance`).

use super::scene::{Scene, later, tickets};
use super::{Broken, Harness, SHORT_WAIT};
use crate::clock::instant;
use crate::store::{Handle, Verbs, Wake};
use std::num::NonZeroU32;
use std::sync::mpsc;
use std::thread;
use tenure_core::{
    Entering, Entry, Event, Kept, Left, Mode, Queueing, Renewal, Request, StopRequest, Terms,
    TryGrant, WaitingFor,
};

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
///
/// # Errors
/// - [`Broken`] says what was seen instead.
pub(super) fn shared_claims_hold_beside_each_other_and_an_exclusive_one_alone<H: Harness>(
    harness: &H,
) -> Result<(), Broken> {
    let scene = Scene::new(
        harness,
        "shared_claims_hold_beside_each_other_and_an_exclusive_one_alone",
    )?;
    let store = harness.store();
    let shared = |id| with(&scene, id, holding_as(Mode::Shared));
    let first = scene.granted(&store, shared("first")?)?;
    let second = scene.granted(&harness.store(), shared("second")?)?;
    scene.holds(second.token > first.token, || {
        format!("a second hold got {} after {}", second.token, first.token)
    })?;
    let writer = scene.queued(&store, scene.request("writer")?)?;
    scene.release(&store, &first)?;
    let writer = scene.tries(&store, writer)?;
    drop(second);
    let writer = scene.wait(&store, writer)?;
    let readers = [
        scene.queued(&store, shared("third")?)?,
        scene.queued(&store, shared("fourth")?)?,
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

/// A writer that waits goes before the readers that come later, although they could hold beside
/// those who hold.
///
/// # Errors
/// - [`Broken`] says what was seen instead.
pub(super) fn readers_that_come_later_wait_for_the_writer<H: Harness>(
    harness: &H,
) -> Result<(), Broken> {
    let scene = Scene::new(harness, "readers_that_come_later_wait_for_the_writer")?;
    let store = harness.store();
    let shared = |id| with(&scene, id, holding_as(Mode::Shared));
    let reader = scene.granted(&store, shared("reader")?)?;
    let writer = scene.queued(&store, scene.request("writer")?)?;
    let later = scene.queued(&store, shared("later")?)?;
    let later = scene.tries(&store, later)?;
    scene.release(&store, &reader)?;
    let later = scene.tries(&store, later)?;
    let writer = scene.wait(&store, writer)?;
    let later = scene.tries(&store, later)?;
    scene.release(&store, &writer)?;
    let later = scene.wait(&store, later)?;
    scene.release(&store, &later)
}

/// As many hold as there are slots. One whose holder died is free, and that wakes the first waiter;
/// the next is woken once the first waits no longer, and so finds what is left, and no other is.
///
/// # Errors
/// - [`Broken`] says what was seen instead.
pub(super) fn a_free_slot_wakes_the_first_waiter_and_nobody_else<H: Harness>(
    harness: &H,
) -> Result<(), Broken> {
    let scene = Scene::new(
        harness,
        "a_free_slot_wakes_the_first_waiter_and_nobody_else",
    )?;
    let store = harness.store();
    let slots = NonZeroU32::MIN.saturating_add(2);
    let request = |id| with(&scene, id, holding_as(Mode::Slots(slots)));
    let dies = scene.granted(&store, request("dies")?)?;
    let stays = scene.granted(&store, request("stays")?)?;
    let leaves = scene.granted(&store, request("leaves")?)?;
    let first = scene.queued(&store, request("first")?)?;
    let second = scene.queued(&store, request("second")?)?;
    let third = scene.queued(&store, request("third")?)?;
    drop(dies);
    for waiting in [&second, &third] {
        let wake = scene.sleep(&store, waiting, instant() + SHORT_WAIT)?;
        scene.same("a waiter behind the first", &wake, &Wake::Expired)?;
    }
    let first = scene.wait(&store, first)?;
    let end = instant() + harness.patience();
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
    let third = scene.wait(&store, third)?;
    scene.release(&store, &third)
}

/// In a queue of one, whoever comes takes the place of who waits there, and of nobody else. Who was
/// displaced is told at once, also in its sleep, and by whom.
///
/// # Errors
/// - [`Broken`] says what was seen instead.
pub(super) fn the_newest_displaces_who_waits_in_a_queue_of_one<H: Harness>(
    harness: &H,
) -> Result<(), Broken> {
    let scene = Scene::new(harness, "the_newest_displaces_who_waits_in_a_queue_of_one")?;
    let store = harness.store();
    let holder = scene.granted(&store, scene.request("holder")?)?;
    let patient = scene.queued(&store, scene.request("patient")?)?;
    let older = scene.queued(&store, with(&scene, "older", single())?)?;
    let (asleep, began) = mpsc::channel();
    let newer = thread::scope(|threads| {
        let (scene, older) = (&scene, &older);
        let sleeping = threads.spawn(move || {
            let store = harness.store();
            let _ = asleep.send(());
            let wake = scene.sleep(&store, older, instant() + harness.patience())?;
            scene.same("the sleep of who is displaced", &wake, &Wake::Ready)
        });
        // It falls asleep before or after it was displaced; both have to come out the same.
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
        scene.same("who was displaced", &displaced, &vec![older.ticket])?;
        told?;
        scene.placed(entered)
    })?;
    let advanced = scene.done("looking", store.try_grant(&*older.handle, &scene.now()))?;
    let by = "newer".to_owned();
    scene.same(
        "what who was displaced finds",
        &advanced.grant,
        &TryGrant::Cancelled { by },
    )?;
    // It blocks nobody, even before it has left.
    scene.release(&store, &holder)?;
    let patient = scene.wait(&store, patient)?;
    scene.release(&store, &patient)?;
    scene.leave(&store, &*older.handle, &Left::Withdrawn)?;
    let newer = scene.wait(&store, newer)?;
    scene.release(&store, &newer)
}

/// While a caller is away, its place blocks nobody; when it is back, it goes before all that came
/// later, with a token above all earlier ones. Only a place that waits can be kept, and the handle
/// that it had takes nothing along.
///
/// # Errors
/// - [`Broken`] says what was seen instead.
pub(super) fn a_kept_place_blocks_nobody_and_goes_before_later_ones<H: Harness>(
    harness: &H,
) -> Result<(), Broken> {
    let scene = Scene::new(
        harness,
        "a_kept_place_blocks_nobody_and_goes_before_later_ones",
    )?;
    let (store, other) = (harness.store(), harness.store());
    let holder = scene.granted(&store, scene.request("holder")?)?;
    let kept = scene.queued(&store, scene.request("kept")?)?;
    let later = scene.queued(&other, scene.request("later")?)?;
    let reserve = |handle: &dyn Handle| store.reserve(handle, None, GRACE_MS, &scene.now());
    let reserved = scene.done("keeping a hold", reserve(&*holder.handle))?;
    scene.same("whether a hold is kept as a place", &reserved, &false)?;
    let reserved = scene.done("keeping a place", reserve(&*kept.handle))?;
    scene.same("whether the place is kept", &reserved, &true)?;
    scene.release(&store, &holder)?;
    let later = scene.wait(&other, later)?;
    let last = scene.queued(&other, scene.request("last")?)?;
    let back = with(&scene, "back", back_to(Kept::Ticket(kept.ticket)))?;
    let back = scene.queued(&store, back)?;
    scene.same("the ticket of who is back", &back.ticket, &kept.ticket)?;
    drop(kept.handle);
    let last = scene.tries(&other, last)?;
    scene.release(&other, &later)?;
    let last = scene.tries(&other, last)?;
    let back = scene.wait(&store, back)?;
    scene.holds(back.token > later.token, || {
        format!("who is back got {} after {}", back.token, later.token)
    })?;
    scene.release(&store, &back)?;
    let last = scene.wait(&other, last)?;
    scene.release(&other, &last)
}

/// A place is kept for its grace and no longer, and no longer than its owner lives; it is found by
/// its ticket or by its owner. Whoever names one that is not there makes no claim.
///
/// # Errors
/// - [`Broken`] says what was seen instead.
pub(super) fn a_kept_place_lapses_with_its_grace_and_its_owner<H: Harness>(
    harness: &H,
) -> Result<(), Broken> {
    let scene = Scene::new(harness, "a_kept_place_lapses_with_its_grace_and_its_owner")?;
    let store = harness.store();
    let holder = scene.granted(&store, scene.request("holder")?)?;
    let owner = harness.start_process();
    let keep = |id: &str, owner, grace_ms| {
        let waiting = scene.queued(&store, scene.request(id)?)?;
        let reserved = store.reserve(&*waiting.handle, owner, grace_ms, &scene.now());
        let reserved = scene.done("keeping a place", reserved)?;
        scene.same("whether the place is kept", &reserved, &true)?;
        Ok::<u64, Broken>(waiting.ticket)
    };
    let find = |kept, now: &_| scene.enter(&store, with(&scene, "back", back_to(kept))?, now);
    let is_not_kept = |ticket, now: &_| {
        let before = scene.list(&store)?;
        let entered = find(Kept::Ticket(ticket), now)?;
        scene.same("a lapsed place", &entered.entering, &Entering::NotKept)?;
        scene.holds(entered.handle.is_none(), || "it has a handle".to_owned())?;
        scene.same("the list afterwards", &scene.list(&store)?, &before)
    };
    let now = scene.now();
    is_not_kept(holder.ticket, &now)?;
    let brief = keep("brief", None, GRACE_BRIEF_MS)?;
    is_not_kept(brief, &later(&scene.now(), GRACE_BRIEF_MS + 1))?;
    let owned = keep("owned", Some(owner), GRACE_MS)?;
    let back = scene.placed(find(Kept::Owner(owner), &scene.now())?)?;
    scene.same("the place of an owner", &back.ticket, &owned)?;
    let reserved = store.reserve(&*back.handle, Some(owner), GRACE_MS, &scene.now());
    let reserved = scene.done("keeping a place again", reserved)?;
    scene.same("whether the place is kept again", &reserved, &true)?;
    harness.end_process(owner);
    is_not_kept(owned, &scene.now())?;
    let anew = scene.placed(find(Kept::Owner(owner), &scene.now())?)?;
    scene.holds(anew.ticket > owned, || {
        format!("the ticket {} of a dead owner was found", anew.ticket)
    })?;
    scene.leave(&store, &*anew.handle, &Left::Withdrawn)?;
    scene.release(&store, &holder)
}

/// Asking to stop reaches all who hold, names them, and reaches nobody who waits. On a lock that
/// nobody has it creates nothing.
///
/// # Errors
/// - [`Broken`] says what was seen instead.
pub(super) fn asking_to_stop_reaches_every_holder_and_nobody_else<H: Harness>(
    harness: &H,
) -> Result<(), Broken> {
    let scene = Scene::new(
        harness,
        "asking_to_stop_reaches_every_holder_and_nobody_else",
    )?;
    let store = harness.store();
    let operator = StopRequest {
        by: "operator",
        actor: "ada",
        why: "an \"update\"",
    };
    let ask = || scene.done("asking", store.cancel(&scene.name, operator, &scene.now()));
    scene.same("who is asked on an absent lock", &ask()?, &Vec::new())?;
    scene.same("its list", &scene.list(&store)?, &Entry::default())?;
    let shared = |id| with(&scene, id, holding_as(Mode::Shared));
    let holders = [
        scene.granted(&store, shared("first")?)?,
        scene.granted(&store, shared("second")?)?,
    ];
    let waiting = scene.queued(&store, scene.request("waiting")?)?;
    let asked: Vec<u64> = ask()?.iter().map(|claim| claim.ticket).collect();
    let expected: Vec<u64> = holders.iter().map(|held| held.ticket).collect();
    scene.same("who is asked", &asked, &expected)?;
    for claim in scene.list(&store)?.granted() {
        let seen = claim.cancel.as_ref();
        let seen = seen.map(|cancel| (&*cancel.by, &*cancel.actor, &*cancel.why));
        let expected = Some((operator.by, operator.actor, operator.why));
        scene.same("who asks, and what for", &seen, &expected)?;
    }
    for held in &holders {
        let renewed = scene.done("renewing", store.renew(&*held.handle, &scene.now()))?;
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
    let seen = scene.done("verifying", store.verify(&*next.handle, &scene.now()))?;
    let expected = Renewal::Renewed {
        token: next.token,
        cancel_requested: false,
    };
    scene.same("what the next holder is told", &seen, &expected)?;
    scene.release(&store, &next)
}

/// What a hold waits for is written down under its token, shows to everybody, and goes with the
/// hold; under a token that nothing is held by, nothing is written.
///
/// # Errors
/// - [`Broken`] says what was seen instead.
pub(super) fn a_note_of_waiting_stands_with_its_hold_and_goes_with_it<H: Harness>(
    harness: &H,
) -> Result<(), Broken> {
    let scene = Scene::new(
        harness,
        "a_note_of_waiting_stands_with_its_hold_and_goes_with_it",
    )?;
    let store = harness.store();
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
    let held = scene.granted(&store, scene.request("holder")?)?;
    let waiting = scene.queued(&store, scene.request("waiting")?)?;
    let before = scene.list(&store)?;
    for token in [waiting.ticket, held.token + 1] {
        scene.same("a note of nobody", &note(token, Some(&waits))?, &false)?;
    }
    scene.same("the list afterwards", &scene.list(&store)?, &before)?;
    let seen = || {
        let entry = scene.list(&harness.store())?;
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
        "who is in the list",
        &tickets(&scene.list(&store)?),
        &vec![next.ticket],
    )?;
    scene.release(&store, &next)
}
