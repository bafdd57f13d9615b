//! The commands of a text that run under a lock, and what the text becomes.
//!
//! **A text is changed only where it is understood whole, and then by insertions alone.** In front of a command word
//! that is a plain word, `tenure run … -- ` leaves its arguments, its variables, its files and its place in a list or
//! at the head of a pipe as they were. Everything else is a doubt: the rule says whether the call goes on then.
//!
//! How a text is read, which programs run a command, and when a command is one of a rule, `tenure_engine::shell` decides.

use std::time::Duration;
use tenure_engine::config::{CommandRule, How, OnError, Words};
use tenure_engine::shell::{Fit, FoundCommand, Line, Simple, Word, each, each_in, fits, written};

/// Words that the shell itself carries out, so no program can be put in front of them.
const BUILTINS: [&str; 44] = [
    ".", ":", "[", "alias", "bg", "bind", "break", "builtin", "cd", "command", "continue",
    "declare", "dirs", "disown", "echo", "eval", "exec", "exit", "export", "false", "fg",
    "getopts", "hash", "jobs", "let", "local", "popd", "printf", "pushd", "pwd", "read",
    "readonly", "return", "set", "shift", "source", "test", "trap", "true", "type", "ulimit",
    "umask", "unset", "wait",
];

/// How many commands of a pipe, before a shell that reads from it, may write its text.
const WRITERS_MAX: usize = 8;

/// A rule that a command meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Met<'a> {
    pub(super) rule: &'a CommandRule,
    pub(super) words: &'a Words,
    /// Whether a fault of tenure's refuses the command: this rule says so, or the rule of another file that fits as well.
    pub(super) closed: bool,
}

/// A command that runs under a lock, where the prefix can stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hit<'a> {
    pub(super) met: Met<'a>,
    /// Where the prefix goes.
    pub(super) at: usize,
}

/// A rule that a text may be about, and why that cannot be told, or why no prefix can stand there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Doubt<'a> {
    pub(super) met: Met<'a>,
    /// The end of a sentence that begins with the command.
    pub(super) why: String,
}

/// What a text is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Found<'a> {
    /// In the order of the text.
    pub(super) hits: Vec<Hit<'a>>,
    pub(super) doubts: Vec<Doubt<'a>>,
    /// The first hit is the first command that the text runs, and only `&&` joins others to it: if the text succeeds,
    /// so has that command.
    pub(super) is_certain: bool,
}

impl<'a> Found<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.hits.is_empty() && self.doubts.is_empty()
    }

    /// Leaves a command to a rule of the person: it gets no prefix.
    pub(super) fn leave(&mut self, at: usize, rule: &str) {
        let left = self.hits.iter().position(|hit| hit.at == at);
        let Some(left) = left.map(|left| self.hits.remove(left)) else {
            return;
        };
        self.is_certain = false;
        let why = format!("may be what {rule} is about, which a prefix would hide");
        self.doubt(left.met, why);
    }

    /// Whether a fault of tenure's refuses one of the commands.
    pub(super) fn has_closed_hit(&self) -> bool {
        self.hits.iter().any(|hit| hit.met.closed)
    }

    /// Whether a doubt ends the call.
    pub(super) fn closed(&self) -> Option<&Doubt<'a>> {
        let mut doubts = self.doubts.iter();
        doubts.find(|doubt| doubt.met.closed)
    }

    /// Whether a rule wants such a command to be refused.
    pub(super) fn is_refused(&self) -> bool {
        self.hits.iter().any(|hit| hit.met.rule.how == How::Refuse)
    }
}

/// Looks for the commands of the rules in a text, which was read as this line. `rules_of` has the rules for the command
/// with a number. Of two rules that fit a command, the one with more words counts, then the first.
pub(super) fn find<'a>(
    text: &str,
    line: &Line,
    rules_of: impl Fn(usize) -> &'a [CommandRule],
) -> Found<'a> {
    let mut found = Found::default();
    match line {
        Line::Plain(commands) => {
            let mut sets_place = false;
            let mut is_first = true;
            for (number, command) in commands.iter().enumerate() {
                if !command.words.is_empty() {
                    let hits = found.hits.len();
                    look_at(commands, number, rules_of(number), &mut found);
                    if found.hits.len() > hits && sets_place {
                        for hit in found.hits.split_off(hits) {
                            let why = "stands behind a command that may change where its lock is";
                            found.doubt(hit.met, why.to_owned());
                        }
                    }
                    is_first &= found.hits.len() > hits;
                    found.is_certain |= is_first && has_to_succeed(text, commands, number);
                    is_first = false;
                }
                // What an earlier command has set counts for tenure as well.
                sets_place |= sets_place_of_lock(command);
            }
        }
        Line::Other(construct) => {
            let rules = rules_of(0);
            if rules.is_empty() {
                return found;
            }
            each_in(text, &mut |seen| {
                if let Some((met, _)) = best(rules, seen) {
                    let why = format!("stands in a text that contains {}", construct.as_str());
                    found.doubt(met, why);
                }
            });
        }
    }
    found
}

