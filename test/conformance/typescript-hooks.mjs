// Lets a child process of a test run TypeScript: node --import ./typescript-hooks.mjs child.ts
import { existsSync } from 'node:fs';
import { register } from 'node:module';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { isMainThread } from 'node:worker_threads';

import { transformFile } from '@swc/core';

import jestConfig from '../../jest.config.cjs';

// Node runs the hooks in a thread of their own, from this same file.
if (isMainThread) register(import.meta.url);

/** @type {import('node:module').ResolveHook} */
export function resolve(specifier, context, nextResolve) {
  return nextResolve(
    entryPoint(specifier) ?? sourceBeside(specifier, context.parentURL) ?? specifier,
    context,
  );
}

/** @type {import('node:module').LoadHook} */
export async function load(url, context, nextLoad) {
  if (!url.endsWith('.ts')) return nextLoad(url, context);
  const { code } = await transformFile(fileURLToPath(url), {
    swcrc: false,
    module: { type: 'es6' },
    jsc: {
      target: 'es2022',
      parser: { syntax: 'typescript', decorators: true },
      transform: { legacyDecorator: true, decoratorMetadata: true },
    },
  });
  return { format: 'module', source: code, shortCircuit: true };
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
    const path = specifier.replace(new RegExp(pattern), target);
    return pathToFileURL(path.replace('<rootDir>', String(jestConfig.rootDir))).href;
  }
  return undefined;
}

/**
 * `./x.js` in TypeScript is `./x.ts` on disk.
 *
 * @param {string} specifier
 * @param {string | undefined} importer
 */
function sourceBeside(specifier, importer) {
  if (!specifier.startsWith('.') || !importer?.endsWith('.ts')) return undefined;
  const { href } = new URL(specifier.replace(/\.js$/, '.ts'), importer);
  return existsSync(fileURLToPath(href)) ? href : undefined;
}
