import { hasCode, type Lease, type LockService } from 'nestjs-distributed-lock';
import { FencedBy, guardDataSource, LockTokenColumn } from 'nestjs-distributed-lock/typeorm';
import { Column, Entity, PrimaryColumn, type DataSource } from 'typeorm';

import { until } from '../servers/eventually.js';
import { SectionHistory } from './section-history.js';

/** A renewal would tell an owner of its loss: none is due while a test runs. */
const TIMES = { ttlMs: 600_000, waitMs: 60_000 };
const FENCED_OUT = { code: 'FENCED_OUT' };

@Entity()
@FencedBy('invoice:<id>')
export class Invoice {
  @PrimaryColumn('text') id!: string;
  @Column('text') status!: string;
  @LockTokenColumn() lockToken!: number;
}

/** A process with its locks, and with rows in a database that need not be that of the locks. */
export class Owner {
  constructor(
    private readonly locks: LockService,
    private readonly rows: DataSource,
  ) {
    guardDataSource(rows, locks);
  }

  acquire(id: string): Promise<Lease> {
    return this.locks.acquire(`invoice:${id}`, TIMES);
  }

  async insert(id: string): Promise<void> {
    const invoices = this.rows.getRepository(Invoice);
    await this.locks.withLock(`invoice:${id}`, TIMES, () => invoices.insert({ id, status: 'new' }));
  }

  async write(lease: Lease, status: string): Promise<void> {
    const id = lease.key.slice('invoice:'.length);
    await lease.run(() => this.rows.getRepository(Invoice).update({ id }, { status }));
  }

  async statusOf(id: string): Promise<string> {
    return (await this.rows.getRepository(Invoice).findOneByOrFail({ id })).status;
  }
}

/** Two owners of one invoice. The older one has grants that the store is about to forget. */
export class Rivals {
  /** What both have seen of its lock. */
  readonly history = new SectionHistory();

  private constructor(
    private readonly id: string,
    private readonly older: Owner,
    private readonly newer: Owner,
  ) {}

  /** The newer one has made the row, under a hold that the store will remember. */
  static async over(id: string, [older, newer]: readonly [Owner, Owner]): Promise<Rivals> {
    await newer.insert(id);
    return new Rivals(id, older, newer);
  }

  /** The older one takes the lock and writes. */
  async begin(): Promise<Lease> {
    const lease = await this.#enter(this.older);
    await this.older.write(lease, 'begun');
    return lease;
  }

  succeed(): Promise<Lease> {
    return this.#enter(this.newer);
  }

  status(): Promise<string> {
    return this.newer.statusOf(this.id);
  }

  finish(lease: Lease): Promise<void> {
    return this.newer.write(lease, 'done');
  }

  async expectOlderRefused(lost: Lease): Promise<void> {
    lost.assertHeld(); // it believes to have the lock: only the fence decides
    const before = await this.status();
    await expect(this.older.write(lost, 'late')).rejects.toMatchObject(FENCED_OUT);
    expect(await this.status()).toBe(before);
  }

  /** Tokens have gone on rising: whatever was granted twice, the newer one writes. */
  async expectSuccession(lost: Lease): Promise<void> {
    const next = await this.succeed();
    expect(this.history.faults()).toEqual([`two owners: ${next.token} came to ${lost.token}`]);
    await this.finish(next);
    await this.expectOlderRefused(lost);
    await until('the older one has heard of it', async () => {
      const answer: unknown = await lost.extend(TIMES.ttlMs).catch((error: unknown) => error);
      return hasCode(answer, 'LEASE_LOST');
    });
    expect(await next.release()).toBe('released');
  }

  /** Tokens have fallen behind a fence that knows better: the older one writes, until somebody raises them to `lost`. */
  async expectStandstill(lost: Lease, raiseTokens: () => Promise<unknown>): Promise<void> {
    await expect(this.succeed()).rejects.toMatchObject(FENCED_OUT);
    await this.older.write(lost, 'finished');
    expect(await this.status()).toBe('finished');
    await raiseTokens();
    const next = await this.succeed();
    expect(next.token).toBe(lost.token + 1);
    await this.finish(next);
    await this.expectOlderRefused(lost);
  }

  async #enter(owner: Owner): Promise<Lease> {
    const lease = await owner.acquire(this.id);
    const leave = this.history.enter(lease.token);
    lease.onStateChange(({ kind }) => kind === 'released' && leave());
    return lease;
  }
}
