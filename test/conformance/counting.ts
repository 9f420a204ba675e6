import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

import type { CountedSection, CountingOrder } from './counting-process.js';

const PROCESSES = 3;

/** How many in each process call how often. */
export type Crowd = Pick<CountingOrder, 'callers' | 'increments'>;

/** Several processes that count up one unprotected number under one lock. */
export interface Counting {
  /** Resolves when all processes have ended well; rejects with what one of them printed. */
  readonly ended: Promise<unknown>;
  /** How often it was counted up until now. */
  sections(): number;
  /** Checks that nothing was lost, that no two were inside at once, and that tokens follow that order. */
  expectExact(): void;
  remove(): void;
}

export function startCounting(where: Pick<CountingOrder, 'place' | 'enableWAL'>, crowd: Crowd): Counting {
  const folder = mkdtempSync(join(tmpdir(), 'lock-counting-'));
  const counterFile = join(folder, 'counter');
  const historyFile = join(folder, 'history');
  writeFileSync(counterFile, '0');
  writeFileSync(historyFile, '');
  const startFile = join(folder, 'start');
  const order: CountingOrder = {
    ...where,
    ...crowd,
    startFile,
    counterFile,
    historyFile,
  };
  const history = (): CountedSection[] => readHistory(historyFile);
  return {
    ended: runAll(order, folder),
    sections: () => history().length,
    expectExact() {
      expect(Number(readFileSync(counterFile, 'utf8'))).toBe(PROCESSES * crowd.callers * crowd.increments);
      expectOneAfterTheOther(history());
    },
    remove: () => rmSync(folder, { recursive: true }),
  };
}

export interface Restartable {
  kill(): Promise<void>;
  start(): Promise<void>;
}

/** Counts while the server is killed and comes back with its data, and expects that nothing was lost. */
export async function countThroughRestart(
  where: Pick<CountingOrder, 'place'>,
  crowd: Crowd,
  server: Restartable,
): Promise<void> {
  const counting = startCounting(where, crowd);
  try {
    let ended = false;
    const watched = counting.ended.finally(() => (ended = true));
    while (counting.sections() < 10 && !ended) await sleep(5);
    await server.kill();
    const countedBefore = counting.sections();
    await sleep(700);
    expect(counting.sections() - countedBefore).toBeLessThanOrEqual(1); // the one that was inside may finish
    await server.start();
    await watched;
    counting.expectExact();
  } finally {
    counting.remove();
  }
}

/** Nobody begins before all have connected, which takes much longer than the counting itself. */
async function runAll(order: CountingOrder, folder: string): Promise<void> {
  const connected = (): number => readdirSync(folder).filter((name) => name.startsWith('start.')).length;
  const start = setInterval(() => {
    if (connected() === PROCESSES) writeFileSync(order.startFile, '');
  }, 5);
  try {
    await Promise.all(Array.from({ length: PROCESSES }, () => runProcess(order)));
  } finally {
    clearInterval(start);
  }
}

/** With Node's own rule for unhandled rejections: they end the process. */
async function runProcess(order: CountingOrder): Promise<void> {
  const runner = join(__dirname, 'run-typescript.mjs');
  const args = [runner, join(__dirname, 'counting-process.ts'), JSON.stringify(order)];
  await promisify(execFile)(process.execPath, args, { timeout: 300_000 });
}

function readHistory(file: string): CountedSection[] {
  const lines = readFileSync(file, 'utf8').split('\n').slice(0, -1);
  return lines.map((line) => JSON.parse(line) as CountedSection);
}

function expectOneAfterTheOther(history: CountedSection[]): void {
  history.sort((a, b) => (BigInt(a.enteredAtNs) < BigInt(b.enteredAtNs) ? -1 : 1));
  for (const [i, next] of history.entries()) {
    const previous = history[i - 1];
    if (!previous) continue;
    expect(BigInt(next.enteredAtNs) > BigInt(previous.leftAtNs)).toBe(true);
    expect(next.token).toBeGreaterThan(previous.token);
  }
}
