'use strict';
// The thread that keeps lock folders fresh. It tells when a folder is gone, or another one stands in its place.
//
// It refreshes an open folder, and not a path: so it never touches the folder of another holder.

//
// It sleeps outside of its event loop and takes in what it is told when it wakes, so that a lock that is given back at
// once costs no wake-up.

const fs = require('node:fs');
const { parentPort, receiveMessageOnPort, workerData } = require('node:worker_threads');

/** Milliseconds until a refresh that has failed is tried again, and the longest sleep while there are locks. */
const AGAIN = 1_000;
const NAP = 500;

/** How many words were said, and whether this thread sleeps until the next one. */
const [SAID, IS_IDLE] = [0, 1];
const state = new Int32Array(workerData);

/** @type {Map<number, any>} */
const kept = new Map();

for (;;) {
  const said = Atomics.load(state, SAID);
  const isNews = hear();
  const now = Date.now();
  for (const one of [...kept.values()]) if (one.due <= now) refresh(one);
  if (kept.size === 0 && !isNews) {
    Atomics.store(state, IS_IDLE, 1);
    // Returns at once if a word has come since.
    Atomics.wait(state, SAID, said);
    Atomics.store(state, IS_IDLE, 0);
  } else {
    const due = [...kept.values()].reduce((soonest, one) => Math.min(soonest, one.due), now + NAP);
    Atomics.wait(state, IS_IDLE, 0, Math.max(1, due - Date.now()));
  }
}

/** Takes in what was said; of a lock that has come and gone, nothing is left to do. */
function hear() {
  const added = new Map();
  let isNews = false;
  for (let got; (got = receiveMessageOnPort(parentPort)); isNews = true) {
    const { id, folder } = got.message;
    if (folder !== undefined) added.set(id, got.message);
    else if (!added.delete(id)) drop(id);
  }
  added.forEach(add);
  return isNews;
}

function add({ id, folder, ino, mtimeMs, update, stale, made }) {
  const one = { id, folder, ino, mtimeMs, update, stale, fd: null, refreshed: made, due: made + update };
  kept.set(id, one);
  try {
    one.fd = fs.openSync(folder, fs.constants.O_RDONLY | fs.constants.O_DIRECTORY);
    if (fs.fstatSync(one.fd).ino !== ino) lose(one, 'another folder stands in its place');
  } catch (error) {
    lose(one, error.message);
  }
}

function refresh(one) {
  try {
    const seen = fs.statSync(one.folder);
    if (seen.ino !== one.ino || seen.mtimeMs !== one.mtimeMs) {
      return lose(one, 'Unable to update lock within the stale threshold');
    }
    const now = Date.now();
    fs.futimesSync(one.fd, now / 1_000, now / 1_000);
    // Some file systems keep less of a time than they are given.
    one.mtimeMs = fs.fstatSync(one.fd).mtimeMs;
    one.refreshed = now;
    one.due = now + one.update;
  } catch (error) {
    if (error.code === 'ENOENT' || one.refreshed + one.stale < Date.now()) lose(one, error.message);
    else one.due = Date.now() + AGAIN;
  }
}

function lose(one, message) {
  drop(one.id);
  parentPort.postMessage({ id: one.id, message });
}

function drop(id) {
  const one = kept.get(id);
  if (!one) return;
  kept.delete(id);
  if (one.fd !== null) fs.closeSync(one.fd);
}
