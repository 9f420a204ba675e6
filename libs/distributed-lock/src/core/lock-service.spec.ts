import { memoryStore } from '../stores/memory/index.js';
import { currentLease, LockService } from './index.js';

describe('LockService', () => {
  it('lets 1 000 parallel calls in one at a time, answers all and leaves nothing behind', async () => {
    const locks = new LockService({ stores: { default: memoryStore() } });
    let inside = 0;
    let most = 0;
    let count = 0;
    const call = async (): Promise<number> =>
      locks.withLock('invoice:1', { waitMs: 60_000 }, async (lease) => {
        most = Math.max(most, ++inside);
        const read = count;
        await new Promise((resolve) => setImmediate(resolve));
        count = read + 1;
        inside -= 1;
        expect(currentLease()).toBe(lease);
        return lease.token;
      });
    const tokens = await Promise.all(Array.from({ length: 1_000 }, call));
    expect(most).toBe(1);
    expect(count).toBe(1_000);
    expect([...tokens].sort((a, b) => a - b)).toEqual(tokens);
    expect(new Set(tokens).size).toBe(1_000);
    expect(locks.busy).toBe(false);
    await locks.close();
  });
});
