import type { QueryRunner } from 'typeorm';

import type { Admission } from './admission.js';
import type { FencedEntity } from '../entities/index.js';
import type { FenceRows } from '../fence/index.js';
import type { Proof } from './proof.js';
import type { Refusals } from './refusals.js';
import type { Transactions } from './transactions.js';

/** Asks the fence itself, where no statement of the user's was sent that could have carried a guard. */
export class FenceChecks {
  constructor(
    private readonly rows: FenceRows,
    private readonly admission: Admission,
    private readonly transactions: Transactions,
    private readonly refusals: Refusals,
  ) {}

  /** @throws {FencedOutError} a newer owner is there; the transaction that `runner` has open will not commit */
  async requireCurrent(runner: QueryRunner, entity: FencedEntity, proofs: readonly Proof[]): Promise<void> {
    await this.admission.admit(entity, proofs, runner);
    for (const proof of proofs) {
      const fence = await this.rows.read(runner, proof.qualifiedKey);
      const isOwner = proof.ownerId === null || fence?.ownerId === proof.ownerId;
      if (isOwner && fence?.token === proof.token) continue;
      const refusal = this.refusals.stale(entity, proof);
      this.transactions.doom(runner, refusal);
      throw refusal;
    }
  }
}
