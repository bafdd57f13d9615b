//! Reads of a long list only the claims that a change is about, and writes the rest back as it stands.
//!
//! A change looks at few claims: its own, the one before it, those that hold. With a hundred waiters, a
//! hand-over would mostly consist of reading and writing all the others. The write takes their bytes from
//! where they were read instead. Of each, only three things are read: its ticket, whether it is granted, and whether it
//! is a plain waiter. The checksum over the whole shows that the bytes are what a writer wrote.
//!
//! `codec` defines the line of a claim.

use super::lines::{is_above, is_plain, number, ticket_of};
use super::segments::{Gap, Kind, Piece, Text};
use crate::codec::{self, Head, Marks};
use memchr::arch::all::memchr::One;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use tenure_core::{Entry, Host};

/// With fewer claims than this, reading all of them costs no more.
const SHORT: usize = 6;

/// A list with fewer bytes, mostly one of two claims, is not even looked through.
const SHORT_BYTES: usize = 1024;

/// How many waiters are read before an own one. A waiter with more of them before it is far from its turn.
const BEFORE_MAX: usize = 4;

/// The claims of a list to read for a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Want {
    /// All of them.
    All,
    /// The claim with this ticket.
    Own(u64),
    /// The claim with this ticket, all before it, and every granted one. Of a plain waiter far from its turn:
    /// that claim, the one directly before it, the first ones, and every granted one ([`Rest::before`]).
    UpTo(u64),
    /// The first, the last, and every granted one; only where all others are plain waiters.
    Ends,
}

/// What has to be known of the claims that were not read, so that they can be written back.
#[derive(Debug, Clone)]
pub(super) struct Rest {
    hosts: Vec<Arc<Host>>,
    /// What the header says of all claims, read or not.
    marks: Marks,
    /// Where the first claim's line begins.
    start: usize,
    /// The lines that were read, in their order.
    read: Vec<Line>,
    /// How many claims the list has.
    count: usize,
    /// The highest ticket in it.
    known: u64,
    /// How many claims before the own one were not read.
    before: usize,
}

/// The line of a claim that was read.
#[derive(Debug, Clone)]
struct Line {
    ticket: u64,
    /// Without its line break.
    range: Range<usize>,
}

impl Rest {
    /// How many claims were not read.
    pub(super) fn len(&self) -> usize {
        self.count.saturating_sub(self.read.len())
    }

    /// How many claims were not read that stand before the own one. [`Want::UpTo`] leaves out plain waiters there,
    /// and then only one finding holds for the whole list: the own claim has to wait, and nothing was swept. An
    /// exclusive claim sleeps behind the live claim directly before its own, whatever stands before that one. A claim for
    /// a slot counts live claims: if those that were read leave no room, all of them leave none. It sleeps until one
    /// of them has its turn or ends, and before that none of the claims behind has room. Any other finding needs the
    /// whole list.
    pub(super) fn before(&self) -> usize {
        self.before
    }

    /// The list after a change to the claims that were read, in parts. `before` is the list from which they
    /// were read. What the change left alone is lent from there in as few pieces as possible: with a
    /// thousand waiters a copy costs more than all the rest.
    ///
    /// # Errors
    /// - As [`codec::encode`].
    pub(super) fn encode<'b>(
        &self,
        before: &'b Text,
        entry: &Entry,
    ) -> Result<Vec<Piece<'b>>, codec::CodecError> {
        let mut hosts: Vec<&Host> = self.hosts.iter().map(AsRef::as_ref).collect();
        for claim in &entry.claims {
            if !hosts.contains(&&*claim.holder.host) {
                hosts.push(&*claim.holder.host);
            }
        }
        let mut parts = Parts {
            pieces: Vec::with_capacity(2 * (self.read.len() + before.gaps.len()) + 3),
            text: Vec::with_capacity(1_024),
            before,
            gaps: &before.gaps,
            at: self.start,
        };
        let marks = self.marks.and(Marks::of(&entry.claims));
        codec::write_head(&mut parts.text, entry, &hosts, marks)?;
        for line in &self.read {
            parts.lend_until(line.range.start);
            if let Some(claim) = entry.claim(line.ticket) {
                codec::write_claim(&mut parts.text, claim, &hosts);
            }
            parts.at = line.range.end + 1;
        }
        parts.lend_until(before.bytes.len());
        let Parts {
            mut pieces,
            mut text,
            ..
        } = parts;
        // New claims have the highest tickets.
        let new = entry.claims.iter();
        for claim in new.filter(|claim| claim.ticket > self.known) {
            codec::write_claim(&mut text, claim, &hosts);
        }
        pieces.push(Piece::Lines(Cow::Owned(text)));
        Ok(pieces)
    }
}

