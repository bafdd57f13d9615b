//! A long list in a file, changed again and again as a store changes it, is the list that the same changes give
//! in memory, whatever a crash, a reader without the guard or another program does meanwhile.

use super::super::pages::{self, ReadError, Room, Snapshot, UNKNOWN};
use super::super::partial::tests::{enter, list_of, lives};
use super::super::partial::{self, Want};
use super::{Piece, SEGMENTS_START, SLOT_BYTES, Segment, Text, is_split_up, lay_out, line_of};
use crate::codec;
use std::borrow::Cow;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use tenure_core::{Cancel, Entering, Entry, Mode, Now, Policy, Process, TryGrant};
use tenure_os::os::borrow;

fn whole(list: Vec<u8>) -> Vec<Piece<'static>> {
    vec![Piece::Lines(Cow::Owned(list))]
}

fn read(file: &File) -> Result<Entry, ReadError> {
    let mut snapshot = pages::read(borrow(file), UNKNOWN)?;
    pages::fill_all(borrow(file), &mut snapshot.text)?;
    let list = codec::decode(&snapshot.text.bytes);
    list.map_err(|error| ReadError::Torn(error.into()))
}

fn bytes_of(file: &File) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut file = file;
    file.rewind().expect("its beginning");
    file.read_to_end(&mut bytes).expect("its bytes");
    bytes
}

fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(bytes).expect("its bytes");
    file
}

/// A list in a file, and the same list in memory.
struct Twice {
    file: File,
    entry: Entry,
    /// How many bytes were read of it in all.
    parts: usize,
    wholes: usize,
}

impl Twice {
    fn of(entry: Entry) -> Self {
        let file = tempfile::tempfile().expect("a file");
        let list = codec::encode(&entry).expect("a list");
        let written = pages::write(borrow(&file), &Snapshot::fresh(), whole(list), Room::All);
        assert!(written.expect("a write"));
        Self {
            file,
            entry,
            parts: 0,
            wholes: 0,
        }
    }

    /// Changes both: the file in the way of a store that wants no more than this.
    fn change<A: PartialEq + std::fmt::Debug>(
        &mut self,
        want: Want,
        change: impl Fn(&mut Entry) -> A,
    ) -> A {
        let file = borrow(&self.file);
        let mut snapshot = pages::read(file, UNKNOWN).expect("a state");
        for segments in partial::segments_for(&snapshot.text, want) {
            pages::fill(file, &mut snapshot.text, segments).expect("a segment");
        }
        let expected = change(&mut self.entry);
        if self.entry.claims.is_empty() {
            // A list without claims keeps no such instant.
            self.entry.ended = None;
        }
        let before = bytes_of(&self.file);
        let entry_before = read(&self.file).expect("the list before");
        let part = partial::decode(&snapshot.text, want);
        // What a waiter finds without all claims before its own has to be found by the whole list, but for one answer.
        let part = part.filter(|(_, rest)| {
            rest.before() == 0 || !matches!(want, Want::UpTo(_)) || self.entry == entry_before
        });
        let list = if let Some((mut part, rest)) = part {
            self.parts += 1;
            assert_eq!(change(&mut part), expected, "{want:?}");
            rest.encode(&snapshot.text, &part).expect("a list")
        } else {
            self.wholes += 1;
            whole(codec::encode(&self.entry).expect("a list"))
        };
        let written = pages::write(file, &snapshot, list, Room::All);
        assert!(written.expect("a write"), "{want:?}");
        assert_eq!(read(&self.file).expect("a list"), self.entry, "{want:?}");
        self.look();
        crashes(&before, &bytes_of(&self.file), &entry_before, &self.entry);
        expected
    }

