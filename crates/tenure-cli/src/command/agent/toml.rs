//! The server of tenure in a `config.toml`: a table that is put behind everything else.
//!
//! A table at the end of a file changes the meaning of nothing before it. The parser reads the text after each
//! change, so a text that is laid out in an unusual way (inline tables, several lines in one string) is refused, and
//! never damaged. `toml_edit` writes nothing here: it turns the line ends of Windows into others, drops a byte order
//! mark, and ends a last line that had no end.

use crate::host::{NAME, VARIABLES, is_our_server, is_started};
use serde_json::Value as Json;
use tenure_store::printed::short;
use toml::de::DeTable;
use toml::{Spanned, Table, Value};

/// The key of all servers.
const SERVERS: &str = "mcp_servers";

/// The words behind the program.
const WORDS: &str = "[\"mcp\"]";

/// The table of our server.
pub(super) fn fresh(program: &str) -> String {
    format!(
        "{}\ncommand = {}\nargs = {WORDS}\nenv_vars = [{}]",
        header(),
        // A basic string of TOML is written as one of JSON.
        Json::from(program),
        listed(VARIABLES)
    )
}

fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names = names.into_iter().map(|name| Json::from(name).to_string());
    names.collect::<Vec<_>>().join(", ")
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
        format!("it is no TOML: {}{line}", short(&error.message()))
    })
}

fn server(document: &Table) -> Option<Json> {
    let server = document.get(SERVERS)?.get(NAME)?;
    serde_json::to_value(server).ok()
}

/// Our server in a text, where it has one.
pub(super) fn ours(text: &str) -> Option<Json> {
    server(&read(text).ok()?).filter(is_our_server)
}

/// The variables that the host gives the server, as far as the table names them.
pub(super) fn passed(server: &Json) -> impl Iterator<Item = &str> {
    let names = server.get("env_vars").and_then(Json::as_array);
    names.into_iter().flatten().filter_map(Json::as_str)
}

/// The variables that the table lacks.
fn missing(server: &Json) -> Vec<&'static str> {
    let is_missing = |name: &&str| !passed(server).any(|passed| passed == *name);
    VARIABLES.into_iter().filter(is_missing).collect()
}

/// Whether a text has our server as it is installed for this program.
fn has(text: &str, program: &str) -> bool {
    let server = read(text).ok().as_ref().and_then(server);
    server.is_some_and(|server| {
        server.get("command").and_then(Json::as_str) == Some(program)
            && is_started(&server)
            && missing(&server).is_empty()
    })
}

/// The line end of a text.
fn line_end(text: &str) -> &'static str {
    if text.contains("\r\n") { "\r\n" } else { "\n" }
}

/// Gives our table its program, the variables that it lacks and, if it starts something else, its words. The rest of it is its
/// user's.
fn renewed(text: &str, old: &Json, program: &str) -> Option<String> {
    let document = DeTable::parse(text).ok()?;
    let entry = document.get_ref().get(SERVERS)?.get_ref().get(NAME)?;
    let span = |key: &str| entry.get_ref().get(key).map(Spanned::span);
    let command = span("command")?;
    let (mut edits, mut lines) = (
        vec![(command.clone(), Json::from(program).to_string())],
        Vec::new(),
    );
    match span("args") {
        _ if is_started(old) => {}
        Some(args) => edits.push((args, WORDS.to_owned())),
        None => lines.push(format!("args = {WORDS}")),
    }
    let missing = missing(old);
    match span("env_vars") {
        _ if missing.is_empty() => {}
        Some(names) => {
            let comma = if passed(old).next().is_some() {
                ", "
            } else {
                ""
            };
            let first = names.start + 1;
            edits.push((first..first, listed(missing) + comma));
        }
        None => lines.push(format!("env_vars = [{}]", listed(missing))),
    }
    // Behind the line of the program, with whatever comment it has.
    let rest = text.get(command.end..)?;
    let behind = command.end + rest.find(['\r', '\n']).unwrap_or(rest.len());
    let lines = lines.iter().map(|line| format!("{}{line}", line_end(text)));
    edits.push((behind..behind, lines.collect()));
    // From the last one on, so that the places before it stay what they are.
    edits.sort_by_key(|(at, _)| std::cmp::Reverse(at.start));
    let mut new = text.to_owned();
    for (at, with) in edits {
        new.replace_range(at, &with);
    }
    Some(new)
}

