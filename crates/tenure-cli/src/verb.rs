//! Reads a line: the verb first, then its flags.
//!
//! Building the whole tree of arguments costs more than running a lock. So the verb is looked up first
//! and only its own parser is built. The whole tree (for the pages of help and for mistakes) is made of
//! the same parts, and a test holds the two equal.
//!
//! What a verb's flags are, and what they mean, stands in its file of `request`. `front` reads what stands where
//! a verb should, `plain` the plainest calls of `run`, `refusal` answers words that make no call, `help` draws
//! the pages, and `expected` says what may stand at the cursor of a shell.
//!
//! Here and elsewhere, code that a plain run never uses is marked cold. A start pays for each stretch of
//! code that it touches, and the marks keep the code of a plain run together.
#![allow(
    clippy::doc_markdown,
    reason = "the comments are the help text that people read"
)]

pub(crate) mod expected;
mod front;
pub(crate) mod help;
mod plain;
mod refusal;

use self::help::Size;
use crate::args::Common;
use crate::failure::Failure;
use crate::output::Output;
use crate::request::{
    AcquireArgs, AgentArgs, AllowArgs, AuditArgs, CancelArgs, CheckArgs, CleanArgs,
    CompletionsArgs, DemoArgs, DoctorArgs, FenceArgs, FlockArgs, ForceReleaseArgs, GroupNameArgs,
    HeartbeatArgs, HookArgs, ListArgs, ManArgs, McpArgs, MetricsArgs, ProfilesArgs, PushArgs,
    ReleaseArgs, RunArgs, ServeArgs, TimelineArgs, TopArgs, WaitArgs,
};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;

const AFTER_HELP: &str = "\
Examples:
  tenure run backup -- ./backup.sh  one at a time, the others wait in turn
  tenure check backup               who holds it, since when, why, who waits
  tenure VERB -h                    the usual flags of a verb; --help has all

Exit codes:
  0 success                   5 not found             79 superseded
  1 error                     6 not the owner         80 lock lost
  2 bad arguments             7 permission denied     81 would wait for ever
  3 partial failure           10 over --max-runtime   126 command not runnable
  4 held, stale, unreadable   12 store unusable       127 command not found
A command that runs keeps its own; 128+N: ended by signal N; `flock` has flock(1)'s.

The first of these names the place of the locks: --dir, --store or --scope; the run around the call; \
$TENURE_STORE, $TENURE_DIR or $TENURE_SCOPE; the nearest tenure.toml, the user's or the machine's. Without any \
of them it is $XDG_STATE_HOME/tenure/locks (~/.local/state/tenure/locks). A variable or a project's tenure.toml \
counts before the run around the call if it has changed since that run started.";

