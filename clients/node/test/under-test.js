'use strict';
// Puts the client under the check of examples/serve/conformance.py: a command a line, and a line for each answer.

const { createInterface } = require('node:readline');
const { lock, HeldError, LostError, TenureError } = require('..');

const holds = [];

const COMMANDS = {
  lock: async (name, wait) => {
    const hold = await lock(name, { wait: wait === 'forever' ? Infinity : Number(wait) });
    holds.push(hold);
    return `held ${hold.token}`;
  },
  unlock: async () => {
    await holds.pop().release();
    return 'released';
  },
  verify: async () => {
    await holds.at(-1).verify();
    return 'ok';
  },
  fork: async () => 'unsupported',
};

function said(error) {
  if (error instanceof HeldError) return `refused ${error.code} ${error.holder.pid}`;
  if (error instanceof LostError) return 'lost';
  if (error instanceof TenureError) return `error ${error.code}`;
  return `error ${error.name}`;
}

async function main() {
  for await (const line of createInterface({ input: process.stdin })) {
    const [command, ...words] = line.split(' ');
    console.log(await COMMANDS[command](...words).catch(said));
  }
}

main();
