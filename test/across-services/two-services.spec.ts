import { LockService, memoryStore, type Lease, type LockStore } from 'nestjs-distributed-lock';
import type { DataSource } from 'typeorm';

import { describeOnEachDatabase, type TestDatabase } from '../typeorm/databases.js';
import { elsewhere } from '../typeorm/owners.js';
import {
  Billing,
  createTables,
  fenceOf,
  guarded,
  Ledger,
  ledgerGate,
  locksOf,
  post,
  putInvoice,
  rowOf,
  startService,
  type Service,
} from './services.js';

const SEED = Number(process.env['SEED'] ?? Date.now() % 2 ** 31);
const LONG = { ttlMs: 120_000, waitMs: 0 };
const NEVER_RUN = { code: 'FENCED_OUT', outcome: 'not-started', status: 409 };

/** What a pause of the holder beyond its lease comes to: the store gives the key to the next, and the holder does not know. */
async function takeOver(store: LockStore, from: Lease | undefined, successor: Service): Promise<Lease> {
  if (!from) throw new Error('nobody holds the lock');
  await store.release({ key: from.qualifiedKey, ownerId: from.ownerId, keepForMs: 0 }, 1_000);
  return elsewhere(() => successor.app.get(LockService).acquire(from.key, LONG));
}

describeOnEachDatabase('Service A holds the lock and calls service B, on one database', (start) => {
  const store = memoryStore();
  let database: TestDatabase;
  let rows: DataSource;
  let billing: Service;
  let replica: Service;
  let ledger: Service;
  let id = 0;
  const invoice = (): string => String(id);
  const url = (): string => `${ledger.url}/ledger`;

  beforeAll(async () => {
    database = await start();
    rows = await createTables(database);
    const service = async (parts: object): Promise<Service> =>
      startService({ imports: [locksOf(store), ...(await guarded(database))], ...parts });
    billing = await service({ providers: [Billing] });
    replica = await service({ providers: [Billing] });
    ledger = await service({ controllers: [Ledger] });
  });
  beforeEach(async () => {
    id += 1;
    await putInvoice(rows, invoice());
  });
  afterAll(async () => {
    for (const service of [billing, replica, ledger]) await service.stop();
    await rows.destroy();
    await database.stop();
  });

  it('B writes guarded rows under the token of A', async () => {
    const answer = await billing.app.get(Billing).settle(invoice(), 'A', url());
    const token = billing.app.get(Billing).lease?.token;
    expect(answer).toEqual({ status: 201, body: { token } });
    expect(await rowOf(rows, invoice())).toEqual({ status: 'settled by A', token });
  });

  it('B refuses the call of an A that was succeeded while it was paused, 409, and the row is unchanged', async () => {
    const service = billing.app.get(Billing);
    const arrived = service.gate.close();
    const call = service.settle(invoice(), 'the stale A', url()).catch((error: unknown) => error);
    await arrived;
    const successor = await takeOver(store, service.lease, replica);
    const sent = post(`${url()}/${invoice()}/settle`, tokenHeader(service.lease), { by: 'the stale A' });
    expect(await sent).toMatchObject({ status: 409, body: NEVER_RUN });
    service.gate.open();
    await call; // the same again, by the service itself
    expect(await rowOf(rows, invoice())).toEqual({ status: 'READY', token: 0 });

    // The positive control: without decorator and guard, the stale call writes.
    await post(`${url()}/${invoice()}/settle-unchecked`, tokenHeader(service.lease), { by: 'the stale A' });
    expect((await rowOf(rows, invoice())).status).toBe('settled by the stale A');
    const next = await post(`${url()}/${invoice()}/settle`, tokenHeader(successor), { by: 'its successor' });
    expect(next.status).toBe(201);
    expect(await rowOf(rows, invoice())).toEqual({
      status: 'settled by its successor',
      token: successor.token,
    });
    await successor.release();
  });

  it('B refuses the write when A is succeeded while B is at work: 503 that says so, and the row is unchanged', async () => {
    const lease = await billing.app.get(LockService).acquire(`invoice:${invoice()}`, LONG);
    const arrived = ledgerGate.close();
    const call = post(`${url()}/${invoice()}/settle-slowly`, tokenHeader(lease), { by: 'the stale A' });
    await arrived;
    const successor = await takeOver(store, lease, replica);
    ledgerGate.open();
    expect(await call).toMatchObject({
      status: 503,
      body: {
        status: 503,
        code: 'FENCED_OUT',
        outcome: 'unknown',
        detail: expect.stringContaining('What it did before stands'),
      },
    });
    expect(await rowOf(rows, invoice())).toEqual({ status: 'READY', token: 0 });
    await successor.release();
  });

  it('B refuses at once, and not only at the write: what the handler does besides rows does not happen', async () => {
    const lease = await billing.app.get(LockService).acquire(`invoice:${invoice()}`, LONG);
    const successor = await takeOver(store, lease, replica);
    let entered = false;
    void ledgerGate.close().then(() => (entered = true));
    const answer = await post(`${url()}/${invoice()}/settle-slowly`, tokenHeader(lease), { by: 'A' });
    ledgerGate.open();
    expect({ answer, entered }).toMatchObject({ answer: { status: 409, body: NEVER_RUN }, entered: false });
    await successor.release();
  });

  it('B believes a token whose key has no fence yet, and A, when it comes itself, is not locked out by that', async () => {
    const key = `invoice:${invoice()}`;
    const late = new LockService({ stores: { default: store } }); // no guards here: nothing is raised on acquire
    const lease = await late.acquire(key, LONG);
    expect(await fenceOf(rows, key)).toBeNull();
    const answer = await post(`${url()}/${invoice()}/settle`, tokenHeader(lease), { by: 'A' });
    expect(answer.status).toBe(201);
    expect(await fenceOf(rows, key)).toEqual({ token: lease.token, owner: '' });
    await lease.release();
    await expect(billing.app.get(LockService).withLock(key, LONG, () => 'held')).resolves.toBe('held');
    expect((await fenceOf(rows, key))?.owner).not.toBe('');
    await late.close(0);
  });
});

