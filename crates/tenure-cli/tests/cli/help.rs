//! Help in two sizes, wherever it is asked for.

use crate::support::{Answer, Scene, answer};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The columns and lines that a brief page has to fit: those of a terminal, with the prompt below it.
const COLUMNS: usize = 80;
const LINES: usize = 23;

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

/// Verbs that refuse the flag of a profile.
const WITHOUT_PROFILE: [&str; 5] = ["completions", "man", "hook", "flock", "demo"];

/// Verbs that look at the locks of a profile. `top` does, too, but its examples want a terminal.
const OF_LOCKS: [&str; 14] = [
    "run",
    "acquire",
    "release",
    "cancel",
    "force-release",
    "heartbeat",
    "check",
    "list",
    "wait",
    "fence",
    "clean",
    "doctor",
    "audit",
    "timeline",
];

/// The examples of a page.
fn examples(page: &str) -> Vec<String> {
    let lines = page.lines().skip_while(|line| *line != "Examples:").skip(1);
    let lines = lines.take_while(|line| line.starts_with("  "));
    let begin = lines.filter(|line| !line.starts_with("   "));
    begin.map(|line| line.trim().to_owned()).collect()
}

/// The page, if it fits.
#[track_caller]
fn fitting(scene: &Scene, words: &[&str]) -> String {
    let page = page(scene, words);
    let lines = page.lines().count();
    assert!(lines <= LINES, "{words:?} has {lines} lines:\n{page}");
    for line in page.lines() {
        let columns = line.chars().count();
        assert!(
            columns <= COLUMNS,
            "{words:?} has {columns} columns: {line}"
        );
    }
    page
}

#[test]
fn a_brief_page_fits_a_terminal_of_24_lines() {
    let scene = Scene::new();
    fitting(&scene, &["-h"]);
    for verb in &verbs(&scene) {
        let brief = fitting(&scene, &[verb, "-h"]);
        assert!(
            brief.contains(&format!("tenure {verb} --help")),
            "{verb} says where there is more"
        );
        // The examples of flock(1) are its usage.
        if verb != "flock" {
            assert_eq!(examples(&brief).len(), 2, "two examples:\n{brief}");
        }
        if WITHOUT_PROFILE.contains(&verb.as_str()) {
            continue;
        }
        for profile in PROFILES {
            let brief = fitting(&scene, &["--profile", profile, verb, "-h"]);
            assert!(
                !examples(&brief).is_empty(),
                "{verb} of {profile}:\n{brief}"
            );
        }
    }
    for profile in PROFILES {
        fitting(&scene, &["--profile", profile, "-h"]);
    }
    let run = page(&scene, &["run", "-h"]);
    for flag in ["skip", "max-runtime", "wait", "lock", "group"] {
        assert!(flags(&run).contains(&flag.to_owned()), "--{flag}: {run}");
    }
}

/// A good value of a flag; `None` for a flag without one.
fn value_of(flag: &str) -> Option<&'static str> {
    Some(match flag {
        "wait" | "ttl" | "grace" | "max-runtime" | "stale-after" | "since" => "5m",
        "until" => "0s",
        "request-id" | "session-id" | "run-id" => "r1",
        "owner" => "parent",
        "epic-spec" | "why" | "actor" | "intent-name" | "failure-step" => "a",
        "project-root" => ".",
        "lock-file-name" => ".other",
        "metadata" | "param" => "n=x",
        "intent" => "intent.yaml",
        "lock" => "43",
        "name" => "42",
        "slots" => "2",
        "token" | "intent-version" => "1",
        "group" => "g",
        "guard" => "mark",
        "event" => "lock_acquired",
        "sort" => "queue",
        "result" => "success",
        "input" => "-",
        "path" => "f",
        "across" => "worktree",
        "max-age" => "1h",
        _ => return None,
    })
}

