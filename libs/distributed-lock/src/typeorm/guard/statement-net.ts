import type { EntityMetadata } from 'typeorm';

import type { CallSites } from './call-sites.js';
import { type Dialect, type SqlWrite, writesOf, type WriteVerb } from '../sql/index.js';
import type { FencedEntity, FencedJunction } from '../entities/index.js';
import type { GuardExpressions } from './guard-expression.js';
import { currentOperation, type Stamp } from './operations.js';
import type { Refusals } from './refusals.js';
import type { StatementGuards } from './statement-guards.js';
import { unfencedReason } from './unfenced.js';

export interface FencedTables {
  readonly entities: readonly FencedEntity[];
  readonly junctions: readonly FencedJunction[];
}

export interface StatementNetParts {
  readonly expressions: GuardExpressions;
  readonly statements: StatementGuards;
  readonly refusals: Refusals;
  readonly callSites: CallSites;
}

/** A write to a fenced table. */
interface FencedWrite extends SqlWrite {
  /** What protects the rows: the entity of the table, or the owner of the junction. */
  readonly entity: FencedEntity;
  /** As TypeORM spells it. */
  readonly path: string;
}

interface FencedTable {
  readonly entity: FencedEntity;
  readonly path: string;
  /** As {@link writesOf} reads names. */
  readonly names: readonly string[];
}

/**
 * Looks at every statement just before it is sent, and lets a write to a fenced table pass only with a guard in it.
 *
 * It catches what no hook sees: raw SQL, `listeners: false`, orphans, upserts, clear(). What it cannot see are functions,
 * triggers and views of the database, and connections that are not the DataSource's.
 */
export class StatementNet {
  readonly #tables: readonly FencedTable[];
  readonly #mention: RegExp;

  constructor(
    private readonly dialect: Dialect,
    { entities, junctions }: FencedTables,
    private readonly parts: StatementNetParts,
  ) {
    this.#tables = [
      ...entities.map((entity) => this.#table(entity, entity.metadata)),
      ...junctions.map(({ owner, metadata }) => this.#table(owner, metadata)),
    ];
    const names = this.#tables.map((table) => table.names.at(-1) as string);
    this.#mention = new RegExp(names.map(escapePattern).join('|') || '(?!)', 'i');
  }

  /**
   * The stamps that have to be put on rows before `sql` is sent.
   *
   * @throws {UnfencedWriteError} it writes a fenced table without a guard
   */
  admit(sql: string): readonly Stamp[] {
    if (!this.#mention.test(sql)) return [];
    const writes = this.#fencedWrites(sql);
    if (writes.length === 0 || this.#isGuarded(sql, writes)) return [];
    const stamps = this.#takeStamps(writes);
    if (stamps.length === 0) for (const write of writes) this.#refuse(write);
    return stamps;
  }

  /** The entity whose guard `sql` carries. */
  guardedEntity(sql: string): FencedEntity | undefined {
    return this.parts.expressions.markIn(sql) === null ? undefined : this.#fencedWrites(sql)[0]?.entity;
  }

  #fencedWrites(sql: string): readonly FencedWrite[] {
    return writesOf(this.dialect, sql).flatMap((write) => {
      const fenced = this.#tables.find(({ names }) => endsAlike(write.table, names));
      return fenced ? [{ ...write, entity: fenced.entity, path: fenced.path }] : [];
    });
  }

  /** One guard speaks for one write, and not for what a conflict would make of it: that needs another. */
  #isGuarded(sql: string, [write, another]: readonly FencedWrite[]): boolean {
    if (this.parts.expressions.markIn(sql) === null || !write || another) return false;
    return !write.onConflict || this.parts.statements.guardsConflict(sql);
  }

  /**
   * DELETE removes all rows of an entity in one statement, and INSERT brings all junction rows; soft removal and recovery
   * take one for each row. Which of them is for which row does not matter: they stand in one transaction, so all stamps
   * hold or none.
   */
  #takeStamps([write, another]: readonly FencedWrite[]): readonly Stamp[] {
    const stamps = currentOperation()?.stamps;
    if (!stamps || !write || another) return [];
    const fitting = stamps.filter(({ table, verb }) => verb === write.verb && table === write.path);
    const [first] = fitting;
    const taken =
      write.verb === 'UPDATE'
        ? fitting.slice(0, 1)
        : fitting.filter(({ entity }) => entity === first?.entity);
    stamps.splice(0, Infinity, ...stamps.filter((stamp) => !taken.includes(stamp)));
    return taken;
  }

  #refuse({ entity, verb, onConflict }: FencedWrite): void {
    const attempt = { entity, path: pathOf(verb, onConflict) };
    if (entity.unfencedWrites === 'refuse' && unfencedReason() === undefined) {
      throw this.parts.refusals.unguarded(attempt, adviceFor(verb, onConflict, entity));
    }
    this.parts.refusals.passes(attempt);
    if (entity.unfencedWrites === 'warn' && unfencedReason() === undefined)
      this.parts.callSites.warnOnce(attempt);
  }

  #table(entity: FencedEntity, { tablePath }: EntityMetadata): FencedTable {
    const names = tablePath.split('.');
    return {
      entity,
      path: tablePath,
      names: this.dialect === 'postgres' ? names : names.map((name) => name.toLowerCase()),
    };
  }
}

/** `invoice` may be in any schema, and so may a table whose schema TypeORM leaves to the session. */
function endsAlike(written: readonly string[], fenced: readonly string[]): boolean {
  const depth = Math.min(written.length, fenced.length);
  return depth > 0 && written.slice(-depth).join('\0') === fenced.slice(-depth).join('\0');
}

function escapePattern(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
}

function pathOf(verb: WriteVerb, onConflict: boolean): string {
  return onConflict ? `${verb} with a conflict clause (upsert, orUpdate, orIgnore)` : `${verb} in SQL`;
}

function adviceFor(verb: WriteVerb, onConflict: boolean, { template }: FencedEntity): string {
  const lock = `under the lock '${template.text}'`;
  if (onConflict)
    return `Use fenced(repository).upsert() ${lock}; or read the row there, then save() or insert() it.`;
  switch (verb) {
    case 'INSERT':
      return `Use save() or insert() with the entity's values ${lock}.`;
    case 'UPDATE':
      return (
        `Use save(), update(), an update query builder or fenced(repository).softDelete() or .restore() ${lock}, with ` +
        'listeners; children that left a relation have to be changed themselves.'
      );
    case 'DELETE':
      return `Use fenced(repository).delete() ${lock}, or load the rows there and remove() them, with listeners.`;
    case 'TRUNCATE':
      return `It would take the rows of all locks. Use fenced(repository).delete() ${lock}.`;
    default:
      return "If no lock is needed here, say so: unfenced('why', () => …).";
  }
}
