//! Whether a text has work to do after a command in it has succeeded: the shell of such a text lives on with the work.
//!
//! The text is followed from that command on, as a shell would that got 0: past failure branches, into functions, and out
//! of loops that only try again. Where a condition is not known, each branch counts, but for one that only gives up. What
//! is not understood counts as work, for a shell that owns a lock too long can be seen.

use super::plain::assigned;
use super::program;
use super::tree::{self, Item, List, Node};
use std::cell::Cell;
use std::collections::BTreeMap;

/// What a text does after the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// More work.
    Work,
    /// More work, in a copy of the shell that goes on in the background.
    Apart,
    /// No work: the text ends, or only says how the command has ended.
    Nothing,
    /// Unknown: the text does not show the command.
    Unseen,
}

/// What `text` does after the first command of this program with this verb, or with any arguments for an empty verb.
pub fn after(text: &str, name: &str, verb: &str) -> After {
    let list = tree::read(text);
    let nodes = tree::all(&list);
    let functions = nodes.iter().filter_map(|node| match node {
        Node::Function(name, body) => Some((name.as_str(), &**body)),
        _ => None,
    });
    let mut walk = Walk {
        name,
        verb,
        functions: functions.collect(),
        calling: Vec::new(),
        steps: Cell::new(0),
        depth: Cell::new(0),
    };
    // A function may call another one that has the command.
    while let Some(name) = walk.next_calling() {
        walk.calling.push(name);
    }
    if !walk.list_has(&list) {
        return After::Unseen;
    }
    let flow = walk.list(&list, false);
    if flow.is_apart {
        After::Apart
    } else if flow.works || walk.gives_back_at_the_end(&list) {
        After::Work
    } else {
        After::Nothing
    }
}

/// Whether `text` calls this program with one of these verbs, and has no other work.
pub fn only_calls(text: &str, name: &str, verbs: &[&str]) -> bool {
    let list = tree::read(text);
    let nodes = tree::all(&list);
    let is_call = |words: &&[String]| verbs.iter().any(|verb| calls(words, name, verb));
    let is_function = |word: &str| {
        let mut functions = nodes.iter();
        word.starts_with('$')
            || functions.any(|node| matches!(node, Node::Function(name, _) if name == word))
    };
    let is_no_work = |words: &[String]| {
        let (word, argument) = command(words);
        is_function(word) || !is_work(word, argument)
    };
    let simple = || nodes.iter().filter_map(|node| node.words());
    simple().any(|words| is_call(&words))
        && simple().all(|words| is_call(&words) || is_no_work(words))
}

/// Whether a simple command calls this program with this verb.
fn calls(words: &[String], name: &str, verb: &str) -> bool {
    let mut rest = words.iter().skip_while(|word| program(word) != name);
    rest.next().is_some() && (verb.is_empty() || rest.any(|word| word == verb))
}

/// How many commands are followed: a longer way is work in any case.
const STEPS_MAX: usize = 10_000;

/// How deep functions are followed.
const DEPTH_MAX: usize = 8;

/// How a part of the text ends its list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// What stands behind it follows.
    On,
    /// Out of a loop, or to its next round.
    Loop,
    /// Out of a function.
    Function,
    /// Out of the shell.
    Shell,
}

/// What a part of the text does from the command on.
#[derive(Debug, Clone, Copy)]
struct Flow {
    works: bool,
    is_apart: bool,
    /// Whether it succeeds, if that is known.
    is_good: Option<bool>,
    end: End,
}

impl Flow {
    fn of(is_good: Option<bool>) -> Self {
        Self {
            works: false,
            is_apart: false,
            is_good,
            end: End::On,
        }
    }

    fn work() -> Self {
        Self {
            works: true,
            ..Self::of(None)
        }
    }

    fn ends(end: End, is_good: Option<bool>) -> Self {
        Self {
            end,
            ..Self::of(is_good)
        }
    }

