import { IdempotencyService, type ClaimAnswer, type IdempotencyStore } from 'nestjs-distributed-lock';

import { claimOn, lapsed, newId } from './record-steps.js';
import type { StorePlace } from './each-store.js';

const ROUNDS = 1_000;
const ROUNDS_AT_ONCE = 20;
const CALLERS = 4;
/** Some 20 000 statements on MariaDB or MySQL: seconds, and minutes on a busy machine. */
const LIMIT_MS = 600_000;
/** 80 of them are under way at once: on a busy machine the last ones wait for long. No lease ends meanwhile. */
const PATIENCE_MS = 60_000;
const LONG = { leaseMs: LIMIT_MS, keepMs: LIMIT_MS };

/** Races for one record, between callers of two processes. */
export function raceForRecords(start: () => Promise<StorePlace>): void {
  let place: StorePlace;
  let stores: readonly [IdempotencyStore, IdempotencyStore];

  beforeAll(async () => {
    place = await start();
    stores = [place.connect(), place.connect()];
  });
  afterAll(async () => {
    await Promise.all(stores.map((store) => store.close()));
    await place.stop();
  });

  /** Callers of two processes that ask at the same moment. */
  function ask(id: string): Promise<{ ownerId: string; answer: ClaimAnswer }[]> {
    const claims = Array.from({ length: CALLERS }, () => claimOn(id, LONG));
    const asked = claims.map(async (claim, i) => {
      const store = stores[i % 2] as IdempotencyStore;
      return { ownerId: claim.ownerId, answer: await store.claim(claim, PATIENCE_MS) };
    });
    return Promise.all(asked);
  }

  async function round(): Promise<{ first: number; second: number; rises: boolean }> {
    const id = newId();
    const first = (await ask(id)).filter(({ answer }) => answer.kind === 'claimed');
    await stores[0].settle(id, first[0]?.ownerId ?? '', lapsed(true), PATIENCE_MS);
    const second = (await ask(id)).filter(({ answer }) => answer.kind === 'claimed');
    const [one, two] = [first[0]?.answer, second[0]?.answer];
    const rises =
      one?.kind === 'claimed' && two?.kind === 'claimed' && two.fence > one.fence && two.takenOver;
    return { first: first.length, second: second.length, rises };
  }

  it(
    `has exactly one winner in ${ROUNDS} rounds of first claims and of take-overs, and the fence rises (C059, C010)`,
    async () => {
      const odd: unknown[] = [];
      for (let done = 0; done < ROUNDS; done += ROUNDS_AT_ONCE) {
        const rounds = await Promise.all(Array.from({ length: ROUNDS_AT_ONCE }, () => round()));
        odd.push(...rounds.filter(({ first, second, rises }) => first !== 1 || second !== 1 || !rises));
      }
      expect(odd).toEqual([]);
    },
    LIMIT_MS,
  );

  it(
    'of 50 calls in two processes ends with one execution and 49 equal answers, or refusals where they may not wait (C059)',
    async () => {
      const services = stores.map((store) => new IdempotencyService({ store }));
      const reads = jest.spyOn(stores[0], 'read');
      let runs = 0;
      const call = (i: number, key: string, waitMs: number, until: Promise<void>): Promise<unknown> =>
        (services[i % 2] as IdempotencyService)
          .runOnce(key, { waitMs }, async () => {
            runs += 1;
            await until;
            return { total: 10n, paidAt: new Date(5) };
          })
          .catch((error: { code: string; outcome: string }) => `${error.code}, ${error.outcome}`);
      const asked = gate();
      const waiting = Array.from({ length: 50 }, (_, i) => call(i, 'waiting', 60_000, asked.passed));
      while (reads.mock.calls.length < 25) await new Promise((resolve) => setImmediate(resolve));
      asked.open();
      expect(await Promise.all(waiting)).toEqual(
        Array.from({ length: 50 }, () => ({ total: 10n, paidAt: new Date(5) })),
      );
      expect(runs).toBe(1);
      const refused = gate();
      let refusals = 0;
      const impatient = Array.from({ length: 50 }, (_, i) =>
        call(i, 'impatient', 0, refused.passed).then((answer) => {
          if (answer !== 'IDEMPOTENCY_IN_PROGRESS, not-started') return;
          refusals += 1;
          if (refusals === 49) refused.open();
        }),
      );
      await Promise.all(impatient);
      expect(refusals).toBe(49);
      expect(runs).toBe(2);
    },
    LIMIT_MS,
  );
}

/** A promise that a test settles by hand. */
function gate(): { readonly passed: Promise<void>; open(): void } {
  let open!: () => void;
  const passed = new Promise<void>((resolve) => (open = resolve));
  return { passed, open };
}
