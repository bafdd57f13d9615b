//! The messages between a client and `serve`: JSON-RPC 2.0, one message a line. What is a request, and what is no
//! message at all.
//!
//! What a request does, `calls` decides.

use crate::failure::Failure;
use crate::request::serve::{AcquireParams, CheckParams, KnownLock, Where, plain};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::path::PathBuf;
use tenure_store::printed::short;

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

/// By which a request is known: the JSON of its id. A message without an id gets one that is no JSON.
pub(super) type Id = String;

/// How the id of a message begins that has none.
const SILENT: char = '~';

/// The id of a message that has none.
pub(super) fn silent(number: u64) -> Id {
    format!("{SILENT}{number}")
}

/// Whether a request gets no answer.
pub(super) fn is_silent(id: &str) -> bool {
    id.starts_with(SILENT)
}

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
    Check(CheckParams),
    List(List),
    Cancel(Cancel),
}

#[derive(Debug, Deserialize)]
pub(super) struct Hello {
    /// Whatever it is, another version is refused as one.
    pub(super) protocol: Value,
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

/// Requests that may name the place of their locks. serde refuses unknown members only of a flat structure, so each
/// of them has both members itself.
macro_rules! may_name_a_place {
    ($($request:ident),*) => {
        $(impl $request {
            pub(super) fn place(&self) -> Where {
                Where {
                    dir: self.dir.clone(),
                    store: self.store.clone(),
                }
            }
        })*
    };
}

may_name_a_place!(Adopt, List, Cancel);

/// What a line is.
#[derive(Debug)]
pub(super) enum Frame {
    Request(Request),
    /// A message that asks for nothing that can be done; this is its answer.
    Refused(String),
    /// A message without an id, to which JSON-RPC allows no answer. It is carried out.
    Notified(Method),
    /// A message without an id whose method is of no use without an answer.
    Ignored,
    /// No message: the other end does not speak this protocol, or a message was cut. This is the last answer.
    Garbage(String),
}

/// Takes the parameters out of a message.
fn params_of(message: &mut Value) -> Value {
    let params = message.get_mut("params").map(Value::take);
    let params = params.filter(|params| !params.is_null());
    params.unwrap_or_else(|| json!({}))
}

/// What a message without an id asks for.
fn notified(message: &mut Value) -> Frame {
    let params = params_of(message);
    let method = message.get("method").and_then(Value::as_str);
    match method.and_then(|method| method_of(method, params)) {
        Some(Ok(method @ (Method::Release(_) | Method::Abandon(_) | Method::Cancel(_)))) => {
            Frame::Notified(method)
        }
        _ => Frame::Ignored,
    }
}

/// The line with every half of a character (`\ud83d` without its other half) replaced, whole ones too. It tells
/// which request it was.
fn without_halves(line: &[u8]) -> Vec<u8> {
    let mut line = line.to_vec();
    let mut at = 0;
    while let Some(byte) = line.get(at) {
        if *byte != b'\\' {
            at += 1;
            continue;
        }
        if let Some(
            [
                b'u',
                b'd' | b'D',
                b'8'..=b'9' | b'a'..=b'f' | b'A'..=b'F',
                ..,
            ],
        ) = line.get(at + 1..)
            && let Some(digits) = line.get_mut(at + 2..at + 6)
        {
            digits.copy_from_slice(b"fffd");
        }
        at += 2;
    }
    line
}

/// Reads a line.
pub(super) fn read(line: &[u8]) -> Frame {
    let mut message: Value = match serde_json::from_slice(line) {
        Ok(message) => message,
        Err(error) => {
            let Ok(message) = serde_json::from_slice::<Value>(&without_halves(line)) else {
                return garbage(&format!("the line is no JSON ({})", short(&error)));
            };
            let id = message
                .get("id")
                .filter(|id| id.is_string() || id.is_number());
            let id = id.map_or_else(|| "null".to_owned(), Value::to_string);
            let why = format!("a text has half a character ({})", short(&error));
            return Frame::Refused(wrong(&id, INVALID_PARAMS, &why));
        }
    };
    let id = match message.get("id") {
        Some(id @ (Value::String(_) | Value::Number(_))) => id.to_string(),
        Some(_) => {
            return Frame::Refused(wrong(
                "null",
                INVALID_REQUEST,
                "id: write a text or a number",
            ));
        }
        None if message.get("method").is_some() => return notified(&mut message),
        None => {
            let why = "the line is no request: it has no id and no method";
            return Frame::Refused(wrong("null", INVALID_REQUEST, why));
        }
    };
    let params = params_of(&mut message);
    let method = message.get("method").and_then(Value::as_str);
    let (Some(method), Some("2.0")) = (method, message.get("jsonrpc").and_then(Value::as_str))
    else {
        let why = "write jsonrpc: \"2.0\" and a method";
        return Frame::Refused(wrong(&id, INVALID_REQUEST, why));
    };
    match method_of(method, params) {
        Some(Ok(method)) => Frame::Request(Request { id, method }),
        Some(Err(error)) => {
            let why = format!("{method}: {error}");
            Frame::Refused(wrong(&id, INVALID_PARAMS, &why))
        }
        None => {
            let method = tenure_engine::envelope::clean(method);
            let why = format!("there is no method {method:?}");
            Frame::Refused(wrong(&id, METHOD_NOT_FOUND, &why))
        }
    }
}

/// Says which member is wrong: without it, the message is another one.
fn blame<P: DeserializeOwned>(params: &Value, said: &str) -> String {
    let members = params.as_object().cloned().unwrap_or_default();
    let is_wrong = |key: &&String| {
        let mut others = members.clone();
        others.remove(*key);
        let read = serde_json::from_value::<P>(Value::Object(others));
        read.err().is_none_or(|error| error.to_string() != said)
    };
    let why = short(&said);
    match members.keys().find(is_wrong) {
        Some(key) => format!("{}: {why}", tenure_engine::envelope::clean(key)),
        None => why,
    }
}

fn method_of(method: &str, params: Value) -> Option<Result<Method, String>> {
    fn of<P: DeserializeOwned>(
        params: Value,
        make: impl FnOnce(P) -> Method,
    ) -> Result<Method, String> {
        if !params.is_object() {
            return Err("params: write an object".to_owned());
        }
        let params = plain(params);
        match P::deserialize(&params) {
            Ok(read) => Ok(make(read)),
            Err(error) => Err(blame::<P>(&params, &error.to_string())),
        }
    }
    Some(match method {
        "hello" => of(params, Method::Hello),
        "acquire" => of(params, |acquire| Method::Acquire(Box::new(acquire))),
        "adopt" => of(params, Method::Adopt),
        "release" => of(params, Method::Release),
        "verify" => of(params, Method::Verify),
        // An id is compared as it was written.
        "abandon" => match serde_json::from_value(params) {
            Ok(Abandon { id }) => Ok(Method::Abandon(id.to_string())),
            Err(error) => Err(short(&error)),
        },
        "check" => of(params, Method::Check),
        "list" => of(params, Method::List),
        "cancel" => of(params, Method::Cancel),
        _ => return None,
    })
}

/// The last answer to what is no message.
pub(super) fn garbage(why: &str) -> Frame {
    Frame::Garbage(wrong("null", PARSE_ERROR, why))
}

fn wrong(id: &str, code: i64, why: &str) -> String {
    error(id, code, &Failure::bad_arguments(why))
}

fn error(id: &str, code: i64, failure: &Failure) -> String {
    let error = json!({ "code": code, "message": failure.sentence(), "data": failure.to_json() });
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
