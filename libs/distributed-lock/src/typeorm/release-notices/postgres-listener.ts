import { createHash } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';

import type { DataSource, QueryRunner } from 'typeorm';

import { jittered, systemClock, withinTime, type KeyWatch } from '../../core/index.js';
import { cut, openOwnConnection, type ServerConnection } from '../connection/index.js';
import { FreeKeys } from './free-keys.js';

const CHANNEL = 'nestjs_distributed_lock_lease';
const RECONNECT_MS = 200;
/** A server that has no connection left, or refuses to tell, is not asked several times a second. */
const LONGEST_RECONNECT_MS = 5_000;
/** A server that is frozen or cut off leaves its listeners in silence. */
const PING_MS = 3_000;
const ANSWER_MS = 2_000;
/** Who waits for one lock soon waits for another: the connection is worth keeping for a while. */
const LINGER_MS = 10_000;

/**
 * Hears which keys of one lease table were released: one connection, open while somebody waits in this process. Leases
 * that end by themselves are not told, and behind a pooler, which may give LISTEN to any session, nothing is heard.
 */
export class PostgresListener {
  readonly #free = new FreeKeys();
  #wantedUntilMs = 0;
  #runs = false;
  #hasPooler = false;
  #reconnectMs = RECONNECT_MS;
  #closed = false;
  #end: () => void = () => undefined;

  constructor(
    private readonly dataSource: DataSource,
    private readonly table: string,
  ) {}

  watch(key: string, wake: () => void): KeyWatch {
    const watch = this.#free.watch(noticeName(this.table, key), wake);
    void this.#run();
    return {
      get hears() {
        return watch.hears;
      },
      stop: () => {
        watch.stop();
        this.#wantedUntilMs = performance.now() + LINGER_MS;
      },
    };
  }

  close(): void {
    this.#closed = true;
    this.#end();
  }

  get #wanted(): boolean {
    if (this.#hasPooler || this.#closed) return false;
    return this.#free.awaited || performance.now() < this.#wantedUntilMs;
  }

  async #run(): Promise<void> {
    if (this.#runs) return;
    this.#runs = true;
    while (this.#wanted) {
      await this.#listen().catch(() => undefined); // until then the core asks in short intervals
      if (this.#wanted) await sleep(jittered(this.#reconnectMs), undefined, { ref: false });
      this.#reconnectMs = Math.min(this.#reconnectMs * 2, LONGEST_RECONNECT_MS);
    }
    this.#runs = false;
  }

  async #listen(): Promise<void> {
    const own = await openOwnConnection(this.dataSource, { poolSize: 1 });
    try {
      const runner = own.createQueryRunner('master');
      const connection = (await runner.connect()) as ServerConnection;
      try {
        await this.#hear(runner, connection);
      } finally {
        this.#end();
        cut(connection);
        await runner.release();
      }
    } finally {
      await own.destroy();
    }
  }

  async #hear(runner: QueryRunner, connection: ServerConnection): Promise<void> {
    let ended = false;
    const over = new AbortController();
    this.#end = (): void => {
      ended = true;
      over.abort();
    };
    for (const event of ['error', 'end']) connection.on(event, this.#end);
    connection.on('notification', ({ channel, payload }: Notice) => {
      if (channel === CHANNEL) this.#free.ring(payload);
    });
    if (this.#closed) return;
    const [row] = await ask(runner, 'SELECT pg_backend_pid() AS pid');
    this.#hasPooler = row?.pid !== (connection as { readonly processID?: number }).processID;
    if (this.#hasPooler) return;
    await ask(runner, UNLIMITED_IDLENESS);
    await ask(runner, `EXPLAIN SELECT ${noticeOfRelease(this.table, "''")}`); // refused to us, it is to who releases
    await ask(runner, `LISTEN ${CHANNEL}`);
    await ask(runner, `SELECT pg_advisory_lock_shared(${listenersOf(this.table)})`);
    this.#free.hear(() => !ended);
    this.#reconnectMs = RECONNECT_MS;
    while (this.#wanted && !ended) {
      await sleep(PING_MS, undefined, { ref: false, signal: over.signal }).catch(() => undefined);
      if (!ended) await ask(runner, 'SELECT 1');
    }
  }
}

/** A shorter limit than that of our pings would end the connection again and again. Servers before 14 have none. */
const UNLIMITED_IDLENESS =
  "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'";

interface Notice {
  readonly channel: string;
  readonly payload: string;
}

/**
 * SQL that, in the statement of a release, tells whoever waits; `name` stands for {@link noticeName}. Notices of all
 * transactions queue up behind each other, so none is sent while nobody listens: who listens shares a lock that this asks
 * for, and waits for it as long as a release that has not seen him is under way.
 */
export function noticeOfRelease(table: string, name: string): string {
  const nobodyListens = `pg_try_advisory_xact_lock(${listenersOf(table)})`;
  return `CASE WHEN NOT ${nobodyListens} THEN pg_notify('${CHANNEL}', ${name}) END`;
}

/** Keys are longer than notices may be, and not for everybody's eyes. */
export function noticeName(table: string, key: string): string {
  return digest(`${table}:${key}`).toString('base64url');
}

function listenersOf(table: string): string {
  return digest(`listeners of ${table}`).readBigInt64BE().toString();
}

function digest(text: string): Buffer {
  return createHash('sha256').update(`nestjs-distributed-lock release:${text}`).digest();
}

async function ask(runner: QueryRunner, sql: string): Promise<readonly { readonly pid?: unknown }[]> {
  return withinTime(systemClock, ANSWER_MS, () => runner.query(sql) as Promise<readonly { pid?: unknown }[]>);
}
