//! Installing tenure into the files of agents' hosts: files of all shapes that people have, other programs that
//! change the same files, many installations at once, deaths and failures at any step, other users' projects.

#![allow(
    clippy::disallowed_methods,
    reason = "what the test has planted is removed by it"
)]

use crate::support::{Answer, Scene, Started, TENURE, answer, is_root};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Whatever another program puts in the place of a file that is read, nothing waits for it.
#[test]
fn what_is_no_regular_file_keeps_neither_status_nor_installation() {
    let desk = Desk::new();
    let make = |kind: &str, path: &Path| {
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        match kind {
            "pipe" => {
                let mode = rustix::fs::Mode::RWXU;
                rustix::fs::mkfifoat(rustix::fs::CWD, path, mode).expect("a pipe");
            }
            "socket" => drop(std::os::unix::net::UnixListener::bind(path).expect("a socket")),
            "folder" => fs::create_dir(path).expect("a folder"),
            "device" => symlink("/dev/zero", path).expect("a link"),
            _ => {
                let file = fs::File::create(path).expect("a file");
                file.set_len(1 << 30).expect("a hole");
            }
        }
    };
    let ends = |words: &[&str], what: &str| {
        let mut command = desk.scene.program("timeout");
        command.arg("20").arg(TENURE).arg("agent").args(words);
        desk.settle(&mut command);
        let said = answer(&mut command);
        assert_ne!(said.code(), 124, "{what}: {words:?}");
        said
    };
    for (host, file) in [
        ("claude", "project/.claude/settings.json"),
        ("claude", "project/.claude/settings.local.json"),
        ("claude", "project/.mcp.json"),
        ("claude", "project/.claude/skills/tenure/SKILL.md"),
        ("claude", "home/.claude/settings.json"),
        ("claude", "home/.claude.json"),
        ("claude", "project/.claude/.settings.json.tenure-new"),
        ("claude", "home/.local/state/tenure/agents/lock"),
        ("claude", "home/.local/state/tenure/agents/probe-claude"),
        ("codex", "project/.codex/hooks.json"),
        ("codex", "project/.codex/config.toml"),
        ("codex", "home/.codex/config.toml"),
    ] {
        let path = desk.scene.path(file);
        let _ = fs::remove_file(&path);
        make("pipe", &path);
        ends(&["status", host], file);
        ends(&["install", host], file);
        ends(&["uninstall", host], file);
        ends(&["probe", host], file);
        if path.symlink_metadata().is_ok() {
            fs::remove_file(&path).expect("the pipe");
        }
    }
    let settings = desk.scene.path("project/.claude/settings.json");
    for kind in ["socket", "folder", "device", "hole"] {
        let _ = fs::remove_file(&settings);
        make(kind, &settings);
        let said = ends(&["status", "claude"], kind).stdout();
        let why = if kind == "hole" {
            "larger than 8 MiB"
        } else {
            "not a regular file"
        };
        assert!(said.contains(why), "{kind}: {said}");
        let refused = ends(&["install", "claude"], kind);
        assert!(refused.code() != 0, "{kind}: {}", refused.said());
        if kind == "folder" {
            fs::remove_dir(&settings).expect("the folder");
        }
    }
}

/// A project in a repository, and a home folder beside it.
struct Desk {
    scene: Scene,
}

impl Desk {
    fn new() -> Self {
        let scene = Scene::new();
        fs::create_dir_all(scene.path("project/.git")).expect("a repository");
        fs::create_dir(scene.path("home")).expect("a home folder");
        Self { scene }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.scene.tenure(std::iter::once(&"agent").chain(words));
        self.settle(&mut command);
        command
    }

    fn settle(&self, command: &mut Command) {
        command
            .env("HOME", self.scene.path("home"))
            .env_remove("TENURE_DIR")
            .current_dir(self.scene.path("project"));
    }

    fn run(&self, words: &[&str]) -> Answer {
        answer(&mut self.command(words))
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.scene.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs::write(&path, text).expect("a file");
        path
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.scene.path(name)).expect(name)
    }

    /// Every file and folder of project and home but tenure's own state, with its content.
    fn all(&self) -> BTreeMap<PathBuf, String> {
        let mut all = BTreeMap::new();
        for root in ["project", "home"] {
            collect(&self.scene.path(root), &mut all);
        }
        all
    }
}

fn collect(folder: &Path, all: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.ends_with("home/.local") {
            continue;
        }
        if path.is_dir() && !path.is_symlink() {
            collect(&path, all);
            all.insert(path, String::new());
        } else {
            let text = fs::read_to_string(&path).unwrap_or_default();
            all.insert(path, text);
        }
    }
}

fn is_ours(handler: &Value) -> bool {
    handler["args"] == json!(["hook", "claude"]) || handler["command"] == "tenure hook codex"
}

/// The document without what tenure put in.
fn foreign(text: &str) -> Value {
    let text = text.trim_start_matches('\u{feff}');
    let mut document: Value = serde_json::from_str(text).expect("JSON");
    let mut is_empty = true;
    for (_, groups) in document["hooks"].as_object_mut().into_iter().flatten() {
        let groups = groups.as_array_mut().expect("groups");
        groups.retain(|group| {
            !group["hooks"]
                .as_array()
                .is_some_and(|all| !all.is_empty() && all.iter().all(is_ours))
        });
        is_empty &= groups.is_empty();
    }
    if is_empty && let Some(document) = document.as_object_mut() {
        document.remove("hooks");
    }
    document
}

/// A user of the test's own.
const ADA: u32 = 64_001;

/// Makes a project one that nothing can be installed in.
type Spoil = fn(&Path);

const SETTINGS: &str = ".claude/settings.json";

/// Settings as people have them.
const SHAPES: [&str; 10] = [
    "{}",
    "{}\n",
    "{\n}\n",
    "{\"model\":\"x\",\"env\":{\"A\":\"}]\\\"\"}}",
    "{\n  \"z\": 1,\n  \"a\": [1,\n 2],\n  \"permissions\": { \"deny\": [\"Bash(rm *)\"] }\n}",
    "\u{feff}{\r\n\t\"model\": \"x\"\r\n}\r\n",
    "{\n    \"hooks\": {\n        \"PreToolUse\": [\n            {\n                \"matcher\": \"Bash\",\n                \
     \"hooks\": [ { \"type\": \"command\", \"command\": \"./mine.sh\" } ]\n            }\n        ]\n    },\n    \
     \"last\": true\n}\n",
    "{\"hooks\":{\"PreToolUse\":[{\"hooks\":[{\"type\":\"command\",\"command\":\"x\"}]}],\"Stop\":[]}}",
    "{ \"hooks\" : { \"SessionEnd\" : [ { \"hooks\" : [ ] } ] } }\n\n\n",
    "{\n\t\"hooks\": {\n\t\t\"Stop\": [\n\t\t\t{ \"hooks\": [ { \"command\": \"tenure run x\" } ] }\n\t\t]\n\t}\n}",
];

#[test]
fn settings_keep_every_byte_and_come_back_as_they_were() {
    for before in SHAPES {
        let desk = Desk::new();
        let file = desk.write(&format!("project/{SETTINGS}"), before);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("rights");
        desk.run(&["install", "claude"]).expect(0, before);
        let after = desk.read(&format!("project/{SETTINGS}"));
        // What was there is there, in its order: nothing but ours lies between.
        let mut rest = after.chars();
        for c in before
            .trim_end_matches(['}', ']', ' ', '\n', '\r', '\t'])
            .chars()
        {
            assert!(rest.any(|other| other == c), "{before:?} in {after:?}");
        }
        let ends = |text: &str| text.rsplit_once('}').map(|(_, end)| end.to_owned());
        assert_eq!(ends(&after), ends(before), "{after:?}");
        assert_eq!(after.contains("\r\n"), before.contains("\r\n"));
        assert!(!after.replace("\r\n", "").contains('\r'), "{after:?}");
        if before.contains("\r\n") {
            assert!(!after.replace("\r\n", "").contains('\n'), "{after:?}");
        }
        let hooks: Value =
            serde_json::from_str(after.trim_start_matches('\u{feff}')).expect("JSON");
        for event in [
            "PreToolUse",
            "PostToolUse",
            "PostToolUseFailure",
            "Stop",
            "SubagentStop",
            "SessionStart",
            "SessionEnd",
        ] {
            let groups = hooks["hooks"][event].as_array().expect(event);
            let ours = groups.last().expect("a group");
            assert_eq!(ours["hooks"][0]["command"], "tenure", "{event} comes last");
            assert_eq!(ours["hooks"][0]["timeout"], 10);
        }
        let again = desk
            .run(&["install", "claude", "--output", "json"])
            .expect(0, before);
        for file in again.json()["data"]["files"].as_array().expect("files") {
            assert_eq!(file["change"], "unchanged", "{before:?}");
        }
        assert_eq!(desk.read(&format!("project/{SETTINGS}")), after);
        desk.run(&["uninstall", "claude"]).expect(0, before);
        assert_eq!(desk.read(&format!("project/{SETTINGS}")), before);
        let facts = fs::metadata(&file).expect("the file");
        assert_eq!(facts.mode() & 0o777, 0o640);
    }
}

