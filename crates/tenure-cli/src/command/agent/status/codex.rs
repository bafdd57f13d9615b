//! What Codex asks of its user before a hook runs, what its sandbox keeps from commands, and where its server looks for locks.

use super::{Layer, Looks, WITHOUT_PLACE, is_our_plugin, lies_in};
use crate::args::value::AgentHost;
use crate::command::agent::entries::{Has, ours};
use crate::command::agent::files::text_of;
use crate::command::agent::{ask, toml};
use crate::host::{GIVEN_BY_CODEX, NAME, Reach, VARIABLES};
use crate::render::clean_path;
use crate::render::findings::Findings;
use crate::request::Agent;
use ::toml::{Table, Value};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use tenure_store::advice;

pub(super) static LOOKS: Looks = Looks {
    plugin: |call, _| plugin(call),
    settings: |call, layers, _, report| look(call, layers, report),
    hindrance,
};

fn look(call: &Agent, layers: &[Layer], report: &mut Findings) {
    let file = file(call);
    let users = match read(&file) {
        Ok(users) => users,
        Err(why) => {
            report.wrong(
                "config",
                format!("{} cannot be used: {why}", clean_path(&file)),
                format!("mend {}", clean_path(&file)),
            );
            return;
        }
    };
    if get(&users, &["features", "hooks"]).and_then(Value::as_bool) == Some(false) {
        let file = clean_path(&file);
        report.wrong(
            "hooks",
            format!("{file} switches all hooks off (features.hooks)"),
            format!("write hooks = true below [features] in {file}"),
        );
    }
    for layer in layers.iter().filter(|layer| layer.has != Has::Nothing) {
        if layer.reach == Reach::Project {
            // The folder itself says more than the main checkout.
            let levels = [&call.roots.project, &call.roots.main].map(|root| {
                let root = root.display().to_string();
                let level = get(&users, &["projects", &root, "trust_level"]);
                level.and_then(Value::as_str)
            });
            if levels.into_iter().flatten().next() != Some("trusted") {
                report.wrong(
                    "trust",
                    format!(
                        "Codex does not know this project as trusted, so it reads none of {}",
                        layer.shown
                    ),
                    "start codex in this project and trust it",
                );
                continue;
            }
        }
        trust(layer, get(&users, &["hooks", "state"]), report);
        let inline = read(&layer.file.with_file_name("config.toml")).ok();
        let events = inline
            .as_ref()
            .and_then(|config| config.get("hooks")?.as_table());
        if events.is_some_and(|events| events.keys().any(|event| event != "state")) {
            report.note(
                "hooks",
                format!(
                    "hooks stand beside {} in config.toml, too: Codex warns of that at each start",
                    layer.shown
                ),
                "move those of config.toml to hooks.json",
            );
        }
    }
    match hindrance(call) {
        Some((what, fix)) => report.wrong("sandbox", what, fix),
        None => report.ok("sandbox", "it keeps no command from the locks"),
    }
    login(report);
    server(call, report);
    window(call, layers, report);
}

/// Whether the process in the background that runs the sessions of Codex' windows finds tenure, and the locks. It has the `PATH`
/// and the variables of the window that came first.
fn window(call: &Agent, layers: &[Layer], report: &mut Findings) {
    let Some((pid, environment)) = daemon(&call.roots.own(call.host)) else {
        report.ok(
            "window",
            "Codex' window runs its sessions in a process in the background, with the PATH and the variables of the window that \
             came first",
        );
        return;
    };
    let mut found = Vec::new();
    let path = environment.get("PATH").cloned().unwrap_or_default();
    let has_tenure = advice::programs(Some(path.into()), NAME).next().is_some();
    let by_name = |layer: &Layer| super::commands(&layer.document).any(|named| named == NAME);
    if !has_tenure && layers.iter().any(by_name) {
        found.push(
            "its PATH has no tenure, so its hooks fail and its commands run without locks"
                .to_owned(),
        );
    }
    let differs = |name: &&str| std::env::var(name).ok().as_ref() != environment.get(*name);
    let differing: Vec<&str> = VARIABLES.into_iter().filter(differs).collect();
    if !differing.is_empty() {
        found.push(format!(
            "{} differ there, so its locks may be elsewhere",
            differing.join(", ")
        ));
    }
    if found.is_empty() {
        report.ok("window", format!("the sessions of Codex' windows run in PID {pid}, which finds tenure as this call does"));
        return;
    }
    report.wrong(
        "window",
        format!(
            "the sessions of Codex' windows run in PID {pid}: {}",
            found.join("; ")
        ),
        format!("close all windows of Codex, end PID {pid}, and start Codex anew"),
    );
}

