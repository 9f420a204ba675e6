import { describeWithServers, startPostgres, startRedis, type TestServer } from '../servers/index.js';
import { parseStoreChoice, type StoreChoice } from '../../apps/demo-billing/src/command-line/store-choice.js';
import { COMPILE_TIMEOUT_MS, compileDemo } from './demo-run.js';
import { invoice, PayDesk, type Answer } from './pay-desk.js';

const REQUESTS = 50;
/** A killed process leaves a record and a lock behind, which have to lapse first. */
const PATIENCE_MS = 30_000;
const OTHER_TENANT = 'Řeka s.r.o.';

const ids = ['storm', 'keys', 'lost', 'killed', 'first', 'second', 'keyless', 'mine'];
const invoices = [...ids.map((id) => invoice(id)), invoice('theirs', OTHER_TENANT)];
const embedded = { stop: () => Promise.resolve(), choice: { kind: 'embedded' } as StoreChoice };

async function onServer(start: () => Promise<TestServer>) {
  const server = await start();
  return { stop: () => server.stop(), choice: parseStoreChoice(server.url) };
}

describe.each([
  ['SQLite', [], () => Promise.resolve(embedded)],
  ['Redis', ['redis'], () => onServer(startRedis)],
  ['PostgreSQL', ['postgres'], () => onServer(startPostgres)],
] as const)('POST /invoices/:id/pay at two processes on %s', (_, kinds, start) => {
  describeWithServers([...kinds], 'with an Idempotency-Key', () => {
    const desk = new PayDesk();
    let place: typeof embedded;
    beforeAll(async () => {
      compileDemo();
      place = await start();
      await desk.open(place.choice, invoices, { loseAnswersOf: ['lost'] });
    }, COMPILE_TIMEOUT_MS);
    afterAll(async () => {
      await desk.close();
      await place.stop();
    });

    const storm = (key: (turn: number) => string, id: string): Promise<Answer[]> =>
      Promise.all(
        Array.from({ length: REQUESTS }, (_request, turn) =>
          desk.pay(turn % 2 === 0 ? 0 : 1, { id, key: key(turn) }),
        ),
      );

    it('C059: charges once for 50 parallel requests, and answers the others with equal replays or 409', async () => {
      const answers = await storm(() => 'storm', 'storm');
      expect(answers.filter(({ status }) => status !== 201 && status !== 409)).toEqual([]);
      expect(desk.chargesOf('storm')).toHaveLength(1);
      const receipts = answers.filter(({ status }) => status === 201);
      expect(new Set(receipts.map(({ text }) => text)).size).toBe(1);
      expect(receipts.filter(({ replayed }) => !replayed)).toHaveLength(1);
      const later = await Promise.all(
        [0, 1].map((at) => desk.pay(at as 0 | 1, { id: 'storm', key: 'storm' })),
      );
      expect(later).toEqual([0, 1].map(() => ({ ...receipts[0], replayed: true })));
    });

    it('charges once when every client has a key of its own', async () => {
      const answers = await storm((turn) => `key ${turn}`, 'keys');
      expect(answers.filter(({ status }) => status !== 201 && status !== 409)).toEqual([]);
      expect(desk.chargesOf('keys')).toHaveLength(1);
      const late = await desk.payPatiently(1, { id: 'keys', key: 'key 1' }, PATIENCE_MS);
      expect(JSON.parse(late.text)).toMatchObject({ invoiceId: 'keys', amount: '12.50 EUR' });
    });

    it('charges once when the answer of the gateway was lost and the client asks again', async () => {
      const first = await desk.pay(0, { id: 'lost', key: 'lost' });
      expect([first.status, desk.chargesOf('lost').length]).toEqual([503, 1]);
      const second = await desk.payPatiently(1, { id: 'lost', key: 'lost' }, PATIENCE_MS);
      expect([second.status, second.replayed, desk.chargesOf('lost').length]).toEqual([201, false, 1]);
    });

    it('C010: charges once when a process is killed between charge and save, and the other one is asked', async () => {
      await desk.dieAfterCharge({ id: 'killed', key: 'killed' });
      expect(desk.chargesOf('killed')).toHaveLength(1);
      const answer = await desk.payPatiently(1, { id: 'killed', key: 'killed' }, PATIENCE_MS);
      expect([answer.status, answer.replayed, desk.chargesOf('killed').length]).toEqual([201, false, 1]);
      await desk.revive(0);
      await expect(desk.pay(0, { id: 'killed', key: 'killed' })).resolves.toEqual({
        ...answer,
        replayed: true,
      });
    });

    it('refuses a key that was used for another invoice with 422, and no key with 400', async () => {
      await desk.pay(0, { id: 'first', key: 'reused' });
      const reused = await desk.pay(1, { id: 'second', key: 'reused' });
      const keyless = await desk.pay(1, { id: 'keyless' });
      expect([reused.status, keyless.status]).toEqual([422, 400]);
      expect(['first', 'second', 'keyless'].map((id) => desk.chargesOf(id).length)).toEqual([1, 0, 0]);
    });

    it('never gives one tenant the answer of another, whatever their keys', async () => {
      const mine = await desk.pay(0, { id: 'mine', key: 'same' });
      const tenant = encodeURIComponent(OTHER_TENANT);
      const theirs = await desk.pay(1, { id: 'theirs', key: 'same', tenant });
      expect([mine, theirs].map(({ status, replayed }) => [status, replayed])).toEqual([
        [201, false],
        [201, false],
      ]);
      expect(theirs.text).toContain('theirs');
      const foreign = await desk.pay(1, { id: 'mine', key: 'same', tenant });
      const nobody = await desk.pay(1, { id: 'mine', key: 'same', tenant: '%' });
      expect([foreign.status, nobody.status]).toEqual([404, 401]);
    });
  });
});

describe('the same route without a record', () => {
  const desk = new PayDesk();
  beforeAll(async () => {
    compileDemo();
    await desk.open({ kind: 'embedded' }, invoices, { loseAnswersOf: ['lost'], unsafe: true });
  }, COMPILE_TIMEOUT_MS);
  afterAll(() => desk.close());

  it('charges twice when the answer of the gateway was lost and the client asks again', async () => {
    await desk.pay(0, { id: 'lost', key: 'lost' });
    await desk.pay(1, { id: 'lost', key: 'lost' });
    expect(desk.chargesOf('lost')).toHaveLength(2);
  });

  it('charges twice when a process is killed between charge and save, and the other one is asked', async () => {
    await desk.dieAfterCharge({ id: 'killed', key: 'killed' });
    await desk.pay(1, { id: 'killed', key: 'killed' });
    expect(desk.chargesOf('killed')).toHaveLength(2);
  });
});
