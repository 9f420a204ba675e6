import {
  ChildEntity,
  Column,
  Entity,
  Index,
  JoinColumn,
  ManyToOne,
  PrimaryColumn,
  PrimaryGeneratedColumn,
  TableInheritance,
} from 'typeorm';

import { lockKey } from 'nestjs-distributed-lock';
import {
  createLockTables,
  FencedBy,
  guardDataSource,
  LockTokenColumn,
  unfenced,
} from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase } from './databases.js';
import { Owners, type Owner } from './owners.js';

/** Fence and token column come from the base class. */
@FencedBy('document:<kind>:<number>')
abstract class Document {
  @PrimaryColumn({ type: 'varchar' })
  kind!: string;

  @PrimaryColumn({ type: 'int', name: 'no' })
  number!: number;

  @Column({ type: 'varchar', default: '' })
  text!: string;

  @LockTokenColumn()
  token!: number;
}

@Entity({ name: 'Letters of Credit' })
class Letter extends Document {}

@Entity()
class Contract extends Document {
  @Column({ type: 'boolean', default: false })
  signed!: boolean;
}

const VehicleKey = lockKey('vehicle:<id>');

@Entity()
@TableInheritance({ column: { type: 'varchar', name: 'kind' } })
@FencedBy(VehicleKey)
class Vehicle {
  @PrimaryGeneratedColumn('uuid')
  id!: string;

  @Column({ type: 'int', default: 0 })
  km!: number;

  @LockTokenColumn()
  lockToken!: number;
}

@ChildEntity()
class Truck extends Vehicle {
  @Column({ type: 'int', nullable: true })
  load!: number;
}

@ChildEntity()
class Car extends Vehicle {
  @Column({ type: 'int', nullable: true })
  seats!: number;
}

class Place {
  @Column({ type: 'text' })
  country!: string;

  @Column({ type: 'bigint' })
  zip!: string;
}

@Entity()
@FencedBy('shop:<place.country>:<place.zip>:<open>')
class Shop {
  @PrimaryGeneratedColumn()
  id!: number;

  @Column(() => Place)
  place!: Place;

  @Column({ type: 'boolean' })
  open!: boolean;

  @Column({ type: 'int', default: 0 })
  till!: number;

  @LockTokenColumn()
  lockToken!: number;
}

@Entity()
class Owning {
  @PrimaryGeneratedColumn()
  id!: number;

  @Column({ type: 'text' })
  name!: string;
}

@Entity()
@FencedBy('account:<id>')
class Account {
  @PrimaryGeneratedColumn()
  id!: number;

  @ManyToOne(() => Owning, { lazy: true })
  @JoinColumn()
  @Index()
  owning!: Promise<Owning>;

  @Column({ type: 'int', default: 0 })
  balance!: number;

  @LockTokenColumn()
  lockToken!: number;
}

/** One lock for the whole table. */
@Entity()
@FencedBy('settings')
class Setting {
  @PrimaryColumn({ type: 'varchar' })
  name!: string;

  @Column({ type: 'text' })
  value!: string;

  @LockTokenColumn()
  lockToken!: number;
}

/** The database fills in the key, with one that other rows have. */
@Entity()
@FencedBy('tenant:<tenant>')
class Note {
  @PrimaryGeneratedColumn()
  id!: number;

  @Column({ type: 'varchar', length: 50, default: () => "'main'" })
  tenant!: string;

  @LockTokenColumn()
  lockToken!: number;
}

const entities = [Letter, Contract, Vehicle, Truck, Car, Shop, Owning, Account, Setting, Note];

