//! The coordination file: its slots, and the list of claims in one.

use super::draw::Draw;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, OwnedFd};
use tenure_core::{
    Cancel, CancelKind, Claim, Entry, Force, History, Holder, Host, Kind, Lease, Mode, Process,
    Queueing, RequestId, Reservation, Stamp, WaitingFor,
};
use tenure_store::file::fuzzing;

/// The size of a page of the first pair.
const PAGE_BYTES: usize = 2048;

/// Where the segments of a long list begin.
const SEGMENTS_START: usize = 258_048;

/// Both ways of reading find the same in any file, and what is written is read. In a file of our
/// own, a write that is cut off anywhere leaves the state before or the one after, also where the
/// one before it was cut off.
pub fn slots(data: &[u8]) {
    let mut draw = Draw(data);
    if draw.flag() {
        return history(&mut draw);
    }
    let body = body(&mut draw);
    let file = file_of(draw.0);
    match state(&file) {
        Ok(before) => drop(written(&file, &before, body)),
        Err(why) => {
            super::is_a_line(&why);
            assert!(
                fuzzing::write(file.as_fd(), &body).is_err(),
                "nothing is built on what cannot be read"
            );
        }
    }
}

type State = (u64, Vec<u8>);

/// A file from its first write on, of which some writes are cut off.
fn history(draw: &mut Draw<'_>) {
    let mut image = draw.some(Draw::number).map_or_else(Vec::new, |sequence| {
        let mut page = fuzzing::page(sequence, b"begun");
        page.resize(PAGE_BYTES, 0);
        page
    });
    for _ in 0..draw.below(16) {
        let file = file_of(&image);
        let Ok(before) = state(&file) else {
            // Only what the file began with can be no state.
            assert!(image.len() == PAGE_BYTES, "a cut made it unreadable");
            return;
        };
        let body = body(draw);
        let cut = draw.some(|draw| usize::try_from(draw.number()).unwrap_or(0));
        let Some(after) = written(&file, &before, body) else {
            return;
        };
        let whole = content(&file);
        let cut = cut.map_or(whole.len(), |cut| cut % (whole.len() + 1));
        let torn = torn(&image, &whole, cut);
        let seen = state(&file_of(&torn));
        assert!(
            seen.as_ref() == Ok(&before) || seen.as_ref() == Ok(&after),
            "cut off at {cut}: {seen:?}, neither {before:?} nor the next one"
        );
        image = if cut == whole.len() { whole } else { torn };
    }
}

/// The file after so many bytes of a write: segments are written before the page that names them.
fn torn(before: &[u8], after: &[u8], cut: usize) -> Vec<u8> {
    let (pages, segments) = after.split_at(SEGMENTS_START.min(after.len()));
    let cut_off = |new: &[u8], old: &[u8], cut: usize| {
        let cut = cut.min(new.len());
        [&new[..cut], old.get(cut..).unwrap_or_default()].concat()
    };
    let old = before.get(SEGMENTS_START..).unwrap_or_default();
    let segments_torn = cut_off(segments, old, cut);
    let old = before.get(..SEGMENTS_START).unwrap_or(before);
    let mut pages = cut_off(pages, old, cut.saturating_sub(segments.len()));
    if !segments_torn.is_empty() {
        pages.resize(SEGMENTS_START, 0);
    }
    [pages, segments_torn].concat()
}

/// Most are short; a few hundred need larger slots, or more than there is.
fn body(draw: &mut Draw<'_>) -> Vec<u8> {
    let times = match draw.byte() {
        many @ 200.. => 1 + usize::from(many - 200) * 40,
        _ => 1,
    };
    draw.bytes().repeat(times)
}

/// What every reader finds.
fn state(file: &OwnedFd) -> Result<State, String> {
    let state = fuzzing::read(file.as_fd());
    let unguarded = fuzzing::read_unguarded(file.as_fd());
    assert_eq!(state, unguarded, "with and without the guard");
    state
}

/// The state after a write. `None` where there is none to be had.
fn written(file: &OwnedFd, before: &State, body: Vec<u8>) -> Option<State> {
    // 2^64 writes come to an end; nobody has made them.
    if before.0 >= u64::MAX - 1 {
        return None;
    }
    if !fuzzing::write(file.as_fd(), &body).expect("a memory file takes it") {
        assert!(body.len() > 250_000, "a body of {} fits", body.len());
        return None;
    }
    let after = (before.0 + 1, body);
    assert_eq!(state(file).as_ref(), Ok(&after), "what is written is read");
    Some(after)
}

fn file_of(bytes: &[u8]) -> OwnedFd {
    let file = memfd_create("lock", MemfdFlags::CLOEXEC).expect("a memory file");
    let mut done = 0;
    while done < bytes.len() {
        done += pwrite(&file, &bytes[done..], done as u64).expect("a write");
    }
    ftruncate(&file, bytes.len() as u64).expect("its length");
    file
}

