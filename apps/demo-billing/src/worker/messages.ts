import type { Fault } from '../faults/fault-plan.js';

/** One delivery of a message "settle this invoice". The same message may be delivered again, to another worker. */
export interface Delivery {
  readonly deliveryId: number;
  readonly invoiceId: string;
  /** Present when the plan has a fault for this worker while it settles this invoice. */
  readonly fault?: Fault;
}

export type ToWorker = { readonly kind: 'settle'; readonly delivery: Delivery } | { readonly kind: 'stop' };

/** Who kept a former owner from doing harm. */
export type Refuser = 'lease-check' | 'database-guard' | 'gateway-token';

/** Why a delivery was not settled. */
export interface Failure {
  readonly code: string;
  readonly message: string;
  /** Delivering the message again can change nothing. */
  readonly permanent: boolean;
}

/**
 * How a worker answers a delivery. `token` is that of the lock under which it found or made the invoice settled; null when
 * it was only told that somebody else had.
 */
export type Answer =
  | { readonly kind: 'settled'; readonly delivery: Delivery; readonly token: number | null }
  | { readonly kind: 'failed'; readonly delivery: Delivery; readonly failure: Failure };

export type FromWorker =
  | Answer
  | { readonly kind: 'ready' }
  | { readonly kind: 'not-started'; readonly reason: string }
  | { readonly kind: 'acquired'; readonly invoiceId: string; readonly token: number }
  /** A former owner was stopped from writing or calling the gateway. */
  | { readonly kind: 'refused'; readonly by: Refuser }
  /** The invoice had been settled before: the answer came from the record. */
  | { readonly kind: 'replayed' }
  /** It has begun an attempt at the invoice: 1 for the first one. */
  | { readonly kind: 'attempted'; readonly invoiceId: string; readonly attempt: number }
  /** Its planned fault is to strike now. */
  | { readonly kind: 'struck'; readonly fault: Fault }
  | { readonly kind: 'unhandled'; readonly message: string };
