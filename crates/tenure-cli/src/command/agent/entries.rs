//! What each installed file has of tenure: how that is put into a text, known again, and taken out.
//!
//! Every function goes from a text to a text and touches no file. An error is the end of a sentence that begins
//! with the file's name.
//!
//! How single places of a text are changed is in `json` and `toml`.

use super::json::{self, Key};
use super::toml;
use crate::args::value::AgentHost as Host;
use crate::host::{NAME, SKILL, is_our_server, is_started, is_tenure};
use serde_json::{Value, json as value};
use std::path::Path;

/// The key of all hooks, and of the handlers of a group.
const HOOKS: &str = "hooks";

/// The key of all servers in JSON, and where ours stands.
const SERVERS: &str = "mcpServers";
const SERVER: [Key<'static>; 2] = [Key::Name(SERVERS), Key::Name(NAME)];

/// What is installed into a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Hooks,
    /// The server, in a JSON file.
    Server,
    /// The server, in a TOML file.
    ServerInToml,
    /// The file is all ours.
    Skill,
}

impl Kind {
    /// Of the file that names the server.
    pub(super) fn of_server(file: &Path) -> Self {
        if file.extension().is_some_and(|is| is == "toml") {
            Self::ServerInToml
        } else {
            Self::Server
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Hooks => "hooks",
            Self::Server | Self::ServerInToml => "server",
            Self::Skill => "skill",
        }
    }
}

/// The words that stand in the entries.
#[derive(Debug, Clone)]
pub(super) struct Words {
    pub(super) host: Host,
    /// `tenure`, or where it is.
    pub(super) program: String,
}

/// What an installed text has of tenure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Has {
    Nothing,
    /// Something is missing, or is not as it would be installed now.
    Other,
    All,
}

impl Words {
    /// The file that an installation makes where there is none.
    pub(super) fn fresh(&self, kind: Kind) -> String {
        self.put(kind, "").unwrap_or_default()
    }

    /// Puts everything in that is missing.
    pub(super) fn put(&self, kind: Kind, text: &str) -> Result<String, String> {
        let (mark, text) = if is_blank(text) {
            ("", "")
        } else {
            split(text)
        };
        let json = if text.is_empty() { "{}\n" } else { text };
        let new = match kind {
            Kind::Hooks => self.put_hooks(json),
            Kind::Server => self.put_server(json),
            Kind::ServerInToml if text.is_empty() => Ok(toml::fresh(&self.program) + "\n"),
            Kind::ServerInToml => toml::put(text, &self.program),
            Kind::Skill => return Ok(SKILL.to_owned()),
        };
        Ok(format!("{mark}{}", new?))
    }

    /// Takes out what is ours.
    pub(super) fn take_out(&self, kind: Kind, text: &str) -> Result<String, String> {
        if is_blank(text) {
            return Ok(text.to_owned());
        }
        let (mark, text) = split(text);
        let new = match kind {
            Kind::Hooks => self.take_out_hooks(text),
            Kind::Server => take_out_server(text),
            Kind::ServerInToml => toml::take_out(text),
            Kind::Skill => Ok(text.to_owned()),
        };
        Ok(format!("{mark}{}", new?))
    }

    /// What a text has of tenure.
    pub(super) fn has(&self, kind: Kind, text: &str) -> Result<Has, String> {
        if is_blank(text) {
            return Ok(Has::Nothing);
        }
        if self.put(kind, text)? == text {
            return Ok(Has::All);
        }
        if kind == Kind::Skill {
            return Ok(Has::Other);
        }
        let is_none = self.take_out(kind, text)? == text;
        Ok(if is_none { Has::Nothing } else { Has::Other })
    }

    fn put_hooks(&self, text: &str) -> Result<String, String> {
        let mut text = text.to_owned();
        for hook in self.host.table().events {
            let document = read(&text)?;
            let mut ours = ours(&document, self.host);
            let Some(old) = ours.find(|old| old.event == hook.name) else {
                let end = [Key::Name(HOOKS), Key::Name(hook.name), Key::End];
                text = json::set(&text, &end, &self.host.group(hook, &self.program))?;
                continue;
            };
            // What its user has changed in it (the tools, the seconds) stays.
            let handler = self.host.handler(hook, &self.program);
            if words_of(old.value) != words_of(&handler) {
                text = with_members(&text, &old.path(), &handler, &["command", "args"])?;
            }
        }
        Ok(text)
    }

    fn take_out_hooks(&self, text: &str) -> Result<String, String> {
        let mut text = text.to_owned();
        loop {
            let document = read(&text)?;
            let Some(old) = ours(&document, self.host).next() else {
                return Ok(text);
            };
            let path = old.path();
            // A group goes with its last handler, whatever else it says.
            let path = if old.is_alone { &path[..3] } else { &path };
            match json::take_out(&text, path)? {
                Some(new) => text = new,
                None => return Ok(text),
            }
        }
    }

