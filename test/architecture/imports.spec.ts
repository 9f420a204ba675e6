import { spawnSync } from 'node:child_process';
import {
  appendFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { REPOSITORY } from './repository-files.js';

const SRC = 'libs/distributed-lock/src';

/** A file with one import that must not be there, and the rule that says so. */
interface Plant {
  readonly rule: string;
  readonly file: string;
  readonly code: string;
}

const PLANTS: readonly Plant[] = [
  plant(
    'no-cycles',
    `${SRC}/core/planted-a.ts`,
    `import type { B } from './planted-b.js';\nexport type A = B;`,
  ),
  plant('nothing-unresolved', `${SRC}/core/planted-nowhere.ts`, `import './nowhere.js';`),
  plant('core-stands-alone', `${SRC}/core/planted-nest.ts`, `import '@nestjs/common';`),
  plant(
    'core-stands-alone',
    `${SRC}/core/planted-driver.ts`,
    `import type { Redis } from 'ioredis';\nexport type R = Redis;`,
  ),
  plant('core-stands-alone', `${SRC}/core/planted-adapter.ts`, `import '../stores/memory/index.js';`),
  plant('core-stands-alone', `${SRC}/core/planted-idempotency.ts`, `import '../idempotency/index.js';`),
  plant('idempotency-stands-on-the-core', `${SRC}/idempotency/planted-nest.ts`, `import '@nestjs/common';`),
  plant(
    'idempotency-stands-on-the-core',
    `${SRC}/idempotency/planted-memory.ts`,
    `import '../stores/memory/index.js';`,
  ),
  plant(
    'redis-server-stands-on-the-core',
    `${SRC}/redis-server/planted-idempotency.ts`,
    `import '../idempotency/index.js';`,
  ),
  plant(
    'through-the-index',
    `${SRC}/stores/redis/planted-link.ts`,
    `import '../../redis-server/link-to.js';`,
  ),
  plant('through-the-index', `${SRC}/idempotency/planted-lease.ts`, `import '../core/lease.js';`),
  plant(
    'through-the-index',
    `${SRC}/stores/memory/planted-state.ts`,
    `import '../../idempotency/record-state.js';`,
  ),
  plant('core-specs-use-the-memory-store-only', `${SRC}/core/planted.spec.ts`, `import '../nest/index.js';`),
  plant('adapters-do-not-meet', `${SRC}/nest/planted-redis.ts`, `import '../stores/redis/index.js';`),
  plant('adapters-do-not-meet', `${SRC}/stores/redis/planted-memory.ts`, `import '../memory/index.js';`),
  plant(
    'adapters-do-not-meet',
    `${SRC}/typeorm/planted-nest.ts`,
    `import type { Locked } from '../nest/index.js';\nexport type L = typeof Locked;`,
  ),
  plant('adapters-do-not-meet', `${SRC}/nest/planted-testing.ts`, `import '../testing/index.js';`),
  plant(
    'testing-holds-a-nest-module-on-memory',
    `${SRC}/testing/planted-typeorm.ts`,
    `import '../typeorm/index.js';`,
  ),
  plant(
    'adapter-specs-use-the-memory-store-only',
    `${SRC}/nest/planted.spec.ts`,
    `import '../stores/redis/index.js';`,
  ),
  plant('through-the-index', `${SRC}/nest/planted-lease.ts`, `import '../core/lease.js';`),
  plant(
    'inner-folders-through-their-index',
    `${SRC}/typeorm/planted-table.ts`,
    `import './lease-table/lease-table.js';`,
  ),
  plant('root-through-the-index', `${SRC}/planted-root.ts`, `import './core/lease.js';`),
  plant('nest-stays-in-its-folder', `${SRC}/stores/memory/planted-nest.ts`, `import '@nestjs/common';`),
  plant(
    'source-does-not-know-tests',
    `${SRC}/nest/planted-test.ts`,
    `import '../../../../test/servers/index.js';`,
  ),
  plant('only-specs-know-test-tools', `${SRC}/nest/planted-bench.ts`, `import '../../test/lock-bench.js';`),
  plant('source-does-not-run-tests', `${SRC}/testing/planted-nest.ts`, `import '@nestjs/testing';`),
  plant(
    'the-library-does-not-know-its-customers',
    `${SRC}/nest/planted-app.ts`,
    `import '../../../../apps/demo-billing/src/money/money.js';`,
  ),
  plant(
    'customers-use-entry-points',
    'apps/demo-billing/src/planted.ts',
    `import '../../../libs/distributed-lock/src/index.js';`,
  ),
  plant(
    'customers-use-entry-points',
    'test/planted.ts',
    `import '../libs/distributed-lock/src/core/lease.js';`,
  ),
  plant('runtime-imports-are-declared', `${SRC}/typeorm/planted-pg.ts`, `import 'pg';`),
];

/** Imports that look alike and are allowed. */
const HARMLESS: readonly Pick<Plant, 'file' | 'code'>[] = [
  {
    file: `${SRC}/core/planted-b.ts`,
    code: `export type C = 1;\nexport type { A as B } from './planted-a.js';`,
  },
  { file: `${SRC}/core/harmless.ts`, code: `import 'node:crypto';` },
  {
    file: `${SRC}/core/harmless.spec.ts`,
    code: `import '../stores/memory/index.js';\nimport '../../test/lock-bench.js';`,
  },
  {
    file: `${SRC}/nest/harmless.spec.ts`,
    code: `import '../stores/memory/index.js';\nimport '@nestjs/testing';`,
  },
  {
    file: `${SRC}/testing/harmless.ts`,
    code: `import '../nest/index.js';\nimport '../stores/memory/index.js';`,
  },
  { file: `${SRC}/idempotency/harmless.ts`, code: `import '../core/index.js';\nimport 'node:crypto';` },
  {
    file: `${SRC}/stores/memory/harmless.ts`,
    code: `import '../../core/index.js';\nimport '../../idempotency/index.js';`,
  },
  { file: `${SRC}/typeorm/harmless.ts`, code: `import './lease-table/index.js';\nimport 'typeorm';` },
  { file: 'apps/demo-billing/src/harmless.ts', code: `import 'nestjs-distributed-lock/typeorm';` },
  { file: 'test/harmless.ts', code: `import 'nestjs-distributed-lock/redis';\nimport './servers/index.js';` },
];

function plant(rule: string, file: string, code: string): Plant {
  return { rule, file, code };
}

interface Violation {
  readonly from: string;
  readonly rule: { readonly name: string };
}

/** Copies what is checked, so that nothing is ever planted in the repository itself. */
function copyRepository(): string {
  const copy = realpathSync(mkdtempSync(join(tmpdir(), 'lock-imports-')));
  const inputs = [
    'libs',
    'apps',
    'test',
    'bench',
    'scripts',
    'package.json',
    'tsconfig.json',
    '.dependency-cruiser.cjs',
  ];
  for (const input of inputs) {
    const filter = (path: string): boolean => !/\/(dist|node_modules)$/.test(path);
    cpSync(join(REPOSITORY, input), join(copy, input), { recursive: true, filter });
  }
  symlinkSync(join(REPOSITORY, 'node_modules'), join(copy, 'node_modules'));
  return copy;
}

function violationsIn(folder: string): Violation[] {
  const cruiser = join(REPOSITORY, 'node_modules/.bin/depcruise');
  const args = [
    '--config',
    '.dependency-cruiser.cjs',
    '--output-type',
    'json',
    'libs',
    'apps',
    'test',
    'bench',
  ];
  const { stdout, stderr } = spawnSync(cruiser, args, { cwd: folder, encoding: 'utf8', maxBuffer: 2 ** 28 });
  if (!stdout.startsWith('{')) throw new Error(stderr);
  return JSON.parse(stdout).summary.violations;
}

describe('the import rules', () => {
  let copy: string;
  let violations: Violation[];

  beforeAll(() => {
    copy = copyRepository();
    for (const { file, code } of [...PLANTS, ...HARMLESS]) {
      mkdirSync(dirname(join(copy, file)), { recursive: true });
      writeFileSync(join(copy, file), `${code}\n`);
    }
    appendFileSync(join(copy, SRC, 'index.ts'), `export { redisStore } from './stores/redis/index.js';\n`);
    violations = violationsIn(copy);
  }, 120_000);

  afterAll(() => rmSync(copy, { recursive: true, force: true }));

  it.each(PLANTS)('$rule: catches $file', ({ rule, file }) => {
    const broken = violations
      .filter((violation) => violation.from === file)
      .map((violation) => violation.rule.name);
    expect(broken).toContain(rule);
  });

  it('root-loads-no-optional-peer: catches a driver behind the main entry point', () => {
    const broken = violations.filter(({ from }) => from === `${SRC}/index.ts`).map(({ rule }) => rule.name);
    expect(broken).toContain('root-loads-no-optional-peer');
  });

  it.each(HARMLESS.slice(1))('leave $file alone', ({ file }) => {
    expect(violations.filter(({ from }) => from === file)).toEqual([]);
  });

  it('are all errors, and each has a violation here that it catches', () => {
    const load = createRequire(join(REPOSITORY, 'package.json'));
    const { forbidden } = load('./.dependency-cruiser.cjs') as {
      forbidden: { name: string; severity: string }[];
    };
    expect(forbidden.filter(({ severity }) => severity !== 'error')).toEqual([]);
    const planted = new Set([...PLANTS.map(({ rule }) => rule), 'root-loads-no-optional-peer']);
    expect(forbidden.map(({ name }) => name).filter((name) => !planted.has(name))).toEqual([]);
  });
});