    /// Changes both without a comparison.
    fn quietly<A>(&mut self, want: Want, change: impl Fn(&mut Entry) -> A) {
        let file = borrow(&self.file);
        let mut snapshot = pages::read(file, UNKNOWN).expect("a state");
        for segments in partial::segments_for(&snapshot.text, want) {
            pages::fill(file, &mut snapshot.text, segments).expect("a segment");
        }
        change(&mut self.entry);
        let (mut part, rest) = partial::decode(&snapshot.text, want).expect("a part");
        change(&mut part);
        let list = rest.encode(&snapshot.text, &part).expect("a list");
        assert!(pages::write(file, &snapshot, list, Room::All).expect("a write"));
    }

    /// A look without the guard shows the same.
    fn look(&self) {
        let seen = pages::read_unguarded(borrow(&self.file), UNKNOWN).expect("a state");
        assert_eq!(codec::decode(&seen.text.bytes), Ok(self.entry.clone()));
        assert!(seen.text.gaps.is_empty(), "all of it");
    }
}

const BLOCK: usize = 2_048;

/// A write that ends before its page is whole leaves the list that was there before.
fn crashes(before: &[u8], after: &[u8], old: &Entry, new: &Entry) {
    // The end is cut off once the page is whole, and what a file has not reads as zeros once it is longer.
    let length = before.len().max(after.len());
    let filled = |bytes: &[u8], rest: &[u8]| [bytes, rest].concat();
    let after = filled(after, before.get(after.len()..).unwrap_or_default());
    let before = filled(before, &vec![0; length - before.len()]);
    let pages = SEGMENTS_START.min(length);
    let differs = |block: &usize| {
        let range = *block..(*block + BLOCK).min(pages);
        before[range.clone()] != after[range]
    };
    let mut blocks = (0..pages).step_by(BLOCK);
    let first = blocks.find(differs).expect("a page was written");
    let last = blocks.rfind(differs).unwrap_or(first);
    let in_block = |at: &usize| before[*at] != after[*at];
    let first = (first..pages).find(in_block).expect("a byte of it");
    let last = (first..(last + BLOCK).min(pages)).rfind(in_block);
    let last = last.expect("a byte of it");
    for written in [0, 1, (last - first) / 2, last - first] {
        let mut torn = after.clone();
        let rest = first + written..pages;
        torn[rest.clone()].copy_from_slice(&before[rest]);
        let found = read(&file_of(&torn)).expect("a list");
        // What is written last may be what only covers an older, longer page.
        let is_whole = written > 1 && found == *new;
        assert!(is_whole || found == *old, "after {written} bytes of it");
    }
}

/// Numbers that come in the same order each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("few bits") % end.max(1)
    }
}

fn step(twice: &mut Twice, numbers: &mut Numbers, number: u32) {
    let now = Now::default();
    let count = twice.entry.claims.len();
    let some = twice
        .entry
        .claims
        .get(numbers.below(count))
        .map_or(1, |claim| claim.ticket);
    let first = twice.entry.claims.first().map_or(1, |claim| claim.ticket);
    match numbers.below(12) {
        0..=3 => {
            twice.change(Want::Ends, |entry| {
                matches!(enter(entry, number), Entering::Queued { .. })
            });
        }
        4 | 5 => {
            twice.change(Want::Own(some), |entry| entry.leave(some, &now));
        }
        6 => {
            let command = Process {
                pid: number,
                started: None,
            };
            twice.change(Want::Own(some), |entry| entry.name_command(some, command));
        }
        7 => {
            twice.change(Want::Own(some), |entry| {
                let claim = entry.claims.iter_mut().find(|claim| claim.ticket == some);
                let by = "somebody".into();
                let cancel = Cancel {
                    by,
                    ..Cancel::default()
                };
                claim.map(|claim| claim.cancel = Some(cancel)).is_some()
            });
        }
        8 => {
            twice.change(Want::UpTo(some), |entry| {
                let found = entry.try_grant(&Policy::NATIVE, some, &now, lives, &mut Vec::new());
                std::mem::discriminant(&found)
            });
        }
        9 => {
            twice.change(Want::All, |entry| entry.raise(u64::from(number)));
        }
        _ => {
            twice.change(Want::Own(first), |entry| entry.leave(first, &now));
            let next = twice.entry.claims.first().map_or(1, |claim| claim.ticket);
            twice.change(Want::UpTo(next), |entry| {
                let found = entry.try_grant(&Policy::NATIVE, next, &now, lives, &mut Vec::new());
                matches!(found, TryGrant::Granted { .. })
            });
        }
    }
}