/// The command line, as clap reads it.
#[derive(Debug, Parser)]
#[command(
    name = "tenure",
    about = "One holder at a time, for scripts, CI jobs and AI agents",
    version,
    arg_required_else_help = true,
    after_help = AFTER_HELP,
    subcommand_required = true
)]
pub(crate) struct Tree {
    #[cfg_attr(
        not(test),
        allow(
            dead_code,
            reason = "each verb is read by its own parser; tests hold this one equal"
        )
    )]
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
#[allow(
    clippy::large_enum_variant,
    reason = "there is one verb in the life of a process"
)]
pub(crate) enum Verb {
    /// Hold a lock while a command runs
    Run(RunArgs),
    /// Take a lock and return
    Acquire(AcquireArgs),
    /// Give back a lock that `acquire` took
    Release(ReleaseArgs),
    /// Ask the holder of a lock to stop
    Cancel(CancelArgs),
    /// Remove the lock of another owner, by force
    ForceRelease(ForceReleaseArgs),
    /// Renew a lock, and learn whether it is lost or asked for
    Heartbeat(HeartbeatArgs),
    /// Say who holds a lock
    Check(CheckArgs),
    /// Show every lock: standing, holder, age, queue
    List(ListArgs),
    /// Watch the locks: what needs a person comes first
    Top(TopArgs),
    /// Wait until a lock is free, without taking it
    Wait(WaitArgs),
    /// Ask whether a fencing token is still good
    Fence(FenceArgs),
    /// Remove what is proven stale
    Clean(CleanArgs),
    /// Say where the locks are and why, and what is wrong there
    Doctor(DoctorArgs),
    /// Show in twenty seconds what a lock does
    Demo(DemoArgs),
    /// Show the rules of every profile
    Profiles(ProfilesArgs),
    /// Allow what the tenure.toml of a clone asks for
    Allow(AllowArgs),
    /// Show what happened to locks
    Audit(AuditArgs),
    /// Draw who held and who waited, for a page, a report or a terminal
    Timeline(TimelineArgs),
    /// Count what happened to locks, for Prometheus
    Metrics(MetricsArgs),
    /// Lock a file or descriptor as flock(1) does
    Flock(FlockArgs),
    /// Push to a branch that others push to as well
    Push(PushArgs),
    /// Hold locks for the program that starts this
    Serve(ServeArgs),
    /// Hold locks for an agent that speaks MCP
    Mcp(McpArgs),
    /// Put tenure's hooks into an agent's host, and look after them
    Agent(AgentArgs),
    /// Answer a coding agent before it acts
    Hook(HookArgs),
    /// Name the concurrency group of a CI event
    GroupName(GroupNameArgs),
    /// Print what completes tenure's words in a shell
    Completions(CompletionsArgs),
    /// Print the manual's page of a verb, or write all pages
    Man(ManArgs),
    /// A call whose verb stands in a document
    #[command(skip)]
    Document(DocumentArgs),
    /// A page of help
    #[command(skip)]
    Help(HelpArgs),
    /// The version
    #[command(skip)]
    Version(Output),
    /// A call without any word
    #[command(skip)]
    Bare,
}

/// A call with `--input` and without a verb.
#[derive(Debug, Clone)]
pub(crate) struct DocumentArgs {
    /// What decides about the answer's shape.
    pub(crate) common: Common,
    /// The value of `--input`.
    pub(crate) input: OsString,
    /// The whole call.
    pub(crate) words: Vec<OsString>,
}

/// A question about the flags.
#[derive(Debug, Clone)]
pub(crate) struct HelpArgs {
    /// The verb that is asked about.
    pub(crate) of: Option<String>,
    pub(crate) size: Size,
    pub(crate) common: Common,
}
/// Global flags that take a value and may stand before the verb.
const BEFORE_VERB: [&str; 10] = [
    "--dir",
    "--store",
    "--scope",
    "--profile",
    "--output",
    "--config",
    "--project-root",
    "--lock-file-name",
    "--stale-after",
    "--audit-dir",
];
/// Global flags without one.
const BEFORE_VERB_BARE: [&str; 5] = ["-q", "--quiet", "-v", "--verbose", "--allow-network-fs"];

/// Refuses a `TENURE_OUTPUT` that names no format: a caller who asked for one must not get another.
fn check_output() -> Result<(), Failure> {
    match std::env::var("TENURE_OUTPUT") {
        Ok(word) if !word.is_empty() && Output::from_word(&word).is_none() => {
            Err(Failure::bad_arguments(format!(
                "TENURE_OUTPUT {word:?} is no format; it is one of text, json, yaml"
            )))
        }
        _ => Ok(()),
    }
}

/// Reads the words of a call.
pub(crate) fn parse(words: &[OsString]) -> Result<Verb, Failure> {
    if let Some(args) = asked_for_flock(words) {
        return Ok(Verb::Flock(args));
    }
    check_output().or_else(|failure| {
        let failure = failure.with_output(output_of(words));
        has_one_form(words).then_some(()).ok_or(failure)
    })?;
    if let Some(args) = plain::read(words) {
        return Ok(Verb::Run(args));
    }
    match parse_quick(words) {
        Some(Ok(verb)) => Ok(verb),
        Some(Err(error)) => explain(&error, words),
        None => front::read(words),
    }
}

/// Reads a call of `run` by the quick way and by the parser; `None` where it is not plain.
#[cfg(test)]
pub(crate) fn read_both(words: &[&str]) -> Option<(RunArgs, Option<RunArgs>)> {
    let as_typed: Vec<_> = words.iter().map(OsString::from).collect();
    Some((plain::read(&as_typed)?, read_run(words)))
}

