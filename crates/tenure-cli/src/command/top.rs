//! `top`: shows the locks, those first that need a person, and goes on showing them until it is told to end.
//!
//! Nothing is judged here: how locks stand is asked as `list` does (`check::each`), and what happened is read from the audit. A
//! lock is changed only by the verb `cancel`, after a question. `render::top` has the frame; `looker` reads in a thread of its
//! own, so that a store that does not answer keeps no key waiting; `live` has the screen and the keys.

#[cfg(unix)]
mod keys;
#[cfg(unix)]
mod live;
#[cfg(unix)]
mod looker;
mod past;
#[cfg(unix)]
mod screen;

use self::past::Past;
use super::call::{Call, finish, warn_of};
use super::check;
use super::session::Session;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::render::top::history::History;
use crate::render::top::{Chosen, Picture, draw, text};
use crate::render::width::size_on_stdout;
use crate::render::{Reporter, clean_path};
use crate::request::{Top, TopArgs};
use jiff::tz::TimeZone;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use serde_json::Value;
use std::time::Duration;
use tenure_os::clock::Clock;

#[cold]
#[inline(never)]
pub(super) fn top(args: &TopArgs) -> Exit {
    let Call { around, reporter } = Call::of("top", &args.common);
    finish(reporter, |reporter| {
        if !reporter.is_text() {
            return Err(Failure::bad_arguments(
                "top draws a picture, which has no other format; `tenure list --output json` has the facts",
            ));
        }
        let top = Top::of(args, &around)?;
        warn_of(&around, reporter);
        if top.once {
            return once(top, reporter);
        }
        #[cfg(unix)]
        return live::live(top, &args.common, &around, reporter);
        #[cfg(not(unix))]
        Err(Failure::not_here(
            "top",
            "its live view has not been ported; `tenure top --once` prints one frame",
        ))
    })
}

/// Prints one frame.
fn once(top: Top, reporter: &mut Reporter) -> Result<(String, Value), Failure> {
    let past = Past::of(&top.place)?;
    let session = Session::open(top.place)?;
    session.tell_place(reporter);
    let mut locks = Vec::new();
    check::each(&session, reporter, |view| locks.push(view))?;
    let now_ms = session.clock.now().wall_us / 1_000;
    let mut history = History::default();
    match past.events(now_ms) {
        Ok(events) => events.for_each(|entry| history.add(entry)),
        Err(error) => reporter.warn(error.to_string()),
    }
    let picture = Picture {
        place: &clean_path(&session.place.folder),
        here: &session.identity.host.name,
        zone: &TimeZone::system(),
        now_ms,
        locks: &locks,
        since_look: Duration::ZERO,
        history: &history,
        trouble: None,
    };
    let (columns, lines) = size_on_stdout();
    let mut buffer = Buffer::empty(Rect::new(0, 0, columns, lines));
    draw(&picture, &mut Chosen::default(), &mut buffer);
    Ok((text(&buffer), Value::Null))
}
