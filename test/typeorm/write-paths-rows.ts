import { Invoice, Label } from './invoices.js';
import type { Owner } from './owners.js';
import {
  activeRecord,
  allLines,
  changed,
  line,
  lines,
  loaded,
  pathsOf,
  removed,
  rows,
  softRemoved,
  withToken,
  type WritePath,
} from './write-path.js';

const otherKey = 'UNFENCED_WRITE';
const fresh = (id: string) => ({ id, status: 'NEW', address: { city: 'Oslo' } });

async function labelled(owner: Owner, id: string): Promise<void> {
  await owner.repository(Label).save([{ name: 'a' }, { name: 'b' }]);
  await rows(owner).save({ id, labels: [{ name: 'a' }] });
}

async function relabel(owner: Owner, id: string, ...names: string[]): Promise<unknown> {
  const invoice = await rows(owner).findOneOrFail({ where: { id }, relations: { labels: true } });
  return rows(owner).save(Object.assign(invoice, { labels: names.map((name) => ({ name })) }));
}

const saves = pathsOf('`save()`', [
  {
    name: 'repository.save(row) of a loaded row',
    is: 'guarded',
    otherKey,
    write: async (o, id) => rows(o).save(await changed(o, id)),
    writeWith: async (o, id, token) => rows(o).save(await changed(o, id), withToken(token)),
  },
  {
    name: 'repository.save(values) with an id',
    is: 'guarded',
    otherKey,
    write: (o, id) => rows(o).save({ id, status: 'SETTLED' }),
    writeWith: (o, id, token) => rows(o).save({ id, status: 'SETTLED' }, withToken(token)),
  },
  {
    name: 'manager.save(row)',
    is: 'guarded',
    otherKey,
    write: async (o, id) => o.dataSource.manager.save(await changed(o, id)),
    writeWith: async (o, id, token) => o.dataSource.manager.save(await changed(o, id), withToken(token)),
  },
  {
    name: 'manager.save(Invoice, values)',
    is: 'guarded',
    otherKey,
    write: (o, id) => o.dataSource.manager.save(Invoice, { id, status: 'SETTLED' }),
    writeWith: (o, id, token) =>
      o.dataSource.manager.save(Invoice, { id, status: 'SETTLED' }, withToken(token)),
  },
  {
    name: 'row.save() of an active record',
    is: 'guarded',
    otherKey,
    write: async (o, id) => (await changed(o, id)).save(),
    writeWith: async (o, id, token) => (await changed(o, id)).save(withToken(token)),
  },
  {
    name: 'Invoice.save(rows) of active records',
    is: 'guarded',
    otherKey,
    write: async (o, id) => activeRecord(o).save([await changed(o, id)]),
  },
  {
    name: 'several rows in chunks',
    is: 'guarded',
    otherKey,
    write: async (o, id) =>
      rows(o).save([await changed(o, id), ...(await allLines(o, id))] as Invoice[], { chunk: 1 }),
  },
  {
    name: 'inside a transaction',
    is: 'guarded',
    otherKey,
    write: (o, id) => o.dataSource.transaction((m) => m.save(Invoice, { id, status: 'SETTLED' })),
    writeWith: (o, id, token) =>
      o.dataSource.transaction((m) => m.save(Invoice, { id, status: 'SETTLED' }, withToken(token))),
  },
  {
    name: 'with transaction: false',
    is: 'guarded',
    otherKey,
    write: async (o, id) => rows(o).save(await changed(o, id), { transaction: false }),
  },
  {
    name: 'with reload: false',
    is: 'guarded',
    otherKey,
    write: async (o, id) => rows(o).save(await changed(o, id), { reload: false }),
  },
  {
    name: 'of an embedded column',
    is: 'guarded',
    otherKey,
    write: (o, id) => rows(o).save({ id, address: { city: 'Paris' } }),
  },
  {
    name: 'of a child',
    is: 'guarded',
    otherKey,
    write: async (o, id) => lines(o).save(Object.assign(await line(o, id), { text: 'changed' })),
  },
  {
    name: 'of a parent, cascading to a changed child',
    is: 'guarded',
    otherKey,
    write: async (o, id) => rows(o).save({ id, lines: [{ ...(await line(o, id)), text: 'changed' }] }),
  },
  {
    name: 'of a parent, cascading to a new child',
    is: 'guarded',
    otherKey,
    inserts: 'line',
    write: async (o, id) => rows(o).save({ id, lines: [await line(o, id), { text: 'new' }] }),
  },
  {
    name: 'of a new row',
    is: 'guarded',
    otherKey,
    inserts: 'invoice',
    given: removed,
    write: (o, id) => rows(o).save(rows(o).create(fresh(id))),
    writeWith: (o, id, token) => rows(o).save(rows(o).create(fresh(id)), withToken(token)),
  },
  {
    name: 'of a new row with new children',
    is: 'guarded',
    otherKey,
    inserts: 'invoice',
    given: removed,
    write: (o, id) => rows(o).save({ ...fresh(id), lines: [{ text: 'one' }, { text: 'two' }] }),
  },
  {
    name: 'that adds junction rows of a many-to-many relation',
    is: 'guarded',
    otherKey,
    given: labelled,
    write: (o, id) => relabel(o, id, 'a', 'b'),
  },
  {
    name: 'that takes junction rows away',
    is: 'guarded',
    otherKey,
    given: labelled,
    write: (o, id) => relabel(o, id),
  },
]);

