//! The lines of the guides for agents, each as it stands, in a repository with the configuration that the guide shows.

use crate::support::{Scene, answer};
use std::fs;
use std::path::Path;

/// Runs the lines of a guide; answers how many there were.
fn run_guide(name: &str) -> usize {
    let scene = Scene::new();
    let page = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/guides")
        .join(name);
    let page = fs::read_to_string(page).expect("the guide");
    let sh = |line: &str| {
        let mut sh = scene.program("sh");
        sh.args(["-c", line])
            .env_remove("TENURE_DIR")
            .current_dir(scene.path("repository"));
        answer(&mut sh)
    };
    fs::create_dir(scene.path("repository")).expect("a folder");
    sh("git init -q -b main && git config user.name t && git config user.email t@localhost && mkdir migrations")
        .expect(0, "a repository");
    for program in ["migrate", "deploy", "agent"] {
        let does = "#!/bin/sh\n[ -n \"$TENURE_TOKEN\" ]\n";
        scene.script(&format!("repository/{program}"), does);
    }
    scene.write(
        "repository/Makefile",
        "all:\n\t@[ \"$$TENURE_NAME\" = build ]\n",
    );
    sh("git add . && git commit -q -m first").expect(0, "a commit");
    let (mut language, mut config, mut ran) = (None, String::new(), 0);
    for line in page.lines() {
        match (line.strip_prefix("```"), language) {
            (Some(opened), None) => language = Some(opened),
            (Some(_), Some(closed)) => {
                if closed == "toml" {
                    scene.write("repository/tenure.toml", &config);
                }
                language = None;
            }
            (None, Some("toml")) => config.extend([line, "\n"]),
            (None, Some("yaml")) if !line.contains("run: tenure") => {}
            (None, Some("sh" | "yaml")) => {
                let line = line.trim_start().trim_start_matches("- run: ");
                let answer = sh(line).expect(0, line);
                assert_eq!(answer.stderr(), "", "{line}");
                if line.contains("status") {
                    assert!(!answer.stdout().contains("wrong"), "{}", answer.stdout());
                }
                ran += 1;
            }
            (None, Some(other)) => panic!("a block of an unknown kind: {other}"),
            (None, None) => {}
        }
    }
    // What a guide takes out is out: no file of a host is left with tenure in it.
    if page.contains("uninstall") {
        let left = sh(
            "grep -rl tenure .claude .codex .agents .mcp.json ~/.claude ~/.codex ~/.agents 2>/dev/null",
        );
        assert_eq!(left.stdout(), "", "{name}");
    }
    ran
}

#[test]
fn agents_in_one_repository() {
    assert_eq!(run_guide("worktrees.md"), 11, "lines that were run");
}

#[test]
fn one_build_at_a_time_per_machine() {
    assert_eq!(run_guide("one-build.md"), 7, "lines that were run");
}

#[test]
fn jobs_of_ci() {
    assert_eq!(run_guide("ci-jobs.md"), 2, "lines that were run");
}

#[test]
fn agents_of_ci() {
    assert_eq!(run_guide("ci-agents.md"), 4, "lines that were run");
}
