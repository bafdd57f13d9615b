'use strict';
// Takes the lock, and tells the rest of the job.

const { fail, input, keep, output, shown, span, summary, tenure } = require('./runner.js');

const name = input('name');
if (process.env.RUNNER_OS === 'Windows') fail('This action runs on Linux and macOS.', 2);
if (!name) fail('The input name is empty: it is the name of the lock.', 2);
if (input('store') && input('dir')) fail('The inputs store and dir name two places; give one.', 2);
const isShared = input('shared');
if (!['true', 'false', ''].includes(isShared)) fail('The input shared is true or false.', 2);

// Every value follows a `=`, so none is read as a flag.
const place = ['store', 'dir'].filter(input).map((word) => `--${word}=${input(word)}`);

async function main() {
  // Each job on a GitHub-hosted runner has a machine of its own. A lock in a folder there keeps no other job out.
  const before = await tenure('check', ...place, '--', name);
  const looked = before.document.data ?? before.document.error?.context ?? {};
  if (process.env.RUNNER_ENVIRONMENT === 'github-hosted') {
    // Only a call that came as far as the lock says where it is.
    const where = looked.lock_file;
    if (where === undefined) fail(`${name}: ${before.document.error?.message ?? 'tenure check gave no answer'}`, before.code);
    if (!/^etcds?:\/\//.test(where)) {
      fail(
        'GitHub-hosted runners share no folder, so a lock there keeps no other job out. ' +
          'Give a store (etcds://HOST:PORT/PREFIX), or use the concurrency of the workflow.',
        2,
      );
    }
  }

  const flags = ['wait', 'slots', 'why'].filter(input).map((word) => `--${word}=${input(word)}`);
  if (isShared === 'true') flags.push('--shared');
  const began = Date.now();
  const taken = await tenure('acquire', ...place, ...flags, '--owner=job', '--', name);
  const waited = Date.now() - began;
  const { holder } = looked;
  const behind = holder
    ? `, behind ${shown(holder.actor ?? 'somebody')} (PID ${shown(holder.pid ?? 'unknown')}: ${shown(holder.why ?? '')})`
    : '';

  if (taken.code !== 0) {
    summary(`🔒 **${shown(name)}** was not taken: waited ${span(waited)}${behind}.`);
    const said = taken.document.error?.message ?? `tenure acquire ended with ${taken.code}`;
    fail(`${name}: ${said}`, taken.code);
  }
  const { request_id: id, token, slot, already_held: isAlready } = taken.document.data;
  output('token', token);
  output('request-id', id);
  output('slot', slot ?? '');
  // A hold that this job had before is the affair of the step that took it.
  keep('id', isAlready ? '' : id);
  keep('name', name);
  keep('place', JSON.stringify(place));
  keep('since', Date.now());
  summary(`🔒 **${shown(name)}** was taken with token ${shown(token)} after ${span(waited)}${waited < 1000 ? '' : behind}.`);
}

main();
