'use strict';
// The thread that keeps lock folders fresh. It tells when a folder is gone, or another one stands in its place.
//
// It refreshes an open folder, and not a path: so it never touches the folder of another holder.

const fs = require('node:fs');
const { parentPort } = require('node:worker_threads');

/** Milliseconds until a refresh that has failed is tried again. */
const AGAIN = 1_000;

/** @type {Map<number, any>} */
const kept = new Map();

parentPort.on('message', (asked) => {
  if (asked.folder === undefined) drop(asked.id);
  else add(asked);
});

function add({ id, folder, ino, mtimeMs, update, stale, made }) {
  const one = { id, folder, ino, mtimeMs, update, stale, fd: null, refreshed: made, timer: undefined };
  kept.set(id, one);
  try {
    one.fd = fs.openSync(folder, fs.constants.O_RDONLY | fs.constants.O_DIRECTORY);
    if (fs.fstatSync(one.fd).ino !== ino) return lose(one, 'another folder stands in its place');
  } catch (error) {
    return lose(one, error.message);
  }
  later(one, made + update - Date.now());
}

function later(one, ms) {
  one.timer = setTimeout(refresh, Math.max(0, ms), one);
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
    later(one, one.update);
  } catch (error) {
    if (error.code === 'ENOENT' || one.refreshed + one.stale < Date.now()) lose(one, error.message);
    else later(one, AGAIN);
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
  clearTimeout(one.timer);
  if (one.fd !== null) fs.closeSync(one.fd);
}
