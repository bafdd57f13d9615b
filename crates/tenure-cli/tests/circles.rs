//! The house has no circles: of the modules below one parent, none imports what imports it, neither itself nor by
//! what is below it. So every room can be read before those that use it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects by failing"
)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{Attribute, ItemMod, UseTree};

type Module = Vec<String>;

/// The crates of the project, each with its folder.
fn crates() -> BTreeMap<String, PathBuf> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let all = std::fs::read_dir(all.expect("the crates")).expect("the crates");
    let paths = all.map(|entry| entry.expect("an entry").path());
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into());
    let named: BTreeMap<_, _> = paths
        .filter_map(|path| Some((name(&path)?, path)))
        .collect();
    assert!(named.contains_key("tenure-core"), "{named:?}");
    named
}

/// The modules of a crate that have a file, and the text of each.
fn modules(source: &Path) -> BTreeMap<Module, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![(source.to_owned(), Module::new())];
    while let Some((folder, module)) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            let mut inner = module.clone();
            inner.push(stem.expect("a name").to_owned());
            if inner.last().is_some_and(|last| last == "tests") {
                // Tests may use what they like.
            } else if path.is_dir() {
                folders.push((path, inner));
            } else if path.extension().is_some_and(|end| end == "rs") {
                let text = std::fs::read_to_string(&path).expect("a source");
                let is_root =
                    module.is_empty() && inner.iter().any(|it| it == "lib" || it == "main");
                let place = if is_root { Module::new() } else { inner };
                found
                    .entry(place)
                    .or_insert_with(String::new)
                    .push_str(&text);
            }
        }
    }
    found
}

/// What one file names of its crate by a path that begins with `crate`, `super` or `self`.
struct Names {
    /// The module that is being read; it may be one within the file.
    module: Module,
    named: BTreeSet<Module>,
}

impl Names {
    fn add(&mut self, segments: &[String]) {
        let mut place = match segments.first().map(String::as_str) {
            Some("crate") => Module::new(),
            Some("self" | "super") => self.module.clone(),
            _ => return,
        };
        for segment in segments {
            match segment.as_str() {
                "crate" | "self" => {}
                "super" => drop(place.pop()),
                name => place.push(name.to_owned()),
            }
        }
        self.named.insert(place);
    }

    fn add_tree(&mut self, tree: &UseTree, before: &[String]) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.add_tree(&path.tree, &with(&path.ident)),
            UseTree::Name(name) => self.add(&with(&name.ident)),
            UseTree::Rename(name) => self.add(&with(&name.ident)),
            UseTree::Glob(_) => self.add(before),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_tree(tree, before);
                }
            }
        }
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) => {
            list.path.is_ident("cfg") && list.tokens.to_string().contains("test")
        }
        _ => false,
    })
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if item.content.is_some() && !is_for_tests(&item.attrs) {
            self.module.push(item.ident.to_string());
            visit::visit_item_mod(self, item);
            self.module.pop();
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_for_tests(&item.attrs) {
            self.add_tree(&item.tree, &[]);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string());
        self.add(&segments.collect::<Vec<_>>());
        visit::visit_path(self, path);
    }
}

/// The imports between neighbours, for the modules below each parent, with all that is below them.
fn imports(
    modules: &BTreeMap<Module, String>,
) -> BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> {
    let mut all: BTreeMap<Module, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for (module, text) in modules {
        let mut names = Names {
            module: module.clone(),
            named: BTreeSet::new(),
        };
        names.visit_file(&syn::parse_file(text).expect("it compiles"));
        for named in names.named {
            let lengths = (0..=named.len()).rev();
            let place = lengths.map(|length| &named[..length]);
            let place = place
                .into_iter()
                .find(|place| modules.contains_key(*place))
                .unwrap_or(&[]);
            let common = module
                .iter()
                .zip(place)
                .take_while(|(one, other)| one == other)
                .count();
            if let (Some(from), Some(to)) = (module.get(common), place.get(common)) {
                let parent = all.entry(module[..common].to_vec()).or_default();
                parent.entry(from.clone()).or_default().insert(to.clone());
            }
        }
    }
    all
}

