//! What the format of a profile says about a call: one table of all facts in which the contracts differ.
//!
//! How a contract is *worded* stands in `dialect`; where its *flow* differs, it is a command of its own.

use super::place::{Purpose, built_in, profile_name};
use super::{ClaimWords, Intends, Place, Surroundings, Variables, fresh_id, intended, known_as};
use crate::args::Common;
use crate::failure::Failure;
use tenure_core::{Claim, Holder, Policy, RequestId};
use tenure_engine::formats::ProfileError;
use tenure_store::profile;

/// The formats of records, and the product's own lists of claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Native,
    Resume,
    Session,
    Fleet,
    Sprint,
}

/// The key under which a session's record names the run.
const RUN: &str = "runId";

const SECOND_MS: u64 = 1_000;

impl Format {
    /// The format of a profile, by its name.
    pub(crate) fn named(name: &str) -> Self {
        match name {
            "resume" => Self::Resume,
            "session" => Self::Session,
            "fleet" => Self::Fleet,
            "sprint" => Self::Sprint,
            _ => Self::Native,
        }
    }

    /// The format of a call's profile, if the call, a variable or the configuration names one.
    pub(crate) fn of(common: &Common, around: &Surroundings) -> Result<Option<Self>, Failure> {
        // Groups are native locks, whatever the profile of the others.
        if around.group()?.is_some() {
            return Ok(Some(Self::Native));
        }
        let Some(name) = profile_name(common, around)? else {
            return Ok(None);
        };
        let name = built_in(name, around, Purpose::Tend)?;
        if !Policy::ALL.iter().any(|policy| policy.name == name) {
            return Err(ProfileError::Unknown { name }.into());
        }
        Ok(Some(Self::named(&name)))
    }

    /// The format's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Resume => "resume",
            Self::Session => "session",
            Self::Fleet => "fleet",
            Self::Sprint => "sprint",
        }
    }

    /// The name of the lock if the caller gives none.
    pub(crate) fn default_name(self) -> Option<&'static str> {
        (self == Self::Sprint).then_some(super::sprint::NAME)
    }

    /// The part of a claim's meaning that the profile decides.
    pub(crate) fn intends(
        self,
        asked: &ClaimWords<'_>,
        around: &Surroundings,
    ) -> Result<Intends, Failure> {
        match self {
            Self::Native | Self::Resume => Intends::as_typed(asked),
            Self::Session => {
                let mut intends = Intends::as_typed(asked)?;
                let named = known_as(asked.claiming.request_id.as_ref(), self, around)?;
                let run = named.map(|id| (RUN.to_owned(), id.to_string()));
                intends.facts.extend(run);
                Ok(intends)
            }
            Self::Sprint => {
                let mut intends = Intends::as_typed(asked)?;
                let epic_spec = asked.claiming.epic_spec.clone();
                let fact = epic_spec.map(|epic_spec| ("epic_spec".to_owned(), epic_spec));
                intends.facts.extend(fact);
                Ok(intends)
            }
            // An intent says which lock is taken, or that none is; the record names the intent.
            Self::Fleet => {
                let mut intends = intended::meaning(asked)?;
                let config = around.configuration()?;
                if let Some(id) = config.host_id() {
                    intends.facts.push(("host_id".to_owned(), id.to_owned()));
                }
                Ok(intends)
            }
        }
    }

    /// The request id of a new hold: the caller's, else a fresh one.
    pub(crate) fn request_id(self, given: Option<RequestId>) -> Result<RequestId, Failure> {
        match self {
            Self::Native | Self::Resume | Self::Sprint => super::request_id_or_new(given),
            // All jobs of a run and its re-runs share the run's id, so it owns nothing by itself. Every
            // hold has a token of its own beside it.
            Self::Session => super::request_id_or_new(None),
            // `req_` and 12 hex digits.
            Self::Fleet => given.map_or_else(fresh_id::<6>, Ok),
        }
    }

    /// Adds to a new holder the facts for the record that follow from the holder's id.
    pub(crate) fn complete(self, holder: &mut Holder) {
        // A caller that names no run is known by the hold's own id.
        if self == Self::Session && holder.fact(RUN).is_none() {
            let id = holder.request_id.to_string();
            holder.facts.push((RUN.to_owned(), id));
        }
    }

    /// The actor of a claim that names none; `None` for the user who runs this.
    pub(crate) fn actor(self, variables: &Variables) -> Option<String> {
        (self == Self::Fleet).then(|| {
            let named = variables.actor.as_deref().map(profile::why);
            named.unwrap_or_else(|| "unknown".to_owned())
        })
    }

    /// Refuses a ttl that the record has no room for.
    pub(crate) fn check_ttl(self, ttl_ms: u64) -> Result<(), Failure> {
        let fits = ttl_ms >= SECOND_MS && ttl_ms.is_multiple_of(SECOND_MS);
        if fits || self != Self::Fleet {
            return Ok(());
        }
        Err(Failure::bad_arguments(
            "--ttl: a fleet lock is leased for whole seconds, at least one",
        ))
    }

    /// Whether descent from an owner's process shows ownership. A fleet knows its owners by their
    /// request id alone; there a process id is information only.
    pub(crate) fn knows_owners_by_process(self) -> bool {
        self != Self::Fleet
    }

    /// Whether every process that descends from the owner may release without the id. Elsewhere the owner
    /// itself has to call. A resume record knows its owner by nothing but the process.
    pub(crate) fn lets_descendants_release(self) -> bool {
        self == Self::Resume
    }

    /// Whether the answer to `release` says how the work ended even if the caller did not say it.
    pub(crate) fn tells_results(self) -> bool {
        self == Self::Fleet
    }

    /// The word for a hold after its heartbeat. No heartbeat changes how long a sprint lasts.
    pub(crate) fn renewed(self) -> &'static str {
        if self == Self::Sprint {
            "held"
        } else {
            "renewed"
        }
    }

    /// The id that counts as shown if the caller types none.
    pub(crate) fn default_id(self, variables: &Variables) -> Option<&str> {
        let run_id = variables.run_id.as_deref();
        run_id.filter(|_| self == Self::Session)
    }

    /// Whether an id that a caller shows is a claim's own.
    pub(crate) fn shows(self, claim: &Claim, id: &str) -> bool {
        let is_run = self == Self::Session && claim.holder.fact(RUN) == Some(id);
        is_run || claim.holder.request_id == RequestId::as_recorded(id)
    }
}

impl Place {
    /// The format of its profile.
    pub(crate) fn format(&self) -> Format {
        Format::named(self.profile().policy().name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_of_a_fleet_has_whole_seconds() {
        for good in [1_000, 2_000, 900_000] {
            assert!(Format::Fleet.check_ttl(good).is_ok(), "{good} ms");
        }
        for bad in [1, 500, 999, 1_001, 1_500] {
            assert!(Format::Fleet.check_ttl(bad).is_err(), "{bad} ms");
        }
    }

    #[test]
    fn every_built_in_profile_names_its_format() {
        for policy in Policy::ALL {
            assert_eq!(Format::named(policy.name).name(), policy.name);
        }
    }
}
