//! Transcripts: a test as the calls and answers that a person would see, in the order of the calls.
//!
//! ```text
//! # What a reader has to know.
//! $ tenure acquire 42 --request-id run-1
//! acquired 42
//! ! a line of stderr
//! $ RUN=run-2 tenure release 42
//! ? 6
//! ! ...
//! $ cat locks/42.lock
//! a line of the file
//! ```
//!
//! - A call stands behind `$`. `tenure` is the program itself, with the first words that the transcript
//!   was given; another line is one of `sh`. Both run in the scene's folder.
//! - `? 4` is the exit code, and `? signal 9` the signal that ended it. Without such a line it is 0.
//! - All lines of stdout follow as they are, and those of stderr behind `!`. A line that is not shown must
//!   not be there.
//! - `...` is any number of lines; [`PLACEHOLDERS`] are a part of one.

use super::{Answer, Scene, answer};
use std::fmt::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

/// Whether a placeholder may stand for a text.
type Accepts = fn(&str) -> bool;

/// What differs from one run to the next.
const PLACEHOLDERS: [(&str, Accepts); 4] = [
    ("[..]", |_| true),
    ("[N]", |text| is_number(text)),
    // The original's and our form of a request id.
    ("[ID]", |text| {
        let digits = text.strip_prefix("req_").unwrap_or_default();
        digits.len() == 12 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    }),
    ("[TIME]", |text| text.parse::<jiff::Timestamp>().is_ok()),
];

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Makes the calls of transcripts.
pub(crate) struct Caller<'a> {
    scene: &'a Scene,
    first: Vec<&'a str>,
    known: Vec<(&'a str, String)>,
}

impl<'a> Caller<'a> {
    /// A caller of `tenure` with these first words.
    pub(crate) fn new(scene: &'a Scene, first: &[&'a str]) -> Self {
        Self {
            scene,
            first: first.to_vec(),
            known: vec![("[ROOT]", scene.root().display().to_string())],
        }
    }

    /// The same with a word of transcripts that stands for something else.
    pub(crate) fn knowing(mut self, word: &'a str, meaning: impl Into<String>) -> Self {
        self.known.push((word, meaning.into()));
        self
    }

    /// Makes the calls of a transcript, and fails the test at the first whose answer is another one.
    #[track_caller]
    pub(crate) fn follows(&self, transcript: &str) {
        let mut text = dedented(transcript);
        for (word, meaning) in &self.known {
            text = text.replace(word, meaning);
        }
        let steps = steps(&text);
        assert!(!steps.is_empty(), "a transcript has calls");
        let mut before = String::new();
        for step in steps {
            let answer = self.call(&step.call);
            let seen = Seen::of(&answer);
            assert!(
                step.fits(&seen),
                "expected\n{}\nbut after\n{before}this came:\n{}",
                step.text(),
                seen.text(&step.call)
            );
            before.push_str(&seen.text(&step.call));
        }
    }

    fn call(&self, line: &str) -> Answer {
        let mut words = words(line);
        let is_variable = |word: &String| word.contains('=') && !word.starts_with('-');
        let variables = words.iter().take_while(|word| is_variable(word)).count();
        let is_tenure = words.get(variables).is_some_and(|word| word == "tenure");
        let mut command = if is_tenure {
            let mut command = self.scene.tenure(&self.first);
            command.args(words.drain(variables + 1..));
            for variable in &words[..variables] {
                let (name, value) = variable.split_once('=').expect("a variable");
                command.env(name, value);
            }
            command
        } else {
            let mut command: Command = self.scene.program("sh");
            command.args(["-c", line]);
            command
        };
        let answer = answer(command.current_dir(self.scene.root()));
        for said in [answer.stdout(), answer.stderr()] {
            let is_whole = said.is_empty() || said.ends_with('\n') || !is_tenure;
            assert!(is_whole, "the last line has no end: {}", answer.said());
        }
        answer
    }
}

