//! Puts every input of the fuzzer's corpus through the same properties, without a fuzzer. An input that
//! broke something once becomes a test as soon as it lies below `fuzz/corpus/<target>`.
//!
//! `scripts/fuzz` looks for more of them.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test says what it expects by failing, and its folders are its own"
)]
#![allow(
    unreachable_pub,
    reason = "the properties are a library to the fuzzer and a module to this test"
)]

#[path = "../../../fuzz/src/lib.rs"]
mod properties;

use properties::TARGETS;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tenure_os::clock::instant;

/// How long one input may take, on a busy machine. The fuzzer allows as much.
const PATIENCE: Duration = Duration::from_secs(5);

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

fn inputs(target: &str) -> Vec<PathBuf> {
    let folder = corpus().join(target);
    let entries =
        std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    files
}

#[test]
fn every_kept_input_keeps_its_property() {
    let mut broken = Vec::new();
    for (name, target) in TARGETS {
        let files = inputs(name);
        assert!(!files.is_empty(), "{name}: nothing is tried");
        for file in files {
            let data = std::fs::read(&file).expect("an input");
            let began = instant();
            let held = catch_unwind(AssertUnwindSafe(|| target(&data)));
            let took = instant().saturating_duration_since(began);
            if held.is_err() || took > PATIENCE {
                broken.push(format!("{}, after {took:?}", file.display()));
            }
        }
    }
    assert!(
        broken.is_empty(),
        "these inputs break what their targets promise (see the panics above):\n{}",
        broken.join("\n")
    );
}

#[test]
fn every_folder_of_the_corpus_has_its_target() {
    for entry in std::fs::read_dir(corpus()).expect("the corpus") {
        let name = entry.expect("an entry").file_name();
        let known = name.to_str().and_then(properties::target);
        assert!(known.is_some(), "{name:?} has no test");
    }
}

/// The properties can fail: each of these is what a broken decoder would return.
#[test]
fn a_property_that_does_not_hold_is_seen() {
    let long = "x".repeat(500);
    for why in ["two\nlines", "\u{1b}[31m", &long] {
        let seen = catch_unwind(|| properties::is_a_line(why));
        assert!(seen.is_err(), "{why:?} is no short line");
    }
}
