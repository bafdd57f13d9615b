//! The answer to words that make no call: one sentence, with what was probably meant.
//!
//! The parser says what is wrong in its own terms. Here that becomes a sentence for the caller. The
//! caller may come from flock(1), timeout(1), git, consul or etcdctl; their words for the same things
//! are known here.

use super::{Tree, output_of, verb_index};
use crate::args::Common;
use crate::failure::Failure;
use crate::spelling;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Args as _, Command, CommandFactory as _};
use std::ffi::{OsStr, OsString};

/// Words of other tools for a verb of ours, and what to type here for it.
const VERBS: [(&[&str], &str); 16] = [
    (
        &[
            "status", "stat", "show", "info", "get", "who", "holder", "inspect", "state", "query",
        ],
        "`tenure check NAME` for one lock, or `tenure list` for all",
    ),
    (&["ls", "ps", "locks", "all"], "`tenure list`"),
    (
        &[
            "unlock", "free", "drop", "yield", "give", "put", "leave", "unhold", "return",
        ],
        "`tenure release NAME`",
    ),
    (
        &[
            "lock", "take", "hold", "claim", "grab", "obtain", "get-lock", "trylock", "elect",
            "lease",
        ],
        "`tenure acquire NAME`, or `tenure run NAME -- CMD` to hold it while a command runs",
    ),
    (
        &[
            "exec", "start", "execute", "do", "with", "wrap", "sh", "command", "timeout",
        ],
        "`tenure run NAME -- CMD`",
    ),
    (
        &[
            "rm",
            "remove",
            "delete",
            "del",
            "steal",
            "break",
            "force-unlock",
            "takeover",
            "destroy",
        ],
        "`tenure force-release NAME`",
    ),
    (
        &[
            "kill",
            "stop",
            "abort",
            "interrupt",
            "terminate",
            "end",
            "supersede",
        ],
        "`tenure cancel NAME`",
    ),
    (
        &[
            "renew",
            "refresh",
            "keep-alive",
            "keepalive",
            "touch",
            "ping",
            "extend",
        ],
        "`tenure heartbeat NAME`",
    ),
    (&["await", "watch", "sleep", "block"], "`tenure wait NAME`"),
    (
        &["gc", "prune", "cleanup", "purge", "sweep", "vacuum"],
        "`tenure clean`",
    ),
    (
        &["log", "logs", "history", "events", "journal", "reflog"],
        "`tenure audit`",
    ),
    (&["token", "verify", "validate"], "`tenure fence check`"),
    (
        &["env", "where", "whereami", "diagnose", "debug", "fsck"],
        "`tenure doctor`",
    ),
    (
        &["config", "rules", "policy", "policies"],
        "`tenure profiles`",
    ),
    (
        &["group", "concurrency"],
        "`tenure group-name`, or `tenure run --group NAME -- CMD`",
    ),
    (&["version"], "`tenure --version`"),
];

/// Flags of other tools for flags of ours. The first of ours that the verb has is named.
const FLAGS: [(&[&str], &[&str]); 12] = [
    (
        &["--timeout", "--lock-timeout", "--max-wait", "--patience"],
        &["--wait"],
    ),
    (
        &["--nb", "--nonblocking", "--no-wait", "--try"],
        &["--nonblock"],
    ),
    (&["--no-fork", "-F"], &["--exec"]),
    (&["--command", "-c"], &["--shell"]),
    (&["--kill-after", "-k"], &["--grace"]),
    (&["-o"], &["--close", "--output"]),
    (&["--json", "--yaml", "--format"], &["--output"]),
    (
        &["--lease", "--lease-ttl", "--session-ttl", "--expiry"],
        &["--ttl"],
    ),
    (&["--reason", "--message", "-m", "--comment"], &["--why"]),
    (
        &["--concurrency", "--jobs", "--limit", "--max"],
        &["--slots"],
    ),
    (&["--id", "--owner-id"], &["--request-id"]),
    (&["--endpoints", "--url"], &["--store"]),
];

