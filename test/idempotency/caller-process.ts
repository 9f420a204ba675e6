import {
  IdempotencyService,
  isLockError,
  systemClock,
  type Attempt,
  type Clock,
  type IdempotencyStore,
} from 'nestjs-distributed-lock';

import { storeAt } from './store-at.js';

/** Where a call stops, and waits to be killed or told to go on. */
export const STEPS = [
  'before the claim',
  'before the answer to the claim',
  'before the effect',
  'after the effect',
  'before the completion',
  'before the answer to the completion',
] as const;
export type Step = (typeof STEPS)[number];

/** What one calling process is told, as JSON in its first argument. */
export interface CallerOrder {
  /** `redis://…`, `postgres://…`, `mysql://…`, or a path to a SQLite file. */
  readonly place: string;
  readonly leaseMs: number;
  readonly calls: readonly CallOrder[];
}

export interface CallOrder {
  readonly key: string;
  readonly stopAt: Step;
  /** What the body does once it goes on. Default `return`. */
  readonly then?: 'return' | 'throw' | 'look';
}

/** What the process tells its parent. */
export type CallerNews =
  | { readonly type: 'effect'; readonly key: string; readonly idempotencyKey: string }
  | { readonly type: 'stopped'; readonly key: string }
  | { readonly type: 'ended'; readonly key: string; readonly answer: unknown; readonly code: string | null };

const goOn = new Promise((resolve) => process.once('message', resolve));

/** Stands for a process that is killed before any of its limits on an answer has passed. */
const patientClock: Clock = {
  ...systemClock,
  schedule: (delayMs, run) => systemClock.schedule(delayMs * 1_000, run),
};

function call(store: IdempotencyStore, leaseMs: number, order: CallOrder): Promise<void> {
  const { key, stopAt, then = 'return' } = order;
  const tell = (news: CallerNews): Promise<void> =>
    new Promise((resolve) => process.send?.(news, undefined, undefined, () => resolve()));
  const reach = async (step: Step): Promise<void> => {
    if (step !== stopAt) return;
    await tell({ type: 'stopped', key });
    await goOn;
  };
  const body = async (attempt: Attempt): Promise<string> => {
    await reach('before the effect');
    await tell({ type: 'effect', key, idempotencyKey: then === 'look' ? attempt.idempotencyKey : key });
    await reach('after the effect');
    if (then === 'throw') throw new Error('first failed');
    return 'first';
  };
  const clock = stopAt.endsWith('the effect') ? systemClock : patientClock;
  const service = new IdempotencyService({ store: stopping(store, reach), clock });
  const ended = (answer: unknown, code: string | null): Promise<void> =>
    tell({ type: 'ended', key, answer, code });
  return service.runOnce(key, { leaseMs, waitMs: 0 }, body).then(
    (answer) => ended(answer, null),
    (error: Error) => ended(error.message, isLockError(error) ? error.code : null),
  );
}

/** The store, with halts around its steps. */
function stopping(store: IdempotencyStore, reach: (step: Step) => Promise<void>): IdempotencyStore {
  return {
    kind: store.kind,
    minLeaseMs: store.minLeaseMs,
    claim: async (claim) => {
      await reach('before the claim');
      const answer = await store.claim(claim, 5_000);
      await reach('before the answer to the claim');
      return answer;
    },
    settle: async (id, ownerId, ending) => {
      await reach('before the completion');
      const answer = await store.settle(id, ownerId, ending, 5_000);
      await reach('before the answer to the completion');
      return answer;
    },
    renew: (renewal, timeoutMs) => store.renew(renewal, timeoutMs),
    resolve: (id, result, keepMs, timeoutMs) => store.resolve(id, result, keepMs, timeoutMs),
    forget: (id, timeoutMs) => store.forget(id, timeoutMs),
    read: (id, timeoutMs) => store.read(id, timeoutMs),
    purge: (limit, timeoutMs) => store.purge(limit, timeoutMs),
    close: () => store.close(),
  };
}

if (process.argv[2]?.startsWith('{')) {
  const order = JSON.parse(process.argv[2]) as CallerOrder;
  const store = storeAt(order.place);
  await store.read('', 20_000); // connecting takes longer than a command may
  await Promise.all(order.calls.map((each) => call(store, order.leaseMs, each)));
  process.exit(0); // connections are left as they are: this process is made to be killed
}
