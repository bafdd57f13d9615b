//! `profiles`, and the profiles that a user writes in `tenure.toml`.

use crate::support::{Answer, Scene, answer};
use serde_json::{Value, json};
use std::fs;

/// A call from the scene's folder, where its `tenure.toml` is the nearest one.
fn here(scene: &Scene, words: &[&str]) -> Answer {
    let mut command = scene.tenure(words);
    command.current_dir(scene.root());
    answer(&mut command)
}

/// The profiles that a call from the scene's folder shows.
fn shown(scene: &Scene, words: &[&str]) -> Vec<Value> {
    let words: Vec<_> = ["profiles", "--output", "json"]
        .iter()
        .chain(words)
        .copied()
        .collect();
    let document = here(scene, &words).expect(0, "the profiles").json();
    document["data"]["profiles"].as_array().unwrap().clone()
}

fn names(profiles: &[Value]) -> Vec<&str> {
    let names = profiles.iter().map(|profile| profile["name"].as_str());
    names.map(Option::unwrap).collect()
}

const BUILT_IN: [&str; 5] = ["native", "sprint", "resume", "session", "fleet"];

#[test]
fn every_built_in_profile_is_shown_with_its_contract() {
    let scene = Scene::new();
    let profiles = shown(&scene, &[]);
    assert_eq!(names(&profiles), BUILT_IN);
    let native = json!({
        "name": "native",
        "like": null,
        "asks_beacon": true,
        "unknown_process": "alive-until-ttl",
        "stale_after_ms": null,
        "stale_silence_ms": null,
        "stale_past_ttl": false,
        "unreadable": "refuse",
        "stale": "take-over",
        "held": "wait",
        "held_wait_ms": 10_000,
        "own_again": "yours",
        "force": "ask-to-stop",
        "release_by_other": "refuse",
        "absent_release": "warn",
        "ttl_ms": 30_000,
        "detached_ttl_ms": 900_000,
    });
    assert_eq!(profiles[0], native);
    for (index, key, value) in [
        (1, "stale_after_ms", json!(86_400_000)),
        (1, "unknown_process", json!("dead")),
        (1, "stale", json!("refuse")),
        (1, "force", json!("override-confirmed")),
        (1, "release_by_other", json!("warn")),
        (2, "unknown_process", json!("alive")),
        (2, "force", json!("override")),
        (3, "stale_silence_ms", json!(600_000)),
        (3, "unreadable", json!("stale")),
        (3, "release_by_other", json!("ignore")),
        (4, "stale_past_ttl", json!(true)),
        (4, "unknown_process", json!("not-asked")),
        (4, "unreadable", json!("refuse-until-ttl")),
        (4, "force", json!("never")),
        (4, "held_wait_ms", json!(null)),
    ] {
        assert_eq!(profiles[index][key], value, "{} {key}", BUILT_IN[index]);
    }
}

#[test]
fn the_table_fits_a_hundred_columns_and_says_what_the_page_says() {
    let scene = Scene::new();
    let text = here(&scene, &["profiles"]).expect(0, "the table").stdout();
    let head = text.lines().next().unwrap_or_default();
    for name in BUILT_IN {
        assert!(head.contains(name), "{name} heads a column: {head}");
    }
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/profiles.md");
    let page = fs::read_to_string(page).unwrap();
    assert!(
        page.contains(&text),
        "docs/profiles.md shows the table as it is:\n{text}"
    );
}

