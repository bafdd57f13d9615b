//! Reads one line of a client as a message, or says what is wrong with it, by the error codes of JSON-RPC.
//!
//! | code | what the line is |
//! |---|---|
//! | -32700 | no JSON |
//! | -32600 | no message, or longer than 1 MiB |
//! | -32602 | a request of a method that this server has, without what the method needs |
//!
//! A method that this server does not have is answered by the protocol's library (-32601).

use rmcp::RoleServer;
use rmcp::model::{CallToolRequestParams, ClientRequest, ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::RxJsonRpcMessage;
use serde_json::{Map, Value};

/// The methods that this server has.
const METHODS: [&str; 5] = [
    "initialize",
    "ping",
    "server/discover",
    "tools/call",
    "tools/list",
];

/// How long a member of a message may be of which the id is read.
const MEMBER_MAX: usize = 1 << 10;

/// What is wrong with a line, and the id of its request, if it tells one.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) id: Option<RequestId>,
    pub(super) error: ErrorData,
}

impl Wrong {
    fn request(id: Option<RequestId>, why: &'static str) -> Self {
        let error = ErrorData::invalid_request(why, None);
        Self { id, error }
    }
}

/// The message of a line; `None` if the line asks for nothing.
pub(super) fn read(line: &[u8]) -> Result<Option<RxJsonRpcMessage<RoleServer>>, Wrong> {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    if line.trim_ascii().is_empty() {
        return Ok(None);
    }
    let Ok(value) = serde_json::from_slice::<Value>(line) else {
        let error = ErrorData::parse_error("the line is no JSON", None);
        return Err(Wrong { id: None, error });
    };
    let Some(fields) = value.as_object() else {
        return Err(Wrong::request(None, "a message is a JSON object"));
    };
    let has = |key: &str| fields.contains_key(key);
    let id = fields.get("id").and_then(id_of);
    if !has("method") && (has("result") || has("error")) {
        // An answer of the client.
        return Ok(serde_json::from_value(value).ok());
    }
    if fields.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(Wrong::request(id, "a message has \"jsonrpc\": \"2.0\""));
    }
    let Some(method) = fields.get("method").and_then(Value::as_str) else {
        return Err(Wrong::request(id, "a message has a method, as text"));
    };
    let Some(id) = id else {
        if has("id") {
            return Err(Wrong::request(None, "an id is a whole number or text"));
        }
        return Ok(serde_json::from_value(value).ok());
    };
    let known = METHODS.into_iter().find(|known| *known == method);
    let params = fields.get("params").cloned();
    let message = serde_json::from_value(value).ok();
    // The library takes each request for one of an unknown method that it cannot read as what it is.
    let is_read = message.as_ref().is_some_and(|message| match message {
        JsonRpcMessage::Request(one) => !matches!(one.request, ClientRequest::CustomRequest(_)),
        _ => true,
    });
    match known.filter(|_| !is_read) {
        Some(known) => Err(Wrong {
            id: Some(id),
            error: ErrorData::invalid_params(missing(known, params), None),
        }),
        None if message.is_none() => Err(Wrong::request(Some(id), "the line is no message")),
        None => Ok(message),
    }
}

fn id_of(value: &Value) -> Option<RequestId> {
    serde_json::from_value(value.clone()).ok()
}

/// What the parameters of a method lack.
fn missing(method: &str, params: Option<Value>) -> String {
    let params = match params {
        None => return format!("{method}: params are missing"),
        Some(params @ Value::Object(_)) => params,
        Some(_) => return format!("{method}: params are no object"),
    };
    if method == "tools/call" {
        match params.get("name") {
            None => return format!("{method}: params.name, the name of the tool, is missing"),
            Some(name) if !name.is_string() => {
                return format!("{method}: params.name, the name of the tool, is no text");
            }
            Some(_) => {}
        }
        if params.get("arguments").is_some_and(|all| !all.is_object()) {
            return format!("{method}: params.arguments is no object");
        }
        if let Err(why) = serde_json::from_value::<CallToolRequestParams>(params) {
            return format!("{method}: {why}");
        }
    }
    format!("{method}: the params are not those of this method")
}

/// Looks for the id of a message that is too long to be kept: among its own members, wherever it stands.
#[derive(Debug, Default)]
pub(super) struct Sight {
    depth: usize,
    in_text: bool,
    is_escaped: bool,
    /// The text of a member, without what stands inside of it.
    member: Vec<u8>,
    id: Option<RequestId>,
}