/// The parts of a list that is being written, in their order.
struct Parts<'b> {
    pieces: Vec<Piece<'b>>,
    /// What is written anew and stands in no piece yet.
    text: Vec<u8>,
    before: &'b Text,
    /// The gaps that are still to come.
    gaps: &'b [Gap],
    /// How far the list before is done.
    at: usize,
}

impl Parts<'_> {
    /// Takes over what stands before this place and was not read.
    fn lend_until(&mut self, end: usize) {
        while let Some((gap, later)) = self.gaps.split_first()
            && gap.at <= end
        {
            self.lend(gap.at);
            self.end_text();
            self.pieces.push(Piece::Kept(self.before.missing(gap)));
            self.gaps = later;
        }
        self.lend(end);
    }

    fn lend(&mut self, end: usize) {
        let unread = self.before.bytes.get(self.at..end).unwrap_or_default();
        if !unread.is_empty() {
            self.end_text();
            self.pieces.push(Piece::Lines(Cow::Borrowed(unread)));
        }
        self.at = self.at.max(end);
    }

    fn end_text(&mut self) {
        if !self.text.is_empty() {
            let text = std::mem::take(&mut self.text);
            self.pieces.push(Piece::Lines(Cow::Owned(text)));
        }
    }
}

/// The segments of a long list in which the wanted claims may stand: the page has one gap then. Behind a claim that
/// its waiter leaves, a segment and its neighbour may fit into one.
pub(super) fn segments_for(text: &Text, want: Want) -> [Range<usize>; 2] {
    const NONE: Range<usize> = 0..0;
    let (Some(gap), named) = (text.gaps.first(), &text.named) else {
        return [NONE; 2];
    };
    let (front, back) = text.bytes.split_at_checked(gap.at).unwrap_or_default();
    let last = named.len() - 1..named.len();
    let ticket = match want {
        Want::All => return [0..named.len(), NONE],
        Want::Ends => {
            let has_claims = One::new(b'\n')
                .find(front)
                .is_some_and(|end| end + 1 < front.len());
            return [
                if has_claims { NONE } else { 0..1 },
                if back.is_empty() { last } else { NONE },
            ];
        }
        Want::Own(ticket) | Want::UpTo(ticket) => ticket,
    };
    let is_turn = matches!(want, Want::UpTo(_));
    let behind = ticket_of(back).and_then(|(digits, _)| number(digits));
    if behind.is_some_and(|behind| behind <= ticket) {
        let is_directly_behind = is_turn && behind == Some(ticket);
        return [if is_directly_behind { last } else { NONE }, NONE];
    }
    let begun = named.partition_point(|segment| segment.first <= ticket);
    let Some(found) = begun.checked_sub(1) else {
        return [NONE; 2];
    };
    let is_first = named.get(found).is_some_and(|it| it.first == ticket);
    let fits = |one: usize, other: usize| {
        let both = named.get(one).zip(named.get(other));
        both.is_some_and(|(one, other)| one.fits_with(other))
    };
    let before = found.saturating_sub(1);
    let range = if is_turn {
        if is_first {
            before..begun
        } else {
            found..begun
        }
    } else if before < found && fits(before, found) {
        before..begun
    } else if fits(found, begun) {
        found..begun + 1
    } else {
        found..begun
    };
    [range, NONE]
}

/// Reads the wanted claims. `None` where the whole list has to be read: it is short, something in it is
/// out of the ordinary, or it cannot be understood. In the last case, reading all of it gives the better
/// error.
pub(super) fn decode(text: &Text, want: Want) -> Option<(Entry, Rest)> {
    let body = text.bytes.as_slice();
    if want == Want::All || (text.gaps.is_empty() && body.len() < SHORT_BYTES) {
        return None;
    }
    let head_end = One::new(b'\n').find(body)?;
    let start = head_end + 1;
    let LineChoice {
        read,
        count,
        known,
        before,
    } = choose(text, start, want)?;
    if count < SHORT {
        return None;
    }
    let Head {
        mut entry,
        hosts,
        marks,
    } = codec::read_head(body.get(..head_end)?).ok()?;
    // Reading and writing the whole list drops the hosts that no claim names any more.
    if hosts.len() > SHORT || known > entry.last {
        return None;
    }
    for line in &read {
        let text = body.get(line.range.clone())?;
        entry.claims.push(codec::read_claim(text, &hosts).ok()?);
    }
    let rest = Rest {
        hosts,
        marks,
        start,
        read,
        count,
        known,
        before,
    };
    Some((entry, rest))
}

