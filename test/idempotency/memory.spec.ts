import { memoryIdempotencyStore } from 'nestjs-distributed-lock';

import { itConforms } from './run-conformance.js';

describe('the idempotency store in memory', () => {
  const store = memoryIdempotencyStore();
  itConforms(() => ({ connect: () => Promise.resolve(store), purgesItself: false }));
});
