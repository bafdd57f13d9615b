//! `install` and `uninstall`: which files change, in which order, and what is left if one of them fails.
//!
//! Everything is read and decided before anything changes, so a file that cannot be changed is refused while all
//! are as they were. The hooks come last and go first: they name the skill's locks, and not the other way round.
//! If a file fails all the same, the files before it get their old texts back. The end of an installation takes
//! out what it can: a file that fails keeps no other one, is named, and stays as it is for the next call.
//!
//! A file may change between the reading and the writing. Then all is decided anew, a few times.

use super::entries::{Kind, Words, is_blank, is_empty_object};
use super::files::{self, Hindered, Settled, Target, remove_empty};
use super::receipts::{Receipt, Receipts};
use crate::args::value::AgentHost as Host;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::host::{Reach, Roots};
use crate::render::clean_path;
use serde_json::{Value, json};
use similar::TextDiff;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often everything is decided anew because other programs change a file meanwhile.
const TURNS_MAX: usize = 5;

/// How long the shortest difference is looked for; after that a longer one is shown.
const DIFFERENCE: Duration = Duration::from_secs(1);

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    Install,
    Uninstall,
}

/// What becomes of one file.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) kind: Kind,
    target: Target,
    new: Option<String>,
    /// The receipt that there is, and the one that is kept; `None` if none is.
    known: Option<Receipt>,
    receipt: Option<Receipt>,
    /// Folders that go if they are empty.
    folders: Vec<PathBuf>,
    /// Why it is left as it is although it is not as it should be.
    pub(super) left: Option<String>,
    /// What failed at the end of an installation. It does not keep the other files.
    pub(super) hindered: Option<Failure>,
}

impl Step {
    /// A file that stays as it is, so far.
    fn of(kind: Kind, target: Target, known: Option<Receipt>) -> Self {
        Self {
            kind,
            new: target.text.clone(),
            receipt: known.clone(),
            known,
            folders: Vec::new(),
            left: None,
            hindered: None,
            target,
        }
    }

    /// The file stays as it is, for this reason.
    fn stays(&mut self, failure: Failure) {
        self.left = Some(failure.message.clone());
        self.hindered = Some(failure);
    }

    fn changes(&self) -> bool {
        self.target.text != self.new
    }

    /// What is done with the file, as a word for programs.
    pub(super) fn word(&self) -> &'static str {
        match (&self.target.text, &self.new) {
            _ if self.left.is_some() => "left",
            (old, new) if old == new => "unchanged",
            (None, _) => "made",
            (_, None) => "removed",
            _ => "changed",
        }
    }

    /// Whether the file is another one now.
    pub(super) fn is_done(&self) -> bool {
        !matches!(self.word(), "left" | "unchanged")
    }

    pub(super) fn shown(&self) -> String {
        clean_path(&self.target.named)
    }

    /// What would become of the file, as `diff -u` shows it.
    pub(super) fn difference(&self) -> String {
        let (old, new) = (self.target.text.as_deref(), self.new.as_deref());
        let file = self.shown();
        let named = |text: Option<&str>| {
            if text.is_some() {
                file.as_str()
            } else {
                "/dev/null"
            }
        };
        TextDiff::configure()
            .timeout(DIFFERENCE)
            .diff_lines(old.unwrap_or_default(), new.unwrap_or_default())
            .unified_diff()
            .header(named(old), named(new))
            .to_string()
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "kind": self.kind.word(),
            "file": self.target.named.display().to_string(),
            "change": self.word(),
            "because": self.left,
        })
    }
}

/// The files of a host, in the order of an installation.
pub(super) fn files_of(host: Host, reach: Reach, roots: &Roots) -> Vec<(Kind, PathBuf)> {
    let mut files = vec![(Kind::Skill, host.skill_file(reach, roots))];
    let server = host.server_file(reach, roots);
    files.extend(server.map(|file| (Kind::of_server(&file), file)));
    files.push((Kind::Hooks, host.hooks_file(reach, roots)));
    files
}

/// An installation, or its end.
pub(super) struct Installation<'a> {
    pub(super) task: Task,
    pub(super) words: &'a Words,
    pub(super) files: &'a [(Kind, PathBuf)],
    pub(super) receipts: &'a Receipts,
    pub(super) roots: &'a Roots,
}