/// The shortest way from a module back to itself.
fn way_back(arrows: &BTreeMap<String, BTreeSet<String>>, start: &String) -> Option<Vec<String>> {
    let mut ways = VecDeque::from([vec![start.clone()]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        for next in arrows.get(way.last()?).into_iter().flatten() {
            let longer = [&way[..], std::slice::from_ref(next)].concat();
            if next == start {
                return Some(longer);
            }
            if seen.insert(next.clone()) {
                ways.push_back(longer);
            }
        }
    }
    None
}

/// The circles below each parent; one that goes through several modules is told once.
fn circles(modules: &BTreeMap<Module, String>) -> Vec<String> {
    let mut told = BTreeSet::new();
    let mut circles = Vec::new();
    for (parent, arrows) in imports(modules) {
        for start in arrows.keys() {
            if let Some(way) = way_back(&arrows, start)
                && told.insert((parent.clone(), way.iter().cloned().collect::<BTreeSet<_>>()))
            {
                circles.push(format!(
                    "below {:?}: {}",
                    parent.join("::"),
                    way.join(" -> ")
                ));
            }
        }
    }
    circles
}

#[test]
fn no_modules_of_any_crate_import_each_other_in_a_circle() {
    let mut found = Vec::new();
    for (name, folder) in crates() {
        let modules = modules(&folder.join("src"));
        assert!(modules.len() > 2, "{name} was read");
        found.extend(
            circles(&modules)
                .into_iter()
                .map(|circle| format!("{name}, {circle}")),
        );
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_circle_is_found_however_it_is_written() {
    let house = |files: &[(&str, &str)]| {
        let module = |path: &str| {
            path.split("::")
                .filter(|it| !it.is_empty())
                .map(str::to_owned)
                .collect()
        };
        let files = files
            .iter()
            .map(|(path, text)| (module(path), (*text).to_owned()));
        circles(&files.collect())
    };
    let a = ("a", "use crate::b::{C, self};");
    assert_eq!(house(&[a, ("b", "use std::fs;")]), [""; 0]);
    assert_eq!(
        house(&[a, ("b", "fn f() { super::a::g() }")]),
        ["below \"\": a -> b -> a"]
    );
    // What is below counts for what is above, and a module may use its parent.
    assert_eq!(
        house(&[a, ("b", "mod c;"), ("b::c", "use super::super::a;")]).len(),
        1
    );
    assert_eq!(
        house(&[("b", "mod c; use c::X;"), ("b::c", "use super::Y;")]),
        [""; 0]
    );
    let test = "#[cfg(test)] mod tests { use crate::a::A; } mod inner { use super::super::b; }";
    assert_eq!(house(&[a, ("b", test)]), [""; 0]);
}

/// The rooms that read what a caller's environment or ancestry says, each with the question that it answers. A guess of
/// another room would be a second answer to one of them.
const ROOMS: &[(&str, &str, &str)] = &[
    ("tenure-engine", "place", "where the locks are"),
    (
        "tenure-engine",
        "place::life",
        "whether the run around the call lives",
    ),
    ("tenure-engine", "inherited", "what a run has handed down"),
    ("tenure-engine", "search", "where a user's files are"),
    ("tenure-os", "trust", "who called sudo"),
    ("tenure-store", "advice", "where a program is found"),
    ("tenure-os", "process", "who calls: processes and ancestors"),
    ("tenure-engine", "caller::job", "who calls: the job"),
    ("tenure-engine", "caller::owner", "who calls: owners"),
    ("tenure-os", "clock::stepped", "the clock of a test"),
    (
        "tenure-store",
        "etcd::address",
        "the credentials of a store",
    ),
    ("tenure", "guard", "what the process around this one holds"),
    (
        "tenure",
        "framework::arguments",
        "what the caller wants printed",
    ),
    (
        "tenure-cli",
        "request::surroundings",
        "what a caller says by variables",
    ),
    (
        "tenure-cli",
        "request::place",
        "the way to the folder of the call",
    ),
    (
        "tenure-cli",
        "host::roots",
        "the settings of an agent's host",
    ),
    (
        "tenure-cli",
        "verb",
        "what the caller wants printed, before the arguments are read",
    ),
    (
        "tenure-cli",
        "verb::expected",
        "the home in a path that is completed",
    ),
    ("tenure-cli", "output", "what the caller wants printed"),
    (
        "tenure-cli",
        "trace",
        "the trace that the call is a part of",
    ),
    ("tenure-cli", "render::colour", "what a terminal can show"),
    ("tenure-cli", "render::width", "how wide a terminal is"),
    ("tenure-cli", "command::run", "where a command is found"),
    ("tenure-cli", "command::flock", "the shell of a line"),
    ("tenure-cli", "command::demo", "what its calls are given"),
    ("tenure-cli", "command::group_name", "the event of CI"),
    (
        "tenure-cli",
        "command::hook",
        "the calls of an agent's host",
    ),
    ("tenure-cli", "command::hook::folders", "the home in a path"),
    (
        "tenure-cli",
        "command::agent::status::codex",
        "what Codex gives its server, and its login shell",
    ),
    (
        "tenure-cli",
        "command::agent::probe",
        "the probe of an agent's host",
    ),
    (
        "tenure-cli",
        "supervise::cgroup",
        "who is an orphan of the work",
    ),
];

/// Calls that read the environment, or a parent.
struct Readings {
    found: BTreeSet<String>,
}

impl<'ast> Visit<'ast> for Readings {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if let Some(last) = path.segments.last() {
            let last = last.ident.to_string();
            let of_environment = ["var", "var_os", "vars", "vars_os"];
            let of_parents = ["getppid", "parent_id", "parent_of", "parent_of_self"];
            let before = path.segments.iter().rev().nth(1);
            let is_of_env = before.is_some_and(|it| it.ident == "env") || path.segments.len() == 1;
            if (of_environment.contains(&&*last) && last != "vars" && is_of_env)
                || of_parents.contains(&&*last)
            {
                self.found.insert(last);
            }
        }
        visit::visit_path(self, path);
    }
}

fn readings(text: &str) -> BTreeSet<String> {
    let mut readings = Readings {
        found: BTreeSet::new(),
    };
    readings.visit_file(&syn::parse_file(text).expect("it compiles"));
    readings.found
}

#[test]
fn surroundings_are_read_in_the_rooms_that_answer_for_them() {
    let mut strangers = Vec::new();
    let mut readers = BTreeSet::new();
    for (name, folder) in crates() {
        for (module, text) in modules(&folder.join("src")) {
            let found = readings(&text);
            let module = module.join("::");
            let is_known = |room: &&(&str, &str, &str)| room.0 == name && room.1 == module;
            let is_system =
                module.starts_with("process::unix") || module.starts_with("process::windows");
            match ROOMS.iter().find(is_known) {
                Some(room) if !found.is_empty() => drop(readers.insert(*room)),
                None if !found.is_empty() && !is_system && module != "process::other" => {
                    strangers.push(format!("{name}, {module}: {found:?}"));
                }
                _ => {}
            }
        }
    }
    let idle: Vec<_> = ROOMS
        .iter()
        .filter(|room| !readers.contains(*room))
        .collect();
    assert!(strangers.is_empty(), "rooms that guess: {strangers:#?}");
    assert!(idle.is_empty(), "rooms that read nothing: {idle:#?}");
}

#[test]
fn a_reading_is_found_however_it_is_written() {
    let read = |text: &str| readings(text).into_iter().collect::<Vec<_>>();
    assert_eq!(read("fn f() { std::env::var_os(\"A\"); }"), ["var_os"]);
    assert_eq!(
        read("use std::env; fn f() { let x = env::var(\"A\").ok(); }"),
        ["var"]
    );
    assert_eq!(
        read("fn f() { use std::env::var_os; var_os(\"A\"); }"),
        ["var_os"]
    );
    assert_eq!(
        read("fn f() { crate::process::parent_of(1); }"),
        ["parent_of"]
    );
    assert_eq!(
        read("fn f() { row.map(std::os::unix::process::parent_id) }"),
        ["parent_id"]
    );
    assert_eq!(
        read("#[cfg(test)] mod tests { fn f() { std::env::var(\"A\"); } }"),
        [""; 0]
    );
}
