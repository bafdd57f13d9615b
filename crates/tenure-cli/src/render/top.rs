//! A frame of `top`: what stands on each line of the screen. A terminal shows it, and `--once` prints it as text.
//!
//! **Nothing from a record acts on the terminal**: each span of a line is cleaned in one place ([`put`]), whoever wrote it.
//! A state is a word; its colour says the same once more.
//!
//! `rows` says what a lock's row has, `history` what the audit tells. The command reads locks and keys.

pub(crate) mod history;
mod rows;

use self::history::History;
pub(crate) use self::rows::Sort;
use self::rows::{Rank, Row, holders, short};
use super::audit;
use super::clean;
use super::lock::{LockView, stop_hint};
use super::table::{Cells, Columns, Giving};
use super::width::{cut, width};
use jiff::tz::TimeZone;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};
use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

/// A narrow screen loses what is usual first. The holder is cut, and then the name.
const GIVING: Giving<'static> = Giving {
    spare: &[3],
    long: (5, 24),
    last: (1, 14),
};

/// How far back the events on the screen go.
const LATELY: Duration = Duration::from_secs(15 * 60);

/// How many lines events take at most, and their share of the screen.
const EVENTS_MAX: usize = 8;
const EVENTS_SHARE: usize = 5;

/// How many lines of an answer are shown.
const SAID_MAX: usize = 4;

/// What a frame shows.
pub(crate) struct Picture<'a> {
    /// Where the locks are, for people.
    pub(crate) place: &'a str,
    /// Name of this host, which need not be said.
    pub(crate) here: &'a str,
    pub(crate) zone: &'a TimeZone,
    /// Now, in milliseconds since the epoch.
    pub(crate) now_ms: u64,
    /// All locks, by name, as they were read some time ago.
    pub(crate) locks: &'a [LockView],
    pub(crate) since_look: Duration,
    pub(crate) history: &'a History,
    /// What could not be read.
    pub(crate) trouble: Option<&'a str>,
}

/// What the person at the screen has chosen.
#[derive(Debug, Default)]
pub(crate) struct Chosen {
    pub(crate) sort: Sort,
    /// Only locks that have this text.
    pub(crate) filter: String,
    /// Free locks, too.
    pub(crate) free: bool,
    /// The lock that keys are about, and its place among the rows.
    pub(crate) lock: Option<String>,
    pub(crate) at: usize,
    /// Whether that lock is marked. On paper no key is about it.
    pub(crate) marks: bool,
    pub(crate) page: Page,
    /// The first line of the page that is shown.
    pub(crate) first: usize,
    pub(crate) foot: Foot,
    pub(crate) colours: bool,
}

impl Chosen {
    /// Whether keys are about this lock.
    fn is(&self, row: &Row<'_>) -> bool {
        self.lock.as_ref() == Some(&row.view.name)
    }
}

/// What fills the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Page {
    #[default]
    Locks,
    /// All that is known of the chosen lock.
    Lock,
    Help,
}

/// What stands on the last line.
#[derive(Debug, Default)]
pub(crate) enum Foot {
    #[default]
    Keys,
    /// The filter is being typed.
    Filter,
    /// A question, answered by one key.
    Question(String),
    /// What became of the last key.
    Said(String),
}

/// A line of the frame, its style, and a part of it that has one of its own.
#[derive(Debug, Default)]
struct Line {
    text: String,
    style: Style,
    /// From this column on, so many columns.
    part: Option<(usize, usize, Style)>,
}

impl Line {
    fn of(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }

    fn styled(text: impl Into<String>, style: Style) -> Self {
        Self {
            style,
            ..Self::of(text)
        }
    }
}

/// The locks that rows show, in their order.
pub(crate) fn order<'a>(picture: &Picture<'a>, chosen: &Chosen) -> Vec<&'a LockView> {
    shown(picture, chosen).iter().map(|row| row.view).collect()
}

fn shown<'a>(picture: &Picture<'a>, chosen: &Chosen) -> Vec<Row<'a>> {
    of_these(all(picture), chosen, picture.here)
}

fn all<'a>(picture: &Picture<'a>) -> Vec<Row<'a>> {
    let all = picture.locks.iter();
    all.map(|view| Row::of(view, picture.history, picture.since_look))
        .collect()
}

