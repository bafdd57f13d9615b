//! Reads the plainest calls of `run` without building a parser, which would cost a fifth of the whole
//! run. Every call that is not certainly good, or not written in the plainest way, is left to the parser,
//! which alone decides what is an error and says so. Which flags are plain, and how they are read, stands where they are
//! declared (`args/flags`).
//!
//! Tests hold every call that is read here equal to what the parser makes of it.

use crate::args::flags::{Flags as _, fill};
use crate::args::value::{self, Typed};
use crate::request::RunArgs;
use std::ffi::OsString;

/// The arguments, if the call is a plain one.
pub(super) fn read(words: &[OsString]) -> Option<RunArgs> {
    let mut words = words.iter().skip(1);
    let mut args = RunArgs::default();
    if words.next()? != "run" {
        return None;
    }
    loop {
        let word = words.next()?.to_str()?;
        if word == "--" {
            break;
        }
        let mut value = || words.next()?.to_str().filter(|value| is_plain(value));
        let is_flag = args.read_plain(word, &mut value)?
            || args.claiming.read_plain(word, &mut value)?
            || args.claiming.patience.read_plain(word, &mut value)?
            || args.common.read_plain(word, &mut value)?;
        if !is_flag {
            let name = Some(word).filter(|word| is_plain(word))?;
            fill(&mut args.name, Typed::of(name, value::name))?;
        }
    }
    args.command = words.cloned().collect();
    let contradictory = (args.common.quiet && args.common.verbose)
        || (args.claiming.patience.nonblock && args.claiming.patience.wait.is_some());
    if args.name.is_none() || args.command.is_empty() || contradictory {
        return None;
    }
    Some(args)
}

/// Whether a word can only be a value.
fn is_plain(word: &str) -> bool {
    !word.is_empty() && !word.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::super::{Verb, parse_quick};
    use super::read as plain;
    use crate::request::{Run, Surroundings};
    use std::ffi::OsString;

    /// Every sequence of up to four of these words between `run` and the command.
    const WORDS: [&str; 14] = [
        "a", "b", "-n", "-x", "--exec", "-q", "-v", "-w", "5s", "--wait=1", "--ttl", "--dir",
        "--output", "json",
    ];

    #[test]
    fn what_is_plain_means_the_same_to_the_parser() {
        let around = Surroundings::bare("/here");
        let mut plain_calls = 0;
        for number in 0..WORDS.len().pow(4) {
            let mut words: Vec<OsString> = vec!["tenure".into(), "run".into()];
            let mut rest = number;
            for _ in 0..4 {
                words.extend(WORDS.get(rest % WORDS.len()).map(OsString::from));
                rest /= WORDS.len();
            }
            words.extend(["--", "cmd", "-n", "--"].map(OsString::from));
            let Some(read) = plain(&words) else { continue };
            plain_calls += 1;
            let parsed = parse_quick(&words).and_then(Result::ok);
            let Some(Verb::Run(parsed)) = parsed else {
                panic!("{words:?}: what is plain is a good call")
            };
            assert_eq!(format!("{parsed:?}"), format!("{read:?}"), "{words:?}");
            let (parsed, read) = (Run::of(&parsed, &around), Run::of(&read, &around));
            assert_eq!(format!("{parsed:?}"), format!("{read:?}"), "{words:?}");
        }
        assert!(plain_calls > 500, "the words make plain calls");
    }

    #[test]
    fn what_is_not_plain_is_left_to_the_parser() {
        for line in [
            "tenure",
            "tenure run",
            "tenure run a",
            "tenure run a --",
            "tenure run -- b",
            "tenure run a b -- c",
            "tenure run a -nq -- c",
            "tenure run a --wait -- c",
            "tenure run a -w -1 -- c",
            "tenure run a --help -- c",
            "tenure --dir d run a -- c",
            "tenure acquire a",
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert!(plain(&words).is_none(), "{line}");
        }
    }
}
