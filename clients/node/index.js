'use strict';
// Locks of tenure: one holder at a time. index.d.ts says what each name means.

const { lock, locks, withLock, check, list, cancel } = require('./lib/lock.js');
const { wait, lockSync, HoldSync } = require('./lib/run.js');
const { Hold } = require('./lib/hold.js');
const {
  TenureError,
  HeldError,
  LostError,
  SupersededError,
  AlreadyHeldError,
  StoreError,
  ServeError,
} = require('./lib/errors.js');

module.exports = {
  lock,
  locks,
  withLock,
  lockSync,
  check,
  list,
  cancel,
  wait,
  Hold,
  HoldSync,
  TenureError,
  HeldError,
  LostError,
  SupersededError,
  AlreadyHeldError,
  StoreError,
  ServeError,
};
