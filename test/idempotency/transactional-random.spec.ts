import { randomInt, randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

import {
  currentAttempt,
  IdempotencyService,
  type IdempotencyStore,
  type OwnedClaim,
  type RecordEnding,
  type RunOnceOptions,
} from 'nestjs-distributed-lock';
import { transactionManager } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase } from '../typeorm/databases.js';
import { elsewhere } from '../typeorm/owners.js';
import { CommitFaults } from './commit-faults.js';
import { codeOf, TransactionalPlace, write, type Replica } from './transactional-place.js';

const SEED = Number(process.env['SEED'] ?? randomInt(1_000_000_000));
const REPLICAS = 4;
const KEYS = 10;
const CALLS_IN_A_ROW = 5;
const LAPSE_EVERY_MS = 25;
/** Commands may take their time, and nobody gives up because the machine is slow. */
const [LEASE_MS, WAIT_MS] = [15_000, 60_000];

type Random = (below: number) => number;

/** Mulberry32. */
function randomFrom(seed: number): Random {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296) * below);
  };
}

/** Where calls run, and what becomes of them by chance. */
interface Caller {
  readonly service: IdempotencyService;
  readonly faults: CommitFaults;
}

interface Rules {
  readonly random: Random;
  readonly keys: readonly string[];
  readonly modes: readonly ('first' | 'inside')[];
  /** A COMMIT may be carried out without an answer. */
  readonly answersGetLost: boolean;
  readonly leasesEnd: boolean;
  /** In each process. */
  readonly callsAtATime: number;
}

/** The answers that callers of each key got. */
type Answers = Map<string, Set<string>>;

async function body(random: Random, key: string): Promise<string> {
  const manager = transactionManager();
  const mark = randomUUID();
  const [fate, pauseMs] = [random(10), random(30)];
  if (fate === 0) throw new Error('before the effect');
  await write(manager, key, mark);
  await sleep(pauseMs);
  await manager.query('SELECT 1');
  if (fate === 1) throw new Error('after the effect');
  if (fate === 2) {
    const branch = async (): Promise<void> => {
      for (let nr = 0; nr < 3; nr += 1) await write(manager, key, `${mark} ${nr}`);
    };
    void codeOf(branch());
    throw new Error('beside a branch that goes on');
  }
  return mark;
}

async function callsInARow(caller: Caller, rules: Rules, answers: Answers): Promise<void> {
  const { random, keys, modes, answersGetLost } = rules;
  for (let nr = 0; nr < CALLS_IN_A_ROW; nr += 1) {
    const key = keys[random(keys.length)] as string;
    const claim = modes[random(modes.length)] as 'first' | 'inside';
    const fault = random(8);
    if (fault === 0) caller.faults.loseNextCommit();
    if (fault === 1 && answersGetLost) caller.faults.loseNextAnswer();
    const options: RunOnceOptions<string> = {
      transactional: { claim },
      maxAttempts: 1_000,
      leaseMs: LEASE_MS,
    };
    const call = elsewhere(() => caller.service.runOnce(key, options, () => body(random, key)));
    await call.then(
      (answer) => answers.set(key, (answers.get(key) ?? new Set()).add(answer)),
      () => undefined,
    );
  }
}

async function mixedRun(
  place: TransactionalPlace,
  callers: readonly Caller[],
  rules: Rules,
): Promise<Answers> {
  const answers: Answers = new Map();
  const rows = callers.flatMap((caller) =>
    Array.from({ length: rules.callsAtATime }, () => callsInARow(caller, rules, answers)),
  );
  let over = false;
  const lapsing = (async () => {
    for (; !over && rules.leasesEnd; await sleep(LAPSE_EVERY_MS)) await place.lapse();
  })();
  await Promise.all(rows);
  over = true;
  await lapsing;
  return answers;
}

/** One more call of each key, which nothing happens to: its caller is told of the effect, whoever had it. */
async function lastCalls({ service, faults }: Caller, rules: Rules, answers: Answers): Promise<void> {
  const { keys, modes } = rules;
  faults.next = undefined;
  for (const [nr, key] of keys.entries()) {
    const claim = modes[nr % modes.length] as 'first' | 'inside';
    const options = { transactional: { claim }, maxAttempts: 1_000, leaseMs: LEASE_MS, waitMs: WAIT_MS };
    const answer = await elsewhere(() => service.runOnce(key, options, () => plainBody(key)));
    answers.set(key, (answers.get(key) ?? new Set()).add(answer));
  }
}