impl Installation<'_> {
    /// What would become of the files. A call that could do nothing is refused.
    pub(super) fn decide(&self) -> Result<Vec<Step>, Failure> {
        let mut steps = self.decide_anew()?;
        if !steps.iter().any(Step::changes)
            && let Some(failure) = steps.iter_mut().find_map(|step| step.hindered.take())
        {
            return Err(failure);
        }
        Ok(steps)
    }

    /// What would become of the files of a call that goes on, and may have done a part.
    fn decide_anew(&self) -> Result<Vec<Step>, Failure> {
        let step = |(kind, file): &(Kind, PathBuf)| -> Result<Step, Failure> {
            let target = Target::at(file, &self.roots.above(file))?;
            let known = self.receipts.of(&target.path);
            let mut step = Step::of(*kind, target, known);
            let decided = match self.task {
                Task::Install => installed(self.words, &mut step),
                Task::Uninstall => uninstalled(self.words, &mut step),
            };
            decided.map_err(|why| {
                let file = clean_path(file);
                Failure::bad_arguments(format!("{file} is left as it is: {why}"))
            })?;
            Ok(step)
        };
        if self.task == Task::Install {
            return self.files.iter().map(step).collect();
        }
        // What can be taken out is: one file that cannot be read does not keep the hooks in another one.
        let steps = self.files.iter().rev().map(|entry| {
            step(entry).unwrap_or_else(|failure| {
                let mut step = Step::of(entry.0, Target::unread(&entry.1), None);
                step.stays(failure);
                step
            })
        });
        Ok(steps.collect())
    }

    /// Decides and carries out, under the user's lock; what belongs to it but is no file comes last, under the same lock.
    pub(super) fn carry_out<T>(&self, last: impl FnOnce() -> T) -> Result<Done<T>, Failure> {
        // What is refused is refused before a folder is made for the lock.
        self.decide()?;
        let _lock = self.receipts.lock()?;
        let (mut turns, mut kept) = (0, Vec::new());
        let mut before: Vec<Step> = Vec::new();
        loop {
            turns += 1;
            let mut steps = self.decide_anew()?;
            if self.settle(&mut steps, &mut kept)? && turns < TURNS_MAX {
                continue;
            }
            if self.task == Task::Uninstall {
                let anew = take_out(&mut steps, self.receipts);
                // A file that an earlier turn has done has nothing left to do.
                for step in &mut steps {
                    let done = |other: &Step| other.target.named == step.target.named;
                    if step.word() == "unchanged"
                        && let Some(done) = before.iter().position(done)
                    {
                        *step = before.swap_remove(done);
                    }
                }
                if anew && turns < TURNS_MAX {
                    steps.retain(|step| step.left.is_none());
                    before = steps;
                    continue;
                }
                let last = last();
                return Ok(Done { steps, last, kept });
            }
            match apply(steps, self.receipts) {
                Ok(steps) => {
                    let last = last();
                    return Ok(Done { steps, last, kept });
                }
                Err((_, true)) if turns < TURNS_MAX => {}
                Err((mut failure, _)) => {
                    if let Ok(mut steps) = self.decide() {
                        let _ = self.settle(&mut steps, &mut kept);
                    }
                    for kept in kept {
                        failure.message = format!("{}; {kept}", failure.message);
                    }
                    return Err(failure);
                }
            }
        }
    }

    /// Clears the names beside the files. Tells whether a file is to be read anew.
    fn settle(&self, steps: &mut [Step], kept: &mut Vec<String>) -> Result<bool, Failure> {
        let words = self.words;
        let mut anew = false;
        for step in steps.iter_mut().filter(|step| step.hindered.is_none()) {
            let current = &step.target.text;
            // A death may have cut a text of ours short, or have come between an exchange and the end of the old text:
            // then the file has all that the old text has.
            let is_known = |text: &str| {
                let fresh = words.fresh(step.kind);
                let of_receipt = step.known.as_ref().is_some_and(|receipt| {
                    receipt.knows(text) || receipt.before.as_deref() == Some(text)
                });
                let becomes = |other: Result<String, String>| other.ok() == *current;
                current.as_deref() == Some(text)
                    || step.new.as_ref().is_some_and(|new| new.starts_with(text))
                    || fresh.starts_with(text)
                    || of_receipt
                    || (step.kind != Kind::Skill
                        && current.is_some()
                        && (becomes(words.put(step.kind, text))
                            || becomes(words.take_out(step.kind, text))))
            };
            match step.target.settle(is_known) {
                Err(failure) if self.task == Task::Uninstall => step.stays(failure),
                Err(failure) => return Err(failure),
                Ok(Settled::Clear) => {}
                Ok(Settled::PutBack) => anew = true,
                Ok(Settled::Kept(path)) => kept.push(format!(
                    "what another program wrote to {} meanwhile is kept in {}",
                    step.shown(),
                    clean_path(&path)
                )),
            }
        }
        Ok(anew)
    }
}