fn is_closed(rule: &CommandRule) -> bool {
    rule.on_error == OnError::Closed
}

/// Whether a text only succeeds if the command with this number does: it is the last one, or joined to the next by `&&`
/// alone.
fn has_to_succeed(text: &str, commands: &[Simple], number: usize) -> bool {
    let from_here = commands.get(number..).unwrap_or_default();
    from_here.windows(2).all(|pair| match pair {
        [one, next] => text
            .get(one.to..next.from)
            .is_some_and(|between| between.trim() == "&&"),
        _ => true,
    })
}

fn pairs(rules: &[CommandRule]) -> impl Iterator<Item = (&CommandRule, &Words)> {
    rules
        .iter()
        .flat_map(|rule| rule.matches.iter().map(move |words| (rule, words)))
}

impl<'a> Found<'a> {
    /// Notes a doubt; one for each rule is enough.
    fn doubt(&mut self, met: Met<'a>, why: String) {
        match self
            .doubts
            .iter_mut()
            .find(|doubt| doubt.met.rule == met.rule)
        {
            Some(doubt) => doubt.met.closed |= met.closed,
            None => self.doubts.push(Doubt { met, why }),
        }
    }
}

/// The rule that counts for a command, unless it runs under that rule's lock already.
fn best<'a>(rules: &'a [CommandRule], seen: &FoundCommand<'_>) -> Option<(Met<'a>, Fit)> {
    let met = pairs(rules).filter_map(|(rule, words)| {
        let fit = fits(seen.words, words.words())?;
        Some((rule, words, fit))
    });
    let met: Vec<_> = met.collect();
    let length = |(_, words, _): &(_, &Words, Fit)| words.words().len();
    let longest = met.iter().map(length).max()?;
    let (rule, words, fit) = *met.iter().find(|met| length(met) == longest)?;
    // A clone's file opens nothing that the person's own closes, and the other way round.
    let mut others = met.iter().filter(|(other, ..)| other.file != rule.file);
    let closed = is_closed(rule) || others.any(|(other, ..)| is_closed(other));
    let met = Met {
        rule,
        words,
        closed,
    };
    (!seen.is_under(rule.lock.as_str())).then_some((met, fit))
}

fn look_at<'a>(
    commands: &[Simple],
    number: usize,
    rules: &'a [CommandRule],
    found: &mut Found<'a>,
) {
    let Some((command, first)) = commands
        .get(number)
        .and_then(|command| Some((command, command.words.first()?)))
    else {
        return;
    };
    let words: Vec<&str> = shown(command);
    // A shell reads what the commands before it in its pipe write.
    let fed = || {
        let before = commands.get(..number).unwrap_or_default().iter().rev();
        let mut is_piped = command.is_piped;
        let writers = before.take_while(|before| std::mem::replace(&mut is_piped, before.is_piped));
        let texts = writers
            .take(WRITERS_MAX)
            .flat_map(|command| written(&shown(command)));
        texts.collect()
    };
    let mut hit: Option<Met<'_>> = None;
    each(&words, &fed, &mut |seen| {
        let Some((met, fit)) = best(rules, seen) else {
            return;
        };
        let why = match (seen.by, fit) {
            (Some(by), _) => format!("stands in what {by} runs"),
            (None, Fit::Perhaps) => "may be what an expansion gives".to_owned(),
            (None, Fit::Is) => {
                let length = |met: &Met<'_>| met.words.words().len();
                if hit.as_ref().is_none_or(|hit| length(hit) < length(&met)) {
                    hit = Some(met);
                }
                return;
            }
        };
        found.doubt(met, why);
    });
    let Some(met) = hit else { return };
    match obstacle(command, first) {
        None => found.hits.push(Hit { met, at: first.at }),
        Some(why) => found.doubt(met, why.to_owned()),
    }
}

fn shown(command: &Simple) -> Vec<&str> {
    let words = command.words.iter();
    words.map(|word| word.shown.as_str()).collect()
}

