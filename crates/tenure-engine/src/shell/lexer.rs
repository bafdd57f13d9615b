//! Reads a text into tokens, from left to right, each byte once. Both readers of the text use them: `plain`, which gives
//! up where shells differ, and `tree`, which goes on.
//!
//! A token that `plain` does not take names its construct. What stands in a substitution, or in a here-document that is
//! expanded, has tokens of its own.

use super::Construct;

/// How deep constructs may stand in each other. Scripts are some five deep.
pub(super) const DEPTH_MAX: usize = 24;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) at: usize,
    pub(super) to: usize,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Word(Piece),
    Redirection(Redirection),
    /// An operator, or the end of a line.
    Sign(&'static str),
}

/// A word, as far as the text tells what it says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Piece {
    /// What it says after quotes are removed. An expansion stands there as `$` and its name.
    pub(super) text: Vec<u8>,
    /// A shell would put other text in its place.
    pub(super) is_expanded: bool,
    /// Some of it is quoted, or goes on in a new line.
    pub(super) is_quoted: bool,
    /// The texts of its substitutions.
    pub(super) inner: Vec<Vec<Token>>,
    /// What in it is not plain.
    pub(super) odd: Option<Construct>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Redirection {
    pub(super) is_input: bool,
    /// The text of a here-document or a here-string.
    pub(super) read: Option<String>,
    pub(super) inner: Vec<Vec<Token>>,
    pub(super) odd: Option<Construct>,
}

/// Reads a text.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut lexer = Lexer {
        bytes: text.as_bytes(),
        at: 0,
    };
    lexer.tokens(None, 0)
}

impl Piece {
    pub(super) fn said(&self) -> String {
        String::from_utf8_lossy(&self.text).into_owned()
    }

    fn odd(&mut self, construct: Construct) {
        self.odd.get_or_insert(construct);
    }
}