#[test]
fn an_own_profile_stands_behind_the_built_in_ones() {
    let scene = Scene::new();
    scene.write(
        "tenure.toml",
        "[profile.nightly]\nstale_after = \"2h\"\nheld = \"1m\"\nforce = \"never\"\n\
         [profile.ci]\nlike = \"session\"\nstale_silence = \"ttl\"\ndetached_ttl = \"1h30m\"\n",
    );
    let profiles = shown(&scene, &[]);
    let [built_in @ .., ci, nightly] = profiles.as_slice() else {
        panic!("two more than there are: {profiles:?}");
    };
    assert_eq!(names(built_in), BUILT_IN);
    assert_eq!(
        (&ci["name"], &ci["like"]),
        (&json!("ci"), &json!("session"))
    );
    assert_eq!(ci["stale_silence_ms"], Value::Null);
    assert_eq!(ci["stale_past_ttl"], true);
    assert_eq!(ci["detached_ttl_ms"], 5_400_000);
    assert_eq!(ci["release_by_other"], "ignore", "as in the row it is like");
    let mut expected = built_in[0].clone();
    expected["name"] = json!("nightly");
    expected["like"] = json!("native");
    expected["stale_after_ms"] = json!(7_200_000);
    expected["held_wait_ms"] = json!(60_000);
    expected["force"] = json!("never");
    assert_eq!(*nightly, expected, "what it does not say is as in native");

    let text = here(&scene, &["profiles"]).expect(0, "the table").stdout();
    let own = text.split("\n\n").nth(1).unwrap_or_default();
    let cells = |label: &str| {
        let line = own.lines().find(|line| line.starts_with(label));
        let line = line.unwrap_or_default();
        line.replacen(label, "", 1)
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(cells("PROFILE"), ["ci", "nightly"], "{text}");
    assert_eq!(cells("like"), ["session", "native"], "{text}");
    assert_eq!(cells("ttl detached"), ["1h30m", "15m"], "{text}");
}

#[test]
fn one_profile_can_be_asked_for() {
    let scene = Scene::new();
    scene.write("tenure.toml", "[profile.nightly]\n");
    assert_eq!(names(&shown(&scene, &["--profile", "fleet"])), ["fleet"]);
    assert_eq!(
        names(&shown(&scene, &["--profile", "nightly"])),
        ["nightly"]
    );
    let answer = here(&scene, &["profiles", "--profile", "nightli"]).expect(2, "unknown");
    let said = answer.stderr();
    for word in ["nightli", "native", "fleet", "nightly"] {
        assert!(said.contains(word), "`{word}` is named: {said}");
    }
    assert_eq!(said.lines().count(), 1, "one sentence: {said}");
}

#[test]
fn the_configuration_is_the_named_one_or_the_nearest() {
    let scene = Scene::new();
    let deep = scene.path("a/b");
    fs::create_dir_all(&deep).unwrap();
    scene.write("tenure.toml", "[profile.near]\n");
    let other = scene.write("other.toml", "[profile.other]\n");
    let last = |command: &mut std::process::Command| {
        let document = answer(command).expect(0, "the profiles").json();
        let profiles = document["data"]["profiles"].as_array().unwrap();
        profiles.last().unwrap()["name"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let words = ["profiles", "--output", "json"];
    let mut command = scene.tenure(words);
    assert_eq!(last(command.current_dir(&deep)), "near", "upwards");
    let mut command = scene.tenure(words);
    command.arg("--config").arg(&other).current_dir(&deep);
    assert_eq!(last(&mut command), "other", "the named one");
    let mut command = scene.tenure(words);
    command.env("TENURE_CONFIG", &other).current_dir(&deep);
    assert_eq!(last(&mut command), "other", "the one a run has told");
}

#[test]
fn looking_at_profiles_needs_no_place_and_creates_nothing() {
    let scene = Scene::new();
    let mut command = scene.tenure(["profiles"]);
    command
        .env_remove("HOME")
        .env_remove("TENURE_DIR")
        .current_dir(scene.root());
    let _ = answer(&mut command).expect(0, "no place is known, and none is needed");
    let left = fs::read_dir(scene.root()).unwrap().count();
    assert_eq!(left, 0, "nothing was created");
}

#[test]
fn a_row_that_means_nothing_stops_every_call_that_reads_it() {
    let scene = Scene::new();
    for (row, word) in [
        ("[profile.x]\nstale_since = \"2h\"\n", "stale_since"),
        ("[profile.x]\nstale_after = 2\n", "stale_after"),
        ("[profile.x]\nstale_after = \"soon\"\n", "stale_after"),
        (
            "[profile.x]\nstale_after = \"2h\"\nstale_silence = \"ttl\"\n",
            "stale_silence",
        ),
        (
            "[profile.x]\nlike = \"fleet\"\nforce = \"ask-to-stop\"\n",
            "force",
        ),
        ("[profile.x]\nforce = \"override\"\n", "force"),
        (
            "[profile.x]\nrelease_by_other = \"warn\"\n",
            "release_by_other",
        ),
        (
            "[profile.x]\nunknown_process = \"not-asked\"\n",
            "unknown_process",
        ),
        ("[profile.x]\nlike = \"x\"\n", "like"),
        ("[profile.x]\nttl = \"0\"\n", "ttl"),
        ("[profile.fleet]\n", "fleet"),
        ("[profile.Nightly]\n", "Nightly"),
        ("profile = \"fleet\"\n", "profile"),
    ] {
        scene.write("tenure.toml", row);
        let config = scene.path("tenure.toml");
        let config = config.to_str().unwrap();
        for words in [
            &["profiles"][..],
            &["run", "x", "--config", config, "--", "echo", "ran"],
            &["check", "--config", config],
        ] {
            let answer = here(&scene, words).expect(2, row);
            assert_eq!(answer.stdout(), "", "nothing was done: {row}");
            let said = answer.stderr();
            assert!(said.contains(word), "`{word}` is named: {said}");
            assert!(said.contains("tenure.toml"), "and the file: {said}");
            assert_eq!(said.lines().count(), 1, "one sentence: {said}");
        }
    }
    assert!(!scene.locks().exists(), "nothing was created");
}
