import { Column, DeleteDateColumn, Entity, PrimaryColumn, PrimaryGeneratedColumn } from 'typeorm';
import type { DataSource } from 'typeorm';

import { RowClaim } from 'nestjs-distributed-lock/typeorm';

import type { TestDatabase } from './databases.js';

/** Not fenced: primitives need no lock. */
@Entity()
export class Order {
  @PrimaryGeneratedColumn()
  id!: number;

  @Column({ type: 'varchar', length: 100, unique: true })
  reference!: string;

  @Column({ type: 'varchar', length: 100, unique: true, nullable: true })
  invoiceNumber!: string | null;

  @Column({ type: 'varchar', length: 20, default: 'READY' })
  status!: string;

  @Column({ type: 'int', default: 0 })
  amount!: number;

  @DeleteDateColumn()
  deletedAt!: Date | null;
}

/** Something to be done once. */
@Entity()
export class Job {
  @PrimaryColumn({ type: 'int' })
  id!: number;

  @Column({ type: 'varchar', length: 20, default: 'READY' })
  status!: string;

  /** How often it was completed. */
  @Column({ type: 'int', default: 0 })
  done!: number;

  @Column(() => RowClaim)
  claim!: RowClaim;
}

/** Two parts make the key. */
@Entity()
export class Seat {
  @PrimaryColumn({ type: 'varchar', length: 20 })
  flight!: string;

  @PrimaryColumn({ type: 'int' })
  number!: number;

  @Column({ type: 'varchar', length: 20, nullable: true })
  status!: string | null;
}

export const ENTITIES = [Order, Job, Seat];

/** As many processes would be: each DataSource has its own pool. */
export async function connectAll(database: TestDatabase, count: number): Promise<DataSource[]> {
  const sources: DataSource[] = [];
  for (let i = 0; i < count; i += 1)
    sources.push(await database.connect({ entities: ENTITIES, synchronize: i === 0 }));
  return sources;
}

/** Runs `work` in all DataSources at the same time, `perSource` times in each. */
export function everywhere<T>(
  sources: readonly DataSource[],
  perSource: number,
  work: (source: DataSource) => Promise<T>,
): Promise<T[]> {
  const callers = sources.flatMap((source) => Array.from({ length: perSource }, () => source));
  return Promise.all(callers.map(work));
}
