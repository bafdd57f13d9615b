//! `examples/github-actions`: the workflows are YAML, their groups are those of
//! `tenure group-name`, the flags of tenure in them exist, and their scripts do what they say.

use crate::support::{Scene, answer};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const WORKFLOWS: [&str; 2] = ["agent.yml", "agent-self-hosted.yml"];
const SCRIPTS: [&str; 3] = ["work.sh", "note-superseded.sh", "reaction.sh"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/github-actions")
}

fn text(file: &str) -> String {
    fs::read_to_string(folder().join(file)).unwrap()
}

fn workflow(file: &str) -> Value {
    serde_saphyr::from_str(&text(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The part of GitHub's expressions that the workflow uses: `||`, `&&`, `==`, `!=`, text,
/// `format`, and names.
struct Expression<'a> {
    rest: &'a str,
    github: &'a Value,
}

impl Expression<'_> {
    /// A text with expressions in it.
    fn fill(template: &str, github: &Value) -> String {
        let mut filled = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once("${{") {
            let (inner, after) = after.split_once("}}").expect("its end");
            filled.push_str(before);
            let mut expression = Expression {
                rest: inner,
                github,
            };
            let value = expression.any();
            assert_eq!(expression.rest.trim(), "", "all of it is understood");
            filled.push_str(&shown(&value));
            rest = after;
        }
        filled + rest
    }

    fn take(&mut self, word: &str) -> bool {
        let rest = self.rest.trim_start();
        if let Some(rest) = rest.strip_prefix(word) {
            self.rest = rest;
            return true;
        }
        false
    }

    fn any(&mut self) -> Value {
        let mut value = self.all();
        while self.take("||") {
            let other = self.all();
            if !is_true(&value) {
                value = other;
            }
        }
        value
    }

    fn all(&mut self) -> Value {
        let mut value = self.compared();
        while self.take("&&") {
            let other = self.compared();
            if is_true(&value) {
                value = other;
            }
        }
        value
    }

    fn compared(&mut self) -> Value {
        let value = self.operand();
        if self.take("==") {
            return json!(value == self.operand());
        }
        if self.take("!=") {
            return json!(value != self.operand());
        }
        value
    }

    fn operand(&mut self) -> Value {
        if self.take("'") {
            let (text, rest) = self.rest.split_once('\'').expect("the end of a text");
            self.rest = rest;
            return json!(text);
        }
        if self.take("format(") {
            let mut text = shown(&self.operand());
            let mut number = 0;
            while self.take(",") {
                let value = self.any();
                text = text.replace(&format!("{{{number}}}"), &shown(&value));
                number += 1;
            }
            assert!(self.take(")"), "the end of format: {}", self.rest);
            return json!(text);
        }
        assert!(self.take("github."), "a name: {}", self.rest);
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        let end = self.rest.find(|c| !is_name(c)).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        // What is not there is null, and so is everything in it.
        let parts = name.split('.');
        parts.fold(self.github.clone(), |value, part| value[part].clone())
    }
}

fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(is) => *is,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(_) | Value::Object(_) => true,
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Events as they arrive, and whether a run of theirs may be cancelled.
fn events() -> Vec<(&'static str, Value, bool)> {
    let pull = json!({ "number": 8, "pull_request": { "number": 8 } });
    vec![
        ("issues", json!({ "issue": { "number": 7 } }), true),
        (
            "issue_comment",
            json!({ "issue": { "number": 7 }, "comment": {} }),
            true,
        ),
        (
            "issue_comment",
            json!({ "issue": { "number": 8, "pull_request": { "url": "u" } } }),
            true,
        ),
        ("pull_request", pull.clone(), true),
        ("pull_request_target", pull.clone(), true),
        ("pull_request_review", pull.clone(), true),
        ("pull_request_review_comment", pull, true),
        ("schedule", json!({ "schedule": "23 4 * * *" }), false),
        ("workflow_dispatch", json!({ "inputs": null }), true),
        ("repository_dispatch", json!({ "action": "x" }), true),
        ("push", json!({ "ref": "refs/heads/main" }), true),
    ]
}

#[test]
fn the_groups_of_the_workflow_are_those_of_group_name() {
    let concurrency = workflow("agent.yml")["concurrency"].clone();
    let scene = Scene::new();
    let mut groups = BTreeSet::new();
    for (event, document, cancels) in events() {
        let path = scene.path("event.json");
        fs::write(&path, document.to_string()).unwrap();
        let mut command = scene.tenure(["group-name", "--prefix", "agent"]);
        command
            .env("GITHUB_EVENT_NAME", event)
            .env("GITHUB_EVENT_PATH", &path)
            .env("GITHUB_RUN_ID", "777");
        let named = answer(&mut command).expect(0, event).stdout();
        let github = json!({ "event_name": event, "event": document, "run_id": 777 });
        let fill = |key: &str| {
            let template = concurrency[key].as_str().expect(key);
            Expression::fill(template, &github)
        };
        assert_eq!(fill("group").trim(), named.trim(), "{event}");
        assert_eq!(fill("cancel-in-progress"), cancels.to_string(), "{event}");
        groups.insert(named.trim().to_owned());
    }
    let expected = [
        "agent-dispatch-777",
        "agent-issue-7",
        "agent-other-777",
        "agent-pr-8",
        "agent-schedule",
    ];
    assert!(groups.iter().eq(expected), "{groups:?}");
}

#[test]
fn both_workflows_answer_to_the_same_events() {
    let [hosted, own] = WORKFLOWS.map(workflow);
    let on = hosted["on"].as_object().expect("events");
    assert_eq!(own["on"], hosted["on"]);
    let known: BTreeSet<_> = events().iter().map(|(event, ..)| *event).collect();
    for event in on.keys() {
        assert!(known.contains(event.as_str()), "{event} is tested above");
    }
    assert_eq!(own["concurrency"], Value::Null, "tenure keeps the groups");
}

/// Every `run` of a workflow.
fn runs(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(script) if key == "run" => found.push(script.clone()),
                    other => runs(other, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| runs(item, found)),
        _ => {}
    }
}

