//! `agent`: puts tenure into the files of a program that runs agents, takes it out again, and says how it is.
//!
//! | what | module |
//! |---|---|
//! | which hooks, server and skill a host gets, and in which files | `host`, beside the verbs |
//! | what a text has of them | `entries`, over `json` and `toml` |
//! | what becomes of the files, all or none | `install` |
//! | one file replaced; what it was before | `files`, `receipts` |
//! | the user's servers of a host that only the host writes | `registered` |
//! | the person's own rules for commands, which a rewrite must not hide | `permissions` |
//! | what a hook puts in front of a command | `form` |
//! | what other programs are asked | `ask` |
//! | what is installed, and what is wrong | `status` |
//! | whether hook and rewrite arrive | `probe` |
//!
//! What the hooks do when a host calls them is `tenure hook`'s.

mod ask;
mod entries;
pub(super) mod files;
pub(super) mod form;
mod install;
mod json;
mod path;
pub(super) mod permissions;
pub(super) mod probe;
mod receipts;
mod registered;
mod status;
mod toml;

use self::entries::Words;
use self::install::{Installation, Step, Task, files_of};
use self::receipts::Receipts;
use crate::args::value::AgentHost;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::host::{self, Reach};
use crate::render::{Reporter, clean_path};
use crate::request::Agent;
use crate::request::AgentAction;
use serde_json::{Value, json};
use std::fmt::Write as _;
use tenure_store::advice;

#[allow(
    clippy::needless_pass_by_value,
    reason = "each verb is given its request"
)]
#[cold]
#[inline(never)]
pub(super) fn agent(call: Agent, reporter: &mut Reporter) -> Result<(String, Value), Failure> {
    match call.action {
        AgentAction::Install => change(Task::Install, &call, reporter),
        AgentAction::Uninstall => change(Task::Uninstall, &call, reporter),
        AgentAction::Status => status::status(&call, reporter),
        AgentAction::Probe => probe::probe(call.host),
    }
}

/// The line of an action of this verb for a host.
fn line(action: &str, host: AgentHost, more: &[&str]) -> String {
    let program = advice::program();
    let words = [&*program, "agent", action, host.word()];
    advice::line(words.into_iter().chain(more.iter().copied()))
}

/// How the hooks name this program. All users of a project have to find it, so there it is called by its name. A user's hooks
/// name its path: a host that goes on in the background may have the `PATH` of another window.
fn program(reach: Reach) -> Result<String, Failure> {
    if reach == Reach::Project {
        return Ok(host::NAME.to_owned());
    }
    let own = advice::path();
    if host::is_tenure(&own) {
        return Ok(own);
    }
    Err(Failure::new(
        Exit::General,
        "NO_PROGRAM",
        "no tenure is on the PATH, and this program cannot be named; put it on the PATH as `tenure`",
    ))
}

fn change(task: Task, call: &Agent, reporter: &mut Reporter) -> Result<(String, Value), Failure> {
    let words = Words {
        host: call.host,
        program: program(call.reach)?,
    };
    let files = files_of(call.host, call.reach, &call.roots);
    let receipts = Receipts::of_user()?;
    let own = registered::file_of(call.host, call.reach, &call.roots);
    if let Some(own) = own.as_ref().filter(|_| task == Task::Install) {
        registered::refuse_another(own)?;
    }
    // Two calls at once would both ask `claude` to add the server, and it refuses the second one.
    let server = || {
        let own = (call.host, own.as_deref()?);
        let (program, roots) = (&words.program, &call.roots);
        Some(registered::server(task, own, program, roots, call.dry_run))
    };
    let installation = Installation {
        task,
        words: &words,
        files: &files,
        receipts: &receipts,
        roots: &call.roots,
    };
    let (steps, server) = if call.dry_run {
        (installation.decide()?, server())
    } else {
        let done = installation.carry_out(server);
        let done = done.map_err(|mut failure| {
            if failure.partial {
                let out = line("uninstall", call.host, &[call.reach.flag()]);
                failure.message = format!("{}; `{out}` takes it out", failure.message);
                failure.fix_command = Some(out);
            }
            failure
        })?;
        for kept in &done.kept {
            reporter.warn(kept);
        }
        (done.steps, done.last)
    };
    for step in &steps {
        if let Some(failure) = &step.hindered {
            reporter.warn(&failure.message);
        } else if let Some(why) = &step.left {
            reporter.warn(format!("{} is left as it is: {why}", step.shown()));
        }
    }
    let difference: String = steps.iter().map(Step::difference).collect();
    let next = match task {
        Task::Install => next_steps(call, &words.program),
        Task::Uninstall => Vec::new(),
    };
    let undo = (task == Task::Install).then(|| line("uninstall", call.host, &[call.reach.flag()]));
    let mut text = told(task, call, &steps, server.as_ref(), &difference, &next);
    if let Some(undo) = undo.as_ref().filter(|_| !call.dry_run) {
        let _ = write!(text, "\nundo: {undo}");
    }
    let data = json!({
        "action": call.action_word(),
        "host": call.host.word(),
        "reach": call.reach.word(),
        "dry_run": call.dry_run,
        "files": steps.iter().map(Step::json).collect::<Vec<_>>(),
        "server": server.as_ref().map(registered::Server::json),
        "difference": call.dry_run.then_some(difference),
        "next": next,
        "undo": undo,
    });
    let hindered: Vec<&Failure> = steps
        .iter()
        .filter_map(|step| step.hindered.as_ref())
        .collect();
    let mut failed: Vec<String> = (hindered.iter())
        .map(|failure| failure.message.clone())
        .collect();
    let server_did = server.as_ref().is_some_and(|server| !server.is_failed());
    let server = server.filter(registered::Server::is_failed);
    failed.extend(server.map(|server| server.message));
    if failed.is_empty() {
        return Ok((text, data));
    }
    let did = server_did || steps.iter().any(Step::is_done);
    let mut failure = match hindered.first().filter(|_| !did) {
        Some(first) => Failure::new(first.exit, first.code.clone(), failed.join("; ")),
        None => Failure::new(Exit::Partial, "PARTIAL", failed.join("; ")),
    }
    .with_text(text)
    .with_context(data);
    failure.partial = did || hindered.is_empty();
    failure.is_answer = true;
    Err(failure)
}

