// Fetches the servers that the tests need and the machine lacks, on Debian and its descendants, into a private folder:
// packages are downloaded and unpacked, nothing is installed, and neither apt's nor dpkg's state is touched.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
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

/** @typedef {import('../test/servers/binaries.mjs').ServerKind} ServerKind */

const COMMAND_LIMIT_MS = 300_000;

/** PostgreSQL loads these only to compile queries, which the tests switch off, or to run Perl; they are its largest part. */
const NOT_NEEDED = /^lib(llvm|z3|perl)|-perl$/;

const ONLY_NEEDED = ['recommends', 'suggests', 'conflicts', 'breaks', 'replaces', 'enhances'].map(
  (kind) => `--no-${kind}`,
);

/** The keys of all releases of Debian that are still kept, where its package of keys puts them. */
const DEBIAN_KEYS = '/usr/share/keyrings/debian-archive-keyring.gpg';

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
  const found = locate(kind);
  if (!found) throw new Error(`the packages ${packages.join(', ')} do not hold the programs of ${kind}`);
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

/**
 * @typedef {object} Apt
 * @property {(name: string) => boolean} has
 * @property {(suite: string) => string} debianSources what to write into the list of sources for another suite of Debian
 * @property {(name: string) => string[]} versioned the packages behind a name that only stands for the present version
 * @property {(packages: readonly string[]) => string[]} missingLibraries
 * @property {(packages: readonly string[]) => string[]} allLibraries down to the C library, whatever the machine has
 * @property {(packages: readonly string[], folder: string) => void} download
 */

/**
 * apt with lists and caches of its own. It reads the machine's sources, unless it is given others, and the list of what is
 * installed.
 *
 * @param {string} workshop
 * @param {string} [sources]
 * @returns {Apt}
 */
function privateApt(workshop, sources) {
  const config = join(workshop, 'apt.conf');
  for (const folder of ['lists/partial', 'cache/archives/partial']) {
    mkdirSync(join(workshop, folder), { recursive: true });
  }
  writeFileSync(config, configuration(workshop, sources));
  /** @param {string} program @param {readonly string[]} args @param {string} [cwd] */
  const apt = (program, args, cwd) => run(program, ['-c', config, ...args], { LC_ALL: 'C' }, cwd);
  apt('apt-get', ['update', '-qq']);
  return {
    has: (name) => /^ {2}Candidate: (?!\(none\))/m.test(apt('apt-cache', ['policy', name])),
    debianSources: (suite) => {
      const format = '$(ORIGIN)|$(REPO_URI)|$(COMPONENT)';
      const filter = ['indextargets', '--format', format, 'Created-By: Packages'];
      return sourcesOf(apt('apt-get', filter), suite);
    },
    versioned: (name) => {
      const answer = apt('apt-cache', ['depends', '--important', name]);
      const behind = [...answer.matchAll(new RegExp(`Depends: (${name}-\\d+)$`, 'gm'))].map(
        (match) => match[1] ?? '',
      );
      return behind.length > 0 ? behind : [name];
    },
    missingLibraries: (packages) => {
      const answer = apt('apt-get', ['--simulate', '--no-install-recommends', 'install', ...packages]);
      const fresh = [...answer.matchAll(/^Inst (\S+) \(/gm)].map((match) => match[1] ?? '');
      return fresh.filter(
        (name) => name.startsWith('lib') && !NOT_NEEDED.test(name) && !packages.includes(name),
      );
    },
    allLibraries: (packages) => {
      const answer = apt('apt-cache', ['depends', '--recurse', ...ONLY_NEEDED, ...packages]);
      const names = answer.split('\n').filter((name) => /^(lib|zlib)/.test(name) && !NOT_NEEDED.test(name));
      return [...new Set(names)];
    },
    download: (packages, folder) => void apt('apt-get', ['download', '-qq', ...packages], folder),
  };
}

/**
 * The same mirrors, another suite, signed by Debian. Security updates come from archives with suites of other names.
 *
 * @param {string} targets
 * @param {string} suite
 */
function sourcesOf(targets, suite) {
  const rows = targets.split('\n').map((row) => row.split('|'));
  const plain = rows.filter(([origin, uri = '', component]) => {
    return origin === 'Debian' && component === 'main' && !uri.includes('security');
  });
  const signed = existsSync(DEBIAN_KEYS) ? `[signed-by=${DEBIAN_KEYS}] ` : '';
  const lines = plain.map(([, uri]) => `deb ${signed}${uri} ${suite} main`);
  if (lines.length > 0) return `${[...new Set(lines)].join('\n')}\n`;
  throw new Error(`the machine's sources name no mirror of Debian that ${suite} could be taken from`);
}

/**
 * @param {string} workshop
 * @param {string} [sources]
 */
function configuration(workshop, sources) {
  const list = join(workshop, 'sources.list');
  if (sources !== undefined) writeFileSync(list, sources);
  return [
    ...(sources === undefined ? [] : [`Dir::Etc::sourcelist "${list}";`, 'Dir::Etc::sourceparts "-";']),
    `Dir::State::lists "${workshop}/lists";`,
    `Dir::Cache "${workshop}/cache";`,
    'Dir::Cache::pkgcache "pkgcache.bin";',
    'Dir::Cache::srcpkgcache "srcpkgcache.bin";',
    'APT::Sandbox::User "root";',
    'Acquire::Languages "none";',
    'Acquire::Retries "3";',
    'Acquire::http::Timeout "20";',
    'Acquire::https::Timeout "20";',
    '#clear APT::Update::Pre-Invoke;',
    '#clear APT::Update::Post-Invoke;',
    '#clear APT::Update::Post-Invoke-Success;',
    '',
  ].join('\n');
}

/**
 * @param {string} program
 * @param {readonly string[]} args
 * @param {NodeJS.ProcessEnv} [environment]
 * @param {string} [cwd]
 */
function run(program, args, environment = {}, cwd) {
  const env = { ...process.env, ...environment };
  const ended = spawnSync(program, args, { cwd, env, encoding: 'utf8', timeout: COMMAND_LIMIT_MS });
  if (ended.error) throw ended.error;
  if (ended.status === 0) return ended.stdout;
  throw new Error(`${program} ${args.join(' ')} ended with ${ended.status}:\n${ended.stderr.trim()}`);
}

/** @param {string} program */
const onPath = (program) =>
  (process.env['PATH'] ?? '').split(delimiter).some((folder) => existsSync(join(folder, program)));
