'use strict';
// Finds the program `tenure`: TENURE_BIN, the package for this platform, the PATH.

const { accessSync, constants, realpathSync, statSync } = require('node:fs');
const path = require('node:path');
const { ServeError } = require('./errors.js');

/** The platforms for which there is a package with the program. */
const PLATFORMS = ['linux-x64', 'linux-arm64'];

/** @returns {string} the path of the program */
function binary() {
  return process.env.TENURE_BIN || ofPackage() || onPath() || none();
}

function ofPackage() {
  const name = `@tenure/${process.platform}-${process.arch}`;
  try {
    // The package exports nothing, so that its manifest tells where it is.
    return path.join(path.dirname(require.resolve(`${name}/package.json`)), 'bin', 'tenure');
  } catch {
    return null;
  }
}

function onPath() {
  for (const folder of (process.env.PATH ?? '').split(path.delimiter)) {
    if (!path.isAbsolute(folder)) continue;
    try {
      const found = realpathSync(path.join(folder, 'tenure'));
      accessSync(found, constants.X_OK);
      // The command of this package is a script that starts the program; serve has to be our own child.
      if (statSync(found).isFile() && !found.endsWith('.js')) return found;
    } catch {
      // There is none in this folder.
    }
  }
  return null;
}

function none() {
  const platform = `${process.platform}-${process.arch}`;
  const message = PLATFORMS.includes(platform)
    ? `the program tenure is missing: npm has left out the optional package @tenure/${platform}, so remove ` +
      'node_modules and package-lock.json and run `npm install --include=optional`, or set TENURE_BIN to the program'
    : `there is no package with the program tenure for ${platform}; build it, and set TENURE_BIN to the program`;
  throw new ServeError('NO_BINARY', message);
}

module.exports = { binary };
