//! What a call writes into the audit. If that fails, the call says so on stderr, once, and goes on: the holder
//! of a lock must not depend on a log.
//!
//! Every event is recorded, unless the user wants less (`audit` in `tenure.toml`). What breaks a promise to another holder (a
//! takeover, an override, a forced release) and what the contract of a record's format asks for is recorded in any case.

use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::{Reporter, say};
use crate::trace;
use serde_json::{Map, Value};
use std::ffi::OsString;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tenure_core::{AgentKey, Claim, Holder, LockName, RequestId};
use tenure_engine::audit::{
    self, AuditError, AuditLog, Ending, Grant, Occasion, Party, Record, Recording, Releaser,
    StealReason, Stream, error_text,
};
use tenure_os::brief::may_sleep;
use tenure_os::clock::instant;
use tenure_os::sync::locked;
use tenure_store::StoreError;
use tenure_store::profile::Profile;

/// How long the audit may take while work has to be watched.
const HURRY: Duration = Duration::from_millis(20);

/// Where a call records what it does.
#[derive(Debug)]
pub(crate) struct AuditWriter {
    log: AuditLog,
    recording: Recording,
    /// The contract of the format asks for every event.
    is_owed: bool,
    /// The folder stands inside a work tree.
    ignored: bool,
    /// The agent in whose name the call is made.
    agent: Option<AgentKey>,
    /// The name of the program that works under the lock.
    command: Option<String>,
    /// The reason of a hold that is a command line, for nobody gave one.
    line: Option<String>,
    /// The lock after which a run is named whose caller lets it be skipped.
    skips: Option<LockName>,
    /// Lines that are written later; `None` where each is written at once. A run holds its grants back until its command runs.
    /// What `serve` does briefly is written after its answer.
    ///
    /// The command starts meanwhile, so these lines cost a run no time. A process that is killed in between leaves none: as one
    /// that is killed between its grant and its line. Nothing that may take long is done before they are written.
    held_back: Mutex<Option<Later>>,
    /// Why lines could not be written.
    failed: Mutex<Option<String>>,
    /// No reporter of a call is read: `serve` asks why lines could not be written.
    is_asked: bool,
    /// The caller knows that the audit cannot be written.
    is_told: AtomicBool,
}

/// Lines that are written later.
#[derive(Debug, Default)]
struct Later {
    lines: Vec<Record>,
    /// A thread writes lines that came before these.
    is_writing: bool,
}

impl AuditWriter {
    pub(crate) fn new(
        folder: audit::Place,
        is_named: bool,
        profile: &dyn Profile,
        recording: Recording,
        agent: Option<AgentKey>,
    ) -> Self {
        let is_owed = profile.record().is_some();
        Self {
            log: AuditLog::new(folder, profile.audit_layout()),
            recording: match recording {
                Recording::Incidents if is_owed => Recording::All,
                recording => recording,
            },
            is_owed,
            ignored: profile.place().ignored && !is_named,
            agent,
            command: None,
            line: None,
            skips: None,
            held_back: Mutex::default(),
            failed: Mutex::default(),
            is_asked: false,
            is_told: AtomicBool::new(false),
        }
    }

    /// Where it records, and which events.
    #[cfg(unix)]
    pub(crate) fn kept(&self) -> (&AuditLog, Recording) {
        (&self.log, self.recording)
    }

    /// The command of this call.
    pub(crate) fn works(&mut self, words: &[OsString]) {
        self.command = words.first().and_then(name_of);
        self.line = Some(line(words));
    }

    /// The caller lets the run of this lock be skipped.
    pub(crate) fn may_skip(&mut self, main: LockName) {
        self.skips = Some(main);
    }

    /// The lock after which a run is named that may be skipped.
    pub(crate) fn skips(&self) -> Option<&LockName> {
        self.skips.as_ref()
    }

    /// A reason that is a command line: that of a program that others work for.
    #[cfg(unix)]
    pub(crate) fn is_line(&mut self, why: &str) {
        self.command = why.split(' ').next().and_then(name_of);
        self.line = Some(why.to_owned());
    }

    /// The program that `serve` works for, and asks in its name why lines could not be written.
    #[cfg(unix)]
    pub(crate) fn serves(&mut self, program: &str) {
        self.is_line(program);
        self.is_asked = true;
    }

    /// Writes grants only when told so, or before any other line. What a contract asks for is written at once.
    pub(crate) fn hold_back(&self) {
        if self.is_owed {
            return;
        }
        locked(&self.held_back).get_or_insert_default();
    }

