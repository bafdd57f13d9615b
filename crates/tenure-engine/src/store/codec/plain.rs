//! The lines of a list as tenure writes them, without a parser for all of JSON.
//!
//! Most lines are a header and plain claims, with their keys in one order and nothing to escape. Reading and
//! writing these is most of what an acquire and a release do outside of the kernel. So this file knows that one
//! form. A line in any other form is left to the parser: keys in another order or unknown ones, an escape,
//! space, and claims with terms beyond the plain ones.
//!
//! **Nothing is decided here.** What is read has the meaning that the parser gives to the same bytes, and what
//! is written has the bytes that the serializer gives. The tests compare both, on lines that are not quite in
//! that form as well.

use super::{ClaimLine, Header, HostLine};
use crate::find::{behind, eight_digits, find};
use std::borrow::Cow;

/// Whether any byte is such a one. Asking all of them at once takes less time than stopping at the first.
fn has(bytes: &[u8], is_such: impl Fn(u8) -> bool) -> bool {
    bytes.iter().fold(false, |has, byte| has | is_such(*byte))
}

/// How many digits a number may have so that it fits whatever they are.
const DIGITS_MAX: usize = 19;

/// The number that a digit stands for.
pub(in crate::store) fn digit<const BASE: u64>(byte: u8) -> Option<u64> {
    match byte {
        b'0'..=b'9' => Some((byte - b'0').into()),
        b'a'..=b'f' if BASE == 16 => Some((byte - b'a' + 10).into()),
        _ => None,
    }
}

/// Reads along a line.
pub(in crate::store) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(in crate::store) fn new(line: &'a [u8]) -> Self {
        Self { rest: line }
    }

    /// Goes past this text, if it stands here.
    pub(in crate::store) fn skip(&mut self, text: &str) -> bool {
        match behind(text.as_bytes(), self.rest) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    pub(in crate::store) fn passes(&mut self, text: &str) -> Option<()> {
        self.skip(text).then_some(())
    }

    /// How many bytes are left.
    pub(in crate::store) fn left(&self) -> usize {
        self.rest.len()
    }

    /// The next byte.
    pub(in crate::store) fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*byte)
    }

    /// Goes past this byte, if it stands here.
    pub(in crate::store) fn is_byte(&mut self, byte: u8) -> Option<()> {
        (self.byte()? == byte).then_some(())
    }

    /// So many digits of four bits each.
    pub(in crate::store) fn sum<const DIGITS: usize>(&mut self) -> Option<u64> {
        let (digits, rest) = self.rest.split_first_chunk::<DIGITS>()?;
        let mut sum = 0_u64;
        for byte in digits {
            sum = sum << 4 | digit::<16>(*byte)?;
        }
        self.rest = rest;
        Some(sum)
    }

    /// A whole number, as every writer writes one. What follows it is looked at by the next call: a fraction
    /// or an exponent is nothing that may stand there.
    fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        let mut length = 0;
        let mut rest = self.rest;
        // Tickets and times have thirteen digits and more.
        while let Some((digits, behind)) = rest.split_first_chunk::<8>()
            && let Some(eight) = eight_digits(*digits)
        {
            number = number.wrapping_mul(100_000_000).wrapping_add(eight);
            length += digits.len();
            rest = behind;
        }
        for byte in rest {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            number = number.wrapping_mul(10).wrapping_add(digit.into());
            length += 1;
        }
        let (digits, rest) = self.rest.split_at_checked(length)?;
        // Any number of so many digits fits. The parser knows which longer ones do.
        if length > DIGITS_MAX || matches!(digits, [] | [b'0', _, ..]) {
            return None;
        }
        self.rest = rest;
        Some(number)
    }

    /// The number in front of this byte. Goes past both.
    pub(in crate::store) fn number_before(&mut self, end: u8) -> Option<u64> {
        let number = self.number()?;
        self.is_byte(end)?;
        Some(number)
    }

    /// Goes no further: nothing stands here that any call goes past, nor is it the end.
    fn stop(&mut self) {
        self.rest = b"\0";
    }

    /// The number behind a key, if the key stands here. With anything else behind it the line is not plain.
    pub(in crate::store) fn numbered<T: TryFrom<u64>>(&mut self, key: &str) -> Option<T> {
        if !self.skip(key) {
            return None;
        }
        let number = self.number().and_then(|number| T::try_from(number).ok());
        if number.is_none() {
            self.stop();
        }
        number
    }

    /// A text in quotes in which nothing is escaped.
    fn text(&mut self) -> Option<Cow<'a, str>> {
        self.passes("\"")?;
        let length = find(b'"', self.rest)?;
        let (text, rest) = self.rest.split_at_checked(length)?;
        if has(text, |byte| matches!(byte, b'\\' | 0..0x20)) {
            return None;
        }
        self.rest = rest.strip_prefix(b"\"")?;
        std::str::from_utf8(text).ok().map(Cow::Borrowed)
    }

    /// The text behind a key, likewise.
    fn named(&mut self, key: &str) -> Option<Cow<'a, str>> {
        if !self.skip(key) {
            return None;
        }
        let text = self.text();
        if text.is_none() {
            self.stop();
        }
        text
    }

    /// The items of a list, up to its end. The list has begun.
    fn items<T>(&mut self, item: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.skip(",") {
            items.push(item(self)?);
        }
        self.passes("]")?;
        Some(items)
    }

    pub(in crate::store) fn end(&self) -> Option<()> {
        self.rest.is_empty().then_some(())
    }
}

