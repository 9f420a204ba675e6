import { Column, Entity, PrimaryColumn } from 'typeorm';

import { FencedBy, LockTokenColumn, Unfenced, unfenced } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase } from './databases.js';
import { Invoice, InvoiceLine, Label } from './invoices.js';
import { empty, Owners, seed, type Owner } from './owners.js';

@Entity()
@FencedBy('draft:<id>', { unfencedWrites: 'allow' })
class Draft {
  @PrimaryColumn({ type: 'varchar' })
  id!: string;

  @Column({ type: 'text' })
  text!: string;

  @LockTokenColumn()
  lockToken!: number;
}

class Repair {
  constructor(private readonly owner: Owner) {}

  @Unfenced('a repair of the support team')
  async fix(id: string, paid = 5): Promise<string> {
    await this.owner.repository(Invoice).update({ id }, { paid });
    return `${id} fixed by ${this.constructor.name}`;
  }
}

describeOnEachDatabase('A write without a token', (start) => {
  let owners: Owners;
  let owner: Owner;
  let lastId = 0;
  let id: string;

  beforeAll(async () => {
    owners = await Owners.on(await start(), [Invoice, InvoiceLine, Label, Draft]);
    owner = await owners.add();
  });
  beforeEach(async () => {
    id = `${++lastId}`;
    await empty(owner);
    await seed(owner, id);
    owner.events.length = 0;
  });
  afterAll(() => owners.stop());

  const update = (by: Owner): Promise<unknown> => by.repository(Invoice).update({ id }, { paid: 1 });
  const refused = { code: 'UNFENCED_WRITE' };
  const passed = { type: 'unfenced-write', entity: 'Invoice', refused: false };

  it('passes inside unfenced(), and is an event', async () => {
    expect(await unfenced('an import', () => update(owner))).toMatchObject({ affected: 1 });
    expect(owner.events).toEqual([expect.objectContaining(passed)]);
    await expect(update(owner)).rejects.toMatchObject(refused);
  });

  it('needs a reason', () => {
    for (const reason of ['', '  ', undefined as unknown as string]) {
      expect(() => unfenced(reason, () => 1)).toThrow(/needs a reason/);
      expect(() => Unfenced(reason)).toThrow(/needs a reason/);
    }
  });

  it('passes in a method that is @Unfenced, which keeps this, arguments, name and length', async () => {
    expect(await new Repair(owner).fix(id)).toBe(`${id} fixed by Repair`);
    const { name, length } = Object.getOwnPropertyDescriptor(Repair.prototype, 'fix')?.value as () => void;
    expect([name, length]).toEqual(['fix', 1]);
    expect((await owner.repository(Invoice).findOneByOrFail({ id })).paid).toBe(5);
  });

  it('is refused again under a hold that was begun inside unfenced()', async () => {
    await seed(owner, `${id}-b`);
    await unfenced('an import', async () => {
      await owner.locks.withLock(`invoice:${id}-b`, async () => {
        await expect(update(owner)).rejects.toMatchObject({ code: 'FENCED_OUT' });
        const save = owner.repository(Invoice).save({ id, paid: 1 });
        await expect(save).rejects.toMatchObject(refused);
        await expect(owner.dataSource.query('DELETE FROM invoice')).rejects.toMatchObject(refused);
        await owner.repository(Invoice).update({ id: `${id}-b` }, { paid: 1 });
      });
      await update(owner);
    });
  });

  it('passes inside unfenced() although the hold around it is over, since nothing is asked of it', async () => {
    const stale = await owners.hold(owner, `invoice:${id}`);
    stale.lose('expired');
    const audit = stale.run(() => update(owner));
    await expect(audit).rejects.toMatchObject({ code: 'LEASE_LOST' });
    await owner.locks.withLock('something', () => unfenced('an audit record', () => update(owner)));
    await stale.release();
  });

  it("passes under 'warn', which reports each place in the code once, while holds are guarded all the same", async () => {
    const lenient = await owners.add({ unfencedWrites: 'warn' });
    const warn = jest.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
    for (let i = 0; i < 3; i += 1) await update(lenient);
    await lenient.repository(InvoiceLine).delete({ invoice: { id } });
    await lenient.dataSource.query(`UPDATE invoice SET status = 'RAW'`);
    await lenient.repository(Invoice).insert({ id: `${id}-new` });
    const texts = warn.mock.calls.map(([text]) => String(text));
    warn.mockRestore();
    expect(texts).toHaveLength(4);
    expect(texts[0]).toMatch(/Invoice by UPDATE.*unfenced-writes\.spec\.ts.*@Locked\('invoice:<id>'\)/s);
    expect(lenient.events.filter(({ type }) => type === 'unfenced-write')).toHaveLength(6);
    const stale = await owners.hold(lenient, `invoice:${id}`);
    const current = await owners.takeOver(stale, owner);
    await expect(stale.run(() => update(lenient))).rejects.toMatchObject({ code: 'FENCED_OUT' });
    await current.release();
    await stale.release();
  });

  it("passes under 'allow', for one entity or for all, and leaves the token of the row as it is", async () => {
    const drafts = owner.repository(Draft);
    await drafts.insert({ id, text: 'a' });
    const token = await owner.locks.withLock(`draft:${id}`, async (lease) => {
      await drafts.update({ id }, { text: 'b' });
      return lease.token;
    });
    await drafts.save({ id, text: 'c' });
    await drafts.upsert({ id, text: 'd' }, ['id']);
    const row = await drafts.createQueryBuilder('d').addSelect('d.lockToken').where({ id }).getOneOrFail();
    expect(row).toMatchObject({ text: 'd', lockToken: token });
    await drafts.delete({ id });
    const open = await owners.add({ unfencedWrites: 'allow' });
    await update(open);
    await expect(update(owner)).rejects.toMatchObject(refused);
  });

  it('leaves entities alone that are not fenced, and statements that only read', async () => {
    await owner.repository(Label).save({ name: `label ${id}` });
    await owner.repository(Label).upsert({ name: `label ${id}` }, ['name']);
    await owner.repository(Label).delete({ name: `label ${id}` });
    await owner.dataSource.query(`SELECT 'DELETE FROM invoice' FROM invoice -- UPDATE invoice`);
    await owner.dataSource.query('ALTER TABLE invoice ADD COLUMN extra int');
    await owner.dataSource.query('ALTER TABLE invoice DROP COLUMN extra');
    expect(owner.events).toEqual([]);
  });

  it('is stopped before it is streamed', async () => {
    const runner = owner.dataSource.createQueryRunner();
    await expect(runner.stream('DELETE FROM invoice')).rejects.toMatchObject(refused);
    await runner.release();
  });
});