#[test]
fn what_other_programs_wrote_meanwhile_stays() {
    for before in SHAPES {
        let desk = Desk::new();
        let name = format!("project/{SETTINGS}");
        desk.write(&name, before);
        desk.run(&["install", "claude"]).expect(0, before);
        let after = desk.read(&name);
        // Another program adds a setting in front, and a hook behind ours.
        let open = after.find('{').expect("an object") + 1;
        let mut edited = after.clone();
        edited.insert_str(open, "\"theirs\": 2,");
        let ours = edited.rfind("\"args\"").expect("ours");
        let close = ours + edited[ours..].find(']').expect("the words") + 1;
        let close = close + edited[close..].find(']').expect("the handlers") + 1;
        let close = close + edited[close..].find(']').expect("the groups");
        edited.insert_str(close, ", {\"hooks\": [{\"command\": \"theirs\"}]}");
        serde_json::from_str::<Value>(edited.trim_start_matches('\u{feff}')).expect(&edited);
        desk.write(&name, &edited);
        let same = desk.run(&["install", "claude"]).expect(0, before);
        assert!(same.stdout().contains("unchanged"), "{}", same.said());
        assert_eq!(desk.read(&name), edited);
        desk.run(&["uninstall", "claude"]).expect(0, before);
        let rest = desk.read(&name);
        assert!(!rest.contains("\"hook\", \"claude\""), "{rest}");
        let rest: Value = serde_json::from_str(rest.trim_start_matches('\u{feff}')).expect("JSON");
        let mut expected = foreign(&edited);
        // Only what is empty now goes with ours.
        if let Some(events) = expected["hooks"].as_object_mut() {
            events
                .retain(|event, groups| groups != &json!([]) || rest["hooks"].get(event).is_some());
        }
        assert_eq!(rest, expected, "{before:?}");
    }
}

#[test]
fn a_host_that_is_not_there_yet_gets_its_folders_and_loses_them_again() {
    for (host, files) in [
        (
            "claude",
            [
                ".claude/settings.json",
                ".claude/skills/tenure/SKILL.md",
                ".mcp.json",
            ],
        ),
        (
            "codex",
            [
                ".codex/hooks.json",
                ".agents/skills/tenure/SKILL.md",
                ".codex/config.toml",
            ],
        ),
    ] {
        for (flag, root) in [("--project", "project"), ("--user", "home")] {
            let desk = Desk::new();
            let before = desk.all();
            let dry = desk.run(&["install", host, flag, "--dry-run"]);
            let dry = dry.expect(0, host).stdout();
            assert!(dry.contains("--- /dev/null\n+++ "), "{dry}");
            assert!(dry.contains("\n@@ -0,0 +1,"), "{dry}");
            assert_eq!(desk.all(), before);
            assert!(
                !desk.scene.path("home/.local").exists(),
                "a dry run makes nothing"
            );
            desk.run(&["install", host, flag]).expect(0, host);
            for file in files {
                let is_there = desk.scene.path(root).join(file).is_file();
                assert_eq!(
                    is_there,
                    (root, file) != ("home", ".mcp.json"),
                    "{flag} {file}"
                );
            }
            desk.run(&["uninstall", host, flag]).expect(0, host);
            assert_eq!(desk.all(), before, "{host} {flag}");
        }
    }
}

/// The word of a refusal.
fn word(answer: &Answer) -> String {
    let code = answer.json()["error"]["code"].as_str().map(str::to_owned);
    code.unwrap_or_else(|| panic!("no refusal: {}", answer.said()))
}

#[test]
fn programs_are_told_by_a_word_what_is_wrong() {
    let desk = Desk::new();
    let asked = |words: &[&str]| {
        let words = [words, &["--output", "json"]].concat();
        let answer = desk.run(&words);
        (answer.code(), word(&answer))
    };
    let is = |code: i32, word: &str| (code, word.to_owned());
    assert_eq!(asked(&["probe", "claude"]), is(1, "NOT_ARRIVED"));
    assert_eq!(asked(&["status", "claude"]), is(1, "SOMETHING_WRONG"));
    assert_eq!(
        asked(&["status", "claude", "--user"]),
        is(2, "BAD_ARGUMENTS")
    );
}

#[test]
fn outside_a_repository_it_is_for_the_user() {
    let desk = Desk::new();
    fs::remove_dir(desk.scene.path("project/.git")).expect("no repository");
    let said = desk.run(&["install", "claude"]).expect(0, "no repository");
    let undo = "undo: tenure agent uninstall claude --user\n";
    assert!(said.stdout().ends_with(undo), "{}", said.stdout());
    assert!(desk.scene.path("home/.claude/settings.json").is_file());
    desk.run(&["install", "claude", "--project"])
        .expect(0, "this folder");
    assert!(desk.scene.path("project/.mcp.json").is_file());
    // In a folder below the root of a repository it is the repository's.
    let desk = Desk::new();
    fs::create_dir(desk.scene.path("project/sub")).expect("a folder");
    let mut below = desk.command(&["install", "claude"]);
    answer(below.current_dir(desk.scene.path("project/sub"))).expect(0, "below");
    assert!(desk.scene.path("project/.mcp.json").is_file());
}

#[test]
fn what_cannot_be_changed_is_refused_before_anything_changes() {
    for (file, text, why) in [
        (SETTINGS, "{\"a\": 1,}", "it is no JSON"),
        (SETTINGS, "// mine\n{}", "it is no JSON"),
        (SETTINGS, "[]", "it is no JSON object"),
        (SETTINGS, "{\"hooks\": []}", "its `hooks` are no object"),
        (
            SETTINGS,
            "{\"hooks\": {\"PreToolUse\": {}}}",
            "its `hooks.PreToolUse` is no array",
        ),
        (
            ".mcp.json",
            "{\"mcpServers\": {\"tenure\": {\"command\": \"node\"}}}",
            "is another program",
        ),
        (
            ".mcp.json",
            "{\"mcpServers\": 1}",
            "its `mcpServers` are no object",
        ),
    ] {
        let desk = Desk::new();
        desk.write(&format!("project/{file}"), text);
        let before = desk.all();
        let refused = desk.run(&["install", "claude"]).expect(2, text);
        assert!(refused.stderr().contains(why), "{text}: {}", refused.said());
        assert!(
            refused.stderr().contains(file),
            "{text}: {}",
            refused.said()
        );
        assert_eq!(desk.all(), before, "{text}");
    }
    for text in [
        "a = ",
        "mcp_servers = {}\n",
        "[mcp_servers.tenure]\ncommand = \"x\"\n",
    ] {
        let desk = Desk::new();
        desk.write("project/.codex/config.toml", text);
        let before = desk.all();
        desk.run(&["install", "codex"]).expect(2, text);
        assert_eq!(desk.all(), before, "{text}");
    }
    // No text at all, a folder in the way, a file in the way of a folder, a link that leads nowhere.
    let spoils: [Spoil; 4] = [
        |project| {
            fs::create_dir(project.join(".claude")).expect("a folder");
            fs::write(project.join(SETTINGS), b"{\"a\": \"\xff\"}").expect("a file");
        },
        |project| fs::create_dir_all(project.join(SETTINGS)).expect("a folder"),
        |project| fs::write(project.join(".claude"), "x").expect("a file"),
        |project| {
            fs::create_dir(project.join(".claude")).expect("a folder");
            symlink("nowhere", project.join(SETTINGS)).expect("a link");
        },
    ];
    for spoil in spoils {
        let desk = Desk::new();
        spoil(&desk.scene.path("project"));
        let before = desk.all();
        let refused = desk.run(&["install", "claude"]).expect(2, "spoiled");
        assert_eq!(refused.stderr().lines().count(), 1, "{}", refused.said());
        assert_eq!(desk.all(), before);
    }
}

