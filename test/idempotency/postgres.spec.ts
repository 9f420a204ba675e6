import { createIdempotencyTable, typeormIdempotencyStore } from 'nestjs-distributed-lock/typeorm';

import { describeWithServers } from '../servers/index.js';
import { itConforms } from './run-conformance.js';
import { sourceOf, startPostgresRecords, type RecordDatabase } from './databases.js';

describeWithServers(['postgres'], 'the idempotency table on PostgreSQL', () => {
  let database: RecordDatabase;

  beforeAll(async () => {
    database = await startPostgresRecords();
    await createIdempotencyTable(sourceOf(database));
  });
  afterAll(() => database.stop());

  describe.each([
    { title: 'read committed', extra: {} },
    {
      title: 'serializable by default (C124)',
      extra: { options: '-c default_transaction_isolation=serializable' },
    },
  ])('$title', ({ extra }) => {
    itConforms(() => ({
      connect: () => Promise.resolve(typeormIdempotencyStore({ dataSource: sourceOf(database, { extra }) })),
      purgesItself: false,
    }));
  });
});
