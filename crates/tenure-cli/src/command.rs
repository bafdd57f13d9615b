//! Carries a call out: one file per verb, and here what several of them share.

mod acquire;
#[cfg(unix)]
mod agent;
#[cfg(unix)]
mod allow;
mod attend;
mod audit;
mod cancel;
mod check;
mod clean;
mod completions;
#[cfg(unix)]
mod doctor;
mod fence;
#[cfg(unix)]
mod flock;
mod force_release;
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
mod near;
mod profiles;
#[cfg_attr(windows, path = "command/no_prompt.rs")]
mod prompt;
#[cfg(unix)]
mod push;
mod release;
mod result;
pub(crate) mod run;
#[cfg(unix)]
mod serve;
mod sprint;
#[cfg(unix)]
mod starter;
mod ticket;
mod wait;

use self::attend::{Attendance, Tend};
use self::result::RunResult;
use crate::args::value::Typed;
use crate::args::{self, Common, DoctorArgs, Verb};
use crate::audit_writer::{self, AuditWriter};
use crate::dialect::{self, CallRefusal, CallResult, Dialect, PersonLine};
use crate::exit::{Ending, Exit, signalled};
use crate::failure::Failure;
use crate::render::lock::{LockView, age, failure_of};
use crate::render::{Output, Reporter, clean, clean_path, report};
use crate::request::{
    self, Acquiring, Audit, Cancel, Check, Clean, Fence, ForceRelease, Format, Heartbeat, List,
    Place, Pool, Release, Run, ShownId, Surroundings, Wait,
};
#[cfg(windows)]
use crate::signals::numbers as libc;
use crate::signals::{self, SignalSleeper, Signals};
use crate::store::Locks;
use serde_json::json;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;
use tenure_engine::advice::Advice;
use tenure_engine::audit::{Behind, Grant, Occasion, Party, Releaser};
use tenure_engine::clock::{Clock, SystemClock, instant, nap, since};
use tenure_engine::engine::{self, AcquireError, Acquired, Limits, Lot};
use tenure_engine::envelope;
use tenure_engine::inherited::{self, Hold};
use tenure_engine::offload::at_once;
use tenure_engine::process::{Identity, Kin, is_caller, is_descendant_of, liveness, stopped_among};
use tenure_engine::profile::{self, Native, Profile, Settings, ends_without_release, known_as};
use tenure_engine::store::file::ThreadSleeper;
use tenure_engine::store::{Cleaned, Content, Reading, StoreError, Verbs};
use tenure_engine::tenure_core::{
    Claim, Entry, Event, Evidence, Force, ForceOnHeld, Holder, Host, Liveness, LivenessLock,
    LockName, Mode, Now, Ownership, Process, Reason, Refusal, Released, Request, RequestId,
    StaleReason, Standing, UnknownLife, UnreadableRule, is_orphan,
};

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
                    warn_of(&call.around, &mut call.reporter);
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
            (None, &args.of),
        )
        .answer(
            |around| Audit::of(&args, around, audit::now_ms()),
            audit::audit,
        ),
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

/// A call of one verb, and where its answer goes.
pub(crate) struct Call {
    pub(crate) around: Surroundings,
    pub(crate) reporter: Reporter,
}

impl Call {
    pub(crate) fn of(verb: &'static str, common: &Common) -> Self {
        Self::within(verb, common, Surroundings::of(common))
    }

    /// A call of a verb that an agent may call, or that names its lock by a path.
    pub(crate) fn calling(
        verb: &'static str,
        common: &Common,
        calling: &args::Calling,
        path: &args::OfPath,
    ) -> Self {
        Self::within(
            verb,
            common,
            Surroundings::of_calling(common, calling, path),
        )
    }

    /// Call of a verb about one lock, which may be that of a group.
    fn about_one(
        verb: &'static str,
        common: &Common,
        calling: &args::Calling,
        (name, of): (Option<&Typed<LockName>>, &args::OfLock),
    ) -> Self {
        let around = Surroundings::of_calling(common, calling, &of.path).of_group(of);
        Self::within(verb, common, around).about(name.or(of.group.as_ref()))
    }

    fn within(verb: &'static str, common: &Common, around: Surroundings) -> Self {
        // All of them are about what is held already.
        if matches!(verb, "release" | "heartbeat" | "check" | "fence") {
            around.tends();
        }
        Self {
            reporter: reporter(common, &around, verb),
            around,
        }
    }

    /// Says which lock the call is about.
    fn about(mut self, name: Option<&Typed<LockName>>) -> Self {
        self.reporter = self.reporter.about(name.map(|name| &*name.text));
        self
    }

    /// Says with which code the call exits where the lock is held.
    pub(crate) fn held_exit(mut self, code: Option<u8>) -> Self {
        self.reporter = self.reporter.held_exit(code);
        self
    }

    /// Has messages printed without tenure's name.
    #[cfg(unix)]
    fn plainly(mut self) -> Self {
        self.reporter = self.reporter.plain(true);
        self
    }

    /// Answers in the flow of a sprint if the call's profile is one, otherwise in the usual flow.
    #[cold]
    #[inline(never)]
    fn of_format(
        self,
        common: &Common,
        sprint: impl FnOnce(Self) -> Exit,
        usual: impl FnOnce(Self) -> Exit,
    ) -> Exit {
        match Format::of(common, &self.around) {
            Ok(Some(Format::Sprint)) => sprint(self),
            Ok(_) => usual(self),
            // The profile was not found, so the message is tenure's own.
            Err(failure) => self.reporter.plain(false).fail(&failure),
        }
    }

    /// Makes the request, carries it out and shows its answer or its failure.
    #[cold]
    #[inline(never)]
    pub(crate) fn answer<M>(
        self,
        meant: impl FnOnce(&Surroundings) -> Result<M, Failure>,
        carry_out: impl FnOnce(M, &mut Reporter) -> Result<(String, serde_json::Value), Failure>,
    ) -> Exit {
        let Self { around, reporter } = self;
        finish(reporter, |reporter| {
            let meant = meant(&around)?;
            warn_of(&around, reporter);
            carry_out(meant, reporter)
        })
    }
}

/// Warns of what its configuration says in vain.
fn warn_of(around: &Surroundings, reporter: &mut Reporter) {
    if let Some(warning) = around.warning() {
        reporter.warn(warning);
    }
}

/// The dialect that goes with a format.
fn dialect_of(format: Format) -> &'static dyn Dialect {
    match format {
        Format::Native => &dialect::Native,
        Format::Resume => &dialect::Resume,
        Format::Session => &dialect::Session,
        Format::Fleet => &dialect::Fleet,
        Format::Sprint => &dialect::Sprint,
    }
}