#[test]
fn a_long_list_in_a_file_is_the_list_that_the_same_changes_give_in_memory() {
    for seed in 1..=3 {
        let mut numbers = Numbers(seed);
        let mut twice = Twice::of(list_of(100 * u32::try_from(seed).expect("few")));
        for number in 0..50 {
            step(&mut twice, &mut numbers, 1_000 + number);
        }
        assert!(
            twice.parts > twice.wholes,
            "{} {}",
            twice.parts,
            twice.wholes
        );
    }
}

#[test]
fn a_list_that_grows_and_drains_claim_by_claim_passes_through_each_form() {
    let now = Now::default();
    let mut twice = Twice::of(list_of(1));
    for number in 1..110 {
        assert!(twice.change(Want::Ends, |entry| {
            matches!(enter(entry, number), Entering::Queued { .. })
        }));
    }
    let long = bytes_of(&twice.file).len();
    assert!(long > SEGMENTS_START, "it has segments: {long}");
    while let Some(first) = twice.entry.claims.first().map(|claim| claim.ticket) {
        twice.change(Want::Own(first), |entry| entry.leave(first, &now));
        if let Some(next) = twice.entry.claims.first().map(|claim| claim.ticket) {
            assert!(twice.change(Want::UpTo(next), |entry| {
                let found = entry.try_grant(&Policy::NATIVE, next, &now, lives, &mut Vec::new());
                matches!(found, TryGrant::Granted { .. })
            }));
        }
    }
    assert_eq!(
        bytes_of(&twice.file).len(),
        4_096,
        "what was behind is cut off"
    );
    // A waiter that is next or last needs no more than the page and a segment.
    assert!(twice.wholes < 20, "{} of {}", twice.wholes, twice.parts);
}

/// Each turn of a crowd reads and writes as much at 4,000 waiters as at 400.
#[test]
fn what_a_turn_writes_does_not_grow_with_the_list() {
    let written = |claims: u32| {
        let entry = list_of(claims);
        let twice = Twice::of(entry.clone());
        let first = entry.claims.first().expect("a holder").ticket;
        let file = borrow(&twice.file);
        let mut snapshot = pages::read(file, UNKNOWN).expect("a state");
        let want = Want::Own(first);
        for segments in partial::segments_for(&snapshot.text, want) {
            pages::fill(file, &mut snapshot.text, segments).expect("a segment");
        }
        let (mut part, rest) = partial::decode(&snapshot.text, want).expect("a part");
        part.leave(first, &Now::default());
        let list = rest.encode(&snapshot.text, &part).expect("a list");
        let lines: usize = list.iter().map(|piece| piece.lines().len()).sum();
        (lines, snapshot.text.named.len())
    };
    let (few, segments) = written(400);
    assert!(segments > 5, "{segments}");
    let (many, segments) = written(4_000);
    assert!(segments > 100, "{segments}");
    assert!(many < 2 * few && many < 20_000, "{few} and {many} bytes");
}

#[test]
fn claims_of_slots_and_giants_stand_in_segments_too() {
    let mut entry = list_of(300);
    for claim in &mut entry.claims {
        claim.mode = Mode::Shared;
    }
    for index in [0, 7, 150, 298, 299] {
        entry.claims[index].holder.why = "x".repeat(30_000);
    }
    let mut twice = Twice::of(entry);
    let now = Now::default();
    for index in [0, 6, 148, 294, 295] {
        let own = twice.entry.claims.get(index).expect("a claim").ticket;
        twice.change(Want::UpTo(own), |entry| entry.raise(entry.last + 1));
        twice.change(Want::Own(own), |entry| entry.leave(own, &now));
    }
    twice.change(Want::Ends, |entry| entry.raise(entry.last + 1));
}

