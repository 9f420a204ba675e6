import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { createConnection, type RowDataPacket } from 'mysql2/promise';
import { Client } from 'pg';
import {
  describeOnMySqlKin,
  describeWithServers,
  startConsul,
  startEtcd,
  startPostgres,
  startRedis,
  startZooKeeper,
  type PostgresServer,
  type RedisServer,
  type TestServer,
} from './index.js';
import { anyRuns, descendants } from './process-tree.mjs';

/** Processes of this machine whose command line names `port`. */
function processesOn(port: number): string[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => commandOf(pid).includes(String(port)));
}

function commandOf(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8');
  } catch {
    return ''; // it ended meanwhile
  }
}

async function withClient<T>(server: PostgresServer, work: (client: Client) => Promise<T>): Promise<T> {
  const client = new Client({ connectionString: server.url });
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

async function onMySql(server: TestServer, ...statements: string[]): Promise<unknown> {
  const connection = await createConnection(server.url);
  try {
    let rows: unknown;
    for (const sql of statements) [rows] = await connection.query<RowDataPacket[]>(sql);
    return rows;
  } finally {
    await connection.end();
  }
}

async function withRedis<T>(server: RedisServer, work: (client: Redis) => Promise<T>): Promise<T> {
  const client = new Redis(server.url, { retryStrategy: () => null });
  try {
    return await work(client);
  } finally {
    client.disconnect();
  }
}

describeWithServers(['redis'], 'a private Redis server', () => {
  it('loses its data when killed, and comes back on the same port', async () => {
    const server = await startRedis();
    const { port, pid } = server;
    await withRedis(server, (client) => client.set('a', '1'));
    await server.kill();
    expect(server.pid).toBeUndefined();
    await server.start();
    expect(server.port).toBe(port);
    expect(server.pid).not.toBe(pid);
    expect(await withRedis(server, (client) => client.get('a'))).toBeNull();
    await server.stop();
  });

  it('keeps its data over a kill when asked to', async () => {
    const server = await startRedis({ appendOnly: true });
    await withRedis(server, (client) => client.set('a', '1'));
    await server.kill();
    await server.start();
    expect(await withRedis(server, (client) => client.get('a'))).toBe('1');
    await server.stop();
  });

  it('answers nothing while paused, and everything once resumed', async () => {
    const server = await startRedis();
    await withRedis(server, async (client) => {
      await client.ping();
      server.pause();
      let answered = false;
      const answer = client.set('a', '1').then(() => (answered = true));
      await pause(100);
      expect(answered).toBe(false);
      server.resume();
      await answer;
    });
    await server.stop();
  });

  it('leaves no process and no folder after stop, which may be called twice and while paused', async () => {
    const server = await startRedis();
    server.pause();
    expect(processesOn(server.port)).not.toEqual([]);
    await server.stop();
    await server.stop();
    expect(processesOn(server.port)).toEqual([]);
    expect(existsSync(server.folder)).toBe(false);
  });
});

describeWithServers(['postgres'], 'a private PostgreSQL server', () => {
  it('keeps committed data over a kill of all its processes, and comes back on the same port', async () => {
    const server = await startPostgres();
    const { port, pid } = server;
    await withClient(server, (client) => client.query('CREATE TABLE t AS SELECT 42 AS n'));
    const tree = [pid as number, ...descendants(pid as number)];
    await server.kill();
    expect(tree.length).toBeGreaterThan(3);
    expect(anyRuns(tree)).toBe(false);
    await server.start();
    expect(server.port).toBe(port);
    const { rows } = await withClient(server, (client) => client.query('SELECT n FROM t'));
    expect(rows).toEqual([{ n: 42 }]);
    await server.stop();
  });

  it('answers nothing while paused, also on open connections, and everything once resumed', async () => {
    const server = await startPostgres();
    await withClient(server, async (client) => {
      server.pause();
      let answered = false;
      const answer = client.query('SELECT 1').then(() => (answered = true));
      await pause(100);
      expect(answered).toBe(false);
      server.resume();
      await answer;
    });
    await server.stop();
  });

  it('leaves no process and no folder after stop, also when killed before', async () => {
    const server = await startPostgres();
    const tree = [server.pid as number, ...descendants(server.pid as number)];
    await server.kill();
    await server.stop();
    await server.stop();
    expect(anyRuns(tree)).toBe(false);
    expect(existsSync(server.folder)).toBe(false);
    await expect(server.start()).rejects.toThrow('start another one');
  });

  it('has room for 200 connections', async () => {
    const server = await startPostgres();
    const { rows } = await withClient(server, (client) => client.query('SHOW max_connections'));
    expect(rows).toEqual([{ max_connections: '200' }]);
    await server.stop();
  });
});

describeOnMySqlKin('a private server of', ({ kind, start }) => {
  const isolation = kind === 'mariadb' ? '@@tx_isolation' : '@@transaction_isolation';

  it('keeps committed data over a kill, comes back on the same port, and leaves nothing behind', async () => {
    const server = await start();
    const { port, pid } = server;
    await onMySql(server, 'CREATE TABLE t AS SELECT 42 AS n');
    await server.kill();
    expect(anyRuns([pid as number])).toBe(false);
    await server.start();
    expect(server.port).toBe(port);
    expect(await onMySql(server, 'SELECT n FROM t')).toEqual([{ n: 42 }]);
    await server.stop();
    await server.stop();
    expect(processesOn(port)).toEqual([]);
    expect(existsSync(server.folder)).toBe(false);
  });

  it('has the defaults of a server that nobody configured, and is the one that it is called', async () => {
    const server = await start();
    const settings = await onMySql(
      server,
      `SELECT @@sql_mode LIKE '%STRICT_TRANS_TABLES%' AS strict, @@default_storage_engine AS engine,
              ${isolation} AS isolation, VERSION() LIKE '%MariaDB%' AS isMariaDb`,
    );
    const isMariaDb = kind === 'mariadb' ? 1 : 0;
    expect(settings).toEqual([{ strict: 1, engine: 'InnoDB', isolation: 'REPEATABLE-READ', isMariaDb }]);
    await server.stop();
  });
});

describeWithServers(['etcd'], 'a private etcd server', () => {
  it('keeps its data over a kill, comes back on the same port, and leaves nothing behind', async () => {
    const server = await startEtcd();
    const { port } = server;
    await server.ask('kv/put', { key: 'YQ==', value: 'MQ==' });
    await server.kill();
    await server.start();
    expect(server.port).toBe(port);
    expect(await server.ask('kv/range', { key: 'YQ==' })).toMatchObject({ count: '1' });
    await server.stop();
    expect(processesOn(port)).toEqual([]);
    expect(existsSync(server.folder)).toBe(false);
  });
});

describeWithServers(['zookeeper'], 'a private ZooKeeper server', () => {
  it('comes back on the same port after a kill, and leaves nothing behind', async () => {
    const server = await startZooKeeper();
    const { pid, folder } = server;
    await server.kill();
    expect(anyRuns([pid as number])).toBe(false);
    await server.start();
    await server.stop();
    expect(existsSync(folder)).toBe(false);
  });
});

describeWithServers(['consul'], 'a private Consul server', () => {
  it('keeps its data over a kill, comes back on the same port, and leaves nothing behind', async () => {
    const server = await startConsul();
    const { port, folder } = server;
    await server.ask('PUT', 'kv/a', '1');
    await server.kill();
    await server.start();
    expect(server.port).toBe(port);
    expect(await server.ask('GET', 'kv/a')).toMatchObject([{ Value: 'MQ==' }]);
    await server.stop();
    expect(processesOn(port)).toEqual([]);
    expect(existsSync(folder)).toBe(false);
  });
});
