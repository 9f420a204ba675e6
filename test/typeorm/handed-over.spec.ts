import type { Lease } from 'nestjs-distributed-lock';
import { unfenced, withExpectedLockToken } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase } from './databases.js';
import { Invoice, InvoiceLine } from './invoices.js';
import { contents, elsewhere, empty, Owners, seed, type Owner } from './owners.js';

/** What a service does that was asked by the holder of a lock, and holds none itself. */
const WRITES: Readonly<Record<string, (owner: Owner, id: string) => Promise<unknown>>> = {
  'save() of a loaded row': async (owner, id) => {
    const invoice = await owner.repository(Invoice).findOneByOrFail({ id });
    invoice.status = 'SETTLED';
    return owner.repository(Invoice).save(invoice);
  },
  'update()': (owner, id) => owner.repository(Invoice).update({ id }, { status: 'SETTLED' }),
  'increment()': (owner, id) => owner.repository(Invoice).increment({ id }, 'paid', 1),
  'an update query builder': (owner, id) =>
    owner.repository(Invoice).createQueryBuilder().update().set({ paid: 1 }).where({ id }).execute(),
  'insert()': (owner, id) => owner.repository(InvoiceLine).insert({ invoice: { id }, text: 'new' }),
  'remove()': async (owner, id) =>
    owner.repository(InvoiceLine).remove(await owner.repository(InvoiceLine).findBy({ invoice: { id } })),
  'softRemove()': async (owner, id) =>
    owner.repository(Invoice).softRemove(await owner.repository(Invoice).findOneByOrFail({ id })),
  'a transaction': (owner, id) =>
    owner.dataSource.transaction((manager) => manager.update(Invoice, { id }, { status: 'SETTLED' })),
};

