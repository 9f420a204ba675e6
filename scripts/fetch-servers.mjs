// Fetches the servers that the tests need and the machine lacks, on Debian and its descendants, into a private folder:
// packages are downloaded and unpacked, nothing is installed, and neither apt's nor dpkg's state is touched.
import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import {
  adviceFor,
  isComplete,
  launch,
  locate,
  needsOwnLibraries,
  otherSuiteOf,
  packagesOf,
  programsOf,
  SERVER_KINDS,
} from '../test/servers/binaries.mjs';
import { cacheFolder } from '../test/servers/cache-folder.mjs';
import { privateApt } from './private-apt.mjs';
import { run } from './run.mjs';

/** @typedef {import('../test/servers/binaries.mjs').ServerKind} ServerKind */
/** @typedef {import('./private-apt.mjs').Apt} Apt */

/**
 * @param {(line: string) => void} say
 * @returns {void} what could not be fetched was said; its tests are then skipped, or fail, with what to install
 */
export function fetchMissingServers(say) {
  const missing = SERVER_KINDS.filter((kind) => locate(kind) === null);
  if (missing.length === 0) return;
  if (!onPath('apt-get') || !onPath('dpkg')) return missing.forEach((kind) => say(`${adviceFor(kind)}.`));
  const startedMs = performance.now();
  say(`Fetching ${missing.join(' and ')} for the tests into ${cacheFolder()} (nothing is installed)`);
  const workshop = mkdtempSync(join(cacheFolder(), 'fetch-'));
  try {
    const apt = privateApt(workshop);
    for (const kind of missing) {
      attempt(kind, say, () => fetch(kind, aptFor(kind, apt, workshop), workshop));
    }
    say(`Done in ${((performance.now() - startedMs) / 1_000).toFixed(1)} s`);
  } catch (error) {
    say(`Could not fetch: ${messageOf(error)}`);
  } finally {
    rmSync(workshop, { recursive: true, force: true });
  }
}

/**
 * One server that cannot be had is no reason to do without the others.
 *
 * @param {ServerKind} kind
 * @param {(line: string) => void} say
 * @param {() => void} work
 */
function attempt(kind, say, work) {
  try {
    work();
  } catch (error) {
    say(`Could not fetch ${kind}: ${messageOf(error)}`);
  }
}

/** @param {unknown} error */
const messageOf = (error) => (error instanceof Error ? error.message : String(error));

/**
 * The machine's own sources, where they have the server; else the suite of Debian that has it, from the mirrors that
 * these sources name, its packages verified by apt with Debian's keys as all others.
 *
 * @param {ServerKind} kind
 * @param {Apt} apt
 * @param {string} workshop
 * @returns {Apt}
 */
function aptFor(kind, apt, workshop) {
  const suite = otherSuiteOf(kind);
  if (suite === undefined || packagesOf(kind).every((name) => apt.has(name))) return apt;
  const other = join(workshop, suite);
  mkdirSync(other);
  return privateApt(other, apt.debianSources(suite));
}

/**
 * @param {ServerKind} kind
 * @param {Apt} apt
 * @param {string} workshop
 */
function fetch(kind, apt, workshop) {
  const packages = packagesOf(kind).flatMap((name) => apt.versioned(name));
  const downloads = join(workshop, `${kind}-packages`);
  mkdirSync(downloads);
  apt.download([...packages, ...librariesFor(kind, packages, apt)], downloads);
  const unpacked = join(workshop, kind);
  for (const file of readdirSync(downloads)) run('dpkg', ['-x', join(downloads, file), unpacked]);
  publish(unpacked, join(cacheFolder(), kind));
  try {
    tryOut(kind);
  } catch (error) {
    rmSync(join(cacheFolder(), kind), { recursive: true });
    throw error;
  }
}

/** @param {ServerKind} kind */
function tryOut(kind) {
  const found = locate(kind);
  if (!found) throw new Error(`its packages, ${packagesOf(kind).join(', ')}, do not hold its programs`);
  for (const program of programsOf(kind)) {
    const { file, before, environment } = launch(found, program);
    run(file, [...before, '--version'], environment);
  }
}

/**
 * @param {ServerKind} kind
 * @param {readonly string[]} packages
 * @param {Apt} apt
 */
function librariesFor(kind, packages, apt) {
  if (isComplete(kind)) return [];
  return needsOwnLibraries(kind) ? apt.allLibraries(packages) : apt.missingLibraries(packages);
}

/**
 * @param {string} unpacked
 * @param {string} target
 */
function publish(unpacked, target) {
  rmSync(target, { recursive: true, force: true });
  renameSync(unpacked, target);
}

/** @param {string} program */
const onPath = (program) =>
  (process.env['PATH'] ?? '').split(delimiter).some((folder) => existsSync(join(folder, program)));
