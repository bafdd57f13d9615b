// The same names for `import`. Both ways share one client, so a program has one serve.
import tenure from './index.js';

export const { lock, locks, withLock, lockSync, check, list, cancel, wait, Hold, HoldSync } = tenure;
export const { TenureError, HeldError, LostError, SupersededError, AlreadyHeldError, StoreError, ServeError } = tenure;