/// How answers are printed.
fn reporter(common: &Common, around: &Surroundings, command: &'static str) -> Reporter {
    let output = common
        .output
        .or_else(Output::from_environment)
        .unwrap_or(Output::Text);
    // The messages of other systems are sentences that their users know, so they are printed without tenure's
    // name.
    let format = Format::of(common, around).ok().flatten();
    let format = format.filter(|format| *format != Format::Native);
    Reporter::new(output, common.quiet, common.verbose, command.to_owned())
        .plain(format.is_some())
        .documenting(format.and_then(|format| dialect_of(format).document(command)))
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
    if args::hints_of(words).1 == "hook" && gets_event() {
        return Exit::Success;
    }
    if failure.is_silent() || failure.exit == Exit::Success {
        return report(&failure);
    }
    let (common, verb) = args::hints_of(words);
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

/// What every verb works with.
pub(crate) struct Session {
    pub(crate) place: Place,
    pub(crate) identity: Identity,
    pub(crate) clock: SystemClock,
    pub(crate) store: Locks,
    pub(crate) format: Format,
    pub(crate) dialect: &'static dyn Dialect,
    pub(crate) audit_writer: AuditWriter,
}

/// Where a call looks for the hold of a run around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looks {
    /// In the variables that it has inherited: this costs nothing.
    Inherited,
    /// In the lock, too.
    Everywhere,
    /// In the lock, too; and what was inherited counts whoever the caller is: it asks to go on under that hold.
    Within,
}

impl Session {
    /// For verbs that never sleep.
    pub(crate) fn open(place: Place) -> Result<Self, Failure> {
        Self::of_place(place, || Box::new(ThreadSleeper))
    }

    /// Opens the locks. A call about the lock of a group that takes nothing need not know beside which records the runs
    /// of that group keep it.
    fn of_place(
        place: Place,
        sleeper: impl Fn() -> Box<dyn tenure_engine::store::file::Sleeper>,
    ) -> Result<Self, Failure> {
        let beside = place.group_beside();
        let session = Self::at(place, sleeper())?;
        let Some((group, beside)) = beside else {
            return Ok(session);
        };
        let is_in_use = |session: &Self| {
            let reading = session.reading(&group);
            let entry = reading.as_ref().map(Reading::entry);
            !matches!(entry, Ok(Some(entry)) if entry.claims.is_empty())
        };
        if is_in_use(&session) {
            return Ok(session);
        }
        let there = Self::at(beside, sleeper())?;
        Ok(if is_in_use(&there) { there } else { session })
    }

