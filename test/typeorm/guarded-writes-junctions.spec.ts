import { Column, Entity, JoinTable, ManyToMany, PrimaryGeneratedColumn } from 'typeorm';

import type { Lease } from 'nestjs-distributed-lock';
import { FencedBy, LockTokenColumn, unfenced } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase } from './databases.js';
import { Invoice, InvoiceLine, Label } from './invoices.js';
import { contents, Owners, type Owner } from './owners.js';

/** Has no lock; the other side has. */
@Entity()
class Tag {
  @PrimaryGeneratedColumn()
  id!: number;

  @ManyToMany(() => Ticket, (ticket) => ticket.tags)
  @JoinTable()
  tickets!: Ticket[];
}

@Entity()
@FencedBy('ticket:<id>')
class Ticket {
  @PrimaryGeneratedColumn()
  id!: number;

  @Column({ type: 'varchar', length: 200, default: '' })
  text!: string;

  @ManyToMany(() => Tag, (tag) => tag.tickets)
  tags!: Tag[];

  @LockTokenColumn()
  lockToken!: number;
}

describeOnEachDatabase('Junction rows of a fenced entity', (start) => {
  let owners: Owners;
  let owner: Owner;
  let successor: Owner;
  let id: string;
  let lease: Lease;
  let lastId = 0;

  beforeAll(async () => {
    owners = await Owners.on(await start(), [Invoice, InvoiceLine, Label, Tag, Ticket]);
    owner = await owners.add();
    successor = await owners.add();
    await owner.repository(Label).save(['a', 'b', 'c'].map((name) => ({ name })));
  });
  beforeEach(async () => {
    id = `${++lastId}`;
    await unfenced('a row', () => owner.repository(Invoice).save({ id, labels: [{ name: 'a' }] }));
    lease = await owners.hold(owner, `invoice:${id}`);
  });
  afterEach(() => lease.release());
  afterAll(() => owners.stop());

  const load = (by = owner) =>
    by.repository(Invoice).findOneOrFail({ where: { id }, relations: { labels: true } });
  const label = async (...names: string[]): Promise<unknown> =>
    owner.repository(Invoice).save(Object.assign(await load(), { labels: names.map((name) => ({ name })) }));
  const labels = async (): Promise<string[]> => (await load()).labels.map(({ name }) => name).sort();

  async function expectRefused(code: string, write: () => Promise<unknown>): Promise<void> {
    const before = await contents(owner);
    await expect(write()).rejects.toMatchObject({ code });
    expect(await contents(owner)).toEqual(before);
  }

  it('come and go under its lock, and not without it', async () => {
    await expectRefused('UNFENCED_WRITE', () => label('a', 'b'));
    await expectRefused('UNFENCED_WRITE', () => label());
    await lease.run(() => label('b', 'c'));
    expect(await labels()).toEqual(['b', 'c']);
    await unfenced('a repair', () => label('a'));
    expect(await labels()).toEqual(['a']);
  });

  it('do not come or go by a stale owner, nor under another lock', async () => {
    const other = await owners.hold(owner, `invoice:${id}-other`);
    await expectRefused('UNFENCED_WRITE', () => other.run(() => label('a', 'b')));
    await other.release();
    const current = await owners.takeOver(lease, successor);
    await expectRefused('FENCED_OUT', () => lease.run(() => label('a', 'b')));
    await expectRefused('FENCED_OUT', () => lease.run(() => label()));
    await current.release();
  });

  it('are refused to relation query builders, raw SQL, and where no transaction is', async () => {
    const relation = () => owner.dataSource.createQueryBuilder().relation(Invoice, 'labels').of(id);
    await lease.run(async () => {
      await expectRefused('UNFENCED_WRITE', () => relation().add('b'));
      await expectRefused('UNFENCED_WRITE', () => relation().remove('a'));
      await expectRefused('UNFENCED_WRITE', () => owner.dataSource.query('DELETE FROM invoice_labels_label'));
      const invoice = Object.assign(await load(), { labels: [] });
      await expectRefused('UNFENCED_WRITE', () =>
        owner.repository(Invoice).save(invoice, { transaction: false }),
      );
    });
  });

  it('come with a new row, with and without a lock, and go with it', async () => {
    const create = (row: string) =>
      owner.repository(Invoice).save({ id: row, labels: [{ name: 'a' }, { name: 'b' }] });
    await create(`${id}-free`);
    const own = await owners.hold(owner, `invoice:${id}-own`);
    await own.run(() => create(`${id}-own`));
    await own.run(async () => {
      const [row] = await owner
        .repository(Invoice)
        .find({ where: { id: `${id}-own` }, relations: { labels: true } });
      await owner.repository(Invoice).remove(row as Invoice);
    });
    await own.release();
    await expectRefused('UNFENCED_WRITE', () => create(`${id}-own`));
    expect(await owner.repository(Invoice).countBy({ id: `${id}-own` })).toBe(0);
  });

  it('are protected by the fenced side, whichever has @JoinTable()', async () => {
    const tickets = owner.repository(Ticket);
    const tag = await owner.repository(Tag).save({});
    const ticket = await tickets.save({ tags: [tag] });
    const other = await tickets.save({ tags: [] as Tag[] });
    const drop = () => owner.repository(Tag).save({ id: tag.id, tickets: [] });
    const take = () =>
      owner.repository(Tag).save({ id: tag.id, tickets: [{ id: ticket.id }, { id: other.id }] });
    await expectRefused('UNFENCED_WRITE', drop);
    await expectRefused('UNFENCED_WRITE', () => owner.locks.withLock(`ticket:${ticket.id}`, take));
    await owner.locks.withLock(`ticket:${other.id}`, take);
    await owner.locks.withLock(`ticket:${ticket.id}`, () => owner.locks.withLock(`ticket:${other.id}`, drop));
    const left = await tickets.find({ relations: { tags: true } });
    expect(left.map(({ tags }) => tags.length)).toEqual([0, 0]);
  });
});
