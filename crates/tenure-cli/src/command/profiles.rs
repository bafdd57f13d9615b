//! `profiles`: shows the rules of every profile. It looks at no lock, and needs no place for them.

use super::finish;
use crate::args::ProfilesArgs;
use crate::exit::Exit;
use crate::render::profile::{ProfileView, table};
use crate::request;
use serde_json::{Value, json};
use tenure::profile::{self, RowConfig};

#[cold]
#[inline(never)]
pub(super) fn profiles(args: &ProfilesArgs) -> Exit {
    let surface = request::surface(&args.common, "profiles", None);
    finish(surface, |_| {
        let config = request::configuration(&args.common)?;
        let names: Vec<&str> = match &args.common.profile {
            Some(name) => vec![name],
            None => profile::names(&config).collect(),
        };
        let mut views = Vec::with_capacity(names.len());
        for name in names {
            let policy = profile::by_name(name, &profile::Settings::default(), &config)?.policy();
            let row = config.profiles.get(name);
            views.push(ProfileView::of(&policy, row.map(RowConfig::like)));
        }
        let profiles: Vec<Value> = views.iter().map(ProfileView::json).collect();
        Ok((table(&views), json!({ "profiles": profiles })))
    })
}
