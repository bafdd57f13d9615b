'use strict';
// Runs the tests of proper-lockfile itself against the module that takes its place.
//
//     node originals.js TOOLS [long]
//
// TOOLS has the tests and what they need: test.sh fetches both, and nothing of them is committed. `originals.txt` says
// which tests have to pass. A test that is not listed is a failure. Parts of lock.test.js run side by side, each in a
// copy of its own, because all tests of a folder share one lock file. `long` runs their stress for a minute.

const { execFile } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { promisify } = require('node:util');

const ROOT = path.join(__dirname, '..');
const tools = path.resolve(process.argv[2]);
const length = process.argv[3];
/** The files that run together, and in how many parts side by side. */
const RUNS = [
  { files: ['lock'], parts: 3 },
  { files: ['misc'], parts: 1 },
  { files: ['check', 'release', 'sync', 'unlock'], parts: 1 },
];

/** @returns {{ passes: boolean, file: string, name: string }[]} */
function listed() {
  const lines = fs.readFileSync(path.join(__dirname, 'originals.txt'), 'utf8').split('\n');
  return lines.flatMap((line) => {
    const [, verdict, file, name] = /^(pass|no \w+) +(\w+): (.*)$/.exec(line) ?? [];
    return name === undefined ? [] : [{ passes: verdict === 'pass', file, name }];
  });
}

/** A copy of the tests around our module. */
function copy(folder) {
  fs.rmSync(folder, { recursive: true, force: true });
  fs.mkdirSync(path.join(folder, 'lib'), { recursive: true });
  fs.cpSync(path.join(tools, 'node-proper-lockfile-4.1.2', 'test'), path.join(folder, 'test'), { recursive: true });
  fs.writeFileSync(path.join(folder, 'package.json'), '{}');
  fs.writeFileSync(path.join(folder, 'index.js'), `module.exports = require('${ROOT}/compat/proper-lockfile.js');\n`);
  // By which the tests give back what they have left.
  fs.writeFileSync(path.join(folder, 'lib', 'lockfile.js'), `exports.getLocks = require('${ROOT}/lib/lockfile.js').getLocks;\n`);
  if (length !== 'long') {
    const stress = path.join(folder, 'test', 'fixtures', 'stress.js');
    fs.writeFileSync(stress, fs.readFileSync(stress, 'utf8').replace('totalTestTime = 60000', 'totalTestTime = 6000'));
  }
}

/** Runs tests of some files, and answers which have passed. */
async function run(files, part, names) {
  const folder = path.join(tools, 'run', `${files[0]}-${part}`);
  copy(folder);
  const pattern = `^(${names.map((name) => name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('|')})$`;
  const answer = path.join(folder, 'answer.json');
  const how = ['--env=node', '--runInBand', '--silent', '--testTimeout=30000', '--json', `--outputFile=${answer}`];
  const words = [...how, '-t', pattern, ...files.map((file) => `test/${file}.test.js`)];
  const env = { ...process.env, TENURE_DIR: path.join(folder, 'locks') };
  const jest = path.join(tools, 'node_modules', 'jest', 'bin', 'jest.js');
  await promisify(execFile)(process.execPath, [jest, ...words], { cwd: folder, env }).catch(() => {});
  const { testResults } = JSON.parse(fs.readFileSync(answer, 'utf8'));
  return testResults.flatMap(({ name, assertionResults, message }) => {
    if (assertionResults.length === 0) throw new Error(`${name}: ${message}`);
    return assertionResults.map((result) => ({ file: path.basename(name, '.test.js'), ...result }));
  });
}

async function main() {
  const all = listed();
  const wanted = all.filter(({ passes }) => passes);
  const runs = RUNS.flatMap(({ files, parts }) => {
    const names = wanted.filter(({ file }) => files.includes(file)).map(({ name }) => name);
    return Array.from({ length: parts }, (_, part) => run(files, part, names.filter((_, at) => at % parts === part)));
  });
  const results = (await Promise.all(runs)).flat();
  const failures = [];
  for (const { file, name } of wanted) {
    const result = results.find((one) => one.file === file && one.fullName === name && one.status !== 'pending');
    if (result?.status !== 'passed') failures.push(`${file}: ${name}\n${result?.failureMessages.join('\n') ?? 'not there'}`);
  }
  for (const { file, fullName } of results) {
    const isListed = all.some((one) => one.file === file && one.name === fullName);
    if (!isListed) failures.push(`${file}: ${fullName} is not in originals.txt`);
  }
  if (failures.length > 0) throw new Error(failures.join('\n'));
  console.log(`proper-lockfile's own tests: ${wanted.length} of ${all.length} pass, as listed`);
}

main().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
