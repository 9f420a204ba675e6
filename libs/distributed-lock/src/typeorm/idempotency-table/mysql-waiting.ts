import { withMysqlLockLimit } from '../sql/index.js';
import { rowsOf } from './record-rows.js';
import type { Session } from './record-statements.js';

/** Only MariaDB reads it. */
const WITHOUT_WAITING = '/*M! SET STATEMENT innodb_lock_wait_timeout = 0 FOR */ ';
/** The shortest that MySQL has, and none for one statement: the session is limited, and then as before. */
const SHORTEST_SECONDS = 1;

type HardlyWaiting = <T>(session: Session, work: (prefix: string) => Promise<T>) => Promise<T>;

/**
 * Has the statements of `work`, each behind the prefix that it is given, wait for no other transaction; on MySQL for a
 * second at most, which takes two more statements.
 */
export function hardlyWaiting(): HardlyWaiting {
  let onMariaDb: boolean | undefined; // one store is on one server
  return async (session, work) => {
    onMariaDb ??= await isMariaDb(session);
    if (onMariaDb) return work(WITHOUT_WAITING);
    return withMysqlLockLimit(session, SHORTEST_SECONDS, () => work(''));
  };
}

async function isMariaDb(session: Session): Promise<boolean> {
  const [server] = await rowsOf<{ version: unknown }>(session, 'SELECT VERSION() AS version');
  return /MariaDB/i.test(String(server?.version));
}