/// How a command is written.
const COMMAND: &str = "the command stands after `--`: tenure run NAME -- CMD [ARG]...";

/// What to do in place of a flag that `doctor` has had.
const DOCTOR_FIX: &str = "`doctor` changes nothing: `tenure clean` removes what dead holders left, and each other \
                          finding has a line that mends it";

/// The answer to a word that stands where a verb should.
pub(super) fn no_verb(word: &str) -> Failure {
    let known = |word| VERBS.iter().find(|(words, _)| words.contains(&word));
    let others: Vec<_> = VERBS
        .iter()
        .flat_map(|(words, _)| *words)
        .copied()
        .collect();
    let tree = Tree::command();
    let own: Vec<_> = tree.get_subcommands().map(Command::get_name).collect();
    let own = spelling::nearest(word, &own);
    // A word of another tool is a word of its own, whatever it is close to.
    let meant = match (known(word), own) {
        (Some((_, ours)), _) => Some((*ours).to_owned()),
        (None, Some(own)) => Some(format!("`tenure {own}`")),
        (None, None) => spelling::nearest(word, &others)
            .and_then(known)
            .map(|(_, ours)| (*ours).to_owned()),
    };
    Failure::bad_arguments(match meant {
        Some(meant) => format!("there is no verb {word:?}; did you mean {meant}?"),
        None => format!("there is no verb {word:?}; `tenure -h` shows them all"),
    })
}

/// Turns what the parser has to say into a sentence of ours.
#[cold]
#[inline(never)]
pub(super) fn of(error: &clap::Error, words: &[OsString]) -> Failure {
    let verb = verb_index(words)
        .and_then(|index| words.get(index))
        .and_then(|word| OsStr::to_str(word))
        .filter(|word| !word.starts_with('-') && *word != "help")
        .unwrap_or_default();
    let tree = Tree::command();
    let known = tree.find_subcommand(verb);
    let global = Common::augment_args(Command::new("tenure"));
    let flags = known.unwrap_or(&global);
    let message = match error.kind() {
        ErrorKind::UnknownArgument => unknown(error, words, verb, flags),
        ErrorKind::InvalidValue => no_value(error, words, flags),
        ErrorKind::MissingRequiredArgument => missing(error, verb),
        _ => None,
    };
    Failure::bad_arguments(message.unwrap_or_else(|| plainly(error)))
        .for_command(known.map_or("", |_| verb))
        .with_output(output_of(words))
}

/// A flag that the verb does not have, or a word too many.
fn unknown(error: &clap::Error, words: &[OsString], verb: &str, flags: &Command) -> Option<String> {
    let typed = context(error, ContextKind::InvalidArg)?;
    let message = format!("unexpected argument {typed:?}");
    let has_command = words.iter().any(|word| word == "--");
    let hint = if typed.starts_with('-') {
        meant(typed, verb, flags)
    } else {
        None
    };
    // A single letter may be the command's own.
    let may_be_commands = verb == "run" && !has_command && !typed.starts_with("--");
    Some(match hint {
        Some(hint) if may_be_commands => format!("{message}; {hint} Otherwise {COMMAND}"),
        Some(hint) => format!("{message}; {hint}"),
        None if verb == "run" && !(has_command && typed.starts_with('-')) => {
            format!("{message}; {COMMAND}")
        }
        None if verb.is_empty() => format!("{message}; `tenure -h` shows what there is"),
        None => format!("{message}; `tenure {verb} --help` shows what there is"),
    })
}

