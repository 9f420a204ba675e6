// Brings a clone to the point where it can run: dependencies installed, library and demo built. Does nothing when they are.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

export const REPOSITORY = dirname(import.meta.dirname ?? '');
const CACHE = join(REPOSITORY, '.cache');
const OLDEST_NODE = [20, 19];

/** @typedef {(line: string) => void} Say */

/** Chatter goes to standard error: standard output belongs to the program that is run. @type {Say} */
export const say = (line) => void process.stderr.write(`${line}\n`);

export function requireNode() {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  if (major > 20 || (major === OLDEST_NODE[0] && minor >= (OLDEST_NODE[1] ?? 0))) return;
  say(`This needs Node ${OLDEST_NODE.join('.')} or later, and this is ${process.versions.node}.`);
  process.exit(1);
}

/** `npm ci`, unless node_modules holds what package-lock.json asks for. */
export function installDependencies() {
  if (dependenciesInstalled()) return;
  alone('install', () => {
    if (dependenciesInstalled()) return;
    say('Installing dependencies with npm ci (once, about half a minute)');
    npm(['ci', '--include=dev', '--no-audit', '--no-fund', '--loglevel=error']);
  });
}

/** Compiles the library and the demo, unless nothing has changed since they were compiled last. */
export function buildDemo() {
  const library = ['libs/distributed-lock', 'package-lock.json', 'tsconfig.json'];
  const demo = ['apps/demo-billing', 'nest-cli.json', ...library];
  alone('build', () => {
    build('library', library, 'libs/distributed-lock/dist/esm/index.js', 'build:lib');
    build('demo', demo, 'dist/apps/demo-billing/main.js', 'build:demo');
  });
}

/**
 * @param {string} name
 * @param {readonly string[]} sources
 * @param {string} product one file of the result
 * @param {string} script
 */
function build(name, sources, product, script) {
  const stamp = join(CACHE, `built-${name}`);
  const fingerprint = fingerprintOf(sources);
  if (existsSync(join(REPOSITORY, product)) && readIfThere(stamp) === fingerprint) return;
  say(`Building the ${name}`);
  npm(['run', '--silent', script]);
  writeFileSync(stamp, fingerprint);
}

/**
 * Compares what is installed with what the lock asks for, rather than dates: a checkout renews those. Optional packages
 * may be missing: they are for other systems.
 */
function dependenciesInstalled() {
  const wanted = packagesIn(join(REPOSITORY, 'package-lock.json'));
  const installed = packagesIn(join(REPOSITORY, 'node_modules', '.package-lock.json'));
  return Object.entries(wanted)
    .filter(([path]) => path.startsWith('node_modules/'))
    .every(([path, { version, optional, devOptional }]) =>
      path in installed ? installed[path]?.version === version : (optional ?? devOptional),
    );
}

/**
 * @typedef {{ version?: string, optional?: boolean, devOptional?: boolean }} LockedPackage
 * @param {string} lockFile
 * @returns {Record<string, LockedPackage>}
 */
function packagesIn(lockFile) {
  const text = readIfThere(lockFile) || '{ "packages": {} }';
  const lock = /** @type {{ packages: Record<string, LockedPackage> }} */ (JSON.parse(text));
  return lock.packages;
}

/** @param {readonly string[]} paths */
function fingerprintOf(paths) {
  const hash = createHash('sha256');
  for (const file of paths.flatMap((path) => filesIn(path))) {
    hash
      .update(`${file}\0`)
      .update(readFileSync(join(REPOSITORY, file)))
      .update('\0');
  }
  return hash.digest('hex');
}

/**
 * @param {string} path
 * @returns {string[]} source files, sorted
 */
function filesIn(path) {
  if (!statSync(join(REPOSITORY, path)).isDirectory()) return [path];
  return readdirSync(join(REPOSITORY, path))
    .filter((name) => name !== 'dist' && name !== 'node_modules' && !name.endsWith('.spec.ts'))
    .sort()
    .flatMap((name) => filesIn(join(path, name)));
}

/** @param {string} file */
const readIfThere = (file) => (existsSync(file) ? readFileSync(file, 'utf8') : '');

/**
 * Runs `work` while no other process of this clone does the same: two demos that are started together build once.
 *
 * @param {string} name
 * @param {() => void} work
 */
function alone(name, work) {
  mkdirSync(CACHE, { recursive: true });
  const lock = join(CACHE, `${name}.lock`);
  while (!taken(lock)) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100);
  process.once('exit', () => rmSync(lock, { force: true }));
  try {
    work();
  } finally {
    rmSync(lock, { force: true });
  }
}

/** @param {string} lock */
function taken(lock) {
  try {
    writeFileSync(lock, String(process.pid), { flag: 'wx' });
    return true;
  } catch (error) {
    if (/** @type {NodeJS.ErrnoException} */ (error).code !== 'EEXIST') throw error;
    if (!isAlive(Number(readIfThere(lock)))) rmSync(lock, { force: true });
    return false;
  }
}

/** @param {number} pid 0 while its owner is still writing it */
function isAlive(pid) {
  if (pid === 0) return true;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return /** @type {NodeJS.ErrnoException} */ (error).code === 'EPERM';
  }
}

/**
 * The npm that runs us, or the one on PATH; its output is chatter, too.
 *
 * @param {readonly string[]} args
 */
function npm(args) {
  const script = process.env['npm_execpath'];
  const [program, first] = script?.endsWith('.js') ? [process.execPath, [script]] : ['npm', []];
  const ended = spawnSync(program, [...first, ...args], { cwd: REPOSITORY, stdio: ['ignore', 2, 2] });
  if (ended.error) throw ended.error;
  if (ended.status === 0) return;
  say(`npm ${args.join(' ')} failed.`);
  process.exit(ended.status ?? 1);
}
