//! Values as people write them: in a flag, in the environment, in a configuration. Each form is read by one
//! function.
//!
//! A value keeps its text, for messages that repeat it. `request` reports what is wrong with it: only
//! there it is known in which profile's words a mistake is answered, and about which lock.

use crate::failure::Failure;
#[cfg(windows)]
use crate::signals::numbers as libc;
use crate::supervise::OnLost;
use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};
use std::time::Duration;
use tenure_core::{AgentKey, LockName, Mode, Queueing, RequestId};
use tenure_engine::audit::EventName;
use tenure_engine::config::{OnError, Scope};
use tenure_engine::duration::{self, DurationError};
use tenure_engine::engine::Wait;
use tenure_engine::fence::{self, TOKEN_MAX};
use tenure_engine::group;
use tenure_engine::leased_path::Across;
use tenure_os::clock::{Clock, SystemClock};

/// A value that was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Typed<T> {
    /// What was typed.
    pub(crate) text: String,
    /// What it says, or what is wrong with it.
    said: Result<T, String>,
}

impl<T: Clone> Typed<T> {
    /// Reads it.
    pub(crate) fn of(text: impl Into<String>, read: Reader<T>) -> Self {
        let text = text.into();
        let said = read(&text);
        Self { text, said }
    }

    /// What it says. The message about a mistake begins with `source`, usually a flag.
    pub(crate) fn value(&self, source: &str) -> Result<T, Failure> {
        self.said.clone().map_err(|why| wrong(source, &why))
    }

    /// Makes it a part of something else.
    #[cfg(unix)]
    pub(crate) fn map<U>(self, part_of: impl FnOnce(T) -> U) -> Typed<U> {
        let Self { text, said } = self;
        let said = said.map(part_of);
        Typed { text, said }
    }

    /// What it says, if it makes sense.
    pub(crate) fn ok(&self) -> Option<&T> {
        self.said.as_ref().ok()
    }
}

/// Reads one form. Its error is the end of a sentence that begins with where the text was written.
pub(crate) type Reader<T> = fn(&str) -> Result<T, String>;

/// The parser of a flag whose value has this form. It refuses nothing.
pub(crate) fn typed<T: Clone + Send + Sync + 'static>(
    read: Reader<T>,
) -> impl TypedValueParser<Value = Typed<T>> {
    StringValueParser::new().map(move |text| Typed::of(text, read))
}

/// The parser of a scope.
pub(super) fn scope() -> impl TypedValueParser<Value = Scope> {
    let words = Scope::ALL.map(|scope| {
        PossibleValue::new(scope.as_str()).help(match scope {
            Scope::User => "your own processes",
            Scope::Repo => "all work trees of this git clone",
            Scope::Machine => "all users whom the administrator lets in",
        })
    });
    PossibleValuesParser::new(words)
        .try_map(|word| Scope::from_word(&word).ok_or("no scope of that name"))
}

/// The parser of a range of paths.
pub(super) fn across() -> impl TypedValueParser<Value = Across> {
    let words = [Across::Worktree, Across::Repo].map(|across| {
        PossibleValue::new(across.as_str()).help(match across {
            Across::Worktree => "this very file",
            Across::Repo => "the file of this path in all work trees",
        })
    });
    PossibleValuesParser::new(words)
        .try_map(|word| Across::from_word(&word).ok_or("no range of that name"))
}

/// An agent's key.
pub(crate) fn agent(text: &str) -> Result<AgentKey, String> {
    text.parse().map_err(|why| format!("{text:?}: {why}"))
}

/// Reads what was written elsewhere, if anything was.
pub(crate) fn read<T>(
    source: &str,
    text: Option<&str>,
    read: Reader<T>,
) -> Result<Option<T>, Failure> {
    let said = text.map(read).transpose();
    said.map_err(|why| wrong(source, &why))
}

/// What a value that was typed says, if one was.
pub(crate) fn given<T: Clone>(
    source: &str,
    typed: Option<&Typed<T>>,
) -> Result<Option<T>, Failure> {
    typed.map(|typed| typed.value(source)).transpose()
}

fn wrong(source: &str, why: &str) -> Failure {
    Failure::bad_arguments(format!("{source} {why}"))
}

/// A duration.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(|error| {
        let hint = match error {
            DurationError::TooLong { .. } => "; write `forever` to wait without a limit",
            DurationError::Form { .. } => " (a wait may also be `forever`)",
        };
        format!("{error}{hint}")
    })
}