#[test]
fn a_link_stays_a_link_and_an_own_skill_stays() {
    let desk = Desk::new();
    let real = desk.write("home/dotfiles/claude.json", "{\n  \"a\": 1\n}\n");
    fs::create_dir(desk.scene.path("project/.claude")).expect("a folder");
    let link = desk.scene.path(&format!("project/{SETTINGS}"));
    symlink(&real, &link).expect("a link");
    let skill = "project/.claude/skills/tenure/SKILL.md";
    desk.write(skill, "mine\n");
    let done = desk.run(&["install", "claude"]).expect(0, "through a link");
    assert!(
        done.stderr().contains("SKILL.md is left as it is"),
        "{}",
        done.said()
    );
    assert!(link.is_symlink());
    assert!(
        desk.read("home/dotfiles/claude.json")
            .contains("\"PreToolUse\"")
    );
    let done = desk
        .run(&["uninstall", "claude"])
        .expect(0, "through a link");
    assert!(
        done.stderr().contains("SKILL.md is left as it is"),
        "{}",
        done.said()
    );
    assert!(link.is_symlink());
    assert_eq!(desk.read("home/dotfiles/claude.json"), "{\n  \"a\": 1\n}\n");
    assert_eq!(desk.read(skill), "mine\n");
}

#[test]
fn a_clone_without_a_receipt_is_cleaned_as_well() {
    let desk = Desk::new();
    desk.write(
        "project/.mcp.json",
        "{\"mcpServers\": {\"other\": {\"command\": \"o\"}}}\n",
    );
    desk.write("project/.codex/config.toml", "model = \"x\" # mine\n");
    for host in ["claude", "codex"] {
        desk.run(&["install", host]).expect(0, host);
    }
    fs::remove_dir_all(desk.scene.path("home/.local")).expect("another machine");
    for host in ["claude", "codex"] {
        desk.run(&["uninstall", host]).expect(0, host);
    }
    let files: Vec<_> = desk
        .all()
        .into_keys()
        .filter(|path| path.is_file())
        .collect();
    let project = desk.scene.path("project");
    assert_eq!(
        files,
        [
            project.join(".codex/config.toml"),
            project.join(".mcp.json")
        ]
    );
    assert_eq!(
        desk.read("project/.codex/config.toml"),
        "model = \"x\" # mine\n"
    );
    assert_eq!(
        desk.read("project/.mcp.json"),
        "{\"mcpServers\": {\"other\": {\"command\": \"o\"}}}\n"
    );
}

#[test]
fn an_older_form_of_a_hook_is_renewed_where_it_stands() {
    let desk = Desk::new();
    let old = json!({"hooks": {"PreToolUse": [
        {"matcher": "Bash", "hooks": [{"type": "command", "command": "/old/tenure hook claude"}]},
        {"matcher": "Bash", "hooks": [{"type": "command", "command": "theirs"}]},
    ]}});
    let name = format!("project/{SETTINGS}");
    desk.write(&name, &serde_json::to_string_pretty(&old).expect("JSON"));
    desk.run(&["install", "claude"]).expect(0, "an old form");
    let new: Value = serde_json::from_str(&desk.read(&name)).expect("JSON");
    let groups = new["hooks"]["PreToolUse"].as_array().expect("groups");
    assert_eq!(groups.len(), 2);
    assert_eq!(groups[0]["hooks"][0]["args"], json!(["hook", "claude"]));
    assert_eq!(groups[1]["hooks"][0]["command"], "theirs");
    desk.run(&["uninstall", "claude"]).expect(0, "it goes");
    let rest: Value = serde_json::from_str(&desk.read(&name)).expect("JSON");
    assert_eq!(rest["hooks"]["PreToolUse"], json!([groups[1]]));
}

#[test]
fn what_a_user_has_changed_in_the_entries_stays() {
    let desk = Desk::new();
    let settings = format!("project/{SETTINGS}");
    desk.run(&["install", "claude"]).expect(0, "installed");
    let own = desk
        .read(&settings)
        .replacen("\"timeout\": 10", "\"timeout\": 60", 1)
        .replacen("Bash|Edit|Write", "Bash", 1);
    desk.write(&settings, &own);
    let server = json!({"mcpServers": {"tenure": {
        "command": "tenure", "args": ["mcp", "--dir", "/x"], "env": {"A": "b"},
    }}});
    desk.write("project/.mcp.json", &server.to_string());
    desk.run(&["install", "claude"]).expect(0, "again");
    assert_eq!(desk.read(&settings), own);
    assert_eq!(desk.read("project/.mcp.json"), server.to_string());
    // Only the program is elsewhere.
    let elsewhere = |text: &str| text.replace("\"tenure\",", "\"/old/tenure\",");
    desk.write(&settings, &elsewhere(&own));
    desk.write(
        "project/.mcp.json",
        &server
            .to_string()
            .replace("\"tenure\",", "\"/old/tenure\","),
    );
    desk.run(&["install", "claude"]).expect(0, "elsewhere");
    assert_eq!(desk.read(&settings), own);
    let now: Value = serde_json::from_str(&desk.read("project/.mcp.json")).expect("JSON");
    assert_eq!(now, server);
    desk.run(&["uninstall", "claude"]).expect(0, "it goes");
    assert!(!desk.read(&settings).contains("tenure"));
}

#[test]
fn fifty_installations_at_once_are_one() {
    let desk = Desk::new();
    desk.write(&format!("project/{SETTINGS}"), SHAPES[4]);
    let all: Vec<_> = (0..50)
        .map(|_| Started::piped(&mut desk.command(&["install", "claude", "--output", "json"])))
        .collect();
    let mut changes = 0;
    for one in all {
        let answer = one.finish().expect(0, "each is told that it is installed");
        let document = answer.json();
        let files = document["data"]["files"].as_array().expect("files").clone();
        changes += files
            .iter()
            .filter(|file| file["change"] != "unchanged")
            .count();
    }
    assert_eq!(changes, 3, "each file changed once");
    let alone = Desk::new();
    alone.write(&format!("project/{SETTINGS}"), SHAPES[4]);
    alone.run(&["install", "claude"]).expect(0, "alone");
    for file in [SETTINGS, ".mcp.json", ".claude/skills/tenure/SKILL.md"] {
        let file = format!("project/{file}");
        assert_eq!(desk.read(&file), alone.read(&file));
    }
    desk.run(&["uninstall", "claude"]).expect(0, "and one end");
    assert_eq!(desk.read(&format!("project/{SETTINGS}")), SHAPES[4]);
}

/// A call under strace, which strikes a system call.
fn struck(desk: &Desk, strike: &str, words: &[&str]) -> Answer {
    let mut command = desk.scene.program("strace");
    command.args(["-f", "-o", "/dev/null", "-e", strike]);
    command.args([TENURE, "agent"]);
    desk.settle(command.args(words));
    answer(&mut command)
}

/// The system calls by which an installation changes anything, and how often it makes each.
fn changing_calls(desk: &Desk, words: &[&str]) -> BTreeMap<String, usize> {
    let trace = desk.scene.path("trace");
    let mut command = desk.scene.program("strace");
    let only = "trace=open,openat,write,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,\
                rmdir,chmod,fchmod,fchown,flock,fcntl";
    command
        .args(["-f", "-e", only, "-o"])
        .arg(&trace)
        .args([TENURE, "agent"]);
    desk.settle(command.args(words));
    answer(&mut command).expect(0, "a call under strace");
    let mut calls = BTreeMap::new();
    for line in fs::read_to_string(&trace).expect("a trace").lines() {
        let call = line.split_whitespace().nth(1).unwrap_or_default();
        if let Some((name, _)) = call.split_once('(') {
            *calls.entry(name.to_owned()).or_insert(0) += 1;
        }
    }
    fs::remove_file(trace).expect("no trace");
    calls
}

fn needs_strace(desk: &Desk) {
    let version = desk.scene.shell("strace -V");
    assert_eq!(
        version.code(),
        0,
        "strace is missing; scripts/test installs it"
    );
}

