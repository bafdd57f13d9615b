//! The house has no circles: of the modules below one parent, none imports what imports it, neither itself nor by
//! what is below it. So every room can be read before those that use it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects by failing"
)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use syn::visit::{self, Visit};
use syn::{Attribute, ItemMod, UseTree};

type Module = Vec<String>;

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

/// Which neighbour imports which, for the modules below each parent, with all that is below them.
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
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the crates");
    let mut found = Vec::new();
    for name in ["tenure-core", "tenure-engine", "tenure", "tenure-cli"] {
        let modules = modules(&crates.join(name).join("src"));
        assert!(modules.len() > 10, "{name} was read");
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
