import { memoryIdempotencyStore } from 'nestjs-distributed-lock';

import { itKeepsTheContract } from './contract/index.js';

describe('the idempotency store in memory', () => {
  const store = memoryIdempotencyStore();
  itKeepsTheContract(() => ({ connect: () => Promise.resolve(store), purgesItself: false }));
});