/// What a caller probably means by a flag that is not there.
fn meant(typed: &str, verb: &str, flags: &Command) -> Option<String> {
    let has = |flag: &str| flags.get_arguments().any(|arg| is_called(arg, flag));
    let called = FLAGS.iter().filter(|(words, _)| words.contains(&typed));
    let ours = called.flat_map(|(_, ours)| *ours).find(|flag| has(flag));
    if let Some(ours) = ours {
        return Some(format!("did you mean `{}`?", spelt(ours, typed)));
    }
    if (verb, typed) == ("doctor", "--fix") {
        return Some(DOCTOR_FIX.to_owned());
    }
    let name = typed.strip_prefix("--")?;
    let own: Vec<_> = flags.get_arguments().flat_map(names).collect();
    if let Some(own) = spelling::nearest(name, &own) {
        return Some(format!("did you mean `--{own}`?"));
    }
    let tree = Tree::command();
    let mut elsewhere = tree
        .get_subcommands()
        .filter(|other| other.get_arguments().any(|arg| is_called(arg, typed)))
        .map(Command::get_name);
    let first = elsewhere.next()?;
    Some(if verb.is_empty() {
        format!("it stands behind the verb: tenure {first} {typed}")
    } else {
        format!("`tenure {first}` has that flag, `tenure {verb}` has not")
    })
}

/// What to type for a flag of another tool that says a format by its name.
fn spelt(ours: &str, typed: &str) -> String {
    match typed {
        "--json" | "--yaml" => format!("{ours} {}", typed.trim_start_matches('-')),
        _ => ours.to_owned(),
    }
}

/// The long names of a flag.
fn names(arg: &Arg) -> Vec<&str> {
    let aliases = arg.get_all_aliases().unwrap_or_default();
    arg.get_long().into_iter().chain(aliases).collect()
}

fn is_called(arg: &Arg, flag: &str) -> bool {
    if let Some(name) = flag.strip_prefix("--") {
        return names(arg).contains(&name);
    }
    let letter = flag.strip_prefix('-').and_then(|rest| rest.chars().next());
    letter.is_some() && arg.get_short() == letter
}

/// A flag whose value is missing or empty.
fn no_value(error: &clap::Error, words: &[OsString], flags: &Command) -> Option<String> {
    if !context(error, ContextKind::InvalidValue)?.is_empty() {
        return None;
    }
    let (arg, flag, value) = unanswered(error, words, flags)?;
    let wanted = arg.get_value_names().and_then(<[_]>::first);
    let wanted = wanted.map_or("VALUE", |name| name.as_str());
    Some(match value.as_deref() {
        Some("") => match wanted {
            "DIR" => {
                format!("{flag}: the folder's name is empty; write a folder, or leave the flag out")
            }
            "FILE" => {
                format!("{flag}: the file's name is empty; write a file, or leave the flag out")
            }
            _ => {
                format!("{flag}: the value is empty; write {flag} {wanted}, or leave the flag out")
            }
        },
        Some(next) if next.starts_with('-') && next != "--" => format!(
            "{flag} needs a value, and {next:?} is a flag; write {flag}={next} if it is the value"
        ),
        _ => format!("{flag} needs a value: {flag} {wanted}"),
    })
}

/// The flag that lacks a value, as it was typed, and what stands in the place of the value.
fn unanswered<'a>(
    error: &clap::Error,
    words: &[OsString],
    flags: &'a Command,
) -> Option<(&'a Arg, String, Option<String>)> {
    let named = context(error, ContextKind::InvalidArg)?;
    let named = named.split([' ', '=']).next()?.trim_end_matches(',');
    let arg = flags.get_arguments().find(|arg| is_called(arg, named))?;
    let mut words = words.iter().take_while(|word| *word != "--").peekable();
    let mut found = None;
    while let Some(word) = words.next() {
        let Some(word) = word.to_str() else { continue };
        let (flag, value) = match word.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_owned())),
            None => (word, None),
        };
        if !flag.starts_with('-') || !is_called(arg, flag) {
            continue;
        }
        let next = || {
            words
                .peek()
                .and_then(|word| word.to_str())
                .map(str::to_owned)
        };
        let value = value.or_else(next);
        // The one that has a value is not the one that lacks it.
        let is_good = value
            .as_deref()
            .is_some_and(|value| !value.is_empty() && !value.starts_with('-'));
        if !is_good {
            found = Some((arg, flag.to_owned(), value));
            break;
        }
    }
    found
}

