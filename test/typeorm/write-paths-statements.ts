import { fenced } from 'nestjs-distributed-lock/typeorm';

import { Invoice } from './invoices.js';
import { activeRecord, lines, pathsOf, removed, rows, softRemoved, type WritePath } from './write-path.js';

const otherKey = 'UNFENCED_WRITE';
const settled = { status: 'SETTLED' };

const updates = pathsOf('`update()`, `increment()`, `decrement()`', [
  {
    name: 'repository.update(criteria, values)',
    is: 'guarded',
    write: (o, id) => rows(o).update({ id }, settled),
  },
  {
    name: 'manager.update(Invoice, id, values)',
    is: 'guarded',
    write: (o, id) => o.dataSource.manager.update(Invoice, id, settled),
  },
  {
    name: 'Invoice.update(criteria, values) of active records',
    is: 'guarded',
    write: (o, id) => activeRecord(o).update({ id }, settled),
  },
  {
    name: 'update() with frozen values',
    is: 'guarded',
    write: (o, id) => rows(o).update({ id }, Object.freeze({ ...settled })),
  },
  {
    name: 'update() of an embedded column',
    is: 'guarded',
    write: (o, id) => rows(o).update({ id }, { address: { city: 'Paris' } }),
  },
  {
    name: 'update() of children',
    is: 'guarded',
    write: (o, id) => lines(o).update({ invoice: { id } }, { text: 'x' }),
  },
  { name: 'repository.increment()', is: 'guarded', write: (o, id) => rows(o).increment({ id }, 'paid', 5) },
  { name: 'repository.decrement()', is: 'guarded', write: (o, id) => rows(o).decrement({ id }, 'paid', 5) },
  {
    name: 'manager.increment()',
    is: 'guarded',
    write: (o, id) => o.dataSource.manager.increment(Invoice, { id }, 'paid', 5),
  },
  {
    name: 'manager.decrement()',
    is: 'guarded',
    write: (o, id) => o.dataSource.manager.decrement(Invoice, { id }, 'paid', 5),
  },
  {
    name: 'update query builder of a repository',
    is: 'guarded',
    write: (o, id) => rows(o).createQueryBuilder().update().set(settled).where('id = :id', { id }).execute(),
  },
  {
    name: 'update query builder of a DataSource, with values first',
    is: 'guarded',
    write: (o, id) => o.dataSource.createQueryBuilder().update(Invoice, settled).where({ id }).execute(),
  },
  {
    name: 'update query builder with an optimistic lock, which TypeORM ignores (C015)',
    is: 'guarded',
    write: (o, id) => {
      const query = rows(o).createQueryBuilder().setLock('optimistic', 1).update();
      return query.set(settled).where({ id }).execute();
    },
  },
]);

const inserts = pathsOf('`insert()`', [
  {
    name: 'repository.insert(values)',
    is: 'guarded',
    otherKey,
    inserts: 'invoice',
    given: removed,
    write: (o, id) => rows(o).insert({ id, status: 'NEW' }),
  },
  {
    name: 'manager.insert(Invoice, values)',
    is: 'guarded',
    otherKey,
    inserts: 'invoice',
    given: removed,
    write: (o, id) => o.dataSource.manager.insert(Invoice, { id, status: 'NEW' }),
  },
  {
    name: 'Invoice.insert(values) of active records',
    is: 'guarded',
    otherKey,
    inserts: 'invoice',
    given: removed,
    write: (o, id) => activeRecord(o).insert({ id, status: 'NEW' }),
  },
  {
    name: 'insert() inside a transaction',
    is: 'guarded',
    otherKey,
    inserts: 'invoice',
    given: removed,
    write: (o, id) => o.dataSource.transaction((m) => m.insert(Invoice, { id })),
  },
  {
    name: 'insert query builder',
    is: 'guarded',
    otherKey,
    inserts: 'invoice',
    given: removed,
    write: (o, id) => rows(o).createQueryBuilder().insert().values({ id, status: 'NEW' }).execute(),
  },
]);

const fencedStatements = pathsOf('`fenced(repository)`', [
  {
    name: 'fenced(repository).delete(criteria)',
    is: 'guarded',
    write: (o, id) => fenced(lines(o)).delete({ invoice: { id } }),
  },
  {
    name: 'fenced(repository).delete(id)',
    is: 'guarded',
    given: (o, id) => lines(o).delete({ invoice: { id } }),
    write: (o, id) => fenced(rows(o)).delete(id),
  },
  {
    name: 'fenced(repository).delete() inside a transaction',
    is: 'guarded',
    given: (o, id) => lines(o).delete({ invoice: { id } }),
    write: (o, id) => o.dataSource.transaction((m) => fenced(m.getRepository(Invoice)).delete([id])),
  },
  {
    name: 'fenced(repository).softDelete() (C074)',
    is: 'guarded',
    write: (o, id) => fenced(rows(o)).softDelete({ id }),
  },
  {
    name: 'fenced(repository).restore() (C074)',
    is: 'guarded',
    given: softRemoved,
    write: (o, id) => fenced(rows(o)).restore({ id }),
  },
  {
    name: 'fenced(repository).upsert() of a row that is there',
    is: 'guarded',
    otherKey,
    write: (o, id) => fenced(rows(o)).upsert({ id, ...settled }, ['id']),
  },
  {
    name: 'fenced(repository).upsert() of a new row',
    is: 'guarded',
    otherKey,
    given: removed,
    write: (o, id) => fenced(rows(o)).upsert({ id, ...settled }, ['id']),
  },
]);

/** Ways that start from criteria or values: which rows they reach, only the database knows. */
export const statementPaths: readonly WritePath[] = [...updates, ...inserts, ...fencedStatements];
