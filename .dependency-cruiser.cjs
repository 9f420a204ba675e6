/**
 * Who may import whom. Run by `npm run imports`; test/architecture proves that each rule catches a planted violation.
 *
 * Words: an *adapter* is a folder that connects the core to something else (a store, Nest, TypeORM, a test runner).
 *
 * @type {import('dependency-cruiser').IConfiguration}
 */
const SRC = '^libs/distributed-lock/src';
const ADAPTER = `${SRC}/(stores/[^/]+|nest|typeorm|testing)/`;
const SPEC = '\\.spec\\.ts$';

module.exports = {
  forbidden: [
    {
      name: 'no-cycles',
      comment: 'Type-only cycles count as well: two files that need each other to be read are one file.',
      severity: 'error',
      from: {},
      to: { circular: true },
    },
    {
      name: 'nothing-unresolved',
      severity: 'error',
      from: {},
      to: { couldNotResolve: true },
    },
    {
      name: 'core-stands-alone',
      comment: 'The core knows neither Nest, nor a driver, nor an adapter: node built-ins only.',
      severity: 'error',
      from: { path: `${SRC}/core/`, pathNot: SPEC },
      to: { pathNot: `${SRC}/core/`, dependencyTypesNot: ['core'] },
    },
    {
      name: 'idempotency-stands-on-the-core',
      comment: 'What adapters share: it knows the core, and node built-ins.',
      severity: 'error',
      from: { path: `${SRC}/idempotency/`, pathNot: SPEC },
      to: { pathNot: `${SRC}/(core|idempotency)/`, dependencyTypesNot: ['core'] },
    },
    {
      name: 'redis-server-stands-on-the-core',
      comment: 'How to talk to one Redis server, which several stores share: the core, and the driver.',
      severity: 'error',
      from: { path: `${SRC}/redis-server/`, pathNot: SPEC },
      to: { path: `${SRC}/`, pathNot: `${SRC}/(core|redis-server)/` },
    },
    {
      name: 'core-specs-use-the-memory-store-only',
      severity: 'error',
      from: { path: `${SRC}/(core|idempotency)/.*${SPEC}` },
      to: { path: `${SRC}/`, pathNot: [`${SRC}/$1/`, `${SRC}/(core|stores/memory)/index\\.ts$`] },
    },
    {
      name: 'adapters-do-not-meet',
      comment: 'An application that uses one adapter must not load another.',
      severity: 'error',
      from: { path: ADAPTER, pathNot: [SPEC, `${SRC}/testing/`] },
      to: { path: ADAPTER, pathNot: [`${SRC}/$1/`] },
    },
    {
      name: 'testing-holds-a-nest-module-on-memory',
      severity: 'error',
      from: { path: `${SRC}/testing/`, pathNot: SPEC },
      to: { path: ADAPTER, pathNot: `${SRC}/(testing/|(nest|stores/memory)/index\\.ts$)` },
    },
    {
      name: 'adapter-specs-use-the-memory-store-only',
      severity: 'error',
      from: { path: `${ADAPTER}.*${SPEC}`, pathNot: `${SRC}/testing/` },
      to: { path: ADAPTER, pathNot: [`${SRC}/$1/`, `${SRC}/stores/memory/index\\.ts$`] },
    },
    {
      name: 'through-the-index',
      comment: 'The index of a folder is its contract; what lies behind it may change at any time.',
      severity: 'error',
      from: { path: `${SRC}/(core|idempotency|redis-server|stores/[^/]+|nest|typeorm|testing)/` },
      to: {
        path: `${SRC}/(core|idempotency|redis-server|stores/[^/]+|nest|typeorm|testing)/`,
        pathNot: [
          `${SRC}/$1/`,
          `${SRC}/(core|idempotency|redis-server|stores/[^/]+|nest|typeorm|testing)/index\\.ts$`,
        ],
      },
    },
    {
      name: 'inner-folders-through-their-index',
      severity: 'error',
      from: { path: `(${SRC}/.+/)[^/]+$` },
      to: {
        path: `${SRC}/(core|idempotency|redis-server|stores/[^/]+|nest|typeorm|testing)/[^/]+/`,
        pathNot: ['$1[^/]+$', '/index\\.ts$'],
      },
    },
    {
      name: 'root-through-the-index',
      severity: 'error',
      from: { path: `${SRC}/[^/]+\\.ts$` },
      to: {
        path: `${SRC}/.+/`,
        pathNot: `${SRC}/(core|idempotency|redis-server|stores/[^/]+|nest|typeorm|testing)/index\\.ts$`,
      },
    },
    {
      name: 'root-loads-no-optional-peer',
      comment: 'The main entry point works where neither ioredis nor typeorm is installed.',
      severity: 'error',
      from: { path: `${SRC}/index\\.ts$` },
      to: { path: '(^|/)node_modules/(ioredis|typeorm|@nestjs/typeorm)/', reachable: true },
    },
    {
      name: 'nest-stays-in-its-folder',
      severity: 'error',
      from: { path: `${SRC}/(core|stores)/`, pathNot: SPEC },
      to: { path: '(^|/)node_modules/@nestjs/' },
    },
    {
      name: 'source-does-not-know-tests',
      severity: 'error',
      from: { path: '^(libs|apps)/[^/]+/src/' },
      to: { path: '^(test|bench|scripts)/' },
    },
    {
      name: 'only-specs-know-test-tools',
      severity: 'error',
      from: { path: '^(libs|apps)/[^/]+/src/', pathNot: SPEC },
      to: { path: '^(libs|apps)/[^/]+/test/' },
    },
    {
      name: 'source-does-not-run-tests',
      comment: './testing works with any test runner, and production code with none.',
      severity: 'error',
      from: { path: '^(libs|apps)/[^/]+/src/', pathNot: SPEC },
      to: { path: '(^|/)node_modules/(@jest|jest|@nestjs/testing|supertest|fast-check)(/|$)' },
    },
    {
      name: 'the-library-does-not-know-its-customers',
      severity: 'error',
      from: { path: '^libs/' },
      to: { path: '^apps/' },
    },
    {
      name: 'customers-use-entry-points',
      comment: 'Apps, tests and benchmarks import the library as its users do: by package name.',
      severity: 'error',
      from: { path: '^(apps|test|bench)/' },
      to: {
        path: '^libs/',
        dependencyTypesNot: ['aliased', 'aliased-tsconfig', 'aliased-tsconfig-paths', 'aliased-workspace'],
      },
    },
    {
      name: 'runtime-imports-are-declared',
      comment: 'What ships may not lean on a development dependency.',
      severity: 'error',
      from: { path: '^(libs|apps)/[^/]+/src/', pathNot: SPEC },
      to: { dependencyTypes: ['npm-no-pkg', 'npm-unknown', 'npm-dev'], dependencyTypesNot: ['npm-peer'] },
    },
  ],
  options: {
    tsConfig: { fileName: 'tsconfig.json' },
    tsPreCompilationDeps: true,
    doNotFollow: { path: 'node_modules' },
    exclude: { path: '(^|/)dist/' },
    enhancedResolveOptions: {
      exportsFields: ['exports'],
      conditionNames: ['import', 'require', 'node', 'default'],
      extensions: ['.ts', '.mts', '.js', '.mjs', '.cjs', '.json'],
    },
  },
};
