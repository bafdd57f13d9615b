//! The simple commands of a text that means the same in bash, zsh and dash.
//!
//! Shells remove a backslash with the end of its line before anything else. Here that is done where blanks or
//! letters of a word stand. Elsewhere (inside an operator, behind `$`) the text is not understood.

use super::lexer::{self, Kind, Piece, Token};
use super::{Construct, Line, Simple, Word};
use std::iter::Peekable;
use std::vec::IntoIter;

/// Words that are no commands where a command may stand.
const RESERVED: [&str; 24] = [
    "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac",
    "select", "function", "in", "{", "}", "[[", "]]", "repeat", "foreach", "end", "always",
    "coproc",
];

/// Words that change the command behind them.
const MODIFIERS: [&str; 6] = ["!", "time", "noglob", "nocorrect", "-", "coproc"];

/// The most commands of a text that is looked at one by one. People and agents write some ten.
const COMMANDS_MAX: usize = 1_000;

/// Reads a text.
pub fn read(text: &str) -> Line {
    if text.contains('\0') {
        return Line::Other(Construct::Broken);
    }
    let reader = Reader {
        text,
        tokens: lexer::tokens(text).into_iter().peekable(),
    };
    match reader.list() {
        Ok(commands) => Line::Plain(commands),
        Err(construct) => Line::Other(construct),
    }
}

struct Reader<'a> {
    text: &'a str,
    tokens: Peekable<IntoIter<Token>>,
}

/// What ends a simple command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Text,
    /// `;` or the end of a line.
    Next,
    /// `&&`, `||`: a command has to follow.
    Joined,
    /// `|`: the same.
    Pipe,
}

impl Reader<'_> {
    fn list(mut self) -> Result<Vec<Simple>, Construct> {
        let mut commands = Vec::new();
        let mut before = End::Next;
        loop {
            let is_line = |token: &Token| token.kind == Kind::Sign("\n");
            while self.tokens.next_if(is_line).is_some() {}
            let Some(command) = self.simple(before)? else {
                // Nothing stands here, and something has to: behind `&&` or `|`, or in front of a `;`.
                if self.tokens.peek().is_some() || matches!(before, End::Joined | End::Pipe) {
                    return Err(Construct::Broken);
                }
                return Ok(commands);
            };
            commands.push(command);
            if commands.len() > COMMANDS_MAX {
                return Err(Construct::Length);
            }
            before = self.end()?;
            if before == End::Text {
                return Ok(commands);
            }
        }
    }

    /// What stands behind a simple command.
    fn end(&mut self) -> Result<End, Construct> {
        match self.tokens.next().map(|token| token.kind) {
            None => Ok(End::Text),
            Some(Kind::Sign(";" | "\n")) => Ok(End::Next),
            Some(Kind::Sign("&&" | "||")) => Ok(End::Joined),
            Some(Kind::Sign("|")) => Ok(End::Pipe),
            Some(Kind::Sign("&" | "|&")) => Err(Construct::Background),
            Some(_) => Err(Construct::Compound),
        }
    }

    /// Reads a simple command, if one begins here.
    fn simple(&mut self, before: End) -> Result<Option<Simple>, Construct> {
        let mut command = Simple {
            is_piped: before == End::Pipe,
            ..Simple::default()
        };
        let mut is_there = false;
        while let Some(token) = self.tokens.next_if(|token| !is_end(&token.kind)) {
            if !is_there {
                command.from = token.at;
            }
            is_there = true;
            command.to = token.to;
            match token.kind {
                Kind::Word(word) => self.word(token.at, token.to, word, &mut command)?,
                Kind::Redirection(redirection) => {
                    redirection.odd.map_or(Ok(()), Err)?;
                    command.redirects_first |= command.words.is_empty();
                }
                Kind::Sign(_) => return Err(Construct::Compound),
            }
        }
        Ok(is_there.then_some(command))
    }

    /// A word of a command, or an assignment in front of it.
    fn word(
        &self,
        at: usize,
        to: usize,
        word: Piece,
        command: &mut Simple,
    ) -> Result<(), Construct> {
        word.odd.map_or(Ok(()), Err)?;
        let raw = self.text.get(at..to).unwrap_or_default();
        let shown = String::from_utf8(word.text).map_err(|_| Construct::Broken)?;
        let text = (!word.is_expanded).then(|| shown.clone());
        let made = Word {
            at,
            text,
            shown,
            is_quoted: word.is_quoted,
        };
        if !command.words.is_empty() {
            command.words.push(made);
            return Ok(());
        }
        if let Some(name) = assigned(raw) {
            command.assigned.push(name.to_owned());
            return Ok(());
        }
        if let (Some(text), false) = (&made.text, made.is_quoted) {
            if MODIFIERS.contains(&text.as_str()) {
                return Err(Construct::Modifier);
            }
            if RESERVED.contains(&text.as_str()) {
                return Err(Construct::Compound);
            }
            if matches!(text.as_str(), "alias" | "unalias") {
                return Err(Construct::Alias);
            }
        }
        // Shells differ in whether a brace that begins a command has to stand alone.
        if raw.starts_with('{') {
            return Err(Construct::Compound);
        }
        command.words.push(made);
        Ok(())
    }
}

