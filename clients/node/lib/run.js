'use strict';
// Calls of the program `tenure` with one answer: what serve has no request for, and what may not wait for a promise.

const { execFile, spawnSync } = require('node:child_process');
const { randomUUID } = require('node:crypto');
const { binary } = require('./binary.js');
const { ServeError, TenureError, camel, errorOf } = require('./errors.js');
const { about, milliseconds } = require('./lock.js');

/** The flags that say which lock is meant, where it is and how it is held. */
function flags({ name, group, shared, slots, dir, store }) {
  const said = { group, slots, dir, store };
  const words = Object.entries(said).flatMap(([flag, value]) => (value === undefined ? [] : [`--${flag}=${value}`]));
  if (shared) words.push('--shared');
  return name === undefined ? words : [...words, '--', name];
}

/** The flag of a wait. */
function waitFlag(wait) {
  const ms = milliseconds('wait', wait);
  if (Number.isNaN(ms)) return [];
  return [ms === Infinity ? '--wait=forever' : `--wait=${Math.round(ms)}ms`];
}

const JSON_ANSWER = '--output=json';

/** What the program has answered. */
function answerOf(stdout, failed) {
  let answer;
  try {
    answer = JSON.parse(stdout);
  } catch {
    throw new ServeError('NO_SERVE', `tenure gave no answer: ${failed?.message ?? stdout.slice(0, 80)}`);
  }
  if (answer.ok) return answer.data;
  throw errorOf(answer.error, sentence(answer.error));
}

/** The message of a failure; of a held lock the one that names lock and person. */
function sentence({ code, message, context }) {
  if (code !== 'LOCK_HELD' || !context?.holder) return message;
  const { pid, actor, host, since, why } = context.holder;
  return `${context.name} is held by PID ${pid} (${actor}@${host}) since ${since}: ${why}`;
}

/** Waits until a lock is free, without taking it. */
function wait(name, options = {}) {
  const said = typeof name === 'string' ? options : name;
  const words = ['wait', JSON_ANSWER, ...waitFlag(said.wait), ...flags(about(name, options))];
  const { signal } = said;
  signal?.throwIfAborted();
  return new Promise((resolve, reject) => {
    execFile(binary(), words, { signal, encoding: 'utf8' }, (failed, stdout) => {
      if (signal?.aborted) return reject(signal.reason);
      try {
        resolve(camel(answerOf(stdout, failed)));
      } catch (error) {
        reject(error);
      }
    });
  });
}

/** Takes a lock while the whole program stands still. For start scripts, and for what has no `await`. */
function lockSync(name, options = {}) {
  const requestId = options.requestId ?? randomUUID();
  const whose = ['--owner', String(process.pid), '--request-id', requestId];
  const why = options.why === undefined ? [] : [`--why=${options.why}`];
  const meant = about(name, options);
  const data = call(['acquire', JSON_ANSWER, ...whose, ...why, ...waitFlag(options.wait), ...flags(meant)]);
  const hold = new HoldSync(meant, data);
  if (data.lock_file.includes('://')) {
    hold.release();
    throw new TenureError('NO_SYNC', `${data.name} is on a server, where a hold is renewed: use lock() and await it`);
  }
  return hold;
}

/** A hold in a folder, which counts while this program lives. */
class HoldSync {
  #place;
  #isReleased = false;

  constructor({ dir, store, group, name }, { name: known, token, slot, member, request_id: requestId }) {
    this.#place = { dir, store, group, name };
    this.name = known;
    this.token = token;
    this.slot = slot;
    this.member = member;
    this.requestId = requestId;
  }

  /** Throws a LostError if the hold does not stand any more. */
  verify() {
    call(['heartbeat', JSON_ANSWER, '--request-id', this.requestId, ...flags(this.#place)]);
  }

  /** Gives it back; a second time does nothing. */
  release() {
    if (this.#isReleased) return;
    call(['release', JSON_ANSWER, '--request-id', this.requestId, ...flags(this.#place)]);
    this.#isReleased = true;
  }
}

if (Symbol.dispose) {
  Object.defineProperty(HoldSync.prototype, Symbol.dispose, {
    value: function dispose() {
      this.release();
    },
  });
}

function call(words) {
  const { stdout, error } = spawnSync(binary(), words, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  return answerOf(stdout ?? '', error);
}

module.exports = { wait, lockSync, HoldSync };
