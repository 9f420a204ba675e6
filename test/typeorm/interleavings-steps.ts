import { setImmediate as tick, setTimeout as sleep } from 'node:timers/promises';

import type { DataSource, EntityManager } from 'typeorm';

import type { Lease } from 'nestjs-distributed-lock';
import { fencedTransaction, unfenced, type FencedTransactionOptions } from 'nestjs-distributed-lock/typeorm';

import { Invoice } from './invoices.js';
import { elsewhere, type Owner, type Owners } from './owners.js';
import { SYNCHRONOUS_TURNS } from './waiting-sessions.js';

type Isolation = NonNullable<FencedTransactionOptions['isolation']>;
type Name = 'A' | 'B';

/** How both owners work in an interleaving: each takes the lock, reads the row, appends its name to it and commits. */
export interface WayOfWorking {
  readonly isolation: Isolation;
  /** Whether the row is read in the transaction that writes it, or before that begins. */
  readonly reads: 'inside' | 'before';
  readonly begins: 'transaction()' | 'fencedTransaction()';
  /** Without guards, the same steps show what they are for. */
  readonly guards: boolean;
}

/** What came of it: the row at the end, and who was told that it had committed. */
export interface Played {
  readonly row: string;
  readonly committed: string;
  readonly failures: readonly string[];
}

/** Most steps are done by then, and nobody has to ask the database whether they wait. */
const LOOK_EVERY_MS = 4;
const STEPS_EACH = 4; // acquire, read, write, commit

/** All orders in which the steps of A and B can come; A, who takes the lock first, gets the lower token. */
export function orders(a = STEPS_EACH, b = STEPS_EACH): readonly string[] {
  if (a === 0 || b === 0) return ['A'.repeat(a) + 'B'.repeat(b)];
  const withA = orders(a - 1, b).map((rest) => `A${rest}`);
  if (a === STEPS_EACH) return withA;
  return [...withA, ...orders(a, b - 1).map((rest) => `B${rest}`)];
}

/** One owner, who takes a step whenever the order says so. */
class Player {
  #allowed = 0;
  #taken = 0;
  #finished = 0;
  #ended = false;
  /** Between the begin and the end of its transaction. */
  inside = false;
  #wake: () => void = () => undefined;
  #idle: () => void = () => undefined;

  /** True while a step was begun and is not finished: because it waits in the database, or is still on its way. */
  get busy(): boolean {
    return !this.#ended && this.#taken > this.#finished;
  }

  /** Lets the next step begin; resolves when all that were begun are finished. */
  step(): Promise<void> {
    if (this.#ended) return Promise.resolve();
    this.#allowed += 1;
    const idle = new Promise<void>((resolve) => (this.#idle = resolve));
    this.#wake();
    return idle;
  }

  /** Called by the work before each step. */
  async turn(): Promise<void> {
    this.#finished = this.#taken;
    if (this.#allowed === this.#taken) {
      this.#idle();
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
    this.#taken += 1;
  }

  end(): void {
    this.#ended = true;
    this.#idle();
  }
}

/** Plays orders of steps, with two owners of one lock on one row. */
export class Stage {
  constructor(
    private readonly owners: Owners,
    private readonly pair: Readonly<Record<Name, Owner>>,
    /** Tells how many sessions of the database wait for another one; null where only one transaction can be open. */
    private readonly waiting: (() => Promise<number>) | null,
  ) {}

  async play(order: string, way: WayOfWorking, id: string): Promise<Played> {
    const players = { A: new Player(), B: new Player() };
    const leases: Lease[] = [];
    const parts = (['A', 'B'] as const).map((name) => this.#work(name, players[name], leases, way, id));
    const outcomes = Promise.allSettled(parts);
    for (const name of order as Iterable<Name>) await this.#step(players[name], Object.values(players));
    const [a, b] = await outcomes;
    for (const lease of leases) await lease.release();
    const { status: row } = await this.pair.A.repository(Invoice).findOneByOrFail({ id });
    const committed = [a?.status === 'fulfilled' ? 'A' : '', b?.status === 'fulfilled' ? 'B' : ''].join('');
    const failures = [a, b].flatMap((each) => (each?.status === 'rejected' ? nameOf(each.reason) : []));
    return { row, committed, failures };
  }

  /** Until the step is done, or all whose steps are not done wait in the database. */
  async #step(player: Player, all: readonly Player[]): Promise<void> {
    let done = false;
    const finishing = player.step().then(() => (done = true));
    let turns = 0;
    do {
      await (this.waiting ? Promise.race([finishing, sleep(LOOK_EVERY_MS)]) : tick());
      turns += 1;
    } while (!done && !(await this.#areStuck(all, turns)));
  }

  async #areStuck(players: readonly Player[], turns: number): Promise<boolean> {
    const busy = players.filter((player) => player.busy).length;
    if (this.waiting) return (await this.waiting()) >= busy;
    return turns > SYNCHRONOUS_TURNS && players.some(({ inside }) => inside);
  }

  async #work(name: Name, player: Player, leases: Lease[], way: WayOfWorking, id: string): Promise<void> {
    const owner = this.pair[name];
    const read = async (from: DataSource | EntityManager): Promise<string> =>
      (await from.getRepository(Invoice).findOneByOrFail({ id })).status;
    try {
      await player.turn();
      const lease = await this.#acquire(owner, leases.at(-1), id);
      leases.push(lease);
      await lease.run(async () => {
        await player.turn();
        const before = way.reads === 'before' ? await read(owner.dataSource) : null;
        if (before !== null) await player.turn();
        const work = async (manager: EntityManager): Promise<void> => {
          player.inside = true;
          const seen = before ?? (await read(manager));
          if (before === null) await player.turn();
          await manager.update(Invoice, { id }, { status: seen + name });
          await player.turn();
        };
        const run = (): Promise<void> => begin(owner.dataSource, way, work);
        await (way.guards ? run() : unfenced('to see what happens', run));
      });
    } finally {
      player.inside = false;
      player.end();
    }
  }

  #acquire(owner: Owner, current: Lease | undefined, id: string): Promise<Lease> {
    if (current) return this.owners.takeOver(current, owner);
    return elsewhere(() => this.owners.hold(owner, `invoice:${id}`));
  }
}

function begin(
  dataSource: DataSource,
  { begins, isolation }: WayOfWorking,
  work: (manager: EntityManager) => Promise<void>,
): Promise<void> {
  if (begins === 'transaction()') return dataSource.transaction(isolation, work);
  return fencedTransaction(work, { dataSource, isolation });
}

/** The code of ours or of the driver; the whole error when there is none. */
function nameOf(error: unknown): string {
  const { code, driverError } = error as { code?: string; driverError?: { code?: string } };
  return code ?? driverError?.code ?? String(error);
}
