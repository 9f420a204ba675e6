/** What TypeORM tells of an UPDATE. */
interface Updated {
  readonly affected?: number | null;
  readonly raw?: unknown;
}

/**
 * How many rows an UPDATE found; undefined when the driver does not tell.
 *
 * MySQL leaves out rows that had these values already, unless the connection has the flag FOUND_ROWS. Its sentence about
 * the statement, whatever the language, begins with the rows that were found.
 */
export function rowsMatched({ affected, raw }: Updated): number | undefined {
  const { info } = (raw ?? {}) as { readonly info?: unknown };
  const [found] = (typeof info === 'string' && /\d+/.exec(info)) || [];
  return found === undefined ? (affected ?? undefined) : Number(found);
}