/// What the parser makes of a call of `run`; `None` if it does not take it.
#[cfg(test)]
pub(crate) fn read_run(words: &[&str]) -> Option<RunArgs> {
    let words: Vec<_> = words.iter().map(OsString::from).collect();
    match parse_quick(&words) {
        Some(Ok(Verb::Run(args))) => Some(args),
        _ => None,
    }
}

/// Reads a call whose verb stands elsewhere: in the document that it gives.
pub(crate) fn parse_as(verb: &str, words: &[OsString]) -> Result<Verb, Failure> {
    let mut words = words.to_vec();
    words.insert(1.min(words.len()), verb.into());
    match parse_quick(&words) {
        Some(Ok(verb)) => Ok(verb),
        Some(Err(error)) => explain(&error, &words),
        None => Err(refusal::no_verb(verb)),
    }
}

/// What to do about a call that a verb's parser does not take.
#[cold]
#[inline(never)]
fn explain(error: &clap::Error, words: &[OsString]) -> Result<Verb, Failure> {
    let (common, verb) = hints_of(words);
    if error.kind() == clap::error::ErrorKind::DisplayHelp {
        return Ok(Verb::Help(HelpArgs {
            of: Some(verb),
            // Among letters that stand together there may be an `h`.
            size: Size::asked_for(words).unwrap_or(Size::Brief),
            common,
        }));
    }
    if let Some(joined) = refusal::with_number_joined(error, words, &verb)
        && let Some(read) = parse_quick(&joined)
    {
        return read.or_else(|error| explain(&error, &joined));
    }
    Err(refusal::of(error, words))
}

/// The name and number of this release.
pub(crate) fn version() -> String {
    concat!("tenure ", env!("CARGO_PKG_VERSION")).to_owned()
}

/// The words of a call that is flock(1)'s: by the name under which the program was called, or by the
/// verb. Our own flags and our environment do not matter there.
fn asked_for_flock(words: &[OsString]) -> Option<FlockArgs> {
    // A start pays for this: the bytes are compared, and no path is taken apart.
    let called = words.first()?.as_encoded_bytes().strip_suffix(b"flock");
    let by_name = called.is_some_and(|folder| folder.is_empty() || folder.ends_with(b"/"));
    let of_verb = words.get(1).is_some_and(|verb| verb == "flock");
    let before = match (by_name, of_verb) {
        (true, _) => 1,
        (false, true) => 2,
        (false, false) => return None,
    };
    Some(FlockArgs {
        by_name,
        words: words.get(before..)?.to_vec(),
    })
}

/// Whether a program asks (a shell for completions, an agent's host) whose answer has one form only, whatever the
/// environment says.
#[cold]
#[inline(never)]
fn has_one_form(words: &[OsString]) -> bool {
    let mut verb = words.get(1).into_iter();
    verb.any(|verb| verb == "completions" || verb == "hook")
}

