import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { lockStoreConformance } from 'nestjs-distributed-lock/testing';
import { pathsBelow, REPOSITORY } from './repository-files.js';

const documents = [
  'README.md',
  ...readdirSync(join(REPOSITORY, 'apps')).map((app) => `apps/${app}/README.md`),
  ...pathsBelow('docs').filter((path) => path.endsWith('.md')),
].filter((path) => existsSync(join(REPOSITORY, path)));

describe.each(documents)('%s', (path) => {
  const text = readFileSync(join(REPOSITORY, path), 'utf8');

  it('has no link that leads nowhere', () => {
    const targets = [...text.matchAll(/\]\(([^)#\s]+)/g)].map(([, target]) => target as string);
    const here = targets.filter((target) => !/^[a-z]+:/.test(target));
    expect(here.filter((target) => !existsSync(join(REPOSITORY, dirname(path), target)))).toEqual([]);
  });

  it('names no test that is not there', () => {
    const named = [
      ...text.matchAll(/`((?:test|bench|libs|apps|docs|scripts)\/[^`*<\s]+|[\w-]+\.spec\.ts)`/g),
    ];
    const known = ['test', 'bench', 'libs', 'apps', 'docs', 'scripts'].flatMap((top) => pathsBelow(top));
    const missing = named
      .map(([, name]) => name as string)
      .filter(
        (name) => !existsSync(join(REPOSITORY, name)) && !known.some((file) => file.endsWith(`/${name}`)),
      );
    expect(missing).toEqual([]);
  });
});

describe('the table of guarantees', () => {
  const text = readFileSync(join(REPOSITORY, 'docs/guarantees.md'), 'utf8');
  const promised = [...text.matchAll(/\bcase _([^_]+)_/g)].map(([, name]) => name as string);

  it('names cases of the conformance suite, and all of them exist', () => {
    expect(promised.length).toBeGreaterThan(0);
    const names = lockStoreConformance.map(({ name }) => name);
    expect(promised.filter((beginning) => !names.some((name) => name.startsWith(beginning)))).toEqual([]);
  });
});