    /// Writes what was held back, unless another thread is at it. False if another process keeps the file, and this thread may not
    /// wait: the lines stay held back then.
    pub(crate) fn catch_up(&self) -> bool {
        loop {
            let lines = match &mut *locked(&self.held_back) {
                Some(later) if !later.is_writing && !later.lines.is_empty() => {
                    later.is_writing = true;
                    std::mem::take(&mut later.lines)
                }
                Some(_) | None => return true,
            };
            let (mut lines, began) = (lines.into_iter(), instant());
            let left = lines.find(|line| !self.append(line, began));
            let left: Vec<Record> = left.into_iter().chain(lines).collect();
            let is_written = left.is_empty();
            if let Some(later) = &mut *locked(&self.held_back) {
                later.is_writing = false;
                later.lines.splice(..0, left);
            }
            if !is_written {
                return false;
            }
        }
    }

    /// Whether lines wait to be written, or are being written.
    #[cfg(unix)]
    pub(crate) fn is_behind(&self) -> bool {
        let held_back = locked(&self.held_back);
        (held_back.as_ref()).is_some_and(|later| later.is_writing || !later.lines.is_empty())
    }

    /// Why lines could not be written, once.
    pub(crate) fn why_unwritten(&self) -> Option<String> {
        locked(&self.failed).take()
    }

    /// A holder of this call.
    pub(crate) fn party<'a>(&'a self, holder: &'a Holder) -> Party<'a> {
        let is_line = self.recording != Recording::Arguments
            && self.line.as_ref().is_some_and(|line| *line == holder.why);
        Party {
            why: (!is_line).then_some(&*holder.why),
            command: self.command.as_deref(),
            ..Party::of(holder)
        }
    }

    /// What happened on the way to a grant.
    pub(crate) fn acquired(
        &self,
        reporter: &mut Reporter,
        occasion: Occasion<'_>,
        grant: &Grant<'_>,
    ) {
        for record in grant.records(occasion) {
            self.write_or_hold_back(reporter, record, true);
        }
    }

    /// The end of a hold by release.
    pub(crate) fn released(
        &self,
        reporter: &mut Reporter,
        occasion: Occasion<'_>,
        held_ms: u64,
        ending: Ending<'_>,
        releaser: Releaser<'_>,
    ) {
        let held = Duration::from_millis(held_ms);
        let record = Record::lock_released(occasion, held, ending, releaser);
        self.write(reporter, record);
    }

    /// A release that the system refused.
    pub(crate) fn release_failed(
        &self,
        reporter: &mut Reporter,
        occasion: Occasion<'_>,
        lock_path: &str,
        error: &StoreError,
    ) {
        let error = match error {
            StoreError::Permission { .. } | StoreError::Denied { .. } => format!("EACCES: {error}"),
            StoreError::Io { source, .. } => error_text(source),
            // The store tried nothing.
            _ => return,
        };
        let record = Record::lock_release_failed(occasion, lock_path.as_ref(), &error);
        self.write(reporter, record);
    }

    /// Several heartbeats in a row that failed. The supervisor writes this between two steps of an end
    /// that may be under way. So it hardly waits for a file that another process has locked.
    pub(crate) fn heartbeat_failed(&self, occasion: Occasion<'_>, consecutive: u32, error: &str) {
        let record = Record::heartbeat_failed(occasion, consecutive, error);
        let record = self.of_call(record);
        if !self.records(&record) {
            return;
        }
        self.catch_up();
        let log = self.log.clone().waiting_at_most(HURRY);
        if let Err(error) = log.append(&record)
            && self.is_news()
        {
            say(&unwritten(&error));
        }
    }

    /// A call that did not get the lock. `is_skipped` says that it is content with that.
    #[cold]
    #[inline(never)]
    pub(crate) fn refused(
        &self,
        reporter: &mut Reporter,
        occasion: Occasion<'_>,
        failure: &Failure,
        waited: Duration,
        is_skipped: bool,
    ) {
        let context = &failure.context;
        let record = if failure.exit == Exit::Superseded {
            Record::lock_superseded(occasion, context, None).waited(waited, None)
        } else if is_skipped {
            Record::lock_skipped(occasion, context, waited)
        } else {
            Record::lock_refused(occasion, &failure.code, context, waited)
        };
        self.write(reporter, record);
    }

    /// A hold that its holder has lost.
    #[cold]
    #[inline(never)]
    pub(crate) fn lost(&self, reporter: &mut Reporter, occasion: Occasion<'_>, token: Option<u64>) {
        self.write(reporter, Record::lock_lost(occasion, token));
    }

