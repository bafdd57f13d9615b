'use strict';
// The lock folders of proper-lockfile: made, kept fresh and removed so that users of that package and of this one
// exclude each other.
//
// The folder beside the file is what both see. In front of it, users of this package stand in a queue of tenure: they
// take turns in order, and only the first in line may judge a folder as stale and take its place. Thread
// `lockfile-keeper.js` keeps folders fresh, also while the event loop of the program is blocked.

const { createHash, randomUUID } = require('node:crypto');
const fs = require('node:fs');
const path = require('node:path');
const { setTimeout: sleep } = require('node:timers/promises');
const { Worker, isMainThread } = require('node:worker_threads');
const { HeldError } = require('./errors.js');
const { lock: queue } = require('./lock.js');
const { lockSync: queueSync } = require('./run.js');

/** How often a folder of a user of proper-lockfile is looked at, in milliseconds. */
const LOOK = 50;

/** @typedef {{ file: string, folder: string, fd: number | null, ino: number, mtimeMs: number, options: any, hold: any, id: number, released: boolean }} Entry */

/** The locks of this program, by their files. */
const locks = Object.create(null);
let lastId = 0;

/** By their folders, the places in line that are being given back. @type {Map<string, Promise<void>>} */
const leaving = new Map();

/** Options, with the bounds that proper-lockfile gives them. */
function normal(options = {}) {
  if (options.fs !== undefined && options.fs !== fs) {
    throw new TypeError('fs: the lock folders of tenure are in the file system of the machine; leave this option out');
  }
  const stale = Math.max(options.stale ?? 10_000, 2_000) || 2_000;
  const update = options.update == null ? stale / 2 : options.update || 0;
  return {
    realpath: options.realpath ?? true,
    lockfilePath: options.lockfilePath,
    stale,
    update: Math.max(Math.min(update, stale / 2), 1_000),
    delays: delays(options.retries || 0),
    onCompromised: options.onCompromised ?? crash,
  };
}

function crash(error) {
  throw error;
}

/** The pauses between attempts, as the package `retry` counts them. Their sum is how long a request waits. */
function delays(retries) {
  const how = typeof retries === 'number' ? { retries } : retries;
  const { retries: count = 10, factor = 2, minTimeout = 1_000, maxTimeout = Infinity, randomize = false } = how;
  if (how.forever) return [Infinity];
  const pause = (_, attempt) => {
    const random = randomize ? Math.random() + 1 : 1;
    return Math.min(Math.round(random * Math.max(minTimeout, 1) * factor ** attempt), maxTimeout);
  };
  const sum = Array.from({ length: count }, pause);
  return how.maxRetryTime === undefined ? sum : [Math.min(total(sum), how.maxRetryTime)];
}

function total(pauses) {
  return pauses.reduce((sum, pause) => sum + pause, 0);
}

function folderOf(file, { lockfilePath }) {
  return path.resolve(lockfilePath || `${file}.lock`);
}

/** By which users of this package queue for a folder. */
function nameOf(folder) {
  return `lockfile@${createHash('sha256').update(folder).digest('hex').slice(0, 24)}`;
}

async function lock(given, options) {
  const meant = normal(options);
  const file = meant.realpath ? fs.realpathSync.native(given) : path.resolve(given);
  const folder = folderOf(file, meant);
  // What this program has just given back stands in the queue until serve has heard of it.
  await leaving.get(folder);
  const wait = total(meant.delays);
  const end = performance.now() + wait;
  const hold = await queue(nameOf(folder), { wait, why: folder }).catch((error) => {
    throw error instanceof HeldError ? locked(file) : error;
  });
  // Whatever becomes of the place in line, the folder is the lock.
  hold.on('lost', () => {});
  try {
    while (!make(folder)) {
      if (!takeOver(folder, meant.stale)) {
        const rest = end - performance.now();
        if (rest <= 0) throw locked(file);
        await sleep(Math.min(LOOK, rest));
      }
    }
    return register({ file, folder, options: meant, hold });
  } catch (error) {
    await hold.release();
    throw error;
  }
}

