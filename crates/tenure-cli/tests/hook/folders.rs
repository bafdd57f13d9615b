//! A command behind a `cd` runs under the rule, and the lock, of the folder in which it runs.

use super::support::answer;
use super::{Repository, bash, claude};
use serde_json::json;
use std::process::{Command, Stdio};

/// Says under which lock it runs, and where that lock is.
const MAKE: &str =
    "#!/bin/sh\nh=${TENURE_HELD-=nowhere/x}; h=${h%/*}\necho \"${TENURE_NAME-none} ${h##*=}\"\n";

fn rules(lock: &str) -> String {
    format!("dir = \"locks\"\n[[agent.command]]\nmatch = [\"make\"]\nlock = \"{lock}\"\n")
}

/// A project with a nested one, another project beside it, and a folder without any.
fn projects() -> Repository {
    let repository = Repository::with(&rules("root"));
    let scene = &repository.scene;
    for folder in ["w/plain", "w/sub/deep", "other/src", "free", "bin"] {
        std::fs::create_dir_all(scene.path(folder)).expect("a folder");
    }
    scene.write("w/sub/tenure.toml", &rules("sub"));
    scene.write("other/tenure.toml", &rules("other"));
    std::os::unix::fs::symlink(scene.path("other/src"), scene.path("w/link")).expect("a link");
    scene.script("bin/make", MAKE);
    repository
}

/// The text as the hook leaves it, asked from this folder.
fn rewritten(repository: &Repository, folder: &str, text: &str) -> String {
    let input = json!({"command": text});
    let folder = repository
        .scene
        .path(folder)
        .canonicalize()
        .expect("a folder");
    let event = claude("PreToolUse", &folder, "", "Bash", input);
    let mut hook = repository.hook("claude");
    hook.env_remove("TENURE_DIR");
    let heard = super::heard(&mut hook, event.to_string().as_bytes());
    if heard.nothing() {
        return text.to_owned();
    }
    heard.command()
}

#[test]
fn a_command_behind_cd_has_the_lock_of_the_folder_it_runs_in() {
    let repository = projects();
    let scene = &repository.scene;
    let is_there = |shell: &&str| {
        let mut command = Command::new(shell);
        command.args(["-c", "true"]).stdin(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let shells: Vec<&str> = ["bash", "dash", "zsh"]
        .into_iter()
        .filter(is_there)
        .collect();
    assert!(shells.contains(&"bash"), "{shells:?}");
    let root = scene.root().canonicalize().expect("a path");
    let at = |name: &str, folder: &str| format!("{name} {}\n", root.join(folder).display());
    let (of_root, of_sub, of_other) = (
        at("root", "w/locks"),
        at("sub", "w/sub/locks"),
        at("other", "other/locks"),
    );
    let none = "none nowhere\n".to_owned();
    for (folder, text, expected) in [
        ("w", "make", vec![&of_root]),
        ("w", "cd sub && make", vec![&of_sub]),
        ("w", "cd sub/deep; make | cat", vec![&of_sub]),
        ("w", "cd plain && make", vec![&of_root]),
        (
            "w",
            "make && cd sub && make && cd - >/dev/null && make",
            vec![&of_root, &of_sub, &of_root],
        ),
        (
            "w",
            "cd sub\nmake\ncd ../../other/src\nmake",
            vec![&of_sub, &of_other],
        ),
        // What agents write that start at home.
        ("free", "cd ../w/sub && A=1 nice make", vec![&of_sub]),
        ("free", "cd ~/other && make", vec![&of_other]),
        ("free", "make; cd '../other'; make", vec![&none, &of_other]),
        ("w", "cd ../free && make", vec![&none]),
        ("w", "cd link && make", vec![&of_other]),
        // Each part of a pipe is a shell of its own, and a `cd` that does not run leads nowhere.
        ("w", "cd sub | cat; make", vec![&of_root]),
        ("w", "cd sub || cd ../other; make", vec![&of_sub]),
        ("w", "true || cd sub; make", vec![&of_root]),
        ("w", "cd nowhere 2>/dev/null; make", vec![&of_root]),
        (
            "w",
            "mkdir new && cd new && make; rmdir ../new",
            vec![&of_root],
        ),
    ] {
        let new = rewritten(&repository, folder, text);
        for shell in &shells {
            let mut command = scene.program(shell);
            let path = std::env::var("PATH").unwrap_or_default();
            let own = std::path::Path::new(super::support::TENURE).parent();
            let own = own.expect("a folder").display();
            command
                .args(["-c", &new])
                .current_dir(scene.path(folder))
                .env_remove("TENURE_DIR")
                .env(
                    "PATH",
                    format!("{}:{own}:{path}", scene.path("bin").display()),
                );
            let said = answer(&mut command).expect(0, &new).stdout();
            let expected: String = expected.iter().map(|line| line.as_str()).collect();
            assert_eq!(said, expected, "{shell}: {text:?} became {new:?}");
        }
    }
}

#[test]
fn a_folder_that_no_text_tells_leaves_the_rules_as_they_were() {
    let repository = projects();
    for text in [
        "cd \"$X\" && make",
        "pushd sub && make",
        "cd -P sub && make",
    ] {
        let new = rewritten(&repository, "w", text);
        assert!(new.contains("tenure run root "), "{text}: {new}");
    }
}

#[test]
fn a_broken_configuration_behind_cd_is_named_and_that_of_another_folder_is_not() {
    let repository = projects();
    let scene = &repository.scene;
    scene.write(
        "w/sub/tenure.toml",
        "[[agent.command]]\non_error = \"closed\"\nx = 1\n",
    );
    let ask = |text: &str| {
        let mut hook = repository.hook("claude");
        hook.env_remove("TENURE_DIR");
        let event = bash(&repository, "", text).to_string();
        super::heard(&mut hook, event.as_bytes())
    };
    let reason = ask("cd sub && make").reason();
    assert!(reason.contains("sub/tenure.toml"), "{reason}");
    assert!(
        ask("cd plain && make")
            .command()
            .contains("tenure run root ")
    );
}
