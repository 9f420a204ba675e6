import { unfenced } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase } from './databases.js';
import { Invoice } from './invoices.js';
import { contents, empty, Owners, seed, type Owner } from './owners.js';
import { writePaths, type WritePath } from './write-paths.js';

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

  async function expectRefused(code: string, write: () => Promise<unknown>): Promise<void> {
    const before = await contents(second);
    await expect(write()).rejects.toMatchObject({ code });
    expect(await contents(second)).toEqual(before);
  }

  for (const path of writePaths) {
    const { name, is, write, writeWith, inserts } = path;
    const whatever = is === 'guarded' ? 'FENCED_OUT' : 'UNFENCED_WRITE';

    it(`${name}: ${inserts ? 'passes without a lock as long as its key was never locked' : 'is refused without a token (C140)'}`, async () => {
      const id = await prepared(path);
      if (!inserts) return expectRefused('UNFENCED_WRITE', () => write(first, id));
      const before = await contents(second);
      await write(first, id);
      expect(await contents(second)).not.toEqual(before);
    });

    it(`${name}: ${is === 'guarded' ? 'passes' : 'is refused'} under its lock`, async () => {
      const id = await prepared(path);
      const lease = await owners.hold(first, `invoice:${id}`);
      if (is === 'refused') return expectRefused('UNFENCED_WRITE', () => lease.run(() => write(first, id)));
      const before = await contents(second);
      await lease.run(() => write(first, id));
      expect(await contents(second)).not.toEqual(before);
      await lease.release();
    });

    it(`${name}: is refused when a successor has the lock and has not written yet`, async () => {
      const id = await prepared(path);
      const stale = await owners.hold(first, `invoice:${id}`);
      const current = await owners.takeOver(stale, second);
      await expectRefused(whatever, () => stale.run(() => write(first, id)));
      await current.release();
    });

    it(`${name}: is refused when a successor has written`, async () => {
      const id = await prepared(path);
      const stale = await owners.hold(first, `invoice:${id}`);
      const current = await owners.takeOver(stale, second);
      await current.run(async () => {
        if (inserts === 'invoice') await second.repository(Invoice).insert({ id, paid: 99 });
        else await second.repository(Invoice).update({ id }, { paid: 99 });
      });
      if (inserts === 'invoice') await expectRefusedAsTaken(() => stale.run(() => write(first, id)));
      else await expectRefused(whatever, () => stale.run(() => write(first, id)));
      await current.release();
    });

    it(`${name}: is refused under the lock of another row`, async () => {
      const id = await prepared(path);
      const lease = await owners.hold(first, `invoice:another-than-${id}`);
      if (inserts) await (await owners.hold(second, `invoice:${id}`)).release();
      const before = await contents(second);
      await expect(lease.run(() => write(first, id))).rejects.toMatchObject({
        code: expect.stringMatching(/^(?:FENCED_OUT|UNFENCED_WRITE)$/) as string,
      });
      expect(await contents(second)).toEqual(before);
      await lease.release();
    });

    it(`${name}: passes under unfenced()`, async () => {
      const id = await prepared(path);
      const before = await contents(second);
      await unfenced('a repair', () => write(first, id));
      expect(await contents(second)).not.toEqual(before);
    });

    if (!writeWith) continue;

    it(`${name}: passes with the current token handed over, and not with an older or a later one`, async () => {
      const id = await prepared(path);
      const stale = await owners.hold(first, `invoice:${id}`);
      const current = await owners.takeOver(stale, second);
      await expectRefused('FENCED_OUT', () => writeWith(first, id, stale.token));
      await expectRefused('FENCED_OUT', () => writeWith(first, id, current.token + 1));
      const before = await contents(second);
      await writeWith(first, id, current.token);
      expect(await contents(second)).not.toEqual(before);
      await current.release();
    });
  }

  /** Which of the two constraints a database looks at first is its own affair. */
  async function expectRefusedAsTaken(write: () => Promise<unknown>): Promise<void> {
    const before = await contents(second);
    await expect(write()).rejects.toThrow(/refused a write|UNIQUE|unique|cannot be guarded/);
    expect(await contents(second)).toEqual(before);
  }
});