describeOnEachDatabase('Fenced entities of every shape', (start, dialect) => {
  let owners: Owners;
  let owner: Owner;
  let successor: Owner;

  beforeAll(async () => {
    owners = await Owners.on(await start(), entities);
    owner = await owners.add();
    successor = await owners.add();
  });
  afterAll(() => owners.stop());

  /** `write` passes under `key`, not under `another`, and not any more once there is a successor. */
  async function expectProtected(key: string, another: string, write: () => Promise<unknown>): Promise<void> {
    await owner.locks.withLock(key, () => write());
    const refused = { code: expect.stringMatching(/FENCED_OUT|UNFENCED_WRITE/) as string };
    await expect(owner.locks.withLock(another, () => write())).rejects.toMatchObject(refused);
    const stale = await owners.hold(owner, key);
    const current = await owners.takeOver(stale, successor);
    await expect(stale.run(() => write())).rejects.toMatchObject({ code: 'FENCED_OUT' });
    await current.release();
    await stale.release();
  }

  let change = 0;

  it('inherit fence and token column from a base class; composite keys, renamed columns, odd table names', async () => {
    for (const entity of [Letter, Contract] as const) {
      const rows = owner.repository(entity);
      await unfenced('rows', () =>
        rows.insert([
          { kind: 'a:b', number: 1 },
          { kind: 'a', number: 1 },
        ]),
      );
      const save = async (): Promise<unknown> =>
        rows.save(
          Object.assign(await rows.findOneByOrFail({ kind: 'a:b', number: 1 }), { text: `${++change}` }),
        );
      await expectProtected('document:a%3Ab:1', 'document:a:1', save);
      await expectProtected('document:a%3Ab:1', 'document:a%3Ab:2', () =>
        rows.update({ kind: 'a:b', number: 1 }, { text: `${++change}` }),
      );
      await owner.locks.withLock('document:a%3Ab:1', async () =>
        rows.remove(await rows.findBy({ kind: 'a:b' })),
      );
      expect(await rows.count()).toBe(1);
    }
  });

  it('in single-table inheritance: one fence for the whole table, whoever writes; generated uuids', async () => {
    const truck = await owner.repository(Truck).save({ load: 5 });
    const car = await owner.repository(Car).save({ seats: 4 });
    const [truckKey, carKey] = [VehicleKey(truck), VehicleKey(car)];
    await expectProtected(truckKey, carKey, async () =>
      owner
        .repository(Truck)
        .save(
          Object.assign(await owner.repository(Truck).findOneByOrFail({ id: truck.id }), { load: ++change }),
        ),
    );
    await expectProtected(truckKey, carKey, async () =>
      owner
        .repository(Vehicle)
        .save(
          Object.assign(await owner.repository(Vehicle).findOneByOrFail({ id: truck.id }), { km: ++change }),
        ),
    );
    await expectProtected(carKey, truckKey, () =>
      owner.repository(Car).update({ id: car.id }, { seats: ++change }),
    );
    await expect(owner.repository(Vehicle).delete({ id: car.id })).rejects.toMatchObject({
      code: 'UNFENCED_WRITE',
    });
    const both = [
      await owner.repository(Truck).findOneByOrFail({}),
      await owner.repository(Car).findOneByOrFail({}),
    ];
    await owner.locks.withLock(truckKey, () =>
      owner.locks.withLock(carKey, () => owner.dataSource.manager.remove(both as object[])),
    );
    expect(await owner.repository(Vehicle).count()).toBe(0);
  });

  it('with keys of embedded, bigint and boolean columns', async () => {
    const rows = owner.repository(Shop);
    const place = { country: 'ÅŁ', zip: '90071992547409' };
    await unfenced('rows', () =>
      rows.insert([
        { place, open: true },
        { place, open: false },
      ]),
    );
    const key = `shop:${encodeURIComponent('ÅŁ')}:90071992547409`;
    await expectProtected(`${key}:true`, `${key}:false`, async () =>
      rows.save(Object.assign(await rows.findOneByOrFail({ open: true }), { till: ++change })),
    );
    await expectProtected(`${key}:false`, `${key}:true`, () =>
      rows.update({ open: false }, { till: ++change }),
    );
  });

  it('with lazy relations, which guards neither touch nor await (C135)', async () => {
    const owning = await owner.repository(Owning).save({ name: 'Ann' });
    const created = owner.repository(Account).create({ balance: 1 });
    created.owning = Promise.resolve(owning);
    await owner.repository(Account).save(created);
    const key = `account:${created.id}`;
    const loads: string[] = [];
    owner.dataSource.subscribers.push({ beforeQuery: ({ query }) => void loads.push(query) });
    await owner.locks.withLock(key, async () => {
      const account = await owner.repository(Account).findOneByOrFail({ id: created.id });
      loads.length = 0;
      await owner.repository(Account).save(Object.assign(account, { balance: 2 }));
      expect(loads.filter((sql) => /FROM "owning"/.test(sql))).toEqual([]);
      expect((await account.owning).name).toBe('Ann');
      await owner.repository(Account).save(Object.assign(account, { balance: 3 }));
    });
    owner.dataSource.subscribers.pop();
    const account = await successor.repository(Account).findOneByOrFail({ id: created.id });
    expect(account.balance).toBe(3);
    expect((await account.owning).id).toBe(owning.id);
  });

  it('with one lock for a whole table', async () => {
    const rows = owner.repository(Setting);
    await unfenced('rows', () =>
      rows.insert([
        { name: 'a', value: '' },
        { name: 'b', value: '' },
      ]),
    );
    await expectProtected('settings', 'account:1', () => rows.updateAll({ value: `${++change}` }));
    await expectProtected('settings', 'account:1', () => rows.save({ name: 'a', value: `${++change}` }));
  });

  it('whose key the database fills in, but not for each row alone: the insert has to say which lock it needs', async () => {
    const refused = { code: 'UNFENCED_WRITE', message: expect.stringMatching(/lacks a value/) as string };
    const notes = owner.repository(Note);
    await expect(notes.insert({})).rejects.toMatchObject(refused);
    await owner.locks.withLock('tenant:other', () => expect(notes.save({})).rejects.toMatchObject(refused));
    await owner.locks.withLock('tenant:main', () => notes.insert({ tenant: 'main' }));
    expect(await notes.count()).toBe(1);
  });

  it('whose DataSource finds nothing to change in the schema when it synchronizes again', async () => {
    const { upQueries } = await owner.dataSource.driver.createSchemaBuilder().log();
    expect(upQueries.map(({ query }) => query)).toEqual([]);
  });

  it('in a schema of their own', async () => {
    if (dialect !== 'postgres') return; // the others have none
    await owner.dataSource.query('CREATE SCHEMA "Billing"');
    const options = { entities: [Setting], schema: 'Billing', synchronize: true };
    const dataSource = await owners.database.connect(options);
    await createLockTables(dataSource);
    guardDataSource(dataSource, owner.locks);
    const rows = dataSource.getRepository(Setting);
    await owner.locks.withLock('settings', () => rows.insert({ name: 'own', value: '' }));
    await expect(dataSource.query(`DELETE FROM "Billing".setting`)).rejects.toMatchObject({
      code: 'UNFENCED_WRITE',
    });
    await expect(dataSource.query(`DELETE FROM setting`)).rejects.toMatchObject({ code: 'UNFENCED_WRITE' });
    const fences = await owner.dataSource.query<unknown[]>(`SELECT * FROM "Billing".lock_fence`);
    expect(fences).toHaveLength(1);
    await dataSource.destroy();
  });
});