#[test]
fn a_segment_that_another_program_wrote_over_makes_the_list_unreadable_and_a_new_list_can_follow() {
    let entry = list_of(300);
    let twice = Twice::of(entry.clone());
    let mut snapshot = pages::read(borrow(&twice.file), UNKNOWN).expect("the page is whole");
    let mut file = &twice.file;
    let start = SeekFrom::Start(SEGMENTS_START as u64);
    file.seek(start).expect("a place in it");
    file.write_all(b"?").expect("a write");
    let filled = pages::fill_all(borrow(&twice.file), &mut snapshot.text);
    assert!(matches!(filled, Err(ReadError::Torn(_))), "{filled:?}");
    let seen = pages::read_unguarded(borrow(&twice.file), UNKNOWN);
    assert!(matches!(seen, Err(ReadError::Torn(_))), "{seen:?}");
    let list = codec::encode(&entry).expect("a list");
    let written = pages::write(borrow(&twice.file), &snapshot, whole(list), Room::All);
    assert!(written.expect("a write"));
    assert_eq!(read(&twice.file).expect("a list"), entry);
}

/// What a build without segments finds: a whole page whose list it cannot read, so it refuses.
#[test]
fn a_page_with_segments_is_no_list_to_a_reader_that_knows_none() {
    let twice = Twice::of(list_of(300));
    let bytes = bytes_of(&twice.file);
    let text = String::from_utf8_lossy(&bytes);
    let page = text.split("tenure 1 ").nth(1).expect("a page");
    let (_, body) = page.split_once('\n').expect("a frame");
    assert!(body.starts_with("{\"segments\":["), "{body:.80}");
    assert!(codec::decode(body.as_bytes()).is_err());
}

/// A power failure may keep a page and lose a segment that it names.
#[test]
fn a_list_in_which_nobody_lives_is_read_without_the_waiters_of_a_damaged_segment() {
    let waiting = |granted: Option<usize>| {
        let mut entry = list_of(300);
        if let Some(index) = granted {
            entry.claims[index].token = Some(entry.last + 1);
            entry.raise(entry.last + 1);
        }
        let twice = Twice::of(entry);
        let file = borrow(&twice.file);
        let mut snapshot = pages::read(file, UNKNOWN).expect("a state");
        let segment = snapshot.text.named[3].clone();
        let mut open = &twice.file;
        let place = SeekFrom::Start(segment.range().start as u64);
        open.seek(place).expect("its place");
        open.write_all(&[0; 100]).expect("zeros");
        let filled = pages::fill_without_damage(file, &mut snapshot.text);
        filled.map(|()| {
            let list = codec::decode(&snapshot.text.bytes).expect("a list");
            (list.claims.len(), 300 - segment.claims, list.last)
        })
    };
    let (left, expected, last) = waiting(None).expect("the others");
    assert_eq!(left, expected);
    assert_eq!(last, list_of(300).last, "the counter stays");
    let in_it = list_of(300).claims.len() / 2;
    let granted = (0..300).find(|index| waiting(Some(*index)).is_err());
    assert!(
        granted.is_some_and(|index| index < in_it),
        "a holder is not passed over: {granted:?}"
    );
}