/// Whether a token ends a simple command.
fn is_end(kind: &Kind) -> bool {
    matches!(kind, Kind::Sign(sign) if !matches!(*sign, "(" | ")"))
}

/// The variable that a word in front of a command sets.
pub(super) fn assigned(raw: &str) -> Option<&str> {
    let (name, _) = raw.split_once('=')?;
    let name = name.strip_suffix('+').unwrap_or(name);
    let first = name.bytes().next()?;
    let is_name = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    (is_name && !first.is_ascii_digit()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The command words of a plain text, or the construct that it contains.
    fn words(text: &str) -> Result<Vec<Vec<String>>, Construct> {
        match read(text) {
            Line::Plain(commands) => Ok(commands
                .into_iter()
                .map(|command| {
                    let words = command.words.into_iter();
                    words
                        .map(|word| word.text.unwrap_or_else(|| "?".to_owned()))
                        .collect()
                })
                .collect()),
            Line::Other(construct) => Err(construct),
        }
    }

    fn plain(text: &str) -> Vec<String> {
        let commands = words(text).unwrap_or_else(|why| panic!("{text:?}: {why:?}"));
        commands.iter().map(|words| words.join(" ")).collect()
    }

    #[test]
    fn the_simple_commands_of_lists_and_pipes_are_found() {
        for (text, expected) in [
            ("", &[][..]),
            ("  # only a remark", &[]),
            ("make", &["make"]),
            ("cd x && make -j2;make", &["cd x", "make -j2", "make"]),
            ("a || b\n\n c ; ", &["a", "b", "c"]),
            ("a |\n b | c", &["a", "b", "c"]),
            ("a # b; c\nd", &["a", "d"]),
            ("a b#c", &["a b#c"]),
            ("a \\\n  b", &["a b"]),
            ("a\\\n b", &["a b"]),
            ("a > f 2>&1 b", &["a b"]),
            ("a 2 >f", &["a 2"]),
            ("a &>f b", &["a b"]),
            ("a <>f >>g >|h", &["a"]),
            ("X=1 Y+=2 a", &["a"]),
            ("X='a b' a", &["a"]),
            ("X=1", &[""]),
            ("a 'b  c' \"d e\" f\\ g", &["a b  c d e f g"]),
            ("a $x ${y} \"$z\" $1 $?", &["a ? ? ? ? ?"]),
            ("a *.rs b?c {d,e} [f]", &["a ? ? ? ?"]),
            ("[ -f x ] && a", &["[ -f x ]", "a"]),
            ("~/bin/a x", &["~/bin/a x"]),
            ("a HEAD^ HEAD~2 x=~", &["a HEAD^ HEAD~2 x=~"]),
            ("a $ b", &["a $ b"]),
            ("a \"x\\y\\\"z\"", &["a x\\y\"z"]),
            ("é ü", &["é ü"]),
            ("find . -exec rm x \\;", &["find . -exec rm x ;"]),
        ] {
            assert_eq!(plain(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_text_with_anything_else_is_left_alone() {
        use Construct::{
            Alias, Background, Broken, Closing, Compound, Expansion, HereDocument, Modifier,
            Substitution,
        };
        for (text, expected) in [
            ("a $(b)", Substitution),
            ("a `b`", Substitution),
            ("a \"$(b)\"", Substitution),
            ("a \"`b`\"", Substitution),
            ("a $((1+1))", Substitution),
            ("a <(b)", Substitution),
            ("(a)", Compound),
            ("{ a; }", Compound),
            ("{a; }", Compound),
            ("for x in a; do b; done", Compound),
            ("if a; then b; fi", Compound),
            ("while a; do b; done", Compound),
            ("case x in y) a;; esac", Compound),
            ("f() { a; }", Compound),
            ("x=(a b)", Compound),
            ("[[ -f x ]] && a", Compound),
            ("a;; b", Compound),
            ("a & b", Background),
            ("a &", Background),
            ("a |& b", Background),
            ("a << E\nb\nE", HereDocument),
            ("a <<< b", HereDocument),
            ("! a", Modifier),
            ("time a", Modifier),
            ("a && ! b", Modifier),
            ("alias a=b; a", Alias),
            ("a <&-", Closing),
            ("a 2>&1-", Closing),
            ("a ${b:-c d}", Expansion),
            ("a $'b'", Expansion),
            ("a $\\\n{x;b}", Expansion),
            ("a \"$\\\n(b)\"", Expansion),
            ("a 'b", Broken),
            ("a \"b", Broken),
            ("a \\", Broken),
            ("a &&", Broken),
            ("a && && b", Broken),
            ("; a", Broken),
            ("| a", Broken),
            ("a >", Broken),
            ("a > > b", Broken),
            ("a\0b", Broken),
            ("a |\\\n| b", Broken),
        ] {
            assert_eq!(words(text), Err(expected), "{text:?}");
        }
    }

    #[test]
    fn what_stands_around_a_command_is_seen() {
        let Line::Plain(commands) = read("PATH=/x >f a b | c \\d") else {
            panic!("plain");
        };
        let [first, second] = &commands[..] else {
            panic!("two: {commands:?}");
        };
        assert_eq!(first.assigned, ["PATH"]);
        assert!(first.redirects_first && !first.is_piped);
        assert_eq!(first.words.first().map(|word| word.at), Some(11));
        assert!(second.is_piped && !second.redirects_first);
        assert_eq!((second.from, second.to), (17, 21));
        let quoted: Vec<bool> = second.words.iter().map(|word| word.is_quoted).collect();
        assert_eq!(quoted, [false, true]);
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(2_000))]

        /// Of whatever text: the words lie in it, in their order, each within its command.
        #[test]
        fn the_words_of_any_text_lie_in_it(text in "([ab=$'\"\\\\;&|<>(){}#~*!\\n é0-2-]|&&|cargo test){0,24}") {
            if let Line::Plain(commands) = read(&text) {
                let mut before = 0;
                for command in commands {
                    assert!(before <= command.from && command.from < command.to, "{text:?}");
                    assert!(text.get(command.from..command.to).is_some(), "{text:?}");
                    for word in command.words {
                        assert!(before <= word.at && word.at < command.to, "{text:?}");
                        assert!(text.is_char_boundary(word.at), "{text:?}");
                        before = word.at + 1;
                    }
                    before = before.max(command.to);
                }
            }
        }

        /// A plain text in a subshell, or behind a loop's word, is none.
        #[test]
        fn what_is_not_understood_makes_the_whole_text_unknown(text in "[ab ;&|\\n]{0,12}") {
            for around in [format!("({text})"), format!("{text}\n`a`"), format!("a $(b)\n{text}")] {
                assert!(matches!(read(&around), Line::Other(_)), "{around:?}");
            }
        }
    }
}
