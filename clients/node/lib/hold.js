'use strict';
// A hold of this program: what it was granted, whether it is lost, and how it is given back.
//
// A serve keeps it, and another one adopts it once that one is dead. `client.js` says when.

const { EventEmitter } = require('node:events');
const { performance } = require('node:perf_hooks');
const { client, Dead, PATIENCE } = require('./client.js');
const { LostError, SupersededError } = require('./errors.js');

class Hold extends EventEmitter {
  /** @type {import('./serve.js').Serve | null} */
  #serve = null;
  /** The number that its serve has given it. */
  #number = 0;
  #whose;
  #wanted;
  /** @type {LostError | null} */
  #lost = null;
  #isHeard = false;
  #isReleasing = false;
  /** Nobody knows of it any more: it is given back as soon as it is adopted. */
  #isUnwanted = false;
  #isOver = false;
  /** @type {Promise<void> | null} */
  #release = null;
  /** @type {AbortController | null} */
  #loss = null;
  /** @type {AbortController | null} */
  #stop = null;
  /** @type {string | null} */
  #stopRequestedBy = null;
  #goodUntil = Infinity;
  /** @type {NodeJS.Timeout | undefined} */
  #lapse;
  #env = {};
  /** @type {{ name: string, token: number, slot: number | null, member: string | null, group: boolean }[]} */
  locks = [];

