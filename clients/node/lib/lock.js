'use strict';
// What callers ask for: locks, and answers about locks.

const { AsyncLocalStorage } = require('node:async_hooks');
const { randomUUID } = require('node:crypto');
const path = require('node:path');
const { performance } = require('node:perf_hooks');
const { client, PATIENCE } = require('./client.js');
const { Hold } = require('./hold.js');
const { LostError, ServeError, camel } = require('./errors.js');

/** Milliseconds after which a serve that says nothing of a wait counts as dead. */
const SILENCE = 30_000;

/** The holds under which the current task works: those of the bodies of `withLock` around it. */
const around = new AsyncLocalStorage();

/** Takes a lock, or the lock of a group: `lock({ group: 'pr-7' })`. */
function lock(name, options) {
  if (typeof name !== 'string') return take([], name);
  return take([{ name, shared: options?.shared, slots: options?.slots }], options);
}

/** Takes all locks or none. Each is a name, or says how it is held: `{ name: 'db', shared: true }`. */
function locks(wanted, options) {
  return take(
    [...wanted].map((one) => (typeof one === 'string' ? { name: one } : one)),
    options,
  );
}

/** Does `body` under a lock, and gives that back. A lock that the body itself asks for again is refused. */
async function withLock(name, options, body) {
  if (typeof options === 'function') [options, body] = [undefined, options];
  const hold = await (Array.isArray(name) ? locks(name, options) : lock(name, options));
  let result;
  try {
    result = await around.run({ hold, outer: around.getStore() }, body, hold);
  } catch (error) {
    await hold.release().catch((lost) => {
      throw lost instanceof LostError ? Object.assign(lost, { cause: error }) : error;
    });
    throw error;
  }
  await hold.release();
  return result;
}

/** @returns {Promise<Hold>} */
async function take(wanted, options = {}) {
  const { signal, onWaiting } = options;
  signal?.throwIfAborted();
  const names = wanted.map(({ name }) => ({ name }));
  if (options.group !== undefined) names.push({ name: options.group.toLowerCase(), group: true });
  if (names.length === 0) throw new TypeError('name a lock or a group');
  const whose = { ...place(options), request_id: options.requestId ?? randomUUID(), caller: caller(names, options) };
  const hold = new Hold(whose, names);
  const params = {
    locks: wanted,
    group: options.group,
    cancel_in_progress: options.cancelInProgress,
    ticket: options.ticket,
    why: options.why,
    ttl_ms: options.ttl,
  };
  const wait = milliseconds('wait', options.wait);
  const end = performance.now() + wait;
  const told = onWaiting && ((waiting) => process.nextTick(onWaiting, camel(waiting)));
  let isAsked = false;
  try {
    await client.answered(async (serve) => {
      // The serve that was asked has died, perhaps between the grant and the answer.
      if (isAsked && (await adopted(hold, serve))) return;
      signal?.throwIfAborted();
      isAsked = true;
      const rest = Math.max(0, end - performance.now());
      await hold.acquire(serve, { ...params, wait_ms: waitMs(rest) }, patience(rest), signal, told);
    }, wait || 0);
  } catch (error) {
    if (isAsked && error instanceof ServeError) hold.drop();
    if (error.code === 'ABANDONED') signal?.throwIfAborted();
    throw error;
  }
  if (signal?.aborted) {
    await hold.release();
    signal.throwIfAborted();
  }
  return hold;
}

async function adopted(hold, serve) {
  const failed = await hold.adopt(serve);
  if (failed && !(failed instanceof LostError)) {
    // It may have been granted.
    hold.drop();
    throw failed;
  }
  return failed === null;
}

/** The task that asks: that of a hold around it on one of these locks, for which it would wait without end. */
function caller(names, options) {
  if (options.caller !== undefined) return options.caller;
  for (let layer = around.getStore(); layer; layer = layer.outer) {
    const { hold } = layer;
    if (!hold.isReleased && hold.locks.some((own) => names.some(({ name }) => own.name === name))) return hold.caller;
  }
  return client.newCaller();
}

/** Where the locks are. */
function place({ dir, store }) {
  return { dir: dir === undefined ? undefined : path.resolve(dir), store };
}

/** How long a wait lasts. NaN means what tenure.toml says, else 10 seconds. */
function milliseconds(what, wait) {
  if (wait === undefined) return NaN;
  if (typeof wait !== 'number' || !(wait >= 0)) {
    throw new RangeError(`${what}: write milliseconds, 0 for a try, or Infinity`);
  }
  return wait;
}

/** What is left of a wait, as serve reads it. `undefined`: its default. */
function waitMs(rest) {
  if (Number.isNaN(rest)) return undefined;
  return rest === Infinity ? 'forever' : Math.round(rest);
}

/** How long serve may take. It says at least every 10 seconds how a wait stands. */
function patience(rest) {
  return rest < SILENCE - PATIENCE ? rest + PATIENCE : SILENCE;
}

/** The lock that a question is about. */
function about(name, options = {}) {
  const { group, shared, slots } = typeof name === 'string' ? { ...options, group: undefined } : name;
  return {
    name: typeof name === 'string' ? name : undefined,
    group,
    shared,
    slots,
    ...place(typeof name === 'string' ? options : name),
  };
}

/** How a lock stands: who holds it, who waits, whether a request would get it now. */
async function check(name, options) {
  return camel(await client.answered((serve) => serve.ask('check', about(name, options))));
}

/** How all locks stand. */
async function list(options = {}) {
  const params = { all: options.all, ...place(options) };
  const { locks: found } = await client.answered((serve) => serve.ask('list', params));
  return camel(found);
}

/** Asks the holder of a lock to stop. Answers whom it has asked. */
async function cancel(name, options = {}) {
  const said = typeof name === 'string' ? options : name;
  const { shared, slots, ...whom } = about(name, options);
  const params = { ...whom, request_id: said.requestId, why: said.why };
  return camel((await client.answered((serve) => serve.ask('cancel', params))).asked);
}

module.exports = { lock, locks, withLock, check, list, cancel, about, milliseconds };