/// Flags that stand in a call without the others, which they contradict.
const ALONE: [&str; 13] = [
    "nonblock",
    "shared",
    "slots",
    "group",
    "cancel-in-progress",
    "orphan",
    "held",
    "waited",
    "guard",
    "intent",
    "param",
    "input",
    "failure-step",
];

/// Calls a verb of a profile with these flags and whatever else it needs.
fn call(scene: &Scene, profile: &str, verb: &str, flags: &[&str]) -> Answer {
    let mut words = vec!["--profile", profile, verb];
    let has = |flag: &&str| flags.contains(flag);
    let mut add = |flag: &'static str| words.extend([flag, value_of(&flag[2..]).expect(flag)]);
    if profile == "sprint" && !flags.contains(&"project-root") && !flags.contains(&"input") {
        add("--project-root");
    }
    if profile == "sprint" && verb == "acquire" && !has(&"input") {
        [("session-id", "--session-id"), ("epic-spec", "--epic-spec")]
            .iter()
            .filter(|(flag, _)| !has(flag))
            .for_each(|(_, flag)| add(flag));
    }
    let by_intent = has(&"intent") || has(&"param");
    if profile == "fleet" && ["run", "acquire"].contains(&verb) && !by_intent {
        [
            ("intent-name", "--intent-name"),
            ("intent-version", "--intent-version"),
        ]
        .iter()
        .filter(|(flag, _)| !has(flag))
        .for_each(|(_, flag)| add(flag));
    }
    match flags {
        ["param"] => add("--intent"),
        ["intent"] => add("--param"),
        _ => {}
    }
    if verb == "fence" {
        words.extend(["check", "7"]);
    }
    let names_lock = !["list", "clean", "doctor", "fence"].contains(&verb);
    if names_lock
        && profile != "sprint"
        && !by_intent
        && !has(&"path")
        && !(has(&"group") && verb != "run")
    {
        words.push("42");
    }
    let typed: Vec<String> = flags.iter().map(|flag| format!("--{flag}")).collect();
    for (flag, typed) in flags.iter().zip(&typed) {
        words.push(typed);
        words.extend(value_of(flag));
    }
    if flags == ["across"] {
        words.extend(["--path", "f"]);
    }
    if flags == ["yes"] && verb != "force-release" {
        words.push("--force");
    }
    if verb == "run" {
        words.extend(["--", "true"]);
    }
    let mut command = scene.tenure(words);
    // What one call takes is not in the way of another.
    command.env("TENURE_DIR", scene.path(&flags.join("+")));
    command.current_dir(scene.root());
    if has(&"input") {
        let document = scene.path("call.yaml");
        command.stdin(std::fs::File::open(document).expect("the document"));
    }
    answer(&mut command)
}

