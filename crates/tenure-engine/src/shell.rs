//! Finds the simple commands in a line of shell text. The text is data: nothing of it is run or expanded.
//!
//! The reader understands a small part of what bash, zsh and dash have in common: lists (`&&`, `||`, `;`, lines),
//! pipes, assignments in front, redirections, quotes, plain expansions (`$x`, `${x}`), comments. A text with
//! anything else is [`Line::Other`], whole: where one construct is not understood, no later character can be. So
//! what it says of a [`Line::Plain`] holds in each of these shells, and a test compares them.
//!
//! What cannot be known from a text: aliases and functions that the shell has before, and what a program does that
//! the text starts. `meant` has the wider question, which commands a text may run at all.

mod after;
mod lexer;
mod meant;
mod plain;
mod tree;
mod wrappers;

pub use after::{After, after, only_calls};
pub use meant::{Fit, FoundCommand, each, each_in, fits, written};
pub use plain::read;
pub use wrappers::{ends_with_its_command, is_shell};

/// A text, as far as it is understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// Each of its simple commands, in their order.
    Plain(Vec<Simple>),
    /// Text with a construct that is not understood.
    Other(Construct),
}

/// A simple command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Simple {
    /// Where it begins in the text, with what stands in front of its command word.
    pub from: usize,
    /// Where it ends.
    pub to: usize,
    /// The variables that are set in front of it.
    pub assigned: Vec<String>,
    /// The words; the first is the command word. None if it only sets variables or opens files.
    pub words: Vec<Word>,
    /// A redirection stands before the command word.
    pub redirects_first: bool,
    /// Whether the command reads from a pipe.
    pub is_piped: bool,
}

/// A word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// Where it begins in the text.
    pub at: usize,
    /// What it says after quotes are removed; `None` if a shell would expand it.
    pub text: Option<String>,
    /// The text as far as it is known: an expansion stands there as `$` and its name.
    pub shown: String,
    /// Some of it is quoted, or goes on in a new line.
    pub is_quoted: bool,
}

/// What a text may contain that is not looked into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Construct {
    /// `$( )`, backquotes, `$(( ))`, `<( )`.
    Substitution,
    /// A loop, a condition, a group, a subshell, a function, an array.
    Compound,
    /// `&`.
    Background,
    /// `<<`.
    HereDocument,
    /// `!`, `time` and other words that change the command behind them.
    Modifier,
    /// `alias`.
    Alias,
    /// A redirection that closes a file.
    Closing,
    /// `${ }` with more than a name, `$' '`.
    Expansion,
    /// More commands than are looked at one by one.
    Length,
    /// The text ends within quotes, or is no text that a shell takes.
    Broken,
}

impl Construct {
    /// What it is called in a sentence, behind "contains".
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Substitution => "a command substitution",
            Self::Compound => "a loop, a group or another compound command",
            Self::Background => "a command in the background",
            Self::HereDocument => "a here-document",
            Self::Modifier => "a word that changes the command behind it (!, time)",
            Self::Alias => "an alias",
            Self::Closing => "a redirection that closes a file",
            Self::Expansion => "an expansion that is not looked into",
            Self::Length => "more than 1000 commands",
            Self::Broken => "a quote or an operator without its end",
        }
    }
}

/// The last name of a command word: a program is meant by its name, wherever it lies.
pub fn program(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}
