//! The document in which a sprint call may be given, JSON or YAML: which fields it has, and that it
//! has no others.
//!
//! The module above decides what the fields mean. The fuzzer includes this file by its path.

use serde::Deserialize;
use tenure_engine::envelope::clean;
use tenure_engine::yaml;

/// The largest document that is read.
pub(super) const BYTES_MAX: u64 = 1 << 20;

/// The call as a document. Each field may be given as a flag instead, which then counts for more.
///
/// Any other field is refused. If a misspelt `force` or `session_id` were ignored, the call would answer
/// another question than the one that was asked.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Fields {
    pub(crate) mode: Option<String>,
    pub(crate) project_root: Option<String>,
    pub(crate) session_id: Option<String>,
    pub(crate) epic_spec: Option<String>,
    pub(crate) force: Option<bool>,
    pub(crate) lock_file_name: Option<String>,
    pub(crate) yes: Option<bool>,
    pub(crate) owner: Option<String>,
    pub(crate) pid: Option<String>,
    pub(crate) wait: Option<String>,
    pub(crate) health: Option<bool>,
}

/// Reads the document.
///
/// # Errors
/// - What is wrong with it, on one line without control characters.
pub(super) fn parse(bytes: &[u8]) -> Result<Fields, String> {
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > BYTES_MAX {
        return Err(format!("the document is larger than {BYTES_MAX} bytes"));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "the document is not UTF-8".to_owned())?;
    if text.trim().is_empty() {
        return Err("there is no document on stdin".to_owned());
    }
    // JSON may be indented in ways that YAML does not allow.
    if let Ok(fields) = serde_json::from_str(text) {
        return Ok(fields);
    }
    yaml::read(text).map_err(|why| format!("the document cannot be read: {}", clean(&why)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_yaml_or_json() {
        let expected = Fields {
            mode: Some("acquire".to_owned()),
            session_id: Some("5".to_owned()),
            epic_spec: Some("yes".to_owned()),
            force: Some(true),
            pid: Some("12".to_owned()),
            ..Fields::default()
        };
        for text in [
            "mode: acquire\nsession_id: 5\nepic_spec: yes\nforce: true\npid: 12\n",
            "{mode: acquire, session_id: '5', epic_spec: \"yes\", force: true, pid: '12'}",
            "{\"mode\": \"acquire\", \"session_id\": \"5\", \"epic_spec\": \"yes\", \
             \"force\": true, \"pid\": 12}",
            "{\n\t\"mode\": \"acquire\",\n\t\"session_id\": \"5\",\n\t\"epic_spec\": \"yes\",\n\
             \t\"force\": true,\n\t\"pid\": \"12\"\n}",
            "---\nmode: acquire\nsession_id: 5\nepic_spec: yes\nforce: true\npid: 12\n\
             lock_file_name: ~\n",
        ] {
            assert_eq!(parse(text.as_bytes()).as_ref(), Ok(&expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_call_is_refused() {
        for (text, why) in [
            ("", "no document"),
            ("\n \n", "no document"),
            ("mode", "cannot be read"),
            ("- mode", "cannot be read"),
            ("mode: check\nmode: check\n", "cannot be read"),
            ("mode: [check]\n", "cannot be read"),
            ("mode: check\nforce: 7\n", "cannot be read"),
            ("mode: check\nforced: true\n", "forced"),
            ("mode: check\n---\nmode: check\n", "cannot be read"),
        ] {
            let error = parse(text.as_bytes()).expect_err(text);
            assert!(error.contains(why), "{text:?}: {error}");
            assert!(!error.contains(char::is_control), "one clean line: {error}");
        }
        let large = vec![b'#'; usize::try_from(BYTES_MAX).expect("a size") + 1];
        let error = parse(&large).expect_err("too large");
        assert!(error.contains("larger than"), "{error}");
        assert!(parse(b"mode: \xff").is_err(), "not UTF-8");
    }
}
