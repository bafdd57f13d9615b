//! `check` and `list`: say how locks stand. They read and never write.

use super::{Session, finish, near, refuse_input, shown};
use crate::args::{CheckArgs, ListArgs};
use crate::exit::Exit;
use crate::failure::{Failure, Retry, object};
use crate::render::Surface;
use crate::render::colour::{paint, shows_colours};
use crate::render::lock::{LockView, age};
use crate::request;
use serde_json::{Value, json};
use tenure::store::Store;

#[cold]
#[inline(never)]
pub(crate) fn check(args: &CheckArgs) -> Exit {
    let surface = request::surface(&args.common, "check", None).about(args.name.as_deref());
    finish(surface, |surface| {
        refuse_input(args.input.as_deref())?;
        let Some(name) = &args.name else {
            let id = shown(args.request_id.as_deref())?;
            surface.set_request_id(id.as_deref().unwrap_or_default());
            let session = Session::open(&args.common)?;
            let views = all(&session, surface, id.as_deref())?;
            let answer = table(&session, &views, !args.common.quiet);
            return match not_free(&views) {
                None => Ok(answer),
                Some(failure) => Err(as_answer(failure, answer.0)),
            };
        };
        request::name(Some(name))?;
        let session = Session::open(&args.common)?;
        let name = session.name(Some(name))?;
        let id = session.shown_for(&name, args.request_id.as_deref())?;
        surface.set_request_id(id.as_deref().unwrap_or_default());
        let reading = session.reading(&name)?;
        near::point_out(&session, surface, &name, &reading);
        let view = session.view_of(&name, &reading, id.as_deref());
        let text = session.face.checked_text(&view);
        if view.mine || view.available {
            return Ok((text, view.json().into()));
        }
        let failure = Failure::from(view.clone().into_answer());
        Err(as_answer(session.face.checked(failure, &view), text))
    })
}

/// Whatever the code says: how the locks stand was asked for, and is the answer.
fn as_answer(failure: Failure, text: String) -> Failure {
    let mut failure = failure.with_text(text);
    failure.is_answer = true;
    failure
}

/// What all locks together are to somebody who only looks; `None` if none is in the way. The facts of
/// every one are in it, of the free ones too.
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
    let mut failure = failure.with_context(object(json!({ "locks": locks })));
    // Waiting ends what is held, and nothing else.
    let hints = blocked.iter().map(|view| view.retry_after_ms);
    failure.retry = hints.collect::<Option<Vec<_>>>().map(|hints| Retry {
        after_ms: hints.into_iter().max().unwrap_or_default(),
        strategy: "linear_backoff",
    });
    Some(failure)
}

#[cold]
#[inline(never)]
pub(crate) fn list(args: &ListArgs) -> Exit {
    let surface = request::surface(&args.common, "list", None);
    finish(surface, |surface| {
        let session = Session::open(&args.common)?;
        let views = all(&session, surface, None)?;
        Ok(table(&session, &views, !args.common.quiet))
    })
}

fn all(
    session: &Session,
    surface: &mut Surface,
    id: Option<&str>,
) -> Result<Vec<LockView>, Failure> {
    let mut names = Vec::new();
    session.store.names(&mut |name| names.push(name))?;
    names.sort();
    let mut views = Vec::with_capacity(names.len());
    for name in &names {
        match session.reading(name) {
            Ok(reading) => views.push(session.view_of(name, &reading, id)),
            // One that cannot be looked at does not hide the others, and is not free.
            Err(error) => {
                surface.warn(error.to_string());
                let place = session.store.place(name);
                views.push(LockView::unknown(name, session.store.policy(), place));
            }
        }
    }
    Ok(views)
}

/// Where the standing stands.
const STANDING_COLUMN: usize = 1;

/// One line per lock, in columns that fit their content; where more was asked for, with those
/// below it who hold it too or wait.
fn table(session: &Session, views: &[LockView], with_company: bool) -> (String, Value) {
    let mut rows =
        vec![["NAME", "STANDING", "AGE", "TTL", "QUEUE", "TOKEN", "HOLDER"].map(String::from)];
    for view in views {
        // What was left behind has no holder any more.
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
                    Some(_) => format!("nobody; next in line, stopped: {}", holder.who()),
                },
            ),
        ]);
    }
    let widths: Vec<usize> = (0..7)
        .map(|column| {
            rows.iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let colours = shows_colours(&std::io::stdout());
    let mut text = String::new();
    for (row, view) in rows
        .iter()
        .zip(std::iter::once(None).chain(views.iter().map(Some)))
    {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let padded = format!("{cell:<width$}");
            match view.filter(|_| colours && column == STANDING_COLUMN) {
                Some(view) => line.push_str(&paint(&padded, view.word())),
                None => line.push_str(&padded),
            }
            line.push_str("  ");
        }
        text.push_str(line.trim_end());
        if let Some(view) = view.filter(|_| with_company) {
            text.push_str(&view.company());
        }
        text.push('\n');
    }
    let text = if views.is_empty() {
        "no locks".to_owned()
    } else {
        text.trim_end().to_owned()
    };
    let locks: Vec<_> = views.iter().map(LockView::json).collect();
    let text = session.face.listed_text(views, text);
    (text, json!({ "locks": locks }))
}
