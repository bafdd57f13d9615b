//! `check` and `list`: say how locks stand. They read and never write.

use super::{Session, near};
use crate::dialect::{Done, Refused};
use crate::exit::Exit;
use crate::failure::{Failure, Retry};
use crate::render::Reporter;
use crate::render::colour::{paint, shows_colours};
use crate::render::lock::{LockView, age};
use crate::render::table::{Giving, lay_out, line};
use crate::render::width::{cut, room_on_stdout};
use crate::request::{Check, List};
use serde_json::{Value, json};
use std::fmt::Write as _;
use tenure_engine::store::contract::Which;

#[cold]
#[inline(never)]
pub(crate) fn check(check: Check, reporter: &mut Reporter) -> Result<(String, Value), Failure> {
    let Check {
        place,
        name,
        shown,
        short,
    } = check;
    let Some(name) = name else {
        let id = shown.id(|_| false)?;
        reporter.set_request_id(id.unwrap_or_default());
        let session = Session::open(place)?;
        let views = all(&session, reporter, id)?;
        let shown = Shown {
            free: false,
            company: !short,
        };
        let answer = table(&session, &views, shown);
        return match not_free(&views) {
            None => Ok(answer),
            Some(failure) => Err(as_answer(failure, answer.0)),
        };
    };
    let (session, id) = Session::of_caller(place, &name, &shown, reporter)?;
    let reading = session.reading(&name)?;
    near::point_out(&session, reporter, &name, &reading);
    let view = session.view_of(&name, &reading, id);
    let text = session.text_of(&Done::Checked(&view), || view.text());
    if view.mine || view.available {
        return Ok((text, view.json().into()));
    }
    let failure = Failure::from(view.clone().into_answer());
    Err(as_answer(
        session.dialect.refusal(failure, &Refused::Checked(&view)),
        text,
    ))
}

/// Marks a failure as an answer: the caller asked how the locks stand, whatever the exit code says.
fn as_answer(failure: Failure, text: String) -> Failure {
    let mut failure = failure.with_text(text);
    failure.is_answer = true;
    failure
}

/// The failure of a check of all locks; `None` if none of them blocks the caller. It has the facts of every
/// lock, of the free ones too.
fn not_free(views: &[LockView]) -> Option<Failure> {
    let in_the_way = |view: &&LockView| !view.mine && !view.available;
    let blocked: Vec<_> = views.iter().filter(in_the_way).collect();
    let names = blocked
        .iter()
        .map(|view| format!("{} ({})", view.name, view.word()));
    let verb = match blocked.len() {
        0 => return None,
        1 => "is",
        _ => "are",
    };
    let names = names.collect::<Vec<_>>().join(", ");
    let message = match views.len() {
        1 => format!("the only lock is not free: {names}"),
        all => format!("{} of {all} locks {verb} not free: {names}", blocked.len()),
    };
    let (exit, code) = if blocked.iter().all(|view| view.standing == "unknown") {
        (Exit::StoreUnavailable, "STORE_UNAVAILABLE")
    } else {
        (Exit::Precondition, "LOCKS_NOT_FREE")
    };
    let locks: Vec<_> = views.iter().map(LockView::json).collect();
    let failure = Failure::new(exit, code, message);
    let mut failure = failure.with_context(json!({ "locks": locks }));
    // Waiting can end holds, and nothing else that blocks.
    let hints = blocked.iter().map(|view| view.retry_after_ms);
    failure.retry = hints.collect::<Option<Vec<_>>>().map(|hints| Retry {
        after_ms: hints.into_iter().max().unwrap_or_default(),
        strategy: "linear_backoff",
    });
    Some(failure)
}

#[cold]
#[inline(never)]
pub(crate) fn list(list: List, reporter: &mut Reporter) -> Result<(String, Value), Failure> {
    let session = Session::open(list.place)?;
    let views = all(&session, reporter, None)?;
    let shown = Shown {
        free: list.all,
        company: !list.short,
    };
    Ok(table(&session, &views, shown))
}

