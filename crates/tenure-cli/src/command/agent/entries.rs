//! What each installed file has of tenure: how that is put into a text, known again, and taken out.
//!
//! Every function goes from a text to a text and touches no file. An error is the end of a sentence that begins
//! with the file's name.
//!
//! How single places of a text are changed is in `json` and `toml`.

use super::json::{self, get, items};
use super::toml;
use crate::args::value::AgentHost as Host;
use crate::host::{NAME, SKILL, is_our_server, is_started, is_tenure};
use jsonc_parser::ast::Value as Node;
use jsonc_parser::common::Ranged;
use serde_json::{Value, json as value};
use std::path::Path;

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
        match kind {
            Kind::Hooks => {
                let groups = self.host.table().events.iter();
                let groups = groups.map(|hook| {
                    let group = self.host.group(hook, &self.program);
                    (hook.name.to_owned(), Value::Array(vec![group]))
                });
                json::text_of(&value!({ "hooks": Value::Object(groups.collect()) }))
            }
            Kind::Server => json::text_of(&value!({ "mcpServers": { NAME: self.server() } })),
            Kind::ServerInToml => toml::fresh(&self.program) + "\n",
            Kind::Skill => SKILL.to_owned(),
        }
    }

    fn server(&self) -> Value {
        value!({ "command": self.program, "args": ["mcp"] })
    }

    /// Puts everything in that is missing.
    pub(super) fn put(&self, kind: Kind, text: &str) -> Result<String, String> {
        if kind == Kind::Skill || is_blank(text) {
            return Ok(self.fresh(kind));
        }
        let (mark, text) = split(text);
        let new = match kind {
            Kind::Hooks => self.put_hooks(text),
            Kind::Server => self.put_server(text),
            Kind::ServerInToml => toml::put(text, &self.program),
            Kind::Skill => Ok(SKILL.to_owned()),
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
            let (document, root) = read(&text)?;
            let group = self.host.group(hook, &self.program);
            let Some(hooks) = get(&root, "hooks") else {
                let hooks = value!({ hook.name: [group] });
                text = json::append(&text, &root, &root, Some("hooks"), &hooks);
                continue;
            };
            let of_event = document["hooks"].get(hook.name);
            if !document["hooks"].is_object() {
                return Err("its `hooks` are no object".to_owned());
            }
            let (Some(groups), Some(of_event)) = (get(hooks, hook.name), of_event) else {
                let groups = value!([group]);
                text = json::append(&text, &root, hooks, Some(hook.name), &groups);
                continue;
            };
            let Some(values) = of_event.as_array() else {
                return Err(format!("its `hooks.{}` is no array", hook.name));
            };
            text = match self.ours_in(values).first() {
                None => json::append(&text, &root, groups, None, &group),
                // What its user has changed in it (the tools, the seconds) stays.
                Some(&(of_group, of_handler)) => {
                    let handler = self.host.handler(hook, &self.program);
                    if words_of(&handlers_of(&values[of_group])[of_handler]) == words_of(&handler) {
                        continue;
                    }
                    with_members(&text, &handler, &["command", "args"], |root| {
                        let groups = get(get(root, "hooks")?, hook.name)?;
                        let handlers = get(items(groups).get(of_group)?, "hooks")?;
                        items(handlers).get(of_handler)
                    })?
                }
            };
        }
        Ok(text)
    }

    /// Where our handlers stand in the groups of an event: the group's place, and the place in it.
    fn ours_in(&self, groups: &[Value]) -> Vec<(usize, usize)> {
        let mut ours = Vec::new();
        for (of_group, group) in groups.iter().enumerate() {
            for (of_handler, handler) in handlers_of(group).iter().enumerate() {
                if is_ours(handler, self.host) {
                    ours.push((of_group, of_handler));
                }
            }
        }
        ours
    }

    fn take_out_hooks(&self, text: &str) -> Result<String, String> {
        let mut text = text.to_owned();
        loop {
            let (document, root) = read(&text)?;
            let found = self.find_ours(&document, &root);
            let Some((events, event, values, of_group, of_handler)) = found else {
                return Ok(text);
            };
            let groups = get(events, event);
            let group = groups.and_then(|groups| items(groups).get(of_group));
            let (Some(groups), Some(group)) = (groups, group) else {
                return Ok(text);
            };
            // What is left empty goes too, as far as it stands around ours alone.
            text = if handlers_of(&values[of_group]).len() > 1 {
                let Some(handlers) = get(group, "hooks") else {
                    return Ok(text);
                };
                json::remove(&text, handlers, of_handler)
            } else if values.len() > 1 {
                json::remove(&text, groups, of_group)
            } else if json::count(events) > 1 {
                json::remove_member(&text, events, event)
            } else {
                json::remove_member(&text, &root, "hooks")
            };
        }
    }

    /// The first handler of ours in a document: the hooks, its event with the groups, where it is in them.
    fn find_ours<'a, 't>(
        &self,
        document: &'a Value,
        root: &'a Node<'t>,
    ) -> Option<(&'a Node<'t>, &'a str, &'a [Value], usize, usize)> {
        let hooks = get(root, "hooks")?;
        for (event, values) in document.get("hooks")?.as_object()? {
            let Some(values) = values.as_array() else {
                continue;
            };
            if let Some(&(of_group, of_handler)) = self.ours_in(values).first() {
                return Some((hooks, event, values, of_group, of_handler));
            }
        }
        None
    }

    /// How many handlers of ours there are for an event that has most of them.
    pub(super) fn most_for_one_event(&self, text: &str) -> usize {
        let Ok((document, _)) = json::read(split(text).1) else {
            return 0;
        };
        let hooks = document.get("hooks").and_then(Value::as_object);
        let of_event = |groups: &Value| {
            self.ours_in(groups.as_array().map_or(&[], |groups| groups))
                .len()
        };
        hooks.map_or(0, |hooks| hooks.values().map(of_event).max().unwrap_or(0))
    }

    fn put_server(&self, text: &str) -> Result<String, String> {
        let (document, root) = read(text)?;
        let server = self.server();
        match (document.get("mcpServers"), get(&root, "mcpServers")) {
            (Some(Value::Object(servers)), Some(node)) => match servers.get(NAME) {
                Some(old) => {
                    if !is_our_server(old) {
                        return Err(format!("its server `{NAME}` is another program"));
                    }
                    // What its user has added (`env`, words behind `mcp`) stays.
                    let keys: &[&str] = if is_started(old) {
                        &["command"]
                    } else {
                        &["command", "args"]
                    };
                    with_members(text, &server, keys, |root| {
                        get(get(root, "mcpServers")?, NAME)
                    })
                }
                None => Ok(json::append(text, &root, node, Some(NAME), &server)),
            },
            (None, _) => {
                let servers = value!({ NAME: server });
                Ok(json::append(
                    text,
                    &root,
                    &root,
                    Some("mcpServers"),
                    &servers,
                ))
            }
            _ => Err("its `mcpServers` are no object".to_owned()),
        }
    }
}

