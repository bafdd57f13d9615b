//! What the line of a claim tells before it is decoded: its ticket, whether it is granted, and whether it is that of a
//! plain waiter.
//!
//! The store's `codec` defines the line.

/// The digits of a claim's ticket, with which its line begins, and whether its token follows.
pub(super) fn ticket_of(text: &[u8]) -> Option<(&[u8], bool)> {
    let rest = text.strip_prefix(b"{\"ticket\":")?;
    let length = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = rest.split_at_checked(length)?;
    // No writer begins a number with 0. So of two numbers, the one with more digits is the higher one.
    let is_number = digits.first().is_some_and(|digit| *digit != b'0');
    is_number.then(|| (digits, rest.starts_with(b",\"token\":")))
}

/// Whether a number is higher than another, by their digits.
pub(super) fn is_above(digits: &[u8], other: &[u8]) -> bool {
    (digits.len(), digits) > (other.len(), other)
}

pub(super) fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Whether a line ends as a plain waiter's does: with its ttl, and perhaps the number of its slots and its grace.
/// Everything else that a claim can have is written behind these. A shared claim is none: it has no number.
pub(super) fn is_plain(text: &[u8]) -> bool {
    let Some(text) = text.strip_suffix(b"}") else {
        return false;
    };
    let text = without_number(text, b",\"grace_ms\":").unwrap_or(text);
    let text = match without_number(text, b",\"slots\":") {
        Some(_) if text.ends_with(b",\"slots\":0") => return false,
        Some(before) => before,
        None => text,
    };
    without_number(text, b",\"ttl_ms\":").is_some()
}

/// A text without the key and number that it ends with.
fn without_number<'a>(text: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    let digits = text.iter().rev().take_while(|byte| byte.is_ascii_digit());
    let length = digits.count();
    let (rest, digits) = text.split_at_checked(text.len() - length)?;
    rest.strip_suffix(key).filter(|_| !digits.is_empty())
}
