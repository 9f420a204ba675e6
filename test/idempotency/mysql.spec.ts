import { createIdempotencyTable, typeormIdempotencyStore } from 'nestjs-distributed-lock/typeorm';

import { describeOnMySqlKin } from '../servers/index.js';
import { itConforms } from './run-conformance.js';
import { sourceOf, startMySqlRecords, type RecordDatabase } from './databases.js';

describeOnMySqlKin('the idempotency table on', (kin) => {
  let database: RecordDatabase;

  beforeAll(async () => {
    database = await startMySqlRecords(kin);
    await createIdempotencyTable(sourceOf(database));
  });
  afterAll(() => database.stop());

  itConforms(() => ({
    connect: () => Promise.resolve(typeormIdempotencyStore({ dataSource: sourceOf(database) })),
    purgesItself: false,
  }));
});