/// Builds the parser of the verb alone. `None` if the words do not begin with flags that may
/// stand there and a verb.
#[cold]
#[inline(never)]
fn parse_quick(words: &[OsString]) -> Option<Result<Verb, clap::Error>> {
    let index = verb_index(words)?;
    let verb = words.get(index)?.to_str()?;
    let before = words.get(1..index)?;
    let after = words.get(index + 1..)?;
    let own = [OsString::from("tenure")];
    let words = own.iter().chain(before).chain(after);
    Some(match verb {
        "run" => one::<RunArgs>("tenure run", words).map(Verb::Run),
        "acquire" => one::<AcquireArgs>("tenure acquire", words).map(Verb::Acquire),
        "release" => one::<ReleaseArgs>("tenure release", words).map(Verb::Release),
        "force-release" => {
            one::<ForceReleaseArgs>("tenure force-release", words).map(Verb::ForceRelease)
        }
        "cancel" => one::<CancelArgs>("tenure cancel", words).map(Verb::Cancel),
        "heartbeat" => one::<HeartbeatArgs>("tenure heartbeat", words).map(Verb::Heartbeat),
        "check" => one::<CheckArgs>("tenure check", words).map(Verb::Check),
        "list" => one::<ListArgs>("tenure list", words).map(Verb::List),
        "top" => one::<TopArgs>("tenure top", words).map(Verb::Top),
        "wait" => one::<WaitArgs>("tenure wait", words).map(Verb::Wait),
        "fence" => one::<FenceArgs>("tenure fence", words).map(Verb::Fence),
        "clean" => one::<CleanArgs>("tenure clean", words).map(Verb::Clean),
        "doctor" => one::<DoctorArgs>("tenure doctor", words).map(Verb::Doctor),
        "demo" => one::<DemoArgs>("tenure demo", words).map(Verb::Demo),
        "profiles" => one::<ProfilesArgs>("tenure profiles", words).map(Verb::Profiles),
        "allow" => one::<AllowArgs>("tenure allow", words).map(Verb::Allow),
        "audit" => one::<AuditArgs>("tenure audit", words).map(Verb::Audit),
        "timeline" => one::<TimelineArgs>("tenure timeline", words).map(Verb::Timeline),
        "metrics" => one::<MetricsArgs>("tenure metrics", words).map(Verb::Metrics),
        "push" => one::<PushArgs>("tenure push", words).map(Verb::Push),
        "serve" => one::<ServeArgs>("tenure serve", words).map(Verb::Serve),
        "mcp" => one::<McpArgs>("tenure mcp", words).map(Verb::Mcp),
        "agent" => one::<AgentArgs>("tenure agent", words).map(Verb::Agent),
        "group-name" => one::<GroupNameArgs>("tenure group-name", words).map(Verb::GroupName),
        "hook" => one::<HookArgs>("tenure hook", words).map(Verb::Hook),
        "completions" => one::<CompletionsArgs>("tenure completions", words).map(Verb::Completions),
        "man" => one::<ManArgs>("tenure man", words).map(Verb::Man),
        // `flock` stands first or not at all, so the whole tree refuses it here.
        _ => return None,
    })
}

/// Where the verb stands: behind global flags, if there are any.
fn verb_index(words: &[OsString]) -> Option<usize> {
    let mut index = 1;
    loop {
        let word = words.get(index)?.to_str()?;
        let holds_value = |flag: &&str| {
            word.strip_prefix(*flag)
                .is_some_and(|rest| rest.starts_with('='))
        };
        if BEFORE_VERB.contains(&word) {
            index += 2;
        } else if BEFORE_VERB_BARE.contains(&word) || BEFORE_VERB.iter().any(holds_value) {
            index += 1;
        } else {
            return Some(index);
        }
    }
}

