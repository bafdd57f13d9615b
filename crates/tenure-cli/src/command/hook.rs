//! `hook`: answers a coding agent's host, which asks before and after each call of a tool. One event comes on stdin,
//! one answer goes to stdout.
//!
//! **A hook never stands in the way by accident.** Where no rule of `tenure.toml` is about a call, it says nothing and
//! exits 0. Where tenure itself fails, the rule decides: `open` lets the call go on with a message, `closed` refuses it
//! and names the fault. A host takes a hook that is late for one that agrees. So a second thread does the work, and
//! this one answers within three seconds in any case.
//!
//! **A hook never exits 2 where an event is on stdin**, whatever its arguments are (`instead_of`). A host takes 2 for a
//! refusal, and at the end of a turn for "go on": then a hook that fails each time makes an endless loop of calls of
//! the model. For the same reason only the event before a call is ever refused (`event::may_be_a_call`).
//!
//! What an event says, `event` reads; `commands` finds the commands that run under a lock, and `folders` where; `leases`
//! takes what a file needs, `memory` remembers, `proof` knows whether rewrites arrive, `faults` what follows where
//! tenure itself fails, and `answer` the words of the hosts.

mod answer;
mod commands;
mod event;
mod faults;
mod folders;
mod leases;
mod memory;
mod paths;
mod proof;

