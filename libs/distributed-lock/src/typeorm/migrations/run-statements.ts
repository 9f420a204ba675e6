import type { QueryRunner } from 'typeorm';

import { type Dialect, dialectOf } from '../sql/index.js';
import { dataSourceOf } from './table-name.js';

/** One after the other, through the runner of the migration and so in its transaction. */
export async function runStatements(
  runner: QueryRunner,
  statements: (dialect: Dialect) => readonly string[],
): Promise<void> {
  for (const statement of statements(dialectOf(dataSourceOf(runner)))) await runner.query(statement);
}
