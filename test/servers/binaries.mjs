// Where the servers' programs are. Plain JavaScript, because the fetch before the tests and the tests share it.
import { existsSync, readdirSync, realpathSync } from 'node:fs';
import { basename, delimiter, join } from 'node:path';
import { cacheFolder } from './cache-folder.mjs';

/** @typedef {'redis' | 'postgres' | 'mariadb' | 'mysql' | 'etcd' | 'zookeeper' | 'consul'} ServerKind */

/**
 * `folder` holds the programs; `libraries` are folders for LD_LIBRARY_PATH, empty when the system's own are enough; `jars`
 * are what a Java server consists of; `loader` starts programs that were built for another C library than the system's.
 *
 * @typedef {object} Binaries
 * @property {string} folder
 * @property {readonly string[]} libraries
 * @property {readonly string[]} [jars]
 * @property {string | undefined} [loader]
 */

/** @type {readonly ServerKind[]} */
export const SERVER_KINDS = ['redis', 'postgres', 'mariadb', 'mysql', 'etcd', 'zookeeper', 'consul'];

/**
 * @typedef {object} Server
 * @property {readonly string[]} programs
 * @property {readonly string[]} [jars] of a server that a program of the system runs; only these are ever fetched
 * @property {readonly string[]} packages
 * @property {string} [otherSuite] of Debian, that has the packages where the machine's own has not
 * @property {boolean} [ownLibraries] the packages of the other suite need its libraries, too, down to the C library
 * @property {string} [imposter] the program of another server, to which a link of this name may lead
 * @property {string} advice
 */

/** @type {Record<ServerKind, Server>} */
const SERVERS = {
  redis: {
    programs: ['redis-server'],
    packages: ['redis-server', 'redis-tools'],
    advice:
      'no redis-server was found: install Redis 6.2 or later (Debian, Ubuntu: apt-get install redis-server)',
  },
  postgres: {
    programs: ['initdb', 'postgres'],
    packages: ['postgresql'],
    advice:
      'no postgres and initdb were found: install PostgreSQL 14 or later (Debian, Ubuntu: apt-get install postgresql)',
  },
  mariadb: {
    programs: ['mariadbd'],
    packages: ['mariadb-server-core'],
    advice:
      'no mariadbd was found: install MariaDB 10.6 or later (Debian, Ubuntu: apt-get install mariadb-server)',
  },
  mysql: {
    programs: ['mysqld'],
    packages: ['mysql-server-core'],
    otherSuite: 'sid',
    ownLibraries: true,
    imposter: 'mariadbd',
    advice: 'no mysqld of MySQL was found: install MySQL 8.0 or later (Debian unstable: mysql-server-core)',
  },
  etcd: {
    programs: ['etcd'],
    packages: ['etcd-server'],
    advice: 'no etcd was found: install etcd 3.4 or later (Debian, Ubuntu: apt-get install etcd-server)',
  },
  zookeeper: {
    programs: ['java'],
    jars: ['zookeeper', 'zookeeper-jute', 'slf4j-api', 'slf4j-simple', 'metrics-core', 'snappy-java'],
    packages: ['libzookeeper-java', 'libslf4j-java', 'libdropwizard-metrics-java', 'libsnappy-java'],
    advice:
      'no ZooKeeper was found: install Java 11 or later and ZooKeeper 3.5 or later ' +
      '(Debian, Ubuntu: apt-get install default-jre-headless libzookeeper-java libslf4j-java)',
  },
  consul: {
    programs: ['consul'],
    packages: ['consul'],
    otherSuite: 'bullseye',
    advice: 'no consul was found: install Consul 1.8 or later (Debian 11: apt-get install consul)',
  },
};

/** Where systems keep servers that are not on the PATH of everybody. */
const SERVER_FOLDERS = ['/usr/sbin', '/usr/local/sbin', '/usr/libexec'];

const JAR_FOLDERS = ['/usr/share/java'];

/**
 * The programs of one kind of server: on PATH, where systems keep servers, or in the private cache; null when in none.
 * `SERVERS_FROM=cache` looks in the cache only.
 *
 * @param {ServerKind} kind
 * @returns {Binaries | null}
 */
