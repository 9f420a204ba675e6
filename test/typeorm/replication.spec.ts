import { readFileSync } from 'node:fs';
import { join } from 'node:path';

import { Client } from 'pg';
import { DataSource } from 'typeorm';

import { LockService, memoryStore } from 'nestjs-distributed-lock';
import {
  createLockTables,
  fencedTransaction,
  guardDataSource,
  unfenced,
  type GuardOptions,
} from 'nestjs-distributed-lock/typeorm';

import { describeWithServers, startPostgres, type PostgresServer } from '../servers/index.js';
import { Invoice, InvoiceLine, Label } from './invoices.js';

describeWithServers(['postgres'], 'A DataSource with a primary and a replica', () => {
  const entities = [Invoice, InvoiceLine, Label];
  let primary: PostgresServer;
  let replica: PostgresServer;
  let locks: LockService;
  const opened: DataSource[] = [];

  beforeAll(async () => {
    [primary, replica] = await Promise.all([startPostgres(), startPostgres()]);
    for (const server of [primary, replica]) {
      const { url } = server;
      const plain = await new DataSource({ type: 'postgres', url, entities, synchronize: true }).initialize();
      await createLockTables(plain);
      await plain.destroy();
      await logStatements(server);
    }
    locks = new LockService({ stores: { default: memoryStore() } });
  });
  afterEach(async () => {
    for (const dataSource of opened.splice(0)) await dataSource.destroy();
  });
  afterAll(async () => {
    await locks.close();
    await Promise.all([primary.stop(), replica.stop()]);
  });

  async function connect(defaultMode?: 'master' | 'slave'): Promise<DataSource> {
    const replication = { master: { url: primary.url }, slaves: [{ url: replica.url }], defaultMode };
    const dataSource = await new DataSource({ type: 'postgres', entities, replication }).initialize();
    opened.push(dataSource);
    return dataSource;
  }

  const guard = (dataSource: DataSource, options?: GuardOptions): void =>
    guardDataSource(dataSource, locks, options);

  it('is refused when it reads from the replica by itself, and told what to write', async () => {
    for (const mode of [undefined, 'slave'] as const) {
      const dataSource = await connect(mode);
      expect(() => guard(dataSource)).toThrow(/replication: \{ defaultMode: 'master' \}/);
      expect(() => guard(dataSource)).toThrow(/replicaReads: 'allow'/);
    }
  });

  it('is guarded when it reads from the primary by itself', async () => {
    const dataSource = await connect('master');
    guard(dataSource);
    const before = statementsOf(replica).length;
    await locks.withLock('invoice:1', () => dataSource.getRepository(Invoice).find());
    expect(statementsOf(replica).length).toBe(before);
  });

  it('asks the primary alone about fences, and writes to it alone, also when it may read from the replica', async () => {
    const dataSource = await connect('slave');
    guard(dataSource, { replicaReads: 'allow' });
    const [onPrimary, onReplica] = [statementsOf(primary).length, statementsOf(replica).length];
    const invoices = dataSource.getRepository(Invoice);
    const lines = dataSource.getRepository(InvoiceLine);
    await unfenced('a row that is there', () => invoices.insert({ id: '2' }));
    await locks.withLock('invoice:1', async () => {
      await invoices.insert({ id: '1' });
      await invoices.update({ id: '1' }, { paid: 1 });
      await invoices.increment({ id: '1' }, 'paid', 1);
      await invoices.save({ id: '1', status: 'SEEN' });
      const line = await lines.save({ invoice: { id: '1' }, text: 'line' });
      await lines.remove(line);
      await fencedTransaction((manager) => manager.update(Invoice, { id: '1' }, { paid: 3 }));
      await dataSource.transaction((manager) => manager.insert(Label, { name: 'label' }));
      expect(await invoices.find()).toEqual([]); // the replica never heard of it: the list below is not empty for nothing
    });
    const said = statementsOf(replica).slice(onReplica);
    expect(said.filter((sql) => /FROM "invoice"/.test(sql))).toHaveLength(1);
    expect(said.filter((sql) => /lock_fence|\b(?:INSERT|UPDATE|DELETE|BEGIN|START)\b/i.test(sql))).toEqual(
      [],
    );
    const fenced = statementsOf(primary)
      .slice(onPrimary)
      .filter((sql) => sql.includes('lock_fence'));
    expect(fenced.length).toBeGreaterThan(8);
  });
});

/** From now on the log of the server has every statement, whoever sends it. A new setting is heeded after a moment. */
async function logStatements(server: PostgresServer): Promise<void> {
  await say(server, `ALTER SYSTEM SET log_statement = 'all'`);
  await say(server, 'SELECT pg_reload_conf()');
  while (statementsOf(server).length === 0) await say(server, 'SELECT 1');
}

/** On a connection of its own, as those that come later are. */
async function say({ url }: PostgresServer, statement: string): Promise<void> {
  const client = new Client({ connectionString: url });
  await client.connect();
  await client.query(statement);
  await client.end();
}

function statementsOf({ folder }: PostgresServer): readonly string[] {
  const log = readFileSync(join(folder, 'server.log'), 'utf8');
  return log.split('\n').filter((line) => /LOG: {2}(?:statement|execute)/.test(line));
}
