//! `allow`: shows what the files of a clone ask for, and writes down in the user's own configuration what is allowed.
//!
//! # Crash safety
//! The user's file is replaced as the files of agents' hosts are (`agent/files`): a death leaves the old text or the new
//! one, whole. What stands around the key `allow` stays as it is.

use super::agent::files::{Hindered, Target, failed};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::{Reporter, clean, clean_path};
use crate::request::{Allow, Consent};
use serde_json::{Value, json};
use std::path::Path;
use toml_edit::{Array, DocumentMut, Item};

/// How often the user's file is read again because another program changed it.
const TRIES: u32 = 16;

/// The key.
const KEY: &str = "allow";

#[allow(
    clippy::needless_pass_by_value,
    reason = "each verb is given its request"
)]
#[cold]
#[inline(never)]
pub(super) fn allow(call: Allow, _: &mut Reporter) -> Result<(String, Value), Failure> {
    let Some(what) = &call.what else {
        return Ok(shown(&call));
    };
    let clusters = clusters(&call)?;
    if what.is_empty() && !clusters.is_empty() {
        let lines: Vec<_> = clusters.iter().map(|(line, _)| line.as_str()).collect();
        let new: Vec<_> = clusters.iter().map(|(_, text)| text).collect();
        let data = json!({ "asked": [], "allowed": [], "changed": new });
        return Ok((lines.join("\n"), data));
    }
    changed(&call, what)
}

/// Makes this machine remember to which cluster servers belong, or forget it. Returns what is said of each.
#[cfg(feature = "etcd")]
fn clusters(call: &Allow) -> Result<Vec<(String, String)>, Failure> {
    use tenure_store::etcd::{accept_cluster, forget_cluster};
    let folder = tenure_engine::config::servers_folder();
    let Some(folder) = folder.filter(|_| !call.clusters.is_empty()) else {
        return Ok(Vec::new());
    };
    let each = call.clusters.iter().map(|cluster| {
        let address = &cluster.address;
        let (done, line) = if call.revokes {
            let line = format!("the cluster of {address} is forgotten");
            (forget_cluster(&folder, address), line)
        } else {
            let line = format!("the servers of {address} are of cluster {:x}", cluster.id);
            (accept_cluster(&folder, address, cluster.id), line)
        };
        done.map_err(|error| failed(&folder, "written", &error))?;
        Ok((line, clean(&cluster.text).into_owned()))
    });
    each.collect()
}

#[cfg(not(feature = "etcd"))]
#[allow(
    clippy::unnecessary_wraps,
    reason = "a build with stores on servers fails here"
)]
fn clusters(_: &Allow) -> Result<Vec<(String, String)>, Failure> {
    Ok(Vec::new())
}

/// What is asked for here, and all that is allowed.
fn shown(call: &Allow) -> (String, Value) {
    let mut lines = Vec::new();
    for consent in &call.asked {
        let is_allowed = call.is_allowed(consent);
        let word = if is_allowed { "allowed" } else { "not allowed" };
        let file = consent.file.as_deref().map(clean_path).unwrap_or_default();
        lines.push(format!(
            "{word}: {} ({}), asked for by {file}",
            clean(&consent.text),
            consent.lets
        ));
    }
    if lines.is_empty() {
        lines.push("no tenure.toml of a clone asks for anything here".to_owned());
    }
    let given = call.config.iter().flat_map(|config| config.consents());
    let given: Vec<_> = given.collect();
    for (consent, file) in &given {
        lines.push(format!("{} allows {}", clean_path(file), clean(consent)));
    }
    let asked: Vec<_> = call
        .asked
        .iter()
        .map(|consent| {
            json!({
                "what": consent.text,
                "lets": consent.lets,
                "file": consent.file.as_deref().map(|file| file.to_string_lossy()),
                "allowed": call.is_allowed(consent),
            })
        })
        .collect();
    let allowed: Vec<_> = given
        .iter()
        .map(|(consent, file)| json!({ "what": consent, "file": file.to_string_lossy() }))
        .collect();
    let data = json!({ "asked": asked, "allowed": allowed, "changed": [] });
    (lines.join("\n"), data)
}

/// Writes consent down, or takes it out.
fn changed(call: &Allow, what: &[Consent]) -> Result<(String, Value), Failure> {
    if what.is_empty() {
        let text = "it asks for nothing that needs consent";
        return Ok((
            text.to_owned(),
            json!({ "asked": [], "allowed": [], "changed": [] }),
        ));
    }
    let new = rewrite(&call.file, what, call.revokes)?;
    let file = clean_path(&call.file);
    let machine = machines(call, what);
    let lines = what.iter().map(|consent| {
        let text = clean(&consent.text);
        let is_new = new.contains(&consent.text);
        match (call.revokes, is_new) {
            (false, true) => format!("{file} allows {text} from now on: {}", consent.lets),
            (false, false) => format!("{file} allows {text} already"),
            (true, true) => format!("{file} allows {text} no longer"),
            (true, false) => format!("{file} does not name {text}"),
        }
    });
    let text: Vec<String> = lines.chain(machine).collect();
    Ok((
        text.join("\n"),
        json!({ "asked": [], "allowed": [], "changed": new }),
    ))
}

