//! What Claude Code's own settings switch on and off, and what its sandbox keeps from commands.

use super::{Layer, Looks, WITHOUT_PLACE, is_our_plugin, lies_in};
use crate::render::clean_path;
use crate::render::findings::Findings;
use crate::request::Agent;
use serde_json::{Value, json};
use std::path::Path;

pub(super) static LOOKS: Looks = Looks {
    plugin: |_, layers| {
        let is_on = |layer: &&Layer| {
            let plugins = layer.document["enabledPlugins"].as_object();
            let mut plugins = plugins.into_iter().flatten();
            plugins.any(|(name, on)| is_our_plugin(name) && *on == Value::Bool(true))
        };
        Some(layers.iter().find(is_on)?.shown.clone())
    },
    settings: |call, layers, folder, report| {
        switched_off(layers, report);
        if let Some(folder) = folder {
            sandbox(call, layers, folder, report);
        }
    },
    hindrance: |_| None,
};

/// Settings that keep every hook from running.
fn switched_off(layers: &[Layer], report: &mut Findings) {
    for layer in layers {
        if layer.document.get("disableAllHooks") == Some(&Value::Bool(true)) {
            report.wrong(
                "hooks",
                format!("{} switches all hooks off (disableAllHooks)", layer.shown),
                format!("take disableAllHooks out of {}", layer.shown),
            );
        }
    }
}

fn sandbox(call: &Agent, layers: &[Layer], folder: &Path, report: &mut Findings) {
    let sandboxes = || {
        layers
            .iter()
            .filter_map(|layer| layer.document.get("sandbox"))
    };
    let is_on = sandboxes().any(|sandbox| sandbox.get("enabled") == Some(&Value::Bool(true)));
    if !is_on {
        return;
    }
    let allowed: Vec<&str> = sandboxes()
        .filter_map(|sandbox| sandbox.get("filesystem")?.get("allowWrite")?.as_array())
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let name = clean_path(folder);
    // The working folder can be written; git's own folder is in it.
    if lies_in(folder, &allowed, call) || folder.starts_with(&call.roots.project) {
        report.ok("sandbox", format!("it lets commands write in {name}"));
    } else {
        let entry = json!({ "sandbox": { "filesystem": { "allowWrite": [folder.display().to_string()] } } });
        report.wrong(
            "sandbox",
            format!("it keeps commands from writing in {name}: {WITHOUT_PLACE}"),
            format!("add to the user's settings: {entry}"),
        );
    }
}
