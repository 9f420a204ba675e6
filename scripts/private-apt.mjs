import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { run } from './run.mjs';

/** PostgreSQL loads these only to compile queries, which the tests switch off, or to run Perl; they are its largest part. */
const NOT_NEEDED = /^lib(llvm|z3|perl)|-perl$/;

const ONLY_NEEDED = ['recommends', 'suggests', 'conflicts', 'breaks', 'replaces', 'enhances'].map(
  (kind) => `--no-${kind}`,
);

/** The keys of all releases of Debian that are still kept, where its package of keys puts them. */
const DEBIAN_KEYS = '/usr/share/keyrings/debian-archive-keyring.gpg';

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
export function privateApt(workshop, sources) {
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
