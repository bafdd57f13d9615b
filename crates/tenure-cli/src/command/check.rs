//! `check` and `list`: say how locks stand. They read and never write.

use super::near;

use super::session::Session;
use crate::dialect::{CallRefusal, CallResult};
use crate::exit::Exit;
use crate::failure::{Failure, Retry};
use crate::render::colour::{paint, shows_colours};
use crate::render::lock::{LockView, age, state};
use crate::render::stream::{
    DocumentPart, Each, Locks, PartBuffer, Pieces, write_envelope, write_json, write_kept,
};
use crate::render::table::{Cells, Columns, Giving};
use crate::render::width::{cut, room_on_stdout};
use crate::render::{Output, Reporter, Unheard};
use crate::request::Order;
use crate::request::{Check, List};
use serde_json::Value;
use std::borrow::Cow;
use std::cell::{OnceCell, RefCell};
use std::cmp::Reverse;
use std::fmt::Write as _;
use std::io::IsTerminal as _;
use tenure_core::{AgentKey, Host, LockName, Process};
use tenure_engine::readings::{self, LockReading, READ_AT_ONCE, Readings};
use tenure_os::clock::Clock;
use tenure_os::process::Ancestors;
use tenure_store::contract::Which;

#[cold]
#[inline(never)]
pub(crate) fn check(check: Check, reporter: &mut Reporter) -> Result<(String, Value), Failure> {
    let Check {
        place,
        name,
        mode,
        held,
        shown,
        short,
    } = check;
    let Some(name) = name else {
        let id = shown.id(|_| false)?;
        reporter.set_request_id(id.unwrap_or_default());
        let session = Session::open(place)?;
        session.tell_place(reporter);
        let shown = Visibility {
            free: false,
            company: !short,
        };
        let every = Only::default();
        return all(&session, reporter, id, every, shown, Asks::WhetherFree);
    };
    let (session, id) = Session::of_caller(place, &name, &shown, reporter)?;
    let reading = session.reading(&name)?;
    near::point_out(&session, reporter, &name, &reading);
    near::point_out_others(&session, reporter, &name);
    let view = session.view_of(&name, &reading, id);
    if held {
        return whether_held(view);
    }
    // A folder keeps the file of a lock until `clean` removes it. Other places and records go with their hold.
    let never_used = !reading.stored && session.place.is_folder() && !session.store.publishes();
    let view = session.in_mode(view, mode, (&name, &reading), &session.clock.now());
    let text = session.text_of(&CallResult::Checked(&view), || {
        let known = if never_used {
            ": never used here, or cleaned up since"
        } else {
            ""
        };
        view.text() + known
    });
    if !view.mine
        && let Some(mode) = mode
    {
        session.refuse_another_pool((&name, &reading), mode)?;
    }
    if view.mine || view.available {
        let mut data = view.json();
        if never_used {
            data.insert("never_used".into(), true.into());
        }
        return Ok((text, data.into()));
    }
    let failure = Failure::from(view.clone().into_answer());
    Err(as_answer(
        session
            .dialect
            .refusal(failure, &CallRefusal::Checked(&view)),
        text,
    ))
}

/// Answers a probe: only a holder that is known to live is a yes. The work of a dead supervisor is none, and neither is the turn of
/// a claim that does not take it.
fn whether_held(view: LockView) -> Result<(String, Value), Failure> {
    let mut holders = view.holder.iter().chain(&view.other_holders);
    let lives = holders.any(|holder| holder.token.is_some() && !holder.orphaned);
    if view.standing == "held" && view.standstill.is_none() && lives {
        return Ok((view.text(), view.json().into()));
    }
    if matches!(view.standing, "unreadable" | "unknown") {
        let text = view.text();
        return Err(as_answer(view.into_answer().into(), text));
    }
    let message = format!("{} has no living holder", view.called());
    let text = format!("{message}: {}", view.headline());
    let mut failure = Failure::new(Exit::Precondition, "LOCK_NOT_HELD", message);
    failure.phase = Some("check");
    Err(as_answer(failure.with_context(view.json()), text))
}

/// Marks a failure as an answer: the caller asked how the locks stand, whatever the exit code says.
fn as_answer(failure: Failure, text: String) -> Failure {
    let mut failure = failure.with_text(text);
    failure.is_answer = true;
    failure
}

#[cold]
#[inline(never)]
pub(crate) fn list(list: List, reporter: &mut Reporter) -> Result<(String, Value), Failure> {
    let session = Session::open(list.place)?;
    session.tell_place(reporter);
    let shown = Visibility {
        free: list.all,
        company: !list.short,
    };
    all(
        &session,
        reporter,
        None,
        Only {
            of: list.of.as_ref(),
            waiting: list.waiting,
            name: list.name.as_ref(),
        },
        shown,
        Asks::HowTheyStand(list.order),
    )
}

