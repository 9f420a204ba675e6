import { LockService, type LockStore } from 'nestjs-distributed-lock';
import { createLockTables, postgresAdvisoryStore, typeormStore } from 'nestjs-distributed-lock/typeorm';
import { DataSource } from 'typeorm';

import { expectTaken } from '../faults/expect-taken.js';
import { describeWithServers, startPostgres, type PostgresServer } from '../servers/index.js';
import { startPostgresPair, type PostgresPair } from '../servers/postgres-standby.js';
import { Invoice, Owner, Rivals } from './rivals.js';
import { SectionHistory } from './section-history.js';

const HOUR_US = 3_600_000_000;
const TTL_MS = 600_000;

type StoreOn = (dataSource: DataSource) => LockStore;

const kinds: readonly { readonly title: string; readonly store: StoreOn }[] = [
  { title: 'the lease table', store: (dataSource) => typeormStore({ dataSource }) },
  { title: 'advisory locks', store: (dataSource) => postgresAdvisoryStore({ dataSource }) },
];

describeWithServers(['postgres'], 'a failover of PostgreSQL to its standby', () => {
  /** A database that does not fail over. */
  let elsewhere: PostgresServer;
  let pair: PostgresPair;
  /** Ended after each test, also when it failed. */
  const ends: (() => Promise<unknown>)[] = [];

  beforeAll(async () => {
    elsewhere = await startPostgres();
    await createTables(elsewhere.url);
  });
  afterEach(async () => {
    for (const end of ends.splice(0).reverse()) await end();
    await asOperator(elsewhere.url, 'TRUNCATE lock_fence, invoice');
  });
  afterAll(() => elsewhere.stop());

  describe.each(kinds)('under $title', ({ store }) => {
    it('leaves leases and tokens as they are when commits wait for the standby, and nothing has to be started again', async () => {
      await startPair({ synchronous: true });
      const services = [1, 2, 3].map(() => serviceOn(store));
      const [one, other] = services as [LockService, LockService];
      await (await one.acquire('k')).release();
      await setClockBack();
      pair.link.delayReplies(10); // so that some of the log is always under way
      const history = new SectionHistory();
      const done = new AbortController();
      const working = services.map((service) => history.fill(service, 'k', done.signal));
      await history.grownBy(15);
      const held = await one.acquire('held', { ttlMs: TTL_MS });
      await failOver();
      await history.grownBy(15);
      done.abort();
      await Promise.all(working);
      expect(history.faults()).toEqual([]);
      await expectTaken(other, 'held');
      await held.extend(TTL_MS);
      expect(await held.release()).toBe('released');
    });

    it('grants again what the standby had not received; the fence refuses the older owner, in the same database and in another', async () => {
      const { same, other } = await rivalsBeforeLoss(store, { clockSetBack: false });
      const [lost, lostElsewhere] = [await same.begin(), await other.begin()];
      await failOver();

      expect(await same.status()).toBe('new'); // rows and fence have gone back together
      await same.expectOlderRefused(lost);
      await same.expectSuccession(lost);
      expect(await other.status()).toBe('begun');
      await other.expectSuccession(lostElsewhere);
    });

    it('lets tokens fall when they are ahead of the clock; the fence of the same database refuses the older owner all the same, one elsewhere the newer until an operator raises them', async () => {
      const { same, other } = await rivalsBeforeLoss(store, { clockSetBack: true });
      for (const rivals of [same, other, other]) await (await rivals.begin()).release();
      const [lost, lostElsewhere] = [await same.begin(), await other.begin()];
      await failOver();

      const fallen = await same.succeed();
      expect(fallen.token).toBe(lost.token - 1);
      await same.finish(fallen);
      await same.expectOlderRefused(lost); // its higher token is not enough
      await fallen.release();
      const again = await same.succeed();
      expect(again.token).toBe(lost.token);
      await same.expectOlderRefused(lost); // the same token is another owner's
      expect(same.history.faults()).toContain(`the token did not rise: ${again.token} after ${lost.token}`);
      await other.expectStandstill(lostElsewhere, raiseTokensToThoseElsewhere);
    });
  });

  async function startPair(options: { readonly synchronous: boolean }): Promise<void> {
    pair = await startPostgresPair(options);
    ends.push(() => pair.stop());
    await createTables(pair.url);
  }

  function serviceOn(store: StoreOn): LockService {
    const service = new LockService({ stores: { default: store(databaseAt(pair.url)) } });
    ends.push(() => service.close(0));
    return service;
  }

  /** Over rows in the database of the locks, and elsewhere. From now on the standby gets nothing any more. */
  async function rivalsBeforeLoss(
    store: StoreOn,
    { clockSetBack }: { readonly clockSetBack: boolean },
  ): Promise<{ readonly same: Rivals; readonly other: Rivals }> {
    await startPair({ synchronous: false });
    const owner = (url: string): Promise<Owner> => ownerOver(url, store);
    const same = await Rivals.over('same', [await owner(pair.url), await owner(pair.url)]);
    const other = await Rivals.over('other', [await owner(elsewhere.url), await owner(elsewhere.url)]);
    if (clockSetBack) await setClockBack();
    await pair.caughtUp();
    pair.link.cut();
    return { same, other };
  }

  async function ownerOver(url: string, store: StoreOn): Promise<Owner> {
    const rows = await databaseAt(url).initialize();
    ends.push(() => rows.destroy());
    return new Owner(serviceOn(store), rows);
  }

  /** The network of the primary goes with it: what was under way to the standby is lost. */
  async function failOver(): Promise<void> {
    pair.link.cut();
    await pair.killPrimary();
    await pair.promote();
  }

  /** The recipe of docs/guarantees.md. */
  async function raiseTokensToThoseElsewhere(): Promise<void> {
    const [fence] = await asOperator(elsewhere.url, 'SELECT max(token) AS largest FROM lock_fence');
    const raised = `greatest(token, ${String(fence?.['largest'])})`;
    await asOperator(pair.url, `UPDATE lock_lease SET token = ${raised}`);
  }

  /** From now on tokens are ahead of the clock, and count by one, as with a server that lags behind the former one. */
  async function setClockBack(): Promise<void> {
    await asOperator(pair.url, `UPDATE lock_lease SET token = token + ${HOUR_US}`);
  }
});

async function createTables(url: string): Promise<void> {
  const dataSource = await databaseAt(url).initialize();
  await dataSource.synchronize();
  await createLockTables(dataSource);
  await dataSource.destroy();
}

/** Past all guards. */
async function asOperator(url: string, sql: string): Promise<readonly Readonly<Record<string, unknown>>[]> {
  const dataSource = await databaseAt(url).initialize();
  try {
    return await dataSource.query(sql);
  } finally {
    await dataSource.destroy();
  }
}

function databaseAt(url: string): DataSource {
  return new DataSource({ type: 'postgres', url, entities: [Invoice], poolErrorHandler: () => undefined });
}
