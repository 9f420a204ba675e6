import { createIdempotencyTable, typeormIdempotencyStore } from 'nestjs-distributed-lock/typeorm';

import { describeWithServers } from '../servers/index.js';
import { itConforms } from './run-conformance.js';
import { sourceOf, startMariaDbRecords, type RecordDatabase } from './databases.js';

describeWithServers(['mariadb'], 'the idempotency table on MariaDB', () => {
  let database: RecordDatabase;

  beforeAll(async () => {
    database = await startMariaDbRecords();
    await createIdempotencyTable(sourceOf(database));
  });
  afterAll(() => database.stop());

  itConforms(() => ({
    connect: () => Promise.resolve(typeormIdempotencyStore({ dataSource: sourceOf(database) })),
    purgesItself: false,
  }));
});