#[test]
fn a_death_at_any_system_call_leaves_whole_files_and_the_next_call_goes_on() {
    let prepare = || {
        let desk = Desk::new();
        desk.write(&format!("project/{SETTINGS}"), SHAPES[6]);
        desk
    };
    let desk = prepare();
    needs_strace(&desk);
    let before = desk.all();
    let calls = changing_calls(&desk, &["install", "claude"]);
    let after = desk.all();
    let calls_out = changing_calls(&desk, &["uninstall", "claude"]);
    let texts = |all: &BTreeMap<PathBuf, String>, desk: &Desk| {
        let root = desk.scene.root().to_owned();
        let short = |path: &PathBuf| path.strip_prefix(&root).expect("below").to_owned();
        all.iter()
            .map(|(path, text)| (short(path), text.clone()))
            .collect::<BTreeMap<_, _>>()
    };
    let (old, new) = (texts(&before, &desk), texts(&after, &desk));
    let mut deaths = 0;
    for (verb, calls) in [("install", calls), ("uninstall", calls_out)] {
        for (call, times) in calls {
            for at in 1..=times {
                let desk = prepare();
                if verb == "uninstall" {
                    desk.run(&["install", "claude"]).expect(0, "before");
                }
                let strike = format!("inject={call}:signal=KILL:when={at}");
                let answer = struck(&desk, &strike, &[verb, "claude"]);
                deaths += usize::from(!answer.status().success());
                for (path, text) in texts(&desk.all(), &desk) {
                    let name = path.display().to_string();
                    if name.ends_with(".tenure-new") || desk.scene.path(&name).is_dir() {
                        continue;
                    }
                    let is_whole = old.get(&path) == Some(&text) || new.get(&path) == Some(&text);
                    assert!(is_whole, "{verb}, {call} {at}: {name}: {text}");
                }
                // Both ways on: to the end of it, and back.
                if at % 2 == 0 {
                    desk.run(&["install", "claude"]).expect(0, &strike);
                    assert_eq!(texts(&desk.all(), &desk), new, "{verb}, {strike}");
                }
                desk.run(&["uninstall", "claude"]).expect(0, &strike);
                assert_eq!(texts(&desk.all(), &desk), old, "{verb}, {strike}");
            }
        }
    }
    assert!(deaths > 40, "{deaths} calls died");
}

#[test]
fn a_file_that_fails_gives_the_files_before_it_their_old_texts_back() {
    let words = ["install", "claude"];
    let probe = Desk::new();
    needs_strace(&probe);
    let calls = changing_calls(&probe, &words).into_iter();
    let renames = calls.filter(|(call, _)| call.starts_with("rename"));
    let strikes = renames.flat_map(|(call, count)| {
        (1..=count).map(move |at| format!("inject={call}:error=EIO:when={at}"))
    });
    let mut failures = 0;
    for strike in strikes {
        let desk = Desk::new();
        desk.write(&format!("project/{SETTINGS}"), SHAPES[4]);
        let before = desk.all();
        let words = [&words[..], &["--output", "json"]].concat();
        let answer = struck(&desk, &strike, &words).expect(1, &strike);
        assert_eq!(word(&answer), "IO_ERROR", "{strike}: {}", answer.said());
        assert_eq!(desk.all(), before, "{strike}");
        failures += 1;
        desk.run(&words).expect(0, "the next one");
        desk.run(&["uninstall", "claude"]).expect(0, "and its end");
        assert_eq!(desk.all(), before, "{strike}");
    }
    assert_eq!(failures, 6, "a receipt and a file, three times");
    // A disk that is full from one write on: nothing is half written, and what cannot be undone is named.
    let desk = Desk::new();
    desk.write(".mcp.json", "{}");
    desk.write(&format!("project/{SETTINGS}"), SHAPES[4]);
    let before = desk.all();
    let words = [&words[..], &["--output", "json"]].concat();
    let strike = "inject=renameat2:error=EIO:when=3+";
    let answer = struck(&desk, strike, &words).expect(3, "a part");
    assert_eq!(word(&answer), "PARTIAL", "{}", answer.said());
    let said = answer.stdout();
    assert!(said.contains("stays installed in"), "{said}");
    assert!(said.contains("agent uninstall claude --"), "{said}");
    for (path, text) in desk.all() {
        if path.is_file() && before.get(&path) != Some(&text) && !text.is_empty() {
            assert!(said.contains(&path.display().to_string()), "{said}");
        }
    }
    desk.run(&["uninstall", "claude"])
        .expect(0, "it takes out the rest");
    assert_eq!(desk.all(), before);
}

#[test]
fn another_programs_text_beside_a_file_is_never_lost() {
    let desk = Desk::new();
    let settings = format!("project/{SETTINGS}");
    let beside = "project/.claude/.settings.json.tenure-new";
    desk.write(&settings, "{\"a\": 1}\n");
    desk.write(beside, "{\"theirs\": 1}\n");
    let said = desk.run(&["install", "claude"]).expect(0, "a text beside");
    let kept = "project/.claude/settings.json.tenure-kept-1";
    assert!(
        said.stderr().contains("settings.json.tenure-kept-1"),
        "{}",
        said.said()
    );
    assert_eq!(desk.read(kept), "{\"theirs\": 1}\n");
    assert!(!desk.scene.path(beside).exists());
    // Ours goes without a word, even if only a part of it was written.
    let ours = desk.read(&settings);
    for text in [&ours, "{\"a\": 1}\n", ""] {
        desk.write(beside, text);
        let said = desk.run(&["install", "claude"]).expect(0, "ours");
        assert!(!said.stderr().contains("kept"), "{}", said.said());
        assert!(!desk.scene.path(beside).exists());
    }
    // A death in the middle of a removal left it as the only one.
    fs::rename(desk.scene.path(kept), desk.scene.path(beside)).expect("beside");
    fs::remove_file(desk.scene.path(&settings)).expect("no settings");
    desk.run(&["uninstall", "claude"]).expect(0, "put back");
    assert_eq!(desk.read(&settings), "{\"theirs\": 1}\n");
}

#[test]
fn a_folder_that_cannot_be_synced_is_a_failure_that_is_undone() {
    let desk = Desk::new();
    needs_strace(&desk);
    desk.write(".mcp.json", "{}");
    desk.write(&format!("project/{SETTINGS}"), SHAPES[4]);
    let before = desk.all();
    let syncs = changing_calls(&desk, &["install", "claude"])["fsync"];
    desk.run(&["uninstall", "claude"]).expect(0, "and its end");
    assert_eq!(desk.all(), before);
    for at in 1..=syncs {
        let desk = Desk::new();
        desk.write(&format!("project/{SETTINGS}"), SHAPES[4]);
        let before = desk.all();
        let strike = format!("inject=fsync:error=EIO:when={at}");
        let answer = struck(&desk, &strike, &["install", "claude"]);
        assert_ne!(answer.code(), 0, "{strike}: {}", answer.said());
        let files = |all: BTreeMap<PathBuf, String>| {
            all.into_iter()
                .filter(|(path, _)| path.is_file())
                .collect::<Vec<_>>()
        };
        assert_eq!(files(desk.all()), files(before), "{strike}");
    }
    let mut command = desk.scene.program("strace");
    command.args([
        "-f",
        "-o",
        "/dev/null",
        "-e",
        "inject=fsync:error=EINVAL",
        "-P",
    ]);
    command.arg(desk.scene.path("project/.claude"));
    command.args([TENURE, "agent", "install", "claude"]);
    desk.settle(&mut command);
    answer(&mut command).expect(0, "a file system that syncs no folders");
}

#[test]
fn a_file_that_cannot_be_read_does_not_keep_tenure_in_the_others() {
    let desk = Desk::new();
    desk.run(&["install", "codex"]).expect(0, "installed");
    let config = "project/.codex/config.toml";
    desk.write(config, "a = \n");
    let said = desk.run(&["uninstall", "codex"]).expect(3, "one is left");
    assert!(
        said.stderr().contains("config.toml is left as it is"),
        "{}",
        said.said()
    );
    assert!(!desk.scene.path("project/.codex/hooks.json").exists());
    assert!(!desk.scene.path("project/.agents").exists());
    assert_eq!(desk.read(config), "a = \n");
    desk.run(&["uninstall", "codex"])
        .expect(2, "nothing else is left");
    desk.write(config, "a = 1\n\n[mcp_servers.tenure]\ncommand = \"tenure\"\nargs = [\"mcp\"]\n\n[mcp_servers.tenure.env]\nA = \"b\"\n");
    desk.run(&["uninstall", "codex"]).expect(0, "it is mended");
    assert_eq!(desk.read(config), "a = 1\n");
}

