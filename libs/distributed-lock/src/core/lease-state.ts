import type { Instant } from './clock.js';

/**
 * Why a lease ended before its holder gave it back.
 *
 * `expired`: no renewal was confirmed in time. `taken-over`: the store knows the grant no longer. `session-ended`: this
 * process shut down, or the store's session did. `clock-jump`: the clocks disagreed and the store did not confirm.
 * `max-hold`: `maxHoldMs` passed.
 */
export type LossReason = 'expired' | 'taken-over' | 'session-ended' | 'clock-jump' | 'max-hold';

/**
 * `unanswered`: a renewal got no answer; harmless while most of the lease is left. `clocks`: the wall clock says that
 * the lease is over and the monotonic clock does not (suspend, pause of a virtual machine, a step): nothing guarded
 * passes until the store has confirmed it.
 */
export type Doubt = 'unanswered' | 'clocks';

/** `deadline`: past it the store may have given the key away. */
export type LeaseState =
  | { readonly kind: 'acquired'; readonly deadline: Instant }
  | { readonly kind: 'renewing'; readonly deadline: Instant }
  | { readonly kind: 'uncertain'; readonly deadline: Instant; readonly doubt: Doubt }
  | { readonly kind: 'lease-lost'; readonly reason: LossReason }
  | { readonly kind: 'released' };

/** A state that can still be renewed. */
export type LiveState = Exclude<LeaseState, { kind: 'lease-lost' | 'released' }>;

export function isLive(state: LeaseState): state is LiveState {
  return state.kind !== 'lease-lost' && state.kind !== 'released';
}

export type LeaseEvent =
  | { readonly type: 'renewal-sent'; readonly deadline: Instant }
  | { readonly type: 'renewed'; readonly deadline: Instant }
  | { readonly type: 'renewal-unanswered' }
  | { readonly type: 'clocks-disagree' }
  | { readonly type: 'lost'; readonly reason: LossReason }
  | { readonly type: 'release-started' };

/**
 * The whole life of a lease. `lease-lost` and `released` are final: whatever arrives late leaves them as they are.
 *
 * An unanswered renewal never moves the deadline onwards: unknown is neither yes nor no, so the deadline decides. But one
 * with a shorter ttl moves it nearer as soon as it is sent, because the store may carry it out and the answer be lost.
 */
export function nextLeaseState(state: LeaseState, event: LeaseEvent): LeaseState {
  if (!isLive(state)) return state;
  switch (event.type) {
    case 'renewal-sent':
      return sent(state, event.deadline);
    case 'renewed':
      return { kind: 'acquired', deadline: event.deadline };
    case 'renewal-unanswered':
      return state.kind === 'uncertain' ? state : { ...state, kind: 'uncertain', doubt: 'unanswered' };
    case 'clocks-disagree':
      if (state.kind === 'uncertain' && state.doubt === 'clocks') return state;
      return { kind: 'uncertain', deadline: state.deadline, doubt: 'clocks' };
    case 'lost':
      return { kind: 'lease-lost', reason: event.reason };
    case 'release-started':
      return { kind: 'released' };
  }
}

function sent(state: LiveState, deadline: Instant): LeaseState {
  const sooner = deadline.monotonicMs < state.deadline.monotonicMs;
  if (state.kind !== 'acquired' && !sooner) return state;
  const kept = sooner ? deadline : state.deadline;
  return state.kind === 'uncertain' ? { ...state, deadline: kept } : { kind: 'renewing', deadline: kept };
}
