import { BARE, type OptionsOf } from './own-options.js';
import { settleStatements, type SqliteHandle } from './settled-statements.js';

export type SqliteOptions = OptionsOf<'better-sqlite3'>;

export function ownSqlite(options: SqliteOptions): SqliteOptions {
  return {
    ...options,
    ...BARE,
    verbose: undefined,
    timeout: 0,
    prepareDatabase: async (handle: SqliteHandle) => {
      await options.prepareDatabase?.(handle);
      // Waiting inside a synchronous driver would block the event loop, and with it every renewal of this process.
      handle.pragma('busy_timeout = 0');
      // A commit that a power cut takes back would give the same token out twice.
      handle.pragma('synchronous = FULL');
      settleStatements(handle);
    },
  };
}
