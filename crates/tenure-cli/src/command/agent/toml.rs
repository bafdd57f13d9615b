//! The server of tenure in a `config.toml`: a table that is put behind everything else.
//!
//! A table at the end of a file changes the meaning of nothing before it. The parser reads the text before and
//! after each change, and the change is made only if both differ by this table and nothing else. So a text that
//! is laid out in an unusual way (inline tables, several lines in one string) is refused, and never damaged.

use super::hosts::NAME;
use super::hosts::is_tenure;
use serde::Deserialize;
use serde_json::Value as Json;
use toml::{Spanned, Table, Value};

/// The key of all servers.
const SERVERS: &str = "mcp_servers";

/// Our table.
pub(super) fn fresh(program: &str) -> String {
    format!(
        "{}\ncommand = {}\nargs = [\"mcp\"]",
        header(),
        // A basic string of TOML is written as one of JSON.
        Json::from(program)
    )
}

fn header() -> String {
    format!("[{SERVERS}.{NAME}]")
}

/// Reads a text.
pub(super) fn read(text: &str) -> Result<Table, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    text.parse::<Table>().map_err(|error| {
        let line = error.span().map(|span| {
            let before = text.get(..span.start).unwrap_or_default();
            1 + before.matches('\n').count()
        });
        let line = line.map_or_else(String::new, |line| format!(" (line {line})"));
        format!("it is no TOML: {}{line}", error.message())
    })
}

fn server(document: &Table) -> Option<&Value> {
    document.get(SERVERS)?.get(NAME)
}

fn is_ours(server: &Value) -> bool {
    server
        .get("command")
        .and_then(Value::as_str)
        .is_some_and(is_tenure)
}

/// Whether the table starts the server, with whatever its user has added.
fn is_started(server: &Value) -> bool {
    let args = server.get("args").and_then(Value::as_array);
    args.is_some_and(|args| args.first().and_then(Value::as_str) == Some("mcp"))
}

fn is_same(server: &Value, program: &str) -> bool {
    server.get("command").and_then(Value::as_str) == Some(program) && is_started(server)
}

/// Where the values of our table stand.
#[derive(Deserialize)]
struct Places {
    mcp_servers: Servers,
}

#[derive(Deserialize)]
struct Servers {
    tenure: Entry,
}

#[derive(Deserialize)]
struct Entry {
    command: Spanned<String>,
    args: Option<Spanned<Value>>,
}

/// Gives our table its program and, if it starts something else, its words. The rest of it is its user's.
fn renewed(text: &str, old: &Value, program: &str) -> Result<String, String> {
    let by_hand = || format!("its table {} cannot be changed; mend it by hand", header());
    let body = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mark = text.len() - body.len();
    let places: Places = ::toml::from_str(body).map_err(|_| by_hand())?;
    let Entry { command, args } = places.mcp_servers.tenure;
    let name = Json::from(program).to_string();
    let line_end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let words = "[\"mcp\"]";
    let mut edits = match (&args, is_started(old)) {
        (_, true) => vec![(command.span(), name)],
        (Some(args), false) => vec![(command.span(), name), (args.span(), words.to_owned())],
        (None, false) => vec![(command.span(), format!("{name}{line_end}args = {words}"))],
    };
    // From the last one on, so that the places before it stay what they are.
    edits.sort_by_key(|(at, _)| std::cmp::Reverse(at.start));
    let mut new = text.to_owned();
    for (at, with) in edits {
        new.replace_range(mark + at.start..mark + at.end, &with);
    }
    let mut expected = read(text)?;
    let ours = expected
        .get_mut(SERVERS)
        .and_then(|servers| servers.get_mut(NAME));
    if let Some(ours) = ours.and_then(Value::as_table_mut) {
        ours.insert("command".to_owned(), Value::from(program));
        if !is_started(old) {
            ours.insert("args".to_owned(), Value::from(vec!["mcp"]));
        }
    }
    if read(&new).is_ok_and(|after| after == expected) {
        Ok(new)
    } else {
        Err(by_hand())
    }
}

/// Puts the table in.
pub(super) fn put(text: &str, program: &str) -> Result<String, String> {
    let before = read(text)?;
    if let Some(old) = server(&before) {
        if is_same(old, program) {
            return Ok(text.to_owned());
        }
        if !is_ours(old) {
            return Err(format!("its server `{NAME}` is another program"));
        }
        return renewed(text, old, program);
    }
    let line_end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let table = fresh(program).replace('\n', line_end);
    // A file whose last line has no end keeps having none.
    let new = if text.ends_with('\n') {
        format!("{text}{line_end}{table}{line_end}")
    } else {
        format!("{text}{line_end}{line_end}{table}")
    };
    let is_good = read(&new).is_ok_and(|mut after| {
        let ours = server(&after).is_some_and(|server| is_same(server, program));
        remove(&mut after);
        ours && after == without(&before)
    });
    if is_good {
        Ok(new)
    } else {
        Err(format!(
            "its `{SERVERS}` cannot take another table; add {} by hand",
            header()
        ))
    }
}

