import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';

import { anyRuns, descendants } from '../servers/process-tree.mjs';
import { COMPILE_TIMEOUT_MS, compileDemo, withDemo } from './demo-run.js';

describe('the demo as a service', () => {
  beforeAll(() => compileDemo(), COMPILE_TIMEOUT_MS);

  it('prints lines to try, which pay once at one replica and get the receipt again at the other', async () => {
    await withDemo(['--serve', '--port', '0'], async (run) => {
      await run.until(() => /\/ledger\n/.test(run.stdout));
      const lines = [...run.stdout.matchAll(/curl -i -X POST '(.+)' -H '(.+): (.+)' -H '(.+): (.+)'/g)];
      const answers: [number, string, string | null][] = [];
      for (const [, url = '', tenant = '', who = '', key = '', text = ''] of lines) {
        const response = await fetch(url, { method: 'POST', headers: { [tenant]: who, [key]: text } });
        answers.push([response.status, await response.text(), response.headers.get('idempotent-replayed')]);
      }
      expect(new Set(lines.map(([, url]) => url)).size).toBe(2);
      const receipt = answers[0]?.[1];
      expect(answers).toEqual([
        [201, receipt, null],
        [201, receipt, 'true'],
      ]);
      const ledger = await fetch(/curl (http.+\/ledger)/.exec(run.stdout)?.[1] ?? '');
      expect(await ledger.json()).toMatchObject({ charges: [{ invoiceId: 'NW-2025-0001' }] });

      const children = descendants(run.pid);
      expect(children).toHaveLength(3);
      run.signal('SIGINT');
      expect([await run.exited(), anyRuns(children), run.litter]).toEqual([130, false, []]);
    });
  });

  it('says in one line that its port is taken', async () => {
    const other = createServer().listen(0, '127.0.0.1');
    await once(other, 'listening');
    const { port } = other.address() as AddressInfo;
    await withDemo(['--serve', '--port', String(port)], async (run) => {
      expect(await run.exited()).toBe(2);
      expect(run.stderr).toBe(`cannot serve: listen EADDRINUSE: address already in use 127.0.0.1:${port}\n`);
      expect(run.litter).toEqual([]);
    }).finally(() => other.close());
  });
});
