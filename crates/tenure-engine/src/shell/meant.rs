//! The commands that a text runs, also inside of what `plain` does not take, behind programs that run a command, and in
//! the texts that a shell is given. Decides too whether a command is one of a rule.
//!
//! Nothing is expanded. A word that begins with an expansion may be any text; so it stands for a word of a rule, or for
//! options, where another word of the rule is written out.
//!
//! What no reading of a text finds: the contents of a script, an alias, a name put together at run time, a program that
//! runs a command and is not in the list of `wrappers`.

use super::plain::assigned;
use super::program;
use super::tree::{self, Item, List, Node};
use super::wrappers::{Inside, inside};
use std::collections::BTreeSet;

/// How deep texts are followed into each other.
const DEPTH_MAX: usize = 6;

/// How many commands of a pipe, before a shell that reads from it, may write its text.
const WRITERS_MAX: usize = 8;

/// A command that a text runs.
#[derive(Debug, Clone, Copy)]
pub struct FoundCommand<'a> {
    /// The command's words, without what stands in front of them. An expansion stands there as `$` and its name.
    pub words: &'a [&'a str],
    /// The program that runs it in a way of its own, if one does.
    pub by: Option<&'a str>,
    /// What the runs around it say about their locks.
    under: &'a [&'a str],
}

impl FoundCommand<'_> {
    /// Whether a `tenure run` around it has this lock, or one that is not told.
    pub fn is_under(&self, lock: &str) -> bool {
        let mut words = self.under.iter();
        words.any(|word| word.starts_with('$') || word.rsplit('=').next() == Some(lock))
    }
}

/// How a command meets the words of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// The command has them.
    Is,
    /// An expansion may say one of them, or stands between them.
    Perhaps,
}

/// Calls `found` for each command that a text runs.
pub fn each_in(text: &str, found: &mut dyn FnMut(&FoundCommand<'_>)) {
    Walk { found }.text(text, &CommandContext::default());
}

/// Calls `found` for a simple command of these words, and for each that it runs. `fed` has the texts that it reads.
pub fn each(
    words: &[&str],
    fed: &dyn Fn() -> Vec<String>,
    found: &mut dyn FnMut(&FoundCommand<'_>),
) {
    Walk { found }.command(words, fed, CommandContext::default());
}

/// The texts that a command may write which only repeats its arguments.
pub fn written(words: &[&str]) -> Vec<String> {
    let rest = words.get(1..).unwrap_or_default();
    let options = rest.iter().take_while(|word| word.starts_with('-')).count();
    let joined = rest.get(options..).unwrap_or_default().join(" ");
    let mut texts: Vec<String> = rest.iter().map(|word| (*word).to_owned()).collect();
    texts.push(joined);
    texts
}

/// Whether a command has the words of a rule: the first one by its name, wherever the program lies, and the others behind
/// it, with options and `+TOOLCHAIN` between them. An option may have one word for a value.
pub fn fits(seen: &[&str], rule: &[String]) -> Option<Fit> {
    let (first, rest) = seen.split_first()?;
    let name = rule.first()?;
    let is_first = first == name || (!name.contains('/') && program(first) == name);
    if !is_first && !first.starts_with('$') {
        return None;
    }
    let mut states = vec![State {
        next: 1,
        is_written: is_first,
        is_expanded: !is_first,
        is_behind_option: false,
    }];
    let mut fit = None;
    for word in rest.iter().map(Some).chain([None]) {
        let mut after = Vec::new();
        for state in states {
            let Some(wanted) = rule.get(state.next) else {
                match (state.is_written, state.is_expanded) {
                    (true, false) => return Some(Fit::Is),
                    (true, true) => fit = Some(Fit::Perhaps),
                    (false, _) => {}
                }
                continue;
            };
            let Some(word) = word else { continue };
            state.step(word, wanted, &mut after);
        }
        if after.is_empty() {
            break;
        }
        after.sort_unstable();
        after.dedup();
        states = after;
    }
    fit
}

/// How far a rule has been found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    /// The number of the word that is wanted.
    next: usize,
    /// Whether one of the words before is written out.
    is_written: bool,
    is_expanded: bool,
    is_behind_option: bool,
}

impl State {
    /// What may follow with this word.
    fn step(self, word: &str, wanted: &str, after: &mut Vec<Self>) {
        let here = Self {
            is_behind_option: false,
            ..self
        };
        if word == wanted {
            after.push(Self {
                next: self.next + 1,
                is_written: true,
                ..here
            });
        } else if word.starts_with('$') {
            let expanded = Self {
                is_expanded: true,
                ..here
            };
            after.push(expanded);
            after.push(Self {
                next: self.next + 1,
                ..expanded
            });
        } else if word.starts_with('-') || (self.next == 1 && word.starts_with('+')) {
            after.push(Self {
                is_behind_option: word.starts_with('-') && !word.contains('='),
                ..here
            });
        } else if self.is_behind_option {
            after.push(here);
        }
    }
}

/// What stands around a command.
#[derive(Debug, Clone, Default)]
struct CommandContext<'a> {
    by: Option<&'a str>,
    under: Vec<&'a str>,
    depth: usize,
}