/// A disk that fails at one file: the others are done, each is told of, and the next call does the rest.
#[test]
fn an_end_that_fails_at_one_file_goes_on_with_the_others_and_says_which() {
    let prepare = || {
        let desk = Desk::new();
        desk.write(&format!("project/{SETTINGS}"), SHAPES[4]);
        let before = desk.all();
        desk.run(&["install", "claude"]).expect(0, "installed");
        (desk, before)
    };
    let (probe, before) = prepare();
    needs_strace(&probe);
    let words = ["uninstall", "claude", "--output", "json"];
    let calls = changing_calls(&probe, &words);
    assert_eq!(probe.all(), before);
    let (mut partial, mut struck_at) = (0, 0);
    for call in ["renameat2", "unlinkat", "unlink", "fsync", "rmdir"] {
        for at in 1..=calls.get(call).copied().unwrap_or_default() {
            let (desk, before) = prepare();
            let strike = format!("inject={call}:error=EIO:when={at}");
            let answer = struck(&desk, &strike, &words);
            struck_at += 1;
            let document = answer.json();
            let files = match &document["data"]["files"] {
                Value::Array(files) => files.clone(),
                _ => document["error"]["context"]["files"]
                    .as_array()
                    .unwrap_or_else(|| panic!("{strike}: {}", answer.said()))
                    .clone(),
            };
            assert_eq!(files.len(), 3, "{strike}: {document}");
            let all = desk.all();
            for file in &files {
                let path = PathBuf::from(file["file"].as_str().expect("a file"));
                let is_out = all.get(&path) == before.get(&path);
                let is_left = file["change"] == "left";
                assert_eq!(is_left, !is_out, "{strike}: {file}");
                if is_left {
                    assert!(file["because"].is_string(), "{strike}: {file}");
                }
            }
            let left = files.iter().filter(|file| file["change"] == "left").count();
            assert!(left <= 1, "{strike}: one file failed: {document}");
            if left > 0 {
                partial += 1;
                answer.expect(3, &strike);
            }
            desk.run(&words).expect(0, "the next call goes on");
            assert_eq!(desk.all(), before, "{strike}");
        }
    }
    assert!(partial >= 3 && struck_at > 6, "{partial} of {struck_at}");

    // Nothing can be written at all: nothing is called a part, and each file is named.
    let (desk, before) = prepare();
    let installed = desk.all();
    let answer = struck(&desk, "inject=renameat2:error=EROFS", &words);
    assert_eq!(word(&answer), "PERMISSION_DENIED", "{}", answer.said());
    for name in ["SKILL.md", ".mcp.json", "settings.json"] {
        assert!(answer.stdout().contains(name), "{}", answer.said());
    }
    assert_eq!(desk.all(), installed);
    let said = struck(
        &desk,
        "inject=renameat2:error=EIO:when=1",
        &["uninstall", "claude"],
    );
    let said = said.expect(3, "a part, for people");
    for word in [
        "is not all out",
        "the next call goes on",
        "left  ",
        "removed  ",
    ] {
        assert!(said.said().contains(word), "{word}: {}", said.said());
    }
    desk.run(&words).expect(0, "the rest");
    assert_eq!(desk.all(), before);
}

#[test]
fn a_program_of_any_name_is_found_by_the_hooks_of_a_user() {
    let desk = Desk::new();
    let folder = desk.scene.path("my programs/it's");
    fs::create_dir_all(&folder).expect("a folder");
    let copy = folder.join("tenure");
    fs::copy(TENURE, &copy).expect("a copy");
    let call = |words: &[&str]| {
        let mut command = Command::new(&copy);
        command
            .arg("agent")
            .args(words)
            .env_clear()
            .env("PATH", "/usr/bin:/bin");
        desk.settle(&mut command);
        answer(&mut command)
    };
    call(&["install", "codex", "--user"]).expect(0, "codex");
    let hooks: Value = serde_json::from_str(&desk.read("home/.codex/hooks.json")).expect("JSON");
    let line = hooks["hooks"]["PreToolUse"][0]["hooks"][0]["command"]
        .as_str()
        .expect("a line");
    // As Codex runs it, but for the last word.
    let asked = desk.scene.shell(&line.replace(" hook codex", " --version"));
    assert!(asked.expect(0, line).stdout().starts_with("tenure "));
    assert_eq!(hooks["hooks"]["SessionEnd"][0]["hooks"][0]["timeout"], 3);
    let same = call(&["install", "codex", "--user"]).expect(0, "again");
    assert!(!same.stdout().contains("changed  "), "{}", same.said());
    call(&["install", "claude", "--user"]).expect(0, "claude");
    let hooks: Value =
        serde_json::from_str(&desk.read("home/.claude/settings.json")).expect("JSON");
    let handler = &hooks["hooks"]["PreToolUse"][0]["hooks"][0];
    assert_eq!(handler["command"], copy.to_str().expect("text"));
    // Where all users have to find it, it is called by its name.
    call(&["install", "claude"]).expect(0, "a project");
    let hooks = desk.read(&format!("project/{SETTINGS}"));
    assert!(hooks.contains("\"command\": \"tenure\""), "{hooks}");
    for flag in ["--user", "--project"] {
        call(&["uninstall", "claude", flag]).expect(0, flag);
    }
    call(&["uninstall", "codex", "--user"]).expect(0, "codex");
    assert!(
        desk.all().into_keys().all(|path| path.is_dir()),
        "nothing is left"
    );
}

#[test]
fn the_users_server_of_claude_is_claudes_own_to_change() {
    let desk = Desk::new();
    let own = desk.write("home/.claude.json", "{\"numStartups\": 3}");
    let without = desk
        .run(&["install", "claude", "--user"])
        .expect(0, "no claude");
    assert!(
        without.stdout().contains(&format!(
            "claude mcp add --scope user tenure -- {TENURE} mcp"
        )),
        "{}",
        without.said()
    );
    let log = desk.scene.path("log");
    fs::create_dir(desk.scene.path("bin")).expect("a folder");
    desk.scene.script(
        "bin/claude",
        &format!("#!/bin/sh\necho \"$*\" >> '{}'\n", log.display()),
    );
    let call = |words: &[&str]| {
        let mut command = desk.command(words);
        let path = command
            .get_envs()
            .find(|(name, _)| *name == "PATH")
            .and_then(|(_, value)| value);
        let path = path.expect("a path").to_owned();
        let bin = desk.scene.path("bin");
        let mut all = bin.into_os_string();
        all.push(":");
        all.push(path);
        answer(command.env("PATH", all))
    };
    call(&["install", "claude", "--user", "--dry-run"]).expect(0, "it says what it would run");
    assert!(!log.exists());
    call(&["install", "claude", "--user"]).expect(0, "claude is there");
    assert_eq!(
        fs::read_to_string(&log).expect("a line"),
        format!("mcp add --scope user tenure -- {TENURE} mcp\n")
    );
    fs::write(
        &own,
        "{\"mcpServers\": {\"tenure\": {\"command\": \"tenure\", \"args\": [\"mcp\"]}}}",
    )
    .expect("registered");
    call(&["install", "claude", "--user"]).expect(0, "it is registered");
    call(&["uninstall", "claude", "--user"]).expect(0, "it goes");
    let lines = fs::read_to_string(&log).expect("lines");
    assert_eq!(lines.lines().nth(1), Some("mcp remove --scope user tenure"));
    assert_eq!(lines.lines().count(), 2, "{lines}");
    // Another program's server of this name, and ours by a path that is gone.
    let foreign = "{\"mcpServers\": {\"tenure\": {\"command\": \"node\", \"args\": [\"mcp\"]}}}";
    fs::write(&own, foreign).expect("a foreign server");
    let before = desk.all();
    let refused = call(&["install", "claude", "--user"]).expect(2, "a foreign server");
    assert!(
        refused.stderr().contains("is another program"),
        "{}",
        refused.said()
    );
    assert_eq!(desk.all(), before);
    let left = call(&["uninstall", "claude", "--user"]).expect(0, "a foreign server");
    assert!(left.stdout().contains("stays"), "{}", left.said());
    assert_eq!(fs::read_to_string(&log).expect("lines"), lines);
    let gone =
        "{\"mcpServers\": {\"tenure\": {\"command\": \"/gone/tenure\", \"args\": [\"mcp\"]}}}";
    fs::write(&own, gone).expect("a stale path");
    call(&["install", "claude", "--user"]).expect(0, "a stale path");
    let renewed = fs::read_to_string(&log).expect("lines");
    assert_eq!(
        renewed.lines().skip(2).collect::<Vec<_>>(),
        [
            "mcp remove --scope user tenure",
            &format!("mcp add --scope user tenure -- {TENURE} mcp")
        ]
    );
    // Another call was faster: what `claude` says then is no failure.
    let registered =
        "{\"mcpServers\": {\"tenure\": {\"command\": \"tenure\", \"args\": [\"mcp\"]}}}";
    desk.scene.script(
        "bin/claude",
        &format!(
            "#!/bin/sh\necho '{registered}' > '{}'\nexit 1\n",
            own.display()
        ),
    );
    fs::write(&own, "{}").expect("not registered");
    call(&["install", "claude", "--user"]).expect(0, "it is registered by now");
    desk.scene.script("bin/claude", "#!/bin/sh\nexit 5\n");
    fs::write(&own, "{}").expect("not registered");
    let failed = call(&["install", "claude", "--user"]).expect(3, "claude fails");
    assert!(
        failed.said().contains("run it by hand"),
        "{}",
        failed.said()
    );
}

