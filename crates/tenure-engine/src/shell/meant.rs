//! Whether some words might stand in a text as a command, however the text hides them a little.
//!
//! It reads neither structure nor quotes: quotes and backslashes are taken away, and the rest is cut at blanks and
//! operators. So it finds more than is there (a message of a commit that names the command), and that is its side of
//! the bargain: the caller warns, or refuses with the right form.
//!
//! It does not find what no reading of the text finds: a script's contents, a name put together at run time.

use super::program;

/// A piece of a text between blanks and operators.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    text: String,
    /// It begins with `$`: it may be any text.
    is_expanded: bool,
    /// The number of the part between operators in which it stands.
    part: usize,
}

/// Whether the words might stand in the text, one behind the other and not behind `tenure run`. An expansion stands
/// for a word that is found elsewhere in `whole`, of which the text is a part.
pub fn is_meant(text: &str, whole: &str, words: &[String]) -> bool {
    let pieces = pieces(text);
    let elsewhere = |word: &str| {
        self::pieces(whole)
            .iter()
            .any(|piece| !piece.is_expanded && fits(&piece.text, word))
    };
    let Some(first) = words.first() else {
        return false;
    };
    // The number of the part in which `tenure run` was seen.
    let mut prefixed = None;
    let mut tenure = None;
    for (at, piece) in pieces.iter().enumerate() {
        if program(&piece.text) == "tenure" {
            tenure = Some(piece.part);
        }
        if piece.text == "run" && tenure == Some(piece.part) {
            prefixed = Some(piece.part);
        }
        if prefixed == Some(piece.part) {
            continue;
        }
        let here = pieces.get(at..at + words.len()).unwrap_or_default();
        if here.len() < words.len() || here.iter().any(|other| other.part != piece.part) {
            continue;
        }
        let is_first = piece.is_expanded || program(&piece.text) == first || piece.text == *first;
        let rest = here.iter().zip(words).skip(1);
        let mut is_literal = !piece.is_expanded;
        let mut all = is_first;
        for (piece, word) in rest {
            all &= piece.is_expanded || piece.text == *word;
            is_literal |= !piece.is_expanded;
        }
        if !all {
            continue;
        }
        let hidden = here
            .iter()
            .zip(words)
            .filter(|(piece, _)| piece.is_expanded);
        let hidden: Vec<&String> = hidden.map(|(_, word)| word).collect();
        if (is_literal || words.len() == 1) && hidden.iter().all(|word| elsewhere(word)) {
            return true;
        }
    }
    false
}

fn fits(piece: &str, word: &str) -> bool {
    piece == word || program(piece) == word
}

fn pieces(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut piece = String::new();
    let (mut part, mut is_expanded) = (0, false);
    let mut chars = text.chars().peekable();
    let finish = |piece: &mut String, is_expanded: &mut bool, part: usize, into: &mut Vec<_>| {
        if !piece.is_empty() {
            into.push(Piece {
                text: std::mem::take(piece),
                is_expanded: *is_expanded,
                part,
            });
        }
        *is_expanded = false;
    };
    while let Some(c) = chars.next() {
        match c {
            '\'' | '"' => {}
            '\\' => {
                chars.next_if(|next| *next == '\n');
            }
            ' ' | '\t' | '<' | '>' | '=' | ',' => {
                finish(&mut piece, &mut is_expanded, part, &mut pieces);
            }
            '\n' | '\r' | ';' | '&' | '|' | '(' | ')' | '`' => {
                finish(&mut piece, &mut is_expanded, part, &mut pieces);
                part += 1;
            }
            // The braces of an expansion, or of a group.
            '{' | '}' => {
                if piece.is_empty() && !is_expanded && c == '{' {
                    part += 1;
                } else if c == '}' && !is_expanded {
                    finish(&mut piece, &mut is_expanded, part, &mut pieces);
                    part += 1;
                }
            }
            '$' => {
                is_expanded |= piece.is_empty();
            }
            other => piece.push(other),
        }
    }
    finish(&mut piece, &mut is_expanded, part, &mut pieces);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(text: &str, words: &str) -> bool {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        is_meant(text, text, &words)
    }

    #[test]
    fn words_are_found_behind_what_hides_them_a_little() {
        for text in [
            "for i in 1 2; do cargo test; done",
            "(cargo test)",
            "{ cargo test; }",
            "x=$(cargo test)",
            "`cargo test`",
            "bash -c 'cargo test --all'",
            "bash -c \"cd x && cargo  test\"",
            "\"cargo\" test",
            "c\\argo te'st'",
            "car\\\ngo test",
            "eval cargo test",
            "! /usr/bin/cargo test",
            "c=cargo; $c test",
            "for t in test build; do cargo $t; done",
            "for t in test build; do cargo \"${t}\"; done",
            "cat <<E\ncargo test\nE",
            "xargs -n1 cargo test",
            "tenure run x -- true; cargo test",
            "if true; then\n  cargo test\nfi",
        ] {
            assert!(meant(text, "cargo test"), "{text}");
        }
    }

    #[test]
    fn other_words_are_not_found() {
        for text in [
            "",
            "cargo",
            "cargo build; test x",
            "cargo | test",
            "for t in a b; do cargo $t; done",
            "$c test",
            "tenure run build -- cargo test",
            "for i in 1 2; do tenure run build --slots 2 -- cargo test; done",
            "/opt/tenure run build -- sh -c 'cargo test'",
            "echo cargo-test",
            "$(date) $x",
        ] {
            assert!(!meant(text, "cargo test"), "{text}");
        }
    }

    #[test]
    fn one_word_is_found_by_itself() {
        for (text, expected) in [
            ("(make)", true),
            ("(/usr/bin/make all)", true),
            ("(makes)", false),
            ("m=make; $m", true),
            ("$m", false),
            ("(cd make)", true),
        ] {
            assert_eq!(meant(text, "make"), expected, "{text}");
        }
    }
}
