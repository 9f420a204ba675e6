// What a guard costs: statements counted, and time against the same write on the same table without guards.
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { LockService, memoryStore } from 'nestjs-distributed-lock';
import { createLockTables, fenced, guardDataSource, lockTokenColumn } from 'nestjs-distributed-lock/typeorm';
import { DataSource, EntitySchema } from 'typeorm';

import { compare, report } from './measure.mjs';
import { startPostgres } from './postgres-server.mjs';

const Account = new EntitySchema({
  name: 'account',
  columns: {
    id: { type: 'int', primary: true },
    balance: { type: 'int', default: 0 },
    version: { type: 'int', version: true },
    lockToken: lockTokenColumn('account:<id>'),
  },
});

/** How many statements more a guard may cost. */
const ALLOWED = { 'update()': 0, 'save()': 1, 'delete()': 0 };

await onSqlite();
await onPostgres();

async function onSqlite() {
  const folder = mkdtempSync(join(tmpdir(), 'lock-bench-'));
  const driver = createRequire(import.meta.url)('libsql');
  await measure('SQLite', {
    type: 'better-sqlite3',
    driver,
    database: join(folder, 'app.db'),
    enableWAL: true,
  });
  rmSync(folder, { recursive: true });
}

async function onPostgres() {
  const server = await startPostgres();
  if (!server) return console.log('\nNo PostgreSQL on this machine: its guards are not measured.');
  await measure('PostgreSQL', { type: 'postgres', url: server.url });
  await server.stop();
}

async function measure(title, options) {
  const plain = await connected({ ...options, synchronize: true });
  await createLockTables(plain);
  const guarded = await connected(options);
  const locks = new LockService({ stores: { default: memoryStore() } });
  guardDataSource(guarded, locks);
  const repositories = { plain: plain.getRepository(Account), guarded: guarded.getRepository(Account) };
  await repositories.plain.insert([{ id: 1 }, { id: 2 }]);
  await locks.withLock('account:2', { ttlMs: 60_000 }, async () => {
    const writes = {
      ...writesTo(repositories.plain, repositories.plain, 1, 'plain'),
      ...writesTo(repositories.guarded, fenced(repositories.guarded), 2, 'guarded'),
    };
    await tellStatements(title, writes, { plain, guarded });
    for (const write of ['update()', 'save()']) {
      const pair = Object.fromEntries(
        ['plain', 'guarded'].map((kind) => [`${kind} ${write}`, writes[`${kind} ${write}`]]),
      );
      report(`${title}, ${write}`, await compare(pair, { roundMs: 200 }), `plain ${write}`);
    }
  });
  await locks.close();
  await guarded.destroy();
  await plain.destroy();
}

async function connected(options) {
  const dataSource = await new DataSource({ ...options, entities: [Account] }).initialize();
  dataSource.sent = 0;
  dataSource.subscribers.push({ beforeQuery: () => void (dataSource.sent += 1) });
  return dataSource;
}

function writesTo(repository, deleting, id, kind) {
  let balance = 0;
  return {
    [`${kind} update()`]: () => repository.update({ id }, { balance: (balance += 1) }),
    [`${kind} save()`]: () => repository.save({ id, balance: (balance += 1) }),
    [`${kind} delete()`]: () => deleting.delete({ id, balance: -1 }),
  };
}

async function tellStatements(title, writes, dataSources) {
  console.log(`\n${title}: statements for one write`);
  for (const [write, allowed] of Object.entries(ALLOWED)) {
    const counts = {};
    for (const [kind, dataSource] of Object.entries(dataSources)) {
      dataSource.sent = 0;
      await writes[`${kind} ${write}`]();
      counts[kind] = dataSource.sent;
    }
    console.log(`${write.padEnd(12)} plain ${counts.plain}, guarded ${counts.guarded}`);
    if (counts.guarded <= counts.plain + allowed) continue;
    console.error(`A guarded ${write} may cost ${allowed} statements more.`);
    process.exitCode = 1;
  }
}
