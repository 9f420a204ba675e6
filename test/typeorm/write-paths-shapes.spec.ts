import type { NamingStrategyInterface, ObjectLiteral } from 'typeorm';

import { unfenced } from 'nestjs-distributed-lock/typeorm';

import { describeOnEachDatabase, type TestDatabase } from './databases.js';
import { Owners, type Owner } from './owners.js';
import { load, ways, type Way } from './write-paths-ways.js';
import { prepareShapes, shapeEntities, shapes, ShoutingNames, type Shape } from './write-paths-shapes.js';

/** Rows are made under numbers of their own. */
let lastNumber = 0;

const strategies: Readonly<Record<string, NamingStrategyInterface | undefined>> = {
  "with TypeORM's names": undefined,
  'with a naming strategy': new ShoutingNames(),
};

describeOnEachDatabase('Entities of every shape are written under their lock alone', (start) => {
  for (const [naming, namingStrategy] of Object.entries(strategies)) {
    describe(naming, () => {
      let owners: Owners;
      let owner: Owner;
      let successor: Owner;

      beforeAll(async () => {
        const { connect, ...database } = await start();
        const named: TestDatabase = {
          ...database,
          connect: (options) => connect({ namingStrategy, ...options }),
        };
        owners = await Owners.on(named, shapeEntities as never);
        owner = await owners.add();
        successor = await owners.add();
        await prepareShapes((target, row) => owner.dataSource.manager.save(target, row));
      });
      afterAll(() => owners.stop());

      async function made({ target, row }: Shape): Promise<ObjectLiteral> {
        const rows = owner.dataSource.getRepository(target);
        const saved = await unfenced('a row', () => rows.save(row(++lastNumber)));
        return load(rows, saved);
      }

      for (const shape of shapes) {
        for (const way of ways) {
          if (way.needsGivenId && shape.isGenerated) continue;
          it(`${shape.name}: ${way.name}`, () => walk(shape, way));
        }
      }

      async function walk(shape: Shape, { given, write, needsGivenId: inserts }: Way): Promise<void> {
        const rows = owner.dataSource.getRepository(shape.target);
        const row = await made(shape);
        const another = shape.sharesLock ? 'unheard-of' : shape.key(await made(shape));
        if (given) await unfenced('as the way needs it', () => given(rows, row));
        const { tableName } = rows.metadata;
        const table = () =>
          successor.dataSource.query<unknown[]>(
            `SELECT * FROM ${successor.dataSource.driver.escape(tableName)} ORDER BY 1, 2`,
          );
        const attempt = () => write(rows, { ...row }, shape);
        await (await owners.hold(successor, shape.key(row))).release();
        const refused = /^(?:FENCED_OUT|UNFENCED_WRITE|LOCK_NOT_HELD|LOCK_CONFIG_INVALID)$/;

        const before = await table();
        const expectRefused = async (code: RegExp, by: () => Promise<unknown>): Promise<void> => {
          await expect(by()).rejects.toMatchObject({ code: expect.stringMatching(code) as string });
          expect(await table()).toEqual(before);
        };
        if (!inserts || !shape.isGenerated) await expectRefused(refused, attempt);
        const other = await owners.hold(owner, another);
        await expectRefused(refused, () => other.run(attempt));
        await other.release();
        const stale = await owners.hold(owner, shape.key(row));
        const current = await owners.takeOver(stale, successor);
        await expectRefused(/^FENCED_OUT$/, () => stale.run(attempt));
        await current.release();
        await stale.release();

        const held = await owners.hold(owner, shape.key(row));
        await held.run(attempt);
        expect(await table()).not.toEqual(before);
        await held.release();
      }
    });
  }
});
