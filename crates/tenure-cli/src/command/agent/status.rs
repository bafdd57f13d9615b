//! `agent status`: what is installed where, and what keeps it from working. It reads only.
//!
//! What the person's own rules make of a rewritten command, `rules` says; what a host's own settings say, the module of its
//! name.

mod claude;
mod codex;
mod rules;

use super::ask;
use super::entries::{Has, Kind, Words, handlers, ours};
use super::files::text_of;
use super::install::files_of;
use super::path;
use super::registered::{self, Registered};
use super::{line, program};
use crate::args::value::AgentHost;
use crate::failure::Failure;
use crate::host::{self, Reach, is_tenure};
use crate::render::findings::{Finding, Findings, Form, Status};
use crate::render::{Reporter, clean, clean_path};
use crate::request::Agent;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tenure_store::advice;

/// What follows where a command cannot use the place of its lock.
const WITHOUT_PLACE: &str =
    "a command of an open rule runs without its lock, and one of a closed rule is refused";

/// A place in which hooks of a host can stand.
struct Layer {
    reach: Reach,
    file: PathBuf,
    shown: String,
    document: Value,
    has: Has,
}

pub(super) fn status(call: &Agent, reporter: &Reporter) -> Result<(String, Value), Failure> {
    let mut report = Findings::default();
    let layers = layers(call, &mut report);
    let places = hooks(call, &layers, &mut report);
    parts(call, &layers, &mut report);
    programs(&layers, &mut report);
    version(call.host, &mut report);
    let folder = folder(call, &mut report);
    rules::look(call, &mut report);
    (looks(call.host).settings)(call, &layers, folder.as_deref(), &mut report);
    answer(call, &report, &places, reporter)
}

/// The files in which the host looks for hooks, and what they have of tenure.
fn layers(call: &Agent, report: &mut Findings) -> Vec<Layer> {
    let mut looked = call.roots.clone();
    if call.host.table().files.are_in_main {
        looked.project.clone_from(&looked.main);
    }
    let mut files = vec![
        (
            Reach::Project,
            call.host.hooks_file(Reach::Project, &looked),
        ),
        (Reach::User, call.host.hooks_file(Reach::User, &call.roots)),
    ];
    if let Some(beside) = call.host.table().files.beside {
        let local = files[0].1.with_file_name(beside);
        files.insert(1, (Reach::Project, local));
    }
    // In the home folder both are one file.
    let users = call.host.hooks_file(Reach::User, &call.roots);
    files.retain(|(reach, file)| *reach == Reach::User || *file != users);
    let mut layers = Vec::new();
    for (reach, file) in files {
        let shown = clean_path(&file);
        let text = match text_of(&file) {
            Ok(text) => text.unwrap_or_default(),
            Err(failure) => {
                report.wrong("hooks", failure.message.clone(), format!("mend {shown}"));
                continue;
            }
        };
        match words(call, reach).has(Kind::Hooks, &text) {
            Ok(has) => layers.push(Layer {
                reach,
                file,
                shown,
                document: serde_json::from_str(text.trim_start_matches('\u{feff}'))
                    .unwrap_or_default(),
                has,
            }),
            Err(why) => report.wrong(
                "hooks",
                format!("{shown} cannot be used: {why}"),
                format!("mend {shown}; the host itself cannot read it either"),
            ),
        }
    }
    layers
}

fn words(call: &Agent, reach: Reach) -> Words {
    Words {
        host: call.host,
        program: program(reach).unwrap_or_else(|_| host::NAME.to_owned()),
    }
}

/// What is looked at in a host's own settings.
pub(super) struct Looks {
    /// The file that switches a plugin of ours on.
    plugin: fn(&Agent, &[Layer]) -> Option<String>,
    /// What keeps hooks and commands from working. The folder is that of the locks.
    settings: fn(&Agent, &[Layer], Option<&Path>, &mut Findings),
    /// What the host's sandbox keeps from commands, which an installation says as well, and what mends it.
    pub(super) hindrance: fn(&Agent) -> Option<(String, String)>,
}

pub(super) fn looks(host: AgentHost) -> &'static Looks {
    match host {
        AgentHost::Claude => &claude::LOOKS,
        AgentHost::Codex => &codex::LOOKS,
    }
}

/// Whether this is our plugin, from whatever marketplace.
fn is_our_plugin(name: &str) -> bool {
    name.split('@').next() == Some(host::NAME)
}

