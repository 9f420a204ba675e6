// npm run check: everything that can be said about the code without running it, two checks at a time.
import { spawn } from 'node:child_process';
import { once } from 'node:events';

/** The slowest first, so that the others fit in beside it. */
const CHECKS = ['lint', 'typecheck', 'imports', 'format:check'];
const AT_A_TIME = 2;

const waiting = [...CHECKS];
await Promise.all(Array.from({ length: AT_A_TIME }, work));

async function work() {
  for (let name = waiting.shift(); name !== undefined; name = waiting.shift()) await check(name);
}

/** @param {string} name */
async function check(name) {
  const startedMs = performance.now();
  const child = spawn('npm', ['run', '--silent', name], { stdio: ['ignore', 'pipe', 'pipe'] });
  /** @type {Buffer[]} */
  const output = [];
  child.stdout.on('data', (chunk) => output.push(chunk));
  child.stderr.on('data', (chunk) => output.push(chunk));
  const [code] = await once(child, 'close');
  const seconds = ((performance.now() - startedMs) / 1_000).toFixed(1);
  console.log(`${code === 0 ? 'ok    ' : 'FAILED'} npm run ${name} (${seconds} s)`);
  if (code === 0) return;
  process.exitCode = 1;
  process.stdout.write(Buffer.concat(output));
}
