//! `group-name`: the facts from flags, the environment and the event's file.

use crate::support::{Answer, Scene, answer};
use std::fs;

/// The events as GitHub delivers them, as far as that matters here.
const ISSUE: &str = r#"{"action":"opened","issue":{"number":42,"title":"x"},"sender":{}}"#;
const COMMENT: &str = r#"{"action":"created","comment":{"id":1},"issue":{"number":42}}"#;
const PR_COMMENT: &str =
    r#"{"comment":{"id":1},"issue":{"number":42,"pull_request":{"url":"https://x"}}}"#;
const PULL: &str = r#"{"action":"opened","number":42,"pull_request":{"number":42}}"#;
const REVIEW: &str = r#"{"pull_request":{"number":42},"review":{"id":9}}"#;

/// A call with GitHub's environment.
fn called(scene: &Scene, event: &str, document: &str, words: &[&str]) -> Answer {
    let path = scene.path("event.json");
    fs::write(&path, document).unwrap();
    let mut command = scene.tenure(["group-name"].iter().chain(words));
    answer(
        command
            .env("GITHUB_EVENT_NAME", event)
            .env("GITHUB_EVENT_PATH", path)
            .env("GITHUB_RUN_ID", "777"),
    )
}

#[test]
fn the_environment_of_a_run_says_which_group_it_is_in() {
    let scene = Scene::new();
    for (event, document, group) in [
        ("issues", ISSUE, "issue-42"),
        ("issue_comment", COMMENT, "issue-42"),
        ("issue_comment", PR_COMMENT, "pr-42"),
        ("pull_request", PULL, "pr-42"),
        ("pull_request_target", PULL, "pr-42"),
        ("pull_request_review", REVIEW, "pr-42"),
        ("pull_request_review_comment", REVIEW, "pr-42"),
        ("schedule", r#"{"schedule":"0 * * * *"}"#, "schedule"),
        ("workflow_dispatch", "{}", "dispatch-777"),
        ("repository_dispatch", "{}", "other-777"),
        ("push", "this is not read", "other-777"),
    ] {
        let answer = called(&scene, event, document, &[]).expect(0, event);
        assert_eq!(answer.stdout(), format!("{group}\n"), "{event}");
        assert_eq!(answer.stderr(), "", "{event}");
        let prefixed = called(&scene, event, document, &["--prefix", "Agent"]);
        assert_eq!(prefixed.stdout(), format!("agent-{group}\n"), "{event}");
    }
    assert!(!scene.locks().exists(), "it looks at no lock");
}

#[test]
fn flags_count_for_more_than_the_environment() {
    let scene = Scene::new();
    let other = scene.path("other.json");
    fs::write(&other, r#"{"issue":{"number":9}}"#).unwrap();
    let other = other.to_str().unwrap();
    for (words, group) in [
        (&["--event", "schedule"][..], "schedule"),
        (&["--number", "7"], "issue-7"),
        (&["--event", "pull_request", "--number", "7"], "pr-7"),
        (&["--event-file", other], "issue-9"),
        (&["--event", "push", "--run-id", "Abc"], "other-abc"),
    ] {
        let answer = called(&scene, "issues", ISSUE, words).expect(0, "a group");
        assert_eq!(answer.stdout(), format!("{group}\n"), "{words:?}");
    }
    let alone = scene.run(["group-name", "--event", "issues", "--number", "3"]);
    assert_eq!(alone.expect(0, "no environment").stdout(), "issue-3\n");
}

#[test]
fn a_program_gets_the_name_in_the_envelope() {
    let scene = Scene::new();
    let answer = called(&scene, "issues", ISSUE, &["--output", "json"]);
    assert_eq!(answer.json()["data"]["group"], "issue-42");
}

#[test]
fn bad_and_missing_facts_are_named_in_one_sentence() {
    let scene = Scene::new();
    let large = scene.path("large.json");
    fs::File::create(&large)
        .unwrap()
        .set_len((25 << 20) + 1)
        .unwrap();
    let large = large.to_str().unwrap();
    for (event, document, words, said) in [
        ("", ISSUE, &[][..], "--event is missing"),
        ("issues", ISSUE, &["--event", "Issues"], "--event"),
        ("issues", "{}", &[], "there is no number"),
        (
            "issues",
            r#"{"issue":{"number":0}}"#,
            &[],
            "there is no number",
        ),
        (
            "issues",
            r#"{"issue":{"number":-1}}"#,
            &[],
            "not the document of an event",
        ),
        (
            "issues",
            r#"{"issue":"#,
            &[],
            "not the document of an event",
        ),
        ("issues", "", &[], "not the document of an event"),
        (
            "issues",
            ISSUE,
            &["--event-file", "/no/such/file"],
            "--event-file /no/such/file",
        ),
        ("issues", ISSUE, &["--event-file", large], "at most"),
        ("issues", ISSUE, &["--event-file", "/"], "--event-file /"),
        ("issues", ISSUE, &["--number", "0"], "--number"),
        ("issues", ISSUE, &["--number", "x"], "--number"),
        (
            "issues",
            ISSUE,
            &["--number", "1", "--event-file", "x"],
            "--event-file",
        ),
        ("push", ISSUE, &["--run-id", "a/b"], "--run-id"),
        ("push", ISSUE, &["--run-id", ""], "--run-id"),
        ("issues", ISSUE, &["--prefix", "../x"], "--prefix"),
    ] {
        let answer = called(&scene, event, document, words).expect(2, &format!("{words:?}"));
        assert_eq!(answer.stdout(), "", "{words:?}");
        let text = answer.stderr();
        assert!(text.contains(said), "{said:?} in {text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    let nothing = scene.run(["group-name"]).expect(2, "no facts at all");
    assert!(nothing.stderr().contains("GITHUB_EVENT_NAME"));
    let number = scene
        .run(["group-name", "--event", "issues"])
        .expect(2, "no number");
    assert!(number.stderr().contains("--number"), "{}", number.stderr());
    let run = scene
        .run(["group-name", "--event", "push"])
        .expect(2, "no run id");
    assert!(run.stderr().contains("--run-id"), "{}", run.stderr());
}
