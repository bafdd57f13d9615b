'use strict';
// What is packed, how the program is found, and that both ways to load the package share one client.

const { describe, test } = require('node:test');
const assert = require('node:assert/strict');
const { execFileSync, spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { ROOT, TENURE, place, tenure } = require('./support.js');

const manifest = require('../package.json');
const PLATFORM = `@tenure/${process.platform}-${process.arch}`;

/** A project that has the package as npm installs it, and a program for this platform if `withProgram`. */
function project(t, withProgram) {
  const { env, folder } = place(t);
  const modules = path.join(folder, 'node_modules');
  fs.mkdirSync(path.join(modules, 'tenure'), { recursive: true });
  for (const name of [...manifest.files, 'package.json']) {
    fs.cpSync(path.join(ROOT, name), path.join(modules, 'tenure', name), { recursive: true });
  }
  if (withProgram) {
    const own = path.join(modules, PLATFORM);
    fs.mkdirSync(path.join(own, 'bin'), { recursive: true });
    fs.writeFileSync(path.join(own, 'package.json'), JSON.stringify({ name: PLATFORM, version: manifest.version }));
    fs.symlinkSync(TENURE, path.join(own, 'bin', 'tenure'));
  }
  fs.mkdirSync(path.join(modules, '.bin'));
  fs.symlinkSync('../tenure/bin/tenure.js', path.join(modules, '.bin', 'tenure'));
  // As npx and the scripts of npm have it: our own command comes first.
  const { TENURE_BIN, ...rest } = env;
  return { folder, env: { ...rest, PATH: `${modules}/.bin:/usr/bin:/bin` } };
}

function node(folder, env, code, flags = []) {
  return spawnSync(process.execPath, [...flags, '-e', code], { cwd: folder, env, encoding: 'utf8' });
}

const USES = `(async () => {
  const hold = await require('tenure').lock('deploy');
  const same = (await import('tenure')).lock === require('tenure').lock;
  const compat = (await import('tenure/compat/proper-lockfile')).default === require('tenure/compat/proper-lockfile');
  await hold.release();
  console.log(JSON.stringify({ same, compat }));
})().catch((error) => { console.error(error.code + ' ' + error.message); process.exitCode = 1; })`;

describe('the package', { concurrency: 4 }, () => {
  test('the program comes from the package of the platform, and import and require share one client', (t) => {
    const { folder, env } = project(t, true);
    const { stdout, stderr } = node(folder, env, USES);
    assert.deepEqual(JSON.parse(stdout), { same: true, compat: true }, stderr);
  });

  test('without that package and without a program on the PATH, one sentence names the fix', (t) => {
    const { folder, env } = project(t, false);
    const { status, stderr } = node(folder, env, USES);
    assert.equal(status, 1);
    assert.equal(stderr.trim().split('\n').length, 1, stderr);
    assert.match(stderr, /^NO_BINARY .*npm has left out the optional package @tenure\/.*npm install --include=optional/);
  });

  test('a program on the PATH is used, and TENURE_BIN comes first', (t) => {
    const { folder, env } = project(t, false);
    fs.mkdirSync(path.join(folder, 'bin'));
    fs.symlinkSync(TENURE, path.join(folder, 'bin', 'tenure'));
    const onPath = { ...env, PATH: `${env.PATH}:${folder}/bin` };
    assert.equal(node(folder, onPath, USES).status, 0);
    const { stderr } = node(folder, { ...onPath, TENURE_BIN: '/nowhere/tenure' }, USES);
    assert.match(stderr, /^NO_SERVE .*cannot be started.*\/nowhere\/tenure/);
  });

  test('the command is the program: words, exit code and signal', (t) => {
    const { folder, env } = project(t, true);
    const command = path.join(folder, 'node_modules', '.bin', 'tenure');
    const call = (...words) => spawnSync(command, words, { cwd: folder, env: { ...env, PATH: process.env.PATH }, encoding: 'utf8' });
    assert.equal(call('--version').stdout, tenure(env, '--version').stdout);
    assert.equal(call('run', 'deploy', '--', 'sh', '-c', 'exit 7').status, 7);
    assert.equal(call('run', 'no name', '--', 'true').status, 2);
    const ended = spawnSync(command, ['run', 'deploy', '--', 'sleep', '30'], {
      env: { ...env, PATH: process.env.PATH },
      timeout: 1_500,
    });
    assert.ok(ended.status === 143 || ended.signal === 'SIGTERM', `${ended.status} ${ended.signal}`);
  });

  test('npm packs what the manifest names, no test, and no script runs at install', () => {
    const said = execFileSync('npm', ['pack', '--dry-run', '--json'], { cwd: ROOT, encoding: 'utf8' });
    const [packed] = JSON.parse(said);
    const names = packed.files.map((file) => file.path).sort();
    const sources = fs.readdirSync(path.join(ROOT, 'lib')).map((name) => `lib/${name}`);
    const compat = fs.readdirSync(path.join(ROOT, 'compat')).map((name) => `compat/${name}`);
    const top = ['README.md', 'index.d.mts', 'index.d.ts', 'index.js', 'index.mjs', 'package.json', 'bin/tenure.js'];
    assert.deepEqual(names, [...top, ...sources, ...compat].sort());
    assert.equal(manifest.scripts, undefined);
    assert.equal(manifest.dependencies, undefined);
    assert.ok(packed.size < 100_000, `${packed.size} bytes`);
  });

  test('the packages with the program have the version of this one, and of the program', (t) => {
    const { env } = place(t);
    for (const version of Object.values(manifest.optionalDependencies)) assert.equal(version, manifest.version);
    assert.match(tenure(env, '--version').stdout, new RegExp(`\\b${manifest.version.replaceAll('.', '\\.')}\\b`));
  });

  test('each name of the types is there, and the other way round', () => {
    const declared = fs.readFileSync(path.join(ROOT, 'index.d.ts'), 'utf8');
    const names = [...declared.matchAll(/^export (?:class|function) (\w+)/gm)].map(([, name]) => name);
    assert.deepEqual([...new Set(names)].sort(), Object.keys(require('..')).sort());
  });
});
