// The program of six_tasks.py, in Node.
import { spawn } from "node:child_process";
import { appendFileSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

const [url, ttl, file] = process.argv.slice(2);
const serve = spawn("tenure", ["serve"], { stdio: ["pipe", "pipe", "inherit"] });
const answers = new Map();
const lost = new Set();
let number = 0;
writeFileSync(file, "");

function note(kind, task) {
  const at = process.hrtime.bigint();
  appendFileSync(file, `${kind} ${task} ${at}\n`);
}

function call(method, params) {
  const id = ++number;
  serve.stdin.write(JSON.stringify({ jsonrpc: "2.0", id, method, params }) + "\n");
  return new Promise((resolve) => answers.set(id, resolve));
}

createInterface({ input: serve.stdout }).on("line", (line) => {
  const message = JSON.parse(line);
  if (message.method === "lost") lost.add(message.params.hold);
  else answers.get(message.id)?.(message);
});

async function work(task) {
  const params = { locks: [{ name: `lock-${task}` }], ttl_ms: Number(ttl), store: url, wait_ms: 10_000 };
  const { result } = await call("acquire", params);
  note("HELD", task);
  while (!lost.has(result.hold)) {
    note("WROTE", task);
    await sleep(10);
  }
  note("TOLD", task);
  // As a program does at the end of its work. Nobody waits for the answer: the servers are silent.
  call("release", { hold: result.hold });
}

await call("hello", { protocol: 1 });
await Promise.all([...Array(6).keys()].map(work));
serve.kill("SIGKILL");
process.exit(0);
