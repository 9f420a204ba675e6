export type WriteVerb = 'INSERT' | 'UPDATE' | 'DELETE' | 'REPLACE' | 'MERGE' | 'TRUNCATE' | 'COPY' | 'LOAD';

/** A table that a statement writes. */
export interface SqlWrite {
  readonly verb: WriteVerb;
  /** As the database reads it, e.g. `['public', 'invoice']`. */
  readonly table: readonly string[];
  /** True when rows that are there already may be replaced or passed over: OR REPLACE, IGNORE, ON CONFLICT, ON DUPLICATE KEY. */
  readonly onConflict: boolean;
}

/** SELECT … FOR [NO KEY] UPDATE, ON DUPLICATE KEY UPDATE, BEFORE INSERT OR UPDATE ON …: not a statement. */
export const BEFORE_NO_WRITE = /^(?:FOR|KEY|ON|BEFORE|AFTER|OF|OR|GRANT|REVOKE)$/;
