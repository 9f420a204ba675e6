import { join } from 'node:path';

import { LockService } from 'nestjs-distributed-lock';
import { typeormStore } from 'nestjs-distributed-lock/typeorm';
import type { DataSource, DataSourceOptions } from 'typeorm';

import { startStopping, type StoppingProcess } from '../servers/index.js';
import { describeOnEachDatabase, type TestDatabase } from '../typeorm/databases.js';
import {
  createTables,
  guarded,
  Ledger,
  locksOf,
  putInvoice,
  rowOf,
  startService,
  type Answer,
  type Service,
} from './services.js';
import type { StoppedCallerOrder } from './stopped-caller-process.js';

const TTL_MS = 1_500;
const LIMIT_MS = 90_000;
const SCRIPT = join(__dirname, 'stopped-caller-process.ts');

describeOnEachDatabase(
  'A process of service A that is stopped past its lease, and then calls service B',
  (start) => {
    let database: TestDatabase;
    let rows: DataSource;
    let ledger: Service;

    beforeAll(async () => {
      database = await start();
      rows = await createTables(database);
      const leases = await database.connect();
      ledger = await startService({
        imports: [locksOf(typeormStore({ dataSource: leases })), ...(await guarded(database))],
        controllers: [Ledger],
      });
      await leases.destroy();
      await putInvoice(rows, '42');
    }, LIMIT_MS);
    afterAll(async () => {
      await ledger.stop();
      await rows.destroy();
      await database.stop();
    });

    it(
      'is refused with 409 and changes nothing, although its successor has not written yet; unchecked, it writes',
      async () => {
        const {
          type,
          url,
          database: file,
        } = rows.options as { type: string; url?: string; database?: string };
        const source = { type, url, database: file, enableWAL: true } as DataSourceOptions;
        const at = (route: string): string => `${ledger.url}/ledger/42/${route}`;
        const urls = [at('settle'), at('settle-slowly'), at('settle-strictly')];
        const caller = startCaller({ source, ttlMs: TTL_MS, key: 'invoice:42', urls });
        const control = startCaller({
          source,
          ttlMs: TTL_MS,
          key: 'other',
          urls: [at('settle-unchecked')],
        });
        try {
          await Promise.all([caller.stopped(), control.stopped()]);
          const successor = await ledger.app
            .get(LockService)
            .acquire('invoice:42', { ttlMs: LIMIT_MS, waitMs: LIMIT_MS });
          const answers = await caller.answer();
          expect(answers.map(({ status }) => status)).toEqual([409, 409, 503]); // the last route has not opted in
          expect(answers.map(({ body }) => body['code'])).toEqual(Array(3).fill('FENCED_OUT'));
          expect(answers.map(({ body }) => body['outcome'])).toEqual([
            'not-started',
            'not-started',
            'unknown',
          ]);
          expect(await rowOf(rows, '42')).toEqual({ status: 'READY', token: 0 });
          expect(await control.answer()).toMatchObject([{ status: 201 }]);
          expect((await rowOf(rows, '42')).status).toBe('settled by the stopped caller');
          await successor.release();
        } finally {
          for (const process of [caller, control]) process.kill();
        }
      },
      LIMIT_MS,
    );
  },
);

function startCaller(order: StoppedCallerOrder): StoppingProcess<Answer[]> {
  return startStopping(SCRIPT, order);
}
