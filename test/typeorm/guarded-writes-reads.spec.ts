import type { Lease } from 'nestjs-distributed-lock';
import { readAndFence, unfenced } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase } from './databases.js';
import { Invoice, InvoiceLine, Label } from './invoices.js';
import { contents, empty, Owners, seed, withOwners, type Owner } from './owners.js';

describeOnEachDatabase('readAndFence()', (start, dialect) => {
  let owners: Owners;
  let owner: Owner;
  let successor: Owner;
  let id: string;
  let lease: Lease;
  let lastId = 0;
  const statements: string[] = [];

  beforeAll(async () => {
    owners = await Owners.on(await start());
    owner = await owners.add();
    successor = await owners.add();
    owner.dataSource.subscribers.push({ beforeQuery: ({ query }) => void statements.push(query) });
  });
  beforeEach(async () => {
    id = `${++lastId}`;
    await empty(owner);
    await seed(owner, id, `${id}-b`);
    lease = await owners.hold(owner, `invoice:${id}`);
    statements.length = 0;
  });
  afterEach(() => lease.release());
  afterAll(() => owners.stop());

  const rows = () => owner.repository(Invoice);
  const token = async (row = id): Promise<unknown> => {
    const query = rows().createQueryBuilder('i').addSelect('i.lockToken').withDeleted();
    return (await query.where({ id: row }).getOneOrFail()).lockToken;
  };

  it('gives the entity as findOne() does, and the row the token of its lock', async () => {
    const found = await rows().findOneByOrFail({ id });
    const fenced = await lease.run(() => readAndFence(Invoice, id));
    expect(fenced).toBeInstanceOf(Invoice);
    expect(fenced).toEqual(found);
    expect(Object.keys(fenced ?? {})).toEqual(Object.keys(found));
    expect(await token()).toBe(lease.token);
    expect(await token(`${id}-b`)).toBe(0);
    expect((await rows().findOneByOrFail({ id })).version).toBe(found.version);
  });

  it('is one statement on PostgreSQL, and a stamp and a read in one fenced transaction elsewhere', async () => {
    await lease.run(() => readAndFence(Invoice, { id }));
    if (dialect === 'postgres') return expect(statements).toHaveLength(1);
    const begin = dialect === 'sqlite' ? 'BEGIN' : 'START';
    const pins = dialect === 'sqlite' ? ['UPDATE', 'SELECT'] : ['SELECT'];
    const verbs = statements.map((sql) => sql.split(' ')[0]);
    expect(verbs).toEqual([begin, 'UPDATE', 'SELECT', ...pins, 'COMMIT']);
  });

  it('gives what can be saved under the same lock, and not later', async () => {
    const invoice = (await lease.run(() => readAndFence(Invoice, id))) as Invoice;
    await lease.run(() => rows().save(Object.assign(invoice, { status: 'SETTLED' })));
    expect(await rows().findOneByOrFail({ id })).toMatchObject({ status: 'SETTLED', version: 2 });
    const current = await owners.takeOver(lease, successor);
    const late = lease.run(() => rows().save(Object.assign(invoice, { status: 'LATE' })));
    await expect(late).rejects.toMatchObject({ code: 'FENCED_OUT' });
    await current.release();
  });

  it('finds the lock of a row whose key its id does not tell', async () => {
    const { id: lineId } = await owner.repository(InvoiceLine).findOneByOrFail({ invoice: { id } });
    const other = await owner.repository(InvoiceLine).findOneByOrFail({ invoice: { id: `${id}-b` } });
    await lease.run(async () => {
      expect(await readAndFence(InvoiceLine, lineId)).toMatchObject({ id: lineId, text: `line of ${id}` });
      await expect(readAndFence(InvoiceLine, other.id)).rejects.toMatchObject({ code: 'FENCED_OUT' });
    });
  });

  it('refuses a stale owner, whether the successor has written, or removed the row, or neither', async () => {
    const current = await owners.takeOver(lease, successor);
    const refused = async (): Promise<void> => {
      const before = await contents(owner);
      await expect(lease.run(() => readAndFence(Invoice, id))).rejects.toMatchObject({ code: 'FENCED_OUT' });
      expect(await contents(owner)).toEqual(before);
    };
    await refused();
    await current.run(() => successor.repository(Invoice).update({ id }, { paid: 1 }));
    await refused();
    await current.run(async () => {
      await successor
        .repository(InvoiceLine)
        .remove(await successor.repository(InvoiceLine).findBy({ invoice: { id } }));
      await successor.repository(Invoice).remove(await successor.repository(Invoice).findBy({ id }));
    });
    await refused();
    await current.release();
  });

  it('refuses a row of another lock', async () => {
    const refused = { code: expect.stringMatching(/FENCED_OUT|UNFENCED_WRITE/) as string };
    await expect(lease.run(() => readAndFence(Invoice, `${id}-b`))).rejects.toMatchObject(refused);
    expect(await token(`${id}-b`)).toBe(0);
  });

  it('returns null for a row that is not there, or soft-removed', async () => {
    await lease.run(async () => {
      await rows().softRemove(await rows().findOneByOrFail({ id }));
      expect(await readAndFence(Invoice, id)).toBeNull();
    });
    const none = await owners.hold(owner, 'invoice:none');
    expect(await none.run(() => readAndFence(Invoice, 'none'))).toBeNull();
    await none.release();
  });

  it('is part of the transaction that is open here, and dooms it when it is refused', async () => {
    const before = await contents(owner);
    const thrown = new Error('undone');
    const undone = lease.run(() =>
      owner.dataSource.transaction(async () => {
        await readAndFence(Invoice, id);
        throw thrown;
      }),
    );
    await expect(undone).rejects.toBe(thrown);
    expect(await contents(owner)).toEqual(before);
    await owners.takeOver(lease, successor).then((current) => current.release());
    for (const row of [id, 'none']) {
      const stale = row === id ? lease : await owners.hold(owner, 'invoice:none');
      if (row === 'none') await (await owners.takeOver(stale, successor)).release();
      const swallowed = stale.run(() =>
        owner.dataSource.transaction(async () => {
          await readAndFence(Invoice, row).catch(() => undefined);
        }),
      );
      await expect(swallowed).rejects.toMatchObject({ code: 'FENCED_OUT' });
      if (row === 'none') await stale.release();
    }
  });

  it('says what it needs: a lock, a fenced entity, a whole id', async () => {
    await expect(readAndFence(Invoice, id)).rejects.toMatchObject({ code: 'LOCK_NOT_HELD' });
    await expect(readAndFence(Invoice, id, { dataSource: owner.dataSource })).rejects.toMatchObject({
      code: 'UNFENCED_WRITE',
    });
    const config = {
      code: 'LOCK_CONFIG_INVALID',
      message: expect.stringContaining('Nothing was read') as string,
    };
    await lease.run(async () => {
      await expect(readAndFence(Label, 'x')).rejects.toMatchObject(config);
      await expect(readAndFence(class Unknown {}, 'x')).rejects.toMatchObject(config);
      await expect(readAndFence(Invoice, { status: 'READY' })).rejects.toMatchObject(config);
      await unfenced('nothing to fence by', () =>
        expect(readAndFence(Invoice, id)).rejects.toMatchObject({ code: 'UNFENCED_WRITE' }),
      );
    });
    expect(statements).toEqual([]);
  });

  it('raises the fence first, where acquiring does not', () =>
    withOwners(start, async (own) => {
      const late = await own.add({ fenceOnAcquire: false });
      await seed(late, 'x');
      const hold = await own.hold(late, 'invoice:x');
      expect(await hold.run(() => readAndFence(Invoice, 'x'))).toMatchObject({ id: 'x' });
      await hold.release();
    }));
});
