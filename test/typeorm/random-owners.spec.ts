import { setImmediate as tick } from 'node:timers/promises';

import fc from 'fast-check';
import type { DataSource } from 'typeorm';

import type { Lease } from 'nestjs-distributed-lock';
import { fencedTransaction, unfenced } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase, type TestDatabase } from './databases.js';
import { Invoice, InvoiceLine } from './invoices.js';
import { elsewhere, Owners, seed, type Owner } from './owners.js';
import { acceptedSince, highest, recordHistory, stepsBack, type Accepted } from './random-owners-history.js';

/** In sum 10 000. SQLite does most of them, for it costs no round trips. */
const SEQUENCES: Readonly<Record<TestDatabase['dialect'], number>> = {
  sqlite: 9_000,
  postgres: 500,
  mysql: 500,
};
const LONGEST = 5;

const ID = '1';
const KEY = `invoice:${ID}`;

type Leases = [Lease | undefined, Lease | undefined];
type Write = (owner: Owner, path: string, lease: Lease) => Promise<unknown>;
type Path = (owner: Owner) => Promise<unknown>;

const PATHS: Readonly<Record<string, Path>> = {
  save: (owner) => owner.repository(Invoice).save({ id: ID, status: 'SETTLED' }),
  update: (owner) => owner.repository(Invoice).update({ id: ID }, { status: 'SETTLED' }),
  increment: (owner) => owner.repository(Invoice).increment({ id: ID }, 'paid', 1),
  insert: (owner) => owner.repository(InvoiceLine).insert({ invoice: { id: ID }, text: 'line' }),
  remove: async (owner) => {
    const lines = await owner.repository(InvoiceLine).findBy({ invoice: { id: ID } });
    return owner.repository(InvoiceLine).remove(lines.slice(0, 1));
  },
  transaction: (owner) =>
    owner.dataSource.transaction((manager) => manager.update(Invoice, { id: ID }, { status: 'SETTLED' })),
  fencedTransaction: () => fencedTransaction((manager) => manager.increment(Invoice, { id: ID }, 'paid', 1)),
};

/** What an implementation would do that stamps rows and checks nothing. */
const stampUnchecked: (owner: Owner, lease: Lease) => Promise<unknown> = ({ dataSource }, { token }) =>
  unfenced('to see that the check sees it', () =>
    dataSource.query(
      `UPDATE invoice SET ${dataSource.driver.escape('lockToken')} = ${token} WHERE id = '${ID}'`,
    ),
  );

/** After `pause` turns of the event loop, `owner` does it: takes or loses the lock, or writes by one of the paths. */
interface Step {
  readonly owner: 0 | 1;
  readonly pause: number;
  readonly does: string;
}

const step: fc.Arbitrary<Step> = fc.record({
  owner: fc.constantFrom(0, 1),
  pause: fc.oneof({ weight: 3, arbitrary: fc.constant(0) }, fc.nat(6)),
  does: fc.oneof(fc.constantFrom('acquire', 'lose'), {
    weight: 4,
    arbitrary: fc.constantFrom(...Object.keys(PATHS)),
  }),
});

/** One takes the lock, and at some time the other one; what else happens is anybody's guess. */
const sequences = fc
  .tuple(fc.nat(6), fc.array(step, { minLength: 1, maxLength: LONGEST }))
  .map(([pause, steps]): readonly Step[] => [
    { owner: 0, pause: 0, does: 'acquire' },
    { owner: 1, pause, does: 'acquire' },
    ...steps,
  ]);