/// Walks through every verb of every profile: each flag on the brief page is taken, and what the page of a profile
/// leaves out is another profile's, or refused.
#[test]
fn the_page_of_a_profile_has_what_it_takes_and_nothing_else() {
    const OF_PROFILES: [&str; 12] = [
        "epic-spec",
        "health",
        "input",
        "project-root",
        "lock-file-name",
        "stale-after",
        "intent",
        "intent-name",
        "intent-version",
        "param",
        "metadata",
        "result",
    ];
    let scene = Scene::new();
    let mut seen = BTreeSet::new();
    let whole: Vec<_> = OF_LOCKS
        .map(|verb| flags(&page(&scene, &[verb, "--help"])))
        .into();
    for profile in PROFILES {
        for (verb, whole) in OF_LOCKS.iter().zip(&whole) {
            let scene = Scene::new();
            scene.write("intent.yaml", "intent: i\nintent_version: '1'\nspec:\n  mode: mutate\n  controls:\n    lock: a-${params.n}\n");
            scene.write(
                "call.yaml",
                "project_root: .\nsession_id: r1\nepic_spec: e\n",
            );
            let shown = flags(&page(&scene, &["--profile", profile, verb, "-h"]));
            let is_alone = |flag: &&str| ALONE.contains(flag);
            let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
            // Events are followed for ever.
            let shown: Vec<&str> = shown.into_iter().filter(|flag| *flag != "follow").collect();
            let (alone, together): (Vec<&str>, Vec<&str>) =
                shown.iter().partition(|flag| is_alone(flag));
            let mut calls = vec![together];
            calls.extend(alone.iter().map(|flag| vec![*flag]));
            for flags in calls {
                let said = call(&scene, profile, verb, &flags);
                assert_ne!(
                    said.code(),
                    2,
                    "{verb} of {profile} takes {flags:?}: {}",
                    said.said()
                );
            }
            let kept = flags(&page(&scene, &["--profile", profile, verb, "--help"]));
            // Some stand under the profile's own name.
            let renamed = |flag: &str| match profile {
                "sprint" | "session" => flag == "request-id",
                "fleet" => flag == "force",
                _ => false,
            };
            for flag in whole {
                let is_left_out =
                    !kept.contains(flag) && !renamed(flag) && !OF_PROFILES.contains(&flag.as_str());
                if is_left_out && flag != "failure-step" && seen.insert((profile, flag.clone())) {
                    let said = call(&scene, profile, verb, &[flag]);
                    assert_eq!(
                        said.code(),
                        2,
                        "{verb} of {profile} refuses --{flag}: {}",
                        said.said()
                    );
                }
            }
        }
    }
    for (profile, flag) in [
        ("sprint", "held"),
        ("session", "force"),
        ("fleet", "slots"),
        ("resume", "exec"),
    ] {
        assert!(
            seen.contains(&(profile, flag.to_owned())),
            "{profile}: {seen:?}"
        );
    }
    for (verb, needed) in [
        (
            "acquire",
            &["session-id", "epic-spec", "project-root", "force", "yes"][..],
        ),
        ("release", &["session-id", "project-root"]),
    ] {
        let page = page(&scene, &["--profile", "sprint", verb, "-h"]);
        for flag in needed {
            assert!(
                flags(&page).contains(&(*flag).to_owned()),
                "--{flag}: {page}"
            );
        }
    }
    let fleet = page(&scene, &["--profile", "fleet", "acquire", "-h"]);
    for flag in ["intent-name", "intent-version", "force-lock"] {
        assert!(
            flags(&fleet).contains(&flag.to_owned()),
            "--{flag}: {fleet}"
        );
    }
}

