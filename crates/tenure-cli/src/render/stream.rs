//! Answers that are written while they are made, so that an answer about many locks keeps none of them.
//!
//! What is written is the same as if the whole answer had been made first. An answer whose beginning depends on
//! all locks is [kept](Kept) until then.

use super::{Output, Reporter, Unheard, print_bytes};
use crate::failure::Failure;
use serde::ser::{Error as _, SerializeMap};
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use tenure_engine::envelope::{self, Gathered};
use tenure_engine::yaml;

/// How much is gathered before it is written.
const PIECE_BYTES: usize = 32 << 10;

/// How much of an answer is kept in memory.
const MEMORY_BYTES_MAX: usize = 1 << 20;

/// An answer on stdout, in pieces.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    pending: Gathered,
    unheard: Option<Unheard>,
}

impl Pieces {
    /// Adds text. Once something could not be written, nothing is any more.
    pub(crate) fn push(&mut self, text: &str) {
        self.add(text.as_bytes());
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.unheard.is_some() {
            return;
        }
        self.pending.add(bytes);
        if self.pending.length() >= PIECE_BYTES {
            // What may be the end stays: it has no space behind it.
            let (text, space) = self.pending.bytes().split_at(self.length());
            self.unheard = print_bytes(text).err();
            let space = space.to_vec();
            self.pending.truncate(0);
            self.pending.add(&space);
        }
    }

    /// The length of what is pending, without the space at its end.
    fn length(&self) -> usize {
        let bytes = self.pending.bytes();
        std::str::from_utf8(bytes).map_or(bytes.len(), |text| text.trim_end().len())
    }

    /// Why the rest was not written.
    pub(crate) fn unheard(&self) -> Option<&Unheard> {
        self.unheard.as_ref()
    }

    /// Takes the space at the end of what was added so far away.
    pub(crate) fn trim(&mut self) {
        self.pending.truncate(self.length());
    }

    /// Writes the rest, and the end of a line behind it.
    pub(crate) fn end(mut self) -> Result<(), Unheard> {
        self.trim();
        self.pending.add(b"\n");
        let bytes = self.pending.bytes();
        self.unheard.map_or_else(|| print_bytes(bytes), Err)
    }

    fn added(&self) -> io::Result<()> {
        match self.unheard {
            Some(_) => Err(io::ErrorKind::BrokenPipe.into()),
            None => Ok(()),
        }
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.add(bytes);
        self.added()
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl std::fmt::Write for Pieces {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.push(text);
        self.added().map_err(|_| std::fmt::Error)
    }
}

/// The facts of locks: an object with one list.
#[derive(Serialize)]
pub(crate) struct Locks<T> {
    pub(crate) locks: T,
}

/// A list of which each item is made when its turn comes to be written.
pub(crate) struct Each<I>(Cell<Option<I>>);

impl<I> Each<I> {
    pub(crate) fn of(items: I) -> Self {
        Self(Cell::new(Some(items)))
    }
}

impl<I: Iterator<Item: Serialize>> Serialize for Each<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.take().into_iter().flatten())
    }
}

/// A part of a document in the format of the answer.
pub(crate) struct DocumentPart<T> {
    pub(crate) output: Output,
    pub(crate) part: T,
}

impl<T: Serialize> Serialize for DocumentPart<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.output {
            Output::Yaml => yaml::shown(&self.part, serializer),
            Output::Json | Output::Text => self.part.serialize(serializer),
        }
    }
}

/// A part that is made when its turn comes to be written.
struct Late<F>(F);

impl<T: Serialize, F: Fn() -> T> Serialize for Late<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.0)().serialize(serializer)
    }
}

/// A failure without facts, and the facts that belong to it.
struct WithContext<'a, C> {
    failure: &'a Failure,
    context: C,
    output: Output,
}

impl<C: Serialize> Serialize for WithContext<'_, C> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if let Value::Object(error) = self.failure.to_json() {
            for (key, part) in error {
                let output = self.output;
                map.serialize_entry(&key, &DocumentPart { output, part })?;
            }
        }
        map.serialize_entry("context", &self.context)?;
        map.end()
    }
}

/// Writes the envelope of a success, or of a failure whose facts are written beside it. The warnings of a
/// reporter are those that it has when all facts were made.
pub(crate) fn write_envelope<D: Serialize>(
    reporter: &RefCell<&mut Reporter>,
    answer: Result<D, (&Failure, D)>,
) -> Result<(), Unheard> {
    let output = reporter.borrow().output;
    let document = envelope_of(reporter, answer);
    let mut pieces = Pieces::default();
    let made = match output {
        Output::Yaml => yaml::write_to(&mut pieces, &document),
        Output::Json | Output::Text => write_json(&mut pieces, &document),
    };
    match (pieces.unheard(), made) {
        // JSON that lacks its end is none. YAML may end with any line: `meta` comes last, and says that it
        // is whole.
        (None, Err(error)) => Err(Unheard::Failed(error)),
        (Some(_), _) | (None, Ok(())) => pieces.end(),
    }
}