function lockSync(given, options) {
  const meant = normal(options);
  if (meant.delays.length > 0) throw coded('ESYNC', 'Cannot use retries with the sync api');
  const file = meant.realpath ? fs.realpathSync.native(given) : path.resolve(given);
  const folder = folderOf(file, meant);
  if (!make(folder) && !replaced(file, folder, meant.stale)) throw locked(file);
  return register({ file, folder, options: meant, hold: null });
}

/** Takes the place of a stale folder, in turn with all others who would. */
function replaced(file, folder, stale) {
  if (!isStale(look(folder), stale)) return false;
  let turn;
  try {
    turn = queueSync(nameOf(folder), { wait: 0, why: folder });
  } catch (error) {
    throw error instanceof HeldError ? locked(file) : error;
  }
  try {
    takeOver(folder, stale);
    return make(folder);
  } finally {
    turn.release();
  }
}

/** Makes the folder; false if there is one. */
function make(folder) {
  try {
    fs.mkdirSync(folder);
    return true;
  } catch (error) {
    if (error.code === 'EEXIST') return false;
    throw error;
  }
}

/** What is known of a folder; null if there is none. */
function look(folder) {
  return fs.statSync(folder, { throwIfNoEntry: false }) ?? null;
}

function isStale(seen, stale) {
  return seen !== null && seen.mtimeMs < Date.now() - stale;
}

/**
 * Removes a folder that is stale. True if it is worth trying again at once.
 *
 * A user of proper-lockfile may replace the folder between a look and its removal. So it is renamed first, and looked at
 * again where nobody else touches it. One that was fresh goes back to its place.
 */
function takeOver(folder, stale) {
  const seen = look(folder);
  if (seen === null) return true;
  if (!isStale(seen, stale)) return false;
  const away = `${folder}.${randomUUID()}`;
  try {
    fs.renameSync(folder, away);
  } catch (error) {
    if (error.code === 'ENOENT') return true;
    throw error;
  }
  const moved = fs.statSync(away);
  const isSame = moved.ino === seen.ino && moved.mtimeMs === seen.mtimeMs;
  try {
    if (isSame || look(folder) !== null) fs.rmdirSync(away);
    else fs.renameSync(away, folder);
  } catch (error) {
    // It is no empty folder, so nobody can take its place.
    if (look(folder) === null) fs.renameSync(away, folder);
    throw error;
  }
  return isSame;
}

/**
 * @param {Omit<Entry, 'fd' | 'ino' | 'mtimeMs' | 'id' | 'released'>} made
 * @returns {Entry}
 */
function register(made) {
  lastId += 1;
  // While it is open, no other folder gets its number.
  const fd = opened(made.folder);
  const { ino, mtimeMs } = fs.fstatSync(fd);
  const entry = { ...made, fd, ino, mtimeMs, id: lastId, released: false };
  locks[entry.file] = entry;
  keeper.add(entry);
  listen();
  return entry;
}

function opened(folder) {
  try {
    return fs.openSync(folder, fs.constants.O_RDONLY | fs.constants.O_DIRECTORY);
  } catch (error) {
    fs.rmdirSync(folder);
    throw error;
  }
}

function forget(entry) {
  if (entry.fd === null) return;
  entry.released = true;
  // Another task may have it by now.
  if (locks[entry.file] === entry) delete locks[entry.file];
  keeper.drop(entry);
  fs.closeSync(entry.fd);
  entry.fd = null;
  if (Object.keys(locks).length === 0) unlisten();
}

/** Whether the folder is still that of the lock. Another one may have taken its place after it was stale. */
function isInPlace(entry) {
  return look(entry.folder)?.ino === entry.ino;
}

function ignoreAbsence(error) {
  if (error.code !== 'ENOENT') throw error;
}

/** Resolves once the folder is gone, and its place in line is free. */
async function release(entry) {
  begin(entry);
  try {
    // The removal of a folder may take milliseconds. A program that ends meanwhile removes it by itself.
    if (isInPlace(entry)) await fs.promises.rmdir(entry.folder).catch(ignoreAbsence);
  } finally {
    forget(entry);
    await entry.hold?.release();
  }
}

