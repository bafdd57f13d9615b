'use strict';
// What the runner of GitHub gives an action, and takes from it: inputs, outputs, state, summary, commands.

const { appendFileSync } = require('node:fs');
const { randomUUID } = require('node:crypto');
const { spawn } = require('node:child_process');
const { constants } = require('node:os');

const SIGNALS = ['SIGINT', 'SIGTERM'];

/** An input. Blanks around it do not count, as in GitHub's own toolkit. */
function input(name) {
  return (process.env[`INPUT_${name.replaceAll(' ', '_').toUpperCase()}`] ?? '').trim();
}

/** Writes a value where the runner looks for it, in a form that no value can leave. */
function put(file, name, value) {
  const end = `end_${randomUUID()}`;
  if (process.env[file]) appendFileSync(process.env[file], `${name}<<${end}\n${value}\n${end}\n`);
}

const output = (name, value) => put('GITHUB_OUTPUT', name, value);
const keep = (name, value) => put('GITHUB_STATE', name, value);
const kept = (name) => process.env[`STATE_${name}`] ?? '';

/** A line of the job's summary. Text of others stands in it as text: nothing of it is markup. */
function summary(...parts) {
  if (process.env.GITHUB_STEP_SUMMARY) appendFileSync(process.env.GITHUB_STEP_SUMMARY, `${parts.join('')}\n\n`);
}

/** Text as Markdown and HTML show it. */
function shown(text) {
  const line = String(text).replace(/\s+/g, ' ').slice(0, 200);
  return line.replace(/[&<>"'`*_~|[\]\\#!@:()]/g, (sign) => `&#${sign.codePointAt(0)};`);
}

function command(kind, text) {
  const data = text.replaceAll('%', '%25').replaceAll('\r', '%0D').replaceAll('\n', '%0A');
  process.stdout.write(`::${kind} title=tenure::${data}\n`);
}

/** Fails the step with a sentence. */
function fail(text, code = 1) {
  command('error', text);
  process.exit(code);
}

/**
 * A call of tenure: its document, and its exit code. What it says to people goes to the log.
 *
 * A cancelled job signals this process alone. The call gets the signal too, so no wait for a lock outlives its job.
 */
async function tenure(verb, ...words) {
  const child = spawn('tenure', [verb, '--output=json', ...words], { stdio: ['ignore', 'pipe', 'inherit'] });
  const pass = (signal) => child.kill(signal);
  for (const signal of SIGNALS) process.on(signal, pass);
  let said = '';
  child.stdout.setEncoding('utf8').on('data', (text) => {
    said += text;
  });
  const code = await new Promise((resolve) => {
    child.on('error', (error) => {
      const isMissing = error.code === 'ENOENT';
      const why = isMissing
        ? 'There is no tenure on the PATH of this runner: install it in a step before (actions/install).'
        : `tenure could not be started: ${error.message}`;
      fail(why, isMissing ? 127 : 126);
    });
    child.on('close', (status, signal) => resolve(status ?? 128 + constants.signals[signal]));
  });
  for (const signal of SIGNALS) process.off(signal, pass);
  let document = {};
  try {
    document = JSON.parse(said);
  } catch {
    // A call that was killed has no document; its exit code says enough.
  }
  return { code, document };
}

/** A span of milliseconds, for people. */
function span(ms) {
  const seconds = Math.round(ms / 1000);
  if (ms < 1000) return `${ms} ms`;
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes} min ${seconds % 60} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

module.exports = { command, fail, input, keep, kept, output, shown, span, summary, tenure };
