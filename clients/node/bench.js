'use strict';
// What a lock costs a program of Node, beside proper-lockfile: in turn, in one run. Prints Markdown.
//
//     TENURE_BIN=target/release/tenure PROPER_LOCKFILE=FOLDER node bench.js [rounds [seconds]]
//
// A round measures each way once: 50 locks and unlocks of a free lock. Then 2, 8 and 32 programs contend for one lock, with
// 2 ms of work under it, for so many seconds a way. PROPER_LOCKFILE is the installed package; scripts/bench-clients calls
// this with both.

const { fork } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { performance } = require('node:perf_hooks');

const WORK = 2;
const CONTENDERS = [2, 8, 32];

/** Each takes a lock and resolves with what gives it back. */
function ways(folder) {
  const file = (name) => {
    const path_ = path.join(folder, name);
    fs.writeFileSync(path_, '');
    return path_;
  };
  const { lock } = require('.');
  const compat = require('./compat/proper-lockfile.js');
  const original = require(process.env.PROPER_LOCKFILE);
  const [ours, theirs] = [file('ours'), file('theirs')];
  // As eager as its users make it: it polls.
  const retries = { forever: true, minTimeout: 5, factor: 1 };
  return {
    tenure: async () => {
      const hold = await lock('bench', { wait: Infinity });
      return () => hold.release();
    },
    'tenure in place of proper-lockfile': () => compat.lock(ours, { retries: { forever: true } }),
    'proper-lockfile': () => original.lock(theirs, { retries }),
  };
}

const at = (sorted, part) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))];

async function alone(all, rounds) {
  const taken = Object.fromEntries(Object.keys(all).map((name) => [name, []]));
  for (const way of Object.values(all)) await (await way())();
  for (let round = 0; round < rounds; round++) {
    for (const [name, way] of Object.entries(all)) {
      for (let one = 0; one < 50; one++) {
        const began = performance.now();
        await (await way())();
        taken[name].push((performance.now() - began) * 1_000);
      }
    }
  }
  console.log('\n| lock and unlock | median | p90 |\n|---|---|---|');
  for (const [name, times] of Object.entries(taken)) {
    times.sort((one, other) => one - other);
    console.log(`| ${name} | ${at(times, 0.5).toFixed(0)} µs | ${at(times, 0.9).toFixed(0)} µs |`);
  }
}

/** One of several programs: takes the lock until it is told to end. */
async function contend(folder, name) {
  const way = ways(folder)[name];
  await (await way())();
  const waits = [];
  let isOver = false;
  process.once('message', () => {
    process.once('message', () => (isOver = true));
    run();
  });
  process.send('ready');
  const run = async () => {
    const cpu = process.cpuUsage();
    while (!isOver) {
      const began = performance.now();
      const release = await way();
      waits.push(performance.now() - began);
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, WORK);
      await release();
      await new Promise((resolve) => setImmediate(resolve));
    }
    const { user, system } = process.cpuUsage(cpu);
    process.send({ waits, cpu: (user + system) / 1_000 });
    process.disconnect();
  };
}

async function together(folder, name, count, seconds) {
  const children = Array.from({ length: count }, () => fork(__filename, ['contend', folder, name]));
  await Promise.all(children.map((child) => once(child, 'message')));
  const said = children.map((child) => once(child, 'message'));
  children.forEach((child) => child.send('begin'));
  await new Promise((resolve) => setTimeout(resolve, seconds * 1_000));
  children.forEach((child) => child.send('end'));
  const answers = (await Promise.all(said)).map(([answer]) => answer);
  const waits = answers.flatMap((answer) => answer.waits);
  const cpu = answers.reduce((sum, answer) => sum + answer.cpu, 0);
  const rate = waits.length / seconds;
  return { rate, longest: waits.reduce((most, wait) => Math.max(most, wait), 0), cpu: cpu / waits.length };
}

async function main(rounds, seconds) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'tenure-bench-'));
  process.env.TENURE_DIR = path.join(folder, 'locks');
  const all = ways(folder);
  console.log(`load ${os.loadavg()[0].toFixed(1)}, ${os.cpus().length} cores, Node ${process.versions.node}`);
  await alone(all, rounds);
  console.log('\n| programs | way | holds a second | longest wait | CPU of Node a hold |\n|---|---|---|---|---|');
  for (const count of CONTENDERS) {
    for (const name of Object.keys(all)) {
      const { rate, longest, cpu } = await together(folder, name, count, seconds);
      console.log(`| ${count} | ${name} | ${rate.toFixed(0)} | ${longest.toFixed(0)} ms | ${cpu.toFixed(2)} ms |`);
    }
  }
  fs.rmSync(folder, { recursive: true });
}

if (process.argv[2] === 'contend') contend(process.argv[3], process.argv[4]);
else main(Number(process.argv[2] ?? 40), Number(process.argv[3] ?? 10));
