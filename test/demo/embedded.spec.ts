import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { planFaults } from '../../apps/demo-billing/src/faults/fault-plan.js';
import { anyRuns, descendants } from '../servers/process-tree.mjs';
import { COMPILE_TIMEOUT_MS, compileDemo, SAMPLE, withDemo } from './demo-run.js';
import { expectRepetitionsToBeAnswered, expectToAddUp } from './expect-account.js';

/** Seconds, and minutes on a busy machine. */
const RUN_TIMEOUT_MS = 600_000;
/** Among so many there are three pauses, two kills and two lost answers. */
const NINE = Array.from({ length: 9 }, (_, i) => `INV-${i}`);
const header = 'id,tenant,customer,amount,currency,due_date\n';

describe('the demo on embedded SQLite', () => {
  const folder = mkdtempSync(join(tmpdir(), 'demo-spec-'));
  beforeAll(() => compileDemo(), COMPILE_TIMEOUT_MS);
  afterAll(() => rmSync(folder, { recursive: true }));

  const fileOf = (ids: readonly string[]): string => {
    const file = join(folder, 'few.csv');
    writeFileSync(file, header + ids.map((id) => `${id},t,c,1.00,EUR,2025-01-01\n`).join(''));
    return file;
  };

  it(
    'charges the sample once while each message comes twice and workers are paused, killed and left without answers',
    () =>
      withDemo(['--json', '--seed', '20'], async (run) => {
        await expectToAddUp(run, SAMPLE);
        expectRepetitionsToBeAnswered(run);
        const { pauses, kills, staleWritesRefused, duplicatesPrevented, takeOvers } = run.account;
        expect({ pauses, kills }).toEqual({ pauses: 10, kills: 5 });
        // Two pauses each before the token is read, before the call is sent and before the invoice is saved.
        expect(staleWritesRefused).toBeGreaterThanOrEqual(4);
        // Six lost answers and a kill between charge and save, at the least.
        expect(duplicatesPrevented).toBeGreaterThanOrEqual(7);
        expect(takeOvers).toBeGreaterThanOrEqual(10);
        // Whatever struck an invoice, and each lost answer, leaves a payout that somebody has to attempt again.
        expect(run.account.furtherAttempts).toBeGreaterThanOrEqual(pauses + kills + 6);
        expect(run.stdout).toMatch(/lease check [1-9]\d*, .* gateway's token check [1-9]/);
      }),
    RUN_TIMEOUT_MS,
  );

  it(
    'uses one SQLite file for one run after the other, and leaves what else is in it alone',
    async () => {
      const file = join(folder, 'invoices.db');
      const input = fileOf(NINE);
      const args = [
        '--input',
        input,
        '--store',
        `sqlite:${file}`,
        '--faults',
        'none',
        '--workers',
        '2',
        '--json',
      ];
      for (let turn = 0; turn < 2; turn += 1) await withDemo(args, (run) => expectToAddUp(run, input));
      expect(existsSync(file)).toBe(true);
    },
    2 * RUN_TIMEOUT_MS,
  );

  it(
    'shows, counts and names the double charges of a bare TTL lock',
    () =>
      withDemo(
        ['--unsafe', '--input', fileOf(NINE), '--faults', 'pause', '--seed', '3', '--json'],
        async (run) => {
          expect(await run.exited()).toBe(1);
          const { invoices, charges, doubleCharges, ok } = run.account;
          expect(ok).toBe(false);
          expect(doubleCharges).toBeGreaterThanOrEqual(1);
          expect(charges).toBe(invoices + doubleCharges);
          const named = run.stdout.match(/^invoice .+ was charged \d+ times$/gm) ?? [];
          expect(named.length).toBeGreaterThanOrEqual(1);
          expect(named.length).toBeLessThanOrEqual(doubleCharges);
        },
      ),
    RUN_TIMEOUT_MS,
  );

  it(
    'charges again under a bare TTL lock wherever a message comes back after the charge: there is no idempotency key',
    () => {
      const { lostAnswers, strikes } = planFaults(1, NINE, 'all');
      const killed = [...strikes].filter(([, { kind, step }]) => kind === 'kill' && step === 'after-charge');
      expect([lostAnswers.size, killed.length]).toEqual([2, 1]);
      return withDemo(['--unsafe', '--input', fileOf(NINE), '--seed', '1'], async (run) => {
        expect(await run.exited()).toBe(1);
        for (const id of [...lostAnswers, ...killed.map(([each]) => each)]) {
          expect(run.stdout).toMatch(new RegExp(`^invoice ${id} was charged [2-9] times$`, 'm'));
        }
        expect(run.stdout).toMatch(/^replayed +0 /m);
      });
    },
    RUN_TIMEOUT_MS,
  );

  it(
    'leaves neither processes nor files behind when it is interrupted, not even a stopped worker',
    () =>
      withDemo(['--faults', 'pause', '--seed', '4'], async (run) => {
        await run.underWay();
        const children = descendants(run.pid);
        expect(children.length).toBeGreaterThanOrEqual(5);
        const signalledAtMs = performance.now();
        run.signal('SIGINT');
        expect(await run.exited()).toBe(130);
        expect(performance.now() - signalledAtMs).toBeLessThan(25_000); // less than any time that a run waits for
        expect(anyRuns(children)).toBe(false);
        expect(run.litter).toEqual([]);
        expect(run.stdout).toBe('');
      }),
    RUN_TIMEOUT_MS,
  );

  it.each([
    ['an empty file', '', '1:1: the file is empty'],
    [
      'a negative amount',
      `${header}A,t,c,-1.00,EUR,2025-01-01\n`,
      '2:7: amount "-1.00" is not more than zero',
    ],
    ['a quote that never closes', `${header}A,"t,c,1.00,EUR,2025-01-01\n`, '2:3: the quote that opens here'],
  ])('refuses %s in one line, and charges nothing', async (_, content, message) => {
    const file = join(folder, 'bad.csv');
    writeFileSync(file, content);
    await withDemo(['--input', file], async (run) => {
      expect(await run.exited()).toBe(2);
      expect(run.stderr).toMatch(/^[^\n]+\n$/);
      expect(run.stderr).toContain(`${file}:${message}`);
      expect(run.stdout).toBe('');
      expect(run.litter).toEqual([]);
    });
  });

  it.each([
    [['--worker', '2'], "Unknown option '--worker'"],
    [['--workers', '0'], '--workers "0" is not a whole number from 1 to 32'],
    [['--store', 'oracle://localhost/db'], 'is not a store; write sqlite:PATH'],
    [
      ['--store', 'redis://127.0.0.1:1'],
      'the store cannot be used: Redis at redis://127.0.0.1:1 gave no answer: connect ECONNREFUSED 127.0.0.1:1; check',
    ],
  ])('refuses %j in one line', async (args, message) => {
    await withDemo(args, async (run) => {
      expect(await run.exited()).toBe(2);
      expect(run.stderr).toMatch(/^[^\n]+\n$/);
      expect(run.stderr).toContain(message);
      expect(run.litter).toEqual([]);
    });
  });

  it('does not touch a file of the user that is no database', async () => {
    const file = join(folder, 'letter.txt');
    writeFileSync(file, 'Dear Sir or Madam, this is not a database but a letter.\n'.repeat(100));
    const before = readFileSync(file);
    await withDemo(['--store', `sqlite:${file}`], async (run) => {
      expect(await run.exited()).toBe(2);
      expect(run.stderr).toMatch(
        /^the store cannot be used: [^\n]*not a database[^\n]*; check --store, or leave it out\n$/,
      );
    });
    expect(readFileSync(file)).toEqual(before);
  });
});
