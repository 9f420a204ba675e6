import { fenced, unfenced } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase } from './databases.js';
import { Invoice } from './invoices.js';
import { Owners, type Owner } from './owners.js';

const ROUNDS = 100;

/** Each writes row `id` in one statement, if it is let. */
const lateWrites: Record<string, (owner: Owner, id: string) => Promise<unknown>> = {
  'fenced delete': (owner, id) => fenced(owner.repository(Invoice)).delete(id),
  'fenced softDelete': (owner, id) => fenced(owner.repository(Invoice)).softDelete({ id, status: 'READY' }),
  'fenced upsert': (owner, id) => fenced(owner.repository(Invoice)).upsert({ id, status: 'LATE' }, ['id']),
};

/** What a lock without a fence lets through. */
const unguarded: typeof lateWrites = {
  'fenced delete': (owner, id) => owner.repository(Invoice).delete(id),
  'fenced softDelete': (owner, id) => owner.repository(Invoice).softDelete({ id, status: 'READY' }),
  'fenced upsert': (owner, id) => owner.repository(Invoice).upsert({ id, status: 'LATE' }, ['id']),
};

describeOnEachDatabase('A late statement that races with the successor', (start) => {
  let owners: Owners;
  let late: Owner;
  let successor: Owner;
  let lastId = 0;

  beforeAll(async () => {
    owners = await Owners.on(await start());
    late = await owners.add();
    successor = await owners.add();
  });
  afterAll(() => owners.stop());

  const row = (by: Owner, id: string) =>
    by.dataSource.query<unknown[]>(`SELECT * FROM invoice WHERE id = '${id}'`);

  /** True when one of `ROUNDS` changed what the successor had read when it began. */
  async function surprises(write: (id: string) => Promise<unknown>): Promise<boolean> {
    const ids = Array.from({ length: ROUNDS }, () => `${++lastId}`);
    await unfenced('rows', () => late.repository(Invoice).insert(ids.map((id) => ({ id }))));
    for (const [round, id] of ids.entries()) {
      const stale = await owners.hold(late, `invoice:${id}`);
      const writing = stale.run(async () => {
        for (let turn = 0; turn < round % 5; turn += 1) await new Promise(setImmediate);
        return write(id).catch(() => undefined);
      });
      const current = await owners.takeOver(stale, successor);
      const read = await row(successor, id);
      await writing;
      const later = await row(successor, id);
      await current.release();
      await stale.release();
      if (JSON.stringify(later) !== JSON.stringify(read)) return true;
    }
    return false;
  }

  for (const [name, write] of Object.entries(lateWrites)) {
    it(`${name}: comes before the successor reads, or not at all, in ${ROUNDS} rounds`, async () => {
      expect(await surprises((id) => write(late, id))).toBe(false);
    });
  }

  it('positive control: without guards the successor is surprised', async () => {
    const write = unguarded['fenced upsert'] as (owner: Owner, id: string) => Promise<unknown>;
    expect(await surprises((id) => unfenced('as if there were no guards', () => write(late, id)))).toBe(true);
  });
});
