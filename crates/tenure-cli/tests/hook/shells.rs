//! A command with its prefix is the same command: the same arguments, variables, files and exit code, in bash, zsh and
//! dash. Shells that are not there are passed over, bash and dash never.

use super::{Repository, bash, claude};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

const RULES: &str = "[[agent.command]]\nmatch = [\"probe\"]\nlock = \"p\"\n";

/// Writes down how it was called, and exits with the last argument if that is a number.
const PROBE: &str = r#"#!/bin/sh
line=call
for word; do line="$line <$word>"; done
line="$line A=${A-} B=${B-}"
if [ "${STDIN-}" ]; then line="$line in=$(cat)"; fi
# In one write: another one of the same pipe may write now, too.
printf '%s\n' "$line" >>"$LOG"
echo out
echo err >&2
for word; do last=$word; done
case ${last-} in [0-9]) exit "$last" ;; esac
"#;

/// Stands for `tenure run … -- COMMAND`.
const FAKE: &str = "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift\nprintf 'prefixed\\n' >>\"$MARKS\"\nexec \"$@\"\n";

/// What came of a text.
#[derive(Debug, PartialEq, Eq)]
struct Came {
    code: Option<i32>,
    stdout: String,
    stderr: String,
    files: BTreeMap<String, String>,
    log: String,
}

struct Shells {
    repository: Repository,
    shells: Vec<&'static str>,
}

impl Shells {
    fn new() -> Self {
        let repository = Repository::with(RULES);
        std::fs::create_dir(repository.scene.path("bin")).expect("a folder");
        repository.scene.script("bin/probe", PROBE);
        repository.scene.script("bin/tenure", FAKE);
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
        Self { repository, shells }
    }

    /// The text with its prefixes; `None` if the hook left it alone.
    fn rewritten(&self, text: &str) -> Option<String> {
        let heard = self
            .repository
            .ask("claude", &bash(&self.repository, "", text));
        if heard.nothing() || heard.json().get("hookSpecificOutput").is_none() {
            return None;
        }
        Some(heard.command())
    }

    fn run(&self, shell: &str, text: &str) -> (Came, usize) {
        let scene = &self.repository.scene;
        let folder = scene.path("run");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("f 1"), "one\n").expect("a file");
        std::fs::write(folder.join("g.rs"), "two\n").expect("a file");
        let (log, marks) = (scene.path("log"), scene.path("marks"));
        for file in [&log, &marks] {
            std::fs::write(file, "").expect("a file");
        }
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", scene.path("bin").display());
        let mut command = Command::new(shell);
        if shell == "zsh" {
            // The copies of one output run beside each other in zsh, in whatever order.
            command.args(["-o", "no_multios"]);
        }
        let output = command
            .args(["-c", text])
            .current_dir(&folder)
            .env_clear()
            .env("PATH", path)
            .env("HOME", scene.root())
            .env("LOG", &log)
            .env("MARKS", &marks)
            .env("X", "a b")
            .env("C", "probe")
            .stdin(Stdio::null())
            .output()
            .expect("a shell");
        let text_of = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let came = Came {
            code: output.status.code(),
            stdout: text_of(output.stdout),
            // Shells name the place of a mistake in the text, which is another one.
            stderr: if output.status.code() == Some(127) {
                String::new()
            } else {
                sorted(&text_of(output.stderr))
            },
            files: files(&folder),
            log: sorted(&std::fs::read_to_string(&log).expect("a log")),
        };
        let marks = std::fs::read_to_string(&marks).expect("marks");
        (came, marks.lines().count())
    }

    /// Compares the two in each shell. How many prefixes came into effect in the first.
    fn compare(&self, text: &str, new: &str) -> usize {
        let mut prefixed = None;
        for shell in &self.shells {
            let (before, none) = self.run(shell, text);
            let (after, marks) = self.run(shell, new);
            assert_eq!(before, after, "{shell}: {text:?} became {new:?}");
            assert_eq!(none, 0);
            let calls = before
                .log
                .lines()
                .filter(|line| line.starts_with("call"))
                .count();
            assert_eq!(calls, marks, "{shell}: each call has its prefix: {new:?}");
            prefixed.get_or_insert(marks);
        }
        prefixed.unwrap_or_default()
    }
}

/// The lines of a text that several commands of a pipe have written, in whatever order.
fn sorted(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

fn files(folder: &Path) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().to_string_lossy().into_owned();
        files.insert(
            name,
            std::fs::read_to_string(entry.path()).unwrap_or_default(),
        );
    }
    files
}

