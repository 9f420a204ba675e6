import type { ObjectLiteral, Repository } from 'typeorm';

import { fenced, readAndFence } from 'nestjs-distributed-lock/typeorm';

import type { Shape } from './write-paths-shapes.js';

/** A way to write a row, whatever the shape of its entity. */
export interface Way {
  readonly name: string;
  /** Prepares the row, before any lock is taken. */
  readonly given?: (rows: Repository<ObjectLiteral>, row: ObjectLiteral) => Promise<unknown>;
  readonly write: (rows: Repository<ObjectLiteral>, row: ObjectLiteral, shape: Shape) => Promise<unknown>;
  readonly needsGivenId?: boolean;
}

const idOf = (rows: Repository<ObjectLiteral>, row: ObjectLiteral) =>
  rows.metadata.getEntityIdMap(row) as ObjectLiteral;
export const load = (rows: Repository<ObjectLiteral>, row: ObjectLiteral) =>
  rows.findOneByOrFail(idOf(rows, row));
let change = 0;

export const ways: readonly Way[] = [
  {
    name: 'save()',
    write: async (rows, row) => rows.save(Object.assign(await load(rows, row), { count: ++change })),
  },
  { name: 'update()', write: (rows, row) => rows.update(idOf(rows, row), { count: ++change }) },
  { name: 'increment()', write: (rows, row) => rows.increment(idOf(rows, row), 'count', 1) },
  {
    name: 'insert()',
    given: (rows, row) => rows.delete(idOf(rows, row)),
    write: (rows, row) => rows.insert(row),
    needsGivenId: true,
  },
  {
    name: 'fenced upsert()',
    write: (rows, row) =>
      fenced(rows).upsert(
        { ...row, count: ++change },
        rows.metadata.primaryColumns.map(({ propertyPath }) => propertyPath),
      ),
  },
  {
    name: 'readAndFence()',
    write: (rows, row, { target }) => readAndFence(target, idOf(rows, row) as never),
  },
  { name: 'fenced delete()', write: (rows, row) => fenced(rows).delete(idOf(rows, row)) },
  { name: 'remove()', write: async (rows, row) => rows.remove(await load(rows, row)) },
];
