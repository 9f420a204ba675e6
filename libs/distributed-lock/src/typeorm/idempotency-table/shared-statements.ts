import type { RecordClaim } from '../../idempotency/index.js';
import { recordOf, rowsOf, type RecordRow } from './record-rows.js';
import type { RecordSql } from './record-sql.js';
import type { RecordStatements, Session } from './record-statements.js';

type Shared = Omit<RecordStatements, 'create' | 'check' | 'claim' | 'claimWithin'>;

/** Everything but the claim. `changed` makes the rows of a changing statement an answer like any other. */
export function sharedStatements(
  sql: RecordSql,
  changed: (statement: string) => string,
  locking: string,
): Shared {
  const count = async (session: Session, statement: string, parameters: unknown[]): Promise<number> =>
    (await rowsOf(session, changed(statement), parameters)).length;
  const read = async (session: Session, id: string): Promise<RecordRow | undefined> =>
    (await rowsOf<RecordRow>(session, sql.select(), [id]))[0];
  return {
    async renew(session, { id, ownerId, leaseMs, keepMs }) {
      const times = [Math.ceil(leaseMs), Math.ceil(leaseMs + keepMs)];
      return (await count(session, sql.renew, [id, ownerId, ...times])) === 1;
    },
    async settle(session, id, ownerId, ending) {
      const statement = sql.settle(id, ownerId, ending);
      return (await count(session, statement.sql, statement.parameters)) === 1;
    },
    async wasCompleted(session, id, ownerId) {
      return (await rowsOf(session, sql.completed, [id, ownerId])).length === 1;
    },
    async resolve(session, id, { outcome, codec, body }, keepMs) {
      return (await count(session, sql.resolve, [id, Math.ceil(keepMs), outcome, codec, body])) === 1;
    },
    async forget(session, id) {
      if ((await count(session, sql.forget, [id])) === 1) return 'forgotten';
      return (await read(session, id)) ? 'running' : 'absent';
    },
    read: async (session, id) => recordOf(await read(session, id)),
    purge: (session, limit) => count(session, sql.purge(locking), [limit]),
  };
}

export function claimParameters(claim: RecordClaim): unknown[] {
  const { id, ownerId, fingerprint, leaseMs, keepMs, takeOver, maxAttempts, label } = claim;
  const times = [Math.ceil(leaseMs), Math.ceil(leaseMs + keepMs)];
  return [id, ownerId, fingerprint, ...times, takeOver ? 1 : 0, maxAttempts, label];
}