/// The lines of the wanted claims, and what has to be known of the others.
struct LineChoice {
    read: Vec<Line>,
    count: usize,
    known: u64,
    before: usize,
}

/// Goes once over the lines of all claims, and keeps only the wanted ones.
fn choose(text: &Text, mut start: usize, want: Want) -> Option<LineChoice> {
    let (body, mut gaps) = (text.bytes.as_slice(), text.gaps.as_slice());
    let own = match want {
        Want::Own(ticket) | Want::UpTo(ticket) => ticket.to_string(),
        Want::All | Want::Ends => String::new(),
    };
    let mut read: Vec<Line> = Vec::new();
    let mut has_own = false;
    let (mut count, mut known): (usize, &[u8]) = (0, b"");
    // The line that was seen last, if it was not read: it may be the last of all (`Want::Ends`), or the one
    // directly before the own one (`Want::UpTo`).
    let mut seen: Option<Range<usize>> = None;
    let mut before = 0;
    // `memchr::memchr` asks the processor for its registers first, which takes longer than a look at a short list.
    let line_break = One::new(b'\n');
    loop {
        let mut is_behind_gap = false;
        if let Some((gap, later)) = gaps.split_first()
            && gap.at == start
        {
            if count == 0 && want == Want::Ends {
                // The first claim stands in it.
                return None;
            }
            count += passed(text, gap, want, seen.take())?;
            (is_behind_gap, gaps) = (true, later);
        }
        if start >= body.len() {
            // Of the claims in a gap at the end, the last one is wanted.
            if is_behind_gap && want == Want::Ends {
                return None;
            }
            break;
        }
        let length = line_break.find(body.get(start..)?)?;
        let range = start..start + length;
        let text = body.get(range.clone())?;
        let (ticket, is_granted) = ticket_of(text)?;
        if !is_above(ticket, known) {
            return None;
        }
        let is_own = ticket == own.as_bytes();
        let is_read = match want {
            Want::All => return None,
            Want::Own(_) => is_own,
            // The one directly before it was not read.
            Want::UpTo(_) if is_own && is_behind_gap => return None,
            Want::UpTo(_) if is_own => {
                if let Some(directly_before) = seen.take() {
                    if !is_plain(body.get(directly_before.clone())?) {
                        return None;
                    }
                    read.push(Line {
                        ticket: number(known)?,
                        range: directly_before,
                    });
                }
                before = count.saturating_sub(read.len());
                if before > 0 && !is_plain(text) {
                    return None;
                }
                true
            }
            Want::UpTo(_) => is_granted || (!has_own && count <= BEFORE_MAX),
            Want::Ends => {
                if let Some(between) = seen.take()
                    && !is_plain(body.get(between)?)
                {
                    return None;
                }
                count == 0 || is_granted
            }
        };
        has_own |= is_own;
        if is_read {
            seen = None;
            let ticket = number(ticket)?;
            read.push(Line { ticket, range });
        } else {
            seen = Some(range);
        }
        known = ticket;
        count += 1;
        start += length + 1;
    }
    if !gaps.is_empty() {
        return None;
    }
    let known = number(known)?;
    if let Some(range) = seen.filter(|_| want == Want::Ends) {
        before = count.saturating_sub(read.len() + 1);
        read.push(Line {
            ticket: known,
            range,
        });
    }
    (has_own || want == Want::Ends).then_some(LineChoice {
        read,
        count,
        known,
        before,
    })
}

