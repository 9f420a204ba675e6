import type { Lease } from '../../core/index.js';
import { type Dialect, storedKey, textLiteral } from '../sql/index.js';

/** A token with its owner, to be put into a fence. An unknown owner is the empty text, until it comes itself. */
export type FenceClaim = Pick<Lease, 'qualifiedKey' | 'storeId' | 'token' | 'ownerId'>;

/** What is said to the fence table of one database, in its words. Keys are given as people write them. */
export interface FenceStatements {
  /** Where one statement can do both, it also answers with a row exactly if the fence is the claim's now. */
  raise(claim: FenceClaim): string;
  /** `store_id`, `token` and `owner_id`, perhaps as bytes. */
  read(qualifiedKey: string): string;
  /** As {@link read}, and nobody else writes the row before the transaction ends. */
  pin(qualifiedKey: string): string;
  /** Changes nothing, and makes the transaction a writer. */
  touch(qualifiedKey: string): string;
}

export function fenceStatements(dialect: Dialect, table: string): FenceStatements {
  return dialect === 'mysql' ? mysqlStatements(table) : standardStatements(dialect, table);
}

function standardStatements(dialect: Dialect, table: string): FenceStatements {
  const text = (value: string): string => textLiteral(dialect, value);
  const isKey = (qualifiedKey: string): string => `"key" = ${text(storedKey(qualifiedKey))}`;
  const read: FenceStatements['read'] = (qualifiedKey) =>
    `SELECT "store_id", "token", "owner_id" FROM ${table} WHERE ${isKey(qualifiedKey)}`;
  return {
    read,
    pin: (qualifiedKey) => (dialect === 'postgres' ? `${read(qualifiedKey)} FOR SHARE` : read(qualifiedKey)),
    touch: (qualifiedKey) => `UPDATE ${table} SET "token" = "token" WHERE ${isKey(qualifiedKey)}`,
    raise: ({ qualifiedKey, storeId, token, ownerId }) =>
      `INSERT INTO ${table} AS fence ("key", "store_id", "token", "owner_id") ` +
      `VALUES (${text(storedKey(qualifiedKey))}, ${text(storeId)}, ${token}, ${text(ownerId)}) ` +
      'ON CONFLICT ("key") DO UPDATE SET "token" = excluded."token", "owner_id" = excluded."owner_id" ' +
      'WHERE fence."store_id" = excluded."store_id" AND (fence."token" < excluded."token" ' +
      `OR (fence."token" = excluded."token" AND fence."owner_id" IN (excluded."owner_id", ''))) RETURNING "token"`,
  };
}

/** MySQL knows neither a condition on what a duplicate becomes nor an answer with rows, so each column has its own condition. */
function mysqlStatements(table: string): FenceStatements {
  const text = (value: string): string => textLiteral('mysql', value);
  const isKey = (qualifiedKey: string): string => `\`key\` = ${text(storedKey(qualifiedKey))}`;
  // As text: how a driver gives back numbers depends on how the application has configured it.
  const read: FenceStatements['read'] = (qualifiedKey) =>
    `SELECT \`store_id\`, CAST(\`token\` AS CHAR) AS \`token\`, \`owner_id\` FROM ${table} WHERE ${isKey(qualifiedKey)}`;
  return {
    read,
    pin: (qualifiedKey) => `${read(qualifiedKey)} LOCK IN SHARE MODE`,
    touch: (qualifiedKey) => `UPDATE ${table} SET \`token\` = \`token\` WHERE ${isKey(qualifiedKey)}`,
    raise: ({ qualifiedKey, storeId, token, ownerId }) => {
      const [store, owner] = [text(storeId), text(ownerId)];
      const isNewer =
        `\`store_id\` = ${store} AND ` +
        `(\`token\` < ${token} OR (\`token\` = ${token} AND \`owner_id\` IN (${owner}, '')))`;
      return (
        `INSERT INTO ${table} (\`key\`, \`store_id\`, \`token\`, \`owner_id\`) ` +
        `VALUES (${text(storedKey(qualifiedKey))}, ${store}, ${token}, ${owner}) ` +
        // From left to right: the owner looks at the token that was there.
        `ON DUPLICATE KEY UPDATE \`owner_id\` = IF(${isNewer}, ${owner}, \`owner_id\`), ` +
        `\`token\` = IF(\`store_id\` = ${store}, GREATEST(\`token\`, ${token}), \`token\`)`
      );
    },
  };
}
