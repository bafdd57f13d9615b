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
//! - A call stands behind `$`, and its further lines behind `>`. `tenure` is the program itself, with the first
//!   words that the transcript was given; another line is one of `sh`. Both run in the scene's folder.
//! - `? 4` is the exit code, and `? signal 9` the signal that ended it. Without such a line it is 0.
//! - All lines of stdout follow as they are, and those of stderr behind `!`. A line that is not shown must
//!   not be there. Blank lines in front of the next call separate it.
//! - `...` is any number of lines; [`PLACEHOLDERS`] are a part of one.
//! - `$ hold a: run x` starts a `run` whose command lasts until `$ end a`, which shows its answer. `$ start a: run x
//!   -- true` only starts it, and `$ queued 1 x` waits until so many stand in the queue of a lock. `$ ended a` waits for a
//!   `run` that ends without being let.
//!
//! A page ([`page`]) is a file of transcripts. `= a title` begins the next one, which has a scene of its own. In front
//! of the first title stand the words that mean something else on the page (`[NAME] = text`), the first words of the
//! program (`tenure = tenure --profile fleet`), and calls that prepare each scene. With `TRANSCRIPTS=write` in the
//! environment a page gets the answers that came; read the difference before you keep it.

use super::{Answer, Gate, Scene, Started, answer};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Whether a placeholder may stand for a text.
type Accepts = fn(&str) -> bool;

/// What differs from one run to the next.
const PLACEHOLDERS: [(&str, Accepts); 6] = [
    ("[..]", |_| true),
    ("[N]", |text| is_number(text)),
    // Request ids of the published formats, and those of documents and native locks.
    ("[ID]", |text| is_id(text, 12)),
    ("[REQUEST]", |text| is_id(text, 32)),
    ("[TIME]", |text| text.parse::<jiff::Timestamp>().is_ok()),
    ("[SPAN]", |text| {
        text.parse::<jiff::SignedDuration>().is_ok()
    }),
];

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_id(text: &str, length: usize) -> bool {
    let digits = text.strip_prefix("req_").unwrap_or_default();
    digits.len() == length && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Makes the calls of transcripts.
pub(crate) struct Caller<'a> {
    scene: &'a Scene,
    title: String,
    first: Vec<String>,
    known: Vec<(String, String)>,
    started: RefCell<BTreeMap<String, (Started, Option<Gate>)>>,
}

impl<'a> Caller<'a> {
    /// A caller of `tenure` with these first words.
    pub(crate) fn new(scene: &'a Scene, first: &[&str]) -> Self {
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy().into_owned();
        Self {
            scene,
            title: String::new(),
            first: first.iter().map(|&word| word.to_owned()).collect(),
            known: Vec::new(),
            started: RefCell::default(),
        }
        .knowing("[ROOT]", scene.root().display().to_string())
        .knowing("[HOST]", host)
        .knowing("[ME]", std::process::id().to_string())
    }

    /// The caller of a transcript in a scene that the head of its page has prepared.
    fn of_page(scene: &'a Scene, head: &str, title: &str) -> Self {
        let mut caller = Self::new(scene, &[]);
        let mut calls = String::new();
        for line in head.lines() {
            match line
                .split_once(" = ")
                .filter(|_| line.starts_with(['[', 't']))
            {
                Some(("tenure", first)) => {
                    let first = first.strip_prefix("tenure ").expect("its first words");
                    caller.first = words(first).0;
                }
                Some((word, meaning)) => caller = caller.knowing(word, meaning),
                None => {
                    let _ = writeln!(calls, "{line}");
                }
            }
        }
        title.clone_into(&mut caller.title);
        if !steps(&calls).is_empty() {
            caller.follows(&calls);
        }
        caller
    }

    /// Gives a word of transcripts that stands for something else.
    pub(crate) fn knowing(mut self, word: &str, meaning: impl Into<String>) -> Self {
        self.known.push((word.to_owned(), meaning.into()));
        self
    }

