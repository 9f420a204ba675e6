import { EventEmitter } from 'node:events';

import { unfenced } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase } from './databases.js';
import { Invoice, InvoiceLine } from './invoices.js';
import { contents, empty, Owners, seed, type Owner } from './owners.js';
import { promised } from './promised.js';

describeOnEachDatabase('Work that outlives its call, or runs beside many others', (start) => {
  let owners: Owners;
  let first: Owner;
  let second: Owner;
  let lastId = 0;
  let id: string;

  beforeAll(async () => {
    owners = await Owners.on(await start());
    first = await owners.add();
    second = await owners.add();
  });
  beforeEach(async () => {
    id = `${++lastId}`;
    await empty(first);
    await seed(first, id);
  });
  afterAll(() => owners.stop());

  const read = (owner = second): Promise<Invoice> => owner.repository(Invoice).findOneByOrFail({ id });
  const pay = async (owner: Owner, amount: number): Promise<void> => {
    const invoice = await read(owner);
    invoice.paid += amount;
    await owner.repository(Invoice).save(invoice);
  };

  it('is refused once its call has ended, in the name of the lock it outlived (C123, C129)', async () => {
    const over = promised();
    let slow: Promise<unknown> = Promise.resolve();
    const call = first.locks.withLock(`invoice:${id}`, async () => {
      slow = over.kept.then(() => first.repository(Invoice).update({ id }, { paid: 5 }));
      slow.catch(() => undefined);
      await Promise.all([Promise.reject(new Error('failed fast')), slow]);
    });
    await expect(call).rejects.toThrow('failed fast');
    const current = await owners.hold(second, `invoice:${id}`);
    over.keep();
    await expect(slow).rejects.toMatchObject({
      code: 'LOCK_NOT_HELD',
      message: expect.stringContaining(`Lock "invoice:${id}" has been released`) as string,
    });
    expect((await read()).paid).toBe(0);
    await current.release();
  });

  it('takes the lock anew as a handler that outlives its emitter, and writes under its own token (C100)', async () => {
    const emitter = new EventEmitter();
    const over = promised();
    let handled: Promise<unknown> = Promise.resolve();
    emitter.on('settled', () => {
      handled = over.kept.then(() =>
        first.locks.withLock(`invoice:${id}`, (lease) => pay(first, 2).then(() => lease.token)),
      );
    });
    const outer = await first.locks.withLock(`invoice:${id}`, async (lease) => {
      await pay(first, 1);
      emitter.emit('settled');
      return lease.token;
    });
    over.keep();
    expect(await handled).toBeGreaterThan(outer);
    expect((await read()).paid).toBe(3);
  });

  it('finds its own token in each of 200 parallel bodies, also behind emitters, timers and callbacks of drivers (C054)', async () => {
    const ids = Array.from({ length: 200 }, (_, i) => `p${id}-${i}`);
    await unfenced('rows', () => first.repository(Invoice).insert(ids.map((each) => ({ id: each }))));
    const tokens = new Map<string, number>();
    const allAreIn = promised();
    const bodies: Promise<unknown>[] = [];
    // They come in one by one, for all at once would have to share the time that each has for its fence.
    for (const each of ids) {
      const isIn = promised();
      const body = first.locks.withLock(`invoice:${each}`, { ttlMs: 120_000 }, async (lease) => {
        tokens.set(each, lease.token);
        isIn.keep();
        await allAreIn.kept;
        await new Promise((resolve) => setTimeout(resolve, Math.random() * 5));
        await first.repository(Invoice).update({ id: each }, { status: each });
      });
      bodies.push(body);
      await Promise.race([isIn.kept, body]);
    }
    allAreIn.keep();
    await Promise.all(bodies);
    const rows = await first.repository(Invoice).createQueryBuilder('i').addSelect('i.lockToken').getMany();
    for (const row of rows.filter((each) => tokens.has(each.id))) {
      expect(row).toMatchObject({ status: row.id, lockToken: tokens.get(row.id) });
    }
    expect(tokens.size).toBe(200);
  });

  it('never nulls or deletes the children that were not loaded (C083)', async () => {
    await unfenced('a second line', () =>
      first.repository(InvoiceLine).insert({ invoice: { id }, text: 'second' }),
    );
    const before = await contents(first);
    const save = first.locks.withLock(`invoice:${id}`, async () => {
      const invoice = await first.repository(Invoice).findOneOrFail({
        where: { id, lines: { text: 'second' } },
        relations: { lines: true },
      });
      await first.repository(Invoice).save(Object.assign(invoice, { status: 'SETTLED' }));
    });
    await expect(save).rejects.toMatchObject({
      code: 'UNFENCED_WRITE',
      message: expect.stringContaining('orphan') as string,
    });
    expect(await contents(first)).toEqual(before);
  });
});