fn of_these<'a>(mut rows: Vec<Row<'a>>, chosen: &Chosen, here: &str) -> Vec<Row<'a>> {
    let filter = chosen.filter.to_lowercase();
    rows.retain(|row| {
        // All of a lock is shown also once it is free.
        let is_shown = chosen.page == Page::Lock && chosen.is(row);
        is_shown || ((chosen.free || row.rank != Rank::Free) && row.has(&filter, here))
    });
    rows::sort(&mut rows, chosen.sort);
    rows
}

/// Draws the frame. What is chosen follows the locks: one that is gone gives its place to the next.
pub(crate) fn draw(picture: &Picture<'_>, chosen: &mut Chosen, buffer: &mut Buffer) {
    let (columns, height) = (
        usize::from(buffer.area.width),
        usize::from(buffer.area.height),
    );
    let rows = all(picture);
    let mut lines = head(picture, chosen, &rows, columns);
    let rows = of_these(rows, chosen, picture.here);
    if let Some(at) = rows.iter().position(|row| chosen.is(row)) {
        chosen.at = at;
    } else {
        if chosen.page == Page::Lock {
            (chosen.page, chosen.first) = (Page::Locks, 0);
        }
        chosen.lock = None;
        chosen.at = chosen.at.min(rows.len().saturating_sub(1));
    }
    let room = height.saturating_sub(lines.len() + 1);
    match chosen.page {
        Page::Locks => {
            let events = events(picture, columns, height);
            let locks = table(
                picture,
                chosen,
                &rows,
                (columns, room - events.len().min(room)),
            );
            lines.extend(locks);
            lines.extend(events);
        }
        Page::Lock => {
            let row = rows.get(chosen.at);
            let page = row.map_or_else(Vec::new, |row| all_of(picture, row, columns));
            lines.extend(part_of(page, chosen, room));
        }
        Page::Help => {
            let page = HELP.lines().map(Line::of).collect();
            lines.extend(part_of(page, chosen, room));
        }
    }
    lines.truncate(height.saturating_sub(1));
    lines.resize_with(height.saturating_sub(1), Line::default);
    let foot = foot(chosen, columns);
    // What was said may need more lines, and has them of the page.
    lines.truncate(height.saturating_sub(foot.len()));
    lines.extend(foot);
    for (y, line) in lines.iter().enumerate() {
        put(buffer, y, line, columns);
    }
}

/// The frame as text, without what is empty at its end.
pub(crate) fn text(buffer: &Buffer) -> String {
    let Rect { width, height, .. } = buffer.area;
    let mut lines = Vec::new();
    for y in 0..height {
        let mut line = String::new();
        let mut x = 0;
        while let Some(cell) = buffer.cell((x, y)).filter(|_| x < width) {
            line.push_str(cell.symbol());
            // A wide character has the cell behind it, too.
            x += u16::try_from(super::width::width(cell.symbol()).max(1)).unwrap_or(1);
        }
        let line = line.trim_end().to_owned();
        // A paper is as long as what stands on it.
        if !line.is_empty() || lines.last().is_some_and(|last: &String| !last.is_empty()) {
            lines.push(line);
        }
    }
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines.join("\n")
}

/// Writes a line into the frame: the one way there. Nothing in it acts on a terminal.
fn put(buffer: &mut Buffer, y: usize, line: &Line, columns: usize) {
    let Ok(y) = u16::try_from(y) else {
        return;
    };
    let text = clean(&line.text);
    let text = cut(&text, columns);
    buffer.set_string(0, y, &text, line.style);
    let whole = Rect::new(0, y, buffer.area.width, 1);
    buffer.set_style(whole, line.style);
    if let Some((from, length, style)) = line.part {
        let number = |at: usize| u16::try_from(at.min(columns)).unwrap_or(u16::MAX);
        let (from, end) = (number(from), number(from + length));
        buffer.set_style(Rect::new(from, y, end - from, 1), style);
    }
}