fn installed(words: &Words, step: &mut Step) -> Result<(), String> {
    let (kind, old, known) = (step.kind, step.target.text.clone(), step.known.clone());
    let is_ours = |text: &str| known.as_ref().is_some_and(|receipt| receipt.knows(text));
    let new = match &old {
        None => words.fresh(kind),
        Some(text) => words.put(kind, text)?,
    };
    if let (Kind::Skill, Some(text)) = (kind, &old)
        && *text != new
        && !is_blank(text)
        && !is_ours(text)
    {
        step.left = Some("another text stands there; remove it to get tenure's".to_owned());
        return Ok(());
    }
    if old.as_ref() == Some(&new) {
        return Ok(());
    }
    // What stands there without ours is what the end of the installation gives back.
    let mut receipt = match (known, &old) {
        (Some(receipt), Some(text)) if receipt.knows(text) => receipt,
        (known, old) => {
            let before = old.as_ref().map(|text| words.take_out(kind, text));
            let before = before.transpose()?;
            // A call that died may have made some of the folders.
            let mut folders = known.map_or_else(Vec::new, |known| known.folders);
            let missing = step.target.missing_folders().into_iter();
            folders.extend(
                missing
                    .filter(|folder| !folders.contains(folder))
                    .collect::<Vec<_>>(),
            );
            folders.sort();
            Receipt::new(&step.target.path, before, folders)
        }
    };
    receipt.add(&new);
    step.receipt = Some(receipt);
    step.new = Some(new);
    Ok(())
}

fn uninstalled(words: &Words, step: &mut Step) -> Result<(), String> {
    let (kind, known) = (step.kind, step.known.clone());
    step.receipt = None;
    let folders = known.as_ref().map(|known| known.folders.clone());
    step.folders = folders.unwrap_or_default();
    let Some(text) = step.target.text.clone() else {
        return Ok(());
    };
    let was_made = known.as_ref().is_none_or(|known| known.before.is_none());
    if let Some(known) = known.as_ref().filter(|known| known.knows(&text)) {
        step.new.clone_from(&known.before);
    } else if text == words.fresh(kind) && was_made {
        step.new = None;
    } else if kind == Kind::Skill {
        step.folders.clear();
        step.left = Some("it was changed; remove it by hand if it is not wanted".to_owned());
    } else {
        let rest = words.take_out(kind, &text)?;
        let is_empty = is_blank(&rest) || is_empty_object(&rest);
        let made_by_us = known.is_some_and(|known| known.before.is_none());
        step.new = (!(is_empty && made_by_us)).then_some(rest);
    }
    if kind == Kind::Skill && step.new.is_none() {
        // The folder has the name that the skill's has to have, so it is no other program's.
        let folder = step.target.path.parent().map(Path::to_owned);
        let folder = folder.filter(|folder| !step.folders.contains(folder));
        step.folders.extend(folder);
    }
    if step.new.is_some() {
        step.folders.clear();
    }
    Ok(())
}
/// What was done.
#[derive(Debug)]
pub(super) struct Done<T> {
    pub(super) steps: Vec<Step>,
    pub(super) last: T,
    /// Sentences about other programs' texts that have another name now.
    pub(super) kept: Vec<String>,
}

/// Takes tenure out of each file that can be written. What is out stays out, and each failure is kept with its file. Tells
/// whether another program has changed a file meanwhile.
fn take_out(steps: &mut [Step], receipts: &Receipts) -> bool {
    let mut anew = false;
    for step in steps.iter_mut().filter(|step| step.hindered.is_none()) {
        let Err(failed) = apply_one(step, receipts) else {
            continue;
        };
        anew |= matches!(failed, Failed::File(Hindered::Changed));
        match failed.at(&step.target.named) {
            (failure, true) => step.hindered = Some(failure),
            (failure, false) => step.stays(failure),
        }
    }
    anew
}