fn all(
    session: &Session,
    reporter: &mut Reporter,
    id: Option<&str>,
) -> Result<Vec<LockView>, Failure> {
    let mut names = Vec::new();
    session
        .store
        .names(Which::Locks, &mut |name| names.push(name))?;
    names.sort();
    let mut views = Vec::with_capacity(names.len());
    for name in &names {
        match session.reading(name) {
            Ok(reading) => views.push(session.view_of(name, &reading, id)),
            // A lock that cannot be read does not hide the others, and does not count as free.
            Err(error) => {
                reporter.warn(error.to_string());
                let place = session.store.place(name);
                views.push(LockView::unknown(name, session.store.policy(), place));
            }
        }
    }
    Ok(views)
}

/// The column of the standing.
const STANDING_COLUMN: usize = 1;

/// A narrow terminal loses the token first, then the ttl, the queue and the age. People know a lock by its
/// name and its holder.
const GIVING: Giving<'static> = Giving {
    spare: &[5, 3, 4, 2],
    long: (6, 32),
    last: (0, 12),
};

/// Which locks people see, and which parts of them.
#[derive(Debug, Clone, Copy)]
struct Shown {
    /// Also the locks without a holder and a waiter.
    free: bool,
    /// Below each lock its other holders and its waiters, and at the end how many locks were left out.
    company: bool,
}

/// One line per lock, in columns that fit their content. With `company`, its other holders and its waiters
/// stand below it. The JSON object has every lock, whatever the text shows.
fn table(session: &Session, views: &[LockView], shown: Shown) -> (String, Value) {
    let is_idle = |view: &LockView| view.standing == "free" && view.queue.is_empty();
    let (idle, rows): (Vec<_>, Vec<_>) =
        (views.iter()).partition(|view| !shown.free && is_idle(view));
    let mut text = match (views.len(), rows.len()) {
        (0, _) => "no locks".to_owned(),
        (_, 0) => "no lock is held".to_owned(),
        _ => lines(&rows, shown.company),
    };
    if shown.company && !idle.is_empty() {
        let (locks, are) = match idle.len() {
            1 => ("1 free lock".to_owned(), "is"),
            count => (format!("{count} free locks"), "are"),
        };
        let _ = write!(
            text,
            "\n{locks} {are} not shown; `tenure list --all` shows all"
        );
    }
    let locks: Vec<_> = views.iter().map(LockView::json).collect();
    let text = session.text_of(&Done::Listed(views), || text);
    (text, json!({ "locks": locks }))
}

fn lines(views: &[&LockView], with_company: bool) -> String {
    let mut rows =
        vec![["NAME", "STANDING", "AGE", "TTL", "QUEUE", "TOKEN", "HOLDER"].map(String::from)];
    for view in views {
        // A hold that was left behind has no holder any more.
        let left = view.left_behind();
        let holder = view.holder.as_ref().filter(|_| left.is_none());
        let dash = || "-".to_owned();
        let ttl = holder.filter(|holder| holder.kind == "detached");
        rows.push([
            view.name.clone(),
            if view.mine {
                format!("{} (you)", view.word())
            } else {
                view.word().to_owned()
            },
            holder.map_or_else(dash, |holder| age(holder.age_ms)),
            ttl.map_or_else(dash, |holder| age(holder.ttl_ms)),
            match view.queue.len() {
                0 => dash(),
                waiting => waiting.to_string(),
            },
            holder
                .and_then(|holder| holder.token)
                .map_or_else(dash, |token| token.to_string()),
            holder.map_or_else(
                || left.unwrap_or_else(dash),
                |holder| match view.standstill {
                    None => holder.who() + &holder.purpose(),
                    Some(_) => format!("none; next in line, stopped: {}", holder.who()),
                },
            ),
        ]);
    }
    let room = room_on_stdout();
    let colours = shows_colours(&std::io::stdout());
    let mut text = String::new();
    for (row, view) in lay_out(&rows, room, GIVING)
        .into_iter()
        .zip(std::iter::once(None).chain(views.iter().map(Some)))
    {
        let cells = row.into_iter().enumerate().filter_map(|(column, cell)| {
            let cell = cell?;
            Some(
                match view.filter(|_| colours && column == STANDING_COLUMN) {
                    Some(view) => paint(&cell, view.word()),
                    None => cell,
                },
            )
        });
        text.push_str(&line(cells));
        if let Some(view) = view.filter(|_| with_company) {
            for line in view.company().split_inclusive('\n') {
                let (line, end) = line.split_at(line.trim_end_matches('\n').len());
                text.push_str(&room.map_or_else(|| line.to_owned(), |room| cut(line, room)));
                text.push_str(end);
            }
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text
}
