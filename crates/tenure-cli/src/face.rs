//! How a profile speaks: the words and documents that its users and their scripts know, where
//! these differ from the product's own. One file per profile; what a lock *is* and who may have it
//! is never decided here.

mod fleet;
mod native;
mod resume;
mod session;
mod sprint;

pub(crate) use fleet::unlocked;

use crate::args::{AcquireArgs, CheckArgs, Common, DocumentArgs, ReleaseArgs};
use crate::command::{self, Call, Session};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::lock::LockView;
use crate::render::{Document, Surface};
use crate::request::{self, Asked, Intends, Surroundings, Variables};
use serde_json::Value;
use tenure::profile::{self, Settings};
use tenure_core::{
    Claim, Death, Holder, LockName, Now, Policy, Reason, RequestId, StaleReason, Takeover,
};

/// What was taken over.
pub(crate) struct TakenOver<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) why: Takeover,
    /// The claim that stood there; `None` where it could not be read.
    pub(crate) previous: Option<&'a Claim>,
    pub(crate) now: &'a Now,
}

/// The surface of one profile. What is not overridden is the product's own way.
pub(crate) trait Face: Sync {
    /// The name of the lock where none is given.
    fn default_name(&self) -> Option<&'static str> {
        None
    }

    /// Gives a call that could not be read the shape of the profile's answers.
    fn misread(&self, verb: &str, failure: Failure) -> Failure {
        let _ = verb;
        failure
    }

    /// What makes a document of a failure of this verb, where the profile answers every call with one.
    fn failures(&self, verb: &str) -> Option<Document> {
        let _ = verb;
        None
    }

    /// Answers a call whose verb stands in a document.
    fn document(&self, args: &DocumentArgs, call: Call) -> Exit {
        let _ = args;
        call.surface.fail(&command::no_input())
    }

    /// Answers `acquire`.
    fn acquire(&self, args: &AcquireArgs, call: Call) -> Exit {
        command::answer_acquire(args, call)
    }

    /// Answers `release`.
    fn release(&self, args: &ReleaseArgs, call: Call) -> Exit {
        command::answer_release(args, call)
    }

    /// Answers `check`.
    fn check(&self, args: &CheckArgs, call: Call) -> Exit {
        command::answer_check(args, call)
    }

    /// What a call means that makes a claim, as far as the profile has a say in it.
    fn intends(&self, asked: &Asked<'_>, around: &Surroundings) -> Result<Intends, Failure> {
        let _ = around;
        Intends::as_typed(asked)
    }

    /// The request id of a new hold.
    fn request_id(&self, given: Option<RequestId>) -> Result<RequestId, Failure> {
        request::request_id_or_new(given)
    }

    /// Puts into a new holder what follows from its id and the record wants to know.
    fn complete(&self, holder: &mut Holder) {
        let _ = holder;
    }

    /// On whose behalf a claim is made that does not say so; `None` for whoever runs this.
    fn actor(&self, variables: &Variables) -> Option<String> {
        let _ = variables;
        None
    }

    /// Refuses a ttl that the profile's record has no room for.
    fn check_ttl(&self, ttl_ms: u64) -> Result<(), Failure> {
        let _ = ttl_ms;
        Ok(())
    }

    /// Whether descent from an owner's process shows ownership. Where not, only the id does.
    fn knows_owners_by_process(&self) -> bool {
        true
    }

    /// Whether whatever descends from an owner's process may release without the id. Where not, the
    /// owner has to call itself.
    fn lets_descendants_release(&self) -> bool {
        false
    }

    /// Whether the answer to `release` says how the work ended even if nobody said so.
    fn tells_results(&self) -> bool {
        false
    }

    /// The id that a caller shows who types none.
    fn default_id<'a>(&self, variables: &'a Variables) -> Option<&'a str> {
        let _ = variables;
        None
    }

    /// Whether an id that a caller shows is a claim's own.
    fn shows(&self, claim: &Claim, id: &str) -> bool {
        claim.holder.request_id == RequestId::as_recorded(id)
    }

    /// Whether this is the first use of a lock, as far as the profile has something to say then.
    fn is_first_use(&self, session: &Session, name: &LockName) -> bool {
        let _ = (session, name);
        false
    }

    /// Says that, once the lock has been asked for.
    fn on_first_use(&self, surface: &mut Surface, session: &Session, name: &LockName) {
        let _ = (surface, session, name);
    }

    /// Tells that a lock was acquired, beside the answer.
    fn on_acquired(&self, surface: &mut Surface, name: &LockName, claim: &Claim) {
        let _ = (surface, name, claim);
    }

    /// Tells that a lock was released, beside the answer.
    fn on_released(&self, surface: &mut Surface, name: &LockName) {
        let _ = (surface, name);
    }

    /// The warning that a lock was taken over.
    fn took_over(&self, taken: &TakenOver<'_>) -> String {
        let name = taken.name;
        let whose = match taken.previous.and_then(|claim| claim.holder.process) {
            Some(process) => format!("PID {}", process.pid),
            None => taken.previous.map_or_else(
                || "an unreadable record".to_owned(),
                |claim| format!("request {}", claim.holder.request_id),
            ),
        };
        match taken.why {
            Takeover::Stale(reason) => {
                format!("{name}: took over from {whose}, {}", left_how(reason))
            }
            Takeover::Corrupt => format!("{name}: replaced {whose}"),
            Takeover::Active => format!(
                "{name}: OVERRODE the live hold of {whose}; two holders may be at work until it \
                 notices"
            ),
        }
    }

    /// What a person, or a script of the profile's system, reads when `acquire` succeeds; `text`
    /// is the product's own line and `data` the envelope's.
    fn acquired_text(&self, name: &LockName, claim: &Claim, text: String, data: &Value) -> String {
        let _ = (name, claim, data);
        text
    }

    /// The same when `release` succeeds.
    fn released_text(&self, name: &LockName, text: String, data: &Value) -> String {
        let _ = (name, data);
        text
    }

    /// The same when `force-release` succeeds.
    fn force_released_text(&self, name: &LockName, text: String, data: &Value) -> String {
        self.released_text(name, text, data)
    }

    /// The same when there was nothing to release.
    fn absent_text(&self, name: &LockName) -> String {
        let _ = name;
        String::new()
    }

    /// The same when `heartbeat` succeeds.
    fn renewed_text(&self, name: &LockName, claim: &Claim, text: String, data: &Value) -> String {
        let _ = (name, claim, data);
        text
    }

    /// Gives a refusal the words of the profile.
    fn refused(&self, failure: Failure, view: &LockView, reason: Reason) -> Failure {
        let _ = (view, reason);
        failure
    }

    /// Gives the words of the profile to what somebody is answered who is not the owner.
    fn not_owner(&self, failure: Failure, view: &LockView) -> Failure {
        let _ = view;
        failure
    }

    /// What `wait` prints once the lock is free.
    fn waited_text(&self, name: &LockName, text: String) -> String {
        let _ = name;
        text
    }

    /// Gives a record that cannot be read, and is in the way, the words of the profile.
    fn unreadable(&self, failure: Failure, name: &LockName, why: &str) -> Failure {
        let _ = (name, why);
        failure
    }

    /// What `clean` prints; `locks` is how many were stale or corrupt.
    fn cleaned_text(&self, locks: usize, dry_run: bool, text: String) -> String {
        let _ = (locks, dry_run);
        text
    }

    /// Adds to the failure that `check` answers with for a lock that is in somebody's way.
    fn checked(&self, failure: Failure, view: &LockView) -> Failure {
        let _ = view;
        failure
    }

    /// What `list` prints, and `check` without a name; `text` is the product's own table.
    fn listed_text(&self, views: &[LockView], text: String) -> String {
        let _ = views;
        text
    }

    /// What `check` prints of a lock.
    fn checked_text(&self, view: &LockView) -> String {
        view.text()
    }

    /// What somebody reads whose release was taken for nothing to do, as the lock is another's.
    fn ignored_text(&self, name: &LockName, claim: &Claim) -> String {
        format!(
            "{name} is held by request {} and was not released",
            claim.holder.request_id
        )
    }
}

