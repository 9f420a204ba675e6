import type { StoredResult } from './idempotency-store.js';

interface Attempted {
  /** Null once its owner has given it up. */
  readonly ownerId: string | null;
  readonly fence: number;
  readonly attempt: number;
  readonly takenOver: boolean;
  readonly fingerprint: string;
}

/**
 * What a store knows about one record. `lapsed` is what `running` becomes by the passing of time: its owner crashed, stalled
 * or lost the network, and nobody knows how the body ended.
 */
export type RecordState =
  | { readonly kind: 'absent'; readonly attempts: number; readonly fence: number }
  | (Attempted & { readonly kind: 'running' | 'lapsed' | 'abandoned' })
  | (Attempted & { readonly kind: 'done'; readonly result: StoredResult });

export type RecordStep =
  | {
      readonly type: 'claim';
      readonly ownerId: string;
      /** The store's clock in microseconds. */
      readonly clockFence: number;
      readonly fingerprint: string;
      readonly takeOver: boolean;
      readonly maxAttempts: number;
    }
  | { readonly type: 'lease-ended' | 'expired' | 'forget' }
  | { readonly type: 'renew'; readonly ownerId: string }
  | { readonly type: 'complete'; readonly ownerId: string; readonly result: StoredResult }
  | { readonly type: 'free' | 'lapse'; readonly ownerId: string; readonly countsAttempt: boolean }
  | { readonly type: 'abandon'; readonly ownerId: string }
  | { readonly type: 'resolve'; readonly result: StoredResult };

type Step<Type extends RecordStep['type']> = Extract<RecordStep, { readonly type: Type }>;

export const ABSENT: RecordState = { kind: 'absent', attempts: 0, fence: 0 };

/**
 * The whole life of a record. A step that is refused returns the very state that it was given.
 *
 * Stores do the same in their own language; the contract suite compares them with this function, step by step.
 */
export function nextRecordState(state: RecordState, step: RecordStep): RecordState {
  switch (step.type) {
    case 'claim':
      return afterClaim(state, step);
    case 'lease-ended':
      return state.kind === 'running' ? { ...state, kind: 'lapsed' } : state;
    case 'expired':
      return ABSENT;
    case 'forget':
      return state.kind === 'running' ? state : ABSENT;
    case 'resolve':
      return state.kind === 'lapsed' || state.kind === 'abandoned'
        ? { ...state, kind: 'done', ownerId: null, result: step.result }
        : state;
    default:
      return isOwnedBy(state, step.ownerId) ? afterOwner(state, step) : state;
  }
}

/**
 * Whether two fingerprints may belong to one request. The two characters before the digest name its algorithm; what was
 * made by different ones, or is empty because fingerprints are off, cannot be compared and is taken as the same.
 */
export function sameRequest(one: string, other: string): boolean {
  return one === other || one.slice(0, 2) !== other.slice(0, 2);
}

type Owned = Attempted & { readonly kind: 'running' | 'lapsed' };

function isOwnedBy(state: RecordState, ownerId: string): state is Owned {
  return (state.kind === 'running' || state.kind === 'lapsed') && state.ownerId === ownerId;
}

function afterClaim(state: RecordState, step: Step<'claim'>): RecordState {
  if (state.kind === 'absent') return begun(state.attempts, state.fence, false, step);
  if (isOwnedBy(state, step.ownerId)) return { ...state, kind: 'running' };
  if (state.kind !== 'lapsed' || !sameRequest(state.fingerprint, step.fingerprint)) return state;
  if (step.takeOver && state.attempt < step.maxAttempts) return begun(state.attempt, state.fence, true, step);
  return { ...state, kind: 'abandoned', ownerId: null };
}

function begun(attempts: number, lastFence: number, takenOver: boolean, step: Step<'claim'>): RecordState {
  const { ownerId, fingerprint } = step;
  const fence = Math.max(lastFence + 1, step.clockFence);
  return { kind: 'running', ownerId, fence, attempt: attempts + 1, takenOver, fingerprint };
}

function afterOwner(
  state: Owned,
  step: Step<'renew' | 'complete' | 'free' | 'lapse' | 'abandon'>,
): RecordState {
  switch (step.type) {
    case 'renew':
      return { ...state, kind: 'running' };
    case 'complete':
      return { ...state, kind: 'done', result: step.result };
    case 'free':
      return { kind: 'absent', attempts: counted(state, step), fence: state.fence };
    case 'lapse':
      return { ...state, kind: 'lapsed', ownerId: null, attempt: counted(state, step) };
    case 'abandon':
      return { ...state, kind: 'abandoned', ownerId: null };
  }
}

function counted({ attempt }: Owned, step: { readonly countsAttempt: boolean }): number {
  return step.countsAttempt ? attempt : attempt - 1;
}
