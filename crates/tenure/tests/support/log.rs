//! Keeps what a program would read in its log.

#![allow(clippy::expect_used, reason = "a test says what it expects by failing")]
#![allow(dead_code, reason = "each test uses a part of it")]

use std::sync::{Arc, Mutex};

/// The messages of one thread, or of the calls that it makes, each with its target.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<(String, String)>>>);

impl Log {
    pub(crate) fn lines(&self) -> Vec<String> {
        let log = self.0.lock().expect("the log");
        log.iter().map(|(_, line)| line.clone()).collect()
    }

    pub(crate) fn targets(&self) -> Vec<String> {
        let log = self.0.lock().expect("the log");
        log.iter().map(|(target, _)| target.clone()).collect()
    }

    /// Has what some work logs on this thread come here.
    pub(crate) fn of(work: impl FnOnce()) -> Self {
        let log = Self::default();
        tracing::subscriber::with_default(log.clone(), work);
        log
    }
}

struct Message(String);

impl tracing::field::Visit for Message {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        let metadata = event.metadata();
        let line = format!("{} {}", metadata.level(), message.0);
        let target = metadata.target().to_owned();
        self.0.lock().expect("the log").push((target, line));
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}