/// How many claims stand in a gap, if a change can do without them and without the one that was `seen` before it.
fn passed(text: &Text, gap: &Gap, want: Want, seen: Option<Range<usize>>) -> Option<usize> {
    let most = match want {
        Want::All => return None,
        Want::Own(_) => Kind::Any,
        // Each granted claim is wanted.
        Want::UpTo(_) => Kind::Waiters,
        Want::Ends => Kind::Plain,
    };
    let missing = text.missing(gap);
    let is_fine = match seen.filter(|_| want == Want::Ends) {
        Some(between) => is_plain(text.bytes.get(between)?),
        None => true,
    };
    (is_fine && missing.iter().all(|segment| segment.kind <= most))
        .then(|| missing.iter().map(|segment| segment.claims).sum())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use tenure_core::{
        Claim, Entering, Force, Holder, Host, Mode, Now, Patience, Policy, Process, Request,
        RequestId, Terms,
    };

    pub(in super::super) fn request(number: u32) -> Request {
        Request {
            holder: Holder {
                request_id: RequestId::new(format!("r{number}")).expect("an id"),
                actor: "somebody".into(),
                process: Some(Process {
                    pid: number + 1,
                    started: Some(7),
                }),
                command: None,
                host: Arc::new(Host {
                    // Three machines take turns.
                    name: format!("host-{}", number % 3),
                    ..Host::default()
                }),
                why: "it says \"away\":{\"ttl_ms\":7} and \"token\":1\nand more}".into(),
                facts: Vec::new(),
            },
            kind: tenure_core::Kind::Kernel,
            ttl_ms: 30_000,
            force: Force::No,
            patience: Patience::Queue,
            terms: Terms {
                grace_ms: u64::from(number % 2) * 10_000,
                ..Terms::default()
            },
        }
    }

    pub(in super::super) fn lives(_: &Claim) -> tenure_core::Evidence {
        tenure_core::Evidence {
            liveness_lock: tenure_core::LivenessLock::Held,
            process: tenure_core::Liveness::Alive,
            command: tenure_core::Liveness::NotRecorded,
        }
    }

    pub(in super::super) fn enter(entry: &mut Entry, number: u32) -> Entering {
        let now = Now::default();
        entry.enter(
            &Policy::NATIVE,
            request(number),
            &now,
            lives,
            &mut Vec::new(),
        )
    }

    /// A list of so many claims, the first of which holds.
    pub(in super::super) fn list_of(claims: u32) -> Entry {
        let mut entry = Entry::default();
        for number in 0..claims {
            enter(&mut entry, number);
        }
        entry
    }

    fn text_of(body: Vec<u8>) -> Text {
        Text::of_page(body)
    }

    fn body(entry: &Entry) -> Text {
        text_of(codec::encode(entry).expect("a body"))
    }

    fn ticket(entry: &Entry, index: usize) -> u64 {
        entry.claims[index].ticket
    }

    /// A claim for a slot counts others, so a part may know less than all. It never grants what all would not, and what it
    /// makes wait, all make wait.
    #[test]
    fn a_waiter_for_a_slot_waits_by_a_part_only_where_it_waits_by_all() {
        let now = Now::default();
        let enter = |entry: &mut Entry, number: u32, mode: Mode| {
            let request = request(number);
            let terms = Terms {
                mode,
                ..request.terms
            };
            let request = Request { terms, ..request };
            entry.enter(&Policy::NATIVE, request, &now, lives, &mut Vec::new())
        };
        let slots = Mode::Slots(std::num::NonZeroU32::new(4).expect("a number"));
        let looks = |entry: &Entry, own: u64| {
            let mut entry = entry.clone();
            entry.try_grant(&Policy::NATIVE, own, &now, lives, &mut Vec::new())
        };
        let mut by_part = 0;
        for odd in [None, Some(0), Some(6), Some(12), Some(29)] {
            for ended in 0..=4 {
                let mut entry = Entry::default();
                for number in 0..30 {
                    let mode = if odd == Some(number) {
                        Mode::Exclusive
                    } else {
                        slots
                    };
                    enter(&mut entry, number, mode);
                }
                let granted: Vec<u64> = entry.granted().map(|claim| claim.ticket).collect();
                for ticket in granted.into_iter().take(ended) {
                    entry.leave(ticket, &now);
                }
                let waiting = entry.claims.iter().filter(|claim| claim.token.is_none());
                for own in waiting.map(|claim| claim.ticket) {
                    let Some((part, rest)) = decode(&body(&entry), Want::UpTo(own)) else {
                        continue;
                    };
                    let is_behind = |entry: &Entry| {
                        let looks = looks(entry, own);
                        matches!(looks, tenure_core::TryGrant::Behind(_))
                    };
                    if rest.before() > 0 && is_behind(&part) {
                        assert!(is_behind(&entry), "{odd:?} {ended} {own}");
                        by_part += 1;
                    }
                }
                // A newcomer, by the ends.
                let last = entry.claims.last().map(|claim| claim.ticket);
                if let Some((mut part, _)) = decode(&body(&entry), Want::Ends) {
                    let queues = enter(&mut part, 99, slots).queues_behind(last);
                    let mut all = entry.clone();
                    let entering = enter(&mut all, 99, slots);
                    let waits = matches!(entering, Entering::Queued { .. });
                    assert!(!queues || waits, "{odd:?} {ended}: {entering:?}");
                    by_part += usize::from(queues);
                }
            }
        }
        assert!(by_part > 400, "parts are enough for most: {by_part}");
    }

    /// A shared claim and one that was passed say more than their ttl and their slots.
    #[test]
    fn the_line_of_a_plain_waiter_ends_with_its_ttl_its_slots_and_its_grace() {
        for (end, is_one) in [
            (",\"ttl_ms\":30000}", true),
            (",\"ttl_ms\":30000,\"slots\":4}", true),
            (",\"ttl_ms\":30000,\"slots\":40,\"grace_ms\":10000}", true),
            (",\"ttl_ms\":30000,\"grace_ms\":10000}", true),
            (",\"ttl_ms\":30000,\"slots\":0}", false),
            (",\"ttl_ms\":30000,\"slots\":0,\"grace_ms\":1}", false),
            (",\"ttl_ms\":30000,\"force\":\"asked\",\"slots\":4}", false),
            (",\"ttl_ms\":30000,\"slots\":4,\"queue\":\"max\"}", false),
            (",\"ttl_ms\":30000,\"slots\":4,\"aside_ms\":1}", false),
            (",\"slots\":4}", false),
        ] {
            assert_eq!(is_plain(end.as_bytes()), is_one, "{end}");
        }
    }

    /// Makes a change to a part and to the whole list: both have to give the same answer and the same
    /// list. Returns the written text.
    fn same_either_way<A: PartialEq + std::fmt::Debug>(
        entry: &Entry,
        want: Want,
        change: impl Fn(&mut Entry) -> A,
    ) -> String {
        let before = body(entry);
        let (mut part, rest) = decode(&before, want).expect("a part is enough");
        assert!(rest.len() > 0, "something was left out");
        assert_eq!(part.claims.len() + rest.len(), entry.claims.len());
        let answer = change(&mut part);
        let pieces = rest.encode(&before, &part).expect("a body");
        let written: Vec<u8> = pieces.iter().flat_map(Piece::lines).copied().collect();
        let mut whole = entry.clone();
        assert_eq!(answer, change(&mut whole), "{want:?}");
        let read = codec::decode(&written).expect("a list");
        assert_eq!(read, whole, "{want:?}");
        String::from_utf8(written).expect("text")
    }

    #[test]
    fn a_change_to_an_own_claim_leaves_all_others_as_they_are() {
        let entry = list_of(12);
        for index in [0, 1, 5, 11] {
            let own = ticket(&entry, index);
            same_either_way(&entry, Want::Own(own), |entry| {
                let command = Process {
                    pid: 9,
                    started: None,
                };
                assert!(entry.name_command(own, command));
            });
            same_either_way(&entry, Want::Own(own), |entry| {
                entry.leave(own, &Now::default())
            });
        }
    }

    #[test]
    fn whoever_is_next_is_granted_without_a_look_at_those_behind() {
        let mut entry = list_of(12);
        let now = Now::default();
        entry.leave(ticket(&entry, 0), &now);
        let own = ticket(&entry, 0);
        same_either_way(&entry, Want::UpTo(own), |entry| {
            let granted = entry.try_grant(&Policy::NATIVE, own, &now, lives, &mut Vec::new());
            assert!(matches!(granted, tenure_core::TryGrant::Granted { .. }));
            granted
        });
    }

    #[test]
    fn whoever_is_far_from_its_turn_reads_the_claim_directly_before_its_own() {
        let entry = list_of(12);
        let now = Now::default();
        let own = ticket(&entry, 9);
        same_either_way(&entry, Want::UpTo(own), |entry| {
            let behind = entry.try_grant(&Policy::NATIVE, own, &now, lives, &mut Vec::new());
            assert!(matches!(behind, tenure_core::TryGrant::Behind(_)));
            behind
        });
        let (part, rest) = decode(&body(&entry), Want::UpTo(own)).expect("a part");
        let read: Vec<usize> = (0..12)
            .filter(|index| part.claim(ticket(&entry, *index)).is_some())
            .collect();
        assert_eq!(read, [0, 1, 2, 3, 4, 8, 9]);
        assert_eq!((rest.before(), rest.len()), (3, 5));
        let (_, rest) = decode(&body(&entry), Want::UpTo(ticket(&entry, 6))).expect("a part");
        assert_eq!(rest.before(), 0, "all of them are read");
        // A claim that holds directly before it is read in any case.
        let mut entry = entry;
        entry.claims[8].token = Some(entry.last + 1);
        entry.raise(entry.last + 2);
        let (part, rest) = decode(&body(&entry), Want::UpTo(own)).expect("a part");
        assert_eq!(part.granted().count(), 2);
        assert_eq!(rest.before(), 3);
    }

    #[test]
    fn whoever_comes_last_queues_without_a_look_at_those_between() {
        same_either_way(&list_of(12), Want::Ends, |entry| {
            let entered = enter(entry, 99);
            assert!(matches!(entered, Entering::Queued { .. }));
            entered
        });
        // No claim holds for an instant, and a refusal names the first waiter.
        let mut between = list_of(12);
        between.leave(ticket(&between, 0), &Now::default());
        same_either_way(&between, Want::Ends, |entry| {
            let at_once = Request {
                patience: Patience::AtOnce,
                ..request(99)
            };
            let now = Now::default();
            entry.enter(&Policy::NATIVE, at_once, &now, lives, &mut Vec::new())
        });
    }

    #[test]
    fn whoever_comes_from_another_host_brings_its_name_and_nobody_else_does() {
        for (name, hosts) in [("host-0", 3), ("elsewhere", 4)] {
            let written = same_either_way(&list_of(12), Want::Ends, |entry| {
                let mut comes = request(99);
                Arc::make_mut(&mut comes.holder.host).name = name.into();
                let now = Now::default();
                entry.enter(&Policy::NATIVE, comes, &now, lives, &mut Vec::new())
            });
            let head = written.lines().next().expect("a header");
            assert_eq!(head.matches("\"name\":").count(), hosts, "{head}");
        }
    }

    #[test]
    fn few_claims_many_hosts_and_a_ticket_that_was_never_drawn_are_for_the_whole_list() {
        let is_part = |entry: &Entry| decode(&body(entry), Want::Ends).is_some();
        assert!(!is_part(&list_of(5)), "few");
        assert!(is_part(&list_of(6)));
        let from_hosts = |hosts: usize| {
            let mut entry = list_of(12);
            for (number, claim) in entry.claims.iter_mut().enumerate() {
                Arc::make_mut(&mut claim.holder.host).name = format!("host-{}", number % hosts);
            }
            entry
        };
        assert!(is_part(&from_hosts(6)));
        assert!(!is_part(&from_hosts(7)), "many hosts");
        let mut drawn = list_of(12);
        drawn.last = ticket(&drawn, 11);
        assert!(is_part(&drawn), "the last one was drawn");
        drawn.last -= 1;
        assert!(!is_part(&drawn), "the last one was not");
    }

    #[test]
    fn a_list_in_which_anything_is_out_of_the_ordinary_is_read_as_a_whole() {
        let plain = list_of(12);
        assert!(decode(&body(&plain), Want::Ends).is_some());
        assert!(decode(&body(&plain), Want::All).is_none());
        let own = ticket(&plain, 11);
        assert!(decode(&body(&plain), Want::UpTo(own)).is_some());
        for index in [10, 11] {
            let mut entry = plain.clone();
            entry.claims[index].queueing = tenure_core::Queueing::Single;
            assert!(
                decode(&body(&entry), Want::UpTo(own)).is_none(),
                "far back, and claim {index} is no plain waiter"
            );
        }
        for index in [1, 2] {
            let mut entry = plain.clone();
            entry.claims[index].queueing = tenure_core::Queueing::Single;
            assert!(
                decode(&body(&entry), Want::UpTo(ticket(&entry, 2))).is_some(),
                "all before it are read, whatever claim {index} is"
            );
        }
        assert!(
            decode(&body(&plain), Want::Own(own + 1)).is_none(),
            "not there"
        );
        assert!(decode(&body(&list_of(3)), Want::Ends).is_none(), "short");
        let change: [fn(&mut Claim); 5] = [
            |claim| claim.mode = Mode::Shared,
            |claim| claim.queueing = tenure_core::Queueing::Single,
            |claim| claim.force = Force::Asked,
            |claim| {
                claim.cancel = Some(tenure_core::Cancel {
                    by: "x".into(),
                    ..tenure_core::Cancel::default()
                });
            },
            |claim| {
                claim.reservation = Some(tenure_core::Reservation {
                    since: tenure_core::Stamp::default(),
                    grace_ms: 1,
                });
            },
        ];
        for (index, change) in change.iter().enumerate() {
            let mut entry = plain.clone();
            change(&mut entry.claims[5]);
            assert!(
                decode(&body(&entry), Want::Ends).is_none(),
                "change {index}"
            );
        }
        // A holder behind an own claim is read with it.
        let mut entry = plain.clone();
        entry.claims[8].token = Some(entry.last + 1);
        entry.raise(entry.last + 2);
        let (part, _) = decode(&body(&entry), Want::UpTo(ticket(&entry, 1))).expect("a part");
        assert_eq!(part.granted().count(), 2);
    }

    #[test]
    fn what_is_no_list_is_no_part() {
        let whole = body(&list_of(12)).bytes;
        for end in 0..whole.len() {
            if let Some((part, rest)) = decode(&text_of(whole[..end].to_vec()), Want::Ends) {
                let claims = part.claims.len() + rest.len();
                assert!(claims < 12, "cut at {end}, and all of it is there");
            }
        }
        let whole = String::from_utf8(whole).expect("text");
        let lines: Vec<&str> = whole.lines().collect();
        let is_part = |change: fn(&mut Vec<&str>)| {
            let mut changed = lines.clone();
            change(&mut changed);
            let body = changed.join("\n") + "\n";
            decode(&text_of(body.into_bytes()), Want::Ends).is_some()
        };
        assert!(is_part(|_| {}));
        assert!(!is_part(|lines| lines.swap(3, 4)), "out of order");
        assert!(!is_part(|lines| lines[4] = lines[3]), "one ticket twice");
    }

    #[test]
    fn a_list_of_few_bytes_is_read_as_a_whole_and_of_a_longer_one_the_ends() {
        let list = list_of(6);
        let is_part = |bytes: usize| {
            let mut list = list.clone();
            for claim in &mut list.claims {
                (claim.holder.actor, claim.holder.why) = ("a".into(), String::new());
            }
            let length = body(&list).bytes.len();
            list.claims[3].holder.why = "x".repeat(bytes - length);
            let text = body(&list);
            assert_eq!(text.bytes.len(), bytes);
            decode(&text, Want::Ends).is_some()
        };
        assert!(!is_part(SHORT_BYTES - 1));
        assert!(is_part(SHORT_BYTES));
        assert!(is_part(SHORT_BYTES + 1));
    }

    /// Segments that begin with the claims 10, 20 and 30, between the claims 1 and 40. The first two fit into one.
    fn in_segments(front: &str, back: &str) -> Text {
        let head = "{\"last\":99}\n";
        let segments = "[0,100,\"0\",1,10,0],[1,100,\"0\",1,20,0],[2,8192,\"0\",30,30,0]";
        let at = head.len() + front.len();
        let page = format!("{{\"segments\":[{segments}],\"at\":{at}}}\n{head}{front}{back}");
        text_of(page.into_bytes())
    }

    #[test]
    fn a_change_reads_the_segments_in_which_its_claims_may_stand() {
        let (first, last) = ("{\"ticket\":1,\n", "{\"ticket\":40,\n");
        let text = in_segments(first, last);
        let read = |text: &Text, want| {
            let ranges = segments_for(text, want).into_iter();
            ranges.flatten().collect::<Vec<_>>()
        };
        let none: [usize; 0] = [];
        assert_eq!(read(&text, Want::All), [0, 1, 2]);
        for (ticket, own, turn) in [
            (1, &none[..], &none[..]),
            (9, &none, &none),
            (10, &[0, 1], &[0]),
            (11, &[0, 1], &[0]),
            (20, &[0, 1], &[0, 1]),
            (29, &[0, 1], &[1]),
            (30, &[2], &[1, 2]),
            (39, &[2], &[2]),
            // The claim directly before it is the last one of the last segment.
            (40, &none, &[2]),
            (41, &none, &none),
        ] {
            assert_eq!(read(&text, Want::Own(ticket)), own, "own {ticket}");
            assert_eq!(read(&text, Want::UpTo(ticket)), turn, "up to {ticket}");
        }
        assert_eq!(read(&text, Want::Ends), none);
        assert_eq!(read(&in_segments("", last), Want::Ends), [0]);
        assert_eq!(read(&in_segments(first, ""), Want::Ends), [2]);
        assert_eq!(read(&in_segments("", ""), Want::Ends), [0, 2]);
        let no_back = in_segments(first, "");
        assert_eq!(read(&no_back, Want::Own(40)), [2]);
        let whole = text_of(first.into());
        assert_eq!(read(&whole, Want::All), none);
    }

    /// The line of a waiter.
    fn waiter(ticket: u64) -> String {
        let who = "\"request_id\":\"a\",\"actor\":\"b\",\"why\":\"c\"";
        format!(
            "{{\"ticket\":{ticket},{who},\"entered_ms\":1,\"entered_boot_ms\":1,\"ttl_ms\":1}}\n"
        )
    }

    #[test]
    fn a_part_with_gaps_counts_what_stands_in_them_and_sleeps_behind_none_of_it() {
        let host = |page: Text| {
            let mut page = page;
            let head = "{\"last\":99,\"hosts\":[{\"name\":\"h\"}]}\n";
            let old = page
                .bytes
                .iter()
                .position(|byte| *byte == b'\n')
                .expect("a header")
                + 1;
            page.bytes.splice(..old, head.bytes());
            for gap in &mut page.gaps {
                gap.at = gap.at + head.len() - old;
            }
            page
        };
        let between = waiter(1) + &waiter(2);
        let text = host(in_segments(&between, &(waiter(40) + &waiter(41))));
        let part = |text: &Text, want| {
            decode(text, want).map(|(part, rest)| {
                let read: Vec<u64> = part.claims.iter().map(|claim| claim.ticket).collect();
                (read, rest.len(), rest.before())
            })
        };
        assert_eq!(part(&text, Want::Own(2)), Some((vec![2], 35, 0)));
        assert_eq!(part(&text, Want::Own(41)), Some((vec![41], 35, 0)));
        assert_eq!(part(&text, Want::Ends), Some((vec![1, 41], 34, 34)));
        assert_eq!(part(&text, Want::UpTo(2)), Some((vec![1, 2], 34, 0)));
        assert_eq!(
            part(&text, Want::UpTo(41)),
            Some((vec![1, 2, 40, 41], 32, 32))
        );
        assert_eq!(
            part(&text, Want::UpTo(40)),
            None,
            "who is before it was not read"
        );
        let no_back = host(in_segments(&between, ""));
        assert_eq!(part(&no_back, Want::Own(1)), Some((vec![1], 33, 0)));
        assert_eq!(
            part(&no_back, Want::Ends),
            None,
            "the last one was not read"
        );
        let no_front = host(in_segments("", &waiter(41)));
        assert_eq!(part(&no_front, Want::Own(41)), Some((vec![41], 32, 0)));
        assert_eq!(
            part(&no_front, Want::Ends),
            None,
            "the first one was not read"
        );
        // Of other kinds, only a change to an own claim can do without.
        for (kind, turn) in [(Kind::Waiters, true), (Kind::Any, false)] {
            let mut text = text.clone();
            text.named[1].kind = kind;
            assert!(part(&text, Want::Own(2)).is_some());
            assert_eq!(part(&text, Want::UpTo(2)).is_some(), turn, "{kind:?}");
            assert!(part(&text, Want::Ends).is_none(), "{kind:?}");
        }
        // The claim before a gap is one of those between the ends.
        let mut odd = waiter(2).replace(",\"ttl_ms\":1}", ",\"ttl_ms\":1,\"slots\":0}");
        odd.insert_str(0, &waiter(1));
        assert!(part(&host(in_segments(&odd, &waiter(41))), Want::Ends).is_none());
        let mut nowhere = text.clone();
        nowhere.gaps[0].at += 1;
        assert!(
            part(&nowhere, Want::Own(2)).is_none(),
            "a gap within a line"
        );
    }
}