/// Puts the table in.
pub(super) fn put(text: &str, program: &str) -> Result<String, String> {
    if has(text, program) {
        return Ok(text.to_owned());
    }
    let before = read(text)?;
    let (new, why) = match server(&before) {
        Some(old) if !is_our_server(&old) => {
            return Err(format!("its server `{NAME}` is another program"));
        }
        Some(old) => (
            renewed(text, &old, program),
            format!("its table {} cannot be changed; mend it by hand", header()),
        ),
        None => {
            let line_end = line_end(text);
            let table = fresh(program).replace('\n', line_end);
            // A file whose last line has no end keeps having none.
            let new = if text.ends_with('\n') {
                format!("{text}{line_end}{table}{line_end}")
            } else {
                format!("{text}{line_end}{line_end}{table}")
            };
            (
                Some(new),
                format!(
                    "its `{SERVERS}` cannot take another table; add {} by hand",
                    header()
                ),
            )
        }
    };
    new.filter(|new| has(new, program)).ok_or(why)
}

/// Takes the table out.
pub(super) fn take_out(text: &str) -> Result<String, String> {
    let before = read(text)?;
    if !server(&before).is_some_and(|server| is_our_server(&server)) {
        return Ok(text.to_owned());
    }
    let expected = without(before);
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
fn without(mut document: Table) -> Table {
    if let Some(Value::Table(servers)) = document.get_mut(SERVERS) {
        servers.remove(NAME);
        if servers.is_empty() {
            document.remove(SERVERS);
        }
    }
    document
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
        let grown = fresh("tenure") + "\nenv = { A = \"b\" }\n";
        assert_eq!(put(&grown, "tenure").expect("it is there"), grown);
        assert_eq!(take_out(&grown).expect("it is taken out"), "");
        // What its user has changed stays when the program is elsewhere, and goes with the table.
        let own = "a = 1\n\n[mcp_servers.tenure] # mine\ncommand = '/old/tenure' # why\nargs = [\"mcp\", \"--dir\", \"/x\"]\n\
                   \n[mcp_servers.tenure.env]\nA = \"b\"\n\n# of others\n[z]\nb = 2\n";
        let new = put(own, "tenure").expect("another path");
        let names = listed(VARIABLES);
        let command = format!("\"tenure\" # why\nenv_vars = [{names}]");
        assert_eq!(new, own.replace("'/old/tenure' # why", &command));
        assert_eq!(
            take_out(&new).expect("it is taken out"),
            "a = 1\n\n# of others\n[z]\nb = 2\n"
        );
        let bare = "[mcp_servers.tenure]\ncommand = \"tenure\"\nenv = { A = \"b\" }\n";
        let mended = put(bare, "tenure").expect("words are missing");
        let more = format!("\nargs = [\"mcp\"]\nenv_vars = [{names}]\nenv");
        assert_eq!(mended, bare.replace("\nenv", &more));
        // Names that its user has added stay.
        let named = "[mcp_servers.tenure]\ncommand = \"tenure\"\nargs = [\"mcp\"]\nenv_vars = [\"MINE\", \"TENURE_DIR\"]\n";
        let mended = put(named, "tenure").expect("names are missing");
        let server = ours(&mended).expect("ours");
        assert_eq!(passed(&server).count(), VARIABLES.len() + 1, "{mended}");
        assert!(
            missing(&server).is_empty() && mended.contains("\"MINE\""),
            "{mended}"
        );
    }
}
