//! Whether a text has work to do after a command in it has succeeded: the shell of such a text lives on with the work.
//!
//! The text is followed from that command on, as a shell would that got 0: past failure branches, and out of loops that
//! only try again. What is not understood counts as work, for a shell that owns a lock too long can be seen.

use super::program;

/// What a text does after the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// More work.
    Work,
    /// No work: the text ends, or only says how the command has ended.
    Nothing,
    /// Unknown: the text does not show the command.
    Unseen,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    /// `;` (also for a new line), `&`, `&&`, `||`, `|`, `(`, `)`.
    Sign(&'static str),
}

/// What `text` does after the first command of this program with this verb.
pub fn after(text: &str, name: &str, verb: &str) -> After {
    let tokens = tokens(text);
    let begins = (0..tokens.len()).filter(|at| is_at_start(&tokens, *at));
    for from in begins {
        let command = words(&tokens, from);
        let mut rest = command.iter().skip_while(|word| program(word) != name);
        if rest.next().is_some() && rest.any(|word| *word == verb) {
            return Walk::from(&tokens, from).follow();
        }
    }
    After::Unseen
}

/// Whether a simple command, or a keyword before one, begins here.
fn is_at_start(tokens: &[Token], at: usize) -> bool {
    matches!(tokens.get(at), Some(Token::Word(_)))
        && !matches!(
            at.checked_sub(1).and_then(|before| tokens.get(before)),
            Some(Token::Word(_))
        )
}

/// The words from here to the next sign.
fn words(tokens: &[Token], from: usize) -> Vec<&str> {
    let rest = tokens.get(from..).unwrap_or_default().iter();
    let words = rest.map_while(|token| match token {
        Token::Word(word) => Some(word.as_str()),
        Token::Sign(_) => None,
    });
    words.collect()
}

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut word = String::new();
    let mut signs = text.chars().peekable();
    let end = |word: &mut String, tokens: &mut Vec<Token>| {
        if !word.is_empty() {
            tokens.push(Token::Word(std::mem::take(word)));
        }
    };
    while let Some(sign) = signs.next() {
        match sign {
            '\'' => word.extend(signs.by_ref().take_while(|sign| *sign != '\'')),
            '"' => {
                let mut quoted = String::new();
                while let Some(sign) = signs.next().filter(|sign| *sign != '"') {
                    quoted.push(sign);
                    if sign == '\\' {
                        quoted.extend(signs.next());
                    }
                }
                if quoted.contains("$(") || quoted.contains('`') {
                    end(&mut word, &mut tokens);
                    tokens.push(Token::Sign("("));
                    tokens.extend(self::tokens(&quoted));
                    tokens.push(Token::Sign(")"));
                } else {
                    word.push_str(&quoted);
                    // An empty text is a word as well.
                    word.push(' ');
                }
            }
            '\\' => {
                if let Some(next) = signs.next().filter(|next| *next != '\n') {
                    word.push(next);
                }
            }
            '#' if word.is_empty() => drop(signs.by_ref().take_while(|sign| *sign != '\n').count()),
            ' ' | '\t' | '\r' => end(&mut word, &mut tokens),
            ';' | '\n' | '(' | ')' | '`' | '|' => {
                end(&mut word, &mut tokens);
                let twice = signs.next_if_eq(&sign).is_some();
                tokens.push(Token::Sign(match (sign, twice) {
                    ('|', true) => "||",
                    ('|', false) => {
                        signs.next_if_eq(&'&');
                        "|"
                    }
                    ('(', _) => "(",
                    (')', _) => ")",
                    _ => ";",
                }));
                if twice && matches!(sign, '(' | ')') {
                    tokens.extend(tokens.last().cloned());
                }
            }
            '&' if word.ends_with(['>', '<']) || signs.peek() == Some(&'>') => word.push(sign),
            '&' => {
                end(&mut word, &mut tokens);
                let twice = signs.next_if_eq(&'&').is_some();
                tokens.push(Token::Sign(if twice { "&&" } else { "&" }));
            }
            _ => word.push(sign),
        }
    }
    end(&mut word, &mut tokens);
    for token in &mut tokens {
        if let Token::Word(word) = token {
            *word = word.trim_end().to_owned();
        }
    }
    tokens
}

/// The way of a shell through the tokens, from a command on that succeeds.
struct Walk<'a> {
    tokens: &'a [Token],
    at: usize,
    /// Whether the present list has succeeded; `None` where that is not known.
    is_good: Option<bool>,
    /// The condition of which the command is a part, until its branch is chosen.
    condition: Option<&'a str>,
}

/// Words after which a command follows.
const BEFORE_COMMAND: [&str; 10] = [
    "if", "elif", "while", "until", "then", "else", "do", "!", "{", "time",
];

