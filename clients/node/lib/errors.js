'use strict';
// The errors of this package, and which of them an answer of tenure becomes.

/** Any failure that tenure has answered, or that keeps tenure from answering. `code` is a stable word. */
class TenureError extends Error {
  /**
   * @param {string} code
   * @param {string} message
   * @param {Record<string, any>} [facts] what the answer says beyond that, in its own words
   */
  constructor(code, message, facts = {}) {
    super(message);
    this.name = new.target.name;
    this.code = code;
    this.retryable = facts.retryable === true;
    /** In how many milliseconds a retry is likely to succeed. */
    this.retryAfter = facts.retry_after_ms ?? null;
    this.context = camel(facts.context ?? {});
  }
}

/** The lock was not free in time. */
class HeldError extends TenureError {
  /** The name of the lock. */
  get lock() {
    return this.context.name ?? null;
  }

  /** Who has it, since when and why. */
  get holder() {
    return this.context.holder ?? null;
  }

  /** Who waits for it, in order. */
  get queue() {
    return this.context.queue ?? [];
  }
}

/** The lock cannot be relied on any more. */
class LostError extends TenureError {}

/** A newer run of the group, or an operator, asks for the lock; `by` is the id of that request. */
class SupersededError extends TenureError {
  get by() {
    return this.context.supersededBy ?? null;
  }
}

/** The caller itself, or a run around the program, has the lock: the wait would never end. */
class AlreadyHeldError extends TenureError {}

/** The place of the locks cannot be used, so nobody knows who holds. */
class StoreError extends TenureError {}

/** No `tenure serve` can be used: it is not installed, ends, does not answer or speaks another protocol. */
class ServeError extends TenureError {}

const CLASSES = {
  LOCK_HELD: HeldError,
  LOCK_LOST: LostError,
  SUPERSEDED: SupersededError,
  ALREADY_HELD: AlreadyHeldError,
  DEADLOCK: AlreadyHeldError,
  PERMISSION_DENIED: StoreError,
  UNSAFE_PLACE: StoreError,
  FILE_SYSTEM_UNSUITABLE: StoreError,
  AUDIT_UNAVAILABLE: StoreError,
  GUARD_UNAVAILABLE: StoreError,
  GUARD_UNREADABLE: StoreError,
  LOCK_UNREADABLE: StoreError,
  NO_SERVE: ServeError,
  NO_PARENT: ServeError,
  NOT_THE_PARENT: ServeError,
  PROTOCOL_UNKNOWN: ServeError,
};

/**
 * The error that an answer of tenure becomes. `message` names the lock and the person, where there is one.
 *
 * @param {Record<string, any>} facts the `error` of an answer
 * @param {string} [message]
 */
function errorOf(facts, message = facts.message) {
  const Class = CLASSES[facts.code] ?? (facts.code.startsWith('STORE_') ? StoreError : TenureError);
  return new Class(facts.code, message, facts);
}

/**
 * The names of an answer as JavaScript spells them: `age_ms` is `ageMs`.
 *
 * @returns {any}
 */
function camel(value) {
  if (Array.isArray(value)) return value.map(camel);
  if (value === null || typeof value !== 'object') return value;
  const spelled = (name) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [spelled(name), camel(inner)]));
}

module.exports = {
  TenureError,
  HeldError,
  LostError,
  SupersededError,
  AlreadyHeldError,
  StoreError,
  ServeError,
  errorOf,
  camel,
};
