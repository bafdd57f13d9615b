'use strict';
// The rules of a client, each with a serve that keeps or breaks its own part of them.

const { test } = require('node:test');
const assert = require('node:assert/strict');
const { faked, inThread, program } = require('./support.js');

/** What `lock` comes to, and what became of the hold. */
async function locked({ lock }) {
  try {
    const hold = await lock('deploy', { wait: 1_000 });
    await hold.release();
    return 'released';
  } catch (error) {
    return `${error.name} ${error.code}: ${error.message}`;
  }
}

const methods = (heard) => heard().map(({ method }) => method);

// Each: what serve does, what the caller sees, and what serve has heard.
const TABLE = [
  ['another protocol names both versions', 'other-protocol', /^ServeError PROTOCOL_UNKNOWN: .*1.*9\.9\.9.*2/],
  ['garbage', 'garbage', /^ServeError NO_SERVE: .*no message: hello/],
  ['a list in place of a message', 'not-an-object', /^ServeError NO_SERVE: .*no message/],
  ['neither result nor error', 'no-answer', /^ServeError NO_SERVE: .*no message/],
  ['half a line, and the end', 'half-a-line', /^ServeError NO_SERVE: .*has ended/],
  ['an end at once', 'ends', /^ServeError NO_SERVE: .*has ended/],
  ['silence', 'silence', /^ServeError NO_SERVE: .*does not answer/],
  ['an end at each request', 'dies-always', /^ServeError NO_SERVE: .*has ended/],
  ['messages of later versions', 'unknown', /^released$/, ['hello', 'acquire', 'release']],
  ['an answer byte by byte', 'in-pieces', /^HeldError LOCK_HELD: größer$/],
  ['a grant that was not told is adopted', 'dies-granting', /^released$/, ['hello', 'acquire', 'hello', 'adopt', 'release']],
  [
    'a wait that has ended with its serve begins anew',
    'dies-waiting',
    /^released$/,
    ['hello', 'acquire', 'hello', 'adopt', 'acquire', 'release'],
  ],
  [
    'a release that was not told is one',
    'dies-releasing',
    /^released$/,
    ['hello', 'acquire', 'release', 'hello', 'adopt', 'adopt'],
  ],
  ['a newer run', 'supersedes', /^SupersededError SUPERSEDED: a newer run$/],
  ['a store that fails', 'no-store', /^StoreError STORE_UNAVAILABLE: the folder/],
  ['a loss of which nobody has heard', 'loses', /^LostError LOCK_LOST: deploy/],
];

test('serves that keep or break the rules', { concurrency: 4 }, async (t) => {
  const cases = TABLE.map(([what, script, seen, heard]) =>
    t.test(what, async (t) => {
      const { env, heard: hears } = faked(t, script);
      assert.match(await inThread(t, env, locked), seen);
      if (heard) assert.deepEqual(methods(hears), heard);
    }),
  );
  await Promise.all(cases);
});

test('a grant that was not told is adopted by names and request id', async (t) => {
  const { env, heard } = faked(t, 'dies-granting');
  await inThread(t, env, locked);
  const [, acquire, , adopt] = heard().map(({ params }) => params);
  assert.equal(adopt.request_id, acquire.request_id);
  assert.equal(adopt.caller, acquire.caller);
  assert.deepEqual(adopt.locks, [{ name: 'deploy' }]);
});

test('a loss aborts the signal, is told, and then release is quiet', async (t) => {
  const { env } = faked(t, 'loses');
  await inThread(t, env, async ({ lock, LostError }) => {
    const hold = await lock('deploy');
    const told = await new Promise((resolve) => hold.on('lost', resolve));
    assert.ok(told instanceof LostError);
    assert.equal(hold.isLost, true);
    assert.equal(hold.goodFor, 0);
    assert.equal(hold.signal.reason, told);
    assert.equal(hold.stopSignal.reason, told);
    await assert.rejects(hold.verify(), LostError);
    await hold.release();
  });
});

test('a body that fails after a loss ends with the loss, which names the failure', async (t) => {
  const { env } = faked(t, 'loses');
  await inThread(t, env, async ({ withLock }) => {
    const failed = withLock('deploy', async () => {
      await sleep(100);
      throw new Error('the work');
    });
    await assert.rejects(failed, { name: 'LostError', cause: new Error('the work') });
  });
});

test('an unheard loss at the end of a block is an unhandled rejection, and ends the program', async (t) => {
  const { env } = faked(t, 'loses');
  const code = `
    const hold = await tenure.lock('deploy');
    setTimeout(() => hold[Symbol.asyncDispose](), 100);`;
  const { ended } = program(t, env, code);
  const { code: status, err } = await ended;
  assert.equal(status, 1);
  assert.match(err, /LostError: deploy was lost/);
});

test('another caller asks for the lock', async (t) => {
  const { env } = faked(t, 'is-asked');
  await inThread(t, env, async ({ lock, SupersededError }) => {
    const hold = await lock('deploy');
    const by = await new Promise((resolve) => hold.on('stop', resolve));
    assert.equal(by, 'run-8');
    assert.equal(hold.stopRequestedBy, 'run-8');
    assert.ok(hold.stopSignal.reason instanceof SupersededError);
    assert.equal(hold.stopSignal.reason.by, 'run-8');
    assert.equal(hold.signal.aborted, false);
    await hold.release();
  });
});

test('a lease is counted on the own clock, from the last renewal', async (t) => {
  const { env } = faked(t, 'a-lease');
  await inThread(t, env, async ({ lock }) => {
    const hold = await lock('deploy');
    const began = performance.now();
    await new Promise((resolve) => hold.on('lost', resolve));
    const lasted = performance.now() - began;
    assert.ok(lasted < 15_000, `the last word counts: ${lasted}`);
    assert.equal(hold.goodFor, 0);
  });
});

test('the variables of the project outlive the serve that has told them', async (t) => {
  const { env } = faked(t, 'has-variables');
  await inThread(t, env, async ({ lock }) => {
    const hold = await lock('deploy');
    const before = hold.env({});
    assert.equal(before.GPU, '3');
    while (hold.env({}).TENURE_HELD === before.TENURE_HELD) await sleep(20);
    assert.equal(hold.env({}).GPU, '3');
    await hold.release();
  });
});

test('a hold that no serve can adopt is lost', async (t) => {
  const { env } = faked(t, 'dies-for-good');
  await inThread(t, env, async ({ lock }) => {
    const hold = await lock('deploy');
    const error = await new Promise((resolve) => hold.on('lost', resolve));
    assert.match(error.message, /tenure serve cannot be used/);
  });
});
