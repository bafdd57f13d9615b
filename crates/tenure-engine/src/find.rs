//! Where a byte stands in a text, found eight bytes at a time.
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

/// Where the byte stands first.
pub(crate) fn find(byte: u8, text: &[u8]) -> Option<usize> {
    let (words, rest) = text.as_chunks::<8>();
    for (number, word) in words.iter().enumerate() {
        let hits = hits(*word, byte);
        if hits != 0 {
            return Some(8 * number + (hits.trailing_zeros() / 8) as usize);
        }
    }
    let at = rest.iter().position(|other| *other == byte)?;
    Some(8 * words.len() + at)
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
    }
}