    /// Opens the locks for a verb about one lock, with the id that the caller shows for it.
    pub(crate) fn of_caller<'a>(
        place: Place,
        name: &LockName,
        shown: &'a ShownId,
        reporter: &mut Reporter,
    ) -> Result<(Self, Option<&'a str>), Failure> {
        let session = Self::of_hold(place, name, shown.as_typed(), None)?;
        session.tell_place(reporter);
        let id = session.shown(name, shown)?;
        reporter.set_request_id(id.unwrap_or_default());
        Ok((session, id))
    }

    /// Opens the locks for a verb about a hold that the caller may have inherited, with this token if one is named. A command
    /// that has gone elsewhere asks after its run's hold where that hold is, unless a flag of the call names a place, or the
    /// call has a hold of that lock here.
    pub(crate) fn of_hold(
        place: Place,
        name: &LockName,
        shown: Option<&str>,
        token: Option<u64>,
    ) -> Result<Self, Failure> {
        let is_meant = |hold: &Hold| {
            hold.name == name.as_str() && token.is_none_or(|token| token == hold.token)
        };
        let elsewhere = (!place.is_typed())
            .then(|| inherited::holds().into_iter().rfind(is_meant))
            .flatten()
            .filter(|hold| !inherited::Folder::is_same(&hold.folder, &place.folder));
        let allow_network = place.allow_network;
        let session = Self::open(place)?;
        let Some(hold) = elsewhere else {
            return Ok(session);
        };
        let is_here = |claim: &Claim| match token {
            Some(token) => claim.token == Some(token),
            None => session.is_mine(claim, shown, &[]),
        };
        if session.has_hold(name, is_here) {
            return Ok(session);
        }
        let policy = session.store.policy();
        let Ok(profile) = profile::by_name(policy.name, &Settings::default()) else {
            return Ok(session);
        };
        let Some(place) = Place::noted_of(&hold.folder, allow_network, profile) else {
            return Ok(session);
        };
        let there = Self::open(place)?;
        let stands = there.has_hold(name, |claim| {
            claim.token == Some(hold.token)
                && shown.is_none_or(|id| there.is_mine(claim, Some(id), &[]))
        });
        Ok(if stands { there } else { session })
    }

    fn has_hold(&self, name: &LockName, is_it: impl Fn(&Claim) -> bool) -> bool {
        let reading = self.reading(name);
        let entry = reading.as_ref().ok().and_then(Reading::entry);
        entry.is_some_and(|entry| entry.granted().any(is_it))
    }

    /// For verbs that may wait: the signals that end a wait are collected from here on.
    pub(crate) fn waiting(place: Place, signals: Signals) -> Result<Self, Failure> {
        Self::of_place(place, || Box::new(SignalSleeper(signals)))
    }

    /// Opens it for a caller that sleeps in this way.
    pub(crate) fn at(
        mut place: Place,
        sleeper: Box<dyn tenure_engine::store::file::Sleeper>,
    ) -> Result<Self, Failure> {
        let identity = Identity::current();
        let clock = SystemClock::new(identity.host.boot_id.as_deref());
        let profile = place.take_profile();
        let format = Format::named(profile.policy().name);
        let (audit, is_named) = place.audit_folder(&*profile)?;
        let audit_writer = AuditWriter::new(
            audit,
            is_named,
            &*profile,
            place.recording,
            place.agent.clone(),
        );
        let host = identity.host.clone();
        let store = place.open(profile, host, sleeper)?;
        Ok(Self {
            place,
            identity,
            clock,
            store,
            format,
            dialect: dialect_of(format),
            audit_writer,
        })
    }

    /// Tells a person who asked for more where the locks are. Records of a format whose other programs have a folder of their
    /// own are no use at the default place, so that is said in any case.
    pub(crate) fn tell_place(&self, reporter: &mut Reporter) {
        if self.place.is_default() {
            // An agent's locks are those of the people beside it: elsewhere they exclude nobody.
            if !self.place.is_agents {
                reporter.is_at_default();
            }
            if self.store.publishes() {
                reporter.warn(format!(
                    "{}, where no other program of the profile {} looks; name its folder with --dir or TENURE_DIR",
                    self.place.told(),
                    self.store.policy().name
                ));
                return;
            }
        }
        if reporter.is_verbose() {
            reporter.explain(&self.place.told());
        }
    }

    /// An occasion for the audit. A holder of this call acts, or the caller itself.
    pub(crate) fn occasion<'a>(
        &'a self,
        name: &'a LockName,
        id: &'a RequestId,
        holder: Option<&'a Holder>,
        now: &Now,
    ) -> Occasion<'a> {
        let caller = || Party {
            actor: self.place.actor.as_ref().unwrap_or(&self.identity.actor),
            host: &self.identity.host.name,
            pid: Some(self.identity.process.pid),
            why: None,
            command: None,
        };
        let party = holder.map_or_else(caller, |holder| self.audit_writer.party(holder));
        Occasion::new(name, id, now.wall_us / 1_000).by(party)
    }

    /// On whose behalf the caller acts.
    pub(crate) fn actor(&self, given: Option<String>) -> String {
        let usual = || self.place.actor.as_ref().unwrap_or(&self.identity.actor);
        given.unwrap_or_else(|| usual().clone())
    }

    /// The holder of a new claim, with all facts that the profile's record has.
    pub(crate) fn holder(
        &self,
        request_id: RequestId,
        actor: Option<String>,
        process: Option<Process>,
        why: String,
        facts: Vec<(String, String)>,
        name: &LockName,
    ) -> Holder {
        let mut holder = Holder {
            facts,
            request_id,
            actor: self.actor(actor),
            process,
            command: None,
            host: self.identity.host.clone().into(),
            why,
        };
        if let Some(agent) = &self.place.agent {
            holder.set_agent(agent);
        }
        if let Some(leased) = self
            .place
            .leased
            .as_ref()
            .filter(|leased| leased.name == *name)
        {
            holder.set_path(&leased.shown);
        }
        self.format.complete(&mut holder);
        holder
    }

    /// The id that the caller shows for an existing lock. It has tenure's form, or the lock's record names it.
    pub(crate) fn shown<'a>(
        &self,
        name: &LockName,
        shown: &'a ShownId,
    ) -> Result<Option<&'a str>, Failure> {
        shown.id(|id| self.is_recorded(name, id))
    }

    /// Whether another program's record of this lock names its holder by this id. Such an id may have
    /// any form, and a caller that knows it must be able to show it.
    fn is_recorded(&self, name: &LockName, id: &str) -> bool {
        let Ok(reading) = self.reading(name) else {
            return false;
        };
        let mut granted = reading.entry().into_iter().flat_map(Entry::granted);
        !id.is_empty() && granted.any(|claim| self.format.shows(claim, id))
    }

    /// Whether a claim is the caller's: the caller shows its id, has inherited the hold, or descends from
    /// the claim's owner.
    pub(crate) fn is_mine(&self, claim: &Claim, shown: Option<&str>, inherited: &[Hold]) -> bool {
        self.is_mine_by(claim, shown, inherited, is_descendant_of)
    }

    /// Whether a claim is the caller's at a time, where `descends` says whether the caller descends from an owner.
    fn is_mine_by(
        &self,
        claim: &Claim,
        shown: Option<&str>,
        inherited: &[Hold],
        descends: impl Fn(&Process, &Host, &Host) -> bool,
    ) -> bool {
        if let Some(id) = shown {
            return self.format.shows(claim, id) && self.may_speak_for(claim);
        }
        if inherited::have(inherited, claim) {
            return true;
        }
        self.is_owned(claim, descends)
    }

    /// Whether the caller may release a claim: it shows the id, or it is the claim's owner. Descent
    /// from the owner is not enough. An agent's sub-shells all follow the same process, so a sub-shell
    /// that was refused would release the hold of another one.
    pub(crate) fn may_release(&self, claim: &Claim, shown: Option<&str>) -> bool {
        if shown.is_some() || self.format.lets_descendants_release() {
            return self.is_mine(claim, shown, &[]);
        }
        self.is_owned(claim, is_caller)
    }

    /// Whether the caller may be the agent that a claim names. A caller that names no agent may be: the shell of
    /// an agent does not know which one it works for. It shows the id of the hold instead.
    fn may_speak_for(&self, claim: &Claim) -> bool {
        match (&self.place.agent, claim.holder.agent()) {
            (Some(caller), Some(agent)) => caller.covers(&agent),
            (None, _) | (_, None) => true,
        }
    }

    /// Whether this very caller took a claim: the one that is recorded makes this call.
    pub(crate) fn took(&self, claim: &Claim) -> bool {
        let holder = &claim.holder;
        let caller = holder.caller();
        caller.is_some_and(|caller| is_caller(&caller, &holder.host, &self.identity.host))
    }

    /// Whether the caller names the agent that a claim names. That is no right to end the hold.
    fn is_agent_of(&self, claim: &Claim) -> bool {
        let named = self.place.agent.as_ref().zip(claim.holder.agent());
        named.is_some_and(|(caller, agent)| caller.covers(&agent))
    }

    /// Whether the agent that calls keeps a claim by itself. It need not wait for that claim: what it calls goes on under it.
    pub(crate) fn is_agents_own(&self, claim: &Claim) -> bool {
        self.place.is_agents
            && claim.kind.is_detached()
            && claim
                .holder
                .agent()
                .is_some_and(|agent| self.place.agent.as_ref() == Some(&agent))
    }

    /// The live hold of this lock that the agent which calls took by itself, for the time between its calls.
    pub(crate) fn agents_hold(&self, name: &LockName) -> Result<Option<Claim>, Failure> {
        if !self.place.is_agents {
            return Ok(None);
        }
        let reading = self.store.read(name)?;
        let now = self.clock.now();
        let mut granted = reading.entry().into_iter().flat_map(Entry::granted);
        let own =
            granted.find(|claim| self.is_agents_own(claim) && self.is_held(&reading, claim, &now));
        Ok(own.cloned())
    }

    /// Whether the caller is related to a claim's owner as `related` asks. The owner of an agent's hold is the host
    /// of all agents of a session, so that relation says nothing about one of them.
    fn is_owned(&self, claim: &Claim, related: impl Fn(&Process, &Host, &Host) -> bool) -> bool {
        claim.kind.is_detached()
            && claim.holder.agent().is_none()
            && self.format.knows_owners_by_process()
            && claim
                .holder
                .process
                .is_some_and(|owner| related(&owner, &claim.holder.host, &self.identity.host))
    }

    /// How the reader of an answer calls the program again about this lock.
    pub(crate) fn advice(&self, name: &LockName) -> Advice {
        self.place.advice(name)
    }

    pub(crate) fn inherited(&self, name: &LockName) -> Vec<Hold> {
        inherited::of(&self.place.folder, name)
    }

    pub(crate) fn reading(&self, name: &LockName) -> Result<Reading, StoreError> {
        self.store.read(name)
    }

    /// The facts of a lock as it stands now.
    pub(crate) fn view(&self, name: &LockName, shown: Option<&str>) -> Result<LockView, Failure> {
        Ok(self.view_of(name, &self.reading(name)?, shown))
    }

    /// The facts of a lock as it was read.
    pub(crate) fn view_of(
        &self,
        name: &LockName,
        reading: &Reading,
        shown: Option<&str>,
    ) -> LockView {
        self.view_by((name, reading), &self.clock.now(), shown, is_descendant_of)
    }

    /// A view that says whether a request of this mode would get the lock; without one, a plain request.
    pub(crate) fn in_mode(
        &self,
        view: LockView,
        mode: Option<Mode>,
        (name, reading): (&LockName, &Reading),
        now: &Now,
    ) -> LockView {
        let mode = mode.unwrap_or_else(|| self.place.plain_mode(name));
        view.for_mode(mode, reading, self.store.policy(), now)
    }

    /// A view for a caller that keeps holds for a program. `keeps` says which claims they are.
    #[cfg(unix)]
    pub(crate) fn view_of_keeper(
        &self,
        name: &LockName,
        reading: &Reading,
        keeps: impl Fn(&Claim) -> bool,
    ) -> LockView {
        let (policy, inherited) = (self.store.policy(), self.inherited(name));
        let mut view = LockView::of(name, reading, policy, &self.clock.now(), |claim| {
            keeps(claim)
                || self.is_mine_by(claim, None, &inherited, is_descendant_of)
                || self.is_agent_of(claim)
        });
        self.call_as_asked(&mut view, name);
        view
    }

    /// Names the lock as the call does, and has its reader find it.
    pub(crate) fn call_as_asked(&self, view: &mut LockView, name: &LockName) {
        view.advice = self.advice(name);
        let leased = self.place.leased.as_ref();
        if let Some(leased) = leased.filter(|leased| leased.name == *name) {
            view.path.get_or_insert_with(|| leased.shown.clone());
        }
    }

    /// The view of a lock, where `descends` says whether the caller descends from an owner.
    fn view_by(
        &self,
        (name, reading): (&LockName, &Reading),
        now: &Now,
        shown: Option<&str>,
        descends: impl Fn(&Process, &Host, &Host) -> bool,
    ) -> LockView {
        let inherited = self.inherited(name);
        let mut view = LockView::of(name, reading, self.store.policy(), now, |claim| {
            self.is_mine_by(claim, shown, &inherited, &descends) || self.is_agent_of(claim)
        });
        self.call_as_asked(&mut view, name);
        view
    }

    /// The live hold of this lock by a run that the caller is inside of. `looks` says where to look for one whose
    /// variables the caller did not inherit (`env -i`, sudo).
    pub(crate) fn outer_hold(
        &self,
        name: &LockName,
        looks: Looks,
    ) -> Result<Option<Claim>, Failure> {
        let inherited = self.inherited(name);
        if inherited.is_empty() && looks == Looks::Inherited {
            return Ok(None);
        }
        let reading = self.reading_of_named(name, &inherited, looks)?;
        let now = self.clock.now();
        let mut granted = reading.entry().into_iter().flat_map(Entry::granted);
        let is_outer = |claim: &Claim| {
            self.is_around(claim, &inherited)
                || looks == Looks::Within && inherited::have(&inherited, claim)
        };
        let outer = granted.find(|claim| is_outer(claim) && self.is_held(&reading, claim, &now));
        Ok(outer.cloned())
    }

    /// A lock in which a run around this call has its command recorded, which takes some milliseconds from its start. Before
    /// that, nobody can tell a daemon that the command has left behind from the command itself.
    fn reading_of_named(
        &self,
        name: &LockName,
        inherited: &[Hold],
        looks: Looks,
    ) -> Result<Reading, StoreError> {
        let until = instant() + NAMED_SOON;
        loop {
            let reading = self.store.read(name)?;
            let is_unclear = |claim: &Claim| {
                inherited::is_unnamed_run(claim)
                    && inherited::have(inherited, claim)
                    && inherited::kin_of(claim, &self.identity.host) == Kin::Unknown
            };
            let is_unclear = looks != Looks::Within && {
                let mut granted = reading.entry().into_iter().flat_map(Entry::granted);
                granted.any(is_unclear)
            };
            if !is_unclear || instant() >= until {
                return Ok(reading);
            }
            nap(NAMED_LOOK);
        }
    }

    /// Whether a claim of a lock that was read stands at this time.
    pub(crate) fn is_held(&self, reading: &Reading, claim: &Claim, now: &Now) -> bool {
        let standing = reading.standing_of(self.store.policy(), claim, now);
        matches!(standing, Standing::Held(_))
    }

    /// Whether this call is a part of the work of a claim. Ancestry decides. Where ancestry cannot be seen, the holds
    /// that the caller has inherited do: they outlive the run, and whoever got them is not always inside.
    pub(crate) fn is_around(&self, claim: &Claim, inherited: &[Hold]) -> bool {
        match inherited::kin_of(claim, &self.identity.host) {
            Kin::Inside => true,
            Kin::Outside => false,
            Kin::Unknown => inherited::have(inherited, claim),
        }
    }

    /// The answer to a caller that would wait without end for a hold of its own owner.
    fn waits_for_itself(&self, name: &LockName, claim: &Claim) -> Failure {
        let owner = claim.holder.process.map(|process| process.pid);
        let owner = owner.map_or_else(String::new, |pid| format!(", PID {pid}"));
        let is_agents = self.is_agents_own(claim);
        let message = match claim.holder.agent().filter(|_| is_agents) {
            Some(agent) => format!(
                "{name} is held by this agent itself, {agent}; its commands go on under that hold"
            ),
            None => format!(
                "{name} is held in the name of the caller's own owner{owner}; the caller may wait for \
                 itself, without end"
            ),
        };
        let failure = Failure::new(Exit::Deadlock, "ALREADY_HELD", message);
        let bounded = if is_agents {
            ""
        } else {
            "; with a bounded --wait it waits all the same"
        };
        let text = format!(
            "{}\n{:8}{}{bounded}",
            failure.message,
            "",
            give_back(&self.advice(name), claim)
        );
        failure.with_text(text).with_context(json!({
            "name": name.as_str(),
            "token": claim.token,
            "mine": true,
            "request_id": known_as(&claim.holder),
        }))
    }

    /// Refuses to wait, inside a run, for a lock that this run itself holds: the wait would never end.
    pub(crate) fn refuse_own_hold(&self, name: &LockName) -> Result<(), Failure> {
        match self.outer_hold(name, Looks::Everywhere)? {
            None => Ok(()),
            Some(claim) => Err(already_held(name, &claim)),
        }
    }

    /// Acquires a lock, shows the wait, and reports what happened on the way.
    pub(crate) fn acquire(
        &self,
        reporter: &mut Reporter,
        name: &LockName,
        request: &Request,
        limits: Limits,
        tend: &mut (dyn Tend + Send + Sync),
    ) -> Result<Acquired, Failure> {
        at_once(self.acquire_in(None, reporter, name, request, limits, tend))
    }

    /// [`Session::acquire`] for a caller that sleeps in a lot.
    pub(crate) async fn acquire_in(
        &self,
        lot: Option<&dyn Lot>,
        reporter: &mut Reporter,
        name: &LockName,
        request: &Request,
        limits: Limits,
        tend: &mut (dyn Tend + Send + Sync),
    ) -> Result<Acquired, Failure> {
        let began = instant();
        let acquired = self.try_acquire_in(lot, reporter, name, request, limits, tend);
        let acquired = acquired.await;
        if let Err(failure) = &acquired {
            self.record_refusal(reporter, name, request, failure, since(began));
        }
        acquired
    }

    async fn try_acquire_in(
        &self,
        lot: Option<&dyn Lot>,
        reporter: &mut Reporter,
        name: &LockName,
        request: &Request,
        limits: Limits,
        tend: &mut (dyn Tend + Send + Sync),
    ) -> Result<Acquired, Failure> {
        self.refuse_older_hold(name)?;
        let mut attendance = Attendance::new(reporter, self, name, request, limits.wait, tend);
        let (store, clock) = (&*self.store, &self.clock);
        let acquired = engine::acquire_in(
            lot,
            store,
            clock,
            name,
            request.clone(),
            limits,
            &mut attendance,
        );
        let acquired = acquired.await;
        let (interruption, own) = (attendance.interruption.take(), attendance.own.take());
        let behind = attendance.behind.take();
        drop(attendance);
        match (&acquired, interruption, own) {
            (Err(_), Some(interruption), _) => return Err(interruption.failure()),
            (Err(_), None, Some(own)) if own.kind.is_detached() => {
                return Err(self.waits_for_itself(name, &own));
            }
            (Err(_), None, Some(own)) => return Err(already_held(name, &own)),
            (Err(_), None, None) | (Ok(_), _, _) => {}
        }
        if let Ok(Some(warning)) = self.store.warning() {
            reporter.warn(warning);
        }
        let looks_around = match &acquired {
            Ok(_) => true,
            Err(_) => reporter.shows_waits(),
        };
        if looks_around {
            near::point_out_others(self, reporter, name);
        }
        if acquired.as_ref().is_ok_and(|acquired| acquired.is_first) {
            near::point_out_case(self, reporter, name);
        }
        let mut acquired = acquired.map_err(|error| {
            let failure = self.explain(name, error);
            if failure.code == "LOCK_HELD"
                && let Ok(Some(outer)) = self.outer_hold(name, Looks::Everywhere)
            {
                return already_held(name, &outer);
            }
            // A caller that does not wait has not found that out on the way.
            if failure.code == "LOCK_HELD"
                && self.place.is_agents
                && let Ok(reading) = self.reading(name)
                && let Some(own) = attend::own_hold(self, &reading, request.terms.mode, u64::MAX)
            {
                return self.waits_for_itself(name, &own);
            }
            if failure.code == "LOCK_HELD" {
                self.say_unheeded(reporter, request.force);
            }
            self.after_force(failure, name, request.force)
        })?;
        acquired.events.retain(|event| !run::is_ordinary_end(event));
        self.record_grant(reporter, name, &acquired, request.force, behind.as_ref());
        self.tell(reporter, &PersonLine::Acquired { name });
        ignored::tell(reporter, self, name);
        Ok(acquired)
    }

    /// Has a claim say what the slots stand for, and refuses one of another pool.
    pub(crate) fn agree_on_members(
        &self,
        name: &LockName,
        mode: Mode,
        pool: &Pool,
        holder: &mut Holder,
    ) -> Result<(), Failure> {
        let own = pool.members();
        if let Some(members) = own {
            holder.set_members(members);
        }
        if mode == Mode::Exclusive {
            return Ok(());
        }
        let reading = self.reading(name)?;
        self.another_pool((name, &reading), own.unwrap_or_default())
            .map_or(Ok(()), Err)
    }

    /// Refuses a question about a mode whose claim would be of another pool, as its caller finds the file now.
    pub(crate) fn refuse_another_pool(
        &self,
        read: (&LockName, &Reading),
        mode: Mode,
    ) -> Result<(), Failure> {
        if mode == Mode::Exclusive {
            return Ok(());
        }
        let own = self.place.members_now(read.0).unwrap_or_default();
        self.another_pool(read, &own).map_or(Ok(()), Err)
    }

    /// The refusal of a claim that would hold beside slots, and whose caller does not know what these stand for where
    /// another caller does, or knows none of the members that another caller knows: these are two pools. A list that was
    /// edited, or has another order, is the same pool, for each hold records its own member.
    fn another_pool(
        &self,
        (name, reading): (&LockName, &Reading),
        own: &[String],
    ) -> Option<Failure> {
        let (entry, now) = (reading.entry()?, self.clock.now());
        let differs = |claim: &&Claim| {
            let mut theirs = claim.holder.members();
            let is_known = |member: &str| own.iter().any(|own| own == member);
            let differs = theirs.next().is_some_and(|first| !is_known(first));
            differs && !theirs.any(is_known) && self.is_held(reading, claim, &now)
        };
        let other = entry.granted().find(differs)?;
        let whose = other.holder.process.map_or_else(
            || format!("request {}", clean(known_as(&other.holder))),
            |process| format!("PID {}", process.pid),
        );
        let theirs: Vec<&str> = other.holder.members().collect();
        let theirs = theirs.join(", ");
        let members = clean(&theirs);
        let knows = match own {
            [] => "names none".to_owned(),
            own => format!("names others: {}", clean(&own.join(", "))),
        };
        Some(Failure::new(
            Exit::BadArguments,
            "BAD_CONFIGURATION",
            format!(
                "a holder of {name} ({whose}) has a slot that stands for one of {members}; the configuration of this call \
                 {knows}. Name the file with --config"
            ),
        ))
    }

    /// Refuses a native lock that a caller before this release holds in the folder of the records around this call.
    fn refuse_older_hold(&self, name: &LockName) -> Result<(), Failure> {
        let Some(folder) = &self.place.was_at else {
            return Ok(());
        };
        let Some((older, view)) = self.held_elsewhere(name, folder)? else {
            return Ok(());
        };
        let message = format!(
            "{} (in {}, where an older tenure keeps it)",
            view.headline(),
            clean_path(&older.place.folder)
        );
        Err(Failure::new(Exit::Precondition, "LOCK_HELD", message).with_context(view.json()))
    }

    /// The native lock of this name in another folder, if it is held there.
    fn held_elsewhere(
        &self,
        name: &LockName,
        folder: &Path,
    ) -> Result<Option<(Self, LockView)>, Failure> {
        if folder
            .join(Native.file_name(name))
            .symlink_metadata()
            .is_err()
        {
            return Ok(None);
        }
        let Some(place) = Place::noted(folder, self.place.allow_network) else {
            return Ok(None);
        };
        let other = Self::open(place)?;
        let (reading, now) = (other.reading(name)?, other.clock.now());
        let mut granted = reading.entry().into_iter().flat_map(Entry::granted);
        if !granted.any(|claim| other.is_held(&reading, claim, &now)) {
            return Ok(None);
        }
        let view = other.view_of(name, &reading, None);
        Ok(Some((other, view)))
    }

    /// Reports a grant and what happened on the way to it, here and in the audit.
    pub(crate) fn record_grant(
        &self,
        reporter: &mut Reporter,
        name: &LockName,
        acquired: &Acquired,
        force: Force,
        behind: Option<&Behind>,
    ) {
        self.report_events(reporter, name, &acquired.events);
        let (claim, now) = (&acquired.claim, self.clock.now());
        let id = RequestId::as_recorded(known_as(&claim.holder));
        self.audit_writer.acquired(
            reporter,
            self.occasion(name, &id, Some(&claim.holder), &now),
            &Grant {
                claim,
                lock_path: self.store.place(name).as_ref(),
                events: &acquired.events,
                forced: force != Force::No,
                waited: acquired.waited,
                behind,
            },
        );
    }

    /// Records that a call did not get a lock. A store that failed gave no answer, and would keep no line.
    #[cold]
    #[inline(never)]
    pub(crate) fn record_refusal(
        &self,
        reporter: &mut Reporter,
        name: &LockName,
        request: &Request,
        failure: &Failure,
        waited: Duration,
    ) {
        let is_answer = matches!(
            failure.exit,
            Exit::Precondition
                | Exit::Timeout
                | Exit::Superseded
                | Exit::LockLost
                | Exit::Deadlock
                | Exit::Signalled(_)
        );
        if !is_answer {
            return;
        }
        let (holder, now) = (&request.holder, self.clock.now());
        let id = RequestId::as_recorded(known_as(holder));
        let skips = self.audit_writer.skips();
        let skips = skips.filter(|_| failure.is_of_a_held_lock());
        let occasion = self.occasion(skips.unwrap_or(name), &id, Some(holder), &now);
        self.audit_writer
            .refused(reporter, occasion, failure, waited, skips.is_some());
    }

    /// Releases by name what the caller owns, and records the outcome: under the holder's id, or under the
    /// caller's if that is not the holder. `failed` words an error of the store.
    pub(crate) fn release_owned(
        &self,
        reporter: &mut Reporter,
        name: &LockName,
        shown: Option<&str>,
        result: &RunResult,
        owns: &dyn Fn(&Claim) -> Ownership,
        failed: impl FnOnce(StoreError) -> Failure,
    ) -> Result<Released, Failure> {
        let released = self.store.release_owned(name, &owns, &self.clock.now());
        let now = self.clock.now();
        match &released {
            Ok(Released::Done {
                claim,
                held_ms,
                by_other,
            }) => {
                let id = if *by_other {
                    audit_writer::acting(shown)?
                } else {
                    RequestId::as_recorded(known_as(&claim.holder))
                };
                let holder = (!by_other).then_some(&claim.holder);
                let occasion = self.occasion(name, &id, holder, &now);
                let ending = result.ending();
                let releaser = if *by_other {
                    Releaser::Other(Some(claim))
                } else {
                    Releaser::Owner
                };
                self.audit_writer
                    .released(reporter, occasion, *held_ms, ending, releaser);
            }
            Ok(Released::Unreadable { record }) => {
                let acting = audit_writer::acting(shown)?;
                self.audit_writer.removed(
                    reporter,
                    self.occasion(name, &acting, None, &now),
                    None,
                    record,
                );
            }
            Ok(Released::Absent | Released::NotOwner { .. } | Released::Ignored { .. }) => {}
            Err(error) => {
                let (acting, place) = (audit_writer::acting(shown)?, self.store.place(name));
                self.audit_writer.release_failed(
                    reporter,
                    self.occasion(name, &acting, None, &now),
                    &place,
                    error,
                );
            }
        }
        released.map_err(failed)
    }

    /// Records the stale holds that a cleaning removed.
    pub(crate) fn record_cleaned(
        &self,
        reporter: &mut Reporter,
        name: &LockName,
        cleaned: &Cleaned,
    ) -> Result<(), Failure> {
        let (acting, now) = (audit_writer::acting(None)?, self.clock.now());
        let occasion = self.occasion(name, &acting, None, &now);
        let holds = cleaned
            .swept
            .iter()
            .filter(|claim| claim.token.is_some() && !ends_without_release(claim));
        for claim in holds {
            self.audit_writer
                .removed(reporter, occasion, Some(claim), &cleaned.record);
        }
        if cleaned.swept.is_empty() && !cleaned.record.is_empty() {
            self.audit_writer
                .removed(reporter, occasion, None, &cleaned.record);
        }
        Ok(())
    }

    /// Warns of each takeover on the way to a grant.
    #[cold]
    #[inline(never)]
    fn report_events(&self, reporter: &mut Reporter, name: &LockName, events: &[Event]) {
        let now = self.clock.now();
        for event in events {
            if let Event::Stolen { why, previous, .. } = event {
                let line = self.dialect.line(&PersonLine::TookOver {
                    name,
                    why: *why,
                    previous: previous.as_deref(),
                    now: &now,
                });
                if let Some(line) = line {
                    reporter.warn(line);
                }
                if let Some(line) = previous
                    .as_deref()
                    .and_then(|claim| self.goes_on(name, claim))
                {
                    reporter.warn(line);
                }
            }
        }
    }

    /// The warning that the command of a hold that was taken over is still at work.
    fn goes_on(&self, name: &LockName, claim: &Claim) -> Option<String> {
        let (holder, here) = (&claim.holder, &self.identity.host);
        let seen = |process: Option<Process>| match process {
            Some(process) => liveness(&process, &holder.host, here, false),
            None => Liveness::NotRecorded,
        };
        // The byte went with the claim. A run whose supervisor lives learns of the loss, and ends its command.
        let evidence = Evidence {
            liveness_lock: LivenessLock::None,
            process: seen(holder.process),
            command: seen(holder.command),
        };
        let command = holder.command.filter(|_| is_orphan(claim, &evidence));
        command.map(|command| {
            format!(
                "{name}: the command of the run before, PID {} ({}), is still at work, and no supervisor is left to \
                 end it",
                command.pid,
                clean(&claim.holder.why)
            )
        })
    }

    /// Turns an error of the store into the caller's failure, in the words of the profile.
    pub(crate) fn store_failed(&self, name: &LockName, error: StoreError) -> Failure {
        let unreadable = match &error {
            StoreError::Unreadable { why, .. } => Some(why.clone()),
            _ => None,
        };
        match unreadable {
            Some(why) => {
                let mut failure = Failure::from(error);
                let advice = if self.store.policy().unreadable == UnreadableRule::Stale {
                    "the next `acquire` or `run` replaces it".to_owned()
                } else {
                    let line = self.advice(name).line(&["force-release"], &[]);
                    format!("look at what stands there; `{line}` removes it")
                };
                failure.text = Some(format!("{}\n{:8}{advice}", failure.message, ""));
                let why = CallRefusal::Unreadable { name, why: &why };
                self.dialect.refusal(failure, &why)
            }
            None => error.into(),
        }
    }

    /// Puts a refusal because of another holder into the words of the profile.
    pub(crate) fn blocked(&self, failure: Failure, view: &LockView, reason: Reason) -> Failure {
        let why = CallRefusal::Blocked { view, reason };
        self.dialect.refusal(failure, &why)
    }

    /// The text for stdout on success: the profile's, otherwise tenure's own.
    pub(crate) fn text_of(&self, done: &CallResult<'_>, own: impl FnOnce() -> String) -> String {
        self.dialect.answer(done).unwrap_or_else(own)
    }

    /// Prints the profile's line about it, if the profile has one.
    pub(crate) fn tell(&self, reporter: &Reporter, about: &PersonLine<'_>) {
        if let Some(line) = self.dialect.line(about) {
            reporter.inform(&line);
        }
    }

    /// The facts of a refusal. One more read says what is wrong with an unreadable record.
    pub(crate) fn refused(&self, name: &LockName, refusal: &Refusal, entry: &Entry) -> LockView {
        let mut view = LockView::refused(
            name,
            self.store.place(name),
            refusal,
            entry,
            self.store.policy(),
            &self.clock.now(),
        );
        self.call_as_asked(&mut view, name);
        if !self.store.is_remote() {
            let claims = entry.granted().chain(refusal.blocker.as_deref());
            view.show_stopped(&stopped_among(claims, &self.identity.host));
        }
        let nobody_is_named = matches!(refusal.standing, Standing::Stale(StaleReason::Unreadable));
        if (refusal.reason == Reason::Unreadable || nobody_is_named)
            && let Ok(reading) = self.reading(name)
            && let Content::Unreadable { why, silence } = reading.content
        {
            view.unreadable(why, silence, self.store.policy());
        }
        // Only this profile says more of a holder that cannot be seen.
        if self.store.policy().unknown_life == UnknownLife::Alive
            && let Ok(reading) = self.reading(name)
        {
            view.show_sight(&reading, self.store.policy(), &self.clock.now());
            let ends = view.holder.as_ref().and_then(|holder| holder.ends_in_ms);
            view.retry_after_ms = ends.or(view.retry_after_ms);
        }
        // The refusal judged only the blocker, so the other holders are judged here.
        if !view.other_holders.is_empty()
            && let Ok(reading) = self.reading(name)
            && let Some(entry) = reading.entry()
        {
            for other in &mut view.other_holders {
                let claim = entry.granted().find(|claim| claim.token == other.token);
                if claim.is_some_and(|claim| reading.is_orphan(claim)) {
                    other.is_orphaned();
                }
            }
        }
        view
    }

    /// How much the caller insists. Refuses force that would change nothing: the call would wait, or be
    /// refused, just as without it.
    pub(crate) fn force(&self, force: Force) -> Result<Force, Failure> {
        let policy = self.store.policy();
        if force == Force::No || policy.heeds_force() {
            return Ok(force);
        }
        Err(Failure::bad_arguments(format!(
            "--force has no effect in the profile {}: it never ends a live hold (force = \"never\"), \
             and a stale one is taken over without it",
            policy.name
        )))
    }

    /// Says why force did not end the blocking live hold, if the profile never lets it.
    pub(crate) fn say_unheeded(&self, reporter: &mut Reporter, force: Force) {
        let policy = self.store.policy();
        if force != Force::No && policy.force_on_held == ForceOnHeld::Never {
            reporter.warn(format!(
                "force never ends a live hold in the profile {} (force = \"never\")",
                policy.name
            ));
        }
    }

    /// The refusal of a call that used force: it does not advise force, but says why force did not help.
    pub(crate) fn after_force(
        &self,
        mut failure: Failure,
        name: &LockName,
        force: Force,
    ) -> Failure {
        if failure.code != "LOCK_UNREADABLE" || force == Force::No {
            return failure;
        }
        // A profile's own answer is a document, which says when force helps.
        if !failure.is_answer {
            failure.text = None;
        }
        // Without this entry the store itself refused, and its message says why.
        let because = failure.context.get("unreadable_because");
        let Some(because) = because
            .and_then(serde_json::Value::as_str)
            .map(str::to_owned)
        else {
            return failure;
        };
        let rest = failure.context.get("force_after_ms");
        let why = match rest.and_then(serde_json::Value::as_u64) {
            Some(rest) => format!(
                "{because}; what can be read of it counts for {} yet",
                age(rest)
            ),
            None => because,
        };
        failure.message = format!(
            "{} cannot be read, and --force did not replace it: {why}",
            self.store.place(name)
        );
        failure
    }

    /// The hold that blocks a native claim, if the caller's own script may have taken it.
    fn own_blocker<'a>(&self, refusal: &'a Refusal) -> Option<&'a Claim> {
        let claim = refusal.blocker.as_deref()?;
        let is_native = self.store.profile().record().is_none();
        let is_held = refusal.reason == Reason::Held && claim.token.is_some();
        (is_native && is_held && self.is_mine(claim, None, &[])).then_some(claim)
    }

    /// Turns a failed attempt to acquire into the caller's failure.
    #[cold]
    #[inline(never)]
    pub(crate) fn explain(&self, name: &LockName, error: AcquireError) -> Failure {
        match error {
            AcquireError::Refused {
                refusal,
                entry,
                waited,
                retry_after_ms,
                kept,
                displaced,
            } => {
                let mut view = self.refused(name, &refusal, &entry);
                let own = self.own_blocker(&refusal);
                view.mine = own.is_some();
                let failure = failure_of(view.clone(), refusal.reason, waited, retry_after_ms);
                let mut failure = self.blocked(failure, &view, refusal.reason);
                if let (Some(own), Some(text)) = (own, &mut failure.text) {
                    text.push_str("\n        the caller may be waiting for itself: ");
                    text.push_str(&give_back(&view.advice, own));
                }
                note_superseded(&mut failure, &displaced);
                if let Some(ticket) = kept {
                    let kept_ms = u64::try_from(ticket::GRACE.as_millis()).unwrap_or(u64::MAX);
                    failure.context.insert("ticket".into(), ticket.into());
                    failure
                        .context
                        .insert("ticket_kept_ms".into(), kept_ms.into());
                    // Other profiles' answers are documents or sentences of their own.
                    if !self.store.publishes()
                        && let Some(text) = &mut failure.text
                    {
                        text.push_str("\n        ");
                        text.push_str(&ticket::how_to_come_back(ticket));
                    }
                }
                failure
            }
            AcquireError::NotKept => Failure::new(
                Exit::NotFound,
                "TICKET_NOT_FOUND",
                format!(
                    "no place is kept in the queue of {name} under that ticket; it lapsed, or \
                     another call uses it"
                ),
            ),
            AcquireError::Deadlock => Failure::new(
                Exit::Deadlock,
                "DEADLOCK",
                format!("a holder of {name} waits for this run itself, so this run gives way"),
            ),
            AcquireError::Interrupted => cancelled("acquire"),
            AcquireError::Superseded { by } => {
                envelope::Failure::cancelled_for(name, &by, false).into()
            }
            AcquireError::Store(error) => self.store_failed(name, error),
        }
    }
}

