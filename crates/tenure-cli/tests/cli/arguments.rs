//! Help as it is asked for. `pages/arguments.txt` has what else may be typed, and how a mistake is answered.

use crate::support::Scene;

#[test]
fn help_is_an_answer_and_not_a_failure() {
    let scene = Scene::new();
    for words in [
        &["--help"][..],
        &["-h"],
        &["help"],
        &["help", "run"],
        &["run", "--help"],
        &["run", "x", "-h"],
        &["--output", "text", "check", "--help"],
        &["--version"],
        &["-V"],
    ] {
        let answer = scene.run(words).expect(0, &format!("{words:?}"));
        assert_ne!(answer.stdout(), "", "{words:?} on stdout");
        assert_eq!(answer.stderr(), "", "{words:?} and nothing else");
    }
    for verb in [
        "run",
        "acquire",
        "release",
        "heartbeat",
        "check",
        "list",
        "top",
        "wait",
        "fence",
        "clean",
        "demo",
        "profiles",
        "audit",
        "timeline",
        "metrics",
        "push",
        "agent",
        "group-name",
        "serve",
        "mcp",
        "hook",
    ] {
        let help = scene.run([verb, "--help"]).stdout();
        let first = help.lines().next().unwrap_or_default();
        assert!(
            !first.is_empty() && !first.starts_with("Usage"),
            "{verb} says what it does: {first}"
        );
        assert!(help.contains("Examples:"), "{verb} shows how it is used");
        let same = scene.run(["help", verb]).stdout();
        assert_eq!(help, same, "both ways to ask about {verb} answer the same");
    }
    let alone = scene.run([] as [&str; 0]).expect(2, "no verb at all");
    assert!(
        alone.stderr().contains("Usage:"),
        "the page of help: {}",
        alone.said()
    );
    assert!(!scene.locks().exists(), "nothing was created");
}
