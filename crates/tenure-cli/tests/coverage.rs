//! `docs/internals/systems-coverage.md`: every rule of the five systems has a row, and what a row
//! names is there.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects by failing"
)]

use std::collections::BTreeMap;
use std::path::Path;

/// How many rules each system has; their ids are numbered from 01.
const RULES: [(&str, usize); 5] = [
    ("SPR", 57),
    ("RES", 47),
    ("ENV", 57),
    ("SES", 54),
    ("FLT", 67),
];

/// How far above a function its `#[test]` may stand.
const NEAR: usize = 6;

fn ids(rules: &[(&str, usize)]) -> Vec<String> {
    let of = |&(system, count): &(&str, usize)| -> Vec<String> {
        (1..=count)
            .map(|number| format!("{system}-{number:02}"))
            .collect()
    };
    rules.iter().flat_map(of).collect()
}

fn is_id(cell: &str) -> bool {
    let Some((system, number)) = cell.split_once('-') else {
        return false;
    };
    system.len() == 3
        && system.bytes().all(|byte| byte.is_ascii_uppercase())
        && !number.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// What stands between backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// The line numbers on which something of this name is declared.
fn declared(text: &str, word: &str, name: &str) -> Vec<usize> {
    let declares = |line: &str| {
        line.match_indices(&format!("{word} {name}"))
            .any(|(at, whole)| {
                let before = line[..at].chars().next_back();
                let after = line[at + whole.len()..].chars().next();
                before.is_none_or(char::is_whitespace)
                    && after.is_none_or(|c| !c.is_alphanumeric() && c != '_')
            })
    };
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| !line.trim_start().starts_with("//") && declares(line))
        .map(|(number, _)| number)
        .collect()
}

fn is_test(text: &str, name: &str) -> bool {
    let lines: Vec<_> = text.lines().collect();
    let marked = |line: &usize| {
        lines[line.saturating_sub(NEAR)..*line]
            .iter()
            .rev()
            .take_while(|line| !line.trim_end().ends_with('}'))
            .any(|line| line.trim() == "#[test]")
    };
    // A row of a table from which a macro makes tests.
    let row = format!("{name}: ");
    // A title of a page of transcripts.
    let title = format!("= {}", name.replace('_', " "));
    declared(text, "fn", name).iter().any(marked)
        || lines.contains(&title.as_str())
        || (text.contains("scenarios! {") && lines.iter().any(|line| line.trim().starts_with(&row)))
}

/// All that is wrong with the tables, for files that are read like this.
fn problems(
    tables: &str,
    rules: &[(&str, usize)],
    read: &dyn Fn(&str) -> Option<String>,
) -> Vec<String> {
    let mut problems = Vec::new();
    let mut rows: BTreeMap<String, usize> = BTreeMap::new();
    for line in tables.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [id, rule, code, held_by] = cells.as_slice() else {
            let id = cells[0];
            if is_id(id) {
                problems.push(format!("{id}: {} columns", cells.len()));
            }
            continue;
        };
        if !is_id(id) {
            continue;
        }
        *rows.entry((*id).to_owned()).or_default() += 1;
        if rule.is_empty() {
            problems.push(format!("{id}: no rule"));
        }
        for place in quoted(code) {
            let (path, name) = place.split_once(' ').unwrap_or((place, ""));
            match read(path) {
                None => problems.push(format!("{id}: there is no {path}")),
                Some(text)
                    if declared(&text, "fn", name).is_empty()
                        && declared(&text, "const", name).is_empty() =>
                {
                    problems.push(format!("{id}: {path} has no {name:?}"));
                }
                Some(_) => {}
            }
        }
        if let Some(reason) = held_by.strip_prefix("not yet: ") {
            if reason.is_empty() {
                problems.push(format!("{id}: not yet, and no reason"));
            }
            continue;
        }
        let mut tests = 0;
        for place in quoted(held_by) {
            tests += 1;
            match place.split_once("::") {
                None => problems.push(format!("{id}: {place} is no file::test")),
                Some((path, name)) => match read(path) {
                    None => problems.push(format!("{id}: there is no {path}")),
                    Some(text) if !is_test(&text, name) => {
                        problems.push(format!("{id}: {path} has no test {name:?}"));
                    }
                    Some(_) => {}
                },
            }
        }
        if tests == 0 {
            problems.push(format!("{id}: neither a test nor a reason why not yet"));
        }
        if quoted(code).next().is_none() {
            problems.push(format!("{id}: decided nowhere"));
        }
    }
    let wanted = ids(rules);
    for id in &wanted {
        match rows.get(id) {
            None => problems.push(format!("{id}: no row")),
            Some(1) => {}
            Some(count) => problems.push(format!("{id}: {count} rows")),
        }
    }
    let unknown = rows.keys().filter(|id| !wanted.contains(id));
    problems.extend(unknown.map(|id| format!("{id}: no such rule")));
    problems
}

