import { unfenced } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase } from './databases.js';
import { Invoice } from './invoices.js';
import { contents, empty, Owners, seed, type Owner } from './owners.js';
import { answersOf, writePaths, type WritePath } from './write-paths.js';

type Contents = Awaited<ReturnType<typeof contents>>;

describeOnEachDatabase('Every way in which TypeORM writes', (start) => {
  let owners: Owners;
  let first: Owner;
  let second: Owner;
  let lastId = 0;

  beforeAll(async () => {
    owners = await Owners.on(await start());
    first = await owners.add();
    second = await owners.add();
  });
  afterAll(() => owners.stop());

  /** A row and a key of its own for each test. */
  async function prepared({ given }: WritePath): Promise<string> {
    const id = `${++lastId}`;
    await empty(first);
    await seed(first, 'other', id);
    if (given) await unfenced('the row as the path needs it', () => given(first, id));
    return id;
  }

  async function expectRefused(before: Contents, code: string, write: () => Promise<unknown>): Promise<void> {
    await expect(write()).rejects.toMatchObject({ code });
    expect(await contents(second)).toEqual(before);
  }

  async function expectPasses(before: Contents, write: () => Promise<unknown>): Promise<void> {
    await write();
    expect(await contents(second)).not.toEqual(before);
  }

  for (const path of writePaths) {
    const { name, is, write, writeWith, inserts } = path;
    const { staleToken, tokenOfAnotherKey } = answersOf(path);
    const sentence = {
      guarded: 'passes with the current token, and with no other',
      refused: 'is refused whatever token there is',
    }[is];

    it(`${name}: ${sentence} (C140)`, async () => {
      const id = await prepared(path);
      const other = await owners.hold(first, `invoice:another-than-${id}`);
      const stale = await owners.hold(first, `invoice:${id}`);
      const current = await owners.takeOver(stale, second);
      let rows = await contents(second);
      await expectRefused(rows, 'UNFENCED_WRITE', () => write(first, id));
      await expectRefused(rows, tokenOfAnotherKey, () => other.run(() => write(first, id)));
      await expectRefused(rows, staleToken, () => stale.run(() => write(first, id)));
      if (inserts !== 'invoice') {
        await current.run(() => second.repository(Invoice).update({ id }, { paid: 99 }));
        rows = await contents(second);
        await expectRefused(rows, staleToken, () => stale.run(() => write(first, id)));
      }
      const last = () => current.run(() => write(second, id));
      if (is === 'refused') await expectRefused(rows, 'UNFENCED_WRITE', last);
      else await expectPasses(rows, last);
      if (inserts === 'invoice') await expectRefusedAsTaken(() => stale.run(() => write(first, id)));
      for (const lease of [other, stale, current]) await lease.release();
    });

    it(`${name}: passes under unfenced()${inserts ? ', and without a lock while its key was never locked' : ''}`, async () => {
      const id = await prepared(path);
      await expectPasses(await contents(second), () => unfenced('a repair', () => write(first, id)));
      if (!inserts) return;
      const never = await prepared(path);
      await expectPasses(await contents(second), () => write(first, never));
    });

    if (!writeWith) continue;

    it(`${name}: passes with the current token handed over, and not with an older or a later one`, async () => {
      const id = await prepared(path);
      const stale = await owners.hold(first, `invoice:${id}`);
      const current = await owners.takeOver(stale, second);
      const rows = await contents(second);
      await expectRefused(rows, 'FENCED_OUT', () => writeWith(first, id, stale.token));
      await expectRefused(rows, 'FENCED_OUT', () => writeWith(first, id, current.token + 1));
      await expectPasses(rows, () => writeWith(first, id, current.token));
      await current.release();
    });
  }

  /**
   * Which of two constraints a database looks at first is its own affair; and to save() it may be an update by now, or no
   * change at all.
   */
  async function expectRefusedAsTaken(write: () => Promise<unknown>): Promise<void> {
    const before = await contents(second);
    await expect(write()).rejects.toThrow(
      /refused a write|UNIQUE|unique|[Dd]uplicate|cannot be guarded|has a newer owner/,
    );
    expect(await contents(second)).toEqual(before);
  }
});
