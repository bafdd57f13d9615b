#!/usr/bin/env node
'use strict';
// The command `tenure` of this package: becomes the program, where Node can, and else stands in front of it.

const { spawn } = require('node:child_process');
const { constants } = require('node:os');
const { binary } = require('../lib/binary.js');

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'];

function main() {
  const program = binary();
  const words = process.argv.slice(2);
  // Warns that it is experimental, in the words of Node and not of tenure.
  process.removeAllListeners('warning');
  if (process.execve) process.execve(program, [program, ...words], process.env);
  const child = spawn(program, words, { stdio: 'inherit' });
  // A terminal sends them to both; what is sent to this process alone is handed on.
  for (const signal of SIGNALS) process.on(signal, () => child.kill(signal));
  child.on('error', (error) => fail(error.message));
  child.on('exit', (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
}

function fail(message) {
  console.error(`tenure: ${message}`);
  process.exit(1);
}

try {
  main();
} catch (error) {
  fail(error.message);
}
