//! The documents as a whole: every link leads to a page and a heading that exist, an index names
//! every page, the decisions in their order, and the files of the project that a page names are there. So
//! is the code that `ARCHITECTURE.md` finds in a file, and each decision that code or a page names.
//!
//! What the pages say is tried elsewhere: `cli/readme.rs` runs their commands, `coverage.rs` looks
//! for what the table of rules names.
#![allow(clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every Markdown page that people read here, by its path from the root.
fn pages() -> Vec<String> {
    let mut pages: Vec<String> = fs::read_dir(root())
        .expect("the root")
        .map(|entry| entry.expect("an entry").file_name())
        .filter_map(|name| name.into_string().ok())
        .filter(|name| is_page(name))
        .collect();
    for folder in ["docs", "examples"] {
        below(folder, &mut pages);
    }
    assert!(pages.len() > 60, "only {} pages", pages.len());
    pages
}

fn below(folder: &str, pages: &mut Vec<String>) {
    for entry in fs::read_dir(root().join(folder)).expect(folder) {
        let entry = entry.expect("an entry");
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            below(&path, pages);
        } else if is_page(&path) {
            pages.push(path);
        }
    }
}

fn is_page(name: &str) -> bool {
    Path::new(name).extension() == Some("md".as_ref())
}

fn text(page: &str) -> String {
    fs::read_to_string(root().join(page)).expect(page)
}

/// The lines outside fenced blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// Where the links of a page lead, with the numbers of their lines.
fn links(text: &str) -> Vec<(usize, &str)> {
    prose(text)
        .flat_map(|(number, line)| {
            line.split("](")
                .skip(1)
                .filter_map(move |rest| Some((number, rest.split_once(')')?.0)))
        })
        .filter(|(_, target)| !target.contains("://"))
        .collect()
}

/// The anchor that a heading gets where the pages are shown.
fn anchor(heading: &str) -> String {
    heading
        .trim_start_matches('#')
        .trim()
        .chars()
        .filter(|&c| c.is_alphanumeric() || c == ' ' || c == '-' || c == '_')
        .map(|c| {
            if c == ' ' {
                '-'
            } else {
                c.to_ascii_lowercase()
            }
        })
        .collect()
}

#[test]
fn every_link_leads_to_a_page_and_a_heading() {
    let mut broken = Vec::new();
    for page in pages() {
        let here = root().join(&page);
        for (number, target) in links(&text(&page)) {
            let (path, wanted) = target.split_once('#').unwrap_or((target, ""));
            let led = if path.is_empty() {
                here.clone()
            } else {
                here.parent().expect("a folder").join(path)
            };
            let found = led.exists()
                && (wanted.is_empty()
                    || fs::read_to_string(&led).is_ok_and(|led| {
                        prose(&led).any(|(_, line)| line.starts_with('#') && anchor(line) == wanted)
                    }));
            if !found {
                broken.push(format!("{page}:{number}: {target}"));
            }
        }
    }
    assert!(
        broken.is_empty(),
        "links lead nowhere:\n{}",
        broken.join("\n")
    );
}

#[test]
fn an_index_names_every_page() {
    for (index, folder, other) in [
        ("docs/SUMMARY.md", "docs/", "docs/internals/decisions/"),
        ("docs/internals/README.md", "docs/internals/", "\0"),
    ] {
        let text = text(index);
        let named: BTreeSet<&str> = links(&text).into_iter().map(|(_, link)| link).collect();
        for page in pages() {
            let wanted = page.starts_with(folder) && !page.starts_with(other) && page != index;
            let link = page.strip_prefix(folder).unwrap_or_default();
            assert!(
                !wanted || named.contains(link),
                "{index} does not name {link}"
            );
        }
    }
}

/// The book's order has each page once: mdBook would overwrite the first of two.
#[test]
fn the_summary_names_each_page_once() {
    let text = text("docs/SUMMARY.md");
    let links = links(&text);
    let named: BTreeSet<&str> = links.iter().map(|&(_, link)| link).collect();
    assert_eq!(links.len(), named.len(), "a page stands twice");
}

/// Parts of the book for looking something up. The others are read.
const LOOKED_UP: [&str; 2] = ["Reference", "Inside"];

#[test]
fn what_is_read_stays_short() {
    let summary = text("docs/SUMMARY.md");
    let (mut part, mut words) = ("", 0);
    for line in summary.lines() {
        part = line.strip_prefix("# ").unwrap_or(part);
        for (_, page) in links(line) {
            let count = text(&format!("docs/{page}")).split_whitespace().count();
            if page == "README.md" {
                assert!(count <= 320, "{count} words before the first success");
            }
            if !LOOKED_UP.contains(&part) {
                words += count;
            }
        }
    }
    assert!(
        words <= 60_000,
        "{words} words outside of reference and inside"
    );
}