/// What the machine's file, or a wider line of the user's, allows still.
fn machines(call: &Allow, what: &[Consent]) -> Option<String> {
    let config = call.config.as_ref().filter(|_| call.revokes)?;
    let others = |consent: &&Consent| {
        let mut given = config.consents();
        given.any(|(text, file)| text == consent.text && file != call.file)
    };
    let still = what.iter().find(others)?;
    Some(format!(
        "{} is allowed all the same: the machine's configuration says so",
        clean(&still.text)
    ))
}

/// Makes the user's file say this, and returns what of it is new.
fn rewrite(file: &Path, what: &[Consent], revokes: bool) -> Result<Vec<String>, Failure> {
    let folder = file.parent().unwrap_or(file);
    for _ in 0..TRIES {
        let mut target = Target::at(file, folder)?;
        target.settle(|_| false)?;
        let old = target.text.clone().unwrap_or_default();
        let (text, changed) = edited(&old, what, revokes)
            .map_err(|why| Failure::bad_arguments(format!("{}: {why}", clean_path(file))))?;
        if changed.is_empty() {
            return Ok(changed);
        }
        match target.replace(Some(&text)) {
            Ok(()) => return Ok(changed),
            Err(Hindered::Changed) => {}
            Err(Hindered::Failed(error) | Hindered::Unsynced(error)) => {
                return Err(failed(file, "written", &error));
            }
        }
    }
    Err(Failure::new(
        Exit::General,
        "IO_ERROR",
        format!(
            "{} is changed by another program again and again",
            clean_path(file)
        ),
    ))
}

/// The text of the file with these consents, or without them, and which of them that changes.
fn edited(text: &str, what: &[Consent], revokes: bool) -> Result<(String, Vec<String>), String> {
    let mut document: DocumentMut = text
        .parse()
        .map_err(|error: toml_edit::TomlError| error.message().to_owned())?;
    let item = document
        .entry(KEY)
        .or_insert(Item::Value(Array::new().into()));
    let Some(list) = item.as_array_mut() else {
        return Err("allow: it is no list".to_owned());
    };
    let mut changed = Vec::new();
    for consent in what {
        let at = list
            .iter()
            .position(|given| given.as_str() == Some(&consent.text));
        match (at, revokes) {
            (None, false) => list.push(consent.text.as_str()),
            (Some(at), true) => {
                list.remove(at);
            }
            (None, true) | (Some(_), false) => continue,
        }
        changed.push(consent.text.clone());
    }
    if list.is_empty() {
        document.remove(KEY);
    }
    Ok((document.to_string(), changed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn consent(text: &str) -> Consent {
        Consent {
            text: text.to_owned(),
            lets: String::new(),
            file: None,
        }
    }

    #[test]
    fn what_stands_around_the_key_stays_as_it_is() {
        let one = [consent("etcd://one")];
        for (old, new) in [
            ("", "allow = [\"etcd://one\"]\n"),
            (
                "# mine\nscope = \"user\" # all\n\n[lock.x]\nttl = \"1s\"\n",
                "# mine\nscope = \"user\" # all\nallow = [\"etcd://one\"]\n\n[lock.x]\nttl = \"1s\"\n",
            ),
            (
                "allow = [ \"etcd://other\" ] # these\n",
                "allow = [ \"etcd://other\", \"etcd://one\" ] # these\n",
            ),
        ] {
            let (text, changed) = edited(old, &one, false).expect("a text");
            assert_eq!(changed, ["etcd://one"], "{old}");
            let list: toml::Table = toml::from_str(&text).expect("TOML");
            assert_eq!(list, toml::from_str(new).expect("TOML"), "{text}");
            for line in old.lines().filter(|line| !line.starts_with("allow")) {
                assert!(text.contains(line), "{line}: {text}");
            }
            let (same, changed) = edited(&text, &one, false).expect("a text");
            assert_eq!((same, changed.len()), (text.clone(), 0));
            let (back, changed) = edited(&text, &one, true).expect("a text");
            assert_eq!(changed, ["etcd://one"], "{old}");
            let was: toml::Table = toml::from_str(old).expect("TOML");
            assert_eq!(
                toml::from_str::<toml::Table>(&back).expect("TOML"),
                was,
                "{back}"
            );
        }
        assert!(edited("allow = 1\n", &one, false).is_err());
        assert!(edited("allow = [\n", &one, false).is_err());
    }
}
