//! What other programs see of our crates: one line per item, and whose types it names.
//!
//! `tenure-api DECISION FOLDER JSON...` reads what rustdoc says of each crate, writes
//! `FOLDER/<crate>.txt`, and fails when an item names something of another crate that the decision
//! does not list.
//!
//! The crates behind `tenure` promise nothing, so they have no listing. What another crate shows of them (`pub use`) stands
//! in that crate's listing, all of it, under the name that it has there. Their own names in what is left are those of a
//! stranger.
//!
//! A type stands on one line with its fields or variants, its constants and the traits that it has; each function has a line.
//!
//! Left out, because a newer Rust or another crate would change them: blanket implementations, auto
//! traits (but a type that is not `Send` or not `Sync` is said to be so), and the functions that
//! a trait prescribes, where it is implemented (that it is implemented is said).
//!
//! How the JSON comes about, and what the listings are compared with, is `scripts/public-api`'s.

use public_api::{Builder, PublicItem};
use rustdoc_types::{Crate, Id, Impl, ItemEnum};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

/// Crates that a program that names ours has in any case.
const OURS: [&str; 4] = ["alloc", "core", "std", "tenure"];

/// Crates that promise nothing by themselves.
const INNER: [&str; 5] = [
    "tenure_conformance",
    "tenure_engine",
    "tenure_store",
    "tenure_os",
    "tenure_core",
];

