//! Transcripts fail where an answer is another one: a test that is written as one checks all that it shows.

use crate::support::Scene;
use crate::support::transcript::{Caller, page};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A test for each page, and for each file that is one.
macro_rules! pages {
    ($($page:ident)*) => {
        $(#[test]
        fn $page() {
            page(stringify!($page));
        })*

        #[test]
        fn every_page_is_followed() {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/pages");
            let names = std::fs::read_dir(folder).unwrap().map(|page| page.unwrap().file_name());
            let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
            names.sort();
            assert_eq!(names, [$(concat!(stringify!($page), ".txt")),*]);
        }
    };
}

pages! {
    arguments
    fleet
    groups
    session
    sprint
}

/// Whether the answers are those of the transcript. `tenure` is `tenure run x --`, so it says what a command
/// says.
fn holds(transcript: &str) -> bool {
    let scene = Scene::new();
    let caller = Caller::new(&scene, &["run", "x", "--"]).knowing("[ME]", "me");
    catch_unwind(AssertUnwindSafe(|| caller.follows(transcript))).is_ok()
}

#[test]
fn a_transcript_holds_where_each_answer_is_the_one_that_it_shows() {
    for transcript in [
        "$ tenure true\n",
        "$ tenure sh -c 'echo a; echo \"b  c\"; echo d >&2; exit 4'\n? 4\na\nb  c\n! d\n",
        "$ tenure sh -c 'kill -9 $$'\n? signal 9\n",
        "$ echo me\n[ME]\n",
        "# A file that the first call writes.\n$ tenure touch a\n$ ls a*\na\n",
        "$ A=b tenure printenv A\nb\n",
        "$ tenure echo a 12 c req_0123456789ab 2026-02-07T10:00:00Z\na [N] [..] [ID] [TIME]\n",
        "$ tenure seq 4\n1\n...\n4\n",
        "$ tenure true\n...\n",
    ] {
        assert!(holds(transcript), "{transcript}");
    }
}

#[test]
fn a_transcript_fails_where_an_answer_is_another_one() {
    for transcript in [
        "$ tenure false\n",
        "$ tenure true\n? 1\n",
        "$ tenure sh -c 'exit 137'\n? signal 9\n",
        "$ tenure sh -c 'kill -9 $$'\n? 137\n",
        "$ tenure echo a\n",
        "$ tenure echo a\nb\n",
        "$ tenure echo a\n! a\n",
        "$ tenure sh -c 'echo a >&2'\na\n",
        "$ tenure sh -c 'echo a >&2'\n",
        "$ tenure true\na\n",
        "$ tenure seq 3\n1\n3\n",
        "$ tenure seq 3\n...\n2\n",
        "$ tenure echo x\n[N]\n",
        "$ tenure echo req_0123\n[ID]\n",
        "$ tenure echo 2026-02-07\n[TIME]\n",
        "$ tenure printf a\na\n",
        "$ tenure true\n$ tenure false\n",
        "",
    ] {
        assert!(!holds(transcript), "{transcript}");
    }
}