/// Tells how each lock stands now, by name. Of a lock that cannot be read, the reporter warns.
pub(super) fn each(
    session: &Session,
    reporter: &mut Reporter,
    tell: impl FnMut(LockView),
) -> Result<(), Failure> {
    let names = readings::names(&*session.store, Which::Locks)?;
    let reporter = RefCell::new(reporter);
    Looks::of(session, &reporter, None, Only::default(), names).for_each(tell);
    Ok(())
}

/// What a caller wants to know of all locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    HowTheyStand(Order),
    /// And the exit code says whether each of them is free.
    WhetherFree,
}

/// Shows how all locks stand. Each is looked at when its turn comes, so nothing but their names is kept. The
/// envelope of a failure begins with what all of them are together, so their facts are kept aside for it.
fn all(
    session: &Session,
    reporter: &mut Reporter,
    id: Option<&str>,
    only: Only<'_>,
    shown: Visibility,
    asks: Asks,
) -> Result<(String, Value), Failure> {
    let mut names = readings::names(&*session.store, Which::Locks)?;
    names.retain(|name| only.name.is_none_or(|only| only == name));
    let output = reporter.output;
    let reporter = RefCell::new(reporter);
    let mut looks = Looks::of(session, &reporter, id, only, names);
    let (answered, failure) = match (output, asks) {
        (Output::Text, asks) => {
            let order = match asks {
                Asks::HowTheyStand(order) => order,
                Asks::WhetherFree => Order::Name,
            };
            let answered = show(session, &mut in_order(&mut looks, order), only, shown);
            // The code says how they stand, whether the answer is read to its end or not.
            if asks == Asks::WhetherFree && !matches!(answered, Err(Unheard::Stopped(_))) {
                looks.by_ref().for_each(drop);
            }
            (answered, looks.tally.failure())
        }
        (Output::Json | Output::Yaml, Asks::HowTheyStand(order)) => {
            let parts = in_order(&mut looks, order).map(|part| DocumentPart { output, part });
            let locks = Each::of(parts);
            (write_envelope(&reporter, Ok(Locks { locks })), None)
        }
        (Output::Json | Output::Yaml, Asks::WhetherFree) => {
            let mut kept = PartBuffer::default();
            looks.by_ref().for_each(|view| kept.push(&view));
            let failure = looks.tally.failure();
            (write_kept(&reporter, kept, failure.as_ref()), failure)
        }
    };
    let failed = failure.filter(|_| asks == Asks::WhetherFree);
    let failed = failed.map(|failure| failure.exit);
    let exit = reporter.into_inner().ending(answered, failed);
    Err(Failure::already_said(exit, output))
}

/// The locks in this order. By name each comes as it is read; for another order all are read before the first is shown.
fn in_order<'a>(
    looks: &'a mut Looks<'_, '_>,
    order: Order,
) -> Box<dyn Iterator<Item = LockView> + 'a> {
    match order {
        Order::Name => Box::new(looks),
        Order::Queue => {
            let mut views: Vec<_> = looks.collect();
            // Locks with queues of one length keep the order of their names.
            views.sort_by_key(|view| Reverse(view.queue.len()));
            Box::new(views.into_iter())
        }
    }
}

/// The locks that are meant.
#[derive(Debug, Clone, Copy, Default)]
struct Only<'a> {
    /// Locks of this agent, or of the agents of this session.
    of: Option<&'a AgentKey>,
    /// Locks with a waiter.
    waiting: bool,
    /// The one of this name.
    name: Option<&'a LockName>,
}

impl Only<'_> {
    fn has(self, view: &LockView) -> bool {
        self.of.is_none_or(|agent| view.is_of(agent)) && !(self.waiting && view.queue.is_empty())
    }

    /// What is said where there are none.
    fn nothing(self) -> &'static str {
        match (self.of, self.waiting) {
            (None, false) => "no locks",
            (None, true) => "nobody waits for a lock",
            (Some(_), false) => "this agent holds no lock, and waits for none",
            (Some(_), true) => "nobody waits for a lock of this agent",
        }
    }
}

/// Judges each lock that is read.
struct Looks<'a, 'b> {
    session: &'a Session,
    reporter: &'a RefCell<&'b mut Reporter>,
    id: Option<&'a str>,
    only: Only<'a>,
    readings: Readings<'a>,
    /// Ancestors of the caller, seen a moment ago.
    ancestors: OnceCell<Ancestors>,
    tally: Tally,
}

impl Iterator for Looks<'_, '_> {
    type Item = LockView;

    fn next(&mut self) -> Option<LockView> {
        loop {
            let view = self.look()?;
            if self.only.has(&view) {
                self.tally.count(&view);
                return Some(view);
            }
        }
    }
}

