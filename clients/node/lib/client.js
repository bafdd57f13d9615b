'use strict';
// The one client of this thread: which serve it uses, and what becomes of holds and requests when that one dies.
//
// The program holds, and not serve. So a serve that has died frees nothing: the next one adopts the holds, and a
// request that it has not answered is asked again.

const { performance } = require('node:perf_hooks');
const { version } = require('../package.json');
const { Serve, Dead, PATIENCE, userId } = require('./serve.js');
const { LostError, ServeError, TenureError } = require('./errors.js');

const PROTOCOL = 1;

/** How many serves one call may use up, and as many more in each second that it waits: it may be what ends them. */
const TRIES = 5;

/** How many serves may be silent: each of them is waited for. */
const SILENT_TRIES = 2;

/** Milliseconds after which a serve that has died young is followed by another, and after which an adoption is tried again. */
const PAUSE = 1_000;

/** @typedef {import('./hold.js').Hold} Hold */

class Client {
  /** @type {Serve | null} */
  #serve = null;
  /** @type {Promise<Serve> | null} */
  #starting = null;
  /** @type {Set<Hold>} */
  holds = new Set();
  /** @type {NodeJS.Timeout | null} */
  #revival = null;
  #lastCaller = 0;

  /** A name of a task that no other task gets. */
  newCaller() {
    this.#lastCaller += 1;
    return String(this.#lastCaller);
  }

  /**
   * Does `work` with a serve; again with the next one, if that one dies before it has answered.
   *
   * @template T
   * @param {(serve: Serve) => Promise<T>} work
   * @param {number} waits for how many milliseconds it may wait
   * @returns {Promise<T>}
   */
  async answered(work, waits = 0) {
    const began = performance.now();
    for (let deaths = 1; ; deaths += 1) {
      const serve = this.#ready() ?? (await this.#start());
      try {
        return await work(serve);
      } catch (error) {
        if (!(error instanceof Dead)) throw error;
        const waited = Math.min(performance.now() - began, waits) / 1_000;
        if (deaths >= (error.isSilent ? SILENT_TRIES : TRIES + TRIES * waited)) throw noServe(error);
      }
    }
  }

  /** The serve that can be used now, if there is one. */
  #ready() {
    const serve = this.#serve;
    return serve?.isReady && !serve.isDead && serve.user === userId() ? serve : null;
  }

  #start() {
    this.#starting ??= this.#begin().finally(() => {
      this.#starting = null;
    });
    return this.#starting;
  }

  /** @returns {Promise<Serve>} */
  async #begin() {
    for (let deaths = 1; ; deaths += 1) {
      const serve = new Serve((dead) => this.#died(dead));
      this.#serve = serve;
      try {
        await serve.ask('hello', { protocol: PROTOCOL, client: `node ${version}`, pid: process.pid });
        await this.#adoptAll(serve);
        serve.isReady = true;
        return serve;
      } catch (error) {
        serve.kill('it cannot be used');
        if (error instanceof TenureError) throw error;
        if (!(error instanceof Dead) || error.isSilent || deaths >= TRIES) throw noServe(error);
      }
    }
  }

  /** Has its holds adopted by the next serve. */
  #died(serve) {
    const isYoung = performance.now() - serve.began < PAUSE;
    if (this.#left().length > 0) this.reviveLater(isYoung ? PAUSE : 0);
  }

  #revive() {
    const adopted = this.answered((serve) => this.#adoptAll(serve));
    adopted.catch((error) => {
      // Their locks stay closed until the program ends; but nothing tells it of a loss any more.
      for (const hold of this.#left()) hold.lose(new LostError('LOCK_LOST', error.message));
    });
    const again = () => {
      if (this.#left().length > 0) this.reviveLater(PAUSE);
    };
    adopted.then(again, again);
  }

  /** Tries to adopt what no serve keeps. */
  reviveLater(ms) {
    this.#revival ??= setTimeout(() => {
      this.#revival = null;
      this.#revive();
    }, ms).unref();
  }

  #adoptAll(serve) {
    return Promise.all(this.#left().map((hold) => hold.adopt(serve)));
  }

  #left() {
    return [...this.holds].filter((hold) => !hold.isKept);
  }
}

function noServe(error) {
  return new ServeError('NO_SERVE', `tenure serve cannot be used: ${error.message}`);
}

module.exports = { client: new Client(), Dead, PATIENCE };
