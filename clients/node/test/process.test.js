'use strict';
// Programs, threads and their ends: what becomes of holds then.

const { describe, test } = require('node:test');
const assert = require('node:assert/strict');
const { chmodSync, readFileSync, writeFileSync } = require('node:fs');
const { Worker } = require('node:worker_threads');
const { ROOT, inThread, isFree, place, program, serves, tenure, until } = require('./support.js');

const HOLDS = `const hold = await tenure.lock('deploy'); console.log('holds');`;
const STAYS = `setInterval(() => {}, 1000);`;

// Some of them wait for as long as the client is patient.
describe('programs', { concurrency: 6 }, () => {
  test('a program ends by itself, also with a hold, and gives it back', async (t) => {
    const { env } = place(t);
    const { ended } = program(t, env, HOLDS);
    assert.deepEqual(await ended, { code: 0, signal: null, out: 'holds\n', err: '' });
    await until('the lock is free', () => isFree(env, 'deploy'));
  });

  test('a program lives while it waits for a lock', async (t) => {
    const { env } = place(t);
    const first = program(t, env, `${HOLDS} ${STAYS}`);
    await first.says('holds');
    const second = program(t, env, `${HOLDS} await hold.release(); console.log('done');`);
    await until('it waits', () => JSON.parse(tenure(env, 'list', '--output', 'json').stdout).data.locks[0].queue.length);
    first.child.kill('SIGKILL');
    assert.equal((await second.ended).out, 'holds\ndone\n');
  });

  for (const [how, end] of [
    ['process.exit', 'process.exit(3)'],
    ['an exception', `setTimeout(() => { throw new Error('the work') })`],
    ['an unhandled rejection', `Promise.reject(new Error('the work'))`],
  ]) {
    test(`${how} gives holds back`, async (t) => {
      const { env } = place(t);
      const { ended } = program(t, env, `${HOLDS} ${end}`);
      assert.notEqual((await ended).code, 0);
      await until('the lock is free', () => isFree(env, 'deploy'));
    });
  }

  test('SIGKILL and Ctrl-C end a program and its holds', async (t) => {
    const { env } = place(t);
    for (const signal of ['SIGKILL', 'SIGINT']) {
      const { child, says, ended } = program(t, env, `${HOLDS} ${STAYS}`, { detached: true });
      await says('holds');
      assert.equal(isFree(env, 'deploy'), false);
      // The whole group, as a terminal does.
      process.kill(-child.pid, signal);
      assert.equal((await ended).signal, signal);
      await until('the lock is free', () => isFree(env, 'deploy'));
    }
  });

  test('Ctrl-C reaches the program and not serve', async (t) => {
    const { env } = place(t);
    const code = `
      process.on('SIGINT', async () => { await hold.verify(); await hold.release(); console.log('done'); process.exit(0); });
      ${HOLDS} ${STAYS}`;
    const { child, says, ended } = program(t, env, code, { detached: true });
    await says('holds');
    const [serve] = serves(child.pid);
    process.kill(-child.pid, 'SIGINT');
    assert.equal((await ended).out, 'holds\ndone\n');
    const session = () => readFileSync(`/proc/${serve}/stat`, 'utf8').split(') ')[1].split(' ')[3];
    await until('serve has ended', () => {
      try {
        return session() !== String(serve);
      } catch {
        return true;
      }
    });
  });

  test('the program holds, and not serve: a serve that is killed is replaced, and adopts', async (t) => {
    const { env } = place(t);
    const code = `
      ${HOLDS}
      process.stdin.on('data', async () => { await hold.verify(); await hold.release(); process.exit(0); });`;
    const { child, says, ended } = program(t, env, code);
    await says('holds');
    for (let round = 0; round < 3; round++) {
      const before = serves(child.pid);
      assert.equal(before.length, 1);
      process.kill(before[0], 'SIGKILL');
      assert.equal(isFree(env, 'deploy'), false, 'without a serve');
      // Without a call of the program.
      await until('another serve', () => serves(child.pid).some((pid) => pid !== before[0]));
      assert.equal(isFree(env, 'deploy'), false, 'with the next one');
    }
    child.stdin.write('go on\n');
    const { code: status, err } = await ended;
    assert.equal(status, 0, err);
    assert.equal(isFree(env, 'deploy'), true);
  });

  test('a serve that is stopped is replaced', async (t) => {
    const { env } = place(t);
    const code = `
      ${HOLDS}
      process.stdin.once('data', async () => { await hold.verify(); console.log('verified'); process.exit(0); });`;
    const { child, says, ended } = program(t, env, code);
    await says('holds');
    process.kill(serves(child.pid)[0], 'SIGSTOP');
    child.stdin.write('go on\n');
    assert.match((await ended).out, /verified/);
  });

  test('a blocked event loop loses nothing', async (t) => {
    const { env } = place(t);
    const code = `
      ${HOLDS}
      hold.on('lost', () => console.log('lost'));
      const asked = hold.verify();
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 11_000);
      await asked;
      console.log('verified');`;
    const { says, ended } = program(t, env, code);
    await says('holds');
    assert.equal(isFree(env, 'deploy'), false);
    assert.equal((await ended).out, 'holds\nverified\n');
  });

  test('a child process has no part in the hold, and its end is not that of the hold', async (t) => {
    const { env, folder } = place(t);
    // child_process.fork needs a file, so the child is one.
    const file = `${folder}/child.js`;
    writeFileSync(
      file,
      `const tenure = require(${JSON.stringify(ROOT)});
      (async () => {
        const error = await tenure.lock('deploy', { wait: 0 }).catch((error) => error);
        await (await tenure.lock('of-the-child')).release();
        process.send([error.name, error.holder.pid]);
        process.disconnect();
      })();`,
    );
    const parent = `
      ${HOLDS}
      const child = require('node:child_process').fork(${JSON.stringify(file)});
      child.on('message', async (answer) => { await hold.verify(); console.log(JSON.stringify(answer)); });`;
    const { child, ended } = program(t, env, parent);
    const { out } = await ended;
    assert.deepEqual(JSON.parse(out.split('\n')[1]), ['HeldError', child.pid]);
  });

  test('threads have a serve of their own, and exclude each other', async (t) => {
    const { env } = place(t);
    const before = serves(process.pid).length;
    const code = `
      const { parentPort, workerData } = require('node:worker_threads');
      require(workerData).lock('deploy', { wait: 0 }).then(() => parentPort.postMessage('holds'));
      setInterval(() => {}, 1000);`;
    const worker = new Worker(code, { eval: true, env, workerData: ROOT });
    await new Promise((resolve) => worker.once('message', resolve));
    await inThread(t, env, async ({ lock }) => {
      await assert.rejects(lock('deploy', { wait: 0 }), { name: 'HeldError' });
      await (await lock('other')).release();
    });
    assert.ok(serves(process.pid).length > before);
    await worker.terminate();
    await until('the hold of a thread that was ended is free', () => isFree(env, 'deploy'));
  });

  test('after a change of the user, another serve is started', { skip: process.getuid() !== 0 }, async (t) => {
    const { env, folder } = place(t);
    chmodSync(folder, 0o755);
    const code = `
      ${HOLDS}
      process.setegid(65534); process.seteuid(65534);
      const error = await tenure.lock('other', { wait: 0 }).catch((error) => error);
      console.log(error.name);
      await hold.verify();
      process.seteuid(0); process.setegid(0);
      await hold.release();
      console.log('done');`;
    const { ended } = program(t, env, code);
    const { out, err } = await ended;
    // The folder is the first user's own.
    assert.match(out, /^holds\nStoreError\ndone\n$/, err);
  });
});
