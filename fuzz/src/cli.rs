//! What a call reads: the sprint call as a document, `TENURE_HELD` and `TENURE_AROUND`.
//!
//! A binary has no library that could be linked, so its decoder of documents is included as it stands.

use tenure_core::LockName;
use tenure_engine::inherited::{self, Around};

#[allow(dead_code, reason = "the binary uses the rest")]
#[path = "../../crates/tenure-cli/src/request/sprint/fields.rs"]
mod fields;

/// A call as a document: refused in one line, or the same call when it is written as JSON.
pub fn input(data: &[u8]) {
    let call = match fields::parse(data) {
        Ok(call) => call,
        Err(why) => return super::is_a_line(&why),
    };
    let json = serde_json::json!({
        "mode": call.mode,
        "project_root": call.project_root,
        "session_id": call.session_id,
        "epic_spec": call.epic_spec,
        "force": call.force,
        "lock_file_name": call.lock_file_name,
        "yes": call.yes,
        "owner": call.owner,
        "pid": call.pid,
        "wait": call.wait,
        "health": call.health,
    });
    assert_eq!(
        fields::parse(json.to_string().as_bytes()),
        Ok(call),
        "as JSON: {json}"
    );
}

/// Holds and places that were inherited are handed on as the same ones.
pub fn held(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let mut holds = inherited::parse(text);
    holds.retain(|hold| LockName::new(hold.name.as_str()).is_ok());
    let mut value = String::new();
    for hold in &holds {
        let name = LockName::new(hold.name.as_str()).expect("a name");
        inherited::extend(&mut value, hold.token, &hold.folder, &name);
    }
    assert_eq!(inherited::parse(&value), holds, "written as {value:?}");
    if let Some(around) = Around::parse(text) {
        let value = around.value();
        assert_eq!(Around::parse(&value), Some(around), "written as {value:?}");
    }
}
