//! `timeline`: what the audit says of holds and waits, for a terminal, a program, a page and a report.

#![allow(
    clippy::disallowed_methods,
    reason = "a test writes the audit that it wants to be read"
)]

use crate::support::{Answer, Scene, answer};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};

/// Ends the script that it stands in, begins another one, and turns and clears what a reader sees.
const HOSTILE: &str = r#"</script><script>x</script><img src=x onerror=x>"'&\u202e\u2028\u001b[2J"#;

/// Writes an audit of these events: seconds after ten, event, lock, request, and further fields.
fn write(scene: &Scene, events: &[(u32, &str, &str, &str, &str)]) {
    let mut lines = String::new();
    for (at, event, lock, id, rest) in events {
        let (minutes, seconds) = (at / 60, at % 60);
        let _ = writeln!(
            lines,
            r#"{{"event":"lock_{event}","lock_name":"{lock}","request_id":"{id}","actor":"{id}","timestamp":"2026-02-07T10:{minutes:02}:{seconds:02}.000Z"{rest}}}"#
        );
    }
    let folder = scene.locks().join("audit");
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .unwrap();
    let file = folder.join("audit.jsonl");
    fs::write(&file, lines).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
}

/// A quarter of an hour with one of everything.
fn quarter(scene: &Scene) {
    let met = r#","held_by":{"request_id":"ann","actor":"ann","since":"2026-02-07T10:00:00Z"}"#;
    let refused = format!(r#","code":"LOCK_TIMEOUT","waited_ms":10000{met}"#);
    let skipped = format!(r#","held_lock":"deploy","waited_ms":0{met}"#);
    write(
        scene,
        &[
            (
                0,
                "acquired",
                "deploy",
                "ann",
                r#","token":1,"waited_ms":0,"why":"release 4.2""#,
            ),
            (30, "refused", "deploy", "carl", &refused),
            (40, "refused", "deploy", "carl", &refused),
            (50, "skipped", "nightly", "dora", &skipped),
            (
                120,
                "acquired",
                "deploy",
                "bob",
                r#","token":2,"waited_ms":60000,"behind":{"request_id":"ann","actor":"ann","waiting":0}"#,
            ),
            (
                120,
                "released",
                "deploy",
                "ann",
                r#","held_ms":120000,"result":"success""#,
            ),
            (
                300,
                "stolen",
                "deploy",
                "eve",
                r#","reason":"stale_lock","previous_lock":{"request_id":"bob","actor":"bob","created_at":"2026-02-07T10:02:00Z"}"#,
            ),
            (
                300,
                "acquired",
                "deploy",
                "eve",
                r#","token":3,"waited_ms":0"#,
            ),
            (
                600,
                "released",
                "deploy",
                "eve",
                r#","held_ms":300000,"result":"failure""#,
            ),
        ],
    );
}

fn timeline(scene: &Scene, words: &[&str]) -> Answer {
    let mut call = scene.tenure(["timeline"].iter().chain(words));
    answer(call.env("TZ", "UTC")).expect(0, "a timeline")
}

fn document(scene: &Scene, words: &[&str]) -> Value {
    let words = [words, &["--output", "json"]].concat();
    timeline(scene, &words).json()["data"].clone()
}

/// What a page draws.
fn data_of(page: &str) -> Value {
    let (_, behind) = page
        .split_once(r#"<script type="application/json" id="data">"#)
        .unwrap();
    let (data, _) = behind.split_once("</script>").unwrap();
    assert!(
        !data.contains('<'),
        "no character ends the script around it"
    );
    serde_json::from_str(data).unwrap()
}

#[test]
fn a_person_reads_the_sums_and_then_each_lock() {
    let scene = Scene::new();
    quarter(&scene);
    let shown = timeline(&scene, &[]).stdout();
    let expected = "\
2026-02-07 10:00:00 to 10:10:00 (UTC): 1 lock, 3 holds, 1 wait (1m20s in all), 2 refused, 1 skipped, 1 ended without release

Longest waits
  1m  bob for deploy behind ann, from 2026-02-07 10:01:00, granted
  10s  carl for deploy behind ann, from 2026-02-07 10:00:20, refused
  10s  carl for deploy behind ann, from 2026-02-07 10:00:30, refused

Longest holds
  5m  eve had deploy from 2026-02-07 10:05:00, failed
  3m  bob had deploy from 2026-02-07 10:02:00, ended without release
  2m  ann had deploy from 2026-02-07 10:00:00, released; others waited 1m20s

Blocked others most
  1m20s  ann by 1 hold, most of it of deploy

Refused most
  2 refused  carl, most often deploy
  1 skipped  dora, most often deploy

deploy
  FROM                 TO        WHAT        HOW LONG  WHO   HOW
  2026-02-07 10:00:00  10:02:00  held        2m        ann   released, release 4.2, token 1, others waited 1m20s
  2026-02-07 10:00:20  10:00:30  refused     10s       carl  LOCK_TIMEOUT, behind ann
  2026-02-07 10:00:30  10:00:40  refused     10s       carl  LOCK_TIMEOUT, behind ann
  2026-02-07 10:00:50            skipped     0ms       dora  behind ann
  2026-02-07 10:01:00  10:02:00  waited      1m        bob   behind ann
  2026-02-07 10:02:00  10:05:00  held        3m        bob   ended without release, token 2
  2026-02-07 10:05:00            came after  -         eve   after bob
  2026-02-07 10:05:00  10:10:00  held        5m        eve   failed, token 3
";
    assert_eq!(shown, expected);
}

#[test]
fn a_filter_means_what_it_means_for_the_audit() {
    let scene = Scene::new();
    quarter(&scene);
    for (words, holds, waits) in [
        (&["deploy"][..], 3, 4),
        (&["nightly"], 0, 0),
        (&["--request-id", "bob"], 1, 1),
        (&["--since", "2026-02-07T10:06:00Z"], 1, 0),
        // No event lies between, and a hold does.
        (
            &[
                "--since",
                "2026-02-07T10:03:00Z",
                "--until",
                "2026-02-07T10:04:00Z",
            ],
            1,
            0,
        ),
        (&["--until", "2026-02-07T10:00:25Z"], 1, 1),
        (&["--as", "claude/s"], 0, 0),
    ] {
        let counts = &document(&scene, words)["summary"]["counts"];
        let waited = ["waits", "refused", "skipped"].map(|key| counts[key].as_u64().unwrap());
        let found = (
            counts["holds"].as_u64().unwrap(),
            waited.iter().sum::<u64>(),
        );
        assert_eq!(found, (holds, waits), "{words:?}: {counts}");
    }
    let refused = scene.run(["timeline", "--since", "1h", "--until", "2h"]);
    assert!(
        refused
            .expect(2, "no time")
            .stderr()
            .contains("--since is later than --until")
    );
}

#[test]
fn a_page_has_the_numbers_of_the_document_and_asks_for_nothing() {
    let scene = Scene::new();
    quarter(&scene);
    let page = timeline(&scene, &["--output", "html"]).stdout();
    let data = data_of(&page);
    let document = document(&scene, &[]);
    assert_eq!(data["summary"], document["summary"]);
    let count = |list: &str| {
        let counted = |data: &Value| data["locks"][0][list].as_array().unwrap().len();
        (counted(&data), counted(&document))
    };
    for list in ["holds", "waits", "incidents"] {
        let (drawn, told) = count(list);
        assert_eq!(drawn, told, "{list}");
    }
    let policy = "default-src 'none'; script-src 'sha256-";
    assert!(
        page.contains(policy),
        "no other script runs, and nothing is fetched"
    );
    for word in ["http:", "https:", "//cdn", "url(", "{data}", "{script}"] {
        assert!(!page.contains(word), "{word}");
    }
}

/// The policy has the hash of each script and style as a browser counts it: all between the tags.
#[test]
fn the_policy_of_a_page_lets_its_own_script_run() {
    let scene = Scene::new();
    let page = timeline(&scene, &["--output", "html"]).stdout();
    for tag in ["script", "style"] {
        let (_, behind) = page.rsplit_once(&format!("<{tag}>")).unwrap();
        let (text, _) = behind.split_once(&format!("</{tag}>")).unwrap();
        let hash = STANDARD.encode(hmac_sha256::Hash::hash(text.as_bytes()));
        assert!(
            page.contains(&format!("{tag}-src 'sha256-{hash}'")),
            "{tag}"
        );
    }
}

#[test]
fn no_name_runs_anything_or_acts_on_the_text_around_it() {
    let scene = Scene::new();
    let why = format!(r#","token":1,"why":"{}""#, HOSTILE.replace('"', "\\\""));
    let name = HOSTILE.replace('"', "\\\"");
    let met = format!(r#","code":"{name}","held_by":{{"request_id":"{name}","actor":"{name}"}}"#);
    write(
        &scene,
        &[
            (0, "acquired", &name, &name, &why),
            (1, "refused", &name, &name, &met),
            (2, "lost", &name, &name, r#","token":1"#),
        ],
    );
    let acts = |c: char| (c.is_control() && c != '\n') || "\u{202e}\u{2028}".contains(c);
    for output in ["text", "html", "svg"] {
        let shown = timeline(&scene, &["--output", output]).stdout();
        assert!(!shown.contains(acts), "{output}");
        if output != "text" {
            assert!(
                !shown.contains("<img") && !shown.contains("<script>x"),
                "{output}"
            );
        }
        if output == "html" {
            assert_eq!(shown.matches("</script>").count(), 2, "its own two");
            assert!(
                data_of(&shown).to_string().contains("onerror=x"),
                "and it is shown"
            );
        }
    }
}

#[test]
fn a_picture_has_a_bound_and_says_what_has_no_room() {
    let scene = Scene::new();
    quarter(&scene);
    let picture = timeline(&scene, &["--output", "svg"]).stdout();
    assert!(picture.starts_with("<svg ") && picture.trim_end().ends_with("</svg>"));
    assert!(!picture.contains("have no room"), "{picture}");
    for fact in [
        "<title>ann had deploy from 2026-02-07 10:00:00, released 2026-02-07 10:02:00</title>",
        "<title>2026-02-07 10:05:00 deploy: eve came after bob</title>",
        ">1m: bob for deploy behind ann, from 2026-02-07 10:01:00, granted<",
    ] {
        assert!(picture.contains(fact), "{fact}: {picture}");
    }
    let many: Vec<_> = (0..3_000).map(|at| (at, format!("r{at}"))).collect();
    let many: Vec<_> = many
        .iter()
        .map(|(at, id)| {
            (
                *at,
                "refused",
                ["a", "b"][usize::from(at % 2 == 1)],
                &**id,
                "",
            )
        })
        .collect();
    let twice: Vec<_> = many.iter().chain(&many).copied().collect();
    write(&scene, &twice);
    let picture = timeline(&scene, &["--output", "svg"]).stdout();
    let left =
        "1000 of 6000 bars have no room here; --since, --until or the name of a lock chooses";
    assert!(picture.contains(left), "what is left out");
    assert!(picture.len() < 4 << 20, "{} bytes", picture.len());
}

#[test]
fn only_a_timeline_is_drawn() {
    let scene = Scene::new();
    let list = scene
        .run(["list", "--output", "html"])
        .expect(2, "a list is no picture");
    assert!(!list.stderr().contains("svg"), "{}", list.said());
    let pdf = scene
        .run(["timeline", "--output", "pdf"])
        .expect(2, "no such form");
    assert!(pdf.stderr().contains("html"), "{}", pdf.said());
    let empty = timeline(&scene, &[]).stdout();
    assert_eq!(empty, "no holds and no waits\n");
    assert!(!scene.locks().exists(), "nothing was created");
}

/// Real calls, and not lines of this test's own.
#[test]
fn what_calls_record_is_what_a_timeline_shows() {
    let scene = Scene::new();
    let _ = scene
        .run(["run", "a", "--slots", "2", "--", "true"])
        .expect(0, "a slot");
    let _ = scene
        .run(["acquire", "b", "--owner", "none", "--request-id", "r1"])
        .expect(0, "b");
    let _ = scene
        .run(["run", "b", "-n", "--", "true"])
        .expect(4, "held");
    let data = document(&scene, &[]);
    let counts = &data["summary"]["counts"];
    let found = ["holds", "open", "refused"].map(|key| counts[key].as_u64().unwrap());
    assert_eq!(found, [2, 1, 1], "{data}");
    let locks = data["locks"].as_array().unwrap();
    let of = |name: &str| locks.iter().find(|lock| lock["name"] == name).unwrap();
    assert_eq!(of("a")["holds"][0]["mode"], "slots");
    assert_eq!(of("a")["holds"][0]["slot"], 0);
    assert_eq!(of("b")["waits"][0]["behind"]["request_id"], "r1");
}