/// All shell of the examples, by the file in which it stands.
fn scripts() -> Vec<(&'static str, String)> {
    let mut all: Vec<_> = SCRIPTS.map(|file| (file, text(file))).into();
    for file in WORKFLOWS {
        let mut found = Vec::new();
        runs(&workflow(file), &mut found);
        assert!(!found.is_empty(), "{file} runs something");
        all.extend(found.into_iter().map(|script| (file, script)));
    }
    all
}

/// The verb and the flags of each call of tenure in a script.
fn calls(script: &str) -> Vec<(String, Vec<String>)> {
    let joined = script.replace("\\\n", " ");
    let lines = joined
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let at = match line.find("$(tenure ") {
                Some(at) => at + 2,
                None => line.starts_with("tenure ").then_some(0)?,
            };
            let call = line[at..].split(" -- ").next()?.split(')').next()?;
            let mut words = call.split_whitespace().skip(1);
            let verb = words.next()?.to_owned();
            let flags = words
                .filter(|word| word.starts_with("--"))
                .map(|word| word.split('=').next().unwrap_or(word).to_owned())
                .collect();
            Some((verb, flags))
        })
        // What a shell variable holds is added by `set -- --flag`.
        .chain(joined.lines().filter_map(|line| {
            let words = line.trim().strip_prefix("set -- ")?;
            let flags = words
                .split_whitespace()
                .filter(|word| word.starts_with("--"));
            Some(("run".to_owned(), flags.map(str::to_owned).collect()))
        }))
        .collect()
}

#[test]
fn every_flag_of_tenure_in_the_examples_exists() {
    let scene = Scene::new();
    let mut seen = BTreeSet::new();
    for (file, script) in scripts() {
        for (verb, flags) in calls(&script) {
            let help = scene
                .run([verb.as_str(), "--help"])
                .expect(0, &verb)
                .stdout();
            let known: BTreeSet<_> = help
                .lines()
                .filter(|line| line.trim_start().starts_with('-'))
                .flat_map(str::split_whitespace)
                .map(|word| word.trim_end_matches(','))
                .filter(|word| word.starts_with("--"))
                .collect();
            for flag in flags {
                assert!(
                    known.contains(flag.as_str()),
                    "{file}: tenure {verb} has no {flag}"
                );
                seen.insert(format!("{verb} {flag}"));
            }
        }
    }
    for wanted in [
        "group-name --prefix",
        "push --attempts",
        "push --backoff",
        "run --cancel-in-progress",
        "run --group",
        "run --on-superseded",
        "run --queue",
    ] {
        assert!(seen.contains(wanted), "{wanted} is looked at: {seen:?}");
    }
}

