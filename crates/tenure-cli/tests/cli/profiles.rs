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
        ("profile = 3\n", "profile"),
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

/// An own profile in which force ends nothing that lives.
fn strict() -> Scene {
    let scene = Scene::new();
    scene.write(
        "tenure.toml",
        "[profile.strict]\nforce = \"never\"\n\
         [profile.job]\nlike = \"resume\"\nforce = \"never\"\n\
         [profile.mutex]\nlike = \"sprint\"\nforce = \"never\"\n",
    );
    scene
}

/// Force that changes nothing is refused at once. No caller waits for an end that never comes, or believes
/// that its force was heeded.
#[test]
fn force_that_has_no_effect_is_refused_before_anything_is_touched() {
    let scene = strict();
    for (profile, words) in [
        ("strict", &["run", "7", "--force", "--", "touch", "ran"][..]),
        (
            "strict",
            &["run", "7", "--force", "--yes", "--", "touch", "ran"],
        ),
        (
            "strict",
            &["run", "--group", "7", "--force", "--", "touch", "ran"],
        ),
        (
            "strict",
            &["run", "6", "-l", "7", "--force", "--", "touch", "ran"],
        ),
        ("strict", &["acquire", "7", "--force"]),
        ("job", &["acquire", "7", "--force"]),
        ("job", &["run", "7", "--force", "--", "touch", "ran"]),
        ("session", &["acquire", "7", "--force"]),
    ] {
        let words: Vec<_> = ["--profile", profile]
            .iter()
            .chain(words)
            .copied()
            .collect();
        let refused = here(&scene, &words).expect(2, "force without an effect");
        let said = refused.stderr();
        assert!(
            said.contains(&format!("--force has no effect in the profile {profile}:")),
            "{words:?}: {said}"
        );
        assert_eq!(said.starts_with("tenure: "), profile == "strict", "{said}");
    }
    assert!(!scene.path("ran").exists());
    assert!(!scene.locks().exists(), "nothing was made");
}

#[test]
fn what_cannot_be_read_may_be_forced_in_every_own_profile() {
    let scene = strict();
    let _ = here(&scene, &["run", "x", "--", "true"]).expect(0, "a lock");
    let file = scene.write(
        "locks/x.tenure",
        "no lock at all, and long enough to be none\n",
    );
    let file = fs::File::options().write(true).open(file).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    let words = ["--profile", "strict", "run", "x"];
    let refused = here(&scene, &[&words[..], &["--", "true"]].concat());
    let said = refused.expect(4, "unreadable").stderr();
    assert!(said.contains("`run --force` replaces it"), "{said}");
    let forced = here(
        &scene,
        &[&words[..], &["--force", "--", "echo", "mine"]].concat(),
    );
    assert_eq!(forced.expect(0, "replaced").stdout(), "mine\n");
}

/// Where force has another use, a live hold in its way is said to be one that it does not end.
#[test]
fn a_live_hold_that_force_does_not_end_is_told_with_the_profile() {
    let scene = strict();
    let held = scene.hold("x", [""; 0]);
    for (words, prefix) in [
        (
            &["run", "x", "-n", "--", "true"][..],
            "tenure: x is held by PID ",
        ),
        (
            &["force-release", "x", "--yes"],
            "tenure: x is held by PID ",
        ),
    ] {
        let words: Vec<_> = ["--profile", "strict"]
            .iter()
            .chain(words)
            .copied()
            .collect();
        let said = here(&scene, &words).expect(4, "held").stderr();
        assert!(
            said.starts_with(prefix),
            "an own profile speaks as native: {said}"
        );
        assert_eq!(
            said.contains("force never ends a live hold in the profile strict (force = \"never\")"),
            words.contains(&"force-release"),
            "{said}"
        );
    }
    let _ = held.open().expect(0, "it went on");

    let own = std::process::id().to_string();
    let taken = here(
        &scene,
        &["--profile", "job", "acquire", "7", "--owner", &own],
    );
    let _ = taken.expect(0, "free");
    let said = here(
        &scene,
        &["--profile", "job", "acquire", "7", "--owner", &own],
    );
    let said = said.expect(4, "held").stderr();
    assert!(!said.contains("--force"), "no advice that is none: {said}");

    let root = scene.root().display().to_string();
    let sprint = |session: &str, force: &[&str]| {
        let words = [
            "--profile",
            "mutex",
            "acquire",
            "--project-root",
            &root,
            "--session-id",
            session,
            "--epic-spec",
            "e",
            "--owner",
            &own,
        ];
        here(&scene, &[&words[..], force].concat())
    };
    let _ = sprint("s", &[]).expect(0, "free");
    let said = sprint("t", &["--force", "--yes"])
        .expect(4, "blocked")
        .stderr();
    assert!(
        said.contains("force never ends a live hold in the profile mutex"),
        "{said}"
    );
}
