//! Where a byte stands in a text, with what a text begins, and of which bytes it is: eight at a time.
//!
//! A library does this with wider registers, and asks the processor which ones it has. On a virtual machine each such
//! question ends in the hypervisor, and together they take as long as ten system calls: in front of each command that
//! `run` starts ([decision 0078](../../../docs/internals/decisions/0078-a-start-asks-the-processor-nothing.md)).

/// A word of ones, one in each byte.
const ONES: u64 = 0x0101_0101_0101_0101;

/// The highest bit of each byte that is this one. Exact for each byte: the sum in a byte never reaches the next one.
fn hits(word: [u8; 8], byte: u8) -> u64 {
    const LOW_BITS: u64 = ONES * 0x7f;
    let differing = u64::from_le_bytes(word) ^ (ONES * u64::from(byte));
    !(((differing & LOW_BITS) + LOW_BITS) | differing | LOW_BITS)
}

/// The same, exact for the first such byte alone: what is borrowed for it may set the bit of a later one.
fn first_hit(word: [u8; 8], byte: u8) -> u64 {
    let differing = u64::from_le_bytes(word) ^ (ONES * u64::from(byte));
    differing.wrapping_sub(ONES) & !differing & (ONES << 7)
}

/// The number that eight digits are. `None` where one of them is no digit.
pub(crate) fn eight_digits(digits: [u8; 8]) -> Option<u64> {
    const HIGH_HALVES: u64 = ONES * 0xf0;
    let word = u64::from_le_bytes(digits);
    // The upper half of a digit is 3, and that of the byte six above it too. No sum reaches the next byte then.
    if word & HIGH_HALVES != ONES * 0x30 || word.wrapping_add(ONES * 6) & HIGH_HALVES != ONES * 0x30
    {
        return None;
    }
    // Each step joins neighbours: digits to numbers of two, of four and of eight digits. The first digit is the lowest byte.
    let ones = word & (ONES * 0x0f);
    let twos = (ones.wrapping_mul(10) + (ones >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (twos.wrapping_mul(100) + (twos >> 16)) & 0x0000_ffff_0000_ffff;
    Some((fours.wrapping_mul(10_000) + (fours >> 32)) & 0xffff_ffff)
}

/// Where the byte stands first.
pub(crate) fn find(byte: u8, text: &[u8]) -> Option<usize> {
    let (words, rest) = text.as_chunks::<8>();
    for (number, word) in words.iter().enumerate() {
        let hits = first_hit(*word, byte);
        if hits != 0 {
            return Some(8 * number + (hits.trailing_zeros() / 8) as usize);
        }
    }
    let at = rest.iter().position(|other| *other == byte)?;
    Some(8 * words.len() + at)
}

/// What stands behind `begin`, if the text begins with it.
pub(crate) fn behind<'a>(begin: &[u8], text: &'a [u8]) -> Option<&'a [u8]> {
    let (front, rest) = text.split_at_checked(begin.len())?;
    is_same(begin, front).then_some(rest)
}

/// Whether two texts are the same. The `memcmp` of musl goes byte by byte; other C libraries have a better one.
pub(crate) fn is_same(one: &[u8], other: &[u8]) -> bool {
    if cfg!(target_env = "musl") {
        is_same_by_words(one, other)
    } else {
        one == other
    }
}

fn is_same_by_words(one: &[u8], other: &[u8]) -> bool {
    let ((words, rest), (others, other_rest)) = (one.as_chunks::<8>(), other.as_chunks::<8>());
    one.len() == other.len()
        && words.iter().zip(others).all(|(one, other)| one == other)
        && rest.iter().zip(other_rest).all(|(one, other)| one == other)
}

/// Whether all bytes are below DEL, the last one of ASCII.
pub(crate) fn is_below_del(text: &[u8]) -> bool {
    // A byte from DEL on has the highest bit, or gets it from one more. What a byte of ones carries to the next one
    // changes nothing: that byte has said it.
    const HIGH_BITS: u64 = ONES << 7;
    let is_below = |word: &[u8; 8]| {
        let word = u64::from_ne_bytes(*word);
        (word | word.wrapping_add(ONES)) & HIGH_BITS == 0
    };
    let (words, rest) = text.as_chunks::<8>();
    words.iter().all(is_below) && rest.iter().all(|byte| *byte < 0x7f)
}

/// How often the byte stands there.
pub(crate) fn count(byte: u8, text: &[u8]) -> usize {
    let (words, rest) = text.as_chunks::<8>();
    let in_words = words
        .iter()
        .map(|word| hits(*word, byte).count_ones() as usize);
    let in_rest = rest.iter().map(|other| usize::from(*other == byte));
    in_words.chain(in_rest).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_byte_is_found_where_it_stands_and_counted_each_time(
            text in prop::collection::vec(prop::sample::select(vec![0, 1, b'\n', b'\x0b', 0x7f, 0x80, 0x81, 0xff]), 0..40),
            byte in prop::sample::select(vec![0, 1, b'\n', 0x7f, 0x80, 0xff]),
        ) {
            let at = text.iter().position(|other| *other == byte);
            prop_assert_eq!(find(byte, &text), at);
            let times: usize = text.iter().map(|other| usize::from(*other == byte)).sum();
            prop_assert_eq!(count(byte, &text), times);
        }

        #[test]
        fn eight_digits_are_the_number_that_the_standard_library_reads(
            number in 0..100_000_000_u64,
            at in 0..8_usize,
            byte in any::<u8>(),
        ) {
            let mut digits: [u8; 8] = format!("{number:08}").into_bytes().try_into().expect("eight");
            prop_assert_eq!(eight_digits(digits), Some(number));
            digits[at] = byte;
            let read = std::str::from_utf8(&digits).ok().filter(|text| !text.starts_with('+'));
            prop_assert_eq!(eight_digits(digits), read.and_then(|text| text.parse().ok()));
        }

        #[test]
        fn a_text_is_the_same_and_begins_with_another_as_slices_say(
            begin in prop::collection::vec(0..2_u8, 0..40),
            text in prop::collection::vec(0..2_u8, 0..40),
            at in 0..40_usize,
        ) {
            prop_assert_eq!(is_same_by_words(&begin, &text), begin == text);
            prop_assert!(is_same_by_words(&begin, &begin.clone()));
            prop_assert_eq!(behind(&begin, &text), text.strip_prefix(&*begin));
            let whole = [&*begin, &text].concat();
            prop_assert_eq!(behind(&begin, &whole), Some(&*text));
            // And with one byte that differs.
            if let Some(byte) = begin.get(at) {
                let mut changed = begin.clone();
                changed[at] = 1 - byte;
                prop_assert!(!is_same_by_words(&begin, &changed));
                prop_assert_eq!(behind(&changed, &whole), None);
            }
        }
    }

    #[test]
    fn a_text_is_below_del_as_each_byte_says() {
        for (length, other) in (0..20).flat_map(|length| [b' ', b'~'].map(|other| (length, other)))
        {
            assert!(is_below_del(&vec![other; length]));
            for (at, byte) in (0..length).flat_map(|at| (0..=u8::MAX).map(move |byte| (at, byte))) {
                let mut text = vec![other; length];
                text[at] = byte;
                assert_eq!(
                    is_below_del(&text),
                    byte < 0x7f,
                    "{byte} at {at} of {length}"
                );
            }
        }
    }
}
