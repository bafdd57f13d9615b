'use strict';
// One `tenure serve` and the messages to it. client.js decides what becomes of holds when it dies.

const { spawn } = require('node:child_process');
const { performance } = require('node:perf_hooks');
const { binary } = require('./binary.js');
const { errorOf } = require('./errors.js');

/** Milliseconds that serve may take for what need not wait. */
const PATIENCE = 10_000;

/** By so many milliseconds a timer may be late before the event loop counts as blocked. */
const LATE = 500;

/** The longest line that serve reads. */
const LINE_MAX = 1 << 20;

/** The longest line that is read; serve answers `list` in one line. */
const ANSWER_MAX = 1 << 28;

/** No answer will come from this serve. */
class Dead extends Error {
  /**
   * @param {string} why
   * @param {boolean} isSilent whether it lives and does not answer: another one would be waited for as long
   */
  constructor(why, isSilent = false) {
    super(why);
    this.isSilent = isSilent;
  }
}

/** A timer that does not count the time in which the event loop was blocked, or the program stopped. */
class Patience {
  /**
   * @param {number} ms
   * @param {() => void} over
   */
  constructor(ms, over) {
    this.ms = ms;
    this.over = over;
    this.start();
  }

  start() {
    const due = performance.now() + this.ms;
    this.timer = setTimeout(() => {
      // What came meanwhile is read first.
      if (performance.now() > due + LATE) this.start();
      else this.over();
    }, this.ms).unref();
  }

  again() {
    clearTimeout(this.timer);
    this.start();
  }

  end() {
    clearTimeout(this.timer);
  }
}

/** @typedef {{ id: number, settle: (error: Error | null, result?: any) => void, patience: Patience }} Call */

class Serve {
  #child;
  #rest = '';
  #nextId = 1;
  /** @type {Map<number, Call>} */
  #calls = new Map();
  #death = null;

  /**
   * Who is told what serve says by itself: `hold 17` of a hold, `wait 4` of a request without an answer.
   *
   * @type {Map<string, (method: string, params: any) => void>}
   */
  listeners = new Map();

  /** @param {(serve: Serve) => void} died */
  constructor(died) {
    this.died = died;
    this.began = performance.now();
    this.user = userId();
    this.isReady = false;
    // A session of its own: Ctrl-C reaches the program, and not serve.
    const child = spawn(binary(), ['serve'], { stdio: ['pipe', 'pipe', 'ignore'], detached: true });
    this.#child = child;
    child.on('error', (error) => this.#die(`it cannot be started: ${error.message}`));
    // Without a free descriptor there are no pipes, and an error follows.
    child.stdin?.on('error', () => {}); // Its end is seen at stdout.
    child.stdout?.on('error', () => this.#die('its answers cannot be read'));
    child.stdout?.on('end', () => this.#die('it has ended'));
    child.stdout?.setEncoding('utf8').on('data', (text) => this.#read(text));
    // A program ends by itself, whatever it holds, unless it waits for an answer.
    child.unref();
    child.stdin?.unref?.();
    child.stdout?.unref?.();
  }

  get isDead() {
    return this.#death !== null;
  }

  /**
   * Asks. `settle` is called as soon as the answer is read, before anything that came later.
   *
   * @param {string} method
   * @param {Record<string, unknown>} params
   * @param {number} patience milliseconds, from now or from the last word on this request
   * @param {(error: Error | null, result?: any) => void} settle
   * @returns {number} the id of the request
   */
  call(method, params, patience, settle) {
    const id = this.#nextId++;
    const line = `${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`;
    // A longer line would end serve for all who use it.
    if (line.length > LINE_MAX / 4 && Buffer.byteLength(line) > LINE_MAX) {
      throw new RangeError(`a request of ${Buffer.byteLength(line)} bytes is too long`);
    }
    if (this.#death) {
      settle(this.#death);
      return id;
    }
    const over = () => this.kill('it does not answer', true);
    const call = { id, settle, patience: new Patience(patience, over) };
    if (this.#calls.size === 0) this.#child.stdout?.ref?.();
    this.#calls.set(id, call);
    this.#child.stdin?.write(line);
    return id;
  }

  /**
   * Asks, as a promise.
   *
   * @param {string} method
   * @param {Record<string, unknown>} params
   * @returns {Promise<any>}
   */
  ask(method, params, patience = PATIENCE) {
    return new Promise((resolve, reject) => {
      this.call(method, params, patience, (error, result) => (error ? reject(error) : resolve(result)));
    });
  }

  /** Ends it, and keeps the holds: to close its stdin while it lives would give them back. */
  kill(why, isSilent = false) {
    this.#child.kill('SIGKILL');
    this.#die(why, isSilent);
  }

  #read(text) {
    if (this.#death) return;
    const lines = (this.#rest + text).split('\n');
    this.#rest = lines.pop() ?? '';
    if (this.#rest.length > ANSWER_MAX) return this.kill('its answer has no end');
    for (const line of lines) {
      try {
        this.#take(JSON.parse(line));
      } catch (error) {
        if (!(error instanceof NoMessage || error instanceof SyntaxError)) throw error;
        return this.kill(`it says what is no message: ${line.slice(0, 80)}`);
      }
      if (this.#death) return;
    }
  }

  #take(message) {
    if (message === null || typeof message !== 'object' || Array.isArray(message)) throw new NoMessage();
    if (typeof message.method === 'string') {
      if (message.params === null || typeof message.params !== 'object') throw new NoMessage();
      const about = message.method === 'waiting' ? `wait ${message.params.id}` : `hold ${message.params.hold}`;
      // Serve lives: it says how a wait stands at least every 10 seconds.
      if (message.method === 'waiting') this.#calls.get(message.params.id)?.patience.again();
      return this.listeners.get(about)?.(message.method, message.params);
    }
    const call = this.#calls.get(message.id);
    const facts = message.error?.data;
    const isAnswer = message.result !== null && typeof message.result === 'object';
    if (!isAnswer && typeof facts?.code !== 'string') throw new NoMessage();
    if (!call) return; // Nobody waits for it any more.
    this.#settle(call, isAnswer ? null : errorOf(facts, message.error.message), message.result);
  }

  #settle(call, error, result) {
    call.patience.end();
    this.#calls.delete(call.id);
    if (this.#calls.size === 0) this.#child.stdout?.unref?.();
    call.settle(error, result);
  }

  #die(why, isSilent = false) {
    if (this.#death) return;
    this.#death = new Dead(why, isSilent);
    this.#child.kill('SIGKILL');
    this.#child.stdin?.destroy();
    this.#child.stdout?.destroy();
    for (const call of [...this.#calls.values()]) this.#settle(call, this.#death);
    this.died(this);
  }
}

class NoMessage extends Error {}

/** After a change of the user id, another serve is started: this one acts for the old user. */
function userId() {
  return process.geteuid?.() ?? 0;
}

module.exports = { Serve, Dead, PATIENCE, userId };
