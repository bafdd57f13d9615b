// What the types promise: `tsc` reads this file, and nothing runs it.
import { lock, locks, withLock, lockSync, check, list, cancel, wait } from 'tenure';
import { HeldError, type Hold, LostError, SupersededError, AlreadyHeldError, StoreError, ServeError } from 'tenure';

import * as lockfile from 'tenure/compat/proper-lockfile';

export async function usage(signal: AbortSignal): Promise<number | undefined> {
  await using hold = await lock('deploy', { wait: 10_000, signal, why: '4.2' });
  hold.on('lost', (error) => console.error(error.code));
  hold.once('stop', (by) => console.error(by));
  await hold.verify();
  await fetch('http://127.0.0.1/', { signal: hold.signal });
  const env: Record<string, string | undefined> = hold.env();
  const other: Hold = await locks(['db', { name: 'cache', shared: true }], { dir: '/tmp', wait: Infinity });
  await other.release();
  await using slot = await lock('gpu', { slots: 2 });
  await using run = await lock({ group: 'pr-7', cancelInProgress: true });
  run.stopSignal.throwIfAborted();
  const length: number = await withLock('deploy', async (inner) => inner.locks.length);
  await withLock(['a', 'b'], { wait: 0 }, () => undefined);
  using sync = lockSync('sync', { wait: 0 });
  sync.verify();
  const facts = await check('deploy', { slots: 2 });
  const all = await list({ all: true });
  await cancel('deploy', { why: 'the fix comes first' });
  await wait('deploy', { wait: 0, signal });
  try {
    await lock('deploy', { wait: 0, onWaiting: ({ place, holder }) => console.log(place, holder?.pid) });
  } catch (error) {
    if (error instanceof HeldError) return error.holder?.pid ?? error.retryAfter ?? error.queue.length;
    if (error instanceof LostError || error instanceof AlreadyHeldError) return env.TENURE_HELD?.length;
    if (error instanceof SupersededError) return error.by?.length;
    if (error instanceof StoreError || error instanceof ServeError) return length + all.length;
  }
  const release = await lockfile.lock('file', { stale: 5_000, retries: { retries: 3 } });
  await release();
  const isLocked: boolean = lockfile.checkSync('file', { realpath: false });
  if (isLocked) lockfile.unlockSync('file');
  return slot.slot ?? facts.holder?.ageMs;
}

// @ts-expect-error a wait is a number
await lock('deploy', { wait: '10s' });
// @ts-expect-error a lock or a group is named
await lock({ wait: 0 });