    /// Makes the calls of a transcript, and fails the test at the first whose answer is another one.
    #[track_caller]
    pub(crate) fn follows(&self, transcript: &str) {
        let steps = steps(&dedented(transcript));
        assert!(!steps.is_empty(), "a transcript has calls");
        let mut before = String::new();
        for step in steps {
            let (call, shown) = (
                self.meant(&step.call),
                Seen::shown(&self.meant(&step.answer)),
            );
            let seen = self.call(&call);
            assert!(
                shown.fits(&seen),
                "{}: expected\n$ {call}\n{}\nbut after\n{before}this came:\n$ {call}\n{}",
                self.title,
                shown.text(),
                seen.text()
            );
            let _ = write!(before, "$ {call}\n{}", seen.text());
        }
    }

    /// A transcript with the answers that came. A line that fits stays as it is, with its placeholders.
    fn renewed(&self, transcript: &str) -> String {
        let mut renewed = String::new();
        for step in steps(transcript) {
            let (raw, shown) = (
                Seen::shown(&step.answer),
                Seen::shown(&self.meant(&step.answer)),
            );
            let mut seen = self.call(&self.meant(&step.call));
            let _ = writeln!(
                renewed,
                "{}$ {}",
                step.lead,
                step.call.replace('\n', "\n> ")
            );
            if shown.fits(&seen) {
                renewed.push_str(&step.answer);
                continue;
            }
            for (raw, shown, said) in [
                (&raw.out, &shown.out, &mut seen.out),
                (&raw.errors, &shown.errors, &mut seen.errors),
            ] {
                for line in said {
                    *line = match shown.iter().position(|shown| fits(shown, line)) {
                        Some(at) => raw[at].clone(),
                        None => self
                            .known
                            .iter()
                            .fold(line.clone(), |line, (word, meaning)| {
                                line.replace(meaning, word)
                            }),
                    };
                }
            }
            renewed.push_str(&seen.text());
        }
        renewed
    }

    /// What a text says with the words replaced that stand for something else.
    fn meant(&self, text: &str) -> String {
        let words = self.known.iter().rev();
        words.fold(text.to_owned(), |text, (word, meaning)| {
            text.replace(word, meaning)
        })
    }

    fn call(&self, line: &str) -> Seen {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let answer = match verb {
            "hold" | "start" => {
                let (name, line) = rest.split_once(": ").expect("NAME: CALL");
                let gate = (verb == "hold").then(|| Gate::new(self.scene, name));
                let mut command = self.tenure(&words(line).0);
                if let Some(gate) = &gate {
                    let script = format!("{name}.held");
                    self.scene.write(&script, &gate.script(""));
                    command.args(["--", "sh", &script]);
                }
                let started = Started::piped(&mut command);
                let _ = gate.as_ref().map(Gate::entered);
                let before = (self.started.borrow_mut()).insert(name.to_owned(), (started, gate));
                assert!(before.is_none(), "{name} is there already");
                return Seen::default();
            }
            "end" | "ended" => {
                let started = self.started.borrow_mut().remove(rest);
                let (started, gate) = started.expect("it was started");
                gate.filter(|_| verb == "end").inspect(Gate::open);
                started.finish()
            }
            "queued" => {
                let (waiting, name) = rest.split_once(' ').expect("a number and a name");
                let waiting = waiting.parse().expect("a number");
                self.scene.until_queued(name, waiting);
                return Seen::default();
            }
            _ => self.answer(line),
        };
        Seen::of(&answer)
    }

    fn answer(&self, line: &str) -> Answer {
        let (words, is_whole) = words(line);
        let is_variable = |word: &String| word.contains('=') && !word.starts_with('-');
        let variables = words.iter().take_while(|word| is_variable(word)).count();
        let is_tenure = words.get(variables).is_some_and(|word| word == "tenure");
        let mut command = if is_tenure {
            assert!(is_whole, "a quote has no end: {line}");
            let mut command = self.tenure(&words[variables + 1..]);
            for variable in &words[..variables] {
                let (name, value) = variable.split_once('=').expect("a variable");
                command.env(name, value);
            }
            command
        } else {
            let mut command: Command = self.scene.program("sh");
            command.args(["-c", line]).current_dir(self.scene.root());
            // A line of many calls has no bound of its own: the runner ends a test that hangs.
            return Answer(command.output().expect("a shell"));
        };
        let answer = answer(&mut command);
        for said in [answer.stdout(), answer.stderr()] {
            let is_whole = said.is_empty() || said.ends_with('\n') || !is_tenure;
            assert!(is_whole, "the last line has no end: {}", answer.said());
        }
        answer
    }