use super::agent::form;
use super::agent::permissions::{self, CommandText, Permission};
use super::agent::probe;
use crate::args::Common;
use crate::args::value::AgentHost;
use crate::exit::Exit;
use crate::host::{Caller, Ruling, Tool};
use crate::request::HookArgs;
use crate::request::{About, Misread, Place, Surroundings};
use crate::signals::{Stream, write_within};
use crate::verb;
use answer::{Answer, Decision};
use commands::{Found, Limits};
use event::{Call, EVENT_MAX, Event, Kind, Read};
use faults::{fault, unread};
use hmac_sha256::Hash as Sha256;
use leases::{Leased, Needed, Refused, Untold};
#[cfg(feature = "mcp")]
pub(super) use memory::agent_of_call;
use memory::{Memory, Proof};
pub(super) use proof::ran;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{BufRead as _, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tenure_core::{AgentKey, LockName};
use tenure_engine::config::{CommandRule, Config, OnError};
use tenure_engine::shell;
use tenure_os::clock::{Clock, SystemClock, instant};
use tenure_store::advice;
use tenure_store::contract::AgentSign;
use tenure_store::printed::hex;

/// When it answers at the latest.
const PATIENCE: Duration = Duration::from_millis(2_800);

/// How long the answer itself may take.
const WRITE: Duration = Duration::from_millis(150);

/// How long a call waits for leases.
const WAIT: Duration = Duration::from_secs(2);

/// What has to be left of the time when a wait is over.
const RESERVE: Duration = Duration::from_millis(400);

/// How much of an event that is too long is read, so that its host can write it.
const DRAIN_MAX: u64 = 256 << 20;

/// How long a call is taken to last whose host has no limit.
const UNLIMITED: Limits = Limits {
    usual: Duration::from_secs(120),
    most: Duration::from_secs(600),
};

/// The longest answer that is remembered, and the longest command that a refusal repeats or that proves anything.
const TEXT_MAX: usize = 8 << 10;
const FORM_MAX: usize = 2_000;

/// What the thread that works has found out, for the one that answers at the timeout.
#[derive(Debug, Default)]
struct Progress {
    /// What is on stdin begins as an event does.
    is_event: bool,
    is_closed: bool,
    /// What it does now, as the end of a sentence. At first it reads the event.
    doing: Option<&'static str>,
    /// What follows from a late answer to an event that is about no call, or comes behind it.
    follows: Option<&'static str>,
}

/// An event on its way to an answer.
struct Work {
    /// Who asks; for a call that does not say so, whoever the event tells.
    host: AgentHost,
    began: Instant,
    progress: Arc<Mutex<Progress>>,
}

#[cold]
#[inline(never)]
pub(super) fn hook(args: &HookArgs) -> Exit {
    answered(Some(args.host)).unwrap_or(Exit::Success)
}

/// Answers the event on stdin of a call that is no good `hook HOST`: a call without any word, as hosts make it that ignore
/// the arguments of a hook, or a `hook` that cannot be read. The event tells the host. `None` where no event is there: then a
/// person has typed it.
#[cold]
#[inline(never)]
pub(super) fn instead_of(words: &[OsString]) -> Option<Exit> {
    let is_hosts = words.len() <= 1 || verb::hints_of(words).1 == "hook";
    if !is_hosts || std::io::stdin().is_terminal() {
        return None;
    }
    answered(None)
}

/// Answers the event on stdin. `None` if none is there, and the call names no host.
fn answered(host: Option<AgentHost>) -> Option<Exit> {
    let began = instant();
    let progress = Arc::new(Mutex::new(Progress::default()));
    let (tell, told) = mpsc::channel();
    let own = Arc::clone(&progress);
    let started = std::thread::Builder::new().spawn(move || {
        let (answer, sign) = answer(host, began, &own).unzip();
        let _ = tell.send(answer);
        // What the answer does not depend on comes behind it.
        if let Some(sign) = sign.flatten() {
            sign.note();
        }
    });
    let left = || PATIENCE.saturating_sub(instant().saturating_duration_since(began));
    let late = |why: &str| {
        let progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(host) = host else {
            return progress.is_event.then_some(None);
        };
        let doing = progress.doing.unwrap_or("the event was read");
        let why = format!("{why}, while {doing}");
        let answer = match progress.follows {
            Some(follows) => Answer::message(format!("{why}; {follows}")),
            None => fault(progress.is_closed, &why),
        };
        Some(answer.text(host))
    };
    let text = match started {
        // The rules say what follows, and this thread can find them as well. Nothing ends it in time then.
        Err(_) => answer(host, began, &progress).map(|(text, _)| text),
        Ok(_) => match told.recv_timeout(left()) {
            Ok(text) => text,
            Err(RecvTimeoutError::Timeout) => late("nothing was found out within 3 seconds"),
            Err(RecvTimeoutError::Disconnected) => {
                late("it broke off, which is a mistake in tenure")
            }
        },
    };
    let text = text?;
    if let Some(mut text) = text {
        text.push('\n');
        // A host that does not read has decided already.
        let _ = write_within(Stream::Out, text.as_bytes(), WRITE);
    }
    // Until the thread has ended, and nobody can tell anything any more.
    let _ = told.recv_timeout(left());
    Some(Exit::Success)
}

/// The text of the answer, and what is done behind it. `None` as for [`answered`].
fn answer(
    host: Option<AgentHost>,
    began: Instant,
    progress: &Arc<Mutex<Progress>>,
) -> Option<(Option<String>, Option<Sign>)> {
    let read = read(host, progress)?;
    let host = match (host, &read) {
        (None, Ok((bytes, _))) => event::host_of(bytes),
        (host, _) => host,
    };
    // Another host's words for an answer are not known here.
    let Some(host) = host else {
        return Some((None, None));
    };
    let work = Work {
        host,
        began,
        progress: Arc::clone(progress),
    };
    let (answer, sign) = match &read {
        Ok((bytes, is_cut)) => work.of_bytes(bytes, *is_cut),
        Err(why) => (unread(why, &here(None)), None),
    };
    Some((answer.text(host), sign))
}

/// The bytes on stdin, and whether more than these were there. `None` if they are no event, and the call names no host: that
/// is known with the first of them.
fn read(
    host: Option<AgentHost>,
    progress: &Mutex<Progress>,
) -> Option<Result<(Vec<u8>, bool), String>> {
    let mut bytes = Vec::new();
    let mut stdin = std::io::stdin().lock();
    let limit = u64::try_from(EVENT_MAX).unwrap_or(u64::MAX);
    if host.is_none() {
        let begins = stdin.fill_buf().ok()?.trim_ascii_start();
        if !begins.is_empty() && !begins.starts_with(b"{") {
            return None;
        }
        let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.is_event = !begins.is_empty();
    }
    if let Err(error) = stdin.by_ref().take(limit + 1).read_to_end(&mut bytes) {
        return Some(Err(format!("the event could not be read: {error}")));
    }
    let is_cut = bytes.len() > EVENT_MAX;
    if is_cut {
        let _ = std::io::copy(&mut stdin.take(DRAIN_MAX), &mut std::io::sink());
    }
    let is_asked = host.is_some() || event::is_one(&bytes);
    is_asked.then_some(Ok((bytes, is_cut)))
}

/// A sign of life of an agent, at every place where it may hold something.
struct Sign {
    key: AgentKey,
    folder: PathBuf,
    leased: Vec<Leased>,
    seen: Seen,
    /// The id of the call that this is about.
    call: String,
    /// Servers are told as well. Of a call that no rule can be about they are not: it would wait for them.
    on_servers: bool,
}

/// What was seen of an agent, with the id of the call.
type Seen = for<'a> fn(&'a str) -> AgentSign<'a>;