impl<'a> Walk<'a> {
    /// Past the command that begins here.
    fn from(tokens: &'a [Token], from: usize) -> Self {
        let command = words(tokens, from);
        let keywords = command
            .iter()
            .copied()
            .take_while(|word| BEFORE_COMMAND.contains(word));
        let (mut is_good, mut condition) = (true, None);
        for word in keywords {
            match word {
                "!" => is_good = !is_good,
                "if" | "elif" | "while" | "until" => condition = Some(word),
                _ => {}
            }
        }
        Self {
            tokens,
            at: from + command.len(),
            is_good: Some(is_good),
            condition,
        }
    }

    fn follow(mut self) -> After {
        while let Some(token) = self.tokens.get(self.at) {
            let Token::Sign(sign) = token else {
                match self.word() {
                    Some(after) => return after,
                    None => continue,
                }
            };
            self.at += 1;
            match *sign {
                "|" => self.skip_command(),
                "&&" if self.is_good == Some(false) => self.skip_command(),
                "||" if self.is_good == Some(true) => self.skip_command(),
                ";" | "&" if self.condition.is_none() => self.is_good = None,
                _ => {}
            }
        }
        After::Nothing
    }

    /// A command, or a word of a construct. An answer if it decides.
    fn word(&mut self) -> Option<After> {
        let command = words(self.tokens, self.at);
        let word = command.first().copied().unwrap_or_default();
        match word {
            "then" | "do" => {
                let is_good = self.is_good.take();
                let enters = match self.condition.take() {
                    Some("until") => is_good != Some(true),
                    Some(_) => is_good != Some(false),
                    None => true,
                };
                if enters {
                    self.at += 1;
                } else {
                    self.skip_to(if word == "do" {
                        &["done"]
                    } else {
                        &["else", "elif", "fi"]
                    });
                }
            }
            // The branch before it was the one.
            "else" | "elif" => {
                self.at += 1;
                self.skip_to(&["fi"]);
            }
            "!" | "{" | "time" => self.at += 1,
            "exit" | "return" | "continue" => return Some(After::Nothing),
            "break" => self.skip_to(&["done"]),
            _ if is_work(&command) => return Some(After::Work),
            _ => self.at += command.len(),
        }
        None
    }

    /// Skips one command, whole: with its pipe, and with all of a construct.
    fn skip_command(&mut self) {
        loop {
            match self.tokens.get(self.at) {
                Some(Token::Sign("(")) => self.skip_group(),
                Some(Token::Word(word)) => match word.as_str() {
                    "{" => {
                        self.at += 1;
                        self.skip_to(&["}"]);
                    }
                    "if" => self.skip_past("fi"),
                    "while" | "until" | "for" | "select" => self.skip_past("done"),
                    "case" => self.skip_past("esac"),
                    _ => self.at += words(self.tokens, self.at).len(),
                },
                _ => {}
            }
            match self.tokens.get(self.at) {
                Some(Token::Sign("|")) => self.at += 1,
                // Words behind a group are redirections.
                Some(Token::Word(_)) => self.at += words(self.tokens, self.at).len(),
                Some(Token::Sign("(")) => {}
                _ => return,
            }
        }
    }

    fn skip_past(&mut self, end: &str) {
        self.at += 1;
        self.skip_to(&[end]);
    }

    /// Skips to behind the word that ends this construct, and past those within it. Stops behind `else`, and before
    /// `elif`, whose condition is to be read.
    fn skip_to(&mut self, ends: &[&str]) {
        let mut depth = 0_usize;
        while let Some(token) = self.tokens.get(self.at) {
            let starts = is_at_start(self.tokens, self.at)
                || matches!(self.at.checked_sub(1).and_then(|at| self.tokens.get(at)),
                    Some(Token::Word(before)) if BEFORE_COMMAND.contains(&before.as_str()));
            self.at += 1;
            let Token::Word(word) = token else { continue };
            if !starts && word != "}" {
                continue;
            }
            match word.as_str() {
                word if depth == 0 && ends.contains(&word) => return,
                "if" | "while" | "until" | "for" | "select" | "case" | "{" => depth += 1,
                "fi" | "done" | "esac" | "}" => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
    }

    fn skip_group(&mut self) {
        let mut depth = 0_usize;
        while let Some(token) = self.tokens.get(self.at) {
            self.at += 1;
            match token {
                Token::Sign("(") => depth += 1,
                Token::Sign(")") => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return;
                    }
                }
                _ => {}
            }
        }
    }
}