/// Reads a header's line, if it is in the plain form.
pub(super) fn header(line: &[u8]) -> Option<Header<'_>> {
    let mut at = Cursor::new(line);
    at.passes("{\"last\":")?;
    let header = Header {
        last: at.number()?,
        holds: at.numbered(",\"holds\":").unwrap_or_default(),
        mean_hold_ms: at.numbered(",\"mean_hold_ms\":").unwrap_or_default(),
        ended_ms: at.numbered(",\"ended_ms\":"),
        ended_boot_ms: at.numbered(",\"ended_boot_ms\":"),
        hosts: if at.skip(",\"hosts\":[") {
            at.items(host)?
        } else {
            Vec::new()
        },
    };
    at.passes("}")?;
    at.end()?;
    Some(header)
}

fn host<'a>(at: &mut Cursor<'a>) -> Option<HostLine<'a>> {
    at.passes("{\"name\":")?;
    let host = HostLine {
        name: at.text()?,
        machine_id: at.named(",\"machine_id\":"),
        boot_id: at.named(",\"boot_id\":"),
        pid_namespace: at.numbered(",\"pid_namespace\":"),
    };
    at.passes("}")?;
    Some(host)
}

/// Reads a claim's line, if it is in the plain form.
pub(super) fn claim(line: &[u8]) -> Option<ClaimLine<'_>> {
    let mut at = Cursor::new(line);
    at.passes("{\"ticket\":")?;
    let claim = ClaimLine {
        ticket: at.number()?,
        token: at.numbered(",\"token\":"),
        detached: at.skip(",\"detached\":true"),
        request_id: at.named(",\"request_id\":")?,
        pid: at.numbered(",\"pid\":"),
        started: at.numbered(",\"started\":"),
        command_pid: at.numbered(",\"command_pid\":"),
        command_started: at.numbered(",\"command_started\":"),
        actor: at.named(",\"actor\":")?,
        host: at.numbered(",\"host\":").unwrap_or_default(),
        why: at.named(",\"why\":")?,
        entered_ms: at.numbered(",\"entered_ms\":")?,
        entered_boot_ms: at.numbered(",\"entered_boot_ms\":")?,
        since_ms: at.numbered(",\"since_ms\":"),
        since_boot_ms: at.numbered(",\"since_boot_ms\":"),
        renewed_ms: at.numbered(",\"renewed_ms\":"),
        renewed_boot_ms: at.numbered(",\"renewed_boot_ms\":"),
        renewals: at.numbered(",\"renewals\":").unwrap_or_default(),
        facts: if at.skip(",\"facts\":[") {
            at.items(|at| {
                at.passes("[")?;
                let key = at.text()?;
                at.passes(",")?;
                let value = at.text()?;
                at.passes("]")?;
                Some((key, value))
            })?
        } else {
            Vec::new()
        },
        ttl_ms: at.numbered(",\"ttl_ms\":")?,
        force: None,
        slots: at.numbered(",\"slots\":"),
        queue: None,
        grace_ms: at.numbered(",\"grace_ms\":").unwrap_or_default(),
        cancel: None,
        reservation: None,
        waiting_for: None,
        aside_ms: None,
        aside_boot_ms: None,
    };
    at.passes("}")?;
    at.end()?;
    Some(claim)
}

