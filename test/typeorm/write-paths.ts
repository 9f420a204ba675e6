import type { Owner } from './owners.js';
import { Invoice, InvoiceLine } from './invoices.js';

/** One way in which TypeORM writes a row of invoice `id`. */
export interface WritePath {
  readonly name: string;
  /** `guarded`: passes with the current token only. `refused`: never passes, whatever token there is. */
  readonly is: 'guarded' | 'refused';
  /** Prepares the row, before any lock is taken. */
  readonly given?: (owner: Owner, id: string) => Promise<unknown>;
  readonly write: (owner: Owner, id: string) => Promise<unknown>;
  /** As `write`, with a token that was handed over. */
  readonly writeWith?: (owner: Owner, id: string, expectedLockToken: number) => Promise<unknown>;
  /** Writes a row that is not there yet, so that without a lock only its fence decides: the invoice, or a line of it. */
  readonly inserts?: 'invoice' | 'line';
}

async function loaded(owner: Owner, id: string): Promise<Invoice> {
  return owner.repository(Invoice).findOneOrFail({ where: { id }, withDeleted: true });
}

async function changed(owner: Owner, id: string): Promise<Invoice> {
  return Object.assign(await loaded(owner, id), { status: 'SETTLED' });
}

async function line(owner: Owner, id: string): Promise<InvoiceLine> {
  return owner
    .repository(InvoiceLine)
    .findOneOrFail({ where: { invoice: { id } }, relations: { invoice: true } });
}

function fresh(owner: Owner, id: string): Invoice {
  return owner.repository(Invoice).create({ id, status: 'NEW', address: { city: 'Oslo' } });
}

async function softRemoved(owner: Owner, id: string): Promise<void> {
  const column = quoted(owner, 'deletedAt');
  await owner.dataSource.query(`UPDATE invoice SET ${column} = CURRENT_TIMESTAMP WHERE id = '${id}'`);
}

async function removed(owner: Owner, id: string): Promise<void> {
  await owner.dataSource.query(`DELETE FROM invoice_line WHERE ${quoted(owner, 'invoiceId')} = '${id}'`);
  await owner.dataSource.query(`DELETE FROM invoice WHERE id = '${id}'`);
}

const quoted = ({ dataSource }: Owner, name: string): string => dataSource.driver.escape(name);
const repository = (owner: Owner) => owner.repository(Invoice);
const withToken = (expectedLockToken: number): { data: object } => ({ data: { expectedLockToken } });