#[test]
fn every_rule_of_the_systems_has_a_row_and_every_row_its_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tables =
        std::fs::read_to_string(root.join("docs/internals/systems-coverage.md")).expect("tables");
    let read = |path: &str| std::fs::read_to_string(root.join("crates").join(path)).ok();
    let problems = problems(&tables, &RULES, &read);
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The check itself, on tables that are broken in every way it has to see.
#[test]
fn a_broken_table_is_noticed() {
    let source = "const LIMIT: u8 = 1;\npub fn judge() {}\n\n#[test]\n#[ignore]\nfn holds() {}\n\n\
                  fn helper() {}\n// fn gone() {}\n";
    let read = |path: &str| (path == "a.rs").then(|| source.to_owned());
    let good = "| SPR-01 | one | `a.rs judge` | `a.rs::holds` |";
    let other = "| SPR-02 | two | `a.rs LIMIT` | not yet: later |";
    let found = |rows: &[&str]| problems(&rows.join("\n"), &[("SPR", 2)], &read);
    assert_eq!(found(&["| id | rule | x | y |", good, other]), [""; 0]);
    for (row, said) in [
        ("", "SPR-02: no row"),
        (
            "| SPR-02 | two | `a.rs judge` | `a.rs::holds` |\n| SPR-02 | two | `a.rs judge` | `a.rs::holds` |",
            "SPR-02: 2 rows",
        ),
        (
            "| SPR-02 | two | `a.rs judge` | |",
            "SPR-02: neither a test nor a reason why not yet",
        ),
        (
            "| SPR-02 | two | `a.rs judge` | not yet |",
            "SPR-02: neither a test nor a reason why not yet",
        ),
        (
            "| SPR-02 | two | | `a.rs::holds` |",
            "SPR-02: decided nowhere",
        ),
        (
            "| SPR-02 | | `a.rs judge` | `a.rs::holds` |",
            "SPR-02: no rule",
        ),
        (
            "| SPR-02 | two | `b.rs judge` | `a.rs::holds` |",
            "SPR-02: there is no b.rs",
        ),
        (
            "| SPR-02 | two | `a.rs jud` | `a.rs::holds` |",
            "SPR-02: a.rs has no \"jud\"",
        ),
        (
            "| SPR-02 | two | `a.rs gone` | `a.rs::holds` |",
            "SPR-02: a.rs has no \"gone\"",
        ),
        (
            "| SPR-02 | two | `a.rs judge` | `b.rs::holds` |",
            "SPR-02: there is no b.rs",
        ),
        (
            "| SPR-02 | two | `a.rs judge` | `a.rs::holds`, `a.rs::hold` |",
            "SPR-02: a.rs has no test \"hold\"",
        ),
        (
            "| SPR-02 | two | `a.rs judge` | `a.rs::judge` |",
            "SPR-02: a.rs has no test \"judge\"",
        ),
        (
            "| SPR-02 | two | `a.rs judge` | `a.rs` |",
            "SPR-02: a.rs is no file::test",
        ),
        (
            "| SPR-02 | two | `a.rs judge` | `a.rs::holds` | more |",
            "SPR-02: 5 columns",
        ),
    ] {
        let found = found(&[good, row]);
        assert!(
            found.contains(&said.to_owned()),
            "{row:?}: {said:?} in {found:?}"
        );
    }
    let further = "| SPR-03 | three | `a.rs judge` | `a.rs::holds` |";
    assert_eq!(found(&[good, other, further]), ["SPR-03: no such rule"]);
    let short = "| SPR-01 | one | `a.rs judge` | `a.rs::helper` |";
    assert_eq!(
        found(&[short, other]),
        ["SPR-01: a.rs has no test \"helper\""],
        "another function's mark is not its own"
    );
}

/// What production code may not contain, for it ends the process where an error should be answered.
const ENDS_THE_PROCESS: [&str; 6] = [
    ".unwrap()",
    ".expect(",
    "panic!(",
    "unreachable!(",
    "todo!(",
    "unimplemented!(",
];

/// The lines of production code that contain such a call: none of comments, none of tests, which stand
/// at the end of a file.
fn ending_the_process(text: &str) -> Vec<(usize, &str)> {
    let tests = [
        "\n#[cfg(test)]\nmod ",
        "\n#[cfg(test)]\npub(super) mod ",
        "\n#[cfg(all(test, ",
    ];
    let end = tests.iter().filter_map(|begin| text.find(begin)).min();
    let production = &text[..end.unwrap_or(text.len())];
    let lines = production.lines().enumerate();
    lines
        .map(|(index, line)| (index + 1, line.trim()))
        .filter(|(_, line)| !line.starts_with("//"))
        .filter(|(_, line)| ENDS_THE_PROCESS.iter().any(|call| line.contains(call)))
        .collect()
}

/// RES-24. The lints say so as well; this says that no file has switched them off.
#[test]
fn nothing_that_ships_unwraps_expects_or_panics() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let crates = std::fs::read_dir(crates).expect("the crates");
    let mut folders: Vec<_> = crates
        .map(|entry| entry.expect("an entry").path().join("src"))
        .collect();
    let (mut files, mut found) = (0, Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            // Declared as a module of the tests.
            if path.extension().is_none_or(|kind| kind != "rs")
                || path.ends_with("formats/fixture.rs")
                || path.ends_with("formats/spellings.rs")
                || path.ends_with("tests.rs")
            {
                continue;
            }
            files += 1;
            let text = std::fs::read_to_string(&path).expect("a file");
            let lines = ending_the_process(&text).into_iter();
            found.extend(lines.map(|(line, said)| format!("{}:{line}: {said}", path.display())));
        }
    }
    assert!(files > 100, "only {files} files were looked at");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_call_that_ends_the_process_is_seen_in_code_and_nowhere_else() {
    let text = "/// x.unwrap()\nfn f() {\n    x.expect(\"y\");\n}\n\n#[cfg(test)]\nmod tests {\n    panic!();\n}\n";
    assert_eq!(ending_the_process(text), [(3, "x.expect(\"y\");")]);
}