/// What matters of all locks together: it stands on the screen however many there are.
fn head(picture: &Picture<'_>, chosen: &Chosen, all: &[Row<'_>], columns: usize) -> Vec<Line> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let time = audit::time(picture.now_ms, picture.zone);
    let time = time.split_once(' ').map_or(&*time, |(_, time)| time);
    let title = cut(
        &["tenure top ", &clean(picture.place)].join(" "),
        columns.saturating_sub(time.len() + 2),
    )
    .into_owned();
    let gap = columns.saturating_sub(width(&title) + time.len());
    let title = Line::styled(format!("{title}{:gap$}{time}", ""), bold);
    if let Some(trouble) = picture.trouble {
        let age = short(u64::try_from(picture.since_look.as_millis()).unwrap_or(u64::MAX));
        let text = format!("not read for {age}: {trouble}");
        return vec![title, Line::styled(text, red(chosen))];
    }
    let count = |rank| all.iter().filter(|row| row.rank == rank).count();
    let mut facts = Vec::new();
    let need = count(Rank::Need);
    if need > 0 {
        let verb = if need == 1 { "needs" } else { "need" };
        facts.push(format!("{need} {verb} a person"));
    }
    let waiting: usize = all.iter().map(|row| row.view.queue.len()).sum();
    if let Some(first) = all.iter().max_by_key(|row| row.waited_ms)
        && let Some(waited_ms) = first.waited_ms
    {
        let (waited, lock) = (short(waited_ms), first.view.called());
        facts.push(format!("{waiting} wait, longest {waited} for {lock}"));
    }
    if let Some(oldest) = all.iter().max_by_key(|row| row.age_ms)
        && let Some(age_ms) = oldest.age_ms
    {
        facts.push(format!(
            "longest hold {} {}",
            short(age_ms),
            oldest.view.called()
        ));
    }
    let held = all.iter().filter(|row| row.age_ms.is_some()).count();
    facts.push(format!("{held} held"));
    let free = count(Rank::Free);
    if free > 0 {
        facts.push(format!("{free} free"));
    }
    let style = if need > 0 { red(chosen) } else { Style::new() };
    vec![title, Line::styled(facts.join(" | "), style)]
}

fn red(chosen: &Chosen) -> Style {
    let style = Style::new().add_modifier(Modifier::BOLD);
    if chosen.colours {
        style.fg(Color::Red)
    } else {
        style
    }
}

/// The style of a state.
fn style_of(row: &Row<'_>, chosen: &Chosen) -> Style {
    let style = match row.rank {
        Rank::Need => return red(chosen),
        Rank::Waited | Rank::Long => Style::new().fg(Color::Yellow),
        Rank::Free => Style::new().fg(Color::Green),
        Rank::Held => Style::new(),
    };
    if chosen.colours { style } else { Style::new() }
}