/// Whoever copies an example gets an answer of its profile, each in a place of its own.
#[test]
fn the_examples_of_a_profile_work_as_they_stand() {
    let scene = Scene::new();
    // Each has a folder of its own; what goes wrong before the example begins counts as refused.
    let mut script = r#"
        unset TENURE_DIR
        try() {
            code=0
            (
                { mkdir "$1" && cd "$1" && ln -s ../job . ; } || exit 2
                export XDG_STATE_HOME="$PWD"
                eval "$2"
            ) >out 2>&1 </dev/null || code=$?
            [ $code != 2 ] || { echo "$2"; cat out; }
        }
    "#
    .to_owned();
    scene.script("job", "true");
    let mut tried = 0;
    for profile in PROFILES.into_iter().filter(|profile| *profile != "native") {
        for verb in OF_LOCKS {
            let page = page(&scene, &["--profile", profile, verb, "-h"]);
            for example in examples(&page) {
                assert!(
                    example.contains(&format!("tenure --profile {profile} {verb}")),
                    "{example}"
                );
                let _ = writeln!(script, "try {tried} '{example}'");
                tried += 1;
            }
        }
    }
    assert!(tried > 50, "{tried} examples");
    let mut shell = scene.program("sh");
    let refused = answer(shell.args(["-c", &script]).current_dir(scene.root()));
    assert_eq!(refused.stdout(), "", "{}", refused.said());
    assert!(
        scene.path(&format!("{}", tried - 1)).exists(),
        "all were tried"
    );
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
        assert!(
            known.len() > flags(&brief).len(),
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
    assert!(has(&["--profile", "sprint", "--help"], "project-root"));
    assert!(page(&scene, &["--profile", "sprint", "-h"]).contains("--project-root"));
    assert!(!has(&["--profile", "native", "run", "--help"], "epic-spec"));
    assert!(has(&["run", "--help"], "epic-spec"));
}

#[test]
fn help_and_version_are_answered_wherever_they_are_asked_for() {
    let scene = Scene::new();
    let whole = page(&scene, &["--help"]);
    for words in [
        &["help"][..],
        &["--output", "text", "help"],
        &["-q", "--help"],
        &["help", "--help"],
        &["help", "help"],
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
        page(&scene, &["flock", "--help"])
    );
    assert!(page(&scene, &["--profile", "sprint", "--help"]).contains("--project-root"));
    let version = page(&scene, &["--version"]);
    assert!(version.starts_with("tenure "), "{version}");
    for words in [
        &["-q", "--version"][..],
        &["-V"],
        &["--output", "text", "-V"],
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

/// Whoever asked for a format gets it: pages, the version, and each refusal from before the call has a verb.
#[test]
fn questions_and_bad_words_are_answered_in_the_format_that_was_asked_for() {
    let scene = Scene::new();
    let ways: [(&[&str], Option<&str>); 5] = [
        (&["--output", "json"], None),
        (&["--output=json"], None),
        (&[], Some("json")),
        (&["--output", "yaml"], None),
        (&[], Some("yaml")),
    ];
    let asked: [(&[&str], i32); 11] = [
        (&["--help"], 0),
        (&["-h"], 0),
        (&["help"], 0),
        (&["run", "--help"], 0),
        (&["list", "-h"], 0),
        (&["--version"], 0),
        (&["-V"], 0),
        (&["frobnicate"], 2),
        (&["list", "--frobnicate"], 2),
        (&["--frobnicate", "list"], 2),
        (&["help", "frobnicate"], 2),
    ];
    for (flags, variable) in ways {
        let is_yaml = variable == Some("yaml") || flags.contains(&"yaml");
        let document = |words: &[&str], code: i32, variable: Option<&str>| {
            let mut command = scene.tenure(flags.iter().chain(words));
            command.env("COLUMNS", COLUMNS.to_string());
            if let Some(format) = variable {
                command.env("TENURE_OUTPUT", format);
            }
            let said =
                answer(&mut command).expect(code, &format!("{flags:?} {words:?} {variable:?}"));
            assert_eq!(said.stderr(), "", "{flags:?} {words:?} {variable:?}");
            let text = said.stdout();
            let document: serde_json::Value = if is_yaml {
                assert!(text.starts_with("ok: "), "{text}");
                serde_saphyr::from_str(&text).expect(&text)
            } else {
                assert_eq!(text.lines().count(), 1, "{text}");
                serde_json::from_str(&text).expect(&text)
            };
            assert_eq!(document["ok"], code == 0, "{text}");
            document
        };
        for (words, code) in asked {
            let document = document(words, code, variable);
            match words {
                [.., "-V" | "--version"] => {
                    assert_eq!(document["data"]["version"], env!("CARGO_PKG_VERSION"));
                    assert_eq!(document["meta"]["command"], "version");
                }
                _ if code == 0 => {
                    let whole = page(&scene, words);
                    assert_eq!(document["data"]["page"], whole.trim_end(), "{words:?}");
                    assert_eq!(document["meta"]["command"], "help");
                }
                _ => assert_eq!(document["error"]["code"], "BAD_ARGUMENTS", "{document}"),
            }
        }
        // What the variable says makes no sense, and the flag says in what form that is told.
        if variable.is_none() {
            for words in [
                &["list"][..],
                &["--help"],
                &["--version"],
                &["run", "x", "--", "true"],
            ] {
                let document = document(words, 2, Some("jsn"));
                let message = document["error"]["message"].as_str().expect("a message");
                assert!(message.contains("TENURE_OUTPUT \"jsn\""), "{message}");
            }
        }
    }
    assert!(!scene.locks().exists(), "nothing was created");
}