    fn put_server(&self, text: &str) -> Result<String, String> {
        let new = value!({ "command": self.program, "args": ["mcp"] });
        match read(text)?.get(SERVERS).and_then(|all| all.get(NAME)) {
            None => json::set(text, &SERVER, &new),
            Some(old) if !is_our_server(old) => {
                Err(format!("its server `{NAME}` is another program"))
            }
            // What its user has added (`env`, words behind `mcp`) stays.
            Some(old) if is_started(old) => with_members(text, &SERVER, &new, &["command"]),
            Some(_) => with_members(text, &SERVER, &new, &["command", "args"]),
        }
    }
}

fn take_out_server(text: &str) -> Result<String, String> {
    let document = read(text)?;
    let server = document.get(SERVERS).and_then(|all| all.get(NAME));
    if !server.is_some_and(is_our_server) {
        return Ok(text.to_owned());
    }
    Ok(json::take_out(text, &SERVER)?.unwrap_or_else(|| text.to_owned()))
}

/// Gives an object of a text some members of another one, and leaves its own other members as they are.
fn with_members(
    text: &str,
    place: &[Key<'_>],
    from: &Value,
    keys: &[&str],
) -> Result<String, String> {
    let mut text = text.to_owned();
    for key in keys {
        if let Some(value) = from.get(key) {
            text = json::set(&text, &[place, &[Key::Name(key)]].concat(), value)?;
        }
    }
    Ok(text)
}

fn read(text: &str) -> Result<Value, String> {
    match json::read(text)?.0 {
        value @ Value::Object(_) => Ok(value),
        _ => Err("it is no JSON object".to_owned()),
    }
}

/// The byte order mark that some editors put at the beginning of a text, and the rest.
fn split(text: &str) -> (&str, &str) {
    let rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    text.split_at(text.len() - rest.len())
}

/// Whether a text says nothing: hosts take it as they take no file.
pub(super) fn is_blank(text: &str) -> bool {
    text.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}')
        .is_empty()
}

/// Whether a JSON text is an object without members.
pub(super) fn is_empty_object(text: &str) -> bool {
    json::read(split(text).1)
        .is_ok_and(|(value, _)| value.as_object().is_some_and(serde_json::Map::is_empty))
}

/// A handler in a document of hooks, and where it stands.
pub(super) struct Handler<'a> {
    pub(super) value: &'a Value,
    pub(super) event: &'a str,
    pub(super) group: usize,
    pub(super) place: usize,
    /// Whether its group has no other handler.
    is_alone: bool,
}

impl<'a> Handler<'a> {
    fn path(&self) -> [Key<'a>; 5] {
        [
            Key::Name(HOOKS),
            Key::Name(self.event),
            Key::Place(self.group),
            Key::Name(HOOKS),
            Key::Place(self.place),
        ]
    }
}

/// The handlers of all programs.
pub(super) fn handlers(document: &Value) -> impl Iterator<Item = Handler<'_>> {
    let events = document[HOOKS].as_object().into_iter().flatten();
    let groups = events.flat_map(|(event, groups)| {
        let groups = json::list(groups).iter().enumerate();
        groups.map(move |(at, group)| (event, at, json::list(&group[HOOKS])))
    });
    groups.flat_map(|(event, group, handlers)| {
        let each = handlers.iter().enumerate();
        each.map(move |(place, value)| Handler {
            value,
            event,
            group,
            place,
            is_alone: handlers.len() == 1,
        })
    })
}

/// Our handlers for a host: their words are `tenure hook HOST`, wherever `tenure` is.
pub(super) fn ours(document: &Value, host: Host) -> impl Iterator<Item = Handler<'_>> {
    handlers(document).filter(move |handler| {
        let words = words_of(handler.value);
        words.len() == 3 && is_tenure(&words[0]) && words[1] == "hook" && words[2] == host.word()
    })
}

/// The words of a handler, whether they stand one by one or as a shell reads them.
fn words_of(handler: &Value) -> Vec<String> {
    let Some(command) = handler.get("command").and_then(Value::as_str) else {
        return Vec::new();
    };
    let args = handler.get("args").and_then(Value::as_array);
    let Some(args) = args else {
        return shell_words(command);
    };
    let args = args.iter().map(|arg| arg.as_str().unwrap_or_default());
    std::iter::once(command)
        .chain(args)
        .map(str::to_owned)
        .collect()
}

/// The words of a text that a shell reads, as far as quotes go.
fn shell_words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut within) = (Vec::new(), None::<String>, None);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (within, c) {
            (Some(quote), c) if c == quote => within = None,
            (None, '\'' | '"') => {
                within = Some(c);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(chars.next()),
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}