  /**
   * @param {{ dir?: string, store?: string, request_id: string, caller: string }} whose
   * @param {{ name: string, group?: boolean }[]} wanted by which it is adopted before it is known
   */
  constructor(whose, wanted) {
    super();
    this.#whose = whose;
    this.#wanted = wanted;
    // What has happened before there was a listener is told all the same.
    this.on('newListener', (event, listener) => {
      if (event === 'lost' && this.#lost) {
        this.#isHeard = true;
        process.nextTick(listener, this.#lost);
      }
      if (event === 'stop' && this.#stopRequestedBy !== null) process.nextTick(listener, this.#stopRequestedBy);
    });
  }

  get requestId() {
    return this.#whose.request_id;
  }

  get caller() {
    return this.#whose.caller;
  }

  /** The name of the first lock. */
  get name() {
    return this.#wanted[0].name;
  }

  get token() {
    return this.locks[0].token;
  }

  get slot() {
    return this.locks[0].slot;
  }

  get member() {
    return this.locks[0].member;
  }

  get isLost() {
    return this.#lost !== null;
  }

  get isReleased() {
    return this.#isOver;
  }

  /** Whether a serve looks after it. */
  get isKept() {
    return this.#serve !== null && !this.#serve.isDead;
  }

  /** For how many milliseconds others leave the lock alone, if no further renewal succeeds. */
  get goodFor() {
    return this.#lost || this.#isOver ? 0 : Math.max(0, this.#goodUntil - performance.now());
  }

  /** Aborts when the hold is lost; its reason is a LostError. */
  get signal() {
    this.#isHeard = true;
    this.#loss ??= new AbortController();
    if (this.#lost) this.#loss.abort(this.#lost);
    return this.#loss.signal;
  }

  /** Aborts when another caller asks for the lock, or when the hold is lost. */
  get stopSignal() {
    this.#isHeard = true;
    this.#stop ??= new AbortController();
    if (this.#lost) this.#stop.abort(this.#lost);
    if (this.#stopRequestedBy) this.#stop.abort(this.#superseded());
    return this.#stop.signal;
  }

  /** The id of the request that asks for the lock; null if none does. */
  get stopRequestedBy() {
    return this.#stopRequestedBy;
  }

  /** The variables for a child that works under the hold, added to others. */
  env(others = process.env) {
    const [{ name, token, slot }] = this.locks;
    const own = { TENURE_NAME: name, TENURE_TOKEN: String(token), TENURE_REQUEST_ID: this.requestId };
    return { ...others, ...own, ...(slot === null ? {} : { TENURE_SLOT: String(slot) }), ...this.#env };
  }

  /** Asks whether the hold still stands. */
  async verify() {
    this.#isHeard ||= this.isLost;
    if (this.#lost) throw this.#lost;
    try {
      await client.answered(async (serve) => {
        await this.#keep(serve);
        const answer = await this.#ask('verify');
        this.#count(answer.good_for_ms);
      });
    } catch (error) {
      const gone = this.#gone(error);
      if (gone) this.lose(gone);
      this.#isHeard ||= this.isLost;
      throw gone ?? error;
    }
  }

  /** Gives all its locks back. Rejects if the hold was lost and nobody has heard of that. */
  release() {
    this.#release ??= this.#giveBack();
    return this.#release;
  }

  async #giveBack() {
    try {
      await client.answered(async (serve) => {
        await this.#keep(serve);
        this.#isReleasing = true;
        await this.#ask('release');
      });
    } catch (error) {
      const gone = this.#gone(error);
      if (!gone) {
        this.#leave();
        throw error;
      }
      // A serve that has died may have given it back before it could say so.
      if (!this.#isReleasing || this.isKept) this.#lose(gone);
    }
    this.#end();
    if (this.#lost && !this.#isHeard) throw this.#lost;
  }

  /** Has the next serve give it back. */
  #leave() {
    this.#isUnwanted = true;
    client.reviveLater(0);
  }

  #end() {
    this.#isOver = true;
    clearTimeout(this.#lapse);
    client.holds.delete(this);
    this.#serve?.listeners.delete(`hold ${this.#number}`);
  }

  /**
   * Asks for the locks.
   *
   * @param {import('./serve.js').Serve} serve
   * @param {Record<string, unknown>} params
   * @param {number} patience
   * @param {AbortSignal | undefined} signal
   * @param {((waiting: any) => void) | undefined} onWaiting
   * @returns {Promise<void>}
   */
  acquire(serve, params, patience, signal, onWaiting) {
    return new Promise((resolve, reject) => {
      const id = serve.call('acquire', { ...this.#whose, ...params }, patience, (error, result) => {
        signal?.removeEventListener('abort', abandon);
        if (onWaiting) serve.listeners.delete(`wait ${id}`);
        if (error) return reject(error);
        this.#granted(serve, result);
        resolve();
      });
      // The grant and this word may cross. Whatever comes first, the answer to the request says who has the lock.
      const abandon = () => serve.call('abandon', { id }, PATIENCE, () => {});
      signal?.addEventListener('abort', abandon, { once: true });
      if (onWaiting && !serve.isDead) serve.listeners.set(`wait ${id}`, (_, waiting) => onWaiting(waiting));
    });
  }

  /**
   * Has a serve take over what an earlier one kept, or granted without an answer. Rejects if this one dies, too.
   *
   * @param {import('./serve.js').Serve} serve
   * @returns {Promise<Error | null>} why it was not taken over
   */
  adopt(serve) {
    return new Promise((resolve, reject) => {
      serve.call('adopt', { ...this.#whose, locks: this.#known() }, PATIENCE, (error, result) => {
        if (error instanceof Dead) return reject(error);
        if (error instanceof LostError && this.#isUnwanted) this.#end();
        else if (error instanceof LostError && this.locks.length > 0) this.lose(error);
        if (!error && !this.#isOver) this.#granted(serve, result);
        resolve(error);
      });
    });
  }

  /** The locks by which it is adopted. */
  #known() {
    return this.locks.length > 0 ? this.locks.map(({ name, token, group }) => ({ name, token, group })) : this.#wanted;
  }

  /** Registered at once: an answer counts only while its serve is in use. */
  #granted(serve, result) {
    this.#serve = serve;
    this.#number = result.hold;
    this.locks = result.locks;
    // The variables of the project come with the grant alone.
    this.#env = { ...this.#env, ...result.env };
    client.holds.add(this);
    serve.listeners.set(`hold ${result.hold}`, (method, params) => this.#notified(method, params));
    this.#count(result.good_for_ms);
    if (this.#isUnwanted) {
      const end = (error) => error instanceof Dead || this.#end();
      serve.ask('release', { hold: result.hold }).then(end, end);
    }
  }

  /** Gives it back, without an answer, as soon as a serve can. */
  drop() {
    if (this.isKept) {
      this.release().catch(() => {});
    } else {
      client.holds.add(this);
      this.#leave();
    }
  }

  async #keep(serve) {
    if (this.#isOver) throw new LostError('LOCK_LOST', `${this.name} was given back`);
    const failed = this.isKept ? null : await this.adopt(serve);
    if (failed) throw failed;
  }

  #ask(method) {
    // The one that keeps it, which after a change of the user is not the one for new locks.
    const serve = /** @type {import('./serve.js').Serve} */ (this.#serve);
    return serve.ask(method, { hold: this.#number });
  }

  #notified(method, params) {
    if (method === 'lost') this.lose(new LostError('LOCK_LOST', `${this.name} was lost: ${params.reason}`));
    if (method === 'renewed') this.#count(params.good_for_ms);
    if (method === 'stop_requested' && this.#stopRequestedBy === null) {
      this.#stopRequestedBy = params.by;
      this.#stop?.abort(this.#superseded());
      this.#tell('stop', params.by);
    }
  }

  #superseded() {
    const facts = { context: { name: this.name, superseded_by: this.#stopRequestedBy } };
    return new SupersededError('SUPERSEDED', `request ${this.#stopRequestedBy} asks for ${this.name}`, facts);
  }

  /** Counts on the clock of this program how long the hold is good: serve may be stopped. */
  #count(goodForMs) {
    clearTimeout(this.#lapse);
    if (goodForMs === null) return;
    this.#goodUntil = performance.now() + goodForMs;
    // Behind a blocked event loop, what serve has said meanwhile is read first.
    const lapse = () => setImmediate(() => this.goodFor === 0 && this.lose(silence(this.name)));
    this.#lapse = setTimeout(lapse, Math.min(goodForMs, 2 ** 31 - 1)).unref();
  }

  /** @param {LostError} error */
  lose(error) {
    // What a release has done is told by its own answer.
    if (!this.#isReleasing) this.#lose(error);
  }

  #lose(error) {
    if (this.#lost || this.#isOver) return;
    this.#lost = error;
    this.#isHeard ||= this.listenerCount('lost') > 0;
    this.#loss?.abort(error);
    this.#stop?.abort(error);
    this.#tell('lost', error);
  }

  /** A listener that throws must not end the reading, and one that comes later is told by itself. */
  #tell(event, what) {
    for (const listener of this.listeners(event)) process.nextTick(listener, what);
  }

  /** The loss that a failed request about the hold tells of. */
  #gone(error) {
    if (error instanceof LostError) return error;
    return error.code === 'NO_SUCH_HOLD' ? new LostError('LOCK_LOST', `${this.name} was given back`) : null;
  }
}

function silence(name) {
  return new LostError('LOCK_LOST', `${name} was lost: it was not renewed in time`);
}

if (Symbol.asyncDispose) {
  Object.defineProperty(Hold.prototype, Symbol.asyncDispose, {
    value: function dispose() {
      return this.release();
    },
  });
}

module.exports = { Hold };
