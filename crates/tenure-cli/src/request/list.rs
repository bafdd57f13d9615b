//! `list`: its flags, and what they mean.

use super::{Place, Surroundings, asked_for};
use crate::args::value::{self, Typed, typed};
use crate::args::{AGENTS, Common, OfLock};
use crate::failure::Failure;
use clap::Args;
use tenure_core::{AgentKey, LockName};

/// `list`.
#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "Examples:
  tenure list
  tenure list --all                free locks too
  tenure list -q                   one line for each lock, without who waits
  tenure list --sort queue         the longest queue first
  tenure list --output json | jq '.data.locks[] | {name, standing}'

On a terminal the table is as wide as the terminal, elsewhere as COLUMNS says; without COLUMNS nothing is cut. \
JSON and YAML have every lock, with its standing.")]
pub(crate) struct ListArgs {
    /// Only this lock
    #[arg(value_name = "NAME", value_parser = typed(value::name))]
    pub(crate) name: Option<Typed<LockName>>,
    #[command(flatten)]
    pub(crate) of: OfLock,
    /// Show free locks too
    #[arg(long)]
    pub(crate) all: bool,
    /// Only locks that somebody waits for
    #[arg(long)]
    pub(crate) waiting: bool,
    /// The order: by name, or by queue, the longest first [default: name]
    ///
    /// Numbers in names are counted: svc-2 comes before svc-10
    #[arg(long, value_name = "ORDER", value_enum, hide_possible_values = true)]
    pub(crate) sort: Option<Order>,
    /// Only locks that this agent, or an agent of this session, holds or waits for
    #[arg(long = "as", value_name = "KEY", help_heading = AGENTS, hide_short_help = true, value_parser = typed(value::agent))]
    pub(crate) agent: Option<Typed<AgentKey>>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// In which order `list` shows locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Order {
    /// As people count
    Name,
    /// Most waiters first
    Queue,
}

/// Shows all locks.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) place: Place,
    /// Only locks that this agent, or an agent of this session, holds or waits for.
    pub(crate) of: Option<AgentKey>,
    /// Free ones too.
    pub(crate) all: bool,
    /// Only locks with a waiter.
    pub(crate) waiting: bool,
    pub(crate) order: Order,
    /// Only this one.
    pub(crate) name: Option<LockName>,
    /// Other holders and waiters are left out.
    pub(crate) short: bool,
}

impl List {
    pub(crate) fn of(typed: &ListArgs, around: &Surroundings) -> Result<Self, Failure> {
        let place = Place::of(&typed.common, around)?.asked_about(around);
        Ok(Self {
            name: asked_for(&place, typed.name.as_ref(), around)?,
            place,
            of: value::given("--as", typed.agent.as_ref())?,
            all: typed.all,
            waiting: typed.waiting,
            order: typed.sort.unwrap_or(Order::Name),
            short: typed.common.quiet,
        })
    }
}
