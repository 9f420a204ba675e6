import {
  IdempotencyInProgressError,
  LeaseLostError,
  type IdempotencyHappening,
} from 'nestjs-distributed-lock';

import { StaleTokenError } from '../gateway/payout-gateway.js';
import { FaultPoints } from './fault-points.js';
import type { FromWorker } from './messages.js';
import { WorkerDesk, type DeskNews } from './worker-desk.js';

const DELIVERY = { deliveryId: 1, invoiceId: 'a' };
const record = (happening: IdempotencyHappening): DeskNews => ({
  key: 'payout:a',
  label: 'payout:<id>',
  ...happening,
});
const claimed = (attempt: number): DeskNews =>
  record({ type: 'claimed', attempt, fence: attempt, takenOver: attempt > 1 });
const acquired: DeskNews = { type: 'acquired', token: 7 };

describe('the desk of a worker', () => {
  const said: FromWorker[] = [];
  const desk = new WorkerDesk(new FaultPoints(() => Promise.resolve()), (message) => {
    said.push(message);
    return Promise.resolve();
  });
  beforeEach(() => void (said.length = 0));

  /** Has one invoice settled, while this happens. */
  const settle = (news: readonly DeskNews[], error?: Error): Promise<void> =>
    desk.take(DELIVERY, {
      settle: () => {
        for (const each of news) desk.heard(each);
        return error ? Promise.reject(error) : Promise.resolve();
      },
    });

  it('answers with the token of the lock under which it has settled the invoice', async () => {
    await settle([claimed(1), acquired, record({ type: 'completed', attempt: 1, ranForMs: 5 })]);
    expect(said).toEqual([
      { kind: 'attempted', invoiceId: 'a', attempt: 1 },
      { kind: 'acquired', invoiceId: 'a', token: 7 },
      { kind: 'settled', delivery: DELIVERY, token: 7 },
    ]);
  });

  it('answers without a token when it was only given the receipt of an earlier call', async () => {
    await settle([acquired]);
    await settle([record({ type: 'replayed', waitedMs: 0 })]);
    expect(said.slice(-2)).toEqual([
      { kind: 'replayed' },
      { kind: 'settled', delivery: DELIVERY, token: null },
    ]);
  });

  it('tells who has stopped it, also when its call then got the receipt of its successor', async () => {
    const cause = new LeaseLostError('lost', {
      key: 'k',
      reason: 'expired',
      cause: new StaleTokenError('stale'),
    });
    await settle([claimed(1), acquired, record({ type: 'failed', attempt: 1, ending: 'lapsed', cause })]);
    expect(said.slice(-2)).toEqual([
      { kind: 'refused', by: 'gateway-token' },
      { kind: 'settled', delivery: DELIVERY, token: null },
    ]);
  });

  it('says that it has failed when the payout is at work elsewhere', async () => {
    const busy = new IdempotencyInProgressError('elsewhere', { retryAfterMs: 900 });
    await settle([record({ type: 'in-progress', waitedMs: 0, retryAfterMs: 900 })], busy);
    const failure = { code: 'IDEMPOTENCY_IN_PROGRESS', message: 'elsewhere', permanent: false };
    expect(said).toEqual([{ kind: 'failed', delivery: DELIVERY, failure }]);
  });
});