impl Sign {
    fn note(&self) {
        let sign = (self.seen)(&self.call);
        leases::seen(&self.key, &self.folder, &self.leased, sign, self.on_servers);
    }
}

impl Work {
    fn of_bytes(&self, bytes: &[u8], is_cut: bool) -> (Answer, Option<Sign>) {
        match event::read(self.host, bytes, is_cut) {
            Read::OfNoConcern => (Answer::default(), None),
            Read::Unreadable { why, folder } if event::may_be_a_call(self.host, bytes) => {
                (unread(&why, &here(folder.as_deref())), None)
            }
            Read::Unreadable { why, .. } => (Answer::message(why), None),
            Read::Event(event) => self.of_event(event),
        }
    }

    fn of_event(&self, event: Event) -> (Answer, Option<Sign>) {
        let folder = here(event.folder.as_deref());
        let key = AgentKey::new(self.host.word(), &event.session, event.agent.as_deref());
        let Ok(key) = key else {
            if !event.kind.has_rules() {
                return (Answer::default(), None);
            }
            let why =
                "the event's session_id or agent_id has characters that no key of an agent has";
            let answer = match event.kind {
                Kind::Before(_) => unread(why, &folder),
                _ => Answer::message(why.to_owned()),
            };
            return (answer, None);
        };
        let memory = Memory::of(&key, now_ms());
        let on_servers = event.kind.has_rules();
        let sign = |seen: Seen, call: String| {
            let leased = memory.as_ref().map(|memory| memory.leased(&key));
            Some(Sign {
                key: key.clone(),
                folder: folder.clone(),
                leased: leased.unwrap_or_default(),
                seen,
                call,
                on_servers,
            })
        };
        self.progress().follows = match &event.kind {
            Kind::Before(_) => None,
            Kind::After { .. } => {
                Some("so it is not known whether this command ran under its lock")
            }
            Kind::Begins { .. } => Some("so it is not known what this session still holds"),
            Kind::Rests => Some("a call that was interrupted may count as under way"),
            Kind::AgentEnds | Kind::Ends => Some("what was not given back ends by silence"),
        };
        let names_calls = matches!(self.host.table().caller, Caller::Call(_));
        match event.kind {
            Kind::Before(call) => {
                if names_calls && call.tool == Tool::Lock {
                    memory::of_call(&call.id, Some(&key));
                }
                let answer = self.before(&call, &key, &folder, memory.as_ref());
                let begins = !call.id.is_empty()
                    && !matches!(answer.decision, Decision::Deny(_) | Decision::Said(_));
                let seen: Seen = if begins {
                    |call| AgentSign::Began(call)
                } else {
                    |_| AgentSign::Seen
                };
                (answer, sign(seen, call.id))
            }
            Kind::After { call, succeeded } => {
                let memory = memory.as_ref().filter(|_| succeeded);
                let answer = memory.map(|memory| proof::judge(&call, memory));
                let answer = answer.unwrap_or_default();
                if names_calls && call.tool == Tool::Lock {
                    memory::of_call(&call.id, None);
                }
                let seen: Seen = if call.id.is_empty() {
                    |_| AgentSign::Seen
                } else {
                    |call| AgentSign::Ended(call)
                };
                (answer, sign(seen, call.id))
            }
            Kind::Begins { resumed } => (begins(&key, &folder, resumed, memory.as_ref()), None),
            // A call that was refused by a person, or interrupted, has no end that is told. Where it is left open, it keeps
            // silence off. Only the agent that rests is meant: its siblings may work in the background.
            Kind::Rests => (Answer::default(), sign(|_| AgentSign::Rests, String::new())),
            // A session speaks for all of its agents.
            Kind::Ends => (ends(&key.of_session(), &folder, memory.as_ref()), None),
            Kind::AgentEnds if key.agent().is_some() => {
                (ends(&key, &folder, memory.as_ref()), None)
            }
            Kind::AgentEnds => (Answer::default(), None),
        }
    }