export function locate(kind) {
  const { jars } = SERVERS[kind];
  if (jars) return locateJava(kind, jars);
  const fromCache = process.env['SERVERS_FROM'] === 'cache';
  const system = fromCache ? undefined : systemFolders().find((folder) => hasPrograms(kind, folder));
  return system === undefined ? locateCached(kind) : { folder: system, libraries: [] };
}

/**
 * How to run one of the programs: its file, what comes before its own arguments, and what it needs in its environment.
 *
 * @param {Binaries} binaries
 * @param {string} program
 * @returns {{ readonly file: string, readonly before: readonly string[], readonly environment: NodeJS.ProcessEnv }}
 */
export function launch({ folder, libraries, loader }, program) {
  const file = join(folder, program);
  const path = libraries.join(':');
  if (loader) return { file: loader, before: ['--library-path', path, file], environment: {} };
  return { file, before: [], environment: path === '' ? {} : { LD_LIBRARY_PATH: path } };
}

/**
 * One sentence for whoever reads that a test was skipped.
 *
 * @param {ServerKind} kind
 */
export const adviceFor = (kind) => SERVERS[kind].advice;

/** @param {ServerKind} kind */
export const programsOf = (kind) => SERVERS[kind].programs;

/**
 * Whether it needs nothing but its packages and what the system has.
 *
 * @param {ServerKind} kind
 */
export const isComplete = (kind) => SERVERS[kind].jars !== undefined;

/**
 * The suite of Debian that has its packages, if the machine's own has not; undefined where they are the machine's own.
 *
 * @param {ServerKind} kind
 */
export const otherSuiteOf = (kind) => SERVERS[kind].otherSuite;

/** @param {ServerKind} kind */
export const needsOwnLibraries = (kind) => SERVERS[kind].ownLibraries === true;

/** @param {ServerKind} kind */
export const packagesOf = (kind) => SERVERS[kind].packages;

/**
 * @param {ServerKind} kind
 * @param {readonly string[]} names
 * @returns {Binaries | null}
 */
function locateJava(kind, names) {
  const folder = systemFolders().find((each) => hasPrograms(kind, each));
  const fromCache = process.env['SERVERS_FROM'] === 'cache';
  const folders = [...(fromCache ? [] : JAR_FOLDERS), join(cacheFolder(), kind, 'usr/share/java')];
  const jars = folders.map((each) => names.map((name) => join(each, `${name}.jar`)));
  const found = jars.find((paths) => paths.every((path) => existsSync(path)));
  return folder === undefined || found === undefined ? null : { folder, libraries: [], jars: found };
}

/** @param {ServerKind} kind */
function locateCached(kind) {
  const root = join(cacheFolder(), kind);
  const folder = [join(root, 'usr/bin'), join(root, 'usr/sbin'), ...postgresFolders(root)].find((each) =>
    hasPrograms(kind, each),
  );
  if (folder === undefined) return null;
  const libraries = libraryFolders(root);
  return { folder, libraries, loader: libraries.map(loaderIn).find((found) => found !== undefined) };
}

/** @returns {string[]} */
function systemFolders() {
  const path = (process.env['PATH'] ?? '').split(delimiter).filter((folder) => folder !== '');
  return [...path, ...SERVER_FOLDERS, ...postgresFolders('/')];
}

/**
 * Newest version first.
 *
 * @param {string} root
 */
function postgresFolders(root) {
  const versions = join(root, 'usr/lib/postgresql');
  return entries(versions)
    .sort((a, b) => Number(b) - Number(a))
    .map((version) => join(versions, version, 'bin'));
}

/** @param {string} root */
function libraryFolders(root) {
  return [join(root, 'usr/lib'), join(root, 'lib')].flatMap((parent) =>
    entries(parent)
      .filter((name) => name.includes('-linux-'))
      .map((name) => join(parent, name)),
  );
}

/** @param {string} libraries */
function loaderIn(libraries) {
  const name = entries(libraries).find((each) => /^ld-linux.*\.so\.\d+$/.test(each));
  return name && join(libraries, name);
}

/**
 * @param {ServerKind} kind
 * @param {string} folder
 */
function hasPrograms(kind, folder) {
  const { programs, imposter } = SERVERS[kind];
  const paths = programs.map((name) => join(folder, name));
  return paths.every((path) => existsSync(path) && basename(realpathSync(path)) !== imposter);
}

/** @param {string} folder */
const entries = (folder) => (existsSync(folder) ? readdirSync(folder) : []);
