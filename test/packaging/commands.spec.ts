import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { REPOSITORY } from '../architecture/repository-files.js';

const PASS_THROUGH = join(REPOSITORY, 'scripts/pass-through.mjs');

/** Node as `npm run demo` starts it, running `program` in place of the demo. */
function start(program: string): ChildProcess {
  const code = `
    import { becomeNode } from ${JSON.stringify(PASS_THROUGH)};
    becomeNode(['--input-type=module', '-e', ${JSON.stringify(program)}]);
  `;
  return spawn(process.execPath, ['--input-type=module', '-e', code], { stdio: ['ignore', 'pipe', 'pipe'] });
}

async function outcomeOf(child: ChildProcess): Promise<{ code: unknown; signal: unknown; output: string }> {
  let output = '';
  child.stdout?.on('data', (chunk) => (output += String(chunk)));
  const [code, signal] = await once(child, 'close');
  return { code, signal, output };
}

describe('a program that a command of the README runs', () => {
  it('owns standard output and the exit code', async () => {
    const child = start(`process.stdout.write('{"ok":false}\\n'); process.exitCode = 3;`);
    expect(await outcomeOf(child)).toEqual({ code: 3, signal: null, output: '{"ok":false}\n' });
  });

  it.each(['SIGINT', 'SIGTERM', 'SIGHUP'] as const)('gets %s and may end in its own way', async (name) => {
    const child = start(`
      process.on('${name}', () => { console.log('tidy'); process.exit(7); });
      setInterval(() => undefined, 1000);
      console.log('up');
    `);
    const outcome = outcomeOf(child);
    if (child.stdout) await once(child.stdout, 'data');
    child.kill(name);
    expect(await outcome).toEqual({ code: 7, signal: null, output: 'up\ntidy\n' });
  });

  it('passes the signal on that it died of', async () => {
    const child = start(`process.kill(process.pid, 'SIGKILL'); setInterval(() => undefined, 1000);`);
    expect(await outcomeOf(child)).toEqual({ code: null, signal: 'SIGKILL', output: '' });
  });
});
