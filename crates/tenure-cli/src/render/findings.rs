//! What the checks of a verb found (`doctor`, `agent status`), as lines for people, as a list for programs, and as its
//! exit code.

use super::clean;
use super::colour::{paint, shows_colours};
use super::width::{pad, room_on_stdout, width};
use crate::exit::Exit;
use crate::failure::Failure;
use serde_json::{Value, json};
use std::io::stdout;

/// The column of a check's status.
const STATUS_COLUMNS: usize = 7;

/// A text is not broken into lines that are shorter than this.
const TEXT_COLUMNS_MIN: usize = 30;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Ok,
    /// Worth knowing; calls work.
    Note,
    /// Calls fail, or a promise does not hold.
    Wrong,
}

impl Status {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Wrong => "wrong",
        }
    }
}

/// A finding: what it is about, what was found, and one thing that mends it.
#[derive(Debug)]
pub(crate) struct Finding {
    /// Stable, for programs.
    pub(crate) about: &'static str,
    status: Status,
    pub(crate) message: String,
    fix: Option<String>,
}

/// Everything that was found.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<Finding>);

/// How the lines of an answer look.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    /// The column of what a check is about.
    pub(crate) label_columns: usize,
    pub(crate) before_fix: &'static str,
}

impl Findings {
    /// A check that found nothing.
    pub(crate) fn ok(&mut self, about: &'static str, message: impl AsRef<str>) {
        self.add(about, Status::Ok, message, None);
    }

    pub(crate) fn note(
        &mut self,
        about: &'static str,
        message: impl AsRef<str>,
        fix: impl Into<String>,
    ) {
        self.add(about, Status::Note, message, Some(fix.into()));
    }

    pub(crate) fn wrong(
        &mut self,
        about: &'static str,
        message: impl AsRef<str>,
        fix: impl Into<String>,
    ) {
        self.add(about, Status::Wrong, message, Some(fix.into()));
    }

    pub(crate) fn add(
        &mut self,
        about: &'static str,
        status: Status,
        message: impl AsRef<str>,
        fix: Option<String>,
    ) {
        self.0.push(Finding {
            about,
            status,
            message: clean(message.as_ref()).into_owned(),
            fix: fix.map(|fix| clean(&fix).into_owned()),
        });
    }

    /// Findings of something wrong.
    pub(crate) fn all_wrong(&self) -> impl Iterator<Item = &Finding> {
        (self.0.iter()).filter(|check| check.status == Status::Wrong)
    }

    /// Whether that check has found something wrong.
    pub(crate) fn is_wrong(&self, about: &str) -> bool {
        self.all_wrong().any(|check| check.about == about)
    }

    pub(super) fn count(&self, status: Status) -> usize {
        let of_status = self.0.iter().filter(|check| check.status == status);
        of_status.count()
    }

    /// For programs, which find what a check is about under this key.
    pub(crate) fn json(&self, about: &str) -> Value {
        let checks = self.0.iter().map(|check| {
            json!({
                about: check.about,
                "status": check.status.word(),
                "message": check.message,
                "fix": check.fix,
            })
        });
        checks.collect()
    }

    /// For people, without the last line's end.
    pub(crate) fn text(&self, form: Form, shows: impl Fn(Status) -> bool) -> String {
        let room = room_on_stdout();
        let mut text = String::new();
        for check in self.0.iter().filter(|check| shows(check.status)) {
            let mut word = pad(check.status.word(), STATUS_COLUMNS - 2);
            if shows_colours(&stdout()) {
                word = paint(&word, check.status.word());
            }
            word.push_str("  ");
            let label = check.about.replace('_', " ");
            let label = (label.as_str(), form.label_columns);
            line(&mut text, &word, label, &check.message, room);
            if let Some(fix) = &check.fix {
                let (before, said) = (pad("", STATUS_COLUMNS), format!("{}{fix}", form.before_fix));
                line(&mut text, &before, ("", form.label_columns), &said, room);
            }
        }
        text.truncate(text.trim_end().len());
        text
    }

    /// The answer: a success, unless something is wrong. `names` says whether the message names it.
    pub(crate) fn answer(
        &self,
        text: String,
        data: Value,
        names: bool,
    ) -> Result<(String, Value), Failure> {
        let wrong: Vec<_> = self.all_wrong().map(|check| check.about).collect();
        if wrong.is_empty() {
            return Ok((text, data));
        }
        let (count, all) = (wrong.len(), self.0.len());
        let mut message = format!("{count} of {all} checks found something wrong");
        if names {
            message = format!("{message}: {}", wrong.join(", "));
        }
        let mut failure = Failure::new(Exit::General, "SOMETHING_WRONG", message)
            .with_text(text)
            .with_context(data);
        failure.is_answer = true;
        Err(failure)
    }
}

/// A label and a text behind it, broken at spaces so that it fits.
pub(super) fn line(
    text: &mut String,
    before: &str,
    (label, columns): (&str, usize),
    said: &str,
    room: Option<usize>,
) {
    let indent = if before.is_empty() {
        columns
    } else {
        STATUS_COLUMNS + columns
    };
    text.push_str(before);
    text.push_str(&pad(label, columns));
    let room = room.map(|room| room.saturating_sub(indent).max(TEXT_COLUMNS_MIN));
    let lines = broken(said, room);
    text.push_str(&lines.join(&format!("\n{:indent$}", "")));
    text.push('\n');
}

fn broken(said: &str, room: Option<usize>) -> Vec<String> {
    let Some(room) = room else {
        return vec![said.to_owned()];
    };
    let mut lines = vec![String::new()];
    for word in said.split(' ') {
        let Some(last) = lines.last_mut() else {
            break;
        };
        if last.is_empty() {
            last.push_str(word);
        } else if width(last) + 1 + width(word) <= room {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_broken_at_spaces_and_only_where_it_has_to_be() {
        assert_eq!(broken("a b c", None), ["a b c"]);
        assert_eq!(broken("aa bb cc", Some(5)), ["aa bb", "cc"]);
        assert_eq!(broken("aaaaaaaa b", Some(5)), ["aaaaaaaa", "b"]);
    }
}