function releaseSync(entry) {
  begin(entry);
  try {
    remove(entry);
  } finally {
    leave(entry);
  }
}

/** Gives a place in line back in the background. */
function leave({ folder, hold }) {
  const left = hold?.release().catch(() => {});
  if (left) leaving.set(folder, left.then(() => leaving.delete(folder)));
}

function begin(entry) {
  if (entry.released) throw coded('ERELEASED', 'Lock is already released');
  entry.released = true;
}

function remove(entry) {
  try {
    if (isInPlace(entry)) fs.rmdirSync(entry.folder);
  } catch (error) {
    ignoreAbsence(error);
  } finally {
    forget(entry);
  }
}

async function unlock(given, options) {
  const meant = normal(options);
  await release(own(meant.realpath ? fs.realpathSync.native(given) : path.resolve(given)));
}

function unlockSync(given, options) {
  const meant = normal(options);
  releaseSync(own(meant.realpath ? fs.realpathSync.native(given) : path.resolve(given)));
}

function own(file) {
  if (!locks[file] || locks[file].released) throw coded('ENOTACQUIRED', 'Lock is not acquired/owned by you');
  return locks[file];
}

async function check(given, options) {
  const meant = normal(options);
  return isFresh(meant.realpath ? fs.realpathSync.native(given) : path.resolve(given), meant);
}

function checkSync(given, options) {
  const meant = normal(options);
  return isFresh(meant.realpath ? fs.realpathSync.native(given) : path.resolve(given), meant);
}

function isFresh(file, options) {
  const seen = look(folderOf(file, options));
  return seen !== null && !isStale(seen, options.stale);
}

function locked(file) {
  return Object.assign(coded('ELOCKED', 'Lock file is already being held'), { file });
}

function coded(code, message) {
  return Object.assign(new Error(message), { code });
}

/** The thread that keeps the folders of this program fresh. */
const keeper = {
  thread: null,
  /** How many words were said to it, and whether it sleeps until the next one. */
  state: new Int32Array(new SharedArrayBuffer(8)),

  add({ id, folder, ino, mtimeMs, options }) {
    if (this.thread === null) {
      const how = { execArgv: [], name: 'lockfile-keeper', workerData: this.state.buffer };
      this.thread = new Worker(path.join(__dirname, 'lockfile-keeper.js'), how);
      this.thread.on('message', ({ id, message }) => this.lost(id, message));
      this.thread.unref();
    }
    const { update, stale } = options;
    this.say({ id, folder, ino, mtimeMs, update, stale, made: Date.now() });
  },

  drop({ id }) {
    this.say({ id });
  },

  say(message) {
    this.thread.postMessage(message);
    Atomics.add(this.state, 0, 1);
    if (Atomics.load(this.state, 1) === 1) Atomics.notify(this.state, 0);
  },

  lost(id, message) {
    const entry = Object.values(locks).find((entry) => entry.id === id);
    // A folder that is being given back may be gone already.
    if (!entry || entry.released) return;
    forget(entry);
    leave(entry);
    entry.options.onCompromised(coded('ECOMPROMISED', message));
  },
};

/** Removes the folders of a program that ends: they would keep others out until they are stale. */
function removeAll() {
  for (const entry of Object.values(locks)) {
    try {
      remove(entry);
    } catch {
      // It is stale in a while.
    }
  }
}

process.on('exit', removeAll);

/** Signals that end a program without the event `exit`. */
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'];
let isListening = false;

function listen() {
  if (isListening || !isMainThread) return;
  isListening = true;
  for (const signal of SIGNALS) process.on(signal, onSignal);
}

function unlisten() {
  if (!isListening) return;
  isListening = false;
  for (const signal of SIGNALS) process.off(signal, onSignal);
}

function onSignal(signal) {
  // A program that listens as well decides what it does.
  if (process.listenerCount(signal) > 1) return;
  removeAll();
  unlisten();
  process.kill(process.pid, signal);
}

module.exports = {
  lock,
  lockSync,
  release,
  releaseSync,
  unlock,
  unlockSync,
  check,
  checkSync,
  getLocks: () => locks,
};
