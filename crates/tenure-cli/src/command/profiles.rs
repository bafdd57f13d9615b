//! `profiles`: shows the rules of every profile. It looks at no lock, and needs no place of locks.

use crate::failure::Failure;
use crate::render::profile::{ProfileView, table};
use serde_json::{Value, json};
use tenure_engine::config::Config;
use tenure_engine::profile::{self, RowConfig};

#[cold]
#[inline(never)]
pub(super) fn profiles(only: Option<&str>, config: &Config) -> Result<(String, Value), Failure> {
    let rows = config.rows();
    let names: Vec<&str> = match only {
        Some(name) => vec![name],
        None => profile::names(&rows).collect(),
    };
    let mut views = Vec::with_capacity(names.len());
    for name in names {
        let policy = profile::by_name(name, &profile::Settings::default(), &rows)?.policy();
        let row = rows.get(name);
        views.push(ProfileView::of(&policy, row.map(RowConfig::like)));
    }
    let profiles: Vec<Value> = views.iter().map(ProfileView::json).collect();
    Ok((table(&views), json!({ "profiles": profiles })))
}
