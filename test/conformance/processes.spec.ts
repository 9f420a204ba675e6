import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

import { createLockTables } from 'nestjs-distributed-lock/typeorm';
import { DataSource } from 'typeorm';

import { describeWithServers, startPostgres, startRedis, type TestServer } from '../servers/index.js';
import type { CountedSection, CountingOrder } from './counting-process.js';

const PROCESSES = 3;
const CALLERS = 3;
const INCREMENTS = 4;

describeWithServers(['redis', 'postgres'], 'processes that count under one lock', () => {
  let folder: string;
  const servers: TestServer[] = [];

  beforeEach(() => void (folder = mkdtempSync(join(tmpdir(), 'lock-counting-'))));
  afterEach(async () => {
    rmSync(folder, { recursive: true });
    for (const server of servers.splice(0)) await server.stop();
  });

  it('lose no increment on Redis', async () => {
    const server = await startRedis();
    servers.push(server);
    await countIn({ place: server.url });
  }, 120_000);

  it('lose no increment on PostgreSQL', async () => {
    const server = await startPostgres();
    servers.push(server);
    await createLockTables(new DataSource({ type: 'postgres', url: server.url }));
    await countIn({ place: server.url });
  }, 120_000);

  it.each([true, false])(
    'lose no increment on one SQLite file that they all write to, WAL %s (C111)',
    async (enableWAL) => {
      const place = join(folder, 'app.db');
      const driver: unknown = createRequire(__filename)('libsql');
      await createLockTables(new DataSource({ type: 'better-sqlite3', driver, database: place, enableWAL }));
      await countIn({ place, enableWAL });
    },
    120_000,
  );

  async function countIn(where: Pick<CountingOrder, 'place' | 'enableWAL'>): Promise<void> {
    const counterFile = join(folder, 'counter');
    const historyFile = join(folder, 'history');
    writeFileSync(counterFile, '0');
    const order: CountingOrder = {
      ...where,
      callers: CALLERS,
      increments: INCREMENTS,
      counterFile,
      historyFile,
    };
    await Promise.all(Array.from({ length: PROCESSES }, () => runChild(order)));
    expect(Number(readFileSync(counterFile, 'utf8'))).toBe(PROCESSES * CALLERS * INCREMENTS);
    expectOneAfterTheOther(readHistory(historyFile));
  }
});

async function runChild(order: CountingOrder): Promise<void> {
  const hook = join(__dirname, 'typescript-hooks.mjs');
  const args = ['--import', hook, join(__dirname, 'counting-process.ts'), JSON.stringify(order)];
  await promisify(execFile)(process.execPath, args, { timeout: 120_000 }); // rejects with what it printed
}

function readHistory(file: string): CountedSection[] {
  const lines = readFileSync(file, 'utf8').trim().split('\n');
  return lines.map((line) => JSON.parse(line) as CountedSection);
}

/** No two sections overlap, and tokens rise in the order in which the sections were entered. */
function expectOneAfterTheOther(history: CountedSection[]): void {
  history.sort((a, b) => (BigInt(a.enteredAtNs) < BigInt(b.enteredAtNs) ? -1 : 1));
  for (const [i, next] of history.entries()) {
    const previous = history[i - 1];
    if (!previous) continue;
    expect(BigInt(next.enteredAtNs) > BigInt(previous.leftAtNs)).toBe(true);
    expect(next.token).toBeGreaterThan(previous.token);
  }
}