    /// The answer to a call of a tool.
    fn before(
        &self,
        call: &Call,
        key: &AgentKey,
        folder: &Path,
        memory: Option<&Memory>,
    ) -> Answer {
        if matches!(call.tool, Tool::Lock | Tool::Other) {
            return Answer::default();
        }
        // A host that numbers its calls may give a number twice, so the number alone does not say that it is one call.
        let asks = asks(call, key, folder);
        let before = memory.and_then(|memory| memory.said(&call.id, &asks));
        if let Some(text) = before.filter(|text| !text.is_empty()) {
            return Answer::of(Decision::Said(text));
        }
        if let Some(answer) = self.probed(call) {
            return answer;
        }
        let (answer, proves) = match call.tool {
            Tool::Edit | Tool::Patch => (self.of_files(call, key, folder, memory), None),
            _ => self.of_command(call, key, folder, memory),
        };
        if let (Some(memory), Some(text)) = (memory, answer.text(self.host))
            && text.len() <= TEXT_MAX
        {
            let asked = self.text_of(call);
            let asked = asked.filter(|asked| asked.len() <= FORM_MAX);
            let proves = proves.zip(asked).map(|(under, asked)| Proof {
                asked: asked.to_owned(),
                by: key.clone(),
                under: under.to_string(),
                folder: folder.to_owned(),
                at_ms: now_ms(),
                is_marked: false,
            });
            memory.answer(&call.id, &asks, &text, proves.as_ref());
        }
        answer
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_doing(&self, doing: &'static str) {
        self.progress().doing = Some(doing);
    }

    /// The answer to an agent that asks whether hook and rewrite arrive (`tenure agent probe`).
    fn probed(&self, call: &Call) -> Option<Answer> {
        let text = self.text_of(call)?;
        let asked = ["tenure", "agent", "probe", self.host.word()];
        if !call.tool.is_shell() || !text.split_whitespace().eq(asked) {
            return None;
        }
        let id = tenure_os::process::new_request_id().ok()?;
        // Without the note, the variable still says that both arrived.
        memory::note(&probe::note(self.host).ok()?, id.as_str());
        let mut input = call.input.clone();
        let program = advice::word(&advice::path());
        let words = asked.get(1..).unwrap_or_default().join(" ");
        let text = format!("{}={id} {program} {words}", probe::VARIABLE);
        input.insert(self.host.table().keys.command.to_owned(), text.into());
        Some(Answer::of(Decision::Input(input)))
    }

    /// The answer to a line of shell, and the lock under which its first command certainly runs, if it succeeds.
    fn of_command(
        &self,
        call: &Call,
        key: &AgentKey,
        folder: &Path,
        memory: Option<&Memory>,
    ) -> (Answer, Option<LockName>) {
        let text = self.text_of(call);
        self.is_doing("the command was looked through");
        let line = shell::read(text.unwrap_or_default());
        self.is_doing("the rules were read");
        let rules = match Rules::at(folders::of(text.unwrap_or_default(), &line, folder), folder) {
            Ok(rules) => rules,
            Err(misread) => {
                let closed = match misread.own() {
                    Some(own) => {
                        let rules = rules_of(&own);
                        let found = commands::find(text.unwrap_or_default(), &line, |_| &rules);
                        found.has_closed_hit() || found.closed().is_some()
                    }
                    None => misread.is_closed(About::Commands),
                };
                return (fault(closed, &misread.why), None);
            }
        };
        if rules.are_none() {
            return (Answer::default(), None);
        }
        let Some(text) = text else {
            let closed = rules.all().any(|rule| rule.on_error == OnError::Closed);
            return (fault(closed, "the call has no command"), None);
        };
        self.is_doing("the command was looked through");
        let mut found = commands::find(text, &line, |number| rules.of(number));
        if found.is_empty() {
            return (Answer::default(), None);
        }
        let closed = found.has_closed_hit();
        self.progress().is_closed = closed;
        self.is_doing("the place of its lock was looked at");
        if let Some(why) = rules.refused(&found) {
            return (fault(closed, &why), None);
        }
        let times = commands::times(&found, self.time_of(call), self.limits());
        let program = advice::word(&advice::path());
        let prefix = |rule, closed, wait| {
            let wait = commands::wait(wait);
            form::prefix(&program, rule, closed, &key.to_string(), &wait)
        };
        let waits = found.hits.iter().zip(&times.waits);
        let mut prefixes: Vec<String> = waits
            .map(|(hit, wait)| prefix(hit.met.rule, hit.met.closed, *wait))
            .collect();
        let unheeded = memory.is_some_and(Memory::is_unheeded);
        let refuses = found.is_refused() || unheeded;
        let asks = if refuses || found.hits.is_empty() {
            None
        } else {
            self.is_doing("the person's own rules were read");
            self.leave((text, &line), folder, &mut found, &mut prefixes)
        };
        if let Some(doubt) = found.closed() {
            let prefix = prefix(doubt.met.rule, true, self.limits().usual / 2);
            return (Answer::deny(refusal_of_doubt(doubt, &prefix)), None);
        }
        let warning = (!found.doubts.is_empty()).then(|| warning(&found));
        let Some(new) =
            commands::rewritten(text, &found, &prefixes).filter(|_| !found.hits.is_empty())
        else {
            return (warning.map_or_else(Answer::default, Answer::message), None);
        };
        if refuses {
            return (
                Answer::deny(refusal(&found, &new, &prefixes, unheeded)),
                None,
            );
        }
        let mut input = call.input.clone();
        input.insert(self.host.table().keys.command.to_owned(), new.into());
        let limit = self.host.table().limit;
        // A tool that is not known gets no argument that it may not know.
        let is_timed = call.tool == Tool::Shell || self.time_of(call).is_some();
        if let Some(limit) = limit.filter(|_| is_timed)
            && input.get(limit.background) != Some(&Value::Bool(true))
        {
            let millis = u64::try_from(times.call.as_millis()).unwrap_or(limit.most.0);
            input.insert(limit.argument(call.tool).to_owned(), millis.into());
        }
        let answer = Answer {
            decision: match asks {
                Some(why) => Decision::Ask(input, why),
                None => Decision::Input(input),
            },
            message: warning,
        };
        let first = found.hits.first().filter(|_| found.is_certain);
        let is_awaited = limit.is_some() && call.tool == Tool::Shell;
        let proves = first.filter(|_| is_awaited);
        (answer, proves.map(|hit| hit.met.rule.lock.clone()))
    }

    /// Leaves those commands as they are that a rule of the person may stop which their new form would escape. Where the host
    /// can ask, what a rule wants asked is prefixed; the answer is why the person is asked.
    fn leave(
        &self,
        (text, line): (&str, &shell::Line),
        folder: &Path,
        found: &mut Found<'_>,
        prefixes: &mut Vec<String>,
    ) -> Option<String> {
        let rules = permissions::of(self.host, folder);
        if rules.is_empty() {
            return None;
        }
        let shell::Line::Plain(commands) = line else {
            return None;
        };
        let (mut asks, mut kept) = (None, Vec::new());
        // A host may compare the text as a whole, too.
        let whole = CommandText::whole(text);
        let of_text: Vec<bool> = rules.iter().map(|rule| rule.may_fit(&whole)).collect();
        let hits: Vec<usize> = found.hits.iter().map(|hit| hit.at).collect();
        for (at, prefix) in hits.into_iter().zip(std::mem::take(prefixes)) {
            let is_it = |command: &&shell::Simple| (command.from..command.to).contains(&at);
            let to = commands
                .iter()
                .find(is_it)
                .map_or(text.len(), |command| command.to);
            let own = text.get(at..to).unwrap_or_default();
            let old = CommandText::of(own);
            let may_fit =
                |at: usize, rule: &Permission| of_text.get(at) == Some(&true) || rule.may_fit(&old);
            let new = CommandText::of(&format!("{prefix}{own}"));
            match permissions::escaped(&rules, may_fit, &new) {
                Some(rule) if rule.ruling == Ruling::Ask && self.host.table().asks => {
                    let why = || {
                        format!(
                            "{} may be about this command, which tenure runs under a lock",
                            rule.told()
                        )
                    };
                    asks.get_or_insert_with(why);
                    kept.push(prefix);
                }
                Some(rule) => found.leave(at, &rule.told()),
                None => kept.push(prefix),
            }
        }
        *prefixes = kept;
        asks
    }

    /// The line of shell of a call.
    fn text_of<'a>(&self, call: &'a Call) -> Option<&'a str> {
        call.input.get(self.host.table().keys.command)?.as_str()
    }

    /// The time that a call of the shell gives its command.
    fn time_of(&self, call: &Call) -> Option<Duration> {
        let limit = self.host.table().limit?;
        let millis = call.input.get(limit.argument(call.tool))?.as_u64()?;
        Some(Duration::from_millis(millis))
    }

    fn limits(&self) -> Limits {
        let Some(limit) = self.host.table().limit else {
            return UNLIMITED;
        };
        let said = |(usual, name): (u64, &str)| {
            let said = std::env::var(name).ok().and_then(|said| said.parse().ok());
            Duration::from_millis(said.filter(|millis| *millis > 0).unwrap_or(usual))
        };
        let usual = said(limit.usual);
        Limits {
            usual,
            most: said(limit.most).max(usual),
        }
    }

    /// The answer to a call that writes files.
    fn of_files(
        &self,
        call: &Call,
        key: &AgentKey,
        folder: &Path,
        memory: Option<&Memory>,
    ) -> Answer {
        let files = match paths::named(self.host, call) {
            Ok(files) => files,
            Err(why) => return unread(&format!("the call {why}"), folder),
        };
        // Until the rules are known, what hangs is one that says nothing.
        self.progress().is_closed = true;
        self.is_doing("the rules were read");
        let needed = match leases::needed(&files, folder) {
            Ok(needed) => needed,
            Err(Untold::Path(why)) => return unread(&why, folder),
            Err(Untold::Misread(misread)) => return faults::untold(&misread, &files, folder),
        };
        if needed.is_empty() {
            return Answer::default();
        }
        let closed = needed.iter().any(Needed::is_closed);
        self.progress().is_closed = closed;
        let left = PATIENCE.saturating_sub(instant().saturating_duration_since(self.began));
        let wait = WAIT.min(left.saturating_sub(RESERVE));
        self.is_doing("its locks were asked for: what keeps them does not answer");
        match leases::take(key, &needed, wait, "editing") {
            Ok(leased) => {
                if let Some(memory) = memory {
                    for lease in &leased {
                        memory.lease(key, lease);
                    }
                }
                Answer::default()
            }
            Err(Refused::Held(facts)) => Answer::deny(facts),
            Err(Refused::Fault(why)) => fault(closed, &why),
        }
    }
}