/// The envelope, of which each part is made when its turn comes to be written.
fn envelope_of<D: Serialize>(
    reporter: &RefCell<&mut Reporter>,
    answer: Result<D, (&Failure, D)>,
) -> impl Serialize {
    let output = reporter.borrow().output;
    let answer = answer.map_err(|(failure, context)| WithContext {
        failure,
        context,
        output,
    });
    let warnings = Late(move || {
        let part = reporter.borrow().last_warnings();
        DocumentPart { output, part }
    });
    let meta = Late(move || {
        let part = reporter.borrow().meta();
        DocumentPart { output, part }
    });
    envelope::document(answer, warnings, meta)
}

/// Writes the envelope of locks that were kept, of which this is the failure.
pub(crate) fn write_kept(
    reporter: &RefCell<&mut Reporter>,
    kept: PartBuffer,
    failure: Option<&Failure>,
) -> Result<(), Unheard> {
    fn answer<T>(locks: T, failure: Option<&Failure>) -> Result<Locks<T>, (&Failure, Locks<T>)> {
        match failure {
            None => Ok(Locks { locks }),
            Some(failure) => Err((failure, Locks { locks })),
        }
    }
    let output = reporter.borrow().output;
    if output == Output::Yaml {
        let parts = kept.into_parts().map_err(|error| unread(&error))?;
        let locks = Each::of(parts.map(|part| DocumentPart { output, part }));
        return write_envelope(reporter, answer(locks, failure));
    }
    // The parts are JSON already, so the envelope is written around them.
    let envelope = envelope::json_line(&envelope_of(reporter, answer([(); 0], failure)));
    // Within a text a quote has a backslash in front, and no other field is called so. So this is the list.
    let (before, behind) = envelope
        .split_once(NO_LOCKS)
        .ok_or_else(|| Unheard::Failed("the envelope cannot be written".to_owned()))?;
    let mut pieces = Pieces::default();
    pieces.push(before);
    pieces.push(NO_LOCKS.trim_end_matches(']'));
    let count = kept.count;
    let mut lines = kept
        .into_lines()
        .map_err(|error| unread(&error))?
        .split(b'\n');
    for number in 0..count {
        if pieces.unheard().is_some() {
            break;
        }
        let line = lines.next().transpose().map_err(|error| unread(&error))?;
        // A part that could not be written left an empty line, and a file that another program cut has none.
        let is_whole = |line: &Vec<u8>| line.starts_with(b"{") && line.ends_with(b"}");
        let Some(line) = line.filter(is_whole) else {
            let why = format!("lock {} of {count} cannot be written", number + 1);
            return Err(Unheard::Failed(why));
        };
        if number > 0 {
            pieces.push(",");
        }
        pieces.add(&line);
    }
    pieces.push("]");
    pieces.push(behind);
    pieces.end()
}

/// The list of an envelope without locks, as JSON.
const NO_LOCKS: &str = "\"locks\":[]";

fn unread(error: &io::Error) -> Unheard {
    Unheard::Failed(error.to_string())
}

/// Writes a document that is no envelope.
pub(crate) fn write_json(pieces: &mut Pieces, document: &impl Serialize) -> Result<(), String> {
    envelope::write_json(pieces, document).map_err(|error| error.to_string())
}

/// Parts of an answer that are written once all of them were made: a few in memory, and many in a file without
/// a name in the folder for temporary files. Where there is no such file, all of them stay in memory.
#[derive(Debug, Default)]
pub(crate) struct PartBuffer {
    lines: Gathered,
    /// How many parts there are.
    count: usize,
    file: Option<File>,
    /// How much of the file counts.
    length: u64,
    has_no_room: bool,
}

impl PartBuffer {
    /// Keeps one more.
    pub(crate) fn push(&mut self, part: &impl Serialize) {
        let length = self.lines.length();
        if envelope::write_json(&mut self.lines, part).is_err() {
            // Of a part that cannot be written nothing stands there, and its reader says so.
            self.lines.truncate(length);
        }
        self.lines.add(b"\n");
        self.count += 1;
        if self.lines.length() >= MEMORY_BYTES_MAX && !self.has_no_room {
            self.has_no_room = self.spill().is_err();
        }
    }

    /// Moves what is in memory to the file. Of a write that fails nothing counts.
    fn spill(&mut self) -> io::Result<()> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => tempfile::tempfile()?,
        };
        let written = file.write_all(self.lines.bytes());
        if written.is_err() {
            // The disk may be full: it gets back what does not count.
            let _ = file.set_len(self.length);
        }
        self.file = Some(file);
        written?;
        self.length += self.lines.length() as u64;
        self.lines.truncate(0);
        Ok(())
    }

    /// All of them, in their order. One that cannot be read back is an error to the serializer.
    fn into_parts(self) -> io::Result<impl Iterator<Item: Serialize>> {
        Ok(self.into_lines()?.lines().map(KeptPart))
    }

    /// All of them as JSON, in their order, a line for each.
    fn into_lines(self) -> io::Result<impl BufRead> {
        let file: Box<dyn Read> = match self.file {
            Some(mut file) => {
                file.rewind()?;
                Box::new(file.take(self.length))
            }
            None => Box::new(io::empty()),
        };
        let lines = io::Cursor::new(self.lines.into_bytes());
        Ok(BufReader::with_capacity(PIECE_BYTES, file.chain(lines)))
    }
}

/// A part that was kept.
struct KeptPart(io::Result<String>);

impl Serialize for KeptPart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let line = self.0.as_ref().map_err(S::Error::custom)?;
        let part: &RawValue = serde_json::from_str(line).map_err(S::Error::custom)?;
        part.serialize(serializer)
    }
}