/// Says in the answer of a call that gives up which runs made way for it.
pub(crate) fn note_superseded(failure: &mut Failure, displaced: &[RequestId]) {
    if displaced.is_empty() {
        return;
    }
    let ids: Vec<&str> = displaced.iter().map(RequestId::as_str).collect();
    let all = failure.context.entry("superseded").or_insert(json!([]));
    if let Some(all) = all.as_array_mut() {
        all.extend(ids.iter().map(|id| json!(id)));
    }
    // A document of another system stands as it is.
    if failure.is_answer {
        return;
    }
    let made_way = format!(
        "request id {} made way for this call, and does not come back",
        clean(&ids.join(", "))
    );
    match &mut failure.text {
        Some(text) => {
            text.push_str("\n        ");
            text.push_str(&made_way);
        }
        None => failure.text = Some(format!("{}\n        {made_way}", failure.message)),
    }
}

/// The answer of a call that a signal ended.
pub(crate) fn cancelled(phase: &'static str) -> Failure {
    cancelled_by(signals::stop_asked().unwrap_or(libc::SIGTERM), phase)
}

/// The answer of a call that a known signal ended.
pub(crate) fn cancelled_by(number: i32, phase: &'static str) -> Failure {
    let signal = match number {
        libc::SIGINT => "SIGINT",
        libc::SIGHUP => "SIGHUP",
        libc::SIGQUIT => "SIGQUIT",
        _ => "SIGTERM",
    };
    let mut failure = Failure::new(
        signalled(number),
        "CANCELLED",
        format!("Cancelled by {signal}"),
    );
    failure.partial = true;
    failure.signal = Some(signal);
    failure.phase = Some(phase);
    failure
}