fn one<'a, A: Args + FromArgMatches>(
    name: &'static str,
    words: impl Iterator<Item = &'a OsString>,
) -> Result<A, clap::Error> {
    let mut command =
        A::augment_args(clap::Command::new(name).bin_name(name)).disable_help_subcommand(true);
    let mut matches = command.try_get_matches_from_mut(words)?;
    A::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// What the caller wants printed, as far as that can be known from words that do not parse.
fn output_of(words: &[OsString]) -> Output {
    let mut words = words.iter().take_while(|word| *word != "--");
    while let Some(word) = words.next() {
        let value = if word == "--output" {
            words.next().and_then(|value| value.to_str())
        } else {
            word.to_str()
                .and_then(|word| word.strip_prefix("--output="))
        };
        if let Some(output) = value.and_then(Output::from_word) {
            return output;
        }
    }
    Output::from_environment().unwrap_or(Output::Text)
}

/// The verb, and what decides about the answer's shape, as far as that can be known from words
/// that do not parse.
pub(crate) fn hints_of(words: &[OsString]) -> (Common, String) {
    let mut common = Common {
        output: Some(output_of(words)),
        ..Common::default()
    };
    let mut rest = words.iter().take_while(|word| *word != "--");
    while let Some(word) = rest.next() {
        let mut value = |flag: &str| {
            if word == flag {
                return rest.next().cloned();
            }
            let value = word.to_str()?.strip_prefix(flag)?.strip_prefix('=')?;
            Some(OsString::from(value))
        };
        if let Some(name) = value("--profile") {
            common.profile = name.into_string().ok();
        } else if let Some(file) = value("--config") {
            common.config = Some(file.into());
        }
    }
    let words = words.get(verb_index(words).unwrap_or(words.len())..);
    let words = words.unwrap_or_default().iter();
    let mut words = words.map_while(|word| word.to_str().filter(|word| *word != "--"));
    let first = words.next().unwrap_or_default();
    // A flag of the verb stands before it.
    let later = first
        .starts_with('-')
        .then(|| words.find(|word| is_verb(word)));
    (common, later.flatten().unwrap_or(first).to_owned())
}

/// Whether there is a verb of this name.
pub(crate) fn is_verb(word: &str) -> bool {
    word == "help" || Tree::command().find_subcommand(word).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[allow(
        clippy::too_many_lines,
        reason = "a line for each call, and nothing else"
    )]
    #[test]
    fn the_verbs_own_parsers_and_the_whole_tree_read_the_same() {
        for line in [
            "tenure run x -- true",
            "tenure run x --signal TERM --term-after 1s --max-runtime=5m --wait-all --close -- true",
            "tenure run --exec x --shell -- a",
            "tenure run x --exec --grace 1s -- true",
            "tenure run -n x --ttl 5s -E 9 -- sh -c true",
            "tenure run --force --yes --wait=3s x -q -- a --b -c",
            "tenure run -w 3 -x x --dir /d --output json -- a",
            "tenure run --group g --queue max --cancel-in-progress -- true",
            "tenure run --group g x -l y --lock=z --slots 3 --on-superseded a -- true",
            "tenure run x -s -x -- true",
            "tenure run x --slots 0 -- true",
            "tenure run x --queue lifo -- true",
            "tenure run x -s --ticket auto --reentrant -- true",
            "tenure cancel x",
            "tenure cancel --group g --request-id r",
            "tenure cancel x --group g",
            "tenure acquire x --owner 12 --request-id r --why because",
            "tenure release x --run-id r --output=yaml",
            "tenure heartbeat x --session-id r -v",
            "tenure check",
            "tenure check x --request-id r",
            "tenure list --dir d",
            "tenure top --once --dir d",
            "tenure top --interval 5s -q",
            "tenure wait x -w forever",
            "tenure fence check",
            "tenure fence check 5 --name x --dir d",
            "tenure fence --guard f check 5 -v",
            "tenure fence check 5 --name x --guard f",
            "tenure fence",
            "tenure fence frob",
            "tenure fence check 5 6",
            "tenure clean --dry-run",
            "tenure doctor",
            "tenure doctor --fix",
            "tenure doctor --output json",
            "tenure demo",
            "tenure profiles",
            "tenure profiles --profile fleet --output json",
            "tenure audit",
            "tenure audit x --event lock_stolen --event lock_released --since 1h --until=0s -f",
            "tenure audit --request-id r --follow --audit-dir a --output json",
            "tenure audit x y",
            "tenure audit --since",
            "tenure timeline",
            "tenure timeline x --since yesterday --until=0s --as claude/s --output html",
            "tenure timeline --output=svg --request-id r -v",
            "tenure timeline --output pdf",
            "tenure timeline x y",
            "tenure run x --audit-dir a -- true",
            "tenure run x",
            "tenure run x true",
            "tenure run -- true",
            "tenure acquire",
            "tenure run --nonsense x -- true",
            "tenure run -E 256 x -- true",
            "tenure run -q -v x -- true",
            "tenure run --yes x -- true",
            "tenure push",
            "tenure push --remote r --branch b --attempts 7 --backoff 20ms -w 3 -E 9 --dir d",
            "tenure push -n --output json",
            "tenure push --dry-run",
            "tenure push --attempts 0",
            "tenure push x",
            "tenure agent install claude",
            "tenure agent status codex --user --output json",
            "tenure agent uninstall claude --project --dry-run",
            "tenure agent install claude --user --project",
            "tenure agent install",
            "tenure agent frob claude",
            "tenure agent install emacs",
            "tenure group-name",
            "tenure group-name --event issues --number 4 --run-id r --prefix p",
            "tenure group-name --event-file f --output yaml",
            "tenure group-name --event-file f --number 4",
            "tenure group-name --number x",
            "tenure hook claude",
            "tenure hook cursor",
            "tenure hook",
            "tenure list x",
            "tenure profiles x",
            "tenure completions bash",
            "tenure completions csh",
            "tenure completions zsh -- tenure run -",
            "tenure completions fish --output json",
            "tenure completions",
            "tenure man",
            "tenure man run --to d",
            "tenure man --to",
        ] {
            let quick = parse_quick(&words(line)).expect("a verb");
            let whole = Tree::try_parse_from(words(line)).map(|tree| tree.verb);
            if let Some(plain) = plain::read(&words(line)) {
                let quick = quick.as_ref().expect("what is plain is a good call");
                assert_eq!(format!("{:?}", Verb::Run(plain)), format!("{quick:?}"));
            }
            match (quick, whole) {
                (Ok(quick), Ok(whole)) => {
                    assert_eq!(format!("{quick:?}"), format!("{whole:?}"), "{line}");
                }
                (Err(quick), Err(whole)) => assert_eq!(quick.kind(), whole.kind(), "{line}"),
                (quick, whole) => panic!("{line}: {quick:?} and {whole:?}"),
            }
        }
    }

    #[test]
    fn global_flags_stand_before_or_after_the_verb() {
        let before = parse_quick(&words(
            "tenure --dir d --audit-dir a --output=json -q run x -- true",
        ));
        let after = parse_quick(&words(
            "tenure run x --dir d --audit-dir a --output=json -q -- true",
        ));
        let (Some(Ok(before)), Some(Ok(after))) = (before, after) else {
            panic!("both are good calls");
        };
        assert_eq!(format!("{before:?}"), format!("{after:?}"));
    }

    #[test]
    fn flock_is_asked_for_by_name_or_by_verb() {
        for (line, by_name, rest) in [
            ("flock -n f true", true, "-n f true"),
            ("/usr/bin/flock run x", true, "run x"),
            ("./flock flock x", true, "flock x"),
            ("tenure flock -n f true", false, "-n f true"),
            ("/opt/tenure flock -- f", false, "-- f"),
        ] {
            let args = asked_for_flock(&words(line)).expect(line);
            assert_eq!((args.by_name, args.words), (by_name, words(rest)), "{line}");
            assert!(matches!(parse(&words(line)), Ok(Verb::Flock(_))), "{line}");
        }
        for line in [
            "tenure run flock -- true",
            "tenure",
            "myflock run",
            "flock/tenure run",
        ] {
            assert!(asked_for_flock(&words(line)).is_none(), "{line}");
        }
        assert!(asked_for_flock(&[]).is_none());
        for line in ["tenure --dir d flock f true", "tenure -q flock 9"] {
            assert!(
                parse(&words(line)).is_err(),
                "{line}: our flags mean nothing to it"
            );
        }
    }

    #[test]
    fn what_stands_below_the_flags_fits_a_narrow_terminal() {
        let mut tree = Tree::command();
        tree.build();
        let verbs = tree
            .get_subcommands()
            .filter(|verb| verb.get_name() != "flock");
        for command in verbs.chain([&tree]) {
            let help = command.get_after_help().map(ToString::to_string);
            let help = help.unwrap_or_default();
            let (of, mut prose) = (command.get_name(), false);
            for line in help.lines() {
                if line.starts_with("  ") {
                    assert!(line.chars().count() <= 80, "{of}: too wide: {line}");
                } else {
                    // Lines that are broken here are broken once more by the terminal.
                    let is_new = !prose || line.is_empty();
                    assert!(is_new, "{of}: a paragraph is one line: {line}");
                }
                prose = !line.is_empty() && !line.starts_with("  ") && !line.ends_with(':');
            }
        }
    }

    #[test]
    fn the_whole_tree_is_consistent() {
        Tree::command().debug_assert();
    }
}
