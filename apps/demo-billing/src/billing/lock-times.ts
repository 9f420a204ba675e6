/** Short, so that a pause of three of them fits into a demonstration. 15 seconds, the default, suits a real service. */
export const LOCK_TTL_MS = 1_200;
/** Long enough to see a dead owner's lock run out. */
export const LOCK_WAIT_MS = 2_000;
