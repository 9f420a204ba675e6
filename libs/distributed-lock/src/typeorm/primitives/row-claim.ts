import { Column, type ObjectLiteral, type Repository } from 'typeorm';

import { LockConfigInvalidError } from '../../core/index.js';
import type { Dialect } from '../sql/index.js';

/** PostgreSQL gives bigint as text; tokens and milliseconds are safe integers. */
const asNumber = {
  from: (stored: unknown): unknown => (stored == null ? stored : Number(stored)),
  to: (value: unknown): unknown => value,
};

/**
 * The columns by which `leaseBatch()` keeps rows for longer than a transaction. They go into the entity as
 * `@Column(() => RowClaim) claim!: RowClaim;` and are written by nobody else.
 */
export class RowClaim {
  /** New for every batch. Null when nobody has the row. */
  @Column({ type: 'varchar', length: 32, nullable: true })
  ownerId!: string | null;

  /** One higher for every claim of the row. 0 before the first. */
  @Column({ type: 'bigint', default: 0, transformer: asNumber })
  token!: number;

  /** Milliseconds since 1970 by the clock of the database. From then on the row is free for others. */
  @Column({ type: 'bigint', default: 0, transformer: asNumber })
  untilMs!: number;
}

/**
 * The name of the property that holds the claim.
 *
 * @throws {LockConfigInvalidError} the entity has none
 */
export function claimProperty({ metadata }: Repository<ObjectLiteral>): string {
  const embedded = metadata.embeddeds.find(({ type }) => type === RowClaim);
  if (embedded) return embedded.propertyName;
  throw new LockConfigInvalidError(
    `${metadata.name} has no columns for claims. Nothing was claimed; write @Column(() => RowClaim) claim!: RowClaim; and ` +
      'migrate the table.',
  );
}

/** As the database names it. */
export function claimColumn(repository: Repository<ObjectLiteral>, name: keyof RowClaim): string {
  const path = `${claimProperty(repository)}.${name}`;
  return repository.metadata.findColumnWithPropertyPathStrict(path)?.databaseName ?? path;
}

/** The time of the database in milliseconds since 1970, whatever time zone the session has. */
export const NOW_MS: Readonly<Record<Dialect, string>> = {
  postgres: 'CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS bigint)',
  sqlite: `CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)`,
  mysql: `CAST(timestampdiff(MICROSECOND, '1970-01-01', utc_timestamp(3)) / 1000 AS SIGNED)`,
};