#[test]
fn the_scripts_are_shell() {
    let scene = Scene::new();
    for (file, script) in scripts() {
        let path = scene.path("script.sh");
        fs::write(&path, script).unwrap();
        let mut check = scene.program("sh");
        answer(check.arg("-n").arg(&path)).expect(0, file);
    }
}

#[test]
fn a_superseded_run_posts_its_note() {
    let scene = Scene::new();
    let bin = scene.path("bin");
    fs::create_dir(&bin).unwrap();
    let said = scene.path("said");
    let gh = format!("#!/bin/sh\nprintf '%s\\n' \"$@\" >'{}'\n", said.display());
    fs::write(bin.join("gh"), gh).unwrap();
    fs::set_permissions(bin.join("gh"), fs::Permissions::from_mode(0o755)).unwrap();
    let note_of = |number: &str, told: &[(&str, &str)]| {
        let mut command = scene.program("sh");
        let path = format!("{}:/usr/bin:/bin", bin.display());
        command
            .arg(folder().join("note-superseded.sh"))
            .env("PATH", path)
            .env("GITHUB_REPOSITORY", "a/b")
            .env("NUMBER", number)
            .envs(told.iter().copied());
        answer(&mut command).expect(0, "the note");
    };
    let note = |number: &str| note_of(number, &[("TENURE_SUPERSEDED_KIND", "newer_run")]);
    note("");
    assert!(!said.exists(), "there is no issue to mark");
    let cancelled = [
        ("TENURE_SUPERSEDED_KIND", "cancel"),
        ("TENURE_SUPERSEDED_ACTOR", "ada"),
        ("TENURE_SUPERSEDED_WHY", "not now"),
    ];
    note_of("7", &cancelled);
    let posted = fs::read_to_string(&said).unwrap();
    let body = "body=This agent run was cancelled by ada: not now.\n";
    assert!(posted.contains(body), "{posted}");
    note("7");
    let said = fs::read_to_string(&said).unwrap();
    assert!(said.contains("repos/a/b/issues/7/comments"), "{said}");
    assert!(
        said.contains(
            "body=Previous agent run was superseded by a newer message. \
             Processing the latest message now.\n"
        ),
        "{said}"
    );
}

/// What a run asks of GitHub, by a `gh` that writes it down.
struct Asked {
    scene: Scene,
}

impl Asked {
    fn new() -> Self {
        let scene = Scene::new();
        fs::create_dir(scene.path("bin")).unwrap();
        let gh = format!(
            "#!/bin/sh\nset -eu\n[ ! -e '{0}/down' ]\necho \"$@\" >>'{0}/asked'\n\
             case \"$*\" in *POST*) echo 555 ;; esac\n",
            scene.root().display()
        );
        scene.script("bin/gh", &gh);
        // No run here comes as far as a commit.
        scene.script("bin/git", "#!/bin/sh\n");
        Self { scene }
    }

    /// `work.sh` of a run that this event has started.
    fn work(&self, event: &str, agent: &str) -> std::process::Command {
        let mut command = self.scene.program("sh");
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .arg(folder().join("work.sh"))
            .current_dir(self.scene.root())
            .env(
                "PATH",
                format!("{}:{path}", self.scene.path("bin").display()),
            )
            .env("RUNNER_TEMP", self.scene.root())
            .env("GITHUB_EVENT_NAME", event)
            .env("GITHUB_REPOSITORY", "a/b")
            .env("GITHUB_RUN_ID", "777")
            .env("NUMBER", "7")
            .env("COMMENT", "99")
            .env("AGENT", agent);
        command
    }

    /// What was asked since the last time.
    fn taken(&self) -> Vec<String> {
        let file = self.scene.path("asked");
        let said = fs::read_to_string(&file).unwrap_or_default();
        let _ = fs::write(file, "");
        said.lines().map(str::to_owned).collect()
    }
}

