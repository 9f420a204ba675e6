import { jittered } from '../../core/index.js';

/**
 * The database asks for another try: serialization failure, deadlock, lock not available (PostgreSQL, MySQL), or another
 * connection is writing (SQLite). The statement changed nothing.
 */
const TRANSIENT_CODE =
  /^(?:40001|40P01|55P03|ER_LOCK_DEADLOCK|ER_LOCK_WAIT_TIMEOUT|ER_CHECKREAD|SQLITE_(?:BUSY|LOCKED)(?:_\w+)?)$/;
/** The transaction is over, or cannot go on from its old snapshot; another one may succeed. */
const SERIALIZATION_FAILURE = /^(?:40001|ER_LOCK_DEADLOCK|ER_CHECKREAD)$/;

const FIRST_PAUSE_MS = 2;
const LONGEST_PAUSE_MS = 50;

export function isTransient(error: unknown): boolean {
  return TRANSIENT_CODE.test(driverCode(error));
}

export function isSerializationFailure(error: unknown): boolean {
  return SERIALIZATION_FAILURE.test(driverCode(error));
}

/** The driver's code of a failed query, e.g. `23505`, `ER_DUP_ENTRY` or `SQLITE_BUSY`; empty when there is none. */
export function driverCode(error: unknown): string {
  const { driverError, code } = (error ?? {}) as { driverError?: { code?: unknown }; code?: unknown };
  const found = driverError?.code ?? code;
  return typeof found === 'string' ? found : '';
}

/**
 * Tries again while the database asks for it, until `timeoutMs` have passed; then the last error stands.
 *
 * The pauses are asynchronous and jittered: a synchronous driver that waited by itself would block the event loop, and
 * with it the renewals of this process.
 */
export async function retryTransient<T>(timeoutMs: number, attempt: () => Promise<T>): Promise<T> {
  const endsAtMs = performance.now() + timeoutMs;
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(pauseMs * 2, LONGEST_PAUSE_MS)) {
    try {
      return await attempt();
    } catch (error) {
      if (!isTransient(error) || performance.now() + pauseMs > endsAtMs) throw error;
    }
    const delayMs = jittered(pauseMs);
    await new Promise((resolve) => setTimeout(resolve, delayMs));
  }
}
