'use strict';
// Each example of the guides, as it stands.

const { describe, test } = require('node:test');
const assert = require('node:assert/strict');
const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { ROOT, place } = require('./support.js');

const GUIDES = ['from-node.md', 'from-proper-lockfile.md'].map((name) => path.join(ROOT, '../../docs/guides', name));
/** TypeScript's compiler, where test.sh has it: it writes `await using` as Node 20 reads it. */
const TSC = process.env.TSC;

function examples(guide) {
  const text = fs.readFileSync(guide, 'utf8');
  return [...text.matchAll(/^```js\n([^]*?)^```$/gm)].map(([, code]) => code);
}

/** What Node can read of an example. */
function readable(code, folder) {
  fs.writeFileSync(path.join(folder, 'example.mjs'), code);
  if (!code.includes('await using')) return 'example.mjs';
  // No types are looked at here: `types.mts` is for that.
  const words = ['--allowJs', '--target', 'es2022', '--module', 'nodenext', '--outDir', 'lowered', '--noCheck', '--types', ''];
  const { status, stdout } = spawnSync(TSC, [...words, 'example.mjs'], { cwd: folder, encoding: 'utf8' });
  assert.equal(status, 0, stdout);
  return 'lowered/example.mjs';
}

describe('guides', { concurrency: 4 }, () => {
  for (const guide of GUIDES) {
    for (const [index, code] of examples(guide).entries()) {
      const isLowered = code.includes('await using');
      test(`${path.basename(guide)}, example ${index + 1}`, { skip: isLowered && !TSC && 'TSC is not set' }, (t) => {
        const { folder, env } = place(t);
        fs.mkdirSync(path.join(folder, 'node_modules'));
        fs.symlinkSync(ROOT, path.join(folder, 'node_modules', 'tenure'));
        const file = readable(code, folder);
        const { status, stdout, stderr } = spawnSync(process.execPath, [file], { cwd: folder, env, encoding: 'utf8' });
        assert.equal(status, 0, `${stdout}${stderr}`);
        assert.equal(stderr, '');
      });
    }
  }
});