/// Takes the table out.
pub(super) fn take_out(text: &str) -> Result<String, String> {
    let before = read(text)?;
    if !server(&before).is_some_and(is_ours) {
        return Ok(text.to_owned());
    }
    let expected = without(&before);
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let is_header = |line: &str| line.trim_start().starts_with('[');
    // A table ends at the next one; comments and empty lines in front of that one belong to it.
    let end_of = |at: usize| {
        let next = lines[at + 1..].iter().position(|line| is_header(line));
        let end = next.map_or(lines.len(), |next| at + 1 + next);
        let said = |line: &&str| !matches!(line.trim().chars().next(), None | Some('#'));
        let last = lines[at + 1..end].iter().rposition(said);
        last.map_or(at + 1, |last| at + 2 + last)
    };
    let of_it = format!("[{SERVERS}.{NAME}.");
    let below: Vec<usize> = (0..lines.len())
        .filter(|&at| lines[at].trim_start().starts_with(&of_it))
        .collect();
    let headers = (0..lines.len()).filter(|&at| lines[at].trim_start().starts_with(&header()));
    for at in headers {
        let mut keeps = vec![true; lines.len()];
        for &table in below.iter().chain([&at]) {
            // The empty line in front was put there with the table.
            let start = if table > 0 && lines[table - 1].trim().is_empty() {
                table - 1
            } else {
                table
            };
            keeps[start..end_of(table)].fill(false);
        }
        let ends_with_ours = keeps.last() == Some(&false);
        let kept = lines.iter().zip(&keeps).filter(|(_, keeps)| **keeps);
        let mut new: String = kept.map(|(line, _)| *line).collect();
        if ends_with_ours && !text.ends_with('\n') {
            let ends = new.strip_suffix("\r\n").or_else(|| new.strip_suffix('\n'));
            new = ends.unwrap_or(&new).to_owned();
        }
        if read(&new).is_ok_and(|after| after == expected) {
            return Ok(new);
        }
    }
    Err(format!(
        "its table {} was changed by hand; take it out by hand",
        header()
    ))
}

/// A document without our server, and without servers if ours was the only one.
fn without(document: &Table) -> Table {
    let mut document = document.clone();
    remove(&mut document);
    document
}

fn remove(document: &mut Table) {
    if let Some(Value::Table(servers)) = document.get_mut(SERVERS) {
        servers.remove(NAME);
        if servers.is_empty() {
            document.remove(SERVERS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_comes_and_goes_and_all_other_bytes_stay() {
        for text in [
            "# mine\nmodel = \"x\" # why\n\n[mcp_servers.other]\ncommand = \"o\"\n",
            "model = 'x'",
            "a = 1\r\n[b]\r\nc = \"\"\"\n[mcp_servers.tenure]\ncommand = \"x\"\n\"\"\"\r\n",
            "\u{feff}[features]\nhooks = true\n\n\n",
            "",
        ] {
            let with = put(text, "tenure").expect("it is put in");
            assert!(with.starts_with(text), "{with}");
            assert_eq!(put(&with, "tenure").expect("again"), with);
            assert_eq!(take_out(&with).expect("it is taken out"), text, "{with}");
        }
    }

    #[test]
    fn what_other_people_add_behind_it_stays() {
        let with = put("a = 1\n", "/opt/a b/tenure").expect("it is put in");
        assert!(with.contains("command = \"/opt/a b/tenure\""), "{with}");
        let more = format!("{with}\n# of others\n[z]\nb = 2\n");
        assert_eq!(
            take_out(&more).expect("it is taken out"),
            "a = 1\n\n# of others\n[z]\nb = 2\n"
        );
        let changed = put(&more, "tenure").expect("another program");
        assert_eq!(changed, more.replace("/opt/a b/tenure", "tenure"));
    }

    #[test]
    fn what_cannot_be_changed_safely_is_refused() {
        for text in [
            "mcp_servers = { other = { command = \"o\" } }\n",
            "mcp_servers = 1\n",
            "[mcp_servers.tenure]\ncommand = \"else\"\n",
            "a = \n",
        ] {
            put(text, "tenure").expect_err(text);
        }
        let grown =
            "[mcp_servers.tenure]\ncommand = \"tenure\"\nargs = [\"mcp\"]\nenv = { A = \"b\" }\n";
        assert_eq!(put(grown, "tenure").expect("it is there"), grown);
        assert_eq!(take_out(grown).expect("it is taken out"), "");
        // What its user has changed stays when the program is elsewhere, and goes with the table.
        let own = "a = 1\n\n[mcp_servers.tenure] # mine\ncommand = '/old/tenure' # why\nargs = [\"mcp\", \"--dir\", \"/x\"]\n\
                   \n[mcp_servers.tenure.env]\nA = \"b\"\n\n# of others\n[z]\nb = 2\n";
        let new = put(own, "tenure").expect("another path");
        assert_eq!(new, own.replace("'/old/tenure'", "\"tenure\""));
        assert_eq!(
            take_out(&new).expect("it is taken out"),
            "a = 1\n\n# of others\n[z]\nb = 2\n"
        );
        let bare = "[mcp_servers.tenure]\ncommand = \"tenure\"\nenv = { A = \"b\" }\n";
        let mended = put(bare, "tenure").expect("words are missing");
        assert_eq!(mended, bare.replace("\nenv", "\nargs = [\"mcp\"]\nenv"));
    }
}