impl<'a, 'b> Looks<'a, 'b> {
    fn of(
        session: &'a Session,
        reporter: &'a RefCell<&'b mut Reporter>,
        id: Option<&'a str>,
        only: Only<'a>,
        names: Vec<LockName>,
    ) -> Self {
        Self {
            session,
            reporter,
            id,
            only,
            readings: Readings::of(&*session.store, &session.clock, names),
            ancestors: OnceCell::new(),
            tally: Tally::default(),
        }
    }

    fn look(&mut self) -> Option<LockView> {
        let LockReading { name, reading, now } = self.readings.next()?;
        if self.tally.all.is_multiple_of(READ_AT_ONCE) {
            self.ancestors.take();
        }
        Some(match reading {
            Ok(reading) => {
                let ancestors = || self.ancestors.get_or_init(Ancestors::of_caller);
                let descends =
                    |owner: &Process, host: &Host, here: &Host| ancestors().have(owner, host, here);
                let (session, read) = (self.session, (&name, &reading));
                let view = session.view_by(read, &now, self.id, &descends);
                session.in_mode(view, None, read, &now)
            }
            // An unreadable lock is reported as unreadable, never as free; the others are still listed.
            Err(error) => {
                self.reporter.borrow_mut().warn(error.to_string());
                let store = &self.session.store;
                let mut view = LockView::unknown(&name, store.policy(), store.place(&name));
                self.session.call_as_asked(&mut view, &name);
                view
            }
        })
    }
}

/// What all locks together are to a caller that only looks.
#[derive(Debug, Default)]
struct Tally {
    all: usize,
    blocked: usize,
    /// How many could be looked at.
    known: usize,
    /// How each of those in the way stands.
    named: String,
    /// When a retry is likely to succeed; `None` where waiting does not end each of them.
    after_ms: Option<u64>,
}

impl Tally {
    fn count(&mut self, view: &LockView) {
        self.all += 1;
        if view.mine || view.available {
            return;
        }
        let is_first = self.blocked == 0;
        let comma = if is_first { "" } else { ", " };
        let _ = write!(self.named, "{comma}{} ({})", view.name, view.word());
        // Waiting ends what is held, and nothing else.
        self.after_ms = match (self.after_ms, view.retry_after_ms) {
            (before, after) if is_first => before.max(after),
            (before, after) => before.zip(after).map(|(before, after)| before.max(after)),
        };
        self.blocked += 1;
        self.known += usize::from(view.standing != "unknown");
    }

