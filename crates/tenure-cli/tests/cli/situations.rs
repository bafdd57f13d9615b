//! The commands of the first page and of the guides, each as it stands, under the configuration that the page shows
//! before it. Lines of a crontab run as cron runs them: by `sh`, with hardly any variable. The guides for agents have
//! a file of their own.

use crate::support::{Answer, Scene, answer};
use std::fs;
use std::path::Path;

/// The pages, and how many commands each of them has: numbers to change with a page.
const PAGES: [(&str, usize); 19] = [
    ("README.md", 7),
    ("configuration.md", 0),
    ("guides/builds.md", 8),
    ("guides/containers.md", 1),
    ("guides/cron.md", 5),
    ("guides/deploys.md", 4),
    ("guides/devices.md", 9),
    ("guides/from-canhazgpu.md", 7),
    ("guides/from-consul-and-etcdctl.md", 5),
    ("guides/from-github-concurrency.md", 3),
    ("guides/from-pid-files.md", 6),
    ("guides/from-sem.md", 5),
    ("guides/from-terraform.md", 3),
    ("guides/hosted-ci.md", 0),
    ("guides/last-night.md", 10),
    ("guides/ports.md", 2),
    ("guides/services.md", 3),
    ("guides/stuck.md", 3),
    ("guides/users.md", 1),
];

/// Stands in the pages for the folder of the programs.
const FOLDER: &str = "/srv/app";

/// What the programs of the pages do here.
const PROGRAMS: [(&str, &str); 21] = [
    ("upgrade", "exit 0"),
    ("backup", "exit 0"),
    ("backup.sh", "[ \"$TENURE_NAME\" = backup ]"),
    ("restore.sh", "[ \"$TENURE_NAME\" = backup ]"),
    ("sync", "exit 0"),
    ("report", "exit 0"),
    ("undo", "exit 1"),
    ("worker", "[ \"$TENURE_SLOT\" = 0 ]"),
    ("encode", "[ \"$TENURE_SLOT\" = 0 ] && [ \"$1\" = a.wav ]"),
    ("terraform", "[ \"$TENURE_NAME\" = tf-prod ]"),
    ("train", "[ -n \"$CUDA_VISIBLE_DEVICES$TENURE_SLOT\" ]"),
    ("test-ui", "[ \"$ANDROID_SERIAL\" = emulator-5550 ]"),
    ("edit", "[ \"$1\" = README ]"),
    (
        "serve",
        "case $TENURE_HELD in *database*) [ \"$PORT $DATABASE_URL\" = '8080 postgres://localhost/test_0' ] ;; esac",
    ),
    (
        "merge",
        "[ \"$TENURE_NAME\" = merge ] && [ \"$BUILD_DIR\" = build/0 ]",
    ),
    (
        "agent",
        "case $TENURE_GROUP in pr-7) [ \"$TENURE_SLOT\" = 0 ] ;; *) [ \"$TENURE_GROUP\" = issue-42 ] ;; esac",
    ),
    (
        "make",
        "case $* in *BUILD_DIR*) [ \"$* $MAKEFLAGS\" = '-s BUILD_DIR=build/0 -j2' ] ;; *) exec /usr/bin/make \"$@\" ;; esac",
    ),
    (
        "git",
        "case \"$1 $2\" in 'bisect run') shift 2 && exec \"$@\" ;; *) exec /usr/bin/git \"$@\" ;; esac",
    ),
    ("test.sh", "[ \"$TENURE_NAME\" = lab ]"),
    ("releases/7/nightly", "[ \"$TENURE_NAME\" = nightly ]"),
    // A container as far as tenure sees one: other process numbers, hardly any variable.
    ("docker", DOCKER),
];

