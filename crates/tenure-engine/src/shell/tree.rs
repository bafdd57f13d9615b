//! The commands of a text of shell, as a tree. The text is data: nothing of it is run or expanded.
//!
//! [`super::plain`] answers whether a line means the same in each shell, and gives up where that is not certain. This
//! reader goes on: it is asked what a script does that runs already, or may do, so it has an answer for any text.

use super::lexer::{self, DEPTH_MAX, Kind, Token};

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
    /// Words, and the texts of their substitutions, which run before. `<` stands for each redirection of input, and the
    /// texts of here-documents come last.
    Simple(Vec<String>, Vec<List>, Vec<String>),
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
            Self::Simple(_, inner, _) => lists.extend(inner),
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
            Self::Simple(words, ..) => Some(words),
            _ => None,
        }
    }
}

/// All nodes of a list.
pub(super) fn all(list: &List) -> Vec<&Node> {
    list.iter().flat_map(|item| item.node.all()).collect()
}

/// Reads a text.
pub(super) fn read(text: &str) -> List {
    of_tokens(&lexer::tokens(text))
}

fn of_tokens(tokens: &[Token]) -> List {
    let mut parser = Parser {
        tokens,
        at: 0,
        depth: 0,
    };
    let mut list = List::new();
    // What closes nothing is passed over.
    while parser.at < tokens.len() {
        list.extend(parser.list(&[]));
        parser.at += 1;
    }
    list
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn word(&self) -> Option<&str> {
        match &self.tokens.get(self.at)?.kind {
            Kind::Word(word) => std::str::from_utf8(&word.text).ok(),
            _ => None,
        }
    }

    /// The next sign. The end of a line is one of `;`.
    fn sign(&self) -> Option<&'static str> {
        self.sign_at(self.at)
    }

    fn sign_at(&self, at: usize) -> Option<&'static str> {
        match self.tokens.get(at)?.kind {
            Kind::Sign("\n") => Some(";"),
            Kind::Sign("|&") => Some("|"),
            Kind::Sign(sign) => Some(sign),
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
            let is_end = match self.tokens.get(self.at).map(|token| &token.kind) {
                Some(Kind::Word(word)) => ends.iter().any(|end| end.as_bytes() == word.text),
                Some(Kind::Sign(")" | ";;")) | None => true,
                Some(Kind::Sign(_) | Kind::Redirection(_)) => false,
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
        if self.takes("time") {
            self.takes("-p");
        }
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
                return Node::Simple(vec!["[[".to_owned()], Vec::new(), Vec::new());
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
        let (mut words, mut substitutions, mut read) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(token) = self.tokens.get(self.at) {
            let inner = match &token.kind {
                Kind::Word(word) => {
                    words.push(word.said());
                    &word.inner
                }
                Kind::Redirection(redirection) => {
                    if redirection.is_input {
                        words.push("<".to_owned());
                    }
                    read.extend(redirection.read.clone());
                    &redirection.inner
                }
                Kind::Sign(_) => break,
            };
            self.at += 1;
            substitutions.extend(inner.iter().map(|tokens| of_tokens(tokens)));
        }
        if let [name] = &*words
            && self.sign() == Some("(")
            && self.sign_at(self.at + 1) == Some(")")
        {
            let name = name.clone();
            return self.function(name);
        }
        Node::Simple(words, substitutions, read)
    }

    /// Past the redirections behind a construct.
    fn redirections(&mut self) {
        while self
            .tokens
            .get(self.at)
            .is_some_and(|token| match &token.kind {
                Kind::Word(word) => !is_word_of_construct(&word.said()),
                Kind::Redirection(_) => true,
                Kind::Sign(_) => false,
            })
        {
            self.at += 1;
        }
    }
}

/// Whether a word may follow a construct without a sign between them, as in `{ …; } }`.
fn is_word_of_construct(word: &str) -> bool {
    matches!(
        word,
        "}" | "then" | "do" | "done" | "fi" | "else" | "elif" | "esac"
    )
}
