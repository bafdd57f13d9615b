//! The commands of a text of shell, as a tree. The text is data: nothing of it is run or expanded.
//!
//! [`super::lexer`] answers whether a line means the same in each shell, and gives up where that is not certain. This
//! reader goes on: it is asked what a script does that runs already, so a text that it misreads is still that script's.

use std::iter::Peekable;
use std::str::Chars;

/// Commands one after the other.
pub(super) type List = Vec<Item>;

/// A command of a list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) node: Node,
    /// `&` stands behind it.
    pub(super) is_background: bool,
}

/// A command, simple or not.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// Words, and the texts of their substitutions, which run before. `<` stands for each redirection of input.
    Simple(Vec<String>, Vec<List>),
    Not(Box<Self>),
    Pipe(Vec<Self>),
    /// A command, and each that follows behind `&&` (true) or `||` (false).
    Chain(Box<Self>, Vec<(bool, Self)>),
    Group(List),
    Subshell(List),
    /// Conditions with their branches, and the last branch.
    If(Vec<(List, List)>, List),
    /// The condition; whether the loop goes on while the condition holds (`while`); the body.
    Loop(List, bool, List),
    /// The branches.
    Case(Vec<List>),
    Function(String, Box<Self>),
}

impl Node {
    /// The nodes of which this one is made.
    pub(super) fn parts(&self) -> Vec<&Self> {
        let (mut nodes, mut lists): (Vec<&Self>, Vec<&List>) = (Vec::new(), Vec::new());
        match self {
            Self::Simple(_, inner) => lists.extend(inner),
            Self::Not(inner) | Self::Function(_, inner) => nodes.push(inner),
            Self::Pipe(all) => nodes.extend(all),
            Self::Chain(first, rest) => {
                nodes.push(first);
                nodes.extend(rest.iter().map(|(_, node)| node));
            }
            Self::Group(list) | Self::Subshell(list) => lists.push(list),
            Self::If(arms, otherwise) => {
                lists.extend(arms.iter().flat_map(|(condition, arm)| [condition, arm]));
                lists.push(otherwise);
            }
            Self::Loop(condition, _, body) => lists.extend([condition, body]),
            Self::Case(arms) => lists.extend(arms),
        }
        nodes.extend(lists.into_iter().flatten().map(|item| &item.node));
        nodes
    }

    /// The node itself and all within it.
    pub(super) fn all(&self) -> Vec<&Self> {
        let mut all = vec![self];
        all.extend(self.parts().into_iter().flat_map(Self::all));
        all
    }

    /// The words of a simple command.
    pub(super) fn words(&self) -> Option<&[String]> {
        match self {
            Self::Simple(words, _) => Some(words),
            _ => None,
        }
    }
}

/// All nodes of a list.
pub(super) fn all(list: &List) -> Vec<&Node> {
    list.iter().flat_map(|item| item.node.all()).collect()
}

/// How deep constructs may stand in each other. Scripts are some five deep.
const DEPTH_MAX: usize = 24;

