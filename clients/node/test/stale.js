'use strict';
// A program of lockfile.test.js: takes a lock when it is told, and says what it came to.

const [module_, file] = process.argv.slice(2);
const lockfile = require(module_);

let release = null;

async function take({ isSync, options }) {
  try {
    release = isSync ? lockfile.lockSync(file, options) : await lockfile.lock(file, options);
    return 'granted';
  } catch (error) {
    return error.code;
  }
}

process.on('message', async ({ does, ...how }) => {
  if (does === 'take') return process.send(await take(how));
  await release?.();
  release = null;
  process.send('released');
});
