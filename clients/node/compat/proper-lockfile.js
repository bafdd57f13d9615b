'use strict';
// The interface of the package proper-lockfile, version 4. Users of both exclude each other.

const lockfile = require('../lib/lockfile.js');

/** Locks a file. Resolves with the function that releases it. */
async function lock(file, options) {
  const entry = await lockfile.lock(file, options);
  return () => lockfile.release(entry);
}

function lockSync(file, options) {
  const entry = lockfile.lockSync(file, options);
  return () => lockfile.releaseSync(entry);
}

module.exports = lock;
module.exports.lock = lock;
module.exports.lockSync = lockSync;
module.exports.unlock = lockfile.unlock;
module.exports.unlockSync = lockfile.unlockSync;
module.exports.check = lockfile.check;
module.exports.checkSync = lockfile.checkSync;
