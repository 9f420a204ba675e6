import { Injectable, Module, type Type } from '@nestjs/common';
import type { Job } from 'bullmq';
import { DistributedLockModule, Idempotent, LockContext, Locked } from 'nestjs-distributed-lock';
import { redisIdempotencyStore, redisStore } from 'nestjs-distributed-lock/redis';

export interface Payout {
  readonly invoice: string;
  readonly amount: number;
}

export type PayoutJob = Job<Payout, unknown>;

/** What a consumer tells of its calls. */
export type ConsumerNews =
  | { readonly type: 'ready' }
  | { readonly type: 'begun'; readonly invoice: string; readonly attempt: number }
  | { readonly type: 'charged'; readonly invoice: string; readonly token: number; readonly key: string }
  | { readonly type: 'answered'; readonly invoice: string; readonly answer: unknown };

/** Long enough for the queue to give a stalled job to another worker meanwhile. */
const LEASE_MS = 10_000;
const ONCE = { leaseMs: LEASE_MS, waitMs: 0, fingerprint: (job: PayoutJob): Payout => job.data };
const HELD = { ttlMs: LEASE_MS, waitMs: 0 };

/** Pays what the jobs of a queue say. */
@Injectable()
export class Payouts {
  tell: (news: ConsumerNews) => void = () => undefined;
  /** Stands for the time that the work takes. */
  gate: Promise<void> = Promise.resolve();

  constructor(private readonly context: LockContext) {}

  @Locked('invoice:<job.data.invoice>', HELD)
  @Idempotent('payout:<job.data.invoice>', ONCE)
  async pay(job: PayoutJob): Promise<object> {
    return this.#charge(job);
  }

  @Locked('invoice:<job.data.invoice>', HELD)
  @Idempotent('careful:<job.data.invoice>', { ...ONCE, onCrash: 'reject' })
  async payCarefully(job: PayoutJob): Promise<object> {
    return this.#charge(job);
  }

  @Idempotent('hasty:<job.data.invoice>')
  async payHastily(job: PayoutJob): Promise<object> {
    return this.#charge(job);
  }

  async #charge({ data: { invoice, amount } }: PayoutJob): Promise<object> {
    this.tell({ type: 'begun', invoice, attempt: this.context.attempt });
    await this.gate;
    // Whoever wakes up too late stops at the first of these.
    const key = this.context.idempotencyKey;
    const token = this.context.lease()?.token ?? 0;
    this.tell({ type: 'charged', invoice, token, key });
    return { invoice, amount, by: process.pid };
  }
}

export function consume(payouts: Payouts, job: PayoutJob): Promise<object> {
  switch (job.name) {
    case 'careful':
      return payouts.payCarefully(job);
    case 'hasty':
      return payouts.payHastily(job);
    default:
      return payouts.pay(job);
  }
}

export function consumerModule(url: string): Type {
  class Consumer {}
  const locks = DistributedLockModule.forRoot({
    store: redisStore({ url }),
    idempotency: { store: redisIdempotencyStore({ url }) },
    shutdownGraceMs: 100,
  });
  Module({ imports: [locks], providers: [Payouts] })(Consumer);
  return Consumer;
}