describeOnEachDatabase('Two owners at random', (start, dialect) => {
  let owners: Owners;
  let pair: readonly [Owner, Owner];
  let plain: DataSource;
  let accepted: Accepted;
  let acquiring: Promise<void>;
  let answers: Record<string, number>;

  beforeAll(async () => {
    owners = await Owners.on(await start());
    plain = (await owners.add({ plain: true })).dataSource;
    await recordHistory(plain, dialect);
    pair = [await owners.add(), await owners.add()];
    await seed(pair[0], ID);
    accepted = { seq: 0, token: 0 };
    acquiring = Promise.resolve();
  });
  beforeEach(() => (answers = {}));
  afterAll(() => owners.stop());

  /** Both owners take their steps side by side. Resolves with what the database accepted under a lower token than before. */
  async function play(steps: readonly Step[], write: Write): Promise<readonly Accepted[]> {
    const leases: Leases = [undefined, undefined];
    await Promise.all([part(0, steps, leases, write), part(1, steps, leases, write)]);
    await writeLate(leases, write);
    for (const lease of leases) await lease?.release();
    const history = await acceptedSince(accepted, plain, KEY);
    const back = stepsBack(history, accepted.token);
    accepted = { seq: history.at(-1)?.seq ?? accepted.seq, token: highest(history, accepted.token) };
    return back;
  }

  async function part(index: 0 | 1, steps: readonly Step[], leases: Leases, write: Write): Promise<void> {
    for (const { owner, pause, does } of steps) {
      if (owner !== index) continue;
      for (let turn = 0; turn < pause; turn += 1) await tick();
      const lease = leases[index];
      if (does === 'acquire') await (acquiring = acquiring.then(() => acquire(index, leases)));
      else if (does === 'lose') lease?.lose('expired');
      else if (lease) await attempt(lease, () => write(pair[index], does, lease));
    }
  }

  /** Whoever was succeeded writes once more, so that in each sequence somebody surely is late. */
  async function writeLate([first, second]: Leases, write: Write): Promise<void> {
    if (!first || !second) throw new Error('somebody never had the lock');
    const [index, lease] = first.token < second.token ? ([0, first] as const) : ([1, second] as const);
    await attempt(lease, () => write(pair[index], 'update', lease));
  }

  async function attempt(lease: Lease, write: () => Promise<unknown>): Promise<void> {
    await lease.run(write).then(() => note('accepted'), note);
  }

  /** For the store, the ttl of whoever has the lock is over. */
  async function acquire(index: 0 | 1, leases: Leases): Promise<void> {
    await leases[index]?.release();
    const other = leases[1 - index];
    leases[index] = await (other
      ? owners.takeOver(other, pair[index])
      : elsewhere(() => owners.hold(pair[index], KEY)));
  }

  function note(answer: unknown): void {
    const { code, driverError } = answer as { code?: string; driverError?: { code?: string } };
    const word = typeof answer === 'string' ? answer : (code ?? driverError?.code ?? String(answer));
    answers[word] = (answers[word] ?? 0) + 1;
  }

  const count = SEQUENCES[dialect];
  it(`have no write accepted whose token is lower than one accepted or raised before, in ${count} sequences`, async () => {
    const seedOfRun = Number(process.env['SEED'] ?? Date.now() % 2 ** 31);
    const property = fc.asyncProperty(sequences, async (steps) => {
      expect(await play(steps, (owner, path) => (PATHS[path] as Path)(owner))).toEqual([]);
    });
    await fc.assert(property, { seed: seedOfRun, numRuns: count });
    console.log(`SEED=${seedOfRun}`, answers);
    expect(Object.keys(answers).sort()).toEqual(['FENCED_OUT', 'LEASE_LOST', 'accepted']);
    for (const often of Object.values(answers)) expect(often).toBeGreaterThan(count / 25);
    const { FENCED_OUT = 0, LEASE_LOST = 0 } = answers;
    expect(FENCED_OUT + LEASE_LOST).toBeGreaterThanOrEqual(count);
  }, 900_000);

  it('are caught when rows are stamped and nothing is checked: the positive control', async () => {
    const property = fc.asyncProperty(sequences, async (steps) => {
      expect(await play(steps, (owner, _path, lease) => stampUnchecked(owner, lease))).toEqual([]);
    });
    const { failed } = await fc.check(property, { seed: 1, numRuns: 300, endOnFailure: true });
    expect(failed).toBe(true);
  });
});
