import { LockService, type Lease, type LockStore } from 'nestjs-distributed-lock';
import {
  createLockTables,
  FencedBy,
  guardDataSource,
  LockTokenColumn,
  postgresAdvisoryStore,
  typeormStore,
} from 'nestjs-distributed-lock/typeorm';
import { Column, DataSource, Entity, PrimaryColumn } from 'typeorm';

import { describeWithServers, startPostgres, type PostgresServer } from '../servers/index.js';
import { startPostgresPair, type PostgresPair } from '../servers/postgres-standby.js';
import { SectionHistory } from './section-history.js';

const HOUR_US = 3_600_000_000;
const TIMES = { ttlMs: 60_000, waitMs: 60_000 };
const FENCED_OUT = { code: 'FENCED_OUT' };

@Entity()
@FencedBy('invoice:<id>')
class Invoice {
  @PrimaryColumn('text') id!: string;
  @Column('text') status!: string;
  @LockTokenColumn() lockToken!: number;
}

type StoreOn = (dataSource: DataSource) => LockStore;

/** A process with its locks, and with rows in a database that need not be that of the locks. */
interface Owner {
  readonly locks: LockService;
  readonly rows: DataSource;
}

/** Two of them, and what both have seen of the lock on their one invoice. */
interface Rivals {
  readonly id: string;
  readonly older: Owner;
  readonly newer: Owner;
  readonly history: SectionHistory;
}

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
      const held = await one.acquire('held', TIMES);
      await failOver();
      await history.grownBy(15);
      done.abort();
      await Promise.all(working);
      expect(history.faults()).toEqual([]);
      expect(await other.tryAcquire('held')).toBeNull();
      await held.extend(TIMES.ttlMs);
      expect(await held.release()).toBe('released');
    });

    it('grants again what the standby had not received; the fence refuses the older owner, in the same database and in another', async () => {
      const { same, other } = await rivalsBeforeLoss(store, { clockSetBack: false });
      const [lost, lostElsewhere] = [await begin(same), await begin(other)];
      await failOver();

      expect(await statusOf(same)).toBe('new'); // rows and fence have gone back together
      await expect(write(same.older, lost, 'late')).rejects.toMatchObject(FENCED_OUT);
      expect(await statusOf(other)).toBe('begun');
      await expectSuccession(same, lost);
      await expectSuccession(other, lostElsewhere);
    });

    it('lets tokens fall when they are ahead of the clock and the standby had not received the last; a fence elsewhere then refuses the newer owner, until an operator raises the tokens to what it has seen', async () => {
      const { same, other } = await rivalsBeforeLoss(store, { clockSetBack: true });
      for (const rivals of [same, other]) await (await begin(rivals)).release();
      const [lost, lostElsewhere] = [await begin(same), await begin(other)];
      await failOver();

      const fallen = await enter(same, same.newer);
      expect(fallen.token).toBe(lost.token - 1);
      await write(same.newer, fallen, 'done');
      await expect(write(same.older, lost, 'late')).rejects.toMatchObject(FENCED_OUT); // a higher token is not enough
      await fallen.release();
      const again = await enter(same, same.newer);
      expect(again.token).toBe(lost.token);
      await expect(write(same.older, lost, 'late')).rejects.toMatchObject(FENCED_OUT); // the owner is another
      expect(same.history.faults()).toContain(`the token did not rise: ${again.token} after ${lost.token}`);

      await expect(enter(other, other.newer)).rejects.toMatchObject(FENCED_OUT);
      await write(other.older, lostElsewhere, 'finished'); // by the only one who can write
      const [fence] = await asOperator(elsewhere.url, 'SELECT max(token) AS largest FROM lock_fence');
      const raised = `greatest(token, ${String(fence?.['largest'])})`;
      await asOperator(pair.url, `UPDATE lock_lease SET token = ${raised}`);
      const next = await enter(other, other.newer);
      expect(next.token).toBe(lostElsewhere.token + 1);
      await write(other.newer, next, 'done');
      await expect(write(other.older, lostElsewhere, 'late')).rejects.toMatchObject(FENCED_OUT);
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
    const same = await rivalsOver(pair.url, store, 'same');
    const other = await rivalsOver(elsewhere.url, store, 'other');
    if (clockSetBack) await setClockBack();
    await pair.caughtUp();
    pair.link.cut();
    return { same, other };
  }

  /** One row, made by the newer of them under its first hold. */
  async function rivalsOver(url: string, store: StoreOn, id: string): Promise<Rivals> {
    const [older, newer] = [await ownerOver(url, store), await ownerOver(url, store)];
    const rows = newer.rows.getRepository(Invoice);
    await newer.locks.withLock(`invoice:${id}`, TIMES, () => rows.insert({ id, status: 'new' }));
    return { id, older, newer, history: new SectionHistory() };
  }

  async function ownerOver(url: string, store: StoreOn): Promise<Owner> {
    const owner = { locks: serviceOn(store), rows: await databaseAt(url).initialize() };
    ends.push(() => owner.rows.destroy());
    guardDataSource(owner.rows, owner.locks);
    return owner;
  }

  /** The network of the primary goes with it: what was under way to the standby is lost. */
  async function failOver(): Promise<void> {
    pair.link.cut();
    await pair.killPrimary();
    await pair.promote();
  }

  /** From now on tokens are ahead of the clock, and count by one, as with a server that lags behind the former one. */
  async function setClockBack(): Promise<void> {
    await asOperator(pair.url, `UPDATE lock_lease SET token = token + ${HOUR_US}`);
  }
});

/** The older one takes the lock and writes, all of which the standby is going to miss. */
async function begin(rivals: Rivals): Promise<Lease> {
  const lease = await enter(rivals, rivals.older);
  await write(rivals.older, lease, 'begun');
  return lease;
}

/** Both believe to have the lock, and only the newer one can write, until the older one hears of it. */
async function expectSuccession(rivals: Rivals, lost: Lease): Promise<void> {
  const next = await enter(rivals, rivals.newer);
  lost.assertHeld();
  expect(rivals.history.faults()).toEqual([`two owners: ${next.token} came to ${lost.token}`]);
  await write(rivals.newer, next, 'done');
  await expect(write(rivals.older, lost, 'late')).rejects.toMatchObject(FENCED_OUT);
  expect(await statusOf(rivals)).toBe('done');
  await expect(lost.extend(TIMES.ttlMs)).rejects.toMatchObject({ code: 'LEASE_LOST' });
  expect(await next.release()).toBe('released');
}

async function enter({ id, history }: Rivals, { locks }: Owner): Promise<Lease> {
  const lease = await locks.acquire(`invoice:${id}`, TIMES);
  const leave = history.enter(lease.token);
  lease.onStateChange(({ kind }) => kind === 'released' && leave());
  return lease;
}

async function write({ rows }: Owner, lease: Lease, status: string): Promise<void> {
  const id = lease.key.slice('invoice:'.length);
  await lease.run(() => rows.getRepository(Invoice).update({ id }, { status }));
}

async function statusOf({ id, newer }: Rivals): Promise<string> {
  return (await newer.rows.getRepository(Invoice).findOneByOrFail({ id })).status;
}

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