const DOCKER: &str = "
    [ \"$1 $2 $3 $5\" = 'run --rm -v -w' ] || exit 9
    cd \"$6\" && shift 7
    own='unshare --pid --fork --mount-proc'
    if $own true 2>/dev/null; then set -- $own \"$@\"; fi
    exec env -i PATH=\"$PATH\" \"$@\"";

/// What a page is tried in.
struct Tried {
    scene: Scene,
    ran: usize,
}

impl Tried {
    fn new() -> Self {
        let scene = Scene::new();
        fs::create_dir_all(scene.path("app/releases/7")).expect("a folder");
        fs::create_dir(scene.path("app/sub")).expect("a folder");
        std::os::unix::fs::symlink("releases/7", scene.path("app/current")).expect("a link");
        for (program, does) in PROGRAMS {
            scene.script(&format!("app/{program}"), &format!("#!/bin/sh\n{does}\n"));
        }
        scene.script("app/deploy", "#!/bin/sh\n[ -n \"$TENURE_NAME\" ]\n");
        scene.write(
            "app/sub/Makefile",
            "all:\n\t@[ \"$$TENURE_NAME\" = build ]\n",
        );
        scene.write("app/Makefile", "all:\n");
        Tried { scene, ran: 0 }
    }

    /// Runs a line by `sh` in the folder of the programs.
    fn by_shell(&self, line: &str) -> Answer {
        let folder = self.scene.path("app");
        let line = line.replace(FOLDER, &folder.display().to_string());
        let path = std::env::var("PATH").unwrap_or_default();
        let tenure = Path::new(env!("CARGO_BIN_EXE_tenure"))
            .parent()
            .expect("a folder");
        let mut sh = self.scene.program("sh");
        sh.env_clear()
            .env("HOME", self.scene.root())
            .env(
                "PATH",
                format!("{}:{}:{path}", folder.display(), tenure.display()),
            )
            .args(["-c", &line])
            .current_dir(&folder);
        answer(&mut sh)
    }

    /// Runs a command of a page, which succeeds and warns of nothing.
    #[track_caller]
    fn run(&mut self, line: &str) {
        // To cancel something takes a holder.
        let whole = line.strip_prefix("tenure cancel ").map_or_else(
            || line.to_owned(),
            |rest| {
                let name = rest.split(' ').next().unwrap_or_default();
                format!(
                    "tenure run {name} -- sleep 60 2>/dev/null & \
                     until tenure check --held {name} >/dev/null; do sleep 0.02; done; {line} && wait"
                )
            },
        );
        let answer = self.by_shell(&whole);
        // A machine whose administrator has made no folder is told how, and the page has the same line.
        if line.contains("--scope machine") && answer.code() == 7 {
            let said = answer.stderr();
            assert!(said.contains("install -d -m 3770 -g GROUP"), "{said}");
            self.ran += 1;
            return;
        }
        let answer = answer.expect(0, line);
        assert_eq!(answer.stderr(), "", "{line}");
        if line.contains("echo \"GPU") {
            assert_eq!(answer.stdout(), "GPU 0 by slot 0\n");
        }
        self.ran += 1;
    }

    /// Does what a block of a page says.
    fn block(&mut self, language: &str, block: &str) {
        match language {
            "toml" => {
                let place = block.contains("dir = ") || block.contains("scope = ");
                let place = if place { "" } else { "dir = \"locks\"\n" };
                if block.contains("scope = \"repo\"") {
                    self.by_shell("git init -q")
                        .expect(0, "a repository around it");
                }
                let content = format!("{place}{block}");
                self.scene.write("app/tenure.toml", &content);
                let read = self.by_shell("tenure list").expect(0, block);
                assert_eq!(read.stderr(), "", "nothing in it is passed over: {block}");
            }
            // Lines that belong together: what the first one takes, the last one gives back.
            "sh" if block.contains("tenure acquire") => {
                let script = format!("#!/bin/sh\nset -e\n{block}");
                self.scene.script("app/script", &script);
                self.by_shell("./script").expect(0, block);
                self.ran += block.lines().count();
            }
            "sh" => {
                for line in block.lines().filter(|line| !line.starts_with("# ")) {
                    self.run(line);
                }
            }
            "make" => {
                self.scene.write("app/Makefile", block);
            }
            "crontab" => {
                for line in block.lines().filter(|line| !line.starts_with("PATH=")) {
                    assert!(line.starts_with(['*', '0', '3']), "{line}");
                    let command: Vec<_> = line.split_whitespace().skip(5).collect();
                    self.run(&command.join(" "));
                }
            }
            "ini" if block.contains("backup") => {
                // `services.rs` tries the unit; here is a part of it.
                let unit = Path::new(env!("CARGO_MANIFEST_DIR"))
                    .join("../../examples/systemd/backup.service");
                let unit = fs::read_to_string(unit).expect("the unit");
                for line in block.lines() {
                    assert!(unit.lines().any(|other| other == line), "{line}");
                }
            }
            "ini" => {
                let starts = block
                    .lines()
                    .find_map(|line| line.strip_prefix("ExecStart=/usr/bin/"));
                let starts = starts.expect("a unit starts something");
                self.run(&starts.replace("/usr/local/bin/", "./"));
            }
            // The probe finds no holder.
            "yaml" if block.contains("livenessProbe") => {
                let words = block.split_once("command: [").expect("a command").1;
                let words = words.split_once(']').expect("its end").0.replace(',', "");
                self.by_shell(&words).expect(4, &words);
                self.ran += 1;
            }
            // A workflow, whose actions `github_action.rs` tries, and what another tool is told.
            "yaml" | "text" => {}
            other => panic!("a block of an unknown kind: {other}"),
        }
    }
}

/// The command that a row of a table `| instead of | write |` advises.
fn advised(row: &str) -> Option<&str> {
    let cell = row.split(" | ").nth(1)?;
    cell.split('`').nth(1)
}

#[test]
fn each_command_of_the_guides_runs_as_it_stands() {
    for (page, commands) in PAGES {
        let mut tried = Tried::new();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let text = fs::read_to_string(path.join(page)).expect(page);
        let (mut language, mut block, mut table) = (None, String::new(), false);
        for line in text.lines() {
            match (line.strip_prefix("```"), language) {
                (Some(opened), None) => language = Some(opened),
                (Some(_), Some(closed)) => {
                    tried.block(closed, &block);
                    block.clear();
                    language = None;
                }
                (None, Some(_)) => {
                    if !line.trim().is_empty() || language == Some("make") {
                        block.extend([line, "\n"]);
                    }
                }
                (None, None) if line == "| instead of | write |" => table = true,
                (None, None) if !line.starts_with('|') => table = false,
                (None, None) => {
                    if let Some(command) = advised(line).filter(|_| table) {
                        tried.run(command);
                    }
                }
            }
        }
        assert_eq!(tried.ran, commands, "{page}: commands that were run");
    }
}

#[test]
fn each_guide_is_tried() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides");
    // Tried by `guides.rs`, by the tests of the packages for Python and Node, and as examples of the library.
    let elsewhere = [
        "ci-agents.md",
        "ci-jobs.md",
        "from-filelock.md",
        "from-node.md",
        "from-proper-lockfile.md",
        "from-python.md",
        "from-rust.md",
        "one-build.md",
        "worktrees.md",
    ];
    for guide in fs::read_dir(folder).expect("the guides") {
        let name = guide.expect("a guide").file_name();
        let name = name.to_string_lossy();
        let here = PAGES
            .iter()
            .any(|(page, _)| page.strip_prefix("guides/") == Some(&name));
        assert!(
            here || elsewhere.contains(&&*name),
            "{name} is tried nowhere"
        );
    }
}