/// Ends all that an agent or a session holds.
fn ends(key: &AgentKey, folder: &Path, memory: Option<&Memory>) -> Answer {
    let leased = memory.map(|memory| memory.leased(key)).unwrap_or_default();
    let failed = leases::free(key, folder, &leased);
    if let Some(memory) = memory.filter(|_| failed.is_none() && !leased.is_empty()) {
        memory.freed(key);
    }
    failed.map_or_else(Answer::default, |why| {
        Answer::message(format!("not all holds of {key} could be ended: {why}"))
    })
}

/// What a session is told that goes on: a hold that it believes to have may be another's by now.
fn begins(key: &AgentKey, folder: &Path, resumed: bool, memory: Option<&Memory>) -> Answer {
    let Some(memory) = memory else {
        return Answer::default();
    };
    if !resumed {
        memory.forget_old();
        return Answer::default();
    }
    let session = key.of_session();
    let leased = memory.leased(&session);
    let held = leases::held(&session, folder, &leased);
    let lost = leased
        .iter()
        .filter(|lease| !held.iter().any(|(name, _)| name.as_str() == lease.lock));
    let lost: Vec<&str> = lost.map(|lease| lease.path.as_str()).collect();
    let holds: Vec<&str> = held.iter().map(|(_, called)| called.as_str()).collect();
    let mut told = Vec::new();
    if !holds.is_empty() {
        told.push(format!("this session holds {}", holds.join(", ")));
    }
    if !lost.is_empty() {
        told.push(format!(
            "its leases of {} have ended, and another agent may have changed these files since",
            lost.join(", ")
        ));
        memory.keep(&session, |lease| {
            held.iter().any(|(name, _)| name.as_str() == lease.lock)
        });
    }
    if told.is_empty() {
        return Answer::default();
    }
    Answer::of(Decision::Tell {
        event: "SessionStart",
        context: format!("tenure: {}.", told.join("; ")),
    })
}

