//! Reads a text into simple commands, from left to right, each byte once.
//!
//! Shells remove a backslash with the end of its line before anything else. Here that is done where blanks or
//! letters of a word stand. Elsewhere (inside an operator, behind `$`) the text is not understood.

use super::{Construct, Line, Simple, Word};

/// Words that are no commands where a command may stand.
const RESERVED: [&str; 24] = [
    "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done", "case", "esac",
    "select", "function", "in", "{", "}", "[[", "]]", "repeat", "foreach", "end", "always",
    "coproc",
];

/// Words that change the command behind them.
const MODIFIERS: [&str; 6] = ["!", "time", "noglob", "nocorrect", "-", "coproc"];

/// Reads a text.
pub fn read(text: &str) -> Line {
    if text.contains('\0') {
        return Line::Other(Construct::Broken);
    }
    match Lexer::new(text).list() {
        Ok(commands) => Line::Plain(commands),
        Err(construct) => Line::Other(construct),
    }
}

struct Lexer<'a> {
    bytes: &'a [u8],
    at: usize,
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

impl<'a> Lexer<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            bytes: text.as_bytes(),
            at: 0,
        }
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    fn list(&mut self) -> Result<Vec<Simple>, Construct> {
        let mut commands = Vec::new();
        let mut before = End::Next;
        loop {
            self.skip_lines();
            let Some(command) = self.simple(before)? else {
                // Nothing stands here, and something has to: behind `&&` or `|`, or in front of a `;`.
                if self.peek(0).is_some() || matches!(before, End::Joined | End::Pipe) {
                    return Err(Construct::Broken);
                }
                return Ok(commands);
            };
            commands.push(command);
            before = self.end()?;
            if before == End::Text {
                return Ok(commands);
            }
        }
    }

    /// Blanks, and continued lines.
    fn skip_blanks(&mut self) {
        loop {
            match (self.peek(0), self.peek(1)) {
                (Some(b' ' | b'\t'), _) => self.at += 1,
                (Some(b'\\'), Some(b'\n')) => self.at += 2,
                _ => return,
            }
        }
    }

    /// Everything before a command: blanks, empty lines, comments.
    fn skip_lines(&mut self) {
        loop {
            self.skip_blanks();
            match self.peek(0) {
                Some(b'\n') => self.at += 1,
                Some(b'#') => self.skip_comment(),
                _ => return,
            }
        }
    }

    /// Up to the end of the line, which is no part of it.
    fn skip_comment(&mut self) {
        while self.peek(0).is_some_and(|byte| byte != b'\n') {
            self.at += 1;
        }
    }

    /// What stands behind a simple command.
    fn end(&mut self) -> Result<End, Construct> {
        let end = match (self.peek(0), self.peek(1)) {
            (None, _) => return Ok(End::Text),
            (Some(b';'), Some(b';' | b'&' | b'|')) => return Err(Construct::Compound),
            (Some(b';' | b'\n'), _) => (End::Next, 1),
            (Some(b'&'), Some(b'&')) | (Some(b'|'), Some(b'|')) => (End::Joined, 2),
            (Some(b'&'), _) | (Some(b'|'), Some(b'&')) => return Err(Construct::Background),
            (Some(b'|'), _) => (End::Pipe, 1),
            _ => return Err(Construct::Compound),
        };
        self.at += end.1;
        Ok(end.0)
    }

    /// One simple command, if one begins here.
    fn simple(&mut self, before: End) -> Result<Option<Simple>, Construct> {
        let mut command = Simple {
            from: self.at,
            to: self.at,
            is_piped: before == End::Pipe,
            ..Simple::default()
        };
        let mut is_there = false;
        loop {
            self.skip_blanks();
            match self.peek(0) {
                Some(b'#') => {
                    self.skip_comment();
                    break;
                }
                Some(b'(' | b')') => return Err(Construct::Compound),
                Some(b'&') if self.peek(1) == Some(b'>') => {
                    self.at += 1;
                    self.redirection()?;
                    command.redirects_first |= command.words.is_empty();
                }
                None | Some(b'\n' | b';' | b'|' | b'&') => break,
                Some(b'<' | b'>') => {
                    self.redirection()?;
                    command.redirects_first |= command.words.is_empty();
                }
                Some(_) => self.word_of(&mut command)?,
            }
            is_there = true;
            command.to = self.at;
        }
        Ok(is_there.then_some(command))
    }

    /// A word of a command, an assignment in front of it, or the number of a redirection.
    fn word_of(&mut self, command: &mut Simple) -> Result<(), Construct> {
        let from = self.at;
        let word = self.word()?;
        let raw = self.bytes.get(from..self.at).unwrap_or_default();
        let redirects = matches!(self.peek(0), Some(b'<' | b'>'));
        if redirects && raw.iter().all(u8::is_ascii_digit) {
            return Ok(());
        }
        if !command.words.is_empty() {
            command.words.push(word);
            return Ok(());
        }
        if let Some(name) = assigned(raw) {
            command.assigned.push(name.to_owned());
            return Ok(());
        }
        if let (Some(text), false) = (&word.text, word.is_quoted) {
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
        if raw.first() == Some(&b'{') {
            return Err(Construct::Compound);
        }
        command.words.push(word);
        Ok(())
    }

    /// `<`, `>` and what belongs to it, with the file behind it.
    fn redirection(&mut self) -> Result<(), Construct> {
        let first = self.peek(0);
        self.at += 1;
        let mut duplicates = false;
        match (first, self.peek(0)) {
            (Some(b'<'), Some(b'<')) => return Err(Construct::HereDocument),
            (_, Some(b'(')) => return Err(Construct::Substitution),
            (_, Some(b'&')) => {
                self.at += 1;
                duplicates = true;
            }
            (Some(b'>'), Some(b'>' | b'|')) | (Some(b'<'), Some(b'>')) => self.at += 1,
            _ => {}
        }
        self.skip_blanks();
        let from = self.at;
        match self.peek(0) {
            None | Some(b'\n' | b';' | b'|' | b'&' | b'<' | b'>' | b'#') => {
                return Err(Construct::Broken);
            }
            Some(b'(' | b')') => return Err(Construct::Compound),
            Some(_) => {}
        }
        self.word()?;
        let raw = self.bytes.get(from..self.at).unwrap_or_default();
        if duplicates && raw.ends_with(b"-") {
            return Err(Construct::Closing);
        }
        Ok(())
    }

    /// One word. Something of it stands here.
    fn word(&mut self) -> Result<Word, Construct> {
        let at = self.at;
        let mut text = Vec::new();
        let (mut is_quoted, mut expands) = (false, false);
        while let Some(byte) = self.peek(0) {
            match byte {
                b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'<' | b'>' => break,
                b'(' | b')' => return Err(Construct::Compound),
                b'`' => return Err(Construct::Substitution),
                b'\\' => {
                    is_quoted = true;
                    match self.peek(1) {
                        None => return Err(Construct::Broken),
                        Some(b'\n') => {}
                        Some(escaped) => text.push(escaped),
                    }
                    self.at += 2;
                }
                b'\'' => {
                    is_quoted = true;
                    self.at += 1;
                    loop {
                        match self.peek(0) {
                            None => return Err(Construct::Broken),
                            Some(b'\'') => break,
                            Some(other) => text.push(other),
                        }
                        self.at += 1;
                    }
                    self.at += 1;
                }
                b'"' => {
                    is_quoted = true;
                    expands |= self.double_quoted(&mut text)?;
                }
                b'$' => {
                    expands |= self.dollar(&mut text, false)?;
                }
                b'*' | b'?' | b'[' | b'{' | b'}' | b'~' | b'^' | b'#' => {
                    // In some shell, with some options, these stand for other text.
                    expands |= !self.is_plain(byte, &text);
                    text.push(byte);
                    self.at += 1;
                }
                b'=' if self.at == at => {
                    // zsh: the path of a program.
                    expands = true;
                    text.push(byte);
                    self.at += 1;
                }
                _ => {
                    text.push(byte);
                    self.at += 1;
                }
            }
        }
        // The commands of these names, and their ends.
        let raw = self.bytes.get(at..self.at);
        let is_bracket = matches!(raw, Some(b"[" | b"]" | b"[[" | b"]]"));
        let text = String::from_utf8(text).map_err(|_| Construct::Broken)?;
        Ok(Word {
            at,
            text: (!expands || is_bracket).then_some(text),
            is_quoted,
        })
    }

    /// Whether a byte that may be expanded stands for itself here, or for a home folder in front of a path.
    fn is_plain(&self, byte: u8, before: &[u8]) -> bool {
        match byte {
            b'~' if before.is_empty() => self.peek(1) == Some(b'/'),
            b'~' | b'^' | b'#' => !before.is_empty(),
            _ => false,
        }
    }

    /// What stands between double quotes. Whether it is expanded.
    fn double_quoted(&mut self, text: &mut Vec<u8>) -> Result<bool, Construct> {
        self.at += 1;
        let mut expands = false;
        loop {
            match self.peek(0) {
                None => return Err(Construct::Broken),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(expands);
                }
                Some(b'`') => return Err(Construct::Substitution),
                Some(b'\\') => {
                    match self.peek(1) {
                        None => return Err(Construct::Broken),
                        Some(b'\n') => {}
                        Some(escaped @ (b'$' | b'`' | b'"' | b'\\')) => text.push(escaped),
                        Some(other) => text.extend([b'\\', other]),
                    }
                    self.at += 2;
                }
                Some(b'$') => expands |= self.dollar(text, true)?,
                Some(other) => {
                    text.push(other);
                    self.at += 1;
                }
            }
        }
    }

    /// A dollar sign and what belongs to it. Whether it is an expansion.
    fn dollar(&mut self, text: &mut Vec<u8>, in_quotes: bool) -> Result<bool, Construct> {
        match self.peek(1) {
            Some(b'(' | b'[') => Err(Construct::Substitution),
            // The next line would say what it is.
            Some(b'\\') if self.peek(2) == Some(b'\n') => Err(Construct::Expansion),
            Some(b'\'') if !in_quotes => Err(Construct::Expansion),
            Some(b'{') => {
                self.at += 2;
                let from = self.at;
                loop {
                    match self.peek(0) {
                        Some(b'}') if self.at > from => {
                            self.at += 1;
                            return Ok(true);
                        }
                        Some(byte) if byte.is_ascii_alphanumeric() || byte == b'_' => self.at += 1,
                        _ => return Err(Construct::Expansion),
                    }
                }
            }
            Some(byte) if byte.is_ascii_alphanumeric() || b"_@*#?!$-".contains(&byte) => {
                // The letters behind it are read as if they belonged to the word: they end nothing.
                self.at += 2;
                Ok(true)
            }
            // bash: a translated text. The quotes are read as quotes.
            Some(b'"') if !in_quotes => {
                self.at += 1;
                Ok(true)
            }
            _ => {
                text.push(b'$');
                self.at += 1;
                Ok(false)
            }
        }
    }
}

/// The variable that a word in front of a command sets.
fn assigned(raw: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(raw).ok()?;
    let (name, _) = text.split_once('=')?;
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