fn content(file: &OwnedFd) -> Vec<u8> {
    let size = rustix::fs::fstat(file).expect("a file").st_size;
    let mut bytes = vec![0; usize::try_from(size).expect("a length")];
    let mut done = 0;
    while done < bytes.len() {
        match pread(file, &mut bytes[done..], done as u64).expect("a read") {
            0 => break,
            count => done += count,
        }
    }
    bytes
}

/// A list that is read comes back as the same list when it is written, in whole or by a part of
/// it; and so does a list that was drawn.
pub fn list(data: &[u8]) {
    let mut draw = Draw(data);
    let entry = if draw.flag() {
        drawn(&mut draw)
    } else {
        match fuzzing::decode(draw.0) {
            Ok(entry) => entry,
            Err(why) => {
                assert!(why.len() < 1_000, "a sentence: {why}");
                return;
            }
        }
    };
    let body = fuzzing::encode(&entry).expect("every list can be written");
    assert_eq!(
        body.split_inclusive(|byte| *byte == b'\n').count(),
        1 + entry.claims.len(),
        "a line for each claim"
    );
    assert_eq!(
        fuzzing::decode(&body),
        Ok(entry.clone()),
        "written and read"
    );
    for claim in &entry.claims {
        for partial in fuzzing::partial(&body, claim.ticket) {
            assert_eq!(fuzzing::decode(&partial), Ok(entry.clone()), "in parts");
        }
    }
}

fn drawn(draw: &mut Draw<'_>) -> Entry {
    let mut entry = Entry {
        last: 0,
        history: History {
            holds: draw.number(),
            mean_ms: draw.number(),
        },
        ended: None,
        claims: Vec::new(),
    };
    for _ in 0..draw.below(12) {
        let ticket = entry.last + 1 + u64::from(draw.byte());
        entry.last = ticket;
        let token = draw.some(|draw| {
            entry.last += 1 + u64::from(draw.byte() & 1);
            entry.last
        });
        entry.claims.push(claim(draw, ticket, token));
    }
    // Nobody's turn is written down where nobody is.
    if !entry.claims.is_empty() {
        entry.ended = draw.some(stamp);
    }
    entry
}

fn stamp(draw: &mut Draw<'_>) -> Stamp {
    Stamp {
        wall_ms: draw.number(),
        boot_ms: draw.number(),
    }
}

fn process(draw: &mut Draw<'_>) -> Process {
    Process {
        pid: u32::from(draw.byte()),
        started: draw.some(Draw::number),
    }
}

fn claim(draw: &mut Draw<'_>, ticket: u64, token: Option<u64>) -> Claim {
    let entered = stamp(draw);
    let since = draw.some(stamp);
    let mut claim = Claim::new(
        ticket,
        if draw.flag() {
            Kind::Detached
        } else {
            Kind::Kernel
        },
        Holder {
            request_id: RequestId::new(draw.name()).expect("letters of names"),
            actor: draw.text(),
            process: draw.some(process),
            command: draw.some(process),
            host: std::sync::Arc::new(Host {
                name: draw.text(),
                machine_id: draw.some(Draw::text),
                boot_id: draw.some(Draw::text),
                pid_namespace: draw.some(Draw::number),
            }),
            why: draw.text(),
            facts: (0..draw.below(3))
                .map(|_| (draw.text(), draw.text()))
                .collect(),
        },
        entered,
        Lease {
            ttl_ms: draw.number(),
            renewed: draw.some(stamp).unwrap_or(since.unwrap_or(entered)),
            renewals: draw.number(),
        },
    );
    claim.token = token;
    claim.since = since;
    claim.force = [Force::No, Force::Asked, Force::Confirmed][draw.below(3)];
    claim.mode = match draw.below(3) {
        0 => Mode::Exclusive,
        1 => Mode::Shared,
        _ => NonZeroU32::new(u32::from(draw.byte())).map_or(Mode::Shared, Mode::Slots),
    };
    claim.queueing = [Queueing::Fifo, Queueing::Single, Queueing::Max][draw.below(3)];
    claim.grace_ms = draw.number();
    claim.cancel = draw.some(|draw| Cancel {
        by: draw.text(),
        at: stamp(draw),
        actor: draw.text(),
        why: draw.text(),
        kind: [CancelKind::Operator, CancelKind::NewerRun][draw.below(2)],
        grace_ms: draw.some(Draw::number),
    });
    claim.reservation = draw.some(|draw| Reservation {
        since: stamp(draw),
        grace_ms: draw.number(),
    });
    claim.waiting_for = draw.some(|draw| WaitingFor {
        place: draw.text(),
        name: draw.text(),
        ticket: draw.number(),
    });
    claim.aside = draw.some(stamp);
    claim
}
