//! `profiles`, and what becomes of profiles that a user wrote in `tenure.toml` for an earlier build.

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
fn one_profile_can_be_asked_for() {
    let scene = Scene::new();
    assert_eq!(names(&shown(&scene, &["--profile", "fleet"])), ["fleet"]);
    let answer = here(&scene, &["profiles", "--profile", "nightli"]).expect(2, "unknown");
    let said = answer.stderr();
    for word in ["nightli", "native", "fleet"] {
        assert!(said.contains(word), "`{word}` is named: {said}");
    }
    assert_eq!(said.lines().count(), 1, "one sentence: {said}");
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

/// Force that changes nothing is refused at once. No caller waits for an end that never comes, or believes
/// that its force was heeded.
#[test]
fn force_that_has_no_effect_is_refused_before_anything_is_touched() {
    let scene = Scene::new();
    for words in [
        &["acquire", "7", "--force"][..],
        &["run", "7", "--force", "--", "touch", "ran"],
    ] {
        let words = [&["--profile", "session"], words].concat();
        let said = here(&scene, &words).expect(2, "without an effect").stderr();
        let part = "--force has no effect in the profile session:";
        assert!(said.starts_with(part), "{words:?}: {said}");
    }
    assert!(!scene.path("ran").exists());
    assert!(!scene.locks().exists(), "nothing was made");
}

/// Where force has another use, a live hold in its way is said to be one that it does not end.
#[test]
fn a_live_hold_that_force_does_not_end_is_told_with_the_profile() {
    let scene = Scene::new();
    let intent = ["--intent-name", "i", "--intent-version", "1"];
    let fleet = |words: &[&str]| here(&scene, &[&["--profile", "fleet"], words].concat());
    let _ = fleet(&[&["acquire", "x"], &intent[..]].concat()).expect(0, "free");
    let forced = fleet(&[&["acquire", "x", "--force"], &intent[..]].concat());
    for refused in [forced, fleet(&["force-release", "x", "--yes"])] {
        let said = refused.expect(4, "held").stderr();
        let part = "force never ends a live hold in the profile fleet (force = \"never\")";
        assert!(said.contains(part), "{said}");
    }
}

/// How a call may choose a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chosen {
    ByFlag,
    ByVariable,
    ByFile,
    Not,
}

/// A call in a folder whose file has a section for the profile `mine`.
fn of_old(scene: &Scene, chosen: Chosen, words: &[&str]) -> Answer {
    let section = "dir = \"locks\"\n[profile.mine]\nheld = \"1m\"\nforce = \"never\"\n";
    let chooses = match chosen {
        Chosen::ByFile => "[profile]\ndefault = \"mine\"\n",
        Chosen::ByFlag | Chosen::ByVariable | Chosen::Not => "",
    };
    scene.write("tenure.toml", &format!("{section}{chooses}"));
    let flag = match chosen {
        Chosen::ByFlag => &["--profile", "mine"][..],
        Chosen::ByVariable | Chosen::ByFile | Chosen::Not => &[],
    };
    let mut command = scene.tenure(flag.iter().chain(words));
    command.env_remove("TENURE_DIR").current_dir(scene.root());
    if chosen == Chosen::ByVariable {
        command.env("TENURE_PROFILE", "mine");
    }
    answer(&mut command)
}

/// The one sentence about that section.
fn sentence(scene: &Scene) -> String {
    format!(
        "tenure: {}: [profile.\"mine\"]: profiles of your own are gone; use the profile \"native\" \
         instead, with wait in [lock.\"*\"] for held; nothing replaces \"force\"\n",
        scene.path("tenure.toml").display()
    )
}

#[test]
fn no_call_takes_or_waits_by_a_profile_of_the_users_own() {
    for chosen in [Chosen::ByFlag, Chosen::ByVariable, Chosen::ByFile] {
        let scene = Scene::new();
        for words in [
            &["acquire", "x"][..],
            &["acquire", "x", "--output", "json"],
            &["wait", "x"],
            &["run", "x", "--", "touch", "ran"],
            &["run", "--group", "g", "--", "touch", "ran"],
            &["run", "x", "-l", "y", "--exec", "--", "touch", "ran"],
            &["push"],
        ] {
            let refused = of_old(&scene, chosen, words).expect(2, &format!("{chosen:?} {words:?}"));
            // The lock of a push is never of another profile, and its messages have no name before them.
            let said = match (words[0], chosen) {
                ("push", Chosen::ByFlag) => continue,
                ("push", _) => format!("tenure: {}", refused.stderr()),
                _ => refused.stderr(),
            };
            if words.contains(&"json") {
                let document = refused.json();
                assert_eq!(document["error"]["code"], "BAD_CONFIGURATION", "{document}");
                continue;
            }
            assert_eq!(said, sentence(&scene), "{chosen:?} {words:?}");
            assert_eq!(refused.stdout(), "", "{chosen:?} {words:?}");
        }
        assert!(!scene.path("ran").exists(), "{chosen:?}");
        assert!(!scene.locks().exists(), "nothing was made: {chosen:?}");
    }
}

