//! Carries a call out: one file per verb, and here which verb goes where.
//!
//! What verbs share has rooms of its own. `call` leads from flags to an answer, and `session` is the place of a call,
//! opened. `ownership` says whose a claim is, `pool` what slots stand for, `grant` how a caller gets a lock (beside
//! it `attend` for the wait, `ticket` for a place that is kept, and the hints of `near` and `ignored`). `refusal` has
//! the words of a refusal, and `records` what the audit gets; `result` is how work ended. `prompt` asks a person,
//! `child_end` waits for a program, `keeper` and `starter` name the processes around a hold.

mod acquire;
#[cfg(unix)]
mod agent;
#[cfg(unix)]
mod allow;
mod attend;
mod audit;
mod call;
mod cancel;
mod check;
mod child_end;
mod clean;
mod completions;
#[cfg(unix)]
mod demo;
#[cfg(unix)]
mod doctor;
mod fence;
#[cfg(unix)]
mod flock;
mod force_release;
mod grant;
mod group_name;
mod heartbeat;
mod help;
#[cfg(unix)]
mod hook;
mod ignored;
mod keeper;
mod man;
#[cfg(all(feature = "mcp", unix))]
mod mcp;
mod metrics;
mod near;
mod ownership;
mod pool;
mod profiles;
#[cfg_attr(windows, path = "command/no_prompt.rs")]
mod prompt;
#[cfg(unix)]
mod push;
mod records;
mod refusal;
mod release;
mod result;
pub(crate) mod run;
#[cfg(unix)]
mod serve;
mod session;
mod sprint;
#[cfg(unix)]
mod starter;
mod ticket;
mod timeline;
mod top;
mod wait;

use self::call::Call;
use self::session::dialect_of;
use crate::args;
use crate::exit::{Ending, Exit};
use crate::failure::Failure;
use crate::render::report;
use crate::request::{
    self, Acquiring, Audit, Cancel, Check, Clean, DoctorArgs, Fence, ForceRelease, Format,
    Heartbeat, List, Metrics, Release, Run, Surroundings, Timeline, Wait,
};
use crate::verb::{self, Verb};
use std::ffi::OsString;
#[cfg(windows)]
use std::time::Duration;

