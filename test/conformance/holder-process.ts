import { LockService } from 'nestjs-distributed-lock';

import { storeAt, type StorePlace } from './store-at.js';

/** What a process that holds a lock and stops itself is told, as JSON in its first argument. */
export interface HolderOrder extends StorePlace {
  readonly key: string;
  readonly ttlMs: number;
}

/** What it found when it went on, before it called anybody. */
export interface HolderAnswer {
  readonly token: number;
  /** Code of the error that the first read of the context met; undefined when there was none. */
  readonly firstRead: string | undefined;
  /** Of the whole section under the lock. */
  readonly section: string | undefined;
}

async function hold({ key, ttlMs, ...place }: HolderOrder): Promise<HolderAnswer> {
  const service = new LockService({ stores: { default: storeAt(place) } });
  await service.open();
  let token = 0;
  let firstRead: string | undefined;
  const work = service.withLock(key, { ttlMs }, (lease) => {
    token = lease.token;
    process.kill(process.pid, 'SIGSTOP');
    firstRead = codeOf(() => lease.assertHeld());
  });
  const section = await work.then(
    () => undefined,
    (error: { code?: string }) => error.code,
  );
  await service.close(0);
  return { token, firstRead, section };
}

function codeOf(work: () => void): string | undefined {
  try {
    work();
    return undefined;
  } catch (error) {
    return (error as { code?: string }).code;
  }
}

const answer = await hold(JSON.parse(process.argv[2] ?? '') as HolderOrder);
process.stdout.write(JSON.stringify(answer));
