import type { DataSource } from 'typeorm';

import { inOwnSession } from './own-connection.js';
import { driverCode, retryTransient } from '../sql/index.js';

const CREATE_TIMEOUT_MS = 30_000;
/** Two processes created the same thing at the same moment, and the server refused one of them. */
const CREATED_BY_OTHERS = /^(?:23505|42P07|42710|XX000|ER_TABLE_EXISTS_ERROR)$/;

/** Runs a `CREATE … IF NOT EXISTS`, also where several processes start together. */
export async function createOnce(own: DataSource, statement: string): Promise<void> {
  const create = (): Promise<unknown> =>
    retryTransient(CREATE_TIMEOUT_MS, () =>
      inOwnSession(own, CREATE_TIMEOUT_MS, (session) => session.query(statement)),
    );
  try {
    await create();
  } catch (error) {
    if (!CREATED_BY_OTHERS.test(driverCode(error))) throw error;
    await create();
  }
}
