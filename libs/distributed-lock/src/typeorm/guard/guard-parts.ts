import type { DataSource, EntityMetadata } from 'typeorm';

import type { LockService } from '../../core/index.js';
import { Admission } from './admission.js';
import { CallSites } from './call-sites.js';
import type { DataSourceFence } from './data-source-fence.js';
import type { Dialect } from '../sql/index.js';
import { fencedJunctionsOf, type FencedEntity } from '../entities/index.js';
import { FenceChecks } from './fence-checks.js';
import { FencePins } from './fence-pins.js';
import { FencedReads } from './fenced-reads.js';
import { fenceTable, type FenceRows } from '../fence/index.js';
import { GuardExpressions } from './guard-expression.js';
import { GuardedValues } from './guarded-values.js';
import { JunctionGuard } from './junction-guard.js';
import { KeptWrites } from './kept-writes.js';
import { PoolWaits } from './pool-waits.js';
import { Proofs } from './proofs.js';
import { Refusals } from './refusals.js';
import { RowStamps } from './row-stamps.js';
import { StatementGuards } from './statement-guards.js';
import { StatementNet } from './statement-net.js';
import type { Transactions } from './transactions.js';
import { UnchangedSaves } from './unchanged-saves.js';
import { WriteGuard } from './write-guard.js';

export interface GuardedDataSource {
  readonly dataSource: DataSource;
  readonly dialect: Dialect;
  readonly locks: LockService;
  readonly entities: readonly FencedEntity[];
  readonly fence: DataSourceFence;
  readonly rows: FenceRows;
  readonly transactions: Transactions;
}

/** Everything that looks at the writes of one DataSource, each knowing those that it needs. */
export type GuardParts = ReturnType<typeof guardParts>;

export function guardParts({
  dataSource,
  dialect,
  locks,
  entities,
  fence,
  rows,
  transactions,
}: GuardedDataSource) {
  const { driver } = dataSource;
  const escape = driver.escape.bind(driver);
  const createRunner = () => dataSource.createQueryRunner();
  const entityOf = (metadata: EntityMetadata) => entities.find((entity) => entity.metadata === metadata);
  const junctions = fencedJunctionsOf(dataSource, entities);

  const proofs = new Proofs(locks);
  const refusals = new Refusals(locks);
  const expressions = new GuardExpressions(dialect, fenceTable(dataSource));
  const values = new GuardedValues();
  const stamps = new RowStamps(expressions, refusals, driver);
  const statements = new StatementGuards({ dialect, escape, entities, expressions, proofs, refusals });
  const admission = new Admission(fence, transactions);
  const checks = new FenceChecks(rows, admission, transactions, refusals);
  const seen = { expressions, statements, refusals, callSites: new CallSites() };
  return {
    entityOf,
    expressions,
    keptWrites: new KeptWrites(dialect, transactions),
    pins: new FencePins(fence, rows, transactions),
    poolWaits: new PoolWaits(dataSource, transactions),
    proofs,
    refusals,
    statements,
    net: new StatementNet(dialect, { entities, junctions }, seen),
    junctionGuard: new JunctionGuard(junctions, { admission, proofs, refusals, stamps }),
    reads: new FencedReads({ dialect, admission, checks, proofs, refusals, stamps, createRunner }),
    unchangedSaves: new UnchangedSaves({ dataSource, entityOf, proofs, checks }),
    writeGuards: entities.map((entity) => {
      values.attach(entity);
      return new WriteGuard(entity, { proofs, refusals, expressions, values, stamps, admission });
    }),
  };
}