/// Whether a hold in one mode has all that the wanted mode would give.
pub(crate) fn covers(held: Mode, wanted: Mode) -> bool {
    held == Mode::Exclusive || held == wanted
}

/// How long a call waits until the command of the run around it is recorded, and how often it looks.
const NAMED_SOON: Duration = Duration::from_millis(500);
const NAMED_LOOK: Duration = Duration::from_millis(10);

/// The answer to a caller that wants a lock which its own run holds.
fn already_held(name: &LockName, claim: &Claim) -> Failure {
    let because = match claim.mode {
        Mode::Exclusive => "; waiting for it would never end",
        Mode::Shared | Mode::Slots(_) => ", and a run holds a lock once",
    };
    Failure::new(
        Exit::Deadlock,
        "ALREADY_HELD",
        format!("{name} is held by this run itself{because} (`run --reentrant` goes on under it)"),
    )
    .with_context(json!({ "name": name.as_str(), "token": claim.token }))
}

/// What to do about a hold that may be the caller's own.
fn give_back(advice: &Advice, claim: &Claim) -> String {
    let line = advice.line(&["release"], &["--request-id", known_as(&claim.holder)]);
    format!("if the caller itself took it, `{line}` gives it back")
}

/// The answer of a run that another one displaced.
pub(crate) fn superseded(name: &LockName, by: &tenure_core::Cancel) -> Failure {
    envelope::Failure::cancelled_for(name, by, true).into()
}

