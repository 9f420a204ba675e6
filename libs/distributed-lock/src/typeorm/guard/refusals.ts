import {
  FencedOutError,
  LockConfigInvalidError,
  UnfencedWriteError,
  type LockService,
} from '../../core/index.js';
import type { FencedEntity } from '../entities/index.js';
import type { Proof } from './proof.js';

/** What is written where: for messages and events. */
export interface Attempt {
  readonly entity: FencedEntity;
  /** How the write came, e.g. `update()`. */
  readonly path: string;
  /** The key of the row, where it is known. */
  readonly key?: string | null;
}

const NO_STORE = 'none';

/** Says no, in words that tell what to do, and lets everybody know. */
export class Refusals {
  constructor(private readonly locks: LockService) {}

  /** No token came with a write that needs one. */
  noToken({ entity, path, key }: Attempt): UnfencedWriteError {
    const { text } = entity.template;
    const lock = key ? `"${key}"` : `'${text}'`;
    return this.#unfenced(
      { entity, path, key },
      `A write to ${entity.name} by ${path} carries no token: no lock on ${lock} is held here. It was not sent. ` +
        `Run it inside @Locked('${text}') or withLock(); with only a token at hand, save(entity, ` +
        "{ data: { expectedLockToken } }); for work that no lock protects, unfenced('why', () => …).",
    );
  }

  /** The write took a way on which nothing can be checked. */
  unguarded({ entity, path, key }: Attempt, advice: string): UnfencedWriteError {
    return this.#unfenced(
      { entity, path, key },
      `A write to ${entity.name} by ${path} cannot be guarded. It was not sent. ${advice}`,
    );
  }

  /** The row would come under another lock. */
  keyChange({ entity, path, key }: Attempt): UnfencedWriteError {
    return this.unguarded(
      { entity, path, key },
      `It changes a column of the key '${entity.template.text}', which would move the row to another lock. ` +
        'Insert a new row under that lock and remove this one.',
    );
  }

  /** Whoever removed the row was here after this owner read it. */
  rowIsGone(entity: FencedEntity, proofs: readonly Proof[]): FencedOutError {
    for (const proof of proofs) this.#tellStale(entity, proof);
    return new FencedOutError(
      `The row of ${entity.name} under ${listed(proofs)} is not there (any more): somebody else has removed it. ` +
        'Nothing was written, and the transaction will not commit.',
      { key: proofs[0]?.key, store: proofs[0]?.lease?.store },
    );
  }

  /** The fence was asked, and knows a newer owner. */
  stale(entity: FencedEntity, proof: Proof): FencedOutError {
    this.#tellStale(entity, proof);
    return new FencedOutError(
      `The lock ${listed([proof])} has a newer owner, so what was read of ${entity.name} under it may be old. Nothing was ` +
        'written; its transaction will not commit. Stop here and read the data again.',
      { key: proof.key, store: proof.lease?.store },
    );
  }

  /** The database refused the value of the token column. */
  byDatabase(entity: FencedEntity, proofs: readonly Proof[], cause: unknown): FencedOutError {
    for (const proof of proofs) this.#tellStale(entity, proof);
    return new FencedOutError(
      `The database refused a write to ${entity.name} under ${listed(proofs)}: a newer owner has the lock, or the statement ` +
        'reached a row that the lock does not protect. It changed nothing, and its transaction will not commit; ' +
        'stop here and read the data again.',
      { key: proofs[0]?.key, store: proofs[0]?.lease?.store, cause },
    );
  }

  /** The guard found that this session of MySQL corrects bad values rather than refusing them. */
  laxSession({ name }: FencedEntity, cause: unknown): LockConfigInvalidError {
    return new LockConfigInvalidError(
      `A write to ${name} was refused: the sql_mode of this session is not strict, so the database would correct values that ` +
        'it has to refuse, and a stale write with them. It changed nothing; leave STRICT_TRANS_TABLES in sql_mode.',
      { cause },
    );
  }

  /** A row was to be inserted without a lock, for a key that somebody has locked before. */
  keyWasLocked(entity: FencedEntity, cause: unknown): UnfencedWriteError {
    return this.#unfenced(
      { entity, path: 'insert' },
      `A row of ${entity.name} was not inserted: its key has been locked before, and no lock on it is held here, so a ` +
        `removed row might come back. Run the insert inside @Locked('${entity.template.text}') or withLock().`,
      cause,
    );
  }

  /** An unguarded write passes, because somebody said so. */
  passes({ entity, path, key }: Attempt): void {
    this.#tellUnfenced({ entity, path, key }, false);
  }

  #tellStale({ name, template }: FencedEntity, { key, token, lease }: Proof): void {
    this.locks.events.emit({
      type: 'stale-write-refused',
      key,
      template: lease?.template ?? template.text,
      store: lease?.store ?? NO_STORE,
      token,
      entity: name,
    });
  }

  #unfenced(attempt: Attempt, message: string, cause?: unknown): UnfencedWriteError {
    this.#tellUnfenced(attempt, true);
    return new UnfencedWriteError(message, { key: attempt.key ?? undefined, cause });
  }

  #tellUnfenced({ entity, path, key }: Attempt, refused: boolean): void {
    const template = entity.template.text;
    this.locks.events.emit({
      type: 'unfenced-write',
      key: key ?? template,
      template,
      store: NO_STORE,
      entity: entity.name,
      path,
      refused,
    });
  }
}

function listed(proofs: readonly Proof[]): string {
  return proofs.map(({ key, token }) => `"${key}" (token ${token})`).join(', ');
}
