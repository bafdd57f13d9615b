//! `audit`: its flags, and what they mean.

use super::{Place, Surroundings, asked_for};
use crate::args::value::{self, Moment, Typed, typed};
use crate::args::{AGENTS, Common, OfLock};
use crate::failure::Failure;
use clap::Args;
use tenure_core::{AgentKey, LockName, RequestId};
use tenure_engine::audit::{Entry, EventName, Filter};

/// `audit`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  tenure audit deploy --since 1h        what happened to deploy in the last hour
  tenure audit --since yesterday --waited   who waited longest, and behind whom
  tenure audit --since yesterday --held     who held a lock longest
  tenure audit --event refused          who was refused, and how often
  tenure audit --request-id run-42      what one run did
  tenure audit -f --since 0s            what happens from now on
  tenure audit -f --output json | jq .  the same, one JSON object per line

The oldest event comes first. Times are in your time zone; with --output json in UTC. --output json prints one \
document (data.events), or with -f one JSON object per line. audit only reads: without an audit there are no \
events.")]
pub(crate) struct AuditArgs {
    #[command(flatten)]
    pub(crate) sought: Sought,
    /// Only these events (refused); may be given more than once
    ///
    /// acquired, stolen, released, release_failed, heartbeat_failed, orphan_ended, skipped, refused,
    /// lost, superseded or cancelled; their whole names (lock_refused) as well
    #[arg(long, value_name = "EVENT", value_parser = typed(value::event))]
    pub(crate) event: Vec<Typed<EventName>>,
    /// Only callers that waited or were refused, the longest wait first
    #[arg(long, conflicts_with_all = ["held", "follow"])]
    pub(crate) waited: bool,
    /// Only holds that have ended, the longest first
    #[arg(long, conflicts_with = "follow")]
    pub(crate) held: bool,
    /// Go on with new events as they happen
    #[arg(short, long)]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// The part of the past that a call asks for.
#[derive(Debug, Clone, Args)]
pub(crate) struct Sought {
    /// The name of the lock; all of them if it is left out
    #[arg(value_name = "NAME", value_parser = typed(value::name))]
    pub(crate) name: Option<Typed<LockName>>,
    #[command(flatten)]
    pub(crate) of: OfLock,
    /// Not before this time: "2026-02-07 10:00", yesterday, 15m (ago)
    ///
    /// A time here ("2026-02-07 10:00", 2026-02-07, 10:00, today, yesterday), one with its zone
    /// (2026-02-07T10:00:00Z), or a duration, which means that long ago
    #[arg(long, value_name = "TIME", value_parser = typed(value::moment))]
    pub(crate) since: Option<Typed<Moment>>,
    /// Not after this time
    #[arg(long, value_name = "TIME", value_parser = typed(value::moment))]
    pub(crate) until: Option<Typed<Moment>>,
    /// Only events with this id
    #[arg(long, value_name = "ID", visible_aliases = ["session-id", "run-id"], value_parser = typed(value::request_id))]
    pub(crate) request_id: Option<Typed<RequestId>>,
    /// Only events of this agent, or of an agent of this session
    #[arg(long = "as", value_name = "KEY", help_heading = AGENTS, hide_short_help = true, value_parser = typed(value::agent))]
    pub(crate) agent: Option<Typed<AgentKey>>,
}

impl Sought {
    /// The place, and what is wanted of its audit.
    pub(super) fn filter(
        &self,
        common: &Common,
        around: &Surroundings,
        now_ms: u64,
    ) -> Result<(Place, Filter), Failure> {
        let since = value::given("--since", self.since.as_ref())?;
        let until = value::given("--until", self.until.as_ref())?;
        let place = Place::of(common, around)?;
        let name = asked_for(&place, self.name.as_ref(), around)?;
        let since_ms = since.map(|since| since.first_ms(now_ms));
        let until_ms = until.map(|until| until.last_ms(now_ms));
        if since_ms
            .zip(until_ms)
            .is_some_and(|(since, until)| since > until)
        {
            return Err(Failure::bad_arguments(
                "--since is later than --until, so no event can lie between them",
            ));
        }
        let filter = Filter {
            lock: name.map(|name| name.as_str().to_owned()),
            events: Vec::new(),
            since_ms,
            until_ms,
            // Whatever another program calls itself may stand in an audit.
            request_id: self.request_id.as_ref().map(|id| id.text.clone()),
            agent: value::given("--as", self.agent.as_ref())?,
        };
        Ok((place, filter))
    }
}

/// Shows what happened to locks.
#[derive(Debug)]
pub(crate) struct Audit {
    pub(crate) place: Place,
    pub(crate) filter: Filter,
    pub(crate) follow: bool,
    pub(crate) sorted: Sorted,
}

/// In which order events are shown, and which of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sorted {
    /// All of them, oldest first.
    Time,
    /// Events of callers that waited, the longest wait first.
    Wait,
    /// Events that end a hold, the longest hold first.
    Hold,
}

impl Sorted {
    /// What an event is sorted by, in milliseconds.
    pub(crate) fn value(self, entry: &Entry) -> Option<u64> {
        let key = match self {
            Self::Time => return None,
            Self::Wait => "waited_ms",
            Self::Hold => "held_ms",
        };
        let value = entry.number(key);
        // A lock that was free makes no caller wait.
        value.filter(|value| self == Self::Hold || *value > 0)
    }
}

impl Audit {
    pub(crate) fn of(
        typed: &AuditArgs,
        around: &Surroundings,
        now_ms: u64,
    ) -> Result<Self, Failure> {
        let events = typed.event.iter().map(|event| event.value("--event"));
        let events = events.collect::<Result<_, _>>()?;
        let (place, filter) = typed.sought.filter(&typed.common, around, now_ms)?;
        Ok(Self {
            filter: Filter { events, ..filter },
            follow: typed.follow,
            sorted: match (typed.waited, typed.held) {
                (true, _) => Sorted::Wait,
                (_, true) => Sorted::Hold,
                (false, false) => Sorted::Time,
            },
            place,
        })
    }
}