/// The answer of a run that lost a lock while it waited for the next one, so its command does not start.
pub(crate) fn lost_before_the_start(name: &LockName) -> Failure {
    Failure::new(
        Exit::LockLost,
        "LOCK_LOST",
        format!("{name} was lost before the command started, so it has not run"),
    )
    .with_context(json!({ "name": name.as_str() }))
}

/// Runs the body of a verb and shows its answer or its failure.
pub(crate) fn finish(
    mut reporter: Reporter,
    body: impl FnOnce(&mut Reporter) -> Result<(String, serde_json::Value), Failure>,
) -> Exit {
    match body(&mut reporter) {
        Ok((text, data)) => reporter.succeed(&text, data),
        Err(failure) => reporter.fail(&failure),
    }
}

/// The reporter of a verb whose answer is a file for another program. Such a file has one form, so a caller
/// that asks for another output is refused.
fn one_form(output: Option<Output>, verb: &str, what: &str) -> Result<Reporter, Exit> {
    let output = output.unwrap_or(Output::Text);
    let reporter = Reporter::new(output, false, false, verb.to_owned());
    if output == Output::Text {
        return Ok(reporter);
    }
    Err(reporter.fail(&Failure::bad_arguments(format!(
        "{verb} prints {what}, which have no other format; leave --output out"
    ))))
}

/// Starts to collect the signals that end a wait.
pub(crate) fn collect_signals() -> Result<Signals, Failure> {
    Signals::collect().map_err(|error| {
        Failure::new(
            Exit::General,
            "NO_SIGNALS",
            format!("signals cannot be collected: {error}"),
        )
    })
}
