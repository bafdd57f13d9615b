//! Values from the bytes of an input, so that the fuzzer's changes are small changes of a value.

/// What is left of an input. Past its end everything is 0, empty or absent.
pub(super) struct Draw<'a>(pub(super) &'a [u8]);

impl<'a> Draw<'a> {
    pub(super) fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    pub(super) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Draws a number of `0..below`.
    pub(super) fn below(&mut self, below: usize) -> usize {
        (usize::from(self.byte()) << 8 | usize::from(self.byte())) % below.max(1)
    }

    pub(super) fn number(&mut self) -> u64 {
        // Short numbers are the common ones, and the largest ones the interesting ones.
        let bytes = usize::from(self.byte() % 10);
        if bytes == 9 {
            return u64::MAX - u64::from(self.byte());
        }
        (0..bytes).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    pub(super) fn some<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.flag().then(|| value(self))
    }

    /// Draws as many bytes as the next one says.
    pub(super) fn bytes(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.0.len());
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        bytes
    }

    /// Any text, control characters and all.
    pub(super) fn text(&mut self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    /// A text of the letters of names, not empty.
    pub(super) fn name(&mut self) -> String {
        let letters = self.bytes().iter().take(60).map(|byte| {
            let letters = b"abcxyz019_-";
            char::from(letters[usize::from(*byte) % letters.len()])
        });
        std::iter::once('n').chain(letters).collect()
    }
}