    fn decides(self) -> bool {
        self.works || self.is_apart || self.end != End::On
    }

    /// What is known of it where it may not happen.
    fn perhaps(self) -> Self {
        Self {
            end: End::On,
            is_good: None,
            ..self
        }
    }

    /// What is left of it outside of the construct that catches such ends.
    fn caught(self, caught: &[End]) -> Self {
        let end = if caught.contains(&self.end) {
            End::On
        } else {
            self.end
        };
        Self { end, ..self }
    }
}

/// The way of a shell through the text.
struct Walk<'a> {
    name: &'a str,
    verb: &'a str,
    functions: BTreeMap<&'a str, &'a Node>,
    /// The functions that have the command, themselves or in another one.
    calling: Vec<&'a str>,
    steps: Cell<usize>,
    depth: Cell<usize>,
}

impl<'a> Walk<'a> {
    fn is_call(&self, words: &[String], verb: &str) -> bool {
        calls(words, self.name, verb)
    }

    /// The function that a simple command calls. One that the text takes from its arguments may be any, so it is the one
    /// with the command.
    fn function(&self, words: &[String]) -> Option<(&'a str, &'a Node)> {
        let word = words.iter().find(|word| !is_prefix(word))?;
        let name = if word.starts_with('$') {
            self.calling.first().copied()?
        } else {
            word.as_str()
        };
        let found = self.functions.get_key_value(name)?;
        Some((*found.0, *found.1))
    }