/// Reads a text.
pub(super) fn read(text: &str) -> List {
    let tokens = tokens(&mut text.chars().peekable(), None, 0);
    let mut parser = Parser::of(&tokens);
    let mut list = List::new();
    // What closes nothing is passed over.
    while parser.at < tokens.len() {
        list.extend(parser.list(&[]));
        parser.at += 1;
    }
    list
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// A word, and the tokens of its substitutions.
    Word(String, Vec<Vec<Self>>),
    /// `;` (also for a new line), `;;`, `&`, `&&`, `||`, `|`, `(`, `)`.
    Sign(&'static str),
}

type Signs<'a> = Peekable<Chars<'a>>;

/// The word that is being read.
#[derive(Default)]
struct Word {
    text: String,
    substitutions: Vec<Vec<Token>>,
    is_quoted: bool,
    /// In how many substitutions it stands.
    depth: usize,
}

impl Word {
    fn at(depth: usize) -> Self {
        Self {
            depth,
            ..Self::default()
        }
    }

    fn end(&mut self, tokens: &mut Vec<Token>) {
        let Self {
            text,
            substitutions,
            is_quoted,
            ..
        } = std::mem::replace(self, Self::at(self.depth));
        if !text.is_empty() || !substitutions.is_empty() || is_quoted {
            tokens.push(Token::Word(text, substitutions));
        }
    }

    /// What stands behind a dollar sign.
    fn expand(&mut self, signs: &mut Signs<'_>) {
        self.text.push('$');
        self.depth += 1;
        match signs.peek() {
            Some('(') => {
                signs.next();
                if signs.next_if_eq(&'(').is_some() {
                    skip_arithmetic(signs);
                } else {
                    self.substitutions
                        .push(tokens(signs, Some(')'), self.depth));
                }
            }
            Some('{') => {
                while self.depth <= DEPTH_MAX
                    && let Some(sign) = signs.next().filter(|sign| *sign != '}')
                {
                    match sign {
                        '$' => self.expand(signs),
                        _ => self.text.push(sign),
                    }
                }
            }
            _ => {}
        }
        self.depth -= 1;
    }

    fn quote(&mut self, signs: &mut Signs<'_>) {
        self.is_quoted = true;
        while let Some(sign) = signs.next().filter(|sign| *sign != '"') {
            match sign {
                '\\' => self.text.extend(signs.next()),
                '$' => self.expand(signs),
                '`' => self
                    .substitutions
                    .push(tokens(signs, Some('`'), self.depth + 1)),
                _ => self.text.push(sign),
            }
        }
    }
}

/// Skips to behind `))`.
fn skip_arithmetic(signs: &mut Signs<'_>) {
    let mut depth = 2;
    while depth > 0 {
        match signs.next() {
            Some('(') => depth += 1,
            Some(')') => depth -= 1,
            Some(_) => {}
            None => return,
        }
    }
}

/// Skips the lines of a here-document, up to the one that ends it.
fn skip_document(signs: &mut Signs<'_>, end: &str) {
    loop {
        let line: String = signs.by_ref().take_while(|sign| *sign != '\n').collect();
        if line.trim() == end || signs.peek().is_none() {
            return;
        }
    }
}

/// The tokens up to `end`, or to the end of the text.
fn tokens(signs: &mut Signs<'_>, end: Option<char>, depth: usize) -> Vec<Token> {
    if depth > DEPTH_MAX {
        signs.for_each(drop);
    }
    let (mut tokens_read, mut word) = (Vec::new(), Word::at(depth));
    let mut documents: Vec<String> = Vec::new();
    while let Some(sign) = signs.next() {
        if Some(sign) == end {
            break;
        }
        match sign {
            '\'' => {
                word.is_quoted = true;
                word.text
                    .extend(signs.by_ref().take_while(|sign| *sign != '\''));
            }
            '"' => word.quote(signs),
            '$' => word.expand(signs),
            '`' => word.substitutions.push(tokens(signs, Some('`'), depth + 1)),
            '\\' => {
                if let Some(next) = signs.next().filter(|next| *next != '\n') {
                    word.text.push(next);
                }
            }
            '#' if word.text.is_empty() => while signs.next_if(|sign| *sign != '\n').is_some() {},
            ' ' | '\t' | '\r' => word.end(&mut tokens_read),
            '<' | '>' if signs.next_if_eq(&'(').is_some() => {
                word.substitutions.push(tokens(signs, Some(')'), depth + 1));
            }
            '<' if signs.next_if_eq(&'<').is_some() => {
                word.text.push_str("<<");
                if signs.next_if_eq(&'<').is_none() {
                    while signs
                        .next_if(|sign| matches!(sign, '-' | ' ' | '\'' | '"' | '\\'))
                        .is_some()
                    {}
                    let mut end = String::new();
                    while let Some(sign) =
                        signs.next_if(|sign| sign.is_alphanumeric() || *sign == '_')
                    {
                        end.push(sign);
                    }
                    signs.next_if(|sign| matches!(sign, '\'' | '"'));
                    documents.push(end);
                }
            }
            '(' if word.text.ends_with('=') => {
                // The words of an array.
                let of_array = tokens(signs, Some(')'), depth + 1).into_iter();
                let inner = of_array.filter_map(|token| match token {
                    Token::Word(_, substitutions) => Some(substitutions),
                    Token::Sign(_) => None,
                });
                word.substitutions.push(inner.flatten().flatten().collect());
            }
            '(' if word.text.is_empty() && signs.next_if_eq(&'(').is_some() => {
                skip_arithmetic(signs);
                tokens_read.push(Token::Word("((".to_owned(), Vec::new()));
            }
            ';' | '\n' | '(' | ')' | '|' => {
                word.end(&mut tokens_read);
                tokens_read.push(Token::Sign(match sign {
                    '(' => "(",
                    ')' => ")",
                    '|' if signs.next_if_eq(&'|').is_some() => "||",
                    '|' => {
                        signs.next_if_eq(&'&');
                        "|"
                    }
                    ';' if signs.next_if(|sign| matches!(sign, ';' | '&')).is_some() => {
                        signs.next_if_eq(&'&');
                        ";;"
                    }
                    _ => ";",
                }));
                if sign == '\n' {
                    for end in documents.drain(..) {
                        skip_document(signs, &end);
                    }
                }
            }
            '&' if word.text.ends_with(['>', '<']) || signs.peek() == Some(&'>') => {
                word.text.push(sign);
            }
            '&' => {
                word.end(&mut tokens_read);
                let twice = signs.next_if_eq(&'&').is_some();
                tokens_read.push(Token::Sign(if twice { "&&" } else { "&" }));
            }
            _ => word.text.push(sign),
        }
    }
    word.end(&mut tokens_read);
    tokens_read
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn of(tokens: &'a [Token]) -> Self {
        Self {
            tokens,
            at: 0,
            depth: 0,
        }
    }

    fn word(&self) -> Option<&str> {
        match self.tokens.get(self.at) {
            Some(Token::Word(word, _)) => Some(word),
            _ => None,
        }
    }

    fn sign(&self) -> Option<&'static str> {
        match self.tokens.get(self.at) {
            Some(Token::Sign(sign)) => Some(sign),
            _ => None,
        }
    }

    /// Past the next token, if it is this word.
    fn takes(&mut self, word: &str) -> bool {
        let is_next = self.word() == Some(word);
        self.at += usize::from(is_next);
        is_next
    }

    /// Past the next token, if it is this sign.
    fn takes_sign(&mut self, sign: &str) -> bool {
        let is_next = self.sign() == Some(sign);
        self.at += usize::from(is_next);
        is_next
    }

    fn skip_lines(&mut self) {
        while self.takes_sign(";") {}
    }

    /// The commands up to one of these words, or to `)`, `;;` or the end. The word is left.
    fn list(&mut self, ends: &[&str]) -> List {
        let mut list = List::new();
        loop {
            self.skip_lines();
            let is_end = match (self.word(), self.sign()) {
                (Some(word), _) => ends.contains(&word),
                (None, Some(")" | ";;") | None) => true,
                (None, Some(_)) => false,
            };
            if is_end {
                return list;
            }
            let before = self.at;
            let node = self.chain();
            let is_background = self.takes_sign("&");
            // A sign that begins no command.
            self.at += usize::from(self.at == before);
            list.push(Item {
                node,
                is_background,
            });
        }
    }

    fn chain(&mut self) -> Node {
        let first = self.pipe();
        let mut rest = Vec::new();
        while let Some(sign @ ("&&" | "||")) = self.sign() {
            self.at += 1;
            self.skip_lines();
            rest.push((sign == "&&", self.pipe()));
        }
        if rest.is_empty() {
            return first;
        }
        Node::Chain(Box::new(first), rest)
    }

    fn pipe(&mut self) -> Node {
        let is_not = self.takes("!");
        self.takes("time");
        let mut all = vec![self.command()];
        while self.takes_sign("|") {
            self.skip_lines();
            all.push(self.command());
        }
        let node = match all.len() {
            1 => all.remove(0),
            _ => Node::Pipe(all),
        };
        if is_not {
            Node::Not(Box::new(node))
        } else {
            node
        }
    }

    fn command(&mut self) -> Node {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            self.at = self.tokens.len();
        }
        let node = self.construct();
        self.depth -= 1;
        node
    }

    fn construct(&mut self) -> Node {
        if self.takes_sign("(") {
            let list = self.list(&[]);
            self.takes_sign(")");
            self.redirections();
            return Node::Subshell(list);
        }
        let node = match self.word() {
            Some("{") => {
                self.at += 1;
                let list = self.until("}");
                Node::Group(list)
            }
            Some("if") => self.condition(),
            Some(word @ ("while" | "until")) => {
                let goes_on = word == "while";
                self.at += 1;
                let condition = self.until("do");
                Node::Loop(condition, goes_on, self.until("done"))
            }
            Some("for" | "select") => {
                while self.word().is_some_and(|word| word != "do") {
                    self.at += 1;
                }
                self.skip_lines();
                self.takes("do");
                Node::Loop(List::new(), true, self.until("done"))
            }
            Some("case") => self.case(),
            Some("function") => {
                self.at += 1;
                let name = self.word().unwrap_or_default().to_owned();
                self.at += 1;
                return self.function(name);
            }
            Some("[[") => {
                while self.at < self.tokens.len() && !self.takes("]]") {
                    self.at += 1;
                }
                return Node::Simple(vec!["[[".to_owned()], Vec::new());
            }
            _ => return self.simple(),
        };
        self.redirections();
        node
    }

    /// The commands up to this word, and past it.
    fn until(&mut self, end: &str) -> List {
        let mut list = self.list(&[end]);
        // What closes nothing is passed over.
        while self.at < self.tokens.len() && !self.takes(end) {
            if self.sign() == Some(")") {
                return list;
            }
            self.at += 1;
            list.extend(self.list(&[end]));
        }
        list
    }

    fn condition(&mut self) -> Node {
        let mut arms = Vec::new();
        loop {
            self.at += 1;
            let condition = self.until("then");
            arms.push((condition, self.list(&["elif", "else", "fi"])));
            if self.word() != Some("elif") {
                break;
            }
        }
        let otherwise = if self.takes("else") {
            self.list(&["fi"])
        } else {
            List::new()
        };
        self.takes("fi");
        Node::If(arms, otherwise)
    }

    fn case(&mut self) -> Node {
        while self.at < self.tokens.len() && !self.takes("in") {
            self.at += 1;
        }
        let mut arms = Vec::new();
        loop {
            self.skip_lines();
            if self.at >= self.tokens.len() || self.takes("esac") {
                return Node::Case(arms);
            }
            while self.at < self.tokens.len() && !self.takes_sign(")") {
                self.at += 1;
            }
            arms.push(self.list(&["esac"]));
            self.takes_sign(";;");
        }
    }

    fn function(&mut self, name: String) -> Node {
        if self.takes_sign("(") {
            self.takes_sign(")");
        }
        self.skip_lines();
        Node::Function(name, Box::new(self.command()))
    }

    fn simple(&mut self) -> Node {
        let (mut words, mut substitutions) = (Vec::new(), Vec::new());
        while let Some(Token::Word(word, inner)) = self.tokens.get(self.at) {
            self.at += 1;
            let redirected = redirects(word);
            match word.trim_start_matches(|sign: char| sign.is_ascii_digit()) {
                _ if redirected.is_none() => words.push(word.clone()),
                sign if sign.starts_with('<') => words.push("<".to_owned()),
                _ => {}
            }
            // The file is a word of its own.
            self.at += usize::from(redirected == Some(true) && self.word().is_some());
            substitutions.extend(inner.iter().map(|tokens| Parser::of(tokens).list(&[])));
        }
        if let [name] = &*words
            && self.sign() == Some("(")
            && matches!(self.tokens.get(self.at + 1), Some(Token::Sign(")")))
        {
            let name = name.clone();
            return self.function(name);
        }
        Node::Simple(words, substitutions)
    }

    /// Past the redirections behind a construct.
    fn redirections(&mut self) {
        while self.word().is_some_and(|word| !is_word_of_construct(word)) {
            self.at += 1;
        }
    }
}

/// Whether a word is a redirection, and then whether its file is the next word.
fn redirects(word: &str) -> Option<bool> {
    let sign = word.trim_start_matches(|sign: char| sign.is_ascii_digit() || sign == '&');
    let file = sign.trim_start_matches(['<', '>', '&', '|']);
    sign.starts_with(['<', '>']).then_some(file.is_empty())
}

/// Whether a word may follow a construct without a sign between them, as in `{ …; } }`.
fn is_word_of_construct(word: &str) -> bool {
    matches!(
        word,
        "}" | "then" | "do" | "done" | "fi" | "else" | "elif" | "esac"
    )
}
