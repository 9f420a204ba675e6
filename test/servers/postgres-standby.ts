import { Client } from 'pg';

import { startPostgres, type PostgresServer } from './postgres-server.js';
import { until } from './eventually.js';
import { startProxy, type TcpProxy } from './tcp-proxy.js';

/** A primary and the standby that follows it by streaming replication. */
export interface PostgresPair {
  /** For applications, who notice nothing but broken connections: the primary, and once it is promoted the standby. */
  readonly url: string;
  /** What the log takes from the primary to the standby; answers on it are the log. */
  readonly link: TcpProxy;
  /** Resolves once the standby has all that the primary has committed. */
  caughtUp(): Promise<void>;
  killPrimary(): Promise<void>;
  /** Makes the standby a primary and leads applications to it. Whoever does it sees to it that the old one is gone. */
  promote(): Promise<void>;
  stop(): Promise<void>;
}

export interface PostgresPairOptions {
  /** A commit is answered when the standby has it as well. Default: it does not wait for the standby. */
  readonly synchronous?: boolean;
}

/** A primary and a standby of your own, user and database `postgres`, no password; `stop()` them when done. */
export async function startPostgresPair(options: PostgresPairOptions = {}): Promise<PostgresPair> {
  const started: { stop(): Promise<void> }[] = [];
  const kept = async <T extends { stop(): Promise<void> }>(starting: Promise<T>): Promise<T> => {
    const each = await starting;
    started.push(each);
    return each;
  };
  const stop = async (): Promise<void> => void (await Promise.all(started.map((each) => each.stop())));
  try {
    const primary = await kept(startPostgres());
    const link = await kept(startProxy(primary.port));
    const standby = await kept(startPostgres({ standbyOf: link.port }));
    if (options.synchronous) await waitForStandbys(primary);
    await until('the standby follows', () => isFollowed(primary, options.synchronous ? 'sync' : 'async'));
    return pairOf(primary, standby, link, await kept(startProxy(primary.port)), stop);
  } catch (error) {
    await stop();
    throw error;
  }
}

function pairOf(
  primary: PostgresServer,
  standby: PostgresServer,
  link: TcpProxy,
  address: TcpProxy,
  stop: () => Promise<void>,
): PostgresPair {
  return {
    url: `postgres://postgres@127.0.0.1:${address.port}/postgres`,
    link,
    async caughtUp() {
      const [row] = await ask(primary, 'SELECT pg_current_wal_lsn()::text AS lsn');
      const sql = `SELECT pg_last_wal_replay_lsn() >= '${String(row?.['lsn'])}'::pg_lsn AS all`;
      await until('the standby has caught up', async () => (await ask(standby, sql))[0]?.['all'] === true);
    },
    killPrimary: () => primary.kill(),
    async promote() {
      const [row] = await ask(standby, 'SELECT pg_promote() AS promoted');
      if (row?.['promoted'] !== true) throw new Error('the standby has not become a primary in a minute');
      address.switchTo(standby.port);
    },
    stop,
  };
}

/** Not before there is one, or nothing could be committed; and not in the copy, which has no standby of its own. */
async function waitForStandbys(primary: PostgresServer): Promise<void> {
  await ask(primary, `ALTER SYSTEM SET synchronous_standby_names = '*'`);
  await ask(primary, 'SELECT pg_reload_conf()');
}

async function isFollowed(primary: PostgresServer, how: 'sync' | 'async'): Promise<boolean> {
  const rows = await ask(primary, 'SELECT state, sync_state FROM pg_stat_replication');
  return rows.some((row) => row['state'] === 'streaming' && row['sync_state'] === how);
}

async function ask(
  { port }: PostgresServer,
  sql: string,
): Promise<readonly Readonly<Record<string, unknown>>[]> {
  const client = new Client({ host: '127.0.0.1', port, user: 'postgres', database: 'postgres' });
  await client.connect();
  try {
    return (await client.query<Record<string, unknown>>(sql)).rows;
  } finally {
    await client.end();
  }
}
