'use strict';
// The module in place of proper-lockfile: no second holder, whatever is stale, blocked or killed, and whoever uses the
// original. originals.js runs the original's own tests.

const { describe, test } = require('node:test');
const assert = require('node:assert/strict');
const { fork } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const path = require('node:path');
const { ROOT, place, program, sleep, until } = require('./support.js');

const OURS = path.join(ROOT, 'compat', 'proper-lockfile.js');
/** The package itself, where test.sh has it. */
const THEIRS = process.env.PROPER_LOCKFILE;
const ROUNDS = 150;

function stand(t) {
  const { env, folder } = place(t);
  const file = path.join(folder, 'file');
  fs.writeFileSync(file, '');
  return { env, file, folder: `${file}.lock` };
}

function start(t, env, module_, file) {
  const child = fork(path.join(__dirname, 'stale.js'), [module_, file], { env });
  t.after(() => child.kill('SIGKILL'));
  const ask = async (message) => {
    const answered = once(child, 'message');
    child.send(message);
    return (await answered)[0];
  };
  return { child, ask };
}

function leaveStale(folder) {
  fs.mkdirSync(folder);
  fs.utimesSync(folder, 1, 1);
}

describe('in place of proper-lockfile', { concurrency: 4 }, () => {
  test(`8 programs, a stale lock, ${ROUNDS} rounds: each has one holder`, async (t) => {
    const { env, file, folder } = stand(t);
    const programs = Array.from({ length: 8 }, () => start(t, env, OURS, file));
    let granted = 0;
    for (let round = 0; round < ROUNDS; round++) {
      leaveStale(folder);
      const isSync = (index) => round % 3 === 2 && index % 2 === 1;
      const answers = await Promise.all(programs.map(({ ask }, index) => ask({ does: 'take', isSync: isSync(index) })));
      const holders = answers.filter((answer) => answer === 'granted').length;
      assert.ok(holders <= 1, `round ${round}: ${answers}`);
      granted += holders;
      assert.ok(answers.every((answer) => answer === 'granted' || answer === 'ELOCKED'), `round ${round}: ${answers}`);
      await Promise.all(programs.map(({ ask }) => ask({ does: 'release' })));
      if (holders === 0) fs.rmdirSync(folder);
    }
    assert.ok(granted > ROUNDS / 2, `granted in ${granted} rounds`);
  });

  test('a blocked event loop does not let the folder grow stale', async (t) => {
    const { env, file, folder } = stand(t);
    const code = `
      const lockfile = require(${JSON.stringify(OURS)});
      const release = await lockfile.lock(${JSON.stringify(file)}, { stale: 2000 });
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 4_000);
      console.log(Date.now() - require('node:fs').statSync(${JSON.stringify(folder)}).mtimeMs);
      await release();`;
    const { out, err } = await program(t, env, code).ended;
    assert.ok(Number.parseFloat(out) < 3_900, `refreshed ${out} ms ago ${err}`);
    assert.equal(fs.existsSync(folder), false);
  });

  for (const signal of ['SIGINT', 'SIGTERM']) {
    test(`${signal} ends the program and removes the folder`, async (t) => {
      const { env, file, folder } = stand(t);
      const code = `
        require(${JSON.stringify(OURS)}).lockSync(${JSON.stringify(file)});
        console.log('holds');
        setInterval(() => {}, 1000);`;
      const { child, says, ended } = program(t, env, code);
      await says('holds');
      child.kill(signal);
      assert.equal((await ended).signal, signal);
      assert.equal(fs.existsSync(folder), false);
    });
  }

  test('a refresh never touches the folder of another holder', async (t) => {
    const { env, file, folder } = stand(t);
    const code = `
      const lockfile = require(${JSON.stringify(OURS)});
      await lockfile.lock(${JSON.stringify(file)}, { update: 1000, onCompromised: (error) => console.log(error.code) });
      console.log('holds');
      setInterval(() => {}, 1000);`;
    const { child, says } = program(t, env, code);
    await says('holds');
    fs.rmdirSync(folder);
    fs.mkdirSync(folder);
    fs.utimesSync(folder, 1, 1);
    await says('ECOMPROMISED');
    assert.equal(fs.statSync(folder).mtimeMs, 1_000);
    child.kill('SIGTERM');
    await until('it has ended', () => child.signalCode !== null);
    assert.equal(fs.existsSync(folder), true, 'the folder of another holder was removed');
  });

  test('a folder that is being given back is not missed', async (t) => {
    const { env, file } = stand(t);
    const code = `
      const { promises } = require('node:fs');
      const lockfile = require(${JSON.stringify(OURS)});
      const release = await lockfile.lock(${JSON.stringify(file)}, { update: 1000 });
      const rmdir = promises.rmdir;
      // Gone, and not known to be, when the next refresh is due.
      promises.rmdir = async (folder) => {
        await rmdir(folder);
        await new Promise((resolve) => setTimeout(resolve, 2_500));
      };
      await release();
      console.log('done');`;
    assert.deepEqual(await program(t, env, code).ended, { code: 0, signal: null, out: 'done\n', err: '' });
  });

  test('a stale folder with something in it stays where it is', async (t) => {
    const { env, file, folder } = stand(t);
    fs.mkdirSync(folder);
    fs.writeFileSync(path.join(folder, 'note'), '');
    fs.utimesSync(folder, 1, 1);
    const { ask } = start(t, env, OURS, file);
    for (const isSync of [true, false]) assert.equal(await ask({ does: 'take', isSync }), 'ENOTEMPTY');
    assert.deepEqual(fs.readdirSync(path.dirname(folder)).sort(), ['file', 'file.lock', 'locks']);
  });

  test('a file system of the caller is refused', async () => {
    const { lock, checkSync } = require(OURS);
    await assert.rejects(lock(__filename, { fs: { ...fs } }), TypeError);
    assert.throws(() => checkSync(__filename, { fs: {} }), TypeError);
    assert.equal(checkSync(__filename, { fs }), false);
  });

  test('users of both packages exclude each other', { skip: !THEIRS && 'PROPER_LOCKFILE is not set' }, async (t) => {
    const { env, file } = stand(t);
    const programs = [OURS, THEIRS, OURS, THEIRS].map((module_) => start(t, env, module_, file));
    const held = [0, 0, 0, 0];
    const end = Date.now() + 4_000;
    let inside = 0;
    const work = async ({ ask }, index) => {
      const options = { retries: { retries: 1_000, minTimeout: 5, maxTimeout: 20 } };
      while (Date.now() < end) {
        if ((await ask({ does: 'take', options })) !== 'granted') continue;
        assert.equal(++inside, 1, 'a second holder');
        await sleep(3);
        inside -= 1;
        held[index] += 1;
        await ask({ does: 'release' });
        await sleep(3);
      }
    };
    await Promise.all(programs.map(work));
    assert.ok(held.every((count) => count > 0), `each has held: ${held}`);
  });
});