/// What only the user can do.
fn next_steps(call: &Agent, program: &str) -> Vec<String> {
    let (mut next, host) = (Vec::new(), call.host.table());
    if path::programs().is_empty() {
        next.push(if call.reach == Reach::Project {
            "put tenure on the PATH of all who work here: a host goes on without a hook that it does not find"
                .to_owned()
        } else {
            format!("put {program} on the PATH: agents and people call it `tenure`")
        });
    }
    if host.files.are_in_main && call.roots.main != call.roots.project {
        next.push(format!(
            "install in {}, too: {} takes the hooks of all work trees from there",
            clean_path(&call.roots.main),
            host.name
        ));
    }
    if call
        .config
        .as_ref()
        .is_ok_and(|config| config.files().all(|file| file.agent.is_empty()))
    {
        next.push(
            "say in tenure.toml which commands and files have a lock, as: [[agent.command]] match = [\"make\"] lock = \"build\""
                .to_owned(),
        );
    }
    next.push((host.next)(call.reach).to_owned());
    if let Some((what, fix)) = (status::looks(call.host).hindrance)(call) {
        next.push(format!("{}' sandbox: {what}; {fix}", host.name));
    }
    next.push(format!(
        "have an agent run `{}` once: it says whether the hooks arrive",
        line("probe", call.host, &[])
    ));
    next
}

fn told(
    task: Task,
    call: &Agent,
    steps: &[Step],
    server: Option<&registered::Server>,
    difference: &str,
    next: &[String],
) -> String {
    let mut text = String::new();
    if call.dry_run {
        text.push_str(difference);
        if let Some(server) = server {
            let _ = writeln!(text, "{}", server.message);
        }
        if text.is_empty() {
            text.push_str("nothing would change\n");
        }
        return text.trim_end_matches('\n').to_owned();
    }
    let whose = match call.reach {
        Reach::Project => format!("in {}", clean_path(&call.roots.project)),
        Reach::User => "for this user".to_owned(),
    };
    let is_hindered = steps.iter().any(|step| step.hindered.is_some());
    let (done, rest) = match task {
        Task::Install => ("is installed", ""),
        Task::Uninstall if is_hindered => ("is not all out", "; the next call goes on"),
        Task::Uninstall => ("is out", ""),
    };
    let _ = writeln!(
        text,
        "tenure {done} for {} {whose}{rest}",
        call.host.table().name
    );
    for step in steps {
        let _ = writeln!(text, "  {:<9} {}", step.word(), step.shown());
    }
    if let Some(server) = server {
        let _ = writeln!(text, "  {}", server.message);
    }
    for (at, line) in next.iter().enumerate() {
        let label = if at == 0 { "next: " } else { "      " };
        let _ = writeln!(text, "{label}{line}");
    }
    text.trim_end_matches('\n').to_owned()
}

impl Agent {
    fn action_word(&self) -> &'static str {
        match self.action {
            AgentAction::Install => "install",
            AgentAction::Uninstall => "uninstall",
            AgentAction::Status => "status",
            AgentAction::Probe => "probe",
        }
    }
}
