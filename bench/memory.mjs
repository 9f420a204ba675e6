// What a lock costs when the store costs nothing.
import { LockService, memoryStore } from 'nestjs-distributed-lock';

import { compare, report } from './measure.mjs';

const locks = new LockService({ stores: { default: memoryStore() } });
const work = async () => undefined;

const rates = await compare({
  'the plain call': () => work(),
  'withLock on the memory store': () => locks.withLock('bench', work),
});
report('Memory store, one caller, idle key', rates, 'the plain call');
const [plain, locked] = Object.values(rates);
console.log(`\nA lock adds ${(1e6 / locked - 1e6 / plain).toFixed(2)} µs`);
await locks.close();
