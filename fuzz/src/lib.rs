//! What has to hold for whatever a decoder is given, one function for each target.
//!
//! The fuzzer calls them (`scripts/fuzz`), and so does `crates/tenure-engine/tests/corpus.rs` with every
//! file below `corpus/`, which includes this file by its path: an input that once broke something
//! is a test for good as soon as it lies in that folder.
//!
//! Each function returns, or panics with what does not hold. Time is not judged here: the fuzzer
//! has a limit for each input, and so has the test.
#![allow(
    missing_docs,
    reason = "what a target tries stands in the comment before it, and nobody else calls these"
)]

mod audit;
mod cli;
mod draw;
mod records;
mod store;
mod texts;

pub use audit::{audit, audit_records};
pub use cli::{held, input};
pub use records::{claims, fleet, resume, session, sprint};
pub use store::{list, slots};
pub use texts::{config, duration, fence, intent, names, shell, template, yaml};

/// What is done with an input.
pub type Target = fn(&[u8]);

/// All targets, by the names of their folders in the corpus.
pub const TARGETS: [(&str, Target); 19] = [
    ("slots", slots),
    ("list", list),
    ("claims", claims),
    ("sprint", sprint),
    ("resume", resume),
    ("session", session),
    ("fleet", fleet),
    ("audit", audit),
    ("audit_records", audit_records),
    ("config", config),
    ("yaml", yaml),
    ("intent", intent),
    ("template", template),
    ("names", names),
    ("duration", duration),
    ("input", input),
    ("held", held),
    ("fence", fence),
    ("shell", shell),
];

/// The target that calls itself so.
pub fn target(name: &str) -> Option<Target> {
    TARGETS
        .into_iter()
        .find(|(known, _)| *known == name)
        .map(|(_, target)| target)
}

/// A refusal is one short line that a terminal can be shown.
pub fn is_a_line(why: &str) {
    assert!(!why.contains(char::is_control), "on one line: {why:?}");
    assert!(why.chars().count() < 400, "a short sentence: {why}");
}