    fn next_calling(&self) -> Option<&'a str> {
        let mut rest = self
            .functions
            .iter()
            .filter(|(name, _)| !self.calling.contains(*name));
        rest.find(|(_, body)| self.has(body)).map(|(name, _)| *name)
    }

    fn list_has(&self, list: &'a List) -> bool {
        list.iter().any(|item| self.has(&item.node))
    }

    /// Whether the command is within.
    fn has(&self, node: &'a Node) -> bool {
        let is_here = node.words().is_some_and(|words| {
            let function = self.function(words);
            self.is_call(words, self.verb)
                || function.is_some_and(|(name, _)| self.calling.contains(&name))
        });
        let mut parts = node.parts().into_iter();
        is_here || (!matches!(node, Node::Function(..)) && parts.any(|part| self.has(part)))
    }

    /// Follows a list. `begun` says that the command stands before it; else the list has the command.
    fn list(&self, list: &'a List, mut begun: bool) -> Flow {
        let mut last = Flow::of(None);
        for Item {
            node,
            is_background,
        } in list
        {
            if !begun && !self.has(node) {
                continue;
            }
            let flow = self.node(node, begun);
            if *is_background {
                // A shell makes a copy of itself for all but a plain command.
                let is_plain =
                    matches!(node, Node::Simple(words, ..) if self.is_call(words, self.verb));
                if flow.works && !begun && !is_plain {
                    return Flow {
                        is_apart: true,
                        ..Flow::of(None)
                    };
                }
                last = Flow::of(None);
                if flow.works {
                    return Flow::work();
                }
            } else if flow.decides() {
                return flow;
            } else {
                last = flow;
            }
            begun = true;
        }
        last
    }

    /// What may happen where a condition is not known: its work counts, unless it then gives up.
    fn maybe(&self, node: &'a Node) -> Flow {
        if gives_up(node) {
            return Flow::of(None);
        }
        self.node(node, true).perhaps()
    }

    fn maybe_list(&self, list: &'a List) -> Flow {
        if list.last().is_some_and(|item| gives_up(&item.node)) {
            return Flow::of(None);
        }
        self.list(list, true).perhaps()
    }

    fn node(&self, node: &'a Node, begun: bool) -> Flow {
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() > STEPS_MAX {
            return Flow::work();
        }
        match node {
            Node::Simple(words, inner, _) => self.simple(words, inner, begun),
            Node::Not(inner) => {
                let flow = self.node(inner, begun);
                Flow {
                    is_good: flow.is_good.map(|is_good| !is_good),
                    ..flow
                }
            }
            Node::Pipe(all) => {
                let mut parts = all.iter().filter(|node| begun || self.has(node));
                let works = parts.any(|node| self.node(node, begun).works);
                if works { Flow::work() } else { Flow::of(None) }
            }
            Node::Chain(first, rest) => self.chain(first, rest, begun),
            Node::Group(list) => self.list(list, begun),
            Node::Subshell(list) => {
                let flow = self.list(list, begun);
                flow.caught(&[End::Loop, End::Function, End::Shell])
            }
            Node::If(arms, otherwise) => self.condition(arms, otherwise, begun),
            Node::Loop(condition, goes_on, body) => {
                let flow = self.rounds(condition, *goes_on, body, begun);
                flow.caught(&[End::Loop])
            }
            Node::Case(arms) if begun => {
                let mut flows = arms.iter().map(|arm| self.maybe_list(arm));
                let works = flows.any(|flow| flow.works);
                if works { Flow::work() } else { Flow::of(None) }
            }
            Node::Case(arms) => {
                let arm = arms.iter().find(|arm| self.list_has(arm));
                arm.map_or(Flow::of(None), |arm| self.list(arm, false))
            }
            Node::Function(..) => Flow::of(Some(true)),
        }
    }

    fn chain(&self, first: &'a Node, rest: &'a [(bool, Node)], begun: bool) -> Flow {
        let mut begun = begun;
        let mut last = Flow::of(None);
        if begun || self.has(first) {
            last = self.node(first, begun);
            begun = true;
        }
        for (is_and, node) in rest {
            if last.decides() {
                return last;
            }
            if !begun {
                if self.has(node) {
                    last = self.node(node, false);
                    begun = true;
                }
                continue;
            }
            match last.is_good {
                Some(is_good) if is_good == *is_and => last = self.node(node, true),
                Some(_) => {}
                None => last = self.maybe(node),
            }
        }
        last
    }

    fn condition(&self, arms: &'a [(List, List)], otherwise: &'a List, begun: bool) -> Flow {
        let (mut begun, mut is_certain) = (begun, true);
        for (condition, arm) in arms {
            if !begun && self.list_has(arm) && !self.list_has(condition) {
                return self.list(arm, false);
            }
            if !begun && !self.list_has(condition) {
                continue;
            }
            let flow = self.list(condition, begun);
            begun = true;
            if flow.decides() {
                return flow;
            }
            match flow.is_good {
                Some(true) if is_certain => return self.list(arm, true),
                Some(false) => {}
                _ => {
                    is_certain = false;
                    let flow = self.maybe_list(arm);
                    if flow.decides() {
                        return flow;
                    }
                }
            }
        }
        if !begun || is_certain {
            return self.list(otherwise, begun);
        }
        self.maybe_list(otherwise)
    }

    fn rounds(&self, condition: &'a List, goes_on: bool, body: &'a List, begun: bool) -> Flow {
        if !begun && !self.list_has(condition) {
            let flow = self.list(body, false);
            // The next round begins with the condition.
            return match flow.end {
                End::On if !flow.decides() && !condition.is_empty() => {
                    let again = self.list(condition, true);
                    if again.works { again } else { Flow::of(None) }
                }
                _ => flow,
            };
        }
        let flow = self.list(condition, begun);
        if flow.decides() {
            return flow;
        }
        match flow.is_good {
            Some(is_good) if is_good != goes_on => Flow::of(Some(true)),
            Some(_) if !begun => self.list(body, true),
            _ => self.maybe_list(body),
        }
    }

    fn simple(&self, words: &[String], inner: &'a [List], begun: bool) -> Flow {
        let is_plain_assignment = words.iter().all(|word| is_prefix(word));
        if !begun && self.is_call(words, self.verb) {
            return Flow::of(Some(true));
        }
        let mut is_good = None;
        for list in inner {
            if !begun && !self.list_has(list) {
                continue;
            }
            let flow = self.list(list, begun);
            if flow.works {
                return flow;
            }
            is_good = flow.is_good;
        }
        let is_inside = !begun && inner.iter().any(|list| self.list_has(list));
        if is_plain_assignment {
            return Flow::of(if inner.is_empty() {
                Some(true)
            } else {
                is_good
            });
        }
        if let Some((_, body)) = self.function(words).filter(|_| !is_inside) {
            let depth = self.depth.replace(self.depth.get() + 1);
            let flow = if depth > DEPTH_MAX {
                Flow::work()
            } else {
                self.node(body, begun)
            };
            self.depth.set(depth);
            return flow.caught(&[End::Function]);
        }
        let (word, argument) = command(words);
        let result = match argument {
            None | Some("$?") => is_good,
            Some("0") => Some(true),
            Some(_) => None,
        };
        match word {
            "exit" => Flow::ends(End::Shell, None),
            "return" => Flow::ends(End::Function, result),
            "break" | "continue" => Flow::ends(End::Loop, None),
            "true" | ":" | "echo" | "printf" => Flow::of(Some(true)),
            "false" => Flow::of(Some(false)),
            _ if is_work(word, argument) => Flow::work(),
            _ => Flow::of(None),
        }
    }

    /// Whether the text gives the lock back when its shell ends (`trap`), so that its shell is to have the lock until then.
    fn gives_back_at_the_end(&self, list: &'a List) -> bool {
        let nodes = tree::all(list);
        let simple = nodes.iter().filter_map(|node| node.words());
        let traps = simple.filter(|words| words.first().is_some_and(|word| word == "trap"));
        let actions = traps.filter_map(|words| words.iter().skip(1).find(|word| *word != "--"));
        actions.into_iter().any(|action| {
            let action = tree::read(action);
            tree::all(&action).iter().any(|node| {
                let words = node.words().unwrap_or_default();
                let called = words
                    .first()
                    .and_then(|name| self.functions.get(name.as_str()));
                let of_called = called.map(|body| body.all()).unwrap_or_default();
                let mut all = of_called.iter().filter_map(|node| node.words());
                self.is_call(words, "release") || all.any(|words| self.is_call(words, "release"))
            })
        })
    }
}