/// The rules for the commands of a text.
struct Rules {
    /// Rules of each folder in which a command runs; the first is that of the event.
    folders: Vec<(PathBuf, Vec<CommandRule>)>,
    /// The folder of each command.
    of_commands: Vec<PathBuf>,
}

impl Rules {
    /// Reads them, once for each folder.
    fn at(of_commands: Vec<PathBuf>, folder: &Path) -> Result<Self, Misread> {
        let mut folders = vec![(folder.to_owned(), command_rules(folder)?)];
        for folder in &of_commands {
            if !folders.iter().any(|(known, _)| known == folder) {
                folders.push((folder.clone(), command_rules(folder)?));
            }
        }
        Ok(Self {
            folders,
            of_commands,
        })
    }

    fn all(&self) -> impl Iterator<Item = &CommandRule> {
        self.folders.iter().flat_map(|(_, rules)| rules)
    }

    /// Why the run that would be put in front of a command is refused, if a file of a clone asks for what nobody allowed.
    fn refused(&self, found: &Found<'_>) -> Option<String> {
        if found.hits.is_empty() {
            return None;
        }
        self.folders.iter().find_map(|(folder, _)| {
            let folder = folder.canonicalize().unwrap_or_else(|_| folder.clone());
            let place = Place::of_taker(&Common::default(), &Surroundings::at(folder));
            let refused = place.and_then(|place| {
                let mut hits = found.hits.iter();
                hits.try_for_each(|hit| place.refuse_to_agents(&hit.met.rule.lock))
            });
            let failure = refused.err()?;
            (failure.exit == Exit::Permission).then(|| failure.message.clone())
        })
    }