/// Gives an object of a text some members of another one, and leaves its own other members as they are.
fn with_members(
    text: &str,
    from: &Value,
    keys: &[&str],
    place: impl for<'n, 't> Fn(&'n Node<'t>) -> Option<&'n Node<'t>>,
) -> Result<String, String> {
    let mut text = text.to_owned();
    for key in keys {
        let Some(value) = from.get(key) else {
            continue;
        };
        let (_, root) = read(&text)?;
        let Some(object) = place(&root) else {
            continue;
        };
        text = match get(object, key) {
            Some(old) if serde_json::from_str(old.text(&text)).ok().as_ref() == Some(value) => {
                continue;
            }
            Some(old) => json::replace(&text, &root, old, value),
            None => json::append(&text, &root, object, Some(key), value),
        };
    }
    Ok(text)
}

fn read(text: &str) -> Result<(Value, Node<'_>), String> {
    let (value, node) = json::read(text).map_err(|why| format!("it is no JSON: {why}"))?;
    if value.is_object() {
        Ok((value, node))
    } else {
        Err("it is no JSON object".to_owned())
    }
}

fn take_out_server(text: &str) -> Result<String, String> {
    let (document, root) = read(text)?;
    let servers = document.get("mcpServers").and_then(Value::as_object);
    let (Some(servers), Some(node)) = (servers, get(&root, "mcpServers")) else {
        return Ok(text.to_owned());
    };
    if !servers.get(NAME).is_some_and(is_our_server) {
        return Ok(text.to_owned());
    }
    Ok(if servers.len() > 1 {
        json::remove_member(text, node, NAME)
    } else {
        json::remove_member(text, &root, "mcpServers")
    })
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

fn handlers_of(group: &Value) -> &[Value] {
    group
        .get("hooks")
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Whether a handler is ours for a host: its words are `tenure hook HOST`, wherever `tenure` is.
pub(super) fn is_ours(handler: &Value, host: Host) -> bool {
    let words = words_of(handler);
    words.len() == 3 && is_tenure(&words[0]) && words[1] == "hook" && words[2] == host.word()
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
