'use strict';
// Tries the client to breaking point: programs, their serves and both are killed and stopped while they hold.
//
//     node storm.js [short|long]     8 programs for 5 seconds, or 32 for a minute
//     node storm.js mixed            32 of Node, 32 of Python and 16 shells for a minute
//
// Each program takes one of three locks again and again. While it holds, it makes a witness file that must not be there
// yet, and writes its fencing token to the end of a list. A witness of a program that lives is a second holder. Exit code
// 0: no second holder, nothing lost or stuck, and the tokens rise in the order of the holds.

const { spawn, spawnSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { setTimeout: sleep } = require('node:timers/promises');

const LOCKS = ['one', 'two', 'three'];
const PRESETS = {
  short: { seconds: 5, node: 8 },
  long: { seconds: 60, node: 32 },
  mixed: { seconds: 60, node: 32, python: 32, shell: 16 },
};

/** The package for Python has a storm of its own, with the same witness. */
const PYTHON = path.join(__dirname, '../../python');
const kindsOfPrograms = () => ({
  node: [process.execPath, __filename, 'program'],
  python: [interpreter(), path.join(PYTHON, 'tests/storm.py'), 'program'],
  shell: ['sh', path.join(__dirname, 'storm.sh')],
});

/** Python itself, which what is on the PATH may only start. */
function interpreter() {
  return spawnSync('python3', ['-c', 'import sys; print(sys.executable)'], { encoding: 'utf8' }).stdout.trim();
}

const oneOf = (choices) => choices[Math.floor(Math.random() * choices.length)];

/** When a process that lives was started; null if it does not. One that is exiting (PF_EXITING, 4) runs no more code. */
function started(pid) {
  try {
    const words = fs.readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').pop().split(' ');
    return 'ZX'.includes(words[0]) || Number(words[6]) & 4 ? null : words[19];
  } catch {
    return null;
  }
}

function tell(folder, kind, what = '') {
  fs.appendFileSync(path.join(folder, 'log'), `${kind} ${process.pid} ${JSON.stringify(what)}\n`);
}

/** Marks the beginning of a hold. The file of a program that was killed may be left. */
function witness(folder, name, token) {
  const file = path.join(folder, `${name}.witness`);
  for (;;) {
    try {
      fs.writeFileSync(file, `${process.pid} ${started(process.pid)}`, { flag: 'wx' });
      break;
    } catch (error) {
      if (error.code !== 'EEXIST') throw error;
      const [pid, since] = fs.readFileSync(file, 'utf8').split(' ');
      if (pid && started(pid) === since) tell(folder, 'DOUBLE', `${name} beside ${pid}`);
      fs.unlinkSync(file);
    }
  }
  fs.appendFileSync(path.join(folder, `${name}.tokens`), `${token}\n`);
  return file;
}

async function program(folder) {
  const { lock, HeldError, LostError } = require('..');
  const isOver = () => fs.existsSync(path.join(folder, 'stop'));
  while (!isOver()) {
    const name = oneOf(LOCKS);
    const signal = Math.random() < 0.1 ? AbortSignal.timeout(Math.floor(Math.random() * 50)) : undefined;
    let hold;
    try {
      hold = await lock(name, { wait: oneOf([0, 200, 30_000]), signal });
    } catch (error) {
      if (error instanceof HeldError) tell(folder, 'refused');
      else if (error.name === 'TimeoutError') tell(folder, 'aborted');
      else tell(folder, 'ERROR', error.stack);
      continue;
    }
    try {
      const file = witness(folder, name, hold.token);
      await sleep(oneOf([0, 1, 20]));
      if (Math.random() < 0.5) await hold.verify();
      fs.unlinkSync(file);
      await hold.release();
      tell(folder, 'held');
    } catch (error) {
      tell(folder, error instanceof LostError ? 'LOST' : 'ERROR', error.stack);
    }
  }
  tell(folder, 'done');
}

function send(pid, signal) {
  try {
    process.kill(pid, signal);
  } catch {
    // It has ended.
  }
}

function children(pid) {
  try {
    return fs.readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number);
  } catch {
    return [];
  }
}

