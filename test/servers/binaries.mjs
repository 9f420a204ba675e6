// Where the servers' programs are. Plain JavaScript, because the fetch before the tests and the tests share it.
import { existsSync, lstatSync, mkdirSync, readdirSync, statSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';

/** @typedef {'redis' | 'postgres' | 'mariadb' | 'etcd' | 'zookeeper' | 'consul'} ServerKind */

/**
 * `folder` holds the programs; `libraries` are folders for LD_LIBRARY_PATH, empty when the system's own are enough; `jars`
 * are what a Java server consists of.
 *
 * @typedef {{ readonly folder: string, readonly libraries: readonly string[], readonly jars?: readonly string[] }} Binaries
 */

/** @type {readonly ServerKind[]} */
export const SERVER_KINDS = ['redis', 'postgres', 'mariadb', 'etcd', 'zookeeper', 'consul'];

/**
 * @typedef {object} Server
 * @property {readonly string[]} programs
 * @property {readonly string[]} [jars] of a server that a program of the system runs; only these are ever fetched
 * @property {readonly string[]} packages
 * @property {string} [olderSuite] of Debian, that still has the packages where the present one has not
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
    olderSuite: 'bullseye',
    advice: 'no consul was found: install Consul 1.8 or later (Debian 11: apt-get install consul)',
  },
};

/** Where systems keep servers that are not on the PATH of everybody. */
const SERVER_FOLDERS = ['/usr/sbin', '/usr/local/sbin', '/usr/libexec'];

const JAR_FOLDERS = ['/usr/share/java'];

const REPOSITORY = dirname(dirname(import.meta.dirname));

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
export const olderSuiteOf = (kind) => SERVERS[kind].olderSuite;

/** @param {ServerKind} kind */
export const packagesOf = (kind) => SERVERS[kind].packages;

/**
 * The folder that fetched servers are kept in, created when missing. In the repository, unless the server, which must not
 * run as root, could not get there.
 *
 * @returns {string}
 */
export function cacheFolder() {
  const chosen = process.env['SERVERS_CACHE'];
  if (chosen) return privateFolder(chosen);
  const inRepository = join(REPOSITORY, '.cache', 'servers');
  if (process.getuid?.() !== 0 || openToAll(REPOSITORY)) return privateFolder(inRepository);
  return privateFolder('/var/tmp/nestjs-distributed-lock-servers');
}

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
  return folder === undefined ? null : { folder, libraries: libraryFolders(root) };
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

/**
 * @param {ServerKind} kind
 * @param {string} folder
 */
const hasPrograms = (kind, folder) => SERVERS[kind].programs.every((name) => existsSync(join(folder, name)));

/** @param {string} folder */
const entries = (folder) => (existsSync(folder) ? readdirSync(folder) : []);

/**
 * Programs are run from here, so nobody else may be able to put one in.
 *
 * @param {string} folder
 */
function privateFolder(folder) {
  mkdirSync(folder, { recursive: true, mode: 0o755 });
  const found = lstatSync(folder);
  if (!found.isDirectory() || found.uid !== process.getuid?.() || (found.mode & 0o022) !== 0) {
    throw new Error(`${folder} must be a folder that only its owner, you, can write to.`);
  }
  return folder;
}

/**
 * @param {string} folder
 * @returns {boolean} whether every user can reach what is in it
 */
function openToAll(folder) {
  const reachable = (statSync(folder).mode & 0o001) !== 0;
  return reachable && (folder === dirname(folder) || openToAll(dirname(folder)));
}
