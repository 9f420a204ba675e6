import type { Lease } from 'nestjs-distributed-lock';

import { describeOnEachDatabase } from './databases.js';
import { Invoice, InvoiceLine, Label } from './invoices.js';
import { empty, seed, withOwners, type Owner } from './owners.js';

const ROUNDS = 300;
const STEPS = 12;

/** Small and repeatable: mulberry32. */
function randomFrom(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

const writes: readonly ((owner: Owner, mark: string) => Promise<unknown>)[] = [
  (owner, mark) => owner.repository(Invoice).save({ id: '1', status: mark }),
  (owner, mark) => owner.repository(Invoice).update({ id: '1' }, { status: mark }),
  (owner) => owner.repository(Invoice).increment({ id: '1' }, 'paid', 1),
  (owner, mark) => owner.repository(InvoiceLine).insert({ invoice: { id: '1' }, text: mark }),
  async (owner) => {
    const lines = await owner.repository(InvoiceLine).findBy({ invoice: { id: '1' } });
    if (lines.length < 2) return owner.repository(Invoice).increment({ id: '1' }, 'paid', 1);
    return owner.repository(InvoiceLine).remove(lines.slice(1));
  },
  (owner, mark) =>
    owner.dataSource.transaction((manager) => manager.update(Invoice, { id: '1' }, { status: mark })),
];

describeOnEachDatabase('Two owners in random order', (start) => {
  it('never have a write accepted whose token is lower than one that was accepted or raised before', async () => {
    const seedOfRun = Number(process.env['SEED'] ?? Date.now() % 2 ** 31);
    console.log(`SEED=${seedOfRun}`);
    const random = randomFrom(seedOfRun);
    await withOwners(
      start,
      async (owners) => {
        const pair = [await owners.add(), await owners.add()];
        let accepted = 0;
        let refused = 0;
        for (let round = 0; round < ROUNDS; round += 1) {
          if (round % 50 === 0) {
            await empty(pair[0] as Owner);
            await seed(pair[0] as Owner, '1');
          }
          let turn = random(2);
          let current = await owners.hold(pair[turn] as Owner, 'invoice:1');
          const holds: { lease: Lease; owner: Owner }[] = [{ lease: current, owner: pair[turn] as Owner }];
          let highest = current.token;
          for (let step = 0; step < STEPS; step += 1) {
            if (holds.length < 2 && random(4) === 0) {
              turn = 1 - turn;
              current = await owners.takeOver(current, pair[turn] as Owner);
              holds.push({ lease: current, owner: pair[turn] as Owner });
              highest = Math.max(highest, current.token);
              continue;
            }
            const { lease, owner } = holds[random(holds.length)] as (typeof holds)[number];
            const write = writes[random(writes.length)] as (typeof writes)[number];
            const mark = `${round}.${step}.${lease.token}`;
            const code = await lease
              .run(() => write(owner, mark))
              .then(
                () => null,
                (error: { code?: string }) => error.code,
              );
            const expected = lease.token < highest ? 'FENCED_OUT' : null;
            expect({ seedOfRun, round, step, code }).toEqual({ seedOfRun, round, step, code: expected });
            if (code === null) accepted += 1;
            else refused += 1;
          }
          for (const { lease } of holds) await lease.release();
        }
        console.log(`${accepted} writes accepted, ${refused} refused`);
        expect(refused).toBeGreaterThan(ROUNDS / 10);
      },
      [Invoice, InvoiceLine, Label],
    );
  }, 240_000);
});
