//! Writes to stdout and stderr in such a way that a reader who does not read (a console with a
//! selection, say) cannot stop this process. Each stream has a thread that writes, and the caller waits
//! for it as long as it says. The first write makes the thread. A write that has begun cannot be taken
//! back; the next one waits for its end.
//!
//! `speech` and `render` decide what is said, and what follows when it cannot be.

use super::stop_asked;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tenure_os::clock::instant;

/// How long a write may last that should return at once.
const GUARD: Duration = Duration::from_millis(50);

/// How long an answer is tried after this process was asked to end.
const LAST_TRY: Duration = Duration::from_secs(1);

/// How often a write looks meanwhile whether this process is asked to end.
const LOOK: Duration = Duration::from_millis(50);

/// Where something is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Out,
    Err,
}

/// Not all of it was written.
#[derive(Debug)]
pub(crate) struct Unwritten {
    /// How many bytes were.
    pub(crate) written: usize,
    pub(crate) why: Why,
}

/// What kept the rest.
#[derive(Debug)]
pub(crate) enum Why {
    /// The reader did not read in time.
    Late,
    /// An event asked us to end.
    Stopped(i32),
    /// The system refused.
    Failed(io::Error),
}

/// The thread that writes, as its caller sees it.
struct Writer {
    texts: Sender<Vec<u8>>,
    results: Receiver<io::Result<()>>,
    /// Whether the writer has something to write that it has not answered for.
    is_busy: bool,
}

static OUT: Mutex<Option<Writer>> = Mutex::new(None);
static ERR: Mutex<Option<Writer>> = Mutex::new(None);

impl Writer {
    fn start(stream: Stream) -> io::Result<Self> {
        let (texts, asked) = channel::<Vec<u8>>();
        let (answered, results) = channel();
        let work = move || {
            for text in asked {
                if answered.send(write(stream, &text)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("tenure-writer".to_owned());
        thread.spawn(work)?;
        Ok(Self {
            texts,
            results,
            is_busy: false,
        })
    }

    /// Waits for the answer to what is being written. `None` if it takes longer.
    fn settle(&mut self, until: Instant) -> Option<io::Result<()>> {
        let rest = until.saturating_duration_since(instant());
        match self.results.recv_timeout(rest) {
            Ok(result) => {
                self.is_busy = false;
                Some(result)
            }
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }
}

fn write(stream: Stream, text: &[u8]) -> io::Result<()> {
    match stream {
        Stream::Out => {
            let mut out = io::stdout().lock();
            out.write_all(text).and_then(|()| out.flush())
        }
        Stream::Err => io::stderr().lock().write_all(text),
    }
}

/// Writes what can be written within `patience`; what is being written when that is over counts as
/// written. Zero is allowed.
pub(crate) fn write_within(
    stream: Stream,
    bytes: &[u8],
    patience: Duration,
) -> Result<(), Unwritten> {
    let unwritten = |why| Unwritten { written: 0, why };
    let place = match stream {
        Stream::Out => &OUT,
        Stream::Err => &ERR,
    };
    let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
    if place.is_none() {
        // Without a thread the caller has to do it.
        match Writer::start(stream) {
            Ok(writer) => *place = Some(writer),
            Err(_) => return write(stream, bytes).map_err(|error| unwritten(Why::Failed(error))),
        }
    }
    let Some(writer) = place.as_mut() else {
        return Ok(());
    };
    let until = instant() + patience;
    // An error of an earlier write was that write's.
    if writer.is_busy && writer.settle(until).is_none() {
        return Err(unwritten(Why::Late));
    }
    if writer.texts.send(bytes.to_vec()).is_err() {
        return Err(unwritten(Why::Failed(io::ErrorKind::BrokenPipe.into())));
    }
    writer.is_busy = true;
    match writer.settle(until.max(instant() + GUARD)) {
        Some(Err(error)) => Err(unwritten(Why::Failed(error))),
        Some(Ok(())) | None => Ok(()),
    }
}

/// Writes all of it, however long the reader takes. Only a request to end this process stops the write
/// too.
pub(crate) fn write_unless_stopped(stream: Stream, bytes: &[u8]) -> Result<(), Unwritten> {
    let asked = stop_asked();
    let end = instant() + LAST_TRY;
    let mut result = write_within(stream, bytes, LOOK);
    loop {
        let place = match stream {
            Stream::Out => &OUT,
            Stream::Err => &ERR,
        };
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        let busy = place.as_mut().filter(|writer| writer.is_busy);
        let late = matches!(result, Err(Unwritten { why: Why::Late, .. }));
        if busy.is_none() && !late {
            return result;
        }
        if let (Some(number), true) = (stop_asked(), asked.is_none() || instant() >= end) {
            let (written, why) = (0, Why::Stopped(number));
            return Err(Unwritten { written, why });
        }
        let settled = busy.and_then(|writer| writer.settle(instant() + LOOK));
        drop(place);
        if late {
            result = write_within(stream, bytes, LOOK);
        } else if let Some(settled) = settled {
            let (written, why) = (0, settled.err().map(Why::Failed));
            return why.map_or(Ok(()), |why| Err(Unwritten { written, why }));
        }
    }
}