describeOnEachDatabase('Service B has a database and a fence of its own', (start) => {
  const store = memoryStore();
  let database: TestDatabase;
  let rows: DataSource;
  let billing: Service;
  let ledger: Service;
  let id = 0;
  const invoice = (): string => String(id);
  const settle = (token: number | string, route = 'settle') =>
    post(
      `${ledger.url}/ledger/${invoice()}/${route}`,
      { 'Fencing-Token': String(token) },
      { by: `${token}` },
    );

  beforeAll(async () => {
    database = await start();
    rows = await createTables(database);
    billing = await startService({ imports: [locksOf(store)], providers: [Billing] });
    // Its own lock store knows nothing of A's.
    ledger = await startService({
      imports: [locksOf(memoryStore()), ...(await guarded(database))],
      controllers: [Ledger],
    });
  });
  beforeEach(async () => {
    id += 1;
    await putInvoice(rows, invoice());
  });
  afterAll(async () => {
    for (const service of [billing, ledger]) await service.stop();
    await rows.destroy();
    await database.stop();
  });

  it('believes a token that is ahead of its fence where it has opted in, and then refuses the older ones', async () => {
    const service = billing.app.get(Billing);
    expect(await service.settle(invoice(), 'A', `${ledger.url}/ledger`)).toMatchObject({ status: 201 });
    const first = service.lease?.token ?? 0;
    expect(await fenceOf(rows, `invoice:${invoice()}`)).toEqual({ token: first, owner: '' });
    expect(await settle(first)).toMatchObject({ status: 201 }); // again, as a retry would
    expect(await settle(first - 1)).toMatchObject({ status: 409, body: NEVER_RUN });

    expect(await service.settle(invoice(), 'the next owner', `${ledger.url}/ledger`)).toMatchObject({
      status: 201,
    });
    const second = service.lease?.token ?? 0;
    expect(second).toBeGreaterThan(first);
    expect(await settle(first)).toMatchObject({ status: 409, body: NEVER_RUN });
    expect(await rowOf(rows, invoice())).toEqual({ status: 'settled by the next owner', token: second });
  });

  it('does not believe it where it has not: the write is refused, and the fence stays', async () => {
    const { status } = await billing.app
      .get(Billing)
      .settleBy('settle-strictly', invoice(), 'A', `${ledger.url}/ledger`);
    expect(status).toBe(503); // FENCED_OUT, on a route that says nothing about tokens
    expect(await fenceOf(rows, `invoice:${invoice()}`)).toBeNull();
    expect((await rowOf(rows, invoice())).status).toBe('READY');
  });

  it('does not believe a token from the future, which would lock honest owners out', async () => {
    const micros = Date.now() * 1_000;
    for (const token of [micros + 120_000_000, 2 ** 53 - 1]) {
      expect(await settle(token)).toMatchObject({
        status: 400,
        body: { code: 'FENCING_TOKEN_INVALID', outcome: 'not-started' },
      });
    }
    expect(await fenceOf(rows, `invoice:${invoice()}`)).toBeNull();
    expect(await settle(micros + 20_000_000)).toMatchObject({ status: 201 }); // clocks differ
  });

  it(`of many at once keeps what the highest wrote, and accepts nothing lower after it (seed ${SEED})`, async () => {
    const base = Date.now() * 1_000;
    const random = seededRandom(SEED);
    const round = async (name: string): Promise<void> => {
      await putInvoice(rows, name);
      const tokens = [1, 2, 3].map((step) => base + step).sort(() => random() - 0.5);
      const send = async (token: number) => ({
        token,
        ...(await post(
          `${ledger.url}/ledger/${name}/settle`,
          { 'Fencing-Token': `${token}` },
          { by: `${token}` },
        )),
      });
      const answers = await Promise.all(tokens.map(send));
      const highest = base + 3;
      expect(answers.find(({ token }) => token === highest)).toMatchObject({ status: 201 });
      const refused = answers.filter(({ status }) => status !== 201);
      expect(refused.filter(({ body }) => body['code'] !== 'FENCED_OUT')).toEqual([]);
      expect(await rowOf(rows, name)).toEqual({ status: `settled by ${highest}`, token: highest });
    };
    for (let rounds = 0; rounds < 104; rounds += 8) {
      await Promise.all(Array.from({ length: 8 }, (_, i) => round(`race-${rounds + i}`)));
    }
  });
});

function tokenHeader(lease: Lease | undefined): Record<string, string> {
  return { 'Fencing-Token': String(lease?.token) };
}

/** Any sequence will do, as long as the seed repeats it. */
function seededRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
    return state / 2 ** 32;
  };
}
