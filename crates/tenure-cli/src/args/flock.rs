//! Reads the words of `flock` as flock(1) reads them. Option parsing stops at the first word that is
//! not an option. Short options may stand together; long ones may be cut short as long as they are not
//! ambiguous.
//!
//! The parser of the other verbs has rules of its own for all of that, and other exit codes. This
//! one is pure, so tables of words prove it. One thing is judged earlier than flock(1) does: a
//! time-out for which there can be no timer is refused before a file is made.
//!
//! `command/flock` finds out which descriptors, files and commands there are.

use crate::exit::SysExit;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

/// What is asked of `flock`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FlockRequest {
    Help,
    Version,
    Lock(Call),
}

/// A lock to take or to release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    /// The lock is one of fcntl(2), on the open file, in place of one of flock(2).
    pub(crate) by_fcntl: bool,
    pub(crate) wait: FlockWait,
    /// The answer when the lock could not be had in time.
    pub(crate) conflict_exit_code: u8,
    pub(crate) verbose: bool,
    pub(crate) target: FlockTarget,
}

/// What becomes of the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Shared,
    Exclusive,
    Unlock,
}

/// How long to wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlockWait {
    Forever,
    Never,
    AtMost(Duration),
}

/// What is locked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FlockTarget {
    /// A file that the caller has opened.
    Descriptor(i32),
    /// A file or directory, while a command runs.
    File {
        path: OsString,
        command: Command,
        start: Start,
    },
}

/// What runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// A program and its arguments; there is at least the program.
    Words(Vec<OsString>),
    /// A line for the caller's shell.
    Shell(OsString),
}

/// How the command is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// As a child that inherits the lock.
    Child,
    /// As a child that does not.
    ChildWithoutLock,
    /// In our place.
    InPlace,
}

/// Why the words make no valid call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Misuse {
    pub(crate) code: SysExit,
    /// What is wrong; empty where flock(1) only points to its help.
    pub(crate) message: String,
    /// Whether the help would say more.
    pub(crate) points_to_help: bool,
}

impl Misuse {
    fn of_value(message: String) -> Self {
        Self {
            code: SysExit::Usage,
            message,
            points_to_help: false,
        }
    }

    fn of_option(message: String) -> Self {
        Self {
            points_to_help: true,
            ..Self::of_value(message)
        }
    }
}

/// The options, whichever way they were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flag {
    Shared,
    Exclusive,
    Unlock,
    Nonblock,
    Wait,
    ConflictExitCode,
    Close,
    NoFork,
    Fcntl,
    Verbose,
    Help,
    Version,
}

/// The long names. `--nonblock`, as flock(1)'s help has it, is one of these cut short.
const LONG: [(&str, Flag); 14] = [
    ("shared", Flag::Shared),
    ("exclusive", Flag::Exclusive),
    ("unlock", Flag::Unlock),
    ("nonblocking", Flag::Nonblock),
    ("nb", Flag::Nonblock),
    ("timeout", Flag::Wait),
    ("wait", Flag::Wait),
    ("conflict-exit-code", Flag::ConflictExitCode),
    ("close", Flag::Close),
    ("no-fork", Flag::NoFork),
    ("fcntl", Flag::Fcntl),
    ("verbose", Flag::Verbose),
    ("help", Flag::Help),
    ("version", Flag::Version),
];

impl Flag {
    fn of_letter(letter: u8) -> Option<Self> {
        Some(match letter {
            b's' => Self::Shared,
            b'e' | b'x' => Self::Exclusive,
            b'u' => Self::Unlock,
            b'n' => Self::Nonblock,
            b'w' => Self::Wait,
            b'E' => Self::ConflictExitCode,
            b'o' => Self::Close,
            b'F' => Self::NoFork,
            b'h' => Self::Help,
            b'V' => Self::Version,
            _ => return None,
        })
    }

    /// The option of a long name, or of the beginning of one.
    fn of_name(name: &OsStr) -> Result<(&'static str, Self), Misuse> {
        let shown = name.to_string_lossy();
        if let Some(exact) = LONG.iter().find(|(long, _)| name == *long) {
            return Ok(*exact);
        }
        let begins = |(long, _): &&(&str, Self)| long.as_bytes().starts_with(name.as_bytes());
        let candidates: Vec<_> = LONG.iter().filter(begins).collect();
        let Some((first, rest)) = candidates.split_first() else {
            return Err(Misuse::of_option(format!(
                "unrecognized option '--{shown}'"
            )));
        };
        if rest.iter().all(|(_, flag)| *flag == first.1) {
            return Ok(**first);
        }
        let possibilities: Vec<_> = candidates
            .iter()
            .map(|(long, _)| format!("'--{long}'"))
            .collect();
        Err(Misuse::of_option(format!(
            "option '--{shown}' is ambiguous; possibilities: {}",
            possibilities.join(" ")
        )))
    }