#[test]
fn every_other_call_warns_once_of_such_a_profile_and_goes_on() {
    for chosen in [
        Chosen::ByFlag,
        Chosen::ByVariable,
        Chosen::ByFile,
        Chosen::Not,
    ] {
        let scene = Scene::new();
        let take = ["acquire", "x", "--owner", "none", "--request-id", "r"];
        let _ = scene.run(take).expect(0, "before the update");
        for words in [
            &["heartbeat", "x", "--request-id", "r"][..],
            &["check", "x", "--request-id", "r"],
            &["list"],
            &["cancel", "x", "--by", "q"],
            &["release", "x", "--request-id", "r"],
            &["force-release", "x", "--yes"],
            &["clean"],
            &["check"],
            &["audit", "x"],
            &["doctor"],
            &["profiles"],
        ] {
            let went_on = of_old(&scene, chosen, words);
            // A file that chooses it is reported as wrong.
            let is_wrong = words == ["doctor"] && matches!(chosen, Chosen::ByFile);
            let went_on = went_on.expect(i32::from(is_wrong), &format!("{chosen:?} {words:?}"));
            let said = went_on.stderr();
            assert_eq!(
                said.matches("are gone").count(),
                1,
                "{chosen:?} {words:?}: {said}"
            );
            assert!(said.starts_with(&sentence(&scene)), "{said}");
        }
        assert!(scene.is_free("x"), "{chosen:?}");
    }
}

#[test]
fn a_section_that_no_call_chooses_stops_no_call() {
    let scene = Scene::new();
    for words in [
        &["run", "x", "--", "touch", "ran"][..],
        &["acquire", "y", "--owner", "none"],
        &["wait", "x"],
    ] {
        let went_on = of_old(&scene, Chosen::Not, words).expect(0, "native");
        assert_eq!(went_on.stderr().matches("are gone").count(), 1, "{words:?}");
    }
    assert!(scene.path("ran").exists());
    let document = of_old(&scene, Chosen::Not, &["list", "--output", "json"]);
    let document = document.expect(0, "native").json();
    let said = document["warnings"][0].as_str().expect("a warning");
    assert!(said.contains("[profile.\"mine\"]"), "{said}");
}

/// `own_profiles` has the bytes that an earlier build left where it had taken a lock by each profile of the file there.
/// The clock stands a minute later, and the machine of the holders is not this one.
#[cfg(feature = "testing-clock")]
#[test]
fn a_hold_of_such_a_profile_is_found_renewed_and_given_back() {
    use tenure_os::clock::stepped::{STEPS, real_us, set};
    const TAKEN_US: i64 = 1_770_458_400_000_000;
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/own_profiles");
    for (profile, folder, name, record) in [
        ("mine", "native", "job-1", "job-1.tenure"),
        ("jobs", "resume", "job-1", "resume_locks/job-1.lock"),
        ("agents", "session", "42", "locks/42.lock"),
        ("careful", "fleet", "app-prod", "app-prod.lock"),
        ("sprints", "sprint", "sprint", ".sprint-running"),
    ] {
        let scene = Scene::new();
        let copy = format!(
            "umask 077; cp -r '{kept}' '{}'",
            scene.path("kept").display()
        );
        let _ = scene.shell(&copy).expect(0, "a copy");
        let steps = scene.path("steps");
        let now = i64::try_from(real_us()).expect("a time");
        set(&steps, TAKEN_US + 60_000_000 - now).expect("a clock");
        let place = scene.path("kept").join(folder);
        let record = place.join(record);
        let root = if folder == "sprint" {
            "--project-root"
        } else {
            "--dir"
        };
        let call = |words: &[&str]| {
            let mut command = scene.tenure(words);
            command.env_remove("TENURE_DIR").env(STEPS, &steps);
            command.args(["--profile", profile, "--config"]);
            command.arg(scene.path("kept/tenure.toml"));
            let answer = answer(command.arg(root).arg(&place));
            match answer.code() {
                // A sprint's answer is an object that says it twice.
                2 => assert!(answer.said().contains("are gone"), "{}", answer.said()),
                _ => assert_eq!(answer.stderr().matches("are gone").count(), 1),
            }
            answer
        };
        let before = fs::read(&record).expect("a record");
        let take = ["acquire", name, "--request-id", "r", "--epic-spec", "e"];
        let take = if folder == "sprint" {
            &take[..]
        } else {
            &take[..4]
        };
        let _ = call(take).expect(2, profile);
        let _ = call(&["wait", name]).expect(2, profile);
        assert_eq!(fs::read(&record).expect("a record"), before, "{profile}");
        let holder = ["--request-id", "holder-1"];
        let _ = call(&["check", name]).expect(4, profile);
        let _ = call(&[&["heartbeat", name], &holder[..]].concat()).expect(0, profile);
        let _ = call(&["list"]).expect(0, profile);
        let _ = call(&["clean"]).expect(0, profile);
        assert!(record.exists(), "it is held: {profile}");
        let _ = call(&[&["release", name], &holder[..]].concat()).expect(0, profile);
        let _ = call(&["check", name]).expect(0, profile);
        assert_eq!(record.exists(), folder == "native", "{profile}");
    }
}