/// The words with a value that begins with a dash and a digit joined to its flag. No flag of ours looks
/// like that, and the answer to `--wait -5s` should be about the duration.
pub(super) fn with_number_joined(
    error: &clap::Error,
    words: &[OsString],
    verb: &str,
) -> Option<Vec<OsString>> {
    let tree = Tree::command();
    let flags = tree.find_subcommand(verb)?;
    let is_number = |word: &OsStr| {
        let word = word.as_encoded_bytes();
        word.first() == Some(&b'-') && word.get(1).is_some_and(u8::is_ascii_digit)
    };
    if !matches!(
        error.kind(),
        ErrorKind::InvalidValue | ErrorKind::UnknownArgument
    ) {
        return None;
    }
    let takes_value = |word: &OsStr| {
        let word = word.to_str()?;
        let mut flags = flags.get_arguments();
        let arg = flags.find(|arg| word.starts_with('-') && is_called(arg, word))?;
        arg.get_action()
            .takes_values()
            .then(|| format!("--{}=", arg.get_long().unwrap_or_default()))
    };
    let end = words
        .iter()
        .position(|word| word == "--")
        .unwrap_or(words.len());
    let at = (1..end).find(|at| {
        words.get(*at).is_some_and(|word| is_number(word))
            && words
                .get(at - 1)
                .is_some_and(|flag| takes_value(flag).is_some())
    })?;
    let mut joined = OsString::from(takes_value(words.get(at - 1)?)?);
    joined.push(words.get(at)?);
    let mut words = words.to_vec();
    words.splice(at - 1..=at, [joined]);
    Some(words)
}

/// What is required and was not given.
fn missing(error: &clap::Error, verb: &str) -> Option<String> {
    let Some(ContextValue::Strings(names)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let mut message = format!(
        "the following required arguments were not provided: {}",
        names.join(", ")
    );
    if verb == "run" && names.iter().any(|name| name.contains("<CMD>")) {
        message.push_str("; ");
        message.push_str(COMMAND);
    }
    Some(message)
}

fn context(error: &clap::Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None,
    }
}

/// The parser's own sentence, without what surrounds it.
fn plainly(error: &clap::Error) -> String {
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let mut message = first.strip_prefix("error: ").unwrap_or(first).to_owned();
    // What it is about may stand on lines of its own.
    if message.ends_with(':') {
        let rest: Vec<_> = lines
            .by_ref()
            .take_while(|line| !line.starts_with("Usage"))
            .collect();
        message = format!("{message} {}", rest.join(", "));
    }
    if let Some(values) = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("[possible values: "))
    {
        message.push_str("; it is one of ");
        message.push_str(values.trim_end_matches(']'));
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_suggested_exists() {
        let tree = Tree::command();
        for (_, ours) in VERBS {
            let suggested = ours.split("tenure ").skip(1);
            for word in suggested.filter_map(|rest| rest.split([' ', '`']).next()) {
                let is_there = word.starts_with('-') || tree.find_subcommand(word).is_some();
                assert!(is_there, "{word} is a verb");
            }
        }
        for ours in FLAGS.iter().flat_map(|(_, ours)| *ours) {
            let has = |verb: &Command| verb.get_arguments().any(|arg| is_called(arg, ours));
            assert!(tree.get_subcommands().any(has), "{ours} is a flag");
        }
    }

    #[test]
    fn a_negative_number_belongs_to_the_flag_before_it() {
        for (line, expected) in [
            (
                "tenure run x --wait -5s -- true",
                Some("tenure run x --wait=-5s -- true"),
            ),
            (
                "tenure run -w -5 x -- a -w -1",
                Some("tenure run --wait=-5 x -- a -w -1"),
            ),
            ("tenure run x -- a -w -1", None),
            ("tenure run x -n -5 -- a", None),
            ("tenure run x --wiat -5 -- a", None),
        ] {
            let words: Vec<_> = line.split(' ').map(OsString::from).collect();
            let error = clap::Error::new(ErrorKind::UnknownArgument);
            let joined = with_number_joined(&error, &words, "run");
            let expected = expected.map(|line| line.split(' ').map(OsString::from).collect());
            assert_eq!(joined, expected, "{line}");
        }
    }
}