#[test]
fn root_leaves_another_users_project_alone() {
    if !is_root() {
        return;
    }
    let desk = Desk::new();
    let copy = desk.scene.path("tenure");
    fs::copy(TENURE, &copy).expect("a copy");
    fs::set_permissions(desk.scene.root(), fs::Permissions::from_mode(0o755)).expect("rights");
    desk.write(&format!("project/{SETTINGS}"), SHAPES[4]);
    for path in desk
        .all()
        .into_keys()
        .chain([desk.scene.path("project"), desk.scene.path("home")])
    {
        chown(&path, Some(ADA), Some(ADA)).expect("hers");
    }
    // What she plants would lead root anywhere.
    let victim = desk.write("victim", "{}");
    let planted = desk.scene.path("project/.mcp.json");
    symlink(&victim, &planted).expect("a link");
    std::os::unix::fs::lchown(&planted, Some(ADA), Some(ADA)).expect("hers");
    let before = desk.all();
    for verb in ["install", "uninstall"] {
        let mut command = desk.command(&[verb, "claude"]);
        fs::create_dir_all(desk.scene.path("root")).expect("a home folder");
        let refused = answer(command.env("HOME", desk.scene.path("root"))).expect(7, verb);
        assert_eq!(refused.stderr().lines().count(), 1, "{}", refused.said());
        assert!(refused.stderr().contains("64001"), "{}", refused.said());
        assert_eq!(desk.all(), before);
        assert_eq!(desk.read("victim"), "{}");
    }
    fs::remove_file(planted).expect("no link");
    let mut hers = desk.scene.program("setpriv");
    hers.args(["--reuid", "64001", "--regid", "64001", "--clear-groups"]);
    desk.settle(hers.arg(&copy).args(["agent", "install", "claude"]));
    answer(&mut hers).expect(0, "she herself");
    let facts = fs::metadata(desk.scene.path(&format!("project/{SETTINGS}"))).expect("a file");
    assert_eq!((facts.uid(), facts.gid()), (ADA, ADA));
}

#[test]
fn a_link_or_a_folder_of_another_user_on_the_way_leads_nowhere() {
    if !is_root() {
        return;
    }
    let desk = Desk::new();
    let elsewhere = desk.scene.path("elsewhere");
    fs::create_dir(&elsewhere).expect("a folder");
    let planted = desk.scene.path("project/.codex");
    symlink(&elsewhere, &planted).expect("a link");
    std::os::unix::fs::lchown(&planted, Some(ADA), Some(ADA)).expect("hers");
    for verb in ["install", "uninstall"] {
        let refused = desk.run(&[verb, "codex"]).expect(7, verb);
        assert!(refused.stderr().contains("64001"), "{}", refused.said());
        assert_eq!(fs::read_dir(&elsewhere).expect("a folder").count(), 0);
        assert!(!desk.scene.path("project/.agents").exists());
    }
    // The caller's own link is followed.
    std::os::unix::fs::lchown(&planted, Some(0), Some(0)).expect("root's");
    desk.run(&["install", "codex"]).expect(0, "an own link");
    assert!(elsewhere.join("hooks.json").is_file());
    desk.run(&["uninstall", "codex"]).expect(0, "an own link");
    assert_eq!(fs::read_dir(&elsewhere).expect("a folder").count(), 0);
    // A folder of hers above a folder of the caller's.
    let folder = desk.scene.path("project/.claude");
    fs::create_dir_all(folder.join("skills")).expect("folders");
    chown(&folder, Some(ADA), Some(ADA)).expect("hers");
    desk.run(&["install", "claude"])
        .expect(7, "a folder of hers");
    assert!(!desk.scene.path("project/.mcp.json").exists());
}

/// A plugin is what an installation is for all who work in a project, in the layout of its host.
#[test]
fn the_plugins_have_what_an_installation_has() {
    let desk = Desk::new();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let of = |file: &Path| fs::read_to_string(file).expect("a file of the repository");
    let json_of = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    for (host, market, settings, server) in [
        ("claude", ".claude-plugin", SETTINGS, ".mcp.json"),
        (
            "codex",
            ".agents/plugins",
            ".codex/hooks.json",
            ".codex/config.toml",
        ),
    ] {
        desk.run(&["install", host]).expect(0, "the model");
        let market = json_of(&of(&repository.join(market).join("marketplace.json")));
        let plugin = &market["plugins"][0];
        assert_eq!(
            (&market["name"], &plugin["name"]),
            (&json!("tenure"), &json!("tenure"))
        );
        let source = plugin["source"]["path"]
            .as_str()
            .or(plugin["source"].as_str());
        let folder = repository.join(source.expect("a folder"));
        let installed = |file: &str| desk.read(&format!("project/{file}"));
        assert_eq!(
            of(&folder.join("hooks/hooks.json")),
            installed(settings),
            "{host}"
        );
        let skill = of(&folder.join("skills/tenure/SKILL.md"));
        let skills = if host == "claude" {
            ".claude"
        } else {
            ".agents"
        };
        assert_eq!(
            skill,
            installed(&format!("{skills}/skills/tenure/SKILL.md"))
        );
        assert!(
            skill.starts_with("---\nname: tenure\ndescription: "),
            "as its folder is called"
        );
        let bundled = json_of(&of(&folder.join(".mcp.json")))["mcpServers"]["tenure"].clone();
        let of_install = if host == "claude" {
            json_of(&installed(server))["mcpServers"]["tenure"].clone()
        } else {
            let config: toml::Table = installed(server).parse().expect("TOML");
            serde_json::to_value(&config["mcp_servers"]["tenure"]).expect("JSON")
        };
        assert_eq!(bundled, of_install, "{host}");
        let manifest = folder.join(format!(".{host}-plugin/plugin.json"));
        let manifest = json_of(&of(&manifest));
        assert_eq!(manifest["name"], "tenure");
        assert_eq!(manifest["version"], env!("CARGO_PKG_VERSION"));
        for part in ["skills", "hooks", "mcpServers"] {
            if let Some(part) = manifest[part].as_str() {
                assert!(folder.join(part).exists(), "{host}: {part}");
            }
        }
    }
}

/// The checks of a kind that are not well, with their fixes.
fn wrong(answer: &Answer, about: &str) -> Vec<String> {
    let document = answer.json();
    let report = match &document["data"] {
        Value::Null => &document["error"]["context"],
        data => data,
    };
    let checks = report["checks"].as_array().expect("checks").iter();
    let checks = checks.filter(|check| check["about"] == about && check["status"] != "ok");
    let line = |check: &Value| {
        let fix = check["fix"].as_str().expect("each has a fix");
        format!("{}: {} ({fix})", check["status"], check["message"])
    };
    checks.map(line).collect()
}

#[test]
fn status_names_what_keeps_claudes_hooks_from_working() {
    let desk = Desk::new();
    let status = |code: i32| {
        desk.run(&["status", "claude", "--output", "json"])
            .expect(code, "status")
    };
    assert_eq!(wrong(&status(1), "hooks").len(), 1, "nothing is installed");
    desk.run(&["install", "claude"]).expect(0, "installed");
    desk.scene.write(
        "project/tenure.toml",
        "[[agent.command]]\nmatch = [\"cargo test\"]\nlock = \"build\"\nslots = 2\n",
    );
    let well = status(0);
    // As the hook writes it, with and without more words.
    let form = format!(
        "Bash({TENURE} run build --slots 2 --as * --wait * --die-with auto --ticket auto --on-error open -- cargo test"
    );
    for end in [")", " *)"] {
        assert!(
            well.stdout().contains(&format!("{form}{end}")),
            "{}",
            well.stdout()
        );
    }
    assert!(!well.stdout().contains("tenure run *)"));
    // Install the hooks a second time: for the user, and by the plugin.
    desk.run(&["install", "claude", "--user"])
        .expect(0, "installed");
    assert_eq!(wrong(&status(1), "double").len(), 1);
    desk.run(&["uninstall", "claude", "--user"])
        .expect(0, "uninstalled");
    let local = "project/.claude/settings.local.json";
    desk.write(local, "{\"enabledPlugins\": {\"tenure@tenure\": true}}");
    let double = wrong(&status(1), "double");
    assert!(double[0].contains("plugin"), "{double:?}");
    // A rule that a rewrite hides: a denial is gone, a permission is asked for.
    desk.write(
        local,
        "{\"permissions\": {\"deny\": [\"Bash(cargo test --release *)\"], \"allow\": [\"Bash(cargo:*)\"]}}",
    );
    let rules = wrong(&status(0), "rules");
    assert_eq!(rules.len(), 2, "{rules:?}");
    assert!(
        rules[0].contains("gets no prefix") && rules[0].contains("permissions.deny"),
        "{rules:?}"
    );
    assert!(
        rules[1].contains("asks") && rules[1].contains("permissions.allow"),
        "{rules:?}"
    );
    // The rules that it prints.
    let stopping = ["", " *"].map(|more| format!("Bash({TENURE} run build * -- cargo test{more})"));
    assert!(rules[0].contains(&stopping[0]), "{rules:?}");
    let denied = json!({"permissions": {"deny": ["Bash(cargo test *)", stopping[0], stopping[1]]}});
    desk.write(local, &denied.to_string());
    assert_eq!(wrong(&status(0), "rules"), [""; 0]);
    desk.write(local, "{\"permissions\": {\"ask\": [\"Bash(cargo:*)\"]}}");
    assert!(wrong(&status(0), "rules")[0].contains("ask before it runs"));
    // Hooks that are switched off, a sandbox around the folder of the locks, settings that are no JSON.
    desk.write(local, "{\"disableAllHooks\": true}");
    assert_eq!(wrong(&status(1), "hooks").len(), 1);
    desk.write(local, "{\"sandbox\": {\"enabled\": true}}");
    let sandbox = wrong(&status(1), "sandbox");
    assert!(sandbox[0].contains("allowWrite"), "{sandbox:?}");
    let folder = desk.scene.path("home/.local/state/tenure");
    let allowed = json!({"sandbox": {"enabled": true, "filesystem": {"allowWrite": [folder]}}});
    desk.write(local, &allowed.to_string());
    status(0);
    desk.write(local, "{\"sandbox\": {\"enabled\": true, \"filesystem\": {\"allowWrite\": [\"~/.local/state\"]}}}");
    status(0);
    desk.write(local, "{,}");
    assert_eq!(wrong(&status(1), "hooks").len(), 1);
    desk.write(local, "{}");
    // A host whose PATH has no tenure goes on without the hooks.
    let mut blind = desk.command(&["status", "claude", "--output", "json"]);
    let blind = answer(blind.env("PATH", "/nonexistent")).expect(1, "no PATH");
    assert_eq!(wrong(&blind, "program").len(), 1);
}