/// Turns the typed call into a request, carries it out and answers with the exit code.
///
/// Typed arguments become a request only here: no code below sees the arguments, and no code above sees the
/// request. A sprint's calls have a flow of their own, with a document on stdin, and take this step there.
#[allow(
    clippy::too_many_lines,
    reason = "one arm for each verb, and nothing else"
)]
pub(crate) fn carry_out(verb: Verb) -> Ending {
    let exit = match verb {
        Verb::Run(args) => {
            let mut call = Call::calling("run", &args.common, &args.calling, &args.path)
                .about(args.name.as_ref())
                .held_exit(args.claiming.patience.conflict_exit_code);
            let ending = match Run::of(&args, &call.around) {
                Ok(run) => {
                    call::warn_of(&call.around, &mut call.reporter);
                    run::run(run, call.reporter)
                }
                Err(failure) => call.reporter.fail(&failure).into(),
            };
            return ending.own(args.own_exit_code);
        }
        Verb::Acquire(args) => Call::about_one(
            "acquire",
            &args.common,
            &args.calling,
            (args.name.as_ref(), &args.of),
        )
        .of_format(
            &args.common,
            |call| sprint::acquire(&args, call, args.input.as_deref().into()),
            |call| {
                call.held_exit(args.claiming.patience.conflict_exit_code)
                    .answer(|around| Acquiring::of(&args, around), acquire::acquire)
            },
        ),
        Verb::Release(args) => Call::about_one(
            "release",
            &args.common,
            &args.calling,
            (args.name.as_ref(), &args.of),
        )
        .of_format(
            &args.common,
            |call| sprint::release(&args, call, args.input.as_deref().into()),
            |call| call.answer(|around| Release::of(&args, around), release::release),
        ),
        Verb::Check(args) => Call::about_one(
            "check",
            &args.common,
            &args.calling,
            (args.name.as_ref(), &args.of),
        )
        .of_format(
            &args.common,
            |call| sprint::check(&args, call, args.input.as_deref().into()),
            |call| call.answer(|around| Check::of(&args, around), check::check),
        ),
        Verb::Document(args) => Call::of("", &args.common).of_format(
            &args.common,
            |call| sprint::document(&args, call),
            |call| call.reporter.fail(&request::no_input()),
        ),
        Verb::Cancel(args) => Call::about_one(
            "cancel",
            &args.common,
            &args::Calling::default(),
            (args.name.as_ref(), &args.of),
        )
        .answer(|around| Cancel::of(&args, around), cancel::cancel),
        Verb::ForceRelease(args) => Call::about_one(
            "force-release",
            &args.common,
            &args::Calling::default(),
            (args.name.as_ref(), &args.of),
        )
        .answer(
            |around| ForceRelease::of(&args, around),
            force_release::force_release,
        ),
        Verb::List(args) => Call::about_one(
            "list",
            &args.common,
            &args::Calling::default(),
            (args.name.as_ref(), &args.of),
        )
        .answer(|around| List::of(&args, around), check::list),
        Verb::Top(args) => top::top(&args),
        Verb::Heartbeat(args) => Call::about_one(
            "heartbeat",
            &args.common,
            &args.calling,
            (args.name.as_ref(), &args.of),
        )
        .answer(|around| Heartbeat::of(&args, around), heartbeat::heartbeat),
        Verb::Wait(args) => Call::about_one(
            "wait",
            &args.common,
            &args.calling,
            (args.name.as_ref(), &args.of),
        )
        .held_exit(args.patience.conflict_exit_code)
        .answer(|around| Wait::of(&args, around), wait::wait),
        Verb::Fence(args) => Call::about_one(
            "fence",
            &args.common,
            &args::Calling::default(),
            (None, &args.of),
        )
        .answer(|around| Fence::of(&args, around), fence::fence),
        Verb::Clean(args) => {
            Call::of("clean", &args.common).answer(|around| Clean::of(&args, around), clean::clean)
        }
        Verb::Doctor(args) => examine(&args),
        #[cfg(unix)]
        Verb::Demo(args) => demo::demo(&args),
        #[cfg(windows)]
        Verb::Demo(_) => report(&Failure::not_here(
            "demo",
            "its story needs signals; the README tells it",
        )),
        Verb::Profiles(args) => {
            let of = args.common.profile.as_deref();
            Call::of("profiles", &args.common).answer(
                |around| request::shown_profiles(of, around),
                |names, _| profiles::profiles(&names),
            )
        }
        #[cfg(unix)]
        Verb::Allow(args) => Call::of("allow", &args.common)
            .answer(|around| request::Allow::of(&args, around), allow::allow),
        #[cfg(windows)]
        Verb::Allow(_) => report(&Failure::not_here(
            "allow",
            "it has not been ported; write allow = [...] into your own tenure.toml",
        )),
        Verb::Audit(args) => Call::about_one(
            "audit",
            &args.common,
            &args::Calling::default(),
            (None, &args.sought.of),
        )
        .answer(
            |around| Audit::of(&args, around, audit::now_ms()),
            audit::audit,
        ),
        Verb::Timeline(args) => Call::about_one(
            "timeline",
            &args.common,
            &args::Calling::default(),
            (None, &args.sought.of),
        )
        .answer(
            |around| Timeline::of(&args, around, audit::now_ms()),
            timeline::timeline,
        ),
        Verb::Metrics(args) => Call::of("metrics", &args.common)
            .answer(|around| Metrics::of(&args, around), metrics::metrics),
        #[cfg(unix)]
        Verb::Push(args) => Call::of("push", &args.common)
            // Users of the original know the lines between attempts.
            .plainly()
            .held_exit(args.patience.conflict_exit_code)
            .answer(|around| request::Push::of(&args, around), push::push),
        #[cfg(windows)]
        Verb::Push(_) => report(&Failure::not_here(
            "push",
            "it has not been ported; use `tenure run NAME -- git push`",
        )),
        #[cfg(unix)]
        Verb::Serve(args) => serve::serve(&args),
        #[cfg(windows)]
        Verb::Serve(_) => report(&Failure::not_here(
            "serve",
            "it has not been ported; use `tenure acquire --owner PID` and `tenure release`",
        )),
        #[cfg(all(feature = "mcp", unix))]
        Verb::Mcp(args) => mcp::mcp(&args),
        #[cfg(all(not(feature = "mcp"), unix))]
        Verb::Mcp(_) => report(&Failure::bad_arguments(
            "mcp: this binary was built without MCP; build it with `--features mcp`, or use `tenure acquire`",
        )),
        #[cfg(windows)]
        Verb::Mcp(_) => report(&Failure::not_here(
            "mcp",
            "it has not been ported; use `tenure acquire --owner PID` and `tenure release`",
        )),
        #[cfg(unix)]
        Verb::Flock(args) => flock::flock(&args),
        #[cfg(windows)]
        Verb::Flock(_) => report(&Failure::not_here(
            "flock",
            "locks of flock(1) are Unix's own; use `tenure run`",
        )),
        #[cfg(unix)]
        Verb::Agent(args) => Call::of("agent", &args.common)
            .answer(|around| request::Agent::of(&args, around), agent::agent),
        #[cfg(windows)]
        Verb::Agent(_) => report(&Failure::not_here("agent", "it has not been ported")),
        #[cfg(unix)]
        Verb::Hook(args) => hook::hook(&args),
        #[cfg(windows)]
        Verb::Hook(_) => {
            let mut failure = Failure::not_here(
                "hook",
                "it has not been ported; write `tenure run` into the commands themselves",
            );
            // Hosts take 2 for a refusal, and at the end of a turn for "go on".
            failure.exit = Exit::General;
            report(&failure)
        }
        Verb::GroupName(args) => Call::of("group-name", &args.common)
            .answer(|_| Ok(args), |args, _| group_name::group_name(&args)),
        Verb::Help(args) => help::help(&args),
        Verb::Version(output) => help::show_version(output),
        #[cfg(unix)]
        Verb::Bare => hook::instead_of(&[]).unwrap_or_else(help::bare),
        #[cfg(windows)]
        Verb::Bare if gets_event() => Exit::Success,
        #[cfg(windows)]
        Verb::Bare => help::bare(),
        Verb::Completions(args) => completions::completions(&args),
        Verb::Man(args) => man::man(&args),
    };
    exit.into()
}