/// The process in the background, and its variables, where it runs and the system shows them.
fn daemon(codex: &Path) -> Option<(u64, BTreeMap<String, String>)> {
    let record = text_of(&codex.join("app-server-daemon/app-server.pid")).ok()??;
    let record: Json = serde_json::from_str(&record).ok()?;
    let pid = record.as_u64().or_else(|| record.get("pid")?.as_u64())?;
    let of_process = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).ok();
    // The number may be another process' by now.
    let words = of_process("cmdline")?;
    let first = words.split(|byte| *byte == 0).next()?;
    String::from_utf8_lossy(first)
        .contains("codex")
        .then_some(())?;
    let environment = of_process("environ")?;
    let variables = environment.split(|byte| *byte == 0).filter_map(|variable| {
        let (name, value) = std::str::from_utf8(variable).ok()?.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    });
    Some((pid, variables.collect()))
}

/// The user's file of settings.
fn file(call: &Agent) -> PathBuf {
    call.roots.own(call.host).join("config.toml")
}

fn read(file: &Path) -> Result<Table, String> {
    match text_of(file) {
        Ok(Some(text)) => toml::read(&text),
        Ok(None) => Ok(Table::new()),
        Err(failure) => Err(failure.message.clone()),
    }
}

fn get<'a>(table: &'a Table, path: &[&str]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter()
        .try_fold(table.get(*first)?, |at, key| at.get(*key))
}

/// The file that switches a plugin of ours on.
fn plugin(call: &Agent) -> Option<String> {
    let file = file(call);
    let users = read(&file).ok()?;
    let mut plugins = users.get("plugins")?.as_table()?.iter();
    let is_on = |plugin: &Value| plugin.get("enabled").and_then(Value::as_bool) != Some(false);
    plugins
        .any(|(name, plugin)| is_our_plugin(name) && is_on(plugin))
        .then(|| clean_path(file))
}

/// What the sandbox keeps from a command that takes a lock, and what mends it. What cannot be known hinders nothing.
fn hindrance(call: &Agent) -> Option<(String, String)> {
    let is_on_servers = if let Ok(place) = &call.place {
        !place.is_folder()
    } else {
        // The file of a clone leads there, and nobody has allowed it yet.
        let config = call.config.as_ref().ok()?;
        config.files().any(|file| file.store.is_some())
    };
    let file = file(call);
    let users = read(&file).ok()?;
    let mode = get(&users, &["sandbox_mode"]).and_then(Value::as_str);
    if mode == Some("danger-full-access") {
        return None;
    }
    let of_sandbox = |key| get(&users, &["sandbox_workspace_write", key]);
    let below = format!("below [sandbox_workspace_write] in {}", clean_path(&file));
    if is_on_servers {
        let may = of_sandbox("network_access").and_then(Value::as_bool) == Some(true);
        return (!may).then(|| {
            let what = format!(
                "it keeps commands from the network, and so from the servers of the locks: {WITHOUT_PLACE}"
            );
            (what, format!("{below}: network_access = true"))
        });
    }
    let place = call.place.as_ref().ok()?;
    let tree = &call.roots.project;
    // A relative folder of the configuration was made absolute; one of a flag counts from here.
    let folder = tree.join(&place.folder);
    // Below the work tree all can be written but git's folder and Codex' own.
    let is_kept = [".git", ".codex", ".agents"]
        .iter()
        .any(|kept| folder.starts_with(tree.join(kept)));
    let in_tree = folder.starts_with(tree) && !is_kept;
    let in_scratch = folder.starts_with("/tmp") || folder.starts_with(std::env::temp_dir());
    let roots = of_sandbox("writable_roots").and_then(Value::as_array);
    let roots: Vec<&str> = roots
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if mode != Some("read-only") && (in_tree || in_scratch || lies_in(&folder, &roots, call)) {
        return None;
    }
    let root = Json::from(folder.display().to_string());
    let what = format!(
        "it keeps commands from writing in {}: {WITHOUT_PLACE}",
        clean_path(&folder)
    );
    // The line of the settings comes last, so that it can be copied.
    let fix = format!(
        "name a folder in the work tree by `dir` in tenure.toml, for people and agents alike; or, {below}: writable_roots = \
         [{root}]"
    );
    Some((what, fix))
}

