import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { minifiedApplication } from './minified-application.js';
import { packLibrary, type PackedLibrary } from './packed-library.js';
import { readmeModule } from './readme-code.js';

const NAME = 'nestjs-distributed-lock';
const ENTRY_POINTS = [
  NAME,
  `${NAME}/redis`,
  `${NAME}/etcd`,
  `${NAME}/zookeeper`,
  `${NAME}/consul`,
  `${NAME}/typeorm`,
  `${NAME}/testing`,
];
const COMPILE_AND_PACK_MS = 300_000;
const COMPILE_MS = 120_000;

describe('the published package', () => {
  let library: PackedLibrary;

  beforeAll(() => {
    library = packLibrary();
  }, COMPILE_AND_PACK_MS);

  afterAll(() => library.remove());

  it('holds dist, package.json, README.md and LICENSE, and nothing else', () => {
    const others = library.files.filter((file) => !file.startsWith('dist/'));
    expect(others.sort()).toEqual(['LICENSE', 'README.md', 'package.json']);
    expect(library.files.filter((file) => file.includes('.spec.') || file.endsWith('.tsbuildinfo'))).toEqual(
      [],
    );
  });

  it('holds every file that its export map names', () => {
    const { exports } = JSON.parse(readFileSync(join(library.source, 'package.json'), 'utf8'));
    const named = JSON.stringify(exports).match(/dist\/[^"]+/g) ?? [];
    expect(named.length).toBeGreaterThan(0);
    expect(named.filter((file) => !library.files.includes(file))).toEqual([]);
  });

  it('passes publint without a warning', () => {
    const lint = `
      import { publint } from 'publint';
      const { messages } = await publint({ pkgDir: ${JSON.stringify(library.source)}, strict: true, level: 'warning' });
      console.log(JSON.stringify(messages));
    `;
    expect(JSON.parse(library.project().run(lint).output)).toEqual([]);
  });

  it('C071: is one copy for require() and import() of one process', () => {
    const compare = `
      import { createRequire } from 'node:module';
      const require = createRequire(import.meta.url);
      const different = [];
      for (const name of ${JSON.stringify(ENTRY_POINTS)}) {
        const [required, imported] = [require(name), await import(name)];
        const names = new Set([...Object.keys(required), ...Object.keys(imported)]);
        names.delete('module.exports');
        if (names.size === 0) different.push(name + ' is empty');
        for (const each of names) if (required[each] !== imported[each]) different.push(name + ' ' + each);
      }
      const { LockService, memoryStore } = require('${NAME}');
      const { currentLease } = await import('${NAME}');
      const locks = new LockService({ stores: { default: memoryStore() } });
      const seen = await locks.withLock('invoice:1', {}, async (lease) => currentLease() === lease);
      await locks.close();
      console.log(JSON.stringify({ different, seen }));
    `;
    const { output } = library.project().run(compare);
    expect(output).toBe('{"different":[],"seen":true}\n');
  });

  it('C071: two copies, as older versions of Node load them, share the context and know the errors of each other', () => {
    const compare = `
      import { createRequire } from 'node:module';
      const require = createRequire(import.meta.url);
      const one = require('./node_modules/${NAME}/dist/cjs/index.js');
      const two = await import('./node_modules/${NAME}/dist/esm/index.js');
      const locks = new one.LockService({ stores: { default: one.memoryStore() } });
      const seen = await locks.withLock('invoice:1', {}, async (lease) => two.currentLease() === lease);
      const key = two.lockKey('invoice:<id>');
      const label = await locks.withLock(key({ id: 7 }), {}, async (lease) => lease.key);
      await locks.close();
      const refused = await locks.withLock('invoice:1', {}, async () => 0).catch((error) => error);
      console.log(JSON.stringify({
        twoCopies: one.LockService !== two.LockService,
        seen,
        label,
        code: refused.code,
        known: two.isLockError(refused) && two.hasCode(refused, 'SHUTTING_DOWN'),
      }));
    `;
    const { output } = library.project().run(compare);
    expect(JSON.parse(output)).toEqual({
      twoCopies: true,
      seen: true,
      label: 'invoice:7',
      code: 'SHUTTING_DOWN',
      known: true,
    });
  });

  it('loads its root and its memory store where neither ioredis nor typeorm is installed', () => {
    const project = library.project(['ioredis', 'typeorm', '@nestjs/typeorm']);
    const { output } = project.run(`
      import { createRequire } from 'node:module';
      const { LockService } = createRequire(import.meta.url)('${NAME}');
      const imported = await import('${NAME}');
      console.log(imported.LockService === LockService, typeof imported.memoryStore);
    `);
    expect(output).toBe('true function\n');
  });

  it.each([
    ['redis', 'ioredis'],
    ['typeorm', 'typeorm'],
  ])('says MODULE_NOT_FOUND when ./%s is loaded without %s', (entryPoint, driver) => {
    const project = library.project([driver]);
    const { output } = project.run(`
      import { createRequire } from 'node:module';
      const require = createRequire(import.meta.url);
      try {
        require('${NAME}/${entryPoint}');
      } catch (error) {
        console.log(error.code, error.message.includes('${driver}'));
      }
    `);
    expect(output).toMatch(/^(ERR_)?MODULE_NOT_FOUND true\n$/);
  });

  it.each(['module', 'commonjs'] as const)(
    'has types under which the code of the README compiles, in a project of type %s',
    (type) => {
      expect(library.project().compile(readmeModule(), type)).toBe('');
    },
    COMPILE_MS,
  );

  it('C024: refuses a template that names a parameter in a minified class, and says to use a position or a function', () => {
    const code = minifiedApplication(`'invoice:<invoiceId>'`);
    expect(code).not.toMatch(/settle\(invoiceId\)/);
    const { output, status } = library.project().run(code);
    expect(output).toMatch(/settle.*<invoiceId>.*<0>.*function.*minifier/s);
    expect(output).toContain('LOCK_CONFIG_INVALID');
    expect(output).not.toContain('for 42');
    expect(status).toBe(1);
  });

  it.each([
    ['a position', `'invoice:<0>'`],
    ['a function', `(id: string) => 'invoice:' + id`],
  ])('C024: locks the right key in a minified class by %s', (_, key) => {
    expect(library.project().run(minifiedApplication(key)).output).toBe('invoice:42 for 42\n');
  });
});
