import type { AddressInfo, Server } from 'node:net';

import {
  Body,
  Controller,
  Global,
  Headers,
  Inject,
  Injectable,
  Module,
  Param,
  Post,
  type DynamicModule,
  type INestApplication,
  type Type,
} from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import {
  AcceptFencingToken,
  currentLease,
  DistributedLockModule,
  fencingHeaders,
  LockContext,
  Locked,
  lockKey,
  type Lease,
  type LockStore,
} from 'nestjs-distributed-lock';
import {
  createLockTables,
  DistributedLockTypeOrmModule,
  FencedBy,
  LockTokenColumn,
  unfenced,
  withExpectedLockToken,
} from 'nestjs-distributed-lock/typeorm';
import { Column, DataSource, Entity, PrimaryColumn } from 'typeorm';

import type { TestDatabase } from '../typeorm/databases.js';

export const InvoiceKey = lockKey('invoice:<id>');

@Entity()
@FencedBy(InvoiceKey)
export class Invoice {
  @PrimaryColumn({ type: 'varchar', length: 100 })
  id!: string;

  @Column({ type: 'varchar', length: 100, default: 'READY' })
  status!: string;

  @LockTokenColumn()
  lockToken!: number;
}

/** Lets one call wait in the middle until the test has done something else. */
export class Gate {
  #arrive: () => void = () => undefined;
  #open: () => void = () => undefined;
  #opened = Promise.resolve();