/// The rows of the locks, with those below them for whom there is room.
fn table(
    picture: &Picture<'_>,
    chosen: &mut Chosen,
    rows: &[Row<'_>],
    (columns, height): (usize, usize),
) -> Vec<Line> {
    if rows.is_empty() {
        let nothing = match (picture.locks, &*chosen.filter) {
            ([], _) if picture.trouble.is_some() => "",
            ([], _) => "no locks",
            (_, "") => "no lock is held, and nobody waits",
            _ => "no lock has the text of the filter",
        };
        return filled(vec![Line::of(nothing)], height);
    }
    let room = height.saturating_sub(1);
    let most = company_for(rows, room);
    // Where each row begins, and where the last one ends.
    let mut begins = vec![0];
    for row in rows {
        let begin = begins.last().copied().unwrap_or(0);
        begins.push(begin + 1 + row.company_length(most(row)));
    }
    let length = begins.pop().unwrap_or(0);
    // Where not all fit, the last line says how many do not.
    let shown = if length > room {
        room.saturating_sub(1)
    } else {
        length
    };
    let begin = begins.get(chosen.at).copied().unwrap_or(0);
    let end = begins.get(chosen.at + 1).copied().unwrap_or(length);
    let end = end.min(begin + shown);
    chosen.first = chosen.first.min(begin).max(end.saturating_sub(shown));
    chosen.first = chosen.first.min(length - shown);
    let last = chosen.first + shown;
    let above = begins.iter().filter(|at| **at < chosen.first).count();
    let below = begins.iter().filter(|at| **at >= last).count();
    // Lines of one row may begin above.
    let from = begins
        .partition_point(|at| *at <= chosen.first)
        .saturating_sub(1);
    let rows = rows.get(from..begins.len() - below).unwrap_or_default();
    let skipped = chosen.first - begins.get(from).copied().unwrap_or(0);

    let heading = ["STATE", "LOCK", "AGE", "USUAL", "LINE", "HOLDER"].map(Cow::from);
    let all: Vec<Cells<6>> = rows
        .iter()
        .map(|row| cleaned(row.cells(picture.here)))
        .collect();
    let cells = std::iter::once(&heading).chain(&all);
    let layout = Columns::of(cells, Some(columns.saturating_sub(2)), GIVING);
    let lay = |cells: &Cells<6>, marker: &str| {
        let mut line = String::new();
        layout.lay(cells, |_, _| None, &mut line);
        format!("{marker} {line}")
    };
    let dim = Style::new().add_modifier(Modifier::DIM);
    let mut body = Vec::new();
    for (index, (row, cells)) in (from..).zip(rows.iter().zip(&all)) {
        let is_chosen = chosen.marks && index == chosen.at;
        let mut line = Line::of(lay(cells, if is_chosen { ">" } else { " " }));
        line.part = Some((2, row.state.len(), style_of(row, chosen)));
        if is_chosen {
            line.style = Style::new().add_modifier(Modifier::REVERSED);
        }
        body.push(line);
        let company = row.company(picture.here, most(row)).into_iter();
        body.extend(company.map(|said| Line::of(format!("      {said}"))));
    }
    let mut lines = vec![Line::styled(lay(&heading, " "), dim)];
    lines.extend(body.into_iter().skip(skipped).take(shown));
    let hidden = [(above, "above"), (below, "below")].into_iter();
    let hidden = hidden.filter(|(count, _)| *count > 0);
    let hidden: Vec<_> = hidden
        .map(|(count, where_)| format!("{count} {where_}"))
        .collect();
    if !hidden.is_empty() {
        lines.resize_with(height.saturating_sub(1), Line::default);
        let more = format!("  more locks: {}", hidden.join(", "));
        lines.push(Line::styled(more, dim));
    }
    filled(lines, height)
}

/// Cells that are as wide as they will be shown.
fn cleaned(cells: Cells<6>) -> Cells<6> {
    cells.map(|cell| match clean(&cell) {
        Cow::Borrowed(_) => cell,
        Cow::Owned(cleaned) => cleaned.into(),
    })
}

fn filled(mut lines: Vec<Line>, height: usize) -> Vec<Line> {
    lines.truncate(height);
    lines.resize_with(height, Line::default);
    lines
}

/// How many holders and waiters are shown below a row: all if all rows have room then, and otherwise first those of locks that
/// matter.
fn company_for(rows: &[Row<'_>], room: usize) -> impl Fn(&Row<'_>) -> usize + use<> {
    // (below those that need a person, below those that are waited for, below others)
    let tries = [
        (usize::MAX, usize::MAX, usize::MAX),
        (usize::MAX, usize::MAX, 3),
        (usize::MAX, 3, 1),
        (3, 3, 1),
        (3, 1, 1),
        (3, 1, 0),
        (2, 1, 0),
        (1, 1, 0),
        (1, 0, 0),
    ];
    let of = |(need, waited, other): (usize, usize, usize), row: &Row<'_>| match row.rank {
        Rank::Need => need,
        Rank::Waited => waited,
        Rank::Long | Rank::Held | Rank::Free => other,
    };
    let fit = |most: (usize, usize, usize), lowest: Rank, room: usize| {
        let rows = rows.iter().filter(|row| row.rank <= lowest);
        let lines = rows.map(|row| 1 + row.company_length(of(most, row)));
        lines.sum::<usize>() <= room
    };
    // Where not even the rows fit, those that matter share the screen with their first waiters.
    let all_fit = |most: &(usize, usize, usize)| fit(*most, Rank::Free, room);
    let urgent_fit = |most: &(usize, usize, usize)| fit(*most, Rank::Long, room.saturating_sub(2));
    let most = tries.into_iter().find(all_fit);
    let most = most.or_else(|| tries.into_iter().skip(4).find(urgent_fit));
    let most = most.unwrap_or((1, 0, 0));
    move |row| of(most, row)
}

/// What happened lately, newest last; a refusal that repeats another one is counted there.
fn events(picture: &Picture<'_>, columns: usize, height: usize) -> Vec<Line> {
    let most = (height / EVENTS_SHARE).min(EVENTS_MAX);
    if most < 2 {
        return Vec::new();
    }
    let lately = u64::try_from(LATELY.as_millis()).unwrap_or(u64::MAX);
    let since = picture.now_ms.saturating_sub(lately);
    let entries = picture.history.since(since);
    let lines = event_lines(entries, picture, columns, most - 1);
    if lines.is_empty() {
        return lines;
    }
    let dim = Style::new().add_modifier(Modifier::DIM);
    let title = format!("  LAST {}M", LATELY.as_secs() / 60);
    std::iter::once(Line::styled(title, dim))
        .chain(lines)
        .collect()
}

/// The last of these events, a line each.
fn event_lines<'a>(
    entries: impl Iterator<Item = &'a tenure_engine::audit::Entry>,
    picture: &Picture<'_>,
    columns: usize,
    most: usize,
) -> Vec<Line> {
    let mut rows: Vec<(audit::Row, String)> = Vec::new();
    let mut known = HashMap::<String, usize>::new();
    // From the last on; what repeats a later one is added to it.
    let mut endings = audit::Endings::default();
    let entries: Vec<_> = entries.map(|entry| (entry, endings.of(entry))).collect();
    for (entry, ending) in entries.into_iter().rev() {
        let ending = ending.as_deref();
        let row = audit::Row::of(entry, picture.here, ending);
        let repeated = row.repeats.as_ref().and_then(|key| known.get(key));
        if let Some((later, _)) = repeated.and_then(|at| rows.get_mut(*at)) {
            later.add(&row);
            continue;
        }
        if rows.len() == most {
            break;
        }
        if let Some(key) = &row.repeats {
            known.insert(key.clone(), rows.len());
        }
        rows.push((row, audit::brief(entry, picture.here, ending)));
    }
    let rows = rows.into_iter().rev();
    let cells: Vec<Cells<5>> = rows
        .map(|(row, brief)| {
            let times = match row.times {
                1 => String::new(),
                times => format!("{times} times: "),
            };
            let [time, event, lock, who, ..] = row.cells(picture.zone);
            let time = time.split_once(' ').map(|(_, time)| time.to_owned());
            let what = clean(&format!("{times}{brief}")).into_owned();
            [
                time.unwrap_or_default().into(),
                event,
                lock,
                who,
                what.into(),
            ]
        })
        .collect();
    let layout = Columns::of(&cells, Some(columns.saturating_sub(2)), EVENTS);
    cells
        .iter()
        .map(|cells| {
            let mut line = String::from("  ");
            layout.lay(cells, |_, _| None, &mut line);
            Line::of(line)
        })
        .collect()
}

