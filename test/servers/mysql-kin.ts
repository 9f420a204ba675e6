import { describeWithServers } from './describe-with-servers.js';
import { startMariaDb } from './mariadb-server.js';
import { startMySql } from './mysql-server.js';

/** One dialect and one protocol; answers, locks and refusals of their own. `kind` is also the type in TypeORM. */
export const mySqlKin = [
  { kind: 'mariadb', name: 'MariaDB', start: startMariaDb },
  { kind: 'mysql', name: 'MySQL', start: startMySql },
] as const;

export type MySqlKin = (typeof mySqlKin)[number];

/** Runs the same tests on a server of each. */
export function describeOnMySqlKin(title: string, body: (on: MySqlKin) => void): void {
  for (const on of mySqlKin) describeWithServers([on.kind], `${title} ${on.name}`, () => body(on));
}
