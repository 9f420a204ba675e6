import { FencedBy, LockTokenColumn } from 'nestjs-distributed-lock/typeorm';
import { Column, Entity, PrimaryColumn } from 'typeorm';

export type InvoiceStatus = 'READY' | 'SETTLED';

/** Its rows are protected by the lock `invoice:<id>`: the database refuses a write of an owner that has been succeeded. */
@Entity('demo_billing_invoice')
@FencedBy('invoice:<id>')
export class Invoice {
  @PrimaryColumn()
  id!: string;

  @Column('text')
  tenant!: string;

  @Column('text')
  customer!: string;

  /** Whole minor units. As text, since a driver may hand out a large number as a float. */
  @Column('text', {
    transformer: { to: (minor: bigint) => String(minor), from: (text: string) => BigInt(text) },
  })
  amountMinor!: bigint;

  @Column('text')
  currency!: string;

  @Column('text')
  dueDate!: string;

  @Column('text')
  status!: InvoiceStatus;

  /** When it was noted as settled, in ISO 8601. */
  @Column('text', { nullable: true })
  settledAt!: string | null;

  @LockTokenColumn()
  lockToken!: number;
}
