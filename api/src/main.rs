//! What other programs see of our crates: one line per item, and whose types it names.
//!
//! `tenure-api DECISION FOLDER JSON...` reads what rustdoc says of each crate, writes
//! `FOLDER/<crate>.txt`, and fails when an item names something of another crate that the decision
//! does not list.
//!
//! Left out, because a newer Rust or another crate would change them: blanket implementations, auto
//! traits (but a type that is not `Send` or not `Sync` is said to be so), and the functions that
//! another crate's trait prescribes (that it is implemented is said).
//!
//! How the JSON comes about, and what the listings are compared with, is `scripts/public-api`'s.

use public_api::{Builder, PublicItem};
use rustdoc_types::{Crate, Id, Impl, ItemEnum};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

/// Crates that a program that names ours has in any case.
const OURS: [&str; 5] = ["alloc", "core", "std", "tenure", "tenure_core"];

/// Around the names that the decision allows, one per line.
const FENCE: (&str, &str) = ("```text", "```");

fn main() -> ExitCode {
    match run() {
        Ok(faults) if faults.is_empty() => ExitCode::SUCCESS,
        Ok(faults) => {
            for fault in faults {
                eprintln!("error: {fault}");
            }
            ExitCode::FAILURE
        }
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::from(2)
        }
    }
}

/// The sentences of whatever is not as decided.
fn run() -> Result<Vec<String>, String> {
    let mut words = env::args_os().skip(1).map(PathBuf::from);
    let (Some(decision), Some(folder)) = (words.next(), words.next()) else {
        return Err("usage: tenure-api DECISION FOLDER JSON...".to_owned());
    };
    let allowed = allowed(&read(&decision)?);
    if allowed.is_empty() {
        return Err(format!("{} has no list of names", decision.display()));
    }
    // What is named, and the first item that does.
    let mut named: BTreeMap<String, String> = BTreeMap::new();
    for json in words {
        let listing = list(&json, &mut named)?;
        let name = json.file_stem().map(PathBuf::from).unwrap_or_default();
        let place = folder.join(name.with_extension("txt"));
        fs::write(&place, listing).map_err(|error| format!("{}: {error}", place.display()))?;
    }
    let decision = decision.display();
    let strange = named.iter().filter(|(name, _)| !allowed.contains(*name));
    let strange = strange.map(|(name, item)| {
        format!("the public interface names {name}, which {decision} does not allow: {item}")
    });
    let idle = allowed.iter().filter(|name| !named.contains_key(*name));
    let idle = idle.map(|name| format!("{decision} allows {name}, which nothing names any more"));
    Ok(strange.chain(idle).collect())
}

fn read(place: &Path) -> Result<String, String> {
    fs::read_to_string(place).map_err(|error| format!("{}: {error}", place.display()))
}

/// The names in the decision's first block.
fn allowed(decision: &str) -> BTreeSet<String> {
    let lines = decision.lines().map(str::trim);
    let block = lines.skip_while(|line| *line != FENCE.0).skip(1);
    let block = block.take_while(|line| *line != FENCE.1);
    block
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

/// One crate's listing. What it names of others is added to `named`.
fn list(json: &Path, named: &mut BTreeMap<String, String>) -> Result<String, String> {
    let reason = |error: &dyn std::fmt::Display| format!("{}: {error}", json.display());
    let text = read(json)?;
    let mut reader = serde_json::Deserializer::from_str(&text);
    reader.disable_recursion_limit();
    let crate_ = <Crate as serde::Deserialize>::deserialize(&mut reader);
    let crate_ = crate_.map_err(|error| reason(&error))?;
    let api = Builder::from_rustdoc_json(json).omit_blanket_impls(true);
    let api = api.build().map_err(|error| reason(&error))?;
    let mut listing = String::new();
    for item in api.items().filter(|item| is_said(&crate_, item)) {
        let mut line = item.to_string();
        let reexported = reexported(&crate_, item.id());
        if let Some(source) = reexported {
            line = format!("{line} = {source}");
        }
        let foreign = strangers(&line).chain(reexported.filter(|source| is_strange(source)));
        for name in foreign {
            named.entry(name.to_owned()).or_insert_with(|| line.clone());
        }
        listing.push_str(&line);
        listing.push('\n');
    }
    Ok(listing)
}

/// Where a `pub use` of another crate's item leads to.
fn reexported(crate_: &Crate, id: Id) -> Option<&str> {
    match &crate_.index.get(&id)?.inner {
        ItemEnum::Use(reexport) => Some(&reexport.source),
        _ => None,
    }
}

/// Whether an item belongs into the listing.
fn is_said(crate_: &Crate, item: &PublicItem) -> bool {
    if let Some(own) = implementation(crate_, Some(item.id()))
        && own.is_synthetic
    {
        let name = own.trait_.as_ref().map(|path| path.path.as_str());
        let matters = matches!(name.map(last), Some("Send" | "Sync"));
        return own.is_negative && matters;
    }
    let is_function = crate_.index.get(&item.id());
    let is_function = is_function.is_some_and(|item| matches!(item.inner, ItemEnum::Function(_)));
    let prescribed = implementation(crate_, item.parent_id())
        .and_then(|parent| parent.trait_.as_ref())
        .is_some_and(|path| is_elsewhere(crate_, path.id));
    !(is_function && prescribed)
}

fn implementation(crate_: &Crate, id: Option<Id>) -> Option<&Impl> {
    match &crate_.index.get(&id?)?.inner {
        ItemEnum::Impl(implementation) => Some(implementation),
        _ => None,
    }
}

/// Whether an item is of a crate that is neither the one at hand nor its core.
fn is_elsewhere(crate_: &Crate, id: Id) -> bool {
    let home = crate_.paths.get(&id).map(|summary| summary.crate_id);
    let home = home.filter(|number| *number != 0);
    let home = home.and_then(|number| crate_.external_crates.get(&number));
    home.is_some_and(|home| home.name != "tenure_core")
}

/// The paths in a line that begin in another crate.
fn strangers(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|letter: char| !(letter.is_alphanumeric() || "_:".contains(letter)));
    words
        .map(|word| word.trim_end_matches(':'))
        .filter(|word| is_strange(word))
}

/// `T::Item` and `Self::Error` are paths that begin in no crate; the names of crates are lower-case.
fn is_strange(path: &str) -> bool {
    let Some((first, _)) = path.split_once("::") else {
        return false;
    };
    first.starts_with(|letter: char| letter.is_lowercase() || letter == '_')
        && !first.starts_with("__")
        && !OURS.contains(&first)
}

fn last(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
}
