// A stored answer given again, against the least that any store on Redis can do: a bare GET of as many bytes.
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { Redis } from 'ioredis';
import { IdempotencyService, memoryIdempotencyStore } from 'nestjs-distributed-lock';
import { redisIdempotencyStore } from 'nestjs-distributed-lock/redis';
import { createIdempotencyTable, typeormIdempotencyStore } from 'nestjs-distributed-lock/typeorm';
import { DataSource } from 'typeorm';

import { compare, report } from './measure.mjs';
import { startPostgres } from './postgres-server.mjs';
import { startRedis } from './redis-server.mjs';

/** Of a GET's rate, with many calls in flight: one by one, both mostly wait for the network and for being woken up. */
const LEAST_REPLAY_RATE = 0.8;
const GET = 'bare GET of 1 KB';
const REPLAY = 'replay of 1 KB';
const FIRST = 'first call (claim and completion)';

/** As JSON, 1 KB. */
const answer = { id: 'payment-42', status: 'SETTLED', lines: ['x'.repeat(480), 'y'.repeat(480)] };

await onRedis();
await told('In memory', memoryIdempotencyStore({ maxRecords: 10_000_000, maxStoredCharacters: 1e12 }));
await onSqlite();
await onPostgres();

async function onRedis() {
  const server = await startRedis();
  const client = new Redis(server.port, '127.0.0.1');
  const service = new IdempotencyService({ store: redisIdempotencyStore({ client }) });
  await client.set('bare', JSON.stringify(answer));
  const calls = await callsOf(service);
  const pair = { [GET]: () => client.get('bare'), [REPLAY]: calls[REPLAY] };
  for (const inFlight of [1, 50]) {
    const rates = await compare(pair, { inFlight });
    report(`Redis, ${inFlight} in flight`, rates, GET);
    if (inFlight === 1 || rates[REPLAY] >= LEAST_REPLAY_RATE * rates[GET]) continue;
    console.error(`A replay should be at least ${LEAST_REPLAY_RATE} × as fast as a GET.`);
    process.exitCode = 1;
  }
  for (const inFlight of [1, 50])
    report(`Redis, ${inFlight} in flight`, await compare(calls, { inFlight, rounds: 5 }), REPLAY);
  for (const name of [FIRST, REPLAY]) await tellRoundTrips(client, name, calls[name]);
  await service.close();
  await client.quit();
  await server.stop();
}

async function onSqlite() {
  const folder = mkdtempSync(join(tmpdir(), 'lock-bench-'));
  const driver = createRequire(import.meta.url)('libsql');
  const database = join(folder, 'app.db');
  await inDatabase('SQLite', { type: 'better-sqlite3', driver, database, enableWAL: true });
  rmSync(folder, { recursive: true });
}

async function onPostgres() {
  const server = await startPostgres();
  if (!server) return console.log('\nNo PostgreSQL on this machine: its records are not measured.');
  await inDatabase('PostgreSQL', { type: 'postgres', url: server.url });
  await server.stop();
}

async function inDatabase(title, options) {
  await createIdempotencyTable(new DataSource(options));
  await told(title, typeormIdempotencyStore({ dataSource: new DataSource(options) }));
}

/** For information: no floor is measured beside it. */
async function told(title, store) {
  const service = new IdempotencyService({ store });
  report(`${title}, 1 in flight`, await compare(await callsOf(service), { rounds: 5 }), REPLAY);
  await service.close();
}

async function callsOf(service) {
  const keys = Array.from({ length: 100 }, (_, nr) => `bench:${nr}`);
  for (const key of keys) await service.runOnce(key, {}, () => answer);
  let replays = 0;
  let runs = 0;
  return {
    [REPLAY]: () => service.runOnce(keys[(replays += 1) % keys.length], {}, () => answer),
    [FIRST]: () => service.runOnce(`first:${(runs += 1)}`, { retentionMs: 60_000 }, () => answer),
  };
}

async function tellRoundTrips(client, name, call) {
  const before = await scriptsRun(client);
  for (let i = 0; i < 100; i += 1) await call();
  console.log(`Redis round trips, ${name}: ${((await scriptsRun(client)) - before) / 100}`);
}

async function scriptsRun(client) {
  const info = await client.info('commandstats');
  return [...info.matchAll(/cmdstat_eval(?:sha)?:calls=(\d+)/g)].reduce(
    (sum, [, calls]) => sum + Number(calls),
    0,
  );
}
