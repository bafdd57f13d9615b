//! `tenure man`, read by the real man(1).

use crate::support::{Scene, answer};
use std::fs;
use std::path::Path;

/// A page as man(1) shows it, which has nothing to complain about.
#[track_caller]
fn shown(scene: &Scene, page: &Path) -> String {
    let mut man = scene.program("man");
    man.args(["--warnings", "-l"]).arg(page);
    man.env("MANWIDTH", "400").env("MANPAGER", "cat");
    man.stdin(std::process::Stdio::null());
    let there = scene.shell("command -v man");
    assert_eq!(
        there.code(),
        0,
        "man(1) is missing; `scripts/install-tools` gets it"
    );
    let answer = answer(&mut man).expect(0, "man shows a page");
    assert_eq!(answer.stderr(), "", "{}", page.display());
    answer.stdout()
}

/// The verbs, as the shells are told of them.
fn verbs(scene: &Scene) -> Vec<String> {
    let asked = scene.run(["completions", "zsh", "--", "tenure", "help", ""]);
    let words = asked.expect(0, "the verbs").stdout();
    let words = words
        .lines()
        .skip(1)
        .filter_map(|line| line.split('\t').next());
    words.map(str::to_owned).collect()
}

/// The flags that a help describes.
fn flags(help: &str) -> Vec<String> {
    let described = help
        .lines()
        .filter(|line| line.trim_start().starts_with('-'));
    let words = described.flat_map(|line| line.split([' ', ',']));
    words
        .filter(|word| word.starts_with("--") && word.len() > 2)
        .map(|word| word.split('=').next().unwrap_or(word).to_owned())
        .collect()
}

#[test]
fn every_verb_has_a_page_and_it_says_what_the_help_says() {
    let scene = Scene::new();
    let folder = scene.path("share/man/man1");
    let to = folder.to_str().expect("a path");
    let said = scene
        .run(["man", "--to", to])
        .expect(0, "all pages")
        .stdout();
    let verbs = verbs(&scene);
    let pages = fs::read_dir(&folder).expect("the pages").count();
    assert_eq!(
        pages,
        verbs.len() + 1,
        "one for each verb, and tenure's own"
    );
    assert!(said.starts_with(&format!("{pages} pages in ")), "{said}");

    for verb in &verbs {
        let page = folder.join(format!("tenure-{verb}.1"));
        let text = shown(&scene, &page);
        let heading = format!("TENURE-{}(1)", verb.to_uppercase());
        assert!(text.starts_with(&heading), "{text}");
        let help = scene.run([verb, "--help"]).expect(0, verb).stdout();
        let flags = flags(&help);
        assert!(flags.contains(&"--help".to_owned()), "{verb}: {help}");
        for flag in flags {
            assert!(text.contains(&flag), "the page of {verb} lacks {flag}");
        }
        let printed = scene.run(["man", verb]).expect(0, verb).stdout();
        let written = fs::read_to_string(&page).expect("a page");
        assert_eq!(printed.trim_end(), written.trim_end(), "{verb}");
        // What apropos(1) and whatis(1) find it by.
        let known = answer(scene.program("lexgrog").arg(&page)).stdout();
        assert!(known.contains(&format!("\"tenure-{verb} - ")), "{known}");
    }
    let own = shown(&scene, &folder.join("tenure.1"));
    for verb in &verbs {
        assert!(own.contains(&format!("tenure-{verb}(1)")), "{verb}");
    }
    for section in ["NAME", "SYNOPSIS", "VERBS", "EXTRA"] {
        assert!(own.lines().any(|line| line == section), "{section}: {own}");
    }
    for begins in ["Examples:", "Exit codes:"] {
        let stands = own
            .lines()
            .any(|line| line.trim_start().starts_with(begins));
        assert!(stands, "{begins}: {own}");
    }
    let printed = scene.run(["man"]).expect(0, "tenure's own page").stdout();
    assert!(printed.contains(".TH TENURE 1"), "{printed}");
    assert!(!scene.locks().exists(), "a manual needs no locks");
}

/// Columns and lines of an example are kept, and what only looks like a command of the page is not one.
#[test]
fn examples_stay_as_they_are() {
    let scene = Scene::new();
    let page = scene.write("run.1", &scene.run(["man", "run"]).stdout());
    let text = shown(&scene, &page);
    let help = scene.run(["run", "--help"]).stdout();
    let examples: Vec<_> = help
        .lines()
        .filter(|line| line.starts_with("  tenure "))
        .collect();
    assert!(examples.len() >= 2, "{help}");
    for example in examples {
        assert!(text.contains(example.trim()), "{example}\n{text}");
    }
    let flock = scene.write("flock.1", &scene.run(["man", "flock"]).stdout());
    let text = shown(&scene, &flock);
    for line in [
        "-w, --wait <SECONDS>",
        "tenure flock [OPTIONS] DESCRIPTOR",
        "flock(1)",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn what_cannot_be_written_is_said_and_what_makes_no_sense_is_refused() {
    let scene = Scene::new();
    let file = scene.write("file", "");
    let refused = scene.run(["man", "frob"]).expect(2, "no such verb");
    assert!(
        refused.stderr().contains("no verb \"frob\""),
        "{}",
        refused.stderr()
    );
    scene
        .run(["man", "--to", ""])
        .expect(2, "no folder is named");
    let refused = scene
        .run(["man", "--output", "json"])
        .expect(2, "no JSON of a page");
    assert_eq!(refused.json()["error"]["code"], "BAD_ARGUMENTS");
    let below = file.join("man1");
    let refused = answer(scene.tenure(["man", "--to"]).arg(below)).expect(1, "no folder");
    assert!(
        refused.stderr().contains("cannot be written"),
        "{}",
        refused.stderr()
    );
    let folder = scene.path("one");
    answer(scene.tenure(["man", "run", "--to"]).arg(&folder)).expect(0, "one page");
    assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 1);
}