    fn takes_value(self) -> bool {
        match self {
            Self::Wait | Self::ConflictExitCode => true,
            Self::Shared
            | Self::Exclusive
            | Self::Unlock
            | Self::Nonblock
            | Self::Close
            | Self::NoFork
            | Self::Fcntl
            | Self::Verbose
            | Self::Help
            | Self::Version => false,
        }
    }
}

/// What the options have said so far.
#[derive(Debug)]
struct Options {
    kind: Kind,
    by_fcntl: bool,
    nonblock: bool,
    seconds: Option<(OsString, f64)>,
    conflict_exit_code: u8,
    close: bool,
    no_fork: bool,
    verbose: bool,
}

impl Options {
    /// Takes an option in. Some answer at once, whatever else follows.
    fn take(&mut self, flag: Flag, value: &OsStr) -> Result<Option<FlockRequest>, Misuse> {
        match flag {
            Flag::Shared => self.kind = Kind::Shared,
            Flag::Exclusive => self.kind = Kind::Exclusive,
            Flag::Unlock => self.kind = Kind::Unlock,
            Flag::Nonblock => self.nonblock = true,
            Flag::Wait => self.seconds = Some((value.to_owned(), seconds(value)?)),
            Flag::ConflictExitCode => {
                let code = number(value, "invalid exit code")?;
                self.conflict_exit_code = u8::try_from(code).map_err(|_| {
                    Misuse::of_value("exit code out of range (expected 0 to 255)".to_owned())
                })?;
            }
            Flag::Close => self.close = true,
            Flag::NoFork => self.no_fork = true,
            Flag::Fcntl => self.by_fcntl = true,
            Flag::Verbose => self.verbose = true,
            Flag::Help => return Ok(Some(FlockRequest::Help)),
            Flag::Version => return Ok(Some(FlockRequest::Version)),
        }
        Ok(None)
    }

    fn start(&self) -> Result<Start, Misuse> {
        match (self.no_fork, self.close) {
            (false, false) => Ok(Start::Child),
            (false, true) => Ok(Start::ChildWithoutLock),
            (true, false) => Ok(Start::InPlace),
            (true, true) => Err(Misuse::of_value(
                "the --no-fork and --close options are incompatible".to_owned(),
            )),
        }
    }

    fn wait(&self) -> Result<FlockWait, Misuse> {
        let wait = match &self.seconds {
            None => FlockWait::Forever,
            Some((typed, seconds)) => at_most(*seconds).ok_or_else(|| Misuse {
                code: SysExit::System,
                message: format!(
                    "cannot set up timer: no timer lasts {} seconds",
                    typed.to_string_lossy()
                ),
                points_to_help: false,
            })?,
        };
        Ok(if self.nonblock {
            FlockWait::Never
        } else {
            wait
        })
    }
}

/// An option as the help describes it.
pub(crate) struct OptionHelp {
    /// The ways to write it, in the order in which they are shown.
    pub(crate) words: &'static [&'static str],
    /// What its value is called; empty if it takes none.
    pub(crate) value: &'static str,
    pub(crate) about: &'static str,
    /// Whether the option stands behind the file, and not among the others.
    pub(crate) behind_file: bool,
}

const fn option(
    words: &'static [&'static str],
    value: &'static str,
    about: &'static str,
) -> OptionHelp {
    OptionHelp {
        words,
        value,
        about,
        behind_file: false,
    }
}

