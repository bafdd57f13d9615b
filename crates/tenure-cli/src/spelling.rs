//! How close two words are, to find the word that a person meant and mistyped.

/// The shortest name for which one letter is a slip: shorter names are nearly all one letter apart.
const NAME_MIN: usize = 3;

/// How many letters have to be put in, left out, replaced or swapped with the next to make one word of
/// the other.
pub(crate) fn distance(one: &str, other: &str) -> usize {
    let one: Vec<char> = one.chars().collect();
    let other: Vec<char> = other.chars().collect();
    let at = |row: &[usize], column: usize| row.get(column).copied().unwrap_or(usize::MAX / 2);
    // The rows above this one: for each beginning of `other`, the number of edits.
    let mut second: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=other.len()).collect();
    for (i, letter) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, wanted) in other.iter().enumerate() {
            let replaced = at(&above, j) + usize::from(letter != wanted);
            let mut best = replaced.min(at(&above, j + 1) + 1).min(at(&row, j) + 1);
            let is_swap = i > 0
                && j > 0
                && one.get(i - 1) == Some(wanted)
                && other.get(j - 1) == Some(letter);
            if is_swap {
                best = best.min(at(&second, j - 1) + 1);
            }
            row.push(best);
        }
        second = std::mem::replace(&mut above, row);
    }
    at(&above, other.len())
}

/// The word that was meant, if `typed` is a slip of it or its beginning.
pub(crate) fn nearest<'a>(typed: &str, words: &[&'a str]) -> Option<&'a str> {
    let letters = typed.chars().count();
    // Nearly all words of two letters are one edit apart.
    let most = match letters {
        0..=2 => 0,
        3..=5 => 1,
        _ => 2,
    };
    let close = words
        .iter()
        .map(|word| (distance(typed, word), *word))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance);
    if let Some((_, word)) = close {
        return Some(word);
    }
    let begins = |word: &&&str| letters > 2 && word.starts_with(typed);
    let mut begun = words.iter().filter(begins).copied();
    begun.next().filter(|_| begun.next().is_none())
}

/// Whether one name is the other with one letter more, less or replaced, or with two neighbours swapped.
/// Digits number things, so names that differ by them are meant to differ.
pub(crate) fn is_slip(one: &str, other: &str) -> bool {
    let (short, long) = if one.len() <= other.len() {
        (one, other)
    } else {
        (other, one)
    };
    if short.chars().count() < NAME_MIN || distance(short, long) != 1 {
        return false;
    }
    let (short, long): (Vec<char>, Vec<char>) = (short.chars().collect(), long.chars().collect());
    let before = alike(short.iter(), long.iter());
    let rest = |word: &[char]| word.get(before..).map(<[char]>::to_vec).unwrap_or_default();
    let (short, long) = (rest(&short), rest(&long));
    let after = alike(short.iter().rev(), long.iter().rev());
    let differs = |word: &[char]| {
        let differing = word.len().saturating_sub(after);
        word.iter().take(differing).any(char::is_ascii_digit)
    };
    !differs(&short) && !differs(&long)
}

/// How many letters two words have in common from where they begin.
fn alike<'a>(one: impl Iterator<Item = &'a char>, other: impl Iterator<Item = &'a char>) -> usize {
    one.zip(other)
        .take_while(|(one, other)| one == other)
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (one, other, edits) in [
            ("", "", 0),
            ("run", "run", 0),
            ("run", "", 3),
            ("runn", "run", 1),
            ("rnu", "run", 1),
            ("chekc", "check", 1),
            ("wiat", "wait", 1),
            ("status", "check", 6),
            ("kitten", "sitting", 3),
            ("é", "e", 1),
        ] {
            assert_eq!(distance(one, other), edits, "{one} {other}");
            assert_eq!(distance(other, one), edits, "{other} {one}");
        }
    }

    #[test]
    fn the_nearest_word_is_a_slip_or_a_beginning() {
        let words = ["run", "release", "force-release", "check", "clean"];
        for (typed, expected) in [
            ("runn", Some("run")),
            ("relaese", Some("release")),
            ("forcerelease", Some("force-release")),
            ("force", Some("force-release")),
            ("rel", Some("release")),
            ("c", None),
            ("ru", None),
            ("frobnicate", None),
        ] {
            assert_eq!(nearest(typed, &words), expected, "{typed}");
        }
    }

    #[test]
    fn a_digit_is_no_slip() {
        for (one, other) in [
            ("deploy", "deploi"),
            ("deploy", "deply"),
            ("deploy", "dpeloy"),
            ("Backup", "backup"),
            ("build-1", "build1"),
            ("build1", "buidl1"),
            ("app", "apps"),
            ("aab", "ab1b"),
        ] {
            let expected = other != "ab1b";
            assert_eq!(is_slip(one, other), expected, "{one} {other}");
            assert_eq!(is_slip(other, one), expected, "{other} {one}");
        }
        for (one, other) in [
            ("build1", "build2"),
            ("build", "build1"),
            ("build10", "build01"),
            ("build11", "build1"),
            ("build1", "builda"),
            ("issue-41", "issue-4"),
            ("deploy", "deploy"),
            ("deploy", "destroy"),
            ("db", "dc"),
            ("x", "y"),
        ] {
            assert!(!is_slip(one, other), "{one} {other}");
            assert!(!is_slip(other, one), "{other} {one}");
        }
    }
}