/// Writes a number as decimal digits.
pub(in crate::store) fn push_number(bytes: &mut Vec<u8>, number: u64) {
    bytes.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Writes along a line.
struct Writer<'a> {
    body: &'a mut Vec<u8>,
}

impl Writer<'_> {
    fn raw(&mut self, text: &str) {
        self.body.extend_from_slice(text.as_bytes());
    }

    fn number(&mut self, number: u64) {
        push_number(self.body, number);
    }

    fn numbered(&mut self, key: &str, number: impl Into<Option<u64>>) {
        if let Some(number) = number.into() {
            self.raw(key);
            self.number(number);
        }
    }

    fn text(&mut self, text: &str) -> Result<(), serde_json::Error> {
        let is_escaped = |byte: u8| matches!(byte, b'"' | b'\\' | 0..0x20);
        if has(text.as_bytes(), is_escaped) {
            return serde_json::to_writer(&mut *self.body, text);
        }
        self.raw("\"");
        self.raw(text);
        self.raw("\"");
        Ok(())
    }

    fn named(&mut self, key: &str, text: Option<&str>) -> Result<(), serde_json::Error> {
        if let Some(text) = text {
            self.raw(key);
            self.text(text)?;
        }
        Ok(())
    }
}

/// A number that is left out if it is 0.
fn some(number: u64) -> Option<u64> {
    (number > 0).then_some(number)
}

/// Writes a header's line.
///
/// # Errors
/// - Those of the serializer for texts.
pub(super) fn write_header(
    body: &mut Vec<u8>,
    header: &Header<'_>,
) -> Result<(), serde_json::Error> {
    let mut to = Writer { body };
    to.numbered("{\"last\":", header.last);
    to.numbered(",\"holds\":", some(header.holds));
    to.numbered(",\"mean_hold_ms\":", some(header.mean_hold_ms));
    to.numbered(",\"ended_ms\":", header.ended_ms);
    to.numbered(",\"ended_boot_ms\":", header.ended_boot_ms);
    let mut before = ",\"hosts\":[";
    for host in &header.hosts {
        to.raw(before);
        to.named("{\"name\":", Some(&host.name))?;
        to.named(",\"machine_id\":", host.machine_id.as_deref())?;
        to.named(",\"boot_id\":", host.boot_id.as_deref())?;
        to.numbered(",\"pid_namespace\":", host.pid_namespace);
        to.raw("}");
        before = ",";
    }
    to.raw(if header.hosts.is_empty() { "}" } else { "]}" });
    Ok(())
}