const removals = pathsOf('`remove()`, `softRemove()`, `recover()`', [
  {
    name: 'repository.remove(row)',
    is: 'guarded',
    otherKey,
    write: async (o, id) => lines(o).remove(await line(o, id)),
    writeWith: async (o, id, token) => lines(o).remove(await line(o, id), withToken(token)),
  },
  {
    name: 'remove() of several rows',
    is: 'guarded',
    otherKey,
    given: (o, id) => lines(o).save({ invoice: { id }, text: 'second' }),
    write: async (o, id) => o.dataSource.manager.remove(await allLines(o, id)),
  },
  {
    name: 'remove() of a row with junction rows',
    is: 'guarded',
    otherKey,
    given: async (o, id) => {
      await labelled(o, id);
      await lines(o).delete({ invoice: { id } });
    },
    write: async (o, id) =>
      rows(o).remove(await rows(o).findOneOrFail({ where: { id }, relations: { labels: true } })),
  },
  {
    name: 'row.remove() of an active record',
    is: 'guarded',
    otherKey,
    given: (o, id) => lines(o).delete({ invoice: { id } }),
    write: async (o, id) => (await loaded(o, id)).remove(),
  },
  {
    name: 'remove() inside a transaction',
    is: 'guarded',
    otherKey,
    write: async (o, id) => {
      const row = await line(o, id);
      return o.dataSource.transaction((m) => m.remove(row));
    },
  },
  ...(['softRemove', 'recover'] as const).flatMap((method) => [
    {
      name: `repository.${method}(row) (C074)`,
      is: 'guarded' as const,
      otherKey: 'UNFENCED_WRITE' as const,
      ...(method === 'recover' && { given: softRemoved }),
      write: async (o: Owner, id: string) => rows(o)[method](await loaded(o, id)),
      writeWith: async (o: Owner, id: string, token: number) =>
        rows(o)[method](await loaded(o, id), withToken(token)),
    },
    {
      name: `manager.${method}(rows)`,
      is: 'guarded' as const,
      otherKey: 'UNFENCED_WRITE' as const,
      ...(method === 'recover' && { given: softRemoved }),
      write: async (o: Owner, id: string) => o.dataSource.manager[method]([await loaded(o, id)]),
    },
    {
      name: `row.${method}() of an active record`,
      is: 'guarded' as const,
      otherKey: 'UNFENCED_WRITE' as const,
      ...(method === 'recover' && { given: softRemoved }),
      write: async (o: Owner, id: string) => (await loaded(o, id))[method](),
    },
  ]),
]);

/** Ways that start from rows, whose keys are known here. */
export const rowPaths: readonly WritePath[] = [...saves, ...removals];