    fn are_none(&self) -> bool {
        self.all().next().is_none()
    }

    /// Rules for the command with this number; for a text that is not understood, those of the event's folder.
    fn of(&self, command: usize) -> &[CommandRule] {
        let mut folders = self.folders.iter();
        let rules = match self.of_commands.get(command) {
            Some(folder) => folders.find(|(known, _)| known == folder),
            None => folders.next(),
        };
        rules.map_or(&[], |(_, rules)| rules.as_slice())
    }
}

/// The rules for commands that count in a folder, of all files, the nearest first. A shell there finds them by where
/// links lead, so this does as well.
fn command_rules(folder: &Path) -> Result<Vec<CommandRule>, Misread> {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let config = Surroundings::at(folder).rules()?;
    Ok(config.as_deref().map(rules_of).unwrap_or_default())
}

fn rules_of(config: &Config) -> Vec<CommandRule> {
    let files = config.files().enumerate();
    files
        .flat_map(|(number, file)| {
            let rules = file.agent.commands.iter().cloned();
            rules.map(move |rule| CommandRule {
                file: number,
                ..rule
            })
        })
        .collect()
}

/// What a call asks for, as few digits: the tool and the whole of its input, the agent, and the folder.
fn asks(call: &Call, key: &AgentKey, folder: &Path) -> String {
    let input = serde_json::to_string(&call.input).unwrap_or_default();
    let folder = folder.to_string_lossy();
    let whole = json!([format!("{:?}", call.tool), input, key.to_string(), folder]);
    let digest = Sha256::hash(whole.to_string().as_bytes());
    digest.get(..16).map(hex).unwrap_or_default()
}