/// What lines of events give up.
const EVENTS: Giving<'static> = Giving {
    spare: &[],
    long: (4, 20),
    last: (2, 14),
};

/// All that is known of a lock.
fn all_of(picture: &Picture<'_>, row: &Row<'_>, columns: usize) -> Vec<Line> {
    let view = row.view;
    let mut said: Vec<String> = view.text().lines().map(str::to_owned).collect();
    said.push(String::new());
    if holders(view).next().is_some() && view.standing == "held" {
        said.push(stop_hint(view));
    }
    if let Some(usual) = row.usual {
        said.push(format!(
            "usually held {}: the middle of its last {} holds, of which the longest took {}",
            short(usual.median_ms),
            usual.holds,
            short(usual.longest_ms)
        ));
    }
    said.push(format!("kept in {}", view.lock_file));
    let mut lines: Vec<Line> = said
        .iter()
        .flat_map(|line| wrapped(&clean(line), columns))
        .map(Line::of)
        .collect();
    let events = picture.history.since(0);
    let events = events.filter(|entry| entry.lock_name() == view.name);
    let events = event_lines(events, picture, columns, 20);
    if !events.is_empty() {
        lines.push(Line::default());
        let dim = Style::new().add_modifier(Modifier::DIM);
        lines.push(Line::styled("  LAST EVENTS", dim));
        lines.extend(events);
    }
    lines
}