/// How long to wait.
pub(crate) fn wait(text: &str) -> Result<Wait, String> {
    if text == "forever" {
        return Ok(Wait::Forever);
    }
    let duration = duration(text)?;
    Ok(if duration.is_zero() {
        Wait::No
    } else {
        Wait::For(duration)
    })
}

/// The duration of a lease.
pub(crate) fn lease(text: &str) -> Result<Duration, String> {
    lasting(text, "a lease has to last longer than nothing")
}

/// How long something may take.
pub(crate) fn limit(text: &str) -> Result<Duration, String> {
    lasting(
        text,
        "a limit has to be longer than nothing; leave it out for none",
    )
}

fn lasting(text: &str, otherwise: &str) -> Result<Duration, String> {
    let duration = duration(text)?;
    if duration.is_zero() {
        return Err(format!("{text}: {otherwise}"));
    }
    Ok(duration)
}

/// The name of a lock, as far as it can be checked without knowing the profile.
pub(crate) fn name(text: &str) -> Result<LockName, String> {
    LockName::new(text).map_err(|why| format!("{text:?} cannot be used: {why}"))
}

/// A lock of a call, and how it alone is held. `--lock` takes `NAME`, `NAME:shared`, `NAME:exclusive` or
/// `NAME:slots=N`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Further {
    pub(crate) name: LockName,
    /// `None` if only the name is said.
    pub(crate) mode: Option<Mode>,
}

impl From<LockName> for Further {
    fn from(name: LockName) -> Self {
        Self { name, mode: None }
    }
}

/// Reads one.
pub(crate) fn further(text: &str) -> Result<Further, String> {
    let Some((lock, form)) = text.split_once(':') else {
        return name(text).map(Further::from);
    };
    let slots = |number: &str| number.parse().ok().map(Mode::Slots);
    let mode = match form {
        "shared" => Some(Mode::Shared),
        "exclusive" => Some(Mode::Exclusive),
        _ => form.strip_prefix("slots=").and_then(slots),
    };
    let Some(mode) = mode else {
        return Err(format!(
            "{text:?}: write NAME, NAME:shared, NAME:exclusive or NAME:slots=N"
        ));
    };
    let name = name(lock)?;
    let mode = Some(mode);
    Ok(Further { name, mode })
}

/// What a message about a wrong name of a lock begins with.
pub(crate) const LOCK_NAME: &str = "the lock name";

/// What a message about a wrong name of a group begins with.
pub(crate) const GROUP_NAME: &str = "the group name";

/// The lock of a group.
pub(crate) fn group(name: &str) -> Result<LockName, String> {
    group::lock_name(name).map_err(|why| format!("{name:?} cannot be used: {why}"))
}

/// A request id.
pub(crate) fn request_id(text: &str) -> Result<RequestId, String> {
    RequestId::new(text).map_err(|why| format!("{text:?}: {why}"))
}

/// A pair of a flag that takes `KEY=VALUE` and may be given several times.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .filter(|(key, _)| !key.is_empty())
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .ok_or_else(|| format!("{text:?}: write KEY=VALUE"))
}

/// Whose life a lock follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    None,
    /// What outlives the call and ends with the work.
    Auto,
    /// The process that lives as long as the job of CI, the notebook or the playbook.
    Job,
    Parent,
    Process(u32),
}

impl Default for Typed<Owner> {
    /// As without the flag.
    fn default() -> Self {
        Self::of(OWNER, owner)
    }
}

/// Whose life a lock follows where the call does not say it.
pub(crate) const OWNER: &str = "auto";

/// Reads one.
pub(crate) fn owner(text: &str) -> Result<Owner, String> {
    match text {
        "none" => Ok(Owner::None),
        "auto" => Ok(Owner::Auto),
        "job" => Ok(Owner::Job),
        "parent" => Ok(Owner::Parent),
        pid => {
            let pid = pid.parse().ok().filter(|pid| *pid > 0);
            pid.map(Owner::Process)
                .ok_or_else(|| format!("{text}: write a PID, job, parent, none or auto"))
        }
    }
}

/// How a place in line is found again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ticket {
    /// The place of the script or agent that calls.
    Auto,
    Numbered(u64),
}

/// Reads one.
pub(crate) fn ticket(text: &str) -> Result<Ticket, String> {
    if text == "auto" {
        return Ok(Ticket::Auto);
    }
    text.parse()
        .map(Ticket::Numbered)
        .map_err(|_| format!("{text:?}: write auto, or the ticket that a refusal named"))
}

/// Whose life a run follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Follow {
    /// The process that started it.
    Parent,
    /// The process with this number.
    Process(u32),
    /// The process that a hold of this caller would follow; none where it cannot be seen from here.
    Auto,
}