/// 👀 stands on what started the run while the agent works, and is gone afterwards, however that ends.
#[test]
fn the_reaction_of_a_run_is_taken_away_at_its_end() {
    let asked = Asked::new();
    let seen = "grep -c POST asked >during; exit 3";
    for (event, place) in [
        ("issues", "issues/7"),
        ("issue_comment", "issues/comments/99"),
        ("pull_request", "issues/7"),
        ("pull_request_review", "issues/7"),
        ("pull_request_review_comment", "pulls/comments/99"),
    ] {
        let place = format!("repos/a/b/{place}/reactions");
        let marked = [
            format!("api --method POST {place} -f content=eyes --jq .id"),
            format!("api --silent --method DELETE {place}/555"),
        ];
        let _ = answer(&mut asked.work(event, seen)).expect(3, "the agent's own failure");
        assert_eq!(asked.taken(), marked, "{event}");
        let during = fs::read_to_string(asked.scene.path("during")).unwrap();
        assert_eq!(during, "1\n", "{event}: before the agent began");
    }

    // A run that is asked to end takes it away as well, still under its lock.
    let mut work = asked.work("issues", "touch begun; sleep 1000");
    let words = ["run", "--group", "issue-7", "--", "sh"].map(std::ffi::OsString::from);
    let mut run = asked.scene.tenure(words);
    run.args(work.get_args().map(std::ffi::OsStr::to_owned));
    run.current_dir(asked.scene.root());
    for (name, value) in work.get_envs() {
        run.env(name, value.unwrap_or_default());
    }
    let run = crate::support::Started::new(&mut run);
    crate::support::eventually("the agent", || asked.scene.path("begun").exists());
    run.signal(rustix::process::Signal::TERM);
    assert_eq!(run.finish().code(), 143);
    assert_eq!(asked.taken().len(), 2, "put there and taken away");

    // Nothing is to be marked, or GitHub does not answer: the work is done all the same.
    let _ = answer(work.env("AGENT", "exit 4").env("NUMBER", "")).expect(4, "a schedule");
    assert_eq!(asked.taken(), [""; 0]);
    fs::write(asked.scene.path("down"), "").unwrap();
    let _ = answer(work.env("NUMBER", "7").env("AGENT", "exit 5")).expect(5, "GitHub is down");
    assert_eq!(asked.taken(), [""; 0]);
}

#[test]
fn a_run_commits_what_its_agent_changed_and_pushes_it() {
    let scene = Scene::new();
    let made = scene.shell(&format!(
        "cd '{}' && git init -q --bare -b main b && git clone -q b first && cd first && \
         git config user.name t && git config user.email t@localhost && echo 1 >README && \
         git add README && git commit -q -m 1 && git push -q origin HEAD:main && cd .. && \
         git clone -q --depth 1 \"file://$PWD/b\" run && cd first && echo 2 >more && \
         git add more && git commit -q -m 2 && git push -q origin HEAD:main",
        scene.root().display()
    ));
    assert_eq!(made.code(), 0, "{}", made.said());
    let run = |agent: &str| {
        let mut command = scene.program("sh");
        command
            .arg(folder().join("work.sh"))
            .current_dir(scene.path("run"))
            .env("AGENT", agent);
        answer(&mut command)
    };
    let nothing = run("true").expect(0, "nothing to do");
    assert_eq!(nothing.stdout(), "nothing has changed\n");
    // The run waited for its turn since its checkout: what was pushed meanwhile, in the same file, is no conflict.
    let waited = run("test -e more && echo 3 >>more").expect(0, "pushed, behind another");
    assert!(!waited.stderr().contains("Retrying"), "{}", waited.said());
    let beside = "(cd ../first && git pull -q && echo 4 >beside && git add beside && git commit -q -m 4 && \
                  git push -q origin HEAD:main) && echo done >work";
    let done = run(beside).expect(0, "pushed, from a shallow clone, behind another");
    assert!(
        done.stderr()
            .contains("Push attempt 1/5 failed. Retrying in ")
    );
    let mut show = scene.program("git");
    show.current_dir(scene.path("b"));
    let all = answer(show.args(["ls-tree", "--name-only", "main"])).stdout();
    assert_eq!(all, "README\nbeside\nmore\nwork\n");
    run("exit 5").expect(5, "an agent that fails pushes nothing");
}
