// Nest 12 is ESM only and Jest can require() ESM only from Node 24.9 on: on Node 20 both our TypeScript and
// node_modules/@nestjs are turned into CommonJS by swc.
const typescript = {
  swcrc: false,
  sourceMaps: 'inline',
  module: { type: 'commonjs' },
  jsc: {
    target: 'es2022',
    parser: { syntax: 'typescript', decorators: true },
    transform: { legacyDecorator: true, decoratorMetadata: true, useDefineForClassFields: true },
    keepClassNames: true,
  },
};
const esModules = {
  swcrc: false,
  sourceMaps: false,
  module: { type: 'commonjs' },
  jsc: { target: 'es2022', parser: { syntax: 'ecmascript' } },
};

module.exports = {
  rootDir: __dirname,
  testEnvironment: 'node',
  // Suites start servers and processes of their own, which share the same cores.
  maxWorkers: 2,
  // A process of its own for each file: on Node 20 every AsyncLocalStorage that a file has used stays, and is asked at each
  // promise from then on. After a hundred files promises were thirty times as slow.
  workerIdleMemoryLimit: '1MB',
  reporters: ['default', '<rootDir>/scripts/summary-reporter.mjs'],
  // On a busy machine a server takes seconds to start, and ten thousand rounds on a manual clock take half a minute.
  testTimeout: 90_000,
  testMatch: ['<rootDir>/{libs,apps}/*/src/**/*.spec.ts', '<rootDir>/test/**/*.spec.ts'],
  transform: { '^.+\\.ts$': ['@swc/jest', typescript], '^.+\\.m?js$': ['@swc/jest', esModules] },
  transformIgnorePatterns: ['/node_modules/(?!@nestjs/)'],
  moduleNameMapper: {
    '^nestjs-distributed-lock$': '<rootDir>/libs/distributed-lock/src/index.ts',
    '^nestjs-distributed-lock/(etcd|zookeeper|consul)$':
      '<rootDir>/libs/distributed-lock/src/stores/$1/index.ts',
    '^nestjs-distributed-lock/redis$': '<rootDir>/libs/distributed-lock/src/redis.ts',
    '^nestjs-distributed-lock/(typeorm|testing)$': '<rootDir>/libs/distributed-lock/src/$1/index.ts',
    '^(\\.{1,2}/.*)\\.js$': '$1',
  },
  modulePathIgnorePatterns: ['<rootDir>/dist/', '<rootDir>/libs/[^/]+/dist/'],
};
