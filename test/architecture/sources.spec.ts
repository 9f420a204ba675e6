import { readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { folderNames, REPOSITORY, shippedSources } from './repository-files.js';

const LONGEST_FILE_LINES = 250;
const CLOCK = 'libs/distributed-lock/src/core/clock.ts';

describe('the sources that ship', () => {
  const sources = shippedSources();

  function pathsWith(pattern: RegExp): string[] {
    return sources.filter(({ code }) => pattern.test(code)).map(({ path }) => path);
  }

  it('are there', () => {
    expect(sources.map(({ path }) => path)).toContain(CLOCK);
    expect(sources.some(({ path }) => path.startsWith('apps/'))).toBe(true);
  });

  it('are files of one idea each, none over 250 lines', () => {
    const lines = sources.map(({ path, text }) => ({ path, lines: text.trimEnd().split('\n').length }));
    expect(lines.filter((file) => file.lines > LONGEST_FILE_LINES)).toEqual([]);
  });

  it('never write to the console: a library logs through its host, a program to its streams', () => {
    expect(pathsWith(/\bconsole\./)).toEqual([]);
  });

  it('read the wall clock in one place only, so that tests can move it', () => {
    expect(pathsWith(/\bDate\.now\(\)/)).toEqual([CLOCK]);
    expect(pathsWith(/\bnew Date\(\)/).filter((path) => path.startsWith('libs/'))).toEqual([]);
  });

  it('never use setInterval, whose runs overlap when the work takes longer', () => {
    expect(pathsWith(/\bsetInterval\b/)).toEqual([]);
  });

  it('never put a lease into the context of a caller, as enterWith would', () => {
    expect(pathsWith(/\benterWith\(/).filter((path) => /src\/(core|nest)\//.test(path))).toEqual([]);
  });

  it('have no default export and no wildcard export', () => {
    expect(pathsWith(/^export default\b|^export \*/m)).toEqual([]);
  });
});

describe('the repository', () => {
  it('has no folder where names go to die', () => {
    expect(
      folderNames().filter((name) => /^(utils?|common|helpers?|shared|interfaces|misc)$/.test(name)),
    ).toEqual([]);
    const shipped = shippedSources().map(({ path }) => path.split('/').slice(0, -1));
    expect(shipped.flat().filter((name) => name === 'types')).toEqual([]);
  });

  it('locks dependencies by version and hash, without the address that they came from', () => {
    const lock = JSON.parse(readFileSync(join(REPOSITORY, 'package-lock.json'), 'utf8'));
    const addresses = Object.values<{ resolved?: string }>(lock.packages).flatMap(
      ({ resolved }) => resolved ?? [],
    );
    expect(addresses.map((path) => basename(path)).sort()).toEqual(['demo-billing', 'distributed-lock']);
    expect(addresses.filter((path) => path.includes(':'))).toEqual([]);
  });
});