/// Whether the host is one that takes what the hooks say.
fn version(host: AgentHost, report: &mut Findings) {
    let Some(version) = ask::version(host.word()) else {
        return;
    };
    let text = |version: [u32; 3]| version.map(|number| number.to_string()).join(".");
    let (oldest, what) = host.table().oldest;
    let said = format!("{} {}", host.table().name, text(version));
    if version >= oldest {
        report.ok("version", said);
    } else {
        report.note(
            "version",
            format!("{said} is older than {}: {what}", text(oldest)),
            format!("update {}", host.table().name),
        );
    }
}

fn hooks(call: &Agent, layers: &[Layer], report: &mut Findings) -> Vec<String> {
    let mut places: Vec<String> = Vec::new();
    for layer in layers {
        let flag = layer.reach.flag();
        match layer.has {
            Has::Nothing => {}
            Has::All => report.ok("hooks", format!("{} has all of them", layer.shown)),
            Has::Other => report.wrong(
                "hooks",
                format!("{} has some of them, or an older form", layer.shown),
                line("install", call.host, &[flag]),
            ),
        }
        if layer.has != Has::Nothing {
            places.push(layer.shown.clone());
        }
        let ours: Vec<&str> = ours(&layer.document, call.host)
            .map(|handler| handler.event)
            .collect();
        let of_event = |event| ours.iter().filter(|other| *other == event).count();
        let most = ours.iter().map(of_event).max().unwrap_or_default();
        if most > 1 {
            report.wrong(
                "double",
                format!(
                    "{} has {most} hooks of tenure for one event, and all fire",
                    layer.shown
                ),
                ["uninstall", "install"]
                    .map(|action| line(action, call.host, &[flag]))
                    .join(" && "),
            );
        }
    }
    if let Some(file) = (looks(call.host).plugin)(call, layers) {
        report.ok("plugin", format!("{file} switches the plugin on"));
        places.push("the plugin".to_owned());
    }
    match places.len() {
        0 => report.wrong(
            "hooks",
            format!(
                "none are installed for {}: no lock is taken by itself",
                call.host.table().name
            ),
            line("install", call.host, &[]),
        ),
        1 => {}
        _ => report.wrong(
            "double",
            format!(
                "hooks fire several times for one call: {}",
                places.join(", ")
            ),
            if places.iter().any(|place| place == "the plugin") {
                let own = line("uninstall", call.host, &[]);
                let out = call.host.table().without_plugin;
                format!("keep one: `{own}`, or `{out}`")
            } else {
                let all = ["--user", "--project"].map(|flag| line("uninstall", call.host, &[flag]));
                format!("keep one: `{}`, or `{}`", all[0], all[1])
            },
        ),
    }
    places
}

/// The server and the skill.
fn parts(call: &Agent, layers: &[Layer], report: &mut Findings) {
    for reach in [Reach::Project, Reach::User] {
        let is_installed = layers
            .iter()
            .any(|layer| layer.reach == reach && layer.has != Has::Nothing);
        if !is_installed {
            continue;
        }
        let words = words(call, reach);
        for (kind, file) in files_of(call.host, reach, &call.roots) {
            if kind == Kind::Hooks {
                continue;
            }
            let name = clean_path(&file);
            let fix = line("install", call.host, &[reach.flag()]);
            let text = text_of(&file).map_err(|failure| failure.message.clone());
            match text.and_then(|text| words.has(kind, &text.unwrap_or_default())) {
                Ok(Has::All) => report.ok(kind.word(), format!("{name} has it")),
                Ok(Has::Nothing) => report.note(kind.word(), format!("{name} lacks it"), fix),
                Ok(Has::Other) => {
                    report.note(kind.word(), format!("{name} has another form of it"), fix);
                }
                Err(why) => report.note(
                    kind.word(),
                    format!("{name}: {why}"),
                    format!("mend {name}"),
                ),
            }
        }
        if let Some(own) = registered::file_of(call.host, reach, &call.roots) {
            let program = call.host.word();
            match registered::registered(&own, &words.program) {
                Some(Registered::Ours) => report.ok("server", "the user's server is registered"),
                Some(Registered::Nothing) => report.note(
                    "server",
                    "the user's server is not registered",
                    format!("{program} mcp add --scope user tenure -- tenure mcp"),
                ),
                Some(Registered::Stale) => report.note(
                    "server",
                    "the user's server is registered, and its program is not there",
                    line("install", call.host, &["--user"]),
                ),
                Some(Registered::Another) => report.note(
                    "server",
                    "the user's server `tenure` is another program",
                    format!("{program} mcp remove --scope user tenure"),
                ),
                None => report.note(
                    "server",
                    format!("{} cannot be read", clean_path(&own)),
                    format!("{program} mcp list"),
                ),
            }
        }
    }
}

