//! `profiles`: shows the rules of profiles. It looks at no lock, and needs no place of locks.

use crate::failure::Failure;
use crate::render::profile::{json, table};
use serde_json::{Value, json};
use tenure_core::Policy;
use tenure_engine::formats::{self, Settings};

#[cold]
#[inline(never)]
pub(super) fn profiles(names: &[String]) -> Result<(String, Value), Failure> {
    let policy = |name: &String| Ok(formats::by_name(name, &Settings::default())?.policy());
    let policies: Vec<Policy> = names.iter().map(policy).collect::<Result<_, Failure>>()?;
    let profiles: Vec<Value> = policies.iter().map(json).collect();
    Ok((table(&policies), json!({ "profiles": profiles })))
}