/// What can be found out is not asked: which host there is, and for whom, where no repository is.
#[test]
fn an_installation_asks_for_nothing_that_can_be_found_out() {
    let desk = Desk::new();
    let run = |words: &[&str], folder: &str| {
        let mut command = desk.command(words);
        let folder = desk.scene.path(folder);
        command
            .env("PATH", desk.scene.path("bin"))
            .current_dir(folder);
        answer(&mut command)
    };
    fs::create_dir(desk.scene.path("outside")).expect("a folder");
    let said = run(&["install"], "project").expect(2, "no host").stderr();
    let expected = "tenure: no host of agents is found here; name one: `tenure agent install claude`, or codex";
    assert_eq!(said.trim_end(), expected);
    fs::create_dir(desk.scene.path("bin")).expect("a folder");
    desk.scene.script("bin/codex", "#!/bin/sh\n");
    let said = run(&["install"], "outside").expect(0, "the one that is here");
    assert!(
        said.stdout().contains("installed for Codex for this user"),
        "{}",
        said.stdout()
    );
    assert!(desk.scene.path("home/.codex/hooks.json").is_file());
    run(&["uninstall"], "outside").expect(0, "for the same");
    assert!(!desk.scene.path("home/.codex/hooks.json").exists());
    desk.scene.script("bin/claude", "#!/bin/sh\n");
    for action in ["install", "status"] {
        let said = run(&[action], "project").expect(2, "two hosts").stderr();
        assert!(said.contains("claude and codex are both here"), "{said}");
    }
}

/// Three questions that a person has, in the first three lines.
#[test]
fn status_begins_with_whether_it_is_on_for_what_and_what_is_wrong() {
    let desk = Desk::new();
    let first = |words: &[&str], code: i32| -> Vec<String> {
        let said = desk.run(&[&["status", "claude"], words].concat());
        let said = said.expect(code, "status").stdout();
        said.lines().map(str::to_owned).collect()
    };
    let begin = |lines: &[String], expected: [&str; 3]| {
        for (line, expected) in lines.iter().zip(expected) {
            assert!(line.starts_with(expected), "{line:?}, and not {expected:?}");
        }
    };
    let nothing = "for    nothing: no tenure.toml has a rule";
    let off = first(&[], 1);
    begin(
        &off,
        [
            "off    none are installed",
            nothing,
            "faults one, with what mends it",
        ],
    );
    let said = desk
        .run(&["install", "claude"])
        .expect(0, "installed")
        .stdout();
    let from = said.find("next: ").expect("what to do next");
    let rest: Vec<&str> = said[from..].lines().collect();
    assert!(rest.len() <= 6, "five lines, and how to undo it: {rest:#?}");
    assert!(
        rest.iter().any(|line| line.contains("[[agent.command]]")),
        "{rest:#?}"
    );
    assert_eq!(
        rest.last(),
        Some(&"undo: tenure agent uninstall claude --project")
    );
    desk.scene.write(
        "project/tenure.toml",
        "[[agent.command]]\nmatch = [\"make\", \"cargo test\"]\nlock = \"build\"\n\
         [[agent.path]]\nmatch = [\"migrations/**\"]\n",
    );
    let rules = "for    commands make, cargo test (lock build); files migrations/**";
    let on = first(&[], 0);
    begin(
        &on,
        [
            "on     Claude Code calls tenure's hooks: ",
            rules,
            "faults none",
        ],
    );
    assert_eq!(on.len(), 3, "what is well is left out: {on:#?}");
    assert!(first(&["-v"], 0).len() > 6, "and told to who asks for it");
    assert_eq!(first(&["-q"], 0), [""; 0]);
    let settings = desk.scene.path(&format!("project/{SETTINGS}"));
    let switched = fs::read_to_string(&settings).expect("text");
    let switched = switched.replacen('{', "{\"disableAllHooks\": true,", 1);
    fs::write(&settings, switched).expect("a file");
    let off = first(&[], 1);
    assert!(
        off[0].starts_with("off") && off[0].contains("disableAllHooks"),
        "{off:#?}"
    );
}

#[test]
fn status_names_what_codex_asks_of_its_user() {
    let desk = Desk::new();
    let status = |code: i32| {
        desk.run(&["status", "codex", "--output", "json"])
            .expect(code, "status")
    };
    desk.run(&["install", "codex"]).expect(0, "installed");
    let project = desk.scene.path("project");
    let trusted = |more: &str| {
        format!(
            "{more}\n[projects.{:?}]\ntrust_level = \"trusted\"\n",
            project.to_str().expect("text")
        )
    };
    let config = "home/.codex/config.toml";
    let trust = wrong(&status(1), "trust");
    assert!(trust[0].contains("this project"), "{trust:?}");
    desk.write(config, &trusted("sandbox_mode = \"danger-full-access\""));
    let trust = wrong(&status(1), "trust");
    assert!(trust[0].contains("7 of 7 hooks"), "{trust:?}");
    let marks: String = [
        "pre_tool_use",
        "post_tool_use",
        "stop",
        "interrupt",
        "subagent_stop",
        "session_start",
        "session_end",
    ]
    .map(|event| {
        let hooks = project.join(".codex/hooks.json");
        format!(
            "[hooks.state.\"{}:{event}:0:0\"]\ntrusted_hash = \"sha256:0\"\n",
            hooks.display()
        )
    })
    .concat();
    desk.write(
        config,
        &(trusted("sandbox_mode = \"danger-full-access\"") + &marks),
    );
    status(0);
    // In a linked work tree Codex takes hooks and trust from the main checkout.
    let (git, second) = (
        project.join(".git/worktrees/second"),
        desk.scene.path("second"),
    );
    desk.write("project/.git/worktrees/second/commondir", "../..\n");
    desk.write("second/.git", &format!("gitdir: {}\n", git.display()));
    let mut linked = desk.command(&["status", "codex", "--output", "json"]);
    answer(linked.current_dir(&second)).expect(0, "the hooks of the main checkout");
    let mut linked = desk.command(&["install", "codex"]);
    let said = answer(linked.current_dir(&second)).expect(0, "for the branch");
    let elsewhere = format!("install in {}, too", project.display());
    assert!(said.stdout().contains(&elsewhere), "{}", said.stdout());
    let off = marks.replacen("trusted_hash", "enabled = false\ntrusted_hash", 1);
    desk.write(
        config,
        &(trusted("sandbox_mode = \"danger-full-access\"") + &off),
    );
    assert!(wrong(&status(1), "trust")[0].contains("1 of 7"));
    desk.write(config, &(trusted("[features]\nhooks = false") + &marks));
    assert_eq!(wrong(&status(1), "hooks").len(), 1);
    // Below /tmp every sandbox of Codex lets a command write, so the locks are elsewhere.
    let outside = |code: i32| {
        let mut command = desk.command(&["status", "codex", "--output", "json"]);
        answer(command.args(["--dir", "/var/lib/tenure-of-a-test"])).expect(code, "status")
    };
    desk.write(config, &(trusted("") + &marks));
    let sandbox = wrong(&outside(1), "sandbox");
    assert!(
        sandbox[0].contains("writable_roots = [\"/var/lib/tenure-of-a-test\"]"),
        "{sandbox:?}"
    );
    // Servers are behind the network, which the sandbox keeps from commands.
    desk.scene.write(
        "project/tenure.toml",
        "store = \"etcd://127.0.0.1:1/x\"\n[[agent.command]]\nmatch = [\"make\"]\nlock = \"b\"\n",
    );
    if cfg!(feature = "etcd") {
        desk.write(
            config,
            &(trusted("sandbox_mode = \"workspace-write\"") + &marks),
        );
        let sandbox = wrong(&status(1), "sandbox");
        assert!(sandbox[0].contains("network_access = true"), "{sandbox:?}");
    }
    // What the person's own rules make of a rewrite.
    desk.scene.write(
        "project/tenure.toml",
        "[[agent.command]]\nmatch = [\"make\"]\nlock = \"b\"\n",
    );
    desk.write(
        config,
        &(trusted("sandbox_mode = \"danger-full-access\"") + &marks),
    );
    desk.write(
        "home/.codex/rules/default.rules",
        "prefix_rule(pattern=[\"make\"], decision=\"prompt\")\n",
    );
    let rules = wrong(&status(0), "rules");
    let printed = format!("prefix_rule(pattern=[\"{TENURE}\", \"run\", \"b\"]");
    assert!(rules[0].contains(&printed), "{rules:?}");
    desk.write(config, "a = \n");
    assert_eq!(wrong(&status(1), "config").len(), 1);
}