    /// The failure that they are; `None` if none is in the way. It has no facts of theirs.
    fn failure(&self) -> Option<Failure> {
        let (all, blocked, named) = (self.all, self.blocked, &self.named);
        let verb = match blocked {
            0 => return None,
            1 => "is",
            _ => "are",
        };
        let message = match all {
            1 => format!("the only lock is not free: {named}"),
            all => format!("{blocked} of {all} locks {verb} not free: {named}"),
        };
        let (exit, code) = match self.known {
            0 => (Exit::StoreUnavailable, "STORE_UNAVAILABLE"),
            _ => (Exit::Precondition, "LOCKS_NOT_FREE"),
        };
        let mut failure = Failure::new(exit, code, message);
        failure.retry = self.after_ms.map(Retry::linear);
        Some(failure)
    }
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

/// The locks that people see, and which parts of them.
#[derive(Debug, Clone, Copy)]
struct Visibility {
    /// Also the locks without a holder and a waiter.
    free: bool,
    /// Below each lock its other holders and its waiters, and at the end how many locks were left out.
    company: bool,
}

/// By how many rows the columns are sized. Those of more rows are shown as they come.
const ROWS_MAX: usize = 200;

/// Shows them to people: one line per lock; where more was asked for, with those below it who hold it too or
/// wait.
fn show(
    session: &Session,
    looks: &mut dyn Iterator<Item = LockView>,
    only: Only<'_>,
    shown: Visibility,
) -> Result<(), Unheard> {
    let mut pieces = Pieces::default();
    // A document is for a program, and a terminal is none.
    let is_for_a_program = !std::io::stdout().is_terminal();
    if let Some(standing) = session.dialect.standing().filter(|_| is_for_a_program) {
        let locks = Each::of(looks.map(|view| standing(&view)));
        let made = write_json(&mut pieces, &Locks { locks });
        return match (pieces.unheard(), made) {
            (None, Err(error)) => Err(Unheard::Failed(error)),
            (Some(_), _) | (None, Ok(())) => pieces.end(),
        };
    }
    let mut table = Table::new();
    let (mut all, mut idle) = (0_usize, 0_usize);
    for view in looks {
        all += 1;
        if !shown.free && view.standing == "free" && view.queue.is_empty() {
            idle += 1;
        } else {
            table.push(Row::of(&view, shown.company), &mut pieces);
        }
        if pieces.unheard().is_some() {
            return pieces.end();
        }
    }
    table.settle(&mut pieces);
    pieces.trim();
    match (all, all - idle) {
        (0, _) => pieces.push(only.nothing()),
        (_, 0) => pieces.push("no lock is held"),
        _ => {}
    }
    if shown.company && idle > 0 {
        let (locks, are) = match idle {
            1 => ("1 free lock".to_owned(), "is"),
            count => (format!("{count} free locks"), "are"),
        };
        pieces.push(&format!(
            "\n{locks} {are} not shown; `{}` shows all",
            session.place.line(&["list", "--all"])
        ));
    }
    pieces.end()
}

/// What stands in one line of the table, and below it.
struct Row {
    cells: Cells<7>,
    /// What the colour of the standing says.
    colour: &'static str,
    company: String,
}

impl Row {
    fn of(view: &LockView, with_company: bool) -> Self {
        // A hold that was left behind has no holder any more.
        let left = view.left_behind();
        let holder = view.holder.as_ref().filter(|_| left.is_none());
        let dash = || Cow::Borrowed("-");
        let ttl = holder.filter(|holder| holder.kind == "detached");
        let word = view.word();
        let standing = if view.mine {
            format!("{word} (you)").into()
        } else {
            word.into()
        };
        let since = holder.map_or_else(dash, |holder| age(holder.age_ms).into());
        let ttl = ttl.map_or_else(dash, |holder| age(holder.ttl_ms).into());
        let queue = match view.queue.len() {
            0 => dash(),
            waiting => waiting.to_string().into(),
        };
        let token = holder
            .and_then(|holder| holder.token)
            .map_or_else(dash, |token| token.to_string().into());
        let by = holder.map_or_else(
            || left.map_or_else(dash, Cow::Owned),
            |holder| match view.standstill {
                None => holder.line().into(),
                Some(ref still) if still.stopped => {
                    format!("none; next in line, stopped: {}", holder.who()).into()
                }
                Some(_) => format!("none; next in line, does not act: {}", holder.who()).into(),
            },
        );
        let company = if with_company {
            view.company()
        } else {
            String::new()
        };
        let called = view.called().into_owned().into();
        Self {
            cells: [called, standing, since, ttl, queue, token, by],
            colour: state(view),
            company,
        }
    }
}

/// Lines in columns that fit the first of them.
struct Table {
    room: Option<usize>,
    colours: bool,
    first: Vec<Row>,
    columns: Option<Columns<7>>,
    /// The line that is being made.
    line: String,
}

impl Table {
    fn new() -> Self {
        Self {
            room: room_on_stdout(),
            colours: shows_colours(&std::io::stdout()),
            first: Vec::new(),
            columns: None,
            line: String::new(),
        }
    }

    /// Shows one more row, as soon as the columns are sized.
    fn push(&mut self, row: Row, pieces: &mut Pieces) {
        if let Some(columns) = self.columns {
            self.print(&columns, &row.cells, Some(&row), pieces);
            return;
        }
        self.first.push(row);
        if self.first.len() == ROWS_MAX {
            self.settle(pieces);
        }
    }

    /// Sizes the columns by the rows that came so far, and shows these.
    fn settle(&mut self, pieces: &mut Pieces) {
        let first = std::mem::take(&mut self.first);
        if first.is_empty() {
            return;
        }
        let header = ["NAME", "STANDING", "AGE", "TTL", "QUEUE", "TOKEN", "HOLDER"].map(Cow::from);
        let cells = std::iter::once(&header).chain(first.iter().map(|row| &row.cells));
        let columns = Columns::of(cells, self.room, GIVING);
        self.print(&columns, &header, None, pieces);
        for row in &first {
            self.print(&columns, &row.cells, Some(row), pieces);
        }
        self.columns = Some(columns);
    }

    fn print(
        &mut self,
        columns: &Columns<7>,
        cells: &Cells<7>,
        row: Option<&Row>,
        pieces: &mut Pieces,
    ) {
        let painted = |column, padded: &str| {
            let row = row.filter(|_| self.colours && column == STANDING_COLUMN)?;
            Some(paint(padded, row.colour))
        };
        self.line.clear();
        columns.lay(cells, painted, &mut self.line);
        pieces.push(&self.line);
        for line in row.map_or("", |row| &row.company).split_inclusive('\n') {
            let (line, end) = line.split_at(line.trim_end_matches('\n').len());
            match self.room {
                None => pieces.push(line),
                Some(room) => pieces.push(&cut(line, room)),
            }
            pieces.push(end);
        }
        pieces.push("\n");
    }
}