/// Whether a branch says or cleans up something, and then ends the shell, the function or the round without success.
fn gives_up(node: &Node) -> bool {
    match node {
        Node::Simple(words, ..) => {
            let gives_up = matches!(
                words.first().map(String::as_str),
                Some("exit" | "return" | "continue" | "break")
            );
            gives_up && words.get(1).is_none_or(|code| code != "0")
        }
        Node::Group(list) | Node::Subshell(list) => {
            list.last().is_some_and(|item| gives_up(&item.node))
        }
        Node::Chain(_, rest) => rest.last().is_some_and(|(_, node)| gives_up(node)),
        _ => false,
    }
}

/// The word of a simple command, and its first argument.
fn command(words: &[String]) -> (&str, Option<&str>) {
    let words = words.iter().map(String::as_str);
    let mut words = words.skip_while(|word| is_prefix(word));
    (words.next().unwrap_or_default(), words.next())
}

/// Whether a word stands before a command: an assignment, or a redirection.
fn is_prefix(word: &str) -> bool {
    word == "<" || assigned(word).is_some()
}

/// Whether a command is work: not what says something, or keeps house in the shell. What waits for other processes or for
/// input is work.
fn is_work(word: &str, argument: Option<&str>) -> bool {
    const NONE: [&str; 35] = [
        "", "!", "((", ":", "[", "[[", "break", "cd", "continue", "date", "declare", "disown",
        "do", "done", "echo", "esac", "exit", "export", "false", "fi", "local", "logger", "printf",
        "readonly", "return", "set", "shift", "test", "then", "trap", "true", "typeset", "umask",
        "unset", "}",
    ];
    // Without a file it waits for its input.
    let shows_file = word == "cat" && argument.is_some_and(|file| !file.starts_with('-'));
    !NONE.contains(&word) && !shows_file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::too_many_lines, reason = "it is a table")]
    #[test]
    fn text_of_a_shell_shows_what_it_has_to_do_after_the_call() {
        use After::{Apart, Nothing, Unseen, Work};
        let rows = [
            ("tenure acquire x", Nothing),
            ("cd y && tenure acquire x", Nothing),
            ("tenure -q acquire gpu --slots 2 | tee log", Nothing),
            ("timeout 5 /usr/bin/tenure --dir d acquire x", Nothing),
            ("tenure acquire x && work; tenure release x", Work),
            ("tenure acquire x | sed s/a/b/; work", Work),
            ("tenure acquire x || exit 1", Nothing),
            ("tenure acquire x || exit 1; work", Work),
            ("tenure acquire x || { logger failed; exit 1; }", Nothing),
            ("tenure acquire x || { mail me; exit 1; }; work", Work),
            ("tenure acquire x || (mail me; exit 1)\nwork", Work),
            ("tenure acquire x && echo got || echo refused", Nothing),
            ("tenure acquire x && echo got || mail me", Nothing),
            ("set -e; tenure acquire x; exit $?", Nothing),
            ("tenure acquire x; exit $?; work", Nothing),
            ("id=$(tenure acquire x); echo $id >id.txt", Nothing),
            ("id=\"$(tenure acquire x)\" && work \"$id\"", Work),
            ("id=`tenure acquire x`; work", Work),
            ("id=$(tenure acquire x)", Nothing),
            ("echo $(tenure acquire x 2>&1)", Nothing),
            ("if ! tenure acquire x; then exit 1; fi", Nothing),
            ("if ! tenure acquire x; then mail me; exit 1; fi", Nothing),
            (
                "if ! tenure acquire x; then mail me; exit 1; fi; work",
                Work,
            ),
            ("if ! tenure acquire x; then mail me; else work; fi", Work),
            ("if tenure acquire x; then work; else echo no; fi", Work),
            (
                "if tenure acquire x; then echo yes; else mail me; fi",
                Nothing,
            ),
            ("if tenure acquire x; then work; fi", Work),
            ("until tenure acquire x -n; do sleep 1; done", Nothing),
            ("until tenure acquire x -n; do sleep 1; done; work", Work),
            ("while ! tenure acquire x -n; do sleep 1; done", Nothing),
            ("while ! tenure acquire x; do sleep 1; done && work", Work),
            (
                "while tenure acquire x; do work; tenure release x; done",
                Work,
            ),
            ("for i in 1 2; do tenure acquire x; done", Nothing),
            ("for i in 1 2; do tenure acquire x; work; done", Work),
            (
                "for i in 1 2 3; do tenure acquire x -n && exit 0; sleep 1; done; exit 1",
                Nothing,
            ),
            (
                "for i in 1 2 3; do tenure acquire x -n && break; sleep 1; done",
                Nothing,
            ),
            (
                "for i in 1 2 3; do tenure acquire x -n && break; sleep 1; done; work",
                Work,
            ),
            (
                "for i in 1 2; do if tenure acquire x; then break; fi; sleep 1; done; work",
                Work,
            ),
            ("tenure acquire x >o; cat o", Nothing),
            ("tenure acquire x --why \"$(date; hostname)\"", Nothing),
            ("tenure acquire x; cat", Work),
            ("tenure acquire x >&2; cat -", Work),
            ("work & tenure acquire x; wait", Work),
            ("tenure acquire x; echo Enter ends it; read _", Work),
            ("tenure acquire x; exec ./server", Work),
            ("tenure acquire x --why 'a; b'", Nothing),
            ("tenure acquire x --why \"a; work\" 2>&1", Nothing),
            ("tenure acquire x >/dev/null 2>&1 || true; sleep 5", Work),
            ("tenure acquire x; tenure release x", Work),
            ("tenure acquire x\nwork", Work),
            ("tenure acquire x # work", Nothing),
            ("tenure acquire a; tenure acquire b", Work),
            ("tenure acquire x & work", Work),
            (
                "trap 'tenure release x' EXIT; tenure acquire x; ./deploy",
                Work,
            ),
            ("(tenure acquire x; work)", Work),
            ("{ tenure acquire x && echo ok; } 2>&1 | tee log", Nothing),
            ("f() { tenure acquire x; }; f; work", Work),
            ("sh -c 'cd y && tenure acquire x'; work", Unseen),
            ("./job.sh", Unseen),
            ("tenure check x; work", Unseen),
            ("(work)", Unseen),
            ("\"", Unseen),
            ("tenure acquire x || {", Nothing),
            // A guard ends the shell only where its condition fails.
            ("tenure acquire x || exit 1; cd /tmp || exit 1; work", Work),
            ("tenure acquire x || exit 1; cd /tmp && work", Work),
            ("tenure acquire x; cd /tmp || exit 1", Nothing),
            (
                "tenure acquire x; [ -e y ] || { echo no; exit 3; }; work",
                Work,
            ),
            (
                "tenure acquire x; if [ ! -e y ]; then exit 3; fi; work",
                Work,
            ),
            ("tenure acquire x; if [ -e y ]; then work; fi", Work),
            (
                "tenure acquire x; if [ -e y ]; then exit 0; else work; fi",
                Work,
            ),
            (
                "tenure acquire x; case $1 in a) exit 1;; *) work;; esac",
                Work,
            ),
            (
                "tenure acquire x; case $1 in a) exit 1;; b) echo;; esac",
                Nothing,
            ),
            (
                "for i in 1 2; do tenure acquire x -n || continue; work; done",
                Work,
            ),
            (
                "for i in 1 2; do [ $i = 2 ] && continue; tenure acquire x; work; done",
                Work,
            ),
            (
                "while :; do tenure acquire x -n && break; sleep 1; done; work",
                Work,
            ),
            ("while tenure acquire x -n; do :; done", Nothing),
            ("tenure acquire x || return 1; cd y || return 1; work", Work),
            ("set -e; tenure acquire x; test -e y || exit 0; work", Work),
            // Assignments, pipes and conditions that work.
            ("tenure acquire x; A=1 work", Work),
            ("tenure acquire x; A=$(work)", Work),
            ("tenure acquire x; A=$(date)", Nothing),
            ("tenure acquire x; echo 1 | work", Work),
            ("tenure acquire x; echo 1 | tee log", Work),
            ("tenure acquire x; if ! work; then echo failed; fi", Work),
            ("tenure acquire x; if work; then echo yes; fi", Work),
            ("tenure acquire x; while work; do :; done", Work),
            ("tenure acquire x; until [ -e y ]; do sleep 1; done", Work),
            ("tenure acquire x; for i in 1 2; do work; done", Work),
            ("tenure acquire x; ! work", Work),
            ("tenure acquire x; time work", Work),
            ("tenure acquire x; >log work", Work),
            ("tenure acquire x; 2>&1 work", Work),
            ("tenure acquire x; >log", Nothing),
            ("tenure acquire x; echo ${A:-$(work)}", Work),
            // Functions.
            ("lock() { tenure acquire x || exit 1; }; lock; work", Work),
            (
                "lock() { tenure acquire x || return 1; }; lock && echo ok",
                Nothing,
            ),
            ("main() { tenure acquire x; work; }; main \"$@\"", Work),
            (
                "main() {\n tenure acquire x\n step\n}\nstep() { :; }\nmain",
                Nothing,
            ),
            ("function lock { tenure acquire x; }\nlock\nwork", Work),
            ("lock() { tenure acquire x; }; work", Unseen),
            (
                "lock() { tenure acquire x; }; unlock() { tenure release x; }; \"$@\"",
                Nothing,
            ),
            (
                "case $1 in lock) tenure acquire x;; unlock) tenure release x;; esac",
                Nothing,
            ),
            (
                "if [ $1 = lock ]; then tenure acquire x; else tenure release x; fi",
                Nothing,
            ),
            ("f() { f; tenure acquire x; }; f", Work),
            // Work in the background, and what waits for the end.
            ("tenure acquire x; work & wait", Work),
            ("(tenure acquire x; work; tenure release x) &", Apart),
            ("{ tenure acquire x; work; } & disown", Apart),
            ("(tenure acquire x; work) & wait", Apart),
            ("job() { tenure acquire x; work; }; job &", Apart),
            ("tenure acquire x & wait", Work),
            ("(tenure acquire x) &", Nothing),
            (
                "trap 'tenure release x' EXIT; tenure acquire x; echo ok",
                Work,
            ),
            (
                "done() { rm -f y; tenure release x; }; trap done EXIT; tenure acquire x",
                Work,
            ),
            ("trap 'rm -f y' EXIT; tenure acquire x", Nothing),
            // Texts that shells read in another way than they look.
            ("tenure acquire x\ncat <<EOF\nwork; more\nEOF", Nothing),
            ("cat <<'EOF' >f\ntenure acquire x\nEOF\nwork", Unseen),
            ("tenure acquire x <<<work", Nothing),
            ("tenure acquire x; echo 'work; more' \"; work\"", Nothing),
            ("tenure acquire x; (( a++ )); [[ a == b && c ]]", Nothing),
            ("a=(1 2 3); tenure acquire x; b=(4 5)", Nothing),
            ("tenure \\\n  acquire x; work", Work),
            ("if tenure acquire x\nthen\n  work\nfi", Work),
            ("if tenure acquire x; then :; fi; # work", Nothing),
            ("tenure acquire x; echo $((1 + (2)))", Nothing),
            ("tenure acquire x; echo if then; work", Work),
            ("tenure acquire x; }", Nothing),
            ("tenure acquire x; )", Nothing),
            ("tenure acquire x; fi; work", Work),
        ];
        let read = rows.map(|(text, expected)| (text, expected, after(text, "tenure", "acquire")));
        let misread = read.into_iter().filter(|(_, expected, is)| is != expected);
        assert_eq!(misread.collect::<Vec<_>>(), []);
    }

    #[test]
    fn text_of_a_helper_does_nothing_but_call() {
        for (text, expected) in [
            ("tenure release x", true),
            ("set -e\ncd /\ntenure release \"$1\" || exit 1", true),
            (
                "case $1 in lock) tenure acquire x;; *) tenure release x;; esac",
                true,
            ),
            ("unlock() { tenure release x; }; \"$@\"", true),
            ("work; tenure release x", false),
            ("if work; then tenure release x; fi", false),
            ("tenure acquire x -n && work; tenure release x", false),
            ("tenure release x --why $(work)", false),
            (". ./lib.sh; lock; tenure release x", false),
            ("echo", false),
            ("tenure run x -- work", false),
            ("./job.sh", false),
        ] {
            assert_eq!(
                only_calls(text, "tenure", &["acquire", "release"]),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn no_text_is_too_deep_or_without_end() {
        let opening = [
            "(",
            "$(",
            "`",
            "${",
            "{ ",
            "! ",
            "if ",
            "while ",
            "f() ",
            "case x in (",
            "\"$(",
            "<<",
            "a=(",
        ];
        for part in opening {
            let text = part.repeat(5_000);
            for text in [
                text.clone(),
                format!("tenure acquire x; {text}"),
                format!("{text} tenure acquire x; work"),
            ] {
                let _ = after(&text, "tenure", "acquire");
            }
        }
        let deep = "f() { tenure acquire x; g; g; }; g() { f; f; }; f";
        assert_eq!(after(deep, "tenure", "acquire"), After::Work);
    }
}