describeOnEachDatabase('withExpectedLockToken()', (start) => {
  let owners: Owners;
  let holder: Owner;
  let downstream: Owner;
  let heir: Owner;
  let unguarded: Owner;
  let lease: Lease;

  beforeAll(async () => {
    owners = await Owners.on(await start());
    holder = await owners.add();
    downstream = await owners.add();
    heir = await owners.add();
    unguarded = await owners.add({ plain: true });
  });
  beforeEach(async () => {
    await seed(holder, '42', '43', '44');
    await (await owners.hold(holder, 'invoice:43')).release();
    lease = await owners.hold(holder, 'invoice:42');
  });
  afterEach(async () => {
    await lease.release();
    await empty(holder);
  });
  afterAll(() => owners.stop());

  const tokenOf = async (id: string): Promise<number> => {
    const rows = await holder.repository(Invoice).find({
      where: { id },
      select: { id: true, lockToken: true },
    });
    return rows[0]?.lockToken ?? Number.NaN;
  };

  describe.each(Object.entries(WRITES))('%s', (name, write) => {
    it('carries the token that was handed over', async () => {
      const before = await contents(holder);
      await withExpectedLockToken({ 'invoice:42': lease.token }, () => write(downstream, '42'));
      const after = await contents(holder);
      expect(after).not.toEqual(before);
      expect(JSON.stringify(after).includes(String(lease.token))).toBe(name !== 'remove()'); // which leaves no row
    });

    it('is refused once the holder has been succeeded, and changes nothing; without guards it writes', async () => {
      const successor = await owners.takeOver(lease, heir);
      const before = await contents(holder);
      const late = (owner: Owner): Promise<unknown> =>
        withExpectedLockToken({ 'invoice:42': lease.token }, () => write(owner, '42'));
      await expect(late(downstream)).rejects.toMatchObject({ code: 'FENCED_OUT', key: 'invoice:42' });
      expect(await contents(holder)).toEqual(before);
      await late(unguarded);
      expect(await contents(holder)).not.toEqual(before);
      await successor.release();
    });

    it('is refused for a row of another key', async () => {
      const before = await contents(holder);
      const stray = withExpectedLockToken({ 'invoice:42': lease.token }, () => write(downstream, '43'));
      await expect(stray).rejects.toMatchObject({ code: expect.stringMatching(/FENCED_OUT|UNFENCED_WRITE/) });
      expect(await contents(holder)).toEqual(before);
    });
  });

  it('refuses a token ahead of the fence, and one for a key that has no fence: neither is believed here', async () => {
    const settle = (key: string, id: string, token: number): Promise<unknown> =>
      withExpectedLockToken({ [key]: token }, () => WRITES['update()']?.(downstream, id));
    await expect(settle('invoice:42', '42', lease.token + 1)).rejects.toMatchObject({ code: 'FENCED_OUT' });
    await expect(settle('invoice:44', '44', lease.token)).rejects.toMatchObject({ code: 'FENCED_OUT' });
    await settle('invoice:42', '42', lease.token);
    expect(await tokenOf('42')).toBe(lease.token);
  });

  it('writes rows of several keys, each under its own token', async () => {
    const other = await owners.hold(holder, 'invoice:43');
    await withExpectedLockToken({ 'invoice:42': lease.token, 'invoice:43': other.token }, () =>
      downstream.repository(Invoice).save([
        { id: '42', status: 'SETTLED' },
        { id: '43', status: 'SETTLED' },
      ]),
    );
    expect([await tokenOf('42'), await tokenOf('43')]).toEqual([lease.token, other.token]);
    await other.release();
  });

  it('has to agree with the hold on the key, else the write is refused before it is sent', async () => {
    const statements: string[] = [];
    const expecting = (token: number, write: string): Promise<unknown> =>
      lease.run(() =>
        withExpectedLockToken({ 'invoice:42': token }, async () => {
          const subscriber = {
            beforeQuery: ({ query }: { query: string }) => void statements.push(query),
          };
          holder.dataSource.subscribers.push(subscriber);
          try {
            await WRITES[write]?.(holder, '42');
          } finally {
            holder.dataSource.subscribers.splice(holder.dataSource.subscribers.indexOf(subscriber), 1);
          }
        }),
      );
    for (const write of ['update()', 'save() of a loaded row', 'insert()']) {
      await expect(expecting(lease.token - 1, write)).rejects.toMatchObject({ code: 'FENCED_OUT' });
    }
    expect(statements.filter((sql) => /^(UPDATE|INSERT)/.test(sql))).toEqual([]);
    await expecting(lease.token, 'update()');
    expect(statements.filter((sql) => sql.startsWith('UPDATE'))).toHaveLength(1);
  });

  it('does not speak for a hold that was lost: the write is refused for the loss, and not sent', async () => {
    let refusal: unknown;
    let successor: Lease | undefined;
    const outlived = lease.run(async () => {
      successor = await owners.takeOver(lease, heir);
      await lease.extend(120_000).catch(() => undefined); // the store says that it is gone
      await withExpectedLockToken({ 'invoice:42': lease.token }, () =>
        WRITES['update()']?.(holder, '42'),
      ).catch((error: unknown) => (refusal = error));
    });
    await expect(outlived).rejects.toMatchObject({ code: 'LEASE_LOST' });
    expect(refusal).toMatchObject({ code: 'LEASE_LOST' });
    await successor?.release();
  });

  it('lets the holder itself make a fence its own that was raised for its token', async () => {
    const late = await owners.add({ fenceOnAcquire: false });
    const held = await owners.hold(late, 'invoice:44');
    await downstream.locks.acceptToken(held);
    const update = (): Promise<unknown> => late.repository(Invoice).update('44', { paid: 1 });
    await held.run(update);
    expect(await tokenOf('44')).toBe(held.token);
    const fences = await holder.dataSource.query<{ owner: unknown }[]>(
      'SELECT owner_id AS owner FROM lock_fence',
    );
    expect(fences.map(({ owner }) => String(owner))).toContain(held.ownerId);
    await downstream.locks.acceptToken(held); // which changes nothing any more
    await held.run(update);
    await held.release();
  });

  it('is told from the start by acceptToken(): a stale token, as an event too, and one of another store', async () => {
    downstream.events.length = 0;
    const stale = downstream.locks.acceptToken({ key: 'invoice:42', token: lease.token - 1 });
    await expect(stale).rejects.toMatchObject({
      code: 'FENCED_OUT',
      statusCode: 409,
      outcome: 'not-started',
    });
    expect(downstream.events).toEqual([
      expect.objectContaining({ type: 'stale-write-refused', token: lease.token - 1, entity: 'Invoice' }),
    ]);
    const foreign = downstream.locks.acceptToken(lease, { elsewhere: 'billing' });
    await expect(foreign).rejects.toMatchObject({
      code: 'FENCED_OUT',
      statusCode: 503,
      outcome: 'not-started',
      message: expect.stringContaining('Tokens of two stores do not compare'),
    });
    await downstream.locks.acceptToken({ key: 'invoice:45', token: 7 }, { elsewhere: 'billing' });
    await expect(owners.hold(holder, 'invoice:45')).rejects.toMatchObject({ code: 'FENCED_OUT' });
  });

  it('has to agree with expectedLockToken of the call itself', async () => {
    const save = (expectedLockToken: number): Promise<unknown> =>
      withExpectedLockToken({ 'invoice:42': lease.token }, () =>
        downstream.repository(Invoice).save({ id: '42', status: 'SETTLED' }, { data: { expectedLockToken } }),
      );
    await expect(save(lease.token - 1)).rejects.toMatchObject({ code: 'FENCED_OUT' });
    expect(await tokenOf('42')).toBe(0);
    await save(lease.token);
    expect(await tokenOf('42')).toBe(lease.token);
  });

  it('does not mix up calls side by side', async () => {
    const other = await owners.hold(holder, 'invoice:43');
    const settle = (token: number, id: string): Promise<unknown> =>
      withExpectedLockToken({ [`invoice:${id}`]: token }, () => WRITES['update()']?.(downstream, id));
    const rounds = Array.from({ length: 25 }, () => [
      settle(lease.token, '42'),
      settle(lease.token, '43'),
      settle(other.token, '43'),
      settle(other.token, '42'),
    ]).flat();
    const outcomes = (await Promise.allSettled(rounds)).map(({ status }) => status);
    expect(outcomes.filter((_, i) => i % 2 === 0)).toEqual(Array(50).fill('fulfilled'));
    expect(outcomes.filter((_, i) => i % 2 === 1)).toEqual(Array(50).fill('rejected'));
    await other.release();
  });

  it('ends with its work: what that left running is refused', async () => {
    let stray = Promise.resolve<unknown>(undefined);
    await withExpectedLockToken({ 'invoice:42': lease.token }, () => {
      stray = new Promise((resolve) => setImmediate(resolve)).then(() =>
        WRITES['update()']?.(downstream, '42'),
      );
      stray.catch(() => undefined);
    });
    await expect(stray).rejects.toMatchObject({ code: 'UNFENCED_WRITE' });
    expect(await tokenOf('42')).toBe(0);
  });

  it('means nothing inside unfenced(), and is guarded when it is begun there', async () => {
    const update = (): Promise<unknown> => downstream.repository(Invoice).update('42', { paid: 7 });
    await withExpectedLockToken({ 'invoice:42': 1 }, () => unfenced('a repair', update));
    const guarded = unfenced('a repair', () => withExpectedLockToken({ 'invoice:42': 1 }, update));
    await expect(guarded).rejects.toMatchObject({ code: 'FENCED_OUT' });
  });

  it('reports a refused write once, as stale', async () => {
    const successor = await owners.takeOver(lease, heir);
    downstream.events.length = 0;
    const late = withExpectedLockToken({ 'invoice:42': lease.token }, () =>
      downstream.repository(InvoiceLine).save({ invoice: { id: '42' }, text: 'late' }),
    );
    await expect(late).rejects.toMatchObject({ code: 'FENCED_OUT' });
    expect(downstream.events).toEqual([
      expect.objectContaining({ type: 'stale-write-refused', key: 'invoice:42', token: lease.token }),
    ]);
    await successor.release();
  });

  it('takes two tokens for one key for what they are', async () => {
    let entered = false;
    const nested = withExpectedLockToken({ 'invoice:42': 41 }, () =>
      withExpectedLockToken({ 'invoice:42': 42 }, () => void (entered = true)),
    );
    await expect(nested).rejects.toMatchObject({ code: 'FENCED_OUT' });
    const again = withExpectedLockToken({ 'invoice:42': 42 }, () =>
      withExpectedLockToken({ 'invoice:42': 42, 'invoice:43': 1 }, () => elsewhere(() => 'ran')),
    );
    await expect(again).resolves.toBe('ran');
    expect(entered).toBe(false);
  });
});

describe('withExpectedLockToken(), asked for nonsense', () => {
  it.each([undefined, null, '41', '', Number.NaN, -1, 1.5, 2 ** 53, Infinity, 41n, {}])(
    'refuses %p as a token, and the work does not run',
    async (token) => {
      const work = jest.fn();
      await expect(withExpectedLockToken({ 'invoice:42': token as number }, work)).rejects.toMatchObject({
        code: 'LOCK_CONFIG_INVALID',
      });
      expect(work).not.toHaveBeenCalled();
    },
  );

  it('refuses an empty key and no key at all', async () => {
    const work = jest.fn();
    await expect(withExpectedLockToken({ '': 41 }, work)).rejects.toMatchObject({ code: 'LOCK_KEY_INVALID' });
    await expect(withExpectedLockToken({}, work)).rejects.toMatchObject({ code: 'LOCK_CONFIG_INVALID' });
    expect(work).not.toHaveBeenCalled();
  });
});
