//! The commands of the README, and of the pages where they can be run, in a real shell and in their
//! order, with what the page shows of their output.
//!
//! Nothing is left out in silence: a block or a line that this file does not know how to treat fails
//! the test, and so does a count that is not the expected one.

use crate::support::{BOUND, Scene, Started, answer, eventually};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tenure_os::clock::instant;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A fenced block of a page.
#[derive(Debug)]
struct Block {
    /// Where it begins, for the reader of a failure.
    line: usize,
    language: String,
    lines: Vec<String>,
}

fn blocks(page: &str) -> Vec<Block> {
    let text = fs::read_to_string(repository().join(page)).expect(page);
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(language), None) => {
                open = Some(Block {
                    line: index + 1,
                    language: language.to_owned(),
                    lines: Vec::new(),
                });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => block.lines.push(line.to_owned()),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{page}: a block does not end");
    blocks
}

/// A command as it stands, without the comment behind it.
fn bare(line: &str) -> &str {
    line.split("  #").next().unwrap_or(line).trim_end()
}

/// What a line needs that a page does not say, by the words that it begins with.
const BEFORE: [(&str, &str); 1] = [
    // man(1) finds that folder where ~/.local/bin is in the PATH.
    (
        "man tenure-run",
        "export MANPATH=~/.local/share/man MANPAGER=cat",
    ),
];

/// What stands for something else in a line.
const PLACEHOLDERS: [(&str, &str); 2] = [
    // What else the script does.
    ("; … )", "; true )"),
    // Nothing is written outside of the test's folder.
    ("/run/lock/", "lock/"),
];

/// What the scripts have at hand.
const PRELUDE: &str = r#"
named() { until tenure check "$1" --output json | grep -q '"command_pid":[0-9]'; do sleep 0.05; done; }
"#;

/// The programs and files that the commands of the README are about.
fn furnish(scene: &Scene) {
    fs::create_dir_all(scene.path("work/lock")).expect("a folder");
    for program in ["job", "agent", "train", "a", "b"] {
        scene.script(&format!("work/{program}"), "#!/bin/sh\nexit 0\n");
    }
    for program in ["backup.sh", "restore.sh"] {
        scene.script(
            &format!("work/{program}"),
            "#!/bin/sh\nuntil [ -e go ]; do sleep 0.05; done\n",
        );
    }
    scene.write("work/Makefile", "deploy:\n\t@true\n");
}

/// Runs the lines of a block by one shell, each as it stands; answers with how many there were.
fn run_lines(scene: &Scene, page: &str, block: &Block, lines: &[&str]) -> usize {
    let mut script = PRELUDE.to_owned();
    for (number, line) in lines.iter().enumerate() {
        let mut run = (*line).to_owned();
        for (placeholder, stands_for) in PLACEHOLDERS {
            run = run.replace(placeholder, stands_for);
        }
        for (begins, before) in BEFORE {
            if line.starts_with(begins) {
                script.push_str(before);
                script.push('\n');
            }
        }
        script.push_str(&run);
        let _ = writeln!(script, "\necho \"{number} $?\" >>../codes.{}", block.line);
    }
    let file = scene.write(&format!("block.{}.sh", block.line), &script);
    let mut bash = scene.program("bash");
    bash.arg(file).current_dir(scene.path("work"));
    let answer = answer(&mut bash);
    let codes = fs::read_to_string(scene.path(&format!("codes.{}", block.line)));
    let codes = codes.unwrap_or_default();
    for (number, line) in lines.iter().enumerate() {
        assert!(
            codes.lines().any(|said| said == format!("{number} 0")),
            "{page}:{}: {line}\n{codes}\n{}\n{}",
            block.line,
            answer.stdout(),
            answer.stderr()
        );
    }
    lines.len()
}