/// How a holder left its lock to the next one, as a part of a sentence about it.
fn left_how(reason: StaleReason) -> &'static str {
    match reason {
        StaleReason::LivenessLockReleased
        | StaleReason::ProcessDead(Death::Gone | Death::Zombie | Death::Replaced) => {
            "which ended without releasing"
        }
        StaleReason::ProcessDead(Death::Rebooted) => "whose machine has restarted since",
        StaleReason::Silent => {
            "whose lease ran out (no heartbeat for longer than its ttl; it may be stopped or cut off, \
             and must not rely on the lock any more)"
        }
        StaleReason::Aged => "whose lock was older than its profile allows",
        StaleReason::ProcessUnknown => "whose process cannot be checked",
        StaleReason::Unreadable => "whose record could not be read",
    }
}

/// The face that goes with a format.
pub(crate) fn of_format(format: &str) -> &'static dyn Face {
    match format {
        "sprint" => &sprint::Sprint,
        "resume" => &resume::Resume,
        "session" => &session::Session,
        "fleet" => &fleet::Fleet,
        _ => &native::Native,
    }
}

/// The face for a call.
pub(crate) fn of(common: &Common, around: &Surroundings) -> Result<&'static dyn Face, Failure> {
    let format = format(common, around)?;
    Ok(format.map_or(&native::Native, of_format))
}

/// The format of the profile that a call names, if it names one.
pub(crate) fn format(
    common: &Common,
    around: &Surroundings,
) -> Result<Option<&'static str>, Failure> {
    let Some(name) = &common.profile else {
        return Ok(None);
    };
    if let Some(policy) = Policy::ALL.iter().find(|policy| policy.name == name) {
        return Ok(Some(policy.name));
    }
    let config = around.configuration()?;
    let profile = profile::by_name(name, &Settings::default(), &config)?;
    Ok(Some(profile.format()))
}

/// An age in whole seconds, as the systems' own messages have it.
pub(crate) fn seconds(millis: u64) -> u64 {
    millis / 1_000
}
