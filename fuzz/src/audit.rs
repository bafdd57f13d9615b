//! The lines of an audit: read from anybody, written from anything.

use super::draw::Draw;
use super::texts::in_folder;
use std::path::Path;
use std::time::Duration;
use tenure_core::{LockName, RequestId};
use tenure_engine::audit::{
    Ending, Entry, Events, Filter, History, LINE_BYTES_MAX, Occasion, Passage, Record, Releaser,
    StealReason,
};

/// A file of any content: every line is an event or is counted, in their order; and an event is
/// shown as one line that reads as the same event.
pub fn audit(data: &[u8]) {
    let (mut events, mut strange) = (Vec::new(), 0);
    for line in data.split(|byte| *byte == b'\n') {
        match Entry::parse(line) {
            Some(entry) => {
                let shown = entry.line();
                is_safe(&shown);
                let again = Entry::parse(shown.as_bytes()).expect("a line is an event");
                assert_eq!(again.at_ms(), entry.at_ms());
                assert_eq!(again.event(), entry.event());
                assert_eq!(again.lock_name(), entry.lock_name());
                assert_eq!(again.request_id(), entry.request_id());
                assert_eq!(again.fields().len(), entry.fields().len());
                events.push(entry);
            }
            None if line.iter().all(u8::is_ascii_whitespace) => {}
            None => strange += 1,
        }
    }
    fold(&events);
    in_folder(|folder| {
        let audit = folder.path().join("audit");
        if !audit.is_dir() {
            use std::os::unix::fs::DirBuilderExt;
            let mut builder = std::fs::DirBuilder::new();
            builder.mode(0o700).create(&audit).expect("a folder");
        }
        // Without its last newline it would be a line that somebody is still writing.
        let whole = [data, b"\n"].concat();
        std::fs::write(audit.join("audit.jsonl"), whole).expect("a file");
        let mut read = Events::open(&audit, Filter::default()).expect("a log");
        let found: Vec<Entry> = read.by_ref().collect();
        assert_eq!(read.problems(), [""; 0], "nothing else is wrong");
        assert_eq!(found, events, "every event once, in order");
        assert_eq!(read.skipped(), strange, "and the rest counted");
    });
}

/// Events in any order fold into at most one hold each, and nothing ends before it begins.
fn fold(events: &[Entry]) {
    let mut history = History::default();
    let mut passages = Vec::new();
    for entry in events {
        history.take(entry, |passage| passages.push(passage));
    }
    passages.extend(history.into_open().map(Passage::Hold));
    let mut holds = 0;
    for passage in passages {
        match passage {
            Passage::Hold(hold) => {
                holds += 1;
                if let (Some(since), Some(until)) = (hold.since_ms(), hold.until_ms) {
                    assert!(since <= until, "{hold:?}");
                }
            }
            Passage::Wait(wait) => assert!(wait.since_ms <= wait.until_ms, "{wait:?}"),
            Passage::Incident(incident) => assert!(!incident.event.as_str().is_empty()),
        }
    }
    assert!(
        holds <= events.len(),
        "{holds} holds of {} events",
        events.len()
    );
}

/// An event of any content is one line within its bound, that reads as this event.
pub fn audit_records(data: &[u8]) {
    let mut draw = Draw(data);
    let lock = LockName::new(draw.name()).expect("letters of names");
    let id = RequestId::new(draw.name()).expect("letters of names");
    let occasion = Occasion::new(&lock, &id, draw.number());
    let kind = draw.below(5);
    let (number, times) = (draw.number(), 1 + draw.below(3_000));
    let text = draw.text().repeat(times);
    let lasting = Duration::from_millis(draw.number());
    let record = match kind {
        0 => Record::lock_acquired(occasion, Path::new(&text), lasting, number),
        1 => Record::lock_stolen(occasion, None, text.as_bytes(), StealReason::CorruptLock),
        2 => Record::lock_released(
            occasion,
            lasting,
            Ending::Failure { step: &text },
            Releaser::Other(None),
        ),
        3 => Record::lock_release_failed(occasion, Path::new(&text), &text),
        _ => Record::heartbeat_failed(occasion, 7, &text),
    };
    let line = record.line();
    assert!(line.len() <= LINE_BYTES_MAX, "{} bytes", line.len());
    let line = line.strip_suffix('\n').expect("its newline");
    is_safe(line);
    let entry = Entry::parse(line.as_bytes()).expect("an event");
    assert_eq!(entry.event(), record.event().as_str());
    assert_eq!(entry.lock_name(), lock.as_str());
    assert_eq!(entry.request_id(), id.as_str());
    if let (4, true, Some(shown)) = (kind, line.len() < 30_000, entry.fields().get("error")) {
        assert_eq!(shown.as_str(), Some(text.as_str()), "nothing was cut");
    }
}

/// What a terminal would heed is spelt out.
fn is_safe(line: &str) {
    let heeded = |c: char| {
        c.is_control()
            || matches!(
                c,
                '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            )
    };
    assert!(!line.contains(heeded), "{line:?}");
}
