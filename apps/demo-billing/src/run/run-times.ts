import type { LeaseTimes } from '../storage/lease-times.js';

/** Short, so that pauses which outlast it fit into a demonstration. */
export const WISHED_LEASE_MS = 1_200;

/** How long a successor has the invoice to itself before the worker that was paused wakes. */
const SUCCESSOR_MS = 2_400;
/** What a busy machine may need on top of all waiting. */
const SLOW_MACHINE_MS = 24_000;

export interface RunTimes {
  /** Until a paused worker wakes: its lease is long over, and somebody else has been there. */
  readonly pauseMs: number;
  /** A paused worker's message is delivered again when its lease is over. */
  readonly visibilityMs: number;
  /** A worker that says nothing for so long is beyond hope. */
  readonly hungAfterMs: number;
  /** So long no invoice was settled: the run is beyond hope. */
  readonly stalledAfterMs: number;
}

/** Everything that has to outlast leases. */
export function runTimes({ leaseMs, lapsedAfterMs, waitMs }: LeaseTimes): RunTimes {
  const pauseMs = lapsedAfterMs + SUCCESSOR_MS;
  const hungAfterMs = pauseMs + waitMs + SLOW_MACHINE_MS;
  return { pauseMs, visibilityMs: leaseMs + 300, hungAfterMs, stalledAfterMs: 2 * hungAfterMs };
}
