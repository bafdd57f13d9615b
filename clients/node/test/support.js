'use strict';
// What the tests stand on: folders, the program under test, programs of their own, serves that speak nonsense.

const { execFileSync, spawn, spawnSync } = require('node:child_process');
const { chmodSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } = require('node:fs');
const { tmpdir } = require('node:os');
const path = require('node:path');
const { setTimeout: sleep } = require('node:timers/promises');
const { Worker } = require('node:worker_threads');

const ROOT = path.join(__dirname, '..');
const TENURE = process.env.TENURE_BIN ?? require('../lib/binary.js').binary();
/** Variables of a run around the tests mean other locks. */
const OWN = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('TENURE_')));

/** A folder for a test, and the environment in which its locks are there. */
function place(t) {
  const folder = mkdtempSync(path.join(tmpdir(), 'tenure-node-'));
  t.after(() => until('the folder is gone', () => isRemoved(folder)));
  return { folder, env: { ...OWN, TENURE_BIN: TENURE, TENURE_DIR: path.join(folder, 'locks') } };
}

/** Removes a folder. The serve of a program that has ended may still write into it. */
function isRemoved(folder) {
  try {
    rmSync(folder, { recursive: true, force: true });
    return true;
  } catch (error) {
    if (error.code !== 'ENOTEMPTY') throw error;
    return false;
  }
}

/** Calls tenure. */
function tenure(env, ...words) {
  return spawnSync(TENURE, words, { env, encoding: 'utf8' });
}

function isFree(env, name) {
  return tenure(env, 'run', '-n', name, '--', 'true').status === 0;
}

/** Another program that holds a lock until it is killed. */
async function holder(t, env, name) {
  const child = spawn(TENURE, ['run', '-q', '--why', 'the night build', name, '--', 'sleep', '100'], { env, stdio: 'ignore' });
  t.after(() => child.kill('SIGTERM'));
  await until('another program holds', () => !isFree(env, name));
  return child;
}

/** Runs `body(tenure, ...args)` in a thread with a client of its own, and answers what it returns. */
async function inThread(t, env, body, ...args) {
  const code = `
    const { parentPort, workerData } = require('node:worker_threads');
    const { setTimeout: sleep } = require('node:timers/promises');
    const { performance } = require('node:perf_hooks');
    const assert = require('node:assert/strict');
    // The client keeps no thread alive.
    parentPort.on('message', () => {});
    const tell = (failed) => (answer) => parentPort.postMessage({ failed, answer });
    (async () => (${body})(require(workerData.root), ...workerData.args))().then(
      tell(false),
      (error) => tell(true)(error?.stack ?? String(error)),
    );`;
  const worker = new Worker(code, { eval: true, env, workerData: { root: ROOT, args } });
  t.after(() => worker.terminate());
  const { failed, answer } = await new Promise((resolve, reject) => {
    worker.once('message', resolve);
    worker.once('error', reject);
    worker.once('exit', (code) => reject(new Error(`the thread has ended with ${code}`)));
  });
  if (failed) throw new Error(answer);
  return answer;
}

/** Starts a program with the client. Its `tenure` is the package. */
function program(t, env, code, options = {}) {
  const source = `const tenure = require(${JSON.stringify(ROOT)}); (async () => {${code}})();`;
  const child = spawn(process.execPath, [...(options.flags ?? []), '-e', source], {
    env,
    stdio: ['pipe', 'pipe', 'pipe'],
    detached: options.detached,
  });
  t.after(() => child.kill('SIGKILL'));
  const said = { out: '', err: '' };
  child.stdout.setEncoding('utf8').on('data', (text) => (said.out += text));
  child.stderr.setEncoding('utf8').on('data', (text) => (said.err += text));
  const ended = new Promise((resolve) => child.on('close', (code, signal) => resolve({ code, signal, ...said })));
  const says = (word) => until(`the program says ${word}`, () => said.out.includes(word), () => said.err);
  return { child, said, ended, says };
}

/** The serves of a process. */
function serves(pid) {
  const isServe = (child) => {
    try {
      const words = readFileSync(`/proc/${child}/cmdline`, 'utf8').split('\0');
      return words.includes('serve') && !/\) [ZX] /.test(readFileSync(`/proc/${child}/stat`, 'utf8'));
    } catch {
      return false;
    }
  };
  // A thread of the process may have started it.
  const threads = readdirSync(`/proc/${pid}/task`);
  const children = threads.flatMap((thread) =>
    readFileSync(`/proc/${pid}/task/${thread}/children`, 'utf8').split(' ').filter(Boolean),
  );
  return children.filter(isServe).map(Number);
}

async function until(what, holds, why = () => '') {
  const end = Date.now() + 60_000;
  while (!holds()) {
    if (Date.now() > end) throw new Error(`${what}: not within a minute ${why()}`);
    await sleep(10);
  }
}

/** An environment in which `tenure serve` is a fake that answers as `script` of fake-serve.js says. */
function faked(t, script) {
  const { folder, env } = place(t);
  const fake = path.join(folder, 'tenure');
  writeFileSync(fake, `#!/bin/sh\nexec '${process.execPath}' '${__dirname}/fake-serve.js' ${script} '${folder}'\n`);
  chmodSync(fake, 0o700);
  const heard = () => {
    const lines = readFileSync(path.join(folder, 'heard'), 'utf8').split('\n').filter(Boolean);
    return lines.map((line) => JSON.parse(line));
  };
  return { env: { ...env, TENURE_BIN: fake }, heard };
}

module.exports = {
  ROOT,
  TENURE,
  execFileSync,
  faked,
  holder,
  inThread,
  isFree,
  place,
  program,
  serves,
  sleep,
  tenure,
  until,
};