/// Where the first path of an inner crate begins in a text: the crate's name, by itself or before its modules.
fn inner(text: &str) -> Option<usize> {
    let is_whole = |end: usize| {
        let next = text.get(end..).and_then(|rest| rest.chars().next());
        next.is_none_or(|letter| !(letter.is_alphanumeric() || letter == '_'))
    };
    let begins = INNER.iter().filter_map(|name| {
        let mut places = text.match_indices(name).map(|(at, _)| at);
        places.find(|at| is_whole(at + name.len()))
    });
    begins.min()
}

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
    let words: Vec<PathBuf> = words.collect();
    let is_engine = |json: &Path| {
        let stem = json.file_stem();
        stem.is_some_and(|stem| INNER.iter().any(|name| stem == *name))
    };
    let mut engine = Vec::new();
    for json in words.iter().filter(|json| is_engine(json)) {
        engine.extend(list(json)?);
    }
    // What is named, and the first item that does.
    let mut named: BTreeMap<String, String> = BTreeMap::new();
    for json in words.iter().filter(|json| !is_engine(json)) {
        let lines = folded(shown(list(json)?, &engine));
        for line in &lines {
            for name in strangers(line) {
                named.entry(name.to_owned()).or_insert_with(|| line.clone());
            }
        }
        let mut listing = gathered(&lines).join("\n");
        listing.push('\n');
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

/// A line of a listing.
struct Line {
    text: String,
    /// What it is about: the path of an item, or of the type that has a trait.
    subject: String,
    /// Where a `pub use` leads to.
    source: Option<String>,
    /// Who it is: the same item may stand under two names.
    id: Id,
    /// Of a field: its variant.
    variant: Option<Id>,
}

/// The listing of a crate.
fn list(json: &Path) -> Result<Vec<Line>, String> {
    let reason = |error: &dyn std::fmt::Display| format!("{}: {error}", json.display());
    let text = read(json)?;
    let mut reader = serde_json::Deserializer::from_str(&text);
    reader.disable_recursion_limit();
    let crate_ = <Crate as serde::Deserialize>::deserialize(&mut reader);
    let crate_ = crate_.map_err(|error| reason(&error))?;
    let api = Builder::from_rustdoc_json(json).omit_blanket_impls(true);
    let api = api.build().map_err(|error| reason(&error))?;
    let said = api.items().filter(|item| is_said(&crate_, item));
    let name = json.file_stem().unwrap_or_default().to_string_lossy();
    Ok(said
        .map(|item| {
            let text = item.to_string();
            let kind = |id| crate_.index.get(&id).map(|item| &item.inner);
            let parent = item.parent_id();
            let in_variant =
                parent.is_some_and(|id| matches!(kind(id), Some(ItemEnum::Variant(_))));
            let source = reexported(&crate_, item.id());
            let source = source.map(|path| match path.strip_prefix("crate::") {
                Some(ours) => format!("{name}::{ours}"),
                None => path.to_owned(),
            });
            Line {
                subject: subject(&text),
                text: source
                    .iter()
                    .fold(text, |text, source| format!("{text} = {source}")),
                source,
                id: item.id(),
                variant: parent.filter(|_| in_variant),
            }
        })
        .collect())
}

/// The path that a line is about.
fn subject(text: &str) -> String {
    let is_path = |word: &&str| word.starts_with("tenure");
    let first = |text: &str| {
        let mut words =
            text.split(|letter: char| !(letter.is_alphanumeric() || "_:".contains(letter)));
        let path = words.find(is_path)?;
        Some(path.trim_end_matches(':').to_owned())
    };
    let typ = text
        .strip_prefix("impl")
        .and_then(|rest| rest.rsplit_once(" for "));
    // Whatever has another trait has this one: it is said of this one.
    let of_all = |rest: &str| rest.split_once("> ").and_then(|(_, rest)| first(rest));
    let path = match typ {
        Some((start, typ)) => first(typ).or_else(|| of_all(start)),
        None => first(text),
    };
    path.unwrap_or_default()
}

/// A crate's lines with what it shows of the engine, under the names that it gives to that.
fn shown(own: Vec<Line>, engine: &[Line]) -> Vec<Line> {
    // The engine's name, and ours.
    let mut names: Vec<(String, String)> = Vec::new();
    let mut taken: BTreeMap<(String, u32), String> = BTreeMap::new();
    let mut lines = Vec::new();
    let mut aliases = Vec::new();
    // Modules first: the same item is listed once, in its module.
    let is_module = |path: &str| {
        engine
            .iter()
            .any(|line| line.text == format!("pub mod {path}"))
    };
    let (mut uses, rest): (Vec<_>, Vec<_>) = own.into_iter().partition(|line| {
        let source = line.source.as_deref();
        source.is_some_and(|source| inner(source) == Some(0))
    });
    uses.sort_by_key(|line| !line.source.as_deref().is_some_and(is_module));
    for line in uses {
        let source = line.source.clone().unwrap_or_default();
        let below = |path: &str| is_below(path, &source);
        let its: Vec<_> = engine.iter().filter(|line| below(&line.subject)).collect();
        let itself = its
            .iter()
            .find(|its| its.subject == source && !its.text.starts_with("impl"));
        if let Some(before) = itself.and_then(|itself| taken.get(&whose(itself))) {
            let text = format!("pub use {} = {before}", line.subject);
            aliases.push(Line { text, ..line });
            continue;
        }
        names.push((source.clone(), line.subject.clone()));
        for its in its {
            taken
                .entry(whose(its))
                .or_insert_with(|| its.subject.clone());
            lines.push(Line {
                text: its.text.clone(),
                subject: its.subject.clone(),
                source: its.source.clone(),
                id: its.id,
                variant: its.variant,
            });
        }
    }
    lines.extend(aliases);
    let defined: Vec<String> = lines.iter().map(|line| line.subject.clone()).collect();
    let mut all: Vec<Line> = rest;
    all.extend(lines);
    for line in &mut all {
        line.text = renamed(&line.text, &names, &defined);
        line.subject = renamed(&line.subject, &names, &defined);
    }
    // What is said of a type by both crates stands together; a module's items stand below it.
    all.sort_by(|a, b| order(a).cmp(&order(b)));
    let mut told: BTreeSet<String> = BTreeSet::new();
    all.retain(|line| {
        // A trait of a type that is not shown, or by one (`From<...>`), cannot be had by any user of the crate.
        let is_hidden = line.text.starts_with("impl") && inner(&line.text).is_some();
        !is_hidden && told.insert(line.text.clone())
    });
    all
}

/// An item among those of all inner crates: each crate counts its own.
fn whose(line: &Line) -> (String, u32) {
    let name = line.subject.split("::").next().unwrap_or_default();
    (name.to_owned(), line.id.0)
}

fn order(line: &Line) -> (&str, bool, bool) {
    let is_impl = line.text.starts_with("impl");
    (
        &line.subject,
        is_impl,
        is_impl && line.text.contains(" for "),
    )
}

fn is_below(path: &str, above: &str) -> bool {
    let rest = path.strip_prefix(above);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// The engine's names in a line, as they are called here. Others of the engine's crate name an item by the
/// file in which it is, which may be private.
fn renamed(text: &str, names: &[(String, String)], defined: &[String]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = inner(rest) {
        let (before, found) = rest.split_at(at);
        let end = found.find(|letter: char| !(letter.is_alphanumeric() || "_:".contains(letter)));
        let (path, after) = found.split_at(end.unwrap_or(found.len()));
        let colon = path.len() - path.trim_end_matches(':').len();
        let (path, colons) = path.split_at(path.len() - colon);
        let public = defined.iter().find(|known| *known == path);
        let public = public.or_else(|| defined.iter().find(|known| is_within(known, path)));
        let public = public.map_or(path, String::as_str);
        let longest = names.iter().filter(|(theirs, _)| is_below(public, theirs));
        let longest = longest.max_by_key(|(theirs, _)| theirs.len());
        out.push_str(before);
        match longest {
            Some((theirs, ours)) => {
                out.push_str(ours);
                out.push_str(public.get(theirs.len()..).unwrap_or_default());
            }
            None => out.push_str(public),
        }
        out.push_str(colons);
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Whether a path is the other one without some of its modules.
fn is_within(known: &str, path: &str) -> bool {
    let mut parts = path.split("::");
    last(known) == last(path)
        && known
            .split("::")
            .all(|part| parts.any(|other| other == part))
}

/// A variant's fields beside it, and the traits of a type on one line.
fn folded(lines: Vec<Line>) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    // Of the last line: the variant that it is about, or the end of its `impl`.
    let mut variant = None;
    let mut has: Option<(String, String)> = None;
    for line in lines {
        let traits = traits(&line.text);
        if let Some((generics, name, typ)) = &traits
            && has.as_ref() == Some(&(generics.clone(), typ.clone()))
            && let Some(before) = out.last_mut()
        {
            let end = format!(" for {typ}");
            let kept = before.strip_suffix(&end).unwrap_or(before).to_owned();
            *before = format!("{kept} + {name}{end}");
            continue;
        }
        has = traits.map(|(generics, _, typ)| (generics, typ));
        if line.variant.is_some()
            && line.variant == variant
            && let Some(before) = out.last_mut()
        {
            let field = field_of(&line);
            let kept = before.strip_suffix(" }").map(|kept| format!("{kept}, "));
            let kept = kept.unwrap_or_else(|| format!("{before} {{ "));
            *before = format!("{kept}{field} }}");
            continue;
        }
        variant = Some(line.id);
        out.push(line.text);
    }
    out
}

/// A type with all that is said of it but its functions, on one line: its fields or variants, its constants, its traits. The
/// line that an `impl` begins with says nothing beyond its functions, which name their type.
fn gathered(lines: &[String]) -> Vec<String> {
    struct Type {
        text: String,
        parts: Vec<String>,
        traits: Vec<String>,
    }
    let mut out: Vec<Type> = Vec::new();
    let mut types: BTreeMap<&str, usize> = BTreeMap::new();
    for line in lines {
        let rest = line.strip_prefix("#[non_exhaustive] ").unwrap_or(line);
        let kinds = ["pub struct ", "pub enum ", "pub trait "];
        if let Some(rest) = kinds.iter().find_map(|kind| rest.strip_prefix(kind)) {
            types.insert(path_of(rest), out.len());
        } else if let Some((_, name, typ)) = traits(line)
            && let Some(own) = types.get(path_of(&typ)).and_then(|at| out.get_mut(*at))
            && is_plain(typ.trim_start_matches(path_of(&typ)))
        {
            own.traits.push(name);
            continue;
        } else if line.starts_with("impl") && traits(line).is_none() {
            continue;
        } else if let Some(item) = rest.strip_prefix("pub ")
            && let (kind, item) = item
                .strip_prefix("const ")
                .map_or(("", item), |rest| ("const ", rest))
            && item.starts_with("tenure::")
            && let Some((above, name)) = path_of(item).rsplit_once("::")
            && let Some(own) = types.get(above).and_then(|at| out.get_mut(*at))
        {
            let after = item.get(path_of(item).len()..).unwrap_or_default();
            own.parts.push(format!("{kind}{name}{after}"));
            continue;
        }
        out.push(Type {
            text: line.clone(),
            parts: Vec::new(),
            traits: Vec::new(),
        });
    }
    let line = |own: Type| {
        let mut text = own.text;
        if !own.parts.is_empty() {
            text = format!("{text} {{ {} }}", own.parts.join(", "));
        }
        if !own.traits.is_empty() {
            text = format!("{text} is {}", own.traits.join(" + "));
        }
        text
    };
    out.into_iter().map(line).collect()
}

/// The path with which a text begins.
fn path_of(text: &str) -> &str {
    let end = text.find(|letter: char| !(letter.is_alphanumeric() || "_:".contains(letter)));
    let path = text.get(..end.unwrap_or(text.len())).unwrap_or(text);
    path.trim_end_matches(':')
}

/// Whether a type has no parameters but lifetimes.
fn is_plain(parameters: &str) -> bool {
    parameters.is_empty() || parameters.starts_with("<'") && !parameters.contains(',')
}

/// A field without the path of what it is in.
fn field_of(line: &Line) -> String {
    let (_, after) = line.text.split_once(&line.subject).unwrap_or_default();
    format!("{}{after}", last(&line.subject))
}

/// Generics, trait and type of an `impl`.
fn traits(text: &str) -> Option<(String, String, String)> {
    let (start, typ) = text.strip_prefix("impl")?.split_once(" for ")?;
    let (generics, name) = match start.strip_prefix('<') {
        Some(rest) => rest.split_once("> ")?,
        None => ("", start.trim_start()),
    };
    Some((generics.to_owned(), name.to_owned(), typ.to_owned()))
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
    let prescribed = implementation(crate_, item.parent_id());
    let prescribed = prescribed.is_some_and(|parent| parent.trait_.is_some());
    !(is_function && prescribed)
}

fn implementation(crate_: &Crate, id: Option<Id>) -> Option<&Impl> {
    match &crate_.index.get(&id?)?.inner {
        ItemEnum::Impl(implementation) => Some(implementation),
        _ => None,
    }
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
