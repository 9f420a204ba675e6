export { SessionLockStore, type SessionLockStoreSetup } from './session-lock-store.js';
export type { LockSession, Look, SessionLocks } from './session-locks.js';
