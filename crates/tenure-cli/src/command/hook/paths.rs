//! Which files a call is about to write.
//!
//! The path of the file decides, and not the folder in which the agent works: that is another repository's often
//! enough. Links are followed, so a file has one lease by whatever way it is reached.

use super::event::{Call, Tool};
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

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
pub(super) fn named(call: &Call) -> Result<Vec<PathBuf>, String> {
    let text = |key: &str| call.input.get(key).and_then(Value::as_str);
    match call.tool {
        Tool::Shell => Ok(Vec::new()),
        Tool::Edit => {
            let named = text("file_path").or_else(|| text("notebook_path"));
            let named = named.filter(|path| !path.is_empty());
            named
                .map(|path| vec![PathBuf::from(path)])
                .ok_or_else(|| "names no file".to_owned())
        }
        Tool::Patch => {
            let patch = ["command", "input", "patch"].into_iter().find_map(text);
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
        let file = NAMES_A_FILE.iter().find_map(|begin| line.strip_prefix(begin));
        if let Some(file) = file.map(str::trim).filter(|file| !file.is_empty()) {
            let file = PathBuf::from(file);
            if !files.contains(&file) {
                files.push(file);
            }
        }
    }
    files
}

/// The file itself: the path without links and `..`, as far as it exists; and the nearest folder that does.
pub(super) fn resolved(folder: &Path, named: &Path) -> std::io::Result<(PathBuf, PathBuf)> {
    let whole = folder.join(named);
    let mut rest: Vec<OsString> = Vec::new();
    let mut there = whole.as_path();
    loop {
        match there.canonicalize() {
            Ok(real) => {
                let mut file = real.clone();
                // What does not exist has no links: `..` takes away the name before it.
                for name in rest.iter().rev() {
                    if name == ".." {
                        file.pop();
                    } else {
                        file.push(name);
                    }
                }
                let mut folder = if rest.is_empty() && !real.is_dir() {
                    real.parent().map(Path::to_owned).unwrap_or(real)
                } else {
                    real
                };
                while !file.starts_with(&folder) && folder.pop() {}
                return Ok((file, folder));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                // A link to a file that is still to be made.
                if let Ok(target) = there.read_link() {
                    let from = there.parent().unwrap_or(Path::new("/")).join(target);
                    let mut next = from;
                    next.extend(rest.iter().rev());
                    return resolved_once(&next);
                }
                let last = match there.components().next_back() {
                    Some(Component::Normal(name)) => name.to_owned(),
                    Some(Component::ParentDir) => "..".into(),
                    _ => return Err(error),
                };
                rest.push(last);
                there = there.parent().ok_or(error)?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// The same for the target of a link; a second link that leads nowhere is a mistake.
fn resolved_once(path: &Path) -> std::io::Result<(PathBuf, PathBuf)> {
    let folder = path.parent().unwrap_or(path);
    let real = folder.canonicalize()?;
    let name = path.file_name().unwrap_or_default();
    let file = real.join(name);
    if file.read_link().is_ok() {
        return Err(std::io::Error::other("links lead in a circle, or nowhere"));
    }
    Ok((file, real))
}

/// The names of a path below a folder; `None` if it does not lie there, or one is no text.
pub(super) fn below<'a>(root: &Path, file: &'a Path) -> Option<Vec<&'a str>> {
    let rest = file.strip_prefix(root).ok()?;
    rest.components()
        .map(|part| match part {
            Component::Normal(name) => name.to_str(),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::fs::symlink;

    fn call(tool: Tool, input: &Value) -> Call {
        Call {
            id: "t".to_owned(),
            tool,
            input: input.as_object().cloned().unwrap_or_default(),
        }
    }

    #[test]
    fn a_call_names_its_files() {
        let patch = "*** Begin Patch\n*** Update File: a/b.rs\n*** Move to: a/c.rs\n@@\n-x\n+*** y\n\
                     *** Add File: d e.txt\n+z\n*** Delete File: f\n*** Update File: a/b.rs\n*** End Patch\n";
        for (tool, input, expected) in [
            (Tool::Edit, json!({"file_path": "/w/a"}), &["/w/a"][..]),
            (Tool::Edit, json!({"notebook_path": "/w/n.ipynb"}), &["/w/n.ipynb"]),
            (Tool::Patch, json!({"command": patch}), &["a/b.rs", "a/c.rs", "d e.txt", "f"]),
            (Tool::Patch, json!({"input": patch}), &["a/b.rs", "a/c.rs", "d e.txt", "f"]),
            (Tool::Shell, json!({"command": "ls"}), &[]),
        ] {
            let files = named(&call(tool, &input)).expect("files");
            let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
            assert_eq!(files, expected, "{input}");
        }
        for (tool, input, word) in [
            (Tool::Edit, json!({}), "no file"),
            (Tool::Edit, json!({"file_path": ""}), "no file"),
            (Tool::Patch, json!({"command": 5}), "no patch"),
            (Tool::Patch, json!({"command": "*** Begin Patch"}), "names no file"),
        ] {
            let why = named(&call(tool, &input)).expect_err("nothing");
            assert!(why.contains(word), "{input}: {why}");
        }
    }

    #[test]
    fn a_file_is_the_same_by_whatever_way_it_is_reached() {
        let top = tempfile::tempdir().expect("a folder");
        let top = top.path().canonicalize().expect("a path");
        std::fs::create_dir_all(top.join("real/deep")).expect("folders");
        std::fs::write(top.join("real/a"), "").expect("a file");
        symlink(top.join("real"), top.join("link")).expect("a link");
        symlink("real/a", top.join("to_a")).expect("a link");
        symlink("real/new", top.join("to_new")).expect("a link");
        symlink("circle", top.join("circle")).expect("a link");
        for (named, file, folder) in [
            ("real/a", "real/a", "real"),
            ("link/a", "real/a", "real"),
            ("to_a", "real/a", "real"),
            ("real/deep/../a", "real/a", "real"),
            ("link/new", "real/new", "real"),
            ("link/new/deeper", "real/new/deeper", "real"),
            ("link/new/../other", "real/other", "real"),
            ("to_new", "real/new", "real"),
        ] {
            let found = resolved(&top, Path::new(named)).expect(named);
            assert_eq!(found, (top.join(file), top.join(folder)), "{named}");
        }
        assert!(resolved(&top, Path::new("circle")).is_err());
        let file = top.join("real/a");
        assert_eq!(below(&top, &file), Some(vec!["real", "a"]));
        assert_eq!(below(&top.join("link"), &file), None);
    }
}