/// Reads whose.
pub(crate) fn follow(text: &str) -> Result<Follow, String> {
    if text == "auto" {
        return Ok(Follow::Auto);
    }
    let number = text.parse().map(Follow::Process);
    number.map_err(|_| "write auto, or the number of a process".to_owned())
}

/// An instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// First and last millisecond, since the Unix epoch.
    At {
        first: u64,
        last: u64,
    },
    Ago(Duration),
}

impl Moment {
    /// The first millisecond of it.
    pub(crate) fn first_ms(self, now_ms: u64) -> u64 {
        match self {
            Self::At { first, .. } => first,
            Self::Ago(ago) => now_ms.saturating_sub(millis(ago)),
        }
    }

    /// The last millisecond of it.
    pub(crate) fn last_ms(self, now_ms: u64) -> u64 {
        match self {
            Self::At { last, .. } => last,
            Self::Ago(_) => self.first_ms(now_ms),
        }
    }
}

/// Reads one: RFC 3339, a time in the zone of the caller, `today`, `yesterday`, or a duration, which means that long ago.
pub(crate) fn moment(text: &str) -> Result<Moment, String> {
    let zone = jiff::tz::TimeZone::system();
    let now = i64::try_from(SystemClock::new(None).now().wall_us).unwrap_or(0);
    let now = jiff::Timestamp::from_microsecond(now).unwrap_or_default();
    if let Some((first, last)) = instants(text.trim(), &now.to_zoned(zone)) {
        // Before 1970 there were no locks.
        let millis = |at: jiff::Timestamp| u64::try_from(at.as_millisecond()).unwrap_or(0);
        // Tables show times to the second, so a time without a fraction means all of its second.
        let rest = if last.subsec_nanosecond() == 0 {
            999
        } else {
            0
        };
        return Ok(Moment::At {
            first: millis(first),
            last: millis(last) + rest,
        });
    }
    duration(text).map(Moment::Ago).map_err(|_| {
        format!(
            "{text:?} is neither a time (2026-02-07 10:00 here, 2026-02-07T10:00:00Z, today, yesterday) nor a duration of \
             up to a year (15m, which means that long ago)"
        )
    })
}

/// The first and the last instant that a time can mean, read where and when it is `now`. A day means its begin, a time of
/// day that of today. A time that a clock shows twice, or passes over, means all between its two instants.
fn instants(text: &str, now: &jiff::Zoned) -> Option<(jiff::Timestamp, jiff::Timestamp)> {
    use jiff::civil::{DateTime, Time};
    let once = |at| Some((at, at));
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return once(at);
    }
    if let Ok(at) = text.parse::<jiff::Zoned>() {
        return once(at.timestamp());
    }
    let day = match text {
        "today" => Some(now.date()),
        "yesterday" => now.date().yesterday().ok(),
        _ => None,
    };
    let at = match day {
        Some(day) => day.to_datetime(Time::midnight()),
        None => match text.parse::<DateTime>() {
            Ok(at) if !text.contains(['[', '+']) => at,
            // The parsers pass over a zone or an offset behind the time, which then is none of here.
            Err(_) if !text.contains(['[', '+', '-']) => {
                now.date().to_datetime(text.parse::<Time>().ok()?)
            }
            Ok(_) | Err(_) => return None,
        },
    };
    let at = now.time_zone().to_ambiguous_timestamp(at);
    Some((at.earlier().ok()?, at.later().ok()?))
}

/// An event of the audit.
pub(crate) fn event(text: &str) -> Result<EventName, String> {
    let word = text.replace([' ', '-'], "_");
    let of_a_lock = || EventName::from_word(&format!("lock_{word}"));
    EventName::from_word(&word)
        .or_else(of_a_lock)
        .ok_or_else(|| {
            format!(
                "{text:?}: there is no such event; it is one of {}",
                EventName::ALL.map(short_event).join(", ")
            )
        })
}

/// The word for an event where all events are of locks.
pub(crate) fn short_event(event: EventName) -> &'static str {
    let word = event.as_str();
    word.strip_prefix("lock_").unwrap_or(word)
}

/// A fencing token.
pub(crate) fn token(text: &str) -> Result<u64, String> {
    fence::token(text).ok_or_else(|| {
        format!("{text:?}: a fencing token is a decimal number from 1 to {TOKEN_MAX}")
    })
}

/// The signals that ask a process to end, by their names without `SIG`.
#[cfg(unix)]
const ENDING: [(&str, i32); 9] = [
    ("HUP", libc::SIGHUP),
    ("INT", libc::SIGINT),
    ("QUIT", libc::SIGQUIT),
    ("ABRT", libc::SIGABRT),
    ("KILL", libc::SIGKILL),
    ("USR1", libc::SIGUSR1),
    ("USR2", libc::SIGUSR2),
    ("ALRM", libc::SIGALRM),
    ("TERM", libc::SIGTERM),
];