#[test]
fn each_decision_stands_once_in_the_index_in_order() {
    let index = text("docs/internals/README.md");
    let listed: Vec<&str> = links(&index)
        .into_iter()
        .filter_map(|(_, link)| link.strip_prefix("decisions/"))
        .collect();
    let mut pages: Vec<String> = fs::read_dir(root().join("docs/internals/decisions"))
        .expect("the decisions")
        .map(|entry| entry.expect("an entry").file_name())
        .map(|name| name.into_string().expect("a name in UTF-8"))
        .collect();
    pages.sort();
    assert_eq!(listed, pages, "a name begins with its number");
    let numbers: BTreeSet<&str> = pages.iter().map(|page| &page[..4]).collect();
    assert_eq!(
        numbers.len(),
        pages.len(),
        "two decisions have the same number"
    );
    assert!(
        pages.len() <= 40,
        "{} decisions: a new answer to an old question changes its page",
        pages.len()
    );
    for page in &pages {
        let words = text(&format!("docs/internals/decisions/{page}"))
            .split_whitespace()
            .count();
        assert!(words <= 900, "{page} has {words} words");
    }
}

/// The numbers of decisions that a text names, by their page or in words.
fn decisions_in(text: &str) -> Vec<String> {
    if !text.contains("ecision") {
        return Vec::new();
    }
    // A comment may be wrapped within the name.
    let text = text
        .split_whitespace()
        .filter(|word| !word.starts_with("//"))
        .collect::<Vec<_>>()
        .join(" ");
    ["decisions/", "ecision "]
        .iter()
        .flat_map(|before| text.split(before).skip(1))
        .filter_map(|rest| rest.get(..4))
        .filter(|number| number.chars().all(|c| c.is_ascii_digit()))
        .map(str::to_owned)
        .collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension() == Some("rs".as_ref()) {
            found.push(path);
        }
    }
}

#[test]
fn every_decision_that_code_or_a_page_names_is_there() {
    let mut files = vec![root().join("Cargo.toml"), root().join("scripts/public-api")];
    sources(&root().join("crates"), &mut files);
    files.extend(
        pages()
            .iter()
            .filter(|page| *page != "CHANGELOG.md")
            .map(|page| root().join(page)),
    );
    let there: BTreeSet<String> = fs::read_dir(root().join("docs/internals/decisions"))
        .expect("the decisions")
        .filter_map(|entry| entry.expect("an entry").file_name().into_string().ok())
        .map(|name| name[..4].to_owned())
        .collect();
    for file in files {
        let text = fs::read_to_string(&file).expect("a file in UTF-8");
        for number in decisions_in(&text) {
            assert!(
                there.contains(&number),
                "{} names decision {number}, which went into another one: see docs/internals/README.md",
                file.display()
            );
        }
    }
}

/// Who uses tenure gets the sentence itself. Its reasons are for those who change it.
#[test]
fn pages_for_users_name_no_decision() {
    for page in pages() {
        let inside = page.starts_with("docs/internals/")
            || ["ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].contains(&page.as_str());
        if !inside {
            let text = text(&page);
            assert!(
                decisions_in(&text).is_empty(),
                "{page} names decisions: {:?}",
                decisions_in(&text)
            );
        }
    }
}

/// A file or folder of the project, as a page names it in backticks: from the root, or from
/// `crates/`. What is in braces is left alone.
fn named_file(name: &str) -> Option<PathBuf> {
    let (first, rest) = name.split_once('/')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    if rest.is_empty() || !rest.chars().all(plain) {
        return None;
    }
    match first {
        "crates" | "docs" | "examples" | "scripts" | "schemas" | "fuzz" | "api" => {
            Some(root().join(name))
        }
        _ if first.starts_with("tenure") && root().join("crates").join(first).is_dir() => {
            Some(root().join("crates").join(name))
        }
        _ => None,
    }
}

#[test]
fn every_file_that_a_page_names_is_there() {
    let mut missing = Vec::new();
    let mut seen = 0;
    for page in pages() {
        let text = text(&page);
        for (number, line) in prose(&text) {
            for name in line.split('`').skip(1).step_by(2) {
                // Behind the file may stand what is meant in it: `path.rs function`, `path.rs::test`.
                let name = name.split([' ', ':']).next().unwrap_or_default();
                let Some(file) = named_file(name) else {
                    continue;
                };
                seen += 1;
                // A test's folder goes by the name of the test target, too.
                if !file.exists() && !file.with_extension("rs").exists() {
                    missing.push(format!("{page}:{number}: {name}"));
                }
            }
        }
    }
    assert!(seen > 200, "only {seen} files are named");
    assert!(missing.is_empty(), "not there:\n{}", missing.join("\n"));
}

/// Whether a text has a word of code as a whole.
fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .any(|other| other == word)
}

#[test]
fn every_name_that_the_architecture_finds_in_a_file_stands_there() {
    let text = text("ARCHITECTURE.md");
    let parts: Vec<&str> = text.split('`').collect();
    let mut missing = Vec::new();
    let mut seen = 0;
    // What is in backticks has the odd places: a name, what stands between, a file.
    for part in parts.windows(3).skip(1).step_by(2) {
        let [name, between, file] = part else {
            continue;
        };
        let Some(path) = named_file(file) else {
            continue;
        };
        if between.split_whitespace().eq(["in"]) {
            seen += 1;
            let code = fs::read_to_string(path).unwrap_or_default();
            if !has_word(&code, name) {
                missing.push(format!("{name} in {file}"));
            }
        }
    }
    assert!(seen > 20, "only {seen} names are given");
    assert!(missing.is_empty(), "not there:\n{}", missing.join("\n"));
}

#[test]
fn the_architecture_is_short() {
    let words = text("ARCHITECTURE.md").split_whitespace().count();
    assert!(
        words <= 1_200,
        "{words} words: a newcomer reads at most 1,200"
    );
}
