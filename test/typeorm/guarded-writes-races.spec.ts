import { fenced, unfenced } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase } from './databases.js';
import { Invoice } from './invoices.js';
import { elsewhere, Owners, type Owner } from './owners.js';

/** Where in the successor's take-over the late statement is sent, and whether it may still be carried out. */
const POINTS = {
  'done before he comes': 'passes',
  'just before the key is free': 'may pass',
  'when the store has given him the key': 'may pass',
  'when his fence is raised': 'refused',
  'when he has the lock': 'refused',
  'after he has read': 'refused',
} as const;
type Point = keyof typeof POINTS;
const points = Object.keys(POINTS) as Point[];

const TOLD_BY: Readonly<Record<string, Point>> = {
  acquired: 'when the store has given him the key',
  'fence-raised': 'when his fence is raised',
};
/** A statement that is sent a little after its point meets other steps of the take-over. */
const TURNS_LATER = [0, 1, 2, 3, 4];
const TIMES = 4;
const ROUNDS = points.length * TURNS_LATER.length * TIMES;

type Write = (owner: Owner, id: string) => Promise<unknown>;

/** Each writes row `id` in one statement, if it is let; `unguarded` is what a lock without a fence lets through. */
const lateWrites: Readonly<Record<string, { readonly guarded: Write; readonly unguarded: Write }>> = {
  delete: {
    guarded: (owner, id) => fenced(owner.repository(Invoice)).delete(id),
    unguarded: (owner, id) => owner.repository(Invoice).delete(id),
  },
  softDelete: {
    guarded: (owner, id) => fenced(owner.repository(Invoice)).softDelete({ id, status: 'READY' }),
    unguarded: (owner, id) => owner.repository(Invoice).softDelete({ id, status: 'READY' }),
  },
  upsert: {
    guarded: (owner, id) => fenced(owner.repository(Invoice)).upsert({ id, status: 'LATE' }, ['id']),
    unguarded: (owner, id) => owner.repository(Invoice).upsert({ id, status: 'LATE' }, ['id']),
  },
};

interface Round {
  readonly point: Point;
  readonly turns: number;
  /** `written`, or the code of the refusal. */
  readonly answer: string;
  /** True when the row is no longer what the successor has read. */
  readonly surprised: boolean;
}

describeOnEachDatabase('A late statement that races with the successor', (start) => {
  let owners: Owners;
  let late: Owner;
  let successor: Owner;
  let lastId = 0;

  beforeAll(async () => {
    owners = await Owners.on(await start());
    late = await owners.add();
    successor = await owners.add();
  });
  afterAll(() => owners.stop());

  const row = async (by: Owner, id: string): Promise<string> =>
    JSON.stringify(await by.dataSource.query<unknown[]>(`SELECT * FROM invoice WHERE id = '${id}'`));

  async function play(point: Point, turns: number, write: Write): Promise<Round> {
    const id = `${++lastId}`;
    await unfenced('a row that is there', () => late.repository(Invoice).insert({ id }));
    const stale = await owners.hold(late, `invoice:${id}`);
    let writing: Promise<string> | undefined;
    const reach = (reached: Point): void => {
      if (reached !== point) return;
      writing = elsewhere(() => stale.run(() => answerTo(laterBy(turns, () => write(late, id)))));
    };
    const unsubscribe = successor.locks.events.subscribe(({ type }) => {
      const told = TOLD_BY[type];
      if (told) reach(told);
    });
    reach('done before he comes');
    await writing;
    reach('just before the key is free');
    const current = await owners.takeOver(stale, successor);
    reach('when he has the lock');
    const read = await row(successor, id);
    reach('after he has read');
    const answer = (await writing) ?? 'never sent';
    const surprised = (await row(successor, id)) !== read;
    unsubscribe();
    await current.release();
    await stale.release();
    return { point, turns, answer, surprised };
  }

  async function playAll(write: Write): Promise<readonly Round[]> {
    const rounds: Round[] = [];
    for (const point of points)
      for (const turns of TURNS_LATER)
        for (let time = 0; time < TIMES; time += 1) rounds.push(await play(point, turns, write));
    return rounds;
  }

  for (const [name, { guarded, unguarded }] of Object.entries(lateWrites)) {
    it(`fenced ${name}: comes before the successor reads, or not at all, in ${ROUNDS} rounds`, async () => {
      const rounds = await playAll(guarded);
      expect(rounds.filter(({ surprised }) => surprised)).toEqual([]);
      expect(rounds.filter(({ point, answer }) => !mayAnswer(point, answer))).toEqual([]);
    });

    it(`positive control: an unguarded ${name} surprises every successor who had read when it was sent`, async () => {
      const rounds = await playAll((owner, id) =>
        unfenced('as if there were no guards', () => unguarded(owner, id)),
      );
      expect(rounds.filter(({ answer }) => answer !== 'written')).toEqual([]);
      const surprisesAt = (asked: Point): Set<boolean> =>
        new Set(rounds.filter(({ point }) => point === asked).map(({ surprised }) => surprised));
      expect(surprisesAt('after he has read')).toEqual(new Set([true]));
      expect(surprisesAt('done before he comes')).toEqual(new Set([false]));
    });
  }
});

function mayAnswer(point: Point, answer: string): boolean {
  if (answer === 'written') return POINTS[point] !== 'refused';
  return answer === 'FENCED_OUT' && POINTS[point] !== 'passes';
}

async function laterBy<T>(turns: number, work: () => Promise<T>): Promise<T> {
  for (let turn = 0; turn < turns; turn += 1) await new Promise(setImmediate);
  return work();
}

function answerTo(write: Promise<unknown>): Promise<string> {
  return write.then(
    () => 'written',
    (error: unknown) => (error as { code?: string }).code ?? String(error),
  );
}