struct Walk<'f> {
    found: &'f mut dyn FnMut(&FoundCommand<'_>),
}

impl Walk<'_> {
    fn text(&mut self, text: &str, around: &CommandContext<'_>) {
        if around.depth <= DEPTH_MAX {
            self.list(&tree::read(text), around);
        }
    }

    fn list(&mut self, list: &List, around: &CommandContext<'_>) {
        for Item { node, .. } in list {
            self.node(node, &[], around);
        }
    }

    /// `before` has the commands before it in its pipe.
    fn node(&mut self, node: &Node, before: &[Node], around: &CommandContext<'_>) {
        match node {
            Node::Simple(words, inner, read) => {
                let fed = || {
                    let parts = before.iter().flat_map(Node::all);
                    let simple = parts.filter_map(|node| match node {
                        Node::Simple(words, _, read) => Some((words, read)),
                        _ => None,
                    });
                    let mut texts = read.clone();
                    for (words, read) in simple {
                        let words: Vec<&str> = words.iter().map(String::as_str).collect();
                        texts.extend(written(&words));
                        texts.extend(read.iter().cloned());
                    }
                    texts
                };
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                self.command(&words, &fed, around.clone());
                for list in inner {
                    self.list(list, around);
                }
            }
            Node::Pipe(all) => {
                for (number, node) in all.iter().enumerate() {
                    let from = number.saturating_sub(WRITERS_MAX);
                    let before = all.get(from..number).unwrap_or_default();
                    self.node(node, before, around);
                }
            }
            other => {
                for part in other.parts() {
                    self.node(part, before, around);
                }
            }
        }
    }

    fn command(
        &mut self,
        words: &[&str],
        fed: &dyn Fn() -> Vec<String>,
        around: CommandContext<'_>,
    ) {
        let front = words.iter().take_while(|word| is_in_front(word)).count();
        // Later words alone, so each is looked at once.
        let mut known = BTreeSet::new();
        let mut open = vec![(front, around)];
        while let Some((at, around)) = open.pop() {
            let words = words.get(at..).unwrap_or_default();
            let Some(first) = words.first() else { continue };
            (self.found)(&FoundCommand {
                words,
                by: around.by,
                under: &around.under,
            });
            let Inside {
                starts,
                texts,
                reads,
                is_around,
                locks,
            } = inside(words);
            if starts.is_empty() && texts.is_empty() && !reads {
                continue;
            }
            let mut within = around.clone();
            within.under.extend(locks);
            for start in starts {
                if known.insert(at + start) {
                    let mut within = within.clone();
                    if !is_around {
                        within.by = within.by.or(Some(program(first)));
                    }
                    open.push((at + start, within));
                }
            }
            within.by = within.by.or(Some(program(first)));
            within.depth += 1;
            let read = if reads { fed() } else { Vec::new() };
            for text in texts.iter().chain(&read) {
                self.text(text, &within);
            }
        }
    }
}

