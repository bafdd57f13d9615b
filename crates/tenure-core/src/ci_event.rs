//! Decides the concurrency group of a run that an event of a CI service has started.
//!
//! - an issue and its comments: `issue-N`
//! - a pull request, its reviews and all comments on it: `pr-N`. A comment in the conversation of a pull
//!   request arrives as `issue_comment`, because the service treats every pull request as an issue as well.
//!   It belongs to the pull request all the same, because such a run works on that.
//! - a schedule: `schedule`
//! - started by hand: `dispatch-RUNID`, which no other run shares
//! - everything else: `other-RUNID`
//!
//! The caller finds the facts, and decides what a group does.

use crate::name::{LockName, NameError};
use alloc::format;
use alloc::string::String;
use core::fmt;

/// What is known of an event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CiEvent<'a> {
    /// What the service calls it: `issue_comment`, `schedule` …
    pub event: &'a str,
    /// The number of the issue or pull request.
    pub number: Option<u64>,
    /// Whether the number is a pull request's, whatever the event is called.
    pub on_pull_request: bool,
    /// The id of the run.
    pub run_id: Option<&'a str>,
}

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// An issue, or a comment on one (which may be a pull request).
    Issue,
    /// A pull request.
    PullRequest,
    /// The time.
    Schedule,
    /// A person or a program requested the run.
    Dispatch,
    /// Anything else.
    Other,
}

impl Subject {
    /// The subject of an event of this name; [`Subject::Other`] for an unknown name.
    pub fn of(event: &str) -> Self {
        match event {
            "issues" | "issue_comment" => Self::Issue,
            "pull_request"
            | "pull_request_target"
            | "pull_request_review"
            | "pull_request_review_comment"
            | "pull_request_review_thread" => Self::PullRequest,
            "schedule" => Self::Schedule,
            "workflow_dispatch" => Self::Dispatch,
            _ => Self::Other,
        }
    }

    /// Whether the number has to be known.
    pub fn needs_number(self) -> bool {
        match self {
            Self::Issue | Self::PullRequest => true,
            Self::Schedule | Self::Dispatch | Self::Other => false,
        }
    }
}

/// The group of a run, in lower case, with `prefix` and a hyphen before it if there is one.
///
/// # Errors
/// - [`GroupNameError::NoEvent`] if the event has no name, or none that a service would give it.
/// - [`GroupNameError::NoNumber`] and [`GroupNameError::NoRunId`] if the group is named after
///   something that is not known.
/// - [`GroupNameError::Name`] if the result is not a valid lock name.
///
/// # Examples
/// ```
/// use tenure_core::{CiEvent, group_name};
/// let event = CiEvent { event: "issue_comment", number: Some(42), ..CiEvent::default() };
/// assert_eq!(group_name(None, &event).unwrap().as_str(), "issue-42");
/// ```
pub fn group_name(prefix: Option<&str>, event: &CiEvent<'_>) -> Result<LockName, GroupNameError> {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if event.event.is_empty() || !event.event.chars().all(is_name) {
        return Err(GroupNameError::NoEvent);
    }
    let number = || {
        event
            .number
            .filter(|number| *number > 0)
            .ok_or(GroupNameError::NoNumber)
    };
    let run_id = || {
        event
            .run_id
            .filter(|id| !id.is_empty())
            .ok_or(GroupNameError::NoRunId)
    };
    let group = match Subject::of(event.event) {
        Subject::Issue if event.on_pull_request => format!("pr-{}", number()?),
        Subject::Issue => format!("issue-{}", number()?),
        Subject::PullRequest => format!("pr-{}", number()?),
        Subject::Schedule => String::from("schedule"),
        Subject::Dispatch => format!("dispatch-{}", run_id()?),
        Subject::Other => format!("other-{}", run_id()?),
    };
    let name = match prefix {
        Some(prefix) => format!("{prefix}-{group}"),
        None => group,
    };
    LockName::new(name.to_ascii_lowercase()).map_err(|why| GroupNameError::Name { name, why })
}

/// Why an event names no group.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupNameError {
    /// The event's name is missing, or not written as services write them.
    NoEvent,
    /// The group is named after an issue or pull request whose number is not known.
    NoNumber,
    /// The group is named after a run whose id is not known.
    NoRunId,
    /// The parts do not make a valid lock name.
    Name {
        /// The parts together.
        name: String,
        /// The rule that they break.
        why: NameError,
    },
}

