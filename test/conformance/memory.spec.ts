import { memoryHarness } from './memory-harness.js';
import { itConforms } from './run-conformance.js';

describe('the memory store', () => {
  const harness = memoryHarness();
  itConforms(() => harness);
});