/// Whether a word stands in front of a command: an assignment, the sign of a redirection, a word of the shell.
fn is_in_front(word: &str) -> bool {
    matches!(word, "<" | "{" | "coproc") || assigned(word).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The best fit of a rule in a text, with who runs the command.
    fn meant(text: &str, rule: &str) -> Option<(Fit, Option<String>)> {
        let rule: Vec<String> = rule.split(' ').map(str::to_owned).collect();
        let mut best = None;
        each_in(text, &mut |seen| {
            let fit = fits(seen.words, &rule).filter(|_| !seen.is_under("b"));
            let found = fit.map(|fit| (fit, seen.by.map(str::to_owned)));
            if best.is_none() || found.as_ref().is_some_and(|(fit, _)| *fit == Fit::Is) {
                best = found.or(best.take());
            }
        });
        best
    }

    /// What may stand in front of a command that is run.
    const FRONTS: [&str; 84] = [
        "",
        "A=1 B=$x",
        "env -u A B=1",
        "nice -n 5",
        "nice -n5",
        "ionice -c3",
        "ionice -c 3 -n 1",
        "nohup",
        "timeout 5",
        "timeout -s KILL -k 1 5m",
        "timeout --signal=KILL 5",
        "gtimeout 5",
        "stdbuf -oL -e 0",
        "chrt -i 0",
        "taskset -c 0,1",
        "prlimit --nproc=9",
        "caffeinate -i -t 9",
        "/usr/bin/time -v",
        "/usr/bin/time -f %e -o f",
        "time -p",
        "flock l",
        "flock -w 5 -x l",
        "tenure flock -w 5 l",
        "strace -f -o f -e trace=file",
        "systemd-inhibit --what=idle",
        "dbus-run-session --",
        "rustup run nightly",
        "uv run --with x",
        "poetry run",
        "bundle exec",
        "pipenv run",
        "conda run -n x",
        "direnv exec .",
        "asdf exec",
        "pnpm exec",
        "chronic",
        "xvfb-run -a -s x",
        "valgrind --leak-check=full",
        "perf stat -r 3",
        "perf record -g -o f --",
        "tenure run other --",
        "tenure --dir d run --slots 2 other --",
        "setsid -w",
        "setpriv --reuid 1 --clear-groups",
        "sudo -u me -n",
        "sudo -nu me A=1",
        "doas -u me",
        "su - me --",
        "runuser -u me --",
        "chroot d",
        "unshare -rm",
        "nsenter -t 1 -m",
        "systemd-run -p A=1 --user",
        "xargs -n 1 -P2",
        "exec -a x",
        "command",
        "builtin",
        "noglob",
        "nocorrect",
        "find . -name x -exec",
        "find . -exec ls {} \\; -execdir",
        "fd -e rs -x",
        "nix develop .#x -c",
        "nix shell nixpkgs#x --command",
        "mise exec node@20 --",
        "mise x --",
        "npm exec --",
        "op run --env-file=f --",
        "aws-vault exec me --",
        "screen -dm -S x",
        "watchexec -e rs --",
        "entr -r",
        "hyperfine -w 3",
        "tmux new-session -d -s x",
        "tmux new -d",
        "eval",
        "trap",
        "watch -n 5 -d",
        "parallel -j 2",
        "timeout 5 env A=1 nice",
        "! ",
        "timeout $T",
        "sudo $FLAGS",
        "env -- A=1",
    ];

    #[test]
    fn a_command_is_found_behind_each_program_that_runs_one() {
        for front in FRONTS {
            let text = format!("{front} cargo test");
            assert!(meant(&text, "cargo test").is_some(), "{text}");
        }
        for text in [
            "flock l -c 'cargo test'",
            "su me -c 'cargo test'",
            "su -c 'cargo test' me",
            "runuser me -c 'cargo test'",
            "su me -lc 'cargo test'",
            "script -q -c 'cargo test' f",
            "env -S 'cargo test'",
            "sh -c 'cargo test'",
            "bash -lc 'cargo test'",
            "bash -euo pipefail -c 'cd x; cargo test'",
            "zsh -o x -c 'cargo test'",
            "timeout 5 sh -c 'cargo test'",
            "echo 'cargo test' | sh",
            "echo cargo test | bash -s",
            "printf '%s' \"cargo test\" | nice sh -",
            "cat <<E | sh\ncargo test\nE",
            "sh <<E\ncargo test\nE",
            "bash <<< 'cargo test'",
            "(echo cargo test) | sh",
            "eval \"cargo test\"",
            "trap 'cargo test' EXIT",
            "tenure run other --shell -- 'cd x && cargo test'",
            "watch 'cargo test'",
            "hyperfine 'cargo test'",
            "hyperfine true 'cargo test'",
            "concurrently -n a,b 'npm run x' 'cargo test'",
            "tmux new -d 'cargo test'",
            "nix-shell -p x --run 'cargo test'",
            "nodemon -e rs --exec 'cargo test'",
            "cargo watch -s 'cargo test'",
            "npm exec -c 'cargo test'",
            "parallel cargo test ::: a",
            "xargs sh -c 'cargo test'",
            "find . -exec sh -c 'cargo test' \\;",
        ] {
            assert!(meant(text, "cargo test").is_some(), "{text}");
        }
    }

    #[test]
    fn a_command_is_found_in_each_construct() {
        for text in [
            "for i in 1 2; do cargo test; done",
            "(cargo test)",
            "{ cargo test; }",
            "x=$(cargo test)",
            "`cargo test`",
            "a=(`cargo test`)",
            "c\\argo te'st'",
            "car\\\ngo test",
            "\"cargo\" test",
            "cargo $'test'",
            "cargo $'t\\x65\\163t'",
            "! /usr/bin/cargo test",
            "if true; then\n  cargo test\nfi",
            "while cargo test; do :; done",
            "case x in x) cargo test;; esac",
            "f() { cargo test; }; f",
            "cargo test &",
            "cat <(cargo test)",
            "cat <<E\n$(cargo test)\nE",
            "cargo test <<E\nx\nE",
            "time cargo test",
            "echo \"${x:-$(cargo test)}\"",
            "[[ -f x ]] && cargo test",
            "f() (cargo test)",
            "cargo test > >(tee f)",
            "a; ( ( cargo test ) )",
            "coproc { cargo test; }",
            "cargo +nightly test",
            "cargo -q test",
            "cargo --locked +x -q test",
            "cargo --config k=v --manifest-path a/b test",
            "cargo +nightly --config x test --all",
        ] {
            let found = meant(text, "cargo test").map(|(fit, _)| fit);
            assert_eq!(found, Some(Fit::Is), "{text}");
        }
    }

    #[test]
    fn an_expansion_stands_for_a_word_where_another_one_is_written() {
        for text in [
            "$CARGO test",
            "${CARGO:-cargo} test",
            "\"$CARGO\" test",
            "c=cargo; $c test",
            "`which cargo` test",
            "$(which cargo) +nightly -q test",
            "cargo $t",
            "cargo $flags test",
            "cargo -q \"${t}\"",
            "for t in a b; do cargo $t; done",
            "timeout 5 $CARGO test",
            "sh -c '$CARGO test'",
        ] {
            let found = meant(text, "cargo test").map(|(fit, _)| fit);
            assert_eq!(found, Some(Fit::Perhaps), "{text}");
        }
        for text in [
            "$EDITOR f",
            "$x",
            "$a $b",
            "$(date) $x",
            "$x build",
            "$x -q",
            "\"$@\"",
            "'$x' build",
            "echo $x test",
            "x=$y test",
        ] {
            assert_eq!(meant(text, "cargo test"), None, "{text}");
        }
        for text in [
            "$MAKE",
            "${MAKE:-make}",
            "$MAKE all",
            "m=make; $m",
            "(cd make)",
            "$make make",
        ] {
            assert_eq!(meant(text, "make"), None, "{text}");
        }
    }

    #[test]
    fn other_words_are_no_command() {
        for text in [
            "",
            "cargo",
            "cargo build; test x",
            "cargo | test",
            "cargo build test",
            "cargo tests",
            "mycargo test",
            "tenure run b -- cargo test",
            "tenure run b --slots 2 -- timeout 5 cargo test",
            "tenure --dir d run b -- sh -c 'cargo test'",
            "tenure run --lock=b x -- cargo test",
            "tenure run $LOCK -- cargo test",
            "for i in 1; do tenure run b -- cargo test; done",
            "tenure run a -- tenure run b -- cargo test",
            "echo cargo test",
            "echo cargo-test",
            "echo 'cargo test' | cat",
            "git commit -m 'cargo test'",
            "git commit -m \"$(cat <<'E'\ncargo test\nE\n)\"",
            "cat <<E\ncargo test\nE",
            "echo 'cargo test' > x.sh",
            "# cargo test",
            "grep 'cargo test' f | sort",
            "test cargo",
            "x='cargo test'",
            "sh ./x.sh cargo test",
            "timeout 5 echo cargo test",
        ] {
            assert_eq!(meant(text, "cargo test"), None, "{text}");
        }
        for (text, expected) in [
            ("(make)", true),
            ("(/usr/bin/make all)", true),
            ("(makes)", false),
            ("echo make | sh", true),
            ("(echo make)", false),
        ] {
            assert_eq!(meant(text, "make").is_some(), expected, "{text}");
        }
    }

    #[test]
    fn who_runs_a_command_in_a_way_of_its_own_is_told() {
        for (text, by) in [
            ("cargo test", None),
            ("timeout 5 nice cargo test", None),
            ("sudo cargo test", Some("sudo")),
            ("timeout 5 xargs cargo test", Some("xargs")),
            ("bash -c 'sudo cargo test'", Some("bash")),
            ("echo cargo test | /bin/sh", Some("sh")),
            ("tenure run other -- cargo test", None),
        ] {
            let found = meant(text, "cargo test").map(|(_, by)| by);
            assert_eq!(found, Some(by.map(str::to_owned)), "{text}");
        }
    }

    #[test]
    fn no_text_keeps_its_reader_busy() {
        let began = tenure_os::clock::instant();
        for part in [
            "cargo $x ",
            "$x ",
            "env ",
            "find -exec ",
            "eval ",
            "sh -c ",
            "tenure run ",
            "echo | ",
            "xargs -n 1 ",
            "cargo build;",
            "timeout $a ",
            "sh -c 'eval \"",
            "a <<E ",
            "echo a | sh;",
        ] {
            let _ = meant(&part.repeat(5_000), "cargo test");
        }
        let took = tenure_os::clock::instant().saturating_duration_since(began);
        assert!(took < std::time::Duration::from_secs(30), "{took:?}");
    }
}