/// Whether a variable of this name changes which lock tenure takes, or which tenure that is.
fn changes_place(name: &str) -> bool {
    ["PATH", "HOME", "IFS", "ENV"].contains(&name)
        || ["TENURE_", "XDG_", "LD_", "DYLD_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

/// Whether a command may set such a variable for the commands behind it.
fn sets_place_of_lock(command: &Simple) -> bool {
    let Some(first) = command.words.first() else {
        return command.assigned.iter().any(|name| changes_place(name));
    };
    match first.text.as_deref() {
        Some("source" | ".") => {
            let file = command.words.get(1).and_then(|word| word.text.as_deref());
            // The usual way into an environment of Python, whose file puts a folder before the others of PATH.
            !file.is_some_and(|file| file == "activate" || file.ends_with("bin/activate"))
        }
        Some("export" | "unset" | "declare" | "typeset" | "readonly") => {
            command.words.iter().skip(1).any(|word| {
                let set = word.text.as_deref();
                let name = set.and_then(|set| set.split(['=', '+']).next());
                name.is_none_or(changes_place)
            })
        }
        _ => false,
    }
}

/// Why no prefix can stand in front of a command.
fn obstacle(command: &Simple, first: &Word) -> Option<&'static str> {
    if first.is_quoted {
        Some("is quoted")
    } else if first
        .text
        .as_deref()
        .is_none_or(|word| BUILTINS.contains(&word))
    {
        Some("is carried out by the shell itself")
    } else if command.is_piped {
        Some("reads from a pipe")
    } else if command.redirects_first {
        Some("stands behind a redirection")
    } else if command.assigned.iter().any(|name| changes_place(name)) {
        Some("stands behind a variable that would change where its lock is")
    } else {
        None
    }
}

/// How long calls may take: what the host allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// A call that says nothing.
    pub(super) usual: Duration,
    /// Any call.
    pub(super) most: Duration,
}

/// How long the commands of a call wait, and the time that the call has then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Times {
    /// For each hit.
    pub(super) waits: Vec<Duration>,
    pub(super) call: Duration,
}

/// Half the call's time is for waiting, unless a rule says otherwise. The call gets that much more, as far as the
/// host allows it, so that the command keeps its own time.
pub(super) fn times(found: &Found<'_>, call: Option<Duration>, limits: Limits) -> Times {
    let call = call.unwrap_or(limits.usual);
    let count = u32::try_from(found.hits.len()).unwrap_or(u32::MAX).max(1);
    let most = limits.most.max(call);
    let share = (call.min(limits.most) / 2 / count).max(Duration::from_secs(1));
    let waits: Vec<Duration> = found
        .hits
        .iter()
        .map(|hit| whole(hit.met.rule.wait.map_or(share, |wait| wait.min(most / 2))))
        .collect();
    let waiting: Duration = waits.iter().sum();
    Times {
        waits,
        call: (call + waiting).min(most),
    }
}

/// Seconds where it has any: a prefix is read by people, too.
fn whole(wait: Duration) -> Duration {
    if wait.as_secs() > 0 {
        Duration::from_secs(wait.as_secs())
    } else {
        wait
    }
}

/// How a prefix writes how long its run waits.
pub(super) fn wait(wait: Duration) -> String {
    match wait.subsec_millis() {
        0 => format!("{}s", wait.as_secs()),
        _ => format!("{}ms", wait.as_millis()),
    }
}