/// The folder of an event: that which it names, if it is there.
fn here(named: Option<&str>) -> PathBuf {
    let named = named
        .map(PathBuf::from)
        .filter(|folder| folder.is_absolute() && folder.is_dir());
    named
        .or_else(|| std::env::current_dir().ok())
        .unwrap_or_else(|| PathBuf::from("/"))
}

fn now_ms() -> u64 {
    SystemClock::new(None).now().wall_us / 1_000
}

/// Why a command is refused, and the form that passes. Facts: orders look like something that was smuggled in.
fn refusal(found: &Found<'_>, new: &str, prefixes: &[String], unheeded: bool) -> String {
    let locks: Vec<String> = found
        .hits
        .iter()
        .map(|hit| {
            format!(
                "`{}` runs under the lock {} here",
                hit.met.words, hit.met.rule.lock
            )
        })
        .collect();
    let why = if unheeded {
        "; an earlier rewrite of a command did not arrive in this session"
    } else {
        ""
    };
    let form = if new.len() <= FORM_MAX {
        new.to_owned()
    } else {
        format!("{}…", prefixes.concat())
    };
    format!("{}{why}.\n{}", locks.join(", "), passes(&form))
}

/// The form of a call that is not refused, on a line of its own: Codex goes on behind a reason, with a full stop.
fn passes(form: &str) -> String {
    format!("This form passes: {form}\nNothing of this call was run")
}

fn refusal_of_doubt(doubt: &commands::Doubt<'_>, prefix: &str) -> String {
    format!(
        "`{}` runs under the lock {} here. In this call it {}, so tenure put no prefix in front of it.\n{}",
        doubt.met.words,
        doubt.met.rule.lock,
        doubt.why,
        passes(&format!("{prefix}sh -c '…'"))
    )
}

fn warning(found: &Found<'_>) -> String {
    let doubts: Vec<String> = found
        .doubts
        .iter()
        .map(|doubt| format!("`{}` {}", doubt.met.words, doubt.why))
        .collect();
    format!("not under its lock: {}", doubts.join("; "))
}