/// Looks whether a command that builds or tests the project itself could be run; it is not, from here.
fn set_up(page: &str, line: &str) -> bool {
    let read = |file: &str| fs::read_to_string(repository().join(file)).expect(file);
    let words: Vec<_> = bare(line).split_whitespace().collect();
    match words.as_slice() {
        ["scripts/test", ..] => {
            use std::os::unix::fs::PermissionsExt;
            let script = fs::metadata(repository().join("scripts/test")).expect("scripts/test");
            assert_ne!(script.permissions().mode() & 0o111, 0, "{page}: {line}");
        }
        // What it makes is installed and used by scripts/try-release, in a fresh Debian.
        ["scripts/release", rest @ ..] => {
            use std::os::unix::fs::PermissionsExt;
            let script = fs::metadata(repository().join("scripts/release"));
            let mode = script.expect("scripts/release").permissions().mode();
            assert_ne!(mode & 0o111, 0, "{page}: {line}");
            match rest {
                [] => {}
                ["--host"] | ["--host", "&&", "apt", "install", "./dist/*.deb"] => {
                    assert!(read("scripts/release").contains("--host"), "{line}");
                }
                _ => return false,
            }
        }
        ["rustup", "target", "add", target] => {
            assert!(
                read("scripts/install-tools").contains("-unknown-linux-musl"),
                "{line}"
            );
            assert!(target.ends_with("-unknown-linux-musl"), "{page}: {line}");
        }
        [
            "cargo",
            "build",
            "--profile",
            profile,
            "--target",
            target,
            "-p",
            package,
            "--features",
            features,
        ] => {
            assert!(
                read("Cargo.toml").contains(&format!("[profile.{profile}]")),
                "{line}"
            );
            assert!(
                read(".cargo/config.toml").contains(&format!("[target.{target}]")),
                "{line}"
            );
            let manifest = read("crates/tenure-cli/Cargo.toml");
            assert!(
                manifest.contains(&format!("name = \"{package}\"")),
                "{line}"
            );
            assert!(manifest.contains(&format!("\n{features} = [")), "{line}");
        }
        _ => return false,
    }
    true
}

/// What differs from one time to the next, in one form.
fn general(text: &str) -> String {
    let mut words = Vec::new();
    for line in text.lines() {
        let mut before = "";
        let line = line.split(' ').map(|word| {
            let is_age = |word: &str| {
                let number = word.trim_end_matches(char::is_alphabetic);
                !number.is_empty() && number != word && number.bytes().all(|b| b.is_ascii_digit())
            };
            let said = match word {
                _ if before == "PID" => "N".to_owned(),
                _ if before == "since" && word.contains('T') => "TIME".to_owned(),
                who if who.starts_with('(') && who.ends_with(')') && who.contains('@') => {
                    "(WHO)".to_owned()
                }
                age if is_age(age.trim_matches(['(', ':'])) => {
                    let number = age.trim_matches(['(', ':']);
                    age.replace(number, "AGE")
                }
                other => other.to_owned(),
            };
            before = word;
            said
        });
        words.push(line.collect::<Vec<_>>().join(" "));
    }
    words.join("\n").trim().to_owned()
}