/// A signal by its name, with or without `SIG`, or by its number.
#[cfg(unix)]
pub(crate) fn signal(text: &str) -> Result<i32, String> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let found = ENDING
        .iter()
        .find(|(known, number)| *known == name || text.parse() == Ok(*number));
    found.map(|(_, number)| *number).ok_or_else(|| {
        let names: Vec<_> = ENDING.iter().map(|(name, _)| *name).collect();
        format!(
            "{text:?} does not ask a command to end; write one of {}, or its number",
            names.join(", ")
        )
    })
}

/// Gives any signal: the flag is refused before this is looked at.
#[cfg(windows)]
#[allow(clippy::unnecessary_wraps, reason = "one surface with what Unix reads")]
pub(crate) fn signal(_: &str) -> Result<i32, String> {
    Ok(libc::SIGINT)
}

/// The milliseconds of a duration.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Reads what a run does where the place of its lock cannot be used.
pub(crate) fn on_error(text: &str) -> Result<OnError, String> {
    match text {
        "open" => Ok(OnError::Open),
        "closed" => Ok(OnError::Closed),
        _ => Err("write open or closed".to_owned()),
    }
}

/// How a run waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queue {
    Line(Queueing),
    /// Not at all.
    None,
}

impl ValueEnum for Queue {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self::Line(Queueing::Fifo),
            Self::Line(Queueing::Single),
            Self::Line(Queueing::Max),
            Self::None,
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(match self {
            Self::Line(Queueing::Fifo) => "fifo",
            Self::Line(Queueing::Single) => "single",
            Self::Line(Queueing::Max) => "max",
            Self::None => "none",
        }))
    }
}

impl ValueEnum for OnLost {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Terminate, Self::Warn]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(match self {
            Self::Terminate => "terminate",
            Self::Warn => "warn",
        }))
    }
}

/// How the work under a lock ended, as its holder says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkResult {
    Success,
    Failure,
}

impl ValueEnum for WorkResult {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Success, Self::Failure]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(match self {
            Self::Success => "success",
            Self::Failure => "failure",
        }))
    }
}

/// A program that runs agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum AgentHost {
    /// Claude Code
    Claude,
    /// Codex
    Codex,
}

#[cfg_attr(windows, allow(dead_code, reason = "agent is refused there"))]
impl AgentHost {
    /// As it is typed.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_named_as_the_audit_shows_it_or_as_its_line_does() {
        for known in EventName::ALL {
            let (whole, short) = (known.as_str(), short_event(known));
            let (shown, dashed) = (short.replace('_', " "), short.replace('_', "-"));
            for word in [whole, short, &shown, &dashed] {
                assert_eq!(event(word), Ok(known), "{word}");
            }
        }
        for none in ["", "lock_", "lock_dreamt", "lock_lock_lost", "released!"] {
            assert!(event(none).is_err(), "{none:?}");
        }
    }

    #[test]
    fn moments_are_times_or_durations_ago() {
        let now = 1_770_458_400_000;
        for (text, first, last) in [
            ("2026-02-07T10:00:00Z", now, now + 999),
            ("2026-02-07T11:00:00.007+01:00", now + 7, now + 7),
            ("1960-01-01T00:00:00Z", 0, 999),
            ("15m", now - 900_000, now - 900_000),
            ("0s", now, now),
            ("90", now - 90_000, now - 90_000),
        ] {
            let parsed = moment(text).map(|moment| (moment.first_ms(now), moment.last_ms(now)));
            assert_eq!(parsed, Ok((first, last)), "{text}");
        }
        for text in ["", "tomorrow", "2026-02-07T25:00:00", "-5m", "forever"] {
            assert!(moment(text).is_err(), "{text}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn signals_are_named_as_kill_names_them() {
        for (text, number) in [
            ("INT", libc::SIGINT),
            ("SIGINT", libc::SIGINT),
            ("sigterm", libc::SIGTERM),
            ("15", libc::SIGTERM),
            ("9", libc::SIGKILL),
            ("usr2", libc::SIGUSR2),
        ] {
            assert_eq!(signal(text), Ok(number), "{text}");
        }
        for text in [
            "", "SIG", "STOP", "CONT", "TSTP", "CHLD", "0", "-15", "19", "TERM ", "99",
        ] {
            assert!(signal(text).is_err(), "{text:?}");
        }
    }
}
