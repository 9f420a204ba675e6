/**
 * Of the lock and of the record alike. Short, so that a pause of three of them fits into a demonstration; the defaults, 15
 * and 30 seconds, suit a real service.
 */
export const LEASE_MS = 1_200;
/** Long enough to see a dead owner's lock run out. */
export const LOCK_WAIT_MS = 2_000;
