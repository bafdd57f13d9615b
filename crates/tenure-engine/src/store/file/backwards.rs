//! A short line of numbers, written from its end to its beginning: so its digits come in the order in which a division
//! gives them, and the line is one piece of memory when it is done.
//!
//! Each change writes such a line for its page, and one for each segment that is new. Number by number into a text that
//! grows, the names of a long list took as many instructions as to read them.

/// How long a number can be.
pub(super) const DIGITS_MAX: usize = 20;

/// How long a sum is, in digits of four bits each.
pub(super) const SUM_DIGITS: usize = 16;

/// A line of at most `N` bytes.
#[derive(Debug)]
pub(super) struct Backwards<const N: usize> {
    bytes: [u8; N],
    start: usize,
}

impl<const N: usize> Backwards<N> {
    pub(super) fn new() -> Self {
        Self {
            bytes: [0; N],
            start: N,
        }
    }

    /// Puts a byte before what is there.
    pub(super) fn byte(&mut self, byte: u8) {
        debug_assert!(self.start > 0, "the line has room for all that is written");
        self.start = self.start.saturating_sub(1);
        if let Some(room) = self.bytes.get_mut(self.start) {
            *room = byte;
        }
    }

    /// Puts a number before what is there.
    pub(super) fn number(&mut self, mut number: u64) {
        loop {
            self.byte(b'0' + (number % 10) as u8);
            number /= 10;
            if number == 0 {
                break;
            }
        }
    }

    /// Puts the digits of a sum before what is there.
    pub(super) fn sum(&mut self, mut sum: u64) {
        for _ in 0..SUM_DIGITS {
            self.byte(crate::process::hex_digit((sum & 15) as u8));
            sum >>= 4;
        }
    }

    /// Puts a text before what is there.
    pub(super) fn text(&mut self, text: &[u8]) {
        for byte in text.iter().rev() {
            self.byte(*byte);
        }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_last_stands_first() {
        let mut line = Backwards::<64>::new();
        assert_eq!(line.as_bytes(), b"");
        line.byte(b'\n');
        line.sum(0x0123_4567_89ab_cdef);
        line.text(b", sum ");
        line.number(1_020);
        line.byte(b' ');
        line.number(0);
        assert_eq!(line.as_bytes(), b"0 1020, sum 0123456789abcdef\n");
        let mut most = Backwards::<DIGITS_MAX>::new();
        most.number(u64::MAX);
        assert_eq!(most.as_bytes(), u64::MAX.to_string().as_bytes());
    }
}