/// The options, for the help, the manual and the shells' completions.
pub(crate) const OPTIONS: [OptionHelp; 13] = [
    option(
        &["-x", "-e", "--exclusive"],
        "",
        "One holder at a time; this is the default",
    ),
    option(
        &["-s", "--shared"],
        "",
        "Share the lock with other shared holders",
    ),
    option(&["-u", "--unlock"], "", "Release the lock"),
    option(&["-n", "--nb", "--nonblock"], "", "Do not wait"),
    option(
        &["-w", "--wait", "--timeout"],
        "SECONDS",
        "Wait so long at most, fractions too; 0 is -n",
    ),
    option(
        &["-E", "--conflict-exit-code"],
        "N",
        "The exit code if the wait times out [default: 1]",
    ),
    option(
        &["-o", "--close"],
        "",
        "The command does not inherit the lock",
    ),
    option(
        &["-F", "--no-fork"],
        "",
        "Become the command, which then holds the lock itself",
    ),
    OptionHelp {
        words: &["-c", "--command"],
        value: "LINE",
        about: "Have $SHELL run a line; stands behind the file",
        behind_file: true,
    },
    option(
        &["--fcntl"],
        "",
        "A lock of fcntl(2) on the open file, not of flock(2)",
    ),
    option(
        &["--verbose"],
        "",
        "Say how long the lock took, or why it was refused",
    ),
    option(&["-h", "--help"], "", "Print help"),
    option(&["-V", "--version"], "", "Print version"),
];

/// How many of them, at the end, are questions about the program itself.
const QUESTIONS: usize = 2;

/// What it does, in one line.
pub(crate) const ABOUT: &str = "Lock a file, directory or open descriptor, as flock(1) does";

/// The ways to call it, behind its name.
pub(crate) const USAGES: [&str; 3] = [
    "[OPTIONS] FILE|DIRECTORY COMMAND [ARGUMENT]...",
    "[OPTIONS] FILE|DIRECTORY -c LINE",
    "[OPTIONS] DESCRIPTOR",
];

/// What else there is to know, a paragraph a line.
pub(crate) const NOTES: [&str; 3] = [
    "Option parsing stops at the first word that is not an option. The file is created if it is not there, and stays.",
    "Exit codes: the command's own, 128+N if signal N ended it; 1 (or -E) wait timed out, 64 wrong \
     call, 65 cannot be locked, 66 cannot be opened, 69 command not runnable, 71 system error, \
     73 cannot be created.",
    "It excludes flock(1) and is excluded by it. Nothing is recorded: `tenure run NAME -- CMD` also \
     says who holds a lock, keeps its queue in order and passes signals on to the command.",
];

/// Where the descriptions of the options begin.
const ABOUT_COLUMN: usize = 28;

/// How wide a line of prose is.
const PROSE_COLUMNS: usize = 80;

/// The text of `--help`, for the program under this name.
pub(crate) fn help(name: &str) -> String {
    let mut text = described(name, &OPTIONS);
    for note in NOTES {
        text.push('\n');
        let mut columns = 0;
        for word in note.split(' ') {
            if columns + word.len() > PROSE_COLUMNS {
                text.push('\n');
                columns = 0;
            } else if columns > 0 {
                text.push(' ');
            }
            text.push_str(word);
            columns += word.len() + 1;
        }
        text.push('\n');
    }
    text
}

/// The text of `-h`: what is done with a lock, without questions and prose.
pub(crate) fn brief(name: &str) -> String {
    let of_locks = OPTIONS.len() - QUESTIONS;
    let mut text = described(name, OPTIONS.get(..of_locks).unwrap_or_default());
    let _ = writeln!(text, "\nEverything: {name} --help");
    text
}

/// How the program is called, with these options.
fn described(name: &str, options: &[OptionHelp]) -> String {
    let mut text = format!("{ABOUT}\n\nUsage:\n");
    for usage in USAGES {
        let _ = writeln!(text, "  {name} {usage}");
    }
    text.push_str("\nOptions:\n");
    for option in options {
        // Options that have no letter begin where the words of the others do.
        let mut line = if option.words.iter().all(|word| word.starts_with("--")) {
            " ".repeat(6)
        } else {
            " ".repeat(2)
        };
        line.push_str(&option.words.join(", "));
        if !option.value.is_empty() {
            line.push(' ');
            line.push_str(option.value);
        }
        if line.len() + 2 > ABOUT_COLUMN {
            text.push_str(&line);
            text.push('\n');
            line.clear();
        }
        let _ = writeln!(text, "{line:<ABOUT_COLUMN$}{}", option.about);
    }
    text
}

/// Whether an option has its value in the word that follows it.
pub(crate) fn takes_next_word(word: &str) -> bool {
    if let Some(long) = word.strip_prefix("--") {
        return !long.contains('=')
            && Flag::of_name(OsStr::new(long)).is_ok_and(|(_, flag)| flag.takes_value());
    }
    let mut letters = word.bytes().skip(1);
    let opens = letters.find(|letter| Flag::of_letter(*letter).is_some_and(Flag::takes_value));
    opens.is_some() && letters.next().is_none()
}