impl Sight {
    pub(super) fn see(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let is_text = self.in_text;
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' if is_text => self.is_escaped = true,
                b'"' => self.in_text = !is_text,
                _ if is_text => {}
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    if self.depth == 1 {
                        self.end();
                    }
                    self.depth = self.depth.saturating_sub(1);
                    continue;
                }
                b',' if self.depth == 1 => {
                    self.end();
                    continue;
                }
                _ => {}
            }
            let is_brace = !is_text && matches!(byte, b'{' | b'[');
            if self.depth == 1 && !is_brace && self.member.len() <= MEMBER_MAX {
                self.member.push(*byte);
            }
        }
    }

    fn end(&mut self) {
        let member = std::mem::take(&mut self.member);
        if member.len() <= MEMBER_MAX {
            let whole = [b"{", member.as_slice(), b"}"].concat();
            let fields: Option<Map<String, Value>> = serde_json::from_slice(&whole).ok();
            let id = fields.and_then(|fields| fields.get("id").and_then(id_of));
            self.id = id.or(self.id.take());
        }
    }

    pub(super) fn too_long(self) -> Wrong {
        Wrong::request(self.id, "a line has at most 1 MiB")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_that_asks_for_something_is_a_message_or_gets_an_answer() {
        let wrong = |line: &str| match read(line.as_bytes()) {
            Err(wrong) => {
                let id = serde_json::to_value(wrong.id).expect("an id");
                Some((id, wrong.error.code.0, wrong.error.message.into_owned()))
            }
            Ok(_) => None,
        };
        let call =
            |rest: &str| format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call"{rest}}}"#);
        for (line, id, code, said) in [
            ("garbage".to_owned(), Value::Null, -32700, "no JSON"),
            ("{\"jsonrpc\":".to_owned(), Value::Null, -32700, "no JSON"),
            ("[1,2]".to_owned(), Value::Null, -32600, "object"),
            ("[]".to_owned(), Value::Null, -32600, "object"),
            ("{}".to_owned(), Value::Null, -32600, "2.0"),
            (
                r#"{"id":3,"method":"ping"}"#.to_owned(),
                3.into(),
                -32600,
                "2.0",
            ),
            (
                r#"{"jsonrpc":"2.0","id":"a"}"#.to_owned(),
                "a".into(),
                -32600,
                "a method",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":5}"#.to_owned(),
                1.into(),
                -32600,
                "a method",
            ),
            (
                r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#.to_owned(),
                Value::Null,
                -32600,
                "an id",
            ),
            (
                r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#.to_owned(),
                Value::Null,
                -32600,
                "an id",
            ),
            (call(""), 7.into(), -32602, "params are missing"),
            (call(r#","params":7"#), 7.into(), -32602, "no object"),
            (
                call(r#","params":{}"#),
                7.into(),
                -32602,
                "params.name, the name of the tool, is missing",
            ),
            (call(r#","params":{"name":5}"#), 7.into(), -32602, "no text"),
            (
                call(r#","params":{"name":"x","arguments":[]}"#),
                7.into(),
                -32602,
                "arguments",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#.to_owned(),
                1.into(),
                -32602,
                "initialize: params are missing",
            ),
        ] {
            let (seen_id, seen_code, message) = wrong(&line).unwrap_or_else(|| panic!("{line}"));
            assert_eq!((seen_id, seen_code), (id, code), "{line}: {message}");
            assert!(message.contains(said), "{line}: {message}");
        }
        for line in [
            "",
            "  \r",
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","method":"hello"}"#,
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"no/such"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
            "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\r",
        ] {
            assert_eq!(wrong(line), None, "{line}");
        }
    }

    #[test]
    fn the_id_of_a_long_line_is_found_wherever_it_stands() {
        let long = "x,\\\"}{".repeat(1_000);
        for (line, id) in [
            (
                format!(r#"{{"id":5,"params":{{"a":"{long}"}}}}"#),
                Value::from(5),
            ),
            (
                format!(r#"{{"params":{{"a":"{long}","id":7}},"method":"m" , "id" : "a\"b" }}"#),
                "a\"b".into(),
            ),
            (
                format!(r#"{{"params":["{long}",{{"id":7}}],"why":"{long}","id":9}}"#),
                9.into(),
            ),
            (format!(r#"{{"params":"{long}"}}"#), Value::Null),
            (format!(r#"[{{"id":5}},"{long}"]"#), Value::Null),
            (long.clone(), Value::Null),
        ] {
            let mut sight = Sight::default();
            for part in line.as_bytes().chunks(7) {
                sight.see(part);
            }
            let wrong = sight.too_long();
            assert_eq!(serde_json::to_value(wrong.id).expect("an id"), id, "{line}");
        }
    }
}
