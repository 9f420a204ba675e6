import {
  BaseEntity,
  Column,
  DeleteDateColumn,
  Entity,
  JoinTable,
  ManyToMany,
  ManyToOne,
  OneToMany,
  PrimaryColumn,
  PrimaryGeneratedColumn,
  VersionColumn,
  type Relation,
} from 'typeorm';

import { FencedBy, LockTokenColumn } from 'nestjs-distributed-lock/typeorm';

export class Address {
  @Column({ type: 'varchar', default: '' })
  city!: string;
}

/** Not fenced: what goes on as if there were no guards. */
@Entity()
export class Label {
  @PrimaryColumn({ type: 'varchar', length: 60 })
  name!: string;
}

@Entity()
@FencedBy('invoice:<id>')
export class Invoice extends BaseEntity {
  @PrimaryColumn({ type: 'varchar', length: 700 })
  id!: string;

  @Column({ type: 'varchar', default: 'READY' })
  status!: string;

  @Column({ type: 'int', default: 0 })
  paid!: number;

  @Column(() => Address)
  address!: Address;

  @VersionColumn()
  version!: number;

  @DeleteDateColumn()
  deletedAt!: Date | null;

  @LockTokenColumn()
  lockToken!: number;

  @OneToMany(() => InvoiceLine, (line) => line.invoice, { cascade: true })
  lines!: Relation<InvoiceLine>[];

  @ManyToMany(() => Label)
  @JoinTable()
  labels!: Label[];
}

/** Protected by the lock of its invoice. */
@Entity()
@FencedBy('invoice:<invoice.id>')
export class InvoiceLine {
  @PrimaryGeneratedColumn()
  id!: number;

  @ManyToOne(() => Invoice, (invoice) => invoice.lines, { orphanedRowAction: 'delete' })
  invoice!: Relation<Invoice>;

  @Column({ type: 'varchar' })
  text!: string;

  @LockTokenColumn()
  lockToken!: number;
}
