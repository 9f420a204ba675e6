// The package is "type": "module"; without this file Node would read dist/cjs as ESM and fail.
import { writeFileSync } from 'node:fs';

writeFileSync(new URL('../dist/cjs/package.json', import.meta.url), '{ "type": "commonjs" }\n');
