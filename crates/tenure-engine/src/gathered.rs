//! Bytes that are gathered in pieces.
//!
//! A JSON document comes in thousands of pieces of a few bytes, most of them of one. A `Vec` copies each by `memcpy`. In
//! the static binary that takes longer to begin than to copy so few bytes. So the room behind what was gathered is
//! there and filled with zeros, and a short piece is copied into it by its first and its last bytes.

use std::io;

/// How much room there is at least, once there is some.
const ROOM_MIN: usize = 512;

/// Bytes to which pieces are added.
#[derive(Debug, Default)]
pub struct Gathered {
    /// What was gathered, and zeros.
    room: Vec<u8>,
    length: usize,
}

impl Gathered {
    /// Adds a piece.
    #[inline]
    pub fn add(&mut self, piece: &[u8]) {
        if let ([byte], Some(place)) = (piece, self.room.get_mut(self.length)) {
            *place = *byte;
            self.length += 1;
        } else {
            self.add_some(piece);
        }
    }

    fn add_some(&mut self, piece: &[u8]) {
        let end = self.length + piece.len();
        if end > self.room.len() {
            self.room.resize(end.next_power_of_two().max(ROOM_MIN), 0);
        }
        if let Some(place) = self.room.get_mut(self.length..end) {
            copy(place, piece);
        }
        self.length = end;
    }

    /// How many bytes were gathered.
    pub fn length(&self) -> usize {
        self.length
    }

    /// What was gathered.
    pub fn bytes(&self) -> &[u8] {
        self.room.get(..self.length).unwrap_or_default()
    }

    /// What was gathered, for a caller that keeps it.
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.room.truncate(self.length);
        self.room
    }

    /// Takes away what stands behind so many bytes. The room stays.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }
}

/// Copies a piece to a place of its length. Where its first and its last bytes overlap, both copies are the same.
fn copy(place: &mut [u8], piece: &[u8]) {
    match piece.len() {
        0 => {}
        1 => ends::<1>(place, piece),
        2..=3 => ends::<2>(place, piece),
        4..=7 => ends::<4>(place, piece),
        8..=16 => ends::<8>(place, piece),
        _ => place.copy_from_slice(piece),
    }
}

/// Copies the first and the last `N` bytes.
#[inline]
fn ends<const N: usize>(place: &mut [u8], piece: &[u8]) {
    if let (Some(place), Some(piece)) = (place.first_chunk_mut::<N>(), piece.first_chunk()) {
        *place = *piece;
    }
    if let (Some(place), Some(piece)) = (place.last_chunk_mut::<N>(), piece.last_chunk()) {
        *place = *piece;
    }
}

impl io::Write for Gathered {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.add(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_all_lengths_stand_one_behind_the_other() {
        let whole: Vec<u8> = (0..=255).cycle().take(3_000).collect();
        for length in 1..70 {
            let mut gathered = Gathered::default();
            for piece in whole.chunks(length) {
                gathered.add(piece);
                gathered.add(b"");
            }
            assert_eq!(gathered.bytes(), whole, "pieces of {length}");
            assert_eq!(gathered.length(), whole.len());
            assert_eq!(gathered.into_bytes(), whole, "pieces of {length}");
        }
    }

    #[test]
    fn what_is_taken_away_is_written_over() {
        let mut gathered = Gathered::default();
        gathered.add(b"before and after");
        gathered.truncate(7);
        gathered.truncate(70);
        gathered.add(b"then");
        assert_eq!(gathered.bytes(), b"before then");
    }
}
