//! The place of a call, opened: its store, and who the caller is there. Each verb that is about locks begins with it.
//!
//! Whose a claim is, says `ownership`; how a caller gets a lock, `grant`; what a refusal says, `refusal`; what the
//! audit gets, `records`.

use crate::audit_writer::AuditWriter;
use crate::dialect::{self, CallResult, Dialect, PersonLine};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::Reporter;
use crate::render::lock::LockView;
use crate::request::{Format, Place, ShownId};
use crate::signals::{SignalSleeper, Signals};
use crate::store::Locks;
use tenure_core::{Claim, Entry, Holder, Host, LockName, Mode, Now, Process, RequestId, Standing};
use tenure_engine::formats::{self, Settings};
use tenure_engine::inherited::{self, Hold};
use tenure_os::clock::{Clock, SystemClock};
use tenure_os::process::{Identity, is_descendant_of};
use tenure_store::advice::Advice;
use tenure_store::file::{Sleeper, ThreadSleeper};
use tenure_store::{Reading, StoreError};

/// Whether the caller descends from a process of one machine, as seen from another.
pub(super) type Descends<'a> = dyn Fn(&Process, &Host, &Host) -> bool + 'a;

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

impl Session {
    /// For verbs that never sleep.
    pub(crate) fn open(place: Place) -> Result<Self, Failure> {
        Self::of_place(place, || Box::new(ThreadSleeper))
    }

    /// Opens the locks. A call about the lock of a group that takes nothing need not know beside which records the runs
    /// of that group keep it.
    pub(super) fn of_place(
        place: Place,
        sleeper: impl Fn() -> Box<dyn Sleeper>,
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
        let Ok(profile) = formats::by_name(policy.name, &Settings::default()) else {
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

    pub(super) fn has_hold(&self, name: &LockName, is_it: impl Fn(&Claim) -> bool) -> bool {
        let reading = self.reading(name);
        let entry = reading.as_ref().ok().and_then(Reading::entry);
        entry.is_some_and(|entry| entry.granted().any(is_it))
    }

    /// For verbs that may wait: the signals that end a wait are collected from here on.
    pub(crate) fn waiting(place: Place, signals: Signals) -> Result<Self, Failure> {
        Self::of_place(place, || Box::new(SignalSleeper(signals)))
    }

    /// Opens it for a caller that sleeps in this way.
    pub(crate) fn at(mut place: Place, sleeper: Box<dyn Sleeper>) -> Result<Self, Failure> {
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
}

impl Session {
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
    pub(super) fn is_recorded(&self, name: &LockName, id: &str) -> bool {
        let Ok(reading) = self.reading(name) else {
            return false;
        };
        let mut granted = reading.entry().into_iter().flat_map(Entry::granted);
        !id.is_empty() && granted.any(|claim| self.format.shows(claim, id))
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

    /// Whether a claim of a lock that was read stands at this time.
    pub(crate) fn is_held(&self, reading: &Reading, claim: &Claim, now: &Now) -> bool {
        let standing = reading.standing_of(self.store.policy(), claim, now);
        matches!(standing, Standing::Held(_))
    }
}

impl Session {
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
        self.view_by((name, reading), &self.clock.now(), shown, &is_descendant_of)
    }

    /// The view of a lock at a time, for a caller that looks at many: `descends` says whether it descends from an owner.
    pub(super) fn view_by(
        &self,
        (name, reading): (&LockName, &Reading),
        now: &Now,
        shown: Option<&str>,
        descends: &Descends<'_>,
    ) -> LockView {
        let inherited = self.inherited(name);
        let mut view = LockView::of(name, reading, self.store.policy(), now, |claim| {
            self.is_mine_by(claim, shown, &inherited, descends) || self.is_agent_of(claim)
        });
        self.call_as_asked(&mut view, name);
        view
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
            keeps(claim) || self.is_mine(claim, None, &inherited) || self.is_agent_of(claim)
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
}

/// The dialect that goes with a format.
pub(super) fn dialect_of(format: Format) -> &'static dyn Dialect {
    match format {
        Format::Native => &dialect::Native,
        Format::Resume => &dialect::Resume,
        Format::Session => &dialect::Session,
        Format::Fleet => &dialect::Fleet,
        Format::Sprint => &dialect::Sprint,
    }
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
