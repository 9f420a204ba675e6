import {
  claimBatch,
  insertOnce,
  installWriteTrigger,
  transition,
  withAdvisoryLock,
  withRowLock,
} from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase } from './databases.js';
import { Invoice } from './invoices.js';
import { empty, Owners, seed, type Owner } from './owners.js';

describeOnEachDatabase('Primitives on a fenced entity', (start, dialect) => {
  let owners: Owners;
  let owner: Owner;
  let successor: Owner;
  let lastId = 0;
  let id: string;

  beforeAll(async () => {
    owners = await Owners.on(await start());
    owner = await owners.add();
    successor = await owners.add();
    const runner = owner.dataSource.createQueryRunner();
    await installWriteTrigger(runner, 'invoice');
    await runner.release();
  });
  beforeEach(async () => {
    id = `${++lastId}`;
    await empty(owner);
    await seed(owner, id);
  });
  afterAll(() => owners.stop());

  const invoices = () => owner.repository(Invoice);
  const row = () => invoices().findOneByOrFail({ id });

  it('transition() passes under the lock, and not without it or late', async () => {
    const step = (from: string, to: string) => transition(invoices(), id, from, to);
    await expect(step('READY', 'OPEN')).rejects.toMatchObject({ code: 'UNFENCED_WRITE' });
    const lease = await owners.hold(owner, `invoice:${id}`);
    expect(await lease.run(() => step('READY', 'OPEN'))).toBe(true);
    const next = await owners.takeOver(lease, successor);
    await expect(lease.run(() => step('OPEN', 'SETTLED'))).rejects.toMatchObject({ code: 'FENCED_OUT' });
    expect((await row()).status).toBe('OPEN');
    await next.release();
    await lease.release();
  });

  it('insertOnce() inserts under the lock, finds what is there, and lets no late owner bring a row back', async () => {
    const insert = (paid: number) => insertOnce(invoices(), { id: `${id}-new`, paid });
    const lease = await owners.hold(owner, `invoice:${id}-new`);
    await lease.run(async () => {
      expect(await insert(1)).toMatchObject({ inserted: true, row: { paid: 1 } });
      expect(await insert(2)).toMatchObject({ inserted: false, row: { paid: 1 } });
    });
    const next = await owners.takeOver(lease, successor);
    await next.run(async () => {
      const there = await successor.repository(Invoice).findOneByOrFail({ id: `${id}-new` });
      await successor.repository(Invoice).remove(there);
    });
    await expect(lease.run(() => insert(3))).rejects.toMatchObject({ code: 'FENCED_OUT' });
    expect(await invoices().countBy({ id: `${id}-new` })).toBe(0);
    await next.release();
    await lease.release();
  });

  it('takes the entity alone where one guarded DataSource has it, and the transaction that is open', async () => {
    await successor.dataSource.destroy();
    successor = await owners.add({ plain: true });
    const lease = await owners.hold(owner, `invoice:${id}`);
    await lease.run(async () => {
      const failing = owner.dataSource.transaction(async () => {
        expect(await transition(Invoice, id, 'READY', 'SETTLED')).toBe(true);
        throw new Error('rolled back');
      });
      await expect(failing).rejects.toThrow('rolled back');
      expect((await row()).status).toBe('READY');
      expect(await transition(Invoice, id, 'READY', 'SETTLED')).toBe(true);
    });
    await lease.release();
    successor = await owners.add();
    await expect(transition(Invoice, id, 'READY', 'X')).rejects.toMatchObject({
      code: 'LOCK_CONFIG_INVALID',
      message: expect.stringContaining('several guarded ones'),
    });
    const here = { dataSource: owner.dataSource };
    const toTheGuard = transition(Invoice, id, 'READY', 'X', {}, here);
    await expect(toTheGuard).rejects.toMatchObject({ code: 'UNFENCED_WRITE' });
  });

  if (dialect === 'sqlite') return;

  it('withRowLock(), claimBatch() and withAdvisoryLock() give managers whose writes are guarded', async () => {
    const pay = { paid: 1 };
    const calls = [
      () => withRowLock(invoices(), id, (_row, manager) => manager.update(Invoice, { id }, pay)),
      () =>
        claimBatch(invoices(), { where: { id }, limit: 1 }, (_rows, manager) =>
          manager.update(Invoice, { id }, pay),
        ),
      () =>
        withAdvisoryLock('pay', (manager) => manager.update(Invoice, { id }, pay), {
          dataSource: owner.dataSource,
        }),
    ];
    for (const call of calls) await expect(call()).rejects.toMatchObject({ code: 'UNFENCED_WRITE' });
    const lease = await owners.hold(owner, `invoice:${id}`);
    for (const call of calls) expect(await lease.run<Promise<unknown>>(call)).toMatchObject({ affected: 1 });
    const next = await owners.takeOver(lease, successor);
    for (const call of calls)
      await expect(lease.run<Promise<unknown>>(call)).rejects.toMatchObject({ code: 'FENCED_OUT' });
    await next.release();
    await lease.release();
  });
});
