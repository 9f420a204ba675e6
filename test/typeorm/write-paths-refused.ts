import { InsertQueryBuilder } from 'typeorm';

import { Invoice, InvoiceLine, Label } from './invoices.js';
import type { Owner } from './owners.js';
import {
  activeRecord,
  changed,
  line,
  lines,
  pathsOf,
  removed,
  rows,
  softRemoved,
  type WritePath,
} from './write-path.js';

const is = 'refused';
/** TypeORM 0.3 does not have it. */
const FROM_SELECT = 'insert from a select';
const settled = { status: 'SETTLED' };
const manager = ({ dataSource }: Owner) => dataSource.manager;
const ofInvoice = (id: string) => ({ invoice: { id } });

const byFenced = (method: string) => `\`fenced(repository).${method}()\``;
const deletes = pathsOf('By criteria alone', [
  {
    name: 'repository.delete()',
    is,
    instead: byFenced('delete'),
    write: (o, id) => lines(o).delete(ofInvoice(id)),
  },
  {
    name: 'manager.delete()',
    is,
    instead: byFenced('delete'),
    write: (o, id) => manager(o).delete(InvoiceLine, ofInvoice(id)),
  },
  {
    name: 'Invoice.delete() of active records',
    is,
    instead: byFenced('delete'),
    given: (o, id) => lines(o).delete(ofInvoice(id)),
    write: (o, id) => activeRecord(o).delete({ id }),
  },
  {
    name: 'delete query builder',
    is,
    instead: byFenced('delete'),
    write: async (o, id) =>
      lines(o)
        .createQueryBuilder()
        .delete()
        .where({ id: (await line(o, id)).id })
        .execute(),
  },
  {
    name: 'repository.softDelete() (C074)',
    is,
    instead: byFenced('softDelete'),
    write: (o, id) => rows(o).softDelete({ id }),
  },
  {
    name: 'manager.softDelete()',
    is,
    instead: byFenced('softDelete'),
    write: (o, id) => manager(o).softDelete(Invoice, { id }),
  },
  {
    name: 'soft-delete query builder',
    is,
    instead: byFenced('softDelete'),
    write: (o, id) => rows(o).createQueryBuilder().softDelete().where({ id }).execute(),
  },
  {
    name: 'repository.restore() (C074)',
    is,
    instead: byFenced('restore'),
    given: softRemoved,
    write: (o, id) => rows(o).restore({ id }),
  },
  {
    name: 'manager.restore()',
    is,
    instead: byFenced('restore'),
    given: softRemoved,
    write: (o, id) => manager(o).restore(Invoice, { id }),
  },
  {
    name: 'restore query builder',
    is,
    instead: byFenced('restore'),
    given: softRemoved,
    write: (o, id) => rows(o).createQueryBuilder().restore().where({ id }).execute(),
  },
  { name: 'clear()', is, instead: byFenced('delete'), write: (o) => lines(o).clear() },
]);

const upserts = pathsOf('With a conflict clause', [
  {
    name: 'repository.upsert()',
    is,
    instead: byFenced('upsert'),
    write: (o, id) => rows(o).upsert({ id, ...settled }, ['id']),
  },
  {
    name: 'manager.upsert()',
    is,
    instead: byFenced('upsert'),
    write: (o, id) => manager(o).upsert(Invoice, { id, ...settled }, ['id']),
  },
  {
    name: 'Invoice.upsert() of active records',
    is,
    instead: byFenced('upsert'),
    write: (o, id) => activeRecord(o).upsert({ id, ...settled }, ['id']),
  },
  {
    name: 'insert query builder with orUpdate()',
    is,
    instead: byFenced('upsert'),
    write: (o, id) => {
      const query = rows(o)
        .createQueryBuilder()
        .insert()
        .values({ id, ...settled });
      return query.orUpdate(['status'], ['id']).execute();
    },
  },
  {
    name: 'insert query builder with orIgnore()',
    is,
    instead: byFenced('upsert'),
    given: removed,
    write: (o, id) => rows(o).createQueryBuilder().insert().values({ id }).orIgnore().execute(),
  },
]);

const relation = (o: Owner, of: typeof Invoice | typeof InvoiceLine, name: string) =>
  o.dataSource.createQueryBuilder().relation(of, name);
const label = (o: Owner) => o.repository(Label).save({ name: 'a' });

const past = pathsOf('Past the hooks', [
  {
    name: 'relation query builder: a child moves to another parent',
    is,
    instead: 'remove it here, insert it there, each under its lock',
    write: async (o, id) =>
      relation(o, InvoiceLine, 'invoice')
        .of(await line(o, id))
        .set('other'),
  },
  {
    name: 'relation query builder: a junction row more',
    is,
    instead: '`save()` of the row with its relation',
    given: label,
    write: (o, id) => relation(o, Invoice, 'labels').of(id).add('a'),
  },
  {
    name: 'relation query builder: a junction row less',
    is,
    instead: '`save()` of the row with its relation',
    given: async (o, id) => {
      await label(o);
      await rows(o).save({ id, labels: [{ name: 'a' }] });
    },
    write: (o, id) => relation(o, Invoice, 'labels').of(id).remove('a'),
  },
  {
    name: 'remove() with transaction: false',
    is,
    instead: 'leave the option out',
    write: async (o, id) => lines(o).remove(await line(o, id), { transaction: false }),
  },
  {
    name: 'save() with listeners: false',
    is,
    instead: 'leave the option out',
    write: async (o, id) => rows(o).save(await changed(o, id), { listeners: false }),
  },
  {
    name: 'remove() with listeners: false',
    is,
    instead: 'leave the option out',
    write: async (o, id) => lines(o).remove(await line(o, id), { listeners: false }),
  },
  {
    name: 'save() of a parent whose child became an orphan',
    is,
    instead: '`remove()` of the child',
    write: async (o, id) => rows(o).save(Object.assign(await changed(o, id), { lines: [] })),
  },
  {
    name: FROM_SELECT,
    is,
    instead: '`insert()` of values',
    write: (o, id) => {
      const query = rows(o).createQueryBuilder().insert().into(Invoice, ['id', 'status', 'version']);
      return query
        .valuesFromSelect((select) =>
          select
            .select(`CONCAT(i.id, '-copy')`)
            .addSelect('i.status')
            .addSelect('1')
            .from(Invoice, 'i')
            .where('i.id = :id', { id }),
        )
        .execute();
    },
  },
]);

const raw = pathsOf('SQL', [
  {
    name: 'dataSource.query()',
    is,
    instead: 'a guarded way, or `unfenced()`',
    write: (o, id) => o.dataSource.query(`UPDATE invoice SET status = 'SETTLED' WHERE id = '${id}'`),
  },
  {
    name: 'manager.query()',
    is,
    instead: 'a guarded way, or `unfenced()`',
    write: async (o, id) => manager(o).query(`DELETE FROM invoice_line WHERE id = ${(await line(o, id)).id}`),
  },
  {
    name: 'queryRunner.query(), behind a comment and a second line',
    is,
    instead: 'a guarded way, or `unfenced()`',
    write: async (o, id) => {
      const runner = o.dataSource.createQueryRunner();
      try {
        await runner.query(
          `/* SELECT */ -- a note\n UPDATE invoice SET status = 'SETTLED' WHERE id = '${id}'`,
        );
      } finally {
        await runner.release();
      }
    },
  },
]);

/** Ways on which nothing can be checked. */
export const refusedPaths: readonly WritePath[] = [...deletes, ...upserts, ...past, ...raw].filter(
  ({ name }) => name !== FROM_SELECT || 'valuesFromSelect' in InsertQueryBuilder.prototype,
);