/// One call, and the answer that is expected.
#[derive(Debug, Default)]
struct Step {
    call: String,
    seen: Seen,
}

/// What a call answered, or what it should.
#[derive(Debug, Default)]
struct Seen {
    /// As it stands behind `?`; empty for 0.
    end: String,
    out: Vec<String>,
    errors: Vec<String>,
}

impl Seen {
    fn of(answer: &Answer) -> Self {
        let status = answer.status();
        let lines = |text: String| text.lines().map(str::to_owned).collect();
        Self {
            end: match (status.code(), status.signal()) {
                (Some(0), _) => String::new(),
                (Some(code), _) => code.to_string(),
                (None, Some(signal)) => format!("signal {signal}"),
                (None, None) => "unknown".to_owned(),
            },
            out: lines(answer.stdout()),
            errors: lines(answer.stderr()),
        }
    }

    fn text(&self, call: &str) -> String {
        let mut text = format!("$ {call}\n");
        if !self.end.is_empty() {
            let _ = writeln!(text, "? {}", self.end);
        }
        for line in &self.out {
            let _ = writeln!(text, "{line}");
        }
        for line in &self.errors {
            let _ = writeln!(text, "! {line}");
        }
        text
    }
}

impl Step {
    fn text(&self) -> String {
        self.seen.text(&self.call)
    }

    fn fits(&self, seen: &Seen) -> bool {
        self.seen.end == seen.end
            && all_fit(&self.seen.out, &seen.out)
            && all_fit(&self.seen.errors, &seen.errors)
    }
}

/// The transcript without the indentation that its first line has.
fn dedented(transcript: &str) -> String {
    let lines = || transcript.lines().filter(|line| !line.trim().is_empty());
    let first = lines().next().unwrap_or_default();
    let indent = first.len() - first.trim_start().len();
    let line = |line: &str| {
        let (before, rest) = line.split_at_checked(indent).expect("an indented line");
        assert!(before.trim().is_empty(), "an indented line: {line:?}");
        format!("{rest}\n")
    };
    lines().map(line).collect()
}

fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(call) = line.strip_prefix("$ ") {
            steps.push(Step {
                call: call.to_owned(),
                ..Step::default()
            });
            continue;
        }
        let seen = &mut steps.last_mut().expect("a call comes first").seen;
        if let Some(end) = line.strip_prefix("? ") {
            end.clone_into(&mut seen.end);
        } else if let Some(error) = line.strip_prefix('!') {
            let error = error.strip_prefix(' ').unwrap_or(error);
            seen.errors.push(error.to_owned());
        } else {
            seen.out.push(line.to_owned());
        }
    }
    steps
}

/// The words of a line, as a shell reads quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), _) if open == letter => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    assert!(quote.is_none(), "a quote has no end: {line}");
    words.extend(word);
    words
}

/// Whether these lines are those that are shown.
fn all_fit(shown: &[String], said: &[String]) -> bool {
    match (shown.split_first(), said.split_first()) {
        (None, _) => said.is_empty(),
        (Some((line, rest)), _) if line == "..." => {
            (0..=said.len()).any(|skipped| all_fit(rest, &said[skipped..]))
        }
        (Some((line, rest)), Some((first, others))) => fits(line, first) && all_fit(rest, others),
        (Some(_), None) => false,
    }
}

/// Whether a line is the one that is shown.
fn fits(shown: &str, said: &str) -> bool {
    let placed = PLACEHOLDERS
        .iter()
        .filter_map(|(name, accepts)| Some((shown.find(name)?, name.len(), accepts)));
    let Some((at, length, accepts)) = placed.min_by_key(|(at, ..)| *at) else {
        return shown == said;
    };
    let Some(rest) = said.strip_prefix(&shown[..at]) else {
        return false;
    };
    let ends = rest.char_indices().map(|(end, _)| end).chain([rest.len()]);
    ends.into_iter()
        .any(|end| accepts(&rest[..end]) && fits(&shown[at + length..], &rest[end..]))
}
