import type { Lease } from 'nestjs-distributed-lock';

import { describeOnEachDatabase } from './databases.js';
import { Invoice, InvoiceLine } from './invoices.js';
import { empty, Owners, seed, type Owner } from './owners.js';

describeOnEachDatabase('A save() that changes nothing', (start) => {
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
  const read = (row = id) => rows().findOneByOrFail({ id: row });

  it('passes under the lock, with one question to the fence and no write', async () => {
    const invoice = await read();
    await lease.run(() => rows().save(invoice));
    expect(statements.filter((sql) => sql.includes('lock_fence'))).toHaveLength(1);
    expect(statements.every((sql) => sql.startsWith('SELECT'))).toBe(true);
    expect((await read()).version).toBe(1);
  });

  it('is refused to a stale owner, like one that changes something', async () => {
    const invoice = await read();
    const current = await owners.takeOver(lease, successor);
    const saves: (() => Promise<unknown>)[] = [
      () => rows().save(invoice),
      () => rows().save([invoice]),
      () => owner.dataSource.manager.save(Invoice, { id }),
      () => owner.dataSource.transaction((m) => m.save(invoice).catch(() => undefined)),
    ];
    for (const save of saves) {
      await expect(lease.run(save)).rejects.toMatchObject({ code: 'FENCED_OUT' });
    }
    await current.release();
  });

  it('asks once for each lock, and not about rows whose guard has spoken', async () => {
    const other = await owners.hold(owner, `invoice:${id}-b`);
    const all = [Object.assign(await read(), { status: 'SETTLED' }), await read(`${id}-b`)];
    statements.length = 0;
    await lease.run(() => other.run(() => rows().save(all)));
    expect(statements.filter((sql) => /^SELECT.*lock_fence/.test(sql))).toHaveLength(1);
    await owners.takeOver(other, successor).then((current) => current.release());
    const again = [Object.assign(await read(), { status: 'AGAIN' }), await read(`${id}-b`)];
    await expect(lease.run(() => other.run(() => rows().save(again)))).rejects.toMatchObject({
      code: 'FENCED_OUT',
    });
    await other.release();
  });

  it('passes without a lock, as nothing was written', async () => {
    await rows().save(await read());
    expect(statements.filter((sql) => sql.includes('lock_fence'))).toEqual([]);
    await rows().save([]);
    await owner.repository(InvoiceLine).save(await owner.repository(InvoiceLine).findOneByOrFail({}));
  });
});
