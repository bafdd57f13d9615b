//! The decoders of a coordination file, for the fuzzer and the test that replays its corpus.
//!
//! Private, because no user of the library reads such a file except through the store. An integration
//! test or a fuzzer is another crate, so the feature `fuzzing` alone makes the decoders visible, and the
//! library does not promise them. The programs that try them (`fuzz/src`) say what has to hold.

use super::pages::{self, ReadError, Snapshot};
use super::partial::{self, Want};
use super::segments::{Piece, Text};
use crate::codec;
use std::borrow::Cow;
use std::os::fd::BorrowedFd;
use tenure_core::Entry;

/// The sequence and the body of the page that counts, as a reader under the guard finds them.
///
/// # Errors
/// - Why there is no state.
pub fn read(file: BorrowedFd<'_>) -> Result<(u64, Vec<u8>), String> {
    plain(read_whole(file))
}

/// Reads a state and all of its segments.
fn read_whole(file: BorrowedFd<'_>) -> Result<Snapshot, ReadError> {
    let mut snapshot = pages::read(file, length_of(file))?;
    pages::fill_all(file, &mut snapshot.text)?;
    Ok(snapshot)
}

fn length_of(file: BorrowedFd<'_>) -> u64 {
    tenure_os::os::facts(file).map_or(0, |facts| facts.size())
}

/// Reads the state and its number as a reader without the guard finds them.
///
/// # Errors
/// - Why there is no state.
pub fn read_unguarded(file: BorrowedFd<'_>) -> Result<(u64, Vec<u8>), String> {
    plain(pages::read_unguarded(file, length_of(file)))
}

/// Writes the next state. False if it is too long.
///
/// # Errors
/// - Why there is no state to begin with, or how the system failed.
pub fn write(file: BorrowedFd<'_>, body: &[u8]) -> Result<bool, String> {
    let current = read_whole(file).map_err(|error| format!("{error:?}"))?;
    let list = vec![Piece::Lines(Cow::Borrowed(body))];
    pages::write(file, &current, list, pages::Room::All).map_err(|errno| errno.to_string())
}

/// A page's content: a frame that fits the body, and the body.
pub fn page(sequence: u64, body: &[u8]) -> Vec<u8> {
    [pages::frame(sequence, [body].into_iter()).as_bytes(), body].concat()
}

/// Reads a list of claims.
///
/// # Errors
/// - What cannot be understood.
pub fn decode(body: &[u8]) -> Result<Entry, String> {
    codec::decode(body).map_err(String::from)
}

/// Writes a list of claims.
pub fn encode(entry: &Entry) -> Option<Vec<u8>> {
    codec::encode(entry).ok()
}

/// Reads a list in every partial way, and writes it back from each part without a change. `ticket` is
/// that of an own claim.
pub fn partial(body: &[u8], ticket: u64) -> Vec<Vec<u8>> {
    let text = Text::of_page(body.to_vec());
    [Want::Own(ticket), Want::UpTo(ticket), Want::Ends]
        .into_iter()
        .filter_map(|want| {
            let (part, rest) = partial::decode(&text, want)?;
            let pieces = rest.encode(&text, &part).ok()?;
            Some(pieces.iter().flat_map(Piece::lines).copied().collect())
        })
        .collect()
}

fn plain(read: Result<Snapshot, ReadError>) -> Result<(u64, Vec<u8>), String> {
    match read {
        Ok(snapshot) => Ok((snapshot.sequence, snapshot.text.bytes)),
        Err(ReadError::Io(errno)) => Err(errno.to_string()),
        Err(ReadError::Torn(why)) => Err(why),
        Err(error @ ReadError::Format(_)) => Err(format!("{error:?}")),
    }
}