#[test]
fn a_prefixed_command_stays_what_it_was() {
    let shells = Shells::new();
    for (text, prefixes) in [
        ("probe", 1),
        ("probe a 'b  c' \"d $X\" $X e\\ f \"\" ''", 1),
        ("probe *.rs 'f'* ? \"*\"", 1),
        ("probe ~ ~/x a=~ HEAD~1 HEAD^ x#y", 1),
        ("A=1 B='2 3' probe 3", 1),
        ("A=$X probe; probe", 2),
        ("probe 2; echo \"code $?\"", 1),
        ("probe 0 && probe 1 || probe 2", 3),
        ("probe 1 && probe never", 1),
        ("cd . && probe\nprobe 4\n", 2),
        ("# probe in a remark's way\nprobe a # probe b; probe c\n", 1),
        ("probe a \\\n  b \\\n  c", 1),
        ("probe 'x\ny' \"p\nq\"", 1),
        ("probe > out 2> err", 1),
        ("probe >>out 2>&1; probe 5 >> out", 2),
        ("STDIN=1 probe < 'f 1'", 1),
        ("STDIN=1 probe 0<g.rs", 1),
        ("probe | sort | wc -l", 1),
        ("probe 3 | cat; echo $?", 1),
        ("probe && echo probe | cat", 1),
        ("nice -n 1 probe a", 1),
        ("env A=5 probe a", 1),
        ("timeout 20 probe 7", 1),
        ("nohup env probe 6 > out 2>&1", 1),
        ("../bin/probe a", 1),
        ("[ -f g.rs ] && probe yes", 1),
        ("test -f none || probe no", 1),
        ("export A=9; probe", 1),
        ("set -e; probe 3; probe never", 1),
        ("probe $((", 0),
        ("probe {a,b} x{1..3}", 1),
        ("probe a=b -c --d=e @f %g +h :i ,j", 1),
        ("probe é 'ü' \"ß\"", 1),
        ("probe '$X' \\$X \"\\$X\" '`' \"\\`\"", 1),
        ("probe '\"' \"'\" \\' \\\" '#' \"#\" \\#", 1),
        ("probe & wait", 0),
        ("probe $? $# \"$@\" $*", 1),
        ("probe ${X} \"${X}\" $X$X", 1),
        ("X=2; probe $X; X=3", 1),
        ("probe 2>/dev/null 3>three >&3", 1),
        (";", 0),
        ("probe;", 1),
        ("probe |", 0),
    ] {
        match shells.rewritten(text) {
            Some(new) => {
                // Braces, and files that no pattern finds, are the shells' own business: each with itself.
                assert_eq!(shells.compare(text, &new), prefixes, "{text:?}");
            }
            None => assert_eq!(prefixes, 0, "{text:?} was left alone"),
        }
    }
}

/// A random text from pieces that stand in many real ones.
struct Random(u64);

impl Random {
    fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap_or_default() % below
    }

    fn of<'a>(&mut self, pieces: &[&'a str]) -> &'a str {
        pieces[self.below(pieces.len())]
    }

    fn command(&mut self) -> String {
        let mut command = String::new();
        for _ in 0..self.below(3) {
            command += self.of(&["A=1 ", "B='x y' ", "A=$X ", "STDIN= "]);
        }
        command += self.of(&[
            "probe",
            "probe",
            "probe",
            "echo probe",
            "true",
            "false",
            "cat g.rs",
            "env probe",
            "nice probe",
            "$C",
            "\"probe\"",
            "printf %s",
        ]);
        for _ in 0..self.below(4) {
            command.push(' ');
            command += self.of(&[
                "a",
                "'b  c'",
                "\"d e\"",
                "$X",
                "\"$X\"",
                "f\\ g",
                "*.rs",
                "3",
                "0",
                "x=y",
                "-v",
                "''",
                "\\\n",
                "2>&1",
                ">out",
                ">>out",
                "2>err",
                "<g.rs",
                "#h",
                "i#j",
                "~",
                "'\n'",
                "${X}",
                "$",
                "\\;",
                "\"a\\\"b\"",
                "{k,l}",
                "probe",
            ]);
        }
        command
    }

    fn text(&mut self) -> String {
        let mut text = self.command();
        for _ in 0..self.below(4) {
            // What reads from a pipe reads all of it: else it would be chance how its writer ends.
            text += self.of(&["", "", "", " | cat", " | sort | wc -l", " | STDIN=1 probe"]);
            text += self.of(&[
                " && ",
                " || ",
                "; ",
                "\n",
                "\n\n  ",
                ";",
                "&&",
                "||\n",
                " ;\n# probe\n",
            ]);
            text += &self.command();
        }
        text += self.of(&["", "", "", "\n", " # probe", ";"]);
        if self.below(12) == 0 {
            text = format!("for i in 1 2; do {text}\ndone");
        }
        text
    }
}

/// Texts that a program puts together. `TENURE_HOOK=long` tries many more of them.
#[test]
fn texts_of_all_kinds_stay_what_they_were() {
    let shells = Shells::new();
    let long = std::env::var("TENURE_HOOK").is_ok_and(|value| value == "long");
    let texts = if long { 3_000 } else { 120 };
    let (mut changed, mut prefixes) = (0_usize, 0_usize);
    for seed in 1..=texts {
        let mut random = Random(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
        let text = random.text();
        let Some(new) = shells.rewritten(&text) else {
            continue;
        };
        let without = new.replace("tenure run p --as claude/1f3c --wait ", "\0");
        assert!(without.contains('\0'), "{new:?}");
        for shell in &shells.shells {
            let (before, _) = shells.run(shell, &text);
            let (after, marks) = shells.run(shell, &new);
            assert_eq!(
                before, after,
                "seed {seed}, {shell}: {text:?} became {new:?}"
            );
            prefixes += marks;
        }
        changed += 1;
    }
    assert!(
        changed > 12 && prefixes > changed,
        "{changed} of {texts}, {prefixes} prefixes"
    );
}

#[test]
fn another_tool_of_the_name_is_not_the_shell() {
    let repository = Repository::with(RULES);
    let input = json!({"command": "probe"});
    let event = claude("PreToolUse", &repository.root(), "t", "mcp__x__Bash", input);
    assert!(repository.ask("claude", &event).nothing());
}
