import { In, IsNull, type FindOptionsWhere, type ObjectLiteral, type Repository } from 'typeorm';

import { LockConfigInvalidError } from '../../core/index.js';
import { affectedRows } from './affected.js';
import { boundedWrite, timeoutOf, type TimeoutOption } from './bounded.js';
import { idOf } from './row-lock.js';
import { repositoryOf, type DataSourceChoice, type RowsOf } from './rows.js';

export interface TransitionOptions<P extends string = string> extends TimeoutOption, DataSourceChoice {
  /** The property that changes. Default `status`. */
  readonly property?: P;
}

type ValueOf<E, P extends string> = P extends keyof E ? E[P] : never;
type Changes<E extends ObjectLiteral> = Parameters<Repository<E>['update']>[1];

/**
 * Moves a row from one status to another, in one statement; true when this call did it. Of any number of callers at the
 * same time exactly one gets true.
 *
 * Often it makes a lock superfluous: whoever gets false leaves the work to the other. What it does not do: keep anybody out
 * while the winner works (a status like `SETTLING` does that, and somebody has to look after rows that stay in it), or tell
 * a row in another status from one that is not there. Writes to fenced entities still need the lock of the row.
 *
 * @param from the status to leave, or several
 * @param extra other columns that change with it
 * @throws {LockTimeoutError} another transaction kept the row for `timeoutMs`; nothing was written
 * @throws {LockConfigInvalidError} `to` is among `from`, the property is not one, the id or a status is missing, or it is not
 *   clear which DataSource is meant
 */
export async function transition<E extends ObjectLiteral, P extends string = 'status'>(
  rows: RowsOf<E>,
  id: unknown,
  from: ValueOf<E, P> | readonly ValueOf<E, P>[],
  to: ValueOf<E, P>,
  extra: Changes<E> = {},
  options: TransitionOptions<P> = {},
): Promise<boolean> {
  const repository = repositoryOf(rows, options, 'transition()');
  const { property = 'status' } = options;
  const leaving: readonly unknown[] = Array.isArray(from) ? (from as readonly unknown[]) : [from];
  requireStep(repository, property, leaving, to, extra);
  const where = { ...idOf(repository, id), [property]: isOneOf(leaving) } as FindOptionsWhere<E>;
  const changes = { ...extra, [property]: to } as Changes<E>;
  const affected = await boundedWrite(
    repository,
    { timeoutMs: timeoutOf(options), caller: 'transition()' },
    (inner) => inner.update(where, changes),
  );
  return affectedRows(affected) === 1;
}

function isOneOf(values: readonly unknown[]): unknown {
  return values.length === 1 && values[0] === null ? IsNull() : In(values);
}

/** A step to the same status would have any number of winners. */
function requireStep(
  { metadata }: Repository<ObjectLiteral>,
  property: string,
  from: readonly unknown[],
  to: unknown,
  extra: object,
): void {
  if (!metadata.findColumnWithPropertyName(property)) refuse(`${metadata.name} has no column "${property}"`);
  if (from.length === 0) refuse('it leaves no status');
  if ([...from, to].includes(undefined)) refuse('a status is undefined');
  if (from.includes(to)) refuse(`it leads from ${String(to)} to ${String(to)}, and everybody would win`);
  if (from.length > 1 && from.includes(null)) refuse('null has to be the only status that it leaves');
  if (property in extra) refuse(`"${property}" is among the other columns`);
}

function refuse(why: string): never {
  throw new LockConfigInvalidError(`transition() cannot work: ${why}. Nothing was written.`);
}
