//! The messages between a client and `serve`: JSON-RPC 2.0, one message a line. What is a request, and what is no
//! message at all.
//!
//! What a request does is decided elsewhere.

use crate::failure::Failure;
use crate::request::serve::{AcquireParams, KnownLock, Where};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::path::PathBuf;

/// The version of the protocol.
pub(super) const PROTOCOL: u64 = 1;

/// How long a line may be.
pub(super) const LINE_MAX: usize = 1 << 20;

/// Codes of JSON-RPC.
const PARSE_ERROR: i64 = -32_700;
const INVALID_REQUEST: i64 = -32_600;
const METHOD_NOT_FOUND: i64 = -32_601;
const INVALID_PARAMS: i64 = -32_602;
/// Every failure of a request that could be read; `data` says which.
const FAILED: i64 = -32_000;

/// By which a request is known: the JSON of its id.
pub(super) type Id = String;

/// A request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: Id,
    pub(super) method: Method,
}

/// What a client asks for.
#[derive(Debug)]
pub(super) enum Method {
    Hello(Hello),
    Acquire(Box<AcquireParams>),
    Adopt(Adopt),
    Release(OfHold),
    Verify(OfHold),
    /// The request that is no longer wanted.
    Abandon(Id),
    Check(Check),
    List(List),
    Cancel(Cancel),
}

#[derive(Debug, Deserialize)]
pub(super) struct Hello {
    pub(super) protocol: u64,
    #[serde(default)]
    #[allow(dead_code, reason = "for a person who reads what passes by")]
    pub(super) client: Option<String>,
    #[serde(default)]
    pub(super) pid: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Adopt {
    pub(super) request_id: String,
    /// Of the only lock, or of one of the locks that are looked for.
    #[serde(default)]
    pub(super) token: Option<u64>,
    /// Without any, the locks of the hold are looked for.
    #[serde(default)]
    pub(super) locks: Vec<KnownLock>,
    #[serde(default)]
    dir: Option<PathBuf>,
    #[serde(default)]
    store: Option<String>,
    #[serde(default)]
    pub(super) caller: Option<String>,
}

impl Adopt {
    pub(super) fn place(&self) -> Where {
        Where {
            dir: self.dir.clone(),
            store: self.store.clone(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OfHold {
    pub(super) hold: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Abandon {
    id: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Check {
    pub(super) name: String,
    #[serde(default)]
    dir: Option<PathBuf>,
    #[serde(default)]
    store: Option<String>,
}

impl Check {
    pub(super) fn place(&self) -> Where {
        Where {
            dir: self.dir.clone(),
            store: self.store.clone(),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct List {
    #[serde(default)]
    pub(super) all: bool,
    #[serde(default)]
    dir: Option<PathBuf>,
    #[serde(default)]
    store: Option<String>,
}

impl List {
    pub(super) fn place(&self) -> Where {
        Where {
            dir: self.dir.clone(),
            store: self.store.clone(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cancel {
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) group: Option<String>,
    #[serde(default)]
    pub(super) request_id: Option<String>,
    #[serde(default)]
    pub(super) why: Option<String>,
    #[serde(default)]
    dir: Option<PathBuf>,
    #[serde(default)]
    store: Option<String>,
}

impl Cancel {
    pub(super) fn place(&self) -> Where {
        Where {
            dir: self.dir.clone(),
            store: self.store.clone(),
        }
    }
}

/// What a line is.
#[derive(Debug)]
pub(super) enum Line {
    Request(Request),
    /// A message that asks for nothing that can be done; this is its answer.
    Refused(String),
    /// A message without an id, to which JSON-RPC allows no answer. No method is of use without one.
    Ignored,
    /// No message: the other end does not speak this protocol, or a message was cut. This is the last answer.
    Garbage(String),
}

/// Reads a line.
pub(super) fn read(line: &[u8]) -> Line {
    let message: Value = match serde_json::from_slice(line) {
        Ok(message) => message,
        Err(error) => return garbage(&format!("the line is no JSON ({error})")),
    };
    let id = match message.get("id") {
        Some(id @ (Value::String(_) | Value::Number(_))) => id.to_string(),
        Some(_) => {
            return Line::Refused(wrong(
                "null",
                INVALID_REQUEST,
                "id: write a text or a number",
            ));
        }
        None if message.get("method").is_some() => return Line::Ignored,
        None => {
            let why = "the line is no request: it has no id and no method";
            return Line::Refused(wrong("null", INVALID_REQUEST, why));
        }
    };
    let method = message.get("method").and_then(Value::as_str);
    let (Some(method), Some("2.0")) = (method, message.get("jsonrpc").and_then(Value::as_str))
    else {
        let why = "write jsonrpc: \"2.0\" and a method";
        return Line::Refused(wrong(&id, INVALID_REQUEST, why));
    };
    let params = message.get("params").cloned();
    match method_of(method, params.unwrap_or_else(|| json!({}))) {
        Some(Ok(method)) => Line::Request(Request { id, method }),
        Some(Err(error)) => {
            let why = format!("{method}: {error}");
            Line::Refused(wrong(&id, INVALID_PARAMS, &why))
        }
        None => {
            let method = tenure_engine::envelope::clean(method);
            let why = format!("there is no method {method:?}");
            Line::Refused(wrong(&id, METHOD_NOT_FOUND, &why))
        }
    }
}

fn method_of(method: &str, params: Value) -> Option<Result<Method, serde_json::Error>> {
    fn of<P: DeserializeOwned>(
        params: Value,
        make: impl FnOnce(P) -> Method,
    ) -> Result<Method, serde_json::Error> {
        serde_json::from_value(params).map(make)
    }
    Some(match method {
        "hello" => of(params, Method::Hello),
        "acquire" => of(params, |acquire| Method::Acquire(Box::new(acquire))),
        "adopt" => of(params, Method::Adopt),
        "release" => of(params, Method::Release),
        "verify" => of(params, Method::Verify),
        "abandon" => of(params, |abandon: Abandon| {
            Method::Abandon(abandon.id.to_string())
        }),
        "check" => of(params, Method::Check),
        "list" => of(params, Method::List),
        "cancel" => of(params, Method::Cancel),
        _ => return None,
    })
}

/// The last answer to what is no message.
pub(super) fn garbage(why: &str) -> Line {
    Line::Garbage(wrong("null", PARSE_ERROR, why))
}

fn wrong(id: &str, code: i64, why: &str) -> String {
    error(id, code, &Failure::bad_arguments(why))
}

fn error(id: &str, code: i64, failure: &Failure) -> String {
    let error = json!({ "code": code, "message": failure.message, "data": failure.to_json() });
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}\n")
}

/// The answer to a request.
pub(super) fn answer(id: &str, result: Result<Value, Failure>) -> String {
    match result {
        Ok(result) => format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n"),
        Err(failure) => error(id, FAILED, &failure),
    }
}

/// A message that asks for no answer.
pub(super) fn notification(method: &str, params: &Value) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\",\"params\":{params}}}\n")
}
