//! The files that a call is about to write.
//!
//! The path of the file decides, and not the folder in which the agent works: that is another repository's often
//! enough. Which lock stands for a path, `tenure_engine::leased_path` says.

use super::event::Call;
use crate::args::value::AgentHost;
use crate::host::Tool;
use serde_json::Value;
use std::path::PathBuf;

/// What the lines of a patch begin with that name a file.
const NAMES_A_FILE: [&str; 4] = [
    "*** Add File: ",
    "*** Update File: ",
    "*** Delete File: ",
    "*** Move to: ",
];

/// The files that a call writes, as it names them.
///
/// # Errors
/// - What is missing, as the end of a sentence that begins with "the call".
pub(super) fn named(host: AgentHost, call: &Call) -> Result<Vec<PathBuf>, String> {
    let keys = host.table().keys;
    let text = |key: &&str| call.input.get(*key).and_then(Value::as_str);
    match call.tool {
        Tool::Shell | Tool::Monitor | Tool::Lock | Tool::Other => Ok(Vec::new()),
        Tool::Edit => {
            let named = keys.files.iter().find_map(text);
            let named = named.filter(|path| !path.is_empty());
            named
                .map(|path| vec![PathBuf::from(path)])
                .ok_or_else(|| "names no file".to_owned())
        }
        Tool::Patch => {
            let patch = keys.patches.iter().find_map(text);
            let files = of_patch(patch.ok_or("has no patch")?);
            if files.is_empty() {
                return Err("has a patch that names no file".to_owned());
            }
            Ok(files)
        }
    }
}

/// The files that a patch names.
fn of_patch(patch: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = Vec::new();
    for line in patch.lines() {
        let line = line.trim();
        let file = NAMES_A_FILE
            .iter()
            .find_map(|begin| line.strip_prefix(begin));
        if let Some(file) = file.map(str::trim).filter(|file| !file.is_empty()) {
            let file = PathBuf::from(file);
            if !files.contains(&file) {
                files.push(file);
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(tool: Tool, input: &Value) -> Call {
        Call {
            id: "t".to_owned(),
            tool,
            input: input.as_object().cloned().unwrap_or_default(),
        }
    }

    fn host_of(tool: Tool) -> AgentHost {
        if tool == Tool::Patch {
            AgentHost::Codex
        } else {
            AgentHost::Claude
        }
    }

    #[test]
    fn a_call_names_its_files() {
        let patch = "*** Begin Patch\n*** Update File: a/b.rs\n*** Move to: a/c.rs\n@@\n-x\n+*** y\n\
                     *** Add File: d e.txt\n+z\n*** Delete File: f\n*** Update File: a/b.rs\n*** End Patch\n";
        for (tool, input, expected) in [
            (Tool::Edit, json!({"file_path": "/w/a"}), &["/w/a"][..]),
            (
                Tool::Edit,
                json!({"notebook_path": "/w/n.ipynb"}),
                &["/w/n.ipynb"],
            ),
            (
                Tool::Patch,
                json!({"command": patch}),
                &["a/b.rs", "a/c.rs", "d e.txt", "f"],
            ),
            (
                Tool::Patch,
                json!({"input": patch}),
                &["a/b.rs", "a/c.rs", "d e.txt", "f"],
            ),
            (Tool::Shell, json!({"command": "ls"}), &[]),
        ] {
            let files = named(host_of(tool), &call(tool, &input)).expect("files");
            let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
            assert_eq!(files, expected, "{input}");
        }
        for (tool, input, word) in [
            (Tool::Edit, json!({}), "no file"),
            (Tool::Edit, json!({"file_path": ""}), "no file"),
            (Tool::Patch, json!({"command": 5}), "no patch"),
            (
                Tool::Patch,
                json!({"command": "*** Begin Patch"}),
                "names no file",
            ),
        ] {
            let why = named(host_of(tool), &call(tool, &input)).expect_err("nothing");
            assert!(why.contains(word), "{input}: {why}");
        }
    }
}