/// Whether a command is work: not what ends a construct, says something, or keeps house in the shell. What waits for
/// other processes or for input is work.
fn is_work(command: &[&str]) -> bool {
    const NONE: [&str; 26] = [
        "", "}", "done", "fi", "esac", "true", "false", ":", "echo", "printf", "set", "export",
        "test", "[", "[[", "cd", "logger", "unset", "trap", "shift", "local", "umask", "date",
        "if", "while", "until",
    ];
    let word = command.first().copied().unwrap_or_default();
    let is_name = |name: &str| {
        name.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let is_assignment = word.split_once('=').is_some_and(|(name, _)| is_name(name));
    let behind = word.trim_start_matches(|sign: char| sign.is_ascii_digit());
    // Without a file it waits for its input.
    let shows_file = word == "cat" && command.get(1).is_some_and(|file| !file.starts_with('-'));
    !NONE.contains(&word) && !is_assignment && !behind.starts_with(['<', '>']) && !shows_file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_shell_shows_what_it_has_to_do_after_the_call() {
        use After::{Nothing, Unseen, Work};
        for (text, expected) in [
            ("tenure acquire x", Nothing),
            ("cd y && tenure acquire x", Nothing),
            ("tenure -q acquire gpu --slots 2 | tee log", Nothing),
            ("timeout 5 /usr/bin/tenure --dir d acquire x", Nothing),
            ("tenure acquire x && work; tenure release x", Work),
            ("tenure acquire x | sed s/a/b/; work", Work),
            ("tenure acquire x || exit 1", Nothing),
            ("tenure acquire x || exit 1; work", Work),
            ("tenure acquire x || { logger failed; exit 1; }", Nothing),
            ("tenure acquire x || { mail me; exit 1; }; work", Work),
            ("tenure acquire x || (mail me; exit 1)\nwork", Work),
            ("tenure acquire x && echo got || echo refused", Nothing),
            ("tenure acquire x && echo got || mail me", Nothing),
            ("set -e; tenure acquire x; exit $?", Nothing),
            ("tenure acquire x; exit $?; work", Nothing),
            ("id=$(tenure acquire x); echo $id >id.txt", Nothing),
            ("id=\"$(tenure acquire x)\" && work \"$id\"", Work),
            ("id=`tenure acquire x`; work", Work),
            ("id=$(tenure acquire x)", Nothing),
            ("echo $(tenure acquire x 2>&1)", Nothing),
            ("if ! tenure acquire x; then exit 1; fi", Nothing),
            ("if ! tenure acquire x; then mail me; exit 1; fi", Nothing),
            (
                "if ! tenure acquire x; then mail me; exit 1; fi; work",
                Work,
            ),
            ("if ! tenure acquire x; then mail me; else work; fi", Work),
            ("if tenure acquire x; then work; else echo no; fi", Work),
            (
                "if tenure acquire x; then echo yes; else mail me; fi",
                Nothing,
            ),
            ("if tenure acquire x; then work; fi", Work),
            ("until tenure acquire x -n; do sleep 1; done", Nothing),
            ("until tenure acquire x -n; do sleep 1; done; work", Work),
            ("while ! tenure acquire x -n; do sleep 1; done", Nothing),
            ("while ! tenure acquire x; do sleep 1; done && work", Work),
            (
                "while tenure acquire x; do work; tenure release x; done",
                Work,
            ),
            ("for i in 1 2; do tenure acquire x; done", Nothing),
            ("for i in 1 2; do tenure acquire x; work; done", Work),
            (
                "for i in 1 2 3; do tenure acquire x -n && exit 0; sleep 1; done; exit 1",
                Nothing,
            ),
            (
                "for i in 1 2 3; do tenure acquire x -n && break; sleep 1; done",
                Nothing,
            ),
            (
                "for i in 1 2 3; do tenure acquire x -n && break; sleep 1; done; work",
                Work,
            ),
            (
                "for i in 1 2; do if tenure acquire x; then break; fi; sleep 1; done; work",
                Work,
            ),
            ("tenure acquire x >o; cat o", Nothing),
            ("tenure acquire x --why \"$(date; hostname)\"", Work),
            ("tenure acquire x; cat", Work),
            ("tenure acquire x >&2; cat -", Work),
            ("work & tenure acquire x; wait", Work),
            ("tenure acquire x; echo Enter ends it; read _", Work),
            ("tenure acquire x; exec ./server", Work),
            ("tenure acquire x --why 'a; b'", Nothing),
            ("tenure acquire x --why \"a; work\" 2>&1", Nothing),
            ("tenure acquire x >/dev/null 2>&1 || true; sleep 5", Work),
            ("tenure acquire x; tenure release x", Work),
            ("tenure acquire x\nwork", Work),
            ("tenure acquire x # work", Nothing),
            ("tenure acquire a; tenure acquire b", Work),
            ("tenure acquire x & work", Work),
            (
                "trap 'tenure release x' EXIT; tenure acquire x; ./deploy",
                Work,
            ),
            ("(tenure acquire x; work)", Work),
            ("{ tenure acquire x && echo ok; } 2>&1 | tee log", Nothing),
            ("f() { tenure acquire x; }; f; work", Work),
            ("sh -c 'cd y && tenure acquire x'; work", Unseen),
            ("./job.sh", Unseen),
            ("tenure check x; work", Unseen),
            ("(work)", Unseen),
            ("\"", Unseen),
            ("tenure acquire x || {", Nothing),
        ] {
            assert_eq!(after(text, "tenure", "acquire"), expected, "{text}");
        }
    }
}