  /** The next call that passes will wait; resolves once it is there. */
  close(): Promise<void> {
    this.#opened = new Promise((resolve) => (this.#open = resolve));
    return new Promise((resolve) => (this.#arrive = resolve));
  }

  async pass(): Promise<void> {
    this.#arrive();
    await this.#opened;
  }

  open(): void {
    this.#open();
  }
}

export const ledgerGate = new Gate();

/** For the positive control: the same database, without a guard. */
export const UNGUARDED = Symbol('a DataSource without guards');

/** Service B: it holds no lock, and is called by those who do. */
@Controller('ledger/:id')
export class Ledger {
  constructor(
    @Inject(DataSource) private readonly database: DataSource,
    @Inject(UNGUARDED) private readonly unguarded: { readonly database: DataSource },
    private readonly lock: LockContext,
  ) {}

  @Post('settle')
  @AcceptFencingToken(InvoiceKey)
  async settle(@Param('id') id: string, @Body('by') by: string): Promise<object> {
    await this.database.getRepository(Invoice).update({ id }, { status: `settled by ${by}` });
    return { token: this.lock.token };
  }

  /** What was there before the decision may be old when the write comes. */
  @Post('settle-slowly')
  @AcceptFencingToken('invoice:<id>')
  async settleSlowly(@Param('id') id: string, @Body('by') by: string): Promise<void> {
    await ledgerGate.pass();
    await this.settleUnder(id, by);
  }

  /** Not opted in: it believes no token that its fence does not know. */
  @Post('settle-strictly')
  async settleStrictly(
    @Param('id') id: string,
    @Body('by') by: string,
    @Headers('fencing-token') token: string,
  ): Promise<void> {
    await withExpectedLockToken({ [InvoiceKey({ id })]: Number(token) }, () => this.settleUnder(id, by));
  }

  /** The positive control: no decorator, no guard. */
  @Post('settle-unchecked')
  async settleUnchecked(@Param('id') id: string, @Body('by') by: string): Promise<void> {
    await this.unguarded.database.getRepository(Invoice).update({ id }, { status: `settled by ${by}` });
  }

  private async settleUnder(id: string, by: string): Promise<void> {
    await this.database.getRepository(Invoice).update({ id }, { status: `settled by ${by}` });
  }
}

export interface Answer {
  readonly status: number;
  readonly body: Readonly<Record<string, unknown>>;
}

export async function post(url: string, headers: Record<string, string>, body: object): Promise<Answer> {
  const answer = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
  const text = await answer.text();
  return { status: answer.status, body: (text === '' ? {} : JSON.parse(text)) as Answer['body'] };
}

/** Service A: it holds the lock while it calls service B. */
@Injectable()
export class Billing {
  readonly gate = new Gate();
  lease: Lease | undefined;

  @Locked(InvoiceKey, { ttlMs: 120_000, waitMs: 0 })
  async settle(id: string, by: string, ledger: string): Promise<Answer> {
    this.lease = currentLease();
    const headers = fencingHeaders();
    await this.gate.pass();
    return post(`${ledger}/${id}/settle`, headers, { by });
  }

  /** As {@link settle}, to another route of service B. */
  @Locked(InvoiceKey, { ttlMs: 120_000, waitMs: 0 })
  async settleBy(route: string, id: string, by: string, ledger: string): Promise<Answer> {
    return post(`${ledger}/${id}/${route}`, fencingHeaders(InvoiceKey), { by });
  }
}

/** An application on a port of its own. */
export interface Service {
  readonly url: string;
  readonly app: INestApplication;
  stop(): Promise<void>;
}

export interface ServiceParts {
  readonly imports: readonly DynamicModule[];
  readonly controllers?: readonly Type[];
  readonly providers?: readonly Type[];
}

export async function startService({
  imports,
  controllers = [],
  providers = [],
}: ServiceParts): Promise<Service> {
  @Module({ imports: [...imports], controllers: [...controllers], providers: [...providers] })
  class AppModule {}
  // Connections that are kept alive would keep close() waiting for five seconds.
  const app = await NestFactory.create(AppModule, { logger: false, forceCloseConnections: true });
  await app.listen(0, '127.0.0.1');
  const { port } = (app.getHttpServer() as Server).address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}`, app, stop: () => app.close() };
}

/** Whoever was late in a test still believes to hold its lock at the end: nobody waits for that. */
export function locksOf(store: LockStore): DynamicModule {
  return DistributedLockModule.forRoot({ store: () => store, shutdownGraceMs: 0 });
}

/** A guarded DataSource, and one without guards that Nest does not see. */
export async function guarded(database: TestDatabase): Promise<DynamicModule[]> {
  const dataSource = await database.connect({ entities: [Invoice] });
  const plain = await database.connect({ entities: [Invoice] });
  @Global()
  @Module({})
  class Databases {
    constructor(@Inject(DataSource) private readonly guarded: DataSource) {}

    async onApplicationShutdown(): Promise<void> {
      await this.guarded.destroy();
      await plain.destroy();
    }
  }
  const databases = {
    module: Databases,
    providers: [
      { provide: DataSource, useFactory: () => dataSource },
      { provide: UNGUARDED, useValue: { database: plain } },
    ],
    exports: [DataSource, UNGUARDED],
  };
  return [databases, DistributedLockTypeOrmModule.forRoot()];
}

export async function createTables(database: TestDatabase): Promise<DataSource> {
  const dataSource = await database.connect({ entities: [Invoice], synchronize: true });
  await createLockTables(dataSource);
  return dataSource;
}

/** What the database has for the invoice. */
export async function rowOf(dataSource: DataSource, id: string): Promise<{ status: string; token: number }> {
  const select = { id: true, status: true, lockToken: true };
  const { status, lockToken } = await dataSource
    .getRepository(Invoice)
    .findOneOrFail({ where: { id }, select });
  return { status, token: lockToken };
}

/** Drivers give texts and numbers as they like. */
export async function fenceOf(
  dataSource: DataSource,
  key: string,
): Promise<{ token: number; owner: string } | null> {
  const rows =
    await dataSource.query<Record<'key' | 'token' | 'owner_id', unknown>[]>('SELECT * FROM lock_fence');
  const row = rows.find((candidate) => String(candidate.key) === key);
  return row ? { token: Number(row.token), owner: String(row.owner_id) } : null;
}

export async function putInvoice(dataSource: DataSource, id: string): Promise<void> {
  await unfenced('before anybody locks', () => dataSource.getRepository(Invoice).insert({ id }));
}