/// Types what stands behind the `$` of a session; what stands below has to be what is shown. A
/// blank line begins another terminal.
fn run_session(scene: &Scene, page: &str, block: &Block) -> usize {
    let mut count = 0;
    let mut terminals = Vec::new();
    for part in block.lines.split(String::is_empty) {
        let mut script = PRELUDE.to_owned();
        for line in part.iter().filter_map(|line| line.strip_prefix("$ ")) {
            script.push_str(line);
            script.push('\n');
            if line.ends_with('&') {
                script.push_str("named backup\n");
            }
            count += 1;
        }
        let shown: Vec<_> = part
            .iter()
            .filter(|line| !line.starts_with("$ "))
            .cloned()
            .collect();
        let name = format!("terminal.{}.{}", block.line, terminals.len());
        let file = scene.write(&format!("{name}.sh"), &script);
        let output = fs::File::create(scene.path(&name)).expect("a file");
        let mut bash = scene.program("bash");
        bash.arg(file).current_dir(scene.path("work"));
        bash.stdout(output.try_clone().expect("a file"))
            .stderr(output);
        terminals.push(Started::new(bash.stdin(Stdio::null())));
        let wanted = general(&shown.join("\n"));
        let said = || fs::read_to_string(scene.path(&name)).unwrap_or_default();
        let until = instant() + BOUND;
        while general(&said()) != wanted {
            assert!(
                instant() < until,
                "{page}:{}: it shows\n{wanted}\nand what is said is\n{}",
                block.line,
                general(&said())
            );
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
    scene.write("work/go", "");
    for terminal in terminals {
        terminal.finish();
    }
    eventually("the lock to be free", || scene.is_free("backup"));
    count
}

/// Runs a page, and answers with how many of its commands were run.
fn run_page(scene: &Scene, page: &str) -> usize {
    furnish(scene);
    let mut count = 0;
    for block in blocks(page) {
        match block.language.as_str() {
            "console" => count += run_session(scene, page, &block),
            "sh" => {
                let mut lines = Vec::new();
                let written = block.lines.iter();
                for line in written.filter(|line| !line.is_empty() && !line.starts_with("# ")) {
                    let is_run = RUN.iter().any(|begins| line.starts_with(begins));
                    if set_up(page, line) {
                        count += 1;
                    } else if let Some(line) = line.strip_prefix("cargo run -q -- ") {
                        // Run the binary that is built already.
                        let line = format!("tenure {line}");
                        count += run_lines(scene, page, &block, &[&line]);
                    } else if is_run {
                        lines.push(line.as_str());
                    } else {
                        panic!("{page}:{}: what is to be done with: {line}", block.line);
                    }
                }
                count += run_lines(scene, page, &block, &lines);
            }
            other => panic!("{page}:{}: a block of an unknown kind: {other}", block.line),
        }
    }
    count
}

/// What a line begins with that a shell runs.
const RUN: [&str; 5] = ["tenure ", "( tenure ", "mkdir -p ~/", "man ", "ln -s "];

/// How many commands of each page are run: a number to change with the page.
#[test]
fn the_commands_of_the_readme_run_as_they_stand() {
    let scene = Scene::new();
    assert_eq!(run_page(&scene, "README.md"), 16, "commands that were run");
}

/// Lines of the page on installing that are run where there is something to install: by `scripts/try-release`
/// the package, by `scripts/check-packages` the archive, line by line as they stand, the wheel and the packages of npm. Until
/// something is published, nothing can be had from a registry. No `brew` and no `docker` is here to be asked.
const INSTALLED: [&str; 15] = [
    "pip install ",
    "uvx tenure ",
    "npm install ",
    "npx tenure ",
    "brew install ",
    "makepkg --install",
    "docker build ",
    "sha256sum --check ",
    "apt install ./tenure_",
    "apt purge tenure",
    "tar -xzf tenure-",
    "cd tenure-",
    "install -D -m ",
    "cargo install tenure-cli",
    "cargo binstall tenure-cli",
];

#[test]
fn the_commands_of_the_page_on_installing_are_run_elsewhere_or_could_be() {
    let page = "docs/install.md";
    let mut count = 0;
    for block in blocks(page) {
        for line in &block.lines {
            let known = INSTALLED.iter().any(|begins| line.starts_with(begins));
            assert!(
                known || set_up(page, line),
                "{page}:{}: what is to be done with: {line}",
                block.line
            );
            count += 1;
        }
    }
    assert_eq!(count, 26, "commands");
}

#[test]
fn the_commands_of_the_page_on_shells_run_as_they_stand() {
    let scene = Scene::new();
    assert_eq!(
        run_page(&scene, "docs/shells.md"),
        9,
        "commands that were run"
    );
    let read = |file: &str| fs::read_to_string(scene.path(file)).expect(file);
    let bash = read(".local/share/bash-completion/completions/tenure");
    assert!(bash.contains("complete -F"), "{bash}");
    let fish = read(".config/fish/completions/tenure.fish");
    assert!(fish.contains("complete -c tenure"), "{fish}");
    assert!(read(".zfunc/_tenure").starts_with("#compdef tenure"));
}

#[test]
fn the_commands_of_the_page_on_flock_run_as_they_stand() {
    let scene = Scene::new();
    fs::create_dir_all(scene.path(".local/bin")).expect("a folder");
    assert_eq!(
        run_page(&scene, "docs/flock.md"),
        7,
        "commands that were run"
    );
}