/// Whether the hooks lead to a program, and a rewritten command to the same one.
fn programs(layers: &[Layer], report: &mut Findings) {
    for layer in layers {
        for command in commands(&layer.document) {
            let named = command.trim_matches('\'');
            let is_path = named.starts_with('/') && is_tenure(named);
            if is_path && !Path::new(named).is_file() {
                report.wrong(
                    "program",
                    format!("{} calls {}, which is not there", layer.shown, clean(named)),
                    "install again, with the tenure that is there",
                );
                return;
            }
        }
    }
    let found = path::programs();
    let Some(first) = found.first() else {
        report.wrong(
            "program",
            "no folder of the PATH has tenure: hooks fail, and hosts go on without them",
            "put the folder of tenure on the PATH of the host",
        );
        return;
    };
    let place = clean_path(&first.path);
    if path::is_this(first) {
        report.ok(
            "program",
            format!("{place}, version {}", env!("CARGO_PKG_VERSION")),
        );
        return;
    }
    let version = path::version_of(&first.path);
    let version = version.map_or("of unknown version".to_owned(), |version| {
        format!("version {version}")
    });
    report.note(
        "program",
        format!("the PATH leads to {place}, {version}, and not to this program"),
        "keep one of them, or change the order of the PATH",
    );
}

/// What the handlers of a document start: the first word, if it is one.
fn commands(document: &Value) -> impl Iterator<Item = &str> {
    let commands = handlers(document).filter_map(|handler| handler.value.get("command")?.as_str());
    commands.map(|command| command.split(" hook ").next().unwrap_or(command))
}

/// The folder of the locks, if there is one, and whether the caller may write in it.
fn folder(call: &Agent, report: &mut Findings) -> Option<PathBuf> {
    let place = match &call.place {
        Ok(place) => place,
        Err(failure) => {
            report.wrong(
                "folder",
                format!("the place of the locks is not known: {}", failure.message),
                advice::line([&*advice::program(), "doctor"]),
            );
            return None;
        }
    };
    if !place.is_folder() {
        report.ok("folder", "the locks are on servers");
        return None;
    }
    let folder = place.folder.clone();
    let folder = if folder.is_absolute() {
        folder
    } else {
        call.roots.project.join(folder)
    };
    let there = folder.ancestors().find(|above| above.exists());
    let may = there.is_some_and(|there| {
        let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        rustix::fs::access(there, access).is_ok()
    });
    let name = clean_path(&folder);
    if may {
        report.ok("folder", format!("{name} can be written"));
    } else {
        report.wrong(
            "folder",
            format!("{name} cannot be written by this user"),
            place.line(&["doctor"]),
        );
    }
    Some(folder)
}

/// Whether a folder lies in one of these, as a host writes them.
fn lies_in(folder: &Path, roots: &[&str], call: &Agent) -> bool {
    roots.iter().any(|root| {
        let root = match root.strip_prefix("~/") {
            Some(rest) => call.roots.home.join(rest),
            // Claude Code writes a path from the root on with two slashes.
            None => match root.strip_prefix("//") {
                Some(rest) => Path::new("/").join(rest),
                None => call.roots.project.join(root.trim_start_matches("./")),
            },
        };
        folder.starts_with(&root)
    })
}

/// The answers to three questions (whether tenure is on, for what, and what would go wrong), and then the findings.
fn answer(
    call: &Agent,
    report: &Findings,
    places: &[String],
    reporter: &Reporter,
) -> Result<(String, Value), Failure> {
    let keeps_off =
        |check: &&Finding| matches!(check.about, "hooks" | "trust" | "program" | "config");
    let off = report.all_wrong().find(keeps_off);
    let on = match off {
        Some(check) => format!("off    {}", check.message),
        None => format!(
            "on     {} calls tenure's hooks: {}",
            call.host.table().name,
            places.join(", ")
        ),
    };
    let rules = rules::all(call);
    let faults = match report.all_wrong().count() {
        0 => "none that can be seen from here".to_owned(),
        1 => "one, with what mends it".to_owned(),
        count => format!("{count}, each with what mends it"),
    };
    let mut text = if reporter.is_quiet() {
        String::new()
    } else {
        format!("{on}\nfor    {rules}\nfaults {faults}\n")
    };
    let form = Form {
        label_columns: 9,
        before_fix: "",
    };
    let tells_all = reporter.is_verbose() && !reporter.is_quiet();
    text += &report.text(form, |status| tells_all || status != Status::Ok);
    let data = json!({
        "action": "status",
        "host": call.host.word(),
        "on": off.is_none(),
        "for": rules,
        "checks": report.json("about"),
    });
    report.answer(text.trim_end_matches('\n').to_owned(), data, false)
}
