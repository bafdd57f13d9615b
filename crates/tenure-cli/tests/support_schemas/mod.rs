//! The published schemas, and whether a document satisfies one of them. Nothing is fetched: the
//! schemas refer to each other by file name, and all of them are at hand.
#![allow(
    dead_code,
    reason = "each of the tests that include this uses its own part"
)]

use jsonschema::{Registry, Validator};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas")
}

/// Every schema with the name of its file.
pub(crate) fn schemas() -> Vec<(String, Value)> {
    std::fs::read_dir(folder())
        .expect("the folder of the schemas")
        .map(|item| {
            let path = item.expect("a file").path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let text = std::fs::read_to_string(&path).expect("a schema");
            let schema = serde_json::from_str(&text)
                .unwrap_or_else(|error| panic!("{name} is no JSON: {error}"));
            (name, schema)
        })
        .collect()
}

thread_local! {
    static VALIDATORS: RefCell<BTreeMap<String, Rc<Validator>>> = RefCell::default();
}

/// The judge of a schema, made once.
fn validator(name: &str) -> Rc<Validator> {
    let known = VALIDATORS.with_borrow(|known| known.get(name).cloned());
    known.unwrap_or_else(|| {
        let made = Rc::new(made(name));
        VALIDATORS.with_borrow_mut(|known| known.insert(name.to_owned(), Rc::clone(&made)));
        made
    })
}

fn made(name: &str) -> Validator {
    let mut registry = Registry::new();
    let mut wanted = None;
    for (file, schema) in schemas() {
        if file == format!("{name}.schema.json") {
            wanted = Some(schema.clone());
        }
        registry = registry
            .add(format!("json-schema:///{file}"), schema)
            .expect("a schema's place");
    }
    let registry = registry
        .prepare()
        .expect("schemas that refer to each other");
    let schema = wanted.unwrap_or_else(|| panic!("there is no schema for {name}"));
    jsonschema::options()
        .with_registry(&registry)
        .build(&schema)
        .unwrap_or_else(|error| panic!("{name} is no schema: {error}"))
}

/// What a document breaks of a schema.
pub(crate) fn breaks(name: &str, document: &Value) -> Vec<String> {
    validator(name)
        .iter_errors(document)
        .map(|error| format!("{name}{}: {error}", error.instance_path()))
        .collect()
}

/// Fails the test unless a document satisfies a schema.
#[track_caller]
pub(crate) fn satisfies(name: &str, document: &Value) {
    let errors = breaks(name, document);
    assert!(
        errors.is_empty(),
        "the answer of {name} breaks its schema:\n{}\n{document:#}",
        errors.join("\n")
    );
}
