import { readFileSync } from 'node:fs';
import { PUBLIC_API, publicApi } from '../../scripts/public-api.mjs';

describe('the entry points', () => {
  it('export the names of docs/public-api.txt and no others (write it with: node scripts/public-api.mjs --write)', () => {
    expect(publicApi()).toBe(readFileSync(PUBLIC_API, 'utf8'));
  }, 120_000);
});
