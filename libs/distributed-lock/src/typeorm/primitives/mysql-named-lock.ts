import { createHash } from 'node:crypto';

import type { DataSource, QueryRunner } from 'typeorm';

import { LeaseLostError, LockConfigInvalidError, LockTimeoutError } from '../../core/index.js';
import { connectWithin } from './bounded.js';
import type { AdvisoryLock } from './locked-transaction.js';
import { dataSourceOf } from './rows.js';

/** MySQL takes 64 characters, and looks at no case. */
const DIGEST_CHARACTERS = 60;
const local = new WeakSet<DataSource>();

/** GET_LOCK belongs to the connection, so it is taken before the transaction and given back after it. */
export const mysqlNamedLock: AdvisoryLock = async (dataSource, key, timeoutMs, work) => {
  const endsAtMs = performance.now() + timeoutMs;
  const runner = dataSource.createQueryRunner('master');
  await connectWithin(runner, timeoutMs);
  try {
    await requireOneNode(dataSource, runner);
    await lock(runner, key, Math.max(0, endsAtMs - performance.now()));
    try {
      return await runner.manager.transaction(async (manager) => {
        const result = await work(manager);
        await requireStillMine(runner, key);
        return result;
      });
    } finally {
      await unlock(runner, key);
    }
  } finally {
    await runner.release();
  }
};

async function lock(runner: QueryRunner, key: string, timeoutMs: number): Promise<void> {
  const got = await ask(runner, 'GET_LOCK(?, ?)', [nameOf(runner, key), timeoutMs / 1_000]);
  if (got === 1) return;
  if (got === 0) throw new LockTimeoutError('taken', { key, retryAfterMs: null });
  throw new Error(`GET_LOCK for "${key}" was broken off by the server. The work did not run.`);
}

/** A connection that died, or a proxy that changed it, has given the lock away. */
async function requireStillMine(runner: QueryRunner, key: string): Promise<void> {
  if ((await ask(runner, 'IS_USED_LOCK(?) = CONNECTION_ID()', [nameOf(runner, key)])) === 1) return;
  throw new LeaseLostError(
    `The advisory lock "${key}" was gone before the commit, so the transaction was rolled back. Behind a proxy that shares ` +
      'connections, use @Locked.',
    { key, reason: 'session-ended' },
  );
}

/** A connection that may still have the lock must not go back to the pool. */
async function unlock(runner: QueryRunner, key: string): Promise<void> {
  const connection = (await runner.connect()) as { destroy(): void };
  const freed = await ask(runner, 'RELEASE_LOCK(?)', [nameOf(runner, key)]).catch(() => null);
  if (freed !== 1) connection.destroy();
}

async function requireOneNode(dataSource: DataSource, runner: QueryRunner): Promise<void> {
  if (local.has(dataSource)) return;
  const rows = (await runner.query("SHOW VARIABLES LIKE 'wsrep_on'")) as { readonly Value: string }[];
  if (rows[0]?.Value === 'ON') {
    throw new LockConfigInvalidError(
      'withAdvisoryLock() uses GET_LOCK, which on Galera (wsrep_on) is known to one node only. Nothing was done; use @Locked ' +
        'with typeormStore().',
    );
  }
  local.add(dataSource);
}

async function ask(runner: QueryRunner, expression: string, parameters: unknown[]): Promise<number | null> {
  const rows = (await runner.query(`SELECT ${expression} AS answer`, parameters)) as {
    readonly answer: unknown;
  }[];
  const answer = rows[0]?.answer;
  return answer == null ? null : Number(answer);
}

/** The whole server shares the names, so the database is part of it. */
function nameOf({ manager }: QueryRunner, key: string): string {
  const { database } = dataSourceOf(manager).driver;
  const digest = createHash('sha256')
    .update(`${database ?? ''}\0${key}`)
    .digest('hex');
  return `lk:${digest.slice(0, DIGEST_CHARACTERS)}`;
}
