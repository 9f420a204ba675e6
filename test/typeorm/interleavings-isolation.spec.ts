import { unfenced } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase, type TestDatabase } from './databases.js';
import { orders, Stage, type Played, type WayOfWorking } from './interleavings-steps.js';
import { Invoice } from './invoices.js';
import { Owners, type Owner } from './owners.js';
import { waitingSessionsOf } from './waiting-sessions.js';

/** What is to be known of a database, to play on it. */
interface Setting {
  readonly levels: readonly WayOfWorking['isolation'][];
  /** Those at which the database itself lets nobody overwrite what has changed since it was read in the same transaction. */
  readonly safeInside: readonly WayOfWorking['isolation'][];
}

const SETTINGS: Readonly<Record<TestDatabase['dialect'], Setting>> = {
  sqlite: { levels: ['SERIALIZABLE'], safeInside: ['SERIALIZABLE'] },
  postgres: {
    levels: ['READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'],
    safeInside: ['REPEATABLE READ', 'SERIALIZABLE'],
  },
  mysql: {
    levels: ['READ UNCOMMITTED', 'READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'],
    safeInside: ['SERIALIZABLE'],
  },
};
/** What a late owner may be told: that it is late, or that its snapshot is. */
const REFUSALS = ['FENCED_OUT', '40001', 'ER_LOCK_DEADLOCK'];

describeOnEachDatabase(
  'All 35 interleavings of two owners that acquire, read, write and commit',
  (start, dialect) => {
    const setting = SETTINGS[dialect];
    let owners: Owners;
    let control: Owner;
    let stage: Stage;
    let lastId = 0;

    beforeAll(async () => {
      owners = await Owners.on(await start());
      control = await owners.add();
      stage = new Stage(
        owners,
        { A: await owners.add(), B: await owners.add() },
        waitingSessionsOf(dialect, control.dataSource),
      );
    });
    afterAll(() => owners.stop());

    async function playAll(way: WayOfWorking): Promise<(Played & { readonly order: string })[]> {
      const played = [];
      for (const order of orders()) {
        const id = `${++lastId}`;
        await unfenced('a row that is there', () => control.repository(Invoice).insert({ id, status: '' }));
        played.push({ order, ...(await stage.play(order, way, id)) });
      }
      return played;
    }

    for (const isolation of setting.levels) {
      for (const reads of ['inside', 'before'] as const) {
        for (const begins of ['transaction()', 'fencedTransaction()'] as const) {
          it(`leave the row of a serial run, at ${isolation}, read ${reads} ${begins}`, async () => {
            const played = await playAll({ isolation, reads, begins, guards: true });
            expect(played.filter(({ row, committed }) => row !== committed)).toEqual([]);
            // The newest owner gets through, and whoever was done before it; but for both having read under share locks.
            const kept = ({ committed, failures }: Played): boolean =>
              committed.endsWith('B') || (isolation === 'SERIALIZABLE' && failures[1] === 'ER_LOCK_DEADLOCK');
            expect(played.filter((each) => !kept(each))).toEqual([]);
            expect(played[0]).toMatchObject({ order: 'AAAABBBB', row: 'AB' });
            const said = played.flatMap(({ failures }) => failures);
            expect(said.filter((code) => !REFUSALS.includes(code))).toEqual([]);
            expect(said.length).toBeGreaterThan(10);
          });
        }

        const safe = reads === 'inside' && setting.safeInside.includes(isolation);
        const what = safe ? 'need no guards' : 'lose updates without guards';
        it(`${what}, at ${isolation}, read ${reads} transaction()`, async () => {
          const played = await playAll({ isolation, reads, begins: 'transaction()', guards: false });
          const lost = played.filter(({ row, committed }) => row.length < committed.length);
          if (safe) expect(lost).toEqual([]);
          else expect(lost.length).toBeGreaterThan(5);
        });
      }
    }
  },
);
