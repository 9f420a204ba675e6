import {
  ChildEntity,
  Column,
  DefaultNamingStrategy,
  Entity,
  EntitySchema,
  JoinColumn,
  ManyToOne,
  PrimaryColumn,
  PrimaryGeneratedColumn,
  TableInheritance,
  VersionColumn,
  type EntityTarget,
  type ObjectLiteral,
  type Relation,
} from 'typeorm';

import { lockKey } from 'nestjs-distributed-lock';
import { FencedBy, LockTokenColumn, lockTokenColumn } from 'nestjs-distributed-lock/typeorm';

/** Every shape has a number to change and a token column. */
abstract class Counted {
  @Column({ type: 'int', default: 0 })
  count!: number;

  @LockTokenColumn()
  lockToken!: number;
}

@FencedBy('document:<kind>:<number>')
abstract class Document extends Counted {
  @PrimaryColumn({ type: 'varchar', length: 40 })
  kind!: string;

  @PrimaryColumn({ type: 'int', name: 'no' })
  number!: number;
}

@Entity({ name: 'Letters of Credit' })
class Letter extends Document {}

@Entity()
@TableInheritance({ column: { type: 'varchar', name: 'kind' } })
@FencedBy(lockKey('vehicle:<id>'))
class Vehicle extends Counted {
  @PrimaryGeneratedColumn('uuid')
  id!: string;
}

@ChildEntity()
class Truck extends Vehicle {
  @Column({ type: 'int', nullable: true })
  load!: number;
}

class Place {
  @Column({ type: 'varchar', length: 40 })
  country!: string;

  @Column({ type: 'bigint' })
  zip!: string;
}

@Entity()
@FencedBy('shop:<place.country>:<place.zip>')
class Shop extends Counted {
  @PrimaryGeneratedColumn()
  id!: number;

  @Column(() => Place, { prefix: 'at' })
  place!: Place;
}

@Entity()
class Hall {
  @PrimaryColumn({ type: 'int' })
  id!: number;
}

@Entity()
@FencedBy('seat:<hall.id>:<row>')
class Seat extends Counted {
  @ManyToOne(() => Hall)
  @JoinColumn({ name: 'in_hall' })
  hall!: Relation<Hall>;

  @PrimaryColumn({ type: 'int', name: 'in_hall' })
  hallId!: number;

  @PrimaryColumn({ type: 'int' })
  row!: number;
}

@Entity()
@FencedBy('account:<id>')
class Account extends Counted {
  @PrimaryGeneratedColumn()
  id!: number;

  @ManyToOne(() => Hall, { lazy: true, nullable: true })
  hall!: Promise<Hall | null>;

  @Column({ type: 'varchar', length: 40, select: false, default: 'secret' })
  pin!: string;

  @VersionColumn()
  version!: number;
}

/** One lock for the whole table. */
@Entity()
@FencedBy('settings')
class Setting extends Counted {
  @PrimaryColumn({ type: 'varchar', length: 40 })
  name!: string;
}

const schemaColumns = {
  id: { type: 'int', primary: true },
  count: { type: 'int', default: 0 },
} as const;

const Meter = new EntitySchema<ObjectLiteral>({
  name: 'meter',
  columns: { ...schemaColumns, lockToken: lockTokenColumn('meter:<id>') },
});

class Gauge {
  id!: number;
  count!: number;
}

const GaugeSchema = new EntitySchema<Gauge>({
  name: 'Gauge',
  target: Gauge,
  columns: { ...schemaColumns, lockToken: lockTokenColumn(lockKey('gauge:<id>')) } as never,
});

/** An entity that is put together in some way that matters to guards. */
export interface Shape {
  readonly name: string;
  readonly target: EntityTarget<ObjectLiteral>;
  /** A new row, unlike those of other numbers; without the id where the database makes it. */
  readonly row: (n: number) => ObjectLiteral;
  /** The lock of a row that has been read. */
  readonly key: (row: ObjectLiteral) => string;
  /** True when the database makes the id, so that there is no key to insert under. */
  readonly isGenerated?: boolean;
  /** True when other rows have the same lock. */
  readonly sharesLock?: boolean;
}

const byId = (prefix: string) => (row: ObjectLiteral) => `${prefix}:${row['id']}`;

export const shapes: readonly Shape[] = [
  {
    name: 'fence and token column inherited from a base class, composite id, renamed columns, an odd table name',
    target: Letter,
    row: (n) => ({ kind: 'a:b', number: n }),
    key: ({ number }) => `document:a%3Ab:${number}`,
  },
  {
    name: 'single-table inheritance, through the parent; generated uuid',
    target: Vehicle,
    row: () => ({}),
    key: byId('vehicle'),
    isGenerated: true,
  },
  {
    name: 'single-table inheritance, through the child',
    target: Truck,
    row: (n) => ({ load: n }),
    key: byId('vehicle'),
    isGenerated: true,
  },
  {
    name: 'a key of embedded columns with a prefix, one of them bigint; generated id',
    target: Shop,
    row: (n) => ({ place: { country: 'ÅŁ', zip: `${9_007_199_254_740_000 + n}` } }),
    key: ({ place }) => `shop:${encodeURIComponent('ÅŁ')}:${(place as Place).zip}`,
  },
  {
    name: 'a composite id with a foreign key in it',
    target: Seat,
    row: (n) => ({ hallId: 1, row: n }),
    key: ({ hallId, row }) => `seat:${hallId}:${row}`,
  },
  {
    name: 'a lazy relation, a column with select: false, a version column; generated id',
    target: Account,
    row: () => ({}),
    key: byId('account'),
    isGenerated: true,
  },
  {
    name: 'one lock for the whole table',
    target: Setting,
    row: (n) => ({ name: `setting ${n}` }),
    key: () => 'settings',
    sharesLock: true,
  },
  { name: 'an entity schema without a class', target: Meter, row: (n) => ({ id: n }), key: byId('meter') },
  { name: 'an entity schema with a class', target: GaugeSchema, row: (n) => ({ id: n }), key: byId('gauge') },
];

export const shapeEntities = [Letter, Vehicle, Truck, Shop, Hall, Seat, Account, Setting, Meter, GaugeSchema];

export async function prepareShapes(
  save: (target: EntityTarget<ObjectLiteral>, row: object) => Promise<unknown>,
): Promise<void> {
  await save(Hall, { id: 1 });
}

/** Names nothing as TypeORM would. */
export class ShoutingNames extends DefaultNamingStrategy {
  override tableName(target: string, given: string | undefined): string {
    return `T_${given ?? target}`.toUpperCase();
  }

  override columnName(property: string, given: string | undefined, prefixes: string[]): string {
    return given ?? ['C', ...prefixes, property].join('_').toUpperCase();
  }
}
