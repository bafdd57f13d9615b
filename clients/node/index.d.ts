// Types of the package `tenure`. A time is in milliseconds.

/// <reference lib="es2022" />
import { EventEmitter } from 'node:events';

/** Where the locks are; without either, where `tenure doctor` says. */
export interface Place {
  /** The folder of the locks. */
  dir?: string;
  /** The place as a URL, as `etcd://HOST:PORT/PREFIX`. */
  store?: string;
}

/** How a lock is held. */
export interface Mode {
  /** Beside other shared holders. */
  shared?: boolean;
  /** Hold one of so many slots. */
  slots?: number;
}

/** One of several locks. */
export interface Wanted extends Mode {
  name: string;
}

/** A holder or waiter of a lock. `tenure check --output json` has the same facts. */
export interface Holder {
  kind: string;
  pid: number | null;
  commandPid?: number | null;
  requestId?: string;
  token: number | null;
  actor: string;
  host: string;
  why: string;
  /** When it took the lock, in RFC 3339. */
  since: string;
  ageMs: number;
  ttlMs?: number;
  mode?: 'exclusive' | 'shared' | 'slots';
  slot?: number;
  member?: string;
  [fact: string]: unknown;
}

export interface Waiter {
  /** 1 is next. */
  position: number;
  ticket: number;
  pid: number | null;
  requestId?: string;
  actor: string;
  host: string;
  why: string;
  since: string;
  waitingMs: number;
  [fact: string]: unknown;
}

/** How a lock stands. */
export interface Facts {
  name: string;
  standing: 'free' | 'held' | 'stale' | 'unreadable' | 'unknown';
  /** This program is the holder. */
  mine: boolean;
  /** A request would get it now. */
  available: boolean;
  lockFile: string;
  holder: Holder | null;
  queue: Waiter[];
  retryAfterMs?: number;
  [fact: string]: unknown;
}

export interface LockOptions extends Place {
  /** How long to wait: 0 is a try, Infinity has no end. Default: what tenure.toml says, else 10 seconds. */
  wait?: number;
  /** Ends the wait. Once the lock is held, it has no effect. */
  signal?: AbortSignal;
  /** What the lock is held for; others see it. */
  why?: string;
  /** Of several runs of a group, one works, and one waits at most. */
  group?: string;
  /** Asks the run of the group that works to stop. */
  cancelInProgress?: boolean;
  /** Keeps the place in line for a minute when the wait is over, and comes back to it. */
  ticket?: number | 'auto';
  /** How long the hold lasts after its last renewal, if the holder cannot be seen. */
  ttl?: number;
  /** The task that asks. It is refused a lock that it has itself; another task waits. `withLock` says it by itself. */
  caller?: string;
  requestId?: string;
  /** How the wait stands, at least every 10 seconds. */
  onWaiting?: (waiting: { place: number; holder: Holder | null }) => void;
}

export interface LockEvents {
  /** The hold cannot be relied on any more. */
  lost: [error: LostError];
  /** The request of this id asks for the lock. */
  stop: [by: string];
}

