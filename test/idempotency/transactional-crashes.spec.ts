import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';

import { describeOnEachDatabase } from '../typeorm/databases.js';
import { codeOf, effect, TransactionalPlace, type Replica } from './transactional-place.js';
import type {
  StoppingCall,
  TransactionalNews,
  TransactionalOrder,
  TransactionalStep,
} from './transactional-process.js';

/** All calls of a process come to their steps meanwhile; the test ends the leases of the dead. */
const LEASE_MS = 60_000;
/** It has to pass in real time. A command may take a third of it, on a busy machine. */
const OUTLASTED_LEASE_MS = 4_000;
const WAIT_MS = 60_000;
/** A dozen processes one after the other: seconds, and minutes on a busy machine. */
const LIMIT_MS = 300_000;
jest.setTimeout(LIMIT_MS);

const STEPS: readonly TransactionalStep[] = [
  'before the claim',
  'after the claim',
  'before the effect',
  'after the effect',
  'before the completion',
  'before COMMIT',
  'after COMMIT',
];
/** There the claim is a statement of the transaction like any other. */
const STEPS_INSIDE = STEPS.slice(2);

interface Row extends StoppingCall {
  readonly onCrash: 'rerun' | 'reject';
}

const ROWS: readonly Row[] = [
  ...STEPS.flatMap((stopAt) =>
    (['rerun', 'reject'] as const).map((onCrash) => rowOf('first', stopAt, onCrash)),
  ),
  ...STEPS_INSIDE.map((stopAt) => rowOf('inside', stopAt, 'reject')),
];

function rowOf(claim: 'first' | 'inside', stopAt: TransactionalStep, onCrash: Row['onCrash']): Row {
  return { claim, stopAt, onCrash, key: `${claim}, ${stopAt}, ${onCrash}` };
}

/** A process whose calls stop in the middle. */
class CallingProcess {
  readonly news: TransactionalNews[] = [];
  readonly #child: ChildProcess;

  constructor(order: TransactionalOrder) {
    const runner = join(__dirname, '../conformance/run-typescript.mjs');
    const script = join(__dirname, 'transactional-process.ts');
    this.#child = spawn(process.execPath, [runner, script, JSON.stringify(order)], {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    });
    this.#child.on('message', (news) => this.news.push(news as TransactionalNews));
  }

  async untilStopped(count: number): Promise<void> {
    while (this.news.filter(({ type }) => type === 'stopped').length < count) {
      if (this.#child.exitCode !== null) throw new Error(`it ended with ${this.#child.exitCode}`);
      await once(this.#child, 'message', { signal: AbortSignal.timeout(60_000) });
    }
    expect(this.news.filter(({ type }) => type === 'ended')).toEqual([]);
  }

  pause(): void {
    this.#child.kill('SIGSTOP');
  }

  /** Wakes it up and lets its calls go on, to its end. */
  async resume(): Promise<void> {
    const ended = once(this.#child, 'exit');
    this.#child.kill('SIGCONT');
    this.#child.send('go on');
    await ended;
  }

  async kill(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const ended = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await ended;
  }
}

describeOnEachDatabase('a process in the middle of a transactional call', (start, dialect) => {
  let place: TransactionalPlace;
  let replica: Replica;

  beforeAll(async () => {
    place = await TransactionalPlace.on(await start());
    replica = await place.replica();
  });
  afterAll(() => place.stop());

  const processes: CallingProcess[] = [];
  afterAll(() => Promise.all(processes.map((process) => process.kill())));
  const processFor = (calls: readonly StoppingCall[], leaseMs: number): CallingProcess => {
    const process = new CallingProcess({ source: withoutDriver(place), leaseMs, calls });
    processes.push(process);
    return process;
  };

  describe('that is killed (SIGKILL)', () => {
    const rows = dialect === 'sqlite' ? ROWS.filter(isForSqlite) : ROWS;

    beforeAll(async () => {
      for (const calls of dialect === 'sqlite' ? oneWriterAtATime(rows) : [rows]) {
        const victim = processFor(calls, LEASE_MS);
        await victim.untilStopped(calls.length);
        await victim.kill();
      }
      await place.lapse();
    });

    it.each(rows)(
      '$stopAt, claimed $claim, onCrash $onCrash: the effect is there once, or not yet',
      async (row) => {
        const { key, claim, stopAt, onCrash } = row;
        const committed = stopAt === 'after COMMIT';
        expect(await place.effectsOf(key)).toEqual(committed ? ['first'] : []);
        const call = (): Promise<string> =>
          codeOf(
            replica.service.runOnce(
              key,
              { transactional: { claim }, leaseMs: LEASE_MS, waitMs: WAIT_MS, onCrash },
              effect(key, 'second'),
            ),
          );
        const unknown =
          claim === 'first' && onCrash === 'reject' && stopAt !== 'before the claim' && !committed;
        const mark = committed ? 'first' : 'second';
        const answer = unknown ? 'IDEMPOTENCY_OUTCOME_UNKNOWN' : `resolved: "${mark}"`;
        expect([await call(), await call()]).toEqual([answer, answer]);
        expect(await place.effectsOf(key)).toEqual(unknown ? [] : [mark]);
      },
    );
  });

  describe('that is stopped past its lease (SIGSTOP)', () => {
    const key = 'stopped after its effect';
    let owner: CallingProcess;
    let successors: string;

    beforeAll(async () => {
      owner = processFor([{ key, claim: 'first', stopAt: 'after the effect' }], OUTLASTED_LEASE_MS);
      await owner.untilStopped(1);
      owner.pause();
      const options = { transactional: true, waitMs: dialect === 'sqlite' ? 0 : WAIT_MS };
      successors = await codeOf(replica.service.runOnce(key, options, effect(key, 'second')));
      await owner.resume();
    });

    it('commits nothing, and gives the answer of its successor (C060)', async () => {
      const mine = dialect === 'sqlite' ? 'first' : 'second'; // there it keeps the file, and nobody can take over
      expect(successors).toBe(dialect === 'sqlite' ? 'IDEMPOTENCY_IN_PROGRESS' : 'resolved: "second"');
      expect(owner.news.at(-1)).toEqual({ type: 'ended', key, answer: mine });
      expect(await place.effectsOf(key)).toEqual([mine]);
    });
  });
});

/** Each takes a process of its own there, so one policy has to do for most steps. */
function isForSqlite({ claim, onCrash, stopAt }: Row): boolean {
  return claim === 'inside' || onCrash === 'rerun' || /the claim|after the effect/.test(stopAt);
}

/** What is open in one call keeps the file from all others. */
function oneWriterAtATime(rows: readonly Row[]): Row[][] {
  const holds = ({ stopAt }: Row): boolean => !stopAt.endsWith('the claim');
  return [rows.filter((row) => !holds(row)), ...rows.filter(holds).map((row) => [row])];
}

function withoutDriver({ plain: { options } }: TransactionalPlace): TransactionalOrder['source'] {
  const { type, url, database, enableWAL } = options as unknown as Record<string, unknown>;
  return { type, ...(url ? { url } : { database, enableWAL }) } as TransactionalOrder['source'];
}