/// A text in lines that fit. It is broken between words, where that goes.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let indent = text.len() - text.trim_start().len();
    let columns = columns.max(indent + 8);
    let mut lines = vec![" ".repeat(indent)];
    for word in text.split_whitespace() {
        let mut word = word.to_owned();
        loop {
            let Some(line) = lines.last_mut() else {
                return lines;
            };
            let is_first = line.len() == line.len() - line.trim_start().len();
            let gap = usize::from(!is_first);
            if width(line) + gap + width(&word) <= columns {
                line.push_str(" ".get(..gap).unwrap_or_default());
                line.push_str(&word);
                break;
            }
            if !is_first {
                lines.push(" ".repeat(indent + 2));
                continue;
            }
            // The word is wider than a line.
            let room = columns - width(line);
            let mut taken = 0;
            let end = word.char_indices().find_map(|(at, c)| {
                taken += width(c.encode_utf8(&mut [0; 4]));
                (taken > room).then_some(at)
            });
            let rest = word.split_off(end.unwrap_or(word.len()).max(1));
            line.push_str(&word);
            word = rest;
            lines.push(" ".repeat(indent + 2));
        }
    }
    lines
}

/// The part of a page that is shown.
fn part_of(page: Vec<Line>, chosen: &mut Chosen, room: usize) -> Vec<Line> {
    chosen.first = chosen.first.min(page.len().saturating_sub(room));
    page.into_iter().skip(chosen.first).collect()
}

/// The last lines: of an answer as many as it needs.
fn foot(chosen: &Chosen, columns: usize) -> Vec<Line> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    match &chosen.foot {
        Foot::Question(said) | Foot::Said(said) => {
            let lines = wrapped(&clean(said), columns).into_iter();
            lines
                .take(SAID_MAX)
                .map(|line| Line::styled(line, bold))
                .collect()
        }
        Foot::Keys | Foot::Filter => vec![keys(chosen)],
    }
}

/// The line of the keys.
fn keys(chosen: &Chosen) -> Line {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let dim = Style::new().add_modifier(Modifier::DIM);
    match (&chosen.foot, chosen.page) {
        (Foot::Filter, _) => Line::styled(
            format!("/{}_  Enter keeps it, Esc clears it", chosen.filter),
            bold,
        ),
        // On paper there are no keys.
        _ if !chosen.marks => Line::default(),
        (_, Page::Locks) => {
            let filter = match &*chosen.filter {
                "" => String::new(),
                filter => format!(" ({filter})"),
            };
            let free = if chosen.free { "hide" } else { "show" };
            Line::styled(
                format!(
                    "/ filter{filter}  s sort ({})  Enter more  c cancel  a {free} free  ? help  q quit",
                    chosen.sort.word()
                ),
                dim,
            )
        }
        (_, Page::Lock) => Line::styled("j k scroll  c cancel  Esc back  q quit", dim),
        (_, Page::Help) => Line::styled("Esc back  q quit", dim),
    }
}

const HELP: &str = "  j k g G, arrows, PgUp PgDn
                 another lock: the next, the previous, the first, the last
  Enter          all that is known of the lock, and what happened to it
  c              ask the holder of the lock to stop, after a question
  /              show only locks with this text: in name, state, holder, waiters
  s              sort by need, wait, age or name
  a              show free locks, too
  q, Ctrl-C      end

  stopped        a process was stopped; kill -CONT continues it
  orphaned       the supervisor died, and its command goes on
  stuck          the next in line does not take its turn
  ended          all processes ended, and the record still counts
  stale          only force takes it over
  unreadable, unknown
                 what stands there cannot be understood, or not be read
  long           held longer than each of its last holds
  ending         the holder was asked to stop

AGE is that of the oldest hold, USUAL the middle of the last holds in the audit,
LINE how many wait, and the longest wait.";

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn a_text_is_broken_between_words_and_within_a_word_that_is_too_wide() {
        assert_eq!(wrapped("one two three", 8), ["one two", "  three"]);
        assert_eq!(
            wrapped("  a bcdefghijkl m", 10),
            ["  a", "    bcdefg", "    hijkl", "    m"]
        );
        assert_eq!(wrapped("", 8), [""]);
    }
}