    fn tenure(&self, words: &[String]) -> Command {
        let mut command = self.scene.tenure(self.first.iter().chain(words));
        command.current_dir(self.scene.root());
        command
    }
}

/// Follows each transcript of a page, a few of them at once.
#[track_caller]
pub(crate) fn page(name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/pages");
    let file = folder.join(format!("{name}.txt"));
    let text = fs::read_to_string(&file).expect("a page");
    let (head, tests) = text.split_once("\n= ").expect("a title");
    let tests: Vec<&str> = tests.split("\n= ").collect();
    let is_renewed = std::env::var("TRANSCRIPTS").is_ok_and(|it| it == "write");
    let (next, renewed) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let follow = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(test) = tests.get(at) else { break };
            let (title, transcript) = test.split_once('\n').expect("a title");
            let scene = Scene::new();
            let caller = Caller::of_page(&scene, head, title);
            if is_renewed {
                let text = caller.renewed(transcript);
                let text = format!("{title}\n{}\n", text.trim_end_matches('\n'));
                let _ = renewed.lock().expect("no failure").insert(at, text);
            } else {
                caller.follows(transcript);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(follow);
        }
    });
    if is_renewed {
        let renewed = renewed.into_inner().expect("no failure");
        let tests: Vec<String> = renewed.into_values().collect();
        fs::write(file, format!("{head}\n= {}", tests.join("\n= "))).expect("a page");
    }
}

/// A call, and the answer that is expected.
#[derive(Debug, Default)]
struct Step {
    /// The comments and blank lines before it.
    lead: String,
    call: String,
    answer: String,
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

    /// As a transcript shows it.
    fn shown(text: &str) -> Self {
        let mut shown = Self::default();
        for line in text.lines() {
            if let Some(end) = line.strip_prefix("? ") {
                end.clone_into(&mut shown.end);
            } else if let Some(error) = line.strip_prefix('!') {
                let error = error.strip_prefix(' ').unwrap_or(error);
                shown.errors.push(error.to_owned());
            } else {
                shown.out.push(line.to_owned());
            }
        }
        shown
    }

    fn text(&self) -> String {
        let mut text = String::new();
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

    fn fits(&self, seen: &Self) -> bool {
        self.end == seen.end && all_fit(&self.out, &seen.out) && all_fit(&self.errors, &seen.errors)
    }
}

/// The transcript without the indentation that its first line has.
fn dedented(transcript: &str) -> String {
    let mut lines = transcript
        .lines()
        .skip_while(|line| line.trim().is_empty())
        .peekable();
    let first = lines.peek().copied().unwrap_or_default();
    let indent = first.len() - first.trim_start().len();
    let line = |line: &str| {
        if line.trim().is_empty() {
            return "\n".to_owned();
        }
        let (before, rest) = line.split_at_checked(indent).expect("an indented line");
        assert!(before.trim().is_empty(), "an indented line: {line:?}");
        format!("{rest}\n")
    };
    lines.map(line).collect()
}

fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lead = String::new();
    for line in text.lines() {
        if let Some(call) = line.strip_prefix("$ ") {
            steps.push(Step {
                lead: std::mem::take(&mut lead),
                call: call.to_owned(),
                answer: String::new(),
            });
        } else if line.is_empty() || line.starts_with('#') {
            let _ = writeln!(lead, "{line}");
        } else {
            let step = steps.last_mut().expect("a call comes first");
            match line.strip_prefix("> ") {
                Some(call) if step.answer.is_empty() => {
                    let _ = write!(step.call, "\n{call}");
                }
                // Blank lines in the middle of an answer belong to it.
                _ => {
                    let _ = writeln!(step.answer, "{}{line}", std::mem::take(&mut lead));
                }
            }
        }
    }
    steps
}

/// The words of a line, as a shell reads quotes, and whether each quote has its end.
fn words(line: &str) -> (Vec<String>, bool) {
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
    words.extend(word);
    (words, quote.is_none())
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
