import { randomUUID } from 'node:crypto';
import { setImmediate as turn } from 'node:timers/promises';

import { IdempotencyService, type IdempotencyStore } from 'nestjs-distributed-lock';
import { ManualClock } from 'nestjs-distributed-lock/testing';

import { startProxy, type TcpProxy } from '../servers/index.js';
import { describeOnEachDatabase } from '../typeorm/databases.js';
import { elsewhere } from '../typeorm/owners.js';
import { CommitFaults, connectionLost as lost } from './commit-faults.js';
import { codeOf, effect, TransactionalPlace, type Replica } from './transactional-place.js';

const MODES = ['first', 'inside'] as const;

describeOnEachDatabase('a COMMIT without an answer', (start, dialect) => {
  /** SQLite commits in this very process. */
  const answersGetLost = dialect !== 'sqlite';
  let place: TransactionalPlace;
  let replica: Replica;
  let other: Replica;
  const faults = new CommitFaults();

  beforeAll(async () => {
    place = await TransactionalPlace.on(await start());
    replica = await place.replica({}, faults.prepare);
    other = await place.replica();
  });
  afterAll(() => place.stop());

  describe.each(MODES)('of a call that is claimed %s', (claim) => {
    const transactional = { claim };
    let key: string;
    beforeEach(() => (key = `${claim} ${randomUUID()}`));

    const call = (on: Replica | IdempotencyService, mark: string): Promise<string> => {
      const service = on instanceof IdempotencyService ? on : on.service;
      return elsewhere(() => service.runOnce(key, { transactional }, effect(key, mark)));
    };

    it('that was not carried out is a failure, after which the next call runs', async () => {
      faults.loseNextCommit();
      expect(await codeOf(call(replica, 'one'))).toBe('ECONNRESET');
      expect(await place.effectsOf(key)).toEqual([]);
      expect(await call(other, 'two')).toBe('two');
      expect(await place.effectsOf(key)).toEqual(['two']);
    });

    if (answersGetLost)
      it('that was carried out is a success, and its effect is there once', async () => {
        faults.loseNextAnswer();
        expect(await call(replica, 'one')).toBe('one');
        expect(await call(other, 'two')).toBe('one');
        expect(await place.effectsOf(key)).toEqual(['one']);
      });

    it.each(answersGetLost ? ['carried out', 'not carried out'] : ['not carried out'])(
      'is said to be unknown when the record cannot be asked either (%s)',
      async (fate) => {
        let away = false;
        faults.next = async (commit) => {
          away = true;
          if (fate === 'carried out') await commit();
          throw lost();
        };
        const clock = new ManualClock();
        const store = unreachableWhile(() => away, replica.store);
        const unknown = expect(call(new IdempotencyService({ store, clock }), 'one')).rejects.toMatchObject({
          code: 'STORE_UNAVAILABLE',
          outcome: 'unknown',
        });
        while (!away) await turn(); // until then no time passes, however slow the database is
        await passTime(clock, unknown);
        away = false;
        await place.lapse();
        const came = fate === 'carried out' ? 'one' : 'two';
        expect(await call(other, 'two')).toBe(came);
        expect(await place.effectsOf(key)).toEqual([came]);
      },
    );
  });

  if (!answersGetLost) return;

  describe('because the link is cut', () => {
    let proxy: TcpProxy;
    let linked: Replica;

    beforeAll(async () => {
      const { url } = place.plain.options as { readonly url: string };
      proxy = await startProxy(Number(new URL(url).port));
      const through = new URL(url);
      through.port = String(proxy.port);
      linked = await place.replica({ url: through.href }, faults.prepare);
    });
    afterAll(() => proxy.stop());

    it.each(MODES)('is a success as soon as the database can be asked (claimed %s)', async (claim) => {
      const key = `cut ${claim} ${randomUUID()}`;
      const cut = async (): Promise<void> => {
        while ((await place.effectsOf(key)).length === 0);
        proxy.cut();
        await proxy.heal();
      };
      faults.next = (commit) => {
        proxy.dropReplies(1);
        void cut();
        return commit();
      };
      const transactional = { claim };
      expect(await linked.service.runOnce(key, { transactional }, effect(key, 'one'))).toBe('one');
      expect(await place.effectsOf(key)).toEqual(['one']);
      expect(linked.events.map(({ type: told }) => told)).not.toContain('completed');
    });
  });
});

async function passTime(clock: ManualClock, until: Promise<void>): Promise<void> {
  let over = false;
  const ended = until.finally(() => (over = true));
  for (ended.catch(() => undefined); !over; await turn()) await clock.advance(100);
  await ended;
}

/** The store behind a network that is down at times. */
function unreachableWhile(isAway: () => boolean, store: IdempotencyStore): IdempotencyStore {
  const unlessAway = <A extends unknown[], R>(step: (...args: A) => Promise<R>) => {
    return (...args: A): Promise<R> => (isAway() ? Promise.reject(lost()) : step(...args));
  };
  return {
    kind: store.kind,
    minLeaseMs: store.minLeaseMs,
    transactions: store.transactions,
    claim: unlessAway(store.claim.bind(store)),
    renew: unlessAway(store.renew.bind(store)),
    settle: unlessAway(store.settle.bind(store)),
    resolve: unlessAway(store.resolve.bind(store)),
    forget: unlessAway(store.forget.bind(store)),
    read: unlessAway(store.read.bind(store)),
    purge: unlessAway(store.purge.bind(store)),
    close: () => Promise.resolve(),
  };
}
