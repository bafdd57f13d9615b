'use strict';
// A serve that is of no use, or does what a real one does seldom. It writes down what it hears.
//
//     node fake-serve.js SCRIPT FOLDER

const { appendFileSync, existsSync, writeFileSync } = require('node:fs');
const { createInterface } = require('node:readline');

const [script, folder] = process.argv.slice(2);
const mark = `${folder}/has-run`;
const isFirst = !existsSync(mark);
writeFileSync(mark, '');

const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
const tell = (method, params) => send({ method, params });
const greet = ({ id }) => send({ id, result: { protocol: 1, version: '0', pid: process.pid, parent: { pid: 1, command: '' } } });
const grant = ({ id, params }, goodForMs = null, env = {}) => {
  const locks = params.locks.map(({ name }) => ({ name, token: 7, slot: null, member: null, group: false }));
  const result = { hold: 1, request_id: params.request_id, locks, good_for_ms: goodForMs, env: { TENURE_HELD: `7=${process.pid}`, ...env } };
  send({ id, result });
};
const refuse = ({ id }, code, message, context) =>
  send({ id, error: { code: -32000, message, data: { code, message, retryable: false, context } } });
const say = (text) => () => process.stdout.write(text);
const end = () => process.exit(0);

const isGone = (request) => refuse(request, 'LOCK_LOST', 'deploy is not held under that request id and token any more');

/** What a serve does that plays along. */
const USUAL = {
  hello: greet,
  acquire: (request) => grant(request),
  adopt: (request) => grant(request),
  verify: ({ id }) => send({ id, result: { hold: 1, good_for_ms: null } }),
  release: ({ id }) => send({ id, result: { released: true } }),
  abandon: ({ id }) => send({ id, result: { abandoned: false } }),
};

const SCRIPTS = {
  'other-protocol': {
    hello: (request) => refuse(request, 'PROTOCOL_UNKNOWN', 'the client speaks protocol 1, and tenure 9.9.9 speaks protocol 2'),
  },
  garbage: { hello: say('hello\n') },
  'not-an-object': { hello: say('[1]\n') },
  'no-answer': { hello: say('{"jsonrpc":"2.0","id":1}\n') },
  'half-a-line': { hello: (_) => process.stdout.write('{"jsonrpc":"2.0",', end) },
  ends: { hello: end },
  silence: { hello: () => {} },
  // The grant is made, and nobody hears of it.
  'dies-granting': { acquire: isFirst ? end : grant },
  'dies-waiting': {
    acquire: isFirst ? end : grant,
    adopt: isGone,
  },
  'dies-releasing': {
    release: isFirst ? end : undefined,
    adopt: isGone,
  },
  'dies-always': { acquire: end, adopt: isGone },
  // Its death is noticed, and no other one can adopt.
  'dies-for-good': { acquire: (request) => [grant(request), setTimeout(end, 50)], hello: isFirst ? greet : end },
  // The variables of the project come with the grant alone.
  'has-variables': { acquire: (request) => [grant(request, null, { GPU: '3' }), setTimeout(end, 50)] },
  loses: { acquire: (request) => [grant(request), tell('lost', { hold: 1, reason: 'gone' })], release: isGone },
  'is-asked': { acquire: (request) => [grant(request), tell('stop_requested', { hold: 1, by: 'run-8' })] },
  supersedes: {
    acquire: (request) => refuse(request, 'SUPERSEDED', 'a newer run', { name: 'deploy', superseded_by: 'run-8' }),
  },
  'no-store': { acquire: (request) => refuse(request, 'STORE_UNAVAILABLE', 'the folder cannot be read') },
  'a-lease': {
    acquire: (request) => [grant(request, 20_000), setTimeout(() => tell('renewed', { hold: 1, good_for_ms: 600 }), 200)],
  },
  unknown: { acquire: (request) => [tell('news', { hold: 1, of: 'later versions' }), send({ id: 99, result: {} }), grant(request)] },
  'in-pieces': {
    acquire: (request) => {
      const text = JSON.stringify({ jsonrpc: '2.0', id: request.id, error: { code: -32000, message: 'größer', data: { code: 'LOCK_HELD', message: 'x', retryable: true } } });
      const bytes = Buffer.from(`${text}\n`);
      const next = (at) => at < bytes.length && process.stdout.write(bytes.subarray(at, at + 1), () => setImmediate(next, at + 1));
      next(0);
    },
  },
};

const acts = { ...USUAL, ...SCRIPTS[script] };
createInterface({ input: process.stdin }).on('line', (line) => {
  appendFileSync(`${folder}/heard`, `${line}\n`);
  const request = JSON.parse(line);
  (acts[request.method] ?? USUAL[request.method])(request);
});