/// The bytes of a lock file that tenure 0.1.0 wrote when 60886a52 was its newest commit: a run holds, and 110 wait.
#[test]
fn a_list_in_segments_that_an_earlier_build_wrote_is_read_and_named_alike() {
    let page = include_bytes!("../../../tests/golden/segments/page");
    let segments = include_bytes!("../../../tests/golden/segments/segments");
    let mut bytes = vec![0; 4_096 * 3];
    bytes.extend_from_slice(page);
    bytes.resize(SEGMENTS_START, 0);
    bytes.extend_from_slice(segments);
    let file = file_of(&bytes);
    let entry = read(&file).expect("a list");
    assert_eq!((entry.claims.len(), entry.granted().count()), (111, 1));
    let unguarded = pages::read_unguarded(borrow(&file), UNKNOWN).expect("a list");
    assert_eq!(codec::decode(&unguarded.text.bytes), Ok(entry));
    let line = page.split(|byte| *byte == b'\n').nth(1).expect("a line");
    let text = Text::of_page(
        page.splitn(2, |byte| *byte == b'\n')
            .nth(1)
            .expect("a body")
            .to_vec(),
    );
    let at = text.gaps.first().expect("a gap").at;
    let named = line_of(&text.named, at);
    assert_eq!(named.strip_suffix(b"\n"), Some(line));
}

/// What another user may have written there: a reader takes no more memory than a list may have.
#[test]
fn an_index_that_names_too_much_or_one_place_twice_is_none() {
    let page = |segments: &str| {
        let text = format!("{{\"segments\":[{segments}],\"at\":0}}\n{{\"last\":9}}\n");
        !Text::of_page(text.into_bytes()).named.is_empty()
    };
    assert!(page("[0,8192,\"0\",1,1,0],[1,100,\"0\",1,2,0]"));
    for refused in [
        "[0,8192,\"0\",1,1,0],[0,100,\"0\",1,2,0]",
        "[0,8193,\"0\",1,1,0],[1,100,\"0\",1,2,0]",
        "[0,2097153,\"0\",1,1,0]",
        "[0,1100000,\"0\",1,1,0],[200,1100000,\"0\",1,2,0]",
        "[0,100,\"0\",101,1,0]",
        "[992,0,\"0\",0,1,0]",
        "[992,1,\"0\",1,1,0]",
        "[18446744073709551615,1,\"0\",1,1,0]",
        "[991,8193,\"0\",1,1,0]",
        "[0,100,\"0\",1,1,3]",
        "[0,100,\"g\",1,1,0]",
    ] {
        assert!(!page(refused), "{refused}");
    }
    assert!(page("[0,2097152,\"0\",1,1,0]"));
    assert!(page("[991,8192,\"0\",1,1,0]"));
}

#[test]
fn an_index_names_no_place_behind_the_list_of_its_page() {
    let list = "{\"last\":9}\n";
    let is_index = |at: usize| {
        let text = format!("{{\"segments\":[[0,1,\"0\",1,1,0]],\"at\":{at}}}\n{list}");
        !Text::of_page(text.into_bytes()).named.is_empty()
    };
    assert!(is_index(list.len()));
    assert!(!is_index(list.len() + 1));
}

/// A change that does without the other segments at first may need them after all.
#[test]
fn a_segment_from_the_middle_and_the_others_after_it_give_the_list() {
    let twice = Twice::of(list_of(300));
    let file = borrow(&twice.file);
    let text = &mut pages::read(file, UNKNOWN).expect("a state").text;
    let middle = text.named.len() / 2;
    pages::fill(file, text, middle..middle + 1).expect("a segment");
    pages::fill_all(file, text).expect("the others");
    assert_eq!(codec::decode(&text.bytes), Ok(twice.entry));
}

#[test]
fn a_caller_reads_all_claims_where_one_in_a_segment_is_no_plain_waiter() {
    let mut entry = list_of(300);
    entry.claims[150].mode = Mode::Shared;
    let mut twice = Twice::of(entry);
    let comes = |entry: &mut Entry| matches!(enter(entry, 999), Entering::Queued { .. });
    assert!(twice.change(Want::Ends, comes));
    assert_eq!((twice.parts, twice.wholes), (0, 1));
}

