import { createIdempotencyTable, typeormIdempotencyStore } from 'nestjs-distributed-lock/typeorm';

import { itKeepsTheContract } from './contract/index.js';
import { sourceOf, startSqliteRecords, type RecordDatabase } from './databases.js';

describe('the idempotency table on SQLite', () => {
  let database: RecordDatabase;

  beforeAll(async () => {
    database = await startSqliteRecords();
    await createIdempotencyTable(sourceOf(database));
  });
  afterAll(() => database.stop());

  itKeepsTheContract(() => ({
    connect: () => Promise.resolve(typeormIdempotencyStore({ dataSource: sourceOf(database) })),
    purgesItself: false,
  }));
});
