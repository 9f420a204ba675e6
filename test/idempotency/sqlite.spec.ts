import { createIdempotencyTable, typeormIdempotencyStore } from 'nestjs-distributed-lock/typeorm';

import { itConforms } from './run-conformance.js';
import { sourceOf, startSqliteRecords, type RecordDatabase } from './databases.js';

describe('the idempotency table on SQLite', () => {
  let database: RecordDatabase;

  beforeAll(async () => {
    database = await startSqliteRecords();
    await createIdempotencyTable(sourceOf(database));
  });
  afterAll(() => database.stop());

  itConforms(() => ({
    connect: () => Promise.resolve(typeormIdempotencyStore({ dataSource: sourceOf(database) })),
    purgesItself: false,
  }));
});
