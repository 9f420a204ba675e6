import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { writePathsDocument } from './write-paths-document.js';
import { writePaths } from './write-paths.js';

const DOCUMENT = join(__dirname, '../../docs/write-paths.md');

describe('docs/write-paths.md', () => {
  it('says of each way to write what the tests have seen; else run UPDATE_DOCS=1 npx jest write-paths-document', () => {
    const document = writePathsDocument();
    if (process.env['UPDATE_DOCS'] === '1') writeFileSync(DOCUMENT, document);
    expect(readFileSync(DOCUMENT, 'utf8')).toBe(document);
  });

  it('names each way once', () => {
    const names = writePaths.map(({ group, name }) => `${group}: ${name}`);
    expect(new Set(names).size).toBe(names.length);
  });
});