/// Whether a login shell finds tenure: Codex runs commands by one.
fn login(report: &mut Findings) {
    let shell = std::env::var_os("SHELL").filter(|shell| Path::new(shell).is_absolute());
    let mut command = Command::new(shell.unwrap_or_else(|| "/bin/sh".into()));
    command.args(["-lc", "command -v tenure"]);
    match ask::answer(&mut command, "", ask::SOON) {
        Ok(said) if !said.trim().is_empty() => {
            report.ok("login", format!("a login shell finds tenure: {}", clean_path(said.trim())));
        }
        _ => report.note(
            "login",
            "a login shell, by which Codex runs commands, finds no tenure on its PATH: what a hook writes names its path, and \
             what an agent writes itself fails",
            "put the folder of tenure on the PATH in ~/.profile",
        ),
    }
}

/// Whether the server looks for the locks where commands do: it says so in its first answer, and is asked with the variables
/// that Codex gives it.
fn server(call: &Agent, report: &mut Findings) {
    // Where the call itself names the place, the server has another one.
    let Some(place) = call.place.as_ref().ok().filter(|place| !place.is_typed()) else {
        return;
    };
    let files =
        [Reach::Project, Reach::User].map(|reach| call.host.server_file(reach, &call.roots));
    let of_file = |file: PathBuf| {
        let server = toml::ours(&text_of(&file).ok()??)?;
        Some((file, server))
    };
    let Some((file, server)) = files.into_iter().flatten().find_map(of_file) else {
        return;
    };
    let Some(said) = place_of_server(call, &server) else {
        return;
    };
    let expected = format!("the locks are in {}", clean_path(&place.folder));
    let is_same = said.contains(&format!("{expected} (")) || said.contains(&format!("{expected}."));
    let name = clean_path(&file);
    if is_same {
        report.ok("server", "it looks for the locks where commands do");
        return;
    }
    let reach = if file.starts_with(call.roots.own(call.host)) {
        Reach::User
    } else {
        Reach::Project
    };
    report.wrong(
        "server",
        format!(
            "{expected} for commands, and not for the server of {name}, which has other variables: they exclude nobody from \
             each other"
        ),
        super::line("install", AgentHost::Codex, &[reach.flag()]),
    );
}

/// What the server says of its place when Codex starts it.
fn place_of_server(call: &Agent, server: &Json) -> Option<String> {
    let asks = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"tenure agent status","version":"1"}}}"#;
    let words = server.get("args")?.as_array()?.iter();
    let mut command = Command::new(std::env::current_exe().ok()?);
    command
        .args(words.map(|word| word.as_str().unwrap_or_default()))
        .env_clear()
        .envs(
            GIVEN_BY_CODEX
                .into_iter()
                .chain(toml::passed(server))
                .filter_map(own),
        )
        .current_dir(&call.roots.project);
    for (name, value) in server
        .get("env")
        .and_then(Json::as_object)
        .into_iter()
        .flatten()
    {
        command.env(name, value.as_str()?);
    }
    let said = ask::answer(&mut command, &format!("{asks}\n"), ask::SOON).ok()?;
    let said: Json = serde_json::from_str(said.lines().next()?).ok()?;
    Some(
        said.get("result")?
            .get("instructions")?
            .as_str()?
            .to_owned(),
    )
}

fn own(name: &str) -> Option<(&str, OsString)> {
    Some((name, std::env::var_os(name)?))
}

/// Whether Codex has a mark of trust for each of our hooks. Whether the mark fits the hook only Codex can tell.
fn trust(layer: &Layer, state: Option<&Value>, report: &mut Findings) {
    let (mut all, mut trusted) = (0, 0);
    for handler in ours(&layer.document, AgentHost::Codex) {
        all += 1;
        let (file, event) = (layer.file.display(), snake(handler.event));
        let key = format!("{file}:{event}:{}:{}", handler.group, handler.place);
        let known = state.and_then(|state| state.get(&key));
        let is_on = known.and_then(|known| known.get("enabled")?.as_bool()) != Some(false);
        let is_known = known.is_some_and(|known| known.get("trusted_hash").is_some());
        trusted += usize::from(is_on && is_known);
    }
    if trusted == all {
        report.ok(
            "trust",
            format!("Codex has a mark of trust for each hook of {}", layer.shown),
        );
    } else {
        report.wrong(
            "trust",
            format!(
                "{} of {all} hooks of {} have no trust: Codex does not run them",
                all - trusted,
                layer.shown
            ),
            "start codex and trust them with /hooks",
        );
    }
}

/// `PreToolUse` as Codex writes it in a key: `pre_tool_use`.
fn snake(event: &str) -> String {
    let mut text = String::new();
    for (at, c) in event.chars().enumerate() {
        if c.is_ascii_uppercase() && at > 0 {
            text.push('_');
        }
        text.push(c.to_ascii_lowercase());
    }
    text
}