    /// A hold whose work ends because another caller asked for that; `answer` is the context of the answer.
    #[cold]
    #[inline(never)]
    pub(crate) fn superseded(
        &self,
        reporter: &mut Reporter,
        occasion: Occasion<'_>,
        answer: &Map<String, Value>,
        token: Option<u64>,
    ) {
        self.write(reporter, Record::lock_superseded(occasion, answer, token));
    }

    /// Holders or waiters that this caller has asked to stop.
    pub(crate) fn cancelled<'a>(
        &self,
        reporter: &mut Reporter,
        occasion: Occasion<'_>,
        asked: impl IntoIterator<Item = &'a Claim>,
    ) {
        self.write(reporter, Record::lock_cancelled(occasion, asked));
    }

    /// Work whose supervisor was dead, ended because an operator asked for that.
    #[cfg(target_os = "linux")]
    pub(crate) fn orphan_ended(
        &self,
        reporter: &mut Reporter,
        occasion: Occasion<'_>,
        holder: &Claim,
        ended: &[u32],
    ) {
        self.write(reporter, Record::orphan_ended(occasion, holder, ended));
    }

    /// A hold that its holder left behind and that was removed, or a record that could not be read.
    pub(crate) fn removed(
        &self,
        reporter: &mut Reporter,
        occasion: Occasion<'_>,
        previous: Option<&Claim>,
        bytes: &[u8],
    ) {
        let reason = match previous {
            Some(_) => StealReason::StaleLock,
            None => StealReason::CorruptLock,
        };
        let record = Record::lock_stolen(occasion, previous, bytes, reason);
        self.write(reporter, record);
    }

    /// The record with what it says of each event of this call.
    fn of_call(&self, record: Record) -> Record {
        let record = record.by_agent(self.agent.as_ref());
        record.in_trace(trace::of_call())
    }

    fn records(&self, record: &Record) -> bool {
        self.recording != Recording::Incidents || record.stream() == Stream::Incidents
    }

    /// Whether the caller does not know yet that the audit cannot be written.
    fn is_news(&self) -> bool {
        !self.is_told.swap(true, Ordering::Relaxed)
    }

    fn write(&self, reporter: &mut Reporter, record: Record) {
        self.write_or_hold_back(reporter, record, false);
    }

    fn write_or_hold_back(&self, reporter: &mut Reporter, record: Record, is_grant: bool) {
        let record = self.of_call(record);
        if !self.records(&record) {
            return;
        }
        {
            let mut held_back = locked(&self.held_back);
            // Behind what another thread writes, so that the lines keep their order.
            let waits = |later: &Later| is_grant || later.is_writing;
            if !may_sleep() || held_back.as_ref().is_some_and(waits) {
                return held_back.get_or_insert_default().lines.push(record);
            }
        }
        self.catch_up();
        self.append(&record, instant());
        if !self.is_asked
            && let Some(error) = self.why_unwritten()
        {
            reporter.warn(error);
        }
    }

    /// Writes a line, one of several whose wait for the file began then. Answers whether that was tried: only a thread that may
    /// not wait leaves a line to others.
    fn append(&self, record: &Record, began: Instant) -> bool {
        let appended = if may_sleep() {
            self.log.append_since(record, began).map(|()| true)
        } else {
            self.log.try_append(record)
        };
        let kept_out = match appended {
            Ok(is_written) if !self.ignored || !is_written => return is_written,
            Ok(_) => (self.log.keep_out_of_git()).map_err(|error| error.to_string()),
            Err(error) => Err(unwritten(&error)),
        };
        if let Err(error) = kept_out
            && self.is_news()
        {
            *locked(&self.failed) = Some(error);
        }
        true
    }
}

fn unwritten(error: &AuditError) -> String {
    format!("the audit could not be written: {error}")
}

/// The name of a program, without its path.
fn name_of(program: impl AsRef<Path>) -> Option<String> {
    let name = program.as_ref().file_name()?;
    Some(name.to_string_lossy().into_owned())
}

/// The command line, as the reason for which a lock is held.
pub(crate) fn line(words: &[OsString]) -> String {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    tenure_store::profile::why(&words.join(" "))
}

/// The id under which the caller acts: the one that it has shown, in whatever form another program's
/// record has it. Else a new one, because the audit needs an id in any case.
pub(crate) fn acting(shown: Option<&str>) -> Result<RequestId, Failure> {
    shown.map_or_else(
        || crate::ids::request_id_or_new(None),
        |id| Ok(RequestId::as_recorded(id)),
    )
}