/// Writes a claim's line, if it has no terms beyond the plain ones. Else it writes nothing: false.
///
/// # Errors
/// - Those of the serializer for texts.
pub(super) fn write_claim(
    body: &mut Vec<u8>,
    claim: &ClaimLine<'_>,
) -> Result<bool, serde_json::Error> {
    let ClaimLine {
        ticket,
        token,
        detached,
        request_id,
        pid,
        started,
        command_pid,
        command_started,
        actor,
        host,
        why,
        entered_ms,
        entered_boot_ms,
        since_ms,
        since_boot_ms,
        renewed_ms,
        renewed_boot_ms,
        renewals,
        facts,
        ttl_ms,
        force: None,
        slots,
        queue: None,
        grace_ms,
        cancel: None,
        reservation: None,
        waiting_for: None,
        aside_ms: None,
        aside_boot_ms: None,
    } = claim
    else {
        return Ok(false);
    };
    let mut to = Writer { body };
    to.numbered("{\"ticket\":", *ticket);
    to.numbered(",\"token\":", *token);
    if *detached {
        to.raw(",\"detached\":true");
    }
    to.named(",\"request_id\":", Some(request_id))?;
    to.numbered(",\"pid\":", pid.map(u64::from));
    to.numbered(",\"started\":", *started);
    to.numbered(",\"command_pid\":", command_pid.map(u64::from));
    to.numbered(",\"command_started\":", *command_started);
    to.named(",\"actor\":", Some(actor))?;
    to.numbered(",\"host\":", some(*host as u64));
    to.named(",\"why\":", Some(why))?;
    to.numbered(",\"entered_ms\":", *entered_ms);
    to.numbered(",\"entered_boot_ms\":", *entered_boot_ms);
    to.numbered(",\"since_ms\":", *since_ms);
    to.numbered(",\"since_boot_ms\":", *since_boot_ms);
    to.numbered(",\"renewed_ms\":", *renewed_ms);
    to.numbered(",\"renewed_boot_ms\":", *renewed_boot_ms);
    to.numbered(",\"renewals\":", some(*renewals));
    let mut before = ",\"facts\":[[";
    for (key, value) in facts {
        to.named(before, Some(key))?;
        to.named(",", Some(value))?;
        before = "],[";
    }
    if !facts.is_empty() {
        to.raw("]]");
    }
    to.numbered(",\"ttl_ms\":", *ttl_ms);
    to.numbered(",\"slots\":", slots.map(u64::from));
    to.numbered(",\"grace_ms\":", some(*grace_ms));
    to.raw("}");
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::super::{encode, line, tests::sample};
    use super::*;
    use proptest::prelude::*;
    use tenure_core::{Claim, Entry, Force, Mode, Queueing};

    /// What the parser for all of JSON makes of a line.
    fn parsed<'a, T: serde::Deserialize<'a>>(line: &'a [u8]) -> Option<T> {
        serde_json::from_slice(line).ok()
    }

    /// The bytes that say all that was read, of which nothing was read by this file.
    fn said(read: &impl serde::Serialize) -> Vec<u8> {
        serde_json::to_vec(read).expect("a line")
    }

    /// What is read here is what the parser reads.
    fn assert_read_alike(text: &[u8]) {
        if let Some(read) = header(text) {
            let parsed: Header<'_> = parsed(text).expect("the parser reads it as well");
            assert_eq!(said(&read), said(&parsed));
        }
        if let Some(read) = claim(text) {
            let parsed: ClaimLine<'_> = parsed(text).expect("the parser reads it as well");
            assert_eq!(said(&read), said(&parsed));
        }
    }

    fn assert_written_alike(claim: &Claim, host: usize) {
        let line = line(claim, host);
        let mut written = Vec::new();
        if write_claim(&mut written, &line).expect("a line") {
            assert_eq!(written, said(&line));
        } else {
            assert_eq!(written, b"");
        }
    }

    /// The sample without what has no plain form.
    fn plain() -> Entry {
        let mut entry = sample();
        for claim in &mut entry.claims {
            (claim.force, claim.queueing) = (Force::No, Queueing::Fifo);
            (claim.cancel, claim.reservation) = (None, None);
            (claim.waiting_for, claim.aside) = (None, None);
            claim.holder.actor = "ada".into();
        }
        entry
    }

    #[test]
    fn plain_lines_are_read_and_written_here() {
        let body = encode(&plain()).expect("a body");
        let mut lines = body.split(|byte| *byte == b'\n');
        let (head, of_claim) = (
            lines.next().expect("a header"),
            lines.next().expect("a claim"),
        );
        assert!(header(head).is_some(), "{}", String::from_utf8_lossy(head));
        assert!(
            claim(of_claim).is_some(),
            "{}",
            String::from_utf8_lossy(of_claim)
        );
        assert_eq!(said(&parsed::<Header<'_>>(head)), head);
        assert_eq!(said(&parsed::<ClaimLine<'_>>(of_claim)), of_claim);
        for line in [head, of_claim] {
            assert_read_alike(line);
            // Each byte in turn changed, left out and put in twice.
            for at in 0..line.len() {
                for byte in *b"0\"\\ ,:[]{}a\xc3\x1f\0" {
                    let mut other = line.to_vec();
                    other[at] = byte;
                    assert_read_alike(&other);
                    other.insert(at, line[at]);
                    assert_read_alike(&other);
                }
                let mut other = line.to_vec();
                other.remove(at);
                assert_read_alike(&other);
                assert_read_alike(&line[..at]);
            }
        }
    }

    #[test]
    fn what_is_not_plain_is_left_to_the_parser() {
        let changes: [fn(&mut Claim); 4] = [
            |claim| claim.force = Force::Asked,
            |claim| claim.queueing = Queueing::Max,
            |claim| claim.cancel = sample().claims.remove(0).cancel,
            |claim| claim.reservation = sample().claims.remove(0).reservation,
        ];
        for change in changes {
            let mut entry = plain();
            entry.claims.iter_mut().for_each(change);
            for of in &entry.claims {
                let mut written = Vec::new();
                assert!(!write_claim(&mut written, &line(of, 0)).expect("an answer"));
                assert!(claim(&said(&line(of, 0))).is_none());
            }
        }
    }

    #[test]
    fn a_number_is_read_here_up_to_nineteen_digits_and_none_that_does_not_fit() {
        let last = |digits: &str| {
            let line = format!("{{\"last\":{digits}}}");
            header(line.as_bytes()).map(|header| header.last)
        };
        let nineteen = "9".repeat(19);
        assert_eq!(last(&nineteen), nineteen.parse().ok());
        for longer in ["10000000000000000000", "18446744073709551616"] {
            assert_eq!(last(longer), None);
        }
    }

    proptest! {
        #[test]
        fn lines_are_written_as_by_the_serializer_and_read_as_by_the_parser(
            texts in prop::array::uniform5(any::<String>()),
            numbers in prop::array::uniform5(any::<u64>()),
            optional in prop::array::uniform5(prop::option::of(any::<u64>())),
            pids in prop::array::uniform2(prop::option::of(any::<u32>())),
            facts in prop::collection::vec(any::<(String, String)>(), 0..3),
            small in (any::<bool>(), 0_usize..3, prop::option::of(any::<u32>())),
        ) {
            let [request_id, actor, why, name, boot_id] = &texts;
            let fresh = |text: &str| Cow::Owned::<str>(text.to_owned());
            let claim = ClaimLine {
                ticket: numbers[0],
                token: optional[0],
                detached: small.0,
                request_id: fresh(request_id),
                pid: pids[0],
                started: optional[1],
                command_pid: pids[1],
                command_started: optional[2],
                actor: fresh(actor),
                host: small.1,
                why: fresh(why),
                entered_ms: numbers[1],
                entered_boot_ms: numbers[2],
                since_ms: optional[3],
                since_boot_ms: optional[4],
                renewed_ms: optional[2],
                renewed_boot_ms: optional[1],
                renewals: optional[0].unwrap_or_default(),
                facts: facts.iter().map(|(key, value)| (fresh(key), fresh(value))).collect(),
                ttl_ms: numbers[3],
                force: None,
                slots: small.2,
                queue: None,
                grace_ms: optional[4].unwrap_or_default(),
                cancel: None,
                reservation: None,
                waiting_for: None,
                aside_ms: None,
                aside_boot_ms: None,
            };
            let mut written = Vec::new();
            prop_assert!(write_claim(&mut written, &claim).expect("a line"));
            prop_assert_eq!(&written, &said(&claim));
            assert_read_alike(&written);
            let header = Header {
                last: numbers[0],
                holds: numbers[1],
                mean_hold_ms: optional[0].unwrap_or_default(),
                ended_ms: optional[1],
                ended_boot_ms: optional[2],
                hosts: (0..small.1).map(|_| HostLine {
                    name: fresh(name),
                    machine_id: optional[3].map(|_| fresh(why)),
                    boot_id: optional[4].map(|_| fresh(boot_id)),
                    pid_namespace: optional[0],
                }).collect(),
            };
            let mut written = Vec::new();
            write_header(&mut written, &header).expect("a line");
            prop_assert_eq!(&written, &said(&header));
            assert_read_alike(&written);
        }
    }

    #[test]
    fn a_claim_is_written_as_by_the_serializer_whatever_its_mode() {
        for mode in [
            Mode::Exclusive,
            Mode::Shared,
            Mode::Slots(std::num::NonZeroU32::MIN),
        ] {
            for mut claim in [plain(), sample()]
                .into_iter()
                .flat_map(|entry| entry.claims)
            {
                claim.mode = mode;
                assert_written_alike(&claim, 0);
                assert_written_alike(&claim, 3);
            }
        }
    }
}
