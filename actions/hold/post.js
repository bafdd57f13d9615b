'use strict';
// Gives the lock back at the end of the job, and says whether the job had it for all that time.

const { fail, kept, shown, span, summary, tenure } = require('./runner.js');

async function main() {
  const id = kept('id');
  if (!id) return;
  const name = kept('name');
  const { code, document } = await tenure('release', ...JSON.parse(kept('place')), `--request-id=${id}`, '--', name);
  const held = document.data?.held_ms ?? Date.now() - Number(kept('since'));
  // Without a time of its own the answer says that the hold was gone: nobody knows since when.
  const isLost = code !== 0 || document.data?.held_ms == null;
  if (isLost) {
    const said = document.error?.message ?? document.warnings?.join(' ') ?? `tenure release ended with ${code}`;
    summary(`⚠️ **${shown(name)}** was lost before the job ended: ${shown(said)}.`);
    fail(`${name} was lost before the job ended, so a part of this job may have worked beside another: ${said}`, code || 80);
  }
  summary(`🔓 **${shown(name)}** was given back after ${span(held)}.`);
}

main();
