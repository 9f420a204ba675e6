import { AsyncLocalStorage } from 'node:async_hooks';
import { createRequire } from 'node:module';

import {
  IdempotencyService,
  LockService,
  memoryStore,
  systemClock,
  type Clock,
  type IdempotencyStore,
} from 'nestjs-distributed-lock';
import {
  guardDataSource,
  transactionManager,
  typeormIdempotencyStore,
} from 'nestjs-distributed-lock/typeorm';
import { DataSource, type DataSourceOptions } from 'typeorm';

/** Where a call stops, and waits to be killed or told to go on. */
export type TransactionalStep =
  | 'before the claim'
  | 'after the claim'
  | 'before the effect'
  | 'after the effect'
  | 'before the completion'
  | 'before COMMIT'
  | 'after COMMIT';

export interface TransactionalOrder {
  readonly source: DataSourceOptions;
  readonly leaseMs: number;
  readonly calls: readonly StoppingCall[];
}

export interface StoppingCall {
  readonly key: string;
  readonly claim: 'first' | 'inside';
  readonly stopAt: TransactionalStep;
}

export type TransactionalNews =
  | { readonly type: 'stopped'; readonly key: string }
  | { readonly type: 'ended'; readonly key: string; readonly answer: string };

const goOn = new Promise((resolve) => process.once('message', resolve));
const present = new AsyncLocalStorage<StoppingCall>();

/** For a process that is killed before any of its limits on an answer has passed. */
const patientClock: Clock = {
  ...systemClock,
  schedule: (delayMs, run) => systemClock.schedule(delayMs * 1_000, run),
};

function tell(news: TransactionalNews): Promise<void> {
  return new Promise((resolve) => process.send?.(news, undefined, undefined, () => resolve()));
}

async function reach(step: TransactionalStep): Promise<void> {
  const call = present.getStore();
  if (call?.stopAt !== step) return;
  await tell({ type: 'stopped', key: call.key });
  await goOn;
}

/** Stands between the guards and the driver. */
function watchStatements({ driver }: DataSource): void {
  const create = driver.createQueryRunner.bind(driver);
  const watched = new WeakSet<object>();
  driver.createQueryRunner = (mode) => {
    const runner = create(mode);
    if (watched.has(runner)) return runner;
    watched.add(runner);
    const query = runner.query.bind(runner) as (...args: unknown[]) => Promise<unknown>;
    runner.query = (async (...args: unknown[]) => {
      const sql = String(args[0]);
      if (/UPDATE \W?idempotency_record\W? SET/.test(sql)) await reach('before the completion');
      if (sql === 'COMMIT') await reach('before COMMIT');
      const answer = await query(...args);
      if (sql === 'COMMIT') await reach('after COMMIT');
      return answer;
    }) as typeof runner.query;
    return runner;
  };
}

/** Claims of the mode that claims first go through here. */
function watchClaims(store: IdempotencyStore): void {
  const claim = store.claim.bind(store);
  store.claim = async (...args) => {
    await reach('before the claim');
    const answer = await claim(...args);
    await reach('after the claim');
    return answer;
  };
}

async function run({ source, leaseMs, calls }: TransactionalOrder): Promise<void> {
  const driver =
    source.type === 'better-sqlite3' ? { driver: createRequire(import.meta.url)('libsql') as unknown } : {};
  const dataSource = await new DataSource({
    ...source,
    ...driver,
    poolSize: calls.length + 4,
  } as DataSourceOptions).initialize();
  watchStatements(dataSource);
  const locks = new LockService({ stores: { default: memoryStore() } });
  guardDataSource(dataSource, locks);
  const store = typeormIdempotencyStore({ dataSource });
  await store.read('', 20_000); // connecting takes longer than a command may
  watchClaims(store);
  const serviceFor = ({ stopAt }: StoppingCall): IdempotencyService => {
    const clock = stopAt.endsWith('the claim') ? patientClock : systemClock;
    return new IdempotencyService({ store, fences: locks.fences, clock });
  };
  await Promise.all(calls.map((call) => present.run(call, () => carryOut(serviceFor(call), leaseMs, call))));
  process.exit(0); // connections are left as they are: this process is made to be killed
}

async function carryOut(service: IdempotencyService, leaseMs: number, call: StoppingCall): Promise<void> {
  const { key, claim } = call;
  const body = async (): Promise<string> => {
    await reach('before the effect');
    await transactionManager().query(`INSERT INTO effect (k, mark) VALUES ('${key}', 'first')`);
    await reach('after the effect');
    return 'first';
  };
  const answer = await service
    .runOnce(key, { transactional: { claim }, leaseMs, waitMs: 0 }, body)
    .catch((error: { code?: string; message: string }) => error.code ?? error.message);
  await tell({ type: 'ended', key, answer });
}

if (process.argv[2]?.startsWith('{')) await run(JSON.parse(process.argv[2]) as TransactionalOrder);
