import { hasCode, type LockService } from 'nestjs-distributed-lock';

const PATIENCE_MS = 30_000;

/** Expects that somebody else has the key. A try without an answer, as on a busy machine, says nothing of that. */
export async function expectTaken(service: LockService, key: string): Promise<void> {
  const giveUpAtMs = performance.now() + PATIENCE_MS;
  for (;;) {
    try {
      return expect(await service.tryAcquire(key)).toBeNull();
    } catch (error) {
      if (!hasCode(error, 'STORE_UNAVAILABLE') || performance.now() > giveUpAtMs) throw error;
    }
  }
}