async function plainBody(key: string): Promise<string> {
  const mark = randomUUID();
  await write(transactionManager(), key, mark);
  return mark;
}

/** The keys for which there is not exactly the one effect that all their callers were told of. */
async function anomalies(place: TransactionalPlace, { keys }: Rules, answers: Answers): Promise<string[]> {
  const found: string[] = [];
  for (const key of keys) {
    const effects = await place.effectsOf(key);
    const told = [...(answers.get(key) ?? [])];
    if (effects.length !== 1 || told.join() !== effects[0])
      found.push(`${key}: told ${told.join()}, there are ${effects.join()}`);
  }
  return found;
}

/** Completes records when the transaction is over, in a statement of its own; `between` is what happens before that. */
function completingAfterwards(
  { dataSource, store }: Replica,
  between: (key: string) => Promise<void>,
): IdempotencyStore {
  const { transactions } = store;
  if (!transactions) throw new Error('no transactions');
  const settleWithin = async (
    { id, ownerId }: OwnedClaim,
    _isolation: unknown,
    work: () => Promise<RecordEnding>,
  ): Promise<'settled' | 'refused'> => {
    const ending = await dataSource.transaction(work);
    await between(currentAttempt()?.key ?? '');
    return store.settle(id, ownerId, ending, 5_000);
  };
  return withProperties(store, { transactions: withProperties(transactions, { settleWithin }) });
}

function withProperties<T extends object>(target: T, others: object): T {
  return new Proxy(target, {
    get(_, name) {
      const value: unknown = Reflect.get(name in others ? others : target, name);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
}

describeOnEachDatabase(`random transactional calls (SEED=${SEED})`, (start, dialect) => {
  const random = randomFrom(SEED);
  let place: TransactionalPlace;
  const replicas: (Replica & { readonly faults: CommitFaults })[] = [];

  beforeAll(async () => {
    place = await TransactionalPlace.on(await start());
    for (let nr = 0; nr < REPLICAS; nr += 1) {
      const faults = new CommitFaults();
      replicas.push({ ...(await place.replica({}, faults.prepare)), faults });
    }
  });
  afterAll(() => place.stop());

  const rulesFor = (modes: Rules['modes']): Rules => ({
    random,
    keys: Array.from({ length: KEYS }, () => randomUUID()),
    modes,
    answersGetLost: dialect !== 'sqlite',
    leasesEnd: dialect !== 'sqlite', // its plain driver would stop this process until the file is free
    callsAtATime: dialect === 'sqlite' ? 1 : 5, // its one writer keeps all others waiting
  });

  it('have one effect for each key, and tell all its callers of that one, through failures and takeovers (C060)', async () => {
    const rules = rulesFor(['first', 'inside']);
    const answers = await mixedRun(place, replicas, rules);
    await lastCalls(replicas[0] as Caller, rules, answers);
    expect(await anomalies(place, rules, answers)).toEqual([]);
  });

  if (dialect !== 'sqlite')
    it('are seen to have more, of every key, where the record is completed after the transaction', async () => {
      const rules = rulesFor(['first']);
      const takeOver = takingOver(rules);
      const callers = replicas.map((replica) => ({
        faults: new CommitFaults(),
        service: new IdempotencyService({
          store: completingAfterwards(replica, takeOver),
          fences: replica.locks.fences,
        }),
      }));
      const answers = await mixedRun(place, callers, rules);
      await lastCalls(callers[0] as Caller, rules, answers);
      expect(await anomalies(place, rules, answers)).toHaveLength(KEYS);
    });

  /** Ends the lease of a record just before it is first completed, and has a successor do the work as well. */
  function takingOver({ keys }: Rules): (key: string) => Promise<void> {
    const [successor] = replicas;
    const seen = new Set<string>();
    return async (key) => {
      if (seen.has(key) || !successor || !keys.includes(key)) return;
      seen.add(key);
      await place.lapse();
      await lastCalls(successor, { ...rulesFor(['first']), keys: [key] }, new Map());
    };
  }
});