/// Carries the steps of an installation out. The failure comes with whether another try may help: a file has changed
/// meanwhile, and all files are as they were.
fn apply(mut steps: Vec<Step>, receipts: &Receipts) -> Result<Vec<Step>, (Failure, bool)> {
    for at in 0..steps.len() {
        let Some(step) = steps.get_mut(at) else {
            break;
        };
        let Err(failed) = apply_one(step, receipts) else {
            continue;
        };
        let file = step.target.named.clone();
        // How many files have their new texts, as far as `undo` has to care.
        let written = at + usize::from(matches!(failed, Failed::File(Hindered::Unsynced(_))));
        let may_help = matches!(failed, Failed::File(Hindered::Changed));
        let (failure, _) = failed.at(&file);
        return Err(match undo(&mut steps, at, written, receipts) {
            Ok(()) => (failure, may_help),
            Err(_) if may_help => (failure, true),
            Err(state) => {
                let mut partial = Failure::new(
                    Exit::Partial,
                    "PARTIAL",
                    format!("{}; {state}", failure.message),
                );
                partial.partial = true;
                (partial, false)
            }
        });
    }
    Ok(steps)
}

enum Failed {
    File(Hindered),
    /// What belongs to the file: its receipt, or a folder that was made for it.
    Rest(Box<Failure>),
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self::Rest(Box::new(failure))
    }
}

impl Failed {
    /// The failure, and whether the file has its new text all the same.
    fn at(self, file: &Path) -> (Failure, bool) {
        let (error, is_written) = match self {
            Self::Rest(failure) => return (*failure, true),
            Self::File(Hindered::Changed) => {
                let error = std::io::Error::other("another program changes it all the time");
                (error, false)
            }
            Self::File(Hindered::Failed(error)) => (error, false),
            // The file has its new text, which may not outlive a loss of power.
            Self::File(Hindered::Unsynced(error)) => (error, true),
        };
        (files::failed(file, "written", &error), is_written)
    }
}

fn apply_one(step: &mut Step, receipts: &Receipts) -> Result<(), Failed> {
    let file = step.target.path.clone();
    // On the way in the receipt is first on disk, and on the way out it is there for longest.
    if step.receipt.is_some() && step.changes() {
        receipts.keep(&file, step.receipt.as_ref())?;
    }
    if step.changes() {
        let old = step.target.text.clone();
        let done = step.target.replace(step.new.as_deref());
        // The answer tells what was there before.
        step.target.text = old;
        done.map_err(Failed::File)?;
    }
    // The receipt knows the folders, so it stays while one of them could not be removed.
    remove_empty(&step.folders)?;
    if step.receipt.is_none() && step.left.is_none() {
        receipts.keep(&file, None)?;
    }
    Ok(())
}

/// Gives the files that are written their old texts back, the one that failed among them if its new text is in
/// place. The error says which still have ours.
fn undo(steps: &mut [Step], at: usize, written: usize, receipts: &Receipts) -> Result<(), String> {
    let mut still = Vec::new();
    for (place, step) in steps.iter_mut().enumerate().take(at + 1).rev() {
        if !step.changes() {
            continue;
        }
        let folders = step.receipt.as_ref().map(|receipt| receipt.folders.clone());
        if place < written {
            // `apply` has put the old text there for the answer; on disk is the new one.
            let old = std::mem::replace(&mut step.target.text, step.new.clone());
            match step.target.replace(old.as_deref()) {
                Ok(()) => {}
                // A loss of power may bring the new text back, so its receipt stays.
                Err(Hindered::Unsynced(_)) => continue,
                Err(_) => {
                    still.push(step.shown());
                    continue;
                }
            }
        }
        let _ = receipts.keep(&step.target.path, step.known.as_ref());
        let _ = remove_empty(&folders.unwrap_or_default());
    }
    if still.is_empty() {
        Ok(())
    } else {
        Err(["tenure stays installed in ", &still.join(", ")].concat())
    }
}
