//! Help in two sizes, wherever it is asked for.

use crate::support::{Scene, answer};

/// The columns and lines that a brief page has to fit: 40, with the prompt below it.
const COLUMNS: usize = 80;
const LINES: usize = 39;

const PROFILES: [&str; 5] = ["native", "sprint", "resume", "session", "fleet"];

/// The verbs, as the whole page lists them.
fn verbs(scene: &Scene) -> Vec<String> {
    let page = scene.run(["--help"]).expect(0, "help").stdout();
    let list = page.lines().skip_while(|line| *line != "Verbs:").skip(1);
    let verbs: Vec<String> = list
        .take_while(|line| line.starts_with("  "))
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect();
    assert!(verbs.len() >= 16, "the whole page lists the verbs: {page}");
    verbs
}

/// What a call prints at 80 columns.
#[track_caller]
fn page(scene: &Scene, words: &[&str]) -> String {
    let mut command = scene.tenure(words);
    let answer = answer(command.env("COLUMNS", COLUMNS.to_string()));
    let answer = answer.expect(0, &format!("{words:?}"));
    assert_eq!(answer.stderr(), "", "{words:?} says nothing else");
    answer.stdout()
}

/// The long flags that a page explains: not those that are mentioned.
fn flags(page: &str) -> Vec<String> {
    let explained = page.lines().filter_map(|line| {
        let indent = line.len() - line.trim_start().len();
        let words = line.trim_start();
        (matches!(indent, 2 | 6) && words.starts_with('-')).then_some(words)
    });
    explained
        .filter_map(|line| {
            let mut words = line.split([' ', ',']);
            words.find_map(|word| word.strip_prefix("--"))
        })
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_brief_page_fits_one_screen_for_every_verb_and_profile() {
    let scene = Scene::new();
    let fits = |words: &[&str]| {
        let page = page(&scene, words);
        let lines = page.lines().count();
        assert!(lines <= LINES, "{words:?} has {lines} lines:\n{page}");
        for line in page.lines() {
            let columns = line.chars().count();
            assert!(
                columns <= COLUMNS,
                "{words:?} has {columns} columns: {line}"
            );
        }
        let named = if words
            .iter()
            .any(|word| matches!(*word, "completions" | "man" | "hook"))
        {
            1
        } else {
            3
        };
        assert!(
            flags(&page).len() >= named,
            "{words:?} names flags:\n{page}"
        );
        page
    };
    fits(&["-h"]);
    for verb in &verbs(&scene) {
        let brief = fits(&[verb, "-h"]);
        // flock(1) has one page, and so has ours.
        if verb == "flock" {
            continue;
        }
        let examples = brief
            .lines()
            .skip_while(|line| *line != "Examples:")
            .skip(1);
        let examples = examples.take_while(|line| line.starts_with("  "));
        let examples = examples.filter(|line| !line.starts_with("   ")).count();
        assert_eq!(examples, 2, "{verb} shows two examples:\n{brief}");
        assert!(
            brief.contains(&format!("tenure {verb} --help")),
            "and where there is more"
        );
        // Those look at no lock, or at native ones, whatever the profile.
        if matches!(verb.as_str(), "completions" | "man" | "hook") {
            continue;
        }
        for profile in PROFILES {
            fits(&["--profile", profile, verb, "-h"]);
        }
    }
    for profile in PROFILES {
        fits(&["--profile", profile, "-h"]);
    }
}

/// However wide the terminal is, a brief page is read at a glance.
#[test]
fn a_brief_page_that_goes_to_a_pager_is_as_narrow() {
    let scene = Scene::new();
    for words in [&["-h"][..], &["run", "-h"], &["acquire", "-h"]] {
        let page = scene.run(words).expect(0, "help").stdout();
        assert!(page.lines().count() <= LINES, "{page}");
        assert!(
            page.lines().all(|line| line.chars().count() <= COLUMNS),
            "{page}"
        );
    }
}

#[test]
fn what_a_brief_page_names_is_in_the_whole_one_and_is_read() {
    let scene = Scene::new();
    for verb in &verbs(&scene) {
        let (brief, full) = (page(&scene, &[verb, "-h"]), page(&scene, &[verb, "--help"]));
        let known = flags(&full);
        for flag in flags(&brief) {
            assert!(known.contains(&flag), "{verb}: --help has --{flag}");
        }
        if verb == "flock" {
            continue;
        }
        // A verb with few flags has them all in both.
        assert!(
            known.len() > flags(&brief).len() || known.len() <= 12,
            "{verb}: -h leaves some out"
        );
        for flag in known {
            // The value is missing or the next word is what is wrong; it is never the flag.
            let flag = format!("--{flag}");
            let call = scene.run([verb, &flag, "--none-of-ours"]);
            assert!(
                !call
                    .stderr()
                    .contains(&format!("unexpected argument {flag:?}")),
                "{verb} reads {flag}: {}",
                call.said()
            );
        }
    }
    assert!(
        page(&scene, &["run", "--help"]).contains("TENURE_TOKEN"),
        "and its prose"
    );
}

#[test]
fn the_flags_of_a_profile_stand_where_it_is_chosen() {
    let scene = Scene::new();
    let of_fleet = [
        "intent",
        "param",
        "intent-name",
        "intent-version",
        "metadata",
    ];
    let has = |words: &[&str], flag: &str| flags(&page(&scene, words)).contains(&flag.to_owned());
    for flag in of_fleet {
        assert!(!has(&["run", "-h"], flag), "{flag} is no daily flag");
        assert!(has(&["run", "--help"], flag), "{flag} is in the whole page");
        for words in [
            &["--profile", "fleet", "run", "-h"][..],
            &["--profile=fleet", "run", "--help"],
            &["run", "-h", "--profile", "fleet"],
            &["help", "run", "--profile", "fleet"],
        ] {
            assert!(has(words, flag), "{flag}: {words:?}");
            assert!(!has(words, "epic-spec"), "another profile's: {words:?}");
        }
    }
    assert!(has(&["--profile", "sprint", "check", "-h"], "health"));
    assert!(has(&["--profile", "sprint", "-h"], "project-root"));
    assert!(!has(&["--profile", "native", "run", "--help"], "epic-spec"));
    assert!(has(&["run", "--help"], "epic-spec"));
}

#[test]
fn help_and_version_are_answered_wherever_they_are_asked_for() {
    let scene = Scene::new();
    let whole = page(&scene, &["--help"]);
    for words in [
        &["help"][..],
        &["--output", "json", "help"],
        &["-q", "--help"],
        &["help", "--help"],
        &["help", "help"],
        &["help", "--output", "json"],
        &["--input", "-", "--help"],
        &["-qh", "--help"],
    ] {
        assert_eq!(page(&scene, words), whole, "{words:?}");
    }
    let fence = page(&scene, &["fence", "--help"]);
    for words in [
        &["help", "fence", "check"][..],
        &["help", "fence"],
        &["--help", "fence"],
        &["-q", "help", "fence", "check"],
        &["fence", "check", "--help"],
    ] {
        assert_eq!(page(&scene, words), fence, "{words:?}");
    }
    assert_eq!(page(&scene, &["help", "-h"]), page(&scene, &["-h"]));
    assert_eq!(
        page(&scene, &["help", "run", "-h"]),
        page(&scene, &["run", "-h"])
    );
    assert_eq!(
        page(&scene, &["help", "flock"]),
        page(&scene, &["flock", "-h"])
    );
    assert!(page(&scene, &["--profile", "sprint", "--help"]).contains("--project-root"));
    let version = page(&scene, &["--version"]);
    assert!(version.starts_with("tenure "), "{version}");
    for words in [
        &["-q", "--version"][..],
        &["-V"],
        &["--output", "json", "-V"],
    ] {
        assert_eq!(page(&scene, words), version, "{words:?}");
    }
    for words in [
        &["help", "frobnicate"][..],
        &["help", "run", "x"],
        &["--profile", "sprinter", "--help"],
        &["--output", "xml", "--help"],
        &["-q"],
        &["--dir", "d", "flock", "f", "true"],
        &["--wait", "5s", "run", "x"],
    ] {
        let refused = scene.run(words).expect(2, &format!("{words:?}"));
        assert_eq!(refused.stdout(), "", "{words:?}");
        assert_eq!(refused.stderr().lines().count(), 1, "{}", refused.said());
    }
    assert!(!scene.locks().exists(), "nothing was created");
}

#[test]
fn a_page_has_no_colours_where_it_is_no_terminal() {
    let scene = Scene::new();
    for words in [&["-h"][..], &["run", "--help"]] {
        assert!(!page(&scene, words).contains('\u{1b}'), "{words:?}");
    }
}
