import { Global, Module, type DynamicModule } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { Column, DataSource, Entity, ManyToOne, PrimaryColumn, type Relation } from 'typeorm';

import { DistributedLockModule, LockService, memoryStore } from 'nestjs-distributed-lock';
import {
  createLockTables,
  DistributedLockTypeOrmModule,
  FencedBy,
  guardDataSource,
  LockTokenColumn,
} from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase } from './databases.js';
import { Invoice, InvoiceLine, Label } from './invoices.js';

type Class = new () => object;

function entity(decorate: (target: Class) => void): Class {
  class Row {
    id!: string;
  }
  PrimaryColumn({ type: 'text' })(Row.prototype, 'id');
  Column({ type: 'text' })(Row.prototype, 'text');
  Entity()(Row);
  decorate(Row);
  return Row;
}

const token = (target: Class): void => LockTokenColumn()(target.prototype as object, 'lockToken');
const fenced = (key: string) => (target: Class) => void FencedBy(key)(target);

@Entity()
@FencedBy('child:<id>')
class CascadedChild {
  @PrimaryColumn({ type: 'text' })
  id!: string;

  @ManyToOne(() => Label, { onDelete: 'CASCADE' })
  label!: Relation<Label>;

  @LockTokenColumn()
  lockToken!: number;
}

/** What the entity says is not what the row gets. */
@Entity()
@FencedBy('region:<region>')
class KeyOfAnother {
  @PrimaryColumn({ type: 'text' })
  id!: string;

  @Column({ type: 'varchar', default: 'EU', insert: false })
  region!: string;

  @LockTokenColumn()
  lockToken!: number;
}

@Entity()
@FencedBy('twice:<id>')
class TwoTokens {
  @PrimaryColumn({ type: 'text' })
  id!: string;

  @LockTokenColumn()
  lockToken!: number;

  @Column({ type: 'bigint', name: 'lockToken' })
  mine!: string;
}

describe('FencedBy and LockTokenColumn', () => {
  it('refuse two locks on one class, and templates that are not usable', () => {
    const row = entity(fenced('row:<id>'));
    expect(() => fenced('row:<id>:again')(row)).toThrow(/two @FencedBy/);
    expect(() => FencedBy('row:<id')).toThrow(/never closed/);
  });
});

describeOnEachDatabase('DistributedLockTypeOrmModule', (start) => {
  let database: Awaited<ReturnType<typeof start>>;
  const opened: DataSource[] = [];

  beforeAll(async () => {
    database = await start();
    const plain = await database.connect({ entities: [Invoice, InvoiceLine, Label], synchronize: true });
    await createLockTables(plain);
    await plain.destroy();
  });
  afterEach(async () => {
    for (const dataSource of opened.splice(0)) if (dataSource.isInitialized) await dataSource.destroy();
  });
  afterAll(() => database.stop());

  async function connect(entities: readonly Class[] = [Invoice, InvoiceLine, Label]): Promise<DataSource> {
    const dataSource = await database.connect({ entities: [...entities] });
    opened.push(dataSource);
    return dataSource;
  }

  function providing(token: string | typeof DataSource, dataSource: DataSource): DynamicModule {
    @Global()
    @Module({})
    class Databases {}
    return {
      module: Databases,
      providers: [{ provide: token, useFactory: () => dataSource }],
      exports: [token],
    };
  }

  const locks = (): DynamicModule => DistributedLockModule.forRoot({ store: () => memoryStore() });
  const boot = async (imports: DynamicModule[]) => {
    const module = await Test.createTestingModule({ imports }).compile();
    return module.createNestApplication({ logger: false }).init();
  };

  it('guards the default DataSource from boot to shutdown', async () => {
    const dataSource = await connect();
    const app = await boot([
      locks(),
      providing(DataSource, dataSource),
      DistributedLockTypeOrmModule.forRoot(),
    ]);
    const rows = dataSource.getRepository(Invoice);
    await expect(rows.update({ id: '1' }, { paid: 1 })).rejects.toMatchObject({ code: 'UNFENCED_WRITE' });
    await app.get(LockService).withLock('invoice:1', async () => {
      await rows.insert({ id: '1' });
      await rows.update({ id: '1' }, { paid: 1 });
      await dataSource
        .getRepository(InvoiceLine)
        .delete({ id: 1 })
        .catch(() => undefined);
      await rows.remove(await rows.findOneByOrFail({ id: '1' }));
    });
    await app.close();
  });

  it('guards a named one, with options that a factory makes', async () => {
    const dataSource = await connect();
    const app = await boot([
      locks(),
      providing('billingDataSource', dataSource),
      DistributedLockTypeOrmModule.forRootAsync({
        dataSource: 'billing',
        inject: [LockService],
        useFactory: async () => ({ unfencedWrites: 'allow' as const }),
      }),
    ]);
    await dataSource.getRepository(Invoice).update({ id: '1' }, { paid: 1 });
    const save = app.get(LockService).withLock('invoice:1', (lease) => {
      lease.lose('expired');
      return dataSource.getRepository(Invoice).update({ id: '1' }, { paid: 1 });
    });
    await expect(save).rejects.toMatchObject({ code: 'LEASE_LOST' });
    await app.close();
  });

  it('does not boot with a fenced entity behind a DataSource that has no guards, and says what to write', async () => {
    const guarded = await connect();
    const forgotten = await connect();
    const booting = boot([
      locks(),
      providing(DataSource, guarded),
      providing('archiveDataSource', forgotten),
      DistributedLockTypeOrmModule.forRoot(),
    ]);
    await expect(booting).rejects.toThrow(
      /DistributedLockTypeOrmModule\.forRoot\(\{ dataSource: 'archive' \}\)/,
    );
  });

  it('does not boot when one DataSource is guarded twice', async () => {
    const dataSource = await connect();
    const booting = boot([
      locks(),
      providing(DataSource, dataSource),
      DistributedLockTypeOrmModule.forRoot(),
      DistributedLockTypeOrmModule.forRoot({ unfencedWrites: 'warn' }),
    ]);
    await expect(booting).rejects.toThrow(/guarded already/);
  });

  const wrong: Readonly<Record<string, readonly [Class, RegExp]>> = {
    'no token column': [entity(fenced('row:<id>')), /write @LockTokenColumn\(\) lockToken/],
    'no lock': [entity(token), /write @FencedBy/],
    'an unknown property': [
      entity((row) => (fenced('row:<number>')(row), token(row))),
      /no column for <number>; it has <id>, <text>, <lockToken>/,
    ],
    'a second property for its token column': [TwoTokens, /as <lockToken> and as <mine>/],
    'a key that the database computes': [KeyOfAnother, /remove insert: false and asExpression/],
    'a cascade of the database': [CascadedChild, /written by the database itself \(CASCADE\)/],
  };
  for (const [what, [row, says]] of Object.entries(wrong)) {
    it(`refuses an entity with ${what}, and says what to write`, async () => {
      const dataSource = await connect([row, Label]);
      const service = new LockService({ stores: { default: memoryStore() } });
      expect(() => guardDataSource(dataSource, service)).toThrow(says);
      await service.close();
    });
  }

  it('refuses a DataSource that is not initialised, or is initialised again', async () => {
    const service = new LockService({ stores: { default: memoryStore() } });
    const dataSource = await connect();
    guardDataSource(dataSource, service);
    await dataSource.destroy();
    expect(() => guardDataSource(dataSource, service)).toThrow(/initialize\(\) first/);
    await expect(dataSource.initialize()).rejects.toMatchObject({ code: 'LOCK_CONFIG_INVALID' });
    await service.close();
  });
});
