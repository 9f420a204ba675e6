import { createHash } from 'node:crypto';

import type { DataSource } from 'typeorm';

import { type Claim, type KeyWatch, LockConfigInvalidError } from '../../core/index.js';
import { prepareMysqlSession } from '../connection/index.js';
import { rowsOf } from '../lease-table/index.js';
import type { LockSession, Look, SessionLocks } from '../session-lock/index.js';
import { driverCode } from '../sql/index.js';
import { NamedLockWaits } from './named-lock-waits.js';

/** MySQL takes 64 characters, and looks at no case. */
const DIGEST_CHARACTERS = 60;
/** In seconds. A limit on silent connections would end this one, and with it its locks. */
const LONGEST_SILENCE = 2_000_000;
/** A connection that has said nothing for so long, although its lease is over, belongs to a process that is stopped. */
const SILENT_SECONDS = 1;
const MICROS_PER_MS = 1_000;
const NEVER_LEASED_MS = -Number.MAX_SAFE_INTEGER;
const NOT_ASKED = -1;

/** Named locks of one server. Their names say what database, table and key they are for. */
export class NamedLocks implements SessionLocks {
  readonly #waits: NamedLockWaits;

  constructor(
    private readonly dataSource: DataSource,
    private readonly table: string,
  ) {
    this.#waits = new NamedLockWaits(dataSource);
  }

  /** Nobody has this name by chance, so whoever has the lock uses this library. */
  nameOf(key: string): string {
    const text = `${this.dataSource.driver.database ?? ''}\0${this.table}\0${key}`;
    return `ll:${createHash('sha256').update(text).digest('hex').slice(0, DIGEST_CHARACTERS)}`;
  }

  async prepare(session: LockSession): Promise<void> {
    session.connection.stream?.setTimeout(0); // each step has its own limit, and between them silence means nothing
    await requireOwnThread(session);
    await requireOneNode(session);
    await prepareMysqlSession(session, session.connection);
    await session.query(`SET SESSION wait_timeout = ${LONGEST_SILENCE}`);
  }

  async look(session: LockSession, name: string, { key, ownerId }: Claim): Promise<Look> {
    const parameters = [Buffer.from(ownerId), name, Buffer.from(key)];
    const [row = {}] = await rowsOf(session, lookStatement(this.table), parameters);
    return {
      got: gotOf(row['got']),
      ownerId: row['owner_id'] == null ? null : (row['owner_id'] as Buffer).toString(),
      remainingMs:
        row['remaining_us'] == null ? NEVER_LEASED_MS : Number(row['remaining_us']) / MICROS_PER_MS,
    };
  }

  async keep(session: LockSession, names: readonly string[]): Promise<ReadonlySet<string>> {
    const asked = [...new Set(names)];
    if (asked.length === 0) return new Set();
    const rows = await rowsOf(
      session,
      asked.map(() => KEEP).join(' UNION ALL '),
      asked.flatMap((name) => [name, name]),
    );
    for (const row of rows) gotOf(row['got']);
    return new Set(asked);
  }

  async unlock(session: LockSession, name: string): Promise<boolean> {
    const [row] = await rowsOf(session, 'SELECT RELEASE_LOCK(?) AS freed', [name]);
    return Number(row?.['freed']) === 1;
  }

  async evictSilent(session: LockSession, name: string): Promise<boolean> {
    const [row] = await rowsOf(session, SILENT_HOLDER, [name, SILENT_SECONDS]);
    if (!row) return false;
    await session.query(`KILL ${Number(row['id'])}`).catch((error: unknown) => {
      if (driverCode(error) !== 'ER_NO_SUCH_THREAD') throw error; // it has ended by itself
    });
    return true;
  }

  watch(name: string, wake: () => void): KeyWatch {
    return this.#waits.watch(name, wake);
  }

  close(): Promise<void> {
    return this.#waits.close();
  }
}

/** Not asked for while the row belongs to somebody else: a try that succeeds would be in the way of its holder. */
function lookStatement(table: string): string {
  return `
    SELECT held.owner_id, held.remaining_us,
      CASE WHEN held.remaining_us > 0 AND NOT (held.owner_id <=> ?) THEN ${NOT_ASKED} ELSE GET_LOCK(?, 0) END AS got
    FROM (SELECT 1 AS one) AS one LEFT JOIN (
      SELECT owner_id, expires_at_us - TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS remaining_us
      FROM \`${table}\` WHERE \`key\` = ?
    ) AS held ON TRUE`;
}

const KEEP = 'SELECT IF(IS_USED_LOCK(?) = CONNECTION_ID(), 1, GET_LOCK(?, 0)) AS got';

/** Without special rights a user sees, and may kill, only connections of his own. */
const SILENT_HOLDER = `
  SELECT ID AS id FROM information_schema.PROCESSLIST
  WHERE ID = IS_USED_LOCK(?) AND COMMAND = 'Sleep' AND TIME >= ? AND USER = SUBSTRING_INDEX(USER(), '@', 1)`;

/** NULL is neither yes nor no: the server broke the call off. */
function gotOf(answer: unknown): boolean | null {
  if (answer == null)
    throw new Error('GET_LOCK was broken off by the server; whether the lock was taken is unknown');
  return Number(answer) === NOT_ASKED ? null : Number(answer) === 1;
}

/** The server tells its thread when a connection begins; a proxy tells a number of its own. */
async function requireOwnThread(session: LockSession): Promise<void> {
  const [row] = await rowsOf(session, 'SELECT CONNECTION_ID() AS id');
  const { threadId } = session.connection as { readonly threadId?: unknown };
  if (Number(row?.['id']) === threadId) return;
  throw new LockConfigInvalidError(
    'The connection to the server goes through a proxy (ProxySQL, Vitess or the like), which may give every statement to ' +
      'another connection, and with it the locks. Nothing was locked. Give the store a DataSource that connects to the server ' +
      'itself, or use typeormStore().',
  );
}

async function requireOneNode(session: LockSession): Promise<void> {
  const rows = await rowsOf(session, NODE_SETTINGS);
  const settings = new Map(rows.map((row) => [String(row['Variable_name']), String(row['Value'])]));
  const grouped = (settings.get('group_replication_group_name') ?? '') !== '';
  const severalPrimaries = grouped && settings.get('group_replication_single_primary_mode') === 'OFF';
  if (settings.get('wsrep_on') !== 'ON' && !severalPrimaries) return;
  throw new LockConfigInvalidError(
    'mysqlNamedLockStore() uses GET_LOCK, which on Galera (wsrep_on) and in a group with several primaries is known to one ' +
      'node only. Nothing was locked; use typeormStore().',
  );
}

const NODE_SETTINGS =
  "SHOW VARIABLES WHERE Variable_name IN ('wsrep_on', 'group_replication_group_name', 'group_replication_single_primary_mode')";