/// Codex gives a server only the variables that its table names: then server and commands lock in different folders.
#[cfg(feature = "mcp")]
#[test]
fn status_asks_the_server_of_codex_where_its_locks_are() {
    let desk = Desk::new();
    desk.run(&["install", "codex", "--user"])
        .expect(0, "installed");
    let config = desk.read("home/.codex/config.toml");
    let lines = config.split_inclusive('\n');
    let without: String = lines.filter(|line| !line.starts_with("env_vars")).collect();
    assert_ne!(without, config, "the names of variables are installed");
    let found = |variable: &str| {
        let mut command = desk.command(&["status", "codex", "--output", "json"]);
        let place = desk.scene.path("elsewhere");
        wrong(&answer(command.env(variable, place)), "server")
    };
    for variable in ["TENURE_DIR", "XDG_STATE_HOME"] {
        desk.write("home/.codex/config.toml", &config);
        assert_eq!(found(variable), [""; 0], "{variable}");
        desk.write("home/.codex/config.toml", &without);
        let found = found(variable);
        let is_told =
            |line: &String| line.contains("elsewhere") && line.contains("install codex --user");
        assert!(found.iter().any(is_told), "{variable}: {found:?}");
    }
    // The next installation puts the names in.
    desk.run(&["install", "codex", "--user"]).expect(0, "again");
    assert!(
        desk.read("home/.codex/config.toml")
            .contains("\"TENURE_DIR\"")
    );
}

/// Codex' window runs its sessions in a process in the background, with the variables of the window that came first.
#[cfg(target_os = "linux")]
#[test]
fn status_looks_at_the_process_behind_the_windows_of_codex() {
    let desk = Desk::new();
    desk.run(&["install", "codex"]).expect(0, "installed");
    let found = || {
        let mut command = desk.command(&["status", "codex", "--output", "json"]);
        wrong(&answer(&mut command), "window")
    };
    assert_eq!(found(), [""; 0], "none runs");
    let program = desk.scene.path("codex");
    symlink("/bin/sleep", &program).expect("a link");
    let own = Path::new(TENURE).parent().expect("a folder");
    for (path, place, expected) in [
        (own, None, None),
        (Path::new("/nowhere"), None, Some("its PATH has no tenure")),
        (own, Some("/elsewhere"), Some("TENURE_DIR differ there")),
    ] {
        let mut daemon = Command::new(&program);
        daemon.arg("600").env_clear().env("PATH", path);
        daemon.envs(place.map(|place| ("TENURE_DIR", place)));
        let mut daemon = Started::new(&mut daemon);
        let record = json!({"pid": daemon.pid(), "processStartTime": "x"});
        desk.write(
            "home/.codex/app-server-daemon/app-server.pid",
            &record.to_string(),
        );
        let found = found();
        daemon.signal(rustix::process::Signal::KILL);
        daemon.end();
        match expected {
            None => assert_eq!(found, [""; 0], "{path:?}"),
            Some(expected) => assert!(found[0].contains(expected), "{found:?}"),
        }
    }
}

#[test]
fn status_knows_the_plugins_of_both_hosts_and_versions_that_are_too_old() {
    let desk = Desk::new();
    fs::create_dir(desk.scene.path("bin")).expect("a folder");
    let status = |host: &str| {
        let mut command = desk.command(&["status", host, "--output", "json"]);
        let own = Path::new(TENURE).parent().expect("a folder").display();
        let path = format!("{}:{own}:/usr/bin:/bin", desk.scene.path("bin").display());
        answer(command.env("PATH", path))
    };
    desk.write(
        "project/.claude/settings.json",
        "{\"enabledPlugins\": {\"tenure@tenure\": true}}",
    );
    desk.write(
        "home/.codex/config.toml",
        "[plugins.\"tenure@tenure\"]\nenabled = true\n",
    );
    for (host, old, new) in [
        ("claude", "2.1.138 (Claude Code)", "2.1.332 (Claude Code)"),
        ("codex", "codex-cli 0.99.0", "codex-cli 0.171.0"),
    ] {
        let say = |version: &str| {
            let text = format!("#!/bin/sh\necho '{version}'\n");
            desk.scene.script(&format!("bin/{host}"), &text);
            status(host)
        };
        let found = wrong(&say(old), "version");
        assert!(found[0].contains("is older than"), "{host}: {found:?}");
        let well = say(new);
        assert_eq!(wrong(&well, "version"), [""; 0], "{host}");
        assert!(
            well.stdout().contains("switches the plugin on"),
            "{}",
            well.said()
        );
        assert_eq!(
            wrong(&well, "hooks"),
            [""; 0],
            "{host}: the plugin has them"
        );
        desk.run(&["install", host, "--user"])
            .expect(0, "installed beside it");
        let double = wrong(&status(host), "double");
        assert!(double[0].contains(&format!("{host} plugin")), "{double:?}");
    }
}

#[test]
fn what_was_in_the_settings_is_for_their_owner_alone() {
    let desk = Desk::new();
    desk.write(
        &format!("project/{SETTINGS}"),
        "{\"env\": {\"KEY\": \"secret\"}}",
    );
    // Another program has made the folder, for all to look in.
    let state = desk.scene.path("home/.local/state/tenure/agents");
    fs::create_dir_all(&state).expect("a folder");
    fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).expect("rights");
    desk.run(&["install", "claude"]).expect(0, "installed");
    let mut with_secret = 0;
    for entry in fs::read_dir(&state).expect("a folder") {
        let entry = entry.expect("an entry");
        let mode = entry.metadata().expect("facts").mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", entry.path().display());
        with_secret += usize::from(
            fs::read_to_string(entry.path())
                .expect("text")
                .contains("secret"),
        );
    }
    assert_eq!(with_secret, 1);
}

#[test]
fn a_probe_tells_the_hook_from_the_rewrite() {
    let desk = Desk::new();
    let probe = |id: &str, code: i32| {
        let mut command = desk.command(&["probe", "claude", "--output", "json"]);
        if !id.is_empty() {
            command.env("TENURE_AGENT_PROBE", id);
        }
        answer(&mut command).expect(code, "a probe").json()
    };
    let nothing = probe("", 1);
    assert_eq!(nothing["error"]["context"]["hook"], false);
    // The hook was called, and the host ran the old command.
    let note = "home/.local/state/tenure/agents/probe-claude";
    desk.write(note, "id-1");
    let dropped = probe("", 1);
    assert_eq!(dropped["error"]["context"]["hook"], true);
    assert_eq!(dropped["error"]["context"]["rewrite"], false);
    assert!(
        !desk.scene.path(note).exists(),
        "a note is for one question"
    );
    desk.write(note, "id-2");
    assert_eq!(probe("id-2", 0)["data"]["rewrite"], true);
}
