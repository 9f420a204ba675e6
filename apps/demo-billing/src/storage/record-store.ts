import { IdempotencyService, lockKey, type IdempotencyStore } from 'nestjs-distributed-lock';
import { redisIdempotencyStore } from 'nestjs-distributed-lock/redis';
import { createIdempotencyTable, typeormIdempotencyStore } from 'nestjs-distributed-lock/typeorm';
import { DataSource } from 'typeorm';

import { lockDatabase } from './data-source-options.js';
import type { StorageSettings } from './storage-settings.js';

const TABLE = 'idempotency_record';
/** As the billing service writes it. */
const PayoutKey = lockKey('payout:<id>');

/** The store of idempotency records that these settings name. */
export function recordStore({ records }: StorageSettings): IdempotencyStore {
  if (records.kind === 'redis') return redisIdempotencyStore(records.place);
  return typeormIdempotencyStore({ dataSource: new DataSource(lockDatabase(records)), table: TABLE });
}

/** An empty table of records. Those of an earlier run are about other invoices, however they are numbered. */
export async function layOutRecords({ records }: StorageSettings): Promise<void> {
  if (records.kind === 'redis') return; // there each run has a namespace of its own
  const database = new DataSource(lockDatabase(records));
  if (records.kind === 'sqlite') await dropTable(database);
  await createIdempotencyTable(database, TABLE);
}

/** How many of the payouts the store calls done. */
export async function countPaidOut(storage: StorageSettings, invoiceIds: readonly string[]): Promise<number> {
  const service = new IdempotencyService({ store: recordStore(storage), namespace: storage.namespace });
  try {
    const records = await Promise.all(invoiceIds.map((id) => service.inspect(PayoutKey({ id }))));
    return records.filter((record) => record?.state === 'done').length;
  } finally {
    await service.close();
  }
}

async function dropTable(database: DataSource): Promise<void> {
  await database.initialize();
  try {
    await database.query(`DROP TABLE IF EXISTS "${TABLE}"`);
  } finally {
    await database.destroy();
  }
}