/// The text with a prefix in front of each hit.
pub(super) fn rewritten(text: &str, found: &Found<'_>, prefixes: &[String]) -> Option<String> {
    let mut new =
        String::with_capacity(text.len() + prefixes.iter().map(String::len).sum::<usize>());
    let mut from = 0;
    for (hit, prefix) in found.hits.iter().zip(prefixes) {
        new.push_str(text.get(from..hit.at)?);
        new.push_str(prefix);
        from = hit.at;
    }
    new.push_str(text.get(from..)?);
    Some(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use tenure_engine::config::Config;
    use tenure_engine::shell;

    fn rules(text: &str) -> Vec<CommandRule> {
        let config = Config::parse(text, Path::new("/w/tenure.toml")).expect("a configuration");
        config.agent.commands
    }

    fn find<'a>(text: &str, rules: &'a [CommandRule]) -> Found<'a> {
        super::find(text, &shell::read(text), |_| rules)
    }

    fn cargo() -> Vec<CommandRule> {
        rules("[[agent.command]]\nmatch = [\"cargo test\", \"make\"]\nlock = \"b\"\n")
    }

    /// The text with `@` where a prefix would stand.
    fn marked(text: &str, rules: &[CommandRule]) -> String {
        let found = find(text, rules);
        assert_eq!(found.doubts, [], "{text}");
        rewritten(text, &found, &vec!["@".to_owned(); found.hits.len()]).expect("offsets")
    }

    #[test]
    fn a_prefix_stands_in_front_of_the_command_word_and_nowhere_else() {
        for (text, expected) in [
            ("cargo test", "@cargo test"),
            (
                "cargo test --all 'x y' $z *.rs",
                "@cargo test --all 'x y' $z *.rs",
            ),
            (
                "cd a && cargo test;make || make x",
                "cd a && @cargo test;@make || @make x",
            ),
            ("A=1 B='c d' cargo test", "A=1 B='c d' @cargo test"),
            ("cargo test 2>&1 | tail -5", "@cargo test 2>&1 | tail -5"),
            ("timeout 60 cargo test", "@timeout 60 cargo test"),
            ("env -u A nice -n5 make all", "@env -u A nice -n5 make all"),
            ("/usr/bin/make", "@/usr/bin/make"),
            ("~/.cargo/bin/cargo test", "@~/.cargo/bin/cargo test"),
            ("cargo 'test'", "@cargo 'test'"),
            (
                "# cargo test\ncargo test # make",
                "# cargo test\n@cargo test # make",
            ),
            ("cargo \\\n  test", "@cargo \\\n  test"),
            ("cargo +nightly -q test", "@cargo +nightly -q test"),
            ("cargo --config a=b test", "@cargo --config a=b test"),
            (
                "/usr/bin/time -v cargo test",
                "@/usr/bin/time -v cargo test",
            ),
            ("flock l cargo test", "@flock l cargo test"),
            (
                "tenure run other -- cargo test",
                "@tenure run other -- cargo test",
            ),
            ("$EDITOR f; $x", "$EDITOR f; $x"),
            ("é && make", "é && @make"),
            (
                "cargo build; echo cargo test; git commit -m 'make'",
                "cargo build; echo cargo test; git commit -m 'make'",
            ),
            ("tenure run b -- cargo test", "tenure run b -- cargo test"),
            (
                "/opt/tenure run b -- sh -c 'make && make'",
                "/opt/tenure run b -- sh -c 'make && make'",
            ),
            ("makes; cargo tests; cargo", "makes; cargo tests; cargo"),
            ("export A=1; make", "export A=1; @make"),
            (
                "source .venv/bin/activate && make",
                "source .venv/bin/activate && @make",
            ),
            ("ls $x", "ls $x"),
            ("[ -f Makefile ] && make", "[ -f Makefile ] && @make"),
            ("", ""),
        ] {
            assert_eq!(marked(text, &cargo()), expected);
        }
    }

    #[test]
    fn where_no_prefix_can_stand_the_rule_is_in_doubt() {
        for (text, word) in [
            ("cat x | cargo test", "pipe"),
            (">out cargo test", "redirection"),
            ("PATH=/x cargo test", "variable"),
            ("TENURE_DIR=/x make", "variable"),
            ("export TENURE_DIR=/x; make", "behind a command"),
            ("HOME=/x; make", "behind a command"),
            ("export PATH=$PWD:$PATH && make", "behind a command"),
            ("unset TENURE_DIR; make", "behind a command"),
            (". ./env; make", "behind a command"),
            ("\"cargo\" test", "quoted"),
            ("c=cargo; $c test", "expansion"),
            ("t=test; cargo $t", "expansion"),
            ("$CARGO test", "expansion"),
            ("${CARGO:-cargo} test", "an expansion"),
            ("cargo $'test'", "an expansion"),
            ("echo \"cargo test\" | sh", "sh runs"),
            ("flock l -c 'cargo test'", "flock runs"),
            ("tenure run other -- sh -c 'make'", "sh runs"),
            ("bash -c 'cargo test'", "bash runs"),
            ("eval cargo test", "eval runs"),
            ("xargs cargo test < f", "xargs runs"),
            ("exec cargo test", "exec runs"),
            ("for i in 1; do cargo test; done", "a loop"),
            ("(make)", "a loop"),
            ("x=$(make)", "a command substitution"),
            ("make &", "background"),
            ("time make", "time"),
            ("! make", "!"),
            ("sh <<E\nmake\nE", "here-document"),
            ("make <&-", "closes"),
            ("alias make=x; make", "an alias"),
            ("f() { make; }; f", "a loop"),
        ] {
            let rules = cargo();
            let found = find(text, &rules);
            assert_eq!(found.hits, [], "{text}");
            let why: Vec<&str> = found
                .doubts
                .iter()
                .map(|doubt| doubt.why.as_str())
                .collect();
            assert!(why.iter().any(|why| why.contains(word)), "{text}: {why:?}");
        }
        for text in [
            "for i in 1; do ls; done",
            "x=$(date)",
            "bash -c ls",
            "cat <<E\nmake\nE",
            "git commit -m \"$(cat <<'E'\nmake\nE\n)\"",
            "$EDITOR f",
            "$MAKE all",
            "for i in 1; do tenure run b -- cargo test; done",
            "ls &",
        ] {
            assert!(find(text, &cargo()).is_empty(), "{text}");
        }
        let own = rules("[[agent.command]]\nmatch = [\"test\"]\nlock = \"b\"\n");
        let found = find("test -f x", &own);
        assert!(
            found.hits.is_empty() && found.doubts.len() == 1,
            "{found:?}"
        );
    }

    #[test]
    fn a_line_of_very_many_commands_is_looked_at_as_a_whole_and_told_truly() {
        let rules = cargo();
        for (part, word) in [
            ("make;", "more than 1000 commands"),
            ("cd x;", ""),
            ("x=1;", ""),
            ("cargo $x\n", "more than 1000 commands"),
        ] {
            let found = find(&part.repeat(1_001), &rules);
            assert_eq!(found.hits, []);
            let why = found.doubts.first().map(|doubt| doubt.why.as_str());
            assert!(why.unwrap_or_default().contains(word), "{part}: {why:?}");
            assert_eq!(why.is_some(), !word.is_empty(), "{part}");
        }
        assert_eq!(find(&"make;".repeat(1_000), &rules).hits.len(), 1_000);
    }

    #[test]
    fn the_longer_rule_counts_then_the_first() {
        let rules = rules(
            "[[agent.command]]\nmatch = [\"cargo\"]\nlock = \"all\"\n\
             [[agent.command]]\nmatch = [\"cargo test\"]\nlock = \"tests\"\n\
             [[agent.command]]\nmatch = [\"cargo\"]\nlock = \"last\"\n",
        );
        let found = find("cargo test; cargo build", &rules);
        let locks: Vec<&str> = found
            .hits
            .iter()
            .map(|hit| hit.met.rule.lock.as_str())
            .collect();
        assert_eq!(locks, ["tests", "all"]);
        // The form that passes does so for both rules.
        assert!(find("tenure run tests -- cargo test", &rules).is_empty());
    }

    #[test]
    fn only_the_first_command_of_a_text_that_succeeds_is_certain_to_have_run() {
        for (text, expected) in [
            ("cargo test", true),
            ("# x\nA=1; cargo test && make", true),
            ("cd x && cargo test", false),
            ("ls; make", false),
            ("cargo test &&\n make > out && ls", true),
            // Another command says how the text ends.
            ("cargo test | tail", false),
            ("cargo test; true", false),
            ("cargo test || true", false),
            ("cargo test && make; ls", false),
            ("cargo test\nls", false),
        ] {
            assert_eq!(find(text, &cargo()).is_certain, expected, "{text}");
        }
    }

    #[test]
    fn the_command_keeps_its_time_beside_the_wait() {
        let seconds = Duration::from_secs;
        let limits = Limits {
            usual: seconds(120),
            most: seconds(600),
        };
        let one = cargo();
        let found = find("make", &one);
        for (call, wait, expected) in [
            (None, 60, 180),
            (Some(seconds(10)), 5, 15),
            (Some(seconds(500)), 250, 600),
            (Some(seconds(600)), 300, 600),
            (Some(seconds(900)), 300, 900),
        ] {
            let times = times(&found, call, limits);
            assert_eq!(
                (times.waits, times.call),
                (vec![seconds(wait)], seconds(expected))
            );
        }
        let two = find("make; make", &one);
        let shared = times(&two, None, limits);
        assert_eq!(
            (shared.waits, shared.call),
            (vec![seconds(30); 2], seconds(180))
        );
        let own = rules("[[agent.command]]\nmatch = [\"make\"]\nlock = \"b\"\nwait = \"20m\"\n");
        let found = find("make", &own);
        assert_eq!(times(&found, None, limits).waits, [seconds(300)]);
    }

    #[test]
    fn a_wait_is_written_in_seconds_where_it_has_any() {
        assert_eq!(wait(Duration::from_secs(60)), "60s");
        assert_eq!(wait(Duration::from_millis(1_500)), "1500ms");
    }
}