/// Carries out `doctor`, or the part that a second process takes in it.
#[cfg(unix)]
fn examine(args: &DoctorArgs) -> Exit {
    if args.in_trial {
        return doctor::take_part();
    }
    Call::of("doctor", &args.common)
        .answer(|around| request::Doctor::of(args, around), doctor::doctor)
}

#[cfg(windows)]
fn examine(_: &DoctorArgs) -> Exit {
    report(&Failure::not_here(
        "doctor",
        "it has not been ported; `tenure list -v` says where the locks are, and why",
    ))
}

/// Whether an event of an agent's host stands on stdin of a call without words. Hosts take the code 2 for a refusal, and at the end
/// of a turn for "go on". Nothing is waited for longer than a host waits: the caller may have left a pipe open.
#[cfg(windows)]
fn gets_event() -> bool {
    use std::io::{BufRead as _, IsTerminal as _};
    if std::io::stdin().is_terminal() {
        return false;
    }
    let (tell, told) = std::sync::mpsc::channel();
    let _ = std::thread::Builder::new().spawn(move || {
        let begins = std::io::stdin().lock().fill_buf().map(<[u8]>::to_vec);
        let _ = tell.send(begins.is_ok_and(|begins| begins.trim_ascii_start().starts_with(b"{")));
    });
    told.recv_timeout(Duration::from_millis(2_800))
        .unwrap_or(false)
}

/// Answers a call whose arguments could not be read, in the form of its profile if that is known.
pub(crate) fn misread(words: &[OsString], failure: Failure) -> Exit {
    #[cfg(unix)]
    if let Some(exit) = hook::instead_of(words) {
        return exit;
    }
    #[cfg(windows)]
    if verb::hints_of(words).1 == "hook" && gets_event() {
        return Exit::Success;
    }
    if failure.is_silent() || failure.exit == Exit::Success {
        return report(&failure);
    }
    let (common, verb) = verb::hints_of(words);
    let mut failure = failure;
    match Format::of(&common, &Surroundings::of(&common)) {
        Ok(Some(Format::Sprint)) => failure = sprint::misread(&verb, failure),
        Ok(format) => {
            let dialect = dialect_of(format.unwrap_or(Format::Native));
            if let Some(document) = dialect.document(&verb) {
                failure.text = Some(document(&verb, None, &failure));
                failure.is_answer = true;
            }
        }
        Err(_) => {}
    }
    report(&failure)
}
