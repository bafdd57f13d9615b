//! The hold that a call means: by an id that the caller shows for its own, or by what it saw of another's.

use super::{Place, Surroundings};
use crate::args::value::Typed;
use crate::failure::Failure;
use tenure_core::{Claim, RequestId};

/// The id that a caller shows for a hold, or by which the profile knows it.
#[derive(Debug, Default)]
pub(crate) struct ShownId {
    id: Option<String>,
    /// The id does not have tenure's form, so it counts only if a record names it.
    refusal: Option<Failure>,
}

impl ShownId {
    /// The id as it was typed, whether it counts or not.
    pub(crate) fn as_typed(&self) -> Option<&str> {
        self.id.as_deref()
    }

    pub(super) fn of(
        typed: Option<&Typed<RequestId>>,
        place: &Place,
        around: &Surroundings,
    ) -> Self {
        let Some(typed) = typed else {
            let known = place.format().default_id(&around.variables);
            return Self {
                id: known.map(str::to_owned),
                refusal: None,
            };
        };
        Self::typed("--request-id", typed)
    }

    /// A typed id; a message about a mistake names `source`.
    pub(crate) fn typed(source: &str, typed: &Typed<RequestId>) -> Self {
        Self {
            id: Some(typed.text.clone()),
            refusal: typed.value(source).err(),
        }
    }

    /// The id. If it does not have tenure's form it is refused, unless the hold is recorded under it.
    pub(crate) fn id(
        &self,
        is_recorded: impl FnOnce(&str) -> bool,
    ) -> Result<Option<&str>, Failure> {
        let id = self.id.as_deref();
        match &self.refusal {
            Some(refusal) if !id.is_some_and(is_recorded) => Err(refusal.clone()),
            _ => Ok(id),
        }
    }
}

/// The one hold that a call means, as its caller saw it.
#[derive(Debug, Default)]
pub(crate) struct Meant {
    /// As it was typed: another program's record may have an id of any form.
    pub(crate) request_id: Option<String>,
    pub(crate) token: Option<u64>,
}

impl Meant {
    /// Whether each hold is meant.
    pub(crate) fn is_any(&self) -> bool {
        self.request_id.is_none() && self.token.is_none()
    }

    /// Whether a hold is the one.
    pub(crate) fn is(&self, claim: &Claim) -> bool {
        let has_id = |id: &String| tenure_store::profile::known_as(&claim.holder) == id;
        self.request_id.as_ref().is_none_or(has_id)
            && self.token.is_none_or(|token| claim.token == Some(token))
    }
}
