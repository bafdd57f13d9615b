//! Trace of which a call is a part: W3C Trace Context, as an environment hands it down (`TRACEPARENT`).
//!
//! A call in a trace is a span of its own: what it starts has that span as its parent, and the audit names it. A call in
//! no trace begins none. `tracestate` is not read, and goes on as it is.

use serde_json::{Value, json};
use tenure_os::os;
use tenure_store::printed::hex;

/// The variable that names a trace and the caller's span in it.
pub const TRACEPARENT: &str = "TRACEPARENT";

/// The flags that are known: sampled, and whether the id of the trace is random.
const FLAGS: u8 = 0b11;

/// The span of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// Id of the whole trace.
    id: String,
    /// The caller's span.
    caller: String,
    span: String,
    flags: u8,
}

impl Trace {
    /// A new span below the one that a `traceparent` names. `None` if it names none: its reader ignores what breaks
    /// the rules of its version, and reads of a later version what this one knows.
    pub fn below(traceparent: &str) -> Option<Self> {
        let mut parts = traceparent.split('-');
        let mut part = |digits| parts.next().filter(|part| is_hex(part, digits));
        let (version, trace_id, caller_id) = (part(2)?, part(32)?, part(16)?);
        let flags = u8::from_str_radix(part(2)?, 16).ok()?;
        let is_first = version == "00";
        if version == "ff" || (is_first && parts.next().is_some()) {
            return None;
        }
        let is_zero = |id: &str| id.bytes().all(|byte| byte == b'0');
        if is_zero(trace_id) || is_zero(caller_id) {
            return None;
        }
        let mut span_id = [0; 8];
        os::random(&mut span_id).ok()?;
        if span_id == [0; 8] {
            return None;
        }
        Some(Self {
            id: trace_id.to_owned(),
            caller: caller_id.to_owned(),
            span: hex(&span_id),
            flags: flags & FLAGS,
        })
    }

    /// What a command of the call finds in its environment.
    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-{:02x}", self.id, self.span, self.flags)
    }

    /// As the audit has it.
    pub(crate) fn json(&self) -> Value {
        json!({
            "trace_id": self.id,
            "span_id": self.span,
            "parent_id": self.caller,
        })
    }
}

fn is_hex(text: &str, digits: usize) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == digits && text.bytes().all(is_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const PARENT: &str = "00f067aa0ba902b7";

    #[test]
    fn a_call_is_a_new_span_of_the_same_trace() {
        let given = format!("00-{TRACE}-{PARENT}-01");
        let (one, two) = (Trace::below(&given), Trace::below(&given));
        let (one, two) = (one.expect("a trace"), two.expect("a trace"));
        assert_ne!(one.span, two.span);
        let handed_down = Trace::below(&one.traceparent()).expect("a trace");
        assert_eq!(handed_down.id, TRACE);
        assert_eq!((handed_down.caller, handed_down.flags), (one.span, 1));
        assert_eq!(two.caller, PARENT);
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        for (version, rest, flags) in [("01", "", "01"), ("cc", "-what-is-this", "ff")] {
            let given = format!("{version}-{TRACE}-{PARENT}-{flags}{rest}");
            let trace = Trace::below(&given).expect("a trace").traceparent();
            assert!(trace.starts_with(&format!("00-{TRACE}-")), "{trace}");
            let unknown_are_cleared = if flags == "ff" { "-03" } else { "-01" };
            assert!(trace.ends_with(unknown_are_cleared), "{trace}");
        }
    }

    #[test]
    fn what_breaks_the_rules_names_no_trace() {
        let zeros = "0".repeat(32);
        for wrong in [
            String::new(),
            "00".to_owned(),
            format!("00-{TRACE}-{PARENT}"),
            format!("00-{TRACE}-{PARENT}-1"),
            format!("00-{TRACE}-{PARENT}-01-more"),
            format!("00-{TRACE}-{PARENT}-01 "),
            format!("ff-{TRACE}-{PARENT}-01"),
            format!("0-{TRACE}-{PARENT}-01"),
            format!("00-{}-{PARENT}-01", TRACE.to_uppercase()),
            format!("00-{zeros}-{PARENT}-01"),
            format!("00-{TRACE}-0000000000000000-01"),
            format!("00-{TRACE}-{PARENT}-0g"),
            format!("cc-{TRACE}-{PARENT}-01.more"),
        ] {
            assert_eq!(Trace::below(&wrong), None, "{wrong}");
        }
    }
}