impl fmt::Display for GroupNameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEvent => f.write_str("an event is named in a-z, 0-9 and _"),
            Self::NoNumber => f.write_str("the number of the issue or pull request is missing"),
            Self::NoRunId => f.write_str("the id of the run is missing"),
            Self::Name { name, why } => write!(f, "{name:?} cannot be the name of a group: {why}"),
        }
    }
}

impl core::error::Error for GroupNameError {}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn facts(event: &str) -> CiEvent<'_> {
        CiEvent {
            event,
            number: Some(42),
            on_pull_request: false,
            run_id: Some("777"),
        }
    }

    #[test]
    fn every_event_has_its_group() {
        for (event, group) in [
            ("issues", "issue-42"),
            ("issue_comment", "issue-42"),
            ("pull_request", "pr-42"),
            ("pull_request_target", "pr-42"),
            ("pull_request_review", "pr-42"),
            ("pull_request_review_comment", "pr-42"),
            ("pull_request_review_thread", "pr-42"),
            ("schedule", "schedule"),
            ("workflow_dispatch", "dispatch-777"),
            ("repository_dispatch", "other-777"),
            ("push", "other-777"),
            ("workflow_run", "other-777"),
            ("merge_group", "other-777"),
            ("something_new", "other-777"),
        ] {
            let name = group_name(None, &facts(event)).expect(event);
            assert_eq!(name.as_str(), group, "{event}");
            let prefixed = group_name(Some("Agent"), &facts(event)).expect(event);
            assert_eq!(prefixed.to_string(), format!("agent-{group}"), "{event}");
        }
    }

    #[test]
    fn a_comment_on_a_pull_request_belongs_to_the_pull_request() {
        let mut comment = facts("issue_comment");
        comment.on_pull_request = true;
        assert_eq!(
            group_name(None, &comment).map(|name| name.to_string()),
            Ok("pr-42".into())
        );
    }

    #[test]
    fn a_group_is_written_in_lower_case() {
        let mut other = facts("push");
        other.run_id = Some("Run-A");
        assert_eq!(
            group_name(None, &other).map(|name| name.to_string()),
            Ok("other-run-a".into())
        );
    }

    #[test]
    fn what_is_missing_is_asked_for_and_what_is_not_needed_is_not() {
        let nothing = |event| CiEvent {
            event,
            ..CiEvent::default()
        };
        for (event, error) in [
            ("", GroupNameError::NoEvent),
            ("Issues", GroupNameError::NoEvent),
            ("a b", GroupNameError::NoEvent),
            ("issues", GroupNameError::NoNumber),
            ("pull_request", GroupNameError::NoNumber),
            ("workflow_dispatch", GroupNameError::NoRunId),
            ("push", GroupNameError::NoRunId),
        ] {
            assert_eq!(group_name(None, &nothing(event)), Err(error), "{event}");
        }
        assert!(group_name(None, &nothing("schedule")).is_ok());
        let mut none = facts("issues");
        none.number = Some(0);
        assert_eq!(group_name(None, &none), Err(GroupNameError::NoNumber));
    }

    #[test]
    fn a_number_is_needed_where_the_group_is_named_after_it() {
        for event in [
            "issues",
            "issue_comment",
            "pull_request",
            "schedule",
            "push",
        ] {
            let mut unnumbered = facts(event);
            unnumbered.number = None;
            let named = group_name(None, &unnumbered);
            assert_eq!(
                Subject::of(event).needs_number(),
                named == Err(GroupNameError::NoNumber),
                "{event}: {named:?}"
            );
        }
    }

    #[test]
    fn what_is_no_name_of_a_lock_is_no_group() {
        let mut other = facts("push");
        for (prefix, run_id) in [
            (None, "a/b"),
            (None, "a b"),
            (Some("../x"), "1"),
            (Some(""), "1"),
            (Some("-x"), "1"),
        ] {
            other.run_id = Some(run_id);
            let named = group_name(prefix, &other);
            assert!(
                matches!(named, Err(GroupNameError::Name { .. })),
                "{prefix:?} {run_id}: {named:?}"
            );
        }
    }
}
