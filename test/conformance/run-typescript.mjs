// Runs TypeScript in a child process of a test: node run-typescript.mjs child.ts [argument…]
//
// What it imports is compiled first, into a folder that all such processes and later runs share. Hooks for Node's own loader
// would do with less, and take twice the time: they hand every file of every package from thread to thread.
import { createHash } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

import jestConfig from '../../jest.config.cjs';

const ROOT = String(jestConfig.rootDir);
/** @type {import('@swc/core').Options} */
const OPTIONS = {
  swcrc: false,
  module: { type: 'es6' },
  jsc: {
    target: 'es2022',
    parser: { syntax: 'typescript', decorators: true },
    transform: { legacyDecorator: true, decoratorMetadata: true },
  },
};
const IMPORTED = /(\b(?:from|import)\s*\(?\s*)(["'])((?:\.{1,2}\/|nestjs-distributed-lock)[^"']*)\2/g;
/** Inside of `node_modules`, so that packages are found. */
const FOLDER = join(
  ROOT,
  'node_modules',
  '.cache',
  `typescript-${digestOf([ROOT, OPTIONS, IMPORTED.source])}`,
);

/**
 * Gives the place of the compiled file, when all that it imports is compiled as well.
 *
 * @param {string} entry
 */
async function compileAll(entry) {
  const sources = new Set([entry]);
  for (const source of sources) for (const each of sourcesIn(await codeOf(source))) sources.add(each);
  return placeOf(entry);
}

/** @param {string} source */
async function codeOf(source) {
  const place = placeOf(source);
  const { mtimeMs, mtime } = statSync(source);
  const known = statSync(place, { throwIfNoEntry: false });
  if (known && Math.abs(known.mtimeMs - mtimeMs) < 1) return readFileSync(place, 'utf8');
  const { transformFile } = await import('@swc/core');
  const code = withPlaces((await transformFile(source, OPTIONS)).code, source);
  mkdirSync(dirname(place), { recursive: true });
  const draft = `${place}.${process.pid}`;
  writeFileSync(draft, code);
  utimesSync(draft, mtime, mtime);
  renameSync(draft, place); // whole or not at all: other processes read it at any time
  return code;
}

/**
 * Imports of our own sources become imports of what is compiled.
 *
 * @param {string} code
 * @param {string} importer
 */
function withPlaces(code, importer) {
  return code.replace(IMPORTED, (all, before, quote, specifier) => {
    const source = sourceOf(specifier, importer);
    if (source === undefined) return all;
    const place = source.endsWith('.ts') ? placeOf(source) : source;
    return `${before}${quote}${pathToFileURL(place).href}${quote}`;
  });
}

/** @param {string} code */
function sourcesIn(code) {
  const folder = pathToFileURL(FOLDER).href;
  const places = [...code.matchAll(/["'](file:[^"']*)["']/g)].map(([, href = '']) => href);
  return places
    .filter((href) => href.startsWith(folder))
    .map((href) => join(ROOT, href.slice(folder.length).replace(/\.mjs$/, '.ts')));
}

/**
 * @param {string} specifier
 * @param {string} importer
 */
function sourceOf(specifier, importer) {
  const path = entryPoint(specifier) ?? resolve(dirname(importer), specifier);
  return [path.replace(/\.js$/, '.ts'), path].find((each) => existsSync(each));
}

/**
 * The source of an entry point of the library, as Jest finds it.
 *
 * @param {string} specifier
 */
function entryPoint(specifier) {
  for (const [pattern, target] of Object.entries(jestConfig.moduleNameMapper ?? {})) {
    if (typeof target !== 'string' || !target.startsWith('<rootDir>') || !new RegExp(pattern).test(specifier))
      continue;
    return specifier.replace(new RegExp(pattern), target).replace('<rootDir>', ROOT);
  }
  return undefined;
}

/** @param {string} source */
function placeOf(source) {
  return join(FOLDER, relative(ROOT, source).replace(/\.ts$/, '.mjs'));
}

/** @param {unknown} settings */
function digestOf(settings) {
  return createHash('sha256').update(JSON.stringify(settings)).digest('hex').slice(0, 16);
}

const [script = ''] = process.argv.splice(2, 1);
await import(pathToFileURL(await compileAll(resolve(script))).href);