async function strike(fleet, done) {
  const victim = oneOf(fleet);
  const what = oneOf(['serve', 'serve', 'program', 'both', 'stop serve', 'stop program']);
  done[what] = (done[what] ?? 0) + 1;
  const serves = children(victim.pid);
  if (what === 'serve' || what === 'both') serves.forEach((pid) => send(pid, 'SIGKILL'));
  if (what === 'program' || what === 'both') send(victim.pid, 'SIGKILL');
  if (!what.startsWith('stop')) return;
  const stopped = what === 'stop serve' ? serves : [victim.pid];
  stopped.forEach((pid) => send(pid, 'SIGSTOP'));
  await sleep(oneOf([1, 50, 300]));
  stopped.forEach((pid) => send(pid, 'SIGCONT'));
}

async function main({ seconds, ...programs }) {
  const { binary } = require('../lib/binary.js');
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tenure-storm-'));
  const paths = { TENURE_BIN: binary(), TENURE_DIR: path.join(folder, 'locks'), PYTHONPATH: path.join(PYTHON, 'src') };
  const env = { ...process.env, ...paths };
  const kinds = kindsOfPrograms();
  const begin = (kind) => {
    const [program, ...words] = kinds[kind];
    return Object.assign(spawn(program, [...words, folder], { env, stdio: ['ignore', 'inherit', 'inherit'] }), { kind });
  };
  const fleet = Object.entries(programs).flatMap(([kind, count]) => Array.from({ length: count }, () => begin(kind)));
  const done = {};
  const crashes = [];
  const end = Date.now() + seconds * 1_000;
  while (Date.now() < end) {
    await sleep(10 + Math.random() * 90);
    await strike(fleet, done);
    fleet.forEach((one, index) => {
      if (one.exitCode !== null) crashes.push(`${one.kind}: ${one.exitCode}`);
      if (one.exitCode !== null || one.signalCode !== null) fleet[index] = begin(one.kind);
    });
  }
  fs.writeFileSync(path.join(folder, 'stop'), '');
  let stuck = 0;
  const deadline = Date.now() + 90_000;
  for (const one of fleet) {
    while (one.exitCode === null && one.signalCode === null && Date.now() < deadline) await sleep(20);
    if (one.exitCode === null && one.signalCode === null) {
      stuck += 1;
      one.kill('SIGKILL');
    }
  }
  const lines = fs.readFileSync(path.join(folder, 'log'), 'utf8').split('\n').filter(Boolean);
  const said = {};
  for (const line of lines) {
    const [word] = line.split(' ');
    said[word] = (said[word] ?? 0) + 1;
    if (word === word.toUpperCase()) console.error(line);
  }
  let disorder = 0;
  for (const name of LOCKS) {
    const file = path.join(folder, `${name}.tokens`);
    const tokens = fs.existsSync(file) ? fs.readFileSync(file, 'utf8').split('\n').filter(Boolean).map(Number) : [];
    disorder += tokens.filter((token, index) => index > 0 && token <= tokens[index - 1]).length;
    const free = spawnSync(binary(), ['run', '-w', '5s', name, '--', 'true'], { env });
    stuck += free.status !== 0;
  }
  console.log(JSON.stringify({ seconds, programs, done, said, disorder, stuck, crashes }));
  const isGood = stuck + disorder + crashes.length === 0 && said.held > 0 && !said.DOUBLE && !said.LOST && !said.ERROR;
  if (isGood) fs.rmSync(folder, { recursive: true });
  process.exitCode = isGood ? 0 : 1;
}

if (process.argv[2] === 'program') program(process.argv[3]);
else main(PRESETS[process.argv[2] ?? 'short']);
