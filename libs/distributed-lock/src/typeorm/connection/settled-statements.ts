/** What better-sqlite3 and libsql have in common, as far as we use it. */
export interface SqliteHandle {
  readonly inTransaction: boolean;
  pragma(text: string): unknown;
  exec(sql: string): unknown;
  prepare(sql: string): SqliteStatement;
}

type Execute = (...parameters: unknown[]) => unknown;

interface SqliteStatement {
  /** True when it answers with rows, and `all` is to be used instead of `run`. */
  readonly reader: boolean;
  all: Execute;
  run: Execute;
}

const BLANK = String.raw`^(?:\s|--[^\n]*\n|/\*[\s\S]*?\*/)*`;
const BEGINS = new RegExp(`${BLANK}begin\\b`, 'i');
const ENDS = new RegExp(`${BLANK}(?:commit|end|rollback)\\b(?!.*\\bto\\b)`, 'is');
const READS = new RegExp(`${BLANK}(?:select|pragma|explain|values)\\b`, 'i');

const settled = new WeakSet<SqliteHandle>();

/**
 * Keeps statements of libsql from staying open.
 *
 * libsql does not reset a statement that failed as busy. To SQLite it is still in progress, so from then on nothing on
 * this connection is committed that should commit by itself, no transaction can be committed, and all other processes
 * are kept from writing, until the very same statement is run again or collected as garbage. So no statement may meet a
 * busy database: the right to write is asked for with `exec`, which leaves nothing behind. A transaction takes it when it
 * begins. better-sqlite3 resets its statements and is left as it is.
 */
export function settleStatements(handle: SqliteHandle): void {
  const prepare = handle.prepare.bind(handle);
  if (settled.has(handle) || 'busy' in prepare('SELECT 1')) return; // better-sqlite3 shows whether a statement is open
  settled.add(handle);
  handle.prepare = (sql) => {
    if (BEGINS.test(sql)) return control(handle, 'BEGIN IMMEDIATE');
    if (ENDS.test(sql)) return control(handle, sql);
    const statement = prepare(sql);
    return READS.test(sql) ? statement : inItsOwnTransaction(handle, statement);
  };
}

function control(handle: SqliteHandle, sql: string): SqliteStatement {
  const run = (): unknown => {
    handle.exec(sql);
    return { changes: 0, lastInsertRowid: 0 };
  };
  return { reader: false, run, all: run };
}

function inItsOwnTransaction(handle: SqliteHandle, statement: SqliteStatement): SqliteStatement {
  const settle =
    (execute: Execute): Execute =>
    (...parameters) => {
      if (handle.inTransaction) return execute(...parameters);
      handle.exec('BEGIN IMMEDIATE');
      try {
        const result = execute(...parameters);
        handle.exec('COMMIT');
        return result;
      } catch (error) {
        if (handle.inTransaction) handle.exec('ROLLBACK');
        throw error;
      }
    };
  statement.all = settle(statement.all.bind(statement));
  statement.run = settle(statement.run.bind(statement));
  return statement;
}
