
'use strict';
(() => {
  const began = performance.now();
  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($('data').textContent);
  const { texts, callers, outcomes, summary } = data;
  const span = Math.max(1, data.until - data.since);

  // Words and numbers.

  const plain = { open: 'no end recorded', left: 'ended without release' };
  const word = (outcome) => plain[outcome] ?? outcome.replace('_', ' ');
  const units = [[86400000, 'd'], [3600000, 'h'], [60000, 'm'], [1000, 's']];
  const duration = (ms) => {
    if (ms < 1000) return `${ms}ms`;
    const parts = [];
    let rest = ms;
    for (const [unit, letter] of units) {
      if (rest >= unit && parts.length < 2) parts.push(`${Math.floor(rest / unit)}${letter}`);
      else if (parts.length) break;
      rest %= unit;
    }
    return parts.join('');
  };
  let inUtc = false;
  const local = Intl.DateTimeFormat().resolvedOptions().timeZone || 'local time';
  const formats = new Map();
  const format = (kind, utc) => {
    const key = kind + utc;
    if (!formats.has(key)) {
      const date = { year: 'numeric', month: '2-digit', day: '2-digit' };
      const time = { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' };
      const kinds = {
        day: date, minute: time, second: { ...time, second: '2-digit' },
        millisecond: { ...time, second: '2-digit', fractionalSecondDigits: 3 }, whole: { ...date, ...time, second: '2-digit' },
      };
      formats.set(key, new Intl.DateTimeFormat('sv-SE', { ...kinds[kind], timeZone: utc ? 'UTC' : undefined }));
    }
    return formats.get(key);
  };
  const time = (at, kind = 'whole', utc = inUtc) => format(kind, utc).format(new Date(data.since + at)).replace(',', '.');
  const both = (at) => {
    const other = time(at, 'second', !inUtc);
    return time(at).endsWith(other) ? time(at) : `${time(at)} (${other} ${inUtc ? 'here' : 'UTC'})`;
  };
  const caller = (number) => {
    const [name, , host, pid] = callers[number];
    const process = [pid === null ? '' : `PID ${pid}`, texts[host] ? `on ${texts[host]}` : ''].filter(Boolean).join(' ');
    return texts[name] + (process ? ` (${process})` : '');
  };

  // Bars of each lock, by lanes. A lane has its bars in the order of time, and none lies over another.

  const HOLD = 'hold', WAIT = 'wait';
  const bars = [];
  const locks = data.locks.map((row) => {
    const lock = { name: row.name, low: row.name.toLowerCase(), holdLanes: row.hold_lanes, waitLanes: row.wait_lanes, bars: [], marks: [] };
    for (const item of row.holds) {
      const [begin, end, lane, by, outcome] = item;
      lock.bars.push({ kind: HOLD, lock, item, lane, by, outcome, begin: begin ?? Math.min(0, end ?? 0), end: end ?? span });
    }
    for (const item of row.waits) {
      const [begin, end, lane, by, outcome] = item;
      lock.bars.push({ kind: WAIT, lock, item, lane, by, outcome, begin, end });
    }
    for (const item of row.incidents) lock.marks.push({ lock, item, at: item[0], by: item[2], whom: item[3] });
    for (const bar of lock.bars) bars.push(bar);
    return lock;
  });

  // Filters.

  const filter = { lock: '', actor: '', hidden: new Set() };
  let shown = [];
  let height = 0;
  const AXIS = 26, HEAD = 12, HOLD_LANE = 17, GAP = 8, ROW_MIN = 46, LANES_MAX = 400;
  const waitLane = (count) => (count <= 4 ? 14 : count <= 16 ? 6 : 3);

  const apply = () => {
    const lockText = filter.lock.toLowerCase(), actorText = filter.actor.toLowerCase();
    const fits = new Uint8Array(callers.length);
    callers.forEach(([name], number) => { fits[number] = actorText === '' || texts[name].toLowerCase().includes(actorText) ? 1 : 0; });
    shown = [];
    let top = AXIS, count = 0;
    for (const lock of locks) {
      if (!lock.low.includes(lockText)) continue;
      const kept = lock.bars.filter((bar) => fits[bar.by] && !filter.hidden.has(bar.outcome));
      const marks = lock.marks.filter((mark) => fits[mark.by] || mark.whom.some((whom) => fits[whom]));
      if (!kept.length && !marks.length) continue;
      count += kept.length;
      const lanes = [];
      const thin = waitLane(lock.waitLanes);
      const left = new Set();
      for (const bar of kept) {
        if (bar.lane >= LANES_MAX) { left.add(bar); continue; }
        const number = bar.kind === HOLD ? bar.lane : lock.holdLanes + bar.lane;
        (lanes[number] ??= { kind: bar.kind, bars: [] }).bars.push(bar);
      }
      const holdHeight = Math.min(lock.holdLanes, LANES_MAX) * HOLD_LANE;
      const row = { lock, top, marks, lanes: [], left: left.size, kept };
      lanes.forEach((lane, number) => {
        lane.height = lane.kind === HOLD ? HOLD_LANE - 2 : thin - 1;
        const before = Math.min(number, lock.holdLanes);
        lane.top = HEAD + before * HOLD_LANE + (number - before) * thin;
        row.lanes.push(lane);
      });
      row.height = Math.max(ROW_MIN, HEAD + holdHeight + Math.min(lock.waitLanes, LANES_MAX) * thin + GAP);
      top += row.height;
      shown.push(row);
    }
    height = top;
    room.style.height = `${Math.max(0, height - view.clientHeight)}px`;
    document.body.dataset.bars = count;
    chosen = blocker = null;
    draw();
  };

  // The view: which time is seen, and its place on the canvas.

  const view = $('view'), canvas = $('canvas'), room = $('room'), paper = canvas.getContext('2d', { alpha: false });
  let from = 0, to = span, side = 0, width = 0, tall = 0, scale = 1, colours = {}, hatch = null, chosen = null, blocker = null, drawn = 0;
  const SHORTEST = 20;
  const pad = () => span * 0.01;
  const fit = () => { from = -pad(); to = span + pad(); draw(); };
  const x = (at) => side + ((at - from) / (to - from)) * (width - side);
  const at = (px) => from + ((to - from) * (px - side)) / (width - side);
  const zoomTo = (first, last) => {
    let length = Math.max(SHORTEST, last - first);
    length = Math.min(length, span * 1.2);
    const middle = (first + last) / 2;
    from = Math.max(-span, Math.min(span * 2 - length, middle - length / 2));
    to = from + length;
    draw();
  };
  const zoom = (factor, px = (side + width) / 2) => {
    const middle = at(px);
    zoomTo(middle - (middle - from) * factor, middle + (to - middle) * factor);
  };
  const move = (by) => { const step = ((to - from) * by) / (width - side); zoomTo(from + step, to + step); };

  const measure = () => {
    scale = window.devicePixelRatio || 1;
    width = view.clientWidth; tall = view.clientHeight;
    side = Math.round(Math.min(190, width * 0.25));
    canvas.width = Math.round(width * scale); canvas.height = Math.round(tall * scale);
    canvas.style.width = `${width}px`; canvas.style.height = `${tall}px`;
    room.style.height = `${Math.max(0, height - tall)}px`;
    draw();
  };
  const dress = () => {
    const style = getComputedStyle(document.documentElement);
    const names = ['back', 'ink', 'soft', 'line', 'mark', 'on', 'dark', ...outcomes];
    colours = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    const tile = document.createElement('canvas');
    tile.width = tile.height = 6;
    const pen = tile.getContext('2d');
    pen.strokeStyle = colours.unknown;
    pen.lineWidth = 2;
    pen.beginPath();
    for (const shift of [-6, 0, 6]) { pen.moveTo(shift, 6); pen.lineTo(shift + 6, 0); }
    pen.stroke();
    hatch = paper.createPattern(tile, 'repeat');
    draw();
  };
  const fill = (outcome) => (outcomes[outcome] === 'unknown' ? hatch : colours[outcomes[outcome]]);

  // Drawing: only what is seen, and in each lane at most one bar for each pixel.

  let asked = false;
  const draw = () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; paint(); });
  };

  const steps = [1, 5, 10, 50, 100, 500, 1000, 5000, 10000, 30000, 60000, 300000, 600000, 1800000, 3600000, 10800000, 21600000, 43200000, 86400000, 604800000];
  const ticks = () => {
    const enough = ((to - from) * 110) / (width - side);
    const step = steps.find((it) => it >= enough) ?? Math.ceil(enough / 604800000) * 604800000;
    const shift = inUtc ? 0 : -new Date(data.since + from).getTimezoneOffset() * 60000;
    const first = Math.ceil((data.since + from + shift) / step) * step - shift - data.since;
    const kind = step >= 86400000 ? 'day' : step >= 60000 ? 'minute' : step >= 1000 ? 'second' : 'millisecond';
    const all = [];
    for (let tick = first; tick <= to; tick += step) all.push([tick, time(tick, kind), time(tick, 'day')]);
    return all;
  };

  const firstSeen = (list, since) => {
    let low = 0, high = list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (list[middle].end < since) low = middle + 1; else high = middle;
    }
    return low;
  };

  const paint = () => {
    if (!width || !tall) return;
    const top = view.scrollTop;
    paper.setTransform(scale, 0, 0, scale, 0, 0);
    paper.fillStyle = colours.back;
    paper.fillRect(0, 0, width, tall);
    const marksOfTime = ticks();
    paper.fillStyle = colours.line;
    for (const [tick] of marksOfTime) paper.fillRect(Math.round(x(tick)), AXIS - 6, 1, tall);
    paper.font = '12px system-ui, sans-serif';
    paper.textBaseline = 'middle';
    drawn = 0;
    for (const row of shown) {
      const y = row.top - top;
      if (y > tall) break;
      if (y + row.height < AXIS) continue;
      paper.fillStyle = colours.line;
      paper.fillRect(0, y + row.height - 1, width, 1);
      for (const lane of row.lanes) paintLane(lane, y + lane.top);
      paintMarks(row, y);
      paintLabel(row, y);
    }
    paper.fillStyle = colours.line;
    paper.fillRect(side - 1, AXIS, 1, tall);
    paper.fillStyle = colours.back;
    paper.fillRect(0, 0, width, AXIS - 2);
    paper.fillStyle = colours.line;
    paper.fillRect(0, AXIS - 2, width, 1);
    paper.fillStyle = colours.soft;
    let day = '', taken = side - 8;
    for (const [tick, label, ofDay] of marksOfTime) {
      const text = ofDay !== day && label !== ofDay ? `${ofDay} ${label}` : label;
      if (x(tick) > taken) {
        paper.fillText(text, x(tick) + 4, AXIS / 2 - 1);
        taken = x(tick) + 12 + paper.measureText(text).width;
        day = ofDay;
        paper.fillRect(Math.round(x(tick)), 4, 1, AXIS - 6);
      }
    }
    range();
    document.body.dataset.drawn = drawn;
    if (!document.body.dataset.ready) document.body.dataset.ready = Math.round(performance.now());
  };

  const clipped = (text, left, middle, wide) => {
    paper.save();
    paper.beginPath();
    paper.rect(left, middle - 9, wide, 18);
    paper.clip();
    paper.fillText(text, left, middle);
    paper.restore();
  };
  const paintLabel = (row, y) => {
    paper.fillStyle = colours.back;
    paper.fillRect(0, y, side - 1, row.height - 1);
    // The name stays in sight while a part of its row does.
    const top = Math.max(y + HEAD, AXIS + 2);
    if (top > y + row.height - 30) return;
    paper.fillStyle = colours.ink;
    clipped(row.lock.name, 8, top + 6, side - 16);
    const waits = row.lock.waitLanes;
    const about = [waits > LANES_MAX ? `more than ${LANES_MAX} waited` : waits > 1 ? `up to ${waits} waited` : '', row.left ? `${row.left} bars left out` : ''];
    paper.fillStyle = colours.soft;
    paper.font = '11px system-ui, sans-serif';
    about.filter(Boolean).forEach((line, number) => clipped(line, 8, top + 21 + number * 14, side - 16));
    paper.font = '12px system-ui, sans-serif';
  };

  const paintLane = (lane, y) => {
    if (y > tall || y + lane.height < AXIS) return;
    const list = lane.bars;
    let last = side - 1;
    for (let index = firstSeen(list, from); index < list.length; index += 1) {
      const bar = list[index];
      if (bar.begin > to) break;
      const left = Math.max(side - 2, x(bar.begin)), right = Math.min(width + 2, Math.max(x(bar.end), left + 1));
      if (right <= last) {
        // Whatever ends before the next pixel lies under the bar that was just drawn.
        index = Math.max(index, firstSeen(list, at(last + 0.001)) - 1);
        continue;
      }
      const wide = Math.max(right - left, bar.begin === bar.end ? 3 : 1);
      const outcome = outcomes[bar.outcome];
      paper.fillStyle = fill(bar.outcome);
      paper.fillRect(left, y, wide, lane.height);
      drawn += 1;
      last = Math.floor(left + wide);
      if (bar === chosen || bar === blocker) { paper.strokeStyle = colours.ink; paper.lineWidth = 2; paper.strokeRect(left, y, wide, lane.height); }
      if (lane.height > 11 && wide > 26) {
        const text = texts[callers[bar.by][0]] + (plain.has(outcome) ? '' : ` · ${word(outcome)}`);
        const seen = Math.max(left, side) + 5;
        if (outcome === 'unknown') { paper.fillStyle = colours.back; paper.fillRect(seen - 2, y + 1, Math.min(wide - 6, paper.measureText(text).width + 4), lane.height - 2); }
        paper.fillStyle = outcome === 'unknown' ? colours.ink : outcome === 'granted' ? colours.dark : colours.on;
        clipped(text, seen, y + lane.height / 2 + 0.5, left + wide - 3 - seen);
      }
    }
  };
  const plain = new Set(['released', 'open', 'granted']);

  const paintMarks = (row, y) => {
    let last = -9;
    const up = y + HEAD - 1;
    for (const mark of row.marks) {
      const left = x(mark.at);
      if (left < side - 6 || left > width + 6 || left - last < 2) continue;
      last = left;
      paper.fillStyle = { 'gave it up': colours.superseded, 'came after': colours.left }[texts[mark.item[1]]] ?? colours.mark;
      paper.beginPath();
      paper.moveTo(left - 5, up - 8); paper.lineTo(left + 5, up - 8); paper.lineTo(left, up);
      paper.fill();
      paper.fillRect(left - 0.5, up, 1, row.height - HEAD - GAP);
      drawn += 1;
    }
  };

  // What the pointer is at.

  const rowAt = (y) => {
    const at = y + view.scrollTop;
    return y < AXIS ? undefined : shown.find((row) => at >= row.top && at < row.top + row.height);
  };
  const thingAt = (px, py) => {
    const row = rowAt(py);
    if (!row) return null;
    if (px < side) return { name: row.lock.name };
    const y = py + view.scrollTop - row.top;
    const near = row.marks.filter((mark) => Math.abs(x(mark.at) - px) < 5);
    if (y < HEAD && near.length) return near[0];
    const lane = row.lanes.find((it) => y >= it.top - 1 && y < it.top + it.height + 1);
    if (!lane) return near[0] ?? null;
    const slack = ((to - from) / (width - side)) * 3, here = at(px);
    let best = null;
    for (let index = firstSeen(lane.bars, here - slack); index < lane.bars.length; index += 1) {
      const bar = lane.bars[index];
      if (bar.begin > here + slack) break;
      if (bar.begin <= here && bar.end >= here) return bar;
      best ??= bar;
    }
    return best ?? near[0] ?? null;
  };
  const facts = (thing) => {
    if (thing.name !== undefined) return [thing.name];
    if (thing.item && thing.at !== undefined && !thing.kind) {
      const [at, what, by, whom, reason] = thing.item;
      const lines = [`${caller(by)}: ${texts[what]}`, `${thing.lock.name}, ${both(at)}`];
      if (whom.length) lines.push(`${{ 'gave it up': 'for', 'came after': 'after' }[texts[what]] ?? 'from'} ${whom.map(caller).join(', ')}`);
      if (reason) lines.push(texts[reason]);
      return lines;
    }
    const lines = [];
    if (thing.kind === HOLD) {
      const [begin, end, , by, outcome, why, token, slot, held, waited, blocked, others] = thing.item;
      lines.push(`${caller(by)} had ${thing.lock.name}`);
      lines.push(begin === null ? 'since a time before the audit' : `from ${both(begin)}`);
      lines.push(end === null ? word('open') : `to ${both(end)}: ${word(outcomes[outcome])}${held === null ? '' : ` after ${duration(held)}`}`);
      if (why) lines.push(`for ${texts[why]}`);
      if (waited) lines.push(`after a wait of ${duration(waited)}`);
      if (blocked) lines.push(`${others} ${others === 1 ? 'wait' : 'waits'} behind it, ${duration(blocked)} in all`);
      lines.push([token === null ? '' : `token ${token}`, slot === null ? '' : `slot ${slot}`, texts[callers[by][1]]].filter(Boolean).join(', '));
      return lines;
    }
    const [begin, end, , by, outcome, code, behind, ahead, why] = thing.item;
    lines.push(`${caller(by)}: ${word(outcomes[outcome])}${end > begin ? ` after ${duration(end - begin)}` : ' at once'}`);
    lines.push(`${thing.lock.name}, from ${both(begin)}`);
    if (code) lines.push(texts[code]);
    if (behind !== null) lines.push(`behind ${caller(behind)}${ahead ? ` and ${ahead} more` : ''}`);
    if (why) lines.push(`for ${texts[why]}`);
    lines.push(texts[callers[by][1]]);
    return lines;
  };

  // The hold that a wait stood behind is drawn with a frame.
  const holderOf = (thing) => {
    const behind = thing?.kind === WAIT ? thing.item[6] : null;
    if (behind === null) return null;
    const request = callers[behind][1];
    return thing.lock.bars.find((bar) => bar.kind === HOLD && callers[bar.by][1] === request && bar.begin <= thing.end && bar.end >= thing.begin) ?? null;
  };
  const frame = (thing) => {
    const holder = holderOf(thing);
    if (holder === blocker) return;
    blocker = holder;
    draw();
  };

  const tip = $('tip');
  const showTip = (event) => {
    const box = canvas.getBoundingClientRect();
    const thing = drag ? null : thingAt(event.clientX - box.left, event.clientY - box.top);
    tip.hidden = !thing;
    frame(thing ?? chosen);
    if (!thing) return;
    tip.replaceChildren(...facts(thing).map((line) => {
      const part = document.createElement('div');
      part.textContent = line;
      return part;
    }));
    const left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
    const below = event.clientY + 16, above = event.clientY - tip.offsetHeight - 12;
    tip.style.left = `${Math.max(4, left)}px`;
    tip.style.top = `${below + tip.offsetHeight > window.innerHeight ? Math.max(4, above) : below}px`;
  };

  let drag = null;
  view.addEventListener('pointerdown', (event) => {
    if (event.button !== 0 || event.offsetX > view.clientWidth) return;
    drag = { x: event.clientX, y: event.clientY };
    view.setPointerCapture(event.pointerId);
    view.classList.add('drags');
    tip.hidden = true;
  });
  view.addEventListener('pointermove', (event) => {
    if (!drag) { showTip(event); return; }
    move(drag.x - event.clientX);
    view.scrollTop += drag.y - event.clientY;
    drag = { x: event.clientX, y: event.clientY };
  });
  const drop = () => { drag = null; view.classList.remove('drags'); };
  view.addEventListener('pointerup', drop);
  view.addEventListener('pointercancel', drop);
  view.addEventListener('pointerleave', () => { tip.hidden = true; });
  view.addEventListener('scroll', draw);
  view.addEventListener('wheel', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) {
      event.preventDefault();
      zoom(Math.exp(Math.max(-80, Math.min(80, event.deltaY)) / 200), event.clientX - canvas.getBoundingClientRect().left);
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      move(event.deltaX || event.deltaY);
    }
  }, { passive: false });
  view.addEventListener('dblclick', (event) => zoom(0.4, event.clientX - canvas.getBoundingClientRect().left));

  // Keys.

  const choose = (step) => {
    const all = shown.flatMap((row) => row.kept);
    if (!all.length) return;
    const at = all.indexOf(chosen);
    chosen = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : (at + step + all.length) % all.length];
    frame(chosen);
    reveal(chosen.lock, chosen.begin, chosen.end);
    $('facts').textContent = facts(chosen).filter(Boolean).join(' · ');
  };
  const reveal = (lock, begin, end) => {
    const row = shown.find((it) => it.lock === lock);
    if (row && (row.top < view.scrollTop + AXIS || row.top + row.height > view.scrollTop + tall)) view.scrollTop = row.top - AXIS;
    if (begin < from || end > to || end - begin < (to - from) / 400) {
      const around = Math.max(end - begin, 1000) * 0.6;
      zoomTo(begin - around, end + around);
    }
    draw();
  };
  const keys = {
    ArrowLeft: () => move(-width / 8), ArrowRight: () => move(width / 8), ArrowUp: () => { view.scrollTop -= 60; }, ArrowDown: () => { view.scrollTop += 60; },
    '+': () => zoom(0.7), '=': () => zoom(0.7), '-': () => zoom(1 / 0.7), 0: fit, n: () => choose(1), p: () => choose(-1),
    u: () => turn(), '/': () => $('lock').focus(), '?': () => $('help').click(), Escape: () => clear(),
  };
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isTyping = event.target instanceof HTMLInputElement && event.target.type === 'search';
    if (isTyping && event.key !== 'Escape') return;
    const act = keys[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });

  // What stands around the view.

  const turn = () => { inUtc = !inUtc; heads(); draw(); };
  const clear = () => {
    filter.lock = filter.actor = $('lock').value = $('actor').value = '';
    filter.hidden.clear();
    for (const box of $('outcomes').querySelectorAll('input')) box.checked = true;
    view.focus();
    apply();
  };
  const range = () => { $('range').textContent = `${time(Math.max(from, -pad()))} to ${time(Math.min(to, span + pad()))} (${inUtc ? 'UTC' : local})`; };

  const element = (name, properties, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  };
  const ofDate = (text) => Date.parse(text) - data.since;
  const goTo = (name, since, length) => {
    const lock = locks.find((it) => it.name === name);
    if (!lock || since === null) return;
    clear();
    const begin = ofDate(since);
    chosen = lock.bars.find((bar) => Math.abs(bar.begin - begin) < 1 && (bar.end - bar.begin === length || bar.item[1] === null)) ?? null;
    frame(chosen);
    const around = Math.max(length, 1000) * 0.3;
    zoomTo(begin - around, begin + length + around);
    reveal(lock, begin, begin + length);
    if (chosen) $('facts').textContent = facts(chosen).filter(Boolean).join(' · ');
  };
  const line = (number, text, go) => element('li', {},
    element('span', { className: 'number', textContent: number }),
    go ? element('button', { type: 'button', className: 'text', textContent: text, title: text, onclick: go }) : element('span', { className: 'text', textContent: text, title: text }));
  const sums = () => {
    const parts = [
      ['Longest waits', 'waits', summary.longest_waits.map((it) => [duration(it.waited_ms), `${it.who} for ${it.lock}${it.behind === null ? '' : ` behind ${it.behind}`}, ${word(it.outcome)}`, () => goTo(it.lock, it.since, it.waited_ms), it.waited_ms])],
      ['Longest holds', 'holds', summary.longest_holds.map((it) => [it.held_ms === null ? '-' : duration(it.held_ms), `${it.who} had ${it.lock}, ${word(it.outcome)}${it.blocked_ms ? `; others waited ${duration(it.blocked_ms)}` : ''}`, () => goTo(it.lock, it.since, it.held_ms ?? 0), it.held_ms ?? ''])],
      ['Blocked others most', 'blockers', summary.blocked_most.map((it) => [duration(it.blocked_ms), `${it.who} by ${it.holds} ${it.holds === 1 ? 'hold' : 'holds'}, most of it of ${it.lock}`, () => only(it.who), it.blocked_ms])],
      ['Refused most', 'refusals', summary.refusals.map((it) => [it.refused + it.skipped === 1 ? 'once' : `${it.refused + it.skipped} times`, `${it.who}, most often ${it.lock}${it.skipped ? ` (${it.skipped} skipped)` : ''}`, () => only(it.who), it.refused + it.skipped])],
    ];
    $('summary').replaceChildren(...parts.filter(([, , lines]) => lines.length).map(([title, id, lines]) => element('div', { id: `sum-${id}` },
      element('h2', { textContent: title }),
      element('ol', {}, ...lines.map(([number, text, go, value]) => { const made = line(number, text, go); made.dataset.value = value; return made; })))));
  };
  const only = (who) => { clear(); filter.actor = $('actor').value = who; apply(); };
  const heads = () => {
    $('zone').textContent = inUtc ? 'Show local time' : 'Show UTC';
    const { counts } = summary;
    const words = [
      ['locks', 'locks'], ['holds', 'holds'], ['waits', 'waits'], ['waited_ms', 'waited in all'], ['refused', 'refused'], ['skipped', 'skipped'],
      ['superseded', 'superseded'], ['left', 'ended without release'], ['taken_over', 'taken over', true], ['lost', 'lost', true], ['open', 'without an end'],
    ];
    const [first, last] = data.asked.map((at) => time(at - data.since));
    $('counts').replaceChildren(`${first} to ${last}: `, ...words.filter(([key]) => counts[key] || key === 'locks' || key === 'holds').flatMap(([key, text, isBad], at) => {
      const number = element('b', { textContent: key === 'waited_ms' ? duration(counts[key]) : counts[key] });
      number.dataset.count = key;
      number.dataset.value = counts[key];
      return [at ? ' · ' : '', element('span', { className: isBad ? 'bad' : '' }, number, ` ${counts[key] === 1 && at < 3 ? text.slice(0, -1) : text}`)];
    }));
  };
  const chips = () => {
    const holds = new Set(bars.filter((bar) => bar.kind === HOLD).map((bar) => bar.outcome));
    const found = [...new Set(bars.map((bar) => bar.outcome))].sort((a, b) => a - b);
    const chip = (outcome) => {
      const box = element('input', { type: 'checkbox', checked: true });
      box.addEventListener('change', () => { if (box.checked) filter.hidden.delete(outcome); else filter.hidden.add(outcome); apply(); });
      const sign = element('i', { className: holds.has(outcome) ? '' : 'thin' });
      sign.style.background = outcomes[outcome] === 'unknown' ? 'repeating-linear-gradient(135deg, var(--unknown) 0 2px, transparent 2px 5px)' : `var(--${outcomes[outcome]})`;
      return element('label', {}, box, sign, word(outcomes[outcome]));
    };
    const group = (title, of) => (of.length ? [element('b', { textContent: title }), ...of.map(chip)] : []);
    $('outcomes').replaceChildren(...group('Holds', found.filter((it) => holds.has(it))), ...group('Waits', found.filter((it) => !holds.has(it))));
    const names = [...new Set(bars.map((bar) => texts[callers[bar.by][0]]))].sort().slice(0, 500);
    $('callers').replaceChildren(...names.map((name) => element('option', { value: name })));
  };

  $('filters').addEventListener('submit', (event) => event.preventDefault());
  $('lock').addEventListener('input', () => { filter.lock = $('lock').value; apply(); });
  $('actor').addEventListener('input', () => { filter.actor = $('actor').value; apply(); });
  $('zone').addEventListener('click', turn);
  $('in').addEventListener('click', () => zoom(0.5));
  $('out').addEventListener('click', () => zoom(2));
  $('fit').addEventListener('click', fit);
  $('help').addEventListener('click', () => { $('keys').hidden = !$('keys').hidden; $('help').setAttribute('aria-expanded', String(!$('keys').hidden)); });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', dress);
  new ResizeObserver(measure).observe(view);

  heads();
  sums();
  chips();
  dress();
  from = -pad(); to = span + pad();
  measure();
  apply();
  document.body.dataset.script = Math.round(performance.now() - began);
})();