/// Reads the words that follow the name of the program, or the verb.
pub(crate) fn read(words: &[OsString]) -> Result<FlockRequest, Misuse> {
    if words.is_empty() {
        return Err(Misuse::of_option("not enough arguments".to_owned()));
    }
    let mut options = Options {
        kind: Kind::Exclusive,
        by_fcntl: false,
        nonblock: false,
        seconds: None,
        conflict_exit_code: 1,
        close: false,
        no_fork: false,
        verbose: false,
    };
    let mut rest = words;
    while let Some((word, after)) = rest.split_first() {
        let bytes = word.as_bytes();
        if bytes == b"--" {
            rest = after;
            break;
        }
        let asked;
        if let Some(long) = bytes.strip_prefix(b"--") {
            (asked, rest) = long_option(&mut options, long, after)?;
        } else if let Some(letters) = bytes.strip_prefix(b"-").filter(|it| !it.is_empty()) {
            (asked, rest) = short_options(&mut options, letters, after)?;
        } else {
            break;
        }
        if let Some(asked) = asked {
            return Ok(asked);
        }
    }
    let start = options.start()?;
    let target = target(rest, start)?;
    Ok(FlockRequest::Lock(Call {
        wait: options.wait()?,
        kind: options.kind,
        by_fcntl: options.by_fcntl,
        conflict_exit_code: options.conflict_exit_code,
        verbose: options.verbose,
        target,
    }))
}

/// What an option answers at once, if it does, and the words that follow it.
type OptionReading<'a> = (Option<FlockRequest>, &'a [OsString]);

fn long_option<'a>(
    options: &mut Options,
    word: &[u8],
    after: &'a [OsString],
) -> Result<OptionReading<'a>, Misuse> {
    let mut parts = word.splitn(2, |byte| *byte == b'=');
    let name = OsStr::from_bytes(parts.next().unwrap_or_default());
    let attached = parts.next().map(OsStr::from_bytes);
    let (name, flag) = Flag::of_name(name)?;
    let (value, rest) = match (flag.takes_value(), attached) {
        (false, None) => (OsStr::new(""), after),
        (false, Some(_)) => {
            return Err(Misuse::of_option(format!(
                "option '--{name}' doesn't allow an argument"
            )));
        }
        (true, Some(value)) => (value, after),
        (true, None) => match after.split_first() {
            Some((value, rest)) => (value.as_os_str(), rest),
            None => {
                return Err(Misuse::of_option(format!(
                    "option '--{name}' requires an argument"
                )));
            }
        },
    };
    Ok((options.take(flag, value)?, rest))
}

fn short_options<'a>(
    options: &mut Options,
    mut letters: &[u8],
    after: &'a [OsString],
) -> Result<OptionReading<'a>, Misuse> {
    while let Some((letter, more)) = letters.split_first() {
        let shown = OsString::from_vec(vec![*letter]);
        let shown = shown.to_string_lossy();
        let flag = Flag::of_letter(*letter).ok_or_else(|| {
            Misuse::of_option(match letter {
                b'?' => String::new(),
                _ => format!("invalid option -- '{shown}'"),
            })
        })?;
        if flag.takes_value() {
            // What follows the letter is its value; if nothing does, the next word is.
            let (value, rest) = match (more.is_empty(), after.split_first()) {
                (false, _) => (OsStr::from_bytes(more), after),
                (true, Some((value, rest))) => (value.as_os_str(), rest),
                (true, None) => {
                    return Err(Misuse::of_option(format!(
                        "option requires an argument -- '{shown}'"
                    )));
                }
            };
            return Ok((options.take(flag, value)?, rest));
        }
        if let Some(asked) = options.take(flag, OsStr::new(""))? {
            return Ok((Some(asked), after));
        }
        letters = more;
    }
    Ok((None, after))
}

/// What is locked, from the words behind the options.
fn target(words: &[OsString], start: Start) -> Result<FlockTarget, Misuse> {
    let (path, command) = match words {
        [] => {
            return Err(Misuse::of_value(
                "requires file descriptor, file or directory".to_owned(),
            ));
        }
        [descriptor] => {
            let descriptor = number(descriptor, "bad file descriptor")?;
            return Ok(FlockTarget::Descriptor(descriptor));
        }
        [path, flag, line @ ..] if flag == "-c" || flag == "--command" => match line {
            [line] => (path, Command::Shell(line.clone())),
            _ => {
                return Err(Misuse::of_value(format!(
                    "{} requires exactly one command argument",
                    flag.to_string_lossy()
                )));
            }
        },
        [path, command @ ..] => (path, Command::Words(command.to_vec())),
    };
    Ok(FlockTarget::File {
        path: path.clone(),
        command,
        start,
    })
}