export const writePaths: readonly WritePath[] = [
  {
    name: 'repository.save of a loaded row',
    is: 'guarded',
    write: async (o, id) => repository(o).save(await changed(o, id)),
    writeWith: async (o, id, token) => repository(o).save(await changed(o, id), withToken(token)),
  },
  {
    name: 'repository.save of a plain object with an id',
    is: 'guarded',
    write: (o, id) => repository(o).save({ id, status: 'SETTLED' }),
    writeWith: (o, id, token) => repository(o).save({ id, status: 'SETTLED' }, withToken(token)),
  },
  {
    name: 'manager.save',
    is: 'guarded',
    write: async (o, id) => o.dataSource.manager.save(await changed(o, id)),
    writeWith: async (o, id, token) => o.dataSource.manager.save(await changed(o, id), withToken(token)),
  },
  {
    name: 'manager.save with a target',
    is: 'guarded',
    write: (o, id) => o.dataSource.manager.save(Invoice, { id, status: 'SETTLED' }),
    writeWith: (o, id, token) =>
      o.dataSource.manager.save(Invoice, { id, status: 'SETTLED' }, withToken(token)),
  },
  {
    name: 'active record: row.save()',
    is: 'guarded',
    write: async (o, id) => {
      Invoice.useDataSource(o.dataSource);
      return (await changed(o, id)).save();
    },
    writeWith: async (o, id, token) => {
      Invoice.useDataSource(o.dataSource);
      return (await changed(o, id)).save(withToken(token));
    },
  },
  {
    name: 'save of several rows in chunks',
    is: 'guarded',
    write: async (o, id) =>
      repository(o).save([await changed(o, id), ...(await loadedLines(o, id))] as Invoice[], { chunk: 1 }),
  },
  {
    name: 'save inside a transaction',
    is: 'guarded',
    write: (o, id) => o.dataSource.transaction(async (m) => m.save(Invoice, { id, status: 'SETTLED' })),
    writeWith: (o, id, token) =>
      o.dataSource.transaction(async (m) => m.save(Invoice, { id, status: 'SETTLED' }, withToken(token))),
  },
  {
    name: 'save without a transaction',
    is: 'guarded',
    write: async (o, id) => repository(o).save(await changed(o, id), { transaction: false }),
  },
  {
    name: 'save of an embedded column',
    is: 'guarded',
    write: (o, id) => repository(o).save({ id, address: { city: 'Paris' } }),
  },
  {
    name: 'save of a child',
    is: 'guarded',
    write: async (o, id) =>
      o.repository(InvoiceLine).save(Object.assign(await line(o, id), { text: 'changed' })),
  },
  {
    name: 'cascade: save of a parent with a changed child',
    is: 'guarded',
    write: async (o, id) => repository(o).save({ id, lines: [{ ...(await line(o, id)), text: 'changed' }] }),
  },
  {
    name: 'cascade: save of a parent with a new child',
    is: 'guarded',
    inserts: 'line',
    write: async (o, id) => repository(o).save({ id, lines: [await line(o, id), { text: 'new' }] }),
  },
  {
    name: 'update()',
    is: 'guarded',
    write: (o, id) => repository(o).update({ id }, { status: 'SETTLED' }),
  },
  {
    name: 'update() by id, through the manager',
    is: 'guarded',
    write: (o, id) => o.dataSource.manager.update(Invoice, id, { status: 'SETTLED' }),
  },
  {
    name: 'update() of a frozen object',
    is: 'guarded',
    write: (o, id) => repository(o).update({ id }, Object.freeze({ status: 'SETTLED' })),
  },
  {
    name: 'update() of an embedded column',
    is: 'guarded',
    write: (o, id) => repository(o).update({ id }, { address: { city: 'Paris' } }),
  },
  {
    name: 'active record: update()',
    is: 'guarded',
    write: (o, id) => {
      Invoice.useDataSource(o.dataSource);
      return Invoice.update({ id }, { status: 'SETTLED' });
    },
  },
  { name: 'increment()', is: 'guarded', write: (o, id) => repository(o).increment({ id }, 'paid', 5) },
  { name: 'decrement()', is: 'guarded', write: (o, id) => repository(o).decrement({ id }, 'paid', 5) },
  {
    name: 'update query builder',
    is: 'guarded',
    write: (o, id) =>
      repository(o)
        .createQueryBuilder()
        .update()
        .set({ status: 'SETTLED' })
        .where('id = :id', { id })
        .execute(),
  },
  {
    name: 'update query builder of the DataSource, with values first',
    is: 'guarded',
    write: (o, id) =>
      o.dataSource.createQueryBuilder().update(Invoice, { status: 'SETTLED' }).where({ id }).execute(),
  },
  {
    name: 'update query builder with an optimistic lock, which TypeORM ignores (C015)',
    is: 'guarded',
    write: (o, id) => {
      const query = repository(o).createQueryBuilder().setLock('optimistic', 1).update();
      return query.set({ status: 'SETTLED' }).where({ id }).execute();
    },
  },
  {
    name: 'relation query builder: a child moves to another parent',
    is: 'refused',
    write: async (o, id) =>
      o.dataSource
        .createQueryBuilder()
        .relation(InvoiceLine, 'invoice')
        .of(await line(o, id))
        .set('other'),
  },
  {
    name: 'insert()',
    is: 'guarded',
    inserts: 'invoice',
    given: removed,
    write: (o, id) => repository(o).insert({ id, status: 'NEW' }),
  },
  {
    name: 'insert() through the manager',
    is: 'guarded',
    inserts: 'invoice',
    given: removed,
    write: (o, id) => o.dataSource.manager.insert(Invoice, { id, status: 'NEW' }),
  },
  {
    name: 'save of a new row',
    is: 'guarded',
    inserts: 'invoice',
    given: removed,
    write: (o, id) => repository(o).save(fresh(o, id)),
    writeWith: (o, id, token) => repository(o).save(fresh(o, id), withToken(token)),
  },
  {
    name: 'insert query builder',
    is: 'guarded',
    inserts: 'invoice',
    given: removed,
    write: (o, id) => repository(o).createQueryBuilder().insert().values({ id, status: 'NEW' }).execute(),
  },
  {
    name: 'remove()',
    is: 'guarded',
    write: async (o, id) => o.repository(InvoiceLine).remove(await line(o, id)),
    writeWith: async (o, id, token) => o.repository(InvoiceLine).remove(await line(o, id), withToken(token)),
  },
  {
    name: 'remove() of several rows',
    is: 'guarded',
    given: (o, id) => o.repository(InvoiceLine).save({ invoice: { id }, text: 'second' }),
    write: async (o, id) => o.dataSource.manager.remove(await loadedLines(o, id)),
  },
  {
    name: 'remove() inside a transaction',
    is: 'guarded',
    write: async (o, id) => {
      const row = await line(o, id);
      return o.dataSource.transaction((m) => m.remove(row));
    },
  },
  {
    name: 'remove() without a transaction',
    is: 'refused',
    write: async (o, id) => o.repository(InvoiceLine).remove(await line(o, id), { transaction: false }),
  },
  {
    name: 'softRemove() (C074)',
    is: 'guarded',
    write: async (o, id) => repository(o).softRemove(await loaded(o, id)),
    writeWith: async (o, id, token) => repository(o).softRemove(await loaded(o, id), withToken(token)),
  },
  {
    name: 'recover() (C074)',
    is: 'guarded',
    given: softRemoved,
    write: async (o, id) => repository(o).recover(await loaded(o, id)),
    writeWith: async (o, id, token) => repository(o).recover(await loaded(o, id), withToken(token)),
  },
  {
    name: 'delete()',
    is: 'refused',
    write: (o, id) => o.repository(InvoiceLine).delete({ invoice: { id } }),
  },
  { name: 'softDelete() (C074)', is: 'refused', write: (o, id) => repository(o).softDelete({ id }) },
  {
    name: 'restore() (C074)',
    is: 'refused',
    given: softRemoved,
    write: (o, id) => repository(o).restore({ id }),
  },
  {
    name: 'upsert()',
    is: 'refused',
    write: (o, id) => repository(o).upsert({ id, status: 'SETTLED' }, ['id']),
  },
  {
    name: 'insert query builder with orUpdate()',
    is: 'refused',
    write: (o, id) =>
      repository(o)
        .createQueryBuilder()
        .insert()
        .values({ id, status: 'SETTLED' })
        .orUpdate(['status'], ['id'])
        .execute(),
  },
  {
    name: 'insert query builder with orIgnore()',
    is: 'refused',
    given: removed,
    write: (o, id) =>
      repository(o).createQueryBuilder().insert().values({ id, status: 'NEW' }).orIgnore().execute(),
  },
  {
    name: 'insert from a select',
    is: 'refused',
    write: (o, id) =>
      repository(o)
        .createQueryBuilder()
        .insert()
        .into(Invoice, ['id', 'status', 'version'])
        .valuesFromSelect((select) =>
          select
            .select(`i.id || '-copy'`)
            .addSelect('i.status')
            .addSelect('1')
            .from(Invoice, 'i')
            .where('i.id = :id', { id }),
        )
        .execute(),
  },
  {
    name: 'delete query builder',
    is: 'refused',
    write: (o, id) =>
      o.dataSource
        .createQueryBuilder()
        .delete()
        .from(InvoiceLine)
        .where(`${quoted(o, 'invoiceId')} = :id`, { id })
        .execute(),
  },
  {
    name: 'soft-delete query builder',
    is: 'refused',
    write: (o, id) => repository(o).createQueryBuilder().softDelete().where({ id }).execute(),
  },
  { name: 'clear()', is: 'refused', write: (o) => o.repository(InvoiceLine).clear() },
  {
    name: 'save with listeners: false',
    is: 'refused',
    write: async (o, id) => repository(o).save(await changed(o, id), { listeners: false }),
  },
  {
    name: 'remove with listeners: false',
    is: 'refused',
    write: async (o, id) => o.repository(InvoiceLine).remove(await line(o, id), { listeners: false }),
  },
  {
    name: 'orphan removal',
    is: 'refused',
    write: async (o, id) => repository(o).save(Object.assign(await changed(o, id), { lines: [] })),
  },
  {
    name: 'dataSource.query',
    is: 'refused',
    write: (o, id) => o.dataSource.query(`UPDATE invoice SET status = 'SETTLED' WHERE id = '${id}'`),
  },
  {
    name: 'manager.query',
    is: 'refused',
    write: (o, id) =>
      o.dataSource.manager.query(
        `DELETE FROM ${quoted(o, 'invoice_line')} WHERE ${quoted(o, 'invoiceId')} = '${id}'`,
      ),
  },
  {
    name: 'queryRunner.query, behind a comment and a WITH',
    is: 'refused',
    write: async (o, id) => {
      const runner = o.dataSource.createQueryRunner();
      try {
        const before = o.dataSource.options.type === 'mariadb' ? '#\n/*! */' : 'WITH x AS (SELECT 1)';
        await runner.query(
          `/* SELECT */ ${before} UPDATE ${quoted(o, 'invoice')} SET status = 'SETTLED' WHERE id = '${id}'`,
        );
      } finally {
        await runner.release();
      }
    },
  },
];

async function loadedLines(owner: Owner, id: string): Promise<InvoiceLine[]> {
  return owner.repository(InvoiceLine).find({ where: { invoice: { id } }, relations: { invoice: true } });
}