/** A hold of this program. It ends by `release`, at the end of its `await using` block, and with the program. */
export class Hold extends EventEmitter implements AsyncDisposable {
  private constructor();
  readonly name: string;
  /** The fencing token: a number that only rises. */
  readonly token: number;
  /** The number of its slot, from 0. */
  readonly slot: number | null;
  /** What the slot stands for. */
  readonly member: string | null;
  readonly requestId: string;
  readonly locks: ReadonlyArray<{
    name: string;
    token: number;
    slot: number | null;
    member: string | null;
    group: boolean;
  }>;
  readonly isLost: boolean;
  readonly isReleased: boolean;
  /** For how long others leave the lock alone without a further renewal. Infinity for locks in files. */
  readonly goodFor: number;
  /** Aborts when the hold is lost, with a LostError as its reason. */
  readonly signal: AbortSignal;
  /** Aborts when another caller asks for the lock (SupersededError), or when the hold is lost. */
  readonly stopSignal: AbortSignal;
  readonly stopRequestedBy: string | null;
  /** The variables of a child that works under the hold, added to those of this program. */
  env(others?: Record<string, string | undefined>): Record<string, string | undefined>;
  /** Rejects with a LostError if the hold does not stand any more. */
  verify(): Promise<void>;
  /** Rejects with a LostError if the hold was lost and nobody has heard of it. */
  release(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
  on<E extends keyof LockEvents>(event: E, listener: (...told: LockEvents[E]) => void): this;
  once<E extends keyof LockEvents>(event: E, listener: (...told: LockEvents[E]) => void): this;
  off<E extends keyof LockEvents>(event: E, listener: (...told: LockEvents[E]) => void): this;
}

/** A hold of `lockSync`. It is in a folder, and counts while this program lives. */
export class HoldSync implements Disposable {
  private constructor();
  readonly name: string;
  readonly token: number;
  readonly slot: number | null;
  readonly member: string | null;
  readonly requestId: string;
  /** Throws a LostError if the hold does not stand any more. */
  verify(): void;
  release(): void;
  [Symbol.dispose](): void;
}

/** Takes a lock. */
export function lock(name: string, options?: LockOptions & Mode): Promise<Hold>;
/** Takes the lock of a group. */
export function lock(options: LockOptions & { group: string }): Promise<Hold>;

/** Takes all locks or none. */
export function locks(wanted: Iterable<string | Wanted>, options?: LockOptions): Promise<Hold>;

/**
 * Does `body` under a lock, or under several, and gives them back. If `body` itself asks for a lock that it is under,
 * it is refused with an AlreadyHeldError.
 */
export function withLock<T>(name: string | ReadonlyArray<string | Wanted>, body: (hold: Hold) => T | Promise<T>): Promise<T>;
export function withLock<T>(
  name: string | ReadonlyArray<string | Wanted>,
  options: (LockOptions & Mode) | undefined,
  body: (hold: Hold) => T | Promise<T>,
): Promise<T>;
export function withLock<T>(options: LockOptions & { group: string }, body: (hold: Hold) => T | Promise<T>): Promise<T>;

/** Takes a lock in a folder while the whole program stands still. */
export function lockSync(
  name: string,
  options?: Pick<LockOptions, 'wait' | 'why' | 'dir' | 'store' | 'requestId'> & Mode,
): HoldSync;

/** Says how a lock stands. */
export function check(name: string, options?: Place & Mode): Promise<Facts>;
export function check(options: Place & Mode & { group: string }): Promise<Facts>;

/** Says how all locks stand that are held or waited for, or with `all` that were ever used. */
export function list(options?: Place & { all?: boolean }): Promise<Facts[]>;

export interface CancelOptions extends Place {
  /** The one run that is meant. */
  requestId?: string;
  /** The reason; the holder sees it. */
  why?: string;
}

export interface Asked {
  requestId: string;
  pid: number | null;
  token: number | null;
  [fact: string]: unknown;
}

/** Asks the holders of a lock to stop, and says whom it has asked. */
export function cancel(name: string, options?: CancelOptions): Promise<Asked[]>;
export function cancel(options: CancelOptions & { group: string }): Promise<Asked[]>;

/** Waits until a lock is free, without taking it. Rejects with a HeldError if it is not in time. */
export function wait(
  name: string,
  options?: Place & Mode & Pick<LockOptions, 'wait' | 'signal'>,
): Promise<{ name: string; standing: string; waitedMs: number }>;
export function wait(
  options: Place & Mode & Pick<LockOptions, 'wait' | 'signal'> & { group: string },
): Promise<{ name: string; standing: string; waitedMs: number }>;

/** Any failure. `code` is a stable word: docs/answers.md lists them. */
export class TenureError extends Error {
  constructor(code: string, message: string, facts?: Record<string, unknown>);
  readonly code: string;
  readonly retryable: boolean;
  /** In how many milliseconds a retry is likely to succeed. */
  readonly retryAfter: number | null;
  readonly context: Record<string, any>;
}

/** The lock was not free in time. The message names the lock and who has it. */
export class HeldError extends TenureError {
  readonly lock: string | null;
  readonly holder: Holder | null;
  readonly queue: Waiter[];
}

/** The lock cannot be relied on any more. */
export class LostError extends TenureError {}

/** A newer run of the group, or an operator, asks for the lock. */
export class SupersededError extends TenureError {
  readonly by: string | null;
}

/** The caller itself, or a run around this program, has the lock. */
export class AlreadyHeldError extends TenureError {}

/** The place of the locks cannot be used. */
export class StoreError extends TenureError {}

/** `tenure serve` cannot be used. */
export class ServeError extends TenureError {}
