//! The lines of the page of recipes, each as it stands, under the configuration that the page shows before it.
//! Lines of a crontab run as cron runs them: by `sh`, with hardly any variable.

use crate::support::{Answer, Scene, answer};
use std::fs;
use std::path::Path;

/// Stands in the page for the folder of the programs.
const FOLDER: &str = "/srv/app";

/// What the programs of the page do here.
const PROGRAMS: [(&str, &str); 13] = [
    ("sync", "exit 0"),
    ("report", "exit 0"),
    ("train", "[ -n \"$CUDA_VISIBLE_DEVICES\" ]"),
    ("test-ui", "[ \"$ANDROID_SERIAL\" = emulator-5550 ]"),
    ("edit", "[ \"$1\" = README ]"),
    (
        "merge",
        "[ \"$TENURE_NAME\" = merge ] && [ \"$BUILD_DIR\" = build/0 ]",
    ),
    (
        "agent",
        "[ \"$TENURE_GROUP\" = pr-7 ] && [ \"$TENURE_SLOT\" = 0 ]",
    ),
    (
        "make",
        "case $* in *BUILD_DIR*) [ \"$* $MAKEFLAGS\" = '-s BUILD_DIR=build/0 -j2' ] ;; *) exec /usr/bin/make \"$@\" ;; esac",
    ),
    (
        "git",
        "case \"$1 $2\" in 'bisect run') shift 2 && exec \"$@\" ;; *) exec /usr/bin/git \"$@\" ;; esac",
    ),
    ("test.sh", "[ \"$TENURE_NAME\" = lab ]"),
    ("deploy", "[ \"$TENURE_NAME\" = deploy ]"),
    ("releases/7/nightly", "[ \"$TENURE_NAME\" = nightly ]"),
    // A container as far as tenure sees one: other process numbers, hardly any variable.
    ("docker", DOCKER),
];

const DOCKER: &str = "
    [ \"$1 $2 $3 $5\" = 'run --rm -v -w' ] || exit 9
    cd \"$6\" && shift 7
    own='unshare --pid --fork --mount-proc'
    if $own true 2>/dev/null; then set -- $own \"$@\"; fi
    exec env -i PATH=\"$PATH\" \"$@\"";

/// Runs a line by `sh` in the folder of the programs.
fn by_shell(scene: &Scene, line: &str) -> Answer {
    let folder = scene.path("app");
    let path = std::env::var("PATH").unwrap_or_default();
    let tenure = Path::new(env!("CARGO_BIN_EXE_tenure"))
        .parent()
        .expect("a folder");
    let mut sh = scene.program("sh");
    sh.env_clear()
        .env("HOME", scene.root())
        .env(
            "PATH",
            format!("{}:{}:{path}", folder.display(), tenure.display()),
        )
        .args(["-c", line])
        .current_dir(&folder);
    answer(&mut sh)
}

#[test]
fn each_line_of_the_page_runs_as_it_stands() {
    let scene = Scene::new();
    fs::create_dir_all(scene.path("app/releases/7")).expect("a folder");
    std::os::unix::fs::symlink("releases/7", scene.path("app/current")).expect("a link");
    for (program, does) in PROGRAMS {
        scene.script(&format!("app/{program}"), &format!("#!/bin/sh\n{does}\n"));
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/recipes.md");
    let unit = page.with_file_name("../examples/systemd/backup.service");
    let unit = fs::read_to_string(unit).expect("the unit");
    let page = fs::read_to_string(page).expect("the page");
    let (mut language, mut config, mut script) = (None, String::new(), String::new());
    let mut makefile = String::new();
    fs::create_dir(scene.path("app/sub")).expect("a folder");
    scene.write(
        "app/sub/Makefile",
        "all:\n\t@[ \"$$TENURE_NAME\" = build ]\n",
    );
    let mut ran = 0;
    let mut try_it = |line: &str| {
        let line = line.replace(FOLDER, &scene.path("app").display().to_string());
        let answer = by_shell(&scene, &line).expect(0, &line);
        assert_eq!(answer.stderr(), "", "{line}");
        if line.contains("echo \"GPU") {
            assert_eq!(answer.stdout(), "GPU 0 by slot 0\n");
        }
        ran += 1;
    };
    for line in page.lines() {
        match (line.strip_prefix("```"), language) {
            (Some(opened), None) => language = Some(opened),
            (Some(_), Some(closed)) => {
                match closed {
                    "toml" => {
                        let content = format!("dir = \"locks\"\n{config}");
                        scene.write("app/tenure.toml", &content);
                        config.clear();
                    }
                    // Lines that belong together: what the first one takes, the last one gives back.
                    "sh" if script.contains("tenure acquire") => {
                        scene.script("app/script", &format!("#!/bin/sh\nset -e\n{script}"));
                        try_it("./script");
                    }
                    "sh" => script.lines().for_each(&mut try_it),
                    "make" => {
                        scene.write("app/Makefile", &makefile);
                    }
                    // `services.rs` tries the unit; here is a part of it.
                    "crontab" | "ini" | "yaml" => {}
                    other => panic!("a block of an unknown kind: {other}"),
                }
                script.clear();
                language = None;
            }
            (None, Some("toml")) => config.extend([line, "\n"]),
            (None, Some("sh")) => script.extend([line, "\n"]),
            (None, Some("ini")) => assert!(unit.lines().any(|other| other == line), "{line}"),
            (None, Some("make")) => makefile.extend([line, "\n"]),
            (None, Some("crontab")) => {
                if let Some((minute, _)) = line.split_once(' ') {
                    assert!(minute.starts_with(['*', '0', '3']), "{line}");
                    let command: Vec<_> = line.split_whitespace().skip(5).collect();
                    try_it(&command.join(" "));
                }
            }
            (None, _) => {}
        }
    }
    assert_eq!(
        ran, 18,
        "commands that were run: a number to change with the page"
    );
}