#[test]
fn a_list_is_split_up_by_eight_segments_more_than_twice_what_it_needs() {
    let small = vec![Segment::of(&[b'\n'; 100]); 20];
    let is_split_up = |segments: usize| {
        let two = Piece::Lines(Cow::Owned(vec![b'\n'; 2 * SLOT_BYTES]));
        is_split_up(&[two, Piece::Kept(&small[..segments])])
    };
    // With the small ones it needs three.
    assert!(!is_split_up(14));
    assert!(is_split_up(15));
}

/// Each change that makes a line longer may split a segment. The list is put together again before its segments fill
/// the file.
#[test]
fn a_list_whose_claims_grow_one_by_one_does_not_fall_to_pieces() {
    let mut twice = Twice::of(list_of(400));
    let tickets: Vec<u64> = twice
        .entry
        .claims
        .iter()
        .map(|claim| claim.ticket)
        .collect();
    let mut most = 0;
    for (number, ticket) in tickets.into_iter().rev().enumerate() {
        let grows = |entry: &mut Entry| {
            let claim = entry.claims.iter_mut().find(|claim| claim.ticket == ticket);
            claim
                .map(|claim| claim.holder.why.push_str(&"x".repeat(80)))
                .is_some()
        };
        if number % 3 == 0 {
            assert!(twice.change(Want::Own(ticket), grows));
        } else {
            // Grow without a look at each step.
            twice.quietly(Want::Own(ticket), grows);
        }
        let snapshot = pages::read(borrow(&twice.file), UNKNOWN).expect("a state");
        most = most.max(snapshot.text.named.len());
    }
    assert!((15..60).contains(&most), "{most} segments");
    assert_eq!(read(&twice.file).expect("a list"), twice.entry);
}

#[test]
fn a_page_keeps_up_to_ten_kibibytes_before_its_segments_and_eight_behind_them() {
    let kept = [Segment::of(b"a segment\n")];
    let before = Text {
        named: kept.to_vec(),
        ..Text::default()
    };
    let lines = |lengths: &[usize]| {
        let line = |length: &usize| [vec![b'x'; length - 1], vec![b'\n']].concat();
        Piece::Lines(Cow::Owned(lengths.iter().flat_map(line).collect()))
    };
    let laid_out = |front: &[usize], back: &[usize]| {
        let list = vec![lines(front), Piece::Kept(&kept), lines(back)];
        let layout = lay_out(list, &before).expect("room");
        let new = layout.new.iter().map(|(_, lines)| lines.len());
        let new: Vec<usize> = new.collect();
        (layout.page[1].len(), new, layout.page[2].len())
    };
    assert_eq!(laid_out(&[1_024; 10], &[1]), (10_240, vec![], 1));
    let eleven = [[1_024; 10].as_slice(), &[1]].concat();
    assert_eq!(laid_out(&eleven, &[1]), (4_096, vec![6_145], 1));
    assert_eq!(laid_out(&[1], &[1_024; 8]), (1, vec![], 8_192));
    let nine = [[1_024; 8].as_slice(), &[1]].concat();
    assert_eq!(laid_out(&[1], &nine), (1, vec![8_192], 1), "the last claim");
    assert_eq!(laid_out(&[1], &[8_193]), (1, vec![8_193], 0), "a long one");
}

/// The store writes no such list.
#[test]
fn a_list_that_begins_as_an_index_does_is_read_as_it_was_written() {
    let list = b"{\"segments\":[],\"at\":0}\n{\"last\":9}\n";
    for empty in [0, 1] {
        let mut pieces = whole(list.to_vec());
        pieces.splice(..0, (0..empty).flat_map(|_| whole(Vec::new())));
        let file = tempfile::tempfile().expect("a file");
        let written = pages::write(borrow(&file), &Snapshot::fresh(), pieces, Room::All);
        assert!(written.expect("a write"));
        let snapshot = pages::read(borrow(&file), UNKNOWN).expect("a state");
        assert_eq!(snapshot.text.bytes, list);
    }
}