/// A text without the white space that numbers may begin with in C.
fn trimmed(text: &OsStr) -> Option<&str> {
    let white = [' ', '\t', '\n', '\x0b', '\x0c', '\r'];
    text.to_str().map(|text| text.trim_start_matches(white))
}

/// A whole number of 32 bits.
fn number(text: &OsStr, what: &str) -> Result<i32, Misuse> {
    use std::num::IntErrorKind;
    let shown = text.to_string_lossy();
    match trimmed(text).unwrap_or_default().parse::<i32>() {
        Ok(number) => Ok(number),
        Err(error) => Err(Misuse::of_value(match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => {
                format!("{what}: '{shown}': Numerical result out of range")
            }
            _ => format!("{what}: '{shown}'"),
        })),
    }
}

/// A number of seconds, perhaps with a fraction. Whether a timer can last so long is not checked here.
fn seconds(text: &OsStr) -> Result<f64, Misuse> {
    trimmed(text)
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| {
            Misuse::of_value(format!(
                "invalid timeout value: '{}'",
                text.to_string_lossy()
            ))
        })
}

/// The wait of `seconds`, counted in the microseconds of flock(1). `None` if no timer can be set to that.
fn at_most(seconds: f64) -> Option<FlockWait> {
    let micros = (seconds * 1e6).trunc();
    if micros == 0.0 {
        return Some(FlockWait::Never);
    }
    let wait = Duration::try_from_secs_f64(seconds).ok()?;
    // The kernel's seconds have a sign.
    i64::try_from(wait.as_secs())
        .is_ok()
        .then_some(FlockWait::AtMost(wait))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    fn call(line: &[&str]) -> Call {
        match read(&words(line)) {
            Ok(FlockRequest::Lock(call)) => call,
            other => panic!("{line:?}: {other:?}"),
        }
    }

    fn refused(line: &[&str]) -> (SysExit, String) {
        match read(&words(line)) {
            Err(misuse) => (misuse.code, misuse.message),
            Ok(asked) => panic!("{line:?}: {asked:?}"),
        }
    }

    fn plain(path: &str, command: &[&str]) -> Call {
        Call {
            kind: Kind::Exclusive,
            by_fcntl: false,
            wait: FlockWait::Forever,
            conflict_exit_code: 1,
            verbose: false,
            target: FlockTarget::File {
                path: path.into(),
                command: Command::Words(words(command)),
                start: Start::Child,
            },
        }
    }

    #[test]
    fn options_end_at_the_first_word_that_is_none() {
        assert_eq!(call(&["f", "-n", "x"]), plain("f", &["-n", "x"]));
        assert_eq!(call(&["--", "f", "x"]), plain("f", &["x"]));
        assert_eq!(call(&["f", "--", "x"]), plain("f", &["--", "x"]));
        assert_eq!(call(&["-", "x"]), plain("-", &["x"]));
        assert_eq!(call(&["--", "--", "x"]), plain("--", &["x"]));
        assert_eq!(call(&["9", "x"]), plain("9", &["x"]), "a file, not fd 9");
        assert_eq!(call(&["", ""]), plain("", &[""]));
        assert_eq!(
            call(&["f", "--command=x"]),
            plain("f", &["--command=x"]),
            "only the very words -c and --command ask for a shell"
        );
    }

    #[test]
    fn options_may_be_bundled_cut_short_and_repeated() {
        for line in [
            &["-xnE5", "f", "x"][..],
            &["-x", "-n", "-E", "5", "f", "x"],
            &["-s", "-e", "-nE", "5", "f", "x"],
            &["--excl", "--nonb", "--conf=5", "f", "x"],
            &["--exclusive", "--nb", "--conflict-exit-code", "5", "f", "x"],
            &["--e", "--nonblocking", "--co", "+5", "f", "x"],
            &["-u", "-x", "-E9", "-E", " 5", "-w0", "f", "x"],
            &["-w0.0000009", "-E5", "f", "x"],
            &["-w", "-0", "-E5", "f", "x"],
            &["-n", "-w5", "-E5", "f", "x"],
            &["-w5", "-n", "-E5", "f", "x"],
        ] {
            let expected = Call {
                wait: FlockWait::Never,
                conflict_exit_code: 5,
                ..plain("f", &["x"])
            };
            assert_eq!(call(line), expected, "{line:?}");
        }
    }

    #[test]
    fn seconds_may_have_a_fraction() {
        for (typed, millis) in [
            ("5", 5000),
            ("5.", 5000),
            (".5", 500),
            ("+1", 1000),
            (" 1", 1000),
            ("1e3", 1_000_000),
            ("0.007", 7),
        ] {
            let wait = call(&["--timeout", typed, "f", "x"]).wait;
            assert_eq!(
                wait,
                FlockWait::AtMost(Duration::from_millis(millis)),
                "{typed}"
            );
        }
        for typed in ["", ".", "abc", "1.5x", "1 ", "1,5", "1s", "1m", "-"] {
            let expected = format!("invalid timeout value: '{typed}'");
            let said = refused(&["-w", typed, "f", "x"]);
            assert_eq!(said, (SysExit::Usage, expected), "{typed}");
        }
        for typed in ["-1", "-0.5", "inf", "nan", "1e400", "1e19", "9.3e18"] {
            let (code, said) = refused(&["-w", typed, "f", "x"]);
            assert_eq!(code, SysExit::System, "{typed}");
            assert!(said.starts_with("cannot set up timer"), "{typed}: {said}");
            assert_eq!(refused(&["-n", "-w", typed, "9"]).0, SysExit::System);
        }
        assert!(
            matches!(call(&["-w1e18", "9"]).wait, FlockWait::AtMost(_)),
            "30 billion years are a timer too"
        );
    }

    #[test]
    fn the_target_is_a_descriptor_or_a_file_with_a_command() {
        for (typed, number) in [("9", 9), ("+0", 0), (" 1", 1), ("-0", 0), ("-1", -1)] {
            assert_eq!(
                call(&["-u", "--", typed]).target,
                FlockTarget::Descriptor(number)
            );
        }
        for typed in ["", "-", "+", "99x", "0x1", "9 ", "f", "+ 0", "++1"] {
            let expected = format!("bad file descriptor: '{typed}'");
            assert_eq!(refused(&["--", typed]), (SysExit::Usage, expected));
        }
        for typed in ["4294967296", "2147483648", "-2147483649"] {
            let (code, said) = refused(&["--", typed]);
            assert_eq!(code, SysExit::Usage);
            assert!(said.ends_with("Numerical result out of range"), "{said}");
        }
        for flag in ["-c", "--command"] {
            let FlockTarget::File { command, .. } = call(&["f", flag, "a b"]).target else {
                panic!("a file");
            };
            assert_eq!(command, Command::Shell("a b".into()));
            for line in [&["f", flag][..], &["f", flag, "a", "b"]] {
                let expected = format!("{flag} requires exactly one command argument");
                assert_eq!(refused(line), (SysExit::Usage, expected));
            }
        }
        for (flag, expected) in [
            ("-o", Start::ChildWithoutLock),
            ("--close", Start::ChildWithoutLock),
            ("-F", Start::InPlace),
            ("--no-f", Start::InPlace),
        ] {
            let FlockTarget::File { start, .. } = call(&[flag, "f", "x"]).target else {
                panic!("a file");
            };
            assert_eq!(start, expected);
        }
    }

    #[test]
    fn what_is_no_call_is_refused_in_the_words_that_people_know() {
        for (line, expected) in [
            (&[][..], "not enough arguments"),
            (&["-x"], "requires file descriptor, file or directory"),
            (&["--"], "requires file descriptor, file or directory"),
            (&["-c", "f", "x"], "invalid option -- 'c'"),
            (&["-xZ", "f", "x"], "invalid option -- 'Z'"),
            (&["-1"], "invalid option -- '1'"),
            (&["-?", "f", "x"], ""),
            (&["-E"], "option requires an argument -- 'E'"),
            (&["-xw"], "option requires an argument -- 'w'"),
            (&["--timeout"], "option '--timeout' requires an argument"),
            (&["--ti"], "option '--timeout' requires an argument"),
            (
                &["--sh=1", "f", "x"],
                "option '--shared' doesn't allow an argument",
            ),
            (&["--command", "x", "f"], "unrecognized option '--command'"),
            (
                &["--ve", "9"],
                "option '--ve' is ambiguous; possibilities: '--verbose' '--version'",
            ),
            (
                &["--c", "f", "x"],
                "option '--c' is ambiguous; possibilities: '--conflict-exit-code' '--close'",
            ),
            (
                &["-E256", "f", "x"],
                "exit code out of range (expected 0 to 255)",
            ),
            (
                &["-E", "-1", "f", "x"],
                "exit code out of range (expected 0 to 255)",
            ),
            (&["-Eabc", "f", "x"], "invalid exit code: 'abc'"),
            (&["-E", "", "f", "x"], "invalid exit code: ''"),
            (&["-E", "5 ", "f", "x"], "invalid exit code: '5 '"),
            (&["-E0x10", "f", "x"], "invalid exit code: '0x10'"),
            (
                &["-E99999999999", "f", "x"],
                "invalid exit code: '99999999999': Numerical result out of range",
            ),
            (
                &["-oF", "f", "x"],
                "the --no-fork and --close options are incompatible",
            ),
            (
                &["-o", "-F"],
                "the --no-fork and --close options are incompatible",
            ),
        ] {
            assert_eq!(refused(line), (SysExit::Usage, expected.to_owned()));
        }
        for word in ["--n", "--no", "--v", "--="] {
            let (_, said) = refused(&[word, "f", "x"]);
            assert!(said.contains("is ambiguous"), "{word}: {said}");
        }
    }

    #[test]
    fn help_and_version_answer_before_what_follows_them_is_read() {
        for (line, asked) in [
            (&["-h"][..], FlockRequest::Help),
            (&["--help", "-E", "300"], FlockRequest::Help),
            (&["-xh", "-Z"], FlockRequest::Help),
            (&["--vers"], FlockRequest::Version),
            (&["-V", "f"], FlockRequest::Version),
            (&["-w", "-1", "-V"], FlockRequest::Version),
        ] {
            assert_eq!(read(&words(line)), Ok(asked), "{line:?}");
        }
        assert_eq!(refused(&["-E", "300", "-h"]).0, SysExit::Usage);
    }

    /// What people are told is what is read: every option is described, and nothing else.
    #[test]
    fn the_descriptions_are_those_of_the_options() {
        let mut described = Vec::new();
        for option in OPTIONS.iter().filter(|option| !option.behind_file) {
            for word in option.words {
                let flag = match word.strip_prefix("--") {
                    Some(long) => Flag::of_name(OsStr::new(long)).expect(word).1,
                    None => Flag::of_letter(word.as_bytes()[1]).expect(word),
                };
                assert_eq!(flag.takes_value(), !option.value.is_empty(), "{word}");
                assert_eq!(takes_next_word(word), flag.takes_value(), "{word}");
                described.push((word.to_string(), flag));
            }
        }
        for (long, flag) in LONG {
            let is_described = |(word, of): &(String, Flag)| {
                *of == flag
                    && word
                        .strip_prefix("--")
                        .is_some_and(|word| long.starts_with(word))
            };
            assert!(described.iter().any(is_described), "--{long}");
        }
        let letters = (0..=u8::MAX).filter(|letter| Flag::of_letter(*letter).is_some());
        for letter in letters {
            let word = format!("-{}", char::from(letter));
            assert!(described.iter().any(|(it, _)| *it == word), "{word}");
        }
        for (word, takes) in [
            ("-xw", true),
            ("-w5", false),
            ("-wE", false),
            ("-xn", false),
        ] {
            assert_eq!(takes_next_word(word), takes, "{word}");
        }
        for (word, takes) in [("--wait=5", false), ("--conf", true), ("--nonsense", false)] {
            assert_eq!(takes_next_word(word), takes, "{word}");
        }
    }

    #[test]
    fn words_need_not_be_text() {
        let odd = OsString::from_vec(vec![b'f', 0xff]);
        let line = vec![odd.clone(), odd.clone()];
        let Ok(FlockRequest::Lock(call)) = read(&line) else {
            panic!("a file and a command");
        };
        assert!(matches!(call.target, FlockTarget::File { path, .. } if path == odd));
        let dashed = OsString::from_vec(vec![b'-', 0xff]);
        assert!(read(&[dashed]).is_err());
        let descriptor = OsString::from_vec(vec![b'9', 0xff]);
        assert!(read(&[descriptor]).is_err());
    }
}