struct Lexer<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// The here-documents of a line: the number of each redirection, its last line, and whether it is expanded.
type Documents = Vec<(usize, Vec<u8>, bool)>;

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    /// The tokens up to `end`, which is passed, or to the end of the text.
    fn tokens(&mut self, end: Option<u8>, depth: usize) -> Vec<Token> {
        if depth > DEPTH_MAX {
            self.at = self.bytes.len();
        }
        let mut tokens: Vec<Token> = Vec::new();
        let mut documents = Documents::new();
        // Subshells that stand open.
        let mut open = 0_usize;
        loop {
            self.skip_blanks();
            let at = self.at;
            let Some(byte) = self.peek(0) else { break };
            if Some(byte) == end && open == 0 {
                self.at += 1;
                break;
            }
            let digits = self.bytes.get(at..).unwrap_or_default().iter();
            let digits = digits.take_while(|byte| byte.is_ascii_digit()).count();
            let kind = match (byte, self.peek(1)) {
                (b'#', _) => {
                    while self.peek(0).is_some_and(|byte| byte != b'\n') {
                        self.at += 1;
                    }
                    continue;
                }
                (b'<' | b'>', Some(b'(')) => Kind::Word(self.word(end, depth)),
                (b'<' | b'>', _) => self.redirection(end, depth, tokens.len(), &mut documents),
                (b'&', Some(b'>')) => {
                    self.at += 1;
                    self.redirection(end, depth, tokens.len(), &mut documents)
                }
                (b'(', Some(b'(')) => {
                    self.at += 2;
                    self.skip_arithmetic();
                    Kind::Word(Piece {
                        text: b"((".to_vec(),
                        odd: Some(Construct::Compound),
                        ..Piece::default()
                    })
                }
                (b'\n' | b';' | b'&' | b'|' | b'(' | b')', _) => {
                    let sign = self.sign();
                    open += usize::from(sign == "(");
                    open = open.saturating_sub(usize::from(sign == ")"));
                    Kind::Sign(sign)
                }
                _ if digits > 0 && matches!(self.peek(digits), Some(b'<' | b'>')) => {
                    self.at += digits;
                    self.redirection(end, depth, tokens.len(), &mut documents)
                }
                _ => Kind::Word(self.word(end, depth)),
            };
            let is_line = kind == Kind::Sign("\n");
            let to = self.at;
            tokens.push(Token { at, to, kind });
            if is_line {
                self.documents(&mut documents, &mut tokens, depth);
            }
        }
        tokens
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

    fn sign(&mut self) -> &'static str {
        let (sign, length) = match (self.peek(0), self.peek(1), self.peek(2)) {
            (Some(b'\n'), ..) => ("\n", 1),
            (Some(b';'), Some(b';' | b'&'), Some(b'&')) => (";;", 3),
            (Some(b';'), Some(b';' | b'&' | b'|'), _) => (";;", 2),
            (Some(b'&'), Some(b'&'), _) => ("&&", 2),
            (Some(b'&'), ..) => ("&", 1),
            (Some(b'|'), Some(b'|'), _) => ("||", 2),
            (Some(b'|'), Some(b'&'), _) => ("|&", 2),
            (Some(b'|'), ..) => ("|", 1),
            (Some(b'('), ..) => ("(", 1),
            (Some(b')'), ..) => (")", 1),
            _ => (";", 1),
        };
        self.at += length;
        sign
    }

    /// `<`, `>` and what belongs to it, with the file behind it. `number` is that of its token.
    fn redirection(
        &mut self,
        end: Option<u8>,
        depth: usize,
        number: usize,
        documents: &mut Documents,
    ) -> Kind {
        let first = self.peek(0);
        self.at += 1;
        let mut made = Redirection {
            is_input: first == Some(b'<'),
            ..Redirection::default()
        };
        let (mut duplicates, mut is_text, mut is_document) = (false, false, false);
        match (first, self.peek(0)) {
            (Some(b'<'), Some(b'<')) => {
                made.odd = Some(Construct::HereDocument);
                is_text = self.peek(1) == Some(b'<');
                is_document = !is_text;
                let has_sign = is_text || self.peek(1) == Some(b'-');
                self.at += 1 + usize::from(has_sign);
            }
            (_, Some(b'&')) => {
                self.at += 1;
                duplicates = true;
            }
            (Some(b'>'), Some(b'>' | b'|')) | (Some(b'<'), Some(b'>')) => self.at += 1,
            _ => {}
        }
        self.skip_blanks();
        let from = self.at;
        match (self.peek(0), self.peek(1)) {
            (Some(b'<' | b'>'), Some(b'(')) => {}
            (None | Some(b'\n' | b';' | b'|' | b'&' | b'<' | b'>' | b'#'), _) => {
                made.odd.get_or_insert(Construct::Broken);
                return Kind::Redirection(made);
            }
            (Some(b'(' | b')'), _) => {
                made.odd.get_or_insert(Construct::Compound);
                return Kind::Redirection(made);
            }
            _ => {}
        }
        let file = self.word(end, depth);
        let raw = self.bytes.get(from..self.at).unwrap_or_default();
        if is_document {
            documents.push((number, file.text, !file.is_quoted));
        } else if is_text {
            made.read = Some(file.said());
        }
        if let Some(odd) = file.odd {
            made.odd.get_or_insert(odd);
        }
        if duplicates && raw.ends_with(b"-") {
            made.odd.get_or_insert(Construct::Closing);
        }
        made.inner = file.inner;
        Kind::Redirection(made)
    }

    /// Reads the here-documents of a line that has ended.
    fn documents(&mut self, documents: &mut Documents, tokens: &mut [Token], depth: usize) {
        for (number, last, is_expanded) in documents.drain(..) {
            let from = self.at;
            let mut to = self.bytes.len();
            while let Some(rest) = self.bytes.get(self.at..).filter(|rest| !rest.is_empty()) {
                let length = rest.iter().position(|byte| *byte == b'\n');
                let line = rest.get(..length.unwrap_or(rest.len())).unwrap_or_default();
                let begin = self.at;
                self.at += line.len() + usize::from(length.is_some());
                if line.trim_ascii() == last {
                    to = begin;
                    break;
                }
            }
            let Some(Token {
                kind: Kind::Redirection(made),
                ..
            }) = tokens.get_mut(number)
            else {
                continue;
            };
            let text = self.bytes.get(from..to).unwrap_or_default();
            made.read = Some(String::from_utf8_lossy(text).into_owned());
            if is_expanded {
                let mut word = Piece::default();
                let mut inside = Lexer { bytes: text, at: 0 };
                inside.quoted(None, &mut word, depth + 1);
                made.inner.extend(word.inner);
            }
        }
    }

    /// Skips to behind `))`.
    fn skip_arithmetic(&mut self) {
        let mut open = 2;
        while let Some(byte) = self.peek(0).filter(|_| open > 0) {
            match byte {
                b'(' => open += 1,
                b')' => open -= 1,
                _ => {}
            }
            self.at += 1;
        }
    }

    /// Reads a word, of which something stands here. Something of it stands here.
    fn word(&mut self, end: Option<u8>, depth: usize) -> Piece {
        let at = self.at;
        let mut word = Piece::default();
        while let Some(byte) = self.peek(0) {
            match byte {
                b'<' | b'>' if self.peek(1) == Some(b'(') => {
                    self.at += 2;
                    word.odd(Construct::Substitution);
                    word.inner.push(self.tokens(Some(b')'), depth + 1));
                }
                // The words of an array.
                b'(' if word.text.ends_with(b"=") => {
                    self.at += 1;
                    word.odd(Construct::Compound);
                    for token in self.tokens(Some(b')'), depth + 1) {
                        if let Kind::Word(of_array) = token.kind {
                            word.inner.extend(of_array.inner);
                        }
                    }
                }
                b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'(' | b')' | b'<' | b'>' => break,
                b'`' if end == Some(b'`') => break,
                b'`' => self.backquote(&mut word, depth),
                b'\\' => {
                    word.is_quoted = true;
                    match self.peek(1) {
                        None => word.odd(Construct::Broken),
                        Some(b'\n') => {}
                        Some(escaped) => word.text.push(escaped),
                    }
                    self.at += 2;
                }
                b'\'' => {
                    word.is_quoted = true;
                    self.at += 1;
                    let rest = self.bytes.get(self.at..).unwrap_or_default();
                    let length = rest.iter().position(|byte| *byte == b'\'');
                    if length.is_none() {
                        word.odd(Construct::Broken);
                    }
                    let length = length.unwrap_or(rest.len());
                    word.text.extend(rest.iter().take(length));
                    self.at += length + 1;
                }
                b'"' => {
                    word.is_quoted = true;
                    self.at += 1;
                    self.quoted(Some(b'"'), &mut word, depth);
                }
                b'$' => self.dollar(&mut word, false, depth),
                b'*' | b'?' | b'[' | b'{' | b'}' | b'~' | b'^' | b'#' => {
                    // In some shell, with some options, these stand for other text.
                    word.is_expanded |= !self.is_plain(byte, &word.text);
                    word.text.push(byte);
                    self.at += 1;
                }
                _ => {
                    // zsh: `=NAME` is the path of a program.
                    word.is_expanded |= byte == b'=' && self.at == at;
                    word.text.push(byte);
                    self.at += 1;
                }
            }
        }
        self.at = self.at.min(self.bytes.len());
        // The commands of these names, and their ends.
        let raw = self.bytes.get(at..self.at);
        if matches!(raw, Some(b"[" | b"]" | b"[[" | b"]]")) {
            word.is_expanded = false;
        }
        word
    }

    /// Whether a byte that may be expanded stands for itself here, or for a home folder in front of a path.
    fn is_plain(&self, byte: u8, before: &[u8]) -> bool {
        match byte {
            b'~' if before.is_empty() => self.peek(1) == Some(b'/'),
            b'~' | b'^' | b'#' => !before.is_empty(),
            _ => false,
        }
    }

    fn backquote(&mut self, word: &mut Piece, depth: usize) {
        self.at += 1;
        word.odd(Construct::Substitution);
        word.text.push(b'$');
        word.inner.push(self.tokens(Some(b'`'), depth + 1));
    }

    /// What stands up to a double quote, which is passed, or to the brace of an expansion, or in a here-document.
    fn quoted(&mut self, end: Option<u8>, word: &mut Piece, depth: usize) {
        loop {
            let Some(byte) = self.peek(0).filter(|_| depth <= DEPTH_MAX) else {
                if end.is_some() {
                    word.odd(Construct::Broken);
                }
                self.at = self.bytes.len();
                return;
            };
            match byte {
                _ if Some(byte) == end => {
                    self.at += 1;
                    return;
                }
                b'`' => self.backquote(word, depth),
                b'\\' => {
                    match self.peek(1) {
                        None => word.odd(Construct::Broken),
                        Some(b'\n') => {}
                        Some(escaped @ (b'$' | b'`' | b'"' | b'\\')) => word.text.push(escaped),
                        Some(other) => word.text.extend([b'\\', other]),
                    }
                    self.at += 2;
                }
                b'$' => self.dollar(word, true, depth),
                other => {
                    word.text.push(other);
                    self.at += 1;
                }
            }
        }
    }

    /// A dollar sign and what belongs to it.
    fn dollar(&mut self, word: &mut Piece, in_quotes: bool, depth: usize) {
        let next = self.peek(1);
        if next == Some(b'\'') && !in_quotes {
            word.odd(Construct::Expansion);
            word.is_quoted = true;
            self.at += 2;
            return self.escaped(word);
        }
        if next == Some(b'"') && !in_quotes {
            // bash: a translated text. The quotes are read as quotes.
            word.is_expanded = true;
            self.at += 1;
            return;
        }
        word.text.push(b'$');
        self.at += 1;
        match next {
            Some(b'(') => {
                word.odd(Construct::Substitution);
                self.at += 1;
                if self.peek(0) == Some(b'(') {
                    self.at += 1;
                    self.skip_arithmetic();
                } else {
                    word.inner.push(self.tokens(Some(b')'), depth + 1));
                }
            }
            Some(b'[') => word.odd(Construct::Substitution),
            // The next line would say what it is.
            Some(b'\\') if self.peek(1) == Some(b'\n') => word.odd(Construct::Expansion),
            Some(b'{') => {
                word.is_expanded = true;
                self.at += 1;
                let rest = self.bytes.get(self.at..).unwrap_or_default().iter();
                let is_of_name = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
                let name = rest.take_while(is_of_name).count();
                if name == 0 || self.peek(name) != Some(b'}') {
                    word.odd(Construct::Expansion);
                }
                self.quoted(Some(b'}'), word, depth + 1);
            }
            Some(byte) if byte.is_ascii_alphanumeric() || b"_@*#?!$-".contains(&byte) => {
                // The letters behind it are read as if they belonged to the word: they end nothing.
                word.is_expanded = true;
                word.text.push(byte);
                self.at += 1;
            }
            _ => {}
        }
    }

    /// What stands in `$' '`.
    fn escaped(&mut self, word: &mut Piece) {
        while let Some(byte) = self.peek(0) {
            self.at += 1;
            let letter = match (byte, self.peek(0)) {
                (b'\'', _) => return,
                (b'\\', Some(letter)) => letter,
                _ => {
                    word.text.push(byte);
                    continue;
                }
            };
            self.at += 1;
            let (radix, most) = match letter {
                b'0'..=b'7' => (8, 3),
                b'x' => (16, 2),
                b'u' => (16, 4),
                b'U' => (16, 8),
                _ => {
                    word.text.push(match letter {
                        b'n' => b'\n',
                        b't' => b'\t',
                        other => other,
                    });
                    continue;
                }
            };
            self.at -= usize::from(radix == 8);
            let rest = self.bytes.get(self.at..).unwrap_or_default().iter();
            let digits = rest.map_while(|byte| char::from(*byte).to_digit(radix));
            let digits: Vec<u32> = digits.take(most).collect();
            self.at += digits.len();
            let number = digits.iter().fold(0_u32, |all, digit| {
                all.wrapping_mul(radix).wrapping_add(*digit)
            });
            let letter = char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER);
            let mut bytes = [0; 4];
            word.text.extend(letter.encode_utf8(&mut bytes).as_bytes());
        }
        word.odd(Construct::Broken);
    }
}
