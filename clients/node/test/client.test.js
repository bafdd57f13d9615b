'use strict';
// The client with a real serve.

const { describe, test } = require('node:test');
const assert = require('node:assert/strict');
const { holder, inThread, isFree, place, tenure } = require('./support.js');

describe('locks', { concurrency: 4 }, () => {
  test('a lock is held, verified and given back', async (t) => {
    const { env } = place(t);
    const { env: forChild } = await inThread(t, env, async ({ lock, check }) => {
      const hold = await lock('deploy', { wait: 1_000, why: '4.2' });
      await hold.verify();
      const facts = await check('deploy');
      assert.equal(facts.holder.pid, process.pid);
      assert.equal(facts.holder.why, '4.2');
      assert.equal(facts.holder.token, hold.token);
      assert.equal(facts.mine, true);
      assert.equal(hold.goodFor, Infinity);
      return { env: hold.env() };
    });
    assert.equal(isFree(env, 'deploy'), false);
    // A child under the hold is refused at once, where it would wait for its own parent.
    const child = tenure(forChild, 'run', '--wait', 'forever', 'deploy', '--', 'true');
    assert.equal(child.status, 81, child.stderr);
  });

  test('release gives it back, once, and twice is as good', async (t) => {
    const { env } = place(t);
    await inThread(t, env, async ({ lock, LostError }) => {
      const hold = await lock('deploy');
      await Promise.all([hold.release(), hold.release()]);
      await hold.release();
      assert.equal(hold.isReleased, true);
      await assert.rejects(hold.verify(), LostError);
    });
    assert.equal(isFree(env, 'deploy'), true);
  });

  test('the end of a block gives it back', async (t) => {
    const { env } = place(t);
    await inThread(t, env, async ({ lock, list }) => {
      const hold = await lock('deploy');
      await hold[Symbol.asyncDispose]();
      assert.deepEqual(await list(), []);
      const all = await list({ all: true });
      assert.equal(all[0].name, 'deploy');
    });
  });

  test('a refusal names lock and person, and has the facts', async (t) => {
    const { env } = place(t);
    const other = await holder(t, env, 'deploy');
    await inThread(
      t,
      env,
      async ({ lock, lockSync, HeldError }, pid) => {
        const began = performance.now();
        const error = await lock('deploy', { wait: 300 }).catch((error) => error);
        assert.ok(error instanceof HeldError);
        assert.ok(performance.now() - began >= 299);
        assert.match(error.message, new RegExp(`^deploy is held by PID ${pid} \\(.+@.+\\).*the night build`));
        assert.equal(error.code, 'LOCK_HELD');
        assert.equal(error.lock, 'deploy');
        assert.equal(error.holder.pid, pid);
        assert.equal(error.holder.why, 'the night build');
        assert.deepEqual(error.queue, []);
        assert.ok(error.retryAfter > 0);
        assert.throws(() => lockSync('deploy', { wait: 0 }), (error) => {
          return error instanceof HeldError && new RegExp(`^deploy is held by PID ${pid} \\(`).test(error.message);
        });
      },
      other.pid,
    );
  });

  test('a wait tells how it stands, and ends when the lock is free', async (t) => {
    const { env } = place(t);
    await holder(t, env, 'deploy');
    await inThread(t, env, async ({ lock }) => {
      const seen = [];
      const onWaiting = (waiting) => {
        seen.push(waiting);
        process.kill(waiting.holder.pid);
      };
      const hold = await lock('deploy', { wait: Infinity, onWaiting });
      assert.equal(seen[0].place, 1);
      assert.equal(seen[0].holder.why, 'the night build');
      await hold.release();
    });
  });

  test('tasks of one program take turns, in order', async (t) => {
    const { env } = place(t);
    await inThread(t, env, async ({ lock }) => {
      const order = [];
      let inside = 0;
      const work = async (number) => {
        const hold = await lock('deploy');
        assert.equal(++inside, 1, 'a second holder');
        order.push(number);
        await sleep(5);
        inside -= 1;
        await hold.release();
      };
      await Promise.all([0, 1, 2, 3, 4, 5, 6, 7].map(work));
      assert.deepEqual(order, [0, 1, 2, 3, 4, 5, 6, 7]);
    });
  });

  test('a task that asks for its own lock again is refused, another one waits', async (t) => {
    const { env } = place(t);
    await inThread(t, env, async ({ lock, locks, withLock, AlreadyHeldError, HeldError }) => {
      await withLock('deploy', { why: 'outer' }, async (outer) => {
        await withLock('inner', async () => {
          await assert.rejects(lock('deploy', { wait: Infinity }), AlreadyHeldError);
          await assert.rejects(locks(['other', 'deploy']), AlreadyHeldError);
        });
        // Two tasks of one body are two callers.
        await Promise.all([1, 2].map(() => withLock('shared-work', () => sleep(5))));
        await outer.verify();
      });
      const hold = await lock('deploy', { caller: 'task-1' });
      await assert.rejects(lock('deploy', { caller: 'task-1' }), AlreadyHeldError);
      await assert.rejects(lock('deploy', { caller: 'task-2', wait: 0 }), HeldError);
      await assert.rejects(lock('deploy', { wait: 0 }), HeldError);
      await hold.release();
      assert.equal(await withLock('deploy', () => 'the answer'), 'the answer');
      await assert.rejects(withLock('deploy', () => Promise.reject(new Error('the work'))), { message: 'the work' });
      await (await lock('deploy', { wait: 0 })).release();
    });
  });

  test('locks, shared and slots', async (t) => {
    const { env } = place(t);
    await inThread(t, env, async ({ lock, locks, HeldError }) => {
      const both = await locks(['db', { name: 'cache', shared: true }]);
      assert.deepEqual(both.locks.map(({ name }) => name), ['db', 'cache']);
      const reader = await lock('cache', { shared: true, wait: 0 });
      await assert.rejects(lock('cache', { wait: 0 }), HeldError);
      await assert.rejects(locks(['free', 'db'], { wait: 0 }), { lock: 'db' });
      await (await lock('free', { wait: 0 })).release();
      await both.release();
      await reader.release();
      const slots = await Promise.all([lock('gpu', { slots: 2 }), lock('gpu', { slots: 2 })]);
      assert.deepEqual(slots.map(({ slot }) => slot).sort(), [0, 1]);
      assert.equal(slots[0].env({}).TENURE_SLOT, String(slots[0].slot));
      await assert.rejects(lock('gpu', { slots: 2, wait: 0 }), HeldError);
      for (const hold of slots) await hold.release();
    });
  });

  test('a newer run of a group supersedes the one that works, and the one that waits', async (t) => {
    const { env } = place(t);
    await inThread(t, env, async ({ lock, check, SupersededError }) => {
      const run = () => lock({ group: 'PR-7', cancelInProgress: true, wait: 5_000 });
      const first = await run();
      assert.equal(first.locks[0].group, true);
      assert.equal((await check({ group: 'PR-7' })).holder.token, first.token);
      const stopped = new Promise((resolve) => first.stopSignal.addEventListener('abort', resolve));
      const second = run().catch((error) => error);
      await stopped;
      assert.ok(first.stopSignal.reason instanceof SupersededError);
      const third = run();
      assert.ok((await second) instanceof SupersededError);
      await first.release();
      await (await third).release();
    });
  });

  test('an abort ends a wait with its reason, and nothing is held', async (t) => {
    const { env } = place(t);
    await inThread(t, env, async ({ lock }) => {
      const hold = await lock('deploy');
      const abort = new AbortController();
      const waiting = lock('deploy', { signal: abort.signal, wait: Infinity });
      setTimeout(() => abort.abort(new Error('enough')), 50);
      await assert.rejects(waiting, { message: 'enough' });
      await assert.rejects(lock('deploy', { signal: AbortSignal.abort() }), { name: 'AbortError' });
      await assert.rejects(lock('deploy', { signal: AbortSignal.timeout(50) }), { name: 'TimeoutError' });
      await hold.release();
      await (await lock('deploy', { wait: 0 })).release();
    });
  });

  test('an abort that crosses the grant leaves no hold', async (t) => {
    const { env } = place(t);
    const held = await inThread(t, env, async ({ lock, list }) => {
      let held = 0;
      for (let round = 0; round < 60; round++) {
        const abort = new AbortController();
        const asked = lock('deploy', { signal: abort.signal });
        if (round % 2) await sleep(Math.random() * 4);
        abort.abort();
        const hold = await asked.catch(() => null);
        held += hold !== null;
        await hold?.release();
        assert.deepEqual(await list(), [], `round ${round}`);
      }
      return held;
    });
    assert.ok(held < 60, 'no abort came before the grant');
  });

  test('cancel asks the holder, wait waits for it', async (t) => {
    const { env } = place(t);
    await inThread(t, env, async ({ lock, cancel, wait, HeldError, TenureError }) => {
      const hold = await lock('deploy');
      const asked = new Promise((resolve) => hold.on('stop', resolve));
      const [whom] = await cancel('deploy', { why: 'the fix comes first' });
      assert.equal(whom.requestId, hold.requestId);
      assert.equal(await asked, hold.stopRequestedBy);
      await assert.rejects(wait('deploy', { wait: 0 }), HeldError);
      await assert.rejects(wait('deploy', { wait: Infinity, signal: AbortSignal.timeout(100) }), { name: 'TimeoutError' });
      setTimeout(() => hold.release(), 100);
      assert.equal((await wait('deploy', { wait: 5_000 })).name, 'deploy');
      await assert.rejects(cancel('deploy'), (error) => error instanceof TenureError && error.code === 'NO_HOLDER');
    });
  });

  test('mistakes are refused before anything is sent', async (t) => {
    const { env } = place(t);
    await inThread(t, env, async ({ lock, locks, lockSync, TenureError }) => {
      for (const wait of [-1, NaN, '10s', null]) await assert.rejects(lock('deploy', { wait }), RangeError);
      assert.throws(() => lockSync('deploy', { wait: -1 }), RangeError);
      await assert.rejects(lock({}), TypeError);
      await assert.rejects(locks([]), TypeError);
      await assert.rejects(lock('x'.repeat(1 << 20)), RangeError);
      await assert.rejects(lock('no name'), (error) => error instanceof TenureError && error.code === 'BAD_ARGUMENTS');
      await assert.rejects(lock('\ud83d'), TenureError);
      await (await lock('deploy', { wait: 0 })).release();
    });
  });

  test('synchronous locks', async (t) => {
    const { env } = place(t);
    await inThread(t, env, async ({ lock, lockSync, check, HeldError, LostError }) => {
      const hold = lockSync('deploy', { wait: 0, why: 'at the start' });
      assert.equal((await check('deploy')).holder.pid, process.pid);
      await assert.rejects(lock('deploy', { wait: 0 }), HeldError);
      hold.verify();
      hold[Symbol.dispose]();
      hold.release();
      assert.throws(() => hold.verify(), LostError);
      const next = await lock('deploy', { wait: 0 });
      assert.ok(next.token > hold.token);
      await next.release();
    });
  });

  test('a folder of its own, also as a relative path', async (t) => {
    const { env, folder } = place(t);
    await inThread(
      t,
      env,
      async ({ lock, check, list }, dir) => {
        const hold = await lock('deploy', { dir });
        await (await lock('deploy', { wait: 0 })).release();
        const path = require('node:path');
        assert.equal((await check('deploy', { dir: path.relative(process.cwd(), dir) })).mine, true);
        assert.equal((await list({ dir })).length, 1);
        await hold.release();
      },
      `${folder}/elsewhere`,
    );
  });
});
